//! SQL queries for matches, tournaments and sports.

use scoring::{Outcome, Side};
use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;
use web::{
    ids::{MatchId, RuleSetId, SportId, TeamId, TournamentId},
    paging::Paging,
};

use super::{
    columns::read_side,
    results::NewResult,
    rules::{self, Details, PublicStatus, Run, Status},
    service::{MatchFilter, Sport, Tournament},
};
use crate::catalogue::rule_sets::columns::read_multiplier;

/// A match with the details of its tournament and teams that lists show.
#[derive(Clone, Debug)]
pub struct Match {
    pub id: MatchId,
    pub tournament_id: TournamentId,
    pub tournament_name: String,
    /// URL of the tournament's logo.
    pub tournament_logo: Option<String>,
    /// Id, name and logo URL.
    pub home_team: (TeamId, String, Option<String>),
    /// Id, name and logo URL.
    pub away_team: (TeamId, String, Option<String>),
    pub start_time: OffsetDateTime,
    pub venue: String,
    pub status: Status,
    pub home_score: Option<i32>,
    pub away_score: Option<i32>,
    pub rule_set_id: RuleSetId,
    pub details: Details,
    pub predictions_count: i64,
    /// Matrix id of the first chat room, once it is open.
    pub chat_room_id: Option<String>,
}

/// Database row of a match, with the status as text.
struct Row {
    id: MatchId,
    tournament_id: TournamentId,
    tournament_name: String,
    tournament_logo: Option<String>,
    home_id: TeamId,
    home_name: String,
    home_logo: Option<String>,
    away_id: TeamId,
    away_name: String,
    away_logo: Option<String>,
    start_time: OffsetDateTime,
    venue: String,
    status: String,
    home_score: Option<i32>,
    away_score: Option<i32>,
    rule_set_id: RuleSetId,
    round: Option<i16>,
    stage: Option<String>,
    multiplier: i16,
    is_knockout: bool,
    advanced: Option<String>,
    predictions_count: i64,
    chat_room_id: Option<String>,
}

impl TryFrom<Row> for Match {
    type Error = sqlx::Error;

    fn try_from(row: Row) -> Result<Self, sqlx::Error> {
        let status = row.status.parse::<Status>().map_err(|error| sqlx::Error::Decode(error.into()))?;
        Ok(Self {
            id: row.id,
            tournament_id: row.tournament_id,
            tournament_name: row.tournament_name,
            tournament_logo: row.tournament_logo,
            home_team: (row.home_id, row.home_name, row.home_logo),
            away_team: (row.away_id, row.away_name, row.away_logo),
            start_time: row.start_time,
            venue: row.venue,
            status,
            home_score: row.home_score,
            away_score: row.away_score,
            rule_set_id: row.rule_set_id,
            details: Details {
                round: row.round,
                stage: row.stage,
                multiplier: read_multiplier(row.multiplier)?,
                is_knockout: row.is_knockout,
                advanced: read_side(row.advanced.as_deref())?,
            },
            predictions_count: row.predictions_count,
            chat_room_id: row.chat_room_id,
        })
    }
}

/// Begins a transaction in which a page and its total count are consistent. `list.sql` is planned for its parameters
/// each time: a generic plan cannot assume that most filters are unset, and would sort whole tables.
pub(super) const SNAPSHOT: &str =
    "begin isolation level repeatable read read only; set local plan_cache_mode = force_custom_plan";

/// Returns a page of the match list; see `list.sql`.
pub(super) async fn list(
    executor: impl PgExecutor<'_>,
    filter: &MatchFilter,
    runs: &[Run],
    paging: Paging,
) -> sqlx::Result<Vec<Match>> {
    let sections: Vec<i16> = runs.iter().map(|run| run.section.rank()).collect();
    let are_ascending: Vec<bool> = runs.iter().map(|run| run.section.is_ascending()).collect();
    let statuses: Vec<String> = runs.iter().map(|run| run.status.name().to_owned()).collect();
    let since: Vec<OffsetDateTime> = runs.iter().map(|run| run.since).collect();
    let until: Vec<OffsetDateTime> = runs.iter().map(|run| run.until).collect();
    let rows = sqlx::query_file_as!(
        Row,
        "src/catalogue/matches/list.sql",
        &sections,
        &are_ascending,
        &statuses,
        &since,
        &until,
        filter.tournament_id.map(|id| id.0),
        filter.team_id.map(|id| id.0),
        paging.limit(),
        paging.offset(),
        paging.offset().saturating_add(paging.limit()),
    )
    .fetch_all(executor)
    .await?;
    rows.into_iter().map(Match::try_from).collect()
}

pub(super) async fn find(executor: impl PgExecutor<'_>, id: MatchId) -> sqlx::Result<Option<Match>> {
    let row = sqlx::query_as!(
        Row,
        r#"select e.id as "id: MatchId", e.start_time, e.venue, e.status, e.home_score, e.away_score,
                  e.rule_set_id as "rule_set_id: RuleSetId", e.round, e.stage, e.multiplier, e.is_knockout, e.advanced,
                  t.id as "tournament_id: TournamentId", t.name as tournament_name, t.logo as tournament_logo,
                  h.id as "home_id: TeamId", h.name as home_name, h.logo as home_logo,
                  a.id as "away_id: TeamId", a.name as away_name, a.logo as away_logo,
                  coalesce((select sum(home + draw + away) from event_tallies where event_id = e.id), 0)::bigint as "predictions_count!",
                  r.matrix_id as "chat_room_id?"
           from events e
           join tournaments t on t.id = e.tournament_id
           join teams h on h.id = e.home_team_id
           join teams a on a.id = e.away_team_id
           left join rooms r on r.event_id = e.id and r.stand = 1 and r.opened_at is not null
           where e.id = $1"#,
        id.0,
    )
    .fetch_optional(executor)
    .await?;
    row.map(Match::try_from).transpose()
}

