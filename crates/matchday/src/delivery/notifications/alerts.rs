//! Finds the users to notify on their devices.
//!
//! A consumer of facts divides the users with a prediction of a match, and the leagues that count it, into batches. Each
//! batch is a job of its own, which any process takes. A repeated fact or job changes nothing, because notifications are
//! claimed (see `batches.rs` and `sending.rs`).

use std::{
    collections::{HashMap, HashSet},
    sync::PoisonError,
    time::Duration as Pause,
};

use platform::stream::{Begin, Delivery, Failure, Stream, WorkSpec};
use scoring::Outcome;
use serde::{Deserialize, Serialize};
use time::{Date, Duration, OffsetDateTime, UtcOffset};
use web::ids::{LeagueId, MatchId, UserId};

use super::{
    batches::{BatchClaims, BatchKey},
    current,
    kinds::{About, Alert, Kind},
    service::Notifications,
    store::{self, BegunResult, CurrentMatch},
    work::ReminderError,
};
use crate::{
    catalogue::matches::{facts::MatchFact, rules::Status, service::CHANGED},
    chat::{
        blocks,
        messages::{INVITED, Invited},
    },
    game::{
        leagues::{places_lost::NewResult, service::Leagues},
        scores::service::{ScoresFact, UPDATED},
    },
    identity::accounts,
};

/// Work subject of a batch of users or leagues.
pub const BATCH: &str = "work.notify.batch";
/// Work subject of a mention in a chat room.
pub const MENTION: &str = "work.notify.mention";

/// Number of users with a prediction in a batch. Most of them may have no device.
const BATCH_SIZE: i64 = 2_000;
/// Number of users with a device who are read together.
const READ_AT_ONCE: i64 = 500;
/// Number of leagues in a batch.
const LEAGUES_AT_ONCE: usize = 500;
/// Number of users with the kind `streak` in a batch.
const STREAKS_AT_ONCE: i64 = 500;
/// A start that moves by less is not worth a notification.
const MOVED_BY: Duration = Duration::minutes(15);
/// Hour of the day (UTC) from which users are notified of streaks that end at midnight.
const STREAK_HOUR: u8 = 21;

/// Times for which notifications are useful.
const MOVED_FOR: Duration = Duration::hours(24);
const RESULT_FOR: Duration = Duration::hours(12);
const CHAT_FOR: Duration = Duration::hours(24);

/// Notifies users of facts. Cheap to clone.
#[derive(Clone)]
pub struct Alerts {
    pub notifications: Notifications,
    pub leagues: Leagues,
}

/// A batch of users or leagues: ids in `after..=until` (excluding `after`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Batch {
    #[serde(flatten)]
    subject: Subject,
    after: i64,
    until: i64,
    #[serde(with = "time::serde::rfc3339")]
    expires_at: OffsetDateTime,
}

/// What the users of a batch are notified of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Subject {
    Moved {
        event_id: MatchId,
        revision: String,
    },
    Result {
        event_id: MatchId,
        revision: i64,
        previous: i64,
        /// Whether all users with points are notified, also of the same points as after `previous`.
        follows_cut_off: bool,
    },
    /// Leagues, not users.
    Passed {
        event_id: MatchId,
        revision: i64,
        previous: i64,
        leagues: Vec<LeagueId>,
        /// Day of the first plan. A member is notified once per league and day, also if a job is repeated after midnight.
        day: Date,
    },
    Streak {
        day: Date,
    },
}

impl Subject {
    /// Topic of the batches of users with a prediction; `None` for other subjects.
    fn topic(&self) -> Option<String> {
        match self {
            Self::Moved { revision, .. } => Some(format!("moved-{revision}")),
            Self::Result { revision, .. } => Some(format!("result-{revision}")),
            Self::Passed { .. } | Self::Streak { .. } => None,
        }
    }
}

/// A change of a match of which users with a prediction are notified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Moved,
    Postponed,
    Cancelled,
}

