//! Grants and deductions by a backend with a server key, compared with pgbench writing the same rows: wallet, transaction,
//! two entries, audit entry, commit.

use std::sync::Arc;

use super::{
    Side,
    deduct::{CONNECTIONS, WALLETS},
    easy_rate, http, latencies, prepare,
};
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

/// Script for pgbench: a grant and a deduction of the same amount. It uses separate wallets, with higher ids than those that
/// the service uses. pgbench reads `:1` as a variable even inside of a text, so texts have no colons before a name.
const SCRIPT: &str = "\
\\set u :client_id + 65
begin;
update wallets set balance = balance + 1, transactions = transactions + 1 where user_id = :u returning balance, transactions \\gset
insert into coin_transactions (user_id, number, transaction_id, kind, amount, balance, reason, reference, created_at) values (:u, :transactions, gen_random_uuid(), 'grant', 1, :balance, 'campaign', 'b-' || :transactions, now());
insert into coin_entries (user_id, number, account, amount) values (:u, :transactions, 'wallet', 1), (:u, :transactions, 'granted', -1);
insert into operator_actions (operator, action, target, reason, details, outcome, request_id, created_at, key_id, scope) values ('key' || chr(58) || '1', 'coins.grant', 'user:' || :u, 'campaign', '{\"amount\": 1}', 'done', 'b-' || :transactions, now(), 1, 'coins' || chr(58) || 'write');
commit;
begin;
update wallets set balance = balance - 1, transactions = transactions + 1 where user_id = :u and balance >= 1 returning balance, transactions \\gset
insert into coin_transactions (user_id, number, transaction_id, kind, amount, balance, reason, reference, created_at) values (:u, :transactions, gen_random_uuid(), 'deduction', -1, :balance, 'purchase', 'b-' || :transactions, now());
insert into coin_entries (user_id, number, account, amount) values (:u, :transactions, 'wallet', -1), (:u, :transactions, 'spent_purchase', 1);
insert into operator_actions (operator, action, target, reason, details, outcome, request_id, created_at, key_id, scope) values ('key' || chr(58) || '1', 'coins.deduct', 'user:' || :u, 'purchase', '{\"amount\": -1}', 'done', 'b-' || :transactions, now(), 1, 'coins' || chr(58) || 'write');
commit;
";

pub(super) async fn run(stage: &Stage) -> anyhow::Result<Vec<Outcome>> {
    let (name, setting) = ("bench_backend_coins", Setting::on("bench_backend_coins"));
    prepare(stage, &setting, name, &[]).await?;
    let pool = stage.postgres.pool(name).await?;
    people::make(&pool, 128, 64).await?;
    sqlx::raw_sql(WALLETS).execute(&pool).await?;
    sqlx::raw_sql("vacuum analyze").execute(&pool).await?;
    let key = stage.server_key(&setting, "coins:write")?;
    let service = stage.serve(&setting, &["--no-workers"]).await?;
    let numbers = Arc::default();
    let load = Load { connections: CONNECTIONS, length: stage.length, rate: None };
    let ours = http(service.public, move |number, into| {
        let user = number / 2 % 64 + 1;
        let (verb, reason) = if number % 2 == 0 { ("grant", "campaign") } else { ("deduct", "purchase") };
        // Every request is a separate movement.
        let body = format!(r#"{{"amount":1,"reason":"{reason}","reference_id":"order-{number}"}}"#);
        let path = format!("/api/server/v1/users/{user}/coins/{verb}");
        write_post(into, &path, &key, (0, number), &body);
    });
    let pgbench = Pgbench::new(stage, name, SCRIPT)?;
    let (rounds, cores) = stage
        .alternate(
            &stage.groups(&service),
            async |_| Ok(load::run(&ours, load, &numbers).await?.rate),
            // A script has two transactions.
            async |_| Ok(2.0 * pgbench::run(&pgbench, load).await?.rate),
        )
        .await?;
    let mut outcome = Outcome::of("backend-coins", rounds);
    let sides = ((Side::Requests(&ours, &numbers), CONNECTIONS), (Side::Pgbench(&pgbench), CONNECTIONS));
    outcome.latency = Some(latencies(stage, sides.0, sides.1, easy_rate(&outcome) / 2.0).await?);
    stage.say("auditing the ledger");
    stage.matchday(&setting, &["coins", "audit"], "")?;
    stage.postgres.forget(name).await?;
    Ok(vec![Outcome {
        what: format!(
            "Grants and deductions by a server key, with idempotency key, reference and audit entry each, {CONNECTIONS} \
             connections, 64 wallets"
        ),
        beside: format!("pgbench, same rows, one transaction each, {CONNECTIONS} clients"),
        goal: Some(Goal::AtLeast(2.0)),
        limit: cores,
        ..outcome
    }])
}
