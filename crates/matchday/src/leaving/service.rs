//! Taking along what is one's own, and going for good.

use std::{sync::Arc, time::Duration};

use matrix_appservice::{Error as MatrixError, Homeserver, OwnedRoomId, Redaction};
use platform::{
    Core,
    clock::Clock,
    outbox::{self, Message},
    rate_limit::{Decision, Limit, RateLimiter},
    telemetry,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sqlx::PgConnection;
use time::OffsetDateTime;
use tokio::sync::{Notify, Semaphore};
use web::{ClientNetwork, ids::UserId};

use super::{
    rules::{Fate, TABLES},
    store::{self, Due, Person},
};
use crate::{
    accounts::{self, service::Account},
    codes::{
        Code, Subject,
        service::{CheckError, GuessPermit, RequestError, Sent},
    },
    login::service::Login,
    mirror::service::Mirror,
    phone::Phone,
    phones::service::Phones,
    sessions::service::SessionError,
    sms::templates::Language,
};

/// The subject on which it is told that somebody is gone.
pub const DELETED: &str = "fact.user.deleted";

/// An export reads all that there is of a user.
const EXPORTS: Limit = Limit { name: "export", burst: 3, every: Duration::from_mins(10) };
/// How many are made at once in a process.
const EXPORTS_AT_ONCE: usize = 2;
/// How long somebody waits for their turn.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long open reports about a deleted account keep its name and message, unless a moderator closes them sooner.
const REPORTS_STAY: Duration = Duration::from_hours(30 * 24);
/// After so long, whatever was under way in a user's name has ended: requests have deadlines, and tokens that were checked
/// are checked again.
const SETTLES_AFTER: Duration = Duration::from_mins(1);
/// How long a worker may be at a departure before another one takes it.
const TURN: Duration = Duration::from_mins(5);
/// The same for the devices alone. So short that the chat tokens end within two seconds although the worker that took
/// them was killed. Ending a device twice is harmless.
const DEVICES_TURN: Duration = Duration::from_millis(500);
/// The longest pause between attempts to end devices.
const LONGEST_DEVICES_PAUSE: Duration = Duration::from_secs(30);
/// The pause after the first failed attempt; it doubles with each.
const SHORTEST_PAUSE: Duration = Duration::from_secs(10);
/// The longest pause between attempts.
const LONGEST_PAUSE: Duration = Duration::from_hours(1);
/// How often, and how many times, the homeserver is asked whether a redaction is complete.
const REDACTION_LOOK: Duration = Duration::from_millis(500);
const REDACTION_LOOKS: u32 = 240;

/// Somebody is gone. Only a number is left to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deleted {
    /// Who they were.
    pub user_id: UserId,
}

/// Going, and taking one's data along.
#[derive(Clone)]
pub struct Leaving {
    inner: Arc<Inner>,
}

struct Inner {
    /// Whoever goes has come by the same parts.
    way_in: Login,
    phones: Phones,
    mirror: Mirror,
    limiter: RateLimiter,
    /// The homeserver's name, which ends what it calls people.
    server_name: Option<String>,
    clock: Arc<dyn Clock>,
    outbox_written: Arc<Notify>,
    exports: Semaphore,
}

