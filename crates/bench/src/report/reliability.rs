//! The nightly tests, in parts that can run alone, and `docs/reliability.md`, which is generated from their results.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use anyhow::{Context as _, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};

use super::machine::{Here, here};

/// Run parts of the nightly tests, store their results in docs/nightly, and generate docs/reliability.md from all results.
#[derive(Args)]
pub(crate) struct Nightly {
    /// Parts to run: faults, hostile, upgrade, recovery, soak, rules, generated-clients, growth. Default: all.
    parts: Vec<String>,
    /// Only generate docs/reliability.md.
    #[arg(long, conflicts_with = "parts")]
    page: bool,
}

struct Part {
    /// Recipe of the justfile.
    recipe: &'static str,
    options: &'static [&'static str],
    title: &'static str,
    about: &'static str,
}

const PARTS: [Part; 8] = [
    Part {
        recipe: "faults",
        options: &[],
        title: "Failing dependencies",
        about: "Each test starts its own dependencies, puts load on the service, breaks a dependency, and then compares the \
                acknowledged writes with the database.",
    },
    Part {
        recipe: "hostile",
        options: &[],
        title: "Hostile input",
        about: "Generated requests to the whole API, bytes that no client should send, and more connections than the service \
                can handle.",
    },
    Part {
        recipe: "upgrade",
        options: &[],
        title: "Upgrades",
        about: "Processes are replaced and tables changed under load.",
    },
    Part {
        recipe: "recovery",
        options: &[],
        title: "Recovery",
        about: "A whole deployment is killed under load and recovered elsewhere; then the acknowledged writes are compared \
                with both databases.",
    },
    Part { recipe: "soak", options: &[], title: "Endurance", about: "Mixed traffic with all workers for a long time." },
    Part {
        recipe: "rules",
        options: &[],
        title: "Rules of points",
        about: "Points from Rust and from SQL for 200,000 random cases, and whole seasons of 1,000 fans.",
    },
    Part {
        recipe: "generated-clients",
        options: &[],
        title: "Generated clients",
        about: "Clients in Python, Go, Java and Kotlin are generated from both OpenAPI documents and compiled.",
    },
    Part {
        recipe: "growth",
        options: &["--report"],
        title: "Growth",
        about: "The cost of each operation on a small and a large database: [growth.md](growth.md).",
    },
];

/// Result of one test.
#[derive(Deserialize, Serialize)]
struct Line {
    what: String,
    held: String,
}

/// Result of a part: its file in docs/nightly.
#[derive(Deserialize, Serialize)]
struct Outcome {
    day: String,
    revision: String,
    hardware: String,
    passed: bool,
    minutes: u64,
    tests: Vec<Line>,
}

pub(crate) fn nightly(command: &Nightly, root: &Path) -> anyhow::Result<()> {
    for name in &command.parts {
        ensure!(PARTS.iter().any(|part| part.recipe == name), "unknown part {name}: see --help");
    }
    let mut failed = Vec::new();
    for part in &PARTS {
        let is_wanted = command.parts.is_empty() || command.parts.iter().any(|name| name == part.recipe);
        if !command.page && is_wanted && !run(part, root)? {
            failed.push(part.recipe);
        }
    }
    fs::write(root.join("docs/reliability.md"), page(root)?)?;
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

fn file(root: &Path, part: &Part) -> PathBuf {
    root.join("docs/nightly").join(part.recipe).with_extension("json")
}

/// Runs a part and stores its result. Returns whether it passed.
fn run(part: &Part, root: &Path) -> anyhow::Result<bool> {
    let Here { day, revision, hardware } = here(root)?;
    let proof = root.join(".dev").join(part.recipe).with_extension("jsonl");
    if proof.exists() {
        fs::remove_file(&proof)?;
    }
    let began = Instant::now();
    let passed = Command::new("just")
        .arg(part.recipe)
        .args(part.options)
        .current_dir(root)
        .env("MATCHDAY_PROOF", &proof)
        .status()
        .context("just")?
        .success();
    let mut tests: Vec<Line> = Vec::new();
    for line in fs::read_to_string(&proof).unwrap_or_default().lines() {
        let line: Line = serde_json::from_str(line)?;
        // Only the last run of a test counts.
        tests.retain(|known| known.what != line.what);
        tests.push(line);
    }
    let outcome = Outcome { day, revision, hardware, passed, minutes: began.elapsed().as_secs().div_ceil(60), tests };
    let file = file(root, part);
    fs::create_dir_all(file.parent().context("a folder")?)?;
    fs::write(file, serde_json::to_string_pretty(&outcome)? + "\n")?;
    Ok(passed)
}

fn page(root: &Path) -> anyhow::Result<String> {
    let mut page = "# Reliability

<!-- Generated by `just nightly` from docs/nightly; manual changes are lost. -->

This page shows how the service behaves when dependencies fail, under hostile input, during upgrades, after the loss of a
whole deployment and over a long time. Dependencies are real (PostgreSQL under Patroni, Redis, a NATS cluster, Synapse); only
the SMS providers are local servers that respond as their documentation describes. Times are from a small shared machine,
with debug builds of service and tests, and show the order of magnitude. Every run checks exactly that no acknowledged write
is lost and that nothing is done twice.

```sh
just nightly          # all parts, and this page
just nightly faults   # one part
```
"
    .to_owned();
    for part in &PARTS {
        let Part { recipe, title, about, .. } = part;
        let _ = write!(page, "\n## {title}\n\n{about} `just {recipe}`.\n\n");
        let Ok(text) = fs::read_to_string(file(root, part)) else {
            page.push_str("Not run yet.\n");
            continue;
        };
        let outcome: Outcome = serde_json::from_str(&text).with_context(|| (*recipe).to_owned())?;
        let Outcome { day, revision, hardware, minutes, .. } = &outcome;
        let result = if outcome.passed { "Passed" } else { "**Failed**" };
        let _ = writeln!(page, "{result} on {day} at revision {revision}, in {minutes} minutes: {hardware}.");
        if !outcome.tests.is_empty() {
            page.push_str("\n| test | result |\n|---|---|\n");
        }
        let cell = |text: &str| text.replace('|', "\\|").replace('\n', " ");
        for Line { what, held } in &outcome.tests {
            let _ = writeln!(page, "| {} | {} |", cell(what), cell(held));
        }
    }
    Ok(page)
}
