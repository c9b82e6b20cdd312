//! SQL queries for notifications.

mod alerts;

use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;
use web::ids::{LeagueId, MatchId, QuestionId, SubscriptionId, TeamId, TournamentId, UserId};

pub(super) use self::alerts::{
    BegunResult, CurrentMatch, Retry, Wishes, add_batch, batch, begin_result, claim_alerts, claim_users, claimed_on,
    current_matches, due_retries, end_result, had_result, leagues_wanting_passed, named_match, planned_until, points,
    postpone, predictors, predictors_end, room, streaks, streaks_end, sweep_batches, sweep_claims, take_retries,
    unfinished_batches, wanting_passed, wishes,
};
use super::{
    kinds::{Kind, Kinds},
    rules::PushKeys,
};

/// Database row of a user's preferences.
#[expect(clippy::struct_excessive_bools, reason = "one column for each kind")]
pub(super) struct SettingsRow {
    pub(super) reminders: bool,
    pub(super) league_ranks: bool,
    pub(super) quiet_from: Option<i16>,
    pub(super) quiet_until: Option<i16>,
    pub(super) time_zone: Option<String>,
    pub(super) moved: bool,
    pub(super) result: bool,
    pub(super) correction: bool,
    pub(super) passed: bool,
    pub(super) invitation: bool,
    pub(super) mention: bool,
    pub(super) streak: bool,
}

impl SettingsRow {
    pub(super) fn kinds(&self) -> Kinds {
        [
            (Kind::Reminder, self.reminders),
            (Kind::Moved, self.moved),
            (Kind::Result, self.result),
            (Kind::Correction, self.correction),
            (Kind::Passed, self.passed),
            (Kind::Invitation, self.invitation),
            (Kind::Mention, self.mention),
            (Kind::Streak, self.streak),
        ]
        .into_iter()
        .fold(Kinds::default(), |kinds, (kind, is_on)| kinds.with(kind, is_on))
    }
}

pub(super) async fn settings(executor: impl PgExecutor<'_>, user: UserId) -> sqlx::Result<Option<SettingsRow>> {
    sqlx::query_as!(
        SettingsRow,
        "select reminders, league_ranks, quiet_from, quiet_until, time_zone, moved, result, correction, passed,
                invitation, mention, streak
         from notification_settings where user_id = $1",
        user.0,
    )
    .fetch_optional(executor)
    .await
}

