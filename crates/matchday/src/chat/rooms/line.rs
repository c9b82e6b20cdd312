//! Queue for joining a room, or the stands of a match.
//!
//! A homeserver adds members to a room one at a time, so callers that join at the same time have to wait. A few wait
//! here, in order and briefly. All others are refused immediately with a retry delay. The delays are spaced at the rate
//! at which the homeserver adds members, so that refused callers do not all return at the same time.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use platform::random::{self, Random};
use time::OffsetDateTime;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Number of concurrent joins per room. The homeserver handles one at a time, including joins from our other processes.
const AT_ONCE: usize = 3;
/// Limit for the expected wait. Callers that would wait longer are refused immediately.
const LONGEST_WAIT: Duration = Duration::from_millis(500);
/// Assumed time per join before one was measured.
const FIRST_PACE: Duration = Duration::from_millis(100);
/// Limit for a retry delay before randomisation. A longer queue is not spread further.
const LATEST: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(super) struct Line {
    places: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Callers that wait for a slot or hold one.
    inside: u32,
    /// Moving average of the time between two finished joins.
    pace: Duration,
    /// Latest retry time that was given to a refused caller.
    promised: Option<OffsetDateTime>,
}

/// The queue is too long; retry after this delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Busy {
    pub(super) retry_after: Duration,
}

/// A position in the queue, released on drop.
#[derive(Debug)]
pub(super) struct Place<'a> {
    line: &'a Line,
    permit: Option<SemaphorePermit<'a>>,
    since: Instant,
}

impl Line {
    pub(super) fn new() -> Self {
        let state = State { inside: 0, pace: FIRST_PACE, promised: None };
        Self { places: Semaphore::new(AT_ONCE), state: Mutex::new(state) }
    }

    /// Waits for a slot, or refuses immediately if the queue is too long. A caller that was queued waits for up to
    /// `patience`, because the homeserver may have become slower in the meantime.
    pub(super) async fn enter(
        &self,
        random: &dyn Random,
        now: OffsetDateTime,
        patience: Duration,
    ) -> Result<Place<'_>, Busy> {
        let place = {
            let mut state = self.state();
            let ahead = (state.inside + 1).saturating_sub(u32::try_from(AT_ONCE).unwrap_or(u32::MAX));
            if state.pace * ahead > LONGEST_WAIT {
                return Err(state.refuse(random, now));
            }
            self.step_in(&mut state)
        };
        match place.admitted_within(patience).await {
            Some(place) => Ok(place),
            None => Err(self.state().refuse(random, now)),
        }
    }

    /// Waits up to `patience` for a slot, without being refused for the length of the queue. For work that is expensive
    /// to repeat.
    pub(super) async fn enter_patiently(&self, patience: Duration) -> Option<Place<'_>> {
        let place = self.step_in(&mut self.state());
        place.admitted_within(patience).await
    }

    fn step_in(&self, state: &mut State) -> Place<'_> {
        state.inside += 1;
        Place { line: self, permit: None, since: Instant::now() }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the next retry delay, with jitter, because clients round delays and restart at the same time.
    fn refuse(&mut self, random: &dyn Random, now: OffsetDateTime) -> Busy {
        let line_ends = now + self.pace * self.inside;
        let next = self.promised.map_or(line_ends, |promised| promised.max(line_ends)) + self.pace;
        let promised = next.min(now + LATEST);
        self.promised = Some(promised);
        let wait = Duration::try_from(promised - now).unwrap_or_default();
        let share = u32::from(u16::from_be_bytes(random::bytes(random)));
        // Adds up to a quarter of the delay plus one second.
        let spread = (wait / 4 + Duration::from_secs(1)) * share / u32::from(u16::MAX);
        Busy { retry_after: wait + spread }
    }
}

