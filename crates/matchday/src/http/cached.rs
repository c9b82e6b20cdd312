//! Answers from the page cache: a validator, and compression that was done once.

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};

use crate::platform::page_cache::Page;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// Clients may keep it but must ask whether it still holds; that question costs a 304.
const REVALIDATE: HeaderValue = HeaderValue::from_static("private, no-cache");
const VARY: HeaderValue = HeaderValue::from_static("accept-encoding");

/// The page, as the request's headers want it.
pub fn page_response(page: &Arc<Page>, request: &HeaderMap) -> Response {
    if request.get(header::IF_NONE_MATCH).is_some_and(|wanted| matches(wanted, &page.etag)) {
        let headers = [(header::ETAG, page.etag.clone()), (header::CACHE_CONTROL, REVALIDATE), (header::VARY, VARY)];
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    let headers = [
        (header::CONTENT_TYPE, JSON),
        (header::ETAG, page.etag.clone()),
        (header::CACHE_CONTROL, REVALIDATE),
        (header::VARY, VARY),
    ];
    if request.get(header::ACCEPT_ENCODING).is_some_and(takes_gzip) {
        let encoding = [(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"))];
        (headers, encoding, page.gzipped()).into_response()
    } else {
        (headers, page.body.clone()).into_response()
    }
}

/// Weak comparison: `W/` does not count.
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
    use super::*;

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
    fn gzip_only_where_it_is_accepted() {
        for (accepted, expected) in
            [("gzip, br", true), ("br;q=1, GZIP;q=0.5", true), ("gzip;q=0", false), ("identity", false), ("", false)]
        {
            assert_eq!(takes_gzip(&HeaderValue::from_static(accepted)), expected, "{accepted}");
        }
    }
}
