//! Room lists agree with the homeserver, even after crashes and dropped pushes.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    response::{IntoResponse as _, Response},
};
use futures_util::future::join_all;
use http::{StatusCode, header};
use matchday::testing::with_database;
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::{net::TcpListener, sync::Notify};

use crate::{
    client::{Client, Homeserver, Person, shows},
    process::{Process, Setting},
    synapse::with_synapse,
};

/// Time limit until a list shows a pushed change.
const SOON: Duration = Duration::from_secs(2);

/// Users, and the rooms that they join and leave.
struct Club {
    chat: Homeserver,
    /// Token of the service itself, which can see all rooms.
    service: String,
    /// The first user created the rooms.
    people: Vec<Person>,
    open: [String; 2],
    closed: String,
}

/// The rooms in each user's list, with member count and whether the user has joined.
type Lists = Vec<BTreeMap<String, (i64, bool)>>;

impl Club {
    async fn create(setting: &Setting, client: &Client, chat: &Homeserver) -> Self {
        let people = join_all((0..6).map(async |number| client.log_in(&format!("+1415555010{number}"), None).await));
        let people = people.await;
        let opened = async |name, is_private| client.open_room(&people[0], name, is_private).await;
        let open = [opened("North", false).await, opened("South", false).await];
        let closed = opened("Attic", true).await;
        Self {
            open,
            closed,
            service: setting.variables()["MATCHDAY_MATRIX__AS_TOKEN"].clone(),
            chat: chat.clone(),
            people,
        }
    }

    /// Expected lists, according to the homeserver.
    async fn expected_lists(&self) -> Lists {
        let mut lists: Lists = vec![BTreeMap::new(); self.people.len()];
        for room in self.open.iter().chain([&self.closed]) {
            let members = self.chat.members(room, &self.service).await;
            let joined = members.values().filter(|membership| *membership == "join").count();
            for (person, list) in self.people.iter().zip(&mut lists) {
                let membership = members.get(&person.user_id()).map(String::as_str);
                if *room != self.closed || matches!(membership, Some("join" | "invite")) {
                    list.insert(room.clone(), (i64::try_from(joined).expect("few"), membership == Some("join")));
                }
            }
        }
        lists
    }

    /// Lists as the service returns them.
    async fn lists(&self, client: &Client) -> Lists {
        let list = async |person| {
            let rooms = client.rooms(person).await.into_iter();
            rooms.map(|(room, listed)| (room, (listed.members, listed.is_joined))).collect()
        };
        join_all(self.people.iter().map(list)).await
    }

    /// Makes a user join or leave with their chat client. For the private room the owner must invite them.
    async fn change_membership(&self, person: &Person, room: &str, joins: bool) {
        let owner = self.people[0].chat_token();
        let (status, reply) = if !joins {
            self.chat.act("leave", room, person.chat_token(), json!({})).await
        } else if room == self.closed {
            self.chat.act("invite", room, owner, json!({"user_id": person.user_id()})).await
        } else {
            self.chat.join(room, person.chat_token()).await
        };
        assert_eq!(status, 200, "{} in {room}: {reply}", person.username);
        if joins && room == self.closed {
            let (status, reply) = self.chat.join(room, person.chat_token()).await;
            assert_eq!(status, 200, "{reply}");
        }
    }

    /// Sets the initial members of each room.
    async fn fill_rooms(&self) {
        for (number, person) in self.people.iter().enumerate().skip(1) {
            self.change_membership(person, &self.open[number % 2], true).await;
        }
        self.change_membership(&self.people[1], &self.closed, true).await;
    }

