//! Requests that apps send during an upgrade, and a record of the acknowledged ones.

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
    connection::{Call, Connection},
    stage::{client::within, process::Setting},
};

/// Fans for each kind of load: reads, predictions, deductions and logins.
const FANS_OF_A_KIND: usize = 4;
const MATCHES: usize = 100;
/// Number of matches on a page.
const LISTED: usize = 30;
/// Maximum number of revisions of a prediction.
const REVISIONS: usize = 50;
/// Users from this id on are rows that tests insert in bulk.
pub(crate) const FIRST_BULK_USER: i64 = 1_000_000;
/// Keeps the load low enough for a small machine.
const PAUSE: Duration = Duration::from_millis(10);

/// Everything that the service acknowledged.
#[derive(Default)]
pub(crate) struct Acknowledged {
    /// Number of requests and the slowest of them, by kind.
    requests: BTreeMap<&'static str, (u64, Duration)>,
    slowest_lately: Duration,
    /// Description and time of each failure.
    failures: Vec<String>,
    connections: u64,
    /// Last confidence and number of submissions, by user and match.
    predictions: BTreeMap<(i64, i64), (i64, i64)>,
    /// Transaction of each order.
    orders: BTreeMap<String, String>,
    /// User of each login.
    logins: Vec<i64>,
    phones: BTreeSet<String>,
}

/// Apps that send requests until `stop`.
pub(crate) struct Load {
    began: Instant,
    stop: Arc<AtomicBool>,
    spend: Arc<AtomicBool>,
    acknowledged: Arc<Mutex<Acknowledged>>,
    fans: JoinSet<()>,
    /// Users who spend coins.
    pub(crate) spenders: Vec<i64>,
}

/// One app with a kept connection and a user.
struct Fan {
    number: usize,
    connection: Connection,
    user: i64,
    token: String,
    load: Shared,
}

/// State that all fans share.
#[derive(Clone)]
struct Shared {
    began: Instant,
    stop: Arc<AtomicBool>,
    spend: Arc<AtomicBool>,
    acknowledged: Arc<Mutex<Acknowledged>>,
}

/// Fixture document with matches that stay open for predictions.
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

/// Adds the settings that this load requires.
pub(crate) fn configure(setting: Setting) -> Setting {
    setting.without("MATCHDAY_MATRIX__HOMESERVER_URL").with("MATCHDAY_COINS__WELCOME", "100000000")
}

impl Load {
    /// Logs all fans in, and then starts the load on this address. The matches must exist.
    pub(crate) async fn start(address: &str) -> Self {
        let load = Self::start_without_coins(address).await;
        load.allow_spending();
        load
    }

    /// Like `start`, but fans do not spend coins yet: an old version may not have coins.
    pub(crate) async fn start_without_coins(address: &str) -> Self {
        let (began, stop, spend, acknowledged) = (Instant::now(), Arc::default(), Arc::default(), Arc::default());
        let shared = Shared { began, stop, spend, acknowledged };
        let mut ready = Vec::new();
        for number in 0..FANS_OF_A_KIND * 4 {
            let mut fan = Fan {
                number,
                connection: Connection::to(address),
                user: 0,
                token: String::new(),
                load: shared.clone(),
            };
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
                _ => fans.spawn(fan.logs_in_repeatedly()),
            };
        }
        let Shared { stop, spend, acknowledged, .. } = shared;
        Self { began, stop, spend, acknowledged, fans, spenders }
    }

    /// Lets fans spend coins from now on.
    pub(crate) fn allow_spending(&self) {
        self.spend.store(true, Relaxed);
    }

    /// Waits until this many more requests have completed.
    pub(crate) async fn wait_for_requests(&self, requests: u64) {
        let completed = self.completed() + requests;
        within(Duration::from_mins(1), "more requests complete", async || self.completed() >= completed).await;
    }

    /// Number of completed requests of all kinds.
    fn completed(&self) -> u64 {
        self.acknowledged.lock().expect("not poisoned").requests.values().map(|(count, _)| count).sum()
    }

    /// Slowest response since the last call.
    pub(crate) fn slowest(&self) -> Duration {
        std::mem::take(&mut self.acknowledged.lock().expect("not poisoned").slowest_lately)
    }

    /// Lets all fans finish their current request; returns the record and the duration.
    pub(crate) async fn stop(mut self) -> (Acknowledged, Duration) {
        let took = self.began.elapsed();
        self.stop.store(true, Relaxed);
        while let Some(fan) = self.fans.join_next().await {
            fan.expect("a fan");
        }
        let acknowledged = std::mem::take(&mut *self.acknowledged.lock().expect("not poisoned"));
        (acknowledged, took)
    }
}

