//! Restricting, blocking and reporting.

use std::{sync::Arc, time::Duration};

use matrix_appservice::{EventId as MatrixEventId, RoomId as MatrixRoomId};
use platform::{
    Core,
    clock::Clock,
    database,
    outbox::{self, Message},
    rate_limit::{Decision, Limit, RateLimiter},
};
use serde_json::json;
use sqlx::PgPool;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use tokio::sync::Notify;
use web::{ids::UserId, paging::Paging};

use super::{
    phones::{RestrictedPhones, RestrictionFact, SERVICE},
    rules::{self, MessageId, Reason, Term},
    store::{self, Evidence, Noted},
};
use crate::{
    accounts::{self, service::Accounts},
    chat::{
        service::Chat,
        work::{IGNORED, Ignored, RESTRICTED, Restricted},
    },
    mirror::service::{UNWANTED, Unwanted},
    operators::{self, Operator, service::Deed},
    rooms::service::Room,
    sessions::service::Sessions,
};

/// The subject on which every process is told that somebody may do less than before, or more again.
pub const CHANGED: &str = "fact.user.restricted";

/// How many users somebody may block.
const MOST_BLOCKS: i64 = 1_000;

/// How many users' restrictions a worker lifts before it looks again.
const LIFTED_AT_ONCE: i64 = 100;

/// How much of a reported message is kept.
const EVIDENCE_LENGTH: usize = 10_000;

/// Safety.
#[derive(Clone)]
pub struct Safety {
    db: PgPool,
    chat: Chat,
    accounts: Accounts,
    sessions: Sessions,
    restricted_phones: RestrictedPhones,
    limiter: RateLimiter,
    leniency: u32,
    clock: Arc<dyn Clock>,
    outbox_written: Arc<Notify>,
}

/// What an operator does to a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restriction {
    /// Keeps them out of the service.
    Ban,
    /// Lets them in again.
    Unban,
    /// Keeps them from speaking in chat.
    Mute,
    /// Lets them speak again.
    Unmute,
}

impl Restriction {
    /// As it is stored.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ban => "ban",
            Self::Unban => "unban",
            Self::Mute => "mute",
            Self::Unmute => "unmute",
        }
    }

    /// As it is recorded.
    fn deed(self) -> &'static str {
        match self {
            Self::Ban => "user.ban",
            Self::Unban => "user.unban",
            Self::Mute => "user.mute",
            Self::Unmute => "user.unmute",
        }
    }
}

/// Somebody whom the caller does not want to meet.
#[derive(Clone, Debug)]
pub struct Blocked {
    /// Who.
    pub id: UserId,
    /// What they are called.
    pub username: String,
    /// Since when.
    pub created_at: OffsetDateTime,
}

