//! Issues chat devices to sessions and creates chat accounts on the homeserver.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use futures_util::future::BoxFuture;
use matrix_appservice::{ChatServer, CredentialIssuer, Homeserver, OwnedServerName, Purpose, Registered, Settings};
use platform::{
    Core,
    budget::{Bounds, Budget, Call, Share},
    rate_limit::{Decision, Limit, RateLimiter},
};
use tokio::sync::Semaphore;
use url::Url;
use web::ids::{SessionId, UserId};

use super::settings::Matrix;
use crate::identity::{
    accounts::service::{Account, Accounts},
    login::hooks::ChatAccess,
    sessions::service::{DeviceState, Issued, SessionError, Sessions},
};
pub use matrix_appservice::Credentials;

/// Limit for concurrent logins that this process sends to the homeserver. The homeserver handles few at a time; more
/// would wait there longer than our callers wait.
const LOGINS_AT_ONCE: usize = 16;

/// Bounds of the concurrent calls that all processes together send to the homeserver for users who wait. With the least
/// limit, three joins are in progress: the homeserver has the next one when it finishes one.
pub const BUDGET: Bounds = Bounds {
    first: 8,
    least: 5,
    most: 256,
    alone: 4,
    forgotten_after: Duration::from_secs(30),
    overloaded_for: Duration::from_secs(10),
};

/// Latency of a join or a message up to which the homeserver gets more of them. Callers get a response within a second,
/// so half of that is left for the queue. A homeserver that adds nine members a second reaches it with five joins.
const ROOM_TARGET: Duration = Duration::from_millis(500);

/// The calls of joins, messages and logins. None may use the whole budget, so that a rush of one kind does not stop the
/// others.
struct Shares {
    joins: Share,
    messages: Share,
    logins: Share,
}

impl Shares {
    const fn new() -> Self {
        Self {
            joins: Share::new("join", 60, ROOM_TARGET),
            messages: Share::new("message", 80, ROOM_TARGET),
            logins: Share::new("login", 60, Duration::from_millis(1_500)),
        }
    }
}

/// Deadline of a join. No caller waits for it, and the homeserver performs it even if we stop waiting.
const JOIN_DEADLINE: Duration = Duration::from_secs(12);

/// How long a login waits for a call while the homeserver is overloaded. Afterwards it has no chat credentials; the app
/// requests them later.
const LOGIN_PATIENCE: Duration = Duration::from_millis(100);

/// Rate limit for new credentials per user.
const RENEWALS: Limit = Limit { name: "chat_credentials", burst: 10, every: Duration::from_secs(30) };

/// Service for chat accounts and credentials.
#[derive(Clone)]
pub struct Chat {
    for_logins: Option<ChatServer>,
    for_rooms: Option<Homeserver>,
    for_joins: Option<Homeserver>,
    for_keys: Option<Homeserver>,
    for_background: Option<ChatServer>,
    budget: Budget,
    shares: Arc<Shares>,
    public_url: Option<Url>,
    sessions: Sessions,
    accounts: Accounts,
    limiter: RateLimiter,
    patience: Duration,
    /// Whether users can be suspended, and so keep their devices while they are muted.
    can_suspend: bool,
    logins: Arc<Semaphore>,
}

