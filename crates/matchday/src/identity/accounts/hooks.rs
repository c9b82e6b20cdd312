//! Traits that higher domains implement for accounts.

use futures_util::future::BoxFuture;
use sqlx::PgConnection;
use web::ids::UserId;

/// Writes the initial data of a new account, in the transaction that creates it.
pub trait Welcome: Send + Sync {
    fn welcome_in<'a>(&'a self, connection: &'a mut PgConnection, user: UserId) -> BoxFuture<'a, sqlx::Result<()>>;
}
