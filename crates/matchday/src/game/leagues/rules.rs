//! Leagues and their tables; no I/O.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;
use web::{
    fields::{FromJson, FromQuery},
    ids::{LeagueId, TournamentId, UserId},
};

use crate::game::scores::rules::{Score, Standing, ranks};

/// Number of members shown before and after the caller.
pub(super) const NEIGHBOURS: usize = 5;

/// Name of a league: 1 to 100 characters, trimmed, without control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeagueName(String);

impl LeagueName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromJson for LeagueName {
    const EXPECTED: &'static str = "must be a string of 1 to 100 characters without control characters";

    fn from_json(value: &serde_json::Value) -> Option<Self> {
        let name = value.as_str()?.trim();
        let fits = (1..=100).contains(&name.chars().count()) && !name.chars().any(char::is_control);
        fits.then(|| Self(name.to_owned()))
    }
}

/// Who can find a league.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = LeagueVisibility)]
pub enum Visibility {
    /// Only members.
    #[default]
    Private,
    /// All users.
    Public,
}

/// Matches that count for a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = LeagueCountsFrom)]
pub enum CountsFrom {
    /// All matches of the league.
    #[default]
    LeagueStart,
    /// Those that start after the member joined.
    Joined,
}

/// Names of these types in JSON and in the database.
macro_rules! named {
    ($type:ident, $expected:literal, $($name:literal => $value:ident),+) => {
        impl $type {
            pub fn name(self) -> &'static str {
                match self { $(Self::$value => $name),+ }
            }

            pub fn of_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$value),)+ _ => None }
            }
        }

        impl FromJson for $type {
            const EXPECTED: &'static str = $expected;

            fn from_json(value: &serde_json::Value) -> Option<Self> {
                Self::of_name(value.as_str()?)
            }
        }
    };
}

named!(Visibility, "must be private or public", "private" => Private, "public" => Public);
named!(CountsFrom, "must be league_start or joined", "league_start" => LeagueStart, "joined" => Joined);

/// A league.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct League {
    pub id: LeagueId,
    pub name: String,
    pub owner: UserId,
    pub visibility: Visibility,
    pub counts_from: CountsFrom,
    /// Tournaments whose matches count, in ascending order.
    pub tournaments: Vec<TournamentId>,
    /// Only matches of this round or a later one.
    pub from_round: Option<i16>,
    /// Only matches that start at this time or later.
    pub from: Option<OffsetDateTime>,
    pub max_members: i32,
    pub member_count: i32,
    /// Changes with the members.
    pub members_version: i64,
    pub created_at: OffsetDateTime,
}

impl League {
    /// Whether matches count by time. Scores do not know when a match started, so they do not suffice for the table.
    pub fn is_exact(&self) -> bool {
        self.from.is_some() || self.counts_from == CountsFrom::Joined
    }

    /// Time from which matches count for a member who joined at this time; far in the past for a league that does not count
    /// matches by time.
    pub(super) fn start(&self, joined_at: OffsetDateTime) -> OffsetDateTime {
        let start = self.from.unwrap_or(OffsetDateTime::UNIX_EPOCH);
        if self.counts_from == CountsFrom::Joined { start.max(joined_at) } else { start }
    }

    pub(super) fn tournament_ids(&self) -> Vec<i64> {
        self.tournaments.iter().map(|id| id.0).collect()
    }
}

/// Points of a member: all of the league, and only its latest round with a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MemberScore {
    pub(super) all: Score,
    pub(super) latest_round: Score,
}

impl MemberScore {
    /// Score before the latest round.
    pub(super) fn before(&self) -> Score {
        let mut before = self.all;
        before -= self.latest_round;
        before
    }
}

/// A member in the table of a league.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableRow {
    pub user: UserId,
    /// Members with equal points share a rank.
    pub rank: i64,
    pub score: Score,
    /// Places gained since the round before the latest one; `None` without an earlier result.
    pub movement: Option<i64>,
}

impl TableRow {
    /// Position of the row in the table.
    pub fn position(&self) -> Position {
        Position { key: standing(self.score).key(), user: self.user.0 }
    }
}

pub(super) fn standing(score: Score) -> Standing {
    Standing { points: score.points, exact: score.exact, correct: score.correct }
}

fn ranked(mut members: Vec<(UserId, Score)>) -> Vec<(UserId, i64, Score)> {
    members.sort_unstable_by_key(|(user, score)| (standing(*score).key(), user.0));
    let ranks = ranks(0, 0, members.iter().map(|(_, score)| score.points));
    members.into_iter().zip(ranks).map(|((user, score), rank)| (user, rank, score)).collect()
}

