use http::Method;
use serde_json::{Value, json};
use time::Duration;

use crate::{
    identity::sessions::service::REVOKED,
    testing::{Answer, TestApp, TestUser, eventually},
};

const OLD: &str = "+14155550100";
const NEW: &str = "+14155550122";

async fn begin(user: &TestUser<'_>, phone: &str) -> Answer {
    user.post("/api/auth/verify-phone/initiate", json!({"phone": phone})).await
}

/// Verifies a phone with the code that was sent to it.
async fn verify(app: &TestApp, user: &TestUser<'_>, phone: &str) -> Answer {
    let code = app.codes(phone).await.remove(0);
    user.post("/api/auth/verify-phone", json!({"phone": phone, "code": code})).await
}

async fn move_to(app: &TestApp, user: &TestUser<'_>, phone: &str) {
    begin(user, phone).await.expect(200);
    verify(app, user, phone).await.expect(200);
}

/// Waits for the text message about the latest move and returns the undo code in it.
async fn undo_code(app: &TestApp, phone: &str) -> String {
    let path = format!("/api/logs/sms?notices=true&phone={}", phone.replace('+', "%2B"));
    let log = async || app.anonymous(Method::GET, &path).await.expect(200);
    eventually("the old phone receives a text message", async || log().await["data"][0]["text"].is_string()).await;
    let text = log().await["data"][0]["text"].as_str().expect("a text").to_owned();
    assert!(text.starts_with("Your Matchday account was moved to another phone number."), "{text}");
    text.rsplit(' ').next().expect("a code").to_owned()
}

async fn undo(app: &TestApp, code: &str) -> Answer {
    app.post("/api/phone/undo-move", &json!({"code": code})).await
}

async fn me(user: &TestUser<'_>) -> u16 {
    user.get("/api/auth/me").await.status.as_u16()
}

/// Drains the published messages about sessions and users, and fails if there are others.
async fn forget_revocations(app: &TestApp) {
    let messages = app.published().await;
    let other: Vec<&(String, Value)> =
        messages.iter().filter(|(subject, _)| subject != REVOKED && !subject.starts_with("fact.user.")).collect();
    assert!(other.is_empty(), "{other:?}");
}

#[tokio::test]
async fn stolen_token_does_not_move_the_account() {
    TestApp::run(async |app| {
        let (user, _) = app.log_in(OLD).await;
        app.clock.advance(Duration::minutes(10));
        let before = app.codes(NEW).await.len();
        let refused = begin(&user, NEW).await;
        assert_eq!(refused.invalid_fields(), ["phone"]);
        assert_eq!(begin(&user, NEW).await.expect(422)["code"], "proof_required");
        assert_eq!(app.codes(NEW).await.len(), before, "a stolen token cannot text other phones either");

        // The owner has the phone and can move: they verify the current phone first, then the new one.
        begin(&user, OLD).await.expect(200);
        verify(app, &user, OLD).await.expect(200);
        app.clock.advance(Duration::minutes(9));
        move_to(app, &user, NEW).await;
    })
    .await;
}

#[tokio::test]
async fn expired_proof_does_not_move_the_account() {
    TestApp::run(async |app| {
        let (user, _) = app.log_in(OLD).await;
        app.clock.advance(Duration::minutes(9));
        begin(&user, NEW).await.expect(200);
        app.clock.advance(Duration::minutes(2));
        assert_eq!(verify(app, &user, NEW).await.expect(422)["code"], "proof_required");
        begin(&user, OLD).await.expect(200);
        verify(app, &user, OLD).await.expect(200);
        let login = app.log_in(OLD).await;
        assert_eq!(login.0.id, user.id, "the phone still belongs to the owner");
    })
    .await;
}

#[tokio::test]
async fn move_ends_other_sessions_and_keeps_its_own() {
    TestApp::run(async |app| {
        let (other, _) = app.log_in(OLD).await;
        let (user, _) = app.log_in(OLD).await;
        move_to(app, &user, NEW).await;
        assert_eq!((me(&user).await, me(&other).await), (200, 401));
        forget_revocations(app).await;
    })
    .await;
}

