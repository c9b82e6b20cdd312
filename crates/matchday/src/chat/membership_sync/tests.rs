//! Tests of pushes through the router. The tests take the role of the homeserver.

use axum::body::Body;
use http::{Method, Request, header};
use platform::clock::Clock as _;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use time::OffsetDateTime;
use web::ids::{RoomId, UserId};

use super::{rules::Membership, service::ConfirmedMembership};
use crate::{
    chat::messages::{INVITED, UNWANTED},
    testing::{TestApp, TestUser, unique},
};

/// A room with a homeserver id, as if it had been created.
struct Stage<'a> {
    app: &'a TestApp,
    room: RoomId,
    matrix_id: String,
}

impl<'a> Stage<'a> {
    async fn new(app: &'a TestApp) -> Self {
        let matrix_id = format!("!{}:{}", unique("stage").replace('_', ""), server(app));
        let owner = app.user().await.id;
        let now = app.clock.now();
        let room: RoomId = sqlx::query_scalar(
            "insert into rooms (matrix_id, alias, name, creator_id, created_at, made_until, opened_at)
             values ($1, $2, 'Stage', $3, $4, $4, $4) returning id",
        )
        .bind(&matrix_id)
        .bind(unique("room"))
        .bind(owner)
        .bind(now)
        .fetch_one(&app.app.core.db)
        .await
        .expect("a room");
        sqlx::query("insert into room_activity (room_id, last_activity, compared_at) values ($1, $2, $2)")
            .bind(room)
            .bind(now)
            .execute(&app.app.core.db)
            .await
            .expect("its activity");
        Self { app, room, matrix_id }
    }

    /// An event of this room with a new id.
    fn event(&self, kind: &str, sender: &str, content: &Value) -> Value {
        json!({"event_id": format!("${}", unique("e")), "room_id": self.matrix_id, "type": kind, "sender": sender,
               "origin_server_ts": millis(self.app.clock.now()), "content": content})
    }

    fn member(&self, who: &str, membership: &str) -> Value {
        let mut event = self.event("m.room.member", who, &json!({"membership": membership, "displayname": "x"}));
        event["state_key"] = json!(who);
        event
    }

    fn message(&self, sender: &str) -> Value {
        self.event("m.room.message", sender, &json!({"msgtype": "m.text", "body": "come on!"}))
    }

    /// The room in a user's room list.
    async fn seen_by(&self, user: &TestUser<'_>) -> Value {
        let list = user.get("/api/auth/chat-rooms").await.expect(200);
        let rooms = list["data"].as_array().expect("a list");
        rooms.iter().find(|room| room["room_id"] == self.matrix_id.as_str()).expect("listed").clone()
    }

    async fn count(&self) -> i64 {
        sqlx::query_scalar("select member_count from room_activity where room_id = $1")
            .bind(self.room)
            .fetch_one(&self.app.app.core.db)
            .await
            .expect("read")
    }

    async fn membership(&self, user: UserId) -> Option<Membership> {
        self.app.app.rooms.membership(user, self.room).await.expect("read")
    }

    async fn note(&self, user: UserId, membership: Membership, event: &Value) {
        let event_id = event["event_id"].as_str();
        let published = ConfirmedMembership { room: self.room, user, membership, event_id, invited_by: None };
        self.app.app.membership_sync.note(published).await.expect("noted");
    }
}

fn server(app: &TestApp) -> String {
    app.app.config.matrix.server_name.clone().expect("a server name")
}

fn millis(at: OffsetDateTime) -> i64 {
    i64::try_from(at.unix_timestamp_nanos() / 1_000_000).expect("a moment of our time")
}

async fn matrix_id(app: &TestApp, user: UserId) -> String {
    let account = app.app.accounts.find(user).await.expect("read").expect("an account");
    format!("@{}:{}", account.username, server(app))
}

fn transaction(id: &str, token: Option<&str>, body: &Value) -> Request<Body> {
    let mut request = Request::put(format!("/_matrix/app/v1/transactions/{id}"));
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    request.body(Body::from(body.to_string())).expect("a request")
}

fn hs_token(app: &TestApp) -> String {
    app.app.config.matrix.hs_token.as_ref().expect("a token").inner().expose_secret().to_owned()
}

