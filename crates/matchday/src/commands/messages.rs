//! `matchday messages`: removal of chat messages.

use anyhow::Context as _;
use clap::{Args, Subcommand};
use matchday::{app::App, chat::removals::service::MessageRange, config::Config, identity::operators::Operator};
use serde_json::json;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::{check_schema, print, rooms::address};

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
    }
}
