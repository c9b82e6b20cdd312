//! Restrictions that follow a phone number.
//!
//! A restricted user could delete the account, or move it to another phone, and register again with the old number. So when
//! a restricted account releases a number, a keyed hash of the number is kept with the ban and the mute, for as long as
//! they last. An account that takes the number is restricted in the same way.
//!
//! There are only some ten billion numbers, so a plain hash would not hide them. The hash is an HMAC under keys that are
//! derived from the keys of the codes, which are not in the database. New hashes use the first key; all keys are tried when
//! a number is looked up, so keys can be rotated. A hash whose key was removed from the settings matches nothing any more.

use std::sync::Arc;

use hmac::{Hmac, KeyInit as _, Mac as _};
use platform::{
    outbox::{self, Message},
    settings::CodeKey,
};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use sqlx::PgConnection;
use time::OffsetDateTime;
use web::ids::UserId;

use super::{
    rules::Terms,
    service::{CHANGED, Restriction},
    store,
};
use crate::{
    accounts::service::Account,
    chat::work::{RESTRICTED, Restricted},
    phone::Phone,
};

/// Separates these keys from all other uses of the codes' keys.
const PURPOSE: &[u8] = b"matchday restricted phone 1";

/// Recorded as the operator of restrictions that the service applies or lifts by itself.
pub(super) const SERVICE: &str = "matchday";

/// A keyed hash of a phone number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PhoneMac {
    pub(super) key_version: i16,
    pub(super) mac: [u8; 32],
}

/// The restrictions of phone numbers.
#[derive(Clone)]
pub struct RestrictedPhones {
    keys: Arc<[(i16, Hmac<Sha256>)]>,
}

/// Why restrictions could not be applied.
#[derive(Debug, thiserror::Error)]
pub enum RestrictError {
    /// The database failed.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// A message could not be written.
    #[error(transparent)]
    Message(#[from] serde_json::Error),
}

/// The fact that a restriction changed.
#[derive(Serialize, Deserialize)]
pub(super) struct RestrictionFact {
    pub(super) user_id: UserId,
    pub(super) action: String,
}

impl RestrictedPhones {
    /// With the keys of the codes, the current one first.
    pub fn new(keys: &[CodeKey]) -> Self {
        let derive = |key: &CodeKey| {
            let mut derived: Hmac<Sha256> = Hmac::new_from_slice(&hex::decode(key.expose()).ok()?).ok()?;
            derived.update(PURPOSE);
            let derived = Hmac::new_from_slice(&derived.finalize().into_bytes()).ok()?;
            Some((i16::try_from(key.version()).ok()?, derived))
        };
        Self { keys: keys.iter().filter_map(derive).collect() }
    }

    /// The versions of the keys.
    pub(super) fn key_versions(&self) -> Vec<i16> {
        self.keys.iter().map(|(version, _)| *version).collect()
    }

    /// The number's hash under each key, the current one first.
    pub(super) fn macs(&self, phone: &Phone) -> Vec<PhoneMac> {
        let mac = |(key_version, key): &(i16, Hmac<Sha256>)| {
            let mut mac = key.clone();
            mac.update(phone.as_str().as_bytes());
            PhoneMac { key_version: *key_version, mac: mac.finalize().into_bytes().into() }
        };
        self.keys.iter().map(mac).collect()
    }

    /// Makes the restrictions of an account follow a phone that it releases.
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
        // Without a key nobody can log in, so nobody could register again.
        let macs = self.macs(released);
        let Some((current, old)) = macs.split_first() else { return Ok(()) };
        store::forget_phone(connection, old).await?;
        store::keep_phone(connection, account.id, *current, terms).await
    }

    /// Restricts an account like the phone that it takes. Of two bans, or two mutes, the one that ends later counts.
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

    /// Brings what follows the phones of an account in line with the account's restrictions: those that it has released,
    /// and the one that it has.
    pub(super) async fn update_in(&self, connection: &mut PgConnection, account: &Account) -> sqlx::Result<()> {
        let macs = account.phone.as_ref().map(|phone| self.macs(phone)).unwrap_or_default();
        store::update_phones(connection, account.id, &macs, account.terms()).await
    }
}

#[cfg(test)]
mod tests {
    use platform::settings::Setting as _;

    use super::*;

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
        assert_ne!(before.macs(&one)[0].mac[..], plain.finalize().into_bytes()[..], "the key is a derived one");
    }
}
