//! HTTP handlers for phone verification and phone moves.

use axum::{Json, extract::State, response::IntoResponse};
use http::{HeaderMap, StatusCode};
use serde::Serialize;
use utoipa::ToSchema;
use web::{ApiError, ClientNetwork, ErrorBody, ValidJson, fields::from_body, permitted, retry_after, state_limit};

use super::service::{BeginError, PhoneMoves, UndoCode, UndoError, VerifyError};
use crate::identity::{
    accounts::restrictions::RestrictError,
    codes::{Code, PhoneBody, service::GuessPermit},
    phone::Phone,
    sessions::CurrentUser,
    sms::templates::Language,
};

#[derive(Serialize, ToSchema)]
pub(super) struct VerificationBegun {
    #[schema(example = "A code was sent.")]
    message: &'static str,
    data: BegunItem,
}

#[derive(Serialize, ToSchema)]
#[schema(as = PendingVerification)]
struct BegunItem {
    /// Validity of the code in seconds.
    #[schema(example = 300)]
    expires_in: u64,
    #[schema(example = "+14155550100")]
    phone: String,
    /// `codes_limited` while a limit shared by many callers is exhausted: the code may not arrive. `Retry-After` gives
    /// the time to wait before the next request.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = String, example = "codes_limited")]
    notice: Option<&'static str>,
}

#[derive(ToSchema)]
pub(super) struct PhoneProof {
    /// The phone that the code was sent to.
    #[schema(value_type = String, pattern = r"^[ ().-]*\+[ ().-]*[1-9]([ ().-]*[0-9]){6,14}[ ().-]*$", max_length = 40, example = "+14155550100")]
    phone: Phone,
    #[schema(value_type = String, pattern = "^[0-9]{6}$", example = "271828")]
    code: Code,
}

from_body!(PhoneProof { phone, code });

#[derive(Serialize, ToSchema)]
pub(super) struct PhoneVerified {
    #[schema(example = "Phone verified.")]
    message: &'static str,
    data: VerifiedItem,
}

#[derive(Serialize, ToSchema)]
#[schema(as = VerifiedPhone)]
struct VerifiedItem {
    verified: bool,
    #[schema(example = "+14155550100")]
    phone: String,
}

#[derive(ToSchema)]
pub(super) struct UndoPhoneMoveRequest {
    /// Code from the text message to the old phone. Case, spaces and dashes are ignored.
    #[schema(value_type = String, max_length = 64, pattern = "^[ -]*[1-9A-NP-TV-Za-np-tv-z]([ -]*[0-9A-TV-Za-tv-z]){16,27}[ -]*$", example = "1A-0123-4567-89AB-CDYZ")]
    code: UndoCode,
}

from_body!(UndoPhoneMoveRequest { code });

#[derive(Serialize, ToSchema)]
pub(super) struct UndoPhoneMoveResponse {
    #[schema(example = "Your account is back on this number, and all sessions were ended. Log in again.")]
    message: &'static str,
    data: UndoneItem,
}

#[derive(Serialize, ToSchema)]
#[schema(as = UndonePhoneMove)]
struct UndoneItem {
    /// Phone number to log in with.
    #[schema(example = "+14155550100")]
    phone: String,
}

fn proof_needed() -> ApiError {
    ApiError::invalid_field("phone", "cannot be changed yet: verify your current phone first, or log in again")
        .called("proof_required")
}

impl From<BeginError> for ApiError {
    fn from(error: BeginError) -> Self {
        match error {
            BeginError::ProofNeeded => proof_needed(),
            BeginError::Request(error) => error.into(),
            BeginError::Database(error) => error.into(),
        }
    }
}

impl From<VerifyError> for ApiError {
    fn from(error: VerifyError) -> Self {
        match error {
            VerifyError::OtherPhone => Self::invalid_field("phone", "is not the phone to which the code was sent"),
            VerifyError::PhoneTaken => Self::invalid_field("phone", "belongs to another account"),
            VerifyError::ProofNeeded => proof_needed(),
            VerifyError::Code(error) => error.into(),
            VerifyError::Session(error) => error.into(),
            VerifyError::Restrictions(RestrictError::Message(error)) => Self::internal(error),
            VerifyError::Database(error) | VerifyError::Restrictions(RestrictError::Database(error)) => error.into(),
        }
    }
}

