//! Read access to rooms and their members in bounded steps, shared by features that show them. `membership_sync` writes
//! memberships.

use sqlx::{PgExecutor, PgPool};
use web::ids::{MatchId, RoomId, UserId};

/// Returns at most `most` members of a room, sorted by id, that follow `after`.
pub(crate) async fn members_after(
    executor: impl PgExecutor<'_>,
    room: RoomId,
    after: i64,
    most: i64,
) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar!(
        "select user_id from room_members
         where room_id = $1 and membership = 'join' and user_id > $2
         order by user_id limit $3",
        room.0,
        after,
        most,
    )
    .fetch_all(executor)
    .await
}

/// Returns which of these users are members of a stand of the match, sorted by id.
pub(crate) async fn in_stands(executor: impl PgExecutor<'_>, event: MatchId, users: &[i64]) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar!(
        "select distinct m.user_id from room_members m join rooms r on r.id = m.room_id
         where m.user_id = any($2) and m.membership = 'join' and r.event_id = $1 and r.stand is not null
         order by m.user_id",
        event.0,
        users,
    )
    .fetch_all(executor)
    .await
}

/// Returns the rooms whose members count as one room: all stands of the match for a stand, else the room itself.
pub(crate) async fn places(
    executor: impl PgExecutor<'_>,
    room: RoomId,
    stand_of: Option<MatchId>,
) -> sqlx::Result<Vec<RoomId>> {
    let Some(event) = stand_of else { return Ok(vec![room]) };
    sqlx::query_scalar!(
        r#"select id as "id: RoomId" from rooms where event_id = $1 and stand is not null order by stand"#,
        event.0,
    )
    .fetch_all(executor)
    .await
}

/// Returns all members of a small room, or of all stands of the match for a stand, sorted by id.
pub(crate) async fn all(db: &PgPool, room: RoomId, stand_of: Option<MatchId>) -> sqlx::Result<Vec<i64>> {
    const PAGE: u16 = 1_000;
    let mut members = Vec::new();
    for place in places(db, room, stand_of).await? {
        let mut after = 0;
        loop {
            let page = members_after(db, place, after, PAGE.into()).await?;
            let is_last = page.len() < PAGE.into();
            after = page.last().copied().unwrap_or_default();
            members.extend(page);
            if is_last {
                break;
            }
        }
    }
    members.sort_unstable();
    members.dedup();
    Ok(members)
}

/// Whether the room exists and is public.
pub(crate) async fn is_public(executor: impl PgExecutor<'_>, room: RoomId) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"select exists (
             select 1 from rooms where id = $1 and not is_private and opened_at is not null and discarded_at is null
           ) as "is_public!""#,
        room.0,
    )
    .fetch_one(executor)
    .await
}

/// Users who are banned from the room.
pub(crate) async fn banned_users(executor: impl PgExecutor<'_>, room: RoomId) -> sqlx::Result<Vec<UserId>> {
    sqlx::query_scalar!(
        r#"select user_id as "user_id: UserId" from room_members where room_id = $1 and membership = 'ban'"#,
        room.0,
    )
    .fetch_all(executor)
    .await
}

/// Matrix ids of users without an account here who are banned from the room.
pub(crate) async fn banned_remotes(executor: impl PgExecutor<'_>, room: RoomId) -> sqlx::Result<Vec<String>> {
    sqlx::query_scalar!("select matrix_user_id from remote_members where room_id = $1 and membership = 'ban'", room.0)
        .fetch_all(executor)
        .await
}
