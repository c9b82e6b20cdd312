//! Traits that higher domains implement for account deletion.

use futures_util::future::BoxFuture;
use web::ids::UserId;

/// Memberships of chat rooms, as this service stores them.
pub trait Memberships: Send + Sync {
    /// Removes a deleted user from every room.
    fn forget(&self, user: UserId) -> BoxFuture<'_, sqlx::Result<()>>;
}
