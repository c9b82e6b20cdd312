//! Reading the catalogue.

use std::sync::Arc;

use bytes::Bytes;
use platform::{
    Core,
    clock::Clock,
    page_cache::{self, Page, PageCache},
};
use sqlx::PgPool;
use time::Date;
use web::{
    ids::{MatchId, SportId, TeamId, TournamentId},
    paging::Paging,
};

pub use super::store::Match;
use super::{
    rules::{self, PublicStatus},
    store,
};

/// The subjects on which changes of matches are told.
pub const FACTS: &str = "fact.event.*";
/// A match is new.
pub const CREATED: &str = "fact.event.created";
/// Something about a match is different.
pub const CHANGED: &str = "fact.event.changed";
/// A sport, a tournament or a team has another name or look.
pub const CATALOGUE: &str = "fact.catalogue.changed";
/// A match has a result, another one, or none any more.
pub const RESULT: &str = "fact.event.result";

/// The matches.
pub struct Matches {
    db: PgPool,
    clock: Arc<dyn Clock>,
    pages: PageCache<(MatchFilter, Paging), PageError>,
}

/// A tournament.
#[derive(Clone, Debug)]
pub struct Tournament {
    /// The tournament.
    pub id: TournamentId,
    /// Its sport.
    pub sport_id: SportId,
    /// For programs.
    pub slug: String,
    /// For people.
    pub name: String,
    /// Where its logo is.
    pub logo: Option<String>,
}

/// A sport.
#[derive(Clone, Debug)]
pub struct Sport {
    /// The sport.
    pub id: SportId,
    /// For programs.
    pub slug: String,
    /// For people.
    pub name: String,
}

/// Which matches are wanted; all of them by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct MatchFilter {
    /// Of this tournament.
    pub tournament_id: Option<TournamentId>,
    /// Of this team, at home or away.
    pub team_id: Option<TeamId>,
    /// Starting on this UTC day.
    pub date: Option<Date>,
    /// In this state.
    pub status: Option<PublicStatus>,
}

/// Why a page could not be built.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// The database failed.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// What was read could not be written.
    #[error(transparent)]
    Render(#[from] serde_json::Error),
}

impl Matches {
    /// Matches in this database.
    pub fn new(core: &Core, pages: &page_cache::Settings) -> Self {
        Self { db: core.db.clone(), clock: core.clock.clone(), pages: PageCache::new(pages.keep, pages.cache_entries) }
    }

    /// A page of matches in the bytes that `render` makes of it: live, upcoming, then the rest. See [`rules::Section`].
    ///
    /// A match leaves the upcoming ones as time passes, which no fact announces. Pages follow when they are rebuilt, after
    /// `pages.keep` at the latest.
    pub async fn page(
        &self,
        filter: MatchFilter,
        paging: Paging,
        render: impl FnOnce(Vec<Match>, i64) -> serde_json::Result<Bytes>,
    ) -> Result<Arc<Page>, Arc<PageError>> {
        self.pages
            .get((filter.clone(), paging), async || {
                let runs = rules::runs(self.clock.now(), filter.status, filter.date);
                let mut snapshot = self.db.begin_with(store::SNAPSHOT).await?;
                let events = store::list(&mut *snapshot, &filter, &runs, paging).await?;
                let total = store::count(&mut *snapshot, &filter).await?;
                snapshot.commit().await?;
                Ok(render(events, total)?)
            })
            .await
    }

    /// One match.
    pub async fn find(&self, id: MatchId) -> sqlx::Result<Option<Match>> {
        store::find(&self.db, id).await
    }

    /// A page of tournaments by name, and how many there are.
    pub async fn tournaments(&self, paging: Paging) -> sqlx::Result<(Vec<Tournament>, i64)> {
        Ok((store::tournaments(&self.db, paging).await?, store::count_tournaments(&self.db).await?))
    }

    /// A page of sports by name, and how many there are.
    pub async fn sports(&self, paging: Paging) -> sqlx::Result<(Vec<Sport>, i64)> {
        Ok((store::sports(&self.db, paging).await?, store::count_sports(&self.db).await?))
    }

    /// The catalogue changed, here or elsewhere: pages built before may be wrong.
    pub fn mark_stale(&self) {
        self.pages.mark_stale();
    }
}
