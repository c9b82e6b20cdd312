//! What a scenario stands on. Redis and NATS are those of `dev/up`; PostgreSQL, nginx, Synapse and the service
//! are started for the run and stopped after it.

pub(crate) mod cores;
pub(crate) mod nginx;
pub(crate) mod people;
pub(crate) mod pgbench;
pub(crate) mod postgres;
pub(crate) mod service;
pub(crate) mod synapse;

use std::{
    collections::BTreeMap,
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    process::{Child, Command},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use indicatif::{ProgressBar, ProgressStyle};

use self::{
    cores::{Cores, Group},
    postgres::Postgres,
};

/// What all scenarios of a run share.
pub(crate) struct Stage {
    /// How often both sides are measured.
    pub(crate) rounds: usize,
    /// How long one side of one round takes, where time is what bounds it.
    pub(crate) length: Duration,
    /// The database server of the run.
    pub(crate) postgres: Postgres,
    /// The variables that `dev/up` wrote.
    pub(crate) variables: BTreeMap<String, String>,
    /// The binary under test.
    pub(crate) binary: PathBuf,
    /// Where files of the run go.
    pub(crate) directory: PathBuf,
    bar: ProgressBar,
}

impl Stage {
    /// Starts what every scenario needs.
    pub(crate) async fn set_up(rounds: usize, length: Duration) -> anyhow::Result<Self> {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
        let variables: BTreeMap<String, String> =
            std::env::vars().filter(|(name, _)| name.starts_with("MATCHDAY_")).collect();
        ensure!(variables.contains_key("MATCHDAY_REDIS__URL"), "run dev/up, then: just bench (it reads .dev/env)");
        let binary = match std::env::var_os("MATCHDAY_BIN") {
            Some(path) => PathBuf::from(path),
            None => std::env::current_exe()?.with_file_name("matchday"),
        };
        ensure!(binary.is_file(), "{} is not there: cargo build --release --bin matchday", binary.display());
        let directory = root.join(".dev/bench");
        std::fs::create_dir_all(&directory).with_context(|| format!("making {}", directory.display()))?;
        let bar = ProgressBar::new_spinner();
        bar.set_style(ProgressStyle::with_template("{spinner} {elapsed} {prefix}: {msg}")?);
        bar.enable_steady_tick(Duration::from_millis(200));
        bar.set_prefix("setting up");
        bar.set_message("a PostgreSQL server for this run");
        let postgres = Postgres::start(&directory).await?;
        Ok(Self { rounds, length, postgres, variables, binary, directory, bar })
    }

    /// Says what is being measured.
    pub(crate) fn begin(&self, scenario: &str) {
        self.bar.set_prefix(scenario.to_owned());
    }

    /// Says what is going on.
    pub(crate) fn say(&self, text: impl Into<String>) {
        let text = text.into();
        if self.bar.is_hidden() {
            // No terminal: a line for each step, as for a log.
            use std::io::Write as _;
            let _ = writeln!(std::io::stderr(), "{}: {text}", self.bar.prefix());
        }
        self.bar.set_message(text);
    }

    /// Clears the line of progress, so that something can be printed.
    pub(crate) fn quiet<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    /// Measures both sides alternately. Returns ours and bare for each round, and what the cores did while ours ran.
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

    /// The groups of processes that most scenarios keep busy.
    pub(crate) fn groups(&self, service: &service::Service) -> Vec<Group> {
        vec![
            Group { name: "the service", leader: service.id(), with_children: false },
            Group { name: "the load", leader: std::process::id(), with_children: false },
            Group { name: "PostgreSQL", leader: self.postgres.id(), with_children: true },
        ]
    }

    /// Where Redis is.
    pub(crate) fn redis(&self) -> anyhow::Result<SocketAddr> {
        let url = self.variables.get("MATCHDAY_REDIS__URL").context("MATCHDAY_REDIS__URL")?;
        url.trim_start_matches("redis://").trim_end_matches('/').parse().with_context(|| format!("{url}: an address"))
    }
}

/// A port that is free now.
pub(crate) fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Waits until something is so.
pub(crate) async fn until(what: &str, within: Duration, mut is_so: impl AsyncFnMut() -> bool) -> anyhow::Result<()> {
    let began = Instant::now();
    while !is_so().await {
        ensure!(began.elapsed() < within, "{what}: not within {} s", within.as_secs());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Runs a command to its end; returns what it printed.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| called(command))?;
    let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{}: {said}{complained}", called(command));
    Ok(said.into_owned())
}

/// A command without its environment, which has secrets.
fn called(command: &Command) -> String {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    words.map(std::ffi::OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

/// A process that ends with what started it.
#[derive(Debug)]
pub(crate) struct Owned {
    child: Child,
    signal: &'static str,
}

impl Owned {
    /// Starts it; it is ended by this signal.
    pub(crate) fn start(command: &mut Command, signal: &'static str) -> anyhow::Result<Self> {
        Ok(Self { child: command.spawn().with_context(|| called(command))?, signal })
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it still runs.
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
