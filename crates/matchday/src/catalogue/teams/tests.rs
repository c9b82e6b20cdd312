use http::Method;
use serde_json::{Value, json};

use crate::testing::TestApp;

#[tokio::test]
async fn team_list_shows_fields_and_paginates() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        fixtures.import_teams().await;
        let user = app.user().await;
        let tag = &fixtures.tag;
        let body = user.get(&format!("/api/auth/teams?search={tag}&per_page=3")).await.expect(200);
        assert_eq!(body["meta"], json!({"current_page": 1, "last_page": 2, "per_page": 3, "total": 4}));
        let sport = body["data"][0]["sport_id"].clone();
        assert_eq!(
            body["data"][0],
            json!({
                "id": fixtures.team_id("albion").await, "name": format!("Albion {tag}"), "slug": fixtures.slug("albion"),
                "sport_id": sport, "sport": {"id": sport, "name": "Football", "slug": "football"},
                "logo": "https://cdn.example.org/albion.png", "country": "Testland", "founded": 1902,
            }),
            "by name"
        );
        let names = |body: &Value| -> Vec<String> {
            body["data"].as_array().expect("a list").iter().map(|team| team["name"].to_string()).collect()
        };
        let second = user.get(&format!("/api/auth/teams?search={tag}&per_page=3&page=2")).await.expect(200);
        assert_eq!(names(&second).len(), 1);
        assert!(!names(&body).contains(&names(&second)[0]));
        let beyond = user.get(&format!("/api/auth/teams?search={tag}&per_page=3&page=9")).await.expect(200);
        assert_eq!(beyond, json!({"data": [], "meta": {"current_page": 9, "last_page": 2, "per_page": 3, "total": 4}}));
    })
    .await;
}

#[tokio::test]
async fn page_size_defaults_to_20_and_is_capped_at_100() {
    TestApp::run(async |app| {
        let user = app.user().await;
        assert_eq!(user.get("/api/auth/teams").await.expect(200)["meta"]["per_page"], 20);
        assert_eq!(user.get("/api/auth/teams?per_page=1000").await.expect(200)["meta"]["per_page"], 100);
    })
    .await;
}

#[tokio::test]
async fn search_ignores_case_and_escapes_wildcards() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        fixtures.import_teams().await;
        let user = app.user().await;
        let total = async |search: &str| {
            user.get(&format!("/api/auth/teams?search={search}")).await.expect(200)["meta"]["total"].as_i64()
        };
        assert_eq!(total(&format!("ROVERS%20{}", fixtures.tag.to_uppercase())).await, Some(1));
        assert_eq!(total(&format!("%25{}", fixtures.tag)).await, Some(0));
        assert_eq!(total("rover_").await, Some(0));
        assert_eq!(total("%5C").await, Some(0));
        assert_eq!(total("").await, Some(4));
        let greek = "update teams set name = '\u{391}\u{3a1}\u{397}\u{3a3} Thessaloniki' where slug = $1";
        sqlx::query(greek).bind(fixtures.slug("albion")).execute(&app.app.core.db).await.expect("renamed");
        assert_eq!(total("%CE%B1%CF%81%CE%B7%CF%83").await, Some(1), "the final sigma matches too");
        assert_eq!(total("%CE%91%CE%A1%CE%97%CE%A3").await, Some(1));
    })
    .await;
}

#[tokio::test]
async fn teams_are_filtered_by_sport() {
    TestApp::run(async |app| {
        app.fixtures().import_teams().await;
        let user = app.user().await;
        let sport = user.get("/api/auth/teams").await.expect(200)["data"][0]["sport_id"].as_i64().expect("an id");
        assert_eq!(user.get(&format!("/api/auth/teams?sport_id={sport}")).await.expect(200)["meta"]["total"], 4);
        assert_eq!(
            user.get(&format!("/api/auth/teams?sport_id={}", sport + 1_000_000)).await.expect(200)["data"],
            json!([])
        );
    })
    .await;
}

#[tokio::test]
async fn invalid_query_reports_every_field() {
    TestApp::run(async |app| {
        let user = app.user().await;
        for (query, field) in [
            ("page=0", "page"),
            ("page=x", "page"),
            ("per_page=0", "per_page"),
            ("per_page=x", "per_page"),
            ("sport_id=x", "sport_id"),
            ("search=%00", "search"),
        ] {
            assert_eq!(user.get(&format!("/api/auth/teams?{query}")).await.invalid_fields(), [field], "{query}");
        }
        let all = user.get("/api/auth/teams?page=x&per_page=0&sport_id=y").await.invalid_fields();
        assert_eq!(all, ["page", "per_page", "sport_id"]);
    })
    .await;
}

