//! Responses from the page cache, with a validator and a body compressed in advance.

use std::convert::Infallible;

use axum::{body::Body, extract::FromRequestParts, response::Response};
use http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts};
use platform::page_cache::Page;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// Clients may store the response but must revalidate it, which costs a 304.
const REVALIDATE: HeaderValue = HeaderValue::from_static("private, no-cache");
const GZIP: HeaderValue = HeaderValue::from_static("gzip");
const VARY: HeaderValue = HeaderValue::from_static("accept-encoding");

/// Conditional and encoding headers of a request for a cached page.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Validator of the client's copy (`If-None-Match`).
    unless: Option<HeaderValue>,
    gzip: bool,
}

impl Wanted {
    pub fn of(headers: &HeaderMap) -> Self {
        Self {
            unless: headers.get(header::IF_NONE_MATCH).cloned(),
            gzip: headers.get(header::ACCEPT_ENCODING).is_some_and(takes_gzip),
        }
    }

    /// Whether the client's copy has this validator.
    pub fn is_unchanged(&self, etag: &HeaderValue) -> bool {
        self.unless.as_ref().is_some_and(|unless| matches(unless, etag))
    }
}

impl<S: Sync> FromRequestParts<S> for Wanted {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.headers))
    }
}

/// Builds a response: 304, compressed or plain.
pub fn page_response(page: &Page, wanted: &Wanted) -> Response {
    let unchanged = wanted.is_unchanged(&page.etag);
    let mut response = Response::new(match (unchanged, wanted.gzip) {
        (true, _) => Body::empty(),
        (false, true) => Body::from(page.gzipped()),
        (false, false) => Body::from(page.body.clone()),
    });
    let headers = response.headers_mut();
    headers.reserve(8);
    headers.insert(header::ETAG, page.etag.clone());
    headers.insert(header::CACHE_CONTROL, REVALIDATE);
    headers.insert(header::VARY, VARY);
    if unchanged {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    } else {
        headers.insert(header::CONTENT_TYPE, JSON);
        if wanted.gzip {
            headers.insert(header::CONTENT_ENCODING, GZIP);
        }
    }
    response
}

/// Weak comparison, which ignores the prefix `W/`.
fn matches(wanted: &HeaderValue, etag: &HeaderValue) -> bool {
    let bare = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    match (wanted.to_str(), etag.to_str()) {
        (Ok("*"), _) => true,
        (Ok(wanted), Ok(etag)) => wanted.split(',').any(|tag| bare(tag) == bare(etag)),
        _ => false,
    }
}

fn takes_gzip(accepted: &HeaderValue) -> bool {
    let Ok(accepted) = accepted.to_str() else { return false };
    accepted.split(',').any(|offer| {
        let mut parts = offer.split(';').map(str::trim);
        let named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let refused =
            parts.any(|part| part.strip_prefix("q=").and_then(|q| q.parse::<f32>().ok()).is_some_and(|q| q == 0.0));
        named && !refused
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn arbitrary_validators_and_encodings_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(header) = HeaderValue::from_bytes(&bytes) {
                matches(&header, &HeaderValue::from_static("W/\"ab\""));
                takes_gzip(&header);
            }
        }

        #[test]
        fn validator_is_found_in_any_list(
            before in "[ -+\\--~]{0,30}", after in "[ -~]{0,30}", tag in "[0-9a-f]{1,16}",
        ) {
            let etag = HeaderValue::try_from(format!("W/\"{tag}\"")).expect("a header");
            let list = HeaderValue::try_from(format!("{before}, \"{tag}\",{after}")).expect("a header");
            prop_assert!(matches(&list, &etag));
            let other = HeaderValue::try_from(format!("\"{tag}x\"")).expect("a header");
            prop_assert!(!matches(&other, &etag));
        }
    }

    #[test]
    fn validators_match_weakly_and_in_lists() {
        let etag = HeaderValue::from_static("W/\"ab\"");
        for (wanted, expected) in [
            ("W/\"ab\"", true),
            ("\"ab\"", true),
            ("\"x\", W/\"ab\"", true),
            ("*", true),
            ("\"a\"", false),
            ("", false),
        ] {
            assert_eq!(matches(&HeaderValue::from_static(wanted), &etag), expected, "{wanted}");
        }
    }

    #[test]
    fn gzip_is_used_only_if_accepted() {
        for (accepted, expected) in
            [("gzip, br", true), ("br;q=1, GZIP;q=0.5", true), ("gzip;q=0", false), ("identity", false), ("", false)]
        {
            assert_eq!(takes_gzip(&HeaderValue::from_static(accepted)), expected, "{accepted}");
        }
    }
}
