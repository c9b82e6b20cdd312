//! Queue for joining a room, or the stands of a match.
//!
//! A homeserver adds members to a room one at a time, so callers that join at the same time have to wait. Joins wait here,
//! in order, whether or not their callers wait too: the homeserver is then never idle because callers return late. A
//! caller who would wait for long gets the time to ask again. If the queue is too long, callers are refused, and return
//! at different times before it is empty.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use platform::random::{self, Random};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Number of concurrent joins per room in this process. The budget limits them over all processes and rooms; this leaves
/// some of it to other rooms.
const AT_ONCE: usize = 3;
/// Limit for the expected wait. Callers that would wait longer are refused.
const LONGEST_WAIT: Duration = Duration::from_mins(1);
/// Limit for the number of joins in the queue, which are held in memory.
const LONGEST_QUEUE: u32 = 200;
/// Expected wait at which another room of the match takes joins too.
const RUSH: Duration = Duration::from_secs(15);
/// Assumed time per join before one was measured. Several processes share the homeserver.
const FIRST_PACE: Duration = Duration::from_millis(300);
/// Limit for the delay after which a queued caller asks again. The expected wait may be wrong.
const LONGEST_DELAY: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Line {
    places: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Joins that wait for a slot or hold one.
    inside: u32,
    /// Number of the next join.
    next: u64,
    /// Number of joins that no longer wait.
    left: u64,
    /// Moving average of the time between two finished joins.
    pace: Duration,
    finished_at: Option<Instant>,
}

/// The queue is too long; retry after this delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Busy {
    pub(super) retry_after: Duration,
}

/// A position in the queue, released on drop.
#[derive(Debug)]
pub(super) struct Place {
    line: Arc<Line>,
    number: u64,
    permit: Option<OwnedSemaphorePermit>,
    since: Instant,
}

impl Line {
    pub(super) fn new() -> Self {
        let state = State { inside: 0, next: 0, left: 0, pace: FIRST_PACE, finished_at: None };
        Self { places: Arc::new(Semaphore::new(AT_ONCE)), state: Mutex::new(state) }
    }

    /// Enters the queue, unless it is too long.
    pub(super) fn enter(self: &Arc<Self>, random: &dyn Random) -> Result<Place, Busy> {
        let mut state = self.state();
        let wait = state.pace * state.inside;
        if wait > LONGEST_WAIT || state.inside >= LONGEST_QUEUE {
            // Between a quarter and three quarters of the time until the queue is empty.
            let wait = wait.min(LONGEST_WAIT);
            return Err(Busy { retry_after: wait / 4 + some_of(random, wait / 2 + Duration::from_secs(1)) });
        }
        Ok(self.step_in(&mut state))
    }

    /// Like [`Self::enter`], without being refused for the length of the queue. For work that is expensive to repeat.
    pub(super) fn enter_anyway(self: &Arc<Self>) -> Place {
        self.step_in(&mut self.state())
    }

    fn step_in(self: &Arc<Self>, state: &mut State) -> Place {
        let number = state.next;
        state.next += 1;
        state.inside += 1;
        Place { line: Arc::clone(self), number, permit: None, since: Instant::now() }
    }

    /// Expected time until the join with this number is done.
    pub(super) fn wait(&self, number: u64) -> Duration {
        let state = self.state();
        let ahead = u32::try_from(number.saturating_sub(state.left)).unwrap_or(u32::MAX);
        state.pace.saturating_mul(ahead.saturating_add(1))
    }

    /// Delay after which the caller of a queued join asks again: half of the expected wait, with jitter, because clients
    /// round delays and restart at the same time.
    pub(super) fn delay(&self, number: u64, random: &dyn Random) -> Duration {
        delay_for(self.wait(number), random)
    }

    /// Like [`Self::delay`], for a join that waits in another process, whose queue is about as long.
    pub(super) fn delay_elsewhere(&self, random: &dyn Random) -> Duration {
        let state = self.state();
        delay_for(state.pace * state.inside / 2, random)
    }

    /// Whether there is only one join in the queue.
    pub(super) fn has_one(&self) -> bool {
        self.state().inside <= 1
    }

    /// Number of rooms that should take joins at the same time, at most `most`: one, and another one for every
    /// [`RUSH`] that the last one in the queue waits. One until the pace is known.
    pub(super) fn rooms_needed(&self, most: u32) -> u32 {
        let state = self.state();
        if state.finished_at.is_none() {
            return 1;
        }
        let more = (state.pace * state.inside).as_secs() / RUSH.as_secs();
        u32::try_from(more + 1).unwrap_or(u32::MAX).min(most)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Records a join that began at `since`. Its pace is the time since the last one, if joins were waiting all the time.
    /// With free slots, the sample measures the duration of a join and not the throughput. It then counts only if it
    /// lowers the average; otherwise the queue would be shorter than necessary.
    fn joined(&mut self, now: Instant, since: Instant) {
        let sample = now.duration_since(self.finished_at.map_or(since, |last| last.max(since)));
        self.finished_at = Some(now);
        if usize::try_from(self.inside).is_ok_and(|inside| inside >= AT_ONCE) || sample < self.pace {
            self.pace = (self.pace * 7 + sample) / 8;
        }
    }
}

impl Place {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Waits for a slot. Returns `None` if there is none within `patience`.
    pub(super) async fn admitted_within(mut self, patience: Duration) -> Option<Self> {
        let permit = tokio::time::timeout(patience, Arc::clone(&self.line.places).acquire_owned()).await;
        self.permit = Some(permit.ok()?.ok()?);
        self.since = Instant::now();
        self.line.state().left += 1;
        Some(self)
    }

