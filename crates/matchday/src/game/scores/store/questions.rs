//! SQL queries for the points of answers to questions.

use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;
use web::ids::{QuestionId, TournamentId};

use super::{Chunk, InsertedRow, ScoreRow, StoredResult};

pub(super) async fn latest_result(
    connection: &mut PgConnection,
    question: QuestionId,
) -> sqlx::Result<Option<StoredResult>> {
    sqlx::query_as!(
        StoredResult,
        r#"select revision, resolution is not null as "has_points!" from question_results where question_id = $1
           order by revision desc limit 1"#,
        question.0,
    )
    .fetch_optional(connection)
    .await
}

/// Returns the first user of every chunk except the first chunk.
pub(super) async fn cuts(connection: &mut PgConnection, question: QuestionId, size: i64) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar!(
        r#"select user_id as "user_id!"
           from (select user_id, row_number() over (order by user_id) as position
                 from answers where question_id = $1) a
           where position % $2 = 0"#,
        question.0,
        size,
    )
    .fetch_all(connection)
    .await
}

pub(super) async fn tables_of_result(
    connection: &mut PgConnection,
    question: QuestionId,
    revision: i64,
) -> sqlx::Result<Option<Vec<String>>> {
    sqlx::query_scalar!(
        r#"select score_scopes(q.tournament_id, r.locks_at, r.round) as "scopes!"
           from question_results r join questions q on q.id = r.question_id
           where r.question_id = $1 and r.revision = $2 and r.resolution is not null"#,
        question.0,
        revision,
    )
    .fetch_optional(connection)
    .await
}

pub(super) async fn count_users(
    connection: &mut PgConnection,
    question: QuestionId,
    chunk: &Chunk,
) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"select count(*) as "count!" from answers where question_id = $1 and user_id >= $2 and user_id < $3"#,
        question.0,
        chunk.from_user,
        chunk.until_user,
    )
    .fetch_one(connection)
    .await
}

pub(super) async fn users_of_result(
    connection: &mut PgConnection,
    question: QuestionId,
    chunk: &Chunk,
    revision: i64,
) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar!(
        r#"select user_id as "user_id!" from question_points
           where question_id = $1 and user_id >= $2 and user_id < $3 and revision = $4 order by user_id"#,
        question.0,
        chunk.from_user,
        chunk.until_user,
        revision,
    )
    .fetch_all(connection)
    .await
}

pub(super) async fn insert_result(
    connection: &mut PgConnection,
    question: QuestionId,
    chunk: &Chunk,
    revision: i64,
    tables: &[String],
) -> sqlx::Result<Vec<ScoreRow>> {
    let rows = sqlx::query_file_as!(
        InsertedRow,
        "src/game/scores/insert_answers.sql",
        question.0,
        chunk.from_user,
        chunk.until_user,
        revision,
        tables,
    )
    .fetch_all(connection)
    .await?;
    Ok(InsertedRow::numbered(rows, tables))
}

pub(super) async fn add(
    connection: &mut PgConnection,
    question: QuestionId,
    chunk: &Chunk,
    revision: i64,
    sign: i32,
    tables: &[String],
) -> sqlx::Result<Vec<ScoreRow>> {
    sqlx::query_file_as!(
        ScoreRow,
        "src/game/scores/add_answers.sql",
        question.0,
        chunk.from_user,
        chunk.until_user,
        revision,
        sign,
        tables,
    )
    .fetch_all(connection)
    .await
}

pub(super) async fn mark_applied(
    connection: &mut PgConnection,
    question: QuestionId,
    revision: i64,
    now: OffsetDateTime,
) -> sqlx::Result<Option<i64>> {
    let applied = sqlx::query_scalar!(
        "update question_results set applied_at = $3
         where question_id = $1 and applied_at is null and revision <= $2
           and not exists (select 1 from score_lanes l where l.source = 'question' and l.source_id = $1
                           and (l.revision < question_results.revision or l.shown_revision < question_results.revision
                                or l.paid_revision < question_results.revision))
         returning revision",
        question.0,
        revision,
        now,
    )
    .fetch_all(connection)
    .await?;
    Ok(applied.into_iter().max())
}

pub(super) async fn overdue(connection: &mut PgConnection, now: OffsetDateTime) -> sqlx::Result<Vec<QuestionId>> {
    let mut overdue = sqlx::query_scalar!(
        r#"update question_results set look_again_at = $1 + ($1 - recorded_at)
           where applied_at is null and look_again_at < $1
           returning question_id as "question_id: QuestionId""#,
        now,
    )
    .fetch_all(connection)
    .await?;
    overdue.sort_unstable();
    overdue.dedup();
    Ok(overdue)
}

/// Returns scores in these scopes of users in an id range who answered a question.
pub(super) async fn scores_of_answers(
    connection: &mut PgConnection,
    scopes: &[String],
    question: QuestionId,
    from_user: i64,
    until_user: i64,
) -> sqlx::Result<Vec<ScoreRow>> {
    sqlx::query_as!(
        ScoreRow,
        r#"select array_position($1, s.scope) as "scope!", s.user_id, s.points, s.exact, s.correct, s.settled, s.answered
           from answers a join user_scores s on s.user_id = a.user_id and s.scope = any($1)
           where a.question_id = $2 and a.user_id >= $3 and a.user_id < $4"#,
        scopes,
        question.0,
        from_user,
        until_user,
    )
    .fetch_all(connection)
    .await
}

/// Returns the scopes that any result of the question has counted for.
pub(super) async fn scopes(executor: impl PgExecutor<'_>, question: QuestionId) -> sqlx::Result<Vec<String>> {
    sqlx::query_scalar!(
        r#"select distinct unnest(score_scopes(q.tournament_id, r.locks_at, r.round)) as "scope!"
           from question_results r join questions q on q.id = r.question_id
           where r.question_id = $1 and r.resolution is not null order by 1"#,
        question.0,
    )
    .fetch_all(executor)
    .await
}

pub(in crate::game::scores) async fn tournament_of(
    executor: impl PgExecutor<'_>,
    question: QuestionId,
) -> sqlx::Result<TournamentId> {
    sqlx::query_scalar!(
        r#"select tournament_id as "tournament_id: TournamentId" from questions where id = $1"#,
        question.0,
    )
    .fetch_one(executor)
    .await
}
