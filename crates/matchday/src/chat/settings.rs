//! Settings of the Matrix homeserver.

use std::time::Duration;

use platform::{
    Environment, section,
    settings::{Conditions, Secret},
};
use url::Url;

section! {
    /// The Matrix homeserver: chat.
    matrix: Matrix {
        /// Where this process reaches its client-server interface. Empty: no chat.
        homeserver_url: Option<Url> = "",
        /// Where chat clients reach it, like `https://chat.example.org`. Empty, in development: at the same address.
        public_url: Option<Url> = "",
        /// What stands behind the colon of its users' ids, as in `@ada:example.org`.
        server_name: Option<String> = "",
        /// The `as_token` of this service's registration on the homeserver, by which it acts for users.
        as_token: Option<Secret> = "",
        /// The localpart of the service's own chat user, the registration's `sender_localpart`. It makes all rooms.
        bot: String = "matchday",
        /// The `id` of the registration by which the homeserver pushes what happens in rooms.
        push_id: String = "matchday_push",
        /// Its `as_token`.
        push_token: Option<Secret> = "",
        /// Its `hs_token`: what the homeserver shows when it pushes.
        hs_token: Option<Secret> = "",
        /// The access token of an administrator of the homeserver, who suspends users. Empty: users that are banned or
        /// muted here lose their chat devices instead, and get no new ones until that is over.
        admin_token: Option<Secret> = "",
        /// How long one call may take.
        timeout: Duration = "4s",
    }
}

impl Matrix {
    /// Conditions across keys, each with the fault to report where it does not hold.
    pub fn conditions(&self, env: Environment) -> Conditions {
        let (wanted, needed_by) = (self.homeserver_url.is_some(), "matrix.homeserver_url is");
        let mut conditions: Conditions = [
            ("matrix.server_name", self.server_name.is_some(), needed_by),
            (
                "matrix.public_url",
                self.public_url.is_some() || env.is_development(),
                "matrix.homeserver_url is, and clients must not be sent to an inner address",
            ),
            ("matrix.as_token", self.as_token.is_some(), needed_by),
            ("matrix.push_token", self.push_token.is_some(), needed_by),
            ("matrix.hs_token", self.hs_token.is_some(), needed_by),
        ]
        .map(|(key, is_set, because)| (!wanted || is_set, format!("{key} is not set, but {because}")))
        .into();
        let is_localpart = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._=-/+".contains(&byte);
        conditions.push((
            !self.bot.is_empty() && self.bot.bytes().all(is_localpart),
            "matrix.bot is no localpart of a Matrix user: only a-z, 0-9 and . _ = - / + are allowed".to_owned(),
        ));
        conditions
    }
}
