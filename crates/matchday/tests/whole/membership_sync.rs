//! Lists agree with the homeserver, whatever dies and whatever is lost on the way.

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

/// How soon a list shows what is pushed.
const SOON: Duration = Duration::from_secs(2);

/// People, and the rooms in which they meet.
struct Club {
    chat: Homeserver,
    /// The service's own token, by which it sees all rooms.
    service: String,
    /// The first one opened the rooms.
    people: Vec<Person>,
    open: [String; 2],
    closed: String,
}

/// For each person the rooms in their list, with how many members and whether they are one.
type Lists = Vec<BTreeMap<String, (i64, bool)>>;

impl Club {
    async fn founded(setting: &Setting, client: &Client, chat: &Homeserver) -> Self {
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

    /// What all lists must show, by what the homeserver says.
    async fn truth(&self) -> Lists {
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

    /// What all lists show.
    async fn lists(&self, client: &Client) -> Lists {
        let list = async |person| {
            let rooms = client.rooms(person).await.into_iter();
            rooms.map(|(room, listed)| (room, (listed.members, listed.is_joined))).collect()
        };
        join_all(self.people.iter().map(list)).await
    }

    /// Brings somebody in or out with their chat client. In the private room that takes the owner's too.
    async fn moves(&self, person: &Person, room: &str, comes: bool) {
        let owner = self.people[0].chat_token();
        let (status, told) = if !comes {
            self.chat.act("leave", room, person.chat_token(), json!({})).await
        } else if room == self.closed {
            self.chat.act("invite", room, owner, json!({"user_id": person.user_id()})).await
        } else {
            self.chat.join(room, person.chat_token()).await
        };
        assert_eq!(status, 200, "{} in {room}: {told}", person.username);
        if comes && room == self.closed {
            let (status, told) = self.chat.join(room, person.chat_token()).await;
            assert_eq!(status, 200, "{told}");
        }
    }

    /// Who is where at first; by and by those who come and go end where others began.
    async fn gathers(&self) {
        for (number, person) in self.people.iter().enumerate().skip(1) {
            self.moves(person, &self.open[number % 2], true).await;
        }
        self.moves(&self.people[1], &self.closed, true).await;
    }

    /// Comes and goes, round after round, until this much time has passed; returns when somebody last spoke in each
    /// public room. Everybody ends in the other public room, and somebody else in the private one.
    async fn comes_and_goes(&self, time: Duration) -> [OffsetDateTime; 2] {
        let began = Instant::now();
        let mut spoke = [OffsetDateTime::UNIX_EPOCH; 2];
        // An odd number of rounds puts everybody where they were not.
        for round in 1.. {
            for (number, person) in self.people.iter().enumerate().skip(1) {
                let from = (number + round + 1) % 2;
                self.moves(person, &self.open[1 - from], true).await;
                self.moves(person, &self.open[from], false).await;
                spoke[1 - from] = self.said(person, &self.open[1 - from]).await;
            }
            let (out, to) = if round % 2 == 1 { (1, 2) } else { (2, 1) };
            self.moves(&self.people[out], &self.closed, false).await;
            self.moves(&self.people[to], &self.closed, true).await;
            if round % 2 == 1 && began.elapsed() >= time {
                break;
            }
        }
        let invited = json!({"user_id": self.people[3].user_id()});
        let (status, told) = self.chat.act("invite", &self.closed, self.people[0].chat_token(), invited).await;
        assert_eq!(status, 200, "{told}");
        spoke
    }

    /// Says something, and asks when that was.
    async fn said(&self, person: &Person, room: &str) -> OffsetDateTime {
        let (status, said) = self.chat.say(room, person.chat_token(), "Here I am.").await;
        assert_eq!(status, 200, "{said}");
        let path = format!("/_matrix/client/v3/rooms/{room}/event/{}", said["event_id"].as_str().expect("an id"));
        let event = self.chat.get(&path, person.chat_token()).await.1;
        let millis = event["origin_server_ts"].as_i64().expect("a time");
        OffsetDateTime::UNIX_EPOCH + time::Duration::milliseconds(millis)
    }
}

#[tokio::test]
async fn half_a_minute_without_the_service_is_caught_up_with_in_ten_seconds() {
    is_caught_up_with(Duration::from_secs(30), async |process| {
        process.signal("TERM");
        process.ended().await;
    })
    .await;
}

#[tokio::test]
async fn a_killed_service_catches_up_in_ten_seconds() {
    is_caught_up_with(Duration::from_secs(5), async |process| process.kill()).await;
}

/// The service ends, members come and go, the service returns.
async fn is_caught_up_with(away: Duration, end: impl AsyncFnOnce(&mut Process)) {
    with_database(async |options| {
        with_synapse(&options, async |synapse| {
            let setting = synapse.setting(&options);
            let mut process = setting.start(&["serve"]);
            let client = Client::new(&process);
            let club = Club::founded(&setting, &client, &Homeserver::at(&synapse.url)).await;
            club.gathers().await;
            let before = club.truth().await;
            shows(SOON, "lists agree before", &before, async || club.lists(&client).await).await;

            end(&mut process).await;
            let spoke = club.comes_and_goes(away).await;
            let after = club.truth().await;
            assert_ne!(after, before);

            let began = Instant::now();
            let left = || Duration::from_secs(10).saturating_sub(began.elapsed());
            let process = setting.start(&["serve"]);
            let client = Client::new(&process);
            // First what only pushes tell: while older ones still come, lists may agree and then not any more.
            for (room, spoke) in club.open.iter().zip(spoke) {
                let look = async || client.last_activity(&club.people[0], room).await;
                shows(left(), "when somebody last spoke", &spoke, look).await;
            }
            shows(left(), "lists agree after", &after, async || club.lists(&client).await).await;
            crate::report(&format!("caught up in {:.1?}", began.elapsed()));
        })
        .await;
    })
    .await;
}

/// The homeserver dies in the middle of comings and goings, and what it was about to push dies with it.
#[tokio::test]
async fn after_a_homeserver_was_killed_lists_agree_with_it_within_twenty_seconds() {
    with_database(async |options| {
        with_synapse(&options, async |synapse| {
            let setting = synapse.setting(&options);
            let process = setting.start(&["serve"]);
            let (client, chat) = (Client::new(&process), Homeserver::at(&synapse.url));
            let club = Club::founded(&setting, &client, &chat).await;
            club.gathers().await;
            let rooms = 3.0;
            for (round, killed_after) in [5, 12].into_iter().enumerate() {
                let compared = process.counted("matchday_mirror_comparisons_total").await;
                let (moves, enough) = (AtomicUsize::new(0), Notify::new());
                let come_and_go = async |(number, person): (usize, &Person)| {
                    let room = &club.open[(number + round) % 2];
                    for verb in ["join", "leave"].into_iter().cycle() {
                        let path = format!("/_matrix/client/v3/rooms/{room}/{verb}");
                        let Some(status) = chat.try_post(&path, person.chat_token(), json!({})).await else { break };
                        assert!(status == 200 || (status == 403 && verb == "leave"), "{verb}: {status}");
                        if moves.fetch_add(1, Ordering::Relaxed) + 1 == killed_after {
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
                let comes = !club.truth().await[4][&club.open[0]].1;
                club.moves(person, &club.open[0], comes).await;
                let truth = club.truth().await;
                shows(left(), "lists agree", &truth, async || club.lists(&client).await).await;
                let agreed = began.elapsed();
                let look = async || process.counted("matchday_mirror_comparisons_total").await >= compared + rooms;
                shows(left(), "all rooms were compared", &true, look).await;
                let corrected = process.counted("matchday_mirror_corrections_total").await;
                crate::report(&format!(
                    "agreed after {agreed:.1?}, compared after {:.1?}; {corrected} corrections so far",
                    began.elapsed()
                ));
                // Comparing changed nothing that was right.
                assert_eq!(club.lists(&client).await, truth);
            }
        })
        .await;
    })
    .await;
}

/// Both die, and the homeserver is back before the service: nothing tells it that anything was missed.
#[tokio::test]
async fn after_both_were_killed_lists_agree_within_twenty_seconds() {
    with_database(async |options| {
        with_synapse(&options, async |synapse| {
            let setting = synapse.setting(&options);
            let mut process = setting.start(&["serve"]);
            let client = Client::new(&process);
            let club = Club::founded(&setting, &client, &Homeserver::at(&synapse.url)).await;
            club.gathers().await;
            process.kill();
            club.comes_and_goes(Duration::from_secs(15)).await;
            synapse.kill();
            synapse.start().await;
            let truth = club.truth().await;

            let began = Instant::now();
            let process = setting.start(&["serve"]);
            let client = Client::new(&process);
            let left = Duration::from_secs(20).saturating_sub(began.elapsed());
            shows(left, "lists agree", &truth, async || club.lists(&client).await).await;
            crate::report(&format!("agreed after {:.1?}", began.elapsed()));
        })
        .await;
    })
    .await;
}

/// The way from the homeserver to the process, on which things can be lost.
#[derive(Clone)]
struct Way {
    to: String,
    /// What was lost, while things are.
    lost: Arc<Mutex<Option<Vec<Value>>>>,
}

impl Way {
    /// Listens where the homeserver pushes to.
    async fn open(from: &str, to: &Process) -> Self {
        let way = Self { to: to.private.clone(), lost: Arc::default() };
        let listener = TcpListener::bind(from).await.expect("a free address");
        let router = Router::new().fallback(pass).with_state(way.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        way
    }

    fn loses(&self) {
        *self.lost.lock().expect("not poisoned") = Some(Vec::new());
    }

    fn loses_nothing_more(&self) {
        *self.lost.lock().expect("not poisoned") = None;
    }

    /// Whether this event was lost.
    fn has_lost(&self, is_it: impl Fn(&Value) -> bool) -> bool {
        self.lost.lock().expect("not poisoned").iter().flatten().any(is_it)
    }
}

async fn pass(State(way): State<Way>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.expect("a whole request");
    if let Some(lost) = &mut *way.lost.lock().expect("not poisoned") {
        let mut transaction: Value = serde_json::from_slice(&body).unwrap_or_default();
        if let Value::Array(events) = transaction["events"].take() {
            lost.extend(events);
            return axum::Json(json!({})).into_response();
        }
    }
    let path = parts.uri.path_and_query().expect("a path").as_str();
    let request = reqwest::Client::new().request(parts.method, format!("{}{path}", way.to)).headers(parts.headers);
    let Ok(answer) = request.body(body).send().await else { return StatusCode::BAD_GATEWAY.into_response() };
    (answer.status(), Body::from(answer.bytes().await.unwrap_or_default())).into_response()
}

/// Pushes that the homeserver believes to have arrived are never pushed again.
#[tokio::test]
async fn what_was_lost_on_the_way_is_found_by_comparing_and_later_pushes_count_again() {
    with_database(async |options| {
        with_synapse(&options, async |synapse| {
            let setting = synapse.setting(&options).with("MATCHDAY_HTTP__PRIVATE_LISTEN", "127.0.0.1:0");
            let process = setting.start(&["serve"]);
            let way = Way::open(&synapse.pushes_to, &process).await;
            let (client, chat) = (Client::new(&process), Homeserver::at(&synapse.url));
            let club = Club::founded(&setting, &client, &chat).await;
            club.gathers().await;
            let before = club.truth().await;
            shows(SOON, "lists agree before", &before, async || club.lists(&client).await).await;

            way.loses();
            club.comes_and_goes(Duration::ZERO).await;
            // The service knows of this one, and waits for the push of it.
            let (told, room) = (&club.people[1], &club.open[0]);
            client.act("join", room, told, json!({})).await.expect(200);
            let truth = club.truth().await;
            assert_ne!(club.lists(&client).await, truth, "what is lost shows nowhere");
            shows(SOON, "all of it is lost", &true, async || {
                way.has_lost(|event| event["state_key"] == told.user_id() && event["room_id"] == *room)
            })
            .await;
            way.loses_nothing_more();

            let began = Instant::now();
            let compared = process.counted("matchday_mirror_comparisons_total").await;
            setting.expect(&["mirror", "compare"], "");
            shows(Duration::from_secs(10), "lists agree", &truth, async || club.lists(&client).await).await;
            crate::report(&format!("lists agree {:.1?} after somebody asked for a comparison", began.elapsed()));
            let look = async || process.counted("matchday_mirror_comparisons_total").await >= compared + 3.0;
            shows(Duration::from_secs(10), "all rooms were compared", &true, look).await;

            club.moves(told, room, false).await;
            let truth = club.truth().await;
            shows(SOON, "they left again", &truth, async || club.lists(&client).await).await;
        })
        .await;
    })
    .await;
}

/// Pushes a transaction, as the homeserver does; returns the status.
async fn push(process: &Process, token: Option<&str>, id: &str, events: &[&Value]) -> u16 {
    let path = format!("{}/_matrix/app/v1/transactions/{id}", process.private);
    let mut request = reqwest::Client::new().put(path).json(&json!({"events": events}));
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    request.send().await.expect("an answer").status().as_u16()
}

/// The homeserver pushes to nobody here, and the test pushes in its place: what it says, and what it never would.
#[tokio::test]
async fn a_push_counts_once_and_from_the_homeserver_alone_and_nonsense_is_set_aside() {
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
                let (status, told) = chat.act(verb, &room, person.chat_token(), json!({})).await;
                assert_eq!(status, 200, "{told}");
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
            becomes("a refused push may come again", 3, true, true).await;

            let bob_left = moved(&bob, "leave").await;
            assert_eq!(push(&process, Some(&hs_token), "3", &[&bob_left]).await, 200);
            becomes("somebody left", 2, false, true).await;
            assert_eq!(push(&process, Some(&hs_token), "1", &[&bob_came]).await, 200, "it is known, and that is fine");
            let zoe_left = moved(&zoe, "leave").await;
            assert_eq!(push(&process, Some(&hs_token), "1", &[&bob_came, &zoe_left]).await, 200);
            becomes("what is known counts once, what is new counts under any id", 1, false, false).await;

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
            becomes("the good ones among them count", 3, true, true).await;
            let status = setting.expect(&["mirror", "status"], "");
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
            assert_eq!(push(&process, Some(&hs_token), "4", &mixed).await, 200, "again, all of it");
            let bob_left = moved(&bob, "leave").await;
            assert_eq!(push(&process, Some(&hs_token), "5", &[&bob_left]).await, 200);
            becomes("afterwards everything goes on", 2, false, true).await;
            assert!(setting.expect(&["mirror", "status"], "").contains("set aside: 5 events"));
        })
        .await;
    })
    .await;
}