    /// Lets users join and leave in three rounds, spread over this much time; returns the time of the last message in
    /// each public room. In the end each user is in the other public room, and another user is in the private one.
    ///
    /// The number of rounds is fixed because Synapse sends each missed event in a push of its own, one after another: how
    /// long that takes depends on the number of events and on its disk, and hardly on the service.
    async fn join_and_leave(&self, time: Duration) -> [OffsetDateTime; 2] {
        let mut next_round = tokio::time::Instant::now();
        let mut spoke = [OffsetDateTime::UNIX_EPOCH; 2];
        // After an odd number of rounds every user is in the other room.
        for round in 1..=3 {
            for (number, person) in self.people.iter().enumerate().skip(1) {
                let from = (number + round + 1) % 2;
                self.change_membership(person, &self.open[1 - from], true).await;
                self.change_membership(person, &self.open[from], false).await;
                spoke[1 - from] = self.send_message(person, &self.open[1 - from]).await;
            }
            let (out, to) = if round % 2 == 1 { (1, 2) } else { (2, 1) };
            self.change_membership(&self.people[out], &self.closed, false).await;
            self.change_membership(&self.people[to], &self.closed, true).await;
            next_round += time / 3;
            tokio::time::sleep_until(next_round).await;
        }
        let invited = json!({"user_id": self.people[3].user_id()});
        let (status, reply) = self.chat.act("invite", &self.closed, self.people[0].chat_token(), invited).await;
        assert_eq!(status, 200, "{reply}");
        spoke
    }

    /// Sends a message; returns its time according to the homeserver.
    async fn send_message(&self, person: &Person, room: &str) -> OffsetDateTime {
        let (status, sent) = self.chat.say(room, person.chat_token(), "Here I am.").await;
        assert_eq!(status, 200, "{sent}");
        let path = format!("/_matrix/client/v3/rooms/{room}/event/{}", sent["event_id"].as_str().expect("an id"));
        let event = self.chat.get(&path, person.chat_token()).await.1;
        let millis = event["origin_server_ts"].as_i64().expect("a time");
        OffsetDateTime::UNIX_EPOCH + time::Duration::milliseconds(millis)
    }
}

#[tokio::test]
async fn service_catches_up_within_ten_seconds_after_outage() {
    catches_up_after(Duration::from_secs(30), async |process| {
        process.signal("TERM");
        process.ended().await;
    })
    .await;
}

#[tokio::test]
async fn killed_service_catches_up_within_ten_seconds() {
    catches_up_after(Duration::from_secs(5), async |process| process.kill()).await;
}

/// The service stops, members join and leave, and the service returns.
async fn catches_up_after(downtime: Duration, end: impl AsyncFnOnce(&mut Process)) {
    with_database(async |options| {
        with_synapse(&options, async |synapse| {
            let setting = synapse.setting(&options);
            let mut process = setting.start(&["serve"]);
            let client = Client::new(&process);
            let club = Club::create(&setting, &client, &Homeserver::at(&synapse.url)).await;
            club.fill_rooms().await;
            let before = club.expected_lists().await;
            shows(SOON, "lists agree before", &before, async || club.lists(&client).await).await;

            end(&mut process).await;
            let spoke = club.join_and_leave(downtime).await;
            let after = club.expected_lists().await;
            assert_ne!(after, before);

            let began = Instant::now();
            let left = || Duration::from_secs(10).saturating_sub(began.elapsed());
            let process = setting.start(&["serve"]);
            let client = Client::new(&process);
            // First the message times, which only pushes contain: while older pushes are still arriving, lists may
            // agree for a moment and then change again.
            for (room, spoke) in club.open.iter().zip(spoke) {
                let look = async || client.last_activity(&club.people[0], room).await;
                shows(left(), "time of the last message", &spoke, look).await;
            }
            shows(left(), "lists agree after", &after, async || club.lists(&client).await).await;
            crate::report(&format!("caught up in {:.1?}", began.elapsed()));
        })
        .await;
    })
    .await;
}