/// All that there is of a user, by table.
pub type Export = Vec<(&'static str, Box<RawValue>)>;

/// Why nothing came of it.
#[derive(Debug, thiserror::Error)]
pub enum LeavingError {
    /// There is no such account, or not any more.
    #[error("the account does not exist")]
    NoSuchAccount,
    /// No code can be sent to somebody without a phone.
    #[error("the account has no phone")]
    NoPhone,
    /// The account moved to another phone, and the move can still be undone.
    #[error("the account's phone was moved lately")]
    MovedLately {
        /// When the account can be deleted.
        until: OffsetDateTime,
    },
    /// Others are at it.
    #[error("too many exports at once")]
    Busy,
    /// No code was sent.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The code.
    #[error(transparent)]
    Code(#[from] CheckError),
    /// The sessions.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The database failed.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// Something could not be written.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// Why a departure is not finished.
#[derive(Debug, thiserror::Error)]
enum FinishError {
    #[error("the homeserver: {0}")]
    Homeserver(#[from] MatrixError),
    #[error("the redaction is still running")]
    StillRedacting,
    #[error("the redaction failed: {0}")]
    NotRedacted(String),
    #[error("not a room id of the homeserver: {0}")]
    NotARoom(String),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

impl Leaving {
    /// The way out for those who came by this way in.
    pub fn new(core: &Core, way_in: Login, phones: Phones, mirror: Mirror, server_name: Option<String>) -> Self {
        let Core { limits: limiter, clock, outbox_written, .. } = core.clone();
        let exports = Semaphore::new(EXPORTS_AT_ONCE);
        let inner = Inner { way_in, phones, mirror, limiter, server_name, clock, outbox_written, exports };
        Self { inner: Arc::new(inner) }
    }

    /// Takes from how often a user may ask for all of it.
    pub async fn permit_export(&self, user: UserId) -> Decision {
        self.inner.limiter.take(EXPORTS, &user.to_string()).await
    }

    /// All that there is of a user, as it was at one moment.
    pub async fn export(&self, user: UserId) -> Result<Export, LeavingError> {
        let inner = &*self.inner;
        let turn = tokio::time::timeout(PATIENCE, inner.exports.acquire()).await;
        let _turn = turn.ok().and_then(Result::ok).ok_or(LeavingError::Busy)?;
        let account = inner.way_in.accounts.find(user).await?.ok_or(LeavingError::NoSuchAccount)?;
        let mut tx = inner.way_in.db.begin_with("begin isolation level repeatable read read only").await?;
        let person = self.person(&mut tx, user, account.phone.as_ref()).await?;
        let mut export = Vec::with_capacity(TABLES.len());
        for table in TABLES {
            let rows = store::export(&mut tx, table, &person).await?;
            export.push((table.name, RawValue::from_string(rows)?));
        }
        tx.commit().await?;
        Ok(export)
    }

    /// Sends the code that a deletion needs, to the account's own phone.
    pub async fn request(
        &self,
        user: UserId,
        network: ClientNetwork,
        language: Language,
    ) -> Result<(Phone, Sent), LeavingError> {
        let phone = self.phone(user).await?;
        self.require_settled(&mut *self.inner.way_in.db.acquire().await?, user).await?;
        let sent = self.inner.way_in.codes.request(&Subject::Departure(user), &phone, network, language).await?;
        Ok((phone, sent))
    }

    /// Deletes an account, for whoever has the code. What says who the person is is gone when this returns. The chat devices
    /// end at about the same time, and messages follow.
    pub async fn delete(&self, user: UserId, code: &Code, permit: GuessPermit) -> Result<(), LeavingError> {
        let inner = &*self.inner;
        let (phone, subject) = (self.phone(user).await?, Subject::Departure(user));
        let right = inner.way_in.codes.check(&subject, &phone, code, permit).await?;
        let now = inner.clock.now();
        let mut tx = inner.way_in.db.begin().await?;
        if inner.way_in.codes.consume_in(&mut tx, right, &subject).await?.is_none() {
            return Err(CheckError::NotGood.into());
        }
        accounts::store::lock(&mut tx, user).await?;
        self.require_settled(&mut tx, user).await?;
        let person = self.person(&mut tx, user, Some(&phone)).await?;
        let names = store::names(&mut tx, user).await?;
        let ended = inner.way_in.sessions.end_all_in(&mut tx, user).await?;
        inner.way_in.accounts.keep_restrictions_in(&mut tx, user, &phone).await?;
        for table in TABLES.iter().filter(|table| table.fate != Fate::DeletedLater) {
            store::forget(&mut tx, table, &person).await?;
        }
        store::limit_open_reports(&mut tx, &person, now + REPORTS_STAY).await?;
        store::set_deleted(&mut tx, user, now).await?;
        store::insert_departure(&mut tx, user, &names, now, now + SETTLES_AFTER).await?;
        let told = Message::new(DELETED, format!("user:{user}"), &Deleted { user_id: user })?;
        outbox::enqueue(&mut tx, &[told]).await?;
        tx.commit().await?;
        inner.way_in.sessions.forget(&ended);
        inner.outbox_written.notify_one();
        metrics::counter!("matchday_accounts_deleted_total").increment(1);
        // At once, whether or not this process has workers, and without making the caller wait for the homeserver. A worker
        // does it again from the table, in case this process is killed now.
        let departing = self.clone();
        let ending = async move {
            if let Err(error) = departing.end_devices(&names).await {
                tracing::warn!(%error, user = user.0, "chat devices of a deleted account did not end at once");
            }
        };
        tokio::spawn(telemetry::in_this_request(ending));
        Ok(())
    }

    /// Whoever took an account over must not be able to delete it before its owner has undone the move.
    async fn require_settled(&self, connection: &mut PgConnection, user: UserId) -> Result<(), LeavingError> {
        match self.inner.phones.undo_until(connection, user).await? {
            Some(until) => Err(LeavingError::MovedLately { until }),
            None => Ok(()),
        }
    }

    /// Ends every chat device of these names, which ends the access tokens. The application service may do so: no admin
    /// token is needed.
    async fn end_devices(&self, names: &[String]) -> Result<(), MatrixError> {
        let Some(homeserver) = self.inner.way_in.chat.homeserver() else { return Ok(()) };
        for name in names {
            let devices = match homeserver.devices(name).await {
                Err(MatrixError::NoSuchUser(_) | MatrixError::Deactivated(_)) => Vec::new(),
                outcome => outcome?,
            };
            for device in devices {
                homeserver.delete_device(name, device.as_str()).await?;
            }
        }
        Ok(())
    }

    /// Ends the chat devices of deleted accounts that are due. Call it several times a second.
    pub async fn end_due_devices(&self) -> sqlx::Result<()> {
        let (db, clock) = (&self.inner.way_in.db, &self.inner.clock);
        loop {
            let now = clock.now();
            let Some(due) = store::take_devices_due(db, now, now + DEVICES_TURN).await? else { return Ok(()) };
            let again_at = match self.end_devices(&due.chat_names).await {
                Ok(()) => None,
                Err(error) => {
                    tracing::warn!(%error, user = due.user_id.0, "chat devices of a deleted account have not ended");
                    Some(clock.now() + pause(due.attempts, DEVICES_TURN, LONGEST_DEVICES_PAUSE))
                }
            };
            store::set_devices_due(db, due.id, again_at).await?;
        }
    }

    async fn phone(&self, user: UserId) -> Result<Phone, LeavingError> {
        let account: Account = self.inner.way_in.accounts.find(user).await?.ok_or(LeavingError::NoSuchAccount)?;
        account.phone.ok_or(LeavingError::NoPhone)
    }

    /// By what a person's rows are found, while the names are still theirs.
    async fn person(
        &self,
        connection: &mut PgConnection,
        user: UserId,
        phone: Option<&Phone>,
    ) -> Result<Person, LeavingError> {
        let names = store::names(connection, user).await?;
        let login = phone.map(|phone| Subject::Login(phone.clone()));
        let subjects = login.into_iter().chain([Subject::Verification(user), Subject::Departure(user)]);
        Ok(Person {
            user,
            phone: phone.map(|phone| phone.as_str().to_owned()),
            subjects: subjects.map(|subject| subject.key()).collect(),
            matrix_ids: self.matrix_ids(&names),
        })
    }

    fn matrix_ids(&self, names: &[String]) -> Vec<String> {
        let server = self.inner.server_name.as_deref();
        names.iter().filter_map(|name| Some(format!("@{name}:{}", server?))).collect()
    }

    /// Finishes the departures that are due; returns how many it finished.
    pub async fn finish_due(&self) -> sqlx::Result<usize> {
        let (inner, mut finished) = (&*self.inner, 0);
        loop {
            let now = inner.clock.now();
            let Some(due) = store::take_due(&inner.way_in.db, now, now + TURN).await? else { break };
            match self.finish(&due).await {
                Ok(()) => finished += 1,
                Err(error) => {
                    tracing::warn!(%error, user = due.user_id.0, "a deleted account is not erased in chat yet");
                    let due_at = inner.clock.now() + pause(due.attempts, SHORTEST_PAUSE, LONGEST_PAUSE);
                    store::postpone(&inner.way_in.db, &due, &error.to_string(), due_at).await?;
                }
            }
        }
        let (unfinished, since) = store::waiting(&inner.way_in.db).await?;
        let age = since.map_or(0.0, |since: OffsetDateTime| (inner.clock.now() - since).as_seconds_f64().max(0.0));
        metrics::gauge!("matchday_departures_unfinished").set(u32::try_from(unfinished).unwrap_or(u32::MAX));
        metrics::gauge!("matchday_departures_oldest_seconds").set(age);
        Ok(finished)
    }

    async fn finish(&self, due: &Due) -> Result<(), FinishError> {
        let inner = &*self.inner;
        let erased = match inner.way_in.chat.homeserver() {
            Some(homeserver) => self.erase(homeserver, due).await,
            None => Ok(()),
        };
        // Also while the homeserver fails: rows that were being written when the account was deleted must not stay.
        inner.mirror.forget(due.user_id).await?;
        let mut tx = inner.way_in.db.begin().await?;
        let matrix_ids = self.matrix_ids(&due.chat_names);
        let subjects = [Subject::Verification(due.user_id), Subject::Departure(due.user_id)];
        let subjects = subjects.iter().map(Subject::key).collect();
        let person = Person { user: due.user_id, phone: None, subjects, matrix_ids };
        store::take_time(&mut tx).await?;
        for table in TABLES {
            store::forget(&mut tx, table, &person).await?;
        }
        store::limit_open_reports(&mut tx, &person, inner.clock.now() + REPORTS_STAY).await?;
        if erased.is_ok() {
            store::remove(&mut tx, due).await?;
        }
        tx.commit().await?;
        erased
    }

    /// Redacts what the person sent in chat, deletes their uploads, and deactivates their chat accounts. Idempotent. A
    /// redaction that fails does not keep the accounts alive: it is retried, in the rooms that the departure has noted.
    async fn erase(&self, homeserver: &Homeserver, due: &Due) -> Result<(), FinishError> {
        let mut joined = Vec::new();
        for name in &due.chat_names {
            match homeserver.joined_rooms(name).await {
                Ok(rooms) => joined.extend(rooms.iter().map(ToString::to_string)),
                Err(MatrixError::NoSuchUser(_) | MatrixError::Deactivated(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let rooms = store::add_rooms(&self.inner.way_in.db, due, &joined).await?;
        let mut outcome = Ok(());
        for name in &due.chat_names {
            let redacted = redact(homeserver, name, &rooms).await;
            homeserver.deactivate(name, true).await?;
            outcome = outcome.and(redacted);
        }
        outcome
    }
}

/// Redacts everything that a user sent in these rooms, and deletes what they uploaded.
async fn redact(homeserver: &Homeserver, name: &str, rooms: &[String]) -> Result<(), FinishError> {
    let parse = |room: &String| OwnedRoomId::try_from(room.as_str()).map_err(|_| FinishError::NotARoom(room.clone()));
    let rooms = rooms.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    if !rooms.is_empty() {
        let redaction = match homeserver.redact_all(name, &rooms).await {
            // Without an admin token, messages are hidden from users who join later, and no more can be done.
            Err(MatrixError::NoAdmin | MatrixError::NoSuchUser(_)) => return Ok(()),
            outcome => outcome?,
        };
        let mut looks = tokio::time::interval(REDACTION_LOOK);
        let mut left = REDACTION_LOOKS;
        loop {
            match homeserver.redaction(&redaction).await? {
                Redaction::Done => break,
                Redaction::Failed(reason) => return Err(FinishError::NotRedacted(reason)),
                Redaction::Running => left = left.checked_sub(1).ok_or(FinishError::StillRedacting)?,
            }
            looks.tick().await;
        }
    }
    loop {
        match homeserver.delete_media(name).await {
            Ok(0) | Err(MatrixError::NoAdmin | MatrixError::NoSuchUser(_)) => return Ok(()),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// How long to wait after so many attempts.
fn pause(attempts: i32, shortest: Duration, longest: Duration) -> Duration {
    let doublings = attempts.clamp(1, 12).unsigned_abs() - 1;
    longest.min(shortest * 2_u32.pow(doublings))
}
