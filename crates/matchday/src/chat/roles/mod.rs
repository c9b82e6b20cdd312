//! Roles of members in a room: moderators, members who are muted there, and turns in slow mode. `room_moderation` decides
//! who changes them. Power levels on the homeserver follow these tables.

mod store;
#[cfg(test)]
mod tests;

use std::time::Duration;

use platform::outbox::{self, Message};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use time::OffsetDateTime;
use web::ids::{RoomId, UserId};

pub use self::store::RoomMute;
pub(crate) use self::store::{
    appoint, confirm_turn, count_moderators, ended_mutes, is_moderator, lock_room, moderated_or_muted, moderators,
    mute, muted_until, mutes, note_powers, powers_version, return_turn, set_slow_mode, sweep_turns, unmute,
};

/// Subject of changed power levels.
pub const POWERS: &str = "work.room.powers";

/// Power level of moderators and of the creator of a room.
pub const MODERATOR_LEVEL: i64 = 50;

/// Power level of muted members, who must not send messages.
pub const MUTED_LEVEL: i64 = -1;

/// A room whose power levels have changed.
#[derive(Debug, Serialize, Deserialize)]
pub struct PowersChanged {
    pub room_id: RoomId,
}

/// Outcome of asking for a turn in slow mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    Taken,
    /// The member may write again after this time.
    Wait(Duration),
}

/// Notes in the caller's transaction that the power levels of a room have changed, and wakes their worker.
pub(crate) async fn change_powers_in(connection: &mut PgConnection, room: RoomId) -> sqlx::Result<()> {
    store::increment_powers(connection, room).await?;
    let message = Message::new(POWERS, format!("room:{}", room.0), &PowersChanged { room_id: room });
    outbox::enqueue(connection, &[message.map_err(|error| sqlx::Error::Encode(error.into()))?]).await
}

/// Dismisses a moderator in the caller's transaction. Returns whether the user was one.
pub(crate) async fn dismiss_in(connection: &mut PgConnection, room: RoomId, user: UserId) -> sqlx::Result<bool> {
    let was_moderator = store::dismiss(connection, room, user).await?;
    if was_moderator {
        change_powers_in(connection, room).await?;
    }
    Ok(was_moderator)
}

/// Takes the turn of a member for a message that a request sends. The request, by its key, may take its turn again.
pub(crate) async fn take_turn(
    connection: &mut PgConnection,
    room: RoomId,
    user: UserId,
    period: Duration,
    request: &[u8],
    now: OffsetDateTime,
) -> sqlx::Result<Turn> {
    if store::take_turn(connection, room, user, period, request, now).await? {
        return Ok(Turn::Taken);
    }
    let last = store::last_turn(connection, room, user).await?;
    let left = last.map_or(time::Duration::ZERO, |last| last + period - now);
    Ok(Turn::Wait(Duration::try_from(left).unwrap_or_default().clamp(Duration::from_secs(1), period)))
}

/// Takes the turn of a member for a message that the homeserver pushed. Returns whether the message is allowed: also if
/// the turn was taken for it before.
pub(crate) async fn take_pushed_turn(
    connection: &mut PgConnection,
    room: RoomId,
    user: UserId,
    period: Duration,
    event_id: &str,
    sent_at: OffsetDateTime,
) -> sqlx::Result<bool> {
    store::take_pushed_turn(connection, room, user, period, event_id, sent_at).await
}
