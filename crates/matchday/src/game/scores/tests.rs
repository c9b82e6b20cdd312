use std::collections::BTreeMap;

use platform::clock::Clock as _;
use proptest::{collection::vec, prelude::*, test_runner::Config as ProptestConfig};
use scoring::{Confidence, Forecast, Hit, Outcome, Pick, Score as Goals, Terms};
use serde_json::json;
use time::{Duration, OffsetDateTime, macros::datetime};
use web::ids::{MatchId, TournamentId, UserId};

use super::{
    rules::{Scope, Score},
    service::{Rebuild, Rerun, ScoreError, UPDATED},
    store,
};
use crate::testing::{MatchBuilder, TestApp, TestFixtures, as_service, eventually, with_database};

/// The database clock decides whether a match is open, and these tests do not move it. A match this far ahead has not
/// started.
const FAR: Duration = Duration::days(365 * 75);

/// Chunks are small, so that a few users make several of them.
const SETTINGS: [(&str, &str); 1] = [("MATCHDAY_SCORES__LANE_SIZE", "2")];

type Table = BTreeMap<(UserId, String), Score>;

/// Returns all scores that are not zero.
async fn scores(app: &TestApp) -> Table {
    let rows: Vec<(i64, String, i32, i32, i32, i32)> = sqlx::query_as(
        "select user_id, scope, points, exact, correct, settled from user_scores where settled <> 0 or points <> 0 or exact <> 0 or correct <> 0",
    )
    .fetch_all(&app.app.core.db)
    .await
    .expect("the scores");
    rows.into_iter()
        .map(|(user, scope, points, exact, correct, settled)| {
            ((UserId(user), scope), Score { points, exact, correct, settled, answered: 0 })
        })
        .collect()
}

async fn settle(app: &TestApp, event: i64) {
    for chunk in app.app.scores.plan(MatchId(event)).await.expect("planned") {
        app.app.scores.apply(MatchId(event), chunk.number).await.expect("applied");
    }
}

async fn differences(app: &TestApp, mode: Rebuild) -> Vec<(UserId, String)> {
    let mut found = Vec::new();
    app.app
        .scores
        .rebuild(mode, |_, _| {}, |difference| found.push((difference.user, difference.scope)))
        .await
        .expect("rebuilt");
    found
}

fn forecast(pick: Pick, goals: Option<(i64, i64)>, confidence: i64) -> Forecast {
    let score = goals.map(|(home, away)| Goals::new(home, away).expect("a score"));
    Forecast::new(pick, score, Confidence::new(confidence).expect("a confidence")).expect("no contradiction")
}

async fn users(app: &TestApp, count: usize) -> Vec<UserId> {
    let mut users = Vec::new();
    for _ in 0..count {
        users.push(app.app.accounts.make_without_phone().await.expect("a user"));
    }
    users
}

async fn predict(app: &TestApp, user: UserId, event: i64, forecast: Forecast) -> bool {
    app.app.predictions.save(user, MatchId(event), forecast).await.is_ok()
}

fn far<'f, 'a>(fixtures: &'f TestFixtures<'a>) -> MatchBuilder<'f, 'a> {
    fixtures.a_match("m").starting_in(FAR)
}

#[tokio::test]
async fn sql_and_rust_agree_on_scopes_of_a_match() {
    with_database(async |options| {
        let db = sqlx::PgPool::connect_with(as_service(&options)).await.expect("connected");
        let first = datetime!(2019-12-28 23:59:59 UTC);
        for step in 0..900 {
            let (start, round) = (
                first + Duration::hours(9) * step,
                (step % 3 > 0).then_some(i16::try_from(step % 40).expect("small") + 1),
            );
            let theirs: Vec<String> = sqlx::query_scalar("select unnest(score_scopes(17, $1, $2::smallint))")
                .bind(start)
                .bind(round)
                .fetch_all(&db)
                .await
                .expect("scopes");
            let ours: Vec<String> =
                Scope::of_match(TournamentId(17), start, round).iter().map(Scope::to_string).collect();
            assert!(ours.is_sorted(), "score rows are locked in the order of their names");
            assert_eq!(theirs, ours, "{start}");
        }
        db.close().await;
    })
    .await;
}

