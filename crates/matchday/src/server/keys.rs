//! The key of the request.

use axum::Json;
use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;
use web::ids::ServerKeyId;

use crate::identity::server_keys::{Authorized, scopes::AnyKey, service::ServerKey};

#[derive(Serialize, ToSchema)]
pub(super) struct KeyResponse {
    data: KeyItem,
}

#[derive(Serialize, ToSchema)]
#[schema(as = ServerKey)]
struct KeyItem {
    id: ServerKeyId,
    #[schema(min_length = 1, max_length = 100, example = "shop")]
    name: String,
    /// Start of the key's text.
    #[schema(example = "mk_live_7_Ab3d")]
    prefix: String,
    /// Sorted, without repetitions.
    #[schema(example = json!(["coins:read", "coins:write"]))]
    scopes: Vec<&'static str>,
    /// Networks from which the key may be used. Empty: any network.
    #[schema(example = json!(["203.0.113.0/24"]))]
    allow: Vec<String>,
    #[serde(with = "platform::timestamp")]
    created_at: OffsetDateTime,
    #[serde(with = "platform::timestamp::option")]
    #[schema(required)]
    expires_at: Option<OffsetDateTime>,
    /// Recorded at most once a minute.
    #[serde(with = "platform::timestamp::option")]
    #[schema(required)]
    last_used_at: Option<OffsetDateTime>,
    #[serde(with = "platform::timestamp::option")]
    #[schema(required)]
    revoked_at: Option<OffsetDateTime>,
    /// End of the validity of the text before the last rotation.
    #[serde(with = "platform::timestamp::option")]
    #[schema(required)]
    previous_valid_until: Option<OffsetDateTime>,
}

impl From<&ServerKey> for KeyItem {
    fn from(key: &ServerKey) -> Self {
        Self {
            id: key.id,
            name: key.name.clone(),
            prefix: key.prefix.clone(),
            scopes: key.scopes.iter().map(|scope| scope.name()).collect(),
            allow: key.networks.iter().map(ToString::to_string).collect(),
            created_at: key.created_at,
            expires_at: key.expires_at,
            last_used_at: key.last_used_at,
            revoked_at: key.revoked_at,
            previous_valid_until: key.previous_valid_until,
        }
    }
}

/// Get the key of the request.
#[utoipa::path(get, path = "/api/server/v1/key", tag = "Key", responses((status = 200, body = KeyResponse)))]
pub(super) async fn get_key(caller: Authorized<AnyKey>) -> Json<KeyResponse> {
    Json(KeyResponse { data: caller.key().into() })
}
