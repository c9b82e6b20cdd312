//! SQL queries for scores and leaderboards. Those that differ between matches and questions have their second half in
//! [`questions`].

mod questions;

pub(super) use self::questions::tournament_of;

use std::collections::HashMap;

use platform::database;
use sqlx::{Executor as _, PgConnection, PgExecutor, PgPool, Postgres, Transaction};
use time::OffsetDateTime;
use web::ids::{MatchId, TournamentId, UserId};

use super::{
    rules::{Score, Source},
    service::{Difference, Progress},
};
use crate::identity::avatars::AvatarKey;

/// Forces every query plan of the transaction to walk an index in user order, so that chunks of several matches lock
/// rows in the same order. Planner statistics are unreliable for a table that has just grown by a million rows. JIT is
/// off because compiling takes longer than running these queries, and memoizing because no user occurs twice.
const USER_ORDER_PLANS: &str = "set local statement_timeout = '60s'; set local enable_hashjoin = off;
    set local enable_mergejoin = off; set local enable_seqscan = off; set local enable_bitmapscan = off;
    set local enable_memoize = off; set local work_mem = '32MB'; set local max_parallel_workers_per_gather = 0; set local jit = off";

/// A range of users of a match or question that is scored in one transaction.
#[derive(Clone, Copy, Debug)]
pub struct Chunk {
    pub(super) source: Source,
    pub number: i32,
    pub(super) from_user: i64,
    pub(super) until_user: i64,
    /// Revision of the result in its scores.
    pub(super) revision: i64,
    /// Revision that its scores should have.
    pub(super) wanted: i64,
}

pub(super) struct StoredResult {
    pub(super) revision: i64,
    /// Whether users earn points for this result; false for an annulment.
    pub(super) has_points: bool,
}

/// Serialises planning of a match or question.
pub(super) async fn lock_plan(connection: &mut PgConnection, source: Source) -> sqlx::Result<()> {
    // Dividing users into chunks reads all predictions of the match, so the statement has no timeout.
    sqlx::query!("set local statement_timeout = 0").execute(&mut *connection).await?;
    sqlx::query!(
        "select pg_advisory_xact_lock(hashtextextended('matchday scores ' || $1, $2))",
        source.kind(),
        source.id(),
    )
    .fetch_one(connection)
    .await?;
    Ok(())
}

pub(super) async fn latest_result(connection: &mut PgConnection, source: Source) -> sqlx::Result<Option<StoredResult>> {
    match source {
        Source::Match(event) => {
            sqlx::query_as!(
                StoredResult,
                r#"select revision, home_score is not null as "has_points!" from event_results where event_id = $1
                   order by revision desc limit 1"#,
                event.0,
            )
            .fetch_optional(connection)
            .await
        }
        Source::Question(question) => questions::latest_result(connection, question).await,
    }
}

/// Whether any score includes this match or question. Locks its chunks until the transaction ends.
pub(super) async fn is_in_scores(connection: &mut PgConnection, source: Source) -> sqlx::Result<bool> {
    let chunks = sqlx::query_scalar!(
        r#"select exists (select 1 from event_results r where l.source = 'match' and r.event_id = l.source_id
                                                        and r.revision = l.revision and r.home_score is not null)
               or exists (select 1 from question_results r where l.source = 'question' and r.question_id = l.source_id
                                                             and r.revision = l.revision and r.resolution is not null)
               as "is_in!"
           from score_lanes l where l.source = $1 and l.source_id = $2 order by l.lane for update"#,
        source.kind(),
        source.id(),
    )
    .fetch_all(connection)
    .await?;
    Ok(chunks.contains(&true))
}

