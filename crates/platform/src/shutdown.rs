//! How a process ends: readiness goes off, balancers get notice, requests finish, workers hand back.

use std::time::Duration;

use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinHandle,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

crate::section! {
    /// How a process ends.
    shutdown: Settings {
        /// How long readiness is off before the listener closes, so that balancers stop sending.
        notice: Duration = "0s",
        /// How long requests under way may take to finish.
        drain: Duration = "20s",
    }
}

/// The two steps of an ending, and the tasks that must be over before the process is.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    draining: CancellationToken,
    closing: CancellationToken,
    tasks: TaskTracker,
}

impl Shutdown {
    /// Set once the process was told to end: readiness is off, but requests are still answered.
    pub fn draining(&self) -> &CancellationToken {
        &self.draining
    }

    /// Set when listeners close and workers stop taking work.
    pub fn closing(&self) -> &CancellationToken {
        &self.closing
    }

    /// Starts a task that the process waits for.
    pub fn spawn<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.tasks.spawn(task)
    }

    /// Ends everything: gives notice, closes, and waits at most `drain` for what is under way.
    pub async fn end(&self, notice: Duration, drain: Duration) {
        self.draining.cancel();
        if !notice.is_zero() {
            tracing::info!(seconds = notice.as_secs_f64(), "not ready any more; waiting for balancers to notice");
            tokio::time::sleep(notice).await;
        }
        self.closing.cancel();
        self.tasks.close();
        if tokio::time::timeout(drain, self.tasks.wait()).await.is_err() {
            tracing::warn!(seconds = drain.as_secs_f64(), "some work did not finish in time and was cut off");
        }
    }
}

/// Resolves when the process is told to end (`SIGTERM`, or `SIGINT` from a terminal).
pub async fn signalled() -> std::io::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
