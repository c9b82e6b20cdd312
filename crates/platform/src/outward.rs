//! Posting to addresses that others chose: app companies, browsers. Never redirected, never longer than allowed, never
//! reading more than an answer needs; and outside development only by TLS, and only where the whole internet could post
//! too. Otherwise whoever chooses an address could have the service ask what only its own network can reach.

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

/// How much of an answer's body is looked at.
const LONGEST_BODY: usize = 1_024;
/// How long is waited for it, once there is a status. It can change nothing any more.
const BODY_PATIENCE: Duration = Duration::from_millis(500);

/// Where requests may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Anywhere, also on this machine, also without TLS: for developers and tests.
    Anywhere,
    /// The internet, by TLS.
    Internet,
}

impl Reach {
    /// What an environment allows.
    pub fn of(env: Environment) -> Self {
        if env.is_development() { Self::Anywhere } else { Self::Internet }
    }

    /// Whether an address may be posted to, as far as it can be told without asking where its host is.
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
            // Where a name leads is looked at when it is followed. These are only told earlier.
            Some(Host::Domain(name)) => {
                let name = name.trim_end_matches('.');
                name != "localhost" && !name.ends_with(".localhost")
            }
            None => false,
        };
        if is_public { Ok(()) } else { Err(AddressFault::NotPublic) }
    }
}

/// Why an address is not posted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressFault {
    /// Neither `http` nor `https`.
    #[error("it is not an address like https://app.example.org/hook")]
    NotHttp,
    /// Without TLS.
    #[error("it does not begin with https://")]
    NotHttps,
    /// A name or a password in the address would stand in lists and logs.
    #[error("it holds a name or a password")]
    Credentials,
    /// Not on the internet.
    #[error("it is not on the internet")]
    NotPublic,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum PostError {
    /// It was not even tried.
    #[error("not sent: {0}")]
    Address(#[from] AddressFault),
    /// Nobody was reached, so surely nothing was taken.
    #[error("no connection: {0}")]
    Unreached(String),
    /// It may have been taken.
    #[error("no answer in time")]
    TimedOut,
    /// It may have been taken.
    #[error("the connection broke: {0}")]
    Broken(String),
}

impl PostError {
    /// Whether surely nothing was taken.
    pub fn is_definite(&self) -> bool {
        matches!(self, Self::Address(_) | Self::Unreached(_))
    }

    /// In one word, for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Address(_) => "forbidden",
            Self::Unreached(_) => "unreached",
            Self::TimedOut => "timed_out",
            Self::Broken(_) => "broken",
        }
    }
}

/// What came back.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// `Retry-After`, as it came.
    retry_after: Option<String>,
    /// How the body begins.
    pub body: Vec<u8>,
}

impl Answer {
    /// How long is to be waited, if it says so, in either of the two forms there are.
    pub fn retry_after(&self, now: OffsetDateTime) -> Option<Duration> {
        let text = self.retry_after.as_deref()?.trim();
        if let Ok(seconds) = text.parse() {
            return Some(Duration::from_secs(seconds));
        }
        let moment = OffsetDateTime::parse(text, &Rfc2822).ok()?;
        Duration::try_from(moment - now).ok()
    }
}

/// The way out.
#[derive(Clone, Debug)]
pub struct Outward {
    client: reqwest::Client,
    reach: Reach,
}

impl Outward {
    /// A way out on which nothing takes longer than `timeout`.
    pub fn new(reach: Reach, timeout: Duration) -> reqwest::Result<Self> {
        let mut builder = reqwest::Client::builder()
            .timeout(timeout)
            // Shorter than the whole: who was never connected has surely sent nothing.
            .connect_timeout(timeout / 2)
            .redirect(redirect::Policy::none())
            // A proxy would look names up in our place, and go where we must not.
            .no_proxy()
            .user_agent(concat!("matchday/", env!("CARGO_PKG_VERSION")));
        if reach == Reach::Internet {
            builder = builder.https_only(true).dns_resolver(PublicOnly);
        }
        Ok(Self { client: builder.build()?, reach })
    }

    /// Where it leads.
    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// Posts a body once, and never again by itself: it may have been taken.
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
        // Read to its end, a connection can be used again. What does not end is left.
        let reading = async {
            while body.len() < LONGEST_BODY
                && let Ok(Some(chunk)) = response.chunk().await
            {
                body.extend_from_slice(&chunk);
            }
        };
        let _ = tokio::time::timeout(BODY_PATIENCE, reading).await;
        body.truncate(LONGEST_BODY);
        Ok(Answer { status, retry_after, body })
    }
}

fn unanswered(error: reqwest::Error) -> PostError {
    // The address may hold a secret of the receiver's, and most of the chain says nothing.
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

/// Looks names up, and keeps to itself what is not on the internet. It stands where connections are made: a name that
/// leads elsewhere by then than it did when it was chosen is caught too.
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
        formatter.write_str("the name leads to no address on the internet")
    }
}

