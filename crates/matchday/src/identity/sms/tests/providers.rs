use std::{
    io::Write,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use proptest::prelude::*;
use secrecy::SecretString;
use serde_json::json;
use sha1::Sha1;
use sha2::Sha256;
use time::OffsetDateTime;
use tokio::net::TcpListener;
use url::Url;

use super::{
    super::{
        console::Console,
        provider::{Accepted, CallbackError, Delivery, Outgoing, Provider, SendError, SetupError, StatusReport},
        twilio::{self, Sender, Twilio},
        vonage::{self, Vonage},
    },
    remote::{Remote, base_url},
};

const NUMBER: &str = "+14155550100";
const CODE: &str = "739152";
const TEXT: &str = "739152 is your Matchday code.";
const SECRET: &str = "a-secret-of-the-account";
const ACCOUNT: &str = "AC0123456789abcdef0123456789abcdef";
const MESSAGE: Outgoing<'_> = Outgoing { to: NUMBER, text: TEXT, reference: "0198c1f0-7b7e-7c3a-9d54-3f6a8b1c2d3e" };

fn twilio_settings(base_url: Url) -> twilio::Settings {
    twilio::Settings {
        account_sid: ACCOUNT.to_owned(),
        auth_token: SecretString::from(SECRET),
        from: Sender::parse("+14155550199"),
        base_url,
        status_callback: None,
        timeout: Duration::from_secs(20),
    }
}

fn vonage_settings(base_url: Url) -> vonage::Settings {
    vonage::Settings {
        api_key: "abcd1234".to_owned(),
        api_secret: SecretString::from(SECRET),
        from: "Matchday".to_owned(),
        base_url,
        callback: None,
        signature_secret: None,
        timeout: Duration::from_secs(20),
    }
}

fn twilio_at(base_url: &Url) -> Twilio {
    Twilio::new(twilio_settings(base_url.clone())).expect("a provider")
}

fn vonage_at(base_url: &Url) -> Vonage {
    Vonage::new(vonage_settings(base_url.clone())).expect("a provider")
}

fn both_at(base_url: &Url) -> [Box<dyn Provider>; 2] {
    [Box::new(twilio_at(base_url)), Box::new(vonage_at(base_url))]
}

fn impatient_at(base_url: &Url) -> [Box<dyn Provider>; 2] {
    let timeout = Duration::from_millis(200);
    [
        Box::new(Twilio::new(twilio::Settings { timeout, ..twilio_settings(base_url.clone()) }).expect("a provider")),
        Box::new(Vonage::new(vonage::Settings { timeout, ..vonage_settings(base_url.clone()) }).expect("a provider")),
    ]
}

async fn failure(provider: &dyn Provider) -> SendError {
    let error = provider.send(&MESSAGE).await.expect_err("a failure");
    assert_discreet(&error);
    error
}

/// Asserts that an error prints nothing that must not appear in logs.
fn assert_discreet(error: &SendError) {
    let mut printed = format!("{error} {error:?}");
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        printed.push_str(&cause.to_string());
        source = cause.source();
    }
    for secret in [&NUMBER[1..], CODE, SECRET, ACCOUNT, "abcd1234"] {
        assert!(!printed.contains(secret), "{printed}");
    }
}

/// An error response in Twilio's documented format, with the number in the message as Twilio includes it.
fn twilio_refusal(status: u16, code: u32) -> String {
    json!({
        "code": code,
        "message": format!("The 'To' number {NUMBER} is not a valid phone number."),
        "more_info": format!("https://www.twilio.com/docs/errors/{code}"),
        "status": status,
    })
    .to_string()
}

fn vonage_response(status: &str) -> String {
    let error = format!("{NUMBER} {SECRET}");
    json!({ "message-count": "1", "messages": [{ "status": status, "error-text": error }] }).to_string()
}

pub(super) fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[tokio::test]
async fn twilio_creates_a_message() {
    let created = json!({ "sid": "SM0123456789abcdef0123456789abcdef", "status": "queued", "error_code": null });
    let remote = Remote::responding(201, &[("content-type", "application/json")], created.to_string()).await;
    let accepted = twilio_at(&remote.base_url).send(&MESSAGE).await.expect("accepted");
    assert_eq!(accepted, Accepted { message_id: "SM0123456789abcdef0123456789abcdef".to_owned() });

    let seen = remote.only_request();
    assert_eq!((seen.method.as_str(), seen.path), ("POST", format!("/2010-04-01/Accounts/{ACCOUNT}/Messages.json")));
    assert_eq!(seen.headers["authorization"], format!("Basic {}", STANDARD.encode(format!("{ACCOUNT}:{SECRET}"))));
    assert_eq!(seen.headers["content-type"], "application/x-www-form-urlencoded");
    assert_eq!(seen.form, pairs(&[("To", NUMBER), ("From", "+14155550199"), ("Body", TEXT)]));
}

