//! Format of keys, digests of requests, and the responses that are stored.

use http::{HeaderMap, StatusCode, header};
use sha2::{Digest as _, Sha256};
use web::{
    IDEMPOTENCY_KEY, LONGEST_IDEMPOTENCY_KEY,
    ids::{ServerKeyId, UserId},
};

/// Size of the largest response that is stored, in bytes.
pub(super) const LARGEST: u64 = 65_536;

/// Owner of idempotency keys: a user, or a server key, whose id is negated. Ids are positive, so the two never meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, sqlx::Type)]
#[sqlx(transparent)]
pub struct KeyOwner(i64);

impl KeyOwner {
    /// Value of the column `user_id`.
    pub(super) fn column(self) -> i64 {
        self.0
    }

    /// Identifies a request of this owner. The digest for a server key contains the id of that key: the change of a
    /// backend is stored with the user it affects, so digests of two backends must differ.
    pub(super) fn request_key(self, path: &str, key: &[u8]) -> RequestKey {
        if self.0 < 0 {
            RequestKey::of(&format!("key:{} {path}", self.0.unsigned_abs()), key)
        } else {
            RequestKey::of(path, key)
        }
    }
}

impl From<UserId> for KeyOwner {
    fn from(user: UserId) -> Self {
        Self(user.0)
    }
}

impl From<ServerKeyId> for KeyOwner {
    fn from(key: ServerKeyId) -> Self {
        Self(-key.0)
    }
}

/// Identifies a request of a user or a server key across retries; unique per user. Features that store it with their changes find the
/// change again even if the process dies before the response is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestKey(pub [u8; 32]);

impl RequestKey {
    /// Neither a path nor a key can contain a NUL, so different pairs have different digests.
    pub(super) fn of(path: &str, key: &[u8]) -> Self {
        let digest = Sha256::new().chain_update(path).chain_update([0]).chain_update(key);
        Self(digest.finalize().into())
    }
}

/// A request with a key, as features see it that store keys with their effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyedRequest {
    pub owner: KeyOwner,
    pub key: RequestKey,
    /// Distinguishes a retry from another request with the same key.
    pub digest: [u8; 32],
}

/// Returns the client's key if the header is present exactly once and valid.
pub(super) fn read_key(headers: &HeaderMap) -> Option<&[u8]> {
    let mut given = headers.get_all(IDEMPOTENCY_KEY).iter();
    let key = given.next()?.as_bytes();
    let is_valid = (1..=LONGEST_IDEMPOTENCY_KEY).contains(&key.len()) && key.iter().all(u8::is_ascii_graphic);
    (is_valid && given.next().is_none()).then_some(key)
}

/// Distinguishes a retry from another request with the same key. The digest includes the key, because bodies can be
/// guessed: they contain phone numbers and six-digit codes.
pub(super) fn request_digest(key: &[u8], query: Option<&str>, body: &[u8]) -> [u8; 32] {
    let digest = Sha256::new().chain_update(key).chain_update([0]).chain_update(query.unwrap_or_default());
    digest.chain_update([0]).chain_update(body).finalize().into()
}

/// Whether the response is final: it reports a completed change or an error in the request. Responses that refuse a
/// request for now, or because of the caller, may differ on a retry. Responses marked `no-store` are never stored.
pub(super) fn is_storable(status: StatusCode, headers: &HeaderMap) -> bool {
    let directives = headers.get_all(header::CACHE_CONTROL).iter();
    let secret = directives.filter_map(|value| value.to_str().ok()).any(|value| value.contains("no-store"));
    let lasting = status.is_success() || matches!(status.as_u16(), 400 | 404 | 409 | 422);
    lasting && !secret
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn headers(values: &[&[u8]]) -> Option<HeaderMap> {
        let values =
            values.iter().map(|value| HeaderValue::from_bytes(value).ok().map(|value| (IDEMPOTENCY_KEY, value)));
        let mut headers = HeaderMap::new();
        for (name, value) in values.collect::<Option<Vec<_>>>()? {
            headers.append(name, value);
        }
        Some(headers)
    }

    #[test]
    fn key_is_one_header_of_visible_characters() {
        let reads = |values: &[&[u8]]| headers(values).is_some_and(|headers| read_key(&headers).is_some());
        assert!(reads(&[b"a"]) && reads(&[b"\"8e03978e-40d5-43dd-bc93-6894a57f9324\""]) && reads(&[&[b'~'; 255]]));
        assert!(!reads(&[]) && !reads(&[b""]) && !reads(&[&[b'x'; 256]]) && !reads(&[b"two words"]));
        assert!(!reads(&["ñ".as_bytes()]) && !reads(&[b"tab\there"]) && !reads(&[b"a", b"a"]));
    }

    #[test]
    fn only_final_responses_are_stored() {
        let stored: Vec<u16> = (100..=599)
            .filter(|&code| StatusCode::from_u16(code).is_ok_and(|status| is_storable(status, &HeaderMap::new())))
            .filter(|code| *code >= 300)
            .collect();
        assert_eq!(stored, [400, 404, 409, 422]);
        assert!(is_storable(StatusCode::OK, &HeaderMap::new()) && is_storable(StatusCode::CREATED, &HeaderMap::new()));
        let secret = HeaderMap::from_iter([(header::CACHE_CONTROL, HeaderValue::from_static("private, no-store"))]);
        assert!(!is_storable(StatusCode::OK, &secret));
    }

    proptest! {
        #[test]
        fn reading_key_never_panics(values in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..3)) {
            let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
            if let Some(headers) = headers(&values)
                && let Some(key) = read_key(&headers)
            {
                prop_assert!(values == [key] && key.len() <= LONGEST_IDEMPOTENCY_KEY && key.is_ascii());
            }
        }

        #[test]
        fn different_requests_have_different_digests(
            (path, other_path) in ("/[a-z/]{0,8}", "/[a-z/]{0,8}"),
            (key, other_key) in ("[!-~]{1,8}", "[!-~]{1,8}"),
            (query, other_query) in ("[a-z=&]{0,8}", "[a-z=&]{0,8}"),
            (body, other_body) in (prop::collection::vec(any::<u8>(), 0..8), prop::collection::vec(any::<u8>(), 0..8)),
        ) {
            let same = RequestKey::of(&path, key.as_bytes()) == RequestKey::of(&other_path, other_key.as_bytes());
            prop_assert_eq!(same, path == other_path && key == other_key);
            let digest = request_digest(key.as_bytes(), Some(&query), &body);
            let same = digest == request_digest(other_key.as_bytes(), Some(&other_query), &other_body);
            prop_assert_eq!(same, key == other_key && query == other_query && body == other_body);
        }
    }
}
