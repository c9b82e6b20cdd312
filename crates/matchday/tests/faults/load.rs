//! People who predict and spend coins while parts fail, and the proof that what they were told is so.

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

/// How many matches there are to predict.
const MATCHES: usize = 40;
/// How long a fan goes on asking for the same: longer than any fault of these tests.
const PATIENCE: Duration = Duration::from_secs(100);

/// Matches that are years away, the first of them with results.
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

/// Somebody with a token.
#[derive(Clone)]
pub(crate) struct Fan {
    pub(crate) id: i64,
    pub(crate) token: String,
}

/// Who is there before anything fails.
pub(crate) struct Crowd {
    pub(crate) fans: Vec<Fan>,
    /// The matches that can be predicted.
    events: Vec<i64>,
}

/// What a fan says of a match: goals, and how sure they are.
type Word = (i16, i16, i16);

/// What one fan was told.
#[derive(Default)]
struct Acknowledged {
    /// Of each match, every word that was acknowledged, in order.
    words: BTreeMap<i64, Vec<Word>>,
    /// The transaction and amount of each deduction, by its reference.
    deductions: BTreeMap<String, (String, i64)>,
}

/// What all of them saw.
#[derive(Default)]
struct Seen {
    acknowledged: Vec<Instant>,
    /// How often each answer came that was none yet, by status and code.
    refusals: BTreeMap<String, usize>,
    /// How long the longest request took.
    slowest: Duration,
    /// 503 without a word when to come again.
    without_advice: usize,
}

/// Fans at work.
pub(crate) struct Load {
    fans: Vec<(i64, JoinHandle<Acknowledged>)>,
    stop: Arc<AtomicBool>,
    seen: Arc<Mutex<Seen>>,
}

/// What became of it, after it was compared with the database.
pub(crate) struct Outcome {
    pub(crate) predictions: usize,
    pub(crate) deductions: usize,
    refusals: BTreeMap<String, usize>,
    pub(crate) slowest: Duration,
    acknowledged: Vec<Instant>,
}

impl Crowd {
    /// Puts matches and people in.
    pub(crate) async fn gather(setting: &Setting, owner: &PgConnectOptions, fans: usize) -> Self {
        Self::gather_without_first(setting, owner, fans, 0).await
    }

    /// The same, where the first matches will have results and are not predicted.
    pub(crate) async fn gather_without_first(
        setting: &Setting,
        owner: &PgConnectOptions,
        fans: usize,
        first: i64,
    ) -> Self {
        setting.expect(&["fixtures", "import", "-"], &matches(&[]));
        let issue = setting.clone().with("MATCHDAY_COINS__WELCOME", "1000000");
        let make = || {
            let token = issue.expect(&["sessions", "issue"], "");
            let id =
                token.split('_').nth(1).and_then(|id| i64::from_str_radix(id, 36).ok()).expect("whose token it is");
            Fan { id, token }
        };
        // Most of it is waiting.
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

    /// Sends them to a process, until they are told to stop.
    pub(crate) fn start(&self, process: &Process) -> Load {
        let (stop, seen) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Seen>>::default());
        let fans = self.fans.iter().map(|fan| {
            let web = reqwest::Client::builder().timeout(Duration::from_secs(30)).build().expect("a client");
            let visit = Visit {
                base: process.public.clone(),
                web,
                fan: fan.clone(),
                stop: Arc::clone(&stop),
                seen: Arc::clone(&seen),
            };
            (fan.id, tokio::spawn(visit.run(self.events.clone())))
        });
        Load { fans: fans.collect(), stop, seen }
    }
}

struct Visit {
    base: String,
    web: reqwest::Client,
    fan: Fan,
    stop: Arc<AtomicBool>,
    seen: Arc<Mutex<Seen>>,
}

