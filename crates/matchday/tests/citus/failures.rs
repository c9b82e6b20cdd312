//! A worker that crashes: users on the other shards go on, and nothing acknowledged is lost after its return.

use std::process::Command;

use matchday::testing::{TestApp, TestUser, cluster_is_available, eventually};
use serde_json::json;
use time::Duration;

const PREDICTIONS: &str = "/api/auth/predictions";

/// Runs a command of `dev/citus` for the second worker.
fn second_worker(command: &str) {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs the tests");
    let script = std::path::Path::new(&package).join("../../dev/citus");
    assert!(Command::new(script).args([command, "worker2"]).status().expect("dev/citus").success());
}

/// Port of the node with the rows of a user.
async fn node_of(app: &TestApp, user: &TestUser<'_>) -> i32 {
    let node = "select nodeport from citus_shards where table_name = 'users'::regclass
                and shardid = get_shard_id_for_distribution_column('users', $1)";
    sqlx::query_scalar(node).bind(user.id.0).fetch_one(app.owner()).await.expect("a node")
}

async fn predict(user: &TestUser<'_>, event: i64, confidence: i64) -> u16 {
    let body = json!({"event_id": event, "prediction": "home", "confidence": confidence});
    user.post(PREDICTIONS, body).await.status.as_u16()
}

#[tokio::test]
#[ignore = "stops a node that other tests use; just citus runs it alone"]
async fn worker_failure_affects_only_its_users_and_loses_nothing() {
    if !cluster_is_available() {
        return;
    }
    TestApp::run_with(&[], async |app| {
        let event = app.fixtures().a_match("m").starting_in(Duration::days(365 * 70)).put().await;
        let second = std::env::var("MATCHDAY_TEST_CITUS_WORKERS").ok();
        let second: i32 = second.and_then(|ports| ports.split(',').nth(1)?.parse().ok()).expect("two workers");
        let (mut there, mut elsewhere) = (Vec::new(), Vec::new());
        for _ in 0..16 {
            let user = app.user().await;
            assert_eq!(predict(&user, event, 10).await, 201);
            let group = if node_of(app, &user).await == second { &mut there } else { &mut elsewhere };
            group.push(user);
        }
        assert!(there.len() > 2 && elsewhere.len() > 2);

        second_worker("crash");
        for user in &elsewhere {
            assert_eq!(predict(user, event, 20).await, 200);
        }
        for user in &there {
            assert_eq!(predict(user, event, 20).await, 503);
        }
        second_worker("start");
        eventually("users of the worker can predict again", async || predict(&there[0], event, 30).await == 200).await;

        for (users, expected) in [(&elsewhere[..], 20), (&there[1..], 10), (&there[..1], 30)] {
            for user in users {
                let own = user.get(PREDICTIONS).await.expect(200);
                assert_eq!(own["data"][0]["confidence"], expected);
            }
        }
        app.published().await;
    })
    .await;
}
