//! Against the real homeserver that the variables name: what it answers is what the crate relies on.

use std::{
    env,
    sync::atomic::{AtomicU32, Ordering},
    time::SystemTime,
};

use matrix_appservice::{Credentials, Error, Homeserver, Registered, Settings};
use reqwest::StatusCode;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

/// From the environment that `dev/up` writes.
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

/// A localpart that no other test and no other run uses: users are for ever.
pub(crate) fn fresh_localpart() -> String {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let micros = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros();
    format!("t{micros:x}p{:x}n{:x}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed))
}

pub(crate) async fn get(path: &str, token: &SecretString) -> (StatusCode, Value) {
    let url = settings().url.join(path).unwrap();
    let answer = reqwest::Client::new().get(url).bearer_auth(token.expose_secret()).send().await.unwrap();
    (answer.status(), answer.json().await.unwrap())
}

async fn whoami(credentials: &Credentials) -> (StatusCode, Value) {
    get("/_matrix/client/v3/account/whoami", &credentials.access_token).await
}

async fn is_good(credentials: &Credentials) -> bool {
    match whoami(credentials).await {
        (StatusCode::OK, _) => true,
        (StatusCode::UNAUTHORIZED, body) if body["errcode"] == "M_UNKNOWN_TOKEN" => false,
        other => panic!("neither good nor ended: {other:?}"),
    }
}

#[tokio::test]
async fn a_user_is_registered_once() {
    let (homeserver, localpart) = (homeserver(), fresh_localpart());
    assert_eq!(homeserver.register(&localpart).await.unwrap(), Registered::New);
    assert_eq!(homeserver.register(&localpart).await.unwrap(), Registered::AlreadyThere);
}

#[tokio::test]
async fn of_callers_that_register_together_one_makes_the_user() {
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
async fn a_login_is_good_for_its_user_and_device() {
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
async fn a_long_device_name_is_no_reason_to_keep_somebody_out() {
    let (homeserver, localpart) = (homeserver(), fresh_localpart());
    homeserver.register(&localpart).await.unwrap();
    homeserver.log_in(&localpart, "PHONE", &"ü".repeat(500)).await.unwrap();
}

#[tokio::test]
async fn deleting_a_device_ends_its_token_and_no_other() {
    let (homeserver, localpart) = (homeserver(), fresh_localpart());
    homeserver.register(&localpart).await.unwrap();
    let phone = homeserver.log_in(&localpart, "PHONE", "phone").await.unwrap();
    let tablet = homeserver.log_in(&localpart, "TABLET", "tablet").await.unwrap();
    assert!(is_good(&phone).await && is_good(&tablet).await);

    homeserver.delete_device(&localpart, "PHONE").await.unwrap();
    assert!(!is_good(&phone).await);
    assert!(is_good(&tablet).await);

    homeserver.delete_device(&localpart, "PHONE").await.unwrap();
    homeserver.delete_device(&localpart, "NEVER-THERE").await.unwrap();
    homeserver.delete_device(&fresh_localpart(), "PHONE").await.unwrap();
    assert!(is_good(&tablet).await);
}

#[tokio::test]
async fn a_users_devices_are_listed() {
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
async fn deactivating_ends_everything_for_good() {
    let (homeserver, localpart) = (homeserver(), fresh_localpart());
    homeserver.register(&localpart).await.unwrap();
    homeserver.set_display_name(&localpart, "Alice").await.unwrap();
    let phone = homeserver.log_in(&localpart, "PHONE", "phone").await.unwrap();
    let tablet = homeserver.log_in(&localpart, "TABLET", "tablet").await.unwrap();

    homeserver.deactivate(&localpart, true).await.unwrap();
    assert!(!is_good(&phone).await && !is_good(&tablet).await);
    let (status, _) = get(&format!("/_matrix/client/v3/profile/{}", phone.user_id), &settings().as_token).await;
    assert_eq!(status, StatusCode::NOT_FOUND);

    let error = homeserver.log_in(&localpart, "AGAIN", "phone").await.unwrap_err();
    assert!(matches!(&error, Error::Deactivated(user_id) if *user_id == phone.user_id), "{error:?}");
    assert!(!error.is_worth_retrying());
    assert_eq!(homeserver.register(&localpart).await.unwrap(), Registered::AlreadyThere);

    homeserver.deactivate(&localpart, true).await.unwrap();
    homeserver.deactivate(&localpart, false).await.unwrap();
    homeserver.delete_device(&localpart, "PHONE").await.unwrap();
    homeserver.deactivate(&fresh_localpart(), true).await.unwrap();
}

#[tokio::test]
async fn nobody_logs_in_unregistered() {
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
async fn a_display_name_is_set_and_read_back() {
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
async fn a_wrong_token_is_named_as_the_cause() {
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
async fn users_outside_the_namespace_are_not_ours() {
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
async fn a_wrong_server_name_is_noticed() {
    let wrong = Settings { server_name: "elsewhere.example".try_into().unwrap(), ..settings() };
    let (homeserver, localpart) = (Homeserver::new(wrong, reqwest::Client::new()), fresh_localpart());
    let error = homeserver.register(&localpart).await.unwrap_err();
    assert!(matches!(error, Error::Unreadable { .. }), "{error:?}");
    let error = homeserver.log_in(&localpart, "PHONE", "phone").await.unwrap_err();
    assert!(matches!(error, Error::NotAllowed { .. }), "{error:?}");
}
