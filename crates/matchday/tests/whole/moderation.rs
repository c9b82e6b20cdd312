//! Moderation by an operator reaches every process, and chat.

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

/// Time limit until an action has taken effect everywhere.
const SOON: Duration = Duration::from_secs(5);

/// A banned user is locked out of the service and of chat, even if their chat client keeps rejoining. Lifting the ban
/// restores access.
#[tokio::test]
async fn ban_applies_everywhere_within_five_seconds() {
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
                assert_eq!(
                    try_requests(client, &bob, &room).await,
                    vec![(200, Value::Null); 3],
                    "the session is cached in both processes"
                );
            }

            let (over, came_back) = (AtomicBool::new(false), Notify::new());
            let comes_back = async {
                while !over.load(Ordering::Relaxed) {
                    let (status, reply) = chat.join(&room, bob.chat_token()).await;
                    assert!([200, 403].contains(&status), "{reply}");
                    if status == 200 {
                        came_back.notify_one();
                    }
                }
            };
            let is_banned = async {
                came_back.notified().await;
                // The chat client keeps trying during the ban.
                let (operator, name) = (setting.clone(), bob.username.clone());
                let ban = move || operator.expect(&["users", "ban", &name, "--reason", "insults"], "");
                spawn_blocking(ban).await.expect("a finished command");
                let suspended = vec![(403, json!("account_suspended")); 3];
                let everywhere = [&suspended, &suspended].map(Clone::clone);
                let took = shows(SOON, "every request is refused in both processes", &everywhere, async || {
                    [try_requests(&here, &bob, &room).await, try_requests(&there, &bob, &room).await]
                })
                .await;
                let out =
                    shows(SOON, "the user is out of the room", &(Some((1, true)), "leave".to_owned()), async || {
                        let membership = chat.members(&room, ada.chat_token()).await.remove(&bob.user_id());
                        (here.room(&ada, &room).await, membership.expect("a membership"))
                    })
                    .await;
                let silent = shows(SOON, "the chat client is refused everything", &[403; 4], async || {
                    [
                        chat.say(&room, bob.chat_token(), "Am not.").await.0,
                        chat.say(&own, bob.chat_token(), "Alone at last.").await.0,
                        chat.join(&room, bob.chat_token()).await.0,
                        chat.post("/_matrix/client/v3/createRoom", bob.chat_token(), json!({})).await.0,
                    ]
                })
                .await;
                crate::report(&format!(
                    "refused after {took:.1?}, out of the room {out:.1?} later, silenced {silent:.1?} later"
                ));
                over.store(true, Ordering::Relaxed);
            };
            tokio::join!(is_banned, comes_back);
            // All work is complete, so the membership is final.
            let members = chat.members(&room, ada.chat_token()).await;
            assert_eq!(members[&bob.user_id()], "leave");
            assert_eq!(here.room(&ada, &room).await, Some((1, true)));

            setting.expect(&["users", "unban", &bob.username, "--reason", "served"], "");
            let in_again = [vec![(200, Value::Null); 3], vec![(200, Value::Null); 3]];
            let took = shows(SOON, "every request succeeds again", &in_again, async || {
                [try_requests(&here, &bob, &room).await, try_requests(&there, &bob, &room).await]
            })
            .await;
            let joined = shows(SOON, "the user may join again", &200, async || {
                there.act("join", &room, &bob, json!({})).await.status.as_u16()
            })
            .await;
            crate::report(&format!("requests succeeded after {took:.1?}, the join {joined:.1?} later"));
            assert_eq!(chat.say(&room, bob.chat_token(), "Sorry.").await.0, 200);
            assert_eq!(here.room(&ada, &room).await, Some((2, true)));
        })
        .await;
    })
    .await;
}

/// Without an admin the service cannot suspend a chat account, so it removes the account's devices.
#[tokio::test]
async fn ban_without_homeserver_admin_removes_chat_devices() {
    with_database(async |options| {
        with_synapse(&options, async |synapse| {
            let setting = synapse.setting(&options);
            let process = setting.start(&["serve"]);
            let (client, chat) = (Client::new(&process), Homeserver::at(&synapse.url));
            let ada = client.log_in("+14155550100", None).await;
            let bob = client.log_in("+14155550101", None).await;
            let room = client.open_room(&ada, "Derby talk", false).await;
            // The user joins with a chat client just before the ban.
            assert_eq!(chat.join(&room, bob.chat_token()).await.0, 200);
            setting.expect(&["users", "ban", &bob.username, "--reason", "insults"], "");
            shows(
                SOON,
                "the user is out of the room, in the service and in chat",
                &(Some((1, true)), "leave".to_owned(), 401),
                async || {
                    let membership = chat.members(&room, ada.chat_token()).await.remove(&bob.user_id());
                    let spoke = chat.say(&room, bob.chat_token(), "You are all wrong.").await.0;
                    (client.room(&ada, &room).await, membership.expect("a membership"), spoke)
                },
            )
            .await;

            setting.expect(&["users", "unban", &bob.username, "--reason", "served"], "");
            shows(SOON, "the user may join again", &200, async || {
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

/// Status and error code of requests of all kinds.
async fn try_requests(client: &Client, who: &Person, room: &str) -> Vec<(u16, Value)> {
    let stats = format!("/api/auth/chat-rooms/{room}/member-stats");
    let mut outcomes = Vec::new();
    for path in ["/api/auth/me", "/api/auth/chat-rooms", &stats] {
        let answer = client.get(path, &who.token).await;
        let body: Value = serde_json::from_slice(&answer.bytes).expect("JSON");
        outcomes.push((answer.status.as_u16(), body["code"].clone()));
    }
    outcomes
}
