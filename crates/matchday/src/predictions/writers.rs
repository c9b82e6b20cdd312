//! Predictions are written in batches, because everybody predicts in the same few minutes.
//!
//! Each lane has a bounded channel and one writer. The writer takes all that is waiting, writes it in one transaction,
//! and answers each request after the commit. There is no timer: while one batch commits, the next one gathers, so a lone
//! request waits for nobody.

use std::{
    collections::{HashMap, HashSet},
    io,
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

use futures_util::FutureExt as _;
use sqlx::{PgConnection, PgPool, Postgres, pool::PoolConnection};
use tokio::sync::{mpsc, oneshot};

use super::{
    lanes::lane_of,
    rules::Forecast,
    service::{SaveError, Saved},
    store::{self, Entry, Tally},
};
use crate::{
    events::service::Events,
    ids::{EventId, UserId},
    platform::{
        config, database,
        random::{self, Random},
    },
};

/// The most rows of one batch. More would not make a row cheaper, and everybody in it would wait longer.
const BATCH: usize = 500;

/// How many words of one user on one match may wait. Each needs a batch of its own.
const WORDS: usize = 32;

/// How many slots a match's tally has.
const SLOTS: u8 = 64;

/// The way to the writers. They end when the last of these is dropped, after they have written what was waiting.
#[derive(Clone)]
pub(super) struct Writers {
    lanes: Arc<[mpsc::Sender<Request>]>,
}

/// A prediction that waits to be written, and who waits for it.
struct Request {
    entry: Entry,
    answer: oneshot::Sender<Result<Saved, SaveError>>,
}

impl Writers {
    /// Starts the writers of this process. A statement of theirs may take so long.
    pub(super) fn start(
        db: &PgPool,
        timeout: Duration,
        events: &Arc<Events>,
        config: &config::Predictions,
        random: &dyn Random,
    ) -> Self {
        let [first]: [u8; 1] = random::bytes(random);
        let db = database::writers(db, u32::try_from(config.writers).unwrap_or(u32::MAX), timeout);
        let lanes = (0..config.writers)
            .map(|lane| {
                let (sender, requests) = mpsc::channel(config.queue);
                // Writers of other processes may have the same slot. Then they wait for each other, and that is all.
                let slot = i16::from(first.wrapping_add(u8::try_from(lane % 256).unwrap_or_default()) % SLOTS);
                let writer = Writer {
                    db: db.clone(),
                    connection: None,
                    patience: timeout + Duration::from_secs(2),
                    events: Arc::clone(events),
                    slot,
                };
                tokio::spawn(writer.run(requests));
                sender
            })
            .collect();
        Self { lanes }
    }

    /// Has a prediction written. It is committed when this returns.
    pub(super) async fn save(&self, user: UserId, event: EventId, forecast: Forecast) -> Result<Saved, SaveError> {
        let (answer, answered) = oneshot::channel();
        let request = Request { entry: Entry { user, event, forecast }, answer };
        let lane = &self.lanes[lane_of(user, self.lanes.len())];
        lane.try_send(request).map_err(|_| SaveError::Overloaded)?;
        answered.await.unwrap_or(Err(SaveError::Overloaded))
    }
}

struct Writer {
    db: PgPool,
    /// Kept from batch to batch: giving one back to the pool costs as much as a small batch does.
    connection: Option<PoolConnection<Postgres>>,
    /// How long one batch may take.
    patience: Duration,
    events: Arc<Events>,
    /// Where it counts.
    slot: i16,
}

impl Writer {
    async fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        let (mut waiting, mut batch) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
        while !waiting.is_empty() || requests.recv_many(&mut waiting, BATCH).await > 0 {
            next_batch(&mut waiting, &mut batch);
            if !batch.is_empty() {
                self.write_and_answer(&mut batch).await;
            }
            // Those who say something twice keep nobody else waiting.
            while !waiting.is_empty()
                && waiting.len() < BATCH
                && let Ok(request) = requests.try_recv()
            {
                admit(&mut waiting, request);
            }
        }
    }

    async fn write_and_answer(&mut self, batch: &mut Vec<Request>) {
        let entries: Vec<Entry> = batch.iter().map(|request| request.entry).collect();
        metrics::counter!("matchday_predictions_batches_total").increment(1);
        // A fault of ours must not end the writer: nobody would take its place.
        let written = AssertUnwindSafe(self.write(&entries)).catch_unwind().await;
        let written =
            written.unwrap_or_else(|_| Err(sqlx::Error::Protocol("the writer of predictions panicked".to_owned())));
        match written {
            Ok(outcomes) => {
                for (request, outcome) in batch.drain(..).zip(outcomes) {
                    request.answer(outcome);
                }
            }
            // One that cannot be written must not harm the others.
            Err(error) if batch.len() > 1 && !database::is_away(&error) => {
                tracing::warn!(%error, rows = batch.len(), "a batch of predictions is written one by one");
                for request in batch.drain(..) {
                    let outcome = match self.write(&[request.entry]).await {
                        Ok(outcomes) => outcomes.into_iter().next().unwrap_or(Err(SaveError::Overloaded)),
                        Err(error) => Err(SaveError::Database(Arc::new(error))),
                    };
                    request.answer(outcome);
                }
            }
            Err(error) => {
                let error = Arc::new(error);
                for request in batch.drain(..) {
                    request.answer(Err(SaveError::Database(Arc::clone(&error))));
                }
            }
        }
    }

    /// Writes entries of which no two are of the same user and match, all or none; says of each what became of it.
    async fn write(&mut self, entries: &[Entry]) -> sqlx::Result<Vec<Result<Saved, SaveError>>> {
        let was_kept = self.connection.is_some();
        match self.write_once(entries).await {
            // A connection that was idle may have been dead for long. What it may have written on its way out is found:
            // a word that is repeated is left as it is.
            Err(error) if was_kept && database::is_away(&error) => self.write_once(entries).await,
            outcome => outcome,
        }
    }

    async fn write_once(&mut self, entries: &[Entry]) -> sqlx::Result<Vec<Result<Saved, SaveError>>> {
        let mut connection = match self.connection.take() {
            Some(kept) => kept,
            None => self.db.acquire().await?,
        };
        // The server ends a statement in time, unless it is gone without a word; then the network says so much later.
        let written = tokio::time::timeout(self.patience, self.write_on(&mut connection, entries)).await;
        match written.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into())) {
            Ok(outcomes) => {
                self.connection = Some(connection);
                Ok(outcomes)
            }
            Err(error) => {
                // Nobody knows what it is in the middle of: it is closed, and not given to the next one who asks.
                drop(connection.detach());
                Err(error)
            }
        }
    }

    async fn write_on(
        &self,
        connection: &mut PgConnection,
        entries: &[Entry],
    ) -> sqlx::Result<Vec<Result<Saved, SaveError>>> {
        if let [entry] = entries
            && let Some(saved) = store::insert_alone(connection, self.slot, entry).await?
        {
            self.events.mark_stale();
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
        let known = if refused { store::existing(&mut tx, &events).await? } else { HashSet::new() };
        store::add_to_tallies(&mut tx, self.slot, &tallies).await?;
        tx.commit().await?;
        if has_new {
            // Other processes are not told: their pages show the new count within their moment anyway.
            self.events.mark_stale();
        }
        let outcome = |entry: &Entry| match saved.get(&entry.key()) {
            Some(&saved) => Ok(saved),
            None if known.contains(&entry.event) => Err(SaveError::Closed),
            None => Err(SaveError::NoSuchEvent),
        };
        Ok(entries.iter().map(outcome).collect())
    }
}

