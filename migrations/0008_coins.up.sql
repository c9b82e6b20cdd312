-- Coins: where they came from, where they went, and what everybody has.
--
-- Double entry: a transaction moves coins between a user's wallet and one account of the house, as two entries that add
-- up to zero. An account of the house is not a row that everybody would wait for: it is the sum of its entries. What was
-- written stays as it was written: the role that the service runs with can add to these tables and read them, nothing
-- else. What was wrong is put right by a further transaction.

create table wallets (
    user_id      bigint not null primary key references users,
    balance      bigint not null,
    -- How many transactions it has had: the number of the last one.
    transactions bigint not null,
    -- The greatest number that every client reads exactly (2^53 - 1).
    constraint wallets_balance check (balance between 0 and 9007199254740991)
    -- Every transaction writes the row anew: room for it on its own page, so that indexes need no new entries.
) with (fillfactor = 50);
comment on table wallets is 'user: how many coins a user has; always the sum of the entries of their wallet';
-- Whoever was there before has an empty one.
insert into wallets (user_id, balance, transactions) select user_id, 0, 0 from users;

create table coin_transactions (
    user_id        bigint      not null,
    -- 1 for the wallet's first transaction, and so on without a gap, so that one that is missing shows.
    number         bigint      not null,
    -- What clients know it by.
    transaction_id uuid        not null,
    kind           text        not null,
    -- What the wallet gained; below zero what it lost.
    amount         bigint      not null,
    -- What it held afterwards.
    balance        bigint      not null,
    -- What it was for, in a word: the app's for a deduction, ours for what operators do.
    reason         text,
    -- What the app, or an operator, calls it. It happens once for a user, kind, reason and reference.
    reference      text,
    -- The digest of the `Idempotency-Key` that it was asked for with.
    request_key    bytea,
    -- The number of the transaction that it takes back, wholly or in part.
    reverses       bigint,
    -- Who did it, if it was not the user.
    operator       text,
    -- In their own words.
    remark         text,
    -- The match whose result it follows.
    event_id       bigint,
    created_at     timestamptz not null,
    primary key (user_id, number),
    constraint coin_transactions_kind
        check (kind in ('welcome', 'daily', 'deduction', 'grant', 'reversal', 'points')),
    constraint coin_transactions_amount check (amount <> 0),
    constraint coin_transactions_reverses check ((kind = 'reversal') = (reverses is not null) and reverses < number)
);
comment on table coin_transactions is 'user: append-only, every movement of coins into a wallet or out of it';
create unique index coin_transactions_by_reference on coin_transactions (user_id, kind, reason, reference)
    where reference is not null;
-- Not unique: a key is good for a day, and then for something else.
create index coin_transactions_by_request on coin_transactions (user_id, request_key) where request_key is not null;

create table coin_entries (
    user_id bigint not null,
    -- The transaction.
    number  bigint not null,
    -- `wallet`, or an account of the house: `welcome`, `daily`, `granted`, `points`, `spent:` and the reason.
    account text   not null,
    -- What the account gained; below zero what it lost.
    amount  bigint not null,
    primary key (user_id, number, account)
);
comment on table coin_entries is 'user: append-only, what each transaction did to both accounts';

create table daily_claims (
    user_id     bigint  not null,
    -- A date in UTC.
    day         date    not null,
    -- How many days in a row, this one included.
    streak_days integer not null,
    -- The part of the coins that is for the streak.
    bonus       bigint  not null,
    -- The transaction.
    number      bigint  not null,
    primary key (user_id, day)
);
comment on table daily_claims is 'user: append-only, the daily bonuses that were claimed';

create table coin_rates (
    event_id  bigint not null primary key references events,
    -- 0 for none. It stays when the setting changes, so that a corrected result is worth what the first one was.
    per_point bigint not null
);
comment on table coin_rates is 'reference: append-only, how many coins a point earned with a match is worth';
-- Results that came before coins did are worth none, also when they are corrected.
insert into coin_rates (event_id, per_point) select distinct event_id, 0 from event_results where home_score is not null;

create table coin_payouts (
    user_id     bigint not null,
    event_id    bigint not null,
    -- Of the match's result.
    revision    bigint not null,
    -- What the prediction is worth by that result, in coins.
    due         bigint not null,
    -- What the user has had of the match in all, after this. More than is due where coins that were spent could not be
    -- taken back.
    had         bigint not null,
    -- How much of what this result takes back was not there. It is not asked for again.
    written_off bigint not null,
    -- The transaction; null where nothing moved.
    number      bigint,
    primary key (user_id, event_id, revision)
);
comment on table coin_payouts is 'user: append-only, what results were worth in coins, once for each user and result';

-- Which result the users of a lane were paid by; 0 for none.
alter table score_lanes add column paid_revision bigint not null default 0;

revoke update, delete on coin_transactions, coin_entries, daily_claims, coin_payouts, coin_rates from matchday_app;
revoke delete on wallets from matchday_app;
