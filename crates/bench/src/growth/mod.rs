//! Proof that the cost of a request does not grow with the database: `just growth`.
//!
//! Two databases are filled through SQL, a small and a large one, and kept for later runs. The service runs on each, and
//! every operation of both OpenAPI descriptions is called with the worst parameters that a caller may choose. PostgreSQL
//! counts the blocks that each request touches. Unlike times, blocks do not depend on the machine.

mod calls;
mod fill;
mod measure;

use std::{collections::BTreeMap, fmt::Write as _, path::Path, time::Duration};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use serde_json::Value;

use crate::{
    environment::{
        Stage,
        postgres::Data,
        service::{Setting, print_line},
    },
    report::machine::{Here, here},
};

/// Greatest ratio of the blocks on the large database to those on the small one.
const MOST_GROWTH: f64 = 1.5;
/// Fewer blocks on the large database than these are not compared: a tree with another level makes a great ratio of few.
const FEW_BLOCKS: f64 = 60.0;
/// Greatest p99 on the large database, in milliseconds.
const SLOWEST: f64 = 100.0;

/// Compare the cost of every operation on a small and a large database.
#[derive(Args)]
pub(crate) struct Command {
    /// Divide the large size by this number, to try the command on a small machine.
    #[arg(long, default_value_t = 1)]
    shrink: u64,
    /// Only operations whose name contains this word.
    #[arg(long)]
    only: Option<String>,
    /// Fill the databases again.
    #[arg(long)]
    refill: bool,
    /// Write docs/growth.md.
    #[arg(long, conflicts_with_all = ["shrink", "only"])]
    report: bool,
}

/// Numbers of rows of a database.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) accounts: u64,
    /// Past matches; a thousand in each partition of predictions. Six predictions of each account are for these.
    pub(crate) past_matches: u64,
    /// Predictions of the live match, and of the open one.
    pub(crate) big_match: u64,
    pub(crate) leagues: u64,
    pub(crate) big_league: u64,
    pub(crate) rooms: u64,
    pub(crate) teams: u64,
    /// 200 of them in this season.
    pub(crate) questions: u64,
    /// Rounds with a score of every fifth account.
    pub(crate) rounds: u64,
}

/// Users with predictions for the whole season, who are members of a league that counts from a time on.
pub(crate) const SEASON_FANS: u64 = 1_000;

const SMALL: Size = Size {
    accounts: 10_000,
    past_matches: 6_000,
    big_match: 4_000,
    leagues: 600,
    big_league: 10_000,
    rooms: 600,
    teams: 100,
    questions: 200,
    rounds: 3,
};

impl Size {
    fn large(shrink: u64) -> Self {
        Self {
            accounts: (5_000_000 / shrink).max(10_000),
            past_matches: 60_000,
            big_match: (2_000_000 / shrink).max(4_000),
            leagues: (300_000 / shrink).max(600),
            big_league: (1_000_000 / shrink).max(10_000),
            rooms: (300_000 / shrink).max(600),
            teams: 2_000,
            questions: 1_000,
            rounds: 3,
        }
    }

    /// Tournament of this season, whose matches come after the past ones.
    pub(crate) fn season(&self) -> u64 {
        self.past_matches / 380 + 3
    }

    pub(crate) fn live(&self) -> u64 {
        self.past_matches + 381
    }

    pub(crate) fn open(&self) -> u64 {
        self.past_matches + 382
    }
}

/// Cost of one call.
#[derive(Clone, Debug)]
pub(crate) struct Cost {
    p50: f64,
    p99: f64,
    /// Rows that the statements returned or changed, and blocks that they touched, per request.
    rows: f64,
    blocks: f64,
    /// Statement that touched the most blocks.
    worst: String,
}

pub(crate) async fn run(command: Command, root: &Path) -> anyhow::Result<()> {
    let stage = Stage::set_up(1, Duration::from_secs(1), false, Data::Kept).await?;
    let (mut found, mut refused) = (Vec::new(), Vec::new());
    let large =
        if command.shrink == 1 { "growth_large".to_owned() } else { format!("growth_large_{}", command.shrink) };
    for (name, size) in [("growth_small", SMALL), (&large, Size::large(command.shrink))] {
        stage.begin(name);
        let measured = measure_database(&stage, &command, name, size, &mut refused).await;
        found.push(measured.with_context(|| name.to_owned())?);
    }
    let [small, large] = &found[..] else { bail!("two databases") };
    let (table, mut failed) = compare(small, large)?;
    failed.append(&mut refused);
    print_line(&stage, &table);
    if command.report {
        std::fs::write(root.join("docs/growth.md"), page(root, &table)?)?;
    }
    ensure!(
        failed.is_empty(),
        "refused, or more than {MOST_GROWTH} times the blocks, or a p99 above {SLOWEST} ms, without a reason:\n{}",
        failed.join("\n")
    );
    Ok(())
}

