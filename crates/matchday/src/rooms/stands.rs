//! A match's own rooms hold so many and no more: the next one gets a place in a further stand. A place is taken before
//! the homeserver is asked, so that two who come at once never both get the last one.

use time::Duration;
use web::ids::{EventId, RoomId, UserId};

use super::{
    service::{Joined, Room, RoomError, Rooms, address_of},
    store::{self, Stand},
};
use crate::accounts::service::Account;

/// How long a place is kept for somebody whose joining has no outcome yet. By then the homeserver has pushed that they
/// came, or they did not.
const KEPT_FOR: Duration = Duration::minutes(1);

impl Rooms {
    /// Joins the stand that was asked for if there is a place in it, or else another one of the same match.
    pub(super) async fn join_match(
        &self,
        account: &Account,
        event: EventId,
        asked: &Room,
    ) -> Result<Joined, RoomError> {
        let (room, stand) = self.take_seat(account.id, event, asked.id).await?;
        let joined = self.fill_seat(account, room).await;
        match joined {
            Ok(matrix_id) => Ok(Joined { matrix_id, other_stand: (room != asked.id).then_some(stand) }),
            // They will not come; the place is free. After any other failure they may have come all the same.
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

    /// Takes a place in one of a match's stands, opening a further one if all are full.
    async fn take_seat(&self, user: UserId, event: EventId, asked: RoomId) -> Result<(RoomId, i32), RoomError> {
        let (db, now) = (&self.inner.db, self.inner.clock.now());
        let mut tx = db.begin().await?;
        store::lock_stands(&mut tx, event).await?;
        if store::is_in_a_stand(&mut tx, user, event).await? {
            return Err(RoomError::AlreadyMember);
        }
        // Somebody who tries again goes where they were going.
        let seat = if let Some(kept) = store::kept_seat(&mut tx, user, event, now).await? {
            kept
        } else {
            let stands = store::stands(&mut tx, event, user, now).await?;
            let has_place = |stand: &&Stand| stand.taken < self.inner.capacity;
            let asked_for = stands.iter().find(|stand| stand.room == asked);
            if let Some(free) = asked_for.filter(has_place).or_else(|| stands.iter().find(has_place)) {
                (free.room, free.number)
            } else {
                let next = store::last_stand(&mut tx, event).await? + 1;
                tracing::info!(event = event.0, stand = next, "a further stand is opened");
                (self.plan_stand_in(&mut tx, event, next).await?.id, next)
            }
        };
        store::keep_seat(&mut tx, user, event, seat.0, now + KEPT_FOR).await?;
        tx.commit().await?;
        Ok(seat)
    }
}
