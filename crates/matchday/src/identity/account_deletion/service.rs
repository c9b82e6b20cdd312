//! Data export and account deletion.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use matrix_appservice::{ChatServer, Error as MatrixError, Homeserver, OwnedRoomId, Redaction};
use platform::{
    Core,
    clock::Clock,
    outbox::{self, Message},
    rate_limit::{Decision, Limit, RateLimiter},
    reads::Reader,
    stream::Streams,
    telemetry,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use tokio::sync::{Notify, Semaphore};
use web::{ClientNetwork, ids::UserId};

use super::{
    hooks::Hooks,
    rules::{self, Fate, TABLES},
    store::{self, Due, Person},
};
use crate::identity::{
    accounts::{self, service::Account},
    avatars::service::Avatars,
    codes::{
        Code, Subject,
        service::{CheckError, GuessPermit, RequestError, Sent},
    },
    login::service::Login,
    phone::Phone,
    phone_moves::service::PhoneMoves,
    sessions::service::{EndedSessions, SessionError},
    sms::templates::Language,
};

/// Subject for deleted accounts.
pub const DELETED: &str = "fact.user.deleted";
/// Subject that wakes the workers after a deletion, because the chat devices must end soon.
pub const DEVICES_DUE: &str = "wake.devices";

/// Limited because an export reads all rows of a user.
const EXPORTS: Limit = Limit { name: "export", burst: 3, every: Duration::from_mins(10) };
/// Maximum number of concurrent exports in a process.
const EXPORTS_AT_ONCE: usize = 2;
/// Maximum time an export waits for others to finish.
const PATIENCE: Duration = Duration::from_secs(2);

/// Time for which open reports about a deleted account keep its name and message, unless a moderator closes them
/// sooner.
const REPORTS_STAY: Duration = Duration::from_hours(30 * 24);
/// After this time, all requests of the user have ended: requests have deadlines, and cached tokens are checked again.
const SETTLES_AFTER: Duration = Duration::from_mins(1);
/// Time a worker has to finish a deletion before another worker may take it.
const TURN: Duration = Duration::from_mins(5);
/// Time a worker has to remove the chat devices. It is short, so the chat tokens become invalid within two seconds even
/// if the worker is killed. Removing a device twice is harmless.
const DEVICES_TURN: Duration = Duration::from_millis(500);
/// Maximum pause between attempts to remove devices.
const LONGEST_DEVICES_PAUSE: Duration = Duration::from_secs(30);
/// Pause after the first failed attempt; it doubles with each further one.
const SHORTEST_PAUSE: Duration = Duration::from_secs(10);
/// Maximum pause between attempts.
const LONGEST_PAUSE: Duration = Duration::from_hours(1);
/// Number of deletions that are finished at the same time.
const FINISHED_AT_ONCE: usize = 4;
/// Interval at which the homeserver is polled for the state of a redaction.
const REDACTION_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Number of polls in one attempt. The redaction continues on the homeserver, and the next attempt polls it again.
const REDACTION_POLLS: u32 = 20;

/// Message about a deleted account. It contains only the user id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deleted {
    pub user_id: UserId,
}

/// Deletes accounts and exports their data.
#[derive(Clone)]
pub struct AccountDeletion {
    inner: Arc<Inner>,
}

struct Inner {
    /// Provides the database, accounts, codes and sessions.
    login: Login,
    phones: PhoneMoves,
    avatars: Avatars,
    hooks: Hooks,
    server: Option<ChatServer>,
    limiter: RateLimiter,
    /// Server name of the homeserver, part of Matrix ids.
    server_name: Option<String>,
    clock: Arc<dyn Clock>,
    outbox_written: Arc<Notify>,
    streams: Streams,
    exports: Semaphore,
}

/// A follower in an export.
#[derive(Serialize)]
struct Follower {
    follower_id: UserId,
}

