use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use platform::{Core, random, redis_client};
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime, macros::datetime};
use web::ids::{TournamentId, UserId};

use super::{
    leaderboard_cache::{LeaderboardCache, LeaderboardError, Place, Users},
    rules::Scope,
};
use crate::{
    identity::account_deletion::hooks::Follows as _,
    testing::{TestApp, TestUser, eventually},
};

const ALL_USERS: Users = Users::Between { from: i64::MIN, until: i64::MAX };
const NO_REDIS: [(&str, &str); 2] =
    [("MATCHDAY_REDIS__URL", "redis://127.0.0.1:1"), ("MATCHDAY_REDIS__TIMEOUT", "200ms")];

/// Points, exact scores, right outcomes and matches with a result.
type Earned = (i32, i32, i32, i32);

async fn earn(app: &TestApp, user: UserId, scope: &str, (points, exact, correct, settled): Earned) {
    sqlx::query(
        "insert into user_scores (user_id, scope, points, exact, correct, settled) values ($1, $2, $3, $4, $5, $6)
         on conflict (user_id, scope) do update set points = excluded.points, exact = excluded.exact,
           correct = excluded.correct, settled = excluded.settled",
    )
    .bind(user)
    .bind(scope)
    .bind(points)
    .bind(exact)
    .bind(correct)
    .bind(settled)
    .execute(&app.app.core.db)
    .await
    .expect("a score");
}

/// Records results of a match at these start times, so that their months and weeks and the match's tournament may have
/// scores. Returns the tournament.
async fn record_results(app: &TestApp, starts: &[OffsetDateTime]) -> TournamentId {
    let event = app.fixtures().a_match("m").put().await;
    sqlx::query(
        "insert into event_results
             (event_id, revision, home_score, away_score, start_time, recorded_at, look_again_at, applied_at)
         select $1, 100 + row_number() over (), 1, 0, start, start, start, start from unnest($2::timestamptz[]) as start",
    )
    .bind(event)
    .bind(starts)
    .execute(&app.app.core.db)
    .await
    .expect("results");
    let tournament = sqlx::query_scalar("select tournament_id from events where id = $1").bind(event);
    TournamentId(tournament.fetch_one(&app.app.core.db).await.expect("the tournament"))
}

/// Creates one user per score and stores the score in the scope `all`.
async fn players<'a>(app: &'a TestApp, scores: &[Earned]) -> Vec<TestUser<'a>> {
    let mut users = Vec::new();
    for &score in scores {
        let user = app.user().await;
        earn(app, user.id, "all", score).await;
        users.push(user);
    }
    users
}

async fn board(user: &TestUser<'_>, query: &str) -> Value {
    user.get(&format!("/api/auth/leaderboards?{query}")).await.expect(200)
}

