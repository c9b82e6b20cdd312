//! Reports by users, and the queue in which operators handle them.

use std::{sync::Arc, time::Duration};

use matrix_appservice::{EventId as MatrixEventId, RoomId as MatrixRoomId, SeenEvent};
use platform::{
    Core,
    clock::Clock,
    database,
    rate_limit::{Decision, Limit, RateLimiter},
};
use serde_json::json;
use sqlx::{PgConnection, PgPool};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use web::{ids::UserId, paging::Paging};

pub use super::rules::Figures;
use super::{
    rules::{self, Claim, MessageId, Reason, ReporterAnswer, Resolution},
    settings::Settings,
    store::{self, Closing, Evidence, Key},
};
use crate::{
    chat::{accounts::service::Chat, rooms::service::Room},
    identity::operators::{self, Operator, service::Action},
};

/// Number of characters kept of a reported message.
const EVIDENCE_LENGTH: usize = 10_000;

/// Number of messages shown before and after a reported one.
const CONTEXT: u16 = 5;

/// Maximum time that a page waits for the messages around a reported one.
const CONTEXT_TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum number of reports that one action closes.
const MOST_AT_ONCE: i64 = 1_000;

/// Period of the times to resolution.
const FIGURES_SINCE: time::Duration = time::Duration::days(7);

/// Number of reports from which the times to resolution are computed.
const MOST_TIMES: i64 = 50_000;

/// Service for reports.
#[derive(Clone)]
pub struct Reports {
    db: PgPool,
    chat: Chat,
    limiter: RateLimiter,
    leniency: u32,
    clock: Arc<dyn Clock>,
    settings: Settings,
}

/// A report, as its reporter sees it.
#[derive(Clone, Debug)]
pub struct OwnReport {
    pub id: i64,
    /// Matrix id of the room.
    pub room_id: Option<String>,
    /// The homeserver's id of the message.
    pub event_id: String,
    pub reason: String,
    pub created_at: OffsetDateTime,
    pub closed_at: Option<OffsetDateTime>,
    /// Text of an operator to the reporter.
    pub answer: Option<String>,
}

/// Handling of a report that another operator has claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OthersClaim {
    Respect,
    TakeOver,
}

/// Reports that an action closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Only the report itself.
    One,
    /// All open reports of the same message. Those that other operators have claimed stay open, unless the operator
    /// takes them over.
    SameMessage,
}

/// How a report is closed. The operator's reason is stored as the note.
#[derive(Clone, Debug)]
pub struct Ending {
    pub resolution: Resolution,
    pub answer: Option<ReporterAnswer>,
    pub scope: Scope,
    pub others_claim: OthersClaim,
}

/// A message near a reported one.
#[derive(Clone, Debug)]
pub struct ContextMessage {
    pub event_id: String,
    /// Matrix user id of the sender.
    pub sender: String,
    pub sent_at: Option<OffsetDateTime>,
    /// JSON content of the message. Empty if it was redacted.
    pub content: serde_json::Value,
}

/// Reason why an action on a report failed.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The room has no such message.
    #[error("the message does not exist")]
    NoSuchMessage,
    #[error("the report does not exist")]
    NoSuchReport,
    #[error("the report is already closed")]
    Closed,
    #[error("the report is claimed by {} until {}", .0.by, .0.until.format(&Rfc3339).unwrap_or_default())]
    Claimed(Claim),
    #[error("the operator has not claimed the report")]
    NotClaimed,
    /// The homeserver is not configured, unavailable or too slow.
    #[error("the homeserver is unavailable")]
    ChatUnavailable,
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

impl Reports {
    pub fn new(core: &Core, chat: Chat, settings: &Settings) -> Self {
        let Core { db, clock, limits: limiter, .. } = core.clone();
        Self { db, chat, limiter, leniency: core.env.leniency(), clock, settings: settings.clone() }
    }

    /// Charges one report to the user's rate limit.
    pub async fn permit(&self, user: UserId) -> Decision {
        let every = Duration::from_mins(1) / self.leniency;
        let limit = Limit { name: "report", burst: 20 * self.leniency, every };
        self.limiter.take(limit, &user.to_string()).await
    }

    /// Stores a report with a copy of the message, because the sender may redact it. While the homeserver is
    /// unavailable, the report is stored without the copy. Returns whether this is the user's first report of the
    /// message.
    pub async fn report(
        &self,
        user: UserId,
        room: &Room,
        message: &MessageId,
        reason: &Reason,
    ) -> Result<bool, ReportError> {
        let evidence = self.evidence(room, message).await?;
        let now = self.clock.now();
        let is_new = store::insert(&self.db, user, room.id, message.as_str(), reason.as_str(), &evidence, now).await?;
        if is_new {
            metrics::counter!("matchday_reports_total").increment(1);
        }
        Ok(is_new)
    }

