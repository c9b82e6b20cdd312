//! SQL queries for notifications to devices.

use std::collections::{HashMap, HashSet};

use serde_json::Value;
use sqlx::{PgConnection, PgExecutor, types::Json};
use time::{Date, OffsetDateTime};
use uuid::Uuid;
use web::ids::{LeagueId, MatchId, TeamId, TournamentId, UserId};

use crate::{
    catalogue::matches::{facts::TeamName, rules::Status},
    delivery::notifications::{
        batches::BatchKey,
        kinds::{Alert, Kind, Kinds},
    },
};

/// Kinds and quiet hours of a user.
pub(in super::super) struct Wishes {
    pub(in super::super) user_id: UserId,
    pub(in super::super) quiet_from: Option<i16>,
    pub(in super::super) quiet_until: Option<i16>,
    pub(in super::super) time_zone: Option<String>,
    reminders: Option<bool>,
    moved: Option<bool>,
    result: Option<bool>,
    correction: Option<bool>,
    passed: Option<bool>,
    invitation: Option<bool>,
    mention: Option<bool>,
    streak: Option<bool>,
}

impl Wishes {
    pub(in super::super) fn kinds(&self) -> Kinds {
        let stored = [
            (Kind::Reminder, self.reminders),
            (Kind::Moved, self.moved),
            (Kind::Result, self.result),
            (Kind::Correction, self.correction),
            (Kind::Passed, self.passed),
            (Kind::Invitation, self.invitation),
            (Kind::Mention, self.mention),
            (Kind::Streak, self.streak),
        ];
        stored.into_iter().fold(Kinds::default(), |kinds, (kind, is_on)| match is_on {
            Some(is_on) => kinds.with(kind, is_on),
            None => kinds,
        })
    }
}

/// Returns the wishes of users who are not suspended.
pub(in super::super) async fn wishes(
    executor: impl PgExecutor<'_>,
    users: &[i64],
    now: OffsetDateTime,
) -> sqlx::Result<Vec<Wishes>> {
    sqlx::query_as!(
        Wishes,
        r#"select u.user_id as "user_id!: UserId", s.quiet_from as "quiet_from?", s.quiet_until as "quiet_until?",
                  s.time_zone as "time_zone?", s.reminders as "reminders?", s.moved as "moved?", s.result as "result?",
                  s.correction as "correction?", s.passed as "passed?", s.invitation as "invitation?",
                  s.mention as "mention?", s.streak as "streak?"
           from users u
           left join notification_settings s on s.user_id = u.user_id
           where u.user_id = any($1) and u.deleted_at is null and (u.banned_at is null or u.banned_until <= $2)"#,
        users,
        now,
    )
    .fetch_all(executor)
    .await
}

/// Claims notifications. Returns the users and subjects that were not claimed before.
pub(in super::super) async fn claim_alerts(
    executor: impl PgExecutor<'_>,
    alerts: &[(UserId, &Alert)],
    now: OffsetDateTime,
) -> sqlx::Result<Vec<(UserId, String)>> {
    let users: Vec<i64> = alerts.iter().map(|(user, _)| user.0).collect();
    let kinds: Vec<String> = alerts.iter().map(|(_, alert)| alert.kind.name().to_owned()).collect();
    let subjects: Vec<String> = alerts.iter().map(|(_, alert)| alert.about.key()).collect();
    let revisions: Vec<String> = alerts.iter().map(|(_, alert)| alert.revision.clone()).collect();
    let rows = sqlx::query!(
        r#"insert into notification_claims (user_id, kind, subject, revision, claimed_at)
           select w.user_id, w.kind, w.subject, w.revision, $5
           from unnest($1::bigint[], $2::text[], $3::text[], $4::text[]) as w (user_id, kind, subject, revision)
           order by w.user_id, w.kind, w.subject, w.revision
           on conflict (user_id, kind, subject, revision) do nothing
           returning user_id as "user_id: UserId", subject"#,
        &users,
        &kinds,
        &subjects,
        &revisions,
        now,
    )
    .fetch_all(executor)
    .await?;
    Ok(rows.into_iter().map(|row| (row.user_id, row.subject)).collect())
}