pub(super) async fn save_settings(
    connection: &mut PgConnection,
    user: UserId,
    settings: &SettingsRow,
) -> sqlx::Result<()> {
    sqlx::query!(
        "insert into notification_settings (user_id, reminders, league_ranks, quiet_from, quiet_until, time_zone, moved,
                                            result, correction, passed, invitation, mention, streak)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
         on conflict (user_id) do update
           set reminders = excluded.reminders, league_ranks = excluded.league_ranks, quiet_from = excluded.quiet_from,
               quiet_until = excluded.quiet_until, time_zone = excluded.time_zone, moved = excluded.moved,
               result = excluded.result, correction = excluded.correction, passed = excluded.passed,
               invitation = excluded.invitation, mention = excluded.mention, streak = excluded.streak",
        user.0,
        settings.reminders,
        settings.league_ranks,
        settings.quiet_from,
        settings.quiet_until,
        settings.time_zone,
        settings.moved,
        settings.result,
        settings.correction,
        settings.passed,
        settings.invitation,
        settings.mention,
        settings.streak,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Database row of a push subscription.
pub(super) struct SubscriptionRow {
    pub(super) user_id: UserId,
    pub(super) id: SubscriptionId,
    pub(super) endpoint: String,
    pub(super) p256dh: Vec<u8>,
    pub(super) auth: Vec<u8>,
    pub(super) created_at: OffsetDateTime,
}

/// Returns the subscriptions of some users, oldest first for each user.
pub(super) async fn subscriptions(executor: impl PgExecutor<'_>, users: &[i64]) -> sqlx::Result<Vec<SubscriptionRow>> {
    sqlx::query_as!(
        SubscriptionRow,
        r#"select user_id as "user_id: UserId", id as "id: SubscriptionId", endpoint, p256dh, auth, created_at
           from push_subscriptions where user_id = any($1) order by user_id, created_at, id"#,
        users,
    )
    .fetch_all(executor)
    .await
}

/// Adds a subscription, or updates the keys of an existing one.
pub(super) async fn save_subscription(
    connection: &mut PgConnection,
    user: UserId,
    endpoint: &str,
    keys: &PushKeys,
    now: OffsetDateTime,
) -> sqlx::Result<SubscriptionId> {
    sqlx::query_scalar!(
        r#"insert into push_subscriptions (user_id, endpoint, p256dh, auth, created_at) values ($1, $2, $3, $4, $5)
           on conflict (user_id, endpoint) do update
             set p256dh = excluded.p256dh, auth = excluded.auth, created_at = excluded.created_at
           returning id as "id: SubscriptionId""#,
        user.0,
        endpoint,
        &keys.p256dh[..],
        &keys.auth[..],
        now,
    )
    .fetch_one(connection)
    .await
}

/// Removes all but the latest subscriptions.
pub(super) async fn keep_latest(connection: &mut PgConnection, user: UserId, most: i64) -> sqlx::Result<()> {
    sqlx::query!(
        "delete from push_subscriptions where user_id = $1 and id not in
           (select id from push_subscriptions where user_id = $1 order by created_at desc, id desc limit $2)",
        user.0,
        most,
    )
    .execute(connection)
    .await?;
    Ok(())
}

pub(super) async fn delete_subscription(
    executor: impl PgExecutor<'_>,
    user: UserId,
    id: SubscriptionId,
) -> sqlx::Result<bool> {
    let deleted = sqlx::query!("delete from push_subscriptions where user_id = $1 and id = $2", user.0, id.0)
        .execute(executor)
        .await?;
    Ok(deleted.rows_affected() > 0)
}

/// Removes the subscriptions with this endpoint, of any user.
pub(super) async fn delete_endpoint(connection: &mut PgConnection, endpoint: &str) -> sqlx::Result<()> {
    sqlx::query!("delete from push_subscriptions where endpoint = $1", endpoint).execute(connection).await?;
    Ok(())
}

/// Removes an expired subscription, unless the browser has renewed its keys since.
pub(super) async fn delete_gone(
    executor: impl PgExecutor<'_>,
    user: UserId,
    id: SubscriptionId,
    keys: &PushKeys,
) -> sqlx::Result<()> {
    sqlx::query!(
        "delete from push_subscriptions where user_id = $1 and id = $2 and auth = $3 and p256dh = $4",
        user.0,
        id.0,
        &keys.auth[..],
        &keys.p256dh[..],
    )
    .execute(executor)
    .await?;
    Ok(())
}

/// A match that starts soon.
#[derive(Clone, Debug)]
pub(super) struct Due {
    pub(super) id: MatchId,
    pub(super) home_team: TeamId,
    pub(super) away_team: TeamId,
    pub(super) start_time: OffsetDateTime,
}

/// Returns matches that start in this interval and whose fans are not all queued.
pub(super) async fn due(
    executor: impl PgExecutor<'_>,
    after: OffsetDateTime,
    until: OffsetDateTime,
    most: i64,
) -> sqlx::Result<Vec<Due>> {
    sqlx::query_as!(
        Due,
        r#"select e.id as "id: MatchId", e.home_team_id as "home_team: TeamId", e.away_team_id as "away_team: TeamId",
                  e.start_time
           from events e left join reminder_plans p on p.event_id = e.id and p.start_time = e.start_time
           where accepts_predictions(e.status, e.start_time, $1) and e.start_time <= $2 and p.finished_at is null
           order by e.start_time, e.id limit $3"#,
        after,
        until,
        most,
    )
    .fetch_all(executor)
    .await
}

/// Creates the plan of a match, or continues it. Returns the last queued user; `None` if the plan is finished. A moved
/// kick-off restarts the plan.
pub(super) async fn open_plan(connection: &mut PgConnection, due: &Due) -> sqlx::Result<Option<UserId>> {
    sqlx::query!(
        "insert into reminder_plans (event_id, start_time, planned_up_to) values ($1, $2, 0)
         on conflict (event_id) do update
           set start_time = excluded.start_time, planned_up_to = excluded.planned_up_to, finished_at = null
           where reminder_plans.start_time <> excluded.start_time",
        due.id.0,
        due.start_time,
    )
    .execute(&mut *connection)
    .await?;
    sqlx::query_scalar!(
        r#"select planned_up_to as "user: UserId" from reminder_plans
           where event_id = $1 and start_time = $2 and finished_at is null"#,
        due.id.0,
        due.start_time,
    )
    .fetch_optional(connection)
    .await
}

/// Returns the last user of the next batch. Fans of both teams are counted twice, so the batch may have fewer users.
pub(super) async fn batch_end(
    executor: impl PgExecutor<'_>,
    due: &Due,
    after: UserId,
    most: i64,
) -> sqlx::Result<Option<UserId>> {
    let last = sqlx::query_scalar!(
        r#"select max(user_id) from (
               select user_id from (
                   (select user_id from user_teams where team_id = $1 and user_id > $3 order by user_id limit $4)
                   union all
                   (select user_id from user_teams where team_id = $2 and user_id > $3 order by user_id limit $4)
               ) both_teams order by user_id limit $4
           ) batch"#,
        due.home_team.0,
        due.away_team.0,
        after.0,
        most,
    )
    .fetch_one(executor)
    .await?;
    Ok(last.map(UserId))
}

