-- Webhook endpoints of app backends.

create table webhook_endpoints (
    id          bigint      generated always as identity primary key,
    url         text        not null,
    -- Signing secret, encrypted with AES-256-GCM under the key of this version, which is not in the database. It is
    -- bound to the url, so a secret cannot be moved to another endpoint.
    secret      bytea       not null,
    key_version smallint    not null,
    -- Types of messages to send, as in event.result. Empty: all types.
    types       text[]      not null default '{}',
    created_at  timestamptz not null,
    -- Time at which the endpoint responded 410.
    disabled_at timestamptz
);
comment on table webhook_endpoints is 'local: webhook endpoints of app backends';
