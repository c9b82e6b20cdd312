//! Receipts, seals and proofs through the HTTP API. The independent verifier checks them.

mod attacks;
mod authority;
mod races;

use http::Method;
use matchday_verify::{Report, bundle, chain::Chain, proof};
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use time::{Duration, OffsetDateTime};
use web::ids::UserId;

use super::{bundle::Summary, service::SEALED};
use crate::testing::{MatchBuilder, TestApp, TestFixtures, TestUser};

const PHONE: &str = "+14155550162";

/// Start after the end of every test, by any clock.
fn far<'f, 'a>(fixtures: &'f TestFixtures<'a>, key: &str) -> MatchBuilder<'f, 'a> {
    fixtures.a_match(key).starting_in(Duration::days(365 * 75))
}

async fn predict(user: &TestUser<'_>, event: i64, pick: &str) -> Value {
    let response = user.post("/api/auth/predictions", json!({"event_id": event, "prediction": pick})).await;
    assert!([200, 201].contains(&response.status.as_u16()), "{:?}", response.status);
    let status = response.status.as_u16();
    response.expect(status)["data"].clone()
}

/// Seals what is due, and returns the published seals.
async fn seal(app: &TestApp) -> Vec<Value> {
    let sealed = app.app.seals.seal_due().await.expect("sealed");
    let published: Vec<Value> = app
        .published()
        .await
        .into_iter()
        .filter(|(subject, _)| subject == SEALED)
        .map(|(_, payload)| payload["seal"].clone())
        .collect();
    assert_eq!(published.len(), sealed, "every seal is published");
    published
}

async fn chain(app: &TestApp) -> Value {
    app.anonymous(Method::GET, "/api/seals?per_page=1000").await.expect(200)["data"].clone()
}

async fn proof_of(user: &TestUser<'_>, prediction: &Value) -> Value {
    user.get(&format!("/api/auth/predictions/{}/proof", prediction["id"])).await.expect(200)["data"].clone()
}

fn verified(proof: &Value, chain: &Value) -> Report {
    let chain = Chain::read(chain).expect("a chain");
    proof::verify(proof, Some(&chain)).expect("a proof")
}

async fn written_bundle(app: &TestApp, fixtures: &TestFixtures<'_>) -> (Summary, String) {
    let mut file = Vec::new();
    let summary = app.app.seals.write_bundle(&format!("cup_{}", fixtures.tag), &mut file).await.expect("written");
    (summary, String::from_utf8(file).expect("UTF-8"))
}

fn verified_bundle(text: &str, chain: Option<&Value>) -> Report {
    let chain = chain.map(|chain| Chain::read(chain).expect("a chain"));
    bundle::verify(text.as_bytes(), "bundle", chain.as_ref()).expect("a bundle")
}

fn lines_of<'a>(text: &'a str, kind: &str) -> Vec<Value> {
    let lines = text.lines().map(|line: &'a str| serde_json::from_str::<Value>(line).expect("JSON"));
    lines.filter(|line| line["type"] == kind).collect()
}

/// Names of the failed checks.
fn failed(report: &Report) -> Vec<&'static str> {
    report.checks().into_iter().map(matchday_verify::Check::name).collect()
}

/// Names of the flags.
fn flags(report: &Report) -> Vec<&'static str> {
    report.flags.iter().map(|flagged| flagged.flag.name()).collect()
}

async fn delete_account(app: &TestApp, user: &TestUser<'_>) {
    user.send(Method::POST, "/api/auth/me/deletion", None).await.expect(200);
    let code = app.codes(PHONE).await.remove(0);
    user.send(Method::DELETE, "/api/auth/me", Some(json!({"code": code}).to_string())).await.expect(200);
    app.published().await;
}