async fn measure_database(
    stage: &Stage,
    command: &Command,
    name: &str,
    size: Size,
    refused: &mut Vec<String>,
) -> anyhow::Result<BTreeMap<String, Cost>> {
    let key = "1:".to_owned() + &"ab".repeat(32);
    let setting = Setting::on(name)
        .with("MATCHDAY_LEAGUES__MAX_MEMBERS", "1000000")
        .with("MATCHDAY_SMS__PROVIDERS", "console")
        .with("MATCHDAY_LIMITS__PHONE_BURST", "1000000")
        .with("MATCHDAY_LIMITS__PHONE_DAILY", "1000000")
        .with("MATCHDAY_LIMITS__NETWORK_HOURLY", "1000000")
        .with("MATCHDAY_LIMITS__BLOCK_HOURLY", "1000000")
        .with("MATCHDAY_LIMITS__COUNTRY_HOURLY", "1000000")
        .with("MATCHDAY_LIMITS__DAILY_BUDGET", "1000000")
        .with("MATCHDAY_LIMITS__NETWORK_GUESSES", "1000000")
        .with("MATCHDAY_LIMITS__NETWORK_NAMES", "1000000")
        .with("MATCHDAY_CODES__KEYS", &key)
        .with("MATCHDAY_WEBHOOKS__KEYS", &key)
        .logging_to(name);
    fill::fill(stage, &setting, name, size, command.refill).await?;
    let pool = stage.postgres.pool(name).await?;
    let descriptions = [
        ("", serde_json::from_str::<Value>(&stage.matchday(&setting, &["openapi"], "")?)?),
        ("server:", serde_json::from_str(&stage.matchday(&setting, &["openapi", "--server"], "")?)?),
    ];
    let operations: Vec<String> = descriptions
        .iter()
        .flat_map(|(prefix, description)| operation_ids(description).into_iter().map(move |id| format!("{prefix}{id}")))
        .collect();
    let world = calls::World::find(stage, &setting, &pool, size).await?;
    let service = stage.serve(&setting, &["--no-workers"]).await?;
    calls::check(&operations, &world)?;
    let mut costs = BTreeMap::new();
    for case in calls::cases(&world) {
        let title = case.title();
        if command.only.as_ref().is_some_and(|word| !title.contains(word.as_str())) {
            continue;
        }
        stage.say(title.clone());
        match measure::measure(stage, &service, &pool, &case).await {
            Ok(cost) => {
                costs.insert(title, cost);
            }
            Err(error) => refused.push(format!("{title} on {name}: {error:#}")),
        }
    }
    drop(service);
    Ok(costs)
}

fn operation_ids(description: &Value) -> Vec<String> {
    let paths = description["paths"].as_object().into_iter().flatten();
    let operations = paths.flat_map(|(_, path)| path.as_object().into_iter().flatten());
    operations.filter_map(|(_, operation)| operation["operationId"].as_str().map(str::to_owned)).collect()
}

fn page(root: &Path, table: &str) -> anyhow::Result<String> {
    let Here { day, revision, hardware } = here(root)?;
    let (small, large) = (SMALL, Size::large(1));
    Ok(format!(
        "# Cost per request and size of the database

<!-- Generated by `just growth --report`; manual changes are lost. -->

Every operation of both OpenAPI documents, called with the worst parameters that a caller may choose, on a small and a
large database: {} and {} accounts with six predictions each, a match with {} and {} predictions, {} and {} leagues, the
largest with {} and {} members, and {} and {} chat rooms. A fifth of the predictions were revised once.

*Blocks* are the pages of 8 kB that PostgreSQL touched for a request that found no cached page, and *rows* those that its
statements returned or changed. Limit: {MOST_GROWTH} times the blocks if there are more than {FEW_BLOCKS}, and a p99 of
{SLOWEST} ms. Times are of one connection, with caches. Figures before and after the colon are for the small and the large
database.

Measured on {day} at revision {revision}: {hardware}.

{table}",
        small.accounts,
        large.accounts,
        small.big_match,
        large.big_match,
        small.leagues,
        large.leagues,
        small.big_league,
        large.big_league,
        small.rooms,
        large.rooms,
    ))
}

/// Table of all operations, and those beyond the limits without a reason.
fn compare(small: &BTreeMap<String, Cost>, large: &BTreeMap<String, Cost>) -> anyhow::Result<(String, Vec<String>)> {
    let mut table = "| operation | p50 ms, small : large | p99 ms | rows | blocks | ratio of blocks | |\n\
                     |---|---|---|---|---|---|---|\n"
        .to_owned();
    let mut failed = Vec::new();
    for (title, of_large) in large {
        let Some(of_small) = small.get(title) else { continue };
        let ratio = of_large.blocks / of_small.blocks.max(1.0);
        let grows = of_large.blocks > FEW_BLOCKS && ratio > MOST_GROWTH;
        let is_slow = of_large.p99 > SLOWEST;
        let mut remark = String::new();
        if grows || is_slow {
            if let Some(reason) = calls::reason(title) {
                remark.push_str(reason);
            } else {
                failed.push(title.clone());
                let _ = write!(remark, "**beyond the limit**: `{}`", of_large.worst);
            }
        }
        writeln!(
            table,
            "| {title} | {:.1} : {:.1} | {:.1} : {:.1} | {:.0} : {:.0} | {:.0} : {:.0} | {ratio:.2} | {remark} |",
            of_small.p50,
            of_large.p50,
            of_small.p99,
            of_large.p99,
            of_small.rows,
            of_large.rows,
            of_small.blocks,
            of_large.blocks
        )?;
    }
    Ok((table, failed))
}
