//! HTTP handlers for reporting messages and reading one's own reports.

use axum::{Json, extract::State, response::IntoResponse};
use http::StatusCode;
use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;
use web::{
    ApiError, ErrorBody, Query, ValidJson,
    fields::from_body,
    paging::{PageMeta, Paging},
    permitted,
};

use super::{
    rules::{MessageId, Reason},
    service::{OwnReport, ReportError, Reports},
};
use crate::{
    chat::rooms::{ReadableRoom, RoomPath},
    identity::sessions::CurrentUser,
};

impl From<ReportError> for ApiError {
    fn from(error: ReportError) -> Self {
        match error {
            ReportError::NoSuchMessage => Self::invalid_field("event_id", "must name a message in this room"),
            ReportError::Database(error) => error.into(),
            // Errors of operators' actions, which this interface does not offer.
            other => Self::internal(other),
        }
    }
}

#[derive(ToSchema)]
pub(super) struct ReportedMessage {
    /// The homeserver's id of the message.
    #[schema(value_type = String, pattern = r"^\$[A-Za-z0-9._:/+-]+$", max_length = 255, example = "$Rqnc-F-dvnEYJTyHq_iKxU2bZ1CI92-kuZq3a5lr5Zg")]
    event_id: MessageId,
    #[schema(value_type = String, min_length = 1, max_length = 500, pattern = r"^[^\x00]*[^\s\x00][^\x00]*$", example = "Insults")]
    reason: Reason,
}

from_body!(ReportedMessage { event_id, reason });

#[derive(Serialize, ToSchema)]
pub(super) struct ReportAnswer {
    #[schema(example = "Thank you. A moderator will review the message.")]
    message: &'static str,
}

/// Report a message to the operators.
///
/// The report keeps a copy of the message, even if the sender deletes it. The content of an encrypted message is not
/// readable, so describe it in `reason`; sender and time are still kept. Reporting the same message again changes
/// nothing.
#[utoipa::path(post, path = "/api/auth/chat-rooms/{room}/reports", tag = "Safety", security(("token" = [])),
    params(RoomPath), request_body = ReportedMessage,
    responses(
        (status = 200, description = "The caller has already reported the message", body = ReportAnswer),
        (status = 201, body = ReportAnswer),
        (status = 403, description = "The room is private and the caller is not a member", body = ErrorBody),
        (status = 404, description = "The room does not exist", body = ErrorBody),
        (status = 429, description = "Too many requests; retry after `Retry-After` seconds", body = ErrorBody),
    ))]
pub(super) async fn report_message(
    State(reports): State<Reports>,
    readable: ReadableRoom,
    ValidJson(report): ValidJson<ReportedMessage>,
) -> Result<impl IntoResponse, ApiError> {
    let ReadableRoom { user, room } = readable;
    permitted(reports.permit(user.id).await)?;
    let is_new = reports.report(user.id, &room, &report.event_id, &report.reason).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    let body = ReportAnswer { message: "Thank you. A moderator will review the message." };
    Ok((status, Json(body)))
}

#[derive(Serialize, ToSchema)]
pub(super) struct OwnReportList {
    data: Vec<OwnReportItem>,
    meta: PageMeta,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum ReportStatus {
    Open,
    Closed,
}

/// A report by the caller.
#[derive(Serialize, ToSchema)]
#[schema(as = OwnReport)]
struct OwnReportItem {
    #[schema(example = 17)]
    id: i64,
    /// Matrix id of the room.
    #[schema(required, example = "!OGEhHVWSdvArJzumhm:matchday.localhost")]
    room_id: Option<String>,
    /// The homeserver's id of the message.
    #[schema(example = "$Rqnc-F-dvnEYJTyHq_iKxU2bZ1CI92-kuZq3a5lr5Zg")]
    event_id: String,
    #[schema(example = "Insults")]
    reason: String,
    #[serde(with = "platform::timestamp")]
    #[schema(example = "2026-11-20T15:00:00.000Z")]
    created_at: OffsetDateTime,
    status: ReportStatus,
    #[serde(with = "platform::timestamp::option")]
    #[schema(required, example = "2026-11-20T15:20:00.000Z")]
    closed_at: Option<OffsetDateTime>,
    /// Text of a moderator to the caller. Null while the report is open, and if the moderator wrote none.
    #[schema(required, example = "Thank you. We removed the message.")]
    answer: Option<String>,
}

impl From<OwnReport> for OwnReportItem {
    fn from(report: OwnReport) -> Self {
        let status = if report.closed_at.is_some() { ReportStatus::Closed } else { ReportStatus::Open };
        Self {
            id: report.id,
            room_id: report.room_id,
            event_id: report.event_id,
            reason: report.reason,
            created_at: report.created_at,
            status,
            closed_at: report.closed_at,
            answer: report.answer,
        }
    }
}

/// List the caller's reports, newest first.
///
/// Closed reports are deleted after `reports.kept_for`, by default a year.
#[utoipa::path(get, path = "/api/auth/reports", tag = "Safety", security(("token" = [])),
    params(Paging), responses((status = 200, body = OwnReportList)))]
pub(super) async fn list_own_reports(
    State(reports): State<Reports>,
    user: CurrentUser,
    Query(paging): Query<Paging>,
) -> Result<Json<OwnReportList>, ApiError> {
    let (found, total) = reports.of_user(user.id, paging).await?;
    Ok(Json(OwnReportList { data: found.into_iter().map(OwnReportItem::from).collect(), meta: paging.meta(total) }))
}
