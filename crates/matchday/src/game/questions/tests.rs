//! Questions through the router, on a real database.

use std::collections::HashMap;

use futures_util::future::join_all;
use http::Method;
use proptest::{
    prelude::*,
    strategy::ValueTree as _,
    test_runner::{Config, TestRunner},
};
use serde_json::{Value, json};
use time::{Duration, format_description::well_known::Rfc3339};
use web::{
    ids::{QuestionId, UserId},
    paging::Cursor,
};

use super::{
    rules::{NumberScoring, QuestionKind, Terms, points},
    service::{Answer as Said, AnswerError, Status},
    store,
};
use crate::{
    catalogue::fixtures::{
        document::Document,
        service::{ImportError, Mode},
    },
    game::scores::service::Rebuild,
    testing::{Answer, TestApp, TestFixtures, TestUser},
};

/// A lock this far ahead has not passed by the clock of the database.
const FAR: Duration = Duration::days(365 * 75);

fn options(keys: &[&str]) -> Value {
    keys.iter().map(|key| json!({"key": key, "label": key.to_uppercase()})).collect()
}

/// Imports questions into the tournament of the fixtures. The lock is far ahead unless it is given.
async fn import(app: &TestApp, fixtures: &TestFixtures<'_>, matches: &[Value], questions: &[Value]) {
    let document = document(app, fixtures, matches, questions);
    app.app.fixtures.import(&document, Mode::Write, |_| {}).await.expect("imported");
}

fn document(app: &TestApp, fixtures: &TestFixtures<'_>, matches: &[Value], questions: &[Value]) -> Document {
    use platform::clock::Clock as _;
    let lock = (app.clock.now() + FAR).format(&Rfc3339).expect("a moment");
    let questions: Vec<Value> = questions
        .iter()
        .map(|question| {
            let mut full = json!({"text": "Who?", "points": 10, "locks_at": lock});
            full.as_object_mut().expect("an object").extend(question.as_object().expect("an object").clone());
            full
        })
        .collect();
    let mut document = fixtures.document(matches);
    document["questions"] = json!(questions);
    Document::parse(&document.to_string()).expect("a valid document")
}

async fn question_id(app: &TestApp, key: &str) -> i64 {
    let id = sqlx::query_scalar("select id from questions where key = $1").bind(key);
    id.fetch_one(&app.app.core.db).await.expect("a question")
}

async fn say(user: &TestUser<'_>, question: i64, answer: Value) -> Answer {
    let path = format!("/api/auth/questions/{question}/answer");
    user.send(Method::PUT, &path, Some(json!({"answer": answer}).to_string())).await
}

async fn show(user: &TestUser<'_>, question: i64) -> Value {
    user.get(&format!("/api/auth/questions/{question}")).await.expect(200)["data"].take()
}

async fn all_points(app: &TestApp) -> HashMap<i64, i32> {
    let rows: Vec<(i64, i32)> =
        sqlx::query_as("select user_id, points from user_scores where scope = 'all' and answered + settled > 0")
            .fetch_all(&app.app.core.db)
            .await
            .expect("read");
    rows.into_iter().collect()
}

/// Checks that a rebuild would change no score.
async fn scores_are_exact(app: &TestApp) {
    let mut differences = Vec::new();
    let rebuilt = app.app.scores.rebuild(Rebuild::DryRun, |_, _| {}, |difference| differences.push(difference)).await;
    rebuilt.expect("compared");
    assert_eq!(differences, []);
}

