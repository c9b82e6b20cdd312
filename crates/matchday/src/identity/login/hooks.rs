//! Traits that higher domains implement for login.

use futures_util::future::BoxFuture;
use matrix_appservice::Credentials;

use crate::identity::{accounts::service::Account, sessions::service::Issued};

/// Creates chat devices for sessions.
pub trait ChatAccess: Send + Sync {
    /// Returns chat credentials for a session that was just issued, or `None` if chat is unavailable.
    fn admit<'a>(
        &'a self,
        account: &'a Account,
        session: &'a Issued,
        client: &'a str,
    ) -> BoxFuture<'a, Option<Credentials>>;
}
