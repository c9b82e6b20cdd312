//! HTTP: the router, and the conventions that every endpoint shares.

mod cached;
mod client;
mod edge;
mod error;
mod extract;
pub mod fields;
mod health;
mod openapi;
pub mod paging;
pub mod server;
#[cfg(test)]
mod tests;

use axum::{
    Router,
    body::Body,
    extract::{FromRequestParts as _, State},
    response::Response,
    routing::get,
};
use bytes::Bytes;
use futures_util::future::Either;
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, header};
use tower::{Layer as _, Service as _};
use tower_http::{
    compression::{CompressionLayer, CompressionLevel},
    cors::{AllowOrigin, Cors, CorsLayer},
};
use utoipa::openapi::OpenApi;
use utoipa_axum::{router::OpenApiRouter, routes};

pub use cached::{Wanted, page_response};
pub(crate) use client::for_this_peer;
pub use client::{ClientNetwork, PEER};
pub(crate) use edge::{overloaded, too_late};
pub use error::{ApiError, ErrorBody, limit_headers, permitted, retry_after};
pub(crate) use extract::{Counted, token_of};
pub use extract::{CurrentUser, MaybeUser, Path, Query, RawBody, StreamUser, ValidJson};
pub use health::Checks;

/// The private interface, and the console.
pub use self::edge::Edge as Private;

use self::edge::Edge;
use crate::{
    accounts,
    app::App,
    chat, codes, coins, console, demo, events,
    idempotency::{self, OnceLayer},
    leaving, live, login, mirror, notifications, phones,
    platform::{random, telemetry},
    predictions, rooms, safety, scores, sessions, sms, teams, usernames,
};

/// On answers that hold what is shown once, so that nobody on the way keeps it.
pub(crate) const NO_STORE: (HeaderName, HeaderValue) = (header::CACHE_CONTROL, HeaderValue::from_static("no-store"));

/// The routes of every feature, with their description, but for those of [`bare_features`].
fn features() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .merge(codes::routes())
        .merge(login::routes())
        .merge(usernames::routes())
        .merge(accounts::routes())
        .merge(phones::routes())
        .merge(leaving::routes())
        .merge(chat::routes())
        .merge(events::routes())
        .merge(teams::routes())
        .merge(predictions::routes())
        .merge(scores::routes())
        .merge(coins::routes())
        .merge(rooms::routes())
        .merge(safety::routes())
        .merge(notifications::routes())
        .merge(sessions::routes())
        .merge(sms::routes())
}

/// Those around which nothing stands: cached pages, which bring their compressed form along, and the live stream, which has
/// no end. Nothing is posted there.
fn bare_features() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(openapi::frame()).merge(events::cached_routes()).merge(live::routes())
}

fn health() -> (Router<App>, OpenApi) {
    OpenApiRouter::new().routes(routes!(health::get_health)).routes(routes!(health::get_readiness)).split_for_parts()
}

/// The description of the whole interface.
pub fn description() -> OpenApi {
    let mut api = bare_features().merge(features()).into_openapi();
    api.merge(health().1);
    openapi::complete(api)
}

/// What apps reach.
pub fn public(app: &App) -> Public {
    let description = description();
    let pages = ["/api/openapi.json", "/docs", "/docs/setup.js", "/docs/viewer.js", demo::CRESTS];
    let paths = description.paths.paths.keys().cloned().chain(pages.map(str::to_owned)).collect();
    // Rendered once: it does not change while the process runs.
    let description = Bytes::from(serde_json::to_vec(&description).unwrap_or_default());
    let get_description =
        move || std::future::ready(([(header::CONTENT_TYPE, "application/json")], description.clone()));
    // Both in one, which is one box less around every answer.
    let around = (CompressionLayer::new().quality(CompressionLevel::Fastest), OnceLayer(app.clone()));
    let router = Router::from(bare_features().merge(features().layer(around)))
        .merge(health().0)
        .route("/docs", get(openapi::get_reference))
        .route("/docs/setup.js", get(openapi::get_reference_setup))
        .route("/docs/viewer.js", get(openapi::get_reference_viewer))
        .merge(Router::new().route("/api/openapi.json", get(get_description)).layer(CompressionLayer::new()))
        .merge(demo::routes())
        .fallback(nothing_here)
        .method_not_allowed_fallback(wrong_method);
    let edge = edge(app, router, paths);
    let origins = &app.config.http.cors_origins;
    // Around the edge: a page must be able to read that it was refused, and when to come again.
    let cors = (!origins.is_empty()).then(|| cors(origins).layer(edge.clone()));
    Public { edge, cors }
}

