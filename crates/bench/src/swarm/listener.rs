//! A fan who listens to the live stream until the end and reconnects like the TypeScript client.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use reqwest::header;
use tokio::sync::watch;

use super::{
    action::{Action, Verdict, judge},
    agent::Evening,
    client::{backoff, code_of, reason},
};

/// Time without data after which the connection counts as lost: twice the heartbeat.
const SILENCE: Duration = Duration::from_secs(30);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A change of the match by an operator.
#[derive(Clone, Debug)]
pub(crate) struct Fact {
    pub(crate) number: u32,
    /// Kind of the stream event that reports it.
    pub(crate) kind: String,
    pub(crate) at: Instant,
}

pub(crate) struct Listener {
    evening: Arc<Evening>,
    token: String,
    /// Start of the current connection.
    since: Option<Instant>,
    /// Time of the first successful connection.
    first: Option<Instant>,
    last_id: String,
    received: BTreeMap<String, u64>,
    listened: Duration,
    /// Number of the last fact that arrived.
    last_fact: u32,
    /// The last event that arrived before the coordinator's message about its fact.
    early: Option<(String, Instant)>,
}

impl Listener {
    pub(crate) fn new(evening: Arc<Evening>, token: String) -> Self {
        Self {
            evening,
            token,
            since: None,
            first: None,
            last_id: String::new(),
            received: BTreeMap::new(),
            listened: Duration::ZERO,
            last_fact: 0,
            early: None,
        }
    }

    /// Listens until `end` is true, and adds its counts to the agent's.
    pub(crate) async fn run(mut self, due: Instant, mut end: watch::Receiver<bool>) {
        tokio::select! {
            () = self.stay_connected(due) => {}
            _ = end.wait_for(|ended| *ended) => {}
        }
        self.disconnected();
        let last = self.evening.facts.borrow().clone();
        let mut tally = self.evening.tally();
        for (kind, number) in &self.received {
            *tally.received.entry(kind.clone()).or_default() += number;
        }
        tally.listened += self.listened.as_secs_f64();
        // The last fact must have reached every listener who was connected before it.
        let was_there = |fact: &Fact| self.first.is_some_and(|first| first < fact.at);
        if let Some(fact) = last.filter(|fact| was_there(fact) && self.last_fact < fact.number) {
            let row = tally.row(Action::Deliver);
            row.due += 1;
            // The coordinator sends its message and changes the match at the same time.
            let overtook = |at: Instant| fact.at.saturating_duration_since(at) < Duration::from_secs(1);
            if self.early.is_some_and(|(kind, at)| kind == fact.kind && overtook(at)) {
                row.ok += 1;
                row.latency.record(Duration::ZERO);
            } else {
                row.count(Verdict::Failed(format!("{} not received", fact.kind)));
            }
        }
    }

    fn disconnected(&mut self) {
        self.listened += self.since.take().map_or(Duration::ZERO, |since| since.elapsed());
    }

    /// Connects again whenever the server ends the connection. Returns only if a retry cannot help.
    async fn stay_connected(&mut self, due: Instant) {
        let (mut failures, mut action, mut from) = (0_u32, Action::Listen, due);
        loop {
            let began = Instant::now();
            let ended = self.connect(action, from).await;
            let was_open = self.since.is_some();
            self.disconnected();
            let pause = match ended {
                // The server ends connections regularly: reconnect immediately, unless it was right after opening.
                Ok(()) if began.elapsed() >= FIRST_PAUSE => {
                    failures = 0;
                    None
                }
                Ok(()) => {
                    failures += 1;
                    None
                }
                Err((verdict, status, retry_after)) => {
                    self.evening.tally().row(action).count(verdict);
                    if (400..500).contains(&status) && status != 429 {
                        return;
                    }
                    failures = if was_open { 1 } else { failures + 1 };
                    retry_after
                }
            };
            if self.first.is_some() {
                action = Action::Resume;
            }
            let growing = || backoff(failures, FIRST_PAUSE, LONGEST_PAUSE, self.evening.client.seed());
            let pause = pause.or_else(|| (failures > 0).then(growing));
            tokio::time::sleep(pause.unwrap_or_default()).await;
            from = Instant::now();
            if action == Action::Resume {
                self.evening.tally().row(action).due += 1;
            }
        }
    }

