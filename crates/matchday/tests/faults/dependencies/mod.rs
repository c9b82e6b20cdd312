//! Parts of a test's own: what it kills, pauses, cuts off or fills up is nobody else's.

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
pub(crate) mod postgres;
pub(crate) mod proxy;
pub(crate) mod redis;
pub(crate) mod sms;

pub(crate) use crate::stage::synapse::{development, free_ports};

/// A directory for what a part keeps; gone when it is dropped.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new(part: &str) -> Self {
        let path = std::env::temp_dir().join(unique(&format!("md_fault_{part}")));
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

/// Whom a part runs as.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// Whoever runs the tests.
    Me,
    /// The user `postgres` where root runs the tests: PostgreSQL refuses root.
    Postgres,
}

/// A command that ends when the thread that runs the test does, however that comes about.
pub(crate) fn command(who: Who, program: impl AsRef<Path>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM"]);
    if who == Who::Postgres && is_root() {
        command.args(["--reuid=postgres", "--regid=postgres", "--init-groups"]);
    }
    // Settings for PostgreSQL's clients in the caller's shell must not leak in.
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

/// A directory that PostgreSQL's user owns.
pub(crate) fn directory_of_postgres(path: &Path) {
    let mut install = Command::new("install");
    install.args(["-d", "-m", "700"]);
    if is_root() {
        install.args(["-o", "postgres", "-g", "postgres"]);
    }
    assert!(install.arg(path).status().expect("install runs").success());
}

/// Runs a command to its end, which must be a success.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().expect("it starts");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A process of a part. Killed, with the processes that it has started, when it is dropped.
pub(crate) struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    /// Starts it; what it says goes to the end of a log.
    pub(crate) fn start(mut command: Command, log: &Path) -> Self {
        let lines = File::options().create(true).append(true).open(log).expect("a log");
        let also = lines.try_clone().expect("a log");
        let child = command.stdin(Stdio::null()).stdout(lines).stderr(also).current_dir("/").spawn();
        Self { child: child.expect("it starts"), log: log.to_owned() }
    }

    /// Waits until it answers.
    pub(crate) async fn answers(&mut self, what: &str, question: impl AsyncFn() -> bool) {
        let began = Instant::now();
        while !question().await {
            let ended = self.child.try_wait().expect("asked");
            let log = || fs::read_to_string(&self.log).unwrap_or_default();
            assert!(ended.is_none() && began.elapsed() < Duration::from_mins(1), "{what} does not answer: {}", log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to it and to all processes that it has started.
    pub(crate) fn signal(&self, name: &str) {
        signal(name, &family(self.child.id()));
    }

    /// Ends it and all that it has started, without warning.
    pub(crate) fn kill(&mut self) {
        // It is asked for its children before it is gone. It must not make more meanwhile.
        signal("STOP", &[self.child.id()]);
        signal("KILL", &family(self.child.id()));
        self.child.wait().expect("gone");
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("asked").is_some()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.kill();
        }
    }
}

/// Sends a signal; who is gone already does not need it.
fn signal(name: &str, processes: &[u32]) {
    let mut kill = Command::new("kill");
    kill.arg(format!("-{name}")).args(processes.iter().map(ToString::to_string));
    kill.stderr(Stdio::null()).status().expect("kill runs");
}

/// A process with its children, and theirs.
fn family(process: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = fs::read_dir("/proc")
        .expect("processes")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|id: u32| {
            let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
            // The name, in brackets, may have anything in it.
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
