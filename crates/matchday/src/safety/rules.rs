//! What a report may hold; no I/O.

use serde_json::Value;

use crate::http::fields::FromJson;

/// Why something is reported: 1 to 500 characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason(String);

impl Reason {
    /// In the reporter's words.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromJson for Reason {
    const EXPECTED: &'static str = "must be a text of 1 to 500 characters";

    fn from_json(value: &Value) -> Option<Self> {
        let reason = value.as_str()?.trim();
        let fits = (1..=500).contains(&reason.chars().count()) && !reason.contains('\0');
        fits.then(|| Self(reason.to_owned()))
    }
}

/// The homeserver's id of a message, like `$Rqnc-F-dvnEYJTyHq_iKxU2bZ1CI92-kuZq3a5lr5Zg`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageId(String);

impl MessageId {
    /// As the homeserver says it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromJson for MessageId {
    const EXPECTED: &'static str = "must be the id of a message, which begins with $";

    fn from_json(value: &Value) -> Option<Self> {
        let id = value.as_str()?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':' | b'/' | b'+');
        let fits = id.strip_prefix('$').is_some_and(|rest| !rest.is_empty() && rest.bytes().all(plain));
        (fits && id.len() <= 255).then(|| Self(id.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reasons_and_message_ids() {
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
