//! How predictions are written, many at once: everybody predicts in the same few minutes.

use std::{collections::HashMap, sync::Arc};

use platform::{
    batches::{Attempt, Write},
    random::{self, Random},
};
use scoring::Forecast;
use sqlx::PgConnection;
use web::ids::{EventId, UserId};

use super::{
    changes::Changes,
    service::{SaveError, Saved},
    store::{self, Entry, Tally},
};
use crate::events::service::Events;

/// How many slots a match's tally has.
const SLOTS: u8 = 64;

/// Writes the predictions of one lane.
pub(super) struct Writer {
    events: Arc<Events>,
    changes: Changes,
    /// Where it counts.
    slot: i16,
}

impl Writer {
    /// The writers of this process.
    pub(super) fn several(events: &Arc<Events>, changes: &Changes, number: usize, random: &dyn Random) -> Vec<Self> {
        let [first]: [u8; 1] = random::bytes(random);
        // Writers of other processes may have the same slot. Then they wait for each other, and that is all.
        let slot = |lane: usize| i16::from(first.wrapping_add(u8::try_from(lane % 256).unwrap_or_default()) % SLOTS);
        (0..number)
            .map(|lane| Self { events: Arc::clone(events), changes: changes.clone(), slot: slot(lane) })
            .collect()
    }
}

impl Write for Writer {
    type Entry = Entry;
    /// A second word of a user on a match waits for the next batch: so every one of them is kept, and the last one counts.
    type Key = (UserId, EventId);
    type Outcome = Result<Saved, SaveError>;

    const BATCHES: &'static str = "matchday_predictions_batches_total";

    fn key(entry: &Entry) -> Option<Self::Key> {
        Some(entry.key())
    }

    /// What a first attempt may have written is found by the second one: a word that is repeated is left as it is.
    async fn write(
        &self,
        connection: &mut PgConnection,
        entries: &[Entry],
        _: Attempt,
    ) -> sqlx::Result<Vec<Result<Saved, SaveError>>> {
        if let [entry] = entries
            && let Some(saved) = store::insert_alone(connection, self.slot, entry).await?
        {
            self.events.mark_stale();
            self.changes.note([entry.event]);
            return Ok(vec![Ok(saved)]);
        }
        let mut events: Vec<EventId> = entries.iter().map(|entry| entry.event).collect();
        events.sort_unstable();
        events.dedup();
        let mut tx = store::begin_at_gates(connection, &events).await?;
        let mut saved: HashMap<(UserId, EventId), Saved> = store::insert(&mut tx, entries).await?;
        let has_new = !saved.is_empty();
        let mut tallies: HashMap<EventId, Tally> = HashMap::new();
        for entry in entries.iter().filter(|entry| saved.contains_key(&entry.key())) {
            tallies.entry(entry.event).or_default().add(entry.forecast);
        }
        let rest: Vec<Entry> = entries.iter().filter(|entry| !saved.contains_key(&entry.key())).copied().collect();
        if !rest.is_empty() {
            let mut earlier = store::hold_earlier(&mut tx, &rest).await?;
            let words: HashMap<_, Forecast> = rest.iter().map(|entry| (entry.key(), entry.forecast)).collect();
            saved.extend(earlier.iter().map(|earlier| (earlier.key(), earlier.saved)));
            // Who repeats themselves has said nothing new.
            earlier.retain(|earlier| words.get(&earlier.key()) != Some(&earlier.forecast));
            store::keep_earlier(&mut tx, &earlier).await?;
            store::replace(&mut tx, &rest, &earlier).await?;
            for earlier in &earlier {
                let tally = tallies.entry(earlier.event).or_default();
                tally.remove(earlier.forecast);
                if let Some(&forecast) = words.get(&earlier.key()) {
                    tally.add(forecast);
                }
            }
        }
        let refused = rest.iter().any(|entry| !saved.contains_key(&entry.key()));
        // The gates are still held, so these are the statuses by which the predictions were refused.
        let known = if refused { store::statuses(&mut tx, &events).await? } else { HashMap::new() };
        store::add_to_tallies(&mut tx, self.slot, &tallies).await?;
        tx.commit().await?;
        self.changes.note(tallies.into_keys());
        if has_new {
            // Other processes are not told: their pages show the new count within their moment anyway.
            self.events.mark_stale();
        }
        let refusal =
            |entry: &Entry| known.get(&entry.event).map_or(SaveError::NoSuchEvent, |&status| SaveError::Closed(status));
        let outcome = |entry: &Entry| saved.get(&entry.key()).copied().ok_or_else(|| refusal(entry));
        Ok(entries.iter().map(outcome).collect())
    }
}
