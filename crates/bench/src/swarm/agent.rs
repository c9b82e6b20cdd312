//! An agent: starts each arrival of its share at its time, whether or not earlier ones have finished.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

use super::{
    action::{Action, Verdict},
    client::{Call, Client},
    listener::{Fact, Listener},
    plan::{Order, Plan, Reply},
    script::{Course, stride},
    tally::Tally,
};

/// Arrivals in progress beyond which an agent gives up. The memory of a machine is limited; the schedule is not.
const MOST_IN_PROGRESS: usize = 50_000;
/// Lateness of a timer. It is not part of a latency, because the deployment does not cause it.
const TIMER: Duration = Duration::from_millis(2);
/// Time after the last arrival for which an agent waits for responses.
const GRACE: Duration = Duration::from_mins(1);
const PROGRESS: Duration = Duration::from_secs(10);

/// State that all arrivals of a run share.
pub(crate) struct Evening {
    pub(crate) client: Client,
    pub(crate) facts: watch::Receiver<Option<Fact>>,
    plan: Plan,
    tally: Mutex<Tally>,
    /// `ETag` of each fan's last list of matches.
    etags: Vec<Mutex<Option<String>>>,
    in_progress: AtomicUsize,
    ended: watch::Receiver<bool>,
}

/// Carries out one plan, which must be the first order.
pub(crate) async fn serve(mut orders: mpsc::Receiver<Order>, replies: mpsc::Sender<Reply>) -> anyhow::Result<()> {
    let Some(Order::Plan(plan)) = orders.recv().await else { anyhow::bail!("the first order must be a plan") };
    let (tell, facts) = watch::channel(None);
    let (end, ended) = watch::channel(false);
    let evening = Arc::new(Evening {
        client: Client::new(&plan.url, plan.run, plan.agent)?,
        facts,
        tally: Mutex::default(),
        etags: plan.tokens.iter().map(|_| Mutex::default()).collect(),
        in_progress: AtomicUsize::new(0),
        ended,
        plan: *plan,
    });
    replies.send(Reply::Ready).await?;
    anyhow::ensure!(matches!(orders.recv().await, Some(Order::Start)), "the second order must be the start");
    let start = Instant::now();
    let mut pacers = JoinSet::new();
    for course in &evening.plan.courses {
        pacers.spawn(Arc::clone(&evening).pace(course.clone(), start));
    }
    let length = Duration::from_secs_f64(evening.plan.seconds);
    pacers.spawn(async move {
        tokio::time::sleep_until((start + length).into()).await;
        JoinSet::new()
    });
    let (mut number, mut listeners) = (0, JoinSet::new());
    let mut progress = tokio::time::interval_at((start + PROGRESS).into(), PROGRESS);
    loop {
        tokio::select! {
            done = pacers.join_next() => match done {
                Some(done) => listeners = join_all(listeners, done?),
                None => break,
            },
            order = orders.recv() => match order {
                Some(Order::Fact { kind }) => {
                    number += 1;
                    tell.send_replace(Some(Fact { number, kind, at: Instant::now() }));
                }
                Some(_) => {}
                None => anyhow::bail!("the coordinator left"),
            },
            _ = progress.tick() => replies.send(evening.progress()).await?,
        }
    }
    end.send_replace(true);
    while listeners.join_next().await.is_some() {}
    let tally = evening.tally().clone();
    replies.send(Reply::Done(Box::new(tally))).await?;
    Ok(())
}

/// Moves the tasks of one set to another.
fn join_all(mut all: JoinSet<()>, mut more: JoinSet<()>) -> JoinSet<()> {
    all.spawn(async move { while more.join_next().await.is_some() {} });
    all
}

impl Evening {
    pub(crate) fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a success, with its latency since `from`.
    pub(crate) fn succeeded(&self, action: Action, from: Instant) {
        let took = from.elapsed();
        let mut tally = self.tally();
        let row = tally.row(action);
        row.ok += 1;
        row.latency.record(took);
    }

    fn progress(&self) -> Reply {
        let tally = self.tally();
        let ok = tally.rows.values().map(|row| row.ok).sum();
        let refused = tally.rows.values().flat_map(|row| row.refused.values()).sum();
        Reply::Progress { ok, refused, failed: tally.failures() }
    }

    /// Starts this agent's arrivals of a course, each at its time. Returns the listeners, who stay.
    async fn pace(self: Arc<Self>, course: Course, start: Instant) -> JoinSet<()> {
        let (action, fans) = (course.action, self.plan.tokens.len() as u64);
        let (mut requests, mut listeners) = (JoinSet::new(), JoinSet::new());
        let step = stride(fans);
        for (place, arrival) in (0..).zip(course.share(self.plan.agent, self.plan.agents)) {
            let due = start + course.due(arrival);
            if due > Instant::now() {
                tokio::time::sleep_until(due.into()).await;
            }
            let late = due.elapsed();
            let from = if late < TIMER { Instant::now() } else { due };
            let fan = usize::try_from((place * step) % fans.max(1)).unwrap_or_default();
            {
                let mut tally = self.tally();
                tally.lateness.record(late);
                tally.row(action).due += 1;
            }
            while requests.try_join_next().is_some() {}
            if action == Action::Listen {
                let listener = Listener::new(Arc::clone(&self), self.plan.tokens[fan].clone());
                listeners.spawn(listener.run(from, self.ended.clone()));
            } else if self.in_progress.fetch_add(1, Relaxed) >= MOST_IN_PROGRESS {
                self.in_progress.fetch_sub(1, Relaxed);
                self.tally().row(action).count(Verdict::Failed("agent overloaded".to_owned()));
            } else {
                let evening = Arc::clone(&self);
                requests.spawn(async move {
                    evening.act(action, fan, arrival, from).await;
                    evening.in_progress.fetch_sub(1, Relaxed);
                });
            }
        }
        let finished = async { while requests.join_next().await.is_some() {} };
        if tokio::time::timeout(GRACE, finished).await.is_err() {
            let unfinished = u64::try_from(requests.len()).unwrap_or_default();
            let mut tally = self.tally();
            for _ in 0..unfinished {
                // A busy room lets a join wait in line for minutes, on purpose.
                let verdict = if action == Action::Join { Verdict::Refused } else { Verdict::Failed };
                tally.row(action).count(verdict("unfinished".to_owned()));
            }
        }
        listeners
    }