#[tokio::test]
async fn twilio_request_has_messaging_service_and_callback() {
    let remote = Remote::responding(201, &[], r#"{"sid":"SM1"}"#).await;
    let service = "MG0123456789abcdef0123456789abcdef";
    let settings = twilio::Settings {
        from: Sender::parse(service),
        status_callback: Some("https://api.example/sms/twilio?v=1".parse().expect("a URL")),
        // A base URL may contain a path.
        base_url: remote.base_url.join("proxy/").expect("a URL"),
        ..twilio_settings(remote.base_url.clone())
    };
    Twilio::new(settings).expect("a provider").send(&MESSAGE).await.expect("accepted");
    let seen = remote.only_request();
    assert_eq!(seen.path, format!("/proxy/2010-04-01/Accounts/{ACCOUNT}/Messages.json"));
    let callback = format!("https://api.example/sms/twilio?v=1&reference={}", MESSAGE.reference);
    let expected =
        [("To", NUMBER), ("MessagingServiceSid", service), ("Body", TEXT), ("StatusCallback", callback.as_str())];
    assert_eq!(seen.form, pairs(&expected));
}

#[test]
fn twilio_sender_kinds_are_distinguished() {
    for number in ["+14155550199", "12345", "MGapp", "MG0123456789abcdef0123456789abcdeg"] {
        assert_eq!(Sender::parse(number), Sender::Number(number.to_owned()));
    }
}

#[tokio::test]
async fn twilio_error_codes_are_classified() {
    for (status, code) in [(400, 21211), (400, 21265), (400, 21610), (400, 21614), (400, 21635)] {
        let remote = Remote::responding(status, &[], twilio_refusal(status, code)).await;
        let error = failure(&twilio_at(&remote.base_url)).await;
        assert!(matches!(error, SendError::Number { code: found } if found == code), "{error:?}");
        assert!(matches!(error, SendError::Number { .. }), "{error}");
        assert!(error.to_string().contains(&code.to_string()), "{error}");
    }
    for code in [21408, 21612] {
        let remote = Remote::responding(400, &[], twilio_refusal(400, code)).await;
        let error = failure(&twilio_at(&remote.base_url)).await;
        assert!(matches!(error, SendError::NotServed { code: found } if found == code), "{error:?}");
        assert!(!matches!(error, SendError::Number { .. }), "{error}");
    }
    for (status, code) in [(401, 20003), (403, 20403), (404, 20404), (400, 21606), (400, 21608), (400, 99999)] {
        let remote = Remote::responding(status, &[], twilio_refusal(status, code)).await;
        let error = failure(&twilio_at(&remote.base_url)).await;
        assert!(matches!(error, SendError::Misconfigured { code: found } if found == code), "{error:?}");
    }
    let remote = Remote::responding(400, &[], twilio_refusal(400, 21611)).await;
    assert!(matches!(failure(&twilio_at(&remote.base_url)).await, SendError::Throttled { retry_after: None }));
}

#[tokio::test]
async fn vonage_sends_a_message() {
    let response = json!({
        "message-count": "1",
        "messages": [{
            "to": &NUMBER[1..],
            "message-id": "0A0000000123ABCD1",
            "status": "0",
            "remaining-balance": "3.14159265",
            "message-price": "0.03330000",
            "network": "12345",
            "client-ref": MESSAGE.reference,
        }],
    });
    let remote = Remote::responding(200, &[("content-type", "application/json")], response.to_string()).await;
    let accepted = vonage_at(&remote.base_url).send(&MESSAGE).await.expect("accepted");
    assert_eq!(accepted, Accepted { message_id: "0A0000000123ABCD1".to_owned() });

    let seen = remote.only_request();
    assert_eq!((seen.method.as_str(), seen.path.as_str()), ("POST", "/sms/json"));
    assert_eq!(seen.headers["content-type"], "application/x-www-form-urlencoded");
    assert!(!seen.headers.contains_key("authorization"));
    let expected = [
        ("api_key", "abcd1234"),
        ("api_secret", SECRET),
        ("from", "Matchday"),
        ("to", "14155550100"),
        ("text", TEXT),
        ("type", "text"),
        ("client-ref", MESSAGE.reference),
    ];
    assert_eq!(seen.form, pairs(&expected));
}

#[tokio::test]
async fn vonage_request_has_unicode_type_and_callback() {
    let remote = Remote::responding(200, &[], r#"{"messages":[{"status":"0","message-id":"A1"}]}"#).await;
    let callback = Some("https://api.example/sms/vonage".parse().expect("a URL"));
    let provider = Vonage::new(vonage::Settings { callback, ..vonage_settings(remote.base_url.clone()) });
    let long = "r".repeat(41);
    let message = Outgoing { text: "739152 کد ورود", reference: &long, ..MESSAGE };
    provider.expect("a provider").send(&message).await.expect("accepted");
    let form = remote.only_request().form;
    assert!(form.contains(&("type".to_owned(), "unicode".to_owned())), "{form:?}");
    assert!(form.contains(&("callback".to_owned(), "https://api.example/sms/vonage".to_owned())), "{form:?}");
    assert!(!form.iter().any(|(name, _)| name == "client-ref"), "a reference that is too long is omitted");
}

#[tokio::test]
async fn vonage_error_codes_are_classified() {
    for status in ["6", "7", "33"] {
        let remote = Remote::responding(200, &[], vonage_response(status)).await;
        let error = failure(&vonage_at(&remote.base_url)).await;
        assert!(matches!(error, SendError::Number { code } if code.to_string() == status), "{error:?}");
        assert!(matches!(error, SendError::Number { .. }), "{error}");
    }
    for status in ["1", "10"] {
        let remote = Remote::responding(200, &[], vonage_response(status)).await;
        assert!(matches!(failure(&vonage_at(&remote.base_url)).await, SendError::Throttled { retry_after: None }));
    }
    for status in ["2", "3", "4", "8", "9", "11", "12", "14", "22", "23", "29", "32", "77"] {
        let remote = Remote::responding(200, &[], vonage_response(status)).await;
        let error = failure(&vonage_at(&remote.base_url)).await;
        assert!(matches!(error, SendError::Misconfigured { code } if code.to_string() == status), "{error:?}");
    }
    let remote = Remote::responding(200, &[], vonage_response("5")).await;
    assert!(matches!(failure(&vonage_at(&remote.base_url)).await, SendError::Unavailable { code: Some(5), .. }));
    let remote = Remote::responding(200, &[], vonage_response("15")).await;
    assert!(matches!(failure(&vonage_at(&remote.base_url)).await, SendError::NotServed { code: 15 }));
}

#[tokio::test]
async fn refused_vonage_part_fails_the_message() {
    let parts = json!({ "message-count": "2", "messages": [
        { "status": "0", "message-id": "A1" },
        { "status": "9", "error-text": "Partner quota exceeded" },
    ]});
    let remote = Remote::responding(200, &[], parts.to_string()).await;
    assert!(matches!(failure(&vonage_at(&remote.base_url)).await, SendError::Misconfigured { code: 9 }));
}

#[tokio::test]
async fn undocumented_responses_are_unreadable() {
    let (good, padding) = (json!([{ "status": "0", "message-id": "A1" }]), "x".repeat(1_000_000));
    let huge = json!({ "sid": "SM1", "messages": good, "padding": padding }).to_string();
    let wrong_types = json!({ "sid": 7, "messages": [{ "status": null }] }).to_string();
    let phone_as_code = json!({ "sid": "", "messages": [{ "status": &NUMBER[1..] }] }).to_string();
    let no_messages = json!({ "sid": "a\nb", "messages": [] }).to_string();
    let no_id = json!({ "messages": [{ "status": "0" }] }).to_string();
    for body in ["", "<html>", "{", "null", "[]", "\u{0}", &huge, &wrong_types, &phone_as_code, &no_messages, &no_id] {
        for status in [200, 201, 400, 418] {
            let remote = Remote::responding(status, &[], body).await;
            for provider in both_at(&remote.base_url) {
                let error = failure(&*provider).await;
                assert!(
                    matches!(error, SendError::Unreadable { status: found } if found == status),
                    "{error:?} {body}"
                );
            }
        }
    }
    let code_too_long = json!({ "code": 415_555_010 }).to_string();
    let remote = Remote::responding(400, &[], code_too_long).await;
    assert!(matches!(failure(&twilio_at(&remote.base_url)).await, SendError::Unreadable { status: 400 }));
}

#[tokio::test]
async fn refusal_without_code_is_classified_by_status() {
    for status in [401, 402, 403, 404] {
        let remote = Remote::responding(status, &[], "<html>Forbidden</html>").await;
        for provider in both_at(&remote.base_url) {
            let error = failure(&*provider).await;
            assert!(matches!(error, SendError::Misconfigured { code } if code == u32::from(status)), "{error:?}");
        }
    }
}

#[tokio::test]
async fn server_error_means_provider_is_unavailable() {
    for status in [500, 502, 503] {
        let remote = Remote::responding(status, &[("content-type", "text/html")], "<html>Bad Gateway</html>").await;
        for provider in both_at(&remote.base_url) {
            let error = failure(&*provider).await;
            assert!(
                matches!(error, SendError::Unavailable { code: Some(code), .. } if code == u32::from(status)),
                "{error:?}"
            );
        }
    }
}

#[tokio::test]
async fn unreachable_provider_is_unavailable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let base_url = base_url(&listener);
    drop(listener);
    for provider in both_at(&base_url) {
        let error = failure(&*provider).await;
        assert!(matches!(error, SendError::Unavailable { code: None, source: Some(_) }), "{error:?}");
        assert_eq!(error.to_string(), "the provider is unavailable (no response)");
    }
}

#[tokio::test]
async fn throttling_reports_time_to_wait() {
    type Headers = &'static [(&'static str, &'static str)];
    let cases: [(Headers, Option<u64>); 4] = [
        (&[("retry-after", "7")], Some(7)),
        (&[], None),
        (&[("retry-after", "Fri, 31 Dec 1999 23:59:59 GMT")], None),
        (&[("retry-after", "18446744073709551615")], Some(3600)),
    ];
    for (headers, seconds) in cases {
        let remote = Remote::responding(429, headers, twilio_refusal(429, 20429)).await;
        for provider in both_at(&remote.base_url) {
            let SendError::Throttled { retry_after } = failure(&*provider).await else { panic!("not throttled") };
            assert_eq!(retry_after, seconds.map(Duration::from_secs));
        }
    }
}

#[tokio::test]
async fn silent_provider_times_out() {
    for beginning in ["", "HTTP/1.1 201 Created\r\ncontent-length: 100\r\n\r\n{\"sid\":"] {
        let base_url = Remote::stuck_after(beginning).await;
        for provider in impatient_at(&base_url) {
            let began = Instant::now();
            assert!(matches!(failure(&*provider).await, SendError::TimedOut));
            assert!(began.elapsed() < Duration::from_secs(10), "elapsed: {:?}", began.elapsed());
        }
    }
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let elsewhere = Remote::responding(201, &[], r#"{"sid":"SM1"}"#).await;
    let location: &'static str = String::leak(elsewhere.base_url.to_string());
    let headers: &'static [(&'static str, &'static str)] = Vec::leak(vec![("location", location)]);
    for status in [301, 302, 307, 308] {
        let remote = Remote::responding(status, headers, "").await;
        for provider in both_at(&remote.base_url) {
            assert!(matches!(failure(&*provider).await, SendError::Misconfigured { .. }));
        }
    }
    assert!(elsewhere.seen.lock().expect("not poisoned").is_empty());
}

#[test]
fn base_url_must_use_http_or_https() {
    for address in ["mailto:x@y.example", "ftp://x.example", "data:text/plain,x"] {
        let address: Url = address.parse().expect("a URL");
        assert!(matches!(Twilio::new(twilio_settings(address.clone())), Err(SetupError::BaseUrl)));
        assert!(matches!(Vonage::new(vonage_settings(address)), Err(SetupError::BaseUrl)));
    }
}

#[test]
fn debug_output_contains_no_secrets() {
    let base_url: Url = "https://api.twilio.example".parse().expect("a URL");
    let twilio = Twilio::new(twilio_settings(base_url)).expect("a provider");
    let base_url: Url = "https://rest.vonage.example".parse().expect("a URL");
    let vonage = Vonage::new(vonage_settings(base_url)).expect("a provider");
    let printed = format!("{twilio:?} {vonage:?} {MESSAGE:?}");
    for secret in [&NUMBER[1..], CODE, SECRET] {
        assert!(!printed.contains(secret), "{printed}");
    }
}

#[tokio::test]
async fn console_logs_message_without_number_or_text() {
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);
    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("not poisoned").extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
    let guard = tracing::subscriber::set_default(subscriber);
    let accepted = Console::new("the development inbox").send(&MESSAGE).await.expect("accepted");
    drop(guard);
    assert_eq!(accepted.message_id, format!("console-{}", MESSAGE.reference));
    let printed = String::from_utf8(lines.0.lock().expect("not poisoned").clone()).expect("text");
    for wanted in [MESSAGE.reference, "the development inbox", "29"] {
        assert!(printed.contains(wanted), "{printed}");
    }
    for secret in [&NUMBER[1..], CODE, "your Matchday code"] {
        assert!(!printed.contains(secret), "{printed}");
    }
}

/// Independent implementation according to the provider's documentation.
pub(super) fn twilio_signature(secret: &str, url: &str, form: &[(String, String)]) -> String {
    let mut sorted = form.to_vec();
    sorted.sort();
    let signed = sorted.iter().fold(url.to_owned(), |text, (name, value)| text + name + value);
    let mut mac = Hmac::<Sha1>::new_from_slice(secret.as_bytes()).expect("a key");
    mac.update(signed.as_bytes());
    STANDARD.encode(mac.finalize().into_bytes())
}

pub(super) fn vonage_signature(secret: &str, parameters: &[(String, String)]) -> String {
    let mut sorted = parameters.to_vec();
    sorted.sort();
    let signed = sorted
        .iter()
        .fold(String::new(), |text, (name, value)| text + "&" + name + "=" + &value.replace(['&', '='], "_"));
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("a key");
    mac.update(signed.as_bytes());
    hex::encode_upper(mac.finalize().into_bytes())
}

fn secret() -> SecretString {
    SecretString::from(SECRET)
}

const CALLBACK: &str = "https://api.example/sms/twilio?reference=0198c1f0-7b7e";

fn twilio_report(status: &str, code: Option<&str>) -> Vec<(String, String)> {
    let mut form = pairs(&[
        ("SmsSid", "SM0123456789abcdef0123456789abcdef"),
        ("SmsStatus", status),
        ("MessageStatus", status),
        ("To", NUMBER),
        ("MessageSid", "SM0123456789abcdef0123456789abcdef"),
        ("AccountSid", ACCOUNT),
        ("From", "+14155550199"),
        ("ApiVersion", "2010-04-01"),
    ]);
    form.extend(code.map(|code| ("ErrorCode".to_owned(), code.to_owned())));
    form
}

#[test]
fn twilio_signature_matches_documented_examples() {
    let example = pairs(&[
        ("CallSid", "CA1234567890ABCDE"),
        ("Digits", "1234"),
        ("From", "+14158675309"),
        ("To", "+18005551212"),
        ("Caller", "+14158675309"),
    ]);
    // In the last three, the URL has a port that was not signed, or lacks a port that was.
    for (url, signature) in [
        ("https://mycompany.com/myapp.php?foo=1&bar=2", "RSOYDt4T1cUTdK1PDd93/VVr8B8="),
        ("http://mycompany.com:1234/myapp.php?foo=1&bar=2", "Zmvh+3yNM1Phv2jhDCwEM3q5ebU="),
        ("https://mycompany.com:1234/myapp.php?foo=1&bar=2", "RSOYDt4T1cUTdK1PDd93/VVr8B8="),
        ("https://mycompany.com/myapp.php?foo=1&bar=2", "kvajT1Ptam85bY51eRf/AJRuM3w="),
        ("http://mycompany.com/myapp.php?foo=1&bar=2", "0ZXoZLH/DfblKGATFgpif+LLRf4="),
    ] {
        let verdict = twilio::verify_status(&SecretString::from("12345"), url, Some(signature), &example);
        // The signature is valid, but the report is about a call.
        assert_eq!(verdict, Err(CallbackError::Malformed("MessageSid")), "{url}");
        let verdict = twilio::verify_status(&SecretString::from("12346"), url, Some(signature), &example);
        assert_eq!(verdict, Err(CallbackError::Forged), "{url}");
    }
}

#[test]
fn signature_is_checked_with_and_without_port() {
    let form = twilio_report("delivered", None);
    for (called, signed) in [
        ("https://user:word@api.example/sms", "https://user:word@api.example:443/sms"),
        ("https://user:word@api.example:8443/sms", "https://user:word@api.example/sms"),
        ("https://[2001:db8::1]/sms", "https://[2001:db8::1]:443/sms"),
        ("https://[2001:db8::1]:8443/sms", "https://[2001:db8::1]/sms"),
        ("http://api.example", "http://api.example:80"),
        ("https://api.example?at=12:30", "https://api.example:443?at=12:30"),
    ] {
        let signature = twilio_signature(SECRET, signed, &form);
        assert!(twilio::verify_status(&secret(), called, Some(&signature), &form).is_ok(), "{called}");
    }
}

#[test]
fn twilio_reports_are_parsed() {
    let failed = |code: &str| Delivery::Failed { code: code.to_owned() };
    for (status, code, delivery) in [
        ("queued", None, Delivery::Underway),
        ("sending", None, Delivery::Underway),
        ("sent", None, Delivery::Underway),
        ("something new", None, Delivery::Underway),
        ("delivered", None, Delivery::Delivered),
        ("undelivered", Some("30003"), failed("30003")),
        ("failed", Some("30007"), failed("30007")),
        ("failed", None, failed("failed")),
        ("undelivered", Some(NUMBER), failed("undelivered")),
        ("canceled", Some(""), failed("canceled")),
    ] {
        let form = twilio_report(status, code);
        let signature = twilio_signature(SECRET, CALLBACK, &form);
        let expected = StatusReport {
            message_id: "SM0123456789abcdef0123456789abcdef".to_owned(),
            reference: Some("0198c1f0-7b7e".to_owned()),
            delivery,
        };
        assert_eq!(twilio::verify_status(&secret(), CALLBACK, Some(&signature), &form), Ok(expected), "{status}");
    }
}

#[test]
fn callback_url_round_trips_the_reference() {
    let configured: Url = "https://api.example/sms/twilio".parse().expect("a URL");
    let url = twilio::callback_url(&configured, "a b&c=d/é");
    let form = twilio_report("delivered", None);
    let signature = twilio_signature(SECRET, url.as_str(), &form);
    let report = twilio::verify_status(&secret(), url.as_str(), Some(&signature), &form).expect("accepted");
    assert_eq!(report.reference.as_deref(), Some("a b&c=d/é"));
}

#[test]
fn unsigned_or_altered_twilio_reports_are_rejected() {
    let form = twilio_report("delivered", None);
    let signature = twilio_signature(SECRET, CALLBACK, &form);
    let verify = |url: &str, signature: Option<&str>, form: &[(String, String)]| {
        twilio::verify_status(&secret(), url, signature, form)
    };
    assert!(verify(CALLBACK, Some(&signature), &form).is_ok());
    assert_eq!(verify(CALLBACK, None, &form), Err(CallbackError::Unsigned));
    assert_eq!(verify(CALLBACK, Some(""), &form), Err(CallbackError::Unsigned));
    for wrong in ["nonsense", "AAAA", "RSOYDt4T1cUTdK1PDd93/VVr8B8=", &signature[..27], &format!("{signature}A")] {
        assert_eq!(verify(CALLBACK, Some(wrong), &form), Err(CallbackError::Forged), "{wrong}");
    }
    let elsewhere = CALLBACK.replace("0198", "0199");
    assert_eq!(verify(&elsewhere, Some(&signature), &form), Err(CallbackError::Forged));
    for index in 0..form.len() {
        let mut changed = form.clone();
        changed[index].1.push('0');
        assert_eq!(verify(CALLBACK, Some(&signature), &changed), Err(CallbackError::Forged));
        changed.remove(index);
        assert_eq!(verify(CALLBACK, Some(&signature), &changed), Err(CallbackError::Forged));
    }
    let mut added = form.clone();
    added.push(("ErrorCode".to_owned(), "30003".to_owned()));
    assert_eq!(verify(CALLBACK, Some(&signature), &added), Err(CallbackError::Forged));

    let signed_with_empty_secret = twilio_signature("", CALLBACK, &form);
    let verdict = twilio::verify_status(&SecretString::from(""), CALLBACK, Some(&signed_with_empty_secret), &form);
    assert_eq!(verdict, Err(CallbackError::NoSecret));
}

const NOW: i64 = 1_796_000_000;

fn now() -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(NOW).expect("a time")
}

