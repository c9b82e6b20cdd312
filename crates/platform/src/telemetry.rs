//! Logs, traces and metrics.

mod lines;

use std::{
    io::IsTerminal as _,
    sync::{Arc, OnceLock},
};

use futures_util::future::Either;
use http::{HeaderMap, HeaderValue, Method};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use opentelemetry::{propagation::TextMapPropagator as _, trace::TracerProvider as _};
use opentelemetry_otlp::{Protocol, WithExportConfig as _};
use opentelemetry_sdk::{
    Resource,
    propagation::TraceContextPropagator,
    trace::{Sampler, SdkTracerProvider},
};
use tracing_subscriber::{
    EnvFilter, Layer as _, filter::LevelFilter, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};
use url::Url;

use super::settings::Conditions;
use crate::{section, setting_by_name};

section! {
    /// Log output of the process.
    log: LogSettings {
        /// `json` for machines, `pretty` for people. `pretty` uses colours if standard error is a terminal and
        /// `NO_COLOR` is unset.
        format: LogFormat = "json",
        /// Filter of log lines by level and target, as in `info,matchday=debug`.
        filter: String = "info,async_nats=warn,sqlx=warn",
        /// Requests that get a log line: `problems` (responses of 500 and above, and slow ones), `all` or `none`.
        requests: RequestLog = "problems",
    }
}

section! {
    /// Export of OpenTelemetry traces.
    traces: TraceSettings {
        /// URL of the collector (OTLP over HTTP), like `http://127.0.0.1:4318`. Empty: no traces.
        endpoint: Option<Url> = "",
        /// Share of requests that are traced, 0 to 1.
        sample: f64 = "0.1",
    }
}

impl TraceSettings {
    pub fn conditions(&self) -> Conditions {
        vec![((0.0..=1.0).contains(&self.sample), "traces.sample is not between 0 and 1".to_owned())]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object per line.
    Json,
    /// `time level message field=value`.
    Pretty,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestLog {
    /// Server errors and slow responses.
    Problems,
    All,
    None,
}

setting_by_name!(LogFormat, "json or pretty", "json" => Self::Json, "pretty" => Self::Pretty);
setting_by_name!(
    RequestLog,
    "problems, all or none",
    "problems" => Self::Problems,
    "all" => Self::All,
    "none" => Self::None
);

/// Histogram buckets in seconds, from a cached page to the deadline.
const BUCKETS: [f64; 13] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

tokio::task_local! {
    /// The request that this task serves, named on every log line. Not a span: creating one takes longer than serving
    /// most requests, and nearly all requests log nothing.
    pub static CURRENT_REQUEST: CurrentRequest;
}

/// Request fields of a log line.
#[derive(Clone, Debug)]
pub struct CurrentRequest {
    /// Request id, also sent in the response.
    pub id: RequestId,
    pub method: Method,
    /// Route pattern, as in `/api/auth/events/{event}`.
    pub route: Arc<str>,
}

/// Request id, given by the client or generated.
#[derive(Clone, Debug)]
pub enum RequestId {
    /// Sent by the client and validated.
    Given(HeaderValue),
    /// Generated: 32 hexadecimal digits.
    Made([u8; 32]),
}

impl RequestId {
    /// Generates an id from the process's seed and the number of the request.
    pub fn made(process: u64, number: u64) -> Self {
        let mut digits = [b'0'; 32];
        // Cannot fail, because the sizes match.
        let _ = hex::encode_to_slice(process.to_be_bytes(), &mut digits[..16]);
        let _ = hex::encode_to_slice(number.to_be_bytes(), &mut digits[16..]);
        Self::Made(digits)
    }

    pub fn as_str(&self) -> &str {
        match self {
            Self::Given(header) => header.to_str().unwrap_or_default(),
            Self::Made(digits) => std::str::from_utf8(digits).unwrap_or_default(),
        }
    }

    /// Value of the `X-Request-Id` response header.
    pub fn to_header(&self) -> HeaderValue {
        match self {
            Self::Given(header) => header.clone(),
            Self::Made(digits) => HeaderValue::from_bytes(digits).unwrap_or(HeaderValue::from_static("-")),
        }
    }
}

/// Wraps a future that continues in another task, so its log lines still name the current request.
pub fn in_this_request<F: Future>(future: F) -> impl Future<Output = F::Output> {
    match CURRENT_REQUEST.try_with(Clone::clone) {
        Ok(current) => Either::Left(CURRENT_REQUEST.scope(current, future)),
        Err(_) => Either::Right(future),
    }
}

/// Trace context of the caller (W3C `traceparent`).
pub fn remote_parent(headers: &HeaderMap) -> opentelemetry::Context {
    struct Headers<'a>(&'a HeaderMap);

    impl opentelemetry::propagation::Extractor for Headers<'_> {
        fn get(&self, key: &str) -> Option<&str> {
            self.0.get(key).and_then(|value| value.to_str().ok())
        }

        fn keys(&self) -> Vec<&str> {
            self.0.keys().map(http::HeaderName::as_str).collect()
        }
    }