/// Records that all fans up to this user are queued; `None` means all fans of the match. Returns false if another
/// planner has advanced the plan.
pub(super) async fn advance(
    executor: impl PgExecutor<'_>,
    due: &Due,
    from: UserId,
    to: Option<UserId>,
    now: OffsetDateTime,
) -> sqlx::Result<bool> {
    let advanced = sqlx::query!(
        "update reminder_plans
         set planned_up_to = coalesce($4, planned_up_to), finished_at = case when $4::bigint is null then $5::timestamptz end
         where event_id = $1 and start_time = $2 and planned_up_to = $3 and finished_at is null",
        due.id.0,
        due.start_time,
        from.0,
        to.map(|user| user.0),
        now,
    )
    .execute(executor)
    .await?;
    Ok(advanced.rows_affected() > 0)
}

/// Details of a match for the reminder.
pub(super) struct MatchRow {
    pub(super) tournament_id: TournamentId,
    pub(super) home_team: TeamId,
    pub(super) home_name: String,
    pub(super) away_team: TeamId,
    pub(super) away_name: String,
}

/// Returns the match if it still starts at this time.
pub(super) async fn scheduled(
    executor: impl PgExecutor<'_>,
    event: MatchId,
    start_time: OffsetDateTime,
) -> sqlx::Result<Option<MatchRow>> {
    sqlx::query_as!(
        MatchRow,
        r#"select e.tournament_id as "tournament_id: TournamentId", h.id as "home_team: TeamId", h.name as home_name,
                  a.id as "away_team: TeamId", a.name as away_name
           from events e join teams h on h.id = e.home_team_id join teams a on a.id = e.away_team_id
           where e.id = $1 and e.start_time = $2 and e.status = 'scheduled'"#,
        event.0,
        start_time,
    )
    .fetch_optional(executor)
    .await
}

/// A fan who may be reminded.
pub(super) struct Fan {
    pub(super) user_id: UserId,
    pub(super) quiet_from: Option<i16>,
    pub(super) quiet_until: Option<i16>,
    pub(super) time_zone: Option<String>,
}

/// What fans are reminded of.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) event: MatchId,
    pub(super) start_time: OffsetDateTime,
    /// Open questions.
    pub(super) questions: &'a [QuestionId],
}

