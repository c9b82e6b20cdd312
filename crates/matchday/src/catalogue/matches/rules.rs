//! Match states and the order of the match list; no I/O.

use std::{fmt, str::FromStr};

use scoring::{Multiplier, Outcome, Side};
use serde::{Deserialize, Serialize};
use time::{Date, Duration, OffsetDateTime, Time, macros::datetime};
use utoipa::ToSchema;
use web::fields::{FromJson, FromQuery, whole_number};

/// Detailed state of a match. The API shows three states as `status` and adds this one as `status_detail`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "snake_case")]
#[schema(as = EventStatusDetail)]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum Status {
    /// Will be played at the announced time.
    Scheduled,
    Live,
    /// Played to the end.
    Finished,
    /// Will be played at a time that is not known yet.
    Postponed,
    /// Interrupted and expected to resume.
    Suspended,
    /// Stopped and will not resume.
    Abandoned,
    /// Will not be played.
    Cancelled,
    /// Decided without being played to the end.
    Awarded,
}

/// The three states that the API shows, in list order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = EventStatus)]
pub enum PublicStatus {
    /// In play or interrupted.
    Live,
    /// Upcoming, postponed or cancelled.
    Scheduled,
    /// Finished, abandoned or awarded.
    Finished,
}

impl Status {
    pub const ALL: [Self; 8] = [
        Self::Scheduled,
        Self::Live,
        Self::Finished,
        Self::Postponed,
        Self::Suspended,
        Self::Abandoned,
        Self::Cancelled,
        Self::Awarded,
    ];

    /// Name used in the database and in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Live => "live",
            Self::Finished => "finished",
            Self::Postponed => "postponed",
            Self::Suspended => "suspended",
            Self::Abandoned => "abandoned",
            Self::Cancelled => "cancelled",
            Self::Awarded => "awarded",
        }
    }

    /// Returns the state that the API shows.
    pub fn public(self) -> PublicStatus {
        match self {
            Self::Live | Self::Suspended => PublicStatus::Live,
            Self::Scheduled | Self::Postponed | Self::Cancelled => PublicStatus::Scheduled,
            Self::Finished | Self::Abandoned | Self::Awarded => PublicStatus::Finished,
        }
    }

    /// Returns true if both scores are required.
    pub fn needs_scores(self) -> bool {
        matches!(self, Self::Finished | Self::Awarded)
    }

    /// Returns true if a score is not allowed yet.
    pub fn precedes_scores(self) -> bool {
        matches!(self, Self::Scheduled | Self::Postponed)
    }

    /// Returns true if the team that advanced may be known.
    pub fn may_have_advanced(self) -> bool {
        matches!(self, Self::Finished | Self::Awarded)
    }

    /// Whether a match with this start accepts predictions, as the SQL function `accepts_predictions` decides.
    pub fn accepts_predictions(self, start_time: OffsetDateTime, now: OffsetDateTime) -> bool {
        self == Self::Scheduled && start_time > now
    }

    /// Whether a match with this start is closed for good, unless it is moved: it is not going to be sealed while it is
    /// open, postponed or cancelled.
    pub fn is_closed(self, start_time: OffsetDateTime, now: OffsetDateTime) -> bool {
        match self {
            Self::Scheduled => start_time <= now,
            Self::Live | Self::Suspended | Self::Finished | Self::Abandoned | Self::Awarded => true,
            Self::Postponed | Self::Cancelled => false,
        }
    }

    /// Returns the outcome that predictions are scored against.
    pub fn outcome(self, scores: Option<(i32, i32)>, advanced: Option<Side>) -> Outcome {
        match (self, scores) {
            (Self::Finished, Some((home, away))) => Outcome::Result { home, away, advanced },
            (Self::Abandoned | Self::Cancelled | Self::Awarded, _) => Outcome::Void,
            _ => Outcome::Open,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Place of a match in its tournament, and the details of the match that points depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// Orders the rounds of the tournament, from 1 to 999.
    pub round: Option<i16>,
    /// Slug of the stage, as in `group` or `final`.
    pub stage: Option<String>,
    /// Factor for all points of the match.
    pub multiplier: Multiplier,
    /// Whether one of the teams advances.
    pub is_knockout: bool,
    /// Team that advanced; `None` until it is known.
    pub advanced: Option<Side>,
}

/// Error for a name that is none of the eight states.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a match status")]
pub struct UnknownStatus(String);

impl FromStr for Status {
    type Err = UnknownStatus;

    fn from_str(name: &str) -> Result<Self, UnknownStatus> {
        Self::ALL.into_iter().find(|status| status.name() == name).ok_or_else(|| UnknownStatus(name.to_owned()))
    }
}

impl TryFrom<String> for Status {
    type Error = UnknownStatus;

    fn try_from(name: String) -> Result<Self, UnknownStatus> {
        name.parse()
    }
}

impl PublicStatus {
    /// Value of the column `events.phase`.
    pub fn phase(self) -> i16 {
        match self {
            Self::Live => 0,
            Self::Scheduled => 1,
            Self::Finished => 2,
        }
    }
}

/// A match that has not started this long after its kick-off is no longer upcoming.
const LATE_START: Duration = Duration::hours(3);

/// All start times are between `FIRST` and `LAST`.
const FIRST: OffsetDateTime = datetime!(0001-01-01 00:00 UTC);
const LAST: OffsetDateTime = datetime!(9999-12-31 23:59:59.999999 UTC);

/// Sections of the match list, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Live matches, latest start first.
    Live,
    /// Matches that can still be played, earliest start first.
    Upcoming,
    /// Finished, cancelled, long-postponed and never-started matches, latest start first.
    Rest,
}

