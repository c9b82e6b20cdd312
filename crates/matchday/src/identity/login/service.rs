//! Login: checks the code, then finds or creates the account and issues a session.

use std::sync::Arc;

use matrix_appservice::Credentials;
use platform::reads::Reads;
use secrecy::SecretString;
use sqlx::PgPool;
use time::OffsetDateTime;

use super::hooks::ChatAccess;
use crate::identity::{
    accounts::service::{Account, Accounts, CreateError},
    callers,
    codes::{
        Code, Subject,
        service::{CheckError, Codes, CorrectCode, GuessPermit},
    },
    phone::Phone,
    sessions::service::{EndedSessions, Issued, SessionError, Sessions},
    usernames::Username,
};

#[derive(Clone)]
pub struct Login {
    pub db: PgPool,
    pub reads: Reads,
    pub codes: Codes,
    pub accounts: Accounts,
    pub sessions: Sessions,
    pub chat: Arc<dyn ChatAccess>,
}

/// Data that the client submits to log in.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub phone: Phone,
    pub code: Code,
    /// Username for a new account; ignored if the phone has an account.
    pub username: Option<Username>,
}

#[derive(Debug)]
pub struct LoggedIn {
    pub account: Account,
    /// Session token for the client.
    pub token: SecretString,
    /// Chat credentials; `None` while chat is unavailable.
    pub credentials: Option<Credentials>,
}

#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    #[error(transparent)]
    Code(#[from] CheckError),
    /// The username is reserved, or is or was in use. The code remains valid.
    #[error("the username is taken")]
    UsernameTaken,
    /// The account is banned from the service.
    #[error("the account is suspended")]
    Suspended {
        /// End of the suspension, if it has one.
        until: Option<OffsetDateTime>,
    },
    #[error(transparent)]
    Session(#[from] SessionError),
}

impl From<sqlx::Error> for LoginError {
    fn from(error: sqlx::Error) -> Self {
        Self::Session(error.into())
    }
}

impl Login {
    /// Logs a user in with a phone and its code.
    pub async fn log_in(&self, attempt: Attempt, permit: GuessPermit, client: &str) -> Result<LoggedIn, LoginError> {
        let Attempt { phone, code, username } = attempt;
        let subject = Subject::Login(phone.clone());
        let right = self.codes.check(&subject, &phone, &code, permit).await?;
        // Check before the transaction starts, because the homeserver may be slow.
        let is_foreign = match &username {
            Some(username) => self.accounts.is_foreign_name(username).await,
            None => false,
        };
        let (account, is_new, issued, ended) = loop {
            match self.enter(right, &subject, &phone, username.as_ref(), is_foreign, client).await {
                Ok(entered) => break entered,
                // Retry: the rollback also restored the code, and the phone's new owner is visible now.
                Err(EnterError::Make(CreateError::PhoneMoved)) => {}
                Err(EnterError::Make(CreateError::UsernameTaken)) => {
                    self.codes.give_back(right).await?;
                    return Err(LoginError::UsernameTaken);
                }
                Err(EnterError::Make(CreateError::Database(error))) => return Err(error.into()),
                Err(EnterError::Make(CreateError::Message(error))) => return Err(SessionError::from(error).into()),
                Err(EnterError::Login(suspended @ LoginError::Suspended { .. })) => {
                    // Refund the guess: the user may log in with this code if the suspension ends before it expires.
                    self.codes.give_back(right).await?;
                    return Err(suspended);
                }
                Err(EnterError::Login(error)) => return Err(error),
            }
        };
        self.sessions.forget(&ended);
        self.codes.note_verified(&phone);
        if is_new {
            self.accounts.note_created();
        }
        // Runs after the commit: a homeserver failure leaves the user logged in without chat, but never with a partial
        // account.
        let credentials = self.chat.admit(&account, &issued, client).await;
        // The request has no token from which its writer could be known.
        self.reads.note_write(&[callers::user(account.id)]).await;
        Ok(LoggedIn { account, token: issued.token, credentials })
    }

    /// Consumes the code, finds or creates the account and issues a session, in one transaction.
    async fn enter(
        &self,
        right: CorrectCode,
        subject: &Subject,
        phone: &Phone,
        username: Option<&Username>,
        is_foreign: bool,
        client: &str,
    ) -> Result<(Account, bool, Issued, EndedSessions), EnterError> {
        let mut tx = platform::database::begin(&self.db).await?;
        let Some(verified) = self.codes.consume_in(&mut tx, right, subject).await? else {
            return Err(LoginError::from(CheckError::InvalidCode).into());
        };
        let (account, is_new) = self.accounts.find_or_make_in(&mut tx, phone, username).await?;
        if is_new && is_foreign {
            return Err(CreateError::UsernameTaken.into());
        }
        if account.banned_at.is_some() {
            return Err(LoginError::Suspended { until: account.banned_until }.into());
        }
        let (issued, ended) = if is_new {
            (
                self.sessions.start_in(&mut tx, account.id, client).await.map_err(LoginError::from)?,
                EndedSessions::default(),
            )
        } else {
            self.sessions.issue_in(&mut tx, account.id, client).await.map_err(LoginError::from)?
        };
        self.codes.remember_in(&mut tx, &verified).await?;
        tx.commit().await?;
        Ok((account, is_new, issued, ended))
    }
}

enum EnterError {
    Make(CreateError),
    Login(LoginError),
}

impl From<CreateError> for EnterError {
    fn from(error: CreateError) -> Self {
        Self::Make(error)
    }
}

impl From<LoginError> for EnterError {
    fn from(error: LoginError) -> Self {
        Self::Login(error)
    }
}

impl From<sqlx::Error> for EnterError {
    fn from(error: sqlx::Error) -> Self {
        Self::Login(error.into())
    }
}
