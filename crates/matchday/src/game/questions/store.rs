//! SQL queries for questions and answers.

use std::collections::{HashMap, HashSet};

use platform::shards::Ranges;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgExecutor, Postgres, Transaction};
use time::OffsetDateTime;
use web::{
    ids::{MatchId, QuestionId, TournamentId, UserId},
    paging::{Cursor, Paging},
};

use super::rules::{Choice, NumberScoring, Question, QuestionKind, Shape, Status, Terms};
use crate::catalogue::matches::gates;

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
    pub user_id: UserId,
    pub username: String,
    pub name: Option<String>,
    pub value: i64,
    pub created_at: OffsetDateTime,
}

/// Returns answers to a question by user, without those of users whom the viewer has blocked.
pub(super) async fn list_answers(
    executor: impl PgExecutor<'_>,
    question: QuestionId,
    blocked: &[i64],
    after: Option<Cursor>,
    limit: i64,
) -> sqlx::Result<Vec<Listed>> {
    sqlx::query_as!(
        Listed,
        r#"select a.user_id as "user_id: UserId", u.username, u.name, a.value, a.created_at
           from answers a join users u on u.user_id = a.user_id
           where a.question_id = $1 and a.user_id > $2 and a.user_id <> all($3)
           order by a.user_id limit $4"#,
        question.0,
        after.map_or(0, Cursor::id),
        blocked,
        limit,
    )
    .fetch_all(executor)
    .await
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

/// Begins a transaction that holds the gates of these matches and questions open, in one round trip.
pub(super) async fn begin_at_gates<'c>(
    connection: &'c mut PgConnection,
    events: &[MatchId],
    questions: &[i64],
) -> sqlx::Result<Transaction<'c, Postgres>> {
    let (matches, questions) = (gates::hold_open(events), gates::hold_questions_open(questions.iter().copied()));
    let statement = if events.is_empty() { questions } else { format!("{matches}; {questions}") };
    connection.begin_with(AssertSqlSafe(format!("begin; {statement}"))).await
}

/// A question at the time of a batch.
pub(super) struct Current {
    pub(super) shape: Shape,
    /// Teams that can be answered.
    pub(super) teams: Vec<i64>,
    pub(super) status: Status,
}

/// Returns those of these questions that are visible, and the database time that decided it; `None` if none is.
pub(super) async fn current(
    connection: &mut PgConnection,
    questions: &[i64],
) -> sqlx::Result<Option<(OffsetDateTime, HashMap<QuestionId, Current>)>> {
    let rows = sqlx::query!(
        r#"select id as "id!: QuestionId", moment as "moment!", kind as "kind!", options, pick, teams, status as "status!"
           from current_questions($1)"#,
        questions,
    )
    .fetch_all(connection)
    .await?;
    let Some(moment) = rows.first().map(|row| row.moment) else { return Ok(None) };
    let current = rows.into_iter().map(|row| {
        let shape = read_shape(&row.kind, row.options, row.pick)?;
        let status = Status::of_name(&row.status).ok_or_else(invalid)?;
        Ok((row.id, Current { shape, teams: row.teams.unwrap_or_default(), status }))
    });
    Ok(Some((moment, current.collect::<sqlx::Result<_>>()?)))
}

/// An answer to be written.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewAnswer {
    pub(super) user: UserId,
    pub(super) question: QuestionId,
    pub(super) value: i64,
}

impl NewAnswer {
    pub(super) fn key(&self) -> (UserId, QuestionId) {
        (self.user, self.question)
    }
}

fn columns(answers: &[NewAnswer]) -> (Vec<i64>, Vec<i64>, Vec<i64>) {
    let users = answers.iter().map(|answer| answer.user.0).collect();
    let questions = answers.iter().map(|answer| answer.question.0).collect();
    (users, questions, answers.iter().map(|answer| answer.value).collect())
}

/// Inserts answers of users who have none yet, and returns whose were inserted.
pub(super) async fn insert(
    connection: &mut PgConnection,
    answers: &[NewAnswer],
    now: OffsetDateTime,
) -> sqlx::Result<HashSet<(UserId, QuestionId)>> {
    let (users, questions, values) = columns(answers);
    let rows = sqlx::query!(
        r#"insert into answers (user_id, question_id, value, revision, created_at, updated_at)
           select n.user_id, n.question_id, n.value, 1, $4, $4
           from unnest($1::bigint[], $2::bigint[], $3::bigint[]) as n (user_id, question_id, value)
           order by n.user_id, n.question_id
           on conflict (user_id, question_id) do nothing
           returning user_id as "user_id: UserId", question_id as "question_id: QuestionId""#,
        &users,
        &questions,
        &values,
        now,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(|row| (row.user_id, row.question_id)).collect())
}

/// Returns and locks the stored answers of these users to these questions.
pub(super) async fn lock_earlier(
    connection: &mut PgConnection,
    shards: &Ranges,
    answers: &[NewAnswer],
) -> sqlx::Result<HashMap<(UserId, QuestionId), StoredAnswer>> {
    let (users, questions, _) = columns(answers);
    let rows = sqlx::query!(
        r#"select a.user_id as "user_id: UserId", a.question_id as "question_id: QuestionId", a.value, a.created_at,
                  a.updated_at
           from unnest($1::bigint[], $2::bigint[]) as n (user_id, question_id)
           join answers a on a.user_id = n.user_id and a.question_id = n.question_id
           where ($3::bigint[] is null or a.user_id = any($3))
           order by a.user_id, a.question_id
           for update of a"#,
        &users,
        &questions,
        shards.only(&users),
    )
    .fetch_all(connection)
    .await?;
    let answer = |value, created_at, updated_at| StoredAnswer { value, created_at, updated_at };
    Ok(rows
        .into_iter()
        .map(|row| ((row.user_id, row.question_id), answer(row.value, row.created_at, row.updated_at)))
        .collect())
}

