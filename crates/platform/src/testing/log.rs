//! Captures log lines in tests.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};

use tracing::{Level, subscriber::DefaultGuard};
use tracing_subscriber::{filter::Targets, fmt::MakeWriter, layer::SubscriberExt as _};

/// Targets of the workspace's crates.
const OURS: [&str; 3] = ["matchday", "platform", "web"];

/// Captures log lines of the current thread until it is dropped. In a `tokio::test`, this covers all tasks of the test.
pub struct LogCapture {
    text: Text,
    _guard: DefaultGuard,
}

#[derive(Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl LogCapture {
    /// Starts capturing the current thread's log lines.
    pub fn start() -> Self {
        let text = Text::default();
        let lines = tracing_subscriber::fmt::layer().with_ansi(false).without_time().with_writer(text.clone());
        let subscriber = tracing_subscriber::registry().with(lines);
        let subscriber = subscriber.with(OURS.map(|target| (target, Level::DEBUG)).into_iter().collect::<Targets>());
        Self { text, _guard: tracing::subscriber::set_default(subscriber) }
    }

    /// Lines captured so far, each with its level, target, message and fields.
    pub fn lines(&self) -> Vec<String> {
        let text = self.text.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&text).lines().map(str::to_owned).collect()
    }
}

impl io::Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Text {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}
