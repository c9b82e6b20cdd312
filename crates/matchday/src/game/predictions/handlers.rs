//! HTTP handlers for predictions.

use axum::{Extension, Json, extract::State};
use http::StatusCode;
use scoring::{
    Bin, Calibration, Confidence, FORMULA_VERSION, Forecast, Multiplier, Outcome, Pick, PointsPart, PredictionState,
    Preview, Score, Side, explain,
};
use serde::Serialize;
use serde_json::Value;
use time::OffsetDateTime;
use utoipa::{IntoParams, ToSchema};
use web::{
    ApiError, ErrorBody, Path, Query, ValidJson,
    fields::{
        Body, Faulty, FromBody, FromJson, FromParameters, FromQuery, Parameters, from_body, from_parameters, one,
        whole_number,
    },
    ids::{MatchId, PredictionId, RuleSetId, UserId},
    paging::{Cursor, CursorPaging},
};

use super::{
    receipts::ReceiptItem,
    rules::Broken,
    service::{
        EventPreview, Filter, Listed, Own, OwnFilter, Prediction, Predictions, PreviewError, RoomView, SaveError,
        Summary, View,
    },
};
use crate::{
    catalogue::matches::rules::{PublicStatus, Status},
    chat::rooms::{ReadableRoom, RoomPath, service::Rooms},
    identity::{
        accounts::ListedPersonItem,
        avatars::AvatarUrls,
        callers::CallerReader,
        idempotency::{self, KeyOutcome, KeyedRequest},
        sessions::CurrentUser,
    },
};

#[derive(ToSchema)]
#[schema(as = PredictionBody)]
pub(super) struct SubmissionBody {
    #[schema(value_type = MatchId)]
    event_id: Result<MatchId, Faulty>,
    #[schema(value_type = Pick)]
    prediction: Result<Parsed<Pick>, Faulty>,
    /// Predicted score. It must agree with `prediction`. If missing or null, no score is predicted.
    #[schema(value_type = Option<Score>)]
    score_prediction: Result<Option<Parsed<Score>>, Faulty>,
    /// Confidence in the prediction, in percent. It adds points if the prediction is right and costs points if it is
    /// wrong.
    #[schema(value_type = Option<i16>, minimum = 0, maximum = 100, default = 0, example = 75)]
    confidence: Result<Option<Parsed<Confidence>>, Faulty>,
    /// Team that advances, for a knockout match. It need not be the predicted winner, except in a sport without draws.
    #[schema(value_type = Option<Side>)]
    advances: Result<Option<Parsed<Side>>, Faulty>,
    /// Whether to play a joker, which doubles all points of the match. The rule set says how many a tournament has.
    #[schema(value_type = Option<bool>, default = false)]
    joker: Result<Option<bool>, Faulty>,
}

from_body!(SubmissionBody { event_id, prediction, score_prediction, confidence, advances, joker });

/// A valid prediction from a request body.
pub(super) struct Submission {
    event_id: MatchId,
    forecast: Forecast,
}

impl FromBody for Submission {
    fn from_body(body: &mut Body) -> Option<Self> {
        let SubmissionBody { event_id, prediction, score_prediction, confidence, advances, joker } =
            SubmissionBody::from_body(body)?;
        // Report a contradicting score even if the match or the confidence is invalid too.
        let confidence = confidence.ok().flatten().map(Parsed::into_inner).unwrap_or_default();
        let score = score_prediction.ok()?.map(Parsed::into_inner);
        let forecast = Forecast::new(prediction.ok()?.into_inner(), score, confidence)
            .or_else(|| body.fault("score_prediction", "contradicts the prediction"));
        let forecast =
            forecast?.with_advances(advances.ok()?.map(Parsed::into_inner)).with_joker(joker.ok()?.unwrap_or_default());
        Some(Self { event_id: event_id.ok()?, forecast })
    }
}

/// A value of a `scoring` type, parsed from a request. The wrapper is needed because both the parsing traits and the
/// types belong to other crates.
pub(super) struct Parsed<T>(T);

impl<T> Parsed<T> {
    fn into_inner(self) -> T {
        self.0
    }
}

impl FromJson for Parsed<Pick> {
    const EXPECTED: &'static str = <Self as FromQuery>::EXPECTED;

    fn from_json(value: &Value) -> Option<Self> {
        value.as_str().and_then(Self::from_query)
    }
}

impl FromQuery for Parsed<Pick> {
    const EXPECTED: &'static str = "must be home, draw or away";

