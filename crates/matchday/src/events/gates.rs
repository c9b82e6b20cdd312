//! The gates of matches: predictions hold them open, and whoever changes when a match starts, whether it has, or what
//! came of it closes them.
//!
//! A gate is an advisory lock, shared by those who predict. Locking the match's row instead would do the same, but a row
//! that is always held by somebody is never given to who waits to write it, and writes each holder down on the hottest
//! page of the evening; a lock of this kind queues.

use sqlx::PgConnection;
use web::ids::EventId;

/// The first half of the key, so that nobody else's locks are met: `gate` in ASCII.
pub const CLASS: i32 = 0x6761_7465;

/// How many gates there are: an import of a whole season takes no more locks than this. While a gate is closed, whatever
/// is in a batch with one of its matches waits too, so imports close gates as late as they can.
const GATES: i64 = 1_024;

/// The second half: the gate of a match.
pub fn gate(event: EventId) -> i32 {
    i32::try_from(event.0.rem_euclid(GATES)).unwrap_or_default()
}

fn gates(events: impl Iterator<Item = EventId>) -> Vec<i32> {
    let mut gates: Vec<i32> = events.map(gate).collect();
    // Everybody takes them in the same order.
    gates.sort_unstable();
    gates.dedup();
    gates
}

/// The statement that holds the gates of these matches open until the transaction ends. It goes where nothing can be
/// bound, and holds numbers only.
pub fn hold_open(events: &[EventId]) -> String {
    let gates: Vec<String> = gates(events.iter().copied()).iter().map(i32::to_string).collect();
    format!(
        "select pg_advisory_xact_lock_shared({CLASS}, gate) from unnest(array[{}]::integer[]) as g (gate)",
        gates.join(",")
    )
}

/// Closes the gates of these matches until the transaction ends. Everything that was written while they were open is
/// committed when this returns, and shows an earlier time than any statement that follows.
pub async fn close(connection: &mut PgConnection, events: impl Iterator<Item = EventId>) -> sqlx::Result<()> {
    sqlx::query!(
        "select pg_advisory_xact_lock($1, gate) from unnest($2::integer[]) as g (gate)",
        CLASS,
        &gates(events),
    )
    .fetch_all(connection)
    .await?;
    Ok(())
}
