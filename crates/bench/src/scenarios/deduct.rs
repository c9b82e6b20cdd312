//! Coin deductions, compared with pgbench writing the same rows: wallet, transaction, two entries, commit.

use std::sync::Arc;

use super::{Side, easy_rate, http, latencies, prepare};
use crate::{
    environment::{
        Stage, people,
        pgbench::{self, Pgbench},
        service::Setting,
    },
    load::{self, Load},
    outcome::{Goal, Outcome},
    wire::write_post,
};

pub(super) const CONNECTIONS: usize = 64;

/// Script for pgbench. It uses separate wallets, with higher ids than the wallets of the service.
fn script(one_wallet: bool) -> String {
    let wallet = if one_wallet { "65" } else { ":client_id + 65" };
    format!(
        "\\set u {wallet}
begin;
update wallets set balance = balance - 1, transactions = transactions + 1 where user_id = :u and balance >= 1 returning balance, transactions \\gset
insert into coin_transactions (user_id, number, transaction_id, kind, amount, balance, reason, reference, created_at) values (:u, :transactions, gen_random_uuid(), 'deduction', -1, :balance, 'purchase', 'b-' || :transactions, now());
insert into coin_entries (user_id, number, account, amount) values (:u, :transactions, 'wallet', -1), (:u, :transactions, 'spent_purchase', 1);
commit;
"
    )
}

/// A welcome bonus as the service writes it, large enough for all rounds.
pub(super) const WALLETS: &str = "
insert into wallets (user_id, balance, transactions) select user_id, 1000000000, 1 from users;
insert into coin_transactions (user_id, number, transaction_id, kind, amount, balance, reason, operator, created_at)
  select user_id, 1, gen_random_uuid(), 'grant', 1000000000, 1000000000, 'bench', 'bench', now() from users;
insert into coin_entries (user_id, number, account, amount)
  select user_id, 1, account, amount * 1000000000 from users, (values ('wallet', 1), ('granted', -1)) v (account, amount);
";

pub(super) async fn run(stage: &Stage) -> anyhow::Result<Vec<Outcome>> {
    let (name, setting) = ("bench_deduct", Setting::on("bench_deduct"));
    prepare(stage, &setting, name, &[]).await?;
    let pool = stage.postgres.pool(name).await?;
    people::make(&pool, 128, 64).await?;
    sqlx::raw_sql(WALLETS).execute(&pool).await?;
    sqlx::raw_sql("vacuum analyze").execute(&pool).await?;
    let service = stage.serve(&setting, &["--no-workers"]).await?;
    let tokens: Arc<Vec<String>> = Arc::new((1..=64).map(people::token).collect());
    let numbers = Arc::default();
    let load = Load { connections: CONNECTIONS, length: stage.length, rate: None };
    let mut outcomes = Vec::new();
    for one_wallet in [false, true] {
        let tokens = Arc::clone(&tokens);
        let ours = http(service.public, move |number, into| {
            let wallet = if one_wallet { 0 } else { usize::try_from(number % 64).unwrap_or_default() };
            // Every request is a separate purchase.
            let body = format!(r#"{{"amount":1,"reason":"purchase","reference_id":"order-{number}"}}"#);
            write_post(into, "/api/auth/coins/deduct", &tokens[wallet], (0, number), &body);
        });
        let pgbench = Pgbench::new(stage, name, &script(one_wallet))?;
        let (rounds, cores) = stage
            .alternate(
                &stage.groups(&service),
                async |_| Ok(load::run(&ours, load, &numbers).await?.rate),
                async |_| Ok(pgbench::run(&pgbench, load).await?.rate),
            )
            .await?;
        let mut outcome = Outcome::of(if one_wallet { "deduct-one-wallet" } else { "deduct" }, rounds);
        if !one_wallet {
            let sides = ((Side::Requests(&ours, &numbers), CONNECTIONS), (Side::Pgbench(&pgbench), CONNECTIONS));
            outcome.latency = Some(latencies(stage, sides.0, sides.1, easy_rate(&outcome)).await?);
        }
        let wallets = if one_wallet { "one wallet" } else { "64 wallets" };
        outcomes.push(Outcome {
            what: format!(
                "Deductions with an idempotency key and a reference each, {CONNECTIONS} connections, {wallets}"
            ),
            beside: format!("pgbench, same rows, one transaction each, {CONNECTIONS} clients"),
            goal: (!one_wallet).then_some(Goal::AtLeast(2.0)),
            limit: cores,
            ..outcome
        });
    }
    stage.say("auditing the ledger");
    stage.matchday(&setting, &["coins", "audit"], "")?;
    stage.postgres.forget(name).await?;
    Ok(outcomes)
}
