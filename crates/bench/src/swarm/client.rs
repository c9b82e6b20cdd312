//! Sends what the TypeScript client sends: a bearer token, an idempotency key with every authenticated POST, and up to three
//! retries with the same key, after `Retry-After` or a growing pause.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use reqwest::{Method, header};

use super::{
    action::{Action, Verdict, judge},
    script::{fraction, scatter},
    tally::Tally,
};

/// Retry settings of the TypeScript client (`defaultRetry`).
const RETRIES: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Time for which a join waits while the room is busy.
const LONGEST_LINE: Duration = Duration::from_mins(3);
/// A response that takes longer counts as lost.
const PATIENCE: Duration = Duration::from_secs(30);

/// One request of a fan.
#[derive(Clone, Debug, Default)]
pub(crate) struct Call {
    pub(crate) path: String,
    /// Empty for requests without a session.
    pub(crate) token: String,
    /// Body of a POST; `None` for a GET.
    pub(crate) body: Option<String>,
    /// `ETag` of the page that the fan already has.
    pub(crate) etag: Option<String>,
    /// Text that a correct response contains.
    pub(crate) expects: String,
    /// Address that the fan seems to have, for deployments that trust this machine as a proxy.
    pub(crate) address: Option<String>,
}

/// A successful response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) body: String,
    pub(crate) etag: Option<String>,
}

/// Connections to one deployment, shared by all fans of an agent.
pub(crate) struct Client {
    pub(crate) http: reqwest::Client,
    pub(crate) url: String,
    keys: AtomicU64,
    /// First half of each idempotency key.
    run: u64,
}

/// Result of one attempt.
struct Attempt {
    verdict: Verdict,
    retry_after: Option<Duration>,
    answer: Answer,
    is_conflict: bool,
    status: u16,
}

impl Client {
    /// Run and agent make the idempotency keys unique.
    pub(crate) fn new(url: &str, run: u64, agent: u64) -> anyhow::Result<Self> {
        // HTTP/1.1, because fans do not share connections, and one HTTP/2 connection would carry all of them.
        let http = reqwest::Client::builder().http1_only().pool_max_idle_per_host(4_096).tcp_nodelay(true).build()?;
        Ok(Self {
            http,
            url: url.trim_end_matches('/').to_owned(),
            keys: AtomicU64::new(0),
            run: scatter(run ^ agent << 48),
        })
    }

    /// Sends a request until it succeeds or a client would give up. Counts each refused or failed attempt.
    pub(crate) async fn send(&self, action: Action, call: &Call, tally: &std::sync::Mutex<Tally>) -> Option<Answer> {
        let (key, began) = (self.key(), Instant::now());
        let is_repeatable = call.body.is_none() || !call.token.is_empty();
        let (mut tried, mut waits) = (0, 0);
        loop {
            let attempt = self.attempt(action, call, &key).await;
            if attempt.verdict == Verdict::Fine {
                return Some(attempt.answer);
            }
            let code = match &attempt.verdict {
                Verdict::Refused(code) => code.clone(),
                _ => String::new(),
            };
            if let Ok(mut tally) = tally.lock() {
                tally.row(action).count(attempt.verdict);
            }
            let worth_it =
                matches!(attempt.status, 0 | 429 | 503) || (attempt.is_conflict && attempt.retry_after.is_some());
            if !is_repeatable || !worth_it {
                return None;
            }
            waits += 1;
            let pause = attempt.retry_after.unwrap_or_else(|| backoff(waits, FIRST_PAUSE, LONGEST_PAUSE, self.seed()));
            let gives_up = if code == "room_busy" {
                // Refusals of a busy room do not count as retries.
                began.elapsed() + pause > LONGEST_LINE
            } else {
                tried += 1;
                tried > RETRIES || attempt.retry_after.is_some_and(|after| after > LONGEST_PAUSE)
            };
            if gives_up {
                return None;
            }
            tokio::time::sleep(pause).await;
        }
    }

