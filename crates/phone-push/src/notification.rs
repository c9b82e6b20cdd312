use std::time::Duration;

use serde::{Serialize, Serializer, ser::SerializeMap};
use time::OffsetDateTime;

/// Notification with its texts in the language of the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    pub title: String,
    pub body: String,
    /// Kind that the app reads, such as `result`.
    pub kind: &'static str,
    /// Path in the app.
    pub link: String,
    /// Name and value of the id in `data`: `event_id`, `league_id` or `room_id`.
    pub subject: Option<(&'static str, SubjectId)>,
    /// A later notification with the same key replaces this one on the device. At most 32 characters of `[a-z0-9-]`.
    pub collapse_key: String,
    pub high_priority: bool,
    /// Providers drop the notification if the device is offline until then.
    pub expires_at: OffsetDateTime,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubjectId {
    Number(i64),
    Text(String),
}

/// Result of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The provider accepted the notification.
    Taken,
    /// The provider did not process the notification. Try again, if it has not expired.
    Later {
        /// Delay requested by the provider, or until the next attempt is allowed.
        after: Option<Duration>,
        /// Whether the provider limited the rate, which calls for a longer backoff.
        limited: bool,
    },
    /// The request was sent and got no response. It must not be repeated.
    Unknown,
    /// The provider refused the notification for good.
    Refused {
        /// Error code of the provider, else the HTTP status.
        code: String,
    },
    /// The token is invalid, and its device must be removed.
    Gone {
        /// Time at which the provider found the token invalid. A device registered later has a new token and stays.
        since: Option<OffsetDateTime>,
    },
}

impl Outcome {
    /// Metric label.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Taken => "taken",
            Self::Later { .. } => "later",
            Self::Unknown => "unknown",
            Self::Refused { .. } => "refused",
            Self::Gone { .. } => "gone",
        }
    }

    pub(crate) const fn later(after: Option<Duration>) -> Self {
        Self::Later { after, limited: false }
    }
}

/// Value of the field `data` of the app: strings for FCM, and integers as such for APNs.
pub(crate) struct Data<'a> {
    pub(crate) notification: &'a Notification,
    pub(crate) strings_only: bool,
}

impl Data<'_> {
    pub(crate) fn serialize_into<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        map.serialize_entry("kind", self.notification.kind)?;
        match &self.notification.subject {
            Some((name, SubjectId::Number(id))) if self.strings_only => map.serialize_entry(name, &id.to_string())?,
            Some((name, SubjectId::Number(id))) => map.serialize_entry(name, id)?,
            Some((name, SubjectId::Text(id))) => map.serialize_entry(name, id)?,
            None => {}
        }
        map.serialize_entry("link", &self.notification.link)
    }
}

impl Serialize for Data<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.serialize_into(&mut map)?;
        map.end()
    }
}