/// Reason why no credentials were issued.
#[derive(Debug, thiserror::Error)]
pub enum ChatError {
    #[error("chat is disabled")]
    None,
    /// The homeserver did not respond in time.
    #[error("the homeserver is unavailable")]
    Unavailable,
    /// The homeserver has as many calls as it can handle.
    #[error("the homeserver is busy")]
    Busy,
    /// A call to the homeserver failed.
    #[error(transparent)]
    Homeserver(#[from] matrix_appservice::Error),
    /// The homeserver's account with this username was not created by this service.
    #[error("the chat account was not created by this service")]
    ForeignAccount,
    /// The user is muted, and the credentials would let them write.
    #[error("the user is muted")]
    Muted,
    /// A concurrent request obtained newer credentials.
    #[error("the session has newer credentials")]
    Replaced,
    /// The session ended during the request.
    #[error("the session has ended")]
    SessionEnded,
    /// The session could not be read or written.
    #[error(transparent)]
    Session(#[from] SessionError),
}

impl ChatError {
    /// Whether the homeserver failed.
    fn means_outage(&self) -> bool {
        match self {
            Self::Unavailable => true,
            Self::Homeserver(error) => error.means_server_unavailable(),
            _ => false,
        }
    }
}

impl From<sqlx::Error> for ChatError {
    fn from(error: sqlx::Error) -> Self {
        Self::Session(error.into())
    }
}

/// Creates the client for the configured homeserver, which issues credentials with the login of the application service.
/// Returns `None` if chat is disabled.
pub fn homeserver(config: &Matrix, web: reqwest::Client) -> anyhow::Result<Option<ChatServer>> {
    let (Some(url), Some(name), Some(token)) = (&config.homeserver_url, &config.server_name, &config.as_token) else {
        return Ok(None);
    };
    let name = OwnedServerName::try_from(name.as_str()).context("matrix.server_name")?;
    // A call ends before its caller stops waiting. Otherwise the circuit breaker would not count slow calls.
    let settings = Settings {
        deadline: config.timeout * 3 / 4,
        bot: config.bot.clone(),
        admin_token: config.admin_token.as_ref().map(|token| token.inner().clone()),
        ..Settings::new(url.clone(), name, token.inner().clone())
    };
    Ok(Some(ChatServer::new(Homeserver::new(settings, web))))
}

impl ChatAccess for Chat {
    fn admit<'a>(
        &'a self,
        account: &'a Account,
        session: &'a Issued,
        client: &'a str,
    ) -> BoxFuture<'a, Option<Credentials>> {
        Box::pin(self.admit_session(account, session, client))
    }
}

impl Chat {
    /// Creates the service with a client from [`homeserver`].
    pub fn new(
        core: &Core,
        config: &Matrix,
        server: Option<&ChatServer>,
        sessions: Sessions,
        accounts: Accounts,
        budget: Budget,
    ) -> Self {
        let with = |purpose| server.map(|server| server.for_purpose(purpose));
        let for_rooms = with(Purpose::Rooms).map(|server| server.homeserver);
        Self {
            for_logins: with(Purpose::Login),
            for_joins: for_rooms.as_ref().map(|homeserver| homeserver.with_deadline(JOIN_DEADLINE)),
            for_rooms,
            for_keys: with(Purpose::Keys).map(|server| server.homeserver),
            for_background: with(Purpose::Background),
            budget,
            shares: Arc::new(Shares::new()),
            public_url: config.public_url.clone().or_else(|| config.homeserver_url.clone()),
            sessions,
            accounts,
            limiter: core.limits.clone(),
            patience: config.timeout,
            can_suspend: config.admin_token.is_some(),
            logins: Arc::new(Semaphore::new(LOGINS_AT_ONCE)),
        }
    }

    /// Timeout of a call to the homeserver.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// Returns the client for background work, or `None` if chat is disabled.
    pub fn homeserver(&self) -> Option<&Homeserver> {
        self.for_background.as_ref().map(|server| &server.homeserver)
    }

    /// Returns the homeserver and the issuer of credentials for background work, or `None` if chat is disabled.
    pub fn server(&self) -> Option<&ChatServer> {
        self.for_background.as_ref()
    }

    /// Returns the client for keys that users upload, or `None` if chat is disabled.
    pub fn homeserver_for_keys(&self) -> Option<&Homeserver> {
        self.for_keys.as_ref()
    }

    /// Returns the client for requests of users about rooms, or `None` if chat is disabled.
    pub fn homeserver_for_rooms(&self) -> Option<&Homeserver> {
        self.for_rooms.as_ref()
    }

    /// Returns the client for joins, which has a longer deadline, or `None` if chat is disabled.
    pub fn homeserver_for_joins(&self) -> Option<&Homeserver> {
        self.for_joins.as_ref()
    }

