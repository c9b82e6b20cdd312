-- What every feature stands on: messages on their way out, and who may do what only one may do at a time.
--
-- Each table's comment begins with its kind. A test reads the kinds and holds the tables to the rules of their kind,
-- which keep sharding by user a matter of distribution and not of rewriting:
--   user:       a row per user and more; user_id stands first in the primary key and in every unique constraint
--   reference:  small, read by all, written by few; never refers to a user table, holds no counter
--   claim:      makes one value unique across users; keyed by the value alone
--   tally:      counts what many cause; split into slots, so that no two writers wait for each other
--   timed:      rows that pass; partitioned by time, or swept by an index on it
--   queue:      rows that wait; taken out in the order of an identity

create table outbox (
    id         bigint generated always as identity primary key,
    -- Messages with the same key are published in the order of their ids.
    key        text        not null,
    -- Without the deployment's prefix, as in fact.event.changed.
    subject    text        not null,
    payload    jsonb       not null,
    created_at timestamptz not null default now()
);
comment on table outbox is 'queue: messages written with the state they speak of; the relay publishes and deletes them in the order of id';

create table leases (
    name       text        primary key,
    holder     uuid        not null,
    granted_at timestamptz not null,
    expires_at timestamptz not null
);
comment on table leases is 'reference: which process does what only one may do at a time, and until when';
