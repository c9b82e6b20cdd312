//! Tests of rooms with many members. They are inserted in bulk, without a homeserver.

use futures_util::future::join_all;
use platform::{clock::Clock as _, redis_client};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgPool};
use time::{Duration, OffsetDateTime};
use web::ids::{RoomId, UserId};

use super::{census, store};
use crate::testing::{TestApp, TestUser, eventually};

const NO_REDIS: [(&str, &str); 2] =
    [("MATCHDAY_REDIS__URL", "redis://127.0.0.1:1"), ("MATCHDAY_REDIS__TIMEOUT", "200ms")];

/// Statistics of the rooms `$1` for the match `$2`, in one query over all members, as a reference.
const REFERENCE: &str = "with members as (
        select user_id, max(active_at) as active_at from room_members
        where room_id = any($1) and membership = 'join' group by user_id
    ), strangers as (
        select matrix_user_id, max(changed_at) as active_at from remote_members
        where room_id = any($1) and membership = 'join' group by matrix_user_id
    ), predicted as (
        select m.user_id, p.updated_at from members m join predictions p on p.user_id = m.user_id and p.event_id = $2
    ), fans as (
        select t.slug, count(m.user_id) as fans from events e join teams t on t.id in (e.home_team_id, e.away_team_id)
        left join user_teams f on f.team_id = t.id and f.rank = 0 left join members m on m.user_id = f.user_id
        where e.id = $2 group by t.slug
    ), top as (
        select s.user_id, u.username, s.correct, s.correct::double precision / s.settled as accuracy
        from members m join user_scores s on s.user_id = m.user_id and s.scope = 'all' join users u on u.user_id = m.user_id
        where s.settled > 0 order by s.correct desc, accuracy desc, s.user_id limit 10
    ), counts as (
        select (select count(*) from members) + (select count(*) from strangers) as total
    )
    select jsonb_build_object(
        'total_members', total,
        'active_members',
        (select count(*) from members m left join predicted p on p.user_id = m.user_id
         where greatest(m.active_at, p.updated_at) >= $3) + (select count(*) from strangers where active_at >= $3),
        'predictions_made', (select count(*) from predicted),
        'team_distribution', (select jsonb_object_agg(slug, fans) from fans)
            || jsonb_build_object('neutral', total - (select sum(fans) from fans)),
        'top_predictors', (select jsonb_agg(jsonb_build_object('user_id', user_id, 'username', username,
            'correct_predictions', correct, 'accuracy', accuracy) order by correct desc, accuracy desc, user_id) from top))
    from counts";

/// Inserts users with ids from 1,000,000 on, with teams, scores, and predictions of the match for every third of them.
async fn insert_users(app: &TestApp, event: i64, count: i64) {
    let (now, old) = (app.clock.now(), app.clock.now() - Duration::days(30));
    let fans = format!("generate_series(1000000, {}) n", 1_000_000 + count - 1);
    run(
        &app.app.core.db,
        &format!(
            "insert into users (user_id, created_at, username) overriding system value
               select n, '{now}', 'fan' || n from {fans};
             insert into user_teams (user_id, rank, team_id)
               select n, 0, t.id from {fans} join (select id, row_number() over (order by id) - 1 as place from teams) t
               on t.place = n % 5;
             insert into user_scores (user_id, scope, points, exact, correct, settled)
               select n, 'all', n::bigint * 7919 % 503, n % 11, n % 23, n % 29 + 1 from {fans} where n % 29 >= n % 23;
             insert into predictions (user_id, event_id, prediction, confidence, revision, created_at, updated_at)
               select n, {event}, (array['home', 'draw', 'away', 'home'])[1 + n % 4], 50, 1, '{old}',
                      case when n % 2 = 0 then '{now}' else '{old}' end::timestamptz
               from {fans} where n % 3 = 0"
        ),
    )
    .await;
}

async fn run(db: &PgPool, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(db).await.expect("valid SQL");
}

