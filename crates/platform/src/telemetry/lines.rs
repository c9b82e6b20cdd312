//! Formats of log lines. Each line names the request it belongs to, if any.

use std::{
    borrow::Cow,
    fmt::{self, Write as _},
};

use serde::ser::{SerializeMap, Serializer as _};
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::Writer,
        time::{FormatTime as _, SystemTime},
    },
    registry::LookupSpan,
};

use super::CURRENT_REQUEST;

/// One JSON object per line.
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
    // If the time cannot be formatted, the field stays empty.
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

/// Human-readable lines: time, level, message, then the fields and the request.
pub(super) struct Pretty;

impl<S, N> FormatEvent<S, N> for Pretty
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let (bright, dim, plain) = if writer.has_ansi_escapes() {
            (colour(*event.metadata().level()), "\x1b[2m", "\x1b[0m")
        } else {
            ("", "", "")
        };
        write!(writer, "{dim}")?;
        // If the time cannot be formatted, the field stays empty.
        let _ = SystemTime.format_time(&mut writer);
        write!(writer, "{plain} {bright}{:>5}{plain}", event.metadata().level())?;
        let mut fields = Words::default();
        event.record(&mut fields);
        write!(writer, "{}{}", fields.message, fields.rest)?;
        let named = CURRENT_REQUEST.try_with(|current| {
            let (id, method, route) = (current.id.as_str(), &current.method, &*current.route);
            write!(writer, " request_id={id} method={method} route={route}")
        });
        named.unwrap_or(Ok(()))?;
        writeln!(writer, " {dim}target={}{plain}", event.metadata().target())
    }
}

fn colour(level: Level) -> &'static str {
    match level {
        Level::ERROR => "\x1b[31m",
        Level::WARN => "\x1b[33m",
        Level::INFO => "\x1b[32m",
        _ => "\x1b[34m",
    }
}

/// The message, and the fields as `name=value`.
#[derive(Default)]
struct Words {
    message: String,
    rest: String,
}

impl Words {
    fn entry(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message = format!(" {}", on_one_line(value));
        } else if value.is_empty() || value.contains([' ', '"', '=']) {
            let _ = write!(self.rest, " {}=\"{}\"", field.name(), on_one_line(value).replace('"', "\\\""));
        } else {
            let _ = write!(self.rest, " {}={}", field.name(), on_one_line(value));
        }
    }
}

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.entry(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.entry(field, value);
    }
}

/// Escapes control characters: text from outside must not start a new line or change the terminal's colours.
fn on_one_line(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut line = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        if letter.is_control() { line.extend(letter.escape_default()) } else { line.push(letter) }
    }
    Cow::Owned(line)
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
    use crate::telemetry::{CurrentRequest, RequestId};

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
    async fn json_line_names_its_request_and_stays_one_line() {
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

    fn pretty(with_colours: bool, log: impl FnOnce()) -> String {
        let lines = Lines::default();
        let layer =
            tracing_subscriber::fmt::layer().with_writer(lines.clone()).with_ansi(with_colours).event_format(Pretty);
        let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
        let current = CurrentRequest {
            id: RequestId::Given(HeaderValue::from_static("req-1")),
            method: Method::GET,
            route: "/here".into(),
        };
        CURRENT_REQUEST.sync_scope(current, log);
        String::from_utf8(lines.0.lock().expect("not poisoned").clone()).expect("text")
    }

    #[test]
    fn pretty_line_is_time_level_message_fields_request() {
        let line = pretty(false, || tracing::warn!(status = 503, milliseconds = 633.7, who = "a b", "request failed"));
        let (time, rest) = line.split_once(' ').expect("a time");
        assert!(time.ends_with('Z') && time.contains('T'), "{line}");
        let target = module_path!();
        assert_eq!(
            rest,
            format!(
                " WARN request failed status=503 milliseconds=633.7 who=\"a b\" request_id=req-1 method=GET \
                 route=/here target={target}\n"
            )
        );
    }

    #[test]
    fn pretty_line_has_colours_on_a_terminal_only() {
        let log = || tracing::error!(field = "red \x1b[31m", "forged\n\x1b[2K2026-01-01T00:00:00Z INFO all is well");
        let plain = pretty(false, log);
        assert!(!plain.contains('\x1b') && plain.lines().count() == 1, "{plain:?}");
        let coloured = pretty(true, log);
        assert!(coloured.contains("\x1b[31mERROR\x1b[0m") && coloured.lines().count() == 1, "{coloured:?}");
        assert!(!coloured.contains("\x1b[2K"), "text from outside does not affect the terminal: {coloured:?}");
    }
}
