-- Sports, tournaments, teams and matches: written by operators and feeds, read by all users.

create extension if not exists pg_trgm;

-- Rows are inserted and never changed: matches refer to them, and their points must stay the same.
create table rule_sets (
    id            bigint      generated always as identity primary key,
    slug          text        not null unique,
    name          text        not null,
    -- Points for the right outcome, the right difference and the exact score.
    outcome       integer     not null,
    difference    integer     not null,
    exact         integer     not null,
    -- Greatest distance from the right difference that earns points, and these points.
    margin_within integer,
    margin_points integer,
    -- Greatest number of points that the confidence adds or takes.
    stake         integer     not null,
    -- Points for the team that advances in a knockout match.
    advances      integer     not null,
    -- Multipliers by stage, in halves: {"final": 4} doubles the points of the final.
    multipliers   jsonb       not null,
    -- Number of jokers of a user in a tournament.
    jokers        integer     not null,
    created_at    timestamptz not null,
    constraint rule_sets_points check (0 <= outcome and outcome <= difference and difference <= exact and exact <= 1000),
    constraint rule_sets_margin check ((margin_within is null) = (margin_points is null)
        and margin_within between 1 and 999 and margin_points between outcome and exact),
    constraint rule_sets_rest check (stake between 0 and 1000 and advances between 0 and 1000 and jokers between 0 and 100)
);
comment on table rule_sets is 'reference: values by which points are computed';
-- The first rule set has id 1. Matches without another one refer to it.
insert into rule_sets (slug, name, outcome, difference, exact, stake, advances, multipliers, jokers, created_at)
values ('default', 'Default', 20, 30, 40, 20, 10, '{}', 0, now());

create table sports (
    id            bigint   generated always as identity primary key,
    slug          text     not null unique,
    name          text     not null,
    -- Whether a match can end in a draw.
    draws_allowed boolean  not null default true,
    -- Highest score of a team that can be predicted.
    max_score     smallint not null default 99 check (max_score between 1 and 999),
    -- Rule set of new matches, unless their tournament has one.
    rule_set_id   bigint   references rule_sets
);
comment on table sports is 'reference: sports';

create table tournaments (
    id          bigint generated always as identity primary key,
    sport_id    bigint not null references sports,
    slug        text   not null unique,
    name        text   not null,
    logo        text,
    -- Rule set of new matches.
    rule_set_id bigint references rule_sets
);
comment on table tournaments is 'reference: tournaments';

create table teams (
    id       bigint generated always as identity primary key,
    sport_id bigint not null references sports,
    slug     text   not null unique,
    name     text   not null,
    logo     text,
    country  text,
    founded  integer
);
comment on table teams is 'reference: teams';
create index teams_by_name on teams (name, id);
-- For case-insensitive search of any part of a name.
create index teams_name_trgm on teams using gin (lower(name) gin_trgm_ops);

create table events (
    id              bigint      generated always as identity primary key,
    tournament_id   bigint      not null references tournaments,
    -- Identifier of the match in its fixture document or feed.
    key             text        not null,
    home_team_id    bigint      not null references teams,
    away_team_id    bigint      not null references teams,
    start_time      timestamptz not null,
    venue           text        not null default '',
    status          text        not null,
    home_score      integer,
    away_score      integer,
    -- Incremented by every result, correction and annulment, so each can be applied exactly once.
    result_revision bigint      not null default 0,
    -- Never changes.
    rule_set_id     bigint      not null default 1 references rule_sets,
    -- Orders the rounds of a tournament.
    round           smallint,
    -- Slug of the stage, as in `group` or `final`.
    stage           text,
    -- Factor for all points of the match, in halves: the match's own, or that of its stage in the rule set.
    multiplier      smallint    not null default 2,
    -- Whether one of the teams advances.
    is_knockout     boolean     not null default false,
    -- Team that advanced: `home` or `away`.
    advanced        text,
    updated_at      timestamptz not null,

    -- 0 live, 1 upcoming, 2 finished: the three states of the API, in the order of the list.
    phase           smallint    not null generated always as (
        case when status in ('live', 'suspended') then 0
             when status in ('scheduled', 'postponed', 'cancelled') then 1
             else 2 end) stored,
    -- Order within a phase: upcoming matches by ascending start, all others by descending start.
    list_order      bigint      not null generated always as (
        (extract(epoch from (start_time - timestamptz '2000-01-01 00:00:00+00')) * 1000)::bigint
        * case when status in ('scheduled', 'postponed', 'cancelled') then 1 else -1 end) stored,

    unique (tournament_id, key),
    constraint events_status check (status in
        ('scheduled', 'live', 'finished', 'postponed', 'suspended', 'abandoned', 'cancelled', 'awarded')),
    constraint events_two_teams check (home_team_id <> away_team_id),
    constraint events_goals check (home_score between 0 and 999 and away_score between 0 and 999),
    constraint events_round check (round between 1 and 999),
    constraint events_multiplier check (multiplier in (2, 3, 4, 6)),
    constraint events_advanced check (advanced is null
        or (advanced in ('home', 'away') and is_knockout and status in ('finished', 'awarded'))),
    constraint events_result check (
        status not in ('finished', 'awarded') or (home_score is not null and away_score is not null)
    )
);
comment on table events is 'reference: matches';
create index events_listed on events (phase, list_order, id);
create index events_listed_by_tournament on events (tournament_id, phase, list_order, id);
create index events_by_home_team on events (home_team_id, phase, list_order, id);
create index events_by_away_team on events (away_team_id, phase, list_order, id);
create index events_by_start on events (start_time);
create index events_by_round on events (tournament_id, round);

create table user_teams (
    user_id bigint   not null references users,
    -- 0 is the primary team, 1 to 5 are the other favourites in the given order.
    rank    smallint not null check (rank between 0 and 5),
    team_id bigint   not null references teams,
    primary key (user_id, rank)
);
comment on table user_teams is 'user: favourite teams';
