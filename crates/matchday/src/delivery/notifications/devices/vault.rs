//! Stored tokens: encrypted, and found by a keyed hash. The keys are derived from the keys of login codes.

use hmac::{Hmac, KeyInit as _, Mac as _};
use platform::{
    encryption::{Encrypted, SecretCipher},
    random::Random,
    settings::CodeKey,
};
use serde_json::Value;
use sha2::Sha256;

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
    keys: Vec<Hmac<Sha256>>,
    cipher: SecretCipher,
}

impl TokenVault {
    pub(super) fn new(keys: &[CodeKey]) -> Self {
        let derive = |key: &CodeKey| {
            let mut derived: Hmac<Sha256> = Hmac::new_from_slice(&hex::decode(key.expose()).ok()?).ok()?;
            derived.update(PURPOSE);
            Hmac::new_from_slice(&derived.finalize().into_bytes()).ok()
        };
        Self { keys: keys.iter().filter_map(derive).collect(), cipher: SecretCipher::new(keys) }
    }

    /// Hashes a token with each key, the current one first: devices are found under keys that were replaced.
    pub(super) fn hashes(&self, identity: &str) -> Vec<Vec<u8>> {
        let hash = |key: &Hmac<Sha256>| {
            let mut mac = key.clone();
            mac.update(identity.as_bytes());
            mac.finalize().into_bytes().to_vec()
        };
        self.keys.iter().map(hash).collect()
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