/// Contains the documented fields.
fn vonage_receipt(status: &str, code: &str, timestamp: i64) -> Vec<(String, String)> {
    let mut receipt = pairs(&[
        ("msisdn", &NUMBER[1..]),
        ("to", "Matchday"),
        ("network-code", "12345"),
        ("messageId", "0A0000001234567B"),
        ("price", "0.03330000"),
        ("status", status),
        ("scts", "2001011400"),
        ("err-code", code),
        ("api-key", "abcd1234"),
        ("client-ref", "a&b=c"),
        ("message-timestamp", "2020-01-01 12:00:00"),
        ("timestamp", &timestamp.to_string()),
        ("nonce", "ec11dd3e-1e7f-4db5-9467-82b02cd223b9"),
    ]);
    let signature = vonage_signature(SECRET, &receipt);
    receipt.push(("sig".to_owned(), signature));
    receipt
}

#[test]
fn vonage_signature_matches_its_library() {
    let parameters = pairs(&[
        ("param1", "value1"),
        ("param2", "value2"),
        ("timestamp", "1234567890"),
        ("sig", "280c4320703dbc98bfa22db676655ed2acfbfe8792b062ff7622e67f1183c287"),
    ]);
    let then = OffsetDateTime::from_unix_timestamp(1_234_567_890).expect("a time");
    let verdict = vonage::verify_status(&SecretString::from("signature_secret"), &parameters, then);
    // The signature is valid, but the report has no message id.
    assert_eq!(verdict, Err(CallbackError::Malformed("messageId")));
}

