//! Imports of fixture documents, and results.

use axum::{Json, extract::State};
use web::{ApiError, ErrorBody, Path, Query, RawBody, ValidJson, ids::MatchId};

use super::users::LateJson;
use crate::{
    catalogue::fixtures::{
        handlers::{ImportParameters, Imported, ResultBody, ResultSaved, import_catalogue},
        service::Fixtures,
    },
    identity::server_keys::{Authorized, scopes::CatalogueWrite},
};

/// Import a fixture document.
///
/// The document is the one of `matchday fixtures import`: a tournament with its teams, matches, results, questions and
/// rules. It is imported completely or not at all. A dry run reports the same faults and counts, and writes nothing. Chat
/// rooms of new matches are created afterwards. At most 4 MiB.
#[utoipa::path(post, path = "/api/server/v1/catalogue/import", tag = "Catalogue", params(ImportParameters),
    request_body(content = Object, description = "Fixture document"),
    responses(
        (status = 200, body = Imported),
        (status = 413, description = "The document is too large", body = ErrorBody),
    ))]
pub(super) async fn import_fixtures(
    caller: Authorized<CatalogueWrite>,
    State(fixtures): State<Fixtures>,
    Query(parameters): Query<ImportParameters>,
    RawBody(body): RawBody,
) -> Result<Json<Imported>, ApiError> {
    import_catalogue(&fixtures, &caller.operator(""), parameters, &body).await
}

/// Set the status and score of a match.
///
/// Points, leaderboards and coins follow within seconds. A result can be corrected and taken back.
#[utoipa::path(put, path = "/api/server/v1/events/{event}/result", tag = "Catalogue",
    params(("event" = MatchId, Path, description = "Id of the match")),
    request_body = ResultBody,
    responses(
        (status = 200, body = ResultSaved),
        (status = 404, description = "The match does not exist", body = ErrorBody),
        (status = 409, description = "`event_changed`: the result has another revision than `expected_revision`", body = ErrorBody),
    ))]
pub(super) async fn set_result(
    caller: Authorized<CatalogueWrite>,
    State(fixtures): State<Fixtures>,
    Path(event): Path<MatchId>,
    body: LateJson<ResultBody>,
) -> Result<Json<ResultSaved>, ApiError> {
    fixtures.check_match(event).await?;
    let ValidJson(body) = body?;
    crate::catalogue::fixtures::handlers::set_result(&fixtures, &caller.operator(""), event, &body).await
}