#[tokio::test]
async fn answers_are_saved_replaced_and_counted() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let several = json!({"key": "s", "kind": "several_of", "pick": 2, "options": options(&["ada", "bea", "cleo"])});
        import(app, &fixtures, &[], &[several]).await;
        let (question, user, other) = (question_id(app, "s").await, app.user().await, app.user().await);
        let first = say(&user, question, json!(["cleo", "ada"])).await.expect(201);
        assert_eq!(first["data"]["answer"], json!(["ada", "cleo"]), "in the order of the options");
        say(&other, question, json!(["ada", "bea"])).await.expect(201);
        let same = say(&user, question, json!(["ada", "cleo"])).await.expect(200);
        assert_eq!(same["data"]["updated_at"], first["data"]["updated_at"], "an unchanged answer is kept");
        let second = say(&user, question, json!(["bea", "cleo"])).await.expect(200);
        assert_eq!(second["data"]["created_at"], first["data"]["created_at"]);
        assert_eq!(show(&user, question).await["answers_count"], 2);
        let answers = format!("/api/auth/questions/{question}/answers");
        assert_eq!(user.get(&answers).await.expect(403)["code"], "question_open");
        let resolved = json!({"key": "s", "kind": "several_of", "pick": 2, "options": options(&["ada", "bea", "cleo"]),
                              "resolution": ["bea", "cleo"]});
        import(app, &fixtures, &[], &[resolved]).await;
        let listed = user.get(&answers).await.expect(200);
        assert_eq!(listed["meta"]["distribution"], json!({"ada": 1, "bea": 2, "cleo": 1}));
        let earned: Vec<&Value> = (0..2).map(|at| &listed["data"][at]["points_earned"]).collect();
        assert_eq!(earned, [&json!(20), &json!(10)]);
        assert_eq!(say(&user, question, json!(["ada", "bea"])).await.expect(400)["code"], "question_resolved");
        app.settle().await;
        assert_eq!(all_points(app).await, HashMap::from([(user.id.0, 20), (other.id.0, 10)]));
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn database_clock_opens_and_locks_questions() {
    TestApp::run_with_database_clock(&[], async |app| {
        use platform::clock::Clock as _;
        let fixtures = app.fixtures();
        let at = |minutes: i64| (app.clock.now() + Duration::minutes(minutes)).format(&Rfc3339).expect("a moment");
        let timed = json!({"key": "q", "kind": "number", "opens_at": at(10), "locks_at": at(20)});
        let entry = fixtures.a_match("m").starting_in(Duration::minutes(15)).json();
        let of_match = json!({"key": "e", "kind": "number", "match": entry["key"], "locks_at": null});
        import(app, &fixtures, std::slice::from_ref(&entry), &[timed, of_match]).await;
        let (timed, of_match) = (question_id(app, "q").await, question_id(app, "e").await);
        let user = app.user().await;
        say(&user, timed, json!(1)).await.expect(404);
        say(&user, of_match, json!(1)).await.expect(201);
        app.advance_database(Duration::minutes(10)).await;
        say(&user, timed, json!(1)).await.expect(201);
        app.advance_database(Duration::minutes(5)).await;
        assert_eq!(say(&user, of_match, json!(2)).await.expect(400)["code"], "question_locked");
        say(&user, timed, json!(2)).await.expect(200);
        app.advance_database(Duration::minutes(5)).await;
        assert_eq!(say(&user, timed, json!(3)).await.expect(400)["code"], "question_locked");
        assert_eq!(show(&user, timed).await["my_answer"]["answer"], 2);
        app.published().await;
    })
    .await;
}

/// A resolution closes the question while answers arrive through two processes. Every acknowledged answer counts, and no
/// other.
#[tokio::test]
async fn racing_answers_count_if_acknowledged() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let open = json!({"key": "q", "kind": "number", "scoring": "nearest"});
        import(app, &fixtures, &[], std::slice::from_ref(&open)).await;
        let question = QuestionId(question_id(app, "q").await);
        let second = app.second(app.app.config.clone()).await;
        let mut users = Vec::new();
        for _ in 0..200 {
            users.push(app.app.accounts.make_without_phone().await.expect("a user"));
        }
        let answers = users.iter().enumerate().map(|(at, &user)| {
            let questions = if at % 2 == 0 { &app.app.questions } else { &second.app.questions };
            let number = Said::Number(i64::try_from(at).expect("fits") * 3);
            async move {
                tokio::time::sleep(std::time::Duration::from_micros(at as u64 * 300)).await;
                (user, number.clone(), questions.answer(user, question, number).await)
            }
        });
        let mut resolved = open.clone();
        resolved["resolution"] = json!(400);
        let resolve = async {
            tokio::time::sleep(std::time::Duration::from_millis(25)).await;
            import(app, &fixtures, &[], std::slice::from_ref(&resolved)).await;
        };
        let (outcomes, ()) = tokio::join!(join_all(answers), resolve);
        let saved: HashMap<UserId, i64> = outcomes
            .into_iter()
            .filter_map(|(user, said, outcome)| match (outcome, said) {
                (Ok(_), Said::Number(number)) => Some((user, number)),
                (Err(AnswerError::Closed(Status::Resolved)), _) => None,
                (other, _) => panic!("unexpected: {other:?}"),
            })
            .collect();
        app.settle().await;
        let nearest = saved.values().map(|number| (number - 400).abs()).min();
        let expected: HashMap<i64, i32> = saved
            .iter()
            .map(|(user, number)| (user.0, if Some((number - 400).abs()) == nearest { 10 } else { 0 }))
            .collect();
        assert_eq!(all_points(app).await, expected);
        scores_are_exact(app).await;
        app.published().await;
    })
    .await;
}

