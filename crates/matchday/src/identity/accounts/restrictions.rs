//! Restrictions that follow a phone number.
//!
//! A restricted user could delete the account, or move it to another phone, and register again with the old number.
//! When a restricted account releases a number, the service therefore keeps a keyed hash of the number with the ban and
//! the mute, for as long as they last. An account that takes the number gets the same restrictions.
//!
//! There are only about ten billion numbers, so a plain hash would not hide them. The hash is an HMAC with keys derived
//! from `codes.keys`, which are not in the database. New hashes use the first key. Lookups try all keys, so keys can be
//! rotated. A hash whose key was removed from the settings no longer matches any number.

use platform::{
    encryption::KeyedHasher,
    outbox::{self, Message},
    settings::CodeKey,
};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use time::OffsetDateTime;
use web::ids::UserId;

use super::{service::Account, store};
use crate::identity::phone::Phone;

/// Subject that informs every process of a changed restriction.
pub const CHANGED: &str = "fact.user.restricted";
/// Subject that informs the chat workers of a changed restriction.
pub const RESTRICTED: &str = "work.chat_security.restricted";

/// Change to a user's restrictions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restriction {
    /// Bars the user from the service.
    Ban,
    Unban,
    /// Bars the user from sending chat messages.
    Mute,
    Unmute,
}

impl Restriction {
    /// Value of the `action` column and field.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ban => "ban",
            Self::Unban => "unban",
            Self::Mute => "mute",
            Self::Unmute => "unmute",
        }
    }

    /// Action name in the audit log.
    pub(crate) fn action(self) -> &'static str {
        match self {
            Self::Ban => "user.ban",
            Self::Unban => "user.unban",
            Self::Mute => "user.mute",
            Self::Unmute => "user.unmute",
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Restricted {
    pub user_id: UserId,
}

/// Start of a ban or mute, and its end if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Term {
    pub(crate) since: OffsetDateTime,
    pub(crate) until: Option<OffsetDateTime>,
}

impl Term {
    fn longer(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) => {
                let is_longer = match (one.until, other.until) {
                    (None, _) => true,
                    (Some(_), None) => false,
                    (Some(one), Some(other)) => one >= other,
                };
                Some(if is_longer { one } else { other })
            }
            (one, other) => one.or(other),
        }
    }
}

/// The ban and the mute of an account or a phone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) ban: Option<Term>,
    pub(crate) mute: Option<Term>,
}

impl Terms {
    /// Combines two sets of terms. If both have a ban, or both have a mute, the later end applies.
    pub(crate) fn longer(self, other: Self) -> Self {
        Self { ban: Term::longer(self.ban, other.ban), mute: Term::longer(self.mute, other.mute) }
    }

    /// Drops terms that have ended at this time.
    pub(crate) fn at(self, now: OffsetDateTime) -> Self {
        let lasts = |term: &Term| term.until.is_none_or(|until| until > now);
        Self { ban: self.ban.filter(lasts), mute: self.mute.filter(lasts) }
    }
}

/// Domain separator: keeps these keys distinct from all other uses of the code keys.
const PURPOSE: &[u8] = b"matchday restricted phone 1";

/// Recorded as the operator of restrictions that the service applies or lifts automatically.
pub(crate) const SERVICE: &str = "matchday";

/// A keyed hash of a phone number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PhoneMac {
    pub(crate) key_version: i16,
    pub(crate) mac: [u8; 32],
}

/// Keyed hashes of restricted phone numbers.
#[derive(Clone)]
pub struct RestrictedPhones {
    hasher: KeyedHasher,
}

#[derive(Debug, thiserror::Error)]
pub enum RestrictError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// An outbox message could not be serialised.
    #[error(transparent)]
    Message(#[from] serde_json::Error),
}

#[derive(Serialize, Deserialize)]
pub(crate) struct RestrictionFact {
    pub(crate) user_id: UserId,
    pub(crate) action: String,
}

impl RestrictedPhones {
    /// Derives the hashing keys from the code keys, the current one first.
    pub fn new(keys: &[CodeKey]) -> Self {
        Self { hasher: KeyedHasher::new(keys, PURPOSE) }
    }

    pub(crate) fn key_versions(&self) -> Vec<i16> {
        self.hasher.key_versions().collect()
    }

    /// Hashes the number with each key, the current one first.
    pub(crate) fn macs(&self, phone: &Phone) -> Vec<PhoneMac> {
        let hashes = self.hasher.hashes(phone.as_str().as_bytes());
        hashes.map(|(key_version, mac)| PhoneMac { key_version, mac }).collect()
    }

    /// Stores the restrictions of an account for a phone that the account releases.
    pub(crate) async fn keep_in(
        &self,
        connection: &mut PgConnection,
        account: &Account,
        released: &Phone,
    ) -> sqlx::Result<()> {
        let terms = account.terms();
        if terms == Terms::default() {
            return Ok(());
        }
        // Without a key, users cannot log in and therefore cannot register again.
        let macs = self.macs(released);
        let Some((current, old)) = macs.split_first() else { return Ok(()) };
        store::forget_phone(connection, old).await?;
        store::keep_phone(connection, account.id, *current, terms).await
    }

