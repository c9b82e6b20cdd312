//! SQL queries of the console: read models only, each with a limit.

pub(super) mod reports;

use scoring::{Multiplier, Outcome, Side};
use sqlx::{PgConnection, PgPool, Postgres, Transaction};
use time::OffsetDateTime;
use web::ids::{MatchId, RuleSetId, TeamId, TournamentId, UserId};

use crate::{catalogue::matches::rules::Status, identity::phone::Phone};

/// Maximum number of rows in tables such as results or restrictions.
const SHOWN: i64 = 20;
/// Counts stop here, because operators do not need larger numbers exactly.
pub(super) const COUNTED: i64 = 100_000;
/// Number of users listed who gain or lose most by a correction.
const NAMED: i64 = 5;

/// Begins a short read-only transaction that sees one snapshot.
pub(super) async fn begin_read(db: &PgPool) -> sqlx::Result<Transaction<'static, Postgres>> {
    platform::database::begin_with(
        db,
        "begin isolation level repeatable read read only; set local statement_timeout = '3s'",
    )
    .await
}

/// Begins a read-only transaction for queries over all predictions of a match; a million take two seconds. Sorting them
/// would take longer, and the planner overestimates the number of different forecasts, so sorts are disabled. JIT
/// compilation would take longer than it saves.
pub(super) async fn begin_effect(db: &PgPool) -> sqlx::Result<Transaction<'static, Postgres>> {
    platform::database::begin_with(
        db,
        "begin isolation level repeatable read read only; set local statement_timeout = '5s'; set local jit = off;
         set local enable_sort = off; set local enable_mergejoin = off",
    )
    .await
}

/// Begins a read-only transaction for queries that also read every wallet or leaderboard row. They take longer, and the
/// preview works without them.
pub(super) async fn begin_optional(db: &PgPool) -> sqlx::Result<Transaction<'static, Postgres>> {
    platform::database::begin_with(
        db,
        "begin isolation level repeatable read read only; set local statement_timeout = '2500ms'; set local jit = off",
    )
    .await
}

#[derive(Clone, Copy, Debug)]
pub struct Backlog {
    /// Number of messages, at most 100,001.
    pub length: i64,
    pub oldest: Option<OffsetDateTime>,
}

pub(super) async fn outbox(connection: &mut PgConnection) -> sqlx::Result<Backlog> {
    sqlx::query_as!(
        Backlog,
        r#"select (select count(*) from (select 1 from outbox limit $1::bigint + 1) o) as "length!",
                  (select created_at from outbox order by id limit 1) as oldest"#,
        COUNTED,
    )
    .fetch_one(connection)
    .await
}

pub(super) async fn outbox_by_subject(
    connection: &mut PgConnection,
) -> sqlx::Result<Vec<(String, i64, Option<OffsetDateTime>)>> {
    let rows = sqlx::query!(
        r#"select subject, count(*) as "count!", min(created_at) as oldest
           from (select subject, created_at from outbox order by id limit $1) o
           group by subject order by 2 desc, 1 limit $2"#,
        COUNTED,
        SHOWN,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(|row| (row.subject, row.count, row.oldest)).collect())
}

/// Selects matches. An absent field matches all.
#[derive(Clone, Copy, Debug)]
pub struct MatchFilter {
    pub tournament: Option<TournamentId>,
    /// Earliest start time, inclusive.
    pub from: Option<OffsetDateTime>,
    /// Latest start time, exclusive.
    pub until: Option<OffsetDateTime>,
    pub offset: i64,
}

#[derive(Clone, Debug)]
pub struct MatchRow {
    pub id: MatchId,
    pub tournament_id: TournamentId,
    pub tournament: String,
    /// Key of the match in its fixture document.
    pub key: String,
    pub home_id: TeamId,
    pub home: String,
    pub away_id: TeamId,
    pub away: String,
    pub start_time: OffsetDateTime,
    pub venue: String,
    pub status: Status,
    pub home_score: Option<i32>,
    pub away_score: Option<i32>,
    /// Number of results so far.
    pub result_revision: i64,
    pub rule_set_id: RuleSetId,
    /// Slug of the rule set.
    pub rule_set: String,
    pub round: Option<i16>,
    pub stage: Option<String>,
    /// Factor for all points, in halves.
    pub multiplier: i16,
    pub is_knockout: bool,
    /// Team that advanced: `home` or `away`.
    pub advanced: Option<String>,
    pub updated_at: OffsetDateTime,
    /// Whether all scores include the latest result.
    pub is_applied: bool,
}