async fn outcomes(app: &TestApp) -> Vec<(String, String)> {
    sqlx::query_as("select event_id, coalesce(outcome, 'waiting') from chat_inbox order by id")
        .fetch_all(&app.app.core.db)
        .await
        .expect("the inbox")
}

#[tokio::test]
async fn only_homeserver_can_push() {
    TestApp::run(async |app| {
        let stage = Stage::new(app).await;
        let body = json!({"events": [stage.message("@a:elsewhere.example")]});
        let send = |token| app.send_privately(transaction("1", token, &body));
        let (missing, wrong) = (send(None).await, send(Some("not-the-token")).await);
        assert_eq!((missing.status.as_u16(), wrong.status.as_u16()), (401, 403));
        let refusal: Value = serde_json::from_slice(&wrong.bytes).expect("JSON");
        assert_eq!(refusal["errcode"], "M_FORBIDDEN");
        assert!(outcomes(app).await.is_empty());
        // The public listener does not serve this endpoint.
        let public = app.send(transaction("1", Some(&hs_token(app)), &body)).await;
        assert_eq!(public.status.as_u16(), 404);

        // Synapse treats a response without JSON as a failure.
        assert_eq!(send(Some(&hs_token(app))).await.expect(200), json!({}));
        for (method, path, status) in [
            ("POST", "/_matrix/app/v1/ping", 200),
            ("GET", "/_matrix/app/v1/users/@nobody:example.org", 404),
            ("GET", "/_matrix/app/v1/rooms/%23nowhere:example.org", 404),
        ] {
            for (token, status) in [(hs_token(app), status), ("wrong".to_owned(), 403)] {
                let request = Request::builder().method(method).uri(path);
                let request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
                let response = app.send_privately(request.body(Body::empty()).expect("a request")).await;
                assert_eq!(response.status.as_u16(), status, "{path}");
                assert!(serde_json::from_slice::<Value>(&response.bytes).is_ok(), "{path} returns JSON");
            }
        }
        for nonsense in [json!([]), json!({}), json!({"events": 5}), json!("x")] {
            let response = app.send_privately(transaction("1", Some(&hs_token(app)), &nonsense)).await;
            assert_eq!(response.status.as_u16(), 400, "{nonsense}");
        }
    })
    .await;
}

#[tokio::test]
async fn counts_local_and_remote_members() {
    TestApp::run(async |app| {
        let stage = Stage::new(app).await;
        let user = app.user().await;
        let here = matrix_id(app, user.id).await;
        let bot = format!("@{}:{}", app.app.config.matrix.bot, server(app));
        app.push(&[
            stage.member(&here, "join"),
            stage.member("@ada:elsewhere.example", "join"),
            stage.member("@bob:elsewhere.example", "invite"),
            stage.member(&bot, "join"),
        ])
        .await;
        let seen = stage.seen_by(&user).await;
        assert_eq!((&seen["member_count"], &seen["is_joined"]), (&json!(2), &json!(true)));
        // A new display name causes a member event too.
        app.push(&[stage.member(&here, "join"), stage.member("@bob:elsewhere.example", "join")]).await;
        assert_eq!(stage.count().await, 3);
        app.push(&[stage.member(&here, "leave"), stage.member("@ada:elsewhere.example", "ban")]).await;
        let seen = stage.seen_by(&user).await;
        assert_eq!((&seen["member_count"], &seen["is_joined"]), (&json!(1), &json!(false)));
        app.push(&[stage.member(&here, "ban")]).await;
        assert_eq!(stage.membership(user.id).await, Some(Membership::Ban));
        let joining = format!("/api/auth/chat-rooms/{}/join", stage.matrix_id);
        assert_eq!(user.post(&joining, json!({})).await.expect(403)["code"], "not_allowed");
        assert_eq!(stage.count().await, 1);
    })
    .await;
}

