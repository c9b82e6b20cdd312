-- Requests that must happen once, however often they are sent.

create table idempotency_keys (
    user_id        bigint      not null,
    -- SHA-256 of the path and the key that the client chose. The key itself is kept nowhere.
    key_digest     bytea       not null check (octet_length(key_digest) = 32),
    -- SHA-256 of the key, the query and the body. With the key in it, nobody who reads this table can try out bodies.
    request_digest bytea       not null check (octet_length(request_digest) = 32),
    -- Who is at work on it, and until when nobody else may be. It outlasts a request's deadline: whoever has not finished
    -- by then has died.
    claim          uuid        not null,
    claimed_until  timestamptz not null,
    -- The answer; null as long as there is none. Answers that hold secrets are not kept.
    status         smallint,
    content_type   text,
    body           bytea,
    created_at     timestamptz not null,
    primary key (user_id, key_digest),
    check ((status is null) = (body is null))
);
comment on table idempotency_keys is 'user: what was answered to requests with an Idempotency-Key, for a day';

-- Old ones are swept in small batches.
create index idempotency_keys_created_at on idempotency_keys (created_at);
