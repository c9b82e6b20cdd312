//! Tests of routes that store keys with their effect: predictions and deductions.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration as StdDuration,
};

use futures_util::{StreamExt as _, stream};
use http::StatusCode;
use proptest::{collection::vec, prelude::*, test_runner::Config as ProptestConfig};
use serde_json::{Value, json};
use time::Duration;

use super::{PREDICTIONS, is_replayed, keyed, keys, prediction};
use crate::{
    game::coins::rules::CoinAmount,
    testing::{Answer, TestApp, TestUser},
};

const DEDUCT: &str = "/api/auth/coins/deduct";

fn deduction(amount: i64) -> Value {
    json!({"amount": amount, "reason": "wager"})
}

/// Asserts that a repeated request has the same response as the first, marked as a repetition.
#[track_caller]
fn assert_repeats(again: &Answer, first: &Answer) {
    assert!(is_replayed(again) && !is_replayed(first));
    assert_eq!((again.status, &again.bytes), (first.status, &first.bytes));
}

#[track_caller]
fn assert_reused(response: Answer) {
    assert_eq!(response.expect(422)["code"], "idempotency_key_reused");
}

#[tokio::test]
async fn replaced_prediction_does_not_change_response_to_earlier_key() {
    TestApp::run(async |app| {
        let (user, body) = (app.user().await, prediction(app).await);
        let mut other = body.clone();
        other["confidence"] = json!(10);
        let first = keyed(&user, "first", PREDICTIONS, &body).await;
        let second = keyed(&user, "second", PREDICTIONS, &other).await;
        assert_eq!((first.status, second.status), (StatusCode::CREATED, StatusCode::OK));
        assert_repeats(&keyed(&user, "first", PREDICTIONS, &body).await, &first);
        assert_repeats(&keyed(&user, "second", PREDICTIONS, &other).await, &second);
        let own = user.get(PREDICTIONS).await.expect(200);
        assert_eq!(own["data"][0]["confidence"], 10, "a repeated request changes nothing");
    })
    .await;
}

#[tokio::test]
async fn key_of_prediction_or_deduction_is_refused_for_another_body() {
    TestApp::run(async |app| {
        let (user, body) = (app.user().await, prediction(app).await);
        keyed(&user, "k", PREDICTIONS, &body).await.expect(201);
        keyed(&user, "k", DEDUCT, &deduction(10)).await.expect(200);
        for (field, value) in
            [("prediction", json!("away")), ("event_id", json!(1_000_000_000)), ("confidence", json!("high"))]
        {
            let mut other = body.clone();
            other[field] = value;
            assert_reused(keyed(&user, "k", PREDICTIONS, &other).await);
        }
        assert_reused(keyed(&user, "k", DEDUCT, &deduction(11)).await);
        let first = keyed(&user, "k", DEDUCT, &deduction(10)).await;
        assert!(is_replayed(&first), "the refusals did not replace the first outcome");
        assert_eq!(first.expect(200)["data"]["new_balance"], 90);
    })
    .await;
}

#[tokio::test]
async fn refusals_are_repeated_after_their_cause_is_gone() {
    TestApp::run(async |app| {
        let user = app.user().await;
        let nowhere = json!({"event_id": 1_000_000_000, "prediction": "home"});
        let refused = [
            (PREDICTIONS, nowhere, 404),
            (PREDICTIONS, json!({"event_id": 1}), 422),
            (DEDUCT, deduction(1_000), 400),
            (DEDUCT, deduction(-1), 422),
        ];
        let mut firsts = Vec::new();
        for (n, (path, body, status)) in refused.iter().enumerate() {
            let first = keyed(&user, &n.to_string(), path, body).await;
            assert_eq!(first.status, *status);
            firsts.push(first);
        }
        let (amount, remark) = (CoinAmount::new(5_000).expect("an amount"), "test".parse().expect("a remark"));
        app.app.coins.grant(user.id, amount, &remark, None, "op").await.expect("granted");
        for (n, ((path, body, _), first)) in refused.iter().zip(&firsts).enumerate() {
            assert_repeats(&keyed(&user, &n.to_string(), path, body).await, first);
        }
        keyed(&user, "new", DEDUCT, &deduction(1_000)).await.expect(200);
        assert_eq!(keys(app).await, (4, 4), "a deduction is found by the ledger and needs no row for its key");
    })
    .await;
}

#[tokio::test]
async fn deduction_found_by_reference_stores_its_new_key() {
    TestApp::run(async |app| {
        let user = app.user().await;
        let body = json!({"amount": 10, "reason": "wager", "reference_id": "bet-1"});
        let first = keyed(&user, "a", DEDUCT, &body).await;
        let by_reference = keyed(&user, "b", DEDUCT, &body).await;
        assert!(!is_replayed(&by_reference));
        assert_eq!(by_reference.bytes, first.bytes);
        assert_repeats(&keyed(&user, "b", DEDUCT, &body).await, &by_reference);
        assert_reused(keyed(&user, "b", DEDUCT, &deduction(20)).await);
    })
    .await;
}

