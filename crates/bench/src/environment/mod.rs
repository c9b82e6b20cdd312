//! Environment of the scenarios. Redis and NATS come from `dev/up`; PostgreSQL, nginx, HAProxy, Synapse and the
//! service are started for the run and stopped after it.

pub(crate) mod cores;
pub(crate) mod haproxy;
pub(crate) mod nginx;
pub(crate) mod people;
pub(crate) mod pgbench;
pub(crate) mod pgbouncer;
pub(crate) mod postgres;
pub(crate) mod service;
pub(crate) mod synapse;

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    process::{Child, Command},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
};

use self::{
    cores::{Cores, Group},
    postgres::{Data, Postgres},
};

/// State that all scenarios of a run share.
pub(crate) struct Stage {
    /// Number of rounds, each of which measures both sides.
    pub(crate) rounds: usize,
    /// Duration per side and round, in scenarios limited by time.
    pub(crate) length: Duration,
    /// Whether scenarios with a homeserver run with a tenth of their size.
    is_small: bool,
    /// Number of users in the scenarios leagues, devices and follows, if it is not the usual one.
    pub(crate) users: Option<u64>,
    pub(crate) postgres: Postgres,
    /// Environment variables written by `dev/up`.
    pub(crate) variables: BTreeMap<String, String>,
    pub(crate) binary: PathBuf,
    /// Directory for files of the run.
    pub(crate) directory: PathBuf,
    bar: ProgressBar,
}

impl Stage {
    /// Starts PostgreSQL, which every scenario needs.
    pub(crate) async fn set_up(rounds: usize, length: Duration, is_small: bool, data: Data) -> anyhow::Result<Self> {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
        let variables: BTreeMap<String, String> =
            std::env::vars().filter(|(name, _)| name.starts_with("MATCHDAY_")).collect();
        ensure!(variables.contains_key("MATCHDAY_REDIS__URL"), "run dev/up, then: just bench (it reads .dev/env)");
        let binary = match std::env::var_os("MATCHDAY_BIN") {
            Some(path) => PathBuf::from(path),
            None => std::env::current_exe()?.with_file_name("matchday"),
        };
        ensure!(binary.is_file(), "{} does not exist: run cargo build --release --bin matchday", binary.display());
        let directory = root.join(".dev/bench");
        std::fs::create_dir_all(&directory).with_context(|| format!("creating {}", directory.display()))?;
        let bar = ProgressBar::new_spinner();
        bar.set_style(ProgressStyle::with_template("{spinner} {elapsed} {prefix}: {msg}")?);
        bar.enable_steady_tick(Duration::from_millis(200));
        bar.set_prefix("setting up");
        bar.set_message("starting PostgreSQL");
        let postgres = Postgres::start(&directory, data).await?;
        Ok(Self { rounds, length, is_small, users: None, postgres, variables, binary, directory, bar })
    }

    /// Number of users or rooms in a scenario with a homeserver.
    pub(crate) fn sized(&self, number: u64) -> u64 {
        if self.is_small { number / 10 } else { number }
    }

    /// Shows the name of the current scenario.
    pub(crate) fn begin(&self, scenario: &str) {
        self.bar.set_prefix(scenario.to_owned());
    }

    /// Shows the current step.
    pub(crate) fn say(&self, text: impl Into<String>) {
        let text = text.into();
        if self.bar.is_hidden() {
            // Without a terminal, print one line per step.
            use std::io::Write as _;
            let _ = writeln!(std::io::stderr(), "{}: {text}", self.bar.prefix());
        }
        self.bar.set_message(text);
    }

