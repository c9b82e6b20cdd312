//! Tests of the filters through the router. The tests take the role of the homeserver.

use std::time::{Duration, Instant};

use matrix_appservice::RoomId as MatrixRoomId;
use platform::{clock::Clock as _, standard_webhooks::SigningSecret, stream::Delivery};
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;
use web::ids::RoomId;

use super::{
    message::ChatMessage,
    rules::Action,
    service::{FilterError, NewFilter},
};
use crate::{
    chat::{messages::MUTE, planned_removals::PLANNED},
    identity::operators::{Operator, service::ActionFilter},
    testing::{LogCapture, Received, Receiver, Reply, TestApp, TestUser, eventually, unique},
};

/// Keys for the texts of held messages.
const KEYS: (&str, &str) =
    ("MATCHDAY_WEBHOOKS__KEYS", "1:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff");
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn ola() -> Operator {
    Operator::new("ola", "spam")
}

fn pattern(pattern: &str, action: Action) -> NewFilter {
    NewFilter { pattern: pattern.parse().expect("a pattern"), matrix_room: None, action, mute_for: None }
}

fn server(app: &TestApp) -> String {
    app.app.config.matrix.server_name.clone().expect("a server name")
}

/// A room with a homeserver id, as if it had been created.
struct Stage<'a> {
    app: &'a TestApp,
    matrix_id: String,
}

impl<'a> Stage<'a> {
    async fn new(app: &'a TestApp) -> Self {
        Self::with(app, false).await
    }

    async fn with(app: &'a TestApp, is_private: bool) -> Self {
        let matrix_id = format!("!{}:{}", unique("filters").replace('_', ""), server(app));
        let owner = app.user().await.id;
        let room: RoomId = sqlx::query_scalar(
            "insert into rooms (matrix_id, alias, name, creator_id, created_at, made_until, opened_at, is_private)
             values ($1, $2, 'Stage', $3, $4, $4, $4, $5) returning id",
        )
        .bind(&matrix_id)
        .bind(unique("room"))
        .bind(owner)
        .bind(app.clock.now())
        .bind(is_private)
        .fetch_one(&app.app.core.db)
        .await
        .expect("a room");
        sqlx::query("insert into room_activity (room_id, last_activity, compared_at) values ($1, $2, $2)")
            .bind(room)
            .bind(app.clock.now())
            .execute(&app.app.core.db)
            .await
            .expect("its activity");
        Self { app, matrix_id }
    }

    fn event(&self, sender: &str, content: &Value) -> Value {
        let millis = i64::try_from(self.app.clock.now().unix_timestamp_nanos() / 1_000_000).expect("a moment");
        json!({"event_id": format!("${}", unique("e")), "room_id": self.matrix_id, "type": "m.room.message",
               "sender": sender, "origin_server_ts": millis, "content": content})
    }

    fn message(&self, body: &str) -> Value {
        self.event("@ada:elsewhere.example", &json!({"msgtype": "m.text", "body": body}))
    }

    /// Pushes an event of this content. Returns its id.
    async fn push(&self, content: &Value) -> String {
        let event = self.event("@ada:elsewhere.example", content);
        self.app.push(std::slice::from_ref(&event)).await;
        event["event_id"].as_str().expect("an id").to_owned()
    }

    async fn say(&self, body: &str) -> String {
        self.push(&json!({"msgtype": "m.text", "body": body})).await
    }

    async fn post(&self, user: &TestUser<'_>, body: &str) -> crate::testing::Answer {
        user.post(&format!("/api/auth/chat-rooms/{}/messages", self.matrix_id), json!({"body": body})).await
    }
}

/// Planned removals: event, source, reason and length of the mute.
async fn removals(app: &TestApp) -> Vec<(String, String, String, Option<i32>)> {
    sqlx::query_as("select event_id, source, reason, mute_seconds from removals order by planned_at, event_id")
        .fetch_all(&app.app.core.db)
        .await
        .expect("removals")
}

async fn removed(app: &TestApp) -> Vec<String> {
    removals(app).await.into_iter().map(|(event, ..)| event).collect()
}

/// Events whose removal was published, which empties the outbox.
async fn published_removals(app: &TestApp) -> Vec<Value> {
    let published = app.published().await.into_iter().filter(|(subject, _)| subject == PLANNED);
    published.map(|(_, payload)| payload["event_id"].clone()).collect()
}

