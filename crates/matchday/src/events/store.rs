//! The SQL of matches, tournaments and sports.

use sqlx::PgExecutor;
use time::{Duration, OffsetDateTime, Time};

use super::{
    rules::{PublicStatus, Status},
    service::{Event, EventFilter, Sport, Tournament},
};
use crate::{
    http::paging::Paging,
    ids::{EventId, SportId, TeamId, TournamentId},
};

/// An event as it is read; the status is still text.
struct Row {
    id: EventId,
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
    predictions_count: i64,
    chat_room_id: Option<String>,
}

impl TryFrom<Row> for Event {
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
            predictions_count: row.predictions_count,
            chat_room_id: row.chat_room_id,
        })
    }
}

/// A UTC day as the moments it begins and ends.
fn day(filter: &EventFilter) -> (Option<OffsetDateTime>, Option<OffsetDateTime>) {
    let begins = filter.date.map(|date| date.with_time(Time::MIDNIGHT).assume_utc());
    (begins, begins.map(|begins| begins.checked_add(Duration::DAY).unwrap_or(begins)))
}

pub(super) async fn list(
    executor: impl PgExecutor<'_>,
    filter: &EventFilter,
    paging: Paging,
) -> sqlx::Result<Vec<Event>> {
    select(executor, filter, None, paging.limit(), paging.offset()).await
}

pub(super) async fn find(executor: impl PgExecutor<'_>, id: EventId) -> sqlx::Result<Option<Event>> {
    Ok(select(executor, &EventFilter::default(), Some(id), 1, 0).await?.pop())
}

async fn select(
    executor: impl PgExecutor<'_>,
    filter: &EventFilter,
    id: Option<EventId>,
    limit: i64,
    offset: i64,
) -> sqlx::Result<Vec<Event>> {
    let (begins, ends) = day(filter);
    // The page is cut before anything is joined to it, so that its cost does not grow with the catalogue.
    let rows = sqlx::query_as!(
        Row,
        r#"select e.id as "id: EventId", e.start_time, e.venue, e.status, e.home_score, e.away_score,
                  t.id as "tournament_id: TournamentId", t.name as tournament_name, t.logo as tournament_logo,
                  h.id as "home_id: TeamId", h.name as home_name, h.logo as home_logo,
                  a.id as "away_id: TeamId", a.name as away_name, a.logo as away_logo,
                  coalesce((select sum(home + draw + away) from event_tallies where event_id = e.id), 0)::bigint as "predictions_count!",
                  r.matrix_id as "chat_room_id?"
           from (select * from events
                 where ($1::bigint is null or tournament_id = $1)
                   and ($2::bigint is null or home_team_id = $2 or away_team_id = $2)
                   and ($3::smallint is null or phase = $3)
                   and ($4::timestamptz is null or (start_time >= $4 and start_time < $5))
                   and ($6::bigint is null or id = $6)
                 order by phase, list_order, id
                 limit $7 offset $8) e
           join tournaments t on t.id = e.tournament_id
           join teams h on h.id = e.home_team_id
           join teams a on a.id = e.away_team_id
           left join rooms r on r.event_id = e.id and r.stand = 1 and r.opened_at is not null
           order by e.phase, e.list_order, e.id"#,
        filter.tournament_id.map(|id| id.0),
        filter.team_id.map(|id| id.0),
        filter.status.map(PublicStatus::phase),
        begins,
        ends,
        id.map(|id| id.0),
        limit,
        offset,
    )
    .fetch_all(executor)
    .await?;
    rows.into_iter().map(Event::try_from).collect()
}

pub(super) async fn count(executor: impl PgExecutor<'_>, filter: &EventFilter) -> sqlx::Result<i64> {
    let (begins, ends) = day(filter);
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
        r#"select id as "id: SportId", slug, name from sports order by name, id limit $1 offset $2"#,
        paging.limit(),
        paging.offset(),
    )
    .fetch_all(executor)
    .await
}

pub(super) async fn count_sports(executor: impl PgExecutor<'_>) -> sqlx::Result<i64> {
    sqlx::query_scalar!(r#"select count(*) as "count!" from sports"#).fetch_one(executor).await
}
