//! Document sources and fetching. HTTP requests have a timeout and a size limit, and do not follow redirects. Other
//! documents are read from files.

use std::{collections::HashMap, io::Read as _, path::PathBuf, time::Duration};

use reqwest::{
    Client, RequestBuilder, Response, StatusCode,
    header::{ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH, RETRY_AFTER},
};
use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use super::{rules::Pace, settings::Settings, zone::Zone};

/// Upper bound for a document. A season with all line-ups is smaller than one megabyte.
const LONGEST_DOCUMENT: usize = 20_000_000;
/// Upper bound for the body of an error response.
const LONGEST_REFUSAL: usize = 64 * 1024;
/// Maximum length of a provider's message shown to operators.
const LONGEST_MESSAGE: usize = 200;
/// Reset time of football-data.org's request counter, if a response does not state it.
const MINUTE: Duration = Duration::from_mins(1);
/// Shortest poll interval for openfootball URLs: volunteers maintain the files, and their host caches them this long.
const OPENFOOTBALL_LEAST: Duration = Duration::from_mins(5);
/// Shortest poll interval for local files, which put no load on a provider.
const FILE_LEAST: Duration = Duration::from_secs(5);

/// Name of football-data.org. All of its feeds share its limits and its team ids.
pub(super) const FOOTBALL_DATA: &str = "football_data";

#[derive(Clone, Debug)]
pub(super) struct Source {
    /// Name in logs, metrics and the database, as in `football_data:PL`.
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) pace: Pace,
}

/// Provider of a feed, which determines where and how documents are read.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// A competition of football-data.org.
    FootballData {
        url: Url,
        code: String,
    },
    OpenFootball {
        place: Place,
        zone: Zone,
    },
}

#[derive(Clone, Debug)]
pub(super) enum Place {
    File(PathBuf),
    Web(Url),
}

impl Source {
    /// Returns true if the feed shares the limits of football-data.org.
    pub(super) fn is_limited(&self) -> bool {
        matches!(self.kind, Kind::FootballData { .. })
    }

    /// Describes how documents are read. A change invalidates the stored `ETag` and digest. A new version of an adapter
    /// gets a new number.
    pub(super) fn basis(&self) -> String {
        match &self.kind {
            Kind::FootballData { url, .. } => format!("football-data 1 {url}"),
            Kind::OpenFootball { place: Place::File(path), zone } => {
                format!("openfootball 1 {zone} {}", path.display())
            }
            Kind::OpenFootball { place: Place::Web(url), zone } => format!("openfootball 1 {zone} {url}"),
        }
    }
}

pub(super) fn sources(config: &Settings) -> Vec<Source> {
    let pace = Pace { idle: config.idle, live: config.live, closing: config.closing, least: Duration::ZERO };
    let mut sources = Vec::new();
    for code in &config.football_data_competitions {
        let mut url = config.football_data_url.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(["v4", "competitions", code, "matches"]);
        }
        let kind = Kind::FootballData { url, code: code.clone() };
        sources.push(Source { name: format!("{FOOTBALL_DATA}:{code}"), kind, pace });
    }
    let short = |place: &str| {
        let path = place.split(['?', '#']).next().unwrap_or(place);
        let parts: Vec<&str> = path.rsplit('/').filter(|part| !part.is_empty()).take(2).collect();
        let name = parts.into_iter().rev().collect::<Vec<_>>().join("/");
        name.strip_suffix(".json").unwrap_or(&name).to_owned()
    };
    let mut alike: HashMap<String, usize> = HashMap::new();
    for zoned in &config.openfootball {
        *alike.entry(short(&zoned.place)).or_default() += 1;
    }
    for zoned in &config.openfootball {
        let web = Url::parse(&zoned.place).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let (found_at, least) = match web {
            Some(url) => (Place::Web(url), OPENFOOTBALL_LEAST),
            None => (Place::File(PathBuf::from(&zoned.place)), FILE_LEAST),
        };
        let short = short(&zoned.place);
        // Places with the same short name are named by their full path or URL.
        let name = if alike.get(&short) == Some(&1) { short } else { zoned.place.clone() };
        let kind = Kind::OpenFootball { place: found_at, zone: zoned.zone.clone() };
        sources.push(Source { name: format!("openfootball:{name}"), kind, pace: Pace { least, ..pace } });
    }
    sources
}

#[derive(Debug)]
pub(super) enum Fetched {
    /// The server reports that the document has not changed.
    Unchanged,
    Document {
        body: Vec<u8>,
        etag: Option<String>,
    },
}

