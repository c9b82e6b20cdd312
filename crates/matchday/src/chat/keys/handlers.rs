//! HTTP handlers for resetting chat keys.

use axum::{Json, extract::State, response::IntoResponse};
use http::{HeaderMap, StatusCode};
use serde::Serialize;
use utoipa::ToSchema;
use web::{ApiError, ClientNetwork, ErrorBody, ValidJson, fields::from_body, retry_after, state_limit};

use super::{
    rules::{NewKeys, SigningKey},
    service::{ChatKeys, ResetError},
};
use crate::identity::{
    codes::{Code, service::GuessPermit},
    sessions::CurrentUser,
    sms::templates::Language,
};

#[derive(Serialize, ToSchema)]
pub(super) struct KeyResetBegun {
    #[schema(example = "A code was sent. Use it to reset your chat keys.")]
    message: &'static str,
    data: BegunItem,
}

#[derive(Serialize, ToSchema)]
#[schema(as = PendingKeyReset)]
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
pub(super) struct KeyReset {
    /// Code that was sent for the reset.
    #[schema(value_type = String, pattern = "^[0-9]{6}$", example = "271828")]
    code: Code,
    /// Key with the usage `master`.
    master_key: SigningKey,
    /// Key with the usage `self_signing`, signed by the master key.
    self_signing_key: SigningKey,
    /// Key with the usage `user_signing`, signed by the master key.
    user_signing_key: SigningKey,
}

from_body!(KeyReset { code, master_key, self_signing_key, user_signing_key });

#[derive(Serialize, ToSchema)]
pub(super) struct KeysReset {
    #[schema(example = "Chat keys replaced. Verify your other devices again.")]
    message: &'static str,
    data: ResetItem,
}

#[derive(Serialize, ToSchema)]
#[schema(as = ReplacedKeys)]
struct ResetItem {
    reset: bool,
}

impl From<ResetError> for ApiError {
    fn from(error: ResetError) -> Self {
        match error {
            ResetError::NoSuchAccount => Self::unauthenticated(),
            ResetError::NoPhone => {
                Self::new(StatusCode::CONFLICT, "no_phone", "This account has no phone number to send a code to.")
            }
            ResetError::NotConfigured => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "not_configured",
                "Chat keys cannot be reset on this server.",
            ),
            ResetError::Keys(faults) => Self::invalid(faults),
            ResetError::Request(error) => error.into(),
            ResetError::Code(error) => error.into(),
            ResetError::Chat(error) => error.into(),
            ResetError::Database(error) => error.into(),
            ResetError::Json(error) => Self::internal(error),
        }
    }
}

/// Request the code that confirms a reset of the caller's chat keys.
///
/// For users who lost their recovery key. The code is sent to the account's phone and is valid only for the reset.
#[utoipa::path(post, path = "/api/auth/matrix-keys/reset/initiate", tag = "Chat", security(("token" = [])),
    responses(
        (status = 200, body = KeyResetBegun),
        (status = 409, description = "The account has no phone (`no_phone`), or the same request is still being processed", body = ErrorBody),
        (status = 429, description = "Too many codes; retry after the time in `Retry-After`", body = ErrorBody),
        (status = 503, description = "Chat is disabled, or the homeserver does not allow the reset (`not_configured`); or no code could be sent (`sms_unavailable`)", body = ErrorBody),
    ))]
pub(super) async fn initiate_key_reset(
    State(keys): State<ChatKeys>,
    user: CurrentUser,
    network: ClientNetwork,
    headers: HeaderMap,
) -> Result<impl IntoResponse, ApiError> {
    let (phone, sent) = keys.initiate(user.id, network, Language::of(&headers)).await?;
    let data =
        BegunItem { expires_in: sent.expires_in.as_secs(), phone: phone.as_str().to_owned(), notice: sent.notice() };
    let message = sent.message("A code was sent. Use it to reset your chat keys.");
    state_limit(sent.limit);
    Ok((retry_after(sent.limited_for), Json(KeyResetBegun { message, data })))
}

/// Replace the caller's chat keys.
///
/// The keys have the form of the Matrix request `POST /keys/device_signing/upload`. They replace the present cross-signing
/// keys: the caller's devices stay logged in and become unverified. The caller's phone receives a text message about it.
#[utoipa::path(post, path = "/api/auth/matrix-keys/reset", tag = "Chat", security(("token" = [])),
    request_body = KeyReset,
    responses(
        (status = 200, body = KeysReset),
        (status = 401, description = "The token is not valid, or the code is wrong, expired or used up (`invalid_code`)", body = ErrorBody),
        (status = 403, description = "The caller is muted (`muted`), and the homeserver refuses new keys until the mute ends", body = ErrorBody),
        (status = 409, description = "The account has no phone (`no_phone`), or the same request is still being processed", body = ErrorBody),
        (status = 429, description = "Too many attempts; retry after the time in `Retry-After`", body = ErrorBody),
        (status = 503, description = "Chat is unavailable (`chat_unavailable`): the code stays valid, retry after `Retry-After` seconds; or chat is disabled, or the homeserver does not allow the reset (`not_configured`)", body = ErrorBody),
    ))]
pub(super) async fn reset_matrix_keys(
    State(keys): State<ChatKeys>,
    user: CurrentUser,
    permit: GuessPermit,
    headers: HeaderMap,
    ValidJson(body): ValidJson<KeyReset>,
) -> Result<Json<KeysReset>, ApiError> {
    let KeyReset { code, master_key, self_signing_key, user_signing_key } = body;
    let new = NewKeys { master_key, self_signing_key, user_signing_key };
    keys.reset(user.id, &code, new, permit, Language::of(&headers)).await?;
    let message = "Chat keys replaced. Verify your other devices again.";
    Ok(Json(KeysReset { message, data: ResetItem { reset: true } }))
}
