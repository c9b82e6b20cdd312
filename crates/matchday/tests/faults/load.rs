//! Fans who predict and spend coins while dependencies fail, and the proof that every acknowledged write was stored.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use serde_json::{Value, json};
use sqlx::{PgPool, postgres::PgConnectOptions};
use tokio::task::JoinHandle;

use crate::stage::process::{Process, Setting};

/// Number of imported matches: enough that no prediction reaches the maximum number of revisions.
const MATCHES: usize = 120;
/// How long a fan retries the same request: longer than any fault of these tests.
const PATIENCE: Duration = Duration::from_secs(100);

/// Fixture document with matches in the far future, the first of them with results.
pub(crate) fn matches(results: &[(i32, i32)]) -> String {
    let matches: Vec<Value> = (0..MATCHES)
        .map(|number| {
            let result = results.get(number);
            json!({"key": format!("m{number}"), "home": "rovers", "away": "city", "start_time": "2090-05-01T15:00:00Z",
                   "venue": "Park", "status": if result.is_some() { "finished" } else { "scheduled" },
                   "home_score": result.map(|(home, _)| home), "away_score": result.map(|(_, away)| away)})
        })
        .collect();
    json!({"sport": {"slug": "football", "name": "Football"},
           "tournament": {"slug": "cup", "name": "Cup", "logo": null},
           "teams": [{"slug": "rovers", "name": "Rovers"}, {"slug": "city", "name": "City"}],
           "matches": matches})
    .to_string()
}

/// A user with a session token.
#[derive(Clone)]
pub(crate) struct Fan {
    pub(crate) id: i64,
    pub(crate) token: String,
}

/// Fans and matches that exist before the fault.
pub(crate) struct Crowd {
    pub(crate) fans: Vec<Fan>,
    /// Matches that are open for predictions.
    events: Vec<i64>,
}

/// Home goals, away goals and confidence.
type Forecast = (i16, i16, i16);

/// Writes of one fan that the service acknowledged.
#[derive(Default)]
struct Acknowledged {
    /// Acknowledged forecasts of each match, in order.
    forecasts: BTreeMap<i64, Vec<Forecast>>,
    /// Transaction and amount of each deduction, by its reference.
    deductions: BTreeMap<String, (String, i64)>,
}

/// Observations shared by all fans.
#[derive(Default)]
struct Seen {
    acknowledged: Vec<Instant>,
    /// Number of failed attempts by status and error code.
    refusals: BTreeMap<String, usize>,
    /// Duration of the slowest request.
    slowest: Duration,
    /// Number of 503 responses without `Retry-After`.
    without_retry_after: usize,
}

/// Running tasks of all fans.
pub(crate) struct Load {
    fans: Vec<(i64, JoinHandle<Acknowledged>)>,
    stop: Arc<AtomicBool>,
    seen: Arc<Mutex<Seen>>,
}

/// Result of a load after comparison with the database.
pub(crate) struct Outcome {
    pub(crate) predictions: usize,
    pub(crate) deductions: usize,
    refusals: BTreeMap<String, usize>,
    pub(crate) slowest: Duration,
    acknowledged: Vec<Instant>,
}

impl Crowd {
    /// Imports matches and creates fans.
    pub(crate) async fn create(setting: &Setting, owner: &PgConnectOptions, fans: usize) -> Self {
        Self::create_without_first(setting, owner, fans, 0).await
    }

    /// Like `create`, but fans do not predict the first matches, which will receive results.
    pub(crate) async fn create_without_first(
        setting: &Setting,
        owner: &PgConnectOptions,
        fans: usize,
        first: i64,
    ) -> Self {
        setting.expect(&["fixtures", "import", "-"], &matches(&[]));
        let issue = setting.clone().with("MATCHDAY_COINS__WELCOME", "1000000");
        let make = || {
            let token = issue.expect(&["sessions", "issue"], "");
            let id = token
                .split('_')
                .nth(1)
                .and_then(|id| i64::from_str_radix(id, 36).ok())
                .expect("a token with a user id");
            Fan { id, token }
        };
        // In parallel, because each command mostly waits.
        let fans = std::thread::scope(|scope| {
            let making: Vec<_> = (0..fans).map(|_| scope.spawn(make)).collect();
            making.into_iter().map(|one| one.join().expect("a fan")).collect()
        });
        let db = PgPool::connect_with(owner.clone()).await.expect("connected");
        let events: Vec<i64> = sqlx::query_scalar("select id from events order by id offset $1")
            .bind(first)
            .fetch_all(&db)
            .await
            .expect("read");
        db.close().await;
        Self { fans, events }
    }

