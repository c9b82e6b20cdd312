//! Settings of notifications.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use platform::{
    section,
    settings::{Conditions, HostPattern, Setting},
    standard_webhooks::SigningSecret,
};
use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

section! {
    /// Reminders of matches: see docs/notifications.md.
    notifications: Settings {
        /// How long before a match begins its fans are reminded of it.
        lead: Duration = "1h",
        /// The key that browsers' push services know us by (VAPID): 32 bytes in base64, as `matchday notifications key` makes
        /// one. Empty: browsers are not notified. Browsers that subscribed under another key must subscribe again.
        vapid_private_key: Option<VapidKey> = "",
        /// Whom push services write to when something is wrong, like `mailto:ops@example.org`.
        vapid_subject: Option<String> = "",
        /// The hosts of browsers' push services that are posted to; `*.` stands for any subdomain. Add those of other browsers
        /// that your users have. Empty: any host on the internet. In `local` and `testing` any address is taken.
        push_services: Vec<HostPattern> = "fcm.googleapis.com,updates.push.services.mozilla.com,*.push.apple.com,*.notify.windows.com",
        /// Where the app's own push is told whom to remind. Empty: nowhere.
        hook_url: Option<Url> = "",
        /// What that is signed with: `whsec_` and base64, see docs/webhooks.md.
        hook_secret: Option<SigningSecret> = "",
        /// How long a push service or the hook may take to answer.
        timeout: Duration = "10s",
        /// How many batches of fans this process notifies at once.
        workers: usize = "2",
        /// How many browsers each of them notifies at once.
        at_once: usize = "32",
    }
}

impl Settings {
    /// Conditions across keys, each with the fault to report where it does not hold.
    pub fn conditions(&self) -> Conditions {
        let subject = self.vapid_subject.as_deref();
        [
            (!self.lead.is_zero(), "notifications.lead is 0: nobody could be reminded of anything"),
            (!self.timeout.is_zero(), "notifications.timeout is 0: every notification would fail"),
            (self.workers > 0, "notifications.workers is 0: nobody would ever be notified"),
            (self.at_once > 0, "notifications.at_once is 0: nobody would ever be notified"),
            (
                self.vapid_private_key.is_none() || subject.is_some(),
                "notifications.vapid_subject is not set, but notifications.vapid_private_key is",
            ),
            (
                subject.is_none_or(|subject| subject.starts_with("mailto:") || subject.starts_with("https://")),
                "notifications.vapid_subject is neither like mailto:ops@example.org nor like https://example.org",
            ),
            (
                self.hook_url.is_none() || self.hook_secret.is_some(),
                "notifications.hook_secret is not set, but notifications.hook_url is",
            ),
        ]
        .map(|(holds, fault)| (holds, fault.to_owned()))
        .into()
    }
}

/// A private key of P-256 by which push services know this service.
#[derive(Clone, Debug)]
pub struct VapidKey(SecretString);

impl VapidKey {
    /// Its 32 bytes.
    pub fn bytes(&self) -> Vec<u8> {
        URL_SAFE_NO_PAD.decode(self.0.expose_secret()).unwrap_or_default()
    }
}

impl Setting for VapidKey {
    const EXPECTED: &'static str = "32 bytes in base64 as it stands in addresses, 43 characters";
    const SECRET: bool = true;
    fn parse(text: &str) -> Option<Self> {
        (URL_SAFE_NO_PAD.decode(text).ok()?.len() == 32).then(|| Self(text.into()))
    }
    fn show(&self) -> String {
        "hidden".to_owned()
    }
}
