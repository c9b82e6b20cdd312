//! Registers devices and finds devices of users.

use std::{collections::HashSet, fmt, sync::Arc};

use jiff::tz::TimeZone;
use platform::{
    Core,
    clock::Clock,
    encryption::Encrypted,
    outbound_http::{AddressFault, Reach},
    random::Random,
    settings::CodeKey,
};
use sqlx::{PgConnection, PgPool};
use texts::Locale;
use time::{Duration, OffsetDateTime, UtcOffset};
use web::ids::{SessionId, UserId};

use super::{
    super::{
        rules::{PushServices, time_zone},
        service::ReachChanges,
        store as notifications,
    },
    rules::{self, DeviceId, MOST_DEVICES, Platform, Token},
    store::{self, DeviceRow, Registered},
    vault::TokenVault,
};
use crate::identity::accounts;

/// Number of claims that the sweep compares with devices at a time.
const SWEPT_AT_ONCE: i64 = 1_000;
/// A claim is swept only after this time, so that a registration that is under way keeps its claim.
const SWEPT_AFTER: Duration = Duration::hours(1);

/// Platforms that this service can deliver to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Platforms {
    pub fcm: bool,
    pub apns: bool,
    pub web: bool,
}

impl Platforms {
    pub fn include(self, platform: Platform) -> bool {
        match platform {
            Platform::Fcm => self.fcm,
            Platform::Apns => self.apns,
            Platform::Web => self.web,
        }
    }

    pub fn any(self) -> bool {
        Platform::ALL.into_iter().any(|platform| self.include(platform))
    }
}

/// Devices of users. Cheap to clone.
#[derive(Clone)]
pub struct Devices {
    inner: Arc<Inner>,
}

struct Inner {
    db: PgPool,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    vault: TokenVault,
    platforms: Platforms,
    /// Restricts the network addresses of push services.
    reach: Reach,
    services: PushServices,
    changes: ReachChanges,
}

/// Requested registration of a device.
#[derive(Clone, Debug)]
pub struct Registration {
    pub token: Token,
    pub locale: Locale,
    pub time_zone: Option<TimeZone>,
}

/// A registered device as its owner sees it.
#[derive(Clone, Debug)]
pub struct Device {
    pub id: DeviceId,
    pub platform: Platform,
    pub locale: String,
    pub time_zone: Option<String>,
    pub deliverable: bool,
    pub created_at: OffsetDateTime,
    pub updated_at: OffsetDateTime,
}

/// A device with its token, to which notifications are sent.
#[derive(Clone)]
pub struct Target {
    pub user: UserId,
    pub id: String,
    pub token: Token,
    pub token_hash: Vec<u8>,
    pub locale: Locale,
    pub time_zone: Option<TimeZone>,
}

impl fmt::Debug for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Target").field("user", &self.user.0).field("token", &self.token).finish_non_exhaustive()
    }
}

