//! Tests against the real homeserver from the environment: they verify the Synapse behaviour that the crate relies on.

use std::{
    env,
    sync::atomic::{AtomicU32, Ordering},
    time::SystemTime,
};

use matrix_appservice::{Credentials, Error, Homeserver, Registered, Settings};
use reqwest::StatusCode;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

/// Reads a variable that `dev/up` wrote to `.dev/env`.
pub(crate) fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run dev/up and source .dev/env first"))
}

pub(crate) fn settings() -> Settings {
    let [url, server_name, as_token] =
        ["HOMESERVER_URL", "SERVER_NAME", "AS_TOKEN"].map(|name| variable(&format!("MATCHDAY_MATRIX__{name}")));
    Settings::new(url.parse().unwrap(), server_name.try_into().unwrap(), as_token.into())
}

pub(crate) fn homeserver() -> Homeserver {
    Homeserver::new(settings(), reqwest::Client::new())
}

/// Returns a localpart that no other test or run uses, because users cannot be deleted.
pub(crate) fn fresh_localpart() -> String {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let micros = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros();
    format!("t{micros:x}p{:x}n{:x}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed))
}

pub(crate) async fn get(path: &str, token: &SecretString) -> (StatusCode, Value) {
    let url = settings().url.join(path).unwrap();
    let response = reqwest::Client::new().get(url).bearer_auth(token.expose_secret()).send().await.unwrap();
    (response.status(), response.json().await.unwrap())
}

async fn whoami(credentials: &Credentials) -> (StatusCode, Value) {
    get("/_matrix/client/v3/account/whoami", &credentials.access_token).await
}

async fn is_valid(credentials: &Credentials) -> bool {
    match whoami(credentials).await {
        (StatusCode::OK, _) => true,
        (StatusCode::UNAUTHORIZED, body) if body["errcode"] == "M_UNKNOWN_TOKEN" => false,
        other => panic!("token is neither valid nor revoked: {other:?}"),
    }
}

#[tokio::test]
async fn user_is_registered_once() {
    let (homeserver, localpart) = (homeserver(), fresh_localpart());
    assert_eq!(homeserver.register(&localpart).await.unwrap(), Registered::New);
    assert_eq!(homeserver.register(&localpart).await.unwrap(), Registered::AlreadyExists);
}

#[tokio::test]
async fn concurrent_registrations_create_one_user() {
    let (homeserver, localpart) = (homeserver(), fresh_localpart());
    let (a, b, c, d) = tokio::join!(
        homeserver.register(&localpart),
        homeserver.register(&localpart),
        homeserver.register(&localpart),
        homeserver.register(&localpart)
    );
    let all = [a.unwrap(), b.unwrap(), c.unwrap(), d.unwrap()];
    assert_eq!(all.iter().filter(|registered| **registered == Registered::New).count(), 1, "{all:?}");
}

#[tokio::test]
async fn login_token_is_valid_for_user_and_device() {
    let (homeserver, localpart) = (homeserver(), fresh_localpart());
    homeserver.register(&localpart).await.unwrap();
    let credentials = homeserver.log_in(&localpart, "PHONE", "Pixel 8").await.unwrap();
    assert_eq!(credentials.user_id, homeserver.user_id(&localpart).unwrap());
    assert_eq!(credentials.device_id, "PHONE");

    let (status, body) = whoami(&credentials).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(body, json!({"user_id": credentials.user_id, "device_id": "PHONE", "is_guest": false}));
    let (_, device) = get("/_matrix/client/v3/devices/PHONE", &credentials.access_token).await;
    assert_eq!(device["display_name"], "Pixel 8");
}

#[tokio::test]
async fn long_device_name_does_not_prevent_login() {
    let (homeserver, localpart) = (homeserver(), fresh_localpart());
    homeserver.register(&localpart).await.unwrap();
    homeserver.log_in(&localpart, "PHONE", &"ü".repeat(500)).await.unwrap();
}

#[tokio::test]
async fn deleting_device_revokes_only_its_token() {
    let (homeserver, localpart) = (homeserver(), fresh_localpart());
    homeserver.register(&localpart).await.unwrap();
    let phone = homeserver.log_in(&localpart, "PHONE", "phone").await.unwrap();
    let tablet = homeserver.log_in(&localpart, "TABLET", "tablet").await.unwrap();
    assert!(is_valid(&phone).await && is_valid(&tablet).await);

    homeserver.delete_device(&localpart, "PHONE").await.unwrap();
    assert!(!is_valid(&phone).await);
    assert!(is_valid(&tablet).await);

    homeserver.delete_device(&localpart, "PHONE").await.unwrap();
    homeserver.delete_device(&localpart, "NEVER-THERE").await.unwrap();
    homeserver.delete_device(&fresh_localpart(), "PHONE").await.unwrap();
    assert!(is_valid(&tablet).await);
}

#[tokio::test]
async fn lists_devices_of_user() {
    let (homeserver, localpart) = (homeserver(), fresh_localpart());
    assert!(matches!(homeserver.devices(&localpart).await, Err(Error::NoSuchUser(_))));
    homeserver.register(&localpart).await.unwrap();
    assert!(homeserver.devices(&localpart).await.unwrap().is_empty());
    homeserver.log_in(&localpart, "ONE", "x").await.unwrap();
    homeserver.log_in(&localpart, "TWO", "x").await.unwrap();
    let mut devices = homeserver.devices(&localpart).await.unwrap();
    devices.sort_unstable();
    assert_eq!(devices, ["ONE", "TWO"]);
}

#[tokio::test]
async fn deactivation_is_permanent() {
    let (homeserver, localpart) = (homeserver(), fresh_localpart());
    homeserver.register(&localpart).await.unwrap();
    homeserver.set_display_name(&localpart, "Alice").await.unwrap();
    let phone = homeserver.log_in(&localpart, "PHONE", "phone").await.unwrap();
    let tablet = homeserver.log_in(&localpart, "TABLET", "tablet").await.unwrap();

    homeserver.deactivate(&localpart, true).await.unwrap();
    assert!(!is_valid(&phone).await && !is_valid(&tablet).await);
    let (status, _) = get(&format!("/_matrix/client/v3/profile/{}", phone.user_id), &settings().as_token).await;
    assert_eq!(status, StatusCode::NOT_FOUND);

    let error = homeserver.log_in(&localpart, "AGAIN", "phone").await.unwrap_err();
    assert!(matches!(&error, Error::Deactivated(user_id) if *user_id == phone.user_id), "{error:?}");
    assert!(!error.is_worth_retrying());
    assert_eq!(homeserver.register(&localpart).await.unwrap(), Registered::AlreadyExists);

    homeserver.deactivate(&localpart, true).await.unwrap();
    homeserver.deactivate(&localpart, false).await.unwrap();
    homeserver.delete_device(&localpart, "PHONE").await.unwrap();
    homeserver.deactivate(&fresh_localpart(), true).await.unwrap();
}

#[tokio::test]
async fn unregistered_user_cannot_log_in() {
    let (homeserver, localpart) = (homeserver(), fresh_localpart());
    for error in [
        homeserver.log_in(&localpart, "PHONE", "phone").await.unwrap_err(),
        homeserver.set_display_name(&localpart, "Alice").await.unwrap_err(),
    ] {
        assert!(matches!(error, Error::NoSuchUser(_)), "{error:?}");
        assert!(!error.is_worth_retrying());
    }
}

#[tokio::test]
async fn display_name_is_stored() {
    let (homeserver, localpart) = (homeserver(), fresh_localpart());
    homeserver.register(&localpart).await.unwrap();
    let path = format!("/_matrix/client/v3/profile/{}/displayname", homeserver.user_id(&localpart).unwrap());
    for name in ["Zoë ⚽ <b>\"x\"</b>", "Alice"] {
        homeserver.set_display_name(&localpart, name).await.unwrap();
        assert_eq!(get(&path, &settings().as_token).await.1["displayname"], name);
    }
    let error = homeserver.set_display_name(&localpart, &"x".repeat(257)).await.unwrap_err();
    assert!(matches!(error, Error::Refused { status: 400, .. }), "{error:?}");
}

#[tokio::test]
async fn wrong_token_is_reported() {
    let wrong = Settings { as_token: "wrong-token".into(), ..settings() };
    let (homeserver, localpart) = (Homeserver::new(wrong, reqwest::Client::new()), fresh_localpart());
    for error in [
        homeserver.register(&localpart).await.unwrap_err(),
        homeserver.log_in(&localpart, "PHONE", "phone").await.unwrap_err(),
        homeserver.delete_device(&localpart, "PHONE").await.unwrap_err(),
        homeserver.set_display_name(&localpart, "Alice").await.unwrap_err(),
        homeserver.deactivate(&localpart, false).await.unwrap_err(),
    ] {
        assert!(matches!(error, Error::WrongToken(_)), "{error:?}");
    }
}

#[tokio::test]
async fn refuses_users_outside_the_namespace() {
    let (homeserver, localpart) = (homeserver(), format!("_{}", fresh_localpart()));
    for error in [
        homeserver.register(&localpart).await.unwrap_err(),
        homeserver.log_in(&localpart, "PHONE", "phone").await.unwrap_err(),
        homeserver.delete_device(&localpart, "PHONE").await.unwrap_err(),
        homeserver.set_display_name(&localpart, "Alice").await.unwrap_err(),
        homeserver.deactivate(&localpart, false).await.unwrap_err(),
    ] {
        assert!(matches!(error, Error::NotAllowed { .. }), "{error:?}");
        assert!(error.is_worth_retrying());
    }
}

#[tokio::test]
async fn wrong_server_name_is_detected() {
    let wrong = Settings { server_name: "elsewhere.example".try_into().unwrap(), ..settings() };
    let (homeserver, localpart) = (Homeserver::new(wrong, reqwest::Client::new()), fresh_localpart());
    let error = homeserver.register(&localpart).await.unwrap_err();
    assert!(matches!(error, Error::Unreadable { .. }), "{error:?}");
    let error = homeserver.log_in(&localpart, "PHONE", "phone").await.unwrap_err();
    assert!(matches!(error, Error::NotAllowed { .. }), "{error:?}");
}
