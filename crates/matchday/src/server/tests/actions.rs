//! Users, rooms, webhooks and leagues.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::backend;
use crate::{identity::server_keys::scopes::Scope, testing::TestApp};

#[tokio::test]
async fn user_is_found_by_id_name_and_phone() {
    TestApp::run(async |app| {
        let support = backend(app, &[Scope::UsersRead]).await;
        let (user, data) = app.log_in("+14155550123").await;
        let found = support.get(&format!("/users/{}", user.id)).await.expect(200)["data"].clone();
        let fields: BTreeSet<&str> = found.as_object().expect("an object").keys().map(String::as_str).collect();
        assert_eq!(
            Vec::from_iter(fields),
            ["created_at", "id", "name", "restrictions", "username"],
            "no phone, email or birthday"
        );
        assert_eq!((&found["id"], &found["username"]), (&json!(user.id), &data["user"]["username"]));
        let name = found["username"].as_str().expect("a name");
        assert_eq!(support.get(&format!("/users/{name}")).await.expect(200)["data"], found);
        let phone = json!({"phone": "+1 415 555 0123"});
        assert_eq!(support.post("/users/lookup", &phone).await.expect(200)["data"], found);
        support.post("/users/lookup", &json!({"phone": "+14155550124"})).await.expect(404);
        assert_eq!(support.post("/users/lookup", &json!({"phone": "call me"})).await.invalid_fields(), ["phone"]);
        support.get("/users/0").await.expect(404);
    })
    .await;
}

