//! Phone verification, phone moves and their undo.

use std::time::Duration;

use platform::{Core, database, random};
use sqlx::PgConnection;
use time::OffsetDateTime;
use url::Url;
use web::{ClientNetwork, ids::UserId};

pub use super::rules::UndoCode;
use super::{
    rules,
    store::{self, PendingNotice},
};
use crate::identity::{
    accounts::{self, restrictions::RestrictError, service::Accounts},
    codes::{
        Code, Subject,
        service::{CheckError, Codes, GuessPermit, RequestError, Sent},
    },
    phone::Phone,
    sessions::{
        CurrentUser,
        service::{SessionError, Sessions},
    },
    sms::{service::Sms, templates::Language},
};

/// Time a worker has to send a notice before another worker may send it.
const TURN: Duration = Duration::from_mins(1);
/// Maximum pause between attempts to send a notice.
const LONGEST_PAUSE: Duration = Duration::from_mins(30);

/// Verifies phones, moves accounts to other phones and undoes moves.
#[derive(Clone)]
pub struct PhoneMoves {
    pub(crate) core: Core,
    pub(crate) accounts: Accounts,
    pub(crate) codes: Codes,
    pub(crate) sessions: Sessions,
    pub(crate) sms: Sms,
    /// Page on which the owner undoes a move. Without it, the text message contains only the code.
    pub(crate) undo_url: Option<Url>,
}

