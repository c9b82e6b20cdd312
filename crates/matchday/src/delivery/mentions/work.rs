//! Sets and removes pushers on the homeserver.

use std::time::Duration;

use matrix_appservice::Error as MatrixError;
use platform::{
    database, random,
    stream::{Delivery, Failure, Stream, WorkSpec},
};
use time::OffsetDateTime;
use url::Url;
use web::ids::UserId;

use super::{
    rules::PushKey,
    service::Mentions,
    store::{self, Pusher},
};
use crate::{
    chat::{
        accounts::service::ChatError,
        messages::{REACH_CHANGED, ReachChanged},
    },
    delivery::notifications::kinds::Kind,
};

/// Time after which a pusher is set again, because the homeserver may have lost it, as after a restore.
const CONFIRMED_FOR: time::Duration = time::Duration::days(1);

impl Mentions {
    /// Describes the queue of users whose devices or preferences changed.
    pub fn work() -> WorkSpec {
        WorkSpec {
            longest_pause: Duration::from_mins(1),
            // A job keeps a connection to the database while it calls the homeserver.
            at_once: 2,
            ..WorkSpec::new("pushers", Stream::Work, REACH_CHANGED)
        }
    }

    /// Sets or removes the pusher of a user. The current devices and preferences decide, not the message, so the order of
    /// messages does not matter.
    pub async fn perform(&self, delivery: Delivery) -> Result<(), Failure> {
        let ReachChanged { user_id } =
            serde_json::from_slice(&delivery.payload).map_err(|error| Failure::GiveUp(error.into()))?;
        self.adjust_pusher(user_id).await
    }

    async fn adjust_pusher(&self, user: UserId) -> Result<(), Failure> {
        let inner = &*self.inner;
        let (Some(homeserver), Some(gateway)) = (inner.chat.homeserver(), &inner.gateway) else { return Ok(()) };
        let mut tx = database::begin(&inner.db).await.map_err(Failure::retry)?;
        store::lock(&mut tx, user).await.map_err(Failure::retry)?;
        let pusher = store::pusher(&mut *tx, user).await.map_err(Failure::retry)?;
        let secret = pusher.as_ref().and_then(|pusher| pusher.secret.as_slice().try_into().ok());
        let now = inner.clock.now();
        if inner.notifications.reaches(user, Kind::Mention).await.map_err(Failure::retry)? {
            let account = match inner.chat.account(user).await {
                Ok(account) => account,
                // The account was deleted, or its chat account belongs to another party.
                Err(ChatError::SessionEnded | ChatError::ForeignAccount) => return Ok(()),
                Err(error) => return Err(Failure::retry(error)),
            };
            if pusher.is_some_and(|pusher| pusher.is_current(account.username.as_str(), gateway, now)) {
                return Ok(());
            }
            let key = PushKey { user, secret: secret.unwrap_or_else(|| random::bytes(&*inner.random)) };
            self.begin_change(key, now).await?;
            homeserver.set_pusher(account.username.as_str(), &key.to_text(), gateway).await.map_err(failure)?;
            let confirmed = (account.username.as_str(), gateway.as_str());
            store::confirm(&mut *tx, user, confirmed, now).await.map_err(Failure::retry)?;
        } else if let Some(secret) = secret {
            if let Some(account) = inner.accounts.find(user).await.map_err(Failure::retry)? {
                let key = PushKey { user, secret };
                self.begin_change(key, now).await?;
                homeserver.remove_pusher(account.username.as_str(), &key.to_text()).await.map_err(failure)?;
            }
            store::delete(&mut *tx, user).await.map_err(Failure::retry)?;
        }
        tx.commit().await.map_err(Failure::retry)
    }

    /// Stores the key before the homeserver is called, and outside of the transaction: a report must find it, and if the
    /// call is interrupted, the next change must call the homeserver again.
    async fn begin_change(&self, key: PushKey, now: OffsetDateTime) -> Result<(), Failure> {
        store::begin_change(&self.inner.db, key.user, &key.secret, now).await.map_err(Failure::retry)
    }
}

impl Pusher {
    /// Whether the homeserver has this pusher. Apps register their device at each start, and a million of them start before
    /// a final: the homeserver need not hear of each.
    fn is_current(&self, username: &str, gateway: &Url, now: OffsetDateTime) -> bool {
        self.username.as_deref() == Some(username)
            && self.gateway.as_deref() == Some(gateway.as_str())
            && self.set_at.is_some_and(|set_at| now - set_at < CONFIRMED_FOR)
    }
}

fn failure(error: MatrixError) -> Failure {
    if error.is_worth_retrying() { Failure::retry(error) } else { Failure::GiveUp(error.into()) }
}