/// Divides all users into chunks with `size` predictions or answers each.
pub(super) async fn cut_chunks(connection: &mut PgConnection, source: Source, size: i64) -> sqlx::Result<()> {
    // Deleted chunks may have changed scores a moment ago.
    let write = next_write(&mut *connection).await?;
    sqlx::query!("delete from score_lanes where source = $1 and source_id = $2", source.kind(), source.id())
        .execute(&mut *connection)
        .await?;
    // The first user of every chunk except the first chunk.
    let cuts = match source {
        Source::Match(event) => {
            sqlx::query_scalar!(
                r#"select user_id as "user_id!"
                   from (select user_id, row_number() over (order by user_id) as position
                         from predictions where event_id = $1) p
                   where position % $2 = 0"#,
                event.0,
                size,
            )
            .fetch_all(&mut *connection)
            .await?
        }
        Source::Question(question) => questions::cuts(&mut *connection, question, size).await?,
    };
    // The minimum and maximum `bigint` bound the outer chunks, so that they also cover users who predict later.
    sqlx::query!(
        "insert into score_lanes (source, source_id, lane, from_user, until_user, revision, shown_revision, written)
         select $1, $2, row_number() over (order by cut), cut,
                lead(cut, 1, 9223372036854775807) over (order by cut), 0, 0, $4
         from (select -9223372036854775808 as cut union all select unnest($3::bigint[])) c",
        source.kind(),
        source.id(),
        &cuts,
        write,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Returns the chunks whose scores, leaderboard entries or payouts do not have this result yet.
pub(super) async fn chunks_behind(
    connection: &mut PgConnection,
    source: Source,
    revision: i64,
) -> sqlx::Result<Vec<Chunk>> {
    let rows = sqlx::query!(
        "select lane, from_user, until_user, revision from score_lanes
         where source = $1 and source_id = $2 and (revision < $3 or shown_revision < $3 or paid_revision < $3)
         order by lane",
        source.kind(),
        source.id(),
        revision,
    )
    .fetch_all(connection)
    .await?;
    let chunk = |number, from_user, until_user, held| Chunk {
        source,
        number,
        from_user,
        until_user,
        revision: held,
        wanted: revision,
    };
    Ok(rows.into_iter().map(|row| chunk(row.lane, row.from_user, row.until_user, row.revision)).collect())
}

/// Returns a chunk and locks it until the transaction ends.
pub(super) async fn lock_chunk(
    connection: &mut PgConnection,
    source: Source,
    chunk: i32,
) -> sqlx::Result<Option<Chunk>> {
    connection.execute(USER_ORDER_PLANS).await?;
    let row = sqlx::query!(
        "select from_user, until_user, revision from score_lanes
         where source = $1 and source_id = $2 and lane = $3 for update",
        source.kind(),
        source.id(),
        chunk,
    )
    .fetch_optional(connection)
    .await?;
    Ok(row.map(|row| Chunk {
        source,
        number: chunk,
        from_user: row.from_user,
        until_user: row.until_user,
        revision: row.revision,
        wanted: row.revision,
    }))
}

/// Returns the scopes that a result counts for; `None` if the result gives no points.
pub(super) async fn tables_of_result(
    connection: &mut PgConnection,
    source: Source,
    revision: i64,
) -> sqlx::Result<Option<Vec<String>>> {
    let event = match source {
        Source::Match(event) => event,
        Source::Question(question) => return questions::tables_of_result(connection, question, revision).await,
    };
    sqlx::query_scalar!(
        r#"select score_scopes(e.tournament_id, r.start_time, r.round) as "scopes!"
           from event_results r join events e on e.id = r.event_id
           where r.event_id = $1 and r.revision = $2 and r.home_score is not null"#,
        event.0,
        revision,
    )
    .fetch_optional(connection)
    .await
}

/// Returns the first week whose scores are kept; `None` if no week was dropped.
pub(super) async fn first_kept_week(executor: impl PgExecutor<'_>) -> sqlx::Result<Option<String>> {
    sqlx::query_scalar!("select dropped_before from score_retention where period = 'week'")
        .fetch_optional(executor)
        .await
}

/// Records that weeks before this one have no scores. A call with an earlier week changes nothing.
pub(super) async fn drop_weeks_before(executor: impl PgExecutor<'_>, first_kept: &str) -> sqlx::Result<()> {
    sqlx::query!(
        "insert into score_retention (period, dropped_before, next_user) values ('week', $1, 0)
         on conflict (period) do update set dropped_before = excluded.dropped_before, next_user = excluded.next_user
           where score_retention.dropped_before < excluded.dropped_before",
        first_kept,
    )
    .execute(executor)
    .await?;
    Ok(())
}

/// Returns the first week whose scores are kept, and the user from which on earlier ones must still be deleted; `None` if
/// all are deleted.
pub(super) async fn weeks_to_delete(executor: impl PgExecutor<'_>) -> sqlx::Result<Option<(String, i64)>> {
    let row = sqlx::query!(
        r#"select dropped_before, next_user as "next_user!" from score_retention
           where period = 'week' and next_user is not null"#
    )
    .fetch_optional(executor)
    .await?;
    Ok(row.map(|row| (row.dropped_before, row.next_user)))
}

/// Deletes scores of weeks before this one, for users in an id range.
pub(super) async fn delete_weeks(
    connection: &mut PgConnection,
    first_kept: &str,
    from_user: i64,
    until_user: i64,
) -> sqlx::Result<u64> {
    connection.execute(USER_ORDER_PLANS).await?;
    let deleted = sqlx::query!(
        "delete from user_scores where user_id >= $2 and user_id < $3 and scope >= 'week:' and scope < $1",
        first_kept,
        from_user,
        until_user,
    )
    .execute(connection)
    .await?;
    Ok(deleted.rows_affected())
}

/// Stores the user from which on scores of past weeks must still be deleted; `None` if all are deleted.
pub(super) async fn note_deleted_weeks(
    executor: impl PgExecutor<'_>,
    first_kept: &str,
    next_user: Option<i64>,
) -> sqlx::Result<()> {
    sqlx::query!(
        "update score_retention set next_user = $2 where period = 'week' and dropped_before = $1",
        first_kept,
        next_user,
    )
    .execute(executor)
    .await?;
    Ok(())
}

/// Returns the matches that are in scores.
pub(super) async fn scored_matches(executor: impl PgExecutor<'_>) -> sqlx::Result<Vec<MatchId>> {
    sqlx::query_scalar!(
        r#"select distinct source_id as "event_id: MatchId" from score_lanes where source = 'match' and revision > 0
           order by source_id"#
    )
    .fetch_all(executor)
    .await
}

/// Subtracts the points of a result from the scores of a chunk's users.
pub(super) async fn subtract_result(
    connection: &mut PgConnection,
    chunk: &Chunk,
    revision: i64,
    tables: &[String],
) -> sqlx::Result<()> {
    add(connection, chunk, revision, -1, tables).await?;
    Ok(())
}

/// Adds the points of a result to the existing scores of a chunk's users, and returns the new scores.
pub(super) async fn add_result(
    connection: &mut PgConnection,
    chunk: &Chunk,
    revision: i64,
    tables: &[String],
) -> sqlx::Result<Vec<ScoreRow>> {
    add(connection, chunk, revision, 1, tables).await
}

/// Number of a chunk's predictions or answers, including those that were too late for the result.
pub(super) async fn count_users(connection: &mut PgConnection, chunk: &Chunk) -> sqlx::Result<u64> {
    let count = match chunk.source {
        Source::Match(event) => sqlx::query_scalar!(
            r#"select count(*) as "count!" from predictions where event_id = $1 and user_id >= $2 and user_id < $3"#,
            event.0,
            chunk.from_user,
            chunk.until_user,
        )
        .fetch_one(connection)
        .await?,
        Source::Question(question) => questions::count_users(connection, question, chunk).await?,
    };
    Ok(count.unsigned_abs())
}

/// Returns a chunk's users whose predictions or answers count for a result, sorted.
pub(super) async fn users_of_result(
    connection: &mut PgConnection,
    chunk: &Chunk,
    revision: i64,
) -> sqlx::Result<Vec<i64>> {
    let event = match chunk.source {
        Source::Match(event) => event,
        Source::Question(question) => return questions::users_of_result(connection, question, chunk, revision).await,
    };
    sqlx::query_scalar!(
        r#"select user_id as "user_id!" from result_points
           where event_id = $1 and user_id >= $2 and user_id < $3 and revision = $4 order by user_id"#,
        event.0,
        chunk.from_user,
        chunk.until_user,
        revision,
    )
    .fetch_all(connection)
    .await
}

/// Inserts the missing score rows of a chunk's users with the points of a result, and returns them. Fails with a unique
/// violation if another transaction inserts one of them at the same time.
pub(super) async fn insert_result(
    connection: &mut PgConnection,
    chunk: &Chunk,
    revision: i64,
    tables: &[String],
) -> sqlx::Result<Vec<ScoreRow>> {
    let event = match chunk.source {
        Source::Match(event) => event,
        Source::Question(question) => {
            return questions::insert_result(connection, question, chunk, revision, tables).await;
        }
    };
    let rows = sqlx::query_file_as!(
        InsertedRow,
        "src/game/scores/insert_result.sql",
        event.0,
        chunk.from_user,
        chunk.until_user,
        revision,
        tables,
    )
    .fetch_all(connection)
    .await?;
    Ok(InsertedRow::numbered(rows, tables))
}

/// A score row with the name of its scope. A statement that inserts cannot number the scopes: on Citus, `returning` has no
/// parameters.
struct InsertedRow {
    scope: String,
    user_id: i64,
    points: i32,
    exact: i32,
    correct: i32,
    settled: i32,
    answered: i32,
}

impl InsertedRow {
    /// Replaces the names of scopes with their positions, from 1.
    fn numbered(rows: Vec<Self>, tables: &[String]) -> Vec<ScoreRow> {
        let number =
            |scope: &str| tables.iter().zip(1..).find_map(|(table, number)| (table == scope).then_some(number));
        let row = |row: Self| {
            let Self { scope, user_id, points, exact, correct, settled, answered } = row;
            Some(ScoreRow { scope: number(&scope)?, user_id, points, exact, correct, settled, answered })
        };
        rows.into_iter().filter_map(row).collect()
    }
}

async fn add(
    connection: &mut PgConnection,
    chunk: &Chunk,
    revision: i64,
    sign: i32,
    tables: &[String],
) -> sqlx::Result<Vec<ScoreRow>> {
    let event = match chunk.source {
        Source::Match(event) => event,
        Source::Question(question) => {
            return questions::add(connection, question, chunk, revision, sign, tables).await;
        }
    };
    sqlx::query_file_as!(
        ScoreRow,
        "src/game/scores/add_result.sql",
        event.0,
        chunk.from_user,
        chunk.until_user,
        revision,
        sign,
        tables,
    )
    .fetch_all(connection)
    .await
}

/// Returns the number of this transaction among those that change scores. Must be called after its last change of a
/// score.
pub(super) async fn next_write(connection: &mut PgConnection) -> sqlx::Result<i64> {
    sqlx::query_scalar!(r#"select nextval('score_writes') as "write!""#).fetch_one(connection).await
}

/// Number of repairs of scores so far.
pub(super) async fn repairs(executor: impl PgExecutor<'_>) -> sqlx::Result<i64> {
    sqlx::query_scalar!(r#"select last_value + is_called::integer as "repairs!" from score_repairs"#)
        .fetch_one(executor)
        .await
}

/// Stores the revision of the result in a chunk's scores, and the number of the transaction.
pub(super) async fn set_chunk(
    connection: &mut PgConnection,
    chunk: &Chunk,
    revision: i64,
    write: i64,
) -> sqlx::Result<()> {
    sqlx::query!(
        "update score_lanes set revision = $4, written = $5 where source = $1 and source_id = $2 and lane = $3",
        chunk.source.kind(),
        chunk.source.id(),
        chunk.number,
        revision,
        write,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Locks a chunk until the transaction ends. Returns whether its users must still be paid for this result: the result
/// is in their scores, it is the latest one of the match, and they were not paid for it yet.
pub(super) async fn lock_to_pay(connection: &mut PgConnection, chunk: &Chunk, revision: i64) -> sqlx::Result<bool> {
    connection.execute(USER_ORDER_PLANS).await?;
    let paid = sqlx::query_scalar!(
        "select paid_revision from score_lanes where source = $1 and source_id = $2 and lane = $3 and from_user = $4
         and until_user = $5 and revision = $6 for update",
        chunk.source.kind(),
        chunk.source.id(),
        chunk.number,
        chunk.from_user,
        chunk.until_user,
        revision,
    )
    .fetch_optional(&mut *connection)
    .await?;
    // Read after the lock: a result recorded while the chunk is locked is paid after this one.
    let latest = latest_result(connection, chunk.source).await?;
    Ok(paid.is_some_and(|paid| paid < revision) && latest.is_some_and(|latest| latest.revision == revision))
}

/// Stores the revision of the result that a chunk's users were paid for.
pub(super) async fn set_paid(connection: &mut PgConnection, chunk: &Chunk, revision: i64) -> sqlx::Result<()> {
    sqlx::query!(
        "update score_lanes set paid_revision = $4 where source = $1 and source_id = $2 and lane = $3",
        chunk.source.kind(),
        chunk.source.id(),
        chunk.number,
        revision,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Stores the revision of the result that the leaderboards show for a chunk.
pub(super) async fn set_shown(db: &PgPool, chunk: &Chunk, revision: i64) -> sqlx::Result<()> {
    sqlx::query!(
        "update score_lanes set shown_revision = $4
         where source = $1 and source_id = $2 and lane = $3 and shown_revision < $4",
        chunk.source.kind(),
        chunk.source.id(),
        chunk.number,
        revision,
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Marks results up to this revision as applied if every chunk has them. The worker that finishes the last chunk
/// therefore marks them. Later results are excluded: the caller has not read them, and they may not be planned yet.
/// Returns the latest revision that this call marked.
pub(super) async fn mark_applied(
    connection: &mut PgConnection,
    source: Source,
    revision: i64,
) -> sqlx::Result<Option<i64>> {
    let now = database::now(&mut *connection).await?;
    let event = match source {
        Source::Match(event) => event,
        Source::Question(question) => return questions::mark_applied(connection, question, revision, now).await,
    };
    let applied = sqlx::query_scalar!(
        "update event_results set applied_at = $3
         where event_id = $1 and applied_at is null and revision <= $2
           and not exists (select 1 from score_lanes l where l.source = 'match' and l.source_id = $1
                           and (l.revision < event_results.revision or l.shown_revision < event_results.revision
                                or l.paid_revision < event_results.revision))
         returning revision",
        event.0,
        revision,
        now,
    )
    .fetch_all(connection)
    .await?;
    Ok(applied.into_iter().max())
}

/// Returns matches and questions with a result that should have reached all scores by now. A result that is still not
/// applied is returned again each time its age has doubled.
pub(super) async fn overdue(connection: &mut PgConnection) -> sqlx::Result<Vec<Source>> {
    let now = database::now(&mut *connection).await?;
    let mut overdue: Vec<Source> = overdue_matches(connection, now).await?.into_iter().map(Source::Match).collect();
    overdue.extend(questions::overdue(connection, now).await?.into_iter().map(Source::Question));
    Ok(overdue)
}

async fn overdue_matches(connection: &mut PgConnection, now: OffsetDateTime) -> sqlx::Result<Vec<MatchId>> {
    let due = sqlx::query!(
        "select event_id, revision, recorded_at from event_results where applied_at is null and look_again_at < $1",
        now,
    )
    .fetch_all(&mut *connection)
    .await?;
    if due.is_empty() {
        return Ok(Vec::new());
    }
    let events: Vec<i64> = due.iter().map(|row| row.event_id).collect();
    let revisions: Vec<i64> = due.iter().map(|row| row.revision).collect();
    let times: Vec<OffsetDateTime> = due.iter().map(|row| now + (now - row.recorded_at)).collect();
    let mut events = sqlx::query_scalar!(
        r#"update event_results r set look_again_at = n.look_again_at
           from unnest($1::bigint[], $2::bigint[], $3::timestamptz[]) as n (event_id, revision, look_again_at)
           where r.event_id = n.event_id and r.revision = n.revision and r.applied_at is null and r.look_again_at < $4
           returning r.event_id as "event_id: MatchId""#,
        &events,
        &revisions,
        &times,
        now,
    )
    .fetch_all(connection)
    .await?;
    events.sort_unstable();
    events.dedup();
    Ok(events)
}

/// Returns the numbers of all chunks of a match.
pub(super) async fn chunks(executor: impl PgExecutor<'_>, event: MatchId) -> sqlx::Result<Vec<i32>> {
    sqlx::query_scalar!(
        "select lane from score_lanes where source = 'match' and source_id = $1 order by lane",
        event.0,
    )
    .fetch_all(executor)
    .await
}

pub(super) async fn event_exists(executor: impl PgExecutor<'_>, event: MatchId) -> sqlx::Result<bool> {
    sqlx::query_scalar!(r#"select exists (select 1 from events where id = $1) as "exists!""#, event.0)
        .fetch_one(executor)
        .await
}

/// Returns the greatest id of a user with a score, a prediction or an answer; 0 if there are none.
pub(super) async fn last_user(executor: impl PgExecutor<'_>) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"select greatest((select max(user_id) from user_scores), (select max(user_id) from predictions),
                           (select max(user_id) from answers), 0) as "last!""#
    )
    .fetch_one(executor)
    .await
}

/// Begins a transaction with a single snapshot (repeatable read). A write fails with a conflict if another transaction
/// changed the row since the snapshot.
pub(super) async fn begin_snapshot(db: &PgPool) -> sqlx::Result<Transaction<'static, Postgres>> {
    database::begin_with(db, "begin isolation level repeatable read; set local statement_timeout = 0").await
}

/// Returns the stored scores of these users that differ from the computed ones.
pub(super) async fn differences(
    connection: &mut PgConnection,
    from_user: i64,
    until_user: i64,
) -> sqlx::Result<Vec<Difference>> {
    let rows =
        sqlx::query_file!("src/game/scores/differences.sql", from_user, until_user).fetch_all(connection).await?;
    Ok(rows
        .into_iter()
        .map(|row| Difference {
            user: row.user_id,
            scope: row.scope,
            expected: Score {
                points: row.points,
                exact: row.exact,
                correct: row.correct,
                settled: row.settled,
                answered: row.answered,
            },
            found: Score {
                points: row.found_points,
                exact: row.found_exact,
                correct: row.found_correct,
                settled: row.found_settled,
                answered: row.found_answered,
            },
        })
        .collect())
}

/// Returns the scopes in which these users have scores.
pub(super) async fn scopes_of_users(
    executor: impl PgExecutor<'_>,
    from_user: i64,
    until_user: i64,
) -> sqlx::Result<Vec<String>> {
    sqlx::query_scalar!(
        "select distinct scope from user_scores where user_id >= $1 and user_id < $2",
        from_user,
        until_user,
    )
    .fetch_all(executor)
    .await
}

/// Overwrites stored scores with the expected ones.
pub(super) async fn repair(connection: &mut PgConnection, differences: &[Difference]) -> sqlx::Result<()> {
    if differences.is_empty() {
        return Ok(());
    }
    let users: Vec<i64> = differences.iter().map(|difference| difference.user.0).collect();
    let scopes: Vec<&str> = differences.iter().map(|difference| difference.scope.as_str()).collect();
    let column = |read: &dyn Fn(&Score) -> i32| {
        differences.iter().map(|difference| read(&difference.expected)).collect::<Vec<_>>()
    };
    sqlx::query!(
        "insert into user_scores (user_id, scope, points, exact, correct, settled, answered)
         select user_id, scope, points, exact, correct, settled, answered
         from unnest($1::bigint[], $2::text[], $3::integer[], $4::integer[], $5::integer[], $6::integer[], $7::integer[])
           as s (user_id, scope, points, exact, correct, settled, answered)
         order by user_id, scope
         on conflict (user_id, scope) do update
           set points = excluded.points, exact = excluded.exact, correct = excluded.correct, settled = excluded.settled,
               answered = excluded.answered",
        &users,
        &scopes as &[&str],
        &column(&|score| score.points),
        &column(&|score| score.exact),
        &column(&|score| score.correct),
        &column(&|score| score.settled),
        &column(&|score| score.answered),
    )
    .execute(&mut *connection)
    .await?;
    sqlx::query!(r#"select nextval('score_repairs') as "repair!""#).fetch_one(connection).await?;
    Ok(())
}

pub(super) async fn in_progress(executor: impl PgExecutor<'_>) -> sqlx::Result<Vec<Progress>> {
    let rows = sqlx::query!(
        r#"select r.source as "source!", r.source_id as "source_id!", r.revision as "revision!",
                  r.recorded_at as "recorded_at!", count(l.lane) as "chunks!",
                  count(l.lane) filter (where l.revision >= r.revision and l.shown_revision >= r.revision
                                          and l.paid_revision >= r.revision) as "done!"
           from (select 'match' as source, r.event_id as source_id, r.revision, r.recorded_at
                 from event_results r join events e on e.id = r.event_id and e.result_revision = r.revision
                 where r.applied_at is null
                 union all
                 select 'question', r.question_id, r.revision, r.recorded_at
                 from question_results r join questions q on q.id = r.question_id and q.result_revision = r.revision
                 where r.applied_at is null) r
           left join score_lanes l on l.source = r.source and l.source_id = r.source_id
           group by r.source, r.source_id, r.revision, r.recorded_at
           order by r.recorded_at, r.source, r.source_id"#,
    )
    .fetch_all(executor)
    .await?;
    let progress =
        |source, revision, recorded_at, chunks, done| Progress { source, revision, recorded_at, chunks, done };
    Ok(rows
        .into_iter()
        .filter_map(|row| {
            let source = Source::of(&row.source, row.source_id)?;
            Some(progress(source, row.revision, row.recorded_at, row.chunks, row.done))
        })
        .collect())
}

// The queries below serve leaderboards.

/// A user's score in one of the requested scopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScoreRow {
    /// Position of the scope in the request, from 1.
    pub(super) scope: i32,
    pub(super) user_id: i64,
    pub(super) points: i32,
    pub(super) exact: i32,
    pub(super) correct: i32,
    pub(super) settled: i32,
    pub(super) answered: i32,
}

impl ScoreRow {
    /// Whether the user is on the leaderboard.
    pub(super) fn counts(&self) -> bool {
        self.settled > 0 || self.answered > 0
    }

    /// Sort key: scope, then user.
    pub(super) fn place(&self) -> (i32, i64) {
        (self.scope, self.user_id)
    }

    /// Position of the scope in the request, from 0.
    pub(super) fn scope_index(&self) -> usize {
        usize::try_from(self.scope - 1).unwrap_or(usize::MAX)
    }
}

/// Returns scores in these scopes of users in an id range who predicted a match or answered a question. The query plan
/// looks up each user: the planner may otherwise scan all scores, which are many more.
pub(super) async fn scores_of_source(
    db: &PgPool,
    scopes: &[String],
    source: Source,
    from_user: i64,
    until_user: i64,
) -> sqlx::Result<Vec<ScoreRow>> {
    let mut tx = database::begin(db).await?;
    tx.execute(USER_ORDER_PLANS).await?;
    let rows =
        match source {
            Source::Match(event) => sqlx::query_as!(
                ScoreRow,
                r#"select array_position($1, s.scope) as "scope!", s.user_id, s.points, s.exact, s.correct, s.settled,
                          s.answered
                   from predictions p join user_scores s on s.user_id = p.user_id and s.scope = any($1)
                   where p.event_id = $2 and p.user_id >= $3 and p.user_id < $4"#,
                scopes,
                event.0,
                from_user,
                until_user,
            )
            .fetch_all(&mut *tx)
            .await?,
            Source::Question(question) => {
                questions::scores_of_answers(&mut tx, scopes, question, from_user, until_user).await?
            }
        };
    tx.commit().await?;
    Ok(rows)
}

/// Whether another transaction may have changed scores of a chunk's users after the transaction with number `write`,
/// which ran after `repairs` repairs.
pub(super) async fn were_changed_after(
    executor: impl PgExecutor<'_>,
    chunk: &Chunk,
    write: i64,
    repairs: i64,
) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"select exists (select 1 from score_lanes where written > $1 and from_user < $2 and until_user > $3)
               or (select last_value + is_called::integer from score_repairs) <> $4 as "changed!""#,
        write,
        chunk.until_user,
        chunk.from_user,
        repairs,
    )
    .fetch_one(executor)
    .await
}

/// Returns the scores of one scope for users in an id range, sorted by user.
pub(super) async fn scores_between(
    executor: impl PgExecutor<'_>,
    scope: &str,
    from_user: i64,
    until_user: i64,
) -> sqlx::Result<Vec<ScoreRow>> {
    sqlx::query_as!(
        ScoreRow,
        r#"select 1 as "scope!", user_id, points, exact, correct, settled, answered
           from user_scores where scope = $1 and user_id >= $2 and user_id < $3 order by user_id"#,
        scope,
        from_user,
        until_user,
    )
    .fetch_all(executor)
    .await
}

/// Returns the scores of these users in one scope, without users who are not on its leaderboard.
pub(super) async fn scores_of_users(
    executor: impl PgExecutor<'_>,
    scope: &str,
    users: &[i64],
) -> sqlx::Result<Vec<ScoreRow>> {
    sqlx::query_as!(
        ScoreRow,
        r#"select 1 as "scope!", user_id, points, exact, correct, settled, answered
           from user_scores where user_id = any($1) and scope = $2 and (settled > 0 or answered > 0)"#,
        users,
        scope,
    )
    .fetch_all(executor)
    .await
}

/// Like [`scores_of_users`], without deleted users.
pub(super) async fn scores_of_accounts(
    executor: impl PgExecutor<'_>,
    scope: &str,
    users: &[i64],
) -> sqlx::Result<Vec<ScoreRow>> {
    sqlx::query_as!(
        ScoreRow,
        r#"select 1 as "scope!", s.user_id, s.points, s.exact, s.correct, s.settled, s.answered
           from user_scores s join users u on u.user_id = s.user_id
           where s.user_id = any($1) and s.scope = $2 and (s.settled > 0 or s.answered > 0) and u.deleted_at is null"#,
        users,
        scope,
    )
    .fetch_all(executor)
    .await
}

/// Scores of a user in the leaderboard of this scope.
pub(super) struct RecordRow {
    pub(super) scope: String,
    pub(super) points: i32,
    pub(super) exact: i32,
    pub(super) correct: i32,
    pub(super) settled: i32,
}

/// Returns the scores of a user in the leaderboards of all time and of tournaments.
pub(super) async fn records(executor: impl PgExecutor<'_>, user: UserId) -> sqlx::Result<Vec<RecordRow>> {
    sqlx::query_as!(
        RecordRow,
        "select scope, points, exact, correct, settled from user_scores
         where user_id = $1 and (scope = 'all' or scope like 'tournament:%') and (settled > 0 or answered > 0)",
        user.0,
    )
    .fetch_all(executor)
    .await
}

pub(super) async fn tournament_names(
    executor: impl PgExecutor<'_>,
    tournaments: &[i64],
) -> sqlx::Result<HashMap<TournamentId, String>> {
    let rows =
        sqlx::query!(r#"select id as "id: TournamentId", name from tournaments where id = any($1)"#, tournaments)
            .fetch_all(executor)
            .await?;
    Ok(rows.into_iter().map(|row| (row.id, row.name)).collect())
}

/// Returns the least and the greatest id of a user with a score; `None` without scores.
pub(super) async fn users_with_scores(executor: impl PgExecutor<'_>) -> sqlx::Result<Option<(i64, i64)>> {
    let ends = sqlx::query!("select min(user_id) as first, max(user_id) as last from user_scores");
    let ends = ends.fetch_one(executor).await?;
    Ok(ends.first.zip(ends.last))
}

/// Whether any result counts for a scope.
pub(super) async fn has_results(executor: impl PgExecutor<'_>, scope: &str) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"select exists (
               select 1 from event_results r join events e on e.id = r.event_id
               where r.home_score is not null and $1 = any(score_scopes(e.tournament_id, r.start_time, r.round)))
               or exists (
               select 1 from question_results r join questions q on q.id = r.question_id
               where r.resolution is not null and $1 = any(score_scopes(q.tournament_id, r.locks_at, r.round))) as "has!""#,
        scope,
    )
    .fetch_one(executor)
    .await
}

/// Returns the scopes that any result of the match or question has counted for.
pub(super) async fn scopes_of_source(executor: impl PgExecutor<'_>, source: Source) -> sqlx::Result<Vec<String>> {
    let event = match source {
        Source::Match(event) => event,
        Source::Question(question) => return questions::scopes(executor, question).await,
    };
    sqlx::query_scalar!(
        r#"select distinct unnest(score_scopes(e.tournament_id, r.start_time, r.round)) as "scope!"
           from event_results r join events e on e.id = r.event_id
           where r.event_id = $1 and r.home_score is not null order by 1"#,
        event.0,
    )
    .fetch_all(executor)
    .await
}

/// A user as shown on a leaderboard.
#[derive(Clone)]
pub(super) struct Player {
    pub(super) user_id: UserId,
    pub(super) username: String,
    pub(super) name: Option<String>,
    /// Whether other users see the name.
    pub(super) shows_name: bool,
    pub(super) avatar: Option<AvatarKey>,
    /// Number of the user's predictions that the leaderboard counts.
    pub(super) settled: Option<i32>,
    pub(super) is_deleted: bool,
}

/// Returns the names of these users.
pub(super) async fn names(executor: impl PgExecutor<'_>, users: &[i64]) -> sqlx::Result<Vec<Player>> {
    sqlx::query_as!(
        Player,
        r#"select user_id as "user_id: UserId", username, name, shows_name, avatar_key as "avatar: AvatarKey",
                  null::integer as settled, deleted_at is not null as "is_deleted!"
           from users where user_id = any($1)"#,
        users,
    )
    .fetch_all(executor)
    .await
}

/// Number of a user's predictions that a scope counts.
pub(super) struct CountedPredictions {
    pub(super) user_id: UserId,
    pub(super) scope: String,
    pub(super) settled: i32,
}

/// Returns how many predictions of these users each scope counts.
pub(super) async fn settled(
    executor: impl PgExecutor<'_>,
    users: &[i64],
    scopes: &[String],
) -> sqlx::Result<Vec<CountedPredictions>> {
    sqlx::query_as!(
        CountedPredictions,
        r#"select user_id as "user_id: UserId", scope, settled
           from user_scores where user_id = any($1) and scope = any($2)"#,
        users,
        scopes,
    )
    .fetch_all(executor)
    .await
}

/// Returns pairs of one of these users and a user whom they have blocked.
pub(super) async fn blocked(executor: impl PgExecutor<'_>, users: &[i64]) -> sqlx::Result<Vec<(UserId, UserId)>> {
    let rows = sqlx::query!(
        r#"select user_id as "user_id: UserId", blocked_id as "blocked_id: UserId" from blocks where user_id = any($1)"#,
        users,
    )
    .fetch_all(executor)
    .await?;
    Ok(rows.into_iter().map(|row| (row.user_id, row.blocked_id)).collect())
}

pub(super) async fn is_tournament(executor: impl PgExecutor<'_>, tournament: TournamentId) -> sqlx::Result<bool> {
    sqlx::query_scalar!(r#"select exists (select 1 from tournaments where id = $1) as "is_one!""#, tournament.0)
        .fetch_one(executor)
        .await
}

pub(super) async fn is_round(
    executor: impl PgExecutor<'_>,
    tournament: TournamentId,
    round: i16,
) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"select exists (select 1 from events where tournament_id = $1 and round = $2)
               or exists (select 1 from questions where tournament_id = $1 and round = $2) as "is_one!""#,
        tournament.0,
        round,
    )
    .fetch_one(executor)
    .await
}

/// Returns the latest start of a round's matches, or lock of its questions.
pub(super) async fn round_end(
    executor: impl PgExecutor<'_>,
    tournament: TournamentId,
    round: i16,
) -> sqlx::Result<Option<OffsetDateTime>> {
    sqlx::query_scalar!(
        "select greatest((select max(start_time) from events where tournament_id = $1 and round = $2),
                         (select max(locks_at) from questions where tournament_id = $1 and round = $2))",
        tournament.0,
        round,
    )
    .fetch_one(executor)
    .await
}

/// Returns an upper bound of the number of users with a score in a round, from the tallies of its matches and questions: a
/// user counts once for each prediction and answer.
pub(super) async fn most_players(
    executor: impl PgExecutor<'_>,
    tournament: TournamentId,
    round: i16,
) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"select (coalesce((select sum(t.home + t.draw + t.away)
                             from events e join event_tallies t on t.event_id = e.id
                             where e.tournament_id = $1 and e.round = $2), 0)
                   + coalesce((select sum(t.answers)
                               from questions q join question_tallies t on t.question_id = q.id
                               left join events e on e.id = q.event_id
                               where q.tournament_id = $1
                                 and case when q.event_id is null then q.round else e.round end = $2), 0))::bigint as "most!""#,
        tournament.0,
        round,
    )
    .fetch_one(executor)
    .await
}

