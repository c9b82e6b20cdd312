//! Proving, moving and undoing.

use std::time::Duration;

use platform::{Core, database, random};
use sqlx::PgConnection;
use time::OffsetDateTime;
use url::Url;
use web::{ClientNetwork, ids::UserId};

pub use super::rules::UndoCode;
use super::{
    rules,
    store::{self, Untold},
};
use crate::{
    accounts::{self, service::Accounts},
    codes::{
        Code, Subject,
        service::{CheckError, Codes, GuessPermit, RequestError, Sent},
    },
    phone::Phone,
    safety::phones::RestrictError,
    sessions::{
        CurrentUser,
        service::{SessionError, Sessions},
    },
    sms::{service::Sms, templates::Language},
};

/// How long a worker may take to tell an old phone before another one tries.
const TURN: Duration = Duration::from_mins(1);
/// The longest pause between attempts.
const LONGEST_PAUSE: Duration = Duration::from_mins(30);

/// The phones of all users.
#[derive(Clone)]
pub struct Phones {
    pub(crate) core: Core,
    pub(crate) accounts: Accounts,
    pub(crate) codes: Codes,
    pub(crate) sessions: Sessions,
    pub(crate) sms: Sms,
    /// The page that undoes a move, where there is one.
    pub(crate) undo_url: Option<Url>,
}

