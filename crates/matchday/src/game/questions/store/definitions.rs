//! SQL queries of imports and operators, who define and resolve questions.

use std::collections::HashMap;

use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;
use web::ids::{MatchId, QuestionId, TournamentId};

use super::{
    super::rules::{NumberScoring, Shape, Status},
    invalid, read_scoring, read_shape,
};

/// Everything about a question that an import sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::game::questions) struct Definition {
    pub(in crate::game::questions) event: Option<MatchId>,
    /// Own round, of a question without a match.
    pub(in crate::game::questions) round: Option<i16>,
    pub(in crate::game::questions) text: String,
    pub(in crate::game::questions) shape: Shape,
    pub(in crate::game::questions) scoring: Option<NumberScoring>,
    pub(in crate::game::questions) points: i32,
    pub(in crate::game::questions) opens_at: Option<OffsetDateTime>,
    /// `None` if the question locks with its match.
    pub(in crate::game::questions) locks_at: Option<OffsetDateTime>,
    pub(in crate::game::questions) resolution: Option<Vec<i64>>,
    pub(in crate::game::questions) is_void: bool,
}

/// A question as stored before an import.
#[derive(Clone, Debug)]
pub(in crate::game::questions) struct StoredQuestion {
    pub(in crate::game::questions) id: QuestionId,
    pub(in crate::game::questions) definition: Definition,
    /// Lock and round in its latest result, if that gives points.
    pub(in crate::game::questions) counted: Option<(OffsetDateTime, Option<i16>)>,
}

/// Returns the questions of a tournament with these keys, and all questions about these matches.
pub(in crate::game::questions) async fn stored(
    connection: &mut PgConnection,
    tournament: TournamentId,
    keys: &[&str],
    events: &[i64],
) -> sqlx::Result<HashMap<String, StoredQuestion>> {
    let rows = sqlx::query!(
        r#"select q.id as "id: QuestionId", q.key, q.event_id as "event: MatchId", q.round, q.text, q.kind, q.options,
                  q.pick, q.scoring, q.points, q.opens_at, q.locks_at, q.resolution, q.is_void,
                  r.locks_at as "counted_at?", r.round as "counted_round?"
           from questions q
           left join question_results r on r.question_id = q.id and r.revision = q.result_revision
             and r.resolution is not null
           where q.tournament_id = $1 and (q.key = any($2) or q.event_id = any($3))
           order by q.id"#,
        tournament.0,
        keys as &[&str],
        events,
    )
    .fetch_all(connection)
    .await?;
    rows.into_iter()
        .map(|row| {
            let definition = Definition {
                event: row.event,
                round: row.round,
                text: row.text,
                shape: read_shape(&row.kind, row.options, row.pick)?,
                scoring: read_scoring(row.scoring.as_deref())?,
                points: row.points,
                opens_at: row.opens_at,
                locks_at: row.locks_at,
                resolution: row.resolution,
                is_void: row.is_void,
            };
            let counted = row.counted_at.map(|locks_at| (locks_at, row.counted_round));
            Ok((row.key, StoredQuestion { id: row.id, definition, counted }))
        })
        .collect()
}

/// A match of a question.
#[derive(Clone, Copy, Debug)]
pub(in crate::game::questions) struct QuestionMatch {
    pub(in crate::game::questions) id: MatchId,
    pub(in crate::game::questions) start_time: OffsetDateTime,
    pub(in crate::game::questions) round: Option<i16>,
}

/// Returns the matches of a tournament with these keys, and those with these ids.
pub(in crate::game::questions) async fn matches(
    connection: &mut PgConnection,
    tournament: TournamentId,
    keys: &[&str],
    ids: &[i64],
) -> sqlx::Result<HashMap<String, QuestionMatch>> {
    let rows = sqlx::query!(
        r#"select key, id as "id: MatchId", start_time, round from events
           where tournament_id = $1 and (key = any($2) or id = any($3))"#,
        tournament.0,
        keys as &[&str],
        ids,
    )
    .fetch_all(connection)
    .await?;
    let found = |id, start_time, round| QuestionMatch { id, start_time, round };
    Ok(rows.into_iter().map(|row| (row.key, found(row.id, row.start_time, row.round))).collect())
}

