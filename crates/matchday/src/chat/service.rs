//! Giving sessions their chat devices, and doing on the homeserver what happened here.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use matrix_appservice::{Homeserver, OwnedServerName, Registered, Settings};
use platform::{
    Core,
    rate_limit::{Decision, Limit, RateLimiter},
};
use tokio::sync::Semaphore;
use url::Url;
use web::ids::{SessionId, UserId};

use super::settings::Matrix;
use crate::{
    accounts::service::{Account, Accounts},
    sessions::service::{DeviceState, Issued, SessionError, Sessions},
};
pub use matrix_appservice::Credentials;

/// How many logins this process sends to the homeserver at once. It works on few at a time; the rest would wait there
/// longer than anybody here waits for them.
const LOGINS_AT_ONCE: usize = 16;

/// How often a user may ask for new credentials.
const RENEWALS: Limit = Limit { name: "chat_credentials", burst: 10, every: Duration::from_secs(30) };

/// Chat.
#[derive(Clone)]
pub struct Chat {
    homeserver: Option<Homeserver>,
    public_url: Option<Url>,
    sessions: Sessions,
    accounts: Accounts,
    limiter: RateLimiter,
    patience: Duration,
    /// Whether users can be kept from speaking and still have devices.
    can_suspend: bool,
    logins: Arc<Semaphore>,
}

