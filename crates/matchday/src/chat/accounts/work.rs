//! Worker that applies account changes from other features to the homeserver.

use std::time::Duration;

use matrix_appservice::{ChatServer, Error as MatrixError, Homeserver};
use platform::{
    outbox,
    stream::{Delivery, Failure, Stream, WorkSpec},
};
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
        messages::{IGNORED, Ignored, KEYS_REPLACED, KeysReplaced, MUTE, Mute, ReachChanged},
        moderation::service::Moderation,
        planned_removals::SERVICE,
        rooms::service::{RoomError, Rooms},
    },
    identity::{
        accounts::{
            restrictions::{RESTRICTED, Restricted, Restriction},
            service::{Account, Accounts, NAME_CHANGED, NameChanged, RENAMED, Renamed},
        },
        avatars::{
            Size,
            service::{AVATAR_CHANGED, AvatarChanged, Avatars},
        },
        operators::Operator,
        sessions::service::{DEVICE_ENDED, DeviceEnded},
        sms::service::{DispatchError, Sms},
    },
};

#[derive(Clone)]
pub struct ChatWork {
    pub db: PgPool,
    pub chat: Chat,
    pub rooms: Rooms,
    pub accounts: Accounts,
    pub avatars: Avatars,
    pub moderation: Moderation,
    pub sms: Sms,
    /// Whether the homeserver reports mentions, for which users need a pusher.
    pub has_pushers: bool,
}

impl ChatWork {
    /// Consumer settings: one consumer ends devices and applies restrictions, which must not wait for the rooms of renamed
    /// users and for profiles.
    pub fn specs() -> [WorkSpec; 2] {
        let spec = |name: &'static str, subject: &'static str| WorkSpec {
            longest_pause: Duration::from_mins(1),
            ..WorkSpec::new(name, Stream::Work, subject)
        };
        [spec("chat", "work.chat.>"), spec("chat_security", "work.chat_security.>")]
    }

    /// Handles one message. Idempotent.
    pub async fn perform(&self, delivery: Delivery) -> Result<(), Failure> {
        if delivery.subject == MUTE {
            return self.mute(&read(&delivery)?).await;
        }
        // Without a homeserver, chat is disabled.
        let Some(server) = self.chat.server() else { return Ok(()) };
        let homeserver = &server.homeserver;
        match delivery.subject.as_str() {
            DEVICE_ENDED => {
                let ended: DeviceEnded = read(&delivery)?;
                let Some(account) = self.account(ended.user_id).await? else { return Ok(()) };
                server.issuer.revoke(account.username.as_str(), &ended.device_id).await.map_err(failure)
            }
            RENAMED => self.rename(server, &read(&delivery)?).await,
            NAME_CHANGED => {
                let changed: NameChanged = read(&delivery)?;
                self.show_name(server, changed.user_id).await
            }
            AVATAR_CHANGED => {
                let changed: AvatarChanged = read(&delivery)?;
                self.show_avatar(server, changed.user_id).await
            }
            RESTRICTED => {
                let restricted: Restricted = read(&delivery)?;
                self.restrict(server, restricted.user_id).await
            }
            IGNORED => self.ignore(homeserver, &read(&delivery)?).await,
            KEYS_REPLACED => self.send_keys_notice(&read(&delivery)?).await,
            other => Err(Failure::GiveUp(anyhow::anyhow!("unknown subject {other}"))),
        }
    }

    /// Moves a user to a chat account with the new username: creates it, joins it to the user's rooms, and deactivates
    /// the old account.
    async fn rename(&self, server: &ChatServer, renamed: &Renamed) -> Result<(), Failure> {
        // Create the new account first. If that is impossible, the old account must still be deactivated.
        match self.chat.account(renamed.user_id).await {
            Ok(account) => {
                let mut followed = Ok(());
                // A banned user is in no room.
                if account.banned_at.is_none() {
                    if account.muted_at.is_some() {
                        // A suspended user cannot join rooms.
                        self.suspend(server, account.username.as_str(), false).await?;
                    }
                    followed = self.rooms.follow(renamed.user_id, &renamed.from).await;
                }
                if account.is_silenced() {
                    self.restrict(server, renamed.user_id).await?;
                }
                followed.map_err(room_failure)?;
            }
            Err(ChatError::ForeignAccount | ChatError::SessionEnded) => {}
            Err(error) => return Err(chat_failure(error)),
        }
        let around = {
            let mut connection = self.db.acquire().await.map_err(Failure::retry)?;
            store::blocks_around(&mut connection, renamed.user_id).await.map_err(Failure::retry)?
        };
        for (user_id, other_id) in around {
            self.ignore(&server.homeserver, &Ignored { user_id, other_id }).await?;
        }
        let cleared = self.clear_profile(server, renamed).await;
        if let Err(retry @ Failure::Retry { .. }) = cleared {
            return Err(retry);
        }
        // Also if the homeserver refuses changes of profiles: nobody may log in to the old account.
        server.issuer.deactivate(renamed.from.as_str(), false).await.map_err(failure)?;
        cleared?;
        self.show_name(server, renamed.user_id).await?;
        self.show_avatar(server, renamed.user_id).await?;
        if !self.has_pushers {
            return Ok(());
        }
        // The pusher ended with the old account.
        let message = ReachChanged { user_id: renamed.user_id }.message().map_err(Failure::retry)?;
        let mut connection = self.db.acquire().await.map_err(Failure::retry)?;
        outbox::enqueue(&mut connection, &[message]).await.map_err(Failure::retry)
    }

