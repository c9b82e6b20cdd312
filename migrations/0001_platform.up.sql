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

-- Who works with the tables does not own them: one role migrates, and the service connects as a member of matchday_app,
-- from which a migration can take what nobody may do to a table. In development one role may do both; it has more rights
-- than the service needs.
--
-- Roles are the server's and not the database's, so an operator or a migration of another database may have made this
-- one, or be making it right now.
do $$
begin
    if not exists (select from pg_roles where rolname = 'matchday_app') then
        create role matchday_app nologin;
    end if;
exception
    when duplicate_object or unique_violation then
        -- The session still remembers that there is none, until it opens a table.
        perform from pg_roles where rolname = 'matchday_app';
    when insufficient_privilege then
        -- All of it in the message: a hint is lost on its way to who migrates.
        raise insufficient_privilege using message = format(
            'there is no role matchday_app, and %I may not create roles: let somebody who may run'
            ' `create role matchday_app nologin`, then migrate again', current_user);
end
$$;

grant usage on schema public to matchday_app;
-- What this role creates from here on, in this migration and in later ones. So one role must run them all.
alter default privileges in schema public grant select, insert, update, delete on tables to matchday_app;
alter default privileges in schema public grant usage, select on sequences to matchday_app;
-- It was there before. A process looks into it when it starts.
grant select on _sqlx_migrations to matchday_app;

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
