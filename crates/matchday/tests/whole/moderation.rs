//! What an operator does to a user reaches every process, and chat.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use matchday::testing::with_database;
use serde_json::{Value, json};
use tokio::{sync::Notify, task::spawn_blocking};

use crate::{
    client::{Client, Homeserver, Person, shows},
    synapse::with_synapse,
};

/// How soon everybody knows.
const SOON: Duration = Duration::from_secs(5);

/// Whoever is banned is out of everything, however stubbornly their chat client comes back; and in again after it.
#[tokio::test]
async fn a_ban_is_known_to_every_process_and_in_chat_within_five_seconds_and_can_be_lifted() {
    with_database(async |options| {
        with_synapse(&options, async |synapse| {
            let setting = synapse.setting(&options).with("MATCHDAY_MATRIX__ADMIN_TOKEN", &synapse.make_admin().await);
            let working = setting.start(&["serve"]);
            let other = setting.clone().with("MATCHDAY_HTTP__PRIVATE_LISTEN", "127.0.0.1:0");
            let other = other.start(&["serve", "--no-workers"]);
            let (here, there, chat) = (Client::new(&working), Client::new(&other), Homeserver::at(&synapse.url));
            let ada = here.log_in("+14155550100", None).await;
            let bob = there.log_in("+14155550101", None).await;
            let room = here.open_room(&ada, "Derby talk", false).await;
            let own = here.open_room(&bob, "Bob's", true).await;
            here.act("join", &room, &bob, json!({})).await.expect(200);
            assert_eq!(chat.say(&room, bob.chat_token(), "You are all wrong.").await.0, 200);
            for client in [&here, &there] {
                assert_eq!(tried(client, &bob, &room).await, vec![(200, Value::Null); 3], "and remembered");
            }

            let (over, came_back) = (AtomicBool::new(false), Notify::new());
            let comes_back = async {
                while !over.load(Ordering::Relaxed) {
                    let (status, told) = chat.join(&room, bob.chat_token()).await;
                    assert!([200, 403].contains(&status), "{told}");
                    if status == 200 {
                        came_back.notify_one();
                    }
                }
            };
            let is_banned = async {
                came_back.notified().await;
                // Meanwhile the client goes on.
                let (operator, name) = (setting.clone(), bob.username.clone());
                let ban = move || operator.expect(&["users", "ban", &name, "--reason", "insults"], "");
                spawn_blocking(ban).await.expect("it ran");
                let suspended = vec![(403, json!("account_suspended")); 3];
                let everywhere = [&suspended, &suspended].map(Clone::clone);
                let took = shows(SOON, "every request is refused in both processes", &everywhere, async || {
                    [tried(&here, &bob, &room).await, tried(&there, &bob, &room).await]
                })
                .await;
                let out = shows(SOON, "they are out of the room", &(Some((1, true)), "leave".to_owned()), async || {
                    let membership = chat.members(&room, ada.chat_token()).await.remove(&bob.user_id());
                    (here.room(&ada, &room).await, membership.expect("they were there"))
                })
                .await;
                let silent = shows(SOON, "their chat client may do nothing", &[403; 4], async || {
                    [
                        chat.say(&room, bob.chat_token(), "Am not.").await.0,
                        chat.say(&own, bob.chat_token(), "Alone at last.").await.0,
                        chat.join(&room, bob.chat_token()).await.0,
                        chat.post("/_matrix/client/v3/createRoom", bob.chat_token(), json!({})).await.0,
                    ]
                })
                .await;
                crate::report(&format!("refused after {took:.1?}, out after {out:.1?} more, silent {silent:.1?} more"));
                over.store(true, Ordering::Relaxed);
            };
            tokio::join!(is_banned, comes_back);
            // Nothing is under way any more: what they are now they stay.
            let members = chat.members(&room, ada.chat_token()).await;
            assert_eq!(members[&bob.user_id()], "leave");
            assert_eq!(here.room(&ada, &room).await, Some((1, true)));

            setting.expect(&["users", "unban", &bob.username, "--reason", "served"], "");
            let in_again = [vec![(200, Value::Null); 3], vec![(200, Value::Null); 3]];
            let took = shows(SOON, "every request is answered again", &in_again, async || {
                [tried(&here, &bob, &room).await, tried(&there, &bob, &room).await]
            })
            .await;
            let joined = shows(SOON, "they may join again", &200, async || {
                there.act("join", &room, &bob, json!({})).await.status.as_u16()
            })
            .await;
            crate::report(&format!("answered again after {took:.1?}, joined after {joined:.1?} more"));
            assert_eq!(chat.say(&room, bob.chat_token(), "Sorry.").await.0, 200);
            assert_eq!(here.room(&ada, &room).await, Some((2, true)));
        })
        .await;
    })
    .await;
}

/// Nobody can suspend a chat account there, so its devices end.
#[tokio::test]
async fn without_an_admin_on_the_homeserver_a_ban_ends_chat_devices() {
    with_database(async |options| {
        with_synapse(&options, async |synapse| {
            let setting = synapse.setting(&options);
            let process = setting.start(&["serve"]);
            let (client, chat) = (Client::new(&process), Homeserver::at(&synapse.url));
            let ada = client.log_in("+14155550100", None).await;
            let bob = client.log_in("+14155550101", None).await;
            let room = client.open_room(&ada, "Derby talk", false).await;
            // With a chat client, and at the last moment.
            assert_eq!(chat.join(&room, bob.chat_token()).await.0, 200);
            setting.expect(&["users", "ban", &bob.username, "--reason", "insults"], "");
            shows(SOON, "they are out, here and in chat", &(Some((1, true)), "leave".to_owned(), 401), async || {
                let membership = chat.members(&room, ada.chat_token()).await.remove(&bob.user_id());
                let spoke = chat.say(&room, bob.chat_token(), "You are all wrong.").await.0;
                (client.room(&ada, &room).await, membership.expect("they were there"), spoke)
            })
            .await;

            setting.expect(&["users", "unban", &bob.username, "--reason", "served"], "");
            shows(SOON, "they may join again", &200, async || {
                client.act("join", &room, &bob, json!({})).await.status.as_u16()
            })
            .await;
            let renewed = client.renew_chat(&bob.token).await.expect(200);
            let token = renewed["data"]["matrix_credentials"]["access_token"].as_str().expect("a token");
            assert_eq!(chat.say(&room, token, "Sorry.").await.0, 200);
        })
        .await;
    })
    .await;
}

/// What comes of requests of all kinds: the status, and the code of the error.
async fn tried(client: &Client, who: &Person, room: &str) -> Vec<(u16, Value)> {
    let stats = format!("/api/auth/chat-rooms/{room}/member-stats");
    let mut outcomes = Vec::new();
    for path in ["/api/auth/me", "/api/auth/chat-rooms", &stats] {
        let answer = client.get(path, &who.token).await;
        let body: Value = serde_json::from_slice(&answer.bytes).expect("JSON");
        outcomes.push((answer.status.as_u16(), body["code"].clone()));
    }
    outcomes
}