    /// A match that is open for predictions.
    pub(crate) fn first_event(&self) -> i64 {
        self.events[0]
    }

    /// Starts requests of all fans to a process, until `finish` stops them.
    pub(crate) fn start(&self, process: &Process) -> Load {
        let (stop, seen) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Seen>>::default());
        let fans = self.fans.iter().map(|fan| {
            let web = reqwest::Client::builder().timeout(Duration::from_secs(30)).build().expect("a client");
            let task = FanTask {
                base: process.public.clone(),
                web,
                fan: fan.clone(),
                stop: Arc::clone(&stop),
                seen: Arc::clone(&seen),
            };
            (fan.id, tokio::spawn(task.run(self.events.clone())))
        });
        Load { fans: fans.collect(), stop, seen }
    }
}

struct FanTask {
    base: String,
    web: reqwest::Client,
    fan: Fan,
    stop: Arc<AtomicBool>,
    seen: Arc<Mutex<Seen>>,
}

impl FanTask {
    async fn run(self, events: Vec<i64>) -> Acknowledged {
        let mut recorded = Acknowledged::default();
        for number in 0_u16.. {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let small = i16::try_from(number % 100).expect("below 100");
            // Consecutive forecasts of a match differ, so that a repeated one is recognisable as a retry.
            let (event, forecast) = (events[usize::from(number) % events.len()], (small % 4, small % 3, small));
            let (home, away, confidence) = forecast;
            let pick = match home.cmp(&away) {
                std::cmp::Ordering::Greater => "home",
                std::cmp::Ordering::Less => "away",
                std::cmp::Ordering::Equal => "draw",
            };
            let prediction = json!({"event_id": event, "prediction": pick, "confidence": confidence,
                                    "score_prediction": {"home": home, "away": away}});
            self.retry_until_success("/api/auth/predictions", &prediction).await;
            recorded.forecasts.entry(event).or_default().push(forecast);

            let (reference, amount) = (format!("order-{number}"), 1 + i64::from(number % 9));
            let deduction = json!({"amount": amount, "reason": "purchase", "reference_id": reference});
            let answer = self.retry_until_success("/api/auth/coins/deduct", &deduction).await;
            let transaction = answer["data"]["transaction_id"].as_str().expect("an id").to_owned();
            recorded.deductions.insert(reference, (transaction, amount));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        recorded
    }

    /// Retries the request until it succeeds. A real app would pause longer between attempts.
    async fn retry_until_success(&self, path: &str, body: &Value) -> Value {
        let began = Instant::now();
        loop {
            let sent = Instant::now();
            let request = self.web.post(format!("{}{path}", self.base)).bearer_auth(&self.fan.token).json(body);
            let outcome = match request.send().await {
                Ok(answer) => {
                    let (status, has_retry_after) =
                        (answer.status().as_u16(), answer.headers().contains_key("retry-after"));
                    answer.json::<Value>().await.map(|body| (status, has_retry_after, body))
                }
                Err(error) => Err(error),
            };
            {
                let mut seen = self.seen.lock().expect("not poisoned");
                seen.slowest = seen.slowest.max(sent.elapsed());
                match outcome {
                    Ok((200 | 201, _, body)) => {
                        seen.acknowledged.push(Instant::now());
                        return body;
                    }
                    Ok((status, has_retry_after, body)) => {
                        seen.without_retry_after += usize::from(status == 503 && !has_retry_after);
                        let code = body["code"].as_str().unwrap_or_default();
                        *seen.refusals.entry(format!("{status} {code}")).or_default() += 1;
                    }
                    Err(_) => *seen.refusals.entry("no response".to_owned()).or_default() += 1,
                }
            }
            assert!(began.elapsed() < PATIENCE, "not successful within {PATIENCE:?}: {path} {body}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

impl Load {
    /// Number of writes acknowledged so far.
    pub(crate) fn acknowledged(&self) -> usize {
        self.seen.lock().expect("not poisoned").acknowledged.len()
    }

    /// Waits until this many more requests are refused.
    pub(crate) async fn wait_for_refusals(&self, more: usize, most: Duration) {
        let refused = || self.seen.lock().expect("not poisoned").refusals.values().sum::<usize>();
        let (began, before) = (Instant::now(), refused());
        while refused() < before + more {
            assert!(began.elapsed() < most, "fewer than {more} more refused within {most:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until this many more writes are acknowledged; returns how long it took.
    pub(crate) async fn wait_for_progress(&self, more: usize, most: Duration) -> Duration {
        let (began, before) = (Instant::now(), self.acknowledged());
        while self.acknowledged() < before + more {
            assert!(
                began.elapsed() < most,
                "fewer than {more} more acknowledged within {most:?}: {:?}",
                self.seen.lock().expect("not poisoned").refusals
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        began.elapsed()
    }

    /// Lets all fans finish their current request, and compares the acknowledged writes with the database: none is
    /// missing, none is stored twice, and the coins add up.
    pub(crate) async fn finish(self, service: &Process, setting: &Setting, owner: &PgConnectOptions) -> Outcome {
        self.stop.store(true, Ordering::Relaxed);
        let (ids, tasks): (Vec<i64>, Vec<_>) = self.fans.into_iter().unzip();
        let recorded = join_all(tasks).await.into_iter().map(|recorded| recorded.expect("a fan"));
        let recorded: BTreeMap<i64, Acknowledged> = ids.into_iter().zip(recorded).collect();
        let db = PgPool::connect_with(owner.clone()).await.expect("connected");
        let (predictions, deductions) =
            (compare_forecasts(&db, &recorded).await, compare_deductions(&db, &recorded).await);
        db.close().await;
        // The audit connects as the owner, whose connection no test breaks.
        let audit = setting.expect(&["coins", "audit"], "");
        assert!(audit.ends_with("every wallet matches its history"), "{audit}");
        let mut seen = std::mem::take(&mut *self.seen.lock().expect("not poisoned"));
        seen.acknowledged.sort_unstable();
        assert_eq!(seen.acknowledged.len(), predictions + deductions);
        let faults: BTreeMap<_, _> = seen.refusals.iter().filter(|(answer, _)| !answer.starts_with("503 ")).collect();
        assert!(
            faults.is_empty(),
            "refused requests must get 503 and nothing else: {:?} because of {:#?}",
            seen.refusals,
            causes(service)
        );
        assert_eq!(seen.without_retry_after, 0, "503 without Retry-After");
        Outcome {
            predictions,
            deductions,
            refusals: seen.refusals,
            slowest: seen.slowest,
            acknowledged: seen.acknowledged,
        }
    }
}

/// Error codes and causes in the log of a process.
pub(crate) fn causes(service: &Process) -> BTreeSet<String> {
    let lines = service.log();
    let lines = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter_map(|line| Some(format!("{}: {}", line["code"].as_str()?, line["cause"].as_str()?))).collect()
}

/// Checks that all acknowledged forecasts are stored in order, that the last one is current, and that each match's
/// tally is the sum of its predictions. Returns the number of forecasts.
async fn compare_forecasts(db: &PgPool, recorded: &BTreeMap<i64, Acknowledged>) -> usize {
    type Row = (i64, i64, i16, i16, i16);
    let rows: Vec<Row> = sqlx::query_as(
        "select user_id, event_id, home_goals, away_goals, confidence from (
             select user_id, event_id, revision, home_goals, away_goals, confidence from prediction_revisions
             union all select user_id, event_id, revision, home_goals, away_goals, confidence from predictions) revisions
         where user_id = any($1)
         order by user_id, event_id, revision",
    )
    .bind(recorded.keys().copied().collect::<Vec<_>>())
    .fetch_all(db)
    .await
    .expect("read");
    let mut written: BTreeMap<(i64, i64), Vec<Forecast>> = BTreeMap::new();
    for (user, event, home, away, confidence) in rows {
        let forecasts = written.entry((user, event)).or_default();
        // A fan whose request got no response repeats the same forecast, and the service may store both as revisions.
        if forecasts.last() != Some(&(home, away, confidence)) {
            forecasts.push((home, away, confidence));
        }
    }
    let expected = recorded.iter().flat_map(|(user, recorded)| {
        recorded.forecasts.iter().map(|(event, forecasts)| ((*user, *event), forecasts.clone()))
    });
    let expected: BTreeMap<(i64, i64), Vec<Forecast>> = expected.collect();
    let differ: Vec<_> = expected
        .keys()
        .chain(written.keys())
        .filter(|key| written.get(key) != expected.get(key))
        .map(|key| (key, written.get(key), expected.get(key)))
        .collect();
    assert!(differ.is_empty(), "stored forecasts differ from acknowledged ones: {differ:?}");
    let miscounted: Vec<(i64,)> = sqlx::query_as(
        "select event_id from (
             select event_id, sum(home) as home, sum(draw) as draw, sum(away) as away, sum(confidence) as confidence
             from event_tallies group by event_id) t
         full join (
             select event_id, count(*) filter (where prediction = 'home') as home,
                    count(*) filter (where prediction = 'draw') as draw,
                    count(*) filter (where prediction = 'away') as away, sum(confidence) as confidence
             from predictions group by event_id) p using (event_id)
         where event_id = any($1)
           and (t.home, t.draw, t.away, t.confidence) is distinct from (p.home, p.draw, p.away, p.confidence)",
    )
    .bind(expected.keys().map(|(_, event)| *event).collect::<Vec<_>>())
    .fetch_all(db)
    .await
    .expect("read");
    assert_eq!(miscounted, [], "matches whose tally is not the sum of their predictions");
    expected.values().map(Vec::len).sum()
}

/// Checks that exactly the acknowledged deductions are stored, each once. Returns their number.
async fn compare_deductions(db: &PgPool, recorded: &BTreeMap<i64, Acknowledged>) -> usize {
    let rows: Vec<(i64, String, uuid::Uuid, i64)> = sqlx::query_as(
        "select user_id, reference, transaction_id, -amount from coin_transactions
         where kind = 'deduction' and user_id = any($1)",
    )
    .bind(recorded.keys().copied().collect::<Vec<_>>())
    .fetch_all(db)
    .await
    .expect("read");
    let count = rows.len();
    let written: BTreeSet<_> =
        rows.into_iter().map(|(user, reference, id, amount)| (user, reference, format!("txn_{id}"), amount)).collect();
    let acknowledged: BTreeSet<_> = recorded
        .iter()
        .flat_map(|(user, recorded)| {
            recorded.deductions.iter().map(|(name, (id, amount))| (*user, name.clone(), id.clone(), *amount))
        })
        .collect();
    let [lost, unexpected] = [acknowledged.difference(&written), written.difference(&acknowledged)];
    assert_eq!(lost.collect::<Vec<_>>(), Vec::<&_>::new(), "acknowledged but not stored");
    assert_eq!(unexpected.collect::<Vec<_>>(), Vec::<&_>::new(), "stored but not acknowledged");
    assert_eq!(written.len(), count, "stored twice");
    count
}

impl Outcome {
    /// Longest time between two acknowledgements: from the last one before a fault to the first one after it.
    pub(crate) fn longest_silence(&self) -> Duration {
        self.acknowledged.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
    }

    /// Summary of the refused requests for the report.
    pub(crate) fn refused(&self) -> String {
        let each = self.refusals.iter().map(|(answer, times)| format!("{} × {answer}", thousands(*times)));
        let all = each.collect::<Vec<_>>().join(", ");
        if all.is_empty() {
            "no request was refused".to_owned()
        } else {
            format!("refused first and successful on retry: {all}")
        }
    }
}

/// Summary of the acknowledged writes for the report.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} predictions and {} deductions acknowledged, each stored exactly once",
            thousands(self.predictions),
            thousands(self.deductions)
        )
    }
}

/// Formats a number with thousands separators.
pub(crate) fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
