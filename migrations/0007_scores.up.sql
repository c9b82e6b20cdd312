-- What users have earned, and what is still to be added up.

create table event_results (
    event_id      bigint      not null references events,
    -- As in `events.result_revision` when it was written.
    revision      bigint      not null,
    -- Null where nobody gains or loses: the match was called off, or its result was taken back.
    home_score    integer,
    away_score    integer,
    -- When the match began, as far as was known: which tables it counts for, and which predictions it counts.
    start_time    timestamptz not null,
    recorded_at   timestamptz not null,
    -- When somebody looks whether its work was lost, as long as it is not done.
    look_again_at timestamptz not null,
    -- When every score stood as this result has it, or as a later one.
    applied_at    timestamptz,
    primary key (event_id, revision)
);
comment on table event_results is 'reference: every result that a match has had';
create index event_results_to_apply on event_results (look_again_at) where applied_at is null;

create table score_lanes (
    event_id       bigint  not null references events,
    lane           integer not null,
    -- Users from this id, and up to that of the next lane. Together the lanes of a match hold every id there can be.
    from_user      bigint  not null,
    until_user     bigint  not null,
    -- Which result is in the scores of these users, and which one the leaderboards show; 0 for none.
    revision       bigint  not null,
    shown_revision bigint  not null,
    primary key (event_id, lane)
);
comment on table score_lanes is 'reference: how far the results of matches are in the scores, for a slice of the users each';

create table user_scores (
    user_id bigint  not null,
    -- Which table: see `score_scopes`.
    scope   text    not null collate "C",
    points  integer not null,
    -- Scores that were right to the goal.
    exact   integer not null,
    -- Outcomes that were right.
    correct integer not null,
    -- Matches with a result. 0 where all were taken back: then the user has no place in the table.
    settled integer not null,
    primary key (user_id, scope)
    -- Room for a second version of every row on its own page: a result changes all of them at once, and what finds room
    -- there needs no new entries in the indexes.
) with (fillfactor = 50);
comment on table user_scores is 'user: what a user has earned, by table';
-- Serves filling a table anew.
create index user_scores_by_scope on user_scores (scope, user_id);

-- The tables that a match counts for.
create function score_scopes(tournament_id bigint, start_time timestamptz) returns text[]
    language sql immutable parallel safe
    return array[
        'all',
        'month:' || to_char(start_time at time zone 'UTC', 'YYYY-MM'),
        'tournament:' || tournament_id,
        'week:' || to_char(start_time at time zone 'UTC', 'IYYY-IW')
    ];