/// Deletes a limited number of old claims. Returns how many.
pub(in super::super) async fn sweep_claims(
    executor: impl PgExecutor<'_>,
    before: OffsetDateTime,
    most: i64,
) -> sqlx::Result<u64> {
    let swept = sqlx::query!(
        "delete from notification_claims where claimed_at < $1 and (user_id, kind, subject, revision) in
           (select user_id, kind, subject, revision from notification_claims where claimed_at < $1
            order by claimed_at limit $2)",
        before,
        most,
    )
    .execute(executor)
    .await?;
    Ok(swept.rows_affected())
}

/// Adds a batch of users, unless an earlier plan has added it. Returns its last user.
pub(in super::super) async fn add_batch(
    executor: impl PgExecutor<'_>,
    key: &BatchKey,
    until: UserId,
    now: OffsetDateTime,
) -> sqlx::Result<UserId> {
    sqlx::query_scalar!(
        r#"insert into notification_batches as b (event_id, topic, after_user, until_user, claimed_until, created_at)
           values ($1, $2, $3, $4, $3, $5)
           on conflict (event_id, topic, after_user) do update set until_user = b.until_user
           returning until_user as "until: UserId""#,
        key.event.0,
        key.topic,
        key.after.0,
        until.0,
        now,
    )
    .fetch_one(executor)
    .await
}

/// Returns the batches of a topic with users who are not claimed yet: users after the first, up to the second.
pub(in super::super) async fn unfinished_batches(
    executor: impl PgExecutor<'_>,
    event: MatchId,
    topic: &str,
) -> sqlx::Result<Vec<(i64, i64)>> {
    let rows = sqlx::query!(
        "select after_user, until_user from notification_batches
         where event_id = $1 and topic = $2 and claimed_until < until_user order by after_user",
        event.0,
        topic,
    )
    .fetch_all(executor)
    .await?;
    Ok(rows.into_iter().map(|row| (row.after_user, row.until_user)).collect())
}

/// Returns the last user of the last batch of a topic.
pub(in super::super) async fn planned_until(
    executor: impl PgExecutor<'_>,
    event: MatchId,
    topic: &str,
) -> sqlx::Result<Option<UserId>> {
    let last = sqlx::query_scalar!(
        "select max(until_user) from notification_batches where event_id = $1 and topic = $2",
        event.0,
        topic,
    )
    .fetch_one(executor)
    .await?;
    Ok(last.map(UserId))
}

/// Returns the last claimed user of a batch, and its last user.
pub(in super::super) async fn batch(
    executor: impl PgExecutor<'_>,
    key: &BatchKey,
) -> sqlx::Result<Option<(UserId, UserId)>> {
    let row = sqlx::query!(
        r#"select claimed_until as "claimed: UserId", until_user as "until: UserId" from notification_batches
           where event_id = $1 and topic = $2 and after_user = $3"#,
        key.event.0,
        key.topic,
        key.after.0,
    )
    .fetch_optional(executor)
    .await?;
    Ok(row.map(|row| (row.claimed, row.until)))
}

/// Claims the users of a batch after the first, up to the second. Returns whether the first was still the last claimed one.
pub(in super::super) async fn claim_users(
    executor: impl PgExecutor<'_>,
    key: &BatchKey,
    after: UserId,
    until: UserId,
) -> sqlx::Result<bool> {
    let claimed = sqlx::query!(
        "update notification_batches set claimed_until = $5
         where event_id = $1 and topic = $2 and after_user = $3 and claimed_until = $4",
        key.event.0,
        key.topic,
        key.after.0,
        after.0,
        until.0,
    )
    .execute(executor)
    .await?;
    Ok(claimed.rows_affected() > 0)
}

/// Deletes a limited number of old batches. Returns how many.
pub(in super::super) async fn sweep_batches(
    executor: impl PgExecutor<'_>,
    before: OffsetDateTime,
    most: i64,
) -> sqlx::Result<u64> {
    let swept = sqlx::query!(
        "delete from notification_batches where created_at < $1 and (event_id, topic, after_user) in
           (select event_id, topic, after_user from notification_batches where created_at < $1
            order by created_at limit $2)",
        before,
        most,
    )
    .execute(executor)
    .await?;
    Ok(swept.rows_affected())
}

