//! Chat rooms and announcements.

use axum::{Json, extract::State};
use serde::Serialize;
use serde_json::Value;
use time::OffsetDateTime;
use utoipa::{IntoParams, ToSchema};
use web::{
    ApiError, ErrorBody, Path, Query, ValidJson,
    fields::{FromJson, from_body, from_parameters},
    ids::MatchId,
    paging::{LongPaging, PageMeta, Paging},
};

use super::users::LateJson;
use crate::{
    chat::rooms::{
        RoomAddress,
        service::{RoomSummary, Rooms},
    },
    delivery::announcements::service::Announcements,
    identity::{
        callers::CallerReader,
        idempotency::RequestKey,
        server_keys::{
            Authorized,
            scopes::{RoomsRead, RoomsWrite},
        },
    },
};

#[derive(Serialize, ToSchema)]
#[schema(as = ServerRoomList)]
pub(super) struct RoomList {
    data: Vec<RoomItem>,
    meta: PageMeta,
}

#[derive(Serialize, ToSchema)]
#[schema(as = ServerRoomResponse)]
pub(super) struct RoomResponse {
    data: RoomItem,
}

#[derive(Serialize, ToSchema)]
#[schema(as = ServerRoom)]
struct RoomItem {
    #[schema(example = "!auQboWavgiRMaylzYl:example.org")]
    room_id: String,
    #[schema(example = "Reds – Blues")]
    name: String,
    topic: String,
    /// Match of the room; null if it has none.
    #[schema(required)]
    event_id: Option<MatchId>,
    is_private: bool,
    is_encrypted: bool,
    #[schema(minimum = 0, example = 120)]
    member_count: i64,
    #[serde(with = "platform::timestamp")]
    created_at: OffsetDateTime,
}

impl From<RoomSummary> for RoomItem {
    fn from(room: RoomSummary) -> Self {
        Self {
            room_id: room.matrix_id,
            name: room.name,
            topic: room.topic,
            event_id: room.event_id,
            is_private: room.is_private,
            is_encrypted: room.is_private,
            member_count: room.member_count,
            created_at: room.created_at,
        }
    }
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct RoomParameters {
    /// Only rooms of this match.
    #[param(value_type = Option<i64>, minimum = 1)]
    event_id: Option<MatchId>,
}

from_parameters!(RoomParameters { event_id });

/// List all rooms, latest first.
#[utoipa::path(get, path = "/api/server/v1/rooms", tag = "Rooms",
    params(RoomParameters, LongPaging), responses((status = 200, body = RoomList)))]
pub(super) async fn list_rooms(
    _: Authorized<RoomsRead>,
    State(rooms): State<Rooms>,
    CallerReader(reader): CallerReader,
    Query(query): Query<(RoomParameters, LongPaging)>,
) -> Result<Json<RoomList>, ApiError> {
    let (RoomParameters { event_id }, paging) = query;
    let paging = Paging::from(paging);
    let (listed, total) = rooms.list_all(&reader, event_id, paging).await?;
    Ok(Json(RoomList { data: listed.into_iter().map(RoomItem::from).collect(), meta: paging.meta(total) }))
}

/// Get a room.
#[utoipa::path(get, path = "/api/server/v1/rooms/{room}", tag = "Rooms",
    params(("room" = String, Path, description = "Matrix room id, percent-encoded", example = "!auQboWavgiRMaylzYl:example.org")),
    responses(
        (status = 200, body = RoomResponse),
        (status = 404, description = "The room does not exist", body = ErrorBody),
    ))]
pub(super) async fn get_room(
    _: Authorized<RoomsRead>,
    State(rooms): State<Rooms>,
    Path(room): Path<RoomAddress>,
) -> Result<Json<RoomResponse>, ApiError> {
    Ok(Json(RoomResponse { data: rooms.summary(&room).await?.into() }))
}

/// Text of an announcement.
pub(super) struct Notice(String);

impl FromJson for Notice {
    const EXPECTED: &'static str = "must be a string of 1 to 2000 characters";

    fn from_json(value: &Value) -> Option<Self> {
        let text = value.as_str()?;
        let fits = text.chars().count() <= 2_000 && !text.trim().is_empty() && !text.contains('\0');
        fits.then(|| Self(text.to_owned()))
    }
}

#[derive(ToSchema)]
#[schema(as = RoomAnnouncement)]
pub(super) struct AnnouncementBody {
    #[schema(value_type = String, min_length = 1, max_length = 2_000, pattern = r"^[^\x00]*[^\s\x00][^\x00]*$", example = "The stands open at 18:00.")]
    body: Notice,
}

from_body!(AnnouncementBody { body });

#[derive(Serialize, ToSchema)]
pub(super) struct Announced {
    #[schema(example = "The announcement was posted.")]
    message: &'static str,
    data: AnnouncedItem,
}

#[derive(Serialize, ToSchema)]
#[schema(as = PostedAnnouncement)]
struct AnnouncedItem {
    #[schema(example = "!auQboWavgiRMaylzYl:example.org")]
    room_id: String,
    /// The homeserver's id of the message.
    #[schema(example = "$Rqnc-F-dvnEYJTyHq_iKxU2bZ1CI92-kuZq3a5lr5Zg")]
    event_id: String,
}

/// Post an announcement to a room, as the bot.
#[utoipa::path(post, path = "/api/server/v1/rooms/{room}/announcements", tag = "Rooms",
    params(("room" = String, Path, description = "Matrix room id, percent-encoded", example = "!auQboWavgiRMaylzYl:example.org")),
    request_body = AnnouncementBody,
    responses(
        (status = 200, body = Announced),
        (status = 400, description = "The body is not JSON, or the room is encrypted (`room_encrypted`)", body = ErrorBody),
        (status = 404, description = "The room does not exist", body = ErrorBody),
        (status = 503, description = "Chat is unavailable (`chat_unavailable`); retry after `Retry-After` seconds", body = ErrorBody),
    ))]
pub(super) async fn announce(
    caller: Authorized<RoomsWrite>,
    State(rooms): State<Rooms>,
    State(announcements): State<Announcements>,
    Path(address): Path<RoomAddress>,
    request: Option<RequestKey>,
    body: LateJson<AnnouncementBody>,
) -> Result<Json<Announced>, ApiError> {
    let room = rooms.find(&address).await?;
    let ValidJson(AnnouncementBody { body: Notice(text) }) = body?;
    let request = request.ok_or_else(|| ApiError::internal(anyhow::anyhow!("the route has no idempotency layer")))?;
    let event_id = announcements.post_notice(&room, &text, request, &caller.operator("")).await?;
    let data = AnnouncedItem { room_id: address.to_string(), event_id };
    Ok(Json(Announced { message: "The announcement was posted.", data }))
}
