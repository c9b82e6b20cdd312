//! Restrictions by operators, blocks between users, and reports.

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
    rules::{self, MessageId, Reason},
    store::{self, Evidence},
};
use crate::{
    chat::{
        accounts::service::Chat,
        messages::{IGNORED, Ignored, UNWANTED, Unwanted},
        rooms::service::Room,
    },
    identity::{
        accounts::{
            self, Noted,
            restrictions::{
                CHANGED, RESTRICTED, Restricted, RestrictedPhones, Restriction, RestrictionFact, SERVICE, Term,
            },
            service::Accounts,
        },
        operators::{self, Operator, service::Action},
        sessions::service::Sessions,
    },
};

/// Number of users that one user may block.
const MOST_BLOCKS: i64 = 1_000;

/// Number of users whose expired restrictions one run of the worker lifts.
const LIFTED_AT_ONCE: i64 = 100;

/// Number of characters kept of a reported message.
const EVIDENCE_LENGTH: usize = 10_000;

/// Service for restrictions, blocks and reports.
#[derive(Clone)]
pub struct Moderation {
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

/// A user whom the caller has blocked.
#[derive(Clone, Debug)]
pub struct Blocked {
    pub id: UserId,
    pub username: String,
    /// Time of the block.
    pub created_at: OffsetDateTime,
}

/// A user's report of a message.
#[derive(Clone, Debug)]
pub struct Report {
    pub id: i64,
    /// Username of the user who reported the message.
    pub reporter: String,
    /// Name of the room.
    pub room: String,
    /// The homeserver's id of the message.
    pub event_id: String,
    pub reason: String,
    /// Matrix user id of the message's sender.
    pub sender: Option<String>,
    /// JSON content of the message, as returned by the homeserver.
    pub content: Option<String>,
    /// Time of the report.
    pub created_at: OffsetDateTime,
}

/// Reason why a moderation action failed.
#[derive(Debug, thiserror::Error)]
pub enum ModerationError {
    #[error("the user does not exist")]
    NoSuchUser,
    /// The caller tried to block themselves.
    #[error("users cannot block themselves")]
    SelfBlock,
    /// The caller has blocked the maximum number of users.
    #[error("the user has blocked too many users")]
    TooMany,
    /// The restriction is already in effect or already lifted.
    #[error("the restriction is already in effect or already lifted")]
    Unchanged,
    /// The length of the restriction is out of range.
    #[error("a restriction must last from one minute to ten years")]
    InvalidLength,
    /// The room has no such message.
    #[error("the message does not exist")]
    NoSuchMessage,
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// An outbox message could not be serialised.
    #[error(transparent)]
    Message(#[from] serde_json::Error),
}

impl Moderation {
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

    /// Resolves a user id or username.
    pub async fn user(&self, named: &str) -> Result<UserId, ModerationError> {
        let found = match named.parse::<UserId>() {
            Ok(id) => self.accounts.find(id).await?,
            Err(()) => self.accounts.named(&named.to_ascii_lowercase()).await?,
        };
        found.map(|account| account.id).ok_or(ModerationError::NoSuchUser)
    }

    /// Applies a restriction without an end, or lifts one. The operator and the reason are recorded.
    pub async fn restrict(
        &self,
        user: UserId,
        restriction: Restriction,
        operator: &Operator,
    ) -> Result<(), ModerationError> {
        self.restrict_for(user, restriction, None, operator).await
    }

    /// Like [`Self::restrict`], with an optional length after which a ban or mute expires. Repeating a ban or mute sets
    /// a new end.
    pub async fn restrict_for(
        &self,
        user: UserId,
        restriction: Restriction,
        length: Option<Duration>,
        operator: &Operator,
    ) -> Result<(), ModerationError> {
        let now = self.clock.now();
        let until = match length {
            Some(length) => Some(rules::end(now, length).ok_or(ModerationError::InvalidLength)?),
            None => None,
        };
        let term = Some(Term { since: now, until });
        let mut tx = platform::database::begin(&self.db).await?;
        if !accounts::lock(&mut tx, user).await? {
            return Err(ModerationError::NoSuchUser);
        }
        let changed = match restriction {
            Restriction::Ban => store::set_banned(&mut tx, user, term, now).await?,
            Restriction::Unban => store::set_banned(&mut tx, user, None, now).await?,
            Restriction::Mute => store::set_muted(&mut tx, user, term, now).await?,
            Restriction::Unmute => store::set_muted(&mut tx, user, None, now).await?,
        };
        if !changed {
            return Err(ModerationError::Unchanged);
        }
        if let Some(account) = accounts::find(&mut *tx, user, now).await? {
            self.restricted_phones.update_in(&mut tx, &account).await?;
        }
        let noted = Noted { action: restriction.name(), reason: &operator.reason, operator: &operator.name, until };
        accounts::note_restriction(&mut tx, user, &noted, now).await?;
        let key = format!("user:{user}");
        let action = Action::new(restriction.action(), key);
        let action = match until.and_then(|until| until.format(&Rfc3339).ok()) {
            Some(until) => action.with(json!({"until": until})),
            None => action,
        };
        operators::service::record(&mut tx, operator, &action, now).await?;
        outbox::enqueue(&mut tx, &changes(user, &[restriction])?).await?;
        tx.commit().await?;
        self.sessions.forget_user(user);
        self.outbox_written.notify_one();
        metrics::counter!("matchday_restrictions_total", "action" => restriction.name()).increment(1);
        Ok(())
    }

