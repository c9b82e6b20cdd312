//! Settings of the Matrix homeserver.

use std::time::Duration;

use platform::{
    Environment, section,
    settings::{Conditions, Secret},
};
use url::Url;

section! {
    /// The Matrix homeserver, which provides chat.
    matrix: Matrix {
        /// URL at which this process reaches the homeserver's client-server API. Empty: chat is disabled.
        homeserver_url: Option<Url> = "",
        /// URL at which chat clients reach the homeserver, for example `https://chat.example.org`. Empty, in
        /// development: same as `homeserver_url`.
        public_url: Option<Url> = "",
        /// Server name of the homeserver: the part after the colon in user ids such as `@ada:example.org`.
        server_name: Option<String> = "",
        /// The `as_token` of this service's registration on the homeserver, with which it acts for users.
        as_token: Option<Secret> = "",
        /// Localpart of the service's bot user, the registration's `sender_localpart`. The bot creates all rooms.
        bot: String = "matchday",
        /// The `id` of the registration through which the homeserver pushes room events.
        push_id: String = "matchday_push",
        /// The `as_token` of the push registration.
        push_token: Option<Secret> = "",
        /// The `hs_token` of the push registration, which the homeserver sends with each push.
        hs_token: Option<Secret> = "",
        /// URL at which the homeserver reaches `http.private_listen`, for example `http://10.0.0.9:9090`. It reports mentions
        /// there, see docs/running-the-homeserver.md. Empty: users are not notified of mentions.
        gateway_url: Option<Url> = "",
        /// Access token of a homeserver administrator, used to suspend users and, on account deletion, to redact
        /// messages and delete uploads. Empty: users who are banned or muted lose their chat devices instead, and get
        /// no new ones until the ban or mute ends; messages and uploads of deleted accounts stay on the homeserver.
        admin_token: Option<Secret> = "",
        /// Time limit for a chat login, and for waiting in a room's join queue. A single call to the homeserver is
        /// limited to three quarters of it.
        timeout: Duration = "4s",
    }
}

impl Matrix {
    /// Conditions that involve several settings, each with the message to report if it does not hold.
    pub fn conditions(&self, env: Environment) -> Conditions {
        let (enabled, needed_by) = (self.homeserver_url.is_some(), "matrix.homeserver_url is");
        let mut conditions: Conditions = [
            ("matrix.server_name", self.server_name.is_some(), needed_by),
            (
                "matrix.public_url",
                self.public_url.is_some() || env.is_development(),
                "matrix.homeserver_url is, and clients must not receive an internal address",
            ),
            ("matrix.as_token", self.as_token.is_some(), needed_by),
            ("matrix.push_token", self.push_token.is_some(), needed_by),
            ("matrix.hs_token", self.hs_token.is_some(), needed_by),
        ]
        .map(|(key, is_set, because)| (!enabled || is_set, format!("{key} is not set, but {because}")))
        .into();
        let is_localpart = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._=-/+".contains(&byte);
        conditions.push((
            !self.bot.is_empty() && self.bot.bytes().all(is_localpart),
            "matrix.bot is not a valid Matrix localpart: only a-z, 0-9 and . _ = - / + are allowed".to_owned(),
        ));
        conditions
    }
}
