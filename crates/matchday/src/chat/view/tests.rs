//! Tests of the spectator view through the router. The tests take the role of the homeserver.

use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use futures_util::StreamExt as _;
use http::{Method, Request, StatusCode, header};
use platform::{
    clock::Clock as _,
    settings::{SecretUrl, Setting as _},
    stream::Stream,
};
use redis::AsyncCommands as _;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};
use web::ids::{RoomId, UserId};

use crate::{
    chat::messages::IGNORED,
    testing::{LogCapture, TestApp, TestUser, unique},
};

/// Upper bound for everything that must arrive.
const PATIENCE: Duration = Duration::from_secs(10);

/// A public room with a homeserver id, as if it had been created, in a process that follows the facts.
struct Stage<'a> {
    app: &'a TestApp,
    room: RoomId,
    matrix_id: String,
    _following: DropGuard,
}

impl<'a> Stage<'a> {
    async fn new(app: &'a TestApp) -> Self {
        let matrix_id = format!("!{}:{}", unique("view").replace('_', ""), server(app));
        let room = insert_room(app, &matrix_id, false).await;
        Self { app, room, matrix_id, _following: follow(app).await }
    }

    /// A public room on the real homeserver.
    async fn on_homeserver(app: &'a TestApp, owner: &TestUser<'_>) -> Self {
        let made = owner.post("/api/auth/chat-room", json!({"name": "North", "is_private": false})).await.expect(201);
        let matrix_id = made["data"]["room_id"].as_str().expect("an id").to_owned();
        let room = sqlx::query_scalar("select id from rooms where matrix_id = $1")
            .bind(&matrix_id)
            .fetch_one(&app.app.core.db)
            .await
            .expect("a room");
        Self { app, room, matrix_id, _following: follow(app).await }
    }

    /// Sends a message to the homeserver. It does not push to this test.
    async fn post(&self, user: &TestUser<'_>, body: &str) -> Value {
        let path = format!("/api/auth/chat-rooms/{}/messages", self.matrix_id);
        let (body, key) = (json!({"body": body}).to_string(), unique("key"));
        let sent = user.send_with(Method::POST, &path, &[("idempotency-key", &key)], Some(body)).await;
        sent.expect(201)["data"]["event_id"].clone()
    }

    /// An event of this room with a new id.
    fn event(&self, kind: &str, sender: &str, content: &Value) -> Value {
        let millis = i64::try_from(self.app.clock.now().unix_timestamp_nanos() / 1_000_000).expect("a moment");
        json!({"event_id": format!("${}", unique("e")), "room_id": self.matrix_id, "type": kind, "sender": sender,
               "origin_server_ts": millis, "content": content})
    }

    fn message(&self, sender: &str, body: &str) -> Value {
        self.event("m.room.message", sender, &json!({"msgtype": "m.text", "body": body}))
    }

    async fn say(&self, sender: &str, body: &str) -> Value {
        let message = self.message(sender, body);
        self.app.push(std::slice::from_ref(&message)).await;
        message["event_id"].clone()
    }

    async fn watch(&self, user: &TestUser<'_>) -> Watcher {
        Watcher::open(self.app, user, &self.matrix_id).await
    }
}

/// Follows the facts until the guard is dropped.
async fn follow(app: &TestApp) -> DropGuard {
    app.app.streams.ensure().await.expect("streams");
    let (live, closing) = (app.app.live.clone(), CancellationToken::new());
    let following = closing.clone().drop_guard();
    tokio::spawn(async move { live.run(closing).await });
    following
}

async fn insert_room(app: &TestApp, matrix_id: &str, is_private: bool) -> RoomId {
    let owner = app.user().await.id;
    let room: RoomId = sqlx::query_scalar(
        "insert into rooms (matrix_id, alias, name, creator_id, created_at, made_until, opened_at, is_private)
         values ($1, $2, 'Stage', $3, $4, $4, $4, $5) returning id",
    )
    .bind(matrix_id)
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
    room
}

fn server(app: &TestApp) -> String {
    app.app.config.matrix.server_name.clone().expect("a server name")
}

async fn matrix_id(app: &TestApp, user: UserId) -> String {
    let account = app.app.accounts.find(user).await.expect("read").expect("an account");
    format!("@{}:{}", account.username, server(app))
}

