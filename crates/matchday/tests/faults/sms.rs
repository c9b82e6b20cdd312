//! Providers of text messages that refuse, hang and dawdle.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use matchday::testing::with_database;
use serde_json::json;
use sqlx::postgres::PgConnectOptions;

use crate::{
    dependencies::sms::{Mood, Provider},
    stage::{
        client::Client,
        process::{Process, Setting},
        proof::held,
    },
};

/// A process that asks Twilio first, and then Vonage.
fn start(owner: &PgConnectOptions, twilio: &Provider, vonage: &Provider) -> Process {
    Setting::new(owner)
        .without("MATCHDAY_MATRIX__HOMESERVER_URL")
        .with("MATCHDAY_SMS__PROVIDERS", "twilio,vonage")
        .with("MATCHDAY_SMS__TWILIO_URL", &twilio.url)
        .with("MATCHDAY_SMS__TWILIO_ACCOUNT_SID", "AC00000000000000000000000000000001")
        .with("MATCHDAY_SMS__TWILIO_AUTH_TOKEN", "b7e1a2c3d4f5968778695a4b3c2d1e0f")
        .with("MATCHDAY_SMS__TWILIO_FROM", "+12024560199")
        .with("MATCHDAY_SMS__VONAGE_URL", &vonage.url)
        .with("MATCHDAY_SMS__VONAGE_API_KEY", "key")
        .with("MATCHDAY_SMS__VONAGE_API_SECRET", "secret")
        .with("MATCHDAY_SMS__VONAGE_FROM", "Matchday")
        .start(&["serve"])
}

/// Asks for a code; returns status, code of the refusal, and how long it took.
async fn ask(client: &Client, phone: &str) -> (u16, String, Duration) {
    let began = Instant::now();
    let answer = client.post("/api/code/request", "", json!({"phone": phone})).await;
    let (status, advice) = (answer.status.as_u16(), answer.header("retry-after").is_some());
    assert_eq!(advice, status == 503, "Retry-After stands with 503");
    let body: serde_json::Value = serde_json::from_slice(&answer.bytes).expect("JSON");
    (status, body["code"].as_str().unwrap_or_default().to_owned(), began.elapsed())
}

/// The first provider fails in this way: the second one sends, and after three failures the first one is not asked.
async fn the_second_sends(mood: Mood, words: &str) {
    with_database(async |owner| {
        let (twilio, vonage) = (Provider::twilio().await, Provider::vonage().await);
        let service = start(&owner, &twilio, &vonage);
        let client = Client::new(&service);
        assert_eq!(ask(&client, "+12024561000").await.0, 200);
        assert!(twilio.has_sent("+12024561000") && !vonage.has_sent("+12024561000"));
        twilio.set(mood);
        let phones = ["+12024561001", "+12024561002", "+12024561003"];
        let asked = join_all(phones.map(|phone| ask(&client, phone))).await;
        let mut slowest = Duration::ZERO;
        for ((status, _, took), phone) in asked.into_iter().zip(phones) {
            assert_eq!(status, 200);
            assert!(vonage.has_sent(phone), "the second one sends it");
            slowest = slowest.max(took);
        }
        let (status, _, spared) = ask(&client, "+12024561004").await;
        assert_eq!(status, 200);
        assert!(vonage.has_sent("+12024561004"));
        assert!(spared < Duration::from_secs(2), "the breaker spares the wait: {spared:.1?}");
        assert!(slowest < Duration::from_secs(7), "{slowest:.1?}");
        held(
            "faults",
            &format!("The first SMS provider {words}"),
            &format!(
                "the second one sent all codes, the slowest after {slowest:.1?}; after three failures, {spared:.1?}"
            ),
        );
    })
    .await;
}

/// Both fail: everybody is told, in time, and it works again when one of them does.
async fn nobody_sends(mood: Mood, words: &str) {
    with_database(async |owner| {
        let (twilio, vonage) = (Provider::twilio().await, Provider::vonage().await);
        let service = start(&owner, &twilio, &vonage);
        let client = Client::new(&service);
        for provider in [&twilio, &vonage] {
            provider.set(mood);
        }
        let phones = ["+12024561001", "+12024561002", "+12024561003"];
        let mut slowest = Duration::ZERO;
        for (status, code, took) in join_all(phones.map(|phone| ask(&client, phone))).await {
            assert_eq!((status, code.as_str()), (503, "sms_unavailable"));
            slowest = slowest.max(took);
        }
        let (status, code, spared) = ask(&client, "+12024561004").await;
        assert_eq!((status, code.as_str()), (503, "sms_unavailable"));
        assert!(slowest < Duration::from_secs(11), "{slowest:.1?}");
        assert!(spared < Duration::from_secs(2), "the breakers spare the wait: {spared:.1?}");
        for provider in [&twilio, &vonage] {
            provider.set(Mood::Well);
        }
        let back = Instant::now();
        while ask(&client, "+12024561005").await.0 != 200 {
            assert!(back.elapsed() < Duration::from_secs(30), "codes are sent again");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        held(
            "faults",
            &format!("Both SMS providers {words}"),
            &format!(
                "503 sms_unavailable with Retry-After, the slowest after {slowest:.1?}, and after three failures in \
                 {spared:.1?}; the first code was sent {:.1?} after they were well (a breaker rests for 15 s)",
                back.elapsed()
            ),
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_refuses() {
    the_second_sends(Mood::Refusing, "refusing").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly: waits out deadlines"]
async fn the_first_hangs() {
    the_second_sends(Mood::Hanging, "hanging").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly: the same as one that hangs, but for what comes too late"]
async fn the_first_is_slow() {
    the_second_sends(Mood::Slow(Duration::from_secs(6)), "answering only after 6 s").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly: waits out breakers"]
async fn both_refuse() {
    nobody_sends(Mood::Refusing, "refusing").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly: waits out deadlines and breakers"]
async fn both_hang() {
    nobody_sends(Mood::Hanging, "hanging").await;
}
