//! Invite codes: stored as a keyed hash, by which they are found, and encrypted, because members can read them again.

use std::fmt;

use platform::{
    encryption::{Encrypted, KeyedHasher, SecretCipher},
    random::{self, Random},
    settings::CodeKey,
};
use web::fields::FromJson;

/// Letters and digits of a code, without easily confused ones: 0 and O, 1, I and L.
const ALPHABET: &[u8; 31] = b"ABCDEFGHJKMNPQRSTUVWXYZ23456789";
const LENGTH: usize = 8;

/// Purpose of the key that hashes codes, so that it differs from other keys derived from the same secret.
const PURPOSE: &[u8] = b"matchday league codes";

/// An invite code. There are 31⁸ codes, about 850 billion.
#[derive(Clone, PartialEq, Eq)]
pub struct InviteCode(String);

impl InviteCode {
    /// Makes a random code.
    pub(super) fn make(random: &dyn Random) -> Self {
        let mut code = String::with_capacity(LENGTH);
        while code.len() < LENGTH {
            let [byte]: [u8; 1] = random::bytes(random);
            // Bytes from 248 on would make some letters more frequent.
            if byte < 248 {
                code.push(char::from(ALPHABET[usize::from(byte) % ALPHABET.len()]));
            }
        }
        Self(code)
    }

    /// Reads a code as people type it: in any case, with spaces and hyphens.
    pub(super) fn read(text: &str) -> Option<Self> {
        let code: String =
            text.chars().filter(|c| !c.is_whitespace() && *c != '-').map(|c| c.to_ascii_uppercase()).collect();
        let is_code = code.len() == LENGTH && code.bytes().all(|byte| ALPHABET.contains(&byte));
        is_code.then_some(Self(code))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for InviteCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InviteCode")
    }
}

impl FromJson for InviteCode {
    const EXPECTED: &'static str = "must be an invite code of eight letters and digits";

    fn from_json(value: &serde_json::Value) -> Option<Self> {
        Self::read(value.as_str()?)
    }
}

/// A code as stored.
pub(super) struct StoredCode {
    pub(super) digest: Vec<u8>,
    pub(super) encrypted: Encrypted,
}

/// Hashes and encrypts codes under the keys of the settings.
pub(super) struct CodeVault {
    hasher: KeyedHasher,
    cipher: SecretCipher,
}

impl CodeVault {
    pub(super) fn new(keys: &[CodeKey]) -> Self {
        Self { hasher: KeyedHasher::new(keys, PURPOSE), cipher: SecretCipher::new(keys) }
    }

    /// Hashes a code with each key, the current one first.
    pub(super) fn digests(&self, code: &InviteCode) -> Vec<Vec<u8>> {
        self.hasher.hashes(code.as_str().as_bytes()).map(|(_, hash)| hash.to_vec()).collect()
    }

    /// Returns a code as stored; `None` without a key.
    pub(super) fn seal(&self, random: &dyn Random, code: &InviteCode) -> Option<StoredCode> {
        let digest = self.digests(code).into_iter().next()?;
        let encrypted = self.cipher.seal(random, ABOUT, code.as_str().as_bytes())?;
        Some(StoredCode { digest, encrypted })
    }

    /// Decrypts a stored code; `None` if its key is missing.
    pub(super) fn open(&self, stored: &Encrypted) -> Option<InviteCode> {
        let bytes = self.cipher.open(ABOUT, stored)?;
        InviteCode::read(&String::from_utf8(bytes).ok()?)
    }
}

/// Purpose of the encrypted codes.
const ABOUT: &str = "league code";

#[cfg(test)]
mod tests {
    use platform::{settings::Setting as _, testing::SeededRandom};

    use super::*;

    #[test]
    fn code_is_read_as_people_type_it() {
        for text in ["ABCDEFGH", "abcdefgh", " abcd-efgh ", "AB CD EF GH"] {
            assert_eq!(InviteCode::read(text).expect("a code").as_str(), "ABCDEFGH", "{text}");
        }
        for text in ["", "ABC", "ABCDEFG0", "ABCDEFGI", "ABCDEFGHJ", "ABCDEFGÄ", "ABCDEFG\0"] {
            assert!(InviteCode::read(text).is_none(), "{text}");
        }
    }

    #[test]
    fn codes_are_random_and_unambiguous() {
        let random = SeededRandom::new(7);
        let codes: Vec<InviteCode> = (0..1_000).map(|_| InviteCode::make(&random)).collect();
        assert!(codes.iter().all(|code| InviteCode::read(code.as_str()).as_ref() == Some(code)));
        let mut distinct: Vec<&str> = codes.iter().map(InviteCode::as_str).collect();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 1_000);
    }

    #[test]
    fn code_is_found_under_replaced_key() {
        let keys = |text: &str| Vec::<CodeKey>::parse(text).expect("keys");
        let (one, two) = (format!("1:{}", "1".repeat(64)), format!("2:{}", "2".repeat(64)));
        let random = SeededRandom::new(7);
        let code = InviteCode::make(&random);
        let stored = CodeVault::new(&keys(&one)).seal(&random, &code).expect("stored");
        let rotated = CodeVault::new(&keys(&format!("{two},{one}")));
        assert!(rotated.digests(&code).contains(&stored.digest));
        assert_eq!(rotated.open(&stored.encrypted), Some(code.clone()));
        let other = CodeVault::new(&keys(&two));
        assert!(!other.digests(&code).contains(&stored.digest) && other.open(&stored.encrypted).is_none());
        assert!(!stored.encrypted.bytes.windows(8).any(|part| part == code.as_str().as_bytes()));
    }
}
