//! Endpoints for the homeserver. Every response is JSON, because Synapse treats an empty response as a failure.

use std::panic::catch_unwind;

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

/// Events of a transaction, in the forms of their readers.
struct Events {
    pushed: Vec<Pushed>,
    /// Events for spectators, with their rooms.
    shown: Vec<(String, ViewEvent)>,
    messages: Vec<ChatMessage>,
}

impl Events {
    fn read(body: &[u8]) -> serde_json::Result<Self> {
        let events = serde_json::from_slice::<Transaction<'_>>(body)?.events;
        // The homeserver repeats a transaction that fails, so an event that causes a panic must not fail it.
        let pushed =
            |raw: &RawValue| catch_unwind(|| Pushed::read(raw.get())).unwrap_or_else(|_| Pushed::unreadable(raw.get()));
        let shown = |raw: &RawValue| catch_unwind(|| ViewEvent::read(raw.get())).unwrap_or_default();
        let message = |raw: &RawValue| {
            catch_unwind(|| ChatMessage::read(raw.get())).unwrap_or_else(|_| {
                metrics::counter!("matchday_filter_messages_total", "outcome" => "unchecked").increment(1);
                None
            })
        };
        Ok(Self {
            pushed: events.iter().map(|raw| pushed(raw)).collect(),
            shown: events.iter().filter_map(|raw| shown(raw)).collect(),
            messages: events.iter().filter_map(|raw| message(raw)).collect(),
        })
    }
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
    // A transaction can have megabytes, whose parsing would delay other requests.
    let reading = tokio::task::spawn_blocking(move || Events::read(&body)).await.map_err(|cause| {
        tracing::error!(error = %cause, "transaction of the homeserver was not read");
        MatrixError {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            errcode: "M_UNKNOWN",
            message: "The transaction could not be read.",
        }
    })?;
    let Events { pushed, shown, messages } = reading.map_err(|cause| {
        tracing::error!(error = %cause, "invalid transaction received from the homeserver");
        MatrixError { status: StatusCode::BAD_REQUEST, errcode: "M_BAD_JSON", message: "Not a valid transaction." }
    })?;
    sync.receive(&pushed, messages).await.map_err(|cause| {
        tracing::warn!(error = %cause, "pushed events were not stored; the homeserver will push them again");
        MatrixError {
            status: StatusCode::SERVICE_UNAVAILABLE,
            errcode: "M_UNKNOWN",
            message: "The events could not be stored. Push them again.",
        }
    })?;
    sync.show(shown).await;
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
