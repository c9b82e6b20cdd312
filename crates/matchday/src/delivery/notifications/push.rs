//! Web push: encrypts a message so that only the browser can read it (RFC 8291), and sends it to the push service that
//! the browser named (RFC 8030), with VAPID authentication (RFC 8292).

use std::sync::Arc;

use aws_lc_rs::{
    aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey},
    agreement::{ECDH_P256, PrivateKey, UnparsedPublicKey, agree},
    rand::SystemRandom as UnusedRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use breaker::Breaker;
use futures_util::{FutureExt as _, StreamExt as _, future::BoxFuture, stream};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderName, HeaderValue, StatusCode};
use platform::{
    clock::Clock,
    outbound_http::{Answer, OutboundHttp, PostError},
    random::{self, Random},
};
use serde::Serialize;
use serde_json::json;
use sha2::Sha256;
use time::{Duration, OffsetDateTime};
use url::Url;

use super::{
    notifier::{Notice, Notified, Notifier, Outcome, Place, Recipient},
    rules::{PushKeys, PushServices},
    service::Subscription,
};

/// An uncompressed point of P-256.
pub type Point = [u8; 65];

/// Lifetime of a VAPID token. The specification allows one day at most.
const TOKEN_LIFE: Duration = Duration::hours(12);
/// Size of the single record of a message. Push services accept no larger ones.
const RECORD_SIZE: u32 = 4_096;

/// Error from loading a key or encrypting a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the key is not a valid P-256 key")]
pub struct BadKey;

/// Key pair that identifies this service to push services (RFC 8292).
pub struct Vapid {
    pair: EcdsaKeyPair,
    public: Point,
    subject: String,
}

impl Vapid {
    pub fn new(private: &[u8], subject: &str) -> Result<Self, BadKey> {
        let public = public_of(&PrivateKey::from_private_key(&ECDH_P256, private).map_err(|_| BadKey)?)?;
        let pair = EcdsaKeyPair::from_private_key_and_public_key(&ECDSA_P256_SHA256_FIXED_SIGNING, private, &public);
        Ok(Self { pair: pair.map_err(|_| BadKey)?, public, subject: subject.to_owned() })
    }

    /// Returns the public key that browsers need to subscribe.
    pub fn public_key(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.public)
    }

    /// Returns the value of the `Authorization` header for a push service.
    fn authorization(&self, endpoint: &Url, now: OffsetDateTime) -> Result<String, BadKey> {
        let claims = json!({
            "aud": endpoint.origin().ascii_serialization(),
            "exp": (now + TOKEN_LIFE).unix_timestamp(),
            "sub": self.subject,
        });
        let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let signed = format!("{}.{}", encode(r#"{"typ":"JWT","alg":"ES256"}"#), encode(&claims.to_string()));
        let signature = self.pair.sign(&UnusedRandom::new(), signed.as_bytes()).map_err(|_| BadKey)?;
        Ok(format!("vapid t={signed}.{}, k={}", URL_SAFE_NO_PAD.encode(signature), self.public_key()))
    }
}

/// Generates a key pair. Returns the private key in the form of the setting, and the public key.
pub fn make_key(random: &dyn Random) -> Result<(String, String), BadKey> {
    let (private, bytes) = make_private(random);
    Ok((URL_SAFE_NO_PAD.encode(bytes), URL_SAFE_NO_PAD.encode(public_of(&private)?)))
}

fn make_private(random: &dyn Random) -> (PrivateKey, [u8; 32]) {
    loop {
        // About one in four billion 32-byte numbers is not a valid scalar of the curve.
        let bytes = random::bytes::<32>(random);
        if let Ok(private) = PrivateKey::from_private_key(&ECDH_P256, &bytes) {
            return (private, bytes);
        }
    }
}

fn public_of(private: &PrivateKey) -> Result<Point, BadKey> {
    private.compute_public_key().ok().and_then(|public| public.as_ref().try_into().ok()).ok_or(BadKey)
}

fn mac(key: &[u8], parts: &[&[u8]]) -> Result<[u8; 32], BadKey> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).map_err(|_| BadKey)?;
    for part in parts {
        mac.update(part);
    }
    Ok(mac.finalize().into_bytes().into())
}