#[tokio::test]
async fn pushed_message_is_planned_for_removal_once() {
    TestApp::run(async |app| {
        let stage = Stage::new(app).await;
        let (good, bad) = (stage.message("What a goal!"), stage.message("f a g g o t"));
        app.push(&[good.clone(), bad.clone()]).await;
        app.push(&[good, bad.clone()]).await;
        app.push(std::slice::from_ref(&bad)).await;
        let id = bad["event_id"].as_str().expect("an id").to_owned();
        assert_eq!(removals(app).await, [(id.clone(), "filter".to_owned(), "words".to_owned(), None)]);
        assert_eq!(published_removals(app).await, [json!(id)]);
        let stored: i64 =
            sqlx::query_scalar("select count(*) from chat_inbox").fetch_one(&app.app.core.db).await.expect("read");
        assert_eq!(stored, 2, "both events are stored");
    })
    .await;
}

#[tokio::test]
async fn worst_messages_do_not_hold_up_their_push() {
    TestApp::run(async |app| {
        let (stage, user) = (Stage::new(app).await, app.user().await);
        let long = format!("x-{}", "\u{3316}".repeat(21_200));
        let mut events: Vec<Value> = (0..14).map(|_| stage.message(&long)).collect();
        events.push(stage.message("f a g g o t"));
        app.push(&events).await;
        let removals = removals(app).await;
        let reasons = |wanted: &str| removals.iter().filter(|(_, _, reason, _)| reason == wanted).count();
        assert_eq!((reasons("length"), reasons("words"), removals.len()), (14, 1, 15), "{removals:?}");
        assert_eq!(published_removals(app).await.len(), 15);
        // The text of a long message counts after normalisation, in all its forms together.
        let refused = stage.post(&user, &"\u{fdfa}".repeat(2_000)).await.expect(422);
        assert_eq!(refused["code"], "message_refused");
        let (half, other) = ("word ".repeat(3_300), "text ".repeat(3_300));
        stage.push(&json!({"msgtype": "m.text", "body": half})).await;
        stage.push(&json!({"msgtype": "m.text", "body": half, "formatted_body": format!("<b>{half}</b>")})).await;
        assert_eq!(removed(app).await.len(), 15);
        // An ordinary edit of a long message, with its fallback for older clients.
        let old = "line ".repeat(1_590);
        let formatted =
            |text: &str| json!({"msgtype": "m.text", "body": text, "formatted_body": format!("<p>{text}</p>!")});
        let mut edit = formatted(&format!("* {old}"));
        edit["m.new_content"] = formatted(&old);
        edit["m.relates_to"] = json!({"rel_type": "m.replace", "event_id": "$original"});
        stage.push(&edit).await;
        assert_eq!(removed(app).await.len(), 15);
        stage.push(&json!({"msgtype": "m.text", "body": half, "formatted_body": other})).await;
        assert_eq!(removed(app).await.len(), 16);
        published_removals(app).await;
    })
    .await;
}

#[tokio::test]
async fn length_is_free_if_no_filter_reads_texts() {
    let changes = ["WORDS", "LINKS", "INVITATIONS"].map(|check| format!("MATCHDAY_FILTERS__{check}"));
    let changes: Vec<(&str, &str)> = changes.iter().map(|key| (key.as_str(), "off")).collect();
    TestApp::run_with(&changes, async |app| {
        let stage = Stage::new(app).await;
        stage.say(&"long ".repeat(7_000)).await;
        assert!(removed(app).await.is_empty());
        app.app.filters.add(&pattern("spoiler", Action::Remove), &ola()).await.expect("added");
        stage.say(&"longer ".repeat(5_000)).await;
        assert_eq!(removals(app).await.first().map(|(_, _, reason, _)| reason.as_str()), Some("length"));
        published_removals(app).await;
    })
    .await;
}

#[tokio::test]
async fn messages_beyond_the_time_of_a_push_are_not_checked() {
    TestApp::run(async |app| {
        let stage = Stage::new(app).await;
        let messages = || {
            let events = [stage.message("What a goal!"), stage.message("faggot")].map(|event| event.to_string());
            events.iter().filter_map(|raw| ChatMessage::read(raw)).collect::<Vec<_>>()
        };
        assert_eq!(app.app.filters.check_all(messages(), Duration::ZERO).unchecked, 2);
        assert_eq!(app.app.filters.check_all(messages(), Duration::from_mins(1)).unchecked, 0);
    })
    .await;
}

