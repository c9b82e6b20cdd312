//! HTTP handlers for chat credentials.

use axum::{Json, extract::State, response::IntoResponse};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use utoipa::ToSchema;
use web::{ApiError, ErrorBody, NO_STORE, permitted};

use super::service::{Chat, ChatError};
use crate::identity::{accounts::service::Accounts, login::CredentialsItem, sessions::CurrentUser};

/// Chat rarely recovers sooner.
const RETRY_AFTER: std::time::Duration = std::time::Duration::from_secs(5);

#[derive(Serialize, ToSchema)]
pub(super) struct CredentialsResponse {
    #[schema(example = "Chat credentials created.")]
    message: &'static str,
    data: CredentialsData,
}

#[derive(Serialize, ToSchema)]
struct CredentialsData {
    matrix_credentials: CredentialsItem,
}

/// Client discovery document of the Matrix specification.
#[derive(Serialize, ToSchema)]
pub(super) struct ClientDiscovery {
    #[serde(rename = "m.homeserver")]
    homeserver: HomeserverItem,
}

#[derive(Serialize, ToSchema)]
#[schema(as = DiscoveredHomeserver)]
struct HomeserverItem {
    #[schema(example = "https://chat.example.org")]
    base_url: String,
}

impl From<ChatError> for ApiError {
    fn from(error: ChatError) -> Self {
        match error {
            ChatError::SessionEnded => Self::unauthenticated(),
            ChatError::Session(error) => error.into(),
            ChatError::Muted => Self::new(StatusCode::FORBIDDEN, "muted", "You are muted in chat."),
            ChatError::ForeignAccount => Self::new(
                StatusCode::CONFLICT,
                "chat_name_taken",
                "Your username is already in use on the chat server. Choose another username.",
            ),
            ChatError::None
            | ChatError::Unavailable
            | ChatError::Busy
            | ChatError::Replaced
            | ChatError::Homeserver(_) => {
                Self::unavailable("chat_unavailable", "Chat is unavailable. Try again shortly.").after(RETRY_AFTER)
            }
        }
    }
}

/// Create new chat credentials for this session.
///
/// Use it if chat was unavailable at login or the app lost its credentials. The session's previous chat token is
/// revoked.
#[utoipa::path(post, path = "/api/auth/matrix-credentials", tag = "Chat", security(("token" = [])),
    responses(
        (status = 200, body = CredentialsResponse),
        (status = 403, description = "The caller is muted (`muted`), and the homeserver cannot enforce the mute", body = ErrorBody),
        (status = 409, description = "The chat server has another account with the caller's username (`chat_name_taken`); choose another username with `POST /api/auth/update-user-info`", body = ErrorBody),
        (status = 429, description = "Too many requests; retry after `Retry-After` seconds", body = ErrorBody),
        (status = 503, description = "Chat is unavailable (`chat_unavailable`); retry after `Retry-After` seconds", body = ErrorBody),
    ))]
pub(super) async fn get_matrix_credentials(
    State(chat): State<Chat>,
    State(accounts): State<Accounts>,
    user: CurrentUser,
) -> Result<impl IntoResponse, ApiError> {
    permitted(chat.permit_renewal(user.id).await)?;
    let account = accounts.find(user.id).await?.ok_or_else(ApiError::unauthenticated)?;
    let renewed = chat.renew(&account, user.session).await;
    if matches!(renewed, Err(ChatError::Unavailable | ChatError::Busy | ChatError::Homeserver(_))) {
        chat.return_renewal(user.id).await;
    }
    let data = CredentialsData { matrix_credentials: renewed?.into() };
    Ok(([NO_STORE], Json(CredentialsResponse { message: "Chat credentials created.", data })))
}

/// Get the address of the Matrix homeserver.
#[utoipa::path(get, path = "/.well-known/matrix/client", tag = "Chat",
    responses(
        (status = 200, body = ClientDiscovery),
        (status = 404, description = "Chat is disabled in this deployment", body = ErrorBody),
    ))]
pub(super) async fn get_client_discovery(State(chat): State<Chat>) -> Result<impl IntoResponse, ApiError> {
    let url = chat.public_url().ok_or_else(|| ApiError::not_found("The homeserver"))?;
    let homeserver = HomeserverItem { base_url: url.as_str().trim_end_matches('/').to_owned() };
    // Browser clients on any origin may read this.
    let any_origin = [(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"))];
    Ok((any_origin, Json(ClientDiscovery { homeserver })))
}
