//! The log of facts in the server API.

use axum::response::{IntoResponse, Response};
use http::header;
use serde::Serialize;
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use web::{
    ApiError,
    fields::{FromParameters, FromQuery, Parameters},
};

use super::{
    rules::After,
    service::{Facts, FactsError, Page},
};

/// Facts per page if the client does not say.
const USUAL: i64 = 100;
/// Maximum number of facts per page. Larger values are reduced to it.
const MOST: i64 = 1_000;

/// Part of the log to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct FactParameters {
    /// Value of `next_after` in an earlier response, or `latest` for the end of the log. Absent: the oldest fact that is
    /// kept.
    #[param(value_type = Option<String>, pattern = "^(latest|[A-Za-z0-9_-]{16})$", example = "latest")]
    after: Option<After>,
    /// Number of facts to return. Values above 1000 are treated as 1000.
    #[param(value_type = Option<i64>, minimum = 1, default = 100, example = 1000)]
    per_page: i64,
}

impl FromParameters for FactParameters {
    fn from_parameters(parameters: &mut Parameters<'_>) -> Option<Self> {
        let (after, per_page) = (parameters.optional("after"), parameters.optional::<PerPage>("per_page"));
        Some(Self { after: after?, per_page: per_page?.map_or(USUAL, |PerPage(number)| number) })
    }
}

struct PerPage(i64);

impl FromQuery for PerPage {
    const EXPECTED: &'static str = "must be a positive integer";

    fn from_query(text: &str) -> Option<Self> {
        text.parse().ok().filter(|&number: &i64| number >= 1).map(|number| Self(number.min(MOST)))
    }
}

/// A page of the log of facts. Only describes the response, whose items are stored as JSON.
#[derive(Serialize, ToSchema)]
pub struct FactList {
    data: Vec<FactItem>,
    meta: FactMeta,
}

/// Something that happened.
#[derive(Serialize, ToSchema)]
#[schema(as = Fact)]
struct FactItem {
    /// Equals the `webhook-id` of the webhook message about the same fact.
    #[schema(example = "msg_4711-1795186800500000")]
    id: String,
    /// `event.created`, `event.changed`, `event.result`, `event.sealed`, `scores.updated`, `user.registered` or `user.deleted`. Ignore
    /// types that you do not know.
    #[serde(rename = "type")]
    #[schema(example = "scores.updated")]
    kind: String,
    /// Time of the change.
    #[schema(format = DateTime, example = "2026-11-20T15:00:00.500Z")]
    timestamp: String,
    /// As in the webhook of the same type; `event.created` and `event.changed` are like `event.status_changed`.
    #[schema(value_type = Object, example = json!({"event_id": 7, "result_revision": 1}))]
    data: Value,
}

#[derive(Serialize, ToSchema)]
struct FactMeta {
    /// Position after the last fact of the response. Store it together with the facts, and continue from it.
    #[schema(example = "AAAAAAAAAGQv_Xoo")]
    next_after: String,
    /// Whether further facts can be read at once.
    more: bool,
}

impl IntoResponse for Page {
    fn into_response(self) -> Response {
        let Self { items, next_after, more } = self;
        // Positions contain no character that JSON would escape.
        let body = format!(r#"{{"data":[{items}],"meta":{{"next_after":"{next_after}","more":{more}}}}}"#);
        ([(header::CONTENT_TYPE, "application/json")], body).into_response()
    }
}

impl From<FactsError> for ApiError {
    fn from(error: FactsError) -> Self {
        match error {
            FactsError::Expired => Self::new(
                http::StatusCode::GONE,
                "facts_expired",
                "Facts after this position are no longer kept. Start again without a position.",
            ),
            FactsError::Unknown => Self::invalid_field("after", "is after the end of the log"),
            FactsError::Database(error) => error.into(),
        }
    }
}

/// Reads a page of the log for a backend.
pub async fn read_page(facts: &Facts, parameters: FactParameters) -> Result<Page, ApiError> {
    let FactParameters { after, per_page } = parameters;
    Ok(facts.page(after, per_page).await?)
}