impl Section {
    /// Position of the section in the list.
    pub fn rank(self) -> i16 {
        match self {
            Self::Live => 0,
            Self::Upcoming => 1,
            Self::Rest => 2,
        }
    }

    /// Returns true if the earliest start comes first.
    pub fn is_ascending(self) -> bool {
        self == Self::Upcoming
    }
}

/// Matches of one status that start in `since..until`. A section of the list is a merge of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Determines the position and the sort direction of the run.
    pub section: Section,
    pub status: Status,
    /// First start time in the run.
    pub since: OffsetDateTime,
    /// First start time after the run.
    pub until: OffsetDateTime,
}

/// Returns the runs that make up the match list at this moment. Every match that passes the filters is in exactly one
/// run.
pub fn runs(now: OffsetDateTime, status: Option<PublicStatus>, date: Option<Date>) -> Vec<Run> {
    let (first, last) = match date {
        Some(date) => day(date),
        None => (FIRST, LAST),
    };
    // Start times are whole microseconds, and a match that started exactly three hours ago is not upcoming.
    let upcoming = now.checked_sub(LATE_START).unwrap_or(FIRST) + Duration::MICROSECOND;
    let wanted = Status::ALL.into_iter().filter(|&each| status.is_none_or(|status| each.public() == status));
    let runs = wanted.flat_map(|status| match status {
        Status::Live | Status::Suspended => vec![(Section::Live, status, FIRST, LAST)],
        Status::Scheduled | Status::Postponed => {
            vec![(Section::Upcoming, status, upcoming, LAST), (Section::Rest, status, FIRST, upcoming)]
        }
        Status::Finished | Status::Abandoned | Status::Awarded | Status::Cancelled => {
            vec![(Section::Rest, status, FIRST, LAST)]
        }
    });
    runs.map(|(section, status, since, until)| Run { section, status, since: since.max(first), until: until.min(last) })
        .filter(|run| run.since < run.until)
        .collect()
}

/// Returns the first moment of a UTC day, and the first moment after it.
pub fn day(date: Date) -> (OffsetDateTime, OffsetDateTime) {
    let begins = date.with_time(Time::MIDNIGHT).assume_utc();
    (begins, begins.checked_add(Duration::DAY).unwrap_or(LAST))
}

/// Number of a round, from 1 to 999.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundNumber(pub i16);

impl FromJson for RoundNumber {
    const EXPECTED: &'static str = "must be a whole number from 1 to 999";

    fn from_json(value: &serde_json::Value) -> Option<Self> {
        i16::try_from(whole_number(value)?).ok().filter(|round| (1..=999).contains(round)).map(Self)
    }
}

impl FromQuery for RoundNumber {
    const EXPECTED: &'static str = <Self as FromJson>::EXPECTED;

    fn from_query(text: &str) -> Option<Self> {
        text.parse().ok().filter(|round| (1..=999).contains(round)).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn a_status() -> impl Strategy<Value = Status> {
        prop::sample::select(&Status::ALL[..])
    }

    fn a_filter() -> impl Strategy<Value = Option<PublicStatus>> {
        prop::option::of(a_status().prop_map(Status::public))
    }

    proptest! {
        #[test]
        fn each_match_is_in_one_run_of_its_section(
            status in a_status(), filter in a_filter(), by_date in any::<bool>(),
            offset in prop_oneof![-4_i64..=4, -2_000_000_000_000..=2_000_000_000_000_i64],
        ) {
            let now = datetime!(2026-11-20 15:00 UTC);
            // Around the boundary, and 23 days to either side of it.
            let start = now - LATE_START + Duration::microseconds(offset);
            let date = by_date.then(|| start.date());
            let found: Vec<Section> = runs(now, filter, date)
                .into_iter()
                .filter(|run| run.status == status && run.since <= start && start < run.until)
                .map(|run| run.section)
                .collect();
            let is_open = matches!(status, Status::Scheduled | Status::Postponed);
            let section = match status.public() {
                PublicStatus::Live => Section::Live,
                _ if is_open && offset > 0 => Section::Upcoming,
                _ => Section::Rest,
            };
            let expected: &[Section] =
                if filter.is_none_or(|filter| filter == status.public()) { &[section] } else { &[] };
            prop_assert_eq!(&*found, expected);
            let other_day = runs(now, filter, start.date().next_day());
            prop_assert!(other_day.iter().all(|run| start < run.since), "no match of another day");
        }
    }

    #[test]
    fn runs_handle_first_and_last_possible_time() {
        for now in [FIRST, LAST] {
            assert!(runs(now, None, None).iter().all(|run| FIRST <= run.since && run.until <= LAST));
        }
        assert!(runs(LAST, None, Some(Date::MAX)).iter().all(|run| run.since < run.until));
    }

    #[test]
    fn status_names_round_trip() {
        for status in Status::ALL {
            assert_eq!(status.name().parse::<Status>().expect("a status"), status);
            assert_eq!(serde_json::to_value(status).expect("JSON"), status.name());
        }
        assert!("lost".parse::<Status>().is_err());
    }

    #[test]
    fn only_finished_match_has_result() {
        let score = Some((2, 1));
        for status in Status::ALL {
            let expected = match status {
                Status::Finished => Outcome::Result { home: 2, away: 1, advanced: Some(Side::Home) },
                Status::Abandoned | Status::Cancelled | Status::Awarded => Outcome::Void,
                _ => Outcome::Open,
            };
            assert_eq!(status.outcome(score, Some(Side::Home)), expected, "{status}");
        }
    }
}
