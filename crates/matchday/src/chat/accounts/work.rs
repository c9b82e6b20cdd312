//! What other features leave to be done in chat, by a worker.

use std::time::Duration;

use matrix_appservice::{Error as MatrixError, Homeserver};
use platform::stream::{Delivery, Failure, Stream, WorkSpec};
use serde::de::DeserializeOwned;
use sqlx::PgPool;
use web::ids::UserId;

use super::{
    service::{Chat, ChatError},
    store,
};
use crate::{
    chat::{
        blocks,
        messages::{IGNORED, Ignored},
        rooms::service::{RoomError, Rooms},
    },
    identity::{
        accounts::{
            restrictions::{RESTRICTED, Restricted},
            service::{Account, Accounts, NAME_CHANGED, NameChanged, RENAMED, Renamed},
        },
        sessions::service::{DEVICE_ENDED, DeviceEnded},
    },
};

/// Does that work.
#[derive(Clone)]
pub struct ChatWork {
    /// Where it stands what is to be so.
    pub db: PgPool,
    /// The way in.
    pub chat: Chat,
    /// Where everybody is.
    pub rooms: Rooms,
    /// Who everybody is.
    pub accounts: Accounts,
}

impl ChatWork {
    /// Which work it is, and how patiently it is done.
    pub fn spec() -> WorkSpec {
        WorkSpec {
            // A homeserver may be away for a day, and all of this must be done when it is back.
            attempts: 10_000,
            longest_pause: Duration::from_mins(1),
            ..WorkSpec::new("chat", Stream::Work, "work.chat.>")
        }
    }

    /// Does a piece of it. Doing it twice changes nothing.
    pub async fn perform(&self, delivery: Delivery) -> Result<(), Failure> {
        // Without chat there is nothing to be done in it.
        let Some(homeserver) = self.chat.homeserver() else { return Ok(()) };
        match delivery.subject.as_str() {
            DEVICE_ENDED => {
                let ended: DeviceEnded = read(&delivery)?;
                let Some(account) = self.account(ended.user_id).await? else { return Ok(()) };
                homeserver.delete_device(account.username.as_str(), &ended.device_id).await.map_err(failure)
            }
            RENAMED => self.rename(homeserver, &read(&delivery)?).await,
            NAME_CHANGED => {
                let changed: NameChanged = read(&delivery)?;
                self.show_name(homeserver, changed.user_id).await
            }
            RESTRICTED => {
                let restricted: Restricted = read(&delivery)?;
                self.restrict(homeserver, restricted.user_id).await
            }
            IGNORED => self.ignore(homeserver, &read(&delivery)?).await,
            other => Err(Failure::GiveUp(anyhow::anyhow!("nobody knows how to do {other}"))),
        }
    }

    /// Moves somebody to the chat account of their new name: it is made, joins the rooms, and the old one ends.
    async fn rename(&self, homeserver: &Homeserver, renamed: &Renamed) -> Result<(), Failure> {
        // First there must be somewhere to go. Where there can be none, the old devices must end all the same.
        match self.chat.account(renamed.user_id).await {
            Ok(account) => {
                let mut followed = Ok(());
                // Whoever is banned is in no room, by whatever name.
                if account.banned_at.is_none() {
                    if account.muted_at.is_some() {
                        // Whoever is suspended joins nothing.
                        self.suspend(homeserver, account.username.as_str(), false).await?;
                    }
                    followed = self.rooms.follow(renamed.user_id, &renamed.from).await;
                }
                if account.is_silenced() {
                    self.restrict(homeserver, renamed.user_id).await?;
                }
                followed.map_err(room_failure)?;
            }
            Err(ChatError::NotOurs | ChatError::SessionOver) => {}
            Err(error) => return Err(chat_failure(error)),
        }
        let around = {
            let mut connection = self.db.acquire().await.map_err(Failure::retry)?;
            store::blocks_around(&mut connection, renamed.user_id).await.map_err(Failure::retry)?
        };
        for (user_id, other_id) in around {
            self.ignore(homeserver, &Ignored { user_id, other_id }).await?;
        }
        homeserver.deactivate(renamed.from.as_str(), false).await.map_err(failure)?;
        self.show_name(homeserver, renamed.user_id).await
    }

