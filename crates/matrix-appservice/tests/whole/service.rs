//! What concerns the bot, the homeserver as a whole, or a user outside of rooms; on the real homeserver.

use matrix_appservice::{Error, Homeserver, Redaction, Settings};
use reqwest::{Method, StatusCode};
use secrecy::SecretString;
use serde_json::json;

use crate::{
    pretender::{Answer, Pretender},
    rooms::{ask, fresh_alias, make, public_room, user},
    synapse::{fresh_localpart, get, homeserver, settings, variable},
};

/// With a server admin's token.
fn with_admin(admin_token: impl Into<SecretString>) -> Homeserver {
    Homeserver::new(Settings { admin_token: Some(admin_token.into()), ..settings() }, reqwest::Client::new())
}

#[tokio::test]
async fn the_bot_is_there_once_it_was_asked_for() {
    let homeserver = homeserver();
    for _ in 0..2 {
        homeserver.ensure_bot().await.unwrap();
    }
    let path = format!("/_matrix/client/v3/profile/{}", homeserver.bot().unwrap());
    assert_eq!(get(&path, &settings().as_token).await.0, StatusCode::OK);

    // Any other name of ours serves as well to see one made.
    let bot = fresh_localpart();
    let homeserver = Homeserver::new(Settings { bot: bot.clone(), ..settings() }, reqwest::Client::new());
    let path = format!("/_matrix/client/v3/profile/{}", homeserver.user_id(&bot).unwrap());
    assert_eq!(get(&path, &settings().as_token).await.0, StatusCode::NOT_FOUND);
    homeserver.ensure_bot().await.unwrap();
    assert_eq!(get(&path, &settings().as_token).await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_list_of_ignored_users_grows_and_shrinks() {
    let (homeserver, localpart) = (homeserver(), user(&homeserver()).await);
    let [one, two] = ["@one:elsewhere.example", "@two:matchday.localhost"].map(|id| id.try_into().unwrap());
    let path = format!("user/{}/account_data/m.ignored_user_list", homeserver.user_id(&localpart).unwrap());
    let list = async || ask(Method::GET, &path, Some(&localpart), &json!({})).await;

    homeserver.set_ignored(&localpart, one, false).await.unwrap();
    assert_eq!(list().await.0, StatusCode::NOT_FOUND, "nothing had to be sent");
    for _ in 0..2 {
        homeserver.set_ignored(&localpart, one, true).await.unwrap();
    }
    assert_eq!(list().await.1, json!({"ignored_users": {one: {}}}));

    // What a client put there stays.
    let by_client = json!({"ignored_users": {one: {"since": 1}}, "org.example": [1, 2]});
    assert_eq!(ask(Method::PUT, &path, Some(&localpart), &by_client).await.0, StatusCode::OK);
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
async fn who_is_suspended_leaves_but_does_not_join() {
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
        assert!(matches!(&error, Error::Suspended(who) if *who == user_id), "{error:?}");
        assert!(!error.is_worth_retrying());
    }
    homeserver.leave(&inside, &localpart).await.unwrap().unwrap();

    for _ in 0..2 {
        homeserver.set_suspended(&localpart, false).await.unwrap();
    }
    homeserver.join(&outside, &localpart).await.unwrap();
}

#[tokio::test]
async fn only_an_admin_suspends() {
    let (plain, localpart) = (homeserver(), user(&homeserver()).await);
    let error = plain.set_suspended(&localpart, true).await.unwrap_err();
    assert!(matches!(error, Error::NoAdmin), "{error:?}");
    let no_admin = plain.log_in(&localpart, "PHONE", "phone").await.unwrap().access_token;
    for token in [no_admin, "wrong-token".into(), "wrong\ntoken".into(), settings().as_token] {
        let error = with_admin(token).set_suspended(&localpart, true).await.unwrap_err();
        assert!(matches!(error, Error::NotAdmin(_)), "{error:?}");
        assert!(error.is_worth_retrying(), "an operator mends it");
    }
    let admin = with_admin(variable("MATCHDAY_MATRIX__ADMIN_TOKEN"));
    let error = admin.set_suspended(&fresh_localpart(), true).await.unwrap_err();
    assert!(matches!(error, Error::NoSuchUser(_)), "{error:?}");
    // Nothing of that suspended anybody.
    plain.set_display_name(&localpart, "x").await.unwrap();
}

#[tokio::test]
async fn a_registration_without_a_url_is_not_called() {
    let homeserver = homeserver();
    for _ in 0..5 {
        let error = homeserver.ping("matchday", &settings().as_token, "t1").await.unwrap_err();
        assert!(matches!(&error, Error::CannotReachUs { reason } if reason.starts_with("M_URL_NOT_SET")), "{error:?}");
        assert!(error.is_worth_retrying());
    }
    assert!(!homeserver.is_resting());
}

#[tokio::test]
async fn whether_or_not_anybody_listens_the_homeserver_is_there() {
    // It may be that the service runs at this moment, and it may be that it does not.
    let (homeserver, token) = (homeserver(), variable("MATCHDAY_MATRIX__PUSH_TOKEN").into());
    for _ in 0..5 {
        match homeserver.ping("matchday_push", &token, "t1").await {
            Ok(_) => {}
            Err(error) => assert!(matches!(error, Error::CannotReachUs { .. }), "{error:?}"),
        }
    }
    assert!(!homeserver.is_resting());
}

#[tokio::test]
async fn a_ping_needs_the_token_of_that_registration() {
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
async fn the_homeserver_is_there() {
    assert!(homeserver().is_there().await);
}

#[tokio::test]
async fn redacts_messages_of_deactivated_user() {
    let (homeserver, localpart) = (with_admin(variable("MATCHDAY_MATRIX__ADMIN_TOKEN")), user(&homeserver()).await);
    let room = make(&homeserver, &public_room(&fresh_alias())).await;
    homeserver.join(&room, &localpart).await.unwrap();
    let content = json!({"msgtype": "m.text", "body": "mine"});
    let event = homeserver.say_as(&localpart, &room, "1", &content).await.unwrap();
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
    for (answer, expected) in [
        (json!({"status": "scheduled"}), Redaction::Running),
        (json!({"status": "active"}), Redaction::Running),
        (json!({"status": "complete", "failed_redactions": {}}), Redaction::Done),
        (
            json!({"status": "complete", "failed_redactions": {"$one": "forbidden"}}),
            Redaction::Failed("1 messages were not redacted".to_owned()),
        ),
        (json!({"status": "failed", "error": "no such room"}), Redaction::Failed("no such room".to_owned())),
    ] {
        let server = Pretender::start(Answer::json(200, &answer.to_string())).await;
        let settings = Settings { admin_token: Some("admin".into()), ..server.settings() };
        let homeserver = Homeserver::new(settings, reqwest::Client::new());
        assert_eq!(homeserver.redaction("r").await.unwrap(), expected);
    }
}
