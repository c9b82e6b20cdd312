//! An operator changes what was published, or the database behind it. The verifier detects each.

use serde_json::{Value, json};

use super::{chain, failed, far, lines_of, predict, proof_of, seal, verified, verified_bundle, written_bundle};
use crate::testing::{TestApp, TestFixtures, TestUser};

/// A finished match with three predictions, of which the first one is right.
struct Played<'a> {
    fixtures: TestFixtures<'a>,
    event: i64,
    users: Vec<(TestUser<'a>, Value)>,
}

async fn play(app: &TestApp) -> Played<'_> {
    let fixtures = app.fixtures();
    let event = far(&fixtures, "m").put().await;
    let mut users = Vec::new();
    for pick in ["home", "away", "draw"] {
        let user = app.user().await;
        let made = predict(&user, event, pick).await;
        users.push((user, made));
    }
    far(&fixtures, "m").being("live").put().await;
    assert_eq!(seal(app).await.len(), 1);
    far(&fixtures, "m").at("finished", 1, 0).put().await;
    Played { fixtures, event, users }
}

async fn as_operator(app: &TestApp, statement: &'static str, user: i64) {
    let done = sqlx::query(statement).bind(user).execute(app.owner()).await.expect("written");
    assert_eq!(done.rows_affected(), 1);
}

#[tokio::test]
async fn prediction_changed_after_lock_is_detected() {
    TestApp::run(async |app| {
        let played = play(app).await;
        let (user, made) = &played.users[1];
        let before = proof_of(user, made).await;
        as_operator(app, "update predictions set prediction = 'home' where user_id = $1", user.id.0).await;
        user.get(&format!("/api/auth/predictions/{}/proof", made["id"])).await.expect(500);
        let (_, text) = written_bundle(app, &played.fixtures).await;
        assert_eq!(failed(&verified_bundle(&text, None)), ["row"], "points without a sealed prediction");
        // The changed content does not have the sealed hash.
        let mut forged = before.clone();
        forged["receipt"]["prediction"] = json!("home");
        let chain = chain(app).await;
        assert_eq!(failed(&verified(&forged, &chain)), ["leaf_hash"]);
        assert!(verified(&before, &chain).is_verified(), "the user still has the proof");
    })
    .await;
}

#[tokio::test]
async fn prediction_inserted_after_lock_is_detected() {
    TestApp::run(async |app| {
        let played = play(app).await;
        let friend = app.user().await;
        for statement in [
            "insert into predictions (user_id, event_id, prediction, confidence, salt, revision, created_at, updated_at)
             select $1, event_id, 'home', 100, gen_random_uuid(), 1, created_at, updated_at from predictions limit 1",
            "insert into pseudonyms select $1, tournament_id, gen_random_uuid() from pseudonyms limit 1",
        ] {
            as_operator(app, statement, friend.id.0).await;
        }
        let (_, text) = written_bundle(app, &played.fixtures).await;
        assert_eq!(failed(&verified_bundle(&text, None)), ["row"], "a row without a sealed prediction");
        // With a line for it, the bundle does not have the sealed root.
        let own = friend.get("/api/auth/predictions").await.expect(200)["data"][0]["id"].clone();
        let receipt = friend.get(&format!("/api/auth/predictions/{own}/receipt")).await.expect(200);
        friend.get(&format!("/api/auth/predictions/{own}/proof")).await.expect(500);
        let mut line = receipt["data"].clone();
        line["type"] = json!("prediction");
        let mut lines: Vec<&str> = text.lines().collect();
        let leaf = |line: &str| serde_json::from_str::<Value>(line).expect("JSON")["leaf_hash"].to_string();
        let own = line["leaf_hash"].to_string();
        let is_next = |other: &&str| other.contains("\"row\"") || leaf(other) > own;
        let first = lines.iter().position(|line| line.contains("\"prediction\"")).expect("predictions");
        let at = first + lines[first..].iter().position(is_next).expect("rows");
        let line = line.to_string();
        lines.insert(at, &line);
        assert_eq!(failed(&verified_bundle(&lines.join("\n"), None)), ["root", "count"]);
    })
    .await;
}

#[tokio::test]
async fn removed_prediction_is_detected() {
    TestApp::run(async |app| {
        let played = play(app).await;
        let (_, text) = written_bundle(app, &played.fixtures).await;
        let leaf = played.users[2].1["receipt"]["leaf_hash"].as_str().expect("a hash").to_owned();
        let lines: Vec<&str> = text.lines().filter(|line| !line.contains(&leaf)).collect();
        let report = verified_bundle(&lines.join("\n"), None);
        assert_eq!(failed(&report), ["root", "count", "row"]);
        // A hash that is removed from the database is missing too.
        let (first, rest) = (64, 128);
        let done =
            sqlx::query("update seal_tiles set hashes = substring(hashes for $1), first = substring(hashes for 32)")
                .bind(first)
                .execute(app.owner())
                .await
                .expect("written");
        assert!(done.rows_affected() == 1 && rest > first);
        let (_, text) = written_bundle(app, &played.fixtures).await;
        let report = failed(&verified_bundle(&text, None));
        assert!(report.contains(&"count") && report.contains(&"root"), "{report:?}");
    })
    .await;
}

