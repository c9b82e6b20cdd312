//! Parsing of JSON fields, and the values of receipts and seals. Anything missing, mistyped or of an unknown version is
//! [`Malformed`].

use std::fmt;

use scoring::{Confidence, Forecast, Pick, Score, Side};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::tree;

/// Only version of receipts, seals and bundles so far.
pub(crate) const VERSION: u64 = 1;

/// The input cannot be verified: a field is missing or mistyped, or a version is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub(crate) String);

/// A SHA-256 hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Hash(pub(crate) [u8; 32]);

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

/// Random bytes that stand for a user in one tournament.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Pseudonym(pub(crate) [u8; 16]);

impl fmt::Display for Pseudonym {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

/// A JSON object with named fields.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a> {
    object: &'a Map<String, Value>,
    /// What the object is, for messages.
    what: &'a str,
}

impl<'a> Fields<'a> {
    pub(crate) fn of(value: &'a Value, what: &'a str) -> Result<Self, Malformed> {
        let object = value.as_object().ok_or_else(|| Malformed(format!("the {what} is not an object")))?;
        Ok(Self { object, what })
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.object.contains_key(name)
    }

    /// First field that is neither the type of a line nor one of these.
    pub(crate) fn other_than(&self, names: &[&str]) -> Option<&'a str> {
        self.object.keys().map(String::as_str).find(|name| *name != "type" && !names.contains(name))
    }

    pub(crate) fn value(&self, name: &str) -> Result<&'a Value, Malformed> {
        self.object.get(name).ok_or_else(|| Malformed(format!("the {} has no field {name}", self.what)))
    }

    pub(crate) fn part(&self, name: &'a str) -> Result<Fields<'a>, Malformed> {
        Fields::of(self.value(name)?, name)
    }

    fn read<T>(&self, name: &str, expected: &str, read: impl FnOnce(&'a Value) -> Option<T>) -> Result<T, Malformed> {
        let value = self.value(name)?;
        read(value).ok_or_else(|| Malformed(format!("{name} of the {} is not {expected}", self.what)))
    }

    fn optional<T>(
        &self,
        name: &str,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, Malformed> {
        self.read(name, expected, |value| if value.is_null() { Some(None) } else { read(value).map(Some) })
    }

    pub(crate) fn text(&self, name: &str) -> Result<&'a str, Malformed> {
        self.read(name, "a string", Value::as_str)
    }

    pub(crate) fn array(&self, name: &str) -> Result<&'a [Value], Malformed> {
        self.read(name, "an array", |value| value.as_array().map(Vec::as_slice))
    }

    pub(crate) fn boolean(&self, name: &str) -> Result<bool, Malformed> {
        self.read(name, "a boolean", Value::as_bool)
    }

    pub(crate) fn number(&self, name: &str) -> Result<u64, Malformed> {
        self.read(name, "a whole number", Value::as_u64)
    }

    pub(crate) fn float(&self, name: &str) -> Result<f64, Malformed> {
        self.read(name, "a number", Value::as_f64)
    }

    pub(crate) fn signed(&self, name: &str) -> Result<i64, Malformed> {
        self.read(name, "a whole number", Value::as_i64)
    }

    pub(crate) fn small<T: TryFrom<u64>>(&self, name: &str) -> Result<T, Malformed> {
        self.read(name, "a number in its range", |value| T::try_from(value.as_u64()?).ok())
    }

    pub(crate) fn optional_goals(&self, name: &str) -> Result<Option<i32>, Malformed> {
        self.optional(name, "a score or null", |value| value.as_u64().and_then(|goals| i32::try_from(goals).ok()))
    }

    pub(crate) fn hash(&self, name: &str) -> Result<Hash, Malformed> {
        self.read(name, "64 lower-case hexadecimal digits", read_hash)
    }

    pub(crate) fn pseudonym(&self, name: &str) -> Result<Pseudonym, Malformed> {
        self.read(name, "32 lower-case hexadecimal digits", bytes).map(Pseudonym)
    }

    /// Microseconds since 1970 of a timestamp.
    pub(crate) fn time(&self, name: &str) -> Result<i64, Malformed> {
        self.read(name, "a timestamp like 2026-11-20T14:31:07.123456Z", |value| read_time(value.as_str()?))
    }

    pub(crate) fn version(&self) -> Result<u8, Malformed> {
        match self.number("version")? {
            VERSION => Ok(1),
            other => Err(Malformed(format!("the {} has the unknown version {other}", self.what))),
        }
    }

    pub(crate) fn side(&self, name: &str) -> Result<Option<Side>, Malformed> {
        self.optional(name, "home, away or null", |value| value.as_str()?.parse().ok())
    }
}

