//! Listing teams and saving favourites.

use platform::Core;
use sqlx::PgPool;
use web::{
    fields::Search,
    ids::{SportId, TeamId, UserId},
    paging::Paging,
};

use super::store;
use crate::accounts;

/// How many favourites there may be besides the primary team.
pub const MOST_OTHERS: usize = 5;

/// The teams.
#[derive(Clone)]
pub struct Teams {
    db: PgPool,
}

/// A team with its sport.
#[derive(Clone, Debug)]
pub struct Team {
    /// The team.
    pub id: TeamId,
    /// For people.
    pub name: String,
    /// For programs, unique.
    pub slug: String,
    /// Where its logo is.
    pub logo: Option<String>,
    /// Where it plays.
    pub country: Option<String>,
    /// In which year it was founded.
    pub founded: Option<i32>,
    /// Its sport.
    pub sport_id: SportId,
    /// The sport's name.
    pub sport_name: String,
    /// The sport's slug.
    pub sport_slug: String,
}

/// Which teams are wanted.
#[derive(Clone, Debug)]
pub struct TeamFilter {
    /// Of this sport.
    pub sport_id: Option<SportId>,
    /// With this in their name.
    pub search: Option<Search>,
}

/// A team as a favourite.
#[derive(Clone, Debug)]
pub struct Favourite {
    /// The team.
    pub id: TeamId,
    /// Its name.
    pub name: String,
    /// Where its logo is.
    pub logo: Option<String>,
}

/// Why favourites were not saved.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// The one team does not exist.
    #[error("there is no such team")]
    NoSuchTeam,
    /// Some of the teams do not exist.
    #[error("some teams do not exist")]
    NoSuchTeams,
    /// The database failed.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

impl Teams {
    /// Teams in this database.
    pub fn new(core: &Core) -> Self {
        Self { db: core.db.clone() }
    }

    /// A page of teams by name, and how many there are in all.
    pub async fn list(&self, filter: &TeamFilter, paging: Paging) -> sqlx::Result<(Vec<Team>, i64)> {
        let teams = store::list(&self.db, filter, paging).await?;
        let total = store::count(&self.db, filter).await?;
        Ok((teams, total))
    }

    /// The user's primary team, and the others in their order.
    pub async fn favourites(&self, user: UserId) -> sqlx::Result<(Option<Favourite>, Vec<Favourite>)> {
        let (primary, others): (Vec<_>, Vec<_>) =
            store::favourites(&self.db, user).await?.into_iter().partition(|(rank, _)| *rank == 0);
        let team = |(_, team): (i16, Favourite)| team;
        Ok((primary.into_iter().map(team).next(), others.into_iter().map(team).collect()))
    }

    /// Makes this the user's primary team.
    pub async fn save_primary(&self, user: UserId, team: TeamId) -> Result<Favourite, SaveError> {
        let mut saved = self.save(user, 0, 0, &[team]).await?;
        saved.pop().ok_or(SaveError::NoSuchTeam)
    }

    /// Makes these the user's other teams, in this order, in place of those before.
    pub async fn save_others(&self, user: UserId, teams: &[TeamId]) -> Result<Vec<Favourite>, SaveError> {
        let last = i16::try_from(MOST_OTHERS).unwrap_or(i16::MAX);
        let saved = self.save(user, 1, last, teams).await?;
        if saved.len() == teams.len() { Ok(saved) } else { Err(SaveError::NoSuchTeams) }
    }

    /// Replaces the favourites ranked `first` to `last`, if every team exists; returns those that do.
    async fn save(&self, user: UserId, first: i16, last: i16, teams: &[TeamId]) -> Result<Vec<Favourite>, SaveError> {
        let ids: Vec<i64> = teams.iter().map(|team| team.0).collect();
        let mut tx = self.db.begin().await?;
        let known = store::known(&mut *tx, &ids).await?;
        let found: Vec<Favourite> = teams
            .iter()
            .filter_map(|wanted| known.iter().find(|(id, ..)| id == wanted))
            .map(|(id, name, logo)| Favourite { id: *id, name: name.clone(), logo: logo.clone() })
            .collect();
        if found.len() == teams.len() {
            accounts::store::lock(&mut tx, user).await?;
            store::delete_favourites(&mut tx, user, first, last).await?;
            store::insert_favourites(&mut tx, user, first, &ids).await?;
            tx.commit().await?;
        }
        Ok(found)
    }
}