#[tokio::test]
async fn failed_plan_stores_no_event() {
    TestApp::run(async |app| {
        let stage = Stage::new(app).await;
        sqlx::query("alter table removals rename to removals_away").execute(app.owner()).await.expect("renamed");
        let token = app.app.config.matrix.hs_token.clone().expect("a token");
        let body = json!({"events": [stage.message("faggot")]}).to_string();
        let request = http::Request::put("/_matrix/app/v1/transactions/1")
            .header("authorization", format!("Bearer {}", secrecy::ExposeSecret::expose_secret(token.inner())))
            .body(axum::body::Body::from(body.clone()))
            .expect("a request");
        // The homeserver pushes again after this response.
        assert_eq!(app.send_privately(request).await.status.as_u16(), 503);
        let stored: i64 =
            sqlx::query_scalar("select count(*) from chat_inbox").fetch_one(&app.app.core.db).await.expect("read");
        assert_eq!(stored, 0);
        sqlx::query("alter table removals_away rename to removals").execute(app.owner()).await.expect("renamed");
    })
    .await;
}

#[tokio::test]
async fn every_visible_text_is_checked() {
    TestApp::run(async |app| {
        let stage = Stage::new(app).await;
        app.app.filters.add(&pattern(r"\bspoiler\b", Action::Remove), &ola()).await.expect("added");
        let mut expected = Vec::new();
        for content in [
            json!({"msgtype": "m.text", "body": "a spoiler"}),
            json!({"msgtype": "m.emote", "body": "spoiler"}),
            json!({"msgtype": "m.notice", "body": "SPOILER"}),
            json!({"msgtype": "m.image", "body": "spoiler", "filename": "a.png", "url": "mxc://a/b"}),
            json!({"msgtype": "m.file", "body": "file", "filename": "spoiler"}),
            json!({"msgtype": "m.text", "body": "x", "format": "org.matrix.custom.html", "formatted_body": "<b>spoi</b>ler"}),
            json!({"msgtype": "m.text", "body": "x", "formatted_body": r#"spoi<b title=">q">&shy;</b>&#108<!-- >q -->er"#}),
            json!({"msgtype": "m.text", "body": "* x", "m.new_content": {"msgtype": "m.text", "body": "spoiler"},
                   "m.relates_to": {"rel_type": "m.replace", "event_id": "$original"}}),
        ] {
            expected.push(stage.push(&content).await);
        }
        stage.say("despoilers").await;
        expected.sort();
        let mut found = removed(app).await;
        found.sort();
        assert_eq!(found, expected);
        published_removals(app).await;
    })
    .await;
}

#[tokio::test]
async fn bot_private_and_unknown_rooms_are_exempt() {
    TestApp::run(async |app| {
        let (stage, private) = (Stage::new(app).await, Stage::with(app, true).await);
        let bot = format!("@{}:{}", app.app.config.matrix.bot, server(app));
        let content = json!({"msgtype": "m.text", "body": "faggot"});
        let unknown = Stage { app, matrix_id: "!unknown:elsewhere.example".to_owned() };
        app.push(&[stage.event(&bot, &content)]).await;
        private.push(&content).await;
        unknown.push(&content).await;
        assert!(removed(app).await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn repeats_are_removed_and_may_mute() {
    let changes = [("MATCHDAY_FILTERS__REPEATS", "mute"), ("MATCHDAY_FILTERS__REPEATS_ALLOWED", "2")];
    TestApp::run_with(&changes, async |app| {
        let stage = Stage::new(app).await;
        stage.say("Buy my tickets").await;
        stage.say("BUY my tickets!").await;
        let third = stage.say("Buy my tickets...").await;
        stage.say("Sell my tickets").await;
        assert_eq!(removals(app).await, [(third, "filter".to_owned(), "repeats".to_owned(), Some(600))]);
        published_removals(app).await;
    })
    .await;
}

#[tokio::test]
async fn matching_message_is_refused_before_sending() {
    TestApp::run(async |app| {
        let (stage, other, user) = (Stage::new(app).await, Stage::new(app).await, app.user().await);
        let only_here = NewFilter { matrix_room: Some(stage.matrix_id.clone()), ..pattern("spoiler", Action::Remove) };
        app.app.filters.add(&only_here, &ola()).await.expect("added");
        for body in ["This is a spoiler", "sp\u{200b}oiler", "faggot", "join t . me/bets"] {
            let refused = stage.post(&user, body).await.expect(422);
            assert_eq!(
                (&refused["code"], refused["errors"]["body"].is_array()),
                (&json!("message_refused"), true),
                "{refused}"
            );
        }
        // Without a homeserver, a message that passes the filters cannot be sent.
        assert_eq!(other.post(&user, "This is a spoiler").await.expect(503)["code"], "chat_unavailable");
        assert_eq!(stage.post(&user, "Good evening").await.expect(503)["code"], "chat_unavailable");
        assert!(removed(app).await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn refused_message_mutes_its_sender() {
    TestApp::run(async |app| {
        let (stage, user) = (Stage::new(app).await, app.user().await);
        let new = NewFilter { mute_for: Some(Duration::from_mins(30)), ..pattern("spoiler", Action::Mute) };
        app.app.filters.add(&new, &ola()).await.expect("added");
        stage.post(&user, "spoiler").await.expect(422);
        let mutes: Vec<_> = app.published().await.into_iter().filter(|(subject, _)| subject == MUTE).collect();
        assert_eq!(mutes.len(), 1);
        let perform = async || {
            let payload = mutes[0].1.to_string().into_bytes().into();
            let delivery = Delivery { subject: MUTE.to_owned(), id: None, payload, attempt: 1 };
            app.app.chat_work.perform(delivery).await.expect("done");
        };
        perform().await;
        perform().await;
        let account = app.app.accounts.find(user.id).await.expect("read").expect("an account");
        assert_eq!(account.muted_until, Some(app.clock.now() + time::Duration::minutes(30)));
        assert_eq!(stage.post(&user, "Hello").await.expect(403)["code"], "muted");
        // The same message, delivered after the end of the mute, changes nothing.
        app.clock.advance(time::Duration::minutes(31));
        app.app.moderation.lift_ended().await.expect("lifted");
        perform().await;
        let account = app.app.accounts.find(user.id).await.expect("read").expect("an account");
        assert_eq!(account.muted_at, None);
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn change_reaches_other_processes_within_five_seconds() {
    TestApp::run(async |app| {
        let stage = Stage::new(app).await;
        let second = app.second(app.app.config.clone()).await;
        let closing = CancellationToken::new();
        let _watching = closing.clone().drop_guard();
        let filters = second.app.filters.clone();
        tokio::spawn(async move { filters.watch(closing).await });
        let matches = || second.app.filters.check(&stage.matrix_id, "@a:s", "a spoiler").is_some();
        eventually("the patterns are read", async || second.app.filters.check(&stage.matrix_id, "@a:s", "faggot").is_some())
            .await;
        assert!(!matches());
        let began = Instant::now();
        let filter = app.app.filters.add(&pattern("spoiler", Action::Remove), &ola()).await.expect("added");
        eventually("the second process applies the pattern", async || matches()).await;
        app.app.filters.remove(filter.id, &ola()).await.expect("removed");
        eventually("the second process drops the pattern", async || !matches()).await;
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        // A change that no message announced, as if NATS were down.
        let began = Instant::now();
        sqlx::query(
            "insert into filters (pattern, action, reason, created_by, created_at) values ('(', 'remove', '', '', now()),
             ('spoiler', 'remove', '', '', now())",
        )
        .execute(&app.app.core.db)
        .await
        .expect("inserted");
        eventually("the second process applies the valid pattern", async || matches()).await;
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        second.app.streams.remove().await;
    })
    .await;
}

#[tokio::test]
async fn filters_are_limited_and_recorded() {
    TestApp::run(async |app| {
        let filters = &app.app.filters;
        let added = filters.add(&pattern("spoiler", Action::Remove), &ola()).await.expect("added");
        filters.remove(added.id, &ola()).await.expect("removed");
        assert!(matches!(filters.remove(added.id, &ola()).await, Err(FilterError::NoSuchFilter(_))));
        let recorded = app.app.operators.recorded(&ActionFilter::default(), 10).await.expect("read");
        let actions: Vec<_> = recorded.iter().map(|row| (row.action.as_str(), row.operator.as_str())).collect();
        assert_eq!(actions, [("filter.remove", "ola"), ("filter.add", "ola")]);
        assert_eq!(recorded[1].details["pattern"], "spoiler");
        let hold = filters.add(&pattern("spoiler", Action::Hold), &ola()).await;
        assert!(matches!(hold, Err(FilterError::NoKey)), "{hold:?}");
        let unknown = NewFilter { matrix_room: Some("!no:s".to_owned()), ..pattern("spoiler", Action::Remove) };
        assert!(matches!(filters.add(&unknown, &ola()).await, Err(FilterError::NoSuchRoom)));
        let short = NewFilter { mute_for: Some(Duration::from_secs(5)), ..pattern("spoiler", Action::Mute) };
        assert!(matches!(filters.add(&short, &ola()).await, Err(FilterError::InvalidLength)));
        sqlx::query(
            "insert into filters (pattern, action, reason, created_by, created_at)
             select 'word' || n, 'remove', '', '', now() from generate_series(1, 999) as n",
        )
        .execute(&app.app.core.db)
        .await
        .expect("inserted");
        filters.add(&pattern("spoiler", Action::Remove), &ola()).await.expect("the thousandth");
        assert!(matches!(filters.add(&pattern("x", Action::Remove), &ola()).await, Err(FilterError::TooMany)));
        assert_eq!(filters.list().await.expect("read").len(), 1_000);
    })
    .await;
}

#[tokio::test]
async fn held_text_is_encrypted_until_decision() {
    TestApp::run_with(&[KEYS], async |app| {
        let (stage, filters) = (Stage::new(app).await, &app.app.filters);
        filters.add(&pattern("spoiler", Action::Hold), &ola()).await.expect("added");
        let secret = unique("secret").replace('_', "");
        let message = stage.message(&format!("spoiler {secret}"));
        app.push(std::slice::from_ref(&message)).await;
        app.push(std::slice::from_ref(&message)).await;
        let held = filters.held(0, 10).await.expect("read");
        assert_eq!(held.len(), 1, "held once");
        assert_eq!(held[0].body.as_deref(), Some(format!("spoiler {secret}").as_str()));
        assert_eq!((held[0].event_id.as_deref(), held[0].filter.as_str()), (message["event_id"].as_str(), "filter 1"));
        assert_eq!(removed(app).await.len(), 1, "removed like others");
        assert_no_text(app, &secret).await;
        filters.reject(held[0].id, &ola()).await.expect("rejected");
        filters.reject(held[0].id, &ola()).await.expect_err("decided already");
        filters.release(held[0].id, &ola()).await.expect_err("decided already");
        assert!(filters.held(0, 10).await.expect("read").is_empty());
        let left: (bool, String, String) =
            sqlx::query_as("select ciphertext is null, decision, decided_by from held_messages")
                .fetch_one(&app.app.core.db)
                .await
                .expect("read");
        assert_eq!(left, (true, "reject".to_owned(), "ola".to_owned()));
        let recorded = app.app.operators.recorded(&ActionFilter::default(), 1).await.expect("read");
        assert_eq!(recorded[0].action, "message.reject");
        // An undecided message is deleted after seven days.
        stage.say("another spoiler").await;
        app.clock.advance(time::Duration::days(7) + time::Duration::SECOND);
        assert_eq!(filters.sweep().await.expect("swept"), 2);
        assert!(filters.held(0, 10).await.expect("read").is_empty());
        published_removals(app).await;
    })
    .await;
}

#[tokio::test]
async fn held_messages_of_a_sender_are_bounded() {
    TestApp::run_with(&[KEYS], async |app| {
        let (stage, user) = (Stage::new(app).await, app.user().await);
        app.app.filters.add(&pattern("spoiler", Action::Hold), &ola()).await.expect("added");
        stage.post(&user, "spoiler").await.expect(422);
        let held = app.app.filters.held(0, 10).await.expect("read");
        assert_eq!((held.len(), held[0].event_id.clone()), (1, None), "refused when it was sent");
        let events: Vec<Value> = (0..60).map(|number| stage.message(&format!("spoiler {number}"))).collect();
        app.push(&events).await;
        assert_eq!(app.app.filters.held(0, 100).await.expect("read").len(), 51, "one and fifty of the other sender");
        assert_eq!(removed(app).await.len(), 60);
        published_removals(app).await;
    })
    .await;
}

#[tokio::test]
async fn released_message_is_sent_and_stays() {
    TestApp::run_with_chat(&[KEYS], async |app| {
        let (user, _) = app.log_in("+14155557411").await;
        let made = user.post("/api/auth/chat-room", json!({"name": "North", "is_private": false})).await.expect(201);
        let stage = Stage { app, matrix_id: made["data"]["room_id"].as_str().expect("an id").to_owned() };
        let filters = &app.app.filters;
        filters.add(&pattern("spoiler", Action::Hold), &ola()).await.expect("added");
        stage.post(&user, "no spoiler here").await.expect(422);
        let held = filters.held(0, 10).await.expect("read").remove(0);
        let event_id = filters.release(held.id, &ola()).await.expect("released");
        filters.release(held.id, &ola()).await.expect_err("released already");
        let homeserver = app.app.chat.homeserver().expect("a homeserver");
        let room = MatrixRoomId::parse(&stage.matrix_id).expect("an id");
        let page = homeserver.message_page(&room, None, 100).await.expect("messages");
        let sent = page.events.iter().find(|event| event.content["body"] == "no spoiler here").expect("the message");
        let push = async |sender: &str, content: &Value| {
            let mut event = stage.event(sender, content);
            event["event_id"] = json!(format!("${}", unique("released")));
            app.push(std::slice::from_ref(&event)).await;
            removed(app).await.contains(&event["event_id"].as_str().expect("an id").to_owned())
        };
        assert!(event_id.starts_with('$'));
        assert!(!push(&held.sender, &sent.content).await, "the released message stays");
        let mut other = sent.content.clone();
        other["body"] = json!("a worse spoiler");
        assert!(push(&held.sender, &other).await, "another text");
        assert!(push("@ada:elsewhere.example", &sent.content).await, "another sender");
        let recorded = app.app.operators.recorded(&ActionFilter::default(), 1).await.expect("read");
        assert_eq!(
            (recorded[0].action.as_str(), recorded[0].details["event_id"].as_str()),
            ("message.release", Some(&*event_id))
        );
        app.published().await;
    })
    .await;
}

/// Starts an app with a classifier.
async fn with_classifier(receiver: &Receiver, changes: &[(&str, &str)], test: impl AsyncFnOnce(&TestApp)) {
    let url = receiver.url.to_string();
    let mut all =
        vec![("MATCHDAY_FILTERS__CLASSIFIER_URL", url.as_str()), ("MATCHDAY_FILTERS__CLASSIFIER_SECRET", SECRET), KEYS];
    all.extend(changes);
    TestApp::run_with(&all, test).await;
}

fn verdict(request: &Received) -> Reply {
    let text = request.json()["text"].as_str().expect("a text").to_owned();
    let action = ["remove", "hold", "mute"].into_iter().find(|action| text.contains(action)).unwrap_or("allow");
    Reply::status(200).saying(&json!({"action": action}).to_string())
}

#[tokio::test]
async fn classifier_decides_on_messages_without_match() {
    let receiver = Receiver::start(|_, request| verdict(request)).await;
    with_classifier(&receiver, &[], async |app| {
        let (stage, private) = (Stage::new(app).await, Stage::with(app, true).await);
        private.say("private remove").await;
        stage.say("faggot remove").await;
        let texts = ["fine", "please remove", "please hold", "please mute"];
        let events: Vec<Value> = texts.iter().map(|text| stage.message(text)).collect();
        app.push(&events).await;
        let mut found: Vec<_> =
            removals(app).await.into_iter().map(|(_, source, reason, mute)| (source, reason, mute)).collect();
        found.sort();
        let by = |source: &str, reason: &str, mute| (source.to_owned(), reason.to_owned(), mute);
        let expected = [
            by("classifier", "classifier", None),
            by("classifier", "classifier", None),
            by("classifier", "classifier", Some(600)),
            by("filter", "words", None),
        ];
        assert_eq!(found, expected);
        let seen = receiver.seen();
        assert_eq!(seen.len(), 4, "neither the private message nor the matched one");
        let secret = SigningSecret::parse(SECRET).expect("a secret");
        for request in &seen {
            let seconds = request.header("webhook-timestamp").parse().expect("a number");
            let sent_at = OffsetDateTime::from_unix_timestamp(seconds).expect("a moment");
            let expected = secret.sign(request.header("webhook-id"), sent_at, &request.body);
            assert_eq!(request.header("webhook-signature"), expected);
            let body = request.json();
            let fields: Vec<&String> = body.as_object().expect("an object").keys().collect();
            assert_eq!(fields, ["room_id", "text"], "nothing else is sent");
            assert_eq!(body["room_id"], stage.matrix_id.as_str());
        }
        assert_eq!(app.app.filters.held(0, 10).await.expect("read").len(), 1);
        published_removals(app).await;
    })
    .await;
}

#[tokio::test]
async fn slow_classifier_delays_push_for_bounded_time() {
    for (mode, expected) in [("open", 0), ("closed", 40)] {
        let receiver = Receiver::start(|_, _| Reply::never()).await;
        let changes =
            [("MATCHDAY_FILTERS__CLASSIFIER_FAILURE", mode), ("MATCHDAY_FILTERS__CLASSIFIER_TIMEOUT", "200ms")];
        with_classifier(&receiver, &changes, async |app| {
            let stage = Stage::new(app).await;
            let events: Vec<Value> = (0..40).map(|number| stage.message(&format!("Message {number}"))).collect();
            let began = Instant::now();
            app.push(&events).await;
            let first = began.elapsed();
            assert!(first < Duration::from_secs(2), "{first:?}");
            assert_eq!(removals(app).await.len(), expected, "{mode}");
            // The circuit breaker is open: the next push does not wait, and the classifier is not asked.
            let asked = receiver.seen().len();
            stage.say("Another message").await;
            assert_eq!(receiver.seen().len(), asked);
            assert_eq!(removals(app).await.len(), if expected == 0 { 0 } else { expected + 1 });
            published_removals(app).await;
        })
        .await;
    }
}

#[tokio::test]
async fn failing_classifier_opens_circuit_breaker() {
    let receiver = Receiver::start(|_, _| Reply::status(500)).await;
    let changes = [("MATCHDAY_FILTERS__CLASSIFIER_FAILURE", "closed")];
    with_classifier(&receiver, &changes, async |app| {
        let stage = Stage::new(app).await;
        for number in 0..8 {
            stage.say(&format!("Message {number}")).await;
        }
        assert_eq!(receiver.seen().len(), 5);
        assert_eq!(removals(app).await.len(), 8);
        assert!(
            removals(app)
                .await
                .iter()
                .all(|(_, source, reason, _)| source == "classifier" && reason == "classifier unavailable")
        );
        published_removals(app).await;
    })
    .await;
}

/// No table, in plain or encoded form, contains a text.
async fn assert_no_text(app: &TestApp, secret: &str) {
    let tables: Vec<String> = sqlx::query_scalar(
        "select table_name::text from information_schema.tables where table_schema = 'public' and table_type = 'BASE TABLE'",
    )
    .fetch_all(app.owner())
    .await
    .expect("tables");
    assert!(tables.len() > 20);
    for table in tables {
        let found: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(format!(
            "select count(*) from \"{table}\" t where t::text like '%' || $1 || '%' or t::text like '%' || $2 || '%'"
        )))
        .bind(secret)
        .bind(hex::encode(secret))
        .fetch_one(app.owner())
        .await
        .expect("read");
        assert_eq!(found, 0, "{table} contains the text");
    }
}

#[tokio::test]
async fn filtered_text_is_neither_stored_nor_logged() {
    let log = LogCapture::start();
    let receiver =
        Receiver::start(|number, request| if number == 0 { Reply::status(500) } else { verdict(request) }).await;
    with_classifier(&receiver, &[], async |app| {
        let (stage, user) = (Stage::new(app).await, app.user().await);
        app.app.filters.add(&pattern("spoiler", Action::Hold), &ola()).await.expect("added");
        let secret = unique("secret").replace('_', "");
        for text in ["faggot", "spoiler", "please remove", "please hold", "fine", "t.me/bets"] {
            stage.say(&format!("{text} {secret}")).await;
        }
        stage.post(&user, &format!("spoiler {secret}")).await.expect(422);
        assert!(removed(app).await.len() >= 4);
        let published = app.published().await;
        assert!(published.iter().all(|(_, payload)| !payload.to_string().contains(&secret)));
        assert_no_text(app, &secret).await;
        assert!(log.lines().iter().all(|line| !line.contains(&secret)), "a log line contains the text");
    })
    .await;
}
