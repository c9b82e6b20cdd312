//! Tests of resetting chat keys, with a scripted homeserver and with a real one.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU16, Ordering},
};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use http::Method;
use platform::stream::{Delivery, Failure};
use serde_json::{Value, json};
use time::Duration;

use crate::{
    chat::messages::KEYS_REPLACED,
    identity::codes::Subject,
    testing::{Answer, Received, Receiver, Reply, TestApp, TestUser},
};

const PHONE: &str = "+14155550160";
const INITIATE: &str = "/api/auth/matrix-keys/reset/initiate";
const RESET: &str = "/api/auth/matrix-keys/reset";
const UPLOAD: &str = "/keys/device_signing/upload";

/// Outcome of an upload to the scripted homeserver that is not a status: it never responds.
const NO_RESPONSE: u16 = 0;
/// Status of an upload after which the scripted homeserver has the keys in `Stub::stored`.
const LOST_RESPONSE: u16 = 504;

/// A homeserver that accepts all logins, and responds to uploads of keys with a status that the test changes.
struct Stub {
    receiver: Receiver,
    upload_status: Arc<AtomicU16>,
    /// Response to a query for keys.
    stored: Arc<Mutex<Value>>,
}

impl Stub {
    async fn start() -> Self {
        let upload_status = Arc::new(AtomicU16::new(200));
        let stored = Arc::new(Mutex::new(Value::Null));
        let (status, found) = (Arc::clone(&upload_status), Arc::clone(&stored));
        let receiver = Receiver::start(move |_, received| {
            let json = |status: u16, body: Value| {
                Reply::status(status).with("content-type", "application/json").saying(&body.to_string())
            };
            let id = |name: &Value| format!("@{}:{}", name.as_str().unwrap_or_default(), server_name());
            match received.path.split('?').next().unwrap_or_default() {
                path if path.ends_with("/register") => json(200, json!({"user_id": id(&received.json()["username"])})),
                path if path.ends_with("/login") => {
                    let body = received.json();
                    let device = &body["device_id"];
                    json(
                        200,
                        json!({"user_id": body["identifier"]["user"], "access_token": "syt", "device_id": device}),
                    )
                }
                path if path.ends_with("/devices") => json(200, json!({"devices": []})),
                path if path.ends_with(UPLOAD) => match status.load(Ordering::Relaxed) {
                    NO_RESPONSE => Reply::never(),
                    200 => json(200, json!({})),
                    401 => json(401, json!({"session": "x", "flows": [], "params": {}})),
                    400 => json(400, json!({"errcode": "M_INVALID_SIGNATURE", "error": "Invalid signature"})),
                    403 => json(403, json!({"errcode": "M_USER_SUSPENDED", "error": "suspended"})),
                    status => json(status, json!({})),
                },
                // The keys are stored although the upload failed with this status.
                path if path.ends_with("/keys/query") && status.load(Ordering::Relaxed) == LOST_RESPONSE => {
                    json(200, found.lock().unwrap_or_else(PoisonError::into_inner).clone())
                }
                path if path.ends_with("/versions") => json(200, json!({"versions": ["v1.1"]})),
                _ => json(500, json!({})),
            }
        })
        .await;
        Self { receiver, upload_status, stored }
    }

    /// Runs a test of the service with this homeserver.
    async fn run(test: impl AsyncFnOnce(&TestApp, &Self)) {
        let stub = Self::start().await;
        let url = stub.receiver.url.to_string();
        let changes = [("MATCHDAY_MATRIX__HOMESERVER_URL", url.as_str()), ("MATCHDAY_MATRIX__TIMEOUT", "1s")];
        TestApp::run_with(&changes, async |app| test(app, &stub).await).await;
    }

    fn respond(&self, status: u16) {
        self.upload_status.store(status, Ordering::Relaxed);
    }

    /// Bodies of the uploads so far.
    fn uploads(&self) -> Vec<Value> {
        let seen = self.receiver.seen();
        seen.iter().filter(|request| request.path.contains(UPLOAD)).map(Received::json).collect()
    }
}