#[tokio::test]
async fn failed_batch_stores_no_key() {
    TestApp::run(async |app| {
        let (user, body) = (app.user().await, prediction(app).await);
        sqlx::query("alter table event_tallies rename to gone").execute(app.owner()).await.expect("renamed");
        assert_eq!(keyed(&user, "k", PREDICTIONS, &body).await.status, StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(keys(app).await, (0, 0));
        sqlx::query("alter table gone rename to event_tallies").execute(app.owner()).await.expect("renamed");
        assert!(!is_replayed(&keyed(&user, "k", PREDICTIONS, &body).await));
        assert!(is_replayed(&keyed(&user, "k", PREDICTIONS, &body).await));
    })
    .await;
}

#[tokio::test]
async fn one_key_for_two_matches_predicts_one() {
    TestApp::run_with(&[("MATCHDAY_PREDICTIONS__WRITERS", "1")], async |app| {
        let user = app.user().await;
        let (here, there) = (prediction(app).await, {
            let event = app.fixtures().a_match("n").starting_in(Duration::days(365 * 75)).put().await;
            json!({"event_id": event, "prediction": "home"})
        });
        // The writer is busy with the first one while the others gather in one batch.
        let bodies = [&here, &there].repeat(10);
        let responses: Vec<_> =
            stream::iter(&bodies).map(|body| keyed(&user, "k", PREDICTIONS, body)).buffer_unordered(20).collect().await;
        let statuses: BTreeSet<_> = responses.iter().map(|response| response.status.as_u16()).collect();
        assert!(statuses.is_subset(&BTreeSet::from([201, 409, 422])), "{statuses:?}");
        assert_eq!(responses.iter().filter(|response| response.status == 201 && !is_replayed(response)).count(), 1);
        assert_eq!(user.get(PREDICTIONS).await.expect(200)["data"].as_array().map(Vec::len), Some(1));
    })
    .await;
}

#[tokio::test]
async fn refusal_because_of_key_is_not_stored_for_it() {
    TestApp::run_with(&[("MATCHDAY_PREDICTIONS__WRITERS", "1")], async |app| {
        let user = app.user().await;
        let (here, nowhere) = (prediction(app).await, json!({"event_id": 1_000_000_000, "prediction": "home"}));
        let both = [&here, &nowhere].repeat(4);
        for key in 0..20 {
            let key = key.to_string();
            // Batches contain both requests, in either order.
            let requests = stream::iter(&both).map(|body| keyed(&user, &key, PREDICTIONS, body));
            requests.buffer_unordered(both.len()).collect::<Vec<_>>().await;
        }
        let stored = "select count(*) from idempotency_keys where convert_from(body, 'utf8') like '%key_reused%'";
        assert_eq!(sqlx::query_scalar::<_, i64>(stored).fetch_one(app.owner()).await.expect("counted"), 0);
    })
    .await;
}

#[tokio::test]
async fn other_request_with_key_in_batch_does_not_hide_effect() {
    TestApp::run_with(&[("MATCHDAY_PREDICTIONS__WRITERS", "1")], async |app| {
        let (user, here) = (app.user().await, prediction(app).await);
        keyed(&user, "k", PREDICTIONS, &here).await.expect(201);
        let nowhere = json!({"event_id": 1_000_000_000, "prediction": "home"});
        let send =
            async |body: &Value| (body["event_id"] == here["event_id"], keyed(&user, "k", PREDICTIONS, body).await);
        let bodies = [&here, &nowhere].repeat(20);
        let responses: Vec<_> = stream::iter(&bodies).map(|body| send(body)).buffer_unordered(40).collect().await;
        for (is_repetition, response) in responses {
            assert_eq!(response.status.as_u16(), if is_repetition { 201 } else { 422 });
        }
    })
    .await;
}

/// A request of the model test. Its key and body are small numbers, so that keys are repeated and reused often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ModelRequest {
    user: usize,
    is_deduction: bool,
    key: u8,
    body: u8,
}

#[derive(Clone, Debug)]
enum Step {
    /// Send a request to one of two processes, and wait for the response.
    Send { process: usize, request: ModelRequest },
    /// Send a request, and disconnect after this time.
    Abandon { process: usize, request: ModelRequest, after: StdDuration },
    /// Terminate the database connections of both processes.
    Kill,
}

fn any_step() -> impl Strategy<Value = Step> {
    let request = (0..2_usize, any::<bool>(), 0..4_u8, 0..3_u8)
        .prop_map(|(user, is_deduction, key, body)| ModelRequest { user, is_deduction, key, body });
    prop_oneof![
        8 => (0..2_usize, request.clone()).prop_map(|(process, request)| Step::Send { process, request }),
        3 => (0..2_usize, request, 0..8_000_u64).prop_map(|(process, request, micros)| {
            Step::Abandon { process, request, after: StdDuration::from_micros(micros) }
        }),
        1 => Just(Step::Kill),
    ]
}

/// Final response: status, code of an error, and data.
type Final = (u16, Value, Value);

