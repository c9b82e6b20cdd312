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
use platform::{reads::Reads, shutdown::Shutdown, stream::Streams};
use redis::aio::ConnectionManager;
use serde::Serialize;
use sqlx::{Connection as _, PgConnection, PgPool};
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
    /// the requests that do not need it. A `replica`, if there is one, is `down` while the primary serves its reads.
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
    pub db: DatabaseProbe,
    /// Knows the state of the replica, if there is one.
    pub reads: Reads,
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
        let (postgres, redis, nats, homeserver) = tokio::join!(
            within(self.db.check()),
            within(async {
                let answer = redis::cmd("PING").query_async::<String>(&mut self.redis.clone()).await;
                answer.map(|_| ()).map_err(|error| error.to_string())
            }),
            within(self.streams.check()),
            within(self.check_homeserver()),
        );
        let mut checked = vec![
            ("postgres", self.db.address(), postgres),
            ("redis", self.redis_address.clone(), redis),
            ("nats", self.nats_address.clone(), nats),
        ];
        if let Some(url) = &self.homeserver {
            let (host, port) = (url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or_default());
            checked.push(("homeserver", format!("{host}:{port}"), homeserver));
        }
        if let Some((address, usable)) = self.reads.replica() {
            checked.push(("replica", address, usable));
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

/// A connection that is kept to check PostgreSQL. It is separate, because a busy pool does not mean that the database is
/// unavailable.
pub struct DatabaseProbe {
    db: PgPool,
    kept: tokio::sync::Mutex<Option<Kept>>,
}

struct Kept {
    connection: PgConnection,
    /// Time of the last check that the server accepts writes.
    writable_at: Instant,
}

/// Interval at which the server is asked whether it accepts writes. A server does not stop accepting them on an open
/// connection, unless an operator changes its settings: a primary is restarted to become a standby.
const WRITABLE_EVERY: Duration = Duration::from_secs(10);

impl DatabaseProbe {
    /// Creates a probe of the pool's database. It connects at the first check.
    pub fn new(db: PgPool) -> Self {
        Self { db, kept: tokio::sync::Mutex::new(None) }
    }

    fn address(&self) -> String {
        let options = self.db.connect_options();
        format!("{}:{}", options.get_host(), options.get_port())
    }

    /// Exchanges one message with the server, without a transaction. A connection that fails, or whose check the caller
    /// abandons, is replaced by a new one.
    async fn check(&self) -> Result<(), String> {
        let mut place = self.kept.lock().await;
        if let Some(mut kept) = place.take() {
            match kept.check().await {
                Ok(()) => {
                    *place = Some(kept);
                    return Ok(());
                }
                // Not yet an outage: the server or a load balancer may have closed an idle connection.
                Err(error) => tracing::debug!(error, "connection of the readiness check replaced"),
            }
        }
        *place = Some(Kept::connect(&self.db).await?);
        Ok(())
    }
}

impl Kept {
    async fn connect(db: &PgPool) -> Result<Self, String> {
        let connection = PgConnection::connect_with(&db.connect_options()).await.map_err(|error| error.to_string())?;
        let mut kept = Self { connection, writable_at: Instant::now() };
        kept.check_writable().await?;
        Ok(kept)
    }

    async fn check(&mut self) -> Result<(), String> {
        if self.writable_at.elapsed() < WRITABLE_EVERY {
            return self.connection.ping().await.map_err(|error| error.to_string());
        }
        self.check_writable().await
    }

    /// A standby is read-only, and so is a server that an operator or a provider has protected from a full disk.
    async fn check_writable(&mut self) -> Result<(), String> {
        let query = sqlx::query_scalar("select current_setting('transaction_read_only') = 'on'");
        match query.fetch_one(&mut self.connection).await {
            Ok(true) => return Err("the server is read-only".to_owned()),
            Ok(false) => self.writable_at = Instant::now(),
            Err(error) => return Err(error.to_string()),
        }
        Ok(())
    }
}

/// Limits a check to two seconds.
async fn within(check: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    tokio::time::timeout(Duration::from_secs(2), check)
        .await
        .unwrap_or_else(|_| Err("no response within 2s".to_owned()))
}

#[cfg(test)]
mod tests {
    use platform::testing::with_pools;
    use sqlx::Executor as _;

    use super::*;

    #[tokio::test]
    async fn readiness_keeps_one_connection_and_replaces_a_broken_one() {
        with_pools(async |db, owner| {
            let probe = DatabaseProbe::new(db);
            let connections = async || {
                let query = "select pid from pg_stat_activity
                             where datname = current_database() and usename = 'matchday_app' order by pid";
                sqlx::query_scalar::<_, i32>(query).fetch_all(&owner).await.expect("read")
            };
            probe.check().await.expect("up");
            let first = connections().await;
            for _ in 0..5 {
                probe.check().await.expect("up");
            }
            assert_eq!((first.len(), connections().await), (1, first.clone()));
            let end = "select pg_terminate_backend(pid, 5000) from pg_stat_activity
                       where datname = current_database() and usename = 'matchday_app'";
            owner.execute(end).await.expect("ended");
            probe.check().await.expect("up on another connection");
            let second = connections().await;
            assert_eq!(second.len(), 1);
            assert_ne!(first, second);
        })
        .await;
    }

    #[tokio::test]
    async fn read_only_server_is_down() {
        with_pools(async |db, owner| {
            let name: String = sqlx::query_scalar("select current_database()").fetch_one(&owner).await.expect("read");
            let set = async |value: &str| {
                let set = format!("alter database {name} set default_transaction_read_only = {value}");
                owner.execute(sqlx::AssertSqlSafe(set)).await.expect("set");
            };
            let probe = DatabaseProbe::new(db);
            set("on").await;
            assert_eq!(probe.check().await, Err("the server is read-only".to_owned()));
            sqlx::raw_sql(sqlx::AssertSqlSafe(format!(
                "set default_transaction_read_only = off; alter database {name} reset default_transaction_read_only"
            )))
            .execute(&owner)
            .await
            .expect("reset");
            probe.check().await.expect("up");
        })
        .await;
    }

    #[tokio::test]
    async fn unreachable_server_is_down() {
        let options = sqlx::postgres::PgConnectOptions::new_without_pgpass().host("127.0.0.1").port(1);
        let db = sqlx::postgres::PgPoolOptions::new().connect_lazy_with(options);
        assert!(DatabaseProbe::new(db).check().await.is_err());
    }
}
