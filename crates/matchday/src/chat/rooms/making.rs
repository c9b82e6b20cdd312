//! Creating rooms: plans match rooms, creates requested ones, resumes interrupted creations and removes abandoned ones.

use std::time::Duration;

use futures_util::future::BoxFuture;
use matrix_appservice::{Error as MatrixError, IncompleteRoom, NewRoom};
use platform::{
    clock::Clock,
    outbox::{self, Message},
    random::{self, Random},
    telemetry,
};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use time::OffsetDateTime;
use web::ids::{MatchId, RoomId, TeamId, TournamentId, UserId};

use super::{
    rules::MatchLabel,
    service::{Room, RoomError, RoomRequest, Rooms, address_of},
    store::{self, MatchRow, NewRow},
};
use crate::{
    catalogue::{
        fixtures::hooks::{HookError, MatchRooms},
        matches::rules::Status,
    },
    identity::accounts,
};

/// Subject of rooms that a worker must create.
pub const PLANNED: &str = "work.room.planned";
/// Subject of rooms whose match has a new name or time.
pub const MOVED: &str = "work.room.moved";
/// Subject of matches whose room has opened.
pub const OPENED: &str = "fact.event.room_opened";

/// Duration of a claim on the creation of a room. When it expires, another process may try.
const MAKING: time::Duration = time::Duration::seconds(30);

/// Age at which an incomplete room (an alias without the bot) is replaced. By then, the homeserver is certainly no
/// longer creating it.
const CERTAINLY_OVER: time::Duration = time::Duration::minutes(2);

/// Number of rooms that a user may create. Rooms are never closed, and each takes memory on the homeserver.
const MOST_ROOMS: i64 = 100;

/// Time for which an identical request of the same user returns the same room. Covers double taps and lost responses.
const SAME_WISH_FOR: time::Duration = time::Duration::minutes(1);

/// Time for which a user can retry a failed creation and still get the same room.
const KEPT_FOR_ANOTHER_TRY: time::Duration = time::Duration::minutes(10);

/// Time for which the work for a planned room may still be in the outbox. The backlog of the workers does not include
/// it there.
const ON_ITS_WAY: time::Duration = time::Duration::minutes(10);

#[derive(Serialize, Deserialize)]
pub(super) struct RoomWork {
    pub(super) room_id: RoomId,
}

#[derive(Serialize)]
struct RoomOpened {
    event_id: MatchId,
}

impl MatchRooms for Rooms {
    fn plan_in<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        tournament: TournamentId,
        teams: &'a [TeamId],
    ) -> BoxFuture<'a, Result<usize, HookError>> {
        Box::pin(async move { Ok(self.plan_matches_in(connection, tournament, teams).await?) })
    }
}

impl Rooms {
    /// Creates a room and joins its creator. An identical request returns the same room while the creation runs, after
    /// it failed, and shortly after it succeeded.
    pub async fn create(&self, user: UserId, wish: &RoomRequest) -> Result<Room, RoomError> {
        let inner = &*self.inner;
        if let Some(event) = wish.event_id
            && inner.events.find(event).await?.is_none()
        {
            return Err(RoomError::NoSuchMatch);
        }
        self.speaker(user).await?;
        let alias = self.fresh_alias("room");
        let row = NewRow {
            alias: &alias,
            name: wish.name.as_str(),
            topic: wish.topic.as_str(),
            event_id: wish.event_id,
            stand: None,
            creator_id: Some(user),
            is_private: wish.is_private,
            league_id: None,
        };
        let now = inner.clock.now();
        let mut tx = platform::database::begin(&inner.db).await?;
        // Requests of one user run one after the other, so that the second of two identical requests finds the first.
        accounts::lock(&mut tx, user).await?;
        let room = if let Some(begun) = store::same_wish(&mut tx, &row, now - SAME_WISH_FOR).await? {
            begun
        } else {
            if store::count_of_creator(&mut *tx, user).await? >= MOST_ROOMS {
                return Err(RoomError::TooMany);
            }
            let mut made = store::insert(&mut tx, &[row], now, now).await?;
            made.pop().ok_or(sqlx::Error::RowNotFound)?.id
        };
        tx.commit().await?;
        // Runs in a task that outlives the request: a client that disconnects leaves a complete room.
        let making = self.clone();
        let making = async move { making.made(room).await };
        tokio::spawn(telemetry::in_this_request(making))
            .await
            .map_err(|_| RoomError::Chat("the creation was interrupted".to_owned()))??;
        store::get(&inner.db, room).await?.ok_or(RoomError::NotFound)
    }