fn server_name() -> String {
    crate::testing::test_config(&[]).matrix.server_name.expect("a server name")
}

/// Cross-signing keys of a user. Each seed gives other keys. The master key signs the other two.
fn keys(user_id: &Value, seed: u8) -> Value {
    let user_id = user_id.as_str().expect("an id");
    let pair =
        |n: u8| Ed25519KeyPair::from_seed_unchecked(&[seed.wrapping_mul(3).wrapping_add(n); 32]).expect("a pair");
    let public = |pair: &Ed25519KeyPair| STANDARD_NO_PAD.encode(pair.public_key());
    let master = pair(0);
    let key = |n: u8, usage: &str| {
        let public_key = public(&pair(n));
        // Canonical JSON: sorted names and no spaces.
        let signed = format!(
            r#"{{"keys":{{"ed25519:{public_key}":"{public_key}"}},"usage":["{usage}"],"user_id":"{user_id}"}}"#
        );
        let mut key: Value = serde_json::from_str(&signed).expect("JSON");
        if n > 0 {
            let signature = STANDARD_NO_PAD.encode(master.sign(signed.as_bytes()));
            key["signatures"] = json!({user_id: {format!("ed25519:{}", public(&master)): signature}});
        }
        key
    };
    json!({
        "master_key": key(0, "master"),
        "self_signing_key": key(1, "self_signing"),
        "user_signing_key": key(2, "user_signing"),
    })
}

fn with_code(keys: &Value, code: &str) -> Value {
    let mut body = keys.clone();
    body["code"] = json!(code);
    body
}

fn other_than(code: &str) -> &'static str {
    if code == "000000" { "000001" } else { "000000" }
}

async fn log_in(app: &TestApp) -> (TestUser<'_>, Value) {
    let (user, login) = app.log_in(PHONE).await;
    let id = login["matrix_credentials"]["user_id"].clone();
    assert!(id.is_string(), "{login}");
    (user, id)
}

async fn request_code(app: &TestApp, user: &TestUser<'_>) -> String {
    let sent = user.send(Method::POST, INITIATE, None).await.expect(200);
    assert_eq!(sent["data"], json!({"expires_in": 300, "phone": PHONE}));
    app.codes(PHONE).await.remove(0)
}

async fn reset(user: &TestUser<'_>, keys: &Value, code: &str) -> Answer {
    user.post(RESET, with_code(keys, code)).await
}

/// Takes the notices from the outbox and handles them like a worker. Returns their number.
async fn send_notices(app: &TestApp) -> usize {
    let mut sent = 0;
    for (subject, payload) in app.published().await {
        assert_eq!(subject, KEYS_REPLACED);
        perform(app, &payload).await.expect("sent");
        sent += 1;
    }
    sent
}

async fn perform(app: &TestApp, payload: &Value) -> Result<(), Failure> {
    let payload = payload.to_string().into_bytes().into();
    let delivery = Delivery { subject: KEYS_REPLACED.to_owned(), id: None, payload, attempt: 1 };
    app.app.chat_work.perform(delivery).await
}

/// Texts of the notices that were sent to the phone.
async fn notices(app: &TestApp) -> Vec<String> {
    sqlx::query_scalar("select notice from sms_log where phone = $1 and notice is not null order by id")
        .bind(PHONE)
        .fetch_all(&app.app.core.db)
        .await
        .expect("read")
}

#[tokio::test]
async fn code_replaces_keys_once_and_notifies_user() {
    Stub::run(async |app, homeserver| {
        let (user, id) = log_in(app).await;
        let (new, code) = (keys(&id, 1), request_code(app, &user).await);
        let done = reset(&user, &new, &code).await.expect(200);
        assert_eq!(done["data"], json!({"reset": true}));
        assert_eq!(homeserver.uploads(), std::slice::from_ref(&new));
        let seen = homeserver.receiver.seen();
        let upload = seen.iter().find(|request| request.path.contains(UPLOAD)).expect("an upload");
        let query: String = url::form_urlencoded::byte_serialize(id.as_str().expect("an id").as_bytes()).collect();
        assert!(upload.path.ends_with(&format!("?user_id={query}")), "{}", upload.path);

        assert_eq!(reset(&user, &keys(&id, 2), &code).await.expect(401)["code"], "invalid_code");
        assert_eq!(homeserver.uploads().len(), 1);
        assert_eq!(send_notices(app).await, 1);
        let texts = notices(app).await;
        assert!(texts.len() == 1 && texts[0].contains("chat keys were replaced"), "{texts:?}");
    })
    .await;
}

