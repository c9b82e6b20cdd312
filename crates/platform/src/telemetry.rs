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
    /// What the process writes about itself.
    log: LogSettings {
        /// `json` for machines, `pretty` for people. `pretty` uses colours if standard error is a terminal and `NO_COLOR` is
        /// not set.
        format: LogFormat = "json",
        /// What is logged, as in `info,matchday=debug`.
        filter: String = "info,async_nats=warn,sqlx=warn",
        /// Which requests get a line of their own: `problems` (answers of 500 and above, and slow ones), `all` or `none`.
        requests: RequestLog = "problems",
    }
}

section! {
    /// OpenTelemetry traces.
    traces: TraceSettings {
        /// Where to send them by OTLP over HTTP, like `http://127.0.0.1:4318`. Empty: nowhere.
        endpoint: Option<Url> = "",
        /// The share of requests that is traced, 0 to 1.
        sample: f64 = "0.1",
    }
}

impl TraceSettings {
    /// Conditions across keys, each with the fault to report where it does not hold.
    pub fn conditions(&self) -> Conditions {
        vec![((0.0..=1.0).contains(&self.sample), "traces.sample is not between 0 and 1".to_owned())]
    }
}

/// See `log.format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// `time level message field=value`.
    Pretty,
}

/// See `log.requests`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestLog {
    /// Server errors and slow answers.
    Problems,
    /// Every request.
    All,
    /// No request.
    None,
}

setting_by_name!(LogFormat, "json or pretty", "json" => Self::Json, "pretty" => Self::Pretty);
setting_by_name!(RequestLog, "problems, all or none", "problems" => Self::Problems, "all" => Self::All, "none" => Self::None);

/// Seconds. From a cached page to the deadline.
const BUCKETS: [f64; 13] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

tokio::task_local! {
    /// The request being answered by this task. Every log line names it; a span would cost each request more than
    /// most of them take, and nearly all of them log nothing.
    pub static CURRENT_REQUEST: CurrentRequest;
}

/// What a log line says of the request it belongs to.
#[derive(Clone, Debug)]
pub struct CurrentRequest {
    /// The id that the answer carries too.
    pub id: RequestId,
    /// How it was asked.
    pub method: Method,
    /// What was asked, as the route is written.
    pub route: Arc<str>,
}

/// A request's id: the client's, or one made here.
#[derive(Clone, Debug)]
pub enum RequestId {
    /// From the client, known to be harmless.
    Given(HeaderValue),
    /// 32 hexadecimal digits.
    Made([u8; 32]),
}

impl RequestId {
    /// The id of a process's request by number.
    pub fn made(process: u64, number: u64) -> Self {
        let mut digits = [b'0'; 32];
        // The sizes fit, so it cannot fail.
        let _ = hex::encode_to_slice(process.to_be_bytes(), &mut digits[..16]);
        let _ = hex::encode_to_slice(number.to_be_bytes(), &mut digits[16..]);
        Self::Made(digits)
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Given(header) => header.to_str().unwrap_or_default(),
            Self::Made(digits) => std::str::from_utf8(digits).unwrap_or_default(),
        }
    }

    /// As the answer carries it.
    pub fn to_header(&self) -> HeaderValue {
        match self {
            Self::Given(header) => header.clone(),
            Self::Made(digits) => HeaderValue::from_bytes(digits).unwrap_or(HeaderValue::from_static("-")),
        }
    }
}

/// A future that goes on in a task of its own, but whose log lines still name the request it began in.
pub fn in_this_request<F: Future>(future: F) -> impl Future<Output = F::Output> {
    match CURRENT_REQUEST.try_with(Clone::clone) {
        Ok(current) => Either::Left(CURRENT_REQUEST.scope(current, future)),
        Err(_) => Either::Right(future),
    }
}

/// The trace that a caller says it is in (W3C `traceparent`).
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

/// What must be flushed before the process ends.
#[must_use = "dropping it at once would lose the last traces"]
pub struct Telemetry {
    traces: Option<SdkTracerProvider>,
}

/// Begins to log, and to export traces if so configured. Logs go to standard error: standard output belongs to what a
/// command prints.
pub fn start(log: &LogSettings, traces: &TraceSettings) -> anyhow::Result<Telemetry> {
    let filter = EnvFilter::try_new(&log.filter)
        .map_err(|error| anyhow::anyhow!("log.filter: `{}` is no filter: {error}", log.filter))?;
    let has_colours =
        std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(has_colours);
    let lines = match log.format {
        LogFormat::Json => lines.event_format(lines::Json).boxed(),
        LogFormat::Pretty => lines.event_format(lines::Pretty).boxed(),
    };
    // The filter is for lines only: what is traced is decided by whether traces are exported.
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
    /// Sends what has not been sent. Blocks; call it outside the runtime's own threads.
    pub fn end(self) {
        if let Some(traces) = self.traces
            && let Err(error) = traces.shutdown()
        {
            tracing::warn!(%error, "the last traces were not sent");
        }
    }
}

