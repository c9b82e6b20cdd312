//! Calls about the bot, the homeserver itself, or users outside rooms, against a real homeserver.

use matrix_appservice::{Error, Homeserver, Redaction, Settings};
use reqwest::{Method, StatusCode};
use secrecy::SecretString;
use serde_json::json;

use crate::{
    fake_server::{FakeServer, Reply},
    rooms::{fresh_alias, make, public_room, send_request, user},
    synapse::{fresh_localpart, get, homeserver, settings, variable},
};

fn with_admin(admin_token: impl Into<SecretString>) -> Homeserver {
    Homeserver::new(Settings { admin_token: Some(admin_token.into()), ..settings() }, reqwest::Client::new())
}

#[tokio::test]
async fn ensure_bot_registers_the_bot_once() {
    let homeserver = homeserver();
    for _ in 0..2 {
        homeserver.ensure_bot().await.unwrap();
    }
    let path = format!("/_matrix/client/v3/profile/{}", homeserver.bot().unwrap());
    assert_eq!(get(&path, &settings().as_token).await.0, StatusCode::OK);

    // The real bot may exist already, so a fresh name shows that `ensure_bot` registers it.
    let bot = fresh_localpart();
    let homeserver = Homeserver::new(Settings { bot: bot.clone(), ..settings() }, reqwest::Client::new());
    let path = format!("/_matrix/client/v3/profile/{}", homeserver.user_id(&bot).unwrap());
    assert_eq!(get(&path, &settings().as_token).await.0, StatusCode::NOT_FOUND);
    homeserver.ensure_bot().await.unwrap();
    assert_eq!(get(&path, &settings().as_token).await.0, StatusCode::OK);
}

#[tokio::test]
async fn ignore_list_adds_and_removes_users() {
    let (homeserver, localpart) = (homeserver(), user(&homeserver()).await);
    let [one, two] = ["@one:elsewhere.example", "@two:matchday.localhost"].map(|id| id.try_into().unwrap());
    let path = format!("user/{}/account_data/m.ignored_user_list", homeserver.user_id(&localpart).unwrap());
    let list = async || send_request(Method::GET, &path, Some(&localpart), &json!({})).await;

    homeserver.set_ignored(&localpart, one, false).await.unwrap();
    assert_eq!(list().await.0, StatusCode::NOT_FOUND, "nothing needed to be sent");
    for _ in 0..2 {
        homeserver.set_ignored(&localpart, one, true).await.unwrap();
    }
    assert_eq!(list().await.1, json!({"ignored_users": {one: {}}}));

    // Entries written by a client are kept.
    let by_client = json!({"ignored_users": {one: {"since": 1}}, "org.example": [1, 2]});
    assert_eq!(send_request(Method::PUT, &path, Some(&localpart), &by_client).await.0, StatusCode::OK);
    homeserver.set_ignored(&localpart, two, true).await.unwrap();
    assert_eq!(list().await.1, json!({"ignored_users": {one: {"since": 1}, two: {}}, "org.example": [1, 2]}));
    homeserver.set_ignored(&localpart, one, false).await.unwrap();
    assert_eq!(list().await.1, json!({"ignored_users": {two: {}}, "org.example": [1, 2]}));
    homeserver.set_ignored(&localpart, two, false).await.unwrap();
    assert_eq!(list().await.1, json!({"ignored_users": {}, "org.example": [1, 2]}));

    let error = homeserver.set_ignored(&fresh_localpart(), one, true).await.unwrap_err();
    assert!(matches!(error, Error::NoSuchUser(_)), "{error:?}");
}

#[tokio::test]
async fn suspended_user_can_leave_but_not_join() {
    let (homeserver, localpart) = (with_admin(variable("MATCHDAY_MATRIX__ADMIN_TOKEN")), user(&homeserver()).await);
    let user_id = homeserver.user_id(&localpart).unwrap();
    let (inside, outside) =
        (make(&homeserver, &public_room(&fresh_alias())).await, make(&homeserver, &public_room(&fresh_alias())).await);
    homeserver.join(&inside, &localpart).await.unwrap();

    for _ in 0..2 {
        homeserver.set_suspended(&localpart, true).await.unwrap();
    }
    for error in [
        homeserver.join(&outside, &localpart).await.unwrap_err(),
        homeserver.invite(&inside, Some(&localpart), "alice").await.unwrap_err(),
        homeserver.set_display_name(&localpart, "x").await.unwrap_err(),
    ] {
        assert!(matches!(&error, Error::Suspended(id) if *id == user_id), "{error:?}");
        assert!(!error.is_worth_retrying());
    }
    homeserver.leave(&inside, &localpart).await.unwrap().unwrap();

    for _ in 0..2 {
        homeserver.set_suspended(&localpart, false).await.unwrap();
    }
    homeserver.join(&outside, &localpart).await.unwrap();
}

