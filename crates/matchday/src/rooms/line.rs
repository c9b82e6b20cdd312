//! The line in front of a room, or of the stands of a match.
//!
//! A homeserver adds members to a room one at a time, so a crowd that joins at once has to wait somewhere. Few wait here,
//! in order and briefly; everybody else is refused at once with a time to come back. Those times follow each other at the
//! pace at which the homeserver adds members, so that those who were refused do not come back as the same crowd.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use platform::random::{self, Random};
use time::OffsetDateTime;
use tokio::sync::{Semaphore, SemaphorePermit};

/// How many joins into one room are sent at once. The homeserver takes one at a time, also from other processes of ours.
const AT_ONCE: usize = 3;
/// The longest wait, as far as it can be foreseen. Callers that would wait longer are refused at once.
const LONGEST_WAIT: Duration = Duration::from_millis(500);
/// The pace that is assumed until one was measured.
const FIRST_PACE: Duration = Duration::from_millis(100);
/// The latest time to come back. A longer line is not spread any further.
const LATEST: Duration = Duration::from_mins(1);

/// The line of a room.
#[derive(Debug)]
pub(super) struct Line {
    places: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Callers that wait for a place, or have one.
    inside: u32,
    /// Time from one finished join to the next, averaged.
    pace: Duration,
    /// When the last caller who was refused is to come back.
    promised: Option<OffsetDateTime>,
}

/// The line is too long: come back after this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Busy {
    pub(super) retry_after: Duration,
}

/// A place in the line. It is free again when it is dropped.
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

    /// Waits for a place for a user, who is refused when the line is too long. One who was let into the line waits for as
    /// long as the patience lasts: the homeserver may have become slower.
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

    /// Waits for a place for work that nobody should have to repeat, up to this long.
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
    /// Gives out the next time to come back, with some randomness, because clients round, and restart together.
    fn refuse(&mut self, random: &dyn Random, now: OffsetDateTime) -> Busy {
        let line_ends = now + self.pace * self.inside;
        let next = self.promised.map_or(line_ends, |promised| promised.max(line_ends)) + self.pace;
        let promised = next.min(now + LATEST);
        self.promised = Some(promised);
        let wait = Duration::try_from(promised - now).unwrap_or_default();
        let share = u32::from(u16::from_be_bytes(random::bytes(random)));
        // Up to a quarter more, and up to a second.
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
            // So many were sent together, and finished one after the other. Fewer than fit say how long a join takes, and
            // not how many finish in a time: taken for the pace, they would keep the line emptier than it has to be.
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
    async fn refusals_are_spread_and_grow_with_line() {
        let (line, random) = (Line::new(), SeededRandom::new(3));
        // In the places, and in line as long as the wait is short.
        let mut inside = Vec::new();
        for _ in 0..AT_ONCE {
            inside.push(line.enter(&random, NOW, PATIENCE).await.expect("a place"));
        }
        line.state().inside += 5;
        let mut told = Vec::new();
        for _ in 0..200 {
            told.push(seconds(line.enter(&random, NOW, PATIENCE).await.expect_err("the line is too long")));
        }
        assert!(told[0] < 3.0 && (1.0..4.0).contains(&told[5]), "{told:?}");
        assert!(told[199] > 20.0, "200 joins take 20 seconds: {told:?}");
        let early: f64 = told[..50].iter().sum();
        let late: f64 = told[150..].iter().sum();
        assert!(late > 3.0 * early, "{told:?}");
        for second in 0..20 {
            let back = told.iter().filter(|&&at| at >= f64::from(second) && at < f64::from(second + 1)).count();
            assert!(back <= 20, "{back} come back in second {second}: {told:?}");
        }
        // However long the line is.
        for _ in 0..2_000 {
            let told = seconds(line.enter(&random, NOW, PATIENCE).await.expect_err("the line is too long"));
            assert!(told <= 76.0, "{told}");
        }
        // A line that is gone is not held against anybody.
        line.state().inside -= 5;
        inside.clear();
        let later = NOW + time::Duration::minutes(2);
        let mut inside = Vec::new();
        for _ in 0..AT_ONCE {
            inside.push(line.enter(&random, later, PATIENCE).await.expect("a place"));
        }
        line.state().inside += 20;
        assert!(seconds(line.enter(&random, later, PATIENCE).await.expect_err("too long")) < 5.0);
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
        .map(|place| place.expect("a place"))
        .collect();
        let began = tokio::time::Instant::now();
        line.enter(&random, NOW, PATIENCE).await.expect_err("nobody leaves");
        assert_eq!(began.elapsed(), PATIENCE);
        assert!(line.enter_patiently(Duration::from_secs(3)).await.is_none());
        assert_eq!(line.state().inside, 3, "callers that gave up are not counted");
        drop(held);
        assert_eq!(line.state().inside, 0);
        line.enter(&random, NOW, PATIENCE).await.expect("a place");
    }
}
