-- Sealed predictions: receipts for users, and a chain of seals over the predictions of each match.

-- Random bytes, different for every revision: part of the receipt's hash. A uuid, because it is stored as 16 bytes
-- without a header. Null for revisions of matches that closed before receipts existed, and of deleted accounts.
alter table predictions add column salt uuid;
alter table prediction_revisions add column salt uuid;

-- `database::migrate` builds the indexes of the partitions concurrently.
create index predictions_without_salt on only predictions (event_id, user_id) where salt is null;

create table pseudonyms (
    user_id       bigint not null,
    tournament_id bigint not null,
    -- Random bytes that stand for the user in receipts and in bundles of this tournament.
    pseudonym     uuid   not null,
    primary key (user_id, tournament_id)
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.05);
comment on table pseudonyms is 'user: pseudonyms of users, one per tournament';

-- Revision that a request with an idempotency key wrote. A repeated request returns its receipt.
alter table idempotency_keys add column revision integer;

-- Status of the match with this result. Null for results that were recorded before the column existed.
alter table event_results add column status text;

alter table events
    -- Time at which the match last began to accept predictions. Null if it never did, as for imported results: such a
    -- match is not sealed.
    add column opened_at timestamptz,
    -- Whether the match must be sealed when it closes. Set when it opens, and when its start moves, which may change the
    -- predictions that count.
    add column seal_due boolean not null default false;
create index events_to_seal on events (status, start_time) where seal_due;

-- A variable, because Citus accepts no comparison of columns with the time of a node.
do $$
declare
    moment timestamptz := now();
begin
    update events set opened_at = moment, seal_due = true where accepts_predictions(status, start_time, moment);
end
$$;

create table seals (
    -- Position in the chain, without gaps.
    sequence       bigint      primary key,
    version        smallint    not null,
    event_id       bigint      not null references events,
    -- 1 for the first seal of the match. The last one counts.
    event_sequence integer     not null,
    -- Number of predictions.
    count          bigint      not null,
    -- Root of the Merkle tree over their hashes.
    root           bytea       not null check (octet_length(root) = 32),
    -- Start of the match as known then. It determines the predictions that count.
    start_time     timestamptz not null,
    sealed_at      timestamptz not null,
    -- Hash of the seal before.
    previous       bytea       not null check (octet_length(previous) = 32),
    hash           bytea       not null check (octet_length(hash) = 32),
    unique (event_id, event_sequence)
);
comment on table seals is 'local: append-only, seals over the predictions of matches, in the order of their chain';

create table seal_chain (
    -- The table has one row.
    id       boolean primary key default true check (id),
    -- The newest seal. The writer of a seal holds the lock of this row until the commit, so the chain has no gaps.
    sequence bigint  not null,
    hash     bytea   not null
) with (fillfactor = 10);
comment on table seal_chain is 'local: the newest seal';
insert into seal_chain (sequence, hash) values (0, decode(repeat('00', 32), 'hex'));

-- Hashes of the predictions of each seal, in order and without any reference to users: proofs need those of deleted
-- accounts too. Hashes are stored in tiles of 256, like those of certificate transparency logs. Tiles of level 0 have the
-- hashes of predictions; those of each further level have the roots of the tiles below. A proof reads one tile per level.
create table seal_tiles (
    event_id       bigint   not null,
    event_sequence integer  not null,
    level          smallint not null,
    tile           integer  not null,
    -- First hash of the tile.
    first          bytea    not null,
    hashes         bytea    not null,
    primary key (event_id, event_sequence, level, tile)
);
comment on table seal_tiles is 'local: append-only, hashes of sealed predictions';
-- Hashes cannot be compressed.
alter table seal_tiles alter column hashes set storage external;
create index seal_tiles_by_hash on seal_tiles (event_id, event_sequence, first) where level = 0;

create table seal_timestamps (
    -- Sequence of the seal.
    sequence   bigint      primary key,
    -- DER of the time-stamp token (RFC 3161) over the seal's hash.
    token      bytea       not null,
    created_at timestamptz not null
);
comment on table seal_timestamps is 'local: append-only, tokens of a time-stamping authority';

