//! `matchday seals`: bundles for public verification.

use std::{
    fs::File,
    io::{BufWriter, Write as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use clap::Subcommand;
use flate2::{Compression, write::GzEncoder};
use matchday::{
    app::App,
    config::Config,
    game::seals::bundle::{BundleError, Summary},
};
use serde_json::json;

use super::{check_schema, print};

#[derive(Subcommand)]
pub(crate) enum SealsCommand {
    /// Write the public bundle of a tournament: seals, sealed predictions, results, rules and table, without names.
    Bundle {
        /// Slug or id of the tournament.
        tournament: String,
        /// File to write. If its name ends in .gz, it is compressed.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// Print the summary as JSON.
        #[arg(long)]
        json: bool,
    },
}

pub(super) async fn seals(config: Config, command: SealsCommand) -> anyhow::Result<()> {
    let app = App::connect(config).await?;
    check_schema(&app).await?;
    match command {
        SealsCommand::Bundle { tournament, out, json } => bundle(&app, &tournament, &out, json).await,
    }
}

async fn bundle(app: &App, tournament: &str, out: &Path, as_json: bool) -> anyhow::Result<()> {
    // A file beside the final one, so that readers never see a part of a bundle.
    let mut name = out.file_name().with_context(|| format!("{} is not a file name", out.display()))?.to_owned();
    name.push(".part");
    let part = out.with_file_name(name);
    let written = write(app, tournament, out, &part).await;
    let summary = match written {
        Ok(summary) => summary,
        Err(error) => {
            let _ = std::fs::remove_file(&part);
            return Err(error);
        }
    };
    std::fs::rename(&part, out).with_context(|| format!("{} cannot be written", out.display()))?;
    let Summary { events, predictions, withheld, rows } = summary;
    if as_json {
        let summary = json!({
            "file": out.display().to_string(), "events": events, "predictions": predictions, "withheld": withheld,
            "rows": rows,
        });
        return print(&summary.to_string());
    }
    print(&format!("{}: {events} matches, {predictions} predictions ({withheld} withheld), {rows} rows", out.display()))
}

async fn write(app: &App, tournament: &str, out: &Path, part: &Path) -> anyhow::Result<Summary> {
    let file = File::create(part).with_context(|| format!("{} cannot be written", out.display()))?;
    let file = BufWriter::new(file);
    let is_compressed = out.extension().is_some_and(|extension| extension == "gz");
    let written = if is_compressed {
        let mut encoder = GzEncoder::new(file, Compression::default());
        let written = app.seals.write_bundle(tournament, &mut encoder).await;
        encoder.finish()?.flush()?;
        written
    } else {
        app.seals.write_bundle(tournament, file).await
    };
    match written {
        Ok(summary) => Ok(summary),
        Err(BundleError::NoSuchTournament) => {
            bail!("tournament {tournament} not found; GET /api/auth/tournaments lists all tournaments")
        }
        Err(error) => Err(error).context("the bundle is incomplete; run it again"),
    }
}
