//! What apps do meanwhile, and what they were told.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use matchday::testing::Answer;
use serde_json::{Value, json};
use sqlx::PgPool;
use tokio::task::JoinSet;

use crate::{
    connection::{Connection, Question},
    stage::{client::within, process::Setting},
};

/// How many do each of the things that there are to do.
const FANS_OF_A_KIND: usize = 4;
const MATCHES: usize = 30;
/// From here on users are made up by tests that need many rows.
pub(crate) const NOBODYS: i64 = 1_000_000;
/// So that the load is one that a small machine has room for.
const PAUSE: Duration = Duration::from_millis(10);

/// Everything that was acknowledged.
#[derive(Default)]
pub(crate) struct Acknowledged {
    /// Requests and the slowest of them, by what was done.
    requests: BTreeMap<&'static str, (u64, Duration)>,
    slowest_lately: Duration,
    /// What went wrong, and when.
    failures: Vec<String>,
    connections: u64,
    /// The confidence last given, and how often the prediction was made, by user and match.
    predictions: BTreeMap<(i64, i64), (i64, i64)>,
    /// The transaction of each order.
    orders: BTreeMap<String, String>,
    /// The sessions' users, by login.
    logins: Vec<i64>,
    phones: BTreeSet<String>,
}

/// Apps that ask until they are told to stop.
pub(crate) struct Load {
    began: Instant,
    stop: Arc<AtomicBool>,
    spend: Arc<AtomicBool>,
    told: Arc<Mutex<Acknowledged>>,
    fans: JoinSet<()>,
    /// Those who spend coins.
    pub(crate) spenders: Vec<i64>,
}

/// One app: a connection that it keeps, and a user.
struct Fan {
    number: usize,
    connection: Connection,
    user: i64,
    token: String,
    load: Ears,
}

/// Where fans tell what they were told.
#[derive(Clone)]
struct Ears {
    began: Instant,
    stop: Arc<AtomicBool>,
    spend: Arc<AtomicBool>,
    told: Arc<Mutex<Acknowledged>>,
}

/// Matches that stay open.
pub(crate) fn document() -> String {
    let matches: Vec<Value> = (0..MATCHES)
        .map(|number| {
            json!({"key": format!("m{number}"), "home": "rovers", "away": "city", "start_time": "2090-05-01T15:00:00Z",
                   "venue": "Park", "status": "scheduled", "home_score": null, "away_score": null})
        })
        .collect();
    json!({"sport": {"slug": "football", "name": "Football"},
           "tournament": {"slug": "cup", "name": "Cup", "logo": null},
           "teams": [{"slug": "rovers", "name": "Rovers"}, {"slug": "city", "name": "City"}],
           "matches": matches})
    .to_string()
}

/// What the processes must be set to for this load.
pub(crate) fn fit(setting: Setting) -> Setting {
    setting.without("MATCHDAY_MATRIX__HOMESERVER_URL").with("MATCHDAY_COINS__WELCOME", "100000000")
}

impl Load {
    /// Begins to ask this address, once everybody is logged in. The matches are there already.
    pub(crate) async fn start(address: &str) -> Self {
        let load = Self::start_without_coins(address).await;
        load.let_them_spend();
        load
    }

    /// The same before there are coins, or before anybody has any.
    pub(crate) async fn start_without_coins(address: &str) -> Self {
        let (began, stop, spend, told) = (Instant::now(), Arc::default(), Arc::default(), Arc::default());
        let ears = Ears { began, stop, spend, told };
        let mut ready = Vec::new();
        for number in 0..FANS_OF_A_KIND * 4 {
            let mut fan =
                Fan { number, connection: Connection::to(address), user: 0, token: String::new(), load: ears.clone() };
            (fan.user, fan.token) = fan.log_in(&format!("+1415555{number:04}")).await.expect("logged in");
            ready.push(fan);
        }
        let spenders = ready.iter().filter(|fan| fan.number % 4 == 2).map(|fan| fan.user).collect();
        let mut fans = JoinSet::new();
        for fan in ready {
            match fan.number % 4 {
                0 => fans.spawn(fan.reads()),
                1 => fans.spawn(fan.predicts()),
                2 => fans.spawn(fan.spends()),
                _ => fans.spawn(fan.comes_again()),
            };
        }
        let Ears { stop, spend, told, .. } = ears;
        Self { began, stop, spend, told, fans, spenders }
    }

    /// From now on coins are spent, too.
    pub(crate) fn let_them_spend(&self) {
        self.spend.store(true, Relaxed);
    }

