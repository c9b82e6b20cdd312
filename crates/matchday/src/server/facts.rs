//! The log of facts.

use axum::extract::State;
use web::{ApiError, ErrorBody, Query};

use crate::{
    delivery::facts::{
        handlers::{FactList, FactParameters, read_page},
        service::{Facts, Page},
    },
    identity::server_keys::{Authorized, scopes::ExportRead},
};

/// Read the log of facts.
///
/// Facts have one total order. A caller that stores `next_after` together with the facts and continues from it sees every
/// fact exactly once. A fact is visible within five seconds of its change and kept for 30 days.
#[utoipa::path(get, path = "/api/server/v1/facts", tag = "Facts", params(FactParameters),
    responses(
        (status = 200, body = FactList),
        (status = 410, description = "The position is older than the facts that are kept", body = ErrorBody),
    ))]
pub(super) async fn list_facts(
    _: Authorized<ExportRead>,
    State(facts): State<Facts>,
    Query(parameters): Query<FactParameters>,
) -> Result<Page, ApiError> {
    read_page(&facts, parameters).await
}