impl Change {
    /// Value of `$status` in texts.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Moved => "moved",
            Self::Postponed => "postponed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Returns the change, if users are notified of it.
    fn of(fact: &MatchFact, now: OffsetDateTime) -> Option<Self> {
        let before = fact.before.filter(|before| before.outcome() == Outcome::Open)?;
        match fact.now.status {
            Status::Postponed if before.status != Status::Postponed => Some(Self::Postponed),
            Status::Cancelled => Some(Self::Cancelled),
            // The start of a match that has begun is history, not a plan.
            Status::Scheduled if fact.now.start_time > now => {
                ((fact.now.start_time - before.start_time).abs() >= MOVED_BY).then_some(Self::Moved)
            }
            _ => None,
        }
    }
}

/// A message with a highlight for a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mention {
    pub user_id: UserId,
    /// Matrix id of the room.
    pub room_id: String,
    /// A user is notified once of each revision in a room: the Matrix event.
    pub revision: String,
    /// Name of the room. A room of two people has none.
    pub room: Option<String>,
    /// The sender, if it is a user of this service.
    pub sender_id: Option<UserId>,
    /// Matrix id of the sender.
    pub sender: String,
    #[serde(with = "time::serde::rfc3339")]
    pub sent_at: OffsetDateTime,
}

impl Notifications {
    /// Notifies a user of a message that mentions them. It is queued, and sent if the user wants it, has a device, and has
    /// not blocked the sender.
    pub async fn notify(&self, mention: &Mention) -> Result<(), ReminderError> {
        let id = format!("mention-{}-{}", mention.user_id, mention.revision);
        self.queue_job(MENTION, id, mention).await
    }

    /// Queues the users whose streaks end at midnight, once a day from 21:00 UTC. Returns the number of batches. Another
    /// process that takes over queues them again, which changes nothing.
    pub async fn plan_streaks(&self) -> Result<usize, ReminderError> {
        let inner = &*self.inner;
        let now = inner.clock.now();
        let day = now.date();
        let is_planned = *inner.streaks_planned.lock().unwrap_or_else(PoisonError::into_inner) == Some(day);
        if now.hour() < STREAK_HOUR || is_planned || !inner.devices.platforms().any() {
            return Ok(0);
        }
        let midnight = day.next_day().unwrap_or(Date::MAX).midnight().assume_utc();
        let (mut after, mut planned) = (UserId(0), 0);
        while let Some(until) = store::streaks_end(&inner.db, after, STREAKS_AT_ONCE).await? {
            let batch =
                Batch { subject: Subject::Streak { day }, after: after.0, until: until.0, expires_at: midnight };
            self.queue_job(BATCH, format!("streak-{day}-{after}-{until}"), &batch).await?;
            (after, planned) = (until, planned + 1);
        }
        *inner.streaks_planned.lock().unwrap_or_else(PoisonError::into_inner) = Some(day);
        Ok(planned)
    }
}

impl Alerts {
    /// Describes the consumer of facts about matches.
    pub fn facts() -> WorkSpec {
        WorkSpec {
            begin: Begin::Now,
            attempts: 10_000,
            also: &[UPDATED],
            ..WorkSpec::new("notification_facts", Stream::Facts, CHANGED)
        }
    }

    /// Describes the consumer of batches.
    pub fn batches(&self) -> WorkSpec {
        self.work("notifications", BATCH)
    }

    /// Describes the consumer of invitations and mentions. They do not wait for the batches of a match with a million
    /// predictions.
    pub fn from_chat(&self) -> WorkSpec {
        WorkSpec { also: &[MENTION], ..self.work("chat_notifications", INVITED) }
    }

    fn work(&self, name: &'static str, subject: &'static str) -> WorkSpec {
        WorkSpec {
            at_once: self.notifications.inner.config.workers,
            attempts: 60,
            first_pause: Pause::from_secs(2),
            longest_pause: Pause::from_mins(2),
            ack_wait: Pause::from_secs(30),
            ..WorkSpec::new(name, Stream::Work, subject)
        }
    }

    /// Queues the users to notify of a fact.
    pub async fn plan(&self, delivery: Delivery) -> Result<(), Failure> {
        let planned = if delivery.subject == CHANGED {
            let fact = parse(&delivery)?;
            self.plan_change(&fact, delivery.id.as_deref()).await
        } else {
            self.plan_result(parse(&delivery)?).await
        };
        planned.map_err(Failure::retry)
    }

