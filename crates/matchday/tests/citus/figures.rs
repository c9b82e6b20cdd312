//! Throughput of the operations that limit a match evening. `dev/citus figures` runs it on plain PostgreSQL and on the
//! cluster, on the same machine, and prints the ratios.

use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use matchday::{
    game::coins::{
        rules::{CoinAmount, Reason},
        service::Deduction,
    },
    testing::{TestApp, cluster_is_available},
};
use scoring::{Confidence, Forecast, Pick};
use web::ids::{MatchId, UserId};

/// Number of users of each operation.
const USERS: i64 = 10_000;
/// Number of users whose tokens are checked.
const TOKENS: i64 = 2_000;
/// Requests in progress at the same time.
const AT_ONCE: usize = 1_000;

/// Runs an operation for each of these items and returns how many succeed in a second.
async fn rate<T, F: Future<Output = bool>>(items: impl IntoIterator<Item = T>, run: impl Fn(T) -> F) -> u128 {
    let began = Instant::now();
    let outcomes: Vec<bool> = stream::iter(items.into_iter().map(run)).buffer_unordered(AT_ONCE).collect().await;
    assert!(outcomes.iter().all(|succeeded| *succeeded), "some operations failed");
    per_second(outcomes.len(), began.elapsed())
}

fn per_second(number: usize, time: Duration) -> u128 {
    number as u128 * 1_000_000 / time.as_micros().max(1)
}

#[tokio::test]
#[ignore = "takes a minute; dev/citus figures runs it"]
async fn figures() {
    let writers = if cluster_is_available() { "8" } else { "2" };
    let settings = [
        ("MATCHDAY_PREDICTIONS__WRITERS", writers),
        ("MATCHDAY_COINS__WRITERS", writers),
        ("MATCHDAY_PREDICTIONS__QUEUE", "10000"),
        ("MATCHDAY_COINS__QUEUE", "10000"),
        ("MATCHDAY_COINS__PER_POINT", "0"),
    ];
    TestApp::run_with(&settings, async |app| {
        let setup = [
            format!(
                "insert into users (created_at, username) select now(), 'fan' || n from generate_series(1, {USERS}) n"
            ),
            "insert into wallets select user_id, 1000000, 0 from users".to_owned(),
            "vacuum analyze".to_owned(),
        ];
        for statement in setup {
            sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(app.owner()).await.expect("prepared");
        }
        let users: Vec<i64> =
            sqlx::query_scalar("select user_id from users order by 1").fetch_all(app.owner()).await.expect("users");
        let fixtures = app.fixtures();
        let a_match = || fixtures.a_match("m").starting_in(time::Duration::HOUR);
        let event = MatchId(a_match().put().await);
        let forecast = Forecast::new(Pick::Home, None, Confidence::new(70).expect("valid")).expect("valid");

        let services = &app.app;
        let save = |user: i64| async move { services.predictions.save(UserId(user), event, forecast).await.is_ok() };
        let predictions = rate(users.clone(), save).await;

        let deduct = |user: i64| async move {
            let (amount, reason) = (CoinAmount::new(5).expect("valid"), Reason::parse("quiz").expect("valid"));
            let deduction = Deduction { amount, reason, reference: None, request: None };
            services.coins.deduct(UserId(user), deduction).await.is_ok()
        };
        let deductions = rate(users.clone(), deduct).await;

        let mut tokens = Vec::new();
        for &user in users.iter().take(usize::try_from(TOKENS).expect("fits")) {
            tokens.push(app.login(UserId(user)).await.token);
        }
        services.sessions.forget_all();
        let check =
            |token: String| async move { services.sessions.check(&token).await.is_ok_and(|found| found.is_some()) };
        let checks = rate(tokens, check).await;

        a_match().at("finished", 1, 0).put().await;
        let began = Instant::now();
        app.settle_match(event.0).await;
        let scores = per_second(users.len(), began.elapsed());
        app.published().await;
        println!("figures predictions={predictions} deductions={deductions} checks={checks} scores={scores}");
    })
    .await;
}
