//! Dependencies that one test starts for itself, so that it can kill, pause, cut off or fill them without affecting
//! others.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use matchday::testing::unique;

pub(crate) mod cluster;
pub(crate) mod disk;
pub(crate) mod nats;
pub(crate) mod pgbouncer;
pub(crate) mod postgres;
pub(crate) mod proxy;
pub(crate) mod redis;
pub(crate) mod sms;

pub(crate) use crate::stage::synapse::{development, free_ports};

/// Data directory of a dependency, deleted on drop.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(unique(&format!("md_fault_{name}")));
        fs::create_dir(&path).expect("a directory");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Operating system user that a dependency runs as.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunAs {
    /// The user who runs the tests.
    CurrentUser,
    /// The user `postgres` if root runs the tests: PostgreSQL refuses to run as root.
    Postgres,
}

/// A command that is terminated when the thread that runs the test ends, even by a panic.
pub(crate) fn command(run_as: RunAs, program: impl AsRef<Path>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM"]);
    if run_as == RunAs::Postgres && is_root() {
        command.args(["--reuid=postgres", "--regid=postgres", "--init-groups"]);
    }
    // Ignore settings for PostgreSQL clients from the caller's shell.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("PG")) {
        command.env_remove(name);
    }
    command.arg("--").arg(program.as_ref());
    command
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output().expect("id runs");
    output.stdout == b"0\n"
}

/// Creates a directory that PostgreSQL's user owns.
pub(crate) fn directory_of_postgres(path: &Path) {
    let mut install = Command::new("install");
    install.args(["-d", "-m", "700"]);
    if is_root() {
        install.args(["-o", "postgres", "-g", "postgres"]);
    }
    assert!(install.arg(path).status().expect("install runs").success());
}

/// Runs a command that must succeed; returns its standard output.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().expect("a started process");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A process of a dependency. Killed on drop, with all its descendants.
pub(crate) struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    /// Starts the process and appends its output to `log`.
    pub(crate) fn start(mut command: Command, log: &Path) -> Self {
        let lines = File::options().create(true).append(true).open(log).expect("a log");
        let also = lines.try_clone().expect("a log");
        let child = command.stdin(Stdio::null()).stdout(lines).stderr(also).current_dir("/").spawn();
        Self { child: child.expect("a started process"), log: log.to_owned() }
    }

    /// Waits until `probe` succeeds; panics with the log if the process exits or takes longer than a minute.
    pub(crate) async fn wait_until_ready(&mut self, what: &str, probe: impl AsyncFn() -> bool) {
        let began = Instant::now();
        while !probe().await {
            let ended = self.child.try_wait().expect("a process status");
            let log = || fs::read_to_string(&self.log).unwrap_or_default();
            assert!(ended.is_none() && began.elapsed() < Duration::from_mins(1), "{what} is not ready: {}", log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the process and its descendants.
    pub(crate) fn signal(&self, name: &str) {
        signal(name, &family(self.child.id()));
    }

    /// Kills the process and its descendants without warning.
    pub(crate) fn kill(&mut self) {
        // Stop the process before listing its descendants, so that it cannot start more of them.
        signal("STOP", &[self.child.id()]);
        signal("KILL", &family(self.child.id()));
        self.child.wait().expect("an exit status");
    }

    /// Whether the process has exited without being killed by the test.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a process status").is_some()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.kill();
        }
    }
}

/// Sends a signal, ignoring processes that have already exited.
fn signal(name: &str, processes: &[u32]) {
    let mut kill = Command::new("kill");
    kill.arg(format!("-{name}")).args(processes.iter().map(ToString::to_string));
    kill.stderr(Stdio::null()).status().expect("kill runs");
}

/// A process and all its descendants.
fn family(process: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = fs::read_dir("/proc")
        .expect("processes")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|id: u32| {
            let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
            // The process name, in parentheses, may contain spaces and parentheses.
            let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
            Some((id, parent))
        })
        .collect();
    let (mut family, mut next) = (vec![process], 0);
    while next < family.len() {
        let parent = family[next];
        family.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(id, _)| *id));
        next += 1;
    }
    family
}
