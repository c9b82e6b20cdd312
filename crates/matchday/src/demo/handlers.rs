//! HTTP handler for crests.

use axum::{extract::State, response::Response};
use http::{HeaderValue, header};
use platform::Environment;
use web::{ApiError, Path};

use super::crests;

/// Returns a team's crest; only in environments that allow development helpers.
pub(super) async fn get_crest(State(env): State<Environment>, Path(file): Path<String>) -> Result<Response, ApiError> {
    let slug = file.strip_suffix(".svg").filter(|_| env.is_development());
    let svg = slug.and_then(crests::crest).ok_or_else(|| ApiError::not_found("The crest"))?;
    let mut answer = Response::new(svg.into());
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("image/svg+xml"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=86400"));
    Ok(answer)
}
