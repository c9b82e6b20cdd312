//! Reserves seats in the stands of matches, for many users with one lock.
//!
//! Only one transaction at a time may hand out the seats of a match, over all processes. Users who join while such a
//! transaction runs wait in the queue of a batch writer, which has its own connection, and get their seats together in the
//! next one. A rush to a match therefore occupies no connection of the main pool.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use platform::{
    batches::{Attempt, Write},
    clock::Clock,
    random::Random,
};
use sqlx::{Connection as _, PgConnection};
use time::{Duration, OffsetDateTime};
use web::ids::{MatchId, RoomId, UserId};

use super::{
    making,
    service::RoomError,
    store::{self, Stand},
};
use crate::chat::members;

/// Number of writers, each with its own connection. Matches share them by hash.
pub(super) const WRITERS: usize = 2;

/// Number of users who may wait for a seat, for each writer.
pub(super) const WAITING: usize = 500;

/// Time for which a seat is reserved while the outcome of a join is unknown. By then, the homeserver has pushed the
/// join or it did not happen.
const KEPT_FOR: Duration = Duration::minutes(1);

/// Number of users who may be entering a stand before another one opens in a rush.
const ENTERING: i64 = 3;

pub(super) struct SeatWriter {
    pub(super) capacity: i64,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) random: Arc<dyn Random>,
}

/// Request for a seat in one of a match's stands.
#[derive(Clone, Copy)]
pub(super) struct SeatRequest {
    pub(super) user: UserId,
    pub(super) event: MatchId,
    /// Stand that the user prefers.
    pub(super) preferred: RoomId,
    /// Number of stands that take users at the same time.
    pub(super) in_parallel: u32,
}

pub(super) enum SeatOutcome {
    /// A seat in this room, with the number of the stand.
    Seat(RoomId, i32),
    /// The user is already in a stand of the match.
    AlreadyMember,
    NoSuchMatch,
}

/// Choice of a stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Choice {
    /// Position of the stand that takes the user; `None` for a new stand.
    position: Option<usize>,
    opens_another: bool,
}

impl Write for SeatWriter {
    type Entry = SeatRequest;
    /// User and match.
    type Key = (UserId, MatchId);
    type Outcome = SeatOutcome;

    const BATCHES: &'static str = "matchday_seat_batches_total";

    fn key(request: &SeatRequest) -> Option<(UserId, MatchId)> {
        Some((request.user, request.event))
    }

    async fn write(
        &self,
        connection: &mut PgConnection,
        requests: &[SeatRequest],
        _: Attempt,
    ) -> sqlx::Result<Vec<SeatOutcome>> {
        let now = self.clock.now();
        let mut matches: Vec<MatchId> = requests.iter().map(|request| request.event).collect();
        // All processes lock matches in the same order.
        matches.sort_unstable();
        matches.dedup();
        let mut tx = connection.begin_with("begin; set local lock_timeout = '1s'").await?;
        let mut outcomes = HashMap::new();
        for event in matches {
            let of: Vec<SeatRequest> = requests.iter().filter(|request| request.event == event).copied().collect();
            outcomes.extend(self.reserve(&mut tx, event, &of, now).await?);
        }
        tx.commit().await?;
        let outcome = |request: &SeatRequest| outcomes.remove(&(request.user, request.event));
        Ok(requests.iter().map(outcome).map(|outcome| outcome.unwrap_or(SeatOutcome::NoSuchMatch)).collect())
    }
}

impl SeatWriter {
    /// Reserves seats of one match, opening further stands if all are full.
    async fn reserve(
        &self,
        connection: &mut PgConnection,
        event: MatchId,
        requests: &[SeatRequest],
        now: OffsetDateTime,
    ) -> sqlx::Result<Vec<((UserId, MatchId), SeatOutcome)>> {
        store::lock_stands(connection, event).await?;
        let users: Vec<i64> = requests.iter().map(|request| request.user.0).collect();
        let members: HashSet<i64> = members::in_stands(&mut *connection, event, &users).await?.into_iter().collect();
        // A retry uses the seat that is already reserved.
        let kept: HashMap<UserId, (RoomId, i32)> = store::kept_seats(connection, &users, event, now).await?;
        let banned: HashSet<(UserId, RoomId)> = store::bans_from_stands(connection, &users, event).await?;
        let mut stands = store::stands(connection, event, now).await?;
        let (mut seats, mut outcomes) = (Vec::new(), Vec::new());
        for &SeatRequest { user, preferred, in_parallel, .. } in requests {
            let outcome = if members.contains(&user.0) {
                SeatOutcome::AlreadyMember
            } else if let Some(&(room, stand)) = kept.get(&user) {
                SeatOutcome::Seat(room, stand)
            } else {
                let may_enter = |stand: &Stand| !banned.contains(&(user, stand.room));
                let mut choice = self.choose(&stands, preferred, in_parallel, may_enter);
                if choice.opens_another
                    && let Some(stand) = self.open_stand(connection, event).await?
                {
                    stands.push(stand);
                    choice.position = choice.position.or(Some(stands.len() - 1));
                }
                let position = choice.position;
                match position.and_then(|position| stands.get_mut(position)) {
                    Some(stand) => {
                        stand.reserved += 1;
                        SeatOutcome::Seat(stand.room, stand.number)
                    }
                    None => SeatOutcome::NoSuchMatch,
                }
            };
            if let SeatOutcome::Seat(room, _) = outcome {
                seats.push((user, room));
            }
            outcomes.push(((user, event), outcome));
        }
        store::keep_seats(connection, event, &seats, now + KEPT_FOR).await?;
        Ok(outcomes)
    }

