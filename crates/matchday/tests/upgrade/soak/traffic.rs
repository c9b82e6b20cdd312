//! Traffic of many apps at a fixed rate.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::Method;
use matchday::testing::Answer;
use serde_json::{Value, json};

use super::MATCHES;
use crate::{
    connection::{Call, Connection},
    stage::client::{Homeserver, Person, person},
};

/// Number of simulated apps.
pub(super) const FANS: usize = 40;
/// Every fifth app chats. Chatting apps wait for the homeserver, and must not delay the schedule of the others.
const CHATS_EVERY: usize = 5;
/// Interval between actions of a chatting app.
const CHATS: Duration = Duration::from_secs(5);

/// Actions per second of all other apps together: `MATCHDAY_SOAK_RATE`, or 150.
pub(super) fn rate() -> u32 {
    std::env::var("MATCHDAY_SOAK_RATE").map_or(150, |rate| rate.parse().expect("a number"))
}

/// Share of each action, in thousandths.
const SHARES: [(Action, u64); 8] = [
    (Action::List, 400),
    (Action::Read, 140),
    (Action::Predict, 170),
    (Action::Spend, 140),
    (Action::Board, 80),
    (Action::Claim, 10),
    (Action::SendInvalid, 50),
    (Action::Guess, 10),
];
const SHARES_OF_CHAT: [(Action, u64); 4] =
    [(Action::JoinAndChat, 770), (Action::Board, 100), (Action::Open, 30), (Action::LogOutAndIn, 100)];

/// Valid statuses of requests that need the homeserver. After a homeserver timeout the outcome is unknown, so "already
/// a member" (409) and "not a member" (403) are valid too.
const CHAT: &[u16] = &[200, 201, 403, 409];

fn is_chat_unavailable(answer: &Answer) -> bool {
    let reply: Value = serde_json::from_slice(&answer.bytes).unwrap_or_default();
    let is_expected = reply["code"] == "chat_unavailable" || reply["code"] == "room_busy";
    answer.status == 503 && is_expected && answer.header("retry-after").is_some()
}

#[derive(Clone, Copy)]
enum Action {
    List,
    Read,
    Predict,
    Spend,
    Board,
    Claim,
    JoinAndChat,
    Open,
    SendInvalid,
    Guess,
    LogOutAndIn,
}

/// State that all apps share.
pub(super) struct Traffic {
    pub(super) began: Instant,
    pub(super) until: Instant,
    pub(super) chat: Homeserver,
    /// First match that stays open for a while, counted from 1.
    pub(super) open_from: AtomicUsize,
    /// Ids of the match rooms.
    pub(super) rooms: Vec<String>,
    record: Mutex<Record>,
}

/// Outcomes of all requests.
#[derive(Default)]
pub(super) struct Record {
    /// Latencies by kind, measured from the moment at which each request was due.
    pub(super) latencies: BTreeMap<&'static str, Vec<Duration>>,
    pub(super) statuses: BTreeMap<u16, u64>,
    /// Requests that need the homeserver, and how many of them got 503 because it timed out.
    pub(super) chats: u64,
    pub(super) chats_refused: u64,
    /// Descriptions of unexpected outcomes.
    pub(super) wrong: Vec<String>,
}

impl Traffic {
    pub(super) fn new(lasts: Duration, chat: Homeserver, rooms: Vec<String>) -> Arc<Self> {
        let began = Instant::now();
        let open_from = AtomicUsize::new(1);
        Arc::new(Self { began, until: began + lasts, chat, open_from, rooms, record: Mutex::default() })
    }

    pub(super) fn record<T>(&self, access: impl FnOnce(&mut Record) -> T) -> T {
        access(&mut self.record.lock().expect("not poisoned"))
    }

    pub(super) fn wrong(&self, what: &str) {
        let at = self.began.elapsed();
        self.record(|record| record.wrong.push(format!("after {at:.1?}: {what}")));
    }
}

/// One app with a kept connection, a logged-in user, and its history.
pub(super) struct Fan {
    traffic: Arc<Traffic>,
    number: usize,
    connection: Connection,
    dice: u64,
    person: Person,
    /// Number of logins so far.
    logins: u64,
    etag: String,
    /// Joined room, and number of messages sent to it.
    room: Option<(String, u32)>,
    orders: u64,
    /// Last order and its transaction.
    ordered: Option<(Value, String)>,
    /// Time at which the current request was due.
    due: Instant,
}

