//! The service under test, as a release build.

use std::{
    fs::{self, File},
    io::Write as _,
    net::SocketAddr,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use super::{Owned, Stage, output, until};

/// A running service with a private database and prefixes.
pub(crate) struct Service {
    process: Owned,
    /// Address of the public listener.
    pub(crate) public: SocketAddr,
    /// Address of the private listener.
    pub(crate) private: SocketAddr,
}

impl Service {
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Kills the process without warning.
    pub(crate) fn kill(self) {
        let _ = Command::new("kill").arg("-KILL").arg(self.id().to_string()).status();
    }

    /// Sum of a metric over all label sets that contain `label`.
    pub(crate) async fn counted(&self, name: &str, label: &str) -> anyhow::Result<f64> {
        let metrics = reqwest::get(format!("http://{}/metrics", self.private)).await?.text().await?;
        let of_that_name = |line: &&str| line.split(['{', ' ']).next() == Some(name) && line.contains(label);
        let number = |line: &str| line.rsplit(' ').next()?.parse::<f64>().ok();
        Ok(metrics.lines().filter(of_that_name).filter_map(number).sum())
    }
}

/// Environment variables of a service.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    database: String,
    variables: Vec<(String, String)>,
    log: String,
}

impl Setting {
    /// Settings for this database, without chat.
    pub(crate) fn on(database: &str) -> Self {
        let variables = vec![
            ("MATCHDAY_MATRIX__HOMESERVER_URL".to_owned(), String::new()),
            // Prefixes that all services of this database share, and no others use.
            ("MATCHDAY_REDIS__PREFIX".to_owned(), database.to_owned()),
            ("MATCHDAY_NATS__PREFIX".to_owned(), database.to_owned()),
        ];
        Self { database: database.to_owned(), variables, log: "service.log".to_owned() }
    }

    /// Writes the log to another file, for several processes at the same time.
    #[must_use]
    pub(crate) fn logging_to(mut self, file: &str) -> Self {
        file.clone_into(&mut self.log);
        self
    }

    /// Sets an additional variable.
    #[must_use]
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }
}

impl Stage {
    fn command(&self, setting: &Setting) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .envs(&self.variables)
            .env("MATCHDAY_DATABASE__URL", self.postgres.url("matchday_app", &setting.database))
            .env("MATCHDAY_DATABASE__OWNER_URL", self.postgres.url("matchday", &setting.database))
            .env("MATCHDAY_HTTP__LISTEN", "127.0.0.1:0")
            .env("MATCHDAY_HTTP__PRIVATE_LISTEN", "127.0.0.1:0")
            .env("MATCHDAY_CONSOLE__ENABLED", "false")
            .env("MATCHDAY_LOG__FORMAT", "json")
            .envs(setting.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs a `matchday` command; returns its standard output.
    pub(crate) fn matchday(&self, setting: &Setting, arguments: &[&str], input: &str) -> anyhow::Result<String> {
        let file = self.directory.join("input");
        fs::write(&file, input)?;
        output(self.command(setting).args(arguments).stdin(File::open(&file)?))
    }

    /// Creates a server key with this scope; returns its text.
    pub(crate) fn server_key(&self, setting: &Setting, scope: &str) -> anyhow::Result<String> {
        let key = self.matchday(setting, &["keys", "create", "bench", "--scope", scope, "--json"], "")?;
        let key: Value = serde_json::from_str(&key)?;
        Ok(key["key"].as_str().context("a key")?.to_owned())
    }

    /// Starts the service; returns when it listens.
    pub(crate) async fn serve(&self, setting: &Setting, arguments: &[&str]) -> anyhow::Result<Service> {
        let path = self.directory.join(&setting.log);
        // Several services may share the file, so each appends to it.
        fs::write(&path, "")?;
        let log = File::options().append(true).open(&path)?;
        let mut command = self.command(setting);
        command.arg("serve").args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let mut process = Owned::start(&mut command, "-TERM")?;
        let said = || fs::read_to_string(&path).unwrap_or_default();
        let serving = || {
            said()
                .lines()
                .filter_map(|line| serde_json::from_str::<Value>(line).ok())
                .find(|line| line["message"] == "serving")
        };
        until("the service listens", Duration::from_secs(30), async || !process.runs() || serving().is_some()).await?;
        let Some(line) = serving() else { bail!("the service exited: {}", said()) };
        let address = |name: &str| -> anyhow::Result<SocketAddr> {
            Ok(line[name].as_str().with_context(|| format!("no {name} in {line}"))?.parse()?)
        };
        Ok(Service { process, public: address("public")?, private: address("private")? })
    }

    /// Deletes a service's keys in Redis, so that the next service with this name starts empty.
    pub(crate) fn forget_in_redis(&self, database: &str) -> anyhow::Result<()> {
        let address = self.redis()?;
        let script = "local cursor = '0' repeat local found = redis.call('SCAN', cursor, 'MATCH', ARGV[1], 'COUNT', 10000) \
                      cursor = found[1] for _, key in ipairs(found[2]) do redis.call('UNLINK', key) end until cursor == '0' \
                      return 'done'";
        let (host, port) = (address.ip().to_string(), address.port().to_string());
        let said = output(
            Command::new("redis-cli")
                .args(["-h", &host, "-p", &port, "EVAL", script, "0"])
                .arg(format!("*{database}*")),
        )?;
        ensure!(said.trim() == "done", "redis-cli: {said}");
        Ok(())
    }
}

/// Prints a line without disturbing the progress line.
pub(crate) fn print_line(stage: &Stage, line: &str) {
    stage.quiet(|| {
        let _ = writeln!(std::io::stdout(), "{line}");
    });
}
