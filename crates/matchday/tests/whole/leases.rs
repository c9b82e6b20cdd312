//! Background tasks move to another process when theirs ends.

use std::{collections::BTreeSet, time::Duration};

use matchday::testing::{eventually, with_database};
use sqlx::{PgPool, types::Uuid};

use crate::{
    client::{PATIENCE, within},
    process::Setting,
};

/// Holders of the unexpired leases with a length of at most five seconds.
async fn holders(db: &PgPool) -> BTreeSet<Uuid> {
    let query = "select distinct holder from leases
                 where expires_at > now() and expires_at - granted_at <= interval '5 seconds'";
    sqlx::query_scalar(query).fetch_all(db).await.expect("read").into_iter().collect()
}

async fn count(db: &PgPool) -> i64 {
    sqlx::query_scalar("select count(*) from leases").fetch_one(db).await.expect("read")
}

/// Number of periodic tasks that one process runs.
const TASKS: i64 = 24;

#[tokio::test]
async fn stopped_or_killed_process_hands_over_its_tasks() {
    with_database(async |options| {
        let setting = Setting::new(&options).with("MATCHDAY_OUTBOX__LEASE", "3s");
        let db = PgPool::connect_with(options).await.expect("connected");
        let mut first = setting.start(&["worker"]);
        eventually("the first process runs all tasks", async || count(&db).await == TASKS).await;
        let of_first = holders(&db).await;
        assert_eq!(of_first.len(), 1, "{of_first:?}");
        let mut second = setting.start(&["worker"]);
        // Long enough for the second process to ask for leases, and for the first to renew them.
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(holders(&db).await, of_first, "the first process keeps them");

        first.signal("TERM");
        first.ended().await;
        eventually("the second process runs all tasks", async || count(&db).await == TASKS).await;
        let of_second = holders(&db).await;
        assert!(of_second.len() == 1 && of_second != of_first, "{of_first:?}, {of_second:?}");

        let third = setting.start(&["worker"]);
        second.kill();
        within(PATIENCE, "the third process takes over", async || {
            let holders = holders(&db).await;
            holders.len() == 1 && holders != of_second
        })
        .await;
        drop(third);
        db.close().await;
    })
    .await;
}
