use std::sync::Mutex;

use serde_json::json;

use super::{
    play::{self, Settings},
    service,
};
use crate::{tasks, testing::TestApp};

/// Chat is off: the demo's usernames are fixed, and accounts on the homeserver outlive a test.
/// `tests/faults/match_day.rs` runs the demo with every dependency.
#[tokio::test]
async fn demo_fills_empty_database_and_is_played() {
    TestApp::run_with_database_clock(&[], async |app| {
        app.app.streams.ensure().await.expect("streams");
        tasks::queues(&app.app);
        let steps = Mutex::new(Vec::new());
        let filled = service::fill(&app.app.demo(), |what| steps.lock().expect("not poisoned").push(what.to_owned()))
            .await
            .expect("filled");
        assert!(steps.lock().expect("not poisoned").iter().any(|what| what == "predictions"));
        assert_eq!((filled.fans, filled.matches, filled.rooms), (24, 12, 0));
        assert!(filled.predictions > 100, "{filled:?}");

        // Matches that have begun were sealed at their start, and are not sealed again.
        assert_eq!(app.app.seals.seal_due().await.expect("nothing to seal"), 0);
        let chain = app.anonymous(http::Method::GET, "/api/seals").await.expect(200)["data"].clone();
        assert!(chain.as_array().is_some_and(|seals| seals.len() >= 5), "{chain}");
        let mut bundle = Vec::new();
        app.app.seals.write_bundle(super::rules::TOURNAMENT, &mut bundle).await.expect("written");
        let chain = matchday_verify::chain::Chain::read(&chain).expect("a chain");
        let report = matchday_verify::bundle::verify(&bundle[..], "bundle", Some(&chain)).expect("a bundle");
        assert!(report.is_verified(), "{report}");

        // The printed login works and shows the described content.
        let login =
            app.post("/api/code/verify", &json!({"phone": filled.phone, "code": filled.code})).await.expect(200);
        assert_eq!(login["data"]["user"]["username"], "mara.lind");
        let user = app.login(web::ids::UserId(login["data"]["user"]["id"].as_i64().expect("an id"))).await;
        let events = user.get("/api/auth/events").await.expect(200);
        let statuses: Vec<&str> =
            events["data"].as_array().expect("a list").iter().filter_map(|event| event["status"].as_str()).collect();
        assert_eq!(statuses.iter().filter(|status| **status == "finished").count(), 4);
        assert_eq!(statuses[0], "live");
        let logo = events["data"][0]["home_team"]["logo"].as_str().expect("a crest").to_owned();
        let path = &logo[logo.find("/demo/").expect("a demo path")..];
        let crest = app.anonymous(http::Method::GET, path).await;
        assert_eq!((crest.status.as_u16(), crest.header("content-type")), (200, Some("image/svg+xml")));
        let board = user.get("/api/auth/leaderboards").await.expect(200);
        assert!(board["data"]["top"].as_array().is_some_and(|top| top.len() >= 10), "{board}");
        let coins = user.get("/api/auth/coins").await.expect(200);
        assert_eq!(coins["data"]["streak"]["days"], 5, "{coins}");

        // A second run is refused, because users exist.
        assert!(
            service::fill(&app.app.demo(), |_| {})
                .await
                .is_err_and(|error| error.to_string().contains("users already"))
        );

        // The simulation does not act for fans who were used by a person.
        let second = predictions(app).await.into_iter().find(|row| row.0 == "otto.brandt").expect("a prediction").5;
        app.login(web::ids::UserId(second)).await;
        let before = of_people(predictions(app).await);
        assert!(before.len() > 10, "{before:?}");
        let lines = Mutex::new(Vec::new());
        let settings = Settings { speed: 60_000, seed: 3, matches: 2 };
        let played =
            play::play(&app.app.demo(), settings, |_, what| lines.lock().expect("lines").push(what.to_owned()))
                .await
                .expect("played");
        assert_eq!(played.matches, 2);
        assert!(played.predictions > 20, "{played:?}");
        assert_eq!(of_people(predictions(app).await), before);
        let lines = lines.into_inner().expect("not poisoned");
        let goals = lines.iter().filter(|line| line.starts_with("goal:") || line.starts_with("disallowed:")).count();
        assert_eq!(goals, played.goals, "{lines:?}");
        assert!(lines.iter().any(|line| line.starts_with("kick-off:")), "{lines:?}");
        let finished = user.get("/api/auth/events?status=finished").await.expect(200);
        assert_eq!(finished["meta"]["total"], 6);
        app.app.shutdown.end(std::time::Duration::ZERO, std::time::Duration::from_secs(5)).await;
        app.published().await;
        app.app.streams.remove().await;
    })
    .await;
}

