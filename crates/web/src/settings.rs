//! Settings of the HTTP listeners.

use std::{net::SocketAddr, time::Duration};

use ipnet::IpNet;
use platform::{section, settings::Conditions};
use url::Url;

section! {
    /// HTTP listeners, and limits of requests.
    http: Http {
        /// Address on which apps reach the service.
        listen: SocketAddr = "127.0.0.1:8080",
        /// Address for Prometheus and the homeserver: metrics, health and pushed chat events. Keep it off the internet.
        private_listen: SocketAddr = "127.0.0.1:9090",
        /// Address on which backends reach the server API. Empty: the API is served on `http.listen`. If set, it is served
        /// here only.
        server_listen: Option<SocketAddr> = "",
        /// Maximum number of open connections. Further ones wait to be accepted.
        max_connections: usize = "20000",
        /// Maximum number of concurrent requests. Further ones get 503 immediately.
        max_in_flight: usize = "1024",
        /// Number of requests with a token that a user can send to this process without a pause. Further ones get 429.
        /// The live stream does not count. Multiplied by 1,000 in `local` and `testing`. 0: no limit.
        user_burst: u32 = "200",
        /// Sustained number of these requests per second. Multiplied by 1,000 in `local` and `testing`.
        user_requests_per_second: u32 = "50",
        /// Maximum duration of a request, and also the maximum time for it to arrive.
        deadline: Duration = "10s",
        /// Time after which an idle connection is closed.
        keep_alive: Duration = "75s",
        /// Maximum size of a request body, in bytes.
        body_limit: usize = "65536",
        /// Web origins that may call the API, like `https://app.example.org`; `*` means any. Empty: none.
        cors_origins: Vec<String> = "",
        /// Networks of proxies in front of this service, like `10.0.0.0/8`. `X-Forwarded-For` is trusted from these
        /// networks only. Empty: the remote address of the connection is the client.
        trusted_proxies: Vec<IpNet> = "",
        /// Public URL of the service, like `https://api.example.org`. SMS providers send their delivery reports there.
        public_url: Option<Url> = "",
    }
}

impl Http {
    pub fn conditions(&self) -> Conditions {
        let conditions = [
            (
                self.listen != self.private_listen || self.listen.port() == 0,
                "http.listen and http.private_listen are the same address: use two different ones",
            ),
            (
                self.server_listen.is_none_or(|address| {
                    (address != self.listen && address != self.private_listen) || address.port() == 0
                }),
                "http.server_listen is the address of another listener: use a different one",
            ),
            (self.max_in_flight > 0, "http.max_in_flight is 0: every request would be refused"),
            (self.max_connections > 0, "http.max_connections is 0: no client could connect"),
            (!self.deadline.is_zero(), "http.deadline is 0: every request would fail"),
            (
                self.user_burst == 0 || self.user_requests_per_second > 0,
                "http.user_requests_per_second is 0, but http.user_burst is not: no user could send another request",
            ),
        ];
        let origins = self.cors_origins.iter().filter(|origin| *origin != "*").map(|origin| {
            let is_origin = Url::parse(origin).is_ok_and(|url| url.origin().ascii_serialization() == *origin);
            (is_origin, format!("http.cors_origins: `{origin}` is not a web origin like https://app.example.org"))
        });
        conditions.map(|(holds, fault)| (holds, fault.to_owned())).into_iter().chain(origins).collect()
    }
}