/// Builds the table of all members, in its order. `has_earlier` is true if a match outside the latest round has a result.
pub(super) fn table(members: &[(UserId, MemberScore)], has_earlier: bool) -> Vec<TableRow> {
    let now = ranked(members.iter().map(|(user, score)| (*user, score.all)).collect());
    let mut before: std::collections::HashMap<UserId, i64> = std::collections::HashMap::new();
    if has_earlier {
        let earlier = members.iter().map(|(user, score)| (*user, score.before())).collect();
        before = ranked(earlier).into_iter().map(|(user, rank, _)| (user, rank)).collect();
    }
    let row = |(user, rank, score)| {
        let movement = before.get(&user).map(|before| before - rank);
        TableRow { user, rank, score, movement }
    };
    now.into_iter().map(row).collect()
}

/// Returns the caller's row with up to five rows before and after it; empty if the caller is not a member.
pub(super) fn neighbours(rows: &[TableRow], user: UserId) -> &[TableRow] {
    let Some(own) = rows.iter().position(|row| row.user == user) else { return &[] };
    &rows[own.saturating_sub(NEIGHBOURS)..(own + NEIGHBOURS + 1).min(rows.len())]
}

/// Returns the rows after a position, and the position after them if there are more.
pub(super) fn page(rows: &[TableRow], after: Option<Position>, limit: usize) -> (&[TableRow], Option<Position>) {
    let first = after.map_or(0, |after| rows.partition_point(|row| row.position() <= after));
    let last = (first + limit).min(rows.len());
    let next = rows[first..last].last().filter(|_| last < rows.len()).map(TableRow::position);
    (&rows[first..last], next)
}

/// Position in a table, opaque to clients: directly after the member with this standing and id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Key of the standing.
    pub(super) key: i64,
    pub(super) user: i64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = [self.key.to_be_bytes(), self.user.to_be_bytes()].concat();
        f.write_str(&URL_SAFE_NO_PAD.encode(bytes))
    }
}

impl FromQuery for Position {
    const EXPECTED: &'static str = "must be a cursor from an earlier response";

    fn from_query(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (key, user) = bytes.split_at_checked(8)?;
        let number = |bytes: &[u8]| Some(i64::from_be_bytes(bytes.try_into().ok()?));
        Some(Self { key: number(key)?, user: number(user)? })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn score(points: i32, exact: i32, correct: i32) -> Score {
        Score { points, exact, correct, settled: correct, answered: 0 }
    }

    fn member(user: i64, all: Score, latest_round: Score) -> (UserId, MemberScore) {
        (UserId(user), MemberScore { all, latest_round })
    }

    #[test]
    fn table_is_ordered_and_shows_movement() {
        let members = [
            member(1, score(60, 0, 2), score(20, 0, 1)),
            member(2, score(70, 1, 2), score(40, 1, 1)),
            member(3, score(60, 1, 2), score(40, 1, 1)),
            member(4, score(0, 0, 0), score(0, 0, 0)),
        ];
        let rows = |has_earlier| -> Vec<(i64, i64, Option<i64>)> {
            table(&members, has_earlier).iter().map(|row| (row.user.0, row.rank, row.movement)).collect()
        };
        assert_eq!(rows(true), [(2, 1, Some(1)), (3, 2, Some(1)), (1, 2, Some(-1)), (4, 4, Some(0))]);
        assert!(rows(false).iter().all(|(.., movement)| movement.is_none()));
    }

    proptest! {
        #[test]
        fn pages_repeat_and_skip_no_member(
            points in proptest::collection::vec((0..5_i32, 0..3_i32), 1..40), limit in 1..10_usize,
        ) {
            let members: Vec<_> = points
                .iter()
                .zip(1..)
                .map(|(&(points, exact), user)| member(user, score(points, exact, exact), Score::default()))
                .collect();
            let rows = table(&members, false);
            let (mut seen, mut after) = (Vec::new(), None);
            loop {
                let (some, next) = page(&rows, after, limit);
                prop_assert!(some.len() <= limit);
                seen.extend_from_slice(some);
                let Some(next) = next else { break };
                prop_assert_eq!(Position::from_query(&next.to_string()), Some(next));
                after = Some(next);
            }
            prop_assert_eq!(&seen, &rows);
            for row in &rows {
                let near = neighbours(&rows, row.user);
                prop_assert!(near.contains(row) && near.len() <= 11);
            }
            prop_assert!(neighbours(&rows, UserId(999)).is_empty());
        }
    }
}
