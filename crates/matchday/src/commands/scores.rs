//! What an operator does about scores.

use anyhow::{Context as _, bail};
use clap::Subcommand;
use matchday::{
    app::App,
    config::Config,
    game::scores::{
        rules::Score,
        service::{Rebuild, Rerun},
    },
    identity::operators::{Operator, service::Deed},
};
use serde_json::json;
use time::format_description::well_known::Rfc3339;
use web::ids::MatchId;

use super::{By, check_schema, print, progress_bar};

#[derive(Subcommand)]
pub(crate) enum ScoresCommand {
    /// Say which results are not in all scores yet.
    Status,
    /// Bring the scores of one match up to its result here and now, whatever the queue does.
    Rerun {
        /// The match.
        event: i64,
        #[command(flatten)]
        by: By,
    },
    /// Work every score out anew from predictions and results, and put right what differs.
    Rebuild {
        /// Only say what differs.
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        by: By,
    },
}

pub(super) async fn scores(config: Config, command: ScoresCommand) -> anyhow::Result<()> {
    let app = App::connect(config).await?;
    check_schema(&app).await?;
    match command {
        ScoresCommand::Status => {
            let behind = app.scores.in_progress().await?;
            if behind.is_empty() {
                return print("every result is in all scores");
            }
            let lines: Vec<String> = behind
                .iter()
                .map(|progress| {
                    let since = progress.recorded_at.replace_nanosecond(0).unwrap_or(progress.recorded_at);
                    format!(
                        "match {}: result {} of {}, {}",
                        progress.event,
                        progress.revision,
                        since.format(&Rfc3339).unwrap_or_default(),
                        match progress.chunks {
                            0 => "not planned yet".to_owned(),
                            chunks => format!("{} of {chunks} chunks done", progress.done),
                        }
                    )
                })
                .collect();
            print(&lines.join("\n"))
        }
        ScoresCommand::Rerun { event, by } => {
            let bar = progress_bar(0, "chunks");
            let found = app.scores.rerun(MatchId(event), |done, chunks| {
                bar.set_length(chunks as u64);
                bar.set_position(done as u64);
            });
            let deed = Deed::new("scores.rerun", format!("event:{event}"));
            let found = app.operators.witness(&by.operator(), deed, found, |_| json!({})).await;
            let found = found.context("scores are in step as far as they could be; run it again")?;
            bar.finish_and_clear();
            match found {
                Rerun::NoSuchMatch => bail!("there is no match {event}; GET /api/auth/events lists them"),
                Rerun::NothingToDo => print(&format!("match {event} has no result that anybody gains or loses by")),
                Rerun::Done => print(&format!("the result of match {event} is in all scores")),
            }
        }
        ScoresCommand::Rebuild { dry_run, by } => rebuild_scores(&app, dry_run, &by.operator()).await,
    }
}

async fn rebuild_scores(app: &App, dry_run: bool, operator: &Operator) -> anyhow::Result<()> {
    /// More would be a wall of text; the number says how many there are.
    const SHOWN: usize = 20;
    let bar = progress_bar(0, "users");
    let (mut differences, mut total) = (Vec::new(), 0_usize);
    let mode = if dry_run { Rebuild::DryRun } else { Rebuild::Repair };
    let progress = |done: i64, of: i64| {
        bar.set_length(of.unsigned_abs());
        bar.set_position(done.unsigned_abs());
    };
    let rebuilt = app.scores.rebuild(mode, progress, |difference| {
        total += 1;
        if differences.len() < SHOWN {
            differences.push(difference);
        }
    });
    let outcome = match mode {
        Rebuild::DryRun => rebuilt.await,
        Rebuild::Repair => {
            let deed = Deed::new("scores.rebuild", "scores");
            app.operators.witness(operator, deed, rebuilt, |()| json!({})).await
        }
    };
    bar.finish_and_clear();
    let shown = |score: Score| {
        format!("{} points, {} exact, {} correct, {} settled", score.points, score.exact, score.correct, score.settled)
    };
    let mut lines: Vec<String> = differences
        .iter()
        .map(|difference| {
            let (found, expected) = (shown(difference.found), shown(difference.expected));
            format!("user {} in {}: {found}; should be {expected}", difference.user, difference.scope)
        })
        .collect();
    if total > SHOWN {
        lines.push(format!("… and {} more", total - SHOWN));
    }
    lines.push(match (total, dry_run) {
        (0, _) => "every score is what predictions and results make it".to_owned(),
        (total, true) => format!("{total} scores differ; without --dry-run they are put right"),
        (total, false) => format!("{total} scores differed and were put right"),
    });
    print(&lines.join("\n"))?;
    outcome.context("not all of it could be done; run it again")?;
    if dry_run && total > 0 {
        bail!("scores differ");
    }
    Ok(())
}
