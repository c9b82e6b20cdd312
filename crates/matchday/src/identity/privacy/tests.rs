//! Privacy settings through the router, on a real database.

use http::Method;
use serde_json::{Value, json};

use crate::{
    identity::accounts::{self, service::NAME_CHANGED},
    testing::{Answer, TestApp, TestUser},
};

const PATH: &str = "/api/auth/me/privacy";

async fn put(user: &TestUser<'_>, body: Value) -> Answer {
    user.send(Method::PUT, PATH, Some(body.to_string())).await
}

#[tokio::test]
async fn named_settings_change_and_others_stay() {
    TestApp::run(async |app| {
        let user = app.user().await;
        let usual = json!({"name": "everyone", "teams": "everyone", "record": "everyone", "calibration": "nobody"});
        assert_eq!(user.get(PATH).await.expect(200), json!({"data": usual}));
        assert_eq!(put(&user, json!({})).await.expect(200)["data"], usual);
        let saved = put(&user, json!({"teams": "nobody", "unknown": 5})).await.expect(200);
        assert_eq!(saved["message"], "Your privacy settings were saved.");
        assert_eq!(saved["data"]["teams"], "nobody");
        let saved = put(&user, json!({"record": "following", "calibration": "everyone"})).await.expect(200);
        let expected = json!({"name": "everyone", "teams": "nobody", "record": "following", "calibration": "everyone"});
        assert_eq!(saved["data"], expected);
        assert_eq!(user.get(PATH).await.expect(200)["data"], expected);
        assert_eq!(app.user().await.get(PATH).await.expect(200)["data"], usual, "settings belong to one user");
    })
    .await;
}

#[tokio::test]
async fn faulty_settings_change_nothing() {
    TestApp::run(async |app| {
        let user = app.user().await;
        for field in ["name", "teams", "record", "calibration"] {
            for value in
                [json!(null), json!(""), json!("EVERYONE"), json!("followers"), json!(true), json!(1), json!([])]
            {
                assert_eq!(put(&user, json!({field: value})).await.invalid_fields(), [field], "{value}");
            }
        }
        assert_eq!(put(&user, json!({"name": "following"})).await.invalid_fields(), ["name"]);
        let several = json!({"name": null, "teams": "nobody", "record": "x"});
        assert_eq!(put(&user, several).await.invalid_fields(), ["name", "record"]);
        assert_eq!(user.get(PATH).await.expect(200)["data"]["teams"], "everyone");
        app.anonymous(Method::GET, PATH).await.expect(401);
        app.anonymous(Method::PUT, PATH).await.expect(401);
    })
    .await;
}

#[tokio::test]
async fn hidden_name_is_hidden_in_chat() {
    TestApp::run(async |app| {
        let user = app.user().await;
        user.post("/api/auth/update-user-info", json!({"name": "Ada"})).await.expect(200);
        app.published().await;
        let username = app.app.accounts.find(user.id).await.expect("read").expect("an account").username;
        let shown = async || {
            let mut connection = app.app.core.db.acquire().await.expect("a connection");
            let now = app.app.core.clock.now();
            let profiles = accounts::chat_profiles(&mut connection, &[username.as_str()], now).await.expect("read");
            profiles[username.as_str()].name.clone()
        };
        assert_eq!(shown().await.as_deref(), Some("Ada"));
        for (audience, expected) in [("nobody", None), ("nobody", None), ("everyone", Some("Ada"))] {
            put(&user, json!({"name": audience})).await.expect(200);
            assert_eq!(shown().await.as_deref(), expected, "{audience}");
        }
        let subjects: Vec<String> = app.published().await.into_iter().map(|(subject, _)| subject).collect();
        assert_eq!(subjects, [NAME_CHANGED; 2], "chat changes the display name only with the setting");
    })
    .await;
}
