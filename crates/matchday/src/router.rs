//! The HTTP API: mounts the routes of every feature.

#[cfg(test)]
mod tests;
#[cfg(test)]
mod trace_tests;

use std::{collections::HashMap, sync::Arc};

use axum::{
    Router,
    body::Body,
    extract::{FromRequestParts as _, State},
    middleware::{self, Next},
    response::Response,
    routing::get,
};
use futures_util::future::Either;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header};
use platform::{page_cache::Page, random, reads::Caller, telemetry};
use tower::{Layer as _, Service as _};
use tower_http::{
    compression::{CompressionLayer, CompressionLevel},
    cors::{AllowOrigin, Cors, CorsLayer},
};
use utoipa::{OpenApi as _, openapi::OpenApi};
use utoipa_axum::router::OpenApiRouter;
use web::{
    ApiError, Edge, EdgeSettings, ErrorBody, LimitHeadersLayer, Shortcut, Wanted, health, openapi, page_response,
    server, unknown_route, wrong_method,
};

use crate::{
    admin::console,
    app::App,
    catalogue::{matches, rule_sets, teams},
    chat::{
        self, membership_sync, moderation, removals, reports, room_moderation, rooms,
        view::payloads::{ChatSender, StreamChat},
    },
    delivery::{
        live::{
            self,
            payloads::{
                StreamEvent, StreamLeagueRank, StreamMatch, StreamPoints, StreamRank, StreamResult, StreamRound,
                StreamTally,
            },
        },
        mentions, notifications,
    },
    demo,
    game::{coins, follows, leagues, predictions, profile, questions, scores, seals},
    identity::{
        account_deletion, avatars, callers, codes,
        idempotency::{self, IdempotencyLayer},
        login, phone_moves, privacy,
        sessions::{self, CurrentUser},
        sms, usernames,
    },
    server as server_api,
};

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Matchday",
        description = "The backend for sports-match social apps. Responses have `data`, lists also `meta`. Errors have \
                       a `message` for people and a stable `code` for programs; a 422 also has `errors` by field. \
                       Timestamps are in UTC with three fraction digits, except receipts and seals, which have six. \
                       Every response has an `X-Request-Id`. A POST with a token and an `Idempotency-Key` is performed \
                       once, however often it is sent.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    components(schemas(ErrorBody, StreamEvent, StreamMatch, StreamResult, StreamTally, StreamPoints, StreamRank, StreamLeagueRank, StreamRound, StreamChat, ChatSender)),
    tags(
        (name = "Login", description = "Phone verification and login"),
        (name = "Account", description = "The caller's account and profile"),
        (name = "People", description = "Profiles of users, and follows"),
        (name = "Chat", description = "Credentials for the Matrix homeserver, which hosts chat"),
        (name = "Chat rooms", description = "Rooms of matches, and rooms created by fans"),
        (name = "Safety", description = "Blocking users and reporting messages"),
        (name = "Events", description = "Matches, tournaments and sports"),
        (name = "Leagues", description = "Groups of users with an invite code and their own table"),
        (name = "Teams", description = "Teams, and the caller's favourite teams"),
        (name = "Predictions", description = "Predictions of matches, their points, and leaderboards"),
        (name = "Questions", description = "Bonus questions, and their answers"),
        (name = "Seals", description = "Hashes over the predictions of each match, published when it starts"),
        (name = "Live", description = "Live stream of scores, predictions and ranks"),
        (name = "Coins", description = "Balance, transactions, daily bonus and purchases"),
        (name = "Notifications", description = "Reminder settings and push subscriptions"),
        (name = "Sessions", description = "The caller's sessions"),
        (name = "Providers", description = "Delivery reports from SMS providers"),
        (name = "Development", description = "Development helpers, not available in production"),
        (name = "Operations", description = "Health checks for load balancers and operators"),
    )
)]
struct Description;

