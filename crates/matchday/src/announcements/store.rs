//! The SQL of announcements.

use sqlx::PgExecutor;
use web::ids::{EventId, RoomId, UserId};

/// A room that is told what happens.
pub(super) struct TellableRoom {
    pub(super) id: RoomId,
    pub(super) matrix_id: String,
}

/// The rooms of a match that are open and want to be told.
pub(super) async fn rooms(executor: impl PgExecutor<'_>, event: EventId) -> sqlx::Result<Vec<TellableRoom>> {
    sqlx::query_as!(
        TellableRoom,
        r#"select id as "id: RoomId", matrix_id as "matrix_id!" from rooms
           where event_id = $1 and stand is not null and opened_at is not null and discarded_at is null
             and matrix_id is not null and announces
           order by id"#,
        event.0,
    )
    .fetch_all(executor)
    .await
}

/// Who is in a room.
pub(super) async fn members(executor: impl PgExecutor<'_>, room: RoomId) -> sqlx::Result<Vec<UserId>> {
    sqlx::query_scalar!(
        r#"select user_id as "user_id: UserId" from room_members where room_id = $1 and membership = 'join'"#,
        room.0,
    )
    .fetch_all(executor)
    .await
}

/// What a match's teams are called.
pub(super) async fn teams(executor: impl PgExecutor<'_>, event: EventId) -> sqlx::Result<Option<(String, String)>> {
    let row = sqlx::query!(
        "select h.name as home, a.name as away from events e
         join teams h on h.id = e.home_team_id join teams a on a.id = e.away_team_id where e.id = $1",
        event.0,
    )
    .fetch_optional(executor)
    .await?;
    Ok(row.map(|row| (row.home, row.away)))
}

/// What these users are called.
pub(super) async fn usernames(executor: impl PgExecutor<'_>, users: &[i64]) -> sqlx::Result<Vec<(UserId, String)>> {
    let rows =
        sqlx::query!(r#"select user_id as "user_id: UserId", username from users where user_id = any($1)"#, users,)
            .fetch_all(executor)
            .await?;
    Ok(rows.into_iter().map(|row| (row.user_id, row.username)).collect())
}

/// Lets a room be told what happens, or not; returns whether there is such a room.
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
