//! SQL queries for announcements.

use sqlx::PgExecutor;
use web::ids::{MatchId, RoomId, UserId};

/// A room that receives announcements.
pub(super) struct AnnouncementRoom {
    pub(super) id: RoomId,
    pub(super) matrix_id: String,
}

/// Returns the open rooms of a match that have announcements enabled.
pub(super) async fn rooms(executor: impl PgExecutor<'_>, event: MatchId) -> sqlx::Result<Vec<AnnouncementRoom>> {
    sqlx::query_as!(
        AnnouncementRoom,
        r#"select id as "id: RoomId", matrix_id as "matrix_id!" from rooms
           where event_id = $1 and stand is not null and opened_at is not null and discarded_at is null
             and matrix_id is not null and announces
           order by id"#,
        event.0,
    )
    .fetch_all(executor)
    .await
}

/// Returns the joined members of a room.
pub(super) async fn members(executor: impl PgExecutor<'_>, room: RoomId) -> sqlx::Result<Vec<UserId>> {
    sqlx::query_scalar!(
        r#"select user_id as "user_id: UserId" from room_members where room_id = $1 and membership = 'join'"#,
        room.0,
    )
    .fetch_all(executor)
    .await
}

/// Returns the names of the home and away team.
pub(super) async fn teams(executor: impl PgExecutor<'_>, event: MatchId) -> sqlx::Result<Option<(String, String)>> {
    let row = sqlx::query!(
        "select h.name as home, a.name as away from events e
         join teams h on h.id = e.home_team_id join teams a on a.id = e.away_team_id where e.id = $1",
        event.0,
    )
    .fetch_optional(executor)
    .await?;
    Ok(row.map(|row| (row.home, row.away)))
}

/// Whether users had points for an earlier result of a match before they had them for this one.
pub(super) async fn had_scores(executor: impl PgExecutor<'_>, event: MatchId, revision: i64) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"select exists (select 1 from event_results e
                          join event_results r on r.event_id = e.event_id and r.applied_at > e.applied_at
                          where e.event_id = $1 and e.revision < $2 and e.home_score is not null and r.revision = $2)
           as "had!""#,
        event.0,
        revision,
    )
    .fetch_one(executor)
    .await
}

pub(super) async fn usernames(executor: impl PgExecutor<'_>, users: &[i64]) -> sqlx::Result<Vec<(UserId, String)>> {
    let rows =
        sqlx::query!(r#"select user_id as "user_id: UserId", username from users where user_id = any($1)"#, users,)
            .fetch_all(executor)
            .await?;
    Ok(rows.into_iter().map(|row| (row.user_id, row.username)).collect())
}

/// Enables or disables announcements in a room. Returns whether the room exists.
pub(super) async fn set_announces(
    executor: impl PgExecutor<'_>,
    matrix_id: &str,
    announces: bool,
) -> sqlx::Result<bool> {
    let done = sqlx::query!("update rooms set announces = $2 where matrix_id = $1", matrix_id, announces)
        .execute(executor)
        .await?;
    Ok(done.rows_affected() > 0)
}
