//! HTTP handlers for rooms.

use std::{collections::BTreeMap, time::Duration};

use axum::{
    Json,
    extract::{FromRef, FromRequestParts, State},
    response::IntoResponse,
};
use http::{StatusCode, request::Parts};
use serde::Serialize;
use time::OffsetDateTime;
use utoipa::{IntoParams, ToSchema};
use web::{
    ApiError, ErrorBody, Path, Query, ValidJson,
    fields::{Body, FromBody, Search, from_body, from_parameters},
    ids::{MatchId, UserId},
    paging::{LongPaging, PageMeta, Paging},
    permitted,
};

use super::{
    rules::{MessageBody, RoomAddress, RoomName, Topic},
    sending::SentMessage,
    service::{Action, Invitee, ListedRoom, Room, RoomError, RoomFilter, RoomRequest, Rooms},
    statistics::{MemberStats, TopPredictor},
};
use crate::{
    chat::membership_sync::Membership,
    identity::{
        callers::CallerReader,
        idempotency::RequestKey,
        sessions::{Authenticates, CurrentUser},
        usernames::Username,
    },
};

/// Chat rarely recovers sooner, and statistics of a large room take about as long.
const RETRY_AFTER: Duration = Duration::from_secs(2);

#[derive(IntoParams)]
#[into_params(parameter_in = Path, names("room"))]
pub(crate) struct RoomPath(
    /// The homeserver's id of the room, with or without percent-encoding.
    #[param(value_type = String, example = "!auQboWavgiRMaylzYl:example.org")]
    RoomAddress,
);

impl<S: Send + Sync> FromRequestParts<S> for RoomPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        Path::from_request_parts(parts, state).await.map(|Path(address)| Self(address))
    }
}

/// A room that the caller may read: any public room, or a private room of which they are a member.
#[derive(Clone, Debug)]
pub(crate) struct ReadableRoom {
    pub(crate) user: CurrentUser,
    pub(crate) room: Room,
}

impl<S: Authenticates> FromRequestParts<S> for ReadableRoom
where
    Rooms: FromRef<S>,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let user = CurrentUser::from_request_parts(parts, state).await?;
        let RoomPath(address) = RoomPath::from_request_parts(parts, state).await?;
        let room = Rooms::from_ref(state).find_readable(user.id, &address).await?;
        Ok(Self { user, room })
    }
}

impl From<RoomError> for ApiError {
    fn from(error: RoomError) -> Self {
        let forbidden = |code, message: &'static str| Self::new(StatusCode::FORBIDDEN, code, message);
        match error {
            RoomError::NotFound => Self::not_found("The room"),
            RoomError::NoSuchMatch => Self::invalid_field("event_id", "must name an existing match"),
            RoomError::NoSuchUser => Self::not_found("The user"),
            RoomError::NotAllowed => forbidden("not_allowed", "You are not allowed to do this in this room."),
            RoomError::NotAMember => forbidden("not_a_member", "You are not a member of this room."),
            RoomError::AlreadyMember => {
                Self::new(StatusCode::CONFLICT, "already_a_member", "Already a member of this room.")
            }
            RoomError::Refused => forbidden("invitation_refused", "This user does not accept invitations from you."),
            RoomError::Muted => forbidden("muted", "You are muted in chat."),
            RoomError::SlowMode { retry_after } => {
                let message = "This room is in slow mode. Wait before you send another message.";
                Self::new(StatusCode::TOO_MANY_REQUESTS, "slow_mode", message).after(retry_after)
            }
            RoomError::Filtered => {
                let message = "is not allowed by the rules of this chat";
                Self::invalid_field("body", message).called("message_refused")
            }
            RoomError::Encrypted => {
                let message = "The room is encrypted. Use a Matrix client.";
                Self::new(StatusCode::BAD_REQUEST, "room_encrypted", message)
            }
            RoomError::Busy { retry_after } => {
                let message = "The chat room is busy. Try again in a few seconds.";
                Self::unavailable("room_busy", message).after(retry_after)
            }
            RoomError::StatisticsPending => {
                let message = "The statistics of this room are being computed. Try again in a few seconds.";
                Self::unavailable("statistics_pending", message).after(RETRY_AFTER)
            }
            error @ (RoomError::Chat(_) | RoomError::Slow) => {
                tracing::warn!(%error, "room request failed");
                Self::unavailable("chat_unavailable", "Chat is unavailable. Try again shortly.").after(RETRY_AFTER)
            }
            RoomError::Seat(error) => error.into(),
            RoomError::Database(error) => error.into(),
            RoomError::Message(error) => Self::internal(error),
        }
    }
}