    fn from_query(text: &str) -> Option<Self> {
        text.parse().ok().map(Self)
    }
}

impl FromJson for Parsed<Score> {
    const EXPECTED: &'static str = "must have home and away, whole numbers from 0 to 999";

    fn from_json(value: &Value) -> Option<Self> {
        let goals = |side| whole_number(value.as_object()?.get(side)?);
        Score::new(goals("home")?, goals("away")?).map(Self)
    }
}

impl FromJson for Parsed<Side> {
    const EXPECTED: &'static str = "must be home or away";

    fn from_json(value: &Value) -> Option<Self> {
        value.as_str()?.parse().ok().map(Self)
    }
}

impl FromJson for Parsed<Confidence> {
    const EXPECTED: &'static str = "must be a whole number from 0 to 100";

    fn from_json(value: &Value) -> Option<Self> {
        whole_number(value).and_then(Confidence::new).map(Self)
    }
}

impl FromQuery for Parsed<Confidence> {
    const EXPECTED: &'static str = <Self as FromJson>::EXPECTED;

    fn from_query(text: &str) -> Option<Self> {
        text.parse().ok().and_then(Confidence::new).map(Self)
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct PredictionSaved {
    #[schema(example = "Prediction saved.")]
    message: &'static str,
    data: SavedItem,
}

/// A prediction as it was just saved.
#[derive(Serialize, ToSchema)]
#[schema(as = SavedPrediction)]
struct SavedItem {
    #[serde(flatten)]
    prediction: PredictionItem,
    /// Proves the prediction once the match is sealed.
    #[schema(required)]
    receipt: Option<ReceiptItem>,
}

/// A prediction made by the caller.
#[derive(Serialize, ToSchema)]
#[schema(as = Prediction)]
struct PredictionItem {
    id: PredictionId,
    user_id: UserId,
    event_id: MatchId,
    prediction: Pick,
    #[schema(required)]
    score_prediction: Option<Score>,
    #[schema(value_type = i16, minimum = 0, maximum = 100, example = 75)]
    confidence: Confidence,
    /// Team that advances, if the user named one.
    #[schema(required)]
    advances: Option<Side>,
    /// Whether the user plays a joker.
    joker: bool,
    /// Null until the match has a result; always null if the match is void or the prediction was late. Follows
    /// corrections of the result.
    #[schema(required, minimum = -6000, maximum = 18000)]
    points_earned: Option<i32>,
    /// Time of the caller's first prediction for the match.
    #[serde(with = "platform::timestamp")]
    #[schema(example = "2026-11-20T15:00:00.000Z")]
    created_at: OffsetDateTime,
}

impl From<SaveError> for ApiError {
    fn from(error: SaveError) -> Self {
        match error {
            SaveError::NoSuchMatch => Self::not_found("The event"),
            SaveError::Closed(status) => closed(status),
            SaveError::NotAllowed(broken) => broken_rule(broken, &["score_prediction"]),
            SaveError::NoJokerLeft => {
                Self::new(StatusCode::CONFLICT, "no_joker_left", "You have no joker left in this tournament.")
            }
            SaveError::KeyUsed => idempotency::key_used(),
            SaveError::KeyBusy => idempotency::in_progress(),
            SaveError::Overloaded => {
                Self::unavailable("overloaded", "Too many predictions are arriving. Try again shortly.")
            }
            SaveError::Database(error) => Self::database(&error).because(error),
        }
    }
}

/// Returns the error for a prediction that the match or its sport does not allow. `score` are the fields of the score.
fn broken_rule(broken: Broken, score: &[&str]) -> ApiError {
    let fields = match broken {
        Broken::Draw => &["prediction"],
        Broken::Score(_) => score,
        Broken::NotKnockout | Broken::WinnerAdvances => &["advances"],
        Broken::NoJokers => &["joker"],
    };
    let problem = broken.to_string();
    ApiError::invalid(fields.iter().flat_map(|field| one(field, &problem)).collect())
}

/// Returns the error for a match that does not accept predictions.
fn closed(status: Status) -> ApiError {
    let (code, message) = match status {
        Status::Scheduled | Status::Live | Status::Suspended => {
            ("event_started", "This match has started. Predictions are closed.")
        }
        Status::Postponed => {
            ("event_postponed", "This match was postponed. Predictions are closed until it has a new date.")
        }
        Status::Cancelled => ("event_cancelled", "This match was cancelled. Predictions are closed."),
        Status::Finished | Status::Abandoned | Status::Awarded => {
            ("event_finished", "This match has ended. Predictions are closed.")
        }
    };
    ApiError::new(StatusCode::BAD_REQUEST, code, message)
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct FilterParameters {
    /// Only the prediction of this user.
    #[param(value_type = Option<i64>, minimum = 1)]
    user_id: Option<UserId>,
    /// Only predictions with this pick.
    #[param(value_type = Option<Pick>)]
    prediction: Option<Parsed<Pick>>,
}

from_parameters!(FilterParameters { user_id, prediction });

impl From<FilterParameters> for Filter {
    fn from(FilterParameters { user_id, prediction }: FilterParameters) -> Self {
        Self { user_id, prediction: prediction.map(Parsed::into_inner) }
    }
}

/// One page of a match's predictions.
#[derive(Serialize, ToSchema)]
pub(super) struct PredictionList {
    data: Vec<ListedItem>,
    meta: PredictionMeta,
}

impl PredictionList {
    fn new(listed: Vec<Listed>, next: Option<Cursor>, summary: Summary, avatars: &AvatarUrls) -> Self {
        let meta = PredictionMeta {
            total_predictions: summary.total(),
            prediction_distribution: Distribution { home: summary.home, draw: summary.draw, away: summary.away },
            average_confidence: summary.average_confidence,
            next_cursor: next.map(|cursor| cursor.to_string()),
        };
        Self { data: listed.into_iter().map(|listed| ListedItem::new(listed, avatars)).collect(), meta }
    }
}

/// A prediction as other users see it.
#[derive(Serialize, ToSchema)]
#[schema(as = ListedPrediction)]
struct ListedItem {
    id: PredictionId,
    user: ListedPersonItem,
    prediction: Pick,
    #[schema(required)]
    score_prediction: Option<Score>,
    #[schema(value_type = i16, minimum = 0, maximum = 100, example = 75)]
    confidence: Confidence,
    /// Team that advances, if the user named one.
    #[schema(required)]
    advances: Option<Side>,
    /// Whether the user plays a joker.
    joker: bool,
    /// Null until the match has a result; always null if the match is void or the prediction was late. Follows
    /// corrections of the result.
    #[schema(required, minimum = -6000, maximum = 18000, example = 49)]
    points_earned: Option<i32>,
    /// Time of the user's first prediction for the match.
    #[serde(with = "platform::timestamp")]
    #[schema(example = "2026-11-20T15:00:00.000Z")]
    created_at: OffsetDateTime,
}

impl ListedItem {
    fn new(Listed { prediction, person }: Listed, avatars: &AvatarUrls) -> Self {
        Self {
            id: prediction.id,
            user: ListedPersonItem::new(person, avatars),
            prediction: prediction.forecast.pick(),
            score_prediction: prediction.forecast.score(),
            confidence: prediction.forecast.confidence(),
            advances: prediction.forecast.advances(),
            joker: prediction.forecast.joker(),
            points_earned: prediction.points(),
            created_at: prediction.created_at,
        }
    }
}

/// Summary of all predictions of the match, regardless of the filter.
#[derive(Serialize, ToSchema)]
struct PredictionMeta {
    #[schema(example = 1204)]
    total_predictions: i64,
    prediction_distribution: Distribution,
    /// Average confidence in percent; 0 without predictions.
    #[schema(example = 62.5)]
    average_confidence: f64,
    /// Cursor of the next page; null on the last page.
    #[schema(required, example = "AAAAAAAAAGQ")]
    next_cursor: Option<String>,
}

/// Number of predictions by pick.
#[derive(Serialize, ToSchema)]
#[schema(as = PredictionDistribution, example = json!({"home": 700, "draw": 204, "away": 300}))]
pub(crate) struct Distribution {
    pub(crate) home: i64,
    pub(crate) draw: i64,
    pub(crate) away: i64,
}

/// Predict a match, or replace the caller's earlier prediction.
///
/// Predictions are accepted until the match starts. A replaced prediction keeps its id; optional fields that are
/// missing in the new prediction are cleared.
#[utoipa::path(post, path = "/api/auth/predictions", tag = "Predictions", security(("token" = [])),
    request_body = SubmissionBody,
    responses(
        (status = 200, description = "The prediction replaced an earlier one", body = PredictionSaved),
        (status = 201, description = "The prediction is the caller's first for this match", body = PredictionSaved),
        (status = 400, description = "Predictions for the match are closed (`event_started`, `event_postponed`, `event_cancelled` or `event_finished`), or the body is not JSON", body = ErrorBody),
        (status = 404, description = "The match does not exist", body = ErrorBody),
        (status = 409, description = "The caller has no joker left in the tournament (`no_joker_left`)", body = ErrorBody),
    ))]
pub(super) async fn save_prediction(
    State(predictions): State<Predictions>,
    user: CurrentUser,
    request: Option<KeyedRequest>,
    ValidJson(Submission { event_id, forecast }): ValidJson<Submission>,
) -> Result<(StatusCode, Extension<KeyOutcome>, Json<PredictionSaved>), ApiError> {
    let (saved, key_outcome) = match request {
        Some(request) => predictions.save_once(user.id, event_id, forecast, request).await?,
        None => (predictions.save(user.id, event_id, forecast).await?, KeyOutcome::Stored),
    };
    let (status, message) = if saved.is_new {
        (StatusCode::CREATED, "Prediction saved.")
    } else {
        (StatusCode::OK, "Prediction replaced.")
    };
    let prediction = PredictionItem {
        id: saved.id,
        user_id: user.id,
        event_id,
        prediction: forecast.pick(),
        score_prediction: forecast.score(),
        confidence: forecast.confidence(),
        advances: forecast.advances(),
        joker: forecast.joker(),
        points_earned: None,
        created_at: saved.created_at,
    };
    let data = SavedItem { prediction, receipt: saved.receipt.map(ReceiptItem::from) };
    Ok((status, Extension(key_outcome), Json(PredictionSaved { message, data })))
}

#[derive(Serialize, ToSchema)]
pub(super) struct ReceiptResponse {
    data: ReceiptItem,
}

/// Show the receipt of a prediction's latest revision.
///
/// Only the user who made the prediction can read it.
#[utoipa::path(get, path = "/api/auth/predictions/{id}/receipt", tag = "Predictions", security(("token" = [])),
    params(("id" = PredictionId, Path, description = "Id of the prediction")),
    responses(
        (status = 200, body = ReceiptResponse),
        (status = 404, description = "The caller has no such prediction, or it was made before receipts existed (`no_receipt`)", body = ErrorBody),
    ))]
