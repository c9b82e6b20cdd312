//! Errors for room calls and pings against a misbehaving, hostile or disconnected server, and the requests that reach
//! it.

use std::{fmt::Write, time::Duration};

use matrix_appservice::{Error, EventId, Homeserver, IncompleteRoom, NewRoom, RoomId, Settings, UserId};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::fake_server::{AS_TOKEN, FakeServer, Reply};

const ROOM: NewRoom<'_> = NewRoom {
    alias: "match_1",
    name: "Ajax – PSV",
    topic: "",
    private: true,
    bot_invites: false,
    moderator: Some("zoe"),
};

fn room_id() -> &'static RoomId {
    "!room:matrix.example".try_into().unwrap()
}

fn alice() -> &'static UserId {
    "@alice:matrix.example".try_into().unwrap()
}

fn event_id() -> &'static EventId {
    "$event".try_into().unwrap()
}

fn refusal(status: u16, errcode: &str) -> Reply {
    Reply::json(status, &json!({"errcode": errcode, "error": "no"}).to_string())
}

fn found_room() -> Reply {
    Reply::json(200, r#"{"room_id":"!room:matrix.example","servers":[]}"#)
}

/// Received requests as method, path with query, and body.
fn sent(server: &FakeServer) -> Vec<(String, Value)> {
    let received = server.received();
    let sent = received.iter().map(|r| {
        let mut target = format!("{} {}", r.method, r.url.path().trim_start_matches("/_matrix/client/v3"));
        for (name, value) in r.url.query_pairs() {
            write!(target, " {name}={value}").unwrap();
        }
        (target, serde_json::from_str(&r.body).unwrap_or(Value::Null))
    });
    sent.collect()
}

fn targets(server: &FakeServer) -> Vec<String> {
    sent(server).into_iter().map(|(target, _)| target).collect()
}

const CREATE: &str = "POST /createRoom";
const FIND: &str = "GET /directory/room/%23match_1:matrix.example";
const FORGET: &str = "DELETE /directory/room/%23match_1:matrix.example";
const STATE: &str = "GET /rooms/!room:matrix.example/state";

#[tokio::test]
async fn taken_but_unresolvable_alias_is_retried_once() {
    let in_use = || refusal(400, "M_ROOM_IN_USE");
    let unknown = || refusal(404, "M_NOT_FOUND");
    for half_made in [IncompleteRoom::Wait, IncompleteRoom::Discard] {
        // Another caller removed the alias between the two requests.
        let made = Reply::json(200, r#"{"room_id":"!new:matrix.example"}"#);
        let server = FakeServer::start_with([in_use(), unknown()], made).await;
        assert_eq!(server.homeserver().ensure_room(&ROOM, half_made).await.unwrap(), "!new:matrix.example");
        assert_eq!(targets(&server), [CREATE, FIND, CREATE]);

        // A server that contradicts itself causes no endless loop.
        let server = FakeServer::start_with([in_use(), unknown(), in_use()], unknown()).await;
        let error = server.homeserver().ensure_room(&ROOM, half_made).await.unwrap_err();
        assert!(matches!(error, Error::IncompleteRoom(_)), "{error:?}");
        assert_eq!(targets(&server), [CREATE, FIND, CREATE, FIND]);
    }
}

#[tokio::test]
async fn loser_of_concurrent_creation_waits_or_replaces_alias() {
    // Synapse's response to the loser if both creations passed its check for the alias.
    let lost = || refusal(409, "M_UNKNOWN");
    let not_in_it = || refusal(403, "M_FORBIDDEN");
    let server = FakeServer::start_with([lost(), found_room()], not_in_it()).await;
    let error = server.homeserver().ensure_room(&ROOM, IncompleteRoom::Wait).await.unwrap_err();
    assert!(matches!(&error, Error::IncompleteRoom(alias) if *alias == "#match_1:matrix.example"), "{error:?}");
    assert_eq!(targets(&server), [CREATE, FIND, STATE]);

    let replies = [lost(), found_room(), not_in_it(), Reply::json(200, "{}"), lost(), found_room(), not_in_it()];
    let server = FakeServer::start_with(replies, Reply::json(200, "{}")).await;
    let error = server.homeserver().ensure_room(&ROOM, IncompleteRoom::Discard).await.unwrap_err();
    assert!(matches!(error, Error::IncompleteRoom(_)), "{error:?}");
    assert_eq!(targets(&server), [CREATE, FIND, STATE, FORGET, CREATE, FIND, STATE, FORGET]);
}

#[tokio::test]
async fn alias_lost_during_creation_is_resolved_again() {
    let lost = || refusal(400, "M_BAD_ALIAS");
    let state = Reply::json(200, &json!([member("@matchday:matrix.example", "join")]).to_string());
    // The alias is lost to a call that created the room, and lost again while completing that room.
    let server = FakeServer::start_with([lost(), found_room(), state], lost()).await;
    let error = server.homeserver().ensure_room(&ROOM, IncompleteRoom::Wait).await.unwrap_err();
    assert!(matches!(error, Error::IncompleteRoom(_)), "{error:?}");
    let levels = "PUT /rooms/!room:matrix.example/state/m.room.power_levels/";
    assert_eq!(targets(&server), [CREATE, FIND, STATE, levels]);
}

#[tokio::test]
async fn alias_is_removed_only_if_bot_is_absent() {
    let in_use = || refusal(400, "M_ROOM_IN_USE");
    for state in [
        Reply::html(502),
        Reply::html(403),
        Reply::json(200, "{}"),
        refusal(429, "M_LIMIT_EXCEEDED"),
        refusal(401, "M_UNKNOWN_TOKEN"),
        refusal(400, "M_UNKNOWN"),
    ] {
        let server = FakeServer::start_with([in_use(), found_room()], state).await;
        let error = server.homeserver().ensure_room(&ROOM, IncompleteRoom::Discard).await.unwrap_err();
        assert!(!matches!(error, Error::IncompleteRoom(_)), "{error:?}");
        assert_eq!(targets(&server), [CREATE, FIND, STATE]);
    }
}

#[tokio::test]
async fn room_creation_follows_the_specification() {
    let server = FakeServer::start(Reply::json(200, r#"{"room_id":"!room:matrix.example"}"#)).await;
    let settings = Settings { bot: "keeper".to_owned(), ..server.settings() };
    let homeserver = Homeserver::new(settings, reqwest::Client::new());
    homeserver.ensure_room(&ROOM, IncompleteRoom::Wait).await.unwrap();
    let (target, mut body) = sent(&server).pop().unwrap();
    assert_eq!(target, CREATE, "as the bot, without a user_id parameter");
    let levels = body["power_level_content_override"].take();
    assert_eq!(levels["users"], json!({"@keeper:matrix.example": 100, "@zoe:matrix.example": 50}));
    assert_eq!(
        body,
        json!({
            "room_alias_name": "match_1",
            "room_version": "11",
            "preset": "private_chat",
            "name": "Ajax – PSV",
            "power_level_content_override": null,
            "initial_state": [
                {"type": "m.room.join_rules", "state_key": "", "content": {"join_rule": "invite"}},
                {"type": "m.room.guest_access", "state_key": "", "content": {"guest_access": "forbidden"}},
                {"type": "m.room.history_visibility", "state_key": "", "content": {"history_visibility": "shared"}},
                {"type": "m.room.encryption", "state_key": "", "content": {"algorithm": "m.megolm.v1.aes-sha2"}},
            ],
        })
    );
}

#[tokio::test]
async fn room_requests_use_the_specified_paths() {
    let server = FakeServer::start(Reply::json(200, r#"{"event_id":"$event"}"#)).await;
    let homeserver = server.homeserver();
    // Servers assign room ids, and may use any characters in them.
    let odd: &RoomId = "!a/../b?c#d%2e:matrix.example".try_into().unwrap();
    homeserver.join(odd, "al/ice").await.unwrap();
    homeserver.members(odd).await.unwrap_err();
    homeserver.event(odd, "$e%2f".try_into().unwrap()).await.unwrap_err();
    homeserver.kick(odd, "@a%2f:b".try_into().unwrap(), "").await.unwrap_err();
    homeserver.leave(room_id(), "alice").await.unwrap();
    homeserver.invite(room_id(), None, "alice").await.unwrap();
    homeserver.invite(room_id(), Some("zoe"), "alice").await.unwrap();
    homeserver.set_room_name(room_id(), "Zoë").await.unwrap();
    homeserver.kick(room_id(), alice(), "spam").await.unwrap_err();
    let member = |membership: &str| json!({"membership": membership});
    let state = "/rooms/!room:matrix.example/state";
    let odd = "/rooms/!a%2F..%2Fb%3Fc%23d%252e:matrix.example";
    assert_eq!(
        sent(&server),
        [
            (
                format!("PUT {odd}/state/m.room.member/@al%2Fice:matrix.example user_id=@al/ice:matrix.example"),
                member("join")
            ),
            (format!("GET {odd}/members not_membership=leave"), Value::Null),
            (format!("GET {odd}/event/$e%252f"), Value::Null),
            (format!("POST {odd}/kick"), json!({"user_id": "@a%2f:b"})),
            (format!("GET {odd}/state/m.room.member/@a%252f:b format=event"), Value::Null),
            (format!("PUT {state}/m.room.member/@alice:matrix.example user_id=@alice:matrix.example"), member("leave")),
            (format!("PUT {state}/m.room.member/@alice:matrix.example"), member("invite")),
            (format!("PUT {state}/m.room.member/@alice:matrix.example user_id=@zoe:matrix.example"), member("invite")),
            (format!("PUT {state}/m.room.name/"), json!({"name": "Zoë"})),
            (
                "POST /rooms/!room:matrix.example/kick".to_owned(),
                json!({"user_id": "@alice:matrix.example", "reason": "spam"})
            ),
            (format!("GET {state}/m.room.member/@alice:matrix.example format=event"), Value::Null),
        ]
    );
}

#[tokio::test]
async fn hostile_alias_is_never_sent() {
    let server = FakeServer::start(Reply::json(200, "{}")).await;
    let homeserver = server.homeserver();
    let long = "a".repeat(255);
    for alias in ["", "..", "a/b", "a?b", "%2e", "A", "a b", "#a", "a:b", "a\r\nb", "é", &long] {
        for error in [
            homeserver.ensure_room(&NewRoom { alias, ..ROOM }, IncompleteRoom::Discard).await.unwrap_err(),
            homeserver.find_room(alias).await.unwrap_err(),
            homeserver.discard_room(alias, None).await.unwrap_err(),
            homeserver.discard_room(alias, Some(room_id())).await.unwrap_err(),
        ] {
            assert!(matches!(error, Error::InvalidAlias(_)), "{alias}: {error:?}");
            assert!(!error.is_worth_retrying());
        }
    }
    assert!(server.received().is_empty());
}

#[tokio::test]
async fn hostile_localpart_is_never_sent() {
    let server = FakeServer::start(Reply::json(200, "{}")).await;
    let homeserver = server.homeserver();
    let bad_bot = Settings { bot: "Bot".to_owned(), ..server.settings() };
    let bad_bot = Homeserver::new(bad_bot, reqwest::Client::new());
    let admin = Settings { admin_token: Some("t".into()), ..server.settings() };
    let admin = Homeserver::new(admin, reqwest::Client::new());
    for localpart in ["", "A", "a b", "a?b", "a:b", "é"] {
        for error in [
            homeserver.join(room_id(), localpart).await.unwrap_err(),
            homeserver.leave(room_id(), localpart).await.unwrap_err(),
            homeserver.invite(room_id(), None, localpart).await.unwrap_err(),
            homeserver.invite(room_id(), Some(localpart), "alice").await.unwrap_err(),
            homeserver.joined_rooms(localpart).await.unwrap_err(),
            homeserver.set_power_level(room_id(), localpart, 50).await.unwrap_err(),
            homeserver.set_ignored(localpart, alice(), true).await.unwrap_err(),
            homeserver
                .ensure_room(&NewRoom { moderator: Some(localpart), ..ROOM }, IncompleteRoom::Wait)
                .await
                .unwrap_err(),
            admin.set_suspended(localpart, true).await.unwrap_err(),
            bad_bot.ensure_bot().await.unwrap_err(),
            bad_bot.members(room_id()).await.unwrap_err(),
        ] {
            assert!(matches!(error, Error::InvalidLocalpart(_)), "{error:?}");
        }
    }
    assert!(server.received().is_empty());
}

/// A member event in the format of Synapse.
fn member(user_id: &str, membership: &str) -> Value {
    json!({
        "type": "m.room.member", "state_key": user_id, "sender": user_id, "room_id": "!room:matrix.example",
        "event_id": format!("${}", user_id.trim_start_matches('@')), "origin_server_ts": 1,
        "content": {"membership": membership, "displayname": "x".repeat(200)},
    })
}

#[tokio::test]
async fn malformed_lists_fail_and_malformed_members_are_skipped() {
    let mut without_id = member("@a:b", "join");
    without_id["event_id"].take();
    let mut odd_name = member("@a:b", "join");
    odd_name["content"]["displayname"] = json!([{"not": "a name"}]);
    odd_name["unsigned"] = json!(7);
    for garbage in [json!([]), json!({}), json!({"chunk": {}})] {
        let server = FakeServer::start(Reply::json(200, &garbage.to_string())).await;
        let error = server.homeserver().members(room_id()).await.unwrap_err();
        assert!(matches!(error, Error::Unreadable { .. }), "{garbage}: {error:?}");
    }
    // A malformed member event hides no other one, and fields that users control may contain anything.
    let mixed = json!({"chunk": [7, {}, member("a:b", "join"), member("@a:b", "queue"), without_id, odd_name]});
    let server = FakeServer::start(Reply::json(200, &mixed.to_string())).await;
    assert_eq!(server.homeserver().members(room_id()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn large_member_list_is_read_up_to_limit() {
    let many: Vec<_> = (0..20_000).map(|n| member(&format!("@user{n}:matrix.example"), "join")).collect();
    let reply = json!({"chunk": many}).to_string();
    assert!(reply.len() > 4 * 1024 * 1024);
    let server = FakeServer::start(Reply::json(200, &reply)).await;
    assert_eq!(server.homeserver().members(room_id()).await.unwrap().len(), 20_000);

    let endless = format!(r#"{{"chunk":[]{}}}"#, " ".repeat(17 * 1024 * 1024));
    let server = FakeServer::start(Reply::json(200, &endless)).await;
    let error = server.homeserver().members(room_id()).await.unwrap_err();
    assert!(matches!(error, Error::Unreadable { .. }), "{error:?}");
    // Other responses have a smaller limit.
    let long = format!(r#"{{"joined_rooms":[]{}}}"#, " ".repeat(2 * 1024 * 1024));
    let server = FakeServer::start(Reply::json(200, &long)).await;
    server.homeserver().joined_rooms("alice").await.unwrap_err();
}

#[tokio::test]
async fn malformed_or_wrong_event_is_unreadable() {
    let good = json!({
        "event_id": "$event", "sender": "@a:b", "type": "m.x", "origin_server_ts": 1, "content": {}, "room_id": "!r:b",
    });
    let with = |name: &str, value: Value| {
        let mut event = good.clone();
        event[name] = value;
        event
    };
    let server = FakeServer::start(Reply::json(200, &good.to_string())).await;
    assert_eq!(server.homeserver().event(room_id(), event_id()).await.unwrap().unwrap().timestamp_ms, 1);
    for garbage in [
        json!([]),
        json!({}),
        with("event_id", json!("$other")),
        with("sender", json!("a")),
        with("type", json!(1)),
        with("origin_server_ts", json!(-1)),
        with("content", json!("x")),
        with("state_key", json!({})),
    ] {
        server.set_reply(Reply::json(200, &garbage.to_string()));
        let error = server.homeserver().event(room_id(), event_id()).await.unwrap_err();
        assert!(matches!(error, Error::Unreadable { .. }), "{garbage}: {error:?}");
    }
}

#[tokio::test]
async fn room_refusal_differs_from_server_refusal() {
    let masquerade =
        json!({"errcode": "M_FORBIDDEN", "error": "Application service cannot masquerade as this user (@a:b)."});
    let server = FakeServer::start(Reply::json(403, &masquerade.to_string())).await;
    let error = server.homeserver().join(room_id(), "alice").await.unwrap_err();
    assert!(matches!(error, Error::NotAllowed { .. }), "{error:?}");
    for errcode in ["M_FORBIDDEN", "M_BAD_STATE", "M_UNKNOWN"] {
        server.set_reply(refusal(403, errcode));
        let error = server.homeserver().join(room_id(), "alice").await.unwrap_err();
        assert!(matches!(&error, Error::ForbiddenInRoom { message } if message == "no"), "{error:?}");
        assert!(!error.is_worth_retrying());
    }
    server.set_reply(refusal(404, "M_NOT_FOUND"));
    assert!(matches!(server.homeserver().join(room_id(), "alice").await, Err(Error::NoSuchRoom(_))));
    assert_eq!(server.homeserver().leave(room_id(), "alice").await.unwrap(), None);
    assert_eq!(server.homeserver().event(room_id(), event_id()).await.unwrap(), None);
    server.set_reply(refusal(403, "M_USER_SUSPENDED"));
    assert!(matches!(server.homeserver().join(room_id(), "alice").await, Err(Error::Suspended(_))));

    // A server without the endpoint, or a proxy, gives no information about rooms.
    for reply in [refusal(404, "M_UNRECOGNIZED"), Reply::html(404), Reply::html(403)] {
        server.set_reply(reply);
        let homeserver = server.homeserver();
        for error in [
            homeserver.join(room_id(), "alice").await.unwrap_err(),
            homeserver.leave(room_id(), "alice").await.unwrap_err(),
            homeserver.find_room("match_1").await.unwrap_err(),
            homeserver.event(room_id(), event_id()).await.unwrap_err(),
            homeserver.room_name(room_id()).await.unwrap_err(),
            homeserver.discard_room("match_1", Some(room_id())).await.unwrap_err(),
            homeserver.kick(room_id(), alice(), "").await.unwrap_err(),
        ] {
            assert!(matches!(error, Error::Unreadable { .. }), "{error:?}");
        }
    }
}

#[tokio::test]
async fn kick_reports_user_who_rejoined() {
    let back = Reply::json(200, &member("@alice:matrix.example", "join").to_string());
    let server = FakeServer::start_with([Reply::json(200, "{}")], back).await;
    let error = server.homeserver().kick(room_id(), alice(), "").await.unwrap_err();
    assert!(matches!(error, Error::RoomChanged(_)), "{error:?}");
    assert!(error.is_worth_retrying());

    let other = Reply::json(200, &member("@bob:matrix.example", "leave").to_string());
    let server = FakeServer::start_with([Reply::json(200, "{}")], other).await;
    let error = server.homeserver().kick(room_id(), alice(), "").await.unwrap_err();
    assert!(matches!(error, Error::Unreadable { .. }), "{error:?}");
}

#[tokio::test]
async fn malformed_ignore_list_is_replaced() {
    for (stored, expected) in [
        (json!({"ignored_users": [], "k": 1}), json!({"ignored_users": {"@alice:matrix.example": {}}, "k": 1})),
        (json!({}), json!({"ignored_users": {"@alice:matrix.example": {}}})),
    ] {
        let stored = Reply::json(200, &stored.to_string());
        let server = FakeServer::start_with([stored], Reply::json(200, "{}")).await;
        server.homeserver().set_ignored("zoe", alice(), true).await.unwrap();
        let list = "/user/@zoe:matrix.example/account_data/m.ignored_user_list user_id=@zoe:matrix.example";
        assert_eq!(sent(&server), [(format!("GET {list}"), Value::Null), (format!("PUT {list}"), expected)]);
    }
    let server = FakeServer::start(Reply::json(200, "[]")).await;
    let error = server.homeserver().set_ignored("zoe", alice(), true).await.unwrap_err();
    assert!(matches!(error, Error::Unreadable { .. }), "{error:?}");
}

const PUSH_TOKEN: &str = "push-token-fedcba9876543210";

async fn ping(homeserver: &Homeserver) -> Result<Duration, Error> {
    homeserver.ping("push", &PUSH_TOKEN.into(), "transaction 1").await
}

#[tokio::test]
async fn ping_uses_the_given_token() {
    let server = FakeServer::start(Reply::json(200, r#"{"duration_ms":123}"#)).await;
    assert_eq!(ping(&server.homeserver()).await.unwrap(), Duration::from_millis(123));
    let received = server.received().pop().unwrap();
    assert_eq!((received.method.as_str(), received.url.path()), ("POST", "/_matrix/client/v1/appservice/push/ping"));
    assert_eq!(received.url.query(), None);
    assert!(received.headers.contains(&format!("authorization: Bearer {PUSH_TOKEN}\r\n")), "{}", received.headers);
    assert_eq!(received.body, r#"{"transaction_id":"transaction 1"}"#);
}

#[tokio::test]
async fn failed_ping_does_not_open_the_breaker() {
    let server = FakeServer::start(Reply::html(502)).await;
    let homeserver = server.homeserver();
    for (status, errcode) in [
        (400, "M_URL_NOT_SET"),
        (502, "M_CONNECTION_FAILED"),
        (504, "M_CONNECTION_TIMEOUT"),
        (502, "M_BAD_STATUS"),
        // The status that the specification defines.
        (400, "M_CONNECTION_FAILED"),
    ] {
        server.set_reply(Reply::json(
            status,
            &json!({"errcode": errcode, "error": format!("with {PUSH_TOKEN}"), "status": 500, "body": "x"}).to_string(),
        ));
        for _ in 0..4 {
            let error = ping(&homeserver).await.unwrap_err();
            let Error::CannotReachUs { reason } = &error else { panic!("{error:?}") };
            assert_eq!(*reason, format!("{errcode}: with …"));
            assert!(error.is_worth_retrying());
        }
        assert!(!homeserver.is_breaker_open());
    }
}

#[tokio::test]
async fn ping_detects_unavailable_homeserver() {
    for reply in [Reply::html(502), Reply::html(504), refusal(500, "M_UNKNOWN"), Reply::Bytes(String::new())] {
        let server = FakeServer::start(reply).await;
        let homeserver = server.homeserver();
        for _ in 0..3 {
            let error = ping(&homeserver).await.unwrap_err();
            assert!(matches!(error, Error::Failing { .. } | Error::Unreachable(_)), "{error:?}");
        }
        assert!(matches!(ping(&homeserver).await, Err(Error::BreakerOpen { .. })));
        assert_eq!(server.received().len(), 3);
    }
}

#[tokio::test]
async fn ping_timeout_does_not_open_the_breaker() {
    let server = FakeServer::start(Reply::silence()).await;
    let settings = Settings { deadline: Duration::from_millis(50), ..server.settings() };
    let homeserver = Homeserver::new(settings, reqwest::Client::new());
    for _ in 0..4 {
        assert!(matches!(ping(&homeserver).await, Err(Error::TooSlow(_))));
    }
    assert!(!homeserver.is_breaker_open());
}

#[tokio::test]
async fn other_ping_responses_map_to_usual_errors() {
    let server = FakeServer::start(Reply::html(200)).await;
    for (reply, expected) in [
        (Reply::html(200), "Unreadable"),
        (Reply::json(200, "{}"), "Unreadable"),
        (Reply::json(200, r#"{"duration_ms":-1}"#), "Unreadable"),
        (refusal(404, "M_UNRECOGNIZED"), "Unreadable"),
        (refusal(429, "M_LIMIT_EXCEEDED"), "Busy"),
        (refusal(401, "M_UNKNOWN_TOKEN"), "WrongToken"),
        (refusal(403, "M_FORBIDDEN"), "WrongToken"),
    ] {
        server.set_reply(reply);
        let error = ping(&server.homeserver()).await.unwrap_err();
        assert!(format!("{error:?}").starts_with(expected), "{error:?}");
    }
}

#[tokio::test]
async fn suspension_uses_admin_endpoint_and_admin_token() {
    const ADMIN_TOKEN: &str = "admin-token-0123";
    let confirmation = |suspended: bool| json!({"user_@al/ice:matrix.example_suspended": suspended}).to_string();
    let server = FakeServer::start(Reply::json(200, &confirmation(true))).await;
    let url = server.url.join("/below/").unwrap();
    let settings = Settings { url, admin_token: Some(ADMIN_TOKEN.into()), ..server.settings() };
    let homeserver = Homeserver::new(settings, reqwest::Client::new());
    assert!(!format!("{homeserver:?}").contains(ADMIN_TOKEN));
    homeserver.set_suspended("al/ice", true).await.unwrap();
    let received = server.received().pop().unwrap();
    let path = "/below/_synapse/admin/v1/suspend/@al%2Fice:matrix.example";
    assert_eq!((received.method.as_str(), received.url.path()), ("PUT", path));
    assert!(received.headers.contains(&format!("authorization: Bearer {ADMIN_TOKEN}\r\n")), "{}", received.headers);
    assert!(!received.headers.contains(AS_TOKEN));
    assert_eq!(received.body, r#"{"suspend":true}"#);

    for reply in [Reply::json(200, &confirmation(false)), Reply::json(200, "{}"), Reply::html(200)] {
        server.set_reply(reply);
        let error = homeserver.set_suspended("al/ice", true).await.unwrap_err();
        assert!(matches!(error, Error::Unreadable { .. }), "{error:?}");
    }
    for (status, errcode) in [(401, "M_UNKNOWN_TOKEN"), (403, "M_FORBIDDEN")] {
        let body = json!({"errcode": errcode, "error": format!("{ADMIN_TOKEN} {AS_TOKEN}")});
        server.set_reply(Reply::json(status, &body.to_string()));
        let error = homeserver.set_suspended("al/ice", true).await.unwrap_err();
        assert!(matches!(&error, Error::NotAdmin(message) if message == "… …"), "{error:?}");
    }
}

#[tokio::test]
async fn availability_requires_list_of_versions() {
    let versions = Reply::json(200, r#"{"versions":["v1.11"]}"#);
    let server = FakeServer::start(versions).await;
    assert!(server.homeserver().is_available().await);
    assert!(!server.received()[0].headers.contains("authorization"), "the request needs no token");
    for reply in [Reply::html(200), Reply::html(502), Reply::html(404), Reply::json(200, "{}"), refusal(400, "M_X")] {
        server.set_reply(reply);
        assert!(!server.homeserver().is_available().await);
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gone =
        Settings { url: format!("http://{}", listener.local_addr().unwrap()).parse().unwrap(), ..server.settings() };
    drop(listener);
    assert!(!Homeserver::new(gone, reqwest::Client::new()).is_available().await);
}

#[tokio::test]
async fn availability_check_opens_and_closes_the_breaker() {
    let server = FakeServer::start(Reply::html(502)).await;
    let homeserver = server.homeserver();
    for _ in 0..3 {
        assert!(!homeserver.is_available().await);
    }
    assert!(homeserver.is_breaker_open());
    assert!(matches!(homeserver.joined_rooms("alice").await, Err(Error::BreakerOpen { .. })));

    server.set_reply(Reply::json(200, r#"{"versions":[]}"#));
    assert!(homeserver.is_available().await, "the check bypasses the open breaker");
    assert!(!homeserver.is_breaker_open());
    server.set_reply(Reply::json(200, r#"{"joined_rooms":[]}"#));
    assert!(homeserver.joined_rooms("alice").await.unwrap().is_empty());
}