#[tokio::test]
async fn scores_follow_results_corrections_and_annulments() {
    TestApp::run_with(&SETTINGS, async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        let users = users(app, 5).await;
        let forecasts = [
            forecast(Pick::Home, Some((2, 1)), 100),
            forecast(Pick::Home, None, 50),
            forecast(Pick::Draw, Some((1, 1)), 0),
            forecast(Pick::Away, None, 100),
        ];
        for (&user, forecast) in users.iter().zip(forecasts) {
            assert!(predict(app, user, event, forecast).await);
        }
        let tournament: i64 = sqlx::query_scalar("select tournament_id from events where id = $1")
            .bind(event)
            .fetch_one(&app.app.core.db)
            .await
            .expect("the tournament");
        let scopes = Scope::of_match(TournamentId(tournament), app.clock.now() + FAR, None);
        let table = |points: [(i32, i32, i32); 4]| -> Table {
            let rows = users.iter().zip(points).flat_map(|(&user, (points, exact, correct))| {
                scopes.iter().map(move |scope| {
                    ((user, scope.to_string()), Score { points, exact, correct, settled: 1, answered: 0 })
                })
            });
            rows.collect()
        };
        for (home, away, expected) in [
            (2, 1, [(60, 1, 1), (35, 0, 1), (0, 0, 0), (-20, 0, 0)]),
            (1, 1, [(-20, 0, 0), (-5, 0, 0), (40, 1, 1), (-20, 0, 0)]),
            (0, 1, [(-20, 0, 0), (-5, 0, 0), (0, 0, 0), (40, 0, 1)]),
        ] {
            far(&fixtures).at("finished", home, away).put().await;
            settle(app, event).await;
            assert_eq!(scores(app).await, table(expected), "{home}:{away}");
            assert_eq!(differences(app, Rebuild::DryRun).await, []);
        }
        for (status, home, away) in [("awarded", 3, 0), ("finished", 2, 1), ("abandoned", 2, 1)] {
            far(&fixtures).at(status, home, away).put().await;
            settle(app, event).await;
            assert_eq!(scores(app).await.is_empty(), status != "finished", "{status}");
        }
        // Each result publishes one update. Every import empties the outbox, so only the last update is left.
        let published = app.published().await;
        assert_eq!(published, [(UPDATED.to_owned(), json!({"event_id": event, "result_revision": 6}))]);
    })
    .await;
}

#[tokio::test]
async fn chunks_cover_every_user_once_and_are_idempotent() {
    TestApp::run_with(&SETTINGS, async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        for user in users(app, 7).await {
            assert!(predict(app, user, event, forecast(Pick::Home, None, 0)).await);
        }
        assert!(app.app.scores.plan(MatchId(event)).await.expect("planned").is_empty(), "the match has no result yet");
        far(&fixtures).at("finished", 1, 0).put().await;
        let chunks = app.app.scores.plan(MatchId(event)).await.expect("planned");
        assert_eq!(chunks.iter().map(|chunk| chunk.number).collect::<Vec<_>>(), [1, 2, 3, 4]);
        let progress = app.app.scores.in_progress().await.expect("read");
        assert_eq!((progress[0].chunks, progress[0].done), (4, 0));
        app.app.scores.apply(MatchId(event), 2).await.expect("applied");
        let again = app.app.scores.plan(MatchId(event)).await.expect("planned");
        assert_eq!(again.iter().map(|chunk| chunk.number).collect::<Vec<_>>(), [1, 3, 4], "only chunks behind");
        let every = || async {
            for chunk in [1, 2, 3, 4, 2, 1, 99] {
                app.app.scores.apply(MatchId(event), chunk).await.expect("applied");
            }
        };
        every().await;
        let once = scores(app).await;
        assert_eq!(once.len(), 28);
        assert!(once.values().all(|score| score.points == 20 && score.settled == 1), "{once:?}");
        every().await;
        assert_eq!(scores(app).await, once);
        assert!(app.app.scores.in_progress().await.expect("read").is_empty());
        let rerun = async |event: i64| app.app.scores.rerun(MatchId(event), |_, _| {}).await.expect("done");
        assert_eq!(rerun(event).await, Rerun::Done);
        assert_eq!(scores(app).await, once);
        assert_eq!(rerun(i64::MAX).await, Rerun::NoSuchMatch);
        let other = fixtures.a_match("n").between("albion", "wanderers").starting_in(FAR).put().await;
        assert_eq!(rerun(other).await, Rerun::NothingToDo);
    })
    .await;
}