impl MatchRow {
    /// Whether some scores lack the latest result.
    pub(super) fn is_scoring(&self) -> bool {
        self.result_revision > 0 && !self.is_applied
    }

    pub fn scores(&self) -> Option<(i32, i32)> {
        self.home_score.zip(self.away_score)
    }

    pub fn advanced(&self) -> Option<Side> {
        self.advanced.as_deref()?.parse().ok()
    }

    pub fn multiplier(&self) -> Multiplier {
        Multiplier::of_halves(self.multiplier).unwrap_or_default()
    }
}

pub(super) async fn matches(
    connection: &mut PgConnection,
    filter: &MatchFilter,
    most: i64,
) -> sqlx::Result<Vec<MatchRow>> {
    sqlx::query_as!(
        MatchRow,
        r#"select e.id as "id: MatchId", e.tournament_id as "tournament_id: TournamentId", t.name as tournament, e.key,
                  e.home_team_id as "home_id: TeamId", h.name as home, e.away_team_id as "away_id: TeamId", a.name as away,
                  e.start_time, e.venue, e.status as "status: Status", e.home_score, e.away_score, e.result_revision,
                  e.rule_set_id as "rule_set_id: RuleSetId", s.slug as rule_set, e.round, e.stage, e.multiplier,
                  e.is_knockout, e.advanced, e.updated_at,
                  not exists (select 1 from event_results r where r.event_id = e.id and r.applied_at is null) as "is_applied!"
           from events e
           join rule_sets s on s.id = e.rule_set_id
           join tournaments t on t.id = e.tournament_id
           join teams h on h.id = e.home_team_id
           join teams a on a.id = e.away_team_id
           where ($1::bigint is null or e.tournament_id = $1)
             and ($2::timestamptz is null or e.start_time >= $2) and ($3::timestamptz is null or e.start_time < $3)
           order by e.start_time, e.id limit $4 offset $5"#,
        filter.tournament.map(|id| id.0),
        filter.from,
        filter.until,
        most,
        filter.offset,
    )
    .fetch_all(connection)
    .await
}

pub(super) async fn find_match(connection: &mut PgConnection, event: MatchId) -> sqlx::Result<Option<MatchRow>> {
    sqlx::query_as!(
        MatchRow,
        r#"select e.id as "id: MatchId", e.tournament_id as "tournament_id: TournamentId", t.name as tournament, e.key,
                  e.home_team_id as "home_id: TeamId", h.name as home, e.away_team_id as "away_id: TeamId", a.name as away,
                  e.start_time, e.venue, e.status as "status: Status", e.home_score, e.away_score, e.result_revision,
                  e.rule_set_id as "rule_set_id: RuleSetId", s.slug as rule_set, e.round, e.stage, e.multiplier,
                  e.is_knockout, e.advanced, e.updated_at,
                  not exists (select 1 from event_results r where r.event_id = e.id and r.applied_at is null) as "is_applied!"
           from events e
           join rule_sets s on s.id = e.rule_set_id
           join tournaments t on t.id = e.tournament_id
           join teams h on h.id = e.home_team_id
           join teams a on a.id = e.away_team_id
           where e.id = $1"#,
        event.0,
    )
    .fetch_optional(connection)
    .await
}

#[derive(Clone, Debug)]
pub struct TournamentRow {
    pub id: TournamentId,
    pub name: String,
}

pub(super) async fn tournaments(connection: &mut PgConnection) -> sqlx::Result<Vec<TournamentRow>> {
    sqlx::query_as!(
        TournamentRow,
        r#"select id as "id: TournamentId", name from tournaments order by name, id limit 500"#
    )
    .fetch_all(connection)
    .await
}

/// Returns the number of matches of each rule set, and how many of them have not started.
pub(super) async fn rule_set_uses(connection: &mut PgConnection) -> sqlx::Result<Vec<(RuleSetId, i64, i64)>> {
    let rows = sqlx::query!(
        r#"select rule_set_id as "id: RuleSetId", count(*) as "matches!",
                  count(*) filter (where status = 'scheduled') as "open!"
           from events group by rule_set_id"#
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(|row| (row.id, row.matches, row.open)).collect())
}

