//! Sums of the scores of members, from which tables are built.

use std::{collections::HashMap, sync::Arc};

use platform::{
    Core,
    shards::{Ranges, Shards},
};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use time::{Duration, OffsetDateTime};
use web::ids::{TournamentId, UserId};

use super::{
    recent::{Age, ReadAt, Recent},
    rules::{League, MemberScore},
    store::{self, RoundRow},
    table::Players,
};
use crate::game::scores::rules::Scope;

/// Number of outlines that a process shares.
const KEPT_OUTLINES: usize = 1_000;

/// Matches and questions that count for a table, from the results that exist at one time. Stored with the copy of a large
/// table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Outline {
    /// Round of the table; `None` for the table of all rounds.
    pub(super) round: Option<i16>,
    /// Whether the round is complete; `None` for the table of all rounds.
    pub(super) round_complete: Option<bool>,
    /// Latest round with a result, if the table shows movement.
    pub(super) latest: Option<i16>,
    /// Whether a match or question of the table has a result. Without one, all members have zeros.
    pub(super) has_results: bool,
    /// Scopes of scores whose sum is the member's score.
    scopes: Vec<String>,
    /// Scopes of the latest round.
    latest_scopes: Vec<String>,
    /// Replaces the scopes for a league that counts matches by time. Such a league has no copy.
    #[serde(skip)]
    timed: Option<Timed>,
    /// By which Citus finds the members of such a league.
    #[serde(skip)]
    shards: Ranges,
}

/// Scores of a league that counts matches by time. A member has the scores of tournaments and rounds that begin after the
/// time from which matches count for them. Predictions and answers are read only in rounds that had begun by then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Timed {
    scopes: Vec<TimedScope>,
    rounds: Vec<TimedRound>,
}

/// A scope that counts for members whose matches count from a time after `after`, and not after `until`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TimedScope {
    scope: String,
    /// Whether it is part of the score in the latest round, instead of the score in all rounds.
    is_latest: bool,
    after: Option<OffsetDateTime>,
    until: OffsetDateTime,
}

/// A round whose predictions and answers are read for members whose matches count from a time after `after`, and not after
/// `until`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TimedRound {
    tournament: TournamentId,
    /// `None` for matches without a round. No score has only these.
    round: Option<i16>,
    after: Option<OffsetDateTime>,
    until: OffsetDateTime,
}

impl Timed {
    /// `has_tournaments` is true if all matches of a tournament count for the table.
    fn new(rows: &[RoundRow], round: Option<i16>, has_tournaments: bool, latest: Option<i16>) -> Self {
        let mut timed = Self::default();
        let mut tournaments: HashMap<TournamentId, OffsetDateTime> = HashMap::new();
        for row in rows.iter().filter(|row| round.is_none() || row.round == round) {
            let RoundRow { tournament, round, first, last, tournament_first, .. } = *row;
            // The score of a tournament includes its rounds.
            let after = has_tournaments.then_some(tournament_first);
            if has_tournaments {
                tournaments.insert(tournament, tournament_first);
            }
            let scope = round.map(|round| Scope::Round { tournament, round }.to_string());
            if let Some(scope) = scope {
                if latest.is_some() && round == latest {
                    timed.scopes.push(TimedScope { scope: scope.clone(), is_latest: true, after: None, until: first });
                }
                timed.scopes.push(TimedScope { scope, is_latest: false, after, until: first });
            }
            let after = if round.is_some() { Some(first) } else { after };
            timed.rounds.push(TimedRound { tournament, round, after, until: last });
        }
        timed.scopes.extend(tournaments.into_iter().map(|(tournament, first)| TimedScope {
            scope: Scope::Tournament(tournament).to_string(),
            is_latest: false,
            after: None,
            until: first,
        }));
        timed
    }

    async fn sums(
        &self,
        db: &PgPool,
        shards: &Ranges,
        members: &[Member],
        latest: Option<i16>,
    ) -> sqlx::Result<Vec<MemberScore>> {
        let mut sums = vec![MemberScore::default(); members.len()];
        let Some(earliest) = members.iter().map(|(_, start)| *start).min() else { return Ok(sums) };
        let (users, starts): (Vec<i64>, Vec<OffsetDateTime>) =
            members.iter().map(|(user, start)| (user.0, *start)).unzip();
        let concerns = |after: Option<OffsetDateTime>, until: OffsetDateTime| {
            starts.iter().any(|start| after.is_none_or(|after| *start > after) && *start <= until)
        };
        let from = |after: Option<OffsetDateTime>| after.unwrap_or(earliest - Duration::SECOND);
        let scopes: Vec<&TimedScope> = self.scopes.iter().filter(|scope| concerns(scope.after, scope.until)).collect();
        if !scopes.is_empty() {
            let wanted = store::TimedScopes {
                scopes: scopes.iter().map(|scope| scope.scope.clone()).collect(),
                are_latest: scopes.iter().map(|scope| scope.is_latest).collect(),
                after: scopes.iter().map(|scope| from(scope.after)).collect(),
                until: scopes.iter().map(|scope| scope.until).collect(),
            };
            for (at, score) in store::timed_score_sums(db, &users, &starts, &wanted).await? {
                if let Some(sum) = sums.get_mut(at) {
                    *sum = score;
                }
            }
        }
        let rounds: Vec<&TimedRound> = self.rounds.iter().filter(|round| concerns(round.after, round.until)).collect();
        if !rounds.is_empty() {
            let wanted = store::TimedRounds {
                tournaments: rounds.iter().map(|round| round.tournament.0).collect(),
                rounds: rounds.iter().map(|round| round.round.unwrap_or_default()).collect(),
                after: rounds.iter().map(|round| from(round.after)).collect(),
                until: rounds.iter().map(|round| round.until).collect(),
            };
            for row in store::timed_scores(db, shards, &users, &starts, &wanted).await? {
                let Some(sum) = sums.get_mut(row.at) else { continue };
                sum.all += row.score;
                if row.round.is_some() && row.round == latest {
                    sum.latest_round += row.score;
                }
            }
        }
        Ok(sums)
    }
}

