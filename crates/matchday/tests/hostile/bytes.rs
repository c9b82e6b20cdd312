//! Sends arbitrary bytes, and valid input with damaged bytes, to every parser of untrusted input: homeserver pushes,
//! SMS delivery reports, request bodies, and the headers that every request may carry.
//!
//! Pure parsers have property tests next to their code; these tests run them behind the router. `PROPTEST_CASES` sets
//! the number of cases.

use std::collections::BTreeMap;

use axum::body::Body;
use http::{HeaderValue, Request};
use matchday::testing::TestApp;
use proptest::{
    collection::vec,
    prelude::*,
    strategy::ValueTree as _,
    test_runner::{Config, TestRunner},
};
use serde_json::json;

use crate::proof::held;

/// One modification of a valid input.
#[derive(Clone, Debug)]
enum Damage {
    Replace(usize, u8),
    Insert(usize, u8),
    Remove(usize),
    Repeat(usize, usize),
    Cut(usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = || any::<usize>();
    prop_oneof![
        (at(), any::<u8>()).prop_map(|(at, byte)| Damage::Replace(at, byte)),
        (at(), prop::sample::select(b"\"\\{}[],:&=%+\0\n9-".to_vec())).prop_map(|(at, byte)| Damage::Insert(at, byte)),
        at().prop_map(Damage::Remove),
        (at(), 1_usize..200).prop_map(|(at, length)| Damage::Repeat(at, length)),
        at().prop_map(Damage::Cut),
    ]
}

fn damaged(mut bytes: Vec<u8>, damages: &[Damage]) -> Vec<u8> {
    for damage in damages {
        let at = |at: usize| at % bytes.len().max(1);
        match *damage {
            _ if bytes.is_empty() => {}
            Damage::Replace(place, byte) => {
                let place = at(place);
                bytes[place] = byte;
            }
            Damage::Insert(place, byte) => bytes.insert(at(place), byte),
            Damage::Remove(place) => {
                bytes.remove(at(place));
            }
            Damage::Repeat(place, length) => {
                let place = at(place);
                let part = bytes[place..(place + length).min(bytes.len())].to_vec();
                bytes.splice(place..place, part);
            }
            Damage::Cut(place) => bytes.truncate(at(place)),
        }
    }
    bytes
}

/// Random bytes, or damaged valid input.
fn hostile(right: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        1 => vec(any::<u8>(), 0..300),
        4 => vec(damage(), 1..5).prop_map(move |damages| damaged(right.clone(), &damages)),
    ]
}

async fn count(app: &TestApp, query: &'static str) -> i64 {
    sqlx::query_scalar(query).fetch_one(app.owner()).await.expect("counted")
}