/// The homeserver dies while members join and leave, and loses the pushes that it had not sent.
#[tokio::test]
async fn lists_agree_soon_after_homeserver_is_killed() {
    with_database(async |options| {
        with_synapse(&options, async |synapse| {
            let setting = synapse.setting(&options);
            let process = setting.start(&["serve"]);
            let (client, chat) = (Client::new(&process), Homeserver::at(&synapse.url));
            let club = Club::create(&setting, &client, &chat).await;
            club.fill_rooms().await;
            let rooms = 3.0;
            for (round, killed_after) in [5, 12].into_iter().enumerate() {
                let compared = process.counted("matchday_mirror_comparisons_total").await;
                let (changes, enough) = (AtomicUsize::new(0), Notify::new());
                let come_and_go = async |(number, person): (usize, &Person)| {
                    let room = &club.open[(number + round) % 2];
                    for verb in ["join", "leave"].into_iter().cycle() {
                        let path = format!("/_matrix/client/v3/rooms/{room}/{verb}");
                        let Some(status) = chat.try_post(&path, person.chat_token(), json!({})).await else { break };
                        assert!(status == 200 || (status == 403 && verb == "leave"), "{verb}: {status}");
                        if changes.fetch_add(1, Ordering::Relaxed) + 1 == killed_after {
                            enough.notify_one();
                        }
                    }
                };
                let kill = async {
                    enough.notified().await;
                    synapse.kill();
                };
                tokio::join!(join_all(club.people.iter().enumerate().skip(1).map(come_and_go)), kill);

                synapse.start().await;
                let began = Instant::now();
                let left = || Duration::from_secs(20).saturating_sub(began.elapsed());
                let person = &club.people[4];
                let joins = !club.expected_lists().await[4][&club.open[0]].1;
                club.change_membership(person, &club.open[0], joins).await;
                let expected_lists = club.expected_lists().await;
                shows(left(), "lists agree", &expected_lists, async || club.lists(&client).await).await;
                let agreed = began.elapsed();
                let look = async || process.counted("matchday_mirror_comparisons_total").await >= compared + rooms;
                shows(left(), "all rooms were compared", &true, look).await;
                let corrected = process.counted("matchday_mirror_corrections_total").await;
                crate::report(&format!(
                    "agreed after {agreed:.1?}, compared after {:.1?}; {corrected} corrections so far",
                    began.elapsed()
                ));
                // The comparison changed nothing that was correct.
                assert_eq!(club.lists(&client).await, expected_lists);
            }
        })
        .await;
    })
    .await;
}

/// Both die, and the homeserver is back before the service, which gets no sign that it missed anything.
#[tokio::test]
async fn lists_agree_soon_after_both_are_killed() {
    with_database(async |options| {
        with_synapse(&options, async |synapse| {
            let setting = synapse.setting(&options);
            let mut process = setting.start(&["serve"]);
            let client = Client::new(&process);
            let club = Club::create(&setting, &client, &Homeserver::at(&synapse.url)).await;
            club.fill_rooms().await;
            process.kill();
            club.join_and_leave(Duration::from_secs(15)).await;
            synapse.kill();
            synapse.start().await;
            let expected_lists = club.expected_lists().await;

            let began = Instant::now();
            let process = setting.start(&["serve"]);
            let client = Client::new(&process);
            let left = Duration::from_secs(20).saturating_sub(began.elapsed());
            shows(left, "lists agree", &expected_lists, async || club.lists(&client).await).await;
            crate::report(&format!("agreed after {:.1?}", began.elapsed()));
        })
        .await;
    })
    .await;
}

/// A proxy between the homeserver and the process that can drop pushes.
#[derive(Clone)]
struct PushProxy {
    to: String,
    /// Dropped events, while the proxy drops pushes.
    dropped: Arc<Mutex<Option<Vec<Value>>>>,
}

