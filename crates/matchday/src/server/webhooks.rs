//! Endpoints that receive messages about facts.

use axum::{Json, extract::State};
use http::StatusCode;
use platform::standard_webhooks::SigningSecret;
use serde::Serialize;
use serde_json::Value;
use url::Url;
use utoipa::ToSchema;
use web::{
    ApiError, ErrorBody, Path, ValidJson,
    fields::{FromJson, from_body},
    ids::EndpointId,
};

use crate::{
    delivery::webhooks::{
        rules::Kind,
        service::{EndpointSummary, WebhookError, Webhooks},
    },
    identity::server_keys::{Authorized, scopes::WebhooksWrite},
};

#[derive(Serialize, ToSchema)]
pub(super) struct WebhookList {
    data: Vec<WebhookItem>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Webhook)]
struct WebhookItem {
    id: EndpointId,
    #[schema(example = "https://shop.example.org/matchday")]
    url: String,
    /// Types of messages; empty: all.
    #[schema(example = json!(["event.result"]))]
    types: Vec<&'static str>,
    /// Whether messages are sent. A 410 response disables an endpoint.
    enabled: bool,
}

impl From<EndpointSummary> for WebhookItem {
    fn from(endpoint: EndpointSummary) -> Self {
        let types = endpoint.types.iter().map(|kind| kind.name()).collect();
        Self { id: endpoint.id, url: endpoint.url, types, enabled: endpoint.is_enabled }
    }
}

fn refused(error: WebhookError) -> ApiError {
    match error {
        WebhookError::Address(fault) => ApiError::invalid_field("url", &format!("cannot be used: {fault}")),
        WebhookError::NoSuchEndpoint(_) => ApiError::not_found("The webhook"),
        WebhookError::NoKey => ApiError::unavailable(
            "not_configured",
            "Webhooks are not configured. Ask the operator to set webhooks.keys.",
        ),
        WebhookError::Database(error) => error.into(),
        other => ApiError::internal(other),
    }
}

/// List all webhooks.
#[utoipa::path(get, path = "/api/server/v1/webhooks", tag = "Webhooks", responses((status = 200, body = WebhookList)))]
pub(super) async fn list_webhooks(
    _: Authorized<WebhooksWrite>,
    State(webhooks): State<Webhooks>,
) -> Result<Json<WebhookList>, ApiError> {
    Ok(Json(WebhookList { data: webhooks.summaries().await?.into_iter().map(WebhookItem::from).collect() }))
}

pub(super) struct Address(Url);

impl FromJson for Address {
    const EXPECTED: &'static str = "must be an absolute URL";

    fn from_json(value: &Value) -> Option<Self> {
        Url::parse(value.as_str()?).ok().map(Self)
    }
}

pub(super) struct Kinds(Vec<Kind>);

impl FromJson for Kinds {
    const EXPECTED: &'static str = "must be a list of types of messages";

    fn from_json(value: &Value) -> Option<Self> {
        let kinds: Option<Vec<Kind>> = value.as_array()?.iter().map(|name| name.as_str()?.parse().ok()).collect();
        kinds.map(Self)
    }
}

pub(super) struct Secret(SigningSecret);

impl FromJson for Secret {
    const EXPECTED: &'static str = "must be `whsec_` and base64 of 24 to 64 bytes";

    fn from_json(value: &Value) -> Option<Self> {
        SigningSecret::parse(value.as_str()?).map(Self)
    }
}

#[derive(ToSchema)]
#[schema(as = WebhookRequest)]
pub(super) struct WebhookBody {
    #[schema(value_type = String, example = "https://shop.example.org/matchday")]
    url: Address,
    /// Types of messages; empty or absent: all.
    #[schema(value_type = Option<Vec<Kind>>, example = json!(["event.result"]))]
    types: Option<Kinds>,
    /// Signs the messages. The caller chooses it, so that no response contains a secret.
    #[schema(value_type = String, pattern = "^whsec_[A-Za-z0-9+/]{32,86}={0,2}$", example = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")]
    secret: Secret,
}

from_body!(WebhookBody { url, types, secret });

#[derive(Serialize, ToSchema)]
pub(super) struct WebhookAdded {
    #[schema(example = "Webhook added.")]
    message: &'static str,
    data: WebhookItem,
}

/// Add a webhook.
#[utoipa::path(post, path = "/api/server/v1/webhooks", tag = "Webhooks",
    request_body = WebhookBody,
    responses(
        (status = 201, body = WebhookAdded),
        (status = 503, description = "Webhooks are not configured (`not_configured`)", body = ErrorBody),
    ))]
pub(super) async fn add_webhook(
    caller: Authorized<WebhooksWrite>,
    State(webhooks): State<Webhooks>,
    ValidJson(body): ValidJson<WebhookBody>,
) -> Result<(StatusCode, Json<WebhookAdded>), ApiError> {
    let WebhookBody { url: Address(url), types, secret: Secret(secret) } = body;
    let types = types.map_or_else(Vec::new, |Kinds(types)| types);
    let id = webhooks.add_by(&url, &types, &secret, &caller.operator("")).await.map_err(refused)?;
    let data = EndpointSummary { id, url: url.into(), types, is_enabled: true }.into();
    Ok((StatusCode::CREATED, Json(WebhookAdded { message: "Webhook added.", data })))
}

#[derive(Serialize, ToSchema)]
pub(super) struct WebhookRemoved {
    #[schema(example = "Webhook removed.")]
    message: &'static str,
}

/// Remove a webhook and its queued messages.
#[utoipa::path(delete, path = "/api/server/v1/webhooks/{webhook}", tag = "Webhooks",
    params(("webhook" = EndpointId, Path, description = "Id of the webhook")),
    responses(
        (status = 200, body = WebhookRemoved),
        (status = 404, description = "The webhook does not exist", body = ErrorBody),
    ))]
pub(super) async fn remove_webhook(
    caller: Authorized<WebhooksWrite>,
    State(webhooks): State<Webhooks>,
    Path(webhook): Path<EndpointId>,
) -> Result<Json<WebhookRemoved>, ApiError> {
    webhooks.remove_by(webhook, &caller.operator("")).await.map_err(refused)?;
    Ok(Json(WebhookRemoved { message: "Webhook removed." }))
}
