-- Leagues: named groups of users with their own table, joined by an invite code.

create table leagues (
    id              bigint      generated always as identity primary key,
    name            text        not null,
    owner_id        bigint      not null,
    -- `private`: only members know the league. `public`: all users can find and join it.
    visibility      text        not null check (visibility in ('private', 'public')),
    -- `league_start`: past matches count for members who join later. `joined`: they do not.
    counts_from     text        not null check (counts_from in ('league_start', 'joined')),
    -- Tournaments whose matches count, in ascending order.
    tournament_ids  bigint[]    not null,
    -- Only matches of this round or a later one, or that start at this time or later.
    from_round      smallint    check (from_round between 1 and 999),
    from_time       timestamptz,
    max_members     integer     not null check (max_members >= 2),
    -- Number of members, which racing joins cannot raise above the maximum.
    member_count    integer     not null,
    -- Incremented by every change of the members, so that cached tables are recognised as old.
    members_version bigint      not null default 0,
    -- Keyed hash of the invite code, by which it is found.
    code_digest     bytea       not null unique,
    -- The code itself, encrypted, because members can read it again.
    code_ciphertext bytea       not null,
    code_key        smallint    not null,
    -- Whether the league has a chat room: the one with its `league_id`, once it exists.
    has_chat        boolean     not null,
    created_at      timestamptz not null,
    constraint leagues_cap check (member_count between 0 and max_members),
    constraint leagues_start check (from_round is null or from_time is null)
);
comment on table leagues is 'local: leagues of users, with the number of their members';
create index leagues_public on leagues (id) include (owner_id) where visibility = 'public';
create index leagues_name_trgm on leagues using gin (lower(name) gin_trgm_ops) where visibility = 'public';
create index leagues_by_tournament on leagues using gin (tournament_ids);
-- For account deletions and exports.
create index leagues_by_owner on leagues (owner_id);
create index leagues_with_chat on leagues (id) where has_chat;

-- League whose members are the members of the room. Stays when the league is deleted: its last member must still leave the
-- room.
alter table rooms add column league_id bigint;
create unique index rooms_by_league on rooms (league_id) where league_id is not null;

create table league_members (
    user_id     bigint      not null,
    league_id   bigint      not null,
    joined_at   timestamptz not null,
    -- Idempotency key of the request that joined or created the league, and the digest of its content. Its response is not
    -- stored, because it has the code, so a repeated request is recognised by these.
    request_key bytea,
    request_digest bytea,
    primary key (user_id, league_id)
);
comment on table league_members is 'user: members of leagues';
create index league_members_by_league on league_members (league_id, user_id);

create table league_removals (
    user_id    bigint      not null,
    league_id  bigint      not null,
    removed_at timestamptz not null,
    primary key (user_id, league_id)
);
create index league_removals_by_league on league_removals (league_id);
comment on table league_removals is 'user: users whom the owner of a league removed, and who cannot join it again';

create table league_notifications (
    user_id    bigint      not null,
    league_id  bigint      not null,
    round      smallint    not null,
    claimed_at timestamptz not null,
    primary key (user_id, league_id, round)
);
comment on table league_notifications is 'user: notifications of lost places by league and round; written before they are sent, swept after a month';
create index league_notifications_by_time on league_notifications (claimed_at);

-- Whether the user is notified of places lost in a league.
alter table notification_settings add column league_ranks boolean not null default true;
