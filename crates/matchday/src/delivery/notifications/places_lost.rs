//! Notifications of members who lost places in a league by a round.
//!
//! A complete round is divided into pages of leagues, and each page is a job of its own. This is background work after the
//! round: tables do not wait for it. As for reminders, a worker claims users before it sends anything, so a member is
//! notified at most once of a league and round, however often a job is delivered. A later correction that completes the
//! round again notifies members who have lost places only then.

use std::{collections::HashMap, time::Duration};

use platform::stream::{Begin, Delivery, Failure, Stream, WorkSpec};
use serde::{Deserialize, Serialize};
use web::ids::{LeagueId, TournamentId, UserId};

use super::{
    notifier::{Notice, Place, PlacesLost, Recipient},
    service::Notifications,
    store,
    work::ReminderError,
};
use crate::game::{
    leagues::{places_lost::PlaceLost, service::Leagues},
    scores::rounds::{COMPLETED, RoundFact},
};

/// Work subject of a page of leagues.
pub const PAGE: &str = "work.league_passed.page";

/// Number of users claimed together. These are not notified if the worker dies.
const CLAIMED_AT_ONCE: usize = 100;
/// Time for which a browser that is offline can still get the notification.
const USEFUL_FOR: time::Duration = time::Duration::days(1);

/// Notifies members who lost places. Cheap to clone.
#[derive(Clone)]
pub struct LeagueNotifications {
    pub notifications: Notifications,
    pub leagues: Leagues,
}

/// The leagues with ids in `after..=until` (excluding `after`) that count a tournament.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Page {
    tournament_id: TournamentId,
    round: i16,
    after: LeagueId,
    until: LeagueId,
}

impl LeagueNotifications {
    /// Describes the consumer of complete rounds.
    pub fn rounds() -> WorkSpec {
        WorkSpec { begin: Begin::Now, ..WorkSpec::new("league_rounds", Stream::Facts, COMPLETED) }
    }

    /// Describes the consumer of pages.
    pub fn pages() -> WorkSpec {
        WorkSpec {
            retried_for: Duration::from_hours(2),
            first_pause: Duration::from_secs(2),
            longest_pause: Duration::from_mins(2),
            ack_wait: Duration::from_secs(30),
            ..WorkSpec::new("league_passed", Stream::Work, PAGE)
        }
    }

    /// Queues the pages of a complete round. A repeated delivery queues the same message ids.
    pub async fn plan(&self, delivery: Delivery) -> Result<(), Failure> {
        let fact: RoundFact =
            serde_json::from_slice(&delivery.payload).map_err(|error| Failure::GiveUp(error.into()))?;
        if self.notifications.inner.notifiers.is_empty() {
            return Ok(());
        }
        self.queue(&fact, delivery.id.as_deref().unwrap_or_default()).await.map_err(Failure::retry)
    }

    async fn queue(&self, fact: &RoundFact, id: &str) -> Result<(), ReminderError> {
        let mut after = LeagueId(0);
        while let Some(until) = self.leagues.page_end(fact.tournament_id, after).await? {
            let page = Page { tournament_id: fact.tournament_id, round: fact.round, after, until };
            let id = format!("passed-{}-{}-{id}-{after}-{until}", fact.tournament_id, fact.round);
            self.notifications.queue_job(PAGE, id, &page).await?;
            after = until;
        }
        Ok(())
    }

    /// Notifies the members of a page who lost places. This is idempotent.
    pub async fn perform(&self, delivery: Delivery) -> Result<(), Failure> {
        let page: Page = serde_json::from_slice(&delivery.payload).map_err(|error| Failure::GiveUp(error.into()))?;
        let later = self.notify(&page).await.map_err(Failure::retry)?;
        if later == 0 { Ok(()) } else { Err(Failure::retry(anyhow::anyhow!("{later} members were not notified yet"))) }
    }

    /// Returns the number of members to retry.
    async fn notify(&self, page: &Page) -> Result<usize, ReminderError> {
        let lost = self.leagues.places_lost(page.tournament_id, page.round, (page.after, page.until)).await?;
        let mut later = 0;
        for some in lost.chunks(CLAIMED_AT_ONCE) {
            later += self.notify_some(page, some).await?;
        }
        Ok(later)
    }

    /// Claims and notifies some members, in the order of their leagues.
    async fn notify_some(&self, page: &Page, lost: &[PlaceLost]) -> Result<usize, ReminderError> {
        let inner = &*self.notifications.inner;
        let now = inner.clock.now();
        let mut users: Vec<i64> = lost.iter().map(|one| one.user.0).collect();
        users.sort_unstable();
        users.dedup();
        let willing = store::wanting_league_ranks(&inner.db, &users, now).await?;
        let recipients = self.notifications.recipients(&willing, now).await?;
        let recipients: HashMap<UserId, Recipient> = recipients.into_iter().map(|one| (one.user, one)).collect();
        let reached: Vec<&PlaceLost> = lost.iter().filter(|one| recipients.contains_key(&one.user)).collect();
        let (users, leagues): (Vec<i64>, Vec<i64>) = reached.iter().map(|one| (one.user.0, one.league.0)).unzip();
        let claimed = store::claim_league_ranks(&inner.db, &users, &leagues, page.round, now).await?;
        let claimed: Vec<&PlaceLost> =
            reached.into_iter().filter(|one| claimed.contains(&(one.user, one.league))).collect();
        let mut later = 0;
        for of_league in claimed.chunk_by(|one, other| one.league == other.league) {
            let Some(first) = of_league.first() else { continue };
            let lost = PlacesLost {
                league_id: first.league,
                league: first.name.clone(),
                tournament_id: page.tournament_id,
                round: page.round,
            };
            let notice = Notice::PlacesLost { lost, expires_at: now + USEFUL_FOR };
            let recipient = |one: &&PlaceLost| {
                let place = Place { rank: one.rank, previous_rank: one.previous_rank, points: one.points };
                Some(Recipient { place: Some(place), ..recipients.get(&one.user)?.clone() })
            };
            let failed = self.notifications.deliver(&notice, of_league.iter().filter_map(recipient).collect()).await?;
            if !failed.is_empty() {
                store::unclaim_league_ranks(&inner.db, &failed, first.league, page.round).await?;
            }
            later += failed.len();
        }
        Ok(later)
    }
}