/// Stores a notification that is sent to a device later.
pub(in super::super) async fn postpone(
    executor: impl PgExecutor<'_>,
    user: UserId,
    device: &str,
    alert: &Alert,
    attempts: u32,
    due_at: OffsetDateTime,
) -> sqlx::Result<()> {
    sqlx::query!(
        "insert into notification_retries (user_id, id, device_id, notification, attempts, due_at, expires_at)
         values ($1, $2, $3, $4, $5, $6, $7)
         on conflict (user_id, id) do nothing",
        user.0,
        alert.id_on(user, device),
        device,
        Json(alert) as _,
        i32::try_from(attempts).unwrap_or(i32::MAX),
        due_at,
        alert.expires_at,
    )
    .execute(executor)
    .await?;
    Ok(())
}

/// A notification that was postponed.
pub(in super::super) struct Retry {
    pub(in super::super) user_id: UserId,
    id: Uuid,
    pub(in super::super) device_id: String,
    /// `None` if there is nothing to send, or if a later version has stored it in another form.
    pub(in super::super) alert: Option<Alert>,
    pub(in super::super) attempts: u32,
}

impl Retry {
    pub(in super::super) fn key(&self) -> (UserId, Uuid) {
        (self.user_id, self.id)
    }
}

/// Returns notifications that are due, the longest waiting ones first.
pub(in super::super) async fn due_retries(
    executor: impl PgExecutor<'_>,
    now: OffsetDateTime,
    most: i64,
) -> sqlx::Result<Vec<Retry>> {
    let rows = sqlx::query!(
        r#"select user_id as "user_id: UserId", id, device_id, notification as "notification: Value", attempts
           from notification_retries where due_at <= $1 order by due_at limit $2"#,
        now,
        most,
    )
    .fetch_all(executor)
    .await?;
    let retries = rows.into_iter().map(|row| Retry {
        user_id: row.user_id,
        id: row.id,
        device_id: row.device_id,
        alert: serde_json::from_value(row.notification).ok(),
        attempts: u32::try_from(row.attempts).unwrap_or(1),
    });
    Ok(retries.collect())
}

/// Deletes notifications that are still due, and returns their keys. Of two processes, each gets those that it deleted.
pub(in super::super) async fn take_retries(
    executor: impl PgExecutor<'_>,
    due: &[Retry],
    now: OffsetDateTime,
) -> sqlx::Result<HashSet<(UserId, Uuid)>> {
    let (users, ids): (Vec<i64>, Vec<Uuid>) = due.iter().map(|due| (due.user_id.0, due.id)).unzip();
    let rows = sqlx::query!(
        r#"delete from notification_retries where user_id = any($1) and id = any($2) and due_at <= $3
           returning user_id as "user_id: UserId", id"#,
        &users,
        &ids,
        now,
    )
    .fetch_all(executor)
    .await?;
    Ok(rows.into_iter().map(|row| (row.user_id, row.id)).collect())
}

/// Start of the notifications of a result.
pub(in super::super) struct BegunResult {
    /// Result before it whose notifications were all planned; 0 for none.
    pub(in super::super) previous: i64,
    /// Whether there was another result in between, of which an unknown part of the users was notified.
    pub(in super::super) follows_cut_off: bool,
    pub(in super::super) begun_at: OffsetDateTime,
}

/// Records that users are notified of a result. Returns the same for each call; `None` if a later result is recorded already.
pub(in super::super) async fn begin_result(
    connection: &mut PgConnection,
    event: MatchId,
    revision: i64,
    now: OffsetDateTime,
) -> sqlx::Result<Option<BegunResult>> {
    sqlx::query!(
        "insert into result_notices
           (event_id, revision, previous_revision, planned_revision, follows_cut_off, begun_at)
         values ($1, $2, 0, 0, false, $3)
         on conflict (event_id) do update
           set previous_revision = result_notices.planned_revision, revision = excluded.revision,
               follows_cut_off = result_notices.revision > result_notices.planned_revision, begun_at = excluded.begun_at
           where result_notices.revision < excluded.revision",
        event.0,
        revision,
        now,
    )
    .execute(&mut *connection)
    .await?;
    sqlx::query_as!(
        BegunResult,
        "select previous_revision as previous, follows_cut_off, begun_at from result_notices
         where event_id = $1 and revision = $2",
        event.0,
        revision,
    )
    .fetch_optional(connection)
    .await
}

/// Records that all notifications of a result are planned.
pub(in super::super) async fn end_result(
    executor: impl PgExecutor<'_>,
    event: MatchId,
    revision: i64,
) -> sqlx::Result<()> {
    sqlx::query!(
        "update result_notices set planned_revision = $2 where event_id = $1 and planned_revision < $2",
        event.0,
        revision,
    )
    .execute(executor)
    .await?;
    Ok(())
}

