//! Signing keys of the identity provider (JWKS), read from a URL or a file and cached in memory.
//!
//! - Keys are read when the first token needs one, when they are an hour old, and when a token names an unknown key.
//! - Reads are at least 30 seconds apart, one at a time. So tokens with invented key ids cannot make the service call
//!   the provider more often.
//! - If a read fails, the previous keys stay in use for up to a day.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Duration as StdDuration,
};

use jsonwebtoken::{
    Algorithm, AlgorithmFamily, DecodingKey,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse},
};
use reqwest::redirect;
use serde::Deserialize;
use time::{Duration, OffsetDateTime};
use tokio::sync::Mutex;
use url::Url;

/// Age after which keys are read again.
const FRESH: Duration = Duration::HOUR;
/// Age after which keys are no longer used.
const USABLE: Duration = Duration::DAY;
/// Minimum time between two reads.
const PAUSE: Duration = Duration::seconds(30);
/// Maximum duration of a read. A request waits for it.
const TIMEOUT: StdDuration = StdDuration::from_secs(5);
/// Maximum size of a key set.
const MOST_BYTES: usize = 256 * 1024;
/// Maximum number of keys that are kept from a set.
const MOST_KEYS: usize = 100;

#[derive(Clone, Debug)]
pub(super) enum Source {
    Url(Url),
    File(PathBuf),
}

/// Reason why no key was found for a token.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoKey {
    /// The set does not contain the key.
    Unknown,
    /// No set is usable: it was never read, or the last successful read is too old.
    Unavailable,
}

pub(super) struct Keys {
    source: Source,
    client: reqwest::Client,
    set: RwLock<Option<Set>>,
    /// Time of the last attempt to read. Only the holder of the lock may read.
    tried_at: Mutex<Option<OffsetDateTime>>,
}

#[derive(Clone)]
struct Set {
    keys: Arc<Vec<Jwk>>,
    read_at: OffsetDateTime,
}

#[derive(Deserialize)]
struct Document {
    keys: Vec<serde_json::Value>,
}

impl Keys {
    pub(super) fn new(source: Source) -> reqwest::Result<Self> {
        let client = reqwest::Client::builder()
            .timeout(TIMEOUT)
            .redirect(redirect::Policy::none())
            .user_agent(concat!("matchday/", env!("CARGO_PKG_VERSION")))
            .build()?;
        Ok(Self { source, client, set: RwLock::default(), tried_at: Mutex::default() })
    }

    /// Returns the key with which a token with this header must be signed.
    pub(super) async fn find(
        &self,
        id: Option<&str>,
        of: Algorithm,
        now: OffsetDateTime,
    ) -> Result<DecodingKey, NoKey> {
        if let Some(set) = self.known()
            && now - set.read_at < FRESH
            && let Some(key) = set.key(id, of)
        {
            return Ok(key);
        }
        self.refresh(now).await;
        let set = self.known().filter(|set| now - set.read_at < USABLE).ok_or(NoKey::Unavailable)?;
        set.key(id, of).ok_or(NoKey::Unknown)
    }

