//! `matchday feeds`: poll feeds and show their state.

use anyhow::bail;
use clap::Subcommand;
use matchday::{
    app::App,
    catalogue::feeds::{
        LEASE,
        service::{Outcome, Polled},
    },
    config::Config,
    identity::operators::{Operator, service::Action},
    tasks,
};
use platform::shutdown;
use serde_json::json;

use super::{By, check_schema, counted, plain, print};

#[derive(Subcommand)]
pub(crate) enum FeedsCommand {
    /// Poll feeds that are due, until interrupted. `serve` and `worker` do the same.
    Run {
        /// Poll each feed once, immediately, and exit.
        #[arg(long)]
        once: bool,
        #[command(flatten)]
        by: By,
    },
    /// Show the state of each feed.
    Status,
}

pub(super) async fn feeds(config: Config, command: FeedsCommand) -> anyhow::Result<()> {
    let app = App::connect(config).await?;
    check_schema(&app).await?;
    match command {
        FeedsCommand::Status => {
            let all = app.feeds.status().await?;
            if all.is_empty() {
                return print("no feeds configured: feeds.openfootball and feeds.football_data_competitions are empty");
            }
            print(&all.iter().map(|health| plain(&health.to_string())).collect::<Vec<_>>().join("\n"))
        }
        FeedsCommand::Run { .. } if !app.feeds.is_configured() => {
            bail!("no feeds configured: feeds.openfootball and feeds.football_data_competitions are empty")
        }
        FeedsCommand::Run { once: true, by } => once(&app, &by.operator()).await,
        FeedsCommand::Run { once: false, .. } => run(&app).await,
    }
}

async fn once(app: &App, operator: &Operator) -> anyhow::Result<()> {
    let (mut all, mut failed) = (0, 0);
    let polling = app.feeds.poll_once(|polled| {
        all += 1;
        failed += usize::from(polled.outcome.is_err());
        print_poll(polled);
    });
    app.operators.record_around(operator, Action::new("feeds.poll", "feeds"), polling, |()| json!({})).await?;
    app.wake_relay().await;
    if failed > 0 {
        bail!("{failed} of {} failed", counted(all, "feed"));
    }
    Ok(())
}

async fn run(app: &App) -> anyhow::Result<()> {
    tasks::wake_relay(app);
    let (feeds, closing) = (app.feeds.clone(), app.shutdown.closing().clone());
    let (lease, leases) = (app.leases().lease(LEASE, app.config.feeds.lease), app.leases().clone());
    let listening = closing.clone();
    app.shutdown.spawn(async move { leases.listen(listening).await });
    app.shutdown.spawn(async move { feeds.run(lease, closing, print_poll).await });
    tracing::info!("feed polling started");
    shutdown::signalled().await?;
    tracing::info!("shutdown requested");
    app.shutdown.end(std::time::Duration::ZERO, app.config.shutdown.drain).await;
    Ok(())
}

/// Prints one line for the poll, and one line for each change and note.
fn print_poll(polled: &Polled) {
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
    // A failed write to standard output does not stop the polling.
    let _ = print(&lines.join("\n"));
}
