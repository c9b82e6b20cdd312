//! What an operator does about feeds.

use anyhow::bail;
use clap::Subcommand;
use matchday::{
    app::App,
    config::Config,
    feeds::{
        LEASE,
        service::{Outcome, Polled},
    },
    operators::{Operator, service::Deed},
};
use platform::{lease::Lease, random, shutdown};
use serde_json::json;

use super::{By, check_schema, counted, plain, print};

#[derive(Subcommand)]
pub(crate) enum FeedsCommand {
    /// Look at the feeds when they are due, until told to end. `serve` and `worker` do the same.
    Run {
        /// Look at each feed once, now, and end.
        #[arg(long)]
        once: bool,
        #[command(flatten)]
        by: By,
    },
    /// Say how each feed goes.
    Status,
}

pub(super) async fn feeds(config: Config, command: FeedsCommand) -> anyhow::Result<()> {
    let app = App::connect(config).await?;
    check_schema(&app).await?;
    match command {
        FeedsCommand::Status => {
            let all = app.feeds.status().await?;
            if all.is_empty() {
                return print("there are no feeds: feeds.openfootball and feeds.football_data_competitions are empty");
            }
            print(&all.iter().map(|health| plain(&health.to_string())).collect::<Vec<_>>().join("\n"))
        }
        FeedsCommand::Run { .. } if !app.feeds.is_configured() => {
            bail!("there are no feeds: feeds.openfootball and feeds.football_data_competitions are empty")
        }
        FeedsCommand::Run { once: true, by } => once(&app, &by.operator()).await,
        FeedsCommand::Run { once: false, .. } => run(&app).await,
    }
}

async fn once(app: &App, operator: &Operator) -> anyhow::Result<()> {
    let (mut all, mut failed) = (0, 0);
    let looking = app.feeds.poll_once(|polled| {
        all += 1;
        failed += usize::from(polled.outcome.is_err());
        tell(polled);
    });
    app.operators.witness(operator, Deed::new("feeds.poll", "feeds"), looking, |()| json!({})).await?;
    if failed > 0 {
        bail!("{failed} of {} failed", counted(all, "feed"));
    }
    Ok(())
}

async fn run(app: &App) -> anyhow::Result<()> {
    let (length, holder) = (app.config.feeds.lease, random::uuid_v7(&*app.core.random, &*app.core.clock));
    let (feeds, closing) = (app.feeds.clone(), app.shutdown.closing().clone());
    let lease = Lease::new(LEASE, holder, length);
    app.shutdown.spawn(async move { feeds.run(lease, length / 3, closing, tell).await });
    tracing::info!("looking at feeds");
    shutdown::signalled().await?;
    tracing::info!("told to end");
    app.shutdown.end(std::time::Duration::ZERO, app.config.shutdown.drain).await;
    Ok(())
}

/// One line, and one for each change and for what should be known.
fn tell(polled: &Polled) {
    const SHOWN: usize = 20;
    let mut lines = vec![polled.to_string()];
    if let Ok(Outcome::Imported { report, notes }) = &polled.outcome {
        lines.extend(report.changes.iter().take(SHOWN).map(|change| format!("    {change}")));
        if report.changes.len() > SHOWN {
            lines.push(format!("    and {} more", report.changes.len() - SHOWN));
        }
        lines.extend(notes.iter().map(|note| format!("    note: {note}")));
    }
    let lines: Vec<String> = lines.iter().map(|line| plain(line)).collect();
    // Who does not read is not worth ending for.
    let _ = print(&lines.join("\n"));
}