#[tokio::test]
async fn repeated_request_returns_receipt_of_its_revision() {
    TestApp::run(async |app| {
        let event = far(&app.fixtures(), "m").put().await;
        let user = app.user().await;
        let send = async |key: &str, pick: &str| {
            let body = json!({"event_id": event, "prediction": pick}).to_string();
            let headers = [("idempotency-key", key)];
            let response = user.send_with(Method::POST, "/api/auth/predictions", &headers, Some(body)).await;
            let status = response.status.as_u16();
            response.expect(status)["data"]["receipt"].clone()
        };
        let (first, second) = (send("one-key", "home").await, send("two-keys", "home").await);
        assert_eq!((&first["revision"], &second["revision"]), (&json!(1), &json!(2)), "the same pick, a new revision");
        assert_ne!(first["salt"], second["salt"]);
        assert_eq!(first["pseudonym"], second["pseudonym"]);
        let third = send("three-keys", "away").await;
        assert_eq!(third["revision"], 3);
        assert_eq!(send("one-key", "home").await, first);
        assert_eq!(send("two-keys", "home").await, second);
        assert_eq!(send("three-keys", "away").await, third);
        let export = user.get("/api/auth/me/export").await.expect(200);
        assert_eq!(export["data"]["receipts"], json!([first, second, third]));
    })
    .await;
}

#[tokio::test]
async fn prediction_without_salt_has_no_receipt_until_added() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures, "m").put().await;
        let user = app.user().await;
        let made = predict(&user, event, "home").await;
        predict(&user, event, "draw").await;
        // As a process of the previous version leaves them.
        for statement in [
            "update predictions set salt = null",
            "update prediction_revisions set salt = null",
            "delete from pseudonyms",
        ] {
            sqlx::query(statement).execute(app.owner()).await.expect("written");
        }
        let path = format!("/api/auth/predictions/{}/receipt", made["id"]);
        assert_eq!(user.get(&path).await.expect(404)["code"], "no_receipt");
        assert_eq!(app.app.predictions.add_receipts(web::ids::MatchId(event)).await.expect("added"), 1);
        assert_eq!(app.app.predictions.add_receipts(web::ids::MatchId(event)).await.expect("added"), 0);
        assert_eq!(user.get(&path).await.expect(200)["data"]["revision"], 2);
        let receipts = user.get("/api/auth/me/export").await.expect(200)["data"]["receipts"].clone();
        assert_eq!(receipts.as_array().map(Vec::len), Some(2));

        // A prediction that is still without a receipt when the match closes gets one.
        sqlx::query("update predictions set salt = null").execute(app.owner()).await.expect("written");
        far(&fixtures, "m").being("live").put().await;
        assert_eq!(seal(app).await[0]["count"], 1);
        assert!(verified(&proof_of(&user, &made).await, &chain(app).await).is_verified());
    })
    .await;
}

#[tokio::test]
async fn closed_match_is_sealed_and_proofs_verify() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures, "m").put().await;
        let empty = far(&fixtures, "n").between("albion", "wanderers").put().await;
        let mut made = Vec::new();
        for number in 0..7 {
            let user = app.user().await;
            let prediction = predict(&user, event, ["home", "draw", "away"][number % 3]).await;
            made.push((user, prediction));
        }
        let first = &made[0];
        let path = format!("/api/auth/predictions/{}", first.1["id"]);
        assert_eq!(first.0.get(&format!("{path}/proof")).await.expect(409)["code"], "not_sealed");
        made[1].0.get(&format!("{path}/proof")).await.expect(404);
        made[1].0.get(&format!("{path}/receipt")).await.expect(404);
        assert!(seal(app).await.is_empty(), "open matches are not sealed");

        far(&fixtures, "m").being("live").put().await;
        far(&fixtures, "n").between("albion", "wanderers").being("live").put().await;
        let sealed = seal(app).await;
        assert_eq!(sealed.len(), 2);
        assert_eq!((&sealed[0]["event_id"], &sealed[0]["count"]), (&json!(empty), &json!(0)), "the smaller one first");
        assert_eq!((&sealed[1]["event_id"], &sealed[1]["count"]), (&json!(event), &json!(7)));
        assert!(seal(app).await.is_empty(), "once");
        let chain = chain(app).await;
        assert_eq!(chain, json!(sealed));
        for (user, prediction) in &made {
            let proof = proof_of(user, prediction).await;
            assert_eq!(proof["receipt"], prediction["receipt"]);
            assert_eq!(failed(&verified(&proof, &chain)), [""; 0]);
        }
    })
    .await;
}

