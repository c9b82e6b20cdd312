//! Leagues through the router, on a real database.

use axum::{body::Body, response::IntoResponse as _};
use futures_util::future::join_all;
use http::{Request, header};
use serde_json::{Value, json};
use time::Duration;
use web::{
    ClientNetwork,
    fields::FromJson as _,
    ids::{LeagueId, TournamentId, UserId},
    paging::Paging,
};

use super::{
    ranks::Wanted,
    service::{
        CountsFrom, Invitation, LeagueError, LeagueName, LeagueView, Leagues, TablePage, TableView, Visibility, Wish,
    },
};
use crate::testing::{Answer, TestApp, TestFixtures, TestUser, eventually, redis_for_tests, unreachable_redis};

/// A match this far ahead has not started by the clock of the database.
pub(super) const FAR: Duration = Duration::days(365 * 75);

async fn tournament(app: &TestApp, fixtures: &TestFixtures<'_>) -> i64 {
    let event = fixtures.a_match("m").starting_in(FAR).put().await;
    tournament_of(app, event).await
}

pub(super) async fn tournament_of(app: &TestApp, event: i64) -> i64 {
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
        let different = json!({"name": "Rivals", "tournament_ids": [tournament]});
        let refused = post_with_key(app, &user, "/api/auth/leagues", "first", &different).await.expect(422);
        assert_eq!(refused["code"], "idempotency_key_reused");
        let again = post_with_key(app, &user, "/api/auth/leagues", "first", &body).await.expect(201);
        assert_eq!(created["data"]["id"], again["data"]["id"], "a refused request does not take the key over");
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
        let second = create(&user, tournament, &json!({})).await;
        let different = json!({"code": second["code"]});
        let refused = post_with_key(app, &other, "/api/auth/leagues/join", "join", &different).await.expect(422);
        assert_eq!(refused["code"], "idempotency_key_reused");
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
        let second = app.second(app.app.config.clone()).await;
        let other = &second.app.leagues;
        let mut users = Vec::new();
        for _ in 0..500 {
            users.push(app.app.accounts.make_without_phone().await.expect("a user"));
        }
        let joins = users.iter().enumerate().map(|(at, &user)| {
            let leagues = if at % 2 == 0 { other } else { &app.app.leagues };
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

#[tokio::test]
async fn rotated_code_is_refused_by_every_process() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let tournament = tournament(app, &fixtures).await;
        let second = app.second(app.app.config.clone()).await;
        let owner = app.user().await;
        let league = create(&owner, tournament, &json!({})).await;
        // Both processes have found the league by its code.
        join(&app.user().await, &league).await.expect(200);
        join(&second.user().await, &league).await.expect(200);
        let rotated = owner.post(&path(&league, "/code"), json!({})).await.expect(200)["data"].take();
        for process in [app, &second] {
            let user = process.user().await;
            assert_eq!(join(&user, &league).await.expect(404)["code"], "not_found");
            join(&user, &rotated).await.expect(200);
        }
        app.published().await;
    })
    .await;
}

/// Lets the table of a league with more than ten places be a large one.
pub(super) const LARGE: [(&str, &str); 2] =
    [("MATCHDAY_LEAGUES__LARGE_FROM", "10"), ("MATCHDAY_LEAGUES__MAX_MEMBERS", "1000000")];

/// Returns the service of another process, without tables in its memory and in Redis.
pub(super) fn without_tables(app: &TestApp) -> Leagues {
    let (redis, prefix) = redis_for_tests();
    Leagues::new(&app.app.core, redis, &prefix, &app.app.config.codes.keys, &app.app.config.leagues)
}

/// Walks a table in pages of three, as seen by a user.
async fn walk(leagues: &Leagues, user: UserId, league: LeagueId, round: Option<i16>) -> Vec<TableView> {
    let (mut pages, mut after) = (Vec::new(), None);
    loop {
        let page = TablePage { round, after, limit: 3 };
        let page = leagues.table(&leagues.primary_reader(), user, league, page).await.expect("a table");
        after = page.next;
        pages.push(page);
        if after.is_none() {
            return pages;
        }
    }
}

