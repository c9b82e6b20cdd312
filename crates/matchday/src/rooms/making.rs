//! Making rooms: planning those of matches, granting wishes, going on with what was begun, removing what came to nothing.

use std::time::Duration;

use matrix_appservice::{Error as MatrixError, HalfMade, NewRoom};
use platform::{
    outbox::{self, Message},
    random, telemetry,
};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use time::OffsetDateTime;
use web::ids::{EventId, RoomId, TeamId, TournamentId, UserId};

use super::{
    rules::MatchWords,
    service::{Room, RoomError, Rooms, Wish, address_of},
    store::{self, MatchRow, NewRow},
};
use crate::{accounts, events::rules::Status};

/// The subject on which a room is told that is to be made.
pub const PLANNED: &str = "work.room.planned";
/// The subject on which a room is told whose match is called something else, or is at another time.
pub const MOVED: &str = "work.room.moved";
/// The subject on which a match is told that has its room now.
pub const OPENED: &str = "fact.event.room_opened";

/// How long the making of a room may take. Afterwards somebody else tries.
const MAKING: time::Duration = time::Duration::seconds(30);

/// How long an alias may stand for a room without the bot before the homeserver is certainly not at work on it any more.
const CERTAINLY_OVER: time::Duration = time::Duration::minutes(2);

/// How long the same wish of the same user is the same room: for a tap too many, and for an answer that got lost.
const SAME_WISH_FOR: time::Duration = time::Duration::minutes(1);

/// How long somebody who asked for a room in vain may ask again for the same one.
const KEPT_FOR_ANOTHER_TRY: time::Duration = time::Duration::minutes(10);

/// So long what was planned may be in the outbox, where nobody sees that it waits.
const ON_ITS_WAY: time::Duration = time::Duration::minutes(10);

#[derive(Serialize, Deserialize)]
pub(super) struct RoomWork {
    pub(super) room_id: RoomId,
}

#[derive(Serialize)]
struct RoomOpened {
    event_id: EventId,
}

impl Rooms {
    /// Opens a room; its creator has joined it afterwards. The same wish again, while it is being granted, after it failed
    /// or just after it was granted, is the same room.
    pub async fn create(&self, user: UserId, wish: &Wish) -> Result<Room, RoomError> {
        let inner = &*self.inner;
        if let Some(event) = wish.event_id
            && inner.events.find(event).await?.is_none()
        {
            return Err(RoomError::NoSuchEvent);
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
        };
        let now = inner.clock.now();
        let mut tx = inner.db.begin().await?;
        // One user's wishes take turns, so that of two at once the second finds the first.
        accounts::store::lock(&mut tx, user).await?;
        let room = if let Some(begun) = store::same_wish(&mut tx, &row, now - SAME_WISH_FOR).await? {
            begun
        } else {
            let mut made = store::insert(&mut tx, &[row], now, now).await?;
            made.pop().ok_or(sqlx::Error::RowNotFound)?.id
        };
        tx.commit().await?;
        // In a task, which outlives whoever asked: one who hangs up leaves a room that is made, not half of one.
        let making = self.clone();
        let making = async move { making.made(room).await };
        tokio::spawn(telemetry::in_this_request(making))
            .await
            .map_err(|_| RoomError::Chat("the making broke off".to_owned()))??;
        store::get(&inner.db, room).await?.ok_or(RoomError::NotFound)
    }

    /// Makes a room whose making was claimed until then, and gives the claim back if that fails.
    async fn make_claimed(&self, room: &Room, claimed_until: OffsetDateTime) -> Result<String, RoomError> {
        let outcome = self.make(room).await;
        if outcome.is_err() {
            let inner = &*self.inner;
            if let Err(error) = store::release(&inner.db, room.id, claimed_until, inner.clock.now()).await {
                tracing::warn!(%error, room = room.id.0, "the claim to a room was not given back; it runs out");
            }
        }
        outcome
    }

