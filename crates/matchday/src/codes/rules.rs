//! What a code is, what is stored of it, and how long guessing is slowed down; no I/O.

use hmac::{Hmac, KeyInit as _, Mac as _};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use sha2::Sha256;
use time::{Duration, OffsetDateTime};

use crate::{
    http::fields::FromJson,
    ids::UserId,
    phone::Phone,
    platform::{
        random::{self, Random},
        settings::CodeKey,
    },
};

/// How long a code is good.
pub(super) const LIFETIME: Duration = Duration::minutes(5);
/// How often the network that asked for a code may try it.
pub(super) const OWN_GUESSES: i16 = 5;
/// How often all others together may: a stranger must not be able to use up somebody's code.
pub(super) const OTHER_GUESSES: i16 = 3;
/// How many wrong guesses in a row a phone may have before each next one has to wait.
const FREE_FAILURES: i32 = 20;

/// How many codes an hour say something about a block or a country, and how many in a hundred must come back.
pub(super) const JUDGED_SENDS: i64 = 30;
pub(super) const LEAST_PERCENT: i64 = 20;
/// How long a block or a country from which too few came back is closed.
pub(super) const CLOSED_FOR: Duration = Duration::days(1);

/// The hour whose codes are judged. It ends where codes have had their time to come back: at the start of a final,
/// thousands are sent before the first person has typed one in.
pub(super) fn judged_hour(now: OffsetDateTime) -> (OffsetDateTime, OffsetDateTime) {
    let end = now - LIFETIME;
    (end - Duration::hours(1), end)
}

/// Six digits. Never printed.
#[derive(Clone, Debug)]
pub struct Code(SecretString);

impl Code {
    /// A code that nobody can foresee.
    pub(super) fn make(random: &dyn Random) -> Self {
        const CODES: u32 = 1_000_000;
        loop {
            let drawn = u32::from_be_bytes(random::bytes(random));
            // What lies beyond the last full million would make some codes likelier than others.
            if drawn < u32::MAX - u32::MAX % CODES {
                return Self(format!("{:06}", drawn % CODES).into());
            }
        }
    }

    /// The digits.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl FromJson for Code {
    const EXPECTED: &'static str = "must be a text of 6 digits";

    fn from_json(value: &Value) -> Option<Self> {
        let text = value.as_str()?;
        (text.len() == 6 && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| Self(text.into()))
    }
}

/// What a code is for. One that was made for something never does for anything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Logging in with this phone.
    Login(Phone),
    /// This user proves that a phone is theirs.
    Verification(UserId),
    /// This user wants their account deleted.
    Departure(UserId),
}

impl Subject {
    /// As it is stored.
    pub(crate) fn key(&self) -> String {
        match self {
            Self::Login(phone) => format!("login:{}", phone.as_str()),
            Self::Verification(user) => format!("verify:{user}"),
            Self::Departure(user) => format!("leave:{user}"),
        }
    }

    /// For metrics.
    pub(super) fn purpose(&self) -> &'static str {
        match self {
            Self::Login(_) => "login",
            Self::Verification(_) => "verification",
            Self::Departure(_) => "departure",
        }
    }
}

/// What is stored of a code. A million codes are tried in a second, so without the key it must say nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) mac: [u8; 32],
    pub(super) nonce: [u8; 16],
    pub(super) key_version: i16,
}

/// The keys that codes are stored under.
#[derive(Clone)]
pub(super) struct Keyring(Vec<(i16, Hmac<Sha256>)>);

impl Keyring {
    pub(super) fn new(keys: &[CodeKey]) -> Self {
        let read = |key: &CodeKey| {
            let bytes = hex::decode(key.expose()).ok()?;
            Some((i16::try_from(key.version()).ok()?, Hmac::new_from_slice(&bytes).ok()?))
        };
        Self(keys.iter().filter_map(read).collect())
    }

    /// What to store of a code, under the first key.
    pub(super) fn seal(&self, subject: &Subject, phone: &Phone, code: &Code, nonce: [u8; 16]) -> Option<Stored> {
        let (key_version, key) = self.0.first()?;
        let mac = fed(key, subject, phone, code, &nonce).finalize().into_bytes().into();
        Some(Stored { mac, nonce, key_version: *key_version })
    }

    /// Whether it is that code, in a time that says nothing of how wrong it is.
    pub(super) fn opens(&self, stored: &Stored, subject: &Subject, phone: &Phone, code: &Code) -> bool {
        let key = self.0.iter().find(|(version, _)| *version == stored.key_version);
        key.is_some_and(|(_, key)| fed(key, subject, phone, code, &stored.nonce).verify_slice(&stored.mac).is_ok())
    }
}

