-- Pushers on the homeserver, which report mentions.

create table mention_pushers (
    user_id    bigint      primary key,
    -- Secret part of the pusher's key, which authenticates reports of the homeserver.
    secret     bytea       not null check (octet_length(secret) = 16),
    created_at timestamptz not null,
    -- Account and gateway that the homeserver last confirmed, and when.
    username   text,
    gateway    text,
    set_at     timestamptz
);
comment on table mention_pushers is 'user: pushers on the homeserver, which report mentions of users with a device';
