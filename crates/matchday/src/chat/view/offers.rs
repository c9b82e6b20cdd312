//! Rooms whose events may not have reached all processes.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use tokio::time::Instant;

/// Time for which a published event is in doubt. NATS detects a broken connection within three minutes, and events
/// published meanwhile are lost.
const DOUBTED_FOR: Duration = Duration::from_mins(5);

/// Interval at which rooms without doubt are removed.
const SWEPT_EVERY: Duration = Duration::from_mins(1);

/// Rooms for which this process received events, by Matrix id.
pub(super) struct Offers {
    /// Time of the last published event of each room.
    published: HashMap<String, Instant>,
    /// Rooms with events that were not published.
    missed: HashSet<String>,
    /// Whether a task reports the missed rooms.
    is_reporting: bool,
    swept_at: Instant,
}

impl Offers {
    pub(super) fn new(now: Instant) -> Self {
        Self { published: HashMap::new(), missed: HashSet::new(), is_reporting: false, swept_at: now }
    }

    pub(super) fn note_published(&mut self, room: &str, now: Instant) {
        match self.published.get_mut(room) {
            Some(at) => *at = now,
            None => {
                self.published.insert(room.to_owned(), now);
            }
        }
        if now.duration_since(self.swept_at) >= SWEPT_EVERY {
            self.sweep(now);
        }
    }

    /// Notes an event that was not published. Returns whether the caller must start the task that reports missed rooms.
    #[must_use]
    pub(super) fn note_missed(&mut self, room: &str) -> bool {
        self.missed.insert(room.to_owned());
        !std::mem::replace(&mut self.is_reporting, true)
    }

    /// Handles a lost connection: events that were published shortly before may be lost. Returns like
    /// [`Self::note_missed`].
    #[must_use]
    pub(super) fn doubt(&mut self, now: Instant) -> bool {
        self.sweep(now);
        self.missed.extend(self.published.drain().map(|(room, _)| room));
        !self.missed.is_empty() && !std::mem::replace(&mut self.is_reporting, true)
    }

    /// Takes the missed rooms. `None` ends the task that reports them.
    pub(super) fn take_missed(&mut self) -> Option<HashSet<String>> {
        let missed = std::mem::take(&mut self.missed);
        self.is_reporting = !missed.is_empty();
        self.is_reporting.then_some(missed)
    }

    fn sweep(&mut self, now: Instant) {
        self.published.retain(|_, at| now.duration_since(*at) < DOUBTED_FOR);
        self.swept_at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_rooms_are_reported_by_one_task() {
        let mut offers = Offers::new(Instant::now());
        assert!(offers.note_missed("!a:s"));
        assert!(!offers.note_missed("!b:s"), "a task is running");
        assert_eq!(offers.take_missed().map(|missed| missed.len()), Some(2));
        // Reporting a room failed.
        assert!(!offers.note_missed("!b:s"));
        assert_eq!(offers.take_missed(), Some(HashSet::from(["!b:s".to_owned()])));
        assert_eq!(offers.take_missed(), None);
        assert!(offers.note_missed("!c:s"), "the task has ended");
    }

    #[test]
    fn lost_connection_casts_doubt_on_recent_events() {
        let start = Instant::now();
        let mut offers = Offers::new(start);
        offers.note_published("!old:s", start);
        offers.note_published("!new:s", start + DOUBTED_FOR);
        assert!(offers.doubt(start + DOUBTED_FOR));
        assert_eq!(offers.take_missed(), Some(HashSet::from(["!new:s".to_owned()])));
        assert_eq!(offers.take_missed(), None);
        assert!(!offers.doubt(start + DOUBTED_FOR), "nothing was published since");
    }
}
