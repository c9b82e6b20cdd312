//! An imported match reaches the lists of every process.

use matchday::testing::{eventually, with_database};
use serde_json::{Value, json};

use crate::process::{Setting, get};

fn document(status: &str, scores: (Option<i32>, Option<i32>)) -> String {
    json!({
        "sport": {"slug": "football", "name": "Football"},
        "tournament": {"slug": "cup", "name": "Cup"},
        "teams": [{"slug": "rovers", "name": "Rovers"}, {"slug": "city", "name": "City"}],
        "matches": [{"key": "final", "home": "rovers", "away": "city", "start_time": "2030-05-01T18:00:00Z",
                     "status": status, "home_score": scores.0, "away_score": scores.1}],
    })
    .to_string()
}

#[tokio::test]
async fn import_reaches_every_process() {
    with_database(async |options| {
        // The cache lifetime is long, so that only a message can cause a change.
        let setting = Setting::new(&options).with("MATCHDAY_PAGES__KEEP", "10m");
        let processes = [setting.start(&["serve"]), setting.start(&["serve", "--no-workers"])];
        let token = setting.expect(&["sessions", "issue"], "");
        let first = async |base: &str| -> Value {
            let (status, body) = get(base, "/api/auth/events", &token).await;
            assert_eq!(status, 200);
            body["data"][0].clone()
        };
        for process in &processes {
            assert_eq!(first(&process.public).await, Value::Null);
        }
        let printed = setting.expect(&["fixtures", "import", "-"], &document("scheduled", (None, None)));
        assert_eq!(printed, "Cup: imported\n  teams: 2 new, 0 changed, 0 unchanged\n  matches: 1 new, 0 changed, 0 unchanged\n  results: 0 new or corrected\n  chat: 1 room created");
        for process in &processes {
            eventually("the match is listed", async || first(&process.public).await["home_team"]["name"] == "Rovers").await;
            eventually("its room is listed", async || first(&process.public).await["chat_room_id"].is_string()).await;
        }
        let printed = setting.expect(&["fixtures", "import", "-", "--dry-run"], &document("finished", (Some(2), Some(1))));
        assert!(printed.starts_with("Cup: would be imported; nothing was written") && printed.contains("final: status scheduled → finished, score none → 2:1"), "{printed}");
        setting.expect(&["fixtures", "import", "-"], &document("finished", (Some(2), Some(1))));
        for process in &processes {
            eventually("the result is listed", async || first(&process.public).await["home_score"] == 2).await;
        }
    })
    .await;
}