impl Subject<'_> {
    fn question_ids(&self) -> Vec<i64> {
        self.questions.iter().map(|question| question.0).collect()
    }
}

/// Returns the open questions of a match's tournament that lock before the match starts, or with it.
pub(super) async fn open_questions(
    executor: impl PgExecutor<'_>,
    event: MatchId,
    start_time: OffsetDateTime,
    now: OffsetDateTime,
) -> sqlx::Result<Vec<QuestionId>> {
    sqlx::query_scalar!(
        r#"select q.id as "id: QuestionId"
           from questions q left join events e on e.id = q.event_id
           where q.tournament_id = (select tournament_id from events where id = $1) and (q.event_id is null or q.event_id = $1)
             and coalesce(q.locks_at, e.start_time) <= $2 and (q.opens_at is null or q.opens_at <= $3)
             and question_status(q.resolution, q.is_void, q.locks_at, e.status, e.start_time, $3) = 'open'
           order by coalesce(q.locks_at, e.start_time), q.id"#,
        event.0,
        start_time,
        now,
    )
    .fetch_all(executor)
    .await
}

/// Returns fans of either team in a range of users, who want reminders and have not predicted the match, or not answered
/// one of the questions. `claim` excludes fans who already have a reminder, not this query: the `reminders` table grows from empty to all fans of a
/// match within minutes, and a query plan made while it was empty would scan the whole table for each fan.
pub(super) async fn fans(
    executor: impl PgExecutor<'_>,
    subject: Subject<'_>,
    teams: (TeamId, TeamId),
    (after, until): (UserId, UserId),
    most: i64,
    now: OffsetDateTime,
) -> sqlx::Result<Vec<Fan>> {
    sqlx::query_as!(
        Fan,
        r#"select u.user_id as "user_id!: UserId", s.quiet_from as "quiet_from?", s.quiet_until as "quiet_until?",
                  s.time_zone as "time_zone?"
           from users u
           left join notification_settings s on s.user_id = u.user_id
           where u.user_id > $4 and u.user_id <= $5
             and u.user_id in (select t.user_id from user_teams t
                               where t.team_id in ($2, $3) and t.user_id > $4 and t.user_id <= $5)
             and (u.banned_at is null or u.banned_until <= $7) and coalesce(s.reminders, true)
             and (not exists (select 1 from predictions p where p.user_id = u.user_id and p.event_id = $1)
                  or (select count(*) from answers a where a.user_id = u.user_id and a.question_id = any($8))
                     < cardinality($8))
           order by u.user_id limit $6"#,
        subject.event.0,
        teams.0.0,
        teams.1.0,
        after.0,
        until.0,
        most,
        now,
        &subject.question_ids(),
    )
    .fetch_all(executor)
    .await
}

/// Claims reminders of a match that still starts at this time, for users who have no reminder yet, and who lack the
/// prediction or an answer. Returns the users.
pub(super) async fn claim(
    executor: impl PgExecutor<'_>,
    subject: Subject<'_>,
    users: &[i64],
    now: OffsetDateTime,
) -> sqlx::Result<Vec<UserId>> {
    sqlx::query_scalar!(
        r#"insert into reminders (user_id, event_id, claimed_at)
           select w.user_id, e.id, $4
           from unnest($3::bigint[]) as w (user_id) join events e on e.id = $1
           where accepts_predictions(e.status, e.start_time, $4) and e.start_time = $2
             and (w.user_id not in (select p.user_id from predictions p where p.event_id = $1 and p.user_id = any($3))
                  or (cardinality($5::bigint[]) > 0
                      and w.user_id not in (select a.user_id from answers a where a.question_id = any($5) and a.user_id = any($3)
                                            group by a.user_id having count(*) >= cardinality($5::bigint[]))))
           order by w.user_id
           on conflict (user_id, event_id) do nothing
           returning user_id as "user_id: UserId""#,
        subject.event.0,
        subject.start_time,
        users,
        now,
        &subject.question_ids(),
    )
    .fetch_all(executor)
    .await
}