#[tokio::test]
async fn owner_recovers_a_moved_account() {
    TestApp::run(async |app| {
        // The thief has a recent session.
        let (thief, _) = app.log_in(OLD).await;
        move_to(app, &thief, NEW).await;
        let code = undo_code(app, OLD).await;
        // A second move does not let the thief keep the account.
        move_to(app, &thief, "+14155550133").await;
        // The owner logs in with the old phone and finds an empty account.
        let (empty, _) = app.log_in(OLD).await;
        assert_ne!(empty.id, thief.id);
        for wrong in ["1A-0123-4567-89AB-CDYZ", &code.replace('-', "0")] {
            let refused = undo(app, wrong).await;
            assert!([401, 422].contains(&refused.status.as_u16()), "{wrong}");
        }
        assert_eq!(undo(app, &code.to_lowercase()).await.expect(200)["data"]["phone"], OLD);
        assert_eq!((me(&thief).await, me(&empty).await), (401, 401));
        let (owner, _) = app.log_in(OLD).await;
        assert_eq!(owner.id, thief.id, "the owner has the account again");
        for phone in [NEW, "+14155550133"] {
            assert_ne!(app.log_in(phone).await.0.id, owner.id, "{phone} is free");
        }
        // Neither the thief's code nor the owner's works again.
        let of_thief = undo_code(app, NEW).await;
        undo(app, &of_thief).await.expect(401);
        undo(app, &code).await.expect(401);
        forget_revocations(app).await;
    })
    .await;
}

#[tokio::test]
async fn move_can_be_undone_for_72_hours() {
    TestApp::run(async |app| {
        let (user, _) = app.log_in(OLD).await;
        move_to(app, &user, NEW).await;
        let code = undo_code(app, OLD).await;
        app.clock.advance(Duration::hours(72));
        undo(app, &code).await.expect(401);
        assert_eq!(app.app.phone_moves.sweep().await.expect("swept"), 0);
        app.clock.advance(Duration::seconds(1));
        assert_eq!(app.app.phone_moves.sweep().await.expect("swept"), 1);
    })
    .await;
}

#[tokio::test]
async fn undo_does_not_take_the_phone_of_an_older_account() {
    TestApp::run(async |app| {
        let (other, _) = app.log_in("+14155550144").await;
        let (user, _) = app.log_in(OLD).await;
        app.clock.advance(Duration::seconds(1));
        move_to(app, &user, NEW).await;
        let code = undo_code(app, OLD).await;
        move_to(app, &other, OLD).await;
        assert_eq!(undo(app, &code).await.expect(409)["code"], "phone_taken");
        assert_eq!((me(&user).await, me(&other).await), (200, 200));
    })
    .await;
}

#[tokio::test]
async fn account_cannot_be_deleted_while_its_move_can_be_undone() {
    TestApp::run(async |app| {
        let (user, _) = app.log_in(OLD).await;
        user.post("/api/auth/me/deletion", json!({})).await.expect(200);
        let code = app.codes(OLD).await.remove(0);
        move_to(app, &user, NEW).await;
        let delete = async |code: &str| {
            user.send(Method::DELETE, "/api/auth/me", Some(json!({"code": code}).to_string())).await.status.as_u16()
        };
        assert_eq!(delete(&code).await, 401, "the code was sent to the old phone");
        let refused = user.post("/api/auth/me/deletion", json!({})).await;
        assert_eq!(refused.expect(409)["code"], "phone_moved_lately");
        app.clock.advance(Duration::hours(72));
        user.post("/api/auth/me/deletion", json!({})).await.expect(200);
        let code = app.codes(NEW).await.remove(0);
        assert_eq!(delete(&code).await, 200);
        let messages = app.published().await;
        assert!(messages.iter().any(|(subject, _)| subject == "fact.user.deleted"), "{messages:?}");
    })
    .await;
}

#[tokio::test]
async fn concurrent_workers_send_one_notice() {
    TestApp::run(async |app| {
        let (user, _) = app.log_in(OLD).await;
        move_to(app, &user, NEW).await;
        undo_code(app, OLD).await;
        let sent = futures_util::future::join_all((0..8).map(|_| app.app.phone_moves.send_move_notices())).await;
        assert_eq!(sent.into_iter().map(|sent| sent.expect("sent")).sum::<usize>(), 0);
        let notices: i64 = sqlx::query_scalar("select count(*) from sms_log where notice is not null")
            .fetch_one(&app.app.core.db)
            .await
            .expect("read");
        assert_eq!(notices, 1);
    })
    .await;
}
