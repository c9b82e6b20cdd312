//! Sends notifications to devices.
//!
//! Notifications are claimed before they are sent, so that no user is notified twice. A change or a result of a match
//! concerns all users with a prediction, so a worker claims ranges of these users (`batches.rs`). Other notifications are
//! claimed one by one: a row for each user, kind, subject and revision. If the worker dies, or does not learn whether its
//! claim was committed, claimed users are not notified: at most [`CLAIMED_AT_ONCE`], and those whose requests were waiting
//! or under way.
//!
//! If a provider asks to try again later, the notification is stored for the device, and deleted before the next attempt.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use futures_util::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use phone_push::{Apns, Fcm, Notification, Outcome};
use texts::Catalogue;
use time::OffsetDateTime;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use web::ids::UserId;

use super::{
    batches::BatchClaims,
    current,
    devices::{rules::Token, service::Target},
    kinds::{Alert, Kind, pause},
    push::{Envelope, Push},
    rules::QuietHours,
    service::{Notifications, quiet},
    store::{self, Retry, Wishes},
};

/// Number of users claimed together.
pub(super) const CLAIMED_AT_ONCE: usize = 50;
/// Number of postponed notifications that are taken together. These are lost if the worker dies.
const RETRIED_AT_ONCE: i64 = 100;

/// Clients of the push providers that are configured.
pub(super) struct Senders {
    pub(super) fcm: Option<Fcm>,
    pub(super) apns: Option<Apns>,
    pub(super) web: Option<Arc<Push>>,
    pub(super) catalogue: Arc<Catalogue>,
    /// Number of notifications that one worker sends at the same time.
    pub(super) at_once: usize,
    /// Limits the notifications that this process sends at the same time.
    pub(super) places: Semaphore,
}

impl Senders {
    /// Makes one attempt.
    async fn send(&self, attempt: &Attempt<'_>, now: OffsetDateTime) -> Outcome {
        // The semaphore is never closed.
        let _place = self.places.acquire().await;
        let Attempt { target, alert, notification, .. } = attempt;
        match (&target.token, &self.fcm, &self.apns, &self.web) {
            (Token::Fcm(token), Some(fcm), ..) => fcm.send(token, notification).await,
            (Token::Apns(token), _, Some(apns), _) => {
                apns.send(token, alert.id_on(target.user, &target.id), notification).await
            }
            (Token::Web { endpoint, keys }, .., Some(web)) => {
                let envelope = Envelope {
                    ttl: (alert.expires_at - now).whole_seconds().max(0),
                    is_urgent: alert.kind.is_urgent(),
                    topic: notification.collapse_key.clone(),
                };
                let payload = alert.web_payload(notification).to_string();
                // Boxed, because it is large, and part of the future of each notification.
                Box::pin(web.post(endpoint, keys, &envelope, payload.as_bytes())).await
            }
            _ => Outcome::Refused { code: "not_configured".to_owned() },
        }
    }
}

/// One attempt to reach one device.
struct Attempt<'a> {
    target: &'a Target,
    alert: &'a Alert,
    notification: Arc<Notification>,
    /// Number of attempts, including this one.
    number: u32,
}

/// A user who wants a notification now, with the devices to reach.
struct Reached<'a> {
    user: UserId,
    alert: &'a Alert,
    quiet: Option<QuietHours>,
    targets: Arc<Vec<Target>>,
}

/// A user's quiet hours, if the user wants the notification now.
type Wanting = HashMap<UserId, Option<QuietHours>>;

/// Renders notifications. Most users of a batch share the alert and the language, and thereby the texts.
struct Renderer<'a> {
    catalogue: &'a Catalogue,
    /// By the address of the alert, the locale and the time zone.
    rendered: HashMap<(usize, &'a str, Option<&'a str>), Arc<Notification>>,
}

impl<'a> Renderer<'a> {
    fn new(senders: &'a Senders) -> Self {
        Self { catalogue: &senders.catalogue, rendered: HashMap::new() }
    }

    /// Renders a notification for a device, in its time zone, else in that of the quiet hours.
    fn render(&mut self, alert: &'a Alert, target: &'a Target, quiet: Option<&'a QuietHours>) -> Arc<Notification> {
        let zone = target.time_zone.as_ref().or_else(|| quiet.map(QuietHours::zone));
        let render = || {
            let texts = alert.texts(self.catalogue, &target.locale, zone);
            Arc::new(alert.notification(texts))
        };
        // Zones from the time zone database have a name, and all of ours are from there.
        let name = zone.and_then(jiff::tz::TimeZone::iana_name);
        let key = (std::ptr::from_ref(alert).addr(), target.locale.as_str(), name);
        Arc::clone(self.rendered.entry(key).or_insert_with(render))
    }

    fn attempts(&mut self, reached: &'a Reached<'a>) -> impl Iterator<Item = Attempt<'a>> {
        let Reached { alert, quiet, targets, .. } = reached;
        targets.iter().map(move |target| {
            let notification = self.render(alert, target, quiet.as_ref());
            Attempt { target, alert, notification, number: 1 }
        })
    }
}

