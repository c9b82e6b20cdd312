//! Goals and the seal are announced once in every stand, although workers are killed while they post them.

use std::time::Duration;

use matchday::testing::with_database;
use serde_json::{Value, json};
use sqlx::PgPool;

use crate::{
    client::{Homeserver, shows},
    report,
    synapse::with_synapse,
};

const STANDS: i32 = 20;
const GOALS: i32 = 4;

/// A match with this status and home score.
fn document(status: &str, score: Option<i32>) -> String {
    json!({"sport": {"slug": "football", "name": "Football"},
           "tournament": {"slug": "cup", "name": "Cup", "logo": null},
           "teams": [{"slug": "rovers", "name": "Rovers"}, {"slug": "city", "name": "City"}],
           "matches": [{"key": "m", "home": "rovers", "away": "city", "start_time": "2090-05-01T15:00:00Z", "venue": "Park",
                        "status": status, "home_score": score, "away_score": score.map(|_| 0)}]})
    .to_string()
}

/// Creates a room as the bot, and makes it a stand of the match.
async fn open_stand(db: &PgPool, chat: &Homeserver, bot: &str, stand: i32) {
    let body = json!({"preset": "public_chat", "room_alias_name": format!("match_stand_{stand}")});
    let (status, made) = chat.post("/_matrix/client/v3/createRoom", bot, body).await;
    assert_eq!(status, 200, "{made}");
    sqlx::query(
        "with room as (
           insert into rooms (event_id, stand, matrix_id, alias, name, created_at, made_until, opened_at)
           select id, $1, $2, $2, 'Stand', now(), now(), now() from events returning id)
         insert into room_activity (room_id, member_count, last_activity, compared_at)
         select id, 0, now(), now() from room",
    )
    .bind(stand)
    .bind(made["room_id"].as_str().expect("an id"))
    .execute(db)
    .await
    .expect("a stand");
}

/// Texts of the bot's announcements in a room, oldest first.
async fn announced(chat: &Homeserver, bot: &str, room: &str) -> Vec<String> {
    let (status, page) = chat.get(&format!("/_matrix/client/v3/rooms/{room}/messages?dir=b&limit=100"), bot).await;
    assert_eq!(status, 200, "{page}");
    let events = page["chunk"].as_array().expect("a list").iter().rev();
    let is_announcement = |event: &&Value| event["content"]["app.matchday.announcement"].is_object();
    events.filter(is_announcement).filter_map(|event| event["content"]["body"].as_str()).map(str::to_owned).collect()
}

#[tokio::test]
async fn killed_workers_announce_each_goal_once_in_every_stand() {
    with_database(async |options| {
        with_synapse(&options, async |synapse| {
            let pushed = synapse.setting(&options);
            let setting = pushed.clone().with("MATCHDAY_HTTP__PRIVATE_LISTEN", "127.0.0.1:0");
            let bot = pushed.variables()["MATCHDAY_MATRIX__AS_TOKEN"].clone();
            let _receiver = pushed.start(&["serve", "--no-workers"]);
            let mut workers = vec![setting.start(&["worker"]), setting.start(&["worker"])];
            let (db, chat) =
                (PgPool::connect_with(options.clone()).await.expect("connected"), Homeserver::at(&synapse.url));
            setting.expect(&["fixtures", "import", "-"], &document("scheduled", None));
            for stand in 2..=STANDS {
                open_stand(&db, &chat, &bot, stand).await;
            }
            let rooms: Vec<String> = sqlx::query_scalar("select matrix_id from rooms where opened_at is not null")
                .fetch_all(&db)
                .await
                .expect("rooms");
            assert_eq!(rooms.len(), usize::try_from(STANDS).expect("few"));

            let mut killed = 0;
            for (score, pauses) in (0..=GOALS).zip([[90, 310], [20, 170], [240, 60], [400, 130], [280, 35]]) {
                setting.expect(&["fixtures", "import", "--no-wait", "-"], &document("live", Some(score)));
                for pause in pauses {
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                    workers.remove(0).kill();
                    workers.push(setting.start(&["worker"]));
                    killed += 1;
                }
            }
            // Kick-off, goals and the seal.
            let number = usize::try_from(GOALS + 2).expect("few");
            let complete = async || {
                let mut complete = 0;
                for room in &rooms {
                    complete += usize::from(announced(&chat, &bot, room).await.len() >= number);
                }
                complete
            };
            shows(Duration::from_mins(2), "every stand has all announcements", &rooms.len(), complete).await;
            // The seal is announced apart from the goals, so it can be anywhere among them.
            let apart = async |room: &str| {
                let all = announced(&chat, &bot, room).await;
                assert_eq!(all.len(), number, "{all:?}");
                let (seals, others): (Vec<_>, Vec<_>) =
                    all.into_iter().partition(|text| text.starts_with("0 predictions sealed · Seal 1: "));
                assert_eq!(seals.len(), 1, "{others:?}");
                (seals, others)
            };
            let (seals, first) = apart(&rooms[0]).await;
            assert!(
                first[1..].iter().enumerate().all(|(goal, text)| text.contains(&format!("{} – 0", goal + 1))),
                "{first:?}"
            );
            for room in &rooms {
                assert_eq!(apart(room).await, (seals.clone(), first.clone()));
            }
            report(&format!(
                "announcements: kick-off, {GOALS} goals and the seal once in {STANDS} stands, {killed} workers killed"
            ));
            db.close().await;
        })
        .await;
    })
    .await;
}
