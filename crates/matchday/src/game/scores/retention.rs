//! Deletes the scores of past weeks.
//!
//! Every week adds a row to `user_scores` for each user who predicts, and only the leaderboard of the current week can be
//! read. Redis drops a leaderboard eight days after its week. Scores are kept longer, for late corrections of results.
//!
//! The table `score_retention` names the first week that is kept. It is advanced before anything is deleted, so later
//! results add no score to a week whose scores are being deleted: that score would lack all other results of the week. A
//! result that is being applied at that moment may still add some; they stay, and are not shown.

use time::Duration;

use super::{
    rules::Scope,
    service::{ScoreError, Scores},
    store,
};

/// Number of user ids whose scores one transaction deletes.
const STEP: i64 = 1_000;

impl Scores {
    /// Deletes the scores of weeks that ended more than `scores.weeks_kept` weeks ago; returns how many. Continues where
    /// an interrupted call has stopped.
    pub async fn drop_past_weeks(&self) -> Result<u64, ScoreError> {
        let (db, now) = (self.db(), self.now());
        let first_kept = Scope::week_of(now - Duration::weeks(self.settings().weeks_kept.into()));
        store::drop_weeks_before(db, &first_kept.to_string()).await?;
        let Some((before, next_user)) = store::weeks_to_delete(db).await? else { return Ok(0) };
        let ends = store::users_with_scores(db).await?;
        let (first, last) = ends.unwrap_or((0, -1));
        let (mut from, mut deleted) = (next_user.max(first), 0);
        while from <= last {
            let until = from.saturating_add(STEP);
            let mut tx = platform::database::begin(db).await?;
            deleted += store::delete_weeks(&mut tx, &before, from, until).await?;
            tx.commit().await?;
            store::note_deleted_weeks(db, &before, Some(until)).await?;
            from = until;
        }
        store::note_deleted_weeks(db, &before, None).await?;
        Ok(deleted)
    }
}
