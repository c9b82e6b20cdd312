//! Lists teams and saves favourites.

use platform::{Core, reads::Reader};
use sqlx::PgPool;
use web::{
    fields::Search,
    ids::{SportId, TeamId, UserId},
    paging::Paging,
};

use super::store;
use crate::identity::accounts;

/// Maximum number of favourites besides the primary team.
pub const MOST_OTHERS: usize = 5;

#[derive(Clone)]
pub struct Teams {
    db: PgPool,
}

/// A team with its sport.
#[derive(Clone, Debug)]
pub struct Team {
    pub id: TeamId,
    pub name: String,
    /// Unique key by which fixture documents refer to the team.
    pub slug: String,
    /// URL of the logo.
    pub logo: Option<String>,
    pub country: Option<String>,
    pub founded: Option<i32>,
    pub sport_id: SportId,
    pub sport_name: String,
    pub sport_slug: String,
}

/// Filter for the team list.
#[derive(Clone, Debug)]
pub struct TeamFilter {
    pub sport_id: Option<SportId>,
    pub search: Option<Search>,
}

/// A user's favourite team, without its sport.
#[derive(Clone, Debug)]
pub struct Favourite {
    pub id: TeamId,
    pub name: String,
    /// URL of the logo.
    pub logo: Option<String>,
}

/// Error from saving favourites.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// The primary team does not exist.
    #[error("the team does not exist")]
    NoSuchTeam,
    /// At least one of the other teams does not exist.
    #[error("some teams do not exist")]
    NoSuchTeams,
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

impl Teams {
    pub fn new(core: &Core) -> Self {
        Self { db: core.db.clone() }
    }

    /// Returns a page of teams sorted by name, and the total count.
    pub async fn list(&self, reader: &Reader, filter: &TeamFilter, paging: Paging) -> sqlx::Result<(Vec<Team>, i64)> {
        reader.read(async |db| Ok((store::list(&db, filter, paging).await?, store::count(&db, filter).await?))).await
    }

    /// Returns the user's primary team, and the others in rank order.
    pub async fn favourites(&self, user: UserId) -> sqlx::Result<(Option<Favourite>, Vec<Favourite>)> {
        let (primary, others): (Vec<_>, Vec<_>) =
            store::favourites(&self.db, user).await?.into_iter().partition(|(rank, _)| *rank == 0);
        let team = |(_, team): (i16, Favourite)| team;
        Ok((primary.into_iter().map(team).next(), others.into_iter().map(team).collect()))
    }

    /// Sets the user's primary team.
    pub async fn save_primary(&self, user: UserId, team: TeamId) -> Result<Favourite, SaveError> {
        let mut saved = self.save(user, 0, 0, &[team]).await?;
        saved.pop().ok_or(SaveError::NoSuchTeam)
    }

    /// Replaces the user's other teams with these, in this order.
    pub async fn save_others(&self, user: UserId, teams: &[TeamId]) -> Result<Vec<Favourite>, SaveError> {
        let last = i16::try_from(MOST_OTHERS).unwrap_or(i16::MAX);
        let saved = self.save(user, 1, last, teams).await?;
        if saved.len() == teams.len() { Ok(saved) } else { Err(SaveError::NoSuchTeams) }
    }

    /// Replaces the favourites ranked `first` to `last` if every team exists. Returns the teams that exist.
    async fn save(&self, user: UserId, first: i16, last: i16, teams: &[TeamId]) -> Result<Vec<Favourite>, SaveError> {
        let ids: Vec<i64> = teams.iter().map(|team| team.0).collect();
        let mut tx = platform::database::begin(&self.db).await?;
        let known = store::known(&mut *tx, &ids).await?;
        let found: Vec<Favourite> = teams
            .iter()
            .filter_map(|wanted| known.iter().find(|(id, ..)| id == wanted))
            .map(|(id, name, logo)| Favourite { id: *id, name: name.clone(), logo: logo.clone() })
            .collect();
        if found.len() == teams.len() {
            accounts::lock(&mut tx, user).await?;
            store::delete_favourites(&mut tx, user, first, last).await?;
            store::insert_favourites(&mut tx, user, first, &ids).await?;
            tx.commit().await?;
        }
        Ok(found)
    }
}