/// Why there are no credentials.
#[derive(Debug, thiserror::Error)]
pub enum ChatError {
    /// This deployment has no chat.
    #[error("there is no chat here")]
    None,
    /// The homeserver does not answer, or not in time.
    #[error("the homeserver does not answer")]
    Unavailable,
    /// The homeserver refused.
    #[error(transparent)]
    Homeserver(#[from] matrix_appservice::Error),
    /// The homeserver's account of that name is somebody else's.
    #[error("the chat account is not ours")]
    NotOurs,
    /// They may not speak, and with credentials they could.
    #[error("the user is muted")]
    Muted,
    /// Newer credentials were asked for meanwhile.
    #[error("the session has newer credentials")]
    Replaced,
    /// The session ended meanwhile.
    #[error("the session is over")]
    SessionOver,
    /// The session could not be read or written.
    #[error(transparent)]
    Session(#[from] SessionError),
}

impl From<sqlx::Error> for ChatError {
    fn from(error: sqlx::Error) -> Self {
        Self::Session(error.into())
    }
}

/// The homeserver that the configuration names, if it names one.
pub fn homeserver(config: &Matrix, web: reqwest::Client) -> anyhow::Result<Option<Homeserver>> {
    let (Some(url), Some(name), Some(token)) = (&config.homeserver_url, &config.server_name, &config.as_token) else {
        return Ok(None);
    };
    let name = OwnedServerName::try_from(name.as_str()).context("matrix.server_name")?;
    // A little shorter than a caller's patience, so that the circuit breaker counts a call that takes too long.
    let settings = Settings {
        deadline: config.timeout * 3 / 4,
        bot: config.bot.clone(),
        admin_token: config.admin_token.as_ref().map(|token| token.inner().clone()),
        ..Settings::new(url.clone(), name, token.inner().clone())
    };
    Ok(Some(Homeserver::new(settings, web)))
}

impl Chat {
    /// Chat on this homeserver, which is the one of [`homeserver`].
    pub fn new(
        core: &Core,
        config: &Matrix,
        homeserver: Option<Homeserver>,
        sessions: Sessions,
        accounts: Accounts,
    ) -> Self {
        Self {
            homeserver,
            public_url: config.public_url.clone().or_else(|| config.homeserver_url.clone()),
            sessions,
            accounts,
            limiter: core.limits.clone(),
            patience: config.timeout,
            can_suspend: config.admin_token.is_some(),
            logins: Arc::new(Semaphore::new(LOGINS_AT_ONCE)),
        }
    }

    /// The homeserver, where there is one.
    pub fn homeserver(&self) -> Option<&Homeserver> {
        self.homeserver.as_ref()
    }

    /// An account that has a chat account, made first if it has none yet.
    pub async fn account(&self, user: UserId) -> Result<Account, ChatError> {
        let homeserver = self.homeserver.as_ref().ok_or(ChatError::None)?;
        let account = self.accounts.find(user).await?.ok_or(ChatError::SessionOver)?;
        if !account.has_chat_account {
            if homeserver.is_resting() {
                return Err(ChatError::Unavailable);
            }
            self.make_account(homeserver, &account).await?;
        }
        Ok(account)
    }

    /// Where chat clients find the homeserver.
    pub fn public_url(&self) -> Option<&Url> {
        self.public_url.as_ref()
    }

    /// The credentials of a session that was just issued. What goes wrong is logged and counted here: a login without
    /// chat is still a login.
    pub async fn admit(&self, account: &Account, session: &Issued, client: &str) -> Option<Credentials> {
        let device_id = session.device_id.as_deref().filter(|_| self.may_have_device(account))?;
        self.log_in(account, session.id, device_id, client).await.ok()
    }

    /// New credentials for a session; those before are not good any more.
    pub async fn renew(&self, account: &Account, session: SessionId) -> Result<Credentials, ChatError> {
        let Some(homeserver) = &self.homeserver else { return Err(ChatError::None) };
        if !self.may_have_device(account) {
            return Err(ChatError::Muted);
        }
        // Before anything is written: while chat is away, apps ask again and again.
        if homeserver.is_resting() {
            return Err(ChatError::Unavailable);
        }
        let device_id = self.sessions.renew_device(account.id, session).await?.ok_or(ChatError::SessionOver)?;
        self.log_in(account, session, &device_id, "").await
    }

    /// Where nobody can be suspended, whoever may not speak has no device.
    fn may_have_device(&self, account: &Account) -> bool {
        self.can_suspend || !account.is_silenced()
    }

    /// Takes from how often a user may ask for credentials: every time makes a device, and there are places for few
    /// logins at once.
    pub async fn permit_renewal(&self, user: UserId) -> Decision {
        self.limiter.take(RENEWALS, &user.to_string()).await
    }

    /// Gives back what was taken for credentials that there are none of: while chat is away, asking costs nothing.
    pub async fn return_renewal(&self, user: UserId) {
        self.limiter.untake(RENEWALS, &user.to_string()).await;
    }

    async fn log_in(
        &self,
        account: &Account,
        session: SessionId,
        device_id: &str,
        client: &str,
    ) -> Result<Credentials, ChatError> {
        let Some(homeserver) = &self.homeserver else { return Err(ChatError::None) };
        let began = std::time::Instant::now();
        let outcome = self.get_in(homeserver, account, device_id, client).await;
        metrics::histogram!("matchday_chat_login_seconds").record(began.elapsed().as_secs_f64());
        let outcome = match outcome {
            Ok(credentials) => self.settle(homeserver, account, session, device_id).await.map(|()| credentials),
            Err(error) => Err(error),
        };
        let label = match &outcome {
            Ok(_) => "ok",
            Err(ChatError::NotOurs) => {
                tracing::error!(
                    user = account.id.0,
                    "chat account of this username is not ours: user must choose another"
                );
                self.accounts.allow_another_username(account.id, &account.username).await?;
                "not_ours"
            }
            Err(error) => {
                tracing::warn!(%error, user = account.id.0, "no chat credentials");
                "failed"
            }
        };
        metrics::counter!("matchday_chat_logins_total", "outcome" => label).increment(1);
        outcome
    }

    /// Logs in with a device, in time, making the account first where we have not made it yet.
    async fn get_in(
        &self,
        homeserver: &Homeserver,
        account: &Account,
        device_id: &str,
        client: &str,
    ) -> Result<Credentials, ChatError> {
        let (name, shown) = (account.username.as_str(), if client.is_empty() { "Matchday" } else { client });
        // Who waits long for a place would have no time left to use it.
        let place = tokio::time::timeout(self.patience / 2, self.logins.acquire()).await;
        let Ok(Ok(_place)) = place else { return Err(ChatError::Unavailable) };
        let attempt = async {
            if !account.has_chat_account {
                self.make_account(homeserver, account).await?;
            }
            match homeserver.log_in(name, device_id, shown).await {
                // The homeserver was set up anew.
                Err(matrix_appservice::Error::NoSuchUser(_)) => {
                    self.make_account(homeserver, account).await?;
                    Ok(homeserver.log_in(name, device_id, shown).await?)
                }
                outcome => Ok(outcome?),
            }
        };
        tokio::time::timeout(self.patience, attempt).await.unwrap_or(Err(ChatError::Unavailable))
    }

    /// Makes the chat account. One that is there already is this account's only if it has no devices: then it was made
    /// by a call whose answer was lost, since no device is made before that answer. One with devices is somebody's who
    /// was there before us, or whom a restored database does not remember.
    pub(super) async fn make_account(&self, homeserver: &Homeserver, account: &Account) -> Result<(), ChatError> {
        let name = account.username.as_str();
        if homeserver.bot().is_ok_and(|bot| bot.localpart() == name) {
            return Err(ChatError::NotOurs);
        }
        if homeserver.register(name).await? == Registered::AlreadyThere && !homeserver.devices(name).await?.is_empty() {
            // Or somebody else here made it a moment ago. They noted that before they made a device.
            let now = self.accounts.find(account.id).await?;
            let is_ours = now.is_some_and(|now| now.username == account.username && now.has_chat_account);
            return if is_ours { Ok(()) } else { Err(ChatError::NotOurs) };
        }
        self.silence(homeserver, account).await?;
        self.accounts.note_chat_account(account.id, &account.username).await?;
        // Once more: workers pass by whoever has no chat account yet.
        match self.accounts.find(account.id).await? {
            Some(now) if now.is_silenced() && !account.is_silenced() => self.silence(homeserver, &now).await,
            _ => Ok(()),
        }
    }

    /// Suspends the chat account of somebody who may not speak.
    async fn silence(&self, homeserver: &Homeserver, account: &Account) -> Result<(), ChatError> {
        if self.can_suspend && account.is_silenced() {
            homeserver.set_suspended(account.username.as_str(), true).await?;
        }
        Ok(())
    }

    /// Looks once more after a device was made: one whose session ended, or whose user has another name by now, would
    /// be left behind.
    async fn settle(
        &self,
        homeserver: &Homeserver,
        account: &Account,
        session: SessionId,
        device_id: &str,
    ) -> Result<(), ChatError> {
        let renamed = self.accounts.find(account.id).await?.is_none_or(|now| now.username != account.username);
        let verdict = match self.sessions.device_state(account.id, session, device_id).await? {
            DeviceState::Current if !renamed => return Ok(()),
            DeviceState::SessionOver => ChatError::SessionOver,
            DeviceState::Current | DeviceState::Replaced => ChatError::Replaced,
        };
        homeserver.delete_device(account.username.as_str(), device_id).await?;
        Err(verdict)
    }
}
