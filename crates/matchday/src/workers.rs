//! What runs beside the handlers.
//!
//! Every process *listens*, because every process has caches. The *workers* run in `serve` and `worker`, and not in
//! `serve --no-workers`.

use std::time::Duration;

use futures_util::StreamExt as _;
use tokio_util::sync::CancellationToken;

use crate::{
    app::App,
    chat::service::Chat,
    events,
    platform::{lease::Lease, outbox::Relay, random, stream::TransportError, telemetry},
    sessions,
};

/// Begins to hear what other processes tell, and to tidy up metrics.
pub fn listen(app: &App) {
    let closing = app.shutdown.closing().clone();
    app.shutdown.spawn(hear(app.clone(), closing.clone()));
    let checked = app.clone();
    app.shutdown
        .spawn(every(Duration::from_secs(1), closing.clone(), async move || checked.checks.refresh(&checked).await));
    app.shutdown.spawn(every(Duration::from_secs(5), closing, async || telemetry::metrics().run_upkeep()));
}

/// Begins to do background work.
pub fn work(app: &App) {
    let closing = app.shutdown.closing().clone();
    app.shutdown.spawn(relay(app.clone(), closing.clone()));
    app.shutdown.spawn(work_in_chat(app.clone(), closing.clone()));
    let codes = app.codes.clone();
    app.shutdown.spawn(every(Duration::from_secs(30), closing.clone(), async move || {
        if let Err(error) = codes.judge_conversions().await {
            tracing::warn!(%error, "nobody looked how many codes came back");
        }
    }));
    let swept = app.clone();
    app.shutdown.spawn(every(Duration::from_hours(1), closing, async move || sweep(&swept).await));
}

async fn work_in_chat(app: App, closing: CancellationToken) {
    ensure_streams(&app, &closing).await;
    let chat = app.chat.clone();
    let perform = move |delivery| {
        let chat = chat.clone();
        async move { chat.perform(delivery).await }
    };
    app.streams.consume(Chat::work(), perform, closing).await;
}

/// Removes what has had its time.
async fn sweep(app: &App) {
    let sessions = app.sessions.sweep().await.map_err(|error| error.to_string());
    let codes = app.codes.sweep().await.map_err(|error| error.to_string());
    let messages = app.sms.sweep().await.map_err(|error| error.to_string());
    for (what, outcome) in [("sessions", sessions), ("codes", codes), ("messages", messages)] {
        match outcome {
            Ok(0) => {}
            Ok(swept) => tracing::info!(swept, what, "what was over was removed"),
            Err(error) => tracing::warn!(error, what, "what was over was not removed"),
        }
    }
}

/// Waits until the streams exist: before that nothing can be published or consumed, and messages wait in the outbox.
async fn ensure_streams(app: &App, closing: &CancellationToken) {
    while let Err(error) = app.streams.ensure().await {
        tracing::warn!(%error, "the streams are not there yet");
        tokio::select! {
            () = closing.cancelled() => return,
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    }
}

async fn relay(app: App, closing: CancellationToken) {
    ensure_streams(&app, &closing).await;
    let holder = random::uuid_v7(&*app.random, &*app.clock);
    let lease = Lease::new("outbox relay", holder, app.config.outbox.lease);
    let (db, streams, wake, clock) =
        (app.db.clone(), app.streams.clone(), app.outbox_written.clone(), app.clock.clone());
    Relay::new(db, streams, lease, app.config.outbox.poll, wake, clock).run(closing).await;
}

/// Keeps caches honest: each message evicts what it speaks of, and a connection that was lost evicts everything,
/// since nobody knows what was said meanwhile.
async fn hear(app: App, closing: CancellationToken) {
    while let Err(error) = hear_until_closing(&app, &closing).await {
        tracing::warn!(%error, "cannot listen to other processes; caches run out by themselves");
        tokio::select! {
            () = closing.cancelled() => return,
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    }
}

async fn hear_until_closing(app: &App, closing: &CancellationToken) -> Result<(), TransportError> {
    let mut connections = app.streams.connections();
    let mut revocations = app.streams.hear(sessions::service::REVOKED).await?;
    let mut changes = app.streams.hear(events::service::FACTS).await?;
    let mut catalogue = app.streams.hear(events::service::CATALOGUE).await?;
    loop {
        tokio::select! {
            () = closing.cancelled() => return Ok(()),
            Ok(()) = connections.changed() => {
                // Only once the subscriptions stand again is nothing missed any more.
                app.streams.settled().await;
                app.sessions.forget_all();
                app.events.mark_stale();
            }
            Some(message) = revocations.next() => app.sessions.heard(&message.payload),
            Some(_) = changes.next() => app.events.mark_stale(),
            Some(_) = catalogue.next() => app.events.mark_stale(),
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