    fn has_platform(&self) -> bool {
        self.notifications.inner.devices.platforms().any()
    }

    async fn plan_change(&self, fact: &MatchFact, id: Option<&str>) -> Result<(), ReminderError> {
        let now = self.notifications.inner.clock.now();
        let Some(change) = Change::of(fact, now).filter(|_| self.has_platform()) else { return Ok(()) };
        // The id of the message tells two moves to the same time apart.
        let start = || format!("{}-{}", change.name(), fact.now.start_time.unix_timestamp());
        let subject = Subject::Moved { event_id: fact.event_id, revision: id.map_or_else(start, str::to_owned) };
        self.queue_predictors(fact.event_id, &subject, now + MOVED_FOR).await
    }

    async fn plan_result(&self, fact: ScoresFact) -> Result<(), ReminderError> {
        let inner = &*self.notifications.inner;
        let ScoresFact { event_id, result_revision: revision } = fact;
        let mut connection = inner.db.acquire().await?;
        let begun = store::begin_result(&mut connection, event_id, revision, inner.clock.now()).await?;
        drop(connection);
        let Some(BegunResult { previous, follows_cut_off, begun_at }) = begun else { return Ok(()) };
        // Recorded nevertheless: once a platform is configured, a correction of this result must not count as its first.
        if !self.has_platform() {
            return Ok(store::end_result(&inner.db, event_id, revision).await?);
        }
        let expires_at = begun_at + RESULT_FOR;
        let subject = Subject::Result { event_id, revision, previous, follows_cut_off };
        self.queue_predictors(event_id, &subject, expires_at).await?;
        let Some(found) = store::named_match(&inner.db, event_id).await? else { return Ok(()) };
        let day = begun_at.to_offset(UtcOffset::UTC).date();
        let leagues = store::leagues_wanting_passed(&inner.db, found.tournament).await?;
        let mut after = LeagueId(0);
        for leagues in leagues.chunks(LEAGUES_AT_ONCE) {
            let until = leagues.last().copied().unwrap_or(after);
            let subject = Subject::Passed { event_id, revision, previous, leagues: leagues.to_vec(), day };
            let batch = Batch { subject, after: after.0, until: until.0, expires_at };
            let id = format!("dropped-{event_id}-{revision}-{after}-{until}");
            self.notifications.queue_job(BATCH, id, &batch).await?;
            after = until;
        }
        Ok(store::end_result(&inner.db, event_id, revision).await?)
    }

    /// Queues the users with a prediction of a match. Continues an earlier plan of the same fact.
    async fn queue_predictors(
        &self,
        event: MatchId,
        subject: &Subject,
        expires_at: OffsetDateTime,
    ) -> Result<(), ReminderError> {
        let Some(topic) = subject.topic() else { return Ok(()) };
        let inner = &*self.notifications.inner;
        // Another planner that adds a batch between these two reads may fail to queue it. The batch is then among the
        // unfinished ones, because those are read later.
        let planned = store::planned_until(&inner.db, event, &topic).await?;
        for (after, until) in store::unfinished_batches(&inner.db, event, &topic).await? {
            self.queue_batch(event, &topic, Batch { subject: subject.clone(), after, until, expires_at }).await?;
        }
        let mut after = planned.unwrap_or(UserId(0));
        while let Some(until) = store::predictors_end(&inner.db, event, after, BATCH_SIZE).await? {
            let key = BatchKey { event, topic: topic.clone(), after };
            let until = store::add_batch(&inner.db, &key, until, inner.clock.now()).await?;
            let batch = Batch { subject: subject.clone(), after: after.0, until: until.0, expires_at };
            self.queue_batch(event, &topic, batch).await?;
            after = until;
        }
        Ok(())
    }

    async fn queue_batch(&self, event: MatchId, topic: &str, batch: Batch) -> Result<(), ReminderError> {
        let id = format!("{topic}-{event}-{}-{}", batch.after, batch.until);
        self.notifications.queue_job(BATCH, id, &batch).await
    }