/// A prediction as stored: username, match, outcome, goals of both teams, confidence and user.
type Stored = (String, String, String, Option<i32>, Option<i32>, i32, i64);

/// A prediction: username, match, outcome, goals, confidence and user.
type Row = (String, String, String, [Option<i32>; 2], i32, i64);

async fn predictions(app: &TestApp) -> Vec<Row> {
    let rows: Vec<Stored> = sqlx::query_as(
        "select u.username, e.key, p.prediction, p.home_goals::integer, p.away_goals::integer, p.confidence::integer,
                p.user_id
         from predictions p join users u using (user_id) join events e on e.id = p.event_id order by 1, 2",
    )
    .fetch_all(&app.app.core.db)
    .await
    .expect("predictions");
    rows.into_iter()
        .map(|(user, key, pick, home, away, confidence, id)| (user, key, pick, [home, away], confidence, id))
        .collect()
}

fn of_people(mut rows: Vec<Row>) -> Vec<Row> {
    rows.retain(|(username, ..)| ["mara.lind", "otto.brandt"].contains(&username.as_str()));
    rows
}

/// Plays fresh demo data whose live match started these minutes earlier. Returns the incidents and all predictions.
async fn play_later(minutes: i64) -> (Vec<String>, Vec<Row>) {
    let outcome = Mutex::new(None);
    TestApp::run_with_database_clock(&[], async |app| {
        app.app.streams.ensure().await.expect("streams");
        tasks::queues(&app.app);
        service::fill(&app.app.demo(), |_| {}).await.expect("filled");
        sqlx::query("update events set start_time = start_time - $1 * interval '1 minute' where key = 'round-2-1'")
            .bind(minutes)
            .execute(app.owner())
            .await
            .expect("moved");
        let lines = Mutex::new(Vec::new());
        let settings = Settings { speed: 60_000, seed: 1, matches: 3 };
        let report = |clock: &str, what: &str| lines.lock().expect("lines").push(format!("{clock} {what}"));
        play::play(&app.app.demo(), settings, report).await.expect("played");
        let lines = lines.into_inner().expect("not poisoned");
        let mut rows = predictions(app).await;
        for row in &mut rows {
            row.5 = 0;
        }
        *outcome.lock().expect("not poisoned") = Some((lines, rows));
        app.app.shutdown.end(std::time::Duration::ZERO, std::time::Duration::from_secs(5)).await;
        app.published().await;
        app.app.streams.remove().await;
    })
    .await;
    outcome.into_inner().expect("not poisoned").expect("played")
}

#[tokio::test]
async fn same_seed_plays_the_same_later() {
    let (now, later) = (play_later(0).await, play_later(20).await);
    assert!(now.0.len() > 6, "{:?}", now.0);
    assert_eq!(now, later);
}

#[tokio::test]
async fn demo_is_refused_outside_development() {
    let changes = [("MATCHDAY_ENV", "staging"), ("MATCHDAY_SMS__COUNTRIES", "DE")];
    TestApp::run_with(&changes, async |app| {
        let refused = service::fill(&app.app.demo(), |_| {}).await;
        assert!(refused.is_err_and(|error| error.to_string().contains("MATCHDAY_ENV")));
        app.anonymous(http::Method::GET, "/demo/crests/old_quay.svg").await.expect(404);
    })
    .await;
}