    TraceContextPropagator::new().extract(&Headers(headers))
}

/// Exporter that must be flushed before the process exits.
#[must_use = "dropping it immediately would lose the last traces"]
pub struct Telemetry {
    traces: Option<SdkTracerProvider>,
}

/// Starts logging, and trace export if configured. Logs go to standard error, because standard output is reserved for
/// the output of commands.
pub fn start(log: &LogSettings, traces: &TraceSettings) -> anyhow::Result<Telemetry> {
    let filter = EnvFilter::try_new(&log.filter)
        .map_err(|error| anyhow::anyhow!("log.filter: `{}` is not a valid filter: {error}", log.filter))?;
    let has_colours =
        std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(has_colours);
    let lines = match log.format {
        LogFormat::Json => lines.event_format(lines::Json).boxed(),
        LogFormat::Pretty => lines.event_format(lines::Pretty).boxed(),
    };
    // The filter applies to log lines only; whether spans are traced depends on the export settings.
    let lines = lines.with_filter(filter);
    let traces = traces.endpoint.as_ref().map(|endpoint| provider(endpoint, traces.sample)).transpose()?;
    let exported = traces.as_ref().map(|provider| {
        tracing_opentelemetry::layer().with_tracer(provider.tracer("matchday")).with_filter(LevelFilter::INFO)
    });
    tracing_subscriber::registry().with(lines).with(exported).try_init()?;
    Ok(Telemetry { traces })
}

fn provider(endpoint: &url::Url, sample: f64) -> anyhow::Result<SdkTracerProvider> {
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(endpoint.join("v1/traces")?)
        .build()?;
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(sample))))
        .with_resource(Resource::builder().with_service_name("matchday").build())
        .build())
}

impl Telemetry {
    /// Flushes pending traces. Blocks, so call it outside the runtime's threads.
    pub fn end(self) {
        if let Some(traces) = self.traces
            && let Err(error) = traces.shutdown()
        {
            tracing::warn!(%error, "final trace export failed");
        }
    }
}

/// Metrics of the process, rendered in Prometheus text format.
pub fn metrics() -> &'static PrometheusHandle {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    HANDLE.get_or_init(|| {
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &BUCKETS)
            .unwrap_or_else(|_| PrometheusBuilder::new())
            .build_recorder();
        let handle = recorder.handle();
        describe(recorder);
        handle
    })
}