impl Acknowledged {
    /// Checks that no request failed and that the database holds every acknowledged write once; returns a summary.
    pub(crate) async fn verify_stored_once(&self, db: &PgPool, setting: &Setting, took: Duration) -> String {
        let total: u64 = self.requests.values().map(|(count, _)| count).sum();
        assert!(
            self.failures.is_empty(),
            "{} of {total} requests failed:\n{}",
            self.failures.len(),
            self.failures.join("\n")
        );
        for kind in ["lists", "predictions", "deductions", "logins"] {
            let (count, _) = self.requests.get(kind).copied().unwrap_or_default();
            assert!(count > 50, "only {count} {kind}: not enough load");
        }
        let rows: Vec<(i64, i64, i64, i64)> = sqlx::query_as(
            "select user_id, event_id, confidence::bigint,
                    (select count(*) from prediction_revisions r where (r.user_id, r.event_id) = (p.user_id, p.event_id)) + 1
             from predictions p where p.user_id < $1 and p.revision = 1 +
                    (select count(*) from prediction_revisions r where (r.user_id, r.event_id) = (p.user_id, p.event_id))",
        )
        .bind(FIRST_BULK_USER)
        .fetch_all(db)
        .await
        .expect("read");
        let written: BTreeMap<(i64, i64), (i64, i64)> = rows
            .into_iter()
            .map(|(user, event, confidence, submissions)| ((user, event), (confidence, submissions)))
            .collect();
        assert_eq!(written, self.predictions, "every prediction is stored once, with its last revision");
        let rows: Vec<(String, String)> = sqlx::query_as(
            "select reference, 'txn_' || transaction_id from coin_transactions where kind = 'deduction'",
        )
        .fetch_all(db)
        .await
        .expect("read");
        let deductions = rows.len();
        let written: BTreeMap<String, String> = rows.into_iter().collect();
        assert_eq!((written.len(), &written), (deductions, &self.orders), "every order is paid exactly once");
        let sessions: i64 = sqlx::query_scalar("select count(*) from sessions").fetch_one(db).await.expect("read");
        let users: i64 = sqlx::query_scalar("select count(*) from users").fetch_one(db).await.expect("read");
        assert_eq!(usize::try_from(sessions).expect("fits"), self.logins.len(), "every login has a session");
        assert_eq!(usize::try_from(users).expect("fits"), self.phones.len(), "every phone has one account");
        let audit = setting.expect(&["coins", "audit"], "");
        assert!(audit.ends_with("every wallet matches its history"), "{audit}");
        let submissions: i64 = self.predictions.values().map(|(_, submissions)| submissions).sum();
        let slowest = self.requests.iter().map(|(kind, (_, slowest))| format!("{kind} {slowest:.1?}"));
        format!(
            "{total} requests over {} connections in {took:.0?}, none failed; {submissions} predictions, {} deductions and {} \
             logins acknowledged, each stored exactly once; slowest responses: {}",
            self.connections,
            self.orders.len(),
            self.logins.len(),
            slowest.collect::<Vec<_>>().join(", "),
        )
    }
}

impl Fan {
    fn is_stopped(&self) -> bool {
        self.load.stop.load(Relaxed)
    }

    /// Sends a request and records its outcome. Returns `None` if the request failed.
    async fn send(&mut self, kind: &'static str, expected: &[u16], call: Call<'_>) -> Option<Answer> {
        let began = Instant::now();
        let answer = self.connection.send(call).await;
        let took = began.elapsed();
        let answer = answer.and_then(|answer| {
            let status = answer.status.as_u16();
            if expected.contains(&status) {
                return Ok(answer);
            }
            Err(format!("{status} {}", String::from_utf8_lossy(&answer.bytes)))
        });
        let mut acknowledged = self.load.acknowledged.lock().expect("not poisoned");
        let (count, slowest) = acknowledged.requests.entry(kind).or_default();
        *count += 1;
        *slowest = took.max(*slowest);
        acknowledged.slowest_lately = took.max(acknowledged.slowest_lately);
        let at = self.load.began.elapsed();
        answer
            .map_err(|error| {
                acknowledged.failures.push(format!("{kind} at {at:.2?} after waiting {took:.2?}: {error}"));
            })
            .ok()
    }

