//! Reminders by the real binary, whose workers are killed in the middle of a crowd.

use std::collections::{BTreeMap, BTreeSet};

use matchday::testing::{Receiver, Reply, with_database};
use platform::stream::Stream;
use serde_json::json;
use sqlx::PgPool;

use crate::{
    client::{PATIENCE, within},
    process::Setting,
    relay::streams,
    report,
};

const FANS: i64 = 3_000;
const KILLS: usize = 3;
/// Two batches at once, a hundred claimed of each.
const IN_HAND: usize = 200;

fn document() -> String {
    json!({"sport": {"slug": "football", "name": "Football"}, "tournament": {"slug": "cup", "name": "Cup", "logo": null},
           "teams": [{"slug": "rovers", "name": "Rovers"}, {"slug": "city", "name": "City"}],
           "matches": [{"key": "m", "home": "rovers", "away": "city", "start_time": "2090-01-10T15:00:00Z",
                        "venue": "Park", "status": "scheduled", "home_score": null, "away_score": null}]})
    .to_string()
}

/// How often the hook was told of each user.
fn told(hook: &Receiver) -> BTreeMap<i64, usize> {
    let mut told = BTreeMap::new();
    for received in hook.seen() {
        for user in received.json()["data"]["user_ids"].as_array().expect("users") {
            *told.entry(user.as_i64().expect("an id")).or_default() += 1;
        }
    }
    told
}

async fn users(db: &PgPool, query: &'static str) -> BTreeSet<i64> {
    sqlx::query_scalar(query).fetch_all(db).await.expect("read").into_iter().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_killed_in_a_crowd_tell_nobody_twice_and_forget_only_whom_they_had_in_hand() {
    with_database(async |options| {
        let hook = Receiver::start(|_, _| Reply::status(200).after(std::time::Duration::from_millis(150))).await;
        let setting = Setting::new(&options)
            .with("MATCHDAY_MATRIX__HOMESERVER_URL", "")
            .with("MATCHDAY_NOTIFICATIONS__HOOK_URL", hook.url.as_str())
            .with("MATCHDAY_NOTIFICATIONS__HOOK_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let streams = streams(&setting).await;
        let db = PgPool::connect_with(options).await.expect("connected");
        setting.expect(&["fixtures", "import", "-", "--no-wait"], &document());
        for statement in [
            "update events set start_time = now() + interval '30 minutes'",
            "insert into users (created_at, username) select now(), 'fan' || n from generate_series(1, 3000) n",
            "insert into user_teams (user_id, rank, team_id) select user_id, 0, (select min(id) from teams) from users",
        ] {
            sqlx::query(statement).execute(&db).await.expect("written");
        }
        for round in 0..KILLS {
            let before = hook.seen().len();
            let mut worker = setting.start(&["worker"]);
            within(PATIENCE, "it is in the middle of it", async || hook.seen().len() >= before + 4).await;
            worker.kill();
            assert!(told(&hook).len() < 2_800, "killed before the end, round {round}");
        }
        let last = setting.start(&["worker"]);
        let finished =
            async || !users(&db, "select event_id from reminder_plans where finished_at is not null").await.is_empty();
        within(PATIENCE, "all is planned", finished).await;
        let waiting = async || streams.waiting(Stream::Work, "work.reminder.>").await.expect("read");
        within(PATIENCE, "all is done", async || waiting().await.is_empty()).await;

        let (told, claimed) = (told(&hook), users(&db, "select user_id from reminders").await);
        assert!(told.values().all(|times| *times == 1), "nobody twice");
        let forgotten: Vec<i64> = claimed.iter().copied().filter(|user| !told.contains_key(user)).collect();
        assert!(forgotten.len() <= KILLS * IN_HAND, "{} were in hand", forgotten.len());
        assert_eq!(claimed.len(), usize::try_from(FANS).expect("small"), "nobody else was forgotten");
        assert!(told.keys().all(|user| claimed.contains(user)), "nobody is told without a claim");
        report(&format!("{} of {FANS} fans were told once, {} not at all", told.len(), forgotten.len()));
        drop(last);
        streams.remove().await;
        db.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_match_that_is_an_hour_away_is_told_by_whoever_runs() {
    with_database(async |options| {
        let hook = Receiver::start(|_, _| Reply::status(200)).await;
        let setting = Setting::new(&options)
            .with("MATCHDAY_MATRIX__HOMESERVER_URL", "")
            .with("MATCHDAY_NOTIFICATIONS__HOOK_URL", hook.url.as_str())
            .with("MATCHDAY_NOTIFICATIONS__HOOK_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let streams = streams(&setting).await;
        let db = PgPool::connect_with(options).await.expect("connected");
        // Two of them: one plans, and both work.
        let workers = [setting.start(&["serve"]), setting.start(&["worker"])];
        setting.expect(&["fixtures", "import", "-", "--no-wait"], &document());
        for statement in [
            "insert into users (created_at, username) values (now(), 'ada'), (now(), 'ben')",
            "insert into user_teams (user_id, rank, team_id) select 1, 0, min(id) from teams",
            "update events set start_time = now() + interval '59 minutes'",
        ] {
            sqlx::query(statement).execute(&db).await.expect("written");
        }
        within(PATIENCE, "it is told", async || !hook.seen().is_empty()).await;
        let body = hook.seen()[0].json();
        assert_eq!((&body["type"], &body["data"]["user_ids"]), (&json!("reminder.due"), &json!([1])));
        assert_eq!(hook.seen().len(), 1);
        let printed = setting.expect(&["notifications", "key"], "");
        let key = printed.lines().find_map(|line| line.strip_prefix("vapid_private_key = ")).expect("a key");
        let with_key = setting
            .clone()
            .with("MATCHDAY_NOTIFICATIONS__VAPID_PRIVATE_KEY", key.trim_matches('"'))
            .with("MATCHDAY_NOTIFICATIONS__VAPID_SUBJECT", "mailto:ops@example.org");
        let settings = with_key.expect(&["config"], "");
        assert!(settings.contains("vapid_private_key = \"hidden\""), "{settings}");
        drop(workers);
        streams.remove().await;
        db.close().await;
    })
    .await;
}
