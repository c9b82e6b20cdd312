//! Saves and reads predictions.

use std::{collections::HashSet, sync::Arc};

use futures_util::future::BoxFuture;
use platform::{
    Core,
    batches::{BatchError, Batches},
    database,
    random::Random,
    reads::Reader,
    shards::{Ranges, Shards},
};
use scoring::{Calibration, Earnings, Forecast, Hit, Outcome, Pick, PredictionState, Preview, Terms};
use serde_json::Value;
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;
use web::{
    ids::{MatchId, PredictionId, RoomId, RuleSetId, TournamentId, UserId},
    paging::{Cursor, CursorPaging, part},
};

use super::{
    changes::Changes,
    receipts::{self, Receipt, ReceiptItem},
    rules::{self, Broken, Conditions},
    settings::Settings,
    store::{self, Entry},
    writers::Writer,
};
use crate::{
    catalogue::matches::{rules::Status, service::Matches},
    chat::members,
    game::predictions::settings::Reveal,
    identity::{
        account_deletion::hooks::Receipts,
        accounts::Person,
        idempotency::{KeyOutcome, KeyedRequest},
    },
};

/// Numbers of users that a page of a room's predictions examines, step by step, until the page is full. The first step
/// suffices for a room in which every second member has a prediction.
const CANDIDATES: [i64; 2] = [200, 800];

/// Maximum number of a match's predictions that a page of predictions with one pick examines. Such a page can thus be
/// short, or even empty, and still have a next one.
const EXAMINED: i64 = 5_000;

/// Maximum number of users whose predictions one statement reads.
const USERS_AT_ONCE: usize = 500;

/// Number of users who get receipts in one transaction.
const ADDED_AT_ONCE: usize = 500;

/// Number of users without receipts that one statement finds.
const FOUND_AT_ONCE: i64 = 5_000;

#[derive(Clone)]
pub struct Predictions {
    db: PgPool,
    writers: Batches<Writer>,
    changes: Changes,
    random: Arc<dyn Random>,
    shards: Shards,
    reveal: Reveal,
}

impl Receipts for Predictions {
    fn export<'a>(&'a self, connection: &'a mut PgConnection, user: UserId) -> BoxFuture<'a, sqlx::Result<Value>> {
        Box::pin(async move {
            let receipts = store::receipts_of(connection, user).await?;
            let items: Vec<ReceiptItem> = receipts.into_iter().map(ReceiptItem::from).collect();
            serde_json::to_value(items).map_err(|error| sqlx::Error::Encode(error.into()))
        })
    }
}

/// Result of saving a prediction.
#[derive(Clone, Copy, Debug)]
pub struct Saved {
    /// Id of the prediction. It stays the same when the prediction is replaced.
    pub id: PredictionId,
    /// Time of the user's first prediction for the match.
    pub created_at: OffsetDateTime,
    /// Whether this is the user's first prediction for the match.
    pub is_new: bool,
    /// Receipt of the saved revision. A repeated request has none if its account was deleted meanwhile.
    pub receipt: Option<Receipt>,
}

/// Reason why a prediction was not saved.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SaveError {
    /// The match does not exist.
    #[error("the match does not exist")]
    NoSuchMatch,
    /// The match is closed: it has started, or its status does not allow predictions.
    #[error("predictions for this match are closed: it is {0}")]
    Closed(Status),
    /// The match or its sport does not allow the prediction.
    #[error("the prediction breaks a rule: it {0}")]
    NotAllowed(Broken),
    /// The user has played all jokers in other matches of the tournament.
    #[error("no joker is left in this tournament")]
    NoJokerLeft,
    /// The prediction has [`rules::MOST_REVISIONS`] revisions.
    #[error("the prediction cannot be replaced any more")]
    TooManyRevisions,
    /// The idempotency key was used before, for another request or for a refused request.
    #[error("the idempotency key was used before")]
    KeyUsed,
    /// Another request with the idempotency key is in progress.
    #[error("the idempotency key is in use")]
    KeyBusy,
    /// The queue of the batch writer is full.
    #[error("the prediction queue is full")]
    Overloaded,
    #[error(transparent)]
    Database(Arc<sqlx::Error>),
}

impl From<BatchError> for SaveError {
    fn from(error: BatchError) -> Self {
        match error {
            BatchError::Overloaded => Self::Overloaded,
            BatchError::Database(error) => Self::Database(error),
        }
    }
}

/// Rules of a match for predictions and their points.
#[derive(Clone, Copy, Debug)]
pub struct EventTerms {
    pub rule_set_id: RuleSetId,
    pub terms: Terms,
    pub conditions: Conditions,
}

