-- Scores of users, and the progress of score jobs.

create table event_results (
    event_id      bigint      not null references events,
    -- Value of `events.result_revision` when the result was written.
    revision      bigint      not null,
    -- Null if the result gives no points: the match was called off, or its result was annulled.
    home_score    integer,
    away_score    integer,
    -- Start of the match as known then. It determines the leaderboards and the predictions that count.
    start_time    timestamptz not null,
    -- Other details of the match as known then: see `events`.
    round         smallint,
    multiplier    smallint    not null default 2,
    is_knockout   boolean     not null default false,
    advanced      text,
    recorded_at   timestamptz not null,
    -- Time of the next check for lost work, while the job is unfinished.
    look_again_at timestamptz not null,
    -- Time at which all scores included this result or a later one.
    applied_at    timestamptz,
    primary key (event_id, revision)
);
comment on table event_results is 'reference: all results of matches, with corrections and annulments';
create index event_results_to_apply on event_results (look_again_at) where applied_at is null;

create table score_lanes (
    -- What users score points for: the predictions of a `match`, or the answers to a `question`.
    source         text    not null check (source in ('match', 'question')),
    -- Id of the match or question.
    source_id      bigint  not null,
    lane           integer not null,
    -- Range of user ids. Together, the chunks of a source cover every possible id.
    from_user      bigint  not null,
    until_user     bigint  not null,
    -- Revision included in the scores of these users, and revision shown on leaderboards; 0 for none.
    revision       bigint  not null,
    shown_revision bigint  not null,
    -- Number from `score_writes` of the last transaction that changed these users' scores; 0 for none.
    written        bigint  not null,
    primary key (source, source_id, lane)
);
comment on table score_lanes is 'reference: progress of score jobs, by chunk of users';
-- For finding chunks that were written since another one.
create index score_lanes_by_write on score_lanes (written);
-- Numbers the transactions that change scores. Each takes its number after its last change of a score, so of two that
-- change the same score, the later one has the greater number.
create sequence score_writes;
-- Incremented by every transaction that repairs scores.
create sequence score_repairs;

create table user_scores (
    user_id bigint  not null,
    -- Leaderboard: see `score_scopes`.
    scope   text    not null collate "C",
    points  integer not null,
    -- Number of exact scores.
    exact   integer not null,
    -- Number of correct outcomes.
    correct integer not null,
    -- Number of matches with a result.
    settled integer not null,
    -- Number of answered questions that are resolved. A user with neither matches nor questions, because all were
    -- annulled, is not on the leaderboard.
    answered integer not null default 0,
    primary key (user_id, scope)
    -- Leaves room for a second version of every row on its page: a result updates many rows, and heap-only updates need
    -- no new index entries.
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
comment on table user_scores is 'user: scores of users, by leaderboard';
-- No index by leaderboard: it would make each new row half as expensive again, and only rebuilding a leaderboard in
-- Redis would use it. That walks the primary key instead.

create table score_retention (
    -- `week`: scopes that start with `week:`.
    period         text   primary key,
    -- Scopes of the period before this one, as in week:2026-38, have no scores any more. Results no longer change them.
    dropped_before text   not null collate "C",
    -- Users from this id on may still have such scores. Null when all are deleted.
    next_user      bigint
);
comment on table score_retention is 'local: past weeks whose scores were deleted';

-- Leaderboards that a match or question counts for, in the order of their names. The time is the start of the match, or
-- the lock of the question.
create function score_scopes(tournament_id bigint, start_time timestamptz, round smallint) returns text[]
    language sql immutable parallel safe
    return array['all', 'month:' || to_char(start_time at time zone 'UTC', 'YYYY-MM')]
        || case when round is not null then array['round:' || tournament_id || ':' || round] end
        || array['tournament:' || tournament_id, 'week:' || to_char(start_time at time zone 'UTC', 'IYYY-IW')];

-- Points of each user for each result that gives points. A result counts the content that a prediction had at the start
-- of the match as known then, or when the result was recorded, if that was earlier. A revision counts from `made_at`
-- (exclusive) to `replaced_at` (inclusive), so at most one row is joined. The match is compared twice. The plain equality
-- prunes partitions; without it, the planner may read all revisions of a user. The match is that of the prediction, so that
-- a condition on matches prunes too. The `case` is null for a prediction whose latest revision counts: PostgreSQL then skips
-- the lookup, which is needed for few predictions.
create view result_points as
    select c.event_id, c.revision, c.user_id,
           prediction_points(
               row(c.outcome, c.difference, c.exact, c.margin_within, c.margin_points, c.stake, c.rule_advances)::point_rules,
               row(c.prediction, c.home_goals, c.away_goals, c.confidence, c.advances, c.joker)::forecast,
               row(c.home_score, c.away_score, c.advanced, c.is_knockout, c.multiplier)::match_result) as points,
           case when c.home_goals = c.home_score and c.away_goals = c.away_score then 1 else 0 end as exact,
           case when c.prediction = pick_of(c.home_score, c.away_score) then 1 else 0 end as correct
    from (
        select p.event_id, r.revision, r.home_score, r.away_score, r.advanced, r.is_knockout, r.multiplier, p.user_id,
               s.outcome, s.difference, s.exact, s.margin_within, s.margin_points, s.stake, s.advances as rule_advances,
               case when l.revision is null then p.prediction else l.prediction end as prediction,
               case when l.revision is null then p.home_goals else l.home_goals end as home_goals,
               case when l.revision is null then p.away_goals else l.away_goals end as away_goals,
               case when l.revision is null then p.confidence else l.confidence end as confidence,
               case when l.revision is null then p.advances else l.advances end as advances,
               case when l.revision is null then p.joker else l.joker end as joker
        from event_results r
        join events e on e.id = r.event_id
        join rule_sets s on s.id = e.rule_set_id
        join predictions p on p.event_id = r.event_id
        left join prediction_revisions l
          on l.user_id = p.user_id and l.event_id = p.event_id
         and l.event_id = case when p.updated_at >= least(r.start_time, r.recorded_at) then p.event_id end
         and l.made_at < least(r.start_time, r.recorded_at)
         and l.replaced_at >= least(r.start_time, r.recorded_at)
        where r.home_score is not null
          and (p.updated_at < least(r.start_time, r.recorded_at) or l.revision is not null)
    ) c;
comment on view result_points is 'user: points of each user for each result that gives points';
