//! What many apps do, at a rate that is fixed beforehand.

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
    connection::{Connection, Question},
    stage::client::{Homeserver, Person, person},
};

/// How many apps there are.
pub(super) const FANS: usize = 40;
/// Every fifth has its user chat. Those wait for the homeserver, and must not keep the others from being in time.
const CHATS_EVERY: usize = 5;
/// How often those do something.
const CHATS: Duration = Duration::from_secs(5);

/// How many things the others do in a second, all together: `MATCHDAY_SOAK_RATE`, or 150.
pub(super) fn rate() -> u32 {
    std::env::var("MATCHDAY_SOAK_RATE").map_or(150, |rate| rate.parse().expect("a number"))
}

/// How many of a thousand things are what.
const SHARES: [(Action, u64); 8] = [
    (Action::List, 400),
    (Action::Look, 140),
    (Action::Predict, 170),
    (Action::Spend, 140),
    (Action::Board, 80),
    (Action::Claim, 10),
    (Action::Annoy, 50),
    (Action::Guess, 10),
];
const SHARES_OF_CHAT: [(Action, u64); 4] =
    [(Action::Meet, 770), (Action::Board, 100), (Action::Open, 30), (Action::Visit, 100)];

/// What is right where the homeserver must do something: done; or, after it did not answer in time and nobody knows what
/// it did, "already a member" and "not a member".
const CHAT: &[u16] = &[200, 201, 403, 409];

fn is_chat_unavailable(answer: &Answer) -> bool {
    let told: Value = serde_json::from_slice(&answer.bytes).unwrap_or_default();
    let is_expected = told["code"] == "chat_unavailable" || told["code"] == "room_busy";
    answer.status == 503 && is_expected && answer.header("retry-after").is_some()
}

#[derive(Clone, Copy)]
enum Action {
    List,
    Look,
    Predict,
    Spend,
    Board,
    Claim,
    Meet,
    Open,
    Annoy,
    Guess,
    Visit,
}

/// What all apps share.
pub(super) struct Traffic {
    pub(super) began: Instant,
    pub(super) until: Instant,
    pub(super) chat: Homeserver,
    /// The first match that has no result and will not have one for a while, counted from 1.
    pub(super) open_from: AtomicUsize,
    /// The rooms of matches.
    pub(super) rooms: Vec<String>,
    record: Mutex<Record>,
}

/// How it went.
#[derive(Default)]
pub(super) struct Record {
    /// How long requests took, from the moment at which they were due.
    pub(super) latencies: BTreeMap<&'static str, Vec<Duration>>,
    pub(super) statuses: BTreeMap<u16, u64>,
    /// Requests that only the homeserver can answer, and how many were told that it did not in time.
    pub(super) chats: u64,
    pub(super) chats_refused: u64,
    /// What was not as it should be.
    pub(super) wrong: Vec<String>,
}

impl Traffic {
    pub(super) fn new(lasts: Duration, chat: Homeserver, rooms: Vec<String>) -> Arc<Self> {
        let began = Instant::now();
        let open_from = AtomicUsize::new(1);
        Arc::new(Self { began, until: began + lasts, chat, open_from, rooms, record: Mutex::default() })
    }

    pub(super) fn record<T>(&self, look: impl FnOnce(&mut Record) -> T) -> T {
        look(&mut self.record.lock().expect("not poisoned"))
    }

    pub(super) fn wrong(&self, what: &str) {
        let at = self.began.elapsed();
        self.record(|record| record.wrong.push(format!("after {at:.1?}: {what}")));
    }
}

/// One app: a connection that it keeps, somebody who is logged in, and what they have done so far.
pub(super) struct Fan {
    traffic: Arc<Traffic>,
    number: usize,
    connection: Connection,
    dice: u64,
    person: Person,
    /// How often somebody logged in here.
    visits: u64,
    etag: String,
    /// The room they are in, and how often they have spoken there.
    room: Option<(String, u32)>,
    orders: u64,
    /// The last order: what was asked, and what came of it.
    ordered: Option<(Value, String)>,
    /// When the present thing was due.
    due: Instant,
}