fn describe(recorder: metrics_exporter_prometheus::PrometheusRecorder) {
    if metrics::set_global_recorder(recorder).is_err() {
        return;
    }
    metrics_process::Collector::default().describe();
    metrics::describe_gauge!("matchday_part_up", "Whether this process reaches a dependency (1 or 0)");
    metrics::describe_gauge!("matchday_database_connections", "Open database connections, by state (idle or used)");
    metrics::describe_gauge!("matchday_database_connections_limit", "Maximum number of database connections");
    describe_reads();
    metrics::describe_gauge!("matchday_work_waiting", "Messages waiting or in progress, by consumer");
    metrics::describe_gauge!("matchday_results_unfinished", "Results not yet applied to all scores");
    metrics::describe_gauge!("matchday_results_oldest_seconds", "Age of the oldest unfinished result");
    metrics::describe_histogram!("matchday_http_seconds", "Time to respond to a request, by route and status");
    metrics::describe_gauge!("matchday_http_connections", "Open HTTP connections");
    metrics::describe_counter!("matchday_http_shed_total", "Requests refused because too many were in progress");
    metrics::describe_counter!("matchday_rate_limited_total", "Attempts refused by a rate limit, by limit");
    metrics::describe_counter!("matchday_rate_limit_fallback_total", "Rate limit decisions made without Redis");
    metrics::describe_gauge!("matchday_outbox_lag_seconds", "Age of the oldest message waiting in the outbox");
    metrics::describe_counter!("matchday_outbox_published_total", "Outbox messages published");
    metrics::describe_counter!("matchday_outbox_failures_total", "Failed attempts of the relay to publish the outbox");
    metrics::describe_counter!("matchday_work_total", "Work items processed, by consumer and outcome");
    metrics::describe_counter!(
        "matchday_session_lookups_total",
        "Tokens looked up in the database because they were not cached"
    );
    metrics::describe_counter!("matchday_coins_moved_total", "Coins moved, by kind and direction");
    metrics::describe_counter!("matchday_coins_deductions_total", "Coin deductions, by outcome");
    metrics::describe_counter!(
        "matchday_coins_batches_total",
        "Database transactions in which deductions were written"
    );
    metrics::describe_counter!(
        "matchday_coins_written_off_total",
        "Coins that a corrected result could not reclaim because they were spent"
    );
    metrics::describe_counter!("matchday_idempotent_requests_total", "Requests with an Idempotency-Key, by outcome");
    metrics::describe_counter!("matchday_codes_sent_total", "Codes sent to an SMS provider, by purpose and country");
    metrics::describe_counter!("matchday_codes_refused_total", "Codes not sent, by reason");
    metrics::describe_counter!("matchday_codes_checked_total", "Codes entered by users, by purpose and outcome");
    metrics::describe_counter!("matchday_codes_compared_total", "Entered codes that were compared with a stored code");
    metrics::describe_counter!("matchday_codes_verified_total", "Codes verified, by country");
    metrics::describe_counter!("matchday_sms_messages_total", "SMS messages, by provider and outcome");
    metrics::describe_counter!("matchday_sms_reports_total", "SMS delivery reports, by provider and delivery state");
    metrics::describe_counter!(
        "matchday_sms_reports_refused_total",
        "SMS delivery reports refused because of their signature"
    );
    metrics::describe_counter!(
        "matchday_sms_closures_total",
        "Limits imposed on networks, number blocks and countries because too few codes were verified"
    );
    metrics::describe_gauge!("matchday_sms_closed", "Networks, number blocks and countries with limited codes");
    metrics::describe_counter!("matchday_accounts_made_total", "Accounts created by a first login");
    metrics::describe_counter!("matchday_accounts_deleted_total", "Accounts deleted by their owners");
    metrics::describe_counter!("matchday_phone_moves_total", "Accounts that moved to another phone");
    metrics::describe_counter!("matchday_phone_moves_undone_total", "Moves to another phone that were undone");
    metrics::describe_gauge!("matchday_departures_unfinished", "Deleted accounts not yet removed from chat");
    metrics::describe_gauge!(
        "matchday_departures_oldest_seconds",
        "Age of the oldest account deletion not yet finished in chat"
    );
    describe_chat();
    metrics::describe_counter!("matchday_predictions_total", "Predictions submitted, by outcome");
    metrics::describe_counter!(
        "matchday_session_lookup_batches_total",
        "Database statements in which tokens were looked up"
    );
    metrics::describe_counter!(
        "matchday_player_lookup_batches_total",
        "Database statements in which users on leaderboards were looked up"
    );
    metrics::describe_counter!(
        "matchday_predictions_batches_total",
        "Database transactions in which predictions were written"
    );
    metrics::describe_counter!("matchday_answers_total", "Answers to questions, by outcome");
    metrics::describe_counter!("matchday_answers_batches_total", "Database transactions in which answers were written");
    metrics::describe_counter!("matchday_scores_changed_total", "Scores changed by a result");
    metrics::describe_counter!("matchday_leaderboard_places_total", "Leaderboard entries written");
    metrics::describe_counter!("matchday_leaderboards_filled_total", "Leaderboards rebuilt from the database");
    metrics::describe_gauge!(
        "matchday_feed_last_success_timestamp_seconds",
        "Time of the last successful poll, by feed; reported by the polling process only"
    );
    metrics::describe_counter!("matchday_feed_failures_total", "Failed polls, by feed");
    metrics::describe_counter!(
        "matchday_feed_changes_total",
        "Teams and matches created or changed by a feed, by feed"
    );
    describe_delivery();
    metrics::describe_gauge!("matchday_stream_listeners", "Connected listeners of the live stream");
    metrics::describe_counter!("matchday_stream_dropped_total", "Listeners disconnected because they fell behind");
    metrics::describe_counter!(
        "matchday_stream_unresolved_total",
        "Facts sent before the predictions of listeners could be read"
    );
    metrics::describe_counter!("matchday_pages_built_total", "Cached pages built from the database");
    metrics::describe_counter!("matchday_seals_total", "Matches sealed");
}

