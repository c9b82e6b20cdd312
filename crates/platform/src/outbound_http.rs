//! Outbound HTTP to URLs chosen by third parties (app companies, browsers). Requests have a timeout, follow no
//! redirects and read only the start of the response. Outside development they require TLS and public internet
//! addresses. Otherwise, a third party could make the service send requests into its own network (SSRF).

use std::{
    error::Error as StdError,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header::RETRY_AFTER};
use ipnet::{Ipv4Net, Ipv6Net};
use reqwest::{
    dns::{Addrs, Name, Resolve, Resolving},
    redirect,
};
use time::{OffsetDateTime, format_description::well_known::Rfc2822};
use url::{Host, Url};

use crate::Environment;

/// Maximum number of response body bytes that are read.
const MAX_BODY: usize = 1_024;
/// Maximum wait for the body after the status arrived. The body no longer changes the outcome.
const BODY_TIMEOUT: Duration = Duration::from_millis(500);

/// Destinations to which requests are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Any address, also loopback, also without TLS: for development and tests.
    Anywhere,
    /// Public internet addresses, with TLS.
    Internet,
}

impl Reach {
    /// Destinations that an environment allows.
    pub fn of(env: Environment) -> Self {
        if env.is_development() { Self::Anywhere } else { Self::Internet }
    }

    /// Checks whether a URL is allowed, as far as possible without resolving its host.
    pub fn check(self, url: &Url) -> Result<(), AddressFault> {
        let secure = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return Err(AddressFault::NotHttp),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(AddressFault::Credentials);
        }
        if self == Self::Anywhere {
            return Ok(());
        }
        if !secure {
            return Err(AddressFault::NotHttps);
        }
        let is_public = match url.host() {
            Some(Host::Ipv4(address)) => is_public(address.into()),
            Some(Host::Ipv6(address)) => is_public(address.into()),
            // Names are checked when they are resolved for a connection. Refusing these here only reports the fault
            // earlier.
            Some(Host::Domain(name)) => {
                let name = name.trim_end_matches('.');
                name != "localhost" && !name.ends_with(".localhost")
            }
            None => false,
        };
        if is_public { Ok(()) } else { Err(AddressFault::NotPublic) }
    }
}

/// Reason why a URL is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressFault {
    /// Neither `http` nor `https`.
    #[error("the URL must look like https://app.example.org/hook")]
    NotHttp,
    #[error("the URL must start with https://")]
    NotHttps,
    /// Credentials in the URL would appear in lists and logs.
    #[error("the URL must not contain a username or password")]
    Credentials,
    /// Not a public internet address.
    #[error("the URL must point to a public internet address")]
    NotPublic,
}

/// A request that got no response.
#[derive(Debug, thiserror::Error)]
pub enum PostError {
    /// The URL was refused, and nothing was sent.
    #[error("not sent: {0}")]
    Address(#[from] AddressFault),
    /// No connection, so the receiver certainly got nothing.
    #[error("no connection: {0}")]
    Unreached(String),
    /// The receiver may have processed the request.
    #[error("no response in time")]
    TimedOut,
    /// The receiver may have processed the request.
    #[error("the connection broke: {0}")]
    Broken(String),
}

impl PostError {
    /// Whether the receiver certainly got nothing.
    pub fn is_definite(&self) -> bool {
        matches!(self, Self::Address(_) | Self::Unreached(_))
    }

    /// Metric label of the error.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Address(_) => "forbidden",
            Self::Unreached(_) => "unreached",
            Self::TimedOut => "timed_out",
            Self::Broken(_) => "broken",
        }
    }
}

/// A response with the start of its body.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: StatusCode,
    /// Value of the `Retry-After` header.
    retry_after: Option<String>,
    /// First bytes of the body.
    pub body: Vec<u8>,
}

impl Answer {
    /// Delay requested by `Retry-After`, given as seconds or as a date.
    pub fn retry_after(&self, now: OffsetDateTime) -> Option<Duration> {
        let text = self.retry_after.as_deref()?.trim();
        if let Ok(seconds) = text.parse() {
            return Some(Duration::from_secs(seconds));
        }
        let moment = OffsetDateTime::parse(text, &Rfc2822).ok()?;
        Duration::try_from(moment - now).ok()
    }
}

