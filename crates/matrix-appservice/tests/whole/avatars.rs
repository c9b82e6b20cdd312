//! Avatars on a real homeserver, and failed deletions of their images.

use matrix_appservice::{Error, Homeserver, Settings};
use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::{
    fake_server::{FakeServer, Reply},
    rooms::{send_request, user},
    synapse::{get, homeserver, settings, variable},
};

const IMAGE: &[u8] = &[0xFF, 0xD8, 0xFF, 0xD9];

fn with_admin() -> Homeserver {
    let admin_token = Some(variable("MATCHDAY_MATRIX__ADMIN_TOKEN").into());
    Homeserver::new(Settings { admin_token, ..settings() }, reqwest::Client::new())
}

/// Sets an avatar and returns its address.
async fn set(homeserver: &Homeserver, localpart: &str) -> String {
    homeserver.set_avatar(localpart, Some(IMAGE.to_vec())).await.unwrap();
    homeserver.avatar(localpart).await.unwrap().unwrap().to_string()
}

async fn exists(address: &str) -> bool {
    let path = format!("/_synapse/admin/v1/media/{}", address.strip_prefix("mxc://").unwrap());
    get(&path, &variable("MATCHDAY_MATRIX__ADMIN_TOKEN").into()).await.0 == StatusCode::OK
}

/// Writes an address into a profile without the crate.
async fn write_profile(localpart: &str, address: &str) {
    let user_id = homeserver().user_id(localpart).unwrap();
    let path = format!("profile/{user_id}/avatar_url");
    let (status, body) = send_request(Method::PUT, &path, Some(localpart), &json!({"avatar_url": address})).await;
    assert_eq!(status, StatusCode::OK, "{body}");
}

#[tokio::test]
async fn previous_image_is_deleted() {
    let (homeserver, localpart) = (with_admin(), user(&homeserver()).await);
    let first = set(&homeserver, &localpart).await;
    assert!(exists(&first).await);
    let second = set(&homeserver, &localpart).await;
    assert_eq!([exists(&first).await, exists(&second).await], [false, true]);
    for _ in 0..2 {
        homeserver.set_avatar(&localpart, None).await.unwrap();
        assert_eq!(homeserver.avatar(&localpart).await.unwrap(), None);
    }
    assert!(!exists(&second).await);
}

#[tokio::test]
async fn only_own_image_is_deleted() {
    let (homeserver, localpart) = (with_admin(), user(&homeserver()).await);
    let other = user(&homeserver).await;
    let image = set(&homeserver, &other).await;
    for address in [image.as_str(), "mxc://elsewhere.example/abcdefghijkl"] {
        write_profile(&localpart, address).await;
        let set = set(&homeserver, &localpart).await;
        assert_ne!(set, address);
        assert!(exists(&image).await);
    }
    // Without an admin token, no image can be deleted.
    let own = homeserver.avatar(&localpart).await.unwrap().unwrap();
    crate::synapse::homeserver().set_avatar(&localpart, None).await.unwrap();
    assert!(exists(own.as_str()).await);
}

/// The profile changes after the deletion, so that a repeated call finds the address of the image there.
#[tokio::test]
async fn failed_deletion_keeps_the_profile() {
    let profile = || Reply::json(200, r#"{"avatar_url":"mxc://matrix.example/abc"}"#);
    let media = || Reply::json(200, r#"{"media_info":{"user_id":"@alice:matrix.example"}}"#);
    let failing = || Reply::json(500, r#"{"errcode":"M_UNKNOWN","error":"Internal server error"}"#);
    let limited = || Reply::json(429, r#"{"errcode":"M_LIMIT_EXCEEDED","error":"Too Many Requests"}"#);
    for replies in [
        vec![profile(), failing()],
        vec![profile(), limited()],
        vec![profile(), media(), failing()],
        vec![profile(), media(), limited()],
    ] {
        let sent = replies.len();
        let server = FakeServer::start_with(replies, Reply::json(200, "{}")).await;
        let settings = Settings { admin_token: Some("admin".into()), ..server.settings() };
        let homeserver = Homeserver::new(settings, reqwest::Client::new());
        let error = homeserver.set_avatar("alice", None).await.unwrap_err();
        assert!(matches!(error, Error::Failing { status: 500 } | Error::Busy { .. }), "{error:?}");
        assert!(error.is_worth_retrying());
        let received = server.received();
        assert_eq!(received.len(), sent);
        assert!(received.iter().all(|request| request.method != "PUT"), "{received:?}");
    }
}
