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
    /// Match reminders; see docs/notifications.md.
    notifications: Settings {
        /// Time before the start of a match at which fans are reminded.
        lead: Duration = "1h",
        /// VAPID key that identifies this service to the push services of browsers: 32 bytes in base64, as printed by
        /// `matchday notifications key`. Empty: browsers are not notified. After a change of the key, browsers must
        /// subscribe again.
        vapid_private_key: Option<VapidKey> = "",
        /// Contact for push services in case of problems, like `mailto:ops@example.org`.
        vapid_subject: Option<String> = "",
        /// Allowed hosts of push services; `*.` stands for any subdomain. Add the push services of other browsers that
        /// your users have. Empty: any host on the internet. In `local` and `testing`, any address is allowed.
        push_services: Vec<HostPattern> = "fcm.googleapis.com,updates.push.services.mozilla.com,*.push.apple.com,*.notify.windows.com",
        /// URL of the app's push hook, which receives the users to remind. Empty: no hook.
        hook_url: Option<Url> = "",
        /// Secret that signs requests to the hook: `whsec_` and base64, see docs/webhooks.md.
        hook_secret: Option<SigningSecret> = "",
        /// Maximum time for a response of a push service or the hook.
        timeout: Duration = "10s",
        /// Number of batches of fans that this process notifies concurrently.
        workers: usize = "2",
        /// Number of browsers that each batch notifies concurrently.
        at_once: usize = "32",
    }
}

impl Settings {
    /// Conditions across settings, each with the message to report if it does not hold.
    pub fn conditions(&self) -> Conditions {
        let subject = self.vapid_subject.as_deref();
        [
            (!self.lead.is_zero(), "notifications.lead is 0: no reminder would ever be sent"),
            (!self.timeout.is_zero(), "notifications.timeout is 0: every notification would fail"),
            (self.workers > 0, "notifications.workers is 0: no reminder would ever be sent"),
            (self.at_once > 0, "notifications.at_once is 0: no browser would ever be notified"),
            (
                self.vapid_private_key.is_none() || subject.is_some(),
                "notifications.vapid_subject is not set, but notifications.vapid_private_key is",
            ),
            (
                subject.is_none_or(|subject| subject.starts_with("mailto:") || subject.starts_with("https://")),
                "notifications.vapid_subject must be like mailto:ops@example.org or https://example.org",
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

/// P-256 private key that identifies this service to push services.
#[derive(Clone, Debug)]
pub struct VapidKey(SecretString);

impl VapidKey {
    /// Returns the 32 bytes of the key.
    pub fn bytes(&self) -> Vec<u8> {
        URL_SAFE_NO_PAD.decode(self.0.expose_secret()).unwrap_or_default()
    }
}

impl Setting for VapidKey {
    const EXPECTED: &'static str = "32 bytes in URL-safe base64, 43 characters";
    const SECRET: bool = true;
    fn parse(text: &str) -> Option<Self> {
        (URL_SAFE_NO_PAD.decode(text).ok()?.len() == 32).then(|| Self(text.into()))
    }
    fn show(&self) -> String {
        "hidden".to_owned()
    }
}
