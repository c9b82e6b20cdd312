//! Reads matches, tournaments and sports.

use std::sync::Arc;

use bytes::Bytes;
use platform::{
    Core,
    clock::Clock,
    page_cache::{self, Page, PageCache},
    reads::Reader,
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

/// Subjects of all match facts.
pub const FACTS: &str = "fact.event.*";
/// Published when a match is created.
pub const CREATED: &str = "fact.event.created";
/// Published when a match changes.
pub const CHANGED: &str = "fact.event.changed";
/// Published when the name, logo or other details of a sport, tournament or team change.
pub const CATALOGUE: &str = "fact.catalogue.changed";
/// Published when a match gets a result, or its result is corrected or withdrawn.
pub const RESULT: &str = "fact.event.result";

pub struct Matches {
    db: PgPool,
    clock: Arc<dyn Clock>,
    pages: PageCache<(MatchFilter, Paging), PageError>,
}

#[derive(Clone, Debug)]
pub struct Tournament {
    pub id: TournamentId,
    pub sport_id: SportId,
    pub slug: String,
    pub name: String,
    /// URL of the logo.
    pub logo: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Sport {
    pub id: SportId,
    pub slug: String,
    pub name: String,
    /// Whether a match can end in a draw.
    pub draws_allowed: bool,
    /// Highest score of a team that can be predicted.
    pub max_score: i16,
}

/// Filter for the match list. The default selects all matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct MatchFilter {
    pub tournament_id: Option<TournamentId>,
    /// Matches of this team, at home or away.
    pub team_id: Option<TeamId>,
    /// Matches that start on this UTC day.
    pub date: Option<Date>,
    pub status: Option<PublicStatus>,
}

/// Error from building a page.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// The page could not be serialised.
    #[error(transparent)]
    Render(#[from] serde_json::Error),
}

impl Matches {
    pub fn new(core: &Core, pages: &page_cache::Settings) -> Self {
        Self { db: core.db.clone(), clock: core.clock.clone(), pages: PageCache::new(pages.keep, pages.cache_entries) }
    }

    /// Returns a page of the match list, in the bytes that `render` produces. See [`rules::Section`] for the order.
    ///
    /// Pages are read from the primary, also if there is a replica: callers share them, and a change must not be followed
    /// by an older state. Their number of queries is bounded anyway.
    ///
    /// As time passes, matches leave the upcoming section without a fact being published. A cached page shows this once
    /// it is rebuilt, after `pages.keep` at the latest.
    pub async fn page(
        &self,
        filter: MatchFilter,
        paging: Paging,
        render: impl FnOnce(Vec<Match>, i64) -> serde_json::Result<Bytes>,
    ) -> Result<Arc<Page>, Arc<PageError>> {
        self.pages
            .get((filter.clone(), paging), async || {
                let runs = rules::runs(self.clock.now(), filter.status, filter.date);
                let mut snapshot = platform::database::begin_with(&self.db, store::SNAPSHOT).await?;
                let total = store::count(&mut *snapshot, &filter).await?;
                // The list reads all matches before the page, however far behind the end it is.
                let events = if paging.offset() < total {
                    store::list(&mut *snapshot, &filter, &runs, paging).await?
                } else {
                    Vec::new()
                };
                snapshot.commit().await?;
                Ok(render(events, total)?)
            })
            .await
    }

    /// Returns a page of the match list if it is cached and current.
    pub fn ready_page(&self, filter: MatchFilter, paging: Paging) -> Option<Arc<Page>> {
        self.pages.ready(&(filter, paging))
    }

    pub async fn find(&self, id: MatchId) -> sqlx::Result<Option<Match>> {
        store::find(&self.db, id).await
    }

    /// Returns a page of tournaments sorted by name, and the total count.
    pub async fn tournaments(&self, reader: &Reader, paging: Paging) -> sqlx::Result<(Vec<Tournament>, i64)> {
        reader.read(async |db| Ok((store::tournaments(&db, paging).await?, store::count_tournaments(&db).await?))).await
    }

    /// Returns a page of sports sorted by name, and the total count.
    pub async fn sports(&self, reader: &Reader, paging: Paging) -> sqlx::Result<(Vec<Sport>, i64)> {
        reader.read(async |db| Ok((store::sports(&db, paging).await?, store::count_sports(&db).await?))).await
    }

    /// Marks all cached pages as stale, after a catalogue change in this or another process.
    pub fn mark_stale(&self) {
        self.pages.mark_stale();
    }
}
