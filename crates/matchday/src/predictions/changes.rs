//! Which matches were predicted since somebody last looked.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};

use web::ids::EventId;

/// Matches whose tallies changed by the writers of this process. Cheap to clone; all clones are one.
#[derive(Clone, Debug, Default)]
pub struct Changes(Arc<Mutex<HashSet<EventId>>>);

impl Changes {
    /// These changed.
    pub fn note(&self, events: impl IntoIterator<Item = EventId>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(events);
    }

    /// Takes those that changed since the last time.
    pub fn take(&self) -> Vec<EventId> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).drain().collect()
    }
}
