//! `matchday messages`: removal of chat messages, and review of messages held by a filter.

use anyhow::Context as _;
use clap::{Args, Subcommand};
use matchday::{
    app::App,
    chat::{filters::held::HeldMessage, removals::service::MessageRange},
    config::Config,
    identity::operators::Operator,
};
use serde_json::{Value, json};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::{By, check_schema, plain, print, rooms::address};

/// Number of messages that are read at once.
const PAGE: i64 = 500;

#[derive(Subcommand)]
pub(crate) enum MessagesCommand {
    /// Remove a message from a room.
    Remove {
        /// Matrix room id, like !a:example.org.
        room: String,
        /// Matrix event id of the message, like $a.
        event: String,
        #[command(flatten)]
        because: Because,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Remove all messages of a user from a room, or those in a range of time.
    RemoveAll {
        /// Matrix room id, like !a:example.org.
        room: String,
        /// User id or username.
        user: String,
        /// Only messages sent at or after this time, like 2026-11-20T15:00:00Z.
        #[arg(long, value_parser = moment)]
        since: Option<OffsetDateTime>,
        /// Only messages sent at or before this time.
        #[arg(long, value_parser = moment)]
        until: Option<OffsetDateTime>,
        #[command(flatten)]
        because: Because,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
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

#[derive(Args)]
pub(crate) struct Because {
    /// Reason, shown in the room and to the sender, and stored in the operator log.
    #[arg(long)]
    reason: String,
    /// Name of the operator, stored in the operator log.
    #[arg(long = "by", default_value = "the command line")]
    operator: String,
}

impl Because {
    fn operator(&self) -> Operator {
        Operator::new(&self.operator, &self.reason)
    }
}

fn moment(text: &str) -> Result<OffsetDateTime, &'static str> {
    OffsetDateTime::parse(text, &Rfc3339).map_err(|_| "not a time like 2026-11-20T15:00:00Z")
}

pub(crate) async fn messages(config: Config, command: MessagesCommand) -> anyhow::Result<()> {
    let app = App::connect(config).await?;
    check_schema(&app).await?;
    match command {
        MessagesCommand::Remove { room, event, because, json } => {
            let removed = app.removals.remove_by_operator(&address(&room)?, &event, &because.operator()).await;
            app.wake_relay().await;
            removed.with_context(|| format!("{room} {event}"))?;
            let done = json!({"room_id": room, "event_id": event, "removed": true});
            print(&if json { done.to_string() } else { "message removed".to_owned() })
        }
        MessagesCommand::RemoveAll { room, user, since, until, because, json } => {
            let sender = app.moderation.user(&user).await.with_context(|| user.clone())?;
            let range = MessageRange { sender, since, until };
            let removed = app.removals.remove_all(&address(&room)?, range, &because.operator()).await;
            app.wake_relay().await;
            let removed = removed.with_context(|| room.clone())?;
            let done = json!({"room_id": room, "user_id": sender, "messages": removed});
            print(&if json { done.to_string() } else { format!("removal of {removed} messages planned") })
        }
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
    let others: Vec<String> = held.others.iter().map(|text| format!("\n    also: {}", plain(text))).collect();
    let others = others.concat();
    let (id, sender, room, filter) = (held.id, plain(&held.sender), &held.matrix_room, plain(&held.filter));
    format!("{id} {at} {sender} in {room}, {filter}\n    {text}{others}")
}
