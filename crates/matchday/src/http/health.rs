//! `/healthz`: the process runs. `/readyz`: it can do its work, with the state of each part.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{Json, extract::State, response::IntoResponse};
use http::StatusCode;
use serde::Serialize;
use sqlx::Connection as _;
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

pub(crate) type Parts = BTreeMap<&'static str, &'static str>;

/// The state of each part as it was a moment ago. Readiness is open to all and answered under any load, so answering
/// must cost nothing: a running process asks its parts once a second in the background.
#[derive(Debug, Default)]
pub struct Checks(Mutex<Option<(Instant, Parts)>>);

impl Checks {
    /// Asks every part.
    pub async fn refresh(&self, app: &App) {
        let parts = check(app).await;
        for (&part, &word) in &parts {
            metrics::gauge!("matchday_part_up", "part" => part).set(f64::from(word == "up"));
        }
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), parts));
    }

    /// What is known, asking only where nothing is, or where it is old because nobody asks in the background.
    pub(crate) async fn recent(&self, app: &App) -> Parts {
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match known() {
            Some((when, parts)) if when.elapsed() < Duration::from_secs(5) => parts,
            _ => {
                self.refresh(app).await;
                known().map(|(_, parts)| parts).unwrap_or_default()
            }
        }
    }
}

async fn check(app: &App) -> Parts {
    let (postgres, redis, homeserver) = tokio::join!(
        // On a connection of its own: a pool that is busy is not a database that is away.
        within(async {
            let connection = sqlx::PgConnection::connect_with(&app.db.connect_options()).await;
            match connection {
                Ok(connection) => connection.close().await.is_ok(),
                Err(_) => false,
            }
        }),
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
