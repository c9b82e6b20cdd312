//! Giving sessions their chat devices, and doing on the homeserver what happened here.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
pub use matrix_appservice::Credentials;
use matrix_appservice::{Homeserver, OwnedServerName, Registered, Settings};
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use url::Url;

use crate::{
    accounts::service::{Accounts, NAME_CHANGED, NameChanged, RENAMED, Renamed},
    ids::{SessionId, UserId},
    platform::{
        config,
        stream::{Delivery, Failure, Stream, WorkSpec},
    },
    sessions::service::{DEVICE_ENDED, DeviceEnded, Issued, SessionError, Sessions},
    usernames::Username,
};

/// How many logins this process sends to the homeserver at once. It works on few at a time; the rest would wait there
/// longer than anybody here waits for them.
const LOGINS_AT_ONCE: usize = 16;

/// Chat.
#[derive(Clone)]
pub struct Chat {
    homeserver: Option<Homeserver>,
    public_url: Option<Url>,
    sessions: Sessions,
    accounts: Accounts,
    patience: Duration,
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

impl Chat {
    /// Chat on the homeserver that the configuration names, if it names one.
    pub fn new(
        config: &config::Matrix,
        web: reqwest::Client,
        sessions: Sessions,
        accounts: Accounts,
    ) -> anyhow::Result<Self> {
        let homeserver = match (&config.homeserver_url, &config.server_name, &config.as_token) {
            (Some(url), Some(name), Some(token)) => {
                let name = OwnedServerName::try_from(name.as_str()).context("matrix.server_name")?;
                let settings =
                    Settings { deadline: config.timeout, ..Settings::new(url.clone(), name, token.inner().clone()) };
                Some(Homeserver::new(settings, web))
            }
            _ => None,
        };
        Ok(Self {
            homeserver,
            public_url: config.public_url.clone().or_else(|| config.homeserver_url.clone()),
            sessions,
            accounts,
            patience: config.timeout,
            logins: Arc::new(Semaphore::new(LOGINS_AT_ONCE)),
        })
    }

    /// Where chat clients find the homeserver.
    pub fn public_url(&self) -> Option<&Url> {
        self.public_url.as_ref()
    }

    /// The credentials of a session that was just issued. What goes wrong is logged and counted here: a login without
    /// chat is still a login.
    pub async fn admit(
        &self,
        user: UserId,
        username: &Username,
        is_new: bool,
        session: &Issued,
        client: &str,
    ) -> Option<Credentials> {
        let device_id = session.device_id.as_deref()?;
        self.log_in(user, session.id, username, device_id, is_new, client).await.ok()
    }

    /// New credentials for a session; those before are not good any more.
    pub async fn renew(&self, user: UserId, session: SessionId, username: &Username) -> Result<Credentials, ChatError> {
        if self.homeserver.is_none() {
            return Err(ChatError::None);
        }
        let device_id = self.sessions.renew_device(user, session).await?.ok_or(ChatError::SessionOver)?;
        self.log_in(user, session, username, &device_id, false, "").await
    }

    async fn log_in(
        &self,
        user: UserId,
        session: SessionId,
        username: &Username,
        device_id: &str,
        is_new: bool,
        client: &str,
    ) -> Result<Credentials, ChatError> {
        let Some(homeserver) = &self.homeserver else { return Err(ChatError::None) };
        let attempt = async {
            let _place = self.logins.acquire().await.map_err(|_| ChatError::Unavailable)?;
            get_in(homeserver, username, device_id, client, is_new).await.map_err(ChatError::from)
        };
        let began = std::time::Instant::now();
        let outcome = tokio::time::timeout(self.patience, attempt).await.unwrap_or(Err(ChatError::Unavailable));
        metrics::histogram!("matchday_chat_login_seconds").record(began.elapsed().as_secs_f64());
        let outcome = match outcome {
            // A session that ended while its device was being made would leave the device behind.
            Ok(credentials) => {
                if self.sessions.has_device(user, session, device_id).await? {
                    Ok(credentials)
                } else {
                    homeserver.delete_device(username.as_str(), device_id).await?;
                    Err(ChatError::SessionOver)
                }
            }
            Err(error) => Err(error),
        };
        let label = match &outcome {
            Ok(_) => "ok",
            Err(error) => {
                tracing::warn!(%error, user = user.0, "no chat credentials");
                "failed"
            }
        };
        metrics::counter!("matchday_chat_logins_total", "outcome" => label).increment(1);
        outcome
    }

