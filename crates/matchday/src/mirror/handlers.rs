//! What the homeserver calls. It expects JSON, also where there is nothing to say: an empty answer counts as a failure.

use axum::{
    Json,
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, Request, StatusCode, header::AUTHORIZATION};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use super::{rules::Pushed, service::Mirror};

/// A hundred events of 64 KiB each, and what the homeserver wraps them in, with room to spare.
const BODY_BYTES: usize = 32 * 1024 * 1024;

#[derive(Deserialize)]
struct Transaction<'a> {
    #[serde(borrow)]
    events: Vec<&'a RawValue>,
}

/// An error as Matrix says it.
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

/// Keeps the events and answers; they are applied afterwards. The transaction's own id does not matter: events are known
/// by theirs, and after a restart the homeserver may well use an id again for other events.
pub(super) async fn take_transaction(State(mirror): State<Mirror>, request: Request<Body>) -> Answer {
    known_caller(&mirror, request.headers())?;
    let body = axum::body::to_bytes(request.into_body(), BODY_BYTES).await.map_err(|_| MatrixError {
        status: StatusCode::PAYLOAD_TOO_LARGE,
        errcode: "M_TOO_LARGE",
        message: "The body is too large or broke off.",
    })?;
    let transaction = serde_json::from_slice::<Transaction<'_>>(&body).map_err(|cause| {
        tracing::error!(%cause, "the homeserver pushed something that is no transaction");
        MatrixError { status: StatusCode::BAD_REQUEST, errcode: "M_BAD_JSON", message: "This is no transaction." }
    })?;
    let events: Vec<Pushed> = transaction.events.iter().map(|raw| Pushed::read(raw.get())).collect();
    mirror.receive(&events).await.map_err(|cause| {
        tracing::error!(%cause, "what the homeserver pushed could not be kept; it will push it again");
        MatrixError {
            status: StatusCode::SERVICE_UNAVAILABLE,
            errcode: "M_UNKNOWN",
            message: "It could not be kept. Push it again.",
        }
    })?;
    Ok(Json(json!({})))
}

/// The homeserver asks whether we are there, because we asked it to.
pub(super) async fn answer_ping(State(mirror): State<Mirror>, headers: HeaderMap) -> Answer {
    known_caller(&mirror, &headers)?;
    Ok(Json(json!({})))
}

/// Users and rooms are there before anybody asks for them.
pub(super) async fn look_nothing_up(State(mirror): State<Mirror>, headers: HeaderMap) -> Answer {
    known_caller(&mirror, &headers)?;
    Err(MatrixError {
        status: StatusCode::NOT_FOUND,
        errcode: "M_NOT_FOUND",
        message: "There is no such user or room.",
    })
}

/// Refuses callers other than the homeserver.
fn known_caller(mirror: &Mirror, headers: &HeaderMap) -> Result<(), MatrixError> {
    let shown = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let Some(shown) = shown else {
        return Err(MatrixError {
            status: StatusCode::UNAUTHORIZED,
            errcode: "M_UNAUTHORIZED",
            message: "A token is needed.",
        });
    };
    if mirror.is_homeserver(shown) {
        return Ok(());
    }
    Err(MatrixError {
        status: StatusCode::FORBIDDEN,
        errcode: "M_FORBIDDEN",
        message: "This is not the homeserver's token.",
    })
}