    /// Makes a room on the homeserver and opens it. All of it may be done again.
    async fn make(&self, room: &Room) -> Result<String, RoomError> {
        let inner = &*self.inner;
        let homeserver = self.homeserver()?;
        inner.bot.get_or_try_init(|| homeserver.ensure_bot()).await?;
        let creator = match room.creator_id {
            Some(user) => Some(inner.chat.account(user).await?),
            None => None,
        };
        let moderator = creator.as_ref().map(|account| account.username.as_str());
        let wanted =
            NewRoom { alias: &room.alias, name: &room.name, topic: &room.topic, private: room.is_private, moderator };
        let now = inner.clock.now();
        let over = room.half_made_at.is_some_and(|since| now - since > CERTAINLY_OVER);
        let half_made = if over { HalfMade::Discard } else { HalfMade::Wait };
        let matrix_id = match homeserver.ensure_room(&wanted, half_made).await {
            Err(error @ MatrixError::HalfMade(_)) => {
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
        let mut tx = inner.db.begin().await?;
        let opened = store::open(&mut tx, room.id, inner.clock.now()).await?;
        // The match shows its first room, and that one alone.
        if let (true, Some(event_id), Some(1)) = (opened, room.event_id, room.stand) {
            let told = Message::new(OPENED, format!("event:{event_id}"), &RoomOpened { event_id })?;
            outbox::enqueue(&mut tx, &[told]).await?;
        }
        tx.commit().await?;
        inner.events.mark_stale();
        inner.outbox_written.notify_one();
        metrics::counter!("matchday_rooms_opened_total").increment(u64::from(opened));
        // The match may have moved while its room was made by the old name; whoever was to tell the homeserver found no
        // room yet.
        let now_called = store::get(&inner.db, room.id).await?.ok_or(RoomError::NotFound)?;
        if room.stand.is_some() && (&now_called.name, &now_called.topic) != (&room.name, &room.topic) {
            self.describe(room.id).await?;
        }
        Ok(matrix_id.to_string())
    }

    /// What the homeserver calls a room, making it first where that is still to be done.
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
            // Somebody else is at it.
            if began.elapsed() > inner.patience {
                return Err(RoomError::Chat("the room is not made yet".to_owned()));
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Plans rooms for matches that have none, and names anew those whose match is called something else; in the caller's
    /// transaction. Returns how many rooms are to be made. Without chat there are none.
    /// `teams` have another name than before, wherever they play.
    pub async fn plan_in(
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

    /// Plans rooms for all matches that have none, as after chat was added to a service that had none.
    pub async fn plan_missing(&self) -> Result<usize, RoomError> {
        let inner = &*self.inner;
        if inner.chat.homeserver().is_none() {
            return Ok(0);
        }
        let mut tx = inner.db.begin().await?;
        let planned = self.plan_missing_in(&mut tx, None).await?;
        tx.commit().await?;
        inner.outbox_written.notify_one();
        Ok(planned)
    }

    /// Plans once more the stands whose work was lost or given up. Call it when nothing waits for the workers: until then
    /// they are on their way. Returns how many.
    pub async fn plan_unmade(&self) -> Result<usize, RoomError> {
        let inner = &*self.inner;
        let now = inner.clock.now();
        let mut tx = inner.db.begin().await?;
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
                })
                .collect();
            let now = self.inner.clock.now();
            let rooms = store::insert(connection, &rows, now, now).await?;
            let messages = rooms.iter().map(|room| room_message(PLANNED, room.id)).collect::<Result<Vec<_>, _>>()?;
            outbox::enqueue(connection, &messages).await?;
            // Rooms that somebody else planned meanwhile are not ours; without any there would be no end.
            if rooms.is_empty() {
                return Ok(planned);
            }
            planned += rooms.len();
        }
    }

    /// Plans a further stand of a match.
    pub(super) async fn plan_stand_in(
        &self,
        connection: &mut PgConnection,
        event: EventId,
        stand: i32,
    ) -> Result<Room, RoomError> {
        let of = store::a_match(connection, event).await?.ok_or(RoomError::NoSuchEvent)?;
        let (alias, name, topic) = (self.fresh_alias("match"), words(&of)?.name(stand), words(&of)?.topic());
        let row = NewRow {
            alias: &alias,
            name: &name,
            topic: &topic,
            event_id: Some(event),
            stand: Some(stand),
            creator_id: None,
            is_private: false,
        };
        let now = self.inner.clock.now();
        let mut rooms = store::insert(connection, &[row], now, now).await?;
        let room = rooms.pop().ok_or(sqlx::Error::RowNotFound)?;
        // Whoever asks for it makes it; should they fail, a worker does.
        outbox::enqueue(connection, &[room_message(PLANNED, room.id)?]).await?;
        Ok(room)
    }

    /// How many rooms of a tournament's matches are planned, and how many of them are open.
    pub async fn progress(&self, tournament: TournamentId) -> sqlx::Result<(i64, i64)> {
        store::progress(&self.inner.db, tournament).await
    }

    /// Removes rooms that somebody asked for and whose making came to nothing, also from the homeserver: nobody ever saw
    /// them, and whoever asked was told that it failed. Returns how many.
    pub async fn tidy(&self) -> Result<u64, RoomError> {
        let inner = &*self.inner;
        let now = inner.clock.now();
        let mut removed = 0;
        for room in store::abandoned(&inner.db, now - KEPT_FOR_ANOTHER_TRY, now).await? {
            match self.discard(room).await {
                Ok(discarded) => removed += u64::from(discarded),
                // It comes again; the others need not wait for it.
                Err(error) => tracing::warn!(%error, room = room.0, "a room that came to nothing was not removed"),
            }
        }
        Ok(removed)
    }

    async fn discard(&self, room: RoomId) -> Result<bool, RoomError> {
        let inner = &*self.inner;
        let homeserver = self.homeserver()?;
        // First it is decided, so that nobody goes on with it meanwhile.
        let Some(room) = store::discard(&inner.db, room, inner.clock.now()).await? else { return Ok(false) };
        let matrix_id = room.matrix_id.as_deref().map(address_of).transpose()?;
        homeserver.discard_room(&room.alias, matrix_id.as_deref()).await?;
        let mut tx = inner.db.begin().await?;
        store::delete_discarded(&mut tx, room.id).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Tells the homeserver what a room is called now.
    pub(super) async fn describe(&self, room: RoomId) -> Result<(), RoomError> {
        let room = store::get(&self.inner.db, room).await?.ok_or(RoomError::NotFound)?;
        // One that is not made yet is made with the right name.
        let Some(matrix_id) = &room.matrix_id else { return Ok(()) };
        let (homeserver, matrix_id) = (self.homeserver()?, address_of(matrix_id)?);
        homeserver.set_room_name(&matrix_id, &room.name).await?;
        homeserver.set_room_topic(&matrix_id, &room.topic).await?;
        Ok(())
    }

    /// Not guessed, and never used before: on a homeserver that knew another database a counter would find its rooms.
    fn fresh_alias(&self, kind: &str) -> String {
        let id = random::uuid_v7(&*self.inner.random, &*self.inner.clock);
        format!("{kind}_{}", id.simple())
    }
}

fn words(of: &MatchRow) -> Result<MatchWords<'_>, RoomError> {
    let status = of.status.parse::<Status>().map_err(|error| sqlx::Error::Decode(error.into()))?;
    Ok(MatchWords {
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