/// Points that a forecast of a match could earn.
#[derive(Clone, Copy, Debug)]
pub struct EventPreview {
    pub rule_set_id: RuleSetId,
    pub terms: Terms,
    pub points: Preview,
}

/// Reason why points could not be previewed.
#[derive(Debug, thiserror::Error)]
pub enum PreviewError {
    /// The match or its sport does not allow the prediction.
    #[error("the prediction breaks a rule: it {0}")]
    NotAllowed(Broken),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

/// Filter for the predictions of a match; the default selects all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filter {
    /// Only predictions of this user.
    pub user_id: Option<UserId>,
    /// Only predictions with this pick.
    pub prediction: Option<Pick>,
}

/// Viewer of predictions, and the selection that they view.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// Predictions of users whom the viewer has blocked are hidden.
    pub viewer: UserId,
    /// Only predictions of members of this room.
    pub room: Option<RoomView>,
}

/// Room whose members' predictions are viewed.
#[derive(Clone, Copy, Debug)]
pub struct RoomView {
    pub id: RoomId,
    /// Whether the room is a stand of the match. All stands of a match count as one room.
    pub with_all_stands: bool,
}

/// A prediction with the revision that counts: the last one before the match started. A match can start earlier than
/// announced.
#[derive(Clone, Debug)]
pub struct Prediction {
    pub id: PredictionId,
    pub user_id: UserId,
    pub event_id: MatchId,
    pub forecast: Forecast,
    /// Time of the user's first prediction for the match.
    pub created_at: OffsetDateTime,
    /// Time of this revision.
    pub updated_at: OffsetDateTime,
    /// Whether this revision was made before the match started. A late prediction earns nothing.
    pub is_in_time: bool,
    pub rule_set_id: RuleSetId,
    /// What its points depend on, besides the outcome of the match.
    pub terms: Terms,
    pub outcome: Outcome,
}

impl Prediction {
    /// Earnings of the prediction, if it counts and the match has a result. They are computed on every read, so a
    /// corrected result takes effect immediately.
    pub fn earnings(&self) -> Option<Earnings> {
        self.forecast.earnings(&self.terms, self.outcome).filter(|_| self.is_in_time)
    }

    pub fn points(&self) -> Option<i32> {
        self.earnings().map(Earnings::total)
    }

    /// State of the prediction, as shown to users.
    pub fn state(&self) -> PredictionState {
        PredictionState::of(self.is_in_time, self.outcome)
    }
}

/// A prediction as other users see it.
#[derive(Clone, Debug)]
pub struct Listed {
    pub prediction: Prediction,
    /// User who made it.
    pub person: Person,
}

/// Filter for a user's own predictions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ToSchema)]
#[schema(rename_all = "snake_case")]
pub enum OwnFilter {
    /// Predictions of matches that still accept predictions.
    Open,
    /// Predictions of matches with a result.
    Settled,
}

/// A prediction as its own user sees it.
#[derive(Clone, Debug)]
pub struct Own {
    pub prediction: Prediction,
    /// Match that was predicted.
    pub event: PredictedEvent,
}

/// A match as shown with a prediction.
#[derive(Clone, Debug)]
pub struct PredictedEvent {
    pub home_team: String,
    pub away_team: String,
    pub start_time: OffsetDateTime,
    pub status: Status,
    /// Goals of the home team, if known.
    pub home_score: Option<i32>,
    /// Goals of the away team, if known.
    pub away_score: Option<i32>,
}

/// Summary of all predictions of a match.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// Number of predictions of a home win.
    pub home: i64,
    /// Number of predictions of a draw.
    pub draw: i64,
    /// Number of predictions of an away win.
    pub away: i64,
    /// Average confidence in percent; 0 without predictions.
    pub average_confidence: f64,
}

impl Summary {
    pub fn total(&self) -> i64 {
        self.home + self.draw + self.away
    }
}

impl Predictions {
    /// Starts the batch writers. Every new prediction marks the cached pages of `events` as stale.
    pub fn new(core: &Core, events: &Arc<Matches>, settings: &Settings) -> Self {
        let db = core.db.clone();
        let changes = Changes::default();
        let writers = Writer::for_users(events, &changes, settings.writers, core);
        let writers = Batches::start(&db, &core.shards, core.writer_settings, settings.queue, writers);
        Self { writers, changes, random: core.random.clone(), shards: core.shards.clone(), reveal: settings.reveal, db }
    }