#[tokio::test]
async fn large_tree_has_proofs_from_several_levels() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures, "m").put().await;
        let user = app.user().await;
        let made = predict(&user, event, "home").await;
        sqlx::query(
            "insert into predictions (user_id, event_id, prediction, confidence, salt, revision, created_at, updated_at)
             select 1000000 + n, $1, 'away', n % 101, gen_random_uuid(), 1, now(), now() from generate_series(1, 70000) n",
        )
        .bind(event)
        .execute(app.owner())
        .await
        .expect("written");
        sqlx::query(
            "insert into pseudonyms select 1000000 + n, (select tournament_id from events where id = $1), gen_random_uuid()
             from generate_series(1, 70000) n",
        )
        .bind(event)
        .execute(app.owner())
        .await
        .expect("written");
        far(&fixtures, "m").being("live").put().await;
        let sealed = seal(app).await;
        assert_eq!(sealed[0]["count"], 70_001);
        let proof = proof_of(&user, &made).await;
        assert!(proof["inclusion_path"].as_array().is_some_and(|path| path.len() >= 16), "{proof}");
        assert!(verified(&proof, &chain(app).await).is_verified());
        let (summary, text) = written_bundle(app, &fixtures).await;
        assert_eq!((summary.predictions, summary.withheld), (70_001, 0));
        assert_eq!(failed(&verified_bundle(&text, Some(&chain(app).await))), [""; 0]);
    })
    .await;
}

/// The time of the database, for documents whose times are relative to the clock of the test.
async fn since_test_clock(app: &TestApp) -> Duration {
    let now: OffsetDateTime =
        sqlx::query_scalar("select clock_timestamp()").fetch_one(&app.app.core.db).await.expect("read");
    now - app.app.core.clock.now()
}

#[tokio::test]
async fn early_start_seals_the_last_revision_before_it() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures, "m").put().await;
        let (early, late) = (app.user().await, app.user().await);
        let first = predict(&early, event, "home").await;
        let start = since_test_clock(app).await;
        let (second, only) = (predict(&early, event, "away").await, predict(&late, event, "draw").await);
        fixtures.a_match("m").starting_in(start).being("live").put().await;
        assert_eq!(seal(app).await[0]["count"], 1);
        let proof = proof_of(&early, &second).await;
        assert_eq!(proof["receipt"], first["receipt"], "the revision before the start");
        assert!(verified(&proof, &chain(app).await).is_verified());
        let path = format!("/api/auth/predictions/{}/proof", only["id"]);
        assert_eq!(late.get(&path).await.expect(409)["code"], "not_counted");
    })
    .await;
}

#[tokio::test]
async fn reopened_match_is_sealed_again() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures, "m").put().await;
        let (user, new) = (app.user().await, app.user().await);
        let first = predict(&user, event, "home").await;
        far(&fixtures, "m").being("live").put().await;
        let before = seal(app).await;
        far(&fixtures, "m").put().await;
        let second = predict(&user, event, "away").await;
        let only = predict(&new, event, "draw").await;
        // Until the match closes again, the first seal counts.
        assert_eq!(proof_of(&user, &second).await["receipt"], first["receipt"]);
        let path = format!("/api/auth/predictions/{}/proof", only["id"]);
        assert_eq!(new.get(&path).await.expect(409)["code"], "not_sealed");
        let (summary, text) = written_bundle(app, &fixtures).await;
        assert_eq!((summary.events, summary.predictions), (0, 0), "an open match is not published: {text}");

        far(&fixtures, "m").being("live").put().await;
        let again = seal(app).await;
        assert_eq!((&again[0]["event_sequence"], &again[0]["count"]), (&json!(2), &json!(2)));
        let chain = chain(app).await;
        assert_eq!(chain, json!([before[0], again[0]]));
        let proof = proof_of(&user, &second).await;
        assert_eq!(proof["receipt"], second["receipt"]);
        let (_, text) = written_bundle(app, &fixtures).await;
        let proof_of_new = proof_of(&new, &only).await;
        for report in [verified(&proof, &chain), verified(&proof_of_new, &chain), verified_bundle(&text, Some(&chain))]
        {
            assert_eq!((failed(&report), flags(&report)), (vec![], vec!["resealed"]));
        }

        // Closed, opened and closed again without a new prediction is sealed too.
        far(&fixtures, "m").put().await;
        far(&fixtures, "m").being("live").put().await;
        let third = seal(app).await;
        assert_eq!((&third[0]["event_sequence"], &third[0]["root"]), (&json!(3), &again[0]["root"]));
    })
    .await;
}

