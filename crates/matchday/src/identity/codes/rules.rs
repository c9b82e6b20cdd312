//! What a code is, what is stored of it, and how long guessing is slowed down; no I/O.

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

/// Which code a guess is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeId(pub(crate) i64);

/// How long a code is good.
pub(super) const LIFETIME: Duration = Duration::minutes(5);
/// How often the network that asked for a code may try it.
pub(super) const OWN_GUESSES: i16 = 5;
/// How often all others together may: a stranger must not be able to use up somebody's code.
pub(super) const OTHER_GUESSES: i16 = 3;
/// How many wrong guesses in a row a phone may have before each next one has to wait.
const FREE_FAILURES: i32 = 20;

/// How long after its last code a phone counts as one that has verified before.
pub(super) const RETURNING_FOR: Duration = Duration::days(400);
/// How long after its last code from there a phone is at home around a network.
pub(super) const AT_HOME_FOR: Duration = Duration::days(90);

/// Below this share of verified phones, in percent, the codes of an hour are taken for fraud.
const LEAST_PERCENT: i64 = 20;
/// How long after a closure ended the next one counts as its continuation, and is one step stricter.
const REMEMBERED_FOR: Duration = Duration::DAY;

/// Whose codes are judged together. They are judged in this order: codes of a network that is closed say nothing of
/// the block they were sent to, and those of a closed network or block nothing of the country.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// An IPv4 address, or a /48 of IPv6.
    Network,
    /// Numbers that differ in the last four digits only.
    Block,
    Country,
}

/// The codes of one network, block or country in the judged hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// Phones that codes were sent to.
    pub(super) phones: i64,
    /// Those of them that verified one.
    pub(super) verified: i64,
    /// Networks that asked for the codes.
    pub(super) origins: i64,
    /// Blocks that the phones are in.
    pub(super) blocks: i64,
}

/// How many codes an hour are still sent to a closed network, block or country, to phones that have not verified before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cap {
    pub(super) prefix: String,
    pub(super) hourly: u32,
}

impl Scope {
    pub(super) const ALL: [Self; 3] = [Self::Network, Self::Block, Self::Country];

    /// As metrics and statements call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Block => "block",
            Self::Country => "country",
        }
    }

    /// How many phones an hour must have for its codes to be judged. One address must not be able to close a country:
    /// see also [`Self::is_fraud`].
    pub(super) fn least_phones(self) -> i64 {
        match self {
            Self::Network => 20,
            Self::Block => 30,
            Self::Country => 1_000,
        }
    }

    /// Whether too few of the codes came back. A country is judged only by codes that many networks asked for, to
    /// numbers in many blocks.
    pub(super) fn is_fraud(self, sample: Sample) -> bool {
        let spread = self != Self::Country || (sample.origins >= 100 && sample.blocks >= 50);
        spread && sample.phones >= self.least_phones() && sample.verified * 100 < sample.phones * LEAST_PERCENT
    }

    /// How many codes an hour are still sent. It follows the number of people who did verify, and is halved with every
    /// step. A country never goes down to zero.
    pub(super) fn hourly_cap(self, sample: Sample, level: i16) -> u32 {
        let (least, times, floor) = match self {
            Self::Network | Self::Block => (5, 2, 0),
            Self::Country => (50, 3, 10),
        };
        let first = u32::try_from(sample.verified.saturating_mul(times)).unwrap_or(u32::MAX).max(least);
        (first >> level.saturating_sub(1).clamp(0, 31)).max(floor)
    }
}

/// How strict the next closure is: one step more if the one before ended less than a day ago.
pub(super) fn next_level(before: Option<(i16, OffsetDateTime)>, now: OffsetDateTime) -> i16 {
    match before {
        Some((level, ended)) if now - ended < REMEMBERED_FOR => level.saturating_add(1),
        _ => 1,
    }
}

/// One hour at the first step, twice as long with every further one, a day at most.
pub(super) fn closed_for(level: i16) -> Duration {
    Duration::hours(1_i64 << level.saturating_sub(1).clamp(0, 5)).min(Duration::DAY)
}

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

    /// What is stored instead of the part of the internet that a phone verified from, under each key; the first is the
    /// one to store. Addresses are personal data, and there are few enough of them to try all.
    pub(super) fn places(&self, phone: &Phone, neighbourhood: &str) -> Vec<Vec<u8>> {
        let place = |(_, key): &(i16, Hmac<Sha256>)| {
            let parts: [&[u8]; 3] = [b"place", phone.as_str().as_bytes(), neighbourhood.as_bytes()];
            fed_with(key, &parts).finalize().into_bytes()[..16].to_vec()
        };
        self.0.iter().map(place).collect()
    }

    /// Whether it is that code, in a time that says nothing of how wrong it is.
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
    fn country_needs_many_phones_networks_and_blocks_to_be_judged() {
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
    fn closures_grow_stepwise_and_are_forgotten_after_a_day() {
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
    fn place_is_stored_under_a_key_and_read_under_all() {
        let (ada, bob) = (phone("+14155550100"), phone("+14155550101"));
        let old = keyring(&key(1, 7)).places(&ada, "203.0.0.0/16");
        let both = keyring(&format!("{},{}", key(2, 8), key(1, 7)));
        assert!(both.places(&ada, "203.0.0.0/16").contains(&old[0]));
        assert_ne!(both.places(&ada, "203.0.0.0/16")[0], old[0], "the newest key is the one that is stored under");
        assert!(!both.places(&bob, "203.0.0.0/16").contains(&old[0]) && !both.places(&ada, "").contains(&old[0]));
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
        fn the_wait_never_grows_shorter_with_failures(failures in 0..200_i32, passed in 0..4_000_i64) {
            let last = datetime!(2026-11-20 15:00 UTC);
            let now = last + Duration::seconds(passed);
            prop_assert!(wait(failures, last, now) <= wait(failures + 1, last, now));
        }
    }
}
