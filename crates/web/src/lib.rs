//! HTTP conventions shared by all endpoints: errors, extractors, paging, limits, the server, and common parts of the
//! OpenAPI description.

mod cached;
mod client;
mod edge;
mod error;
mod extract;
pub mod fields;
pub mod health;
pub mod ids;
mod limits;
pub mod openapi;
pub mod paging;
pub mod server;
pub mod settings;

use std::future::{Ready, ready};

use http::{HeaderName, HeaderValue, StatusCode, header};
use ipnet::IpNet;

pub use cached::{Wanted, page_response};
pub use client::for_this_peer;
pub use client::{ClientAddress, ClientNetwork, PEER};
pub use edge::{Edge, EdgeSettings, Shortcut};
pub use edge::{overloaded, too_late};
pub use error::{ApiError, ErrorBody, ErrorCode, retry_after};
pub use extract::{BodyLimit, OptionalJson, Path, Query, RawBody, SecondPath, ValidJson, read_body};
pub use limits::{LimitHeadersLayer, permitted, state_limit};

/// Header with the idempotency key of a request, which is then performed once, however often it is sent.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Maximum length of an [`IDEMPOTENCY_KEY`] value.
pub const LONGEST_IDEMPOTENCY_KEY: usize = 255;

/// Header for responses with secrets, so no cache stores them.
pub const NO_STORE: (HeaderName, HeaderValue) = (header::CACHE_CONTROL, HeaderValue::from_static("no-store"));

/// Settings that extractors read from a router's state.
pub trait WebState: Clone + Send + Sync + 'static {
    /// Maximum size of a body in bytes.
    fn body_limit(&self) -> usize;

    /// Networks of proxies whose `X-Forwarded-For` is trusted.
    fn trusted_proxies(&self) -> &[IpNet];
}

pub fn unknown_route() -> Ready<ApiError> {
    ready(ApiError::new(StatusCode::NOT_FOUND, "unknown_route", "This path does not exist."))
}

pub fn wrong_method() -> Ready<ApiError> {
    ready(ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "This path does not allow this method."))
}