    /// Notifies the users of a job. This is idempotent.
    pub async fn perform(&self, delivery: Delivery) -> Result<(), Failure> {
        let performed = match delivery.subject.as_str() {
            INVITED => self.invite(parse(&delivery)?).await,
            MENTION => self.mention(parse(&delivery)?).await,
            _ => self.notify(&parse(&delivery)?).await,
        };
        performed.map_err(Failure::retry)
    }

    async fn notify(&self, batch: &Batch) -> sqlx::Result<()> {
        let users = (UserId(batch.after), UserId(batch.until));
        match &batch.subject {
            Subject::Moved { event_id, .. } | Subject::Result { event_id, .. } => {
                self.notify_predictors(*event_id, batch).await
            }
            Subject::Passed { event_id, revision, previous, leagues, day } => {
                self.notify_passed(*event_id, (*revision, *previous), leagues, (*day, batch.expires_at)).await
            }
            Subject::Streak { day } => self.notify_streaks(*day, users, batch.expires_at).await,
        }
    }

    /// Notifies the users of a batch who have a prediction of a match.
    async fn notify_predictors(&self, event: MatchId, batch: &Batch) -> sqlx::Result<()> {
        let db = &self.notifications.inner.db;
        let Some(topic) = batch.subject.topic() else { return Ok(()) };
        let Some(found) = store::named_match(db, event).await? else { return Ok(()) };
        let key = BatchKey { event, topic, after: UserId(batch.after) };
        let Some(mut claims) = BatchClaims::read(db, &key).await? else {
            tracing::warn!(
                event = event.0,
                topic = key.topic,
                after = batch.after,
                "batch of notifications has no row"
            );
            return Ok(());
        };
        let is_correction = match batch.subject {
            Subject::Result { previous, .. } => store::had_result(db, event, previous).await?,
            _ => false,
        };
        let alert = |current: &CurrentMatch, points: Option<i64>| {
            let alert = |kind, revision: &str| {
                Alert::new(kind, About::Event(event), revision, batch.expires_at)
                    .text("home", &found.home.name)
                    .text("away", &found.away.name)
            };
            match &batch.subject {
                Subject::Moved { revision, .. } => {
                    current::moved(alert(Kind::Moved, revision), current, self.notifications.inner.clock.now())
                }
                Subject::Result { revision, .. } => {
                    let kind = if is_correction { Kind::Correction } else { Kind::Result };
                    Some(alert(kind, &revision.to_string()).number("points", points?))
                }
                Subject::Passed { .. } | Subject::Streak { .. } => None,
            }
        };
        while let Some(rest) = claims.rest() {
            let Some(current) = store::current_matches(db, &[event.0]).await?.remove(&event) else { return Ok(()) };
            let users = store::predictors(db, event, rest, READ_AT_ONCE).await?;
            let notified: Vec<(UserId, Option<i64>)> = match batch.subject {
                // The notifications of a later result include all users who do not know this one.
                Subject::Result { revision, .. } if current.revision > revision && current.previous < revision => {
                    Vec::new()
                }
                Subject::Result { revision, previous, follows_cut_off, .. } => {
                    let revisions = (current.revision.max(revision), previous);
                    self.changed_points(event, revisions, (is_correction, follows_cut_off), &users).await?
                }
                _ => users.iter().map(|user| (UserId(*user), None)).collect(),
            };
            // Users with the same points share the notification.
            let different: HashSet<Option<i64>> = notified.iter().map(|(_, points)| *points).collect();
            let alerts: HashMap<Option<i64>, Alert> =
                different.into_iter().filter_map(|points| Some((points, alert(&current, points)?))).collect();
            let alerts: Vec<(UserId, &Alert)> =
                notified.iter().filter_map(|(user, points)| Some((*user, alerts.get(points)?))).collect();
            if self.notifications.alert_batch(&mut claims, &alerts).await? {
                let is_last = users.len() < usize::try_from(READ_AT_ONCE).unwrap_or_default();
                let until = users.last().filter(|_| !is_last).map_or(rest.1, |last| UserId(*last));
                claims.claim(db, until).await?;
            }
        }
        Ok(())
    }

