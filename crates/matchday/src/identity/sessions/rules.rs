//! Token format and session expiry; no I/O.
//!
//! Tokens have the form `md_<user id in base 36>_<256 random bits in base 62>_<checksum>`. The prefix lets secret
//! scanners find leaked tokens. The user id makes each check a lookup by primary key. The checksum rejects typos and
//! malformed tokens without a query.

use std::time::Duration;

use secrecy::SecretString;
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use web::ids::UserId;

use crate::identity::token_text::{SECRET_LENGTH, base36, base62, checksum};

/// The hash under which a token is stored. It is looked up, not compared in constant time: timing could reveal only a
/// prefix of the hash, which reveals nothing about the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TokenHash(pub(crate) [u8; 32]);

impl TokenHash {
    pub(super) fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }

    pub(super) fn to_hex(self) -> String {
        hex::encode(self.0)
    }

    pub(super) fn from_hex(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).ok().map(|()| Self(bytes))
    }
}

/// Makes a token from 256 random bits and returns it with its hash.
pub(crate) fn make_token(user: UserId, random: [u8; 32]) -> (SecretString, TokenHash) {
    let owner = base36(user.0.unsigned_abs());
    let start = format!("md_{owner}_{}", base62(&random, SECRET_LENGTH));
    let token = format!("{start}_{}", checksum(&start));
    let hash = TokenHash::of(&token);
    (SecretString::from(token), hash)
}

/// Returns the user id in a well-formed token.
pub(crate) fn read_token(token: &str) -> Option<UserId> {
    let (start, sum) = token.rsplit_once('_')?;
    if token.len() > 100 || checksum(start) != sum {
        return None;
    }
    let (owner, secret) = start.strip_prefix("md_")?.split_once('_')?;
    if secret.len() != SECRET_LENGTH {
        return None;
    }
    i64::from_str_radix(owner, 36).ok().filter(|&id| id >= 1 && base36(id.unsigned_abs()) == owner).map(UserId)
}

/// Makes the id of a session's chat device. Each session gets a new device, because a reused device keeps its earlier
/// tokens.
pub(super) fn make_device(random: [u8; 8]) -> String {
    format!("MD{}", base62(&random, 11))
}

/// Returns the expiry of a session that is used now: after the idle time, but never beyond the session's lifetime.
pub(super) fn expiry(
    created: OffsetDateTime,
    used: OffsetDateTime,
    idle: Duration,
    lifetime: Duration,
) -> OffsetDateTime {
    (used + idle).min(created + lifetime)
}

/// Interval between recorded uses: a day, or less if sessions end after a short idle time.
fn note_interval(idle: Duration) -> Duration {
    Duration::from_hours(24).min(idle / 30)
}

/// Whether to record a use. Each use would be too many writes, and a day is little beside an idle time of thirty.
pub(super) fn is_worth_noting(last_used: OffsetDateTime, now: OffsetDateTime, idle: Duration) -> bool {
    now - last_used >= note_interval(idle)
}

/// Returns the time from which a cached session must be looked up again: when it expires, or when its next use is worth
/// noting. A use that another transaction prevented from being noted is tried again only after a while.
pub(super) fn look_up_again_at(
    last_used: OffsetDateTime,
    expires_at: OffsetDateTime,
    now: OffsetDateTime,
    idle: Duration,
) -> OffsetDateTime {
    let interval = note_interval(idle);
    (last_used + interval).max(now + interval / 24).min(expires_at)
}

/// The ban of a session's user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ban {
    /// End of the ban; `None` if the ban is permanent.
    pub until: Option<OffsetDateTime>,
}

impl Ban {
    /// Whether the ban is still in force.
    pub(super) fn lasts_at(self, now: OffsetDateTime) -> bool {
        self.until.is_none_or(|until| until > now)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use secrecy::ExposeSecret as _;

    use super::*;

    fn text(token: &SecretString) -> String {
        token.expose_secret().to_owned()
    }

    #[test]
    fn token_has_the_documented_format() {
        let (token, _) = make_token(UserId(1_295), [0xff; 32]);
        assert!(text(&token).starts_with("md_zz_"), "1,295 is zz in base 36");
        assert_eq!(text(&token).len(), 3 + 2 + 1 + 43 + 1 + 6);
    }

    proptest! {
        #[test]
        fn devices_have_distinct_names(one: [u8; 8], two: [u8; 8]) {
            prop_assert_eq!(make_device(one) == make_device(two), one == two);
            prop_assert!(make_device(one).bytes().all(|byte| byte.is_ascii_alphanumeric()));
        }

        #[test]
        fn made_token_reads_back(user in 1_i64.., random: [u8; 32]) {
            let (token, hash) = make_token(UserId(user), random);
            prop_assert_eq!(read_token(&text(&token)), Some(UserId(user)));
            prop_assert_eq!(TokenHash::of(&text(&token)), hash);
            prop_assert_eq!(TokenHash::from_hex(&hash.to_hex()), Some(hash));
        }

        #[test]
        fn changed_token_is_refused(user in 1_i64.., random: [u8; 32], at in 0_usize..50, letter in "[0-9A-Za-z_]") {
            let token = text(&make_token(UserId(user), random).0);
            let at = at % token.len();
            let mut changed = token.clone();
            changed.replace_range(at..=at, &letter);
            prop_assert!(changed == token || read_token(&changed).is_none());
        }

        #[test]
        fn arbitrary_text_is_not_a_token(text in ".*") {
            prop_assert_eq!(read_token(&text), None);
            prop_assert_eq!(read_token(&format!("md_{text}")), None);
        }

        #[test]
        fn session_never_outlives_its_lifetime(age in 0_i64..200, idle in 1_u64..60, lifetime in 60_u64..200) {
            let day = |days: u64| Duration::from_secs(days * 86_400);
            let created = time::macros::datetime!(2026-01-01 00:00 UTC);
            let used = created + time::Duration::days(age);
            let end = expiry(created, used, day(idle), day(lifetime));
            prop_assert!(end <= created + day(lifetime) && end <= used + day(idle));
        }

        /// A session stays valid if its user pauses for less than nine tenths of the idle time.
        #[test]
        fn used_session_does_not_expire(
            idle in 60_u64..10_000_000, pauses in prop::collection::vec(0.0..0.9_f64, 1..200),
        ) {
            let (idle, created) = (Duration::from_secs(idle), time::macros::datetime!(2026-01-01 00:00 UTC));
            let (mut now, mut last_used, mut again) = (created, created, created);
            for pause in pauses {
                now += idle.mul_f64(pause);
                prop_assert!(now < last_used + idle, "expired in use");
                if now >= again {
                    if is_worth_noting(last_used, now, idle) {
                        last_used = now;
                    }
                    again = look_up_again_at(last_used, last_used + idle, now, idle);
                }
                let interval = note_interval(idle);
                prop_assert!(now - last_used <= interval + interval / 24, "use not noted");
            }
        }
    }
}
