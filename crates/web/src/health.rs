//! `/healthz`: the process is alive. `/readyz`: it can serve requests, with the state of each dependency.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    Json,
    extract::{FromRef, State},
    response::IntoResponse,
};
use http::StatusCode;
use platform::{shutdown::Shutdown, stream::Streams};
use redis::aio::ConnectionManager;
use serde::Serialize;
use sqlx::{Connection as _, PgPool};
use url::Url;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::WebState;

/// State of a live process.
#[derive(Serialize, ToSchema)]
struct Health {
    #[schema(example = "ok")]
    status: &'static str,
}

/// Whether this process should receive requests, and which dependencies it can reach.
#[derive(Debug, Serialize, ToSchema)]
struct Readiness {
    /// `ready`, `not_ready`, or `draining` during shutdown.
    #[schema(example = "ready")]
    status: &'static str,
    /// `up` or `down`, by dependency. Without PostgreSQL the process is not ready; without another dependency it serves
    /// the requests that do not need it.
    #[schema(
        value_type = BTreeMap<String, String>,
        example = json!({"postgres": "up", "redis": "up", "nats": "up", "homeserver": "up"})
    )]
    parts: States,
}

/// Routes of `/healthz` and `/readyz`.
pub fn routes<S: WebState>() -> OpenApiRouter<S>
where
    Checks: FromRef<S>,
    Shutdown: FromRef<S>,
{
    OpenApiRouter::new().routes(routes!(get_health)).routes(routes!(get_readiness))
}

/// Check liveness
///
/// Responds as long as the process runs, regardless of its dependencies and load.
#[utoipa::path(get, path = "/healthz", tag = "Operations", responses((status = 200, body = Health)))]
async fn get_health() -> Json<Health> {
    Json(Health { status: "ok" })
}

/// Check readiness
///
/// For load balancers: 200 if the process should receive requests. The state of each dependency is at most a few
/// seconds old.
#[utoipa::path(get, path = "/readyz", tag = "Operations", responses(
    (status = 200, body = Readiness),
    (status = 503, description = "Not ready, or draining", body = Readiness),
))]
async fn get_readiness(State(checks): State<Checks>, State(shutdown): State<Shutdown>) -> impl IntoResponse {
    let parts = checks.recent().await;
    let status = if shutdown.draining().is_cancelled() {
        "draining"
    } else if parts.get("postgres") == Some(&"up") {
        "ready"
    } else {
        "not_ready"
    };
    let code = if status == "ready" { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(Readiness { status, parts }))
}

pub type States = BTreeMap<&'static str, &'static str>;

/// Recent state of each dependency. Readiness is public and served under any load, so it must be cheap: a background
/// task checks the dependencies once a second.
#[derive(Clone)]
pub struct Checks(Arc<Inner>);

struct Inner {
    dependencies: Dependencies,
    last: Mutex<Option<(Instant, States)>>,
}

impl Checks {
    /// Creates checks of these dependencies without running them.
    pub fn new(dependencies: Dependencies) -> Self {
        Self(Arc::new(Inner { dependencies, last: Mutex::new(None) }))
    }

    /// Checks every dependency, and logs those whose state changed.
    pub async fn refresh(&self) {
        let checked = self.0.dependencies.check().await;
        let parts: States = checked.iter().map(|checked| (checked.dependency, checked.word())).collect();
        for (&part, &word) in &parts {
            metrics::gauge!("matchday_part_up", "part" => part).set(f64::from(word == "up"));
        }
        let before = self.0.last.lock().unwrap_or_else(PoisonError::into_inner).replace((Instant::now(), parts));
        let before = before.map(|(_, parts)| parts).unwrap_or_default();
        for Checked { dependency, address, failure } in checked {
            match (before.get(dependency), failure) {
                (None | Some(&"up"), Some(error)) => {
                    tracing::warn!(dependency, address, error, "dependency unavailable");
                }
                (Some(&"down"), None) => tracing::info!(dependency, address, "dependency available again"),
                _ => {}
            }
        }
    }

    /// Pretends that the last check found a dependency unavailable.
    #[cfg(any(test, feature = "testing"))]
    pub fn assume_down(&self, dependency: &'static str) {
        if let Some((_, parts)) = &mut *self.0.last.lock().unwrap_or_else(PoisonError::into_inner) {
            parts.insert(dependency, "down");
        }
    }

    /// Returns the last state. Checks again only if there is none, or if it is old because no background task refreshes
    /// it.
    pub async fn recent(&self) -> States {
        let known = || self.0.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match known() {
            Some((when, parts)) if when.elapsed() < Duration::from_secs(5) => parts,
            _ => {
                self.refresh().await;
                known().map(|(_, parts)| parts).unwrap_or_default()
            }
        }
    }
}

/// Result of checking one dependency.
struct Checked {
    dependency: &'static str,
    address: String,
    failure: Option<String>,
}

impl Checked {
    fn word(&self) -> &'static str {
        if self.failure.is_none() { "up" } else { "down" }
    }
}

/// Connections used to check the dependencies.
pub struct Dependencies {
    pub db: PgPool,
    pub redis: ConnectionManager,
    /// Address of Redis without credentials.
    pub redis_address: String,
    pub streams: Streams,
    /// Address of NATS without credentials.
    pub nats_address: String,
    /// URL of the Matrix homeserver, if chat is configured.
    pub homeserver: Option<Url>,
    /// Client for requests to the homeserver.
    pub web: reqwest::Client,
}

impl Dependencies {
    async fn check(&self) -> Vec<Checked> {
        let database = self.db.connect_options();
        let (postgres, redis, nats, homeserver) = tokio::join!(
            // Uses a separate connection, because a busy pool does not mean that the database is unavailable.
            within(async {
                let connection =
                    sqlx::PgConnection::connect_with(&database).await.map_err(|error| error.to_string())?;
                connection.close().await.map_err(|error| error.to_string())
            }),
            within(async {
                let answer = redis::cmd("PING").query_async::<String>(&mut self.redis.clone()).await;
                answer.map(|_| ()).map_err(|error| error.to_string())
            }),
            within(self.streams.check()),
            within(self.check_homeserver()),
        );
        let mut checked = vec![
            ("postgres", format!("{}:{}", database.get_host(), database.get_port()), postgres),
            ("redis", self.redis_address.clone(), redis),
            ("nats", self.nats_address.clone(), nats),
        ];
        if let Some(url) = &self.homeserver {
            let (host, port) = (url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or_default());
            checked.push(("homeserver", format!("{host}:{port}"), homeserver));
        }
        let checked = checked.into_iter();
        checked.map(|(dependency, address, outcome)| Checked { dependency, address, failure: outcome.err() }).collect()
    }

    async fn check_homeserver(&self) -> Result<(), String> {
        let Some(url) = self.homeserver.as_ref().and_then(|url| url.join("_matrix/client/versions").ok()) else {
            return Ok(());
        };
        let answer = self.web.get(url).send().await.and_then(reqwest::Response::error_for_status);
        // The URL may contain credentials.
        answer.map(|_| ()).map_err(|error| error.without_url().to_string())
    }
}

/// Limits a check to two seconds.
async fn within(check: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    tokio::time::timeout(Duration::from_secs(2), check)
        .await
        .unwrap_or_else(|_| Err("no response within 2s".to_owned()))
}