    /// Hides the progress line while `print` runs.
    pub(crate) fn quiet<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    /// Measures both sides alternately. Returns both figures of each round, and the use of the cores during our side.
    pub(crate) async fn alternate(
        &self,
        groups: &[Group],
        mut ours: impl AsyncFnMut(usize) -> anyhow::Result<f64>,
        mut bare: impl AsyncFnMut(usize) -> anyhow::Result<f64>,
    ) -> anyhow::Result<(Vec<[f64; 2]>, String)> {
        let (mut rounds, mut cores) = (Vec::new(), Cores::default());
        for round in 0..self.rounds {
            self.say(format!("round {} of {}: ours", round + 1, self.rounds));
            let before = Cores::now(groups);
            let our_figure = ours(round).await?;
            cores.add(&before.until(&Cores::now(groups)));
            self.say(format!("round {} of {}: ours {our_figure:.4}; bare", round + 1, self.rounds));
            let bare_figure = bare(round).await?;
            self.say(format!("round {} of {}: ours {our_figure:.4}, bare {bare_figure:.4}", round + 1, self.rounds));
            rounds.push([our_figure, bare_figure]);
        }
        Ok((rounds, cores.to_string()))
    }

    /// Process groups that most scenarios keep busy.
    pub(crate) fn groups(&self, service: &service::Service) -> Vec<Group> {
        vec![
            Group { name: "the service", leader: service.id(), with_children: false },
            Group { name: "the load", leader: std::process::id(), with_children: false },
            Group { name: "PostgreSQL", leader: self.postgres.id(), with_children: true },
        ]
    }

    pub(crate) fn redis(&self) -> anyhow::Result<SocketAddr> {
        let url = self.variables.get("MATCHDAY_REDIS__URL").context("MATCHDAY_REDIS__URL")?;
        url.trim_start_matches("redis://").trim_end_matches('/').parse().with_context(|| format!("{url}: an address"))
    }
}

impl Stage {
    /// Connects to NATS, whose protocol is plain text.
    pub(crate) async fn connect_to_nats(&self) -> anyhow::Result<TcpStream> {
        let nats = self.variables.get("MATCHDAY_NATS__URL").context("MATCHDAY_NATS__URL")?;
        let address = nats.rsplit(['@', '/']).next().unwrap_or_default();
        let mut stream = TcpStream::connect(address.parse::<SocketAddr>().context("the address of NATS")?).await?;
        stream.set_nodelay(true)?;
        stream.write_all(b"CONNECT {\"verbose\":false}\r\n").await?;
        Ok(stream)
    }

    /// Deletes the streams of an earlier run. Messages of a new database have the same ids, and NATS would drop them as
    /// repeated ones.
    pub(crate) async fn forget_in_nats(&self, database: &str) -> anyhow::Result<()> {
        let mut nats = BufReader::new(self.connect_to_nats().await?);
        let mut requests = "SUB gone 1\r\n".to_owned();
        let streams = ["fact", "work", "dead"];
        for stream in streams {
            let _ = write!(requests, "PUB $JS.API.STREAM.DELETE.{database}_{stream} gone 0\r\n\r\n");
        }
        nats.write_all(requests.as_bytes()).await?;
        let (mut answers, mut line) = (0, String::new());
        while answers < streams.len() {
            line.clear();
            let read = tokio::time::timeout(Duration::from_secs(10), nats.read_line(&mut line)).await??;
            ensure!(read > 0, "NATS closed the connection");
            answers += usize::from(line.starts_with("MSG "));
        }
        Ok(())
    }
}

/// A port that is free at the moment.
pub(crate) fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Polls until a condition holds, within a time limit.
pub(crate) async fn until(what: &str, within: Duration, mut holds: impl AsyncFnMut() -> bool) -> anyhow::Result<()> {
    let began = Instant::now();
    while !holds().await {
        ensure!(began.elapsed() < within, "timeout after {} s: {what}", within.as_secs());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Runs a command that must succeed; returns its standard output.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| called(command))?;
    let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{}: {said}{complained}", called(command));
    Ok(said.into_owned())
}

/// The command line without the environment, which contains secrets.
fn called(command: &Command) -> String {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    words.map(std::ffi::OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

/// A child process that is stopped on drop.
#[derive(Debug)]
pub(crate) struct Owned {
    child: Child,
    signal: &'static str,
}

impl Owned {
    /// Starts the process, to be stopped with `signal`.
    pub(crate) fn start(command: &mut Command, signal: &'static str) -> anyhow::Result<Self> {
        Ok(Self { child: command.spawn().with_context(|| called(command))?, signal })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.signal).arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}