/// Inserts a room whose members are the inserted users from `first` on.
async fn insert_room(app: &TestApp, name: &str, columns: &str, first: i64, count: i64) -> RoomId {
    let (now, old) = (app.clock.now(), app.clock.now() - Duration::days(30));
    let db = &app.app.core.db;
    run(
        db,
        &format!(
            "insert into rooms (event_id, stand, creator_id, matrix_id, alias, name, created_at, made_until, opened_at)
               select {columns}, '!{name}:example.org', '{name}', '{name}', '{now}', '{now}', '{now}';
             insert into room_activity (room_id, member_count, last_activity, compared_at)
               select id, {count}, '{now}', '{now}' from rooms where alias = '{name}';
             insert into room_members (user_id, room_id, membership, active_at, changed_at)
               select n, id, 'join', case when n % 5 = 0 then '{now}' else '{old}' end::timestamptz, '{now}'
               from rooms, generate_series({0}, {0} + {count} - 1) n where alias = '{name}'",
            1_000_000 + first,
        ),
    )
    .await;
    let id = sqlx::query_scalar("select id from rooms where alias = $1").bind(name);
    RoomId(id.fetch_one(db).await.expect("a room"))
}

async fn statistics(user: &TestUser<'_>, room: &str) -> Value {
    user.get(&format!("/api/auth/chat-rooms/!{room}:example.org/member-stats")).await.expect(200)["data"].clone()
}

async fn reference(app: &TestApp, rooms: &[RoomId], event: i64) -> Value {
    sqlx::query_scalar(REFERENCE)
        .bind(rooms.iter().map(|room| room.0).collect::<Vec<_>>())
        .bind(event)
        .bind(app.clock.now() - Duration::days(7))
        .fetch_one(&app.app.core.db)
        .await
        .expect("statistics")
}

#[tokio::test]
async fn statistics_of_any_room_are_exact() {
    TestApp::run_with(&NO_REDIS, async |app| {
        let event = app.fixtures().a_match("m").starting_in(Duration::days(30)).put().await;
        app.published().await;
        insert_users(app, event, 5_000).await;
        let user = app.user().await;
        let small = insert_room(app, "small", &format!("{event}, null, 1"), 100, 200).await;
        let large = insert_room(app, "large", &format!("{event}, null, 1"), 0, 4_500).await;
        // The second stand shares members with the first one.
        let stands = [
            insert_room(app, "north", &format!("{event}, 1, null"), 0, 150).await,
            insert_room(app, "south", &format!("{event}, 2, null"), 100, 150).await,
        ];
        let now = app.clock.now();
        for room in [small, large, stands[0], stands[1]] {
            let remote = "insert into remote_members (room_id, matrix_user_id, membership, changed_at)
                          values ($1, '@ada:elsewhere.example', 'join', $2)";
            sqlx::query(remote).bind(room.0).bind(now).execute(&app.app.core.db).await.expect("a remote member");
        }
        assert_eq!(statistics(&user, "small").await, reference(app, &[small], event).await);
        assert_eq!(statistics(&user, "large").await, reference(app, &[large], event).await);
        for stand in ["north", "south"] {
            assert_eq!(statistics(&user, stand).await, reference(app, &stands, event).await);
        }
        let stored: Vec<i64> = sqlx::query_scalar("select room_id from room_statistics order by 1")
            .fetch_all(&app.app.core.db)
            .await
            .expect("the stored statistics");
        assert_eq!(stored, [large.0, stands[0].0], "large rooms, and the first of several stands");

        // Blocked members are counted but not named; the next best take their places.
        let top = statistics(&user, "large").await["top_predictors"].clone();
        user.post(&format!("/api/auth/blocks/{}", top[0]["user_id"]), json!({})).await.expect(200);
        app.published().await;
        let without = statistics(&user, "large").await;
        assert_eq!(without["top_predictors"].as_array().map(Vec::len), Some(10));
        assert_eq!(without["top_predictors"][0], top[1]);
        assert_eq!(without["total_members"], 4_501);
        // Deleted accounts are not named.
        sqlx::query("update users set deleted_at = now() where user_id = $1")
            .bind(top[1]["user_id"].as_i64())
            .execute(&app.app.core.db)
            .await
            .expect("deleted");
        assert_eq!(statistics(&user, "large").await["top_predictors"][0], top[2]);
    })
    .await;
}