    /// Chooses the stand that takes the next user.
    ///
    /// The homeserver adds the members of a room one at a time. In a rush, several stands therefore take users, each time
    /// the one that the fewest users are entering. If users are entering all of them, another one opens in the background;
    /// users do not wait for it.
    fn choose(
        &self,
        stands: &[Stand],
        preferred: RoomId,
        in_parallel: u32,
        may_enter: impl Fn(&Stand) -> bool,
    ) -> Choice {
        let is_free = |stand: &Stand| stand.members + stand.reserved < self.capacity && may_enter(stand);
        let free = || stands.iter().enumerate().filter(|(_, stand)| is_free(stand));
        let first = || free().find(|(_, stand)| stand.is_open).or_else(|| free().next()).map(|(position, _)| position);
        if in_parallel <= 1 {
            let preferred = stands.iter().position(|stand| stand.room == preferred && is_free(stand));
            let position = preferred.or_else(first);
            return Choice { position, opens_another: position.is_none() };
        }
        let limit = usize::try_from(in_parallel).unwrap_or(usize::MAX);
        let open = free().filter(|(_, stand)| stand.is_open).take(limit);
        match open.min_by_key(|(_, stand)| stand.reserved) {
            Some((position, stand)) => {
                let opens_another = stand.reserved >= ENTERING && free().count() < limit;
                Choice { position: Some(position), opens_another }
            }
            None => Choice { position: first(), opens_another: first().is_none() },
        }
    }

    /// Opens another stand. Returns `None` if the match does not exist.
    async fn open_stand(&self, connection: &mut PgConnection, event: MatchId) -> sqlx::Result<Option<Stand>> {
        let number = store::last_stand(connection, event).await? + 1;
        match making::plan_stand(connection, &*self.random, &*self.clock, event, number).await {
            Ok(room) => {
                tracing::info!(event = event.0, stand = number, "stand opened");
                Ok(Some(Stand { room: room.id, number, members: 0, reserved: 0, is_open: false }))
            }
            Err(RoomError::NoSuchMatch) => Ok(None),
            Err(RoomError::Database(error)) => Err(error),
            Err(error) => Err(sqlx::Error::Encode(error.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;
    use crate::testing::{MockClock, SeededRandom};

    fn stand(room: i64, members: i64, reserved: i64) -> Stand {
        Stand { room: RoomId(room), number: 1, members, reserved, is_open: true }
    }

    fn unopened(room: i64, reserved: i64) -> Stand {
        Stand { is_open: false, ..stand(room, 0, reserved) }
    }

    /// Position of the chosen stand, and whether another one opens.
    fn choose(stands: &[Stand], preferred: i64, in_parallel: u32) -> (Option<usize>, bool) {
        let clock = Arc::new(MockClock::at(datetime!(2026-11-20 15:00 UTC)));
        let writer = SeatWriter { capacity: 10, clock, random: Arc::new(SeededRandom::new(1)) };
        let choice = writer.choose(stands, RoomId(preferred), in_parallel, |stand| stand.room != RoomId(9));
        (choice.position, choice.opens_another)
    }

    #[test]
    fn one_stand_fills_after_the_other() {
        let stands = [stand(1, 8, 2), stand(2, 3, 5), stand(3, 0, 0)];
        assert_eq!(choose(&stands, 1, 1), (Some(1), false), "the first is full");
        assert_eq!(choose(&stands, 3, 1), (Some(2), false), "the preferred one has a seat");
        assert_eq!(choose(&stands[..1], 1, 1), (None, true), "another one must open");
        assert_eq!(choose(&[stand(9, 0, 0)], 9, 1), (None, true), "the user is banned");
        assert_eq!(choose(&[stand(1, 8, 2), unopened(2, 1)], 1, 1), (Some(1), false), "it is being created");
        assert_eq!(choose(&[stand(1, 8, 2), unopened(2, 1), stand(3, 0, 0)], 1, 1), (Some(2), false), "no wait");
    }

    #[test]
    fn rush_fills_several_stands() {
        assert_eq!(choose(&[stand(1, 2, 5), stand(2, 0, 1)], 1, 2), (Some(1), false), "fewer are entering the second");
        assert_eq!(choose(&[stand(1, 2, 3)], 1, 2), (Some(0), true), "another one opens");
        assert_eq!(choose(&[stand(1, 2, 5), unopened(2, 0)], 1, 2), (Some(0), false), "it is being created");
        assert_eq!(choose(&[stand(1, 2, 2)], 1, 2), (Some(0), false), "not yet");
        assert_eq!(choose(&[stand(1, 2, 4), stand(2, 0, 5)], 1, 2), (Some(0), false), "no more than two");
        assert_eq!(choose(&[stand(1, 10, 0), stand(2, 2, 3)], 1, 2), (Some(1), true), "a full stand does not count");
        assert_eq!(choose(&[stand(1, 10, 0), unopened(2, 3)], 1, 2), (Some(1), false), "there is no other seat");
        assert_eq!(choose(&[stand(1, 10, 0)], 1, 2), (None, true), "another one must open");
    }
}
