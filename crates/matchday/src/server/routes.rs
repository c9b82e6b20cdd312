//! Routes of the server API, and their description.

use std::sync::LazyLock;

use axum::{Router, handler::Handler};
use bytes::Bytes;
use http::header;
use tower_http::compression::{CompressionLayer, CompressionLevel};
use utoipa::{
    OpenApi as _,
    openapi::{OpenApi, security::SecurityRequirement},
};
use utoipa_axum::{
    router::{OpenApiRouter, UtoipaMethodRouter},
    routes,
};
use web::{ErrorBody, LimitHeadersLayer, ids::LeagueId, openapi};

use super::{catalogue, coins, facts, keys, leagues, messages, rooms, state::ServerState, users, webhooks};
use crate::{
    catalogue::fixtures::handlers::MOST_BYTES,
    identity::{
        idempotency::{Backends, IdempotencyLayer},
        server_keys::{
            StatesScope,
            scopes::{Needs, Scope},
        },
    },
};

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Matchday server API",
        description = "The API for backends of the operator: shop, support, data provider, campaign tools. Requests carry \
                       a server key, which an operator creates with `matchday keys create` or in the console. An \
                       operation needs exactly the scope in its `security`. Responses have `data`, lists also `meta`. \
                       Errors have a `message` for people and a stable `code` for programs; a 422 also has `errors` by \
                       field. Timestamps are in UTC with three fraction digits, except receipts and seals, which have \
                       six. Every response has an `X-Request-Id`.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    components(schemas(ErrorBody, LeagueId)),
    tags(
        (name = "Key", description = "The key of the request"),
        (name = "Users", description = "Accounts, restrictions and sessions"),
        (name = "Coins", description = "Balances, grants, deductions and reversals"),
        (name = "Catalogue", description = "Tournaments, matches and results"),
        (name = "Rooms", description = "Chat rooms, announcements and removal of messages"),
        (name = "Webhooks", description = "Endpoints that receive messages about facts"),
        (name = "Leagues", description = "Groups of users with their own table"),
        (name = "Facts", description = "Log of what happened, for a warehouse"),
    )
)]
struct Description;

/// How a POST request is processed only once.
#[derive(Clone, Copy)]
enum Once {
    /// The response is stored.
    Response,
    /// As well, for bodies of at most this many bytes, if that differs from other routes.
    ResponseToLarge(usize),
    /// The feature stores the key with its effect, in one transaction.
    Effect,
}

/// Collects routes. Without a state they are only described.
struct Table<'a> {
    routes: OpenApiRouter<ServerState>,
    state: Option<&'a ServerState>,
}

impl Table<'_> {
    fn add<N: Needs>(self, (schemas, mut paths, methods): UtoipaMethodRouter<ServerState>) -> Self {
        let scopes = N::SCOPE.map(Scope::name);
        for item in paths.paths.values_mut() {
            for operation in openapi::operations_mut(item) {
                operation.security = Some(vec![SecurityRequirement::new(openapi::SERVER_KEY, scopes)]);
            }
        }
        Self { routes: self.routes.routes((schemas, paths, methods)), ..self }
    }

    fn add_keyed<N: Needs>(self, once: Once, (schemas, mut paths, methods): UtoipaMethodRouter<ServerState>) -> Self {
        paths.paths.values_mut().flat_map(openapi::operations_mut).for_each(openapi::add_idempotency_key);
        let methods = match self.state.cloned() {
            None => methods,
            Some(state) => {
                let layer: IdempotencyLayer<_, Backends<N>> = match once {
                    Once::Response => IdempotencyLayer::storing_responses(state),
                    Once::ResponseToLarge(bytes) => IdempotencyLayer::storing_responses(state).with_body_limit(bytes),
                    Once::Effect => IdempotencyLayer::storing_with_effect(state),
                };
                methods.layer(layer)
            }
        };
        self.add::<N>((schemas, paths, methods))
    }
}