fn request(user: &TestUser<'_>, query: &str) -> Request<Body> {
    let request = Request::get(format!("/api/auth/stream{query}"));
    request.header(header::AUTHORIZATION, format!("Bearer {}", user.token)).body(Body::empty()).expect("a request")
}

fn query(room: &str) -> String {
    format!("?room_id={}&chat=true", room.replace('!', "%21").replace(':', "%3A"))
}

/// The stream of a spectator.
struct Watcher {
    words: BodyDataStream,
    heard: String,
    /// Replayed messages.
    replayed: Vec<Value>,
}

impl Watcher {
    /// Opens the stream and reads the replay.
    async fn open(app: &TestApp, user: &TestUser<'_>, room: &str) -> Self {
        let response = app.open(request(user, &query(room))).await;
        assert_eq!(response.status(), StatusCode::OK);
        let words = response.into_body().into_data_stream();
        let mut watcher = Self { words, heard: String::new(), replayed: Vec::new() };
        loop {
            let item = watcher.next().await;
            if item["type"] == "ready" {
                assert_eq!(item["replayed"], watcher.replayed.len(), "{item}");
                assert_eq!(item["room_id"], room);
                return watcher;
            }
            assert_eq!((&item["type"], &item["replay"]), (&json!("message"), &json!(true)), "{item}");
            watcher.replayed.push(item);
        }
    }

    /// Returns the next chat item; `None` at the end of the stream.
    async fn item(&mut self) -> Option<Value> {
        loop {
            while let Some(end) = self.heard.find("\n\n") {
                let block: String = self.heard.drain(..end + 2).collect();
                if let Some(data) = block.strip_prefix("event: chat\ndata: ") {
                    return Some(serde_json::from_str(data).expect("JSON on one line, without an id"));
                }
                assert!(!block.contains("event: chat"), "a chat item with other fields: {block}");
            }
            let words = tokio::time::timeout(PATIENCE, self.words.next()).await.expect("data in time")?;
            self.heard.push_str(std::str::from_utf8(&words.expect("data")).expect("UTF-8"));
        }
    }

    async fn next(&mut self) -> Value {
        self.item().await.expect("another item")
    }

    fn bodies(&self) -> Vec<&str> {
        self.replayed.iter().map(|item| item["body"].as_str().expect("a body")).collect()
    }
}

#[tokio::test]
async fn spectator_receives_messages_without_joining() {
    TestApp::run(async |app| {
        let (stage, speaker, reader) = (Stage::new(app).await, app.user().await, app.user().await);
        let from = matrix_id(app, speaker.id).await;
        let mut watcher = stage.watch(&reader).await;
        assert!(watcher.replayed.is_empty(), "nothing was sent yet");
        let id = stage.say(&from, "Come on!").await;
        let item = watcher.next().await;
        let username = from.trim_start_matches('@').split(':').next();
        assert_eq!(
            item,
            json!({"type": "message", "room_id": stage.matrix_id, "event_id": id, "body": "Come on!", "replay": false,
                   "sent_at": item["sent_at"],
                   "sender": {"user_id": speaker.id, "username": username, "name": null, "avatar_url": null}})
        );
        assert_eq!(item["sent_at"], "2026-11-20T15:00:00.000Z");
        // The bot and users of other servers have no account here.
        let bot = format!("@{}:{}", app.app.config.matrix.bot, server(app));
        for (sender, username) in [(bot.as_str(), &*app.app.config.matrix.bot), ("@ada:elsewhere.example", "ada")] {
            stage.say(sender, "Hello").await;
            let item = watcher.next().await;
            assert_eq!(
                item["sender"],
                json!({"user_id": null, "username": username, "name": null, "avatar_url": null})
            );
        }
        // A later spectator, of the same process, gets a replay from memory.
        let later = stage.watch(&reader).await;
        assert_eq!(later.bodies(), ["Come on!", "Hello", "Hello"]);
        assert_eq!(app.app.rooms.membership(reader.id, stage.room).await.expect("read"), None);
        app.app.streams.remove().await;
    })
    .await;
}

#[tokio::test]
async fn messages_reach_spectators_of_other_processes() {
    TestApp::run(async |app| {
        let (stage, reader) = (Stage::new(app).await, app.user().await);
        let mut watcher = stage.watch(&reader).await;
        let second = app.second(app.app.config.clone()).await;
        second.app.streams.check().await.expect("connected");
        second.push(&[stage.message("@ada:elsewhere.example", "From the other process")]).await;
        assert_eq!(watcher.next().await["body"], "From the other process");
        app.app.streams.remove().await;
    })
    .await;
}