    /// Saves a user's prediction for a match and replaces their earlier one. The match must be open. The batch writer
    /// prevents the start from being recorded until it has committed, so no prediction is saved after the recorded
    /// start.
    pub async fn save(&self, user: UserId, event: MatchId, forecast: Forecast) -> Result<Saved, SaveError> {
        self.write(self.entry(user, event, forecast, None)).await.map(|(saved, _)| saved)
    }

    /// Like [`save`](Self::save), but once per idempotency key: a repeated request changes nothing and returns the same.
    pub(super) async fn save_once(
        &self,
        user: UserId,
        event: MatchId,
        forecast: Forecast,
        request: KeyedRequest,
    ) -> Result<(Saved, KeyOutcome), SaveError> {
        self.write(self.entry(user, event, forecast, Some(request))).await
    }

    fn entry(&self, user: UserId, event: MatchId, forecast: Forecast, request: Option<KeyedRequest>) -> Entry {
        Entry { user, event, forecast, salt: receipts::random_bytes(&*self.random), request }
    }

    async fn write(&self, entry: Entry) -> Result<(Saved, KeyOutcome), SaveError> {
        let written = self.writers.write(entry.user.0, entry).await;
        let written = written.unwrap_or_else(|error| Err(error.into()));
        let label = match &written {
            Ok((_, KeyOutcome::Replayed)) => "repeated",
            Ok((Saved { is_new: true, .. }, _)) => "new",
            Ok(_) => "replaced",
            Err(
                SaveError::Closed(_)
                | SaveError::NoSuchMatch
                | SaveError::NotAllowed(_)
                | SaveError::NoJokerLeft
                | SaveError::TooManyRevisions
                | SaveError::KeyUsed
                | SaveError::KeyBusy,
            ) => "refused",
            Err(SaveError::Overloaded | SaveError::Database(_)) => "failed",
        };
        metrics::counter!("matchday_predictions_total", "outcome" => label).increment(1);
        written
    }

    /// Returns one page of a match's predictions, sorted by user, and the cursor of the next page.
    pub async fn list(
        &self,
        reader: &Reader,
        event: MatchId,
        view: View,
        filter: Filter,
        paging: CursorPaging,
    ) -> sqlx::Result<(Vec<Listed>, Option<Cursor>)> {
        // Decided by the primary: a replica may have another clock, or not know yet that the start has changed.
        let is_hidden = self.reveal == Reveal::AfterStart
            && store::can_be_copied(&self.db, event, database::now(&self.db).await?).await?;
        // While predictions are hidden, users see only their own.
        let only = if is_hidden { Some(view.viewer) } else { filter.user_id };
        let (listed, next) = reader.read(async |db| list_part(&db, event, view, filter, only, paging).await).await?;
        let shown = |listed: Listed| Listed { person: listed.person.shown_to(view.viewer), ..listed };
        Ok((listed.into_iter().map(shown).collect(), next))
    }

    /// Returns the number of predictions that a user has made, including open matches.
    pub async fn count(&self, reader: &Reader, user: UserId) -> sqlx::Result<i64> {
        reader.read(async |db| store::count(&db, user).await).await
    }

    /// Returns the summary of all predictions of a match; `None` if the match does not exist.
    pub async fn summary(&self, reader: &Reader, event: MatchId) -> sqlx::Result<Option<Summary>> {
        reader.read(async |db| store::summary(&db, event).await).await
    }

    /// Returns one page of a user's own predictions, newest first, and the cursor of the next page.
    pub async fn own(
        &self,
        reader: &Reader,
        user: UserId,
        filter: Option<OwnFilter>,
        paging: CursorPaging,
    ) -> sqlx::Result<(Vec<Own>, Option<Cursor>)> {
        let is_settled = filter == Some(OwnFilter::Settled);
        let read = async |db: PgPool| {
            let now = if filter == Some(OwnFilter::Open) { Some(database::now(&db).await?) } else { None };
            store::own(&db, user, now, is_settled, paging.after, paging.limit + 1).await
        };
        let own = reader.read(read).await?;
        Ok(part(own, paging.limit, |own| own.prediction.id.0))
    }

    /// Returns the predictions of these users for a match; users without a prediction are missing.
    pub async fn of_users(&self, event: MatchId, users: &[UserId]) -> sqlx::Result<Vec<Prediction>> {
        let mut predictions = Vec::new();
        for some in users.chunks(USERS_AT_ONCE) {
            predictions.extend(store::of_users(&self.db, event, some).await?);
        }
        Ok(predictions)
    }

