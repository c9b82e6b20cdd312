//! Process and backlog metrics. They are sampled periodically because no event announces these values.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use platform::{
    clock::Clock,
    stream::{Queue, Streams},
};
use sqlx::PgPool;

use crate::game::scores::service::Scores;

/// Records the resource usage of this process: memory, files, CPU and database connections.
pub fn process(db: &PgPool) {
    metrics_process::Collector::default().collect();
    let (all, idle) = (f64::from(db.size()), count(db.num_idle()));
    metrics::gauge!("matchday_database_connections", "state" => "idle").set(idle);
    // The two values are read one after the other, so the difference can be negative.
    metrics::gauge!("matchday_database_connections", "state" => "used").set((all - idle).max(0.0));
    metrics::gauge!("matchday_database_connections_limit").set(db.options().get_max_connections());
}

fn count(number: impl TryInto<u32>) -> f64 {
    number.try_into().map_or(f64::INFINITY, f64::from)
}

/// Backlog metrics: messages waiting for their consumers, and results not yet in all scores. One process at a time
/// reports them. An unknown value is NaN, so a stale number is not mistaken for a current one.
pub struct Backlog {
    streams: Streams,
    scores: Scores,
    clock: Arc<dyn Clock>,
    consumers: Consumers,
}

/// Consumers that the metrics have a series for. A consumer that disappears is set to NaN instead of keeping its last
/// value.
#[derive(Debug, Default)]
struct Consumers(Mutex<BTreeSet<String>>);

impl Backlog {
    pub fn new(streams: &Streams, scores: &Scores, clock: &Arc<dyn Clock>) -> Self {
        Self { streams: streams.clone(), scores: scores.clone(), clock: clock.clone(), consumers: Consumers::default() }
    }

    /// Sets every value to unknown, because another process reports them from now on.
    pub fn forget(&self) {
        self.consumers.record(Vec::new());
        metrics::gauge!("matchday_results_unfinished").set(f64::NAN);
        metrics::gauge!("matchday_results_oldest_seconds").set(f64::NAN);
    }

    /// Samples every value once.
    pub async fn sample(&self) {
        // Each request to an unavailable NATS server would wait for its timeout.
        let queues = if self.streams.is_connected() { self.streams.queues().await.ok() } else { None };
        self.consumers.record(queues.unwrap_or_default());
        let (unfinished, oldest) = match self.scores.in_progress().await {
            Ok(results) => {
                let age = results.first().map(|oldest| self.clock.now() - oldest.recorded_at);
                (count(results.len()), age.map_or(0.0, |age| age.as_seconds_f64().max(0.0)))
            }
            Err(error) => {
                tracing::debug!(%error, "unfinished results not counted");
                (f64::NAN, f64::NAN)
            }
        };
        metrics::gauge!("matchday_results_unfinished").set(unfinished);
        metrics::gauge!("matchday_results_oldest_seconds").set(oldest);
    }
}

impl Consumers {
    fn record(&self, queues: Vec<Queue>) {
        let waiting = |consumer: &str| metrics::gauge!("matchday_work_waiting", "consumer" => consumer.to_owned());
        let mut consumers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for consumer in consumers.iter() {
            waiting(consumer).set(f64::NAN);
        }
        for Queue { consumer, pending, under_way, .. } in queues {
            waiting(&consumer).set(count(pending + under_way));
            consumers.insert(consumer);
        }
    }
}

#[cfg(test)]
mod tests {
    use platform::{stream::Stream, telemetry};

    use super::*;
    use crate::testing::TestApp;

    fn metric(name: &str) -> Option<f64> {
        let text = telemetry::metrics().render();
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    }

    #[tokio::test]
    async fn unfinished_results_are_counted_until_scored() {
        telemetry::metrics();
        TestApp::run_with_database_clock(&[], async |app| {
            let backlog = Backlog::new(&app.app.streams, &app.app.scores, &app.app.core.clock);
            let seen = async || {
                backlog.sample().await;
                (metric("matchday_results_unfinished"), metric("matchday_results_oldest_seconds"))
            };
            assert_eq!(seen().await, (Some(0.0), Some(0.0)));
            let fixtures = app.fixtures();
            let a_match = || fixtures.a_match("m").starting_in(time::Duration::hours(1));
            a_match().put().await;
            let event = a_match().at("finished", 1, 0).put().await;
            app.clock.advance(time::Duration::seconds(90));
            assert_eq!(seen().await, (Some(1.0), Some(90.0)));
            app.settle_match(event).await;
            assert_eq!(seen().await, (Some(0.0), Some(0.0)));
            sqlx::query("alter table event_results rename to gone").execute(app.owner()).await.expect("renamed");
            let (unfinished, oldest) = seen().await;
            assert!(unfinished.is_some_and(f64::is_nan) && oldest.is_some_and(f64::is_nan));
        })
        .await;
    }

    #[test]
    fn unknown_consumer_backlog_is_nan() {
        telemetry::metrics();
        let queue = |consumer: &str, pending, under_way| Queue {
            stream: Stream::Work,
            consumer: consumer.to_owned(),
            pending,
            under_way,
            again: 0,
        };
        let consumers = Consumers::default();
        let scores = || metric("matchday_work_waiting{consumer=\"scores\"}");
        consumers.record(vec![queue("scores", 3, 1), queue("chat", 0, 0)]);
        assert_eq!(scores(), Some(4.0));
        consumers.record(Vec::new());
        assert!(scores().is_some_and(f64::is_nan));
        consumers.record(vec![queue("scores", 0, 1)]);
        assert_eq!(scores(), Some(1.0));
    }
}
