//! Traits that higher domains implement for account deletion.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::Value;
use sqlx::PgConnection;
use web::ids::UserId;

/// What account deletion and data export need from higher domains.
#[derive(Clone)]
pub struct Hooks {
    pub memberships: Arc<dyn Memberships>,
    pub receipts: Arc<dyn Receipts>,
    pub follows: Arc<dyn Follows>,
}

/// Receipts of predictions.
pub trait Receipts: Send + Sync {
    /// Returns all receipts of a user as a JSON array.
    fn export<'a>(&'a self, connection: &'a mut PgConnection, user: UserId) -> BoxFuture<'a, sqlx::Result<Value>>;
}

/// Follows between users.
pub trait Follows: Send + Sync {
    /// Returns the ids of all followers of a user. It reads them in pages, because there can be millions.
    fn followers<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        user: UserId,
    ) -> BoxFuture<'a, sqlx::Result<Vec<UserId>>>;

    /// Deletes the follows of a deleted user in both directions, with their counts, in many small transactions. Idempotent.
    fn forget(&self, user: UserId) -> BoxFuture<'_, sqlx::Result<()>>;
}

/// Chat room memberships stored by this service.
pub trait Memberships: Send + Sync {
    /// Removes a deleted user from every room.
    fn forget(&self, user: UserId) -> BoxFuture<'_, sqlx::Result<()>>;
}