#[tokio::test]
async fn notice_uses_language_of_request() {
    Stub::run(async |app, _| {
        let (user, id) = log_in(app).await;
        let body = with_code(&keys(&id, 1), &request_code(app, &user).await).to_string();
        user.send_with(Method::POST, RESET, &[("accept-language", "pt-BR")], Some(body)).await.expect(200);
        assert_eq!(send_notices(app).await, 1);
        assert!(notices(app).await[0].starts_with("As chaves"), "{:?}", notices(app).await);
    })
    .await;
}

#[tokio::test]
async fn invalid_keys_are_refused_before_the_code() {
    Stub::run(async |app, homeserver| {
        let (user, id) = log_in(app).await;
        let (new, code) = (keys(&id, 1), request_code(app, &user).await);
        for field in ["master_key", "self_signing_key", "user_signing_key"] {
            for bad in [json!(null), json!("key"), json!({}), json!({"user_id": id, "usage": ["master"], "keys": {}})] {
                let mut body = new.clone();
                body[field] = bad;
                assert_eq!(reset(&user, &body, "000000").await.invalid_fields(), [field]);
            }
            let mut foreign = new.clone();
            foreign[field]["user_id"] = json!("@someone:else.example");
            assert_eq!(reset(&user, &foreign, &code).await.invalid_fields(), [field]);
            let mut misused = new.clone();
            misused[field]["usage"] = json!(["other"]);
            assert_eq!(reset(&user, &misused, &code).await.invalid_fields(), [field]);
        }
        for bad in [json!(null), json!(123_456), json!("12345")] {
            let mut body = new.clone();
            body["code"] = bad;
            assert_eq!(user.post(RESET, body).await.invalid_fields(), ["code"]);
        }
        // More refusals than guesses: none of them was counted.
        assert!(homeserver.uploads().is_empty());
        reset(&user, &new, &code).await.expect(200);
        send_notices(app).await;
    })
    .await;
}

#[tokio::test]
async fn malformed_public_keys_leave_code_valid() {
    Stub::run(async |app, homeserver| {
        let (user, id) = log_in(app).await;
        let (new, code) = (keys(&id, 1), request_code(app, &user).await);
        let mut malformed = new.clone();
        malformed["self_signing_key"]["keys"] = json!({"ed25519:x": "x"});
        assert_eq!(reset(&user, &malformed, other_than(&code)).await.expect(401)["code"], "invalid_code");
        for _ in 0..10 {
            assert_eq!(reset(&user, &malformed, &code).await.invalid_fields(), ["self_signing_key"]);
        }
        assert!(homeserver.uploads().is_empty());
        // The homeserver checks the signatures.
        homeserver.respond(400);
        let refused = reset(&user, &new, &code).await.invalid_fields();
        assert_eq!(refused, ["master_key", "self_signing_key", "user_signing_key"]);
        homeserver.respond(200);
        reset(&user, &new, &code).await.expect(200);
        send_notices(app).await;
    })
    .await;
}

#[tokio::test]
async fn wrong_guesses_use_up_the_code() {
    Stub::run(async |app, homeserver| {
        let (user, id) = log_in(app).await;
        let (new, code) = (keys(&id, 1), request_code(app, &user).await);
        for _ in 0..5 {
            assert_eq!(reset(&user, &new, other_than(&code)).await.expect(401)["code"], "invalid_code");
        }
        assert_eq!(reset(&user, &new, &code).await.expect(401)["code"], "invalid_code");
        let code = request_code(app, &user).await;
        app.clock.advance(Duration::minutes(5));
        assert_eq!(reset(&user, &new, &code).await.expect(401)["code"], "invalid_code", "expired");
        assert!(homeserver.uploads().is_empty());
    })
    .await;
}

