//! HTTP handler for the live stream.

use axum::{
    body::Body,
    extract::{FromRequestParts, State},
    response::Response,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, request::Parts};
use platform::shutdown::Shutdown;
use utoipa::IntoParams;
use web::{
    ApiError, ErrorBody, Query,
    fields::{FromQuery as _, from_parameters},
    ids::{MatchId, TournamentId},
    server::Endless,
};

use super::service::{Filter, ListenError, Listener, Live, Position};
use crate::{
    chat::{
        rooms::{RoomAddress, service::Rooms},
        view::service::Spectated,
    },
    identity::sessions::StreamUser,
};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

impl From<ListenError> for ApiError {
    fn from(error: ListenError) -> Self {
        match error {
            ListenError::TooMany => web::overloaded(),
            ListenError::TooManyOfUser => Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too_many_streams",
                "You have too many open streams. Close one and try again.",
            )
            .after(std::time::Duration::from_secs(5)),
            ListenError::Unavailable => {
                Self::unavailable("stream_unavailable", "The live stream is unavailable. Try again shortly.")
            }
        }
    }
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct StreamParameters {
    /// Only events of this match.
    #[param(value_type = Option<i64>, minimum = 1)]
    event_id: Option<MatchId>,
    /// Only events of matches in this tournament.
    #[param(value_type = Option<i64>, minimum = 1)]
    tournament_id: Option<TournamentId>,
    /// Only events of the match of this chat room, given by its Matrix id.
    #[param(value_type = Option<String>, max_length = 255, pattern = r"^![^:\x00-\x1f\x7f-\x9f]+:[^\x00-\x1f\x7f-\x9f]+$", example = "!auQboWavgiRMaylzYl:example.org")]
    room_id: Option<RoomAddress>,
    /// If `true`, also the messages of the room `room_id`, as `chat` events. The caller need not be a member.
    #[param(default = false)]
    chat: Option<bool>,
    /// Only events of matches that the caller predicted.
    #[param(default = false)]
    mine: Option<bool>,
    /// Resume after the event with this id. The header `Last-Event-ID`, which clients for server-sent events send, takes
    /// precedence.
    #[param(value_type = Option<String>, pattern = r"^[0-9]{1,18}-[0-9]{1,18}$", example = "1763000000-42")]
    last_event_id: Option<Position>,
}

from_parameters!(StreamParameters { event_id, tournament_id, room_id, chat, mine, last_event_id });

/// Not described as a parameter, because generated clients would have two arguments with the same name.
pub(super) struct LastEventId {
    last_event_id: Option<Position>,
}

impl<S: Send + Sync> FromRequestParts<S> for LastEventId {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let given = parts.headers.get(LAST_EVENT_ID).filter(|value| !value.is_empty());
        match given.map(|value| value.to_str().ok().and_then(Position::from_query)) {
            Some(None) => Err(ApiError::invalid_field("last_event_id", Position::EXPECTED)),
            given => Ok(Self { last_event_id: given.flatten() }),
        }
    }
}

