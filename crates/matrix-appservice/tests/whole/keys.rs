//! Replacing cross-signing keys, against a real homeserver and against a fake one that refuses.

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use matrix_appservice::{Error, SigningKeys};
use reqwest::StatusCode;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use crate::{
    fake_server::{FakeServer, Reply},
    synapse::{fresh_localpart, homeserver, settings},
};

/// Keys of a user. Each seed gives other keys. The master key signs the other two.
fn keys(user_id: &str, seed: u8) -> SigningKeys {
    let pair = |n: u8| Ed25519KeyPair::from_seed_unchecked(&[seed * 3 + n; 32]).unwrap();
    let public = |pair: &Ed25519KeyPair| STANDARD_NO_PAD.encode(pair.public_key());
    let master = pair(0);
    let key = |n: u8, usage: &str| {
        let public_key = public(&pair(n));
        // Canonical JSON: sorted names and no spaces.
        let signed = format!(
            r#"{{"keys":{{"ed25519:{public_key}":"{public_key}"}},"usage":["{usage}"],"user_id":"{user_id}"}}"#
        );
        let mut key: Value = serde_json::from_str(&signed).unwrap();
        if n > 0 {
            let signature = STANDARD_NO_PAD.encode(master.sign(signed.as_bytes()));
            key["signatures"] = json!({user_id: {format!("ed25519:{}", public(&master)): signature}});
        }
        key
    };
    SigningKeys { master: key(0, "master"), self_signing: key(1, "self_signing"), user_signing: key(2, "user_signing") }
}

#[tokio::test]
async fn second_upload_replaces_keys_and_keeps_devices() {
    let (homeserver, localpart) = (homeserver(), fresh_localpart());
    homeserver.register(&localpart).await.unwrap();
    let user = homeserver.log_in(&localpart, "PHONE", "phone").await.unwrap();
    assert_eq!(homeserver.signing_keys(&localpart).await.unwrap(), None);
    for seed in [1, 2, 2] {
        let new = keys(user.user_id.as_str(), seed);
        homeserver.upload_signing_keys(&localpart, &new).await.unwrap();
        assert_eq!(homeserver.signing_keys(&localpart).await.unwrap(), Some(new));
    }
    // Synapse stores each public key like a device, once.
    let error = homeserver.upload_signing_keys(&localpart, &keys(user.user_id.as_str(), 1)).await.unwrap_err();
    assert!(matches!(error, Error::Failing { status: 500 }), "{error:?}");
    assert_eq!(homeserver.signing_keys(&localpart).await.unwrap(), Some(keys(user.user_id.as_str(), 2)));
    assert_eq!(homeserver.devices(&localpart).await.unwrap(), ["PHONE"]);
}

/// The reason why the service relays the upload.
#[tokio::test]
async fn token_of_the_user_cannot_replace_keys() {
    let (homeserver, localpart) = (homeserver(), fresh_localpart());
    homeserver.register(&localpart).await.unwrap();
    let user = homeserver.log_in(&localpart, "PHONE", "phone").await.unwrap();
    let (first, second) = (keys(user.user_id.as_str(), 1), keys(user.user_id.as_str(), 2));
    homeserver.upload_signing_keys(&localpart, &first).await.unwrap();
    let body = json!({
        "master_key": second.master,
        "self_signing_key": second.self_signing,
        "user_signing_key": second.user_signing,
    });
    let url = settings().url.join("/_matrix/client/v3/keys/device_signing/upload").unwrap();
    let upload = reqwest::Client::new().post(url).bearer_auth(user.access_token.expose_secret()).json(&body);
    let response = upload.send().await.unwrap();
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(response.json::<Value>().await.unwrap()["flows"], json!([]));
    assert_eq!(homeserver.signing_keys(&localpart).await.unwrap(), Some(first));
}

#[tokio::test]
async fn invalid_keys_are_refused_and_replace_nothing() {
    let (homeserver, localpart) = (homeserver(), fresh_localpart());
    homeserver.register(&localpart).await.unwrap();
    let user_id = homeserver.user_id(&localpart).unwrap();
    let valid = keys(user_id.as_str(), 1);
    homeserver.upload_signing_keys(&localpart, &valid).await.unwrap();
    let next = keys(user_id.as_str(), 2);
    let mut unsigned = next.clone();
    unsigned.self_signing.as_object_mut().unwrap().remove("signatures");
    let mut wrongly_signed = next.clone();
    wrongly_signed.user_signing["signatures"] = next.self_signing["signatures"].clone();
    let mut unreadable = next.clone();
    unreadable.master["keys"] = json!({"ed25519:x": "x"});
    for bad in [keys("@someone:else.example", 2), unsigned, wrongly_signed, unreadable] {
        let error = homeserver.upload_signing_keys(&localpart, &bad).await.unwrap_err();
        assert!(matches!(error, Error::Refused { status: 400, .. }), "{error:?}");
        assert!(!error.is_worth_retrying());
    }
    assert_eq!(homeserver.signing_keys(&localpart).await.unwrap(), Some(valid));
    let error = homeserver.upload_signing_keys(&fresh_localpart(), &next).await.unwrap_err();
    assert!(matches!(error, Error::NoSuchUser(_)), "{error:?}");
}

#[tokio::test]
async fn interactive_authentication_is_reported() {
    let new = keys("@alice:matrix.example", 1);
    let flows = r#"{"session":"x","flows":[],"params":{}}"#;
    let delegated = r#"{"errcode":"M_FORBIDDEN","error":"no","flows":[{"stages":["m.oauth"]}],"session":"x"}"#;
    for body in [flows, delegated] {
        let server = FakeServer::start(Reply::json(401, body)).await;
        let error = server.homeserver().upload_signing_keys("alice", &new).await.unwrap_err();
        assert!(matches!(error, Error::InteractiveAuthRequired(_)), "{error:?}");
        let sent = &server.received()[0];
        assert_eq!((sent.method.as_str(), sent.url.path()), ("POST", "/_matrix/client/v3/keys/device_signing/upload"));
        assert_eq!(sent.url.query(), Some("user_id=%40alice%3Amatrix.example"));
        let body: Value = serde_json::from_str(&sent.body).unwrap();
        assert_eq!((&body["master_key"], body.get("auth")), (&new.master, None));
    }
    let wrong_token = Reply::json(401, r#"{"errcode":"M_UNKNOWN_TOKEN","error":"who?"}"#);
    let error = FakeServer::start(wrong_token).await.homeserver().upload_signing_keys("alice", &new).await.unwrap_err();
    assert!(matches!(error, Error::WrongToken(_)), "{error:?}");
}
