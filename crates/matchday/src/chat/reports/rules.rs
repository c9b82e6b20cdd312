//! Validation of reports, resolutions, claims and the figures of the queue; no I/O.

use std::str::FromStr;

use serde_json::Value;
use time::{Duration, OffsetDateTime};
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

/// Result of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    NoViolation,
    MessageRemoved,
    SenderMuted,
    SenderBanned,
    /// Another report covers the same incident.
    Duplicate,
}

impl Resolution {
    pub const ALL: [Self; 5] =
        [Self::NoViolation, Self::MessageRemoved, Self::SenderMuted, Self::SenderBanned, Self::Duplicate];

    /// Name in the database, on the command line and in the audit log.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoViolation => "no_violation",
            Self::MessageRemoved => "message_removed",
            Self::SenderMuted => "sender_muted",
            Self::SenderBanned => "sender_banned",
            Self::Duplicate => "duplicate",
        }
    }
}

impl FromStr for Resolution {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let names = || Self::ALL.map(Self::name).join(", ");
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| format!("must be one of {}", names()))
    }
}

/// Text of an operator to the reporter: 1 to 1,000 characters. Line feeds are allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReporterAnswer(String);

impl ReporterAnswer {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ReporterAnswer {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        // Browsers send line breaks of a form as two characters.
        let text = text.trim().replace("\r\n", "\n");
        let fits = (1..=1_000).contains(&text.chars().count()) && !text.chars().any(|c| c.is_control() && c != '\n');
        if fits { Ok(Self(text)) } else { Err("must be a text of 1 to 1000 characters") }
    }
}

/// An operator's claim on a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub by: String,
    pub until: OffsetDateTime,
}

impl Claim {
    /// Whether the claim has not expired.
    pub fn is_held(&self, now: OffsetDateTime) -> bool {
        now < self.until
    }

    /// Whether another operator holds the claim, so that this one must take it over.
    pub fn excludes(&self, operator: &str, now: OffsetDateTime) -> bool {
        self.is_held(now) && self.by != operator
    }
}

/// Time within which app stores expect a report to be handled.
pub const IN_TIME: Duration = Duration::DAY;

/// Figures of the queue. Times to resolution cover reports closed in the last seven days.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    pub open: i64,
    /// Time of the oldest open report.
    pub oldest: Option<OffsetDateTime>,
    /// Number of reports closed in the last seven days.
    pub closed: i64,
    pub median: Option<Duration>,
    pub p95: Option<Duration>,
    /// Share of the reports that were closed within [`IN_TIME`]. Open reports that are older count as not in time.
    pub in_time: Option<f64>,
}

/// Computes the figures from the times to resolution and the number of open reports older than [`IN_TIME`].
pub(super) fn figures(open: i64, oldest: Option<OffsetDateTime>, overdue: i64, mut took: Vec<Duration>) -> Figures {
    took.sort_unstable();
    let in_time = took.partition_point(|took| *took <= IN_TIME);
    let all = i64::try_from(took.len()).unwrap_or(i64::MAX).saturating_add(overdue);
    #[expect(clippy::cast_precision_loss, reason = "numbers of reports are far below 2^52")]
    let share = (all > 0).then(|| in_time as f64 / all as f64);
    Figures {
        open,
        oldest,
        closed: i64::try_from(took.len()).unwrap_or(i64::MAX),
        median: percentile(&took, 50),
        p95: percentile(&took, 95),
        in_time: share,
    }
}

/// Returns the percentile of sorted values by nearest rank: the smallest value that is not below `percent` of them.
fn percentile<T: Copy>(sorted: &[T], percent: usize) -> Option<T> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};
    use serde_json::json;
    use time::macros::datetime;

    use super::*;

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

    #[test]
    fn answers_and_resolutions_are_validated() {
        assert_eq!(" One.\r\nTwo. ".parse::<ReporterAnswer>().expect("valid").as_str(), "One.\nTwo.");
        for text in ["", " \n ", "a\u{7}b", "a\u{0}b", &"x".repeat(1_001)] {
            assert!(text.parse::<ReporterAnswer>().is_err(), "{text:?}");
        }
        for kind in Resolution::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        let refused = "banned".parse::<Resolution>().expect_err("unknown");
        assert!(refused.contains("sender_banned"), "{refused}");
    }

    #[test]
    fn overdue_open_reports_count_as_late() {
        let took = vec![Duration::hours(1), Duration::DAY, Duration::DAY + Duration::SECOND];
        let figures = figures(5, None, 1, took);
        assert_eq!((figures.open, figures.closed, figures.in_time), (5, 3, Some(0.5)));
        assert_eq!((figures.median, figures.p95), (Some(Duration::DAY), Some(Duration::DAY + Duration::SECOND)));
        assert_eq!(super::figures(0, None, 0, Vec::new()).in_time, None);
        assert_eq!(super::figures(1, None, 1, Vec::new()).in_time, Some(0.0));
    }

    proptest! {
        #[test]
        fn claim_excludes_others_until_its_end(length in 1_i64..100_000, at in -100_000_i64..200_000) {
            let start = datetime!(2026-11-20 15:00 UTC);
            let claim = Claim { by: "ola".to_owned(), until: start + Duration::seconds(length) };
            let now = start + Duration::seconds(at);
            prop_assert_eq!(claim.is_held(now), at < length);
            prop_assert_eq!(claim.excludes("ida", now), at < length);
            prop_assert!(!claim.excludes("ola", now));
        }

        #[test]
        fn percentile_is_smallest_value_covering_share(mut values in vec(0_u32..1_000, 1..200), percent in 1_usize..=100) {
            values.sort_unstable();
            let found = percentile(&values, percent).expect("a value");
            let covered = |limit: u32| values.iter().filter(|value| **value <= limit).count() * 100;
            prop_assert!(covered(found) >= percent * values.len());
            let below = values.iter().copied().filter(|value| *value < found).max();
            prop_assert!(below.is_none_or(|below| covered(below) < percent * values.len()));
        }
    }
}
