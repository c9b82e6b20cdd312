-- The log of facts, which app backends read in order.

create table new_facts (
    -- Id of the message in the outbox.
    id         bigint      primary key,
    subject    text        not null,
    payload    jsonb       not null,
    created_at timestamptz not null
    -- As for the outbox: nearly every row is deleted within a second.
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
comment on table new_facts is 'queue: facts of committed changes that have no position in the log yet';

create table fact_log (
    -- The table has one row.
    id              boolean primary key default true check (id),
    -- Position of the newest fact. Whoever adds facts holds the lock of this row until the commit, so positions become
    -- visible in their order and without gaps.
    newest_position bigint  not null,
    -- Position of the newest deleted fact.
    swept_position  bigint  not null
    -- The row is updated in place.
) with (fillfactor = 10);
comment on table fact_log is 'local: first and last position of the log of facts';
insert into fact_log (newest_position, swept_position) values (0, 0);

create table facts (
    position    bigint      primary key,
    -- Time at which the fact got its position.
    recorded_at timestamptz not null,
    -- User whom the fact names, if any.
    user_id     bigint,
    -- The fact as clients read it: {"id", "type", "timestamp", "data"}. `json` keeps the text, so reading it costs nothing.
    item        json        not null
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.05);
comment on table facts is 'timed: facts in the order of their positions; deleted after 30 days';
create index facts_recorded_at on facts (recorded_at);
-- For removing names of deleted accounts.
create index facts_by_user on facts (user_id) where user_id is not null;
