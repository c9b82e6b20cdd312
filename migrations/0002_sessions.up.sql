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
    -- Updated at most once every few minutes.
    last_used_at timestamptz not null,
    -- The earlier of last use plus idle time and creation plus lifetime.
    expires_at   timestamptz not null,
    user_agent   text        not null default '',
    primary key (user_id, token_hash),
    unique (user_id, id)
);
comment on table sessions is 'user: valid tokens; an ended session is deleted';

-- Expired sessions are swept in small batches.
create index sessions_expires_at on sessions (expires_at);
