//! HTTP for leaving.

use axum::{Json, extract::State, response::IntoResponse};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde::{Serialize, Serializer, ser::SerializeMap as _};
use utoipa::ToSchema;
use web::{
    ApiError, ClientNetwork, ErrorBody, NO_STORE, ValidJson, fields::from_body, permitted, retry_after, state_limit,
};

use super::service::{AccountDeletion, DeletionError, Export};
use crate::identity::{
    codes::{Code, service::GuessPermit},
    sessions::CurrentUser,
    sms::templates::Language,
};

const AS_A_FILE: (HeaderName, HeaderValue) =
    (header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment; filename=\"matchday-export.json\""));

#[derive(Serialize, ToSchema)]
pub(super) struct ExportAnswer {
    /// The rows of each table that has some of the caller, by its name, as they are stored.
    #[schema(value_type = HashMap<String, Vec<HashMap<String, serde_json::Value>>>)]
    data: ExportItem,
}

/// Written as an object, in the order of the tables.
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
    #[schema(example = "A code was sent. With it the account can be deleted.")]
    message: &'static str,
    data: DeletionItem,
}

#[derive(Serialize, ToSchema)]
#[schema(as = PendingDeletion)]
struct DeletionItem {
    /// For how many seconds the code is valid.
    #[schema(example = 300)]
    expires_in: u64,
    #[schema(example = "+14155550100")]
    phone: String,
    /// `codes_limited` while a limit that many callers share is used up: the code may not arrive. `Retry-After` says
    /// when to ask again.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = String, example = "codes_limited")]
    notice: Option<&'static str>,
}

#[derive(ToSchema)]
pub(super) struct Confirmation {
    /// The code that was sent for this.
    #[schema(value_type = String, pattern = "^[0-9]{6}$", example = "271828")]
    code: Code,
}

from_body!(Confirmation { code });

#[derive(Serialize, ToSchema)]
pub(super) struct AccountDeleted {
    #[schema(example = "The account is deleted. What was said in chat follows within minutes.")]
    message: &'static str,
}

impl From<DeletionError> for ApiError {
    fn from(error: DeletionError) -> Self {
        match error {
            DeletionError::NoSuchAccount => Self::unauthenticated(),
            DeletionError::NoPhone => {
                Self::new(StatusCode::CONFLICT, "no_phone", "This account has no phone that a code could be sent to.")
            }
            DeletionError::MovedLately { until } => {
                let day = until.date();
                let message = format!("This account's phone number was changed lately. You can delete it after {day}.");
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

/// Take along everything that the service has of the caller.
///
/// What was said in chat is on the homeserver, from where every Matrix client can export it.
#[utoipa::path(get, path = "/api/auth/me/export", tag = "Account", security(("token" = [])),
    responses(
        (status = 200, body = ExportAnswer, headers(("Content-Disposition" = String, description = "A name for the file"))),
        (status = 429, description = "Too many exports; `Retry-After` says when to ask again", body = ErrorBody),
    ))]
pub(super) async fn export_me(
    State(leaving): State<AccountDeletion>,
    user: CurrentUser,
) -> Result<impl IntoResponse, ApiError> {
    permitted(leaving.permit_export(user.id).await)?;
    let export = leaving.export(user.id).await?;
    Ok(([NO_STORE, AS_A_FILE], Json(ExportAnswer { data: ExportItem(export) })))
}

/// Ask for the code that deleting the account needs.
///
/// It goes to the account's own phone, and is good for nothing else.
#[utoipa::path(post, path = "/api/auth/me/deletion", tag = "Account", security(("token" = [])),
    responses(
        (status = 200, body = DeletionRequested),
        (status = 409, description = "The account has no phone (`no_phone`), its phone was changed less than 72 hours ago (`phone_moved_lately`), or the same request is under way", body = ErrorBody),
        (status = 429, description = "Too many codes; `Retry-After` says when to ask again", body = ErrorBody),
    ))]
pub(super) async fn request_deletion(
    State(leaving): State<AccountDeletion>,
    user: CurrentUser,
    network: ClientNetwork,
    headers: HeaderMap,
) -> Result<impl IntoResponse, ApiError> {
    let (phone, sent) = leaving.request(user.id, network, Language::of(&headers)).await?;
    let data =
        DeletionItem { expires_in: sent.expires_in.as_secs(), phone: phone.as_str().to_owned(), notice: sent.notice() };
    let message = sent.message("A code was sent. With it the account can be deleted.");
    state_limit(sent.limit);
    Ok((retry_after(sent.limited_for), Json(DeletionRequested { message, data })))
}

/// Delete the caller's account, for good.
///
/// At once every session ends, and whatever says who the person is goes: phone, names, address, birthday, favourites,
/// browsers. Predictions and coins stay, as those of nobody. The username is given to nobody else. A few minutes later what
/// the person said in chat is taken back, and the chat account ends.
#[utoipa::path(delete, path = "/api/auth/me", tag = "Account", security(("token" = [])),
    request_body = Confirmation,
    responses(
        (status = 200, body = AccountDeleted),
        (status = 401, description = "The token is not good, or the code is wrong, expired or used up", body = ErrorBody),
        (status = 409, description = "The account has no phone (`no_phone`)", body = ErrorBody),
        (status = 429, description = "Too many tries; `Retry-After` says when to try again", body = ErrorBody),
    ))]
pub(super) async fn delete_me(
    State(leaving): State<AccountDeletion>,
    user: CurrentUser,
    permit: GuessPermit,
    ValidJson(Confirmation { code }): ValidJson<Confirmation>,
) -> Result<Json<AccountDeleted>, ApiError> {
    leaving.delete(user.id, &code, permit).await?;
    let message = "The account is deleted. What was said in chat follows within minutes.";
    Ok(Json(AccountDeleted { message }))
}
