-- Chat rooms, who is in them, and what keeps them safe. Chat itself (messages, history, keys) is the homeserver's; here
-- is what lists and rules need of it, mirrored from what the homeserver pushes.
--
-- One more kind of table:
--   room:       a row per room and more; room_id stands first in the primary key, so that one room's rows lie together

create table rooms (
    id           bigint      generated always as identity primary key,
    -- What the homeserver calls it; null until it is there.
    matrix_id    text        unique,
    -- The name it is asked for under. Asked twice under one alias, the homeserver makes one room.
    alias        text        not null unique,
    name         text        not null,
    topic        text        not null default '',
    event_id     bigint      references events,
    -- The match's own rooms: its first stand is made with the match, further ones when those before are full. Null for
    -- a room that somebody opened.
    stand        integer     check (stand >= 1),
    creator_id   bigint,
    is_private   boolean     not null default false,
    created_at   timestamptz not null,
    -- Who makes it on the homeserver makes it alone until then.
    made_until   timestamptz not null,
    -- Since when the homeserver has the alias and no more. It may be at work on it, or have died over it.
    half_made_at timestamptz,
    -- Since when it is being removed, because its making came to nothing.
    discarded_at timestamptz,
    -- Null until all of its making is done. Before that nobody sees it.
    opened_at    timestamptz,
    unique (event_id, stand),
    constraint rooms_owner check ((stand is null) = (creator_id is not null)),
    constraint rooms_stand_of_match check (stand is null or event_id is not null)
);
comment on table rooms is 'reference: chat rooms';
create index rooms_unfinished on rooms (created_at) where opened_at is null;
-- Serves finding a wish that is asked for again.
create index rooms_by_creator on rooms (creator_id, created_at) where creator_id is not null;
-- Serves searching any part of a name, ignoring case.
create index rooms_name_trgm on rooms using gin (lower(name) gin_trgm_ops);

create table room_activity (
    room_id       bigint      primary key references rooms on delete cascade,
    -- Who has joined, without the service's bot.
    member_count  bigint      not null default 0 check (member_count >= 0),
    last_activity timestamptz not null,
    -- When the members were last compared with the homeserver's.
    compared_at   timestamptz not null
);
comment on table room_activity is 'room: what changes with every message and every join';
create index room_activity_by_time on room_activity (last_activity, room_id);

create table room_members (
    user_id    bigint      not null references users,
    room_id    bigint      not null references rooms on delete cascade,
    membership text        not null check (membership in ('join', 'invite', 'leave', 'ban')),
    -- Whose invitation it is.
    invited_by bigint,
    -- Last message or join, to within a minute.
    active_at  timestamptz,
    changed_at timestamptz not null,
    -- The event that made it so, where the service was told of it before the homeserver pushed it. What is pushed
    -- meanwhile is older and changes nothing.
    awaits     text,
    primary key (user_id, room_id)
);
comment on table room_members is 'user: who is in which room, as the homeserver says';
create index room_members_of_room on room_members (room_id, membership);

create table remote_members (
    room_id        bigint      not null references rooms on delete cascade,
    -- As in @ada:elsewhere.example.
    matrix_user_id text        not null,
    membership     text        not null check (membership in ('join', 'invite', 'leave', 'ban')),
    changed_at     timestamptz not null,
    primary key (room_id, matrix_user_id)
);
comment on table remote_members is 'room: who is in a room and has no account here';

create table seats (
    user_id    bigint      not null references users,
    event_id   bigint      not null references events,
    room_id    bigint      not null references rooms,
    expires_at timestamptz not null,
    primary key (user_id, event_id)
);
comment on table seats is 'user: places in a match''s stands, kept for those who are joining at the moment';
create index seats_by_room on seats (room_id, expires_at);

create table chat_inbox (
    -- The homeserver's name for the event, by which it is known when it comes again.
    event_id    text        primary key,
    -- The order in which events came.
    id          bigint      generated always as identity unique,
    matrix_room text        not null,
    type        text        not null,
    sender      text        not null,
    state_key   text,
    sent_at     timestamptz not null,
    -- JSON; only of what the mirror reads. What people say to each other is not kept.
    content     text,
    received_at timestamptz not null,
    -- Null until it is dealt with.
    outcome     text        check (outcome in ('applied', 'ignored', 'set_aside')),
    fault       text
);
comment on table chat_inbox is 'timed: events that the homeserver pushed; swept by age';
create index chat_inbox_waiting on chat_inbox (id) where outcome is null;
create index chat_inbox_set_aside on chat_inbox (received_at) where outcome = 'set_aside';
create index chat_inbox_by_time on chat_inbox (received_at);

create table mirror_marks (
    name text        primary key,
    at   timestamptz not null
);
comment on table mirror_marks is 'reference: when the mirror was last asked to compare itself with the homeserver';

alter table users
    -- Since when they may not use the service.
    add column banned_at timestamptz,
    -- Since when they may not speak in chat.
    add column muted_at timestamptz;

create table restrictions (
    user_id    bigint      not null references users,
    id         bigint      generated always as identity,
    action     text        not null check (action in ('ban', 'unban', 'mute', 'unmute')),
    reason     text        not null,
    -- Who did it.
    operator   text        not null,
    created_at timestamptz not null,
    primary key (user_id, id)
);
comment on table restrictions is 'user: what operators did to an account, and why';

create table blocks (
    user_id    bigint      not null references users,
    blocked_id bigint      not null,
    created_at timestamptz not null,
    primary key (user_id, blocked_id),
    constraint blocks_somebody_else check (user_id <> blocked_id)
);
comment on table blocks is 'user: whom a user does not want to meet';
-- Serves telling chat when somebody who is blocked has another name.
create index blocks_by_blocked on blocks (blocked_id);

create table reports (
    user_id      bigint      not null references users,
    id           bigint      generated always as identity,
    room_id      bigint      not null references rooms on delete cascade,
    -- The message, as the homeserver names it.
    event_id     text        not null,
    reason       text        not null,
    -- Who sent it, when, and what it said, as the homeserver had it when it was reported.
    sender       text,
    sent_at      timestamptz,
    content      text,
    created_at   timestamptz not null,
    closed_at    timestamptz,
    resolution   text,
    primary key (user_id, id),
    unique (user_id, room_id, event_id)
);
comment on table reports is 'user: messages that users reported';
create index reports_open on reports (created_at) where closed_at is null;
-- Operators close them by this.
create index reports_by_id on reports (id);
