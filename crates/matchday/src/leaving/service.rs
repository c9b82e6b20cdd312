//! Taking along what is one's own, and going for good.

use std::{sync::Arc, time::Duration};

use matrix_appservice::{Error as MatrixError, Homeserver};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sqlx::PgConnection;
use time::OffsetDateTime;
use tokio::sync::{Notify, Semaphore};

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
    http::ClientNetwork,
    ids::UserId,
    login::service::Login,
    mirror::service::Mirror,
    phone::Phone,
    phones::service::Phones,
    platform::{
        clock::Clock,
        outbox::{self, Message},
        rate_limit::{Decision, Limit, RateLimiter},
    },
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

/// After so long, whatever was under way in a user's name has ended: requests have deadlines, and tokens that were checked
/// are checked again.
const SETTLES_AFTER: Duration = Duration::from_mins(1);
/// How long a worker may be at a departure before another one takes it.
const TURN: Duration = Duration::from_mins(5);
/// The longest pause between attempts.
const LONGEST_PAUSE: Duration = Duration::from_hours(1);
/// How often, and how many times, the homeserver is asked whether it has taken back everything.
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
    #[error("the homeserver is still taking back what was said")]
    NotYet,
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

impl Leaving {
    /// The way out for those who came by this way in.
    pub fn new(
        way_in: Login,
        phones: Phones,
        mirror: Mirror,
        limiter: RateLimiter,
        server_name: Option<String>,
        clock: Arc<dyn Clock>,
        outbox_written: Arc<Notify>,
    ) -> Self {
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

    /// Deletes an account, for whoever has the code. What says who the person is is gone when this returns; chat follows.
    pub async fn delete(&self, user: UserId, code: &Code, permit: GuessPermit) -> Result<(), LeavingError> {
        let inner = &*self.inner;
        let (phone, subject) = (self.phone(user).await?, Subject::Departure(user));
        let right = inner.way_in.codes.check(&subject, &phone, code, permit).await?;
        let now = inner.clock.now();
        let mut tx = inner.way_in.db.begin().await?;
        if !inner.way_in.codes.consume_in(&mut tx, right, &subject).await? {
            return Err(CheckError::NotGood.into());
        }
        accounts::store::lock(&mut tx, user).await?;
        self.require_settled(&mut tx, user).await?;
        let person = self.person(&mut tx, user, Some(&phone)).await?;
        let names = store::names(&mut tx, user).await?;
        let ended = inner.way_in.sessions.end_all_in(&mut tx, user).await?;
        for table in TABLES.iter().filter(|table| table.fate != Fate::DeletedLater) {
            store::forget(&mut tx, table, &person).await?;
        }
        store::set_deleted(&mut tx, user, now).await?;
        store::insert_departure(&mut tx, user, &names, now, now + SETTLES_AFTER).await?;
        let told = Message::new(DELETED, format!("user:{user}"), &Deleted { user_id: user })?;
        outbox::enqueue(&mut tx, &[told]).await?;
        tx.commit().await?;
        inner.way_in.sessions.forget(&ended);
        inner.outbox_written.notify_one();
        metrics::counter!("matchday_accounts_deleted_total").increment(1);
        Ok(())
    }

    /// Whoever took an account over must not be able to delete it before its owner has undone the move.
    async fn require_settled(&self, connection: &mut PgConnection, user: UserId) -> Result<(), LeavingError> {
        match self.inner.phones.undo_until(connection, user).await? {
            Some(until) => Err(LeavingError::MovedLately { until }),
            None => Ok(()),
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
                    tracing::warn!(%error, user = due.user_id.0, "an account is deleted, but not in chat yet");
                    let due_at = inner.clock.now() + pause(due.attempts);
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
        if let Some(homeserver) = inner.way_in.chat.homeserver() {
            for name in &due.chat_names {
                erase(homeserver, name).await?;
            }
        }
        inner.mirror.forget(due.user_id).await?;
        // Once more: what was under way when the account was deleted may have written since.
        let mut tx = inner.way_in.db.begin().await?;
        let matrix_ids = self.matrix_ids(&due.chat_names);
        let subjects = [Subject::Verification(due.user_id), Subject::Departure(due.user_id)];
        let subjects = subjects.iter().map(Subject::key).collect();
        let person = Person { user: due.user_id, phone: None, subjects, matrix_ids };
        store::take_time(&mut tx).await?;
        for table in TABLES {
            store::forget(&mut tx, table, &person).await?;
        }
        store::remove(&mut tx, due).await?;
        tx.commit().await?;
        Ok(())
    }
}

/// Takes back what somebody said and sent in chat, and ends their account there. Doing it twice changes nothing.
async fn erase(homeserver: &Homeserver, name: &str) -> Result<(), FinishError> {
    match homeserver.redact_all(name).await {
        Ok(redaction) => {
            let mut looks = tokio::time::interval(REDACTION_LOOK);
            let mut left = REDACTION_LOOKS;
            while !homeserver.is_redacted(&redaction).await? {
                left = left.checked_sub(1).ok_or(FinishError::NotYet)?;
                looks.tick().await;
            }
            while homeserver.delete_media(name).await? > 0 {}
        }
        // Without an administrator's token, what was said is hidden from those who come later, and no more can be done.
        Err(MatrixError::NoAdmin | MatrixError::NoSuchUser(_)) => {}
        Err(error) => return Err(error.into()),
    }
    homeserver.deactivate(name, true).await?;
    Ok(())
}

/// How long to wait after so many attempts.
fn pause(attempts: i32) -> Duration {
    let doublings = attempts.clamp(1, 12).unsigned_abs() - 1;
    LONGEST_PAUSE.min(Duration::from_secs(10) * 2_u32.pow(doublings))
}
