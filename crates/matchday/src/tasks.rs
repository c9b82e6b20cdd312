//! Background tasks: caches, queue consumers, schedulers.
//!
//! Every process *listens*, because every process has caches. The *workers* run in `serve` and `worker`, but not in
//! `serve --no-workers`.
//!
//! Queue consumers share their work between all processes with workers. A periodic task runs in one of them, the holder
//! of its lease; `docs/operating.md` lists these tasks.

use std::time::{Duration, Instant};

use async_nats::Subscriber;
use futures_util::{FutureExt as _, StreamExt as _};
use platform::{
    lease::Lease,
    outbox::{self, Relay},
    stream::{Delivery, Failure, TransportError, WorkSpec, next_wake},
    telemetry,
};
use tokio_util::sync::CancellationToken;

use crate::{
    app::App,
    backlog::{self, Backlog},
    catalogue::{
        feeds,
        matches::{self, partitions},
    },
    chat::{accounts::work::ChatWork, messages::IGNORED, removals::service::Removals, reports, rooms::service::Rooms},
    delivery::{
        announcements::service::Announcements,
        facts,
        live::tallies::TallyPublisher,
        mentions::service::Mentions,
        notifications::{alerts::Alerts, places_lost::LeagueNotifications},
        webhooks::service::Webhooks,
    },
    game::{leagues::work::LeagueWork, scores::rounds::Rounds},
    identity::{account_deletion, accounts::restrictions, sessions},
};

/// Starts cache invalidation, the filters' patterns, checks of dependencies and of the replica, and metrics upkeep.
pub fn listen(app: &App) {
    let closing = app.shutdown.closing().clone();
    app.shutdown.spawn(invalidate_caches(app.clone(), closing.clone()));
    let (filters, until) = (app.filters.clone(), closing.clone());
    app.shutdown.spawn(async move { filters.watch(until).await });
    app.shutdown.spawn(remove_messages(app.clone(), closing.clone()));
    let checks = app.checks.clone();
    app.shutdown.spawn(every(Duration::from_secs(1), closing.clone(), async move || checks.refresh().await));
    let (reads, until) = (app.core.reads.clone(), closing.clone());
    app.shutdown.spawn(async move {
        tokio::select! {
            () = until.cancelled() => {}
            () = reads.watch() => {}
        }
    });
    let seen = app.clone();
    app.shutdown.spawn(every(Duration::from_secs(5), closing, async move || {
        backlog::process(&seen.core.db);
        telemetry::metrics().run_upkeep();
    }));
}

/// Number of messages that a process removes at the same time.
const REMOVED_AT_ONCE: usize = 8;

