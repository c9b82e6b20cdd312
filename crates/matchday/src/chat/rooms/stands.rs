//! Capacity of match rooms: when a stand is full, the next member gets a seat in another stand. The seat is reserved
//! before the call to the homeserver, so that two concurrent joins never get the same last seat.

use time::Duration;
use web::ids::{MatchId, RoomId, UserId};

use super::{
    service::{Joined, Room, RoomError, Rooms, address_of},
    store::{self, Stand},
};
use crate::identity::accounts::service::Account;

/// Time for which a seat is reserved while the outcome of a join is unknown. By then, the homeserver has pushed the
/// join or it did not happen.
const KEPT_FOR: Duration = Duration::minutes(1);

impl Rooms {
    /// Joins the requested stand if it has a free seat, or else another stand of the same match.
    pub(super) async fn join_match(
        &self,
        account: &Account,
        event: MatchId,
        requested: &Room,
    ) -> Result<Joined, RoomError> {
        let (room, stand) = self.take_seat(account.id, event, requested.id).await?;
        let joined = self.fill_seat(account, room).await;
        match joined {
            Ok(matrix_id) => Ok(Joined { matrix_id, other_stand: (room != requested.id).then_some(stand) }),
            // The user will not join, so the seat is released. After any other error the join may have happened.
            Err(error @ (RoomError::NotAllowed | RoomError::Muted)) => {
                store::free_seat(&self.inner.db, account.id, event).await?;
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    async fn fill_seat(&self, account: &Account, room: RoomId) -> Result<String, RoomError> {
        let matrix_id = self.made(room).await?;
        self.enter(account, room, &address_of(&matrix_id)?).await?;
        Ok(matrix_id)
    }

    /// Reserves a seat in one of a match's stands, opening another stand if all are full.
    async fn take_seat(&self, user: UserId, event: MatchId, requested: RoomId) -> Result<(RoomId, i32), RoomError> {
        let (db, now) = (&self.inner.db, self.inner.clock.now());
        let mut tx = platform::database::begin(db).await?;
        store::lock_stands(&mut tx, event).await?;
        if store::is_in_a_stand(&mut tx, user, event).await? {
            return Err(RoomError::AlreadyMember);
        }
        // A retry uses the seat that is already reserved.
        let seat = if let Some(kept) = store::kept_seat(&mut tx, user, event, now).await? {
            kept
        } else {
            let stands = store::stands(&mut tx, event, user, now).await?;
            let has_place = |stand: &&Stand| stand.taken < self.inner.capacity;
            let preferred = stands.iter().find(|stand| stand.room == requested);
            if let Some(free) = preferred.filter(has_place).or_else(|| stands.iter().find(has_place)) {
                (free.room, free.number)
            } else {
                let next = store::last_stand(&mut tx, event).await? + 1;
                tracing::info!(event = event.0, stand = next, "stand opened");
                (self.plan_stand_in(&mut tx, event, next).await?.id, next)
            }
        };
        store::keep_seat(&mut tx, user, event, seat.0, now + KEPT_FOR).await?;
        tx.commit().await?;
        Ok(seat)
    }
}