/// A match with the names of its teams.
pub(in super::super) struct NamedMatch {
    pub(in super::super) tournament: TournamentId,
    pub(in super::super) round: Option<i16>,
    pub(in super::super) start_time: OffsetDateTime,
    pub(in super::super) home: TeamName,
    pub(in super::super) away: TeamName,
}

pub(in super::super) async fn named_match(
    executor: impl PgExecutor<'_>,
    event: MatchId,
) -> sqlx::Result<Option<NamedMatch>> {
    let row = sqlx::query!(
        r#"select e.tournament_id as "tournament: TournamentId", e.round, e.start_time, h.id as "home: TeamId",
                  h.name as home_name, a.id as "away: TeamId", a.name as away_name
           from events e join teams h on h.id = e.home_team_id join teams a on a.id = e.away_team_id
           where e.id = $1"#,
        event.0,
    )
    .fetch_optional(executor)
    .await?;
    Ok(row.map(|row| NamedMatch {
        tournament: row.tournament,
        round: row.round,
        start_time: row.start_time,
        home: TeamName { id: row.home, name: row.home_name },
        away: TeamName { id: row.away, name: row.away_name },
    }))
}

/// Returns the last user of the next batch of users with a prediction of a match.
pub(in super::super) async fn predictors_end(
    executor: impl PgExecutor<'_>,
    event: MatchId,
    after: UserId,
    most: i64,
) -> sqlx::Result<Option<UserId>> {
    let last = sqlx::query_scalar!(
        "select max(user_id) from
           (select user_id from predictions where event_id = $1 and user_id > $2 order by user_id limit $3) batch",
        event.0,
        after.0,
        most,
    )
    .fetch_one(executor)
    .await?;
    Ok(last.map(UserId))
}

/// Returns users with a prediction of a match and a device, in a range of users.
pub(in super::super) async fn predictors(
    executor: impl PgExecutor<'_>,
    event: MatchId,
    (after, until): (UserId, UserId),
    most: i64,
) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar!(
        "select p.user_id from predictions p
         where p.event_id = $1 and p.user_id > $2 and p.user_id <= $3
           and exists (select 1 from devices d where d.user_id = p.user_id)
         order by p.user_id limit $4",
        event.0,
        after.0,
        until.0,
        most,
    )
    .fetch_all(executor)
    .await
}

/// Returns points of users for two results of a match: user, revision, points.
pub(in super::super) async fn points(
    executor: impl PgExecutor<'_>,
    event: MatchId,
    revisions: [i64; 2],
    users: &[i64],
) -> sqlx::Result<Vec<(i64, i64, i32)>> {
    let rows = sqlx::query!(
        r#"select user_id as "user_id!", revision as "revision!", points as "points!" from result_points
           where event_id = $1 and revision = any($2) and user_id = any($3)"#,
        event.0,
        &revisions,
        users,
    )
    .fetch_all(executor)
    .await?;
    Ok(rows.into_iter().map(|row| (row.user_id, row.revision, row.points)).collect())
}

/// State of a match that its notifications show.
pub(in super::super) struct CurrentMatch {
    pub(in super::super) status: Status,
    pub(in super::super) start_time: OffsetDateTime,
    /// Latest result of which users are notified, and the one before it whose notifications were all planned; 0 for none.
    pub(in super::super) revision: i64,
    pub(in super::super) previous: i64,
}

pub(in super::super) async fn current_matches(
    executor: impl PgExecutor<'_>,
    events: &[i64],
) -> sqlx::Result<HashMap<MatchId, CurrentMatch>> {
    let rows = sqlx::query!(
        r#"select e.id as "id!: MatchId", e.status as "status!: Status", e.start_time as "start_time!",
                  coalesce(n.revision, 0) as "revision!", coalesce(n.previous_revision, 0) as "previous!"
           from events e left join result_notices n on n.event_id = e.id where e.id = any($1)"#,
        events,
    )
    .fetch_all(executor)
    .await?;
    let matches = rows.into_iter().map(|row| {
        let (status, start_time, revision, previous) = (row.status, row.start_time, row.revision, row.previous);
        (row.id, CurrentMatch { status, start_time, revision, previous })
    });
    Ok(matches.collect())
}

