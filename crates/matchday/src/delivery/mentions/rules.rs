//! Keys of pushers and reports of the homeserver; no I/O.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use web::ids::UserId;

/// Number of users who are notified of one message.
const MOST_MENTIONED: usize = 10;

/// Secret part of a pusher's key.
pub(super) type Secret = [u8; 16];

/// Key of a user's pusher: contains the user id, by which the secret is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PushKey {
    pub(super) user: UserId,
    pub(super) secret: Secret,
}

impl PushKey {
    pub(super) fn to_text(self) -> String {
        URL_SAFE_NO_PAD.encode([&self.user.0.to_be_bytes()[..], &self.secret].concat())
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (user, secret) = bytes.split_at_checked(8)?;
        let user = i64::from_be_bytes(user.try_into().ok()?);
        Some(Self { user: UserId(user), secret: secret.try_into().ok()? })
    }
}

/// Body of a request to the push gateway.
#[derive(Deserialize)]
pub(super) struct Report {
    pub(super) notification: Reported,
}

/// An event, or without `event_id` only new counts of unread messages.
#[derive(Deserialize)]
pub(super) struct Reported {
    pub(super) event_id: Option<String>,
    pub(super) room_id: Option<String>,
    pub(super) room_name: Option<String>,
    pub(super) sender: Option<String>,
    /// Only the number of mentioned users is read. Not parsed with the report: a sender chooses the content freely, and
    /// the homeserver repeats a report that is refused.
    #[serde(default)]
    content: Option<Box<RawValue>>,
    pub(super) devices: Vec<Pusher>,
}

impl Reported {
    /// Whether the message mentions more users than are notified of one, or may do so because its content is not readable.
    pub(super) fn mentions_too_many(&self) -> bool {
        let Some(content) = &self.content else { return false };
        let Ok(content) = serde_json::from_str::<Value>(content.get()) else { return true };
        let mentioned = content.get("m.mentions").and_then(|mentions| mentions.get("user_ids"));
        mentioned.and_then(Value::as_array).is_some_and(|users| users.len() > MOST_MENTIONED)
    }
}

#[derive(Deserialize)]
pub(super) struct Pusher {
    pub(super) pushkey: String,
    #[serde(default)]
    pub(super) tweaks: Tweaks,
}

#[derive(Default, Deserialize)]
pub(super) struct Tweaks {
    #[serde(default)]
    pub(super) highlight: bool,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    proptest! {
        #[test]
        fn push_key_reads_back(user in 1..=i64::MAX, secret: [u8; 16]) {
            let key = PushKey { user: UserId(user), secret };
            prop_assert_eq!(PushKey::parse(&key.to_text()), Some(key));
        }

        #[test]
        fn only_lists_of_more_than_ten_users_are_too_many(number in 0_usize..40) {
            let reported = |content: Value| -> Reported {
                let report = json!({"content": content, "devices": []}).to_string();
                serde_json::from_str(&report).expect("a report")
            };
            let users: Vec<String> = (0..number).map(|user| format!("@{user}:s")).collect();
            let report = reported(json!({"m.mentions": {"user_ids": users}}));
            prop_assert_eq!(report.mentions_too_many(), number > 10);
            // A sender chooses the content freely.
            for content in [json!(null), json!([]), json!({"m.mentions": 5}), json!({"m.mentions": {"user_ids": "x"}})] {
                prop_assert!(!reported(content).mentions_too_many());
            }
        }

        #[test]
        fn nested_content_is_a_report_and_mentions_nobody_if_too_deep(depth in 1_usize..2_000) {
            let content = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
            let report: Reported =
                serde_json::from_str(&format!(r#"{{"content": {content}, "devices": []}}"#)).expect("a report");
            prop_assert_eq!(report.mentions_too_many(), depth > 127);
        }

        #[test]
        fn any_text_is_read_without_panic(text in "\\PC*") {
            let _ = PushKey::parse(&text);
        }
    }
}
