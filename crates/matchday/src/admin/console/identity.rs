//! Verification of operators: a request reaches a page only if the proxy in front of the console proves the operator's
//! identity.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use jsonwebtoken::{Algorithm, Validation, decode, decode_header};
use platform::Environment;
use secrecy::ExposeSecret as _;
use serde_json::{Map, Value};
use time::OffsetDateTime;

use super::{
    keys::{Keys, NoKey, Source},
    rules::{self, ProxySecrets, Role, Roles},
    settings::Settings,
};

/// Name of the operator in development, where no proof of identity is required.
pub(super) const DEVELOPER: &str = "developer";

/// An operator whose identity is proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verified {
    pub(super) name: String,
    pub(super) role: Role,
}

/// Reason why the operator of a request could not be verified.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The request contains no proof of the operator's identity, or an invalid one.
    Unproven(&'static str),
    /// The operator is verified, but has no role.
    NoRole(String),
    /// The identity provider's keys cannot be read, so no token can be verified.
    KeysUnavailable,
}

pub(super) struct Verifier {
    proof: Proof,
    roles: Roles,
}

enum Proof {
    /// No way to verify operators is configured, so no request is accepted.
    Impossible,
    /// In development on a loopback address, every request is the developer's.
    NotNeeded,
    Secret(SecretProof),
    Token(Box<TokenProof>),
}

struct SecretProof {
    secrets: ProxySecrets,
    secret_header: HeaderName,
    operator_header: HeaderName,
    groups_header: HeaderName,
}

struct TokenProof {
    header: HeaderName,
    issuer: String,
    audiences: Vec<String>,
    algorithms: Vec<Algorithm>,
    name_claim: String,
    role_claim: String,
    keys: Keys,
}

impl Verifier {
    pub(super) fn new(env: Environment, console: &Settings) -> reqwest::Result<Self> {
        let proof = if let Some(issuer) = &console.token_issuer {
            Proof::Token(Box::new(TokenProof::new(console, issuer)?))
        } else if !console.proxy_secrets.is_empty() {
            Proof::Secret(SecretProof::new(console))
        } else if env.is_development() && console.listen.ip().is_loopback() {
            Proof::NotNeeded
        } else {
            Proof::Impossible
        };
        Ok(Self { proof, roles: Roles::new(console) })
    }

    /// Fails if the settings name a key file that cannot be read.
    pub(super) async fn check(&self) -> anyhow::Result<()> {
        match &self.proof {
            Proof::Token(proof) => proof.keys.check().await,
            _ => Ok(()),
        }
    }

    /// Returns the verified operator of a request, or the reason for a refusal.
    pub(super) async fn verify(&self, headers: &HeaderMap, now: OffsetDateTime) -> Result<Verified, Refusal> {
        let (name, groups) = match &self.proof {
            Proof::Impossible => return Err(Refusal::Unproven("no verification of operators is configured")),
            Proof::NotNeeded if is_local(headers) => {
                return Ok(Verified { name: DEVELOPER.to_owned(), role: Role::Operator });
            }
            Proof::NotNeeded => return Err(Refusal::Unproven("the host is not this machine")),
            Proof::Secret(proof) => proof.verify(headers)?,
            Proof::Token(proof) => proof.verify(headers, now).await?,
        };
        match self.roles.of(&name, &groups) {
            Some(role) => Ok(Verified { name, role }),
            None => Err(Refusal::NoRole(name)),
        }
    }
}

/// Whether the browser addressed this machine. Otherwise a foreign page whose name resolves to 127.0.0.1 (DNS
/// rebinding) could read the console through the developer's browser.
fn is_local(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST) else { return true };
    let host = host.to_str().unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    name == "localhost" || name.ends_with(".localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// Returns the value of a header that occurs exactly once. If it occurs twice, the proxy may have set only one of them.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h HeaderValue> {
    let mut values = headers.get_all(name).into_iter();
    values.next().filter(|_| values.next().is_none())
}

/// Loading the settings already refused invalid header names.
fn header_name(setting: &str) -> HeaderName {
    HeaderName::try_from(setting).unwrap_or(HeaderName::from_static("x-not-a-header"))
}

impl SecretProof {
    fn new(console: &Settings) -> Self {
        Self {
            secrets: ProxySecrets::new(console.proxy_secrets.iter().map(|secret| secret.inner().expose_secret())),
            secret_header: header_name(&console.proxy_secret_header),
            operator_header: header_name(&console.operator_header),
            groups_header: header_name(&console.groups_header),
        }
    }

