//! Leagues through the router, on a real database.

use axum::body::Body;
use futures_util::future::join_all;
use http::{Request, header};
use serde_json::{Value, json};
use time::Duration;

use crate::testing::{Answer, TestApp, TestFixtures, TestUser};

/// A match this far ahead has not started by the clock of the database.
const FAR: Duration = Duration::days(365 * 75);

async fn tournament(app: &TestApp, fixtures: &TestFixtures<'_>) -> i64 {
    let event = fixtures.a_match("m").starting_in(FAR).put().await;
    tournament_of(app, event).await
}

async fn tournament_of(app: &TestApp, event: i64) -> i64 {
    sqlx::query_scalar("select tournament_id from events where id = $1")
        .bind(event)
        .fetch_one(&app.app.core.db)
        .await
        .expect("a tournament")
}

async fn create(user: &TestUser<'_>, tournament: i64, more: &Value) -> Value {
    let mut body = json!({"name": "Friends", "tournament_ids": [tournament]});
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    user.post("/api/auth/leagues", body).await.expect(201)["data"].take()
}

/// Sends a request with an idempotency key.
async fn post_with_key(app: &TestApp, user: &TestUser<'_>, path: &str, key: &str, body: &Value) -> Answer {
    let request = Request::post(path)
        .header(header::AUTHORIZATION, format!("Bearer {}", user.token))
        .header(header::CONTENT_TYPE, "application/json")
        .header("idempotency-key", key)
        .body(Body::from(body.to_string()));
    app.send(request.expect("a request")).await
}

async fn join(user: &TestUser<'_>, league: &Value) -> Answer {
    user.post("/api/auth/leagues/join", json!({"code": league["code"]})).await
}

fn path(league: &Value, rest: &str) -> String {
    format!("/api/auth/leagues/{}{rest}", league["id"])
}

#[tokio::test]
async fn code_is_stored_neither_plainly_nor_in_idempotency_keys() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let tournament = tournament(app, &fixtures).await;
        let user = app.user().await;
        let body = json!({"name": "Friends", "tournament_ids": [tournament]});
        let created = post_with_key(app, &user, "/api/auth/leagues", "first", &body).await.expect(201);
        let again = post_with_key(app, &user, "/api/auth/leagues", "first", &body).await.expect(201);
        assert_eq!(created["data"]["id"], again["data"]["id"], "a repeated request creates no second league");
        let code = created["data"]["code"].as_str().expect("a code");
        for table in ["leagues", "league_members", "idempotency_keys", "outbox"] {
            let query = format!("select coalesce(string_agg(t::text, ' '), '') from {table} t");
            let rows: String =
                sqlx::query_scalar(sqlx::AssertSqlSafe(query)).fetch_one(app.owner()).await.expect("read");
            assert!(!rows.contains(code) && !rows.contains(&hex::encode(code)), "{table} contains the code");
        }
        let other = app.user().await;
        let joined =
            post_with_key(app, &other, "/api/auth/leagues/join", "join", &json!({"code": code})).await.expect(200);
        let again =
            post_with_key(app, &other, "/api/auth/leagues/join", "join", &json!({"code": code})).await.expect(200);
        assert_eq!(joined["data"]["me"]["joined_at"], again["data"]["me"]["joined_at"]);
        assert_eq!(join(&other, &created["data"]).await.expect(409)["code"], "already_a_member");
        app.published().await;
    })
    .await;
}

/// Five hundred users race for a hundred places, through two processes.
#[tokio::test]
async fn racing_joins_fill_exactly_the_places() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let tournament = tournament(app, &fixtures).await;
        let owner = app.user().await;
        let league = create(&owner, tournament, &json!({"max_members": 100})).await;
        let code = super::service::InviteCode::read(league["code"].as_str().expect("a code")).expect("a code");
        let other = super::service::Leagues::new(&app.app.core, &app.app.config.codes.keys, &app.app.config.leagues);
        let mut users = Vec::new();
        for _ in 0..500 {
            users.push(app.app.accounts.make_without_phone().await.expect("a user"));
        }
        let joins = users.iter().enumerate().map(|(at, &user)| {
            let leagues = if at % 2 == 0 { &other } else { &app.app.leagues };
            let invitation = super::service::Invitation::Code(code.clone());
            async move { leagues.join(user, web::ClientNetwork::local(), &invitation, None).await }
        });
        let outcomes = join_all(joins).await;
        let full = |outcome: &&Result<_, _>| matches!(outcome, Err(super::service::LeagueError::Full));
        assert_eq!(
            (outcomes.iter().filter(|joined| joined.is_ok()).count(), outcomes.iter().filter(full).count()),
            (99, 401)
        );
        let members: i64 =
            sqlx::query_scalar("select count(*) from league_members").fetch_one(app.owner()).await.expect("counted");
        assert_eq!((members, &user_count(&owner, &league).await), (100, &json!(100)));
        app.published().await;
    })
    .await;
}

async fn user_count(user: &TestUser<'_>, league: &Value) -> Value {
    user.get(&path(league, "")).await.expect(200)["data"]["member_count"].take()
}