impl Request {
    fn answer(self, outcome: Result<Saved, SaveError>) {
        let label = match &outcome {
            Ok(Saved { is_new: true, .. }) => "new",
            Ok(_) => "replaced",
            Err(SaveError::Closed | SaveError::NoSuchEvent) => "refused",
            Err(SaveError::Overloaded | SaveError::Database(_)) => "failed",
        };
        metrics::counter!("matchday_predictions_total", "outcome" => label).increment(1);
        // Whoever does not wait any more does not need to be told.
        drop(self.answer.send(outcome));
    }
}

/// Lets a prediction wait with those that do, unless its user has said enough about the match for now.
fn admit(waiting: &mut Vec<Request>, request: Request) {
    if waiting.iter().filter(|other| other.entry.key() == request.entry.key()).count() < WORDS {
        waiting.push(request);
    } else {
        request.answer(Err(SaveError::Overloaded));
    }
}

/// Moves what can be written together from those that wait. A second word of the same user on the same match waits for
/// the next batch: so every one of them is kept, and the last one counts.
fn next_batch(waiting: &mut Vec<Request>, batch: &mut Vec<Request>) {
    // Nobody waits for these any more, and they were not promised anything.
    waiting.retain(|request| !request.answer.is_closed());
    let mut taken = HashSet::with_capacity(waiting.len());
    batch.extend(waiting.extract_if(.., |request| taken.insert(request.entry.key())));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predictions::rules::{Confidence, Pick};

    fn request(user: i64, event: i64, confidence: i64) -> (Request, oneshot::Receiver<Result<Saved, SaveError>>) {
        let (answer, answered) = oneshot::channel();
        let forecast = Forecast::new(Pick::Home, None, Confidence::new(confidence).expect("a confidence"));
        let entry = Entry { user: UserId(user), event: EventId(event), forecast: forecast.expect("a forecast") };
        (Request { entry, answer }, answered)
    }

    #[test]
    fn a_second_word_waits_for_the_next_batch_and_in_order() {
        let (mut waiting, answers): (Vec<_>, Vec<_>) = [(1, 1, 10), (2, 1, 20), (1, 1, 30), (1, 2, 40), (1, 1, 50)]
            .map(|(u, e, c)| request(u, e, c))
            .into_iter()
            .unzip();
        let mut read = || {
            let mut batch = Vec::new();
            next_batch(&mut waiting, &mut batch);
            batch.iter().map(|request| request.entry.forecast.confidence().percent()).collect::<Vec<_>>()
        };
        assert_eq!([read(), read(), read(), read()], [vec![10, 20, 40], vec![30], vec![50], vec![]]);
        drop(answers);
    }

    #[test]
    fn who_says_too_much_at_once_is_told_so_and_keeps_nobody_else_out() {
        let (mut waiting, mut answers) = (Vec::new(), Vec::new());
        for user in std::iter::repeat_n(1, WORDS + 2).chain([2]) {
            let (request, answer) = request(user, 1, 0);
            admit(&mut waiting, request);
            answers.push(answer);
        }
        assert_eq!(waiting.len(), WORDS + 1);
        let refused = answers.iter_mut().filter_map(|answer| answer.try_recv().ok());
        assert_eq!(refused.filter(|answer| matches!(answer, Err(SaveError::Overloaded))).count(), 2);
    }

    #[test]
    fn who_went_away_is_not_written() {
        let (mut waiting, mut answers): (Vec<_>, Vec<_>) =
            [1, 2, 3].map(|user| request(user, 1, 0)).into_iter().unzip();
        answers.remove(1);
        let mut batch = Vec::new();
        next_batch(&mut waiting, &mut batch);
        assert_eq!(batch.iter().map(|request| request.entry.user.0).collect::<Vec<_>>(), [1, 3]);
        assert!(waiting.is_empty());
    }
}