/// Answers, resolutions, corrections, annulments and moves in random order. After each step that is applied, every score
/// equals a computation of the test.
#[tokio::test]
async fn scores_follow_every_sequence_of_resolutions() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let mut users = Vec::new();
        for _ in 0..6 {
            users.push(app.user().await);
        }
        let mut runner = TestRunner::new(Config { rng_seed: proptest::test_runner::RngSeed::Fixed(7), ..Config::default() });
        let mut entry = json!({"key": "q", "kind": "number", "scoring": "nearest", "points": 10, "resolution": null, "void": false});
        import(app, &fixtures, &[], std::slice::from_ref(&entry)).await;
        let question = question_id(app, "q").await;
        let (mut answers, mut expected): (HashMap<i64, i64>, HashMap<i64, i32>) = (HashMap::new(), HashMap::new());
        for _ in 0..60 {
            let steps = (0..7_u8, 0..6_usize, 0..20_i64, any::<bool>());
            let (step, user, number, applies) = steps.new_tree(&mut runner).expect("a step").current();
            match step {
                0..=2 => {
                    let is_open = entry["resolution"].is_null() && entry["void"] == false;
                    let said = say(&users[user], question, json!(number)).await;
                    assert_eq!(said.status.is_success(), is_open, "{entry}");
                    if is_open {
                        answers.insert(users[user].id.0, number);
                    }
                }
                3..=4 => (entry["resolution"], entry["void"]) = (json!(number), json!(false)),
                5 => (entry["resolution"], entry["void"]) = (Value::Null, json!(number % 2 == 0)),
                _ => entry["points"] = json!(1 + number),
            }
            if step > 2 {
                import(app, &fixtures, &[], std::slice::from_ref(&entry)).await;
                expected = match entry["resolution"].as_i64() {
                    None => HashMap::new(),
                    Some(right) => {
                        let nearest = answers.values().map(|value| (value - right).abs()).min();
                        let worth = i32::try_from(entry["points"].as_i64().expect("points")).expect("fits");
                        let points = |value: &i64| if Some((value - right).abs()) == nearest { worth } else { 0 };
                        answers.iter().map(|(user, value)| (*user, points(value))).collect()
                    }
                };
            }
            if applies {
                app.settle().await;
                assert_eq!(all_points(app).await, expected, "{entry}");
            }
            scores_are_exact(app).await;
        }
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn resolved_question_moves_with_its_match() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let in_round = |round: i16| fixtures.a_match("m").starting_in(FAR).with(json!({"round": round})).json();
        let of_match = json!({"key": "q", "kind": "number", "match": in_round(1)["key"], "locks_at": null});
        import(app, &fixtures, &[in_round(1)], std::slice::from_ref(&of_match)).await;
        let (question, user) = (question_id(app, "q").await, app.user().await);
        say(&user, question, json!(3)).await.expect(201);
        let mut resolved = of_match;
        resolved["resolution"] = json!(3);
        import(app, &fixtures, &[in_round(1)], &[resolved]).await;
        app.settle().await;
        // The document leaves the question out.
        import(app, &fixtures, &[in_round(2)], &[]).await;
        app.settle().await;
        let rounds: Vec<(String, i32)> = sqlx::query_as(
            "select split_part(scope, ':', 3), points from user_scores where scope like 'round:%' and answered > 0",
        )
        .fetch_all(&app.app.core.db)
        .await
        .expect("read");
        assert_eq!(rounds, [("2".to_owned(), 10)]);
        scores_are_exact(app).await;
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn stored_question_keeps_its_frame() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let stored = json!({"key": "q", "kind": "choice", "options": options(&["ada", "bea"])});
        import(app, &fixtures, &[], std::slice::from_ref(&stored)).await;
        for (change, place) in [
            (json!({"kind": "several_of", "pick": 2}), "questions[0].kind"),
            (json!({"options": options(&["ada", "cleo"])}), "questions[0].options"),
            (json!({"round": 3}), "questions[0].round"),
            (json!({"match": "none"}), "questions[0].match"),
        ] {
            let mut changed = stored.clone();
            changed.as_object_mut().expect("an object").extend(change.as_object().expect("an object").clone());
            let document = document(app, &fixtures, &[], &[changed]);
            let refused = app.app.fixtures.import(&document, Mode::Write, |_| {}).await;
            let Err(ImportError::Conflict(faults)) = refused else { panic!("{place}: {refused:?}") };
            assert!(faults.iter().any(|fault| fault.place == place), "{faults:?}");
        }
        let more =
            json!({"key": "q", "kind": "choice", "options": options(&["cleo", "ada", "bea"]), "text": "Really?"});
        import(app, &fixtures, &[], &[more]).await;
        let user = app.user().await;
        let shown = show(&user, question_id(app, "q").await).await;
        assert_eq!((&shown["text"], &shown["options"][0]["key"]), (&json!("Really?"), &json!("cleo")));
        app.published().await;
    })
    .await;
}

