//! Predictions that race the start, workers that race each other, and workers that are killed.

use std::{collections::BTreeSet, time::Duration as Pause};

use futures_util::future::join_all;
use scoring::{Confidence, Forecast, Pick};
use serde_json::Value;
use time::{Duration, OffsetDateTime};
use tokio_util::sync::CancellationToken;
use web::ids::{MatchId, PredictionId, UserId};

use super::{counted, far, user_ids};
use crate::{
    catalogue::matches::gates,
    game::{
        predictions::service::SaveError,
        seals::{rules::Seal, service::Proof},
    },
    testing::{TestApp, eventually},
};

fn home() -> Forecast {
    Forecast::new(Pick::Home, None, Confidence::default()).expect("a forecast")
}

/// Submits predictions of a thousand users over a period. Returns the accepted ones.
async fn submit_thousand(app: &TestApp, event: i64, over: Pause) -> Vec<(UserId, PredictionId)> {
    let submissions = user_ids(500_001, 1_000).zip(1_u32..).map(|(user, number)| async move {
        tokio::time::sleep(over * number / 1_000).await;
        match app.app.predictions.save(user, MatchId(event), home()).await {
            Ok(saved) => Some((user, saved.id)),
            Err(SaveError::Closed(_)) => None,
            Err(error) => panic!("save failed: {error}"),
        }
    });
    join_all(submissions).await.into_iter().flatten().collect()
}

/// Waits until a match is sealed.
async fn sealed(app: &TestApp, event: i64) -> Seal {
    let seals = async || app.app.seals.list(Some(MatchId(event)), 0, 10).await.expect("read");
    eventually("the match is sealed", async || !seals().await.is_empty()).await;
    let mut found = seals().await;
    assert_eq!(found.len(), 1);
    found.remove(0)
}

async fn check_sealed_or_refused(app: &TestApp, event: i64, accepted: &[(UserId, PredictionId)]) {
    assert!((1..1_000).contains(&accepted.len()), "the test had no race: {}", accepted.len());
    let seal = sealed(app, event).await;
    assert_eq!(usize::try_from(seal.count), Ok(accepted.len()), "sealed");
    assert_eq!(usize::try_from(counted(app, event).await), Ok(accepted.len()), "counted");
    let mut places = BTreeSet::new();
    for &(user, id) in accepted {
        let Proof { seal: of, leaf_index, .. } = app.app.seals.prove(user, id).await.expect("a proof");
        assert_eq!(of.hash, seal.hash);
        places.insert(leaf_index);
    }
    assert_eq!(places.len(), accepted.len(), "each has its own leaf");
}

