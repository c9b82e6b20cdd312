//! Traits that higher domains implement for login.

use futures_util::future::BoxFuture;
use matrix_appservice::Credentials;

use crate::identity::{accounts::service::Account, sessions::service::Issued};

/// Gives sessions their chat devices.
pub trait ChatAccess: Send + Sync {
    /// The chat credentials of a session that was just issued; `None` where chat is unavailable.
    fn admit<'a>(
        &'a self,
        account: &'a Account,
        session: &'a Issued,
        client: &'a str,
    ) -> BoxFuture<'a, Option<Credentials>>;
}
