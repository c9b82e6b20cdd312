//! `matchday rooms`: announcements of the bot, moderators and slow mode.

use anyhow::{Context as _, bail};
use clap::{Subcommand, ValueEnum};
use matchday::{
    app::App,
    chat::{
        room_moderation::rules::{SlowMode, UserName},
        rooms::{RoomAddress, service::Room},
    },
    config::Config,
    identity::operators::service::Action,
};
use serde_json::json;
use web::fields::FromJson as _;

use super::{By, check_schema, print};

#[derive(Subcommand)]
pub(crate) enum RoomsCommand {
    /// Turn the bot's announcements in a match room on or off.
    Announcements {
        /// Matrix room id, like !a:example.org.
        room: String,
        /// Whether the bot announces kick-off, goals and results.
        switch: Switch,
        #[command(flatten)]
        by: By,
    },
    /// List, appoint and dismiss the moderators of a room.
    #[command(subcommand)]
    Moderators(ModeratorsCommand),
    /// Limit how often each member may write in a room.
    SlowMode {
        /// Matrix room id, like !a:example.org.
        room: String,
        /// Shortest time between two messages of a member, from 0 (off) to 3600.
        seconds: i64,
        #[command(flatten)]
        by: By,
    },
}

#[derive(Subcommand)]
pub(crate) enum ModeratorsCommand {
    /// List the moderators of a room, its creator first.
    List {
        /// Matrix room id, like !a:example.org.
        room: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Make a member a moderator of a room.
    Add(ModeratorArguments),
    /// Dismiss a moderator of a room.
    Remove(ModeratorArguments),
}

#[derive(clap::Args)]
pub(crate) struct ModeratorArguments {
    /// Matrix room id, like !a:example.org.
    room: String,
    /// User id or username.
    user: String,
    #[command(flatten)]
    by: By,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

pub(crate) async fn rooms(config: Config, command: RoomsCommand) -> anyhow::Result<()> {
    let app = App::connect(config).await?;
    check_schema(&app).await?;
    match command {
        RoomsCommand::Announcements { room, switch, by } => announcements(&app, &room, switch, &by).await,
        RoomsCommand::Moderators(command) => moderators(&app, command).await,
        RoomsCommand::SlowMode { room, seconds, by } => {
            let Some(period) = SlowMode::from_json(&seconds.into()) else {
                bail!("the seconds {}", SlowMode::EXPECTED)
            };
            app.room_moderation.set_slow_mode_by(&by.operator(), &find(&app, &room).await?, period).await?;
            print(if seconds == 0 { "slow mode is off in this room" } else { "slow mode is on in this room" })
        }
    }
}

/// Parses a room id.
pub(super) fn address(room: &str) -> anyhow::Result<RoomAddress> {
    room.parse().map_err(|()| anyhow::anyhow!("{room} is not a Matrix room id like !a:example.org"))
}

async fn find(app: &App, room: &str) -> anyhow::Result<Room> {
    app.room_moderation.room(&address(room)?).await.with_context(|| room.to_owned())
}

async fn moderators(app: &App, command: ModeratorsCommand) -> anyhow::Result<()> {
    match command {
        ModeratorsCommand::List { room, json } => {
            let listed = app.room_moderation.moderators(&find(app, &room).await?).await?;
            if json {
                let listed: Vec<_> = listed.iter().map(|one| json!({"id": one.id, "username": one.username})).collect();
                return print(&serde_json::to_string(&listed)?);
            }
            let lines: Vec<String> = listed.iter().map(|one| format!("{} (user {})", one.username, one.id)).collect();
            print(&if lines.is_empty() { "no moderators".to_owned() } else { lines.join("\n") })
        }
        ModeratorsCommand::Add(ModeratorArguments { room, user, by }) => {
            let found = find(app, &room).await?;
            app.room_moderation.appoint_by(&by.operator(), &found, &user_name(&user)?).await?;
            app.wake_relay().await;
            print("the user is a moderator of this room")
        }
        ModeratorsCommand::Remove(ModeratorArguments { room, user, by }) => {
            let found = find(app, &room).await?;
            app.room_moderation.dismiss_by(&by.operator(), &found, &user_name(&user)?).await?;
            app.wake_relay().await;
            print("the user is not a moderator of this room")
        }
    }
}

fn user_name(user: &str) -> anyhow::Result<UserName> {
    user.parse().map_err(|()| anyhow::anyhow!("{user} is neither a user id nor a username"))
}

async fn announcements(app: &App, room: &str, switch: Switch, by: &By) -> anyhow::Result<()> {
    let address = address(room)?;
    let on = switch == Switch::On;
    let action = Action::new("room.announcements", format!("room:{address}")).with(json!({"on": on}));
    let switching = async { anyhow::Ok(app.announcements.switch(&address, on).await?) };
    if !app.operators.record_around(&by.operator(), action, switching, |found| json!({"found": found})).await? {
        bail!("room {room} not found");
    }
    print(if on { "announcements are on in this room" } else { "announcements are off in this room" })
}
