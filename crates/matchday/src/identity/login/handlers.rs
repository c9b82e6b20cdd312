//! HTTP handlers for login.

use axum::{Json, extract::State, response::IntoResponse};
use http::{HeaderMap, header};
use secrecy::ExposeSecret as _;
use serde::Serialize;
use utoipa::ToSchema;
use web::{ApiError, ErrorBody, NO_STORE, ValidJson, fields::from_body};

use super::{
    credentials::CredentialsItem,
    service::{Attempt, LoggedIn, Login, LoginError},
};
use crate::identity::{
    accounts::UserItem,
    avatars::AvatarUrls,
    codes::{Code, service::GuessPermit},
    phone::Phone,
    usernames::Username,
};

#[derive(ToSchema)]
pub(super) struct LoginBody {
    /// Phone that the code was sent to.
    #[schema(
        value_type = String,
        pattern = r"^[ ().-]*\+[ ().-]*[1-9]([ ().-]*[0-9]){6,14}[ ().-]*$",
        max_length = 40,
        example = "+14155550100"
    )]
    phone: Phone,
    #[schema(value_type = String, pattern = "^[0-9]{6}$", example = "271828")]
    code: Code,
    /// Username for the account that the first login creates; if omitted, the service generates one. Later logins
    /// ignore it.
    #[schema(
        value_type = Option<String>,
        min_length = 3,
        max_length = 30,
        pattern = "^(?=.*[A-Za-z._])[A-Za-z0-9][A-Za-z0-9._]{1,28}[A-Za-z0-9]$",
        example = "ada_obi"
    )]
    username: Option<Username>,
}

from_body!(LoginBody { phone, code, username });

impl From<LoginBody> for Attempt {
    fn from(LoginBody { phone, code, username }: LoginBody) -> Self {
        Self { phone, code, username }
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct LoginResponse {
    #[schema(example = "Logged in.")]
    message: &'static str,
    data: LoginItem,
}

#[derive(Serialize, ToSchema)]
#[schema(as = LoginData)]
struct LoginItem {
    user: UserItem,
    /// Session token to send as `Authorization: Bearer …`. It is returned only once.
    #[schema(example = "md_1z_8vKz0Y4rB2xQ7nT5mW9cD1fG3hJ6kL8pR0sV2uX4yZ6_0aB1cD")]
    token: String,
    /// Null while chat is unavailable; request them later with `POST /api/auth/matrix-credentials`.
    #[schema(required)]
    matrix_credentials: Option<CredentialsItem>,
}

impl LoginResponse {
    fn new(logged_in: LoggedIn, avatars: &AvatarUrls) -> Self {
        let data = LoginItem {
            user: UserItem::new(logged_in.account, avatars),
            token: logged_in.token.expose_secret().to_owned(),
            matrix_credentials: logged_in.credentials.map(CredentialsItem::from),
        };
        Self { message: "Logged in.", data }
    }
}

impl From<LoginError> for ApiError {
    fn from(error: LoginError) -> Self {
        match error {
            LoginError::Code(error) => error.into(),
            LoginError::Suspended { until } => Self::suspended(until),
            LoginError::UsernameTaken => Self::invalid_field("username", "is taken"),
            LoginError::Session(error) => error.into(),
        }
    }
}

/// Log in with a code.
///
/// The first login with a phone creates the account. If the username is taken, the response is 422 and the code remains
/// valid.
#[utoipa::path(post, path = "/api/code/verify", tag = "Login", request_body = LoginBody,
    responses(
        (status = 200, body = LoginResponse),
        (status = 401, description = "The code is wrong, expired, already used or was never sent", body = ErrorBody),
        (status = 403, description = "The account is suspended (`account_suspended`); `suspended_until` is the end of the suspension, if it has one", body = ErrorBody),
        (status = 429, description = "Too many attempts; retry after the time in `Retry-After`", body = ErrorBody),
    ))]
pub(super) async fn verify_code(
    State(login): State<Login>,
    State(avatars): State<AvatarUrls>,
    permit: GuessPermit,
    headers: HeaderMap,
    ValidJson(body): ValidJson<LoginBody>,
) -> Result<impl IntoResponse, ApiError> {
    respond(&login, &avatars, permit, &headers, body).await
}

/// Log in with a code (alternative path).
///
/// Identical to `POST /api/code/verify`.
#[utoipa::path(post, path = "/api/auth/login", tag = "Login", request_body = LoginBody,
    responses(
        (status = 200, body = LoginResponse),
        (status = 401, description = "The code is wrong, expired, already used or was never sent", body = ErrorBody),
        (status = 403, description = "The account is suspended (`account_suspended`); `suspended_until` is the end of the suspension, if it has one", body = ErrorBody),
        (status = 429, description = "Too many attempts; retry after the time in `Retry-After`", body = ErrorBody),
    ))]
pub(super) async fn log_in(
    State(login): State<Login>,
    State(avatars): State<AvatarUrls>,
    permit: GuessPermit,
    headers: HeaderMap,
    ValidJson(body): ValidJson<LoginBody>,
) -> Result<impl IntoResponse, ApiError> {
    respond(&login, &avatars, permit, &headers, body).await
}

async fn respond(
    login: &Login,
    avatars: &AvatarUrls,
    permit: GuessPermit,
    headers: &HeaderMap,
    body: LoginBody,
) -> Result<impl IntoResponse + use<>, ApiError> {
    let client = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let logged_in = login.log_in(body.into(), permit, client).await?;
    Ok(([NO_STORE], Json(LoginResponse::new(logged_in, avatars))))
}