impl Fan {
    /// Creates the app and logs its user in.
    pub(super) async fn new(traffic: &Arc<Traffic>, address: &str, number: usize) -> Self {
        let logged_out =
            Person { phone: String::new(), username: String::new(), token: String::new(), chat: Value::Null };
        let mut fan = Self {
            traffic: Arc::clone(traffic),
            number,
            connection: Connection::to(address),
            dice: number as u64,
            person: logged_out,
            logins: 0,
            etag: String::new(),
            room: None,
            orders: 0,
            ordered: None,
            due: Instant::now(),
        };
        fan.log_in().await.expect("logged in");
        fan
    }

    /// Moves the app to traffic that starts now.
    pub(super) fn with(self, traffic: &Arc<Traffic>) -> Self {
        Self { traffic: Arc::clone(traffic), ..self }
    }

    /// Runs actions on a fixed schedule, even if an earlier action took longer than its interval.
    pub(super) async fn run(mut self) {
        let few = |number: usize| u32::try_from(number).expect("few");
        let pause = if self.chats() { CHATS } else { Duration::from_secs(1) * few(FANS - FANS / CHATS_EVERY) / rate() };
        let first = self.traffic.began + pause * few(self.number) / few(FANS);
        for turn in 0.. {
            self.due = first + pause * turn;
            if self.due > self.traffic.until {
                return;
            }
            tokio::time::sleep_until(self.due.into()).await;
            match self.choose() {
                Action::List => self.list().await,
                Action::Read => self.read().await,
                Action::Predict => self.predict().await,
                Action::Spend => self.spend().await,
                Action::Board => self.board().await,
                Action::Claim => self.claim().await,
                Action::JoinAndChat => self.join_and_chat().await,
                Action::Open => self.open().await,
                Action::SendInvalid => self.send_invalid().await,
                Action::Guess => self.guess().await,
                Action::LogOutAndIn => self.log_out_and_in().await,
            }
        }
    }

    fn choose(&mut self) -> Action {
        let shares = if self.chats() { SHARES_OF_CHAT.as_slice() } else { &SHARES };
        let mut drawn = self.draw(1_000);
        for (action, share) in shares {
            if drawn < *share {
                return *action;
            }
            drawn -= share;
        }
        Action::List
    }

    fn chats(&self) -> bool {
        self.number.is_multiple_of(CHATS_EVERY)
    }

    /// Pseudorandom number below the limit, with the same sequence in every run (`SplitMix64`).
    fn draw(&mut self, below: u64) -> u64 {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.dice;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }

    /// Sends a request and records its outcome. Returns `None` unless the status is expected.
    async fn send(&mut self, kind: &'static str, expected: &[u16], call: Call<'_>) -> Option<Answer> {
        let due = self.due;
        let path = call.path.to_owned();
        let answer = self.connection.send(call).await;
        let took = due.elapsed();
        // Further requests of the same action are due now.
        self.due = Instant::now();
        let status = answer.as_ref().map_or(0, |answer| answer.status.as_u16());
        self.traffic.record(|record| {
            record.latencies.entry(kind).or_default().push(took);
            *record.statuses.entry(status).or_default() += 1;
            record.chats += u64::from(expected == CHAT);
        });
        if expected.contains(&status) {
            return answer.ok();
        }
        if expected == CHAT && answer.as_ref().is_ok_and(is_chat_unavailable) {
            self.traffic.record(|record| record.chats_refused += 1);
            return None;
        }
        let reply = answer.map_or_else(|error| error, |answer| String::from_utf8_lossy(&answer.bytes).into_owned());
        let reply: String = reply.chars().take(200).collect();
        self.traffic.wrong(&format!("{kind}: {path}: {status} {reply}"));
        None
    }

    async fn list(&mut self) {
        let (token, etag) = (self.person.token.clone(), self.etag.clone());
        let headers = [("if-none-match", etag.as_str())];
        let call = Call::get("/api/auth/events?per_page=50", &token);
        let call = call.with(if etag.is_empty() { &[] } else { &headers });
        if let Some(answer) = self.send("lists", &[200, 304], call).await {
            let is_new = answer.header("etag").is_some_and(|found| found != etag);
            if (answer.status == 304) == is_new {
                self.traffic.wrong(&format!(
                    "a list with status {} and etag {:?}",
                    answer.status,
                    answer.header("etag")
                ));
            }
            answer.header("etag").unwrap_or_default().clone_into(&mut self.etag);
        }
    }

