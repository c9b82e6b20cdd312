//! Saves, serves and removes avatars.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use platform::{
    Core,
    clock::Clock,
    outbox::{self, Message},
    random::Random,
    rate_limit::{Decision, Limit, RateLimiter},
};
use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, PgPool, Postgres, Transaction};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use web::ids::UserId;

use super::{
    AvatarKey, AvatarUrls, Size,
    objects::{Objects, StoreError},
    settings::Settings,
    store,
};
use crate::identity::{
    accounts,
    operators::{self, Operator, service::Action},
};

/// Subject for changed and removed avatars, which chat shows too.
pub const AVATAR_CHANGED: &str = "work.chat.avatar_changed";

const UPLOADS: Limit = Limit { name: "avatar", burst: 10, every: Duration::from_mins(1) };
/// Maximum time an upload waits until the process decodes it.
const PATIENCE: Duration = Duration::from_secs(4);
/// Number of concurrent uploads for each image that is decoded at the same time. It limits the memory for their bodies.
const UPLOADS_PER_TURN: usize = 16;
/// Number of pictures that a process reads at the same time, far below `http.max_in_flight`: a slow store must not occupy
/// the places of other requests.
const READS_AT_ONCE: usize = 64;
/// Time after which the images of an upload that was never finished are deleted. It is longer than any request.
const UNFINISHED_FOR: Duration = Duration::from_mins(10);
/// Number of avatars whose images are deleted per query.
const DELETED_AT_ONCE: i64 = 100;
/// Time after which a failed deletion is repeated.
const DELETED_AGAIN_AFTER: Duration = Duration::from_mins(10);

#[derive(Clone)]
pub struct Avatars {
    inner: Arc<Inner>,
}

struct Inner {
    db: PgPool,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    limiter: RateLimiter,
    uploads: Limit,
    outbox_written: Arc<Notify>,
    objects: Option<Objects>,
    urls: AvatarUrls,
    uploading: Arc<Semaphore>,
    turns: Arc<Semaphore>,
    reading: Arc<Semaphore>,
}

/// Payload of [`AVATAR_CHANGED`]. The consumer reads the current avatar, so the order of messages does not matter.
#[derive(Debug, Serialize, Deserialize)]
pub struct AvatarChanged {
    pub user_id: UserId,
}

#[derive(Debug, thiserror::Error)]
pub enum AvatarError {
    #[error("no object store is configured")]
    NoStore,
    #[error("the account does not exist")]
    NoSuchAccount,
    #[error("the user has no avatar")]
    NoAvatar,
    #[error(transparent)]
    Image(#[from] ::avatars::Error),
    #[error("too many pictures are being uploaded or read")]
    Busy,
    /// The upload took so long that its images were deleted as unfinished.
    #[error("the upload took too long")]
    TooLate,
    #[error("the object store failed: {0}")]
    Storage(#[from] StoreError),
    #[error("decoding ended early: {0}")]
    Decoding(#[from] tokio::task::JoinError),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// An outbox message could not be serialised.
    #[error(transparent)]
    Message(#[from] serde_json::Error),
}

impl Avatars {
    pub fn new(core: &Core, settings: &Settings, urls: AvatarUrls) -> anyhow::Result<Self> {
        let Core { db, clock, random, limits: limiter, outbox_written, env, .. } = core.clone();
        let leniency = env.leniency();
        let uploads = Limit { burst: UPLOADS.burst * leniency, every: UPLOADS.every / leniency, ..UPLOADS };
        let objects = Objects::open(&settings.store(env))?;
        let semaphore = |permits: usize| Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS)));
        let uploading = semaphore(settings.at_once.saturating_mul(UPLOADS_PER_TURN));
        let (turns, reading) = (semaphore(settings.at_once), semaphore(READS_AT_ONCE));
        let inner =
            Inner { db, clock, random, limiter, uploads, outbox_written, objects, urls, uploading, turns, reading };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Takes a place among the concurrent uploads. Callers need it before they read the image.
    pub fn upload_place(&self) -> Result<OwnedSemaphorePermit, AvatarError> {
        self.inner.uploading.clone().try_acquire_owned().map_err(|_| AvatarError::Busy)
    }

    /// Takes a place among the concurrent reads of users.
    pub fn read_place(&self) -> Result<OwnedSemaphorePermit, AvatarError> {
        self.inner.reading.clone().try_acquire_owned().map_err(|_| AvatarError::Busy)
    }

    /// Counts an upload against the user's rate limit.
    pub async fn permit_upload(&self, user: UserId) -> Decision {
        self.inner.limiter.take(self.inner.uploads, &user.to_string()).await
    }

    /// Whether users can upload avatars.
    pub fn has_store(&self) -> bool {
        self.inner.objects.is_some()
    }

    /// Converts and stores an upload as the user's avatar. Returns its URL.
    pub async fn save(&self, user: UserId, upload: Bytes) -> Result<String, AvatarError> {
        let inner = &*self.inner;
        let objects = inner.objects.as_ref().ok_or(AvatarError::NoStore)?;
        let avatar = self.convert(upload).await?;
        let key = AvatarKey::make(&*inner.random);
        let now = inner.clock.now();
        // Before the images, so that a worker deletes them if this process dies.
        store::insert(&inner.db, &key, user, now, now + UNFINISHED_FOR).await?;
        objects.put(&key, avatar).await?;
        let mut tx = self.begin_for(user).await?;
        if !store::publish(&mut tx, &key, inner.clock.now() - UNFINISHED_FOR).await? {
            return Err(AvatarError::TooLate);
        }
        self.replace_in(&mut tx, user, Some(&key)).await?;
        tx.commit().await?;
        inner.outbox_written.notify_one();
        inner.urls.of(Some(&key)).ok_or(AvatarError::NoAvatar)
    }

    /// Decodes on a blocking thread, a few images at a time.
    async fn convert(&self, upload: Bytes) -> Result<::avatars::Avatar, AvatarError> {
        let turn = tokio::time::timeout(PATIENCE, self.inner.turns.clone().acquire_owned()).await;
        let turn = turn.ok().and_then(Result::ok).ok_or(AvatarError::Busy)?;
        // The thread keeps its turn even if the caller disconnects, because decoding continues.
        let converting = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            ::avatars::convert(&upload)
        });
        Ok(converting.await??)
    }

