//! Code generation, hashing, guess delays and fraud thresholds. No I/O.

use hmac::{Hmac, KeyInit as _, Mac as _};
use platform::{
    random::{self, Random},
    settings::CodeKey,
};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use sha2::Sha256;
use time::{Duration, OffsetDateTime};
use web::{fields::FromJson, ids::UserId};

use crate::identity::phone::Phone;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeId(pub(crate) i64);

/// Time until a code expires.
pub(super) const LIFETIME: Duration = Duration::minutes(5);
/// Guesses allowed from the network that requested the code.
pub(super) const OWN_GUESSES: i16 = 5;
/// Guesses allowed from all other networks together. They are counted separately, so a stranger cannot use up a user's
/// guesses.
pub(super) const OTHER_GUESSES: i16 = 3;
/// Consecutive wrong guesses allowed before each further guess has to wait.
const FREE_FAILURES: i32 = 20;

/// Time after its last verification during which a phone counts as returning.
pub(super) const RETURNING_FOR: Duration = Duration::days(400);
/// Time after its last verification from a neighbourhood during which a phone counts as at home there.
pub(super) const AT_HOME_FOR: Duration = Duration::days(90);

/// If less than this percentage of the phones verified, the codes of the hour count as fraud.
const LEAST_PERCENT: i64 = 20;
/// A closure that starts within this time after the end of the previous one is one level stricter.
const REMEMBERED_FOR: Duration = Duration::DAY;

/// Groups by which codes are judged, in this order. Codes requested by a closed network are excluded when its blocks
/// are judged, and codes of closed networks and blocks are excluded when the country is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// An IPv4 address, or a /48 of IPv6.
    Network,
    /// Numbers that differ only in the last four digits.
    Block,
    Country,
}

/// Statistics of one network, block or country in the judged hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// Phones that received codes.
    pub(super) phones: i64,
    /// Phones that verified a code.
    pub(super) verified: i64,
    /// Networks that requested the codes.
    pub(super) origins: i64,
    /// Blocks that contain the phones.
    pub(super) blocks: i64,
}

/// Hourly number of codes that a closed network, block or country may still cause for phones that have not verified
/// before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cap {
    pub(super) prefix: String,
    pub(super) hourly: u32,
}

impl Scope {
    pub(super) const ALL: [Self; 3] = [Self::Network, Self::Block, Self::Country];

    /// Name in metrics and SQL statements.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Block => "block",
            Self::Country => "country",
        }
    }

    /// Minimum number of phones per hour for which codes are judged. The minimum for a country is high, so one address
    /// cannot close it; see also [`Self::is_fraud`].
    pub(super) fn least_phones(self) -> i64 {
        match self {
            Self::Network => 20,
            Self::Block => 30,
            Self::Country => 1_000,
        }
    }

    /// Whether too few phones verified. A country is judged only if many networks requested codes for numbers in many
    /// blocks.
    pub(super) fn is_fraud(self, sample: Sample) -> bool {
        let spread = self != Self::Country || (sample.origins >= 100 && sample.blocks >= 50);
        spread && sample.phones >= self.least_phones() && sample.verified * 100 < sample.phones * LEAST_PERCENT
    }

    /// Codes per hour that are still sent. The cap grows with the number of phones that verified, and halves with each
    /// level. The cap of a country never falls below ten.
    pub(super) fn hourly_cap(self, sample: Sample, level: i16) -> u32 {
        let (least, times, floor) = match self {
            Self::Network | Self::Block => (5, 2, 0),
            Self::Country => (50, 3, 10),
        };
        let first = u32::try_from(sample.verified.saturating_mul(times)).unwrap_or(u32::MAX).max(least);
        (first >> level.saturating_sub(1).clamp(0, 31)).max(floor)
    }
}

/// Level of the next closure: one higher if the previous closure ended less than a day ago.
pub(super) fn next_level(before: Option<(i16, OffsetDateTime)>, now: OffsetDateTime) -> i16 {
    match before {
        Some((level, ended)) if now - ended < REMEMBERED_FOR => level.saturating_add(1),
        _ => 1,
    }
}