/// Stream live events.
///
/// An endless stream of server-sent events:
///
/// - `event`: a match was created or changed; `changed` lists the aspects.
/// - `result`: a match has a new, corrected or withdrawn result.
/// - `tally`: the predictions of a match, at most once a second.
/// - `points`: the points that the caller earned with a match.
/// - `rank`: the caller's overall rank, after the scores of a match they predicted were applied.
/// - `league.rank`: the caller's rank in a league changed, after the scores of a match or question were applied.
/// - `round`: a round of a tournament is complete, or its winners may have changed.
/// - `reset`: events were missed that are no longer available; reload the lists.
/// - `chat`: with `chat=true`, a message of the room, the end of the replay, or the removal of a message. First come up
///   to 100 recent messages, then `ready`, then messages as they are sent. If a room is very busy, some are left out.
///
/// Each event except `chat` has an `id`. A client that loses the connection reconnects with the last id as `Last-Event-ID`. It misses
/// no events, but may receive an event twice. The server ends connections from time to time, and disconnects slow
/// clients. The field `retry` is the pause in milliseconds before a client reconnects. Every few seconds the server
/// sends a heartbeat that contains only an `id`.
#[utoipa::path(
    get,
    path = "/api/auth/stream",
    tag = "Live",
    security(("token" = [])),
    params(StreamParameters),
    // OpenAPI 3.1 cannot describe the events of a stream.
    extensions(("x-events" = json!({
        "fields": {"$ref": "#/components/schemas/StreamEvent"},
        "data": {
            "event": {"$ref": "#/components/schemas/StreamMatch"},
            "result": {"$ref": "#/components/schemas/StreamResult"},
            "tally": {"$ref": "#/components/schemas/StreamTally"},
            "points": {"$ref": "#/components/schemas/StreamPoints"},
            "rank": {"$ref": "#/components/schemas/StreamRank"},
            "league.rank": {"$ref": "#/components/schemas/StreamLeagueRank"},
            "round": {"$ref": "#/components/schemas/StreamRound"},
            "sealed": {"$ref": "#/components/schemas/Seal"},
            "reset": {"type": "object"},
            "chat": {"$ref": "#/components/schemas/StreamChat"},
        },
    }))),
    responses(
        (status = 200, description = "Endless stream of server-sent events; `x-events` has the schemas of their fields and data",
            content_type = "text/event-stream", body = String),
        (status = 400, description = "With `chat=true`: the room is encrypted (`room_encrypted`)", body = ErrorBody),
        (status = 403, description = "The room is private and the caller is not a member, or, with `chat=true`, the caller is banned from it", body = ErrorBody),
        (status = 404, description = "The room does not exist", body = ErrorBody),
        (status = 429, description = "The caller has too many open streams", body = ErrorBody),
    ))]
pub(super) async fn listen(
    State(rooms): State<Rooms>,
    State(live): State<Live>,
    State(shutdown): State<Shutdown>,
    StreamUser(user): StreamUser,
    headers: HeaderMap,
    Query(query): Query<StreamParameters>,
    LastEventId { last_event_id }: LastEventId,
) -> Result<Response, ApiError> {
    let mine = query.mine.unwrap_or_default();
    let mut filter = Filter { event: query.event_id, tournament: query.tournament_id, mine };
    let with_chat = query.chat.unwrap_or_default();
    if with_chat && query.room_id.is_none() {
        return Err(ApiError::invalid_field("chat", "requires the room id"));
    }
    let mut spectated = None;
    if let Some(address) = query.room_id {
        let room = if with_chat {
            rooms.find_viewable(user.id, &address).await?
        } else {
            rooms.find_readable(user.id, &address).await?
        };
        if let (true, Some(matrix_id)) = (with_chat, room.matrix_id.clone()) {
            let (creator, slow_mode) = (room.creator_id, room.slow_mode_seconds);
            spectated = Some(Spectated { id: room.id, matrix_id, creator, slow_mode });
        }
        match (room.event_id, filter.event) {
            (Some(event), None) => filter.event = Some(event),
            (Some(event), Some(wanted)) if event == wanted => {}
            // A room without a match, or with a different match than `event_id`, has no events. No match has id 0.
            _ => filter.event = Some(MatchId(0)),
        }
    }
    let token = crate::identity::sessions::token_of(&headers).unwrap_or_default();
    let after = last_event_id.or(query.last_event_id);
    let mut listener = live.listen(user.id, token.into(), filter, after, shutdown.closing()).await?;
    if let Some(room) = spectated {
        listener.add_chat(&room).await?;
    }
    let mut response = Response::new(Body::from_stream(chunks(listener)));
    response.extensions_mut().insert(Endless);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // nginx buffers responses unless this header disables it.
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    Ok(response)
}

fn chunks(listener: Listener) -> impl futures_util::Stream<Item = Result<Bytes, std::convert::Infallible>> + Send {
    futures_util::stream::unfold(listener, async |mut listener| {
        let bytes = listener.next().await?;
        Some((Ok(bytes), listener))
    })
}