    /// Lifts expired bans and mutes, so that the homeserver and other processes are notified. Returns the number of
    /// users. The API does not depend on this: it checks the end of a restriction itself.
    pub async fn lift_ended(&self) -> Result<usize, ModerationError> {
        let mut lifted = 0;
        for user in store::ended(&self.db, self.clock.now(), LIFTED_AT_ONCE).await? {
            let now = self.clock.now();
            let mut tx = platform::database::begin(&self.db).await?;
            accounts::lock(&mut tx, user).await?;
            // Another worker or an operator may have lifted it already.
            let (ban, mute) = store::lift_ended(&mut tx, user, now).await?;
            let ends = [(ban, Restriction::Unban), (mute, Restriction::Unmute)];
            let expired: Vec<Restriction> =
                ends.into_iter().filter_map(|(ended, lift)| ended.then_some(lift)).collect();
            if expired.is_empty() {
                continue;
            }
            for restriction in &expired {
                let reason = "The restriction expired.";
                let noted = Noted { action: restriction.name(), reason, operator: SERVICE, until: None };
                accounts::note_restriction(&mut tx, user, &noted, now).await?;
            }
            outbox::enqueue(&mut tx, &changes(user, &expired)?).await?;
            tx.commit().await?;
            lifted += 1;
            self.sessions.forget_user(user);
            self.outbox_written.notify_one();
            for restriction in expired {
                metrics::counter!("matchday_restrictions_total", "action" => restriction.name()).increment(1);
            }
        }
        Ok(lifted)
    }

    /// Deletes restricted phones whose restrictions have expired, and erases reports that were kept long enough after
    /// the sender's account deletion. Returns the number of changed rows.
    pub async fn sweep(&self) -> sqlx::Result<u64> {
        let (db, now) = (&self.db, self.clock.now());
        let phones = database::sweep(|most| store::sweep_phones(db, now, most)).await?;
        let unknown = store::count_phones_without_key(db, &self.restricted_phones.key_versions()).await?;
        if unknown > 0 {
            tracing::warn!(phones = unknown, "restricted phones use keys that are missing in codes.keys");
        }
        let reports = database::sweep(|most| store::erase_reports(db, now, most)).await?;
        Ok(phones + reports)
    }

    /// Handles a restriction change from any process: evicts the user's tokens, because cached checks contain the ban.
    pub fn heard(&self, payload: &[u8]) {
        if let Ok(fact) = serde_json::from_slice::<RestrictionFact>(payload) {
            self.sessions.forget_user(fact.user_id);
        } else {
            tracing::warn!("restriction change is malformed; the token cache is cleared");
            self.sessions.forget_all();
        }
    }

