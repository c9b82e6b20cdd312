//! Validation of reports, and the duration of restrictions.

use serde_json::Value;
use time::OffsetDateTime;
use web::fields::FromJson;

/// Reason of a report: 1 to 500 characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason(String);

impl Reason {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromJson for Reason {
    const EXPECTED: &'static str = "must be a string of 1 to 500 characters";

    fn from_json(value: &Value) -> Option<Self> {
        let reason = value.as_str()?.trim();
        let fits = (1..=500).contains(&reason.chars().count()) && !reason.contains('\0');
        fits.then(|| Self(reason.to_owned()))
    }
}

/// The homeserver's id of a message, for example `$Rqnc-F-dvnEYJTyHq_iKxU2bZ1CI92-kuZq3a5lr5Zg`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageId(String);

impl MessageId {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromJson for MessageId {
    const EXPECTED: &'static str = "must be a message id, which starts with $";

    fn from_json(value: &Value) -> Option<Self> {
        let id = value.as_str()?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':' | b'/' | b'+');
        let fits = id.strip_prefix('$').is_some_and(|rest| !rest.is_empty() && rest.bytes().all(plain));
        (fits && id.len() <= 255).then(|| Self(id.to_owned()))
    }
}

/// Longest ban or mute that has an end.
pub const LONGEST: time::Duration = time::Duration::days(3_650);
/// Shortest ban or mute that has an end.
pub const SHORTEST: time::Duration = time::Duration::minutes(1);

/// End of a restriction of this length, in whole seconds. Returns `None` if the length is out of range.
pub(super) fn end(now: OffsetDateTime, length: std::time::Duration) -> Option<OffsetDateTime> {
    let length = time::Duration::try_from(length).ok().filter(|length| (SHORTEST..=LONGEST).contains(length))?;
    (now + length).replace_nanosecond(0).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use time::macros::datetime;

    use super::*;

    #[test]
    fn restrictions_last_a_minute_to_ten_years() {
        let (now, seconds) = (datetime!(2026-11-20 15:00:00.25 UTC), std::time::Duration::from_secs);
        assert_eq!(end(now, seconds(7 * 86_400)), Some(datetime!(2026-11-27 15:00 UTC)));
        assert_eq!(end(now, seconds(60)), Some(datetime!(2026-11-20 15:01 UTC)));
        for length in [seconds(59), seconds(3_650 * 86_400 + 1), std::time::Duration::MAX] {
            assert_eq!(end(now, length), None, "{length:?}");
        }
    }

    #[test]
    fn reasons_and_message_ids_are_validated() {
        for (reason, valid) in
            [(json!("spam"), true), (json!(" "), false), (json!("x".repeat(501)), false), (json!(1), false)]
        {
            assert_eq!(Reason::from_json(&reason).is_some(), valid, "{reason}");
        }
        for (id, valid) in [
            (json!("$Rqnc-F-dvnEYJTyHq_iKxU2bZ1CI92"), true),
            (json!("$15:example.org"), true),
            (json!("$"), false),
            (json!("Rqnc"), false),
            (json!("$a b"), false),
            (json!("$a\u{0}"), false),
            (json!("$../../x?"), false),
            (json!(format!("${}", "a".repeat(255))), false),
        ] {
            assert_eq!(MessageId::from_json(&id).is_some(), valid, "{id}");
        }
    }
}
