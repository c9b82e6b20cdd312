//! Replaces a user's cross-signing keys after a code proved the phone.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use matrix_appservice::{Error as MatrixError, Homeserver};
use platform::{
    Core,
    outbox::{self, Message},
    telemetry,
};
use web::{ClientNetwork, fields::Faults, ids::UserId};

use super::rules::NewKeys;
use crate::{
    chat::{
        accounts::service::{Chat, ChatError},
        messages::{KEYS_REPLACED, KeysReplaced},
    },
    identity::{
        accounts::service::{Account, Accounts},
        codes::{
            Code, Subject,
            service::{CheckError, ClaimedCode, Codes, CorrectCode, GuessPermit, RequestError, Sent},
        },
        phone::Phone,
        sms::templates::Language,
    },
};

/// Time for which no code is sent after the homeserver refused to replace keys without an interactive authentication. An
/// operator has to change its configuration first.
const REFUSED_FOR: Duration = Duration::from_mins(10);

/// Resets chat keys.
#[derive(Clone)]
pub struct ChatKeys {
    core: Core,
    accounts: Accounts,
    codes: Codes,
    chat: Chat,
    /// Unix time until which the homeserver is assumed to refuse.
    refused_until: Arc<AtomicI64>,
}

/// Failure to send a code or to replace keys.
#[derive(Debug, thiserror::Error)]
pub enum ResetError {
    /// The account was deleted.
    #[error("the account does not exist")]
    NoSuchAccount,
    /// The account has no phone to send a code to.
    #[error("the account has no phone")]
    NoPhone,
    /// Chat is disabled, or the homeserver does not let the service replace keys.
    #[error("the homeserver does not let the service replace keys")]
    NotConfigured,
    /// Keys that are not valid, by field.
    #[error("the keys are not valid")]
    Keys(Faults),
    /// The code could not be sent.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The code was not accepted.
    #[error(transparent)]
    Code(#[from] CheckError),
    /// The homeserver did not replace the keys.
    #[error(transparent)]
    Chat(#[from] ChatError),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

impl ResetError {
    fn label(&self) -> &'static str {
        match self {
            Self::NotConfigured => "not_configured",
            Self::Keys(_) => "invalid_keys",
            Self::Code(_) => "invalid_code",
            Self::Chat(ChatError::Muted) => "muted",
            Self::Chat(_) => "chat_unavailable",
            Self::NoSuchAccount | Self::NoPhone | Self::Request(_) | Self::Database(_) | Self::Json(_) => "failed",
        }
    }
}

impl From<MatrixError> for ResetError {
    fn from(error: MatrixError) -> Self {
        match error {
            MatrixError::InteractiveAuthRequired(_) => Self::NotConfigured,
            MatrixError::Suspended(_) => Self::Chat(ChatError::Muted),
            error => Self::Chat(error.into()),
        }
    }
}

impl ChatKeys {
    pub fn new(core: &Core, accounts: Accounts, codes: Codes, chat: Chat) -> Self {
        Self { core: core.clone(), accounts, codes, chat, refused_until: Arc::default() }
    }

    /// Sends a code for a reset to the account's phone.
    pub async fn initiate(
        &self,
        user: UserId,
        network: ClientNetwork,
        language: Language,
    ) -> Result<(Phone, Sent), ResetError> {
        self.homeserver()?;
        let (_, phone) = self.account(user).await?;
        let sent = self.codes.request(&Subject::KeyReset(user), &phone, network, language).await?;
        Ok((phone, sent))
    }

    /// Replaces the user's keys if they are valid and the code is right. When this returns, the homeserver has the keys.
    /// After an error, the code is still valid unless it was wrong.
    pub(super) async fn reset(
        &self,
        user: UserId,
        code: &Code,
        keys: NewKeys,
        permit: GuessPermit,
        language: Language,
    ) -> Result<(), ResetError> {
        let outcome = self.try_reset(user, code, keys, permit, language).await;
        let label = outcome.as_ref().map_or_else(ResetError::label, |()| "ok");
        metrics::counter!("matchday_chat_key_resets_total", "outcome" => label).increment(1);
        outcome
    }

    async fn try_reset(
        &self,
        user: UserId,
        code: &Code,
        keys: NewKeys,
        permit: GuessPermit,
        language: Language,
    ) -> Result<(), ResetError> {
        let homeserver = self.homeserver()?;
        let (account, phone) = self.account(user).await?;
        let user_id = homeserver.user_id(account.username.as_str())?;
        require_none(keys.faults(user_id.as_str()))?;
        // Checked before the guess is counted, because apps retry while chat is unavailable.
        if homeserver.is_breaker_open() {
            return Err(ChatError::Unavailable.into());
        }
        let subject = Subject::KeyReset(user);
        let right = self.codes.check(&subject, &phone, code, permit).await?;
        let malformed = keys.malformed();
        if !malformed.is_empty() {
            self.codes.give_back(right).await?;
            return Err(ResetError::Keys(malformed));
        }
        // Runs in a separate task: a client disconnect must not leave a code consumed without an upload.
        let (service, homeserver) = (self.clone(), homeserver.clone());
        let task = async move { service.claim_and_upload(&homeserver, user, right, &keys, language).await };
        tokio::spawn(telemetry::in_this_request(task)).await.unwrap_or(Err(ChatError::Unavailable.into()))
    }

    /// Consumes the code, then uploads the keys. Of two requests with one code, one consumes it. If the upload fails, the
    /// code becomes valid again. If this process dies in between, the code stays consumed, so it never replaces keys
    /// twice. No transaction is open during the upload.
    async fn claim_and_upload(
        &self,
        homeserver: &Homeserver,
        user: UserId,
        right: CorrectCode,
        keys: &NewKeys,
        language: Language,
    ) -> Result<(), ResetError> {
        let subject = Subject::KeyReset(user);
        let claimed = self.codes.claim(right, &subject).await?.ok_or(CheckError::InvalidCode)?;
        if let Err(error) = self.upload(homeserver, user, keys).await {
            self.restore(user, claimed).await;
            return Err(error);
        }
        tracing::info!(user = user.0, "chat keys replaced");
        if let Err(error) = self.enqueue_notice(user, language).await {
            // The keys are replaced, so the request has succeeded.
            tracing::error!(%error, user = user.0, "notice of replaced chat keys was not queued");
        }
        Ok(())
    }

    async fn upload(&self, homeserver: &Homeserver, user: UserId, keys: &NewKeys) -> Result<(), ResetError> {
        let upload = keys.to_upload()?;
        let account = self.chat.account(user).await?;
        let name = account.username.as_str();
        match homeserver.upload_signing_keys(name, &upload).await {
            Ok(()) => Ok(()),
            Err(MatrixError::Refused { status: 400, errcode, message }) => {
                tracing::info!(user = user.0, errcode, reason = message, "homeserver refused chat keys");
                Err(ResetError::Keys(keys.refused()))
            }
            Err(error @ MatrixError::InteractiveAuthRequired(_)) => {
                tracing::error!(%error, "homeserver does not let this service replace chat keys");
                let until = self.core.clock.now() + REFUSED_FOR;
                self.refused_until.store(until.unix_timestamp(), Ordering::Relaxed);
                Err(error.into())
            }
            // The homeserver may have stored the keys although the response was lost.
            Err(error) if error.means_server_unavailable() => match homeserver.signing_keys(name).await {
                Ok(Some(stored)) if keys.are(&stored) => Ok(()),
                _ => Err(error.into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// Makes the code valid again. If that fails, the user has to request another one.
    async fn restore(&self, user: UserId, claimed: ClaimedCode) {
        if let Err(error) = self.codes.restore(claimed).await {
            tracing::warn!(%error, user = user.0, "code for replacing chat keys was not restored");
        }
    }

    /// Queues the text message about the replaced keys, so that it is sent even if all SMS providers are down now.
    async fn enqueue_notice(&self, user: UserId, language: Language) -> Result<(), ResetError> {
        let message = Message::new(KEYS_REPLACED, format!("user:{user}"), &KeysReplaced { user_id: user, language })?;
        let mut connection = self.core.db.acquire().await?;
        outbox::enqueue(&mut connection, &[message]).await?;
        self.core.outbox_written.notify_one();
        Ok(())
    }

    fn homeserver(&self) -> Result<&Homeserver, ResetError> {
        let is_refused = self.core.clock.now().unix_timestamp() < self.refused_until.load(Ordering::Relaxed);
        self.chat.homeserver_for_keys().filter(|_| !is_refused).ok_or(ResetError::NotConfigured)
    }

    async fn account(&self, user: UserId) -> Result<(Account, Phone), ResetError> {
        let account = self.accounts.find(user).await?.ok_or(ResetError::NoSuchAccount)?;
        let phone = account.phone.clone().ok_or(ResetError::NoPhone)?;
        Ok((account, phone))
    }
}

fn require_none(faults: Faults) -> Result<(), ResetError> {
    if faults.is_empty() { Ok(()) } else { Err(ResetError::Keys(faults)) }
}