pub(super) async fn count(executor: impl PgExecutor<'_>, filter: &MatchFilter) -> sqlx::Result<i64> {
    let (begins, ends) = filter.date.map(rules::day).unzip();
    sqlx::query_scalar!(
        r#"select count(*) as "count!" from events
           where ($1::bigint is null or tournament_id = $1)
             and ($2::bigint is null or home_team_id = $2 or away_team_id = $2)
             and ($3::smallint is null or phase = $3)
             and ($4::timestamptz is null or (start_time >= $4 and start_time < $5))"#,
        filter.tournament_id.map(|id| id.0),
        filter.team_id.map(|id| id.0),
        filter.status.map(PublicStatus::phase),
        begins,
        ends,
    )
    .fetch_one(executor)
    .await
}

pub(super) async fn tournaments(executor: impl PgExecutor<'_>, paging: Paging) -> sqlx::Result<Vec<Tournament>> {
    sqlx::query_as!(
        Tournament,
        r#"select id as "id: TournamentId", sport_id as "sport_id: SportId", slug, name, logo
           from tournaments order by name, id limit $1 offset $2"#,
        paging.limit(),
        paging.offset(),
    )
    .fetch_all(executor)
    .await
}

pub(super) async fn count_tournaments(executor: impl PgExecutor<'_>) -> sqlx::Result<i64> {
    sqlx::query_scalar!(r#"select count(*) as "count!" from tournaments"#).fetch_one(executor).await
}

pub(super) async fn sports(executor: impl PgExecutor<'_>, paging: Paging) -> sqlx::Result<Vec<Sport>> {
    sqlx::query_as!(
        Sport,
        r#"select id as "id: SportId", slug, name, draws_allowed, max_score
           from sports order by name, id limit $1 offset $2"#,
        paging.limit(),
        paging.offset(),
    )
    .fetch_all(executor)
    .await
}

pub(super) async fn count_sports(executor: impl PgExecutor<'_>) -> sqlx::Result<i64> {
    sqlx::query_scalar!(r#"select count(*) as "count!" from sports"#).fetch_one(executor).await
}

/// Time after which a result that is still not applied is checked again, in case its score job was lost.
const PATIENCE_SECONDS: f64 = 120.0;

pub(super) async fn insert_results(connection: &mut PgConnection, results: &[NewResult]) -> sqlx::Result<()> {
    let score = |result: &NewResult| match result.outcome {
        Outcome::Result { home, away, advanced } => Some((home, away, advanced)),
        Outcome::Open | Outcome::Void => None,
    };
    let scores: Vec<Option<(i32, i32, Option<Side>)>> = results.iter().map(score).collect();
    let events: Vec<i64> = results.iter().map(|result| result.event.0).collect();
    let revisions: Vec<i64> = results.iter().map(|result| result.revision).collect();
    let homes: Vec<Option<i32>> = scores.iter().map(|score| score.map(|(home, ..)| home)).collect();
    let aways: Vec<Option<i32>> = scores.iter().map(|score| score.map(|(_, away, _)| away)).collect();
    let advanced: Vec<Option<&str>> = scores.iter().map(|score| Some(score.as_ref()?.2?.name())).collect();
    let starts: Vec<OffsetDateTime> = results.iter().map(|result| result.start_time).collect();
    let rounds: Vec<Option<i16>> = results.iter().map(|result| result.round).collect();
    let multipliers: Vec<i16> = results.iter().map(|result| result.multiplier.halves()).collect();
    let knockouts: Vec<bool> = results.iter().map(|result| result.is_knockout).collect();
    let statuses: Vec<&str> = results.iter().map(|result| result.status.name()).collect();
    let pending: Vec<bool> = results.iter().map(|result| result.may_be_predicted).collect();
    sqlx::query!(
        "insert into event_results (event_id, revision, home_score, away_score, advanced, start_time, round, multiplier,
                                    is_knockout, status, recorded_at, look_again_at, applied_at)
         select event_id, revision, home_score, away_score, advanced, start_time, round, multiplier, is_knockout, status,
                statement_timestamp(), statement_timestamp() + make_interval(secs => $11),
                case when not pending then statement_timestamp() end
         from unnest($1::bigint[], $2::bigint[], $3::integer[], $4::integer[], $5::text[], $6::timestamptz[], $7::smallint[],
                     $8::smallint[], $9::boolean[], $10::boolean[], $12::text[])
           as r (event_id, revision, home_score, away_score, advanced, start_time, round, multiplier, is_knockout, pending,
                 status)",
        &events,
        &revisions,
        &homes as &[Option<i32>],
        &aways as &[Option<i32>],
        &advanced as &[Option<&str>],
        &starts,
        &rounds as &[Option<i16>],
        &multipliers,
        &knockouts,
        &pending,
        PATIENCE_SECONDS,
        &statuses as &[&str],
    )
    .execute(connection)
    .await?;
    Ok(())
}