    /// Shows the person's name in chat, or the username where there is none.
    async fn show_name(&self, homeserver: &Homeserver, user: UserId) -> Result<(), Failure> {
        let Some(account) = self.account(user).await? else { return Ok(()) };
        if !account.has_chat_account {
            self.chat.make_account(homeserver, &account).await.map_err(chat_failure)?;
        }
        let shown = account.name.as_deref().unwrap_or(account.username.as_str());
        match homeserver.set_display_name(account.username.as_str(), shown).await {
            // It is shown when they may speak again.
            Ok(()) | Err(MatrixError::Suspended(_)) => Ok(()),
            Err(error) => Err(failure(error)),
        }
    }

    /// Lets somebody do in chat what they may do here. What they may is read now: of several changes the last one counts,
    /// in whatever order they are told.
    async fn restrict(&self, homeserver: &Homeserver, user: UserId) -> Result<(), Failure> {
        let mut tx = self.db.begin().await.map_err(Failure::retry)?;
        store::take_turns(&mut tx, user).await.map_err(Failure::retry)?;
        let Some(account) = self.account(user).await?.filter(|account| account.has_chat_account) else { return Ok(()) };
        // First, or they would be back in the first room before they are out of the last. Where that fails, as by a token
        // of an administrator who is none any more, they must be out of the rooms all the same.
        let suspended = self.suspend(homeserver, account.username.as_str(), account.is_silenced()).await;
        if account.banned_at.is_some() {
            self.rooms.expel(user, "suspended").await.map_err(room_failure)?;
        }
        suspended?;
        if !account.is_silenced() {
            self.show_name(homeserver, user).await?;
        }
        tx.commit().await.map_err(Failure::retry)
    }

    async fn suspend(&self, homeserver: &Homeserver, name: &str, suspended: bool) -> Result<(), Failure> {
        match homeserver.set_suspended(name, suspended).await {
            // Nobody here can suspend: whoever has no device can say nothing.
            Err(MatrixError::NoAdmin) if suspended => {
                for device in homeserver.devices(name).await.map_err(failure)? {
                    homeserver.delete_device(name, device.as_str()).await.map_err(failure)?;
                }
                Ok(())
            }
            Ok(()) | Err(MatrixError::NoAdmin | MatrixError::NoSuchUser(_)) => Ok(()),
            Err(error) => Err(failure(error)),
        }
    }

    /// Hides, or shows again, what somebody says in chat to whoever blocked them; as it is now, not as it was told.
    async fn ignore(&self, homeserver: &Homeserver, ignored: &Ignored) -> Result<(), Failure> {
        let mut tx = self.db.begin().await.map_err(Failure::retry)?;
        store::take_turns(&mut tx, ignored.user_id).await.map_err(Failure::retry)?;
        let is_ignored =
            blocks::has_blocked(&mut *tx, ignored.user_id, ignored.other_id).await.map_err(Failure::retry)?;
        let Some(account) = self.account(ignored.user_id).await?.filter(|account| account.has_chat_account) else {
            return Ok(());
        };
        let Some(other) = self.account(ignored.other_id).await? else { return Ok(()) };
        let other = homeserver.user_id(other.username.as_str()).map_err(failure)?;
        homeserver.set_ignored(account.username.as_str(), &other, is_ignored).await.map_err(failure)?;
        tx.commit().await.map_err(Failure::retry)
    }

    async fn account(&self, user: UserId) -> Result<Option<Account>, Failure> {
        self.accounts.find(user).await.map_err(Failure::retry)
    }
}

fn read<T: DeserializeOwned>(delivery: &Delivery) -> Result<T, Failure> {
    serde_json::from_slice(&delivery.payload).map_err(|error| Failure::GiveUp(error.into()))
}

fn chat_failure(error: ChatError) -> Failure {
    match error {
        ChatError::Homeserver(error) => failure(error),
        // An operator has to see to it.
        ChatError::NotOurs => Failure::GiveUp(error.into()),
        other => Failure::retry(other),
    }
}

fn room_failure(error: RoomError) -> Failure {
    Failure::retry(error)
}

fn failure(error: MatrixError) -> Failure {
    if error.is_worth_retrying() { Failure::retry(error) } else { Failure::GiveUp(error.into()) }
}
