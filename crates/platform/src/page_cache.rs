//! Cache of lists that are the same for every user, built once and served as bytes.
//!
//! A page is kept for a short time (`pages.keep`). A change marks every page stale, and the next request rebuilds a
//! stale page. A page that is rebuilt too often is served stale until it expires. So a quiet system is always fresh,
//! and on a busy one the database sees a bounded number of queries per distinct page and process, however many users
//! send requests.
//!
//! Callers choose the keys, so the pages are bounded by their bytes, and expired ones are released.

use std::{
    convert::Infallible,
    hash::Hash,
    io::Write as _,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::HeaderValue;
use quick_cache::{DefaultHashBuilder, OptionsBuilder, sync::DefaultLifecycle};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::rate_limit::{Limit, gcra};

crate::section! {
    /// Cache of lists that are the same for every user.
    pages: Settings {
        /// Time for which a page is served without rebuilding it.
        keep: Duration = "1s",
    }
}

/// Rate limit of early rebuilds of one stale page.
const REBUILDS: Limit = Limit { name: "page_rebuilds", burst: 10, every: Duration::from_millis(50) };

/// Number of pages that share a build at the same time.
const BUILDS: usize = 2_000;

/// Expected number of pages.
const EXPECTED_PAGES: usize = 256;

/// Bytes of a page besides its bodies: key, validator and counters.
const AROUND_BODIES: usize = 512;

/// A page ready to be served.
#[derive(Debug)]
pub struct Page {
    pub body: Bytes,
    /// Weak validator of the body.
    pub etag: HeaderValue,
    gzipped: OnceLock<Bytes>,
    built: Instant,
    generation: u64,
}

impl Page {
    /// A page that does not change while the process runs.
    pub fn fixed(body: &[u8]) -> Self {
        Self::new(body, Instant::now(), 0)
    }

    fn new(body: &[u8], built: Instant, generation: u64) -> Self {
        // Without the spare capacity of the buffer that it was written to.
        let body = Bytes::copy_from_slice(body);
        let digest = hex::encode(&Sha256::digest(&body)[..8]);
        let etag = HeaderValue::try_from(format!("W/\"{digest}\"")).unwrap_or(HeaderValue::from_static("W/\"0\""));
        Self { body, etag, gzipped: OnceLock::new(), built, generation }
    }

    /// Compressed body, computed once for all requests. Not for pages of [`PageCache::uncompressed`].
    pub fn gzipped(&self) -> Bytes {
        self.gzipped
            .get_or_init(|| {
                let mut encoder = GzEncoder::new(Vec::with_capacity(self.body.len() / 4), Compression::default());
                // Writing to memory cannot fail.
                let _ = encoder.write_all(&self.body);
                Bytes::from(encoder.finish().unwrap_or_default().into_boxed_slice())
            })
            .clone()
    }
}

/// Counts the bytes of pages. A compressed body is counted from the start, because a weight must not change, and as large
/// as the body.
#[derive(Clone, Debug)]
struct ByBytes {
    /// Number of bodies that a page can have: plain and compressed, or only plain.
    bodies: usize,
}

impl<K> quick_cache::Weighter<K, Arc<Page>> for ByBytes {
    fn weight(&self, _: &K, page: &Arc<Page>) -> u64 {
        (AROUND_BODIES + self.bodies * page.body.len()) as u64
    }
}

/// Pages of one list, by query.
pub struct PageCache<K, E> {
    kept: Arc<Kept<K>>,
    builds: quick_cache::sync::Cache<K, Arc<Build<E>>>,
    generation: AtomicU64,
    keep: Duration,
    began: Instant,
}

struct Kept<K> {
    pages: quick_cache::sync::Cache<K, Arc<Page>, ByBytes>,
    /// Whether a task releases expired pages.
    is_swept: AtomicBool,
}

struct Build<E> {
    /// Serialises builds. Holds the error of the last failed build.
    building: tokio::sync::Mutex<Option<Arc<E>>>,
    failures: AtomicU64,
    /// GCRA arrival time of `REBUILDS`.
    rebuilds: Mutex<i64>,
}

impl<E> Default for Build<E> {
    fn default() -> Self {
        Self { building: tokio::sync::Mutex::default(), failures: AtomicU64::default(), rebuilds: Mutex::default() }
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static, E> PageCache<K, E> {
    /// Creates a cache of pages with at most this number of bytes.
    pub fn new(keep: Duration, bytes: u64) -> Self {
        Self::of(keep, bytes, ByBytes { bodies: 2 })
    }

    /// The same for pages that are never compressed: only their plain bodies count.
    pub fn uncompressed(keep: Duration, bytes: u64) -> Self {
        Self::of(keep, bytes, ByBytes { bodies: 1 })
    }

    fn of(keep: Duration, bytes: u64, weighter: ByBytes) -> Self {
        // With several shards, each would have a part of the bytes only, and refuse a page that is larger.
        let options = OptionsBuilder::new()
            .shards(1)
            .estimated_items_capacity(EXPECTED_PAGES)
            .weight_capacity(bytes)
            .build()
            .expect("both capacities are set");
        let (hasher, lifecycle) = (DefaultHashBuilder::default(), DefaultLifecycle::default());
        let pages = quick_cache::sync::Cache::with_options(options, weighter, hasher, lifecycle);
        Self {
            kept: Arc::new(Kept { pages, is_swept: AtomicBool::new(false) }),
            builds: quick_cache::sync::Cache::new(BUILDS),
            generation: AtomicU64::new(0),
            keep,
            began: Instant::now(),
        }
    }

    /// Marks all pages stale after a change.
    pub fn mark_stale(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the number of pages and their bytes.
    pub fn size(&self) -> (usize, u64) {
        (self.kept.pages.len(), self.kept.pages.weight())
    }

    /// Returns the page for this query if it is current.
    pub fn ready(&self, key: &K) -> Option<Arc<Page>> {
        let wanted = self.generation.load(Ordering::Acquire);
        self.current(key).filter(|page| page.generation >= wanted)
    }

    /// Returns the page for this query, building it if necessary. Concurrent requests wait for the same build and share
    /// its failure too: otherwise each of them in turn would wait for an unavailable database.
    pub async fn get(&self, key: K, build: impl AsyncFnOnce() -> Result<Bytes, E>) -> Result<Arc<Page>, Arc<E>> {
        // A change announced before this request must be visible in its response; a change announced while it waits
        // need not be.
        let wanted = self.generation.load(Ordering::Acquire);
        match self.current(&key) {
            Some(page) if page.generation >= wanted => Ok(page),
            // Boxed, so cache hits do not carry the size of the build future.
            _ => Box::pin(self.rebuild(key, wanted, build)).await,
        }
    }

    async fn rebuild(
        &self,
        key: K,
        wanted: u64,
        build: impl AsyncFnOnce() -> Result<Bytes, E>,
    ) -> Result<Arc<Page>, Arc<E>> {
        let Ok(of_key) = self.builds.get_or_insert_with(&key, || Ok::<_, Infallible>(Arc::<Build<E>>::default()));
        let failures = of_key.failures.load(Ordering::Acquire);
        let mut last_failure = of_key.building.lock().await;
        if let Some(page) = self.current(&key)
            && (page.generation >= wanted || !self.may_rebuild(&of_key))
        {
            return Ok(page);
        }
        if of_key.failures.load(Ordering::Acquire) > failures
            && let Some(failure) = &*last_failure
        {
            return Err(Arc::clone(failure));
        }
        // Read before building, so a change during the build leaves the new page stale.
        let (generation, began) = (self.generation.load(Ordering::Acquire), Instant::now());
        let body = build().await.map_err(|failure| {
            let failure = Arc::new(failure);
            *last_failure = Some(Arc::clone(&failure));
            of_key.failures.fetch_add(1, Ordering::AcqRel);
            failure
        })?;
        let page = Arc::new(Page::new(&body, began, generation));
        metrics::counter!("matchday_pages_built_total").increment(1);
        self.kept.pages.insert(key, Arc::clone(&page));
        if !self.kept.is_swept.swap(true, Ordering::AcqRel) {
            tokio::spawn(sweep(Arc::downgrade(&self.kept), self.keep));
        }
        Ok(page)
    }

    /// Returns the cached page, unless it has expired.
    fn current(&self, key: &K) -> Option<Arc<Page>> {
        self.kept.pages.get(key).filter(|page| page.built.elapsed() < self.keep)
    }

    /// Whether a stale page may be rebuilt early. Consumes one attempt of `REBUILDS` if so.
    fn may_rebuild(&self, of_key: &Build<E>) -> bool {
        let elapsed = i64::try_from(self.began.elapsed().as_micros()).unwrap_or(i64::MAX);
        let mut arrival = of_key.rebuilds.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = gcra(REBUILDS, *arrival, elapsed).0;
        *arrival = taken.unwrap_or(*arrival);
        taken.is_some()
    }
}

/// Releases pages when they expire, also if no request follows, until there are none.
async fn sweep<K: Hash + Eq>(kept: Weak<Kept<K>>, keep: Duration) {
    loop {
        tokio::time::sleep(keep).await;
        let Some(kept) = kept.upgrade() else { return };
        kept.pages.retain(|_, page| page.built.elapsed() < keep);
        if kept.pages.is_empty() {
            kept.is_swept.store(false, Ordering::Release);
            // A page that was added in between may have no sweeper.
            if kept.pages.is_empty() || kept.is_swept.swap(true, Ordering::AcqRel) {
                return;
            }
        }
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
            Self { cache: PageCache::new(Duration::from_secs(1), 1_000_000), builds: Cell::new(0) }
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
    async fn page_expires_after_its_time() {
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
    async fn rare_change_is_visible_immediately() {
        let pages = Counted::new();
        for expected in 1..=10 {
            assert_eq!(pages.get(0).await.body, format!("0:{expected}"));
            pages.cache.mark_stale();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn rebuilds_of_a_hot_page_are_bounded() {
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
    async fn change_during_build_leaves_page_stale() {
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
    async fn failed_build_is_shared_then_retried() {
        let cache: PageCache<u8, &str> = PageCache::new(Duration::from_secs(1), 1_000_000);
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
        assert_eq!((builds.get(), began.elapsed()), (1, Duration::from_secs(3)), "all wait for the same build");
        assert_eq!(cache.get(0, async || Ok(Bytes::from("back"))).await.expect("built").body, "back");
    }

    /// A body that cannot be compressed.
    fn random_body(key: u32, bytes: usize) -> Bytes {
        let blocks = (0_u32..).map(|block| Sha256::digest([key.to_be_bytes(), block.to_be_bytes()].concat()));
        blocks.flatten().take(bytes).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_stay_bounded_with_any_number_of_keys() {
        const BOUND: u64 = 4_000_000;
        let cache: PageCache<u32, Infallible> = PageCache::new(Duration::from_secs(1), BOUND);
        let mut kept = 0;
        for key in 0..2_000 {
            let body = random_body(key, if key % 2 == 0 { 20_000 } else { 10 });
            let Ok(page) = cache.get(key, async || Ok(body)).await else { unreachable!() };
            page.gzipped();
            let held =
                cache.kept.pages.iter().map(|(_, page)| page.body.len() + page.gzipped().len() + size_of::<Page>());
            let (pages, bytes) = cache.size();
            assert!(held.sum::<usize>() as u64 <= bytes && bytes <= BOUND, "{pages} pages count as {bytes} bytes");
            kept = kept.max(pages);
        }
        assert!(kept >= 50, "only {kept} pages fit");
    }

    #[tokio::test(start_paused = true)]
    async fn page_that_needs_most_of_the_bytes_is_kept() {
        const BOUND: u64 = 1_000_000;
        let keep = Duration::from_secs(1);
        let caches: [(PageCache<u8, Infallible>, usize); 2] =
            [(PageCache::new(keep, BOUND), 450_000), (PageCache::uncompressed(keep, BOUND), 900_000)];
        for (cache, bytes) in caches {
            let Ok(page) = cache.get(0, async || Ok(random_body(0, bytes))).await else { unreachable!() };
            assert_eq!((page.body.len(), cache.size()), (bytes, (1, 900_000 + AROUND_BODIES as u64)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn expired_pages_are_released_without_a_request() {
        let cache: PageCache<u8, Infallible> = PageCache::new(Duration::from_secs(1), 1_000_000);
        for _ in 0..2 {
            let Ok(served) = cache.get(0, async || Ok(random_body(0, 1_000))).await else { unreachable!() };
            served.gzipped();
            let page = Arc::downgrade(&served);
            drop(served);
            tokio::time::sleep(Duration::from_millis(500)).await;
            assert!(page.upgrade().is_some() && cache.size().0 == 1);
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert!(page.upgrade().is_none() && cache.size() == (0, 0), "body and compressed body are released");
        }
    }

    #[test]
    fn equal_bodies_have_equal_validators() {
        let page = |body: &'static str| Page::fixed(body.as_bytes());
        assert_eq!(page("a").etag, page("a").etag);
        assert_ne!(page("a").etag, page("b").etag);
        let mut text = String::new();
        flate2::read::GzDecoder::new(&page("hello").gzipped()[..]).read_to_string(&mut text).expect("gzip");
        assert_eq!(text, "hello");
    }
}
