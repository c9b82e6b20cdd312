//! Traits that higher domains implement for account deletion.

use futures_util::future::BoxFuture;
use web::ids::UserId;

/// Chat room memberships stored by this service.
pub trait Memberships: Send + Sync {
    /// Removes a deleted user from every room.
    fn forget(&self, user: UserId) -> BoxFuture<'_, sqlx::Result<()>>;
}
