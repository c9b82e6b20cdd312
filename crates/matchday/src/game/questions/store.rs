//! SQL queries that read questions and answers.

pub(super) mod answers;
pub(super) mod definitions;

use std::collections::HashMap;

use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;
use web::{
    ids::{MatchId, QuestionId, TournamentId, UserId},
    paging::{Cursor, Paging},
};

use super::rules::{Choice, NumberScoring, Question, QuestionKind, Shape, Status, Terms};
use crate::identity::{accounts::Person, avatars::AvatarKey};

fn invalid() -> sqlx::Error {
    sqlx::Error::Decode("a stored question is invalid".into())
}

fn read_shape(kind: &str, options: Option<serde_json::Value>, pick: Option<i16>) -> sqlx::Result<Shape> {
    let options: Option<Vec<Choice>> =
        options.map(serde_json::from_value).transpose().map_err(|error| sqlx::Error::Decode(error.into()))?;
    let kind = QuestionKind::of_name(kind).ok_or_else(invalid)?;
    Ok(Shape { kind, options: options.unwrap_or_default(), pick })
}

fn read_scoring(scoring: Option<&str>) -> sqlx::Result<Option<NumberScoring>> {
    scoring.map(|name| NumberScoring::of_name(name).ok_or_else(invalid)).transpose()
}

/// Selection of questions.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub tournament: Option<TournamentId>,
    pub event: Option<MatchId>,
    pub round: Option<i16>,
    pub status: Option<Status>,
    /// Only questions with, or without, an answer of the caller.
    pub answered: Option<bool>,
}

/// Selects visible questions at the time `$1`. `$2` to `$7` are the fields of a [`Filter`], with the ids of the questions
/// that the caller has answered. This is a macro because checked queries accept only literals.
macro_rules! visible {
    ($query:ident, $type:ty, $select:tt, $tail:tt, $now:expr, $filter:expr, $answered:expr $(, $more:expr)*) => {
        sqlx::$query!(
            $type,
            $select
                + r#" from questions q left join events e on e.id = q.event_id
                      left join question_results r on r.question_id = q.id and r.revision = q.result_revision
                 where (q.opens_at is null or q.opens_at <= $1)
                   and ($2::bigint is null or q.tournament_id = $2)
                   and ($3::bigint is null or q.event_id = $3)
                   and ($4::smallint is null or case when q.event_id is null then q.round else e.round end = $4)
                   and ($5::text is null
                        or question_status(q.resolution, q.is_void, q.locks_at, e.status, e.start_time, $1) = $5)
                   and ($6::boolean is null or (q.id = any($7)) = $6) "#
                + $tail,
            $now,
            $filter.tournament.map(|id| id.0),
            $filter.event.map(|id| id.0),
            $filter.round,
            $filter.status.map(Status::name),
            $filter.answered,
            $answered
            $(, $more)*
        )
    };
}

struct Row {
    id: QuestionId,
    tournament_id: TournamentId,
    round: Option<i16>,
    event_id: Option<MatchId>,
    text: String,
    kind: String,
    options: Option<serde_json::Value>,
    pick: Option<i16>,
    scoring: Option<String>,
    points: i32,
    locks_at: OffsetDateTime,
    status: String,
    resolution: Option<Vec<i64>>,
    distance: Option<i64>,
}

impl TryFrom<Row> for Question {
    type Error = sqlx::Error;

    fn try_from(row: Row) -> Result<Self, sqlx::Error> {
        let scoring = read_scoring(row.scoring.as_deref())?;
        let terms = |resolution| Terms { scoring, points: row.points, resolution, distance: row.distance };
        Ok(Self {
            id: row.id,
            tournament_id: row.tournament_id,
            round: row.round,
            event_id: row.event_id,
            text: row.text,
            shape: read_shape(&row.kind, row.options, row.pick)?,
            scoring,
            points: row.points,
            locks_at: row.locks_at,
            status: Status::of_name(&row.status).ok_or_else(invalid)?,
            terms: row.resolution.map(terms),
            choices: 0,
        })
    }
}

