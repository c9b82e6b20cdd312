//! Polls feeds and imports their changes.

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
use crate::catalogue::fixtures::{
    document::Fault,
    service::{Fixtures, ImportError, Mode, Report},
};

/// Pause after a database failure.
const DATABASE_PAUSE: Duration = Duration::from_secs(5);
/// Maximum number of faults shown to an operator.
const SHOWN: usize = 5;

/// Polls the configured feeds. Cheap to clone.
#[derive(Clone)]
pub struct Feeds(Arc<Inner>);

struct Inner {
    db: PgPool,
    clock: Arc<dyn Clock>,
    fixtures: Fixtures,
    web: reqwest::Client,
    token: Option<SecretString>,
    sources: Vec<Source>,
    /// Request budget of all football-data.org feeds.
    budget: Mutex<Budget>,
    /// Next poll of each feed whose state could not be saved because the database was unavailable.
    unsaved: Mutex<HashMap<String, OffsetDateTime>>,
}

/// Outcome of one poll.
#[derive(Debug)]
pub struct Polled {
    pub feed: String,
    pub outcome: Result<Outcome, PollError>,
    pub next_poll_at: OffsetDateTime,
}

/// Outcome of a successful poll.
#[derive(Debug)]
pub enum Outcome {
    /// The document is the same as in the last poll.
    Unchanged,
    /// The document has no matches to import yet.
    Empty,
    Imported {
        report: Box<Report>,
        /// Remarks about the document for operators.
        notes: Vec<String>,
    },
}

/// Error from a poll. Nothing was imported.
#[derive(Debug, thiserror::Error)]
pub enum PollError {
    /// The document could not be fetched.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The document is not valid.
    #[error("the document has faults: {}", listed(.0))]
    Faults(Vec<Fault>),
    /// The document could not be imported.
    #[error(transparent)]
    Import(ImportError),
    #[error("the database failed: {0}")]
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

/// Formats a time for operators, without fractions of a second.
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
                "{}: {}: teams {} new, {} changed; matches {} new, {} changed, {} unchanged; {} {}; next poll {next}",
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

/// Health of a feed, for operators.
#[derive(Clone, Debug)]
pub struct Health {
    pub feed: String,
    /// Whether the settings still list the feed.
    pub is_configured: bool,
    /// `None` if the feed was never polled.
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
                (false, _) => "never: removed from the settings".to_owned(),
                (true, None) => "now".to_owned(),
                (true, Some(state)) => shown(state.next_poll_at),
            },
        )
    }
}

impl Feeds {
    /// Creates the feeds listed in the settings.
    pub fn new(core: &Core, config: &Settings, fixtures: Fixtures) -> reqwest::Result<Self> {
        let Core { db, clock, .. } = core.clone();
        let web = reqwest::Client::builder()
            .timeout(config.timeout)
            .user_agent(concat!("matchday/", env!("CARGO_PKG_VERSION")))
            // A redirect would send the token to another host.
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        Ok(Self(Arc::new(Inner {
            db,
            clock,
            fixtures,
            web,
            token: config.football_data_token.as_ref().map(|token| token.inner().clone()),
            sources: source::sources(config),
            budget: Mutex::new(Budget::new(config.football_data_per_minute)),
            unsaved: Mutex::default(),
        })))
    }

    /// Returns true if the settings list at least one feed.
    pub fn is_configured(&self) -> bool {
        !self.0.sources.is_empty()
    }

    /// Returns the health of all feeds: configured feeds in their order, then feeds that were configured before.
    pub async fn status(&self) -> sqlx::Result<Vec<Health>> {
        let mut states = store::states(&self.0.db).await?;
        let mut all: Vec<Health> = self
            .0
            .sources
            .iter()
            .map(|source| Health { feed: source.name.clone(), is_configured: true, state: states.remove(&source.name) })
            .collect();
        let mut removed: Vec<State> = states.into_values().collect();
        removed.sort_by(|one, other| one.name.cmp(&other.name));
        all.extend(removed.into_iter().map(|state| Health {
            feed: state.name.clone(),
            is_configured: false,
            state: Some(state),
        }));
        Ok(all)
    }

    /// Polls each feed once, whether or not it is due, and passes each outcome to `report`.
    pub async fn poll_once(&self, mut report: impl FnMut(&Polled)) -> sqlx::Result<()> {
        self.remember(&store::states(&self.0.db).await?);
        for source in &self.0.sources {
            loop {
                let now = self.0.clock.now();
                let free = self.free_at(source, now);
                if free <= now {
                    break;
                }
                tracing::info!(feed = source.name, "feed waits for the provider's rate limit");
                tokio::time::sleep((free - now).unsigned_abs().min(Duration::from_secs(5))).await;
            }
            let state = store::states(&self.0.db).await?.remove(&source.name);
            report(&self.poll(source, state).await);
        }
        Ok(())
    }

