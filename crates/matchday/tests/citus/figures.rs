//! Throughput of the operations that limit a match evening. `dev/citus figures` runs it on plain PostgreSQL and on the
//! cluster, on the same machine, and prints the ratios.

use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use http::Method;
use matchday::testing::{TestApp, TestUser};
use platform::shards::shard_of;
use serde_json::{Value, json};
use web::ids::UserId;

/// Number of users with predictions that a result scores.
const USERS: i64 = 100_000;
/// Number of users who predict and spend coins.
const WRITING: usize = 20_000;
/// Number of users whose tokens are checked.
const TOKENS: usize = 2_000;
/// Number of shards of the cluster.
const SHARDS: usize = 32;
/// Requests in progress at the same time: two batches of a hundred.
const AT_ONCE: usize = 200;

/// Runs an operation for each of these items and returns how many succeed in a second.
async fn rate<T, F: Future<Output = bool>>(items: impl IntoIterator<Item = T>, run: impl Fn(T) -> F) -> u128 {
    let began = Instant::now();
    let outcomes: Vec<bool> = stream::iter(items.into_iter().map(run)).buffer_unordered(AT_ONCE).collect().await;
    assert!(outcomes.iter().all(|succeeded| *succeeded), "some operations failed");
    per_second(outcomes.len(), began.elapsed())
}

/// Sends a request as our client does, with an idempotency key. Returns whether it succeeded.
async fn post(user: &TestUser<'_>, path: &str, body: &Value) -> bool {
    let key = [("idempotency-key", path.trim_start_matches("/api/auth/"))];
    let response = user.send_with(Method::POST, path, &key, Some(body.to_string())).await;
    response.status.is_success()
}

/// Orders users so that two writers have users of one shard each, on plain PostgreSQL as well: a batch then has the same
/// rows on both.
fn in_pairs_of_shards(users: &[i64]) -> Vec<i64> {
    let mut shards = vec![Vec::new(); SHARDS];
    for &user in users {
        shards[shard_of(user, SHARDS)].push(user);
    }
    let (lower, upper) = shards.split_at(SHARDS / 2);
    lower.concat().into_iter().zip(upper.concat()).flat_map(|(one, other)| [one, other]).collect()
}

fn per_second(number: usize, time: Duration) -> u128 {
    number as u128 * 1_000_000 / time.as_micros().max(1)
}

#[tokio::test]
#[ignore = "takes a minute; dev/citus figures runs it"]
async fn figures() {
    let settings = [
        ("MATCHDAY_PREDICTIONS__WRITERS", "2"),
        ("MATCHDAY_COINS__WRITERS", "2"),
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
        let all: Vec<i64> =
            sqlx::query_scalar("select user_id from users order by 1").fetch_all(app.owner()).await.expect("users");
        let logins = in_pairs_of_shards(&all[..WRITING]).into_iter().map(|user| app.login(UserId(user)));
        let users: Vec<TestUser<'_>> = stream::iter(logins).buffered(64).collect().await;
        let fixtures = app.fixtures();
        let a_match = || fixtures.a_match("m").starting_in(time::Duration::HOUR);
        let event = a_match().put().await;

        let prediction = json!({"event_id": event, "prediction": "home", "confidence": 70});
        let predictions = rate(&users, |user| post(user, "/api/auth/predictions", &prediction)).await;
        let purchase = json!({"amount": 5, "reason": "quiz", "reference_id": "order-1"});
        let deductions = rate(&users, |user| post(user, "/api/auth/coins/deduct", &purchase)).await;

        let services = &app.app;
        services.sessions.forget_all();
        let check = |user: &TestUser<'_>| {
            let token = user.token.clone();
            async move { services.sessions.check(&token).await.is_ok_and(|found| found.is_some()) }
        };
        let checks = rate(&users[..TOKENS], check).await;

        let rest =
            "insert into predictions (user_id, event_id, prediction, confidence, revision, created_at, updated_at)
                    select user_id, $1, 'home', 50, 1, now(), now() from users on conflict do nothing";
        sqlx::query(rest).bind(event).execute(app.owner()).await.expect("predicted");
        sqlx::raw_sql("analyze predictions").execute(app.owner()).await.expect("analysed");
        a_match().at("finished", 1, 0).put().await;
        let began = Instant::now();
        app.settle_match(event).await;
        let scores = per_second(all.len(), began.elapsed());
        app.published().await;
        println!("figures predictions={predictions} deductions={deductions} checks={checks} scores={scores}");
    })
    .await;
}
