//! Stored tokens: encrypted, and found by a keyed hash. The keys are derived from the keys of login codes.

use platform::{
    encryption::{Encrypted, KeyedHasher, SecretCipher},
    random::Random,
    settings::CodeKey,
};
use serde_json::Value;

use super::rules::{Platform, Token};

/// Purpose of the keys of hashes.
const PURPOSE: &[u8] = b"device tokens";
/// Purpose of encrypted tokens.
const ABOUT: &str = "device token";

/// A token as stored.
pub(super) struct StoredToken {
    pub(super) hash: Vec<u8>,
    pub(super) encrypted: Encrypted,
}

/// Hashes and encrypts tokens under the keys of the settings.
pub(super) struct TokenVault {
    hasher: KeyedHasher,
    cipher: SecretCipher,
}

impl TokenVault {
    pub(super) fn new(keys: &[CodeKey]) -> Self {
        Self { hasher: KeyedHasher::new(keys, PURPOSE), cipher: SecretCipher::new(keys) }
    }

    /// Hashes a token with each key, the current one first.
    pub(super) fn hashes(&self, identity: &str) -> Vec<Vec<u8>> {
        self.hasher.hashes(identity.as_bytes()).map(|(_, hash)| hash.to_vec()).collect()
    }

    /// Returns a token as stored; `None` without a key.
    pub(super) fn seal(&self, random: &dyn Random, token: &Token) -> Option<StoredToken> {
        let hash = self.hashes(&token.identity()).into_iter().next()?;
        let encrypted = self.cipher.seal(random, ABOUT, token.to_json().to_string().as_bytes())?;
        Some(StoredToken { hash, encrypted })
    }

    /// Decrypts a stored token; `None` if its key is missing.
    pub(super) fn open(&self, platform: Platform, stored: &Encrypted) -> Option<Token> {
        let value: Value = serde_json::from_slice(&self.cipher.open(ABOUT, stored)?).ok()?;
        Token::parse(platform, &value)
    }
}
