//! Device ids, platforms and tokens; no I/O.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use url::Url;
use utoipa::ToSchema;
use web::fields::FromJson;

use super::super::rules::{LONGEST_ENDPOINT, PushKeys};

/// Maximum number of devices of a user; a further one replaces the one with the oldest registration.
pub const MOST_DEVICES: i64 = 10;

/// Maximum length of an FCM token.
const LONGEST_TOKEN: usize = 4_096;

/// Identifies an installation of the app: 8 to 64 letters, digits, dots, hyphens and underscores.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId(String);

impl DeviceId {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Reads a stored id.
    pub(super) fn stored(id: String) -> Self {
        Self(id)
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl FromStr for DeviceId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let fits = (8..=64).contains(&text.len()) && text.bytes().all(allowed);
        if fits { Ok(Self(text.to_owned())) } else { Err(()) }
    }
}

/// Way to reach a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = DevicePlatform)]
pub enum Platform {
    /// Firebase Cloud Messaging.
    Fcm,
    /// Apple Push Notification service.
    Apns,
    /// Web push.
    Web,
}

impl Platform {
    pub const ALL: [Self; 3] = [Self::Fcm, Self::Apns, Self::Web];

    /// Name in the API, in the database and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fcm => "fcm",
            Self::Apns => "apns",
            Self::Web => "web",
        }
    }

    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|platform| platform.name() == name)
    }
}

impl FromJson for Platform {
    const EXPECTED: &'static str = "must be fcm, apns or web";

    fn from_json(value: &Value) -> Option<Self> {
        Self::of_name(value.as_str()?)
    }
}

/// Address of a device at its platform.
#[derive(Clone, PartialEq, Eq)]
pub enum Token {
    Fcm(String),
    /// Hexadecimal, in lower case.
    Apns(String),
    Web {
        endpoint: Url,
        keys: PushKeys,
    },
}

/// Shows only the platform, because a token is a capability to send notifications.
impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Token({})", self.platform().name())
    }
}

impl Token {
    /// Completes "The token …".
    pub fn expected(platform: Platform) -> &'static str {
        match platform {
            Platform::Fcm => "must be a string of 1 to 4096 printable ASCII characters without spaces",
            Platform::Apns => "must be an even number of 64 to 200 hexadecimal digits",
            Platform::Web => "must have endpoint and keys, as the browser provides them",
        }
    }

    /// Parses a token as apps send it, and as it is stored.
    pub fn parse(platform: Platform, value: &Value) -> Option<Self> {
        match platform {
            Platform::Fcm => {
                let text = value.as_str()?;
                let fits =
                    (1..=LONGEST_TOKEN).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
                fits.then(|| Self::Fcm(text.to_owned()))
            }
            Platform::Apns => {
                let text = value.as_str()?;
                let fits = (64..=200).contains(&text.len()) && text.len().is_multiple_of(2);
                (fits && text.bytes().all(|byte| byte.is_ascii_hexdigit()))
                    .then(|| Self::Apns(text.to_ascii_lowercase()))
            }
            Platform::Web => {
                let endpoint = value.get("endpoint")?.as_str().filter(|text| text.len() <= LONGEST_ENDPOINT)?;
                let endpoint: Url = endpoint.parse().ok()?;
                let key = |name: &str| value.get("keys")?.get(name)?.as_str();
                let keys = PushKeys::parse(key("p256dh")?, key("auth")?)?;
                let fits = endpoint.has_host() && endpoint.as_str().len() <= LONGEST_ENDPOINT;
                fits.then_some(Self::Web { endpoint, keys })
            }
        }
    }

    pub fn platform(&self) -> Platform {
        match self {
            Self::Fcm(_) => Platform::Fcm,
            Self::Apns(_) => Platform::Apns,
            Self::Web { .. } => Platform::Web,
        }
    }

    /// Part of the token that identifies the device. The keys of a browser change while its endpoint stays.
    pub fn identity(&self) -> String {
        let text = match self {
            Self::Fcm(token) | Self::Apns(token) => token,
            Self::Web { endpoint, .. } => endpoint.as_str(),
        };
        format!("{}:{text}", self.platform().name())
    }

    /// Form in which the token is encrypted; [`Self::parse`] reads it.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Fcm(token) | Self::Apns(token) => json!(token),
            Self::Web { endpoint, keys } => json!({"endpoint": endpoint, "keys": keys.to_json()}),
        }
    }
}