#[derive(ToSchema)]
#[schema(as = RoomRequest)]
pub(super) struct RoomWish {
    #[schema(value_type = String, min_length = 1, max_length = 100, pattern = r"^[\t-\r ]*[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*[\t-\r ]*$", example = "Derby talk")]
    name: RoomName,
    #[schema(value_type = Option<String>, max_length = 500, pattern = r"^[\t-\r ]*[^\x00-\x09\x0b-\x1f\x7f-\x9f]*[\t-\r ]*$", example = "Everything about the derby")]
    topic: Option<Topic>,
    /// Match that the room is about.
    event_id: Option<MatchId>,
    /// A private room is invite-only and encrypted.
    #[schema(default = false)]
    is_private: Option<bool>,
}

from_body!(RoomWish { name, topic, event_id, is_private });

impl From<RoomWish> for RoomRequest {
    fn from(wish: RoomWish) -> Self {
        Self {
            name: wish.name,
            topic: wish.topic.unwrap_or_default(),
            event_id: wish.event_id,
            is_private: wish.is_private.unwrap_or(false),
        }
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct RoomCreated {
    #[schema(example = "Room created.")]
    message: &'static str,
    data: RoomItem,
}

/// A room that was just created.
#[derive(Serialize, ToSchema)]
#[schema(as = ChatRoom)]
struct RoomItem {
    #[schema(example = "!auQboWavgiRMaylzYl:example.org")]
    room_id: String,
    #[schema(example = "Derby talk")]
    name: String,
    topic: String,
    #[schema(required)]
    event_id: Option<MatchId>,
    #[schema(required)]
    creator_id: Option<UserId>,
    is_encrypted: bool,
    /// `public`, or `invite` if an invitation is required.
    #[schema(example = "public")]
    join_rule: &'static str,
}

impl From<Room> for RoomItem {
    fn from(room: Room) -> Self {
        Self {
            room_id: room.matrix_id.unwrap_or_default(),
            name: room.name,
            topic: room.topic,
            event_id: room.event_id,
            creator_id: room.creator_id,
            is_encrypted: room.is_private,
            join_rule: if room.is_private { "invite" } else { "public" },
        }
    }
}

/// Create a room.
///
/// The caller is a member of the room when the request returns. Repeating the same request within a minute, or after a
/// 503, continues the first creation or returns the same room. It never creates a second room.
#[utoipa::path(post, path = "/api/auth/chat-room", tag = "Chat rooms", security(("token" = [])),
    request_body = RoomWish,
    responses(
        (status = 201, body = RoomCreated),
        (status = 403, description = "The caller is muted (`muted`)", body = ErrorBody),
        (status = 429, description = "Too many requests; retry after `Retry-After` seconds", body = ErrorBody),
        (status = 503, description = "Chat is unavailable (`chat_unavailable`); retry after `Retry-After` seconds", body = ErrorBody),
    ))]
