//! HTTP handlers for avatars.

use axum::{
    Json,
    body::Body,
    extract::{Request, State},
    response::{IntoResponse as _, Response},
};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body_util::BodyExt as _;
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;
use utoipa::{IntoParams, ToSchema};
use web::{
    ApiError, ErrorBody, NO_STORE, Path, Query, Wanted,
    fields::{FromQuery, from_parameters},
    openapi::Binary,
    permitted, read_body,
};

use super::{
    AvatarKey, Size, rules,
    service::{AvatarError, Avatars},
};
use crate::identity::sessions::CurrentUser;

#[derive(Serialize, ToSchema)]
pub(super) struct AvatarSaved {
    #[schema(example = "Avatar saved.")]
    message: &'static str,
    data: AvatarItem,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Avatar)]
struct AvatarItem {
    /// URL of the picture, 512 × 512 pixels. With `?size=128` it has 128 × 128 pixels.
    #[schema(example = "https://api.example.org/api/avatars/5b1f0c9a4d3e2f7081726354a5b6c7d8.jpg")]
    avatar_url: String,
}

#[derive(Serialize, ToSchema)]
pub(super) struct AvatarDeleted {
    #[schema(example = "Avatar removed.")]
    message: &'static str,
}

impl From<AvatarError> for ApiError {
    fn from(error: AvatarError) -> Self {
        use ::avatars::Error;
        match error {
            AvatarError::NoStore => unavailable(),
            // The account was deleted during the request.
            AvatarError::NoSuchAccount => Self::unauthenticated(),
            AvatarError::NoAvatar => Self::not_found("The avatar"),
            AvatarError::Image(error) => {
                let message = match error {
                    Error::UnknownFormat => "must be a JPEG, PNG or WebP image",
                    Error::Unsupported => "uses a rare variant of its format: choose another file",
                    Error::Truncated => "is incomplete: send the whole file",
                    Error::Damaged => "is damaged: choose another file",
                    Error::TooLarge => "must have at most 4096 × 4096 pixels",
                    Error::TooMuchMemory => "needs too much memory: choose an image with fewer pixels",
                };
                Self::invalid_field("avatar", message)
            }
            AvatarError::Busy => web::overloaded(),
            AvatarError::TooLate => web::too_late(),
            AvatarError::Storage(error) => {
                Self::unavailable("storage_unavailable", "Pictures are unavailable. Try again shortly.").because(error)
            }
            AvatarError::Database(error) => error.into(),
            error @ (AvatarError::Decoding(_) | AvatarError::Message(_)) => Self::internal(error),
        }
    }
}

fn unavailable() -> ApiError {
    ApiError::new(StatusCode::CONFLICT, "avatars_unavailable", "This service does not store avatars.")
}

/// Upload an avatar.
///
/// The body is the image. The service takes the first frame, applies the EXIF orientation, crops the centre to a square, and
/// stores it as JPEG with 512 × 512 and 128 × 128 pixels, without metadata. Each upload gets a new URL.
#[utoipa::path(put, path = "/api/auth/me/avatar", tag = "Account", security(("token" = [])),
    request_body(description = "The image: at most 2,097,152 bytes, and 4,096 pixels in width and height",
        content((inline(Binary) = "image/jpeg"), (inline(Binary) = "image/png"), (inline(Binary) = "image/webp"))),
    responses(
        (status = 200, body = AvatarSaved),
        (status = 409, description = "This service does not store avatars (`avatars_unavailable`)", body = ErrorBody),
        (status = 413, description = "The image is larger than 2,097,152 bytes", body = ErrorBody),
        (status = 415, description = "The `Content-Type` is not `image/jpeg`, `image/png` or `image/webp`", body = ErrorBody),
        (status = 422, description = "The image is not one of the three formats, incomplete, damaged, or has too many pixels", body = ErrorBody),
        (status = 429, description = "Too many uploads; retry after the time in `Retry-After`", body = ErrorBody),
    ))]
