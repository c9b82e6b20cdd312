//! Profiles of users, as other users see them.

use platform::reads::Reader;
use scoring::Calibration;
use sqlx::PgPool;
use web::ids::{LeagueId, UserId};

use crate::{
    catalogue::teams::service::{Favourite, Teams},
    chat::visibility,
    game::{
        follows::service::{FollowCounts, Follows},
        leagues::service::Leagues,
        predictions::service::Predictions,
        scores::leaderboard::{Leaderboards, Record},
    },
    identity::{
        accounts::{Person, UserSegment, service::Accounts},
        privacy::{rules::Viewer, service::PrivacySettings},
    },
};

/// Number of leagues and of tournaments that a profile lists.
const MOST_LISTED: u8 = 20;

/// Reads profiles.
#[derive(Clone)]
pub struct Profiles {
    pub db: PgPool,
    pub accounts: Accounts,
    pub privacy: PrivacySettings,
    pub follows: Follows,
    pub teams: Teams,
    pub predictions: Predictions,
    pub leaderboards: Leaderboards,
    pub leagues: Leagues,
}

/// A profile as one user sees it. Hidden parts are `None`.
#[derive(Clone, Debug)]
pub struct Profile {
    pub person: Person,
    /// The primary team, and the others.
    pub teams: Option<(Option<Favourite>, Vec<Favourite>)>,
    /// The number of predictions, and the scores.
    pub record: Option<(i64, Record)>,
    pub calibration: Option<CalibrationSummary>,
    /// Leagues with both users as members.
    pub leagues: Vec<(LeagueId, String)>,
    pub counts: FollowCounts,
    pub is_following: bool,
    pub follows_me: bool,
}

/// Confidence compared with the hit rate, over all bins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CalibrationSummary {
    /// Number of settled predictions with a confidence above 0.
    pub count: u32,
    /// In percent.
    pub average_confidence: Option<f64>,
    /// From 0 to 1.
    pub hit_rate: Option<f64>,
}

impl CalibrationSummary {
    fn of(calibration: &Calibration) -> Self {
        let all = calibration.overall();
        Self { count: all.count, average_confidence: all.average_confidence(), hit_rate: all.hit_rate() }
    }
}

impl Profiles {
    /// Returns a profile as the viewer sees it; `None` if the account is invisible to them.
    pub async fn get(&self, reader: &Reader, viewer: UserId, segment: &UserSegment) -> sqlx::Result<Option<Profile>> {
        let found = visibility::find_visible(&self.db, &self.accounts, viewer, segment).await?;
        let Some(account) = found else { return Ok(None) };
        // The account may be deleted in between.
        let Some(privacy) = self.privacy.of(account.id).await? else { return Ok(None) };
        let (owner, is_own) = (account.id, account.id == viewer);
        let is_following = !is_own && self.follows.is_following(viewer, owner).await?;
        let follows_me = !is_own && self.follows.is_following(owner, viewer).await?;
        let relation = match (is_own, follows_me) {
            (true, _) => Viewer::Owner,
            (false, true) => Viewer::Followed,
            (false, false) => Viewer::Other,
        };
        let mut profile = Profile {
            person: account.person(viewer),
            teams: None,
            record: None,
            calibration: None,
            leagues: self.leagues.shared(reader, viewer, owner, MOST_LISTED.into()).await?,
            counts: self.follows.counts(reader, owner).await?,
            is_following,
            follows_me,
        };
        if privacy.teams.includes(relation) {
            profile.teams = Some(self.teams.favourites(owner).await?);
        }
        if privacy.record.includes(relation) {
            let predictions = self.predictions.count(reader, owner).await?;
            let record = self.leaderboards.record(reader, owner, MOST_LISTED.into()).await?;
            profile.record = Some((predictions, record));
        }
        if privacy.calibration.includes(relation) {
            let calibration = self.predictions.calibration(reader, owner).await?;
            profile.calibration = Some(CalibrationSummary::of(&calibration));
        }
        Ok(Some(profile))
    }
}
