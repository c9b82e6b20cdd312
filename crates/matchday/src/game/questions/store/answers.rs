//! SQL queries of the writers of answers.

use std::collections::{HashMap, HashSet};

use platform::shards::Ranges;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Postgres, Transaction};
use time::OffsetDateTime;
use web::ids::{MatchId, QuestionId, UserId};

use super::{
    super::rules::{Shape, Status},
    StoredAnswer, invalid, read_shape,
};
use crate::catalogue::matches::gates;

/// Begins a transaction that holds the gates of these matches and questions open, in one round trip.
pub(in crate::game::questions) async fn begin_at_gates<'c>(
    connection: &'c mut PgConnection,
    events: &[MatchId],
    questions: &[i64],
) -> sqlx::Result<Transaction<'c, Postgres>> {
    let (matches, questions) = (gates::hold_open(events), gates::hold_questions_open(questions.iter().copied()));
    let statement = if events.is_empty() { questions } else { format!("{matches}; {questions}") };
    connection.begin_with(AssertSqlSafe(format!("begin; {statement}"))).await
}

/// A question at the time of a batch.
pub(in crate::game::questions) struct Current {
    pub(in crate::game::questions) shape: Shape,
    /// Teams that can be answered.
    pub(in crate::game::questions) teams: Vec<i64>,
    pub(in crate::game::questions) status: Status,
}

/// Returns those of these questions that are visible, and the database time that decided it; `None` if none is.
pub(in crate::game::questions) async fn current(
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
pub(in crate::game::questions) struct NewAnswer {
    pub(in crate::game::questions) user: UserId,
    pub(in crate::game::questions) question: QuestionId,
    pub(in crate::game::questions) value: i64,
}

impl NewAnswer {
    pub(in crate::game::questions) fn key(&self) -> (UserId, QuestionId) {
        (self.user, self.question)
    }
}

fn columns(answers: &[NewAnswer]) -> (Vec<i64>, Vec<i64>, Vec<i64>) {
    let users = answers.iter().map(|answer| answer.user.0).collect();
    let questions = answers.iter().map(|answer| answer.question.0).collect();
    (users, questions, answers.iter().map(|answer| answer.value).collect())
}

/// Inserts answers of users who have none yet, and returns whose were inserted.
pub(in crate::game::questions) async fn insert(
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

/// Returns and locks the stored answers of these users to these questions, with their revisions.
pub(in crate::game::questions) async fn lock_earlier(
    connection: &mut PgConnection,
    shards: &Ranges,
    answers: &[NewAnswer],
) -> sqlx::Result<HashMap<(UserId, QuestionId), (StoredAnswer, i32)>> {
    let (users, questions, _) = columns(answers);
    let rows = sqlx::query!(
        r#"select a.user_id as "user_id: UserId", a.question_id as "question_id: QuestionId", a.value, a.created_at,
                  a.updated_at, a.revision
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
        .map(|row| {
            let stored = answer(row.value, row.created_at, row.updated_at);
            ((row.user_id, row.question_id), (stored, row.revision))
        })
        .collect())
}

/// Replaces answers, and keeps the earlier ones in `answer_revisions`.
pub(in crate::game::questions) async fn replace(
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
pub(in crate::game::questions) async fn add_to_tallies(
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