#[tokio::test]
async fn statistics_of_large_room_follow_changes() {
    TestApp::run_with(&NO_REDIS, async |app| {
        let event = app.fixtures().a_match("m").put().await;
        app.published().await;
        insert_users(app, event, 1_001).await;
        let user = app.user().await;
        let room = insert_room(app, "large", &format!("{event}, null, 1"), 0, 1_000).await;
        let total = async || statistics(&user, "large").await["total_members"].clone();
        assert_eq!(total().await, 1_000);
        let join =
            "insert into room_members (user_id, room_id, membership, changed_at) values (1001000, $1, 'join', now())";
        sqlx::query(join).bind(room.0).execute(&app.app.core.db).await.expect("a member");
        assert_eq!(total().await, 1_000, "stored statistics are served");
        let due = async || -> OffsetDateTime {
            let due = sqlx::query_scalar("select due_at from room_statistics");
            due.fetch_one(&app.app.core.db).await.expect("stored statistics")
        };
        let first_due = due().await;
        app.clock.advance(first_due - app.clock.now() + Duration::SECOND);
        assert_eq!(total().await, 1_000, "slightly overdue statistics are served during the computation");
        eventually("new statistics are stored", async || due().await > first_due).await;
        assert_eq!(total().await, 1_001);

        // After a long pause, a request waits for current statistics.
        sqlx::query("delete from room_members where user_id < 1000010").execute(&app.app.core.db).await.expect("left");
        app.clock.advance(Duration::hours(2));
        assert_eq!(total().await, 991);
        // Statistics that no request needs any more are deleted.
        assert_eq!(app.app.rooms.sweep().await.expect("swept"), 0);
        app.clock.advance(Duration::hours(2));
        assert_eq!(app.app.rooms.sweep().await.expect("swept"), 1);
    })
    .await;
}

#[tokio::test]
async fn one_process_at_a_time_computes_statistics() {
    TestApp::run_with(&NO_REDIS, async |app| {
        let event = app.fixtures().a_match("m").put().await;
        app.published().await;
        let room = insert_room(app, "large", &format!("{event}, null, 1"), 0, 0).await;
        let (db, now) = (&app.app.core.db, app.clock.now());
        // Each process claims until a different time, which identifies the claim.
        let claim = async |at: OffsetDateTime| {
            let claims = (1..=20).map(|process| store::claim_statistics(db, room, at, at + Duration::seconds(process)));
            let claims = join_all(claims).await.into_iter().map(|claimed| claimed.expect("an outcome"));
            claims.zip(1..).filter_map(|(claimed, process)| claimed.then_some(process)).collect::<Vec<i64>>()
        };
        let winners = claim(now).await;
        assert_eq!(winners.len(), 1, "{winners:?}");
        let until = now + Duration::seconds(winners[0]);
        let due_at = now + Duration::seconds(40);
        assert!(
            !store::put_statistics(db, room, until + Duration::SECOND, &json!({}), due_at).await.expect("an outcome")
        );
        assert!(store::put_statistics(db, room, until, &json!({}), due_at).await.expect("an outcome"));
        assert_eq!(claim(due_at - Duration::SECOND).await, Vec::<i64>::new(), "at most one computation per interval");
        assert_eq!(claim(due_at).await.len(), 1);
        // The claim of a process that crashed expires.
        assert_eq!(claim(due_at + Duration::seconds(20)).await.len(), 1);
    })
    .await;
}

/// Blocks of tables and indexes that the only connection of a process has read.
async fn blocks_read(db: &PgPool) -> i64 {
    sqlx::query("select pg_stat_force_next_flush()").execute(db).await.expect("flushed");
    let blocks = "select (sum(heap_blks_hit + heap_blks_read) + sum(coalesce(idx_blks_hit + idx_blks_read, 0))
                   + sum(coalesce(toast_blks_hit + toast_blks_read, 0)))::bigint from pg_statio_user_tables";
    sqlx::query_scalar(blocks).fetch_one(db).await.expect("statistics")
}

