//! What workers do about reminders. One process at a time puts the fans of matches that are about to begin on the queue,
//! some hundreds at a time; any process takes such a batch and notifies them.
//!
//! Nobody is reminded twice: a row for user and match is written before anything is sent, and deleted only where surely
//! nothing was taken. Whoever dies in between leaves rows of a few people who are not reminded; all others are found by
//! the batch coming again, which passes over those who have a row.

use std::{collections::HashMap, time::Duration};

use async_nats::jetstream::message::PublishMessage;
use platform::stream::{Delivery, Failure, Stream, TransportError, WorkSpec};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use web::ids::{EventId, UserId};

use super::{
    notifier::{Outcome, Recipient, Reminder},
    service::{Notifications, quiet, subscription},
    store::{self, Due, Fan},
};
use crate::events::facts::TeamName;

/// Some fans are to be reminded of a match.
pub const BATCH: &str = "work.reminder.batch";

/// How many fans are a batch.
const BATCH_SIZE: i64 = 500;
/// How many of them are claimed at once: those who are not reminded when a worker dies.
const CLAIMED_AT_ONCE: i64 = 100;
/// How many batches are planned in one go, before it is asked again who plans.
const PLANNED_AT_ONCE: usize = 50;
/// How many matches are looked at in one go.
const MATCHES_AT_ONCE: i64 = 100;

/// Why something was not planned, or nobody notified. All of it may pass.
#[derive(Debug, thiserror::Error)]
pub enum ReminderError {
    /// The database failed.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// NATS did not take a message.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// A message could not be written.
    #[error(transparent)]
    Message(#[from] serde_json::Error),
}

/// Fans from one user up to another, of a match that begins then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Batch {
    event_id: EventId,
    #[serde(with = "time::serde::rfc3339")]
    start_time: OffsetDateTime,
    after: UserId,
    until: UserId,
}

impl Notifications {
    /// The work that is left for workers.
    pub fn work(&self) -> WorkSpec {
        WorkSpec {
            at_once: self.inner.config.workers,
            // A push service may be away for some minutes. Once the match has begun there is nothing to be done any more.
            attempts: 60,
            first_pause: Duration::from_secs(2),
            longest_pause: Duration::from_mins(2),
            ack_wait: Duration::from_secs(10),
            ..WorkSpec::new("reminders", Stream::Work, "work.reminder.>")
        }
    }

    /// Puts some fans of matches that are about to begin on the queue; returns how many batches, 0 when all are there.
    ///
    /// The batch is on the queue before that is written down. Who dies in between, or plans beside another, puts it there
    /// again, under the same name; and what is done twice is done once.
    pub async fn plan(&self) -> Result<usize, ReminderError> {
        let inner = &*self.inner;
        if inner.notifiers.is_empty() {
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
                    // All are there; or somebody else is at it.
                    _ => break,
                }
            }
        }
        Ok(planned)
    }

    async fn queue(&self, due: &Due, after: UserId, until: UserId) -> Result<(), ReminderError> {
        let batch = Batch { event_id: due.id, start_time: due.start_time, after, until };
        let id = format!("reminder-{}-{}-{after}-{until}", due.id, due.start_time.unix_timestamp());
        let message = PublishMessage::build().message_id(id).payload(serde_json::to_vec(&batch)?.into());
        self.inner.streams.send(BATCH, message).await?.await.map_err(TransportError::from)?;
        Ok(())
    }

    /// Notifies the fans of a batch. Doing it twice notifies nobody twice.
    pub async fn perform(&self, delivery: Delivery) -> Result<(), Failure> {
        let batch: Batch = serde_json::from_slice(&delivery.payload).map_err(|error| Failure::GiveUp(error.into()))?;
        let later = self.remind(&batch).await.map_err(Failure::retry)?;
        if later == 0 { Ok(()) } else { Err(Failure::retry(anyhow::anyhow!("{later} fans could not be notified yet"))) }
    }

    /// Returns how many could surely not be notified, and may be if it is tried again.
    async fn remind(&self, batch: &Batch) -> Result<usize, ReminderError> {
        let inner = &*self.inner;
        // Postponed, begun, called off or moved meanwhile: then another plan tells, or none.
        let Some(found) = store::scheduled(&inner.db, batch.event_id, batch.start_time).await? else { return Ok(0) };
        let reminder = Reminder {
            event_id: batch.event_id,
            tournament_id: found.tournament_id,
            start_time: batch.start_time,
            home_team: TeamName { id: found.home_team, name: found.home_name },
            away_team: TeamName { id: found.away_team, name: found.away_name },
        };
        let teams = (found.home_team, found.away_team);
        let (mut after, mut later) = (batch.after, 0);
        while inner.clock.now() < batch.start_time {
            let (range, now) = ((after, batch.until), inner.clock.now());
            let fans = store::fans(&inner.db, batch.event_id, teams, range, CLAIMED_AT_ONCE, now).await?;
            let Some(last) = fans.last().map(|fan| fan.user_id) else { break };
            later += self.notify(&reminder, &fans).await?;
            after = last;
        }
        Ok(later)
    }

    /// Claims and notifies some fans; returns how many of them may be notified later.
    async fn notify(&self, reminder: &Reminder, fans: &[Fan]) -> Result<usize, ReminderError> {
        let inner = &*self.inner;
        let now = inner.clock.now();
        let recipients = self.recipients(fans, now).await?;
        let users: Vec<i64> = recipients.iter().map(|recipient| recipient.user.0).collect();
        let claimed = store::claim(&inner.db, reminder.event_id, reminder.start_time, &users, now).await?;
        let mut waiting: Vec<Recipient> =
            recipients.into_iter().filter(|recipient| claimed.contains(&recipient.user)).collect();
        let mut outcomes: HashMap<UserId, Outcome> = HashMap::new();
        for notifier in &inner.notifiers {
            let to: Vec<Recipient> = waiting.iter().filter(|one| notifier.reaches(one)).cloned().collect();
            let notified = notifier.notify(reminder, &to).await;
            for (recipient, outcome) in to.iter().zip(&notified.outcomes) {
                count(notifier.name(), *outcome);
                let best = outcomes.entry(recipient.user).or_insert(*outcome);
                *best = (*best).max(*outcome);
                // Whoever is notified later is notified by every way then.
                if *outcome == Outcome::Later && *best == Outcome::Later {
                    waiting.retain(|waiting| waiting.user != recipient.user);
                }
            }
            for gone in notified.gone {
                tracing::debug!(subscription = ?gone, "a browser is notified no more");
                store::delete_gone(&inner.db, gone.user, gone.id, &gone.keys).await?;
            }
        }
        let later: Vec<i64> =
            outcomes.iter().filter(|(_, outcome)| **outcome == Outcome::Later).map(|(user, _)| user.0).collect();
        if !later.is_empty() {
            store::unclaim(&inner.db, reminder.event_id, &later).await?;
        }
        Ok(later.len())
    }

    /// Those of the fans who may be disturbed now, and whom any way leads to.
    async fn recipients(&self, fans: &[Fan], now: OffsetDateTime) -> sqlx::Result<Vec<Recipient>> {
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
            Recipient { user, subscriptions }
        });
        let reached = |recipient: &Recipient| self.inner.notifiers.iter().any(|way| way.reaches(recipient));
        Ok(recipients.filter(reached).collect())
    }
}

fn count(notifier: &'static str, outcome: Outcome) {
    metrics::counter!("matchday_reminders_total", "notifier" => notifier, "outcome" => outcome.label()).increment(1);
}