/// Attempts under way.
struct Running<'a> {
    futures: FuturesUnordered<BoxFuture<'a, ()>>,
    at_once: usize,
}

impl<'a> Running<'a> {
    fn new(at_once: usize) -> Self {
        Self { futures: FuturesUnordered::new(), at_once }
    }

    /// Starts an attempt, as soon as there is room for it.
    async fn start(&mut self, attempt: BoxFuture<'a, ()>) {
        while self.futures.len() >= self.at_once && self.futures.next().await.is_some() {}
        self.futures.push(attempt);
    }

    /// Continues the attempts while something else is done.
    async fn beside<T>(&mut self, other: impl Future<Output = T>) -> T {
        let mut other = std::pin::pin!(other);
        loop {
            tokio::select! {
                biased;
                done = &mut other => return done,
                Some(()) = self.futures.next() => {}
            }
        }
    }

    async fn finish(mut self) {
        while self.futures.next().await.is_some() {}
    }
}

impl Notifications {
    /// Notifies users on their devices, unless they were notified before, do not want this kind, have quiet hours or no
    /// device. All notifications must have the same kind.
    pub(super) async fn alert(&self, alerts: &[(UserId, &Alert)]) -> sqlx::Result<()> {
        let inner = &*self.inner;
        let reached = self.reached(alerts).await?;
        let mut renderer = Renderer::new(&inner.senders);
        for some in reached.chunks(CLAIMED_AT_ONCE) {
            let claims: Vec<(UserId, &Alert)> = some.iter().map(|one| (one.user, one.alert)).collect();
            let claimed = store::claim_alerts(&inner.db, &claims, inner.clock.now()).await?;
            let claimed = some.iter().filter(|one| claimed.contains(&(one.user, one.alert.about.key())));
            let mut running = Running::new(inner.senders.at_once);
            for attempt in claimed.flat_map(|one| renderer.attempts(one).collect::<Vec<_>>()) {
                running.start(self.attempt(attempt).boxed()).await;
            }
            running.finish().await;
        }
        Ok(())
    }

    /// Notifies users of a batch, in the order of their ids, like [`Self::alert`]. They are claimed with all users before
    /// them in the batch. Returns false if another worker claims users of this batch, and the rest was not notified.
    pub(super) async fn alert_batch(
        &self,
        claims: &mut BatchClaims,
        alerts: &[(UserId, &Alert)],
    ) -> sqlx::Result<bool> {
        let inner = &*self.inner;
        let reached = self.reached(alerts).await?;
        let (mut running, mut renderer) = (Running::new(inner.senders.at_once), Renderer::new(&inner.senders));
        let mut claimed = Ok(true);
        for some in reached.chunks(CLAIMED_AT_ONCE) {
            let Some(last) = some.last() else { break };
            claimed = running.beside(claims.claim(&inner.db, last.user)).await;
            if !matches!(claimed, Ok(true)) {
                break;
            }
            for attempt in some.iter().flat_map(|one| renderer.attempts(one).collect::<Vec<_>>()) {
                running.start(self.attempt(attempt).boxed()).await;
            }
        }
        // Attempts that were started are made, whatever happened to the rest.
        running.finish().await;
        claimed
    }

    /// Whether a user wants a kind of notification and has a device for it, apart from quiet hours.
    pub(crate) async fn reaches(&self, user: UserId, kind: Kind) -> sqlx::Result<bool> {
        let inner = &*self.inner;
        let wishes = store::wishes(&inner.db, &[user.0], inner.clock.now()).await?;
        let is_wanted = wishes.iter().any(|wishes| wishes.kinds().has(kind));
        Ok(is_wanted && !inner.devices.targets(&[user.0]).await?.is_empty())
    }