/// Removes the messages that this process has found with its filters, also without workers: sooner than a worker, and
/// although a worker may have died.
async fn remove_messages(app: App, closing: CancellationToken) {
    let planned = futures_util::stream::unfold(app.membership_sync.clone(), async |sync| {
        let planned = sync.next_planned().await?;
        Some((planned, sync))
    });
    let removing = planned.for_each_concurrent(REMOVED_AT_ONCE, |planned| app.removals.carry_out_now(planned));
    tokio::select! {
        () = closing.cancelled() => {}
        () = removing => {}
    }
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

/// Wakes the outbox relay of another process after writes of this one, which has no relay.
pub fn wake_relay(app: &App) {
    let (written, streams, closing) =
        (app.core.outbox_written.clone(), app.streams.clone(), app.shutdown.closing().clone());
    app.shutdown.spawn(async move {
        tokio::select! {
            () = closing.cancelled() => {}
            () = outbox::forward(&written, &streams) => {}
        }
    });
}

/// Starts the outbox relay and the queue consumers.
pub fn queues(app: &App) {
    let closing = app.shutdown.closing().clone();
    app.shutdown.spawn(keep_leases(app.clone(), closing.clone()));
    app.shutdown.spawn(relay(app.clone(), closing));
    for spec in ChatWork::specs() {
        consume(app, spec, &app.chat_work, |chat, work| async move { chat.perform(work).await });
    }
    consume(app, Rooms::work(), &app.rooms, |rooms, work| async move { rooms.perform(work).await });
    consume(app, Removals::work(), &app.removals, |removals, work| async move { removals.perform(work).await });
    consume(app, app.scores.work(), &app.scores, |scores, work| async move { scores.perform(work).await });
    consume(app, Rounds::work(), &app.rounds, |rounds, fact| async move { rounds.perform(fact).await });
    consume(app, LeagueWork::rooms(), &app.league_work, |work, job| async move { work.perform(job).await });
    consume(app, LeagueWork::deletions(), &app.league_work, |work, fact| async move { work.forget(fact).await });
    for spec in Announcements::specs() {
        consume(app, spec, &app.announcements, |announcements, fact| async move { announcements.pass_on(fact).await });
    }
    for lane in Announcements::lanes() {
        consume(app, lane, &app.announcements, |announcements, fact| async move { announcements.perform(fact).await });
    }
}

/// Starts all background work: queues, feeds, membership sync, webhooks, reminders and periodic jobs.
pub fn work(app: &App) {
    queues(app);
    let closing = app.shutdown.closing().clone();
    let overdue = app.scores.clone();
    app.shutdown.spawn(singleton(
        app.clone(),
        Periodic::new("overdue scores", Duration::from_mins(1)),
        async move || match overdue.plan_overdue().await {
            Ok(0) => {}
            Ok(matches) => tracing::warn!(matches, "overdue score jobs planned again"),
            Err(error) => tracing::warn!(%error, "overdue score jobs not checked"),
        },
    ));
    if app.feeds.is_configured() {
        app.shutdown.spawn(poll_feeds(app.clone(), closing.clone()));
    }
    app.shutdown.spawn(sample_backlog(app.clone(), closing.clone()));
    membership_sync(app, &closing);
    webhooks(app, &closing);
    app.shutdown.spawn(record_facts(app.clone(), closing.clone()));
    app.shutdown.spawn(seal_matches(app.clone(), closing.clone()));
    reminders(app, &closing);
    account_deletion(app, &closing);
    let moderation = app.moderation.clone();
    app.shutdown.spawn(singleton(
        app.clone(),
        Periodic::new("expired restrictions", Duration::from_secs(5)),
        async move || match moderation.lift_ended().await {
            Ok(0) => {}
            Ok(users) => tracing::info!(users, "expired restrictions lifted"),
            Err(error) => tracing::warn!(%error, "expired restrictions not lifted"),
        },
    ));
    let room_moderation = app.room_moderation.clone();
    app.shutdown.spawn(singleton(
        app.clone(),
        Periodic::new("expired room mutes", Duration::from_secs(2)),
        async move || match room_moderation.lift_ended().await {
            Ok(0) => {}
            Ok(mutes) => tracing::info!(mutes, "expired mutes in rooms lifted"),
            Err(error) => tracing::warn!(%error, "expired mutes in rooms not lifted"),
        },
    ));
    let reports = app.reports.clone();
    app.shutdown.spawn(singleton(
        app.clone(),
        Periodic { gauges: &reports::service::GAUGES, ..Periodic::new("report figures", Duration::from_secs(30)) },
        async move || {
            if let Err(error) = reports.sample().await {
                tracing::debug!(%error, "figures of reports not computed");
            }
        },
    ));
    let phones = app.phone_moves.clone();
    app.shutdown.spawn(singleton(
        app.clone(),
        Periodic::new("phone move notices", Duration::from_secs(5)),
        async move || {
            if let Err(error) = phones.send_move_notices().await {
                tracing::warn!(%error, "phone move notices not checked");
            }
        },
    ));
    let avatars = app.avatars.clone();
    app.shutdown.spawn(singleton(
        app.clone(),
        Periodic::new("removed avatars", Duration::from_secs(5)),
        async move || match avatars.delete_due().await {
            Ok(0) => {}
            Ok(avatars) => tracing::info!(avatars, "images of removed avatars deleted"),
            Err(error) => tracing::warn!(%error, "images of removed avatars not deleted"),
        },
    ));
    let codes = app.codes.clone();
    app.shutdown.spawn(singleton(
        app.clone(),
        Periodic { gauges: &["matchday_sms_closed"], ..Periodic::new("code conversions", Duration::from_secs(30)) },
        async move || {
            if let Err(error) = codes.judge_conversions().await {
                tracing::warn!(%error, "code conversion check failed");
            }
        },
    ));
    let db = app.core.db.clone();
    app.shutdown.spawn(singleton(app.clone(), Periodic::new("partitions", Duration::from_hours(1)), async move || {
        match partitions::add(&db).await {
            Ok(0) => {}
            Ok(added) => tracing::info!(added, "partitions for predictions added"),
            Err(error) => tracing::warn!(%error, "partitions for predictions not added; retrying in an hour"),
        }
    }));
    let swept = app.clone();
    app.shutdown.spawn(singleton(app.clone(), Periodic::new("sweep", Duration::from_hours(1)), async move || {
        sweep(&swept).await;
    }));
}

/// Subject of all facts.
const FACTS_HEARD: &str = "fact.>";

/// Time after which another process takes over the periodic tasks of a process that was killed or paused.
const TASK_LEASE: Duration = Duration::from_secs(5);

/// Pause after a failed query of a lease.
const LEASE_RETRY: Duration = Duration::from_secs(1);

/// Hears of leases that other processes release, and releases those of this process at shutdown.
async fn keep_leases(app: App, closing: CancellationToken) {
    app.leases().listen(closing.clone()).await;
    closing.cancelled().await;
    let closed = tokio::time::timeout(Duration::from_secs(2), app.leases().close()).await;
    if !matches!(closed, Ok(Ok(()))) {
        tracing::debug!("leases not released; they expire");
    }
}

/// Waits until this process holds the lease. Returns false at shutdown.
async fn acquire(lease: &Lease, closing: &CancellationToken) -> bool {
    let acquired = async {
        while !is_held(lease).await {
            lease.wait(Duration::MAX).await;
        }
    };
    tokio::select! {
        () = closing.cancelled() => false,
        () = acquired => !closing.is_cancelled(),
    }
}

/// Whether this process holds the lease. Pauses if that cannot be found out.
async fn is_held(lease: &Lease) -> bool {
    match lease.hold().await {
        Ok(is_held) => is_held,
        Err(error) => {
            // The dependency checks log an unavailable database.
            tracing::debug!(%error, "lease not acquired; retrying");
            tokio::time::sleep(LEASE_RETRY).await;
            false
        }
    }
}

/// A periodic task that runs in one process at a time.
struct Periodic {
    /// Name of its lease.
    name: &'static str,
    every: Duration,
    /// Metrics that the task sets. A process that loses the lease sets them to NaN, so that its last values are not
    /// mistaken for current ones.
    gauges: &'static [&'static str],
}

