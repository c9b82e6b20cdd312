//! Background tasks: caches, queue consumers, schedulers.
//!
//! Every process *listens*, because every process has caches. The *workers* run in `serve` and `worker`, but not in
//! `serve --no-workers`.

use std::time::Duration;

use futures_util::StreamExt as _;
use platform::{
    lease::Lease,
    outbox::{self, Relay},
    random,
    stream::{Delivery, Failure, TransportError, WorkSpec},
    telemetry,
};
use tokio_util::sync::CancellationToken;

use crate::{
    app::App,
    backlog::{self, Backlog},
    catalogue::{feeds, matches},
    chat::{accounts::work::ChatWork, rooms::service::Rooms},
    delivery::{announcements::service::Announcements, live::tallies::TallyPublisher, webhooks::service::Webhooks},
    identity::{accounts::restrictions, sessions},
};

/// Starts cache invalidation, dependency checks and metrics upkeep.
pub fn listen(app: &App) {
    let closing = app.shutdown.closing().clone();
    app.shutdown.spawn(invalidate_caches(app.clone(), closing.clone()));
    let checks = app.checks.clone();
    app.shutdown.spawn(every(Duration::from_secs(1), closing.clone(), async move || checks.refresh().await));
    let seen = app.clone();
    app.shutdown.spawn(every(Duration::from_secs(5), closing, async move || {
        backlog::process(&seen.core.db);
        telemetry::metrics().run_upkeep();
    }));
}

/// Starts the live stream and the publishing of prediction tallies.
pub fn stream(app: &App) {
    let (live, closing) = (app.live.clone(), app.shutdown.closing().clone());
    app.shutdown.spawn(async move { live.run(closing).await });
    publish_tallies(app);
}

/// Starts publishing tallies of predictions saved by this process.
pub fn publish_tallies(app: &App) {
    let publisher = TallyPublisher {
        db: app.core.db.clone(),
        streams: app.streams.clone(),
        changes: app.predictions.changes().clone(),
        live: app.live.clone(),
        clock: app.core.clock.clone(),
    };
    app.shutdown.spawn(publisher.run(app.shutdown.closing().clone()));
}

/// Starts the outbox relay and the queue consumers.
pub fn queues(app: &App) {
    let closing = app.shutdown.closing().clone();
    app.shutdown.spawn(relay(app.clone(), closing));
    consume(app, ChatWork::spec(), &app.chat_work, |chat, work| async move { chat.perform(work).await });
    consume(app, Rooms::work(), &app.rooms, |rooms, work| async move { rooms.perform(work).await });
    consume(app, app.scores.work(), &app.scores, |scores, work| async move { scores.perform(work).await });
    for spec in Announcements::specs() {
        consume(app, spec, &app.announcements, |announcements, fact| async move { announcements.perform(fact).await });
    }
}

/// Starts all background work: queues, feeds, membership sync, webhooks, reminders and periodic jobs.
pub fn work(app: &App) {
    queues(app);
    let closing = app.shutdown.closing().clone();
    let overdue = app.scores.clone();
    app.shutdown.spawn(every(Duration::from_mins(1), closing.clone(), async move || {
        match overdue.plan_overdue().await {
            Ok(0) => {}
            Ok(matches) => tracing::warn!(matches, "overdue score jobs planned again"),
            Err(error) => tracing::warn!(%error, "overdue score jobs not checked"),
        }
    }));
    if app.feeds.is_configured() {
        app.shutdown.spawn(poll_feeds(app.clone(), closing.clone()));
    }
    let backlog = Backlog::new(&app.streams, &app.scores, &app.core.clock);
    app.shutdown.spawn(every(Duration::from_secs(5), closing.clone(), async move || backlog.sample().await));
    membership_sync(app, &closing);
    webhooks(app, &closing);
    reminders(app, &closing);
    account_deletion(app, &closing);
    let moderation = app.moderation.clone();
    app.shutdown.spawn(every(Duration::from_secs(5), closing.clone(), async move || {
        match moderation.lift_ended().await {
            Ok(0) => {}
            Ok(users) => tracing::info!(users, "expired restrictions lifted"),
            Err(error) => tracing::warn!(%error, "expired restrictions not lifted"),
        }
    }));
    let phones = app.phone_moves.clone();
    app.shutdown.spawn(every(Duration::from_secs(5), closing.clone(), async move || {
        if let Err(error) = phones.send_move_notices().await {
            tracing::warn!(%error, "phone move notices not checked");
        }
    }));
    let codes = app.codes.clone();
    app.shutdown.spawn(every(Duration::from_secs(30), closing.clone(), async move || {
        if let Err(error) = codes.judge_conversions().await {
            tracing::warn!(%error, "code conversion check failed");
        }
    }));
    let swept = app.clone();
    app.shutdown.spawn(every(Duration::from_hours(1), closing, async move || sweep(&swept).await));
}

