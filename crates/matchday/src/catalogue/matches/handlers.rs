//! HTTP handlers for matches, tournaments and sports.

use std::sync::Arc;

use axum::{
    Json,
    body::Body,
    extract::{FromRef, State},
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use http::{Method, Request};
use scoring::{Multiplier, Side};
use serde::Serialize;
use time::{Date, OffsetDateTime};
use utoipa::{IntoParams, ToSchema};
use web::{
    ApiError, ErrorBody, Path, Query, Wanted,
    fields::{FromQuery, Parameters, from_parameters},
    ids::{MatchId, RuleSetId, SportId, TeamId, TournamentId},
    page_response,
    paging::{PageMeta, Paging},
};

use super::{
    rules::{PublicStatus, Status},
    service::{Match, MatchFilter, Matches, PageError, Sport, Tournament},
};
use crate::identity::{
    callers::CallerReader,
    sessions::{Authenticates, CurrentUser},
};

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct EventParameters {
    /// Only matches of this tournament.
    #[param(value_type = Option<i64>, minimum = 1)]
    tournament_id: Option<TournamentId>,
    /// Only matches of this team, at home or away.
    #[param(value_type = Option<i64>, minimum = 1)]
    team_id: Option<TeamId>,
    /// Only matches that start on this UTC day.
    #[param(value_type = Option<String>, format = Date, example = "2026-11-20")]
    date: Option<Date>,
    /// Only matches in this state.
    status: Option<PublicStatus>,
}

from_parameters!(EventParameters { tournament_id, team_id, date, status });

impl From<EventParameters> for MatchFilter {
    fn from(EventParameters { tournament_id, team_id, date, status }: EventParameters) -> Self {
        Self { tournament_id, team_id, date, status }
    }
}

impl FromQuery for PublicStatus {
    const EXPECTED: &'static str = "must be scheduled, live or finished";

    fn from_query(text: &str) -> Option<Self> {
        match text {
            "scheduled" => Some(Self::Scheduled),
            "live" => Some(Self::Live),
            "finished" => Some(Self::Finished),
            _ => None,
        }
    }
}

fn page_failed(error: Arc<PageError>) -> ApiError {
    match &*error {
        PageError::Database(database) => ApiError::database(database).because(Arc::clone(&error)),
        PageError::Render(_) => ApiError::internal(error),
    }
}

#[derive(Serialize, ToSchema)]
#[schema(as = EventList)]
pub(super) struct MatchList {
    data: Vec<MatchItem>,
    meta: PageMeta,
}

#[derive(Serialize, ToSchema)]
#[schema(as = EventAnswer)]
pub(super) struct MatchResponse {
    data: MatchItem,
}

/// A match with its tournament, teams and score.
#[derive(Serialize, ToSchema)]
#[schema(as = Event)]
struct MatchItem {
    id: MatchId,
    tournament_id: TournamentId,
    tournament: TournamentPart,
    home_team: TeamPart,
    away_team: TeamPart,
    #[serde(with = "platform::timestamp")]
    #[schema(example = "2026-11-20T15:00:00.000Z")]
    start_time: OffsetDateTime,
    status: PublicStatus,
    /// Detailed state behind `status`. For example, `postponed` is shown as `scheduled`.
    status_detail: Status,
    #[schema(example = "Park")]
    venue: String,
    #[schema(required, example = 2)]
    home_score: Option<i32>,
    #[schema(required, example = 1)]
    away_score: Option<i32>,
    /// Matrix id of the match's chat room; null until the room is open.
    #[schema(required)]
    chat_room_id: Option<String>,
    #[schema(example = 1204)]
    predictions_count: i64,
    /// Values by which points of this match are computed. Never changes.
    rule_set_id: RuleSetId,
    /// Orders the rounds of a tournament.
    #[schema(required, minimum = 1, maximum = 999, example = 7)]
    round: Option<i16>,
    /// Slug of the stage, such as `group` or `final`.
    #[schema(required, example = "final")]
    stage: Option<String>,
    /// Factor for all points of this match: 1, 1.5, 2 or 3.
    #[schema(value_type = f64, example = 1)]
    multiplier: Multiplier,
    /// Whether one of the teams advances.
    is_knockout: bool,
    /// Team that advanced; null until it is known, and if this is not a knockout match.
    #[schema(required)]
    advanced: Option<Side>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = EventTournament)]
struct TournamentPart {
    id: TournamentId,
    #[schema(example = "Cup 2026")]
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = String, example = "https://cdn.example.org/cup.png")]
    logo: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = EventTeam)]
struct TeamPart {
    id: TeamId,
    #[schema(example = "Rovers")]
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = String, example = "https://cdn.example.org/rovers.png")]
    logo: Option<String>,
}

impl From<(TeamId, String, Option<String>)> for TeamPart {
    fn from((id, name, logo): (TeamId, String, Option<String>)) -> Self {
        Self { id, name, logo }
    }
}

impl From<Match> for MatchItem {
    fn from(event: Match) -> Self {
        Self {
            id: event.id,
            tournament_id: event.tournament_id,
            tournament: TournamentPart {
                id: event.tournament_id,
                name: event.tournament_name,
                logo: event.tournament_logo,
            },
            home_team: event.home_team.into(),
            away_team: event.away_team.into(),
            start_time: event.start_time,
            status: event.status.public(),
            status_detail: event.status,
            venue: event.venue,
            home_score: event.home_score,
            away_score: event.away_score,
            chat_room_id: event.chat_room_id,
            predictions_count: event.predictions_count,
            rule_set_id: event.rule_set_id,
            round: event.details.round,
            stage: event.details.stage,
            multiplier: event.details.multiplier,
            is_knockout: event.details.is_knockout,
            advanced: event.details.advanced,
        }
    }
}