    /// Waits until so many more requests were answered.
    pub(crate) async fn goes_on(&self, requests: u64) {
        let answered = self.answered() + requests;
        within(Duration::from_mins(1), "there is traffic", async || self.answered() >= answered).await;
    }

    /// How many requests were answered so far, whatever they asked.
    fn answered(&self) -> u64 {
        self.told.lock().expect("not poisoned").requests.values().map(|(count, _)| count).sum()
    }

    /// The slowest answer since this was last asked.
    pub(crate) fn slowest(&self) -> Duration {
        std::mem::take(&mut self.told.lock().expect("not poisoned").slowest_lately)
    }

    /// Lets everybody finish what they began. Every request must have had its right answer.
    pub(crate) async fn stop(mut self) -> (Acknowledged, Duration) {
        let took = self.began.elapsed();
        self.stop.store(true, Relaxed);
        while let Some(fan) = self.fans.join_next().await {
            fan.expect("a fan");
        }
        let told = std::mem::take(&mut *self.told.lock().expect("not poisoned"));
        (told, took)
    }
}

impl Acknowledged {
    /// Holds what was acknowledged against the database; returns it in words.
    pub(crate) async fn is_there_once(&self, db: &PgPool, setting: &Setting, took: Duration) -> String {
        let total: u64 = self.requests.values().map(|(count, _)| count).sum();
        assert!(
            self.failures.is_empty(),
            "{} of {total} requests failed:\n{}",
            self.failures.len(),
            self.failures.join("\n")
        );
        for kind in ["lists", "predictions", "deductions", "logins"] {
            let (count, _) = self.requests.get(kind).copied().unwrap_or_default();
            assert!(count > 50, "only {count} {kind}: nothing was going on");
        }
        let rows: Vec<(i64, i64, i64, i64)> = sqlx::query_as(
            "select user_id, event_id, confidence::bigint,
                    (select count(*) from prediction_revisions r where (r.user_id, r.event_id) = (p.user_id, p.event_id)) + 1
             from predictions p where p.user_id < $1 and p.revision = 1 +
                    (select count(*) from prediction_revisions r where (r.user_id, r.event_id) = (p.user_id, p.event_id))",
        )
        .bind(NOBODYS)
        .fetch_all(db)
        .await
        .expect("read");
        let written: BTreeMap<(i64, i64), (i64, i64)> =
            rows.into_iter().map(|(user, event, confidence, words)| ((user, event), (confidence, words))).collect();
        assert_eq!(written, self.predictions, "every prediction is there, once, and the last word counts");
        let rows: Vec<(String, String)> = sqlx::query_as(
            "select reference, 'txn_' || transaction_id from coin_transactions where kind = 'deduction'",
        )
        .fetch_all(db)
        .await
        .expect("read");
        let deductions = rows.len();
        let written: BTreeMap<String, String> = rows.into_iter().collect();
        assert_eq!((written.len(), &written), (deductions, &self.orders), "every order was paid for once");
        let sessions: i64 = sqlx::query_scalar("select count(*) from sessions").fetch_one(db).await.expect("read");
        let users: i64 = sqlx::query_scalar("select count(*) from users").fetch_one(db).await.expect("read");
        assert_eq!(usize::try_from(sessions).expect("fits"), self.logins.len(), "every login is a session");
        assert_eq!(usize::try_from(users).expect("fits"), self.phones.len(), "every phone is one account");
        let audit = setting.expect(&["coins", "audit"], "");
        assert!(audit.ends_with("every wallet is what its history makes it"), "{audit}");
        let words: i64 = self.predictions.values().map(|(_, words)| words).sum();
        let slowest = self.requests.iter().map(|(kind, (_, slowest))| format!("{kind} {slowest:.1?}"));
        format!(
            "{total} requests over {} connections in {took:.0?}, none failed; {words} predictions, {} deductions and {} \
             logins acknowledged, all there once; the slowest answers: {}",
            self.connections,
            self.orders.len(),
            self.logins.len(),
            slowest.collect::<Vec<_>>().join(", "),
        )
    }
}

impl Fan {
    fn is_over(&self) -> bool {
        self.load.stop.load(Relaxed)
    }

