//! Reads rule sets, and stores new ones in the transaction of an import.

use platform::Core;
use sqlx::{PgConnection, PgExecutor, PgPool};
use time::OffsetDateTime;
use web::ids::RuleSetId;

use super::{
    rules::{NewRuleSet, StoredRuleSet},
    store,
};

#[derive(Clone)]
pub struct RuleSets {
    db: PgPool,
}

impl RuleSets {
    pub fn new(core: &Core) -> Self {
        Self { db: core.db.clone() }
    }

    pub async fn find(&self, id: RuleSetId) -> sqlx::Result<Option<StoredRuleSet>> {
        store::find(&self.db, id).await
    }
}

/// Returns all rule sets, oldest first. There are few: they are written by hand.
pub async fn all(executor: impl PgExecutor<'_>) -> sqlx::Result<Vec<StoredRuleSet>> {
    store::all(executor).await
}

/// Stores a rule set.
pub async fn insert_in(
    connection: &mut PgConnection,
    new: &NewRuleSet,
    now: OffsetDateTime,
) -> sqlx::Result<RuleSetId> {
    store::insert(connection, new, now).await
}
