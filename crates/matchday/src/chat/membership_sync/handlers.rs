//! Endpoints for the homeserver. Every response is JSON, because Synapse treats an empty response as a failure.

use axum::{
    Json,
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, Request, StatusCode, header::AUTHORIZATION};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use super::{rules::Pushed, service::MembershipSync};
use crate::chat::{filters::ChatMessage, view::ViewEvent};

/// Fits a hundred events of 64 KiB each with their envelope, with a margin.
const BODY_BYTES: usize = 32 * 1024 * 1024;

#[derive(Deserialize)]
struct Transaction<'a> {
    #[serde(borrow)]
    events: Vec<&'a RawValue>,
}

/// An error in the Matrix format.
pub(super) struct MatrixError {
    status: StatusCode,
    errcode: &'static str,
    message: &'static str,
}

impl IntoResponse for MatrixError {
    fn into_response(self) -> Response {
        (self.status, Json(json!({"errcode": self.errcode, "error": self.message}))).into_response()
    }
}

type Answer = Result<Json<Value>, MatrixError>;

/// Stores the events and responds; they are applied afterwards. The transaction id is ignored: event ids identify
/// events, and after a restart the homeserver may reuse a transaction id for other events.
pub(super) async fn take_transaction(State(sync): State<MembershipSync>, request: Request<Body>) -> Answer {
    authenticate(&sync, request.headers())?;
    let body = axum::body::to_bytes(request.into_body(), BODY_BYTES).await.map_err(|_| MatrixError {
        status: StatusCode::PAYLOAD_TOO_LARGE,
        errcode: "M_TOO_LARGE",
        message: "The body is too large or incomplete.",
    })?;
    let transaction = serde_json::from_slice::<Transaction<'_>>(&body).map_err(|cause| {
        tracing::error!(error = %cause, "invalid transaction received from the homeserver");
        MatrixError { status: StatusCode::BAD_REQUEST, errcode: "M_BAD_JSON", message: "Not a valid transaction." }
    })?;
    let events: Vec<Pushed> = transaction.events.iter().map(|raw| Pushed::read(raw.get())).collect();
    let for_spectators = transaction.events.iter().filter_map(|raw| ViewEvent::read(raw.get())).collect();
    let messages = transaction.events.iter().filter_map(|raw| ChatMessage::read(raw.get())).collect();
    sync.receive(&events, messages).await.map_err(|cause| {
        tracing::warn!(error = %cause, "pushed events were not stored; the homeserver will push them again");
        MatrixError {
            status: StatusCode::SERVICE_UNAVAILABLE,
            errcode: "M_UNKNOWN",
            message: "The events could not be stored. Push them again.",
        }
    })?;
    sync.show(for_spectators).await;
    Ok(Json(json!({})))
}

/// Responds to the ping that the homeserver sends on our request.
pub(super) async fn handle_ping(State(sync): State<MembershipSync>, headers: HeaderMap) -> Answer {
    authenticate(&sync, &headers)?;
    Ok(Json(json!({})))
}

/// The service creates users and rooms before they are queried, so a query never has a result.
pub(super) async fn reject_query(State(sync): State<MembershipSync>, headers: HeaderMap) -> Answer {
    authenticate(&sync, &headers)?;
    Err(MatrixError {
        status: StatusCode::NOT_FOUND,
        errcode: "M_NOT_FOUND",
        message: "The user or room does not exist.",
    })
}

/// Refuses callers other than the homeserver.
fn authenticate(sync: &MembershipSync, headers: &HeaderMap) -> Result<(), MatrixError> {
    let token = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let Some(token) = token else {
        return Err(MatrixError {
            status: StatusCode::UNAUTHORIZED,
            errcode: "M_UNAUTHORIZED",
            message: "A token is required.",
        });
    };
    if sync.is_homeserver(token) {
        return Ok(());
    }
    Err(MatrixError {
        status: StatusCode::FORBIDDEN,
        errcode: "M_FORBIDDEN",
        message: "The token is not the homeserver's token.",
    })
}
