//! Reading the recent messages of a room and those around a message, and circuit breakers by purpose.

use matrix_appservice::{EventId, Homeserver, Purpose};
use serde_json::json;

use crate::{
    fake_server::{FakeServer, Reply},
    rooms::{fresh_alias, make, public_room, user},
    synapse::homeserver,
};

#[tokio::test]
async fn pages_hold_only_messages_newest_first() {
    let homeserver = homeserver();
    let (room, localpart) = (make(&homeserver, &public_room(&fresh_alias())).await, user(&homeserver).await);
    homeserver.join(&room, &localpart).await.unwrap();
    let mut sent = Vec::new();
    for number in 0..5 {
        let content = json!({"msgtype": "m.text", "body": format!("message {number}")});
        sent.push(homeserver.send_message_as(&localpart, &room, &format!("t{number}"), &content).await.unwrap());
    }
    let first = homeserver.message_page(&room, None, 3).await.unwrap();
    let ids: Vec<_> = first.events.iter().map(|event| event.event_id.clone()).collect();
    assert_eq!(ids, [&sent[4], &sent[3], &sent[2]].map(Clone::clone));
    assert_eq!(first.events[0].content["body"], "message 4");
    let second = homeserver.message_page(&room, first.next, 10).await.unwrap();
    let ids: Vec<_> = second.events.iter().map(|event| event.event_id.clone()).collect();
    assert_eq!(ids, [&sent[1], &sent[0]].map(Clone::clone), "only messages are returned");
}

#[tokio::test]
async fn context_has_neighbours_of_message_in_order() {
    let homeserver = homeserver();
    let (room, localpart) = (make(&homeserver, &public_room(&fresh_alias())).await, user(&homeserver).await);
    homeserver.join(&room, &localpart).await.unwrap();
    let mut sent = Vec::new();
    for number in 0..9 {
        let content = json!({"msgtype": "m.text", "body": format!("message {number}")});
        sent.push(homeserver.send_message_as(&localpart, &room, &format!("t{number}"), &content).await.unwrap());
        // State events between the messages are left out.
        homeserver.set_room_topic(&room, &format!("topic {number}")).await.unwrap();
    }
    for (at, expected) in [(4, 2..7), (0, 0..3), (8, 6..9)] {
        let found = homeserver.context(&room, &sent[at], 2).await.unwrap();
        let ids: Vec<_> = found.iter().map(|event| event.event_id.clone()).collect();
        assert_eq!(ids, sent[expected], "around message {at}");
    }
    assert_eq!(homeserver.context(&room, &sent[4], 2).await.unwrap()[2].content["body"], "message 4");
    let unknown = EventId::parse("$Rqnc-F-dvnEYJTyHq_iKxU2bZ1CI92-kuZq3a5lr5Zg").unwrap();
    assert_eq!(homeserver.context(&room, &unknown, 2).await.unwrap(), []);
    let other = make(&homeserver, &public_room(&fresh_alias())).await;
    assert_eq!(homeserver.context(&other, &sent[4], 2).await.unwrap(), [], "a message of another room");
}

#[tokio::test]
async fn failures_open_only_the_breaker_of_their_purpose() {
    let server = FakeServer::start(Reply::json(500, "{}")).await;
    let background = Homeserver::new(server.settings(), reqwest::Client::new());
    let [login, rooms] = [Purpose::Login, Purpose::Rooms].map(|purpose| background.for_purpose(purpose));
    for _ in 0..3 {
        rooms.devices("ada").await.unwrap_err();
    }
    assert!(rooms.is_breaker_open() && !login.is_breaker_open() && !background.is_breaker_open());
}
