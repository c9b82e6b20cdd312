//! Graceful shutdown: readiness fails, load balancers get notice, requests finish, workers release their work.

use std::time::Duration;

use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinHandle,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

crate::section! {
    /// Graceful shutdown of a process.
    shutdown: Settings {
        /// Time between failing readiness and closing the listener, so load balancers stop sending requests.
        notice: Duration = "0s",
        /// Maximum time for requests in flight to finish.
        drain: Duration = "20s",
    }
}

/// The two phases of a shutdown, and the tasks that must finish before the process exits.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    draining: CancellationToken,
    closing: CancellationToken,
    tasks: TaskTracker,
}

impl Shutdown {
    /// Cancelled when shutdown starts: readiness fails, but requests are still served.
    pub fn draining(&self) -> &CancellationToken {
        &self.draining
    }

    /// Cancelled when listeners close and workers stop taking work.
    pub fn closing(&self) -> &CancellationToken {
        &self.closing
    }

    /// Spawns a task that shutdown waits for.
    pub fn spawn<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.tasks.spawn(task)
    }

    /// Shuts down: fails readiness, waits for `notice`, closes, and waits at most `drain` for running tasks.
    pub async fn end(&self, notice: Duration, drain: Duration) {
        self.draining.cancel();
        if !notice.is_zero() {
            tracing::info!(seconds = notice.as_secs_f64(), "readiness turned off; waiting for load balancers");
            tokio::time::sleep(notice).await;
        }
        self.closing.cancel();
        self.tasks.close();
        if tokio::time::timeout(drain, self.tasks.wait()).await.is_err() {
            tracing::warn!(seconds = drain.as_secs_f64(), "drain timed out; remaining tasks aborted");
        }
    }
}

/// Resolves on `SIGTERM`, or `SIGINT` from a terminal.
pub async fn signalled() -> std::io::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