/// Effect of a rule set on all results of a tournament.
#[derive(Clone, Debug, Default)]
pub struct RuleSetEffect {
    /// Number of users with points.
    pub users: i64,
    /// Number of users who would have another rank.
    pub moved: i64,
    /// Sum of points now and under the rule set.
    pub points: (i64, i64),
    /// Users who would be first.
    pub top: Vec<RankedUser>,
}

/// A user on the leaderboard of a tournament under another rule set.
#[derive(Clone, Debug)]
pub struct RankedUser {
    pub rank: i32,
    pub user: UserId,
    pub username: String,
    pub rank_before: i64,
    /// Points now.
    pub before: i64,
    /// Points under the rule set.
    pub after: i64,
}

/// Begins a read-only transaction for a query over all predictions of a tournament. Few tournaments are too large for it.
pub(super) async fn begin_rule_set_effect(db: &PgPool) -> sqlx::Result<Transaction<'static, Postgres>> {
    platform::database::begin_with(
        db,
        "begin isolation level repeatable read read only; set local statement_timeout = '5s'; set local jit = off",
    )
    .await
}

pub(super) async fn rule_set_effect(
    connection: &mut PgConnection,
    rule_set: RuleSetId,
    tournament: TournamentId,
) -> sqlx::Result<RuleSetEffect> {
    let rows = sqlx::query_file!("src/admin/console/rule_set_effect.sql", tournament.0, rule_set.0, SHOWN)
        .fetch_all(connection)
        .await?;
    let mut effect = RuleSetEffect::default();
    for row in rows {
        match row.user_id.zip(row.username) {
            None => {
                (effect.users, effect.moved, effect.points) = (row.users, row.moved, (row.before, row.after));
            }
            Some((user, username)) => effect.top.push(RankedUser {
                rank: row.kind,
                user,
                username,
                rank_before: row.users,
                before: row.before,
                after: row.after,
            }),
        }
    }
    effect.top.sort_by_key(|row| (row.rank, row.user));
    Ok(effect)
}

#[derive(Clone, Debug)]
pub struct ResultRow {
    pub revision: i64,
    /// Goals of the home team; `None` if the result awards no points.
    pub home_score: Option<i32>,
    pub away_score: Option<i32>,
    /// Team that advanced: `home` or `away`.
    pub advanced: Option<String>,
    pub recorded_at: OffsetDateTime,
    /// Time at which all scores included the result.
    pub applied_at: Option<OffsetDateTime>,
}

pub(super) async fn results(connection: &mut PgConnection, event: MatchId) -> sqlx::Result<Vec<ResultRow>> {
    sqlx::query_as!(
        ResultRow,
        "select revision, home_score, away_score, advanced, recorded_at, applied_at from event_results
         where event_id = $1 order by revision desc limit $2",
        event.0,
        SHOWN,
    )
    .fetch_all(connection)
    .await
}

/// Number of predictions of a match by outcome.
#[derive(Clone, Copy, Debug)]
pub struct Tally {
    pub home: i64,
    pub draw: i64,
    pub away: i64,
    /// Sum of the confidences in percent.
    pub confidence: i64,
}

pub(super) async fn tally(connection: &mut PgConnection, event: MatchId) -> sqlx::Result<Tally> {
    sqlx::query_as!(
        Tally,
        r#"select coalesce(sum(home), 0)::bigint as "home!", coalesce(sum(draw), 0)::bigint as "draw!",
                  coalesce(sum(away), 0)::bigint as "away!", coalesce(sum(confidence), 0)::bigint as "confidence!"
           from event_tallies where event_id = $1"#,
        event.0,
    )
    .fetch_one(connection)
    .await
}

/// Returns the number of chunks that have applied a result to scores, leaderboards and coins, and the number of all
/// chunks.
pub(super) async fn chunks(connection: &mut PgConnection, event: MatchId, revision: i64) -> sqlx::Result<(i64, i64)> {
    let row = sqlx::query!(
        r#"select count(*) filter (where least(revision, shown_revision, paid_revision) >= $2) as "done!", count(*) as "all!"
           from score_lanes where source = 'match' and source_id = $1"#,
        event.0,
        revision,
    )
    .fetch_one(connection)
    .await?;
    Ok((row.done, row.all))
}

#[derive(Clone, Debug)]
pub struct RoomRow {
    pub name: String,
    pub matrix_id: Option<String>,
    /// Number of the stand; `None` for a fan room.
    pub stand: Option<i32>,
    /// Whether only members can see the room.
    pub is_private: bool,
    /// `None` while the room is being created.
    pub opened_at: Option<OffsetDateTime>,
    /// Whether the bot posts announcements.
    pub announces: bool,
    pub members: i64,
    pub last_activity: Option<OffsetDateTime>,
}