fn fed(key: &Hmac<Sha256>, subject: &Subject, phone: &Phone, code: &Code, nonce: &[u8; 16]) -> Hmac<Sha256> {
    let mut mac = key.clone();
    for part in [subject.key().as_bytes(), phone.as_str().as_bytes(), nonce, code.expose().as_bytes()] {
        // Each with its length, so that no two lists of parts read alike.
        mac.update(&u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
        mac.update(part);
    }
    mac
}

/// How long the next guess must still wait after this many wrong ones in a row.
pub(super) fn wait(failures: i32, last: OffsetDateTime, now: OffsetDateTime) -> Option<std::time::Duration> {
    let beyond = u32::try_from(failures - FREE_FAILURES).ok()?;
    let pause = Duration::seconds(30 * 2_i64.pow(beyond.min(7))).min(Duration::hours(1));
    std::time::Duration::try_from(last + pause - now).ok().filter(|left| !left.is_zero())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;
    use serde_json::json;
    use time::macros::datetime;

    use super::*;
    use crate::{platform::settings::Setting as _, testing::SeededRandom};

    fn keyring(text: &str) -> Keyring {
        Keyring::new(&Vec::<CodeKey>::parse(text).expect("keys"))
    }

    fn phone(text: &str) -> Phone {
        Phone::parse(text).expect("a phone")
    }

    fn code(text: &str) -> Code {
        Code::from_json(&json!(text)).expect("a code")
    }

    fn key(version: u16, byte: u8) -> String {
        format!("{version}:{}", hex::encode([byte; 32]))
    }

    #[test]
    fn codes_are_spread_evenly() {
        let random = SeededRandom::new(7);
        let mut firsts = [0_u32; 10];
        let drawn: HashSet<String> = (0..10_000)
            .map(|_| Code::make(&random).expose().to_owned())
            .inspect(|code| firsts[usize::from(code.as_bytes()[0] - b'0')] += 1)
            .collect();
        assert!(drawn.len() > 9_900 && drawn.iter().all(|code| code.len() == 6));
        assert!(firsts.iter().all(|&count| (850..1_150).contains(&count)), "{firsts:?}");
    }

    #[test]
    fn six_ascii_digits_in_a_text_are_a_code() {
        for (value, valid) in [
            (json!("012345"), true),
            (json!("12345"), false),
            (json!("1234567"), false),
            (json!("12ab56"), false),
            (json!("١٢٣٤٥٦"), false),
            (json!(" 12345"), false),
            (json!(123_456), false),
            (json!(null), false),
        ] {
            assert_eq!(Code::from_json(&value).is_some(), valid, "{value}");
        }
        assert!(!format!("{:?}", code("123456")).contains("123456"));
    }

    #[test]
    fn a_code_is_good_for_its_own_subject_phone_and_nonce_only() {
        let keys = keyring(&key(1, 7));
        let (ada, bob) = (phone("+14155550100"), phone("+14155550101"));
        let (login, verification) = (Subject::Login(ada.clone()), Subject::Verification(UserId(4)));
        let stored = keys.seal(&login, &ada, &code("123456"), [1; 16]).expect("sealed");
        assert!(keys.opens(&stored, &login, &ada, &code("123456")));
        assert!(!keys.opens(&stored, &login, &ada, &code("123457")));
        assert!(!keys.opens(&stored, &verification, &ada, &code("123456")), "another purpose");
        assert!(!keys.opens(&stored, &Subject::Login(bob.clone()), &ada, &code("123456")));
        assert!(!keys.opens(&stored, &login, &bob, &code("123456")));
        assert!(!keys.opens(&Stored { nonce: [2; 16], ..stored }, &login, &ada, &code("123456")));
    }

    #[test]
    fn a_key_can_be_changed_while_codes_are_out() {
        let (subject, ada) = (Subject::Verification(UserId(4)), phone("+14155550100"));
        let before = keyring(&key(1, 7)).seal(&subject, &ada, &code("123456"), [1; 16]).expect("sealed");
        let both = keyring(&format!("{},{}", key(2, 8), key(1, 7)));
        assert!(both.opens(&before, &subject, &ada, &code("123456")));
        let after = both.seal(&subject, &ada, &code("123456"), [1; 16]).expect("sealed");
        assert_eq!(after.key_version, 2);
        let new = keyring(&key(2, 8));
        assert!(new.opens(&after, &subject, &ada, &code("123456")));
        assert!(!new.opens(&before, &subject, &ada, &code("123456")));
    }

    /// What a thief of the database could do in a second, or at least the part of it in which the code lies.
    #[test]
    fn without_the_key_no_code_fits_what_is_stored() {
        let (subject, ada) = (Subject::Login(phone("+14155550100")), phone("+14155550100"));
        let stored = keyring(&key(1, 7)).seal(&subject, &ada, &code("271828"), [1; 16]).expect("sealed");
        // Everything that is in the database, but the key.
        let keyless = Hmac::<Sha256>::new_from_slice(b"").expect("any length");
        let guessed = (200_000..300_000).any(|number| {
            let tried = fed(&keyless, &subject, &ada, &code(&format!("{number:06}")), &stored.nonce);
            tried.verify_slice(&stored.mac).is_ok()
        });
        let other = keyring(&key(1, 0));
        assert!(!guessed && !other.opens(&stored, &subject, &ada, &code("271828")));
    }

    #[test]
    fn twenty_failures_are_free_and_then_the_wait_doubles_to_an_hour() {
        let now = datetime!(2026-11-20 15:00 UTC);
        let left = |failures| wait(failures, now, now).map_or(0, |left| left.as_secs());
        assert_eq!([0, 19, 20, 21, 22, 26, 27, 1_000].map(left), [0, 0, 30, 60, 120, 1_920, 3_600, 3_600]);
        assert_eq!(wait(20, now, now + Duration::seconds(30)), None, "waiting as told is enough");
    }

    proptest! {
        #[test]
        fn the_wait_never_grows_shorter_with_failures(failures in 0..200_i32, passed in 0..4_000_i64) {
            let last = datetime!(2026-11-20 15:00 UTC);
            let now = last + Duration::seconds(passed);
            prop_assert!(wait(failures, last, now) <= wait(failures + 1, last, now));
        }
    }
}
