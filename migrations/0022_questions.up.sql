-- Bonus questions on tournaments, rounds and matches, and the answers of users.

create table questions (
    id              bigint      generated always as identity primary key,
    tournament_id   bigint      not null references tournaments,
    -- Identifier that the source uses for the question.
    key             text        not null,
    -- Match that the question is about.
    event_id        bigint      references events,
    -- Round that the question counts for. With a match, the round of the match counts instead.
    round           smallint    check (round between 1 and 999),
    text            text        not null,
    kind            text        not null check (kind in ('choice', 'team', 'number', 'several_of')),
    -- For `choice` and `several_of`: array of {"number", "key", "label"}, in the order shown. An option keeps its number,
    -- from 0 to 31.
    options         jsonb,
    -- For `several_of`: number of options in an answer.
    pick            smallint,
    -- For `number`: whether the nearest answers are right, or only the exact one.
    scoring         text        check (scoring in ('nearest', 'exact')),
    points          integer     not null check (points between 1 and 1000),
    -- The question is invisible before. Null: visible at once.
    opens_at        timestamptz,
    -- Null: the start of the match.
    locks_at        timestamptz,
    -- Right answers, as values of answers (see `answers`): the ids of the teams, the number, or one sum of the bits of all
    -- right options. Null until the question is resolved.
    resolution      bigint[],
    is_void         boolean     not null,
    -- Incremented by every change that affects points.
    result_revision bigint      not null default 0,
    created_at      timestamptz not null,
    unique (tournament_id, key),
    constraint questions_options check ((options is not null) = (kind in ('choice', 'several_of'))),
    constraint questions_pick check ((pick is not null) = (kind = 'several_of')),
    constraint questions_scoring check ((scoring is not null) = (kind = 'number')),
    constraint questions_lock check (locks_at is not null or event_id is not null),
    constraint questions_void check (resolution is null or not is_void)
);
comment on table questions is 'reference: bonus questions';
create index questions_by_event on questions (event_id) where event_id is not null;

create table question_results (
    question_id   bigint      not null references questions,
    -- Value of `questions.result_revision` when the result was written.
    revision      bigint      not null,
    -- Right answers. Null if answers have no points: the question is void, or its resolution was taken back.
    resolution    bigint[],
    points        integer     not null,
    -- For the nearest number: the smallest distance of an answer to it, at that time.
    distance      bigint,
    -- Lock and round as known then. They determine the leaderboards.
    locks_at      timestamptz not null,
    round         smallint,
    recorded_at   timestamptz not null,
    -- Time of the next check for lost work, while the job is unfinished.
    look_again_at timestamptz not null,
    -- Time at which all scores included this result or a later one.
    applied_at    timestamptz,
    primary key (question_id, revision)
);
comment on table question_results is 'reference: all resolutions of questions, with corrections and annulments';
create index question_results_to_apply on question_results (look_again_at) where applied_at is null;

-- No foreign keys, as for predictions.
create table answers (
    user_id     bigint      not null,
    question_id bigint      not null,
    -- `number`: the number. `team`: the id of the team. `choice`, `several_of`: the bit of the option with number n is 2^n;
    -- several bits are added.
    value       bigint      not null,
    -- 1 for the first answer, incremented by each replacement.
    revision    integer     not null,
    -- Times of the first and last revision, by the same clock that decides whether the question is open.
    created_at  timestamptz not null,
    updated_at  timestamptz not null,
    primary key (user_id, question_id)
    -- Leaves room for replaced answers, and lets autovacuum follow a burst.
) with (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.05);
comment on table answers is 'user: answers to questions, at most one per user and question';
-- For reading the answers to a question, in pages for lists and in chunks for scores.
create index answers_by_question on answers (question_id, user_id);

create table answer_revisions (
    user_id     bigint      not null,
    question_id bigint      not null,
    revision    integer     not null,
    value       bigint      not null,
    made_at     timestamptz not null,
    -- Time of the next revision. This one counted after `made_at`, up to and including this time.
    replaced_at timestamptz not null,
    primary key (user_id, question_id, revision)
);
comment on table answer_revisions is 'user: earlier revisions of replaced answers';

create table question_tallies (
    question_id bigint   not null references questions,
    -- Each batch writer has a separate slot; reads add them up.
    slot        smallint not null,
    -- Number of the option or id of the team; 0 for `number`.
    choice      bigint   not null,
    -- Number of answers with this choice. It can be negative in a slot, if another writer replaced an answer.
    answers     bigint   not null,
    primary key (question_id, slot, choice)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
comment on table question_tallies is 'tally: number of answers to a question, by choice';

-- Status of a question: `open`, `locked`, `resolved` or `void`. The arguments after `locks_at` are those of its match.
create function question_status(
    resolution bigint[], is_void boolean, locks_at timestamptz, status text, start_time timestamptz, moment timestamptz
) returns text
    language sql immutable parallel safe
    return case
        when is_void then 'void'
        when resolution is not null then 'resolved'
        when coalesce(locks_at, start_time) <= moment then 'locked'
        when status is not null and not accepts_predictions(status, start_time, moment) then 'locked'
        else 'open'
    end;

-- These questions as they are now, and the time that decided it. Called behind the gates of the questions and their
-- matches. A function, for the same reason as `open_matches`.
create function current_questions(ids bigint[]) returns table (
    id bigint, moment timestamptz, kind text, options jsonb, pick smallint, teams bigint[], status text
)
    language plpgsql as $$
#variable_conflict use_column
begin
    moment := clock_timestamp();
    return query
        select q.id, current_questions.moment, q.kind, q.options, q.pick,
               case when q.kind = 'team' then array(
                   select t.id from events m cross join lateral (values (m.home_team_id), (m.away_team_id)) as t (id)
                   where m.tournament_id = q.tournament_id and (q.event_id is null or m.id = q.event_id)
                   group by t.id) end,
               question_status(q.resolution, q.is_void, q.locks_at, e.status, e.start_time, current_questions.moment)
        from questions q left join events e on e.id = q.event_id
        where q.id = any(current_questions.ids) and (q.opens_at is null or q.opens_at <= current_questions.moment);
end $$;

-- Points of an answer.
create function answer_points(
    kind text, scoring text, resolution bigint[], points integer, distance bigint, value bigint
) returns integer
    language sql immutable parallel safe
    return points * case
        when kind in ('choice', 'several_of') then bit_count((value & resolution[1])::bit(64))::integer
        when kind = 'team' then (value = any(resolution))::integer
        when scoring = 'exact' then (value = resolution[1])::integer
        else (abs(value - resolution[1]) = distance)::integer
    end;

-- Points of each user for each result of a question that gives points. A result counts the answers as they were when it
-- was recorded; see `result_points`.
create view question_points as
    select c.question_id, c.revision, c.user_id,
           answer_points(c.kind, c.scoring, c.resolution, c.points, c.distance, c.value) as points
    from (
        select r.question_id, r.revision, q.kind, q.scoring, r.resolution, r.points, r.distance, a.user_id,
               case when l.revision is null then a.value else l.value end as value
        from question_results r
        join questions q on q.id = r.question_id
        join answers a on a.question_id = r.question_id
        left join answer_revisions l
          on l.user_id = a.user_id and l.question_id = r.question_id
         and l.question_id = case when a.updated_at >= r.recorded_at then a.question_id end
         and l.made_at < r.recorded_at and l.replaced_at >= r.recorded_at
        where r.resolution is not null and (a.updated_at < r.recorded_at or l.revision is not null)
    ) c;
comment on view question_points is 'user: points of each user for each result of a question';
