use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use platform::{
    lease::Leases,
    outbound_http::AddressFault,
    outbox::{self, Message, Relay},
    standard_webhooks::SigningSecret,
    stream::{Delivery, Stream},
};
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::sync::Notify;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;
use web::ids::EndpointId;

use super::{
    rules::Kind,
    service::{Dead, WebhookError, Webhooks},
};
use crate::{
    game::scores::service::UPDATED,
    testing::{Received, Receiver, Reply, TestApp, eventually, test_config},
};

const KEY: &str = "1:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

/// Settings that give up a message after three quick attempts.
const HASTY: [(&str, &str); 2] = [("MATCHDAY_WEBHOOKS__KEYS", KEY), ("MATCHDAY_WEBHOOKS__PAUSES", "30ms,30ms")];

/// Runs a test with separate streams and without workers.
async fn with_streams(changes: &[(&str, &str)], test: impl AsyncFnOnce(&TestApp)) {
    TestApp::run_with(changes, async |app| {
        app.app.streams.ensure().await.expect("streams");
        test(app).await;
        app.app.streams.remove().await;
    })
    .await;
}

/// Runs the relay and the webhook workers while `meanwhile` runs.
async fn working(app: &TestApp, meanwhile: impl AsyncFnOnce()) {
    let (closing, tasks) = (CancellationToken::new(), TaskTracker::new());
    let (db, streams, clock) = (app.app.core.db.clone(), app.app.streams.clone(), app.app.core.clock.clone());
    let leases = Leases::new(db.clone(), Uuid::from_u128(1), None);
    let lease = leases.lease("outbox relay", Duration::from_secs(10));
    let relay = Relay::new(db, streams.clone(), lease, Duration::from_millis(20), Arc::new(Notify::new()), clock);
    tasks.spawn(relay.run(closing.clone()));
    let (webhooks, stop) = (app.app.webhooks.clone(), closing.clone());
    tasks.spawn(async move {
        let perform = move |fact| {
            let webhooks = webhooks.clone();
            async move { webhooks.perform(fact).await }
        };
        streams.consume(Webhooks::work(), perform, stop).await;
    });
    let (webhooks, stop) = (app.app.webhooks.clone(), closing.clone());
    tasks.spawn(async move { webhooks.deliver(stop).await });
    meanwhile().await;
    closing.cancel();
    tasks.close();
    tasks.wait().await;
}

async fn add(app: &TestApp, receiver: &Receiver, types: &[Kind]) -> (EndpointId, SigningSecret) {
    app.app.webhooks.add(&receiver.url, types).await.expect("added")
}

/// Publishes the fact that scoring of a match is complete.
async fn publish_scores(app: &TestApp, event_id: i64) {
    let mut tx = platform::database::begin(&app.app.core.db).await.expect("begun");
    let fact = json!({"event_id": event_id, "result_revision": 1});
    let message = Message::new(UPDATED, format!("event:{event_id}"), &fact).expect("JSON");
    outbox::enqueue(&mut tx, &[message]).await.expect("written");
    tx.commit().await.expect("committed");
}

/// Verifies a signature as the specification requires of a receiver, independently of our code.
fn verify(secret: &SigningSecret, received: &Received) {
    let key = STANDARD.decode(secret.expose().trim_start_matches("whsec_")).expect("base64");
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("a key");
    let content = [
        received.header("webhook-id").as_bytes(),
        b".",
        received.header("webhook-timestamp").as_bytes(),
        b".",
        &received.body,
    ]
    .concat();
    mac.update(&content);
    let expected = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    assert_eq!(received.header("webhook-signature"), expected);
}

fn types(received: &[Received]) -> Vec<String> {
    let mut types: Vec<String> =
        received.iter().map(|received| received.json()["type"].as_str().expect("a type").to_owned()).collect();
    types.sort();
    types
}

fn ids(received: &[Received]) -> Vec<&str> {
    received.iter().map(|received| received.header("webhook-id")).collect()
}

