use std::time::Duration;

use phone_push::{
    Fcm, Outcome, ServiceAccount, SettingsError,
    stand_in::{FcmStandIn, Limits, Reaction},
};
use serde_json::json;
use tokio::net::TcpListener;

use super::{FcmTest, START, TIMEOUT, TestClock, forward, later, mention, refused};

#[tokio::test]
async fn message_has_documented_form() {
    let test = FcmTest::start().await;
    assert_eq!(test.send("phone-1").await, Outcome::Taken);
    assert_eq!(test.client.send("phone-2", &mention()).await, Outcome::Taken);
    let received = test.server.record().received();
    assert_eq!(
        received[0].body,
        json!({"message": {
            "token": "phone-1",
            "notification": {"title": "Full time", "body": "You scored 3 points."},
            "data": {"kind": "result", "event_id": "7", "link": "/events/7"},
            "android": {
                "collapse_key": "result-7", "priority": "NORMAL", "ttl": "43200s", "notification": {"tag": "result-7"},
            },
        }})
    );
    let message = &received[1].body["message"];
    assert_eq!(
        message["data"],
        json!({"kind": "mention", "room_id": "!a:example.org", "link": "/rooms/!a:example.org"})
    );
    assert_eq!(message["android"]["priority"], "HIGH");
    assert_eq!(test.server.record().refused(), [""; 0]);
}

#[tokio::test]
async fn responses_have_documented_outcomes() {
    let test = FcmTest::start().await;
    let gone = Outcome::Gone { since: None };
    for (number, (reaction, outcome)) in [
        (Reaction::Accept, Outcome::Taken),
        (Reaction::error(404, "UNREGISTERED"), gone.clone()),
        (Reaction::error(404, ""), refused("NOT_FOUND")),
        (Reaction::error(403, "SENDER_ID_MISMATCH"), gone.clone()),
        (Reaction::error(403, ""), refused("PERMISSION_DENIED")),
        (Reaction::error(400, "INVALID_ARGUMENT"), gone),
        (Reaction::error(400, "INVALID_ARGUMENT").bad_field(), refused("INVALID_ARGUMENT")),
        (Reaction::error(400, ""), refused("INVALID_ARGUMENT")),
        (Reaction::error(429, "QUOTA_EXCEEDED"), later(None, true)),
        (Reaction::limited(77), later(Some(77), true)),
        (Reaction::error(500, "INTERNAL"), later(None, false)),
        (Reaction::error(503, "UNAVAILABLE"), later(None, false)),
        (Reaction::error(503, "UNAVAILABLE").retry_after("30".to_owned()), later(Some(30), false)),
        (
            Reaction::error(503, "UNAVAILABLE").retry_after("Fri, 20 Nov 2026 12:01:30 GMT".to_owned()),
            later(Some(90), false),
        ),
        (Reaction::error(418, ""), refused("INTERNAL")),
        (Reaction::error(502, ""), Outcome::Unknown),
    ]
    .into_iter()
    .enumerate()
    {
        let token = format!("phone-{number}");
        // A success in between keeps the circuit breaker closed.
        assert_eq!(test.send("other").await, Outcome::Taken);
        test.server.record().react_for(&token, [reaction.clone()]);
        assert_eq!(test.send(&token).await, outcome, "{reaction:?}");
        assert_eq!(test.server.record().counts(&token).attempts, 1, "{reaction:?}");
    }
}

#[tokio::test]
async fn access_token_is_renewed_five_minutes_before_expiry() {
    let test = FcmTest::start().await;
    for (advance, requests) in [(0, 1), (3_299, 1), (2, 2), (3_000, 2), (600, 3), (7_200, 4)] {
        test.clock.advance(advance);
        assert_eq!(test.send("phone").await, Outcome::Taken);
        assert_eq!(test.server.token_requests(), requests, "after {advance} s more");
    }
    assert_eq!(test.server.record().refused(), [""; 0], "no request had an expired token");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_attempts_share_token_requests() {
    let test = FcmTest::start().await;
    for requests in 1..=3 {
        let outcomes = test.send_to_many(100).await;
        assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Taken), "{outcomes:?}");
        assert_eq!(test.server.token_requests(), requests);
        if requests == 1 {
            test.clock.advance(3_400);
        } else {
            // From now on, every request with the old token gets 401.
            test.server.revoke_tokens();
        }
    }
    assert_eq!(test.server.record().total().accepted, 300);
    assert!(!test.server.record().refused().is_empty(), "attempts met the revoked token");
}

#[tokio::test(flavor = "multi_thread")]
async fn old_token_is_used_while_renewal_fails() {
    let test = FcmTest::start().await;
    assert_eq!(test.send("phone").await, Outcome::Taken);
    test.server.fail_token_requests(true);
    test.clock.advance(3_400);
    for _ in 0..3 {
        assert_eq!(test.send("phone").await, Outcome::Taken);
    }
    assert_eq!(test.server.token_requests(), 2, "failed renewals are not repeated at once");
    test.clock.advance(10);
    assert_eq!(test.send("phone").await, Outcome::Taken);
    assert_eq!(test.server.token_requests(), 3);

    // Once it has expired, attempts fail together.
    test.clock.advance(200);
    let outcomes = test.send_to_many(20).await;
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Later { .. })), "{outcomes:?}");
    assert!(test.server.token_requests() <= 3 + 5, "{}", test.server.token_requests());
}

