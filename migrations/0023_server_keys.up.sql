-- Keys with which backends call the server API, and their actions in the audit log.
--
-- Idempotency keys of a backend are in idempotency_keys as well: there, user_id is the negated id of the server key.

create table server_keys (
    key_id               bigint      generated always as identity primary key,
    name                 text        not null,
    -- Start of the key's text, which identifies it to people.
    prefix               text        not null,
    -- SHA-256 of the text. The text itself is not stored.
    key_hash             bytea       not null check (octet_length(key_hash) = 32),
    -- The text before the last rotation, and the end of its validity.
    previous_hash        bytea       check (octet_length(previous_hash) = 32),
    previous_valid_until timestamptz,
    scopes               text[]      not null,
    -- Networks from which the key may be used, in CIDR notation. Empty: any network.
    networks             text[]      not null,
    created_at           timestamptz not null,
    expires_at           timestamptz,
    -- Written at most once a minute.
    last_used_at         timestamptz,
    revoked_at           timestamptz,
    constraint server_keys_name check (char_length(name) between 1 and 100),
    constraint server_keys_scopes check (cardinality(scopes) > 0),
    constraint server_keys_previous check ((previous_hash is null) = (previous_valid_until is null))
);
comment on table server_keys is 'local: keys of backends for the server API';
-- Keys stay listed after their revocation.
revoke delete on server_keys from matchday_app;

-- Actions of keys are in the same log as those of operators. Null for operators. Actions of a key are found by its
-- operator, `key:` and the id: every further index would make each movement of coins slower.
alter table operator_actions add column key_id bigint, add column scope text;
alter table operator_actions add constraint operator_actions_key check ((key_id is null) = (scope is null));
