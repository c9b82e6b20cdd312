//! Making predictions and reading them.

use std::sync::Arc;

use platform::{
    Core,
    batches::{BatchError, Batches},
};
use scoring::{Calibration, Earnings, Forecast, Hit, Outcome, Pick, PredictionState, Preview, RulesVersion};
use sqlx::PgPool;
use time::OffsetDateTime;
use utoipa::ToSchema;
use web::{
    ids::{EventId, PredictionId, RoomId, UserId},
    paging::{Cursor, CursorPaging, part},
};

use super::{
    changes::Changes,
    settings::Settings,
    store::{self, Entry},
    writers::Writer,
};
use crate::{
    events::{rules::Status, service::Events},
    predictions::settings::Reveal,
};

/// The predictions.
#[derive(Clone)]
pub struct Predictions {
    db: PgPool,
    writers: Batches<Writer>,
    changes: Changes,
    reveal: Reveal,
}

/// A prediction as it was saved.
#[derive(Clone, Copy, Debug)]
pub struct Saved {
    /// The prediction; the same one however often it is replaced.
    pub id: PredictionId,
    /// When the user first predicted the match.
    pub created_at: OffsetDateTime,
    /// Whether the user had none for this match.
    pub is_new: bool,
}

/// Why a prediction was not saved.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SaveError {
    /// There is no such match.
    #[error("there is no such match")]
    NoSuchEvent,
    /// The match takes no predictions: it started, or has this status.
    #[error("predictions for this match are closed: it is {0}")]
    Closed(Status),
    /// Too many are waiting to be written.
    #[error("too many predictions are waiting to be written")]
    Overloaded,
    /// The database failed.
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

/// Which predictions are wanted; all of them by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filter {
    /// Of this user.
    pub user_id: Option<UserId>,
    /// With this pick.
    pub prediction: Option<Pick>,
}

/// Who looks at predictions, and from where.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// Who. Whom they have blocked they do not see.
    pub viewer: UserId,
    /// Only those of the members of this room.
    pub room: Option<RoomView>,
}

/// A room whose members' predictions are looked at.
#[derive(Clone, Copy, Debug)]
pub struct RoomView {
    /// Which.
    pub id: RoomId,
    /// Whether it is one of the match's own, whose stands are one crowd.
    pub with_all_stands: bool,
}

/// What a user said of a match, as it counts: a match can begin earlier than was announced, and then the last word before
/// it does.
#[derive(Clone, Debug)]
pub struct Prediction {
    /// The prediction.
    pub id: PredictionId,
    /// Whose it is.
    pub user_id: UserId,
    /// Of which match.
    pub event_id: EventId,
    /// What it says.
    pub forecast: Forecast,
    /// When the user first predicted the match.
    pub created_at: OffsetDateTime,
    /// When they said this.
    pub updated_at: OffsetDateTime,
    /// Whether that was before the match began. What was not counts for nothing.
    pub is_in_time: bool,
    /// By which rules it earns points.
    pub rules: RulesVersion,
    /// What became of the match.
    pub outcome: Outcome,
}

impl Prediction {
    /// What it earned, if it counts and the match has a result. It is worked out anew whenever it is read, so a corrected
    /// result shows at once.
    pub fn earnings(&self) -> Option<Earnings> {
        self.forecast.earnings(self.rules, self.outcome).filter(|_| self.is_in_time)
    }

    /// The same in one number.
    pub fn points(&self) -> Option<i32> {
        self.earnings().map(Earnings::total)
    }

    /// What became of it.
    pub fn state(&self) -> PredictionState {
        PredictionState::of(self.is_in_time, self.outcome)
    }
}

/// A prediction as everybody sees it.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The prediction.
    pub prediction: Prediction,
    /// What its user is called.
    pub username: String,
    /// Their name, if they gave it.
    pub name: Option<String>,
}

/// Which of their own predictions a user wants; all of them by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ToSchema)]
#[schema(rename_all = "snake_case")]
pub enum OwnFilter {
    /// Of matches that still take predictions.
    Open,
    /// Of matches with a result.
    Settled,
}

/// A prediction as its user sees it.
#[derive(Clone, Debug)]
pub struct Own {
    /// The prediction.
    pub prediction: Prediction,
    /// What it speaks of.
    pub event: PredictedEvent,
}

/// A match as far as its predictions need it.
#[derive(Clone, Debug)]
pub struct PredictedEvent {
    /// The name of the home team.
    pub home_team: String,
    /// The name of the away team.
    pub away_team: String,
    /// When it starts.
    pub start_time: OffsetDateTime,
    /// Its state.
    pub status: Status,
    /// Goals of the home team, as far as there are some.
    pub home_score: Option<i32>,
    /// Goals of the away team.
    pub away_score: Option<i32>,
}

/// All predictions of a match in a few numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// How many say that the home team wins.
    pub home: i64,
    /// How many say that nobody does.
    pub draw: i64,
    /// How many say that the away team wins.
    pub away: i64,
    /// How sure they are on average, in percent; 0 if there are none.
    pub average_confidence: f64,
}