/// Duration of a closure: one hour at the first level, doubling with each level, at most a day.
pub(super) fn closed_for(level: i16) -> Duration {
    Duration::hours(1_i64 << level.saturating_sub(1).clamp(0, 5)).min(Duration::DAY)
}

/// The hour whose codes are judged. It ends one code lifetime ago to give users the full time to enter each judged
/// code: when a final starts, thousands of codes are sent before the first user enters one.
pub(super) fn judged_hour(now: OffsetDateTime) -> (OffsetDateTime, OffsetDateTime) {
    let end = now - LIFETIME;
    (end - Duration::hours(1), end)
}

/// Six digits. `Debug` does not print them.
#[derive(Clone, Debug)]
pub struct Code(SecretString);

impl Code {
    /// Draws an unpredictable code.
    pub(super) fn make(random: &dyn Random) -> Self {
        const CODES: u32 = 1_000_000;
        loop {
            let drawn = u32::from_be_bytes(random::bytes(random));
            // Reject draws beyond the last full million: they would make some codes more likely than others.
            if drawn < u32::MAX - u32::MAX % CODES {
                return Self(format!("{:06}", drawn % CODES).into());
            }
        }
    }

    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl FromJson for Code {
    const EXPECTED: &'static str = "must be a string of 6 digits";

    fn from_json(value: &Value) -> Option<Self> {
        let text = value.as_str()?;
        (text.len() == 6 && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| Self(text.into()))
    }
}

/// Purpose of a code. A code is valid only for the subject it was created for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Logs in with this phone.
    Login(Phone),
    /// Proves that a phone belongs to this user.
    Verification(UserId),
    /// Confirms the deletion of this user's account.
    Departure(UserId),
    /// Confirms that this user's chat keys are replaced.
    KeyReset(UserId),
}

impl Subject {
    /// All subjects of a user that do not depend on a phone.
    pub(crate) fn of_account(user: UserId) -> [Self; 3] {
        [Self::Verification(user), Self::Departure(user), Self::KeyReset(user)]
    }

    /// Value of the `subject` column.
    pub(crate) fn key(&self) -> String {
        match self {
            Self::Login(phone) => format!("login:{}", phone.as_str()),
            Self::Verification(user) => format!("verify:{user}"),
            Self::Departure(user) => format!("leave:{user}"),
            Self::KeyReset(user) => format!("keys:{user}"),
        }
    }

    pub(super) fn purpose(&self) -> &'static str {
        match self {
            Self::Login(_) => "login",
            Self::Verification(_) => "verification",
            Self::Departure(_) => "departure",
            Self::KeyReset(_) => "key_reset",
        }
    }
}

/// Stored form of a code. An attacker can try all million codes in a second, so it must reveal nothing without the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) mac: [u8; 32],
    pub(super) nonce: [u8; 16],
    pub(super) key_version: i16,
}

/// Versioned HMAC keys for stored codes.
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

    /// Computes the stored form of a code with the first key.
    pub(super) fn seal(&self, subject: &Subject, phone: &Phone, code: &Code, nonce: [u8; 16]) -> Option<Stored> {
        let (key_version, key) = self.0.first()?;
        let mac = fed(key, subject, phone, code, &nonce).finalize().into_bytes().into();
        Some(Stored { mac, nonce, key_version: *key_version })
    }

    /// Hashes the neighbourhood that a phone verified from, once with each key; the first hash is the one to store.
    /// Network addresses are personal data, and an unkeyed hash could be reversed by trying all of them.
    pub(super) fn places(&self, phone: &Phone, neighbourhood: &str) -> Vec<Vec<u8>> {
        let place = |(_, key): &(i16, Hmac<Sha256>)| {
            let parts: [&[u8]; 3] = [b"place", phone.as_str().as_bytes(), neighbourhood.as_bytes()];
            fed_with(key, &parts).finalize().into_bytes()[..16].to_vec()
        };
        self.0.iter().map(place).collect()
    }

    /// Compares a code with its stored form in constant time.
    pub(super) fn opens(&self, stored: &Stored, subject: &Subject, phone: &Phone, code: &Code) -> bool {
        let key = self.0.iter().find(|(version, _)| *version == stored.key_version);
        key.is_some_and(|(_, key)| fed(key, subject, phone, code, &stored.nonce).verify_slice(&stored.mac).is_ok())
    }
}

