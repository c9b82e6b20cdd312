//! HTTP handler for rule sets.

use std::collections::BTreeMap;

use axum::{Json, extract::State};
use scoring::{Margin, Multiplier, RuleSet};
use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;
use web::{ApiError, ErrorBody, Path, ids::RuleSetId};

use super::{
    rules::{StoredRuleSet, Values},
    service::RuleSets,
};
use crate::identity::sessions::CurrentUser;

#[derive(Serialize, ToSchema)]
pub(super) struct RuleSetResponse {
    data: RuleSetItem,
}

/// Values by which points are computed. A rule set never changes.
#[derive(Serialize, ToSchema)]
#[schema(as = RuleSet)]
pub(crate) struct RuleSetItem {
    id: RuleSetId,
    #[schema(example = "default")]
    slug: String,
    #[schema(example = "Default")]
    name: String,
    /// Points for the right outcome.
    #[schema(minimum = 0, maximum = 1000, example = 20)]
    outcome: i32,
    /// Points for the right difference, if a team won.
    #[schema(minimum = 0, maximum = 1000, example = 30)]
    difference: i32,
    /// Points for the exact score.
    #[schema(minimum = 0, maximum = 1000, example = 40)]
    exact: i32,
    /// Points for a difference that is almost right; null if only the right one earns points.
    #[schema(required)]
    margin: Option<Margin>,
    /// Greatest number of points that the confidence adds or takes.
    #[schema(minimum = 0, maximum = 1000, example = 20)]
    stake: i32,
    /// Points for the team that advances in a knockout match.
    #[schema(minimum = 0, maximum = 1000, example = 10)]
    advances: i32,
    /// Factor for all points of a match, by stage: 1, 1.5, 2 or 3.
    #[schema(value_type = BTreeMap<String, f64>, example = json!({"final": 2, "semi_final": 1.5}))]
    multiplier: BTreeMap<String, Multiplier>,
    /// Number of jokers that a user has in a tournament.
    #[schema(minimum = 0, maximum = 100, example = 0)]
    joker: i32,
    #[serde(with = "platform::timestamp")]
    #[schema(example = "2026-11-20T15:00:00.000Z")]
    created_at: OffsetDateTime,
}

impl From<StoredRuleSet> for RuleSetItem {
    fn from(StoredRuleSet { id, slug, name, values, created_at }: StoredRuleSet) -> Self {
        let Values { rules, multipliers, jokers } = values;
        let RuleSet { outcome, difference, exact, margin, stake, advances } = rules;
        Self {
            id,
            slug,
            name,
            outcome,
            difference,
            exact,
            margin,
            stake,
            advances,
            multiplier: multipliers,
            joker: jokers,
            created_at,
        }
    }
}

/// Show a rule set.
#[utoipa::path(get, path = "/api/auth/rule-sets/{id}", tag = "Events", security(("token" = [])),
    params(("id" = RuleSetId, Path, description = "Id of the rule set, as in `rule_set_id` of an event")),
    responses(
        (status = 200, body = RuleSetResponse),
        (status = 404, description = "The rule set does not exist", body = ErrorBody),
    ))]
pub(super) async fn get_rule_set(
    State(rule_sets): State<RuleSets>,
    _: CurrentUser,
    Path(id): Path<RuleSetId>,
) -> Result<Json<RuleSetResponse>, ApiError> {
    let found = rule_sets.find(id).await?.ok_or_else(|| ApiError::not_found("The rule set"))?;
    Ok(Json(RuleSetResponse { data: found.into() }))
}
