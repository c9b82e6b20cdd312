//! Reads rule sets.

use platform::Core;
use sqlx::PgPool;
use web::ids::RuleSetId;

use super::{rules::StoredRuleSet, store};

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