    async fn act(&self, action: Action, fan: usize, arrival: u64, from: Instant) {
        if action == Action::LogIn {
            return self.log_in(arrival, from).await;
        }
        let call = self.call(action, fan, arrival);
        let Some(answer) = self.client.send(action, &call, &self.tally).await else { return };
        self.succeeded(action, from);
        if let (Action::Matches, Some(etag)) = (action, answer.etag) {
            *self.etags[fan].lock().unwrap_or_else(PoisonError::into_inner) = Some(etag);
        }
    }

    /// The request of a fan.
    fn call(&self, action: Action, fan: usize, arrival: u64) -> Call {
        let Plan { event, tournament, rooms, run, .. } = &self.plan;
        let room = || rooms.get(fan % rooms.len().max(1)).map(|room| encoded(room)).unwrap_or_default();
        let get = |path: String| (path, None, "\"data\"");
        let (path, body, expects) = match action {
            Action::Matches => get("/api/auth/events?per_page=20".to_owned()),
            Action::OneMatch => get(format!("/api/auth/events/{event}")),
            Action::MatchPredictions => get(format!("/api/auth/events/{event}/predictions?per_page=20")),
            Action::RoomStats => get(format!("/api/auth/chat-rooms/{}/member-stats", room())),
            Action::Rank => get(format!("/api/auth/leaderboards?tournament_id={tournament}")),
            Action::OwnPredictions => get("/api/auth/predictions?per_page=20".to_owned()),
            Action::Join => (format!("/api/auth/chat-rooms/{}/join", room()), Some(String::new()), "\"message\""),
            Action::Claim => ("/api/auth/daily-coins".to_owned(), Some(String::new()), "\"coins_awarded\""),
            Action::Predict => {
                let (pick, confidence) = (["home", "draw", "away"][fan % 3], (arrival * 7) % 101);
                let body = format!(r#"{{"event_id":{event},"prediction":"{pick}","confidence":{confidence}}}"#);
                ("/api/auth/predictions".to_owned(), Some(body), "\"created_at\"")
            }
            Action::Deduct => {
                let body = format!(r#"{{"amount":1,"reason":"purchase","reference_id":"swarm-{run}-{arrival}"}}"#);
                ("/api/auth/coins/deduct".to_owned(), Some(body), "\"amount_deducted\":1")
            }
            Action::Profile
            | Action::LogIn
            | Action::Listen
            | Action::RequestCode
            | Action::Resume
            | Action::Deliver => get("/api/auth/me".to_owned()),
        };
        let etag = (action == Action::Matches).then(|| self.etags[fan].lock().ok()?.clone()).flatten();
        let token = self.plan.tokens[fan].clone();
        Call { path, token, body, etag, expects: expects.to_owned(), address: self.address(fan as u64) }
    }

    /// Requests a code, reads it from the message log, and logs in with it. Reading the log stands for the text message
    /// and is not part of the latency.
    async fn log_in(&self, arrival: u64, from: Instant) {
        let Some(phones) = &self.plan.phones else { return };
        let phone = phones.phone(arrival);
        let address = self.address(1 << 20 | arrival);
        let post = |path: &str, body: serde_json::Value, expects: &str| Call {
            path: path.to_owned(),
            body: Some(body.to_string()),
            expects: expects.to_owned(),
            address: address.clone(),
            ..Call::default()
        };
        self.tally().row(Action::RequestCode).due += 1;
        let request = post("/api/code/request", serde_json::json!({"phone": phone}), "\"data\"");
        if self.client.send(Action::RequestCode, &request, &self.tally).await.is_none() {
            return;
        }
        self.succeeded(Action::RequestCode, from);
        let asked = Instant::now();
        let log = Call { path: format!("/api/logs/sms?phone={}", encoded(&phone)), ..Call::default() };
        let log = self.client.send(Action::LogIn, &log, &self.tally).await;
        let code = log.and_then(|log| {
            let log: serde_json::Value = serde_json::from_str(&log.body).ok()?;
            Some(log.pointer("/data/0/code")?.as_str()?.to_owned())
        });
        let Some(code) = code else {
            return self.tally().row(Action::LogIn).count(Verdict::Failed("no code in the message log".to_owned()));
        };
        let from = from + asked.elapsed();
        let verify = post("/api/code/verify", serde_json::json!({"phone": phone, "code": code}), "\"token\"");
        if self.client.send(Action::LogIn, &verify, &self.tally).await.is_some() {
            self.succeeded(Action::LogIn, from);
        }
    }

    /// An address for a fan, from a network reserved for benchmarks.
    fn address(&self, fan: u64) -> Option<String> {
        let spread = || format!("198.18.{}.{}", fan / 250 % 250, fan % 250 + 1);
        self.plan.spread_addresses.then(spread)
    }
}

/// Percent-encodes a path segment.
pub(crate) fn encoded(text: &str) -> String {
    let byte = |byte: u8| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    text.bytes().map(byte).collect()
}