pub(super) async fn get_receipt(
    State(predictions): State<Predictions>,
    user: CurrentUser,
    Path(id): Path<PredictionId>,
) -> Result<Json<ReceiptResponse>, ApiError> {
    let found = predictions.receipt(user.id, id).await?.ok_or_else(|| ApiError::not_found("The prediction"))?;
    let receipt = found.ok_or_else(|| {
        ApiError::new(StatusCode::NOT_FOUND, "no_receipt", "This prediction was made before receipts existed.")
    })?;
    Ok(Json(ReceiptResponse { data: receipt.into() }))
}

/// List the predictions of a match.
///
/// Sorted by user id, so the oldest accounts come first.
#[utoipa::path(get, path = "/api/auth/events/{event}/predictions", tag = "Predictions", security(("token" = [])),
    params(("event" = MatchId, Path, description = "Id of the match"), FilterParameters, CursorPaging),
    responses(
        (status = 200, body = PredictionList),
        (status = 404, description = "The match does not exist", body = ErrorBody),
    ))]
pub(super) async fn list_event_predictions(
    State(predictions): State<Predictions>,
    State(avatars): State<AvatarUrls>,
    user: CurrentUser,
    CallerReader(reader): CallerReader,
    Path(event): Path<MatchId>,
    Query((filter, paging)): Query<(FilterParameters, CursorPaging)>,
) -> Result<Json<PredictionList>, ApiError> {
    let summary = predictions.summary(&reader, event).await?.ok_or_else(|| ApiError::not_found("The event"))?;
    let view = View { viewer: user.id, room: None };
    let (listed, next) = predictions.list(&reader, event, view, filter.into(), paging).await?;
    Ok(Json(PredictionList::new(listed, next, summary, &avatars)))
}