#[tokio::test]
async fn primary_team_is_saved() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        fixtures.import_teams().await;
        let user = app.user().await;
        for team in ["rovers", "city"] {
            let id = fixtures.team_id(team).await;
            let body = user.post("/api/auth/teams/primary", json!({"team_id": id})).await.expect(200);
            assert!(body["message"].is_string());
            assert_eq!(body["data"]["team"]["id"], id);
            assert_eq!(body["data"]["team"].as_object().expect("a team").len(), 3, "id, name and logo");
        }
        let saved: Vec<i64> = sqlx::query_scalar("select team_id from user_teams where user_id = $1 and rank = 0")
            .bind(user.id)
            .fetch_all(&app.app.core.db)
            .await
            .expect("read");
        assert_eq!(saved, [fixtures.team_id("city").await], "the last choice replaces the first");
    })
    .await;
}

#[tokio::test]
async fn primary_team_must_be_existing_id() {
    TestApp::run(async |app| {
        let user = app.user().await;
        user.post("/api/auth/teams/primary", json!({"team_id": 2_147_483_647})).await.expect(404);
        for bad in [
            json!({}),
            json!({"team_id": "x"}),
            json!({"team_id": null}),
            json!({"team_id": -1}),
            json!({"team_id": 0}),
            json!({"team_id": 1.5}),
            json!({"team_id": true}),
        ] {
            assert_eq!(user.post("/api/auth/teams/primary", bad.clone()).await.invalid_fields(), ["team_id"], "{bad}");
        }
        assert_eq!(user.post("/api/auth/teams/primary", json!([1])).await.invalid_fields(), ["body"]);
        let broken = user.send(Method::POST, "/api/auth/teams/primary", Some("{\"team_id\": ".to_owned())).await;
        assert_eq!(broken.expect(400)["code"], "malformed_json");
        let empty = user.send(Method::POST, "/api/auth/teams/primary", None).await;
        assert_eq!(empty.expect(400)["code"], "malformed_json");
    })
    .await;
}

#[tokio::test]
async fn other_teams_are_replaced_and_keep_order() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        fixtures.import_teams().await;
        let user = app.user().await;
        let (a, b, c) =
            (fixtures.team_id("rovers").await, fixtures.team_id("city").await, fixtures.team_id("albion").await);
        let save = async |ids: Value| {
            let body = user.post("/api/auth/teams/other", json!({"team_ids": ids})).await.expect(200);
            let teams = body["data"]["teams"].as_array().expect("teams").clone();
            teams.iter().map(|team| team["id"].as_i64().expect("an id")).collect::<Vec<_>>()
        };
        assert_eq!(save(json!([b, a])).await, [b, a]);
        assert_eq!(save(json!([c])).await, [c]);
        assert_eq!(save(json!([])).await, Vec::<i64>::new());
    })
    .await;
}

#[tokio::test]
async fn refuses_invalid_selection_of_other_teams() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        fixtures.import_teams().await;
        let user = app.user().await;
        let known = fixtures.team_id("rovers").await;
        user.post("/api/auth/teams/other", json!({"team_ids": [known]})).await.expect(200);
        for bad in [
            json!([1, 2, 3, 4, 5, 6]),
            json!([known, 2_147_483_647]),
            json!([known, known]),
            json!("x"),
            json!(["x"]),
            json!(null),
            json!([0]),
        ] {
            assert_eq!(
                user.post("/api/auth/teams/other", json!({"team_ids": bad})).await.invalid_fields(),
                ["team_ids"],
                "{bad}"
            );
        }
        let kept: i64 = sqlx::query_scalar("select count(*) from user_teams where user_id = $1")
            .bind(user.id)
            .fetch_one(&app.app.core.db)
            .await
            .expect("read");
        assert_eq!(kept, 1, "a refused selection changes nothing");
    })
    .await;
}

#[tokio::test]
async fn concurrent_selections_store_exactly_one() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        fixtures.import_teams().await;
        let user = app.user().await;
        let (a, b, c) =
            (fixtures.team_id("rovers").await, fixtures.team_id("city").await, fixtures.team_id("albion").await);
        let selections = [vec![a, b], vec![c], vec![b, c, a], vec![]];
        let racing = (0..24).map(|n| user.post("/api/auth/teams/other", json!({"team_ids": selections[n % 4]})));
        for answer in futures_util::future::join_all(racing).await {
            answer.expect(200);
        }
        let saved: Vec<i64> = sqlx::query_scalar("select team_id from user_teams where user_id = $1 order by rank")
            .bind(user.id)
            .fetch_all(&app.app.core.db)
            .await
            .expect("read");
        assert!(selections.contains(&saved), "{saved:?}");
    })
    .await;
}
