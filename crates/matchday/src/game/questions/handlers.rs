//! HTTP handlers for questions.

use std::collections::BTreeMap;

use axum::{Json, extract::State};
use http::StatusCode;
use serde::Serialize;
use time::OffsetDateTime;
use utoipa::{IntoParams, ToSchema};
use web::{
    ApiError, ErrorBody, Path, Query, ValidJson,
    fields::{from_body, from_parameters},
    ids::{MatchId, QuestionId, TournamentId, UserId},
    paging::{CursorPaging, PageMeta, Paging},
};

use super::{
    rules::{Answer, Choice, NumberScoring, Question, QuestionKind, Resolution, Status},
    service::{AnswerError, AnswerPage, Filter, Listed, Questions, StoredAnswer},
};
use crate::{
    catalogue::matches::rules::RoundNumber,
    identity::{accounts::ListedPersonItem, avatars::AvatarUrls, callers::CallerReader, sessions::CurrentUser},
};

impl From<AnswerError> for ApiError {
    fn from(error: AnswerError) -> Self {
        let closed = |code, message: &'static str| Self::new(StatusCode::BAD_REQUEST, code, message);
        match error {
            AnswerError::NoSuchQuestion => Self::not_found("The question"),
            AnswerError::Invalid => Self::invalid_field("answer", "does not fit the question"),
            AnswerError::Closed(Status::Void) => closed("question_void", "This question was cancelled."),
            AnswerError::Closed(Status::Resolved) => closed("question_resolved", "This question has been resolved."),
            AnswerError::Closed(_) => closed("question_locked", "This question is closed."),
            AnswerError::Overloaded => {
                Self::unavailable("overloaded", "Too many answers are arriving. Try again shortly.")
            }
            AnswerError::Database(error) => Self::database(&error).because(error),
        }
    }
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ListParameters {
    #[param(value_type = Option<TournamentId>)]
    tournament_id: Option<TournamentId>,
    /// Only questions on this match.
    #[param(value_type = Option<MatchId>)]
    event_id: Option<MatchId>,
    #[param(value_type = Option<i16>, minimum = 1, maximum = 999)]
    round: Option<RoundNumber>,
    status: Option<Status>,
    /// Only questions that the caller has answered (true) or not (false).
    answered: Option<bool>,
}

from_parameters!(ListParameters { tournament_id, event_id, round, status, answered });

#[derive(Serialize, ToSchema)]
pub(super) struct QuestionList {
    data: Vec<QuestionItem>,
    meta: PageMeta,
}

#[derive(Serialize, ToSchema)]
pub(super) struct QuestionResponse {
    data: QuestionItem,
}

/// A bonus question.
#[derive(Serialize, ToSchema)]
#[schema(as = Question)]
struct QuestionItem {
    id: QuestionId,
    tournament_id: TournamentId,
    /// Round that the question counts for: its own, or that of its match.
    #[schema(required, minimum = 1, maximum = 999)]
    round: Option<i16>,
    #[schema(required)]
    event_id: Option<MatchId>,
    #[schema(min_length = 1, max_length = 300, example = "Who scores the most goals?")]
    text: String,
    kind: KindName,
    /// For `choice` and `several_of`.
    #[schema(required, min_items = 2, max_items = 32)]
    options: Option<Vec<OptionItem>>,
    /// For `several_of`: number of options in an answer.
    #[schema(required, minimum = 2, maximum = 32)]
    pick: Option<i16>,
    /// For `number`: whether the nearest answers are right, or only the exact one.
    #[schema(required)]
    scoring: Option<ScoringName>,
    /// Points for a right answer; for `several_of`, for each right option.
    #[schema(minimum = 1, maximum = 1000, example = 25)]
    points: i32,
    /// Answers are taken until this time, or until the match of the question starts.
    #[serde(with = "platform::timestamp")]
    #[schema(example = "2026-11-20T15:00:00.000Z")]
    locks_at: OffsetDateTime,
    status: Status,
    /// Right answers: keys of options, ids of teams, or a number; null unless `status` is `resolved`.
    #[schema(required, value_type = Resolution)]
    resolution: Option<Resolution>,
    #[schema(minimum = 0, example = 1204)]
    answers_count: i64,
    #[schema(required)]
    my_answer: Option<AnswerItem>,
}

/// What an answer is: the key of an option, the id of a team, a number, or the keys of several options.
#[derive(Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = QuestionKind)]
enum KindName {
    Choice,
    Team,
    Number,
    SeveralOf,
}

impl From<QuestionKind> for KindName {
    fn from(kind: QuestionKind) -> Self {
        match kind {
            QuestionKind::Choice => Self::Choice,
            QuestionKind::Team => Self::Team,
            QuestionKind::Number => Self::Number,
            QuestionKind::SeveralOf => Self::SeveralOf,
        }
    }
}

#[derive(Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = NumberScoring)]
enum ScoringName {
    Nearest,
    Exact,
}

impl From<NumberScoring> for ScoringName {
    fn from(scoring: NumberScoring) -> Self {
        match scoring {
            NumberScoring::Nearest => Self::Nearest,
            NumberScoring::Exact => Self::Exact,
        }
    }
}

#[derive(Serialize, ToSchema)]
#[schema(as = QuestionOption)]
struct OptionItem {
    #[schema(example = "ada")]
    key: String,
    #[schema(example = "Ada Obi")]
    label: String,
}

impl From<Choice> for OptionItem {
    fn from(Choice { key, label, .. }: Choice) -> Self {
        Self { key, label }
    }
}

/// An answer of the caller.
#[derive(Serialize, ToSchema)]
#[schema(as = OwnAnswer)]
struct AnswerItem {
    question_id: QuestionId,
    user_id: UserId,
    answer: Answer,
    /// Null unless the question is resolved. Follows corrections.
    #[schema(required, minimum = 0, example = 25)]
    points_earned: Option<i32>,
    /// Time of the first answer.
    #[serde(with = "platform::timestamp")]
    created_at: OffsetDateTime,
    #[serde(with = "platform::timestamp")]
    updated_at: OffsetDateTime,
}

impl QuestionItem {
    fn new(user: UserId, question: Question, own: Option<StoredAnswer>) -> Self {
        let my_answer = own.map(|own| AnswerItem {
            question_id: question.id,
            user_id: user,
            answer: question.shape.answer(own.value),
            points_earned: question.earned(own.value),
            created_at: own.created_at,
            updated_at: own.updated_at,
        });
        Self {
            answers_count: question.answers_count(),
            resolution: question.terms.as_ref().map(|terms| question.shape.resolution(&terms.resolution)),
            id: question.id,
            tournament_id: question.tournament_id,
            round: question.round,
            event_id: question.event_id,
            text: question.text,
            kind: question.shape.kind.into(),
            pick: question.shape.pick,
            options: question
                .shape
                .kind
                .has_options()
                .then(|| question.shape.options.into_iter().map(OptionItem::from).collect()),
            scoring: question.scoring.map(ScoringName::from),
            points: question.points,
            locks_at: question.locks_at,
            status: question.status,
            my_answer,
        }
    }
}

/// List bonus questions, with the caller's answers.
///
/// Open questions come first, in the order in which they lock. Others follow, the latest first.
#[utoipa::path(get, path = "/api/auth/questions", tag = "Questions", security(("token" = [])),
    params(ListParameters, Paging),
    responses((status = 200, body = QuestionList)))]
