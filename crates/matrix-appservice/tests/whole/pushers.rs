//! Pushers on a real homeserver.

use matrix_appservice::Error;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use url::Url;

use crate::{
    rooms::{send_request, user},
    synapse::{fresh_localpart, homeserver},
};

async fn pushers(localpart: &str) -> Value {
    let (status, mut body) = send_request(Method::GET, "pushers", Some(localpart), &json!({})).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    body["pushers"].take()
}

fn gateway(path: &str) -> Url {
    Url::parse("http://127.0.0.1:9").unwrap().join(path).unwrap()
}

#[tokio::test]
async fn pusher_is_set_and_removed() {
    let (homeserver, localpart) = (homeserver(), user(&homeserver()).await);
    let url = gateway("/_matrix/push/v1/notify");
    for _ in 0..2 {
        homeserver.set_pusher(&localpart, "key-1", &url).await.unwrap();
        let pushers = pushers(&localpart).await;
        assert_eq!(pushers.as_array().unwrap().len(), 1, "{pushers}");
        let pusher = &pushers[0];
        assert_eq!(
            (&pusher["kind"], &pusher["app_id"], &pusher["pushkey"]),
            (&json!("http"), &json!("matchday"), &json!("key-1"))
        );
        assert_eq!(pusher["data"], json!({"url": url.as_str()}), "no format");
    }
    for _ in 0..2 {
        homeserver.remove_pusher(&localpart, "key-1").await.unwrap();
        assert_eq!(pushers(&localpart).await, json!([]));
    }
}

#[tokio::test]
async fn pusher_needs_user_and_path_of_gateway() {
    let (homeserver, localpart) = (homeserver(), user(&homeserver()).await);
    let error = homeserver.set_pusher(&localpart, "key-1", &gateway("/other")).await.unwrap_err();
    assert!(matches!(error, Error::Refused { status: 400, .. }), "{error:?}");
    let unknown = fresh_localpart();
    let error = homeserver.set_pusher(&unknown, "key-1", &gateway("/_matrix/push/v1/notify")).await.unwrap_err();
    assert!(matches!(error, Error::NoSuchUser(_)), "{error:?}");
    homeserver.remove_pusher(&unknown, "key-1").await.unwrap();
}