#[tokio::test]
async fn token_refused_twice_is_not_replaced_again_at_once() {
    let test = FcmTest::start().await;
    test.server.record().react_always(Reaction::error(401, "UNAUTHENTICATED"));
    assert_eq!(test.send("phone").await, refused("UNAUTHENTICATED"));
    assert_eq!((test.server.record().counts("phone").attempts, test.server.token_requests()), (2, 2));
    assert_eq!(test.send("phone").await, refused("UNAUTHENTICATED"));
    assert_eq!((test.server.record().counts("phone").attempts, test.server.token_requests()), (3, 2));
    test.clock.advance(60);
    test.server.record().react_always(Reaction::Accept);
    test.server.record().react([Reaction::error(401, "UNAUTHENTICATED")]);
    assert_eq!(test.send("phone").await, Outcome::Taken);
    assert_eq!(test.server.token_requests(), 3);
}

#[tokio::test]
async fn missing_credentials_of_one_platform_keep_the_access_token() {
    let test = FcmTest::start().await;
    test.server.record().react_for("iphone", [Reaction::error(401, "THIRD_PARTY_AUTH_ERROR")]);
    assert_eq!(test.send("iphone").await, refused("THIRD_PARTY_AUTH_ERROR"));
    assert_eq!((test.server.record().counts("iphone").attempts, test.server.token_requests()), (1, 1));
    test.server.revoke_tokens();
    assert_eq!(test.send("phone").await, Outcome::Taken, "the replacement is not paused");
    assert_eq!(test.server.token_requests(), 2);
}

#[tokio::test]
async fn local_server_may_speak_http_1_only() {
    let clock = TestClock::default();
    let limits = Limits { http2: false, ..Limits::default() };
    let server = FcmStandIn::start_with(clock.now(), limits).await.expect("a server");
    let client = Fcm::new(server.settings(TIMEOUT, 1), clock.now()).expect("a client");
    server.record().react_for("limited", [Reaction::limited(9)]);
    server.record().react_for("closed", [Reaction::Close]);
    assert_eq!(client.send("phone", &mention()).await, Outcome::Taken);
    assert_eq!(client.send("limited", &mention()).await, later(Some(9), true));
    assert_eq!(client.send("closed", &mention()).await, Outcome::Unknown);
    assert_eq!(server.record().counts("closed").attempts, 1);
}

#[tokio::test]
async fn busy_local_server_is_probed_again() {
    const LONG: Duration = Duration::from_mins(1);
    let clock = TestClock::default();
    let server = FcmStandIn::start(clock.now()).await.expect("a server");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let mut settings = server.settings(LONG, 1);
    settings.url = format!("http://{}", listener.local_addr().expect("an address")).parse().expect("a URL");
    let client = Fcm::new(settings, clock.now()).expect("a client");
    let unanswered = async {
        let _probe = listener.accept().await.expect("a connection");
        // From here on, the runtime skips waiting times.
        tokio::time::pause();
        std::future::pending::<()>().await;
    };
    let notification = mention();
    tokio::select! {
        outcome = client.send("phone", &notification) => assert_eq!(outcome, later(None, false)),
        () = unanswered => {}
    }
    tokio::time::resume();
    tokio::spawn(forward(listener, server.address()));
    assert_eq!(client.send("phone", &notification).await, Outcome::Taken);
    assert_eq!(server.connections(), 2, "a probe, and a connection for the request");
    assert_eq!(server.record().counts("phone").attempts, 1);
}

#[tokio::test]
async fn expired_notification_has_no_life_left() {
    let test = FcmTest::start().await;
    let mut notification = mention();
    notification.expires_at = START - time::Duration::seconds(1);
    assert_eq!(test.client.send("phone", &notification).await, Outcome::Taken);
    notification.expires_at = START + time::Duration::days(60);
    assert_eq!(test.client.send("phone", &notification).await, Outcome::Taken);
    let received = test.server.record().received();
    let lives: Vec<_> = received.iter().map(|received| &received.body["message"]["android"]["ttl"]).collect();
    assert_eq!(lives, ["0s", "2419200s"]);
}

#[tokio::test]
async fn invalid_account_is_refused() {
    let test = FcmTest::start().await;
    let account = test.server.account();
    assert!(ServiceAccount::parse(account).is_ok());
    for (text, is_key) in [
        ("{}".to_owned(), false),
        ("no JSON".to_owned(), false),
        (account.replace("project_id", "project"), false),
        (account.replace("BEGIN PRIVATE", "BEGIN PUBLIC"), true),
        (account.replace("PRIVATE KEY-----\\nM", "PRIVATE KEY-----\\nN"), true),
    ] {
        let error = ServiceAccount::parse(&text).expect_err("invalid");
        assert_eq!(matches!(error, SettingsError::RsaKey), is_key, "{error}");
    }
    let shown = format!("{:?} {:?}", ServiceAccount::parse(account), test.client);
    assert!(!shown.contains("PRIVATE"), "{shown}");
}