#[tokio::test]
async fn postponed_and_imported_matches_are_not_sealed() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures, "m").put().await;
        far(&fixtures, "c").between("albion", "wanderers").put().await;
        far(&fixtures, "i").between("city", "albion").at("finished", 1, 0).put().await;
        predict(&app.user().await, event, "home").await;
        far(&fixtures, "m").being("postponed").put().await;
        far(&fixtures, "c").between("albion", "wanderers").being("cancelled").put().await;
        assert!(seal(app).await.is_empty());
        // A corrected start of an imported result changes nothing.
        fixtures.a_match("i").between("city", "albion").at("finished", 1, 0).put().await;
        assert!(seal(app).await.is_empty());
        far(&fixtures, "m").put().await;
        assert!(seal(app).await.is_empty(), "open again");
        far(&fixtures, "m").being("live").put().await;
        assert_eq!(seal(app).await[0]["event_sequence"], 1);
        far(&fixtures, "m").being("postponed").put().await;
        far(&fixtures, "m").being("live").put().await;
        assert!(seal(app).await.is_empty(), "it accepted no predictions in between");
    })
    .await;
}

#[tokio::test]
async fn moved_start_is_sealed_only_if_leaves_change() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures, "m").put().await;
        let (user, late) = (app.user().await, app.user().await);
        let made = predict(&user, event, "home").await;
        let between = since_test_clock(app).await;
        predict(&late, event, "away").await;
        far(&fixtures, "m").being("live").put().await;
        assert_eq!(seal(app).await[0]["count"], 2);
        // Results, corrections and a later start change no leaves.
        far(&fixtures, "m").at("finished", 1, 0).put().await;
        far(&fixtures, "m").at("finished", 0, 1).put().await;
        fixtures.a_match("m").starting_in(Duration::days(365 * 74)).at("finished", 0, 1).put().await;
        assert!(seal(app).await.is_empty());
        assert!(verified(&proof_of(&user, &made).await, &chain(app).await).is_verified());
        // An earlier start excludes the second prediction.
        fixtures.a_match("m").starting_in(between).at("finished", 0, 1).put().await;
        let again = seal(app).await;
        assert_eq!((&again[0]["event_sequence"], &again[0]["count"]), (&json!(2), &json!(1)));
        let report = verified(&proof_of(&user, &made).await, &chain(app).await);
        assert_eq!((failed(&report), flags(&report)), (vec![], vec!["resealed"]));
    })
    .await;
}

#[tokio::test]
async fn scheduled_match_is_sealed_when_its_start_passes() {
    TestApp::run_with_database_clock(&[], async |app| {
        let fixtures = app.fixtures();
        let event = fixtures.a_match("m").starting_in(Duration::HOUR).put().await;
        let user = app.user().await;
        let made = predict(&user, event, "home").await;
        assert!(seal(app).await.is_empty());
        app.advance_database(Duration::HOUR).await;
        let sealed = seal(app).await;
        assert_eq!(
            (&sealed[0]["start_time"], &sealed[0]["sealed_at"]),
            (&json!("2026-11-20T16:00:00.000000Z"), &json!("2026-11-20T16:00:00.000000Z"))
        );
        assert!(verified(&proof_of(&user, &made).await, &chain(app).await).is_verified());
        // Moving the start into the future opens the match again.
        fixtures.a_match("m").starting_in(Duration::hours(3)).put().await;
        app.advance_database(Duration::MINUTE).await;
        predict(&user, event, "away").await;
        app.advance_database(Duration::hours(2)).await;
        assert_eq!(seal(app).await[0]["event_sequence"], 2);
    })
    .await;
}