    /// One connection, until it ends.
    async fn connect(&mut self, action: Action, from: Instant) -> Result<(), (Verdict, u16, Option<Duration>)> {
        let broken = |error: &reqwest::Error| (Verdict::Failed(reason(error).to_owned()), 0, None);
        let silent = || (Verdict::Failed("silence".to_owned()), 0, None);
        let client = &self.evening.client;
        let mut request = client.http.get(format!("{}/api/auth/stream", client.url)).bearer_auth(&self.token);
        request = request.header(header::ACCEPT, "text/event-stream");
        if !self.last_id.is_empty() {
            request = request.header("last-event-id", &self.last_id);
        }
        let sent = tokio::time::timeout(SILENCE, request.send()).await.map_err(|_| silent())?;
        let mut response = sent.map_err(|error| broken(&error))?;
        let status = response.status().as_u16();
        if status != 200 {
            let after = response.headers().get(header::RETRY_AFTER).and_then(|after| after.to_str().ok()?.parse().ok());
            let body = response.text().await.unwrap_or_default();
            return Err((judge(action, status, code_of(&body).as_deref()), status, after.map(Duration::from_secs)));
        }
        let mut parser = Parser::default();
        loop {
            let chunk = tokio::time::timeout(SILENCE, response.chunk()).await.map_err(|_| silent())?;
            let Some(chunk) = chunk.map_err(|error| broken(&error))? else {
                let empty = || (Verdict::Failed("stream without data".to_owned()), 0, None);
                return self.since.map(|_| ()).ok_or_else(empty);
            };
            if self.since.is_none() {
                let now = Instant::now();
                self.since = Some(now);
                self.first = self.first.or(Some(now));
                self.evening.succeeded(action, from);
            }
            for block in parser.push(&chunk) {
                self.take(block);
            }
        }
    }

    fn take(&mut self, block: Block) {
        if let Some(kind) = block.kind {
            let fact = self.evening.facts.borrow().clone();
            if let Some(fact) = fact.filter(|fact| fact.kind == kind && fact.number > self.last_fact) {
                self.last_fact = fact.number;
                self.evening.tally().row(Action::Deliver).due += 1;
                self.evening.succeeded(Action::Deliver, fact.at);
            } else {
                self.early = Some((kind.clone(), Instant::now()));
            }
            *self.received.entry(kind).or_default() += 1;
        }
        if let Some(id) = block.id {
            self.last_id = id;
        }
    }
}

/// A block of the stream.
#[derive(Debug, Default, PartialEq, Eq)]
struct Block {
    id: Option<String>,
    kind: Option<String>,
}

/// Incremental parser of server-sent events, which skips the data.
#[derive(Default)]
struct Parser {
    rest: Vec<u8>,
    block: Block,
}

impl Parser {
    /// Adds a chunk and returns the blocks that it completes.
    fn push(&mut self, bytes: &[u8]) -> Vec<Block> {
        self.rest.extend_from_slice(bytes);
        let mut blocks = Vec::new();
        let mut at = 0;
        while let Some(length) = self.rest[at..].iter().position(|byte| *byte == b'\n') {
            let line = self.rest[at..at + length].trim_ascii_end();
            let value = |name: &[u8]| Some(String::from_utf8_lossy(line.strip_prefix(name)?).trim_start().to_owned());
            if line.is_empty() {
                let block = std::mem::take(&mut self.block);
                if block != Block::default() {
                    blocks.push(block);
                }
            } else if let Some(id) = value(b"id:") {
                self.block.id = Some(id);
            } else if let Some(kind) = value(b"event:") {
                self.block.kind = Some(kind);
            }
            at += length + 1;
        }
        self.rest.drain(..at);
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_in_chunks_of_any_size() {
        let text = b"id: 1-1\n\nevent: event\ndata: {\"a\":1}\nid: 1-2\n\n: comment\n\nevent: result\ndata: {}\n\n";
        for size in 1..text.len() {
            let mut parser = Parser::default();
            let blocks: Vec<Block> = text.chunks(size).flat_map(|chunk| parser.push(chunk)).collect();
            let found: Vec<_> = blocks.iter().map(|block| (block.id.as_deref(), block.kind.as_deref())).collect();
            let expected = [(Some("1-1"), None), (Some("1-2"), Some("event")), (None, Some("result"))];
            assert_eq!(found, expected, "chunks of {size}");
        }
    }
}