#[tokio::test]
async fn messages_update_activity_and_are_not_stored() {
    TestApp::run(async |app| {
        let stage = Stage::new(app).await;
        let user = app.user().await;
        let here = matrix_id(app, user.id).await;
        app.push(&[stage.member(&here, "join")]).await;
        let activity = async || stage.seen_by(&user).await["last_activity"].as_str().expect("a time").to_owned();
        let opened = activity().await;
        for kind in ["m.room.message", "m.room.encrypted", "m.sticker", "m.reaction"] {
            let before = activity().await;
            app.clock.advance(time::Duration::minutes(5));
            app.push(&[stage.event(kind, &here, &json!({"body": "a secret of theirs"}))]).await;
            assert!(activity().await > before, "{kind}");
        }
        let now = activity().await;
        // An older event does not lower the last activity, and a time in the future is capped.
        let mut late = stage.message("@ada:elsewhere.example");
        late["origin_server_ts"] = json!(millis(app.clock.now()) - 3_600_000);
        let mut ahead = stage.message("@ada:elsewhere.example");
        ahead["origin_server_ts"] = json!(millis(app.clock.now()) + 3_600_000);
        app.push(&[late]).await;
        assert_eq!(activity().await, now);
        app.push(&[ahead]).await;
        assert_eq!(activity().await, now);
        assert!(now > opened);
        // Typing and messages of the bot do not count as activity.
        app.clock.advance(time::Duration::minutes(5));
        let bot = format!("@{}:{}", app.app.config.matrix.bot, server(app));
        app.push(&[stage.message(&bot), stage.event("org.example.typing", &here, &json!({}))]).await;
        assert_eq!(activity().await, now);

        let kept: Vec<String> = sqlx::query_scalar("select chat_inbox::text from chat_inbox")
            .fetch_all(&app.app.core.db)
            .await
            .expect("the inbox");
        assert!(
            kept.len() > 5 && !kept.iter().any(|row| row.contains("secret") || row.contains("come on")),
            "{kept:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn events_are_deduplicated_by_event_id() {
    TestApp::run(async |app| {
        let stage = Stage::new(app).await;
        let user = app.user().await;
        let here = matrix_id(app, user.id).await;
        let (join, leave) = (stage.member(&here, "join"), stage.member(&here, "leave"));
        let push = async |id: &str, events: &[&Value]| {
            let body = json!({"events": events});
            app.send_privately(transaction(id, Some(&hs_token(app)), &body)).await.expect(200);
            app.app.membership_sync.apply_waiting().await.expect("applied");
        };
        push("7", &[&join]).await;
        push("8", &[&leave]).await;
        // An old transaction is repeated.
        push("7", &[&join]).await;
        assert_eq!((stage.membership(user.id).await, stage.count().await), (Some(Membership::Leave), 0));
        // A transaction id is reused for other events.
        push("7", &[&stage.member(&here, "join")]).await;
        assert_eq!((stage.membership(user.id).await, stage.count().await), (Some(Membership::Join), 1));
        assert_eq!(outcomes(app).await.len(), 3);
        // One transaction contains the same event twice.
        let twice = stage.member(&here, "leave");
        push("9", &[&twice, &twice]).await;
        assert_eq!((outcomes(app).await.len(), stage.count().await), (4, 0));
    })
    .await;
}

#[tokio::test]
async fn invalid_events_are_set_aside() {
    TestApp::run(async |app| {
        let stage = Stage::new(app).await;
        let user = app.user().await;
        let here = matrix_id(app, user.id).await;
        let broken = |changes: Value| {
            let mut event = stage.member("@ada:elsewhere.example", "join");
            for (field, value) in changes.as_object().expect("an object") {
                event[field] = value.clone();
            }
            event
        };
        let poison = [
            json!(null),
            json!([]),
            json!("an event"),
            json!({}),
            broken(json!({"event_id": 5})),
            broken(json!({"room_id": null})),
            broken(json!({"sender": {"a": "b"}})),
            broken(json!({"type": "m.room.member\u{0}"})),
            broken(json!({"origin_server_ts": "yesterday"})),
            broken(json!({"state_key": 5})),
            broken(json!({"state_key": "nobody"})),
            broken(json!({"content": null})),
            broken(json!({"content": {"membership": ["join"]}})),
            broken(json!({"content": {"membership": "owner"}})),
        ];
        // The database rejects this name because of a constraint that the code does not check.
        sqlx::query("alter table rooms add constraint no_curse check (name <> 'curse')")
            .execute(app.owner())
            .await
            .expect("a rule");
        let mut cursed = stage.event("m.room.name", &here, &json!({"name": "curse"}));
        cursed["state_key"] = json!("");
        let mut events = vec![stage.member(&here, "join")];
        events.extend(poison.iter().cloned());
        events.push(cursed);
        events.push(stage.member("@bob:elsewhere.example", "join"));
        app.push(&events).await;
        assert_eq!(stage.count().await, 2, "valid events are applied");
        let status = app.app.membership_sync.status().await.expect("a status");
        assert_eq!((status.waiting, status.set_aside), (0, 15));
        let aside = app.app.membership_sync.set_aside(100).await.expect("a list");
        assert!(aside.iter().all(|event| !event.fault.is_empty()), "{aside:?}");
        // A repeated push of the events, as after a failure, changes nothing.
        app.push(&events).await;
        assert_eq!(app.app.membership_sync.status().await.expect("a status").set_aside, 15);
        assert_eq!(stage.count().await, 2);
    })
    .await;
}

/// Processes that fail on the same event set aside that event and not the one after it.
#[tokio::test]
async fn concurrent_workers_set_aside_only_invalid_events() {
    TestApp::run(async |app| {
        let stage = Stage::new(app).await;
        sqlx::query("alter table rooms add constraint no_curse check (name <> 'curse')")
            .execute(app.owner())
            .await
            .expect("a rule");
        let mut events = Vec::new();
        for number in 0..40 {
            let who = format!("@fan{number}:elsewhere.example");
            let mut cursed = stage.event("m.room.name", &who, &json!({"name": "curse"}));
            cursed["state_key"] = json!("");
            events.push(cursed);
            events.push(stage.member(&who, "join"));
        }
        let body = json!({"events": events});
        app.send_privately(transaction("1", Some(&hs_token(app)), &body)).await.expect(200);
        let appliers = (0..4).map(|_| app.app.membership_sync.apply_waiting());
        for outcome in futures_util::future::join_all(appliers).await {
            outcome.expect("applied");
        }
        assert_eq!(stage.count().await, 40);
        let status = app.app.membership_sync.status().await.expect("a status");
        assert_eq!((status.waiting, status.set_aside), (0, 40));
    })
    .await;
}

#[tokio::test]
async fn transaction_fits_hundred_large_events() {
    TestApp::run(async |app| {
        let stage = Stage::new(app).await;
        let large = |number: u32| json!({"body": number.to_string(), "other": "x".repeat(60_000)});
        let events: Vec<Value> =
            (0..100).map(|number| stage.event("m.room.message", "@a:elsewhere.example", &large(number))).collect();
        app.push(&events).await;
        assert_eq!(outcomes(app).await.len(), 100);
    })
    .await;
}

#[tokio::test]
async fn events_of_unknown_rooms_are_ignored() {
    TestApp::run(async |app| {
        let mut stranger = Stage::new(app).await.message("@a:elsewhere.example");
        stranger["room_id"] = json!("!unknown:elsewhere.example");
        let name = stranger["event_id"].as_str().expect("a name").to_owned();
        app.push(&[stranger]).await;
        assert_eq!(outcomes(app).await, [(name, "ignored".to_owned())]);
    })
    .await;
}

#[tokio::test]
async fn older_pushes_do_not_undo_confirmed_memberships() {
    TestApp::run(async |app| {
        let stage = Stage::new(app).await;
        let user = app.user().await.id;
        let here = matrix_id(app, user).await;
        let (join, leave) = (stage.member(&here, "join"), stage.member(&here, "leave"));
        stage.note(user, Membership::Join, &join).await;
        assert_eq!((stage.membership(user).await, stage.count().await), (Some(Membership::Join), 1));
        stage.note(user, Membership::Leave, &leave).await;
        assert_eq!((stage.membership(user).await, stage.count().await), (Some(Membership::Leave), 0));
        // The pushes arrive later, one by one.
        app.push(&[join]).await;
        assert_eq!((stage.membership(user).await, stage.count().await), (Some(Membership::Leave), 0));
        app.push(&[leave]).await;
        assert_eq!((stage.membership(user).await, stage.count().await), (Some(Membership::Leave), 0));
        // Later changes by a chat client count again.
        app.push(&[stage.member(&here, "join")]).await;
        assert_eq!((stage.membership(user).await, stage.count().await), (Some(Membership::Join), 1));

        // Pushes can arrive before the response.
        let (left, back) = (stage.member(&here, "leave"), stage.member(&here, "join"));
        app.push(&[left.clone(), back]).await;
        stage.note(user, Membership::Leave, &left).await;
        assert_eq!((stage.membership(user).await, stage.count().await), (Some(Membership::Join), 1));

        // A lost push does not block pushes forever, and later events count immediately.
        let earlier = stage.member(&here, "join");
        stage.note(user, Membership::Leave, &stage.member(&here, "leave")).await;
        app.clock.advance(time::Duration::seconds(1));
        app.push(&[earlier]).await;
        assert_eq!((stage.membership(user).await, stage.count().await), (Some(Membership::Leave), 0));
        app.push(&[stage.member(&here, "join")]).await;
        assert_eq!((stage.membership(user).await, stage.count().await), (Some(Membership::Join), 1));
        let earlier = stage.member(&here, "join");
        stage.note(user, Membership::Leave, &stage.member(&here, "leave")).await;
        app.clock.advance(time::Duration::minutes(2));
        app.push(&[earlier]).await;
        assert_eq!((stage.membership(user).await, stage.count().await), (Some(Membership::Join), 1));
    })
    .await;
}

/// Random membership changes in batches of random size, partly repeated and applied by two processes at the same time.
/// The last change of each user must win.
#[tokio::test]
async fn any_event_sequence_ends_in_last_state() {
    TestApp::run(async |app| {
        let stage = Stage::new(app).await;
        let mut people = vec!["@ada:elsewhere.example".to_owned(), "@bob:elsewhere.example".to_owned()];
        let mut users = Vec::new();
        for _ in 0..4 {
            users.push(app.user().await.id);
            people.push(matrix_id(app, users[users.len() - 1]).await);
        }
        let mut draws = platform::random::bytes::<600>(&*app.app.core.random).into_iter();
        let mut draw = |below: u8| draws.next().expect("enough") % below;
        let mut events = Vec::new();
        let mut last = std::collections::HashMap::new();
        for _ in 0..250 {
            let who = people[usize::from(draw(6))].clone();
            let membership = ["join", "leave", "invite", "ban"][usize::from(draw(4))];
            last.insert(who.clone(), membership);
            events.push(stage.member(&who, membership));
        }
        let mut at = 0;
        while at < events.len() {
            let end = (at + 1 + usize::from(draw(20))).min(events.len());
            let again = at.saturating_sub(usize::from(draw(5)));
            let body = json!({"events": events[again..end]});
            app.send_privately(transaction("1", Some(&hs_token(app)), &body)).await.expect(200);
            let (one, two) =
                tokio::join!(app.app.membership_sync.apply_waiting(), app.app.membership_sync.apply_waiting());
            one.and(two).expect("applied");
            at = end;
        }
        let joined = last.values().filter(|membership| **membership == "join").count();
        assert_eq!(stage.count().await, i64::try_from(joined).expect("few"));
        for user in users {
            let expected = last.get(&matrix_id(app, user).await).map(|name| name.parse().expect("one"));
            assert_eq!(stage.membership(user).await, expected);
        }
    })
    .await;
}

#[tokio::test]
async fn old_username_leaving_does_not_remove_user() {
    TestApp::run(async |app| {
        let stage = Stage::new(app).await;
        let user = app.user().await;
        let old = matrix_id(app, user.id).await;
        app.push(&[stage.member(&old, "join")]).await;
        user.post("/api/auth/update-user-info", json!({"username": "ada_obi"})).await.expect(200);
        app.published().await;
        let new = matrix_id(app, user.id).await;
        assert_ne!(old, new);
        app.push(&[stage.member(&new, "join"), stage.member(&old, "leave")]).await;
        assert_eq!((stage.membership(user.id).await, stage.count().await), (Some(Membership::Join), 1));
    })
    .await;
}

#[tokio::test]
async fn pushed_name_renames_rooms_but_not_stands() {
    TestApp::run(async |app| {
        let stage = Stage::new(app).await;
        let user = app.user().await;
        let named = |kind: &str, content: Value| {
            let mut event = stage.event(kind, "@a:elsewhere.example", &content);
            event["state_key"] = json!("");
            event
        };
        app.push(&[
            named("m.room.name", json!({"name": "Der\u{0}by"})),
            named("m.room.topic", json!({"topic": "x".repeat(5_000)})),
        ])
        .await;
        let seen = stage.seen_by(&user).await;
        assert_eq!(seen["name"], "Derby");
        assert_eq!(seen["topic"].as_str().map(str::len), Some(1_000));
        let event = app.fixtures().a_match("m").put().await;
        app.published().await;
        sqlx::query("update rooms set stand = 1, creator_id = null, event_id = $2 where id = $1")
            .bind(stage.room)
            .bind(event)
            .execute(&app.app.core.db)
            .await
            .expect("a stand");
        app.push(&[named("m.room.name", json!({"name": "Ours now"}))]).await;
        assert_eq!(stage.seen_by(&user).await["name"], "Derby");
    })
    .await;
}

#[tokio::test]
async fn invitation_from_blocked_user_is_declined() {
    TestApp::run(async |app| {
        let stage = Stage::new(app).await;
        let (guest, host) = (app.user().await, app.user().await);
        let (at_guest, at_host) = (matrix_id(app, guest.id).await, matrix_id(app, host.id).await);
        let invitation = || {
            let mut event = stage.member(&at_guest, "invite");
            event["sender"] = json!(at_host);
            event
        };
        app.push(&[invitation()]).await;
        assert!(app.published().await.is_empty());
        app.push(&[stage.member(&at_guest, "leave")]).await;
        guest.post(&format!("/api/auth/blocks/{}", host.id), json!({})).await.expect(200);
        app.published().await;
        app.push(&[invitation()]).await;
        let published = app.published().await;
        assert_eq!(published.iter().map(|(subject, _)| subject.as_str()).collect::<Vec<_>>(), [UNWANTED]);
        assert_eq!(published[0].1, json!({"room_id": stage.room, "user_id": guest.id}));
    })
    .await;
}

#[tokio::test]
async fn invitation_is_reported_once_whatever_arrives_first() {
    TestApp::run(async |app| {
        let stage = Stage::new(app).await;
        let (guest, host) = (app.user().await, app.user().await);
        let (at_guest, at_host) = (matrix_id(app, guest.id).await, matrix_id(app, host.id).await);
        let device = json!({"platform": "fcm", "token": "phone"}).to_string();
        guest.send(Method::PUT, "/api/auth/devices/device-1", Some(device)).await.expect(200);
        let invitation = || {
            let mut event = stage.member(&at_guest, "invite");
            event["sender"] = json!(at_host);
            event
        };
        let reported = async || -> Vec<Value> {
            let published = app.published().await;
            published.into_iter().filter(|(subject, _)| subject == INVITED).map(|(_, payload)| payload).collect()
        };
        let [first, second] = [invitation(), invitation()];
        stage.note(guest.id, Membership::Invite, &first).await;
        assert!(reported().await.is_empty());
        app.push(std::slice::from_ref(&first)).await;
        let found = reported().await;
        assert_eq!(found.len(), 1, "the response was recorded first");
        assert_eq!((&found[0]["event_id"], &found[0]["user_id"]), (&first["event_id"], &json!(guest.id)));
        assert_eq!(found[0]["sent_at"], "2026-11-20T15:00:00Z");
        app.push(&[stage.member(&at_guest, "leave")]).await;
        app.push(std::slice::from_ref(&second)).await;
        stage.note(guest.id, Membership::Invite, &second).await;
        assert_eq!(reported().await.len(), 1, "the push was recorded first");
        app.push(&[second]).await;
        assert!(reported().await.is_empty(), "a repeated push changes nothing");
    })
    .await;
}

#[tokio::test]
async fn events_are_deleted_after_retention() {
    TestApp::run(async |app| {
        let stage = Stage::new(app).await;
        let join = stage.member("@a:elsewhere.example", "join");
        app.push(&[stage.message("@a:elsewhere.example"), join, json!({"event_id": "$poison"})]).await;
        app.clock.advance(time::Duration::minutes(59));
        assert_eq!(app.app.membership_sync.sweep().await.expect("swept"), 0);
        app.clock.advance(time::Duration::hours(1));
        assert_eq!(app.app.membership_sync.sweep().await.expect("swept"), 1, "messages are deleted after an hour");
        app.clock.advance(time::Duration::days(8));
        assert_eq!(app.app.membership_sync.sweep().await.expect("swept"), 1);
        assert_eq!(outcomes(app).await, [("$poison".to_owned(), "set_aside".to_owned())]);
        app.clock.advance(time::Duration::days(30));
        assert_eq!(app.app.membership_sync.sweep().await.expect("swept"), 1);
        assert!(outcomes(app).await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn only_gap_or_outage_requests_comparison() {
    TestApp::run(async |app| {
        let requested = async || -> Option<OffsetDateTime> {
            sqlx::query_scalar("select at from mirror_marks where name = 'compare'")
                .fetch_optional(&app.app.core.db)
                .await
                .expect("the marks")
        };
        let sync = &app.app.membership_sync;
        sync.record_check(false).await.expect("noted");
        app.clock.advance(time::Duration::seconds(10));
        sync.record_check(false).await.expect("noted");
        assert_eq!(requested().await, None);
        // No worker ran for a while.
        app.clock.advance(time::Duration::seconds(20));
        sync.record_check(false).await.expect("noted");
        assert_eq!(requested().await, Some(app.clock.now()));
        app.clock.advance(time::Duration::seconds(1));
        sync.record_check(true).await.expect("noted");
        assert_eq!(requested().await, Some(app.clock.now()));
    })
    .await;
}

#[tokio::test]
async fn rooms_of_other_groups_are_not_delayed() {
    TestApp::run(async |app| {
        let group = async |matrix_id: &str| -> i32 {
            sqlx::query_scalar("select abs(hashtext($1) % $2)")
                .bind(matrix_id)
                .bind(super::store::GROUPS)
                .fetch_one(&app.app.core.db)
                .await
                .expect("a group")
        };
        let slow = Stage::new(app).await;
        let slow_group = group(&slow.matrix_id).await;
        let other = loop {
            let stage = Stage::new(app).await;
            if group(&stage.matrix_id).await != slow_group {
                break stage;
            }
        };
        let mut holder = app.app.core.db.acquire().await.expect("a connection").detach();
        sqlx::query("select pg_advisory_lock(hashtextextended('matchday mirror', $1::integer))")
            .bind(slow_group)
            .execute(&mut holder)
            .await
            .expect("held");
        let user = app.user().await;
        let who = matrix_id(app, user.id).await;
        let body = json!({"events": [slow.member(&who, "join"), other.member(&who, "join")]});
        app.send_privately(transaction("1", Some(&hs_token(app)), &body)).await.expect(200);
        let sync = &app.app.membership_sync;
        assert_eq!(sync.apply_waiting().await.expect("applied"), 1, "without waiting for the lock");
        assert_eq!(other.membership(user.id).await, Some(Membership::Join));
        assert_eq!(slow.membership(user.id).await, None, "its group is locked");
        sqlx::query("select pg_advisory_unlock_all()").execute(&mut holder).await.expect("released");
        assert_eq!(sync.apply_waiting().await.expect("applied"), 1);
        assert_eq!(slow.membership(user.id).await, Some(Membership::Join));
    })
    .await;
}

/// A worker that finds the lock taken relies on the holder to find its event.
#[tokio::test]
async fn concurrent_workers_leave_no_event_waiting() {
    TestApp::run(async |app| {
        let stage = Stage::new(app).await;
        for round in 0..10 {
            let work = (0..8).map(async |worker| {
                let join = stage.member(&format!("@fan{round}x{worker}:elsewhere.example"), "join");
                let body = json!({"events": [join]});
                app.send_privately(transaction("1", Some(&hs_token(app)), &body)).await.expect(200);
                app.app.membership_sync.apply_waiting().await.expect("applied");
            });
            futures_util::future::join_all(work).await;
            let status = app.app.membership_sync.status().await.expect("a status");
            assert_eq!((status.waiting, stage.count().await), (0, (round + 1) * 8));
        }
    })
    .await;
}

#[tokio::test]
async fn overload_postpones_comparison_for_limited_time() {
    TestApp::run_with_chat(&[], async |app| {
        let _stage = Stage::new(app).await;
        let sync = &app.app.membership_sync;
        app.clock.advance(time::Duration::SECOND);
        sync.request_comparison().await.expect("requested");
        let overload = async || {
            let call = app.app.chat.take_message_call(std::time::Duration::from_secs(5)).await.expect("a call");
            call.finish(false).await;
            assert!(app.app.chat.is_overloaded().await);
        };
        overload().await;
        assert_eq!(sync.compare_some().await.expect("postponed"), 0);
        app.clock.advance(time::Duration::minutes(15));
        overload().await;
        assert_eq!(sync.compare_some().await.expect("compared"), 1);
    })
    .await;
}
