-- Tables shared by all features: the outbox and leases.
--
-- Each table's comment starts with its kind. A test reads the kinds and enforces the rules of each kind. They allow
-- sharding by user without rewriting queries. On Citus, the kind also decides the placement (docs/citus.md):
--   user:       one or more rows per user; user_id comes first in the primary key and in every unique constraint;
--               distributed by user_id
--   reference:  small, joined with user tables, written rarely; never refers to a user table, has no counter; copied to
--               every node
--   local:      small, never joined with user tables on a shard; stays on the coordinator
--   claim:      makes one value unique across users; the value alone is the key; distributed by it
--   tally:      counts that many writers change; split into slots, so writers do not block each other; local
--   timed:      rows that expire; partitioned by time, or swept by an index on it; local
--   queue:      rows that wait; taken in the order of an identity; local
--
-- A partition needs no comment: it has the kind of its parent. Tables that many transactions update, or that are swept,
-- have autovacuum settings: by default, a table of a hundred million rows is vacuumed after 20 million changes.

-- The service does not own its tables. One role migrates, and the service connects as a member of matchday_app, from
-- which a migration can revoke privileges on a table. In development one role may do both; it then has more privileges
-- than the service needs.
--
-- Roles belong to the server and not to the database, so an operator or a migration of another database may have
-- created this role, or be creating it concurrently.
do $$
begin
    if not exists (select from pg_roles where rolname = 'matchday_app') then
        create role matchday_app nologin;
    end if;
exception
    when duplicate_object or unique_violation then
        -- Opening a table refreshes the session's cached lookup, which still says that the role does not exist.
        perform from pg_roles where rolname = 'matchday_app';
    when insufficient_privilege then
        -- The advice is part of the message, because the migration command does not print hints.
        raise insufficient_privilege using message = format(
            'the role matchday_app does not exist, and %I cannot create roles: run'
            ' `create role matchday_app nologin` as a role that can, then migrate again', current_user);
end
$$;

grant usage on schema public to matchday_app;
-- Applies to tables that this role creates in this and later migrations, so one role must run all of them.
alter default privileges in schema public grant select, insert, update, delete on tables to matchday_app;
alter default privileges in schema public grant usage, select on sequences to matchday_app;
-- sqlx created this table earlier, so the default privileges do not cover it. Every process reads it at startup.
grant select on _sqlx_migrations to matchday_app;

create table outbox (
    id         bigint generated always as identity primary key,
    -- Messages with the same key are published in the order of their ids.
    key        text        not null,
    -- Without the deployment's prefix, as in fact.event.changed.
    subject    text        not null,
    payload    jsonb       not null,
    created_at timestamptz not null default now()
    -- Nearly every row is deleted within a second, so a share of the table's size says nothing about its dead rows.
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
comment on table outbox is 'queue: messages of committed changes; the relay publishes and deletes them by id';

create table leases (
    name       text        primary key,
    holder     uuid        not null,
    granted_at timestamptz not null,
    expires_at timestamptz not null
);
comment on table leases is 'local: holders of tasks that only one process may run, and their expiry';