/// List matches.
///
/// Live matches come first, with the latest start first. Matches that can still be played follow, with the earliest
/// start first: scheduled and postponed matches that start later than three hours ago. All others come last, with the
/// latest start first. Matches with the same start are ordered by id.
///
/// The list may lag behind a change by up to two seconds. The response carries an `ETag`; a request with a matching
/// `If-None-Match` gets a 304.
#[utoipa::path(get, path = "/api/auth/events", tag = "Events", security(("token" = [])),
    params(EventParameters, Paging),
    responses(
        (status = 200, body = MatchList, headers(("ETag" = String, description = "Weak validator of the page"))),
        (status = 304, description = "The page has not changed since the one with this `ETag`"),
    ))]
pub(super) async fn list_events(
    State(events): State<Arc<Matches>>,
    _: CurrentUser,
    Query((filter, paging)): Query<(EventParameters, Paging)>,
    wanted: Wanted,
) -> Result<Response, ApiError> {
    let render = |events: Vec<Match>, total| {
        let data = events.into_iter().map(MatchItem::from).collect();
        serde_json::to_vec(&MatchList { data, meta: paging.meta(total) }).map(Bytes::from)
    };
    let page = events.page(filter.into(), paging, render).await.map_err(page_failed)?;
    Ok(page_response(&page, &wanted))
}

/// Does the same as [`list_events`] for a request whose token and page are cached, which are most of all requests.
pub(super) fn list_events_from_memory<S: Authenticates>(state: &S, request: &Request<Body>) -> Option<Response>
where
    Arc<Matches>: FromRef<S>,
{
    if request.method() != Method::GET {
        return None;
    }
    let query = request.uri().query().unwrap_or_default();
    let (filter, paging) = Parameters::parse::<(EventParameters, Paging)>(query).ok()?;
    let page = Arc::<Matches>::from_ref(state).ready_page(filter.into(), paging)?;
    Some(match CurrentUser::from_memory(request.headers(), state)? {
        Ok(_) => page_response(&page, &Wanted::of(request.headers())),
        Err(refusal) => refusal.into_response(),
    })
}

/// Show a single match.
#[utoipa::path(get, path = "/api/auth/events/{event}", tag = "Events", security(("token" = [])),
    params(("event" = MatchId, Path, description = "Id of the match, as returned by the list")),
    responses(
        (status = 200, body = MatchResponse),
        (status = 404, description = "The match does not exist", body = ErrorBody),
    ))]
pub(super) async fn get_event(
    State(events): State<Arc<Matches>>,
    _: CurrentUser,
    Path(id): Path<MatchId>,
) -> Result<Json<MatchResponse>, ApiError> {
    let event = events.find(id).await?.ok_or_else(|| ApiError::not_found("The event"))?;
    Ok(Json(MatchResponse { data: event.into() }))
}

#[derive(Serialize, ToSchema)]
pub(super) struct TournamentList {
    data: Vec<TournamentItem>,
    meta: PageMeta,
}

/// A tournament of one sport.
#[derive(Serialize, ToSchema)]
#[schema(as = Tournament)]
struct TournamentItem {
    id: TournamentId,
    sport_id: SportId,
    #[schema(example = "Cup 2026")]
    name: String,
    #[schema(example = "cup_2026")]
    slug: String,
    #[schema(required, example = "https://cdn.example.org/cup.png")]
    logo: Option<String>,
}

/// List tournaments, sorted by name.
#[utoipa::path(get, path = "/api/auth/tournaments", tag = "Events", security(("token" = [])),
    params(Paging), responses((status = 200, body = TournamentList)))]
pub(super) async fn list_tournaments(
    State(events): State<Arc<Matches>>,
    _: CurrentUser,
    CallerReader(reader): CallerReader,
    Query(paging): Query<Paging>,
) -> Result<Json<TournamentList>, ApiError> {
    let (tournaments, total) = events.tournaments(&reader, paging).await?;
    let item = |Tournament { id, sport_id, slug, name, logo }| TournamentItem { id, sport_id, name, slug, logo };
    Ok(Json(TournamentList { data: tournaments.into_iter().map(item).collect(), meta: paging.meta(total) }))
}

#[derive(Serialize, ToSchema)]
pub(super) struct SportList {
    data: Vec<SportItem>,
    meta: PageMeta,
}

/// A sport that tournaments and teams belong to.
#[derive(Serialize, ToSchema)]
#[schema(as = Sport)]
struct SportItem {
    id: SportId,
    #[schema(example = "Football")]
    name: String,
    #[schema(example = "football")]
    slug: String,
    /// Whether a match can end in a draw, and a draw be predicted.
    #[schema(example = true)]
    draws_allowed: bool,
    /// Highest score of a team that can be predicted.
    #[schema(minimum = 1, maximum = 999, example = 99)]
    max_score: i16,
}

/// List sports, sorted by name.
#[utoipa::path(get, path = "/api/auth/sports", tag = "Events", security(("token" = [])),
    params(Paging), responses((status = 200, body = SportList)))]
pub(super) async fn list_sports(
    State(events): State<Arc<Matches>>,
    _: CurrentUser,
    CallerReader(reader): CallerReader,
    Query(paging): Query<Paging>,
) -> Result<Json<SportList>, ApiError> {
    let (sports, total) = events.sports(&reader, paging).await?;
    let item =
        |Sport { id, slug, name, draws_allowed, max_score }| SportItem { id, name, slug, draws_allowed, max_score };
    Ok(Json(SportList { data: sports.into_iter().map(item).collect(), meta: paging.meta(total) }))
}
