//! Plans the removal of messages. `removals` carries it out, and shows it to operators.

use platform::outbox::{self, Message};
use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;
use web::ids::RoomId;

/// Subject of planned removals.
pub const PLANNED: &str = "work.removal.planned";

/// Name in the audit record of removals that the service decides on.
pub const SERVICE: &str = "matchday";

/// Cause of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The sender removed the message.
    Sender,
    Moderator,
    Operator,
    Filter,
    Classifier,
    /// The sender wrote again too soon.
    SlowMode,
}

impl Source {
    /// Value of the `source` column.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sender => "sender",
            Self::Moderator => "moderator",
            Self::Operator => "operator",
            Self::Filter => "filter",
            Self::Classifier => "classifier",
            Self::SlowMode => "slow_mode",
        }
    }
}

/// A message to remove.
#[derive(Clone, Debug)]
pub struct Removal {
    /// The homeserver's id of the room.
    pub matrix_room: String,
    /// The homeserver's id of the message.
    pub event_id: String,
    /// Matrix id of the sender.
    pub sender: String,
    pub source: Source,
    /// As in the audit record: an operator, `user:<id>`, or [`SERVICE`].
    pub removed_by: String,
    /// Must not contain text of the message.
    pub reason: String,
    /// The sender is muted in the whole service for this time.
    pub mute_seconds: Option<i32>,
}

/// Work for the consumer of [`PLANNED`].
#[derive(Debug, Serialize, Deserialize)]
pub struct PlannedRemoval {
    pub room_id: RoomId,
    pub event_id: String,
}

/// Reason why removals were not planned.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// An outbox message could not be serialised.
    #[error(transparent)]
    Message(#[from] serde_json::Error),
}

/// Whether a message is removed, or about to be.
pub async fn is_planned(executor: impl PgExecutor<'_>, matrix_room: &str, event_id: &str) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"select exists (select 1 from removals m join rooms r on r.id = m.room_id
                          where r.matrix_id = $1 and m.event_id = $2) as "is_planned!""#,
        matrix_room,
        event_id,
    )
    .fetch_one(executor)
    .await
}

/// Plans removals in the caller's transaction, and wakes their worker through the outbox. Skips messages whose removal is
/// planned already, and rooms that the service does not manage. Returns the new removals.
pub async fn plan_in(
    connection: &mut PgConnection,
    removals: &[Removal],
    now: OffsetDateTime,
) -> Result<Vec<PlannedRemoval>, PlanError> {
    if removals.is_empty() {
        return Ok(Vec::new());
    }
    let column = |read: fn(&Removal) -> &str| removals.iter().map(read).collect::<Vec<_>>();
    let new = sqlx::query_as!(
        PlannedRemoval,
        r#"insert into removals (room_id, event_id, sender, source, removed_by, reason, mute_seconds, planned_at)
           select distinct on (r.id, p.event_id)
                  r.id, p.event_id, p.sender, p.source, p.removed_by, p.reason, p.mute_seconds, $8::timestamptz
           from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::integer[])
             as p (matrix_room, event_id, sender, source, removed_by, reason, mute_seconds)
           join rooms r on r.matrix_id = p.matrix_room
           on conflict (room_id, event_id) do nothing
           returning room_id as "room_id: RoomId", event_id"#,
        &column(|removal| &removal.matrix_room) as &[&str],
        &column(|removal| &removal.event_id) as &[&str],
        &column(|removal| &removal.sender) as &[&str],
        &column(|removal| removal.source.name()) as &[&str],
        &column(|removal| &removal.removed_by) as &[&str],
        &column(|removal| &removal.reason) as &[&str],
        &removals.iter().map(|removal| removal.mute_seconds).collect::<Vec<_>>() as &[Option<i32>],
        now,
    )
    .fetch_all(&mut *connection)
    .await?;
    let messages: Vec<Message> = new
        .iter()
        .map(|removal| Message::new(PLANNED, format!("room:{}", removal.room_id.0), removal))
        .collect::<Result<_, _>>()?;
    outbox::enqueue(connection, &messages).await?;
    Ok(new)
}