#[tokio::test]
async fn subscribed_endpoints_get_signed_messages() {
    with_streams(&HASTY, async |app| {
        let (all, some) =
            (Receiver::start(|_, _| Reply::status(204)).await, Receiver::start(|_, _| Reply::status(200)).await);
        let (_, secret) = add(app, &all, &[]).await;
        let (_, other_secret) = add(app, &some, &[Kind::Result, Kind::UserRegistered]).await;
        let fixtures = app.fixtures();
        let event = fixtures.a_match("m").put().await;
        working(app, async || {
            let code = app.code("+14155550100").await;
            let login = app.post("/api/code/verify", &json!({"phone": "+14155550100", "code": code})).await.expect(200);
            fixtures.write(&[fixtures.a_match("m").at("live", 0, 0).json()]).await;
            fixtures.write(&[fixtures.a_match("m").at("live", 1, 0).json()]).await;
            fixtures.write(&[fixtures.a_match("m").at("finished", 2, 1).json()]).await;
            publish_scores(app, event).await;
            eventually("all messages arrive", async || all.seen().len() >= 5 && some.seen().len() >= 2).await;
            let (all, some) = (all.seen(), some.seen());
            assert_eq!(
                types(&all),
                ["event.result", "event.status_changed", "event.status_changed", "scores.updated", "user.registered"]
            );
            assert_eq!(types(&some), ["event.result", "user.registered"]);
            for (secret, received) in
                all.iter().map(|one| (&secret, one)).chain(some.iter().map(|one| (&other_secret, one)))
            {
                verify(secret, received);
            }
            let of_type = |of: &[Received], kind: &str| {
                of.iter().find(|received| received.json()["type"] == kind).expect("received").clone()
            };
            let result = of_type(&all, "event.result");
            assert_eq!(result.header("content-type"), "application/json");
            assert_eq!(result.header("webhook-timestamp"), "1795186800", "by the injected clock");
            let again = of_type(&some, "event.result");
            assert_eq!(
                (result.header("webhook-id"), &result.body),
                (again.header("webhook-id"), &again.body),
                "a message is the same for every endpoint"
            );
            let data = result.json()["data"].clone();
            assert_eq!((&data["event_id"], &data["status_detail"]), (&json!(event), &json!("finished")));
            assert_eq!((&data["home_score"], &data["away_score"]), (&json!(2), &json!(1)));
            assert_eq!(data["result_revision"], 1);
            assert_eq!(data["home_team"]["name"], format!("Rovers {}", fixtures.tag));
            assert_eq!(data["before"]["status"], "live");
            let registered = of_type(&all, "user.registered").json();
            assert_eq!(
                registered["data"],
                json!({"user_id": login["data"]["user"]["id"], "username": login["data"]["user"]["username"],
                       "created_at": "2026-11-20T15:00:00.000Z"})
            );
            assert!(!registered.to_string().contains("4155550100"), "never the phone");
            let ids: std::collections::BTreeSet<&str> = all.iter().map(|one| one.header("webhook-id")).collect();
            assert_eq!(ids.len(), all.len(), "every message has a unique id");
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn retried_message_keeps_its_id() {
    with_streams(&HASTY, async |app| {
        let receiver = Receiver::start(|before, _| Reply::status(if before < 2 { 500 } else { 200 })).await;
        let (_, secret) = add(app, &receiver, &[]).await;
        working(app, async || {
            publish_scores(app, 7).await;
            let work = async || app.app.streams.replay(Stream::Work).await.expect("read");
            eventually("the message is accepted", async || receiver.seen().len() == 3 && work().await.is_empty()).await;
            let seen = receiver.seen();
            assert!(ids(&seen).iter().all(|id| *id == seen[0].header("webhook-id")), "{:?}", ids(&seen));
            assert!(seen.iter().all(|received| received.body == seen[0].body));
            for received in &seen {
                verify(&secret, received);
            }
            assert!(app.app.webhooks.dead(&Dead::All).await.expect("read").is_empty());
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn busy_endpoint_is_retried_after_requested_pause() {
    for status in [429, 503] {
        with_streams(&HASTY, async |app| {
            let receiver = Receiver::start(move |before, _| match before {
                0 => Reply::status(status).with("retry-after", "1"),
                _ => Reply::status(200),
            })
            .await;
            add(app, &receiver, &[]).await;
            working(app, async || {
                publish_scores(app, 7).await;
                eventually("the message is accepted", async || receiver.seen().len() == 2).await;
                let [first, second] = [0, 1].map(|at| receiver.seen()[at].at);
                assert!(second - first >= Duration::from_secs(1), "{status}: {:?}", second - first);
            })
            .await;
        })
        .await;
    }
}

#[tokio::test]
async fn dead_letter_is_listed_and_replayed_with_same_id() {
    with_streams(&HASTY, async |app| {
        let well = Arc::new(AtomicBool::new(false));
        let is_well = Arc::clone(&well);
        let receiver =
            Receiver::start(move |_, _| Reply::status(if is_well.load(Ordering::SeqCst) { 200 } else { 502 })).await;
        let (endpoint, _) = add(app, &receiver, &[]).await;
        let webhooks = &app.app.webhooks;
        working(app, async || {
            publish_scores(app, 7).await;
            publish_scores(app, 8).await;
            let dead = async |which: &Dead| webhooks.dead(which).await.expect("read");
            eventually("both are given up", async || dead(&Dead::All).await.len() == 2).await;
            assert_eq!(receiver.seen().len(), 6, "three attempts each");
            let letters = dead(&Dead::Of(endpoint)).await;
            assert_eq!(letters.len(), 2);
            assert!(dead(&Dead::Of(EndpointId(99))).await.is_empty());
            for letter in &letters {
                assert_eq!(letter.letter.reason, "responded with 502");
                let item = letter.item.as_ref().expect("readable");
                assert_eq!((item.endpoint_id, item.kind), (endpoint, Kind::ScoresUpdated));
            }
            let refused = webhooks.replay(&Dead::These(vec![999])).await;
            assert!(matches!(refused, Err(WebhookError::NoSuchLetter(999))), "{refused:?}");
            well.store(true, Ordering::SeqCst);
            let first = &letters[0];
            assert_eq!(webhooks.replay(&Dead::These(vec![first.letter.sequence])).await.expect("replayed"), 1);
            eventually("one message is accepted", async || receiver.seen().len() == 7).await;
            let replayed = receiver.seen()[6].clone();
            let id = &first.item.as_ref().expect("readable").message_id;
            assert_eq!(replayed.header("webhook-id"), id, "the original id");
            assert!(receiver.seen()[..6].iter().any(|before| before.body == replayed.body));
            assert_eq!(dead(&Dead::All).await.len(), 1);
            assert_eq!(webhooks.replay(&Dead::All).await.expect("replayed"), 1);
            eventually("the other message is accepted", async || receiver.seen().len() == 8).await;
            assert!(dead(&Dead::All).await.is_empty());
            assert_eq!(webhooks.replay(&Dead::Of(endpoint)).await.expect("replayed"), 0);
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn gone_endpoint_gets_no_messages_until_enabled() {
    with_streams(&HASTY, async |app| {
        let well = Arc::new(AtomicBool::new(false));
        let is_well = Arc::clone(&well);
        let gone =
            Receiver::start(move |_, _| Reply::status(if is_well.load(Ordering::SeqCst) { 200 } else { 410 })).await;
        let other = Receiver::start(|_, _| Reply::status(200)).await;
        let (endpoint, _) = add(app, &gone, &[]).await;
        add(app, &other, &[]).await;
        let webhooks = &app.app.webhooks;
        working(app, async || {
            publish_scores(app, 7).await;
            let disabled = async || {
                let endpoints = webhooks.endpoints().await.expect("read");
                endpoints.into_iter().filter_map(Result::ok).filter(|one| one.disabled_at.is_some()).count()
            };
            eventually("the endpoint is disabled", async || disabled().await == 1).await;
            let dead = async || webhooks.dead(&Dead::Of(endpoint)).await.expect("read");
            eventually("the message is a dead letter", async || dead().await.len() == 1).await;
            publish_scores(app, 8).await;
            eventually("the other endpoint receives both", async || other.seen().len() == 2).await;
            assert_eq!(gone.seen().len(), 1, "no request after the 410");
            // A message replayed while the endpoint is disabled becomes a dead letter again.
            assert_eq!(webhooks.replay(&Dead::Of(endpoint)).await.expect("replayed"), 1);
            eventually("the message is a dead letter again", async || {
                dead().await.first().is_some_and(|dead| dead.letter.reason == "the endpoint is disabled")
            })
            .await;
            well.store(true, Ordering::SeqCst);
            webhooks.enable(endpoint).await.expect("enabled");
            assert_eq!(webhooks.replay(&Dead::Of(endpoint)).await.expect("replayed"), 1);
            eventually("the missed message arrives", async || gone.seen().len() == 2).await;
            let seen = gone.seen();
            assert_eq!(seen[0].header("webhook-id"), seen[1].header("webhook-id"));
        })
        .await;
    })
    .await;
}

fn fact(id: &str) -> Delivery {
    let payload = json!({"event_id": 7, "result_revision": 1}).to_string();
    Delivery { subject: UPDATED.to_owned(), id: Some(id.to_owned()), payload: payload.into(), attempt: 1 }
}

#[tokio::test]
async fn redelivered_fact_is_queued_once() {
    with_streams(&HASTY, async |app| {
        let receiver = Receiver::start(|_, _| Reply::status(200)).await;
        for _ in 0..3 {
            add(app, &receiver, &[]).await;
        }
        let webhooks = &app.app.webhooks;
        let id = "12-1795186800000000";
        let (first, second) = tokio::join!(webhooks.perform(fact(id)), webhooks.perform(fact(id)));
        first.expect("queued");
        second.expect("queued");
        webhooks.perform(fact(id)).await.expect("queued");
        webhooks.perform(fact("13-1795186800000001")).await.expect("queued");
        let work = app.app.streams.replay(Stream::Work).await.expect("read");
        assert_eq!(work.len(), 6, "two facts, three endpoints");
        let first: Value = serde_json::from_slice(&work[0].1).expect("JSON");
        assert_eq!(first["message_id"], "msg_12-1795186800000000");
        assert!(
            first["body"].as_str().expect("a body").contains("\"timestamp\":\"2026-11-20T15:00:00.000Z\""),
            "{first}"
        );
        assert!(
            webhooks.perform(Delivery { id: None, ..fact(id) }).await.is_err(),
            "a fact without an id has no message"
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unresponsive_endpoint_does_not_delay_others() {
    with_streams(&[("MATCHDAY_WEBHOOKS__KEYS", KEY)], async |app| {
        let (silent, quick) =
            (Receiver::start(|_, _| Reply::never()).await, Receiver::start(|_, _| Reply::status(200)).await);
        add(app, &silent, &[]).await;
        add(app, &quick, &[]).await;
        working(app, async || {
            let began = Instant::now();
            for number in 0..40 {
                publish_scores(app, number).await;
            }
            eventually("the other endpoint receives all", async || quick.seen().len() == 40).await;
            assert!(began.elapsed() < Duration::from_secs(8), "before the first request timed out");
            assert_eq!(silent.seen().len(), 4, "at most four concurrent requests");
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn removed_endpoint_leaves_no_messages_or_consumers() {
    with_streams(&HASTY, async |app| {
        let receiver = Receiver::start(|_, _| Reply::status(200)).await;
        let webhooks = &app.app.webhooks;
        let (stays, _) = add(app, &receiver, &[]).await;
        let (goes, _) = add(app, &receiver, &[]).await;
        webhooks.perform(fact("12-1795186800000000")).await.expect("queued");
        let waiting = async || app.app.streams.waiting(Stream::Work, "work.webhook.deliver.*").await.expect("read");
        assert_eq!(waiting().await.len(), 2);
        webhooks.remove(goes).await.expect("removed");
        assert_eq!(waiting().await, [format!("work.webhook.deliver.{stays}")]);
        assert!(matches!(webhooks.remove(goes).await, Err(WebhookError::NoSuchEndpoint(_))));
        assert!(matches!(webhooks.enable(goes).await, Err(WebhookError::NoSuchEndpoint(_))));
        let (late, _) = add(app, &receiver, &[]).await;
        let consumers = async || {
            let mut consumers = app.app.streams.consumers(Stream::Work).await.expect("read");
            consumers.sort();
            consumers
        };
        working(app, async || {
            eventually("both endpoints have consumers", async || consumers().await.len() == 2).await;
            webhooks.remove(late).await.expect("removed");
        })
        .await;
        webhooks.tidy().await.expect("tidied");
        assert_eq!(consumers().await, [format!("webhook_{stays}")]);
    })
    .await;
}

#[tokio::test]
async fn secrets_are_encrypted_with_configured_key() {
    with_streams(&HASTY, async |app| {
        let receiver = Receiver::start(|_, _| Reply::status(200)).await;
        let (id, secret) = add(app, &receiver, &[Kind::Result]).await;
        let row: String =
            sqlx::query_scalar("select to_jsonb(e)::text || encode(secret, 'escape') from webhook_endpoints e")
                .fetch_one(&app.app.core.db)
                .await
                .expect("read");
        let bare = secret.expose().trim_start_matches("whsec_");
        assert!(!row.contains(bare) && !row.contains(&hex::encode(bare)), "{row}");
        let endpoints = app.app.webhooks.endpoints().await.expect("read");
        let shown = format!("{endpoints:?}");
        assert!(!shown.contains(bare) && shown.contains("REDACTED"), "{shown}");
        assert_eq!(endpoints[0].as_ref().expect("opened").secret.expose(), secret.expose());

        let with_keys = |keys: &str| {
            let config = test_config(&[("MATCHDAY_WEBHOOKS__KEYS", keys)]);
            Webhooks::new(&app.app.core, app.app.streams.clone(), &config.webhooks).expect("a client")
        };
        let opened = async |webhooks: &Webhooks| webhooks.endpoints().await.expect("read").remove(0).is_ok();
        let new = format!("2:{}", "7f".repeat(32));
        assert!(!opened(&with_keys(&new)).await, "another key cannot decrypt it");
        assert!(matches!(with_keys("").add(&receiver.url, &[]).await, Err(WebhookError::NoKey)));
        let both = with_keys(&format!("{new},{KEY}"));
        assert!(opened(&both).await);
        assert_eq!(both.reseal().await.expect("resealed"), 1);
        assert_eq!(both.reseal().await.expect("resealed"), 0);
        assert!(opened(&with_keys(&new)).await, "the old key is no longer needed");
        // An attacker with write access to the table cannot redirect signed messages to another URL.
        sqlx::query("update webhook_endpoints set url = 'https://evil.example/' where id = $1")
            .bind(id)
            .execute(&app.app.core.db)
            .await
            .expect("written");
        assert!(!opened(&both).await);
    })
    .await;
}

#[tokio::test]
async fn only_public_urls_are_allowed_outside_development() {
    with_streams(&HASTY, async |app| {
        let config = test_config(&[
            ("MATCHDAY_ENV", "staging"),
            ("MATCHDAY_MATRIX__HOMESERVER_URL", ""),
            ("MATCHDAY_SMS__COUNTRIES", "DE"),
            ("MATCHDAY_WEBHOOKS__KEYS", KEY),
        ]);
        let core = platform::Core { env: config.env, ..app.app.core.clone() };
        let webhooks = Webhooks::new(&core, app.app.streams.clone(), &config.webhooks).expect("a client");
        for (url, fault) in [
            ("http://app.example.org/", AddressFault::NotHttps),
            ("https://10.0.0.1/", AddressFault::NotPublic),
            ("https://localhost/", AddressFault::NotPublic),
            ("file:///etc/passwd", AddressFault::NotHttp),
        ] {
            let refused = webhooks.add(&url.parse().expect("a URL"), &[]).await;
            assert!(matches!(refused, Err(WebhookError::Address(found)) if found == fault), "{url}: {refused:?}");
        }
        // An existing endpoint, or one inserted into the table directly, gets no request either.
        let receiver = Receiver::start(|_, _| Reply::status(200)).await;
        let (id, _) = add(app, &receiver, &[]).await;
        let (response, _) = webhooks.test(id).await.expect("sent");
        assert_eq!(response.expect_err("refused").label(), "forbidden");
        assert!(receiver.seen().is_empty());
    })
    .await;
}

#[tokio::test]
async fn operator_can_test_an_endpoint() {
    with_streams(&HASTY, async |app| {
        let receiver = Receiver::start(|_, _| Reply::status(418).saying("short and stout")).await;
        let (id, secret) = add(app, &receiver, &[Kind::Result]).await;
        let (response, _) = app.app.webhooks.test(id).await.expect("sent");
        let response = response.expect("a response");
        assert_eq!((response.status.as_u16(), response.body.as_slice()), (418, &b"short and stout"[..]));
        let seen = receiver.seen();
        verify(&secret, &seen[0]);
        assert_eq!(seen[0].json()["type"], "webhook.test");
        assert!(seen[0].header("webhook-id").starts_with("msg_test_"));
    })
    .await;
}
