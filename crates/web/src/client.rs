//! The network that a request comes from. Rate limits count by network, because unauthenticated callers have no other
//! identity.

use std::net::{IpAddr, Ipv6Addr};

use axum::extract::FromRequestParts;
use futures_util::future::Either;
use http::{HeaderMap, request::Parts};
use ipnet::IpNet;
use platform::rate_limit::{Decision, Limit, Quota, RateLimiter};

use super::{WebState, error::ApiError};

tokio::task_local! {
    /// Remote address of the connection that this task serves. A task-local and not a request extension, because hardly
    /// any request reads it.
    pub static PEER: IpAddr;
}

/// Wraps a future that continues in another task, so it keeps the remote address of its request.
pub fn for_this_peer<F: Future>(future: F) -> impl Future<Output = F::Output> {
    match PEER.try_with(|peer| *peer) {
        Ok(peer) => Either::Left(PEER.scope(peer, future)),
        Err(_) => Either::Right(future),
    }
}

/// An IPv4 address, or the /64 of an IPv6 address: the smallest network that a provider assigns to a customer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientNetwork(IpAddr);

impl ClientNetwork {
    /// The loopback network, for commands and tests.
    pub fn local() -> Self {
        Self::of(IpAddr::V6(Ipv6Addr::LOCALHOST))
    }

    /// The /48 of an IPv6 network. A provider may assign all of it to one customer, which is 65,536 networks.
    fn site(self) -> Option<Ipv6Addr> {
        match self.0 {
            IpAddr::V4(_) => None,
            IpAddr::V6(address) => Some(prefix(address, 48)),
        }
    }

    /// The largest network that is usually assigned to one customer: an IPv4 address, or the /48 of an IPv6 address.
    /// Abuse detection counts by it.
    pub fn origin(self) -> String {
        self.site().map_or_else(|| self.to_string(), |site| format!("{site}/48"))
    }

    /// The /16 of an IPv4 address or the /32 of an IPv6 address. It usually stays the same while a phone roams within
    /// its carrier's network.
    pub fn neighbourhood(self) -> String {
        match self.0 {
            IpAddr::V4(address) => {
                let [first, second, ..] = address.octets();
                format!("{first}.{second}.0.0/16")
            }
            IpAddr::V6(address) => format!("{}/32", prefix(address, 32)),
        }
    }

    /// Takes one attempt from a limit per network. The /48 of an IPv6 network has four times that limit.
    pub async fn take(self, limiter: &RateLimiter, limit: Limit) -> Decision {
        let decision = limiter.take(limit, &self.to_string()).await;
        if let Some(site) = self.site().filter(|_| decision.allowed) {
            let wide =
                Limit { burst: limit.burst.saturating_mul(SITE_FACTOR), every: limit.every / SITE_FACTOR, ..limit };
            let of_site = limiter.take(wide, &format!("{site}/48")).await;
            if !of_site.allowed {
                limiter.untake(limit, &self.to_string()).await;
                return of_site;
            }
        }
        decision
    }

    /// Counts one attempt towards a quota per network, like [`Self::take`].
    pub async fn count(self, limiter: &RateLimiter, quota: Quota) -> Decision {
        let decision = limiter.count(quota, &self.to_string()).await;
        if let Some(site) = self.site().filter(|_| decision.allowed) {
            let of_site = limiter.count(site_quota(quota), &format!("{site}/48")).await;
            if !of_site.allowed {
                limiter.uncount(quota, &self.to_string()).await;
                return of_site;
            }
        }
        decision
    }

    /// Returns an attempt counted by [`Self::count`].
    pub async fn uncount(self, limiter: &RateLimiter, quota: Quota) {
        limiter.uncount(quota, &self.to_string()).await;
        if let Some(site) = self.site() {
            limiter.uncount(site_quota(quota), &format!("{site}/48")).await;
        }
    }

    fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => IpAddr::V6(prefix(address, 64)),
        })
    }
}

/// Limit of a /48, as a multiple of the limit of a /64.
const SITE_FACTOR: u32 = 4;

fn site_quota(quota: Quota) -> Quota {
    Quota { most: quota.most.saturating_mul(SITE_FACTOR), ..quota }
}

fn prefix(address: Ipv6Addr, bits: u32) -> Ipv6Addr {
    Ipv6Addr::from(u128::from(address) & !(u128::MAX >> bits))
}

impl std::fmt::Display for ClientNetwork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            IpAddr::V4(address) => address.fmt(f),
            IpAddr::V6(address) => write!(f, "{address}/64"),
        }
    }
}

impl<S: WebState> FromRequestParts<S> for ClientNetwork {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        ClientAddress::from_request_parts(parts, state).await.map(|ClientAddress(address)| Self::of(address))
    }
}