fn id_of(league: &Value) -> LeagueId {
    LeagueId(league["id"].as_i64().expect("an id"))
}

/// A small and a large league with the same members.
async fn pair(users: &[TestUser<'_>], tournament: i64, more: &Value) -> [Value; 2] {
    let mut leagues = Vec::new();
    for most in [10, 1_000_000] {
        let mut fields = json!({"max_members": most, "visibility": "public"});
        fields.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let league = create(&users[0], tournament, &fields).await;
        for user in &users[1..] {
            join(user, &league).await.expect(200);
        }
        leagues.push(league);
    }
    leagues.try_into().expect("two leagues")
}

#[tokio::test]
async fn large_table_equals_small_one() {
    TestApp::run_with(&LARGE, async |app| {
        let fixtures = app.fixtures();
        let entry = |key: &str, round: i16| fixtures.a_match(key).starting_in(FAR).with(json!({"round": round}));
        let events = [entry("a", 1).put().await, entry("b", 2).put().await, entry("c", 2).put().await];
        let tournament = tournament_of(app, events[0]).await;
        let mut users = Vec::new();
        for _ in 0..9 {
            users.push(app.user().await);
        }
        let (members, stranger) = users.split_at(8);
        let pairs =
            [pair(members, tournament, &json!({})).await, pair(members, tournament, &json!({"from_round": 2})).await];
        for (user, number) in members.iter().zip(0..) {
            for (&event, shift) in events.iter().zip([0, 2, 5]) {
                let (home, away) = [(2, 1), (1, 0), (0, 0), (0, 3), (3, 2), (2, 1), (1, 1)][(number + shift) % 7];
                let pick = scoring::Pick::of(home, away).name();
                let body =
                    json!({"event_id": event, "prediction": pick, "score_prediction": {"home": home, "away": away}});
                user.post("/api/auth/predictions", body).await.expect(201);
            }
        }
        let compare = async |step: &str| -> bool {
            let (leagues, mut moved) = (without_tables(app), false);
            for [small, large] in &pairs {
                for round in [None, Some(1), Some(2), Some(7)] {
                    for user in [&members[0], &members[5], &stranger[0]] {
                        let expected = walk(&leagues, user.id, id_of(small), round).await;
                        let found = walk(&leagues, user.id, id_of(large), round).await;
                        assert_eq!(found, expected, "{step}, round {round:?}, user {}", user.id);
                        moved |= expected.iter().flat_map(|page| &page.rows).any(|(row, _)| row.movement > Some(0));
                    }
                }
                let [of_small, of_large] = [small, large].map(id_of);
                let me = async |id| leagues.get(members[3].id, id).await.expect("a league").own.expect("a member");
                let (expected, found) = (me(of_small).await, me(of_large).await);
                assert_eq!((found.rank, found.points), (expected.rank, expected.points), "{step}");
            }
            moved
        };
        assert!(!compare("without results").await);
        entry("a", 1).at("finished", 2, 1).put().await;
        app.settle().await;
        assert!(!compare("with one round").await);
        entry("b", 2).at("finished", 1, 0).put().await;
        app.settle().await;
        assert!(compare("within the second round").await, "there is movement");
        entry("c", 2).at("finished", 0, 0).put().await;
        app.settle().await;
        assert!(compare("after the second round").await, "there is movement");
        entry("b", 2).being("abandoned").put().await;
        app.settle().await;
        compare("with a void match").await;
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn members_of_large_league_change_before_next_copy() {
    TestApp::run_with(&LARGE, async |app| {
        let fixtures = app.fixtures();
        let event = fixtures.a_match("m").starting_in(FAR).put().await;
        let tournament = tournament_of(app, event).await;
        let mut users = Vec::new();
        for score in [(2, 1), (1, 0), (4, 0), (2, 1)] {
            let user = app.user().await;
            let body = json!({"event_id": event, "prediction": "home",
                              "score_prediction": {"home": score.0, "away": score.1}});
            user.post("/api/auth/predictions", body).await.expect(201);
            users.push(user);
        }
        let league = create(&users[0], tournament, &json!({"max_members": 1_000})).await;
        for user in &users[1..3] {
            join(user, &league).await.expect(200);
        }
        fixtures.a_match("m").starting_in(FAR).at("finished", 2, 1).put().await;
        app.settle().await;
        let ids = |rows: &Value| -> Vec<i64> {
            rows.as_array().expect("rows").iter().map(|row| row["user"]["id"].as_i64().expect("an id")).collect()
        };
        let id = |at: usize| users[at].id.0;
        shows_points(&users[0], &league).await;
        let table = users[0].get(&path(&league, "/table")).await.expect(200);
        assert_eq!(ids(&table["data"]["rows"]), [id(0), id(1), id(2)]);
        let joined = join(&users[3], &league).await.expect(200);
        assert_eq!((&joined["data"]["me"]["rank"], &joined["data"]["me"]["points"]), (&json!(1), &json!(40)));
        let table = users[3].get(&path(&league, "/table")).await.expect(200);
        assert_eq!(ids(&table["data"]["rows"]), [id(0), id(1), id(2)], "the copy is a few seconds old");
        assert_eq!(ids(&table["data"]["neighbours"]), [id(0), id(3), id(1), id(2)]);
        assert_eq!(
            (&table["data"]["me"]["rank"], &table["data"]["me"]["settled"], &table["meta"]["total_members"]),
            (&json!(1), &json!(1), &json!(4))
        );
        users[1].post(&path(&league, "/leave"), json!({})).await.expect(200);
        let table = users[0].get(&path(&league, "/table")).await.expect(200);
        assert_eq!(ids(&table["data"]["rows"]), [id(0), id(2)], "a member who left is not shown");
        assert_eq!(users[1].get(&path(&league, "/table")).await.status, 404);
        // The next copy is due after five seconds.
        tokio::time::sleep(std::time::Duration::from_millis(5_100)).await;
        for _ in 0..50 {
            let table = users[0].get(&path(&league, "/table")).await.expect(200);
            if ids(&table["data"]["rows"]) == [id(0), id(3), id(2)] {
                app.published().await;
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        panic!("the joined member does not appear");
    })
    .await;
}

/// Waits until the table of a large league has the first result. Until then, processes know for a second that there is none.
async fn shows_points(user: &TestUser<'_>, league: &Value) {
    eventually("the table has points", async || {
        user.get(&path(league, "/table")).await.expect(200)["data"]["rows"][0]["points"] == 40
    })
    .await;
}

/// The live stream asks for the ranks of all listeners at once.
#[tokio::test]
async fn league_is_read_once_for_all_of_its_members() {
    const MEMBERS: i64 = 600;
    TestApp::run(async |app| {
        let tournament = tournament(app, &app.fixtures()).await;
        let owner = app.user().await;
        let league = create(&owner, tournament, &json!({"max_members": 700})).await;
        for statement in [
            "insert into users (user_id, created_at, username, username_is_generated) overriding system value
             select n, now(), 'member' || n, false from generate_series($2 + 1, $2 + $3) n where $1 > 0",
            "insert into league_members (user_id, league_id, joined_at)
             select n, $1, now() from generate_series($2 + 1, $2 + $3) n",
            "update leagues set member_count = $3 + 1, members_version = members_version + $3 where id = $1 and owner_id = $2",
        ] {
            let query = sqlx::query(statement).bind(league["id"].as_i64()).bind(owner.id).bind(MEMBERS);
            query.execute(app.owner()).await.expect("inserted");
        }
        let users: Vec<UserId> = (owner.id.0..=owner.id.0 + MEMBERS).map(UserId).collect();
        let reported = std::sync::Mutex::new(Vec::new());
        let report = |ranks: Vec<_>| reported.lock().expect("unpoisoned").push(ranks.len());
        let wanted = Wanted { tournaments: None, only_large: false };
        app.app.leagues.ranks_of(&users, wanted, &report).await.expect("ranks");
        let mut reported = reported.into_inner().expect("unpoisoned");
        reported.retain(|&ranks| ranks > 0);
        assert_eq!(reported, [users.len()]);
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn large_table_is_copied_only_after_changes() {
    TestApp::run_with(&LARGE, async |app| {
        let fixtures = app.fixtures();
        let event = fixtures.a_match("m").starting_in(FAR).put().await;
        let tournament = tournament_of(app, event).await;
        let [first, second, late] = [app.user().await, app.user().await, app.user().await];
        let body = json!({"event_id": event, "prediction": "home", "score_prediction": {"home": 2, "away": 1}});
        first.post("/api/auth/predictions", body).await.expect(201);
        let league = create(&first, tournament, &json!({"max_members": 1_000})).await;
        join(&second, &league).await.expect(200);
        fixtures.a_match("m").starting_in(FAR).at("finished", 2, 1).put().await;
        app.settle().await;
        let points =
            async || first.get(&path(&league, "/table")).await.expect(200)["data"]["rows"][0]["points"].clone();
        shows_points(&first, &league).await;
        let verified_at = async || {
            let wanted = Wanted { tournaments: None, only_large: true };
            let copies = app.app.leagues.ranks_of(&[first.id], wanted, &|_| {}).await.expect("ranks");
            copies.copied_at.expect("a copy")
        };
        let copied_at = verified_at().await;
        // No result and no membership, so the table does not follow.
        sqlx::query("update user_scores set points = points + 1 where user_id = $1")
            .bind(first.id.0)
            .execute(&app.app.core.db)
            .await
            .expect("changed scores");
        let due = std::time::Duration::from_millis(5_100);
        tokio::time::sleep(due).await;
        points().await;
        eventually("the copy is found to be up to date", async || verified_at().await > copied_at).await;
        assert_eq!(points().await, 40);
        join(&late, &league).await.expect(200);
        tokio::time::sleep(due).await;
        for _ in 0..50 {
            if points().await == 41 {
                app.published().await;
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        panic!("the table was not copied after a change");
    })
    .await;
}

/// Returns the service of a process without Redis.
fn without_redis(app: &TestApp) -> Leagues {
    let config = &app.app.config;
    Leagues::new(&app.app.core, unreachable_redis(), "none", &config.codes.keys, &config.leagues)
}

#[tokio::test]
async fn only_tables_of_large_leagues_need_redis() {
    TestApp::run_with(&LARGE, async |app| {
        let fixtures = app.fixtures();
        let event = fixtures.a_match("m").starting_in(FAR).put().await;
        let tournament = tournament_of(app, event).await;
        let (owner, member) = (app.user().await, app.user().await);
        for (user, (home, away)) in [(&owner, (1, 0)), (&member, (2, 1))] {
            let body =
                json!({"event_id": event, "prediction": "home", "score_prediction": {"home": home, "away": away}});
            user.post("/api/auth/predictions", body).await.expect(201);
        }
        fixtures.a_match("m").starting_in(FAR).at("finished", 2, 1).put().await;
        app.settle().await;
        let leagues = without_redis(app);
        let reader = leagues.primary_reader();
        let mut created = Vec::new();
        for max_members in [10, 1_000] {
            let wish = Wish {
                name: LeagueName::from_json(&json!("Friends")).expect("a name"),
                tournaments: vec![TournamentId(tournament)],
                from_round: None,
                from: None,
                max_members,
                visibility: Visibility::Public,
                counts_from: CountsFrom::LeagueStart,
                chat: false,
            };
            let view = leagues.create(owner.id, &wish, None).await.expect("created");
            let invitation = Invitation::League(view.league.id);
            let joined = leagues.join(member.id, ClientNetwork::local(), &invitation, None).await.expect("joined");
            let place = |view: &LeagueView| view.own.map(|own| (own.rank, own.points));
            assert_eq!((place(&view), place(&joined)), (Some((1, 30)), Some((1, 40))), "{max_members}");
            let name = LeagueName::from_json(&json!("Renamed")).expect("a name");
            let renamed = leagues.change(owner.id, view.league.id, Some(&name), None).await.expect("renamed");
            assert_eq!((renamed.league.name.as_str(), place(&renamed).map(|own| own.1)), ("Renamed", Some(30)));
            eventually("the place is behind the new member", async || {
                place(&leagues.get(owner.id, view.league.id).await.expect("a league")) == Some((2, 30))
            })
            .await;
            leagues.hand_over(owner.id, view.league.id, member.id).await.expect("handed over");
            created.push(view.league.id);
        }
        let (listed, total) =
            Box::pin(leagues.list(&reader, owner.id, false, None, Paging::first(10))).await.expect("own leagues");
        let listed: Vec<_> =
            listed.iter().map(|view| (view.league.id, view.own.map(|own| (own.rank, own.points)))).collect();
        assert_eq!((listed, total), (vec![(created[1], Some((2, 30))), (created[0], Some((2, 30)))], 2));
        let page = TablePage { round: None, after: None, limit: 10 };
        leagues.table(&reader, owner.id, created[0], page).await.expect("a table");
        let error = leagues.table(&reader, owner.id, created[1], page).await.expect_err("no table");
        assert_eq!(web::ApiError::from(error).into_response().status(), 503);
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn place_in_large_league_is_estimated_without_redis() {
    TestApp::run_with(&LARGE, async |app| {
        let fixtures = app.fixtures();
        let event = fixtures.a_match("m").starting_in(FAR).put().await;
        let tournament = tournament_of(app, event).await;
        let owner = app.user().await;
        let league = create(&owner, tournament, &json!({"max_members": 1_000, "visibility": "public"})).await;
        let mut users = vec![owner.id];
        for _ in 0..29 {
            users.push(app.app.accounts.make_without_phone().await.expect("a user"));
        }
        // The points fall with the id, so the members with the lowest ids have the most.
        for (statement, of) in [
            (
                "insert into league_members (user_id, league_id, joined_at)
              select u, $2, now() from unnest($1::bigint[]) u where u <> $3",
                "members",
            ),
            ("update leagues set member_count = 30 where id = $2 and $1::bigint[] is not null and $3 > 0", "count"),
            (
                "insert into user_scores (user_id, scope, points, exact, correct, settled)
              select u, 'tournament:' || (select tournament_ids[1] from leagues where id = $2), 100 - n, 0, 1, 1
              from unnest($1::bigint[]) with ordinality x (u, n) where $3 > 0",
                "scores",
            ),
        ] {
            let ids: Vec<i64> = users.iter().map(|user| user.0).collect();
            let done = sqlx::query(statement).bind(ids).bind(id_of(&league).0).bind(owner.id.0);
            done.execute(app.owner()).await.expect(of);
        }
        fixtures.a_match("m").starting_in(FAR).at("finished", 2, 1).put().await;
        app.settle().await;
        let leagues = without_redis(app);
        let place = async |at: usize| {
            let own = leagues.get(users[at], id_of(&league)).await.expect("a league").own.expect("a member");
            (own.rank, own.points)
        };
        assert_eq!(place(0).await, (1, 99));
        // Ten members are read: 4 of 10 are ahead, so 12 of 30.
        assert_eq!(place(4).await, (13, 95));
        assert_eq!(place(29).await, (30, 70), "behind all ten");
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn deleted_account_cannot_become_a_member() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let tournament = tournament(app, &fixtures).await;
        let (owner, gone) = (app.user().await, app.user().await);
        let league = create(&owner, tournament, &json!({"visibility": "public"})).await;
        // As after a deletion that was committed while the request ran.
        let deleted = sqlx::query("update users set deleted_at = now() where user_id = $1").bind(gone.id.0);
        deleted.execute(app.owner()).await.expect("deleted");
        let invitation = Invitation::League(id_of(&league));
        let joined = app.app.leagues.join(gone.id, ClientNetwork::local(), &invitation, None).await;
        assert!(matches!(joined, Err(LeagueError::AccountDeleted)), "{joined:?}");
        assert_eq!(user_count(&owner, &league).await, json!(1));
        app.published().await;
    })
    .await;
}

/// The response to a join takes the place from a table without the new member, instead of computing it again.
#[tokio::test]
async fn join_computes_no_table() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = fixtures.a_match("m").starting_in(FAR).put().await;
        let tournament = tournament_of(app, event).await;
        let owner = app.user().await;
        let body = json!({"event_id": event, "prediction": "home", "score_prediction": {"home": 2, "away": 1}});
        owner.post("/api/auth/predictions", body).await.expect(201);
        fixtures.a_match("m").starting_in(FAR).at("finished", 2, 1).put().await;
        app.settle().await;
        loop {
            let user = app.user().await;
            let began = std::time::Instant::now();
            let league = create(&owner, tournament, &json!({})).await;
            owner.get(&path(&league, "/table")).await.expect(200);
            let set = async |points: i32| {
                let update = sqlx::query("update user_scores set points = $1 where user_id = $2");
                update.bind(points).bind(owner.id.0).execute(app.owner()).await.expect("updated");
            };
            // A table that is computed now has all members in the first place.
            set(0).await;
            let joined = join(&user, &league).await.expect(200);
            set(40).await;
            // A table is kept for a second; a slow machine may need longer for the join.
            if began.elapsed() < std::time::Duration::from_millis(900) {
                assert_eq!((&joined["data"]["me"]["rank"], &joined["data"]["me"]["points"]), (&json!(2), &json!(0)));
                break;
            }
            // Values that leagues share must expire before the next attempt.
            tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
        }
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn searches_of_leagues_use_indexes() {
    TestApp::run(async |app| {
        sqlx::raw_sql(
            "insert into leagues (name, owner_id, visibility, counts_from, tournament_ids, max_members, member_count,
                                  code_digest, code_ciphertext, code_key, has_chat, created_at)
             select 'League ' || n, n % 5000, 'public', 'league_start', array[n % 500, 1000 + n], 10, 1, sha256(n::text::bytea),
                    '', 1, false, now()
             from generate_series(1, 20000) n;
             insert into league_removals (user_id, league_id, removed_at) select n, n, now() from generate_series(1, 20000) n;
             analyze leagues; analyze league_removals",
        )
        .execute(app.owner())
        .await
        .expect("leagues");
        for (statement, index) in [
            ("select id from leagues where visibility = 'public' and lower(name) like lower('%gue 1234%') order by id desc limit 20",
             "leagues_name_trgm"),
            ("select max(id) from (select id from leagues where id > 0 and tournament_ids && array[1007::bigint]
                                   order by id limit 500) page",
             "leagues_by_tournament"),
            ("select count(*) from leagues where visibility = 'public' and owner_id = any('{1, 2}')", "leagues_by_owner"),
            ("delete from league_removals where league_id = 7", "league_removals_by_league"),
        ] {
            let lines: Vec<String> = sqlx::query_scalar(sqlx::AssertSqlSafe(format!("explain {statement}")))
                .fetch_all(app.owner())
                .await
                .expect("a plan");
            assert!(lines.iter().any(|line| line.contains(index)), "{statement}: {lines:#?}");
        }
        // Pages and totals of the public list.
        let user = app.user().await;
        let total = async |query: &str| {
            let list = user.get(&format!("/api/auth/leagues?public=true&{query}")).await.expect(200);
            (list["data"].as_array().expect("a list").len(), list["meta"]["total"].as_i64())
        };
        assert_eq!(total("per_page=10").await, (10, Some(20_000)));
        let hide = "update leagues set visibility = 'private' where name = 'League 1'";
        sqlx::query(hide).execute(app.owner()).await.expect("hidden");
        assert_eq!(total("per_page=10").await, (10, Some(19_999)), "a change is counted at once");
        assert_eq!(total("search=league%201234&per_page=5").await, (5, Some(11)));
        assert_eq!(total("search=league%201234&per_page=5&page=3").await, (1, Some(11)));
        assert_eq!(total("search=league%201234&per_page=5&page=9").await, (0, Some(11)));
        assert_eq!(total("search=nothing").await, (0, Some(0)));
        // Owners of four leagues each are hidden.
        let other = app.user().await;
        sqlx::query("insert into blocks (user_id, blocked_id, created_at) select $2, $1, now() union all select $1, 78, now()")
            .bind(user.id.0)
            .bind(other.id.0)
            .execute(app.owner())
            .await
            .expect("blocks");
        assert_eq!(total("per_page=10").await, (10, Some(19_991)));
        app.published().await;
    })
    .await;
}
