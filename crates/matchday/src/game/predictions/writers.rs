//! Batch writer for predictions: writes many predictions in one transaction, because most users predict in the same few
//! minutes.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use platform::{
    Core,
    batches::{Attempt, Write},
    clock::Clock,
    random::{self, Random},
    shards::{Ranges, Shards},
};
use sqlx::PgConnection;
use uuid::Uuid;
use web::ids::{MatchId, TournamentId, UserId};

use super::{
    changes::Changes,
    receipts,
    rules::{self, Conditions, MOST_REVISIONS},
    service::{SaveError, Saved},
    store::{self, Earlier, Entry, Tally},
};
use crate::{
    catalogue::matches::{rules::Status, service::Matches},
    identity::idempotency::{self, Effect, KeyOutcome, Prior, UsedKeys},
};

/// Number of slots that the tally of a match is spread over.
const SLOTS: u8 = 64;

/// Statuses of the responses to a first prediction and to a replacement, stored with idempotency keys.
const CREATED: u16 = 201;
const REPLACED: u16 = 200;

/// Writes the predictions of a part of the users.
pub(super) struct Writer {
    events: Arc<Matches>,
    changes: Changes,
    shards: Shards,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    /// Slot of the tallies that this writer updates.
    slot: i16,
}

impl Writer {
    /// Creates the writers of this process.
    pub(super) fn for_users(events: &Arc<Matches>, changes: &Changes, number: usize, core: &Core) -> Vec<Self> {
        let [first]: [u8; 1] = random::bytes(&*core.random);
        // Writers of other processes may have the same slot. They then only wait for each other's locks.
        let slot =
            |writer: usize| i16::from(first.wrapping_add(u8::try_from(writer % 256).unwrap_or_default()) % SLOTS);
        let writer = |number| Self {
            events: Arc::clone(events),
            changes: changes.clone(),
            shards: core.shards.clone(),
            clock: Arc::clone(&core.clock),
            random: Arc::clone(&core.random),
            slot: slot(number),
        };
        (0..number).map(writer).collect()
    }

    async fn write_batch(&self, connection: &mut PgConnection, entries: &[Entry]) -> sqlx::Result<Vec<Outcome>> {
        let mut events: Vec<MatchId> = entries.iter().map(|entry| entry.event).collect();
        events.sort_unstable();
        events.dedup();
        let mut tx = store::begin_at_gates(connection, &events).await?;
        let shards = self.shards.get(&mut tx).await?;
        let keys = Repeated::load(&mut tx, &self.shards, entries).await?;
        let fresh: Vec<Entry> = keys.unused(entries);
        let batch = Batch::save(&mut tx, shards, &*self.random, &events, &fresh).await?;
        let refused = fresh.iter().any(|entry| !batch.saved.contains_key(&entry.key()));
        // The gates are still held, so these are the statuses for which the predictions were refused.
        let statuses = if refused { store::statuses(&mut tx, &events).await? } else { HashMap::new() };
        idempotency::store_effects(&mut tx, &batch.effects(&fresh), self.clock.now()).await?;
        // Last, because writers of other processes may wait for this writer's slot.
        store::add_to_tallies(&mut tx, self.slot, &batch.tallies).await?;
        tx.commit().await?;
        self.changes.note(batch.tallies.keys().copied());
        if batch.has_new {
            // Other processes are not notified: their caches expire soon anyway.
            self.events.mark_stale();
        }
        // The second entry of a batch with the same key is another request, because the same one is for the same match
        // and waits for the next batch. The outcome of the first one is not known here: a refusal is stored later.
        let mut taken = HashSet::new();
        let outcome = |entry: &Entry| match keys.outcome(entry) {
            Some(outcome) => outcome,
            None if entry.request.is_some_and(|request| !taken.insert((entry.user, request.key))) => {
                Err(SaveError::KeyBusy)
            }
            None => batch.outcome(entry, &statuses),
        };
        Ok(entries.iter().map(outcome).collect())
    }
}