/// One page of the predictions of a room's members.
#[derive(Serialize, ToSchema)]
pub(super) struct RoomPredictionList {
    data: Vec<ListedItem>,
    meta: RoomPredictionMeta,
}

/// Summary of all predictions of the room's members, regardless of the filter.
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
    /// Cursor of the next page; null on the last page.
    #[schema(required, example = "AAAAAAAAAGQ")]
    next_cursor: Option<String>,
}

/// List the predictions of a room's members for its match.
///
/// Sorted by user id, so the oldest accounts come first. All stands of a match count as one room. A room without a
/// match has no predictions.
#[utoipa::path(get, path = "/api/auth/chat-rooms/{room}/predictions", tag = "Predictions", security(("token" = [])),
    params(RoomPath, FilterParameters, CursorPaging),
    responses(
        (status = 200, body = RoomPredictionList),
        (status = 403, description = "The room is private and the caller is not a member", body = ErrorBody),
        (status = 404, description = "The room does not exist", body = ErrorBody),
    ))]
pub(super) async fn list_room_predictions(
    State(predictions): State<Predictions>,
    State(rooms): State<Rooms>,
    State(avatars): State<AvatarUrls>,
    readable: ReadableRoom,
    CallerReader(reader): CallerReader,
    Query((filter, paging)): Query<(FilterParameters, CursorPaging)>,
) -> Result<Json<RoomPredictionList>, ApiError> {
    let ReadableRoom { user, room } = readable;
    let picks = rooms.picks(&room).await?;
    let (listed, next) = match room.event_id {
        None => (Vec::new(), None),
        Some(event) => {
            let of = RoomView { id: room.id, with_all_stands: room.stand.is_some() };
            let view = View { viewer: user.id, room: Some(of) };
            predictions.list(&reader, event, view, filter.into(), paging).await?
        }
    };
    let meta = RoomPredictionMeta {
        total_predictions: picks.total(),
        home_predictions: picks.home,
        draw_predictions: picks.draw,
        away_predictions: picks.away,
        next_cursor: next.map(|cursor| cursor.to_string()),
    };
    let data = listed.into_iter().map(|listed| ListedItem::new(listed, &avatars)).collect();
    Ok(Json(RoomPredictionList { data, meta }))
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct OwnParameters {
    /// Only predictions of matches that still accept predictions (`open`) or have a result (`settled`).
    #[param(inline)]
    status: Option<OwnFilter>,
}

from_parameters!(OwnParameters { status });

impl FromQuery for OwnFilter {
    const EXPECTED: &'static str = "must be open or settled";

    fn from_query(text: &str) -> Option<Self> {
        match text {
            "open" => Some(Self::Open),
            "settled" => Some(Self::Settled),
            _ => None,
        }
    }
}

/// One page of the caller's predictions.
#[derive(Serialize, ToSchema)]
pub(super) struct OwnPredictionList {
    data: Vec<OwnItem>,
    meta: OwnPredictionMeta,
}

/// A prediction made by the caller, with its match.
#[derive(Serialize, ToSchema)]
#[schema(as = OwnPrediction)]
struct OwnItem {
    #[serde(flatten)]
    prediction: PredictionItem,
    /// Time of the revision that counts.
    #[serde(with = "platform::timestamp")]
    #[schema(example = "2026-11-20T15:00:00.000Z")]
    updated_at: OffsetDateTime,
    event: PredictedEventItem,
}

/// Match that was predicted.
#[derive(Serialize, ToSchema)]
#[schema(as = PredictedEvent)]
struct PredictedEventItem {
    id: MatchId,
    #[schema(example = "Rovers")]
    home_team: String,
    #[schema(example = "City")]
    away_team: String,
    #[serde(with = "platform::timestamp")]
    #[schema(example = "2026-11-20T15:00:00.000Z")]
    start_time: OffsetDateTime,
    status: PublicStatus,
    #[schema(required, example = 2)]
    home_score: Option<i32>,
    #[schema(required, example = 1)]
    away_score: Option<i32>,
}

impl From<&Prediction> for PredictionItem {
    fn from(prediction: &Prediction) -> Self {
        Self {
            id: prediction.id,
            user_id: prediction.user_id,
            event_id: prediction.event_id,
            prediction: prediction.forecast.pick(),
            score_prediction: prediction.forecast.score(),
            confidence: prediction.forecast.confidence(),
            advances: prediction.forecast.advances(),
            joker: prediction.forecast.joker(),
            points_earned: prediction.points(),
            created_at: prediction.created_at,
        }
    }
}

impl From<Own> for OwnItem {
    fn from(Own { prediction, event }: Own) -> Self {
        Self {
            prediction: PredictionItem::from(&prediction),
            updated_at: prediction.updated_at,
            event: PredictedEventItem {
                id: prediction.event_id,
                home_team: event.home_team,
                away_team: event.away_team,
                start_time: event.start_time,
                status: event.status.public(),
                home_score: event.home_score,
                away_score: event.away_score,
            },
        }
    }
}

#[derive(Serialize, ToSchema)]
struct OwnPredictionMeta {
    /// Cursor of the next page; null on the last page.
    #[schema(required, example = "AAAAAAAAAGQ")]
    next_cursor: Option<String>,
}

/// List the caller's predictions, newest first.
#[utoipa::path(get, path = "/api/auth/predictions", tag = "Predictions", security(("token" = [])),
    params(OwnParameters, CursorPaging),
    responses((status = 200, body = OwnPredictionList)))]
