//! Spectators read a room over the live stream of any process, with a real homeserver.

use std::time::Duration;

use matchday::testing::with_database;
use serde_json::{Value, json};

use crate::{
    client::{Client, Homeserver, Person},
    process::Process,
    synapse::with_synapse,
};

/// Time limit until a message or its removal reaches every process.
const SOON: Duration = Duration::from_secs(2);

/// The stream of a spectator.
struct Watcher {
    response: reqwest::Response,
    heard: String,
}

impl Watcher {
    /// Opens the stream; returns it with the replayed texts.
    async fn open(process: &Process, who: &Person, room: &str) -> (Self, Vec<String>) {
        let url = format!("{}/api/auth/stream?room_id={room}&chat=true", process.public);
        let response = reqwest::Client::new().get(url).bearer_auth(&who.token).send().await.expect("a response");
        assert_eq!(response.status(), 200);
        let (mut watcher, mut texts) = (Self { response, heard: String::new() }, Vec::new());
        loop {
            let item = watcher.next(Duration::from_secs(10)).await;
            if item["type"] == "ready" {
                assert_eq!(item["replayed"], texts.len());
                return (watcher, texts);
            }
            texts.push(item["body"].as_str().expect("a text").to_owned());
        }
    }

    /// Waits until the connection breaks.
    async fn ends(&mut self) {
        let ends = async { while let Ok(Some(_)) = self.response.chunk().await {} };
        tokio::time::timeout(Duration::from_secs(10), ends).await.expect("the end in time");
    }

    /// Returns the next chat item.
    async fn next(&mut self, within: Duration) -> Value {
        let next = async {
            loop {
                while let Some(end) = self.heard.find("\n\n") {
                    let block: String = self.heard.drain(..end + 2).collect();
                    if let Some(data) = block.strip_prefix("event: chat\ndata: ") {
                        return serde_json::from_str(data).expect("JSON");
                    }
                }
                let chunk = self.response.chunk().await.expect("a stream").expect("more data");
                self.heard.push_str(std::str::from_utf8(&chunk).expect("UTF-8"));
            }
        };
        tokio::time::timeout(within, next).await.expect("an item in time")
    }
}

async fn redact(chat: &Homeserver, room: &str, who: &Person, event: &str) {
    let (status, body) = chat
        .put(&format!("/_matrix/client/v3/rooms/{room}/redact/{event}/1"), who.chat_token(), json!({"reason": "test"}))
        .await;
    assert_eq!(status, 200, "{body}");
}

#[tokio::test]
async fn messages_and_redactions_reach_spectators_of_every_process() {
    with_database(async |options| {
        with_synapse(&options, async |synapse| {
            let setting = synapse.setting(&options);
            let one = setting.start(&["serve"]);
            let mut two = setting.clone().with("MATCHDAY_HTTP__PRIVATE_LISTEN", "127.0.0.1:0").start(&["serve"]);
            let (client, chat) = (Client::new(&one), Homeserver::at(&synapse.url));
            let owner = client.log_in("+14155550201", None).await;
            let speaker = client.log_in("+14155550202", None).await;
            let reader = client.log_in("+14155550203", None).await;
            let room = client.open_room(&owner, "North", false).await;
            // The first message joins, through any process.
            let sent = Client::new(&two).act("messages", &room, &speaker, json!({"body": "Hello"})).await.expect(201);
            assert_eq!((&sent["data"]["joined"], &sent["data"]["room_id"]), (&json!(true), &json!(room)));

            let (mut at_one, replayed_by_one) = Watcher::open(&one, &reader, &room).await;
            let (mut at_two, replayed_by_two) = Watcher::open(&two, &reader, &room).await;
            assert_eq!((replayed_by_one, replayed_by_two), (vec!["Hello".to_owned()], vec!["Hello".to_owned()]));
            // A message of a Matrix client.
            let (status, said) = chat.say(&room, owner.chat_token(), "Come on!").await;
            assert_eq!(status, 200, "{said}");
            for watcher in [&mut at_one, &mut at_two] {
                let item = watcher.next(SOON).await;
                assert_eq!((&item["body"], &item["replay"]), (&json!("Come on!"), &json!(false)));
                assert_eq!(item["sender"]["username"], owner.username);
                assert_eq!(item["event_id"], said["event_id"]);
            }
            redact(&chat, &room, &owner, said["event_id"].as_str().expect("an id")).await;
            for watcher in [&mut at_one, &mut at_two] {
                let item = watcher.next(SOON).await;
                assert_eq!((&item["type"], &item["event_id"]), (&json!("removal"), &said["event_id"]));
            }
            assert_eq!(client.room(&reader, &room).await, Some((2, false)), "reading does not join");

            // Spectators of a process that dies come back to the same view in another one.
            two.kill();
            at_two.ends().await;
            let (_, replayed) = Watcher::open(&one, &reader, &room).await;
            assert_eq!(replayed, ["Hello"]);
            // A process that starts afterwards has nothing in memory, and loads the messages from the homeserver.
            let (status, said) = chat.say(&room, owner.chat_token(), "Meanwhile").await;
            assert_eq!(status, 200, "{said}");
            let three = setting.clone().with("MATCHDAY_HTTP__PRIVATE_LISTEN", "127.0.0.1:0").start(&["serve"]);
            let (mut at_three, replayed) = Watcher::open(&three, &reader, &room).await;
            assert_eq!(replayed, ["Hello", "Meanwhile"]);
            let (status, said) = chat.say(&room, owner.chat_token(), "Goal!").await;
            assert_eq!(status, 200, "{said}");
            let item = at_three.next(SOON).await;
            assert_eq!((&item["body"], &item["replay"]), (&json!("Goal!"), &json!(false)));
        })
        .await;
    })
    .await;
}
