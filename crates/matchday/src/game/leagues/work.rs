//! Background work of leagues: chat rooms follow the members, and deleted accounts leave.

use std::time::Duration;

use platform::{
    database,
    outbox::{self, Message},
    stream::{Begin, Delivery, Failure, Stream, WorkSpec},
};
use serde::{Deserialize, Serialize};
use web::ids::{LeagueId, UserId};

use super::{
    service::{LeagueError, Leagues},
    store,
};
use crate::{
    chat::rooms::{
        RoomAddress,
        service::{RoomError, Rooms},
    },
    identity::account_deletion::service::{DELETED, Deleted},
};

/// Work subject: bring the room of a league in step with the membership of a user.
pub const ROOM: &str = "work.league.room";

/// Age from which on a league without its room is planned again, because the queue may have lost the work.
const OVERDUE: time::Duration = time::Duration::minutes(5);

/// Number of league rooms of one creator. Leagues can be created and deleted again and again, but their rooms stay on the
/// homeserver.
pub(super) const MOST_ROOMS: i64 = 200;

#[derive(Serialize, Deserialize)]
pub struct RoomWork {
    pub league_id: LeagueId,
    /// `None`: all members.
    pub user_id: Option<UserId>,
}

/// Carries out the background work of leagues.
#[derive(Clone)]
pub struct LeagueWork {
    pub leagues: Leagues,
    pub rooms: Rooms,
}

impl LeagueWork {
    /// Describes the queue of rooms.
    pub fn rooms() -> WorkSpec {
        WorkSpec { longest_pause: Duration::from_secs(30), ..WorkSpec::new("league_rooms", Stream::Work, ROOM) }
    }

    /// Describes the consumer of deleted accounts.
    pub fn deletions() -> WorkSpec {
        WorkSpec { begin: Begin::Now, ..WorkSpec::new("league_deletions", Stream::Facts, DELETED) }
    }

    /// Handles one message. Without a homeserver, leagues have no rooms; they get them after chat is enabled.
    pub async fn perform(&self, delivery: Delivery) -> Result<(), Failure> {
        let RoomWork { league_id, user_id } =
            serde_json::from_slice(&delivery.payload).map_err(|error| Failure::GiveUp(error.into()))?;
        if !self.rooms.has_homeserver() {
            return Ok(());
        }
        self.follow(league_id, user_id).await.map_err(|error| match error {
            RoomWorkError::Room(error) if error.is_final() => Failure::GiveUp(error.into()),
            error => Failure::retry(error),
        })
    }

    pub async fn forget(&self, delivery: Delivery) -> Result<(), Failure> {
        let Deleted { user_id } =
            serde_json::from_slice(&delivery.payload).map_err(|error| Failure::GiveUp(error.into()))?;
        self.leagues.end_all(user_id).await.map_err(Failure::retry)
    }

    /// Creates the room of a league if it is missing, and lets users join or leave it as they did the league.
    async fn follow(&self, league: LeagueId, user: Option<UserId>) -> Result<(), RoomWorkError> {
        let Some(room) = self.room(league).await? else { return Ok(()) };
        let members = match user {
            Some(user) => vec![user],
            None => store::members(&self.leagues.inner.db, league).await?.into_iter().map(|(user, _)| user).collect(),
        };
        let mut refusal = Ok(());
        for user in members {
            match self.follow_member(league, user, &room).await {
                // The others still join.
                Err(RoomWorkError::Room(error)) if error.is_final() => refusal = Err(error.into()),
                followed => followed?,
            }
        }
        refusal
    }

    /// The room of a league, after creating it if it is missing. Also of a deleted league, which its last member has left.
    async fn room(&self, league: LeagueId) -> Result<Option<RoomAddress>, RoomWorkError> {
        if let Some(room) = self.rooms.of_league(league).await? {
            return Ok(Some(room));
        }
        let mut tx = database::begin(&self.leagues.inner.db).await?;
        // The owner cannot change until the room has its creator.
        let Some((owner, _)) = store::lock(&mut tx, league).await? else { return Ok(None) };
        let Some(found) = store::find(&mut *tx, owner, league).await?.filter(|found| found.has_chat) else {
            return Ok(None);
        };
        if self.rooms.count_league_rooms(&mut tx, owner, league).await? >= MOST_ROOMS {
            tracing::warn!(league = league.0, owner = owner.0, "league gets no chat room: its owner has too many");
            return Ok(None);
        }
        let room = self.rooms.plan_league_in(&mut tx, league, owner, &found.league.name).await?;
        tx.commit().await?;
        self.leagues.inner.outbox_written.notify_one();
        Ok(Some(self.rooms.make_planned(room).await?))
    }

    async fn follow_member(&self, league: LeagueId, user: UserId, room: &RoomAddress) -> Result<(), RoomWorkError> {
        let db = &self.leagues.inner.db;
        let mut is_member = store::is_member(db, league, user).await?;
        loop {
            let followed =
                if is_member { self.rooms.admit(user, room).await } else { self.rooms.dismiss(user, room).await };
            match followed {
                // A user who is muted, banned from the room, or has left the service, is not in the room.
                Err(RoomError::NotAllowed | RoomError::NotAMember | RoomError::Muted | RoomError::NoSuchUser) => {}
                followed => followed?,
            }
            // The work for a change in the meantime may have found nothing to do, because this work was not done yet.
            let was_member = std::mem::replace(&mut is_member, store::is_member(db, league, user).await?);
            if is_member == was_member {
                return Ok(());
            }
        }
    }

    /// Plans rooms again that should exist by now, with one message for each. Returns how many. Call it only when the queue
    /// is idle; otherwise the work may still be queued. Without a homeserver, the work would do nothing.
    pub async fn plan_missing(&self) -> Result<usize, LeagueError> {
        if !self.rooms.has_homeserver() {
            return Ok(0);
        }
        let inner = &self.leagues.inner;
        let missing = store::without_room(&inner.db, inner.clock.now() - OVERDUE, MOST_ROOMS).await?;
        let message = |&league: &LeagueId| {
            Message::new(ROOM, format!("league:{league}"), &RoomWork { league_id: league, user_id: None })
        };
        let messages = missing.iter().map(message).collect::<Result<Vec<_>, _>>()?;
        let mut tx = database::begin(&inner.db).await?;
        outbox::enqueue(&mut tx, &messages).await?;
        tx.commit().await?;
        inner.outbox_written.notify_one();
        Ok(missing.len())
    }
}

/// Reason why a room could not follow its league.
#[derive(Debug, thiserror::Error)]
enum RoomWorkError {
    #[error(transparent)]
    Room(#[from] RoomError),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}