/// The exact address that a request comes from, for lists of networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientAddress(pub IpAddr);

impl<S: WebState> FromRequestParts<S> for ClientAddress {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        // Without a connection, as in tests that call the router directly, all callers share one network.
        let peer = PEER.try_with(|peer| *peer).unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
        Ok(Self(client_address(peer, &parts.headers, state.trusted_proxies()).to_canonical()))
    }
}

/// Address of the client: the last address in `X-Forwarded-For` that is not a trusted proxy. Each trusted proxy appends
/// the address of its peer, so the list is read from its end and only while the addresses are trusted. The client can
/// forge everything before that.
fn client_address(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.contains(&address.to_canonical()));
    let mut address = peer;
    let forwarded = headers.get_all("x-forwarded-for").iter().rev();
    // Hops are parsed one by one, because the part written by the client may not be valid text.
    let mut hops = forwarded.flat_map(|value| value.as_bytes().rsplit(|&byte| byte == b','));
    while is_trusted(address) {
        match hops.next().and_then(read_hop) {
            Some(before) => address = before,
            None => break,
        }
    }
    address
}

/// Parses an address as proxies write it: some append the port, and then put IPv6 addresses in brackets.
fn read_hop(bytes: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(bytes).ok()?.trim();
    let with_port = || text.parse::<std::net::SocketAddr>().ok().map(|address| address.ip());
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    text.parse().ok().or_else(with_port).or_else(bracketed)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn client(peer: &str, forwarded: &[&str], trusted: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append("x-forwarded-for", HeaderValue::from_bytes(value.as_bytes()).expect("a header"));
        }
        let trusted: Vec<IpNet> = trusted.iter().map(|network| network.parse().expect("a network")).collect();
        ClientNetwork::of(client_address(peer.parse().expect("an address"), &headers, &trusted)).to_string()
    }

    #[test]
    fn client_cannot_forge_its_address() {
        let proxies = ["10.0.0.0/8"];
        assert_eq!(client("203.0.113.7", &["198.51.100.1"], &proxies), "203.0.113.7", "not a trusted proxy");
        assert_eq!(client("203.0.113.7", &["198.51.100.1"], &[]), "203.0.113.7");
        assert_eq!(client("10.0.0.1", &["1.2.3.4, 198.51.100.1"], &proxies), "198.51.100.1", "read from the right");
        assert_eq!(client("10.0.0.1", &["1.2.3.4, 198.51.100.1, 10.9.9.9"], &proxies), "198.51.100.1", "two proxies");
        assert_eq!(client("10.0.0.1", &["1.2.3.4", "198.51.100.1"], &proxies), "198.51.100.1", "one header per proxy");
        assert_eq!(client("10.0.0.1", &["ñandú, 198.51.100.1"], &proxies), "198.51.100.1", "invalid text before it");
        assert_eq!(client("10.0.0.1", &["198.51.100.1, nonsense"], &proxies), "10.0.0.1", "stops at an invalid hop");
        assert_eq!(client("10.0.0.1", &[], &proxies), "10.0.0.1", "the proxy itself is limited");
        assert_eq!(client("::ffff:10.0.0.1", &["198.51.100.1:4711"], &proxies), "198.51.100.1");
        assert_eq!(client("10.0.0.1", &["[2001:db8::1]:443"], &proxies), "2001:db8::/64");
    }

    #[test]
    fn ipv6_is_grouped_by_64_except_mapped_ipv4() {
        assert_eq!(client("2001:db8:1:2:aaaa::1", &[], &[]), client("2001:db8:1:2:bbbb::2", &[], &[]));
        assert_ne!(client("2001:db8:1:2::1", &[], &[]), client("2001:db8:1:3::1", &[], &[]));
        assert_eq!(client("::ffff:203.0.113.7", &[], &[]), "203.0.113.7");
    }

    #[test]
    fn origin_is_ipv4_address_or_ipv6_48() {
        let network = |address: &str| ClientNetwork::of(address.parse().expect("an address"));
        assert_eq!(network("2001:db8:1:2::1").origin(), "2001:db8:1::/48");
        assert_eq!(network("2001:db8:1:2::1").neighbourhood(), "2001:db8::/32");
        assert_eq!(network("203.0.113.7").origin(), "203.0.113.7");
        assert_eq!(network("203.0.113.7").neighbourhood(), "203.0.0.0/16");
    }

    proptest! {
        #[test]
        fn arbitrary_headers_neither_panic_nor_hide_the_peer(value in "[ -~\u{80}-\u{fff}]{0,80}") {
            prop_assert_eq!(client("203.0.113.7", &[&value], &["10.0.0.0/8"]), "203.0.113.7");
            let _ = client("10.0.0.1", &[&value], &["10.0.0.0/8"]);
        }
    }
}