pub(super) async fn list_questions(
    State(questions): State<Questions>,
    user: CurrentUser,
    CallerReader(reader): CallerReader,
    Query((wanted, paging)): Query<(ListParameters, Paging)>,
) -> Result<Json<QuestionList>, ApiError> {
    let filter = Filter {
        tournament: wanted.tournament_id,
        event: wanted.event_id,
        round: wanted.round.map(|RoundNumber(round)| round),
        status: wanted.status,
        answered: wanted.answered,
    };
    let (listed, total) = questions.list(&reader, user.id, &filter, paging).await?;
    let data = listed.into_iter().map(|(question, own)| QuestionItem::new(user.id, question, own)).collect();
    Ok(Json(QuestionList { data, meta: paging.meta(total) }))
}

/// Get a bonus question, with the caller's answer.
#[utoipa::path(get, path = "/api/auth/questions/{question}", tag = "Questions", security(("token" = [])),
    params(("question" = QuestionId, Path, description = "Id of the question")),
    responses(
        (status = 200, body = QuestionResponse),
        (status = 404, description = "The question does not exist, or has not opened yet", body = ErrorBody),
    ))]
pub(super) async fn get_question(
    State(questions): State<Questions>,
    user: CurrentUser,
    Path(id): Path<QuestionId>,
) -> Result<Json<QuestionResponse>, ApiError> {
    let (question, own) = questions.get(user.id, id).await?.ok_or_else(|| ApiError::not_found("The question"))?;
    Ok(Json(QuestionResponse { data: QuestionItem::new(user.id, question, own) }))
}

#[derive(ToSchema)]
#[schema(as = AnswerRequest)]
pub(super) struct AnswerBody {
    /// The key of an option, the id of a team, a number from 0 to 1,000,000, or as many different keys as `pick` says.
    answer: Answer,
}

