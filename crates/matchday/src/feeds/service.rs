//! Looking at feeds, and importing what is new in them.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use platform::{Core, clock::Clock, lease::Lease};
use secrecy::SecretString;
use sha2::{Digest as _, Sha256};
use sqlx::PgPool;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use tokio_util::sync::CancellationToken;

pub use super::store::State;
use super::{
    football_data, openfootball,
    reading::{self, Composed, Reading},
    rules::{self, Budget, LONGEST, NEAR},
    settings::Settings,
    source::{self, FOOTBALL_DATA, FetchError, Fetched, Kind, Source},
    store,
};
use crate::fixtures::{
    document::Fault,
    service::{Fixtures, ImportError, Mode, Report},
};

/// How long a process waits that cannot reach the database.
const DATABASE_AWAY: Duration = Duration::from_secs(5);
/// As much of what is wrong as an operator is shown at once.
const SHOWN: usize = 5;

/// Matches that come in by themselves. Cheap to clone.
#[derive(Clone)]
pub struct Feeds(Arc<Parts>);

struct Parts {
    db: PgPool,
    clock: Arc<dyn Clock>,
    fixtures: Fixtures,
    web: reqwest::Client,
    token: Option<SecretString>,
    sources: Vec<Source>,
    /// What football-data.org allows to all of its feeds.
    budget: Mutex<Budget>,
    /// When to look again at feeds of which the database does not know it, because it was away.
    unwritten: Mutex<HashMap<String, OffsetDateTime>>,
}

/// What became of one look at a feed.
#[derive(Debug)]
pub struct Polled {
    /// The feed's name.
    pub feed: String,
    /// What came of it.
    pub outcome: Result<Outcome, PollError>,
    /// When it is looked at again.
    pub next_poll_at: OffsetDateTime,
}

/// A look that went well.
#[derive(Debug)]
pub enum Outcome {
    /// The document is the same as the last time.
    Unchanged,
    /// There are no matches to import yet.
    Empty,
    /// The document was imported.
    Imported {
        /// What that changed.
        report: Box<Report>,
        /// What an operator should know of the document.
        notes: Vec<String>,
    },
}

/// A look that failed; nothing was imported.
#[derive(Debug, thiserror::Error)]
pub enum PollError {
    /// There was no document.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The document is not what it should be.
    #[error("the document has faults: {}", listed(.0))]
    Faults(Vec<Fault>),
    /// The document could not be imported.
    #[error(transparent)]
    Import(ImportError),
    /// The database failed.
    #[error("the database: {0}")]
    Database(#[from] sqlx::Error),
}

impl From<ImportError> for PollError {
    fn from(error: ImportError) -> Self {
        match error {
            ImportError::Conflict(faults) => Self::Faults(faults),
            ImportError::Database(error) => Self::Database(error),
            other => Self::Import(other),
        }
    }
}

fn listed(faults: &[Fault]) -> String {
    let mut shown: Vec<String> = faults.iter().take(SHOWN).map(ToString::to_string).collect();
    if faults.len() > SHOWN {
        shown.push(format!("and {} more", faults.len() - SHOWN));
    }
    shown.join("; ")
}

/// A moment as people read it.
fn shown(moment: OffsetDateTime) -> String {
    moment.replace_nanosecond(0).unwrap_or(moment).format(&Rfc3339).unwrap_or_default()
}

impl fmt::Display for Polled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let next = shown(self.next_poll_at);
        match &self.outcome {
            Ok(Outcome::Unchanged) => write!(f, "{}: unchanged; next poll {next}", self.feed),
            Ok(Outcome::Empty) => write!(f, "{}: no matches yet; next poll {next}", self.feed),
            Ok(Outcome::Imported { report, .. }) => write!(
                f,
                "{}: {}: teams {} new, {} changed; matches {} new, {} changed, {} as they were; {} {}; next poll {next}",
                self.feed,
                report.tournament,
                report.teams.new,
                report.teams.changed,
                report.matches.new,
                report.matches.changed,
                report.matches.unchanged,
                report.results,
                if report.results == 1 { "result" } else { "results" },
            ),
            Err(error) => write!(f, "{}: failed: {error}; next poll {next}", self.feed),
        }
    }
}

