-- Coins: the ledger and the balances of users.
--
-- Double entry: a transaction moves coins between a user's wallet and one house account, as two entries that add up to
-- zero. A house account has no row, because every transaction would have to lock it: its balance is the sum of its
-- entries. The tables of the ledger are append-only: the role of the service can only insert and read. Mistakes are
-- corrected by further transactions.
--
-- The append-only tables are partitioned by a hash of the user, so that each partition is small enough to be vacuumed
-- and reindexed on its own. Every request names its users, so it reads one partition for each. Nothing of them is ever
-- dropped. To split a partition later, replace it with two of twice the modulus.

create table wallets (
    user_id      bigint not null primary key references users,
    balance      bigint not null,
    -- Number of transactions, which is also the number of the last one.
    transactions bigint not null,
    -- Largest integer that every client can represent exactly (2^53 - 1).
    constraint wallets_balance check (balance between 0 and 9007199254740991)
    -- Leaves room on each page: every transaction updates the row, and heap-only updates need no new index entries.
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
comment on table wallets is 'user: balances; always the sum of the entries of the wallet';
-- Existing users get an empty wallet.
insert into wallets (user_id, balance, transactions) select user_id, 0, 0 from users;

create table coin_transactions (
    user_id        bigint      not null,
    -- Number in the wallet, starting at 1 without gaps, so a missing transaction is detected.
    number         bigint      not null,
    -- Public id for clients.
    transaction_id uuid        not null,
    kind           text        not null,
    -- Change of the wallet; negative for a loss.
    amount         bigint      not null,
    -- Balance after the transaction.
    balance        bigint      not null,
    -- Short reason: given by the app for a deduction, by the service for operator actions.
    reason         text,
    -- Reference given by the app or an operator. Unique per user, kind and reason: a repetition is not performed again.
    reference      text,
    -- Digest of the request's `Idempotency-Key`.
    request_key    bytea,
    -- Number of the transaction that this one reverses, fully or in part.
    reverses       bigint,
    -- Operator who made the transaction, if any.
    operator       text,
    -- The operator's explanation in free text.
    remark         text,
    -- Match whose result caused it.
    event_id       bigint,
    created_at     timestamptz not null,
    primary key (user_id, number),
    constraint coin_transactions_kind
        check (kind in ('welcome', 'daily', 'deduction', 'grant', 'reversal', 'points')),
    constraint coin_transactions_amount check (amount <> 0),
    constraint coin_transactions_reverses check ((kind = 'reversal') = (reverses is not null) and reverses < number)
) partition by hash (user_id);
comment on table coin_transactions is 'user: append-only, all transactions of wallets';
create unique index coin_transactions_by_reference on coin_transactions (user_id, kind, reason, reference)
    where reference is not null;
-- Not unique: a key is valid for one day and can then be reused.
create index coin_transactions_by_request on coin_transactions (user_id, request_key) where request_key is not null;
-- Reversals of a transaction.
create index coin_transactions_by_reversed on coin_transactions (user_id, reverses) where reverses is not null;

create table coin_entries (
    user_id bigint not null,
    -- Number of the transaction.
    number  bigint not null,
    -- `wallet`, or a house account: `welcome`, `daily`, `granted`, `points`, or `spent:` with the reason.
    account text   not null,
    -- Change of the account; negative for a loss.
    amount  bigint not null,
    primary key (user_id, number, account)
) partition by hash (user_id);
comment on table coin_entries is 'user: append-only, the two entries of each transaction';

create table daily_claims (
    user_id     bigint  not null,
    -- A date in UTC.
    day         date    not null,
    -- Number of consecutive days, including this one.
    streak_days integer not null,
    -- Part of the coins that the streak adds.
    bonus       bigint  not null,
    -- Number of the transaction.
    number      bigint  not null,
    primary key (user_id, day)
) partition by hash (user_id);
comment on table daily_claims is 'user: append-only, claimed daily bonuses';

create table coin_rates (
    event_id  bigint not null primary key references events,
    -- 0 for none. A match keeps it when the setting changes, so a corrected result is worth as much as the first one.
    per_point bigint not null
);
comment on table coin_rates is 'local: append-only, coins per point for each match';
-- Results from before coins existed are worth none, also when they are corrected.
insert into coin_rates (event_id, per_point)
    select distinct event_id, 0 from event_results where home_score is not null;

create table coin_payouts (
    user_id     bigint not null,
    event_id    bigint not null,
    -- Revision of the match's result.
    revision    bigint not null,
    -- Coins that the prediction is worth by that result.
    due         bigint not null,
    -- Total that the user received for the match, including this payout. It exceeds `due` if spent coins could not be
    -- reclaimed.
    had         bigint not null,
    -- Coins that this result could not reclaim. They are not claimed again later.
    written_off bigint not null,
    -- Number of the transaction; null if no coins moved.
    number      bigint,
    primary key (user_id, event_id, revision)
) partition by hash (user_id);
comment on table coin_payouts is 'user: append-only, payouts, one for each user and result';

-- Revision by which the users of a chunk were paid; 0 for none.
alter table score_lanes add column paid_revision bigint not null default 0;

revoke update, delete on coin_transactions, coin_entries, daily_claims, coin_payouts, coin_rates from matchday_app;
revoke delete on wallets from matchday_app;

do $$
declare
    parent text;
begin
    foreach parent in array array['coin_transactions', 'coin_entries', 'daily_claims', 'coin_payouts'] loop
        for part in 0..7 loop
            -- Rows never change: the first vacuum of a page freezes them, so no later one has to write it again.
            execute format(
                'create table %I partition of %I for values with (modulus 8, remainder %s)'
                ' with (autovacuum_freeze_min_age = 0, autovacuum_vacuum_insert_scale_factor = 0.1)',
                parent || '_' || part, parent, part);
            -- A partition has its own privileges, for statements that name it.
            execute format('revoke update, delete on %I from matchday_app', parent || '_' || part);
        end loop;
    end loop;
end
$$;

-- A transaction is found by its reference or its key, even if the ledger was analysed before its first purchase: each user
-- then had one transaction, so reading all transactions of a user would look as cheap. Without values in the two columns,
-- their indexes would look empty, and cheap to read completely. A wrong choice costs more with every purchase.
do $$
begin
    for part in 0..7 loop
        execute format('alter table %I alter column user_id set (n_distinct = -0.01),'
            ' alter column reference set statistics 0, alter column request_key set statistics 0',
            'coin_transactions_' || part);
    end loop;
end
$$;