impl From<UndoError> for ApiError {
    fn from(error: UndoError) -> Self {
        match error {
            UndoError::InvalidCode => Self::new(StatusCode::UNAUTHORIZED, "invalid_code", "Wrong or expired code."),
            UndoError::PhoneTaken => {
                Self::new(StatusCode::CONFLICT, "phone_taken", "The phone number belongs to another account now.")
            }
            UndoError::Session(error) => error.into(),
            UndoError::Restrictions(RestrictError::Message(error)) => Self::internal(error),
            UndoError::Database(error) | UndoError::Restrictions(RestrictError::Database(error)) => error.into(),
        }
    }
}

/// Start phone verification.
///
/// Sends a code to the caller's current phone, or to the phone to which they want to move the account.
///
/// A move requires a recent proof of the current phone: a login less than ten minutes ago, or the current phone
/// verified with this endpoint less than ten minutes ago. Otherwise the response is 422 with the code `proof_required`.
#[utoipa::path(post, path = "/api/auth/verify-phone/initiate", tag = "Account", security(("token" = [])),
    request_body = PhoneBody,
    responses(
        (status = 200, body = VerificationBegun),
        (status = 429, description = "Too many codes; retry after the time in `Retry-After`", body = ErrorBody),
    ))]
pub(super) async fn initiate_verification(
    State(phones): State<PhoneMoves>,
    user: CurrentUser,
    network: ClientNetwork,
    headers: HeaderMap,
    ValidJson(PhoneBody { phone }): ValidJson<PhoneBody>,
) -> Result<impl IntoResponse, ApiError> {
    let sent = phones.begin_verification(user, &phone, network, Language::of(&headers)).await?;
    let data =
        BegunItem { expires_in: sent.expires_in.as_secs(), phone: phone.as_str().to_owned(), notice: sent.notice() };
    let body = VerificationBegun { message: sent.message("A code was sent."), data };
    state_limit(sent.limit);
    Ok((retry_after(sent.limited_for), Json(body)))
}

/// Verify a phone with the code that was sent to it.
///
/// If it is not the caller's current phone, the account moves to it. The caller's other sessions end, and the old phone
/// receives a text message with a code that undoes the move for 72 hours.
#[utoipa::path(post, path = "/api/auth/verify-phone", tag = "Account", security(("token" = [])),
    request_body = PhoneProof,
    responses(
        (status = 200, body = PhoneVerified),
        (status = 401, description = "The token is not valid, or the code is wrong, expired or used up", body = ErrorBody),
        (status = 429, description = "Too many attempts; retry after the time in `Retry-After`", body = ErrorBody),
    ))]
pub(super) async fn verify_phone(
    State(phones): State<PhoneMoves>,
    user: CurrentUser,
    permit: GuessPermit,
    headers: HeaderMap,
    ValidJson(PhoneProof { phone, code }): ValidJson<PhoneProof>,
) -> Result<Json<PhoneVerified>, ApiError> {
    phones.verify(user, &phone, &code, permit, Language::of(&headers)).await?;
    let data = VerifiedItem { verified: true, phone: phone.as_str().to_owned() };
    Ok(Json(PhoneVerified { message: "Phone verified.", data }))
}

/// Undo a phone move.
///
/// Requires the code that was sent to the old phone. The account moves back to the old phone, and all its sessions end.
#[utoipa::path(post, path = "/api/phone/undo-move", tag = "Login", request_body = UndoPhoneMoveRequest,
    responses(
        (status = 200, body = UndoPhoneMoveResponse),
        (status = 401, description = "The code is wrong, expired or used up", body = ErrorBody),
        (status = 409, description = "The old phone belongs to another account that is older than the move", body = ErrorBody),
        (status = 429, description = "Too many attempts; retry after the time in `Retry-After`", body = ErrorBody),
    ))]
pub(super) async fn undo_phone_move(
    State(phones): State<PhoneMoves>,
    permit: GuessPermit,
    body: Result<ValidJson<UndoPhoneMoveRequest>, ApiError>,
) -> Result<Json<UndoPhoneMoveResponse>, ApiError> {
    permitted(permit.limit)?;
    let ValidJson(UndoPhoneMoveRequest { code }) = body?;
    let phone = phones.undo(&code).await?;
    let message = "Your account is back on this number, and all sessions were ended. Log in again.";
    let data = UndoneItem { phone: phone.as_str().to_owned() };
    Ok(Json(UndoPhoneMoveResponse { message, data }))
}