impl StdError for NowherePublic {}

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6(a: u16, b: u16, prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0), prefix)
}

/// What the registry of special addresses says is not for everybody, and one that a cloud puts its own things at.
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
/// All that is given out to anybody is in here,
const PUBLIC_V6: Ipv6Net = v6(0x2000, 0, 3);
/// but for these: protocols, documentation, tunnels that hide another address.
const SPECIAL_V6: [Ipv6Net; 4] = [v6(0x2001, 0, 23), v6(0x2001, 0x0db8, 32), v6(0x2002, 0, 16), v6(0x3fff, 0, 20)];
/// An IPv4 address as networks without any show it.
const TRANSLATED: Ipv6Net = v6(0x64, 0xff9b, 96);

/// Whether an address is one of the internet, that anybody could reach.
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
    fn only_addresses_of_the_internet_are_public() {
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
    fn addresses_that_must_not_be_asked_are_told_by_their_text() {
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
            // The same in other words.
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

    async fn post(outward: &Outward, url: &Url) -> Result<Answer, PostError> {
        outward.post(url, [], "{}").await
    }

    #[tokio::test]
    async fn a_name_that_leads_to_this_machine_is_not_followed() {
        let receiver = Receiver::start(|_, _| Reply::status(200)).await;
        let outward = Outward::new(Reach::Internet, Duration::from_secs(5)).expect("a client");
        // Its text looks like any other name; only where it leads tells.
        let name = hostname();
        let mut url = receiver.url.clone();
        url.set_scheme("https").expect("a scheme");
        url.set_host(Some(&name)).expect("a name");
        assert_eq!(Reach::Internet.check(&url), Ok(()), "{url}");
        let error = post(&outward, &url).await.expect_err("not followed");
        assert!(error.is_definite(), "{error}");
        // Where the machine knows its own name.
        if tokio::net::lookup_host((name.as_str(), 0)).await.is_ok() {
            assert_eq!(error.to_string(), format!("no connection: {NowherePublic}"));
        }
        let error = post(&outward, &"https://127.0.0.1:1/".parse().expect("an address")).await.expect_err("refused");
        assert!(matches!(error, PostError::Address(AddressFault::NotPublic)), "{error}");
        assert!(receiver.seen().is_empty());
        let found = PublicOnly.resolve("localhost".parse().expect("a name")).await;
        assert_eq!(
            found.err().map(|error| error.to_string()).as_deref(),
            Some("the name leads to no address on the internet")
        );
    }

    /// The machine's own name, which leads to itself.
    fn hostname() -> String {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        if name.trim().is_empty() { "host.example.invalid".to_owned() } else { name.trim().to_owned() }
    }

    #[tokio::test]
    async fn an_answer_is_read_as_far_as_it_matters() {
        let outward = Outward::new(Reach::Anywhere, Duration::from_secs(5)).expect("a client");
        let elsewhere = Receiver::start(|_, _| Reply::status(200)).await;
        let target = elsewhere.url.to_string();
        let receiver = Receiver::start(move |_, _| Reply::status(307).with("location", &target)).await;
        let answer = post(&outward, &receiver.url).await.expect("an answer");
        assert_eq!(answer.status, 307);
        assert!(elsewhere.seen().is_empty(), "redirects are not followed");
        let long = Receiver::start(|_, _| Reply::status(500).saying(&"x".repeat(100_000))).await;
        assert_eq!(post(&outward, &long.url).await.expect("an answer").body.len(), LONGEST_BODY);
        let sought =
            [("7", Some(7)), (" 120 ", Some(120)), ("soon", None), ("Fri, 20 Nov 2026 15:01:30 GMT", Some(90))];
        for (header, seconds) in sought {
            let receiver = Receiver::start(move |_, _| Reply::status(503).with("retry-after", header)).await;
            let answer = post(&outward, &receiver.url).await.expect("an answer");
            let wait = answer.retry_after(datetime!(2026-11-20 15:00 UTC));
            assert_eq!(wait, seconds.map(Duration::from_secs), "{header}");
        }
    }

    #[tokio::test]
    async fn it_is_told_whether_anything_can_have_been_taken() {
        let outward = Outward::new(Reach::Anywhere, Duration::from_millis(600)).expect("a client");
        let nobody = post(&outward, &"http://127.0.0.1:1/secret".parse().expect("an address")).await;
        let error = nobody.expect_err("nobody there");
        assert!(error.is_definite() && !error.to_string().contains("secret"), "{error}");
        let silent = Receiver::start(|_, _| Reply::never()).await;
        let error = post(&outward, &silent.url).await.expect_err("no answer");
        assert!(matches!(error, PostError::TimedOut) && !error.is_definite(), "{error}");
        assert_eq!(silent.seen().len(), 1, "and it was not tried again");
    }
}