impl Summary {
    /// How many predictions there are.
    pub fn total(&self) -> i64 {
        self.home + self.draw + self.away
    }
}

impl Predictions {
    /// Predictions in this database; `events` is told of new ones.
    pub fn new(core: &Core, events: &Arc<Events>, settings: &Settings) -> Self {
        let (db, timeout, random) = (core.db.clone(), core.statement_timeout, &*core.random);
        let changes = Changes::default();
        let writers = Writer::several(events, &changes, settings.writers, random);
        let writers = Batches::start(&db, timeout, settings.queue, writers);
        Self { writers, changes, reveal: settings.reveal, db }
    }

    /// Saves what the user predicts of a match, in place of what they predicted before. The match must be open: it is
    /// held so until the prediction is committed, so that none is made after the start was written.
    pub async fn save(&self, user: UserId, event: EventId, forecast: Forecast) -> Result<Saved, SaveError> {
        let saved = self.writers.write(user.0, Entry { user, event, forecast }).await;
        let saved = saved.unwrap_or_else(|error| Err(error.into()));
        let label = match &saved {
            Ok(Saved { is_new: true, .. }) => "new",
            Ok(_) => "replaced",
            Err(SaveError::Closed(_) | SaveError::NoSuchEvent) => "refused",
            Err(SaveError::Overloaded | SaveError::Database(_)) => "failed",
        };
        metrics::counter!("matchday_predictions_total", "outcome" => label).increment(1);
        saved
    }

    /// A part of a match's predictions, by user, and where the next part begins, if there is one.
    pub async fn list(
        &self,
        event: EventId,
        view: View,
        filter: Filter,
        paging: CursorPaging,
    ) -> sqlx::Result<(Vec<Listed>, Option<Cursor>)> {
        let is_hidden = self.reveal == Reveal::AfterStart && store::is_to_come(&self.db, event).await?;
        // Of what is hidden everybody sees their own.
        let only = if is_hidden { Some(view.viewer) } else { filter.user_id };
        let unseen = store::blocked(&self.db, view.viewer).await?;
        if let Some(user) = only {
            let is_wanted = filter.user_id.is_none_or(|wanted| wanted == user)
                && paging.after.is_none_or(|after| user.0 > after.id())
                && !unseen.contains(&user.0);
            let listed = if is_wanted {
                store::list_of_user(&self.db, event, user, view.room, filter.prediction).await?
            } else {
                None
            };
            return Ok((listed.into_iter().collect(), None));
        }
        // One more than wanted shows whether there is a next part.
        let (pick, after, limit) = (filter.prediction, paging.after, paging.limit + 1);
        let listed = match view.room {
            None => store::list(&self.db, event, &unseen, pick, after, limit).await?,
            Some(room) => store::list_of_room(&self.db, event, room, &unseen, pick, after, limit).await?,
        };
        Ok(part(listed, paging.limit, |listed| listed.prediction.user_id.0))
    }

    /// All predictions of a match, or of a room's members on it, in a few numbers; `None` if there is no such match.
    pub async fn summary(&self, event: EventId, room: Option<RoomView>) -> sqlx::Result<Option<Summary>> {
        match room {
            None => store::summary(&self.db, event).await,
            Some(room) => store::summary_of_room(&self.db, event, room).await.map(Some),
        }
    }

    /// A part of a user's own predictions, the newest first, and where the next part begins, if there is one.
    pub async fn own(
        &self,
        user: UserId,
        filter: Option<OwnFilter>,
        paging: CursorPaging,
    ) -> sqlx::Result<(Vec<Own>, Option<Cursor>)> {
        let own = store::own(&self.db, user, filter, paging.after, paging.limit + 1).await?;
        Ok(part(own, paging.limit, |own| own.prediction.id.0))
    }

    /// What some users said of a match, those who did.
    pub async fn of_users(&self, event: EventId, users: &[UserId]) -> sqlx::Result<Vec<Prediction>> {
        store::of_users(&self.db, event, users).await
    }

    /// The matches that were predicted by this process since somebody last took note.
    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// One of a user's own predictions.
    pub async fn find_own(&self, user: UserId, id: PredictionId) -> sqlx::Result<Option<Prediction>> {
        store::find_own(&self.db, user, id).await
    }

    /// What a forecast of a match would earn; `None` if there is no such match.
    pub async fn preview(&self, event: EventId, forecast: Forecast) -> sqlx::Result<Option<Preview>> {
        let rules = store::rules_of(&self.db, event).await?;
        Ok(rules.map(|rules| Preview::of(forecast, rules)))
    }

    /// How sure a user was, against how often they were right.
    pub async fn calibration(&self, user: UserId) -> sqlx::Result<Calibration> {
        let settled = store::settled(&self.db, user).await?;
        // Those that came too late earned nothing, and are left out.
        let earned = settled.iter().filter_map(|prediction| {
            let earnings = prediction.earnings()?;
            Some((prediction.forecast.confidence(), earnings.hit != Hit::Wrong))
        });
        Ok(Calibration::of(earned))
    }
}
