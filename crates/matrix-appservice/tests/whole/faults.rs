//! Errors that a caller receives from a slow, unavailable or misbehaving server, and the requests that reach the
//! server.

use std::{
    fmt::Write,
    time::{Duration, Instant},
};

use matrix_appservice::{Error, Homeserver, Settings};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::fake_server::{AS_TOKEN, FakeServer, Reply};

const PAUSE: Duration = Duration::from_secs(2);

async fn error_after(reply: Reply) -> Error {
    let server = FakeServer::start(reply).await;
    server.homeserver().set_display_name("alice", "Alice").await.unwrap_err()
}

/// All text of an error that a log could contain.
fn shown(error: &Error) -> String {
    let mut text = format!("{error} {error:?} {error:#?}");
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        write!(text, " {error} {error:?}").unwrap();
        source = error.source();
    }
    text
}

#[tokio::test]
async fn silent_server_fails_at_the_deadline() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    for reply in [Reply::silence(), Reply::Stall(head.to_owned())] {
        let server = FakeServer::start(reply).await;
        let deadline = Duration::from_millis(100);
        let homeserver = Homeserver::new(Settings { deadline, ..server.settings() }, reqwest::Client::new());
        let began = Instant::now();
        let error = homeserver.register("alice").await.unwrap_err();
        assert!(matches!(error, Error::TooSlow(d) if d == deadline), "{error:?}");
        assert!(error.is_worth_retrying());
        assert!(began.elapsed() >= deadline && began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }
}

#[tokio::test]
async fn refused_connection_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let settings = Settings::new(
        format!("http://{address}").parse().unwrap(),
        "matrix.example".try_into().unwrap(),
        AS_TOKEN.into(),
    );
    let error = Homeserver::new(settings, reqwest::Client::new()).register("alice").await.unwrap_err();
    assert!(matches!(error, Error::Unreachable(_)), "{error:?}");
    assert!(error.is_worth_retrying());
}

