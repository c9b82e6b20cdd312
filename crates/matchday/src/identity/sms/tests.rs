//! Sending, failover and delivery reports.

mod providers;
mod remote;
mod reports;

use axum::body::Body;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{Method, Request};
use platform::clock::Clock as _;
use serde_json::{Value, json};
use sha1::Sha1;
use sha2::Sha256;

use self::remote::Remote;
use super::templates::Language;
use crate::{
    identity::codes::service::RequestError,
    testing::{Answer, TestApp, eventually},
};

const PHONE: &str = "+12024561111";
const TAKEN_BY_TWILIO: &str = r#"{"sid": "SM0123456789abcdef0123456789abcdef", "status": "queued"}"#;
const TAKEN_BY_VONAGE: &str =
    r#"{"message-count": "1", "messages": [{"status": "0", "message-id": "0A0000000123ABCD1"}]}"#;

/// Settings for both providers, Twilio first, at these addresses.
fn both<'a>(twilio: &'a str, vonage: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        ("MATCHDAY_SMS__PROVIDERS", "twilio,vonage"),
        ("MATCHDAY_SMS__TIMEOUT", "1s"),
        ("MATCHDAY_SMS__TWILIO_URL", twilio),
        ("MATCHDAY_SMS__TWILIO_ACCOUNT_SID", "AC1"),
        ("MATCHDAY_SMS__TWILIO_AUTH_TOKEN", "twilio secret"),
        ("MATCHDAY_SMS__TWILIO_FROM", "+12024560000"),
        ("MATCHDAY_SMS__VONAGE_URL", vonage),
        ("MATCHDAY_SMS__VONAGE_API_KEY", "key"),
        ("MATCHDAY_SMS__VONAGE_API_SECRET", "vonage secret"),
        ("MATCHDAY_SMS__VONAGE_FROM", "Matchday"),
        ("MATCHDAY_SMS__VONAGE_SIGNATURE_SECRET", "signature secret"),
        ("MATCHDAY_HTTP__PUBLIC_URL", "https://api.example.org"),
    ]
}

async fn request(app: &TestApp, phone: &str) -> Answer {
    app.post("/api/code/request", &json!({"phone": phone})).await
}

async fn log(app: &TestApp) -> Vec<Value> {
    app.anonymous(Method::GET, "/api/logs/sms").await.expect(200)["data"].as_array().expect("a list").clone()
}

fn field(form: &[(String, String)], name: &str) -> String {
    form.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone()).unwrap_or_default()
}

#[tokio::test]
async fn next_provider_sends_same_code_after_failure() {
    let (twilio, vonage) =
        (Remote::responding(503, &[], "busy").await, Remote::responding(200, &[], TAKEN_BY_VONAGE).await);
    TestApp::run_with(&both(twilio.base_url.as_str(), vonage.base_url.as_str()), async |app| {
        request(app, PHONE).await.expect(200);
        let (tried_first, sent) = (twilio.only_request().form, vonage.only_request().form);
        let code = field(&sent, "text")[..6].to_owned();
        assert!(field(&tried_first, "Body").starts_with(&code), "both providers received the same code");
        assert_eq!(field(&sent, "to"), "12024561111");
        let entries = log(app).await;
        let summary = |entry: &Value| {
            [&entry["provider"], &entry["status"], &entry["code"]].map(|v| v.as_str().unwrap_or_default().to_owned())
        };
        assert_eq!(summary(&entries[0]), ["vonage", "sent", &code]);
        assert_eq!(summary(&entries[1]), ["twilio", "failed", &code]);
        assert_eq!(entries[1]["error"], "the provider is unavailable (code 503)");
        assert!(entries[1].get("expires_at").is_none() && entries[0].get("error").is_none());
        app.post("/api/code/verify", &json!({"phone": PHONE, "code": code})).await.expect(200);
    })
    .await;
}

#[tokio::test]
async fn circuit_breaker_skips_a_slow_provider() {
    let (twilio, vonage) = (Remote::stuck_after("").await, Remote::responding(200, &[], TAKEN_BY_VONAGE).await);
    TestApp::run_with(&both(twilio.as_str(), vonage.base_url.as_str()), async |app| {
        for n in 0..3 {
            request(app, &format!("+1202456111{n}")).await.expect(200);
        }
        for n in 3..8 {
            request(app, &format!("+1202456111{n}")).await.expect(200);
        }
        // The circuit breaker skips the slow provider for the last five.
        let failed = log(app).await.iter().filter(|entry| entry["status"] == "failed").count();
        assert_eq!(failed, 3);
    })
    .await;
}