/// Failure to start a phone verification.
#[derive(Debug, thiserror::Error)]
pub enum BeginError {
    /// The phone is a new one, and the current phone was not verified recently.
    #[error("the current phone must be verified first")]
    ProofNeeded,
    /// The code could not be sent.
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

/// Failure to verify a phone.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The code was sent to another phone.
    #[error("the code was sent to another phone")]
    OtherPhone,
    /// The phone belongs to another account.
    #[error("the phone belongs to another account")]
    PhoneTaken,
    /// The phone is a new one, and the current phone was not verified recently.
    #[error("the current phone must be verified first")]
    ProofNeeded,
    /// The code was not accepted.
    #[error(transparent)]
    Code(#[from] CheckError),
    /// The restrictions on the old phone could not be copied to the new one.
    #[error(transparent)]
    Restrictions(#[from] RestrictError),
    /// The sessions could not be read or ended.
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

/// Failure to undo a phone move.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    /// The code is wrong, expired or used.
    #[error("the undo code is wrong, expired or used")]
    InvalidCode,
    /// The old phone belongs to another account that is older than the move.
    #[error("the phone belongs to another account")]
    PhoneTaken,
    /// The restrictions on the phones could not be copied.
    #[error(transparent)]
    Restrictions(#[from] RestrictError),
    /// The sessions could not be ended.
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

impl PhoneMoves {
    /// Sends a code to the user's current phone or to the phone to which they want to move.
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

    /// Whether the user may verify this phone: always for the current phone, for another one only after a recent proof
    /// of the current phone.
    async fn may_verify(&self, connection: &mut PgConnection, user: CurrentUser, phone: &Phone) -> sqlx::Result<bool> {
        let current =
            accounts::find(&mut *connection, user.id, self.core.clock.now()).await?.and_then(|account| account.phone);
        if current.is_none_or(|current| current == *phone) {
            return Ok(true);
        }
        let proven_at = self.sessions.proven_at(connection, user.id, user.session).await?;
        Ok(proven_at.is_some_and(|proven_at| rules::is_recent(proven_at, self.core.clock.now())))
    }

    /// Verifies a phone of the user. If it is a new one, the account moves to it, the user's other sessions end, and
    /// the old phone receives a notice. Only a caller with the right code learns whether a phone belongs to another
    /// account.
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
            None => return Err(CheckError::InvalidCode.into()),
            Some(pending) if pending != *phone => return Err(VerifyError::OtherPhone),
            Some(_) => {}
        }
        let right = self.codes.check(&subject, phone, code, permit).await?;
        let now = self.core.clock.now();
        let mut tx = platform::database::begin(&self.core.db).await?;
        let Some(verified) = self.codes.consume_in(&mut tx, right, &subject).await? else {
            return Err(CheckError::InvalidCode.into());
        };
        accounts::lock(&mut tx, user.id).await?;
        // Checked again under the lock: the proof may have expired, or the account may have moved in the meantime.
        if !self.may_verify(&mut tx, user, phone).await? {
            tx.rollback().await?;
            self.codes.give_back(right).await?;
            return Err(VerifyError::ProofNeeded);
        }
        let owner = accounts::phone_owner(&mut tx, phone).await?;
        let is_theirs = match owner {
            Some(owner) => owner == user.id,
            None => accounts::claim_phone(&mut tx, phone, user.id, now).await?,
        };
        let mut ended = None;
        if is_theirs {
            let before = accounts::find(&mut *tx, user.id, now).await?.and_then(|account| account.phone);
            if let Some(before) = before.filter(|before| before != phone) {
                accounts::release_phone(&mut tx, &before, user.id).await?;
                self.accounts.carry_restrictions_in(&mut tx, user.id, &before, phone).await?;
                self.codes.forget_phone_in(&mut tx, &before).await?;
                store::insert(&mut tx, user.id, &before, language.tag(), now, now + rules::UNDO_LASTS).await?;
                ended = Some(self.sessions.end_others_in(&mut tx, user.id, Some(user.session)).await?);
            }
            accounts::set_phone(&mut tx, user.id, phone, now).await?;
            self.codes.remember_in(&mut tx, &verified).await?;
            self.sessions.note_proof_in(&mut tx, user.id, user.session, now).await?;
        }
        tx.commit().await?;
        self.core.outbox_written.notify_one();
        self.codes.note_verified(phone);
        if let Some(ended) = ended {
            metrics::counter!("matchday_phone_moves_total").increment(1);
            self.sessions.forget(&ended);
            // Sends the notice immediately. If this process stops first, a worker sends it.
            let phones = self.clone();
            tokio::spawn(async move { phones.send_move_notices().await });
        }
        if is_theirs { Ok(()) } else { Err(VerifyError::PhoneTaken) }
    }

    /// Sends the due notices to the old phones of moved accounts and returns their number. Each notice contains a code
    /// that undoes the move. The code is created here and stored only as a hash, so no queue contains it. Each attempt
    /// creates a new code.
    pub async fn send_move_notices(&self) -> sqlx::Result<usize> {
        let mut sent = 0;
        loop {
            let now = self.core.clock.now();
            let mut connection = self.core.db.acquire().await?;
            let next = store::take_pending_notice(&mut connection, now, now + TURN).await?;
            let Some(notice) = next else { return Ok(sent) };
            drop(connection);
            let code = UndoCode::make(notice.user_id, random::bytes(&*self.core.random));
            store::set_undo_hash(&self.core.db, &notice, code.hash()).await?;
            match self.send_notice(&notice, &code).await {
                Ok(()) => {
                    store::set_notice_due(&self.core.db, &notice, None).await?;
                    sent += 1;
                }
                Err(error) => {
                    let (user, attempts) = (notice.user_id.0, notice.attempts);
                    tracing::warn!(%error, user, attempts, "phone move notice could not be sent");
                    store::set_notice_due(&self.core.db, &notice, Some(self.core.clock.now() + pause(attempts)))
                        .await?;
                }
            }
        }
    }

    async fn send_notice(
        &self,
        notice: &PendingNotice,
        code: &UndoCode,
    ) -> Result<(), crate::identity::sms::service::DispatchError> {
        let undo = match &self.undo_url {
            Some(page) => {
                let mut link = page.clone();
                link.set_fragment(Some(&code.text()));
                link.to_string()
            }
            None => code.text(),
        };
        let language = Language::from_tag(&notice.language);
        let hours = rules::UNDO_LASTS.whole_hours().unsigned_abs();
        self.sms.send_move_notice(&notice.from_phone, language, &undo, hours, notice.undo_until).await
    }

    /// Moves an account back to its old phone and ends all its sessions.
    pub async fn undo(&self, code: &UndoCode) -> Result<Phone, UndoError> {
        let (user, now) = (code.user(), self.core.clock.now());
        let mut tx = platform::database::begin(&self.core.db).await?;
        accounts::lock(&mut tx, user).await?;
        let undoable = store::undoable(&mut tx, user, code.hash(), now).await?.ok_or(UndoError::InvalidCode)?;
        let account = accounts::find(&mut *tx, user, now).await?.ok_or(UndoError::InvalidCode)?;
        let phone = undoable.from_phone;
        let mut ended = Vec::new();
        if let Some(owner) = accounts::phone_owner(&mut tx, &phone).await?
            && owner != user
        {
            ended.push(self.detach(&mut tx, owner, &phone, undoable.moved_at).await?);
        }
        if let Some(current) = account.phone.filter(|current| *current != phone) {
            accounts::release_phone(&mut tx, &current, user).await?;
            self.accounts.carry_restrictions_in(&mut tx, user, &current, &phone).await?;
            self.codes.forget_phone_in(&mut tx, &current).await?;
        }
        accounts::claim_phone(&mut tx, &phone, user, now).await?;
        accounts::set_phone(&mut tx, user, &phone, now).await?;
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

    /// Takes a phone from an account that was registered with it after the move. This is most likely the owner, who
    /// logged in again and found an empty account. An older account keeps the phone.
    async fn detach(
        &self,
        connection: &mut PgConnection,
        owner: UserId,
        phone: &Phone,
        moved_at: OffsetDateTime,
    ) -> Result<crate::identity::sessions::service::EndedSessions, UndoError> {
        accounts::lock(connection, owner).await?;
        let is_newer = accounts::find(&mut *connection, owner, self.core.clock.now())
            .await?
            .is_none_or(|account| account.created_at >= moved_at);
        if !is_newer {
            return Err(UndoError::PhoneTaken);
        }
        accounts::release_phone(connection, phone, owner).await?;
        self.accounts.keep_restrictions_in(connection, owner, phone).await?;
        accounts::clear_phone(connection, owner).await?;
        Ok(self.sessions.end_others_in(connection, owner, None).await?)
    }

    /// Returns the time until which the user's account cannot be deleted, because its latest phone move can still be
    /// undone.
    pub async fn undo_until(
        &self,
        connection: &mut PgConnection,
        user: UserId,
    ) -> sqlx::Result<Option<OffsetDateTime>> {
        store::undo_until(connection, user, self.core.clock.now()).await
    }

    /// Deletes moves that can no longer be undone and returns their number.
    pub async fn sweep(&self) -> sqlx::Result<u64> {
        let now = self.core.clock.now();
        database::sweep(|most| store::sweep(&self.core.db, now, most)).await
    }
}

/// Pause after this number of attempts: doubles from ten seconds up to [`LONGEST_PAUSE`].
fn pause(attempts: i16) -> Duration {
    let doublings = attempts.clamp(1, 10).unsigned_abs() - 1;
    LONGEST_PAUSE.min(Duration::from_secs(10) * 2_u32.pow(doublings.into()))
}
