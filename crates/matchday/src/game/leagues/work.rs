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
    chat::rooms::service::{RoomError, Rooms},
    identity::account_deletion::service::{DELETED, Deleted},
};

/// Work subject: bring the room of a league in step with the membership of a user.
pub const ROOM: &str = "work.league.room";

/// Age from which on a league without its room is planned again, because the queue may have lost the work.
const OVERDUE: time::Duration = time::Duration::minutes(5);

#[derive(Serialize, Deserialize)]
pub struct RoomWork {
    pub league_id: LeagueId,
    pub user_id: UserId,
}

/// Carries out the background work of leagues.
#[derive(Clone)]
pub struct LeagueWork {
    pub leagues: Leagues,
    pub rooms: Rooms,
}

impl LeagueWork {
    /// Describes the queue of rooms. The homeserver may be down for a day.
    pub fn rooms() -> WorkSpec {
        WorkSpec {
            attempts: 10_000,
            longest_pause: Duration::from_secs(30),
            ..WorkSpec::new("league_rooms", Stream::Work, ROOM)
        }
    }

    /// Describes the consumer of deleted accounts.
    pub fn deletions() -> WorkSpec {
        WorkSpec { begin: Begin::Now, attempts: 10_000, ..WorkSpec::new("league_deletions", Stream::Facts, DELETED) }
    }

    pub async fn perform(&self, delivery: Delivery) -> Result<(), Failure> {
        let RoomWork { league_id, user_id } =
            serde_json::from_slice(&delivery.payload).map_err(|error| Failure::GiveUp(error.into()))?;
        self.follow(league_id, user_id).await.map_err(Failure::retry)
    }

    pub async fn forget(&self, delivery: Delivery) -> Result<(), Failure> {
        let Deleted { user_id } =
            serde_json::from_slice(&delivery.payload).map_err(|error| Failure::GiveUp(error.into()))?;
        self.leagues.end_all(user_id).await.map_err(Failure::retry)
    }

    /// Creates the room of a league if it is missing, and lets a user join or leave it as they did the league.
    async fn follow(&self, league: LeagueId, user: UserId) -> Result<(), RoomWorkError> {
        let db = &self.leagues.inner.db;
        let Some(found) = store::find(db, user, league).await? else { return Ok(()) };
        if !found.has_chat {
            return Ok(());
        }
        let address = if let Some(address) = found.room {
            address
        } else {
            // The topic makes the request unique: an identical one within a short time would return the same room.
            let topic = format!("League {league}");
            let room = self.rooms.create_private(found.league.owner, &found.league.name, &topic).await?;
            store::set_room(db, league, room.id).await?;
            room.matrix_id.ok_or(RoomError::NotFound)?
        };
        let address = address.parse().map_err(|()| RoomError::NotFound)?;
        // A user who is muted, or has left chat, is a member of the league without being one of the room.
        let followed = if found.joined_at.is_some() {
            self.rooms.admit(user, &address).await
        } else {
            self.rooms.dismiss(user, &address).await
        };
        match followed {
            Err(RoomError::NotAllowed | RoomError::NotAMember | RoomError::Muted | RoomError::NoSuchUser) => Ok(()),
            followed => Ok(followed?),
        }
    }

    /// Plans rooms again that should exist by now. Returns how many.
    pub async fn plan_missing(&self) -> Result<usize, LeagueError> {
        let inner = &self.leagues.inner;
        let missing = store::without_room(&inner.db, inner.clock.now() - OVERDUE).await?;
        let mut tx = database::begin(&inner.db).await?;
        for &league in &missing {
            for (user, _) in store::members(&mut *tx, league).await? {
                let work = RoomWork { league_id: league, user_id: user };
                outbox::enqueue(&mut tx, &[Message::new(ROOM, format!("league:{league}"), &work)?]).await?;
            }
        }
        tx.commit().await?;
        if !missing.is_empty() {
            inner.outbox_written.notify_one();
        }
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