pub(super) async fn rooms(connection: &mut PgConnection, event: MatchId) -> sqlx::Result<Vec<RoomRow>> {
    sqlx::query_as!(
        RoomRow,
        r#"select r.name, r.matrix_id, r.stand, r.is_private, r.opened_at, r.announces,
                  coalesce(a.member_count, 0) as "members!", a.last_activity as "last_activity?"
           from rooms r left join room_activity a on a.room_id = r.id
           where r.event_id = $1 order by r.stand nulls last, r.id limit $2"#,
        event.0,
        SHOWN,
    )
    .fetch_all(connection)
    .await
}

/// Names of the feeds that provide a tournament.
pub(super) async fn feeds_of(connection: &mut PgConnection, tournament: TournamentId) -> sqlx::Result<Vec<String>> {
    sqlx::query_scalar!("select name from feeds where tournament_id = $1 order by name limit $2", tournament.0, SHOWN)
        .fetch_all(connection)
        .await
}

/// Columns of a match that determine points and coins.
pub(super) struct Frame {
    status: Status,
    advanced: Option<String>,
    home_score: Option<i32>,
    away_score: Option<i32>,
    /// Latest result with a score. It counts predictions made before `counts_before`.
    result_home: Option<i32>,
    result_away: Option<i32>,
    counts_before: Option<OffsetDateTime>,
    /// A result recorded now would count predictions made before this time.
    would_count_before: OffsetDateTime,
    /// Coins per point, once fixed for this match.
    pub(super) rate: Option<i64>,
}

impl Frame {
    /// Outcome of the match for predictions.
    pub(super) fn outcome(&self) -> Outcome {
        let advanced = self.advanced.as_deref().and_then(|side| side.parse().ok());
        self.status.outcome(self.home_score.zip(self.away_score), advanced)
    }

    /// The result that the scores include, or will include when all jobs are done.
    fn result(&self) -> Option<(i32, i32)> {
        self.result_home.zip(self.result_away)
    }
}

pub(super) async fn frame(connection: &mut PgConnection, event: MatchId) -> sqlx::Result<Option<Frame>> {
    sqlx::query_as!(
        Frame,
        r#"select e.status as "status: Status", e.advanced, e.home_score, e.away_score,
                  r.home_score as "result_home?", r.away_score as "result_away?",
                  least(r.start_time, r.recorded_at) as "counts_before?",
                  least(e.start_time, statement_timestamp()) as "would_count_before!",
                  (select per_point from coin_rates c where c.event_id = e.id) as rate
           from events e left join event_results r on r.event_id = e.id and r.revision = e.result_revision
           where e.id = $1"#,
        event.0,
    )
    .fetch_optional(connection)
    .await
}

/// Effect of a correction on points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effect {
    /// Number of predictions that the old or the new result counts.
    pub users: i64,
    /// Number of users who gain points.
    pub gaining: i64,
    /// Number of users who lose points.
    pub losing: i64,
    /// Sum of points before and after.
    pub points: (i64, i64),
    /// Number of exact scores before and after.
    pub exact: (i64, i64),
    /// Number of right outcomes before and after.
    pub correct: (i64, i64),
    /// Change in the sum of positive points, which are worth coins.
    pub worth: i64,
}

/// A user who gains or loses points by a correction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    pub user: UserId,
    pub username: String,
    /// Points for this match before the correction.
    pub before: i64,
    /// Points for this match after the correction.
    pub after: i64,
}

/// Row of the effect queries: the totals (kind 0), a user who gains (1) or a user who loses (2).
struct EffectRow {
    kind: i32,
    user_id: Option<UserId>,
    username: Option<String>,
    before: i64,
    after: i64,
    users: i64,
    gaining: i64,
    losing: i64,
    exact_before: i64,
    exact_after: i64,
    correct_before: i64,
    correct_after: i64,
    worth: i64,
}

/// A result that would replace the current one: the score, and the team that advances.
#[derive(Clone, Copy)]
pub(super) struct WantedResult {
    pub(super) score: (i32, i32),
    pub(super) advanced: Option<Side>,
}

impl WantedResult {
    fn advanced_name(wanted: Option<Self>) -> Option<&'static str> {
        wanted.and_then(|wanted| wanted.advanced).map(Side::name)
    }
}

