//! Sums of the scores of members, from which tables are built.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use time::OffsetDateTime;
use web::ids::UserId;

use super::{
    rules::{CountsFrom, League, MemberScore},
    store::{self, RoundRow},
    table::Players,
};
use crate::game::scores::rules::Scope;

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
}

/// A member and the time at which they joined.
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
    Ok(Outline { round, round_complete, latest, has_results, scopes, latest_scopes })
}

/// Sums the scores of these members, in their order. Members without a score have zeros.
pub(super) async fn sum(
    db: &PgPool,
    league: &League,
    outline: &Outline,
    members: &[Member],
) -> sqlx::Result<Vec<(UserId, MemberScore)>> {
    let users: Vec<i64> = members.iter().map(|(user, _)| user.0).collect();
    let scores = if league.is_exact() {
        exact_sums(db, league, outline, &users, members).await?
    } else {
        store::score_sums(db, &users, &outline.scopes, &outline.latest_scopes).await?.into_iter().collect()
    };
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

async fn exact_sums(
    db: &PgPool,
    league: &League,
    outline: &Outline,
    users: &[i64],
    members: &[Member],
) -> sqlx::Result<HashMap<UserId, MemberScore>> {
    let tournaments = league.tournament_ids();
    let start = league.from.unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let since: Vec<OffsetDateTime> = members
        .iter()
        .map(|(_, joined)| if league.counts_from == CountsFrom::Joined { start.max(*joined) } else { start })
        .collect();
    let mut sums: HashMap<UserId, MemberScore> = HashMap::new();
    for row in store::exact_scores(db, &tournaments, league.from_round, users, &since).await? {
        let member = sums.entry(row.user).or_default();
        if outline.round.is_none() || row.round == outline.round {
            member.all += row.score;
        }
        if row.round.is_some() && row.round == outline.latest {
            member.latest_round += row.score;
        }
    }
    Ok(sums)
}