#[tokio::test]
async fn match_of_the_previous_version_is_marked_and_sealed() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures, "m").put().await;
        let user = app.user().await;
        let made = predict(&user, event, "home").await;
        // As an import and a prediction of the previous version leave them.
        sqlx::query("update events set opened_at = null, seal_due = false")
            .execute(app.owner())
            .await
            .expect("written");
        sqlx::query("update predictions set salt = null").execute(app.owner()).await.expect("written");
        let closing = tokio_util::sync::CancellationToken::new();
        let has_receipt = async || {
            let receipt = user.get(&format!("/api/auth/predictions/{}/receipt", made["id"])).await;
            receipt.status.as_u16() == 200
        };
        let stop = async {
            crate::testing::eventually("the prediction has a receipt", has_receipt).await;
            closing.cancel();
        };
        tokio::join!(app.app.seals.run(closing.clone()), stop);
        far(&fixtures, "m").being("live").put().await;
        assert_eq!(seal(app).await[0]["count"], 1);
        assert!(verified(&proof_of(&user, &made).await, &chain(app).await).is_verified());
    })
    .await;
}

#[tokio::test]
async fn chain_is_public_paged_and_cacheable() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let get = async |path: &str| app.anonymous(Method::GET, path).await;
        let none = get("/api/seals").await.expect(200);
        assert_eq!(none, json!({"data": [], "meta": {"next_after": 0, "more": false, "head": null}}));
        let mut events = Vec::new();
        for key in ["a", "b", "c"] {
            events.push(far(&fixtures, key).put().await);
            far(&fixtures, key).being("live").put().await;
            assert_eq!(seal(app).await.len(), 1);
        }
        let first = get("/api/seals?per_page=2").await;
        assert_eq!(first.header("cache-control"), Some("public, max-age=2"));
        let tag = first.header("etag").expect("a validator").to_owned();
        let first = first.expect(200);
        assert_eq!(first["data"].as_array().map(Vec::len), Some(2));
        assert_eq!((&first["meta"]["next_after"], &first["meta"]["more"]), (&json!(2), &json!(true)));
        assert_eq!(first["meta"]["head"]["sequence"], 3);
        let rest = get("/api/seals?after=2").await.expect(200);
        assert_eq!((&rest["data"][0]["sequence"], &rest["meta"]["more"]), (&json!(3), &json!(false)));
        assert_eq!(rest["data"][0]["previous"], first["data"][1]["hash"]);
        let of_match = get(&format!("/api/seals?event_id={}", events[1])).await.expect(200);
        assert_eq!(of_match["data"], json!([first["data"][1]]));
        assert_eq!(
            get("/api/seals?after=1000000000000").await.expect(200)["meta"]["next_after"],
            1_000_000_000_000_i64
        );
        let request = http::Request::get("/api/seals?per_page=2").header("if-none-match", tag);
        let unchanged = app.send(request.body(axum::body::Body::empty()).expect("a request")).await;
        assert_eq!(unchanged.status.as_u16(), 304);

        let one = get("/api/seals/2").await;
        assert_eq!(one.header("cache-control"), Some("public, max-age=86400"));
        assert_eq!(one.expect(200)["data"], first["data"][1]);
        for missing in ["4", "0", "-1", "+1", "first"] {
            get(&format!("/api/seals/{missing}")).await.expect(404);
        }
        for (wrong, field) in
            [("after=x", "after"), ("after=-1", "after"), ("per_page=0", "per_page"), ("event_id=x", "event_id")]
        {
            assert_eq!(get(&format!("/api/seals?{wrong}")).await.invalid_fields(), [field]);
        }
    })
    .await;
}

