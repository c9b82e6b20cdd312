-- Idempotency keys and stored responses.

create table idempotency_keys (
    user_id        bigint      not null,
    -- SHA-256 of the path and the client's key. The key itself is not stored.
    key_digest     bytea       not null check (octet_length(key_digest) = 32),
    -- SHA-256 of the key, the query and the body. Including the key prevents readers of this table from guessing
    -- bodies.
    request_digest bytea       not null check (octet_length(request_digest) = 32),
    -- Request that is in progress, and the end of its exclusive claim. The claim outlasts a request's deadline, so a
    -- request that has not finished by then has crashed.
    claim          uuid        not null,
    claimed_until  timestamptz not null,
    -- Stored response; null until there is one. Responses with secrets are not stored.
    status         smallint,
    content_type   text,
    body           bytea,
    created_at     timestamptz not null,
    primary key (user_id, key_digest),
    check ((status is null) = (body is null))
);
comment on table idempotency_keys is 'user: responses to requests with an Idempotency-Key, stored for a day';

-- Old rows are swept in small batches.
create index idempotency_keys_created_at on idempotency_keys (created_at);