#[tokio::test]
async fn chat_requires_readable_room() {
    TestApp::run(async |app| {
        let (stage, user) = (Stage::new(app).await, app.user().await);
        let private = format!("!{}:{}", unique("private").replace('_', ""), server(app));
        let room = insert_room(app, &private, true).await;
        let refused = async |query: &str| {
            let answer = app.send(request(&user, query)).await;
            let status = answer.status.as_u16();
            (status, answer.expect(status))
        };
        let code = async |room: &str| {
            let (status, body) = refused(&query(room)).await;
            (status, body["code"].as_str().expect("a code").to_owned())
        };
        for wrong in ["?chat=true", "?chat=maybe", &format!("{}x", query(&stage.matrix_id))] {
            let (status, body) = refused(wrong).await;
            assert_eq!(status, 422, "{wrong}");
            assert!(body["errors"]["chat"].is_array(), "{body}");
        }
        assert_eq!(code("!nowhere:example.org").await.0, 404);
        assert_eq!(code(&private).await, (403, "not_a_member".to_owned()));
        let member = async |room: RoomId, membership: &str| {
            sqlx::query(
                "insert into room_members (user_id, room_id, membership, changed_at) values ($1, $2, $3, $4)
                 on conflict (user_id, room_id) do update set membership = excluded.membership",
            )
            .bind(user.id)
            .bind(room)
            .bind(membership)
            .bind(app.clock.now())
            .execute(&app.app.core.db)
            .await
            .expect("a membership");
        };
        member(room, "invite").await;
        assert_eq!(code(&private).await, (403, "not_a_member".to_owned()));
        member(room, "join").await;
        assert_eq!(code(&private).await, (400, "room_encrypted".to_owned()));
        member(stage.room, "ban").await;
        assert_eq!(code(&stage.matrix_id).await, (403, "not_allowed".to_owned()));
        app.app.streams.remove().await;
    })
    .await;
}

#[tokio::test]
async fn blocked_senders_are_hidden() {
    TestApp::run(async |app| {
        let stage = Stage::new(app).await;
        let (noisy, friend, reader) = (app.user().await, app.user().await, app.user().await);
        let (from_noisy, from_friend) = (matrix_id(app, noisy.id).await, matrix_id(app, friend.id).await);
        let mut watcher = stage.watch(&reader).await;
        stage.say(&from_noisy, "Before").await;
        assert_eq!(watcher.next().await["body"], "Before");

        let heard = async || {
            for (subject, payload) in app.published().await {
                if subject == IGNORED {
                    app.app.chat_view.heard_block(payload.to_string().as_bytes());
                }
            }
        };
        reader.post(&format!("/api/auth/blocks/{}", noisy.id), json!({})).await.expect(200);
        heard().await;
        // The block is read in the background.
        crate::testing::eventually("the block affects the open stream", async || {
            app.app.chat_view.is_blocked(reader.id, noisy.id)
        })
        .await;
        stage.say(&from_noisy, "Hidden").await;
        stage.say(&from_friend, "Shown").await;
        assert_eq!(watcher.next().await["body"], "Shown");
        assert_eq!(stage.watch(&reader).await.bodies(), ["Shown"], "the replay leaves out blocked senders");
        assert_eq!(stage.watch(&friend).await.bodies(), ["Before", "Hidden", "Shown"]);

        reader.delete(&format!("/api/auth/blocks/{}", noisy.id)).await.expect(200);
        heard().await;
        crate::testing::eventually("the lifted block affects the open stream", async || {
            !app.app.chat_view.is_blocked(reader.id, noisy.id)
        })
        .await;
        stage.say(&from_noisy, "Back").await;
        assert_eq!(watcher.next().await["body"], "Back");
        app.app.streams.remove().await;
    })
    .await;
}

#[tokio::test]
async fn redacted_message_is_removed_everywhere() {
    TestApp::run(async |app| {
        let (stage, reader) = (Stage::new(app).await, app.user().await);
        let mut watcher = stage.watch(&reader).await;
        let id = stage.say("@ada:elsewhere.example", "Something bad").await;
        stage.say("@ada:elsewhere.example", "Something good").await;
        for _ in 0..2 {
            watcher.next().await;
        }
        let redaction = stage.event("m.room.redaction", "@mod:elsewhere.example", &json!({"redacts": id}));
        app.push(&[redaction]).await;
        assert_eq!(watcher.next().await, json!({"type": "removal", "room_id": stage.matrix_id, "event_id": id}));
        assert_eq!(stage.watch(&reader).await.bodies(), ["Something good"]);
        app.app.streams.remove().await;
    })
    .await;
}