fn options_of(shape: &Shape) -> Option<serde_json::Value> {
    shape.kind.has_options().then(|| serde_json::json!(shape.options))
}

pub(in crate::game::questions) async fn insert_question(
    connection: &mut PgConnection,
    tournament: TournamentId,
    key: &str,
    new: &Definition,
    now: OffsetDateTime,
) -> sqlx::Result<QuestionId> {
    sqlx::query_scalar!(
        r#"insert into questions (tournament_id, key, event_id, round, text, kind, options, pick, scoring, points, opens_at,
                                  locks_at, resolution, is_void, created_at)
           values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
           returning id as "id: QuestionId""#,
        tournament.0,
        key,
        new.event.map(|event| event.0),
        new.round,
        new.text,
        new.shape.kind.name(),
        options_of(&new.shape),
        new.shape.pick,
        new.scoring.map(NumberScoring::name),
        new.points,
        new.opens_at,
        new.locks_at,
        new.resolution.as_deref(),
        new.is_void,
        now,
    )
    .fetch_one(connection)
    .await
}

pub(in crate::game::questions) async fn update_question(
    connection: &mut PgConnection,
    id: QuestionId,
    new: &Definition,
) -> sqlx::Result<()> {
    sqlx::query!(
        "update questions set text = $2, options = $3, points = $4, opens_at = $5, locks_at = $6, resolution = $7, is_void = $8
         where id = $1",
        id.0,
        new.text,
        options_of(&new.shape),
        new.points,
        new.opens_at,
        new.locks_at,
        new.resolution.as_deref(),
        new.is_void,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Smallest distance of an answer to a number; `None` without answers.
pub(in crate::game::questions) async fn smallest_distance(
    connection: &mut PgConnection,
    question: QuestionId,
    number: i64,
) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!("select min(abs(value - $2)) from answers where question_id = $1", question.0, number)
        .fetch_one(connection)
        .await
}

/// A result of a question.
pub(in crate::game::questions) struct NewResult<'a> {
    pub(in crate::game::questions) question: QuestionId,
    /// `None` if answers have no points.
    pub(in crate::game::questions) resolution: Option<&'a [i64]>,
    pub(in crate::game::questions) points: i32,
    pub(in crate::game::questions) distance: Option<i64>,
    pub(in crate::game::questions) locks_at: OffsetDateTime,
    pub(in crate::game::questions) round: Option<i16>,
}

/// Records a result, while the gate of the question is closed.
pub(in crate::game::questions) async fn record_result(
    connection: &mut PgConnection,
    result: &NewResult<'_>,
    now: OffsetDateTime,
    look_again_at: OffsetDateTime,
) -> sqlx::Result<()> {
    sqlx::query!(
        "with revised as (
             update questions set result_revision = result_revision + 1 where id = $1 returning result_revision)
         insert into question_results
             (question_id, revision, resolution, points, distance, locks_at, round, recorded_at, look_again_at)
         select $1, result_revision, $2, $3, $4, $5, $6, $7, $8 from revised",
        result.question.0,
        result.resolution,
        result.points,
        result.distance,
        result.locks_at,
        result.round,
        now,
        look_again_at,
    )
    .execute(connection)
    .await?;
    Ok(())
}

// The queries below serve operators.

/// Serialises changes with imports of fixture documents.
pub(in crate::game::questions) async fn lock_imports(connection: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query!("select pg_advisory_xact_lock(hashtextextended('matchday fixtures', 0))")
        .fetch_one(connection)
        .await?;
    Ok(())
}

/// A question in a list for operators.
#[derive(Clone, Debug)]
pub struct QuestionSummary {
    pub id: QuestionId,
    pub text: String,
    pub tournament: String,
    pub round: Option<i16>,
    pub opens_at: Option<OffsetDateTime>,
    pub locks_at: OffsetDateTime,
    /// Name of the status.
    pub status: String,
    pub points: i32,
    /// Whether all scores include the latest result.
    pub is_applied: bool,
}

