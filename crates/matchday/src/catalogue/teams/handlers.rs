//! HTTP handlers for teams.

use axum::{Json, extract::State};
use serde::Serialize;
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use web::{
    ApiError, ErrorBody, Query, ValidJson,
    fields::{FromJson, Search, from_body, from_parameters},
    ids::{SportId, TeamId},
    paging::{PageMeta, Paging},
};

use super::service::{Favourite, MOST_OTHERS, SaveError, Team, TeamFilter, Teams};
use crate::identity::{callers::CallerReader, sessions::CurrentUser};

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct TeamParameters {
    /// Only teams of this sport.
    #[param(value_type = Option<i64>, minimum = 1)]
    sport_id: Option<SportId>,
    /// Only teams whose name contains this text, ignoring case.
    #[param(value_type = Option<String>, max_length = 100, pattern = r"^[^\x00]*$", example = "rovers")]
    search: Option<Search>,
}

from_parameters!(TeamParameters { sport_id, search });

impl From<TeamParameters> for TeamFilter {
    fn from(TeamParameters { sport_id, search }: TeamParameters) -> Self {
        Self { sport_id, search }
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct TeamList {
    data: Vec<TeamItem>,
    meta: PageMeta,
}

/// A team and its sport.
#[derive(Serialize, ToSchema)]
#[schema(as = Team)]
struct TeamItem {
    id: TeamId,
    #[schema(example = "Rovers")]
    name: String,
    #[schema(example = "rovers")]
    slug: String,
    sport_id: SportId,
    sport: SportItem,
    #[schema(required, example = "https://cdn.example.org/rovers.png")]
    logo: Option<String>,
    #[schema(required, example = "England")]
    country: Option<String>,
    #[schema(required, example = 1886)]
    founded: Option<i32>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = TeamSport)]
struct SportItem {
    id: SportId,
    #[schema(example = "Football")]
    name: String,
    #[schema(example = "football")]
    slug: String,
}

impl From<Team> for TeamItem {
    fn from(team: Team) -> Self {
        Self {
            id: team.id,
            name: team.name,
            slug: team.slug,
            sport_id: team.sport_id,
            sport: SportItem { id: team.sport_id, name: team.sport_name, slug: team.sport_slug },
            logo: team.logo,
            country: team.country,
            founded: team.founded,
        }
    }
}

/// A team that a user marked as a favourite.
#[derive(Serialize, ToSchema)]
#[schema(as = FavouriteTeam)]
pub(crate) struct FavouriteItem {
    id: TeamId,
    #[schema(example = "Rovers")]
    name: String,
    #[schema(required, example = "https://cdn.example.org/rovers.png")]
    logo: Option<String>,
}

impl From<Favourite> for FavouriteItem {
    fn from(team: Favourite) -> Self {
        Self { id: team.id, name: team.name, logo: team.logo }
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct PrimarySaved {
    #[schema(example = "Primary team saved.")]
    message: &'static str,
    data: PrimaryTeam,
}

#[derive(Serialize, ToSchema)]
struct PrimaryTeam {
    team: FavouriteItem,
}

#[derive(Serialize, ToSchema)]
pub(super) struct OthersSaved {
    #[schema(example = "Other teams saved.")]
    message: &'static str,
    data: OtherTeams,
}

#[derive(Serialize, ToSchema)]
struct OtherTeams {
    teams: Vec<FavouriteItem>,
}

#[derive(ToSchema)]
pub(super) struct PrimaryTeamRequest {
    team_id: TeamId,
}

from_body!(PrimaryTeamRequest { team_id });

#[derive(ToSchema)]
pub(super) struct OtherTeamsRequest {
    /// At most five different teams, in order of preference. An empty list clears the selection.
    #[schema(value_type = std::collections::BTreeSet<TeamId>, max_items = 5, example = json!([3, 1, 2]))]
    team_ids: TeamIds,
}

from_body!(OtherTeamsRequest { team_ids });

/// Up to five different teams.
struct TeamIds(Vec<TeamId>);

impl FromJson for TeamIds {
    const EXPECTED: &'static str = "must be a list of at most 5 different team ids";

    fn from_json(value: &Value) -> Option<Self> {
        let ids = value.as_array()?.iter().map(TeamId::from_json).collect::<Option<Vec<_>>>()?;
        let repeated = ids.iter().enumerate().any(|(at, id)| ids[..at].contains(id));
        (ids.len() <= MOST_OTHERS && !repeated).then_some(Self(ids))
    }
}

impl From<SaveError> for ApiError {
    fn from(error: SaveError) -> Self {
        match error {
            SaveError::NoSuchTeam => Self::not_found("The team"),
            SaveError::NoSuchTeams => Self::invalid_field("team_ids", "must name existing teams"),
            SaveError::Database(error) => error.into(),
        }
    }
}

/// List teams, sorted by name.
#[utoipa::path(get, path = "/api/auth/teams", tag = "Teams", security(("token" = [])),
    params(TeamParameters, Paging), responses((status = 200, body = TeamList)))]
pub(super) async fn list_teams(
    State(teams): State<Teams>,
    _: CurrentUser,
    CallerReader(reader): CallerReader,
    Query((filter, paging)): Query<(TeamParameters, Paging)>,
) -> Result<Json<TeamList>, ApiError> {
    let (teams, total) = teams.list(&reader, &filter.into(), paging).await?;
    Ok(Json(TeamList { data: teams.into_iter().map(TeamItem::from).collect(), meta: paging.meta(total) }))
}

/// Save the caller's primary team.
#[utoipa::path(post, path = "/api/auth/teams/primary", tag = "Teams", security(("token" = [])),
    request_body = PrimaryTeamRequest,
    responses(
        (status = 200, body = PrimarySaved),
        (status = 404, description = "The team does not exist", body = ErrorBody),
    ))]
pub(super) async fn save_primary_team(
    State(teams): State<Teams>,
    user: CurrentUser,
    ValidJson(choice): ValidJson<PrimaryTeamRequest>,
) -> Result<Json<PrimarySaved>, ApiError> {
    let team = teams.save_primary(user.id, choice.team_id).await?;
    Ok(Json(PrimarySaved { message: "Primary team saved.", data: PrimaryTeam { team: team.into() } }))
}

/// Replace the caller's other favourite teams.
#[utoipa::path(post, path = "/api/auth/teams/other", tag = "Teams", security(("token" = [])),
    request_body = OtherTeamsRequest, responses((status = 200, body = OthersSaved)))]
pub(super) async fn save_other_teams(
    State(teams): State<Teams>,
    user: CurrentUser,
    ValidJson(choice): ValidJson<OtherTeamsRequest>,
) -> Result<Json<OthersSaved>, ApiError> {
    let teams = teams.save_others(user.id, &choice.team_ids.0).await?;
    let teams = teams.into_iter().map(FavouriteItem::from).collect();
    Ok(Json(OthersSaved { message: "Other teams saved.", data: OtherTeams { teams } }))
}
