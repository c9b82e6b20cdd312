//! HTTP handlers for account deletion and data export.

use axum::{Json, extract::State, response::IntoResponse};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde::{Serialize, Serializer, ser::SerializeMap as _};
use utoipa::ToSchema;
use web::{
    ApiError, ClientNetwork, ErrorBody, NO_STORE, ValidJson, fields::from_body, permitted, retry_after, state_limit,
};

use super::service::{AccountDeletion, DeletionError, Export};
use crate::identity::{
    callers::CallerReader,
    codes::{Code, service::GuessPermit},
    sessions::CurrentUser,
    sms::templates::Language,
};

const ATTACHMENT: (HeaderName, HeaderValue) =
    (header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment; filename=\"matchday-export.json\""));

#[derive(Serialize, ToSchema)]
pub(super) struct ExportResponse {
    /// The caller's rows, by table name. A table without any has an empty list. The row in `users` also has `avatar_url`.
    #[schema(value_type = HashMap<String, Vec<HashMap<String, serde_json::Value>>>)]
    data: ExportItem,
}

/// Serialized as an object, in the order of the list.
struct ExportItem(Export);

impl Serialize for ExportItem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut tables = serializer.serialize_map(Some(self.0.len()))?;
        for (name, rows) in &self.0 {
            tables.serialize_entry(name, rows)?;
        }
        tables.end()
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct DeletionRequested {
    #[schema(example = "A code was sent. Use it to confirm the deletion.")]
    message: &'static str,
    data: DeletionItem,
}

#[derive(Serialize, ToSchema)]
#[schema(as = PendingDeletion)]
struct DeletionItem {
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
pub(super) struct Confirmation {
    /// Code that was sent to confirm the deletion.
    #[schema(value_type = String, pattern = "^[0-9]{6}$", example = "271828")]
    code: Code,
}

from_body!(Confirmation { code });

#[derive(Serialize, ToSchema)]
pub(super) struct AccountDeleted {
    #[schema(example = "Account deleted. Your chat messages will be removed within minutes.")]
    message: &'static str,
}

impl From<DeletionError> for ApiError {
    fn from(error: DeletionError) -> Self {
        match error {
            DeletionError::NoSuchAccount => Self::unauthenticated(),
            DeletionError::NoPhone => {
                Self::new(StatusCode::CONFLICT, "no_phone", "This account has no phone number to send a code to.")
            }
            DeletionError::PhoneMovedRecently { until } => {
                let day = until.date();
                let message =
                    format!("This account's phone number changed recently. You can delete the account after {day}.");
                Self::new(StatusCode::CONFLICT, "phone_moved_lately", message)
            }
            DeletionError::Busy => web::overloaded(),
            DeletionError::Request(error) => error.into(),
            DeletionError::Code(error) => error.into(),
            DeletionError::Session(error) => error.into(),
            DeletionError::Database(error) => error.into(),
            DeletionError::Json(error) => Self::internal(error),
        }
    }
}

/// Export the caller's data.
///
/// Contains all data that the service stores about the caller. Chat messages are stored on the homeserver and can be
/// exported with any Matrix client.
#[utoipa::path(get, path = "/api/auth/me/export", tag = "Account", security(("token" = [])),
    responses(
        (status = 200, body = ExportResponse, headers(("Content-Disposition" = String, description = "Suggested file name"))),
        (status = 429, description = "Too many exports; retry after the time in `Retry-After`", body = ErrorBody),
    ))]
pub(super) async fn export_me(
    State(deletion): State<AccountDeletion>,
    user: CurrentUser,
    CallerReader(reader): CallerReader,
) -> Result<impl IntoResponse, ApiError> {
    permitted(deletion.permit_export(user.id).await)?;
    let export = deletion.export(&reader, user.id).await?;
    Ok(([NO_STORE, ATTACHMENT], Json(ExportResponse { data: ExportItem(export) })))
}

/// Request the code that confirms an account deletion.
///
/// The code is sent to the account's phone and is valid only for the deletion.
#[utoipa::path(post, path = "/api/auth/me/deletion", tag = "Account", security(("token" = [])),
    responses(
        (status = 200, body = DeletionRequested),
        (status = 409, description = "The account has no phone (`no_phone`), its phone was changed less than 72 hours ago (`phone_moved_lately`), or the same request is still being processed", body = ErrorBody),
        (status = 429, description = "Too many codes; retry after the time in `Retry-After`", body = ErrorBody),
    ))]
pub(super) async fn request_deletion(
    State(deletion): State<AccountDeletion>,
    user: CurrentUser,
    network: ClientNetwork,
    headers: HeaderMap,
) -> Result<impl IntoResponse, ApiError> {
    let (phone, sent) = deletion.request(user.id, network, Language::of(&headers)).await?;
    let data =
        DeletionItem { expires_in: sent.expires_in.as_secs(), phone: phone.as_str().to_owned(), notice: sent.notice() };
    let message = sent.message("A code was sent. Use it to confirm the deletion.");
    state_limit(sent.limit);
    Ok((retry_after(sent.limited_for), Json(DeletionRequested { message, data })))
}

/// Delete the caller's account permanently.
///
/// All sessions end immediately. The personal data is deleted immediately: phone, name, username, email address, date
/// of birth, favourite teams and push subscriptions. Predictions and coins are kept anonymously. The username stays
/// reserved and cannot be registered again. A few minutes later, the chat messages are redacted and the chat account is
/// deactivated.
#[utoipa::path(delete, path = "/api/auth/me", tag = "Account", security(("token" = [])),
    request_body = Confirmation,
    responses(
        (status = 200, body = AccountDeleted),
        (status = 401, description = "The token is not valid, or the code is wrong, expired or used up", body = ErrorBody),
        (status = 409, description = "The account has no phone (`no_phone`)", body = ErrorBody),
        (status = 429, description = "Too many attempts; retry after the time in `Retry-After`", body = ErrorBody),
    ))]
pub(super) async fn delete_me(
    State(deletion): State<AccountDeletion>,
    user: CurrentUser,
    permit: GuessPermit,
    ValidJson(Confirmation { code }): ValidJson<Confirmation>,
) -> Result<Json<AccountDeleted>, ApiError> {
    deletion.delete(user.id, &code, permit).await?;
    let message = "Account deleted. Your chat messages will be removed within minutes.";
    Ok(Json(AccountDeleted { message }))
}
