//! Receipts: what a user needs to prove a prediction later, and its encoding as the leaf of a seal; no I/O.

use platform::random::{self, Random};
use scoring::{Confidence, Forecast, Pick, Score, Side};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;
use web::ids::MatchId;

/// Version of the encoding.
pub const VERSION: u8 = 1;

/// Length of an encoded leaf.
pub const LEAF_LENGTH: usize = 62;

/// First byte of the hashed data, which separates leaves from the other hashed values.
const LEAF_PREFIX: u8 = 0;

/// A SHA-256 hash, as lower-case hexadecimal text in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update(part);
        }
        Self(hasher.finalize().into())
    }

    /// Reads a stored hash.
    pub fn read(bytes: &[u8]) -> sqlx::Result<Self> {
        bytes.try_into().map(Self).map_err(|_| sqlx::Error::Decode("a stored hash is invalid".into()))
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex::encode(self.0))
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        let mut bytes = [0; 32];
        hex::decode_to_slice(&*text, &mut bytes).map_err(D::Error::custom)?;
        Ok(Self(bytes))
    }
}

/// Random bytes of a receipt: a salt or a pseudonym. The database type `uuid` stores them in 16 bytes; they have no
/// version and no other structure of a UUID.
pub(super) fn random_bytes(random: &dyn Random) -> Uuid {
    Uuid::from_bytes(random::bytes(random))
}

/// Timestamps of receipts and seals: always six fraction digits, in UTC.
pub mod timestamp {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _, ser::Error as _};
    use time::{
        OffsetDateTime, PrimitiveDateTime, UtcOffset, format_description::BorrowedFormatItem,
        macros::format_description,
    };

    const FORMAT: &[BorrowedFormatItem<'_>] =
        format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:6]Z");

    pub fn text(moment: OffsetDateTime) -> Result<String, time::error::Format> {
        moment.to_offset(UtcOffset::UTC).format(FORMAT)
    }

    /// Microseconds since 1970.
    pub fn micros(moment: OffsetDateTime) -> i64 {
        i64::try_from(moment.unix_timestamp_nanos().div_euclid(1_000)).unwrap_or(i64::MAX)
    }

    pub fn serialize<S: Serializer>(moment: &OffsetDateTime, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&text(*moment).map_err(S::Error::custom)?)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<OffsetDateTime, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        PrimitiveDateTime::parse(&text, FORMAT).map(PrimitiveDateTime::assume_utc).map_err(D::Error::custom)
    }
}

/// One revision of a prediction, with the random values that make its hash unguessable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Receipt {
    pub event: MatchId,
    /// Stands for the user in this tournament.
    pub pseudonym: Uuid,
    /// New for every revision.
    pub salt: Uuid,
    pub forecast: Forecast,
    pub revision: i32,
    /// Database time that was compared with the start of the match.
    pub accepted_at: OffsetDateTime,
}

impl Receipt {
    /// Canonical encoding. All integers are big-endian.
    pub fn leaf(&self) -> [u8; LEAF_LENGTH] {
        let (score, forecast) = (self.forecast.score(), self.forecast);
        let goals = |side: fn(Score) -> i16| score.map_or(0, |score| side(score).unsigned_abs()).to_be_bytes();
        let pick = match forecast.pick() {
            Pick::Home => 1,
            Pick::Draw => 2,
            Pick::Away => 3,
        };
        let advances = match forecast.advances() {
            None => 0,
            Some(Side::Home) => 1,
            Some(Side::Away) => 2,
        };
        let mut leaf = [0; LEAF_LENGTH];
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            leaf[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&[VERSION]);
        put(self.pseudonym.as_bytes());
        put(self.salt.as_bytes());
        put(&self.event.0.to_be_bytes());
        put(&[pick, u8::from(score.is_some())]);
        put(&goals(Score::home));
        put(&goals(Score::away));
        put(&[percent(forecast.confidence()), advances, u8::from(forecast.joker())]);
        put(&self.revision.to_be_bytes());
        put(&timestamp::micros(self.accepted_at).to_be_bytes());
        leaf
    }

    pub fn leaf_hash(&self) -> Hash {
        Hash::of(&[&[LEAF_PREFIX], &self.leaf()])
    }
}

fn percent(confidence: Confidence) -> u8 {
    u8::try_from(confidence.percent()).unwrap_or_default()
}

/// Everything that is needed to compute the hash of a prediction again. Keep it private until the match has started.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = PredictionReceipt)]
pub struct ReceiptItem {
    #[schema(example = 1)]
    version: u8,
    /// SHA-256 of the encoded prediction.
    #[schema(value_type = String, example = "a536d2645a3461b7af8ee713518f150af68ae8c2318cb9a870febdce5b9c597a")]
    leaf_hash: Hash,
    event_id: MatchId,
    /// Random value that stands for the caller in this tournament.
    #[schema(example = "a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0")]
    pseudonym: String,
    /// Random value, new for every revision.
    #[schema(example = "000102030405060708090a0b0c0d0e0f")]
    salt: String,
    prediction: Pick,
    #[schema(required)]
    score_prediction: Option<Score>,
    #[schema(value_type = i16, minimum = 0, maximum = 100, example = 75)]
    confidence: Confidence,
    #[schema(required)]
    advances: Option<Side>,
    joker: bool,
    /// 1 for the first submission, incremented by each replacement.
    #[schema(minimum = 1, example = 1)]
    revision: i32,
    /// Time at which the prediction was accepted, as compared with the start of the match.
    #[serde(with = "timestamp")]
    #[schema(example = "2026-11-20T14:31:07.123456Z")]
    accepted_at: OffsetDateTime,
}