/// Adds the route of a handler, with the scope that the handler's type states. A handler that states none does not compile.
macro_rules! add {
    ($table:expr, $handler:path) => {
        with_scope_of($table, &$handler).add(routes!($handler))
    };
    ($table:expr, $handler:path, $once:expr) => {
        with_scope_of($table, &$handler).add_keyed($once, routes!($handler))
    };
}

/// A table that is about to get the route of a handler with the scope `N`.
struct Scoped<'a, N>(Table<'a>, std::marker::PhantomData<N>);

fn with_scope_of<'a, H, T>(table: Table<'a>, _: &H) -> Scoped<'a, T::Needs>
where
    H: Handler<T, ServerState>,
    T: StatesScope,
{
    Scoped(table, std::marker::PhantomData)
}

impl<'a, N: Needs> Scoped<'a, N> {
    fn add(self, routes: UtoipaMethodRouter<ServerState>) -> Table<'a> {
        self.0.add::<N>(routes)
    }

    fn add_keyed(self, once: Once, routes: UtoipaMethodRouter<ServerState>) -> Table<'a> {
        self.0.add_keyed::<N>(once, routes)
    }
}

fn routes(state: Option<&ServerState>) -> OpenApiRouter<ServerState> {
    let routes = OpenApiRouter::with_openapi(Description::openapi()).routes(routes!(get_server_description));
    let table = Table { routes, state };
    let table = add!(table, keys::get_key);
    let table = add!(table, users::get_user);
    let table = add!(table, users::look_up_user);
    let table = add!(table, users::restrict_user);
    let table = add!(table, users::lift_restriction);
    let table = add!(table, users::end_sessions);
    let table = add!(table, coins::get_coins);
    let table = add!(table, coins::grant_coins, Once::Effect);
    let table = add!(table, coins::deduct_coins, Once::Effect);
    let table = add!(table, coins::reverse_transaction, Once::Effect);
    let table = add!(table, catalogue::import_fixtures, Once::ResponseToLarge(MOST_BYTES));
    let table = add!(table, catalogue::set_result);
    let table = add!(table, rooms::list_rooms);
    let table = add!(table, rooms::get_room);
    let table = add!(table, rooms::announce, Once::Response);
    let table = add!(table, messages::remove_message);
    let table = add!(table, webhooks::list_webhooks);
    let table = add!(table, webhooks::add_webhook, Once::Response);
    let table = add!(table, webhooks::remove_webhook);
    let table = add!(table, leagues::remove_member);
    let table = add!(table, facts::list_facts);
    table.routes
}

/// `OpenAPI` description of the server API.
pub fn description() -> OpenApi {
    openapi::complete_server(routes(None).into_openapi())
}

/// Paths of the routes, for metrics.
pub(crate) fn paths() -> impl Iterator<Item = String> {
    description().paths.paths.into_keys()
}

/// Builds the routes of the server API.
pub(crate) fn router<S>(state: ServerState) -> Router<S>
where
    S: Clone + Send + Sync + 'static,
{
    // The limit is stated by the layer of idempotency keys or by the handler, both of which run inside.
    let around = (CompressionLayer::new().quality(CompressionLevel::Fastest), LimitHeadersLayer);
    Router::from(routes(Some(&state))).layer(around).with_state(state)
}

/// Rendered once, because it does not change while the process runs.
static DESCRIPTION: LazyLock<Bytes> =
    LazyLock::new(|| Bytes::from(serde_json::to_vec(&description()).unwrap_or_default()));

/// Get the description of this API.
#[utoipa::path(get, path = "/api/server/v1/openapi.json", tag = "Key",
    responses((status = 200, description = "OpenAPI 3.1 document", body = serde_json::Value)))]
async fn get_server_description() -> ([(header::HeaderName, &'static str); 1], Bytes) {
    ([(header::CONTENT_TYPE, "application/json")], DESCRIPTION.clone())
}