/// Returns the range of token hashes that the sweep examines in this hour of the day, without its start and its end.
pub(super) fn hashes_of_hour(hour: u8) -> (Vec<u8>, Vec<u8>) {
    let start = |hour: u8| match u8::try_from(u16::from(hour) * 256 / 24) {
        Ok(0) => Vec::new(),
        Ok(first) => vec![first],
        // Greater than every hash.
        Err(_) => vec![u8::MAX; 33],
    };
    (start(hour), start(hour + 1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const P256DH: &str = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
    const AUTH: &str = "BTBZMqHH6r4Tts7J_aSIgg";

    proptest! {
        #[test]
        fn every_hash_belongs_to_one_hour(hash in proptest::array::uniform32(any::<u8>())) {
            let is_in = |hour: &u8| {
                let (after, until) = hashes_of_hour(*hour);
                after[..] < hash[..] && hash[..] < until[..]
            };
            prop_assert_eq!((0..24).filter(is_in).count(), 1);
        }
    }

    #[test]
    fn device_ids_are_validated() {
        for good in ["12345678", "Phone-1.a_b", &"x".repeat(64)] {
            assert_eq!(good.parse::<DeviceId>().expect("an id").as_str(), good);
        }
        for bad in ["", "short", &"x".repeat(65), "with space", "slä-12345", "a/b/c/d/e", "12345678\n"] {
            assert_eq!(bad.parse::<DeviceId>(), Err(()), "{bad}");
        }
    }

    #[test]
    fn tokens_are_validated_by_platform() {
        let parse = |platform, value: Value| Token::parse(platform, &value).is_some();
        for (value, valid) in [
            (json!("a"), true),
            (json!("!~:_"), true),
            (json!("x".repeat(4_096)), true),
            (json!("x".repeat(4_097)), false),
            (json!(""), false),
            (json!("a b"), false),
            (json!("é"), false),
            (json!("a\n"), false),
            (json!(5), false),
            (json!({}), false),
        ] {
            assert_eq!(parse(Platform::Fcm, value.clone()), valid, "{value}");
        }
        for (text, valid) in [
            ("a".repeat(64), true),
            ("F".repeat(200), true),
            ("a".repeat(62), false),
            ("a".repeat(65), false),
            ("a".repeat(202), false),
            ("g".repeat(64), false),
        ] {
            assert_eq!(parse(Platform::Apns, json!(text)), valid, "{text}");
        }
        let web = json!({"endpoint": "https://push.example.org/x", "keys": {"p256dh": P256DH, "auth": AUTH}});
        assert!(parse(Platform::Web, web.clone()));
        for bad in [json!("x"), json!({}), json!({"endpoint": "https://push.example.org/x"}), json!(null)] {
            assert!(!parse(Platform::Web, bad.clone()), "{bad}");
        }
        let token = Token::parse(Platform::Web, &web).expect("a token");
        assert_eq!(token.identity(), "web:https://push.example.org/x");
        assert_eq!(format!("{token:?}"), "Token(web)");
        let upper = Token::parse(Platform::Apns, &json!("AB".repeat(32))).expect("a token");
        assert_eq!(Some(upper), Token::parse(Platform::Apns, &json!("ab".repeat(32))));
    }

    proptest! {
        #[test]
        fn stored_tokens_read_back(fcm in "[!-~]{1,200}", apns in "([0-9a-fA-F]{2}){32,100}") {
            let endpoint = "https://push.example.org/send/abc";
            for (platform, value) in [
                (Platform::Fcm, json!(fcm)),
                (Platform::Apns, json!(apns)),
                (Platform::Web, json!({"endpoint": endpoint, "keys": {"p256dh": P256DH, "auth": AUTH}})),
            ] {
                let token = Token::parse(platform, &value).expect("a token");
                prop_assert_eq!(token.platform(), platform);
                prop_assert_eq!(Token::parse(platform, &token.to_json()), Some(token));
            }
        }

        #[test]
        fn any_text_parses_without_panic(text in "\\PC*") {
            let _ = text.parse::<DeviceId>();
            for platform in Platform::ALL {
                let _ = Token::parse(platform, &json!(text));
            }
        }
    }
}
