//! Reminders sent by the real binary, with workers that are killed while they send.

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
/// Reminders that a killed worker may have claimed without sending: two concurrent batches of a hundred.
const MAX_UNSENT: usize = 200;

fn document() -> String {
    json!({"sport": {"slug": "football", "name": "Football"}, "tournament": {"slug": "cup", "name": "Cup", "logo": null},
           "teams": [{"slug": "rovers", "name": "Rovers"}, {"slug": "city", "name": "City"}],
           "matches": [{"key": "m", "home": "rovers", "away": "city", "start_time": "2090-01-10T15:00:00Z",
                        "venue": "Park", "status": "scheduled", "home_score": null, "away_score": null}]})
    .to_string()
}

/// Number of reminders that the hook received, by user.
fn reminded(hook: &Receiver) -> BTreeMap<i64, usize> {
    let mut reminded = BTreeMap::new();
    for received in hook.seen() {
        for user in received.json()["data"]["user_ids"].as_array().expect("users") {
            *reminded.entry(user.as_i64().expect("an id")).or_default() += 1;
        }
    }
    reminded
}

async fn users(db: &PgPool, query: &'static str) -> BTreeSet<i64> {
    sqlx::query_scalar(query).fetch_all(db).await.expect("read").into_iter().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_workers_never_remind_twice() {
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
            within(PATIENCE, "reminders are being sent", async || hook.seen().len() >= before + 4).await;
            worker.kill();
            assert!(reminded(&hook).len() < 2_800, "the worker was killed too late, round {round}");
        }
        let last = setting.start(&["worker"]);
        let finished =
            async || !users(&db, "select event_id from reminder_plans where finished_at is not null").await.is_empty();
        within(PATIENCE, "all reminders are planned", finished).await;
        let waiting = async || streams.waiting(Stream::Work, "work.reminder.>").await.expect("read");
        within(PATIENCE, "no work is left", async || waiting().await.is_empty()).await;

        let (reminded, claimed) = (reminded(&hook), users(&db, "select user_id from reminders").await);
        assert!(reminded.values().all(|times| *times == 1), "no user is reminded twice");
        let unsent: Vec<i64> = claimed.iter().copied().filter(|user| !reminded.contains_key(user)).collect();
        assert!(unsent.len() <= KILLS * MAX_UNSENT, "{} users got no reminder", unsent.len());
        assert_eq!(claimed.len(), usize::try_from(FANS).expect("small"), "every user was claimed");
        assert!(reminded.keys().all(|user| claimed.contains(user)), "no reminder is sent without a claim");
        report(&format!("{} of {FANS} fans were reminded once, {} not at all", reminded.len(), unsent.len()));
        drop(last);
        streams.remove().await;
        db.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reminder_is_sent_an_hour_before_kick_off() {
    with_database(async |options| {
        let hook = Receiver::start(|_, _| Reply::status(200)).await;
        let setting = Setting::new(&options)
            .with("MATCHDAY_MATRIX__HOMESERVER_URL", "")
            .with("MATCHDAY_NOTIFICATIONS__HOOK_URL", hook.url.as_str())
            .with("MATCHDAY_NOTIFICATIONS__HOOK_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let streams = streams(&setting).await;
        let db = PgPool::connect_with(options).await.expect("connected");
        // Two processes: one plans the reminders, and both send them.
        let workers = [setting.start(&["serve"]), setting.start(&["worker"])];
        setting.expect(&["fixtures", "import", "-", "--no-wait"], &document());
        for statement in [
            "insert into users (created_at, username) values (now(), 'ada'), (now(), 'ben')",
            "insert into user_teams (user_id, rank, team_id) select 1, 0, min(id) from teams",
            "update events set start_time = now() + interval '59 minutes'",
        ] {
            sqlx::query(statement).execute(&db).await.expect("written");
        }
        within(PATIENCE, "the reminder is sent", async || !hook.seen().is_empty()).await;
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
