//! The one way in.

use std::sync::Arc;

use matrix_appservice::Credentials;
use secrecy::SecretString;
use sqlx::PgPool;
use time::OffsetDateTime;

use super::hooks::ChatAccess;
use crate::identity::{
    accounts::service::{Account, Accounts, MakeError},
    codes::{
        Code, Subject,
        service::{CheckError, Codes, GuessPermit, RightCode},
    },
    phone::Phone,
    sessions::service::{EndedSessions, Issued, SessionError, Sessions},
    usernames::Username,
};

/// Logging in.
#[derive(Clone)]
pub struct Login {
    /// Where accounts and sessions are.
    pub db: PgPool,
    /// What proves a phone.
    pub codes: Codes,
    /// Who logs in.
    pub accounts: Accounts,
    /// What they get.
    pub sessions: Sessions,
    /// And for chat.
    pub chat: Arc<dyn ChatAccess>,
}

/// What somebody presents.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Their phone.
    pub phone: Phone,
    /// The code that was sent to it.
    pub code: Code,
    /// What they want to be called, if this is the first time.
    pub username: Option<Username>,
}

/// Somebody is in.
#[derive(Debug)]
pub struct LoggedIn {
    /// Who.
    pub account: Account,
    /// What the app carries from now on.
    pub token: SecretString,
    /// For chat; `None` while it is away.
    pub credentials: Option<Credentials>,
}

/// Why somebody is not in.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// The code.
    #[error(transparent)]
    Code(#[from] CheckError),
    /// Somebody has or had it, or it is reserved. The code is still good.
    #[error("the username is taken")]
    UsernameTaken,
    /// The account may not use the service.
    #[error("the account is suspended")]
    Suspended {
        /// When the suspension ends, if it has an end.
        until: Option<OffsetDateTime>,
    },
    /// The session.
    #[error(transparent)]
    Session(#[from] SessionError),
}

impl From<sqlx::Error> for LoginError {
    fn from(error: sqlx::Error) -> Self {
        Self::Session(error.into())
    }
}

impl Login {
    /// Lets somebody in who has the code.
    pub async fn log_in(&self, attempt: Attempt, permit: GuessPermit, client: &str) -> Result<LoggedIn, LoginError> {
        let Attempt { phone, code, username } = attempt;
        let subject = Subject::Login(phone.clone());
        let right = self.codes.check(&subject, &phone, &code, permit).await?;
        // Before the transaction: the homeserver may take its time.
        let is_foreign = match &username {
            Some(username) => self.accounts.is_foreign_name(username).await,
            None => false,
        };
        let (account, is_new, issued, ended) = loop {
            match self.enter(right, &subject, &phone, username.as_ref(), is_foreign, client).await {
                Ok(entered) => break entered,
                // It was rolled back, the code with it; the phone's account is settled now, so this ends.
                Err(EnterError::Make(MakeError::PhoneMoved)) => {}
                Err(EnterError::Make(MakeError::UsernameTaken)) => {
                    self.codes.give_back(right).await?;
                    return Err(LoginError::UsernameTaken);
                }
                Err(EnterError::Make(MakeError::Database(error))) => return Err(error.into()),
                Err(EnterError::Make(MakeError::Message(error))) => return Err(SessionError::from(error).into()),
                Err(EnterError::Login(suspended @ LoginError::Suspended { .. })) => {
                    // Once the suspension is over, it is as good as it was.
                    self.codes.give_back(right).await?;
                    return Err(suspended);
                }
                Err(EnterError::Login(error)) => return Err(error),
            }
        };
        self.sessions.forget(&ended);
        self.codes.note_verified(&phone);
        if is_new {
            self.accounts.note_made();
        }
        // After the commit: a homeserver that fails leaves somebody who is logged in without chat, never half an account.
        let credentials = self.chat.admit(&account, &issued, client).await;
        Ok(LoggedIn { account, token: issued.token, credentials })
    }

    /// Code, account and session, all or nothing.
    async fn enter(
        &self,
        right: RightCode,
        subject: &Subject,
        phone: &Phone,
        username: Option<&Username>,
        is_foreign: bool,
        client: &str,
    ) -> Result<(Account, bool, Issued, EndedSessions), EnterError> {
        let mut tx = self.db.begin().await?;
        let Some(verified) = self.codes.consume_in(&mut tx, right, subject).await? else {
            return Err(LoginError::from(CheckError::NotGood).into());
        };
        let (account, is_new) = self.accounts.find_or_make_in(&mut tx, phone, username).await?;
        if is_new && is_foreign {
            return Err(MakeError::UsernameTaken.into());
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
    Make(MakeError),
    Login(LoginError),
}

impl From<MakeError> for EnterError {
    fn from(error: MakeError) -> Self {
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
