mod provider;
mod running;

use platform::clock::Clock as _;
use serde_json::{Value, json};
use time::Duration;

use self::provider::{Answer, Provider, TOKEN};
use super::service::{Outcome, PollError, Polled};
use crate::{
    catalogue::{feeds::source::FetchError, fixtures::service::Counts},
    testing::{TestApp, unique},
};

/// A match as football-data.org reports it.
fn a_match(id: i64, status: &str, score: Option<(i64, i64)>) -> Value {
    let goals = json!({"home": score.map(|(home, _)| home), "away": score.map(|(_, away)| away)});
    json!({
        "id": id,
        "season": {"id": 1, "startDate": "2026-08-15", "endDate": "2027-05-23"},
        "utcDate": "2026-11-20T15:00:00Z",
        "status": status,
        "venue": null,
        "homeTeam": {"id": 57, "name": "Harbour Rovers FC", "shortName": "Rovers", "tla": "HRO", "crest": "https://crests.example.org/57.png"},
        "awayTeam": {"id": 61, "name": "Harbour City FC", "shortName": "City", "tla": "HCI", "crest": null},
        "score": {"winner": null, "duration": "REGULAR", "fullTime": goals, "halfTime": {"home": null, "away": null}},
    })
}

fn document(matches: &[Value]) -> Value {
    json!({
        "filters": {"season": "2026"},
        "competition": {"id": 2021, "name": "Harbour League", "code": "HL", "emblem": "https://crests.example.org/HL.png"},
        "matches": matches,
    })
}

/// Settings for one competition served by this provider.
fn settings(provider: &Provider) -> Vec<(&'static str, String)> {
    vec![
        ("MATCHDAY_FEEDS__FOOTBALL_DATA_URL", provider.url.clone()),
        ("MATCHDAY_FEEDS__FOOTBALL_DATA_TOKEN", TOKEN.to_owned()),
        ("MATCHDAY_FEEDS__FOOTBALL_DATA_COMPETITIONS", "HL".to_owned()),
        // The clock does not advance, so the whole test falls into one minute.
        ("MATCHDAY_FEEDS__FOOTBALL_DATA_PER_MINUTE", "1000".to_owned()),
    ]
}

