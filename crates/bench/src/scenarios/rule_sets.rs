//! Scoring under a custom rule set, compared with the default one. Matches of both kinds get their results alternately.

use serde_json::{Value, json};
use sqlx::Executor as _;

use super::{Match, document, fill_leaderboards, insert_predictions, prepare, settle};
use crate::{
    environment::{Stage, people, service::Setting},
    outcome::{Goal, Outcome},
};

const LIVE: Match = Match { status: "live", start: "2026-05-01T15:00:00Z", score: Some((0, 0)) };
const FINISHED: Match = Match { status: "finished", score: Some((2, 1)), ..LIVE };

pub(super) async fn run(stage: &Stage) -> anyhow::Result<Vec<Outcome>> {
    let size = std::env::var("MATCHDAY_BENCH_MOST").ok().and_then(|most| most.parse().ok()).unwrap_or(1_000_000_u64);
    let name = "bench_rule_sets";
    let setting = Setting::on(name);
    // The first result inserts the rows that later results update.
    let matches = 2 * stage.rounds + 1;
    prepare(stage, &setting, name, &[]).await?;
    stage.matchday(&setting, &["fixtures", "import", "--no-wait", "-"], &mixed(0, matches)?)?;
    let pool = stage.postgres.pool(name).await?;
    stage.say(format!("inserting {size} users"));
    people::make(&pool, size, 1).await?;
    insert_predictions(stage, &pool, matches, predict).await?;
    let service = stage.serve(&setting, &[]).await?;
    fill_leaderboards(stage, &service).await?;
    let settle = async |finished| settle(stage, &setting, &pool, &mixed(finished, matches)?, finished).await;
    stage.say("first result, which inserts the rows");
    settle(1).await?;
    let (rounds, cores) = stage
        .alternate(
            &stage.groups(&service),
            async |round| {
                pool.execute("vacuum analyze user_scores").await?;
                settle(2 * round + 2).await
            },
            async |round| {
                pool.execute("vacuum analyze user_scores").await?;
                settle(2 * round + 3).await
            },
        )
        .await?;
    stage.say("checking scores");
    stage.matchday(&setting, &["scores", "rebuild", "--dry-run"], "")?;
    drop(service);
    stage.forget_in_redis(name)?;
    stage.postgres.forget(name).await?;
    Ok(vec![Outcome {
        what: format!(
            "Scores after a result with {size} predictions under a custom rule set, with jokers and a margin"
        ),
        beside: "the same under the default rule set".to_owned(),
        unit: "s".to_owned(),
        goal: Some(Goal::AtMost(1.1)),
        size: Some(size),
        limit: cores,
        ..Outcome::of("rule-sets", rounds)
    }])
}

/// Matches with an even id are knockout matches under a custom rule set.
fn is_custom(event: usize) -> bool {
    event.is_multiple_of(2)
}

/// Document with results of the first `finished` matches.
fn mixed(finished: usize, matches: usize) -> anyhow::Result<String> {
    let state = |number| if number <= finished { FINISHED } else { LIVE };
    let matches: Vec<Match> = (1..=matches).map(state).collect();
    let mut document: Value = serde_json::from_str(&document(&matches))?;
    document["rule_sets"] = json!([{"slug": "custom", "name": "Custom", "outcome": 10, "difference": 25, "exact": 60,
        "margin": {"within": 2, "points": 15}, "stake": 30, "advances": 20, "multiplier": {"final": 1.5}, "joker": 100}]);
    for (entry, event) in document["matches"].as_array_mut().into_iter().flatten().zip(1..) {
        if is_custom(event) {
            let advanced = (event <= finished).then_some("home");
            entry["knockout"] = json!(true);
            entry["advanced"] = json!(advanced);
            entry["stage"] = json!("final");
            entry["rule_set"] = json!("custom");
        }
    }
    Ok(document.to_string())
}

/// Inserts predictions of all users for a match, in random order. Knockout matches have teams that advance, and jokers.
fn predict(event: usize) -> String {
    let custom = is_custom(event);
    format!(
        "insert into predictions (user_id, event_id, prediction, home_goals, away_goals, confidence, advances, joker, revision,
                                  created_at, updated_at)
         select user_id, {event}, pick_of(home, away), home::smallint, away::smallint, (user_id * 7 % 101)::smallint,
                case when {custom} then (array['home', 'away', null])[1 + user_id % 3] end, {custom} and user_id % 4 = 0, 1,
                '2026-04-30', '2026-04-30'
         from (select user_id, ((user_id * 31 + {event} * 17) % 4)::integer as home, ((user_id * 13 + {event} * 5) % 3)::integer as away
               from users order by hashint8(user_id # {event})) s"
    )
}
