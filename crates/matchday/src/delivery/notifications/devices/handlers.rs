//! HTTP handlers for devices.

use axum::{Json, extract::State};
use jiff::tz::TimeZone;
use serde::Serialize;
use serde_json::Value;
use texts::Locale;
use time::OffsetDateTime;
use utoipa::ToSchema;
use web::{
    ApiError, ErrorBody, Path, ValidJson,
    fields::{Body, FromBody, FromJson},
};

use super::{
    super::{rules::time_zone, service::Notifications},
    rules::{DeviceId, Platform, Token},
    service::{Device, RegisterError, Registration},
};
use crate::identity::sessions::CurrentUser;

/// A device that receives notifications.
#[derive(Serialize, ToSchema)]
#[schema(as = Device)]
struct DeviceItem {
    #[schema(pattern = "^[A-Za-z0-9._-]{8,64}$", example = "c0ffee00-6d1f-4c1e")]
    id: String,
    platform: Platform,
    /// Language of the notifications.
    #[schema(example = "pt-BR")]
    locale: String,
    /// Time zone of times in notifications; null if the app gave none.
    #[schema(required, example = "America/Sao_Paulo")]
    time_zone: Option<String>,
    /// Whether this service is configured for the platform. Otherwise the device gets no notifications yet.
    deliverable: bool,
    #[serde(with = "platform::timestamp")]
    #[schema(example = "2026-11-20T15:00:00.000Z")]
    created_at: OffsetDateTime,
    /// Time of the last registration.
    #[serde(with = "platform::timestamp")]
    #[schema(example = "2026-11-20T15:00:00.000Z")]
    updated_at: OffsetDateTime,
}

impl From<Device> for DeviceItem {
    fn from(device: Device) -> Self {
        let Device { id, platform, locale, time_zone, deliverable, created_at, updated_at } = device;
        Self { id: id.to_string(), platform, locale, time_zone, deliverable, created_at, updated_at }
    }
}

#[derive(Serialize, ToSchema)]
pub(crate) struct DeviceList {
    data: Vec<DeviceItem>,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct DeviceAnswer {
    data: DeviceItem,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct DeviceSaved {
    #[schema(example = "Device registered.")]
    message: &'static str,
    data: DeviceItem,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct DeviceRemoved {
    #[schema(example = "Device removed.")]
    message: &'static str,
}

/// Registration of a device. It replaces an earlier one of the same device.
#[derive(ToSchema)]
pub(crate) struct DeviceRequest {
    #[expect(dead_code, reason = "described only: the token has its platform")]
    platform: Platform,
    /// `fcm`: registration token of 1 to 4096 printable ASCII characters. `apns`: 64 to 200 hexadecimal digits. `web`:
    /// the browser's push subscription with `endpoint` and `keys`.
    #[schema(value_type = Value)]
    token: Token,
    /// Language of the notifications.
    #[schema(value_type = Option<String>, default = "en", pattern = "^[a-z]{2,3}(-[A-Z][a-z]{3})?(-([A-Z]{2}|[0-9]{3}))?$", example = "pt-BR")]
    locale: Option<Locale>,
    /// Name from the IANA time zone database. Times in notifications are shown in it.
    #[schema(value_type = Option<String>, example = "America/Sao_Paulo")]
    time_zone: Option<TimeZone>,
}

/// A token of any platform, before it is known which one.
struct AnyToken(Value);

impl FromJson for AnyToken {
    const EXPECTED: &'static str = "must be a string or a push subscription";

    fn from_json(value: &Value) -> Option<Self> {
        (value.is_string() || value.is_object()).then(|| Self(value.clone()))
    }
}

struct LocaleField(Locale);

impl FromJson for LocaleField {
    const EXPECTED: &'static str = "must be a language tag like de or pt-BR";

    fn from_json(value: &Value) -> Option<Self> {
        Locale::parse(value.as_str()?).map(Self)
    }
}

struct ZoneField(TimeZone);

impl FromJson for ZoneField {
    const EXPECTED: &'static str = "must be the name of a time zone like Europe/Berlin";

    fn from_json(value: &Value) -> Option<Self> {
        time_zone(value.as_str()?).map(Self)
    }
}

impl FromBody for DeviceRequest {
    fn from_body(body: &mut Body) -> Option<Self> {
        let platform: Option<Platform> = body.required("platform");
        let token: Option<AnyToken> = body.required("token");
        let locale: Option<Option<LocaleField>> = body.optional("locale");
        let zone: Option<Option<ZoneField>> = body.optional("time_zone");
        let (platform, AnyToken(token)) = (platform?, token?);
        let Some(token) = Token::parse(platform, &token) else {
            return body.fault("token", Token::expected(platform));
        };
        let (locale, time_zone) = (locale?.map(|field| field.0), zone?.map(|field| field.0));
        Some(Self { platform, token, locale, time_zone })
    }
}

impl From<RegisterError> for ApiError {
    fn from(error: RegisterError) -> Self {
        match error {
            RegisterError::Address(_) => {
                Self::invalid_field("token", "must have a public https endpoint without a username or password")
            }
            RegisterError::Service => {
                Self::invalid_field("token", "must have an endpoint of a push service that this server supports")
            }
            RegisterError::NoPush => {
                Self::new(http::StatusCode::CONFLICT, "push_unavailable", "Web push is not configured on this server.")
            }
            RegisterError::SessionEnded => Self::unauthenticated(),
            error @ RegisterError::NoKey => Self::internal(error),
            RegisterError::Database(error) => error.into(),
        }
    }
}

/// List the caller's devices.
///
/// Oldest first.
#[utoipa::path(get, path = "/api/auth/devices", tag = "Notifications", security(("token" = [])),
    responses((status = 200, body = DeviceList)))]
pub(crate) async fn list_devices(
    State(notifications): State<Notifications>,
    user: CurrentUser,
) -> Result<Json<DeviceList>, ApiError> {
    let devices = notifications.devices().list(user.id).await?;
    Ok(Json(DeviceList { data: devices.into_iter().map(DeviceItem::from).collect() }))
}

/// Show one of the caller's devices.
#[utoipa::path(get, path = "/api/auth/devices/{device}", tag = "Notifications", security(("token" = [])),
    params(("device" = String, Path, description = "Id of the device, chosen by the app", pattern = "^[A-Za-z0-9._-]{8,64}$", example = "c0ffee00-6d1f-4c1e")),
    responses(
        (status = 200, body = DeviceAnswer),
        (status = 404, description = "The caller has no such device", body = ErrorBody),
    ))]