impl Fan {
    /// Logs in.
    pub(super) async fn new(traffic: &Arc<Traffic>, address: &str, number: usize) -> Self {
        let nobody = Person { phone: String::new(), username: String::new(), token: String::new(), chat: Value::Null };
        let mut fan = Self {
            traffic: Arc::clone(traffic),
            number,
            connection: Connection::to(address),
            dice: number as u64,
            person: nobody,
            visits: 0,
            etag: String::new(),
            room: None,
            orders: 0,
            ordered: None,
            due: Instant::now(),
        };
        fan.log_in().await.expect("logged in");
        fan
    }

    /// The same app in traffic that begins now.
    pub(super) fn with(self, traffic: &Arc<Traffic>) -> Self {
        Self { traffic: Arc::clone(traffic), ..self }
    }

    /// Does one thing after another, each when it is due, whether or not the one before took longer.
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
                Action::Look => self.look().await,
                Action::Predict => self.predict().await,
                Action::Spend => self.spend().await,
                Action::Board => self.board().await,
                Action::Claim => self.claim().await,
                Action::Meet => self.meet().await,
                Action::Open => self.open().await,
                Action::Annoy => self.annoy().await,
                Action::Guess => self.guess().await,
                Action::Visit => self.visit().await,
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

    /// A number below this; the same ones in every run (`SplitMix64`).
    fn draw(&mut self, below: u64) -> u64 {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.dice;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }

    /// Asks, and writes down how it went. None if the answer is not one of those that are right.
    async fn ask(&mut self, kind: &'static str, expected: &[u16], question: Question<'_>) -> Option<Answer> {
        let due = self.due;
        let path = question.path.to_owned();
        let answer = self.connection.ask(question).await;
        let took = due.elapsed();
        // What follows in the same turn is due now.
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
        let told = answer.map_or_else(|error| error, |answer| String::from_utf8_lossy(&answer.bytes).into_owned());
        let told: String = told.chars().take(200).collect();
        self.traffic.wrong(&format!("{kind}: {path}: {status} {told}"));
        None
    }