/// HTTP client for URLs chosen by third parties.
#[derive(Clone, Debug)]
pub struct OutboundHttp {
    client: reqwest::Client,
    reach: Reach,
}

impl OutboundHttp {
    /// Creates a client whose requests take at most `timeout`.
    pub fn new(reach: Reach, timeout: Duration) -> reqwest::Result<Self> {
        let mut builder = reqwest::Client::builder()
            .timeout(timeout)
            // Shorter than the total timeout: a connect timeout proves that nothing was sent.
            .connect_timeout(timeout / 2)
            .redirect(redirect::Policy::none())
            // A proxy would resolve names itself and bypass the address check.
            .no_proxy()
            .user_agent(concat!("matchday/", env!("CARGO_PKG_VERSION")));
        if reach == Reach::Internet {
            builder = builder.https_only(true).dns_resolver(PublicOnly);
        }
        Ok(Self { client: builder.build()?, reach })
    }

    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// Posts a body once. Never retries, because the receiver may have processed the request.
    pub async fn post(
        &self,
        url: &Url,
        headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
        body: impl Into<Bytes>,
    ) -> Result<Answer, PostError> {
        self.reach.check(url)?;
        let mut request = self.client.post(url.clone()).body(body.into());
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let mut response = request.send().await.map_err(unanswered)?;
        let status = response.status();
        let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let mut body = Vec::new();
        // Reading the body to its end makes the connection reusable. A longer body is abandoned.
        let reading = async {
            while body.len() < MAX_BODY
                && let Ok(Some(chunk)) = response.chunk().await
            {
                body.extend_from_slice(&chunk);
            }
        };
        let _ = tokio::time::timeout(BODY_TIMEOUT, reading).await;
        body.truncate(MAX_BODY);
        Ok(Answer { status, retry_after, body })
    }
}

fn unanswered(error: reqwest::Error) -> PostError {
    // The URL may contain a secret of the receiver, and most of the error chain adds nothing.
    let error = error.without_url();
    let mut cause: &dyn StdError = &error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    if error.is_connect() {
        PostError::Unreached(cause.to_string())
    } else if error.is_timeout() {
        PostError::TimedOut
    } else {
        PostError::Broken(cause.to_string())
    }
}

/// Resolver that returns public addresses only. It runs for each connection, so a name that changed its address after
/// it was registered (DNS rebinding) is caught too.
struct PublicOnly;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let public: Vec<SocketAddr> = found.filter(|address| is_public(address.ip())).collect();
            if public.is_empty() {
                return Err(Box::new(NowherePublic) as Box<dyn StdError + Send + Sync>);
            }
            Ok(Box::new(public.into_iter()) as Addrs)
        })
    }
}

#[derive(Debug)]
struct NowherePublic;

impl fmt::Display for NowherePublic {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the name does not resolve to a public internet address")
    }
}

impl StdError for NowherePublic {}

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6(a: u16, b: u16, prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0), prefix)
}

/// Networks that the IANA special-purpose registry marks as not globally reachable, and one used by a cloud provider's
/// internal services.
const SPECIAL_V4: [Ipv4Net; 16] = [
    v4(0, 0, 0, 0, 8),
    v4(10, 0, 0, 0, 8),
    v4(100, 64, 0, 0, 10),
    v4(127, 0, 0, 0, 8),
    v4(168, 63, 129, 16, 32),
    v4(169, 254, 0, 0, 16),
    v4(172, 16, 0, 0, 12),
    v4(192, 0, 0, 0, 24),
    v4(192, 0, 2, 0, 24),
    v4(192, 88, 99, 0, 24),
    v4(192, 168, 0, 0, 16),
    v4(198, 18, 0, 0, 15),
    v4(198, 51, 100, 0, 24),
    v4(203, 0, 113, 0, 24),
    v4(224, 0, 0, 0, 4),
    v4(240, 0, 0, 0, 4),
];
/// All globally assigned IPv6 addresses are in this range, except for [`SPECIAL_V6`].
const PUBLIC_V6: Ipv6Net = v6(0x2000, 0, 3);
/// Protocol assignments, documentation, and tunnels that embed another address.
const SPECIAL_V6: [Ipv6Net; 4] = [v6(0x2001, 0, 23), v6(0x2001, 0x0db8, 32), v6(0x2002, 0, 16), v6(0x3fff, 0, 20)];
/// NAT64 prefix, which embeds an IPv4 address.
const TRANSLATED: Ipv6Net = v6(0x64, 0xff9b, 96);

