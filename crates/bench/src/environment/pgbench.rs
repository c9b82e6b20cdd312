//! pgbench: the speed of the database without a service in front of it.

use std::{fs, path::PathBuf, process::Command, time::Duration};

use anyhow::Context as _;

use super::{Stage, output};
use crate::load::{Latency, Load, Measured};

/// A pgbench script and its variables.
#[derive(Clone, Debug)]
pub(crate) struct Pgbench {
    script: PathBuf,
    url: String,
    variables: Vec<(String, i64)>,
}

impl Pgbench {
    /// Writes the script to a file.
    pub(crate) fn new(stage: &Stage, database: &str, script: &str) -> anyhow::Result<Self> {
        let file = stage.directory.join("pgbench.sql");
        fs::write(&file, script)?;
        Ok(Self { script: file, url: stage.postgres.url("matchday", database), variables: Vec::new() })
    }

    /// Sets a variable of the script.
    pub(crate) fn set(&mut self, name: &str, value: i64) {
        self.variables.retain(|(known, _)| known != name);
        self.variables.push((name.to_owned(), value));
    }

    /// Runs the script. Latencies are logged only with a schedule, where the log does not affect the result.
    pub(crate) fn run(&self, load: Load) -> anyhow::Result<Measured> {
        let directory = self.script.with_extension("log");
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory)?;
        let mut command = Command::new("pgbench");
        command.args(["-n", "-M", "prepared", "-j", "2", "-T", &load.length.as_secs().max(1).to_string()]);
        command.args(["-c", &load.connections.to_string()]).arg("-f").arg(&self.script).current_dir(&directory);
        for (name, value) in &self.variables {
            command.arg("-D").arg(format!("{name}={value}"));
        }
        if let Some(rate) = load.rate {
            command.args(["-l", "--rate", &rate.to_string()]);
        }
        let printed = output(command.arg(&self.url))?;
        let rate = printed.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
        let mut latency = Latency::default();
        for file in fs::read_dir(&directory)? {
            for line in fs::read_to_string(file?.path())?.lines() {
                // Fields: client, transaction, time since the transaction was due, script, second, microsecond, lag.
                let fields: Vec<f64> = line.split(' ').filter_map(|field| field.parse().ok()).collect();
                let [_, _, time, _, _, _, lag] = fields[..] else { continue };
                // As in our own load generator, lag caused by waiting counts, and up to a millisecond of timer lag does
                // not.
                let lag_of_the_timer = if lag < 1_000.0 { lag } else { 0.0 };
                latency.record(Duration::from_secs_f64((time - lag_of_the_timer).max(0.0) / 1e6));
            }
        }
        Ok(Measured { rate: rate.with_context(|| format!("no rate in: {printed}"))?, latency })
    }
}

/// Runs pgbench on a thread for blocking work.
pub(crate) async fn run(pgbench: &Pgbench, load: Load) -> anyhow::Result<Measured> {
    let pgbench = pgbench.clone();
    tokio::task::spawn_blocking(move || pgbench.run(load)).await?
}
