//! SQL queries for feeds.

use std::collections::HashMap;

use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;
use web::ids::TournamentId;

use super::{
    reading::{Known, KnownMatch, KnownTeam, Reading, SPORT},
    rules::Fixture,
};
use crate::catalogue::{
    matches::{
        columns::read_side,
        rules::{Details, Status},
    },
    rule_sets::columns::read_multiplier,
};

/// Stored state of a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub name: String,
    /// Tournament of the latest document.
    pub tournament_id: Option<TournamentId>,
    /// How the latest document was read; see `Source::basis`.
    pub basis: String,
    /// `ETag` of the latest document.
    pub etag: Option<String>,
    /// SHA-256 of the latest document.
    pub digest: Option<Vec<u8>>,
    /// Time of the last poll.
    pub polled_at: OffsetDateTime,
    /// Time of the last successful poll.
    pub succeeded_at: Option<OffsetDateTime>,
    /// Time of the last poll that imported a change.
    pub changed_at: Option<OffsetDateTime>,
    /// Time of the last failed poll.
    pub failed_at: Option<OffsetDateTime>,
    /// Message of the last failure.
    pub error: Option<String>,
    /// Number of failures in a row.
    pub failures: i32,
    pub next_poll_at: OffsetDateTime,
}

/// Returns the states of all feeds that were ever polled, by name.
pub(super) async fn states(executor: impl PgExecutor<'_>) -> sqlx::Result<HashMap<String, State>> {
    let states = sqlx::query_as!(
        State,
        r#"select name, tournament_id as "tournament_id: TournamentId", basis, etag, digest, polled_at, succeeded_at, changed_at,
                  failed_at, error, failures, next_poll_at
           from feeds"#,
    )
    .fetch_all(executor)
    .await?;
    Ok(states.into_iter().map(|state| (state.name.clone(), state)).collect())
}

pub(super) async fn save(executor: impl PgExecutor<'_>, state: &State) -> sqlx::Result<()> {
    sqlx::query!(
        "insert into feeds (name, tournament_id, basis, etag, digest, polled_at, succeeded_at, changed_at, failed_at, error,
                            failures, next_poll_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
         on conflict (name) do update
           set tournament_id = excluded.tournament_id, basis = excluded.basis, etag = excluded.etag,
               digest = excluded.digest, polled_at = excluded.polled_at, succeeded_at = excluded.succeeded_at,
               changed_at = excluded.changed_at, failed_at = excluded.failed_at, error = excluded.error,
               failures = excluded.failures, next_poll_at = excluded.next_poll_at",
        state.name,
        state.tournament_id.map(|id| id.0),
        state.basis,
        state.etag,
        state.digest,
        state.polled_at,
        state.succeeded_at,
        state.changed_at,
        state.failed_at,
        state.error,
        state.failures,
        state.next_poll_at,
    )
    .execute(executor)
    .await?;
    Ok(())
}

/// Returns the matches of a tournament that start between these times.
pub(super) async fn fixtures(
    executor: impl PgExecutor<'_>,
    tournament: TournamentId,
    from: OffsetDateTime,
    to: OffsetDateTime,
) -> sqlx::Result<Vec<Fixture>> {
    let rows = sqlx::query!(
        "select start_time, status from events where tournament_id = $1 and start_time between $2 and $3",
        tournament.0,
        from,
        to,
    )
    .fetch_all(executor)
    .await?;
    let status = |text: String| text.parse::<Status>().map_err(|error| sqlx::Error::Decode(error.into()));
    rows.into_iter().map(|row| Ok(Fixture { start_time: row.start_time, status: status(row.status)? })).collect()
}

/// Serialises the assignment of slugs to a provider's teams, until the transaction ends.
pub(super) async fn lock_teams(connection: &mut PgConnection, provider: &str) -> sqlx::Result<()> {
    sqlx::query!("select pg_advisory_xact_lock(hashtextextended('matchday feed teams ' || $1, 0))", provider)
        .fetch_one(connection)
        .await?;
    Ok(())
}

/// Returns the slugs of a provider's teams, by the provider's ids.
pub(super) async fn slugs(connection: &mut PgConnection, provider: &str) -> sqlx::Result<HashMap<String, String>> {
    let rows = sqlx::query!("select external_id, slug from feed_teams where provider = $1", provider)
        .fetch_all(connection)
        .await?;
    Ok(rows.into_iter().map(|row| (row.external_id, row.slug)).collect())
}

/// Saves the slugs of teams, as (id, slug).
pub(super) async fn claim_slugs(
    connection: &mut PgConnection,
    provider: &str,
    claims: &[(&str, &str)],
) -> sqlx::Result<()> {
    let ids: Vec<&str> = claims.iter().map(|(id, _)| *id).collect();
    let slugs: Vec<&str> = claims.iter().map(|(_, slug)| *slug).collect();
    sqlx::query!(
        "insert into feed_teams (provider, external_id, slug)
         select $1, external_id, slug from unnest($2::text[], $3::text[]) as t (external_id, slug)",
        provider,
        &ids as &[&str],
        &slugs as &[&str],
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Returns the teams with these slugs, of any sport.
pub(super) async fn teams(executor: impl PgExecutor<'_>, slugs: &[&str]) -> sqlx::Result<HashMap<String, KnownTeam>> {
    let rows = sqlx::query!(
        "select t.slug, s.slug as sport, t.name, t.country, t.founded, t.logo
         from teams t join sports s on s.id = t.sport_id where t.slug = any($1)",
        slugs as &[&str],
    )
    .fetch_all(executor)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| {
            let (sport, name, country, founded, logo) = (row.sport, row.name, row.country, row.founded, row.logo);
            (row.slug, KnownTeam { sport, name, country, founded, logo })
        })
        .collect())
}

/// Returns the stored data for the sport, tournament, teams and matches of a reading.
pub(super) async fn known(connection: &mut PgConnection, reading: &Reading) -> sqlx::Result<Known> {
    let sport = sqlx::query_scalar!("select name from sports where slug = $1", SPORT.0)
        .fetch_optional(&mut *connection)
        .await?;
    let tournament = sqlx::query!("select id, logo from tournaments where slug = $1", reading.tournament.slug)
        .fetch_optional(&mut *connection)
        .await?;
    let slugs: Vec<&str> = reading.teams.iter().map(|team| team.slug.as_str()).collect();
    let teams = teams(&mut *connection, &slugs).await?;
    let keys: Vec<&str> = reading.matches.iter().map(|seen| seen.key.as_str()).collect();
    let mut matches = HashMap::new();
    if let Some(tournament) = &tournament {
        let rows = sqlx::query!(
            "select key, venue, status, home_score, away_score, round, stage, multiplier, is_knockout, advanced
             from events where tournament_id = $1 and key = any($2)",
            tournament.id,
            &keys as &[&str],
        )
        .fetch_all(connection)
        .await?;
        for row in rows {
            let status = row.status.parse::<Status>().map_err(|error| sqlx::Error::Decode(error.into()))?;
            let scores = row.home_score.zip(row.away_score);
            let details = Details {
                round: row.round,
                stage: row.stage,
                multiplier: read_multiplier(row.multiplier)?,
                is_knockout: row.is_knockout,
                advanced: read_side(row.advanced.as_deref())?,
            };
            matches.insert(row.key, KnownMatch { venue: row.venue, status, scores, details });
        }
    }
    Ok(Known { sport, tournament_logo: tournament.and_then(|tournament| tournament.logo), teams, matches })
}