/// Routes of every feature, with their descriptions, except for [`bare_features`] and [`batched_features`].
fn features() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .merge(codes::routes())
        .merge(login::routes())
        .merge(usernames::routes())
        .merge(profile::routes())
        .merge(privacy::routes())
        .merge(follows::routes())
        .merge(phone_moves::routes())
        .merge(account_deletion::routes())
        .merge(avatars::routes())
        .merge(chat::accounts::routes())
        .merge(chat::keys::routes())
        .merge(matches::routes())
        .merge(rule_sets::routes())
        .merge(teams::routes())
        .merge(predictions::routes())
        .merge(scores::routes())
        .merge(seals::routes())
        .merge(leagues::routes())
        .merge(questions::routes())
        .merge(coins::routes())
        .merge(rooms::routes())
        .merge(moderation::routes())
        .merge(room_moderation::routes())
        .merge(removals::routes())
        .merge(reports::routes())
        .merge(notifications::routes())
        .merge(sessions::routes())
        .merge(sms::routes())
}

/// Routes without compression and idempotency layers: cached pages, which are stored compressed; lists of seals, which are
/// not compressed for each request, to save CPU; images; and the live stream, which never ends. None of them accepts a POST.
fn bare_features() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(Description::openapi())
        .merge(matches::cached_routes())
        .merge(seals::cached_routes())
        .merge(avatars::image_routes())
        .merge(live::routes())
}

/// Routes that store idempotency keys with their effect.
fn batched_features() -> OpenApiRouter<App> {
    OpenApiRouter::new().merge(predictions::batched_routes()).merge(coins::batched_routes())
}

/// Routes that have the same effect if a request is processed twice.
fn repeatable_features() -> OpenApiRouter<App> {
    OpenApiRouter::new().merge(rooms::repeatable_routes())
}

fn health() -> (Router<App>, OpenApi) {
    health::routes().split_for_parts()
}

/// OpenAPI description of the whole API.
pub fn description() -> OpenApi {
    let api = bare_features().merge(features()).merge(batched_features()).merge(repeatable_features());
    let mut api = api.into_openapi();
    api.merge(health().1);
    openapi::complete(api)
}

/// Builds the API that apps reach.
pub fn public(app: &App) -> Public {
    let description = description();
    let pages = ["/api/openapi.json", demo::CRESTS].into_iter().chain(openapi::REFERENCE_PATHS);
    let paths: Vec<String> = description.paths.paths.keys().cloned().chain(pages.map(str::to_owned)).collect();
    // Rendered and compressed once, because it does not change while the process runs.
    let description = Arc::new(Page::fixed(&serde_json::to_vec(&description).unwrap_or_default()));
    let get_description = move |wanted: Wanted| std::future::ready(page_response(&description, &wanted));
    // One tuple instead of three layers saves two boxes for every response.
    let around = |keys: IdempotencyLayer<App>| {
        (CompressionLayer::new().quality(CompressionLevel::Fastest), keys, LimitHeadersLayer)
    };
    let features = features().layer(around(IdempotencyLayer::storing_responses(app.clone())));
    let batched = batched_features().layer(around(IdempotencyLayer::storing_with_effect(app.clone())));
    let repeatable = repeatable_features().layer(around(IdempotencyLayer::without_claims(app.clone())));
    let router = Router::from(bare_features().merge(features).merge(batched).merge(repeatable))
        .merge(health().0)
        .merge(openapi::reference_routes())
        .route("/api/openapi.json", get(get_description))
        .merge(demo::routes(app.config.env));
    let has_server_api = app.config.http.server_listen.is_none();
    let router = if has_server_api { router.merge(server_api::router(app.server_state())) } else { router };
    let router = router.fallback(not_found).method_not_allowed_fallback(wrong_method);
    let paths = paths.into_iter().chain(server_api::paths().filter(|_| has_server_api)).collect();
    let router = with_noted_writes(app, router.with_state(app.clone()), callers::writers_of);
    let edge = edge(app, router, paths, matches::shortcuts(app));
    let origins = &app.config.http.cors_origins;
    // CORS wraps the edge, so a browser can also read a refusal and its `Retry-After`.
    let cors = (!origins.is_empty()).then(|| cors(origins).layer(edge.clone()));
    Public { edge, cors }
}

