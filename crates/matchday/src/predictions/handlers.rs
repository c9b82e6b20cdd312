//! HTTP for predictions.

use axum::{Json, extract::State};
use http::StatusCode;
use serde::Serialize;
use serde_json::Value;
use time::OffsetDateTime;
use utoipa::{IntoParams, ToSchema};

use super::{
    rules::{Confidence, Forecast, Pick, Score},
    service::{Filter, Listed, RoomView, SaveError, Summary, View},
};
use crate::{
    app::App,
    http::{
        ApiError, CurrentUser, ErrorBody, Path, Query, ValidJson,
        fields::{Body, FromBody, FromJson, FromParameters, FromQuery, Parameters},
        paging::{Cursor, CursorPaging, CursorParameters},
    },
    ids::{EventId, PredictionId, UserId},
    rooms::{ReadableRoom, RoomPath},
};

#[derive(ToSchema)]
#[schema(as = PredictionBody)]
#[expect(dead_code, reason = "only its documentation is used; Submission reads the values")]
pub(super) struct SubmissionBody {
    event_id: EventId,
    prediction: Pick,
    /// Must agree with the prediction; left out or null, the prediction has none.
    #[schema(required = false)]
    score_prediction: Option<Score>,
    /// How sure the caller is, in percent. It adds to the points of a right prediction and takes from those of a wrong
    /// one.
    #[schema(required = false, minimum = 0, maximum = 100, default = 0, example = 75)]
    confidence: Option<i16>,
}

/// What is predicted of which match.
pub(super) struct Submission {
    event_id: EventId,
    forecast: Forecast,
}

impl FromBody for Submission {
    fn from_body(body: &mut Body) -> Option<Self> {
        let event_id = body.required("event_id");
        let (pick, score) = (body.required("prediction"), body.optional("score_prediction"));
        let confidence: Option<Option<Confidence>> = body.optional("confidence");
        let (pick, score) = pick.zip(score)?;
        // Also with a faulty confidence: a contradiction is a fault of its own.
        let forecast = Forecast::new(pick, score, confidence.flatten().unwrap_or_default())
            .or_else(|| body.fault("score_prediction", "contradicts the prediction"));
        Some(Self { event_id: event_id?, forecast: forecast? })
    }
}

impl FromJson for Pick {
    const EXPECTED: &'static str = <Self as FromQuery>::EXPECTED;

    fn from_json(value: &Value) -> Option<Self> {
        value.as_str().and_then(Self::from_query)
    }
}

impl FromQuery for Pick {
    const EXPECTED: &'static str = "must be home, draw or away";