    /// Matches that were predicted through this process since the last [`Changes::take`].
    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Returns one of a user's own predictions.
    pub async fn find_own(&self, user: UserId, id: PredictionId) -> sqlx::Result<Option<Prediction>> {
        store::find_own(&self.db, user, id).await
    }

    /// Returns the receipt of the latest revision of a user's own prediction. `None` if the user has no such prediction,
    /// `Some(None)` if it has no receipt, because its match closed before receipts existed.
    pub async fn receipt(&self, user: UserId, id: PredictionId) -> sqlx::Result<Option<Option<Receipt>>> {
        store::receipt(&self.db, user, id).await
    }

    /// Returns the receipt of the last revision of a user's own prediction that was accepted before a time. `None` if the
    /// user has no such prediction, `Some(None)` if every revision is later or has no receipt.
    pub async fn receipt_before(
        &self,
        user: UserId,
        id: PredictionId,
        before: OffsetDateTime,
    ) -> sqlx::Result<Option<Option<Receipt>>> {
        store::counted_of(&self.db, user, id, before).await
    }

    /// Returns the match of a user's own prediction.
    pub async fn match_of(&self, user: UserId, id: PredictionId) -> sqlx::Result<Option<MatchId>> {
        store::match_of(&self.db, user, id).await
    }

    /// Returns receipts of a match: of the last revision of each user before the start, in the order of users, of at most
    /// `size` users after one. `None` for a revision without a receipt. Also returns the last of these users, unless there
    /// are no more.
    pub async fn counted(
        connection: &mut PgConnection,
        event: MatchId,
        start_time: OffsetDateTime,
        after: i64,
        size: i64,
    ) -> sqlx::Result<(Vec<(UserId, Option<Receipt>)>, Option<i64>)> {
        let last = store::chunk_end(&mut *connection, event, after, size).await?;
        let rows = store::counted(connection, event, start_time, (after, last.unwrap_or(i64::MAX))).await?;
        Ok((rows, last))
    }

    /// Gives the predictions of a match that were made without receipts salts and pseudonyms: on installation, and while
    /// processes of the previous version are running. Returns their number.
    pub async fn add_receipts(&self, event: MatchId) -> sqlx::Result<usize> {
        let (mut after, mut added) = (0, 0);
        loop {
            let users = store::without_salt(&self.db, event, after, FOUND_AT_ONCE).await?;
            let Some(&last) = users.last() else { return Ok(added) };
            added += self.add_receipts_of(event, &users).await?;
            after = last;
        }
    }

    /// Like [`add_receipts`](Self::add_receipts), for some users.
    pub async fn add_receipts_of(&self, event: MatchId, users: &[i64]) -> sqlx::Result<usize> {
        let Some(tournament) = store::tournament_of(&self.db, event).await? else { return Ok(0) };
        let mut connection = self.db.acquire().await?;
        let shards = self.shards.get(&mut connection).await?;
        drop(connection);
        let mut added = 0;
        for users in shards.group(users).iter().flat_map(|group| group.chunks(ADDED_AT_ONCE)) {
            added += self.add_receipts_on_shard(event, tournament, shards, users).await?;
        }
        Ok(added)
    }

    async fn add_receipts_on_shard(
        &self,
        event: MatchId,
        tournament: TournamentId,
        shards: &Ranges,
        users: &[i64],
    ) -> sqlx::Result<usize> {
        let random =
            |number: usize| -> Vec<Uuid> { (0..number).map(|_| receipts::random_bytes(&*self.random)).collect() };
        let mut tx = database::begin(&self.db).await?;
        // Before the predictions, as in a batch: two transactions that lock both in different orders could deadlock.
        let mut pairs: Vec<_> = users.iter().map(|&user| (UserId(user), tournament)).collect();
        pairs.sort_unstable();
        let inserted = store::insert_pseudonyms(&mut tx, &pairs, &random(pairs.len())).await?;
        let users = store::lock_for_salts(&mut tx, event, users).await?;
        // Accounts that were deleted since the users were read must not get new pseudonyms.
        let existing: HashSet<i64> = users.iter().copied().collect();
        let gone: Vec<i64> = inserted.keys().map(|(user, _)| user.0).filter(|user| !existing.contains(user)).collect();
        if !gone.is_empty() {
            store::delete_pseudonyms(&mut tx, shards, tournament, &gone).await?;
        }
        store::add_salts(&mut tx, shards, event, &users, &random(users.len())).await?;
        let revisions = store::revisions_without_salt(&mut tx, event, &users).await?;
        store::add_salts_to_revisions(&mut tx, shards, event, &revisions, &random(revisions.len())).await?;
        tx.commit().await?;
        Ok(users.len())
    }