type Outcome = Result<(Saved, KeyOutcome), SaveError>;

/// Entries of a batch whose idempotency keys were used before.
struct Repeated {
    used: UsedKeys,
    /// Predictions of the repeated requests.
    saved: HashMap<(UserId, MatchId), Saved>,
}

impl Repeated {
    async fn load(connection: &mut PgConnection, shards: &Shards, entries: &[Entry]) -> sqlx::Result<Self> {
        let requests: Vec<_> = entries.iter().filter_map(|entry| entry.request).collect();
        let used = idempotency::find_used_keys(connection, shards, &requests).await?;
        let repetition = |entry: &Entry| match prior_of(&used, entry) {
            Some(Prior::Effect { revision, .. }) => Some((entry.user, entry.event, revision)),
            _ => None,
        };
        let repeated: Vec<_> = entries.iter().filter_map(repetition).collect();
        let saved = if repeated.is_empty() {
            HashMap::new()
        } else {
            let ranges = shards.get(connection).await?;
            store::find_saved(connection, ranges, &repeated).await?
        };
        Ok(Self { used, saved })
    }

    /// Returns the entries to write: the first one with each unused key, and those without a key.
    fn unused(&self, entries: &[Entry]) -> Vec<Entry> {
        let mut taken = HashSet::new();
        let is_unused = |entry: &&Entry| {
            prior_of(&self.used, entry).is_none()
                && entry.request.is_none_or(|request| taken.insert((entry.user, request.key)))
        };
        entries.iter().filter(is_unused).copied().collect()
    }

    /// Returns the outcome of an entry whose key was used before.
    fn outcome(&self, entry: &Entry) -> Option<Outcome> {
        Some(match prior_of(&self.used, entry)? {
            Prior::Effect { status, .. } => match self.saved.get(&entry.key()) {
                Some(&saved) => Ok((Saved { is_new: status == CREATED, ..saved }, KeyOutcome::Replayed)),
                None => Err(SaveError::KeyUsed),
            },
            Prior::Response(_) | Prior::Reused => Err(SaveError::KeyUsed),
        })
    }
}

fn prior_of(used: &UsedKeys, entry: &Entry) -> Option<Prior> {
    entry.request.and_then(|request| used.prior(request))
}

/// Predictions written in one transaction.
#[derive(Default)]
struct Batch {
    saved: HashMap<(UserId, MatchId), Saved>,
    /// Entries that break a rule of an open match.
    refused: HashMap<(UserId, MatchId), SaveError>,
    tallies: HashMap<MatchId, Tally>,
    /// Whether some are the first of their user for a match.
    has_new: bool,
}