/// Appends seals of a match to the chain, with time-stamp tokens of four kilobytes.
async fn extend_chain(app: &TestApp, event: i64, seals: i64) {
    for statement in [
        "insert into seals (sequence, version, event_id, event_sequence, count, root, start_time, sealed_at, previous, hash)
         select n + (select sequence from seal_chain), 1, $1, n + 1000, 0, sha256(''), now(), now(), sha256('p'),
                sha256(n::text::bytea)
         from generate_series(1, $2::bigint) n",
        "insert into seal_timestamps (sequence, token, created_at)
         select sequence, decode(repeat(md5(sequence::text), 256), 'hex'), now() from seals
         where event_id = $1 and event_sequence > 1000 and $2::bigint > 0",
        "update seal_chain set (sequence, hash) = (select sequence, hash from seals where event_id = $1
                                                   order by sequence desc limit 1) where $2::bigint > 0",
    ] {
        sqlx::query(statement).bind(event).bind(seals).execute(app.owner()).await.expect("written");
    }
}

#[tokio::test]
async fn pages_of_any_parameters_share_bounded_parts() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures, "m").put().await;
        far(&fixtures, "m").being("live").put().await;
        assert_eq!(seal(app).await.len(), 1);
        extend_chain(app, event, 329).await;
        let get = async |query: &str| app.anonymous(Method::GET, &format!("/api/seals?{query}")).await;
        // Every page has exactly the seals that its parameters name, from one part or from several.
        for (after, size) in
            [(0, 1), (0, 100), (99, 2), (100, 100), (57, 111), (0, 1_000), (250, 1_000), (329, 5), (330, 5)]
        {
            let page = get(&format!("after={after}&per_page={size}")).await.expect(200);
            let found: Vec<i64> = page["data"]
                .as_array()
                .expect("seals")
                .iter()
                .map(|seal| seal["sequence"].as_i64().expect("a number"))
                .collect();
            let expected: Vec<i64> = (after + 1..=330.min(after + size)).collect();
            assert_eq!(found, expected, "{after} {size}");
            let next = expected.last().copied().unwrap_or(after);
            assert_eq!((&page["meta"]["next_after"], &page["meta"]["more"]), (&json!(next), &json!(next < 330)));
            assert_eq!(page["meta"]["head"]["sequence"], 330);
            let of_match = get(&format!("event_id={event}&after={after}&per_page={size}")).await.expect(200);
            assert_eq!((&of_match["data"], &of_match["meta"]), (&page["data"], &page["meta"]), "{after} {size}");
        }
        assert!(get("after=0&per_page=2").await.expect(200)["data"][1]["timestamp_token"].is_string());
        // The newest seal, four parts of the chain, and the seals of this match, some of which may have expired.
        assert!(app.app.seals.cached().0 <= 6);
        for after in 0..150 {
            get(&format!("after={}&per_page={}", after * 7, 1 + after * 5)).await.expect(200);
            get(&format!("after={}", i64::MAX - after)).await.expect(200);
        }
        let (parts, bytes) = app.app.seals.cached();
        assert!(parts <= 6 && bytes < 12_000_000, "{parts} parts, {bytes} bytes");
        for event in 0..300 {
            get(&format!("event_id={}", 1_000_000 + event)).await.expect(200);
        }
        let (_, after) = app.app.seals.cached();
        assert!(after < bytes + 300 * 1_024, "matches that do not exist cost little: {bytes} {after}");
        // A new seal is shown at once.
        far(&fixtures, "n").between("albion", "wanderers").put().await;
        far(&fixtures, "n").between("albion", "wanderers").being("live").put().await;
        assert_eq!(seal(app).await.len(), 1);
        assert_eq!(get("after=329").await.expect(200)["data"].as_array().map(Vec::len), Some(2));
    })
    .await;
}

#[tokio::test]
async fn reopened_match_is_bundled_only_with_its_new_seal() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures, "m").put().await;
        let user = app.user().await;
        predict(&user, event, "home").await;
        far(&fixtures, "m").being("live").put().await;
        seal(app).await;
        far(&fixtures, "m").put().await;
        predict(&user, event, "away").await;
        far(&fixtures, "m").at("finished", 1, 0).put().await;
        let (summary, text) = written_bundle(app, &fixtures).await;
        assert_eq!((summary.events, summary.rows), (0, 0), "closed, but not sealed again: {text}");
        assert!(verified_bundle(&text, None).is_verified());
        seal(app).await;
        let (summary, text) = written_bundle(app, &fixtures).await;
        assert_eq!((summary.events, summary.rows), (1, 1));
        let report = verified_bundle(&text, Some(&chain(app).await));
        assert_eq!((failed(&report), flags(&report)), (vec![], vec!["late_seal", "resealed"]));
    })
    .await;
}

