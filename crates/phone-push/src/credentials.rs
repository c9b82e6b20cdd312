//! Credentials for both providers: OAuth 2.0 access tokens for FCM, and signed provider tokens for APNs.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use aws_lc_rs::{
    rand::SystemRandom as UnusedRandom,
    rsa::KeyPair as RsaKeyPair,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, RSA_PKCS1_SHA256},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::HeaderValue;
use rustls::pki_types::{PrivateKeyDer, pem::PemObject as _};
use serde::Deserialize;
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};
use tokio::sync::Mutex as AsyncMutex;
use url::Url;

use crate::{Now, SettingsError};

const SCOPE: &str = "https://www.googleapis.com/auth/firebase.messaging";
const GRANT: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const ASSERTION_LIFE: Duration = Duration::hours(1);
/// Time before its expiry at which an access token is renewed.
const RENEW_BEFORE: Duration = Duration::minutes(5);
/// Pause after a failed renewal, while the old token is still valid.
const RENEWAL_PAUSE: Duration = Duration::seconds(10);
/// Time without new access tokens after FCM refused a new one: a missing permission would otherwise cost one for each
/// notification.
const REFUSAL_PAUSE: Duration = Duration::minutes(1);
/// APNs accepts tokens that are 20 to 60 minutes old, and limits how often new ones arrive.
const PROVIDER_TOKEN_LIFE: Duration = Duration::minutes(40);

/// Key file of a Google service account.
#[derive(Clone)]
pub struct ServiceAccount {
    project_id: String,
    client_email: String,
    key_id: Option<String>,
    key: Arc<RsaKeyPair>,
    token_uri: Url,
}

