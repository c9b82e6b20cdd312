//! What an operator does about notifications.

use clap::Subcommand;
use matchday::notifications::push;
use platform::random::SystemRandom;

use super::print;

#[derive(Subcommand)]
pub(crate) enum NotificationsCommand {
    /// Make a key by which browsers' push services know this service, and print the settings for it.
    Key,
}

pub(super) fn notifications(command: &NotificationsCommand) -> anyhow::Result<()> {
    match command {
        NotificationsCommand::Key => {
            let (private, public) = push::make_key(&SystemRandom)?;
            print(&format!(
                "[notifications]\nvapid_private_key = \"{private}\"\nvapid_subject = \"mailto:you@example.org\"\n\
                 # Browsers see this part of it: {public}"
            ))
        }
    }
}
