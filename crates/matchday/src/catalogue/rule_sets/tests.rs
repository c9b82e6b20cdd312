//! Rule sets through the router.

use serde_json::json;

use crate::testing::TestApp;

#[tokio::test]
async fn default_rule_set_has_its_documented_values() {
    TestApp::run(async |app| {
        let user = app.user().await;
        let mut found = user.get("/api/auth/rule-sets/1").await.expect(200)["data"].take();
        assert!(found["created_at"].take().is_string());
        let expected = json!({"id": 1, "slug": "default", "name": "Default", "outcome": 20, "difference": 30, "exact": 40,
            "margin": null, "stake": 20, "advances": 10, "multiplier": {}, "joker": 0, "created_at": null});
        assert_eq!(found, expected);
    })
    .await;
}

#[tokio::test]
async fn unknown_rule_set_is_not_found() {
    TestApp::run(async |app| {
        let user = app.user().await;
        for id in ["2", "0", "-1", "x"] {
            let answer = user.get(&format!("/api/auth/rule-sets/{id}")).await;
            assert_eq!(answer.expect(404)["code"], "not_found", "{id}");
        }
    })
    .await;
}
