//! Scoring after a result: all predictions and four leaderboards, through the real queue. Compared with one bare
//! statement that updates the same rows.

use std::time::Instant;

use sqlx::{AssertSqlSafe, Connection as _, Executor as _};

use super::{Match, document, fill_leaderboards, insert_predictions, prepare, settle};
use crate::{
    environment::{
        Stage, people,
        service::{Service, Setting},
    },
    outcome::{Goal, Outcome},
};

/// Predictions per match. Each changes four scores.
const SIZES: [u64; 3] = [100_000, 1_000_000, 5_000_000];
const SCORES_A_PREDICTION: f64 = 4.0;

const LIVE: Match = Match { status: "live", start: "2026-05-01T15:00:00Z", score: Some((0, 0)) };
const FINISHED: Match = Match { status: "finished", score: Some((2, 1)), ..LIVE };

pub(super) async fn run(stage: &Stage) -> anyhow::Result<Vec<Outcome>> {
    let most = std::env::var("MATCHDAY_BENCH_MOST").ok().and_then(|most| most.parse().ok()).unwrap_or(u64::MAX);
    let (mut outcomes, mut firsts): (Vec<Outcome>, Vec<Outcome>) = (Vec::new(), Vec::new());
    // The largest size first, because it takes most of the time.
    for size in SIZES.into_iter().rev().filter(|size| *size <= most) {
        let [outcome, first] = of_size(stage, size).await?;
        outcomes.insert(0, outcome);
        firsts.insert(0, first);
    }
    for place in 1..outcomes.len() {
        let (before, many) = (outcomes[place - 1].ours, outcomes[place - 1].size.unwrap_or_default());
        let outcome = &mut outcomes[place];
        let grown = 100.0 * (before / outcome.ours - 1.0);
        outcome.limit = format!("a score takes {grown:+.0} % time compared with {many} predictions; {}", outcome.limit);
    }
    outcomes.append(&mut firsts);
    Ok(outcomes)
}

/// Compares results with the bare statement, and the first result, which inserts the rows, with later ones.
async fn of_size(stage: &Stage, size: u64) -> anyhow::Result<[Outcome; 2]> {
    // A separate name for each size: messages in NATS are identified by their prefix, so two databases must not share
    // one.
    let name = &format!("bench_scores_{size}");
    let setting = Setting::on(name);
    // The first result inserts the rows that later results update.
    let matches = stage.rounds + 1;
    prepare(stage, &setting, name, &vec![LIVE; matches]).await?;
    let pool = stage.postgres.pool(name).await?;
    stage.say(format!("inserting {size} users"));
    people::make(&pool, size, 1).await?;
    insert_predictions(stage, &pool, matches, predict).await?;
    let service = stage.serve(&setting, &[]).await?;
    fill_leaderboards(stage, &service).await?;
    let settle = async |finished| settle(stage, &setting, &pool, &results(finished, matches), finished).await;
    stage.say(format!("first result of {size} predictions, which inserts the rows"));
    let first = settle(1).await?;
    stage.say(format!("first result took {first:.1} s"));
    #[expect(clippy::cast_precision_loss, reason = "some millions")]
    let rows = size as f64 * SCORES_A_PREDICTION;
    let (rounds, cores) = stage
        .alternate(
            &groups(stage, &service),
            async |round| {
                pool.execute("vacuum analyze user_scores").await?;
                Ok(rows / settle(round + 2).await?)
            },
            async |round| {
                pool.execute("vacuum analyze user_scores").await?;
                let mut connection = pool.acquire().await?;
                let (mut transaction, began) = (connection.begin().await?, Instant::now());
                transaction.execute(AssertSqlSafe(bare_update(round + 2))).await?;
                let took = began.elapsed().as_secs_f64();
                // The scores must stay correct.
                transaction.rollback().await?;
                Ok(rows / took)
            },
        )
        .await?;
    if size <= 1_000_000 {
        stage.say("checking scores");
        stage.matchday(&setting, &["scores", "rebuild", "--dry-run"], "")?;
    }
    drop(service);
    stage.forget_in_redis(name)?;
    stage.postgres.forget(name).await?;
    let times = rounds.iter().map(|[ours, _]| [1_000.0 * first, 1_000.0 * rows / ours]).collect();
    let first = Outcome {
        what: format!("First result of four leaderboards, with {size} predictions: it inserts the rows"),
        beside: "later results, which update the rows".to_owned(),
        unit: "ms".to_owned(),
        goal: Some(Goal::AtMost(1.5)),
        limit: "there is one first result, compared with the later result of each round".to_owned(),
        ..Outcome::of(&format!("first-scores-{size}"), times)
    };
    let later = Outcome {
        what: format!("Scores after a result with {size} predictions, shown on four leaderboards"),
        beside: "one UPDATE of the same rows, without leaderboards".to_owned(),
        unit: "scores a second".to_owned(),
        goal: Some(Goal::AtLeast(if size < 1_000_000 { 0.6 } else { 0.7 })),
        size: Some(size),
        limit: cores,
        ..Outcome::of(&format!("scores-{size}"), rounds)
    };
    Ok([later, first])
}

fn groups(stage: &Stage, service: &Service) -> Vec<crate::environment::cores::Group> {
    let mut groups = stage.groups(service);
    if let Some(process) =
        std::fs::read_to_string(stage.directory.join("../run/redis.pid")).ok().and_then(|text| text.trim().parse().ok())
    {
        groups.push(crate::environment::cores::Group { name: "Redis", leader: process, with_children: false });
    }
    groups
}

/// Document with results of the first `finished` matches.
pub(super) fn results(finished: usize, matches: usize) -> String {
    let matches: Vec<Match> = (1..=matches).map(|number| if number <= finished { FINISHED } else { LIVE }).collect();
    document(&matches)
}

/// Inserts predictions of all users for a match, in random order.
pub(super) fn predict(event: usize) -> String {
    format!(
        "insert into predictions (user_id, event_id, prediction, home_goals, away_goals, confidence, revision, created_at, updated_at)
         select user_id, {event}, pick_of(home, away), home::smallint, away::smallint, (user_id * 7 % 101)::smallint, 1, '2026-04-30', '2026-04-30'
         from (select user_id, ((user_id * 31 + {event} * 17) % 4)::integer as home, ((user_id * 13 + {event} * 5) % 3)::integer as away
               from users order by hashint8(user_id # {event})) s"
    )
}

fn bare_update(event: usize) -> String {
    format!(
        "update user_scores s set points = s.points + d.points, exact = s.exact + d.exact, correct = s.correct + d.correct,
           settled = s.settled + 1
         from (select user_id, prediction_points(row(20, 30, 40, null, null, 20, 10)::point_rules,
                                                  row(prediction, home_goals, away_goals, confidence, null, false)::forecast,
                                                  row(2, 1, null, false, 2)::match_result) as points,
                 case when home_goals = 2 and away_goals = 1 then 1 else 0 end as exact,
                 case when prediction = 'home' then 1 else 0 end as correct
               from predictions where event_id = {event}) d
         where s.user_id = d.user_id and s.scope = any (score_scopes(1, '2026-05-01 15:00+00', null))"
    )
}
