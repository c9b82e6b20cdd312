//! Scopes, standings and ranks, without I/O.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use time::{Date, Month, OffsetDateTime, Time, Weekday};
use web::ids::{MatchId, QuestionId, TournamentId, UserId};

/// What users score points for. Serialised as in `{"event_id": 7}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Source {
    /// Predictions of a match.
    #[serde(rename = "event_id")]
    Match(MatchId),
    /// Answers to a question.
    #[serde(rename = "question_id")]
    Question(QuestionId),
}

impl Source {
    /// Name of the kind, as stored with chunks.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Match(_) => "match",
            Self::Question(_) => "question",
        }
    }

    /// Id of the match or question.
    pub fn id(self) -> i64 {
        match self {
            Self::Match(id) => id.0,
            Self::Question(id) => id.0,
        }
    }

    pub fn of(kind: &str, id: i64) -> Option<Self> {
        match kind {
            "match" => Some(Self::Match(MatchId(id))),
            "question" => Some(Self::Question(QuestionId(id))),
            _ => None,
        }
    }
}

impl From<MatchId> for Source {
    fn from(id: MatchId) -> Self {
        Self::Match(id)
    }
}

impl From<QuestionId> for Source {
    fn from(id: QuestionId) -> Self {
        Self::Question(id)
    }
}

/// Displayed as in `match 7`.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.id())
    }
}

/// Set of matches and questions that a score and a leaderboard cover. The SQL function `score_scopes` returns the scopes
/// of a match; a test compares it with [`Scope::of_match`]. A question counts like a match that starts at its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    All,
    /// Matches of one tournament.
    Tournament(TournamentId),
    /// Matches of one round of a tournament.
    Round {
        tournament: TournamentId,
        round: i16,
    },
    /// Matches that start in this month (UTC).
    Month {
        year: i32,
        month: u8,
    },
    /// Matches that start in this ISO week (UTC, from Monday).
    Week {
        /// ISO year: the year that contains most of the week's days.
        year: i32,
        week: u8,
    },
}

impl Scope {
    pub fn month_of(moment: OffsetDateTime) -> Self {
        let date = moment.to_offset(time::UtcOffset::UTC).date();
        Self::Month { year: date.year(), month: date.month().into() }
    }

    pub fn week_of(moment: OffsetDateTime) -> Self {
        let (year, week, _) = moment.to_offset(time::UtcOffset::UTC).date().to_iso_week_date();
        Self::Week { year, week }
    }

    /// Returns every scope that a match counts for, in the order in which score rows are locked.
    pub fn of_match(tournament: TournamentId, start: OffsetDateTime, round: Option<i16>) -> Vec<Self> {
        let round = round.map(|round| Self::Round { tournament, round });
        let scopes = [Some(Self::All), Some(Self::month_of(start)), round, Some(Self::Tournament(tournament))];
        scopes.into_iter().flatten().chain([Self::week_of(start)]).collect()
    }

    /// Returns the time after which no match of this scope starts; `None` for scopes without a fixed end.
    pub fn ends(self) -> Option<OffsetDateTime> {
        let day = match self {
            Self::All | Self::Tournament(_) | Self::Round { .. } => return None,
            Self::Month { year, month: 12 } => Date::from_calendar_date(year + 1, Month::January, 1).ok()?,
            Self::Month { year, month } => Date::from_calendar_date(year, (month + 1).try_into().ok()?, 1).ok()?,
            Self::Week { year, week } => Date::from_iso_week_date(year, week, Weekday::Sunday).ok()?.next_day()?,
        };
        Some(day.with_time(Time::MIDNIGHT).assume_utc())
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Tournament(id) => write!(f, "tournament:{id}"),
            Self::Round { tournament, round } => write!(f, "round:{tournament}:{round}"),
            Self::Month { year, month } => write!(f, "month:{year:04}-{month:02}"),
            Self::Week { year, week } => write!(f, "week:{year:04}-{week:02}"),
        }
    }
}

impl FromStr for Scope {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let period = |rest: &str| -> Option<(i32, u8)> {
            let (year, number) = rest.split_once('-')?;
            Some((year.parse().ok()?, number.parse().ok()?))
        };
        let scope = match text.split_once(':') {
            None => (text == "all").then_some(Self::All),
            Some(("tournament", id)) => id.parse().ok().map(Self::Tournament),
            Some(("round", rest)) => rest.split_once(':').and_then(|(tournament, round)| {
                Some(Self::Round { tournament: tournament.parse().ok()?, round: round.parse().ok()? })
            }),
            Some(("month", rest)) => period(rest).map(|(year, month)| Self::Month { year, month }),
            Some(("week", rest)) => period(rest).map(|(year, week)| Self::Week { year, week }),
            Some(_) => None,
        };
        scope.ok_or(())
    }
}