#[tokio::test]
async fn provider_outage_returns_503_and_keeps_previous_code() {
    let remote = Remote::responding(200, &[], TAKEN_BY_VONAGE).await;
    let down = Remote::responding(500, &[], "down").await;
    TestApp::run_with(&both(down.base_url.as_str(), remote.base_url.as_str()), async |app| {
        request(app, PHONE).await.expect(200);
        let code = app.codes(PHONE).await.remove(0);
        // Same database and account, but both providers are down.
        let config = crate::testing::test_config(&both(down.base_url.as_str(), down.base_url.as_str()));
        let sms = crate::identity::sms::service::Sms::new(
            &app.app.core,
            &config.sms,
            None,
            config.notifications.catalogue().expect("texts"),
        )
        .expect("providers");
        let countries = &config.sms.countries;
        let codes =
            crate::identity::codes::service::Codes::new(&app.app.core, &config.codes, &config.limits, countries, sms);
        let phone = crate::identity::phone::Phone::parse(PHONE).expect("a phone");
        let subject = crate::identity::codes::Subject::Login(phone.clone());
        let network = web::ClientNetwork::local();
        let refused = codes.request(&subject, &phone, network, Language::English).await;
        assert!(matches!(refused, Err(RequestError::Unavailable)), "{refused:?}");
        let answer = axum::response::IntoResponse::into_response(web::ApiError::from(refused.expect_err("refused")));
        assert_eq!((answer.status().as_u16(), answer.headers()["retry-after"].as_bytes()), (503, &b"1"[..]));
        // A message that no provider accepted is not charged to the limits.
        for _ in 0..20 {
            let refused = codes.request(&subject, &phone, network, Language::English).await;
            assert!(matches!(refused, Err(RequestError::Unavailable)), "{refused:?}");
        }
        app.post("/api/code/verify", &json!({"phone": PHONE, "code": code})).await.expect(200);
    })
    .await;
}

#[tokio::test]
async fn code_stays_valid_after_provider_timeout() {
    let slow = Remote::stuck_after("").await;
    TestApp::run_with(&both(slow.as_str(), "http://127.0.0.1:1"), async |app| {
        assert_eq!(request(app, PHONE).await.expect(503)["code"], "sms_unavailable");
        let entries = log(app).await;
        let timed_out = entries.iter().find(|entry| entry["provider"] == "twilio").expect("an entry");
        assert_eq!(timed_out["error"], "the provider did not respond in time");
        let body = json!({"phone": PHONE, "code": timed_out["code"]});
        app.post("/api/code/verify", &body).await.expect(200);
    })
    .await;
}

#[tokio::test]
async fn refusal_after_timeout_keeps_the_code() {
    let refusal = r#"{"message-count": "1", "messages": [{"status": "7", "error-text": "Number barred"}]}"#;
    let (slow, vonage) = (Remote::stuck_after("").await, Remote::responding(200, &[], refusal).await);
    TestApp::run_with(&both(slow.as_str(), vonage.base_url.as_str()), async |app| {
        request(app, PHONE).await.expect(503);
        let code = log(app).await[0]["code"].clone();
        app.post("/api/code/verify", &json!({"phone": PHONE, "code": code})).await.expect(200);
    })
    .await;
}

/// The client disconnects while the provider's response is pending.
#[tokio::test]
async fn client_disconnect_does_not_interrupt_sending() {
    let (slow, vonage) = (Remote::stuck_after("").await, Remote::responding(200, &[], TAKEN_BY_VONAGE).await);
    TestApp::run_with(&both(slow.as_str(), vonage.base_url.as_str()), async |app| {
        crate::identity::phone::Phone::prepare();
        let hung_up = tokio::time::timeout(std::time::Duration::from_millis(300), request(app, PHONE)).await;
        assert!(hung_up.is_err(), "the request was still in progress");
        eventually("the message is sent and logged", async || log(app).await.len() == 2).await;
        let code = app.codes(PHONE).await.remove(0);
        app.post("/api/code/verify", &json!({"phone": PHONE, "code": code})).await.expect(200);
    })
    .await;
}