#[test]
fn vonage_receipts_are_parsed() {
    let failed = |code: &str| Delivery::Failed { code: code.to_owned() };
    for (status, code, delivery) in [
        ("delivered", "0", Delivery::Delivered),
        ("accepted", "0", Delivery::Underway),
        ("buffered", "0", Delivery::Underway),
        ("unknown", "1", Delivery::Underway),
        ("something new", "0", Delivery::Underway),
        ("expired", "2", failed("2")),
        ("failed", "6", failed("6")),
        ("rejected", "0", failed("rejected")),
        ("failed", "", failed("failed")),
    ] {
        let expected =
            StatusReport { message_id: "0A0000001234567B".to_owned(), reference: Some("a&b=c".to_owned()), delivery };
        let receipt = vonage_receipt(status, code, NOW);
        assert_eq!(vonage::verify_status(&secret(), &receipt, now()), Ok(expected.clone()), "{status}");

        let object: serde_json::Map<_, _> = receipt.into_iter().map(|(name, value)| (name, value.into())).collect();
        let body = serde_json::to_vec(&object).expect("JSON");
        let parameters = vonage::parameters_of_json(&body).expect("parameters");
        assert_eq!(vonage::verify_status(&secret(), &parameters, now()), Ok(expected), "{status}");
    }
}

