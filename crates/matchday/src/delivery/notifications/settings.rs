use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, ensure};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use phone_push::{Apns, Fcm, Now, ServiceAccount};
use platform::{
    Environment, section,
    settings::{Conditions, HostPattern, Setting},
    standard_webhooks::SigningSecret,
};
use secrecy::{ExposeSecret as _, SecretString};
use texts::{Catalogue, Locale};
use url::Url;

section! {
    /// Reminders and other notifications; see docs/notifications.md and docs/push.md.
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
        /// Maximum time for a response of a push service, FCM, APNs or the hook.
        timeout: Duration = "10s",
        /// Number of batches of users that this process notifies concurrently: as many of reminders, of invitations and
        /// mentions, and of all other kinds.
        workers: usize = "2",
        /// Number of browsers that each batch notifies concurrently.
        at_once: usize = "32",
        /// Number of notifications to devices that this process sends at the same time, over all platforms.
        /// One worker uses at most an equal share.
        device_sends: usize = "128",
        /// Locale of texts for devices whose language has no translation, and of the bot: a language tag like `de`.
        default_locale: LocaleTag = "en",
        /// Directory with a file `{locale}/messages.ftl` for each locale in which it replaces single texts; see
        /// docs/translations.md. Empty: the built-in texts.
        locales_dir: Option<String> = "",
    }
}

section! {
    /// Firebase Cloud Messaging, for devices with the platform `fcm`; see docs/push.md.
    fcm: FcmSettings {
        /// Base URL. `http` is allowed in `local` and `testing` only.
        url: Url = "https://fcm.googleapis.com",
        /// JSON key file of a service account, with `project_id`, `client_email`, `private_key` and `token_uri`. Empty: FCM
        /// is off.
        service_account_file: Option<String> = "",
        /// Number of HTTP/2 connections of this process.
        connections: usize = "2",
    }
}

section! {
    /// Apple Push Notification service, for devices with the platform `apns`; see docs/push.md.
    apns: ApnsSettings {
        /// Base URL. `http` (HTTP/2 without TLS) is allowed in `local` and `testing` only.
        url: Url = "https://api.push.apple.com",
        /// Key file (`.p8`). The four settings `key_file`, `key_id`, `team_id` and `topic` turn APNs on together.
        key_file: Option<String> = "",
        /// Id of the key.
        key_id: Option<String> = "",
        /// Id of the team that owns the key.
        team_id: Option<String> = "",
        /// Bundle id of the app.
        topic: Option<String> = "",
        /// Number of HTTP/2 connections of this process.
        connections: usize = "2",
    }
}

/// Whether a base URL may be used: `https`, or `http` in development.
fn is_usable(url: &Url, env: Environment) -> bool {
    url.has_host() && (url.scheme() == "https" || url.scheme() == "http" && env.is_development())
}

fn read(setting: &str, path: &str) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("{setting}: {path} cannot be read"))
}

impl FcmSettings {
    /// Conditions across settings, each with the message to report if it does not hold.
    pub fn conditions(&self, env: Environment) -> Conditions {
        [
            (is_usable(&self.url, env), "fcm.url must be an https URL"),
            (self.connections > 0, "fcm.connections is 0: nothing could be sent"),
        ]
        .map(|(holds, fault)| (holds, fault.to_owned()))
        .into()
    }

    /// Returns a client, if FCM is configured.
    pub(super) fn client(&self, env: Environment, timeout: Duration, now: Now) -> anyhow::Result<Option<Fcm>> {
        let Some(path) = &self.service_account_file else { return Ok(None) };
        let setting = "fcm.service_account_file";
        let account = ServiceAccount::parse(&read(setting, path)?).with_context(|| format!("{setting}: {path}"))?;
        ensure!(is_usable(account.token_uri(), env), "{setting}: {path}: token_uri must be an https URL");
        let settings =
            phone_push::FcmSettings { url: self.url.clone(), account, timeout, connections: self.connections };
        Fcm::new(settings, now).map(Some).context(setting)
    }
}

impl ApnsSettings {
    /// Conditions across settings, each with the message to report if it does not hold.
    pub fn conditions(&self, env: Environment) -> Conditions {
        let parts = [&self.key_file, &self.key_id, &self.team_id, &self.topic];
        let given = parts.iter().filter(|part| part.is_some()).count();
        [
            (is_usable(&self.url, env), "apns.url must be an https URL"),
            (self.connections > 0, "apns.connections is 0: nothing could be sent"),
            (
                given == 0 || given == parts.len(),
                "apns.key_file, apns.key_id, apns.team_id and apns.topic must be set together",
            ),
        ]
        .map(|(holds, fault)| (holds, fault.to_owned()))
        .into()
    }

    /// Returns a client, if APNs is configured.
    pub(super) fn client(&self, timeout: Duration, now: Now) -> anyhow::Result<Option<Apns>> {
        let (Some(path), Some(key_id), Some(team_id), Some(topic)) =
            (&self.key_file, &self.key_id, &self.team_id, &self.topic)
        else {
            return Ok(None);
        };
        let settings = phone_push::ApnsSettings {
            url: self.url.clone(),
            key: read("apns.key_file", path)?.into(),
            key_id: key_id.clone(),
            team_id: team_id.clone(),
            topic: topic.clone(),
            timeout,
            connections: self.connections,
        };
        Apns::new(settings, now).map(Some).with_context(|| format!("apns.key_file: {path}"))
    }
}

/// A language tag.
#[derive(Clone, Debug, Default)]
pub struct LocaleTag(pub Locale);

impl Setting for LocaleTag {
    const EXPECTED: &'static str = "a language tag, like de or pt-BR";
    const PLACEHOLDER: &'static str = "en";
    fn parse(text: &str) -> Option<Self> {
        Locale::parse(text).map(Self)
    }
    fn show(&self) -> String {
        self.0.to_string()
    }
}

impl Settings {
    /// Loads all texts. A faulty file stops the start.
    pub fn catalogue(&self) -> anyhow::Result<Arc<Catalogue>> {
        let directory = self.locales_dir.as_ref().map(PathBuf::from);
        let catalogue = Catalogue::load(&self.default_locale.0, directory.as_deref());
        catalogue.map(Arc::new).context(if directory.is_some() {
            "notifications.locales_dir"
        } else {
            "notifications.default_locale"
        })
    }

    /// Conditions across settings, each with the message to report if it does not hold.
    pub fn conditions(&self) -> Conditions {
        let subject = self.vapid_subject.as_deref();
        [
            (!self.lead.is_zero(), "notifications.lead is 0: no reminder would ever be sent"),
            (!self.timeout.is_zero(), "notifications.timeout is 0: every notification would fail"),
            (self.workers > 0, "notifications.workers is 0: no reminder would ever be sent"),
            (self.at_once > 0, "notifications.at_once is 0: no browser would ever be notified"),
            (self.device_sends > 0, "notifications.device_sends is 0: no device would ever be notified"),
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