pub(super) async fn list_own_predictions(
    State(predictions): State<Predictions>,
    user: CurrentUser,
    CallerReader(reader): CallerReader,
    Query((filter, paging)): Query<(OwnParameters, CursorPaging)>,
) -> Result<Json<OwnPredictionList>, ApiError> {
    let (own, next) = predictions.own(&reader, user.id, filter.status, paging).await?;
    let meta = OwnPredictionMeta { next_cursor: next.map(|cursor| cursor.to_string()) };
    Ok(Json(OwnPredictionList { data: own.into_iter().map(OwnItem::from).collect(), meta }))
}

#[derive(Serialize, ToSchema)]
pub(super) struct ExplanationResponse {
    data: ExplanationItem,
}

/// Points of one of the caller's predictions, with an explanation.
#[derive(Serialize, ToSchema)]
#[schema(as = PredictionExplanation)]
struct ExplanationItem {
    id: PredictionId,
    event_id: MatchId,
    prediction: Pick,
    #[schema(required)]
    score_prediction: Option<Score>,
    #[schema(value_type = i16, minimum = 0, maximum = 100, example = 75)]
    confidence: Confidence,
    /// Team that advances, if the user named one.
    #[schema(required)]
    advances: Option<Side>,
    /// Whether the user plays a joker.
    joker: bool,
    state: PredictionState,
    /// Null if the match has no result.
    #[schema(required)]
    result: Option<ResultItem>,
    /// Null unless the state is `settled`.
    #[schema(required, minimum = -6000, maximum = 18000, example = 49)]
    points_earned: Option<i32>,
    /// Version of the formula for points.
    #[schema(example = 1)]
    rules_version: i16,
    /// Values by which the points are computed.
    rule_set_id: RuleSetId,
    /// Points by aspect. The parts add up to `points_earned`. Empty unless the state is `settled`.
    parts: Vec<PointsPart>,
}

