//! Reads and changes privacy settings.

use std::sync::Arc;

use platform::{
    Core,
    outbox::{self, Message},
};
use sqlx::PgPool;
use tokio::sync::Notify;
use web::ids::UserId;

use super::{
    rules::{Audience, NameAudience},
    store,
};
use crate::identity::accounts::{
    self,
    service::{NAME_CHANGED, NameChanged},
};

/// Privacy settings of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Privacy {
    pub name: NameAudience,
    pub teams: Audience,
    pub record: Audience,
    pub calibration: Audience,
}

/// Settings to change. `None` keeps a setting.
#[derive(Clone, Copy, Debug)]
pub struct PrivacyChange {
    pub name: Option<NameAudience>,
    pub teams: Option<Audience>,
    pub record: Option<Audience>,
    pub calibration: Option<Audience>,
}

#[derive(Debug, thiserror::Error)]
pub enum PrivacyError {
    #[error("the account does not exist")]
    NoSuchAccount,
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// An outbox message could not be serialised.
    #[error(transparent)]
    Message(#[from] serde_json::Error),
}

#[derive(Clone)]
pub struct PrivacySettings {
    db: PgPool,
    outbox_written: Arc<Notify>,
}

impl PrivacySettings {
    pub fn new(core: &Core) -> Self {
        Self { db: core.db.clone(), outbox_written: core.outbox_written.clone() }
    }

    /// Returns the settings of a user; `None` if the account does not exist.
    pub async fn of(&self, user: UserId) -> sqlx::Result<Option<Privacy>> {
        store::find(&self.db, user).await
    }

    /// Changes settings, and returns all of them.
    pub async fn change(&self, user: UserId, change: PrivacyChange) -> Result<Privacy, PrivacyError> {
        let mut tx = platform::database::begin(&self.db).await?;
        accounts::lock(&mut tx, user).await?;
        let before = store::find(&mut *tx, user).await?.ok_or(PrivacyError::NoSuchAccount)?;
        let after = Privacy {
            name: change.name.unwrap_or(before.name),
            teams: change.teams.unwrap_or(before.teams),
            record: change.record.unwrap_or(before.record),
            calibration: change.calibration.unwrap_or(before.calibration),
        };
        store::set(&mut tx, user, after).await?;
        if after.name != before.name {
            // Chat also displays the name.
            let message = Message::new(NAME_CHANGED, format!("user:{user}"), &NameChanged { user_id: user })?;
            outbox::enqueue(&mut tx, &[message]).await?;
        }
        tx.commit().await?;
        self.outbox_written.notify_one();
        Ok(after)
    }
}
