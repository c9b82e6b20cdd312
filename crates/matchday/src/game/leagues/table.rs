//! Tables of leagues. A table is summed from the scores of the members when it is read, and kept for a second, so that
//! many readers of one league share the work.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use sqlx::PgPool;
use tokio::sync::Mutex;
use web::ids::{LeagueId, UserId};

use super::{
    rules::{self, CountsFrom, League, MemberScore, TableRow},
    store::{self, RoundRow},
};
use crate::game::scores::rules::{Scope, Score};

/// Time for which a table is kept.
const KEPT_FOR: Duration = Duration::from_secs(1);
/// Number of kept tables.
const KEPT: usize = 10_000;
/// Number of locks that share the computation of tables. Two leagues may have the same one, and then wait for each other.
const LOCKS: i64 = 64;

/// The table of a league.
#[derive(Clone, Debug)]
pub(super) struct LeagueTable {
    /// All members, in the order of the table.
    pub(super) rows: Vec<TableRow>,
    /// Whether the round is complete; `None` for the table of all rounds.
    pub(super) round_complete: Option<bool>,
}

#[derive(Clone)]
struct Kept {
    table: Arc<LeagueTable>,
    members_version: i64,
    read_at: Instant,
}

/// Computes and keeps tables.
pub(super) struct Tables {
    db: PgPool,
    kept: quick_cache::sync::Cache<(LeagueId, Option<i16>), Kept>,
    locks: Vec<Mutex<()>>,
}

impl Tables {
    pub(super) fn new(db: PgPool) -> Self {
        let locks = (0..LOCKS).map(|_| Mutex::default()).collect();
        Self { db, kept: quick_cache::sync::Cache::new(KEPT), locks }
    }

    /// Returns the table of a league, of all rounds or of one. A change of the members is visible immediately, a result
    /// within a second after it is in the scores.
    pub(super) async fn of(&self, league: &League, round: Option<i16>) -> sqlx::Result<Arc<LeagueTable>> {
        if let Some(kept) = self.current(league, round) {
            return Ok(kept);
        }
        let lock = &self.locks[usize::try_from(league.id.0.rem_euclid(LOCKS)).unwrap_or_default()];
        let _turn = lock.lock().await;
        // Another request may have computed it in the meantime.
        if let Some(kept) = self.current(league, round) {
            return Ok(kept);
        }
        let read_at = Instant::now();
        let table = Arc::new(self.compute(league, round).await?);
        let kept = Kept { table: Arc::clone(&table), members_version: league.members_version, read_at };
        self.kept.insert((league.id, round), kept);
        Ok(table)
    }

    fn current(&self, league: &League, round: Option<i16>) -> Option<Arc<LeagueTable>> {
        let kept = self.kept.get(&(league.id, round))?;
        let is_current = kept.members_version == league.members_version && kept.read_at.elapsed() < KEPT_FOR;
        is_current.then_some(kept.table)
    }

    async fn compute(&self, league: &League, round: Option<i16>) -> sqlx::Result<LeagueTable> {
        let tournaments: Vec<i64> = league.tournaments.iter().map(|id| id.0).collect();
        let rounds = store::rounds(&self.db, &tournaments, league.from_round, league.from).await?;
        let members = store::members(&self.db, league.id).await?;
        let of_round = |row: &&RoundRow| round.is_some() && row.round == round;
        let round_complete = round.map(|_| {
            let sum = |read: fn(&RoundRow) -> i64| rounds.iter().filter(of_round).map(read).sum::<i64>();
            sum(|row| row.with_result) > 0 && sum(|row| row.open) == 0 && sum(|row| row.pending) == 0
        });
        let latest = rounds.iter().filter(|row| row.with_result > 0).filter_map(|row| row.round).max();
        // A table of one round shows no movement.
        let has_earlier =
            round.is_none() && latest.is_some() && rounds.iter().any(|row| row.with_result > 0 && row.round != latest);
        let mut scores: HashMap<UserId, MemberScore> = HashMap::new();
        let needed = |of: i16| match round {
            Some(round) => of == round,
            // The score of the tournament includes the other rounds.
            None => league.from_round.is_some() || Some(of) == latest,
        };
        let needed: Vec<RoundRow> = rounds.iter().filter(|row| row.round.is_some_and(needed)).copied().collect();
        let parts = self.parts(league, round, &needed, &members).await?;
        for (user, of, score) in parts {
            let member = scores.entry(user).or_default();
            if round.is_none() || of == round {
                add(&mut member.all, score);
            }
            if of.is_some() && of == latest {
                add(&mut member.latest_round, score);
            }
        }
        let members: Vec<(UserId, MemberScore)> =
            members.iter().map(|(user, _)| (*user, scores.get(user).copied().unwrap_or_default())).collect();
        Ok(LeagueTable { rows: rules::table(&members, has_earlier), round_complete })
    }

    /// Returns the scores of members in these rounds, and those of all other matches, if the table is not of one round.
    async fn parts(
        &self,
        league: &League,
        round: Option<i16>,
        rounds: &[RoundRow],
        members: &[(UserId, time::OffsetDateTime)],
    ) -> sqlx::Result<Vec<(UserId, Option<i16>, Score)>> {
        let users: Vec<i64> = members.iter().map(|(user, _)| user.0).collect();
        let tournaments: Vec<i64> = league.tournaments.iter().map(|id| id.0).collect();
        if league.is_exact() {
            let start = league.from.unwrap_or(time::OffsetDateTime::UNIX_EPOCH);
            let since: Vec<time::OffsetDateTime> = members
                .iter()
                .map(|(_, joined)| if league.counts_from == CountsFrom::Joined { start.max(*joined) } else { start })
                .collect();
            let rows = store::exact_scores(&self.db, &tournaments, league.from_round, &users, &since).await?;
            return Ok(rows.into_iter().map(|row| (row.user, row.round, row.score)).collect());
        }
        let of_rounds = rounds
            .iter()
            .filter_map(|row| Some((Scope::Round { tournament: row.tournament, round: row.round? }, row.round)));
        let mut scopes: HashMap<String, Option<i16>> =
            of_rounds.map(|(scope, round)| (scope.to_string(), round)).collect();
        let has_rest = round.is_none() && league.from_round.is_none();
        if has_rest {
            scopes.extend(league.tournaments.iter().map(|id| (Scope::Tournament(*id).to_string(), None)));
        }
        let names: Vec<String> = scopes.keys().cloned().collect();
        let rows = store::scores(&self.db, &users, &names).await?;
        let mut parts: Vec<(UserId, Option<i16>, Score)> = Vec::with_capacity(rows.len());
        // The score of a tournament includes its rounds. What is left belongs to its other matches.
        let mut left: HashMap<UserId, Score> = HashMap::new();
        for row in rows {
            match scopes.get(&row.scope).copied().flatten() {
                Some(round) => {
                    parts.push((row.user, Some(round), row.score));
                    if has_rest {
                        subtract(left.entry(row.user).or_default(), row.score);
                    }
                }
                None => add(left.entry(row.user).or_default(), row.score),
            }
        }
        parts.extend(left.into_iter().map(|(user, score)| (user, None, score)));
        Ok(parts)
    }
}

fn add(sum: &mut Score, part: Score) {
    sum.points += part.points;
    sum.exact += part.exact;
    sum.correct += part.correct;
    sum.settled += part.settled;
}

fn subtract(sum: &mut Score, part: Score) {
    sum.points -= part.points;
    sum.exact -= part.exact;
    sum.correct -= part.correct;
    sum.settled -= part.settled;
}