pub(super) async fn save_avatar(
    State(avatars): State<Avatars>,
    user: CurrentUser,
    request: Request,
) -> Result<Json<AvatarSaved>, ApiError> {
    let (parts, body) = request.into_parts();
    let _place = match admit(&avatars, &user, &parts.headers).await {
        Ok(place) => place,
        Err(error) => {
            discard(&parts.headers, body).await;
            return Err(error);
        }
    };
    let upload = read_body(body, rules::MAX_BYTES).await?;
    let avatar_url = avatars.save(user.id, upload).await?;
    Ok(Json(AvatarSaved { message: "Avatar saved.", data: AvatarItem { avatar_url } }))
}

/// Checks everything that does not need the body. Returns a place among the uploads.
async fn admit(avatars: &Avatars, user: &CurrentUser, headers: &HeaderMap) -> Result<OwnedSemaphorePermit, ApiError> {
    permitted(avatars.permit_upload(user.id).await)?;
    if !avatars.has_store() {
        return Err(unavailable());
    }
    if !rules::is_accepted(headers.get(header::CONTENT_TYPE)) {
        let message = "The content type must be image/jpeg, image/png or image/webp.";
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message));
    }
    Ok(avatars.upload_place()?)
}

/// Reads the body of a refused upload, because a client that is still sending may not receive the response otherwise. A client
/// that asked before sending sends nothing.
async fn discard(headers: &HeaderMap, mut body: Body) {
    let mut left = if headers.contains_key(header::EXPECT) { 0 } else { rules::MAX_BYTES };
    while left > 0
        && let Some(Ok(frame)) = body.frame().await
    {
        left = left.saturating_sub(frame.data_ref().map_or(0, bytes::Bytes::len));
    }
}

/// Remove the caller's avatar.
#[utoipa::path(delete, path = "/api/auth/me/avatar", tag = "Account", security(("token" = [])),
    responses((status = 200, description = "The caller has no avatar", body = AvatarDeleted)))]
pub(super) async fn delete_avatar(
    State(avatars): State<Avatars>,
    user: CurrentUser,
) -> Result<Json<AvatarDeleted>, ApiError> {
    avatars.remove(user.id).await?;
    Ok(Json(AvatarDeleted { message: "Avatar removed." }))
}

impl FromQuery for Size {
    const EXPECTED: &'static str = "must be 512 or 128";

    fn from_query(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ImageParameters {
    /// Width and height in pixels: 512 or 128.
    #[param(value_type = Option<u32>, example = 128)]
    size: Option<Size>,
}
from_parameters!(ImageParameters { size });

/// Get the picture of an avatar.
///
/// Needs no token, so that browsers and CDNs can cache it for a day. Other responses than the picture are not cached.
#[utoipa::path(get, path = "/api/avatars/{file}", tag = "Account",
    params(("file" = String, Path, description = "End of an `avatar_url`: 32 letters and digits, and `.jpg`"), ImageParameters),
    responses(
        (status = 200, description = "The picture", content_type = "image/jpeg", body = inline(Binary), headers(
            ("ETag" = String, description = "Validator for `If-None-Match`"),
            ("Cache-Control" = String, description = "`public, max-age=86400, immutable`"),
        )),
        (status = 304, description = "The caller's copy is current"),
        (status = 404, description = "The avatar does not exist, or was replaced or removed", body = ErrorBody),
    ))]
pub(super) async fn get_avatar(
    State(avatars): State<Avatars>,
    Path(file): Path<String>,
    Query(ImageParameters { size }): Query<ImageParameters>,
    wanted: Wanted,
) -> Result<Response, ApiError> {
    let Some(key) = AvatarKey::from_file_name(&file) else { return Ok(missing()) };
    let _place = avatars.read_place()?;
    if !avatars.is_served(&key).await? {
        return Ok(missing());
    }
    let size = size.unwrap_or(Size::Large);
    // The content of a key never changes.
    let etag = HeaderValue::try_from(format!("\"{}-{}\"", key.0, size.pixels())).map_err(ApiError::internal)?;
    let mut response = if wanted.is_unchanged(&etag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let Some(image) = avatars.image(&key, size).await? else { return Ok(missing()) };
        ([(header::CONTENT_TYPE, HeaderValue::from_static("image/jpeg"))], image).into_response()
    };
    let headers = response.headers_mut();
    headers.insert(header::ETAG, etag);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=86400, immutable"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}

/// Not cached, because the key of an upload that is about to finish becomes valid.
fn missing() -> Response {
    ([NO_STORE], ApiError::not_found("The avatar")).into_response()
}
