//! Removal of chat messages.

use axum::{Json, extract::State};
use serde::Serialize;
use utoipa::ToSchema;
use web::{ApiError, ErrorBody, Path, SecondPath, ValidJson};

use super::users::{LateJson, ReasonBody, ReasonText};
use crate::{
    chat::{
        removals::service::Removals,
        rooms::{RoomAddress, service::Rooms},
    },
    identity::server_keys::{Authorized, scopes::ModerationWrite},
};

#[derive(Serialize, ToSchema)]
#[schema(as = ServerMessageRemoved)]
pub(super) struct MessageRemoved {
    #[schema(example = "Message removed.")]
    message: &'static str,
    data: RemovedItem,
}

#[derive(Serialize, ToSchema)]
#[schema(as = ServerRemovedMessage)]
struct RemovedItem {
    #[schema(example = "!auQboWavgiRMaylzYl:example.org")]
    room_id: String,
    #[schema(example = "$Rqnc-F-dvnEYJTyHq_iKxU2bZ1CI92-kuZq3a5lr5Zg")]
    event_id: String,
    removed: bool,
}

/// Remove a message from a room.
///
/// The reason is shown in the room and to the sender. Removing a removed message changes nothing.
#[utoipa::path(delete, path = "/api/server/v1/rooms/{room}/messages/{event_id}", tag = "Rooms",
    params(
        ("room" = String, Path, description = "Matrix room id, percent-encoded", example = "!auQboWavgiRMaylzYl:example.org"),
        ("event_id" = String, Path, description = "The homeserver's id of the message, percent-encoded", example = "$Rqnc-F-dvnEYJTyHq_iKxU2bZ1CI92-kuZq3a5lr5Zg"),
    ),
    request_body = ReasonBody,
    responses(
        (status = 200, body = MessageRemoved),
        (status = 404, description = "The room does not exist, or has no such message", body = ErrorBody),
        (status = 503, description = "Chat is unavailable (`chat_unavailable`); retry after `Retry-After` seconds", body = ErrorBody),
    ))]
pub(super) async fn remove_message(
    caller: Authorized<ModerationWrite>,
    State(rooms): State<Rooms>,
    State(removals): State<Removals>,
    Path(room): Path<RoomAddress>,
    SecondPath(event_id): SecondPath<String>,
    body: LateJson<ReasonBody>,
) -> Result<Json<MessageRemoved>, ApiError> {
    rooms.find(&room).await?;
    let ValidJson(ReasonBody { reason: ReasonText(reason) }) = body?;
    removals.remove_by_operator(&room, &event_id, &caller.operator(reason)).await?;
    let data = RemovedItem { room_id: room.to_string(), event_id, removed: true };
    Ok(Json(MessageRemoved { message: "Message removed.", data }))
}
