//! SQL queries for rule sets.

use std::collections::BTreeMap;

use scoring::Multiplier;
use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;
use web::ids::RuleSetId;

use super::{
    columns::{read_multiplier, read_rules},
    rules::{NewRuleSet, StoredRuleSet, Values},
};

struct Row {
    id: RuleSetId,
    slug: String,
    name: String,
    outcome: i32,
    difference: i32,
    exact: i32,
    margin_within: Option<i32>,
    margin_points: Option<i32>,
    stake: i32,
    advances: i32,
    multipliers: serde_json::Value,
    jokers: i32,
    created_at: OffsetDateTime,
}

impl TryFrom<Row> for StoredRuleSet {
    type Error = sqlx::Error;

    fn try_from(row: Row) -> Result<Self, sqlx::Error> {
        let values = [row.outcome, row.difference, row.exact, row.stake, row.advances];
        Ok(Self {
            id: row.id,
            slug: row.slug,
            name: row.name,
            values: Values {
                rules: read_rules(values, row.margin_within.zip(row.margin_points))?,
                multipliers: read_multipliers(row.multipliers)?,
                jokers: row.jokers,
            },
            created_at: row.created_at,
        })
    }
}

fn read_multipliers(stored: serde_json::Value) -> sqlx::Result<BTreeMap<String, Multiplier>> {
    let halves: BTreeMap<String, i16> =
        serde_json::from_value(stored).map_err(|error| sqlx::Error::Decode(error.into()))?;
    halves.into_iter().map(|(stage, halves)| Ok((stage, read_multiplier(halves)?))).collect()
}

pub(super) async fn find(executor: impl PgExecutor<'_>, id: RuleSetId) -> sqlx::Result<Option<StoredRuleSet>> {
    let row = sqlx::query_as!(
        Row,
        r#"select id as "id: RuleSetId", slug, name, outcome, difference, exact, margin_within, margin_points, stake,
                  advances, multipliers, jokers, created_at
           from rule_sets where id = $1"#,
        id.0,
    )
    .fetch_optional(executor)
    .await?;
    row.map(StoredRuleSet::try_from).transpose()
}

/// Returns all rule sets, oldest first. There are few: they are written by hand.
pub(super) async fn all(executor: impl PgExecutor<'_>) -> sqlx::Result<Vec<StoredRuleSet>> {
    let rows = sqlx::query_as!(
        Row,
        r#"select id as "id: RuleSetId", slug, name, outcome, difference, exact, margin_within, margin_points, stake,
                  advances, multipliers, jokers, created_at
           from rule_sets order by id"#,
    )
    .fetch_all(executor)
    .await?;
    rows.into_iter().map(StoredRuleSet::try_from).collect()
}

/// Stores a rule set.
pub(super) async fn insert(
    connection: &mut PgConnection,
    new: &NewRuleSet,
    now: OffsetDateTime,
) -> sqlx::Result<RuleSetId> {
    let Values { rules, multipliers, jokers } = &new.values;
    let halves: BTreeMap<&str, i16> =
        multipliers.iter().map(|(stage, multiplier)| (stage.as_str(), multiplier.halves())).collect();
    sqlx::query_scalar!(
        r#"insert into rule_sets (slug, name, outcome, difference, exact, margin_within, margin_points, stake, advances,
                                  multipliers, jokers, created_at)
           values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
           returning id as "id: RuleSetId""#,
        new.slug,
        new.name,
        rules.outcome,
        rules.difference,
        rules.exact,
        rules.margin.map(|margin| margin.within),
        rules.margin.map(|margin| margin.points),
        rules.stake,
        rules.advances,
        serde_json::json!(halves),
        jokers,
        now,
    )
    .fetch_one(connection)
    .await
}
