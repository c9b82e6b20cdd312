//! pgbench: what the database does when nothing stands before it.

use std::{fs, path::PathBuf, process::Command, time::Duration};

use anyhow::Context as _;

use super::{Stage, output};
use crate::load::{Latency, Load, Measured};

/// A script, run by some clients.
#[derive(Clone, Debug)]
pub(crate) struct Pgbench {
    script: PathBuf,
    url: String,
    variables: Vec<(String, i64)>,
}

impl Pgbench {
    /// Writes the script down.
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

    /// Runs it. Latencies are only logged by timetable, where the log costs nothing that counts.
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
                // client, transaction, time from the moment it was due, script, second, microsecond, lag.
                let fields: Vec<f64> = line.split(' ').filter_map(|field| field.parse().ok()).collect();
                let [_, _, time, _, _, _, lag] = fields[..] else { continue };
                // As with our own load, the lag counts where it comes from waiting, and not the timer's milliseconds.
                let lag_of_the_timer = if lag < 1_000.0 { lag } else { 0.0 };
                latency.record(Duration::from_secs_f64((time - lag_of_the_timer).max(0.0) / 1e6));
            }
        }
        Ok(Measured { rate: rate.with_context(|| format!("no rate in: {printed}"))?, latency })
    }
}

/// Runs it beside tasks that wait.
pub(crate) async fn run(pgbench: &Pgbench, load: Load) -> anyhow::Result<Measured> {
    let pgbench = pgbench.clone();
    tokio::task::spawn_blocking(move || pgbench.run(load)).await?
}