#[tokio::test]
async fn restricted_senders_are_hidden() {
    TestApp::run(async |app| {
        let stage = Stage::new(app).await;
        let (noisy, reader) = (app.user().await, app.user().await);
        let from = matrix_id(app, noisy.id).await;
        let mut watcher = stage.watch(&reader).await;
        let restrict = async |column: &str, action: &str| {
            sqlx::query(sqlx::AssertSqlSafe(format!("update users set {column} = $2 where user_id = $1")))
                .bind(noisy.id)
                .bind(app.clock.now())
                .execute(&app.app.core.db)
                .await
                .expect("restricted");
            let fact = json!({"user_id": noisy.id, "action": action});
            app.app.chat_view.heard_restriction(fact.to_string().as_bytes());
        };
        let first = stage.say(&from, "Before").await;
        assert_eq!(watcher.next().await["body"], "Before");
        restrict("muted_at", "mute").await;
        stage.say(&from, "While muted").await;
        stage.say("@ada:elsewhere.example", "Marker").await;
        assert_eq!(watcher.next().await["body"], "Marker");
        restrict("banned_at", "ban").await;
        let removal = watcher.next().await;
        assert_eq!((&removal["type"], &removal["event_id"]), (&json!("removal"), &first));
        assert_eq!(stage.watch(&reader).await.bodies(), ["Marker"]);
        app.app.streams.remove().await;
    })
    .await;
}

#[tokio::test]
async fn ban_from_room_ends_stream_and_hides_messages() {
    TestApp::run(async |app| {
        let stage = Stage::new(app).await;
        let (banned, reader) = (app.user().await, app.user().await);
        let from = matrix_id(app, banned.id).await;
        let mut own = stage.watch(&banned).await;
        let mut watcher = stage.watch(&reader).await;
        let id = stage.say(&from, "Goodbye").await;
        assert_eq!(own.next().await["body"], "Goodbye");
        assert_eq!(watcher.next().await["body"], "Goodbye");
        let mut ban = stage.event("m.room.member", "@mod:elsewhere.example", &json!({"membership": "ban"}));
        ban["state_key"] = json!(from);
        app.push(&[ban]).await;
        assert_eq!(watcher.next().await["event_id"], id, "removed");
        assert_eq!(own.next().await["event_id"], id, "removed");
        assert!(own.item().await.is_none(), "the stream ends");
        app.app.streams.remove().await;
    })
    .await;
}

#[tokio::test]
async fn busy_room_keeps_messages_of_bot_and_operators() {
    let changes = [("MATCHDAY_CHAT_VIEW__RATE", "1"), ("MATCHDAY_CHAT_VIEW__BURST", "1")];
    TestApp::run_with(&changes, async |app| {
        let (stage, reader) = (Stage::new(app).await, app.user().await);
        let mut watcher = stage.watch(&reader).await;
        let bot = format!("@{}:{}", app.app.config.matrix.bot, server(app));
        let mut events: Vec<Value> =
            (0..50).map(|number| stage.message("@noisy:elsewhere.example", &format!("Spam {number}"))).collect();
        events.extend((0..10).map(|number| stage.message(&bot, &format!("Goal {number}"))));
        app.push(&events).await;
        let (mut goals, mut spam) = (Vec::new(), 0);
        while goals.len() < 10 {
            let item = watcher.next().await;
            let body = item["body"].as_str().expect("a body").to_owned();
            if body.starts_with("Goal") { goals.push(body) } else { spam += 1 }
        }
        assert_eq!(goals, (0..10).map(|number| format!("Goal {number}")).collect::<Vec<_>>());
        assert!(spam < 10, "{spam} messages of one sender");
        assert_eq!(stage.watch(&reader).await.replayed.len(), 60, "the replay is complete");
        app.app.streams.remove().await;
    })
    .await;
}

