//! What people want to be notified of, and where. What workers do is in `work.rs`.

use std::{fmt, sync::Arc};

use anyhow::Context as _;
use platform::{
    Core,
    clock::Clock,
    database,
    outward::{AddressFault, Outward, Reach},
    stream::Streams,
};
use sqlx::PgPool;
use time::OffsetDateTime;
use url::Url;
use web::{
    fields::Change,
    ids::{SubscriptionId, UserId},
};

use super::{
    hook::Hook,
    notifier::Notifier,
    push::{Push, Vapid},
    rules::{MOST_SUBSCRIPTIONS, PushKeys, PushServices, QuietHours, TimeOfDay},
    settings::Settings,
    store::{self, SettingsRow, SubscriptionRow},
};
use crate::accounts;

/// How long it is remembered who had a reminder of what. A match that is postponed for longer is a new one.
const REMEMBERED: time::Duration = time::Duration::days(30);

/// The notifications.
#[derive(Clone)]
pub struct Notifications {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) db: PgPool,
    pub(super) streams: Streams,
    pub(super) config: Settings,
    pub(super) clock: Arc<dyn Clock>,
    /// In the order in which they are tried.
    pub(super) notifiers: Vec<Box<dyn Notifier>>,
    /// Where browsers' push services may be.
    reach: Reach,
    services: PushServices,
    vapid: Option<Arc<Vapid>>,
}

/// What somebody wants.
#[derive(Clone, Debug)]
pub struct Preferences {
    /// Whether they want to be reminded of matches.
    pub reminders: bool,
    /// When they must not be disturbed.
    pub quiet_hours: Option<QuietHours>,
    /// The browsers in which they want to be notified, oldest first.
    pub subscriptions: Vec<Subscription>,
}

/// A browser that somebody wants to be notified in.
#[derive(Clone)]
pub struct Subscription {
    /// Whose.
    pub user: UserId,
    /// What its owner removes it by.
    pub id: SubscriptionId,
    /// Where its push service takes messages for it.
    pub endpoint: Url,
    /// What they are encrypted with.
    pub keys: PushKeys,
    /// Since when.
    pub created_at: OffsetDateTime,
}

/// Whoever knows the whole address can post to it, so only the host is shown.
impl fmt::Debug for Subscription {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (user, id, host) = (self.user.0, self.id.0, self.endpoint.host_str());
        let mut shown = formatter.debug_struct("Subscription");
        shown.field("user", &user).field("id", &id).field("host", &host).finish_non_exhaustive()
    }
}

/// What somebody wants changed.
#[derive(Clone, Debug)]
pub struct SettingsChange {
    /// Whether they want to be reminded of matches.
    pub reminders: Option<bool>,
    /// When they must not be disturbed.
    pub quiet_hours: Change<QuietHours>,
}