/// Returns all questions, unresolved questions first, then the latest.
pub(in crate::game::questions) async fn summaries(
    executor: impl PgExecutor<'_>,
    now: OffsetDateTime,
    offset: i64,
    limit: i64,
) -> sqlx::Result<Vec<QuestionSummary>> {
    sqlx::query_as!(
        QuestionSummary,
        r#"select q.id as "id: QuestionId", q.text, t.name as tournament,
                  case when q.event_id is null then q.round else e.round end as round, q.opens_at,
                  coalesce(q.locks_at, e.start_time) as "locks_at!",
                  question_status(q.resolution, q.is_void, q.locks_at, e.status, e.start_time, $1) as "status!", q.points,
                  not exists (select 1 from question_results r where r.question_id = q.id and r.applied_at is null)
                      as "is_applied!"
           from questions q join tournaments t on t.id = q.tournament_id left join events e on e.id = q.event_id
           order by question_status(q.resolution, q.is_void, q.locks_at, e.status, e.start_time, $1) <> 'locked',
                    coalesce(q.locks_at, e.start_time) desc, q.id
           limit $2 offset $3"#,
        now,
        limit,
        offset,
    )
    .fetch_all(executor)
    .await
}

/// A question as operators see it, before it opens too.
#[derive(Clone, Debug)]
pub(in crate::game::questions) struct QuestionForOperator {
    pub(in crate::game::questions) stored: StoredQuestion,
    pub(in crate::game::questions) key: String,
    pub(in crate::game::questions) tournament: TournamentId,
    pub(in crate::game::questions) tournament_name: String,
    pub(in crate::game::questions) locks_at: OffsetDateTime,
    pub(in crate::game::questions) round: Option<i16>,
    pub(in crate::game::questions) status: Status,
    pub(in crate::game::questions) revision: i64,
}

pub(in crate::game::questions) async fn for_operator(
    connection: &mut PgConnection,
    now: OffsetDateTime,
    id: QuestionId,
) -> sqlx::Result<Option<QuestionForOperator>> {
    let row = sqlx::query!(
        r#"select q.key, q.tournament_id as "tournament: TournamentId", t.name as tournament_name, q.result_revision,
                  coalesce(q.locks_at, e.start_time) as "locks_at!",
                  case when q.event_id is null then q.round else e.round end as round,
                  question_status(q.resolution, q.is_void, q.locks_at, e.status, e.start_time, $2) as "status!"
           from questions q join tournaments t on t.id = q.tournament_id left join events e on e.id = q.event_id
           where q.id = $1"#,
        id.0,
        now,
    )
    .fetch_optional(&mut *connection)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let found = stored(connection, row.tournament, &[&row.key], &[]).await?.remove(&row.key);
    let Some(stored) = found else { return Ok(None) };
    Ok(Some(QuestionForOperator {
        stored,
        key: row.key,
        tournament: row.tournament,
        tournament_name: row.tournament_name,
        locks_at: row.locks_at,
        round: row.round,
        status: Status::of_name(&row.status).ok_or_else(invalid)?,
        revision: row.result_revision,
    }))
}

/// Returns the teams that can be answered, by name.
pub(in crate::game::questions) async fn teams(
    executor: impl PgExecutor<'_>,
    tournament: TournamentId,
    event: Option<MatchId>,
) -> sqlx::Result<Vec<(i64, String)>> {
    let rows = sqlx::query!(
        r#"select distinct t.id, t.name from events e join teams t on t.id in (e.home_team_id, e.away_team_id)
           where e.tournament_id = $1 and ($2::bigint is null or e.id = $2) order by t.name, t.id"#,
        tournament.0,
        event.map(|event| event.0),
    )
    .fetch_all(executor)
    .await?;
    Ok(rows.into_iter().map(|row| (row.id, row.name)).collect())
}