/// Encrypts a message for a browser with a one-time key, as the single record of a body with `Content-Encoding:
/// aes128gcm`.
fn encrypt(keys: &PushKeys, message: &[u8], one_time: &PrivateKey, salt: [u8; 16]) -> Result<Vec<u8>, BadKey> {
    let ours = public_of(one_time)?;
    let theirs = UnparsedPublicKey::new(&ECDH_P256, keys.p256dh);
    // Secret shared with the browser, bound to both public keys and to the browser's `auth` secret.
    let shared = agree(one_time, theirs, BadKey, |shared| mac(&keys.auth, &[shared]))?;
    let material = mac(&shared, &[b"WebPush: info\0", &keys.p256dh, &ours, &[1]])?;
    let extracted = mac(&salt, &[&material])?;
    let key = mac(&extracted, &[b"Content-Encoding: aes128gcm\0", &[1]])?;
    let nonce = mac(&extracted, &[b"Content-Encoding: nonce\0", &[1]])?;
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key[..16]).map_err(|_| BadKey)?);
    let nonce = Nonce::try_assume_unique_for_key(&nonce[..12]).map_err(|_| BadKey)?;
    // The delimiter 2 marks the last record.
    let mut record = [message, &[2]].concat();
    key.seal_in_place_append_tag(nonce, Aad::empty(), &mut record).map_err(|_| BadKey)?;
    let head = [&salt[..], &RECORD_SIZE.to_be_bytes(), &[65], &ours];
    Ok([&head.concat()[..], &record].concat())
}

/// Circuit breakers of push services: failures in a row that they tolerate, pause, and number of services that are
/// remembered. Without a list of push services, users choose the service.
const TOLERATED_FAILURES: u32 = 5;
const BREAKER_PAUSE: std::time::Duration = std::time::Duration::from_secs(10);
const BREAKERS: usize = 1_000;

/// Notifies users in their browsers.
pub(super) struct Push {
    pub(super) vapid: Arc<Vapid>,
    pub(super) http_client: OutboundHttp,
    pub(super) services: PushServices,
    /// By the origin of the push service. One that hangs would otherwise take all places from other providers.
    pub(super) breakers: Breakers,
    pub(super) at_once: usize,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) random: Arc<dyn Random>,
}

/// Circuit breakers of push services.
pub(super) struct Breakers {
    by_origin: quick_cache::sync::Cache<String, Arc<Breaker>>,
    /// Maximum time for a response.
    timeout: std::time::Duration,
}

impl Breakers {
    pub(super) fn new(timeout: std::time::Duration) -> Self {
        Self { by_origin: quick_cache::sync::Cache::new(BREAKERS), timeout }
    }

    fn of(&self, endpoint: &Url) -> Arc<Breaker> {
        let origin = endpoint.origin().ascii_serialization();
        let new = || Ok::<_, std::convert::Infallible>(Arc::new(Breaker::new(TOLERATED_FAILURES, BREAKER_PAUSE)));
        let Ok(breaker) = self.by_origin.get_or_insert_with(&origin, new);
        breaker
    }

    fn record(&self, breaker: &Breaker, answer: &Result<Answer, PostError>) {
        match answer {
            Ok(answer) => breaker.record(!answer.status.is_server_error()),
            Err(PostError::TimedOut) => breaker.record_timeout(self.timeout),
            Err(PostError::Unreached(_) | PostError::Broken(_)) => breaker.record(false),
            // This service refused the URL.
            Err(PostError::Address(_)) => {}
        }
    }
}

/// Headers of a message.
pub(super) struct Envelope {
    /// Seconds for which the push service keeps the message for a browser that is offline.
    pub(super) ttl: i64,
    pub(super) is_urgent: bool,
    /// A browser that was offline gets only the latest message with the same topic.
    pub(super) topic: String,
}

impl Push {
    async fn send(&self, notice: &Notice, message: &[u8], to: &Subscription) -> Sent {
        // A browser that stays offline until the match starts must not get the reminder later.
        let ttl = (notice.expires_at() - self.clock.now()).whole_seconds().max(0);
        let envelope = Envelope { ttl, is_urgent: false, topic: notice.topic() };
        match self.post(&to.endpoint, &to.keys, &envelope, message).await {
            phone_push::Outcome::Taken => Sent::Was(Outcome::Taken),
            phone_push::Outcome::Later { .. } => Sent::Was(Outcome::Later),
            phone_push::Outcome::Unknown => Sent::Was(Outcome::Unknown),
            phone_push::Outcome::Refused { .. } => Sent::Was(Outcome::Refused),
            phone_push::Outcome::Gone { .. } => Sent::Gone,
        }
    }

