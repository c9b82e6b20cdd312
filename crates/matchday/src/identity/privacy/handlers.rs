//! HTTP handlers for privacy settings.

use axum::{Json, extract::State};
use serde::Serialize;
use utoipa::ToSchema;
use web::{
    ApiError, ValidJson,
    fields::{Body, Change, FromBody, FromJson},
};

use super::{
    rules::{Audience, NameAudience},
    service::{Privacy, PrivacyChange, PrivacyError, PrivacySettings},
};
use crate::identity::sessions::CurrentUser;

impl From<PrivacyError> for ApiError {
    fn from(error: PrivacyError) -> Self {
        match error {
            PrivacyError::NoSuchAccount => Self::unauthenticated(),
            PrivacyError::Database(error) => error.into(),
            PrivacyError::Message(error) => Self::internal(error),
        }
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct PrivacyResponse {
    data: PrivacyItem,
}

/// Users who see the parts of the caller's profile. `following` are the users whom the caller follows.
#[derive(Serialize, ToSchema)]
#[schema(as = Privacy)]
struct PrivacyItem {
    /// The name, in all lists and in chat. The caller always sees it.
    name: NameAudience,
    /// The favourite teams.
    teams: Audience,
    /// Numbers of predictions and points on the profile. Leaderboards and lists of predictions are public.
    record: Audience,
    /// Confidence compared with the hit rate.
    calibration: Audience,
}

impl From<Privacy> for PrivacyItem {
    fn from(Privacy { name, teams, record, calibration }: Privacy) -> Self {
        Self { name, teams, record, calibration }
    }
}

/// Settings to change. A missing field keeps its value.
#[derive(ToSchema)]
#[schema(as = PrivacyChange)]
pub(super) struct PrivacyBody {
    #[schema(required = false, value_type = NameAudience)]
    name: Option<NameAudience>,
    #[schema(required = false, value_type = Audience)]
    teams: Option<Audience>,
    #[schema(required = false, value_type = Audience)]
    record: Option<Audience>,
    #[schema(required = false, value_type = Audience)]
    calibration: Option<Audience>,
}

impl FromBody for PrivacyBody {
    fn from_body(body: &mut Body) -> Option<Self> {
        let name = changed(body, "name");
        let teams = changed(body, "teams");
        let record = changed(body, "record");
        let calibration = changed(body, "calibration");
        Some(Self { name: name?, teams: teams?, record: record?, calibration: calibration? })
    }
}

/// Reads a field that may be missing, but not null.
#[expect(clippy::option_option, reason = "faulty, missing and present are three different fields")]
fn changed<T: FromJson>(body: &mut Body, name: &str) -> Option<Option<T>> {
    match body.change(name)? {
        Change::Keep => Some(None),
        Change::Clear => body.fault(name, T::EXPECTED),
        Change::Set(value) => Some(Some(value)),
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct PrivacySaved {
    #[schema(example = "Your privacy settings were saved.")]
    message: &'static str,
    data: PrivacyItem,
}

/// Get the caller's privacy settings.
#[utoipa::path(get, path = "/api/auth/me/privacy", tag = "Account", security(("token" = [])),
    responses((status = 200, body = PrivacyResponse)))]
pub(super) async fn get_privacy(
    State(settings): State<PrivacySettings>,
    user: CurrentUser,
) -> Result<Json<PrivacyResponse>, ApiError> {
    let privacy = settings.of(user.id).await?.ok_or_else(ApiError::unauthenticated)?;
    Ok(Json(PrivacyResponse { data: privacy.into() }))
}

/// Change the caller's privacy settings.
///
/// Other users' lists follow within seconds, chat within a minute.
#[utoipa::path(put, path = "/api/auth/me/privacy", tag = "Account", security(("token" = [])),
    request_body = PrivacyBody, responses((status = 200, body = PrivacySaved)))]
pub(super) async fn change_privacy(
    State(settings): State<PrivacySettings>,
    user: CurrentUser,
    ValidJson(PrivacyBody { name, teams, record, calibration }): ValidJson<PrivacyBody>,
) -> Result<Json<PrivacySaved>, ApiError> {
    let privacy = settings.change(user.id, PrivacyChange { name, teams, record, calibration }).await?;
    Ok(Json(PrivacySaved { message: "Your privacy settings were saved.", data: privacy.into() }))
}
