//! Endpoint for the homeserver (Push Gateway API).

use axum::{
    Json,
    body::Bytes,
    extract::State,
    response::{IntoResponse as _, Response},
};
use http::StatusCode;
use serde_json::json;

use super::{rules::Report, service::Mentions};

/// Takes a report of an event. Keys that are not known are rejected, and the homeserver deletes their pushers.
pub(super) async fn take_notification(State(mentions): State<Mentions>, body: Bytes) -> Response {
    let report = match serde_json::from_slice::<Report>(&body) {
        Ok(report) => report,
        Err(error) => {
            // The error itself may contain text of the message.
            let (kind, column) = (error.classify(), error.column());
            tracing::warn!(?kind, column, "report of a mention was not readable; the homeserver will repeat it");
            let error = json!({"errcode": "M_BAD_JSON", "error": "Not a valid notification."});
            return (StatusCode::BAD_REQUEST, Json(error)).into_response();
        }
    };
    match mentions.receive(report.notification).await {
        Ok(rejected) => Json(json!({"rejected": rejected})).into_response(),
        Err(error) => {
            tracing::warn!(%error, "mention was not queued; the homeserver will report it again");
            let error =
                json!({"errcode": "M_UNKNOWN", "error": "The notification could not be stored. Send it again."});
            (StatusCode::SERVICE_UNAVAILABLE, Json(error)).into_response()
        }
    }
}