fn fed(key: &Hmac<Sha256>, subject: &Subject, phone: &Phone, code: &Code, nonce: &[u8; 16]) -> Hmac<Sha256> {
    fed_with(key, &[subject.key().as_bytes(), phone.as_str().as_bytes(), nonce, code.expose().as_bytes()])
}

fn fed_with(key: &Hmac<Sha256>, parts: &[&[u8]]) -> Hmac<Sha256> {
    let mut mac = key.clone();
    for part in parts {
        // Prefix each part with its length: different lists of parts must never produce the same input.
        mac.update(&u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
        mac.update(part);
    }
    mac
}

/// Remaining time before the next guess is allowed, after this many consecutive wrong guesses.
pub(super) fn wait(failures: i32, last: OffsetDateTime, now: OffsetDateTime) -> Option<std::time::Duration> {
    let beyond = u32::try_from(failures - FREE_FAILURES).ok()?;
    let pause = Duration::seconds(30 * 2_i64.pow(beyond.min(7))).min(Duration::hours(1));
    std::time::Duration::try_from(last + pause - now).ok().filter(|left| !left.is_zero())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use platform::settings::Setting as _;
    use proptest::prelude::*;
    use serde_json::json;
    use time::macros::datetime;

    use super::*;
    use crate::testing::SeededRandom;

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
    fn codes_are_distributed_uniformly() {
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
    fn code_is_a_string_of_six_ascii_digits() {
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
    fn code_is_bound_to_subject_phone_and_nonce() {
        let keys = keyring(&key(1, 7));
        let (ada, bob) = (phone("+14155550100"), phone("+14155550101"));
        let login = Subject::Login(ada.clone());
        let stored = keys.seal(&login, &ada, &code("123456"), [1; 16]).expect("sealed");
        assert!(keys.opens(&stored, &login, &ada, &code("123456")));
        assert!(!keys.opens(&stored, &login, &ada, &code("123457")));
        let others = [Subject::Verification, Subject::Departure, Subject::KeyReset].map(|purpose| purpose(UserId(4)));
        for (n, other) in others.iter().enumerate() {
            assert!(!keys.opens(&stored, other, &ada, &code("123456")), "another purpose");
            let stored = keys.seal(other, &ada, &code("123456"), [1; 16]).expect("sealed");
            assert!(!keys.opens(&stored, &login, &ada, &code("123456")), "another purpose");
            assert!(!keys.opens(&stored, &others[(n + 1) % 3], &ada, &code("123456")), "another purpose");
        }
        assert!(!keys.opens(&stored, &Subject::Login(bob.clone()), &ada, &code("123456")));
        assert!(!keys.opens(&stored, &login, &bob, &code("123456")));
        assert!(!keys.opens(&Stored { nonce: [2; 16], ..stored }, &login, &ada, &code("123456")));
    }

    #[test]
    fn key_rotation_keeps_pending_codes_valid() {
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

    /// Brute force as an attacker with a copy of the database could run it, limited to the range that contains the
    /// code.
    #[test]
    fn stored_code_cannot_be_guessed_without_the_key() {
        let (subject, ada) = (Subject::Login(phone("+14155550100")), phone("+14155550100"));
        let stored = keyring(&key(1, 7)).seal(&subject, &ada, &code("271828"), [1; 16]).expect("sealed");
        // The attacker has everything in the database, but not the key.
        let keyless = Hmac::<Sha256>::new_from_slice(b"").expect("any length");
        let guessed = (200_000..300_000).any(|number| {
            let tried = fed(&keyless, &subject, &ada, &code(&format!("{number:06}")), &stored.nonce);
            tried.verify_slice(&stored.mac).is_ok()
        });
        let other = keyring(&key(1, 0));
        assert!(!guessed && !other.opens(&stored, &subject, &ada, &code("271828")));
    }

    #[test]
    fn country_is_judged_only_with_many_phones_networks_and_blocks() {
        let attack = Sample { phones: 1_000, verified: 0, origins: 100, blocks: 50 };
        assert!(Scope::Country.is_fraud(attack));
        for weaker in [
            Sample { phones: 999, ..attack },
            Sample { origins: 99, ..attack },
            Sample { blocks: 49, ..attack },
            Sample { verified: 200, ..attack },
        ] {
            assert!(!Scope::Country.is_fraud(weaker), "{weaker:?}");
        }
        let from_one = Sample { phones: 40, verified: 0, origins: 1, blocks: 40 };
        assert!(Scope::Network.is_fraud(from_one) && !Scope::Country.is_fraud(from_one));
    }

    #[test]
    fn closure_levels_rise_and_reset_after_a_day() {
        let now = datetime!(2026-11-20 15:00 UTC);
        assert_eq!(next_level(None, now), 1);
        assert_eq!(next_level(Some((2, now - Duration::hours(23))), now), 3);
        assert_eq!(next_level(Some((2, now - Duration::hours(24))), now), 1);
        assert_eq!([1, 2, 3, 4, 5, 6, 99].map(|level| closed_for(level).whole_hours()), [1, 2, 4, 8, 16, 24, 24]);
        let sample = Sample { phones: 2_000, verified: 100, origins: 100, blocks: 50 };
        assert_eq!([1, 2, 3, 9].map(|level| Scope::Country.hourly_cap(sample, level)), [300, 150, 75, 10]);
        let none = Sample { verified: 0, ..sample };
        assert_eq!([1, 2, 3, 4].map(|level| Scope::Network.hourly_cap(none, level)), [5, 2, 1, 0]);
    }

    #[test]
    fn place_hash_survives_key_rotation() {
        let (ada, bob) = (phone("+14155550100"), phone("+14155550101"));
        let old = keyring(&key(1, 7)).places(&ada, "203.0.0.0/16");
        let both = keyring(&format!("{},{}", key(2, 8), key(1, 7)));
        assert!(both.places(&ada, "203.0.0.0/16").contains(&old[0]));
        assert_ne!(both.places(&ada, "203.0.0.0/16")[0], old[0], "the newest key hashes new places");
        assert!(!both.places(&bob, "203.0.0.0/16").contains(&old[0]) && !both.places(&ada, "").contains(&old[0]));
    }

    #[test]
    fn wait_doubles_after_twenty_failures_up_to_an_hour() {
        let now = datetime!(2026-11-20 15:00 UTC);
        let left = |failures| wait(failures, now, now).map_or(0, |left| left.as_secs());
        assert_eq!([0, 19, 20, 21, 22, 26, 27, 1_000].map(left), [0, 0, 30, 60, 120, 1_920, 3_600, 3_600]);
        assert_eq!(wait(20, now, now + Duration::seconds(30)), None, "waiting the required time is enough");
    }

    proptest! {
        #[test]
        fn caps_never_grow_with_the_level(verified in 0..10_000_i64, level in 1..40_i16) {
            for scope in Scope::ALL {
                let sample = Sample { phones: 100_000, verified, origins: 1_000, blocks: 1_000 };
                let (cap, next) = (scope.hourly_cap(sample, level), scope.hourly_cap(sample, level + 1));
                prop_assert!(cap >= next && closed_for(level) <= closed_for(level + 1));
            }
            let any = Sample { phones: 1, verified, origins: 1, blocks: 1 };
            let cap = Scope::Country.hourly_cap(any, level);
            prop_assert!(cap >= 10, "{}", cap);
        }

        #[test]
        fn wait_never_shrinks_with_more_failures(failures in 0..200_i32, passed in 0..4_000_i64) {
            let last = datetime!(2026-11-20 15:00 UTC);
            let now = last + Duration::seconds(passed);
            prop_assert!(wait(failures, last, now) <= wait(failures + 1, last, now));
        }
    }
}
