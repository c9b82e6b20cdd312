//! Restrictions by operators, and blocks between users.

use std::{sync::Arc, time::Duration};

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

use super::{hooks::EndsFollows, rules, settings::Settings, store};
use crate::{
    chat::messages::{IGNORED, Ignored, UNWANTED, Unwanted},
    identity::{
        accounts::{
            self, Noted, UserSegment,
            restrictions::{
                CHANGED, RESTRICTED, Restricted, RestrictedPhones, Restriction, RestrictionFact, SERVICE, Term,
            },
            service::Accounts,
        },
        operators::{self, Operator, service::Action},
        sessions::{self, service::Sessions},
    },
};

/// Number of users that one user may block.
const MOST_BLOCKS: i64 = 1_000;

/// Number of users whose expired restrictions one run of the worker lifts.
const LIFTED_AT_ONCE: i64 = 100;

/// Service for restrictions and blocks.
#[derive(Clone)]
pub struct Moderation {
    db: PgPool,
    accounts: Accounts,
    sessions: Sessions,
    restricted_phones: RestrictedPhones,
    follows: Arc<dyn EndsFollows>,
    limiter: RateLimiter,
    leniency: u32,
    contact: Option<String>,
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
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// An outbox message could not be serialised.
    #[error(transparent)]
    Message(#[from] serde_json::Error),
}

/// What happens to a restriction that is already in effect, with the same end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repetition {
    Refused,
    Recorded,
}

impl Moderation {
    pub fn new(
        core: &Core,
        accounts: Accounts,
        sessions: Sessions,
        restricted_phones: RestrictedPhones,
        follows: Arc<dyn EndsFollows>,
        settings: &Settings,
    ) -> Self {
        let Core { db, clock, limits: limiter, outbox_written, .. } = core.clone();
        let (leniency, contact) = (core.env.leniency(), settings.contact.clone());
        Self { db, accounts, sessions, restricted_phones, follows, limiter, leniency, contact, clock, outbox_written }
    }

    /// Contact for complaints about content.
    pub fn contact(&self) -> Option<&str> {
        self.contact.as_deref()
    }

    /// Resolves a user id or username.
    pub async fn user(&self, named: &str) -> Result<UserId, ModerationError> {
        let found = self.accounts.resolve(named).await?;
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
        self.apply(user, restriction, until, Repetition::Refused, operator).await
    }

    /// Bans or mutes a user until the given time, or without an end. Replaces the current restriction of this kind, also if
    /// only the reason is another one.
    pub async fn replace(
        &self,
        user: UserId,
        restriction: Restriction,
        until: Option<OffsetDateTime>,
        operator: &Operator,
    ) -> Result<(), ModerationError> {
        self.apply(user, restriction, until, Repetition::Recorded, operator).await
    }

    async fn apply(
        &self,
        user: UserId,
        restriction: Restriction,
        until: Option<OffsetDateTime>,
        repetition: Repetition,
        operator: &Operator,
    ) -> Result<(), ModerationError> {
        let now = self.clock.now();
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
        if !changed && repetition == Repetition::Refused {
            return Err(ModerationError::Unchanged);
        }
        if restriction == Restriction::Ban {
            sessions::remove_push_devices_in(&mut tx, user).await?;
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

    /// Mutes or bans a user until a time, unless they are restricted for longer already or the time has passed. Idempotent.
    pub async fn restrict_until(
        &self,
        user: UserId,
        restriction: Restriction,
        until: OffsetDateTime,
        operator: &Operator,
    ) -> Result<(), ModerationError> {
        let Some(account) = self.accounts.find(user).await? else { return Ok(()) };
        let (since, end) = match restriction {
            Restriction::Ban | Restriction::Unban => (account.banned_at, account.banned_until),
            Restriction::Mute | Restriction::Unmute => (account.muted_at, account.muted_until),
        };
        let left = Duration::try_from(until - self.clock.now()).unwrap_or_default();
        if left.is_zero() || since.is_some() && end.is_none_or(|end| end >= until) {
            return Ok(());
        }
        // A restriction lasts for at least a minute.
        let length = left.max(Duration::from_mins(1));
        match self.restrict_for(user, restriction, Some(length), operator).await {
            Ok(()) | Err(ModerationError::Unchanged | ModerationError::NoSuchUser) => Ok(()),
            Err(error) => Err(error),
        }
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

    /// Deletes restricted phones whose restrictions have expired. Returns their number.
    pub async fn sweep(&self) -> sqlx::Result<u64> {
        let (db, now) = (&self.db, self.clock.now());
        let phones = database::sweep(|most| store::sweep_phones(db, now, most)).await?;
        let unknown = store::count_phones_without_key(db, &self.restricted_phones.key_versions()).await?;
        if unknown > 0 {
            tracing::warn!(phones = unknown, "restricted phones use keys that are missing in codes.keys");
        }
        Ok(phones)
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

    /// Finds the user whom a path names.
    pub async fn at(&self, segment: &UserSegment) -> Result<UserId, ModerationError> {
        let found = self.accounts.at(segment).await?;
        found.map(|account| account.id).ok_or(ModerationError::NoSuchUser)
    }

    /// Blocks `other` for `user`, ends the follows between them, and declines pending invitations from `other`.
    pub async fn block(&self, user: UserId, other: UserId) -> Result<(), ModerationError> {
        if user == other {
            return Err(ModerationError::SelfBlock);
        }
        if self.accounts.find(other).await?.is_none() {
            return Err(ModerationError::NoSuchUser);
        }
        let mut tx = platform::database::begin(&self.db).await?;
        // A follow holds the lock of the follower. With both locks, no follow between the two can appear at the same time.
        for account in [user.min(other), user.max(other)] {
            accounts::lock(&mut tx, account).await?;
        }
        if store::block(&mut tx, user, other, self.clock.now()).await? {
            if store::count_blocks(&mut tx, user).await? > MOST_BLOCKS {
                return Err(ModerationError::TooMany);
            }
            self.follows.end_between_in(&mut tx, user, other).await?;
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
