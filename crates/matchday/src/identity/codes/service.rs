//! Sends login codes and checks guesses.

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
    operators::{self, Operator, service::Action},
    phone::{Country, Phone},
    sms::{
        self,
        service::{DispatchError, Sms},
        settings::CountryRule,
        templates::{Language, Purpose},
    },
};

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

/// Result of requesting a code.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Time until the code expires.
    pub expires_in: Duration,
    /// Remaining allowance of the phone's limit.
    pub limit: Decision,
    /// Set while a shared limit is used up: only returning phones receive a code, and others can retry after this time.
    /// The response does not reveal whether the phone is a returning one.
    pub limited_for: Option<Duration>,
}

#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The number cannot receive texts, or its country is not supported.
    #[error("codes are not sent to this number")]
    NumberNotServed,
    #[error("too many codes requested")]
    Limited(Decision),
    /// The phone has no pending code to resend.
    #[error("no code is pending")]
    NonePending,
    /// No provider accepted the message.
    #[error("no SMS provider accepted the message")]
    Unavailable,
    /// No key is configured for storing codes.
    #[error("no key is configured for storing codes")]
    NoKey,
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The code is wrong, expired, used up or was never sent. Callers cannot distinguish these cases.
    #[error("the code is wrong or expired")]
    InvalidCode,
    /// Too many guesses; the decision contains the time to wait.
    #[error("too many guesses")]
    Limited(Decision),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

/// Permission to guess one code. [`Codes::check`] requires it as an argument, so callers cannot skip the rate limit.
#[derive(Debug)]
pub struct GuessPermit {
    network: ClientNetwork,
    /// Remaining allowance of the network.
    pub limit: Decision,
}

/// A correct code that has not been consumed yet.
#[derive(Clone, Copy, Debug)]
#[must_use = "a correct code stays valid until it is consumed"]
pub struct CorrectCode {
    id: CodeId,
    own: bool,
}

/// A code that was consumed for an action outside the database. If the action has no effect, [`Codes::restore`] makes the
/// code valid again. After a crash in between, the code stays consumed.
#[derive(Debug)]
#[must_use = "restore the code if the action had no effect"]
pub struct ClaimedCode(CorrectCode);

/// A phone that was verified by consuming a code.
#[derive(Debug)]
pub struct Verified {
    phone: Phone,
    /// Hash of the neighbourhood that the phone verified from; empty if unknown.
    place: Vec<u8>,
}

impl Codes {
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

    /// Creates a code and sends it. It replaces the subject's previous code.
    ///
    /// While a shared limit is used up, only returning phones receive a message. The response is then the same for all
    /// phones and does not wait for the message, so neither its content nor its timing reveals which phones are
    /// returning ones.
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

