//! Timestamps as clients get them: RFC 3339 in UTC, always with three fraction digits and `Z`, like
//! `2026-11-20T15:00:00.000Z`. Many parsers accept either no fraction or a fraction, so the form never varies.
//!
//! For `#[serde(with = "platform::timestamp")]`. Shorter times are cut, not rounded, so a time never moves into the future.
//! Receipts and seals have six digits, which their hashes cover.

use serde::{Deserializer, Serializer, ser::Error as _};
use time::{
    OffsetDateTime, UtcOffset, error::Format, format_description::BorrowedFormatItem, macros::format_description,
};

const FORMAT: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");

/// Returns the text of a timestamp. Fails only for a year after 9999.
pub fn text(at: OffsetDateTime) -> Result<String, Format> {
    at.to_offset(UtcOffset::UTC).format(FORMAT)
}

pub fn serialize<S: Serializer>(at: &OffsetDateTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&text(*at).map_err(S::Error::custom)?)
}

/// Accepts any timestamp of RFC 3339.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<OffsetDateTime, D::Error> {
    time::serde::rfc3339::deserialize(deserializer)
}

/// For `Option<OffsetDateTime>`; `None` is `null`.
pub mod option {
    use super::{OffsetDateTime, Serializer};

    pub fn serialize<S: Serializer>(at: &Option<OffsetDateTime>, serializer: S) -> Result<S::Ok, S::Error> {
        match at {
            Some(at) => super::serialize(at, serializer),
            None => serializer.serialize_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn every_timestamp_has_three_digits_in_utc() {
        for (at, expected) in [
            (datetime!(2026-11-20 15:00:00 UTC), "2026-11-20T15:00:00.000Z"),
            (datetime!(2026-11-20 15:00:00.5 UTC), "2026-11-20T15:00:00.500Z"),
            (datetime!(2026-11-20 15:00:00.123_999 UTC), "2026-11-20T15:00:00.123Z"),
            (datetime!(2026-11-20 17:00:00.999_999_999 +2), "2026-11-20T15:00:00.999Z"),
        ] {
            assert_eq!(text(at).expect("a text"), expected);
        }
    }
}