/// Removes deleted accounts from chat. Devices have a separate task: redactions take minutes, and a chat token must not
/// outlive its account that long.
fn account_deletion(app: &App, closing: &CancellationToken) {
    let deletion = app.account_deletion.clone();
    app.shutdown.spawn(every(Duration::from_millis(500), closing.clone(), async move || {
        if let Err(error) = deletion.end_due_devices().await {
            tracing::warn!(%error, "chat devices of deleted accounts not checked");
        }
    }));
    let deletion = app.account_deletion.clone();
    app.shutdown.spawn(every(Duration::from_secs(5), closing.clone(), async move || {
        if let Err(error) = deletion.finish_due().await {
            tracing::warn!(%error, "chat accounts of deleted users not checked");
        }
    }));
}

/// Processes deliveries of a work queue until shutdown. Each delivery runs in its own task and needs its own handle to
/// the service.
fn consume<S, F>(app: &App, spec: WorkSpec, service: &S, perform: fn(S, Delivery) -> F)
where
    S: Clone + Send + Sync + 'static,
    F: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let (streams, service, closing) = (app.streams.clone(), service.clone(), app.shutdown.closing().clone());
    app.shutdown.spawn(async move {
        streams.made(&closing).await;
        streams.consume(spec, move |delivery| perform(service.clone(), delivery), closing).await;
    });
}

/// Polls feeds that are due. A lease limits this to one process at a time.
async fn poll_feeds(app: App, closing: CancellationToken) {
    let (length, holder) = (app.config.feeds.lease, random::uuid_v7(&*app.core.random, &*app.core.clock));
    app.feeds.run(Lease::new(feeds::LEASE, holder, length), length / 3, closing, |_| {}).await;
}

/// Delivers webhooks to app backends.
fn webhooks(app: &App, closing: &CancellationToken) {
    consume(app, Webhooks::work(), &app.webhooks, |webhooks, fact| async move { webhooks.perform(fact).await });
    let (delivered, closing_delivery) = (app.clone(), closing.clone());
    app.shutdown.spawn(async move {
        delivered.streams.made(&closing_delivery).await;
        delivered.webhooks.deliver(closing_delivery).await;
    });
    let tidied = app.webhooks.clone();
    app.shutdown.spawn(every(Duration::from_hours(1), closing.clone(), async move || {
        if let Err(error) = tidied.tidy().await {
            tracing::debug!(%error, "webhooks of removed endpoints not deleted");
        }
    }));
}

/// Reminds fans of matches that start soon.
fn reminders(app: &App, closing: &CancellationToken) {
    let notifications = &app.notifications;
    consume(app, notifications.work(), notifications, |notifications, batch| async move {
        notifications.perform(batch).await
    });
    app.shutdown.spawn(plan_reminders(app.clone(), closing.clone()));
}