    /// Makes one attempt to deliver a message to a browser.
    pub(super) async fn post(
        &self,
        endpoint: &Url,
        keys: &PushKeys,
        envelope: &Envelope,
        message: &[u8],
    ) -> phone_push::Outcome {
        // The browser may have subscribed before the operator restricted the push services.
        if !self.services.include(endpoint) {
            return refused("push_service");
        }
        let breaker = self.breakers.of(endpoint);
        if breaker.admit().is_err() {
            return phone_push::Outcome::Later { after: None, limited: false };
        }
        let now = self.clock.now();
        let (one_time, _) = make_private(&*self.random);
        let encrypted = encrypt(keys, message, &one_time, random::bytes(&*self.random));
        let (Ok(body), Ok(authorization)) = (encrypted, self.vapid.authorization(endpoint, now)) else {
            return refused("key");
        };
        let headers = [
            ("authorization", authorization),
            ("content-encoding", "aes128gcm".to_owned()),
            ("content-type", "application/octet-stream".to_owned()),
            ("ttl", envelope.ttl.to_string()),
            ("urgency", if envelope.is_urgent { "high" } else { "normal" }.to_owned()),
            ("topic", envelope.topic.clone()),
        ];
        let headers = headers
            .into_iter()
            .filter_map(|(name, value)| Some((HeaderName::from_static(name), HeaderValue::try_from(value).ok()?)));
        let answer = self.http_client.post(endpoint, headers, body).await;
        self.breakers.record(&breaker, &answer);
        judge(answer, now)
    }
}

fn refused(code: &str) -> phone_push::Outcome {
    phone_push::Outcome::Refused { code: code.to_owned() }
}

/// Outcome of sending to one browser.
enum Sent {
    Was(Outcome),
    Gone,
}

/// Renders the payload for one user.
fn message(notice: &Notice, recipient: &Recipient) -> String {
    #[derive(Serialize)]
    struct Data<'a> {
        #[serde(flatten)]
        notice: &'a Notice,
        #[serde(flatten)]
        place: Option<Place>,
    }
    json!({"type": notice.kind(), "data": Data { notice, place: recipient.place }}).to_string()
}

fn judge(answer: Result<Answer, PostError>, now: OffsetDateTime) -> phone_push::Outcome {
    use phone_push::Outcome;
    match answer {
        Ok(answer) => match answer.status {
            status if status.is_success() => Outcome::Taken,
            StatusCode::NOT_FOUND | StatusCode::GONE => Outcome::Gone { since: None },
            StatusCode::TOO_MANY_REQUESTS => Outcome::Later { after: answer.retry_after(now), limited: true },
            StatusCode::REQUEST_TIMEOUT => Outcome::Later { after: answer.retry_after(now), limited: false },
            status if status.is_server_error() => Outcome::Later { after: answer.retry_after(now), limited: false },
            status => refused(status.as_str()),
        },
        Err(PostError::Address(_)) => refused("address"),
        Err(error) if error.is_definite() => Outcome::Later { after: None, limited: false },
        Err(_) => Outcome::Unknown,
    }
}

impl Notifier for Arc<Push> {
    fn name(&self) -> &'static str {
        "web_push"
    }

    fn reaches(&self, recipient: &Recipient) -> bool {
        !recipient.subscriptions.is_empty()
    }

    fn notify<'a>(&'a self, notice: &'a Notice, to: &'a [Recipient]) -> BoxFuture<'a, Notified> {
        async move {
            let messages: Vec<String> = to.iter().map(|recipient| message(notice, recipient)).collect();
            let mut sending = Vec::new();
            for (at, (recipient, message)) in to.iter().zip(&messages).enumerate() {
                for browser in &recipient.subscriptions {
                    sending.push(async move { (at, browser, self.send(notice, message.as_bytes(), browser).await) });
                }
            }
            let mut sent = stream::iter(sending).buffer_unordered(self.at_once);
            let mut notified = Notified { outcomes: vec![Outcome::NotReached; to.len()], gone: Vec::new() };
            while let Some((at, browser, sent)) = sent.next().await {
                match sent {
                    // Delivery to one of several browsers is enough.
                    Sent::Was(outcome) => notified.outcomes[at] = notified.outcomes[at].max(outcome),
                    Sent::Gone => notified.gone.push(browser.clone()),
                }
            }
            notified
        }
        .boxed()
    }
}