/// Final score of a match.
#[derive(Serialize, ToSchema)]
#[schema(as = MatchResult)]
struct ResultItem {
    #[schema(example = 2)]
    home: i32,
    #[schema(example = 1)]
    away: i32,
    /// Team that advanced; null until it is known, and if this is not a knockout match.
    #[schema(required)]
    advanced: Option<Side>,
}

impl From<Prediction> for ExplanationItem {
    fn from(prediction: Prediction) -> Self {
        let forecast = prediction.forecast;
        let points_earned = prediction.points();
        Self {
            id: prediction.id,
            event_id: prediction.event_id,
            prediction: forecast.pick(),
            score_prediction: forecast.score(),
            confidence: forecast.confidence(),
            advances: forecast.advances(),
            joker: forecast.joker(),
            state: prediction.state(),
            result: match prediction.outcome {
                Outcome::Result { home, away, advanced } => Some(ResultItem { home, away, advanced }),
                Outcome::Open | Outcome::Void => None,
            },
            points_earned,
            rules_version: FORMULA_VERSION,
            rule_set_id: prediction.rule_set_id,
            parts: points_earned.map(|_| explain(forecast, &prediction.terms, prediction.outcome)).unwrap_or_default(),
        }
    }
}

/// Explain the points of one of the caller's predictions.
#[utoipa::path(get, path = "/api/auth/predictions/{id}/explanation", tag = "Predictions", security(("token" = [])),
    params(("id" = PredictionId, Path, description = "Id of the prediction")),
    responses(
        (status = 200, body = ExplanationResponse),
        (status = 404, description = "The prediction does not exist, or belongs to another user", body = ErrorBody),
    ))]
