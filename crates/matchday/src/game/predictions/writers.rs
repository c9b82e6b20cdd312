//! Batch writer for predictions: writes many predictions in one transaction, because most users predict in the same few
//! minutes.

use std::{collections::HashMap, sync::Arc};

use platform::{
    batches::{Attempt, Write},
    random::{self, Random},
};
use scoring::Forecast;
use sqlx::PgConnection;
use web::ids::{MatchId, UserId};

use super::{
    changes::Changes,
    service::{SaveError, Saved},
    store::{self, Entry, Tally},
};
use crate::catalogue::matches::service::Matches;

/// Number of slots that the tally of a match is spread over.
const SLOTS: u8 = 64;

/// Writes the predictions of one shard.
pub(super) struct Writer {
    events: Arc<Matches>,
    changes: Changes,
    /// Slot of the tallies that this writer updates.
    slot: i16,
}

impl Writer {
    /// Creates the writers of this process, one per shard.
    pub(super) fn for_shards(
        events: &Arc<Matches>,
        changes: &Changes,
        number: usize,
        random: &dyn Random,
    ) -> Vec<Self> {
        let [first]: [u8; 1] = random::bytes(random);
        // Writers of other processes may have the same slot. They then only wait for each other's locks.
        let slot = |shard: usize| i16::from(first.wrapping_add(u8::try_from(shard % 256).unwrap_or_default()) % SLOTS);
        (0..number)
            .map(|shard| Self { events: Arc::clone(events), changes: changes.clone(), slot: slot(shard) })
            .collect()
    }
}

impl Write for Writer {
    type Entry = Entry;
    /// A second prediction of a user for a match waits for the next batch, so that every revision is kept and the last
    /// one counts.
    type Key = (UserId, MatchId);
    type Outcome = Result<Saved, SaveError>;

    const BATCHES: &'static str = "matchday_predictions_batches_total";

    fn key(entry: &Entry) -> Option<Self::Key> {
        Some(entry.key())
    }

    /// A second attempt may find predictions that the first attempt wrote, and leaves them unchanged.
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
        let mut events: Vec<MatchId> = entries.iter().map(|entry| entry.event).collect();
        events.sort_unstable();
        events.dedup();
        let mut tx = store::begin_at_gates(connection, &events).await?;
        let mut saved: HashMap<(UserId, MatchId), Saved> = store::insert(&mut tx, entries).await?;
        let has_new = !saved.is_empty();
        let mut tallies: HashMap<MatchId, Tally> = HashMap::new();
        for entry in entries.iter().filter(|entry| saved.contains_key(&entry.key())) {
            tallies.entry(entry.event).or_default().add(entry.forecast);
        }
        let rest: Vec<Entry> = entries.iter().filter(|entry| !saved.contains_key(&entry.key())).copied().collect();
        if !rest.is_empty() {
            let mut earlier = store::lock_earlier(&mut tx, &rest).await?;
            let forecasts: HashMap<_, Forecast> = rest.iter().map(|entry| (entry.key(), entry.forecast)).collect();
            saved.extend(earlier.iter().map(|earlier| (earlier.key(), earlier.saved)));
            // An unchanged forecast makes no new revision.
            earlier.retain(|earlier| forecasts.get(&earlier.key()) != Some(&earlier.forecast));
            store::keep_earlier(&mut tx, &earlier).await?;
            store::replace(&mut tx, &rest, &earlier).await?;
            for earlier in &earlier {
                let tally = tallies.entry(earlier.event).or_default();
                tally.remove(earlier.forecast);
                if let Some(&forecast) = forecasts.get(&earlier.key()) {
                    tally.add(forecast);
                }
            }
        }
        let refused = rest.iter().any(|entry| !saved.contains_key(&entry.key()));
        // The gates are still held, so these are the statuses for which the predictions were refused.
        let known = if refused { store::statuses(&mut tx, &events).await? } else { HashMap::new() };
        store::add_to_tallies(&mut tx, self.slot, &tallies).await?;
        tx.commit().await?;
        self.changes.note(tallies.into_keys());
        if has_new {
            // Other processes are not notified: their caches expire soon anyway.
            self.events.mark_stale();
        }
        let refusal =
            |entry: &Entry| known.get(&entry.event).map_or(SaveError::NoSuchMatch, |&status| SaveError::Closed(status));
        let outcome = |entry: &Entry| saved.get(&entry.key()).copied().ok_or_else(|| refusal(entry));
        Ok(entries.iter().map(outcome).collect())
    }
}