/// Whether a scope is a week before `first_kept`, the first week whose scores are kept. Stored scopes of weeks sort by
/// time.
pub(super) fn is_dropped(scope: &str, first_kept: Option<&str>) -> bool {
    scope.starts_with("week:") && first_kept.is_some_and(|first_kept| scope < first_kept)
}

/// A user's score in one scope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Score {
    pub points: i32,
    /// Number of exactly predicted scores.
    pub exact: i32,
    /// Number of correctly predicted outcomes.
    pub correct: i32,
    /// Number of predicted matches with a result.
    pub settled: i32,
    /// Number of answered questions that are resolved.
    pub answered: i32,
}

impl std::ops::AddAssign for Score {
    fn add_assign(&mut self, other: Self) {
        self.points += other.points;
        self.exact += other.exact;
        self.correct += other.correct;
        self.settled += other.settled;
        self.answered += other.answered;
    }
}

impl std::ops::SubAssign for Score {
    fn sub_assign(&mut self, other: Self) {
        self.points -= other.points;
        self.exact -= other.exact;
        self.correct -= other.correct;
        self.settled -= other.settled;
        self.answered -= other.answered;
    }
}

/// Score rows that do not exist yet.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MissingRows {
    /// Users who lack a row in at least one scope.
    pub(super) users: Vec<i64>,
    /// Number of missing rows.
    pub(super) rows: usize,
}

/// Returns the rows that `users` lack in the first `scopes` scopes. `found` lists the existing rows as pairs of scope
/// (from 1) and user. Users and pairs are sorted.
pub(super) fn missing_rows(users: &[i64], scopes: i32, found: &[(i32, i64)]) -> MissingRows {
    let (mut lacks, mut rows) = (vec![false; users.len()], 0);
    let mut found = found.iter().copied().peekable();
    for scope in 1..=scopes {
        for (&user, lacks) in users.iter().zip(&mut lacks) {
            while found.next_if(|&place| place < (scope, user)).is_some() {}
            if found.peek() != Some(&(scope, user)) {
                *lacks = true;
                rows += 1;
            }
        }
    }
    let users = users.iter().zip(lacks).filter_map(|(&user, lacks)| lacks.then_some(user)).collect();
    MissingRows { users, rows }
}

/// Sort key of a leaderboard: points, then exact scores, then correct outcomes. Users who are equal in all three are
/// sorted by id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Standing {
    pub points: i32,
    /// Number of exactly predicted scores.
    pub exact: i32,
    /// Number of correctly predicted outcomes.
    pub correct: i32,
}

impl Standing {
    /// Points are clamped to this value in both directions. No user comes near it.
    pub const MOST_POINTS: i32 = (1 << 22) - 1;
    /// Exact scores and correct outcomes are clamped to this value.
    pub const MOST_COUNTED: i32 = (1 << 15) - 1;
    /// Weight of one point in [`key`](Self::key).
    pub const POINT: i64 = 1 << 30;

    /// Packs the standing into one number; a better standing has a smaller number. Redis stores scores as
    /// floating-point numbers with 53 bits of precision, and the key uses exactly 53 bits.
    pub fn key(self) -> i64 {
        let points = self.points.clamp(-Self::MOST_POINTS, Self::MOST_POINTS);
        let counted = |count: i32| i64::from(count.clamp(0, Self::MOST_COUNTED));
        -(i64::from(points) * Self::POINT + (counted(self.exact) << 15) + counted(self.correct))
    }

    /// Greatest [`key`](Self::key) of a user with more points.
    pub fn ahead(self) -> i64 {
        -(i64::from(self.points) + 1) * Self::POINT
    }

    /// Unpacks a number from [`key`](Self::key).
    pub fn of_key(key: i64) -> Self {
        let part = |bits: i64| i32::try_from(bits).unwrap_or_default();
        let sum = -key;
        // The shift rounds towards negative infinity, so the remaining bits are never negative.
        Self { points: part(sum >> 30), exact: part((sum >> 15) & 0x7fff), correct: part(sum & 0x7fff) }
    }
}

/// Encodes a user id as a sorted-set member. Redis sorts members with equal scores by bytes, which here is the order of
/// ids.
pub fn member(user: UserId) -> [u8; 8] {
    // Flips the sign bit, so that negative ids would sort before positive ones.
    (user.0 ^ i64::MIN).to_be_bytes()
}

/// Decodes a user id from [`member`].
pub fn user_of(member: &[u8]) -> Option<UserId> {
    Some(UserId(i64::from_be_bytes(member.try_into().ok()?) ^ i64::MIN))
}

