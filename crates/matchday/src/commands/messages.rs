//! `matchday messages`: chat messages that a filter held for review.

use clap::Subcommand;
use matchday::{app::App, chat::filters::held::HeldMessage, config::Config};
use serde_json::{Value, json};
use time::format_description::well_known::Rfc3339;

use super::{By, check_schema, plain, print};

/// Number of messages that are read at once.
const PAGE: i64 = 500;

#[derive(Subcommand)]
pub(crate) enum MessagesCommand {
    /// List messages that wait for a decision, oldest first, with their texts.
    Held {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Send a held message again, as its sender.
    Release {
        /// Id as printed by `held`.
        id: i64,
        #[command(flatten)]
        by: By,
    },
    /// Reject a held message and delete its text.
    Reject {
        /// Id as printed by `held`.
        id: i64,
        #[command(flatten)]
        by: By,
    },
}

pub(super) async fn messages(config: Config, command: MessagesCommand) -> anyhow::Result<()> {
    let app = App::connect(config).await?;
    check_schema(&app).await?;
    match command {
        MessagesCommand::Held { json } => {
            let mut held = Vec::new();
            loop {
                let page = app.filters.held(held.last().map_or(0, |last: &HeldMessage| last.id), PAGE).await?;
                if page.is_empty() {
                    break;
                }
                held.extend(page);
            }
            if json {
                return print(&serde_json::to_string(&held.iter().map(described).collect::<Vec<_>>())?);
            }
            let lines: Vec<String> = held.iter().map(lines).collect();
            print(&if lines.is_empty() { "no held messages".to_owned() } else { lines.join("\n") })
        }
        MessagesCommand::Release { id, by } => {
            let event_id = app.filters.release(id, &by.operator()).await?;
            print(&format!("message {id} sent as {event_id}"))
        }
        MessagesCommand::Reject { id, by } => {
            app.filters.reject(id, &by.operator()).await?;
            print(&format!("message {id} rejected"))
        }
    }
}

fn described(held: &HeldMessage) -> Value {
    json!({
        "id": held.id,
        "room_id": held.matrix_room,
        "sender": held.sender,
        "event_id": held.event_id,
        "filter": held.filter,
        "body": held.body,
        "other_texts": held.others,
        "created_at": held.created_at.format(&Rfc3339).unwrap_or_default(),
    })
}

fn lines(held: &HeldMessage) -> String {
    let at = held.created_at.replace_nanosecond(0).unwrap_or(held.created_at).format(&Rfc3339).unwrap_or_default();
    let text = held.body.as_deref().map_or_else(
        || "(the text cannot be decrypted: webhooks.keys lacks the key that encrypted it)".to_owned(),
        plain,
    );
    let others: String = held.others.iter().map(|text| format!("\n    also: {}", plain(text))).collect();
    let (id, sender, room, filter) = (held.id, plain(&held.sender), &held.matrix_room, plain(&held.filter));
    format!("{id} {at} {sender} in {room}, {filter}\n    {text}{others}")
}
