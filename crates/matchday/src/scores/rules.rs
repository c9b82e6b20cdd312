//! The tables that scores are kept for; no I/O.

use std::fmt;

use time::OffsetDateTime;

use crate::ids::TournamentId;

/// A table. `score_scopes` in the database says which ones a match counts for; a test holds the two together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Of all time.
    All,
    /// Of one tournament.
    Tournament(TournamentId),
    /// Of a month by UTC.
    Month {
        /// The year.
        year: i32,
        /// From 1.
        month: u8,
    },
    /// Of a week by UTC, from Monday.
    Week {
        /// The year that has most of the week's days.
        year: i32,
        /// From 1.
        week: u8,
    },
}

impl Scope {
    /// The month of a moment.
    pub fn month_of(moment: OffsetDateTime) -> Self {
        let date = moment.to_offset(time::UtcOffset::UTC).date();
        Self::Month { year: date.year(), month: date.month().into() }
    }

    /// The week of a moment.
    pub fn week_of(moment: OffsetDateTime) -> Self {
        let (year, week, _) = moment.to_offset(time::UtcOffset::UTC).date().to_iso_week_date();
        Self::Week { year, week }
    }

    /// Every table that a match counts for, in the order in which rows are locked.
    pub fn of_match(tournament: TournamentId, start: OffsetDateTime) -> [Self; 4] {
        [Self::All, Self::month_of(start), Self::Tournament(tournament), Self::week_of(start)]
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Tournament(id) => write!(f, "tournament:{id}"),
            Self::Month { year, month } => write!(f, "month:{year:04}-{month:02}"),
            Self::Week { year, week } => write!(f, "week:{year:04}-{week:02}"),
        }
    }
}

/// What a user has earned in a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Score {
    /// Points.
    pub points: i32,
    /// Scores that were right to the goal.
    pub exact: i32,
    /// Outcomes that were right.
    pub correct: i32,
    /// Matches with a result.
    pub settled: i32,
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn weeks_begin_on_mondays_and_belong_to_the_year_that_has_most_of_them() {
        for (moment, week, month) in [
            (datetime!(2026-11-15 23:59:59 UTC), "week:2026-46", "month:2026-11"),
            (datetime!(2026-11-16 00:00 UTC), "week:2026-47", "month:2026-11"),
            (datetime!(2026-12-31 23:00 UTC), "week:2026-53", "month:2026-12"),
            (datetime!(2027-01-01 00:00 UTC), "week:2026-53", "month:2027-01"),
            (datetime!(2027-01-01 00:30 +1), "week:2026-53", "month:2026-12"),
            (datetime!(2024-12-30 12:00 UTC), "week:2025-01", "month:2024-12"),
        ] {
            assert_eq!(Scope::week_of(moment).to_string(), week, "{moment}");
            assert_eq!(Scope::month_of(moment).to_string(), month, "{moment}");
        }
    }
}
