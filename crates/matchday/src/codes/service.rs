//! Sending codes and checking them.

use std::{sync::Arc, time::Duration};

use sqlx::{PgConnection, PgPool};

pub use super::store::{Closure, CodeId};
use super::{
    limits::{Limits, Refusal},
    rules::{self, Code, Keyring, Subject},
    store::{self, New},
};
use crate::{
    http::ClientNetwork,
    operators::{self, Operator, service::Deed},
    phone::Phone,
    platform::{
        clock::Clock,
        config::Config,
        database,
        random::{self, Random},
        rate_limit::{Decision, RateLimiter},
        telemetry,
    },
    sms::{
        self,
        service::{DispatchError, Sms},
        templates::Language,
    },
};

/// The codes of everybody.
#[derive(Clone)]
pub struct Codes {
    inner: Arc<Inner>,
}

struct Inner {
    db: PgPool,
    keys: Keyring,
    limits: Limits,
    sms: Sms,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

/// A code is on its way.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// How long it is good.
    pub expires_in: Duration,
    /// What is left of the phone's limit.
    pub limit: Decision,
}

/// Why no code was sent.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// Such a number is not served, or cannot be texted.
    #[error("no codes are sent to such a number")]
    NumberNotServed,
    /// A limit.
    #[error("too many codes")]
    Limited(Decision),
    /// Nothing that a resend could repeat.
    #[error("no code is out")]
    NonePending,
    /// No provider took the message.
    #[error("no provider took the message")]
    Unavailable,
    /// There is no key to store codes under.
    #[error("there is no key to store codes under")]
    NoKey,
    /// The database failed.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

/// Why a code was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// Wrong, expired, used up, or never sent: they look the same.
    #[error("the code is not good")]
    NotGood,
    /// Too many tries; the decision says when to come again.
    #[error("too many tries")]
    Limited(Decision),
    /// The database failed.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

/// Leave to try one code. Trying takes one as an argument, so that nobody can forget to ask for it.
#[derive(Debug)]
pub struct GuessPermit {
    network: ClientNetwork,
    /// What is left to the network.
    pub limit: Decision,
}

/// A code that was right. It is not used up yet.
#[derive(Clone, Copy, Debug)]
#[must_use = "a right code that is not used up can be used again"]
pub struct RightCode {
    id: CodeId,
    own: bool,
}