    async fn evidence(&self, room: &Room, message: &MessageId) -> Result<Evidence, ReportError> {
        let nothing = Evidence::default();
        let (Some(homeserver), Some(room)) = (self.chat.homeserver(), &room.matrix_id) else { return Ok(nothing) };
        let (Ok(room), Ok(event)) = (MatrixRoomId::parse(room.as_str()), MatrixEventId::parse(message.as_str())) else {
            return Err(ReportError::NoSuchMessage);
        };
        match homeserver.event(&room, &event).await {
            Ok(Some(seen)) => {
                let content: String = seen.content.to_string().chars().take(EVIDENCE_LENGTH).collect();
                Ok(Evidence { sender: Some(seen.sender.to_string()), sent_at: sent_at(&seen), content: Some(content) })
            }
            Ok(None) => Err(ReportError::NoSuchMessage),
            Err(error) => {
                tracing::warn!(%error, "report stored without the message");
                Ok(nothing)
            }
        }
    }

    /// A page of a user's reports, newest first, and the total.
    pub async fn of_user(&self, user: UserId, paging: Paging) -> sqlx::Result<(Vec<OwnReport>, i64)> {
        let mut connection = self.db.acquire().await?;
        let total = store::count_of_user(&mut connection, user).await?;
        Ok((store::of_user(&mut connection, user, paging).await?, total))
    }

    /// Claims a report for an operator, or extends the operator's claim. Returns the end of the claim.
    pub async fn claim(
        &self,
        id: i64,
        operator: &Operator,
        others_claim: OthersClaim,
    ) -> Result<OffsetDateTime, ReportError> {
        let now = self.clock.now();
        let until = (now + self.settings.claimed_for).replace_nanosecond(0).unwrap_or(now);
        let mut tx = database::begin(&self.db).await?;
        let key = store::find(&mut tx, id).await?.ok_or(ReportError::NoSuchReport)?.key;
        let before = lock_open(&mut tx, key).await?;
        let taken_from = check_claim(before, &operator.name, others_claim, now)?;
        store::set_claim(&mut tx, key, Some(&Claim { by: operator.name.clone(), until })).await?;
        let details = json!({"until": until.format(&Rfc3339).ok(), "taken_from": taken_from});
        let action = Action::new("report.claim", format!("report:{id}")).with(details);
        operators::service::record(&mut tx, operator, &action, now).await?;
        tx.commit().await?;
        Ok(until)
    }