pub(super) async fn explain_prediction(
    State(predictions): State<Predictions>,
    user: CurrentUser,
    Path(id): Path<PredictionId>,
) -> Result<Json<ExplanationResponse>, ApiError> {
    let prediction = predictions.find_own(user.id, id).await?;
    let prediction = prediction.ok_or_else(|| ApiError::not_found("The prediction"))?;
    Ok(Json(ExplanationResponse { data: prediction.into() }))
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct PreviewParameters {
    /// Predicted winner, or a draw.
    #[param(value_type = Pick)]
    prediction: Result<Parsed<Pick>, Faulty>,
    /// Goals of the home team. Requires `away`, and must agree with the prediction.
    #[param(value_type = Option<i16>, minimum = 0, maximum = 999, example = 2)]
    home: Result<Option<Goals>, Faulty>,
    /// Goals of the away team. Requires `home`, and must agree with the prediction.
    #[param(value_type = Option<i16>, minimum = 0, maximum = 999, example = 1)]
    away: Result<Option<Goals>, Faulty>,
    /// Confidence in the prediction, in percent.
    #[param(value_type = Option<i16>, minimum = 0, maximum = 100, default = 0, example = 75)]
    confidence: Result<Option<Parsed<Confidence>>, Faulty>,
    /// Whether to play a joker. Whether one is left is not checked.
    #[param(value_type = Option<bool>, default = false)]
    joker: Result<Option<bool>, Faulty>,
}

from_parameters!(PreviewParameters { prediction, home, away, confidence, joker });

/// Goals of one team in a query.
struct Goals(i64);

impl FromQuery for Goals {
    const EXPECTED: &'static str = "must be a whole number from 0 to 999";

    fn from_query(text: &str) -> Option<Self> {
        let goals = text.parse().ok()?;
        Score::new(goals, 0).map(|_| Self(goals))
    }
}

impl FromParameters for Parsed<Forecast> {
    fn from_parameters(parameters: &mut Parameters<'_>) -> Option<Self> {
        let given = PreviewParameters::from_parameters(parameters)?;
        let score = match (given.home.ok()?, given.away.ok()?) {
            (Some(Goals(home)), Some(Goals(away))) => Score::new(home, away),
            (None, None) => None,
            (Some(_), None) => return parameters.fault("away", "is required with home"),
            (None, Some(_)) => return parameters.fault("home", "is required with away"),
        };
        // Report a contradicting score even if the confidence is invalid too.
        let confidence = given.confidence.ok().flatten().map(Parsed::into_inner).unwrap_or_default();
        let forecast = Forecast::new(given.prediction.ok()?.into_inner(), score, confidence);
        let joker = given.joker.ok()?.unwrap_or_default();
        forecast.map(|forecast| Self(forecast.with_joker(joker))).or_else(|| {
            for side in ["home", "away"] {
                parameters.fault::<Self>(side, "contradicts the prediction");
            }
            None
        })
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct PreviewResponse {
    data: PreviewItem,
}

/// Points that a prediction would earn, with multiplier and joker, and without the points for the team that advances.
#[derive(Serialize, ToSchema)]
#[schema(as = PointsPreview)]
struct PreviewItem {
    /// Version of the formula for points.
    #[schema(example = 1)]
    rules_version: i16,
    /// Values by which the points are computed.
    rule_set_id: RuleSetId,
    /// Factor for all points of the match: 1, 1.5, 2 or 3. The points below include it.
    #[schema(value_type = f64, example = 1)]
    multiplier: Multiplier,
    /// Points if only the outcome is right.
    #[schema(example = 39)]
    right: i32,
    /// Points if the difference is almost right; null if the rule set has no margin, without a score, and for a draw.
    #[schema(required, example = 44)]
    margin: Option<i32>,
    /// Points if the goal difference is right; null without a score and for a draw.
    #[schema(required, example = 49)]
    goal_difference: Option<i32>,
    /// Points if the score is exactly right; null without a score.
    #[schema(required, example = 59)]
    exact_score: Option<i32>,
    /// Points if the outcome is wrong: zero or negative.
    #[schema(example = -11)]
    wrong: i32,
    /// Points for the team that advances, before multiplier and joker; null if this is not a knockout match.
    #[schema(required, example = 10)]
    advances: Option<i32>,
}

impl From<EventPreview> for PreviewItem {
    fn from(EventPreview { rule_set_id, terms, points }: EventPreview) -> Self {
        let Preview { right, margin, goal_difference, exact_score, wrong } = points;
        Self {
            rules_version: FORMULA_VERSION,
            rule_set_id,
            multiplier: terms.multiplier,
            right,
            margin,
            goal_difference,
            exact_score,
            wrong,
            advances: terms.is_knockout.then_some(terms.rules.advances),
        }
    }
}

/// Fields of the scores that are too high.
fn sides_above(forecast: Forecast, broken: Broken) -> Vec<&'static str> {
    let (Some(score), Broken::Score(most)) = (forecast.score(), broken) else { return Vec::new() };
    [("home", score.home()), ("away", score.away())]
        .into_iter()
        .filter_map(|(side, goals)| (goals > most).then_some(side))
        .collect()
}

/// Preview the points of a prediction.
///
/// Nothing is saved. The preview also works for matches that no longer accept predictions.
#[utoipa::path(get, path = "/api/auth/events/{event}/points-preview", tag = "Predictions", security(("token" = [])),
    params(("event" = MatchId, Path, description = "Id of the match"), PreviewParameters),
    responses(
        (status = 200, body = PreviewResponse),
        (status = 404, description = "The match does not exist", body = ErrorBody),
    ))]
