//! Pushers: the homeserver reports events that concern a user to a URL (Push Gateway API).

use ruma::{
    api::client::push::{PusherIds, PusherInit, PusherKind, set_pusher},
    push::HttpPusherData,
};
use url::Url;

use crate::{Error, Homeserver, homeserver::Acting};

/// Application id of our pushers. Together with the push key, it identifies a pusher of a user.
const APP_ID: &str = "matchday";

impl Homeserver {
    /// Sets the pusher of a user, or replaces the one with the same key. Synapse requires the path
    /// `/_matrix/push/v1/notify`.
    pub async fn set_pusher(&self, localpart: &str, key: &str, url: &Url) -> Result<(), Error> {
        let pusher = PusherInit {
            ids: PusherIds::new(key.to_owned(), APP_ID.to_owned()),
            // Without a format: `event_id_only` would leave out whether the event is a highlight.
            kind: PusherKind::Http(HttpPusherData::new(url.to_string())),
            app_display_name: "Matchday".to_owned(),
            device_display_name: "Matchday".to_owned(),
            profile_tag: None,
            lang: "en".to_owned(),
        };
        self.change_pusher(localpart, set_pusher::v3::Request::post(pusher.into())).await
    }

    /// Removes a pusher. Succeeds if the pusher or the user does not exist.
    pub async fn remove_pusher(&self, localpart: &str, key: &str) -> Result<(), Error> {
        let ids = PusherIds::new(key.to_owned(), APP_ID.to_owned());
        match self.change_pusher(localpart, set_pusher::v3::Request::delete(ids)).await {
            Err(Error::NoSuchUser(_) | Error::Deactivated(_)) => Ok(()),
            result => result,
        }
    }

    async fn change_pusher(&self, localpart: &str, request: set_pusher::v3::Request) -> Result<(), Error> {
        let user_id = self.user_id(localpart)?;
        self.call(request, &user_id, Acting::AsTheUser).await.map(|_| ())
    }
}