/// Returns the listed users, as indexes into `users`, with their ranks.
fn listed(users: &[TestUser<'_>], entries: &Value) -> Vec<(usize, i64)> {
    let entries = entries.as_array().expect("a list").iter();
    entries
        .map(|entry| {
            let at = users.iter().position(|user| json!(user.id) == entry["user"]["id"]).expect("one of them");
            (at, entry["rank"].as_i64().expect("a rank"))
        })
        .collect()
}

/// Returns the Redis keys of this test's leaderboards.
async fn keys(app: &TestApp) -> Vec<String> {
    let pattern = format!("{{{}:board:*", app.app.config.redis.prefix);
    redis::cmd("KEYS").arg(pattern).query_async(&mut app.app.redis.clone()).await.expect("keys")
}

async fn set_state(app: &TestApp, scope: Scope, state: &str) {
    let key = format!("{{{}:board:{scope}}}:state", app.app.config.redis.prefix);
    redis::cmd("SET").arg(key).arg(state).exec_async(&mut app.app.redis.clone()).await.expect("set");
}

/// Returns the time until a key expires; -1 if it does not.
async fn seconds_left(app: &TestApp, key: &str) -> i64 {
    redis::cmd("TTL").arg(key).query_async(&mut app.app.redis.clone()).await.expect("a time")
}

async fn delete(app: &TestApp, keys: &[String]) {
    if !keys.is_empty() {
        redis::cmd("DEL").arg(keys).exec_async(&mut app.app.redis.clone()).await.expect("deleted");
    }
}

async fn run_of_redis(app: &TestApp) -> String {
    let info: String = redis::cmd("INFO").arg("server").query_async(&mut app.app.redis.clone()).await.expect("info");
    info.lines().find_map(|line| line.strip_prefix("run_id:")).expect("a run").trim().to_owned()
}

/// Returns a whole leaderboard from Redis and from the database: user, rank, points, exact and correct.
async fn both(app: &TestApp, boards: &LeaderboardCache, scope: Scope) -> [Vec<(i64, i64, i32, i32, i32)>; 2] {
    let view = boards.look(scope, UserId(1), 1_000_000).await.expect("read").expect("it is ready");
    let shown: Vec<_> = view
        .top
        .iter()
        .map(|place| {
            let standing = place.standing;
            (place.user.0, place.rank, standing.points, standing.exact, standing.correct)
        })
        .collect();
    assert_eq!(view.total, i64::try_from(shown.len()).expect("a number"));
    let stored = sqlx::query_as(
        "select user_id, rank() over (order by points desc), points, exact, correct from user_scores
         where scope = $1 and settled > 0 order by points desc, exact desc, correct desc, user_id",
    )
    .bind(scope.to_string())
    .fetch_all(&app.app.core.db)
    .await
    .expect("read");
    [shown, stored]
}

#[tokio::test]
async fn users_with_equal_points_share_a_rank() {
    TestApp::run(async |app| {
        let users = players(
            app,
            &[(-20, 0, 0, 1), (40, 1, 2, 3), (60, 1, 1, 1), (40, 2, 2, 2), (40, 1, 2, 2), (40, 1, 3, 4), (0, 0, 0, 1)],
        )
        .await;
        let response = board(&users[3], "").await;
        let ranks = [(2, 1), (3, 2), (5, 2), (1, 2), (4, 2), (6, 6), (0, 7)];
        assert_eq!(listed(&users, &response["data"]["top"]), ranks);
        assert_eq!(listed(&users, &response["data"]["neighbours"]), ranks);
        let name = app.app.accounts.find(users[3].id).await.expect("read").expect("one").username;
        let user = json!({"id": users[3].id, "username": name.as_str(), "name": null});
        let me = json!({"rank": 2, "user": user, "points": 40, "exact": 2, "correct": 2, "settled": 2});
        assert_eq!((&response["data"]["me"], &response["data"]["top"][1]), (&me, &me));
        assert_eq!(
            response["meta"],
            json!({"total_players": 7, "period": "all", "tournament_id": null, "room_id": null,
                   "round": null, "round_complete": null, "winners": [], "among": "all"})
        );
        let response = board(&users[0], "per_page=2").await;
        assert_eq!(listed(&users, &response["data"]["top"]), [(2, 1), (3, 2)]);
        assert_eq!((&response["data"]["me"]["rank"], &response["data"]["me"]["points"]), (&json!(7), &json!(-20)));
        for query in ["per_page=0", "per_page=x"] {
            let faulty = users[0].get(&format!("/api/auth/leaderboards?{query}")).await;
            assert_eq!(faulty.invalid_fields(), ["per_page"]);
        }
    })
    .await;
}

#[tokio::test]
async fn user_sees_own_rank_and_neighbours() {
    TestApp::run(async |app| {
        // Thirty users; each group of three has equal points.
        let scores: Vec<Earned> = (0..30).map(|n| (100 - n / 3, 0, 0, 1)).collect();
        let users = players(app, &scores).await;
        let rank = |at: usize| i64::try_from(at - at % 3 + 1).expect("a rank");
        let stranger = app.user().await;
        for (at, around) in [(0, 0..6), (1, 0..7), (7, 2..13), (15, 10..21), (28, 23..30), (29, 24..30)] {
            let response = board(&users[at], "per_page=4").await;
            let expected: Vec<_> = around.map(|at| (at, rank(at))).collect();
            assert_eq!(listed(&users, &response["data"]["neighbours"]), expected, "around {at}");
            assert_eq!(listed(&users, &json!([response["data"]["me"]])), [(at, rank(at))]);
            assert_eq!(listed(&users, &response["data"]["top"]), [(0, 1), (1, 1), (2, 1), (3, 4)]);
        }
        let response = board(&stranger, "per_page=1000").await;
        assert_eq!((&response["data"]["me"], &response["data"]["neighbours"]), (&Value::Null, &json!([])));
        assert_eq!(
            (listed(&users, &response["data"]["top"]).len(), &response["meta"]["total_players"]),
            (30, &json!(30))
        );

        // Blocked users are omitted; the ranks of the others do not change.
        for at in [1, 14] {
            users[15].post(&format!("/api/auth/blocks/{}", users[at].id), json!({})).await.expect(200);
        }
        let response = board(&users[15], "per_page=3").await;
        assert_eq!(listed(&users, &response["data"]["top"]), [(0, 1), (2, 1)]);
        let expected: Vec<_> = (10..21).filter(|&at| at != 14).map(|at| (at, rank(at))).collect();
        assert_eq!(listed(&users, &response["data"]["neighbours"]), expected);
        assert_eq!(response["meta"]["total_players"], 30);
        // An entry without an account, which should be impossible, breaks nothing.
        earn(app, UserId(1_000_000), "all", (1_000, 0, 0, 1)).await;
        app.app.leaderboard_cache.publish(&[Scope::All], ALL_USERS).await.expect("published");
        let response = board(&stranger, "per_page=2").await;
        assert_eq!(listed(&users, &response["data"]["top"]), [(0, 2)]);
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn periods_and_tournaments_have_separate_leaderboards() {
    TestApp::run(async |app| {
        let tournament =
            record_results(app, &[datetime!(2026-11-17 12:00 UTC), datetime!(2026-12-01 12:00 UTC)]).await.0;
        let user = app.user().await;
        let of_tournament = format!("tournament:{tournament}");
        let scopes =
            [("all", 9), ("month:2026-11", 8), ("week:2026-47", 7), (of_tournament.as_str(), 6), ("month:2026-12", 5)];
        for (scope, points) in scopes {
            earn(app, user.id, scope, (points, 0, 0, 1)).await;
        }
        let points = async |query: &str| board(&user, query).await["data"]["me"]["points"].clone();
        assert_eq!(points("period=all").await, 9);
        assert_eq!(points("period=month").await, 8);
        assert_eq!(points("period=week").await, 7);
        assert_eq!(points(&format!("tournament_id={tournament}")).await, 6);
        assert_eq!(points(&format!("tournament_id={tournament}&period=all")).await, 6);
        let response = board(&user, "period=month").await;
        assert_eq!(
            response["meta"],
            json!({"total_players": 1, "period": "month", "tournament_id": null, "room_id": null,
                   "round": null, "round_complete": null, "winners": [], "among": "all"})
        );
        let filled = keys(app).await;
        let unknown = board(&user, "tournament_id=999999").await;
        assert_eq!(unknown["data"], json!({"top": [], "me": null, "neighbours": []}));
        assert_eq!(
            unknown["meta"],
            json!({"total_players": 0, "period": "all", "tournament_id": 999_999, "room_id": null,
                   "round": null, "round_complete": null, "winners": [], "among": "all"})
        );
        assert_eq!(keys(app).await.len(), filled.len(), "an unknown tournament creates no leaderboard");
        // Leaderboards of a period expire, and no set expires before its state.
        for key in filled {
            let left = seconds_left(app, &key).await;
            let is_period = key.contains("month:") || key.contains("week:");
            let (days, day) = (if key.contains("month:") { 18 } else { 10 }, 86_400);
            let longer = if key.ends_with(":state") { 0 } else { 60 };
            let expected = (days * day + longer)..((days + 1) * day + longer);
            assert!(if is_period { expected.contains(&left) } else { left == -1 }, "{key}: {left}");
        }
        for query in ["period=month", "period=week"] {
            let faulty = user.get(&format!("/api/auth/leaderboards?{query}&tournament_id=1")).await;
            assert_eq!(faulty.invalid_fields(), ["period"]);
        }
        let faulty = user.get("/api/auth/leaderboards?period=year&tournament_id=x&room_id=x&per_page=0").await;
        assert_eq!(faulty.invalid_fields(), ["per_page", "period", "room_id", "tournament_id"]);
        app.clock.advance(Duration::days(11));
        assert_eq!(points("period=month").await, 5, "the month has changed");
        assert_eq!(points("period=week").await, Value::Null);
    })
    .await;
}

#[tokio::test]
async fn leaderboards_of_past_rounds_are_few_and_expire_soon() {
    TestApp::run(async |app| {
        let (fixtures, user) = (app.fixtures(), app.user().await);
        let played = |round: i64, days: i64| {
            let key = ["a", "b", "c", "d", "e", "f"][usize::try_from(round - 1).expect("an index")];
            let fixture = fixtures.a_match(key).starting_in(Duration::days(-days));
            fixture.at("finished", 1, 0).with(json!({"round": round})).json()
        };
        // Round 6 is the current one.
        let matches: Vec<Value> =
            [(1, 50), (2, 40), (3, 30), (4, 20), (5, 9), (6, 1)].map(|(round, days)| played(round, days)).into();
        fixtures.write(&matches).await;
        app.settle().await;
        let tournament: i64 = sqlx::query_scalar("select tournament_id from events limit 1")
            .fetch_one(&app.app.core.db)
            .await
            .expect("the tournament");
        // As many players and user ids as two leaderboards of past rounds can have.
        sqlx::query(
            "insert into event_tallies (event_id, slot, home, draw, away, confidence)
             select id, 0, 2000000, 0, 0, 0 from events",
        )
        .execute(&app.app.core.db)
        .await
        .expect("tallies");
        let last = UserId(user.id.0 + 1_999_999);
        for round in 1..=6 {
            for (user, points) in [(user.id, 10), (last, 20)] {
                earn(app, user, &format!("round:{tournament}:{round}"), (points, 0, 0, 1)).await;
            }
        }
        let boards = &app.app.leaderboard_cache;
        let scope = |round: i16| Scope::Round { tournament: TournamentId(tournament), round };
        let rank = async |round: i16| {
            let response = board(&user, &format!("tournament_id={tournament}&round={round}")).await;
            response["data"]["me"]["rank"].clone()
        };
        let state = |round: i16| format!("{{{}:board:{}}}:state", app.app.config.redis.prefix, scope(round));
        for round in [1, 2] {
            boards.rebuild(scope(round)).await.expect("rebuilt");
            assert_eq!(rank(round).await, 2, "{round}");
            assert!((1..=600).contains(&seconds_left(app, &state(round)).await), "{round}");
        }
        for round in [3, 4, 5] {
            let refused = boards.rebuild(scope(round)).await;
            assert!(matches!(refused, Err(LeaderboardError::TooManyPast(_))), "{round}: {refused:?}");
            assert_eq!(seconds_left(app, &state(round)).await, -2, "{round}");
        }
        let refused = user.get(&format!("/api/auth/leaderboards?tournament_id={tournament}&round=3")).await;
        assert_eq!(refused.header("retry-after"), Some("300"), "the budget for one of them");
        assert_eq!(refused.expect(503)["code"], "leaderboard_rebuilding");
        // The budget is for past rounds only, and refills as they expire.
        boards.rebuild(scope(6)).await.expect("rebuilt");
        assert!(seconds_left(app, &state(6)).await > 6 * 86_400);
        app.clock.advance(Duration::minutes(5));
        boards.rebuild(scope(3)).await.expect("rebuilt");
        assert!(matches!(boards.rebuild(scope(4)).await, Err(LeaderboardError::TooManyPast(_))));
        // A round with few players needs little of the budget.
        app.clock.advance(Duration::seconds(1));
        sqlx::query("update event_tallies t set home = 2 from events e where e.id = t.event_id and e.round = 5")
            .execute(&app.app.core.db)
            .await
            .expect("tallies");
        boards.rebuild(scope(5)).await.expect("rebuilt");
        assert!(matches!(boards.rebuild(scope(4)).await, Err(LeaderboardError::TooManyPast(_))));

        // A correction of a past result reaches its leaderboard, and does not keep it for longer.
        earn(app, user.id, &scope(1).to_string(), (30, 0, 0, 1)).await;
        boards.publish(&[scope(1)], ALL_USERS).await.expect("published");
        assert_eq!(rank(1).await, 1);
        let set = state(1).replace(":state", "");
        assert!(seconds_left(app, &set).await <= 660 && seconds_left(app, &state(1)).await <= 600);
        app.published().await;
    })
    .await;
}

async fn room_of(app: &TestApp, name: &str, kind: &str, members: &[&TestUser<'_>]) {
    let now = app.app.core.clock.now();
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!(
        "insert into rooms (matrix_id, alias, name, event_id, stand, creator_id, is_private, created_at, made_until, opened_at)
           select '!{name}:example.org', '{name}', '{name}', {kind}, '{now}', '{now}', '{now}';
         insert into room_activity (room_id, last_activity, compared_at)
           select id, '{now}', '{now}' from rooms where alias = '{name}'"
    )))
    .execute(&app.app.core.db)
    .await
    .expect("a room");
    for member in members {
        sqlx::query(
            "insert into room_members (user_id, room_id, membership, active_at, changed_at)
             select $1, id, 'join', created_at, created_at from rooms where alias = $2",
        )
        .bind(member.id)
        .bind(name)
        .execute(&app.app.core.db)
        .await
        .expect("a member");
    }
}

#[tokio::test]
async fn room_leaderboard_works_without_redis() {
    TestApp::run_with(&NO_REDIS, async |app| {
        let event = app.fixtures().a_match("m").put().await;
        let scores: Vec<Earned> = (0..20).map(|n| (100 - n / 2, n % 2, 0, 1)).collect();
        let users = players(app, &scores).await;
        earn(app, users[3].id, "week:2026-47", (5, 0, 0, 1)).await;
        let newcomer = app.user().await;
        let odd: Vec<&TestUser<'_>> = users.iter().skip(1).step_by(2).chain([&newcomer]).collect();
        room_of(app, "open", "null, null, 1, false", &odd).await;
        room_of(app, "closed", "null, null, 1, true", &[&users[0], &users[2]]).await;
        room_of(app, "north", &format!("{event}, 1, null, false"), &[&users[0], &users[1], &users[4]]).await;
        room_of(app, "south", &format!("{event}, 2, null, false"), &[&users[3], &users[4]]).await;

        let response = board(&users[0], "room_id=!open:example.org&per_page=3").await;
        assert_eq!(listed(&users, &response["data"]["top"]), [(1, 1), (3, 2), (5, 3)]);
        assert_eq!((&response["data"]["me"], &response["data"]["neighbours"]), (&Value::Null, &json!([])));
        assert_eq!(
            response["meta"],
            json!({"total_players": 10, "period": "all", "tournament_id": null, "room_id": "!open:example.org",
                   "round": null, "round_complete": null, "winners": [], "among": "all"})
        );
        let response = board(&users[15], "room_id=%21open%3Aexample.org&per_page=1").await;
        assert_eq!(listed(&users, &response["data"]["top"]), [(1, 1)]);
        assert_eq!(listed(&users, &json!([response["data"]["me"]])), [(15, 8)]);
        let around: Vec<_> = [5, 7, 9, 11, 13, 15, 17, 19].into_iter().zip(3..).collect();
        assert_eq!(listed(&users, &response["data"]["neighbours"]), around);
        let response = board(&users[1], "room_id=!open:example.org&period=week").await;
        assert_eq!(listed(&users, &response["data"]["top"]), [(3, 1)]);

        // The stands of a match share one leaderboard, equal points share a rank, and no user is counted twice.
        for stand in ["north", "south"] {
            let response = board(&users[4], &format!("room_id=!{stand}:example.org")).await;
            assert_eq!(listed(&users, &response["data"]["top"]), [(1, 1), (0, 1), (3, 3), (4, 4)]);
            assert_eq!(listed(&users, &json!([response["data"]["me"]])), [(4, 4)]);
        }
        users[4].post(&format!("/api/auth/blocks/{}", users[1].id), json!({})).await.expect(200);
        let response = board(&users[4], "room_id=!north:example.org").await;
        assert_eq!(listed(&users, &response["data"]["top"]), [(0, 1), (3, 3), (4, 4)]);
        assert_eq!(response["meta"]["total_players"], 4);

        assert_eq!(
            listed(&users, &board(&users[2], "room_id=!closed:example.org").await["data"]["top"]),
            [(0, 1), (2, 2)]
        );
        let refused = users[1].get("/api/auth/leaderboards?room_id=!closed:example.org").await;
        assert_eq!(refused.expect(403)["code"], "not_allowed");
        let unknown = board(&users[1], "room_id=!nowhere:example.org").await;
        assert_eq!((&unknown["data"]["top"], &unknown["meta"]["total_players"]), (&json!([]), &json!(0)));

        // Global leaderboards need Redis, and fail fast without it.
        let unavailable = users[0].get("/api/auth/leaderboards").await;
        assert!(unavailable.header("retry-after").is_some());
        assert_eq!(unavailable.expect(503)["code"], "leaderboard_unavailable");
        let began = std::time::Instant::now();
        for _ in 0..20 {
            users[0].get("/api/auth/leaderboards?period=week").await.expect(503);
        }
        // Twenty timeouts would take 40 seconds.
        assert!(began.elapsed() < std::time::Duration::from_secs(15), "requests do not wait for an unavailable Redis");
        assert_eq!(users[0].get("/api/auth/me").await.expect(200)["data"]["points"], 100);
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn lost_leaderboard_is_rebuilt() {
    TestApp::run(async |app| {
        let users = players(app, &[(10, 0, 0, 1), (-5, 0, 0, 1), (30, 1, 1, 1), (10, 1, 1, 1)]).await;
        let before = board(&users[1], "").await;
        assert_eq!(before["meta"]["total_players"], 4);
        let all = keys(app).await;
        assert_eq!(all.len(), 3, "{all:?}");
        delete(app, &all).await;
        assert_eq!(board(&users[1], "").await, before);

        // A partial leaderboard without a state, or with the state of an earlier Redis run, is not used.
        let set = all.iter().find(|key| key.ends_with('}')).expect("a set").clone();
        let state = all.iter().find(|key| key.ends_with(":state")).expect("a state").clone();
        let spoil = async || {
            redis::cmd("ZREMRANGEBYRANK")
                .arg(&set)
                .arg(0)
                .arg(1)
                .exec_async(&mut app.app.redis.clone())
                .await
                .expect("spoilt");
        };
        spoil().await;
        delete(app, &[state]).await;
        assert_eq!(board(&users[1], "").await, before);
        spoil().await;
        set_state(app, Scope::All, "ready:0123").await;
        assert_eq!(board(&users[1], "").await, before);
        spoil().await;
        set_state(app, Scope::All, "building:0123:somebody").await;
        assert_eq!(board(&users[1], "").await, before);
    })
    .await;
}

#[tokio::test]
async fn request_waits_briefly_for_rebuild_by_another_process() {
    TestApp::run(async |app| {
        let users = players(app, &[(10, 0, 0, 1), (5, 0, 0, 1)]).await;
        let run = run_of_redis(app).await;
        set_state(app, Scope::All, &format!("building:{run}:another")).await;
        let response = users[0].get("/api/auth/leaderboards").await;
        assert_eq!(response.header("retry-after"), Some("3"));
        assert_eq!(response.expect(503)["code"], "leaderboard_rebuilding");
        // A score published during the rebuild is not lost.
        earn(app, users[1].id, "all", (20, 0, 0, 1)).await;
        app.app.leaderboard_cache.publish(&[Scope::All], ALL_USERS).await.expect("published");
        // The rebuilding process died, and its claim expired.
        let state = keys(app).await.into_iter().find(|key| key.ends_with(":state")).expect("a state");
        delete(app, &[state]).await;
        eventually("this process rebuilds", async || users[0].get("/api/auth/leaderboards").await.status == 200).await;
        assert_eq!(listed(&users, &board(&users[0], "").await["data"]["top"]), [(1, 1), (0, 2)]);
    })
    .await;
}

#[tokio::test]
async fn user_without_settled_matches_has_no_rank() {
    TestApp::run(async |app| {
        let users = players(app, &[(10, 0, 0, 1), (5, 0, 0, 1), (0, 0, 0, 0)]).await;
        assert_eq!(listed(&users, &board(&users[0], "").await["data"]["top"]), [(0, 1), (1, 2)]);
        earn(app, users[0].id, "all", (0, 0, 0, 0)).await;
        earn(app, users[2].id, "all", (7, 0, 0, 1)).await;
        app.app
            .leaderboard_cache
            .publish(&[Scope::All, Scope::week_of(app.app.core.clock.now())], ALL_USERS)
            .await
            .expect("published");
        let response = board(&users[0], "").await;
        assert_eq!(listed(&users, &response["data"]["top"]), [(2, 1), (1, 2)]);
        assert_eq!((&response["data"]["me"], &response["meta"]["total_players"]), (&Value::Null, &json!(2)));
        let [shown, stored] = both(app, &app.app.leaderboard_cache, Scope::All).await;
        assert_eq!(shown, stored);
    })
    .await;
}

#[tokio::test]
async fn leaderboards_follow_results_and_corrections() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let start = Duration::days(3_650);
        let event = fixtures.a_match("m").starting_in(start).put().await;
        let users = players(app, &[(5, 0, 0, 1), (0, 0, 0, 0), (0, 0, 0, 0)]).await;
        for (at, home, away) in [(1, 2, 1), (2, 0, 1)] {
            let pick = if home > away { "home" } else { "away" };
            let body = json!({"event_id": event, "prediction": pick, "score_prediction": {"home": home, "away": away}});
            users[at].post("/api/auth/predictions", body).await.expect(201);
        }
        let tournament: i64 =
            sqlx::query_scalar("select tournament_id from events").fetch_one(&app.app.core.db).await.expect("one");
        let top = async |query: &str| listed(&users, &board(&users[0], query).await["data"]["top"]);
        let of_tournament = format!("tournament_id={tournament}");
        assert_eq!((top("").await, top(&of_tournament).await), (vec![(0, 1)], vec![]));
        for ((home, away), all, of_one) in
            [((2, 1), [(1, 1), (0, 2), (2, 3)], [(1, 1), (2, 2)]), ((0, 1), [(2, 1), (0, 2), (1, 3)], [(2, 1), (1, 2)])]
        {
            fixtures.a_match("m").starting_in(start).at("finished", home, away).put().await;
            app.settle().await;
            assert_eq!((top("").await, top(&of_tournament).await), (all.to_vec(), of_one.to_vec()));
        }
        fixtures.a_match("m").starting_in(start).being("abandoned").put().await;
        app.settle().await;
        assert_eq!((top("").await, top(&of_tournament).await), (vec![(0, 1)], vec![]));
        assert_eq!(app.app.scores.in_progress().await.expect("read"), []);
    })
    .await;
}

/// Changes scores of some users in these scopes, as a chunk does, and publishes them.
async fn change(core: &Core, boards: &LeaderboardCache, scopes: &[Scope], users: i64) {
    let [from, width, points, exact, gone] = random::bytes::<5>(&*core.random).map(i64::from);
    let from = from % users;
    let until = from + 1 + width % 64;
    let names: Vec<String> = scopes.iter().map(Scope::to_string).collect();
    sqlx::query(
        "with held as (select user_id, scope from user_scores where user_id >= $1 and user_id < $2 and scope = any($3)
                       order by user_id, scope for update)
         update user_scores s set points = s.points + $4, exact = $5, settled = case when $6 then 0 else 1 end
         from held where held.user_id = s.user_id and held.scope = s.scope",
    )
    .bind(from)
    .bind(until)
    .bind(&names)
    .bind(points % 7 - 3)
    .bind(exact % 3)
    .bind(gone % 4 == 0)
    .execute(&core.db)
    .await
    .expect("changed");
    boards.publish(scopes, Users::Between { from, until }).await.expect("published");
}

/// Simulates several processes that share Redis and the database.
fn processes(app: &TestApp) -> Vec<LeaderboardCache> {
    let one = || {
        let redis = redis_client::connect(&app.app.config.redis).expect("a valid URL");
        LeaderboardCache::new(&app.app.core, redis, &app.app.config.redis).expect("a valid URL")
    };
    std::iter::repeat_with(one).take(4).collect()
}

const RACERS: i64 = 300;

async fn start_race(app: &TestApp) -> [Scope; 3] {
    let now = app.app.core.clock.now();
    let scopes = [Scope::All, Scope::Tournament(record_results(app, &[now]).await), Scope::week_of(now)];
    for scope in scopes {
        sqlx::query("insert into user_scores select n, $2, 0, 0, 0, 1 from generate_series(1, $1) as n")
            .bind(RACERS)
            .bind(scope.to_string())
            .execute(&app.app.core.db)
            .await
            .expect("scores");
    }
    scopes
}

#[tokio::test]
async fn plain_commands_read_the_same_as_the_script() {
    TestApp::run(async |app| {
        let [scope, ..] = start_race(app).await;
        let (boards, core) = (&processes(app)[0], &app.app.core);
        boards.rebuild(scope).await.expect("filled");
        for round in 0..4 {
            change(core, boards, &[scope], RACERS).await;
            let users: Vec<UserId> = (1..=RACERS + 1).map(UserId).collect();
            let (places, total) = boards.places(scope, &users).await.expect("read").expect("it is ready");
            for &user in users.iter().step_by(7).chain(users.last()) {
                let seen = boards.look(scope, user, 3 + round).await.expect("read").expect("it is ready");
                let script = boards.look_at_once(scope, user, 3 + round).await.expect("read").expect("it is ready");
                assert!(seen.version.is_some() && script.version.is_none());
                assert_eq!((seen.total, seen.top, &seen.around), (total, script.top, &script.around), "{user}");
                let own = |places: &[Place]| places.iter().find(|place| place.user == user).copied();
                assert_eq!(own(&places), own(&seen.around));
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_publishers_converge_on_the_database() {
    TestApp::run(async |app| {
        let scopes = start_race(app).await;
        let processes = processes(app);
        for scope in scopes {
            processes[0].rebuild(scope).await.expect("filled");
        }
        for _ in 0..2 {
            join_all((0..12).map(|n: usize| {
                let (core, boards) = (app.app.core.clone(), processes[n % 4].clone());
                let runner = tokio::spawn(async move {
                    for _ in 0..20 {
                        change(&core, &boards, &scopes[..=(n % 3)], RACERS).await;
                    }
                });
                async { runner.await.expect("it ran") }
            }))
            .await;
            for scope in scopes {
                let [shown, stored] = both(app, &processes[0], scope).await;
                assert_eq!(shown, stored);
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rebuilds_during_score_changes_converge_on_the_database() {
    TestApp::run(async |app| {
        let scopes = start_race(app).await;
        let processes = processes(app);
        for round in 0..3 {
            let changing = join_all((0..8).map(|n: usize| {
                let (core, boards) = (app.app.core.clone(), processes[n % 4].clone());
                let runner = tokio::spawn(async move {
                    for _ in 0..15 {
                        change(&core, &boards, &scopes[..=(n % 3)], RACERS).await;
                    }
                });
                async { runner.await.expect("it ran") }
            }));
            let over = AtomicBool::new(false);
            let changing = async {
                changing.await;
                over.store(true, Ordering::Release);
            };
            let losing = async {
                let mut turn: usize = 0;
                while !over.load(Ordering::Acquire) {
                    turn += 1;
                    // Deletes all keys, or only the states.
                    let mut lost = keys(app).await;
                    lost.retain(|key| turn.is_multiple_of(2) || key.ends_with(":state"));
                    delete(app, &lost).await;
                    let filled = join_all((0..4).map(|at| processes[at].rebuild(scopes[(turn + at) % 3]))).await;
                    filled.into_iter().collect::<Result<Vec<_>, _>>().expect("filled");
                }
            };
            futures_util::future::join(changing, losing).await;
            for scope in scopes {
                processes[0].rebuild(scope).await.expect("filled");
                let [shown, stored] = both(app, &processes[0], scope).await;
                assert_eq!(shown, stored, "round {round}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn leaderboard_among_followed_users_ranks_only_them() {
    TestApp::run(ranks_only_followed_users).await;
    // It also works without Redis, like those of small rooms.
    TestApp::run_with(&NO_REDIS, ranks_only_followed_users).await;
}

async fn ranks_only_followed_users(app: &TestApp) {
    let event = app.fixtures().a_match("m").at("finished", 1, 0).with(json!({"round": 1})).put().await;
    let tournament: i64 = sqlx::query_scalar("select tournament_id from events where id = $1")
        .bind(event)
        .fetch_one(&app.app.core.db)
        .await
        .expect("a tournament");
    app.settle().await;
    // Points from 40 down, two users each with the same.
    let scores: Vec<Earned> = (0..20).map(|n| (40 - n / 2, n % 2, 0, 1)).collect();
    let users = players(app, &scores).await;
    let (whole, round) = (format!("tournament:{tournament}"), format!("round:{tournament}:1"));
    for scope in ["week:2026-47", "month:2026-11", &whole, &round] {
        for (user, score) in users.iter().zip(&scores) {
            earn(app, user.id, scope, *score).await;
        }
    }
    let me = &users[9];
    let alone = board(me, "among=following").await;
    assert_eq!(listed(&users, &alone["data"]["top"]), [(9, 1)], "only the caller");
    assert_eq!((&alone["meta"]["among"], &alone["meta"]["total_players"]), (&json!("following"), &json!(1)));
    let newcomer = app.user().await;
    for other in [2, 3, 4, 14, 15, 16, 17, 18, 19].map(|at: usize| users[at].id).into_iter().chain([newcomer.id]) {
        me.send(http::Method::PUT, &format!("/api/auth/follows/{other}"), None).await.expect(200);
    }
    // Users with equal points share a rank, and those with more exact scores come first.
    let all = [(3, 1), (2, 1), (4, 3), (9, 4), (15, 5), (14, 5), (17, 7), (16, 7), (19, 9), (18, 9)];
    let selections = [
        String::new(),
        "&period=week".to_owned(),
        "&period=month".to_owned(),
        format!("&tournament_id={tournament}"),
        format!("&tournament_id={tournament}&round=1"),
    ];
    for selection in &selections {
        let response = board(me, &format!("among=following{selection}")).await;
        assert_eq!(listed(&users, &response["data"]["top"]), all, "{selection}");
        assert_eq!(listed(&users, &json!([response["data"]["me"]])), [(9, 4)]);
        assert_eq!(listed(&users, &response["data"]["neighbours"]), all[..9], "{selection}");
        assert_eq!(response["meta"]["total_players"], 10, "without a user who has no result");
        let winners = response["meta"]["winners"].as_array().expect("a list");
        let expected: &[UserId] = if selection.ends_with("round=1") { &[users[3].id, users[2].id] } else { &[] };
        assert_eq!(
            winners.iter().map(|user| user["id"].clone()).collect::<Vec<_>>(),
            expected.iter().map(|id| json!(id)).collect::<Vec<_>>()
        );
        assert!(winners.iter().all(|user| user.as_object().is_some_and(|user| user.len() == 3)), "{winners:?}");
    }
    let top = board(me, "among=following&per_page=1").await;
    assert_eq!(listed(&users, &top["data"]["top"]), [(3, 1)]);
    // A deleted follow shows at once, and a new one.
    me.delete(&format!("/api/auth/follows/{}", users[3].id)).await.expect(200);
    assert_eq!(listed(&users, &board(me, "among=following&per_page=2").await["data"]["top"]), [(2, 1), (4, 2)]);
    me.send(http::Method::PUT, &format!("/api/auth/follows/{}", users[0].id), None).await.expect(200);
    assert_eq!(listed(&users, &board(me, "among=following&per_page=2").await["data"]["top"]), [(0, 1), (2, 2)]);
    // A user who only follows others has a leaderboard without themselves.
    newcomer.send(http::Method::PUT, &format!("/api/auth/follows/{}", users[5].id), None).await.expect(200);
    let response = board(&newcomer, "among=following").await;
    assert_eq!(listed(&users, &response["data"]["top"]), [(5, 1)]);
    assert_eq!((&response["data"]["me"], &response["data"]["neighbours"]), (&Value::Null, &json!([])));
    // A deleted user is left out, and no longer counted once the worker of account deletions has ended the follows.
    sqlx::query("update users set deleted_at = now() where user_id = $1")
        .bind(users[5].id)
        .execute(&app.app.core.db)
        .await
        .expect("deleted");
    eventually("the deleted user is not shown", async || {
        board(&newcomer, "among=following").await["data"]["top"] == json!([])
    })
    .await;
    app.app.follows.forget(users[5].id).await.expect("forgotten");
    assert_eq!(board(&newcomer, "among=following").await["meta"]["total_players"], 0);
    for query in ["among=friends", "among=", "among=Following", "among=following&room_id=!a:example.org"] {
        let faulty = me.get(&format!("/api/auth/leaderboards?{query}")).await;
        assert_eq!(faulty.invalid_fields(), ["among"], "{query}");
    }
    let unknown = board(me, "among=all&room_id=!a:example.org").await;
    assert_eq!(unknown["meta"]["among"], "all");
}

#[tokio::test]
async fn leaderboard_among_followed_users_shows_changes_at_once() {
    TestApp::run(async |app| {
        let scores: Vec<Earned> = (0..6).map(|n| (60 - 10 * n, 0, 1, 1)).collect();
        let users = players(app, &scores).await;
        let me = &users[3];
        let follow = async |method: http::Method, other: usize| {
            me.send(method, &format!("/api/auth/follows/{}", users[other].id), None).await.expect(200);
        };
        for other in [1, 4] {
            follow(http::Method::PUT, other).await;
        }
        // Fills the leaderboard of all users.
        assert_eq!(board(me, "").await["meta"]["total_players"], 6);
        let among = async || listed(&users, &board(me, "among=following").await["data"]["top"]);
        // The second response is made from the view that the first one kept.
        for _ in 0..2 {
            assert_eq!(among().await, [(1, 1), (3, 2), (4, 3)]);
        }
        // As many follows as before, but of other users.
        follow(http::Method::DELETE, 1).await;
        follow(http::Method::PUT, 0).await;
        assert_eq!(among().await, [(0, 1), (3, 2), (4, 3)]);
        // Another process that kept a view notices the change too.
        let second = app.second(app.app.config.clone()).await;
        let there = second.login(me.id).await;
        let among_there = async || listed(&users, &board(&there, "among=following").await["data"]["top"]);
        assert_eq!(among_there().await, [(0, 1), (3, 2), (4, 3)]);
        follow(http::Method::PUT, 5).await;
        assert_eq!(among_there().await, [(0, 1), (3, 2), (4, 3), (5, 4)]);
        follow(http::Method::DELETE, 5).await;
        assert_eq!(among_there().await, [(0, 1), (3, 2), (4, 3)]);
        let page = board(me, "among=following&per_page=1").await;
        assert_eq!(listed(&users, &page["data"]["top"]), [(0, 1)]);
        assert_eq!(page["meta"]["total_players"], 3);
        // A score changes the leaderboard of all users, and with it the kept view.
        sqlx::query("update user_scores set points = 100 where user_id = $1")
            .bind(users[4].id)
            .execute(&app.app.core.db)
            .await
            .expect("changed");
        let range = Users::Between { from: users[4].id.0, until: users[4].id.0 + 1 };
        app.app.leaderboard_cache.publish(&[Scope::All], range).await.expect("published");
        assert_eq!(among().await, [(4, 1), (0, 2), (3, 3)]);
        // A block ends the follow.
        me.post(&format!("/api/auth/blocks/{}", users[0].id), json!({})).await.expect(200);
        assert_eq!(among().await, [(4, 1), (3, 2)]);
        app.published().await;
    })
    .await;
}
