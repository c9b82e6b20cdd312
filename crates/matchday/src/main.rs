//! The `matchday` command.

mod commands;

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The open backend for sports-match social apps.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Arguments {
    /// A TOML file of settings; `MATCHDAY_CONFIG` names one too.
    #[arg(long, global = true)]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Answer HTTP, and do background work.
    Serve {
        /// Leave background work to `matchday worker`.
        #[arg(long)]
        no_workers: bool,
        /// Bring the database up to date first.
        #[arg(long)]
        migrate: bool,
    },
    /// Do background work only.
    Worker,
    /// Change the database's schema.
    Migrate {
        #[command(subcommand)]
        direction: Option<commands::Direction>,
    },
    /// Put matches in.
    #[command(subcommand)]
    Fixtures(commands::FixturesCommand),
    /// Matches that come in by themselves.
    #[command(subcommand)]
    Feeds(commands::FeedsCommand),
    /// Sessions for developers and load tests; not in staging or production.
    #[command(subcommand)]
    Sessions(commands::SessionsCommand),
    /// Where no codes are sent, and sending them there again.
    #[command(subcommand)]
    Sms(commands::SmsCommand),
    /// Show an account; ban or mute a user, or lift that.
    #[command(subcommand)]
    Users(commands::UsersCommand),
    /// Messages that users reported.
    #[command(subcommand)]
    Reports(commands::ReportsCommand),
    /// How well the service knows what happens in chat.
    #[command(subcommand)]
    #[command(name = "mirror")]
    MembershipSync(commands::MirrorCommand),
    /// How far results are in the scores, and putting scores right.
    #[command(subcommand)]
    Scores(commands::ScoresCommand),
    /// Prove that the money adds up; give coins, and take transactions back.
    #[command(subcommand)]
    Coins(commands::CoinsCommand),
    /// Fill an empty database with a tournament, fans, predictions and chat to look at; not in staging or production.
    Demo,
    /// Play the demo: goals, whistles, predictions and chat, faster than in earnest.
    Simulate(commands::SimulateArguments),
    /// What the bot does in rooms.
    #[command(subcommand)]
    Rooms(commands::RoomsCommand),
    /// Where app backends are told what happens, and what they did not take.
    #[command(subcommand)]
    Webhooks(commands::WebhooksCommand),
    /// What reminders in browsers need.
    #[command(subcommand)]
    Notifications(commands::NotificationsCommand),
    /// Print the description of the interface (OpenAPI 3.1, JSON).
    Openapi,
    /// Print the effective settings, where each came from and what it means.
    Config {
        /// Print a document of all settings instead, with their defaults.
        #[arg(long)]
        reference: bool,
    },
    /// Ask the process that runs here whether it lives; for containers, which have nothing else to ask with.
    Health {
        /// Ask whether it can serve, too: then the database must answer.
        #[arg(long)]
        ready: bool,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match commands::run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            commands::complain(&error);
            ExitCode::FAILURE
        }
    }
}