    /// Leaves after a successful join, whose time counts.
    pub(super) fn joined(self) {
        self.line.state().joined(Instant::now(), self.since);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.line.state();
        state.inside -= 1;
        if self.permit.is_none() {
            state.left += 1;
        }
    }
}

fn delay_for(wait: Duration, random: &dyn Random) -> Duration {
    (wait / 2).min(LONGEST_DELAY) + some_of(random, Duration::from_secs(1))
}

/// A random part of a time.
fn some_of(random: &dyn Random, time: Duration) -> Duration {
    time * u32::from(u16::from_be_bytes(random::bytes(random))) / u32::from(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::SeededRandom;

    const PATIENCE: Duration = Duration::from_secs(4);

    #[tokio::test(start_paused = true)]
    async fn joins_wait_in_order() {
        let (line, random) = (Arc::new(Line::new()), SeededRandom::new(3));
        let mut places = Vec::new();
        for _ in 0..50 {
            places.push(line.enter(&random).expect("a place"));
        }
        // Fifteen seconds for fifty joins, before one was measured.
        assert_eq!((line.wait(0), line.wait(49)), (FIRST_PACE, Duration::from_secs(15)));
        let delays: Vec<f64> = (0..50).map(|number| line.delay(number, &random).as_secs_f64()).collect();
        assert!(delays[..5].iter().all(|&delay| delay < 1.8), "{delays:?}");
        assert!(delays[45..].iter().all(|&delay| (6.8..8.6).contains(&delay)), "{delays:?}");

        let mut waiting = places.split_off(AT_ONCE);
        let mut held = Vec::new();
        for place in places {
            held.push(place.admitted_within(PATIENCE).await.expect("a slot"));
        }
        assert_eq!(line.wait(3), FIRST_PACE, "the fourth is next");
        let began = tokio::time::Instant::now();
        assert!(waiting.remove(0).admitted_within(PATIENCE).await.is_none(), "no slot is released");
        assert_eq!(began.elapsed(), PATIENCE);
        assert_eq!(line.state().inside, 49);
        assert_eq!(line.wait(4), FIRST_PACE, "the fifth is next");
        drop((held, waiting));
        assert_eq!(line.state().inside, 0);
        assert_eq!(line.state().left, 50);
        line.enter_anyway().admitted_within(PATIENCE).await.expect("a slot");
    }

    #[test]
    fn long_queue_refuses_with_spread_delays() {
        let (line, random) = (Arc::new(Line::new()), SeededRandom::new(3));
        let places: Vec<Place> = (0..LONGEST_QUEUE).map(|_| line.enter(&random).expect("a place")).collect();
        // The queue takes a minute.
        let mut delays: Vec<f64> =
            (0..200).map(|_| line.enter(&random).expect_err("too long").retry_after.as_secs_f64()).collect();
        delays.sort_unstable_by(f64::total_cmp);
        assert!((15.0..17.0).contains(&delays[0]) && (44.0..46.1).contains(&delays[199]), "{delays:?}");
        assert!((27.0..34.0).contains(&delays[100]), "{delays:?}");
        assert_eq!(line.rooms_needed(4), 1, "the pace is not known");
        line.state().finished_at = Some(Instant::now());
        assert_eq!((line.rooms_needed(4), line.rooms_needed(1)), (4, 1));
        drop(places);
        // A slow homeserver has a shorter queue.
        line.state().pace = Duration::from_secs(2);
        let places: Vec<Place> = std::iter::from_fn(|| line.enter(&random).ok()).collect();
        assert_eq!(places.len(), 31);
        drop(places);
        let _places: Vec<Place> = (0..10).map(|_| line.enter(&random).expect("a place")).collect();
        assert_eq!(line.rooms_needed(4), 2, "the last one waits for 20 seconds");
        assert_eq!(line.delay(1_000, &random).as_secs(), 10, "the expected wait may be wrong");
    }

    #[test]
    fn pace_is_time_between_joins_while_others_wait() {
        let (start, mut state) = (Instant::now(), Line::new().state.into_inner().expect("not poisoned"));
        state.inside = 10;
        // Three at a time, each takes 1.5 seconds.
        for number in 0..60_u32 {
            let since = start + Duration::from_millis(500) * number;
            state.joined(since + Duration::from_millis(1_500), since);
        }
        assert!((490..510).contains(&state.pace.as_millis()), "{:?}", state.pace);
        // A single join does not make the queue shorter, but a fast one makes it longer.
        state.inside = 1;
        let later = start + Duration::from_mins(5);
        state.joined(later + Duration::from_secs(3), later);
        assert!((490..510).contains(&state.pace.as_millis()), "{:?}", state.pace);
        let (later, pace) = (later + Duration::from_mins(1), state.pace);
        state.joined(later + Duration::from_millis(80), later);
        assert!(state.pace < pace);
    }
}
