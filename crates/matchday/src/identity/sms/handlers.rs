//! HTTP for messages: the log for developers, and what providers report.

use axum::{Json, extract::State};
use http::{HeaderMap, StatusCode, Uri, header};
use serde::Serialize;
use time::{Date, OffsetDateTime};
use utoipa::{IntoParams, ToSchema};
use web::{
    ApiError, ErrorBody, Query, RawBody,
    fields::{FromQuery, from_parameters},
    paging::{PageMeta, Paging},
    unknown_route,
};

use super::{
    provider::CallbackError,
    service::{LogEntry, LogFilter, ReportError, Sms},
    templates::Language,
    twilio, vonage,
};
use crate::identity::phone::Phone;

impl Language {
    /// What the client prefers.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        Self::negotiate(headers.get(header::ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok()))
    }
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct LogParameters {
    /// Only messages to this phone.
    #[param(value_type = Option<String>, example = "+14155550100")]
    phone: Option<Phone>,
    /// Only messages of this day (UTC).
    #[param(value_type = Option<String>, format = Date, example = "2026-11-20")]
    date: Option<Date>,
    /// Only messages of this status: `sent` or `failed`.
    #[param(value_type = Option<String>, pattern = "^(sent|failed)$")]
    status: Option<Status>,
    /// Messages without a code, like the one to a phone that an account has left, instead of those with one.
    notices: Option<bool>,
}

