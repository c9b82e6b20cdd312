//! HTTP conventions that every endpoint shares: errors, extractors, paging, limits, the server, the frame of the OpenAPI
//! description.

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
pub use client::{ClientNetwork, PEER};
pub use edge::{Edge, EdgeSettings};
pub use edge::{overloaded, too_late};
pub use error::{ApiError, ErrorBody, retry_after};
pub use extract::{Path, Query, RawBody, ValidJson};
pub use limits::{LimitHeadersLayer, permitted, state_limit};

/// The header that names a request, so that it happens once however often it is sent.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The longest value of [`IDEMPOTENCY_KEY`].
pub const LONGEST_IDEMPOTENCY_KEY: usize = 255;

/// On answers that hold what is shown once, so that nobody on the way keeps it.
pub const NO_STORE: (HeaderName, HeaderValue) = (header::CACHE_CONTROL, HeaderValue::from_static("no-store"));

/// Settings that extractors read from a router's state.
pub trait WebState: Clone + Send + Sync + 'static {
    /// The largest body that is read, in bytes.
    fn body_limit(&self) -> usize;

    /// Networks of proxies whose `X-Forwarded-For` is believed.
    fn trusted_proxies(&self) -> &[IpNet];
}

pub fn unknown_route() -> Ready<ApiError> {
    ready(ApiError::new(StatusCode::NOT_FOUND, "unknown_route", "There is nothing at this path."))
}

pub fn wrong_method() -> Ready<ApiError> {
    ready(ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "This path does not take this method."))
}
