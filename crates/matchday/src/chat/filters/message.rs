//! Texts of pushed messages; no I/O.

use std::fmt;

use serde::Deserialize;
use serde_json::Value;

use super::text::texts_of_html;

/// Content field with the permission of a moderator to send this text.
pub(super) const PASS: &str = "app.matchday.released";

/// Limit for Matrix ids, in bytes.
const ID_BYTES: usize = 255;

/// A message whose text is readable for the service.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ChatMessage {
    pub(super) event_id: String,
    pub(super) matrix_room: String,
    /// Matrix user id.
    pub(super) sender: String,
    /// Text that a client without formatting shows. For an edit, the new one.
    pub(super) body: String,
    /// Other texts that a client may show: formatted text, file name, and the text before or after an edit.
    pub(super) others: Vec<String>,
    pub(super) pass: Option<String>,
}

impl fmt::Debug for ChatMessage {
    // Not derived, so that no log line contains the text of a message.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatMessage").field("event_id", &self.event_id).finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Raw {
    event_id: String,
    room_id: String,
    #[serde(rename = "type")]
    kind: String,
    sender: String,
    state_key: Option<String>,
    #[serde(default)]
    content: Value,
}

impl ChatMessage {
    /// Parses a pushed event. `None` if it is not a message, or if it is encrypted or redacted.
    pub(crate) fn read(raw: &str) -> Option<Self> {
        // Most other events are not parsed at all.
        if !raw.contains("m.room.message") {
            return None;
        }
        let Raw { event_id, room_id, kind, sender, state_key, content } = serde_json::from_str(raw).ok()?;
        let is_message = kind == "m.room.message" && state_key.is_none();
        let fits = [&event_id, &room_id, &sender].iter().all(|id| !id.is_empty() && id.len() <= ID_BYTES);
        if !is_message || !fits {
            return None;
        }
        let new = content.get("m.new_content").filter(|new| new.is_object());
        let mut texts = new.map_or_else(Vec::new, texts);
        texts.extend(self::texts(&content));
        let mut others: Vec<String> = Vec::new();
        let mut texts = texts.into_iter().filter(|text| !text.trim().is_empty());
        let body = texts.next()?;
        for text in texts {
            // Spaces around a text, which formatted texts lack, make no other text of it.
            if std::iter::once(&body).chain(&others).all(|other| other.trim() != text.trim()) {
                others.push(text);
            }
        }
        let pass = content.get(PASS).and_then(Value::as_str).map(str::to_owned);
        Some(Self { event_id, matrix_room: room_id, sender, body, others, pass })
    }

    /// All texts, the body first.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.body).chain(&self.others).map(String::as_str)
    }
}

/// Texts of a message's content.
fn texts(content: &Value) -> Vec<String> {
    let text = |field: &str| content.get(field).and_then(Value::as_str);
    let plain = ["body", "filename"].into_iter().filter_map(text).map(str::to_owned);
    let formatted = text("formatted_body").map(texts_of_html);
    plain.chain(formatted.into_iter().flatten()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn read(content: &Value) -> Option<ChatMessage> {
        let event = json!({"event_id": "$1", "room_id": "!r:s", "type": "m.room.message", "sender": "@a:s", "content": content});
        ChatMessage::read(&event.to_string())
    }

    fn texts_of(content: &Value) -> Vec<String> {
        read(content).map(|message| message.texts().map(str::to_owned).collect()).unwrap_or_default()
    }

    #[test]
    fn all_visible_texts_are_read() {
        for kind in ["m.text", "m.emote", "m.notice"] {
            assert_eq!(texts_of(&json!({"msgtype": kind, "body": "one"})), ["one"]);
        }
        assert_eq!(texts_of(&json!({"msgtype": "m.text", "body": "one", "formatted_body": "<b>o</b>ne"})), ["one"]);
        assert_eq!(
            texts_of(&json!({"msgtype": "m.text", "body": "one", "formatted_body": "t<b>wo</b>"})),
            ["one", "two"]
        );
        assert_eq!(
            texts_of(&json!({"msgtype": "m.text", "body": " one ", "formatted_body": "<b>one</b> "})),
            [" one "]
        );
        assert_eq!(
            texts_of(&json!({"msgtype": "m.image", "body": "caption", "filename": "f.png"})),
            ["caption", "f.png"]
        );
        let edit = json!({"msgtype": "m.text", "body": "* new", "m.new_content": {"msgtype": "m.text", "body": "new"},
            "m.relates_to": {"rel_type": "m.replace", "event_id": "$0"}});
        assert_eq!(texts_of(&edit), ["new", "* new"]);
    }

    #[test]
    fn other_events_have_no_text() {
        assert_eq!(read(&json!({})), None, "redacted");
        assert_eq!(read(&json!({"msgtype": "m.text", "body": 5})), None);
        let state = json!({"event_id": "$1", "room_id": "!r:s", "type": "m.room.message", "sender": "@a:s", "state_key": "",
            "content": {"body": "x"}});
        assert_eq!(ChatMessage::read(&state.to_string()), None);
        let encrypted = json!({"event_id": "$1", "room_id": "!r:s", "type": "m.room.encrypted", "sender": "@a:s",
            "content": {"body": "m.room.message"}});
        assert_eq!(ChatMessage::read(&encrypted.to_string()), None);
    }

    #[test]
    fn debug_form_has_no_text() {
        let message = read(&json!({"msgtype": "m.text", "body": "secret"})).expect("a message");
        assert!(!format!("{message:?}").contains("secret"));
    }

    proptest! {
        #[test]
        fn no_event_causes_panic(raw in "m.room.message.*", body in any::<String>(), html in any::<String>()) {
            let _ = ChatMessage::read(&raw);
            let _ = read(&json!({"body": body, "formatted_body": html}));
        }
    }
}
