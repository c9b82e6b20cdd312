//! How a log line is written. Each names the request it belongs to, if it belongs to one.

use std::fmt;

use serde::ser::{SerializeMap, Serializer as _};
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::{Format, Full, Writer},
        time::{FormatTime as _, SystemTime},
    },
    registry::LookupSpan,
};

use super::CURRENT_REQUEST;

/// One JSON object a line.
pub(super) struct Json;

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut line = Vec::with_capacity(256);
        write_json(&mut line, event).map_err(|_| fmt::Error)?;
        writer.write_str(std::str::from_utf8(&line).map_err(|_| fmt::Error)?)?;
        writer.write_char('\n')
    }
}

fn write_json(line: &mut Vec<u8>, event: &Event<'_>) -> serde_json::Result<()> {
    let mut time = String::new();
    // A clock that cannot be written leaves the field empty.
    let _ = SystemTime.format_time(&mut Writer::new(&mut time));
    let mut serializer = serde_json::Serializer::new(line);
    let mut map = serializer.serialize_map(None)?;
    map.serialize_entry("timestamp", &time)?;
    map.serialize_entry("level", event.metadata().level().as_str())?;
    map.serialize_entry("target", event.metadata().target())?;
    let named = CURRENT_REQUEST.try_with(|current| {
        map.serialize_entry("request_id", current.id.as_str())?;
        map.serialize_entry("method", current.method.as_str())?;
        map.serialize_entry("route", &*current.route)
    });
    named.unwrap_or(Ok(()))?;
    let mut fields = Fields { map, outcome: Ok(()) };
    event.record(&mut fields);
    fields.outcome?;
    fields.map.end()
}

struct Fields<M: SerializeMap> {
    map: M,
    outcome: Result<(), M::Error>,
}

impl<M: SerializeMap> Fields<M> {
    fn entry(&mut self, field: &Field, value: &(impl serde::Serialize + ?Sized)) {
        if self.outcome.is_ok() {
            self.outcome = self.map.serialize_entry(field.name(), value);
        }
    }
}

impl<M: SerializeMap> Visit for Fields<M> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.entry(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.entry(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.entry(field, &value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.entry(field, &value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.entry(field, &value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.entry(field, &value);
    }
}

/// For people.
#[derive(Default)]
pub(super) struct Pretty(Format<Full>);

impl<S, N> FormatEvent<S, N> for Pretty
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let named = CURRENT_REQUEST
            .try_with(|current| write!(writer, "[{} {} {}] ", current.id.as_str(), current.method, current.route));
        named.unwrap_or(Ok(()))?;
        self.0.format_event(context, writer, event)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use http::{HeaderValue, Method};
    use serde_json::{Value, json};
    use tracing_subscriber::{fmt::MakeWriter, layer::SubscriberExt as _};

    use super::*;
    use crate::platform::telemetry::{CurrentRequest, RequestId};

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("not poisoned").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for Lines {
        type Writer = Self;

        fn make_writer(&self) -> Self {
            self.clone()
        }
    }

    #[tokio::test]
    async fn a_line_names_its_request_and_stays_one_line() {
        let lines = Lines::default();
        let layer = tracing_subscriber::fmt::layer().with_writer(lines.clone()).event_format(Json);
        let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
        tracing::info!(count = 3, "outside");
        let current = CurrentRequest {
            id: RequestId::Given(HeaderValue::from_static("req-1")),
            method: Method::GET,
            route: "/here".into(),
        };
        CURRENT_REQUEST
            .scope(current, async {
                tracing::warn!(ratio = 0.5, on = true, text = "a\n\"b\"", "forged\n{{\"level\":\"INFO\"}}");
            })
            .await;
        let text = String::from_utf8(lines.0.lock().expect("not poisoned").clone()).expect("text");
        let mut read: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        for line in &mut read {
            assert!(line["timestamp"].as_str().is_some_and(|time| time.ends_with('Z')));
            line.as_object_mut()
                .expect("an object")
                .retain(|name, _| !["timestamp", "target"].contains(&name.as_str()));
        }
        assert_eq!(
            read,
            [
                json!({"level": "INFO", "message": "outside", "count": 3}),
                json!({"level": "WARN", "request_id": "req-1", "method": "GET", "route": "/here",
                       "message": "forged\n{\"level\":\"INFO\"}", "ratio": 0.5, "on": true, "text": "a\n\"b\""}),
            ]
        );
    }
}