/// Whether an address is globally reachable.
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => !SPECIAL_V4.iter().any(|net| net.contains(&address)),
        IpAddr::V6(address) if TRANSLATED.contains(&address) => {
            let [.., a, b, c, d] = address.octets();
            is_public(IpAddr::V4(Ipv4Addr::new(a, b, c, d)))
        }
        IpAddr::V6(address) => PUBLIC_V6.contains(&address) && !SPECIAL_V6.iter().any(|net| net.contains(&address)),
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;
    use crate::testing::{Receiver, Reply};

    #[test]
    fn recognises_public_addresses() {
        for (address, public) in [
            ("8.8.8.8", true),
            ("127.0.0.1", false),
            ("127.255.0.3", false),
            ("0.0.0.0", false),
            ("10.1.2.3", false),
            ("100.64.0.1", false),
            ("100.63.255.255", true),
            ("169.254.169.254", false),
            ("168.63.129.16", false),
            ("172.15.0.1", true),
            ("172.31.255.255", false),
            ("192.168.0.1", false),
            ("198.19.0.1", false),
            ("203.0.113.7", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("2606:4700::1111", true),
            ("::1", false),
            ("::", false),
            ("fe80::1", false),
            ("fc00::1", false),
            ("fd00:ec2::254", false),
            ("ff02::1", false),
            ("::ffff:10.0.0.1", false),
            ("::ffff:8.8.8.8", true),
            ("::127.0.0.1", false),
            ("64:ff9b::7f00:1", false),
            ("64:ff9b::808:808", true),
            ("64:ff9b:1::808:808", false),
            ("2002:7f00:1::", false),
            ("2001::1", false),
            ("2001:db8::1", false),
            ("2001:4860:4860::8888", true),
        ] {
            assert_eq!(is_public(address.parse().expect("an address")), public, "{address}");
        }
    }

    #[test]
    fn forbidden_addresses_are_refused_without_resolution() {
        for (text, fault) in [
            ("https://app.example.org/hook?a=b", None),
            ("https://8.8.8.8:8443/", None),
            ("http://app.example.org/", Some(AddressFault::NotHttps)),
            ("ftp://app.example.org/", Some(AddressFault::NotHttp)),
            ("https://ada:secret@app.example.org/", Some(AddressFault::Credentials)),
            ("https://localhost/", Some(AddressFault::NotPublic)),
            ("https://LOCALHOST./", Some(AddressFault::NotPublic)),
            ("https://app.localhost/", Some(AddressFault::NotPublic)),
            ("https://127.0.0.1/", Some(AddressFault::NotPublic)),
            // Other notations of the same addresses.
            ("https://2130706433/", Some(AddressFault::NotPublic)),
            ("https://0x7f.1/", Some(AddressFault::NotPublic)),
            ("https://[::ffff:127.0.0.1]/", Some(AddressFault::NotPublic)),
            ("https://169.254.169.254/latest", Some(AddressFault::NotPublic)),
        ] {
            let url = text.parse().expect("an address");
            assert_eq!(Reach::Internet.check(&url).err(), fault, "{text}");
        }
        let here = "http://127.0.0.1:1/".parse().expect("an address");
        assert_eq!(Reach::Anywhere.check(&here), Ok(()));
        assert_eq!(Reach::of(Environment::Staging), Reach::Internet);
        assert_eq!(Reach::of(Environment::Production), Reach::Internet);
        assert_eq!(Reach::of(Environment::Testing), Reach::Anywhere);
    }

    async fn post(outward: &OutboundHttp, url: &Url) -> Result<Answer, PostError> {
        outward.post(url, [], "{}").await
    }

    #[tokio::test]
    async fn name_resolving_to_local_address_is_refused() {
        let receiver = Receiver::start(|_, _| Reply::status(200)).await;
        let outbound = OutboundHttp::new(Reach::Internet, Duration::from_secs(5)).expect("a client");
        // The text of this name is unremarkable; only its resolution reveals the local address.
        let name = hostname();
        let mut url = receiver.url.clone();
        url.set_scheme("https").expect("a scheme");
        url.set_host(Some(&name)).expect("a name");
        assert_eq!(Reach::Internet.check(&url), Ok(()), "{url}");
        let error = post(&outbound, &url).await.expect_err("not followed");
        assert!(error.is_definite(), "{error}");
        // Only if the machine can resolve its own name.
        if tokio::net::lookup_host((name.as_str(), 0)).await.is_ok() {
            assert_eq!(error.to_string(), format!("no connection: {NowherePublic}"));
        }
        let error = post(&outbound, &"https://127.0.0.1:1/".parse().expect("an address")).await.expect_err("refused");
        assert!(matches!(error, PostError::Address(AddressFault::NotPublic)), "{error}");
        assert!(receiver.seen().is_empty());
        let found = PublicOnly.resolve("localhost".parse().expect("a name")).await;
        assert_eq!(
            found.err().map(|error| error.to_string()).as_deref(),
            Some("the name does not resolve to a public internet address")
        );
    }

    /// The machine's hostname, which resolves to a local address.
    fn hostname() -> String {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        if name.trim().is_empty() { "host.example.invalid".to_owned() } else { name.trim().to_owned() }
    }

    #[tokio::test]
    async fn response_body_is_read_up_to_its_limit() {
        let outbound = OutboundHttp::new(Reach::Anywhere, Duration::from_secs(5)).expect("a client");
        let elsewhere = Receiver::start(|_, _| Reply::status(200)).await;
        let target = elsewhere.url.to_string();
        let receiver = Receiver::start(move |_, _| Reply::status(307).with("location", &target)).await;
        let answer = post(&outbound, &receiver.url).await.expect("an answer");
        assert_eq!(answer.status, 307);
        assert!(elsewhere.seen().is_empty(), "redirects are not followed");
        let long = Receiver::start(|_, _| Reply::status(500).saying(&"x".repeat(100_000))).await;
        assert_eq!(post(&outbound, &long.url).await.expect("an answer").body.len(), MAX_BODY);
        let sought =
            [("7", Some(7)), (" 120 ", Some(120)), ("soon", None), ("Fri, 20 Nov 2026 15:01:30 GMT", Some(90))];
        for (header, seconds) in sought {
            let receiver = Receiver::start(move |_, _| Reply::status(503).with("retry-after", header)).await;
            let answer = post(&outbound, &receiver.url).await.expect("an answer");
            let wait = answer.retry_after(datetime!(2026-11-20 15:00 UTC));
            assert_eq!(wait, seconds.map(Duration::from_secs), "{header}");
        }
    }

    #[tokio::test]
    async fn post_error_says_if_receiver_may_have_processed_it() {
        let outbound = OutboundHttp::new(Reach::Anywhere, Duration::from_millis(600)).expect("a client");
        let unreachable = post(&outbound, &"http://127.0.0.1:1/secret".parse().expect("an address")).await;
        let error = unreachable.expect_err("no server");
        assert!(error.is_definite() && !error.to_string().contains("secret"), "{error}");
        let silent = Receiver::start(|_, _| Reply::never()).await;
        let error = post(&outbound, &silent.url).await.expect_err("no response");
        assert!(matches!(error, PostError::TimedOut) && !error.is_definite(), "{error}");
        assert_eq!(silent.seen().len(), 1, "not retried");
    }
}
