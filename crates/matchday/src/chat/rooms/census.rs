//! Counts the members of a room. Reads them in pages, and what is known about them by their ids, so no statement grows
//! with the room or with the number of all users.

use std::collections::HashMap;

use sqlx::PgPool;
use time::OffsetDateTime;
use web::ids::{MatchId, RoomId};

use super::{
    service::Room,
    statistics::{Picks, Predictor, Statistics},
    store,
};
use crate::chat::members;

/// Members read at once.
const PAGE: i64 = 2_000;

/// Key in the distribution of teams for members without one.
const NEUTRAL: &str = "neutral";

/// A count in progress.
struct Census<'a> {
    db: &'a PgPool,
    event: Option<MatchId>,
    active_since: OffsetDateTime,
    /// Number of top predictors.
    ranked: i64,
    /// Members counted so far, and whether they are active. A user may be a member of several stands.
    members: HashMap<i64, bool>,
    found: Statistics,
}

/// Computes statistics of a room from all members. A match's stands are counted together.
pub(super) async fn count(
    db: &PgPool,
    room: &Room,
    active_since: OffsetDateTime,
    ranked: i64,
) -> sqlx::Result<Statistics> {
    let places = members::places(db, room.id, room.stand_of()).await?;
    let mut census = Census {
        db,
        event: room.event_id,
        active_since,
        ranked,
        members: HashMap::new(),
        found: Statistics::default(),
    };
    let mut new = Vec::new();
    for &place in &places {
        census.read(place, &mut new).await?;
    }
    census.add(&new).await?;
    census.finish(&places).await
}

impl Census<'_> {
    /// Reads the members of a room. Members that were not counted yet are added whenever there is a page of them, and
    /// otherwise left in `new`.
    async fn read(&mut self, place: RoomId, new: &mut Vec<i64>) -> sqlx::Result<()> {
        let mut after = 0;
        loop {
            let page = store::members_with_activity(self.db, place, after, self.active_since, PAGE).await?;
            let Some(&(last, _)) = page.last() else { return Ok(()) };
            let is_last = i64::try_from(page.len()).is_ok_and(|found| found < PAGE);
            after = last;
            for (user, is_active) in page {
                *self.members.entry(user).or_insert_with(|| {
                    new.push(user);
                    false
                }) |= is_active;
            }
            if new.len() >= usize::try_from(PAGE).unwrap_or(usize::MAX) {
                self.add(new).await?;
                new.clear();
            }
            if is_last {
                return Ok(());
            }
        }
    }

    /// Adds members that were not counted yet.
    async fn add(&mut self, users: &[i64]) -> sqlx::Result<()> {
        if users.is_empty() {
            return Ok(());
        }
        if let Some(event) = self.event {
            for pick in store::picks(self.db, event, users, self.active_since).await? {
                self.found.picks.add(&pick.prediction);
                *self.members.entry(pick.user_id).or_default() |= pick.is_recent;
            }
        }
        for (slug, fans) in store::supporters(self.db, self.event, users).await? {
            *self.found.team_distribution.entry(slug).or_default() += fans;
        }
        self.found.top.extend(store::best_predictors(self.db, users, self.ranked).await?);
        self.found.top.sort_by(Predictor::by_merit);
        self.found.top.truncate(usize::try_from(self.ranked).unwrap_or(usize::MAX));
        Ok(())
    }

    async fn finish(mut self, places: &[RoomId]) -> sqlx::Result<Statistics> {
        let (remote, active_remote) = store::count_remote_members(self.db, places, self.active_since).await?;
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let active = self.members.values().filter(|&&is_active| is_active).count();
        self.found.total_members = count(self.members.len()) + remote;
        self.found.active_members = count(active) + active_remote;
        let fans: i64 = self.found.team_distribution.values().sum();
        if let Some(event) = self.event {
            for slug in store::team_slugs(self.db, event).await? {
                self.found.team_distribution.entry(slug).or_default();
            }
        }
        self.found.team_distribution.insert(NEUTRAL.to_owned(), self.found.total_members - fans);
        Ok(self.found)
    }
}

/// Counts the predictions of a small room's members for a match.
pub(super) async fn count_picks(db: &PgPool, room: &Room, event: MatchId) -> sqlx::Result<Picks> {
    let users = members::all(db, room.id, room.stand_of()).await?;
    let mut picks = Picks::default();
    for pick in store::picks(db, event, &users, OffsetDateTime::UNIX_EPOCH).await? {
        picks.add(&pick.prediction);
    }
    Ok(picks)
}