    /// Removes a user's avatar. Succeeds if there is none.
    pub async fn remove(&self, user: UserId) -> Result<(), AvatarError> {
        let mut tx = self.begin_for(user).await?;
        if self.replace_in(&mut tx, user, None).await?.is_some() {
            tx.commit().await?;
            self.inner.outbox_written.notify_one();
        }
        Ok(())
    }

    /// Removes a user's avatar for an operator.
    pub async fn remove_by_operator(&self, user: UserId, operator: &Operator) -> Result<(), AvatarError> {
        let inner = &*self.inner;
        let mut tx = self.begin_for(user).await?;
        self.replace_in(&mut tx, user, None).await?.ok_or(AvatarError::NoAvatar)?;
        let action = Action::new("user.avatar.remove", format!("user:{user}"));
        operators::service::record(&mut tx, operator, &action, inner.clock.now()).await?;
        tx.commit().await?;
        inner.outbox_written.notify_one();
        Ok(())
    }

    /// Begins a transaction that changes a user's avatar, with the account locked before any row of `avatars`. An account
    /// deletion locks them in the same order; otherwise each could wait for the other.
    async fn begin_for(&self, user: UserId) -> sqlx::Result<Transaction<'static, Postgres>> {
        let mut tx = platform::database::begin(&self.inner.db).await?;
        accounts::lock(&mut tx, user).await?;
        Ok(tx)
    }

    /// Gives a user this avatar or none, and returns the previous one, in a transaction of [`Self::begin_for`]. From the
    /// commit on, the previous one is no longer served.
    async fn replace_in(
        &self,
        connection: &mut PgConnection,
        user: UserId,
        key: Option<&AvatarKey>,
    ) -> Result<Option<AvatarKey>, AvatarError> {
        let previous = store::of_user(&mut *connection, user).await?.ok_or(AvatarError::NoSuchAccount)?;
        if let Some(previous) = &previous {
            store::retire(connection, previous, self.inner.clock.now()).await?;
        }
        if key.is_some() || previous.is_some() {
            store::set(connection, user, key).await?;
            let message = Message::new(AVATAR_CHANGED, format!("user:{user}"), &AvatarChanged { user_id: user })?;
            outbox::enqueue(connection, &[message]).await?;
        }
        Ok(previous)
    }

    /// Whether an avatar is the current one of a user.
    pub async fn is_served(&self, key: &AvatarKey) -> sqlx::Result<bool> {
        store::is_served(&self.inner.db, key).await
    }

    /// Returns an image that [`Self::is_served`], or `None` if it was deleted meanwhile.
    pub async fn image(&self, key: &AvatarKey, size: Size) -> Result<Option<Bytes>, AvatarError> {
        match &self.inner.objects {
            Some(objects) => Ok(objects.get(key, size).await?),
            None => Ok(None),
        }
    }

    /// Returns the image of a user's current avatar.
    pub async fn image_of(&self, user: UserId, size: Size) -> Result<Option<Bytes>, AvatarError> {
        match store::of_user(&self.inner.db, user).await?.flatten() {
            Some(key) => self.image(&key, size).await,
            None => Ok(None),
        }
    }

    /// Returns the URL of a user's current avatar.
    pub async fn url_of(&self, connection: &mut PgConnection, user: UserId) -> sqlx::Result<Option<String>> {
        let key = store::of_user(connection, user).await?.flatten();
        Ok(self.inner.urls.of(key.as_ref()))
    }

    /// Deletes the images of avatars that were replaced or removed, or whose upload was never finished. Returns their
    /// number, or the first error. A failed deletion is repeated later, so that it does not block the others.
    pub async fn delete_due(&self) -> Result<usize, AvatarError> {
        let inner = &*self.inner;
        let Some(objects) = &inner.objects else { return Ok(0) };
        let mut deleted = 0;
        loop {
            let due = store::due(&inner.db, inner.clock.now(), DELETED_AT_ONCE).await?;
            if due.is_empty() {
                return Ok(deleted);
            }
            let mut failed = None;
            for key in due {
                match objects.delete(&key).await {
                    Ok(()) => {
                        store::delete(&inner.db, &key).await?;
                        deleted += 1;
                    }
                    // The other deletions would fail too.
                    Err(error @ StoreError::BreakerOpen) => return Err(failed.unwrap_or(error).into()),
                    Err(error) => {
                        store::postpone(&inner.db, &key, inner.clock.now() + DELETED_AGAIN_AFTER).await?;
                        failed.get_or_insert(error);
                    }
                }
            }
            if let Some(error) = failed {
                return Err(error.into());
            }
        }
    }
}