/// Returns the tournament of a match, with its name, and the round; `None` if the match has no round.
pub(super) async fn round_of(
    executor: impl PgExecutor<'_>,
    event: MatchId,
) -> sqlx::Result<Option<(TournamentId, String, i16)>> {
    let row = sqlx::query!(
        r#"select t.id as "tournament: TournamentId", t.name, e.round as "round!"
           from events e join tournaments t on t.id = e.tournament_id where e.id = $1 and e.round is not null"#,
        event.0,
    )
    .fetch_optional(executor)
    .await?;
    Ok(row.map(|row| (row.tournament, row.name, row.round)))
}

/// Progress of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RoundState {
    /// Number of matches with a result.
    pub(super) with_result: i64,
    /// Number of matches that have no result yet and are not void.
    pub(super) open: i64,
    /// Number of matches with a result that has not reached all scores.
    pub(super) pending: i64,
    /// Sum of the revisions of all results, which every correction increases.
    pub(super) revisions: i64,
}

pub(super) async fn round_state(
    executor: impl PgExecutor<'_>,
    tournament: TournamentId,
    round: i16,
) -> sqlx::Result<RoundState> {
    sqlx::query_as!(
        RoundState,
        r#"select count(*) filter (where e.status = 'finished') as "with_result!",
                  count(*) filter (where e.status not in ('finished', 'abandoned', 'cancelled', 'awarded')) as "open!",
                  count(*) filter (where exists (select 1 from event_results r where r.event_id = e.id
                                                                                 and r.applied_at is null)) as "pending!",
                  coalesce(sum(e.result_revision), 0)::bigint as "revisions!"
           from events e where e.tournament_id = $1 and e.round = $2"#,
        tournament.0,
        round,
    )
    .fetch_one(executor)
    .await
}

/// Returns a user's points in a scope.
pub(super) async fn points(executor: impl PgExecutor<'_>, user: UserId, scope: &str) -> sqlx::Result<Option<i32>> {
    sqlx::query_scalar!("select points from user_scores where user_id = $1 and scope = $2", user.0, scope)
        .fetch_optional(executor)
        .await
}
