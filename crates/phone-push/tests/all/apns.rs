use std::{sync::Arc, time::Duration};

use phone_push::{
    Apns, Outcome, SettingsError,
    stand_in::{ApnsStandIn, Reaction},
};
use serde_json::json;

use super::{ApnsTest, PHONE, START, TIMEOUT, TestClock, id, later, mention, phone, refused, result, send_to_many};

#[tokio::test]
async fn request_has_documented_form() {
    let test = ApnsTest::start().await;
    assert_eq!(test.send().await, Outcome::Taken);
    assert_eq!(test.client.send(PHONE, id(2), &mention()).await, Outcome::Taken);
    let received = test.server.record().received();
    assert_eq!(received[0].token, PHONE);
    for (name, values) in [
        ("apns-topic", ["org.example.app", "org.example.app"]),
        ("apns-push-type", ["alert", "alert"]),
        ("apns-priority", ["5", "10"]),
        ("apns-expiration", ["1795219200", "1795219200"]),
        ("apns-collapse-id", ["result-7", "mention-0123456789abcdef"]),
        ("apns-id", ["00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"]),
    ] {
        assert_eq!([&received[0].headers[name], &received[1].headers[name]], values, "{name}");
    }
    assert_eq!(
        received[0].body,
        json!({
            "aps": {
                "alert": {"title": "Full time", "body": "You scored 3 points."},
                "sound": "default",
                "thread-id": "result-7",
            },
            "kind": "result", "event_id": 7, "link": "/events/7",
        })
    );
    assert_eq!(received[1].body["room_id"], "!a:example.org");
    assert_eq!(test.server.record().refused(), [""; 0]);
}

#[tokio::test]
async fn responses_have_documented_outcomes() {
    let test = ApnsTest::start().await;
    let since = START - time::Duration::hours(3);
    for (number, (reaction, outcome)) in [
        (Reaction::Accept, Outcome::Taken),
        (Reaction::error(410, "Unregistered").since(since), Outcome::Gone { since: Some(since) }),
        (Reaction::error(410, "ExpiredToken").since(since), Outcome::Gone { since: Some(since) }),
        (Reaction::error(410, "Unregistered"), Outcome::Gone { since: None }),
        (Reaction::error(410, "Other"), refused("Other")),
        (Reaction::error(400, "BadDeviceToken"), Outcome::Gone { since: None }),
        (Reaction::error(400, "DeviceTokenNotForTopic"), Outcome::Gone { since: None }),
        (Reaction::error(400, "BadPriority"), refused("BadPriority")),
        (Reaction::error(413, "PayloadTooLarge"), refused("PayloadTooLarge")),
        (Reaction::error(404, ""), refused("404")),
        (Reaction::error(429, "TooManyRequests"), later(None, true)),
        (Reaction::limited(60), later(Some(60), true)),
        (Reaction::error(500, "InternalServerError"), later(None, false)),
        (Reaction::error(503, "Shutdown"), later(None, false)),
        (Reaction::error(503, "ServiceUnavailable").retry_after("30".to_owned()), later(Some(30), false)),
        (Reaction::error(504, ""), Outcome::Unknown),
    ]
    .into_iter()
    .enumerate()
    {
        let token = phone(number);
        assert_eq!(test.send().await, Outcome::Taken);
        test.server.record().react_for(&token, [reaction.clone()]);
        assert_eq!(test.client.send(&token, id(number), &result()).await, outcome, "{reaction:?}");
        assert_eq!(test.server.record().counts(&token).attempts, 1, "{reaction:?}");
    }
}

