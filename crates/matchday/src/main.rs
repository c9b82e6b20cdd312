//! Command line of the service.

mod commands;

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The open backend for sports-match social apps.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Arguments {
    /// TOML file with settings; overrides `MATCHDAY_CONFIG`.
    #[arg(long, global = true)]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the HTTP API and run background tasks.
    Serve {
        /// Leave background tasks to `matchday worker`.
        #[arg(long)]
        no_workers: bool,
        /// Apply missing migrations first.
        #[arg(long)]
        migrate: bool,
    },
    /// Run background tasks only.
    Worker,
    /// Apply, revert or check database migrations.
    Migrate {
        #[command(subcommand)]
        direction: Option<commands::Direction>,
    },
    /// Import matches, teams and tournaments from a document.
    #[command(subcommand)]
    Fixtures(commands::FixturesCommand),
    /// Poll feeds of matches, or show their state.
    #[command(subcommand)]
    Feeds(commands::FeedsCommand),
    /// Issue sessions for development and load tests; not in staging or production.
    #[command(subcommand)]
    Sessions(commands::SessionsCommand),
    /// List networks, number blocks and countries whose login codes are limited, or lift a limit.
    #[command(subcommand)]
    Sms(commands::SmsCommand),
    /// Show an account; ban, unban, mute or unmute a user.
    #[command(subcommand)]
    Users(commands::UsersCommand),
    /// List, claim and close reports of chat messages.
    #[command(subcommand)]
    Reports(commands::ReportsCommand),
    /// Show the state of the membership sync, or compare all rooms with the homeserver.
    #[command(subcommand)]
    Memberships(commands::MembershipsCommand),
    /// Show unfinished score jobs, score a match again, or rebuild all scores.
    #[command(subcommand)]
    Scores(commands::ScoresCommand),
    /// Publish what others need to verify the predictions and tables of this service.
    #[command(subcommand)]
    Seals(commands::SealsCommand),
    /// Audit the ledger, grant coins, or reverse transactions.
    #[command(subcommand)]
    Coins(commands::CoinsCommand),
    /// Create, list, rotate and revoke the keys of backends for the server API.
    #[command(subcommand)]
    Keys(commands::KeysCommand),
    /// List actions of operators and backends.
    #[command(subcommand)]
    Audit(commands::AuditCommand),
    /// Fill an empty database with a tournament, fans, predictions and chat; not in staging or production.
    Demo,
    /// Simulate matches of the demo in accelerated time: goals, results, predictions and chat.
    Simulate(commands::SimulateArguments),
    /// Manage moderators, slow mode and announcements of rooms.
    #[command(subcommand)]
    Rooms(commands::RoomsCommand),
    /// Manage the patterns that remove chat messages.
    #[command(subcommand)]
    Filters(commands::FiltersCommand),
    /// Remove chat messages, and decide on messages held for review by a filter.
    #[command(subcommand)]
    Messages(commands::MessagesCommand),
    /// Manage webhook endpoints, and replay failed deliveries.
    #[command(subcommand)]
    Webhooks(commands::WebhooksCommand),
    /// Generate the key for browser push notifications.
    #[command(subcommand)]
    Notifications(commands::NotificationsCommand),
    /// Print the OpenAPI 3.1 description of the HTTP API as JSON.
    Openapi {
        /// Describe the server API instead.
        #[arg(long)]
        server: bool,
    },
    /// Print the effective settings with their origin and meaning.
    Config {
        /// Print the reference of all settings and their defaults instead.
        #[arg(long)]
        reference: bool,
    },
    /// Check that the process on this machine is alive; for container images without an HTTP client.
    Health {
        /// Also check that it can serve requests, which requires the database.
        #[arg(long)]
        ready: bool,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match commands::run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            commands::print_error(&error);
            ExitCode::FAILURE
        }
    }
}