    fn from_query(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl FromJson for Score {
    const EXPECTED: &'static str = "must have home and away, whole numbers from 0 to 99";

    fn from_json(value: &Value) -> Option<Self> {
        let goals = |side| value.as_object()?.get(side)?.as_i64();
        Self::new(goals("home")?, goals("away")?)
    }
}

impl FromJson for Confidence {
    const EXPECTED: &'static str = "must be a whole number from 0 to 100";

    fn from_json(value: &Value) -> Option<Self> {
        value.as_i64().and_then(Self::new)
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct PredictionSaved {
    #[schema(example = "Prediction saved.")]
    message: &'static str,
    data: PredictionItem,
}

/// A prediction of the caller.
#[derive(Serialize, ToSchema)]
#[schema(as = Prediction)]
struct PredictionItem {
    id: PredictionId,
    user_id: UserId,
    event_id: EventId,
    prediction: Pick,
    score_prediction: Option<Score>,
    #[schema(value_type = i16, minimum = 0, maximum = 100, example = 75)]
    confidence: Confidence,
    /// Null until the match has a result.
    #[schema(minimum = -20, maximum = 60)]
    points_earned: Option<i32>,
    /// When the caller first predicted the match.
    #[serde(with = "time::serde::rfc3339")]
    #[schema(example = "2026-11-20T15:00:00Z")]
    created_at: OffsetDateTime,
}

impl From<SaveError> for ApiError {
    fn from(error: SaveError) -> Self {
        match error {
            SaveError::NoSuchEvent => Self::not_found("The event"),
            SaveError::Closed => Self::new(
                StatusCode::BAD_REQUEST,
                "event_started",
                "The event has started, or is not going to at its time: it takes no predictions.",
            ),
            SaveError::Overloaded => {
                Self::unavailable("overloaded", "Too many predictions arrive at this moment. Try again shortly.")
            }
            SaveError::Database(error) => Self::database(&error).because(error),
        }
    }
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "only its documentation is used; Filter reads the values")]
pub(super) struct FilterParameters {
    /// Only the prediction of this user.
    #[param(value_type = Option<i64>, minimum = 1)]
    user_id: Option<UserId>,
    /// Only predictions that say this.
    prediction: Option<Pick>,
}

impl FromParameters for Filter {
    fn from_parameters(parameters: &mut Parameters) -> Option<Self> {
        let (user_id, prediction) = (parameters.optional("user_id"), parameters.optional("prediction"));
        Some(Self { user_id: user_id?, prediction: prediction? })
    }
}

/// Predictions of one match.
#[derive(Serialize, ToSchema)]
pub(super) struct PredictionList {
    data: Vec<ListedItem>,
    meta: PredictionMeta,
}

impl PredictionList {
    /// The answer with some of a match's predictions.
    fn new(listed: Vec<Listed>, next: Option<Cursor>, summary: Summary) -> Self {
        let meta = PredictionMeta {
            total_predictions: summary.total(),
            prediction_distribution: Distribution { home: summary.home, draw: summary.draw, away: summary.away },
            average_confidence: summary.average_confidence,
            next_cursor: next.map(|cursor| cursor.to_string()),
        };
        Self { data: listed.into_iter().map(ListedItem::from).collect(), meta }
    }
}

/// A prediction as everybody sees it.
#[derive(Serialize, ToSchema)]
#[schema(as = ListedPrediction)]
struct ListedItem {
    id: PredictionId,
    user: PredictorItem,
    prediction: Pick,
    score_prediction: Option<Score>,
    #[schema(value_type = i16, minimum = 0, maximum = 100, example = 75)]
    confidence: Confidence,
    /// Null until the match has a result, and for good if it will have none or the prediction came too late. A corrected
    /// result corrects it.
    #[schema(minimum = -20, maximum = 60, example = 49)]
    points_earned: Option<i32>,
    /// When the user first predicted the match.
    #[serde(with = "time::serde::rfc3339")]
    #[schema(example = "2026-11-20T15:00:00Z")]
    created_at: OffsetDateTime,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Predictor)]
struct PredictorItem {
    id: UserId,
    #[schema(example = "swift_winger")]
    username: String,
    #[schema(example = "Ada Obi")]
    name: Option<String>,
}

impl From<Listed> for ListedItem {
    fn from(Listed { prediction, username, name }: Listed) -> Self {
        Self {
            id: prediction.id,
            user: PredictorItem { id: prediction.user_id, username, name },
            prediction: prediction.forecast.pick(),
            score_prediction: prediction.forecast.score(),
            confidence: prediction.forecast.confidence(),
            points_earned: prediction.points(),
            created_at: prediction.created_at,
        }
    }
}

/// Speaks of all predictions of the match, whatever the filter.
#[derive(Serialize, ToSchema)]
struct PredictionMeta {
    #[schema(example = 1204)]
    total_predictions: i64,
    prediction_distribution: Distribution,
    /// In percent; 0 without predictions.
    #[schema(example = 62.5)]
    average_confidence: f64,
    /// Where the list goes on; null at its end.
    #[schema(example = "AAAAAAAAAGQ")]
    next_cursor: Option<String>,
}

/// How many say what.
#[derive(Serialize, ToSchema)]
#[schema(as = PredictionDistribution, example = json!({"home": 700, "draw": 204, "away": 300}))]
struct Distribution {
    home: i64,
    draw: i64,
    away: i64,
}

/// Predict a match, in place of what the caller predicted before.
///
/// Possible until the match starts. A prediction that is replaced keeps its id; what is left out of the new one is
/// empty.
#[utoipa::path(post, path = "/api/auth/predictions", tag = "Predictions", security(("token" = [])),
    request_body = SubmissionBody,
    responses(
        (status = 200, description = "It replaced the caller's earlier one", body = PredictionSaved),
        (status = 201, description = "It is the caller's first of this match", body = PredictionSaved),
        (status = 400, description = "The match takes no predictions any more (`event_started`), or the body is not JSON", body = ErrorBody),
        (status = 404, description = "There is no such match", body = ErrorBody),
    ))]
