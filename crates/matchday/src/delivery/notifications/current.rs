//! Content of notifications about matches, and of notifications that waited.
//!
//! A notification can wait behind others, or until a provider accepts it. Meanwhile the match can move again, or its result
//! can be corrected. Notifications about both have the same collapse key, so a device shows the one that arrives last.
//! Start and points are therefore read shortly before sending, for some hundred notifications at a time, and not when the
//! notifications are planned.

use std::collections::{HashMap, HashSet};

use sqlx::PgPool;
use time::{OffsetDateTime, UtcOffset};
use web::ids::{MatchId, UserId};

use super::{
    alerts::Change,
    kinds::{About, Alert, Kind},
    store::{self, CurrentMatch, Retry},
};
use crate::{catalogue::matches::rules::Status, chat::blocks, identity::accounts};

/// Adds state and start of a match to a notification; `None` once it has begun.
pub(super) fn moved(alert: Alert, current: &CurrentMatch, now: OffsetDateTime) -> Option<Alert> {
    let change = match current.status {
        Status::Postponed => Change::Postponed,
        Status::Cancelled => Change::Cancelled,
        Status::Scheduled if current.start_time > now => Change::Moved,
        _ => return None,
    };
    Some(alert.text("status", change.name()).time("start", current.start_time))
}

/// Brings postponed notifications up to date. Those that have become pointless or unwelcome lose their content.
pub(super) async fn update(db: &PgPool, retries: &mut [Retry], now: OffsetDateTime) -> sqlx::Result<()> {
    drop_claimed_streaks(db, retries, now).await?;
    update_senders(db, retries, now).await?;
    update_matches(db, retries, now).await
}

/// Users who have claimed their coins need no notification of their streak.
async fn drop_claimed_streaks(db: &PgPool, retries: &mut [Retry], now: OffsetDateTime) -> sqlx::Result<()> {
    let is_streak = |retry: &&mut Retry| retry.alert.as_ref().is_some_and(|alert| alert.kind == Kind::Streak);
    let mut streaks: Vec<&mut Retry> = retries.iter_mut().filter(is_streak).collect();
    if streaks.is_empty() {
        return Ok(());
    }
    let users: Vec<i64> = streaks.iter().map(|retry| retry.user_id.0).collect();
    let claimed = store::claimed_on(db, &users, now.to_offset(UtcOffset::UTC).date()).await?;
    for retry in &mut streaks {
        retry.alert.take_if(|_| claimed.contains(&retry.user_id));
    }
    Ok(())
}

/// Shows the current names of senders. Drops notifications of senders whom the user has blocked meanwhile, or who are
/// suspended or deleted.
async fn update_senders(db: &PgPool, retries: &mut [Retry], now: OffsetDateTime) -> sqlx::Result<()> {
    let sender = |retry: &Retry| Some((retry.user_id.0, retry.alert.as_ref()?.sender?.0));
    let (users, senders): (Vec<i64>, Vec<i64>) = retries.iter().filter_map(sender).unzip();
    if users.is_empty() {
        return Ok(());
    }
    let blocked: HashSet<(i64, i64)> = blocks::blocked_by_each(db, &users).await?.into_iter().collect();
    let people = accounts::people(db, &senders, now).await?;
    for retry in retries {
        if let Some(pair) = sender(retry) {
            let visible = people.get(&UserId(pair.1)).filter(|_| !blocked.contains(&pair));
            retry.alert = retry.alert.take().zip(visible).map(|(alert, sender)| alert.text("user", sender.called()));
        }
    }
    Ok(())
}

async fn update_matches(db: &PgPool, retries: &mut [Retry], now: OffsetDateTime) -> sqlx::Result<()> {
    let mut events: Vec<i64> = retries.iter().filter_map(|retry| Some(match_of(retry.alert.as_ref()?)?.0)).collect();
    if events.is_empty() {
        return Ok(());
    }
    events.sort_unstable();
    events.dedup();
    let matches = store::current_matches(db, &events).await?;
    let mut outdated: HashMap<(MatchId, i64), Vec<i64>> = HashMap::new();
    for retry in &*retries {
        if let Some(alert) = &retry.alert
            && let Some((event, revision)) = outdated_result(alert, &matches)
        {
            outdated.entry((event, revision)).or_default().push(retry.user_id.0);
        }
    }
    let mut points: HashMap<(MatchId, UserId), i64> = HashMap::new();
    for ((event, revision), users) in outdated {
        let rows = store::points(db, event, [revision, revision], &users).await?;
        points.extend(rows.into_iter().map(|(user, _, points)| ((event, UserId(user)), points.into())));
    }
    for retry in retries {
        retry.alert = retry.alert.take().and_then(|alert| updated(alert, retry.user_id, &matches, &points, now));
    }
    Ok(())
}

/// Returns a notification with what is true now; `None` if nothing is left to say.
fn updated(
    alert: Alert,
    user: UserId,
    matches: &HashMap<MatchId, CurrentMatch>,
    points: &HashMap<(MatchId, UserId), i64>,
    now: OffsetDateTime,
) -> Option<Alert> {
    let Some(event) = match_of(&alert) else { return Some(alert) };
    let current = matches.get(&event)?;
    match alert.kind {
        Kind::Moved => return moved(alert, current, now),
        Kind::Reminder => {
            // A moved match has reminders of its own.
            let is_due = current.status == Status::Scheduled && current.start_time == alert.expires_at;
            return is_due.then_some(alert);
        }
        _ => {}
    }
    if outdated_result(&alert, matches).is_none() {
        return Some(alert);
    }
    // The notifications of the latest result include all users who do not know this one.
    if alert.revision.parse::<i64>().is_ok_and(|revision| current.previous < revision) {
        return None;
    }
    match points.get(&(event, user)) {
        Some(points) => Some(alert.number("points", *points)),
        // The result was annulled. The user may have been notified of points before this correction.
        None => (alert.kind == Kind::Correction).then(|| alert.number("points", 0)),
    }
}

/// The match of a notification that can become outdated.
fn match_of(alert: &Alert) -> Option<MatchId> {
    match (alert.kind, &alert.about) {
        (Kind::Reminder | Kind::Moved | Kind::Result | Kind::Correction, About::Event(event)) => Some(*event),
        _ => None,
    }
}

/// The match and its latest result, if a notification is about an earlier one.
fn outdated_result(alert: &Alert, matches: &HashMap<MatchId, CurrentMatch>) -> Option<(MatchId, i64)> {
    let event = match_of(alert).filter(|_| matches!(alert.kind, Kind::Result | Kind::Correction))?;
    let revision = matches.get(&event)?.revision;
    (alert.revision != revision.to_string()).then_some((event, revision))
}