pub(super) async fn unclaim(executor: impl PgExecutor<'_>, event: MatchId, users: &[i64]) -> sqlx::Result<()> {
    sqlx::query!("delete from reminders where event_id = $1 and user_id = any($2)", event.0, users)
        .execute(executor)
        .await?;
    Ok(())
}

/// Returns which of these users are not banned and want notifications of places lost in a league.
pub(super) async fn wanting_league_ranks(
    executor: impl PgExecutor<'_>,
    users: &[i64],
    now: OffsetDateTime,
) -> sqlx::Result<Vec<Fan>> {
    sqlx::query_as!(
        Fan,
        r#"select u.user_id as "user_id!: UserId", s.quiet_from as "quiet_from?", s.quiet_until as "quiet_until?",
                  s.time_zone as "time_zone?"
           from users u
           left join notification_settings s on s.user_id = u.user_id
           where u.user_id = any($1) and (u.banned_at is null or u.banned_until <= $2) and coalesce(s.league_ranks, true)"#,
        users,
        now,
    )
    .fetch_all(executor)
    .await
}

/// Claims notifications of lost places, for pairs of users and leagues. Returns the pairs that had none for this round.
pub(super) async fn claim_league_ranks(
    executor: impl PgExecutor<'_>,
    users: &[i64],
    leagues: &[i64],
    round: i16,
    now: OffsetDateTime,
) -> sqlx::Result<Vec<(UserId, LeagueId)>> {
    let rows = sqlx::query!(
        r#"insert into league_notifications (user_id, league_id, round, claimed_at)
           select w.user_id, w.league_id, $3, $4 from unnest($1::bigint[], $2::bigint[]) as w (user_id, league_id)
           order by w.user_id, w.league_id
           on conflict (user_id, league_id, round) do nothing
           returning user_id as "user_id: UserId", league_id as "league_id: LeagueId""#,
        users,
        leagues,
        round,
        now,
    )
    .fetch_all(executor)
    .await?;
    Ok(rows.into_iter().map(|row| (row.user_id, row.league_id)).collect())
}

pub(super) async fn unclaim_league_ranks(
    executor: impl PgExecutor<'_>,
    users: &[i64],
    league: LeagueId,
    round: i16,
) -> sqlx::Result<()> {
    sqlx::query!(
        "delete from league_notifications where user_id = any($1) and league_id = $2 and round = $3",
        users,
        league.0,
        round,
    )
    .execute(executor)
    .await?;
    Ok(())
}

/// Deletes a limited number of old claims of league notifications. Returns how many.
pub(super) async fn sweep_league_ranks(
    executor: impl PgExecutor<'_>,
    before: OffsetDateTime,
    most: i64,
) -> sqlx::Result<u64> {
    let swept = sqlx::query!(
        "delete from league_notifications where claimed_at < $1 and (user_id, league_id, round) in
           (select user_id, league_id, round from league_notifications where claimed_at < $1
            order by claimed_at limit $2)",
        before,
        most,
    )
    .execute(executor)
    .await?;
    Ok(swept.rows_affected())
}

/// Deletes a limited number of old claims. Returns how many.
pub(super) async fn sweep(executor: impl PgExecutor<'_>, before: OffsetDateTime, most: i64) -> sqlx::Result<u64> {
    let swept = sqlx::query!(
        "delete from reminders where claimed_at < $1 and (user_id, event_id) in
           (select user_id, event_id from reminders where claimed_at < $1 order by claimed_at limit $2)",
        before,
        most,
    )
    .execute(executor)
    .await?;
    Ok(swept.rows_affected())
}

/// Deletes old plans. Returns how many.
pub(super) async fn sweep_plans(executor: impl PgExecutor<'_>, before: OffsetDateTime) -> sqlx::Result<u64> {
    let swept = sqlx::query!("delete from reminder_plans where start_time < $1", before).execute(executor).await?;
    Ok(swept.rows_affected())
}