#[tokio::test]
async fn bundle_has_the_sealed_start() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures, "m").put().await;
        predict(&app.user().await, event, "home").await;
        far(&fixtures, "m").being("live").put().await;
        seal(app).await;
        // A later start changes no leaves, so there is no new seal.
        fixtures.a_match("m").starting_in(Duration::days(365 * 76)).at("finished", 1, 0).put().await;
        assert!(seal(app).await.is_empty());
        let (_, text) = written_bundle(app, &fixtures).await;
        assert_eq!(lines_of(&text, "event")[0]["start_time"], lines_of(&text, "seal")[0]["start_time"]);
        let report = verified_bundle(&text, Some(&chain(app).await));
        assert!(report.is_verified(), "{report}");
    })
    .await;
}

#[tokio::test]
async fn bundle_recomputes_the_table() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures, "m").put().await;
        let open = far(&fixtures, "o").between("albion", "wanderers").put().await;
        let mut points = Vec::new();
        for (pick, score, confidence, expected) in [
            ("home", json!({"home": 2, "away": 1}), 75, 59),
            ("home", json!({"home": 1, "away": 0}), 75, 49),
            ("away", Value::Null, 100, -20),
            ("home", Value::Null, 0, 20),
        ] {
            let user = app.user().await;
            let body = json!({
                "event_id": event, "prediction": pick, "score_prediction": score, "confidence": confidence,
            });
            let made = user.post("/api/auth/predictions", body).await.expect(201);
            points.push((made["data"]["receipt"]["pseudonym"].clone(), expected));
            let hidden = predict(&user, open, "home").await;
            assert_eq!(hidden["receipt"]["pseudonym"], points.last().expect("one").0);
        }
        far(&fixtures, "m").being("live").put().await;
        seal(app).await;
        far(&fixtures, "m").at("finished", 0, 1).put().await;
        far(&fixtures, "m").at("finished", 2, 1).put().await;
        let (summary, text) = written_bundle(app, &fixtures).await;
        assert_eq!(summary, Summary { events: 1, predictions: 4, withheld: 0, rows: 4 });
        let rows = lines_of(&text, "row");
        for (pseudonym, expected) in points {
            let row = rows.iter().find(|row| row["pseudonym"] == pseudonym).expect("a row");
            assert_eq!(row["points"], expected);
        }
        assert_eq!(rows[0]["exact"], 1);
        let results = lines_of(&text, "event")[0]["results"].clone();
        assert_eq!(results.as_array().map(Vec::len), Some(2), "{results}");
        assert_eq!((&results[1]["status"], &results[1]["home_score"]), (&json!("finished"), &json!(2)));
        assert_eq!(failed(&verified_bundle(&text, Some(&chain(app).await))), [""; 0]);
        let missing = app.app.seals.write_bundle("nothing", Vec::new()).await;
        assert!(missing.is_err(), "{missing:?}");
    })
    .await;
}

/// Tables whose rows contain a text, or the bytes that it stands for.
async fn search(app: &TestApp, text: &str) -> Vec<String> {
    let tables: Vec<String> = sqlx::query_scalar(
        "select relname::text from pg_class where relkind in ('r', 'p') and relnamespace = 'public'::regnamespace
         and not relispartition order by 1",
    )
    .fetch_all(app.owner())
    .await
    .expect("the tables");
    let mut found = Vec::new();
    for table in tables {
        let statement =
            format!("select exists (select from {table} t where position($1 in replace(t::text, '-', '')) > 0)");
        if sqlx::query_scalar(AssertSqlSafe(statement)).bind(text).fetch_one(app.owner()).await.expect("searched") {
            found.push(table);
        }
    }
    found
}

