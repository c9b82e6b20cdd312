//! `matchday filters`: manage the patterns that remove chat messages.

use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use matchday::{
    app::App,
    chat::{
        filters::{
            rules::{Action, Pattern},
            service::{Filter, NewFilter},
        },
        rooms::RoomAddress,
    },
    config::Config,
};
use platform::settings::Setting as _;
use serde_json::{Value, json};
use time::format_description::well_known::Rfc3339;

use super::{By, check_schema, length, plain, print};

#[derive(Subcommand)]
pub(crate) enum FiltersCommand {
    /// Add a pattern. Messages that match are removed, and messages of the app are refused.
    Add(AddArguments),
    /// List all patterns, oldest first.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Remove a pattern.
    Remove {
        /// Filter id as printed by `list`.
        id: i64,
        #[command(flatten)]
        by: By,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args)]
pub(crate) struct AddArguments {
    /// Regular expression (syntax of the Rust crate regex), case-insensitive, at most 500 characters. It is applied to the
    /// text in Unicode NFKC without zero-width characters.
    #[arg(value_parser = str::parse::<Pattern>, allow_hyphen_values = true)]
    pattern: Pattern,
    /// Apply the pattern only in this room, given by its Matrix id.
    #[arg(long, value_parser = room)]
    room: Option<RoomAddress>,
    /// Effect of a match besides the removal: `remove` has none, `hold` keeps the text for a moderator, `mute` mutes the
    /// sender.
    #[arg(long, default_value = "remove")]
    action: Action,
    /// Length of a mute, like 10m or 1d. Without it, `filters.mute_for` applies.
    #[arg(long = "for", value_name = "TIME", value_parser = length)]
    mute_for: Option<Duration>,
    #[command(flatten)]
    by: By,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

fn room(text: &str) -> Result<RoomAddress, &'static str> {
    text.parse().map_err(|()| "must be a Matrix room id like !a:example.org")
}

pub(super) async fn filters(config: Config, command: FiltersCommand) -> anyhow::Result<()> {
    let app = App::connect(config).await?;
    check_schema(&app).await?;
    match command {
        FiltersCommand::Add(AddArguments { pattern, room, action, mute_for, by, json }) => {
            let matrix_room = room.map(|room| room.to_string());
            let new = NewFilter { pattern, matrix_room, action, mute_for };
            let filter = app.filters.add(&new, &by.operator()).await?;
            print(&if json { described(&filter).to_string() } else { format!("filter {} added", filter.id) })
        }
        FiltersCommand::List { json } => {
            let filters = app.filters.list().await?;
            if json {
                return print(&serde_json::to_string(&filters.iter().map(described).collect::<Vec<_>>())?);
            }
            let lines: Vec<String> = filters.iter().map(line).collect();
            print(&if lines.is_empty() { "no filters".to_owned() } else { lines.join("\n") })
        }
        FiltersCommand::Remove { id, by, json } => {
            app.filters.remove(id, &by.operator()).await.with_context(|| format!("filter {id}"))?;
            print(&if json { json!({"id": id, "removed": true}).to_string() } else { format!("filter {id} removed") })
        }
    }
}

fn described(filter: &Filter) -> Value {
    json!({
        "id": filter.id,
        "pattern": filter.pattern,
        "created_at": filter.created_at.format(&Rfc3339).unwrap_or_default(),
        "room_id": filter.matrix_room,
        "action": filter.action.name(),
        "mute_seconds": filter.mute_seconds,
        "reason": filter.reason,
        "created_by": filter.created_by,
    })
}

fn line(filter: &Filter) -> String {
    let at = filter.created_at.replace_nanosecond(0).unwrap_or(filter.created_at).format(&Rfc3339).unwrap_or_default();
    let mute = filter.mute_seconds.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
    let mute = mute.map(|length| format!(" for {}", length.show())).unwrap_or_default();
    let room = filter.matrix_room.as_deref().map(|room| format!(" in {room}")).unwrap_or_default();
    let reason = if filter.reason.is_empty() { String::new() } else { format!(": {}", plain(&filter.reason)) };
    let (id, pattern, action, by) =
        (filter.id, plain(&filter.pattern), filter.action.name(), plain(&filter.created_by));
    format!("{id} {action}{mute}{room} since {at} by {by}{reason}\n    {pattern}")
}