#[tokio::test]
async fn racing_chunks_add_points_once() {
    TestApp::run_with(&SETTINGS, async |app| {
        let fixtures = app.fixtures();
        let (mut events, users) = (Vec::new(), users(app, 9).await);
        for key in ["a", "b", "c"] {
            let event = fixtures.a_match(key).starting_in(FAR).put().await;
            for &user in &users {
                assert!(predict(app, user, event, forecast(Pick::Home, None, 0)).await);
            }
            fixtures.a_match(key).starting_in(FAR).at("finished", 1, 0).put().await;
            events.push(event);
        }
        // Plans every match and applies each of its chunks three times concurrently.
        let racing = events.iter().flat_map(|&event| (0..3).map(move |_| event)).map(|event| async move {
            app.app.scores.plan(MatchId(event)).await.expect("planned");
            let chunks = (1..=5).map(|chunk| app.app.scores.apply(MatchId(event), chunk));
            for outcome in futures_util::future::join_all(chunks).await {
                outcome.expect("applied");
            }
        });
        futures_util::future::join_all(racing).await;
        for &event in &events {
            settle(app, event).await;
        }
        let scores = scores(app).await;
        assert_eq!(scores.len(), 36);
        assert!(scores.values().all(|score| score.points == 60 && score.settled == 3), "{scores:?}");
        let mut published: Vec<_> = app
            .published()
            .await
            .into_iter()
            .map(|(subject, payload)| (subject, payload["event_id"].as_i64()))
            .collect();
        published.sort();
        let once: Vec<_> = events.iter().map(|&event| (UPDATED.to_owned(), Some(event))).collect();
        assert_eq!(published, once, "each update is published once");
    })
    .await;
}

#[tokio::test]
async fn concurrent_results_do_not_deadlock() {
    TestApp::run(async |app| {
        let (fixtures, users) = (app.fixtures(), users(app, 2).await);
        let put = async |key: &str, users: &[UserId]| {
            let event = fixtures.a_match(key).starting_in(FAR).put().await;
            for &user in users {
                assert!(predict(app, user, event, forecast(Pick::Home, None, 0)).await);
            }
            fixtures.a_match(key).starting_in(FAR).at("finished", 1, 0).put().await;
            app.app.scores.plan(MatchId(event)).await.expect("planned");
            event
        };
        let waiting = async |count: i64| {
            let query = "select count(*) from pg_stat_activity
                          where datname = current_database() and wait_event_type = 'Lock'";
            eventually("workers wait for locks", async || {
                sqlx::query_scalar::<_, i64>(query).fetch_one(app.owner()).await.expect("read") == count
            })
            .await;
        };
        let apply = async |event: i64| app.app.scores.apply(MatchId(event), 1).await.expect("at the first attempt");
        apply(put("of the second", &users[1..]).await).await;
        assert_eq!(app.published().await.len(), 1);
        let (of_first, of_both, also_of_both) =
            (put("of the first", &users[..1]).await, put("of both", &users).await, put("also of both", &users).await);
        // The first worker sees only the second user's score row and waits for it. The second worker sees both rows,
        // and holds the first one while it waits.
        let mut holder = platform::database::begin(&app.app.core.db).await.expect("begun");
        sqlx::query("select from user_scores where user_id = $1 for update")
            .bind(users[1].0)
            .execute(&mut *holder)
            .await
            .expect("held");
        tokio::join!(apply(of_both), async {
            waiting(1).await;
            apply(of_first).await;
            tokio::join!(apply(also_of_both), async {
                waiting(2).await;
                holder.commit().await.expect("committed");
            });
        });
        let scores = scores(app).await;
        assert_eq!(scores.len(), 8);
        assert!(scores.values().all(|score| score.settled == 3 && score.points == 60), "{scores:?}");
        assert_eq!(app.published().await.len(), 3);
    })
    .await;
}

#[tokio::test]
async fn overdue_result_is_planned_again() {
    TestApp::run_with(&SETTINGS, async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        let user = users(app, 1).await[0];
        assert!(predict(app, user, event, forecast(Pick::Home, None, 0)).await);
        far(&fixtures).at("finished", 1, 0).put().await;
        let published =
            async || app.published().await.into_iter().map(|(subject, payload)| (subject, payload["event_id"].clone()));
        assert_eq!(app.app.scores.plan_overdue().await.expect("planned"), 0, "the result is not overdue yet");
        sqlx::query("update event_results set recorded_at = now() - interval '3 minutes', look_again_at = now()")
            .execute(&app.app.core.db)
            .await
            .expect("aged");
        assert_eq!(app.app.scores.plan_overdue().await.expect("planned"), 1);
        assert!(published().await.eq([("work.score.planned".to_owned(), json!(event))]));
        assert_eq!(app.app.scores.plan_overdue().await.expect("planned"), 0, "the result is not overdue again yet");
        settle(app, event).await;
        assert!(published().await.eq([(UPDATED.to_owned(), json!(event))]));
        assert_eq!(app.app.scores.plan_overdue().await.expect("planned"), 0);
    })
    .await;
}

