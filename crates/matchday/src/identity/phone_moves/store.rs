//! SQL queries for phone moves.

use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;
use web::ids::UserId;

use crate::identity::phone::Phone;

/// A move whose old phone has not received its notice yet.
pub(super) struct PendingNotice {
    pub(super) user_id: UserId,
    pub(super) id: i64,
    pub(super) from_phone: Phone,
    pub(super) language: String,
    pub(super) undo_until: OffsetDateTime,
    pub(super) attempts: i16,
}

pub(super) struct Undoable {
    pub(super) from_phone: Phone,
    pub(super) moved_at: OffsetDateTime,
}

pub(super) async fn insert(
    connection: &mut PgConnection,
    user: UserId,
    from: &Phone,
    language: &str,
    now: OffsetDateTime,
    undo_until: OffsetDateTime,
) -> sqlx::Result<()> {
    sqlx::query!(
        "insert into phone_moves (user_id, from_phone, language, moved_at, undo_until, notice_due_at)
         values ($1, $2, $3, $4, $5, $4)",
        user.0,
        from.as_str(),
        language,
        now,
        undo_until,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Takes the next due notice and hides it from other workers until `until`. The first worker to change `notice_due_at`
/// gets it. The select does not lock rows, because users' rows are spread over several nodes.
pub(super) async fn take_pending_notice(
    connection: &mut PgConnection,
    now: OffsetDateTime,
    until: OffsetDateTime,
) -> sqlx::Result<Option<PendingNotice>> {
    loop {
        let next = sqlx::query!(
            r#"select user_id as "user_id: UserId", id, notice_due_at as "due_at!" from phone_moves
               where notice_due_at <= $1 and undo_until > $1 and undone_at is null order by notice_due_at limit 1"#,
            now,
        )
        .fetch_optional(&mut *connection)
        .await?;
        let Some(next) = next else { return Ok(None) };
        let taken = sqlx::query_as!(
            PendingNotice,
            r#"update phone_moves set notice_due_at = $4, attempts = attempts + 1
               where user_id = $1 and id = $2 and notice_due_at = $3
               returning user_id as "user_id: UserId", id, from_phone as "from_phone: Phone", language, undo_until, attempts"#,
            next.user_id.0,
            next.id,
            next.due_at,
            until,
        )
        .fetch_optional(&mut *connection)
        .await?;
        if taken.is_some() {
            return Ok(taken);
        }
    }
}

/// Stores the hash of the undo code, replacing an earlier one.
pub(super) async fn set_undo_hash(
    executor: impl PgExecutor<'_>,
    notice: &PendingNotice,
    hash: [u8; 32],
) -> sqlx::Result<()> {
    sqlx::query!(
        "update phone_moves set undo_hash = $3 where user_id = $1 and id = $2",
        notice.user_id.0,
        notice.id,
        &hash[..],
    )
    .execute(executor)
    .await?;
    Ok(())
}

/// Schedules the next attempt to send the notice; `None` after it was sent.
pub(super) async fn set_notice_due(
    executor: impl PgExecutor<'_>,
    notice: &PendingNotice,
    due_at: Option<OffsetDateTime>,
) -> sqlx::Result<()> {
    sqlx::query!(
        "update phone_moves set notice_due_at = $3 where user_id = $1 and id = $2",
        notice.user_id.0,
        notice.id,
        due_at,
    )
    .execute(executor)
    .await?;
    Ok(())
}

/// Finds the move that a code undoes.
pub(super) async fn undoable(
    connection: &mut PgConnection,
    user: UserId,
    hash: [u8; 32],
    now: OffsetDateTime,
) -> sqlx::Result<Option<Undoable>> {
    sqlx::query_as!(
        Undoable,
        r#"select from_phone as "from_phone: Phone", moved_at from phone_moves
           where user_id = $1 and undo_hash = $2 and undone_at is null and undo_until > $3"#,
        user.0,
        &hash[..],
        now,
    )
    .fetch_optional(connection)
    .await
}

/// Marks all moves of a user as undone, which invalidates their codes.
pub(super) async fn set_undone(connection: &mut PgConnection, user: UserId, now: OffsetDateTime) -> sqlx::Result<()> {
    sqlx::query!("update phone_moves set undone_at = $2 where user_id = $1 and undone_at is null", user.0, now)
        .execute(connection)
        .await?;
    Ok(())
}

/// Returns the time until which the latest move of a user can be undone.
pub(super) async fn undo_until(
    executor: impl PgExecutor<'_>,
    user: UserId,
    now: OffsetDateTime,
) -> sqlx::Result<Option<OffsetDateTime>> {
    sqlx::query_scalar!(
        "select max(undo_until) from phone_moves where user_id = $1 and undone_at is null and undo_until > $2",
        user.0,
        now,
    )
    .fetch_one(executor)
    .await
}

pub(super) async fn sweep(executor: impl PgExecutor<'_>, before: OffsetDateTime, most: i64) -> sqlx::Result<u64> {
    let swept = sqlx::query!(
        "delete from phone_moves where undo_until < $1 and (user_id, id) in
           (select user_id, id from phone_moves where undo_until < $1 order by undo_until limit $2)",
        before,
        most,
    )
    .execute(executor)
    .await?;
    Ok(swept.rows_affected())
}
