-- Account deletion ends chat access immediately, and moderation survives it: restrictions with an end, restrictions
-- that follow a phone number, and reports that keep their evidence until a moderator has closed them.

alter table departures
    -- When a worker next ends the chat devices of the account. Null once they have ended.
    add column devices_due_at timestamptz,
    add column device_attempts integer not null default 0,
    -- Rooms whose messages must be redacted. Read before the chat account is deactivated, because deactivation leaves
    -- every room.
    add column chat_rooms text[] not null default '{}';
create index departures_devices_due on departures (devices_due_at, id) where devices_due_at is not null;

alter table users
    -- End of the ban. Null for a ban without an end.
    add column banned_until timestamptz,
    -- End of the mute. Null for a mute without an end.
    add column muted_until timestamptz;
-- For the worker that lifts expired restrictions.
create index users_banned_until on users (banned_until) where banned_until is not null;
create index users_muted_until on users (muted_until) where muted_until is not null;

alter table restrictions
    -- End of a ban or mute.
    add column until timestamptz;

create table restricted_phones (
    -- HMAC of the phone number with a key that is not in the database.
    mac          bytea       primary key,
    key_version  smallint    not null,
    -- The restricted account that released the number. Null once that account is deleted.
    user_id      bigint,
    banned_at    timestamptz,
    banned_until timestamptz,
    muted_at     timestamptz,
    muted_until  timestamptz,
    -- End of the last restriction. Null if one has no end.
    ends_at      timestamptz generated always as (
        case when banned_at is not null and banned_until is null
               or muted_at is not null and muted_until is null then null
             else greatest(banned_until, muted_until) end) stored
);
comment on table restricted_phones is 'claim: restrictions that follow a phone number after its account released it';
-- For lifting a restriction.
create index restricted_phones_by_user on restricted_phones (user_id) where user_id is not null;
-- For the sweep of expired rows.
create index restricted_phones_by_end on restricted_phones (ends_at) where ends_at is not null;

alter table reports
    -- Time at which sender and content are erased, because the sender deleted the account. Null while the account
    -- exists.
    add column erase_at timestamptz;
create index reports_to_erase on reports (erase_at) where erase_at is not null;
