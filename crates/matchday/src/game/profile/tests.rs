//! Profiles through the router, on a real database.

use http::Method;
use serde_json::{Value, json};
use time::Duration;
use web::ids::UserId;

use crate::{
    identity::{accounts::restrictions::Restriction, operators::Operator},
    testing::{TestApp, TestUser},
};

/// A match this far ahead has not started by the clock of the database.
const FAR: Duration = Duration::days(365 * 75);
const KEY: &str = "0123456789abcdef0123456789abcdef";

async fn profile(viewer: &TestUser<'_>, of: impl std::fmt::Display) -> Value {
    viewer.get(&format!("/api/auth/users/{of}")).await.expect(200)["data"].take()
}

async fn privacy(user: &TestUser<'_>, body: Value) {
    user.send(Method::PUT, "/api/auth/me/privacy", Some(body.to_string())).await.expect(200);
}

async fn follow(user: &TestUser<'_>, other: &TestUser<'_>) {
    user.send(Method::PUT, &format!("/api/auth/follows/{}", other.id), None).await.expect(200);
}

async fn username(user: &TestUser<'_>) -> String {
    user.get("/api/auth/me").await.expect(200)["data"]["username"].as_str().expect("a name").to_owned()
}

async fn set_name(app: &TestApp, user: UserId, name: &str) {
    sqlx::query("update users set name = $2, avatar_key = $3 where user_id = $1")
        .bind(user)
        .bind(name)
        .bind(KEY)
        .execute(&app.app.core.db)
        .await
        .expect("named");
}

async fn earn(app: &TestApp, user: UserId, scope: &str, points: i32) {
    sqlx::query(
        "insert into user_scores (user_id, scope, points, exact, correct, settled) values ($1, $2, $3, 1, 2, 3)",
    )
    .bind(user)
    .bind(scope)
    .bind(points)
    .execute(&app.app.core.db)
    .await
    .expect("a score");
}

#[tokio::test]
async fn profile_has_only_public_fields() {
    TestApp::run(async |app| {
        let (ada, _) = app.log_in("+14155550199").await;
        let ben = app.user().await;
        let name = username(&ada).await;
        let empty = json!({"predictions": 0, "settled": 0, "correct": 0, "exact": 0, "points": 0, "tournaments": []});
        let expected = json!({
            "id": ada.id, "username": name, "name": null, "avatar_url": null,
            "teams": {"primary": null, "other": []}, "record": empty, "calibration": null, "leagues": [],
            "followers_count": 0, "following_count": 0, "is_following": false, "follows_me": false,
        });
        assert_eq!(profile(&ben, ada.id).await, expected);
        for other in [name.clone(), name.to_uppercase()] {
            assert_eq!(profile(&ben, other).await, expected);
        }
        let own = profile(&ada, ada.id).await;
        assert_eq!(own["calibration"], json!({"count": 0, "average_confidence": null, "hit_rate": null}));
        assert_eq!(
            own.as_object().expect("an object").keys().collect::<Vec<_>>(),
            expected.as_object().expect("an object").keys().collect::<Vec<_>>()
        );
    })
    .await;
}

