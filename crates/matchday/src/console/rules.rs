//! Who an operator is, and what proves that a form is ours; no I/O.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use time::OffsetDateTime;

/// The longest name of an operator.
const LONGEST_NAME: usize = 200;
/// The longest reason.
const LONGEST_REASON: usize = 500;

/// What forms are marked with. It is made from a secret that all processes share, so that any of them knows the forms of
/// the others.
#[derive(Clone)]
pub(super) struct FormKey(Hmac<Sha256>);

impl FormKey {
    pub(super) fn new(secret: &str) -> Self {
        // HMAC takes a key of any length, so it cannot fail.
        let mut own = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("a key of any length");
        own.update(b"matchday console forms");
        Self(Hmac::new_from_slice(&own.finalize().into_bytes()).expect("a key of any length"))
    }

    /// The mark of an operator's forms, today.
    pub(super) fn mark(&self, operator: &str, now: OffsetDateTime) -> String {
        hex::encode(self.of_day(operator, day(now)).finalize().into_bytes())
    }

    /// Whether a form is this operator's, of today or yesterday: who works past midnight need not begin again.
    pub(super) fn knows(&self, mark: &str, operator: &str, now: OffsetDateTime) -> bool {
        let Ok(mark) = hex::decode(mark) else { return false };
        [0, 1].into_iter().any(|ago| self.of_day(operator, day(now) - ago).verify_slice(&mark).is_ok())
    }

    fn of_day(&self, operator: &str, day: i64) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        mac.update(&day.to_be_bytes());
        mac.update(operator.as_bytes());
        mac
    }
}

fn day(now: OffsetDateTime) -> i64 {
    now.unix_timestamp().div_euclid(86_400)
}

/// What a proxy calls an operator. Said twice, nobody knows which one the proxy said and which one was let through.
pub(super) fn operator_name<'a>(said: impl IntoIterator<Item = &'a [u8]>) -> Option<String> {
    let mut said = said.into_iter();
    let (first, second) = (said.next()?, said.next());
    let name = std::str::from_utf8(first).ok()?.trim();
    let fits = (1..=LONGEST_NAME).contains(&name.chars().count()) && !name.chars().any(char::is_control);
    (fits && second.is_none()).then(|| name.to_owned())
}

/// Why somebody does something: a few words on one line.
pub(super) fn reason(text: &str) -> Option<&str> {
    let text = text.trim();
    let fits = (1..=LONGEST_REASON).contains(&text.chars().count()) && !text.chars().any(char::is_control);
    fits.then_some(text)
}

/// What a reported message says, for people: its text, or all of it where it has none.
pub(super) fn said(content: &str) -> String {
    let value: Option<serde_json::Value> = serde_json::from_str(content).ok();
    let body = value.as_ref().and_then(|value| value["body"].as_str());
    body.unwrap_or(content).to_owned()
}

#[cfg(test)]
mod tests {
    use time::{Duration, macros::datetime};

    use super::*;

    #[test]
    fn a_form_is_known_by_its_operator_until_the_end_of_the_next_day() {
        let (key, now) = (FormKey::new("00ff"), datetime!(2026-11-20 23:59 UTC));
        let mark = key.mark("ola", now);
        assert!(key.knows(&mark, "ola", now) && key.knows(&mark, "ola", now + Duration::minutes(2)));
        assert!(!key.knows(&mark, "ola", now + Duration::hours(25)), "two days later");
        assert!(!key.knows(&mark, "ida", now) && !FormKey::new("00fe").knows(&mark, "ola", now));
        assert!(FormKey::new("00ff").knows(&mark, "ola", now), "another process");
        for nonsense in ["", "zz", &mark[..62], &mark.replace('a', "b")] {
            assert!(nonsense == mark || !key.knows(nonsense, "ola", now), "{nonsense}");
        }
    }

    #[test]
    fn an_operator_is_named_once_and_plainly() {
        let name = |said: &[&str]| operator_name(said.iter().map(|text| text.as_bytes()));
        assert_eq!(name(&[" ola@example.org "]).as_deref(), Some("ola@example.org"));
        assert_eq!(name(&["Żaneta"]).as_deref(), Some("Żaneta"));
        for nobody in [&[][..], &[""], &[" "], &["ola", "ida"], &["o\u{7}la"], &["x".repeat(201).as_str()]] {
            assert_eq!(name(nobody), None, "{nobody:?}");
        }
        assert_eq!(operator_name([&b"\xff"[..]]), None);
    }

    #[test]
    fn messages_are_shown_as_people_wrote_them() {
        assert_eq!(said(r#"{"body": "hi <b>", "msgtype": "m.text"}"#), "hi <b>");
        assert_eq!(said(r#"{"ciphertext": "x"}"#), r#"{"ciphertext": "x"}"#);
        assert_eq!(said("cut o"), "cut o");
    }
}