    async fn attempt(&self, action: Action, call: &Call, key: &str) -> Attempt {
        let method = if call.body.is_some() { Method::POST } else { Method::GET };
        let mut request = self.http.request(method, format!("{}{}", self.url, call.path)).timeout(PATIENCE);
        if !call.token.is_empty() {
            request = request.bearer_auth(&call.token);
            if call.body.is_some() {
                request = request.header("idempotency-key", key);
            }
        }
        if let Some(body) = call.body.as_ref().filter(|body| !body.is_empty()) {
            request = request.header(header::CONTENT_TYPE, "application/json").body(body.clone());
        }
        if let Some(etag) = &call.etag {
            request = request.header(header::IF_NONE_MATCH, etag);
        }
        if let Some(address) = &call.address {
            request = request.header("x-forwarded-for", address);
        }
        match read(request).await {
            Ok((status, retry_after, answer)) => {
                let code = if status >= 400 { code_of(&answer.body) } else { None };
                let mut verdict = judge(action, status, code.as_deref());
                if verdict == Verdict::Fine && status != 304 && !answer.body.contains(&call.expects) {
                    verdict = Verdict::Failed(format!("{status} without {}", call.expects));
                }
                Attempt { verdict, retry_after, answer, is_conflict: status == 409, status }
            }
            Err(error) => Attempt {
                verdict: Verdict::Failed(reason(&error).to_owned()),
                retry_after: None,
                answer: Answer { body: String::new(), etag: None },
                is_conflict: false,
                status: 0,
            },
        }
    }

    /// Number that differs in each call and each run.
    pub(crate) fn seed(&self) -> u64 {
        scatter(self.run ^ self.keys.fetch_add(1, Relaxed))
    }

    fn key(&self) -> String {
        format!("{:016x}{:016x}", self.run, self.seed())
    }
}

async fn read(request: reqwest::RequestBuilder) -> Result<(u16, Option<Duration>, Answer), reqwest::Error> {
    let response = request.send().await?;
    let text = |name: header::HeaderName| Some(response.headers().get(name)?.to_str().ok()?.to_owned());
    let retry_after =
        text(header::RETRY_AFTER).and_then(|seconds| seconds.trim().parse().ok()).map(Duration::from_secs);
    let (status, etag) = (response.status().as_u16(), text(header::ETAG));
    Ok((status, retry_after, Answer { etag, body: response.text().await? }))
}

/// Code in the body of an error. A proxy's page has none.
pub(crate) fn code_of(body: &str) -> Option<String> {
    serde_json::from_str::<serde_json::Value>(body).ok()?.get("code")?.as_str().map(ToOwned::to_owned)
}

/// Kind of a failure without a response.
pub(crate) fn reason(error: &reqwest::Error) -> &'static str {
    if error.is_timeout() {
        "timeout"
    } else if error.is_connect() {
        "connection refused"
    } else {
        "connection broken"
    }
}

/// Pause that doubles with each failure, with 25 % of jitter.
pub(crate) fn backoff(failures: u32, first: Duration, longest: Duration, seed: u64) -> Duration {
    let pause = first.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(longest);
    pause.mul_f64(0.75 + 0.5 * fraction(seed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        for (failures, seconds) in [(1, 1.0), (2, 2.0), (3, 4.0), (9, 30.0), (40, 30.0)] {
            let pause = backoff(failures, Duration::from_secs(1), Duration::from_secs(30), u64::from(failures));
            assert!((seconds * 0.75..=seconds * 1.25).contains(&pause.as_secs_f64()), "{failures}: {pause:?}");
        }
    }

    #[test]
    fn only_json_errors_have_a_code() {
        assert_eq!(code_of(r#"{"message":"Busy.","code":"overloaded"}"#).as_deref(), Some("overloaded"));
        assert_eq!(code_of("<html><body><h1>503 Service Unavailable</h1>"), None);
    }
}