#[tokio::test]
async fn unreachable_number_is_not_tried_with_next_provider() {
    let refusal = r#"{"code": 21614, "message": "To number +12024561111 is not a mobile number", "status": 400}"#;
    let (twilio, vonage) =
        (Remote::responding(400, &[], refusal).await, Remote::responding(200, &[], TAKEN_BY_VONAGE).await);
    TestApp::run_with(&both(twilio.base_url.as_str(), vonage.base_url.as_str()), async |app| {
        for n in 0..5 {
            assert_eq!(request(app, &format!("+1202456222{n}")).await.invalid_fields(), ["phone"]);
        }
        assert!(vonage.seen.lock().expect("not poisoned").is_empty());
        assert_eq!(twilio.seen.lock().expect("not poisoned").len(), 5, "the circuit breaker stays closed");
    })
    .await;
}

#[tokio::test]
async fn text_uses_client_language_and_app_hash() {
    let twilio = Remote::responding(201, &[], TAKEN_BY_TWILIO).await;
    let mut changes = both(twilio.base_url.as_str(), "http://127.0.0.1:1");
    changes.extend([("MATCHDAY_SMS__APP_HASH", "FA+9qCX9VSu"), ("MATCHDAY_SMS__APP_NAME", "Goals")]);
    TestApp::run_with(&changes, async |app| {
        for (language, expected) in [
            ("en-GB", "is your Goals code"),
            ("es-MX,en;q=0.5", "es tu clave de Goals"),
            ("pt-BR", "para entrar em Goals"),
            ("fa", "کد ورود Goals"),
            ("xx", "is your Goals code"),
        ] {
            let body = Body::from(json!({"phone": PHONE}).to_string());
            let request = Request::post("/api/code/request").header("accept-language", language).body(body);
            app.send(request.expect("a request")).await.expect(200);
            let seen = twilio.seen.lock().expect("not poisoned").pop().expect("a request");
            let text = field(&seen.form, "Body");
            assert!(text.contains(expected) && text.ends_with("\nFA+9qCX9VSu"), "{text}");
        }
    })
    .await;
}

fn twilio_signature(url: &str, form: &[(&str, &str)]) -> String {
    let mut mac = Hmac::<Sha1>::new_from_slice(b"twilio secret").expect("a key");
    let mut sorted = form.to_vec();
    sorted.sort_unstable();
    mac.update(url.as_bytes());
    for (name, value) in sorted {
        mac.update(name.as_bytes());
        mac.update(value.as_bytes());
    }
    STANDARD.encode(mac.finalize().into_bytes())
}

fn encoded(form: &[(&str, &str)]) -> String {
    url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish()
}

#[tokio::test]
async fn twilio_report_is_accepted_only_if_signed() {
    let twilio = Remote::responding(201, &[], TAKEN_BY_TWILIO).await;
    TestApp::run_with(&both(twilio.base_url.as_str(), "http://127.0.0.1:1"), async |app| {
        request(app, PHONE).await.expect(200);
        let callback = field(&twilio.only_request().form, "StatusCallback");
        let path = callback.strip_prefix("https://api.example.org").expect("our own address").to_owned();
        let report = async |status: &str, error: &str, signed_as: &str| {
            let form =
                [("MessageSid", "SM0123456789abcdef0123456789abcdef"), ("MessageStatus", status), ("ErrorCode", error)];
            let request = Request::post(&path).header("x-twilio-signature", twilio_signature(signed_as, &form));
            app.send(request.body(Body::from(encoded(&form))).expect("a request")).await
        };
        assert_eq!(
            report("failed", "30005", "https://elsewhere.example/").await.expect(403)["code"],
            "invalid_signature"
        );
        let unsigned = Request::post(&path).body(Body::from("MessageStatus=failed")).expect("a request");
        app.send(unsigned).await.expect(403);
        assert_eq!(log(app).await[0]["status"], "sent", "rejected reports change nothing");

        report("sent", "", &callback).await.expect(200);
        report("undelivered", "30005", &callback).await.expect(200);
        let entry = log(app).await[0].clone();
        assert_eq!((&entry["status"], &entry["error"]), (&json!("failed"), &json!("not delivered (30005)")));
        report("delivered", "", &callback).await.expect(200);
        report("undelivered", "30005", &callback).await.expect(200);
        let entry = log(app).await[0].clone();
        assert_eq!(
            (&entry["status"], &entry["delivered_at"]),
            (&json!("sent"), &json!("2026-11-20T15:00:00.000Z")),
            "late reports do not overwrite the delivery"
        );
    })
    .await;
}