    /// Returns the users whose points a result made known or changed, with their points. `revision` is the latest result: if
    /// the batch waited while the result was corrected, its users get the points that they have now.
    async fn changed_points(
        &self,
        event: MatchId,
        (revision, previous): (i64, i64),
        (is_correction, has_all): (bool, bool),
        users: &[i64],
    ) -> sqlx::Result<Vec<(UserId, Option<i64>)>> {
        let db = &self.notifications.inner.db;
        let (mut now, mut before) = (HashMap::new(), HashMap::new());
        for (user, of, points) in store::points(db, event, [revision, previous], users).await? {
            if of == revision {
                now.insert(user, points)
            } else {
                before.insert(user, points)
            };
        }
        let changed = |user: &i64| {
            let (now, before) = (now.get(user).copied(), before.get(user).copied());
            // An annulled result gives no points.
            let is_new = match (is_correction, has_all) {
                (true, true) => now.or(before).is_some(),
                (true, false) => now.unwrap_or(0) != before.unwrap_or(0),
                (false, _) => now.is_some(),
            };
            is_new.then(|| (UserId(*user), Some(i64::from(now.unwrap_or(0)))))
        };
        Ok(users.iter().filter_map(changed).collect())
    }

    /// Notifies members whose rank a result lowered, once per league and day. Most leagues have no member who wants that,
    /// and their tables are not computed.
    async fn notify_passed(
        &self,
        event: MatchId,
        (revision, previous): (i64, i64),
        leagues: &[LeagueId],
        (day, expires_at): (Date, OffsetDateTime),
    ) -> sqlx::Result<()> {
        let inner = &*self.notifications.inner;
        let Some(found) = store::named_match(&inner.db, event).await? else { return Ok(()) };
        let (tournament, round, start_time) = (found.tournament, found.round, found.start_time);
        let result = NewResult { event, tournament, round, start_time, revision, previous };
        let mut leagues = self.leagues.counting(&result, leagues).await?;
        let ids: Vec<i64> = leagues.iter().map(|league| league.id.0).collect();
        let wanting: HashSet<(UserId, LeagueId)> = store::wanting_passed(&inner.db, &ids).await?.into_iter().collect();
        let wanted: HashSet<LeagueId> = wanting.iter().map(|(_, league)| *league).collect();
        leagues.retain(|league| wanted.contains(&league.id));
        if leagues.is_empty() {
            return Ok(());
        }
        let day = day.to_string();
        let lost = self.leagues.places_lost_by_result(&result, &leagues).await?;
        let alerts: Vec<(UserId, Alert)> = lost
            .iter()
            .filter(|lost| wanting.contains(&(lost.user, lost.league)))
            .map(|lost| {
                let alert = Alert::new(Kind::Passed, About::League(lost.league), day.clone(), expires_at);
                (lost.user, alert.text("league", &lost.name).text("rank", &lost.rank.to_string()))
            })
            .collect();
        self.notifications.alert(&by_reference(&alerts)).await
    }

    async fn notify_streaks(&self, day: Date, users: (UserId, UserId), expires_at: OffsetDateTime) -> sqlx::Result<()> {
        let Some(yesterday) = day.previous_day() else { return Ok(()) };
        let streaks = store::streaks(&self.notifications.inner.db, users, (yesterday, day)).await?;
        let alert = |(user, days): (UserId, i32)| {
            let alert = Alert::new(Kind::Streak, About::Coins, day.to_string(), expires_at);
            (user, alert.number("days", days.into()))
        };
        let alerts: Vec<_> = streaks.into_iter().map(alert).collect();
        self.notifications.alert(&by_reference(&alerts)).await
    }

    async fn invite(&self, invited: Invited) -> sqlx::Result<()> {
        let inner = &*self.notifications.inner;
        let Invited { room_id, user_id, sender_id, sender, event_id, sent_at } = invited;
        let Some((matrix_id, room)) = store::room(&inner.db, room_id).await? else { return Ok(()) };
        let Some(name) = self.sender_name(user_id, sender_id, &sender).await? else { return Ok(()) };
        let alert = Alert::new(Kind::Invitation, About::Room(matrix_id), event_id, sent_at + CHAT_FOR)
            .sender(sender_id)
            .text("room", &room)
            .text("user", &name);
        self.notifications.alert(&[(user_id, &alert)]).await
    }

