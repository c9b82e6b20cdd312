//! Tests of coins through the router, on a real database.

mod audit;
mod deduct;
mod document;
mod model;
mod operators;
mod payouts;
mod streaks;

use std::fmt::Debug;

use proptest::{strategy::Strategy, test_runner::Config, test_runner::TestRunner};
use serde_json::{Value, json};
use tokio::{runtime::Runtime, task::block_in_place};

use super::audit::Difference;
use crate::testing::{TestApp, TestUser};

/// Returns all inconsistencies that the audit finds.
async fn differences(app: &TestApp) -> Vec<Difference> {
    let mut found = Vec::new();
    let totals = app.app.coins.audit(|_, _| (), |difference| found.push(difference)).await.expect("audited");
    assert_eq!(totals.sum(), 0, "{totals:?}");
    found
}

async fn assert_clean(app: &TestApp) {
    assert_eq!(differences(app).await, []);
}

/// Checks many values on one app. A check has users and matches of its own.
fn check_cases<T: Debug>(
    settings: &[(&str, &str)],
    config: Config,
    values: impl Strategy<Value = T>,
    check: &impl AsyncFn(&TestApp, &T),
) {
    let runtime = Runtime::new().expect("a runtime");
    runtime.block_on(TestApp::run_with(settings, async |app| {
        let checked = block_in_place(|| {
            TestRunner::new(config).run(&values, |value| {
                runtime.block_on(check(app, &value));
                Ok(())
            })
        });
        if let Err(failure) = checked {
            panic!("{failure}");
        }
    }));
}

async fn balance(user: &TestUser<'_>) -> i64 {
    user.get("/api/auth/coins").await.expect(200)["data"]["balance"].as_i64().expect("a number")
}

fn deduction(amount: i64, reference: &str) -> Value {
    json!({"amount": amount, "reason": "purchase", "reference_id": reference})
}