    /// Applies the restrictions of a phone to the account that takes it. Of two bans, or two mutes, the later end
    /// applies.
    pub(crate) async fn apply_in(
        &self,
        connection: &mut PgConnection,
        account: &mut Account,
        taken: &Phone,
        now: OffsetDateTime,
    ) -> Result<(), RestrictError> {
        let own = account.terms();
        let follows = store::terms_of_phone(connection, &self.macs(taken)).await?.at(now);
        let terms = own.longer(follows);
        if terms == own {
            return Ok(());
        }
        store::set_terms(connection, account.id, terms).await?;
        let mut messages = Vec::new();
        let key = format!("user:{}", account.id);
        for (before, after, restriction) in
            [(own.ban, terms.ban, Restriction::Ban), (own.mute, terms.mute, Restriction::Mute)]
        {
            let Some(after) = after.filter(|_| after != before) else { continue };
            let reason = "The phone number was restricted.";
            let noted = store::Noted { action: restriction.name(), reason, operator: SERVICE, until: after.until };
            store::note_restriction(connection, account.id, &noted, now).await?;
            let fact = RestrictionFact { user_id: account.id, action: restriction.name().to_owned() };
            messages.push(Message::new(CHANGED, key.clone(), &fact)?);
        }
        messages.push(Message::new(RESTRICTED, key, &Restricted { user_id: account.id })?);
        outbox::enqueue(connection, &messages).await?;
        account.banned_at = terms.ban.map(|ban| ban.since);
        account.banned_until = terms.ban.and_then(|ban| ban.until);
        account.muted_at = terms.mute.map(|mute| mute.since);
        account.muted_until = terms.mute.and_then(|mute| mute.until);
        Ok(())
    }

    /// Updates the stored restrictions of the account's current and released phones to match the account.
    pub(crate) async fn update_in(&self, connection: &mut PgConnection, account: &Account) -> sqlx::Result<()> {
        let macs = account.phone.as_ref().map(|phone| self.macs(phone)).unwrap_or_default();
        store::update_phones(connection, account.id, &macs, account.terms()).await
    }
}

#[cfg(test)]
mod tests {
    use hmac::{Hmac, KeyInit as _, Mac as _};
    use platform::settings::Setting as _;
    use proptest::prelude::*;
    use sha2::Sha256;
    use time::macros::datetime;

    use super::*;

    fn moment(seconds: i64) -> OffsetDateTime {
        datetime!(2026-11-20 15:00 UTC) + time::Duration::seconds(seconds)
    }

    fn term() -> impl Strategy<Value = Option<Term>> {
        let until = proptest::option::of(-100_i64..100);
        proptest::option::of(
            (-200_i64..-100, until).prop_map(|(since, until)| Term { since: moment(since), until: until.map(moment) }),
        )
    }

    fn terms() -> impl Strategy<Value = Terms> {
        (term(), term()).prop_map(|(ban, mute)| Terms { ban, mute })
    }

    /// Whether a term is in effect at this time.
    fn holds(term: Option<Term>, at: OffsetDateTime) -> bool {
        term.is_some_and(|term| term.until.is_none_or(|until| until > at))
    }

    proptest! {
        /// The combination restricts a user exactly when at least one of the two does.
        #[test]
        fn longer_terms_restrict_whenever_one_does(one in terms(), other in terms(), at in -150_i64..150) {
            let (both, at) = (one.longer(other), moment(at));
            prop_assert_eq!(holds(both.ban, at), holds(one.ban, at) || holds(other.ban, at));
            prop_assert_eq!(holds(both.mute, at), holds(one.mute, at) || holds(other.mute, at));
            prop_assert_eq!(both.at(at).ban.is_some(), holds(both.ban, at));
            prop_assert_eq!(one.longer(Terms::default()), one);
        }
    }

    fn phones(keys: &str) -> RestrictedPhones {
        RestrictedPhones::new(&Vec::<CodeKey>::parse(keys).expect("keys"))
    }

    #[test]
    fn hash_depends_on_number_key_and_purpose() {
        let [old, new] = [(1, "ab"), (2, "cd")].map(|(version, byte)| format!("{version}:{}", byte.repeat(32)));
        let [one, two] = ["+14155550142", "+14155550143"].map(|phone| Phone::parse(phone).expect("a phone"));
        let (before, after) = (phones(&old), phones(&format!("{new},{old}")));
        assert_eq!(before.macs(&one), before.macs(&one));
        assert_ne!(before.macs(&one), before.macs(&two));
        let rotated = after.macs(&one);
        assert_eq!(rotated.iter().map(|mac| mac.key_version).collect::<Vec<_>>(), [2, 1], "the current key is first");
        assert_eq!(rotated[1], before.macs(&one)[0], "an old key still finds its numbers");
        assert_ne!(rotated[0].mac, rotated[1].mac);
        let mut plain = Hmac::<Sha256>::new_from_slice(&[0xab; 32]).expect("a key");
        plain.update(one.as_str().as_bytes());
        assert_ne!(before.macs(&one)[0].mac[..], plain.finalize().into_bytes()[..], "the hash uses a derived key");
    }
}
