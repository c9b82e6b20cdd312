//! HTTP handlers for login codes.

use axum::{
    Json,
    extract::{FromRef, FromRequestParts, State},
    response::IntoResponse,
};
use http::{HeaderMap, StatusCode, request::Parts};
use serde::Serialize;
use utoipa::ToSchema;
use web::{ApiError, ClientNetwork, ErrorBody, ValidJson, WebState, fields::from_body, retry_after, state_limit};

use super::{
    rules::Subject,
    service::{CheckError, Codes, GuessPermit, RequestError, Sent},
};
use crate::identity::{phone::Phone, sessions::MaybeUser, sms::templates::Language};

/// A phone number to send a code to.
#[derive(ToSchema)]
#[schema(as = PhoneBody)]
pub(crate) struct PhoneBody {
    /// In international format (E.164). Spaces, dashes, dots and parentheses are ignored.
    #[schema(value_type = String, pattern = r"^[ ().-]*\+[ ().-]*[1-9]([ ().-]*[0-9]){6,14}[ ().-]*$", max_length = 40, example = "+14155550100")]
    pub(crate) phone: Phone,
}

from_body!(PhoneBody { phone });

/// Result of requesting a code.
#[derive(Serialize, ToSchema)]
pub(super) struct CodeSent {
    #[schema(example = "A code was sent.")]
    message: &'static str,
    data: Validity,
}

#[derive(Serialize, ToSchema)]
#[schema(as = CodeValidity)]
struct Validity {
    /// Seconds until the code expires.
    #[schema(example = 300)]
    expires_in: u64,
    /// `codes_limited` while a limit shared by many callers is used up. Numbers that were verified before still receive
    /// a code; other numbers can retry after the time in `Retry-After`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = String, example = "codes_limited")]
    notice: Option<&'static str>,
}

impl Sent {
    /// Returns `sent` unless a shared limit is used up. In that case the message promises nothing, because only
    /// returning phones receive a code.
    pub(crate) fn message(&self, sent: &'static str) -> &'static str {
        match self.limited_for {
            None => sent,
            Some(_) => {
                "Few codes can be sent right now. If this number was used here before, a code is on its way. \
                 Otherwise, try again later."
            }
        }
    }

    pub(crate) fn notice(&self) -> Option<&'static str> {
        self.limited_for.map(|_| "codes_limited")
    }
}

fn sent(sent: Sent) -> impl IntoResponse {
    let data = Validity { expires_in: sent.expires_in.as_secs(), notice: sent.notice() };
    let message = sent.message("A code was sent.");
    state_limit(sent.limit);
    (retry_after(sent.limited_for), Json(CodeSent { message, data }))
}

impl From<RequestError> for ApiError {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::NumberNotServed => {
                Self::invalid_field("phone", "must be a number that can receive text messages, in a supported country")
            }
            RequestError::Limited(decision) => Self::rate_limited(decision),
            RequestError::NonePending => Self::invalid_field("phone", "has no pending verification"),
            RequestError::Unavailable => {
                Self::unavailable("sms_unavailable", "The code could not be sent. Try again shortly.")
            }
            RequestError::NoKey => Self::internal(error),
            RequestError::Database(error) => error.into(),
        }
    }
}

impl From<CheckError> for ApiError {
    fn from(error: CheckError) -> Self {
        match error {
            CheckError::InvalidCode => Self::new(StatusCode::UNAUTHORIZED, "invalid_code", "Wrong or expired code."),
            CheckError::Limited(decision) => Self::rate_limited(decision),
            CheckError::Database(error) => error.into(),
        }
    }
}

impl<S: WebState> FromRequestParts<S> for GuessPermit
where
    Codes: FromRef<S>,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let network = ClientNetwork::from_request_parts(parts, state).await?;
        let permit = Codes::from_ref(state).permit_guess(network).await;
        state_limit(permit.limit);
        Ok(permit)
    }
}

/// Request a login code.
///
/// The response is the same whether or not the phone has an account; the first login creates one. The text message uses
/// the language that `Accept-Language` prefers, if the service supports it. While too many codes are requested from the
/// caller's network, or for the phone's block of numbers or country, `data.notice` is `codes_limited`: only numbers
/// that were verified before receive a code.
#[utoipa::path(post, path = "/api/code/request", tag = "Login", request_body = PhoneBody,
    responses(
        (status = 200, body = CodeSent),
        (status = 429, description = "Too many codes; retry after the time in `Retry-After`", body = ErrorBody),
    ))]
pub(super) async fn request_code(
    State(codes): State<Codes>,
    network: ClientNetwork,
    headers: HeaderMap,
    ValidJson(PhoneBody { phone }): ValidJson<PhoneBody>,
) -> Result<impl IntoResponse, ApiError> {
    let subject = Subject::Login(phone.clone());
    Ok(sent(codes.request(&subject, &phone, network, Language::of(&headers)).await?))
}

/// Resend a code.
///
/// With a token, repeats the caller's pending phone verification; without a token, the phone's pending login. The
/// previous code becomes invalid.
#[utoipa::path(post, path = "/api/auth/resend-code", tag = "Login", security((), ("token" = [])), request_body = PhoneBody,
    responses(
        (status = 200, body = CodeSent),
        (status = 429, description = "Too many codes; retry after the time in `Retry-After`", body = ErrorBody),
    ))]
pub(super) async fn resend_code(
    State(codes): State<Codes>,
    MaybeUser(user): MaybeUser,
    network: ClientNetwork,
    headers: HeaderMap,
    ValidJson(PhoneBody { phone }): ValidJson<PhoneBody>,
) -> Result<impl IntoResponse, ApiError> {
    let subject = user.map_or_else(|| Subject::Login(phone.clone()), |user| Subject::Verification(user.id));
    Ok(sent(codes.resend(&subject, &phone, network, Language::of(&headers)).await?))
}