/// Returns the response if it is final. A response that asks for a retry promises nothing.
fn final_response(response: &Answer) -> Option<Final> {
    let status = response.status.as_u16();
    let body: Value = serde_json::from_slice(&response.bytes).expect("JSON");
    let is_final = matches!(status, 200 | 201 | 400 | 404 | 422);
    assert!(is_final || matches!(status, 409 | 503), "{status}: {body}");
    is_final.then(|| (status, body["code"].clone(), body["data"].clone()))
}

struct World<'a> {
    processes: [&'a TestApp; 2],
    users: Vec<[TestUser<'a>; 2]>,
    bodies: [Value; 3],
}

impl World<'_> {
    async fn send(&self, process: usize, request: ModelRequest) -> Answer {
        let user = &self.users[request.user][process];
        let key = request.key.to_string();
        if request.is_deduction {
            // The third amount exceeds every balance.
            let body = deduction([7, 11, 100_000][usize::from(request.body)]);
            keyed(user, &key, DEDUCT, &body).await
        } else {
            keyed(user, &key, PREDICTIONS, &self.bodies[usize::from(request.body)]).await
        }
    }

    async fn kill_connections(&self) {
        let kill = "select count(pg_terminate_backend(pid)) from pg_stat_activity
                    where datname = current_database() and usename = 'matchday_app' and pid <> pg_backend_pid()";
        sqlx::query(kill).execute(self.processes[0].owner()).await.expect("terminated");
    }

    /// Sends a request until its response is final.
    async fn settle(&self, request: ModelRequest) -> Final {
        for _ in 0..50 {
            if let Some(response) = final_response(&self.send(0, request).await) {
                return response;
            }
            tokio::time::sleep(StdDuration::from_millis(20)).await;
        }
        panic!("{request:?} has no final response");
    }
}

/// Runs steps concurrently on two processes. Whatever happens in between, a request that had an effect has the same
/// response whenever it is repeated, no other request with its key has an effect, and the effects are those that were
/// acknowledged.
async fn check_keys(app: &TestApp, steps: &[Step]) {
    let second = app.second(app.app.config.clone()).await;
    let mut users = Vec::new();
    for _ in 0..2 {
        let user = app.user().await;
        let elsewhere = second.login(user.id).await;
        users.push([user, elsewhere]);
    }
    let first = prediction(app).await;
    let mut other = first.clone();
    other["prediction"] = json!("away");
    let nowhere = json!({"event_id": 1_000_000_000, "prediction": "home"});
    let world = World { processes: [app, &second], users, bodies: [first, other, nowhere] };
    let run = async |step: &Step| match *step {
        Step::Send { process, request } => Some((request, final_response(&world.send(process, request).await)?)),
        Step::Abandon { process, request, after } => {
            let response = tokio::time::timeout(after, world.send(process, request)).await.ok()?;
            Some((request, final_response(&response)?))
        }
        Step::Kill => {
            world.kill_connections().await;
            None
        }
    };
    let seen: Vec<_> = stream::iter(steps).map(run).buffered(6).filter_map(std::future::ready).collect().await;
    let mut responses: BTreeMap<ModelRequest, Final> = BTreeMap::new();
    let requests = steps.iter().filter_map(|step| match *step {
        Step::Send { request, .. } | Step::Abandon { request, .. } => Some(request),
        Step::Kill => None,
    });
    for request in requests.collect::<BTreeSet<_>>() {
        responses.insert(request, world.settle(request).await);
    }
    // A refusal has no effect. If the connection broke while it was stored, a retry is decided again.
    let had_kills = steps.iter().any(|step| matches!(step, Step::Kill));
    for (request, response) in seen {
        if response.0 < 300 || !had_kills {
            assert_eq!(response, responses[&request], "{request:?}");
        }
    }
    let mut by_key: BTreeMap<_, Vec<&Final>> = BTreeMap::new();
    for (request, response) in &responses {
        by_key.entry((request.user, request.is_deduction, request.key)).or_default().push(response);
    }
    let is_reused = |response: &Final| response.1 == "idempotency_key_reused";
    for (key, responses) in by_key {
        assert!(responses.iter().any(|response| !is_reused(response)), "{key:?}: {responses:?}");
        assert!(responses.iter().filter(|response| response.0 < 300).count() <= 1, "{key:?}: {responses:?}");
    }
    for (number, [user, _]) in world.users.iter().enumerate() {
        let deducted: i64 = responses
            .iter()
            .filter(|(request, response)| request.user == number && request.is_deduction && response.0 == 200)
            .filter_map(|(_, response)| response.2["amount_deducted"].as_i64())
            .sum();
        assert_eq!(app.app.coins.balance(user.id).await.expect("read"), 100 - deducted);
    }
}

#[test]
fn any_interleaving_with_kills_has_one_outcome_per_key() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let config =
        ProptestConfig { cases: 6, max_shrink_iters: 30, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(steps in vec(any_step(), 10..60))| {
        runtime.block_on(TestApp::run(async |app| Box::pin(check_keys(app, &steps)).await));
    });
}