pub(super) async fn preview_points(
    State(predictions): State<Predictions>,
    _: CurrentUser,
    Path(event): Path<MatchId>,
    Query(Parsed(forecast)): Query<Parsed<Forecast>>,
) -> Result<Json<PreviewResponse>, ApiError> {
    let preview = predictions.preview(event, forecast).await.map_err(|error| match error {
        PreviewError::NotAllowed(broken) => broken_rule(broken, &sides_above(forecast, broken)),
        PreviewError::Database(error) => error.into(),
    })?;
    let preview = preview.ok_or_else(|| ApiError::not_found("The event"))?;
    Ok(Json(PreviewResponse { data: preview.into() }))
}

#[derive(Serialize, ToSchema)]
pub(super) struct CalibrationResponse {
    data: CalibrationItem,
}

/// The caller's confidence compared with their hit rate.
#[derive(Serialize, ToSchema)]
#[schema(as = Calibration)]
struct CalibrationItem {
    /// Number of the caller's predictions that were made in time for matches with a result.
    #[schema(example = 42)]
    settled: u32,
    /// Number of these predictions without confidence. They belong to no bin.
    #[schema(example = 5)]
    without_stake: u32,
    /// Predictions grouped by confidence: 1 to 10 percent, 11 to 20, and so on.
    bins: Vec<BinItem>,
}

/// Settled predictions of similar confidence.
#[derive(Serialize, ToSchema)]
#[schema(as = CalibrationBin)]
struct BinItem {
    /// Lowest confidence of the bin, in percent.
    #[schema(example = 71)]
    from: i16,
    /// Highest confidence of the bin, in percent.
    #[schema(example = 80)]
    to: i16,
    #[schema(example = 8)]
    count: u32,
    /// Number of predictions in the bin with the right outcome.
    #[schema(example = 6)]
    right: u32,
    /// Average confidence in percent; null for an empty bin.
    #[schema(required, example = 76.5)]
    average_confidence: Option<f64>,
    /// Share of predictions with the right outcome, from 0 to 1; null for an empty bin. For a well-calibrated user, it
    /// is about one hundredth of the average confidence.
    #[schema(required, minimum = 0, maximum = 1, example = 0.75)]
    hit_rate: Option<f64>,
}

impl From<Calibration> for CalibrationItem {
    fn from(calibration: Calibration) -> Self {
        let Calibration { settled, without_stake, bins } = calibration;
        Self { settled, without_stake, bins: bins.iter().map(BinItem::from).collect() }
    }
}

impl From<&Bin> for BinItem {
    fn from(bin: &Bin) -> Self {
        Self {
            from: bin.from,
            to: bin.to,
            count: bin.count,
            right: bin.right,
            average_confidence: bin.average_confidence(),
            hit_rate: bin.hit_rate(),
        }
    }
}

/// Compare the caller's confidence with their hit rate.
#[utoipa::path(get, path = "/api/auth/me/calibration", tag = "Predictions", security(("token" = [])),
    responses((status = 200, body = CalibrationResponse)))]
pub(super) async fn get_calibration(
    State(predictions): State<Predictions>,
    user: CurrentUser,
    CallerReader(reader): CallerReader,
) -> Result<Json<CalibrationResponse>, ApiError> {
    Ok(Json(CalibrationResponse { data: predictions.calibration(&reader, user.id).await?.into() }))
}