/// Number of requests that a provider still accepts, and the time until its counter resets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Allowance {
    pub(super) left: u32,
    pub(super) resets_in: Duration,
}

/// Error from fetching a document. The messages are for operators and contain no token.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The connection failed. Contains the root cause.
    #[error("no response: {0}")]
    Unreachable(String),
    /// The response did not arrive in time.
    #[error("no response in time")]
    TimedOut,
    /// The provider refused the request: the token is wrong, or the plan lacks the competition.
    #[error("refused ({status}): {message}")]
    Refused {
        status: u16,
        /// Reason that the provider gave.
        message: String,
    },
    /// The provider's rate limit was exceeded.
    #[error("rate limited; retry in {} s", .wait.as_secs())]
    Throttled {
        /// Time to wait before the next request.
        wait: Duration,
    },
    /// The provider, or a proxy in front of it, failed.
    #[error("the provider is unavailable ({status})")]
    Unavailable { status: u16 },
    /// The document has moved. Redirects are not followed, because they would send the token to another host.
    #[error("the document has moved ({status}){}", .location.as_ref().map(|to| format!(": {to}")).unwrap_or_default())]
    Moved {
        status: u16,
        /// Target of the redirect.
        location: Option<String>,
    },
    #[error("the document is larger than {LONGEST_DOCUMENT} bytes")]
    TooLarge,
    #[error("the file cannot be read: {0}")]
    File(#[from] std::io::Error),
}

/// Fetches the document unless it still has this `ETag`. Also returns the limits that the provider reported.
pub(super) async fn fetch(
    web: &Client,
    source: &Source,
    token: Option<&SecretString>,
    etag: Option<&str>,
) -> (Result<Fetched, FetchError>, Option<Allowance>) {
    match &source.kind {
        Kind::OpenFootball { place: Place::File(path), .. } => (read_file(path.clone()).await, None),
        Kind::OpenFootball { place: Place::Web(url), .. } => send(web.get(url.clone()), etag, None).await,
        Kind::FootballData { url, .. } => {
            let mut request = web.get(url.clone());
            if let Some(Ok(mut value)) = token.map(|token| HeaderValue::from_str(token.expose_secret())) {
                value.set_sensitive(true);
                request = request.header("X-Auth-Token", value);
            }
            send(request, etag, token).await
        }
    }
}

async fn read_file(path: PathBuf) -> Result<Fetched, FetchError> {
    let read = move || {
        let mut body = Vec::new();
        std::fs::File::open(&path)?.take(LONGEST_DOCUMENT as u64 + 1).read_to_end(&mut body)?;
        if body.len() > LONGEST_DOCUMENT { Err(FetchError::TooLarge) } else { Ok(body) }
    };
    let body = tokio::task::spawn_blocking(read).await.map_err(std::io::Error::other)??;
    Ok(Fetched::Document { body, etag: None })
}

async fn send(
    request: RequestBuilder,
    etag: Option<&str>,
    token: Option<&SecretString>,
) -> (Result<Fetched, FetchError>, Option<Allowance>) {
    let request = match etag.and_then(|etag| HeaderValue::from_str(etag).ok()) {
        Some(etag) => request.header(IF_NONE_MATCH, etag),
        None => request,
    };
    match request.send().await {
        Ok(response) => {
            let allowance = allowance(response.headers());
            (read_response(response, token).await, allowance)
        }
        Err(error) => (Err(request_error(error)), None),
    }
}

async fn read_response(response: Response, token: Option<&SecretString>) -> Result<Fetched, FetchError> {
    let (status, headers) = (response.status(), response.headers().clone());
    if status == StatusCode::NOT_MODIFIED {
        return Ok(Fetched::Unchanged);
    }
    if status == StatusCode::OK {
        let etag = headers.get(ETAG).and_then(|etag| etag.to_str().ok()).map(str::to_owned);
        return Ok(Fetched::Document { body: read(response, LONGEST_DOCUMENT).await?, etag });
    }
    if status.is_redirection() {
        let location = headers.get("location").and_then(|to| to.to_str().ok()).map(|to| plain(to, token));
        return Err(FetchError::Moved { status: status.as_u16(), location });
    }
    if status.is_server_error() {
        return Err(FetchError::Unavailable { status: status.as_u16() });
    }
    // The message is informational, so a body that cannot be read is ignored.
    let message = read(response, LONGEST_REFUSAL).await.unwrap_or_default();
    let message = serde_json::from_slice::<serde_json::Value>(&message)
        .ok()
        .and_then(|body| body["message"].as_str().map(|message| plain(message, token)));
    if status == StatusCode::TOO_MANY_REQUESTS {
        let wait = seconds(&headers, RETRY_AFTER.as_str())
            .or_else(|| seconds(&headers, "X-RequestCounter-Reset"))
            .or_else(|| message.as_deref().and_then(wait_in))
            .unwrap_or(MINUTE);
        return Err(FetchError::Throttled { wait });
    }
    let message = message.unwrap_or_else(|| "no reason given".to_owned());
    Err(FetchError::Refused { status: status.as_u16(), message })
}

