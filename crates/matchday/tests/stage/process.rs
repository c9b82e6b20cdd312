//! A `matchday` process under test.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::{Arc, Mutex},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use matchday::testing::{as_service, unique};
use serde_json::Value;
use sqlx::{ConnectOptions as _, postgres::PgConnectOptions};

/// Settings of one test, shared by all its processes: a private database, and private prefixes in Redis and NATS.
#[derive(Clone)]
pub(crate) struct Setting {
    binary: PathBuf,
    variables: BTreeMap<String, String>,
}

impl Setting {
    /// `database` holds the connection options of the owner.
    pub(crate) fn new(database: &PgConnectOptions) -> Self {
        let prefix = unique("whole");
        let mut variables: BTreeMap<String, String> =
            std::env::vars().filter(|(name, _)| name.starts_with("MATCHDAY_")).collect();
        for (name, value) in [
            ("MATCHDAY_ENV", "testing"),
            ("MATCHDAY_DATABASE__URL", as_service(database).to_url_lossy().as_str()),
            ("MATCHDAY_DATABASE__OWNER_URL", database.to_url_lossy().as_str()),
            ("MATCHDAY_REDIS__PREFIX", &prefix),
            ("MATCHDAY_NATS__PREFIX", &prefix),
            ("MATCHDAY_HTTP__LISTEN", "127.0.0.1:0"),
            ("MATCHDAY_HTTP__PRIVATE_LISTEN", "127.0.0.1:0"),
            // Off by default, because older versions have no setting for its address. Tests of the console enable it.
            ("MATCHDAY_CONSOLE__ENABLED", "false"),
            ("MATCHDAY_LOG__FORMAT", "json"),
        ] {
            variables.insert(name.to_owned(), value.to_owned());
        }
        Self { binary: env!("CARGO_BIN_EXE_matchday").into(), variables }
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.variables.remove(name);
        self
    }

    /// Runs another binary instead of the current build.
    pub(crate) fn with_binary(mut self, binary: &Path) -> Self {
        binary.clone_into(&mut self.binary);
        self
    }

    pub(crate) fn variables(&self) -> &BTreeMap<String, String> {
        &self.variables
    }

    /// Builds a command with these settings, without starting it.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("MATCHDAY_")) {
            command.env_remove(name);
        }
        command.envs(&self.variables);
        command
    }

    /// Runs a command to its end, with `input` on standard input.
    pub(crate) fn run(&self, arguments: &[&str], input: &str) -> Output {
        let mut child = self.command(arguments).spawn().expect("the binary starts");
        child.stdin.take().expect("standard input").write_all(input.as_bytes()).expect("written");
        child.wait_with_output().expect("the command exits")
    }

    /// Runs a command that must succeed; returns its standard output.
    pub(crate) fn expect(&self, arguments: &[&str], input: &str) -> String {
        let output = self.run(arguments, input);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    }

    /// Starts `serve` or `worker`, and waits until it listens.
    pub(crate) fn start(&self, arguments: &[&str]) -> Process {
        let mut child = self.command(arguments).spawn().expect("the binary starts");
        let log = Arc::new(Mutex::new(Vec::new()));
        let lines = BufReader::new(child.stderr.take().expect("standard error")).lines();
        let (heard, ready) = std::sync::mpsc::channel();
        let kept = Arc::clone(&log);
        let reader = std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Ok(line) = serde_json::from_str::<Value>(&line)
                    && (line["message"] == "serving" || line["message"] == "working")
                {
                    // The test may no longer wait for this line.
                    let _ = heard.send(line);
                }
                kept.lock().expect("not poisoned").push(line);
            }
        });
        let Ok(line) = ready.recv_timeout(Duration::from_secs(20)) else {
            let _ = child.kill();
            panic!("{arguments:?} does not listen: {:#?}", log.lock());
        };
        let address = |name: &str| line[name].as_str().map(|address| format!("http://{address}")).unwrap_or_default();
        Process {
            public: address("public"),
            private: address("private"),
            console: address("console"),
            child,
            log,
            reader: Some(reader),
        }
    }
}

/// A running process; killed on drop.
pub(crate) struct Process {
    /// Base URL of the public listener.
    pub(crate) public: String,
    /// Base URL of the private listener.
    pub(crate) private: String,
    /// Base URL of the console; empty if it is disabled.
    pub(crate) console: String,
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
    reader: Option<JoinHandle<()>>,
}

impl Process {
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn log(&self) -> Vec<String> {
        self.log.lock().expect("not poisoned").clone()
    }

    /// Sum of a metric over all its labels.
    pub(crate) async fn counted(&self, name: &str) -> f64 {
        let metrics = reqwest::get(format!("{}/metrics", self.private)).await.expect("a response");
        let metrics = metrics.text().await.expect("text");
        let of_that_name = |line: &&str| line.split(['{', ' ']).next() == Some(name);
        let number = |line: &str| line.rsplit(' ').next().and_then(|number| number.parse::<f64>().ok());
        metrics.lines().filter(of_that_name).map(|line| number(line).expect("a number")).sum()
    }

    /// Kills the process without warning.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("gone");
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(status.expect("kill runs").success());
    }

    /// Waits until the process exits. The log is complete afterwards.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a status") {
                if let Some(reader) = self.reader.take() {
                    reader.join().expect("a finished log reader");
                }
                return status;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "the process does not exit: {:#?}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a GET request with a token; returns status and body.
pub(crate) async fn get(base: &str, path: &str, token: &str) -> (u16, Value) {
    let answer =
        reqwest::Client::new().get(format!("{base}{path}")).bearer_auth(token).send().await.expect("a response");
    let status = answer.status().as_u16();
    (status, answer.json().await.unwrap_or_default())
}
