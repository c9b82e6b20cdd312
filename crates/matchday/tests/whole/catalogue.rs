//! An imported match reaches the lists of every process.

use matchday::{
    app::App,
    catalogue::fixtures::handlers::{ImportParameters, ResultBody, import_catalogue, set_result},
    config::Config,
    identity::operators::Operator,
    testing::{eventually, with_database},
};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgPool};
use web::fields::{Body, Parameters};

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

/// A season of four teams, as a provider would send it from week to week. The last documents correct results.
fn season() -> Vec<Value> {
    let teams = ["rovers", "city", "albion", "wanderers"];
    let pairs: Vec<(usize, usize)> =
        (0..4).flat_map(|home| (0..4).filter(move |away| *away != home).map(move |away| (home, away))).collect();
    let entry = |at: usize, week: usize| {
        let (home, away) = pairs[at];
        let (status, scores) = match week.cmp(&at) {
            std::cmp::Ordering::Less if at == 5 && week > 2 => ("postponed", None),
            std::cmp::Ordering::Less => ("scheduled", None),
            std::cmp::Ordering::Equal => ("live", Some((1, 0))),
            // Two weeks after a match, some results are corrected.
            std::cmp::Ordering::Greater if week > at + 2 && at.is_multiple_of(4) => ("awarded", Some((3, 0))),
            std::cmp::Ordering::Greater => ("finished", Some((1 + at % 3, at % 2))),
        };
        json!({"key": format!("m{at}"), "home": teams[home], "away": teams[away], "round": at / 2 + 1,
               "start_time": format!("2026-01-{:02}T{}:00:00Z", at + 1, if week > 3 { 15 } else { 18 }), "venue": "Park", "status": status,
               "home_score": scores.map(|(home, _)| home), "away_score": scores.map(|(_, away)| away)})
    };
    (0..16)
        .map(|week| {
            let names = teams.map(|slug| json!({"slug": slug, "name": format!("{slug} {}", if week > 7 { "United" } else { "" }).trim()}));
            json!({"sport": {"slug": "football", "name": "Football"}, "tournament": {"slug": "league", "name": "League"},
                   "teams": names, "matches": (0..pairs.len()).map(|at| entry(at, week)).collect::<Vec<_>>()})
        })
        .collect()
}

/// The catalogue and what depends on it, without times.
async fn catalogue(db: &PgPool) -> Vec<Value> {
    let mut tables = Vec::new();
    for table in ["sports", "tournaments", "teams", "events", "event_results", "outbox", "operator_actions"] {
        let rows = format!(
            "select coalesce(jsonb_agg(to_jsonb(t) - '{{created_at,updated_at,recorded_at,look_again_at,request_id}}'::text[]
                                       order by to_jsonb(t) - '{{created_at,updated_at,recorded_at,look_again_at,request_id}}'::text[]), '[]')
             from {table} t"
        );
        tables.push(sqlx::query_scalar(AssertSqlSafe(rows)).fetch_one(db).await.expect(table));
    }
    tables
}

/// Documents through the function of the server API, and the same documents through the command.
#[tokio::test]
async fn season_of_a_backend_equals_the_commands() {
    with_database(async |by_command| {
        with_database(async |by_backend| {
            let setting = |options| Setting::new(options).with("MATCHDAY_MATRIX__HOMESERVER_URL", "");
            let commands = setting(&by_command);
            let config = Config::parse(setting(&by_backend).variables().clone(), None).expect("valid").config;
            let app = App::connect(config).await.expect("connected");
            let operator = Operator::new("feed", "");
            for document in season() {
                let import = ["fixtures", "import", "-", "--no-wait", "--by", "feed"];
                commands.expect(&import, &document.to_string());
                let parameters = Parameters::parse::<ImportParameters>("").expect("valid");
                let text = document.to_string();
                let imported = import_catalogue(&app.fixtures, &operator, parameters, text.as_bytes()).await;
                assert!(imported.is_ok(), "{:?}", imported.err());
            }
            let [first, second] = [by_command, by_backend].map(PgPool::connect_lazy_with);
            let (expected, imported) = (catalogue(&first).await, catalogue(&second).await);
            assert_eq!(imported, expected);
            assert!(expected.iter().all(|rows| rows.as_array().is_some_and(|rows| !rows.is_empty())), "{expected:?}");

            // One result by each.
            let mut last = season().pop().expect("a document");
            last["matches"][7]["home_score"] = json!(9);
            commands.expect(&["fixtures", "import", "-", "--no-wait", "--by", "feed"], &last.to_string());
            let event = sqlx::query_scalar("select id from events where key = 'm7'");
            let event: i64 = event.fetch_one(&second).await.expect("the match");
            let away = &last["matches"][7]["away_score"];
            let body = json!({"status": "finished", "home_score": 9, "away_score": away}).to_string();
            let body = Body::parse::<ResultBody>(body.as_bytes()).expect("valid");
            let set = set_result(&app.fixtures, &operator, web::ids::MatchId(event), &body).await;
            assert!(set.is_ok(), "{:?}", set.err());
            let (expected, corrected) = (catalogue(&first).await, catalogue(&second).await);
            let actions = expected.len() - 1;
            assert_eq!(corrected[..actions], expected[..actions], "only the action differs");
            first.close().await;
            second.close().await;
        })
        .await;
    })
    .await;
}
