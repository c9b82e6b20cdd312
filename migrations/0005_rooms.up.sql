-- Chat rooms, their members, and moderation. The homeserver owns chat itself (messages, history, keys). These tables
-- hold the data that lists and rules need, synchronised from the events that the homeserver pushes.
--
-- One more kind of table:
--   room:       one or more rows per room; room_id comes first in the primary key, to keep a room's rows together;
--               distributed by it

create table rooms (
    id           bigint      generated always as identity primary key,
    -- Matrix room id; null until the homeserver has the room.
    matrix_id    text        unique,
    -- Alias used to create the room. The homeserver creates one room per alias, however often it is requested.
    alias        text        not null unique,
    name         text        not null,
    topic        text        not null default '',
    event_id     bigint      references events,
    -- Number of a match room. Stand 1 is created with the match, further stands when the existing ones are full. Null
    -- for a fan room.
    stand        integer     check (stand >= 1),
    creator_id   bigint,
    is_private   boolean     not null default false,
    created_at   timestamptz not null,
    -- Until then, only the worker that claimed the room creates it on the homeserver.
    made_until   timestamptz not null,
    -- Time since which the homeserver has the alias but no room, because creation is in progress or failed.
    half_made_at timestamptz,
    -- Time since which an abandoned room is being removed.
    discarded_at timestamptz,
    -- Null until the room is complete. Before that, it is not visible to users.
    opened_at    timestamptz,
    unique (event_id, stand),
    constraint rooms_owner check ((stand is null) = (creator_id is not null)),
    constraint rooms_stand_of_match check (stand is null or event_id is not null)
);
comment on table rooms is 'reference: chat rooms';
create index rooms_unfinished on rooms (created_at) where opened_at is null;
-- For finding a repeated request to create a room.
create index rooms_by_creator on rooms (creator_id, created_at) where creator_id is not null;
-- For the number of rooms, of which only the new ones are counted at each request.
create index rooms_by_opening on rooms (opened_at) where opened_at is not null;
-- For case-insensitive search of any part of a name.
create index rooms_name_trgm on rooms using gin (lower(name) gin_trgm_ops);

create table room_activity (
    room_id       bigint      primary key references rooms on delete cascade,
    -- Joined members without the service's bot.
    member_count  bigint      not null default 0 check (member_count >= 0),
    last_activity timestamptz not null,
    -- Time of the last comparison of the members with the homeserver.
    compared_at   timestamptz not null
);
comment on table room_activity is 'room: data that changes with every message and join';
create index room_activity_by_time on room_activity (last_activity, room_id);

create table room_members (
    user_id    bigint      not null references users,
    room_id    bigint      not null references rooms on delete cascade,
    membership text        not null check (membership in ('join', 'invite', 'leave', 'ban')),
    -- User who sent the invitation.
    invited_by bigint,
    -- Last message or join, with a precision of one minute.
    active_at  timestamptz,
    changed_at timestamptz not null,
    -- Matrix event that caused the membership, if the service learned of it before the homeserver pushed it. Events
    -- pushed before that one are older and are ignored.
    awaits     text,
    primary key (user_id, room_id)
);
comment on table room_members is 'user: memberships of rooms, synchronised from the homeserver';
-- For reading the members of a room in pages, in the order of users.
create index room_members_of_room on room_members (room_id, membership, user_id);

create table remote_members (
    room_id        bigint      not null references rooms on delete cascade,
    -- As in @ada:elsewhere.example.
    matrix_user_id text        not null,
    membership     text        not null check (membership in ('join', 'invite', 'leave', 'ban')),
    changed_at     timestamptz not null,
    primary key (room_id, matrix_user_id)
);
comment on table remote_members is 'room: members of rooms without an account in this service';

create table room_statistics (
    -- The first stand of a match stands for all of them, because they count as one room.
    room_id       bigint      primary key references rooms on delete cascade,
    -- Until then, only the process that claimed the computation may store its result.
    claimed_until timestamptz not null,
    -- Null until the first computation has finished.
    statistics    jsonb,
    -- Time from which a request starts the next computation.
    due_at        timestamptz
);
comment on table room_statistics is 'room: statistics of rooms with many members; swept by age';

