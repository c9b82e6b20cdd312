//! SMS providers that refuse, hang or respond slowly.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use matchday::testing::with_database;
use serde_json::json;
use sqlx::postgres::PgConnectOptions;

use crate::{
    dependencies::sms::{Behaviour, Provider},
    stage::{
        client::Client,
        process::{Process, Setting},
        proof::held,
    },
};

/// Starts a process that uses Twilio first, and Vonage as fallback.
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

/// Requests a login code; returns status, error code, and duration.
async fn request_code(client: &Client, phone: &str) -> (u16, String, Duration) {
    let began = Instant::now();
    let answer = client.post("/api/code/request", "", json!({"phone": phone})).await;
    let (status, has_retry_after) = (answer.status.as_u16(), answer.header("retry-after").is_some());
    assert_eq!(has_retry_after, status == 503, "Retry-After is sent with 503 only");
    let body: serde_json::Value = serde_json::from_slice(&answer.bytes).expect("JSON");
    (status, body["code"].as_str().unwrap_or_default().to_owned(), began.elapsed())
}

/// The first provider fails, so the second one sends. After three failures the circuit breaker skips the first one.
async fn second_provider_sends(behaviour: Behaviour, description: &str) {
    with_database(async |owner| {
        let (twilio, vonage) = (Provider::twilio().await, Provider::vonage().await);
        let service = start(&owner, &twilio, &vonage);
        let client = Client::new(&service);
        assert_eq!(request_code(&client, "+12024561000").await.0, 200);
        assert!(twilio.has_sent("+12024561000") && !vonage.has_sent("+12024561000"));
        twilio.set(behaviour);
        let phones = ["+12024561001", "+12024561002", "+12024561003"];
        let responses = join_all(phones.map(|phone| request_code(&client, phone))).await;
        let mut slowest = Duration::ZERO;
        for ((status, _, took), phone) in responses.into_iter().zip(phones) {
            assert_eq!(status, 200);
            assert!(vonage.has_sent(phone), "the second provider sends it");
            slowest = slowest.max(took);
        }
        let (status, _, fast) = request_code(&client, "+12024561004").await;
        assert_eq!(status, 200);
        assert!(vonage.has_sent("+12024561004"));
        assert!(fast < Duration::from_secs(2), "the breaker avoids the wait: {fast:.1?}");
        assert!(slowest < Duration::from_secs(7), "{slowest:.1?}");
        held(&format!("First SMS provider {description}"),
            &format!(
                "the second provider sent all codes, the slowest in {slowest:.1?}; after three failures the circuit breaker \
                 skipped the first provider, and a code took {fast:.1?}"
            ),
        );
    })
    .await;
}

/// Both providers fail: requests get a timely 503, and succeed again once the providers recover.
async fn no_provider_sends(behaviour: Behaviour, description: &str) {
    with_database(async |owner| {
        let (twilio, vonage) = (Provider::twilio().await, Provider::vonage().await);
        let service = start(&owner, &twilio, &vonage);
        let client = Client::new(&service);
        for provider in [&twilio, &vonage] {
            provider.set(behaviour);
        }
        let phones = ["+12024561001", "+12024561002", "+12024561003"];
        let mut slowest = Duration::ZERO;
        for (status, code, took) in join_all(phones.map(|phone| request_code(&client, phone))).await {
            assert_eq!((status, code.as_str()), (503, "sms_unavailable"));
            slowest = slowest.max(took);
        }
        let (status, code, fast) = request_code(&client, "+12024561004").await;
        assert_eq!((status, code.as_str()), (503, "sms_unavailable"));
        assert!(slowest < Duration::from_secs(11), "{slowest:.1?}");
        assert!(fast < Duration::from_secs(2), "the breakers avoid the wait: {fast:.1?}");
        for provider in [&twilio, &vonage] {
            provider.set(Behaviour::Accepting);
        }
        let back = Instant::now();
        while request_code(&client, "+12024561005").await.0 != 200 {
            assert!(back.elapsed() < Duration::from_secs(30), "codes are sent again");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        held(&format!("Both SMS providers {description}"),
            &format!(
                "503 sms_unavailable with Retry-After, the slowest in {slowest:.1?}, and after three failures in \
                 {fast:.1?}; the first code was sent {:.1?} after the providers recovered (a breaker stays open for 15 s)",
                back.elapsed()
            ),
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn second_provider_sends_if_first_refuses() {
    second_provider_sends(Behaviour::Refusing, "refusing").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly: waits out deadlines"]
async fn second_provider_sends_if_first_hangs() {
    second_provider_sends(Behaviour::Hanging, "hanging").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly: like a hanging provider, but with late responses"]
async fn second_provider_sends_if_first_is_slow() {
    second_provider_sends(Behaviour::Slow(Duration::from_secs(6)), "responding only after 6 s").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly: waits out breakers"]
async fn returns_503_if_both_providers_refuse() {
    no_provider_sends(Behaviour::Refusing, "refusing").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly: waits out deadlines and breakers"]
async fn returns_503_if_both_providers_hang() {
    no_provider_sends(Behaviour::Hanging, "hanging").await;
}
