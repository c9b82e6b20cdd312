//! HTTP for logging in.

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
    codes::{Code, service::GuessPermit},
    phone::Phone,
    usernames::Username,
};

#[derive(ToSchema)]
pub(super) struct LoginBody {
    /// The phone that the code was sent to.
    #[schema(
        value_type = String,
        pattern = r"^[ ().-]*\+[ ().-]*[1-9]([ ().-]*[0-9]){6,14}[ ().-]*$",
        max_length = 40,
        example = "+14155550100"
    )]
    phone: Phone,
    #[schema(value_type = String, pattern = "^[0-9]{6}$", example = "271828")]
    code: Code,
    /// What to be called, at the first login; without it a username is made up. At later logins it changes nothing.
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
pub(super) struct LoginAnswer {
    #[schema(example = "Logged in.")]
    message: &'static str,
    data: LoginItem,
}

#[derive(Serialize, ToSchema)]
#[schema(as = LoginData)]
struct LoginItem {
    user: UserItem,
    /// To be sent as `Authorization: Bearer …`. It is shown once.
    #[schema(example = "md_1z_8vKz0Y4rB2xQ7nT5mW9cD1fG3hJ6kL8pR0sV2uX4yZ6_0aB1cD")]
    token: String,
    /// Null while chat is away; `POST /api/auth/matrix-credentials` gives them later.
    #[schema(required)]
    matrix_credentials: Option<CredentialsItem>,
}

impl From<LoggedIn> for LoginAnswer {
    fn from(logged_in: LoggedIn) -> Self {
        let data = LoginItem {
            user: logged_in.account.into(),
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
/// The first login with a phone makes the account. A username that is taken is 422, and the code stays good.
#[utoipa::path(post, path = "/api/code/verify", tag = "Login", request_body = LoginBody,
    responses(
        (status = 200, body = LoginAnswer),
        (status = 401, description = "The code is wrong, expired, used up, or was never sent", body = ErrorBody),
        (status = 403, description = "The account is suspended (`account_suspended`); `suspended_until` is when that ends, if it does", body = ErrorBody),
        (status = 429, description = "Too many tries; `Retry-After` says when to try again", body = ErrorBody),
    ))]
pub(super) async fn verify_code(
    State(login): State<Login>,
    permit: GuessPermit,
    headers: HeaderMap,
    ValidJson(body): ValidJson<LoginBody>,
) -> Result<impl IntoResponse, ApiError> {
    enter(&login, permit, &headers, body).await
}

/// Log in with a code, by another name.
///
/// The same as `POST /api/code/verify`.
#[utoipa::path(post, path = "/api/auth/login", tag = "Login", request_body = LoginBody,
    responses(
        (status = 200, body = LoginAnswer),
        (status = 401, description = "The code is wrong, expired, used up, or was never sent", body = ErrorBody),
        (status = 403, description = "The account is suspended (`account_suspended`); `suspended_until` is when that ends, if it does", body = ErrorBody),
        (status = 429, description = "Too many tries; `Retry-After` says when to try again", body = ErrorBody),
    ))]
pub(super) async fn log_in(
    State(login): State<Login>,
    permit: GuessPermit,
    headers: HeaderMap,
    ValidJson(body): ValidJson<LoginBody>,
) -> Result<impl IntoResponse, ApiError> {
    enter(&login, permit, &headers, body).await
}

async fn enter(
    login: &Login,
    permit: GuessPermit,
    headers: &HeaderMap,
    body: LoginBody,
) -> Result<impl IntoResponse + use<>, ApiError> {
    let client = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let logged_in = login.log_in(body.into(), permit, client).await?;
    Ok(([NO_STORE], Json(LoginAnswer::from(logged_in))))
}