/// Blocks that ten calls read, after some that let the server settle on a plan.
async fn cost(db: &PgPool, call: impl AsyncFn()) -> i64 {
    for _ in 0..8 {
        call().await;
    }
    // The least of three: background work on the same connection would add to a measurement.
    let mut least = i64::MAX;
    for _ in 0..3 {
        let before = blocks_read(db).await;
        for _ in 0..10 {
            call().await;
        }
        least = least.min(blocks_read(db).await - before);
    }
    least
}

#[tokio::test]
async fn reads_cost_the_same_in_rooms_of_any_size() {
    const LARGE: i64 = 20_000;
    TestApp::run(async |app| {
        let event = app.fixtures().a_match("m").put().await;
        app.published().await;
        insert_users(app, event, LARGE).await;
        let rooms = [
            ("small", insert_room(app, "small", &format!("{event}, null, 1"), 7, 1_000).await),
            ("large", insert_room(app, "large", &format!("{event}, null, 1"), 0, LARGE).await),
        ];
        // The same members again, in 30 stands of a match.
        let (mut stands, size) = (Vec::new(), LARGE / 30);
        for stand in 1..=30 {
            let (name, columns) = (format!("stand{stand}"), format!("{event}, {stand}, null"));
            stands.push(insert_room(app, &name, &columns, (stand - 1) * size, size).await);
        }
        // A match with a few hundred members in stands, because finding the stands of a match also costs something.
        let (quiet, mut few) = (app.fixtures().a_match("n").put().await, Vec::new());
        app.published().await;
        for stand in 1..=5 {
            let (name, columns) = (format!("few{stand}"), format!("{quiet}, {stand}, null"));
            few.push(insert_room(app, &name, &columns, (stand - 1) * 50, 50).await);
        }
        run(app.owner(), "vacuum analyze").await;
        let process = app.with_one_connection().await;
        let (db, user) = (&process.app.core.db, process.user().await);
        let paths = |room: &str| {
            [
                format!("/api/auth/chat-rooms/!{room}:example.org/member-stats"),
                format!("/api/auth/chat-rooms/!{room}:example.org/predictions"),
                format!("/api/auth/leaderboards?room_id=!{room}:example.org"),
            ]
        };
        let mut costs = Vec::new();
        for (room, id) in [rooms[0], ("few1", few[0]), rooms[1], ("stand1", stands[0]), ("stand30", stands[0])] {
            for path in paths(room) {
                // On a slow machine, the first computation may outlast the first request.
                eventually("the room can be read", async || user.get(&path).await.status == 200).await;
            }
            // A copy during the measurement would use the same connection.
            set_due(app, id, i64::MAX / 1_000_000).await;
            let mut of_room = Vec::new();
            for path in paths(room) {
                of_room.push(cost(db, async || drop(user.get(&path).await.expect(200))).await);
            }
            costs.push((room, of_room));
        }
        let allowed: Vec<i64> = costs[0].1.iter().zip(&costs[1].1).map(|(room, few)| room.max(few) * 3 / 2).collect();
        for (room, cost) in &costs {
            assert!(cost.iter().zip(&allowed).all(|(cost, allowed)| cost <= allowed), "{room}: {costs:?}");
        }
        assert!(costs[0].1.iter().all(|&cost| cost > 10), "the measurement sees the reads: {costs:?}");
        // A count over all members costs more in the larger room, so the measurement would show one.
        let since = app.clock.now();
        let mut counted = Vec::new();
        for (name, id) in rooms {
            let room = store::get(db, id).await.expect("read").expect("a room");
            let count = async || drop(census::count(db, &room, since, 10).await.expect("counted"));
            counted.push((name, cost(db, count).await));
        }
        assert!(counted[1].1 > counted[0].1 * 10, "{counted:?}");
        db.close().await;
    })
    .await;
}

/// Sets the time at which a room's leaderboard is copied again, in milliseconds since 1970.
async fn set_due(app: &TestApp, room: RoomId, due: i64) -> String {
    let mut redis = redis_client::connect(&app.app.config.redis).expect("a valid URL");
    let key = format!("{{{}:board:room:{}:all}}:due", app.app.config.redis.prefix, room.0);
    redis::cmd("SET").arg(&key).arg(due).exec_async(&mut redis).await.expect("set");
    key
}