/// The process's metrics, in Prometheus' text format when rendered.
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
    metrics::describe_gauge!("matchday_part_up", "Whether this process reaches a part");
    metrics::describe_gauge!("matchday_database_connections", "Connections to the database, by whether they are used");
    metrics::describe_gauge!("matchday_database_connections_limit", "How many there may be at most");
    metrics::describe_gauge!("matchday_work_waiting", "Messages that a consumer has not finished, by consumer");
    metrics::describe_gauge!("matchday_results_unfinished", "Results that are not in all scores yet");
    metrics::describe_gauge!("matchday_results_oldest_seconds", "How long the oldest of them is known");
    metrics::describe_histogram!("matchday_http_seconds", "Time to answer a request, by route and status");
    metrics::describe_gauge!("matchday_http_connections", "Open connections");
    metrics::describe_counter!("matchday_http_shed_total", "Requests refused because too many were under way");
    metrics::describe_counter!("matchday_rate_limited_total", "Attempts refused, by limit");
    metrics::describe_counter!("matchday_rate_limit_fallback_total", "Decisions made without Redis");
    metrics::describe_gauge!("matchday_outbox_lag_seconds", "Age of the oldest message that waits to be published");
    metrics::describe_counter!("matchday_outbox_published_total", "Messages published");
    metrics::describe_counter!("matchday_outbox_failures_total", "Turns of the relay that failed");
    metrics::describe_counter!("matchday_work_total", "Items of work, by consumer and outcome");
    metrics::describe_counter!(
        "matchday_session_lookups_total",
        "Tokens looked up in the database, because they were not checked lately"
    );
    metrics::describe_counter!("matchday_coins_moved_total", "Coins that moved, by kind and direction");
    metrics::describe_counter!("matchday_coins_deductions_total", "Deductions, by outcome");
    metrics::describe_counter!("matchday_coins_batches_total", "Transactions that deductions were written by");
    metrics::describe_counter!(
        "matchday_coins_written_off_total",
        "Coins that a corrected result should take back, but that were spent already"
    );
    metrics::describe_counter!(
        "matchday_idempotent_requests_total",
        "Requests with an Idempotency-Key, by what became of them"
    );
    metrics::describe_counter!("matchday_codes_sent_total", "Codes handed to a provider, by purpose and country");
    metrics::describe_counter!("matchday_codes_refused_total", "Codes not sent, by reason");
    metrics::describe_counter!("matchday_codes_checked_total", "Codes that were tried, by purpose and outcome");
    metrics::describe_counter!("matchday_codes_compared_total", "Tries that were compared with a code");
    metrics::describe_counter!("matchday_codes_verified_total", "Codes that came back and were used, by country");
    metrics::describe_counter!("matchday_sms_messages_total", "Messages, by provider and outcome");
    metrics::describe_counter!("matchday_sms_reports_total", "What providers reported, by provider and delivery");
    metrics::describe_counter!("matchday_sms_reports_refused_total", "Reports whose signature was not good");
    metrics::describe_counter!(
        "matchday_sms_closures_total",
        "Networks, blocks and countries limited because too few codes came back"
    );
    metrics::describe_gauge!("matchday_sms_closed", "Networks, blocks and countries that get few codes");
    metrics::describe_counter!("matchday_accounts_made_total", "Accounts made by a first login");
    metrics::describe_counter!("matchday_accounts_deleted_total", "Accounts deleted by their owners");
    metrics::describe_counter!("matchday_phone_moves_total", "Accounts that moved to another phone");
    metrics::describe_counter!("matchday_phone_moves_undone_total", "Moves to another phone that were undone");
    metrics::describe_gauge!("matchday_departures_unfinished", "Deleted accounts that chat has not forgotten yet");
    metrics::describe_gauge!("matchday_departures_oldest_seconds", "How long the oldest of them waits");
    metrics::describe_histogram!("matchday_chat_login_seconds", "Time to get chat credentials from the homeserver");
    metrics::describe_counter!("matchday_chat_logins_total", "Chat credentials asked for, by outcome");
    metrics::describe_counter!("matchday_rooms_opened_total", "Chat rooms that were made and opened");
    metrics::describe_counter!("matchday_mirror_events_total", "Events that the homeserver pushed, by outcome");
    metrics::describe_counter!("matchday_mirror_comparisons_total", "Rooms compared with the homeserver");
    metrics::describe_counter!("matchday_mirror_corrections_total", "Memberships that a comparison put right");
    metrics::describe_counter!("matchday_restrictions_total", "What operators did to accounts, by action");
    metrics::describe_counter!("matchday_reports_total", "Messages that were reported");
    metrics::describe_counter!("matchday_predictions_total", "Predictions that were submitted, by outcome");
    metrics::describe_counter!("matchday_session_lookup_batches_total", "Statements by which tokens were looked up");
    metrics::describe_counter!("matchday_predictions_batches_total", "Batches in which predictions were written");
    metrics::describe_counter!("matchday_scores_changed_total", "Scores that followed a result");
    metrics::describe_counter!("matchday_leaderboard_places_total", "Places set on leaderboards");
    metrics::describe_counter!("matchday_leaderboards_filled_total", "Leaderboards filled from the database");
    metrics::describe_gauge!(
        "matchday_feed_last_success_timestamp_seconds",
        "When a look at a feed last went well, by feed; only the process that looks knows"
    );
    metrics::describe_counter!("matchday_feed_failures_total", "Looks at a feed that failed, by feed");
    metrics::describe_counter!("matchday_feed_changes_total", "Teams and matches that a feed made or changed, by feed");
    metrics::describe_counter!("matchday_webhooks_total", "Attempts to deliver a webhook, by outcome");
    metrics::describe_counter!("matchday_reminders_total", "Reminders that were sent, by notifier and outcome");
    metrics::describe_gauge!("matchday_stream_listeners", "Connections that listen to the live stream");
    metrics::describe_counter!(
        "matchday_stream_dropped_total",
        "Listeners that were sent away because they fell behind"
    );
    metrics::describe_counter!("matchday_pages_built_total", "Pages built from the database, for all who ask for them");
}
