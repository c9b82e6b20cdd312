//! A result becomes scores, leaderboards and coins through the real queue, even if workers are killed.

use std::time::{Duration, Instant};

use matchday::testing::with_database;
use serde_json::{Value, json};
use sqlx::PgPool;

use crate::{
    process::{Process, Setting, get},
    relay::streams,
    report,
};

const FANS: i64 = 20_000;

/// Score of a match, and the team that advanced.
type Result = (i32, i32, Option<&'static str>);

/// One tournament with three matches in the far future, and a question for a number. The first match is a final, with its
/// own rules.
fn document(results: &[Option<Result>], number: Option<i64>) -> String {
    let matches: Vec<Value> = results
        .iter()
        .enumerate()
        .map(|(number, result)| {
            json!({"key": format!("m{number}"), "home": "rovers", "away": "city", "start_time": "2090-05-01T15:00:00Z",
                   "venue": "Park", "status": if result.is_some() { "finished" } else { "scheduled" },
                   "home_score": result.map(|(home, ..)| home), "away_score": result.map(|(_, away, _)| away),
                   "advanced": result.and_then(|(.., advanced)| advanced), "knockout": number == 0, "round": 1 + number / 2,
                   "stage": (number == 0).then_some("final"), "rule_set": if number == 0 { "cup" } else { "default" }})
        })
        .collect();
    json!({"sport": {"slug": "football", "name": "Football"},
           "tournament": {"slug": "cup", "name": "Cup", "logo": null},
           "rule_sets": [{"slug": "cup", "name": "Cup", "margin": {"within": 1, "points": 26}, "multiplier": {"final": 1.5}, "joker": 1}],
           "teams": [{"slug": "rovers", "name": "Rovers"}, {"slug": "city", "name": "City"}],
           "matches": matches,
           "questions": [{"key": "goals", "text": "How many goals?", "kind": "number", "scoring": "nearest", "points": 30,
                          "round": 1, "locks_at": "2090-05-01T15:00:00Z", "resolution": number}]})
    .to_string()
}

async fn rows<T>(db: &PgPool, query: &'static str) -> Vec<T>
where
    T: for<'r> sqlx::FromRow<'r, sqlx::postgres::PgRow> + Send + Unpin,
{
    sqlx::query_as(query).fetch_all(db).await.expect("read")
}

/// Every user predicts every match, and most answer the question. Predictions differ between users, but not between runs.
async fn all_users_predict(db: &PgPool) {
    sqlx::query("insert into users (created_at, username) select now(), 'fan' || n from generate_series(1, $1) n")
        .bind(FANS)
        .execute(db)
        .await
        .expect("users");
    sqlx::query(
        "insert into predictions (user_id, event_id, prediction, home_goals, away_goals, confidence, advances, joker, revision,
                                  created_at, updated_at)
         select u.user_id, e.id, pick_of(home, away), home::smallint, away::smallint, (u.user_id * 7 % 101)::smallint,
                case when e.is_knockout then (array['home', 'away', null])[1 + u.user_id % 3] end,
                e.is_knockout and u.user_id % 5 = 0, 1, now(), now()
         from users u cross join events e
         cross join lateral (select (u.user_id * 31 + e.id * 17) % 4 as h, (u.user_id * 13 + e.id * 5) % 3 as a) g
         cross join lateral (select h::integer as home, a::integer as away) s",
    )
    .execute(db)
    .await
    .expect("predictions");
    sqlx::query(
        "insert into answers (user_id, question_id, value, revision, created_at, updated_at)
         select u.user_id, q.id, u.user_id * 7 % 60, 1, now(), now() from users u cross join questions q
         where u.user_id % 4 > 0",
    )
    .execute(db)
    .await
    .expect("answers");
}

async fn applied(db: &PgPool) -> bool {
    const LEFT: &str = "select (select count(*) from event_results where applied_at is null)
                             + (select count(*) from question_results where applied_at is null)";
    let (left,): (i64,) = rows(db, LEFT).await.remove(0);
    let (waiting,): (i64,) = rows(db, "select count(*) from outbox").await.remove(0);
    left == 0 && waiting == 0
}

/// Expected scores, computed by a separate statement of this test.
const EXPECTED: &str = "
    select p.user_id, sum(prediction_points(
                   row(s.outcome, s.difference, s.exact, s.margin_within, s.margin_points, s.stake, s.advances)::point_rules,
                   row(p.prediction, p.home_goals, p.away_goals, p.confidence, p.advances, p.joker)::forecast,
                   row(e.home_score, e.away_score, e.advanced, e.is_knockout, e.multiplier)::match_result)),
           count(*)
    from predictions p join events e on e.id = p.event_id join rule_sets s on s.id = e.rule_set_id
        where e.status = 'finished' group by p.user_id order by 1";
/// Answers that are nearest to the last resolution, which is 33.
const NEAREST: &str = "select user_id from answers where abs(value - 33) = (select min(abs(value - 33)) from answers)";
const FOUND: &str = "select user_id, points::bigint, settled::bigint from user_scores where scope = 'all' order by 1";

/// Positive points of each match, which are worth the same number of coins. The points are summed where they are computed:
/// Citus 13 sends a wrong statement to its workers if the function is in a subquery.
const EARNED: &str = "
    select user_id, earned from (
        select p.user_id,
               sum(greatest(prediction_points(
                   row(s.outcome, s.difference, s.exact, s.margin_within, s.margin_points, s.stake, s.advances)::point_rules,
                   row(p.prediction, p.home_goals, p.away_goals, p.confidence, p.advances, p.joker)::forecast,
                   row(e.home_score, e.away_score, e.advanced, e.is_knockout, e.multiplier)::match_result), 0))::bigint as earned
        from predictions p join events e on e.id = p.event_id join rule_sets s on s.id = e.rule_set_id
        where e.status = 'finished' group by p.user_id) sums
    where earned > 0 order by 1";

#[tokio::test]
async fn workers_killed_at_random_leave_correct_scores() {
    with_database(async |options| {
        let setting = Setting::new(&options)
            .without("MATCHDAY_MATRIX__HOMESERVER_URL")
            .with("MATCHDAY_SCORES__LANE_SIZE", "100")
            .with("MATCHDAY_COINS__PER_POINT", "1")
            .with("MATCHDAY_OUTBOX__LEASE", "1s");
        let streams = streams(&setting).await;
        let db = PgPool::connect_with(options).await.expect("connected");
        let import = |results: &[Option<Result>], number: Option<i64>| {
            setting.expect(&["fixtures", "import", "-"], &document(results, number))
        };
        import(&[None, None, None], None);
        all_users_predict(&db).await;

        let serving = setting.start(&["serve", "--no-workers"]);
        let token = setting.expect(&["sessions", "issue", "--user", "77"], "");
        // Read the leaderboards once, so that workers keep them up to date from the start.
        for board in ["", "?tournament_id=1"] {
            get(&serving.public, &format!("/api/auth/leaderboards{board}"), &token).await;
        }
        let mut workers = vec![setting.start(&["worker"]), setting.start(&["worker"])];
        let began = Instant::now();
        import(&[Some((2, 1, None)), None, None], Some(17));
        for (number, pause) in [90, 310, 20, 170, 240, 60, 400, 130, 280, 35].into_iter().enumerate() {
            match number {
                3 => drop(import(&[Some((2, 1, None)), Some((0, 0, None)), None], Some(17))),
                // Correct a result while it is being applied: level after 90 minutes, then another team advances on
                // penalties, then extra time was counted after all. The question is corrected, taken back and resolved
                // again.
                5 => drop(import(&[Some((1, 1, Some("home"))), Some((0, 0, None)), Some((3, 0, None))], Some(20))),
                7 => drop(import(&[Some((1, 1, Some("away"))), Some((0, 0, None)), Some((3, 0, None))], None)),
                9 => drop(import(&[Some((2, 1, Some("home"))), Some((0, 0, None)), Some((3, 0, None))], Some(33))),
                _ => {}
            }
            tokio::time::sleep(Duration::from_millis(pause)).await;
            workers.remove(0).kill();
            workers.push(setting.start(&["worker"]));
        }
        let killed = began.elapsed();
        while !applied(&db).await {
            // On Citus, chunks this small take ten times as long.
            assert!(began.elapsed() < Duration::from_mins(8), "{}", setting.expect(&["scores", "status"], ""));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        report(&format!(
            "scores: {FANS} fans, 3 results, 3 corrections of a knockout match, 4 resolutions of a question, 10 workers killed within {killed:.1?}; done after {:.1?}",
            began.elapsed()
        ));
        assert_eq!(setting.expect(&["scores", "status"], ""), "every result is in all scores");
        let rebuilt = setting.expect(&["scores", "rebuild", "--dry-run"], "");
        assert_eq!(rebuilt, "every score matches predictions, answers and results");
        let mut expected: Vec<(i64, i64, i64)> = rows(&db, EXPECTED).await;
        let nearest: Vec<(i64,)> = rows(&db, NEAREST).await;
        assert!(nearest.len() > 100, "many users are nearest");
        for (user, points, _) in &mut expected {
            *points += if nearest.contains(&(*user,)) { 30 } else { 0 };
        }
        let found: Vec<(i64, i64, i64)> = rows(&db, FOUND).await;
        assert_eq!(expected.len(), usize::try_from(FANS).expect("fits"));
        assert_eq!(found, expected);
        leaderboards_show(&db, &serving, &token).await;
        // Every user is paid exactly once for the final results, regardless of payments for earlier ones.
        let paid: Vec<(i64, i64)> =
            rows(&db, "select user_id, balance from wallets where balance > 0 order by 1").await;
        let earned: Vec<(i64, i64)> = rows(&db, EARNED).await;
        assert!(earned.len() > 1_000, "many users earned points");
        assert_eq!(paid, earned);
        let audit = setting.expect(&["coins", "audit"], "");
        assert!(audit.ends_with("every wallet matches its history"), "{audit}");

        drop(workers);
        streams.remove().await;
        db.close().await;
    })
    .await;
}

/// Checks that the leaderboards hold exactly the rows of the table, in the same order.
async fn leaderboards_show(db: &PgPool, serving: &Process, token: &str) {
    const BOARD: &str = "select user_id, points, exact, correct, settled, rank() over (order by points desc)
        from user_scores where scope = 'all' and settled > 0 order by points desc, exact desc, correct desc, user_id";
    let expected: Vec<(i64, i32, i32, i32, i32, i64)> = rows(db, BOARD).await;
    let entry = |&(user, points, exact, correct, settled, rank): &(i64, i32, i32, i32, i32, i64)| json!({"user": user, "points": points, "exact": exact, "correct": correct, "settled": settled, "rank": rank});
    let bare = |listed: &Value| -> Vec<Value> {
        let mut listed = listed.as_array().expect("a list").clone();
        for entry in &mut listed {
            entry["user"] = entry["user"]["id"].clone();
        }
        listed
    };
    for board in ["", "?tournament_id=1"] {
        let separator = if board.is_empty() { '?' } else { '&' };
        let path = format!("/api/auth/leaderboards{board}{separator}per_page=100");
        let (status, answer) = get(&serving.public, &path, token).await;
        assert_eq!(status, 200, "{answer}");
        assert_eq!(answer["meta"]["total_players"], FANS);
        assert_eq!(bare(&answer["data"]["top"]), expected[..100].iter().map(entry).collect::<Vec<_>>());
        let mine = expected.iter().position(|row| row.0 == 77).expect("a place");
        let around = &expected[mine.saturating_sub(5)..(mine + 6).min(expected.len())];
        assert_eq!(bare(&answer["data"]["neighbours"]), around.iter().map(entry).collect::<Vec<_>>());
    }
}
