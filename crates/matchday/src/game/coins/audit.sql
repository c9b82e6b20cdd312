-- Lists every inconsistency in the ledger of users $1 to $2, inclusive.
with entries as (
    select user_id, number, count(*) as entries, sum(amount) as total,
           sum(amount) filter (where account = 'wallet') as wallet
    from coin_entries where user_id between $1 and $2
    group by user_id, number
), transactions as (
    select *,
           sum(amount) over (partition by user_id order by number) as running,
           row_number() over (partition by user_id order by number) as expected_number
    from coin_transactions where user_id between $1 and $2
), held as (
    select user_id, sum(wallet) as total, count(*) as transactions from entries group by user_id
), reversals as (
    select user_id, reverses, sum(amount) as amount from transactions where kind = 'reversal' group by user_id, reverses
), payouts as (
    select *, had - lag(had, 1, 0::bigint) over (partition by user_id, event_id order by revision) as amount
    from coin_payouts where user_id between $1 and $2
)
select user_id as "user!: UserId", number, fault as "fault!"
from (
    -- Every transaction has two entries that add up to zero, and its amount equals its wallet entry.
    select t.user_id, t.number,
           format('the entries add up to %s instead of 0', e.total) as fault
    from transactions t join entries e on e.user_id = t.user_id and e.number = t.number
    where e.total <> 0
    union all
    select t.user_id, t.number, format('the transaction has %s entries instead of 2', coalesce(e.entries, 0))
    from transactions t left join entries e on e.user_id = t.user_id and e.number = t.number
    where coalesce(e.entries, 0) <> 2
    union all
    select t.user_id, t.number,
           format('the amount is %s, but the wallet entry is %s', t.amount, coalesce(e.wallet::text, 'missing'))
    from transactions t join entries e on e.user_id = t.user_id and e.number = t.number
    where e.wallet is distinct from t.amount
    union all
    select e.user_id, e.number, 'entries exist, but the transaction does not'
    from entries e left join transactions t on t.user_id = e.user_id and t.number = e.number
    where t.user_id is null

    -- Transactions are numbered without gaps, and each continues from the previous balance.
    union all
    select t.user_id, t.number, format('the previous transaction is missing: expected number %s', t.expected_number)
    from transactions t
    where t.number <> t.expected_number
      and not exists (select 1 from transactions b where b.user_id = t.user_id and b.number = t.number - 1)
    union all
    select t.user_id, t.number, format('the balance is %s, but the transactions add up to %s', t.balance, t.running)
    from transactions t where t.balance <> t.running

    -- Every wallet equals the sum of its entries.
    union all
    select coalesce(w.user_id, h.user_id), null,
           format('the wallet holds %s, but its entries add up to %s', coalesce(w.balance::text, 'no balance (no wallet row)'),
                  coalesce(h.total, 0))
    from (select * from wallets where user_id between $1 and $2) w full join held h on h.user_id = w.user_id
    where w.balance is distinct from coalesce(h.total, 0)
    union all
    select w.user_id, null,
           format('the wallet counts %s transactions, but %s exist', w.transactions, coalesce(h.transactions, 0))
    from wallets w left join held h on h.user_id = w.user_id
    where w.user_id between $1 and $2 and w.transactions <> coalesce(h.transactions, 0)

    -- Every claim has a transaction, and every daily bonus has a claim.
    union all
    select c.user_id, c.number, format('the claim of %s has no transaction', c.day)
    from daily_claims c left join transactions t on t.user_id = c.user_id and t.number = c.number and t.kind = 'daily'
    where c.user_id between $1 and $2 and t.user_id is null
    union all
    select t.user_id, t.number, 'the daily bonus has no claim'
    from transactions t left join daily_claims c on c.user_id = t.user_id and c.number = t.number
    where t.kind = 'daily' and c.user_id is null
    union all
    select c.user_id, c.number, format('%s claims refer to this transaction', count(*))
    from daily_claims c where c.user_id between $1 and $2
    group by c.user_id, c.number having count(*) > 1

    -- Every payout has a transaction, and every points transaction has a payout.
    union all
    select p.user_id, p.number,
           format('the payout for result %s of match %s is %s, but %s coins were moved', p.revision, p.event_id, p.amount, coalesce(t.amount, 0))
    from payouts p left join transactions t on t.user_id = p.user_id and t.number = p.number and t.kind = 'points'
    where p.amount <> coalesce(t.amount, 0)
    union all
    select t.user_id, t.number, 'the points transaction has no payout'
    from transactions t left join payouts p on p.user_id = t.user_id and p.number = t.number
    where t.kind = 'points' and p.user_id is null
    union all
    select p.user_id, p.number, format('%s payouts refer to this transaction', count(*))
    from payouts p where p.number is not null
    group by p.user_id, p.number having count(*) > 1

    -- A reversal refers to an existing transaction, does not exceed it, and never reverses a reversal or a payout.
    union all
    select r.user_id, r.reverses,
           case when t.user_id is null then 'the reversed transaction does not exist'
                else format('the transaction moved %s coins, but %s were reversed', t.amount, r.amount) end
    from reversals r left join transactions t on t.user_id = r.user_id and t.number = r.reverses
    where t.user_id is null or sign(t.amount) = sign(r.amount) or abs(r.amount) > abs(t.amount)
    union all
    select r.user_id, r.reverses, format('the transaction was reversed, but has the irreversible kind %s', t.kind)
    from reversals r join transactions t on t.user_id = r.user_id and t.number = r.reverses
    where t.kind in ('reversal', 'points')
) faults
order by user_id, number nulls first, fault