    /// Ends the operator's claim on a report.
    pub async fn release(&self, id: i64, operator: &Operator) -> Result<(), ReportError> {
        let now = self.clock.now();
        let mut tx = database::begin(&self.db).await?;
        let key = store::find(&mut tx, id).await?.ok_or(ReportError::NoSuchReport)?.key;
        let claim = lock_open(&mut tx, key).await?.filter(|claim| claim.is_held(now));
        match claim {
            Some(claim) if claim.by == operator.name => {}
            Some(claim) => return Err(ReportError::Claimed(claim)),
            None => return Err(ReportError::NotClaimed),
        }
        store::set_claim(&mut tx, key, None).await?;
        let action = Action::new("report.release", format!("report:{id}"));
        operators::service::record(&mut tx, operator, &action, now).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Closes a report, and with [`Scope::SameMessage`] the other open reports of its message. Returns the ids of the
    /// closed reports.
    pub async fn close(&self, id: i64, operator: &Operator, ending: &Ending) -> Result<Vec<i64>, ReportError> {
        let now = self.clock.now();
        let mut tx = database::begin(&self.db).await?;
        let found = store::find(&mut tx, id).await?.ok_or(ReportError::NoSuchReport)?;
        let mut keys = match ending.scope {
            Scope::One => Vec::new(),
            Scope::SameMessage => store::open_of_message(&mut tx, found.room, &found.event_id, MOST_AT_ONCE).await?,
        };
        keys.push(found.key);
        // Every action locks rows in the same order, so two of them cannot wait for each other.
        keys.sort_unstable();
        keys.dedup();
        let closing = Closing {
            by: &operator.name,
            resolution: ending.resolution,
            note: &operator.reason,
            answer: ending.answer.as_ref(),
            now,
        };
        let mut closed = Vec::with_capacity(keys.len());
        for key in keys {
            let claim = match lock_open(&mut tx, key).await {
                // Another operator closed it in the meantime.
                Err(ReportError::Closed | ReportError::NoSuchReport) if key != found.key => continue,
                claim => claim?,
            };
            match check_claim(claim, &operator.name, ending.others_claim, now) {
                Err(ReportError::Claimed(_)) if key != found.key => continue,
                allowed => allowed?,
            };
            store::close(&mut tx, key, &closing).await?;
            closed.push(key.id);
        }
        let others: Vec<i64> = closed.iter().copied().filter(|other| *other != id).collect();
        let details = json!({
            "resolution": ending.resolution.name(), "answered": ending.answer.is_some(), "also_closed": others,
        });
        let action = Action::new("report.close", format!("report:{id}")).with(details);
        operators::service::record(&mut tx, operator, &action, now).await?;
        tx.commit().await?;
        metrics::counter!("matchday_reports_closed_total", "resolution" => ending.resolution.name())
            .increment(u64::try_from(closed.len()).unwrap_or(u64::MAX));
        Ok(closed)
    }

    /// Loads the reported message and the messages around it, oldest first, from the homeserver. Empty if the
    /// homeserver no longer has the message.
    pub async fn context(&self, room: &str, event_id: &str) -> Result<Vec<ContextMessage>, ReportError> {
        let homeserver = self.chat.homeserver().ok_or(ReportError::ChatUnavailable)?;
        let (Ok(room), Ok(event)) = (MatrixRoomId::parse(room), MatrixEventId::parse(event_id)) else {
            return Ok(Vec::new());
        };
        let loading = homeserver.context(&room, &event, CONTEXT);
        let events = match tokio::time::timeout(CONTEXT_TIMEOUT, loading).await {
            Ok(Ok(events)) => events,
            Ok(Err(error)) => {
                tracing::warn!(%error, "messages around a reported one not loaded");
                return Err(ReportError::ChatUnavailable);
            }
            Err(_) => return Err(ReportError::ChatUnavailable),
        };
        let message = |event: SeenEvent| ContextMessage {
            sent_at: sent_at(&event),
            event_id: event.event_id.to_string(),
            sender: event.sender.to_string(),
            content: event.content,
        };
        Ok(events.into_iter().map(message).collect())
    }

    /// Open reports, and times to resolution of the last seven days.
    pub async fn figures(&self) -> sqlx::Result<Figures> {
        let now = self.clock.now();
        let mut connection = self.db.acquire().await?;
        let (open, oldest, overdue) = store::open(&mut connection, now - rules::IN_TIME).await?;
        let took = store::times_to_resolution(&mut connection, now - FIGURES_SINCE, MOST_TIMES).await?;
        Ok(rules::figures(open, oldest, overdue, took))
    }

    /// Sets the metrics of the queue. Unknown values are NaN.
    pub async fn sample(&self) -> sqlx::Result<()> {
        let figures = self.figures().await.inspect_err(|_| set_gauges([f64::NAN; 5]))?;
        let seconds = |took: Option<time::Duration>| took.map_or(f64::NAN, time::Duration::as_seconds_f64);
        let age = figures.oldest.map_or(0.0, |oldest| (self.clock.now() - oldest).as_seconds_f64().max(0.0));
        let open = u32::try_from(figures.open).map_or(f64::INFINITY, f64::from);
        let in_time = figures.in_time.unwrap_or(f64::NAN);
        set_gauges([open, age, seconds(figures.median), seconds(figures.p95), in_time]);
        Ok(())
    }

    /// Erases reports that were kept long enough after the sender's account deletion, and deletes closed reports
    /// after their retention. Returns the number of changed rows.
    pub async fn sweep(&self) -> sqlx::Result<u64> {
        let (db, now) = (&self.db, self.clock.now());
        let erased = database::sweep(|most| store::erase(db, now, most)).await?;
        let before = now - self.settings.kept_for;
        Ok(erased + database::sweep(|most| store::sweep(db, before, most)).await?)
    }
}

/// Metrics that [`Reports::sample`] sets.
pub const GAUGES: [&str; 5] = [
    "matchday_reports_open",
    "matchday_reports_oldest_seconds",
    "matchday_reports_resolution_median_seconds",
    "matchday_reports_resolution_p95_seconds",
    "matchday_reports_in_time_ratio",
];

fn set_gauges([open, oldest, median, p95, in_time]: [f64; 5]) {
    metrics::gauge!("matchday_reports_open").set(open);
    metrics::gauge!("matchday_reports_oldest_seconds").set(oldest);
    metrics::gauge!("matchday_reports_resolution_median_seconds").set(median);
    metrics::gauge!("matchday_reports_resolution_p95_seconds").set(p95);
    metrics::gauge!("matchday_reports_in_time_ratio").set(in_time);
}

/// Locks a report and returns its claim. Fails if the report is closed or was deleted.
async fn lock_open(connection: &mut PgConnection, key: Key) -> Result<Option<Claim>, ReportError> {
    let state = store::lock(connection, key).await?.ok_or(ReportError::NoSuchReport)?;
    if state.is_closed { Err(ReportError::Closed) } else { Ok(state.claim) }
}

/// Fails if another operator holds the claim, unless it is taken over. Returns the operator from whom it is taken.
fn check_claim(
    claim: Option<Claim>,
    operator: &str,
    others_claim: OthersClaim,
    now: OffsetDateTime,
) -> Result<Option<String>, ReportError> {
    match claim.filter(|claim| claim.excludes(operator, now)) {
        Some(claim) if others_claim == OthersClaim::Respect => Err(ReportError::Claimed(claim)),
        excluded => Ok(excluded.map(|claim| claim.by)),
    }
}

fn sent_at(event: &SeenEvent) -> Option<OffsetDateTime> {
    let millis = i64::try_from(event.timestamp_ms).unwrap_or_default();
    OffsetDateTime::UNIX_EPOCH.checked_add(time::Duration::milliseconds(millis))
}