/// The large room's leaderboard: rank and user, best first.
async fn expected_board(app: &TestApp, room: RoomId) -> Vec<(i64, i64)> {
    sqlx::query_as(
        "select rank() over (order by s.points desc), s.user_id
         from room_members m join user_scores s on s.user_id = m.user_id and s.scope = 'all'
         where m.room_id = $1 and s.settled > 0 order by s.points desc, s.exact desc, s.correct desc, s.user_id",
    )
    .bind(room.0)
    .fetch_all(&app.app.core.db)
    .await
    .expect("the scores")
}

fn places(entries: &Value) -> Vec<(i64, i64)> {
    let place = |entry: &Value| Some((entry["rank"].as_i64()?, entry["user"]["id"].as_i64()?));
    entries.as_array().expect("a list").iter().map(|entry| place(entry).expect("a place")).collect()
}

#[tokio::test]
async fn leaderboard_of_large_room_follows_scores() {
    TestApp::run(async |app| {
        let event = app.fixtures().a_match("m").put().await;
        app.published().await;
        insert_users(app, event, 5_000).await;
        let room = insert_room(app, "large", &format!("{event}, null, 1"), 500, 3_000).await;
        let all = expected_board(app, room).await;
        let own = all.len() / 2;
        let user = app.login(web::ids::UserId(all[own].1)).await;
        let board =
            async || user.get("/api/auth/leaderboards?room_id=!large:example.org&per_page=50").await.expect(200);
        let shown = board().await;
        assert_eq!(shown["meta"]["total_players"], all.len());
        assert_eq!(places(&shown["data"]["top"]), all[..50]);
        assert_eq!(places(&shown["data"]["neighbours"]), all[own - 5..=own + 5]);
        assert_eq!(places(&json!([shown["data"]["me"]])), [all[own]]);
        let unknown = "/api/auth/leaderboards?room_id=!large:example.org&tournament_id=999";
        assert_eq!(user.get(unknown).await.expect(200)["meta"]["total_players"], 0);

        let first = "update user_scores set points = 100000 where user_id = $1 and scope = 'all'";
        sqlx::query(first).bind(all[own].1).execute(&app.app.core.db).await.expect("a score");
        // As if the copy had been made long ago.
        let due = set_due(app, room, 1).await;
        eventually("the new score is shown", async || {
            places(&json!([board().await["data"]["me"]])) == [(1, all[own].1)]
        })
        .await;
        let mut redis = redis_client::connect(&app.app.config.redis).expect("a valid URL");
        let keys = redis::cmd("KEYS").arg(format!("{{{}:board:room:*", app.app.config.redis.prefix)).clone();
        let mut keys: Vec<String> = keys.query_async(&mut redis).await.expect("the keys");
        keys.sort_unstable();
        assert_eq!(keys, [due.trim_end_matches(":due"), due.as_str()], "no claim and no unfinished set is left");
    })
    .await;
}

#[tokio::test]
async fn leaderboard_of_large_room_needs_redis() {
    TestApp::run_with(&NO_REDIS, async |app| {
        let event = app.fixtures().a_match("m").put().await;
        app.published().await;
        insert_users(app, event, 300).await;
        insert_room(app, "large", &format!("{event}, null, 1"), 0, 300).await;
        let user = app.user().await;
        let refused = user.get("/api/auth/leaderboards?room_id=!large:example.org").await;
        assert_eq!(refused.expect(503)["code"], "leaderboard_unavailable");
    })
    .await;
}