impl<'a> Place<'a> {
    async fn admitted_within(mut self, patience: Duration) -> Option<Place<'a>> {
        let permit = tokio::time::timeout(patience, self.line.places.acquire()).await;
        self.permit = Some(permit.ok()?.ok()?);
        self.since = Instant::now();
        Some(self)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.line.state();
        if self.permit.is_some() {
            // Concurrent joins finish one after the other, so the elapsed time is divided by their number. With free
            // slots, the sample measures the duration of a join and not the throughput. It then counts only if it
            // lowers the average; otherwise the queue would be shorter than necessary.
            let most = u32::try_from(AT_ONCE).unwrap_or(u32::MAX);
            let together = state.inside.clamp(1, most);
            let sample = self.since.elapsed() / together;
            if together == most || sample < state.pace {
                state.pace = (state.pace * 7 + sample) / 8;
            }
        }
        state.inside -= 1;
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;
    use crate::testing::SeededRandom;

    const NOW: OffsetDateTime = datetime!(2026-11-20 15:00 UTC);
    const PATIENCE: Duration = Duration::from_secs(4);

    fn seconds(busy: Busy) -> f64 {
        busy.retry_after.as_secs_f64()
    }

    #[tokio::test(start_paused = true)]
    async fn retry_delays_are_spread_and_grow_with_queue() {
        let (line, random) = (Line::new(), SeededRandom::new(3));
        // Fill all slots, and the queue up to the longest allowed wait.
        let mut inside = Vec::new();
        for _ in 0..AT_ONCE {
            inside.push(line.enter(&random, NOW, PATIENCE).await.expect("a slot"));
        }
        line.state().inside += 5;
        let mut delays = Vec::new();
        for _ in 0..200 {
            delays.push(seconds(line.enter(&random, NOW, PATIENCE).await.expect_err("the queue is too long")));
        }
        assert!(delays[0] < 3.0 && (1.0..4.0).contains(&delays[5]), "{delays:?}");
        assert!(delays[199] > 20.0, "200 joins take 20 seconds: {delays:?}");
        let early: f64 = delays[..50].iter().sum();
        let late: f64 = delays[150..].iter().sum();
        assert!(late > 3.0 * early, "{delays:?}");
        for second in 0..20 {
            let back = delays.iter().filter(|&&at| at >= f64::from(second) && at < f64::from(second + 1)).count();
            assert!(back <= 20, "{back} retry in second {second}: {delays:?}");
        }
        // The delay is limited for any length of the queue.
        for _ in 0..2_000 {
            let delay = seconds(line.enter(&random, NOW, PATIENCE).await.expect_err("the queue is too long"));
            assert!(delay <= 76.0, "{delay}");
        }
        // A queue that has drained does not delay later callers.
        line.state().inside -= 5;
        inside.clear();
        let later = NOW + time::Duration::minutes(2);
        let mut inside = Vec::new();
        for _ in 0..AT_ONCE {
            inside.push(line.enter(&random, later, PATIENCE).await.expect("a slot"));
        }
        line.state().inside += 20;
        assert!(seconds(line.enter(&random, later, PATIENCE).await.expect_err("the queue is too long")) < 5.0);
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_caller_is_refused_when_patience_ends() {
        let (line, random) = (Line::new(), SeededRandom::new(3));
        let held: Vec<_> = [
            line.enter(&random, NOW, PATIENCE).await,
            line.enter(&random, NOW, PATIENCE).await,
            line.enter(&random, NOW, PATIENCE).await,
        ]
        .into_iter()
        .map(|place| place.expect("a slot"))
        .collect();
        let began = tokio::time::Instant::now();
        line.enter(&random, NOW, PATIENCE).await.expect_err("no slot is released");
        assert_eq!(began.elapsed(), PATIENCE);
        assert!(line.enter_patiently(Duration::from_secs(3)).await.is_none());
        assert_eq!(line.state().inside, 3, "refused callers are not counted");
        drop(held);
        assert_eq!(line.state().inside, 0);
        line.enter(&random, NOW, PATIENCE).await.expect("a slot");
    }
}
