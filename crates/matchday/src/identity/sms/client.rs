//! How providers are asked over HTTP: never redirected, never longer than allowed, and never reading more than an
//! answer can have.

use std::time::Duration;

use reqwest::{Client, RequestBuilder, Response, StatusCode, header::RETRY_AFTER, redirect};
use url::Url;

use super::provider::{SendError, SetupError};

/// Their answers have about one kilobyte.
const LONGEST_BODY: usize = 64 * 1024;
/// A wait that is longer than this helps nobody who waits for a code.
const LONGEST_WAIT: Duration = Duration::from_hours(1);

/// An answer that is neither a redirect nor the provider's own trouble.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Vec<u8>,
}

/// A client for a provider whose requests take at most `timeout`.
pub(super) fn build(timeout: Duration) -> Result<Client, SetupError> {
    Client::builder()
        // A redirect would carry the number, the text and perhaps the credentials to somebody else.
        .redirect(redirect::Policy::none())
        // Shorter than the whole request: who was never connected has surely sent nothing, so the caller may go on.
        .connect_timeout(timeout / 2)
        .build()
        .map_err(SetupError::Client)
}

/// The address below `base`.
pub(super) fn endpoint(base: &Url, segments: &[&str]) -> Result<Url, SetupError> {
    let mut url = base.clone();
    if !matches!(url.scheme(), "http" | "https") {
        return Err(SetupError::BaseUrl);
    }
    url.path_segments_mut().map_err(|()| SetupError::BaseUrl)?.pop_if_empty().extend(segments);
    Ok(url)
}

/// Sends the request once, and sorts out what all providers have in common.
pub(super) async fn ask(request: RequestBuilder, timeout: Duration) -> Result<Answer, SendError> {
    let response = request.timeout(timeout).send().await.map_err(unanswered)?;
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
    Ok(Answer { status, body: read(response).await? })
}

/// The error for a refusal that carries no code of the provider.
pub(super) fn refused(status: StatusCode) -> SendError {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::PAYMENT_REQUIRED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => {
            SendError::Misconfigured { code: status.as_u16().into() }
        }
        _ => SendError::Unreadable { status: status.as_u16() },
    }
}

fn unanswered(error: reqwest::Error) -> SendError {
    if error.is_timeout() && !error.is_connect() {
        SendError::TimedOut
    } else {
        // The address names the account.
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

/// Only in its form of seconds: a date would need a clock that agrees with theirs.
fn retry_after(response: &Response) -> Option<Duration> {
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST_WAIT))
}