impl Periodic {
    fn new(name: &'static str, every: Duration) -> Self {
        Self { name, every, gauges: &[] }
    }
}

/// Runs a task periodically, in one process at a time. After a takeover it runs at once. The task must tolerate a
/// second one: a process that was paused can resume while another one has taken over.
async fn singleton(app: App, Periodic { name, every, gauges }: Periodic, task: impl AsyncFn()) {
    let (lease, closing) = (app.leases().lease(name, TASK_LEASE), app.shutdown.closing().clone());
    let mut last = None::<Instant>;
    loop {
        if last.is_some() && matches!(lease.hold().await, Ok(false)) {
            last = None;
            for &gauge in gauges {
                metrics::gauge!(gauge).set(f64::NAN);
            }
        }
        if !acquire(&lease, &closing).await {
            return;
        }
        if last.is_none_or(|last| last.elapsed() >= every) {
            lease.keep(task()).await;
            last = Some(Instant::now());
        }
        let left = every.saturating_sub(last.map_or(Duration::ZERO, |last| last.elapsed()));
        tokio::select! {
            () = closing.cancelled() => return,
            () = tokio::time::sleep(left.min(lease.renew_every())) => {}
        }
    }
}

/// Samples the backlog metrics. A process that loses the lease forgets its values.
async fn sample_backlog(app: App, closing: CancellationToken) {
    let backlog = Backlog::new(&app.streams, &app.scores, &app.core.clock);
    let lease = app.leases().lease("backlog", TASK_LEASE);
    while acquire(&lease, &closing).await {
        let sampling = async {
            while !closing.is_cancelled() {
                backlog.sample().await;
                tokio::select! {
                    () = closing.cancelled() => {}
                    () = tokio::time::sleep(Duration::from_secs(5)) => {}
                }
            }
        };
        lease.run_while_held(sampling).await;
        backlog.forget();
    }
}

/// Seals matches when they close, and requests time stamps, while this process holds the lease.
async fn seal_matches(app: App, closing: CancellationToken) {
    let lease = app.leases().lease("seals", TASK_LEASE);
    while acquire(&lease, &closing).await {
        lease.run_while_held(app.seals.run(closing.clone())).await;
    }
}

