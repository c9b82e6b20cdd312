//! Measures Matchday against the bare engines that it uses: `just bench`.
//!
//! Machines differ and are noisy, so every figure has a counterpart from the same run. Both sides alternate at least
//! three times, and the comparable result is their ratio. Each scenario prints a line of JSON on standard output, and
//! the last line of each is stored below `.dev/bench`. `--report` writes `docs/performance.md` from those.

mod crowd;
mod environment;
mod growth;
mod load;
mod outcome;
mod report;
mod scenarios;
mod swarm;
mod wire;

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use anyhow::{Context as _, bail};
use clap::{Parser, Subcommand};

use crate::{
    environment::{Stage, postgres::Data, service::print_line},
    outcome::Outcome,
    scenarios::ALL,
};

/// Measure Matchday against the bare engines that it uses.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    tool: Option<Tool>,
    /// Scenarios to measure: events-list, predict-burst, predict-lone, answers, points, rank, room-stats, deduct,
    /// backend-coins, login, join-storm, spectators, announcements, session-lookups, idle, idle-processes, read-replica, pgbouncer,
    /// stream, scores, rule-sets, leagues, devices, facts, follows, seal. Default: all, or with --report only the scenarios that have no stored
    /// result.
    scenarios: Vec<String>,
    /// Write docs/performance.md and its charts from the stored results.
    #[arg(long)]
    report: bool,
    /// Number of rounds, each of which measures both sides.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(3..))]
    rounds: u8,
    /// Seconds per side and round, in scenarios limited by time.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..))]
    seconds: u8,
    /// Measure answers, join-storm, spectators and announcements with a tenth of their size, to check that they run. The results
    /// are not stored.
    #[arg(long, conflicts_with = "report")]
    small: bool,
    /// Measure leagues, devices and follows with this number of users instead of their usual number. The results are not stored.
    #[arg(long, conflicts_with = "report", value_parser = clap::value_parser!(u64).range(5_000..))]
    users: Option<u64>,
}

#[derive(Subcommand)]
enum Tool {
    /// Drive a deployment like the fans of a final: several agents, open loop.
    #[command(subcommand)]
    Swarm(swarm::Command),
    /// Simulate the chat of a match with a crowd of spectators.
    Crowd(crowd::Case),
    /// Compare the cost of every operation on a small and a large database.
    Growth(growth::Command),
    Nightly(report::reliability::Nightly),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    match arguments.tool {
        Some(Tool::Swarm(command)) => return swarm::run(command).await,
        Some(Tool::Crowd(case)) => return crowd::run(case, &root),
        Some(Tool::Growth(command)) => return growth::run(command, &root).await,
        Some(Tool::Nightly(command)) => return report::reliability::nightly(&command, &root),
        None => {}
    }
    let kept = root.join(".dev/bench/outcomes.json");
    let mut outcomes = read(&kept)?;
    let wanted: Vec<_> = match &arguments.scenarios[..] {
        [] => ALL.iter().filter(|scenario| !arguments.report || !outcomes.contains_key(scenario.name)).collect(),
        names => {
            let one = |name: &String| {
                let names = || ALL.iter().map(|scenario| scenario.name).collect::<Vec<_>>().join(", ");
                ALL.iter()
                    .find(|known| known.name == name)
                    .with_context(|| format!("unknown scenario {name}; choose from: {}", names()))
            };
            names.iter().map(one).collect::<anyhow::Result<_>>()?
        }
    };
    let mut failed = Vec::new();
    if !wanted.is_empty() {
        let mut stage = Stage::set_up(
            usize::from(arguments.rounds),
            Duration::from_secs(arguments.seconds.into()),
            arguments.small,
            Data::Fresh,
        )
        .await?;
        stage.users = arguments.users;
        for scenario in wanted {
            stage.begin(scenario.name);
            match (scenario.run)(&stage).await {
                Ok(measured) => {
                    for outcome in &measured {
                        print_line(&stage, &serde_json::to_string(outcome)?);
                    }
                    outcomes.insert(scenario.name.to_owned(), measured);
                    if !arguments.small && arguments.users.is_none() {
                        std::fs::write(&kept, serde_json::to_vec_pretty(&outcomes)?)?;
                    }
                }
                Err(error) => {
                    print_line(
                        &stage,
                        &serde_json::json!({"scenario": scenario.name, "error": format!("{error:#}")}).to_string(),
                    );
                    failed.push(scenario.name);
                }
            }
        }
        report::machine::keep(&root, &stage)?;
    }
    if !failed.is_empty() {
        bail!("these scenarios failed: {}", failed.join(", "));
    }
    if arguments.report {
        report::performance::write(&root, &outcomes)?;
    }
    Ok(())
}

/// Stored results of the last runs, by scenario.
fn read(file: &std::path::Path) -> anyhow::Result<BTreeMap<String, Vec<Outcome>>> {
    match std::fs::read(file) {
        Ok(text) => {
            serde_json::from_slice(&text).with_context(|| format!("{}: delete the file to start over", file.display()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => Err(error.into()),
    }
}
