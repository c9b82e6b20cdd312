//! `matchday rooms`: announcements of the bot.

use anyhow::bail;
use clap::{Subcommand, ValueEnum};
use matchday::{app::App, chat::rooms::RoomAddress, config::Config, identity::operators::service::Action};
use serde_json::json;

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
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

pub(crate) async fn rooms(config: Config, command: RoomsCommand) -> anyhow::Result<()> {
    let RoomsCommand::Announcements { room, switch, by } = command;
    let Ok(address) = room.parse::<RoomAddress>() else { bail!("{room} is not a Matrix room id like !a:example.org") };
    let app = App::connect(config).await?;
    check_schema(&app).await?;
    let on = switch == Switch::On;
    let action = Action::new("room.announcements", format!("room:{address}")).with(json!({"on": on}));
    let switching = async { anyhow::Ok(app.announcements.switch(&address, on).await?) };
    if !app.operators.record_around(&by.operator(), action, switching, |found| json!({"found": found})).await? {
        bail!("room {room} not found");
    }
    print(if on { "announcements are on in this room" } else { "announcements are off in this room" })
}