impl ServiceAccount {
    /// Parses the contents of the JSON key file.
    pub fn parse(json: &str) -> Result<Self, SettingsError> {
        #[derive(Deserialize)]
        struct File {
            project_id: String,
            client_email: String,
            private_key_id: Option<String>,
            private_key: String,
            token_uri: String,
        }
        let file: File = serde_json::from_str(json).map_err(|_| SettingsError::ServiceAccount)?;
        let key = match PrivateKeyDer::from_pem_slice(file.private_key.as_bytes()) {
            Ok(PrivateKeyDer::Pkcs8(key)) => RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()),
            Ok(PrivateKeyDer::Pkcs1(key)) => RsaKeyPair::from_der(key.secret_pkcs1_der()),
            _ => return Err(SettingsError::RsaKey),
        };
        Ok(Self {
            project_id: file.project_id,
            client_email: file.client_email,
            key_id: file.private_key_id,
            key: Arc::new(key.map_err(|_| SettingsError::RsaKey)?),
            token_uri: Url::parse(&file.token_uri).map_err(|_| SettingsError::ServiceAccount)?,
        })
    }

    /// Server that issues access tokens. The caller checks whether its scheme is allowed.
    pub fn token_uri(&self) -> &Url {
        &self.token_uri
    }

    pub(crate) fn project_id(&self) -> &str {
        &self.project_id
    }

    /// Signed request for an access token (RFC 7523).
    fn assertion(&self, now: OffsetDateTime) -> Option<String> {
        let mut header = json!({"alg": "RS256", "typ": "JWT"});
        if let Some(id) = &self.key_id {
            header["kid"] = json!(id);
        }
        let claims = json!({
            "iss": self.client_email,
            "scope": SCOPE,
            "aud": self.token_uri.as_str(),
            "iat": now.unix_timestamp(),
            "exp": (now + ASSERTION_LIFE).unix_timestamp(),
        });
        let mut signature = vec![0; self.key.public_modulus_len()];
        let signed = unsigned_jwt(&header, &claims);
        self.key.sign(&RSA_PKCS1_SHA256, &UnusedRandom::new(), signed.as_bytes(), &mut signature).ok()?;
        Some(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

impl fmt::Debug for ServiceAccount {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ServiceAccount").field("project_id", &self.project_id).finish_non_exhaustive()
    }
}

fn unsigned_jwt(header: &Value, claims: &Value) -> String {
    let encode = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
    format!("{}.{}", encode(header), encode(claims))
}

/// A value of the `Authorization` header that must not be logged.
fn bearer(scheme: &str, token: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(format!("{scheme} {token}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[derive(Debug)]
pub(crate) struct AccessToken {
    pub(crate) header: HeaderValue,
    renew_at: OffsetDateTime,
    expires_at: OffsetDateTime,
}

/// Access tokens for FCM. At most one request for a token is under way.
pub(crate) struct AccessTokens {
    account: ServiceAccount,
    client: reqwest::Client,
    now: Now,
    current: Mutex<Option<Arc<AccessToken>>>,
    renewing: AsyncMutex<()>,
    /// Number of finished requests for a token.
    requests: AtomicU64,
    /// Until then, tokens that are still valid are not renewed.
    renew_again_at: Mutex<OffsetDateTime>,
    /// Until then, refused tokens are not replaced.
    replace_again_at: Mutex<OffsetDateTime>,
}

impl AccessTokens {
    pub(crate) fn new(account: ServiceAccount, client: reqwest::Client, now: Now) -> Self {
        Self {
            account,
            client,
            now,
            current: Mutex::new(None),
            renewing: AsyncMutex::new(()),
            requests: AtomicU64::new(0),
            renew_again_at: Mutex::new(OffsetDateTime::UNIX_EPOCH),
            replace_again_at: Mutex::new(OffsetDateTime::UNIX_EPOCH),
        }
    }

    pub(crate) async fn get(&self) -> Result<Arc<AccessToken>, String> {
        let now = (self.now)();
        match self.current() {
            Some(token) if now < token.renew_at => Ok(token),
            // The old token is valid for some minutes: one caller renews it, and the others continue with it.
            Some(token) if now < token.expires_at => {
                let Ok(_guard) = self.renewing.try_lock() else { return Ok(token) };
                match self.current() {
                    Some(newer) if !Arc::ptr_eq(&newer, &token) => return Ok(newer),
                    _ if now < *lock(&self.renew_again_at) => return Ok(token),
                    _ => {}
                }
                self.request().await.or_else(|error| {
                    *lock(&self.renew_again_at) = now + RENEWAL_PAUSE;
                    tracing::warn!(error, "FCM access token was not renewed");
                    Ok(token)
                })
            }
            _ => self.request_once().await,
        }
    }

    /// Returns another token than the one that FCM refused, or `None` if new ones are refused too.
    pub(crate) async fn replace(&self, refused: &Arc<AccessToken>) -> Result<Option<Arc<AccessToken>>, String> {
        if (self.now)() < *lock(&self.replace_again_at) {
            return Ok(None);
        }
        lock(&self.current).take_if(|current| Arc::ptr_eq(current, refused));
        self.request_once().await.map(Some)
    }

    /// Records that FCM refused a token that was new.
    pub(crate) fn replacement_refused(&self) {
        *lock(&self.replace_again_at) = (self.now)() + REFUSAL_PAUSE;
    }

    fn current(&self) -> Option<Arc<AccessToken>> {
        lock(&self.current).clone()
    }

    /// Requests a token, or waits for the request of another caller and shares its result.
    async fn request_once(&self) -> Result<Arc<AccessToken>, String> {
        let seen = self.requests.load(Ordering::Acquire);
        let _guard = self.renewing.lock().await;
        if let Some(token) = self.current().filter(|token| (self.now)() < token.expires_at) {
            return Ok(token);
        }
        if self.requests.load(Ordering::Acquire) != seen {
            return Err("the request of another caller failed".to_owned());
        }
        self.request().await
    }

    async fn request(&self) -> Result<Arc<AccessToken>, String> {
        // Boxed, because it is rare and large, and part of the future of each notification.
        let result = Box::pin(self.fetch()).await.map(Arc::new);
        self.requests.fetch_add(1, Ordering::AcqRel);
        if let Ok(token) = &result {
            *lock(&self.current) = Some(token.clone());
        }
        result
    }

    async fn fetch(&self) -> Result<AccessToken, String> {
        #[derive(Deserialize)]
        struct Issued {
            access_token: String,
            expires_in: u32,
        }
        let now = (self.now)();
        let assertion = self.account.assertion(now).ok_or("the assertion was not signed")?;
        let form = [("grant_type", GRANT), ("assertion", &assertion)];
        let shown = |error: reqwest::Error| error.without_url().to_string();
        let response = self.client.post(self.account.token_uri.clone()).form(&form).send().await.map_err(shown)?;
        if !response.status().is_success() {
            return Err(format!("the token server responded with {}", response.status().as_u16()));
        }
        let issued: Issued = response.json().await.map_err(shown)?;
        let life = Duration::seconds(issued.expires_in.into());
        Ok(AccessToken {
            header: bearer("Bearer", &issued.access_token).ok_or("the access token is not a header value")?,
            // A token with a short life is not renewed before each request.
            renew_at: now + life - RENEW_BEFORE.min(life / 2),
            expires_at: now + life,
        })
    }
}

/// Provider tokens for APNs.
pub(crate) struct ProviderTokens {
    key: EcdsaKeyPair,
    header: Value,
    team_id: String,
    now: Now,
    current: Mutex<Option<(HeaderValue, OffsetDateTime)>>,
}

impl ProviderTokens {
    pub(crate) fn new(pem: &str, key_id: &str, team_id: &str, now: Now) -> Result<Self, SettingsError> {
        let Ok(PrivateKeyDer::Pkcs8(key)) = PrivateKeyDer::from_pem_slice(pem.as_bytes()) else {
            return Err(SettingsError::EcKey);
        };
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.secret_pkcs8_der());
        Ok(Self {
            key: key.map_err(|_| SettingsError::EcKey)?,
            header: json!({"alg": "ES256", "typ": "JWT", "kid": key_id}),
            team_id: team_id.to_owned(),
            now,
            current: Mutex::new(None),
        })
    }

    /// Returns a token other than `expired`.
    pub(crate) fn get(&self, expired: Option<&HeaderValue>) -> Option<HeaderValue> {
        let now = (self.now)();
        let mut current = lock(&self.current);
        if let Some((token, issued_at)) = &*current
            && now < *issued_at + PROVIDER_TOKEN_LIFE
            && expired != Some(token)
        {
            return Some(token.clone());
        }
        let signed = unsigned_jwt(&self.header, &json!({"iss": self.team_id, "iat": now.unix_timestamp()}));
        let signature = self.key.sign(&UnusedRandom::new(), signed.as_bytes()).ok()?;
        let token = bearer("bearer", &format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))?;
        *current = Some((token.clone(), now));
        Some(token)
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
