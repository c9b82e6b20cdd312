-- Moderators of rooms, slow mode, timed mutes in a room, and removed messages.

alter table rooms
    -- Shortest time between two messages of a member. Zero turns slow mode off.
    add column slow_mode_seconds integer not null default 0 check (slow_mode_seconds between 0 and 3600),
    -- Incremented when a member becomes or is no longer a moderator, or is muted or unmuted.
    add column powers_version bigint not null default 0,
    -- Version whose power levels the homeserver has.
    add column powers_applied bigint not null default 0;

create table room_moderators (
    room_id      bigint      not null references rooms on delete cascade,
    user_id      bigint      not null,
    appointed_at timestamptz not null,
    primary key (room_id, user_id)
);
comment on table room_moderators is 'room: members who moderate a room; its creator is not listed';
-- For account deletion and for users who leave a room.
create index room_moderators_by_user on room_moderators (user_id);

create table room_mutes (
    room_id    bigint      not null references rooms on delete cascade,
    user_id    bigint      not null,
    until      timestamptz not null,
    reason     text        not null default '',
    -- As in the audit record: user:<id>, or an operator.
    muted_by   text        not null,
    created_at timestamptz not null,
    primary key (room_id, user_id)
);
comment on table room_mutes is 'room: members who must not write in a room until a time';
create index room_mutes_by_user on room_mutes (user_id);
-- For the worker that ends mutes.
create index room_mutes_by_end on room_mutes (until);

create table slow_mode_turns (
    room_id  bigint      not null references rooms on delete cascade,
    user_id  bigint      not null,
    -- Time of the last message.
    at       timestamptz not null,
    -- Idempotency key of the request that sends the message. Null for a message of a chat client.
    request  bytea,
    -- Matrix event id of the message. Null while the request is in progress.
    event_id text,
    primary key (room_id, user_id)
);
comment on table slow_mode_turns is 'room: last message of each member of a room in slow mode; swept by age';
create index slow_mode_turns_by_time on slow_mode_turns (at);
create index slow_mode_turns_by_user on slow_mode_turns (user_id);

create table removals (
    room_id      bigint      not null references rooms on delete cascade,
    -- Matrix event id of the message.
    event_id     text        not null,
    -- Matrix id of the sender.
    sender       text        not null,
    source       text        not null
        check (source in ('sender', 'moderator', 'operator', 'filter', 'classifier', 'slow_mode')),
    -- As in the audit record: user:<id>, an operator, or matchday.
    removed_by   text        not null,
    reason       text        not null,
    -- The sender is muted for this time.
    mute_seconds integer,
    planned_at   timestamptz not null,
    -- Null until the homeserver has redacted the message.
    removed_at   timestamptz,
    primary key (room_id, event_id)
);
comment on table removals is 'room: messages removed from rooms, without their text; swept by age';
-- For counting the removed messages of a sender.
create index removals_by_sender on removals (sender, planned_at);
create index removals_by_time on removals (planned_at);