/// Replaces answers, and keeps the earlier ones in `answer_revisions`.
pub(super) async fn replace(
    connection: &mut PgConnection,
    shards: &Ranges,
    answers: &[NewAnswer],
    now: OffsetDateTime,
) -> sqlx::Result<()> {
    if answers.is_empty() {
        return Ok(());
    }
    let (users, questions, values) = columns(answers);
    sqlx::query!(
        "insert into answer_revisions (user_id, question_id, revision, value, made_at, replaced_at)
         select a.user_id, a.question_id, a.revision, a.value, a.updated_at, $3
         from unnest($1::bigint[], $2::bigint[]) as n (user_id, question_id)
         join answers a on a.user_id = n.user_id and a.question_id = n.question_id
         where ($4::bigint[] is null or a.user_id = any($4))",
        &users,
        &questions,
        now,
        shards.only(&users),
    )
    .execute(&mut *connection)
    .await?;
    sqlx::query!(
        "update answers a set value = n.value, revision = a.revision + 1, updated_at = $4
         from unnest($1::bigint[], $2::bigint[], $3::bigint[]) as n (user_id, question_id, value)
         where a.user_id = n.user_id and a.question_id = n.question_id and ($5::bigint[] is null or a.user_id = any($5))",
        &users,
        &questions,
        &values,
        now,
        shards.only(&users),
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Adds the changes of a batch to the tallies, in the writer's slot.
pub(super) async fn add_to_tallies(
    connection: &mut PgConnection,
    slot: i16,
    changes: &HashMap<(QuestionId, i64), i64>,
) -> sqlx::Result<()> {
    let mut changes: Vec<(i64, i64, i64)> = changes
        .iter()
        .filter(|(_, change)| **change != 0)
        .map(|(&(question, choice), &change)| (question.0, choice, change))
        .collect();
    if changes.is_empty() {
        return Ok(());
    }
    // Writers that share a slot lock its rows in the same order.
    changes.sort_unstable();
    let column = |read: &dyn Fn(&(i64, i64, i64)) -> i64| changes.iter().map(read).collect::<Vec<_>>();
    sqlx::query!(
        "insert into question_tallies (question_id, slot, choice, answers)
         select question_id, $1, choice, answers
         from unnest($2::bigint[], $3::bigint[], $4::bigint[]) as t (question_id, choice, answers)
         on conflict (question_id, slot, choice) do update set answers = question_tallies.answers + excluded.answers",
        slot,
        &column(&|(question, ..)| *question),
        &column(&|(_, choice, _)| *choice),
        &column(&|(.., answers)| *answers),
    )
    .execute(connection)
    .await?;
    Ok(())
}

// The queries below serve imports.

/// Everything about a question that an import sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Definition {
    pub(super) event: Option<MatchId>,
    /// Own round, of a question without a match.
    pub(super) round: Option<i16>,
    pub(super) text: String,
    pub(super) shape: Shape,
    pub(super) scoring: Option<NumberScoring>,
    pub(super) points: i32,
    pub(super) opens_at: Option<OffsetDateTime>,
    /// `None` if the question locks with its match.
    pub(super) locks_at: Option<OffsetDateTime>,
    pub(super) resolution: Option<Vec<i64>>,
    pub(super) is_void: bool,
}

/// A question as stored before an import.
#[derive(Clone, Debug)]
pub(super) struct StoredQuestion {
    pub(super) id: QuestionId,
    pub(super) definition: Definition,
    /// Lock and round in its latest result, if that gives points.
    pub(super) counted: Option<(OffsetDateTime, Option<i16>)>,
}

/// Returns the questions of a tournament with these keys, and those that are about these matches.
pub(super) async fn stored(
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
pub(super) struct QuestionMatch {
    pub(super) id: MatchId,
    pub(super) start_time: OffsetDateTime,
    pub(super) round: Option<i16>,
}

/// Returns the matches of a tournament with these keys, and those with these ids.
pub(super) async fn matches(
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

pub(super) async fn insert_question(
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

pub(super) async fn update_question(
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
pub(super) async fn smallest_distance(
    connection: &mut PgConnection,
    question: QuestionId,
    number: i64,
) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!("select min(abs(value - $2)) from answers where question_id = $1", question.0, number)
        .fetch_one(connection)
        .await
}

/// A result of a question.
pub(super) struct NewResult<'a> {
    pub(super) question: QuestionId,
    /// `None` if answers have no points.
    pub(super) resolution: Option<&'a [i64]>,
    pub(super) points: i32,
    pub(super) distance: Option<i64>,
    pub(super) locks_at: OffsetDateTime,
    pub(super) round: Option<i16>,
}

/// Records a result, while the gate of the question is closed.
pub(super) async fn record_result(
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
pub(super) async fn lock_imports(connection: &mut PgConnection) -> sqlx::Result<()> {
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

/// Returns all questions, those that wait for a resolution first, then the latest.
pub(super) async fn summaries(
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
pub(super) struct QuestionForOperator {
    pub(super) stored: StoredQuestion,
    pub(super) key: String,
    pub(super) tournament: TournamentId,
    pub(super) tournament_name: String,
    pub(super) locks_at: OffsetDateTime,
    pub(super) round: Option<i16>,
    pub(super) status: Status,
    pub(super) revision: i64,
}

pub(super) async fn for_operator(
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
pub(super) async fn teams(
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
