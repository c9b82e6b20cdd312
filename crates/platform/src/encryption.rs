//! Encryption and hashing of stored secrets. The database may be read by others through backups, replicas and ad-hoc
//! queries, so secrets are encrypted with AES-256-GCM under a key that is not in the database. Each is bound to its purpose,
//! so an attacker with write access cannot put one secret in place of another. Secrets that must be found are also hashed
//! with a key.

use std::{fmt, sync::Arc};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::{
    random::{self, Random},
    settings::CodeKey,
};

/// Encrypts with the first key; decrypts with any of them.
pub struct SecretCipher {
    keys: Vec<(i16, LessSafeKey)>,
}

/// An encrypted secret as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encrypted {
    /// Version of the key that decrypts it.
    pub key_version: i16,
    /// Nonce, ciphertext and tag.
    pub bytes: Vec<u8>,
}

impl fmt::Debug for SecretCipher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Sealer").finish_non_exhaustive()
    }
}

impl SecretCipher {
    /// Builds a cipher. Without keys, nothing can be encrypted or decrypted.
    pub fn new(keys: &[CodeKey]) -> Self {
        let key = |key: &CodeKey| {
            let bytes = hex::decode(key.expose()).ok()?;
            let unbound = UnboundKey::new(&AES_256_GCM, &bytes).ok()?;
            Some((i16::try_from(key.version()).ok()?, LessSafeKey::new(unbound)))
        };
        Self { keys: keys.iter().filter_map(key).collect() }
    }

    /// Version of the key that encrypts, if there is one.
    pub fn current(&self) -> Option<i16> {
        self.keys.first().map(|(version, _)| *version)
    }

    /// Encrypts a secret and binds it to `about`, its purpose. `None` without a key.
    pub fn seal(&self, random: &dyn Random, about: &str, secret: &[u8]) -> Option<Encrypted> {
        let (key_version, key) = self.keys.first()?;
        let nonce = random::bytes::<NONCE_LEN>(random);
        let mut sealed = secret.to_vec();
        let outcome = key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(about), &mut sealed);
        outcome.ok().map(|()| Encrypted { key_version: *key_version, bytes: [&nonce[..], &sealed].concat() })
    }

    /// Decrypts a secret. `None` if its key is missing, if it was encrypted for another purpose, or if it was modified.
    pub fn open(&self, about: &str, sealed: &Encrypted) -> Option<Vec<u8>> {
        let (_, key) = self.keys.iter().find(|(version, _)| *version == sealed.key_version)?;
        let (nonce, rest) = sealed.bytes.split_at_checked(NONCE_LEN)?;
        let (nonce, mut opened) = (Nonce::try_assume_unique_for_key(nonce).ok()?, rest.to_vec());
        let length = key.open_in_place(nonce, Aad::from(about), &mut opened).ok()?.len();
        opened.truncate(length);
        Some(opened)
    }
}

/// Hashes values with keys that are derived from the keys of the settings for one purpose. The hashes of a value for two
/// purposes have nothing in common.
#[derive(Clone)]
pub struct KeyedHasher {
    keys: Arc<[(i16, Hmac<Sha256>)]>,
}

impl KeyedHasher {
    /// Derives the keys, the current one first.
    pub fn new(keys: &[CodeKey], purpose: &[u8]) -> Self {
        let derive = |key: &CodeKey| {
            let mut derived: Hmac<Sha256> = Hmac::new_from_slice(&hex::decode(key.expose()).ok()?).ok()?;
            derived.update(purpose);
            let derived = Hmac::new_from_slice(&derived.finalize().into_bytes()).ok()?;
            Some((i16::try_from(key.version()).ok()?, derived))
        };
        Self { keys: keys.iter().filter_map(derive).collect() }
    }

    /// Versions of the keys, the current one first.
    pub fn key_versions(&self) -> impl Iterator<Item = i16> {
        self.keys.iter().map(|(version, _)| *version)
    }

    /// Hashes a value with each key, the current one first: values are found under keys that were replaced. The items
    /// contain the versions of the keys.
    pub fn hashes(&self, value: &[u8]) -> impl Iterator<Item = (i16, [u8; 32])> {
        self.keys.iter().map(|(version, key)| {
            let mut hash = key.clone();
            hash.update(value);
            (*version, hash.finalize().into_bytes().into())
        })
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
    fn secret_decrypts_with_its_key_and_purpose_only() {
        let random = SeededRandom::new(1);
        let (old, both) = (SecretCipher::new(&[key(1, "a")]), SecretCipher::new(&[key(2, "b"), key(1, "a")]));
        let sealed = old.seal(&random, "one", b"secret").expect("a key");
        assert!(!sealed.bytes.windows(6).any(|part| part == b"secret"));
        assert_ne!(old.seal(&random, "one", b"secret"), Some(sealed.clone()), "a new nonce each time");
        assert_eq!(old.open("one", &sealed).as_deref(), Some(&b"secret"[..]));
        assert_eq!(both.open("one", &sealed).as_deref(), Some(&b"secret"[..]), "old keys still decrypt");
        assert_eq!(both.seal(&random, "one", b"x").map(|sealed| sealed.key_version), Some(2), "the first key encrypts");
        assert_eq!(both.open("two", &sealed), None, "another purpose");
        assert_eq!(SecretCipher::new(&[key(1, "c")]).open("one", &sealed), None, "another key with that version");
        assert_eq!(SecretCipher::new(&[key(3, "a")]).open("one", &sealed), None, "no key with that version");
        for at in 0..sealed.bytes.len() {
            let mut changed = sealed.clone();
            changed.bytes[at] ^= 1;
            assert_eq!(old.open("one", &changed), None, "byte {at}");
        }
        assert_eq!(old.open("one", &Encrypted { bytes: vec![0; 5], ..sealed }), None);
        assert_eq!(SecretCipher::new(&[]).seal(&random, "one", b"x"), None);
    }

    #[test]
    fn hash_depends_on_key_and_purpose() {
        let hashes = |keys: &[CodeKey], purpose: &[u8], value: &[u8]| -> Vec<_> {
            KeyedHasher::new(keys, purpose).hashes(value).collect()
        };
        let keys = [key(2, "b"), key(1, "a")];
        let both = hashes(&keys, b"one", b"value");
        assert_eq!(both.iter().map(|(version, _)| *version).collect::<Vec<_>>(), [2, 1], "the current key is first");
        assert_eq!(hashes(&keys[1..], b"one", b"value"), both[1..], "a replaced key has the same hash");
        let others = [
            hashes(&[key(1, "b")], b"one", b"value"),
            hashes(&[key(1, "a")], b"two", b"value"),
            hashes(&[key(1, "a")], b"one", b"other"),
        ];
        let distinct: std::collections::HashSet<_> =
            others.iter().flatten().chain(&both[1..]).map(|(_, hash)| hash).collect();
        assert_eq!(distinct.len(), 4, "another key, purpose or value");
        assert_eq!(hashes(&[], b"one", b"value"), []);
    }
}