/// How a feed goes, for operators.
#[derive(Clone, Debug)]
pub struct Health {
    /// Its name.
    pub feed: String,
    /// Whether the settings name it.
    pub is_configured: bool,
    /// What is known of it, if it was ever looked at.
    pub state: Option<State>,
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let never = |moment: Option<OffsetDateTime>| moment.map_or_else(|| "never".to_owned(), shown);
        let state = self.state.as_ref();
        write!(
            f,
            "{}: last success {}, last change {}, last error {}, next poll {}",
            self.feed,
            never(state.and_then(|state| state.succeeded_at)),
            never(state.and_then(|state| state.changed_at)),
            state
                .and_then(|state| state.failed_at.zip(state.error.as_deref()))
                .map_or_else(|| "none".to_owned(), |(at, error)| format!("{} ({error})", shown(at))),
            match (self.is_configured, state) {
                (false, _) => "never: it is not in the settings any more".to_owned(),
                (true, None) => "at once".to_owned(),
                (true, Some(state)) => shown(state.next_poll_at),
            },
        )
    }
}

impl Feeds {
    /// The feeds that the settings name.
    pub fn new(core: &Core, config: &Settings, fixtures: Fixtures) -> reqwest::Result<Self> {
        let Core { db, clock, .. } = core.clone();
        let web = reqwest::Client::builder()
            .timeout(config.timeout)
            .user_agent(concat!("matchday/", env!("CARGO_PKG_VERSION")))
            // A redirect would carry our token to somebody else.
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        Ok(Self(Arc::new(Parts {
            db,
            clock,
            fixtures,
            web,
            token: config.football_data_token.as_ref().map(|token| token.inner().clone()),
            sources: source::sources(config),
            budget: Mutex::new(Budget::new(config.football_data_per_minute)),
            unwritten: Mutex::default(),
        })))
    }

    /// Whether there is anything to look at.
    pub fn is_configured(&self) -> bool {
        !self.0.sources.is_empty()
    }

    /// How all feeds go: those that are configured in their order, then those that were once.
    pub async fn status(&self) -> sqlx::Result<Vec<Health>> {
        let mut states = store::states(&self.0.db).await?;
        let mut all: Vec<Health> = self
            .0
            .sources
            .iter()
            .map(|source| Health { feed: source.name.clone(), is_configured: true, state: states.remove(&source.name) })
            .collect();
        let mut gone: Vec<State> = states.into_values().collect();
        gone.sort_by(|one, other| one.name.cmp(&other.name));
        all.extend(gone.into_iter().map(|state| Health {
            feed: state.name.clone(),
            is_configured: false,
            state: Some(state),
        }));
        Ok(all)
    }

    /// Looks at each feed once, whether or not it is due, and tells of each.
    pub async fn poll_once(&self, mut tell: impl FnMut(&Polled)) -> sqlx::Result<()> {
        self.remember(&store::states(&self.0.db).await?);
        for source in &self.0.sources {
            loop {
                let now = self.0.clock.now();
                let free = self.free_at(source, now);
                if free <= now {
                    break;
                }
                tracing::info!(feed = source.name, "waiting for what the provider allows");
                tokio::time::sleep((free - now).unsigned_abs().min(Duration::from_secs(5))).await;
            }
            let state = store::states(&self.0.db).await?.remove(&source.name);
            tell(&self.poll(source, state).await);
        }
        Ok(())
    }