/// Error from registering a device.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// `Reach` does not allow the URL of the push service.
    #[error("the URL cannot be used: {0}")]
    Address(#[from] AddressFault),
    /// The push service is not in `notifications.push_services`.
    #[error("the push service is not allowed")]
    Service,
    /// A browser, without a VAPID key.
    #[error("no VAPID key is configured")]
    NoPush,
    /// The session ended during the request.
    #[error("the session has ended")]
    SessionEnded,
    /// The settings have no key to encrypt the token.
    #[error("no key is configured")]
    NoKey,
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

impl Devices {
    pub(in super::super) fn new(
        core: &Core,
        keys: &[CodeKey],
        platforms: Platforms,
        services: PushServices,
        changes: ReachChanges,
    ) -> Self {
        let Core { db, clock, random, env, .. } = core.clone();
        let (vault, reach) = (TokenVault::new(keys), Reach::of(env));
        Self { inner: Arc::new(Inner { db, clock, random, vault, platforms, reach, services, changes }) }
    }

    /// Platforms that are configured.
    pub fn platforms(&self) -> Platforms {
        self.inner.platforms
    }

    /// Adds a device, or replaces its registration. Other registrations of the token end. An eleventh device replaces the
    /// one whose registration is the oldest.
    pub async fn register(
        &self,
        user: UserId,
        session: SessionId,
        id: &DeviceId,
        registration: &Registration,
    ) -> Result<Device, RegisterError> {
        let inner = &*self.inner;
        let Registration { token, locale, time_zone } = registration;
        let platform = token.platform();
        if let Token::Web { endpoint, .. } = token {
            if !inner.platforms.web {
                return Err(RegisterError::NoPush);
            }
            inner.reach.check(endpoint)?;
            if !inner.services.include(endpoint) {
                return Err(RegisterError::Service);
            }
        }
        let stored = inner.vault.seal(&*inner.random, token).ok_or(RegisterError::NoKey)?;
        let zone = time_zone.as_ref().and_then(TimeZone::iana_name);
        let mut tx = platform::database::begin(&inner.db).await?;
        accounts::lock(&mut tx, user).await?;
        let now = inner.clock.now();
        // Tokens are claimed before devices are written, always in this order, so that two users with one token cannot
        // wait for each other.
        let mut changed = vec![user];
        if let Some(owner) = store::claim_token(&mut tx, &stored.hash, user, id.as_str(), now).await? {
            let is_this = owner.user_id == user && owner.device_id == id.as_str();
            if !is_this {
                store::delete_with_token(&mut tx, owner.user_id, &stored.hash).await?;
            }
            if owner.user_id != user {
                changed.push(owner.user_id);
            }
        }
        self.release_old_in(&mut tx, token).await?;
        if let Token::Web { endpoint, .. } = token {
            notifications::delete_endpoint(&mut tx, endpoint.as_str()).await?;
        }
        let device =
            Registered { session, platform: platform.name(), token: &stored, locale: locale.as_str(), time_zone: zone };
        let created_at = match store::save(&mut tx, user, id, &device, now).await {
            Err(error) if is_foreign_key(&error) => return Err(RegisterError::SessionEnded),
            saved => saved?,
        };
        store::keep_latest(&mut tx, user, id, MOST_DEVICES - 1).await?;
        inner.changes.enqueue_in(&mut tx, &changed).await?;
        tx.commit().await?;
        inner.changes.wake_relay();
        Ok(Device {
            id: id.clone(),
            platform,
            locale: locale.to_string(),
            time_zone: zone.map(str::to_owned),
            deliverable: inner.platforms.include(platform),
            created_at,
            updated_at: now,
        })
    }

    /// Ends registrations of a token under keys that were replaced.
    async fn release_old_in(&self, connection: &mut PgConnection, token: &Token) -> sqlx::Result<()> {
        for hash in self.inner.vault.hashes(&token.identity()).iter().skip(1) {
            self.release_in(connection, hash).await?;
        }
        Ok(())
    }

    async fn release_in(&self, connection: &mut PgConnection, hash: &[u8]) -> sqlx::Result<()> {
        if let Some(owner) = store::release_token(connection, hash).await? {
            store::delete_with_token(connection, owner.user_id, hash).await?;
        }
        Ok(())
    }

    /// Ends the device with this endpoint, because the browser is now a push subscription.
    pub(in super::super) async fn release_browser_in(
        &self,
        connection: &mut PgConnection,
        endpoint: &url::Url,
    ) -> sqlx::Result<()> {
        for hash in self.inner.vault.hashes(&format!("{}:{endpoint}", Platform::Web.name())) {
            self.release_in(connection, &hash).await?;
        }
        Ok(())
    }

    /// Returns the devices of a user, oldest first.
    pub async fn list(&self, user: UserId) -> sqlx::Result<Vec<Device>> {
        let rows = store::devices(&self.inner.db, &[user.0], self.inner.clock.now()).await?;
        Ok(rows.into_iter().filter_map(|row| self.shown(row)).collect())
    }

    fn shown(&self, row: DeviceRow) -> Option<Device> {
        let platform = Platform::of_name(&row.platform)?;
        Some(Device {
            id: DeviceId::stored(row.id),
            platform,
            locale: row.locale,
            time_zone: row.time_zone,
            deliverable: self.inner.platforms.include(platform),
            created_at: row.created_at,
            updated_at: row.updated_at,
        })
    }

    /// Removes a device. Returns whether it existed.
    pub async fn remove(&self, user: UserId, id: &DeviceId) -> sqlx::Result<bool> {
        let inner = &*self.inner;
        let mut tx = platform::database::begin(&inner.db).await?;
        let existed = store::delete(&mut *tx, user, id).await?;
        if existed {
            inner.changes.enqueue_in(&mut tx, &[user]).await?;
        }
        tx.commit().await?;
        inner.changes.wake_relay();
        Ok(existed)
    }

    /// Returns the devices of some users that this service can reach.
    pub(in super::super) async fn targets(&self, users: &[i64]) -> sqlx::Result<Vec<Target>> {
        let inner = &*self.inner;
        let rows = store::devices(&inner.db, users, inner.clock.now()).await?;
        let target = |row: DeviceRow| {
            let platform = Platform::of_name(&row.platform).filter(|platform| inner.platforms.include(*platform))?;
            let stored = Encrypted { key_version: row.key_version, bytes: row.ciphertext };
            Some(Target {
                user: row.user_id,
                id: row.id,
                token: inner.vault.open(platform, &stored)?,
                token_hash: row.token_hash,
                locale: Locale::parse(&row.locale).unwrap_or_default(),
                time_zone: row.time_zone.as_deref().and_then(time_zone),
            })
        };
        Ok(rows.into_iter().filter_map(target).collect())
    }

    /// Removes a device because its provider says that the token is invalid, at the time given by the provider. A device
    /// that was registered again after that stays.
    pub(in super::super) async fn remove_gone(
        &self,
        gone: &Target,
        since: Option<OffsetDateTime>,
    ) -> sqlx::Result<bool> {
        let inner = &*self.inner;
        let mut tx = platform::database::begin(&inner.db).await?;
        let removed = store::delete_gone(&mut *tx, gone.user, &gone.id, &gone.token_hash, since).await?;
        if removed {
            inner.changes.enqueue_in(&mut tx, &[gone.user]).await?;
        }
        tx.commit().await?;
        inner.changes.wake_relay();
        Ok(removed)
    }

    /// Deletes claims of tokens without a device. Each hour of the day has a part of the hashes, so each claim is compared
    /// with the devices about once a day. Returns how many.
    pub(in super::super) async fn sweep(&self) -> sqlx::Result<u64> {
        let (db, now) = (&self.inner.db, self.inner.clock.now());
        let (mut after, until) = rules::hashes_of_hour(now.to_offset(UtcOffset::UTC).hour());
        let mut swept = 0;
        loop {
            let claims = store::claims_between(db, (&after, &until), now - SWEPT_AFTER, SWEPT_AT_ONCE).await?;
            let Some(last) = claims.last() else { return Ok(swept) };
            after.clone_from(&last.token_hash);
            let users: Vec<i64> = claims.iter().map(|claim| claim.user_id.0).collect();
            let used: HashSet<(UserId, Vec<u8>)> = store::hashes_of(db, &users).await?.into_iter().collect();
            for claim in claims {
                if !used.contains(&(claim.user_id, claim.token_hash.clone())) {
                    swept += store::delete_claim(db, &claim).await?;
                }
            }
        }
    }
}

fn is_foreign_key(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(sqlx::error::DatabaseError::is_foreign_key_violation)
}
