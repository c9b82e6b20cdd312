//! HTTP handlers for text messages: the development log and delivery reports.

use std::{convert::Infallible, str::FromStr};

use axum::{
    Json,
    extract::State,
    response::{IntoResponse as _, Response},
};
use http::{HeaderMap, Method, StatusCode, Uri, header};
use serde::Serialize;
use time::{Date, OffsetDateTime};
use utoipa::{
    IntoParams, PartialSchema, ToSchema,
    openapi::{
        RefOr,
        schema::{ObjectBuilder, Schema, Type},
    },
};
use web::{
    ApiError, ErrorBody, Path, Query, RawBody,
    fields::{FromQuery, from_parameters},
    paging::{PageMeta, Paging},
    unknown_route,
};

use super::{
    provider::{CallbackError, ReportRequest},
    registry,
    service::{LogEntry, LogFilter, ReportError, Sms},
    templates::Language,
};
use crate::identity::phone::Phone;

impl Language {
    /// Language that the client prefers.
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
    /// Only messages with this status: `sent` or `failed`.
    #[param(value_type = Option<String>, pattern = "^(sent|failed)$")]
    status: Option<Status>,
    /// List messages without a code, such as notices of a phone move, instead of messages with a code.
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

/// A message that was passed to a provider.
#[derive(Serialize, ToSchema)]
#[schema(as = SmsLogEntry)]
struct SmsLogItem {
    #[schema(minimum = 1)]
    id: i64,
    #[schema(example = "+14155550100")]
    phone: String,
    #[schema(example = "271828")]
    code: String,
    /// Text of a message without a code.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = String)]
    text: Option<String>,
    /// Either `sent` or `failed`.
    #[schema(example = "sent")]
    status: String,
    #[schema(example = "console")]
    provider: String,
    /// Reason for the failure. Only for failed messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = String)]
    error: Option<String>,
    #[serde(with = "platform::timestamp")]
    #[schema(example = "2026-11-20T15:00:00.000Z")]
    created_at: OffsetDateTime,
    /// Expiry of the code. Only for sent messages.
    #[serde(with = "platform::timestamp::option", skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = String, format = DateTime, example = "2026-11-20T15:05:00.000Z")]
    expires_at: Option<OffsetDateTime>,
    /// Time at which the provider reported delivery. Only for delivered messages.
    #[serde(with = "platform::timestamp::option", skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = String, format = DateTime, example = "2026-11-20T15:00:04.000Z")]
    delivered_at: Option<OffsetDateTime>,
    /// Number of guesses at the code.
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
pub(super) struct SmsReportResponse {
    #[schema(example = "Report recorded.")]
    message: &'static str,
}

impl From<ReportError> for ApiError {
    fn from(error: ReportError) -> Self {
        match error {
            ReportError::NotExpected | ReportError::Unverified(CallbackError::NotExpected) => {
                Self::not_found("The SMS provider")
            }
            ReportError::Unverified(CallbackError::Method) => {
                Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "This path does not allow this method.")
            }
            ReportError::Unverified(CallbackError::Malformed(_)) => {
                Self::new(StatusCode::BAD_REQUEST, "malformed_report", "The report is malformed.")
            }
            ReportError::Unverified(error) => {
                metrics::counter!("matchday_sms_reports_refused_total").increment(1);
                tracing::warn!(%error, "delivery report was rejected");
                Self::new(StatusCode::FORBIDDEN, "invalid_signature", "The signature of the report is invalid.")
            }
            ReportError::Database(error) => error.into(),
        }
    }
}

/// List sent messages with their codes, newest first.
///
/// For development. This endpoint does not exist in production, where codes are not stored.
#[utoipa::path(get, path = "/api/logs/sms", tag = "Development", params(LogParameters, Paging),
    responses((status = 200, body = SmsLog), (status = 404, description = "The endpoint does not exist in production", body = ErrorBody)))]
pub(super) async fn list_sms_log(
    State(sms): State<Sms>,
    filter: Result<Query<(LogParameters, Paging)>, ApiError>,
) -> Result<Json<SmsLog>, ApiError> {
    // Check before validating the request: in production, this path must behave like any unknown path.
    if !sms.log_is_open() {
        return Err(unknown_route().await);
    }
    let Query((filter, paging)) = filter?;
    let (entries, total) = sms.log(&filter.into(), paging).await?;
    Ok(Json(SmsLog { data: entries.into_iter().map(SmsLogItem::from).collect(), meta: paging.meta(total) }))
}

/// Provider name in the path of its reports. Parsing does not check whether the provider exists.
pub(super) struct ProviderName(String);

impl FromStr for ProviderName {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

/// Implemented manually, because the values are the names of the registered providers.
impl PartialSchema for ProviderName {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new().schema_type(Type::String).enum_values(Some(registry::reaching_phones())).into()
    }
}

impl ToSchema for ProviderName {}

/// Receive a delivery report from an SMS provider.
///
/// The body is a form or JSON, as documented by the provider. The provider must sign its reports.
#[utoipa::path(post, path = "/api/sms/{provider}/status", tag = "Providers",
    params(("provider" = inline(ProviderName), Path, description = "SMS provider that sends the report")),
    request_body(content((String = "application/x-www-form-urlencoded"), (Value = "application/json"))),
    responses(
        (status = 200, body = SmsReportResponse),
        (status = 400, description = "The report is malformed", body = ErrorBody),
        (status = 403, description = "The signature of the report is missing or invalid", body = ErrorBody),
        (status = 404, description = "The provider is not configured or does not send reports", body = ErrorBody),
    ))]
pub(super) async fn take_sms_report(
    State(sms): State<Sms>,
    Path(ProviderName(provider)): Path<ProviderName>,
    uri: Uri,
    headers: HeaderMap,
    RawBody(body): RawBody,
) -> Result<Json<SmsReportResponse>, ApiError> {
    let request = ReportRequest { method: &Method::POST, query: uri.query(), headers: &headers, body: &body };
    take_report(&sms, &provider, &request).await
}

/// Receive a delivery report from an SMS provider by GET.
///
/// The report is in the query string. The provider must sign its reports.
#[utoipa::path(get, path = "/api/sms/{provider}/status", tag = "Providers",
    params(("provider" = inline(ProviderName), Path, description = "SMS provider that sends the report")),
    responses(
        (status = 200, body = SmsReportResponse),
        (status = 400, description = "The report is malformed", body = ErrorBody),
        (status = 403, description = "The signature of the report is missing or invalid", body = ErrorBody),
        (status = 404, description = "The provider is not configured or does not send reports", body = ErrorBody),
        (status = 405, description = "The provider does not report by GET", body = ErrorBody),
    ))]
pub(super) async fn take_sms_report_by_query(
    State(sms): State<Sms>,
    Path(ProviderName(provider)): Path<ProviderName>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<SmsReportResponse>, Response> {
    let request = ReportRequest { method: &method, query: uri.query(), headers: &headers, body: &[] };
    take_report(&sms, &provider, &request).await.map_err(|error| match error.status() {
        // The response must list the allowed methods (RFC 9110, section 15.5.6).
        StatusCode::METHOD_NOT_ALLOWED => ([(header::ALLOW, "POST")], error).into_response(),
        _ => error.into_response(),
    })
}

async fn take_report(
    sms: &Sms,
    provider: &str,
    request: &ReportRequest<'_>,
) -> Result<Json<SmsReportResponse>, ApiError> {
    if !sms.has_report_path(provider) {
        return Err(unknown_route().await);
    }
    sms.take_report(provider, request).await?;
    Ok(Json(SmsReportResponse { message: "Report recorded." }))
}