/// A user's rows as JSON, by table name.
pub type Export = Vec<(&'static str, Box<RawValue>)>;

/// Failure of a deletion or an export.
#[derive(Debug, thiserror::Error)]
pub enum DeletionError {
    /// The account does not exist or was deleted.
    #[error("the account does not exist")]
    NoSuchAccount,
    /// The account has no phone to send a code to.
    #[error("the account has no phone")]
    NoPhone,
    /// The account moved to another phone recently, and the move can still be undone.
    #[error("the account moved to another phone recently")]
    PhoneMovedRecently {
        /// Time from which the account can be deleted.
        until: OffsetDateTime,
    },
    /// Too many concurrent exports in this process.
    #[error("too many concurrent exports")]
    Busy,
    /// The code could not be sent.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The code was not accepted.
    #[error(transparent)]
    Code(#[from] CheckError),
    /// The sessions could not be ended.
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// A message or an export could not be serialized.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// Reason why a worker could not finish a deletion.
#[derive(Debug, thiserror::Error)]
enum FinishError {
    #[error("the homeserver failed: {0}")]
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

impl AccountDeletion {
    #[expect(clippy::too_many_arguments, reason = "each is a service of another feature")]
    pub fn new(
        core: &Core,
        login: Login,
        phones: PhoneMoves,
        avatars: Avatars,
        hooks: Hooks,
        server: Option<ChatServer>,
        server_name: Option<String>,
        streams: Streams,
    ) -> Self {
        let Core { limits: limiter, clock, outbox_written, .. } = core.clone();
        let exports = Semaphore::new(EXPORTS_AT_ONCE);
        Self {
            inner: Arc::new(Inner {
                login,
                phones,
                avatars,
                hooks,
                server,
                limiter,
                server_name,
                clock,
                outbox_written,
                streams,
                exports,
            }),
        }
    }

    /// Counts an export against the user's rate limit.
    pub async fn permit_export(&self, user: UserId) -> Decision {
        self.inner.limiter.take(EXPORTS, &user.to_string()).await
    }

    /// Exports all rows of a user from one database snapshot.
    pub async fn export(&self, reader: &Reader, user: UserId) -> Result<Export, DeletionError> {
        let inner = &*self.inner;
        let turn = tokio::time::timeout(PATIENCE, inner.exports.acquire()).await;
        let _turn = turn.ok().and_then(Result::ok).ok_or(DeletionError::Busy)?;
        let account = inner.login.accounts.find(user).await?.ok_or(DeletionError::NoSuchAccount)?;
        let phone = account.phone.as_ref();
        let read = async |db: PgPool| {
            let mut tx = platform::database::begin_with(&db, "begin isolation level repeatable read read only").await?;
            let person = self.person(&mut tx, user, phone).await?;
            let timestamps = store::timestamp_columns(&mut tx).await?;
            let mut rows = Vec::with_capacity(TABLES.len());
            for table in TABLES {
                if let Some(exported) = store::export(&mut tx, table, &person).await? {
                    rows.push((table, exported));
                }
            }
            let followers = inner.hooks.follows.followers(&mut tx, user).await?;
            let receipts = inner.hooks.receipts.export(&mut tx, user).await?;
            let avatar_url = inner.avatars.url_of(&mut tx, user).await?;
            tx.commit().await?;
            Ok((rows, timestamps, followers, receipts.to_string(), avatar_url))
        };
        let (mut rows, timestamps, followers, receipts, avatar_url) = reader.read(read).await?;
        for (table, rows) in &mut rows {
            if let Some(columns) = timestamps.get(table.name) {
                *rows = rules::with_standard_timestamps(rows, columns)?;
            }
            if table.name != "users" {
                continue;
            }
            debug_assert!(table.hidden.contains(&"avatar_key"), "its URL replaces it");
            let mut accounts: Vec<Value> = serde_json::from_str(rows)?;
            for account in &mut accounts {
                account["avatar_url"] = Value::from(avatar_url.clone());
            }
            *rows = Value::from(accounts).to_string();
        }
        let followers: Vec<Follower> = followers.into_iter().map(|follower_id| Follower { follower_id }).collect();
        let others = [("followers", serde_json::to_string(&followers)?), ("receipts", receipts)];
        let rows = rows.into_iter().map(|(table, rows)| (table.name, rows)).chain(others);
        rows.map(|(name, rows)| Ok((name, RawValue::from_string(rows)?))).collect()
    }

    /// Sends the code that confirms a deletion to the account's phone.
    pub async fn request(
        &self,
        user: UserId,
        network: ClientNetwork,
        language: Language,
    ) -> Result<(Phone, Sent), DeletionError> {
        let phone = self.phone(user).await?;
        self.require_settled(&mut *self.inner.login.db.acquire().await?, user).await?;
        let sent = self.inner.login.codes.request(&Subject::Departure(user), &phone, network, language).await?;
        Ok((phone, sent))
    }

    /// Deletes an account if the code is right. When this returns, the personal data is deleted. The chat devices are
    /// removed at about the same time, the chat messages later.
    pub async fn delete(&self, user: UserId, code: &Code, permit: GuessPermit) -> Result<(), DeletionError> {
        let inner = &*self.inner;
        let (phone, subject) = (self.phone(user).await?, Subject::Departure(user));
        let right = inner.login.codes.check(&subject, &phone, code, permit).await?;
        let now = inner.clock.now();
        let mut tx = platform::database::begin(&inner.login.db).await?;
        if inner.login.codes.consume_in(&mut tx, right, &subject).await?.is_none() {
            return Err(CheckError::InvalidCode.into());
        }
        accounts::lock(&mut tx, user).await?;
        self.require_settled(&mut tx, user).await?;
        let person = self.person(&mut tx, user, Some(&phone)).await?;
        let names = store::names(&mut tx, user).await?;
        inner.login.accounts.keep_restrictions_in(&mut tx, user, &phone).await?;
        let mut ended = EndedSessions::default();
        for table in TABLES.iter().filter(|table| table.fate != Fate::DeletedLater) {
            if table.name == "sessions" {
                ended = inner.login.sessions.end_all_in(&mut tx, user).await?;
            } else {
                store::forget(&mut tx, table, &person).await?;
            }
        }
        store::limit_open_reports(&mut tx, &person, now + REPORTS_STAY).await?;
        store::set_deleted(&mut tx, user, now).await?;
        store::insert_departure(&mut tx, user, &names, now, now + SETTLES_AFTER).await?;
        let message = Message::new(DELETED, format!("user:{user}"), &Deleted { user_id: user })?.logged();
        outbox::enqueue(&mut tx, &[message]).await?;
        tx.commit().await?;
        inner.login.sessions.forget(&ended);
        inner.outbox_written.notify_one();
        inner.streams.wake(DEVICES_DUE).await;
        metrics::counter!("matchday_accounts_deleted_total").increment(1);
        // Removes devices and follows immediately, even if this process runs no workers, and without making the caller wait for
        // the homeserver. A worker also removes them, in case this process is killed now.
        let service = self.clone();
        let ending = async move {
            // Other users' counts follow soon, also while the homeserver is slow. A worker repeats both, in case this process
            // is killed or a request that was in progress has added a follow.
            let forgetting = service.inner.hooks.follows.forget(user);
            let (devices, follows) = tokio::join!(service.end_devices(&names), forgetting);
            if let Err(error) = devices {
                tracing::warn!(%error, user = user.0, "chat devices of a deleted account were not removed immediately");
            }
            if let Err(error) = follows {
                tracing::warn!(%error, user = user.0, "follows of a deleted account were not removed immediately");
            }
        };
        tokio::spawn(telemetry::in_this_request(ending));
        Ok(())
    }

    /// Refuses while a phone move can be undone: a thief must not be able to delete a stolen account before its owner
    /// has undone the move.
    async fn require_settled(&self, connection: &mut PgConnection, user: UserId) -> Result<(), DeletionError> {
        match self.inner.phones.undo_until(connection, user).await? {
            Some(until) => Err(DeletionError::PhoneMovedRecently { until }),
            None => Ok(()),
        }
    }

    /// Removes all chat devices of these usernames, which invalidates their access tokens. The application service is
    /// allowed to do this without an admin token.
    async fn end_devices(&self, names: &[String]) -> Result<(), MatrixError> {
        let Some(ChatServer { issuer, .. }) = &self.inner.server else { return Ok(()) };
        for name in names {
            let devices = match issuer.devices(name).await {
                Err(MatrixError::NoSuchUser(_) | MatrixError::Deactivated(_)) => Vec::new(),
                outcome => outcome?,
            };
            for device in devices {
                issuer.revoke(name, device.as_str()).await?;
            }
        }
        Ok(())
    }

    /// Removes the chat devices of deleted accounts that are due. Must be called several times a second.
    pub async fn end_due_devices(&self) -> sqlx::Result<()> {
        let (db, clock) = (&self.inner.login.db, &self.inner.clock);
        loop {
            let now = clock.now();
            let Some(due) = store::take_devices_due(db, now, now + DEVICES_TURN).await? else { return Ok(()) };
            let again_at = match self.end_devices(&due.chat_names).await {
                Ok(()) => None,
                Err(error) => {
                    tracing::warn!(%error, user = due.user_id.0, "chat devices of a deleted account could not be removed");
                    Some(clock.now() + pause(due.attempts, DEVICES_TURN, LONGEST_DEVICES_PAUSE))
                }
            };
            store::set_devices_due(db, due.id, again_at).await?;
        }
    }

    async fn phone(&self, user: UserId) -> Result<Phone, DeletionError> {
        let account: Account = self.inner.login.accounts.find(user).await?.ok_or(DeletionError::NoSuchAccount)?;
        account.phone.ok_or(DeletionError::NoPhone)
    }

    /// Collects the values that identify the user's rows. Must run before the deletion removes the usernames.
    async fn person(&self, connection: &mut PgConnection, user: UserId, phone: Option<&Phone>) -> sqlx::Result<Person> {
        let names = store::names(connection, user).await?;
        let login = phone.map(|phone| Subject::Login(phone.clone()));
        let subjects = login.into_iter().chain(Subject::of_account(user));
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

    /// Finishes the deletions that are due, several at a time, and returns their number.
    pub async fn finish_due(&self) -> sqlx::Result<usize> {
        let inner = &*self.inner;
        let began = inner.clock.now();
        let finished = join_all((0..FINISHED_AT_ONCE).map(|_| self.finish_due_at(began))).await;
        let finished = finished.into_iter().sum::<sqlx::Result<usize>>()?;
        let (unfinished, since) = store::waiting(&inner.login.db).await?;
        let age = since.map_or(0.0, |since: OffsetDateTime| (inner.clock.now() - since).as_seconds_f64().max(0.0));
        metrics::gauge!("matchday_departures_unfinished").set(u32::try_from(unfinished).unwrap_or(u32::MAX));
        metrics::gauge!("matchday_departures_oldest_seconds").set(age);
        Ok(finished)
    }

    /// Finishes deletions one after another until none is left that was due at this time.
    async fn finish_due_at(&self, time: OffsetDateTime) -> sqlx::Result<usize> {
        let (inner, mut finished) = (&*self.inner, 0);
        loop {
            let until = inner.clock.now() + TURN;
            let Some(due) = store::take_due(&inner.login.db, time, until).await? else { return Ok(finished) };
            let Err(error) = self.finish(&due).await else {
                finished += 1;
                continue;
            };
            let has_failed = !matches!(error, FinishError::StillRedacting);
            let pause = if has_failed {
                tracing::warn!(%error, user = due.user_id.0, "chat data of a deleted account could not be erased");
                pause(due.attempts, SHORTEST_PAUSE, LONGEST_PAUSE)
            } else {
                tracing::info!(user = due.user_id.0, "redaction of a deleted account is still running");
                SHORTEST_PAUSE
            };
            let due_at = inner.clock.now() + pause;
            store::postpone(&inner.login.db, &due, &error.to_string(), has_failed, due_at).await?;
        }
    }

    async fn finish(&self, due: &Due) -> Result<(), FinishError> {
        let inner = &*self.inner;
        let erased = match &inner.server {
            Some(server) => self.erase(server, due).await,
            None => Ok(()),
        };
        // Runs even if the homeserver failed, because rows that requests wrote during the deletion must not remain.
        inner.hooks.memberships.forget(due.user_id).await?;
        inner.hooks.follows.forget(due.user_id).await?;
        let mut tx = platform::database::begin(&inner.login.db).await?;
        let matrix_ids = self.matrix_ids(&due.chat_names);
        let subjects = Subject::of_account(due.user_id).iter().map(Subject::key).collect();
        let person = Person { user: due.user_id, phone: None, subjects, matrix_ids };
        store::raise_statement_timeout(&mut tx).await?;
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

    /// Redacts the user's chat messages, deletes their uploads and deactivates their chat accounts. Idempotent. A
    /// failed redaction does not prevent the deactivation: it is retried later, in the rooms stored with the deletion.
    async fn erase(&self, server: &ChatServer, due: &Due) -> Result<(), FinishError> {
        let ChatServer { homeserver, issuer } = server;
        let mut joined = Vec::new();
        for name in &due.chat_names {
            match homeserver.joined_rooms(name).await {
                Ok(rooms) => joined.extend(rooms.iter().map(ToString::to_string)),
                Err(MatrixError::NoSuchUser(_) | MatrixError::Deactivated(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let rooms = store::add_rooms(&self.inner.login.db, due, &joined).await?;
        let mut outcome = Ok(());
        for name in &due.chat_names {
            let redacted = self.redact(homeserver, due, name, &rooms).await;
            issuer.deactivate(name, true).await?;
            outcome = outcome.and(redacted);
        }
        outcome
    }

    /// Redacts all messages of a user in these rooms and deletes the user's uploads.
    async fn redact(
        &self,
        homeserver: &Homeserver,
        due: &Due,
        name: &str,
        rooms: &[String],
    ) -> Result<(), FinishError> {
        let db = &self.inner.login.db;
        let parse =
            |room: &String| OwnedRoomId::try_from(room.as_str()).map_err(|_| FinishError::NotARoom(room.clone()));
        let rooms = rooms.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        if !rooms.is_empty() {
            let redaction = match due.redactions.get(name) {
                Some(running) => running.clone(),
                None => match homeserver.redact_all(name, &rooms).await {
                    // Without an admin token, messages cannot be redacted. They are only hidden from users who join later.
                    Err(MatrixError::NoAdmin | MatrixError::NoSuchUser(_)) => return Ok(()),
                    outcome => {
                        let started = outcome?;
                        store::set_redaction(db, due, name, &started).await?;
                        started
                    }
                },
            };
            if let Err(reason) = await_redaction(homeserver, &redaction).await? {
                // The next attempt starts another one.
                store::forget_redaction(db, due, name).await?;
                return Err(FinishError::NotRedacted(reason));
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
}

/// Waits for a redaction, for a limited time. Returns the reason if it failed.
async fn await_redaction(homeserver: &Homeserver, redaction: &str) -> Result<Result<(), String>, FinishError> {
    let mut polls = tokio::time::interval(REDACTION_POLL_INTERVAL);
    for _ in 0..REDACTION_POLLS {
        polls.tick().await;
        match homeserver.redaction(redaction).await {
            Ok(Redaction::Done) => return Ok(Ok(())),
            Ok(Redaction::Failed(reason)) => return Ok(Err(reason)),
            Ok(Redaction::Running) => {}
            // The homeserver keeps the state of a redaction for a week.
            Err(MatrixError::NoSuchUser(_)) => return Ok(Err("the homeserver does not know it any more".to_owned())),
            Err(error) => return Err(error.into()),
        }
    }
    Err(FinishError::StillRedacting)
}

/// Pause after this number of attempts: doubles from `shortest` up to `longest`.
fn pause(attempts: i32, shortest: Duration, longest: Duration) -> Duration {
    let doublings = attempts.clamp(1, 12).unsigned_abs() - 1;
    longest.min(shortest * 2_u32.pow(doublings))
}