    /// Asks, and writes down how it went. None if it went wrong.
    async fn ask(&mut self, kind: &'static str, expected: &[u16], question: Question<'_>) -> Option<Answer> {
        let began = Instant::now();
        let answer = self.connection.ask(question).await;
        let took = began.elapsed();
        let answer = answer.and_then(|answer| {
            let status = answer.status.as_u16();
            if expected.contains(&status) {
                return Ok(answer);
            }
            Err(format!("{status} {}", String::from_utf8_lossy(&answer.bytes)))
        });
        let mut told = self.load.told.lock().expect("not poisoned");
        let (count, slowest) = told.requests.entry(kind).or_default();
        *count += 1;
        *slowest = took.max(*slowest);
        told.slowest_lately = took.max(told.slowest_lately);
        let at = self.load.began.elapsed();
        answer
            .map_err(|error| told.failures.push(format!("{kind} after {at:.2?}, having waited {took:.2?}: {error}")))
            .ok()
    }

    fn tell(&self, what: impl FnOnce(&mut Acknowledged)) {
        what(&mut self.load.told.lock().expect("not poisoned"));
    }

    async fn reads(mut self) {
        let token = self.token.clone();
        while !self.is_over() {
            let list = self.ask("lists", &[200], Question::get("/api/auth/events?per_page=50", &token)).await;
            let listed = list.map(|list| list.expect(200)["data"].as_array().map_or(0, Vec::len));
            if let Some(wrong) = listed.filter(|listed| *listed != MATCHES) {
                self.tell(|told| told.failures.push(format!("a list has {wrong} matches")));
            }
            tokio::time::sleep(PAUSE).await;
        }
        self.tell(|told| told.connections += self.connection.opened);
    }

    async fn predicts(mut self) {
        let token = self.token.clone();
        for word in 0.. {
            if self.is_over() {
                break;
            }
            let event = i64::try_from(word % MATCHES).expect("small") + 1;
            // Never the same word on a match twice in a row.
            let confidence = i64::try_from(word / MATCHES % 101).expect("small");
            let body = json!({"event_id": event, "prediction": "home", "confidence": confidence});
            let expected = if word < MATCHES { 201 } else { 200 };
            let question = Question::post("/api/auth/predictions", &token, &body);
            if let Some(answer) = self.ask("predictions", &[expected], question).await {
                let saved = answer.expect(expected);
                let user = self.user;
                self.tell(|told| {
                    if saved["data"]["confidence"] != confidence {
                        told.failures.push(format!("another prediction than was made: {saved}"));
                    }
                    let (last, words) = told.predictions.entry((user, event)).or_default();
                    (*last, *words) = (confidence, *words + 1);
                });
            }
            tokio::time::sleep(PAUSE).await;
        }
        self.tell(|told| told.connections += self.connection.opened);
    }

    async fn spends(mut self) {
        let token = self.token.clone();
        for order in 0.. {
            if self.is_over() {
                break;
            }
            if !self.load.spend.load(Relaxed) {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            let reference = format!("order-{}-{order}", self.number);
            let body = json!({"amount": 1 + order % 9, "reason": "purchase", "reference_id": reference});
            let question = Question::post("/api/auth/coins/deduct", &token, &body);
            if let Some(answer) = self.ask("deductions", &[200], question).await {
                let id = answer.expect(200)["data"]["transaction_id"].as_str().expect("an id").to_owned();
                self.tell(|told| {
                    if told.orders.insert(reference, id).is_some() {
                        told.failures.push("an order was told twice".to_owned());
                    }
                });
            }
            tokio::time::sleep(PAUSE).await;
        }
        self.tell(|told| told.connections += self.connection.opened);
    }

    /// New people, and each of them once more.
    async fn comes_again(mut self) {
        for visit in 0.. {
            if self.is_over() {
                break;
            }
            let phone = format!("+1415{:03}{:04}", 600 + self.number, visit / 2);
            self.log_in(&phone).await;
            tokio::time::sleep(PAUSE).await;
        }
        self.tell(|told| told.connections += self.connection.opened);
    }

    async fn log_in(&mut self, phone: &str) -> Option<(i64, String)> {
        let wish = json!({"phone": phone});
        self.ask("logins", &[200], Question::post("/api/code/request", "", &wish)).await?;
        let path = format!("/api/logs/sms?phone={}&status=sent", phone.replace('+', "%2B"));
        let log = self.ask("logins", &[200], Question::get(&path, "")).await?.expect(200);
        let code = log["data"][0]["code"].as_str().expect("a code");
        let body = json!({"phone": phone, "code": code});
        let entered = self.ask("logins", &[200], Question::post("/api/code/verify", "", &body)).await?.expect(200);
        let user = entered["data"]["user"]["id"].as_i64().expect("an id");
        self.tell(|told| {
            told.logins.push(user);
            told.phones.insert(phone.to_owned());
        });
        Some((user, entered["data"]["token"].as_str().expect("a token").to_owned()))
    }
}