    /// Sends another code if one is pending for this phone.
    pub async fn resend(
        &self,
        subject: &Subject,
        phone: &Phone,
        network: ClientNetwork,
        language: Language,
    ) -> Result<Sent, RequestError> {
        let sent = async {
            // Charge the network first: otherwise a caller could probe without limit whether a code is pending.
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
                // A user who receives no code must not use up their own limit by retrying.
                inner.limits.give_back(&own).await;
                return self.send_if_returning(subject, phone, network, language, refusal, Some(limit)).await;
            }
        };
        // Runs in a separate task: a client disconnect or a deadline must not leave a code stored but not sent.
        let taken = taken.and(own).and(shared);
        let task = self.clone().store_and_dispatch(subject.clone(), phone.clone(), network, language, taken, false);
        let dispatched = tokio::spawn(telemetry::in_this_request(task)).await;
        dispatched.unwrap_or(Err(Refused(RequestError::Unavailable, "panic")))?;
        Ok(Sent { expires_in: rules::LIFETIME.unsigned_abs(), limit, limited_for: None })
    }

    /// Sends a code from the reserve if the phone is a returning one, and none otherwise. The response is the same in
    /// both cases and is returned before anything is written or sent.
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
        let text = match subject {
            Subject::Login(_) => Purpose::Login,
            Subject::Verification(_) | Subject::Departure(_) | Subject::KeyReset(_) => Purpose::Verification,
        };
        // Commit the code before sending it: every code that arrives must be valid.
        let id = store::insert(&inner.db, new).await?;
        match inner.sms.send_code(id, &phone, &code, text, language, now, rules::LIFETIME).await {
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
                // Refund the limits, or a provider outage would use up the daily budget and block codes until the next
                // day.
                inner.limits.give_back(&taken).await;
                Err(Refused(RequestError::Unavailable, "provider"))
            }
            // Keep the code: it may still arrive, and must then be valid.
            Err(DispatchError::MaybeSent) => Err(Refused(RequestError::Unavailable, "provider")),
        }
    }

    /// Phone of the subject's pending code.
    pub async fn pending(&self, subject: &Subject) -> sqlx::Result<Option<Phone>> {
        store::pending(&self.inner.db, &subject.key(), self.inner.clock.now()).await
    }

    /// Charges the network's guess limit. A network that has used it up can still guess codes that it requested itself;
    /// otherwise one user behind a shared address could lock out all others.
    pub async fn permit_guess(&self, network: ClientNetwork) -> GuessPermit {
        GuessPermit { network, limit: self.inner.limits.take_guess(network).await }
    }

    /// Checks a guess and counts the outcome.
    pub async fn check(
        &self,
        subject: &Subject,
        phone: &Phone,
        code: &Code,
        permit: GuessPermit,
    ) -> Result<CorrectCode, CheckError> {
        let checked = self.try_check(subject, phone, code, permit).await;
        let outcome = match &checked {
            Ok(_) => "right",
            Err(CheckError::InvalidCode) => "wrong",
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
    ) -> Result<CorrectCode, CheckError> {
        let inner = &*self.inner;
        let (key, caller, now) = (subject.key(), permit.network.to_string(), inner.clock.now());
        if let Some((failures, last)) = store::failures(&inner.db, &key, &caller).await?
            && let Some(left) = rules::wait(failures, last, now)
        {
            return Err(CheckError::Limited(refused_for(left.try_into().unwrap_or_default())));
        }
        let guess = store::count_guess(&inner.db, &key, &caller, now, permit.limit.allowed).await?;
        let refusal = if permit.limit.allowed { CheckError::InvalidCode } else { CheckError::Limited(permit.limit) };
        let guess = guess.ok_or(refusal)?;
        metrics::counter!("matchday_codes_compared_total").increment(1);
        if inner.keys.opens(&guess.stored, subject, phone, code) {
            return Ok(CorrectCode { id: guess.id, own: guess.own });
        }
        store::add_failure(&inner.db, &key, guess.own, now).await?;
        Err(CheckError::InvalidCode)
    }

    /// Consumes a correct code in the transaction of the action it authorises. Returns `None` if it was consumed
    /// before.
    pub async fn consume_in(
        &self,
        connection: &mut PgConnection,
        right: CorrectCode,
        subject: &Subject,
    ) -> sqlx::Result<Option<Verified>> {
        let Some(used) = store::consume(connection, right.id, self.inner.clock.now()).await? else { return Ok(None) };
        store::forget_failures(connection, &subject.key()).await?;
        // If one network requested the code and another used it, the stored place does not show where the phone is at
        // home.
        let place = if right.own { used.place } else { Vec::new() };
        Ok(Some(Verified { phone: used.phone, place }))
    }

    /// Consumes a correct code before an action outside the database, such as a call to the homeserver. Of concurrent
    /// requests with one code, one gets the claim. Returns `None` if the code was consumed before.
    pub async fn claim(&self, right: CorrectCode, subject: &Subject) -> sqlx::Result<Option<ClaimedCode>> {
        let mut tx = database::begin(&self.inner.db).await?;
        let consumed = self.consume_in(&mut tx, right, subject).await?;
        tx.commit().await?;
        Ok(consumed.map(|_| ClaimedCode(right)))
    }

    /// Makes a claimed code valid again, because the action it authorised had no effect. Its expiry stays the same. The
    /// guess is refunded, so the user can enter the code again.
    pub async fn restore(&self, ClaimedCode(right): ClaimedCode) -> sqlx::Result<()> {
        store::restore(&self.inner.db, right.id, right.own).await
    }

    /// Records that a phone has verified, in the same transaction as [`Self::consume_in`]. The caller must already hold
    /// the lock on the phone's account: all code paths lock in this order.
    pub async fn remember_in(&self, connection: &mut PgConnection, verified: &Verified) -> sqlx::Result<()> {
        store::note_verification(connection, &verified.phone, &verified.place, self.inner.clock.now()).await
    }

    /// Deletes the phone's verification history in the caller's transaction, because the phone no longer has an
    /// account.
    pub async fn forget_phone_in(&self, connection: &mut PgConnection, phone: &Phone) -> sqlx::Result<()> {
        store::forget_verifications(connection, phone).await
    }

    /// Records in the caller's transaction that a phone has verified, without a place.
    pub async fn remember_phone_in(&self, connection: &mut PgConnection, phone: &Phone) -> sqlx::Result<()> {
        store::note_verification(connection, phone, &[], self.inner.clock.now()).await
    }

    /// Records that phones have verified before, without a place.
    #[cfg(test)]
    pub(super) async fn note_verified_before(&self, phones: &[&str]) {
        let mut connection = self.inner.db.acquire().await.expect("a connection");
        for phone in phones {
            let phone = Phone::parse(phone).expect("a phone");
            store::note_verification(&mut connection, &phone, &[], self.inner.clock.now()).await.expect("noted");
        }
    }

    /// Counts a verified phone in the metrics. Call it after the commit.
    pub fn note_verified(&self, phone: &Phone) {
        let country = phone.country();
        metrics::counter!("matchday_codes_verified_total", "country" => country.as_str().to_owned()).increment(1);
    }

    /// Refunds the guess of a correct code that could not be used. The user can then enter the code again.
    pub async fn give_back(&self, right: CorrectCode) -> sqlx::Result<()> {
        store::give_back(&self.inner.db, right.id, right.own).await
    }

    /// Closes networks, blocks and countries with too few verified codes. Low conversion indicates SMS pumping, where
    /// fraudsters earn money from the messages they cause. Returning phones still receive codes; other phones share a
    /// small hourly cap. Returns the new closures.
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
                        "codes to new phones were capped because of low conversion"
                    );
                    metrics::counter!("matchday_sms_closures_total", "kind" => scope.name()).increment(1);
                    closed.push(closure);
                }
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "few closures are in effect at a time")]
        metrics::gauge!("matchday_sms_closed").set(store::closures(&inner.db, now).await?.len() as f64);
        Ok(closed)
    }

    /// Closures in effect now.
    pub async fn closures(&self) -> sqlx::Result<Vec<Closure>> {
        store::closures(&self.inner.db, self.inner.clock.now()).await
    }

    /// Ends a closure early and records the operator's action. Returns whether the prefix was closed.
    pub async fn open(&self, prefix: &str, operator: &Operator) -> sqlx::Result<bool> {
        let now = self.inner.clock.now();
        let mut tx = platform::database::begin(&self.inner.db).await?;
        if !store::open(&mut *tx, prefix, now).await? {
            return Ok(false);
        }
        operators::service::record(&mut tx, operator, &Action::new("sms.open", format!("sms:{prefix}")), now).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Deletes codes after one day, failure counts after 30 days without a failure, and verifications after 400 days.
    /// Returns the number of deleted rows.
    pub async fn sweep(&self) -> sqlx::Result<u64> {
        let (db, now) = (&self.inner.db, self.inner.clock.now());
        let codes = database::sweep(|most| async move {
            let mut tx = platform::database::begin(db).await?;
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

/// Reason that no code was sent, with its metric label.
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

fn refused_for(left: time::Duration) -> Decision {
    Decision { allowed: false, limit: 0, remaining: 0, retry_after: left.unsigned_abs() }
}
