-- Account deletion.

-- Time of the account's deletion. The row is kept without personal data, so predictions and coins keep an owner
-- id.
alter table users add column deleted_at timestamptz;

create table departures (
    id           bigint      generated always as identity primary key,
    user_id      bigint      not null,
    -- Usernames that the account had in chat.
    chat_names   text[]      not null,
    -- Redactions of messages that the homeserver has accepted: their ids, by username.
    redactions   jsonb       not null default '{}',
    requested_at timestamptz not null,
    -- Time of the next attempt to finish the deletion. By then, all requests in progress have ended.
    due_at       timestamptz not null,
    attempts     integer     not null default 0,
    -- Error of the last attempt.
    fault        text
);
comment on table departures is 'queue: deleted accounts that are not yet removed from chat';
create index departures_due on departures (due_at, id);