/// Computes the effect of a result with this score, or without one, on points. Returns the totals and the users who
/// gain and lose most.
pub(super) async fn effect(
    connection: &mut PgConnection,
    event: MatchId,
    frame: &Frame,
    after: Option<WantedResult>,
) -> sqlx::Result<(Effect, Vec<Moved>, Vec<Moved>)> {
    let before = frame.result();
    // A result without a score counts no predictions, so its time does not matter.
    let times = match (before.and(frame.counts_before), after) {
        (Some(then), Some(_)) => (then, frame.would_count_before),
        (Some(then), None) => (then, then),
        (None, _) => (frame.would_count_before, frame.would_count_before),
    };
    let advanced = WantedResult::advanced_name(after);
    let (before, after) = (before.unzip(), after.map(|after| after.score).unzip());
    let rows = if times.0 == times.1 {
        sqlx::query_file_as!(
            EffectRow,
            "src/admin/console/effect_at_once.sql",
            event.0,
            advanced,
            times.0,
            before.0,
            before.1,
            after.0,
            after.1,
            NAMED,
        )
        .fetch_all(connection)
        .await?
    } else {
        sqlx::query_file_as!(
            EffectRow,
            "src/admin/console/effect.sql",
            event.0,
            advanced,
            times.0,
            before.0,
            before.1,
            times.1,
            after.0,
            after.1,
            NAMED,
        )
        .fetch_all(connection)
        .await?
    };
    let (mut effect, mut gainers, mut losers) = (Effect::default(), Vec::new(), Vec::new());
    for row in rows {
        let Some((user, username)) = row.user_id.zip(row.username) else {
            effect = Effect {
                users: row.users,
                gaining: row.gaining,
                losing: row.losing,
                points: (row.before, row.after),
                exact: (row.exact_before, row.exact_after),
                correct: (row.correct_before, row.correct_after),
                worth: row.worth,
            };
            continue;
        };
        let list = if row.kind == 1 { &mut gainers } else { &mut losers };
        list.push(Moved { user, username, before: row.before, after: row.after });
    }
    gainers.sort_by_key(|moved: &Moved| (moved.before - moved.after, moved.user));
    losers.sort_by_key(|moved: &Moved| (moved.after - moved.before, moved.user));
    Ok((effect, gainers, losers))
}

/// A user who leads a tournament before or after a correction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    pub user: UserId,
    pub username: String,
    pub rank_before: i64,
    pub rank_after: i64,
    /// Points in the tournament before the correction.
    pub before: i64,
    /// Points in the tournament after the correction.
    pub after: i64,
}

/// Last place of a tournament that a preview lists.
const PLACES: i64 = 3;

pub(super) async fn leaders(
    connection: &mut PgConnection,
    event: MatchId,
    frame: &Frame,
    after: Option<WantedResult>,
) -> sqlx::Result<Vec<Leader>> {
    let advanced = WantedResult::advanced_name(after);
    let after = after.map(|after| after.score).unzip();
    sqlx::query_file_as!(
        Leader,
        "src/admin/console/leaders_effect.sql",
        event.0,
        advanced,
        frame.would_count_before,
        after.0,
        after.1,
        PLACES,
    )
    .fetch_all(connection)
    .await
}

/// Effect of a correction on wallets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoinsEffect {
    pub given: i64,
    pub taken: i64,
    /// Number of users who receive coins.
    pub gaining: i64,
    /// Number of users from whom coins are taken back.
    pub losing: i64,
    /// Coins that cannot be taken back because they were spent.
    pub written_off: i64,
}

pub(super) async fn coins_effect(
    connection: &mut PgConnection,
    event: MatchId,
    frame: &Frame,
    after: Option<WantedResult>,
    rate: i64,
) -> sqlx::Result<CoinsEffect> {
    let advanced = WantedResult::advanced_name(after);
    let after = after.map(|after| after.score).unzip();
    sqlx::query_file_as!(
        CoinsEffect,
        "src/admin/console/coins_effect.sql",
        event.0,
        advanced,
        frame.would_count_before,
        after.0,
        after.1,
        rate,
    )
    .fetch_one(connection)
    .await
}

