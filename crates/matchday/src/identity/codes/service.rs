//! Sending codes and checking them.

use std::{sync::Arc, time::Duration};

use platform::{
    Core,
    clock::Clock,
    database,
    random::{self, Random},
    rate_limit::Decision,
    telemetry,
};
use sqlx::{PgConnection, PgPool};
use web::ClientNetwork;

use super::{
    limits::{Limits, Refusal, Taken},
    rules::{self, Code, Keyring, Scope, Subject},
    settings::{self, Settings},
    store::{self, New},
};
pub use super::{rules::CodeId, store::Closure};
use crate::identity::{
    operators::{self, Operator, service::Deed},
    phone::{Country, Phone},
    sms::{
        self,
        service::{DispatchError, Sms},
        settings::CountryRule,
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
    /// Set while a limit that is shared with strangers is used up: only phones that have verified before get a code, and
    /// others can try again after this time. The response does not tell which of the two the phone is.
    pub limited_for: Option<Duration>,
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

/// Permission to try one code. Trying takes one as an argument, so that no caller can forget to ask for it.
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

/// A phone whose code was used up.
#[derive(Debug)]
pub struct Verified {
    phone: Phone,
    /// Around where it was, as it is stored; empty where that is not known.
    place: Vec<u8>,
}

impl Codes {
    /// Codes in this database, sent by these providers.
    pub fn new(
        core: &Core,
        settings: &Settings,
        sizes: &settings::Limits,
        countries: &[CountryRule],
        sms: Sms,
    ) -> Self {
        let Core { db, clock, random, .. } = core.clone();
        let (keys, limits) = (Keyring::new(&settings.keys), Limits::new(core, sizes, countries));
        Self { inner: Arc::new(Inner { db, keys, limits, sms, clock, random }) }
    }

    /// Makes a code and sends it. It takes the place of the one before, if there was one.
    ///
    /// Whether the phone has verified before decides only whether a message is sent while a shared limit is used up. The
    /// response is the same then, and does not wait for the message, so neither its content nor its timing tells.
    pub async fn request(
        &self,
        subject: &Subject,
        phone: &Phone,
        network: ClientNetwork,
        language: Language,
    ) -> Result<Sent, RequestError> {
        let sent = async {
            match self.inner.limits.take_network(network).await {
                Ok(taken) => self.send(subject, phone, network, language, taken).await,
                Err(refusal) => self.send_if_returning(subject, phone, network, language, refusal, None).await,
            }
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
            let taken = match self.inner.limits.take_network(network).await {
                Ok(taken) => taken,
                Err(refusal) => {
                    return self.send_if_returning(subject, phone, network, language, refusal, None).await;
                }
            };
            let inner = &*self.inner;
            match store::resendable(&inner.db, &subject.key(), inner.clock.now()).await? {
                Some(pending) if pending == *phone => self.send(subject, phone, network, language, taken).await,
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
        taken: Taken,
    ) -> Result<Sent, Refused> {
        let inner = &*self.inner;
        let country = phone.country();
        self.require_served(phone, &country)?;
        let (own, limit) = inner.limits.take_own(phone, network).await?;
        let prefixes = [network.origin(), phone.block().to_owned(), country.as_str().to_owned()];
        let caps = store::caps(&inner.db, &prefixes, inner.clock.now()).await?;
        let shared = match inner.limits.take_shared(phone, &country, &caps).await {
            Ok(shared) => shared,
            Err(refusal) => {
                // A person who is not sent a code must not use up their own limit by trying.
                inner.limits.give_back(&own).await;
                return self.send_if_returning(subject, phone, network, language, refusal, Some(limit)).await;
            }
        };
        // In a task of its own: a client that hangs up, or a deadline, must not leave a code that was half sent.
        let taken = taken.and(own).and(shared);
        let task = self.clone().store_and_dispatch(subject.clone(), phone.clone(), network, language, taken, false);
        let dispatched = tokio::spawn(telemetry::in_this_request(task)).await;
        dispatched.unwrap_or(Err(Refused(RequestError::Unavailable, "panic")))?;
        Ok(Sent { expires_in: rules::LIFETIME.unsigned_abs(), limit, limited_for: None })
    }

    /// Sends a code from the reserve if the phone has verified before, and none otherwise. The response is the same, and
    /// comes before anything is written or sent.
    async fn send_if_returning(
        &self,
        subject: &Subject,
        phone: &Phone,
        network: ClientNetwork,
        language: Language,
        refusal: Refusal,
        limit: Option<Decision>,
    ) -> Result<Sent, Refused> {
        let inner = &*self.inner;
        let country = phone.country();
        self.require_served(phone, &country)?;
        let places = inner.keys.places(phone, &network.neighbourhood());
        let known = store::known(&inner.db, phone, &places, inner.clock.now() - rules::AT_HOME_FOR).await?;
        if known.is_returning {
            let (codes, subject, phone) = (self.clone(), subject.clone(), phone.clone());
            let task = async move {
                let taken = codes.inner.limits.take_reserve(&phone, &country, network, known).await?;
                codes.store_and_dispatch(subject, phone, network, language, taken, true).await
            };
            tokio::spawn(telemetry::in_this_request(async { task.await.map_err(Refused::counted) }));
        } else {
            Refused::from(refusal).counted();
        }
        let limited_for = Some(refusal.decision.retry_after);
        let limit = limit.unwrap_or(refusal.decision);
        Ok(Sent { expires_in: rules::LIFETIME.unsigned_abs(), limit, limited_for })
    }

    fn require_served(&self, phone: &Phone, country: &Country) -> Result<(), Refused> {
        let serves = self.inner.limits.serves(phone, country);
        if serves { Ok(()) } else { Err(Refused(RequestError::NumberNotServed, "not_served")) }
    }

    async fn store_and_dispatch(
        self,
        subject: Subject,
        phone: Phone,
        network: ClientNetwork,
        language: Language,
        taken: Taken,
        is_limited: bool,
    ) -> Result<(), Refused> {
        let inner = &*self.inner;
        let (country, now) = (phone.country(), inner.clock.now());
        let code = Code::make(&*inner.random);
        let sealed = inner.keys.seal(&subject, &phone, &code, random::bytes(&*inner.random));
        let places = inner.keys.places(&phone, &network.neighbourhood());
        let new = New {
            subject: &subject.key(),
            phone: &phone,
            country: country.as_str(),
            stored: sealed.ok_or(Refused(RequestError::NoKey, "key"))?,
            network: &network.to_string(),
            origin: &network.origin(),
            place: places.first().map_or(&[], Vec::as_slice),
            is_limited,
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
                inner.limits.give_back(&taken).await;
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

    /// Takes from what a network may try. A network that has used it up can still try the codes that it asked for
    /// itself, or one customer behind a shared address could lock out all others.
    pub async fn permit_guess(&self, network: ClientNetwork) -> GuessPermit {
        GuessPermit { network, limit: self.inner.limits.take_guess(network).await }
    }

    /// Tries a code.
    pub async fn check(
        &self,
        subject: &Subject,
        phone: &Phone,
        code: &Code,
        permit: GuessPermit,
    ) -> Result<RightCode, CheckError> {
        let checked = self.try_check(subject, phone, code, permit).await;
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
        permit: GuessPermit,
    ) -> Result<RightCode, CheckError> {
        let inner = &*self.inner;
        let (key, asking, now) = (subject.key(), permit.network.to_string(), inner.clock.now());
        if let Some((failures, last)) = store::failures(&inner.db, &key, &asking).await?
            && let Some(left) = rules::wait(failures, last, now)
        {
            return Err(CheckError::Limited(refused_for(left.try_into().unwrap_or_default())));
        }
        let guess = store::count_guess(&inner.db, &key, &asking, now, permit.limit.allowed).await?;
        let refusal = if permit.limit.allowed { CheckError::NotGood } else { CheckError::Limited(permit.limit) };
        let guess = guess.ok_or(refusal)?;
        metrics::counter!("matchday_codes_compared_total").increment(1);
        if inner.keys.opens(&guess.stored, subject, phone, code) {
            return Ok(RightCode { id: guess.id, own: guess.own });
        }
        store::add_failure(&inner.db, &key, guess.own, now).await?;
        Err(CheckError::NotGood)
    }

    /// Uses a right code up, in the transaction of what it was for; `None` if it was used before.
    pub async fn consume_in(
        &self,
        connection: &mut PgConnection,
        right: RightCode,
        subject: &Subject,
    ) -> sqlx::Result<Option<Verified>> {
        let Some(used) = store::consume(connection, right.id, self.inner.clock.now()).await? else { return Ok(None) };
        store::forget_failures(connection, &subject.key()).await?;
        // A code that one network asked for and another one used says nothing of where the phone is at home.
        let place = if right.own { used.place } else { Vec::new() };
        Ok(Some(Verified { phone: used.phone, place }))
    }

    /// Takes note that a phone has verified, in the same transaction as [`Self::consume_in`], behind the lock of the
    /// phone's account: others lock them in this order too.
    pub async fn remember_in(&self, connection: &mut PgConnection, verified: &Verified) -> sqlx::Result<()> {
        store::note_verification(connection, &verified.phone, &verified.place, self.inner.clock.now()).await
    }

    /// Forgets that a phone has verified, in the caller's transaction, because no account has it any more.
    pub async fn forget_phone_in(&self, connection: &mut PgConnection, phone: &Phone) -> sqlx::Result<()> {
        store::forget_verifications(connection, phone).await
    }

    /// Takes note that a phone has verified, from nowhere in particular, in the caller's transaction.
    pub async fn remember_phone_in(&self, connection: &mut PgConnection, phone: &Phone) -> sqlx::Result<()> {
        store::note_verification(connection, phone, &[], self.inner.clock.now()).await
    }

    /// Makes phones ones that have verified before, from nowhere in particular.
    #[cfg(test)]
    pub(super) async fn note_verified_before(&self, phones: &[&str]) {
        let mut connection = self.inner.db.acquire().await.expect("a connection");
        for phone in phones {
            let phone = Phone::parse(phone).expect("a phone");
            store::note_verification(&mut connection, &phone, &[], self.inner.clock.now()).await.expect("noted");
        }
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

    /// Closes networks, blocks and countries from which too few codes come back: the messages earn money for whoever
    /// causes them. Phones that have verified before still get their codes, others only a few an hour. Returns the
    /// closures that it made.
    pub async fn judge_conversions(&self) -> sqlx::Result<Vec<Closure>> {
        let inner = &*self.inner;
        let now = inner.clock.now();
        let hour = rules::judged_hour(now);
        let mut closed = Vec::new();
        for scope in Scope::ALL {
            for (prefix, sample) in store::samples(&inner.db, scope, hour).await? {
                if !scope.is_fraud(sample) {
                    continue;
                }
                let level = rules::next_level(store::last_closure(&inner.db, &prefix).await?, now);
                let closure = Closure {
                    prefix,
                    closed_until: now + rules::closed_for(level),
                    level,
                    hourly: scope.hourly_cap(sample, level).try_into().unwrap_or(i32::MAX),
                    phones: sample.phones,
                    verified: sample.verified,
                };
                if store::close(&inner.db, &closure, now).await? {
                    tracing::error!(
                        scope = scope.name(),
                        prefix = closure.prefix,
                        phones = closure.phones,
                        verified = closure.verified,
                        hourly = closure.hourly,
                        until = %closure.closed_until,
                        "code conversion too low, new phones capped"
                    );
                    metrics::counter!("matchday_sms_closures_total", "kind" => scope.name()).increment(1);
                    closed.push(closure);
                }
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

    /// Deletes codes after a day, failures after a month without any, and verifications after 400 days; returns how many.
    pub async fn sweep(&self) -> sqlx::Result<u64> {
        let (db, now) = (&self.inner.db, self.inner.clock.now());
        let codes = database::sweep(|most| async move {
            let mut tx = db.begin().await?;
            let (ids, attempts) = store::old(&mut tx, now - time::Duration::DAY, most).await?;
            sms::keep_attempts(&mut tx, &ids, &attempts).await?;
            store::delete_all(&mut tx, &ids).await?;
            tx.commit().await?;
            Ok::<_, sqlx::Error>(ids.len() as u64)
        })
        .await?;
        let failures = database::sweep(|most| store::sweep_failures(db, now - time::Duration::days(30), most)).await?;
        let verifications =
            database::sweep(|most| store::sweep_verifications(db, now - rules::RETURNING_FOR, most)).await?;
        Ok(codes + failures + verifications)
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
