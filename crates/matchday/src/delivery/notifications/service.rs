//! Notification settings and push subscriptions of users. `work.rs` has the background work.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use anyhow::Context as _;
use platform::{
    Core,
    clock::Clock,
    database,
    outbound_http::{AddressFault, OutboundHttp, Reach},
    outbox,
    settings::CodeKey,
    stream::Streams,
};
use sqlx::{PgConnection, PgPool};
use texts::Catalogue;
use time::{Date, OffsetDateTime};
use tokio::sync::{Notify, Semaphore};
use url::Url;
use web::{
    fields::Change,
    ids::{SubscriptionId, UserId},
};

use super::{
    devices::service::{Devices, Platforms},
    hook::Hook,
    kinds::{Kind, Kinds},
    notifier::Notifier,
    push::{Breakers, Push, Vapid},
    rules::{MOST_SUBSCRIPTIONS, PushKeys, PushServices, QuietHours, TimeOfDay},
    sending::Senders,
    settings::{ApnsSettings, FcmSettings, Settings},
    store::{self, SettingsRow, SubscriptionRow},
};
use crate::{chat::messages::ReachChanged, identity::accounts};

/// How long sent reminders are remembered. A match that is postponed for longer counts as a new one.
const REMEMBERED: time::Duration = time::Duration::days(30);

/// Notification settings, push subscriptions and reminders. Cheap to clone.
#[derive(Clone)]
pub struct Notifications {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) db: PgPool,
    pub(super) streams: Streams,
    pub(super) config: Settings,
    pub(super) clock: Arc<dyn Clock>,
    /// Channels, in the order in which they are tried.
    pub(super) notifiers: Vec<Box<dyn Notifier>>,
    /// Restricts the network addresses of push services.
    reach: Reach,
    services: PushServices,
    vapid: Option<Arc<Vapid>>,
    pub(super) devices: Devices,
    reach_changes: ReachChanges,
    pub(super) senders: Senders,
    /// Last day whose streaks this process has planned.
    pub(super) streaks_planned: Mutex<Option<Date>>,
}

/// Tells the worker of pushers which users may need another one. A pusher of a user whose last device ended with its session
/// stays until the next change: its reports reach no device.
#[derive(Clone)]
pub(super) struct ReachChanges {
    are_sent: bool,
    written: Arc<Notify>,
}

impl ReachChanges {
    pub(super) async fn enqueue_in(&self, connection: &mut PgConnection, users: &[UserId]) -> sqlx::Result<()> {
        if !self.are_sent {
            return Ok(());
        }
        let messages: Result<Vec<_>, _> = users.iter().map(|user| ReachChanged { user_id: *user }.message()).collect();
        outbox::enqueue(connection, &messages.map_err(|error| sqlx::Error::Encode(error.into()))?).await
    }

    /// To be called after the commit.
    pub(super) fn wake_relay(&self) {
        if self.are_sent {
            self.written.notify_one();
        }
    }
}

/// What notifications are built from.
pub struct Setup<'a> {
    pub settings: &'a Settings,
    pub fcm: &'a FcmSettings,
    pub apns: &'a ApnsSettings,
    /// Keys that encrypt and hash the tokens of devices.
    pub keys: &'a [CodeKey],
    pub catalogue: Arc<Catalogue>,
    /// Whether the homeserver reports mentions, for which users need a pusher.
    pub has_pushers: bool,
}

/// Notification preferences of a user.
#[derive(Clone, Debug)]
pub struct Preferences {
    /// Whether the user wants match reminders.
    pub reminders: bool,
    /// Whether the user wants to know of places that they lost in a league.
    pub league_ranks: bool,
    pub quiet_hours: Option<QuietHours>,
    pub kinds: Kinds,
    /// Browsers to notify, oldest first.
    pub subscriptions: Vec<Subscription>,
}

/// Push subscription of a browser.
#[derive(Clone)]
pub struct Subscription {
    pub user: UserId,
    /// Id that the user passes to remove the subscription.
    pub id: SubscriptionId,
    /// URL at which the push service accepts messages.
    pub endpoint: Url,
    /// Keys for encrypting messages.
    pub keys: PushKeys,
    pub created_at: OffsetDateTime,
}

/// Shows only the host, because the full URL is a capability to send messages.
impl fmt::Debug for Subscription {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (user, id, host) = (self.user.0, self.id.0, self.endpoint.host_str());
        let mut shown = formatter.debug_struct("Subscription");
        shown.field("user", &user).field("id", &id).field("host", &host).finish_non_exhaustive()
    }
}

/// Requested change of notification preferences.
#[derive(Clone, Debug)]
pub struct SettingsChange {
    /// `None` keeps the current value.
    pub reminders: Option<bool>,
    /// `None` keeps the current value.
    pub league_ranks: Option<bool>,
    pub quiet_hours: Change<QuietHours>,
    /// Kinds to switch on or off. `reminders` counts as the kind `reminder` too.
    pub kinds: Vec<(Kind, bool)>,
}