    async fn mention(&self, mention: Mention) -> sqlx::Result<()> {
        let Mention { user_id, room_id, revision, room, sender_id, sender, sent_at } = mention;
        let Some(name) = self.sender_name(user_id, sender_id, &sender).await? else { return Ok(()) };
        let alert = Alert::new(Kind::Mention, About::Room(room_id), revision, sent_at + CHAT_FOR)
            .sender(sender_id)
            .text("user", &name);
        let alert = match room {
            Some(room) => alert.text("room", &room),
            None => alert,
        };
        self.notifications.alert(&[(user_id, &alert)]).await
    }

    /// Returns the name of a sender as a user sees it; `None` if the user has blocked the sender, or the sender is
    /// suspended or deleted, perhaps since the message.
    async fn sender_name(&self, user: UserId, sender_id: Option<UserId>, sender: &str) -> sqlx::Result<Option<String>> {
        let Some(sender_id) = sender_id else {
            // The name before the colon, for a sender without an account here.
            return Ok(sender.trim_start_matches('@').split(':').next().map(str::to_owned));
        };
        let inner = &*self.notifications.inner;
        if blocks::has_blocked(&inner.db, user, sender_id).await? {
            return Ok(None);
        }
        let people = accounts::people(&inner.db, &[sender_id.0], inner.clock.now()).await?;
        Ok(people.get(&sender_id).map(|sender| sender.called().to_owned()))
    }
}

fn by_reference(alerts: &[(UserId, Alert)]) -> Vec<(UserId, &Alert)> {
    alerts.iter().map(|(user, alert)| (*user, alert)).collect()
}

fn parse<T: serde::de::DeserializeOwned>(delivery: &Delivery) -> Result<T, Failure> {
    serde_json::from_slice(&delivery.payload).map_err(|error| Failure::GiveUp(error.into()))
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;
    use web::ids::{TeamId, TournamentId};

    use super::*;
    use crate::catalogue::matches::facts::{Standing, TeamName};

    const NOW: OffsetDateTime = datetime!(2026-11-20 15:00 UTC);

    fn standing(status: Status, minutes: i64) -> Standing {
        let start_time = NOW + Duration::minutes(minutes);
        Standing { status, start_time, home_score: None, away_score: None, advanced: None }
    }

    fn change(before: Option<Standing>, now: Standing) -> Option<Change> {
        let team = |id| TeamName { id: TeamId(id), name: "Rovers".to_owned() };
        let fact = MatchFact {
            event_id: MatchId(7),
            tournament_id: TournamentId(1),
            round: None,
            home_team: team(1),
            away_team: team(2),
            result_revision: 0,
            now,
            before,
        };
        Change::of(&fact, NOW)
    }

    #[test]
    fn moves_of_fifteen_minutes_and_cancellations_are_changes() {
        use Status::{Cancelled, Finished, Live, Postponed, Scheduled};
        let scheduled = |minutes| standing(Scheduled, minutes);
        for (before, now, expected) in [
            (scheduled(60), scheduled(75), Some(Change::Moved)),
            (scheduled(60), scheduled(45), Some(Change::Moved)),
            (scheduled(60), scheduled(74), None),
            (scheduled(60), scheduled(60), None),
            (scheduled(60), standing(Postponed, 60), Some(Change::Postponed)),
            (standing(Postponed, 60), standing(Postponed, 90), None),
            (standing(Postponed, 60), scheduled(2_000), Some(Change::Moved)),
            (scheduled(60), standing(Cancelled, 60), Some(Change::Cancelled)),
            (standing(Postponed, 60), standing(Cancelled, 60), Some(Change::Cancelled)),
            // A late start, and a start that was recorded wrongly.
            (scheduled(-30), standing(Live, -5), None),
            (scheduled(60), scheduled(-60), None),
            (standing(Live, -60), standing(Finished, -60), None),
        ] {
            assert_eq!(change(Some(before), now), expected, "{before:?} {now:?}");
        }
        assert_eq!(change(None, scheduled(60)), None, "a new match");
        let finished = Standing { home_score: Some(1), away_score: Some(0), ..standing(Finished, -120) };
        assert_eq!(change(Some(finished), standing(Cancelled, -120)), None, "an annulled result is a correction");
    }
}