#[tokio::test]
async fn broken_connection_is_unreachable() {
    let half = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\nconnection: close\r\n\r\n{";
    for bytes in ["", half] {
        let error = error_after(Reply::Bytes(bytes.to_owned())).await;
        assert!(matches!(error, Error::Unreachable(_)), "{error:?}");
    }
}

#[tokio::test]
async fn server_error_is_worth_retrying() {
    let internal = Reply::json(500, r#"{"errcode":"M_UNKNOWN","error":"Internal server error"}"#);
    for (reply, expected) in [(internal, 500), (Reply::html(502), 502), (Reply::html(503), 503)] {
        let error = error_after(reply).await;
        assert!(matches!(error, Error::Failing { status } if status == expected), "{error:?}");
        assert!(error.is_worth_retrying());
    }
}

#[tokio::test]
async fn rate_limit_reports_retry_delay() {
    let limited = r#"{"errcode":"M_LIMIT_EXCEEDED","error":"Too Many Requests","retry_after_ms":1500}"#;
    for (reply, expected) in [
        (Reply::json(429, limited), Some(Duration::from_millis(1500))),
        (Reply::with(429, "retry-after: 7\r\n", limited), Some(Duration::from_secs(7))),
        (Reply::with(429, "retry-after: 7\r\n", "slow down"), Some(Duration::from_secs(7))),
        (Reply::with(429, "retry-after: Wed, 21 Oct 2015 07:28:00 GMT\r\n", "slow down"), None),
        (Reply::html(429), None),
    ] {
        let error = error_after(reply).await;
        assert!(matches!(error, Error::Busy { .. }), "{error:?}");
        assert_eq!(error.retry_after(), expected);
        assert!(error.is_worth_retrying());
    }
}

#[tokio::test]
async fn response_outside_the_specification_is_unreadable() {
    for reply in [
        Reply::html(200),
        Reply::html(404),
        Reply::html(403),
        Reply::with(302, "location: /elsewhere\r\n", ""),
        Reply::json(200, "[]"),
        Reply::json(200, r#"{"user_id":"#),
        Reply::json(400, r#"{"error":"no errcode"}"#),
        Reply::json(401, r#"{"flows":[{"stages":["m.login.password"]}],"params":{},"session":"x"}"#),
        Reply::json(404, r#"{"errcode":"M_UNRECOGNIZED","error":"Unrecognized request"}"#),
        // Valid, but too long.
        Reply::json(200, &format!(r#"{{"user_id":"@alice:matrix.example"{}}}"#, " ".repeat(2 * 1024 * 1024))),
        // Matches the specification, but names another user than requested.
        Reply::json(200, r#"{"user_id":"@alice:elsewhere.example"}"#),
    ] {
        let server = FakeServer::start(reply).await;
        // A client that follows redirects would request the same reply again.
        let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        let error = Homeserver::new(server.settings(), http).register("alice").await.unwrap_err();
        assert!(matches!(error, Error::Unreadable { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn refuses_login_for_another_device() {
    let body = r#"{"user_id":"@alice:matrix.example","access_token":"syt_x","device_id":"OTHER"}"#;
    let server = FakeServer::start(Reply::json(200, body)).await;
    let error = server.homeserver().log_in("alice", "MINE", "").await.unwrap_err();
    assert!(matches!(error, Error::Unreadable { .. }), "{error:?}");
}

#[tokio::test]
async fn refusal_is_reported_and_not_retried() {
    let error = error_after(Reply::json(400, r#"{"errcode":"M_TOO_LARGE","error":"Too\nlong"}"#)).await;
    assert_eq!(error.to_string(), "the homeserver refused with 400 M_TOO_LARGE: Too long");
    assert!(!error.is_worth_retrying());

    let error = error_after(Reply::json(401, r#"{"errcode":"M_USER_LOCKED","error":"locked"}"#)).await;
    assert!(matches!(error, Error::Refused { status: 401, .. }), "{error:?}");

    let error = error_after(Reply::json(403, r#"{"errcode":"M_USER_DEACTIVATED","error":"gone"}"#)).await;
    assert!(matches!(error, Error::Deactivated(_)), "{error:?}");
    assert!(!error.is_worth_retrying());

    for (status, errcode) in [(400, "M_EXCLUSIVE"), (403, "M_FORBIDDEN")] {
        let error = error_after(Reply::json(status, &json!({"errcode": errcode, "error": "no"}).to_string())).await;
        assert!(matches!(error, Error::NotAllowed { .. }), "{error:?}");
        assert!(error.is_worth_retrying(), "an operator can correct the namespace");
    }
}

#[tokio::test]
async fn deleting_missing_device_succeeds() {
    for reply in [
        Reply::json(200, "{}"),
        Reply::json(404, r#"{"errcode":"M_NOT_FOUND","error":"no such device"}"#),
        Reply::json(403, r#"{"errcode":"M_USER_DEACTIVATED","error":"gone"}"#),
    ] {
        let server = FakeServer::start(reply).await;
        server.homeserver().delete_device("alice", "DEVICE").await.unwrap();
    }
    // A server without this endpoint has deleted nothing.
    let unknown = Reply::json(404, r#"{"errcode":"M_UNRECOGNIZED","error":"Unrecognized request"}"#);
    let server = FakeServer::start(unknown).await;
    server.homeserver().delete_device("alice", "DEVICE").await.unwrap_err();
}

#[tokio::test]
async fn breaker_opens_after_three_failures_then_admits_one() {
    let server = FakeServer::start(Reply::html(502)).await;
    let homeserver = server.homeserver();
    for _ in 0..3 {
        assert!(matches!(homeserver.register("alice").await, Err(Error::Failing { .. })));
    }
    // The test advances the clock from here on: no deadline and no pause expires otherwise.
    tokio::time::pause();
    let error = homeserver.clone().register("alice").await.unwrap_err();
    assert!(matches!(error, Error::BreakerOpen { remaining } if remaining <= PAUSE), "{error:?}");
    assert!(error.is_worth_retrying() && error.retry_after().is_some());
    assert_eq!(server.received().len(), 3, "nothing is sent while the breaker is open");

    tokio::time::advance(PAUSE).await;
    tokio::time::resume();
    let three = tokio::join!(homeserver.register("a"), homeserver.register("b"), homeserver.register("c"));
    assert!(matches!(three.0, Err(Error::Failing { .. })), "{three:?}");
    assert!(matches!(three.1, Err(Error::BreakerOpen { .. })), "{three:?}");
    assert!(matches!(three.2, Err(Error::BreakerOpen { .. })), "{three:?}");
    assert_eq!(server.received().len(), 4);

    server.set_reply(Reply::json(200, "{}"));
    tokio::time::pause();
    tokio::time::advance(PAUSE).await;
    tokio::time::resume();
    homeserver.set_display_name("alice", "Alice").await.unwrap();
    let (a, b) = tokio::join!(homeserver.set_display_name("alice", "A"), homeserver.set_display_name("alice", "B"));
    assert!(a.is_ok() && b.is_ok(), "a success closes the breaker for all callers");
}

#[tokio::test]
async fn timeouts_open_the_breaker_only_if_no_call_succeeds() {
    let server = FakeServer::start(Reply::silence()).await;
    let settings = Settings { deadline: Duration::from_secs(1), ..server.settings() };
    let homeserver = &Homeserver::new(settings, reqwest::Client::new());
    let slow = async || homeserver.set_display_name("alice", "Alice").await.unwrap_err();
    let succeed = async || {
        while server.received().len() < 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        server.set_reply(Reply::json(200, "{}"));
        homeserver.set_display_name("bob", "Bob").await.unwrap();
    };
    let (one, two, three, ()) = tokio::join!(slow(), slow(), slow(), succeed());
    assert!([one, two, three].iter().all(|error| matches!(error, Error::TooSlow(_))));
    assert!(!homeserver.is_breaker_open(), "the server is slow, but works");
    server.set_reply(Reply::silence());
    tokio::join!(slow(), slow(), slow());
    assert!(homeserver.is_breaker_open());
}

#[tokio::test]
async fn refusals_do_not_open_the_breaker() {
    let server = FakeServer::start(Reply::html(502)).await;
    let homeserver = server.homeserver();
    let no = [
        Reply::json(429, r#"{"errcode":"M_LIMIT_EXCEEDED","error":"x"}"#),
        Reply::json(400, r#"{"errcode":"M_UNKNOWN","error":"x"}"#),
        Reply::json(401, r#"{"errcode":"M_UNKNOWN_TOKEN","error":"x"}"#),
    ];
    for reply in no {
        server.set_reply(Reply::html(502));
        for _ in 0..2 {
            homeserver.register("alice").await.unwrap_err();
        }
        server.set_reply(reply);
        for _ in 0..4 {
            let error = homeserver.register("alice").await.unwrap_err();
            assert!(!matches!(error, Error::BreakerOpen { .. }));
        }
    }
}

#[tokio::test]
async fn errors_and_debug_output_contain_no_token() {
    const USER_TOKEN: &str = "syt_0123456789";
    let echo = |status, errcode: &str| Reply::json(status, &json!({"errcode": errcode, "error": AS_TOKEN}).to_string());
    for reply in [
        echo(400, "M_UNKNOWN"),
        echo(400, AS_TOKEN),
        echo(401, "M_UNKNOWN_TOKEN"),
        echo(403, "M_FORBIDDEN"),
        echo(429, "M_LIMIT_EXCEEDED"),
        echo(500, "M_UNKNOWN"),
        Reply::with(403, "", AS_TOKEN),
        Reply::json(400, &json!([AS_TOKEN]).to_string()),
        Reply::json(200, &json!(USER_TOKEN).to_string()),
        Reply::json(200, &json!({"user_id": USER_TOKEN, "access_token": USER_TOKEN, "device_id": "D"}).to_string()),
        Reply::json(200, &json!({"user_id": "@alice:matrix.example", "access_token": [USER_TOKEN]}).to_string()),
        Reply::json(200, &json!({"user_id": "@b:c", "access_token": USER_TOKEN, "device_id": "D"}).to_string()),
        Reply::json(200, USER_TOKEN),
        Reply::Bytes(format!("{AS_TOKEN}\r\n\r\n")),
    ] {
        let server = FakeServer::start(reply).await;
        let shown = shown(&server.homeserver().log_in("alice", "D", "phone").await.unwrap_err());
        assert!(!shown.contains(AS_TOKEN) && !shown.contains(USER_TOKEN), "{shown}");
    }

    let body = json!({"user_id": "@alice:matrix.example", "access_token": USER_TOKEN, "device_id": "D"});
    let server = FakeServer::start(Reply::json(200, &body.to_string())).await;
    let credentials = server.homeserver().log_in("alice", "D", "phone").await.unwrap();
    let shown = format!("{credentials:?} {:?} {:?}", server.homeserver(), server.settings());
    assert!(!shown.contains(AS_TOKEN) && !shown.contains(USER_TOKEN), "{shown}");
}

#[tokio::test]
async fn token_invalid_in_header_is_wrong_token() {
    let server = FakeServer::start(Reply::json(200, "{}")).await;
    let settings = Settings { as_token: format!("{AS_TOKEN}\n").into(), ..server.settings() };
    let error = Homeserver::new(settings, reqwest::Client::new()).register("alice").await.unwrap_err();
    assert!(matches!(error, Error::WrongToken(_)), "{error:?}");
    assert!(!shown(&error).contains(AS_TOKEN));
    assert!(server.received().is_empty());
}

#[tokio::test]
async fn requests_follow_the_specification() {
    let server = FakeServer::start(Reply::json(200, "{}")).await;
    // The homeserver's base URL may have a path.
    let settings = Settings { url: server.url.join("/below/").unwrap(), ..server.settings() };
    let homeserver = Homeserver::new(settings, reqwest::Client::new());
    // These two calls fail on the response `{}`. Only their requests matter here.
    homeserver.register("alice").await.unwrap_err();
    homeserver.log_in("alice", "D1", &"ü".repeat(200)).await.unwrap_err();
    homeserver.delete_device("alice", "D1").await.unwrap();
    homeserver.set_display_name("a/b+c", "Alice ⚽").await.unwrap();
    homeserver.deactivate("alice", true).await.unwrap_err();

    let received = server.received();
    let sent: Vec<(String, Value)> = received
        .iter()
        .map(|r| {
            assert!(r.headers.contains(&format!("authorization: Bearer {AS_TOKEN}\r\n")), "{}", r.headers);
            assert!(r.headers.contains("content-type: application/json\r\n"), "{}", r.headers);
            let mut target = format!("{} {}", r.method, r.url.path());
            for (name, value) in r.url.query_pairs() {
                write!(target, " {name}={value}").unwrap();
            }
            (target, serde_json::from_str(&r.body).unwrap())
        })
        .collect();
    let client = "/below/_matrix/client/v3";
    assert_eq!(
        sent,
        [
            (
                format!("POST {client}/register"),
                json!({"type": "m.login.application_service", "username": "alice", "inhibit_login": true})
            ),
            (
                format!("POST {client}/login"),
                json!({
                    "type": "m.login.application_service",
                    "identifier": {"type": "m.id.user", "user": "@alice:matrix.example"},
                    "device_id": "D1",
                    "initial_device_display_name": "ü".repeat(100),
                })
            ),
            (format!("DELETE {client}/devices/D1 user_id=@alice:matrix.example"), json!({})),
            (
                format!("PUT {client}/profile/@a%2Fb+c:matrix.example/displayname user_id=@a/b+c:matrix.example"),
                json!({"displayname": "Alice ⚽"})
            ),
            (format!("POST {client}/account/deactivate user_id=@alice:matrix.example"), json!({"erase": true})),
        ]
    );
}

/// Makes every call with this localpart and returns the errors.
async fn all_calls(homeserver: &Homeserver, localpart: &str) -> Vec<Error> {
    let calls = [
        homeserver.register(localpart).await.err(),
        homeserver.log_in(localpart, "D", "phone").await.err(),
        homeserver.delete_device(localpart, "D").await.err(),
        homeserver.set_display_name(localpart, "x").await.err(),
        homeserver.deactivate(localpart, false).await.err(),
    ];
    calls.into_iter().flatten().collect()
}

#[test]
fn hostile_localpart_is_never_sent() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(FakeServer::start(Reply::json(200, "{}")));
    let homeserver = server.homeserver();
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._=-/+".contains(c);
    let hostile =
        prop_oneof![any::<String>(), "[a-z0-9._=/+-]{0,5}[@:?#%&A-Z \\\\\r\n\0][a-z0-9]{0,5}", "[a-z]{240,300}"];
    proptest!(|(localpart in hostile)| {
        prop_assume!(localpart.is_empty() || localpart.len() >= 240 || !localpart.chars().all(allowed));
        let errors = runtime.block_on(all_calls(&homeserver, &localpart));
        prop_assert_eq!(errors.len(), 5);
        prop_assert!(errors.iter().all(|error| matches!(error, Error::InvalidLocalpart(_))));
        prop_assert!(!errors[0].is_worth_retrying());
    });
    assert!(server.received().is_empty());
}

#[test]
fn valid_localpart_is_sent_unchanged() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(FakeServer::start(Reply::json(200, "{}")));
    let homeserver = server.homeserver();
    proptest!(ProptestConfig::with_cases(64), |(localpart in "[a-z0-9._=/+-]{1,40}")| {
        runtime.block_on(homeserver.delete_device(&localpart, "D")).unwrap();
        let arrived = server.received().pop().unwrap().url;
        prop_assert_eq!(arrived.path(), "/_matrix/client/v3/devices/D");
        let user_ids: Vec<_> = arrived.query_pairs().into_owned().collect();
        prop_assert_eq!(user_ids, [("user_id".to_owned(), format!("@{localpart}:matrix.example"))]);
    });
}

#[tokio::test]
async fn hostile_device_id_is_never_sent() {
    let server = FakeServer::start(Reply::json(200, "{}")).await;
    let homeserver = server.homeserver();
    for id in ["", ".", "..", "a/b", "a?b", "%2e%2e", "a\r\nb"] {
        let logged_in = homeserver.log_in("alice", id, "phone").await.unwrap_err();
        let deleted = homeserver.delete_device("alice", id).await.unwrap_err();
        assert!(matches!((logged_in, deleted), (Error::InvalidDeviceId(_), Error::InvalidDeviceId(_))), "{id}");
    }
    assert!(server.received().is_empty());
}