impl Codes {
    /// Codes in this database, sent by these providers.
    pub fn new(
        db: PgPool,
        config: &Config,
        limiter: RateLimiter,
        sms: Sms,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Self {
        let (keys, limits) = (Keyring::new(&config.codes.keys), Limits::new(limiter, config));
        Self { inner: Arc::new(Inner { db, keys, limits, sms, clock, random }) }
    }

    /// Makes a code and sends it. It takes the place of the one before, if there was one.
    ///
    /// Nothing here asks whether the phone has an account, so nothing in the answer or its timing can tell.
    pub async fn request(
        &self,
        subject: &Subject,
        phone: &Phone,
        network: ClientNetwork,
        language: Language,
    ) -> Result<Sent, RequestError> {
        let sent = async {
            self.inner.limits.take_network(network).await?;
            self.send(subject, phone, network, language).await
        };
        sent.await.map_err(Refused::counted)
    }

    /// Sends another code, if one is out for that phone.
    pub async fn resend(
        &self,
        subject: &Subject,
        phone: &Phone,
        network: ClientNetwork,
        language: Language,
    ) -> Result<Sent, RequestError> {
        let sent = async {
            // First: whether a code is out is nothing to be asked without end.
            self.inner.limits.take_network(network).await?;
            match self.pending(subject).await? {
                Some(pending) if pending == *phone => self.send(subject, phone, network, language).await,
                _ => Err(Refused(RequestError::NonePending, "none_pending")),
            }
        };
        sent.await.map_err(Refused::counted)
    }

    async fn send(
        &self,
        subject: &Subject,
        phone: &Phone,
        network: ClientNetwork,
        language: Language,
    ) -> Result<Sent, Refused> {
        let inner = &*self.inner;
        let (country, now) = (phone.country(), inner.clock.now());
        if !inner.limits.serves(phone, &country) {
            return Err(Refused(RequestError::NumberNotServed, "not_served"));
        }
        let prefixes = [phone.block().to_owned(), country.as_str().to_owned()];
        if let Some(until) = store::closed_until(&inner.db, &prefixes, now).await? {
            return Err(Refused(RequestError::Limited(refused_for(until - now)), "closed"));
        }
        let limit = inner.limits.take(phone, &country).await?;
        // In a task of its own: a client that hangs up, or a deadline, must not leave a code that was half sent.
        let task = self.clone().store_and_dispatch(subject.clone(), phone.clone(), network, language);
        let dispatched = tokio::spawn(telemetry::in_this_request(task)).await;
        dispatched.unwrap_or(Err(Refused(RequestError::Unavailable, "panic")))?;
        Ok(Sent { expires_in: rules::LIFETIME.unsigned_abs(), limit })
    }

    async fn store_and_dispatch(
        self,
        subject: Subject,
        phone: Phone,
        network: ClientNetwork,
        language: Language,
    ) -> Result<(), Refused> {
        let inner = &*self.inner;
        let (country, now) = (phone.country(), inner.clock.now());
        let code = Code::make(&*inner.random);
        let sealed = inner.keys.seal(&subject, &phone, &code, random::bytes(&*inner.random));
        let new = New {
            subject: &subject.key(),
            phone: &phone,
            country: country.as_str(),
            stored: sealed.ok_or(Refused(RequestError::NoKey, "key"))?,
            network: &network.to_string(),
            created_at: now,
            expires_at: now + rules::LIFETIME,
        };
        // Committed before it is sent: a code that arrives is a code that works.
        let id = store::insert(&inner.db, new).await?;
        match inner.sms.send_code(id, &phone, &code, language, now, rules::LIFETIME).await {
            Ok(()) => {
                let labels = [("purpose", subject.purpose().to_owned()), ("country", country.as_str().to_owned())];
                metrics::counter!("matchday_codes_sent_total", &labels).increment(1);
                Ok(())
            }
            Err(DispatchError::Number) => {
                store::delete(&inner.db, id).await?;
                Err(Refused(RequestError::NumberNotServed, "number"))
            }
            Err(DispatchError::NotSent) => {
                store::delete(&inner.db, id).await?;
                // Or an outage of the providers would go on until the day's budget is a new one.
                inner.limits.give_back(&phone, network, &country).await;
                Err(Refused(RequestError::Unavailable, "provider"))
            }
            // It stays: should it arrive, it is right.
            Err(DispatchError::PerhapsSent) => Err(Refused(RequestError::Unavailable, "provider")),
        }
    }

    /// The phone that a code is out for.
    pub async fn pending(&self, subject: &Subject) -> sqlx::Result<Option<Phone>> {
        store::pending(&self.inner.db, &subject.key(), self.inner.clock.now()).await
    }

    /// Takes from what a network may try.
    pub async fn permit_guess(&self, network: ClientNetwork) -> Result<GuessPermit, CheckError> {
        let limit = self.inner.limits.take_guess(network).await;
        if limit.allowed { Ok(GuessPermit { network, limit }) } else { Err(CheckError::Limited(limit)) }
    }

    /// Tries a code.
    pub async fn check(
        &self,
        subject: &Subject,
        phone: &Phone,
        code: &Code,
        permit: GuessPermit,
    ) -> Result<RightCode, CheckError> {
        let checked = self.try_check(subject, phone, code, permit.network).await;
        let outcome = match &checked {
            Ok(_) => "right",
            Err(CheckError::NotGood) => "wrong",
            Err(CheckError::Limited(_)) => "limited",
            Err(CheckError::Database(_)) => "database",
        };
        let labels = [("purpose", subject.purpose()), ("outcome", outcome)];
        metrics::counter!("matchday_codes_checked_total", &labels).increment(1);
        checked
    }

    async fn try_check(
        &self,
        subject: &Subject,
        phone: &Phone,
        code: &Code,
        network: ClientNetwork,
    ) -> Result<RightCode, CheckError> {
        let inner = &*self.inner;
        let (key, asking, now) = (subject.key(), network.to_string(), inner.clock.now());
        if let Some((failures, last)) = store::failures(&inner.db, &key, &asking).await?
            && let Some(left) = rules::wait(failures, last, now)
        {
            return Err(CheckError::Limited(refused_for(left.try_into().unwrap_or_default())));
        }
        let guess = store::count_guess(&inner.db, &key, &asking, now).await?.ok_or(CheckError::NotGood)?;
        metrics::counter!("matchday_codes_compared_total").increment(1);
        if inner.keys.opens(&guess.stored, subject, phone, code) {
            return Ok(RightCode { id: guess.id, own: guess.own });
        }
        store::add_failure(&inner.db, &key, guess.own, now).await?;
        Err(CheckError::NotGood)
    }

    /// Uses a right code up, in the transaction of what it was for; returns whether this was the one use.
    pub async fn consume_in(
        &self,
        connection: &mut PgConnection,
        right: RightCode,
        subject: &Subject,
    ) -> sqlx::Result<bool> {
        let consumed = store::consume(connection, right.id, self.inner.clock.now()).await?;
        if consumed {
            store::forget_failures(connection, &subject.key()).await?;
        }
        Ok(consumed)
    }

    /// Takes note that a phone was verified, once that is committed.
    pub fn note_verified(&self, phone: &Phone) {
        let country = phone.country();
        metrics::counter!("matchday_codes_verified_total", "country" => country.as_str().to_owned()).increment(1);
    }

    /// Lets a right code that could not be used be tried again.
    pub async fn give_back(&self, right: RightCode) -> sqlx::Result<()> {
        store::give_back(&self.inner.db, right.id, right.own).await
    }

    /// Closes blocks and countries from which too few codes come back, and reports them: somebody is paid for messages
    /// that nobody reads. Returns those that it closed.
    pub async fn judge_conversions(&self) -> sqlx::Result<Vec<Closure>> {
        let inner = &*self.inner;
        let now = inner.clock.now();
        let (from, to) = rules::judged_hour(now);
        let poor = store::poor_conversions(&inner.db, from, to, rules::JUDGED_SENDS, rules::LEAST_PERCENT).await?;
        let mut closed = Vec::new();
        for poor in poor {
            let closure = Closure { closed_until: now + rules::CLOSED_FOR, ..poor };
            if store::close(&inner.db, &closure, now).await? {
                tracing::error!(
                    prefix = closure.prefix,
                    phones = closure.phones,
                    verified = closure.verified,
                    "too few codes came back: no codes are sent there for a day; `matchday sms open` opens it"
                );
                let kind = if closure.prefix.starts_with('+') { "block" } else { "country" };
                metrics::counter!("matchday_sms_closures_total", "kind" => kind).increment(1);
                closed.push(closure);
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "a handful")]
        metrics::gauge!("matchday_sms_closed").set(store::closures(&inner.db, now).await?.len() as f64);
        Ok(closed)
    }

    /// Where no codes are sent now.
    pub async fn closures(&self) -> sqlx::Result<Vec<Closure>> {
        store::closures(&self.inner.db, self.inner.clock.now()).await
    }

    /// Sends codes there again; returns whether it was closed.
    pub async fn open(&self, prefix: &str, operator: &Operator) -> sqlx::Result<bool> {
        let now = self.inner.clock.now();
        let mut tx = self.inner.db.begin().await?;
        if !store::open(&mut *tx, prefix, now).await? {
            return Ok(false);
        }
        operators::service::record(&mut tx, operator, &Deed::new("sms.open", format!("sms:{prefix}")), now).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Deletes codes after a day, and failures after a month without any; returns how many.
    pub async fn sweep(&self) -> sqlx::Result<u64> {
        let (db, now) = (&self.inner.db, self.inner.clock.now());
        let codes = database::sweep(|most| async move {
            let mut tx = db.begin().await?;
            let (ids, attempts) = store::old(&mut tx, now - time::Duration::DAY, most).await?;
            sms::store::keep_attempts(&mut tx, &ids, &attempts).await?;
            store::delete_all(&mut tx, &ids).await?;
            tx.commit().await?;
            Ok::<_, sqlx::Error>(ids.len() as u64)
        })
        .await?;
        let failures = database::sweep(|most| store::sweep_failures(db, now - time::Duration::days(30), most)).await?;
        Ok(codes + failures)
    }
}

/// Why no code was sent, and what metrics call it.
struct Refused(RequestError, &'static str);

impl Refused {
    fn counted(self) -> RequestError {
        metrics::counter!("matchday_codes_refused_total", "reason" => self.1).increment(1);
        self.0
    }
}

impl From<Refusal> for Refused {
    fn from(Refusal { reason, decision }: Refusal) -> Self {
        Self(RequestError::Limited(decision), reason)
    }
}

impl From<sqlx::Error> for Refused {
    fn from(error: sqlx::Error) -> Self {
        Self(RequestError::Database(error), "database")
    }
}

/// A refusal that lasts so long.
fn refused_for(left: time::Duration) -> Decision {
    Decision { allowed: false, limit: 0, remaining: 0, retry_after: left.unsigned_abs() }
}