#[tokio::test]
async fn ban_is_replaced_and_ends_by_itself() {
    TestApp::run(async |app| {
        let support = backend(app, &[Scope::UsersRead, Scope::UsersWrite]).await;
        let user = app.user().await;
        let path = format!("/users/{}/restrictions/ban", user.id);
        let until = "2026-11-20T15:00:06.000Z";
        let banned = support.put(&path, &json!({"reason": "Threats", "until": until})).await.expect(200);
        let first =
            json!({"kind": "ban", "reason": "Threats", "until": until, "created_at": "2026-11-20T15:00:00.000Z"});
        assert_eq!(banned["data"]["restrictions"], json!([first]));
        assert_eq!(user.get("/api/auth/me").await.expect(403)["code"], "account_suspended");
        let again = support.put(&path, &json!({"reason": "More threats", "until": until})).await.expect(200);
        assert_eq!(again["data"]["restrictions"][0]["reason"], "More threats");
        app.clock.advance(time::Duration::seconds(6));
        user.get("/api/auth/me").await.expect(200);
        let shown = support.get(&format!("/users/{}", user.id)).await.expect(200);
        assert_eq!(shown["data"]["restrictions"], json!([]));
        assert_eq!(support.put(&path, &json!({"reason": "x", "until": until})).await.invalid_fields(), ["until"]);
        assert_eq!(support.put(&path, &json!({"reason": ""})).await.invalid_fields(), ["reason"]);
        assert_eq!(support.actions().await, ["user.ban", "user.ban"]);
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn lifting_an_absent_mute_changes_nothing() {
    TestApp::run(async |app| {
        let support = backend(app, &[Scope::UsersWrite]).await;
        let user = app.user().await;
        let path = format!("/users/{}/restrictions/mute", user.id);
        support.put(&path, &json!({"reason": "Spam"})).await.expect(200);
        for _ in 0..2 {
            let lifted = support.delete(&path, &json!({"reason": "Sorry"})).await.expect(200);
            assert_eq!(lifted["data"]["restrictions"], json!([]));
        }
        assert_eq!(support.actions().await, ["user.mute", "user.unmute"]);
        support.put(&format!("/users/{}/restrictions/exile", user.id), &json!({"reason": "x"})).await.expect(404);
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn ended_sessions_are_refused() {
    TestApp::run(async |app| {
        let support = backend(app, &[Scope::UsersWrite]).await;
        let user = app.user().await;
        let second = app.login(user.id).await;
        user.get("/api/auth/me").await.expect(200);
        let path = format!("/users/{}/sessions", user.id);
        assert_eq!(support.delete(&path, &json!({})).await.invalid_fields(), ["reason"]);
        let ended = support.delete(&path, &json!({"reason": "Stolen phone"})).await.expect(200);
        assert_eq!(ended["data"]["ended"], 2);
        user.get("/api/auth/me").await.expect(401);
        second.get("/api/auth/me").await.expect(401);
        assert_eq!(support.delete(&path, &json!({"reason": "Again"})).await.expect(200)["data"]["ended"], 0);
        assert_eq!(support.actions().await, ["user.end_sessions"]);
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn webhook_is_added_with_the_secret_of_the_caller() {
    let keys = "1:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    TestApp::run_with(&[("MATCHDAY_WEBHOOKS__KEYS", keys)], async |app| {
        let tool = backend(app, &[Scope::WebhooksWrite]).await;
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let body = json!({"url": "https://shop.example.org/hook", "types": ["event.result"], "secret": secret});
        let added = tool.post_as("k", "/webhooks", &body).await;
        assert!(!String::from_utf8_lossy(&added.bytes).contains(secret));
        let added = added.expect(201);
        assert_eq!(tool.post_as("k", "/webhooks", &body).await.expect(201), added);
        assert_eq!(tool.get("/webhooks").await.expect(200)["data"], json!([added["data"]]));
        let faults = json!({"url": "shop", "types": ["nothing"], "secret": "whsec_"});
        assert_eq!(tool.post("/webhooks", &faults).await.invalid_fields(), ["secret", "types", "url"]);
        let path = format!("/webhooks/{}", added["data"]["id"]);
        tool.delete(&path, &Value::Null).await.expect(200);
        tool.delete(&path, &Value::Null).await.expect(404);
        assert_eq!(tool.actions().await, ["webhook.add", "webhook.remove"]);
        let target = format!("webhook:{}", added["data"]["id"]);
        assert!(tool.audit().await.iter().all(|action| action.target == target));
    })
    .await;
}

#[tokio::test]
async fn webhooks_without_keys_are_not_configured() {
    TestApp::run_with(&[("MATCHDAY_WEBHOOKS__KEYS", "")], async |app| {
        let tool = backend(app, &[Scope::WebhooksWrite]).await;
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let body = json!({"url": "https://shop.example.org/hook", "secret": secret});
        assert_eq!(tool.post("/webhooks", &body).await.expect(503)["code"], "not_configured");
        assert_eq!(tool.actions().await, [""; 0]);
    })
    .await;
}

#[tokio::test]
async fn removed_league_member_cannot_return() {
    TestApp::run(async |app| {
        let tool = backend(app, &[Scope::LeaguesWrite]).await;
        let (owner, member) = (app.user().await, app.user().await);
        let event = app.fixtures().a_match("m").starting_in(time::Duration::days(365 * 75)).put().await;
        let tournament: i64 = sqlx::query_scalar("select tournament_id from events where id = $1")
            .bind(event)
            .fetch_one(app.owner())
            .await
            .expect("a tournament");
        let wish = json!({"name": "Office", "tournament_ids": [tournament]});
        let created = owner.post("/api/auth/leagues", wish).await.expect(201);
        let league = &created["data"]["id"];
        let join = json!({"code": created["data"]["code"]});
        member.post("/api/auth/leagues/join", join.clone()).await.expect(200);
        let path = |user: &dyn std::fmt::Display| format!("/leagues/{league}/members/{user}");
        assert_eq!(tool.delete(&path(&member.id), &json!({})).await.invalid_fields(), ["reason"]);
        tool.delete(&path(&member.id), &json!({"reason": "Abuse"})).await.expect(200);
        tool.delete(&path(&member.id), &json!({"reason": "Abuse"})).await.expect(404);
        member.post("/api/auth/leagues/join", join).await.expect(403);
        let [recorded] = <[_; 1]>::try_from(tool.audit().await).expect("one entry");
        assert_eq!((recorded.target, recorded.reason.as_str()), (format!("league:{league}"), "Abuse"));
        app.published().await;
    })
    .await;
}