/// Health answers however much is going on: a process that sheds load is busy, not ill.
fn edge(app: &App, router: Router<App>, paths: Vec<String>) -> Edge {
    let seed = u64::from_ne_bytes(random::bytes(&*app.random));
    Edge::new(router.with_state(app.clone()), &app.config, seed, paths, &["/healthz", "/readyz"])
}

/// The public interface.
#[derive(Clone)]
pub struct Public {
    edge: Edge,
    cors: Option<Cors<Edge>>,
}

impl server::Answers for Public {
    fn answer(&self, request: Request<Body>) -> impl Future<Output = Response> + Send {
        match self.cors.clone() {
            None => Either::Left(self.edge.answer(request)),
            Some(mut cors) => Either::Right(async move {
                let answer = cors.call(request).await.unwrap_or_else(|never| match never {});
                answer.map(Body::new)
            }),
        }
    }
}

/// The interface for Prometheus and the homeserver.
pub fn private(app: &App) -> Edge {
    let router = health()
        .0
        .route("/metrics", get(|| std::future::ready(telemetry::metrics().render())))
        .merge(mirror::private_routes())
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method);
    let paths = ["/healthz", "/readyz", "/metrics"].into_iter().chain(mirror::PRIVATE_PATHS);
    edge(app, router, paths.map(str::to_owned).collect())
}

/// The interface for operators; none where the settings turn it off.
pub fn console(app: &App) -> Option<Edge> {
    let paths = console::paths().into_iter().map(str::to_owned).collect();
    app.config.has_console().then(|| edge(app, console::routes(), paths))
}

fn cors(origins: &[String]) -> CorsLayer {
    let allowed = if origins.iter().any(|origin| origin == "*") {
        AllowOrigin::any()
    } else {
        AllowOrigin::list(origins.iter().filter_map(|origin| HeaderValue::try_from(origin).ok()))
    };
    let request_id = HeaderName::from_static("x-request-id");
    CorsLayer::new()
        .allow_origin(allowed)
        .allow_methods([Method::GET, Method::POST, Method::PUT, Method::DELETE])
        .allow_headers([
            header::AUTHORIZATION,
            header::CONTENT_TYPE,
            header::IF_NONE_MATCH,
            request_id.clone(),
            idempotency::KEY,
        ])
        .expose_headers([
            header::ETAG,
            header::RETRY_AFTER,
            request_id,
            idempotency::REPLAYED,
            HeaderName::from_static("x-ratelimit-limit"),
            HeaderName::from_static("x-ratelimit-remaining"),
        ])
        .max_age(std::time::Duration::from_hours(1))
}

pub(crate) async fn unknown_route() -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "unknown_route", "There is nothing at this path.")
}

/// Under `/api/auth/` a token comes first, so that a stranger does not learn what is there and what is not.
async fn nothing_here(State(app): State<App>, request: Request<Body>) -> ApiError {
    let (mut parts, _) = request.into_parts();
    if parts.uri.path().starts_with("/api/auth/")
        && let Err(error) = CurrentUser::from_request_parts(&mut parts, &app).await
    {
        return error;
    }
    unknown_route().await
}

async fn wrong_method() -> ApiError {
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "This path does not take this method.")
}
