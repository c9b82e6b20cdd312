//! Signed messages according to the Standard Webhooks specification. With the shared secret, a receiver can verify that
//! a body comes from this service, is unmodified, and was sent recently. Receiver libraries exist for most languages.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderName, HeaderValue};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::Sha256;
use time::OffsetDateTime;

use super::{
    random::{self, Random},
    settings::Setting,
};

/// Prefix of every secret.
const PREFIX: &str = "whsec_";

/// Secret for signatures: `whsec_` and 24 to 64 bytes in base64.
#[derive(Clone, Debug)]
pub struct SigningSecret(SecretString);

impl SigningSecret {
    /// Generates a random secret.
    pub fn make(random: &dyn Random) -> Self {
        Self(format!("{PREFIX}{}", STANDARD.encode(random::bytes::<32>(random))).into())
    }

    pub fn parse(text: &str) -> Option<Self> {
        let key = STANDARD.decode(text.strip_prefix(PREFIX)?).ok()?;
        (24..=64).contains(&key.len()).then(|| Self(text.into()))
    }

    /// The secret as given to the receiver.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// Signature of a message sent at `sent_at`.
    pub fn sign(&self, id: &str, sent_at: OffsetDateTime, body: &[u8]) -> String {
        // `parse` and `make` guarantee base64, and HMAC accepts keys of any length.
        let key = self.expose().strip_prefix(PREFIX).and_then(|key| STANDARD.decode(key).ok()).unwrap_or_default();
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&key) else { return String::new() };
        mac.update(format!("{id}.{}.", sent_at.unix_timestamp()).as_bytes());
        mac.update(body);
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }

    /// Headers of a message sent at `sent_at`. `id` stays the same when a message is sent again.
    pub fn headers(&self, id: &str, sent_at: OffsetDateTime, body: &[u8]) -> Vec<(HeaderName, HeaderValue)> {
        let values = [
            ("content-type", "application/json".to_owned()),
            ("webhook-id", id.to_owned()),
            ("webhook-timestamp", sent_at.unix_timestamp().to_string()),
            ("webhook-signature", self.sign(id, sent_at, body)),
        ];
        let header = |(name, value): (&'static str, String)| {
            Some((HeaderName::from_static(name), HeaderValue::try_from(value).ok()?))
        };
        values.into_iter().filter_map(header).collect()
    }
}

impl Setting for SigningSecret {
    const EXPECTED: &'static str = "`whsec_` and 24 to 64 bytes in base64";
    const SECRET: bool = true;
    fn parse(text: &str) -> Option<Self> {
        Self::parse(text)
    }
    fn show(&self) -> String {
        "hidden".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::SeededRandom;

    /// Test vector of the specification's reference libraries.
    #[test]
    fn signature_matches_the_specification_example() {
        let secret = SigningSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("a secret");
        let sent_at = OffsetDateTime::from_unix_timestamp(1_614_265_330).expect("a moment");
        let (id, body) = ("msg_p5jXN8AQM9LWM0D4loKWxJek", br#"{"test": 2432232314}"#);
        assert_eq!(secret.sign(id, sent_at, body), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        let headers: Vec<(String, String)> = secret
            .headers(id, sent_at, body)
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_str().expect("text").to_owned()))
            .collect();
        assert_eq!(headers[1], ("webhook-id".to_owned(), id.to_owned()));
        assert_eq!(headers[2], ("webhook-timestamp".to_owned(), "1614265330".to_owned()));
        assert_eq!(headers[3].1, secret.sign(id, sent_at, body));
    }

    #[test]
    fn secret_length_is_checked_and_debug_is_redacted() {
        for (bytes, valid) in [(0, false), (23, false), (24, true), (64, true), (65, false)] {
            let text = format!("whsec_{}", STANDARD.encode(vec![7; bytes]));
            assert_eq!(SigningSecret::parse(&text).is_some(), valid, "{bytes}");
        }
        for wrong in ["", "whsec_", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_not base64 at all, not base64"] {
            assert!(SigningSecret::parse(wrong).is_none(), "{wrong}");
        }
        let made = SigningSecret::make(&SeededRandom::new(1));
        assert!(SigningSecret::parse(made.expose()).is_some());
        assert!(!format!("{made:?}").contains(&made.expose()[6..]));
        assert_eq!(made.show(), "hidden");
    }

    proptest! {
        #[test]
        fn signature_depends_on_id_time_and_body(
            id in "[a-z0-9_-]{1,20}",
            other_id in "[a-z0-9_-]{1,20}",
            seconds in 0_i64..4_000_000_000,
            later in 1_i64..1_000,
            body in proptest::collection::vec(any::<u8>(), 0..100),
            other_body in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let secret = SigningSecret::make(&SeededRandom::new(2));
            let at = |seconds| OffsetDateTime::from_unix_timestamp(seconds).expect("a moment");
            let signature = secret.sign(&id, at(seconds), &body);
            prop_assert_ne!(&signature, &secret.sign(&id, at(seconds + later), &body));
            prop_assert_eq!(signature == secret.sign(&other_id, at(seconds), &body), id == other_id);
            prop_assert_eq!(signature == secret.sign(&id, at(seconds), &other_body), body == other_body);
            prop_assert_ne!(&signature, &SigningSecret::make(&SeededRandom::new(3)).sign(&id, at(seconds), &body));
        }
    }
}