async fn run_with(settings: &[(&'static str, String)], test: impl AsyncFnOnce(&TestApp)) {
    let settings: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    TestApp::run_with(&settings, test).await;
}

/// Polls all feeds once.
async fn poll(app: &TestApp) -> Vec<Polled> {
    let mut all = Vec::new();
    app.app.feeds.poll_once(|polled| all.push(copy_of(polled))).await.expect("the database is available");
    all
}

/// Copies an outcome, because `poll_once` passes it by reference. Errors that cannot be cloned become
/// `FetchError::Unreachable`.
fn copy_of(polled: &Polled) -> Polled {
    let outcome = match &polled.outcome {
        Ok(Outcome::Unchanged) => Ok(Outcome::Unchanged),
        Ok(Outcome::Empty) => Ok(Outcome::Empty),
        Ok(Outcome::Imported { report, notes }) => {
            Ok(Outcome::Imported { report: report.clone(), notes: notes.clone() })
        }
        Err(PollError::Fetch(FetchError::Throttled { wait })) => {
            Err(PollError::Fetch(FetchError::Throttled { wait: *wait }))
        }
        Err(PollError::Faults(faults)) => Err(PollError::Faults(faults.clone())),
        Err(other) => Err(PollError::Fetch(FetchError::Unreachable(other.to_string()))),
    };
    Polled { feed: polled.feed.clone(), outcome, next_poll_at: polled.next_poll_at }
}

/// Polls the only feed and returns the reported changes.
async fn changes(app: &TestApp) -> Vec<String> {
    let polled = poll(app).await.remove(0);
    match polled.outcome {
        Ok(Outcome::Imported { report, .. }) => report.changes,
        other => panic!("nothing was imported: {other:?}"),
    }
}

/// Polls the only feed and returns the error.
async fn failure(app: &TestApp) -> String {
    let polled = poll(app).await.remove(0);
    polled.outcome.expect_err("it fails").to_string()
}

async fn rows(app: &TestApp, table: &'static str) -> i64 {
    let count = sqlx::AssertSqlSafe(format!("select count(*) from {table}"));
    sqlx::query_scalar(count).fetch_one(&app.app.core.db).await.expect("read")
}

#[tokio::test]
async fn document_is_imported_once_then_only_changes() {
    let provider = Provider::start().await;
    let matches = [a_match(1, "TIMED", None), a_match(2, "FINISHED", Some((2, 1))), a_match(3, "TIMED", None)];
    provider.says(Answer::ok(&document(&matches)));
    run_with(&settings(&provider), async |app| {
        let first = poll(app).await.remove(0);
        assert_eq!(
            first.to_string(),
            "football_data:HL: Harbour League 2026/27: teams 2 new, 0 changed; matches 3 new, 0 changed, 0 unchanged; \
             1 result; next poll 2026-11-20T15:01:00Z"
        );
        app.published().await;
        let request = provider.seen().remove(0);
        assert_eq!((request.path.as_str(), request.token.as_deref()), ("/v4/competitions/HL/matches", Some(TOKEN)));

        // The same bytes are not imported, and nothing is published.
        let second = poll(app).await.remove(0);
        assert!(matches!(second.outcome, Ok(Outcome::Unchanged)), "{second}");
        // Different bytes with the same content are imported without a change.
        let mut spaced = document(&matches);
        spaced["resultSet"] = json!({"count": 3});
        provider.says(Answer::ok(&spaced));
        let third = poll(app).await.remove(0);
        let Ok(Outcome::Imported { report, .. }) = third.outcome else { panic!("{third}") };
        assert_eq!(report.matches, Counts { new: 0, changed: 0, unchanged: 3 });
        assert_eq!(app.published().await, []);

        let mut moved = matches.clone();
        moved[0]["utcDate"] = json!("2026-11-21T17:30:00Z");
        moved[1]["score"]["fullTime"]["away"] = json!(2);
        provider.says(Answer::ok(&document(&moved)));
        assert_eq!(
            changes(app).await,
            ["1: start time 2026-11-20T15:00:00Z → 2026-11-21T17:30:00Z", "2: score 2:1 → 2:2"]
        );
        let published: Vec<String> = app.published().await.into_iter().map(|(subject, _)| subject).collect();
        assert_eq!(
            published,
            ["fact.event.changed", "fact.event.changed", "fact.event.result", "work.score.planned"],
            "only for the two matches"
        );
        provider.says(Answer::ok(&document(&moved)));
        assert!(matches!(poll(app).await.remove(0).outcome, Ok(Outcome::Unchanged)));
    })
    .await;
}

#[tokio::test]
async fn document_with_etag_is_requested_conditionally() {
    let provider = Provider::start().await;
    provider.says(Answer::ok(&document(&[a_match(1, "TIMED", None)])).with("ETag", "W/\"one\""));
    run_with(&settings(&provider), async |app| {
        poll(app).await;
        app.published().await;
        let again = poll(app).await.remove(0);
        assert!(matches!(again.outcome, Ok(Outcome::Unchanged)), "{again}");
        let seen = provider.seen();
        assert_eq!((seen[0].etag.as_deref(), seen[1].etag.as_deref()), (None, Some("W/\"one\"")));
        assert_eq!(seen[1].status, 304);
        provider.says(Answer::ok(&document(&[a_match(1, "IN_PLAY", Some((0, 0)))])).with("ETag", "W/\"two\""));
        assert_eq!(changes(app).await, ["1: status scheduled → live, score none → 0:0"]);
        app.published().await;
        poll(app).await;
        assert_eq!(provider.seen().last().expect("asked").etag.as_deref(), Some("W/\"two\""));
    })
    .await;
}

/// One match in every state that football-data.org may report.
#[tokio::test]
async fn match_passes_through_every_status() {
    let provider = Provider::start().await;
    provider.says(Answer::ok(&document(&[a_match(1, "SCHEDULED", None)])));
    run_with(&settings(&provider), async |app| {
        poll(app).await;
        let longer = |duration: &str, full: (i64, i64)| {
            let mut entry = a_match(1, "EXTRA_TIME", Some(full));
            (entry["score"]["duration"], entry["score"]["regularTime"]) =
                (json!(duration), json!({"home": 1, "away": 1}));
            entry
        };
        let mut over = longer("PENALTY_SHOOTOUT", (6, 5));
        over["status"] = json!("FINISHED");
        for (entry, expected) in [
            (a_match(1, "TIMED", Some((0, 0))), None),
            (a_match(1, "IN_PLAY", Some((0, 0))), Some("status scheduled → live, score none → 0:0")),
            (a_match(1, "PAUSED", Some((1, 0))), Some("score 0:0 → 1:0")),
            (a_match(1, "SUSPENDED", None), Some("status live → suspended")),
            (a_match(1, "IN_PLAY", Some((1, 1))), Some("status suspended → live, score 1:0 → 1:1")),
            // The score that predictions are scored against no longer changes.
            (longer("EXTRA_TIME", (2, 1)), None),
            (longer("PENALTY_SHOOTOUT", (4, 3)), None),
            // Finished without a score: the match stays unchanged.
            (a_match(1, "FINISHED", None), None),
            (over, Some("status live → finished")),
            (a_match(1, "WALKED_OFF", None), None),
            (a_match(1, "AWARDED", Some((3, 0))), Some("status finished → awarded, score 1:1 → 3:0")),
            (a_match(1, "POSTPONED", Some((3, 0))), Some("status awarded → postponed, score 3:0 → none")),
            (a_match(1, "CANCELLED", None), Some("status postponed → cancelled")),
        ] {
            let reported = format!("{} {}", entry["status"], entry["score"]);
            provider.says(Answer::ok(&document(&[entry])));
            let expected: Vec<String> = expected.iter().map(|change| format!("1: {change}")).collect();
            assert_eq!(changes(app).await, expected, "{reported}");
        }
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn finished_match_without_score_is_left_out() {
    let provider = Provider::start().await;
    let mut other = a_match(2, "TIMED", None);
    other["homeTeam"]["id"] = json!(null);
    provider.says(Answer::ok(&document(&[a_match(1, "FINISHED", None), a_match(3, "TIMED", None), other])));
    run_with(&settings(&provider), async |app| {
        let polled = poll(app).await.remove(0);
        let Ok(Outcome::Imported { report, notes }) = polled.outcome else { panic!("{polled}") };
        assert_eq!(report.matches.new, 1);
        assert_eq!(
            notes,
            [
                "matches left out until their teams or times are known: 1",
                "matches left out until their results are known: 1"
            ]
        );
        provider.says(Answer::ok(&document(&[a_match(1, "FINISHED", Some((1, 0))), a_match(3, "TIMED", None)])));
        let polled = poll(app).await.remove(0);
        let Ok(Outcome::Imported { report, .. }) = polled.outcome else { panic!("{polled}") };
        assert_eq!(report.matches, Counts { new: 1, changed: 0, unchanged: 1 });
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn team_keeps_slug_and_operator_data() {
    let provider = Provider::start().await;
    provider.says(Answer::ok(&document(&[a_match(1, "TIMED", None)])));
    run_with(&settings(&provider), async |app| {
        poll(app).await;
        let slugs = async || -> Vec<(String, String, Option<String>)> {
            sqlx::query_as("select slug, name, country from teams order by id")
                .fetch_all(&app.app.core.db)
                .await
                .expect("read")
        };
        let team = |slug: &str, name: &str, country: Option<&str>| {
            (slug.to_owned(), name.to_owned(), country.map(str::to_owned))
        };
        assert_eq!(
            slugs().await,
            [team("harbour_rovers", "Harbour Rovers FC", None), team("harbour_city", "Harbour City FC", None)]
        );
        sqlx::query("update teams set country = 'England' where slug = 'harbour_rovers'")
            .execute(&app.app.core.db)
            .await
            .expect("written");
        sqlx::query("update events set venue = 'Rovers Park'").execute(&app.app.core.db).await.expect("written");
        let mut renamed = a_match(1, "TIMED", None);
        renamed["homeTeam"]["name"] = json!("Rovers of the Harbour");
        // A different club with the same name, distinguished by its id.
        let mut second = a_match(2, "TIMED", None);
        second["awayTeam"] = json!({"id": 99, "name": "FC Harbour City", "crest": null});
        provider.says(Answer::ok(&document(&[renamed, second])));
        assert_eq!(changes(app).await, Vec::<String>::new(), "the venue is kept");
        assert_eq!(
            slugs().await,
            [
                team("harbour_rovers", "Rovers of the Harbour", Some("England")),
                team("harbour_city", "Harbour City FC", None),
                team("harbour_city_99", "FC Harbour City", None),
            ]
        );
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn faulty_document_is_reported_and_not_imported() {
    let provider = Provider::start().await;
    let mut bad = a_match(2, "FINISHED", Some((1, 1_000)));
    bad["awayTeam"]["name"] = json!("x".repeat(101));
    bad["awayTeam"]["id"] = json!(77);
    provider.says(Answer::ok(&document(&[a_match(1, "TIMED", None), bad])));
    run_with(&settings(&provider), async |app| {
        let message = failure(app).await;
        assert!(
            message.starts_with("the document has faults: teams[2].name: must be a string of 1 to 100 characters"),
            "{message}"
        );
        assert!(message.contains("match 2.away_score: must be a number of goals or null, not 1000"), "{message}");
        assert_eq!((rows(app, "events").await, rows(app, "teams").await), (0, 0));
        // The same document is not mistaken for an imported one.
        failure(app).await;
        provider.says(Answer::ok(&document(&[a_match(1, "TIMED", None)])));
        poll(app).await;
        assert_eq!(rows(app, "events").await, 1);
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn every_failure_is_reported_and_pauses_grow() {
    let provider = Provider::start().await;
    let garbage = "<html>come back later</html>";
    run_with(&settings(&provider), async |app| {
        let answers = [
            (Answer::new(500, "down"), "the provider is unavailable (500)"),
            (Answer::new(503, "down"), "the provider is unavailable (503)"),
            (
                Answer::new(200, garbage),
                "the document has faults: the document is not JSON: expected value at line 1 column 1",
            ),
            (Answer::new(200, "[]"), "the document has faults: must be an object"),
            (
                Answer::new(404, "{\"message\": \"The resource you are looking for does not exist.\"}"),
                "refused (404): The resource you are looking for does not exist.",
            ),
            (Answer::new(302, "").with("Location", "/elsewhere"), "the document has moved (302): /elsewhere"),
            (Answer::new(200, &"x".repeat(20_000_001)), "the document is larger than 20000000 bytes"),
        ];
        let mut pauses = Vec::new();
        for (answer, expected) in answers {
            provider.says(answer);
            let polled = poll(app).await.remove(0);
            assert_eq!(
                polled.outcome.as_ref().expect_err("it fails").to_string().trim_start_matches("no response: "),
                expected
            );
            pauses.push((polled.next_poll_at - app.clock.now()).whole_seconds());
        }
        assert_eq!(pauses, [30, 60, 120, 240, 480, 900, 900]);
        assert_eq!(provider.seen().len(), 7, "redirects are not followed, and no request is retried immediately");
        assert_eq!(rows(app, "events").await, 0);
        // A successful poll resets the pause.
        provider.says(Answer::ok(&document(&[])));
        let polled = poll(app).await.remove(0);
        assert_eq!(polled.to_string(), "football_data:HL: no matches yet; next poll 2026-11-20T16:00:00Z");
        provider.says(Answer::new(500, "down"));
        let polled = poll(app).await.remove(0);
        assert_eq!(polled.next_poll_at - app.clock.now(), Duration::seconds(30));
    })
    .await;
}

#[tokio::test]
async fn wrong_token_is_refused_and_never_shown() {
    let provider = Provider::start().await;
    provider.says(Answer::ok(&document(&[a_match(1, "TIMED", None)])));
    let mut settings = settings(&provider);
    settings[1].1 = "another-token".to_owned();
    run_with(&settings, async |app| {
        let message = failure(app).await;
        assert_eq!(message, "no response: refused (403): The token … is not one of ours.");
        let status = app.app.feeds.status().await.expect("read").remove(0).to_string();
        assert_eq!(
            status,
            "football_data:HL: last success never, last change never, last error 2026-11-20T15:00:00Z \
             (refused (403): The token … is not one of ours.), next poll 2026-11-20T15:00:30Z"
        );
        let shown = format!("{:?}", app.app.config.feeds);
        assert!(!shown.contains("another-token"), "{shown}");
    })
    .await;
}

#[tokio::test]
async fn slow_provider_times_out() {
    let url = Provider::stuck().await;
    let settings = [
        ("MATCHDAY_FEEDS__FOOTBALL_DATA_URL", url),
        ("MATCHDAY_FEEDS__FOOTBALL_DATA_TOKEN", TOKEN.to_owned()),
        ("MATCHDAY_FEEDS__FOOTBALL_DATA_COMPETITIONS", "HL".to_owned()),
        ("MATCHDAY_FEEDS__TIMEOUT", "200ms".to_owned()),
    ];
    run_with(&settings, async |app| {
        assert_eq!(failure(app).await, "no response: no response in time");
    })
    .await;
    let unreachable = [
        ("MATCHDAY_FEEDS__FOOTBALL_DATA_URL", "http://127.0.0.1:1".to_owned()),
        ("MATCHDAY_FEEDS__FOOTBALL_DATA_TOKEN", TOKEN.to_owned()),
        ("MATCHDAY_FEEDS__FOOTBALL_DATA_COMPETITIONS", "HL".to_owned()),
    ];
    run_with(&unreachable, async |app| {
        let message = failure(app).await;
        assert!(message.contains("refused"), "{message}");
    })
    .await;
}

#[tokio::test]
async fn requested_wait_is_honoured() {
    for (answer, seconds) in [
        (Answer::new(429, "{}").with("Retry-After", "41"), 41),
        (Answer::new(429, "{}").with("X-RequestCounter-Reset", "17"), 17),
        (
            Answer::new(429, "{\"message\": \"You reached your request limit. Wait 29 seconds.\", \"errorCode\": 429}"),
            29,
        ),
        (Answer::new(429, "slow down"), 60),
        (Answer::new(429, "{}").with("Retry-After", "99999999"), 3_600),
    ] {
        let provider = Provider::start().await;
        provider.says(answer);
        run_with(&settings(&provider), async |app| {
            let polled = poll(app).await.remove(0);
            assert!(matches!(polled.outcome, Err(PollError::Fetch(FetchError::Throttled { .. }))), "{polled}");
            assert_eq!((polled.next_poll_at - app.clock.now()).whole_seconds(), seconds);
        })
        .await;
    }
}

fn openfootball(matches: &Value) -> Value {
    json!({"name": "Harbour Cup 2026", "matches": matches})
}

#[tokio::test]
async fn file_changes_are_imported() {
    let path = std::env::temp_dir().join(format!("{}.json", unique("openfootball")));
    let entry = |round: &str, time: &str, score: Value| json!({"round": round, "date": "2026-11-21", "time": time, "team1": "Rovers", "team2": "City", "score": score, "ground": "Park"});
    let write = |value: &Value| std::fs::write(&path, value.to_string()).expect("written");
    write(&openfootball(&json!([
        entry("Semi-final", "15:00", json!({})),
        entry("Final", "18:00", json!({"ft": [1, 0]}))
    ])));
    let settings = [("MATCHDAY_FEEDS__OPENFOOTBALL", format!("{} Europe/London", path.display()))];
    run_with(&settings, async |app| {
        let polled = poll(app).await.remove(0);
        let Ok(Outcome::Imported { report, .. }) = &polled.outcome else { panic!("{polled}") };
        assert_eq!((report.tournament.as_str(), report.matches.new, report.results), ("Harbour Cup 2026", 2, 1));
        assert!(matches!(poll(app).await.remove(0).outcome, Ok(Outcome::Unchanged)));
        write(&openfootball(&json!([
            entry("Semi-final", "16:30", json!({})),
            entry("Final", "18:00", json!({"ft": [1, 1]}))
        ])));
        assert_eq!(
            changes(app).await,
            [
                "semi_final-rovers-city: start time 2026-11-21T15:00:00Z → 2026-11-21T16:30:00Z",
                "final-rovers-city: score 1:0 → 1:1"
            ]
        );
        std::fs::remove_file(&path).expect("removed");
        let message = failure(app).await;
        assert!(message.contains("the file cannot be read"), "{message}");
        app.published().await;
    })
    .await;
}

/// A changed time zone discards the stored `ETag` and digest.
#[tokio::test]
async fn new_time_zone_rereads_same_document() {
    let path = std::env::temp_dir().join(format!("{}.json", unique("openfootball")));
    let entry = json!({"round": "Final", "date": "2026-11-21", "time": "15:00", "team1": "Rovers", "team2": "City"});
    std::fs::write(&path, openfootball(&json!([entry])).to_string()).expect("written");
    let settings = [("MATCHDAY_FEEDS__OPENFOOTBALL", path.display().to_string())];
    run_with(&settings, async |app| {
        poll(app).await;
        app.published().await;
        let mut config = app.app.config.feeds.clone();
        config.openfootball[0].zone = crate::catalogue::feeds::zone::Zone::parse("Europe/Madrid").expect("a zone");
        let clock = app.clock.clone();
        let feeds = super::service::Feeds::new(&app.app.core.with_clock(clock), &config, app.app.fixtures.clone())
            .expect("feeds");
        let mut seen = Vec::new();
        feeds.poll_once(|polled| seen.push(copy_of(polled))).await.expect("the database is available");
        let Ok(Outcome::Imported { report, .. }) = &seen[0].outcome else { panic!("{}", seen[0]) };
        assert_eq!(report.changes, ["final-rovers-city: start time 2026-11-21T15:00:00Z → 2026-11-21T14:00:00Z"]);
        app.published().await;
    })
    .await;
    std::fs::remove_file(&path).expect("removed");
}

/// Feeds that are no longer configured are still shown, and so are feeds that were never polled.
#[tokio::test]
async fn status_shows_every_feed() {
    let provider = Provider::start().await;
    provider.says(Answer::ok(&document(&[a_match(1, "TIMED", None)])));
    run_with(&settings(&provider), async |app| {
        let lines = async |feeds: &super::service::Feeds| -> Vec<String> {
            feeds.status().await.expect("read").iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            lines(&app.app.feeds).await,
            ["football_data:HL: last success never, last change never, last error none, next poll now"]
        );
        poll(app).await;
        app.published().await;
        app.clock.advance(Duration::minutes(5));
        poll(app).await;
        assert_eq!(
            lines(&app.app.feeds).await,
            ["football_data:HL: last success 2026-11-20T15:05:00Z, last change 2026-11-20T15:00:00Z, last error none, \
              next poll 2026-11-20T15:06:00Z"]
        );
        let mut config = app.app.config.feeds.clone();
        config.football_data_competitions = vec!["HC".to_owned()];
        let other =
            super::service::Feeds::new(&app.app.core, &config, app.app.fixtures.clone()).expect("feeds");
        let lines = lines(&other).await;
        assert!(lines[0].starts_with("football_data:HC: last success never"), "{lines:?}");
        assert!(lines[1].ends_with("next poll never: removed from the settings"), "{lines:?}");
    })
    .await;
}