#[tokio::test]
async fn ban_of_remote_user_hides_messages() {
    TestApp::run(async |app| {
        let (stage, reader) = (Stage::new(app).await, app.user().await);
        let mut watcher = stage.watch(&reader).await;
        let id = stage.say("@ada:elsewhere.example", "Something bad").await;
        assert_eq!(watcher.next().await["event_id"], id);
        let mut ban = stage.event("m.room.member", "@mod:elsewhere.example", &json!({"membership": "ban"}));
        ban["state_key"] = json!("@ada:elsewhere.example");
        app.push(&[ban]).await;
        let removal = watcher.next().await;
        assert_eq!((&removal["type"], &removal["event_id"]), (&json!("removal"), &id));
        stage.say("@ada:elsewhere.example", "Something worse").await;
        stage.say("@bob:elsewhere.example", "Marker").await;
        assert_eq!(watcher.next().await["body"], "Marker");
        app.app.streams.remove().await;
    })
    .await;
}

#[tokio::test]
async fn many_redactions_do_not_disconnect_spectators() {
    TestApp::run(async |app| {
        let (stage, reader) = (Stage::new(app).await, app.user().await);
        let mut watcher = stage.watch(&reader).await;
        let redaction = |number: i32| {
            stage.event("m.room.redaction", "@mod:elsewhere.example", &json!({"redacts": format!("$bad{number}")}))
        };
        app.push(&(0..600).map(redaction).collect::<Vec<_>>()).await;
        // The watcher reads nothing until all redactions have been handled.
        let mut later = stage.watch(&reader).await;
        stage.say("@ada:elsewhere.example", "Marker").await;
        while later.next().await["body"] != "Marker" {}
        for number in 0..600 {
            assert_eq!(watcher.next().await["event_id"], format!("$bad{number}"));
        }
        assert_eq!(watcher.next().await["body"], "Marker");
        app.app.streams.remove().await;
    })
    .await;
}

/// A server that forwards connections to NATS as soon as it is opened.
struct Gate {
    listener: TcpListener,
    nats: String,
}

impl Gate {
    /// Returns the gate, closed, and the configuration of a process behind it.
    async fn new(app: &TestApp) -> (Self, crate::config::Config) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let (mut config, nats) = (app.app.config.clone(), app.app.config.nats.url.address(4222));
        let url = config.nats.url.expose().replace(&nats, &listener.local_addr().expect("an address").to_string());
        assert_ne!(url, config.nats.url.expose());
        config.nats.url = SecretUrl::parse(&url).expect("a URL");
        (Self { listener, nats }, config)
    }

    fn open(self) {
        tokio::spawn(async move {
            while let Ok((mut outside, _)) = self.listener.accept().await {
                let nats = self.nats.clone();
                tokio::spawn(async move {
                    let mut inside = TcpStream::connect(nats).await.expect("NATS");
                    tokio::io::copy_bidirectional(&mut outside, &mut inside).await
                });
            }
        });
    }
}

#[tokio::test]
async fn processes_load_messages_that_another_could_not_publish() {
    TestApp::run_with_chat(&[], async |app| {
        let (owner, _) = app.log_in("+14155557301").await;
        let stage = Stage::on_homeserver(app, &owner).await;
        let mut watcher = stage.watch(&owner).await;
        let (gate, config) = Gate::new(app).await;
        let cut_off = app.second(config).await;
        let sent = stage.post(&owner, "Missed").await;
        let mut pushed = stage.message(&matrix_id(app, owner.id).await, "Missed");
        pushed["event_id"] = sent.clone();
        cut_off.push(&[pushed]).await;
        // Another message shows that the first one has not arrived.
        stage.say("@ada:elsewhere.example", "Marker").await;
        assert_eq!(watcher.next().await["body"], "Marker");
        gate.open();
        cut_off.app.streams.check().await.expect("connected");
        let item = watcher.next().await;
        assert_eq!((&item["event_id"], &item["replay"]), (&sent, &json!(true)), "a late message is not live");
        app.published().await;
        app.app.streams.remove().await;
    })
    .await;
}