impl From<Receipt> for ReceiptItem {
    fn from(receipt: Receipt) -> Self {
        Self {
            version: VERSION,
            leaf_hash: receipt.leaf_hash(),
            event_id: receipt.event,
            pseudonym: hex::encode(receipt.pseudonym.as_bytes()),
            salt: hex::encode(receipt.salt.as_bytes()),
            prediction: receipt.forecast.pick(),
            score_prediction: receipt.forecast.score(),
            confidence: receipt.forecast.confidence(),
            advances: receipt.forecast.advances(),
            joker: receipt.forecast.joker(),
            revision: receipt.revision,
            accepted_at: receipt.accepted_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use time::macros::datetime;

    use super::*;

    fn forecast(pick: Pick, score: Option<(i64, i64)>, confidence: i64) -> Forecast {
        let score = score.and_then(|(home, away)| Score::new(home, away));
        Forecast::new(pick, score, Confidence::new(confidence).expect("valid")).expect("no contradiction")
    }

    fn counting_from(first: u8) -> Uuid {
        Uuid::from_bytes(std::array::from_fn(|at| first + u8::try_from(at).expect("small")))
    }

    /// Receipts with their published encodings and hashes. Other implementations use the same examples.
    fn examples() -> [(Receipt, &'static str, &'static str); 3] {
        let event = MatchId(7);
        [
            (
                Receipt {
                    event,
                    pseudonym: Uuid::from_bytes([0xa0; 16]),
                    salt: counting_from(0),
                    forecast: forecast(Pick::Home, Some((2, 1)), 80),
                    revision: 1,
                    accepted_at: datetime!(2026-11-20 14:31:07.123456 UTC),
                },
                "01a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0000102030405060708090a0b0c0d0e0f000000000000000701010002000150000000000001000660b6183b6300",
                "a536d2645a3461b7af8ee713518f150af68ae8c2318cb9a870febdce5b9c597a",
            ),
            (
                Receipt {
                    event,
                    pseudonym: Uuid::from_bytes([0xa1; 16]),
                    salt: counting_from(0x10),
                    forecast: forecast(Pick::Draw, None, 0).with_advances(Some(Side::Away)).with_joker(true),
                    revision: 3,
                    accepted_at: datetime!(2026-11-20 14:59:59.999999 UTC),
                },
                "01a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1101112131415161718191a1b1c1d1e1f000000000000000702000000000000020100000003000660b67f84fbff",
                "c209907349400729dbcbdfe88f41d48b16f933c232a2ed5b89e1a1db2188ef10",
            ),
            (
                Receipt {
                    event,
                    pseudonym: Uuid::from_bytes([0xa2; 16]),
                    salt: counting_from(0x20),
                    forecast: forecast(Pick::Away, Some((0, 10)), 100),
                    revision: 2,
                    accepted_at: datetime!(2026-11-19 08:00 UTC),
                },
                "01a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2202122232425262728292a2b2c2d2e2f000000000000000703010000000a640000000000020006609c83a42000",
                "462980f83603ebad0795981ac4242544b30618398f8c99a4a64143df9c21938c",
            ),
        ]
    }

    #[test]
    fn examples_have_published_leaves_and_hashes() {
        for (receipt, leaf, hash) in examples() {
            assert_eq!(hex::encode(receipt.leaf()), leaf);
            assert_eq!(hex::encode(receipt.leaf_hash().0), hash);
        }
    }

    #[test]
    fn receipt_is_shown_with_six_fraction_digits() {
        let [.., (receipt, ..)] = examples();
        let shown = serde_json::to_value(ReceiptItem::from(receipt)).expect("JSON");
        assert_eq!(shown["accepted_at"], "2026-11-19T08:00:00.000000Z");
        assert_eq!(shown["salt"], "202122232425262728292a2b2c2d2e2f");
        assert_eq!(shown["leaf_hash"], "462980f83603ebad0795981ac4242544b30618398f8c99a4a64143df9c21938c");
        assert_eq!(shown["score_prediction"], serde_json::json!({"home": 0, "away": 10}));
    }

    proptest! {
        #[test]
        fn every_field_changes_the_leaf(
            home in 0_i64..1000, away in 0_i64..1000, confidence in 0_i64..=100, revision in 1_i32.., micros in 0_i64..1 << 52,
            other in 0_usize..9,
        ) {
            let accepted_at = OffsetDateTime::UNIX_EPOCH + time::Duration::microseconds(micros);
            let pick = Pick::of(i32::try_from(home).expect("small"), i32::try_from(away).expect("small"));
            let made = forecast(pick, Some((home, away)), confidence);
            let receipt = Receipt {
                event: MatchId(9), pseudonym: Uuid::from_bytes([1; 16]), salt: Uuid::from_bytes([2; 16]), forecast: made,
                revision, accepted_at,
            };
            let changed = match other {
                0 => Receipt { event: MatchId(10), ..receipt },
                1 => Receipt { pseudonym: Uuid::from_bytes([3; 16]), ..receipt },
                2 => Receipt { salt: Uuid::from_bytes([3; 16]), ..receipt },
                3 => Receipt { forecast: forecast(pick, None, confidence), ..receipt },
                4 => Receipt { forecast: forecast(pick, Some((home, away)), (confidence + 1) % 101), ..receipt },
                5 => Receipt { forecast: made.with_advances(Some(Side::Home)), ..receipt },
                6 => Receipt { forecast: made.with_joker(true), ..receipt },
                7 => Receipt { revision: revision.wrapping_add(1), ..receipt },
                _ => Receipt { accepted_at: accepted_at + time::Duration::microseconds(1), ..receipt },
            };
            prop_assert_ne!(receipt.leaf_hash(), changed.leaf_hash());
        }
    }
}
