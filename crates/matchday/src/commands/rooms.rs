//! `matchday rooms`.

use anyhow::bail;
use clap::{Subcommand, ValueEnum};
use matchday::{app::App, config::Config, operators::service::Deed, rooms::RoomAddress};
use serde_json::json;

use super::{By, check_schema, print};

#[derive(Subcommand)]
pub(crate) enum RoomsCommand {
    /// Let the bot tell a match's room what happens, or not.
    Announcements {
        /// The homeserver's id of it, like !a:example.org.
        room: String,
        /// Whether it does.
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
    let Ok(address) = room.parse::<RoomAddress>() else {
        bail!("{room} is no id of a room: it is like !a:example.org")
    };
    let app = App::connect(config).await?;
    check_schema(&app).await?;
    let on = switch == Switch::On;
    let deed = Deed::new("room.announcements", format!("room:{address}")).with(json!({"on": on}));
    let switching = async { anyhow::Ok(app.announcements.switch(&address, on).await?) };
    if !app.operators.witness(&by.operator(), deed, switching, |found| json!({"found": found})).await? {
        bail!("there is no room {room}");
    }
    print(if on { "the bot tells this room what happens" } else { "the bot is silent in this room" })
}
