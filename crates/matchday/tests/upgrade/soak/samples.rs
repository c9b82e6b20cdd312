//! Samples of everything that must not grow.

use std::{collections::BTreeMap, fs};

use async_nats::jetstream;
use futures_util::TryStreamExt as _;
use matchday::config::Config;
use redis::{AsyncCommands as _, aio::ConnectionManager};
use sqlx::PgPool;

use crate::stage::process::{Process, Setting};

/// State of the process and its dependencies at one moment.
#[derive(Clone, Default)]
pub(super) struct Sample {
    /// Resident memory in KiB.
    pub(super) memory: u64,
    pub(super) descriptors: u64,
    pub(super) connections: u64,
    /// Rows and bytes, by table.
    pub(super) tables: BTreeMap<String, (u64, u64)>,
    /// Age of the oldest outbox message, in seconds.
    pub(super) outbox_lag: f64,
    pub(super) redis_keys: u64,
    pub(super) redis_bytes: u64,
    /// Pending and running work items.
    pub(super) work: u64,
    /// Number of dead letters.
    pub(super) dead: u64,
}

pub(super) struct Sampler {
    db: PgPool,
    query: String,
    redis: ConnectionManager,
    context: jetstream::Context,
    prefix: String,
}

impl Sampler {
    pub(super) async fn new(setting: &Setting, db: &PgPool) -> Self {
        let config = Config::parse(setting.variables().clone(), None).expect("valid").config;
        let tables: Vec<String> = sqlx::query_scalar(
            "select relname::text from pg_class
             where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') and not relispartition order by 1",
        )
        .fetch_all(db)
        .await
        .expect("tables");
        let each: Vec<String> = tables
            .iter()
            .map(|table| {
                format!("select '{table}'::text, (select count(*) from {table}), pg_total_relation_size('{table}')")
            })
            .collect();
        let redis = redis::Client::open(config.redis.url.expose()).expect("an address");
        let nats = async_nats::connect(config.nats.url.expose()).await.expect("NATS");
        Self {
            db: db.clone(),
            query: each.join(" union all "),
            redis: redis.get_connection_manager().await.expect("Redis"),
            context: jetstream::new(nats),
            prefix: config.nats.prefix,
        }
    }

    pub(super) async fn sample(&self, process: &Process) -> Sample {
        let status = fs::read_to_string(format!("/proc/{}/status", process.id())).expect("a running process");
        let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
        let memory = memory.trim().trim_end_matches(" kB").parse().expect("a number");
        let descriptors = fs::read_dir(format!("/proc/{}/fd", process.id())).expect("a running process").count() as u64;
        let rows: Vec<(String, i64, i64)> =
            sqlx::query_as(sqlx::AssertSqlSafe(self.query.as_str())).fetch_all(&self.db).await.expect("read");
        let number = |number: i64| number.unsigned_abs();
        let tables = rows.into_iter().map(|(table, rows, bytes)| (table, (number(rows), number(bytes)))).collect();
        let connections: i64 = sqlx::query_scalar(
            "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'matchday'",
        )
        .fetch_one(&self.db)
        .await
        .expect("read");
        let outbox_lag: f64 = sqlx::query_scalar(
            "select coalesce(extract(epoch from clock_timestamp() - min(created_at)), 0)::float8 from outbox",
        )
        .fetch_one(&self.db)
        .await
        .expect("read");
        let (redis_keys, redis_bytes) = self.redis().await;
        let (work, dead) = (self.messages("work").await, self.messages("dead").await);
        Sample {
            memory,
            descriptors,
            connections: number(connections),
            tables,
            outbox_lag,
            redis_keys,
            redis_bytes,
            work,
            dead,
        }
    }

    async fn redis(&self) -> (u64, u64) {
        let mut redis = self.redis.clone();
        let mut keys: Vec<String> = Vec::new();
        // Keys that share a cluster slot start with a brace.
        for pattern in [format!("{}:*", self.prefix), format!("{{{}:*", self.prefix)] {
            let mut found = redis.scan_match::<_, String>(pattern).await.expect("Redis");
            while let Some(key) = found.next_item().await {
                keys.push(key.expect("a key"));
            }
        }
        let mut usage = redis::pipe();
        for key in &keys {
            usage.cmd("MEMORY").arg("USAGE").arg(key);
        }
        // A key may expire in between, which gives `None`.
        let bytes: Vec<Option<u64>> =
            if keys.is_empty() { Vec::new() } else { usage.query_async(&mut self.redis.clone()).await.expect("Redis") };
        (keys.len() as u64, bytes.into_iter().flatten().sum())
    }

    /// Number of messages in a stream. Completed work is deleted from its stream.
    async fn messages(&self, stream: &str) -> u64 {
        let stream = self.context.get_stream(format!("{}_{stream}", self.prefix)).await.expect("a stream");
        let consumers: Vec<jetstream::consumer::Info> = stream.consumers().try_collect().await.expect("consumers");
        let waiting: u64 =
            consumers.iter().map(|consumer| consumer.num_pending + consumer.num_ack_pending as u64).sum();
        waiting.max(stream.cached_info().state.messages)
    }
}

pub(super) fn median(samples: &[Sample], of: impl Fn(&Sample) -> u64) -> u64 {
    let mut values: Vec<u64> = samples.iter().map(of).collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}