pub(super) async fn create_room(
    State(rooms): State<Rooms>,
    user: CurrentUser,
    ValidJson(wish): ValidJson<RoomWish>,
) -> Result<impl IntoResponse, ApiError> {
    permitted(rooms.permit(Action::Create, user.id).await)?;
    let created = rooms.create(user.id, &wish.into()).await;
    if matches!(created, Err(RoomError::Chat(_) | RoomError::Slow)) {
        rooms.give_back(Action::Create, user.id).await;
    }
    let body = RoomCreated { message: "Room created.", data: created?.into() };
    Ok((StatusCode::CREATED, Json(body)))
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct RoomParameters {
    /// If `true`, only rooms that the caller has joined.
    joined: Option<bool>,
    /// Only rooms of this match: all its stands, and rooms that fans created for it.
    #[param(value_type = Option<i64>, minimum = 1)]
    event_id: Option<MatchId>,
    /// Only rooms whose name contains this text, ignoring case.
    #[param(value_type = Option<String>, max_length = 100, pattern = r"^[^\x00]*$", example = "derby")]
    search: Option<Search>,
}

from_parameters!(RoomParameters { joined, event_id, search });

impl From<RoomParameters> for RoomFilter {
    fn from(RoomParameters { joined, event_id, search }: RoomParameters) -> Self {
        Self { joined: joined.unwrap_or(false), event_id, search }
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct RoomList {
    data: Vec<ListedItem>,
    meta: PageMeta,
}

/// A room in a list.
#[derive(Serialize, ToSchema)]
#[schema(as = ChatRoomListItem)]
struct ListedItem {
    #[schema(example = "!auQboWavgiRMaylzYl:example.org")]
    room_id: String,
    #[schema(example = "Derby talk")]
    name: String,
    topic: String,
    #[schema(required)]
    event_id: Option<MatchId>,
    #[schema(required)]
    event: Option<RoomEvent>,
    /// Number of the stand among the match's own rooms; null for a room that a fan created.
    #[schema(required, example = 1)]
    stand: Option<i32>,
    #[schema(example = 214)]
    member_count: i64,
    is_joined: bool,
    is_encrypted: bool,
    #[serde(with = "platform::timestamp")]
    #[schema(example = "2026-11-20T15:21:07.000Z")]
    last_activity: OffsetDateTime,
    /// Seconds that a member must wait between two messages; 0 if the room is not in slow mode.
    #[schema(example = 0)]
    slow_mode: i32,
}

/// Match that the room is about.
#[derive(Serialize, ToSchema)]
struct RoomEvent {
    id: MatchId,
    #[schema(example = "Rovers")]
    home_team: String,
    #[schema(example = "City")]
    away_team: String,
    #[serde(with = "platform::timestamp")]
    #[schema(example = "2026-11-20T15:00:00.000Z")]
    start_time: OffsetDateTime,
}

impl From<ListedRoom> for ListedItem {
    fn from(room: ListedRoom) -> Self {
        Self {
            room_id: room.matrix_id,
            name: room.name,
            topic: room.topic,
            event_id: room.event.as_ref().map(|(id, ..)| *id),
            event: room.event.map(|(id, home_team, away_team, start_time)| RoomEvent {
                id,
                home_team,
                away_team,
                start_time,
            }),
            stand: room.stand,
            member_count: room.member_count,
            is_joined: room.is_joined,
            is_encrypted: room.is_private,
            last_activity: room.last_activity,
            slow_mode: room.slow_mode_seconds,
        }
    }
}

/// List rooms, most recently active first.
///
/// Returns public rooms, and private rooms that the caller has joined or is invited to. Rooms created by users whom the
/// caller has blocked are excluded.
#[utoipa::path(get, path = "/api/auth/chat-rooms", tag = "Chat rooms", security(("token" = [])),
    params(RoomParameters, LongPaging), responses((status = 200, body = RoomList)))]
pub(super) async fn list_rooms(
    State(rooms): State<Rooms>,
    user: CurrentUser,
    CallerReader(reader): CallerReader,
    Query((filter, paging)): Query<(RoomParameters, LongPaging)>,
) -> Result<Json<RoomList>, ApiError> {
    let paging = Paging::from(paging);
    let (rooms, total) = rooms.list(&reader, user.id, &filter.into(), paging).await?;
    Ok(Json(RoomList { data: rooms.into_iter().map(ListedItem::from).collect(), meta: paging.meta(total) }))
}

#[derive(Serialize, ToSchema)]
pub(super) struct RoomJoined {
    #[schema(example = "You have joined the room.")]
    message: String,
    data: RoomMembership,
}

/// The resulting membership in a room.
#[derive(Serialize, ToSchema)]
struct RoomMembership {
    #[schema(example = "!auQboWavgiRMaylzYl:example.org")]
    room_id: String,
    #[schema(example = "join")]
    membership: &'static str,
}

/// Join a room.
///
/// Match rooms have a limited capacity. If the requested room is full, the caller joins another stand of the same
/// match; `room_id` contains the joined room, and `message` names the stand.
#[utoipa::path(post, path = "/api/auth/chat-rooms/{room}/join", tag = "Chat rooms", security(("token" = [])),
    params(RoomPath),
    responses(
        (status = 200, body = RoomJoined),
        (status = 403, description = "The room is private and the caller is not invited, or the caller is banned from it (`not_allowed`), or the caller is muted (`muted`)", body = ErrorBody),
        (status = 404, description = "The room does not exist", body = ErrorBody),
        (status = 409, description = "The caller is already a member of the room or, for a match, of any of its stands", body = ErrorBody),
        (status = 429, description = "Too many requests; retry after `Retry-After` seconds", body = ErrorBody),
        (status = 503, description = "Too many users are joining at the same time (`room_busy`), or chat is unavailable (`chat_unavailable`); retry after `Retry-After` seconds", body = ErrorBody),
    ))]