    /// Takes a join from the budget for calls to the homeserver, which all processes share. Returns `None` if it is used up
    /// for longer than `patience`.
    pub async fn take_join_call(&self, patience: Duration) -> Option<Call> {
        self.budget.take(&self.shares.joins, patience, patience).await
    }

    /// Like [`Self::take_join_call`], for a message.
    pub async fn take_message_call(&self, patience: Duration) -> Option<Call> {
        self.budget.take(&self.shares.messages, patience, patience).await
    }

    /// Whether the homeserver was slow to respond to users recently. Work that can wait should wait.
    pub async fn is_overloaded(&self) -> bool {
        self.budget.is_overloaded().await
    }

    /// Returns the user's account, after creating its chat account if it has none yet.
    pub async fn account(&self, user: UserId) -> Result<Account, ChatError> {
        let server = self.for_logins.as_ref().ok_or(ChatError::None)?;
        let account = self.accounts.find(user).await?.ok_or(ChatError::SessionEnded)?;
        if !account.has_chat_account {
            if server.issuer.is_breaker_open() {
                return Err(ChatError::Unavailable);
            }
            let patience = self.patience / 2;
            let call = self.budget.take(&self.shares.logins, patience, patience).await.ok_or(ChatError::Busy)?;
            let made = self.make_account(server, &account).await;
            call.finish(!made.as_ref().is_err_and(ChatError::means_outage)).await;
            made?;
        }
        Ok(account)
    }

    /// URL at which chat clients reach the homeserver.
    pub fn public_url(&self) -> Option<&Url> {
        self.public_url.as_ref()
    }

    /// Creates credentials for a new session. Errors are only logged and counted, because a login succeeds without
    /// chat.
    async fn admit_session(&self, account: &Account, session: &Issued, client: &str) -> Option<Credentials> {
        let device_id = session.device_id.as_deref().filter(|_| self.may_have_device(account))?;
        self.log_in(account, session.id, device_id, client).await.ok()
    }

    /// Creates new credentials for a session and revokes the previous ones.
    pub async fn renew(&self, account: &Account, session: SessionId) -> Result<Credentials, ChatError> {
        let Some(server) = &self.for_logins else { return Err(ChatError::None) };
        if !self.may_have_device(account) {
            return Err(ChatError::Muted);
        }
        // Checked before any write, because apps retry often while chat is unavailable.
        if server.issuer.is_breaker_open() {
            return Err(ChatError::Unavailable);
        }
        let device_id = self.sessions.renew_device(account.id, session).await?.ok_or(ChatError::SessionEnded)?;
        self.log_in(account, session, &device_id, "").await
    }

    /// If users cannot be suspended, a muted user must not have a device.
    fn may_have_device(&self, account: &Account) -> bool {
        self.can_suspend || !account.is_silenced()
    }

    /// Charges one renewal to the user's rate limit. Each renewal creates a device, and concurrent logins are limited.
    pub async fn permit_renewal(&self, user: UserId) -> Decision {
        self.limiter.take(RENEWALS, &user.to_string()).await
    }

