//! Chat rooms used from the app and from chat clients.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use futures_util::{StreamExt as _, stream};
use matchday::testing::{Answer, with_database};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use crate::{
    client::{Client, Homeserver, server_name, shows, user_id},
    process::Setting,
    synapse::with_synapse,
};

/// Time limit until a list shows an action of a chat client.
const SOON: Duration = Duration::from_secs(2);

#[tokio::test]
async fn chat_client_actions_show_in_lists_within_two_seconds() {
    with_database(async |options| {
        with_synapse(&options, async |synapse| {
            let process = synapse.setting(&options).start(&["serve"]);
            let (client, chat) = (Client::new(&process), Homeserver::at(&synapse.url));
            let ada = client.log_in("+14155550100", None).await;
            let bob = client.log_in("+14155550101", None).await;
            let done = |(status, reply): (u16, Value)| assert_eq!(status, 200, "{reply}");
            let becomes = async |what: &str, who, room: &str, expected| {
                shows(SOON, what, &expected, async || client.room(who, room).await).await
            };

            let open = client.open_room(&ada, "Derby talk", false).await;
            assert_eq!(client.room(&ada, &open).await, Some((1, true)), "the creator is a member");
            assert_eq!(client.room(&bob, &open).await, Some((1, false)), "other users see the room");
            done(chat.join(&open, bob.chat_token()).await);
            becomes("a user joined", &bob, &open, Some((2, true))).await;
            assert_eq!(client.room(&ada, &open).await, Some((2, true)));
            for speaker in [&ada, &bob, &ada] {
                let before = client.last_activity(&ada, &open).await;
                done(chat.say(&open, speaker.chat_token(), "What a goal!").await);
                shows(SOON, "a message was sent", &true, async || client.last_activity(&bob, &open).await > before)
                    .await;
            }
            done(chat.act("leave", &open, bob.chat_token(), json!({})).await);
            becomes("a user left", &bob, &open, Some((1, false))).await;
            assert_eq!(client.room(&ada, &open).await, Some((1, true)));

            let closed = client.open_room(&ada, "Only us", true).await;
            assert_eq!(client.room(&bob, &closed).await, None, "a private room is hidden from other users");
            done(chat.act("invite", &closed, ada.chat_token(), json!({"user_id": bob.user_id()})).await);
            becomes("a user was invited", &bob, &closed, Some((1, false))).await;
            client.act("join", &closed, &bob, json!({})).await.expect(200);
            assert_eq!(
                client.room(&bob, &closed).await,
                Some((2, true)),
                "immediately after a join through the service"
            );
            let name = format!("/_matrix/client/v3/rooms/{closed}/state/m.room.name");
            done(chat.put(&name, ada.chat_token(), json!({"name": "The two of us"})).await);
            let named = async || client.rooms(&bob).await.get(&closed).map(|room| room.name.clone());
            shows(SOON, "the room was renamed", &Some("The two of us".to_owned()), named).await;
            done(chat.act("kick", &closed, ada.chat_token(), json!({"user_id": bob.user_id()})).await);
            becomes("a user was removed", &bob, &closed, None).await;
            assert_eq!(client.room(&ada, &closed).await, Some((1, true)));

            client.act("join", &open, &bob, json!({})).await.expect(200);
            done(chat.act("ban", &open, ada.chat_token(), json!({"user_id": bob.user_id()})).await);
            becomes("a user was banned", &bob, &open, Some((1, false))).await;
            let refused = client.act("join", &open, &bob, json!({})).await.expect(403);
            assert_eq!(refused["code"], "not_allowed");
            assert_eq!(client.room(&ada, &open).await, Some((1, true)));
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn private_room_refuses_uninvited_users() {
    with_database(async |options| {
        with_synapse(&options, async |synapse| {
            let process = synapse.setting(&options).start(&["serve"]);
            let (client, chat) = (Client::new(&process), Homeserver::at(&synapse.url));
            let ada = client.log_in("+14155550100", None).await;
            let eve = client.log_in("+14155550101", None).await;
            let room = client.open_room(&ada, "Only me", true).await;
            let (status, said) = chat.say(&room, ada.chat_token(), "Nobody hears me.").await;
            assert_eq!(status, 200, "{said}");

            let is_refused = |answer: Answer| assert_eq!(answer.expect(403)["code"], "not_allowed");
            let oneself = json!({"username": eve.username});
            is_refused(client.act("join", &room, &eve, json!({})).await);
            is_refused(client.act("invite", &room, &eve, oneself).await);
            is_refused(client.act("invite", &room, &eve, json!({"username": ada.username})).await);
            is_refused(client.act("leave", &room, &eve, json!({})).await);
            is_refused(client.act("reports", &room, &eve, json!({"event_id": said["event_id"], "reason": "!"})).await);
            for look in ["member-stats", "predictions"] {
                is_refused(client.get(&format!("/api/auth/chat-rooms/{room}/{look}"), &eve.token).await);
            }
            assert_eq!(client.room(&eve, &room).await, None);

            let aliases = chat.get(&format!("/_matrix/client/v3/rooms/{room}/aliases"), ada.chat_token()).await.1;
            let alias = aliases["aliases"][0].as_str().expect("an alias").replace('#', "%23");
            for address in [&room, &alias] {
                assert_eq!(chat.join(address, eve.chat_token()).await.0, 403, "by {address}");
                let knock = format!("/_matrix/client/v3/knock/{address}?via={}", server_name());
                assert_eq!(chat.post(&knock, eve.chat_token(), json!({})).await.0, 403, "by {address}");
            }
            for verb in ["join", "leave"] {
                assert_eq!(chat.act(verb, &room, eve.chat_token(), json!({})).await.0, 403, "{verb}");
            }
            let oneself = json!({"user_id": eve.user_id()});
            assert_eq!(chat.act("invite", &room, eve.chat_token(), oneself).await.0, 403);
            let myself = format!("/_matrix/client/v3/rooms/{room}/state/m.room.member/{}", eve.user_id());
            assert_eq!(chat.put(&myself, eve.chat_token(), json!({"membership": "join"})).await.0, 403);
            assert_eq!(chat.say(&room, eve.chat_token(), "I am in.").await.0, 403);
            for look in ["state", "members", "messages?dir=b"] {
                let path = format!("/_matrix/client/v3/rooms/{room}/{look}");
                assert_eq!(chat.get(&path, eve.chat_token()).await.0, 403, "{look}");
            }

            let members = chat.members(&room, ada.chat_token()).await;
            assert_eq!(members, BTreeMap::from([(ada.user_id(), "join".to_owned())]), "no other membership exists");
            assert_eq!(client.room(&ada, &room).await, Some((1, true)));
        })
        .await;
    })
    .await;
}

/// The new chat account has every membership of the old one, and the user is counted exactly once throughout.
#[tokio::test]
async fn replaced_username_keeps_its_rooms() {
    with_database(async |options| {
        with_synapse(&options, async |synapse| {
            let process = synapse.setting(&options).start(&["serve"]);
            let (client, chat) = (Client::new(&process), Homeserver::at(&synapse.url));
            let ada = client.log_in("+14155550100", None).await;
            let bob = client.log_in("+14155550101", None).await;
            let mut rooms = BTreeMap::new();
            for (owner, guest) in [(&ada, &bob), (&bob, &ada)] {
                let (open, closed) = (client.open_room(owner, "Open", false), client.open_room(owner, "Closed", true));
                for (room, is_private) in [(open.await, false), (closed.await, true)] {
                    if is_private {
                        client.act("invite", &room, owner, json!({"username": guest.username})).await.expect(200);
                    }
                    client.act("join", &room, guest, json!({})).await.expect(200);
                    rooms.insert(room, owner);
                }
            }
            // Pushes arrive in order: once the push of this message has arrived, so have all earlier ones.
            for room in rooms.keys() {
                let before = client.last_activity(&bob, room).await;
                assert_eq!(chat.say(room, bob.chat_token(), "Is everybody here?").await.0, 200);
                shows(SOON, "a message was sent", &true, async || client.last_activity(&bob, room).await > before)
                    .await;
            }
            let before = client.rooms(&ada).await;
            assert!(before.len() == 4 && before.values().all(|room| room.members == 2 && room.is_joined), "{before:?}");

            let change = json!({"username": "ada.of.the.cup"});
            let saved = client.post("/api/auth/update-user-info", &ada.token, change).await.expect(200);
            let (old, new) = (ada.user_id(), user_id("ada.of.the.cup"));
            let new_token = saved["data"]["matrix_credentials"]["access_token"].as_str().expect("chat credentials");
            for (room, owner) in &rooms {
                let moved = BTreeMap::from([
                    (new.clone(), "join".to_owned()),
                    (old.clone(), "leave".to_owned()),
                    (bob.user_id(), "join".to_owned()),
                ]);
                shows(Duration::from_secs(10), "the memberships have moved", &moved, async || {
                    for viewer in [&ada, &bob] {
                        assert_eq!(client.room(viewer, room).await, Some((2, true)), "at every moment");
                    }
                    chat.members(room, bob.chat_token()).await
                })
                .await;
                let levels = format!("/_matrix/client/v3/rooms/{room}/state/m.room.power_levels");
                let levels = chat.get(&levels, new_token).await.1;
                let power = levels["users"][&new].as_i64();
                assert_eq!(power, (owner.username == ada.username).then_some(50), "{levels}");
                assert_eq!(chat.say(room, new_token, "It is me.").await.0, 200);
            }
            chat.refuses(ada.chat_token()).await;
            for viewer in [&ada, &bob] {
                assert_eq!(client.rooms(viewer).await, before);
            }
        })
        .await;
    })
    .await;
}

const STANDS: usize = 3;
const CAPACITY: usize = 100;
const USERS: usize = CAPACITY * STANDS;
const AT_ONCE: usize = 32;

#[tokio::test]
async fn three_hundred_concurrent_joins_fill_three_stands() {
    with_database(async |options| {
        with_synapse(&options, async |synapse| {
            let capacity = CAPACITY.to_string();
            let setting = synapse.setting(&options).with("MATCHDAY_ROOMS__MATCH_CAPACITY", &capacity);
            // One stand fills after the other, however slow the homeserver is.
            let setting = setting.with("MATCHDAY_ROOMS__PARALLEL_STANDS", "1");
            let process = setting.start(&["serve"]);
            let (client, chat) = (Client::new(&process), Homeserver::at(&synapse.url));
            let document = json!({
                "sport": {"slug": "football", "name": "Football"},
                "tournament": {"slug": "cup", "name": "Cup"},
                "teams": [{"slug": "rovers", "name": "Rovers"}, {"slug": "city", "name": "City"}],
                "matches": [{"key": "final", "home": "rovers", "away": "city", "start_time": "2030-05-01T18:00:00Z", "status": "scheduled"}],
            });
            let printed = setting.expect(&["fixtures", "import", "-"], &document.to_string());
            assert!(printed.ends_with("chat: 1 room created"), "{printed}");

            let began = Instant::now();
            let tokens: Vec<String> = stream::iter(0..USERS).map(|_| issued(&setting)).buffered(4).collect().await;
            let issued_in = began.elapsed();
            let events = client.get("/api/auth/events", &tokens[0]).await.expect(200);
            let (event, first_room) = (&events["data"][0]["id"], events["data"][0]["chat_room_id"].as_str().expect("a room"));

            let began = Instant::now();
            let join = |token: String| {
                let client = &client;
                async move {
                    let (mut tries, path) = (1, format!("/api/auth/chat-rooms/{first_room}/join"));
                    let mut unknown = false;
                    loop {
                        let answer = client.post(&path, &token, json!({})).await;
                        // A slow homeserver may add the member after the service gave up; the list shows in which
                        // stand.
                        if unknown && answer.status == 409 {
                            assert_eq!(answer.expect(409)["code"], "already_a_member");
                            let list = client.get(&format!("/api/auth/chat-rooms?event_id={event}"), &token).await;
                            let list = list.expect(200);
                            let mut rooms = list["data"].as_array().expect("a list").iter();
                            let own = rooms.find(|room| room["is_joined"] == true).expect("a joined room");
                            return (own["room_id"].as_str().expect("an id").to_owned(), tries);
                        }
                        if answer.status != 503 {
                            let joined = answer.expect(200);
                            return (joined["data"]["room_id"].as_str().expect("an id").to_owned(), tries);
                        }
                        unknown |= serde_json::from_slice::<Value>(&answer.bytes).expect("JSON")["code"] == "chat_unavailable";
                        let pause = answer.header("retry-after").and_then(|seconds| seconds.parse().ok());
                        tokio::time::sleep(Duration::from_secs(pause.expect("a Retry-After header"))).await;
                        tries += 1;
                    }
                }
            };
            let joined: Vec<(String, u32)> =
                stream::iter(tokens.clone()).map(join).buffer_unordered(AT_ONCE).collect().await;
            let joined_in = began.elapsed();
            let again = joined.iter().map(|(_, tries)| tries - 1).sum::<u32>();
            crate::report(&format!(
                "{USERS} users were created in {issued_in:.1?}, joined in {joined_in:.1?} with {again} retries"
            ));

            let full: Vec<(i64, i64)> = (1..).take(STANDS).map(|stand| (stand, i64::try_from(CAPACITY).expect("small"))).collect();
            let rooms = format!("/api/auth/chat-rooms?event_id={event}");
            shows(SOON, "three full stands", &full, async || {
                let list = client.get(&rooms, &tokens[0]).await.expect(200);
                let stands = list["data"].as_array().expect("a list").iter();
                let number = |value: &Value| value.as_i64().expect("a number");
                let mut stands: Vec<_> =
                    stands.map(|room| (number(&room["stand"]), number(&room["member_count"]))).collect();
                stands.sort_unstable();
                stands
            })
            .await;

            let joined_rooms: BTreeSet<&String> = joined.iter().map(|(room, _)| room).collect();
            assert_eq!(joined_rooms.len(), STANDS, "{joined_rooms:?}");
            let service = &setting.variables()["MATCHDAY_MATRIX__AS_TOKEN"];
            let mut in_rooms = BTreeSet::new();
            for room in joined_rooms {
                let members = chat.members(room, service).await;
                assert!(members.values().all(|membership| membership == "join"), "{members:?}");
                assert_eq!(members.len(), CAPACITY, "members on the homeserver");
                assert_eq!(members.len(), joined.iter().filter(|(joined, _)| joined == room).count(), "members according to the responses");
                for who in members.into_keys() {
                    assert!(in_rooms.insert(who.clone()), "{who} is in two rooms");
                }
                let stats = client.get(&format!("/api/auth/chat-rooms/{room}/member-stats"), &tokens[0]).await;
                assert_eq!(stats.expect(200)["data"]["total_members"], json!(USERS));
            }
            assert_eq!(in_rooms.len(), USERS);
        })
        .await;
    })
    .await;
}

/// Token of a new user, as the command prints it.
async fn issued(setting: &Setting) -> String {
    let setting = setting.clone();
    spawn_blocking(move || setting.expect(&["sessions", "issue"], "")).await.expect("a finished command")
}
