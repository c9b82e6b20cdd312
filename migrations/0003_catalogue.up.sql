-- Sports, tournaments, teams and matches: written by operators and feeds, read by all users.

create extension if not exists pg_trgm;

create table sports (
    id   bigint generated always as identity primary key,
    slug text not null unique,
    name text not null
);
comment on table sports is 'reference: sports';

create table tournaments (
    id       bigint generated always as identity primary key,
    sport_id bigint not null references sports,
    slug     text   not null unique,
    name     text   not null,
    logo     text
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
    -- Version of the points rules for its predictions. A match keeps it when the rules change, so its points stay the
    -- same.
    rules_version   smallint    not null,
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

create table user_teams (
    user_id bigint   not null references users,
    -- 0 is the primary team, 1 to 5 are the other favourites in the given order.
    rank    smallint not null check (rank between 0 and 5),
    team_id bigint   not null references teams,
    primary key (user_id, rank)
);
comment on table user_teams is 'user: favourite teams';
