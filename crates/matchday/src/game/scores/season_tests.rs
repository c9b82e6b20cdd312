//! Whole seasons: a Python script writes the documents and predictions, and computes the tables independently of the
//! service.

use std::{collections::BTreeMap, process::Command};

use futures_util::future::join_all;
use scoring::{Confidence, Forecast, Score as Goals};
use serde::Deserialize;
use serde_json::Value;
use web::ids::{MatchId, TournamentId, UserId};

use super::{
    leaderboard::Table,
    rounds::{self, MOST_WINNERS},
    service::Rebuild,
};
use crate::{
    catalogue::fixtures::{document::Document, service::Mode},
    testing::TestApp,
};

/// Points, exact scores, correct outcomes and settled matches of fans, by the number of the fan.
type Standings = BTreeMap<usize, (i32, i32, i32, i32)>;

#[derive(Deserialize)]
struct Season {
    /// The schedule, then results and corrections, each as a whole document.
    documents: Vec<Value>,
    predictions: Vec<Submission>,
    tables: Tables,
    /// Fans with the most points of each complete round.
    winners: BTreeMap<i16, Vec<usize>>,
}

#[derive(Deserialize)]
struct Submission {
    fan: usize,
    key: String,
    prediction: String,
    score_prediction: Option<PredictedScore>,
    confidence: i64,
    advances: Option<String>,
    joker: bool,
}

#[derive(Deserialize)]
struct PredictedScore {
    home: i64,
    away: i64,
}

#[derive(Deserialize)]
struct Tables {
    tournament: Standings,
    rounds: BTreeMap<i16, Standings>,
}

impl Submission {
    fn forecast(&self) -> Forecast {
        let score = self.score_prediction.as_ref().map(|score| Goals::new(score.home, score.away).expect("a score"));
        let confidence = Confidence::new(self.confidence).expect("a confidence");
        let forecast = Forecast::new(self.prediction.parse().expect("a pick"), score, confidence);
        let advances = self.advances.as_deref().map(|side| side.parse().expect("a side"));
        forecast.expect("no contradiction").with_advances(advances).with_joker(self.joker)
    }
}

/// Number of fans, which can be larger in manual runs.
fn fans() -> usize {
    std::env::var("SEASON_FANS").ok().and_then(|text| text.parse().ok()).unwrap_or(50)
}

fn write_season(name: &str, fans: usize) -> Season {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/seasons/season.py");
    let output = Command::new("python3").args([script, name, &fans.to_string(), "7"]).output().expect("Python");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("a season")
}

async fn import(app: &TestApp, document: &Value) -> TournamentId {
    let document = Document::parse(&document.to_string()).unwrap_or_else(|faults| panic!("{faults:?}"));
    let report = app.app.fixtures.import(&document, Mode::Write, |_| {}).await.expect("imported");
    app.published().await;
    report.tournament_id.expect("a tournament")
}

async fn predict_all(app: &TestApp, users: &[UserId], season: &Season) {
    let rows: Vec<(String, i64)> =
        sqlx::query_as("select key, id from events").fetch_all(&app.app.core.db).await.expect("matches");
    let events: BTreeMap<String, i64> = rows.into_iter().collect();
    for some in season.predictions.chunks(500) {
        let saves = some.iter().map(|prediction| {
            let event = MatchId(events[&prediction.key]);
            app.app.predictions.save(users[prediction.fan], event, prediction.forecast())
        });
        for saved in join_all(saves).await {
            saved.expect("saved");
        }
    }
}

/// Reads the stored scores of a scope, by fan.
async fn standings(app: &TestApp, users: &[UserId], scope: &str) -> Standings {
    let rows: Vec<(UserId, i32, i32, i32, i32)> = sqlx::query_as(
        "select user_id, points, exact, correct, settled from user_scores where scope = $1 and settled > 0",
    )
    .bind(scope)
    .fetch_all(&app.app.core.db)
    .await
    .expect("scores");
    let fan = |user: UserId| users.iter().position(|&other| other == user).expect("a fan");
    rows.into_iter()
        .map(|(user, points, exact, correct, settled)| (fan(user), (points, exact, correct, settled)))
        .collect()
}

async fn replay(name: &str) {
    let (name, fans) = (name.to_owned(), fans());
    TestApp::run_with(&[("MATCHDAY_SCORES__LANE_SIZE", "100")], async |app| {
        let season = write_season(&name, fans);
        let (schedule, results) = season.documents.split_first().expect("documents");
        let tournament = import(app, schedule).await;
        let mut users = Vec::with_capacity(fans);
        for _ in 0..fans {
            users.push(app.app.accounts.make_without_phone().await.expect("a user"));
        }
        predict_all(app, &users, &season).await;
        for document in results {
            import(app, document).await;
            app.settle().await;
        }
        assert_eq!(
            standings(app, &users, &format!("tournament:{tournament}")).await,
            season.tables.tournament,
            "{name}"
        );
        for (round, expected) in &season.tables.rounds {
            let found = standings(app, &users, &format!("round:{tournament}:{round}")).await;
            assert_eq!(found, *expected, "round {round} of {name}");
        }
        let stored: i64 =
            sqlx::query_scalar("select count(distinct scope) from user_scores where scope ^@ 'round:' and settled > 0")
                .fetch_one(&app.app.core.db)
                .await
                .expect("counted");
        assert_eq!(usize::try_from(stored), Ok(season.tables.rounds.len()), "no round has scores without a table");
        check_winners(app, &users, tournament, &season).await;
        let mut differences = Vec::new();
        let rebuilt =
            app.app.scores.rebuild(Rebuild::DryRun, |_, _| {}, |difference| differences.push(difference)).await;
        rebuilt.expect("rebuilt");
        assert_eq!(differences, []);
    })
    .await;
}

async fn check_winners(app: &TestApp, users: &[UserId], tournament: TournamentId, season: &Season) {
    for round in season.tables.rounds.keys() {
        let is_complete = app.app.leaderboards.is_complete(tournament, *round).await.expect("read");
        assert_eq!(is_complete, season.winners.contains_key(round), "round {round}");
        let Some(expected) = season.winners.get(round) else { continue };
        let board =
            app.app.leaderboards.global(Table::OfRound(tournament, *round), UserId(0), 100).await.expect("read");
        let mut found: Vec<usize> = rounds::winners(&board.top)
            .map(|entry| users.iter().position(|&user| user == entry.user_id).expect("a fan"))
            .collect();
        found.sort_unstable();
        assert_eq!(found.len(), expected.len().min(MOST_WINNERS), "round {round}");
        assert!(found.iter().all(|fan| expected.contains(fan)), "round {round}: {found:?} of {expected:?}");
    }
}

#[tokio::test]
async fn world_cup_matches_independent_tables() {
    replay("world_cup").await;
}

#[tokio::test]
async fn league_season_matches_independent_tables() {
    replay("league").await;
}

#[tokio::test]
async fn basketball_season_matches_independent_tables() {
    replay("basketball").await;
}
