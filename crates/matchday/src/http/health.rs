//! `/healthz`: the process runs. `/readyz`: it can do its work, with the state of each part.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use axum::{Json, extract::State, response::IntoResponse};
use http::StatusCode;
use serde::Serialize;
use tokio::sync::Mutex;
use utoipa::ToSchema;

use crate::app::App;

/// Says that the process runs.
#[derive(Serialize, ToSchema)]
pub(super) struct Health {
    #[schema(example = "ok")]
    status: &'static str,
}

/// Whether this process should get requests, and which parts it can reach.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Readiness {
    /// `ready`, `not_ready`, or `draining` after the process was told to end.
    #[schema(example = "ready")]
    status: &'static str,
    /// `up` or `down`, by part. Without PostgreSQL the process is not ready; without any other it serves what it can.
    #[schema(value_type = BTreeMap<String, String>, example = json!({"postgres": "up", "redis": "up", "nats": "up", "homeserver": "up"}))]
    parts: Parts,
}

/// Is the process alive?
#[utoipa::path(get, path = "/healthz", tag = "Operations", responses((status = 200, body = Health)))]
pub(super) async fn get_health() -> Json<Health> {
    Json(Health { status: "ok" })
}

/// Can it work?
#[utoipa::path(get, path = "/readyz", tag = "Operations", responses(
    (status = 200, body = Readiness),
    (status = 503, description = "Not ready, or draining", body = Readiness),
))]
pub(super) async fn get_readiness(State(app): State<App>) -> impl IntoResponse {
    let parts = app.checks.recent(&app).await;
    let status = if app.shutdown.draining().is_cancelled() {
        "draining"
    } else if parts.get("postgres") == Some(&"up") {
        "ready"
    } else {
        "not_ready"
    };
    let code = if status == "ready" { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(Readiness { status, parts }))
}

type Parts = BTreeMap<&'static str, &'static str>;

/// The state of each part, asked for at most once a second: readiness is open to all and answered under any load, so
/// asking must not become a load of its own.
#[derive(Debug, Default)]
pub struct Checks(Mutex<Option<(Instant, Parts)>>);

impl Checks {
    async fn recent(&self, app: &App) -> Parts {
        let mut last = self.0.lock().await;
        match &*last {
            Some((when, parts)) if when.elapsed() < Duration::from_secs(1) => parts.clone(),
            _ => {
                let parts = check(app).await;
                *last = Some((Instant::now(), parts.clone()));
                parts
            }
        }
    }
}

async fn check(app: &App) -> Parts {
    let (postgres, redis, homeserver) = tokio::join!(
        within(async { sqlx::query("select 1").execute(&app.db).await.is_ok() }),
        within(async { redis::cmd("PING").query_async::<String>(&mut app.redis.clone()).await.is_ok() }),
        within(homeserver_answers(app)),
    );
    let word = |up: bool| if up { "up" } else { "down" };
    let mut parts =
        Parts::from([("postgres", word(postgres)), ("redis", word(redis)), ("nats", word(app.streams.is_connected()))]);
    if app.config.matrix.homeserver_url.is_some() {
        parts.insert("homeserver", word(homeserver));
    }
    parts
}

async fn homeserver_answers(app: &App) -> bool {
    let Some(url) = app.config.matrix.homeserver_url.as_ref().and_then(|url| url.join("_matrix/client/versions").ok())
    else {
        return false;
    };
    app.web.get(url).send().await.is_ok_and(|answer| answer.status().is_success())
}

/// A part that does not answer soon is down for whoever asks.
async fn within(check: impl Future<Output = bool>) -> bool {
    tokio::time::timeout(Duration::from_secs(2), check).await.unwrap_or(false)
}