impl Batch {
    /// Writes those entries whose matches are open and allow them.
    async fn save(
        connection: &mut PgConnection,
        shards: &Ranges,
        random: &dyn Random,
        events: &[MatchId],
        entries: &[Entry],
    ) -> sqlx::Result<Self> {
        let open = if entries.is_empty() { None } else { store::open_matches(connection, events).await? };
        let Some((now, open)) = open else { return Ok(Self::default()) };
        let mut refused = HashMap::new();
        let mut entries: Vec<Entry> = entries.iter().filter(|entry| open.contains_key(&entry.event)).copied().collect();
        entries.retain(|entry| match rules::check_forecast(entry.forecast, &open[&entry.event]) {
            None => true,
            Some(broken) => {
                refused.insert(entry.key(), SaveError::NotAllowed(broken));
                false
            }
        });
        for key in without_joker_left(connection, shards, &entries, &open).await? {
            entries.retain(|entry| entry.key() != key);
            refused.insert(key, SaveError::NoJokerLeft);
        }
        let pseudonyms = pseudonyms_of(connection, shards, random, &entries, &open).await?;
        let receipt = |entry: &Entry, revision, accepted_at| {
            let pseudonym = pseudonyms.get(&(entry.user, open[&entry.event].tournament))?;
            Some(entry.receipt(*pseudonym, revision, accepted_at))
        };
        let inserted = store::insert(connection, &entries, now).await?;
        let has_new = !inserted.is_empty();
        let new = |entry: &Entry| {
            let &(id, created_at) = inserted.get(&entry.key())?;
            Some((entry.key(), Saved { id, created_at, is_new: true, receipt: receipt(entry, 1, now) }))
        };
        let mut saved: HashMap<(UserId, MatchId), Saved> = entries.iter().filter_map(new).collect();
        let mut tallies: HashMap<MatchId, Tally> = HashMap::new();
        for entry in entries.iter().filter(|entry| saved.contains_key(&entry.key())) {
            tallies.entry(entry.event).or_default().add(entry.forecast);
        }
        let rest: Vec<Entry> = entries.iter().filter(|entry| !saved.contains_key(&entry.key())).copied().collect();
        if !rest.is_empty() {
            let mut earlier = store::lock_earlier(connection, shards, &rest).await?;
            let by_key: HashMap<_, &Entry> = rest.iter().map(|entry| (entry.key(), entry)).collect();
            // An equal salt means that an earlier attempt has written this entry.
            let is_written =
                |earlier: &Earlier| by_key.get(&earlier.key()).is_none_or(|entry| earlier.salt == Some(entry.salt));
            earlier.retain(|earlier| {
                let is_refused = earlier.revision >= MOST_REVISIONS && !is_written(earlier);
                if is_refused {
                    refused.insert(earlier.key(), SaveError::TooManyRevisions);
                }
                !is_refused
            });
            for earlier in &earlier {
                let (revision, accepted_at) = if is_written(earlier) {
                    (earlier.revision, earlier.updated_at)
                } else {
                    (earlier.revision + 1, now)
                };
                let receipt = by_key.get(&earlier.key()).and_then(|entry| receipt(entry, revision, accepted_at));
                let Earlier { id, created_at, .. } = *earlier;
                saved.insert(earlier.key(), Saved { id, created_at, is_new: false, receipt });
            }
            earlier.retain(|earlier| !is_written(earlier));
            store::keep_earlier(connection, shards, &earlier, now).await?;
            store::replace(connection, shards, &rest, &earlier, now).await?;
            for earlier in &earlier {
                let tally = tallies.entry(earlier.event).or_default();
                tally.remove(earlier.forecast);
                if let Some(entry) = by_key.get(&earlier.key()) {
                    tally.add(entry.forecast);
                }
            }
        }
        Ok(Self { saved, refused, tallies, has_new })
    }

    /// Returns the effects of the requests with idempotency keys.
    fn effects(&self, entries: &[Entry]) -> Vec<Effect> {
        let effect = |entry: &Entry| {
            let saved = self.saved.get(&entry.key())?;
            let status = if saved.is_new { CREATED } else { REPLACED };
            let revision = saved.receipt.map(|receipt| receipt.revision);
            Some(Effect { request: entry.request?, status, revision })
        };
        entries.iter().filter_map(effect).collect()
    }

    fn outcome(&self, entry: &Entry, statuses: &HashMap<MatchId, Status>) -> Outcome {
        match (self.saved.get(&entry.key()), statuses.get(&entry.event)) {
            (Some(&saved), _) => Ok((saved, KeyOutcome::Stored)),
            (None, status) => Err(match (self.refused.get(&entry.key()), status) {
                (Some(refusal), _) => refusal.clone(),
                (None, Some(&status)) => SaveError::Closed(status),
                (None, None) => SaveError::NoSuchMatch,
            }),
        }
    }
}