#[tokio::test]
async fn replaced_seal_is_detected() {
    TestApp::run(async |app| {
        let played = play(app).await;
        let next = far(&played.fixtures, "n").between("albion", "wanderers").put().await;
        far(&played.fixtures, "n").between("albion", "wanderers").being("live").put().await;
        assert_eq!(seal(app).await[0]["event_id"], next);
        let (user, made) = &played.users[0];
        let (saved, copy) = (proof_of(user, made).await, chain(app).await);
        // Another root, first with the old hash, then with a matching one.
        sqlx::query("update seals set root = sha256('other') where sequence = 1")
            .execute(app.owner())
            .await
            .expect("written");
        let changed = app.app.seals.list(None, 0, 10).await.expect("read");
        let forged = serde_json::to_value(&changed).expect("JSON");
        let report = |chain: &Value| matchday_verify::chain::Chain::read(chain).expect("a chain").verify();
        assert_eq!(failed(&report(&forged)), ["seal_hash"]);
        let content = crate::game::seals::rules::Content {
            event: changed[0].event_id,
            event_sequence: 1,
            count: changed[0].count,
            root: changed[0].root,
            start_time: changed[0].start_time,
        };
        let resealed = content.seal((0, changed[0].previous), changed[0].sealed_at);
        let forged = json!([resealed, changed[1]]);
        assert_eq!(failed(&report(&forged)), ["previous"], "the next seal names the old one");
        // Readers with an old proof or an old copy see the difference.
        assert!(failed(&verified(&saved, &forged)).contains(&"not_in_chain"));
        assert!(verified(&saved, &copy).is_verified());
    })
    .await;
}

#[tokio::test]
async fn seals_shown_differently_are_detected() {
    TestApp::run(async |app| {
        let played = play(app).await;
        let (user, made) = &played.users[0];
        let proof = proof_of(user, made).await;
        let shown = chain(app).await;
        // Another reader gets a chain that is valid in itself, without one of the predictions.
        let seal = app.app.seals.find(1).await.expect("read").expect("a seal");
        let other = crate::game::seals::rules::Content {
            event: seal.event_id,
            event_sequence: 1,
            count: seal.count - 1,
            root: crate::game::predictions::receipts::Hash::of(&[b"fewer"]),
            start_time: seal.start_time,
        };
        let other = json!([other.seal((0, seal.previous), seal.sealed_at)]);
        assert!(matchday_verify::chain::Chain::read(&other).expect("a chain").verify().is_verified());
        assert!(verified(&proof, &shown).is_verified());
        assert_eq!(failed(&verified(&proof, &other)), ["not_in_chain"], "the two readers compare");
        let (_, text) = written_bundle(app, &played.fixtures).await;
        assert_eq!(failed(&verified_bundle(&text, Some(&other))), ["not_in_chain"]);
        assert_eq!(played.event, seal.event_id.0);
    })
    .await;
}

#[tokio::test]
async fn superseded_seal_in_a_bundle_is_detected() {
    TestApp::run(async |app| {
        let played = play(app).await;
        let (_, text) = written_bundle(app, &played.fixtures).await;
        far(&played.fixtures, "m").put().await;
        let (user, _) = &played.users[0];
        predict(user, played.event, "away").await;
        far(&played.fixtures, "m").at("finished", 1, 0).put().await;
        assert_eq!(seal(app).await.len(), 1);
        assert!(verified_bundle(&text, None).is_verified());
        assert_eq!(failed(&verified_bundle(&text, Some(&chain(app).await))), ["not_in_chain"]);
    })
    .await;
}

#[tokio::test]
async fn altered_results_rules_and_rows_are_detected() {
    TestApp::run(async |app| {
        let played = play(app).await;
        let (_, text) = written_bundle(app, &played.fixtures).await;
        assert!(verified_bundle(&text, None).is_verified());
        let altered = |kind: &str, alter: &dyn Fn(&mut Value)| {
            let lines = text.lines().map(|line| {
                let mut value: Value = serde_json::from_str(line).expect("JSON");
                if value["type"] == kind {
                    alter(&mut value);
                }
                value.to_string()
            });
            let mut found = failed(&verified_bundle(&lines.collect::<Vec<_>>().join("\n"), None));
            // Rows with other values can have another order.
            found.retain(|check| *check != "line" || kind != "row");
            found
        };
        assert_eq!(lines_of(&text, "row").len(), 3);
        assert_eq!(altered("event", &|event| event["results"][0]["home_score"] = json!(0)), ["row"]);
        assert_eq!(altered("event", &|event| event["multiplier"] = json!(2)), ["row"]);
        assert_eq!(altered("event", &|event| event["results"] = json!([])), ["row"]);
        assert_eq!(altered("rule_set", &|rules| rules["outcome"] = json!(25)), ["row"]);
        assert_eq!(altered("row", &|row| row["points"] = json!(1000)), ["row"]);
        assert_eq!(altered("row", &|row| row["exact"] = json!(1)), ["row"]);
        assert_eq!(
            altered("row", &|row| row["pseudonym"] = json!("00".repeat(16))),
            ["row", "missing_row"],
            "a row under another pseudonym"
        );
        assert_eq!(altered("seal", &|seal| seal["count"] = json!(2)), ["seal_hash", "count"]);
        assert_eq!(
            altered("prediction", &|line| line["confidence"] = json!(99)),
            ["leaf_hash", "row"],
            "the points follow from the changed content"
        );
    })
    .await;
}