#[tokio::test]
async fn codes_of_other_purposes_do_not_reset_keys() {
    Stub::run(async |app, homeserver| {
        let (user, id) = log_in(app).await;
        let new = keys(&id, 1);
        assert_eq!(reset(&user, &new, "123456").await.expect(401)["code"], "invalid_code", "never requested");
        let login = app.code(PHONE).await;
        user.send(Method::POST, "/api/auth/me/deletion", None).await.expect(200);
        let deletion = app.codes(PHONE).await.remove(0);
        user.post("/api/auth/verify-phone/initiate", json!({"phone": PHONE})).await.expect(200);
        let verification = app.codes(PHONE).await.remove(0);
        let code = request_code(app, &user).await;
        for other in [&login, &deletion, &verification] {
            assert_ne!(*other, code);
            assert_eq!(reset(&user, &new, other).await.expect(401)["code"], "invalid_code");
        }
        // The code for the reset does nothing else, although each of the others is pending.
        app.post("/api/code/verify", &json!({"phone": PHONE, "code": code})).await.expect(401);
        let deleted = user.send(Method::DELETE, "/api/auth/me", Some(json!({"code": code}).to_string())).await;
        assert_eq!(deleted.expect(401)["code"], "invalid_code");
        user.post("/api/auth/verify-phone", json!({"phone": PHONE, "code": code})).await.expect(401);
        assert!(homeserver.uploads().is_empty());
        reset(&user, &new, &code).await.expect(200);
        send_notices(app).await;
    })
    .await;
}

#[tokio::test]
async fn code_of_another_user_does_not_reset_keys() {
    Stub::run(async |app, homeserver| {
        let (user, id) = log_in(app).await;
        let (thief, login) = app.log_in("+14155550161").await;
        let own = keys(&login["matrix_credentials"]["user_id"], 3);
        let code = request_code(app, &user).await;
        thief.send(Method::POST, INITIATE, None).await.expect(200);
        let stolen = reset(&thief, &own, &code).await;
        assert_eq!(stolen.expect(401)["code"], "invalid_code");
        assert_eq!(reset(&thief, &keys(&id, 1), &code).await.invalid_fields().len(), 3, "keys of another user");
        assert!(homeserver.uploads().is_empty());
        let mut anonymous = user;
        "md_1_nonsense".clone_into(&mut anonymous.token);
        assert_eq!(reset(&anonymous, &keys(&id, 1), &code).await.expect(401)["code"], "unauthenticated");
        anonymous.send(Method::POST, INITIATE, None).await.expect(401);
    })
    .await;
}

#[tokio::test]
async fn one_of_concurrent_resets_with_one_code_succeeds() {
    Stub::run(async |app, homeserver| {
        let (user, id) = log_in(app).await;
        let code = request_code(app, &user).await;
        let sets = [1, 2, 3, 4].map(|seed| keys(&id, seed));
        let answers = futures_util::future::join_all(sets.iter().map(|new| reset(&user, new, &code))).await;
        let mut statuses: Vec<u16> = answers.iter().map(|answer| answer.status.as_u16()).collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 401, 401, 401]);
        let first = answers.iter().position(|answer| answer.status == 200).expect("a success");
        assert_eq!(homeserver.uploads(), [sets[first].clone()]);
        assert_eq!(send_notices(app).await, 1);
    })
    .await;
}

