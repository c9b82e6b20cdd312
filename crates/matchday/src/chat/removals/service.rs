//! Decides on removals, and carries them out on the homeserver.

use std::{sync::Arc, time::Duration};

use matrix_appservice::{
    Error as MatrixError, EventId as MatrixEventId, Homeserver, OwnedEventId, OwnedRoomId, RoomId as MatrixRoomId,
    SeenEvent,
};
use platform::{Core, clock::Clock, database};
use serde_json::json;
use sqlx::PgPool;
use time::OffsetDateTime;
use tokio::sync::Notify;
use web::{
    ids::{RoomId, UserId},
    paging::Paging,
};

pub use super::store::RemovedMessage;
use super::{
    rules::{self, Step},
    settings::Settings,
    store::{self, Pending},
};
use crate::{
    chat::{
        accounts::service::Chat,
        moderation::service::{Moderation, ModerationError},
        planned_removals::{self, PlanError, PlannedRemoval, Removal, SERVICE, Source},
        roles::{self, RoomMute},
        rooms::{
            RoomAddress,
            service::{Room, RoomError, Rooms},
        },
    },
    identity::{
        accounts::{restrictions::Restriction, service::Accounts},
        operators::{self, Operator, service::Action},
    },
};

/// Number of messages read from the homeserver at a time while looking for a sender's messages.
const PAGE: u16 = 500;

/// Number of messages of a room that are searched for a sender's messages.
const MOST_SEARCHED: usize = 50_000;

/// Number of removals planned in one transaction.
const PLANNED_AT_ONCE: usize = 200;

/// Removal of messages. Cheap to clone.
#[derive(Clone)]
pub struct Removals {
    db: PgPool,
    chat: Chat,
    rooms: Rooms,
    accounts: Accounts,
    moderation: Moderation,
    settings: Settings,
    clock: Arc<dyn Clock>,
    outbox_written: Arc<Notify>,
}

/// Messages of one sender in a room.
#[derive(Clone, Copy, Debug)]
pub struct MessageRange {
    pub sender: UserId,
    pub since: Option<OffsetDateTime>,
    pub until: Option<OffsetDateTime>,
}

