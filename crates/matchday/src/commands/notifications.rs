//! `matchday notifications`: keys for browser push notifications.

use clap::Subcommand;
use matchday::delivery::notifications::push;
use platform::random::SystemRandom;

use super::print;

#[derive(Subcommand)]
pub(crate) enum NotificationsCommand {
    /// Generate a VAPID key, which identifies this service to browsers' push services, and print its settings.
    Key,
}

pub(super) fn notifications(command: &NotificationsCommand) -> anyhow::Result<()> {
    match command {
        NotificationsCommand::Key => {
            let (private, public) = push::make_key(&SystemRandom)?;
            print(&format!(
                "[notifications]\nvapid_private_key = \"{private}\"\nvapid_subject = \"mailto:you@example.org\"\n\
                 # Public key, sent to browsers: {public}"
            ))
        }
    }
}