    /// Refunds a renewal that failed, so that retries while chat is unavailable are free.
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
        let Some(server) = &self.for_logins else { return Err(ChatError::None) };
        let began = std::time::Instant::now();
        let outcome = self.create_device(server, account, device_id, client).await;
        metrics::histogram!("matchday_chat_login_seconds").record(began.elapsed().as_secs_f64());
        let outcome = match outcome {
            Ok(credentials) => self.settle(&*server.issuer, account, session, device_id).await.map(|()| credentials),
            Err(error) => Err(error),
        };
        let label = match &outcome {
            Ok(_) => "ok",
            Err(ChatError::ForeignAccount) => {
                tracing::error!(
                    user = account.id.0,
                    "chat account was not created by this service; the user must choose another username"
                );
                self.accounts.allow_another_username(account.id, &account.username).await?;
                "not_ours"
            }
            // Expected during a rush: the app requests credentials later.
            Err(ChatError::Busy) => "busy",
            Err(error) => {
                tracing::warn!(%error, user = account.id.0, "chat login failed");
                "failed"
            }
        };
        metrics::counter!("matchday_chat_logins_total", "outcome" => label).increment(1);
        outcome
    }

    /// Logs in with a device within the time limit, and creates the chat account first if necessary.
    async fn create_device(
        &self,
        server: &ChatServer,
        account: &Account,
        device_id: &str,
        client: &str,
    ) -> Result<Credentials, ChatError> {
        let (name, shown) = (account.username.as_str(), if client.is_empty() { "Matchday" } else { client });
        // A caller that waits longer for a slot would have no time left to use it.
        let (began, longest) = (tokio::time::Instant::now(), self.patience / 2);
        let slot = tokio::time::timeout(longest, self.logins.acquire()).await;
        let Ok(Ok(_slot)) = slot else { return Err(ChatError::Unavailable) };
        let left = longest.saturating_sub(began.elapsed());
        let call = self.budget.take(&self.shares.logins, left, LOGIN_PATIENCE).await.ok_or(ChatError::Busy)?;
        let attempt = async {
            if !account.has_chat_account {
                self.make_account(server, account).await?;
            }
            match server.issuer.issue(name, device_id, shown).await {
                // The homeserver was recreated and has lost the account.
                Err(matrix_appservice::Error::NoSuchUser(_)) => {
                    self.make_account(server, account).await?;
                    Ok(server.issuer.issue(name, device_id, shown).await?)
                }
                outcome => Ok(outcome?),
            }
        };
        let outcome = tokio::time::timeout(self.patience, attempt).await.unwrap_or(Err(ChatError::Unavailable));
        call.finish(!outcome.as_ref().is_err_and(ChatError::means_outage)).await;
        outcome
    }

    /// Creates the chat account. An existing account is ours only if it has no devices: an earlier call then created it
    /// and lost the response, since no device is created before that response. An account with devices existed before
    /// this service, or belongs to a user that a restored database has lost.
    pub(super) async fn make_account(&self, server: &ChatServer, account: &Account) -> Result<(), ChatError> {
        let ChatServer { homeserver, issuer } = server;
        let name = account.username.as_str();
        if homeserver.bot().is_ok_and(|bot| bot.localpart() == name) {
            return Err(ChatError::ForeignAccount);
        }
        if issuer.register(name).await? == Registered::AlreadyExists && !issuer.devices(name).await?.is_empty() {
            // A concurrent call may have created the account. It records that before it creates a device.
            let now = self.accounts.find(account.id).await?;
            let is_ours = now.is_some_and(|now| now.username == account.username && now.has_chat_account);
            return if is_ours { Ok(()) } else { Err(ChatError::ForeignAccount) };
        }
        self.silence(homeserver, account).await?;
        self.accounts.note_chat_account(account.id, &account.username).await?;
        // Check again: workers skip users without a chat account, so a restriction since the first check was not
        // applied.
        match self.accounts.find(account.id).await? {
            Some(now) if now.is_silenced() && !account.is_silenced() => self.silence(homeserver, &now).await,
            _ => Ok(()),
        }
    }

    /// Suspends the chat account if the user is banned or muted.
    async fn silence(&self, homeserver: &Homeserver, account: &Account) -> Result<(), ChatError> {
        if self.can_suspend && account.is_silenced() {
            homeserver.set_suspended(account.username.as_str(), true).await?;
        }
        Ok(())
    }

    /// Checks the session and the username again after a device was created. If the session ended or the user was
    /// renamed in the meantime, the device would remain, so it is deleted.
    async fn settle(
        &self,
        issuer: &dyn CredentialIssuer,
        account: &Account,
        session: SessionId,
        device_id: &str,
    ) -> Result<(), ChatError> {
        let renamed = self.accounts.find(account.id).await?.is_none_or(|now| now.username != account.username);
        let verdict = match self.sessions.device_state(account.id, session, device_id).await? {
            DeviceState::Current if !renamed => return Ok(()),
            DeviceState::SessionEnded => ChatError::SessionEnded,
            DeviceState::Current | DeviceState::Replaced => ChatError::Replaced,
        };
        issuer.revoke(account.username.as_str(), device_id).await?;
        Err(verdict)
    }
}