/// Reason why a message was not removed.
#[derive(Debug, thiserror::Error)]
pub enum RemovalError {
    #[error(transparent)]
    Room(#[from] RoomError),
    /// The room has no such message.
    #[error("the room has no such message")]
    NoSuchMessage,
    #[error("the user does not exist")]
    NoSuchUser,
    /// The caller neither sent the message nor moderates the room.
    #[error("the caller does not moderate the room")]
    NotAModerator,
    #[error(transparent)]
    Restriction(#[from] ModerationError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

impl From<MatrixError> for RemovalError {
    fn from(error: MatrixError) -> Self {
        RoomError::from(error).into()
    }
}

impl Removals {
    pub fn new(
        core: &Core,
        settings: &Settings,
        chat: Chat,
        rooms: Rooms,
        accounts: Accounts,
        moderation: Moderation,
    ) -> Self {
        let Core { db, clock, outbox_written, .. } = core.clone();
        Self { db, chat, rooms, accounts, moderation, settings: settings.clone(), clock, outbox_written }
    }

    /// Removes a message as its sender or as a moderator of its room. Removing it again changes nothing.
    pub async fn remove(&self, user: UserId, room: &Room, event_id: &str, reason: &str) -> Result<(), RemovalError> {
        let message = self.message(room, event_id).await?;
        let account = self.accounts.find(user).await?.ok_or(RemovalError::NoSuchUser)?;
        let is_own = self.homeserver()?.user_id(account.username.as_str())? == message.sender;
        let source = if is_own { Source::Sender } else { Source::Moderator };
        if !is_own && !self.rooms.moderates(user, room).await? {
            return Err(RemovalError::NotAModerator);
        }
        self.remove_as(source, &Operator::new(format!("user:{user}"), reason), room, &message).await
    }

    /// Removes a message as an operator. Removing it again changes nothing.
    pub async fn remove_by_operator(
        &self,
        address: &RoomAddress,
        event_id: &str,
        operator: &Operator,
    ) -> Result<(), RemovalError> {
        let room = self.rooms.find(address).await?;
        let message = self.message(&room, event_id).await?;
        self.remove_as(Source::Operator, operator, &room, &message).await
    }

    /// Removes all messages of a user in a room, or those in a range of time, as an operator. Returns their number.
    pub async fn remove_all(
        &self,
        address: &RoomAddress,
        range: MessageRange,
        operator: &Operator,
    ) -> Result<usize, RemovalError> {
        let room = self.rooms.find(address).await?;
        let found = self.messages_in(&room, range).await?;
        let mut total = 0;
        for messages in found.chunks(PLANNED_AT_ONCE) {
            let removals: Vec<Removal> =
                messages.iter().map(|message| removal(Source::Operator, operator, &room, message)).collect();
            let (now, mut tx) = (self.clock.now(), database::begin(&self.db).await?);
            let planned = planned_removals::plan_in(&mut tx, &removals, now).await?.len();
            if planned > 0 {
                let details = json!({"user_id": range.sender, "messages": planned});
                let target = format!("room:{}", room.matrix_id.as_deref().unwrap_or_default());
                let action = Action::new("message.remove_all", target).with(details);
                operators::service::record(&mut tx, operator, &action, now).await?;
            }
            tx.commit().await?;
            self.outbox_written.notify_one();
            total += planned;
        }
        Ok(total)
    }

    /// A page of the caller's messages that others removed, latest first, and the total.
    pub async fn of_sender(&self, user: UserId, paging: Paging) -> Result<(Vec<RemovedMessage>, i64), RemovalError> {
        let account = self.accounts.find(user).await?.ok_or(RemovalError::NoSuchUser)?;
        let sender = self.homeserver()?.user_id(account.username.as_str())?;
        Ok(store::of_sender(&self.db, sender.as_str(), paging).await?)
    }

    /// Deletes old removals. Returns their number.
    pub async fn sweep(&self) -> sqlx::Result<u64> {
        let before = self.clock.now() - self.settings.kept_for;
        database::sweep(|most| store::sweep(&self.db, before, most)).await
    }

    /// Plans a removal, so that it happens even if this process dies, and carries it out.
    async fn remove_as(
        &self,
        source: Source,
        operator: &Operator,
        room: &Room,
        message: &SeenEvent,
    ) -> Result<(), RemovalError> {
        if message.is_redacted() {
            return Ok(());
        }
        let (now, mut tx) = (self.clock.now(), database::begin(&self.db).await?);
        let planned = planned_removals::plan_in(&mut tx, &[removal(source, operator, room, message)], now).await?;
        if !planned.is_empty() && source != Source::Sender {
            let room = room.matrix_id.as_deref().unwrap_or_default();
            let action =
                Action::new("message.remove", format!("message:{}", message.event_id)).with(json!({"room": room}));
            operators::service::record(&mut tx, operator, &action, now).await?;
        }
        tx.commit().await?;
        self.outbox_written.notify_one();
        self.carry_out(room.id, message.event_id.as_str()).await
    }

    /// Carries out a removal that this process planned, before the message in the outbox reaches a worker. A worker repeats
    /// it if it fails.
    pub async fn carry_out_now(&self, planned: PlannedRemoval) {
        if let Err(error) = self.carry_out(planned.room_id, &planned.event_id).await {
            tracing::debug!(%error, room = planned.room_id.0, "message not removed yet; a worker removes it");
        }
    }

    /// Redacts a message whose removal is planned, and applies the consequences for its sender. Idempotent.
    pub(super) async fn carry_out(&self, room: RoomId, event_id: &str) -> Result<(), RemovalError> {
        let Some(pending) = store::pending(&self.db, room, event_id).await? else { return Ok(()) };
        let (matrix_room, message) = (room_id(&pending.matrix_room)?, message_id(event_id)?);
        // The id is the same for a repeated attempt.
        let transaction = format!("matchday-remove-{event_id}");
        match self.homeserver()?.redact(&matrix_room, &message, &transaction, &pending.reason).await {
            // The room or the message no longer exists on the homeserver.
            Ok(()) | Err(MatrixError::NoSuchRoom(_)) => {}
            Err(error) => return Err(error.into()),
        }
        self.restrict_sender(room, &pending).await?;
        let mut tx = database::begin(&self.db).await?;
        if store::finish(&mut tx, room, event_id, self.clock.now()).await? {
            metrics::counter!("matchday_removals_total", "source" => pending.source).increment(1);
        }
        tx.commit().await?;
        Ok(())
    }

    /// Mutes or bans the sender of a removed message, as its filter or the escalation says. Any user can create a room, so
    /// the moderators of a fan room only cause a mute in that room.
    async fn restrict_sender(&self, room: RoomId, pending: &Pending) -> Result<(), RemovalError> {
        let (homeserver, now) = (self.homeserver()?, self.clock.now());
        if let Some(seconds) = pending.mute_seconds {
            let length = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
            self.restrict(homeserver, pending, None, Step::Mute(length)).await?;
        }
        if matches!(pending.source.as_str(), "sender" | "slow_mode") {
            return Ok(());
        }
        let since = now - self.settings.escalation_period;
        let fan_room = (pending.source == "moderator" && pending.creator_id.is_some()).then_some(room);
        let offences = store::offences(&self.db, &pending.sender, fan_room, since, pending.planned_at).await?;
        let step = rules::offence(&offences).and_then(|number| rules::consequence(&self.settings.escalation, number));
        match step {
            Some(step) => self.restrict(homeserver, pending, fan_room, step).await,
            None => Ok(()),
        }
    }

    /// Applies a consequence: in the whole service, or in a fan room.
    async fn restrict(
        &self,
        homeserver: &Homeserver,
        pending: &Pending,
        fan_room: Option<RoomId>,
        step: Step,
    ) -> Result<(), RemovalError> {
        let localpart = pending.sender.strip_prefix('@').and_then(|id| id.split_once(':')).map(|(name, _)| name);
        // Users of other servers have no account here.
        let Some(name) = localpart.filter(|name| homeserver.user_id(name).is_ok_and(|id| id == pending.sender)) else {
            return Ok(());
        };
        let (restriction, length) = match step {
            Step::Warn => return Ok(()),
            Step::Mute(length) => (Restriction::Mute, length),
            Step::Ban(length) => (Restriction::Ban, length),
        };
        let Some(account) = self.accounts.named(name).await? else { return Ok(()) };
        let operator = Operator::new(SERVICE, format!("Message removed: {}", pending.reason));
        // Measured from the decision, so that a repeated attempt does not prolong it.
        let until = pending.planned_at + length;
        if let Some(room) = fan_room {
            return self.mute_in_room(pending, room, account.id, until).await;
        }
        Ok(self.moderation.restrict_until(account.id, restriction, until, &operator).await?)
    }

    /// Mutes a user in a fan room, unless they moderate it or are muted there for longer already.
    async fn mute_in_room(
        &self,
        pending: &Pending,
        room: RoomId,
        user_id: UserId,
        until: OffsetDateTime,
    ) -> Result<(), RemovalError> {
        let now = self.clock.now();
        let mut tx = database::begin(&self.db).await?;
        roles::lock_room(&mut tx, room).await?;
        if until <= now
            || pending.creator_id == Some(user_id)
            || roles::is_moderator(&mut *tx, room, user_id).await?
            || roles::muted_until(&mut *tx, room, user_id, now).await?.is_some_and(|muted| muted >= until)
        {
            return Ok(());
        }
        roles::mute(&mut tx, room, &RoomMute { user_id, until }, &pending.reason, SERVICE, now).await?;
        roles::change_powers_in(&mut tx, room).await?;
        tx.commit().await?;
        self.outbox_written.notify_one();
        Ok(())
    }

    /// A message of a room.
    async fn message(&self, room: &Room, event_id: &str) -> Result<SeenEvent, RemovalError> {
        let matrix_room = room_id(room.matrix_id.as_deref().unwrap_or_default())?;
        let seen = self.homeserver()?.event(&matrix_room, &message_id(event_id)?).await?;
        seen.filter(SeenEvent::is_message).ok_or(RemovalError::NoSuchMessage)
    }

    /// Messages of a sender, newest first.
    async fn messages_in(&self, room: &Room, range: MessageRange) -> Result<Vec<SeenEvent>, RemovalError> {
        let homeserver = self.homeserver()?;
        let account = self.accounts.find(range.sender).await?.ok_or(RemovalError::NoSuchUser)?;
        let sender = homeserver.user_id(account.username.as_str())?;
        let matrix_room = room_id(room.matrix_id.as_deref().unwrap_or_default())?;
        let (mut found, mut from, mut searched) = (Vec::new(), None, 0);
        while searched < MOST_SEARCHED {
            let page = homeserver.message_page(&matrix_room, from, PAGE).await?;
            searched += page.events.len().max(1);
            let is_past = |message: &SeenEvent| range.since.is_some_and(|since| sent_at(message) < since);
            let ends_here = page.events.last().is_some_and(is_past);
            found.extend(page.events.into_iter().filter(|message| {
                let is_later = range.until.is_some_and(|until| sent_at(message) > until);
                message.sender == sender && !message.is_redacted() && !is_later && !is_past(message)
            }));
            from = page.next;
            if ends_here || from.is_none() {
                break;
            }
        }
        Ok(found)
    }

    fn homeserver(&self) -> Result<&Homeserver, RemovalError> {
        let none = || RoomError::Chat("no homeserver is configured".to_owned());
        Ok(self.chat.homeserver().ok_or_else(none)?)
    }
}

fn removal(source: Source, operator: &Operator, room: &Room, message: &SeenEvent) -> Removal {
    Removal {
        matrix_room: room.matrix_id.clone().unwrap_or_default(),
        event_id: message.event_id.to_string(),
        sender: message.sender.to_string(),
        source,
        removed_by: operator.name.clone(),
        reason: operator.reason.clone(),
        mute_seconds: None,
    }
}

fn sent_at(message: &SeenEvent) -> OffsetDateTime {
    let millis = i64::try_from(message.timestamp_ms).unwrap_or(i64::MAX);
    OffsetDateTime::UNIX_EPOCH.saturating_add(time::Duration::milliseconds(millis))
}

fn room_id(matrix_id: &str) -> Result<OwnedRoomId, RemovalError> {
    MatrixRoomId::parse(matrix_id).map_err(|_| RoomError::NotFound.into())
}

fn message_id(event_id: &str) -> Result<OwnedEventId, RemovalError> {
    MatrixEventId::parse(event_id).map_err(|_| RemovalError::NoSuchMessage)
}
