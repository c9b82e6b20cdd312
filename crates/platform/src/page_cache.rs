//! Lists that are the same for everyone, built once and served as bytes.
//!
//! A page is kept for a moment (`pages.keep`). A change marks every page stale; a stale page is rebuilt by the next
//! request for it, unless that happens too often, in which case it lives out its moment. So a quiet system is always
//! fresh, and on a hot one the database sees a bounded number of queries per distinct page and process, however many
//! users ask.

use std::{
    convert::Infallible,
    hash::Hash,
    io::Write as _,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::HeaderValue;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::rate_limit::{Limit, gcra};

crate::section! {
    /// The lists that are the same for everyone.
    pages: Settings {
        /// How long a page is served without rebuilding it.
        keep: Duration = "1s",
        /// How many pages are kept.
        cache_entries: usize = "2000",
    }
}

/// How often one stale page is rebuilt before its time.
const REBUILDS: Limit = Limit { name: "page_rebuilds", burst: 10, every: Duration::from_millis(50) };

/// A page as it is served.
#[derive(Debug)]
pub struct Page {
    /// The body.
    pub body: Bytes,
    /// A weak validator of the body.
    pub etag: HeaderValue,
    gzipped: OnceLock<Bytes>,
    built: Instant,
    generation: u64,
}

impl Page {
    fn new(body: Bytes, built: Instant, generation: u64) -> Self {
        let digest = hex::encode(&Sha256::digest(&body)[..8]);
        let etag = HeaderValue::try_from(format!("W/\"{digest}\"")).unwrap_or(HeaderValue::from_static("W/\"0\""));
        Self { body, etag, gzipped: OnceLock::new(), built, generation }
    }

    /// The body compressed, once for all who ask.
    pub fn gzipped(&self) -> Bytes {
        self.gzipped
            .get_or_init(|| {
                let mut encoder = GzEncoder::new(Vec::with_capacity(self.body.len() / 4), Compression::default());
                // Writing to memory cannot fail.
                let _ = encoder.write_all(&self.body);
                encoder.finish().unwrap_or_default().into()
            })
            .clone()
    }
}

/// The pages of one list, by query.
pub struct PageCache<K, E> {
    slots: quick_cache::sync::Cache<K, Arc<Slot<E>>>,
    generation: AtomicU64,
    keep: Duration,
    began: Instant,
}

struct Slot<E> {
    page: RwLock<Option<Arc<Page>>>,
    /// Guards building. Holds why it failed the last time.
    building: tokio::sync::Mutex<Option<Arc<E>>>,
    failures: AtomicU64,
    /// The arrival time of `REBUILDS`.
    rebuilds: Mutex<i64>,
}

impl<E> Default for Slot<E> {
    fn default() -> Self {
        Self {
            page: RwLock::default(),
            building: tokio::sync::Mutex::default(),
            failures: AtomicU64::default(),
            rebuilds: Mutex::default(),
        }
    }
}

impl<K: Hash + Eq + Clone, E> PageCache<K, E> {
    /// An empty cache of at most `entries` pages.
    pub fn new(keep: Duration, entries: usize) -> Self {
        Self {
            slots: quick_cache::sync::Cache::new(entries),
            generation: AtomicU64::new(0),
            keep,
            began: Instant::now(),
        }
    }

    /// Something changed: what was built before may be wrong.
    pub fn mark_stale(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// The page for this query, built if need be. Whoever comes while it is being built waits for that one, and shares
    /// its failure too: a database that is away must not be waited for by one request after the other.
    pub async fn get(&self, key: K, build: impl AsyncFnOnce() -> Result<Bytes, E>) -> Result<Arc<Page>, Arc<E>> {
        let slot = match self.slots.get_or_insert_with(&key, || Ok::<_, Infallible>(Arc::default())) {
            Ok(slot) => slot,
            Err(never) => match never {},
        };
        // What was told before this request must show in its answer; what is told while it waits need not.
        let wanted = self.generation.load(Ordering::Acquire);
        match self.current(&slot) {
            Some(page) if page.generation >= wanted => Ok(page),
            // Boxed, so that the many requests that need no building do not carry the room for it around.
            _ => Box::pin(self.rebuild(&slot, wanted, build)).await,
        }
    }

    async fn rebuild(
        &self,
        slot: &Slot<E>,
        wanted: u64,
        build: impl AsyncFnOnce() -> Result<Bytes, E>,
    ) -> Result<Arc<Page>, Arc<E>> {
        let failures = slot.failures.load(Ordering::Acquire);
        let mut last_failure = slot.building.lock().await;
        if let Some(page) = self.current(slot)
            && (page.generation >= wanted || !self.may_rebuild(slot))
        {
            return Ok(page);
        }
        if slot.failures.load(Ordering::Acquire) > failures
            && let Some(failure) = &*last_failure
        {
            return Err(Arc::clone(failure));
        }
        // Read before building: a change that arrives meanwhile leaves the new page stale.
        let (generation, began) = (self.generation.load(Ordering::Acquire), Instant::now());
        let body = build().await.map_err(|failure| {
            let failure = Arc::new(failure);
            *last_failure = Some(Arc::clone(&failure));
            slot.failures.fetch_add(1, Ordering::AcqRel);
            failure
        })?;
        let page = Arc::new(Page::new(body, began, generation));
        metrics::counter!("matchday_pages_built_total").increment(1);
        *slot.page.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&page));
        Ok(page)
    }

    /// The page that is there, if its moment is not over.
    fn current(&self, slot: &Slot<E>) -> Option<Arc<Page>> {
        let page = slot.page.read().unwrap_or_else(PoisonError::into_inner).clone()?;
        (page.built.elapsed() < self.keep).then_some(page)
    }

    /// Takes from the page's allowance of early rebuilds.
    fn may_rebuild(&self, slot: &Slot<E>) -> bool {
        let elapsed = i64::try_from(self.began.elapsed().as_micros()).unwrap_or(i64::MAX);
        let mut arrival = slot.rebuilds.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = gcra(REBUILDS, *arrival, elapsed).0;
        *arrival = taken.unwrap_or(*arrival);
        taken.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, io::Read as _};

    use futures_util::future::join_all;

    use super::*;

    struct Counted {
        cache: PageCache<u8, Infallible>,
        builds: Cell<usize>,
    }

    impl Counted {
        fn new() -> Self {
            Self { cache: PageCache::new(Duration::from_secs(1), 10), builds: Cell::new(0) }
        }

        async fn get(&self, key: u8) -> Arc<Page> {
            let build = async || {
                self.builds.set(self.builds.get() + 1);
                tokio::time::sleep(Duration::from_millis(5)).await;
                Ok::<_, Infallible>(Bytes::from(format!("{key}:{}", self.builds.get())))
            };
            match self.cache.get(key, build).await {
                Ok(page) => page,
                Err(never) => match *never {},
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_misses_build_once_per_page() {
        let pages = Counted::new();
        join_all((0..100).map(|n| pages.get(n % 2))).await;
        assert_eq!(pages.builds.get(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_lives_for_its_moment() {
        let pages = Counted::new();
        pages.get(0).await;
        tokio::time::advance(Duration::from_millis(900)).await;
        pages.get(0).await;
        assert_eq!(pages.builds.get(), 1);
        tokio::time::advance(Duration::from_millis(200)).await;
        pages.get(0).await;
        assert_eq!(pages.builds.get(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_shows_at_once_while_changes_are_rare() {
        let pages = Counted::new();
        for expected in 1..=10 {
            assert_eq!(pages.get(0).await.body, format!("0:{expected}"));
            pages.cache.mark_stale();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_hot_page_is_rebuilt_a_bounded_number_of_times() {
        let pages = Counted::new();
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(10) {
            pages.cache.mark_stale();
            pages.get(0).await;
            tokio::time::advance(Duration::from_micros(500)).await;
        }
        let builds = pages.builds.get();
        assert!((150..=230).contains(&builds), "20 a second and a burst of 10, not {builds}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_while_a_page_is_built_leaves_it_stale() {
        let pages = Counted::new();
        let building = pages.get(0);
        let change = async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            pages.cache.mark_stale();
        };
        tokio::join!(building, change);
        pages.get(0).await;
        assert_eq!(pages.builds.get(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_build_is_shared_by_those_who_waited_and_tried_again_by_the_next() {
        let cache: PageCache<u8, &str> = PageCache::new(Duration::from_secs(1), 10);
        let builds = Cell::new(0);
        let fail = async || {
            builds.set(builds.get() + 1);
            tokio::time::sleep(Duration::from_secs(3)).await;
            Err("away")
        };
        let began = Instant::now();
        for outcome in join_all((0..100).map(|_| cache.get(0, fail))).await {
            assert_eq!(*outcome.expect_err("fails"), "away");
        }
        assert_eq!((builds.get(), began.elapsed()), (1, Duration::from_secs(3)), "all wait for the same one");
        assert_eq!(cache.get(0, async || Ok(Bytes::from("back"))).await.expect("built").body, "back");
    }

    #[test]
    fn equal_bodies_have_equal_validators_and_compress_back() {
        let page = |body: &'static str| Page::new(Bytes::from(body), Instant::now(), 0);
        assert_eq!(page("a").etag, page("a").etag);
        assert_ne!(page("a").etag, page("b").etag);
        let mut text = String::new();
        flate2::read::GzDecoder::new(&page("hello").gzipped()[..]).read_to_string(&mut text).expect("gzip");
        assert_eq!(text, "hello");
    }
}