/// Why a browser was not added.
#[derive(Debug, thiserror::Error)]
pub enum SubscribeError {
    /// Its push service is nowhere that can be posted to.
    #[error("the address cannot be used: {0}")]
    Address(#[from] AddressFault),
    /// Its push service is none of those that are posted to.
    #[error("the push service is not allowed")]
    Service,
    /// This service has no key for browsers.
    #[error("there is no key for browsers")]
    NoPush,
    /// The database failed.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

impl Notifications {
    /// Notifications by the ways that are set up.
    pub fn new(core: &Core, streams: Streams, settings: &Settings) -> anyhow::Result<Self> {
        let Core { db, clock, random, env, .. } = core.clone();
        let services = PushServices::of(env, &settings.push_services);
        let (reach, config) = (Reach::of(env), settings.clone());
        let mut notifiers: Vec<Box<dyn Notifier>> = Vec::new();
        // First, because it is the one that knows all devices of whoever uses the app.
        if let (Some(url), Some(secret)) = (&config.hook_url, &config.hook_secret) {
            // The operator chose it: it may well be in their own network.
            let outward = Outward::new(Reach::Anywhere, config.timeout)?;
            let (url, secret) = (url.clone(), secret.clone());
            notifiers.push(Box::new(Hook { url, secret, outward, clock: clock.clone(), random: random.clone() }));
        }
        let mut vapid = None;
        if let (Some(key), Some(subject)) = (&config.vapid_private_key, &config.vapid_subject) {
            let key = Arc::new(Vapid::new(&key.bytes(), subject).context("notifications.vapid_private_key")?);
            let (outward, at_once) = (Outward::new(reach, config.timeout)?, config.at_once);
            let (services, clock) = (services.clone(), clock.clone());
            let push = Push { vapid: Arc::clone(&key), outward, services, at_once, clock, random };
            notifiers.push(Box::new(push));
            vapid = Some(key);
        }
        Ok(Self { inner: Arc::new(Inner { db, streams, config, clock, notifiers, reach, services, vapid }) })
    }

    /// What browsers must know before they subscribe, if they can.
    pub fn public_key(&self) -> Option<String> {
        self.inner.vapid.as_ref().map(|vapid| vapid.public_key())
    }

    /// What somebody wants.
    pub async fn settings(&self, user: UserId) -> sqlx::Result<Preferences> {
        let db = &self.inner.db;
        let row = store::settings(db, user).await?;
        let quiet_hours = row.as_ref().and_then(|row| quiet(row.quiet_from, row.quiet_until, row.time_zone.as_deref()));
        let subscriptions = store::subscriptions(db, &[user.0]).await?.into_iter().filter_map(subscription).collect();
        Ok(Preferences { reminders: row.is_none_or(|row| row.reminders), quiet_hours, subscriptions })
    }

    /// Changes what is to be changed.
    pub async fn change(&self, user: UserId, change: SettingsChange) -> sqlx::Result<()> {
        let mut tx = self.inner.db.begin().await?;
        accounts::store::lock(&mut tx, user).await?;
        let before = store::settings(&mut *tx, user).await?;
        let quiet_before =
            before.as_ref().and_then(|row| quiet(row.quiet_from, row.quiet_until, row.time_zone.as_deref()));
        let after = change.quiet_hours.apply(quiet_before);
        let row = SettingsRow {
            reminders: change.reminders.unwrap_or_else(|| before.is_none_or(|row| row.reminders)),
            quiet_from: after.as_ref().map(|hours| hours.from.minutes()),
            quiet_until: after.as_ref().map(|hours| hours.until.minutes()),
            time_zone: after.as_ref().map(|hours| hours.time_zone().to_owned()),
        };
        store::save_settings(&mut tx, user, &row).await?;
        tx.commit().await
    }

    /// Notifies somebody in a browser from now on. One that is there already has its new keys; an eleventh takes the place
    /// of the oldest.
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
        let mut tx = inner.db.begin().await?;
        accounts::store::lock(&mut tx, user).await?;
        let id = store::save_subscription(&mut tx, user, endpoint.as_str(), &keys, created_at).await?;
        store::keep_latest(&mut tx, user, i64::try_from(MOST_SUBSCRIPTIONS).unwrap_or(i64::MAX)).await?;
        tx.commit().await?;
        Ok(Subscription { user, id, endpoint, keys, created_at })
    }

    /// Does not notify somebody in a browser any more; returns whether there was such a one.
    pub async fn unsubscribe(&self, user: UserId, id: SubscriptionId) -> sqlx::Result<bool> {
        store::delete_subscription(&self.inner.db, user, id).await
    }

    /// Forgets who had reminders of matches long ago; returns how many there were.
    pub async fn sweep(&self) -> sqlx::Result<u64> {
        let (db, before) = (&self.inner.db, self.inner.clock.now() - REMEMBERED);
        let plans = store::sweep_plans(db, before).await?;
        Ok(plans + database::sweep(|most| store::sweep(db, before, most)).await?)
    }
}

/// Quiet hours as they are stored. A time zone that the world gave up is as good as UTC.
pub(super) fn quiet(from: Option<i16>, until: Option<i16>, zone: Option<&str>) -> Option<QuietHours> {
    let (from, until) = (TimeOfDay::from_minutes(from?)?, TimeOfDay::from_minutes(until?)?);
    QuietHours::new(from, until, zone?).or_else(|| QuietHours::new(from, until, "UTC"))
}

/// A browser as it is stored; what cannot be read is none.
pub(super) fn subscription(row: SubscriptionRow) -> Option<Subscription> {
    let keys = PushKeys { p256dh: row.p256dh.try_into().ok()?, auth: row.auth.try_into().ok()? };
    let (user, id, created_at) = (row.user_id, row.id, row.created_at);
    Some(Subscription { user, id, endpoint: row.endpoint.parse().ok()?, keys, created_at })
}
