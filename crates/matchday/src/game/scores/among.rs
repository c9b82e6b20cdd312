//! Leaderboards among followed users: the viewer, and the users whom the viewer follows.
//!
//! The points come from the leaderboard of all users in Redis. A process keeps the view of a user until the leaderboard or
//! the follows of the user change, which their versions show. Each request reads both versions: the one of the leaderboard
//! before it uses a kept view, and the one of the follows together with the viewer's blocks, which it needs anyway. So a new
//! score, follow or block shows at once, and a repeated request costs about as much as one for the whole leaderboard.

use std::sync::Arc;

use web::{ids::UserId, paging::MOST_PER_PAGE};

use super::{
    leaderboard_cache::{LeaderboardCache, LeaderboardError, View},
    rules::Scope,
};
use crate::game::follows::service::Followed;

/// Number of kept views, at most 20 MB.
const KEPT: usize = 5_000;

/// Keeps the latest views of users.
pub(super) struct FollowedViews {
    kept: quick_cache::sync::Cache<(UserId, Scope), Arc<FollowedView>>,
}

/// A view, with the versions of what it was made from.
#[derive(Debug)]
pub(super) struct FollowedView {
    pub(super) view: View,
    pub(super) follows_version: i64,
}

impl FollowedViews {
    pub(super) fn new() -> Self {
        Self { kept: quick_cache::sync::Cache::new(KEPT) }
    }

    /// Returns the kept view of this version of the leaderboard.
    pub(super) fn get(&self, viewer: UserId, scope: Scope, version: &str) -> Option<Arc<FollowedView>> {
        self.kept.get(&(viewer, scope)).filter(|kept| kept.view.version.as_deref() == Some(version))
    }

    /// Makes a view of these users and the viewer, with the largest top that a request can ask for.
    pub(super) async fn make(
        &self,
        boards: &LeaderboardCache,
        (viewer, scope): (UserId, Scope),
        followed: Followed,
    ) -> Result<Arc<FollowedView>, LeaderboardError> {
        let Followed { mut users, version: follows_version } = followed;
        users.push(viewer);
        let (version, standings) = boards.standings(scope, &users).await?.ok_or(LeaderboardError::Rebuilding)?;
        let view = View { version: Some(version), ..View::of(standings, viewer, MOST_PER_PAGE) };
        let made = Arc::new(FollowedView { view, follows_version });
        self.kept.insert((viewer, scope), Arc::clone(&made));
        Ok(made)
    }
}
