//! `matchday scores`: progress of score jobs, and repair.

use anyhow::{Context as _, bail};
use clap::Subcommand;
use matchday::{
    app::App,
    config::Config,
    game::scores::{
        rules::Score,
        service::{Rebuild, Rerun, ScoreError},
    },
    identity::operators::{Operator, service::Action},
};
use serde_json::json;
use time::format_description::well_known::Rfc3339;
use web::ids::MatchId;

use super::{By, check_schema, print, progress_bar};

#[derive(Subcommand)]
pub(crate) enum ScoresCommand {
    /// List results that are not in all scores yet.
    Status,
    /// Apply the result of one match to all scores now, without the queue.
    Rerun {
        /// Id of the match.
        event: i64,
        #[command(flatten)]
        by: By,
    },
    /// Recompute every score from predictions, answers and results, and repair differences.
    Rebuild {
        /// Print the differences without repairing them.
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
                        "{}: result {} of {}, {}",
                        progress.source,
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
            let action = Action::new("scores.rerun", format!("event:{event}"));
            let found = app.operators.record_around(&by.operator(), action, found, |_| json!({})).await;
            let found = found.context("the scores are only partly updated; run it again")?;
            bar.finish_and_clear();
            match found {
                Rerun::NoSuchMatch => bail!("match {event} not found; GET /api/auth/events lists all matches"),
                Rerun::NothingToDo => print(&format!("match {event} has no result that changes a score")),
                Rerun::Done => print(&format!("the result of match {event} is in all scores")),
            }
        }
        ScoresCommand::Rebuild { dry_run, by } => rebuild_scores(&app, dry_run, &by.operator()).await,
    }
}

async fn rebuild_scores(app: &App, dry_run: bool, operator: &Operator) -> anyhow::Result<()> {
    /// Maximum number of differences printed in full; the summary has the total.
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
            let action = Action::new("scores.rebuild", "scores");
            app.operators.record_around(operator, action, rebuilt, |()| json!({})).await
        }
    };
    bar.finish_and_clear();
    if let Err(error @ ScoreError::Archived(_)) = outcome {
        return Err(error.into());
    }
    let shown = |score: Score| {
        let Score { points, exact, correct, settled, answered } = score;
        format!("{points} points, {exact} exact, {correct} correct, {settled} settled, {answered} answered")
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
        (0, _) => "every score matches predictions, answers and results".to_owned(),
        (total, true) => format!("{total} scores differ; run without --dry-run to repair them"),
        (total, false) => format!("{total} scores differed and were repaired"),
    });
    print(&lines.join("\n"))?;
    outcome.context("the rebuild is incomplete; run it again")?;
    if dry_run && total > 0 {
        bail!("scores differ");
    }
    Ok(())
}