/// A message that was reported.
#[derive(Clone, Debug)]
pub struct Report {
    /// To close it by.
    pub id: i64,
    /// Who reported it.
    pub reporter: String,
    /// Where it was said.
    pub room: String,
    /// Which message.
    pub event_id: String,
    /// Why.
    pub reason: String,
    /// Who said it.
    pub sender: Option<String>,
    /// What was said, as the homeserver has it.
    pub content: Option<String>,
    /// When it was reported.
    pub created_at: OffsetDateTime,
}

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum SafetyError {
    /// There is no such user.
    #[error("there is no such user")]
    NoSuchUser,
    /// Nobody blocks themselves.
    #[error("nobody blocks themselves")]
    Oneself,
    /// They block too many already.
    #[error("too many users are blocked already")]
    TooMany,
    /// It is so already.
    #[error("it is so already")]
    AlreadySo,
    /// A restriction may not be that long or short.
    #[error("a restriction lasts from one minute to ten years")]
    InvalidLength,
    /// There is no such message in the room.
    #[error("there is no such message")]
    NoSuchMessage,
    /// The database failed.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// A message could not be written.
    #[error(transparent)]
    Message(#[from] serde_json::Error),
}

impl Safety {
    /// Safety in this database.
    pub fn new(
        core: &Core,
        chat: Chat,
        accounts: Accounts,
        sessions: Sessions,
        restricted_phones: RestrictedPhones,
    ) -> Self {
        let Core { db, clock, limits: limiter, outbox_written, .. } = core.clone();
        let leniency = core.env.leniency();
        Self { db, chat, accounts, sessions, restricted_phones, limiter, leniency, clock, outbox_written }
    }

    /// Who that is: an id, or a username.
    pub async fn user(&self, named: &str) -> Result<UserId, SafetyError> {
        let found = match named.parse::<UserId>() {
            Ok(id) => self.accounts.find(id).await?,
            Err(()) => self.accounts.named(&named.to_ascii_lowercase()).await?,
        };
        found.map(|account| account.id).ok_or(SafetyError::NoSuchUser)
    }

    /// Restricts somebody without an end, or lets them do again what they might not. Who did it and why is kept.
    pub async fn restrict(
        &self,
        user: UserId,
        restriction: Restriction,
        operator: &Operator,
    ) -> Result<(), SafetyError> {
        self.restrict_for(user, restriction, None, operator).await
    }

    /// The same; a ban or mute with a length ends by itself. Banning or muting again sets a new end.
    pub async fn restrict_for(
        &self,
        user: UserId,
        restriction: Restriction,
        length: Option<Duration>,
        operator: &Operator,
    ) -> Result<(), SafetyError> {
        let now = self.clock.now();
        let until = match length {
            Some(length) => Some(rules::end(now, length).ok_or(SafetyError::InvalidLength)?),
            None => None,
        };
        let term = Some(Term { since: now, until });
        let mut tx = self.db.begin().await?;
        if !accounts::store::lock(&mut tx, user).await? {
            return Err(SafetyError::NoSuchUser);
        }
        let changed = match restriction {
            Restriction::Ban => store::set_banned(&mut tx, user, term, now).await?,
            Restriction::Unban => store::set_banned(&mut tx, user, None, now).await?,
            Restriction::Mute => store::set_muted(&mut tx, user, term, now).await?,
            Restriction::Unmute => store::set_muted(&mut tx, user, None, now).await?,
        };
        if !changed {
            return Err(SafetyError::AlreadySo);
        }
        if let Some(account) = accounts::store::find(&mut *tx, user, now).await? {
            self.restricted_phones.update_in(&mut tx, &account).await?;
        }
        let noted = Noted { action: restriction.name(), reason: &operator.reason, operator: &operator.name, until };
        store::note_restriction(&mut tx, user, &noted, now).await?;
        let key = format!("user:{user}");
        let deed = Deed::new(restriction.deed(), key);
        let deed = match until.and_then(|until| until.format(&Rfc3339).ok()) {
            Some(until) => deed.with(json!({"until": until})),
            None => deed,
        };
        operators::service::record(&mut tx, operator, &deed, now).await?;
        outbox::enqueue(&mut tx, &changes(user, &[restriction])?).await?;
        tx.commit().await?;
        self.sessions.forget_all();
        self.outbox_written.notify_one();
        metrics::counter!("matchday_restrictions_total", "action" => restriction.name()).increment(1);
        Ok(())
    }

    /// Lifts bans and mutes whose time is over, so that chat and other processes learn of it; returns of how many users.
    /// The API compares with the clock itself, and does not wait for this.
    pub async fn lift_ended(&self) -> Result<usize, SafetyError> {
        let mut lifted = 0;
        for user in store::ended(&self.db, self.clock.now(), LIFTED_AT_ONCE).await? {
            let now = self.clock.now();
            let mut tx = self.db.begin().await?;
            accounts::store::lock(&mut tx, user).await?;
            // Another worker, or an operator, may have been faster.
            let (ban, mute) = store::lift_ended(&mut tx, user, now).await?;
            let over = [(ban, Restriction::Unban), (mute, Restriction::Unmute)];
            let over: Vec<Restriction> = over.into_iter().filter_map(|(over, lifts)| over.then_some(lifts)).collect();
            if over.is_empty() {
                continue;
            }
            for restriction in &over {
                let reason = "The time was over.";
                let noted = Noted { action: restriction.name(), reason, operator: SERVICE, until: None };
                store::note_restriction(&mut tx, user, &noted, now).await?;
            }
            outbox::enqueue(&mut tx, &changes(user, &over)?).await?;
            tx.commit().await?;
            lifted += 1;
            self.sessions.forget_all();
            self.outbox_written.notify_one();
            for restriction in over {
                metrics::counter!("matchday_restrictions_total", "action" => restriction.name()).increment(1);
            }
        }
        Ok(lifted)
    }

    /// Forgets phones whose restrictions are over, and erases reports of senders who deleted their account long enough ago;
    /// returns how many.
    pub async fn sweep(&self) -> sqlx::Result<u64> {
        let (db, now) = (&self.db, self.clock.now());
        let phones = database::sweep(|most| store::sweep_phones(db, now, most)).await?;
        let unknown = store::count_phones_without_key(db, &self.restricted_phones.key_versions()).await?;
        if unknown > 0 {
            tracing::warn!(phones = unknown, "restricted phones are under keys that codes.keys no longer has");
        }
        let reports = database::sweep(|most| store::erase_reports(db, now, most)).await?;
        Ok(phones + reports)
    }

    /// Somebody was restricted, here or elsewhere: tokens that were checked before may be another matter now.
    pub fn heard(&self) {
        self.sessions.forget_all();
    }

    /// Keeps somebody out of a user's sight.
    pub async fn block(&self, user: UserId, other: UserId) -> Result<(), SafetyError> {
        if user == other {
            return Err(SafetyError::Oneself);
        }
        if self.accounts.find(other).await?.is_none() {
            return Err(SafetyError::NoSuchUser);
        }
        let mut tx = self.db.begin().await?;
        accounts::store::lock(&mut tx, user).await?;
        if store::block(&mut tx, user, other, self.clock.now()).await? {
            if store::count_blocks(&mut tx, user).await? > MOST_BLOCKS {
                return Err(SafetyError::TooMany);
            }
            let mut messages = vec![ignored(user, other)?];
            // Also invitations that are there already are not wanted any more.
            for room_id in store::invitations_by(&mut tx, user, other).await? {
                let unwanted = Unwanted { room_id, user_id: user };
                messages.push(Message::new(UNWANTED, format!("user:{user}"), &unwanted)?);
            }
            outbox::enqueue(&mut tx, &messages).await?;
        }
        tx.commit().await?;
        self.outbox_written.notify_one();
        Ok(())
    }

    /// Lets a user meet somebody again.
    pub async fn unblock(&self, user: UserId, other: UserId) -> Result<(), SafetyError> {
        let mut tx = self.db.begin().await?;
        accounts::store::lock(&mut tx, user).await?;
        if store::unblock(&mut tx, user, other).await? {
            outbox::enqueue(&mut tx, &[ignored(user, other)?]).await?;
        }
        tx.commit().await?;
        self.outbox_written.notify_one();
        Ok(())
    }

    /// Whom a user has blocked, and how many there are.
    pub async fn blocks(&self, user: UserId, paging: Paging) -> sqlx::Result<(Vec<Blocked>, i64)> {
        let mut connection = self.db.acquire().await?;
        let total = store::count_blocks(&mut connection, user).await?;
        let blocked = store::blocks(&mut connection, user, paging).await?;
        let ids: Vec<i64> = blocked.iter().map(|(id, _)| id.0).collect();
        let usernames = accounts::store::usernames(&mut connection, &ids).await?;
        let named = |(id, created_at)| Some(Blocked { id, username: usernames.get(&id)?.clone(), created_at });
        Ok((blocked.into_iter().filter_map(named).collect(), total))
    }

    /// Takes from how often a user may block and unblock.
    pub async fn permit_block(&self, user: UserId) -> Decision {
        let every = Duration::from_secs(5) / self.leniency;
        let limit = Limit { name: "block", burst: 60 * self.leniency, every };
        self.limiter.take(limit, &user.to_string()).await
    }

    /// Takes from how often a user may report.
    pub async fn permit_report(&self, user: UserId) -> Decision {
        let every = Duration::from_mins(1) / self.leniency;
        let limit = Limit { name: "report", burst: 20 * self.leniency, every };
        self.limiter.take(limit, &user.to_string()).await
    }

    /// Keeps a report of a message, with what the homeserver has of it: its sender may take it back. While the homeserver
    /// is away it is kept without. Returns whether it is the user's first of that message.
    pub async fn report(
        &self,
        user: UserId,
        room: &Room,
        message: &MessageId,
        reason: &Reason,
    ) -> Result<bool, SafetyError> {
        let evidence = self.evidence(room, message).await?;
        let now = self.clock.now();
        let is_new = store::report(&self.db, user, room.id, message.as_str(), reason.as_str(), &evidence, now).await?;
        if is_new {
            metrics::counter!("matchday_reports_total").increment(1);
        }
        Ok(is_new)
    }

    async fn evidence(&self, room: &Room, message: &MessageId) -> Result<Evidence, SafetyError> {
        let nothing = Evidence::default();
        let (Some(homeserver), Some(room)) = (self.chat.homeserver(), &room.matrix_id) else { return Ok(nothing) };
        let (Ok(room), Ok(event)) = (MatrixRoomId::parse(room.as_str()), MatrixEventId::parse(message.as_str())) else {
            return Err(SafetyError::NoSuchMessage);
        };
        match homeserver.event(&room, &event).await {
            Ok(Some(seen)) => {
                let millis = i64::try_from(seen.timestamp_ms).unwrap_or_default();
                let sent_at = OffsetDateTime::UNIX_EPOCH.checked_add(time::Duration::milliseconds(millis));
                let content: String = seen.content.to_string().chars().take(EVIDENCE_LENGTH).collect();
                Ok(Evidence { sender: Some(seen.sender.to_string()), sent_at, content: Some(content) })
            }
            Ok(None) => Err(SafetyError::NoSuchMessage),
            Err(error) => {
                tracing::warn!(%error, "a report is kept without what was reported");
                Ok(nothing)
            }
        }
    }

    /// Reports that nobody has looked at, oldest first.
    pub async fn open_reports(&self, most: i64) -> sqlx::Result<Vec<Report>> {
        store::open_reports(&self.db, most).await
    }

    /// Closes a report; returns whether it was open. What the operator says is kept as its resolution.
    pub async fn close_report(&self, id: i64, operator: &Operator) -> sqlx::Result<bool> {
        let now = self.clock.now();
        let mut tx = self.db.begin().await?;
        if !store::close_report(&mut *tx, id, &operator.reason, now).await? {
            return Ok(false);
        }
        operators::service::record(&mut tx, operator, &Deed::new("report.close", format!("report:{id}")), now).await?;
        tx.commit().await?;
        Ok(true)
    }
}

/// What is told when restrictions of a user changed: a fact for each, and work in chat.
fn changes(user: UserId, restrictions: &[Restriction]) -> serde_json::Result<Vec<Message>> {
    let key = format!("user:{user}");
    let fact = |restriction: &Restriction| {
        let fact = RestrictionFact { user_id: user, action: restriction.name().to_owned() };
        Message::new(CHANGED, key.clone(), &fact)
    };
    let work = Message::new(RESTRICTED, key.clone(), &Restricted { user_id: user });
    restrictions.iter().map(fact).chain([work]).collect()
}

fn ignored(user_id: UserId, other_id: UserId) -> serde_json::Result<Message> {
    Message::new(IGNORED, format!("user:{user_id}"), &Ignored { user_id, other_id })
}
