//! Settings of the HTTP listeners.

use std::{net::SocketAddr, time::Duration};

use ipnet::IpNet;
use platform::{section, settings::Conditions};
use url::Url;

section! {
    /// The listeners for apps and for machines, and what a request may cost.
    http: Http {
        /// Where apps reach the service.
        listen: SocketAddr = "127.0.0.1:8080",
        /// Address for Prometheus and the homeserver: metrics, health and pushed chat events. Keep it off the internet.
        private_listen: SocketAddr = "127.0.0.1:9090",
        /// How many connections may be open at once; further ones wait to be accepted.
        max_connections: usize = "20000",
        /// How many requests may be worked on at once; further ones get 503 at once.
        max_in_flight: usize = "1024",
        /// How many requests with a token a user may send to this process at once; further ones get 429. The live stream does
        /// not count. In `local` and `testing` a thousand times as many. 0: no limit.
        user_burst: u32 = "200",
        /// How many of them a user gets back in a second, in `local` and `testing` a thousand times as many.
        user_requests_per_second: u32 = "50",
        /// How long one request may take, and before that how long it may take to arrive.
        deadline: Duration = "10s",
        /// How long a connection may be idle.
        keep_alive: Duration = "75s",
        /// The largest body that is read, in bytes.
        body_limit: usize = "65536",
        /// Web origins that may call the interface, like `https://app.example.org`; `*` means any. Empty: none.
        cors_origins: Vec<String> = "",
        /// Networks of proxies in front of this service, like `10.0.0.0/8`. Only they are believed when they say in
        /// `X-Forwarded-For` whose request they pass on. Empty: the other end of the connection is the client.
        trusted_proxies: Vec<IpNet> = "",
        /// Where the internet reaches the service, like `https://api.example.org`. SMS providers report there.
        public_url: Option<Url> = "",
    }
}

impl Http {
    /// Conditions across keys, each with the fault to report where it does not hold.
    pub fn conditions(&self) -> Conditions {
        let conditions = [
            (
                self.listen != self.private_listen || self.listen.port() == 0,
                "http.listen and http.private_listen are the same address: give each its own",
            ),
            (self.max_in_flight > 0, "http.max_in_flight is 0: no request could ever be answered"),
            (self.max_connections > 0, "http.max_connections is 0: nobody could ever connect"),
            (!self.deadline.is_zero(), "http.deadline is 0: every request would fail"),
            (
                self.user_burst == 0 || self.user_requests_per_second > 0,
                "http.user_requests_per_second is 0, but http.user_burst is not: no user could send another request",
            ),
        ];
        let origins = self.cors_origins.iter().filter(|origin| *origin != "*").map(|origin| {
            let is_origin = Url::parse(origin).is_ok_and(|url| url.origin().ascii_serialization() == *origin);
            (is_origin, format!("http.cors_origins: `{origin}` is no web origin like https://app.example.org"))
        });
        conditions.map(|(holds, fault)| (holds, fault.to_owned())).into_iter().chain(origins).collect()
    }
}