/// Decrypts the output of [`encrypt`] like a browser.
#[cfg(test)]
pub(super) fn decrypt(private: &PrivateKey, auth: &[u8; 16], body: &[u8]) -> Vec<u8> {
    let (salt, rest) = body.split_at(16);
    let (size, rest) = rest.split_at(4);
    assert_eq!(size, RECORD_SIZE.to_be_bytes());
    assert_eq!(rest[0], 65);
    let (ours, record) = rest[1..].split_at(65);
    let theirs = public_of(private).expect("a key");
    let peer = UnparsedPublicKey::new(&ECDH_P256, ours.to_vec());
    let shared = agree(private, peer, BadKey, |shared| mac(auth, &[shared])).expect("a point");
    let material = mac(&shared, &[b"WebPush: info\0", &theirs, ours, &[1]]).expect("a key");
    let extracted = mac(salt, &[&material]).expect("a key");
    let key = mac(&extracted, &[b"Content-Encoding: aes128gcm\0", &[1]]).expect("a key");
    let nonce = mac(&extracted, &[b"Content-Encoding: nonce\0", &[1]]).expect("a key");
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key[..16]).expect("a key"));
    let nonce = Nonce::try_assume_unique_for_key(&nonce[..12]).expect("a nonce");
    let mut record = record.to_vec();
    let message = key.open_in_place(nonce, Aad::empty(), &mut record).expect("decrypted");
    let (last, message) = message.split_last().expect("a record");
    assert_eq!(*last, 2, "the last record");
    message.to_vec()
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey as Verifier};
    use serde_json::Value;
    use time::macros::datetime;

    use super::*;
    use crate::testing::SeededRandom;

    fn decode(text: &str) -> Vec<u8> {
        URL_SAFE_NO_PAD.decode(text).expect("base64")
    }

    fn private(text: &str) -> PrivateKey {
        PrivateKey::from_private_key(&ECDH_P256, &decode(text)).expect("a key")
    }

    /// The example in RFC 8291, section 5 and appendix A.
    #[test]
    fn rfc_8291_example_is_encrypted_as_published() {
        let keys = PushKeys::parse(
            "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
            "BTBZMqHH6r4Tts7J_aSIgg",
        )
        .expect("keys");
        let one_time = private("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw");
        let salt = decode("DGv6ra1nlYgDCS1FRnbzlw").try_into().expect("16 bytes");
        let message = b"When I grow up, I want to be a watermelon";
        let body = encrypt(&keys, message, &one_time, salt).expect("encrypted");
        assert_eq!(
            URL_SAFE_NO_PAD.encode(&body),
            "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6\
             PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
        );
        let browser = private("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94");
        assert_eq!(decrypt(&browser, &keys.auth, &body), message);
    }

    #[test]
    fn token_is_valid_for_one_push_service_and_12_hours() {
        let (secret, public) = make_key(&SeededRandom::new(7)).expect("a key");
        let vapid = Vapid::new(&decode(&secret), "mailto:ops@example.org").expect("a key");
        assert_eq!(vapid.public_key(), public);
        let now = datetime!(2026-11-20 15:00 UTC);
        let endpoint = "https://push.example.org:8443/send/abc?d=e".parse().expect("an address");
        let header = vapid.authorization(&endpoint, now).expect("signed");
        let (token, key) = header.strip_prefix("vapid t=").and_then(|rest| rest.split_once(", k=")).expect("two parts");
        assert_eq!(key, public);
        let (signed, signature) = token.rsplit_once('.').expect("three parts");
        Verifier::new(&ECDSA_P256_SHA256_FIXED, decode(&public))
            .verify(signed.as_bytes(), &decode(signature))
            .expect("our signature");
        let parts: Vec<Value> =
            signed.split('.').map(|part| serde_json::from_slice(&decode(part)).expect("JSON")).collect();
        assert_eq!(parts[0], json!({"typ": "JWT", "alg": "ES256"}));
        assert_eq!(
            parts[1],
            json!({"aud": "https://push.example.org:8443", "exp": now.unix_timestamp() + 43_200, "sub": "mailto:ops@example.org"})
        );
    }

    #[tokio::test]
    async fn failing_push_service_is_skipped_alone() {
        let breakers = Breakers::new(std::time::Duration::from_secs(10));
        let endpoint = |text: &str| text.parse::<Url>().expect("an address");
        for number in 0..TOLERATED_FAILURES {
            let breaker = breakers.of(&endpoint(&format!("https://down.example.org/{number}")));
            assert_eq!(breaker.admit(), Ok(()));
            breakers.record(&breaker, &Err(PostError::Unreached("no route".to_owned())));
        }
        assert!(breakers.of(&endpoint("https://down.example.org/other")).admit().is_err());
        assert_eq!(breakers.of(&endpoint("https://up.example.org/")).admit(), Ok(()));
    }

    #[test]
    fn invalid_key_is_refused() {
        for bytes in [&[][..], &[0; 32], &[255; 32], &[1; 31], &[1; 33]] {
            assert!(Vapid::new(bytes, "mailto:ops@example.org").is_err(), "{bytes:?}");
        }
        assert!(Vapid::new(&[1; 32], "mailto:ops@example.org").is_ok());
    }
}