/// Error from adding a push subscription.
#[derive(Debug, thiserror::Error)]
pub enum SubscribeError {
    /// `Reach` does not allow the URL of the push service.
    #[error("the URL cannot be used: {0}")]
    Address(#[from] AddressFault),
    /// The push service is not in `notifications.push_services`.
    #[error("the push service is not allowed")]
    Service,
    /// No VAPID key is configured.
    #[error("no VAPID key is configured")]
    NoPush,
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

impl Notifications {
    /// Sets up the channels that are configured.
    pub fn new(core: &Core, streams: Streams, setup: Setup<'_>) -> anyhow::Result<Self> {
        let Core { db, clock, random, env, .. } = core.clone();
        let Setup { settings, fcm, apns, keys, catalogue, has_pushers } = setup;
        let services = PushServices::of(env, &settings.push_services);
        let (reach, config) = (Reach::of(env), settings.clone());
        let mut notifiers: Vec<Box<dyn Notifier>> = Vec::new();
        // The hook comes first, because the app can reach all devices of its users.
        if let (Some(url), Some(secret)) = (&config.hook_url, &config.hook_secret) {
            // The operator configured this URL, so it may be in a private network.
            let http_client = OutboundHttp::new(Reach::Anywhere, config.timeout)?;
            let (url, secret) = (url.clone(), secret.clone());
            notifiers.push(Box::new(Hook { url, secret, http_client, clock: clock.clone(), random: random.clone() }));
        }
        let (mut vapid, mut web) = (None, None);
        if let (Some(key), Some(subject)) = (&config.vapid_private_key, &config.vapid_subject) {
            let key = Arc::new(Vapid::new(&key.bytes(), subject).context("notifications.vapid_private_key")?);
            let (http_client, at_once) = (OutboundHttp::new(reach, config.timeout)?, config.at_once);
            let (services, clock) = (services.clone(), clock.clone());
            let (vapid_key, breakers) = (Arc::clone(&key), Breakers::new(config.timeout));
            let push = Arc::new(Push { vapid: vapid_key, http_client, services, breakers, at_once, clock, random });
            notifiers.push(Box::new(Arc::clone(&push)));
            web = Some(push);
            vapid = Some(key);
        }
        let now: phone_push::Now = {
            let clock = clock.clone();
            Arc::new(move || clock.now())
        };
        let at_once = config.device_sends.div_ceil(config.workers.max(1));
        let senders = Senders {
            fcm: fcm.client(env, config.timeout, now.clone())?,
            apns: apns.client(config.timeout, now)?,
            web,
            catalogue,
            at_once,
            places: Semaphore::new(config.device_sends),
        };
        let platforms =
            Platforms { fcm: senders.fcm.is_some(), apns: senders.apns.is_some(), web: senders.web.is_some() };
        let reach_changes = ReachChanges { are_sent: has_pushers, written: core.outbox_written.clone() };
        let devices = Devices::new(core, keys, platforms, services.clone(), reach_changes.clone());
        let streaks_planned = Mutex::default();
        Ok(Self {
            inner: Arc::new(Inner {
                db,
                streams,
                config,
                clock,
                notifiers,
                reach,
                services,
                vapid,
                devices,
                reach_changes,
                senders,
                streaks_planned,
            }),
        })
    }

    pub fn devices(&self) -> &Devices {
        &self.inner.devices
    }

    /// Returns the VAPID public key that browsers need to subscribe, if web push is configured.
    pub fn public_key(&self) -> Option<String> {
        self.inner.vapid.as_ref().map(|vapid| vapid.public_key())
    }

    /// Returns the preferences of a user.
    pub async fn settings(&self, user: UserId) -> sqlx::Result<Preferences> {
        let db = &self.inner.db;
        let row = store::settings(db, user).await?;
        let quiet_hours = row.as_ref().and_then(|row| quiet(row.quiet_from, row.quiet_until, row.time_zone.as_deref()));
        let subscriptions = store::subscriptions(db, &[user.0]).await?.into_iter().filter_map(subscription).collect();
        let kinds = row.as_ref().map(SettingsRow::kinds).unwrap_or_default();
        let (reminders, league_ranks) = row.map_or((true, true), |row| (row.reminders, row.league_ranks));
        Ok(Preferences { reminders, league_ranks, quiet_hours, kinds, subscriptions })
    }

    /// Applies a change of preferences.
    pub async fn change(&self, user: UserId, change: SettingsChange) -> sqlx::Result<()> {
        let mut tx = platform::database::begin(&self.inner.db).await?;
        accounts::lock(&mut tx, user).await?;
        let before = store::settings(&mut *tx, user).await?;
        let quiet_before =
            before.as_ref().and_then(|row| quiet(row.quiet_from, row.quiet_until, row.time_zone.as_deref()));
        let after = change.quiet_hours.apply(quiet_before);
        let kinds = before.as_ref().map(SettingsRow::kinds).unwrap_or_default();
        let changes = change.reminders.map(|is_on| (Kind::Reminder, is_on)).into_iter().chain(change.kinds);
        let kinds = changes.fold(kinds, |kinds, (kind, is_on)| kinds.with(kind, is_on));
        let row = SettingsRow {
            reminders: kinds.has(Kind::Reminder),
            league_ranks: change.league_ranks.unwrap_or_else(|| before.as_ref().is_none_or(|row| row.league_ranks)),
            quiet_from: after.as_ref().map(|hours| hours.from.minutes()),
            quiet_until: after.as_ref().map(|hours| hours.until.minutes()),
            time_zone: after.as_ref().map(|hours| hours.time_zone().to_owned()),
            moved: kinds.has(Kind::Moved),
            result: kinds.has(Kind::Result),
            correction: kinds.has(Kind::Correction),
            passed: kinds.has(Kind::Passed),
            invitation: kinds.has(Kind::Invitation),
            mention: kinds.has(Kind::Mention),
            streak: kinds.has(Kind::Streak),
        };
        store::save_settings(&mut tx, user, &row).await?;
        let mentions_before = before.as_ref().map(SettingsRow::kinds).unwrap_or_default().has(Kind::Mention);
        if mentions_before != kinds.has(Kind::Mention) {
            self.inner.reach_changes.enqueue_in(&mut tx, &[user]).await?;
        }
        tx.commit().await?;
        self.inner.reach_changes.wake_relay();
        Ok(())
    }

    /// Adds a push subscription. A known endpoint gets the new keys; an eleventh subscription replaces the oldest.
    pub async fn subscribe(&self, user: UserId, endpoint: Url, keys: PushKeys) -> Result<Subscription, SubscribeError> {
        let inner = &*self.inner;
        if inner.vapid.is_none() {
            return Err(SubscribeError::NoPush);
        }
        inner.reach.check(&endpoint)?;
        if !inner.services.include(&endpoint) {
            return Err(SubscribeError::Service);
        }
        let created_at = inner.clock.now();
        let mut tx = platform::database::begin(&inner.db).await?;
        accounts::lock(&mut tx, user).await?;
        inner.devices.release_browser_in(&mut tx, &endpoint).await?;
        let id = store::save_subscription(&mut tx, user, endpoint.as_str(), &keys, created_at).await?;
        store::keep_latest(&mut tx, user, i64::try_from(MOST_SUBSCRIPTIONS).unwrap_or(i64::MAX)).await?;
        tx.commit().await?;
        Ok(Subscription { user, id, endpoint, keys, created_at })
    }

    /// Removes a push subscription. Returns whether it existed.
    pub async fn unsubscribe(&self, user: UserId, id: SubscriptionId) -> sqlx::Result<bool> {
        store::delete_subscription(&self.inner.db, user, id).await
    }

    /// Deletes records of old notifications. Returns how many.
    pub async fn sweep(&self) -> sqlx::Result<u64> {
        let (db, before) = (&self.inner.db, self.inner.clock.now() - REMEMBERED);
        let plans = store::sweep_plans(db, before).await?;
        let leagues = database::sweep(|most| store::sweep_league_ranks(db, before, most)).await?;
        let claims = database::sweep(|most| store::sweep_claims(db, before, most)).await?;
        let batches = database::sweep(|most| store::sweep_batches(db, before, most)).await?;
        let tokens = self.inner.devices.sweep().await?;
        Ok(plans + leagues + claims + batches + tokens + database::sweep(|most| store::sweep(db, before, most)).await?)
    }
}

/// Builds quiet hours from stored values. A time zone that no longer exists is replaced by UTC.
pub(super) fn quiet(from: Option<i16>, until: Option<i16>, zone: Option<&str>) -> Option<QuietHours> {
    let (from, until) = (TimeOfDay::from_minutes(from?)?, TimeOfDay::from_minutes(until?)?);
    QuietHours::new(from, until, zone?).or_else(|| QuietHours::new(from, until, "UTC"))
}

/// Builds a subscription from its row; `None` if the row is not valid.
pub(super) fn subscription(row: SubscriptionRow) -> Option<Subscription> {
    let keys = PushKeys { p256dh: row.p256dh.try_into().ok()?, auth: row.auth.try_into().ok()? };
    let (user, id, created_at) = (row.user_id, row.id, row.created_at);
    Some(Subscription { user, id, endpoint: row.endpoint.parse().ok()?, keys, created_at })
}