#[tokio::test]
async fn past_weeks_are_dropped_and_stay_dropped() {
    TestApp::run_with(&SETTINGS, async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        let users = users(app, 3).await;
        for &user in &users {
            assert!(predict(app, user, event, forecast(Pick::Home, Some((1, 0)), 30)).await);
        }
        far(&fixtures).at("finished", 1, 0).put().await;
        settle(app, event).await;
        let of_weeks = |scores: &Table| scores.keys().filter(|(_, scope)| scope.starts_with("week:")).count();
        let all = scores(app).await;
        assert_eq!((all.len(), of_weeks(&all)), (12, 3));
        let drop_weeks = async || app.app.scores.drop_past_weeks().await.expect("dropped");

        let mut later = FAR + Duration::weeks(8);
        app.clock.advance(later);
        assert_eq!(drop_weeks().await, 0, "the week is the eighth before this one");
        assert_eq!(scores(app).await, all);
        app.clock.advance(Duration::weeks(1));
        later += Duration::weeks(1);
        assert_eq!((drop_weeks().await, drop_weeks().await), (3, 0));
        let mut kept = all.clone();
        kept.retain(|(_, scope), _| !scope.starts_with("week:"));
        assert_eq!(scores(app).await, kept, "scores of the month, the tournament and all time stay");
        assert_eq!(differences(app, Rebuild::Repair).await, []);

        // A late correction changes the other scores only.
        let corrected = fixtures.a_match("m").starting_in(FAR - later).at("finished", 0, 2);
        assert_eq!(corrected.put().await, event);
        settle(app, event).await;
        let after = scores(app).await;
        assert_eq!((after.len(), of_weeks(&after)), (9, 0));
        assert!(kept.iter().all(|(place, score)| after[place].points < score.points), "{after:?}");
        assert_eq!(differences(app, Rebuild::DryRun).await, []);

        // A process that stopped in the middle: the next one continues with the following users.
        let interrupt = "insert into user_scores select n, 'week:2026-01', 1, 0, 0, 1 from generate_series(1, 1500) n";
        for statement in [interrupt, "update score_retention set next_user = 1001"] {
            sqlx::query(statement).execute(&app.app.core.db).await.expect("done");
        }
        assert_eq!(drop_weeks().await, 500);
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn rebuild_refuses_archived_predictions() {
    TestApp::run_with(&SETTINGS, async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        let users = users(app, 2).await;
        assert!(predict(app, users[0], event, forecast(Pick::Home, None, 30)).await);
        far(&fixtures).at("finished", 1, 0).put().await;
        settle(app, event).await;
        let right = scores(app).await;
        let as_owner = async |statement: &'static str| {
            sqlx::query(statement).execute(app.owner()).await.expect(statement);
        };
        as_owner("alter table predictions detach partition predictions_0").await;
        let refused = app.app.scores.rebuild(Rebuild::Repair, |_, _| {}, |_| {}).await;
        assert!(matches!(refused, Err(ScoreError::Archived(archived)) if archived == MatchId(event)), "{refused:?}");
        assert_eq!(scores(app).await, right);
        as_owner("alter table predictions attach partition predictions_0 for values from (0) to (1000)").await;
        assert_eq!(differences(app, Rebuild::Repair).await, []);
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn rebuild_reports_and_repairs_wrong_scores() {
    TestApp::run_with(&SETTINGS, async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        let users = users(app, 4).await;
        for &user in &users {
            assert!(predict(app, user, event, forecast(Pick::Home, Some((1, 0)), 30)).await);
        }
        far(&fixtures).at("finished", 1, 0).put().await;
        settle(app, event).await;
        let right = scores(app).await;
        for wrong in [
            format!("update user_scores set points = points + 1 where user_id = {} and scope = 'all'", users[1]),
            format!("update user_scores set exact = 0 where user_id = {} and scope = 'all'", users[1]),
            format!("delete from user_scores where user_id = {} and scope = 'all'", users[1]),
        ] {
            sqlx::query(sqlx::AssertSqlSafe(wrong.as_str())).execute(&app.app.core.db).await.expect("spoilt");
            let expected = [(users[1], "all".to_owned())];
            assert_eq!(differences(app, Rebuild::DryRun).await, expected, "{wrong}");
            assert_ne!(scores(app).await, right, "a dry run changes nothing");
            assert_eq!(differences(app, Rebuild::Repair).await, expected, "{wrong}");
            assert_eq!(scores(app).await, right);
        }
        let orphan = "insert into user_scores values (999999, 'week:2020-01', 1, 0, 0, 0)";
        sqlx::query(orphan).execute(&app.app.core.db).await.expect("spoilt");
        assert_eq!(differences(app, Rebuild::Repair).await, [(UserId(999_999), "week:2020-01".to_owned())]);
        assert_eq!(differences(app, Rebuild::Repair).await, []);
        // A result that no chunk has yet is not a difference.
        far(&fixtures).at("finished", 0, 0).put().await;
        assert_eq!(differences(app, Rebuild::Repair).await, []);
        assert_eq!(scores(app).await, right);
    })
    .await;
}

const MATCHES: [&str; 3] = ["a", "b", "c"];
const USERS: usize = 6;

/// A worker can be delayed between adding a result to the scores and paying for it, for long enough that the result is
/// corrected and the correction paid.
#[tokio::test]
async fn late_worker_does_not_pay_for_older_result() {
    let settings = [("MATCHDAY_SCORES__LANE_SIZE", "2"), ("MATCHDAY_COINS__PER_POINT", "1")];
    TestApp::run_with(&settings, async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        let users = users(app, 3).await;
        for &user in &users {
            assert!(predict(app, user, event, forecast(Pick::Home, None, 0)).await);
        }
        far(&fixtures).at("finished", 1, 0).put().await;
        let (scores, mut connection) = (&app.app.scores, app.app.core.db.acquire().await.expect("connected"));
        let chunks = scores.plan(MatchId(event)).await.expect("planned");
        let first =
            store::latest_result(&mut connection, MatchId(event).into()).await.expect("read").expect("a result");
        // The second result gives these users no points, so no payout is recorded.
        far(&fixtures).at("finished", 0, 1).put().await;
        settle(app, event).await;
        for chunk in &chunks {
            scores.pay(chunk, &first).await.expect("nothing to do");
        }
        for user in users {
            assert_eq!(app.app.coins.balance(user).await.expect("read"), 100);
        }
        // Paying a chunk again for the same result changes nothing.
        far(&fixtures).at("finished", 2, 0).put().await;
        settle(app, event).await;
        let last = store::latest_result(&mut connection, MatchId(event).into()).await.expect("read").expect("a result");
        for chunk in &chunks {
            scores.pay(chunk, &last).await.expect("nothing to do");
        }
        let paid: i64 =
            sqlx::query_scalar("select count(*) from coin_payouts").fetch_one(&app.app.core.db).await.expect("read");
        assert_eq!(paid, 3);
        app.published().await;
    })
    .await;
}

/// An operation on a match in the model test.
#[derive(Clone, Debug)]
enum Step {
    Predict {
        event: usize,
        user: usize,
        forecast: Forecast,
    },
    Finish {
        event: usize,
        home: i32,
        away: i32,
    },
    CallOff {
        event: usize,
        status: &'static str,
    },
    Reopen {
        event: usize,
    },
    /// Changes the start time, in days from [`FAR`].
    Move {
        event: usize,
        days: i64,
    },
    Plan {
        event: usize,
    },
    Apply {
        event: usize,
        chunk: i32,
    },
    Rebuild,
}

fn any_step() -> impl Strategy<Value = Step> {
    let event = 0..MATCHES.len();
    let forecast = (0_i64..3, 0_i64..3, any::<bool>(), 0_i64..=100).prop_map(|(home, away, scored, confidence)| {
        let pick = Goals::new(home, away).expect("a score").pick();
        forecast(pick, scored.then_some((home, away)), confidence)
    });
    prop_oneof![
        8 => (event.clone(), 0..USERS, forecast).prop_map(|(event, user, forecast)| Step::Predict { event, user, forecast }),
        6 => (event.clone(), 0..3, 0..3).prop_map(|(event, home, away)| Step::Finish { event, home, away }),
        1 => (event.clone(), prop_oneof![Just("cancelled"), Just("abandoned"), Just("postponed")])
            .prop_map(|(event, status)| Step::CallOff { event, status }),
        3 => event.clone().prop_map(|event| Step::Reopen { event }),
        2 => (event.clone(), 0_i64..40).prop_map(|(event, days)| Step::Move { event, days }),
        4 => event.clone().prop_map(|event| Step::Plan { event }),
        6 => (event, 1..4).prop_map(|(event, chunk)| Step::Apply { event, chunk }),
        1 => Just(Step::Rebuild),
    ]
}

/// Model of a match's state.
#[derive(Clone, Copy)]
struct Model {
    status: &'static str,
    goals: Option<(i32, i32)>,
    days: i64,
}

impl Model {
    fn start(self) -> Duration {
        FAR + Duration::days(self.days)
    }

    fn outcome(self) -> Outcome {
        match self.goals {
            Some((home, away)) if self.status == "finished" => Outcome::result(home, away),
            _ => Outcome::Open,
        }
    }
}

async fn write(fixtures: &TestFixtures<'_>, key: &str, known: Model) -> i64 {
    let described = fixtures.a_match(key).starting_in(known.start());
    match known.goals {
        Some((home, away)) => described.at(known.status, home, away),
        None => described.being(known.status),
    }
    .put()
    .await
}

/// Runs the steps, applies all pending results, and checks that the scores follow only from the last result of each
/// match and the last predictions accepted before it.
async fn check_scores_after_steps(app: &TestApp, steps: &[Step]) {
    let fixtures = app.fixtures();
    let users = users(app, USERS).await;
    let mut matches = [Model { status: "scheduled", goals: None, days: 0 }; MATCHES.len()];
    let mut events = Vec::new();
    for (key, known) in MATCHES.iter().zip(matches) {
        events.push(write(&fixtures, key, known).await);
    }
    let mut predictions: BTreeMap<(usize, usize), Forecast> = BTreeMap::new();
    for step in steps {
        let mut change = None;
        match *step {
            Step::Predict { event, user, forecast } => {
                let accepted = predict(app, users[user], events[event], forecast).await;
                assert_eq!(accepted, matches[event].status == "scheduled", "{step:?}");
                if accepted {
                    predictions.insert((event, user), forecast);
                }
            }
            Step::Finish { event, home, away } => {
                change = Some((event, Model { status: "finished", goals: Some((home, away)), ..matches[event] }));
            }
            Step::CallOff { event, status } => change = Some((event, Model { status, goals: None, ..matches[event] })),
            Step::Reopen { event } => {
                change = Some((event, Model { status: "scheduled", goals: None, ..matches[event] }));
            }
            Step::Move { event, days } => change = Some((event, Model { days, ..matches[event] })),
            Step::Plan { event } => {
                app.app.scores.plan(MatchId(events[event])).await.expect("planned");
            }
            Step::Apply { event, chunk } => app.app.scores.apply(MatchId(events[event]), chunk).await.expect("applied"),
            Step::Rebuild => assert_eq!(differences(app, Rebuild::Repair).await, [], "rebuild between steps"),
        }
        if let Some((event, known)) = change {
            matches[event] = known;
            write(&fixtures, MATCHES[event], known).await;
        }
    }
    for &event in &events {
        settle(app, event).await;
    }
    let tournament: i64 = sqlx::query_scalar("select tournament_id from events where id = $1")
        .bind(events[0])
        .fetch_one(&app.app.core.db)
        .await
        .expect("the tournament");
    let now: OffsetDateTime = app.clock.now();
    let mut expected = Table::new();
    for (&(event, user), forecast) in &predictions {
        let Some(earned) = forecast.earnings(&Terms::DEFAULT, matches[event].outcome()) else { continue };
        for scope in Scope::of_match(TournamentId(tournament), now + matches[event].start(), None) {
            let score = expected.entry((users[user], scope.to_string())).or_default();
            score.points += earned.total();
            score.exact += i32::from(earned.hit == Hit::Exact);
            score.correct += i32::from(earned.hit != Hit::Wrong);
            score.settled += 1;
        }
    }
    assert_eq!(scores(app).await, expected);
    assert_eq!(differences(app, Rebuild::Repair).await, []);
    assert!(app.app.scores.in_progress().await.expect("read").is_empty());
}

#[test]
fn scores_depend_only_on_last_results() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let config = ProptestConfig { cases: 24, max_shrink_iters: 200, ..ProptestConfig::default() };
    proptest!(config, |(steps in vec(any_step(), 1..60))| {
        runtime.block_on(TestApp::run_with(&SETTINGS, async |app| {
            check_scores_after_steps(app, &steps).await;
            app.published().await;
        }));
    });
}
