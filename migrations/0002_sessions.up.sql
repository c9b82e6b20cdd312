-- Users, and the session tokens of their apps.

create table users (
    user_id    bigint generated always as identity primary key,
    created_at timestamptz not null
);
comment on table users is 'user: accounts';

create table sessions (
    user_id      bigint      not null references users,
    -- SHA-256 of the token. The token has 256 random bits, so a fast hash is enough.
    token_hash   bytea       not null check (octet_length(token_hash) = 32),
    -- Shown to the user, who ends sessions by it.
    id           bigint      generated always as identity,
    created_at   timestamptz not null,
    -- Updated at most once a day. No index contains this column or expires_at: an update of both then touches only the
    -- table (a HOT update).
    last_used_at timestamptz not null,
    -- The earlier of last use plus idle time and creation plus lifetime.
    expires_at   timestamptz not null,
    -- Time at which the sweep checks the session next. A use does not change it.
    check_at     timestamptz not null default now(),
    user_agent   text        not null default '',
    primary key (user_id, token_hash),
    unique (user_id, id)
    -- Leaves room on each page for HOT updates.
) with (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.05);
comment on table sessions is 'user: valid tokens; an ended session is deleted';

-- The sweep deletes due sessions in small batches. If one was used meanwhile, the sweep sets its next check instead.
create index sessions_check_at on sessions (check_at);