/// Bytes of lower-case hexadecimal digits.
fn bytes<const N: usize>(value: &Value) -> Option<[u8; N]> {
    let text = value.as_str()?;
    let is_lower = text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    let mut bytes = [0; N];
    (is_lower && hex::decode_to_slice(text, &mut bytes).is_ok()).then_some(bytes)
}

pub(crate) fn read_hash(value: &Value) -> Option<Hash> {
    bytes(value).map(Hash)
}

/// Parses `YYYY-MM-DDTHH:MM:SS.ffffffZ` to microseconds since 1970.
fn read_time(text: &str) -> Option<i64> {
    let pattern = b"dddd-dd-ddTdd:dd:dd.ddddddZ";
    let fits = |(&byte, &expected): (&u8, &u8)| if expected == b'd' { byte.is_ascii_digit() } else { byte == expected };
    if text.len() != pattern.len() || !text.as_bytes().iter().zip(pattern).all(fits) {
        return None;
    }
    let number = |from: usize, until: usize| text.get(from..until)?.parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second, micros) = (number(11, 13)?, number(14, 16)?, number(17, 19)?, number(20, 26)?);
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let days_in_month = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let most = *days_in_month.get(usize::try_from(month - 1).ok()?)?;
    if !(1..=most).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    // Years begin in March, so that the leap day is the last day of a year.
    let shifted = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (shifted.div_euclid(400), shifted.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468;
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000 + micros)
}

/// A prediction revision with the values that its hash covers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Receipt {
    pub(crate) leaf_hash: Hash,
    pub(crate) event: u64,
    pub(crate) pseudonym: Pseudonym,
    salt: [u8; 16],
    pick: Pick,
    score: Option<[u16; 2]>,
    confidence: Confidence,
    advances: Option<Side>,
    pub(crate) joker: bool,
    revision: u32,
    pub(crate) accepted_at: i64,
    version: u8,
}

impl Receipt {
    pub(crate) fn read(fields: Fields<'_>) -> Result<Self, Malformed> {
        let version = fields.version()?;
        let pick: Pick = fields.read("prediction", "home, draw or away", |value| value.as_str()?.parse().ok())?;
        let score = if fields.value("score_prediction")?.is_null() {
            None
        } else {
            let score = fields.part("score_prediction")?;
            Some([score.small("home")?, score.small("away")?])
        };
        Ok(Self {
            leaf_hash: fields.hash("leaf_hash")?,
            event: fields.number("event_id")?,
            pseudonym: fields.pseudonym("pseudonym")?,
            salt: fields.read("salt", "32 lower-case hexadecimal digits", bytes)?,
            pick,
            score,
            confidence: fields
                .read("confidence", "a number from 0 to 100", |value| Confidence::new(value.as_i64()?))?,
            advances: fields.side("advances")?,
            joker: fields.boolean("joker")?,
            revision: fields.small("revision")?,
            accepted_at: fields.time("accepted_at")?,
            version,
        })
    }

    /// Content for the computation of points; `None` if it contradicts itself, which no prediction of the service does.
    pub(crate) fn forecast(&self) -> Option<Forecast> {
        let score = match self.score {
            Some([home, away]) => Some(Score::new(home.into(), away.into())?),
            None => None,
        };
        let forecast = Forecast::new(self.pick, score, self.confidence)?;
        Some(forecast.with_advances(self.advances).with_joker(self.joker))
    }