    /// Returns the users who want their notification now and have a device, in the given order.
    async fn reached<'a>(&self, alerts: &[(UserId, &'a Alert)]) -> sqlx::Result<Vec<Reached<'a>>> {
        let inner = &*self.inner;
        let now = inner.clock.now();
        let due: Vec<_> = alerts.iter().filter(|(_, alert)| alert.expires_at > now).collect();
        let Some((_, first)) = due.first().filter(|_| inner.devices.platforms().any()) else { return Ok(Vec::new()) };
        let users: Vec<i64> = due.iter().map(|(user, _)| user.0).collect();
        let targets = self.targets_by_user(&users).await?;
        // Most users have no device.
        let users: Vec<i64> = targets.keys().map(|user| user.0).collect();
        let wanting = self.wanting(&users, now, first.kind).await?;
        let reached = due.iter().filter_map(|(user, alert)| {
            let (quiet, targets) = (wanting.get(user)?.clone(), Arc::clone(targets.get(user)?));
            Some(Reached { user: *user, alert, quiet, targets })
        });
        Ok(reached.collect())
    }

    async fn targets_by_user(&self, users: &[i64]) -> sqlx::Result<HashMap<UserId, Arc<Vec<Target>>>> {
        let mut by_user: HashMap<UserId, Vec<Target>> = HashMap::new();
        for target in self.inner.devices.targets(users).await? {
            by_user.entry(target.user).or_default().push(target);
        }
        Ok(by_user.into_iter().map(|(user, targets)| (user, Arc::new(targets))).collect())
    }

    /// Returns the users among these who want a kind of notification now.
    async fn wanting(&self, users: &[i64], now: OffsetDateTime, kind: Kind) -> sqlx::Result<Wanting> {
        let wishes = store::wishes(&self.inner.db, users, now).await?;
        let wants = |wishes: Wishes| {
            let hours = quiet(wishes.quiet_from, wishes.quiet_until, wishes.time_zone.as_deref());
            let is_wanted = wishes.kinds().has(kind) && !hours.as_ref().is_some_and(|hours| hours.hold(now));
            is_wanted.then_some((wishes.user_id, hours))
        };
        Ok(wishes.into_iter().filter_map(wants).collect())
    }

    /// Sends to one device and stores the outcome. A failure of the database is logged: what was sent stays sent.
    async fn attempt(&self, attempt: Attempt<'_>) {
        let inner = &*self.inner;
        let Attempt { target, alert, .. } = attempt;
        let outcome = inner.senders.send(&attempt, inner.clock.now()).await;
        let (platform, kind) = (target.token.platform().name(), alert.kind.name());
        let labels = [("platform", platform), ("kind", kind), ("outcome", outcome.label())];
        metrics::counter!("matchday_notifications_total", &labels).increment(1);
        if matches!(outcome, Outcome::Taken | Outcome::Unknown) {
            return;
        }
        // Boxed, because it is rare and large.
        if let Err(error) = Box::pin(self.settle(&attempt, outcome)).await {
            tracing::warn!(%error, platform, kind, "outcome of a notification not stored");
        }
    }

    async fn settle(&self, attempt: &Attempt<'_>, outcome: Outcome) -> sqlx::Result<()> {
        let inner = &*self.inner;
        let Attempt { target, alert, number, .. } = *attempt;
        match outcome {
            Outcome::Taken | Outcome::Unknown => {}
            Outcome::Later { after, limited } => {
                let due_at = inner.clock.now() + pause(after, number, limited);
                if due_at < alert.expires_at {
                    store::postpone(&inner.db, target.user, &target.id, alert, number, due_at).await?;
                }
            }
            Outcome::Refused { code } => {
                let platform = target.token.platform().name();
                tracing::warn!(platform, kind = alert.kind.name(), code, "notification refused");
            }
            Outcome::Gone { since } => {
                if inner.devices.remove_gone(target, since).await? {
                    tracing::debug!(user = target.user.0, platform = target.token.platform().name(), "device removed");
                }
            }
        }
        Ok(())
    }

    /// Makes the attempts that are due, until the process shuts down. Returns their number. Processes share the work: an
    /// attempt is deleted before it is made, and only the process that deletes it makes it.
    pub async fn retry_due(&self, closing: &CancellationToken) -> sqlx::Result<usize> {
        let mut retried = 0;
        while !closing.is_cancelled() {
            let some = self.retry_some().await?;
            retried += some;
            if some < usize::try_from(RETRIED_AT_ONCE).unwrap_or(usize::MAX) {
                break;
            }
        }
        Ok(retried)
    }

    async fn retry_some(&self) -> sqlx::Result<usize> {
        let inner = &*self.inner;
        let now = inner.clock.now();
        let mut due = store::due_retries(&inner.db, now, RETRIED_AT_ONCE).await?;
        if due.is_empty() {
            return Ok(0);
        }
        // All is read before the attempts are deleted: if that fails, they are made later.
        current::update(&inner.db, &mut due, now).await?;
        let users: Vec<i64> = due.iter().map(|due| due.user_id.0).collect();
        let targets = self.targets_by_user(&users).await?;
        let mut wanting: HashMap<Kind, Wanting> = HashMap::new();
        for kind in due.iter().filter_map(|due| Some(due.alert.as_ref()?.kind)) {
            if let Entry::Vacant(place) = wanting.entry(kind) {
                place.insert(self.wanting(&users, now, kind).await?);
            }
        }
        let taken = store::take_retries(&inner.db, &due, now).await?;
        let (mut running, mut renderer) = (Running::new(inner.senders.at_once), Renderer::new(&inner.senders));
        for Retry { user_id, device_id, alert, attempts, .. } in due.iter().filter(|due| taken.contains(&due.key())) {
            let Some(alert) = alert else { continue };
            let quiet = wanting.get(&alert.kind).and_then(|wanting| wanting.get(user_id));
            let target = targets.get(user_id).and_then(|targets| targets.iter().find(|one| one.id == *device_id));
            let (Some(quiet), Some(target)) = (quiet, target) else { continue };
            if alert.expires_at > now {
                let notification = renderer.render(alert, target, quiet.as_ref());
                let attempt = Attempt { target, alert, notification, number: attempts.saturating_add(1) };
                running.start(self.attempt(attempt).boxed()).await;
            }
        }
        running.finish().await;
        Ok(due.len())
    }
}