/// Gives new facts their positions in the log, in one process at a time. The relay's messages serve as wake-ups. Without
/// NATS, facts wait for the next poll.
async fn record_facts(app: App, closing: CancellationToken) {
    const POLL: Duration = Duration::from_secs(1);
    // Shorter than that of other tasks, because facts must be visible within five seconds even if a process is killed.
    const LEASE: Duration = Duration::from_secs(3);
    // Limits the number of transactions under load.
    const PAUSE: Duration = Duration::from_millis(20);
    let lease = app.leases().lease("facts", LEASE);
    let mut messages = None;
    loop {
        if !is_held(&lease).await {
            messages = None;
        }
        if !acquire(&lease, &closing).await {
            return;
        }
        if messages.is_none() {
            messages = app.streams.hear(FACTS_HEARD).await.ok();
        }
        if let Err(error) = lease.keep(app.facts.record_new()).await {
            tracing::warn!(%error, "facts not recorded; retrying");
        }
        tokio::time::sleep(PAUSE).await;
        tokio::select! {
            () = closing.cancelled() => return,
            () = next_fact(&mut messages) => {}
            () = tokio::time::sleep(POLL.min(lease.renew_every())) => {}
        }
    }
}

/// Waits for a message about a fact of the log, and drops those that have arrived with it.
async fn next_fact(messages: &mut Option<Subscriber>) {
    let Some(messages) = messages.as_mut() else { return std::future::pending().await };
    while let Some(message) = messages.next().await {
        if facts::rules::SUBJECTS.iter().any(|subject| message.subject.ends_with(subject)) {
            while let Some(Some(_)) = messages.next().now_or_never() {}
            return;
        }
    }
    std::future::pending::<()>().await;
}

/// Removes deleted accounts from chat. Devices have a separate task: redactions take minutes, and a chat token must not
/// outlive its account that long.
fn account_deletion(app: &App, closing: &CancellationToken) {
    app.shutdown.spawn(end_devices(app.clone(), closing.clone()));
    let deletion = app.account_deletion.clone();
    app.shutdown.spawn(singleton(
        app.clone(),
        Periodic {
            gauges: &["matchday_departures_unfinished", "matchday_departures_oldest_seconds"],
            ..Periodic::new("account deletion", Duration::from_secs(5))
        },
        async move || {
            if let Err(error) = deletion.finish_due().await {
                tracing::warn!(%error, "chat accounts of deleted users not checked");
            }
        },
    ));
}

/// Ends the chat devices of deleted accounts, in one process at a time. For a while after each deletion all processes do
/// it: the process that holds the lease may be the one that died during the deletion, and a chat token must not work
/// until the lease expires.
async fn end_devices(app: App, closing: CancellationToken) {
    const POLL: Duration = Duration::from_millis(500);
    let lease = app.leases().lease("chat devices", TASK_LEASE);
    let mut deletions = None;
    let mut urgent_until = None::<Instant>;
    while !closing.is_cancelled() {
        if deletions.is_none() {
            deletions = app.streams.hear(account_deletion::service::DEVICES_DUE).await.ok();
        }
        let is_ours = is_held(&lease).await;
        let is_urgent = urgent_until.is_some_and(|until| Instant::now() < until);
        if (is_ours || is_urgent)
            && let Err(error) = app.account_deletion.end_due_devices().await
        {
            tracing::warn!(%error, "chat devices of deleted accounts not checked");
        }
        let pause =
            async { if is_ours || is_urgent { tokio::time::sleep(POLL).await } else { lease.wait(TASK_LEASE).await } };
        tokio::select! {
            () = closing.cancelled() => return,
            () = next_wake(&mut deletions) => urgent_until = Some(Instant::now() + 2 * TASK_LEASE),
            () = pause => {}
        }
    }
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
    app.feeds.run(app.leases().lease(feeds::LEASE, app.config.feeds.lease), closing, |_| {}).await;
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
    app.shutdown.spawn(singleton(
        app.clone(),
        Periodic::new("webhook queues", Duration::from_hours(1)),
        async move || {
            if let Err(error) = tidied.tidy().await {
                tracing::debug!(%error, "webhooks of removed endpoints not deleted");
            }
        },
    ));
}

