//! Measures Matchday beside the bare engines it stands on: `just bench`.
//!
//! Machines differ and are noisy, so every figure has its counterpart from the same run: both sides alternate, at least
//! three times, and what is worth keeping is the ratio. Each scenario ends with a line of JSON on standard output, and
//! the last line of each is kept below `.dev/bench`. `--report` writes `docs/performance.md` of those.

mod load;
mod outcome;
mod parts;
mod report;
mod scenarios;
mod wire;

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use anyhow::{Context as _, bail};
use clap::Parser;

use crate::{
    outcome::Outcome,
    parts::{Stage, service::print_line},
    scenarios::ALL,
};

/// Measures Matchday beside the bare engines it stands on.
#[derive(Parser)]
struct Arguments {
    /// What to measure: events-list, predict-burst, predict-lone, points, rank, deduct, login, idle, stream, scores. None: all,
    /// or with --report those that were never measured here.
    scenarios: Vec<String>,
    /// Write docs/performance.md and its charts of what was measured last.
    #[arg(long)]
    report: bool,
    /// Write docs/reliability.md of the lines in this file, which `just nightly` makes.
    #[arg(long, value_name = "FILE")]
    reliability: Option<PathBuf>,
    /// How often both sides are measured.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(3..))]
    rounds: u8,
    /// Seconds for one side of one round, where time is what bounds it.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..))]
    seconds: u8,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    if let Some(file) = &arguments.reliability {
        return report::reliability::write(&root, file);
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
                    .with_context(|| format!("no scenario is called {name}; there are: {}", names()))
            };
            names.iter().map(one).collect::<anyhow::Result<_>>()?
        }
    };
    let mut failed = Vec::new();
    if !wanted.is_empty() {
        let stage = Stage::set_up(usize::from(arguments.rounds), Duration::from_secs(arguments.seconds.into())).await?;
        for scenario in wanted {
            stage.begin(scenario.name);
            match (scenario.run)(&stage).await {
                Ok(measured) => {
                    for outcome in &measured {
                        print_line(&stage, &serde_json::to_string(outcome)?);
                    }
                    outcomes.insert(scenario.name.to_owned(), measured);
                    std::fs::write(&kept, serde_json::to_vec_pretty(&outcomes)?)?;
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
        bail!("not measured: {}", failed.join(", "));
    }
    if arguments.report {
        report::performance::write(&root, &outcomes)?;
    }
    Ok(())
}

/// What was measured last, by scenario.
fn read(file: &std::path::Path) -> anyhow::Result<BTreeMap<String, Vec<Outcome>>> {
    match std::fs::read(file) {
        Ok(text) => {
            serde_json::from_slice(&text).with_context(|| format!("{}: remove it to begin anew", file.display()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => Err(error.into()),
    }
}