    /// The work that other features leave for the homeserver, to be done by a worker.
    pub fn work() -> WorkSpec {
        WorkSpec {
            // A homeserver may be away for a day, and all of this must be done when it is back.
            attempts: 10_000,
            longest_pause: Duration::from_mins(1),
            ..WorkSpec::new("chat", Stream::Work, "work.chat.>")
        }
    }

    /// Does a piece of that work. Doing it twice changes nothing.
    pub async fn perform(&self, delivery: Delivery) -> Result<(), Failure> {
        let Some(homeserver) = &self.homeserver else {
            return Err(Failure::GiveUp(anyhow::anyhow!("there is no chat here any more")));
        };
        match delivery.subject.as_str() {
            DEVICE_ENDED => {
                let ended: DeviceEnded = read(&delivery)?;
                let Some(account) = self.account(ended.user_id).await? else { return Ok(()) };
                homeserver.delete_device(account.username.as_str(), &ended.device_id).await.map_err(failure)
            }
            RENAMED => {
                let renamed: Renamed = read(&delivery)?;
                // First there must be somewhere to go.
                homeserver.register(renamed.to.as_str()).await.map_err(failure)?;
                homeserver.deactivate(renamed.from.as_str(), false).await.map_err(failure)?;
                self.show_name(homeserver, renamed.user_id).await
            }
            NAME_CHANGED => {
                let changed: NameChanged = read(&delivery)?;
                self.show_name(homeserver, changed.user_id).await
            }
            other => Err(Failure::GiveUp(anyhow::anyhow!("nobody knows how to do {other}"))),
        }
    }

    /// Shows the person's name in chat, or the username where there is none.
    async fn show_name(&self, homeserver: &Homeserver, user: UserId) -> Result<(), Failure> {
        let Some(account) = self.account(user).await? else { return Ok(()) };
        let shown = account.name.as_deref().unwrap_or(account.username.as_str());
        match homeserver.set_display_name(account.username.as_str(), shown).await {
            // Nobody has been in chat under that name yet; the account is made when they come.
            Err(matrix_appservice::Error::NoSuchUser(_)) => {
                homeserver.register(account.username.as_str()).await.map_err(failure)?;
                homeserver.set_display_name(account.username.as_str(), shown).await.map_err(failure)
            }
            outcome => outcome.map_err(failure),
        }
    }

    async fn account(&self, user: UserId) -> Result<Option<crate::accounts::service::Account>, Failure> {
        self.accounts.find(user).await.map_err(|error| Failure::Retry { error: error.into(), after: None })
    }
}

/// Logs in with a device, making the account where it is missing: the first time, and after a time without chat.
async fn get_in(
    homeserver: &Homeserver,
    username: &Username,
    device_id: &str,
    client: &str,
    is_new: bool,
) -> Result<Credentials, matrix_appservice::Error> {
    let (name, shown) = (username.as_str(), if client.is_empty() { "Matchday" } else { client });
    if is_new && homeserver.register(name).await? == Registered::AlreadyThere {
        tracing::debug!("the chat account was there already");
    }
    match homeserver.log_in(name, device_id, shown).await {
        Err(matrix_appservice::Error::NoSuchUser(_)) => {
            homeserver.register(name).await?;
            homeserver.log_in(name, device_id, shown).await
        }
        outcome => outcome,
    }
}

fn read<T: DeserializeOwned>(delivery: &Delivery) -> Result<T, Failure> {
    serde_json::from_slice(&delivery.payload).map_err(|error| Failure::GiveUp(error.into()))
}

fn failure(error: matrix_appservice::Error) -> Failure {
    if error.is_worth_retrying() {
        Failure::Retry { error: error.into(), after: None }
    } else {
        Failure::GiveUp(error.into())
    }
}
