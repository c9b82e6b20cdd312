//! Traits that higher domains implement for moderation.

use futures_util::future::BoxFuture;
use sqlx::PgConnection;
use web::ids::UserId;

/// Follows between users.
pub trait EndsFollows: Send + Sync {
    /// Deletes the follows between two users in both directions, in the transaction that blocks one of them. The
    /// transaction holds the locks of both accounts.
    fn end_between_in<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        one: UserId,
        other: UserId,
    ) -> BoxFuture<'a, sqlx::Result<()>>;
}
