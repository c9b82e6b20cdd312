//! Background work for reminders. One process at a time queues the fans of matches that start soon, in batches of up to
//! 500. Any process takes a batch and notifies its fans.
//!
//! No fan is reminded twice. A worker claims fans before it sends anything: it writes a row for each user and match. It
//! deletes the row only if the notification was certainly not accepted. If a worker dies in between, the fans it had
//! claimed, at most 100, are not reminded. The redelivered batch skips them and notifies all others.

use std::{collections::HashMap, time::Duration};

use async_nats::jetstream::message::PublishMessage;
use platform::stream::{Delivery, Failure, Stream, TransportError, WorkSpec};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use web::ids::{MatchId, UserId};

use super::{
    kinds::{About, Alert, Kind},
    notifier::{Notice, Outcome, Recipient, Reminder},
    service::{Notifications, quiet, subscription},
    store::{self, Due, Fan, Subject},
};
use crate::catalogue::matches::facts::TeamName;

/// Work subject of a batch of fans to remind of a match.
pub const BATCH: &str = "work.reminder.batch";

/// Number of fans in a batch.
const BATCH_SIZE: i64 = 500;
/// Number of fans claimed together. These are not reminded if the worker dies.
const CLAIMED_AT_ONCE: i64 = 100;
/// Number of batches planned in one run, before the planner checks its lease again.
const PLANNED_AT_ONCE: usize = 50;
/// Number of matches planned in one run.
const MATCHES_AT_ONCE: i64 = 100;

/// Error from planning or sending reminders. All of them may be retried.
#[derive(Debug, thiserror::Error)]
pub enum ReminderError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// NATS did not accept a message.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// A message could not be serialised.
    #[error(transparent)]
    Message(#[from] serde_json::Error),
}

/// The fans with user ids in `after..=until` (excluding `after`), for a match with this start time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Batch {
    event_id: MatchId,
    #[serde(with = "time::serde::rfc3339")]
    start_time: OffsetDateTime,
    after: UserId,
    until: UserId,
}

impl Notifications {
    /// Returns the specification of the consumer that processes batches.
    pub fn work(&self) -> WorkSpec {
        WorkSpec {
            at_once: self.inner.config.workers,
            // A push service may be down for some minutes. Once the match has started, reminders are dropped.
            retried_for: Duration::from_hours(2),
            first_pause: Duration::from_secs(2),
            longest_pause: Duration::from_mins(2),
            ack_wait: Duration::from_secs(10),
            ..WorkSpec::new("reminders", Stream::Work, "work.reminder.>")
        }
    }

    /// Queues fans of matches that start soon. Returns the number of batches; 0 if all fans are queued.
    ///
    /// A batch is queued before the progress is saved. A planner that dies in between, or runs concurrently with
    /// another one, queues the same batch again under the same message id. Processing a batch twice is idempotent.
    pub async fn plan(&self) -> Result<usize, ReminderError> {
        let inner = &*self.inner;
        if inner.notifiers.is_empty() && !inner.devices.platforms().any() {
            return Ok(0);
        }
        let now = inner.clock.now();
        let mut planned = 0;
        for due in store::due(&inner.db, now, now + inner.config.lead, MATCHES_AT_ONCE).await? {
            let mut connection = inner.db.acquire().await?;
            let Some(mut after) = store::open_plan(&mut connection, &due).await? else { continue };
            while planned < PLANNED_AT_ONCE {
                let until = store::batch_end(&mut *connection, &due, after, BATCH_SIZE).await?;
                if let Some(until) = until {
                    self.queue(&due, after, until).await?;
                    planned += 1;
                }
                let advanced = store::advance(&mut *connection, &due, after, until, now).await?;
                match until {
                    Some(until) if advanced => after = until,
                    // All fans are queued, or another planner has advanced the plan.
                    _ => break,
                }
            }
        }
        Ok(planned)
    }

    async fn queue(&self, due: &Due, after: UserId, until: UserId) -> Result<(), ReminderError> {
        let batch = Batch { event_id: due.id, start_time: due.start_time, after, until };
        let id = format!("reminder-{}-{}-{after}-{until}", due.id, due.start_time.unix_timestamp());
        self.queue_job(BATCH, id, &batch).await
    }

    /// Queues a job. A second job with the same id is ignored.
    pub(super) async fn queue_job(&self, subject: &str, id: String, job: &impl Serialize) -> Result<(), ReminderError> {
        let message = PublishMessage::build().message_id(id).payload(serde_json::to_vec(job)?.into());
        self.inner.streams.send(subject, message).await?.await.map_err(TransportError::from)?;
        Ok(())
    }

    /// Notifies the fans of a batch. This is idempotent.
    pub async fn perform(&self, delivery: Delivery) -> Result<(), Failure> {
        let batch: Batch = serde_json::from_slice(&delivery.payload).map_err(|error| Failure::GiveUp(error.into()))?;
        let later = self.remind(&batch).await.map_err(Failure::retry)?;
        if later == 0 { Ok(()) } else { Err(Failure::retry(anyhow::anyhow!("{later} fans were not notified yet"))) }
    }