fn describe_reads() {
    metrics::describe_gauge!("matchday_replica_lag_seconds", "Greatest possible age of what the replica shows");
    metrics::describe_counter!(
        "matchday_reads_total",
        "Reads that a replica may serve, by target (replica or primary) and reason for the primary"
    );
}

fn describe_delivery() {
    metrics::describe_counter!("matchday_webhooks_total", "Webhook delivery attempts, by outcome");
    metrics::describe_counter!("matchday_reminders_total", "Reminders sent, by notifier and outcome");
    metrics::describe_counter!(
        "matchday_league_notifications_total",
        "Notifications of places lost in a league, by notifier and outcome"
    );
    metrics::describe_counter!(
        "matchday_notifications_total",
        "Attempts to notify a device, by platform, kind and outcome"
    );
}

fn describe_chat() {
    metrics::describe_histogram!("matchday_chat_login_seconds", "Time to get chat credentials from the homeserver");
    metrics::describe_counter!("matchday_chat_logins_total", "Chat credentials requested, by outcome");
    metrics::describe_counter!("matchday_chat_key_resets_total", "Chat keys replaced with a code, by outcome");
    metrics::describe_counter!("matchday_rooms_opened_total", "Chat rooms created and opened");
    metrics::describe_counter!("matchday_mirror_events_total", "Matrix events pushed by the homeserver, by outcome");
    metrics::describe_counter!("matchday_mirror_comparisons_total", "Rooms compared with the homeserver");
    metrics::describe_counter!(
        "matchday_mirror_corrections_total",
        "Memberships corrected by a comparison with the homeserver"
    );
    metrics::describe_counter!("matchday_restrictions_total", "Restrictions of accounts by operators, by action");
    metrics::describe_counter!("matchday_reports_total", "Chat messages reported by users");
    metrics::describe_counter!("matchday_removals_total", "Chat messages removed, by source");
    metrics::describe_counter!("matchday_reports_closed_total", "Reports closed by operators, by resolution");
    metrics::describe_gauge!("matchday_reports_open", "Open reports");
    metrics::describe_gauge!("matchday_reports_oldest_seconds", "Age of the oldest open report");
    metrics::describe_gauge!(
        "matchday_reports_resolution_median_seconds",
        "Median time from report to resolution, of reports closed in the last seven days"
    );
    metrics::describe_gauge!(
        "matchday_reports_resolution_p95_seconds",
        "95th percentile of the time from report to resolution, of reports closed in the last seven days"
    );
    metrics::describe_gauge!(
        "matchday_reports_in_time_ratio",
        "Share of reports closed within 24 hours, in the last seven days; older open reports count as not in time"
    );
    metrics::describe_counter!(
        "matchday_chat_view_messages_total",
        "Chat messages for spectators, by outcome (shown, left_out or hidden)"
    );
    metrics::describe_counter!(
        "matchday_filter_messages_total",
        "Chat messages checked by filters, by outcome (passed, removed, held, muted or refused)"
    );
    metrics::describe_histogram!(
        "matchday_filter_classifier_seconds",
        "Time of a request to the classifier of messages"
    );
    metrics::describe_gauge!("matchday_budget_limit", "Concurrent calls that all processes may make, by budget");
    metrics::describe_counter!(
        "matchday_budget_refused_total",
        "Calls refused because the budget was used up, by budget and purpose"
    );
    metrics::describe_counter!("matchday_seat_batches_total", "Database transactions that reserved seats in stands");
}
