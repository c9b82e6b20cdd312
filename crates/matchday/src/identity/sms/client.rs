//! HTTP client for providers: follows no redirects, enforces a timeout and limits the size of responses.

use std::time::Duration;

use reqwest::{Client, RequestBuilder, Response, StatusCode, header::RETRY_AFTER, redirect};
use url::Url;

use super::provider::{SendError, SetupError};

/// Maximum size of a response body. Providers send about one kilobyte.
const LONGEST_BODY: usize = 64 * 1024;
/// Upper bound for `Retry-After`. No user waits longer than this for a code.
const LONGEST_WAIT: Duration = Duration::from_hours(1);

/// A response that is neither a redirect nor a server error or rate limit.
pub(super) struct ProviderResponse {
    pub(super) status: StatusCode,
    pub(super) body: Vec<u8>,
}

/// Builds a client for a provider whose requests take at most `timeout`.
pub(super) fn build(timeout: Duration) -> Result<Client, SetupError> {
    Client::builder()
        // A redirect could send the number, the text and possibly the credentials to another host.
        .redirect(redirect::Policy::none())
        // Shorter than the timeout of the request: if no connection was made, the message was certainly not sent, and
        // the caller can try the next provider.
        .connect_timeout(timeout / 2)
        .build()
        .map_err(SetupError::Client)
}

/// Appends path segments to the base URL.
pub(super) fn endpoint(base: &Url, segments: &[&str]) -> Result<Url, SetupError> {
    let mut url = base.clone();
    if !matches!(url.scheme(), "http" | "https") {
        return Err(SetupError::BaseUrl);
    }
    url.path_segments_mut().map_err(|()| SetupError::BaseUrl)?.pop_if_empty().extend(segments);
    Ok(url)
}

/// Sends the request once and maps the errors that all providers share.
pub(super) async fn send(request: RequestBuilder, timeout: Duration) -> Result<ProviderResponse, SendError> {
    let response = request.timeout(timeout).send().await.map_err(transport_error)?;
    let status = response.status();
    if status.is_server_error() {
        return Err(SendError::Unavailable { code: Some(status.as_u16().into()), source: None });
    }
    if status == StatusCode::TOO_MANY_REQUESTS {
        return Err(SendError::Throttled { retry_after: retry_after(&response) });
    }
    if status.is_redirection() {
        return Err(SendError::Misconfigured { code: status.as_u16().into() });
    }
    Ok(ProviderResponse { status, body: read(response).await? })
}

/// Maps a refusal without a provider error code.
pub(super) fn refused(status: StatusCode) -> SendError {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::PAYMENT_REQUIRED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => {
            SendError::Misconfigured { code: status.as_u16().into() }
        }
        _ => SendError::Unreadable { status: status.as_u16() },
    }
}

fn transport_error(error: reqwest::Error) -> SendError {
    if error.is_timeout() && !error.is_connect() {
        SendError::TimedOut
    } else {
        // Remove the URL, because it contains the account.
        SendError::Unavailable { code: None, source: Some(error.without_url()) }
    }
}

async fn read(mut response: Response) -> Result<Vec<u8>, SendError> {
    let unreadable = SendError::Unreadable { status: response.status().as_u16() };
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() <= LONGEST_BODY => body.extend_from_slice(&chunk),
            Ok(None) => return Ok(body),
            Err(error) if error.is_timeout() => return Err(SendError::TimedOut),
            Ok(Some(_)) | Err(_) => return Err(unreadable),
        }
    }
}

/// Reads only the form in seconds: a date would require a clock that agrees with the provider's.
fn retry_after(response: &Response) -> Option<Duration> {
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST_WAIT))
}
