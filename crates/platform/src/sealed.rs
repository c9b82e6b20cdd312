//! Secrets that the service must read again, in a database that others may read: backups, replicas, whoever looks into
//! tables. They are encrypted under a key that is not in the database (AES-256-GCM), and bound to what they are for, so
//! that nobody who can write there can put one in another's place.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use super::{
    random::{self, Random},
    settings::CodeKey,
};

/// What seals and opens. The first key seals; all of them open.
pub struct Sealer {
    keys: Vec<(i16, LessSafeKey)>,
}

/// A sealed secret as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// Which key opens it.
    pub key_version: i16,
    /// Nonce, ciphertext and tag.
    pub bytes: Vec<u8>,
}

impl fmt::Debug for Sealer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Sealer").finish_non_exhaustive()
    }
}

impl Sealer {
    /// With these keys; with none, nothing can be sealed or opened.
    pub fn new(keys: &[CodeKey]) -> Self {
        let key = |key: &CodeKey| {
            let bytes = hex::decode(key.expose()).ok()?;
            let unbound = UnboundKey::new(&AES_256_GCM, &bytes).ok()?;
            Some((i16::try_from(key.version()).ok()?, LessSafeKey::new(unbound)))
        };
        Self { keys: keys.iter().filter_map(key).collect() }
    }

    /// The version of the key that seals, if there is one.
    pub fn current(&self) -> Option<i16> {
        self.keys.first().map(|(version, _)| *version)
    }

    /// Seals a secret that is `about` something. `None` without a key.
    pub fn seal(&self, random: &dyn Random, about: &str, secret: &[u8]) -> Option<Sealed> {
        let (key_version, key) = self.keys.first()?;
        let nonce = random::bytes::<NONCE_LEN>(random);
        let mut sealed = secret.to_vec();
        let outcome = key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(about), &mut sealed);
        outcome.ok().map(|()| Sealed { key_version: *key_version, bytes: [&nonce[..], &sealed].concat() })
    }

    /// Opens one. `None` where its key is not there, where it is about something else, or where somebody changed it.
    pub fn open(&self, about: &str, sealed: &Sealed) -> Option<Vec<u8>> {
        let (_, key) = self.keys.iter().find(|(version, _)| *version == sealed.key_version)?;
        let (nonce, rest) = sealed.bytes.split_at_checked(NONCE_LEN)?;
        let (nonce, mut opened) = (Nonce::try_assume_unique_for_key(nonce).ok()?, rest.to_vec());
        let length = key.open_in_place(nonce, Aad::from(about), &mut opened).ok()?.len();
        opened.truncate(length);
        Some(opened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{settings::Setting as _, testing::SeededRandom};

    fn key(version: u16, digit: &str) -> CodeKey {
        CodeKey::parse(&format!("{version}:{}", digit.repeat(64))).expect("a key")
    }

    #[test]
    fn what_was_sealed_opens_with_its_key_for_its_purpose_only() {
        let random = SeededRandom::new(1);
        let (old, both) = (Sealer::new(&[key(1, "a")]), Sealer::new(&[key(2, "b"), key(1, "a")]));
        let sealed = old.seal(&random, "one", b"secret").expect("a key");
        assert!(!sealed.bytes.windows(6).any(|part| part == b"secret"));
        assert_ne!(old.seal(&random, "one", b"secret"), Some(sealed.clone()), "never the same twice");
        assert_eq!(old.open("one", &sealed).as_deref(), Some(&b"secret"[..]));
        assert_eq!(both.open("one", &sealed).as_deref(), Some(&b"secret"[..]), "old keys still open");
        assert_eq!(both.seal(&random, "one", b"x").map(|sealed| sealed.key_version), Some(2), "the first one seals");
        assert_eq!(both.open("two", &sealed), None, "about something else");
        assert_eq!(Sealer::new(&[key(1, "c")]).open("one", &sealed), None, "another key of that version");
        assert_eq!(Sealer::new(&[key(3, "a")]).open("one", &sealed), None, "no key of that version");
        for at in 0..sealed.bytes.len() {
            let mut changed = sealed.clone();
            changed.bytes[at] ^= 1;
            assert_eq!(old.open("one", &changed), None, "byte {at}");
        }
        assert_eq!(old.open("one", &Sealed { bytes: vec![0; 5], ..sealed }), None);
        assert_eq!(Sealer::new(&[]).seal(&random, "one", b"x"), None);
    }
}
