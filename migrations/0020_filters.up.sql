-- Patterns for chat messages, and messages that wait for a moderator's decision.

create table filters (
    id           bigint      generated always as identity primary key,
    -- Regular expression in the syntax of the Rust crate regex.
    pattern      text        not null check (char_length(pattern) between 1 and 500),
    -- The homeserver's id of the only room with this pattern. Null: all rooms.
    matrix_room  text,
    action       text        not null check (action in ('remove', 'hold', 'mute')),
    mute_seconds integer     check (mute_seconds > 0),
    reason       text        not null,
    -- As in the audit record.
    created_by   text        not null,
    created_at   timestamptz not null,
    check ((action = 'mute') = (mute_seconds is not null))
);
comment on table filters is 'local: patterns that remove chat messages; a row is never changed, so count and latest id identify the contents';

create table held_messages (
    id          bigint      generated always as identity primary key,
    -- The homeserver's id of the room.
    matrix_room text        not null,
    -- Matrix id of the sender.
    sender      text        not null,
    -- Matrix event id of the removed message. Null for a message that was refused when it was sent.
    event_id    text        unique,
    -- The filter that matched: its id, the name of a built-in check, or classifier.
    filter      text        not null,
    -- Text, encrypted with AES-256-GCM under the key of this version, which is not in the database. It is bound to room and
    -- sender. Null after the decision.
    ciphertext  bytea,
    key_version smallint    not null,
    created_at  timestamptz not null,
    -- Null until the decision was carried out.
    decided_at  timestamptz,
    decision    text        check (decision in ('release', 'reject')),
    decided_by  text,
    check (decided_at is null or (decision is not null and decided_by is not null and ciphertext is null))
);
comment on table held_messages is 'timed: messages that a filter held for review; deleted after seven days';
create index held_messages_by_time on held_messages (created_at);
create index held_messages_by_sender on held_messages (sender);