    /// Blocks `other` for `user` and declines pending invitations from `other`.
    pub async fn block(&self, user: UserId, other: UserId) -> Result<(), ModerationError> {
        if user == other {
            return Err(ModerationError::SelfBlock);
        }
        if self.accounts.find(other).await?.is_none() {
            return Err(ModerationError::NoSuchUser);
        }
        let mut tx = platform::database::begin(&self.db).await?;
        accounts::lock(&mut tx, user).await?;
        if store::block(&mut tx, user, other, self.clock.now()).await? {
            if store::count_blocks(&mut tx, user).await? > MOST_BLOCKS {
                return Err(ModerationError::TooMany);
            }
            let mut messages = vec![ignored(user, other)?];
            // Pending invitations from the blocked user are declined too.
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

    pub async fn unblock(&self, user: UserId, other: UserId) -> Result<(), ModerationError> {
        let mut tx = platform::database::begin(&self.db).await?;
        accounts::lock(&mut tx, user).await?;
        if store::unblock(&mut tx, user, other).await? {
            outbox::enqueue(&mut tx, &[ignored(user, other)?]).await?;
        }
        tx.commit().await?;
        self.outbox_written.notify_one();
        Ok(())
    }

    /// A page of the users whom a user has blocked, and the total.
    pub async fn blocks(&self, user: UserId, paging: Paging) -> sqlx::Result<(Vec<Blocked>, i64)> {
        let mut connection = self.db.acquire().await?;
        let total = store::count_blocks(&mut connection, user).await?;
        let blocked = store::blocks(&mut connection, user, paging).await?;
        let ids: Vec<i64> = blocked.iter().map(|(id, _)| id.0).collect();
        let usernames = accounts::usernames(&mut connection, &ids).await?;
        let named = |(id, created_at)| Some(Blocked { id, username: usernames.get(&id)?.clone(), created_at });
        Ok((blocked.into_iter().filter_map(named).collect(), total))
    }

    /// Charges one block or unblock to the user's rate limit.
    pub async fn permit_block(&self, user: UserId) -> Decision {
        let every = Duration::from_secs(5) / self.leniency;
        let limit = Limit { name: "block", burst: 60 * self.leniency, every };
        self.limiter.take(limit, &user.to_string()).await
    }

    /// Charges one report to the user's rate limit.
    pub async fn permit_report(&self, user: UserId) -> Decision {
        let every = Duration::from_mins(1) / self.leniency;
        let limit = Limit { name: "report", burst: 20 * self.leniency, every };
        self.limiter.take(limit, &user.to_string()).await
    }

    /// Stores a report with a copy of the message, because the sender may redact it. While the homeserver is
    /// unavailable, the report is stored without the copy. Returns whether this is the user's first report of the
    /// message.
    pub async fn report(
        &self,
        user: UserId,
        room: &Room,
        message: &MessageId,
        reason: &Reason,
    ) -> Result<bool, ModerationError> {
        let evidence = self.evidence(room, message).await?;
        let now = self.clock.now();
        let is_new = store::report(&self.db, user, room.id, message.as_str(), reason.as_str(), &evidence, now).await?;
        if is_new {
            metrics::counter!("matchday_reports_total").increment(1);
        }
        Ok(is_new)
    }

    async fn evidence(&self, room: &Room, message: &MessageId) -> Result<Evidence, ModerationError> {
        let nothing = Evidence::default();
        let (Some(homeserver), Some(room)) = (self.chat.homeserver(), &room.matrix_id) else { return Ok(nothing) };
        let (Ok(room), Ok(event)) = (MatrixRoomId::parse(room.as_str()), MatrixEventId::parse(message.as_str())) else {
            return Err(ModerationError::NoSuchMessage);
        };
        match homeserver.event(&room, &event).await {
            Ok(Some(seen)) => {
                let millis = i64::try_from(seen.timestamp_ms).unwrap_or_default();
                let sent_at = OffsetDateTime::UNIX_EPOCH.checked_add(time::Duration::milliseconds(millis));
                let content: String = seen.content.to_string().chars().take(EVIDENCE_LENGTH).collect();
                Ok(Evidence { sender: Some(seen.sender.to_string()), sent_at, content: Some(content) })
            }
            Ok(None) => Err(ModerationError::NoSuchMessage),
            Err(error) => {
                tracing::warn!(%error, "report stored without the message");
                Ok(nothing)
            }
        }
    }

    /// Open reports, oldest first.
    pub async fn open_reports(&self, most: i64) -> sqlx::Result<Vec<Report>> {
        store::open_reports(&self.db, most).await
    }

    /// Closes a report and stores the operator's reason as its resolution. Returns whether it was open.
    pub async fn close_report(&self, id: i64, operator: &Operator) -> sqlx::Result<bool> {
        let now = self.clock.now();
        let mut tx = platform::database::begin(&self.db).await?;
        if !store::close_report(&mut *tx, id, &operator.reason, now).await? {
            return Ok(false);
        }
        operators::service::record(&mut tx, operator, &Action::new("report.close", format!("report:{id}")), now)
            .await?;
        tx.commit().await?;
        Ok(true)
    }
}

/// Messages about changed restrictions of a user: one fact for each, and work for the chat worker.
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
