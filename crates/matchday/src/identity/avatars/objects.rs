//! Images in the object store.

use std::time::Duration;

use anyhow::Context as _;
use breaker::Breaker;
use bytes::Bytes;
use object_store::{
    ClientConfigKey, Error, ObjectStore, ObjectStoreExt as _,
    aws::{AmazonS3Builder, AmazonS3ConfigKey},
    local::LocalFileSystem,
    path::Path,
};

use super::{AvatarKey, Size, settings::StoreUrl};

/// Timeout of a request to the store. Clients wait `http.deadline`, and an upload takes two requests.
const TIMEOUT: &str = "3 seconds";
const RETRIES: usize = 1;
/// Number of failures in a row that opens the circuit breaker.
const TOLERATED: u32 = 3;
/// Time for which the circuit breaker stays open.
const PAUSE: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The circuit breaker is open after several failures in a row. Nothing was sent.
    #[error("it was unavailable; the circuit breaker is open")]
    BreakerOpen,
    #[error(transparent)]
    Failed(#[from] Error),
}

/// The images of all avatars.
#[derive(Debug)]
pub(super) struct Objects {
    store: Box<dyn ObjectStore>,
    prefix: Path,
    /// Of a remote store. A directory does not hang, so it has none.
    breaker: Option<Breaker>,
}

impl Objects {
    /// Opens the store without connecting to it. Returns `None` if there is none.
    pub(super) fn open(url: &StoreUrl) -> anyhow::Result<Option<Self>> {
        let (store, prefix, breaker): (Box<dyn ObjectStore>, _, _) = match url {
            StoreUrl::None => return Ok(None),
            StoreUrl::Directory(directory) => {
                let prefix = Path::from_absolute_path(directory).context("avatars.store")?;
                (Box::new(LocalFileSystem::new()), prefix, None)
            }
            StoreUrl::S3(url) => {
                let mut retry = object_store::RetryConfig { max_retries: RETRIES, ..Default::default() };
                retry.retry_timeout = Duration::from_secs(5);
                let store = AmazonS3Builder::from_env()
                    .with_url(url.as_str())
                    .with_config(AmazonS3ConfigKey::Client(ClientConfigKey::Timeout), TIMEOUT)
                    .with_config(AmazonS3ConfigKey::Client(ClientConfigKey::ConnectTimeout), TIMEOUT)
                    .with_retry(retry)
                    .build()
                    .context("avatars.store")?;
                let prefix = Path::from_url_path(url.path()).context("avatars.store")?;
                (Box::new(store), prefix, Some(Breaker::new(TOLERATED, PAUSE)))
            }
        };
        Ok(Some(Self { store, prefix, breaker }))
    }

    fn path(&self, key: &AvatarKey, size: Size) -> Path {
        self.prefix.clone().join(format!("{}-{}.jpg", key.0, size.pixels()))
    }

    /// Waits for a call, if the circuit breaker admits it.
    async fn call<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, StoreError> {
        let Some(breaker) = &self.breaker else { return Ok(call.await?) };
        breaker.admit().map_err(|_| StoreError::BreakerOpen)?;
        let outcome = call.await;
        // The other errors are responses of an available store, for example that there is no such object.
        breaker.record(!matches!(outcome, Err(Error::Generic { .. })));
        Ok(outcome?)
    }

    pub(super) async fn put(&self, key: &AvatarKey, avatar: ::avatars::Avatar) -> Result<(), StoreError> {
        let images = [(Size::Large, avatar.large), (Size::Small, avatar.small)];
        let puts = images.into_iter().map(async |(size, image)| {
            self.store.put(&self.path(key, size), Bytes::from(image).into()).await.map(|_| ())
        });
        self.call(futures_util::future::try_join_all(puts)).await.map(|_| ())
    }

    /// Returns an image, or `None` if the store does not have it.
    pub(super) async fn get(&self, key: &AvatarKey, size: Size) -> Result<Option<Bytes>, StoreError> {
        let path = self.path(key, size);
        match self.call(async { self.store.get(&path).await?.bytes().await }).await {
            Ok(image) => Ok(Some(image)),
            Err(StoreError::Failed(Error::NotFound { .. })) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Deletes both images. Succeeds if they do not exist. A failure does not count for the circuit breaker, because a
    /// single object may be the cause.
    pub(super) async fn delete(&self, key: &AvatarKey) -> Result<(), StoreError> {
        if self.breaker.as_ref().is_some_and(Breaker::is_open) {
            return Err(StoreError::BreakerOpen);
        }
        for size in Size::ALL {
            match self.store.delete(&self.path(key, size)).await {
                Ok(()) | Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file is in the place of the directory, so each call fails.
    fn broken() -> Objects {
        let prefix = Path::from_absolute_path("/dev/null/avatars").expect("a path");
        Objects { store: Box::new(LocalFileSystem::new()), prefix, breaker: Some(Breaker::new(TOLERATED, PAUSE)) }
    }

    #[tokio::test]
    async fn failures_open_the_breaker_for_a_pause() {
        tokio::time::pause();
        let (objects, key) = (broken(), AvatarKey("0".repeat(32)));
        let read = async || objects.get(&key, Size::Small).await.expect_err("no directory");
        for _ in 0..TOLERATED {
            assert!(matches!(read().await, StoreError::Failed(_)));
        }
        assert!(matches!(read().await, StoreError::BreakerOpen));
        let images = ::avatars::Avatar { large: Vec::new(), small: Vec::new() };
        assert!(matches!(objects.put(&key, images).await, Err(StoreError::BreakerOpen)));
        assert!(matches!(objects.delete(&key).await, Err(StoreError::BreakerOpen)));
        tokio::time::advance(PAUSE).await;
        assert!(matches!(read().await, StoreError::Failed(_)), "one call is admitted");
        assert!(matches!(read().await, StoreError::BreakerOpen));
    }

    #[tokio::test]
    async fn failed_deletions_and_missing_objects_keep_the_breaker_closed() {
        let key = AvatarKey("0".repeat(32));
        let directory = std::env::temp_dir().join(crate::testing::unique("matchday-test-avatars"));
        let objects = [broken(), Objects { prefix: Path::from_absolute_path(directory).expect("a path"), ..broken() }];
        for _ in 0..=TOLERATED {
            assert!(matches!(objects[0].delete(&key).await, Err(StoreError::Failed(_))));
            assert_eq!(objects[1].get(&key, Size::Small).await.expect("a response"), None);
        }
    }
}