/// Columns of an account that operators may see.
#[derive(Clone, Debug)]
pub struct UserRow {
    pub id: UserId,
    pub username: String,
    /// Whether the service generated the username because the user chose none.
    pub username_is_generated: bool,
    pub name: Option<String>,
    /// Pages show only a part of it.
    pub phone: Option<Phone>,
    pub has_chat_account: bool,
    pub has_avatar: bool,
    pub created_at: OffsetDateTime,
    pub banned_at: Option<OffsetDateTime>,
    /// End of the ban; `None` if it is permanent.
    pub banned_until: Option<OffsetDateTime>,
    pub muted_at: Option<OffsetDateTime>,
    /// End of the mute; `None` if it is permanent.
    pub muted_until: Option<OffsetDateTime>,
}

pub(super) async fn newest_users(
    connection: &mut PgConnection,
    below: Option<i64>,
    most: i64,
) -> sqlx::Result<Vec<UserRow>> {
    sqlx::query_as!(
        UserRow,
        r#"select user_id as "id: UserId", username, username_is_generated, name, phone as "phone: Phone",
                  has_chat_account, avatar_key is not null as "has_avatar!", created_at, banned_at, banned_until,
                  muted_at, muted_until
           from users where user_id < coalesce($1, 9223372036854775807) order by user_id desc limit $2"#,
        below,
        most,
    )
    .fetch_all(connection)
    .await
}

pub(super) async fn users_by_id(connection: &mut PgConnection, user: UserId) -> sqlx::Result<Vec<UserRow>> {
    sqlx::query_as!(
        UserRow,
        r#"select user_id as "id: UserId", username, username_is_generated, name, phone as "phone: Phone",
                  has_chat_account, avatar_key is not null as "has_avatar!", created_at, banned_at, banned_until,
                  muted_at, muted_until
           from users where user_id = $1"#,
        user.0,
    )
    .fetch_all(connection)
    .await
}

pub(super) async fn user_of_phone(connection: &mut PgConnection, phone: &Phone) -> sqlx::Result<Option<UserId>> {
    sqlx::query_scalar!(r#"select user_id as "id: UserId" from phone_claims where phone = $1"#, phone.as_str())
        .fetch_optional(connection)
        .await
}

/// Finds users by the start of a current or former username. Scans the index of usernames from there.
pub(super) async fn users_named_from(
    connection: &mut PgConnection,
    name: &str,
    most: i64,
) -> sqlx::Result<Vec<UserRow>> {
    sqlx::query_as!(
        UserRow,
        r#"select u.user_id as "id: UserId", u.username, username_is_generated, name, phone as "phone: Phone",
                  has_chat_account, avatar_key is not null as "has_avatar!", created_at, banned_at, banned_until,
                  muted_at, muted_until
           from (select username, user_id from username_claims where username >= $1 order by username limit $2) c
           join users u on u.user_id = c.user_id
           where starts_with(c.username, $1) order by c.username"#,
        name,
        most,
    )
    .fetch_all(connection)
    .await
}

/// Returns the number of a user's sessions and the time of the last use.
pub(super) async fn sessions(
    connection: &mut PgConnection,
    user: UserId,
    now: OffsetDateTime,
) -> sqlx::Result<(i64, Option<OffsetDateTime>)> {
    let row = sqlx::query!(
        r#"select count(*) as "count!", max(last_used_at) as last_used
           from sessions where user_id = $1 and expires_at > $2"#,
        user.0,
        now,
    )
    .fetch_one(connection)
    .await?;
    Ok((row.count, row.last_used))
}

pub(super) async fn joined_rooms(connection: &mut PgConnection, user: UserId) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"select count(*) as "count!" from room_members where user_id = $1 and membership = 'join'"#,
        user.0,
    )
    .fetch_one(connection)
    .await
}

pub(super) async fn balance(connection: &mut PgConnection, user: UserId) -> sqlx::Result<i64> {
    let balance = sqlx::query_scalar!("select balance from wallets where user_id = $1", user.0)
        .fetch_optional(connection)
        .await?;
    Ok(balance.unwrap_or_default())
}

#[derive(Clone, Debug)]
pub struct TransactionRow {
    pub kind: String,
    /// Change of the balance.
    pub amount: i64,
    /// Balance after the transaction.
    pub balance: i64,
    pub reason: Option<String>,
    /// Comment of an operator.
    pub remark: Option<String>,
    pub operator: Option<String>,
    pub created_at: OffsetDateTime,
}

