use std::net::SocketAddr;

use platform::{
    Environment, section,
    settings::{Conditions, Secret, Setting},
};
use secrecy::ExposeSecret as _;
use url::Url;

section! {
    /// Operator console, see docs/console.md.
    console: Settings {
        /// Whether this process serves the console. Empty: only in `local` and `testing`.
        enabled: Option<bool> = "",
        /// Address of the console's listener. Only your single sign-on proxy should reach it. Without
        /// `console.token_issuer` and `console.proxy_secrets` it must be a loopback address.
        listen: SocketAddr = "127.0.0.1:9092",
        /// Secrets with which the proxy proves that a request comes from it, each at least 32 characters long. The
        /// console accepts any of them, so you can add a new one before you remove the old one. Set this or
        /// `console.token_issuer`.
        proxy_secrets: Vec<Secret> = "",
        /// Header in which the proxy sends its secret.
        proxy_secret_header: String = "X-Console-Secret",
        /// With `console.proxy_secrets`: header in which the proxy sends the operator's name. The proxy must replace
        /// the browser's value.
        operator_header: String = "X-Forwarded-User",
        /// With `console.proxy_secrets`: header in which the proxy sends the operator's groups, separated by commas.
        /// The proxy must replace the browser's value.
        groups_header: String = "X-Forwarded-Groups",
        /// Issuer (`iss`) of the identity tokens (JWT) that the proxy passes on, for example
        /// `https://login.example.org/realms/staff`.
        token_issuer: Option<String> = "",
        /// Accepted audiences (`aud`) of tokens, usually the client id of the proxy.
        token_audiences: Vec<String> = "",
        /// URL of the issuer's signing keys (JWKS). The console fetches them on first use, every hour, and when a token
        /// names an unknown key, at most every 30 seconds. Set this or `console.token_keys_file`.
        token_keys_url: Option<Url> = "",
        /// File with the issuer's signing keys (JWKS). The console reads it again at the same intervals as the URL.
        token_keys_file: Option<String> = "",
        /// Header in which the proxy sends the token, with or without the prefix `Bearer`.
        token_header: String = "Authorization",
        /// Accepted signature algorithms: any of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384 and `EdDSA`.
        token_algorithms: Vec<TokenAlgorithm> = "RS256,PS256,ES256,EdDSA",
        /// Claim with the operator's name for the audit log. Users must not be able to choose its value.
        name_claim: String = "email",
        /// Claim with the operator's groups or roles, a text or a list. Dots select nested fields, for example
        /// `realm_access.roles`.
        role_claim: String = "groups",
        /// Groups whose members may view every page. An entry `user:NAME` names one operator instead of a group.
        viewers: Vec<String> = "",
        /// Groups whose members may also handle reports and held messages, remove messages and avatars, and mute and ban users. `user:NAME` names one operator.
        moderators: Vec<String> = "",
        /// Groups whose members may perform every action. `user:NAME` names one operator.
        operators: Vec<String> = "",
    }
}

impl Settings {
    /// Conditions that the settings must meet, each with the message to report if it does not hold.
    pub fn conditions(&self, env: Environment, taken: &[Option<SocketAddr>]) -> Conditions {
        let headers = [
            ("proxy_secret_header", &self.proxy_secret_header),
            ("operator_header", &self.operator_header),
            ("groups_header", &self.groups_header),
            ("token_header", &self.token_header),
        ];
        let mut conditions: Vec<(bool, String)> = headers
            .iter()
            .map(|(key, name)| {
                let is_name = http::HeaderName::try_from(name.as_str()).is_ok();
                (is_name, format!("console.{key}: `{name}` is not the name of a header, like X-Forwarded-User"))
            })
            .collect();
        if !self.is_enabled(env) {
            return conditions;
        }
        let (by_secret, by_token) = (!self.proxy_secrets.is_empty(), self.token_issuer.is_some());
        let is_verified = by_secret || by_token;
        let keys = (self.token_keys_url.as_ref(), self.token_keys_file.as_ref());
        let has_roles = [&self.viewers, &self.moderators, &self.operators].iter().any(|list| !list.is_empty());
        let further = [
            (
                self.listen.port() == 0 || !taken.contains(&Some(self.listen)),
                "console.listen is the address of another listener: give the console its own address",
            ),
            (
                is_verified || env.is_development(),
                "console.enabled is true, but the console cannot verify its operators: set console.proxy_secrets or \
                 console.token_issuer, or console.enabled to false",
            ),
            (
                is_verified || !env.is_development() || self.listen.ip().is_loopback(),
                "console.listen is not a loopback address, but the console cannot verify its operators: set \
                 console.proxy_secrets or console.token_issuer",
            ),
            (
                !(by_secret && by_token),
                "console.proxy_secrets and console.token_issuer are both set: choose one way to verify operators",
            ),
            (
                self.proxy_secrets.iter().all(|secret| secret.inner().expose_secret().len() >= 32),
                "console.proxy_secrets has a secret of fewer than 32 characters: make one with `openssl rand -hex 32`",
            ),
            (
                !by_token || !self.token_audiences.is_empty(),
                "console.token_audiences is not set, but console.token_issuer is",
            ),
            (
                !by_token || matches!(keys, (Some(_), None) | (None, Some(_))),
                "console.token_issuer is set: set either console.token_keys_url or console.token_keys_file too",
            ),
            (
                by_token || keys == (None, None),
                "console.token_issuer is not set, but console.token_keys_url or console.token_keys_file is",
            ),
            (
                keys.0.is_none_or(|url| url.scheme() == "https" || env.is_development()),
                "console.token_keys_url does not begin with https://",
            ),
            (!by_token || !self.token_algorithms.is_empty(), "console.token_algorithms is empty"),
            (
                !is_verified || has_roles,
                "console.operators, console.moderators and console.viewers are all empty: no one could use the console",
            ),
        ];
        conditions.extend(further.map(|(holds, fault)| (holds, fault.to_owned())));
        conditions
    }
}

impl Settings {
    pub fn is_enabled(&self, env: Environment) -> bool {
        self.enabled.unwrap_or(env.is_development())
    }
}

/// An asymmetric signature algorithm, see `console.token_algorithms`. Symmetric algorithms and `none` are excluded:
/// with them, the public key, or nothing at all, would be enough to sign a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenAlgorithm(pub jsonwebtoken::Algorithm);

impl Setting for TokenAlgorithm {
    const EXPECTED: &'static str = "RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384 or EdDSA";
    const LISTED: &'static str =
        "a list of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384 and EdDSA, separated by commas";
    fn parse(text: &str) -> Option<Self> {
        let algorithm: jsonwebtoken::Algorithm = text.parse().ok()?;
        (algorithm.family() != jsonwebtoken::AlgorithmFamily::Hmac).then_some(Self(algorithm))
    }
    fn show(&self) -> String {
        format!("{:?}", self.0)
    }
}
