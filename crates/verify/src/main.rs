//! `matchday-verify`: verifies receipts, seals and bundles.

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Parser, Subcommand};
use matchday_verify::{
    Report, bundle,
    chain::Chain,
    input::{self, InputError},
    proof,
};

/// Verify sealed predictions, without access to the service.
///
/// Exit code 0: verified. 1: something does not match. 2: the input cannot be read. 3: everything matches, but something
/// is flagged that proves less than it seems to.
#[derive(Parser)]
#[command(name = "matchday-verify", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Print the outcome as JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Verify the proof of a prediction, as the service returns it.
    Receipt {
        /// File with the proof, or - for standard input.
        file: PathBuf,
        /// File with seals. Also verifies that they have the seal of the proof, and no later one of its match.
        #[arg(long, value_name = "FILE")]
        chain: Option<PathBuf>,
    },
    /// Verify an array of seals: order, links and hashes.
    Chain {
        /// File with the seals, or - for standard input.
        file: PathBuf,
    },
    /// Verify the bundle of a tournament, and recompute its table.
    Bundle {
        /// File with the bundle, or - for standard input.
        file: PathBuf,
        /// File with seals. Also verifies that they have the seals of the bundle, and no others of its matches.
        #[arg(long, value_name = "FILE")]
        chain: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    let Arguments { command, json } = Arguments::parse();
    match run(&command) {
        Ok(report) => {
            let text = if json { report.to_json().to_string() } else { report.to_string() };
            // A closed output must not turn a failed verification into a success.
            let _ = writeln!(io::stdout(), "{text}");
            ExitCode::from(report.exit_code())
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(command: &Command) -> Result<Report, InputError> {
    let malformed = |path: &Path| {
        let file = path.display().to_string();
        move |error| InputError::Malformed { file, error }
    };
    let read_chain = |path: &Path| Chain::read(&input::read_value(path)?).map_err(malformed(path));
    let optional = |path: &Option<PathBuf>| path.as_deref().map(read_chain).transpose();
    match command {
        Command::Receipt { file, chain } => {
            proof::verify(&input::read_value(file)?, optional(chain)?.as_ref()).map_err(malformed(file))
        }
        Command::Chain { file } => Ok(read_chain(file)?.verify()),
        Command::Bundle { file, chain } => {
            bundle::verify(input::open(file)?, &file.display().to_string(), optional(chain)?.as_ref())
        }
    }
}