/// Plans reminders while this process holds the lease, and releases the lease at shutdown.
async fn plan_reminders(app: App, closing: CancellationToken) {
    app.streams.made(&closing).await;
    let lease = Lease::new("reminders", random::uuid_v7(&*app.core.random, &*app.core.clock), Duration::from_secs(30));
    while !closing.is_cancelled() {
        let planned = match lease.hold(&app.core.db).await {
            Ok(true) => app.notifications.plan().await,
            Ok(false) => Ok(0),
            Err(error) => Err(error.into()),
        };
        let pause = match planned {
            Ok(0) => Duration::from_secs(5),
            Ok(batches) => {
                tracing::info!(batches, "reminders planned");
                Duration::ZERO
            }
            Err(error) => {
                tracing::warn!(%error, "reminder planning failed");
                Duration::from_secs(5)
            }
        };
        tokio::select! {
            () = closing.cancelled() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
    if let Err(error) = lease.release(&app.core.db).await {
        tracing::debug!(%error, "lease not released; it expires");
    }
}

/// Keeps the membership table equal to the homeserver's, and removes abandoned rooms.
fn membership_sync(app: &App, closing: &CancellationToken) {
    if app.config.matrix.homeserver_url.is_none() {
        return;
    }
    let (watching, closing_watch) = (app.membership_sync.clone(), closing.clone());
    app.shutdown.spawn(async move { watching.watch(closing_watch).await });
    app.shutdown.spawn(apply_pushes(app.clone(), closing.clone()));
    app.shutdown.spawn(compare_rooms(app.clone(), closing.clone()));
    let tidied = app.clone();
    app.shutdown.spawn(every(Duration::from_mins(1), closing.clone(), async move || {
        if let Err(error) = tidied.rooms.remove_abandoned().await {
            tracing::warn!(%error, "abandoned rooms not removed");
        }
    }));
    let planned = app.clone();
    app.shutdown.spawn(every(Duration::from_hours(1), closing.clone(), async move || plan_rooms(&planned).await));
}

/// Plans rooms for matches without one, and replans rooms whose work was lost or given up.
async fn plan_rooms(app: &App) {
    match app.rooms.plan_missing().await {
        Ok(0) => {}
        Ok(rooms) => tracing::info!(rooms, "rooms planned for matches without one"),
        Err(error) => tracing::warn!(%error, "matches without a room not checked"),
    }
    // While messages are queued, workers may still create these rooms.
    if !app.streams.is_connected() || !app.streams.is_idle(&Rooms::work().name).await.unwrap_or(false) {
        return;
    }
    match app.rooms.plan_unmade().await {
        Ok(0) => {}
        Ok(rooms) => tracing::warn!(rooms, "lost room creations planned again"),
        Err(error) => tracing::warn!(%error, "lost room creations not checked"),
    }
}

/// Applies events that the homeserver pushed: immediately if this process received them, after at most half a second if
/// a process without workers did.
async fn apply_pushes(app: App, closing: CancellationToken) {
    loop {
        let pause = match app.membership_sync.apply_waiting().await {
            Ok(_) => Duration::from_millis(500),
            Err(error) => {
                tracing::warn!(%error, "homeserver events not applied; retrying");
                Duration::from_secs(2)
            }
        };
        tokio::select! {
            () = closing.cancelled() => return,
            () = app.membership_sync.arrived() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Compares rooms while this process holds the lease, and releases the lease at shutdown.
async fn compare_rooms(app: App, closing: CancellationToken) {
    let lease =
        Lease::new("mirror comparison", random::uuid_v7(&*app.core.random, &*app.core.clock), Duration::from_secs(30));
    while !closing.is_cancelled() {
        compare(&app, &lease).await;
        tokio::select! {
            () = closing.cancelled() => {}
            () = tokio::time::sleep(Duration::from_secs(2)) => {}
        }
    }
    if let Err(error) = lease.release(&app.core.db).await {
        tracing::debug!(%error, "lease not released; it expires");
    }
}

/// Compares rooms that are due until none is left or another process holds the lease.
async fn compare(app: &App, lease: &Lease) {
    loop {
        let compared = match lease.hold(&app.core.db).await {
            Ok(true) => app.membership_sync.compare_some().await,
            Ok(false) => return,
            Err(error) => Err(error),
        };
        match compared {
            Ok(0) => return,
            Ok(rooms) => tracing::debug!(rooms, "rooms compared with the homeserver"),
            Err(error) => return tracing::warn!(%error, "room comparison with the homeserver failed"),
        }
    }
}

async fn sweep(app: &App) {
    let sessions = app.sessions.sweep().await.map_err(|error| error.to_string());
    let codes = app.codes.sweep().await.map_err(|error| error.to_string());
    let moves = app.phone_moves.sweep().await.map_err(|error| error.to_string());
    let messages = app.sms.sweep().await.map_err(|error| error.to_string());
    let pushes = app.membership_sync.sweep().await.map_err(|error| error.to_string());
    let statistics = app.rooms.sweep().await.map_err(|error| error.to_string());
    let keys = app.idempotency.sweep().await.map_err(|error| error.to_string());
    let reminders = app.notifications.sweep().await.map_err(|error| error.to_string());
    let moderation = app.moderation.sweep().await.map_err(|error| error.to_string());
    let swept = [
        ("sessions", sessions),
        ("codes", codes),
        ("phone moves", moves),
        ("messages", messages),
        ("pushes", pushes),
        ("room statistics", statistics),
        ("idempotency keys", keys),
        ("reminders", reminders),
        ("restricted phones and reports of deleted accounts", moderation),
    ];
    for (what, outcome) in swept {
        match outcome {
            Ok(0) => {}
            Ok(swept) => tracing::info!(swept, what, "expired rows deleted"),
            Err(error) => tracing::warn!(error, what, "expired rows not deleted"),
        }
    }
}

async fn relay(app: App, closing: CancellationToken) {
    app.streams.made(&closing).await;
    let holder = random::uuid_v7(&*app.core.random, &*app.core.clock);
    let lease = Lease::new("outbox relay", holder, app.config.outbox.lease);
    let (db, streams, wake, clock) =
        (app.core.db.clone(), app.streams.clone(), app.core.outbox_written.clone(), app.core.clock.clone());
    Relay::new(db, streams, lease, app.config.outbox.poll, wake, clock).run(closing).await;
}

/// Keeps caches consistent with other processes: each message evicts the entries that it names. A lost connection
/// evicts everything, because messages may have been missed.
async fn invalidate_caches(app: App, closing: CancellationToken) {
    while let Err(error) = invalidate_until_closing(&app, &closing).await {
        // Until the subscription is restored, cached entries still expire.
        app.streams.failed(&error, "cache invalidation");
        tokio::select! {
            () = closing.cancelled() => return,
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    }
}

async fn invalidate_until_closing(app: &App, closing: &CancellationToken) -> Result<(), TransportError> {
    let mut connections = app.streams.connections();
    let mut revocations = app.streams.hear(sessions::service::REVOKED).await?;
    let mut changes = app.streams.hear(matches::service::FACTS).await?;
    let mut catalogue = app.streams.hear(matches::service::CATALOGUE).await?;
    let mut restrictions = app.streams.hear(restrictions::CHANGED).await?;
    let mut pulses = app.streams.hear(outbox::PULSE).await?;
    loop {
        tokio::select! {
            () = closing.cancelled() => return Ok(()),
            Ok(()) = connections.changed() => {
                // Evict only after the subscriptions are restored; an earlier eviction could still miss a message.
                app.streams.settled().await;
                app.sessions.forget_all();
                app.matches.mark_stale();
            }
            Some(message) = revocations.next() => app.sessions.heard(&message.payload),
            Some(_) = changes.next() => app.matches.mark_stale(),
            Some(_) = catalogue.next() => app.matches.mark_stale(),
            Some(message) = restrictions.next() => app.moderation.heard(&message.payload),
            Some(_) = pulses.next() => app.sessions.heard_pulse(),
        }
    }
}

async fn every(pause: Duration, closing: CancellationToken, task: impl AsyncFn()) {
    loop {
        task().await;
        tokio::select! {
            () = closing.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}