#[tokio::test]
async fn vonage_report_is_accepted_only_if_recently_signed() {
    let vonage = Remote::responding(200, &[], TAKEN_BY_VONAGE).await;
    TestApp::run_with(&both("http://127.0.0.1:1", vonage.base_url.as_str()), async |app| {
        request(app, PHONE).await.expect(200);
        let sent = vonage.only_request().form;
        assert_eq!(field(&sent, "callback"), "https://api.example.org/api/sms/vonage/status");
        let (reference, now) = (field(&sent, "client-ref"), app.clock.now().unix_timestamp());
        let signed = |timestamp: i64, secret: &str| {
            let timestamp = timestamp.to_string();
            let mut form = vec![
                ("messageId", "0A0000000123ABCD1"),
                ("status", "rejected"),
                ("err-code", "6"),
                ("client-ref", reference.as_str()),
                ("nonce", "aaaa"),
                ("timestamp", timestamp.as_str()),
            ];
            form.sort_unstable();
            let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("a key");
            for (name, value) in &form {
                mac.update(format!("&{name}={value}").as_bytes());
            }
            let signature = hex::encode_upper(mac.finalize().into_bytes());
            form.push(("sig", &signature));
            encoded(&form)
        };
        let post = async |body: String| {
            app.send(Request::post("/api/sms/vonage/status").body(Body::from(body)).expect("a request")).await
        };
        post(signed(now, "another secret")).await.expect(403);
        post(signed(now - 301, "signature secret")).await.expect(403);
        post("status=rejected".to_owned()).await.expect(403);
        assert_eq!(log(app).await[0]["status"], "sent");
        let path = format!("/api/sms/vonage/status?{}", signed(now, "signature secret"));
        app.anonymous(Method::GET, &path).await.expect(200);
        let failed = log(app).await.into_iter().find(|entry| entry["provider"] == "vonage").expect("an entry");
        assert_eq!((&failed["status"], &failed["error"]), (&json!("failed"), &json!("not delivered (6)")));
        post(signed(now, "signature secret")).await.expect(200);
    })
    .await;
    TestApp::run(async |app| {
        // Without configured providers, no report can be verified.
        for path in ["/api/sms/vonage/status", "/api/sms/twilio/status"] {
            app.send(Request::post(path).body(Body::from("sig=x")).expect("a request")).await.expect(404);
        }
    })
    .await;
}

#[tokio::test]
async fn production_hides_sms_log_and_stores_no_codes() {
    let twilio = Remote::responding(201, &[], TAKEN_BY_TWILIO).await;
    let mut changes = both(twilio.base_url.as_str(), "http://127.0.0.1:1");
    changes.extend([("MATCHDAY_ENV", "production"), ("MATCHDAY_SMS__COUNTRIES", "US")]);
    TestApp::run_with(&changes, async |app| {
        request(app, PHONE).await.expect(200);
        let unknown = app.anonymous(Method::GET, "/nowhere").await.bytes;
        for path in ["/api/logs/sms", "/api/logs/sms?status=lost", "/api/logs/sms?phone=%2B12024561111"] {
            let answer = app.anonymous(Method::GET, path).await;
            assert_eq!((answer.status.as_u16(), &answer.bytes), (404, &unknown), "{path}");
        }
        let kept: Vec<Option<String>> =
            sqlx::query_scalar("select code from sms_log").fetch_all(&app.app.core.db).await.expect("read");
        assert_eq!(kept, [None]);
        let code = field(&twilio.only_request().form, "Body")[..6].to_owned();
        app.post("/api/code/verify", &json!({"phone": PHONE, "code": code})).await.expect(200);
    })
    .await;
}