#[test]
fn vonage_json_receipts_must_be_flat() {
    let body = br#"{"price":0.5,"messageId":"A1","final":true}"#;
    let mut parameters = vonage::parameters_of_json(body).expect("parameters");
    parameters.sort();
    assert_eq!(parameters, pairs(&[("final", "true"), ("messageId", "A1"), ("price", "0.5")]));
    for bad in ["", "[]", "7", r#"{"a":null}"#, r#"{"a":["b"]}"#, r#"{"a":{"b":"c"}}"#] {
        assert_eq!(vonage::parameters_of_json(bad.as_bytes()), Err(CallbackError::Malformed("body")), "{bad}");
    }
}

#[test]
fn unsigned_or_altered_vonage_receipts_are_rejected() {
    let verify = |parameters: &[(String, String)]| vonage::verify_status(&secret(), parameters, now());
    let receipt = vonage_receipt("delivered", "0", NOW);
    assert!(verify(&receipt).is_ok());

    let last = receipt.len() - 1;
    assert_eq!(verify(&receipt[..last]), Err(CallbackError::Unsigned));
    for wrong in ["", "nonsense", "00", &"0".repeat(64), &receipt[last].1[..62]] {
        let mut changed = receipt.clone();
        wrong.clone_into(&mut changed[last].1);
        let expected = if wrong.is_empty() { CallbackError::Unsigned } else { CallbackError::Forged };
        assert_eq!(verify(&changed), Err(expected), "{wrong}");
    }
    for index in 0..last {
        let mut changed = receipt.clone();
        changed[index].1.push('0');
        assert_eq!(verify(&changed), Err(CallbackError::Forged));
        changed.remove(index);
        assert_eq!(verify(&changed), Err(CallbackError::Forged));
    }
    // Merging parameters into one yields the same signed text.
    let mut merged = receipt.clone();
    merged.retain(|(name, _)| name != "err-code" && name != "message-timestamp" && name != "messageId");
    merged
        .push(("err-code=0&message-timestamp=2020-01-01 12:00:00&messageId".to_owned(), "0A0000001234567B".to_owned()));
    assert_eq!(verify(&merged), Err(CallbackError::Forged));
    let mut repeated = pairs(&[("status", "delivered"), ("status", "failed"), ("timestamp", &NOW.to_string())]);
    repeated.push(("sig".to_owned(), vonage_signature(SECRET, &repeated)));
    assert_eq!(verify(&repeated), Err(CallbackError::Forged));

    let mut signed_with_empty_secret = receipt[..last].to_vec();
    signed_with_empty_secret.push(("sig".to_owned(), vonage_signature("", &receipt[..last])));
    let verdict = vonage::verify_status(&SecretString::from(""), &signed_with_empty_secret, now());
    assert_eq!(verdict, Err(CallbackError::NoSecret));
}

