//! SQL queries for teams and favourites.

use sqlx::{PgConnection, PgExecutor};
use web::{
    fields::Search,
    ids::{SportId, TeamId, UserId},
    paging::Paging,
};

use super::service::{Favourite, Team, TeamFilter};

pub(super) async fn list(
    executor: impl PgExecutor<'_>,
    filter: &TeamFilter,
    paging: Paging,
) -> sqlx::Result<Vec<Team>> {
    sqlx::query_as!(
        Team,
        r#"select t.id as "id: TeamId", t.name, t.slug, t.logo, t.country, t.founded,
                  s.id as "sport_id: SportId", s.name as sport_name, s.slug as sport_slug
           from teams t join sports s on s.id = t.sport_id
           where ($1::bigint is null or t.sport_id = $1)
             and ($2::text is null or lower(t.name) like lower($2))
           order by t.name, t.id
           limit $3 offset $4"#,
        filter.sport_id.map(|id| id.0),
        filter.search.as_ref().map(Search::pattern),
        paging.limit(),
        paging.offset(),
    )
    .fetch_all(executor)
    .await
}

pub(super) async fn count(executor: impl PgExecutor<'_>, filter: &TeamFilter) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"select count(*) as "count!" from teams
           where ($1::bigint is null or sport_id = $1) and ($2::text is null or lower(name) like lower($2))"#,
        filter.sport_id.map(|id| id.0),
        filter.search.as_ref().map(Search::pattern),
    )
    .fetch_one(executor)
    .await
}

/// Returns the teams among `ids` that exist, as (id, name, logo).
pub(super) async fn known(
    executor: impl PgExecutor<'_>,
    ids: &[i64],
) -> sqlx::Result<Vec<(TeamId, String, Option<String>)>> {
    let rows = sqlx::query!(r#"select id as "id: TeamId", name, logo from teams where id = any($1)"#, ids)
        .fetch_all(executor)
        .await?;
    Ok(rows.into_iter().map(|row| (row.id, row.name, row.logo)).collect())
}

/// Returns a user's favourites with their ranks, in rank order.
pub(super) async fn favourites(executor: impl PgExecutor<'_>, user: UserId) -> sqlx::Result<Vec<(i16, Favourite)>> {
    let rows = sqlx::query!(
        r#"select u.rank, t.id as "id: TeamId", t.name, t.logo
           from user_teams u join teams t on t.id = u.team_id where u.user_id = $1 order by u.rank"#,
        user.0,
    )
    .fetch_all(executor)
    .await?;
    Ok(rows.into_iter().map(|row| (row.rank, Favourite { id: row.id, name: row.name, logo: row.logo })).collect())
}

pub(super) async fn delete_favourites(
    connection: &mut PgConnection,
    user: UserId,
    first: i16,
    last: i16,
) -> sqlx::Result<()> {
    sqlx::query!("delete from user_teams where user_id = $1 and rank between $2 and $3", user.0, first, last)
        .execute(connection)
        .await?;
    Ok(())
}

/// Saves favourites with consecutive ranks, starting at `first`.
pub(super) async fn insert_favourites(
    connection: &mut PgConnection,
    user: UserId,
    first: i16,
    teams: &[i64],
) -> sqlx::Result<()> {
    sqlx::query!(
        "insert into user_teams (user_id, rank, team_id)
         select $1, ($2 + position - 1)::smallint, team_id
         from unnest($3::bigint[]) with ordinality as t (team_id, position)",
        user.0,
        i64::from(first),
        teams,
    )
    .execute(connection)
    .await?;
    Ok(())
}
