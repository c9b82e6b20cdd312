//! Tracks which matches were predicted, for live updates.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};

use web::ids::MatchId;

/// Matches whose tallies were changed by the batch writers of this process. Clones share the same set.
#[derive(Clone, Debug, Default)]
pub struct Changes(Arc<Mutex<HashSet<MatchId>>>);

impl Changes {
    /// Marks these matches as changed.
    pub fn note(&self, events: impl IntoIterator<Item = MatchId>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(events);
    }

    /// Number of matches that are marked as changed.
    pub fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Returns the matches that changed since the last call, and clears the set.
    pub fn take(&self) -> Vec<MatchId> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).drain().collect()
    }
}