/// Health endpoints are exempt from load shedding: an overloaded process is busy, not broken.
fn edge(app: &App, router: Router, paths: Vec<String>, shortcuts: HashMap<&str, Shortcut>) -> Edge {
    let seed = u64::from_ne_bytes(random::bytes(&*app.core.random));
    let config = &app.config;
    let settings = EdgeSettings {
        max_in_flight: config.http.max_in_flight,
        deadline: config.http.deadline,
        log: config.log.requests,
        traced: config.traces.endpoint.is_some(),
    };
    Edge::new(router, settings, seed, paths, &["/healthz", "/readyz"], shortcuts)
}

/// Notes the callers of requests that may have written, before they get their response, so that they find their writes
/// in lists. Without a replica this is no layer at all.
fn with_noted_writes(app: &App, router: Router, writers: fn(&HeaderMap, &Uri) -> Vec<Caller>) -> Router {
    if !app.core.reads.has_replica() {
        return router;
    }
    let reads = app.core.reads.clone();
    router.layer(middleware::from_fn(move |request: axum::extract::Request, next: Next| {
        let reads = reads.clone();
        async move {
            let writers =
                if request.method().is_safe() { Vec::new() } else { writers(request.headers(), request.uri()) };
            let response = next.run(request).await;
            // Also after an error: the request may have written something before it failed. Only a caller who was not
            // authenticated has written nothing.
            if response.status() != StatusCode::UNAUTHORIZED {
                reads.note_write(&writers).await;
            }
            response
        }
    }))
}

/// The API that apps reach, with CORS if origins are configured.
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

/// Builds the API of backends for its own listener, if it has one.
pub fn server(app: &App) -> Option<Edge> {
    app.config.http.server_listen?;
    let router = server_api::router::<()>(app.server_state()).fallback(unknown_route);
    let router = with_noted_writes(app, router.method_not_allowed_fallback(wrong_method), callers::writers_of);
    Some(edge(app, router, server_api::paths().collect(), HashMap::new()))
}

/// Builds the private API for Prometheus and the homeserver.
pub fn private(app: &App) -> Edge {
    let router = health()
        .0
        .route("/metrics", get(|| std::future::ready(telemetry::metrics().render())))
        .merge(membership_sync::private_routes(app.membership_sync.clone()))
        .merge(mentions::private_routes(app.mentions.clone()))
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method);
    let paths =
        ["/healthz", "/readyz", "/metrics"].into_iter().chain(membership_sync::PRIVATE_PATHS).chain([mentions::NOTIFY]);
    edge(app, router.with_state(app.clone()), paths.map(str::to_owned).collect(), HashMap::new())
}

/// Builds the console for operators, unless the settings turn it off.
pub fn console(app: &App) -> Option<Edge> {
    let paths = console::paths().into_iter().map(str::to_owned).collect();
    app.config.has_console().then(|| {
        let routes = with_noted_writes(app, console::routes(app.console_state()), |_, _| vec![console::CALLER]);
        edge(app, routes, paths, HashMap::new())
    })
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
        .allow_methods([Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE])
        .allow_headers([
            header::AUTHORIZATION,
            header::CONTENT_TYPE,
            header::IF_NONE_MATCH,
            request_id.clone(),
            web::IDEMPOTENCY_KEY,
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

/// Under `/api/auth/`, authentication comes first, so unauthenticated callers cannot probe which routes exist.
async fn not_found(State(app): State<App>, request: Request<Body>) -> ApiError {
    let (mut parts, _) = request.into_parts();
    if parts.uri.path().starts_with("/api/auth/")
        && let Err(error) = CurrentUser::from_request_parts(&mut parts, &app).await
    {
        return error;
    }
    unknown_route().await
}