struct Status(&'static str);

impl FromQuery for Status {
    const EXPECTED: &'static str = "must be sent or failed";

    fn from_query(text: &str) -> Option<Self> {
        ["sent", "failed"].into_iter().find(|name| *name == text).map(Self)
    }
}

from_parameters!(LogParameters { phone, date, status, notices });

impl From<LogParameters> for LogFilter {
    fn from(LogParameters { phone, date, status, notices }: LogParameters) -> Self {
        Self { phone, date, status: status.map(|Status(name)| name), notices: notices.unwrap_or(false) }
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct SmsLog {
    data: Vec<SmsLogItem>,
    meta: PageMeta,
}

/// A message that was handed to a provider.
#[derive(Serialize, ToSchema)]
#[schema(as = SmsLogEntry)]
struct SmsLogItem {
    #[schema(minimum = 1)]
    id: i64,
    #[schema(example = "+14155550100")]
    phone: String,
    #[schema(example = "271828")]
    code: String,
    /// The text of a message without a code.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = String)]
    text: Option<String>,
    /// `sent` or `failed`.
    #[schema(example = "sent")]
    status: String,
    #[schema(example = "console")]
    provider: String,
    /// Only of one that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = String)]
    error: Option<String>,
    #[serde(with = "time::serde::rfc3339")]
    #[schema(example = "2026-11-20T15:00:00Z")]
    created_at: OffsetDateTime,
    /// Only of one that was sent.
    #[serde(with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = String, format = DateTime, example = "2026-11-20T15:05:00Z")]
    expires_at: Option<OffsetDateTime>,
    /// Only of one that the provider reported to have arrived.
    #[serde(with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = String, format = DateTime, example = "2026-11-20T15:00:04Z")]
    delivered_at: Option<OffsetDateTime>,
    /// How often the code was tried.
    attempts: i32,
}

impl From<LogEntry> for SmsLogItem {
    fn from(entry: LogEntry) -> Self {
        Self {
            id: entry.id,
            phone: entry.phone.as_str().to_owned(),
            code: entry.code.unwrap_or_default(),
            text: entry.notice,
            expires_at: (entry.status == "sent").then_some(entry.expires_at),
            status: entry.status,
            provider: entry.provider,
            error: entry.error,
            created_at: entry.created_at,
            delivered_at: entry.delivered_at,
            attempts: entry.attempts,
        }
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct Noted {
    #[schema(example = "Noted.")]
    message: &'static str,
}

impl From<ReportError> for ApiError {
    fn from(error: ReportError) -> Self {
        match error {
            ReportError::NotExpected => Self::not_found("Such a provider"),
            ReportError::NotBelieved(CallbackError::Malformed(_)) => {
                Self::new(StatusCode::BAD_REQUEST, "malformed_report", "The report could not be understood.")
            }
            ReportError::NotBelieved(error) => {
                metrics::counter!("matchday_sms_reports_refused_total").increment(1);
                tracing::warn!(%error, "a report about a message was not believed");
                Self::new(StatusCode::FORBIDDEN, "invalid_signature", "The report's signature is not valid.")
            }
            ReportError::Database(error) => error.into(),
        }
    }
}

/// Read the messages, with their codes, newest first.
///
/// For development: there is no such endpoint in production, and codes are not kept there.
#[utoipa::path(get, path = "/api/logs/sms", tag = "Development", params(LogParameters, Paging),
    responses((status = 200, body = SmsLog), (status = 404, description = "In production", body = ErrorBody)))]
pub(super) async fn list_sms_log(
    State(sms): State<Sms>,
    filter: Result<Query<(LogParameters, Paging)>, ApiError>,
) -> Result<Json<SmsLog>, ApiError> {
    // Before anything of the request is judged: in production this is a path like any other that does not exist.
    if !sms.log_is_open() {
        return Err(unknown_route().await);
    }
    let Query((filter, paging)) = filter?;
    let (entries, total) = sms.log(&filter.into(), paging).await?;
    Ok(Json(SmsLog { data: entries.into_iter().map(SmsLogItem::from).collect(), meta: paging.meta(total) }))
}

/// Twilio reports what became of a message.
#[utoipa::path(post, path = "/api/sms/twilio/status", tag = "Providers",
    request_body(content_type = "application/x-www-form-urlencoded", content = String),
    responses(
        (status = 200, body = Noted),
        (status = 400, description = "It could not be understood", body = ErrorBody),
        (status = 403, description = "Twilio did not sign this", body = ErrorBody),
        (status = 404, description = "Twilio is not set up", body = ErrorBody),
    ))]
pub(super) async fn take_twilio_report(
    State(sms): State<Sms>,
    uri: Uri,
    headers: HeaderMap,
    RawBody(body): RawBody,
) -> Result<Json<Noted>, ApiError> {
    let signature = headers.get(twilio::SIGNATURE_HEADER).and_then(|value| value.to_str().ok());
    sms.take_twilio_report(uri.query(), signature, &form(&body)).await?;
    Ok(Json(Noted { message: "Noted." }))
}

/// Vonage reports what became of a message.
#[utoipa::path(post, path = "/api/sms/vonage/status", tag = "Providers",
    request_body(content_type = "application/x-www-form-urlencoded", content = String),
    responses(
        (status = 200, body = Noted),
        (status = 400, description = "It could not be understood", body = ErrorBody),
        (status = 403, description = "Vonage did not sign this", body = ErrorBody),
        (status = 404, description = "Vonage is not set up to sign its reports", body = ErrorBody),
    ))]
pub(super) async fn take_vonage_report(
    State(sms): State<Sms>,
    headers: HeaderMap,
    RawBody(body): RawBody,
) -> Result<Json<Noted>, ApiError> {
    let is_json =
        headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    let parameters = if is_json { vonage::parameters_of_json(&body).map_err(ReportError::from)? } else { form(&body) };
    sms.take_vonage_report(&parameters).await?;
    Ok(Json(Noted { message: "Noted." }))
}

/// Vonage reports what became of a message, in the query.
///
/// Which way it reports is chosen in its dashboard.
#[utoipa::path(get, path = "/api/sms/vonage/status", tag = "Providers",
    responses(
        (status = 200, body = Noted),
        (status = 400, description = "It could not be understood", body = ErrorBody),
        (status = 403, description = "Vonage did not sign this", body = ErrorBody),
        (status = 404, description = "Vonage is not set up to sign its reports", body = ErrorBody),
    ))]
pub(super) async fn take_vonage_report_by_query(State(sms): State<Sms>, uri: Uri) -> Result<Json<Noted>, ApiError> {
    sms.take_vonage_report(&form(uri.query().unwrap_or_default().as_bytes())).await?;
    Ok(Json(Noted { message: "Noted." }))
}

fn form(body: &[u8]) -> Vec<(String, String)> {
    url::form_urlencoded::parse(body).into_owned().collect()
}