impl Visit {
    async fn run(self, events: Vec<i64>) -> Acknowledged {
        let mut told = Acknowledged::default();
        for number in 0_u16.. {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let small = i16::try_from(number % 100).expect("below 100");
            // Never the same word twice in a row, so that each can be told from a repetition.
            let (event, word) = (events[usize::from(number) % events.len()], (small % 4, small % 3, small));
            let (home, away, confidence) = word;
            let pick = match home.cmp(&away) {
                std::cmp::Ordering::Greater => "home",
                std::cmp::Ordering::Less => "away",
                std::cmp::Ordering::Equal => "draw",
            };
            let prediction = json!({"event_id": event, "prediction": pick, "confidence": confidence,
                                    "score_prediction": {"home": home, "away": away}});
            self.until_answered("/api/auth/predictions", &prediction).await;
            told.words.entry(event).or_default().push(word);

            let (reference, amount) = (format!("order-{number}"), 1 + i64::from(number % 9));
            let deduction = json!({"amount": amount, "reason": "purchase", "reference_id": reference});
            let answer = self.until_answered("/api/auth/coins/deduct", &deduction).await;
            let transaction = answer["data"]["transaction_id"].as_str().expect("an id").to_owned();
            told.deductions.insert(reference, (transaction, amount));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        told
    }

    /// Asks for the same until it is done. An app would do so too, with longer pauses.
    async fn until_answered(&self, path: &str, body: &Value) -> Value {
        let began = Instant::now();
        loop {
            let sent = Instant::now();
            let request = self.web.post(format!("{}{path}", self.base)).bearer_auth(&self.fan.token).json(body);
            let outcome = match request.send().await {
                Ok(answer) => {
                    let (status, advice) = (answer.status().as_u16(), answer.headers().contains_key("retry-after"));
                    answer.json::<Value>().await.map(|body| (status, advice, body))
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
                    Ok((status, advice, body)) => {
                        seen.without_advice += usize::from(status == 503 && !advice);
                        let code = body["code"].as_str().unwrap_or_default();
                        *seen.refusals.entry(format!("{status} {code}")).or_default() += 1;
                    }
                    Err(_) => *seen.refusals.entry("no answer".to_owned()).or_default() += 1,
                }
            }
            assert!(began.elapsed() < PATIENCE, "not answered within {PATIENCE:?}: {path} {body}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

impl Load {
    /// How much was acknowledged until now.
    pub(crate) fn acknowledged(&self) -> usize {
        self.seen.lock().expect("not poisoned").acknowledged.len()
    }

    /// Waits until so many more are refused.
    pub(crate) async fn is_refused(&self, more: usize, most: Duration) {
        let refused = || self.seen.lock().expect("not poisoned").refusals.values().sum::<usize>();
        let (began, before) = (Instant::now(), refused());
        while refused() < before + more {
            assert!(began.elapsed() < most, "not {more} more refused within {most:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until so much more is acknowledged; returns how long it took.
    pub(crate) async fn gets_on(&self, more: usize, most: Duration) -> Duration {
        let (began, before) = (Instant::now(), self.acknowledged());
        while self.acknowledged() < before + more {
            assert!(
                began.elapsed() < most,
                "not {more} more within {most:?}: {:?}",
                self.seen.lock().expect("not poisoned").refusals
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        began.elapsed()
    }

    /// Lets all of them finish what they are at, and compares what they were told with what is there: nothing
    /// acknowledged is missing, nothing is there twice, and the coins add up.
    pub(crate) async fn finish(self, service: &Process, setting: &Setting, owner: &PgConnectOptions) -> Outcome {
        self.stop.store(true, Ordering::Relaxed);
        let (ids, tasks): (Vec<i64>, Vec<_>) = self.fans.into_iter().unzip();
        let told = join_all(tasks).await.into_iter().map(|told| told.expect("a fan"));
        let told: BTreeMap<i64, Acknowledged> = ids.into_iter().zip(told).collect();
        let db = PgPool::connect_with(owner.clone()).await.expect("connected");
        let (predictions, deductions) = (compare_words(&db, &told).await, compare_deductions(&db, &told).await);
        db.close().await;
        // The owner's way to the database is one that no test breaks.
        let audit = setting.expect(&["coins", "audit"], "");
        assert!(audit.ends_with("every wallet is what its history makes it"), "{audit}");
        let mut seen = std::mem::take(&mut *self.seen.lock().expect("not poisoned"));
        seen.acknowledged.sort_unstable();
        assert_eq!(seen.acknowledged.len(), predictions + deductions);
        let faults: BTreeMap<_, _> = seen.refusals.iter().filter(|(answer, _)| !answer.starts_with("503 ")).collect();
        assert!(
            faults.is_empty(),
            "whoever cannot be served now is told 503, and nothing else: {:?} because of {:#?}",
            seen.refusals,
            causes(service)
        );
        assert_eq!(seen.without_advice, 0, "503 without Retry-After");
        Outcome {
            predictions,
            deductions,
            refusals: seen.refusals,
            slowest: seen.slowest,
            acknowledged: seen.acknowledged,
        }
    }
}

/// What a process gave as the causes of errors.
pub(crate) fn causes(service: &Process) -> BTreeSet<String> {
    let lines = service.log();
    let lines = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter_map(|line| Some(format!("{}: {}", line["code"].as_str()?, line["cause"].as_str()?))).collect()
}

/// Every word that was acknowledged is there in its order, the last one counts, and each match's tally is the sum of it.
async fn compare_words(db: &PgPool, told: &BTreeMap<i64, Acknowledged>) -> usize {
    type Row = (i64, i64, i16, i16, i16);
    let rows: Vec<Row> = sqlx::query_as(
        "select user_id, event_id, home_goals, away_goals, confidence from (
             select user_id, event_id, revision, home_goals, away_goals, confidence from prediction_revisions
             union all select user_id, event_id, revision, home_goals, away_goals, confidence from predictions) said
         where user_id = any($1)
         order by user_id, event_id, revision",
    )
    .bind(told.keys().copied().collect::<Vec<_>>())
    .fetch_all(db)
    .await
    .expect("read");
    let mut written: BTreeMap<(i64, i64), Vec<Word>> = BTreeMap::new();
    for (user, event, home, away, confidence) in rows {
        let words = written.entry((user, event)).or_default();
        // Who was not answered says the same again, and the service may keep that they said it twice.
        if words.last() != Some(&(home, away, confidence)) {
            words.push((home, away, confidence));
        }
    }
    let said =
        told.iter().flat_map(|(user, told)| told.words.iter().map(|(event, words)| ((*user, *event), words.clone())));
    let said: BTreeMap<(i64, i64), Vec<Word>> = said.collect();
    let differ: Vec<_> = said
        .keys()
        .chain(written.keys())
        .filter(|key| written.get(key) != said.get(key))
        .map(|key| (key, written.get(key), said.get(key)))
        .collect();
    assert!(differ.is_empty(), "what is written is not what was acknowledged: {differ:?}");
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
    .bind(said.keys().map(|(_, event)| *event).collect::<Vec<_>>())
    .fetch_all(db)
    .await
    .expect("read");
    assert_eq!(miscounted, [], "matches whose tally is not the sum of their predictions");
    said.values().map(Vec::len).sum()
}

/// Every deduction that was acknowledged is there once, and no other is.
async fn compare_deductions(db: &PgPool, told: &BTreeMap<i64, Acknowledged>) -> usize {
    let rows: Vec<(i64, String, uuid::Uuid, i64)> = sqlx::query_as(
        "select user_id, reference, transaction_id, -amount from coin_transactions
         where kind = 'deduction' and user_id = any($1)",
    )
    .bind(told.keys().copied().collect::<Vec<_>>())
    .fetch_all(db)
    .await
    .expect("read");
    let count = rows.len();
    let written: BTreeSet<_> =
        rows.into_iter().map(|(user, reference, id, amount)| (user, reference, format!("txn_{id}"), amount)).collect();
    let acknowledged: BTreeSet<_> = told
        .iter()
        .flat_map(|(user, told)| {
            told.deductions.iter().map(|(name, (id, amount))| (*user, name.clone(), id.clone(), *amount))
        })
        .collect();
    let [lost, unasked] = [acknowledged.difference(&written), written.difference(&acknowledged)];
    assert_eq!(lost.collect::<Vec<_>>(), Vec::<&_>::new(), "acknowledged, and not there");
    assert_eq!(unasked.collect::<Vec<_>>(), Vec::<&_>::new(), "there, and not acknowledged");
    assert_eq!(written.len(), count, "there twice");
    count
}

impl Outcome {
    /// The longest time without any acknowledgement: from the last one before a fault to the first one after it.
    pub(crate) fn longest_silence(&self) -> Duration {
        self.acknowledged.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
    }

    /// For people: what was answered meanwhile to those who were not served.
    pub(crate) fn refused(&self) -> String {
        let each = self.refusals.iter().map(|(answer, times)| format!("{} times {answer}", thousands(*times)));
        let all = each.collect::<Vec<_>>().join(", ");
        if all.is_empty() {
            "nothing was refused".to_owned()
        } else {
            format!("refused meanwhile, and then done: {all}")
        }
    }
}

/// For people: how much was acknowledged, and that it is all there.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} predictions and {} deductions acknowledged, all there once",
            thousands(self.predictions),
            thousands(self.deductions)
        )
    }
}

/// A number as people write it.
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