pub(crate) async fn get_device(
    State(notifications): State<Notifications>,
    user: CurrentUser,
    Path(id): Path<DeviceId>,
) -> Result<Json<DeviceAnswer>, ApiError> {
    let devices = notifications.devices().list(user.id).await?;
    let found = devices.into_iter().find(|device| device.id == id);
    let device = found.ok_or_else(|| ApiError::not_found("The device"))?;
    Ok(Json(DeviceAnswer { data: device.into() }))
}

/// Register a device for notifications.
///
/// The app chooses the id once per installation. A user has at most ten devices; an eleventh replaces the one whose
/// registration is the oldest. A token belongs to one device: registering it ends other registrations, also those of other
/// users. The device is removed when the session that registered it last ends.
#[utoipa::path(put, path = "/api/auth/devices/{device}", tag = "Notifications", security(("token" = [])),
    params(("device" = String, Path, description = "Id of the device, chosen by the app", pattern = "^[A-Za-z0-9._-]{8,64}$", example = "c0ffee00-6d1f-4c1e")),
    request_body = DeviceRequest,
    responses(
        (status = 200, body = DeviceSaved),
        (status = 404, description = "The id of the device is not valid", body = ErrorBody),
        (status = 409, description = "Web push is not configured (`push_unavailable`)", body = ErrorBody),
    ))]
pub(crate) async fn save_device(
    State(notifications): State<Notifications>,
    user: CurrentUser,
    Path(id): Path<DeviceId>,
    ValidJson(device): ValidJson<DeviceRequest>,
) -> Result<Json<DeviceSaved>, ApiError> {
    let DeviceRequest { token, locale, time_zone, .. } = device;
    let registration = Registration { token, locale: locale.unwrap_or_default(), time_zone };
    let saved = notifications.devices().register(user.id, user.session, &id, &registration).await?;
    Ok(Json(DeviceSaved { message: "Device registered.", data: saved.into() }))
}

/// Remove a device.
#[utoipa::path(delete, path = "/api/auth/devices/{device}", tag = "Notifications", security(("token" = [])),
    params(("device" = String, Path, description = "Id of the device, chosen by the app", pattern = "^[A-Za-z0-9._-]{8,64}$", example = "c0ffee00-6d1f-4c1e")),
    responses(
        (status = 200, body = DeviceRemoved),
        (status = 404, description = "The caller has no such device", body = ErrorBody),
    ))]
pub(crate) async fn remove_device(
    State(notifications): State<Notifications>,
    user: CurrentUser,
    Path(id): Path<DeviceId>,
) -> Result<Json<DeviceRemoved>, ApiError> {
    if !notifications.devices().remove(user.id, &id).await? {
        return Err(ApiError::not_found("The device"));
    }
    Ok(Json(DeviceRemoved { message: "Device removed." }))
}