fn cases() -> impl Strategy<Value = (QuestionKind, Terms, i64)> {
    let kind = prop::sample::select(QuestionKind::ALL.to_vec());
    let scoring = prop::sample::select(vec![NumberScoring::Nearest, NumberScoring::Exact]);
    (kind, scoring, 1..1000_i32, prop::collection::vec(0..40_i64, 1..4), 0..5_i64, 0..40_i64).prop_map(
        |(kind, scoring, worth, resolution, distance, value)| {
            let is_number = kind == QuestionKind::Number;
            let terms = Terms {
                scoring: is_number.then_some(scoring),
                points: worth,
                resolution,
                distance: (is_number && scoring == NumberScoring::Nearest).then_some(distance),
            };
            (kind, terms, value)
        },
    )
}

#[tokio::test]
async fn points_in_sql_equal_points_in_rust() {
    TestApp::run(async |app| {
        let mut runner = TestRunner::default();
        for _ in 0..500 {
            let (kind, terms, value) = cases().new_tree(&mut runner).expect("a case").current();
            let found: i32 = sqlx::query_scalar("select answer_points($1, $2, $3, $4, $5, $6)")
                .bind(kind.name())
                .bind(terms.scoring.map(NumberScoring::name))
                .bind(&terms.resolution)
                .bind(terms.points)
                .bind(terms.distance)
                .bind(value)
                .fetch_one(&app.app.core.db)
                .await
                .expect("points");
            assert_eq!(found, points(kind, &terms, value), "{kind:?} {terms:?} {value}");
        }
    })
    .await;
}

#[tokio::test]
async fn late_pages_of_answers_read_few_rows() {
    TestApp::run(async |app| {
        let (first, users) = (app.user().await.id.0 + 1, 10_000);
        import(app, &app.fixtures(), &[], &[json!({"key": "q", "kind": "number", "scoring": "exact"})]).await;
        let question = QuestionId(question_id(app, "q").await);
        for statement in [
            "insert into users (user_id, created_at, username, username_is_generated) overriding system value
             select n, now(), 'reader' || n, false from generate_series($2, $2 + $3 - 1) as n",
            "insert into answers (user_id, question_id, value, revision, created_at, updated_at)
             select n, $1, 3, 1, now(), now() from generate_series($2, $2 + $3 - 1) as n",
            "vacuum analyze users",
            "vacuum analyze answers",
        ] {
            let query = sqlx::query(statement).bind(question.0).bind(first).bind(users);
            query.execute(app.owner()).await.expect(statement);
        }
        for after in [first, first + users / 2, first + users - 300] {
            let read = app.rows_read("^(users|answers)$", async |db| {
                let page = store::list_answers(db, question, &[], Some(Cursor::after(after)), 101).await.expect("read");
                assert_eq!((page.len(), page[0].person.id.0), (101, after + 1));
            });
            // The statistics count a row that an index finds twice.
            let read = read.await;
            assert!(read <= 4 * 300, "{read} rows read after user {after}");
        }
        app.published().await;
    })
    .await;
}