    /// Polls feeds when they are due, until shutdown, while this process holds the lease.
    pub async fn run(&self, lease: Lease, closing: CancellationToken, report: impl Fn(&Polled) + Send + Sync) {
        for source in &self.0.sources {
            // Start the counters at zero. Otherwise the first failure would not show as an increase.
            metrics::counter!("matchday_feed_failures_total", "feed" => source.name.clone()).increment(0);
            metrics::counter!("matchday_feed_changes_total", "feed" => source.name.clone()).increment(0);
        }
        let mut is_ours = false;
        while !closing.is_cancelled() {
            // Shutdown may cut a poll short. An import is atomic, and the next process repeats the poll.
            let turn = tokio::select! {
                () = closing.cancelled() => break,
                turn = self.turn(&lease, &mut is_ours, &report) => turn,
            };
            let pause = async {
                match turn {
                    Ok(None) => lease.wait(Duration::MAX).await,
                    Ok(Some(pause)) => tokio::time::sleep(pause.min(lease.renew_every())).await,
                    Err(error) => {
                        tracing::warn!(%error, "feed lease or states could not be accessed; retrying");
                        tokio::time::sleep(DATABASE_PAUSE.min(lease.renew_every())).await;
                    }
                }
            };
            tokio::select! {
                () = closing.cancelled() => {}
                () = pause => {}
            }
        }
        let released = tokio::time::timeout(Duration::from_secs(2), lease.release()).await;
        if !matches!(released, Ok(Ok(()))) {
            tracing::debug!("feed lease was not released and will expire");
        }
    }

    /// Polls the feed that is due, if there is one. Returns the time until the next one is due; `None` if another
    /// process holds the lease.
    pub(super) async fn turn(
        &self,
        lease: &Lease,
        is_ours: &mut bool,
        report: &(impl Fn(&Polled) + Send + Sync),
    ) -> sqlx::Result<Option<Duration>> {
        let was_ours = std::mem::replace(is_ours, lease.hold().await?);
        if !*is_ours {
            return Ok(None);
        }
        let mut states = store::states(&self.0.db).await?;
        if !was_ours {
            tracing::info!("feed lease acquired");
            self.remember(&states);
        }
        let now = self.0.clock.now();
        let due = |source: &Source| self.due_at(source, states.get(&source.name), now);
        let next = self.0.sources.iter().map(|source| (due(source), source)).min_by_key(|(due, _)| *due);
        match next {
            Some((due, source)) if due <= now => {
                let state = states.remove(&source.name);
                report(&self.poll(source, state).await);
                Ok(Some(Duration::ZERO))
            }
            Some((due, _)) => Ok(Some((due - now).unsigned_abs())),
            None => Ok(Some(DATABASE_PAUSE)),
        }
    }

    /// Returns when a feed may be polled: when it is due and the provider's limit allows it.
    fn due_at(&self, source: &Source, state: Option<&State>, now: OffsetDateTime) -> OffsetDateTime {
        let unsaved = locked(&self.0.unsaved).get(&source.name).copied();
        let due = unsaved.or_else(|| state.and_then(|state| stored_due_time(source, state))).unwrap_or(now);
        // Keep due times in the past: the feed that is overdue the longest comes first.
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

    /// Polls a feed and saves the outcome.
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
        let outcome = self.fetch_and_import(source, &mut state).await;
        // Read the clock again: a wait that the provider requests starts with its response.
        let now = self.0.clock.now();
        match &outcome {
            Ok(outcome) => {
                state.succeeded_at = Some(now);
                state.failures = 0;
                state.next_poll_at = self.next_poll(source, &state, now).await;
                record_success(source, outcome, now, &mut state);
            }
            Err(error) => {
                let requested = match error {
                    PollError::Fetch(FetchError::Throttled { wait }) => Some(*wait),
                    _ => None,
                };
                // A requested wait does not count as a failure, so it does not lengthen later pauses.
                state.failures = if requested.is_some() { state.failures } else { state.failures.saturating_add(1) };
                state.failed_at = Some(now);
                state.error = Some(error.to_string());
                let failures = u32::try_from(state.failures).unwrap_or_default();
                state.next_poll_at = rules::next_try(now, failures, requested, source.pace);
                metrics::counter!("matchday_feed_failures_total", "feed" => source.name.clone()).increment(1);
                tracing::warn!(feed = source.name, %error, "feed poll failed; nothing was imported");
            }
        }
        let next_poll_at = state.next_poll_at;
        let saved = store::save(&self.0.db, &state).await;
        let mut unsaved = locked(&self.0.unsaved);
        if let Err(error) = saved {
            tracing::warn!(feed = source.name, %error, "feed state was not saved");
            unsaved.insert(source.name.clone(), next_poll_at);
        } else {
            unsaved.remove(&source.name);
        }
        Polled { feed: source.name.clone(), outcome, next_poll_at }
    }