    async fn read(&mut self) {
        const PLACES: [&str; 7] = [
            "/api/auth/me",
            "/api/auth/teams",
            "/api/auth/tournaments",
            "/api/auth/predictions",
            "/api/auth/coins",
            "/api/auth/sessions",
            "/api/auth/chat-rooms",
        ];
        let (token, place) = (self.person.token.clone(), self.draw(PLACES.len() as u64));
        let place = PLACES[usize::try_from(place).expect("few")];
        self.send("reads", &[200], Call::get(place, &token)).await;
    }

    async fn predict(&mut self) {
        let open_from = self.traffic.open_from.load(Relaxed);
        let event = open_from + usize::try_from(self.draw((MATCHES - open_from + 1) as u64)).expect("few");
        let (home, away, confidence) = (self.draw(4), self.draw(4), self.draw(101));
        let pick = match home.cmp(&away) {
            std::cmp::Ordering::Greater => "home",
            std::cmp::Ordering::Less => "away",
            std::cmp::Ordering::Equal => "draw",
        };
        let body = json!({"event_id": event, "prediction": pick, "confidence": confidence,
                          "score_prediction": {"home": home, "away": away}});
        let token = self.person.token.clone();
        // A fan who has changed a prediction often gets a 409.
        let answer =
            self.send("predictions", &[200, 201, 400, 409], Call::post("/api/auth/predictions", &token, &body)).await;
        // A 400 is valid if the match closed while the request was in flight.
        if let Some(late) =
            answer.filter(|answer| answer.status == 400 && event >= self.traffic.open_from.load(Relaxed))
        {
            self.traffic.wrong(&format!("a prediction of match {event}: {}", String::from_utf8_lossy(&late.bytes)));
        }
    }

    async fn spend(&mut self) {
        let token = self.person.token.clone();
        // Repeat the last order in one of ten cases.
        let again = if self.draw(10) == 0 { self.ordered.clone() } else { None };
        let (order, is_new) = if let Some((order, _)) = &again {
            (order.clone(), false)
        } else {
            self.orders += 1;
            let name = format!("order-{}-{}", self.number, self.orders);
            (json!({"name": name, "amount": 1 + self.orders % 9, "keyed": self.orders.is_multiple_of(2)}), true)
        };
        let name = order["name"].as_str().expect("a name").to_owned();
        let mut body = json!({"amount": order["amount"], "reason": "purchase"});
        let key = [("idempotency-key", name.as_str())];
        let keyed = order["keyed"] == true;
        if !keyed {
            body["reference_id"] = json!(name);
        }
        let call = Call::post("/api/auth/coins/deduct", &token, &body).with(if keyed { &key } else { &[] });
        let Some(answer) = self.send("deductions", &[200], call).await else { return };
        let id = answer.expect(200)["data"]["transaction_id"].as_str().expect("an id").to_owned();
        match again {
            Some((_, first)) if first != id => self.traffic.wrong(&format!("{name} was paid for twice: {first}, {id}")),
            _ if is_new => self.ordered = Some((order, id)),
            _ => {}
        }
    }

    async fn board(&mut self) {
        let token = self.person.token.clone();
        let path = match (self.draw(3), &self.room) {
            (0, Some((room, _))) => format!("/api/auth/leaderboards?room_id={room}"),
            (1, _) => "/api/auth/leaderboards?tournament_id=1".to_owned(),
            _ => "/api/auth/leaderboards".to_owned(),
        };
        self.send("leaderboards", &[200], Call::get(&path, &token)).await;
    }

    /// Claims the daily bonus, which succeeds once a day and is refused otherwise.
    async fn claim(&mut self) {
        let token = self.person.token.clone();
        self.send("claims", &[200, 400, 429], Call::post("/api/auth/daily-coins", &token, &json!({}))).await;
    }

