//! A mention in a room reaches the phone of the mentioned user: Synapse, its pusher, the real binary, and FCM.

use std::sync::Arc;

use http::Method;
use matchday::testing::{unique, with_database};
use phone_push::stand_in::FcmStandIn;
use platform::clock::{Clock as _, SystemClock};
use serde_json::json;

use crate::{
    client::{Client, Homeserver, PATIENCE, within},
    synapse::with_synapse,
};

#[tokio::test(flavor = "multi_thread")]
async fn mention_reaches_phone_of_mentioned_user() {
    with_database(async |options| {
        with_synapse(&options.clone(), async |synapse| {
            let fcm = FcmStandIn::start(Arc::new(|| SystemClock.now())).await.expect("started");
            let account = std::env::temp_dir().join(unique("account"));
            std::fs::write(&account, fcm.account()).expect("written");
            let setting = synapse
                .setting(&options)
                .with("MATCHDAY_MATRIX__GATEWAY_URL", &format!("http://{}", synapse.pushes_to))
                .with("MATCHDAY_FCM__URL", &fcm.url())
                .with("MATCHDAY_FCM__SERVICE_ACCOUNT_FILE", account.to_str().expect("a path"));
            let process = setting.start(&["serve"]);
            let (client, chat) = (Client::new(&process), Homeserver::at(&synapse.url));
            let ada = client.log_in("+14155550101", Some("ada")).await;
            let grace = client.log_in("+14155550102", Some("grace")).await;
            let room = client.open_room(&ada, "North stand", false).await;
            let other_room = client.open_room(&ada, "South stand", false).await;
            for room in [&room, &other_room] {
                assert_eq!(chat.join(room, grace.chat_token()).await.0, 200);
            }

            let body = json!({"platform": "fcm", "token": "ada-phone"}).to_string();
            client.send(Method::PUT, "/api/auth/devices/device-1", &ada.token, body).await.expect(200);
            let has_pusher = async || {
                let (_, pushers) = chat.get("/_matrix/client/v3/pushers", ada.chat_token()).await;
                pushers["pushers"].as_array().is_some_and(|pushers| pushers.len() == 1)
            };
            within(PATIENCE, "the pusher is set", has_pusher).await;

            let say = async |room: &str, number: usize, text: &str, mentioned: &[String]| {
                let path = format!("/_matrix/client/v3/rooms/{room}/send/m.room.message/t{number}");
                let content = json!({"msgtype": "m.text", "body": text, "m.mentions": {"user_ids": mentioned}});
                let (status, reply) = chat.put(&path, grace.chat_token(), content).await;
                assert_eq!(status, 200, "{reply}");
            };
            say(&room, 1, "no one in particular", &[]).await;
            say(&room, 2, "the secret plan", &[ada.user_id()]).await;
            within(PATIENCE, "the phone is notified", async || fcm.record().counts("ada-phone").accepted >= 1).await;
            // In the same room, a sender notifies a user once in five minutes.
            say(&room, 3, "another secret", &[ada.user_id()]).await;
            say(&other_room, 4, "a third secret", &[ada.user_id()]).await;
            within(PATIENCE, "the phone is notified again", async || fcm.record().counts("ada-phone").accepted >= 2)
                .await;

            let received = fcm.record().received();
            assert_eq!(received.len(), 2, "one for each room: {received:?}");
            let rooms = [(&room, "North stand"), (&other_room, "South stand")];
            for (message, (room, name)) in received.iter().map(|received| &received.body["message"]).zip(rooms) {
                assert_eq!((&message["data"]["kind"], &message["data"]["room_id"]), (&json!("mention"), &json!(room)));
                assert_eq!(message["notification"]["title"], name);
                assert!(!message.to_string().contains("secret"), "{message}");
            }
            assert_eq!(fcm.record().refused(), [""; 0]);
            std::fs::remove_file(account).expect("removed");
        })
        .await;
    })
    .await;
}