/// Returns the pseudonyms of the entries' users in the tournaments of their matches, and creates missing ones.
async fn pseudonyms_of(
    connection: &mut PgConnection,
    shards: &Ranges,
    random: &dyn Random,
    entries: &[Entry],
    open: &HashMap<MatchId, Conditions>,
) -> sqlx::Result<HashMap<(UserId, TournamentId), Uuid>> {
    let mut pairs: Vec<_> = entries.iter().map(|entry| (entry.user, open[&entry.event].tournament)).collect();
    pairs.sort_unstable();
    pairs.dedup();
    let mut found = store::pseudonyms(connection, shards, &pairs).await?;
    pairs.retain(|pair| !found.contains_key(pair));
    if pairs.is_empty() {
        return Ok(found);
    }
    let new: Vec<Uuid> = pairs.iter().map(|_| receipts::random_bytes(random)).collect();
    found.extend(store::insert_pseudonyms(connection, &pairs, &new).await?);
    // Another transaction stored the rest in the meantime, and has committed.
    pairs.retain(|pair| !found.contains_key(pair));
    if !pairs.is_empty() {
        found.extend(store::pseudonyms(connection, shards, &pairs).await?);
    }
    Ok(found)
}

/// Returns the entries with a joker for which the user has none left. Locks the jokers of these users, so that racing
/// predictions of other matches count too.
async fn without_joker_left(
    connection: &mut PgConnection,
    shards: &Ranges,
    entries: &[Entry],
    open: &HashMap<MatchId, Conditions>,
) -> sqlx::Result<Vec<(UserId, MatchId)>> {
    let pair = |entry: &Entry| (entry.user, open[&entry.event].tournament);
    let mut pairs: Vec<(UserId, TournamentId)> =
        entries.iter().filter(|entry| entry.forecast.joker()).map(pair).collect();
    if pairs.is_empty() {
        return Ok(Vec::new());
    }
    pairs.sort_unstable();
    pairs.dedup();
    store::lock_jokers(connection, &pairs).await?;
    let users: Vec<i64> = pairs.iter().map(|(user, _)| user.0).collect();
    let tournaments: Vec<i64> = pairs.iter().map(|(_, tournament)| tournament.0).collect();
    let mut played: HashMap<(UserId, TournamentId), HashSet<MatchId>> = HashMap::new();
    for joker in store::played_jokers(connection, shards, &users, &tournaments).await? {
        played.entry((joker.user, joker.tournament)).or_default().insert(joker.event);
    }
    let has_none_left = |entry: &&Entry| {
        let jokers = open[&entry.event].jokers;
        !rules::play_joker(played.entry(pair(entry)).or_default(), entry.event, entry.forecast, jokers)
    };
    Ok(entries.iter().filter(has_none_left).map(Entry::key).collect())
}

impl Write for Writer {
    type Entry = Entry;
    /// A second prediction of a user for a match waits for the next batch, so that every revision is kept and the last
    /// one counts.
    type Key = (UserId, MatchId);
    type Outcome = Outcome;

    const BATCHES: &'static str = "matchday_predictions_batches_total";

    fn key(entry: &Entry) -> Option<Self::Key> {
        Some(entry.key())
    }

    /// A second attempt may find predictions that the first attempt wrote: it recognises their salts, and leaves them
    /// unchanged.
    async fn write(
        &self,
        connection: &mut PgConnection,
        entries: &[Entry],
        _: Attempt,
    ) -> sqlx::Result<Vec<Self::Outcome>> {
        // Playing a joker needs a lock and a count, which only a batch takes.
        if let [entry] = entries
            && !entry.forecast.joker()
        {
            let pseudonym = receipts::random_bytes(&*self.random);
            match store::insert_alone(connection, self.slot, entry, pseudonym, self.clock.now()).await {
                Ok(Some(saved)) => {
                    self.events.mark_stale();
                    self.changes.note([entry.event]);
                    return Ok(vec![Ok((saved, KeyOutcome::Stored))]);
                }
                Ok(None) => {}
                Err(error) if idempotency::is_key_conflict(&error) => {}
                Err(error) => return Err(error),
            }
        }
        match self.write_batch(connection, entries).await {
            // Another process stored one of the keys in the meantime. The second attempt finds it.
            Err(error) if idempotency::is_key_conflict(&error) => self.write_batch(connection, entries).await,
            written => written,
        }
    }
}