/// Reminds fans of matches that start soon, and notifies members of leagues after a round.
fn reminders(app: &App, closing: &CancellationToken) {
    let notifications = &app.notifications;
    consume(app, notifications.work(), notifications, |notifications, batch| async move {
        notifications.perform(batch).await
    });
    app.shutdown.spawn(plan_reminders(app.clone(), closing.clone()));
    let leagues = &app.league_notifications;
    consume(app, LeagueNotifications::rounds(), leagues, |leagues, fact| async move { leagues.plan(fact).await });
    consume(app, LeagueNotifications::pages(), leagues, |leagues, page| async move { leagues.perform(page).await });
    let alerts = &app.alerts;
    consume(app, Alerts::facts(), alerts, |alerts, fact| async move { alerts.plan(fact).await });
    consume(app, alerts.batches(), alerts, |alerts, batch| async move { alerts.perform(batch).await });
    consume(app, alerts.from_chat(), alerts, |alerts, job| async move { alerts.perform(job).await });
    consume(app, Mentions::work(), &app.mentions, |mentions, changed| async move { mentions.perform(changed).await });
    let (retried, retries_end) = (app.notifications.clone(), closing.clone());
    app.shutdown.spawn(singleton(
        app.clone(),
        Periodic::new("notification retries", Duration::from_secs(1)),
        async move || match retried.retry_due(&retries_end).await {
            Ok(0) => {}
            Ok(notifications) => tracing::debug!(notifications, "postponed notifications sent"),
            Err(error) => tracing::warn!(%error, "postponed notifications not sent; retrying"),
        },
    ));
    let streaks = app.notifications.clone();
    app.shutdown.spawn(singleton(
        app.clone(),
        Periodic::new("streak notifications", Duration::from_secs(30)),
        async move || match streaks.plan_streaks().await {
            Ok(0) => {}
            Ok(batches) => tracing::info!(batches, "streak notifications planned"),
            Err(error) => tracing::warn!(%error, "streak notifications not planned; retrying"),
        },
    ));
}