impl PushProxy {
    /// Listens on the address to which the homeserver pushes.
    async fn open(from: &str, to: &Process) -> Self {
        let proxy = Self { to: to.private.clone(), dropped: Arc::default() };
        let listener = TcpListener::bind(from).await.expect("a free address");
        let router = Router::new().fallback(pass).with_state(proxy.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        proxy
    }

    fn start_dropping(&self) {
        *self.dropped.lock().expect("not poisoned") = Some(Vec::new());
    }

    fn stop_dropping(&self) {
        *self.dropped.lock().expect("not poisoned") = None;
    }

    /// Whether a matching event was dropped.
    fn has_dropped(&self, is_it: impl Fn(&Value) -> bool) -> bool {
        self.dropped.lock().expect("not poisoned").iter().flatten().any(is_it)
    }
}

async fn pass(State(proxy): State<PushProxy>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.expect("a whole request");
    if let Some(dropped) = &mut *proxy.dropped.lock().expect("not poisoned") {
        let mut transaction: Value = serde_json::from_slice(&body).unwrap_or_default();
        if let Value::Array(events) = transaction["events"].take() {
            dropped.extend(events);
            return axum::Json(json!({})).into_response();
        }
    }
    let path = parts.uri.path_and_query().expect("a path").as_str();
    let request = reqwest::Client::new().request(parts.method, format!("{}{path}", proxy.to)).headers(parts.headers);
    let Ok(answer) = request.body(body).send().await else { return StatusCode::BAD_GATEWAY.into_response() };
    (answer.status(), Body::from(answer.bytes().await.unwrap_or_default())).into_response()
}

/// The homeserver does not repeat pushes that it considers delivered.
#[tokio::test]
async fn comparison_finds_lost_pushes() {
    with_database(async |options| {
        with_synapse(&options, async |synapse| {
            let setting = synapse.setting(&options).with("MATCHDAY_HTTP__PRIVATE_LISTEN", "127.0.0.1:0");
            let process = setting.start(&["serve"]);
            let proxy = PushProxy::open(&synapse.pushes_to, &process).await;
            let (client, chat) = (Client::new(&process), Homeserver::at(&synapse.url));
            let club = Club::create(&setting, &client, &chat).await;
            club.fill_rooms().await;
            let before = club.expected_lists().await;
            shows(SOON, "lists agree before", &before, async || club.lists(&client).await).await;

            proxy.start_dropping();
            club.join_and_leave(Duration::ZERO).await;
            // The service performs this change itself, and waits for its push.
            let (joined, room) = (&club.people[1], &club.open[0]);
            client.act("join", room, joined, json!({})).await.expect(200);
            let expected_lists = club.expected_lists().await;
            assert_ne!(club.lists(&client).await, expected_lists, "dropped changes are not in the lists");
            shows(SOON, "all pushes are dropped", &true, async || {
                proxy.has_dropped(|event| event["state_key"] == joined.user_id() && event["room_id"] == *room)
            })
            .await;
            proxy.stop_dropping();

            let began = Instant::now();
            let compared = process.counted("matchday_mirror_comparisons_total").await;
            setting.expect(&["memberships", "compare"], "");
            shows(Duration::from_secs(10), "lists agree", &expected_lists, async || club.lists(&client).await).await;
            crate::report(&format!("lists agreed {:.1?} after a comparison was requested", began.elapsed()));
            let look = async || process.counted("matchday_mirror_comparisons_total").await >= compared + 3.0;
            shows(Duration::from_secs(10), "all rooms were compared", &true, look).await;

            club.change_membership(joined, room, false).await;
            let expected_lists = club.expected_lists().await;
            shows(SOON, "the user has left again", &expected_lists, async || club.lists(&client).await).await;
        })
        .await;
    })
    .await;
}

/// Pushes a transaction as the homeserver does; returns the status.
async fn push(process: &Process, token: Option<&str>, id: &str, events: &[&Value]) -> u16 {
    let path = format!("{}/_matrix/app/v1/transactions/{id}", process.private);
    let mut request = reqwest::Client::new().put(path).json(&json!({"events": events}));
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    request.send().await.expect("a response").status().as_u16()
}

/// The homeserver does not push to this process. The test pushes instead, valid and invalid events.
#[tokio::test]
async fn push_is_applied_once_and_malformed_events_set_aside() {
    with_database(async |options| {
        with_synapse(&options, async |synapse| {
            let setting = synapse.setting(&options).with("MATCHDAY_HTTP__PRIVATE_LISTEN", "127.0.0.1:0");
            let process = setting.start(&["serve"]);
            let (client, chat) = (Client::new(&process), Homeserver::at(&synapse.url));
            let ada = client.log_in("+14155550100", None).await;
            let bob = client.log_in("+14155550101", None).await;
            let zoe = client.log_in("+14155550102", None).await;
            let room = client.open_room(&ada, "Derby talk", false).await;
            let hs_token = setting.variables()["MATCHDAY_MATRIX__HS_TOKEN"].clone();
            let moved = async |person: &Person, verb: &str| -> Value {
                let (status, reply) = chat.act(verb, &room, person.chat_token(), json!({})).await;
                assert_eq!(status, 200, "{reply}");
                let latest = format!("/_matrix/client/v3/rooms/{room}/messages?dir=b&limit=1");
                let event = chat.get(&latest, ada.chat_token()).await.1["chunk"][0].take();
                assert_eq!(event["state_key"], json!(person.user_id()), "{event}");
                event
            };
            let seen = async || (client.room(&bob, &room).await, client.room(&zoe, &room).await);
            let becomes = async |what: &str, members, bob_is_in, zoe_is_in| {
                let expected = (Some((members, bob_is_in)), Some((members, zoe_is_in)));
                shows(SOON, what, &expected, seen).await;
            };

            let bob_came = moved(&bob, "join").await;
            assert_eq!(push(&process, None, "1", &[&bob_came]).await, 401);
            for wrong in ["guessed", &hs_token[1..], &setting.variables()["MATCHDAY_MATRIX__AS_TOKEN"]] {
                assert_eq!(push(&process, Some(wrong), "1", &[&bob_came]).await, 403, "{wrong}");
            }
            let zoe_came = moved(&zoe, "join").await;
            assert_eq!(push(&process, Some(&hs_token), "2", &[&zoe_came]).await, 200);
            becomes("one push counts, and the refused ones do not", 2, false, true).await;
            assert_eq!(push(&process, Some(&hs_token), "1", &[&bob_came]).await, 200);
            becomes("a refused push may be repeated", 3, true, true).await;

            let bob_left = moved(&bob, "leave").await;
            assert_eq!(push(&process, Some(&hs_token), "3", &[&bob_left]).await, 200);
            becomes("a user left", 2, false, true).await;
            assert_eq!(push(&process, Some(&hs_token), "1", &[&bob_came]).await, 200, "a repeated push succeeds");
            let zoe_left = moved(&zoe, "leave").await;
            assert_eq!(push(&process, Some(&hs_token), "1", &[&bob_came, &zoe_left]).await, 200);
            becomes("known events count once, new ones count under any id", 1, false, false).await;

            let bob_came = moved(&bob, "join").await;
            let zoe_came = moved(&zoe, "join").await;
            let poison = [
                json!({"event_id": "$poison1", "room_id": room, "type": "m.room.member", "sender": ada.user_id(),
                    "state_key": bob.user_id(), "origin_server_ts": 1_700_000_000_000_i64, "content": {"membership": 7}}),
                json!({"event_id": "$poison2", "room_id": room, "type": "m.room.member", "sender": ada.user_id(),
                    "state_key": "nobody", "origin_server_ts": 1_700_000_000_000_i64, "content": {"membership": "join"}}),
                json!({"event_id": "$poison3", "room_id": room, "type": "m.room.message", "sender": 7}),
                json!({"event_id": "$poison4", "room_id": room, "type": "m.room.member", "sender": ada.user_id(),
                    "state_key": zoe.user_id(), "origin_server_ts": "yesterday", "content": {"membership": "ban"}}),
                json!("nonsense"),
            ];
            let [first, second, third, fourth, fifth] = &poison;
            let mixed = [first, &bob_came, second, third, fourth, fifth, &zoe_came];
            assert_eq!(push(&process, Some(&hs_token), "4", &mixed).await, 200);
            becomes("the valid events count", 3, true, true).await;
            let status = setting.expect(&["memberships", "status"], "");
            assert!(status.contains("waiting: nothing"), "{status}");
            assert!(status.contains("set aside: 5 events"), "{status}");
            for fault in [
                "$poison1 m.room.member from",
                "$poison2 m.room.member from",
                "$poison3 m.room.message from",
                "$poison4 m.room.member from",
                "unnamed:",
            ] {
                assert!(status.contains(fault), "{fault}: {status}");
            }
            assert_eq!(push(&process, Some(&hs_token), "4", &mixed).await, 200, "the same push again");
            let bob_left = moved(&bob, "leave").await;
            assert_eq!(push(&process, Some(&hs_token), "5", &[&bob_left]).await, 200);
            becomes("later pushes still count", 2, false, true).await;
            assert!(setting.expect(&["memberships", "status"], "").contains("set aside: 5 events"));
        })
        .await;
    })
    .await;
}
