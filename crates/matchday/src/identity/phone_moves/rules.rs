//! Undo codes and time limits of phone moves; no I/O.

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use time::{Duration, OffsetDateTime};
use web::{fields::FromJson, ids::UserId};

/// Time for which a proof of the current phone allows a move.
const PROOF_LASTS: Duration = Duration::minutes(10);
/// Time for which a move can be undone. Until then, the account cannot be deleted.
pub(super) const UNDO_LASTS: Duration = Duration::hours(72);

/// Crockford's base 32, in which no letter can be mistaken for a digit.
const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
/// Number of characters in the random part, five bits each.
const SECRET_LENGTH: usize = 16;

/// Whether a proof of the current phone is recent enough for a move.
pub(super) fn is_recent(proven_at: OffsetDateTime, now: OffsetDateTime) -> bool {
    now - proven_at < PROOF_LASTS
}

/// A code that undoes a move: the user's id and 80 random bits. `Debug` does not print the random bits.
#[derive(Clone, Debug)]
pub struct UndoCode {
    user: UserId,
    secret: SecretString,
}

impl UndoCode {
    pub(super) fn make(user: UserId, random: [u8; SECRET_LENGTH]) -> Self {
        let secret: String = random.iter().map(|byte| char::from(ALPHABET[usize::from(byte % 32)])).collect();
        Self { user, secret: secret.into() }
    }

    pub(super) fn user(&self) -> UserId {
        self.user
    }

    /// Hash under which the code is stored. The code has too many bits to be recovered from the hash by guessing.
    pub(super) fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.text()).into()
    }

    /// The code as written in the text message, in groups of four characters.
    pub(super) fn text(&self) -> String {
        let mut id = Vec::new();
        let mut rest = self.user.0.unsigned_abs();
        while rest > 0 || id.is_empty() {
            id.push(ALPHABET[usize::try_from(rest % 32).unwrap_or_default()]);
            rest /= 32;
        }
        let id: String = id.iter().rev().copied().map(char::from).collect();
        let secret = self.secret.expose_secret();
        let groups = (0..SECRET_LENGTH).step_by(4).map(|at| &secret[at..at + 4]);
        groups.fold(id, |text, group| format!("{text}-{group}"))
    }

    /// Parses a code as typed: ignores case, spaces and dashes, and reads `O` as 0, and `I` and `L` as 1.
    fn parse(text: &str) -> Option<Self> {
        if text.len() > 64 {
            return None;
        }
        let digit = |character: char| match character.to_ascii_uppercase() {
            'O' => Some(b'0'),
            'I' | 'L' => Some(b'1'),
            other => u8::try_from(other).ok().filter(|byte| ALPHABET.contains(byte)),
        };
        let digits: Option<Vec<u8>> =
            text.chars().filter(|character| !matches!(character, ' ' | '-')).map(digit).collect();
        let digits = digits?;
        let (id, secret) = digits.split_at_checked(digits.len().checked_sub(SECRET_LENGTH)?)?;
        let value = |byte: &u8| ALPHABET.iter().position(|known| known == byte).and_then(|at| i64::try_from(at).ok());
        let user = id.iter().try_fold(0_i64, |sum, byte| sum.checked_mul(32)?.checked_add(value(byte)?))?;
        let secret = String::from_utf8(secret.to_vec()).ok()?;
        (user > 0).then(|| Self { user: UserId(user), secret: secret.into() })
    }
}

impl FromJson for UndoCode {
    const EXPECTED: &'static str = "must be the code from the text message";

    fn from_json(value: &Value) -> Option<Self> {
        value.as_str().and_then(Self::parse)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use time::macros::datetime;

    use super::*;

    #[test]
    fn proof_lasts_ten_minutes() {
        let then = datetime!(2026-11-20 15:00 UTC);
        assert!(is_recent(then, then + Duration::seconds(599)) && !is_recent(then, then + Duration::seconds(600)));
    }

    #[test]
    fn undo_code_parses_as_typed() {
        let code = UndoCode::make(UserId(42), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 30, 31]);
        assert_eq!(code.text(), "1A-0123-4567-89AB-CDYZ");
        for typed in ["1A-0123-4567-89AB-CDYZ", "la o123 4567 89ab cdyz", "IAOL23456789ABCDYZ"] {
            let read = UndoCode::parse(typed).expect(typed);
            assert_eq!((read.user(), read.hash()), (UserId(42), code.hash()), "{typed}");
        }
        for wrong in ["", "1A", "0123-4567-89AB-CDYZ", "1A-0123-4567-89AB-CDY!", "ü", &"Z".repeat(64)] {
            assert!(UndoCode::parse(wrong).is_none(), "{wrong}");
        }
        assert!(!format!("{code:?}").contains("0123"));
    }

    proptest! {
        #[test]
        fn made_undo_code_parses_back(user in 1..i64::MAX, random: [u8; SECRET_LENGTH]) {
            let code = UndoCode::make(UserId(user), random);
            let read = UndoCode::parse(&code.text()).expect("a code");
            prop_assert_eq!((read.user(), read.hash()), (code.user(), code.hash()));
        }

        #[test]
        fn parsing_never_panics(text in "\\PC{0,80}") {
            let _ = UndoCode::parse(&text);
        }
    }
}