    fn known(&self) -> Option<Set> {
        self.set.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the keys, unless the last attempt is too recent. Requests that waited for the lock use the keys that the
    /// first one read.
    async fn refresh(&self, now: OffsetDateTime) {
        let mut tried_at = self.tried_at.lock().await;
        if tried_at.is_some_and(|tried_at| now - tried_at < PAUSE) {
            return;
        }
        *tried_at = Some(now);
        match self.read().await {
            Ok(keys) => {
                tracing::debug!(keys = keys.len(), "console signing keys read");
                let set = Set { keys: Arc::new(keys), read_at: now };
                *self.set.write().unwrap_or_else(PoisonError::into_inner) = Some(set);
            }
            Err(error) => {
                tracing::warn!(
                    error = %format_args!("{error:#}"),
                    source = %self.source,
                    "console signing keys could not be read"
                );
            }
        }
    }

    /// Reads a key file once, because a process with a wrong path must not start. A URL is not checked, because the
    /// provider may be down when the service starts.
    pub(super) async fn check(&self) -> anyhow::Result<()> {
        match &self.source {
            Source::File(_) => self.read().await.map(|_| ()),
            Source::Url(_) => Ok(()),
        }
    }

    async fn read(&self) -> anyhow::Result<Vec<Jwk>> {
        let bytes = match &self.source {
            Source::Url(url) => self.fetch(url).await?,
            Source::File(path) => {
                let path = path.clone();
                tokio::task::spawn_blocking(move || read_file(&path)).await??
            }
        };
        parse(&bytes)
    }

    async fn fetch(&self, url: &Url) -> anyhow::Result<Vec<u8>> {
        let mut response = self.client.get(url.clone()).send().await?.error_for_status()?;
        anyhow::ensure!(response.status().is_success(), "unexpected status {}", response.status());
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            bytes.extend_from_slice(&chunk);
            anyhow::ensure!(bytes.len() <= MOST_BYTES, "the document is larger than {MOST_BYTES} bytes");
        }
        Ok(bytes)
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Url(url) => url.fmt(formatter),
            Self::File(path) => path.display().fmt(formatter),
        }
    }
}

fn read_file(path: &Path) -> anyhow::Result<Vec<u8>> {
    use std::io::Read as _;

    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    anyhow::ensure!(bytes.len() <= MOST_BYTES, "the document is larger than {MOST_BYTES} bytes");
    Ok(bytes)
}

/// Keeps the public keys that can verify signatures. Keys of unknown types are skipped, as RFC 7517 (section 5)
/// requires: a provider may add them at any time.
fn parse(bytes: &[u8]) -> anyhow::Result<Vec<Jwk>> {
    let document: Document = serde_json::from_slice(bytes)?;
    let keys: Vec<Jwk> = document
        .keys
        .into_iter()
        .filter_map(|key| serde_json::from_value(key).ok())
        .filter(verifies)
        .take(MOST_KEYS)
        .collect();
    anyhow::ensure!(!keys.is_empty(), "the document has no key that can verify a signature");
    Ok(keys)
}

fn verifies(key: &Jwk) -> bool {
    let is_public = !matches!(key.algorithm, AlgorithmParameters::OctetKey(_));
    let is_for_signatures = matches!(key.common.public_key_use, None | Some(PublicKeyUse::Signature));
    let operations = key.common.key_operations.as_ref();
    is_public && is_for_signatures && operations.is_none_or(|operations| operations.contains(&KeyOperations::Verify))
}

impl Set {
    /// Returns the key with this id. Without an id, returns the key if exactly one fits the algorithm.
    fn key(&self, id: Option<&str>, of: Algorithm) -> Option<DecodingKey> {
        let mut fitting = self.keys.iter().filter(|key| fits(key, of));
        let key = if let Some(id) = id {
            fitting.find(|key| key.common.key_id.as_deref() == Some(id))?
        } else {
            let only = fitting.next()?;
            if fitting.next().is_some() {
                return None;
            }
            only
        };
        DecodingKey::from_jwk(key).ok()
    }
}

/// Whether a key may be used with an algorithm. The key decides, not the token: otherwise the sender of a token could
/// choose how its signature is checked.
fn fits(key: &Jwk, of: Algorithm) -> bool {
    let by_type = match &key.algorithm {
        AlgorithmParameters::RSA(_) => of.family() == AlgorithmFamily::Rsa,
        AlgorithmParameters::EllipticCurve(curve) => match of {
            Algorithm::ES256 => curve.curve == EllipticCurve::P256,
            Algorithm::ES384 => curve.curve == EllipticCurve::P384,
            _ => false,
        },
        AlgorithmParameters::OctetKeyPair(pair) => of == Algorithm::EdDSA && pair.curve == EllipticCurve::Ed25519,
        AlgorithmParameters::OctetKey(_) => false,
    };
    by_type && key.common.key_algorithm.is_none_or(|algorithm| algorithm.to_string() == format!("{of:?}"))
}