    /// Notifies the fans of a batch. Returns the number of fans who must be retried.
    async fn remind(&self, batch: &Batch) -> Result<usize, ReminderError> {
        let inner = &*self.inner;
        // The match was postponed, moved or called off since, or has started. A moved match has a new plan.
        let Some(found) = store::scheduled(&inner.db, batch.event_id, batch.start_time).await? else { return Ok(0) };
        let questions = store::open_questions(&inner.db, batch.event_id, batch.start_time, inner.clock.now()).await?;
        let reminder = Reminder {
            event_id: batch.event_id,
            tournament_id: found.tournament_id,
            start_time: batch.start_time,
            home_team: TeamName { id: found.home_team, name: found.home_name },
            away_team: TeamName { id: found.away_team, name: found.away_name },
            question_ids: questions.clone(),
        };
        let alert = alert_of(&reminder)?;
        let notice = Notice::Reminder(reminder);
        let subject = Subject { event: batch.event_id, start_time: batch.start_time, questions: &questions };
        let teams = (found.home_team, found.away_team);
        let (mut after, mut later) = (batch.after, 0);
        while inner.clock.now() < batch.start_time {
            let (range, now) = ((after, batch.until), inner.clock.now());
            let fans = store::fans(&inner.db, subject, teams, range, CLAIMED_AT_ONCE, now).await?;
            let Some(last) = fans.last().map(|fan| fan.user_id) else { break };
            later += self.notify_fans(subject, &notice, &fans).await?;
            let alerts: Vec<_> = fans.iter().map(|fan| (fan.user_id, &alert)).collect();
            self.alert(&alerts).await?;
            after = last;
        }
        Ok(later)
    }

    /// Claims and notifies some fans. Returns the number of fans to retry.
    async fn notify_fans(&self, subject: Subject<'_>, notice: &Notice, fans: &[Fan]) -> Result<usize, ReminderError> {
        let inner = &*self.inner;
        let now = inner.clock.now();
        let mut recipients = self.recipients(fans, now).await?;
        let users: Vec<i64> = recipients.iter().map(|recipient| recipient.user.0).collect();
        let claimed = store::claim(&inner.db, subject, &users, now).await?;
        recipients.retain(|recipient| claimed.contains(&recipient.user));
        let later = self.deliver(notice, recipients).await?;
        if !later.is_empty() {
            store::unclaim(&inner.db, subject.event, &later).await?;
        }
        Ok(later.len())
    }

    /// Notifies users whose notification was claimed. Returns those to whom it was certainly not delivered, but may be
    /// later.
    pub(super) async fn deliver(&self, notice: &Notice, mut waiting: Vec<Recipient>) -> sqlx::Result<Vec<i64>> {
        let inner = &*self.inner;
        let mut outcomes: HashMap<UserId, Outcome> = HashMap::new();
        for notifier in &inner.notifiers {
            let to: Vec<Recipient> = waiting.iter().filter(|one| notifier.reaches(one)).cloned().collect();
            let notified = notifier.notify(notice, &to).await;
            for (recipient, outcome) in to.iter().zip(&notified.outcomes) {
                count(notice, notifier.name(), *outcome);
                let best = outcomes.entry(recipient.user).or_insert(*outcome);
                *best = (*best).max(*outcome);
                // Skip the remaining channels for this fan: the retry uses all channels.
                if *outcome == Outcome::Later && *best == Outcome::Later {
                    waiting.retain(|waiting| waiting.user != recipient.user);
                }
            }
            for gone in notified.gone {
                tracing::debug!(subscription = ?gone, "expired push subscription removed");
                store::delete_gone(&inner.db, gone.user, gone.id, &gone.keys).await?;
            }
        }
        Ok(outcomes.iter().filter(|(_, outcome)| **outcome == Outcome::Later).map(|(user, _)| user.0).collect())
    }

    /// Returns the fans who are outside their quiet hours and reached by at least one channel.
    pub(super) async fn recipients(&self, fans: &[Fan], now: OffsetDateTime) -> sqlx::Result<Vec<Recipient>> {
        let awake = fans.iter().filter(|fan| {
            let hours = quiet(fan.quiet_from, fan.quiet_until, fan.time_zone.as_deref());
            !hours.is_some_and(|hours| hours.hold(now))
        });
        let users: Vec<UserId> = awake.map(|fan| fan.user_id).collect();
        let ids: Vec<i64> = users.iter().map(|user| user.0).collect();
        let mut browsers: HashMap<UserId, Vec<_>> = HashMap::new();
        for browser in store::subscriptions(&self.inner.db, &ids).await?.into_iter().filter_map(subscription) {
            browsers.entry(browser.user).or_default().push(browser);
        }
        let recipients = users.into_iter().map(|user| {
            let subscriptions = browsers.remove(&user).unwrap_or_default();
            Recipient { user, place: None, subscriptions }
        });
        let reached = |recipient: &Recipient| self.inner.notifiers.iter().any(|way| way.reaches(recipient));
        Ok(recipients.filter(reached).collect())
    }
}

/// Reminder for devices. As in browsers, a fan gets one for each match, also if the match is moved.
fn alert_of(reminder: &Reminder) -> serde_json::Result<Alert> {
    let alert = Alert::new(Kind::Reminder, About::Event(reminder.event_id), "1", reminder.start_time)
        .text("home", &reminder.home_team.name)
        .text("away", &reminder.away_team.name)
        .time("start", reminder.start_time);
    Ok(Alert { reminder: Some(serde_json::to_value(reminder)?), ..alert })
}

fn count(notice: &Notice, notifier: &'static str, outcome: Outcome) {
    let outcome = outcome.label();
    match notice {
        Notice::Reminder(_) => {
            metrics::counter!("matchday_reminders_total", "notifier" => notifier, "outcome" => outcome).increment(1);
        }
        Notice::PlacesLost { .. } => {
            metrics::counter!("matchday_league_notifications_total", "notifier" => notifier, "outcome" => outcome)
                .increment(1);
        }
    }
}