#[tokio::test]
async fn code_stays_valid_while_homeserver_is_down() {
    Stub::run(async |app, homeserver| {
        let (user, id) = log_in(app).await;
        let (new, code) = (keys(&id, 1), request_code(app, &user).await);
        // More attempts than guesses. The later ones find the circuit breaker open.
        for status in [NO_RESPONSE, 503, 502, 503, 503, 503, 503] {
            homeserver.respond(status);
            let failed = reset(&user, &new, &code).await;
            assert_eq!(failed.header("retry-after"), Some("5"));
            assert_eq!(failed.expect(503)["code"], "chat_unavailable");
        }
        assert!(app.published().await.is_empty(), "no notice");
        homeserver.respond(200);
        // Closes the circuit breaker.
        assert!(app.app.chat.homeserver_for_keys().expect("a homeserver").is_available().await);
        reset(&user, &new, &code).await.expect(200);
        assert_eq!(reset(&user, &new, &code).await.expect(401)["code"], "invalid_code");
        assert_eq!(send_notices(app).await, 1);
    })
    .await;
}

/// Synapse fails if a user had one of the keys before, so users can cause failures as long as their code is valid.
#[tokio::test]
async fn failing_uploads_do_not_stop_logins() {
    Stub::run(async |app, homeserver| {
        let (user, id) = log_in(app).await;
        let (new, code) = (keys(&id, 1), request_code(app, &user).await);
        homeserver.respond(500);
        for _ in 0..5 {
            reset(&user, &new, &code).await.expect(503);
        }
        assert!(app.app.chat.homeserver_for_keys().expect("a homeserver").is_breaker_open());
        user.send(Method::POST, "/api/auth/matrix-credentials", None).await.expect(200);
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn lost_response_counts_if_keys_are_stored() {
    Stub::run(async |app, homeserver| {
        let (user, id) = log_in(app).await;
        let (new, code) = (keys(&id, 1), request_code(app, &user).await);
        homeserver.respond(LOST_RESPONSE);
        let mut stored = json!({"device_keys": {}});
        for (list, key) in [("master_keys", "master_key"), ("self_signing_keys", "self_signing_key")] {
            stored[list] = json!({id.as_str().expect("an id"): new[key]});
        }
        *homeserver.stored.lock().unwrap_or_else(PoisonError::into_inner) = stored.clone();
        reset(&user, &new, &code).await.expect(503); // one of three keys is missing
        stored["user_signing_keys"] = json!({id.as_str().expect("an id"): new["user_signing_key"]});
        *homeserver.stored.lock().unwrap_or_else(PoisonError::into_inner) = stored;
        reset(&user, &new, &code).await.expect(200);
        assert_eq!(reset(&user, &new, &code).await.expect(401)["code"], "invalid_code");
        assert_eq!(send_notices(app).await, 1);
    })
    .await;
}

#[tokio::test]
async fn homeserver_that_refuses_is_reported_as_not_configured() {
    Stub::run(async |app, homeserver| {
        let (user, id) = log_in(app).await;
        let (new, code) = (keys(&id, 1), request_code(app, &user).await);
        homeserver.respond(401);
        assert_eq!(reset(&user, &new, &code).await.expect(503)["code"], "not_configured");
        // No further codes are sent in vain.
        let sent = app.codes(PHONE).await.len();
        assert_eq!(user.send(Method::POST, INITIATE, None).await.expect(503)["code"], "not_configured");
        assert_eq!(app.codes(PHONE).await.len(), sent);
        homeserver.respond(200);
        app.clock.advance(Duration::minutes(10));
        let code = request_code(app, &user).await;
        reset(&user, &new, &code).await.expect(200);
        send_notices(app).await;
    })
    .await;
}

#[tokio::test]
async fn reset_needs_chat_and_phone() {
    TestApp::run(async |app| {
        let (user, _) = app.log_in(PHONE).await;
        assert_eq!(user.send(Method::POST, INITIATE, None).await.expect(503)["code"], "not_configured");
        let id = json!("@fan:matchday.localhost");
        assert_eq!(reset(&user, &keys(&id, 1), "123456").await.expect(503)["code"], "not_configured");
    })
    .await;
    Stub::run(async |app, _| {
        let (user, id) = log_in(app).await;
        sqlx::query("update users set phone = null where user_id = $1")
            .bind(user.id)
            .execute(&app.app.core.db)
            .await
            .expect("written");
        assert_eq!(user.send(Method::POST, INITIATE, None).await.expect(409)["code"], "no_phone");
        assert_eq!(reset(&user, &keys(&id, 1), "123456").await.expect(409)["code"], "no_phone");
    })
    .await;
}

#[tokio::test]
async fn muted_user_keeps_code_until_mute_ends() {
    Stub::run(async |app, homeserver| {
        let (user, id) = log_in(app).await;
        let (new, code) = (keys(&id, 1), request_code(app, &user).await);
        homeserver.respond(403);
        assert_eq!(reset(&user, &new, &code).await.expect(403)["code"], "muted");
        homeserver.respond(200);
        reset(&user, &new, &code).await.expect(200);
        send_notices(app).await;
    })
    .await;
}

#[tokio::test]
async fn repeated_request_with_key_resets_once() {
    Stub::run(async |app, homeserver| {
        let (user, id) = log_in(app).await;
        let keyed = async |path: &str, key: &str, body: Option<String>| {
            user.send_with(Method::POST, path, &[("idempotency-key", key)], body).await
        };
        for _ in 0..2 {
            keyed(INITIATE, "first", None).await.expect(200);
        }
        let codes = app.codes(PHONE).await;
        assert_eq!(codes.len(), 2, "one for the login and one for the reset");
        let body = with_code(&keys(&id, 1), &codes[0]).to_string();
        let first = keyed(RESET, "second", Some(body.clone())).await.expect(200);
        let again = keyed(RESET, "second", Some(body)).await;
        assert_eq!(again.header("idempotency-replayed"), Some("true"));
        assert_eq!(again.expect(200), first);
        assert_eq!(homeserver.uploads().len(), 1);
        assert_eq!(send_notices(app).await, 1);
    })
    .await;
}

#[tokio::test]
async fn notice_is_skipped_without_phone() {
    Stub::run(async |app, _| {
        perform(app, &json!({"user_id": 999_999, "language": "en"})).await.expect("skipped");
        let outcome = perform(app, &json!({"user_id": "x"})).await;
        assert!(matches!(outcome, Err(Failure::GiveUp(_))), "{outcome:?}");
    })
    .await;
}

/// A claim that was not restored, as after a crash during the upload, leaves the code used.
#[tokio::test]
async fn claimed_code_is_used_after_a_crash() {
    Stub::run(async |app, homeserver| {
        let (user, id) = log_in(app).await;
        let code = request_code(app, &user).await;
        sqlx::query("update codes set consumed_at = now() where subject = $1")
            .bind(Subject::KeyReset(user.id).key())
            .execute(&app.app.core.db)
            .await
            .expect("claimed");
        assert_eq!(reset(&user, &keys(&id, 1), &code).await.expect(401)["code"], "invalid_code");
        assert!(homeserver.uploads().is_empty());
    })
    .await;
}

#[tokio::test]
async fn real_homeserver_stores_the_new_keys() {
    TestApp::run_with_chat(&[], async |app| {
        let (user, login) = app.log_in(PHONE).await;
        let id = login["matrix_credentials"]["user_id"].clone();
        let name = login["user"]["username"].as_str().expect("a name").to_owned();
        let homeserver = app.app.chat.homeserver().expect("a homeserver");
        let mut unsigned = keys(&id, 9);
        unsigned["user_signing_key"]["signatures"] = json!({});
        for seed in [1, 2] {
            let (new, code) = (keys(&id, seed), request_code(app, &user).await);
            assert_eq!(reset(&user, &unsigned, &code).await.invalid_fields().len(), 3, "the code stays valid");
            reset(&user, &new, &code).await.expect(200);
            let stored = homeserver.signing_keys(&name).await.expect("read").expect("keys");
            assert_eq!(stored.master["keys"], new["master_key"]["keys"]);
            assert_eq!(stored.user_signing["keys"], new["user_signing_key"]["keys"]);
        }
        assert_eq!(send_notices(app).await, 2);
    })
    .await;
}
