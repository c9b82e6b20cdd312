//! Delivery reports: all registered providers through the shared route, and a provider defined only in this file.

use std::sync::Arc;

use axum::body::Body;
use futures_util::future::BoxFuture;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{Method, Request};
use platform::{
    clock::Clock as _,
    setting_group,
    settings::{Secret, Source},
};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use sha2::Sha256;
use time::OffsetDateTime;

use super::{
    super::{
        PROVIDER_NAMES, PROVIDERS,
        provider::{
            Accepted, CallbackError, Delivery, Outgoing, Provider, ReportRequest, SendError, SetupError, StatusReport,
        },
        registry::{self, Account, Accounts, Registration, Setup},
    },
    PHONE, both, log,
    providers::{pairs, twilio_signature, vonage_signature},
    remote::Remote,
    request,
};
use crate::testing::TestApp;

const DELIVERED_AT: &str = "2026-11-20T15:00:00.000Z";
/// A response in the format of every registered provider.
const TAKEN: &str = r#"{"sid": "M1", "messages": [{"status": "0", "message-id": "M1"}]}"#;

fn encoded(form: &[(String, String)]) -> String {
    url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish()
}

/// A provider's report that the message with this reference was delivered, signed if a secret is given.
fn delivered(provider: &str, reference: i64, now: OffsetDateTime, secret: Option<&str>) -> Request<String> {
    match provider {
        "twilio" => {
            let path = format!("/api/sms/twilio/status?reference={reference}");
            let form = pairs(&[("MessageSid", "M1"), ("MessageStatus", "delivered")]);
            let url = format!("https://api.example.org{path}");
            let signature = secret.map(|secret| twilio_signature(secret, &url, &form));
            let request = Request::post(path).header("content-type", "application/x-www-form-urlencoded");
            let request = signature.into_iter().fold(request, |it, value| it.header("x-twilio-signature", value));
            request.body(encoded(&form)).expect("a request")
        }
        "vonage" => {
            let (reference, timestamp) = (reference.to_string(), now.unix_timestamp().to_string());
            let report =
                [("messageId", "M1"), ("status", "delivered"), ("client-ref", &reference), ("timestamp", &timestamp)];
            let mut form = pairs(&report);
            let signature = secret.map(|secret| vonage_signature(secret, &form));
            form.extend(signature.map(|signature| ("sig".to_owned(), signature)));
            let request = Request::post("/api/sms/vonage/status");
            request.header("content-type", "application/x-www-form-urlencoded").body(encoded(&form)).expect("a request")
        }
        other => panic!("add a report of {other} here"),
    }
}

/// The secret that `both` sets for a provider's reports.
fn secret_of(provider: &str) -> &'static str {
    match provider {
        "twilio" => "twilio secret",
        "vonage" => "signature secret",
        other => panic!("add the secret of {other} here and in `both`"),
    }
}

async fn only_reference(app: &TestApp) -> i64 {
    sqlx::query_scalar("select code_id from sms_log").fetch_one(&app.app.core.db).await.expect("one message")
}

#[tokio::test]
async fn registered_providers_accept_only_signed_reports() {
    for provider in registry::reaching_phones() {
        let remote = Remote::responding(200, &[], TAKEN).await;
        let mut changes = both(remote.base_url.as_str(), remote.base_url.as_str());
        changes.push(("MATCHDAY_SMS__PROVIDERS", provider));
        TestApp::run_with(&changes, async |app| {
            request(app, PHONE).await.expect(200);
            let (reference, now, secret) = (only_reference(app).await, app.clock.now(), secret_of(provider));
            let send = async |report: Request<String>| app.send(report.map(Body::from)).await;

            let unsigned = delivered(provider, reference, now, None);
            let forged = delivered(provider, reference, now, Some("another secret"));
            let tampered =
                delivered(provider, reference, now, Some(secret)).map(|body| body.replace("delivered", "failed"));
            for bad in [unsigned, forged, tampered] {
                assert_eq!(send(bad).await.expect(403)["code"], "invalid_signature", "{provider}");
            }
            let too_large = delivered(provider, reference, now, Some(secret)).map(|body| body + &"&".repeat(65536));
            assert_eq!(send(too_large).await.expect(413)["code"], "body_too_large", "{provider}");
            let entry = log(app).await.remove(0);
            assert_eq!((&entry["status"], entry.get("delivered_at")), (&json!("sent"), None), "{provider}");

            send(delivered(provider, reference, now, Some(secret))).await.expect(200);
            assert_eq!(log(app).await[0]["delivered_at"], DELIVERED_AT, "{provider}");
        })
        .await;
    }
}

#[tokio::test]
async fn twilio_reports_are_accepted_by_post_only() {
    TestApp::run_with(&both("http://127.0.0.1:1", "http://127.0.0.1:1"), async |app| {
        let refused = app.anonymous(Method::GET, "/api/sms/twilio/status?MessageSid=M1&MessageStatus=failed").await;
        assert_eq!(refused.header("allow"), Some("POST"));
        assert_eq!(refused.expect(405)["code"], "method_not_allowed");
    })
    .await;
}

#[tokio::test]
async fn reports_of_unconfigured_providers_are_not_found() {
    let mut changes = both("http://127.0.0.1:1", "http://127.0.0.1:1");
    changes.extend([("MATCHDAY_SMS__VONAGE_SIGNATURE_SECRET", ""), ("MATCHDAY_HTTP__PUBLIC_URL", "")]);
    TestApp::run_with(&changes, async |app| {
        let post = async |path: &str| {
            app.send(Request::post(path).body(Body::from("sig=x")).expect("a request")).await.expect(404)
        };
        for provider in registry::reaching_phones() {
            assert_eq!(post(&format!("/api/sms/{provider}/status")).await["code"], "not_found", "{provider}");
        }
        for name in ["pigeon", "console"] {
            assert_eq!(post(&format!("/api/sms/{name}/status")).await, post("/nowhere").await, "{name}");
        }
    })
    .await;
}

