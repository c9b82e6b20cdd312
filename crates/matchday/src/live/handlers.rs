//! HTTP for the live stream.

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
    ids::{EventId, TournamentId},
};

use super::{
    service::{Filter, ListenError, Listener, Live, Position},
    told::StreamEvent,
};
use crate::{
    rooms::{RoomAddress, service::Rooms},
    sessions::StreamUser,
};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

impl From<ListenError> for ApiError {
    fn from(error: ListenError) -> Self {
        match error {
            ListenError::TooMany => web::overloaded(),
            ListenError::TooManyOfUser => Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too_many_streams",
                "You listen on too many connections already. Close one.",
            )
            .after(std::time::Duration::from_secs(5)),
            ListenError::Deaf => {
                Self::unavailable("stream_unavailable", "The live stream is not available. Try again shortly.")
            }
        }
    }
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct StreamParameters {
    /// Only what happens in this match.
    #[param(value_type = Option<i64>, minimum = 1)]
    event_id: Option<EventId>,
    /// Only what happens in matches of this tournament.
    #[param(value_type = Option<i64>, minimum = 1)]
    tournament_id: Option<TournamentId>,
    /// Only what happens in the match of this chat room: the homeserver's id of it.
    #[param(value_type = Option<String>, max_length = 255, pattern = r"^![^:\x00-\x1f\x7f-\x9f]+:[^\x00-\x1f\x7f-\x9f]+$", example = "!auQboWavgiRMaylzYl:example.org")]
    room_id: Option<RoomAddress>,
    /// Only what happens in matches that the caller predicted.
    #[param(default = false)]
    mine: Option<bool>,
    /// Go on after the event with this id; for clients that cannot send the header `Last-Event-ID`, which wins.
    #[param(value_type = Option<String>, pattern = r"^[0-9]{1,18}-[0-9]{1,18}$", example = "1763000000-42")]
    last_event_id: Option<Position>,
}

from_parameters!(StreamParameters { event_id, tournament_id, room_id, mine, last_event_id });

#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub(super) struct LastEventId {
    /// Go on after the event with this id.
    #[param(rename = "Last-Event-ID", value_type = String, required = false, pattern = r"^([0-9]{1,18}-[0-9]{1,18})?$", example = "1763000000-42")]
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

/// Listen to what happens, as it happens.
///
/// Server-sent events, without end. `event`: a match is new or different (`changed` says in what). `result`: a match has a
/// result, another one or none any more. `tally`: how a match is predicted, at most once a second. `points`: what the
/// caller earned with a match. `rank`: the caller's place among all, after a match they predicted is counted. `reset`:
/// something was missed that cannot be had any more; read the lists again.
///
/// Each has an `id`. Whoever loses the connection sends the last one as `Last-Event-ID` and misses nothing; an event
/// may then come a second time. The server ends connections now and then, and those that do not keep up. Every few
/// seconds comes at least an `id` alone.
#[utoipa::path(
    get,
    path = "/api/auth/stream",
    tag = "Live",
    security(("token" = [])),
    params(StreamParameters, LastEventId),
    responses(
        (status = 200, description = "Events, as they happen", content_type = "text/event-stream", body = StreamEvent),
        (status = 403, description = "A private room that the caller is not in", body = ErrorBody),
        (status = 404, description = "No such room", body = ErrorBody),
        (status = 429, description = "The caller listens on too many connections", body = ErrorBody),
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
    if let Some(address) = query.room_id {
        let room = rooms.find_readable(user.id, &address).await?;
        match (room.event_id, filter.event) {
            (Some(event), None) => filter.event = Some(event),
            (Some(event), Some(wanted)) if event == wanted => {}
            // Nothing happens in a room without a match, nor in two matches at once. No match has this number.
            _ => filter.event = Some(EventId(0)),
        }
    }
    let token = crate::sessions::token_of(&headers).unwrap_or_default();
    let after = last_event_id.or(query.last_event_id);
    let listener = live.listen(user.id, token.into(), filter, after, shutdown.closing().clone()).await?;
    let mut answer = Response::new(Body::from_stream(words(listener)));
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // nginx gathers answers unless it is told not to.
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    Ok(answer)
}

fn words(listener: Listener) -> impl futures_util::Stream<Item = Result<Bytes, std::convert::Infallible>> + Send {
    futures_util::stream::unfold(listener, async |mut listener| {
        let words = listener.next().await?;
        Some((Ok(words), listener))
    })
}