    fn verify(&self, headers: &HeaderMap) -> Result<(String, Vec<String>), Refusal> {
        let secret = only(headers, &self.secret_header).ok_or(Refusal::Unproven("the proxy's secret is missing"))?;
        if !self.secrets.contain(secret.as_bytes()) {
            return Err(Refusal::Unproven("the proxy's secret is wrong"));
        }
        let values = headers.get_all(&self.operator_header).into_iter().map(HeaderValue::as_bytes);
        let name =
            rules::operator_name(values).ok_or(Refusal::Unproven("the operator's name is missing or ambiguous"))?;
        let groups = match (headers.contains_key(&self.groups_header), only(headers, &self.groups_header)) {
            (false, _) => Vec::new(),
            (true, Some(value)) => match std::str::from_utf8(value.as_bytes()) {
                Ok(groups) => rules::groups(groups),
                Err(_) => return Err(Refusal::Unproven("the operator's groups are not text")),
            },
            (true, None) => return Err(Refusal::Unproven("the operator's groups are sent more than once")),
        };
        Ok((name, groups))
    }
}

impl TokenProof {
    fn new(console: &Settings, issuer: &str) -> reqwest::Result<Self> {
        let source = match (&console.token_keys_url, &console.token_keys_file) {
            (Some(url), _) => Source::Url(url.clone()),
            (None, file) => Source::File(file.clone().unwrap_or_default().into()),
        };
        Ok(Self {
            header: header_name(&console.token_header),
            issuer: issuer.to_owned(),
            audiences: console.token_audiences.clone(),
            algorithms: console.token_algorithms.iter().map(|algorithm| algorithm.0).collect(),
            name_claim: console.name_claim.clone(),
            role_claim: console.role_claim.clone(),
            keys: Keys::new(source)?,
        })
    }

    async fn verify(&self, headers: &HeaderMap, now: OffsetDateTime) -> Result<(String, Vec<String>), Refusal> {
        let value = only(headers, &self.header).ok_or(Refusal::Unproven("the token is missing"))?;
        let token = bearer(value.to_str().unwrap_or_default());
        // Decoding already refuses `none` and unknown algorithms.
        let head = decode_header(token).map_err(|_| Refusal::Unproven("the token cannot be read"))?;
        if !self.algorithms.contains(&head.alg) {
            return Err(Refusal::Unproven("the token's algorithm is not allowed"));
        }
        // RFC 7515, section 4.1.11: a token with critical extensions that the recipient does not support is invalid.
        if head.crit.is_some() {
            return Err(Refusal::Unproven("the token has critical extensions"));
        }
        let key = self.keys.find(head.kid.as_deref(), head.alg, now).await.map_err(|missing| match missing {
            NoKey::Unknown => Refusal::Unproven("the token's key is unknown"),
            NoKey::Unavailable => Refusal::KeysUnavailable,
        })?;
        let mut validation = Validation::new(head.alg);
        validation.set_issuer(&[&self.issuer]);
        validation.set_audience(&self.audiences);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        // Checked below with the service's clock.
        validation.validate_exp = false;
        let claims = decode::<Map<String, Value>>(token, &key, &validation).map_err(|error| {
            use jsonwebtoken::errors::ErrorKind::{
                InvalidAudience, InvalidIssuer, InvalidSignature, MissingRequiredClaim,
            };
            Refusal::Unproven(match error.kind() {
                InvalidSignature => "the token's signature is wrong",
                InvalidIssuer => "the token's issuer is wrong",
                InvalidAudience => "the token's audience is wrong",
                MissingRequiredClaim(_) => "the token has no exp, iss or aud",
                _ => "the token is not valid",
            })
        })?;
        let claims = claims.claims;
        if !rules::is_current(&claims, now) {
            return Err(Refusal::Unproven("the token has expired or is not valid yet"));
        }
        let name = rules::named_by(&claims, &self.name_claim)
            .ok_or(Refusal::Unproven("the token does not name the operator, or the email address is not verified"))?;
        Ok((name, rules::groups_in(&claims, &self.role_claim)))
    }
}

/// Removes the scheme in front of a token.
fn bearer(value: &str) -> &str {
    match value.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
        _ => value.trim(),
    }
}
