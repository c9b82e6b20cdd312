//! Limits on the costs that unauthenticated clients can cause.

use std::collections::BTreeMap;

use http::Method;
use matchday::testing::with_database;
use serde_json::json;
use sqlx::{Connection as _, PgConnection};

use crate::{client::Client, process::Setting};

const NUMBERS: i64 = 1_000;
/// Default value of `limits.block_hourly`.
const MOST_AN_HOUR: i64 = 60;

/// SMS pumping: an attacker who earns money for each message to a block of numbers requests codes for all of them, from
/// ever-changing addresses.
#[tokio::test]
async fn number_block_limit_holds_across_addresses() {
    with_database(async |options| {
        let process = Setting::new(&options)
            .with("MATCHDAY_ENV", "staging")
            .with("MATCHDAY_MATRIX__PUBLIC_URL", "https://chat.example.org")
            .with("MATCHDAY_SMS__PROVIDERS", "console")
            .with("MATCHDAY_SMS__COUNTRIES", "US")
            .with("MATCHDAY_HTTP__TRUSTED_PROXIES", "127.0.0.0/8")
            .start(&["serve"]);
        let client = Client::new(&process);
        let mut database = PgConnection::connect_with(&options).await.expect("connected");
        let mut scalar = async |query: &'static str| -> i64 {
            sqlx::query_scalar(query).fetch_one(&mut database).await.expect("read")
        };
        let hour = "select floor(extract(epoch from now()) / 3600)::bigint";
        let first_hour = scalar(hour).await;

        // Number of responses without and with the notice that only previously used numbers get a code.
        let mut answered: BTreeMap<bool, i64> = BTreeMap::new();
        for number in 0..NUMBERS {
            let address = format!("198.18.{}.{}", number / 250, number % 250);
            let body = json!({"phone": format!("+1202456{number:04}")}).to_string();
            let answer = client.send_from(&address, Method::POST, "/api/code/request", "", body).await;
            let seconds = answer.header("retry-after").and_then(|seconds| seconds.parse::<u64>().ok());
            let is_limited = answer.expect(200)["data"]["notice"] == "codes_limited";
            *answered.entry(is_limited).or_default() += 1;
            if is_limited {
                assert!(seconds.is_some_and(|seconds| seconds <= 3_600), "until the next hour: {seconds:?}");
            }
        }

        // The limit applies per clock hour, and the hour may have changed during the test.
        let hours = scalar(hour).await - first_hour + 1;
        let sent = answered.get(&false).copied().unwrap_or_default();
        assert!((MOST_AN_HOUR..=MOST_AN_HOUR * hours).contains(&sent), "{answered:?} in {hours} hours");
        assert_eq!(answered, BTreeMap::from([(false, sent), (true, NUMBERS - sent)]));
        assert_eq!(scalar("select count(*) from sms_log").await, sent);
        assert_eq!(scalar("select count(distinct phone) from codes").await, sent);
        let metrics = reqwest::get(format!("{}/metrics", process.private)).await.expect("a response");
        let metrics = metrics.text().await.expect("text");
        let refusals: Vec<&str> =
            metrics.lines().filter(|line| line.starts_with("matchday_codes_refused_total")).collect();
        assert_eq!(refusals, [format!("matchday_codes_refused_total{{reason=\"block\"}} {}", NUMBERS - sent)]);

        let neighbour = json!({"phone": "+12024570000"}).to_string();
        client.send_from("198.18.0.0", Method::POST, "/api/code/request", "", neighbour).await.expect(200);
        database.close().await.expect("closed");
    })
    .await;
}