    fn record(&self, what: impl FnOnce(&mut Acknowledged)) {
        what(&mut self.load.acknowledged.lock().expect("not poisoned"));
    }

    async fn reads(mut self) {
        let token = self.token.clone();
        while !self.is_stopped() {
            let list =
                self.send("lists", &[200], Call::get(&format!("/api/auth/events?per_page={LISTED}"), &token)).await;
            let listed = list.map(|list| list.expect(200)["data"].as_array().map_or(0, Vec::len));
            if let Some(wrong) = listed.filter(|listed| *listed != LISTED) {
                self.record(|acknowledged| acknowledged.failures.push(format!("a list has {wrong} matches")));
            }
            tokio::time::sleep(PAUSE).await;
        }
        self.record(|acknowledged| acknowledged.connections += self.connection.opened);
    }

    async fn predicts(mut self) {
        let token = self.token.clone();
        for submission in 0..MATCHES * REVISIONS {
            if self.is_stopped() {
                break;
            }
            let event = i64::try_from(submission % MATCHES).expect("small") + 1;
            // Consecutive predictions of a match differ.
            let confidence = i64::try_from(submission / MATCHES % 101).expect("small");
            let body = json!({"event_id": event, "prediction": "home", "confidence": confidence});
            let expected = if submission < MATCHES { 201 } else { 200 };
            let call = Call::post("/api/auth/predictions", &token, &body);
            if let Some(answer) = self.send("predictions", &[expected], call).await {
                let saved = answer.expect(expected);
                let user = self.user;
                self.record(|acknowledged| {
                    if saved["data"]["confidence"] != confidence {
                        acknowledged.failures.push(format!("the response has another prediction: {saved}"));
                    }
                    let (last, submissions) = acknowledged.predictions.entry((user, event)).or_default();
                    (*last, *submissions) = (confidence, *submissions + 1);
                });
            }
            tokio::time::sleep(3 * PAUSE).await;
        }
        self.record(|acknowledged| acknowledged.connections += self.connection.opened);
    }

    async fn spends(mut self) {
        let token = self.token.clone();
        for order in 0.. {
            if self.is_stopped() {
                break;
            }
            if !self.load.spend.load(Relaxed) {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            let reference = format!("order-{}-{order}", self.number);
            let body = json!({"amount": 1 + order % 9, "reason": "purchase", "reference_id": reference});
            let call = Call::post("/api/auth/coins/deduct", &token, &body);
            if let Some(answer) = self.send("deductions", &[200], call).await {
                let id = answer.expect(200)["data"]["transaction_id"].as_str().expect("an id").to_owned();
                self.record(|acknowledged| {
                    if acknowledged.orders.insert(reference, id).is_some() {
                        acknowledged.failures.push("an order was acknowledged twice".to_owned());
                    }
                });
            }
            tokio::time::sleep(PAUSE).await;
        }
        self.record(|acknowledged| acknowledged.connections += self.connection.opened);
    }

    /// Logs in new users, each of them twice.
    async fn logs_in_repeatedly(mut self) {
        for visit in 0.. {
            if self.is_stopped() {
                break;
            }
            let phone = format!("+1415{:03}{:04}", 600 + self.number, visit / 2);
            self.log_in(&phone).await;
            tokio::time::sleep(PAUSE).await;
        }
        self.record(|acknowledged| acknowledged.connections += self.connection.opened);
    }

    async fn log_in(&mut self, phone: &str) -> Option<(i64, String)> {
        let request = json!({"phone": phone});
        self.send("logins", &[200], Call::post("/api/code/request", "", &request)).await?;
        let path = format!("/api/logs/sms?phone={}&status=sent", phone.replace('+', "%2B"));
        let log = self.send("logins", &[200], Call::get(&path, "")).await?.expect(200);
        let code = log["data"][0]["code"].as_str().expect("a code");
        let body = json!({"phone": phone, "code": code});
        let entered = self.send("logins", &[200], Call::post("/api/code/verify", "", &body)).await?.expect(200);
        let user = entered["data"]["user"]["id"].as_i64().expect("an id");
        self.record(|acknowledged| {
            acknowledged.logins.push(user);
            acknowledged.phones.insert(phone.to_owned());
        });
        Some((user, entered["data"]["token"].as_str().expect("a token").to_owned()))
    }
}