pub(super) async fn save_prediction(
    State(app): State<App>,
    user: CurrentUser,
    ValidJson(Submission { event_id, forecast }): ValidJson<Submission>,
) -> Result<(StatusCode, Json<PredictionSaved>), ApiError> {
    let saved = app.predictions.save(user.id, event_id, forecast).await?;
    let (status, message) = if saved.is_new {
        (StatusCode::CREATED, "Prediction saved.")
    } else {
        (StatusCode::OK, "Prediction replaced.")
    };
    let data = PredictionItem {
        id: saved.id,
        user_id: user.id,
        event_id,
        prediction: forecast.pick(),
        score_prediction: forecast.score(),
        confidence: forecast.confidence(),
        points_earned: None,
        created_at: saved.created_at,
    };
    Ok((status, Json(PredictionSaved { message, data })))
}

/// List the predictions of a match, those of the oldest accounts first.
#[utoipa::path(get, path = "/api/auth/events/{event}/predictions", tag = "Predictions", security(("token" = [])),
    params(("event" = EventId, Path, description = "As listed"), FilterParameters, CursorParameters),
    responses(
        (status = 200, body = PredictionList),
        (status = 404, description = "There is no such match", body = ErrorBody),
    ))]
pub(super) async fn list_event_predictions(
    State(app): State<App>,
    user: CurrentUser,
    Path(event): Path<EventId>,
    Query((filter, paging)): Query<(Filter, CursorPaging)>,
) -> Result<Json<PredictionList>, ApiError> {
    let summary = app.predictions.summary(event, None).await?.ok_or_else(|| ApiError::not_found("The event"))?;
    let view = View { viewer: user.id, room: None };
    let (listed, next) = app.predictions.list(event, view, filter, paging).await?;
    Ok(Json(PredictionList::new(listed, next, summary)))
}

/// Predictions of a room's members on its match.
#[derive(Serialize, ToSchema)]
pub(super) struct RoomPredictionList {
    data: Vec<ListedItem>,
    meta: RoomPredictionMeta,
}

/// Speaks of all predictions of the room, whatever the filter.
#[derive(Serialize, ToSchema)]
struct RoomPredictionMeta {
    #[schema(example = 120)]
    total_predictions: i64,
    #[schema(example = 70)]
    home_predictions: i64,
    #[schema(example = 20)]
    draw_predictions: i64,
    #[schema(example = 30)]
    away_predictions: i64,
    /// Where the list goes on; null at its end.
    #[schema(example = "AAAAAAAAAGQ")]
    next_cursor: Option<String>,
}

/// List the predictions of a room's members on its match, those of the oldest accounts first.
///
/// All stands of a match are one crowd. A room without a match has none.
#[utoipa::path(get, path = "/api/auth/chat-rooms/{room}/predictions", tag = "Predictions", security(("token" = [])),
    params(RoomPath, FilterParameters, CursorParameters),
    responses(
        (status = 200, body = RoomPredictionList),
        (status = 403, description = "A private room, and the caller is no member", body = ErrorBody),
        (status = 404, description = "There is no such room", body = ErrorBody),
    ))]
pub(super) async fn list_room_predictions(
    State(app): State<App>,
    looked_at: ReadableRoom,
    Query((filter, paging)): Query<(Filter, CursorPaging)>,
) -> Result<Json<RoomPredictionList>, ApiError> {
    let ReadableRoom { user, room } = looked_at;
    let (listed, next, summary) = match room.event_id {
        None => (Vec::new(), None, Summary::default()),
        Some(event) => {
            let of = RoomView { id: room.id, with_all_stands: room.stand.is_some() };
            let summary = app.predictions.summary(event, Some(of)).await?.unwrap_or_default();
            let view = View { viewer: user.id, room: Some(of) };
            let (listed, next) = app.predictions.list(event, view, filter, paging).await?;
            (listed, next, summary)
        }
    };
    let meta = RoomPredictionMeta {
        total_predictions: summary.total(),
        home_predictions: summary.home,
        draw_predictions: summary.draw,
        away_predictions: summary.away,
        next_cursor: next.map(|cursor| cursor.to_string()),
    };
    Ok(Json(RoomPredictionList { data: listed.into_iter().map(ListedItem::from).collect(), meta }))
}