pub(super) async fn join_room(
    State(rooms): State<Rooms>,
    user: CurrentUser,
    RoomPath(address): RoomPath,
) -> Result<Json<RoomJoined>, ApiError> {
    permitted(rooms.permit(Action::Move, user.id).await)?;
    let joined = rooms.join(user.id, &address).await;
    if matches!(joined, Err(RoomError::Busy { .. })) {
        rooms.give_back(Action::Move, user.id).await;
    }
    let joined = joined?;
    let message = match joined.other_stand {
        None => "You have joined the room.".to_owned(),
        Some(stand) => format!("The room is full. You have joined stand {stand} of the same match instead."),
    };
    let data = RoomMembership { room_id: joined.matrix_id, membership: Membership::Join.name() };
    Ok(Json(RoomJoined { message, data }))
}

/// Leave a room, or decline an invitation to it.
///
/// After leaving a private room, a user needs a new invitation to join again.
#[utoipa::path(post, path = "/api/auth/chat-rooms/{room}/leave", tag = "Chat rooms", security(("token" = [])),
    params(RoomPath),
    responses(
        (status = 200, body = RoomJoined),
        (status = 403, description = "The caller is neither a member nor invited (`not_a_member`, `not_allowed`)", body = ErrorBody),
        (status = 404, description = "The room does not exist", body = ErrorBody),
        (status = 429, description = "Too many requests; retry after `Retry-After` seconds", body = ErrorBody),
        (status = 503, description = "Chat is unavailable (`chat_unavailable`); retry after `Retry-After` seconds", body = ErrorBody),
    ))]
pub(super) async fn leave_room(
    State(rooms): State<Rooms>,
    user: CurrentUser,
    RoomPath(address): RoomPath,
) -> Result<Json<RoomJoined>, ApiError> {
    permitted(rooms.permit(Action::Move, user.id).await)?;
    rooms.leave(user.id, &address).await?;
    let data = RoomMembership { room_id: address.to_string(), membership: Membership::Leave.name() };
    Ok(Json(RoomJoined { message: "You have left the room.".to_owned(), data }))
}

#[derive(ToSchema)]
#[schema(as = Invitation)]
pub(super) struct InvitationBody {
    /// Id of the user to invite. Give either this or `username`.
    user_id: Option<UserId>,
    /// Username of the user to invite. Give either this or `user_id`.
    #[schema(value_type = Option<String>, min_length = 3, max_length = 30, pattern = "^(?=.*[A-Za-z._])[A-Za-z0-9][A-Za-z0-9._]{1,28}[A-Za-z0-9]$", example = "swift_winger")]
    username: Option<Username>,
}

from_body!(InvitationBody { user_id, username });

