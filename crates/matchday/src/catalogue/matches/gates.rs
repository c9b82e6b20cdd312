//! Gates: advisory locks that order predictions against changes of a match, and answers against changes of a question.
//!
//! A transaction that writes predictions holds the gates of their matches open with a shared lock. A transaction that
//! changes the start, status or result of a match closes its gate with an exclusive lock.
//!
//! A row lock on the match would have the same effect, with two drawbacks. A row that always has shared holders starves
//! the writer that waits for it; advisory locks queue waiters instead. PostgreSQL also records each holder in the row,
//! on the most contended page of a match evening.

use sqlx::PgConnection;
use web::ids::MatchId;

/// First half of the lock key, which keeps gates apart from all other advisory locks: `gate` in ASCII.
pub const CLASS: i32 = 0x6761_7465;

/// The same for questions: `gatq` in ASCII.
const QUESTION_CLASS: i32 = 0x6761_7471;

/// Number of gates, which bounds the locks that an import of a whole season takes. While a gate is closed, every
/// prediction batch that contains one of its matches waits, so imports close gates as late as possible.
const GATES: i64 = 1_024;

/// Returns the second half of the lock key: the gate of a match.
pub fn gate(event: MatchId) -> i32 {
    gate_of(event.0)
}

fn gate_of(id: i64) -> i32 {
    i32::try_from(id.rem_euclid(GATES)).unwrap_or_default()
}

fn gates(ids: impl Iterator<Item = i64>) -> Vec<i32> {
    let mut gates: Vec<i32> = ids.map(gate_of).collect();
    // All transactions lock gates in the same order, which prevents deadlocks.
    gates.sort_unstable();
    gates.dedup();
    gates
}

/// Returns the statement that holds the gates of these matches open until the transaction ends. It is sent with
/// `begin`, where parameters cannot be bound, and contains only numbers.
pub fn hold_open(events: &[MatchId]) -> String {
    hold_open_in(CLASS, events.iter().map(|event| event.0))
}

/// Like [`hold_open`], for the questions with these ids. Gates of matches are held before.
pub fn hold_questions_open(questions: impl Iterator<Item = i64>) -> String {
    hold_open_in(QUESTION_CLASS, questions)
}

fn hold_open_in(class: i32, ids: impl Iterator<Item = i64>) -> String {
    let gates: Vec<String> = gates(ids).iter().map(i32::to_string).collect();
    format!(
        "select pg_advisory_xact_lock_shared({class}, gate) from unnest(array[{}]::integer[]) as g (gate)",
        gates.join(",")
    )
}

/// Closes the gates of these matches until the transaction ends. When this returns, every write made behind an open
/// gate is committed, with an earlier timestamp than any following statement.
pub async fn close(connection: &mut PgConnection, events: impl Iterator<Item = MatchId>) -> sqlx::Result<()> {
    close_in(connection, CLASS, events.map(|event| event.0)).await
}

/// Like [`close`], for the questions with these ids. Gates of matches are closed before.
pub async fn close_questions(connection: &mut PgConnection, questions: impl Iterator<Item = i64>) -> sqlx::Result<()> {
    close_in(connection, QUESTION_CLASS, questions).await
}

async fn close_in(connection: &mut PgConnection, class: i32, ids: impl Iterator<Item = i64>) -> sqlx::Result<()> {
    sqlx::query!("select pg_advisory_xact_lock($1, gate) from unnest($2::integer[]) as g (gate)", class, &gates(ids),)
        .fetch_all(connection)
        .await?;
    Ok(())
}
