//! The machine that produced the figures, recorded during the run.

use std::{fs, path::Path, process::Command};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::environment::{Stage, output};

/// The machine and the software on it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// Date of the run.
    pub(crate) day: String,
    /// Revision of the source.
    pub(crate) revision: String,
    /// Cores, memory and kernel.
    pub(crate) hardware: String,
    /// Dependencies and their versions.
    pub(crate) parts: String,
    /// Number of rounds per scenario.
    pub(crate) rounds: usize,
    /// Seconds per side and round.
    pub(crate) seconds: u64,
}

/// Date, revision and hardware of a report.
pub(crate) struct Here {
    /// Date of the run.
    pub(crate) day: String,
    /// Revision of the source.
    pub(crate) revision: String,
    /// Cores, memory and kernel.
    pub(crate) hardware: String,
}

/// Describes this machine and revision.
pub(crate) fn here(root: &Path) -> anyhow::Result<Here> {
    let first = |file: &str, start: &str| {
        let text = fs::read_to_string(file).unwrap_or_default();
        text.lines()
            .find_map(|line| Some(line.strip_prefix(start)?.trim_matches([':', '\t', ' ']).to_owned()))
            .unwrap_or_default()
    };
    let gigabytes =
        first("/proc/meminfo", "MemTotal").split(' ').next().and_then(|kilobytes| kilobytes.parse::<u64>().ok());
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let git = |arguments: &[&str]| output(Command::new("git").arg("-C").arg(root).args(arguments));
    let changed = if git(&["status", "--porcelain"])?.is_empty() { "" } else { ", with changes" };
    Ok(Here {
        day: output(Command::new("date").args(["-u", "+%Y-%m-%d"]))?.trim().to_owned(),
        revision: format!("{}{changed}", git(&["rev-parse", "--short", "HEAD"])?.trim()),
        hardware: format!(
            "{cores} cores ({}), {} GB of memory, Linux {}",
            first("/proc/cpuinfo", "model name"),
            gigabytes.unwrap_or_default() / 1_048_576,
            fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim()
        ),
    })
}

/// Stores the description of this run.
pub(crate) fn keep(root: &Path, stage: &Stage) -> anyhow::Result<()> {
    let version = |program: &str, argument: &str| {
        let said = Command::new(program).arg(argument).output().map(|said| [said.stdout, said.stderr].concat());
        let said = String::from_utf8(said.unwrap_or_default()).unwrap_or_default();
        let number = |word: &&str| word.chars().any(|letter| letter.is_ascii_digit()) && word.contains('.');
        said.split([' ', '/', '=', '\n']).find(number).unwrap_or("?").to_owned()
    };
    let Here { day, revision, hardware } = here(root)?;
    let machine = Machine {
        day,
        revision,
        hardware,
        parts: format!(
            "PostgreSQL {} ({} of shared buffers, fsync and synchronous_commit on), Redis {}, nginx {}",
            stage.postgres.version,
            stage.postgres.shared_buffers,
            version("redis-server", "--version"),
            version("nginx", "-v")
        ),
        rounds: stage.rounds,
        seconds: stage.length.as_secs(),
    };
    fs::write(stage.directory.join("machine.json"), serde_json::to_vec_pretty(&machine)?)?;
    Ok(())
}

/// Reads the description of the last run.
pub(crate) fn read(root: &Path) -> anyhow::Result<Machine> {
    let file = root.join(".dev/bench/machine.json");
    let text = fs::read(&file).with_context(|| format!("{}: run a scenario first", file.display()))?;
    Ok(serde_json::from_slice(&text)?)
}
