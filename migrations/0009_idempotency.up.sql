-- Idempotency keys. Most requests claim their key first and store their response afterwards. Features that write in
-- batches store the key together with its effect, in one transaction, and build the response again from the effect.

create table idempotency_keys (
    user_id        bigint      not null,
    -- SHA-256 of the path and the client's key. The key itself is not stored.
    key_digest     bytea       not null check (octet_length(key_digest) = 32),
    -- SHA-256 of the key, the query and the body. Including the key prevents readers of this table from guessing
    -- bodies.
    request_digest bytea       not null check (octet_length(request_digest) = 32),
    -- Request that is in progress, and the end of its exclusive claim. The claim outlasts a request's deadline, so a
    -- request that has not finished by then has crashed. Null if the key was stored together with the outcome.
    claim          uuid,
    claimed_until  timestamptz,
    -- Status of the response; null while the request is in progress.
    status         smallint,
    content_type   text,
    -- Stored response; null if the feature builds it again. Responses with secrets are not stored.
    body           bytea,
    created_at     timestamptz not null,
    primary key (user_id, key_digest),
    constraint idempotency_keys_claim check ((claim is null) = (claimed_until is null)),
    -- A claimed key ends with a stored response; only a key without a claim can have a status alone.
    constraint idempotency_keys_outcome
        check (case when claim is null then status is not null else (status is null) = (body is null) end)
    -- Not partitioned by time: a key must be unique over the whole day for which it is stored.
) with (autovacuum_vacuum_scale_factor = 0.05);
comment on table idempotency_keys is 'user: outcomes of requests with an Idempotency-Key, stored for a day';

-- Old rows are swept in small batches.
create index idempotency_keys_created_at on idempotency_keys (created_at);