    /// Returns the points that a forecast could earn; `None` if the match does not exist. Does not check whether a joker
    /// is left.
    pub async fn preview(&self, event: MatchId, forecast: Forecast) -> Result<Option<EventPreview>, PreviewError> {
        let Some(EventTerms { rule_set_id, terms, conditions }) = store::terms_of(&self.db, event).await? else {
            return Ok(None);
        };
        match rules::check_forecast(forecast, &conditions) {
            Some(broken) => Err(PreviewError::NotAllowed(broken)),
            None => Ok(Some(EventPreview { rule_set_id, terms, points: Preview::of(forecast, &terms) })),
        }
    }

    /// Compares a user's confidence with their hit rate.
    pub async fn calibration(&self, reader: &Reader, user: UserId) -> sqlx::Result<Calibration> {
        let settled = reader.read(async |db| store::settled(&db, user).await).await?;
        // Late predictions have no earnings and are skipped.
        let earned = settled.iter().filter_map(|prediction| {
            let earnings = prediction.earnings()?;
            Some((prediction.forecast.confidence(), earnings.hit != Hit::Wrong))
        });
        Ok(Calibration::of(earned))
    }
}

/// Returns one page of a match's predictions, or the prediction of one user.
async fn list_part(
    db: &PgPool,
    event: MatchId,
    view: View,
    filter: Filter,
    only: Option<UserId>,
    paging: CursorPaging,
) -> sqlx::Result<(Vec<Listed>, Option<Cursor>)> {
    let blocked = store::blocked(db, view.viewer).await?;
    if let Some(user) = only {
        let is_selected = filter.user_id.is_none_or(|requested| requested == user)
            && paging.after.is_none_or(|after| user.0 > after.id())
            && !blocked.contains(&user.0);
        let listed =
            if is_selected { store::list_of_user(db, event, user, view.room, filter.prediction).await? } else { None };
        return Ok((listed.into_iter().collect(), None));
    }
    if let Some(room) = view.room {
        return list_of_room(db, event, room, &blocked, filter.prediction, paging).await;
    }
    let after = paging.after.map_or(0, Cursor::id);
    // Reads one row more than the page, to learn whether there is a next page.
    let limit = paging.limit + 1;
    // Few predictions may have the pick. The tally cannot tell: it counts the latest revisions, the list those before the
    // start.
    let examined = match filter.prediction {
        Some(_) => EXAMINED,
        None => limit.saturating_add(i64::try_from(blocked.len()).unwrap_or(i64::MAX)),
    };
    let until = store::chunk_end(db, event, after, examined).await?;
    let bounds = (after, until.unwrap_or(i64::MAX));
    let listed = store::list(db, event, &blocked, filter.prediction, bounds, limit).await?;
    let (page, next) = part(listed, paging.limit, |listed| listed.prediction.user_id.0);
    Ok((page, next.or(until.map(Cursor::after))))
}

/// Returns one page of the predictions of a room's members, and the cursor of the next page.
///
/// Examines candidates in the order of users: the room's members, or for a stand the match's predictors, because
/// there are too many stands to read in order. The number of candidates per page is limited, so the cost does not
/// depend on the size of the room or the match. A page can thus be short, or even empty, and still have a next one.
async fn list_of_room(
    db: &PgPool,
    event: MatchId,
    room: RoomView,
    blocked: &[i64],
    pick: Option<Pick>,
    paging: CursorPaging,
) -> sqlx::Result<(Vec<Listed>, Option<Cursor>)> {
    let (mut listed, mut after) = (Vec::new(), paging.after.map_or(0, Cursor::id));
    for step in CANDIDATES {
        let candidates = if room.with_all_stands {
            store::predictors_after(db, event, after, step).await?
        } else {
            members::members_after(db, room.id, after, step).await?
        };
        let Some(&last) = candidates.last() else { return Ok((listed, None)) };
        let is_last_step = i64::try_from(candidates.len()).is_ok_and(|found| found < step);
        let users = if room.with_all_stands { members::in_stands(db, event, &candidates).await? } else { candidates };
        // Reads one row more than the page, to learn whether there is a next page.
        let missing = paging.limit + 1 - i64::try_from(listed.len()).unwrap_or(i64::MAX);
        listed.extend(store::list_of_users(db, event, &users, blocked, pick, missing).await?);
        let (page, next) = part(listed, paging.limit, |listed| listed.prediction.user_id.0);
        if next.is_some() || is_last_step {
            return Ok((page, next));
        }
        (listed, after) = (page, last);
    }
    Ok((listed, Some(Cursor::after(after))))
}
