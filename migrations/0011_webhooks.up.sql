-- Where app backends want to be told what happens.

create table webhook_endpoints (
    id          bigint      generated always as identity primary key,
    url         text        not null,
    -- What messages to it are signed with: AES-256-GCM under the key of this version, which is not in the database, and
    -- bound to the url, so that a secret cannot be moved to another one.
    secret      bytea       not null,
    key_version smallint    not null,
    -- What it is told of, as in event.result. Empty: everything.
    types       text[]      not null default '{}',
    created_at  timestamptz not null,
    -- It said that it is gone.
    disabled_at timestamptz
);
comment on table webhook_endpoints is 'reference: where what happens is told to app backends';
