//! Decides which accounts a user can see.

use sqlx::PgPool;
use web::ids::UserId;

use super::blocks;
use crate::identity::accounts::{
    UserSegment,
    service::{Account, Accounts},
};

/// Finds an account that a path names, if the viewer can see it: it exists, is not suspended, and neither user has blocked
/// the other. Users see themselves.
pub(crate) async fn find_visible(
    db: &PgPool,
    accounts: &Accounts,
    viewer: UserId,
    segment: &UserSegment,
) -> sqlx::Result<Option<Account>> {
    let Some(account) = accounts.at(segment).await? else { return Ok(None) };
    let is_visible =
        account.id == viewer || account.banned_at.is_none() && !blocks::exists_between(db, viewer, account.id).await?;
    Ok(is_visible.then_some(account))
}