    /// Takes the old account of a renamed user out of its rooms, and removes its name and avatar. Its profile stays visible,
    /// and the user can no longer hide or remove anything in it.
    async fn clear_profile(&self, server: &ChatServer, renamed: &Renamed) -> Result<(), Failure> {
        let from = renamed.from.as_str();
        leave_rooms(&server.homeserver, from).await.map_err(failure)?;
        // A worker that is setting name or avatar of the old account holds the lock. Later ones see the new username.
        let mut tx = platform::database::begin(&self.db).await.map_err(Failure::retry)?;
        store::lock_user(&mut tx, renamed.user_id).await.map_err(Failure::retry)?;
        // The deletion of a user deletes the profiles of all accounts. A later call would restore one.
        if self.account(renamed.user_id).await?.is_some() {
            match clear(&server.homeserver, from).await {
                Err(MatrixError::Suspended(_)) => {
                    // The profile of a suspended account cannot be changed. Without devices, the user cannot write there.
                    revoke_devices(server, from).await?;
                    self.suspend(server, from, false).await?;
                    match clear(&server.homeserver, from).await {
                        // Without an admin token, only an operator can end the suspension.
                        Ok(()) | Err(MatrixError::Suspended(_)) => {}
                        Err(error) => return Err(failure(error)),
                    }
                }
                cleared => cleared.map_err(failure)?,
            }
        }
        tx.commit().await.map_err(Failure::retry)
    }

    /// Sets the display name in chat to the user's name, or to the username if there is none or the user hides it. It reads
    /// the account under the lock, so a slower worker can neither leave a name in chat that the user has hidden, nor set the
    /// name of an account that a renamed user has left.
    async fn show_name(&self, server: &ChatServer, user: UserId) -> Result<(), Failure> {
        let Some(account) = self.account(user).await? else { return Ok(()) };
        if !account.has_chat_account {
            self.chat.make_account(server, &account).await.map_err(chat_failure)?;
        }
        let mut tx = platform::database::begin(&self.db).await.map_err(Failure::retry)?;
        store::lock_user(&mut tx, user).await.map_err(Failure::retry)?;
        let Some(account) = self.account(user).await? else { return Ok(()) };
        let username = account.username.as_str();
        let name = account.name.as_deref().filter(|_| account.shows_name).unwrap_or(username);
        match server.homeserver.set_display_name(username, name).await {
            // The name is set again when the suspension ends.
            Ok(()) | Err(MatrixError::Suspended(_)) => {}
            Err(error) => return Err(failure(error)),
        }
        tx.commit().await.map_err(Failure::retry)
    }

    /// Sets the avatar in chat to the user's avatar, or removes it. It reads the current avatar, so the result is correct for
    /// any order of messages.
    ///
    /// Without the lock, two workers at the same time would upload two images, of which the profile has one, and no later
    /// call would find the other one to delete it.
    async fn show_avatar(&self, server: &ChatServer, user: UserId) -> Result<(), Failure> {
        loop {
            let Some(account) = self.account(user).await? else { return Ok(()) };
            let image = match &account.avatar {
                Some(key) => self.avatars.image(key, Size::Large).await.map_err(Failure::retry)?,
                None => None,
            };
            if !account.has_chat_account {
                if image.is_none() {
                    return Ok(());
                }
                self.chat.make_account(server, &account).await.map_err(chat_failure)?;
            }
            let mut tx = platform::database::begin(&self.db).await.map_err(Failure::retry)?;
            store::lock_user(&mut tx, user).await.map_err(Failure::retry)?;
            let current = store::username_and_avatar(&mut tx, user).await.map_err(Failure::retry)?;
            let Account { username, avatar, .. } = account;
            if current != Some((username.clone(), avatar)) {
                continue;
            }
            match server.homeserver.set_avatar(username.as_str(), image.map(Vec::from)).await {
                // The avatar is set again when the suspension ends.
                Ok(()) | Err(MatrixError::Suspended(_)) => {}
                Err(error) => return Err(failure(error)),
            }
            return tx.commit().await.map_err(Failure::retry);
        }
    }

    /// Mutes a user whose message a filter refused, unless the user is muted for longer already. An end that has passed
    /// changes nothing.
    async fn mute(&self, mute: &Mute) -> Result<(), Failure> {
        let operator = Operator::new(SERVICE, &mute.reason);
        let muted = self.moderation.restrict_until(mute.user_id, Restriction::Mute, mute.until, &operator).await;
        muted.map_err(Failure::retry)
    }

