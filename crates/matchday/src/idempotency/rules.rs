//! What a key is, what it stands for, and which answers are worth keeping.

use http::{HeaderMap, StatusCode, header};
use sha2::{Digest as _, Sha256};
use web::{IDEMPOTENCY_KEY, LONGEST_IDEMPOTENCY_KEY};

/// The largest answer that is kept, in bytes.
pub(super) const LARGEST: u64 = 65_536;

/// Which request of its user this is, however often it is sent: for those who write down what was done with what it was
/// done for, so that it is found even if the process dies before the answer is kept. It is unique with the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestKey(pub [u8; 32]);

impl RequestKey {
    /// Neither a path nor a key can hold a NUL, so that no two pairs look the same.
    pub(super) fn of(path: &str, key: &[u8]) -> Self {
        let digest = Sha256::new().chain_update(path).chain_update([0]).chain_update(key);
        Self(digest.finalize().into())
    }
}

/// The client's key, if there is exactly one and it is one.
pub(super) fn read_key(headers: &HeaderMap) -> Option<&[u8]> {
    let mut given = headers.get_all(IDEMPOTENCY_KEY).iter();
    let key = given.next()?.as_bytes();
    let is_key = (1..=LONGEST_IDEMPOTENCY_KEY).contains(&key.len()) && key.iter().all(u8::is_ascii_graphic);
    (is_key && given.next().is_none()).then_some(key)
}

/// What tells a repetition from another request under the same key. The key is part of it, because bodies can be guessed:
/// they hold phones, and codes of six digits.
pub(super) fn request_digest(key: &[u8], query: Option<&str>, body: &[u8]) -> [u8; 32] {
    let digest = Sha256::new().chain_update(key).chain_update([0]).chain_update(query.unwrap_or_default());
    digest.chain_update([0]).chain_update(body).finalize().into()
}

/// Whether this is what the request will be answered for good: what was done, or what is wrong with the request itself.
/// Whatever says "not now", or "not you", may be another answer next time. What must not be stored is not stored here.
pub(super) fn is_kept(status: StatusCode, headers: &HeaderMap) -> bool {
    let told = headers.get_all(header::CACHE_CONTROL).iter();
    let secret = told.filter_map(|value| value.to_str().ok()).any(|value| value.contains("no-store"));
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
    fn a_key_is_one_to_255_visible_characters_given_once() {
        let reads = |values: &[&[u8]]| headers(values).is_some_and(|headers| read_key(&headers).is_some());
        assert!(reads(&[b"a"]) && reads(&[b"\"8e03978e-40d5-43dd-bc93-6894a57f9324\""]) && reads(&[&[b'~'; 255]]));
        assert!(!reads(&[]) && !reads(&[b""]) && !reads(&[&[b'x'; 256]]) && !reads(&[b"two words"]));
        assert!(!reads(&["ñ".as_bytes()]) && !reads(&[b"tab\there"]) && !reads(&[b"a", b"a"]));
    }

    #[test]
    fn what_says_not_now_or_not_you_is_not_kept() {
        let kept: Vec<u16> = (100..=599)
            .filter(|&code| StatusCode::from_u16(code).is_ok_and(|status| is_kept(status, &HeaderMap::new())))
            .filter(|code| *code >= 300)
            .collect();
        assert_eq!(kept, [400, 404, 409, 422]);
        assert!(is_kept(StatusCode::OK, &HeaderMap::new()) && is_kept(StatusCode::CREATED, &HeaderMap::new()));
        let secret = HeaderMap::from_iter([(header::CACHE_CONTROL, HeaderValue::from_static("private, no-store"))]);
        assert!(!is_kept(StatusCode::OK, &secret));
    }

    proptest! {
        #[test]
        fn no_header_bytes_make_it_panic(values in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..3)) {
            let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
            if let Some(headers) = headers(&values)
                && let Some(key) = read_key(&headers)
            {
                prop_assert!(values == [key] && key.len() <= LONGEST_IDEMPOTENCY_KEY && key.is_ascii());
            }
        }

        #[test]
        fn other_requests_have_other_digests(
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