/// Computes the ranks of consecutive leaderboard entries from their points. The first entry is at `position`, counted
/// from 0, and `ahead` users have more points than it. Users with equal points share a rank, and the next rank is one
/// more than the number of users before it (1, 1, 3).
pub fn ranks(position: i64, ahead: i64, points: impl IntoIterator<Item = i32>) -> Vec<i64> {
    let mut before = None;
    let mut rank = ahead + 1;
    points
        .into_iter()
        .zip(position..)
        .map(|(points, position)| {
            if before.is_some_and(|before| before != points) {
                rank = position + 1;
            }
            before = Some(points);
            rank
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use time::macros::datetime;

    use super::*;

    #[test]
    fn weeks_follow_iso_8601() {
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

    #[test]
    fn period_ends_when_the_next_one_begins() {
        for (moment, week, month) in [
            (datetime!(2026-11-15 23:59:59 UTC), datetime!(2026-11-16 0:00 UTC), datetime!(2026-12-01 0:00 UTC)),
            (datetime!(2026-12-31 12:00 UTC), datetime!(2027-01-04 0:00 UTC), datetime!(2027-01-01 0:00 UTC)),
        ] {
            assert_eq!(Scope::week_of(moment).ends(), Some(week));
            assert_eq!(Scope::month_of(moment).ends(), Some(month));
        }
        assert_eq!((Scope::All.ends(), Scope::Tournament(TournamentId(1)).ends()), (None, None));
    }

    #[test]
    fn only_weeks_are_dropped() {
        let dropped = |scope: &str| is_dropped(scope, Some("week:2026-40"));
        assert!(["week:2026-39", "week:2025-52", "week:2026-01"].into_iter().all(dropped));
        let kept = ["week:2026-40", "week:2027-01", "month:2020-01", "tournament:1", "all"];
        assert!(!kept.into_iter().any(dropped) && !is_dropped("week:2020-01", None));
    }

    #[test]
    fn equal_points_share_a_rank() {
        assert_eq!(ranks(0, 0, [9, 7, 7, 7, 3, 3, -1]), [1, 2, 2, 2, 5, 5, 7]);
        assert_eq!(ranks(2, 1, [7, 7, 3]), [2, 2, 5], "a page that starts within a group of equal points");
        assert_eq!(ranks(0, 0, []), Vec::<i64>::new());
    }

    #[test]
    fn missing_rows_are_those_not_found() {
        let found = [(1, 1), (1, 2), (1, 4), (2, 2), (2, 3), (2, 4), (2, 9)];
        let missing = |users: &[i64], of_each: &[i64], rows: usize| {
            assert_eq!(missing_rows(users, 2, &found), MissingRows { users: of_each.to_vec(), rows });
        };
        missing(&[1, 2, 3, 4, 5], &[1, 3, 5], 4);
        missing(&[2, 4], &[], 0);
        missing(&[], &[], 0);
    }

    fn standings() -> impl Strategy<Value = Standing> {
        let points = prop_oneof![-60..60_i32, -Standing::MOST_POINTS..=Standing::MOST_POINTS];
        let counts = || prop_oneof![0..3_i32, 0..=Standing::MOST_COUNTED];
        (points, counts(), counts()).prop_map(|(points, exact, correct)| Standing { points, exact, correct })
    }

    proptest! {
        #[test]
        fn keys_sort_like_standings(a in standings(), b in standings()) {
            prop_assert_eq!(b.key().cmp(&a.key()), a.cmp(&b));
        }

        #[test]
        #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "the test checks that nothing is lost")]
        fn key_survives_conversion_to_redis_float(standing in standings()) {
            let kept = standing.key() as f64;
            prop_assert_eq!(Standing::of_key(kept as i64), standing);
        }

        #[test]
        fn key_bound_selects_users_with_more_points(a in standings(), b in standings()) {
            prop_assert_eq!(b.key() <= a.ahead(), b.points > a.points);
        }

        #[test]
        fn members_sort_by_user_id(a in any::<i64>(), b in any::<i64>()) {
            prop_assert_eq!(member(UserId(a)).cmp(&member(UserId(b))), a.cmp(&b));
            prop_assert_eq!(user_of(&member(UserId(a))), Some(UserId(a)));
        }

        #[test]
        fn keys_fit_into_53_bits(points in any::<i32>(), exact in any::<i32>(), correct in any::<i32>()) {
            let key = Standing { points, exact, correct }.key();
            prop_assert!(key.abs() < 1 << 53);
        }

        #[test]
        fn scope_parses_from_its_display(seconds in 0_i64..4_000_000_000, id in 1_i64.., round in prop::option::of(1_i16..=999)) {
            let moment = OffsetDateTime::from_unix_timestamp(seconds).expect("a moment");
            for scope in Scope::of_match(TournamentId(id), moment, round) {
                prop_assert_eq!(scope.to_string().parse(), Ok(scope));
            }
        }
    }
}