create table seats (
    user_id    bigint      not null references users,
    event_id   bigint      not null references events,
    room_id    bigint      not null references rooms,
    expires_at timestamptz not null,
    primary key (user_id, event_id)
);
comment on table seats is 'user: places in match rooms reserved for users who are joining';
create index seats_by_room on seats (room_id, expires_at);

create table chat_inbox (
    -- Matrix event id, which identifies repeated pushes.
    event_id    text        primary key,
    -- Order in which events arrived.
    id          bigint      generated always as identity unique,
    matrix_room text        not null,
    type        text        not null,
    sender      text        not null,
    state_key   text,
    sent_at     timestamptz not null,
    -- JSON, only for events that the membership sync reads. Messages of users are not stored.
    content     text,
    received_at timestamptz not null,
    -- Null until the event is processed.
    outcome     text        check (outcome in ('applied', 'ignored', 'set_aside')),
    fault       text
    -- Every row is updated once and deleted soon.
) with (autovacuum_vacuum_scale_factor = 0.05);
comment on table chat_inbox is 'timed: events that the homeserver pushed; swept by age';
create index chat_inbox_waiting on chat_inbox (id) where outcome is null;
create index chat_inbox_set_aside on chat_inbox (received_at) where outcome = 'set_aside';
create index chat_inbox_by_time on chat_inbox (received_at);
-- For account deletions and exports.
create index chat_inbox_by_sender on chat_inbox (sender);
create index chat_inbox_by_state_key on chat_inbox (state_key) where state_key is not null;

create table mirror_marks (
    name text        primary key,
    at   timestamptz not null
);
comment on table mirror_marks is 'local: time of the last request to compare all rooms with the homeserver';

alter table users
    -- Start of a ban from the service.
    add column banned_at timestamptz,
    -- Start of a mute in chat.
    add column muted_at timestamptz;

create table restrictions (
    user_id    bigint      not null references users,
    id         bigint      generated always as identity,
    action     text        not null check (action in ('ban', 'unban', 'mute', 'unmute')),
    reason     text        not null,
    -- Operator who imposed or lifted the restriction.
    operator   text        not null,
    created_at timestamptz not null,
    primary key (user_id, id)
);
comment on table restrictions is 'user: restrictions of an account by operators, with reasons';

create table blocks (
    user_id    bigint      not null references users,
    blocked_id bigint      not null,
    created_at timestamptz not null,
    primary key (user_id, blocked_id),
    constraint blocks_somebody_else check (user_id <> blocked_id)
);
comment on table blocks is 'user: users blocked by a user';
-- For updating chat when a blocked user changes the username.
create index blocks_by_blocked on blocks (blocked_id);

create table reports (
    user_id       bigint      not null references users,
    id            bigint      generated always as identity,
    room_id       bigint      not null references rooms on delete cascade,
    -- Matrix event id of the message.
    event_id      text        not null,
    reason        text        not null,
    -- Sender, time and content of the message on the homeserver at the time of the report.
    sender        text,
    sent_at       timestamptz,
    content       text,
    created_at    timestamptz not null,
    -- Operator who handles the report. Until the end of the claim, other operators must take it over explicitly.
    claimed_by    text,
    claimed_until timestamptz,
    closed_at     timestamptz,
    closed_by     text,
    resolution    text,
    -- The operator's reason. Only operators read it.
    note          text,
    -- Text of the operator to the reporter.
    answer        text,
    primary key (user_id, id),
    unique (user_id, room_id, event_id),
    constraint reports_claim check ((claimed_by is null) = (claimed_until is null)),
    constraint reports_resolution
        check (resolution in ('no_violation', 'message_removed', 'sender_muted', 'sender_banned', 'duplicate')),
    constraint reports_end check ((closed_at is null) = (resolution is null))
);
comment on table reports is 'user: messages that users reported; closed ones are swept by age';
create index reports_open on reports (created_at, id) where closed_at is null;
-- Operators handle reports by id.
create index reports_by_id on reports (id);
-- For closing all reports of a message at once.
create index reports_open_of_message on reports (event_id) where closed_at is null;