#[test]
fn api_description_lists_every_provider() {
    for provider in PROVIDERS {
        assert!(
            PROVIDER_NAMES.contains(provider.name),
            "{PROVIDER_NAMES} lacks {}: name its module like the provider",
            provider.name
        );
        assert_eq!(provider.report_path(), "/api/sms/{provider}/status".replace("{provider}", provider.name));
    }
    let api = serde_json::to_value(crate::router::description()).expect("JSON");
    let names: Vec<&str> = registry::reaching_phones().collect();
    for method in ["get", "post"] {
        let parameters = &api["paths"]["/api/sms/{provider}/status"][method]["parameters"];
        assert_eq!(parameters.as_array().map(Vec::len), Some(1), "{parameters}");
        assert_eq!(parameters[0]["schema"], json!({"type": "string", "enum": names}));
    }
}

/// An unregistered provider, which shows that a provider only has to implement the traits.
const PIGEON: Registration = Registration {
    name: "pigeon",
    reaches_phones: true,
    read: |source| PigeonSettings::read(source).map(|account| Arc::new(account) as _),
};

setting_group! {
    /// Settings of the test provider.
    PigeonSettings: "sms.pigeon_" {
        /// Verifies the signature of reports.
        key: Option<Secret> = "",
    }
}

impl Account for PigeonSettings {
    fn required(&self) -> Vec<(&'static str, bool)> {
        vec![("sms.pigeon_key", self.key.is_some())]
    }

    fn open(&self, setup: Setup) -> Result<Box<dyn Provider>, SetupError> {
        assert_eq!(setup.report_url.expect("a URL").as_str(), "https://api.example.org/api/sms/pigeon/status");
        Ok(Box::new(Pigeon { key: self.key.as_ref().expect("a required key").inner().clone() }))
    }
}

/// Sends nothing, and reports in JSON with a signature in a header.
struct Pigeon {
    key: SecretString,
}

impl Provider for Pigeon {
    fn name(&self) -> &'static str {
        PIGEON.name
    }

    fn send<'a>(&'a self, message: &'a Outgoing<'a>) -> BoxFuture<'a, Result<Accepted, SendError>> {
        Box::pin(async { Ok(Accepted { message_id: format!("pigeon-{}", message.reference) }) })
    }

    fn verify_report(&self, request: &ReportRequest<'_>, _: OffsetDateTime) -> Result<StatusReport, CallbackError> {
        let signature = request.headers.get("x-pigeon-signature").ok_or(CallbackError::Unsigned)?;
        let signature = hex::decode(signature).map_err(|_| CallbackError::Forged)?;
        let mut mac = Hmac::<Sha256>::new_from_slice(self.key.expose_secret().as_bytes()).expect("a key");
        mac.update(request.body);
        mac.verify_slice(&signature).map_err(|_| CallbackError::Forged)?;
        let report: Value = serde_json::from_slice(request.body).map_err(|_| CallbackError::Malformed("body"))?;
        let reference = report["reference"].as_str().map(str::to_owned);
        let code = report["lost"].as_str().ok_or(CallbackError::Malformed("lost"))?.to_owned();
        Ok(StatusReport { message_id: "pigeon".to_owned(), reference, delivery: Delivery::Failed { code } })
    }
}

#[tokio::test]
async fn provider_only_has_to_implement_the_traits() {
    TestApp::run_with(&both("http://127.0.0.1:1", "http://127.0.0.1:1"), async |app| {
        let variables = [("MATCHDAY_SMS__PIGEON_KEY".to_owned(), "pigeon key".to_owned())];
        let unset = Accounts::read_of(&[&PIGEON], &mut Source::new([], None)).expect("defaults");
        assert_eq!(unset.of(&PIGEON).expect("settings").required(), [("sms.pigeon_key", false)]);

        let mut config = app.app.config.clone();
        config.sms.providers = vec![&PIGEON];
        config.sms.accounts = Accounts::read_of(&[&PIGEON], &mut Source::new(variables, None)).expect("settings");
        let app = &app.second(config).await;
        request(app, PHONE).await.expect(200);
        let report = async |key: Option<&str>, body: &Value| {
            let body = body.to_string();
            let request = key.into_iter().fold(Request::post(PIGEON.report_path()), |request, key| {
                let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).expect("a key");
                mac.update(body.as_bytes());
                request.header("x-pigeon-signature", hex::encode(mac.finalize().into_bytes()))
            });
            app.send(request.body(Body::from(body)).expect("a request")).await
        };
        let lost = json!({"reference": only_reference(app).await.to_string(), "lost": "hawk"});
        report(None, &lost).await.expect(403);
        report(Some("another key"), &lost).await.expect(403);
        assert_eq!(log(app).await[0]["status"], "sent");
        assert_eq!(report(Some("pigeon key"), &json!({})).await.expect(400)["code"], "malformed_report");
        report(Some("pigeon key"), &lost).await.expect(200);
        let entry = log(app).await.remove(0);
        assert_eq!((&entry["provider"], &entry["error"]), (&json!("pigeon"), &json!("not delivered (hawk)")));
    })
    .await;
}