#[tokio::test(flavor = "multi_thread")]
async fn predictions_racing_the_start_are_sealed_or_refused() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures, "m").put().await;
        let other = app.second(app.app.config.clone()).await;
        let closing = CancellationToken::new();
        let start: OffsetDateTime = sqlx::query_scalar(
            "update events set start_time = now() + interval '600 ms' where id = $1 returning start_time",
        )
        .bind(event)
        .fetch_one(&app.app.core.db)
        .await
        .expect("moved");
        let work = async {
            let workers =
                async { tokio::join!(app.app.seals.run(closing.clone()), other.app.seals.run(closing.clone())) };
            let racing = async {
                let accepted = submit_thousand(app, event, Pause::from_secs(1)).await;
                sealed(app, event).await;
                closing.cancel();
                accepted
            };
            tokio::join!(workers, racing).1
        };
        let accepted = work.await;
        let in_document = start - app.app.core.clock.now();
        fixtures.a_match("m").starting_in(in_document).at("finished", 1, 0).put().await;
        check_sealed_or_refused(app, event, &accepted).await;
        app.published().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn predictions_racing_a_kick_off_are_sealed_or_refused() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures, "m").put().await;
        let closing = CancellationToken::new();
        let racing = async {
            let kick_off = async {
                tokio::time::sleep(Pause::from_millis(300)).await;
                far(&fixtures, "m").being("live").put().await;
            };
            let (accepted, ()) = tokio::join!(submit_thousand(app, event, Pause::from_millis(600)), kick_off);
            sealed(app, event).await;
            closing.cancel();
            accepted
        };
        let ((), accepted) = tokio::join!(app.app.seals.run(closing.clone()), racing);
        far(&fixtures, "m").at("finished", 1, 0).put().await;
        check_sealed_or_refused(app, event, &accepted).await;
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn seal_waits_for_a_write_behind_the_gate() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures, "m").put().await;
        // A writer that has passed the gate before the start and has not committed, as one whose process was killed.
        let mut writer = platform::database::begin(app.owner()).await.expect("begun");
        sqlx::query(sqlx::AssertSqlSafe(gates::hold_open(&[MatchId(event)])))
            .execute(&mut *writer)
            .await
            .expect("held");
        sqlx::query(
            "insert into predictions (user_id, event_id, prediction, confidence, salt, revision, created_at, updated_at)
             values (7, $1, 'home', 0, gen_random_uuid(), 1, clock_timestamp(), clock_timestamp())",
        )
        .bind(event)
        .execute(&mut *writer)
        .await
        .expect("written");
        sqlx::query("insert into pseudonyms select 7, tournament_id, gen_random_uuid() from events where id = $1")
            .bind(event)
            .execute(&mut *writer)
            .await
            .expect("written");
        sqlx::query("update events set start_time = clock_timestamp() where id = $1")
            .bind(event)
            .execute(&app.app.core.db)
            .await
            .expect("started");
        let sealing = app.app.seals.seal_due();
        let committing = async {
            tokio::time::sleep(Pause::from_millis(300)).await;
            assert!(app.app.seals.list(None, 0, 10).await.expect("read").is_empty(), "it does not wait");
            writer.commit().await.expect("committed");
        };
        let (sealed, ()) = tokio::join!(sealing, committing);
        assert_eq!(sealed.expect("sealed"), 1);
        let seals = app.app.seals.list(None, 0, 10).await.expect("read");
        assert_eq!(seals[0].count, 1, "the write is in the seal");
        app.published().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn racing_and_killed_workers_leave_one_chain() {
    const MATCHES: usize = 12;
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let keys: Vec<String> = (0..MATCHES).map(|number| format!("m{number}")).collect();
        let documents = |status: &'static str| -> Vec<Value> {
            keys.iter().map(|key| far(&fixtures, key).being(status).json()).collect()
        };
        fixtures.import(&documents("scheduled")).await;
        let events: Vec<i64> =
            sqlx::query_scalar("select id from events order by id").fetch_all(&app.app.core.db).await.expect("read");
        for &event in &events {
            for user in user_ids(1, 20) {
                app.app.predictions.save(user, MatchId(event), home()).await.expect("saved");
            }
        }
        fixtures.import(&documents("live")).await;
        let other = app.second(app.app.config.clone()).await;
        // Workers that are stopped after a while, wherever they are.
        for milliseconds in 0..40 {
            let both = async { tokio::join!(app.app.seals.seal_due(), other.app.seals.seal_due()) };
            let _ = tokio::time::timeout(Pause::from_millis(milliseconds), both).await;
        }
        eventually("all matches are sealed", async || {
            // A race is lost by one of two workers, which then reports a violated constraint.
            let _ = tokio::join!(app.app.seals.seal_due(), other.app.seals.seal_due());
            app.app.seals.list(None, 0, 100).await.expect("read").len() == MATCHES
        })
        .await;
        let seals = app.app.seals.list(None, 0, 100).await.expect("read");
        let sealed: BTreeSet<i64> = seals.iter().map(|seal| seal.event_id.0).collect();
        assert_eq!(sealed, events.iter().copied().collect(), "each match once");
        assert!(seals.iter().all(|seal| seal.count == 20 && seal.event_sequence == 1));
        let chain = serde_json::to_value(&seals).expect("JSON");
        let chain = matchday_verify::chain::Chain::read(&chain).expect("a chain");
        assert!(chain.verify().is_verified(), "{}", chain.verify());
        assert_eq!(seals[0].sequence, 1);
        let published = app.published().await;
        let facts = published.iter().filter(|(subject, _)| subject == super::SEALED).count();
        assert_eq!(facts, MATCHES, "each is published once");
        assert!(seals.iter().all(|seal| seal.sealed_at - seal.start_time < Duration::ZERO));
    })
    .await;
}

#[tokio::test]
async fn match_that_opens_while_it_is_sealed_is_sealed_later() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures, "m").put().await;
        app.app.predictions.save(UserId(1), MatchId(event), home()).await.expect("saved");
        far(&fixtures, "m").being("live").put().await;
        // The worker has read the predictions and waits for the lock of the match, which is opening.
        let mut opening = platform::database::begin(app.owner()).await.expect("begun");
        sqlx::query(
            "update events set status = 'scheduled', opened_at = clock_timestamp(), seal_due = true where id = $1",
        )
        .bind(event)
        .execute(&mut *opening)
        .await
        .expect("written");
        let open = async {
            tokio::time::sleep(Pause::from_millis(300)).await;
            opening.commit().await.expect("committed");
        };
        let (sealed, ()) = tokio::join!(app.app.seals.seal_due(), open);
        assert_eq!(sealed.expect("no failure"), 0);
        let tiles: i64 =
            sqlx::query_scalar("select count(*) from seal_tiles").fetch_one(app.owner()).await.expect("read");
        assert_eq!(tiles, 0, "nothing is left of the attempt");
        app.app.predictions.save(UserId(2), MatchId(event), home()).await.expect("saved");
        far(&fixtures, "m").being("live").put().await;
        assert_eq!(app.app.seals.seal_due().await.expect("sealed"), 1);
        assert_eq!(app.app.seals.list(None, 0, 10).await.expect("read")[0].count, 2);
        app.published().await;
    })
    .await;
}