    /// Applies a user's restrictions to their chat account. It reads the current restrictions, so the result is correct
    /// for any order of messages.
    async fn restrict(&self, server: &ChatServer, user: UserId) -> Result<(), Failure> {
        let mut tx = platform::database::begin(&self.db).await.map_err(Failure::retry)?;
        store::lock_user(&mut tx, user).await.map_err(Failure::retry)?;
        let Some(account) = self.account(user).await?.filter(|account| account.has_chat_account) else { return Ok(()) };
        // Suspend first; otherwise the user could rejoin a room during the removal. If suspending fails, for example
        // because the admin token lost its rights, the user must still be removed from the rooms.
        let suspended = self.suspend(server, account.username.as_str(), account.is_silenced()).await;
        if account.banned_at.is_some() {
            self.rooms.expel(user, "suspended").await.map_err(room_failure)?;
        }
        suspended?;
        let is_silenced = account.is_silenced();
        // Before the avatar, which takes the same lock.
        tx.commit().await.map_err(Failure::retry)?;
        if !is_silenced {
            self.show_name(server, user).await?;
            self.show_avatar(server, user).await?;
        }
        Ok(())
    }

    async fn suspend(&self, server: &ChatServer, name: &str, suspended: bool) -> Result<(), Failure> {
        match server.homeserver.set_suspended(name, suspended).await {
            // Without an admin token, users cannot be suspended. A user without devices cannot write either.
            Err(MatrixError::NoAdmin) if suspended => revoke_devices(server, name).await,
            Ok(()) | Err(MatrixError::NoAdmin | MatrixError::NoSuchUser(_)) => Ok(()),
            Err(error) => Err(failure(error)),
        }
    }

    /// Adds a user to another user's ignore list or removes them from it. The stored block decides, not the message, so
    /// the order of messages does not matter.
    async fn ignore(&self, homeserver: &Homeserver, ignored: &Ignored) -> Result<(), Failure> {
        let mut tx = platform::database::begin(&self.db).await.map_err(Failure::retry)?;
        store::lock_user(&mut tx, ignored.user_id).await.map_err(Failure::retry)?;
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

    /// Tells the user by text message that their chat keys were replaced.
    async fn send_keys_notice(&self, replaced: &KeysReplaced) -> Result<(), Failure> {
        let account = self.account(replaced.user_id).await?;
        let Some(phone) = account.and_then(|account| account.phone) else { return Ok(()) };
        match self.sms.send_keys_notice(&phone, replaced.language).await {
            // A second message would look like a second reset.
            Ok(()) | Err(DispatchError::MaybeSent) => Ok(()),
            Err(error @ DispatchError::NotSent) => Err(Failure::retry(error)),
            Err(error @ DispatchError::Number) => Err(Failure::GiveUp(error.into())),
        }
    }

    async fn account(&self, user: UserId) -> Result<Option<Account>, Failure> {
        self.accounts.find(user).await.map_err(Failure::retry)
    }
}

/// Takes an account out of all rooms. The homeserver repeats a change of the profile in the rooms of the account, as new
/// joins and some time later: also in rooms that the account has left since, if it was deactivated.
async fn leave_rooms(homeserver: &Homeserver, username: &str) -> Result<(), MatrixError> {
    let joined = match homeserver.joined_rooms(username).await {
        Err(MatrixError::NoSuchUser(_) | MatrixError::Deactivated(_)) => Vec::new(),
        joined => joined?,
    };
    for room in joined {
        homeserver.leave(&room, username).await?;
    }
    Ok(())
}

/// Removes the avatar of an account, and replaces the display name with the username.
async fn clear(homeserver: &Homeserver, username: &str) -> Result<(), MatrixError> {
    let cleared = [homeserver.set_avatar(username, None).await, homeserver.set_display_name(username, username).await];
    for outcome in cleared {
        match outcome {
            Ok(()) | Err(MatrixError::NoSuchUser(_) | MatrixError::Deactivated(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn revoke_devices(server: &ChatServer, name: &str) -> Result<(), Failure> {
    for device in server.issuer.devices(name).await.map_err(failure)? {
        server.issuer.revoke(name, device.as_str()).await.map_err(failure)?;
    }
    Ok(())
}

fn read<T: DeserializeOwned>(delivery: &Delivery) -> Result<T, Failure> {
    serde_json::from_slice(&delivery.payload).map_err(|error| Failure::GiveUp(error.into()))
}

fn chat_failure(error: ChatError) -> Failure {
    match error {
        ChatError::Homeserver(error) => failure(error),
        // An operator must resolve the conflict.
        ChatError::ForeignAccount => Failure::GiveUp(error.into()),
        other => Failure::retry(other),
    }
}

fn room_failure(error: RoomError) -> Failure {
    Failure::retry(error)
}

fn failure(error: MatrixError) -> Failure {
    if error.is_worth_retrying() { Failure::retry(error) } else { Failure::GiveUp(error.into()) }
}