    async fn list(&mut self) {
        let (token, etag) = (self.person.token.clone(), self.etag.clone());
        let headers = [("if-none-match", etag.as_str())];
        let question = Question::get("/api/auth/events?per_page=50", &token);
        let question = question.with(if etag.is_empty() { &[] } else { &headers });
        if let Some(answer) = self.ask("lists", &[200, 304], question).await {
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

    async fn look(&mut self) {
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
        self.ask("looks", &[200], Question::get(place, &token)).await;
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
        let answer =
            self.ask("predictions", &[200, 201, 400], Question::post("/api/auth/predictions", &token, &body)).await;
        // Whoever was about to be late may be.
        if let Some(late) =
            answer.filter(|answer| answer.status == 400 && event >= self.traffic.open_from.load(Relaxed))
        {
            self.traffic.wrong(&format!("a prediction of match {event}: {}", String::from_utf8_lossy(&late.bytes)));
        }
    }

    async fn spend(&mut self) {
        let token = self.person.token.clone();
        // One in ten is sent again.
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
        let question = Question::post("/api/auth/coins/deduct", &token, &body).with(if keyed { &key } else { &[] });
        let Some(answer) = self.ask("deductions", &[200], question).await else { return };
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
        self.ask("leaderboards", &[200], Question::get(&path, &token)).await;
    }

    /// Once a day it is a bonus, and a refusal from then on.
    async fn claim(&mut self) {
        let token = self.person.token.clone();
        self.ask("claims", &[200, 400, 429], Question::post("/api/auth/daily-coins", &token, &json!({}))).await;
    }

    /// Joins the room of a match, speaks there three times, and leaves.
    async fn meet(&mut self) {
        let (token, chat) = (self.person.token.clone(), self.traffic.chat.clone());
        match self.room.take() {
            None => {
                let room = usize::try_from(self.draw(self.traffic.rooms.len() as u64)).expect("few");
                let room = self.traffic.rooms[room].clone();
                let path = format!("/api/auth/chat-rooms/{room}/join");
                let joined = self.ask("joins", CHAT, Question::post(&path, &token, &json!({}))).await;
                self.room = joined.map(|answer| {
                    // It may be another stand, or one that they could not leave.
                    let told: Value = serde_json::from_slice(&answer.bytes).unwrap_or_default();
                    (told["data"]["room_id"].as_str().map_or(room, str::to_owned), 0)
                });
            }
            Some((room, said)) if said < 3 && self.person.chat.is_object() => {
                let began = Instant::now();
                let (status, told) = chat.say(&room, self.person.chat_token(), "come on").await;
                let took = began.elapsed();
                self.traffic.record(|record| {
                    record.latencies.entry("messages (homeserver)").or_default().push(took);
                });
                if status != 200 {
                    self.traffic.wrong(&format!("a message: {status} {told}"));
                }
                self.room = Some((room, said + 1));
            }
            Some((room, _)) => {
                let path = format!("/api/auth/chat-rooms/{room}/leave");
                self.ask("leaves", CHAT, Question::post(&path, &token, &json!({}))).await;
            }
        }
    }

    async fn open(&mut self) {
        let token = self.person.token.clone();
        let wish = json!({"name": format!("Room {} of {}", self.orders, self.person.username)});
        self.ask("rooms opened", CHAT, Question::post("/api/auth/chat-room", &token, &wish)).await;
    }

    /// What nobody should send, and everybody gets.
    async fn annoy(&mut self) {
        let token = self.person.token.clone();
        let post = |path, token, body: Vec<u8>| Question {
            method: Method::POST,
            path,
            token,
            headers: &[],
            body: Bytes::from(body),
        };
        let (question, expected) = match self.draw(7) {
            0 => (Question::get("/api/auth/events", "md_nonsense"), 401),
            1 => (Question::get("/api/auth/nowhere", &token), 404),
            2 => (post("/api/auth/predictions", &token, b"{\"event_id\": ".to_vec()), 400),
            3 => (post("/api/auth/predictions", &token, b"{\"event_id\": \"x\", \"prediction\": 7}".to_vec()), 422),
            4 => (post("/api/auth/predictions", &token, vec![b'['; 70_000]), 413),
            5 => (post("/api/auth/coins/deduct", &token, b"{\"amount\": -5, \"reason\": \"purchase\"}".to_vec()), 422),
            _ => (Question::get("/api/auth/events?page=nowhere", &token), 422),
        };
        self.ask("hostile", &[expected], question).await;
    }

    /// A wrong code, for a phone that never asked for one.
    async fn guess(&mut self) {
        let phone = format!("+1416{:03}{:04}", 200 + self.number, self.draw(1_000));
        let body = json!({"phone": phone, "code": "000000"});
        self.ask("guesses", &[401, 429], Question::post("/api/code/verify", "", &body)).await;
    }

    /// Ends the session, and comes again as somebody else or as the same.
    async fn visit(&mut self) {
        if let Some((room, _)) = self.room.take() {
            let (path, token) = (format!("/api/auth/chat-rooms/{room}/leave"), self.person.token.clone());
            self.ask("leaves", CHAT, Question::post(&path, &token, &json!({}))).await;
        }
        let token = self.person.token.clone();
        self.ask("logouts", &[200], Question::post("/api/auth/logout", &token, &json!({}))).await;
        self.ask("logouts", &[401], Question::get("/api/auth/me", &token)).await;
        self.etag.clear();
        self.ordered = None;
        self.log_in().await;
    }

    async fn log_in(&mut self) -> Option<()> {
        // Everybody comes twice: a phone gets five codes at once, and no more than ten a day.
        let phone = format!("+1415{:03}{:04}", 200 + self.number, self.visits / 2);
        self.visits += 1;
        let wish = json!({"phone": phone});
        self.ask("codes", &[200], Question::post("/api/code/request", "", &wish)).await?;
        let path = format!("/api/logs/sms?phone={}&status=sent", phone.replace('+', "%2B"));
        let log = self.ask("logs", &[200], Question::get(&path, "")).await?.expect(200);
        let code = log["data"][0]["code"].as_str().expect("a code");
        let body = json!({"phone": phone, "code": code});
        let entered = self.ask("logins", &[200], Question::post("/api/code/verify", "", &body)).await?.expect(200);
        if entered["data"]["matrix_credentials"].is_null() {
            self.traffic.wrong(&format!("a login without chat credentials: {phone}"));
        }
        self.person = person(&phone, &entered);
        Some(())
    }
}
