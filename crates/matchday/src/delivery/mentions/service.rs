//! Receives reports of the homeserver.

use std::{sync::Arc, time::Duration};

use matrix_appservice::{Homeserver, UserId as MatrixUserId};
use platform::{
    Core,
    clock::Clock,
    random::Random,
    rate_limit::{Limit, RateLimiter},
};
use sqlx::PgPool;
use subtle::ConstantTimeEq as _;
use url::Url;
use web::ids::UserId;

use super::{
    NOTIFY,
    rules::{PushKey, Reported},
    store,
};
use crate::{
    chat::accounts::service::Chat,
    delivery::notifications::{alerts::Mention, service::Notifications, work::ReminderError},
    identity::accounts::{self, ChatProfile, service::Accounts},
};

/// Notifications of one sender, of all users and in all rooms.
const OF_SENDER: Limit = Limit { name: "mentions", burst: 30, every: Duration::from_mins(2) };
/// Notifications of one sender to one user in one room.
const TO_USER: Limit = Limit { name: "mentions_to_user", burst: 1, every: Duration::from_mins(5) };

/// Notifies users of mentions. Cheap to clone.
#[derive(Clone)]
pub struct Mentions {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) db: PgPool,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) random: Arc<dyn Random>,
    limits: RateLimiter,
    pub(super) chat: Chat,
    pub(super) accounts: Accounts,
    pub(super) notifications: Notifications,
    /// URL of the push gateway for the homeserver; none if mentions are not reported.
    pub(super) gateway: Option<Url>,
}

impl Mentions {
    /// `private_url` is the URL at which the homeserver reaches the private listener.
    pub fn new(
        core: &Core,
        chat: Chat,
        accounts: Accounts,
        notifications: Notifications,
        private_url: Option<Url>,
    ) -> Self {
        let gateway = private_url.map(|mut url| {
            url.set_path(NOTIFY);
            url
        });
        let Core { db, clock, random, limits, .. } = core.clone();
        Self { inner: Arc::new(Inner { db, clock, random, limits, chat, accounts, notifications, gateway }) }
    }

    /// Queues a notification for each user whom an event highlights. Returns the keys that are unknown, whose pushers the
    /// homeserver deletes.
    pub(super) async fn receive(&self, reported: Reported) -> Result<Vec<String>, ReminderError> {
        let (mut rejected, mut highlighted) = (Vec::new(), Vec::new());
        for pusher in &reported.devices {
            match self.user_of(&pusher.pushkey).await? {
                None => rejected.push(pusher.pushkey.clone()),
                Some(user) if pusher.tweaks.highlight => highlighted.push(user),
                Some(_) => {}
            }
        }
        let mentions_too_many = reported.mentions_too_many();
        // Without an event, only the number of unread messages changed.
        let (Some(event_id), Some(room_id), Some(sender)) = (reported.event_id, reported.room_id, reported.sender)
        else {
            return Ok(rejected);
        };
        if highlighted.is_empty() || mentions_too_many {
            return Ok(rejected);
        }
        let sender_id = match self.profile(&sender).await? {
            // Deleted users are banned too.
            Some(profile) if profile.is_banned || profile.is_muted => return Ok(rejected),
            Some(profile) => profile.id,
            None => None,
        };
        for user_id in highlighted {
            let pair = format!("{sender} {user_id} {room_id}");
            if !self.take(TO_USER, &pair).await {
                continue;
            }
            if !self.take(OF_SENDER, &sender).await {
                self.inner.limits.untake(TO_USER, &pair).await;
                continue;
            }
            let mention = Mention {
                user_id,
                room_id: room_id.clone(),
                revision: event_id.clone(),
                room: reported.room_name.clone(),
                sender_id,
                sender: sender.clone(),
                // The homeserver reports a message when it is sent, but not its time.
                sent_at: self.inner.clock.now(),
            };
            if let Err(error) = self.inner.notifications.notify(&mention).await {
                // The homeserver reports the message again.
                self.inner.limits.untake(TO_USER, &pair).await;
                self.inner.limits.untake(OF_SENDER, &sender).await;
                return Err(error);
            }
        }
        Ok(rejected)
    }

    async fn take(&self, limit: Limit, key: &str) -> bool {
        self.inner.limits.take(limit, key).await.allowed
    }

    /// Returns the user whose pusher has this key.
    async fn user_of(&self, key: &str) -> sqlx::Result<Option<UserId>> {
        let Some(key) = PushKey::parse(key) else { return Ok(None) };
        let secret = store::secret(&self.inner.db, key.user).await?;
        let is_known = secret.is_some_and(|secret| bool::from(secret.ct_eq(&key.secret)));
        Ok(is_known.then_some(key.user))
    }

    /// Returns the account of a sender who is or was a user of this service.
    async fn profile(&self, matrix_id: &str) -> sqlx::Result<Option<ChatProfile>> {
        let Ok(sender) = <&MatrixUserId>::try_from(matrix_id) else { return Ok(None) };
        let is_own = |homeserver: &Homeserver| homeserver.user_id(sender.localpart()).is_ok_and(|own| own == sender);
        if !self.inner.chat.homeserver().is_some_and(is_own) {
            return Ok(None);
        }
        let mut connection = self.inner.db.acquire().await?;
        let now = self.inner.clock.now();
        Ok(accounts::chat_profiles(&mut connection, &[sender.localpart()], now).await?.remove(sender.localpart()))
    }
}