fn request_error(error: reqwest::Error) -> FetchError {
    if error.is_timeout() {
        return FetchError::TimedOut;
    }
    // The root cause is more specific than "error sending request".
    let error = error.without_url();
    let mut cause: &dyn std::error::Error = &error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    FetchError::Unreachable(cause.to_string())
}

async fn read(mut response: Response, most: usize) -> Result<Vec<u8>, FetchError> {
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() <= most => body.extend_from_slice(&chunk),
            Ok(Some(_)) => return Err(FetchError::TooLarge),
            Ok(None) => return Ok(body),
            Err(error) => return Err(request_error(error)),
        }
    }
}

/// Reads the headers in which football-data.org reports the remaining requests and the reset time.
fn allowance(headers: &HeaderMap) -> Option<Allowance> {
    let left = headers.get("X-Requests-Available-Minute")?.to_str().ok()?.trim().parse().ok()?;
    Some(Allowance { left, resets_in: seconds(headers, "X-RequestCounter-Reset").unwrap_or(MINUTE) })
}

/// Reads a header that contains a number of seconds. HTTP dates are not supported, because they would require both
/// clocks to agree.
fn seconds(headers: &HeaderMap, name: &str) -> Option<Duration> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

/// Reads the wait from a message like `You reached your request limit. Wait 41 seconds.`
fn wait_in(message: &str) -> Option<Duration> {
    let (_, after) = message.split_once("Wait ")?;
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok().map(Duration::from_secs)
}

/// Makes a provider's text safe for a log: short, on one line and without the token.
fn plain(text: &str, token: Option<&SecretString>) -> String {
    let text = match token.map(SecretString::expose_secret).filter(|token| !token.is_empty()) {
        Some(token) => text.replace(token, "…"),
        None => text.to_owned(),
    };
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(LONGEST_MESSAGE).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::test_config;

    #[test]
    fn feed_names_are_short_and_unique() {
        let config = test_config(&[
            ("MATCHDAY_FEEDS__FOOTBALL_DATA_TOKEN", "secret"),
            ("MATCHDAY_FEEDS__FOOTBALL_DATA_COMPETITIONS", "PL,CL"),
            (
                "MATCHDAY_FEEDS__OPENFOOTBALL",
                "https://example.org/football.json/2026-27/en.1.json Europe/London,/srv/a/cup.json,/tmp/a/cup.json,cup.json",
            ),
        ]);
        let sources = sources(&config.feeds);
        let names: Vec<&str> = sources.iter().map(|source| source.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "football_data:PL",
                "football_data:CL",
                "openfootball:2026-27/en.1",
                "openfootball:/srv/a/cup.json",
                "openfootball:/tmp/a/cup.json",
                "openfootball:cup",
            ]
        );
        assert_eq!(sources[1].basis(), "football-data 1 https://api.football-data.org/v4/competitions/CL/matches");
        assert_eq!(
            sources[2].basis(),
            "openfootball 1 Europe/London https://example.org/football.json/2026-27/en.1.json"
        );
        assert!(sources[0].is_limited() && !sources[2].is_limited());
    }

    #[test]
    fn empty_settings_have_no_feeds() {
        assert!(sources(&test_config(&[]).feeds).is_empty());
    }

    #[test]
    fn wait_is_read_from_message() {
        assert_eq!(wait_in("You reached your request limit. Wait 41 seconds."), Some(Duration::from_secs(41)));
        assert_eq!(wait_in("Wait a moment"), None);
    }

    #[test]
    fn provider_message_is_shown_without_token() {
        let token = SecretString::from("hunter2");
        assert_eq!(plain("no\n hunter2 here", Some(&token)), "no  … here");
        assert_eq!(plain(&"x".repeat(500), None).len(), LONGEST_MESSAGE);
    }
}
