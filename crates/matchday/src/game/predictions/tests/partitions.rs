//! Tests of the partitions of predictions, by ranges of match ids.

use futures_util::future::join_all;
use scoring::{Confidence, Forecast, Pick};
use serde_json::json;
use sqlx::PgConnection;
use uuid::Uuid;
use web::ids::{MatchId, UserId};

use super::{
    super::store::{self, Entry},
    FAR, far, predict,
};
use crate::{
    catalogue::matches::partitions::{self, TooFewLocks},
    testing::TestApp,
};

async fn first_ids(app: &TestApp) -> Vec<i64> {
    sqlx::query_scalar("select p from event_partitions() p order by p").fetch_all(&app.app.core.db).await.expect("read")
}

async fn as_owner(app: &TestApp, statements: &'static str) {
    sqlx::raw_sql(statements).execute(app.owner()).await.expect(statements);
}

#[tokio::test]
async fn import_adds_partitions_of_its_matches() {
    TestApp::run(async |app| {
        let (fixtures, user) = (app.fixtures(), app.user().await);
        let near = far(&fixtures).put().await;
        assert_eq!(first_ids(app).await, [0, 1_000], "the partition of the first matches, and a spare one");
        as_owner(app, "select setval(pg_get_serial_sequence('events', 'id'), 123998)").await;
        let late = fixtures.a_match("late").starting_in(FAR).put().await;
        let last = fixtures.a_match("last").starting_in(FAR).put().await;
        assert_eq!((late, last), (123_999, 124_000));
        assert_eq!(first_ids(app).await, [0, 1_000, 123_000, 124_000, 125_000], "a gap needs no partitions");

        for (event, partition) in [(near, "0"), (late, "123000"), (last, "124000")] {
            predict(&user, json!({"event_id": event, "prediction": "home"})).await.expect(201);
            predict(&user, json!({"event_id": event, "prediction": "away"})).await.expect(200);
            let found: (String, String) = sqlx::query_as(
                "select p.tableoid::regclass::text, r.tableoid::regclass::text
                 from predictions p join prediction_revisions r using (user_id, event_id) where event_id = $1",
            )
            .bind(event)
            .fetch_one(&app.app.core.db)
            .await
            .expect("one prediction with one earlier revision");
            assert_eq!(found, (format!("predictions_{partition}"), format!("prediction_revisions_{partition}")));
        }
        let own = user.get("/api/auth/predictions").await.expect(200);
        assert_eq!(own["data"].as_array().map(Vec::len), Some(3));
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn archived_partition_is_not_added_again() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        as_owner(app, "select setval(pg_get_serial_sequence('events', 'id'), 998)").await;
        far(&fixtures).put().await;
        let event = fixtures.a_match("second").starting_in(FAR).put().await;
        assert_eq!((event, first_ids(app).await), (1_000, vec![0, 1_000, 2_000]));
        as_owner(
            app,
            "alter table predictions detach partition predictions_0; drop table predictions_0;
             alter table prediction_revisions detach partition prediction_revisions_0",
        )
        .await;
        fixtures.a_match("third").starting_in(FAR).put().await;
        assert_eq!(partitions::add(&app.app.core.db).await.expect("checked"), 0);
        assert_eq!(first_ids(app).await, [1_000, 2_000]);
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn lock_table_must_grow_with_the_partitions() {
    TestApp::run(async |app| {
        let db = &app.app.core.db;
        let event = far(&app.fixtures()).put().await;
        assert_eq!(partitions::too_few_locks(db).await.expect("checked"), None);
        let setting: i64 = sqlx::query_scalar("select current_setting('max_locks_per_transaction')::bigint")
            .fetch_one(db)
            .await
            .expect("read");
        // With the spare one, this is one partition for eight locks.
        let matches = "insert into events (id, tournament_id, key, home_team_id, away_team_id, start_time, status, updated_at)
                           overriding system value
                       select n * 1000, tournament_id, 'other ' || n, home_team_id, away_team_id, start_time, status, updated_at
                       from events, generate_series(1, $2 - 2) as n where id = $1";
        sqlx::query(matches).bind(event).bind(setting / 8).execute(app.owner()).await.expect("inserted");
        partitions::add(db).await.expect("added");
        let partitions = i64::try_from(first_ids(app).await.len()).expect("a number");
        let expected = TooFewLocks { setting, needed: 9 * partitions + 16 };
        assert_eq!(partitions::too_few_locks(db).await.expect("checked"), Some(expected));
        app.published().await;
    })
    .await;
}

/// Returns the number of entries that a transaction has in the lock table. The modes of a lock share an entry.
async fn locks_of(connection: &mut PgConnection) -> i64 {
    sqlx::query_scalar(
        "select count(*)
         from (select distinct locktype, database, relation, page, tuple, virtualxid, transactionid::text, classid, objid,
                      objsubid
               from pg_locks where pid = pg_backend_pid()) l",
    )
    .fetch_one(connection)
    .await
    .expect("counted")
}

/// A list of a user's predictions reads both tables, and a batch that replaces predictions writes to both.
#[tokio::test]
async fn transaction_takes_no_more_locks_than_expected() {
    TestApp::run(async |app| {
        let (event, user, other) = (far(&app.fixtures()).put().await, app.user().await, app.user().await);
        predict(&user, json!({"event_id": event, "prediction": "home"})).await.expect(201);
        let matches = "insert into events (id, tournament_id, key, home_team_id, away_team_id, start_time, status, updated_at)
                           overriding system value
                       select n * 1000, tournament_id, 'other ' || n, home_team_id, away_team_id, start_time, status, updated_at
                       from events, generate_series(1, 18) as n where id = $1";
        sqlx::query(matches).bind(event).execute(app.owner()).await.expect("inserted");
        partitions::add(&app.app.core.db).await.expect("added");
        let partitions = i64::try_from(first_ids(app).await.len()).expect("a number");
        assert_eq!(partitions, 20);
        let most = 9 * partitions + 16;

        let mut tx = platform::database::begin(&app.app.core.db).await.expect("begun");
        // Sessions use such a plan after a few executions.
        sqlx::query("set local plan_cache_mode = force_generic_plan").execute(&mut *tx).await.expect("set");
        assert_eq!(store::own(&mut *tx, user.id, None, false, None, 10).await.expect("read").len(), 1);
        let held = locks_of(&mut tx).await;
        assert!((4 * partitions..=most).contains(&held), "{held} locks of a list for {partitions} partitions");
        drop(tx);

        let mut tx = platform::database::begin(&app.app.core.db).await.expect("begun");
        // The batch writers use such plans, except on Citus.
        let plans = "select set_config('plan_cache_mode', case when exists (select 1 from pg_extension where extname = 'citus')
                                                          then 'auto' else 'force_generic_plan' end, true)";
        sqlx::query(plans).execute(&mut *tx).await.expect("set");
        let shards = app.app.core.shards.get(&mut tx).await.expect("read");
        let now = platform::database::now(&mut *tx).await.expect("read");
        let forecast = Forecast::new(Pick::Away, None, Confidence::default()).expect("a forecast");
        let entry = |user: UserId, salt: u128| {
            let salt = Uuid::from_u128(salt);
            Entry { user, event: MatchId(event), forecast, salt, request: None }
        };
        let inserted = store::insert(&mut tx, &[entry(other.id, 1)], now).await.expect("inserted");
        assert_eq!(inserted.len(), 1);
        let rest = [entry(user.id, 2)];
        let earlier = store::lock_earlier(&mut tx, shards, &rest).await.expect("locked");
        assert_eq!(earlier.len(), 1);
        store::keep_earlier(&mut tx, shards, &earlier, now).await.expect("kept");
        store::replace(&mut tx, shards, &rest, &earlier, now).await.expect("replaced");
        let held = locks_of(&mut tx).await;
        assert!(held <= most, "{held} locks of a batch for {partitions} partitions");
        drop(tx);
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn concurrent_processes_add_a_partition_once() {
    TestApp::run(async |app| {
        as_owner(app, "drop table predictions_1000, prediction_revisions_1000").await;
        let added = join_all((0..4).map(|_| partitions::add(&app.app.core.db))).await;
        let added: i32 = added.into_iter().map(|added| added.expect("added")).sum();
        assert_eq!((added, first_ids(app).await), (1, vec![0, 1_000]));
    })
    .await;
}

/// Adding a partition waits for no transaction that uses predictions, and the next statements of that transaction do not
/// wait either.
#[tokio::test]
async fn partition_is_added_while_predictions_are_written() {
    TestApp::run(async |app| {
        as_owner(app, "drop table predictions_1000, prediction_revisions_1000").await;
        let write =
            "insert into predictions (user_id, event_id, prediction, confidence, revision, created_at, updated_at)
                     values ($1, 1, 'home', 50, 1, now(), now())";
        let mut writer = platform::database::begin(&app.app.core.db).await.expect("begun");
        sqlx::query(write).bind(1_i64).execute(&mut *writer).await.expect("written");
        assert_eq!(partitions::add(&app.app.core.db).await.expect("added"), 1);
        sqlx::query(write).bind(2_i64).execute(&mut *writer).await.expect("written");
        writer.commit().await.expect("committed");
    })
    .await;
}

#[tokio::test]
async fn changed_match_takes_no_new_id() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let first = far(&fixtures).put().await;
        for status in ["postponed", "scheduled", "postponed"] {
            assert_eq!(far(&fixtures).being(status).put().await, first);
        }
        assert_eq!(fixtures.a_match("next").put().await, first + 1);
    })
    .await;
}