/// Plans reminders while this process holds the lease.
async fn plan_reminders(app: App, closing: CancellationToken) {
    app.streams.made(&closing).await;
    let lease = app.leases().lease("reminders", Duration::from_secs(30));
    while acquire(&lease, &closing).await {
        let pause = match app.notifications.plan().await {
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
}

/// Keeps the membership table equal to the homeserver's, and removes abandoned rooms.
fn membership_sync(app: &App, closing: &CancellationToken) {
    if app.config.matrix.homeserver_url.is_none() {
        return;
    }
    app.shutdown.spawn(watch_homeserver(app.clone(), closing.clone()));
    app.shutdown.spawn(apply_pushes(app.clone(), closing.clone()));
    app.shutdown.spawn(compare_rooms(app.clone(), closing.clone()));
    let tidied = app.clone();
    app.shutdown.spawn(singleton(
        app.clone(),
        Periodic::new("abandoned rooms", Duration::from_mins(1)),
        async move || {
            if let Err(error) = tidied.rooms.remove_abandoned().await {
                tracing::warn!(%error, "abandoned rooms not removed");
            }
        },
    ));
    let planned = app.clone();
    app.shutdown.spawn(singleton(
        app.clone(),
        Periodic::new("missing rooms", Duration::from_hours(1)),
        async move || plan_rooms(&planned).await,
    ));
}

/// Checks the homeserver continuously while this process holds the lease.
async fn watch_homeserver(app: App, closing: CancellationToken) {
    let lease = app.leases().lease("homeserver checks", TASK_LEASE);
    // The checks begin with this request. A process that replaces a killed one does not wait for the lease with it: the
    // homeserver has events for it, and may not retry to push them soon.
    if matches!(lease.hold().await, Ok(false)) {
        app.membership_sync.request_pushes().await;
    }
    while acquire(&lease, &closing).await {
        lease.run_while_held(app.membership_sync.watch(closing.clone())).await;
    }
}

/// Plans rooms for matches without one, and replans rooms whose work was lost or given up.
async fn plan_rooms(app: &App) {
    match app.rooms.plan_missing().await {
        Ok(0) => {}
        Ok(rooms) => tracing::info!(rooms, "rooms planned for matches without one"),
        Err(error) => tracing::warn!(%error, "matches without a room not checked"),
    }
    // While messages are queued, workers may still create these rooms.
    let is_idle =
        async |spec: WorkSpec| app.streams.is_connected() && app.streams.is_idle(&spec.name).await.unwrap_or(false);
    if is_idle(Rooms::work()).await {
        match app.rooms.plan_unmade().await {
            Ok(0) => {}
            Ok(rooms) => tracing::warn!(rooms, "lost room creations planned again"),
            Err(error) => tracing::warn!(%error, "lost room creations not checked"),
        }
    }
    if is_idle(LeagueWork::rooms()).await {
        match app.league_work.plan_missing().await {
            Ok(0) => {}
            Ok(rooms) => tracing::warn!(rooms, "rooms of leagues planned again"),
            Err(error) => tracing::warn!(%error, "rooms of leagues not checked"),
        }
    }
}

/// Applies events that the homeserver pushed: immediately if this process received them. The holder of the lease also
/// polls twice a second, for events that a process without workers received.
async fn apply_pushes(app: App, closing: CancellationToken) {
    let lease = app.leases().lease("membership sync", TASK_LEASE);
    let mut has_arrived = false;
    while !closing.is_cancelled() {
        let is_ours = is_held(&lease).await;
        let mut pause = Duration::from_millis(500);
        if (has_arrived || is_ours)
            && let Err(error) = app.membership_sync.apply_waiting().await
        {
            tracing::warn!(%error, "homeserver events not applied; retrying");
            pause = Duration::from_secs(2);
        }
        has_arrived = tokio::select! {
            () = closing.cancelled() => return,
            () = app.membership_sync.arrived() => true,
            () = tokio::time::sleep(pause), if is_ours => false,
            () = lease.wait(TASK_LEASE), if !is_ours => false,
        };
    }
}

/// Compares rooms while this process holds the lease.
async fn compare_rooms(app: App, closing: CancellationToken) {
    let lease = app.leases().lease("mirror comparison", Duration::from_secs(30));
    while acquire(&lease, &closing).await {
        compare(&app, &lease).await;
        tokio::select! {
            () = closing.cancelled() => {}
            () = tokio::time::sleep(Duration::from_secs(2)) => {}
        }
    }
}

/// Compares rooms that are due until none is left or another process holds the lease.
async fn compare(app: &App, lease: &Lease) {
    loop {
        let compared = match lease.hold().await {
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
    let removals = app.removals.sweep().await.map_err(|error| error.to_string());
    let turns = app.room_moderation.sweep().await.map_err(|error| error.to_string());
    let held = app.filters.sweep().await.map_err(|error| error.to_string());
    let reports = app.reports.sweep().await.map_err(|error| error.to_string());
    let facts = app.facts.sweep().await.map_err(|error| error.to_string());
    let weeks = app.scores.drop_past_weeks().await.map_err(|error| error.to_string());
    let swept = [
        ("sessions", sessions),
        ("codes", codes),
        ("phone moves", moves),
        ("messages", messages),
        ("pushes", pushes),
        ("room statistics", statistics),
        ("idempotency keys", keys),
        ("reminders", reminders),
        ("removals", removals),
        ("turns in slow mode", turns),
        ("held messages", held),
        ("restricted phones", moderation),
        ("reports", reports),
        ("facts", facts),
        ("scores of past weeks", weeks),
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
    let lease = app.leases().lease("outbox relay", app.config.outbox.lease);
    let (db, streams, written, clock) =
        (app.core.db.clone(), app.streams.clone(), app.core.outbox_written.clone(), app.core.clock.clone());
    Relay::new(db, streams, lease, app.config.outbox.poll, written, clock).run(closing).await;
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
    let mut blocks = app.streams.hear(IGNORED).await?;
    let mut pulses = app.streams.hear(outbox::PULSE).await?;
    loop {
        tokio::select! {
            () = closing.cancelled() => return Ok(()),
            Ok(()) = connections.changed() => {
                // Evict only after the subscriptions are restored; an earlier eviction could still miss a message.
                app.streams.settled().await;
                app.sessions.forget_all();
                app.matches.mark_stale();
                let view = app.chat_view.clone();
                // Evictions that follow must not wait for its queries.
                app.shutdown.spawn(async move { view.reconnected().await });
            }
            Some(message) = revocations.next() => app.sessions.heard(&message.payload),
            Some(_) = changes.next() => app.matches.mark_stale(),
            Some(_) = catalogue.next() => app.matches.mark_stale(),
            Some(message) = restrictions.next() => {
                app.moderation.heard(&message.payload);
                app.chat_view.heard_restriction(&message.payload);
            }
            Some(message) = blocks.next() => app.chat_view.heard_block(&message.payload),
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