#[tokio::test]
async fn predictions_of_large_room_are_listed_once() {
    TestApp::run_with(&NO_REDIS, async |app| {
        let event = app.fixtures().a_match("m").put().await;
        app.published().await;
        insert_users(app, event, 12_000).await;
        // In a long range of ids, no user has a prediction.
        let gap = "delete from predictions where user_id between 1001000 and 1009000";
        sqlx::query(gap).execute(&app.app.core.db).await.expect("deleted");
        insert_room(app, "large", &format!("{event}, null, 1"), 0, 11_000).await;
        insert_room(app, "north", &format!("{event}, 1, null"), 500, 250).await;
        insert_room(app, "south", &format!("{event}, 2, null"), 10_000, 250).await;
        let user = app.user().await;
        for (rooms, filter, condition) in [
            (&["large"][..], "", "true"),
            (&["large"], "&prediction=draw", "p.prediction = 'draw'"),
            (&["north", "south"], "", "true"),
        ] {
            let expected: Vec<i64> = sqlx::query_scalar(AssertSqlSafe(format!(
                "select p.user_id from predictions p join room_members m on m.user_id = p.user_id join rooms r on r.id = m.room_id
                 where p.event_id = {event} and r.name = any($1) and {condition} order by 1"
            )))
            .bind(rooms)
            .fetch_all(&app.app.core.db)
            .await
            .expect("the predictions");
            let (mut listed, mut cursor, mut pages) = (Vec::new(), String::new(), 0);
            loop {
                let path = format!("/api/auth/chat-rooms/!{}:example.org/predictions?per_page=70{filter}{cursor}", rooms[0]);
                let page = user.get(&path).await.expect(200);
                let entries = page["data"].as_array().expect("a list").iter();
                listed.extend(entries.map(|entry| entry["user"]["id"].as_i64().expect("an id")));
                pages += 1;
                if filter.is_empty() {
                    assert_eq!(page["meta"]["total_predictions"], expected.len());
                }
                match page["meta"]["next_cursor"].as_str() {
                    None => break,
                    Some(next) => cursor = format!("&cursor={next}"),
                }
            }
            assert_eq!(listed, expected, "{rooms:?} {filter}");
            assert!(pages < 40, "{pages} pages");
        }
    })
    .await;
}

/// Inserts rooms of a fan that opened some minutes ago.
async fn insert_rooms(app: &TestApp, name: &str, creator: UserId, count: i32, minutes: i64) {
    let opened = app.clock.now() - Duration::minutes(minutes);
    run(
        &app.app.core.db,
        &format!(
            "with made as (
               insert into rooms (creator_id, matrix_id, alias, name, is_private, created_at, made_until, opened_at)
               select {creator}, '!{name}' || n || ':example.org', '{name}' || n, '{name}', '{name}' like 'private%',
                      '{opened}', '{opened}', '{opened}' from generate_series(1, {count}) n returning id)
             insert into room_activity (room_id, member_count, last_activity, compared_at)
               select id, 0, '{opened}', '{opened}' from made"
        ),
    )
    .await;
}

#[tokio::test]
async fn total_of_rooms_is_exact_without_counting_old_ones() {
    TestApp::run(async |app| {
        let (caller, friend, blocked) = (app.user().await, app.user().await, app.user().await);
        let total = async |query: &str| {
            let listed = caller.get(&format!("/api/auth/chat-rooms?per_page=1{query}")).await.expect(200);
            listed["meta"]["total"].as_i64().expect("a number")
        };
        insert_rooms(app, "old", friend.id, 7, 5).await;
        insert_rooms(app, "new", friend.id, 3, 0).await;
        insert_rooms(app, "private", friend.id, 4, 5).await;
        insert_rooms(app, "hidden", blocked.id, 2, 5).await;
        let db = &app.app.core.db;
        run(
            db,
            &format!(
                "insert into room_members (user_id, room_id, membership, changed_at)
                   select {}, id, 'join', now() from rooms where alias = 'private1';
                 insert into blocks (user_id, blocked_id, created_at) values ({}, {}, now())",
                caller.id, caller.id, blocked.id
            ),
        )
        .await;
        assert_eq!((total("").await, total("&search=ne").await, total("&joined=true").await), (11, 3, 1));
        // Found at once, although the number of old rooms is kept.
        insert_rooms(app, "newer", caller.id, 1, 0).await;
        assert_eq!((total("").await, total("&search=ne").await), (12, 4));
        let slot = app.app.rooms.inner.counts.get(&None).expect("a count");
        let mut kept = slot.lock().await.expect("a count");
        assert_eq!(kept.public, 9, "old rooms, also hidden ones");
        (kept.public, kept.at) = (1_009, kept.at + std::time::Duration::from_hours(1));
        *slot.lock().await = Some(kept);
        assert_eq!(total("").await, 1_012, "not counted again");
    })
    .await;
}
