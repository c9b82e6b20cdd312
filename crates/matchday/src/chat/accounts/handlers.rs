//! HTTP for chat.

use axum::{Json, extract::State, response::IntoResponse};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use utoipa::ToSchema;
use web::{ApiError, ErrorBody, NO_STORE, permitted};

use super::service::{Chat, ChatError};
use crate::identity::{accounts::service::Accounts, login::CredentialsItem, sessions::CurrentUser};

/// Sooner than that, chat is hardly back.
const RETRY_AFTER: std::time::Duration = std::time::Duration::from_secs(5);

#[derive(Serialize, ToSchema)]
pub(super) struct NewCredentials {
    #[schema(example = "These are your chat credentials.")]
    message: &'static str,
    data: CredentialsData,
}

#[derive(Serialize, ToSchema)]
struct CredentialsData {
    matrix_credentials: CredentialsItem,
}

/// As Matrix clients look for it.
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
            ChatError::SessionOver => Self::unauthenticated(),
            ChatError::Session(error) => error.into(),
            ChatError::Muted => {
                Self::new(StatusCode::FORBIDDEN, "muted", "You may not take part in chat at the moment.")
            }
            ChatError::NotOurs => Self::new(
                StatusCode::CONFLICT,
                "chat_name_taken",
                "Your username is already in use on the chat server. Choose another username.",
            ),
            ChatError::None | ChatError::Unavailable | ChatError::Replaced | ChatError::Homeserver(_) => {
                Self::unavailable("chat_unavailable", "Chat does not answer. Try again shortly.").after(RETRY_AFTER)
            }
        }
    }
}

/// Get new chat credentials for this session.
///
/// For an app that logged in while chat was away, or lost what it had. The session's chat token before is not good any
/// more.
#[utoipa::path(post, path = "/api/auth/matrix-credentials", tag = "Chat", security(("token" = [])),
    responses(
        (status = 200, body = NewCredentials),
        (status = 403, description = "The caller is muted (`muted`), where the homeserver cannot keep them silent by itself", body = ErrorBody),
        (status = 409, description = "The chat server has another account with the caller's username (`chat_name_taken`); it can be replaced with `POST /api/auth/update-user-info`", body = ErrorBody),
        (status = 429, description = "Too often; `Retry-After` says when to ask again", body = ErrorBody),
        (status = 503, description = "Chat does not answer (`chat_unavailable`); `Retry-After` says when to try again", body = ErrorBody),
    ))]
pub(super) async fn get_matrix_credentials(
    State(chat): State<Chat>,
    State(accounts): State<Accounts>,
    user: CurrentUser,
) -> Result<impl IntoResponse, ApiError> {
    permitted(chat.permit_renewal(user.id).await)?;
    let account = accounts.find(user.id).await?.ok_or_else(ApiError::unauthenticated)?;
    let renewed = chat.renew(&account, user.session).await;
    if matches!(renewed, Err(ChatError::Unavailable | ChatError::Homeserver(_))) {
        chat.return_renewal(user.id).await;
    }
    let data = CredentialsData { matrix_credentials: renewed?.into() };
    Ok(([NO_STORE], Json(NewCredentials { message: "These are your chat credentials.", data })))
}

/// Where is the homeserver?
#[utoipa::path(get, path = "/.well-known/matrix/client", tag = "Chat",
    responses(
        (status = 200, body = ClientDiscovery),
        (status = 404, description = "There is no chat here", body = ErrorBody),
    ))]
pub(super) async fn get_client_discovery(State(chat): State<Chat>) -> Result<impl IntoResponse, ApiError> {
    let url = chat.public_url().ok_or_else(|| ApiError::not_found("A homeserver"))?;
    let homeserver = HomeserverItem { base_url: url.as_str().trim_end_matches('/').to_owned() };
    // Clients in browsers come from anywhere.
    let anywhere = [(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"))];
    Ok((anywhere, Json(ClientDiscovery { homeserver })))
}
