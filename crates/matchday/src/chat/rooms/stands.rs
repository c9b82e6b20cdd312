//! Capacity of match rooms: when a stand is full, the next member gets a seat in another stand. The seat is reserved
//! before the call to the homeserver, so that two concurrent joins never get the same last seat.

use platform::{batches::BatchError, database};
use web::ids::{MatchId, RoomId};

use super::{
    joining::CALL_PATIENCE,
    seats::{SeatOutcome, SeatRequest},
    service::{Joined, Room, RoomError, Rooms, address_of},
    store,
};
use crate::identity::accounts::service::Account;

impl Rooms {
    /// Joins the requested stand if it has a free seat, or else another stand of the same match.
    pub(super) async fn join_match(
        &self,
        account: &Account,
        event: MatchId,
        requested: &Room,
    ) -> Result<Joined, RoomError> {
        let in_parallel = self.line(requested).rooms_needed(self.inner.parallel_stands);
        let request = SeatRequest { user: account.id, event, preferred: requested.id, in_parallel };
        let (room, stand) = self.take_seat(request).await?;
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
        self.enter(account, room, &address_of(&matrix_id)?, CALL_PATIENCE).await?;
        Ok(matrix_id)
    }

    /// Reserves a seat in one of a match's stands, opening another stand if all are full.
    async fn take_seat(&self, request: SeatRequest) -> Result<(RoomId, i32), RoomError> {
        // The writer is chosen by the match, so that requests for the same match share a transaction.
        match self.inner.seats.write(request.event.0, request).await {
            Ok(SeatOutcome::Seat(room, stand)) => Ok((room, stand)),
            Ok(SeatOutcome::AlreadyMember) => Err(RoomError::AlreadyMember),
            Ok(SeatOutcome::NoSuchMatch) => Err(RoomError::NoSuchMatch),
            Err(BatchError::Overloaded) => Err(RoomError::Busy { retry_after: self.spread_delay() }),
            // Another process holds the lock of the match.
            Err(BatchError::Database(error)) if database::is_conflict(&error) => {
                Err(RoomError::Busy { retry_after: self.spread_delay() })
            }
            Err(error) => Err(error.into()),
        }
    }
}