revoke update, delete on seals, seal_tiles, seal_timestamps from matchday_app;
revoke delete on seal_chain from matchday_app;

-- Like `insert_alone`, with salt and pseudonym. Processes of the previous version still call that one.
create function insert_first_prediction(
    gate_class integer, gate integer, slot smallint,
    user_id bigint, event_id bigint, prediction text, home_goals smallint, away_goals smallint, confidence smallint,
    advances text, salt uuid, new_pseudonym uuid, key_digest bytea, request_digest bytea, requested_at timestamptz
) returns table (id bigint, created_at timestamptz, pseudonym uuid)
    language plpgsql as $$
#variable_conflict use_column
declare
    now timestamptz;
    in_tournament bigint;
begin
    if insert_first_prediction.key_digest is not null and exists (
        select 1 from idempotency_keys k
        where k.user_id = insert_first_prediction.user_id and k.key_digest = insert_first_prediction.key_digest
    ) then
        return;
    end if;
    perform pg_advisory_xact_lock_shared(gate_class, gate);
    now := clock_timestamp();
    select e.tournament_id into in_tournament
    from events e join tournaments t on t.id = e.tournament_id join sports s on s.id = t.sport_id
    where e.id = insert_first_prediction.event_id and accepts_predictions(e.status, e.start_time, now)
      and allows_prediction(s.draws_allowed, s.max_score, e.is_knockout, insert_first_prediction.prediction,
                            insert_first_prediction.home_goals, insert_first_prediction.away_goals,
                            insert_first_prediction.advances);
    if not found then
        return;
    end if;
    -- Before the prediction, as in a batch: two transactions that insert both in different orders could deadlock.
    select p.pseudonym into pseudonym
    from pseudonyms p
    where p.user_id = insert_first_prediction.user_id and p.tournament_id = in_tournament;
    if not found then
        insert into pseudonyms as p (user_id, tournament_id, pseudonym)
        values (insert_first_prediction.user_id, in_tournament, insert_first_prediction.new_pseudonym)
        on conflict (user_id, tournament_id) do nothing
        returning p.pseudonym into pseudonym;
        if not found then
            -- Another transaction inserted it in the meantime.
            select p.pseudonym into pseudonym
            from pseudonyms p
            where p.user_id = insert_first_prediction.user_id and p.tournament_id = in_tournament;
        end if;
    end if;
    insert into predictions as p
        (user_id, event_id, prediction, home_goals, away_goals, confidence, advances, salt, revision, created_at,
         updated_at)
    values (insert_first_prediction.user_id, insert_first_prediction.event_id, insert_first_prediction.prediction,
            insert_first_prediction.home_goals, insert_first_prediction.away_goals, insert_first_prediction.confidence,
            insert_first_prediction.advances, insert_first_prediction.salt, 1, now, now)
    on conflict (user_id, event_id) do nothing
    returning p.id, p.created_at into id, created_at;
    if not found then
        return;
    end if;
    if insert_first_prediction.key_digest is not null then
        insert into idempotency_keys (user_id, key_digest, request_digest, status, revision, created_at)
        values (insert_first_prediction.user_id, insert_first_prediction.key_digest,
                insert_first_prediction.request_digest, 201, 1, insert_first_prediction.requested_at);
    end if;
    insert into event_tallies as t (event_id, slot, home, draw, away, confidence)
    values (insert_first_prediction.event_id, insert_first_prediction.slot,
            (insert_first_prediction.prediction = 'home')::integer, (insert_first_prediction.prediction = 'draw')::integer,
            (insert_first_prediction.prediction = 'away')::integer, insert_first_prediction.confidence)
    on conflict (event_id, slot) do update
        set home = t.home + excluded.home, draw = t.draw + excluded.draw, away = t.away + excluded.away,
            confidence = t.confidence + excluded.confidence;
    return next;
end $$;