/// Why no code was sent to a phone that is to be verified.
#[derive(Debug, thiserror::Error)]
pub enum BeginError {
    /// It would be a move, and the current phone was not proven lately.
    #[error("the current phone must be verified first")]
    ProofNeeded,
    /// No code could be sent.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The database failed.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

/// Why a phone was not verified.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// Not the phone that a code was sent to.
    #[error("the code was sent to another phone")]
    OtherPhone,
    /// It is the phone of another account.
    #[error("the phone belongs to another account")]
    PhoneTaken,
    /// It would be a move, and the current phone was not proven lately.
    #[error("the current phone must be verified first")]
    ProofNeeded,
    /// The code was not accepted.
    #[error(transparent)]
    Code(#[from] CheckError),
    /// The restrictions of the phones could not be carried over.
    #[error(transparent)]
    Restrictions(#[from] RestrictError),
    /// The sessions could not be read or ended.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The database failed.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

/// Why a move was not undone.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    /// Wrong, expired or used.
    #[error("the undo code is not good")]
    NotGood,
    /// The phone that the account left belongs to another account that is older than the move.
    #[error("the phone belongs to another account")]
    PhoneTaken,
    /// The restrictions of the phones could not be carried over.
    #[error(transparent)]
    Restrictions(#[from] RestrictError),
    /// The sessions could not be ended.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The database failed.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

impl Phones {
    /// Sends a code to a phone that the user says is theirs, or will be.
    pub async fn begin_verification(
        &self,
        user: CurrentUser,
        phone: &Phone,
        network: ClientNetwork,
        language: Language,
    ) -> Result<Sent, BeginError> {
        let mut connection = self.core.db.acquire().await?;
        if !self.may_verify(&mut connection, user, phone).await? {
            return Err(BeginError::ProofNeeded);
        }
        drop(connection);
        Ok(self.codes.request(&Subject::Verification(user.id), phone, network, language).await?)
    }

    /// Whether the user may verify this phone: always their own, another one only after they proved their own.
    async fn may_verify(&self, connection: &mut PgConnection, user: CurrentUser, phone: &Phone) -> sqlx::Result<bool> {
        let current = accounts::store::find(&mut *connection, user.id, self.core.clock.now())
            .await?
            .and_then(|account| account.phone);
        if current.is_none_or(|current| current == *phone) {
            return Ok(true);
        }
        let proven_at = self.sessions.proven_at(connection, user.id, user.session).await?;
        Ok(proven_at.is_some_and(|proven_at| rules::is_recent(proven_at, self.core.clock.now())))
    }

    /// Proves that a phone is the user's. Another one than before becomes theirs: the account moves to it, the user's
    /// other sessions end, and the old phone is told. Whether a phone belongs to another account is said only to who has
    /// its code.
    pub async fn verify(
        &self,
        user: CurrentUser,
        phone: &Phone,
        code: &Code,
        permit: GuessPermit,
        language: Language,
    ) -> Result<(), VerifyError> {
        let subject = Subject::Verification(user.id);
        match self.codes.pending(&subject).await? {
            None => return Err(CheckError::NotGood.into()),
            Some(pending) if pending != *phone => return Err(VerifyError::OtherPhone),
            Some(_) => {}
        }
        let right = self.codes.check(&subject, phone, code, permit).await?;
        let now = self.core.clock.now();
        let mut tx = self.core.db.begin().await?;
        let Some(verified) = self.codes.consume_in(&mut tx, right, &subject).await? else {
            return Err(CheckError::NotGood.into());
        };
        accounts::store::lock(&mut tx, user.id).await?;
        // Again, behind the lock: the proof may have grown too old, or the account may have moved meanwhile.
        if !self.may_verify(&mut tx, user, phone).await? {
            tx.rollback().await?;
            self.codes.give_back(right).await?;
            return Err(VerifyError::ProofNeeded);
        }
        let owner = accounts::store::phone_owner(&mut tx, phone).await?;
        let is_theirs = match owner {
            Some(owner) => owner == user.id,
            None => accounts::store::claim_phone(&mut tx, phone, user.id, now).await?,
        };
        let mut ended = None;
        if is_theirs {
            let before = accounts::store::find(&mut *tx, user.id, now).await?.and_then(|account| account.phone);
            if let Some(before) = before.filter(|before| before != phone) {
                accounts::store::release_phone(&mut tx, &before, user.id).await?;
                self.accounts.carry_restrictions_in(&mut tx, user.id, &before, phone).await?;
                self.codes.forget_phone_in(&mut tx, &before).await?;
                store::insert(&mut tx, user.id, &before, language.tag(), now, now + rules::UNDO_LASTS).await?;
                ended = Some(self.sessions.end_others_in(&mut tx, user.id, Some(user.session)).await?);
            }
            accounts::store::set_phone(&mut tx, user.id, phone, now).await?;
            self.codes.remember_in(&mut tx, &verified).await?;
            self.sessions.note_proof_in(&mut tx, user.id, user.session, now).await?;
        }
        tx.commit().await?;
        self.core.outbox_written.notify_one();
        self.codes.note_verified(phone);
        if let Some(ended) = ended {
            metrics::counter!("matchday_phone_moves_total").increment(1);
            self.sessions.forget(&ended);
            // At once; should this process end before, a worker does it.
            let phones = self.clone();
            tokio::spawn(async move { phones.tell_old_phones().await });
        }
        if is_theirs { Ok(()) } else { Err(VerifyError::PhoneTaken) }
    }

    /// Texts the old phones of accounts that moved; returns how many it told. Each gets a code that undoes the move. The
    /// code is made here and stored as a hash, so that it is in no queue; a second attempt makes another one.
    pub async fn tell_old_phones(&self) -> sqlx::Result<usize> {
        let mut told = 0;
        loop {
            let now = self.core.clock.now();
            let mut connection = self.core.db.acquire().await?;
            let Some(untold) = store::take_untold(&mut connection, now, now + TURN).await? else { return Ok(told) };
            drop(connection);
            let code = UndoCode::make(untold.user_id, random::bytes(&*self.core.random));
            store::set_undo_hash(&self.core.db, &untold, code.hash()).await?;
            match self.tell(&untold, &code).await {
                Ok(()) => {
                    store::set_notice_due(&self.core.db, &untold, None).await?;
                    told += 1;
                }
                Err(error) => {
                    tracing::warn!(%error, user = untold.user_id.0, attempts = untold.attempts, "phone move notice not sent");
                    store::set_notice_due(&self.core.db, &untold, Some(self.core.clock.now() + pause(untold.attempts)))
                        .await?;
                }
            }
        }
    }

    async fn tell(&self, untold: &Untold, code: &UndoCode) -> Result<(), crate::sms::service::DispatchError> {
        let undo = match &self.undo_url {
            Some(page) => {
                let mut link = page.clone();
                link.set_fragment(Some(&code.text()));
                link.to_string()
            }
            None => code.text(),
        };
        let language = Language::from_tag(&untold.language);
        let hours = rules::UNDO_LASTS.whole_hours().unsigned_abs();
        self.sms.send_move_notice(&untold.from_phone, language, &undo, hours, untold.undo_until).await
    }

    /// Gives an account back to the phone that it left. All its sessions end.
    pub async fn undo(&self, code: &UndoCode) -> Result<Phone, UndoError> {
        let (user, now) = (code.user(), self.core.clock.now());
        let mut tx = self.core.db.begin().await?;
        accounts::store::lock(&mut tx, user).await?;
        let undoable = store::undoable(&mut tx, user, code.hash(), now).await?.ok_or(UndoError::NotGood)?;
        let account = accounts::store::find(&mut *tx, user, now).await?.ok_or(UndoError::NotGood)?;
        let phone = undoable.from_phone;
        let mut ended = Vec::new();
        if let Some(owner) = accounts::store::phone_owner(&mut tx, &phone).await?
            && owner != user
        {
            ended.push(self.detach(&mut tx, owner, &phone, undoable.moved_at).await?);
        }
        if let Some(current) = account.phone.filter(|current| *current != phone) {
            accounts::store::release_phone(&mut tx, &current, user).await?;
            self.accounts.carry_restrictions_in(&mut tx, user, &current, &phone).await?;
            self.codes.forget_phone_in(&mut tx, &current).await?;
        }
        accounts::store::claim_phone(&mut tx, &phone, user, now).await?;
        accounts::store::set_phone(&mut tx, user, &phone, now).await?;
        self.codes.remember_phone_in(&mut tx, &phone).await?;
        store::set_undone(&mut tx, user, now).await?;
        ended.push(self.sessions.end_others_in(&mut tx, user, None).await?);
        tx.commit().await?;
        self.core.outbox_written.notify_one();
        for ended in &ended {
            self.sessions.forget(ended);
        }
        metrics::counter!("matchday_phone_moves_undone_total").increment(1);
        tracing::info!(user = user.0, "phone move undone");
        Ok(phone)
    }

    /// Takes a phone from an account that registered with it after the move: most likely the owner, who found a new and
    /// empty account. An account that had been there before keeps it.
    async fn detach(
        &self,
        connection: &mut PgConnection,
        owner: UserId,
        phone: &Phone,
        moved_at: OffsetDateTime,
    ) -> Result<crate::sessions::service::EndedSessions, UndoError> {
        accounts::store::lock(connection, owner).await?;
        let is_newer = accounts::store::find(&mut *connection, owner, self.core.clock.now())
            .await?
            .is_none_or(|account| account.created_at >= moved_at);
        if !is_newer {
            return Err(UndoError::PhoneTaken);
        }
        accounts::store::release_phone(connection, phone, owner).await?;
        self.accounts.keep_restrictions_in(connection, owner, phone).await?;
        accounts::store::clear_phone(connection, owner).await?;
        Ok(self.sessions.end_others_in(connection, owner, None).await?)
    }

    /// Until when the user's account cannot be deleted, because its phone was moved and the move can still be undone.
    pub async fn undo_until(
        &self,
        connection: &mut PgConnection,
        user: UserId,
    ) -> sqlx::Result<Option<OffsetDateTime>> {
        store::undo_until(connection, user, self.core.clock.now()).await
    }

    /// Deletes moves that cannot be undone any more; returns how many.
    pub async fn sweep(&self) -> sqlx::Result<u64> {
        let now = self.core.clock.now();
        database::sweep(|most| store::sweep(&self.core.db, now, most)).await
    }
}

/// How long to wait after so many attempts.
fn pause(attempts: i16) -> Duration {
    let doublings = attempts.clamp(1, 10).unsigned_abs() - 1;
    LONGEST_PAUSE.min(Duration::from_secs(10) * 2_u32.pow(doublings.into()))
}