impl FromBody for Invitee {
    fn from_body(body: &mut Body) -> Option<Self> {
        let InvitationBody { user_id, username } = InvitationBody::from_body(body)?;
        match (user_id, username) {
            (Some(id), None) => Some(Self::Id(id)),
            (None, Some(name)) => Some(Self::Name(name)),
            _ => body.fault("user_id", "or the username is required, but not both"),
        }
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct Invited {
    #[schema(example = "Invitation sent.")]
    message: &'static str,
    data: RoomMembership,
}

/// Invite a user to a room.
///
/// In a private room, only the creator may invite; in a public room, every member may.
#[utoipa::path(post, path = "/api/auth/chat-rooms/{room}/invite", tag = "Chat rooms", security(("token" = [])),
    params(RoomPath), request_body = InvitationBody,
    responses(
        (status = 200, body = Invited),
        (status = 403, description = "The caller is not a member (`not_a_member`), may not invite (`not_allowed`), is muted (`muted`), or is blocked by the invited user (`invitation_refused`)", body = ErrorBody),
        (status = 404, description = "The room does not exist", body = ErrorBody),
        (status = 409, description = "The invited user is already a member", body = ErrorBody),
        (status = 429, description = "Too many requests; retry after `Retry-After` seconds", body = ErrorBody),
        (status = 503, description = "Chat is unavailable (`chat_unavailable`); retry after `Retry-After` seconds", body = ErrorBody),
    ))]
pub(super) async fn invite_to_room(
    State(rooms): State<Rooms>,
    user: CurrentUser,
    RoomPath(address): RoomPath,
    ValidJson(invitee): ValidJson<Invitee>,
) -> Result<Json<Invited>, ApiError> {
    permitted(rooms.permit(Action::Invite, user.id).await)?;
    let field = match &invitee {
        Invitee::Id(_) => "user_id",
        Invitee::Name(_) => "username",
    };
    rooms.invite(user.id, &address, &invitee).await.map_err(|error| match error {
        RoomError::NoSuchUser => ApiError::invalid_field(field, "must name an existing user"),
        other => other.into(),
    })?;
    let data = RoomMembership { room_id: address.to_string(), membership: Membership::Invite.name() };
    Ok(Json(Invited { message: "Invitation sent.", data }))
}

#[derive(ToSchema)]
#[schema(as = ChatMessageRequest)]
pub(super) struct MessageWish {
    /// Text, with line breaks but without other control characters.
    #[schema(value_type = String, min_length = 1, max_length = 2000, pattern = r"^[\t-\r ]*[^\x00-\x09\x0b-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x09\x0b-\x1f\x7f-\x9f]*[\t-\r ]*$", example = "Come on!")]
    body: MessageBody,
}

from_body!(MessageWish { body });

#[derive(Serialize, ToSchema)]
pub(super) struct MessageSent {
    #[schema(example = "Message sent.")]
    message: &'static str,
    data: SentItem,
}

/// A message that was just sent.
#[derive(Serialize, ToSchema)]
#[schema(as = SentChatMessage)]
struct SentItem {
    /// The homeserver's id of the message.
    #[schema(example = "$Rqnc-F-dvnEYJTyHq_iKxU2bZ1CI92-kuZq3a5lr5Zg")]
    event_id: String,
    /// Room that has the message. For a match, it may be another stand than requested.
    #[schema(example = "!auQboWavgiRMaylzYl:example.org")]
    room_id: String,
    /// Whether this request joined the room.
    joined: bool,
    #[serde(with = "platform::timestamp")]
    #[schema(example = "2026-11-20T15:21:07.000Z")]
    sent_at: OffsetDateTime,
}

/// Send a text message to a room.
///
/// A caller who is not a member of a public room joins it first, by the rules of joining: if the room of a match is full,
/// the message goes to another stand. Encrypted rooms need a Matrix client.
#[utoipa::path(post, path = "/api/auth/chat-rooms/{room}/messages", tag = "Chat rooms", security(("token" = [])),
    params(RoomPath), request_body = MessageWish,
    responses(
        (status = 201, body = MessageSent),
        (status = 400, description = "The room is encrypted (`room_encrypted`)", body = ErrorBody),
        (status = 403, description = "The room is private and the caller is not a member, or the caller is banned from it (`not_allowed`), or the caller is muted (`muted`)", body = ErrorBody),
        (status = 404, description = "The room does not exist", body = ErrorBody),
        (status = 422, description = "The message is invalid (`validation_failed`), or a filter matches it (`message_refused`)", body = ErrorBody),
        (status = 429, description = "The room is in slow mode (`slow_mode`), or too many requests (`rate_limited`); retry after `Retry-After` seconds", body = ErrorBody),
        (status = 503, description = "Too many users are joining at the same time (`room_busy`), or chat is unavailable (`chat_unavailable`); retry after `Retry-After` seconds", body = ErrorBody),
    ))]