    /// Fetches the document and imports it if it has changed.
    async fn fetch_and_import(&self, source: &Source, state: &mut State) -> Result<Outcome, PollError> {
        if source.is_limited() {
            locked(&self.0.budget).spend(state.polled_at);
        }
        let (fetched, allowance) =
            source::fetch(&self.0.web, source, self.0.token.as_ref(), state.etag.as_deref()).await;
        if source.is_limited() {
            let (now, mut budget) = (self.0.clock.now(), locked(&self.0.budget));
            if let Some(allowance) = allowance {
                budget.observe(now, allowance.left, allowance.resets_in);
            }
            // The limit applies to all feeds of the provider, whichever sent the request.
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
            notes.push(format!("matches left out until their results are known: {left_out}"));
        }
        let report = self.0.fixtures.import(&document, Mode::Write, |_| {}).await?;
        state.tournament_id = report.tournament_id;
        Ok(Outcome::Imported { report: Box::new(report), notes })
    }

    /// Replaces the slugs of the provider's teams with the stored ones, and saves new slugs. This commits before the
    /// import: a slug without a team is harmless, but a team without its slug could be created twice.
    async fn name_teams(&self, reading: &mut Reading) -> sqlx::Result<()> {
        let mut tx = platform::database::begin(&self.0.db).await?;
        store::lock_teams(&mut tx, FOOTBALL_DATA).await?;
        let given = store::slugs(&mut tx, FOOTBALL_DATA).await?;
        let wanted: Vec<&str> = reading.teams.iter().map(|team| team.slug.as_str()).collect();
        let here = store::teams(&mut *tx, &wanted).await?;
        let claims = reading::name_teams(reading, &given, &here);
        let claims: Vec<(&str, &str)> = claims.iter().map(|(id, slug)| (id.as_str(), slug.as_str())).collect();
        store::claim_slugs(&mut tx, FOOTBALL_DATA, &claims).await?;
        tx.commit().await
    }

    /// Returns the time of the next poll. If the database cannot be read, uses the idle interval.
    async fn next_poll(&self, source: &Source, state: &State, now: OffsetDateTime) -> OffsetDateTime {
        let fixtures = match state.tournament_id {
            Some(tournament) => {
                let (from, to) = (now - LONGEST, now + source.pace.idle + NEAR);
                store::fixtures(&self.0.db, tournament, from, to).await.unwrap_or_else(|error| {
                    tracing::warn!(
                        feed = source.name,
                        %error,
                        "matches could not be read; polling at the idle interval"
                    );
                    Vec::new()
                })
            }
            None => Vec::new(),
        };
        rules::next_poll(now, &fixtures, source.pace)
    }
}

/// Records a successful poll in logs and metrics, and the time of a change in `state`.
fn record_success(source: &Source, outcome: &Outcome, now: OffsetDateTime, state: &mut State) {
    let feed = &source.name;
    #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 fit into 52 bits for millions of years")]
    let seconds = now.unix_timestamp() as f64;
    metrics::gauge!("matchday_feed_last_success_timestamp_seconds", "feed" => feed.clone()).set(seconds);
    let Outcome::Imported { report, notes } = outcome else {
        return tracing::debug!(feed, "feed has no changes");
    };
    for note in notes {
        tracing::info!(feed, note, "feed document has a remark");
    }
    for change in &report.changes {
        tracing::info!(feed, change, "match changed by feed");
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
            "feed changes imported"
        );
    }
}

/// Returns when a feed is due by its stored state; `None` if the source, time zone or adapter version has changed
/// since. A shorter `idle` setting takes effect immediately. A pause after a failure remains in effect.
fn stored_due_time(source: &Source, state: &State) -> Option<OffsetDateTime> {
    let idle = source.pace.idle.max(source.pace.least);
    let succeeded = state.failed_at.is_none_or(|failed_at| failed_at < state.polled_at);
    let due = if succeeded { state.next_poll_at.min(state.polled_at + idle) } else { state.next_poll_at };
    (state.basis == source.basis()).then_some(due)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