#[test]
fn stale_vonage_receipts_are_rejected() {
    for (offset, fresh) in [(0, true), (-300, true), (300, true), (-301, false), (301, false), (-86_400, false)] {
        let verdict = vonage::verify_status(&secret(), &vonage_receipt("delivered", "0", NOW + offset), now());
        assert_eq!(verdict.is_ok(), fresh, "{offset}");
        if !fresh {
            assert_eq!(verdict, Err(CallbackError::Stale));
        }
    }
    for timestamp in ["", "now", "9223372036854775808"] {
        let mut receipt = pairs(&[("messageId", "A1"), ("status", "delivered"), ("timestamp", timestamp)]);
        receipt.push(("sig".to_owned(), vonage_signature(SECRET, &receipt)));
        let verdict = vonage::verify_status(&secret(), &receipt, now());
        assert_eq!(verdict, Err(CallbackError::Malformed("timestamp")), "{timestamp}");
    }
    for timestamp in [i64::MIN, i64::MAX] {
        let receipt = vonage_receipt("delivered", "0", timestamp);
        assert_eq!(vonage::verify_status(&secret(), &receipt, now()), Err(CallbackError::Stale));
    }
}

proptest! {
    #[test]
    fn verification_never_panics(
        key in "\\PC{0,20}",
        url in "(https?://)?[\\PC:@/?#\\[\\]]{0,40}",
        signature in "\\PC{0,40}",
        parameters in prop::collection::vec(("(sig|timestamp|status|messageId|MessageSid|\\PC{0,10})", "\\PC{0,20}"), 0..8),
        body in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let key = SecretString::from(key);
        let _ = twilio::verify_status(&key, &url, Some(&signature), &parameters);
        let _ = vonage::verify_status(&key, &parameters, now());
        let _ = vonage::parameters_of_json(&body);
    }

    #[test]
    fn valid_twilio_signatures_are_always_accepted(
        url in "(https?://)?[\\PC:@/?#\\[\\]]{0,40}",
        form in prop::collection::hash_map("\\PC{0,10}", "\\PC{0,20}", 0..8),
    ) {
        let form: Vec<_> = form.into_iter().collect();
        let signature = twilio_signature(SECRET, &url, &form);
        let verdict = twilio::verify_status(&secret(), &url, Some(&signature), &form);
        prop_assert!(matches!(verdict, Ok(_) | Err(CallbackError::Malformed(_))), "{verdict:?}");
    }

    #[test]
    fn valid_vonage_signatures_are_always_accepted(
        parameters in prop::collection::hash_map("[a-z-]{1,10}", "\\PC{0,20}", 0..8),
    ) {
        let mut parameters: Vec<_> = parameters.into_iter().filter(|(name, _)| name != "sig").collect();
        let signature = vonage_signature(SECRET, &parameters);
        parameters.push(("sig".to_owned(), signature.to_lowercase()));
        let verdict = vonage::verify_status(&secret(), &parameters, now());
        prop_assert!(
            matches!(verdict, Ok(_) | Err(CallbackError::Malformed(_) | CallbackError::Stale)),
            "{verdict:?}"
        );
    }
}