#[tokio::test]
async fn loaded_messages_of_muted_and_banned_users_are_hidden() {
    TestApp::run_with_chat(&[], async |app| {
        let (owner, _) = app.log_in("+14155557311").await;
        let (muted, _) = app.log_in("+14155557312").await;
        let (banned, _) = app.log_in("+14155557313").await;
        let stage = Stage::on_homeserver(app, &owner).await;
        for (user, body) in [(&owner, "Hello"), (&muted, "While muted"), (&banned, "Before the ban")] {
            stage.post(user, body).await;
        }
        sqlx::query("update users set muted_at = $2 where user_id = $1")
            .bind(muted.id)
            .bind(app.clock.now())
            .execute(&app.app.core.db)
            .await
            .expect("muted");
        sqlx::query("update room_members set membership = 'ban' where user_id = $1 and room_id = $2")
            .bind(banned.id)
            .bind(stage.room)
            .execute(&app.app.core.db)
            .await
            .expect("banned");
        assert_eq!(stage.watch(&owner).await.bodies(), ["Hello"]);
        app.published().await;
        app.app.streams.remove().await;
    })
    .await;
}

/// Keys and values of this test in Redis.
async fn redis_contents(app: &TestApp) -> Vec<String> {
    let (mut redis, prefix) = (app.app.redis.clone(), &app.app.config.redis.prefix);
    let mut keys: Vec<String> = Vec::new();
    // Keys that share a cluster slot start with a brace.
    for pattern in [format!("{prefix}:*"), format!("{{{prefix}:*")] {
        let mut found = redis.scan_match::<_, String>(pattern).await.expect("Redis");
        while let Some(key) = found.next_item().await {
            keys.push(key.expect("a key"));
        }
    }
    let mut contents = keys.clone();
    for key in &keys {
        let kind: String = redis::cmd("TYPE").arg(key).query_async(&mut redis).await.expect("Redis");
        let mut command = match kind.as_str() {
            "string" => redis::cmd("MGET"),
            "hash" => redis::cmd("HGETALL"),
            "set" => redis::cmd("SMEMBERS"),
            "list" => redis::cmd("LRANGE"),
            "zset" => redis::cmd("ZRANGE"),
            // It has expired.
            "none" => continue,
            other => panic!("{key} is a {other}"),
        };
        command.arg(key);
        if matches!(kind.as_str(), "list" | "zset") {
            command.arg(0).arg(-1);
        }
        let values: Vec<Option<Vec<u8>>> = command.query_async(&mut redis).await.expect("Redis");
        contents.extend(values.iter().flatten().map(|value| String::from_utf8_lossy(value).into_owned()));
    }
    contents
}

#[tokio::test]
async fn stored_data_and_logs_have_no_text() {
    let log = LogCapture::start();
    TestApp::run_with_chat(&[], async |app| {
        let (writer, _) = app.log_in("+14155557321").await;
        let stage = Stage::on_homeserver(app, &writer).await;
        let secret = unique("secret");
        let mut watcher = stage.watch(&writer).await;
        stage.say("@ada:elsewhere.example", &secret).await;
        assert_eq!(watcher.next().await["body"], secret.as_str());
        stage.post(&writer, &secret).await;
        // A block, so that the streams are not empty.
        writer.post(&format!("/api/auth/blocks/{}", app.user().await.id), json!({})).await.expect(200);
        assert!(!app.relay().await.is_empty());
        let tables: Vec<String> = sqlx::query_scalar(
            "select table_name::text from information_schema.tables
             where table_schema = 'public' and table_type = 'BASE TABLE'",
        )
        .fetch_all(app.owner())
        .await
        .expect("tables");
        assert!(tables.len() > 20);
        for table in tables {
            let found: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(format!(
                "select count(*) from \"{table}\" t where t::text like '%' || $1 || '%' or t::text like '%' || $2 || '%'"
            )))
            .bind(&secret)
            .bind(hex::encode(&secret))
            .fetch_one(app.owner())
            .await
            .expect("read");
            assert_eq!(found, 0, "{table} contains the text");
        }
        let contents = redis_contents(app).await;
        assert!(!contents.is_empty(), "rate limits are in Redis");
        assert!(contents.iter().all(|value| !value.contains(&secret)), "Redis contains the text");
        let mut stored = 0;
        for stream in [Stream::Facts, Stream::Work, Stream::Dead] {
            for (subject, payload) in app.app.streams.replay(stream).await.expect("read") {
                stored += 1;
                assert!(!String::from_utf8_lossy(&payload).contains(&secret), "{subject} contains the text");
            }
        }
        assert!(stored > 0, "the streams have other messages");
        assert!(log.lines().iter().all(|line| !line.contains(&secret)), "a log line contains the text");
        app.app.streams.remove().await;
    })
    .await;
}