from_body!(AnswerBody { answer });

#[derive(Serialize, ToSchema)]
pub(super) struct AnswerSaved {
    #[schema(example = "Answer saved.")]
    message: &'static str,
    data: AnswerItem,
}

/// Answer a bonus question, or replace the caller's earlier answer.
#[utoipa::path(put, path = "/api/auth/questions/{question}/answer", tag = "Questions", security(("token" = [])),
    params(("question" = QuestionId, Path, description = "Id of the question")),
    request_body = AnswerBody,
    responses(
        (status = 200, description = "The answer replaced an earlier one", body = AnswerSaved),
        (status = 201, description = "The answer is the caller's first to this question", body = AnswerSaved),
        (status = 400, description = "The question takes no answers (`question_locked`, `question_resolved` or `question_void`), or the body is not JSON", body = ErrorBody),
        (status = 404, description = "The question does not exist, or has not opened yet", body = ErrorBody),
    ))]
pub(super) async fn answer_question(
    State(questions): State<Questions>,
    user: CurrentUser,
    Path(id): Path<QuestionId>,
    ValidJson(AnswerBody { answer }): ValidJson<AnswerBody>,
) -> Result<(StatusCode, Json<AnswerSaved>), ApiError> {
    let saved = questions.answer(user.id, id, answer).await?;
    let (status, message) =
        if saved.is_new { (StatusCode::CREATED, "Answer saved.") } else { (StatusCode::OK, "Answer replaced.") };
    let data = AnswerItem {
        question_id: id,
        user_id: user.id,
        answer: saved.answer,
        points_earned: None,
        created_at: saved.created_at,
        updated_at: saved.updated_at,
    };
    Ok((status, Json(AnswerSaved { message, data })))
}

/// One page of the answers to a question.
#[derive(Serialize, ToSchema)]
pub(super) struct AnswerList {
    data: Vec<ListedItem>,
    meta: AnswerMeta,
}

/// An answer as other users see it.
#[derive(Serialize, ToSchema)]
#[schema(as = ListedAnswer)]
struct ListedItem {
    user: ListedPersonItem,
    answer: Answer,
    /// Null unless the question is resolved. Follows corrections.
    #[schema(required, minimum = 0, example = 25)]
    points_earned: Option<i32>,
    /// Time of the user's first answer.
    #[serde(with = "platform::timestamp")]
    created_at: OffsetDateTime,
}

/// Summary of all answers, including answers that the list leaves out.
#[derive(Serialize, ToSchema)]
struct AnswerMeta {
    #[schema(minimum = 0, example = 1204)]
    total_answers: i64,
    /// Number of answers by the key of an option or the id of a team, without options that have no answers; null for `number`.
    #[schema(required)]
    distribution: Option<BTreeMap<String, i64>>,
    /// Cursor of the next page; null on the last page.
    #[schema(required, example = "AAAAAAAAAGQ")]
    next_cursor: Option<String>,
}

/// List the answers to a question, once it takes no more.
///
/// Sorted by user id. Users whom the caller has blocked are omitted.
#[utoipa::path(get, path = "/api/auth/questions/{question}/answers", tag = "Questions", security(("token" = [])),
    params(("question" = QuestionId, Path, description = "Id of the question"), CursorPaging),
    responses(
        (status = 200, body = AnswerList),
        (status = 403, description = "The question is open (`question_open`)", body = ErrorBody),
        (status = 404, description = "The question does not exist, or has not opened yet", body = ErrorBody),
    ))]
pub(super) async fn list_answers(
    State(questions): State<Questions>,
    State(avatars): State<AvatarUrls>,
    user: CurrentUser,
    Path(id): Path<QuestionId>,
    Query(paging): Query<CursorPaging>,
) -> Result<Json<AnswerList>, ApiError> {
    let found = questions.answers(user.id, id, paging).await?;
    let AnswerPage { question, answers, next, distribution } =
        found.ok_or_else(|| ApiError::not_found("The question"))?;
    if question.status == Status::Open {
        let message = "The answers are shown when the question is closed.";
        return Err(ApiError::new(StatusCode::FORBIDDEN, "question_open", message));
    }
    let item = |Listed { person, value, created_at }| ListedItem {
        user: ListedPersonItem::new(person, &avatars),
        answer: question.shape.answer(value),
        points_earned: question.earned(value),
        created_at,
    };
    let meta = AnswerMeta {
        total_answers: question.answers_count(),
        distribution: distribution.map(|choices| choices.into_iter().collect()),
        next_cursor: next.map(|cursor| cursor.to_string()),
    };
    Ok(Json(AnswerList { data: answers.into_iter().map(item).collect(), meta }))
}