/// Returns a page of the questions that are visible at this time, and the number of all: open ones by their lock, then
/// the others, latest lock first.
pub(super) async fn list(
    connection: &mut PgConnection,
    now: OffsetDateTime,
    filter: &Filter,
    answered: &[i64],
    paging: Paging,
) -> sqlx::Result<(Vec<Question>, i64)> {
    struct Total {
        total: i64,
    }
    let total = visible!(query_as, Total, r#"select count(*) as "total!""#, "", now, filter, answered)
        .fetch_one(&mut *connection)
        .await?
        .total;
    if paging.offset() >= total {
        return Ok((Vec::new(), total));
    }
    let rows = visible!(
        query_as,
        Row,
        r#"select q.id as "id!: QuestionId", q.tournament_id as "tournament_id!: TournamentId",
                  case when q.event_id is null then q.round else e.round end as round,
                  q.event_id as "event_id: MatchId", q.text as "text!", q.kind as "kind!", q.options, q.pick, q.scoring,
                  q.points as "points!", coalesce(q.locks_at, e.start_time) as "locks_at!",
                  question_status(q.resolution, q.is_void, q.locks_at, e.status, e.start_time, $1) as "status!",
                  q.resolution, r.distance as "distance?""#,
        r#"order by question_status(q.resolution, q.is_void, q.locks_at, e.status, e.start_time, $1) <> 'open',
                    case when question_status(q.resolution, q.is_void, q.locks_at, e.status, e.start_time, $1) = 'open'
                         then coalesce(q.locks_at, e.start_time) end,
                    coalesce(q.locks_at, e.start_time) desc, q.id
           limit $8 offset $9"#,
        now,
        filter,
        answered,
        paging.limit(),
        paging.offset()
    )
    .fetch_all(&mut *connection)
    .await?;
    let questions = rows.into_iter().map(Question::try_from).collect::<sqlx::Result<Vec<_>>>()?;
    Ok((with_counts(connection, questions).await?, total))
}

pub(super) async fn find(
    connection: &mut PgConnection,
    now: OffsetDateTime,
    id: QuestionId,
) -> sqlx::Result<Option<Question>> {
    let row = sqlx::query_as!(
        Row,
        r#"select q.id as "id!: QuestionId", q.tournament_id as "tournament_id!: TournamentId",
                  case when q.event_id is null then q.round else e.round end as round,
                  q.event_id as "event_id: MatchId", q.text, q.kind, q.options, q.pick, q.scoring, q.points,
                  coalesce(q.locks_at, e.start_time) as "locks_at!",
                  question_status(q.resolution, q.is_void, q.locks_at, e.status, e.start_time, $2) as "status!",
                  q.resolution, r.distance as "distance?"
           from questions q left join events e on e.id = q.event_id
           left join question_results r on r.question_id = q.id and r.revision = q.result_revision
           where q.id = $1 and (q.opens_at is null or q.opens_at <= $2)"#,
        id.0,
        now,
    )
    .fetch_optional(&mut *connection)
    .await?;
    let Some(row) = row else { return Ok(None) };
    Ok(with_counts(connection, vec![row.try_into()?]).await?.pop())
}

/// Adds the sums of the tallies.
async fn with_counts(connection: &mut PgConnection, mut questions: Vec<Question>) -> sqlx::Result<Vec<Question>> {
    let ids: Vec<i64> = questions.iter().map(|question| question.id.0).collect();
    let rows = sqlx::query!(
        r#"select question_id, sum(answers)::bigint as "choices!" from question_tallies where question_id = any($1)
           group by question_id"#,
        &ids,
    )
    .fetch_all(connection)
    .await?;
    let counts: HashMap<i64, i64> = rows.into_iter().map(|row| (row.question_id, row.choices)).collect();
    for question in &mut questions {
        question.choices = counts.get(&question.id.0).copied().unwrap_or_default();
    }
    Ok(questions)
}

/// Returns the number of answers to a question by choice, without choices that nobody made.
pub(super) async fn tally(executor: impl PgExecutor<'_>, question: QuestionId) -> sqlx::Result<Vec<(i64, i64)>> {
    let rows = sqlx::query!(
        r#"select choice, sum(answers)::bigint as "answers!" from question_tallies where question_id = $1
           group by choice having sum(answers) > 0 order by choice"#,
        question.0,
    )
    .fetch_all(executor)
    .await?;
    Ok(rows.into_iter().map(|row| (row.choice, row.answers)).collect())
}

/// An answer as stored.
#[derive(Clone, Copy, Debug)]
pub struct StoredAnswer {
    pub value: i64,
    pub created_at: OffsetDateTime,
    pub updated_at: OffsetDateTime,
}

/// Returns the questions that a user has answered.
pub(super) async fn answered(executor: impl PgExecutor<'_>, user: UserId) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar!("select question_id from answers where user_id = $1", user.0).fetch_all(executor).await
}

/// Returns a user's answers to these questions.
pub(super) async fn answers_of(
    executor: impl PgExecutor<'_>,
    user: UserId,
    questions: &[i64],
) -> sqlx::Result<HashMap<QuestionId, StoredAnswer>> {
    let rows = sqlx::query!(
        r#"select question_id as "question_id: QuestionId", value, created_at, updated_at from answers
           where user_id = $1 and question_id = any($2)"#,
        user.0,
        questions,
    )
    .fetch_all(executor)
    .await?;
    let answer = |value, created_at, updated_at| StoredAnswer { value, created_at, updated_at };
    Ok(rows.into_iter().map(|row| (row.question_id, answer(row.value, row.created_at, row.updated_at))).collect())
}

/// An answer as other users see it.
#[derive(Clone, Debug)]
pub struct Listed {
    pub person: Person,
    pub value: i64,
    pub created_at: OffsetDateTime,
}

/// Returns answers to a question by user, without those of users whom the viewer has blocked. Each table has the bound of
/// the cursor, because the planner does not derive it, and would read all earlier users again.
pub(super) async fn list_answers(
    executor: impl PgExecutor<'_>,
    question: QuestionId,
    blocked: &[i64],
    after: Option<Cursor>,
    limit: i64,
) -> sqlx::Result<Vec<Listed>> {
    let rows = sqlx::query!(
        r#"select a.user_id as "user_id: UserId", u.username, u.name, u.shows_name, u.avatar_key as "avatar: AvatarKey",
                  a.value, a.created_at
           from answers a join users u on u.user_id = a.user_id and u.user_id > $2
           where a.question_id = $1 and a.user_id > $2 and a.user_id not in (select b.blocked from unnest($3::bigint[]) as b (blocked))
           order by a.user_id limit $4"#,
        question.0,
        after.map_or(0, Cursor::id),
        blocked,
        limit,
    )
    .fetch_all(executor)
    .await?;
    let listed = rows.into_iter().map(|row| Listed {
        person: Person {
            id: row.user_id,
            username: row.username,
            name: row.name,
            shows_name: row.shows_name,
            avatar: row.avatar,
        },
        value: row.value,
        created_at: row.created_at,
    });
    Ok(listed.collect())
}

/// Returns the users whom a user has blocked.
pub(super) async fn blocked(executor: impl PgExecutor<'_>, user: UserId) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar!("select blocked_id from blocks where user_id = $1", user.0).fetch_all(executor).await
}

// The queries below serve the batch writers.

/// Returns the matches of these questions. Neither changes.
pub(super) async fn events_of(
    executor: impl PgExecutor<'_>,
    questions: &[i64],
) -> sqlx::Result<Vec<(QuestionId, Option<MatchId>)>> {
    let rows = sqlx::query!(
        r#"select id as "id: QuestionId", event_id as "event_id: MatchId" from questions where id = any($1)"#,
        questions,
    )
    .fetch_all(executor)
    .await?;
    Ok(rows.into_iter().map(|row| (row.id, row.event_id)).collect())
}