/// After any sequence of joins, leaves, removals, results, corrections and voids, the table equals the stored scores.
#[tokio::test]
async fn table_follows_members_and_results() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let entry = |key: &str, round: i16| fixtures.a_match(key).starting_in(FAR).with(json!({"round": round}));
        let (first, second) = (entry("a", 1).put().await, entry("b", 2).put().await);
        let tournament = tournament_of(app, first).await;
        let users = [app.user().await, app.user().await, app.user().await];
        let leagues = [
            create(&users[0], tournament, &json!({})).await,
            create(&users[0], tournament, &json!({"from_round": 2})).await,
            create(&users[0], tournament, &json!({"from": "2000-01-01T00:00:00Z"})).await,
        ];
        for league in &leagues {
            for user in &users[1..] {
                join(user, league).await.expect(200);
            }
        }
        for (user, scores) in users.iter().zip([[(2, 1), (1, 0)], [(1, 0), (2, 1)], [(5, 0), (0, 0)]]) {
            for (event, (home, away)) in [first, second].into_iter().zip(scores) {
                let pick = if home > away { "home" } else { "draw" };
                let body =
                    json!({"event_id": event, "prediction": pick, "score_prediction": {"home": home, "away": away}});
                user.post("/api/auth/predictions", body).await.expect(201);
            }
        }
        let points = async |league: &Value| -> Vec<(i64, i64)> {
            // Tables are kept for a second.
            tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
            let table = users[0].get(&path(league, "/table")).await.expect(200);
            let rows = table["data"]["rows"].as_array().expect("rows").clone();
            rows.iter()
                .map(|row| (row["user"]["id"].as_i64().expect("id"), row["points"].as_i64().expect("points")))
                .collect()
        };
        let id = |at: usize| users[at].id.0;
        entry("a", 1).at("finished", 2, 1).put().await;
        app.settle().await;
        assert_eq!(points(&leagues[0]).await, [(id(0), 40), (id(1), 30), (id(2), 20)]);
        assert_eq!(points(&leagues[1]).await, [(id(0), 0), (id(1), 0), (id(2), 0)]);
        entry("b", 2).at("finished", 2, 1).put().await;
        app.settle().await;
        assert_eq!(points(&leagues[0]).await, [(id(0), 70), (id(1), 70), (id(2), 20)]);
        assert_eq!(points(&leagues[1]).await, [(id(1), 40), (id(0), 30), (id(2), 0)]);
        assert_eq!(points(&leagues[2]).await, points(&leagues[0]).await, "summed from predictions");
        users[0].delete(&path(&leagues[0], &format!("/members/{}", users[1].id))).await.expect(200);
        users[2].post(&path(&leagues[0], "/leave"), json!({})).await.expect(200);
        entry("a", 1).being("abandoned").put().await;
        app.settle().await;
        assert_eq!(points(&leagues[0]).await, [(id(0), 30)]);
        assert_eq!(points(&leagues[2]).await, [(id(1), 40), (id(0), 30), (id(2), 0)]);
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn deleted_owner_is_followed_by_oldest_member() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let tournament = tournament(app, &fixtures).await;
        let (owner, first, second) = (app.user().await, app.user().await, app.user().await);
        let league = create(&owner, tournament, &json!({})).await;
        let alone = create(&owner, tournament, &json!({"name": "Alone"})).await;
        join(&first, &league).await.expect(200);
        join(&second, &league).await.expect(200);
        app.app.leagues.end_all(owner.id).await.expect("ended");
        let found = second.get(&path(&league, "")).await.expect(200)["data"].clone();
        assert_eq!((&found["owner"]["id"], &found["member_count"]), (&json!(first.id), &json!(2)));
        let left: Vec<i64> =
            sqlx::query_scalar("select id from leagues order by id").fetch_all(app.owner()).await.expect("read");
        assert_eq!(left, [league["id"].as_i64().expect("an id")], "a league without members is deleted");
        assert_eq!(owner.get(&path(&alone, "")).await.expect(404)["code"], "not_found");
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn limits_of_settings_hold() {
    let settings = [
        ("MATCHDAY_LEAGUES__MAX_MEMBERS", "50"),
        ("MATCHDAY_LEAGUES__EXACT_LIMIT", "10"),
        ("MATCHDAY_LEAGUES__PER_USER", "2"),
    ];
    TestApp::run_with(&settings, async |app| {
        let fixtures = app.fixtures();
        let tournament = tournament(app, &fixtures).await;
        let user = app.user().await;
        let body = |more: Value| {
            let mut body = json!({"name": "Friends", "tournament_ids": [tournament], "max_members": 10});
            body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            body
        };
        let refused = async |more: Value| user.post("/api/auth/leagues", body(more)).await.invalid_fields();
        assert_eq!(refused(json!({"max_members": 51})).await, ["max_members"]);
        assert_eq!(refused(json!({"max_members": 11, "counts_from": "joined"})).await, ["max_members"]);
        assert_eq!(refused(json!({"max_members": 11, "from": "2030-01-01T00:00:00Z"})).await, ["max_members"]);
        for _ in 0..2 {
            user.post("/api/auth/leagues", body(json!({}))).await.expect(201);
        }
        assert_eq!(user.post("/api/auth/leagues", body(json!({}))).await.expect(409)["code"], "too_many_leagues");
        let other = app.user().await;
        let league = create(&other, tournament, &json!({"max_members": 10})).await;
        assert_eq!(join(&user, &league).await.expect(409)["code"], "too_many_leagues");
        app.published().await;
    })
    .await;
}