/// What decides the outline of a table: tournaments, first round, first time, whether matches count by time, and the round
/// of the table.
type Counted = (Vec<TournamentId>, Option<i16>, Option<OffsetDateTime>, bool, Option<i16>);

/// Outlines, which most leagues share.
pub(super) struct Outlines {
    db: PgPool,
    shards: Shards,
    kept: Recent<Counted, Arc<Outline>>,
}

impl Outlines {
    pub(super) fn new(core: &Core) -> Self {
        Self { db: core.db.clone(), shards: core.shards.clone(), kept: Recent::new(KEPT_OUTLINES) }
    }

    /// Returns the matches that count for a table, and when they were read.
    pub(super) async fn of(
        &self,
        league: &League,
        round: Option<i16>,
        age: Age,
    ) -> sqlx::Result<(Arc<Outline>, ReadAt)> {
        let counted = (league.tournaments.clone(), league.from_round, league.from, league.is_exact(), round);
        let read = async {
            let shards = self.shards.get(&mut *self.db.acquire().await?).await?.clone();
            Ok(Arc::new(Outline { shards, ..outline(&self.db, league, round).await? }))
        };
        self.kept.get(&counted, age, Box::pin(read)).await
    }
}

/// A member, and the time at which they joined, or from which matches count for them (see [`League::start`]).
pub(super) type Member = (UserId, OffsetDateTime);

/// Finds the matches that count for a table.
pub(super) async fn outline(db: &PgPool, league: &League, round: Option<i16>) -> sqlx::Result<Outline> {
    let tournaments = league.tournament_ids();
    let rounds = store::rounds(db, &tournaments, league.from_round, league.from).await?;
    let of_table = |row: &&RoundRow| round.is_none() || row.round == round;
    let round_complete = round.map(|_| {
        let sum = |read: fn(&RoundRow) -> i64| rounds.iter().filter(of_table).map(read).sum::<i64>();
        sum(|row| row.with_result) > 0 && sum(|row| row.open) == 0 && sum(|row| row.pending) == 0
    });
    let with_results = || rounds.iter().filter(|row| row.with_result > 0);
    let latest = with_results().filter_map(|row| row.round).max();
    // A table of one round shows no movement.
    let latest = latest.filter(|_| round.is_none() && with_results().any(|row| row.round != latest));
    let scopes_of = |wanted: &dyn Fn(i16) -> bool| -> Vec<String> {
        let scope = |row: &RoundRow| {
            let round = row.round.filter(|round| wanted(*round))?;
            Some(Scope::Round { tournament: row.tournament, round }.to_string())
        };
        rounds.iter().filter_map(scope).collect()
    };
    let scopes = match (round, league.from_round) {
        (Some(round), _) => scopes_of(&|of| of == round),
        (None, Some(_)) => scopes_of(&|_| true),
        // The score of a tournament includes all its rounds, and matches without a round.
        (None, None) => league.tournaments.iter().map(|id| Scope::Tournament(*id).to_string()).collect(),
    };
    let has_results = rounds.iter().filter(of_table).any(|row| row.with_result > 0 || row.resolved > 0);
    let latest_scopes = scopes_of(&|of| Some(of) == latest);
    let has_tournaments = round.is_none() && league.from_round.is_none();
    let timed = league.is_exact().then(|| Timed::new(&rounds, round, has_tournaments, latest));
    let shards = Ranges::default();
    Ok(Outline { round, round_complete, latest, has_results, scopes, latest_scopes, timed, shards })
}

/// Sums the scores of these members, in their order. Members without a score have zeros.
pub(super) async fn sum(
    db: &PgPool,
    outline: &Outline,
    members: &[Member],
) -> sqlx::Result<Vec<(UserId, MemberScore)>> {
    if let Some(timed) = &outline.timed {
        let sums = timed.sums(db, &outline.shards, members, outline.latest).await?;
        return Ok(members.iter().zip(sums).map(|((user, _), sum)| (*user, sum)).collect());
    }
    let users: Vec<i64> = members.iter().map(|(user, _)| user.0).collect();
    let scores: HashMap<UserId, MemberScore> =
        store::score_sums(db, &users, &outline.scopes, &outline.latest_scopes).await?.into_iter().collect();
    Ok(members.iter().map(|(user, _)| (*user, scores.get(user).copied().unwrap_or_default())).collect())
}

/// Sums the scores of all members of a league that does not count matches by time, and returns their names.
pub(super) async fn of_league(
    db: &PgPool,
    league: &League,
    outline: &Outline,
) -> sqlx::Result<(Vec<(UserId, MemberScore)>, Players)> {
    let members = store::member_scores(db, league.id, &outline.scopes, &outline.latest_scopes).await?;
    let scores = members.iter().map(|member| (member.user, member.score)).collect();
    let players = members.into_iter().filter_map(|member| Some((member.user, member.player?))).collect();
    Ok((scores, players))
}
