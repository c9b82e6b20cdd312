//! HTTP handlers for usernames.

use axum::{
    Json,
    extract::{FromRef, FromRequestParts, State},
};
use http::request::Parts;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use web::{
    ApiError, ClientNetwork, ErrorBody, ValidJson, WebState,
    fields::{FromJson, from_body},
    state_limit,
};

use super::{
    rules::Username,
    service::{Availability, NamePermit, Usernames},
};

impl FromJson for Username {
    const EXPECTED: &'static str = "must be 3 to 30 letters a to z, digits, dots and underscores, start and end with a letter or digit, and not consist only of digits";

    fn from_json(value: &Value) -> Option<Self> {
        value.as_str().and_then(Self::parse)
    }
}

#[derive(ToSchema)]
pub(super) struct UsernameCheckRequest {
    /// 3 to 30 letters, digits, dots and underscores. Case is ignored.
    #[schema(value_type = String, min_length = 3, max_length = 30, pattern = "^(?=.*[A-Za-z._])[A-Za-z0-9][A-Za-z0-9._]{1,28}[A-Za-z0-9]$", example = "striker90")]
    username: Username,
}

from_body!(UsernameCheckRequest { username });

#[derive(Serialize, ToSchema)]
pub(super) struct UsernameResponse {
    available: bool,
    #[schema(example = "The username is taken.")]
    message: &'static str,
    /// Available usernames, if the requested one is not available.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = Vec<String>, example = json!(["striker_fc", "the_striker", "striker_07"]))]
    suggestions: Option<Vec<String>>,
}

#[derive(ToSchema)]
pub(super) struct UsernameSuggestionsRequest {
    /// Any text in any script, such as a name or a word.
    #[schema(value_type = String, max_length = 500, example = "Striker")]
    base: Base,
    /// Whether every suggestion ends in a digit. If false, the default, no suggestion contains a digit.
    include_numbers: Option<bool>,
}

struct Base(String);

impl FromJson for Base {
    const EXPECTED: &'static str = "must be a string of at most 500 characters";

    fn from_json(value: &Value) -> Option<Self> {
        value.as_str().filter(|text| text.chars().count() <= 500).map(|text| Self(text.to_owned()))
    }
}

from_body!(UsernameSuggestionsRequest { base, include_numbers });

#[derive(Serialize, ToSchema)]
pub(super) struct Suggestions {
    #[schema(value_type = Vec<String>, example = json!(["striker_fc", "the_striker", "golden.striker"]))]
    suggestions: Vec<String>,
}

impl<S: WebState> FromRequestParts<S> for NamePermit
where
    Usernames: FromRef<S>,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let network = ClientNetwork::from_request_parts(parts, state).await?;
        let permit = Usernames::from_ref(state).permit(network).await.map_err(ApiError::rate_limited)?;
        state_limit(permit.limit);
        Ok(permit)
    }
}

fn texts(names: &[Username]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

/// Check whether a username is available.
#[utoipa::path(post, path = "/api/auth/username/check", tag = "Login", request_body = UsernameCheckRequest,
    responses(
        (status = 200, description = "Availability; suggestions if taken or reserved", body = UsernameResponse),
        (status = 429, description = "Too many requests; retry after the time in `Retry-After`", body = ErrorBody),
    ))]
pub(super) async fn check_username(
    State(usernames): State<Usernames>,
    permit: NamePermit,
    ValidJson(UsernameCheckRequest { username }): ValidJson<UsernameCheckRequest>,
) -> Result<Json<UsernameResponse>, ApiError> {
    let response = match usernames.check(&username, permit).await? {
        Availability::Free => {
            UsernameResponse { available: true, message: "The username is available.", suggestions: None }
        }
        Availability::Taken(suggestions) => UsernameResponse {
            available: false,
            message: "The username is taken.",
            suggestions: Some(texts(&suggestions)),
        },
    };
    Ok(Json(response))
}

/// Suggest usernames that are available.
#[utoipa::path(post, path = "/api/auth/username/generate", tag = "Login", request_body = UsernameSuggestionsRequest,
    responses(
        (status = 200, body = Suggestions),
        (status = 429, description = "Too many requests; retry after the time in `Retry-After`", body = ErrorBody),
    ))]
pub(super) async fn generate_usernames(
    State(usernames): State<Usernames>,
    permit: NamePermit,
    ValidJson(body): ValidJson<UsernameSuggestionsRequest>,
) -> Result<Json<Suggestions>, ApiError> {
    let names = usernames.suggest(&body.base.0, body.include_numbers.unwrap_or(false), permit).await?;
    Ok(Json(Suggestions { suggestions: texts(&names) }))
}