    /// Hash that follows from the fields.
    pub(crate) fn computed_hash(&self) -> Hash {
        let mut leaf = Vec::with_capacity(62);
        leaf.push(self.version);
        leaf.extend(self.pseudonym.0);
        leaf.extend(self.salt);
        leaf.extend(self.event.to_be_bytes());
        leaf.push(match self.pick {
            Pick::Home => 1,
            Pick::Draw => 2,
            Pick::Away => 3,
        });
        match self.score {
            Some([home, away]) => {
                leaf.push(1);
                leaf.extend(home.to_be_bytes());
                leaf.extend(away.to_be_bytes());
            }
            None => leaf.extend([0; 5]),
        }
        // At most 100, so the second byte has it.
        leaf.push(self.confidence.percent().to_be_bytes()[1]);
        leaf.push(match self.advances {
            None => 0,
            Some(Side::Home) => 1,
            Some(Side::Away) => 2,
        });
        leaf.push(u8::from(self.joker));
        leaf.extend(self.revision.to_be_bytes());
        leaf.extend(self.accepted_at.to_be_bytes());
        tree::leaf_hash(&leaf)
    }
}

/// A seal over the predictions of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seal {
    pub(crate) sequence: u64,
    version: u8,
    pub(crate) event: u64,
    pub(crate) event_sequence: u32,
    pub(crate) count: u64,
    pub(crate) root: Hash,
    pub(crate) start_time: i64,
    pub(crate) sealed_at: i64,
    pub(crate) previous: Hash,
    pub(crate) hash: Hash,
}

/// Delay of a seal that is not worth a flag. Sealing takes seconds, and minutes only with millions of predictions.
const LATE_AFTER_MINUTES: i64 = 5;

/// Microseconds by which a correction of the clock can date a prediction after its seal. Less is flagged, more is refused.
pub(crate) const CLOCK_STEP: i64 = 60_000_000;

impl Seal {
    /// Whole minutes from the start of the match to the seal, if that is too long.
    pub(crate) fn minutes_late(&self) -> Option<i64> {
        let minutes = (self.sealed_at - self.start_time) / 60_000_000;
        (minutes >= LATE_AFTER_MINUTES).then_some(minutes)
    }

    pub(crate) fn read(fields: Fields<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            version: fields.version()?,
            sequence: fields.number("sequence")?,
            event: fields.number("event_id")?,
            event_sequence: fields.small("event_sequence")?,
            count: fields.number("count")?,
            root: fields.hash("root")?,
            start_time: fields.time("start_time")?,
            sealed_at: fields.time("sealed_at")?,
            previous: fields.hash("previous")?,
            hash: fields.hash("hash")?,
        })
    }

    /// Hash that follows from the fields.
    pub(crate) fn computed_hash(&self) -> Hash {
        let mut bytes = Vec::with_capacity(110);
        bytes.extend([0x02, self.version]);
        bytes.extend(self.sequence.to_be_bytes());
        bytes.extend(self.event.to_be_bytes());
        bytes.extend(self.event_sequence.to_be_bytes());
        bytes.extend(self.count.to_be_bytes());
        bytes.extend(self.root.0);
        bytes.extend(self.start_time.to_be_bytes());
        bytes.extend(self.sealed_at.to_be_bytes());
        bytes.extend(self.previous.0);
        Hash(Sha256::digest(&bytes).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_parsed_exactly() {
        for (text, expected) in [
            ("2026-11-20T14:31:07.123456Z", Some(1_795_185_067_123_456)),
            ("1970-01-01T00:00:00.000000Z", Some(0)),
            ("1969-12-31T23:59:59.999999Z", Some(-1)),
            ("2024-02-29T00:00:00.000000Z", Some(1_709_164_800_000_000)),
            ("2023-02-29T00:00:00.000000Z", None),
            ("2026-13-01T00:00:00.000000Z", None),
            ("2026-11-20T24:00:00.000000Z", None),
            ("2026-11-20T14:31:07.123Z", None),
            ("2026-11-20T14:31:07.123456+00:00", None),
            ("2026-11-20 14:31:07.123456Z", None),
        ] {
            assert_eq!(read_time(text), expected, "{text}");
        }
    }

    #[test]
    fn only_lower_case_hashes_of_full_length_are_read() {
        let read = |text: &str| read_hash(&Value::from(text)).is_some();
        assert!(read(&"0a".repeat(32)));
        assert!(!read(&"0A".repeat(32)) && !read(&"0a".repeat(31)) && !read(&"0g".repeat(32)) && !read(""));
    }
}