/// Whether one of the results up to this one gave points.
pub(in super::super) async fn had_result(
    executor: impl PgExecutor<'_>,
    event: MatchId,
    until: i64,
) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"select exists (select 1 from event_results where event_id = $1 and revision <= $2 and home_score is not null)
             as "had!""#,
        event.0,
        until,
    )
    .fetch_one(executor)
    .await
}

/// Returns which of these members of leagues want to know of lost ranks and have a device.
pub(in super::super) async fn wanting_passed(
    executor: impl PgExecutor<'_>,
    leagues: &[i64],
) -> sqlx::Result<Vec<(UserId, LeagueId)>> {
    let rows = sqlx::query!(
        r#"select m.user_id as "user_id: UserId", m.league_id as "league_id: LeagueId"
           from league_members m
           join notification_settings s on s.user_id = m.user_id
           where m.league_id = any($1) and s.passed
             and exists (select 1 from devices d where d.user_id = m.user_id)"#,
        leagues,
    )
    .fetch_all(executor)
    .await?;
    Ok(rows.into_iter().map(|row| (row.user_id, row.league_id)).collect())
}

/// Returns the leagues that count a tournament and have a member who wants to know of lost ranks and has a device. Starts
/// from these users: this kind is off by default.
pub(in super::super) async fn leagues_wanting_passed(
    executor: impl PgExecutor<'_>,
    tournament: TournamentId,
) -> sqlx::Result<Vec<LeagueId>> {
    sqlx::query_scalar!(
        r#"select distinct m.league_id as "league_id: LeagueId"
           from notification_settings s
           join league_members m on m.user_id = s.user_id
           join leagues l on l.id = m.league_id
           where s.passed and l.tournament_ids && array[$1::bigint]
             and exists (select 1 from devices d where d.user_id = s.user_id)
           order by 1"#,
        tournament.0,
    )
    .fetch_all(executor)
    .await
}

/// Returns the last user of the next batch of users who want to know of their streak.
pub(in super::super) async fn streaks_end(
    executor: impl PgExecutor<'_>,
    after: UserId,
    most: i64,
) -> sqlx::Result<Option<UserId>> {
    let last = sqlx::query_scalar!(
        "select max(user_id) from
           (select user_id from notification_settings where streak and user_id > $1 order by user_id limit $2) batch",
        after.0,
        most,
    )
    .fetch_one(executor)
    .await?;
    Ok(last.map(UserId))
}

/// Returns users in a range who want to know of their streak, and have one of at least two days that ends on `day`
/// (exclusive), with its length. Users who claimed on `day` are left out.
pub(in super::super) async fn streaks(
    executor: impl PgExecutor<'_>,
    (after, until): (UserId, UserId),
    (yesterday, day): (Date, Date),
) -> sqlx::Result<Vec<(UserId, i32)>> {
    let rows = sqlx::query!(
        r#"select s.user_id as "user_id: UserId", c.streak_days
           from notification_settings s
           join daily_claims c on c.user_id = s.user_id and c.day = $3
           where s.streak and s.user_id > $1 and s.user_id <= $2 and c.streak_days >= 2
             and not exists (select 1 from daily_claims t where t.user_id = s.user_id and t.day = $4)
             and exists (select 1 from devices d where d.user_id = s.user_id)
           order by s.user_id"#,
        after.0,
        until.0,
        yesterday,
        day,
    )
    .fetch_all(executor)
    .await?;
    Ok(rows.into_iter().map(|row| (row.user_id, row.streak_days)).collect())
}

/// Returns the users among these who have claimed the daily coins of a day.
pub(in super::super) async fn claimed_on(
    executor: impl PgExecutor<'_>,
    users: &[i64],
    day: Date,
) -> sqlx::Result<HashSet<UserId>> {
    let claimed = sqlx::query_scalar!(
        r#"select user_id as "user_id: UserId" from daily_claims where user_id = any($1) and day = $2"#,
        users,
        day,
    )
    .fetch_all(executor)
    .await?;
    Ok(claimed.into_iter().collect())
}

/// Returns the Matrix id and the name of a room.
pub(in super::super) async fn room(
    executor: impl PgExecutor<'_>,
    room: web::ids::RoomId,
) -> sqlx::Result<Option<(String, String)>> {
    let row = sqlx::query!("select matrix_id, name from rooms where id = $1 and discarded_at is null", room.0)
        .fetch_optional(executor)
        .await?;
    Ok(row.and_then(|row| Some((row.matrix_id?, row.name))))
}
