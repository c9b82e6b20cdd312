//! The error type of the API.

use std::{borrow::Cow, time::Duration};

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header};
use platform::{batches::BatchError, database, rate_limit::Decision, telemetry::CURRENT_REQUEST, timestamp};
use serde::Serialize;
use time::OffsetDateTime;
use utoipa::{
    ToSchema,
    openapi::schema::{Array, Object, ObjectBuilder, Schema, Type},
};

use super::{
    fields::{Faults, one},
    limits::insert_headers,
};

/// Body of every error response.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "message": "The team id is required.",
    "code": "validation_failed",
    "errors": {"team_id": ["The team id is required."]}
}))]
pub struct ErrorBody {
    /// Message for people. It may change between versions.
    pub message: Cow<'static, str>,
    /// Stable code for programs, in `snake_case`.
    pub code: Cow<'static, str>,
    /// On 422: messages by field.
    #[serde(skip_serializing_if = "Faults::is_empty")]
    #[schema(required = false, schema_with = errors_by_field)]
    pub errors: Faults,
    /// On 500: request id to report to the operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = String)]
    pub request_id: Option<String>,
    /// With `account_suspended`: end of the suspension. Absent if it has no end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = String, format = DateTime)]
    pub suspended_until: Option<String>,
}

/// Written by hand, because utoipa would describe a map with a description as `allOf`, which generators of clients reject.
fn errors_by_field() -> Object {
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .description(Some("On 422: messages by field."))
        .additional_properties(Some(Schema::Array(Array::new(Object::with_type(Type::String)))))
        .build()
}

/// An error response. Use cases have their own error types, which are converted to this type here or next to their
/// handlers. Nothing else decides what a client sees.
#[derive(Debug)]
pub struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: Cow<'static, str>,
    /// Boxed, because results contain this type everywhere and most errors have no details.
    more: Box<More>,
}

#[derive(Debug, Default)]
struct More {
    faults: Faults,
    retry_after: Option<Duration>,
    limit: Option<Decision>,
    suspended_until: Option<String>,
    missing_scope: Option<&'static str>,
    cause: Option<anyhow::Error>,
}

impl ApiError {
    /// Creates an error without details.
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { status, code, message: message.into(), more: Box::default() }
    }

    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// 401: the token is missing or invalid.
    pub fn unauthenticated() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthenticated", "A valid token is required.")
    }

    /// 403: the account is banned, until the given time if the ban has an end.
    pub fn suspended(until: Option<OffsetDateTime>) -> Self {
        let mut error = Self::new(StatusCode::FORBIDDEN, "account_suspended", "This account is suspended.");
        if let Some(until) = until.and_then(|until| timestamp::text(until).ok()) {
            error.message = format!("This account is suspended until {until}.").into();
            error.more.suspended_until = Some(until);
        }
        error
    }

    /// 403: the key lacks the scope that the endpoint needs (RFC 6750, section 3.1).
    pub fn insufficient_scope(scope: &'static str) -> Self {
        let message = format!("This key lacks the scope {scope}.");
        let mut error = Self::new(StatusCode::FORBIDDEN, "insufficient_scope", message);
        error.more.missing_scope = Some(scope);
        error
    }

    /// 404: `what` was not found.
    pub fn not_found(what: &'static str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", format!("{what} was not found."))
    }

    /// 422 with every fault of the request.
    pub fn invalid(faults: Faults) -> Self {
        let first = faults.values().flatten().next().cloned();
        let message = first.unwrap_or_else(|| "The request is not valid.".to_owned());
        let mut error = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "validation_failed", message);
        error.more.faults = faults;
        error
    }

    /// 422 for a single field.
    pub fn invalid_field(name: &str, message: &str) -> Self {
        Self::invalid(one(name, message))
    }

    /// 400: the body is not JSON.
    pub fn malformed_json(error: &serde_json::Error) -> Self {
        let message = format!("The body is not JSON: line {}, column {}.", error.line(), error.column());
        Self::new(StatusCode::BAD_REQUEST, "malformed_json", message)
    }

    /// Refuses with 429 and `Retry-After`.
    pub fn rate_limited(decision: Decision) -> Self {
        let mut error = Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", "Too many requests. Try again later.");
        error.more.retry_after = Some(decision.retry_after);
        error.more.limit = Some(decision);
        error
    }

    /// 503: a dependency is unavailable or the server is overloaded; the client should retry.
    pub fn unavailable(code: &'static str, message: &'static str) -> Self {
        let mut error = Self::new(StatusCode::SERVICE_UNAVAILABLE, code, message);
        error.more.retry_after = Some(Duration::from_secs(1));
        error
    }

    /// 500: internal error. The cause is logged, never shown.
    pub fn internal(cause: impl Into<anyhow::Error>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", "Something went wrong on our side.")
            .because(cause)
    }

    /// Maps a database error: 503 if a retry may succeed, otherwise 500.
    pub fn database(error: &sqlx::Error) -> Self {
        if database::is_transient(error) {
            Self::unavailable("database_unavailable", "The database is unavailable. Try again shortly.")
        } else {
            Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", "Something went wrong on our side.")
        }
    }

    /// Replaces the error code.
    #[must_use]
    pub fn called(mut self, code: &'static str) -> Self {
        self.code = code;
        self
    }

    /// Replaces the retry delay.
    #[must_use]
    pub fn after(mut self, time: Duration) -> Self {
        self.more.retry_after = Some(time);
        self
    }

    /// Adds a cause to be logged.
    #[must_use]
    pub fn because(mut self, cause: impl Into<anyhow::Error>) -> Self {
        self.more.cause = Some(cause.into());
        self
    }
}

impl From<sqlx::Error> for ApiError {
    fn from(error: sqlx::Error) -> Self {
        Self::database(&error).because(error)
    }
}

impl From<BatchError> for ApiError {
    fn from(error: BatchError) -> Self {
        match error {
            BatchError::Overloaded => super::edge::overloaded(),
            BatchError::Database(error) => Self::database(&error).because(error),
        }
    }
}

/// Code of an error response, in its extensions, for layers that depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorCode(pub &'static str);

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        if let Some(cause) = &self.more.cause {
            tracing::error!(cause = %format_args!("{cause:#}"), code = self.code, "request failed");
        }
        let request_id = (self.status == StatusCode::INTERNAL_SERVER_ERROR)
            .then(|| CURRENT_REQUEST.try_with(|current| current.id.as_str().to_owned()).ok())
            .flatten();
        let body = ErrorBody {
            message: self.message,
            code: self.code.into(),
            errors: self.more.faults,
            request_id,
            suspended_until: self.more.suspended_until,
        };
        let mut response = (self.status, Json(body)).into_response();
        response.extensions_mut().insert(ErrorCode(self.code));
        let headers = response.headers_mut();
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(scope) = self.more.missing_scope {
            let challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{scope}\"");
            if let Ok(challenge) = HeaderValue::try_from(challenge) {
                headers.insert(header::WWW_AUTHENTICATE, challenge);
            }
        }
        if let Some(after) = self.more.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(whole_seconds(after)));
        }
        if let Some(decision) = self.more.limit {
            insert_headers(headers, decision);
        }
        response
    }
}

/// Rounds up, so a client that waits this long is not refused again.
fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0 || time.is_zero())
}

/// `Retry-After` header, if there is a delay.
pub fn retry_after(time: Option<Duration>) -> Option<[(http::HeaderName, HeaderValue); 1]> {
    time.map(|time| [(header::RETRY_AFTER, HeaderValue::from(whole_seconds(time)))])
}