#[tokio::test]
async fn invisible_users_are_indistinguishable() {
    TestApp::run(async |app| {
        let (gone, _) = app.log_in("+14155550198").await;
        let (ada, banned, blocked, blocking) = (app.user().await, app.user().await, app.user().await, app.user().await);
        let replaced = username(&blocked).await;
        let mut names = vec![username(&gone).await, username(&banned).await, username(&blocking).await];
        app.app.moderation.restrict(banned.id, Restriction::Ban, &Operator::new("ola", "spam")).await.expect("done");
        ada.post(&format!("/api/auth/blocks/{}", blocked.id), json!({})).await.expect(200);
        blocking.post(&format!("/api/auth/blocks/{}", ada.id), json!({})).await.expect(200);
        gone.send(Method::POST, "/api/auth/me/deletion", None).await.expect(200);
        let code = app.codes("+14155550198").await.remove(0);
        gone.send(Method::DELETE, "/api/auth/me", Some(json!({"code": code}).to_string())).await.expect(200);
        names.extend([gone.id, banned.id, blocked.id, blocking.id].map(|id| id.to_string()));
        names.extend([replaced.clone(), format!("0{}", ada.id), format!("deleted-{}", gone.id)]);
        names.extend(["0", "-1", "nobody_here", "a", "@x", "a%20b", "a%00b"].map(str::to_owned));
        let unknown = ada.get("/api/auth/users/999999999").await.expect(404);
        assert_eq!((&unknown["code"], &unknown["message"]), (&json!("not_found"), &json!("The user was not found.")));
        for name in &names {
            assert_eq!(ada.get(&format!("/api/auth/users/{name}")).await.expect(404), unknown, "{name}");
        }
        assert_eq!(blocked.get(&format!("/api/auth/users/{}", ada.id)).await.expect(404), unknown);
        assert_eq!(profile(&ada, ada.id).await["id"], json!(ada.id));
        ada.delete(&format!("/api/auth/blocks/{}", blocked.id)).await.expect(200);
        assert_eq!(profile(&ada, &replaced).await["id"], json!(blocked.id));
        blocked.post("/api/auth/update-user-info", json!({"username": "another_name"})).await.expect(200);
        assert_eq!(ada.get(&format!("/api/auth/users/{replaced}")).await.expect(404), unknown, "a replaced username");
        assert_eq!(profile(&ada, "Another_Name").await["id"], json!(blocked.id));
        app.anonymous(Method::GET, "/api/auth/users/1").await.expect(401);
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn parts_are_shown_to_their_audience() {
    TestApp::run(async |app| {
        let (owner, followed, fan) = (app.user().await, app.user().await, app.user().await);
        set_name(app, owner.id, "Ada").await;
        follow(&owner, &followed).await;
        follow(&fan, &owner).await;
        for (audience, expected) in
            [("everyone", [true, true, true]), ("following", [false, true, true]), ("nobody", [false, false, true])]
        {
            for part in ["teams", "record", "calibration"] {
                privacy(&owner, json!({part: audience})).await;
                let mut shown = Vec::new();
                for viewer in [&fan, &followed, &owner] {
                    shown.push(!profile(viewer, owner.id).await[part].is_null());
                }
                assert_eq!(shown, expected, "{part} for {audience}");
            }
        }
        privacy(&owner, json!({"name": "nobody"})).await;
        let shown = profile(&followed, owner.id).await;
        assert_eq!((&shown["name"], &shown["username"]), (&Value::Null, &json!(username(&owner).await)));
        assert_eq!(shown["avatar_url"], format!("/api/avatars/{KEY}.jpg"));
        assert_eq!((&shown["is_following"], &shown["follows_me"]), (&json!(false), &json!(true)));
        assert_eq!((&shown["followers_count"], &shown["following_count"]), (&json!(1), &json!(1)));
        let own = profile(&owner, owner.id).await;
        assert_eq!(
            (&own["name"], &own["is_following"], &own["follows_me"]),
            (&json!("Ada"), &json!(false), &json!(false))
        );
        privacy(&owner, json!({"teams": "following"})).await;
        owner.delete(&format!("/api/auth/follows/{}", followed.id)).await.expect(200);
        assert_eq!(profile(&followed, owner.id).await["teams"], Value::Null);
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn profile_shows_record_teams_and_common_leagues() {
    TestApp::run(async |app| {
        let (ada, ben) = (app.user().await, app.user().await);
        let fixtures = app.fixtures();
        let event = fixtures.a_match("m").starting_in(FAR).put().await;
        let tournament: i64 = sqlx::query_scalar("select tournament_id from events where id = $1")
            .bind(event)
            .fetch_one(&app.app.core.db)
            .await
            .expect("a tournament");
        let body = json!({"event_id": event, "prediction": "home", "confidence": 50});
        ada.post("/api/auth/predictions", body).await.expect(201);
        earn(app, ada.id, "all", 12).await;
        earn(app, ada.id, "week:2026-47", 12).await;
        earn(app, ada.id, &format!("round:{tournament}:1"), 9).await;
        earn(app, ada.id, &format!("tournament:{tournament}"), 7).await;
        earn(app, ada.id, "tournament:999999", 7).await;
        let name = format!("Cup {}", fixtures.tag);
        let record = json!({
            "predictions": 1, "settled": 3, "correct": 2, "exact": 1, "points": 12,
            "tournaments": [{"tournament_id": tournament, "name": name, "settled": 3, "correct": 2, "exact": 1, "points": 7}],
        });
        assert_eq!(profile(&ben, ada.id).await["record"], record);

        let (home, away) = (fixtures.team_id("rovers").await, fixtures.team_id("city").await);
        ada.post("/api/auth/teams/primary", json!({"team_id": home})).await.expect(200);
        ada.post("/api/auth/teams/other", json!({"team_ids": [away]})).await.expect(200);
        let teams = profile(&ben, ada.id).await["teams"].clone();
        assert_eq!(teams, ada.get("/api/auth/me").await.expect(200)["data"]["teams"]);
        assert_eq!(teams["primary"]["id"], json!(home));

        let mut leagues = Vec::new();
        for name in ["One", "Two", "Three"] {
            let body = json!({"name": name, "tournament_ids": [tournament]});
            leagues.push(ada.post("/api/auth/leagues", body).await.expect(201)["data"].take());
        }
        for league in &leagues[..2] {
            ben.post("/api/auth/leagues/join", json!({"code": league["code"]})).await.expect(200);
        }
        let common = json!([{"id": leagues[1]["id"], "name": "Two"}, {"id": leagues[0]["id"], "name": "One"}]);
        assert_eq!(profile(&ben, ada.id).await["leagues"], common);
        assert_eq!(profile(&ada, ben.id).await["leagues"], common);
        assert_eq!(profile(&ada, ada.id).await["leagues"].as_array().map(Vec::len), Some(3));
        app.published().await;
    })
    .await;
}

/// Every list that shows a user shows the avatar, and the name only if it is public or the viewer's own.
#[tokio::test]
async fn hidden_name_is_hidden_in_every_list() {
    TestApp::run(async |app| {
        let (owner, viewer) = (app.user().await, app.user().await);
        let event = app.fixtures().a_match("m").starting_in(FAR).with(json!({"round": 1})).put().await;
        let tournament: i64 = sqlx::query_scalar("select tournament_id from events where id = $1")
            .bind(event)
            .fetch_one(&app.app.core.db)
            .await
            .expect("a tournament");
        set_name(app, owner.id, "Ada").await;
        let body = json!({"event_id": event, "prediction": "home", "confidence": 50});
        owner.post("/api/auth/predictions", body).await.expect(201);
        for scope in ["all".to_owned(), format!("tournament:{tournament}")] {
            earn(app, owner.id, &scope, 10).await;
            earn(app, viewer.id, &scope, 5).await;
        }
        // First, because tables of leagues are kept for a second.
        privacy(&owner, json!({"name": "nobody"})).await;
        let league = json!({"name": "Friends", "tournament_ids": [tournament]});
        let league = owner.post("/api/auth/leagues", league).await.expect(201)["data"].take();
        viewer.post("/api/auth/leagues/join", json!({"code": league["code"]})).await.expect(200);
        follow(&viewer, &owner).await;
        follow(&owner, &viewer).await;
        let lists = [
            ("/api/auth/leaderboards".to_owned(), "/data/top/0/user"),
            ("/api/auth/leaderboards".to_owned(), "/data/neighbours/0/user"),
            ("/api/auth/leaderboards?among=following".to_owned(), "/data/top/0/user"),
            (format!("/api/auth/events/{event}/predictions"), "/data/0/user"),
            (format!("/api/auth/leagues/{}/table", league["id"]), "/data/rows/0/user"),
            (format!("/api/auth/leagues/{}/table", league["id"]), "/data/neighbours/0/user"),
            (format!("/api/auth/leagues/{}", league["id"]), "/data/owner"),
        ];
        let of_viewer =
            [("/api/auth/follows".to_owned(), "/data/0/user"), ("/api/auth/followers".to_owned(), "/data/0/user")];
        let found = async |reader: &TestUser<'_>, path: &str, pointer: &str| {
            let body = reader.get(path).await.expect(200);
            body.pointer(pointer).unwrap_or_else(|| panic!("no {pointer} in {body}")).clone()
        };
        for (path, pointer) in lists.iter().chain(&of_viewer) {
            let user = found(&viewer, path, pointer).await;
            assert_eq!((&user["id"], &user["name"]), (&json!(owner.id), &Value::Null), "{path} {pointer}");
            if pointer.ends_with("user") {
                assert_eq!(user["avatar_url"], format!("/api/avatars/{KEY}.jpg"), "{path} {pointer}");
            } else {
                assert_eq!(user.as_object().map(serde_json::Map::len), Some(3), "owners keep their three fields");
            }
        }
        for (path, pointer) in &lists {
            assert_eq!(found(&owner, path, pointer).await["name"], "Ada", "{path} {pointer}");
        }
        let me = owner.get("/api/auth/me").await.expect(200);
        assert_eq!(
            (&me["data"]["name"], &me["data"]["avatar_url"]),
            (&json!("Ada"), &json!(format!("/api/avatars/{KEY}.jpg")))
        );
        privacy(&owner, json!({"name": "everyone"})).await;
        for (path, pointer) in of_viewer.iter().chain(&lists[3..4]) {
            assert_eq!(found(&viewer, path, pointer).await["name"], "Ada", "{path}");
        }
        app.published().await;
    })
    .await;
}