pub(super) async fn transactions(connection: &mut PgConnection, user: UserId) -> sqlx::Result<Vec<TransactionRow>> {
    sqlx::query_as!(
        TransactionRow,
        "select kind, amount, balance, reason, remark, operator, created_at from coin_transactions
         where user_id = $1 order by number desc limit 10",
        user.0,
    )
    .fetch_all(connection)
    .await
}

/// Returns a user's points, exact scores, right outcomes and settled matches of all time.
pub(super) async fn score(connection: &mut PgConnection, user: UserId) -> sqlx::Result<Option<(i32, i32, i32, i32)>> {
    let row = sqlx::query!(
        "select points, exact, correct, settled from user_scores where user_id = $1 and scope = 'all'",
        user.0,
    )
    .fetch_optional(connection)
    .await?;
    Ok(row.map(|row| (row.points, row.exact, row.correct, row.settled)))
}

/// Returns the restrictions of an account: action, reason, operator and time.
pub(super) async fn restrictions(
    connection: &mut PgConnection,
    user: UserId,
) -> sqlx::Result<Vec<(String, String, String, OffsetDateTime)>> {
    let rows = sqlx::query!(
        "select action, reason, operator, created_at from restrictions where user_id = $1 order by id desc limit $2",
        user.0,
        SHOWN,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(|row| (row.action, row.reason, row.operator, row.created_at)).collect())
}

/// Codes of a country in the last hour and day.
#[derive(Clone, Debug)]
pub struct CountryRow {
    /// Country code, for example `DE`.
    pub country: String,
    /// Number of codes sent.
    pub codes_hour: i64,
    pub codes_day: i64,
    /// Number of phones to which codes were sent.
    pub phones_hour: i64,
    pub phones_day: i64,
    /// Number of phones that verified a code.
    pub verified_hour: i64,
    pub verified_day: i64,
    /// Number of messages handed to providers. It exceeds the number of codes if a provider failed and another was
    /// tried.
    pub messages_hour: i64,
    pub messages_day: i64,
}

pub(super) async fn countries(
    connection: &mut PgConnection,
    hour: OffsetDateTime,
    day: OffsetDateTime,
) -> sqlx::Result<Vec<CountryRow>> {
    sqlx::query_as!(
        CountryRow,
        r#"select c.country,
                  count(*) filter (where c.created_at > $1) as "codes_hour!", count(*) as "codes_day!",
                  count(distinct c.phone) filter (where c.created_at > $1) as "phones_hour!",
                  count(distinct c.phone) as "phones_day!",
                  count(distinct c.phone) filter (where c.consumed_at is not null and c.created_at > $1) as "verified_hour!",
                  count(distinct c.phone) filter (where c.consumed_at is not null) as "verified_day!",
                  coalesce(sum(l.messages) filter (where c.created_at > $1), 0)::bigint as "messages_hour!",
                  coalesce(sum(l.messages), 0)::bigint as "messages_day!"
           from codes c
           cross join lateral (select count(*) as messages from sms_log l where l.code_id = c.id) l
           where c.created_at > $2
           group by c.country order by 2 desc, 3 desc, 1 limit 250"#,
        hour,
        day,
    )
    .fetch_all(connection)
    .await
}

/// Messages of a provider in the last hour and day.
#[derive(Clone, Debug)]
pub struct ProviderRow {
    pub provider: String,
    /// Number of messages that the provider accepted.
    pub sent_hour: i64,
    pub sent_day: i64,
    /// Number of messages that the provider refused or could not deliver.
    pub failed_hour: i64,
    pub failed_day: i64,
    /// Number of messages that the provider reported as delivered.
    pub delivered_hour: i64,
    pub delivered_day: i64,
}

pub(super) async fn providers(
    connection: &mut PgConnection,
    hour: OffsetDateTime,
    day: OffsetDateTime,
) -> sqlx::Result<Vec<ProviderRow>> {
    sqlx::query_as!(
        ProviderRow,
        r#"select provider,
                  count(*) filter (where status = 'sent' and created_at > $1) as "sent_hour!",
                  count(*) filter (where status = 'sent') as "sent_day!",
                  count(*) filter (where status = 'failed' and created_at > $1) as "failed_hour!",
                  count(*) filter (where status = 'failed') as "failed_day!",
                  count(delivered_at) filter (where created_at > $1) as "delivered_hour!",
                  count(delivered_at) as "delivered_day!"
           from sms_log where created_at > $2 group by provider order by provider"#,
        hour,
        day,
    )
    .fetch_all(connection)
    .await
}