    /// Looks at feeds when they are due, as long as no other process does, until shutdown. `standby` is how often whoever
    /// has nothing to do looks whether that is still so; shorter than the lease.
    pub async fn run(
        &self,
        lease: Lease,
        standby: Duration,
        closing: CancellationToken,
        tell: impl Fn(&Polled) + Send + Sync,
    ) {
        for source in &self.0.sources {
            // Counted from nothing, so that the first failure is seen as one.
            metrics::counter!("matchday_feed_failures_total", "feed" => source.name.clone()).increment(0);
            metrics::counter!("matchday_feed_changes_total", "feed" => source.name.clone()).increment(0);
        }
        let mut is_ours = false;
        while !closing.is_cancelled() {
            // What shutdown cuts short is done again by the next process: an import is whole or nothing.
            let turn = tokio::select! {
                () = closing.cancelled() => break,
                turn = self.turn(&lease, &mut is_ours, &tell) => turn,
            };
            let pause = match turn {
                Ok(None) => standby,
                Ok(Some(pause)) => pause.min(standby),
                Err(error) => {
                    tracing::warn!(%error, "feeds are not looked at");
                    DATABASE_AWAY.min(standby)
                }
            };
            tokio::select! {
                () = closing.cancelled() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        let released = tokio::time::timeout(Duration::from_secs(2), lease.release(&self.0.db)).await;
        if !matches!(released, Ok(Ok(()))) {
            tracing::debug!("the lease of feeds runs out by itself");
        }
    }

    /// Looks at the feed that is due, if one is. Returns how long there is nothing to do; `None` if that is another
    /// process's business.
    pub(super) async fn turn(
        &self,
        lease: &Lease,
        is_ours: &mut bool,
        tell: &(impl Fn(&Polled) + Send + Sync),
    ) -> sqlx::Result<Option<Duration>> {
        let was_ours = std::mem::replace(is_ours, lease.hold(&self.0.db).await?);
        if !*is_ours {
            return Ok(None);
        }
        let mut states = store::states(&self.0.db).await?;
        if !was_ours {
            tracing::info!("this process looks at feeds");
            self.remember(&states);
        }
        let now = self.0.clock.now();
        let due = |source: &Source| self.due_at(source, states.get(&source.name), now);
        let next = self.0.sources.iter().map(|source| (due(source), source)).min_by_key(|(due, _)| *due);
        match next {
            Some((due, source)) if due <= now => {
                let state = states.remove(&source.name);
                tell(&self.poll(source, state).await);
                Ok(Some(Duration::ZERO))
            }
            Some((due, _)) => Ok(Some((due - now).unsigned_abs())),
            None => Ok(Some(DATABASE_AWAY)),
        }
    }

    /// When a feed may be looked at: when it is due, and its provider allows it.
    fn due_at(&self, source: &Source, state: Option<&State>, now: OffsetDateTime) -> OffsetDateTime {
        let unwritten = locked(&self.0.unwritten).get(&source.name).copied();
        let due = unwritten.or_else(|| state.and_then(|state| written(source, state))).unwrap_or(now);
        // Whoever is overdue the longest comes first.
        let free = self.free_at(source, now);
        if free > now { due.max(free) } else { due }
    }

    fn free_at(&self, source: &Source, now: OffsetDateTime) -> OffsetDateTime {
        if source.is_limited() { locked(&self.0.budget).free_at(now) } else { now }
    }

    /// Counts the requests that another process sent in the last minute.
    fn remember(&self, states: &HashMap<String, State>) {
        let now = self.0.clock.now();
        let mut budget = locked(&self.0.budget);
        let limited = self.0.sources.iter().filter(|source| source.is_limited());
        for state in limited.filter_map(|source| states.get(&source.name)) {
            budget.remember(now, state.polled_at);
        }
    }

    /// Looks at a feed, and writes down how that went.
    async fn poll(&self, source: &Source, state: Option<State>) -> Polled {
        let now = self.0.clock.now();
        let basis = source.basis();
        let mut state = state.unwrap_or_else(|| State {
            name: source.name.clone(),
            tournament_id: None,
            basis: String::new(),
            etag: None,
            digest: None,
            polled_at: now,
            succeeded_at: None,
            changed_at: None,
            failed_at: None,
            error: None,
            failures: 0,
            next_poll_at: now,
        });
        if state.basis != basis {
            (state.etag, state.digest, state.basis) = (None, None, basis);
        }
        state.polled_at = now;
        let outcome = self.look(source, &mut state).await;
        // Later than the look began: what a provider tells us to wait begins with its answer.
        let now = self.0.clock.now();
        match &outcome {
            Ok(outcome) => {
                state.succeeded_at = Some(now);
                state.failures = 0;
                state.next_poll_at = self.next_poll(source, &state, now).await;
                tell_success(source, outcome, now, &mut state);
            }
            Err(error) => {
                let told = match error {
                    PollError::Fetch(FetchError::Throttled { wait }) => Some(*wait),
                    _ => None,
                };
                // Being told to wait is no failure that grows.
                state.failures = if told.is_some() { state.failures } else { state.failures.saturating_add(1) };
                state.failed_at = Some(now);
                state.error = Some(error.to_string());
                let failures = u32::try_from(state.failures).unwrap_or_default();
                state.next_poll_at = rules::next_try(now, failures, told, source.pace);
                metrics::counter!("matchday_feed_failures_total", "feed" => source.name.clone()).increment(1);
                tracing::warn!(feed = source.name, %error, "a feed failed; nothing was imported");
            }
        }
        let next_poll_at = state.next_poll_at;
        let saved = store::save(&self.0.db, &state).await;
        let mut unwritten = locked(&self.0.unwritten);
        if let Err(error) = saved {
            tracing::warn!(feed = source.name, %error, "how a feed went was not written down");
            unwritten.insert(source.name.clone(), next_poll_at);
        } else {
            unwritten.remove(&source.name);
        }
        Polled { feed: source.name.clone(), outcome, next_poll_at }
    }

    /// Fetches the document, and imports it if it is another one than the last time.
    async fn look(&self, source: &Source, state: &mut State) -> Result<Outcome, PollError> {
        if source.is_limited() {
            locked(&self.0.budget).spend(state.polled_at);
        }
        let (fetched, allowance) =
            source::fetch(&self.0.web, source, self.0.token.as_ref(), state.etag.as_deref()).await;
        if source.is_limited() {
            let (now, mut budget) = (self.0.clock.now(), locked(&self.0.budget));
            if let Some(allowance) = allowance {
                budget.told(now, allowance.left, allowance.anew_in);
            }
            // It means all of its feeds, whichever asked.
            if let Err(FetchError::Throttled { wait }) = &fetched {
                budget.pause(now, *wait);
            }
        }
        let Fetched::Document { body, etag } = fetched? else { return Ok(Outcome::Unchanged) };
        let digest = Sha256::digest(&body).to_vec();
        if state.digest.as_ref() == Some(&digest) {
            state.etag = etag;
            return Ok(Outcome::Unchanged);
        }
        let reading = match &source.kind {
            Kind::FootballData { code, .. } => football_data::read(&body, code).map_err(PollError::Faults)?,
            Kind::OpenFootball { zone, .. } => Some(openfootball::read(&body, zone).map_err(PollError::Faults)?),
        };
        let outcome = match reading {
            Some(reading) if !reading.matches.is_empty() => self.import(reading, state).await?,
            _ => Outcome::Empty,
        };
        (state.etag, state.digest) = (etag, Some(digest));
        Ok(outcome)
    }

    async fn import(&self, mut reading: Reading, state: &mut State) -> Result<Outcome, PollError> {
        if reading.teams.iter().any(|team| team.id.is_some()) {
            self.name_teams(&mut reading).await?;
        }
        let mut connection = self.0.db.acquire().await?;
        let known = store::known(&mut connection, &reading).await?;
        drop(connection);
        let Composed { document, left_out } = reading::compose(&reading, &known).map_err(PollError::Faults)?;
        let mut notes = reading.notes;
        if left_out > 0 {
            notes.push(format!("left out until their results are known: {left_out} of the matches"));
        }
        let report = self.0.fixtures.import(&document, Mode::Write, |_| {}).await?;
        state.tournament_id = report.tournament_id;
        Ok(Outcome::Imported { report: Box::new(report), notes })
    }

    /// Gives the provider's teams the slugs that they have here, and keeps those that are new. Committed before the import:
    /// a slug that was kept for a team that never came harms nobody, a team whose slug was forgotten could become two.
    async fn name_teams(&self, reading: &mut Reading) -> sqlx::Result<()> {
        let mut tx = self.0.db.begin().await?;
        store::lock_teams(&mut tx, FOOTBALL_DATA).await?;
        let given = store::slugs(&mut tx, FOOTBALL_DATA).await?;
        let wanted: Vec<&str> = reading.teams.iter().map(|team| team.slug.as_str()).collect();
        let here = store::teams(&mut *tx, &wanted).await?;
        let claims = reading::name_teams(reading, &given, &here);
        let claims: Vec<(&str, &str)> = claims.iter().map(|(id, slug)| (id.as_str(), slug.as_str())).collect();
        store::claim_slugs(&mut tx, FOOTBALL_DATA, &claims).await?;
        tx.commit().await
    }

    /// When to look again. If the database does not say what is on, as if nothing were.
    async fn next_poll(&self, source: &Source, state: &State, now: OffsetDateTime) -> OffsetDateTime {
        let fixtures = match state.tournament_id {
            Some(tournament) => {
                let (from, to) = (now - LONGEST, now + source.pace.idle + NEAR);
                store::fixtures(&self.0.db, tournament, from, to).await.unwrap_or_else(|error| {
                    tracing::warn!(feed = source.name, %error, "nobody knows which matches are on");
                    Vec::new()
                })
            }
            None => Vec::new(),
        };
        rules::next_poll(now, &fixtures, source.pace)
    }
}

/// Tells of a look that went well, in logs and metrics, and notes when it brought something new.
fn tell_success(source: &Source, outcome: &Outcome, now: OffsetDateTime, state: &mut State) {
    let feed = &source.name;
    #[expect(clippy::cast_precision_loss, reason = "seconds fit until long after all leagues are gone")]
    let seconds = now.unix_timestamp() as f64;
    metrics::gauge!("matchday_feed_last_success_timestamp_seconds", "feed" => feed.clone()).set(seconds);
    let Outcome::Imported { report, notes } = outcome else {
        return tracing::debug!(feed, "nothing is new");
    };
    for note in notes {
        tracing::info!(feed, "{note}");
    }
    for change in &report.changes {
        tracing::info!(feed, "{change}");
    }
    let (teams, matches) = (report.teams, report.matches);
    let changes = teams.new + teams.changed + matches.new + matches.changed + usize::from(report.renamed);
    if changes > 0 {
        state.changed_at = Some(now);
        metrics::counter!("matchday_feed_changes_total", "feed" => feed.clone()).increment(changes as u64);
        tracing::info!(
            feed,
            tournament = report.tournament,
            new_teams = teams.new,
            changed_teams = teams.changed,
            new_matches = matches.new,
            changed_matches = matches.changed,
            results = report.results,
            "a feed brought something new"
        );
    }
}

/// When a feed is due by what was written down; `None` if that was of another place or way of reading. Settings may have
/// become shorter since. What a failure made it wait stays.
fn written(source: &Source, state: &State) -> Option<OffsetDateTime> {
    let idle = source.pace.idle.max(source.pace.least);
    let went_well = state.failed_at.is_none_or(|failed_at| failed_at < state.polled_at);
    let due = if went_well { state.next_poll_at.min(state.polled_at + idle) } else { state.next_poll_at };
    (state.basis == source.basis()).then_some(due)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