#[tokio::test]
async fn provider_token_is_renewed_every_40_minutes() {
    let test = ApnsTest::start().await;
    for (advance, tokens) in [(0, 1), (2_399, 1), (1, 2), (2_399, 2), (1, 3), (86_400, 4)] {
        test.clock.advance(advance);
        assert_eq!(test.send().await, Outcome::Taken);
        assert_eq!(test.server.provider_tokens(), tokens, "after {advance} s more");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_provider_token_is_replaced_once() {
    let test = ApnsTest::start().await;
    test.server.record().react([Reaction::error(403, "ExpiredProviderToken")]);
    assert_eq!(test.send().await, Outcome::Taken);
    assert_eq!(test.server.record().counts(PHONE).attempts, 2);
    assert_eq!(test.server.record().accepted_with_id(&id(1).to_string()), 1);
    assert_eq!(test.server.provider_tokens(), 2);
}

#[tokio::test]
async fn attempts_with_the_same_expired_token_share_the_new_one() {
    let (clock, apple) = (TestClock::default(), TestClock::default());
    let server = ApnsStandIn::start(apple.now()).await.expect("a server");
    let client = Arc::new(Apns::new(server.settings(TIMEOUT, 2), clock.now()).expect("a client"));
    assert_eq!(client.send(PHONE, id(1), &result()).await, Outcome::Taken);
    // The client would keep its token for 40 minutes, and the provider accepts it for an hour.
    clock.advance(2_000);
    apple.advance(3_700);
    let outcomes = send_to_many(&client, 20).await;
    assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Taken), "{outcomes:?}");
    assert_eq!(server.provider_tokens(), 2);
}

#[tokio::test]
async fn provider_is_off_while_its_clock_is_wrong() {
    let (clock, apple) = (TestClock::default(), TestClock::default());
    apple.advance(3_700);
    let server = ApnsStandIn::start(apple.now()).await.expect("a server");
    let client = Apns::new(server.settings(TIMEOUT, 1), clock.now()).expect("a client");
    assert_eq!(client.send(PHONE, id(1), &result()).await, later(Some(300), false));
    assert_eq!(server.record().refused(), ["ExpiredProviderToken", "ExpiredProviderToken"]);
}

#[tokio::test]
async fn refused_credentials_switch_provider_off_for_five_minutes() {
    let test = ApnsTest::start().await;
    test.server.record().react([Reaction::error(403, "InvalidProviderToken")]);
    assert_eq!(test.send().await, later(Some(300), false));
    test.clock.advance(299);
    assert_eq!(test.send().await, later(Some(1), false));
    assert_eq!(test.server.record().counts(PHONE).attempts, 1, "nothing is sent meanwhile");
    test.clock.advance(1);
    assert_eq!(test.send().await, Outcome::Taken);
}

#[tokio::test]
async fn stand_in_refuses_invalid_requests() {
    let test = ApnsTest::start().await;
    let settings = || test.server.settings(TIMEOUT, 1);
    let other_key = ApnsStandIn::start(test.clock.now()).await.expect("a server");
    let mut wrong_topic = settings();
    wrong_topic.topic = "org.example.other".to_owned();
    let mut wrong_team = settings();
    wrong_team.team_id = "other".to_owned();
    let mut wrong_key = settings();
    wrong_key.key = other_key.key().to_owned().into();
    let mut long = result();
    long.body = "x".repeat(5_000);
    for (settings, token, notification, outcome) in [
        (wrong_topic, PHONE, result(), refused("TopicDisallowed")),
        (wrong_team, PHONE, result(), later(Some(300), false)),
        (wrong_key, PHONE, result(), later(Some(300), false)),
        (settings(), "abc", result(), Outcome::Gone { since: None }),
        (settings(), PHONE, long, refused("PayloadTooLarge")),
    ] {
        let client = Arc::new(Apns::new(settings, test.clock.now()).expect("a client"));
        assert_eq!(client.send(token, id(1), &notification).await, outcome);
    }
    assert_eq!(
        test.server.record().refused(),
        ["TopicDisallowed", "InvalidProviderToken", "InvalidProviderToken", "BadDeviceToken", "PayloadTooLarge"]
    );
}

#[tokio::test]
async fn invalid_settings_are_refused() {
    let test = ApnsTest::start().await;
    let new = |change: fn(&mut phone_push::ApnsSettings)| {
        let mut settings = test.server.settings(Duration::from_secs(1), 1);
        change(&mut settings);
        Apns::new(settings, test.clock.now()).err()
    };
    assert!(new(|_| {}).is_none());
    assert!(matches!(new(|settings| settings.key = "no key".into()), Some(SettingsError::EcKey)));
    assert!(matches!(new(|settings| settings.topic = "a\nb".to_owned()), Some(SettingsError::Header(_))));
    assert!(matches!(
        new(|settings| settings.url = "ftp://example.org".parse().expect("a URL")),
        Some(SettingsError::Url)
    ));
    assert!(new(|settings| settings.url = "https://api.push.apple.com".parse().expect("a URL")).is_none());
}