    /// Joins a match room, sends three messages, and leaves.
    async fn join_and_chat(&mut self) {
        let (token, chat) = (self.person.token.clone(), self.traffic.chat.clone());
        match self.room.take() {
            None => {
                let room = usize::try_from(self.draw(self.traffic.rooms.len() as u64)).expect("few");
                let room = self.traffic.rooms[room].clone();
                let path = format!("/api/auth/chat-rooms/{room}/join");
                let joined = self.send("joins", CHAT, Call::post(&path, &token, &json!({}))).await;
                self.room = joined.map(|answer| {
                    // The response may name another stand, or the room that the user failed to leave before.
                    let reply: Value = serde_json::from_slice(&answer.bytes).unwrap_or_default();
                    (reply["data"]["room_id"].as_str().map_or(room, str::to_owned), 0)
                });
            }
            Some((room, said)) if said < 3 && self.person.chat.is_object() => {
                let began = Instant::now();
                let (status, reply) = chat.say(&room, self.person.chat_token(), "come on").await;
                let took = began.elapsed();
                self.traffic.record(|record| {
                    record.latencies.entry("messages (homeserver)").or_default().push(took);
                });
                if status != 200 {
                    self.traffic.wrong(&format!("a message: {status} {reply}"));
                }
                self.room = Some((room, said + 1));
            }
            Some((room, _)) => {
                let path = format!("/api/auth/chat-rooms/{room}/leave");
                self.send("leaves", CHAT, Call::post(&path, &token, &json!({}))).await;
            }
        }
    }

    async fn open(&mut self) {
        let token = self.person.token.clone();
        let request = json!({"name": format!("Room {} of {}", self.orders, self.person.username)});
        self.send("rooms opened", CHAT, Call::post("/api/auth/chat-room", &token, &request)).await;
    }

    /// Sends one of several invalid requests, which must be refused.
    async fn send_invalid(&mut self) {
        let token = self.person.token.clone();
        let post = |path, token, body: Vec<u8>| Call {
            method: Method::POST,
            path,
            token,
            headers: &[],
            body: Bytes::from(body),
        };
        let (call, expected) = match self.draw(7) {
            0 => (Call::get("/api/auth/events", "md_nonsense"), 401),
            1 => (Call::get("/api/auth/nowhere", &token), 404),
            2 => (post("/api/auth/predictions", &token, b"{\"event_id\": ".to_vec()), 400),
            3 => (post("/api/auth/predictions", &token, b"{\"event_id\": \"x\", \"prediction\": 7}".to_vec()), 422),
            4 => (post("/api/auth/predictions", &token, vec![b'['; 70_000]), 413),
            5 => (post("/api/auth/coins/deduct", &token, b"{\"amount\": -5, \"reason\": \"purchase\"}".to_vec()), 422),
            _ => (Call::get("/api/auth/events?page=nowhere", &token), 422),
        };
        self.send("hostile", &[expected], call).await;
    }

    /// Tries a wrong code for a phone that never requested one.
    async fn guess(&mut self) {
        let phone = format!("+1416{:03}{:04}", 200 + self.number, self.draw(1_000));
        let body = json!({"phone": phone, "code": "000000"});
        self.send("guesses", &[401, 429], Call::post("/api/code/verify", "", &body)).await;
    }

    /// Logs out, and in again as the same or a new user.
    async fn log_out_and_in(&mut self) {
        if let Some((room, _)) = self.room.take() {
            let (path, token) = (format!("/api/auth/chat-rooms/{room}/leave"), self.person.token.clone());
            self.send("leaves", CHAT, Call::post(&path, &token, &json!({}))).await;
        }
        let token = self.person.token.clone();
        self.send("logouts", &[200], Call::post("/api/auth/logout", &token, &json!({}))).await;
        self.send("logouts", &[401], Call::get("/api/auth/me", &token)).await;
        self.etag.clear();
        self.ordered = None;
        self.log_in().await;
    }

    async fn log_in(&mut self) -> Option<()> {
        // Each user logs in twice: a phone gets a burst of five codes, and at most ten a day.
        let phone = format!("+1415{:03}{:04}", 200 + self.number, self.logins / 2);
        self.logins += 1;
        let request = json!({"phone": phone});
        self.send("codes", &[200], Call::post("/api/code/request", "", &request)).await?;
        let path = format!("/api/logs/sms?phone={}&status=sent", phone.replace('+', "%2B"));
        let log = self.send("logs", &[200], Call::get(&path, "")).await?.expect(200);
        let code = log["data"][0]["code"].as_str().expect("a code");
        let body = json!({"phone": phone, "code": code});
        let entered = self.send("logins", &[200], Call::post("/api/code/verify", "", &body)).await?.expect(200);
        if entered["data"]["matrix_credentials"].is_null() {
            self.traffic.wrong(&format!("a login without chat credentials: {phone}"));
        }
        self.person = person(&phone, &entered);
        Some(())
    }
}