    /// Creates a room whose claim lasts until `claimed_until`, and releases the claim on failure.
    async fn make_claimed(&self, room: &Room, claimed_until: OffsetDateTime) -> Result<String, RoomError> {
        let outcome = self.make(room).await;
        if outcome.is_err() {
            let inner = &*self.inner;
            if let Err(error) = store::release(&inner.db, room.id, claimed_until, inner.clock.now()).await {
                tracing::warn!(%error, room = room.id.0, "claim on room creation was not released and will expire");
            }
        }
        outcome
    }

    /// Creates a room on the homeserver and opens it. Every step is idempotent.
    async fn make(&self, room: &Room) -> Result<String, RoomError> {
        let inner = &*self.inner;
        let homeserver = self.homeserver()?;
        inner.bot.get_or_try_init(|| homeserver.ensure_bot()).await?;
        // The members of a league join their room one by one, its owner too.
        let creator = match room.creator_id.filter(|_| room.league_id.is_none()) {
            Some(user) => Some(inner.chat.account(user).await?),
            None => None,
        };
        let wanted = NewRoom {
            alias: &room.alias,
            name: &room.name,
            topic: &room.topic,
            private: room.is_private,
            bot_invites: room.league_id.is_some(),
            moderator: creator.as_ref().map(|account| account.username.as_str()),
        };
        let now = inner.clock.now();
        let expired = room.half_made_at.is_some_and(|since| now - since > CERTAINLY_OVER);
        let half_made = if expired { IncompleteRoom::Discard } else { IncompleteRoom::Wait };
        let matrix_id = match homeserver.ensure_room(&wanted, half_made).await {
            Err(error @ MatrixError::IncompleteRoom(_)) => {
                store::note_half_made(&inner.db, room.id, now).await?;
                return Err(error.into());
            }
            outcome => outcome?,
        };
        store::set_matrix_id(&inner.db, room.id, matrix_id.as_str()).await?;
        if let Some(creator) = &creator {
            if room.is_private {
                homeserver.invite(&matrix_id, None, creator.username.as_str()).await?;
            }
            self.enter_patiently(creator, room, &matrix_id).await?;
        }
        if room.league_id.is_some() {
            self.apply_powers(room.id).await?;
        }
        let mut tx = platform::database::begin(&inner.db).await?;
        let opened = store::open(&mut tx, room.id, inner.clock.now()).await?;
        // A match shows only its first room.
        if let (true, Some(event_id), Some(1)) = (opened, room.event_id, room.stand) {
            let message = Message::new(OPENED, format!("event:{event_id}"), &RoomOpened { event_id })?;
            outbox::enqueue(&mut tx, &[message]).await?;
        }
        tx.commit().await?;
        inner.events.mark_stale();
        inner.outbox_written.notify_one();
        metrics::counter!("matchday_rooms_opened_total").increment(u64::from(opened));
        // The match may have changed while its room was created with the old name. The worker for that change found no
        // room to rename.
        let current = store::get(&inner.db, room.id).await?.ok_or(RoomError::NotFound)?;
        if room.stand.is_some() && (&current.name, &current.topic) != (&room.name, &room.topic) {
            self.describe(room.id).await?;
        }
        Ok(matrix_id.to_string())
    }