#[tokio::test]
async fn deleted_user_leaves_only_an_unlinkable_hash() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures, "m").put().await;
        let (leaver, _) = app.log_in(PHONE).await;
        let stayer = app.user().await;
        let earlier = predict(&leaver, event, "away").await["receipt"].clone();
        let body = json!({"event_id": event, "prediction": "home"}).to_string();
        let keyed = [("idempotency-key", "the-key-of-a-leaver")];
        let gone = leaver.send_with(Method::POST, "/api/auth/predictions", &keyed, Some(body)).await.expect(200);
        let gone = gone["data"]["receipt"].clone();
        let kept = predict(&stayer, event, "draw").await;
        far(&fixtures, "m").being("live").put().await;
        let sealed = seal(app).await;
        far(&fixtures, "m").at("finished", 1, 0).put().await;
        let before = proof_of(&stayer, &kept).await;
        let secret = |receipt: &Value, field: &str| receipt[field].as_str().expect("a text").to_owned();
        for text in [secret(&gone, "salt"), secret(&earlier, "salt"), secret(&gone, "pseudonym")] {
            assert!(!search(app, &text).await.is_empty(), "the search finds {text} before the deletion");
        }
        delete_account(app, &leaver).await;
        for text in [secret(&gone, "salt"), secret(&earlier, "salt"), secret(&gone, "pseudonym")] {
            assert_eq!(search(app, &text).await, [""; 0], "{text}");
        }
        let (summary, text) = written_bundle(app, &fixtures).await;
        assert_eq!((summary.predictions, summary.withheld, summary.rows), (2, 1, 1));
        assert!(!text.contains(&secret(&gone, "salt")) && !text.contains(&secret(&gone, "pseudonym")), "{text}");
        let withheld = json!({"type": "prediction", "event_id": event, "leaf_hash": gone["leaf_hash"]});
        assert!(lines_of(&text, "prediction").contains(&withheld));
        let chain = chain(app).await;
        assert_eq!(chain, json!(sealed));
        let report = verified_bundle(&text, Some(&chain));
        assert_eq!((failed(&report), flags(&report)), (vec![], vec!["withheld"]), "the match has a result");
        assert_eq!(proof_of(&stayer, &kept).await, before);
        assert!(verified(&before, &chain).is_verified());
    })
    .await;
}

#[tokio::test]
async fn account_deleted_before_the_start_is_not_sealed() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures, "m").put().await;
        let (leaver, _) = app.log_in(PHONE).await;
        predict(&leaver, event, "away").await;
        delete_account(app, &leaver).await;
        far(&fixtures, "m").being("live").put().await;
        assert_eq!(seal(app).await[0]["count"], 0, "and it gets no new salt or pseudonym");
        let salts: i64 = sqlx::query_scalar(
            "select (select count(*) from predictions where salt is not null) + (select count(*) from pseudonyms)",
        )
        .fetch_one(app.owner())
        .await
        .expect("read");
        assert_eq!(salts, 0);
    })
    .await;
}

#[tokio::test]
async fn service_cannot_change_or_delete_seals() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures, "m").put().await;
        predict(&app.user().await, event, "home").await;
        far(&fixtures, "m").being("live").put().await;
        seal(app).await;
        for statement in [
            "update seals set root = hash",
            "update seals set sequence = sequence + 1",
            "delete from seals",
            "truncate seals",
            "update seal_tiles set hashes = first",
            "delete from seal_tiles",
            "update seal_timestamps set token = ''",
            "delete from seal_timestamps",
            "delete from seal_chain",
        ] {
            let outcome = sqlx::query(statement).execute(&app.app.core.db).await;
            let error = outcome.expect_err(statement);
            let code = error.as_database_error().and_then(|error| error.code().map(std::borrow::Cow::into_owned));
            assert_eq!(code.as_deref(), Some("42501"), "{statement}: {error}");
        }
    })
    .await;
}

/// Number of users with points for a match.
async fn counted(app: &TestApp, event: i64) -> i64 {
    sqlx::query_scalar("select count(*) from result_points where event_id = $1")
        .bind(event)
        .fetch_one(&app.app.core.db)
        .await
        .expect("read")
}

fn user_ids(from: i64, count: i64) -> impl Iterator<Item = UserId> {
    (from..from + count).map(UserId)
}