pub(super) async fn send_message(
    State(rooms): State<Rooms>,
    user: CurrentUser,
    key: Option<RequestKey>,
    RoomPath(address): RoomPath,
    ValidJson(wish): ValidJson<MessageWish>,
) -> Result<impl IntoResponse, ApiError> {
    permitted(rooms.permit(Action::Send, user.id).await)?;
    let sent = rooms.send(user.id, &address, &wish.body, key).await;
    if matches!(sent, Err(RoomError::Busy { .. } | RoomError::SlowMode { .. } | RoomError::Slow | RoomError::Chat(_))) {
        rooms.give_back(Action::Send, user.id).await;
    }
    let SentMessage { event_id, matrix_id, joined, sent_at } = sent?;
    let data = SentItem { event_id, room_id: matrix_id, joined, sent_at };
    Ok((StatusCode::CREATED, Json(MessageSent { message: "Message sent.", data })))
}

#[derive(Serialize, ToSchema)]
pub(super) struct StatsResponse {
    data: StatsItem,
}

/// Statistics about the members of a room. All stands of a match are counted together.
#[derive(Serialize, ToSchema)]
#[schema(as = ChatRoomMemberStats)]
struct StatsItem {
    #[schema(example = 214)]
    total_members: i64,
    /// Members who wrote, predicted or joined in the last 7 days.
    #[schema(example = 96)]
    active_members: i64,
    /// Predictions of members for the room's match.
    #[schema(example = 120)]
    predictions_made: i64,
    /// Members per favourite team, by the team's slug; `neutral` for all others.
    #[schema(example = json!({"rovers": 120, "city": 80, "neutral": 14}))]
    team_distribution: BTreeMap<String, i64>,
    /// Top ten members by correct predictions, then by accuracy, over all finished matches.
    top_predictors: Vec<PredictorItem>,
}

/// A member with many correct predictions.
#[derive(Serialize, ToSchema)]
#[schema(as = TopPredictor)]
struct PredictorItem {
    user_id: UserId,
    #[schema(example = "swift_winger")]
    username: String,
    #[schema(example = 17)]
    correct_predictions: i64,
    /// Share of correct predictions, from 0 to 1.
    #[schema(example = 0.68)]
    accuracy: f64,
}

/// Get statistics about the members of a room.
#[utoipa::path(get, path = "/api/auth/chat-rooms/{room}/member-stats", tag = "Chat rooms", security(("token" = [])),
    params(RoomPath),
    responses(
        (status = 200, body = StatsResponse),
        (status = 403, description = "The room is private and the caller is not a member", body = ErrorBody),
        (status = 404, description = "The room does not exist", body = ErrorBody),
    ))]
pub(super) async fn get_member_stats(
    State(rooms): State<Rooms>,
    readable: ReadableRoom,
) -> Result<Json<StatsResponse>, ApiError> {
    let MemberStats { statistics, top_predictors } = rooms.member_stats(readable.user.id, &readable.room).await?;
    let predictor = |top: TopPredictor| PredictorItem {
        user_id: top.user_id,
        username: top.username,
        correct_predictions: top.correct_predictions,
        accuracy: top.accuracy,
    };
    let data = StatsItem {
        total_members: statistics.total_members,
        active_members: statistics.active_members,
        predictions_made: statistics.picks.total(),
        team_distribution: statistics.team_distribution,
        top_predictors: top_predictors.into_iter().map(predictor).collect(),
    };
    Ok(Json(StatsResponse { data }))
}