    /// Returns the homeserver's id of a room, after creating the room if necessary.
    pub(super) async fn made(&self, room: RoomId) -> Result<String, RoomError> {
        let inner = &*self.inner;
        let began = std::time::Instant::now();
        loop {
            let current = store::get(&inner.db, room).await?.ok_or(RoomError::NotFound)?;
            if let (Some(matrix_id), Some(_)) = (&current.matrix_id, current.opened_at) {
                return Ok(matrix_id.clone());
            }
            let now = inner.clock.now();
            if store::claim(&inner.db, room, now, now + MAKING).await? {
                return self.make_claimed(&current, now + MAKING).await;
            }
            // Another process holds the claim.
            if began.elapsed() > inner.patience {
                return Err(RoomError::Slow);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Plans rooms for matches without one and renames rooms whose match has a new name or time, in the caller's
    /// transaction. `teams` are renamed teams; the rooms of their matches in other tournaments are included. Returns
    /// the number of rooms to create, which is 0 if chat is disabled.
    async fn plan_matches_in(
        &self,
        connection: &mut PgConnection,
        tournament: TournamentId,
        teams: &[TeamId],
    ) -> Result<usize, RoomError> {
        if self.inner.chat.homeserver().is_none() {
            return Ok(0);
        }
        let planned = self.plan_missing_in(connection, Some(tournament)).await?;
        let mut messages = Vec::new();
        let teams: Vec<i64> = teams.iter().map(|team| team.0).collect();
        for stand in store::stands_of(connection, tournament, &teams).await? {
            let (name, topic) = (words(&stand.of)?.name(stand.stand), words(&stand.of)?.topic());
            if (&name, &topic) != (&stand.name, &stand.topic) {
                store::rename(connection, stand.id, &name, &topic).await?;
                messages.push(room_message(MOVED, stand.id)?);
            }
        }
        outbox::enqueue(connection, &messages).await?;
        Ok(planned)
    }

    /// Plans rooms for all matches without one, for example after chat was enabled.
    pub async fn plan_missing(&self) -> Result<usize, RoomError> {
        let inner = &*self.inner;
        if inner.chat.homeserver().is_none() {
            return Ok(0);
        }
        let mut tx = platform::database::begin(&inner.db).await?;
        let planned = self.plan_missing_in(&mut tx, None).await?;
        tx.commit().await?;
        inner.outbox_written.notify_one();
        Ok(planned)
    }

    /// Plans stands again whose work was lost or given up, and returns their number. Call it only when the workers have
    /// no backlog; otherwise the work may still be queued.
    pub async fn plan_unmade(&self) -> Result<usize, RoomError> {
        let inner = &*self.inner;
        let now = inner.clock.now();
        let mut tx = platform::database::begin(&inner.db).await?;
        let unmade = store::unmade_stands(&mut tx, now - ON_ITS_WAY, now).await?;
        let messages = unmade.iter().map(|&room| room_message(PLANNED, room)).collect::<Result<Vec<_>, _>>()?;
        outbox::enqueue(&mut tx, &messages).await?;
        tx.commit().await?;
        inner.outbox_written.notify_one();
        Ok(unmade.len())
    }

    async fn plan_missing_in(
        &self,
        connection: &mut PgConnection,
        tournament: Option<TournamentId>,
    ) -> Result<usize, RoomError> {
        const AT_ONCE: i64 = 1_000;
        let mut planned = 0;
        loop {
            let matches = store::roomless_matches(connection, tournament, AT_ONCE).await?;
            if matches.is_empty() {
                return Ok(planned);
            }
            let mut drafts = Vec::with_capacity(matches.len());
            for of in &matches {
                let words = words(of)?;
                drafts.push((self.fresh_alias("match"), words.name(1), words.topic(), of.event_id));
            }
            let rows: Vec<NewRow<'_>> = drafts
                .iter()
                .map(|(alias, name, topic, event)| NewRow {
                    alias,
                    name,
                    topic,
                    event_id: Some(*event),
                    stand: Some(1),
                    creator_id: None,
                    is_private: false,
                    league_id: None,
                })
                .collect();
            let now = self.inner.clock.now();
            let rooms = store::insert(connection, &rows, now, now).await?;
            let messages = rooms.iter().map(|room| room_message(PLANNED, room.id)).collect::<Result<Vec<_>, _>>()?;
            outbox::enqueue(connection, &messages).await?;
            // Rooms that a concurrent caller planned are not returned. Stop when none were inserted, or the loop would
            // never end.
            if rooms.is_empty() {
                return Ok(planned);
            }
            planned += rooms.len();
        }
    }

    /// Numbers of planned and of open rooms for a tournament's matches.
    pub async fn progress(&self, tournament: TournamentId) -> sqlx::Result<(i64, i64)> {
        store::progress(&self.inner.db, tournament).await
    }

    /// Removes requested rooms whose creation was abandoned, also from the homeserver, and returns their number. No
    /// user ever saw them, and the requests for them failed.
    pub async fn remove_abandoned(&self) -> Result<u64, RoomError> {
        let inner = &*self.inner;
        let now = inner.clock.now();
        let mut removed = 0;
        for room in store::abandoned(&inner.db, now - KEPT_FOR_ANOTHER_TRY, now).await? {
            match self.discard(room).await {
                Ok(discarded) => removed += u64::from(discarded),
                // The next run retries this room. The other rooms are removed now.
                Err(error) => tracing::warn!(%error, room = room.0, "abandoned room was not removed"),
            }
        }
        Ok(removed)
    }

    async fn discard(&self, room: RoomId) -> Result<bool, RoomError> {
        let inner = &*self.inner;
        let homeserver = self.homeserver()?;
        // Mark it as discarded first, so that no request resumes its creation.
        let Some(room) = store::discard(&inner.db, room, inner.clock.now()).await? else { return Ok(false) };
        let matrix_id = room.matrix_id.as_deref().map(address_of).transpose()?;
        homeserver.discard_room(&room.alias, matrix_id.as_deref()).await?;
        let mut tx = platform::database::begin(&inner.db).await?;
        store::delete_discarded(&mut tx, room.id).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Sets the room's current name and topic on the homeserver.
    pub(super) async fn describe(&self, room: RoomId) -> Result<(), RoomError> {
        let room = store::get(&self.inner.db, room).await?.ok_or(RoomError::NotFound)?;
        // A room that does not exist yet will be created with the current name.
        let Some(matrix_id) = &room.matrix_id else { return Ok(()) };
        let (homeserver, matrix_id) = (self.homeserver()?, address_of(matrix_id)?);
        homeserver.set_room_name(&matrix_id, &room.name).await?;
        homeserver.set_room_topic(&matrix_id, &room.topic).await?;
        Ok(())
    }

    pub(super) fn fresh_alias(&self, kind: &str) -> String {
        fresh_alias(kind, &*self.inner.random, &*self.inner.clock)
    }
}

/// Random, so that it was never used before: a counter would collide with rooms of an earlier database on the same
/// homeserver.
fn fresh_alias(kind: &str, random: &dyn Random, clock: &dyn Clock) -> String {
    format!("{kind}_{}", random::uuid_v7(random, clock).simple())
}

/// Plans an additional stand of a match.
pub(super) async fn plan_stand(
    connection: &mut PgConnection,
    random: &dyn Random,
    clock: &dyn Clock,
    event: MatchId,
    stand: i32,
) -> Result<Room, RoomError> {
    let of = store::a_match(connection, event).await?.ok_or(RoomError::NoSuchMatch)?;
    let (alias, name, topic) = (fresh_alias("match", random, clock), words(&of)?.name(stand), words(&of)?.topic());
    let row = NewRow {
        alias: &alias,
        name: &name,
        topic: &topic,
        event_id: Some(event),
        stand: Some(stand),
        creator_id: None,
        is_private: false,
        league_id: None,
    };
    let now = clock.now();
    let mut rooms = store::insert(connection, &[row], now, now).await?;
    let room = rooms.pop().ok_or(sqlx::Error::RowNotFound)?;
    // The joining request creates the stand; if it fails, a worker does.
    outbox::enqueue(connection, &[room_message(PLANNED, room.id)?]).await?;
    Ok(room)
}

fn words(of: &MatchRow) -> Result<MatchLabel<'_>, RoomError> {
    let status = of.status.parse::<Status>().map_err(|error| sqlx::Error::Decode(error.into()))?;
    Ok(MatchLabel {
        home: &of.home,
        away: &of.away,
        tournament: &of.tournament,
        start_time: of.start_time,
        status,
        venue: &of.venue,
    })
}

fn room_message(subject: &'static str, room_id: RoomId) -> serde_json::Result<Message> {
    Message::new(subject, format!("room:{room_id}"), &RoomWork { room_id })
}