#[tokio::test]
async fn only_admin_token_can_suspend() {
    let (plain, localpart) = (homeserver(), user(&homeserver()).await);
    let error = plain.set_suspended(&localpart, true).await.unwrap_err();
    assert!(matches!(error, Error::NoAdmin), "{error:?}");
    let no_admin = plain.log_in(&localpart, "PHONE", "phone").await.unwrap().access_token;
    for token in [no_admin, "wrong-token".into(), "wrong\ntoken".into(), settings().as_token] {
        let error = with_admin(token).set_suspended(&localpart, true).await.unwrap_err();
        assert!(matches!(error, Error::NotAdmin(_)), "{error:?}");
        assert!(error.is_worth_retrying(), "an operator can correct the token");
    }
    let admin = with_admin(variable("MATCHDAY_MATRIX__ADMIN_TOKEN"));
    let error = admin.set_suspended(&fresh_localpart(), true).await.unwrap_err();
    assert!(matches!(error, Error::NoSuchUser(_)), "{error:?}");
    // None of the failed calls suspended the user.
    plain.set_display_name(&localpart, "x").await.unwrap();
}

#[tokio::test]
async fn ping_fails_for_registration_without_url() {
    let homeserver = homeserver();
    for _ in 0..5 {
        let error = homeserver.ping("matchday", &settings().as_token, "t1").await.unwrap_err();
        assert!(matches!(&error, Error::CannotReachUs { reason } if reason.starts_with("M_URL_NOT_SET")), "{error:?}");
        assert!(error.is_worth_retrying());
    }
    assert!(!homeserver.is_breaker_open());
}

#[tokio::test]
async fn unreachable_service_does_not_open_the_breaker() {
    // The service may or may not be running during this test.
    let (homeserver, token) = (homeserver(), variable("MATCHDAY_MATRIX__PUSH_TOKEN").into());
    for _ in 0..5 {
        match homeserver.ping("matchday_push", &token, "t1").await {
            Ok(_) => {}
            Err(error) => assert!(matches!(error, Error::CannotReachUs { .. }), "{error:?}"),
        }
    }
    assert!(!homeserver.is_breaker_open());
}

#[tokio::test]
async fn ping_requires_token_of_its_registration() {
    let homeserver = homeserver();
    for (id, token) in [
        ("matchday_push", settings().as_token),
        ("no_such_service", settings().as_token),
        ("matchday", "wrong-token".into()),
    ] {
        let error = homeserver.ping(id, &token, "t1").await.unwrap_err();
        assert!(matches!(error, Error::WrongToken(_)), "{error:?}");
    }
}

#[tokio::test]
async fn running_homeserver_is_reported_as_available() {
    assert!(homeserver().is_available().await);
}

#[tokio::test]
async fn redacts_messages_of_deactivated_user() {
    let (homeserver, localpart) = (with_admin(variable("MATCHDAY_MATRIX__ADMIN_TOKEN")), user(&homeserver()).await);
    let room = make(&homeserver, &public_room(&fresh_alias())).await;
    homeserver.join(&room, &localpart).await.unwrap();
    let content = json!({"msgtype": "m.text", "body": "mine"});
    let event = homeserver.send_message_as(&localpart, &room, "1", &content).await.unwrap();
    homeserver.deactivate(&localpart, true).await.unwrap();
    for _ in 0..2 {
        let redaction = homeserver.redact_all(&localpart, std::slice::from_ref(&room)).await.unwrap();
        let state = loop {
            match homeserver.redaction(&redaction).await.unwrap() {
                Redaction::Running => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
                state => break state,
            }
        };
        assert_eq!(state, Redaction::Done);
        assert_eq!(homeserver.event(&room, &event).await.unwrap().unwrap().content, json!({}));
    }
}

#[tokio::test]
async fn failed_redaction_is_not_done() {
    for (reply, expected) in [
        (json!({"status": "scheduled"}), Redaction::Running),
        (json!({"status": "active"}), Redaction::Running),
        (json!({"status": "complete", "failed_redactions": {}}), Redaction::Done),
        (
            json!({"status": "complete", "failed_redactions": {"$one": "forbidden"}}),
            Redaction::Failed("1 messages were not redacted".to_owned()),
        ),
        (json!({"status": "failed", "error": "no such room"}), Redaction::Failed("no such room".to_owned())),
    ] {
        let server = FakeServer::start(Reply::json(200, &reply.to_string())).await;
        let settings = Settings { admin_token: Some("admin".into()), ..server.settings() };
        let homeserver = Homeserver::new(settings, reqwest::Client::new());
        assert_eq!(homeserver.redaction("r").await.unwrap(), expected);
    }
}