#[tokio::test]
async fn hostile_bytes_break_no_parser() {
    let changes = [
        ("MATCHDAY_SMS__PROVIDERS", "console,twilio,vonage"),
        ("MATCHDAY_SMS__TIMEOUT", "2s"),
        ("MATCHDAY_SMS__TWILIO_ACCOUNT_SID", "AC0"),
        ("MATCHDAY_SMS__TWILIO_AUTH_TOKEN", "secret"),
        ("MATCHDAY_SMS__TWILIO_FROM", "+12015550100"),
        ("MATCHDAY_SMS__VONAGE_API_KEY", "key"),
        ("MATCHDAY_SMS__VONAGE_API_SECRET", "secret"),
        ("MATCHDAY_SMS__VONAGE_FROM", "Matchday"),
        ("MATCHDAY_SMS__VONAGE_SIGNATURE_SECRET", "secret"),
        ("MATCHDAY_HTTP__PUBLIC_URL", "https://api.example.org"),
    ];
    TestApp::run_with(&changes, async |app| {
        let homeserver = std::env::var("MATCHDAY_MATRIX__HS_TOKEN").expect("run dev/up and source .dev/env first");
        let user = app.user().await;
        app.post("/api/code/request", &json!({"phone": "+12015550123"})).await.expect(200);
        let transaction = json!({"events": [
            {"event_id": "$1", "room_id": "!a:x", "sender": "@a:x", "type": "m.room.member", "state_key": "@a:x",
             "origin_server_ts": 1_700_000_000_000_i64, "content": {"membership": "join"}},
            {"event_id": "$2", "room_id": "!a:x", "sender": "@a:x", "type": "m.room.message", "content": {"body": "x"}},
        ]});
        let report = json!({"messageId": "1", "status": "delivered", "timestamp": "1700000000", "sig": "00"});
        let form = "MessageSid=SM1&MessageStatus=delivered&To=%2B12015550123";
        let bodies = (
            hostile(transaction.to_string().into_bytes()),
            hostile(form.as_bytes().to_vec()),
            hostile(report.to_string().into_bytes()),
            hostile(json!({"phone": "+12015550123", "code": "123456", "username": "ada"}).to_string().into_bytes()),
        );
        let headers = (
            hostile(format!("Bearer {}", user.token).into_bytes()),
            hostile(b"W/\"0123456789abcdef\", \"x\"".to_vec()),
            hostile(b"de-DE;q=0.5, fa, *;q=0".to_vec()),
            hostile(b"203.0.113.7, [2001:db8::1]:443".to_vec()),
            hostile(b"8e03978e-40d5-43dd-bc93-6894a57f9324".to_vec()),
        );
        let config = Config::default();
        let (cases, mut runner, mut statuses) = (config.cases, TestRunner::new(config), BTreeMap::<u16, u32>::new());
        for _ in 0..cases {
            let (pushed, form, report, body) = bodies.new_tree(&mut runner).expect("bytes").current();
            let (token, tag, language, forwarded, key) = headers.new_tree(&mut runner).expect("bytes").current();
            let shown = |what: &[u8]| String::from_utf8_lossy(what).into_owned();
            let mut note = |status: u16, what: &[u8]| {
                assert!(status < 500, "{status} after {}", shown(what));
                *statuses.entry(status).or_default() += 1;
            };

            let kept = count(app, "select count(*) from chat_inbox").await;
            let request = Request::put("/_matrix/app/v1/transactions/1").header("authorization", format!("Bearer {homeserver}"));
            let answer = app.send_privately(request.body(Body::from(pushed.clone())).expect("a request")).await;
            note(answer.status.as_u16(), &pushed);
            if answer.status != 200 {
                assert_eq!(count(app, "select count(*) from chat_inbox").await, kept, "{}", shown(&pushed));
            }

            for (path, kind, body) in [
                ("/api/sms/twilio/status", "application/x-www-form-urlencoded", &form),
                ("/api/sms/vonage/status", "application/json", &report),
                ("/api/sms/vonage/status", "application/x-www-form-urlencoded", &form),
            ] {
                let request = Request::post(path).header("content-type", kind).header("x-twilio-signature", "AAAA");
                let answer = app.send(request.body(Body::from(body.clone())).expect("a request")).await;
                assert_ne!(answer.status, 200, "accepted without a valid signature: {}", shown(body));
                note(answer.status.as_u16(), body);
            }

            let given = [
                ("authorization", token),
                ("if-none-match", tag),
                ("accept-language", language),
                ("x-forwarded-for", forwarded),
                ("idempotency-key", key),
            ];
            // Skip values that HTTP does not allow in a header: they never reach the service.
            let given = given.into_iter().filter_map(|(name, value)| Some((name, HeaderValue::from_bytes(&value).ok()?)));
            let given: Vec<_> = given.collect();
            for request in [
                Request::get("/api/auth/events"),
                Request::post("/api/auth/teams/other"),
                Request::post("/api/auth/resend-code"),
                Request::post("/api/code/verify"),
            ] {
                let request = given.iter().fold(request, |request, (name, value)| request.header(*name, value.clone()));
                let request = request.body(Body::from(body.clone())).expect("a request");
                note(app.send(request).await.status.as_u16(), &body);
            }
        }
        assert_eq!(count(app, "select count(*) from sms_log where delivered_at is not null").await, 0);
        // Input that stayed valid may have published messages; wait until they are processed.
        app.published().await;
        let responses: Vec<String> = statuses.iter().map(|(status, count)| format!("{count} × {status}")).collect();
        held("Arbitrary and damaged bytes as homeserver pushes, SMS delivery reports, bodies and headers",
            &format!(
                "{cases} rounds, responses: {}; no panic, no 5xx, no unsigned report accepted, and nothing stored from refused pushes",
                responses.join(", ")
            ),
        );
    })
    .await;
}
