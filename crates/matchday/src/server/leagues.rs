//! Members of leagues.

use axum::{Json, extract::State};
use serde::Serialize;
use utoipa::ToSchema;
use web::{ApiError, ErrorBody, Path, SecondPath, ValidJson, ids::LeagueId};

use super::users::{LateJson, ReasonBody, ReasonText, named};
use crate::{
    game::leagues::service::Leagues,
    identity::{
        accounts::service::Accounts,
        server_keys::{Authorized, scopes::LeaguesWrite},
    },
};

#[derive(Serialize, ToSchema)]
pub(super) struct MemberRemoved {
    #[schema(example = "The member was removed.")]
    message: &'static str,
}

/// Remove a member from a league, who cannot join again.
#[utoipa::path(delete, path = "/api/server/v1/leagues/{league}/members/{user}", tag = "Leagues",
    params(
        ("league" = LeagueId, Path, description = "Id of the league"),
        ("user" = String, Path, description = "User id or username", example = "12"),
    ),
    request_body = ReasonBody,
    responses(
        (status = 200, body = MemberRemoved),
        (status = 404, description = "The league does not exist, or the user is not a member", body = ErrorBody),
    ))]
pub(super) async fn remove_member(
    caller: Authorized<LeaguesWrite>,
    State(accounts): State<Accounts>,
    State(leagues): State<Leagues>,
    Path(league): Path<LeagueId>,
    SecondPath(user): SecondPath<String>,
    body: LateJson<ReasonBody>,
) -> Result<Json<MemberRemoved>, ApiError> {
    let account = named(&accounts, &user).await?;
    leagues.check_member(league, account.id).await?;
    let ValidJson(ReasonBody { reason: ReasonText(reason) }) = body?;
    leagues.remove_by(league, account.id, &caller.operator(reason)).await?;
    Ok(Json(MemberRemoved { message: "The member was removed." }))
}
