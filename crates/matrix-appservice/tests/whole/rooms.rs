//! Creating, completing, naming and discarding rooms on a real homeserver.

use matrix_appservice::{Error, Homeserver, IncompleteRoom, Membership, NewRoom, OwnedRoomId, RoomId};
use reqwest::{Method, StatusCode};
use secrecy::ExposeSecret;
use serde_json::{Value, json};

use crate::synapse::{fresh_localpart, homeserver, settings};

/// Returns an alias in one of our namespaces that no other test or run uses.
pub(crate) fn fresh_alias() -> String {
    format!("match_{}", fresh_localpart())
}

pub(crate) fn public_room(alias: &str) -> NewRoom<'_> {
    NewRoom {
        alias, name: "Ajax – PSV", topic: "Eredivisie ⚽", private: false, bot_invites: false, moderator: None
    }
}

pub(crate) fn private_room<'a>(alias: &'a str, moderator: &'a str) -> NewRoom<'a> {
    NewRoom { alias, name: "Back row", topic: "", private: true, bot_invites: false, moderator: Some(moderator) }
}

/// Registers a new user and returns the localpart.
pub(crate) async fn user(homeserver: &Homeserver) -> String {
    let localpart = fresh_localpart();
    homeserver.register(&localpart).await.unwrap();
    localpart
}

pub(crate) async fn make(homeserver: &Homeserver, room: &NewRoom<'_>) -> OwnedRoomId {
    homeserver.ensure_room(room, IncompleteRoom::Wait).await.unwrap()
}

/// Sends a request without the crate, as this user or else as the bot.
pub(crate) async fn send_request(method: Method, path: &str, user: Option<&str>, body: &Value) -> (StatusCode, Value) {
    let mut url = settings().url.join(&format!("/_matrix/client/v3/{path}")).unwrap();
    if let Some(localpart) = user {
        url.query_pairs_mut().append_pair("user_id", homeserver().user_id(localpart).unwrap().as_str());
    }
    let request = reqwest::Client::new().request(method, url).bearer_auth(settings().as_token.expose_secret());
    let response = request.json(body).send().await.unwrap();
    (response.status(), response.json().await.unwrap())
}

pub(crate) async fn put_state(room: &RoomId, kind: &str, user: Option<&str>, content: &Value) -> (StatusCode, Value) {
    send_request(Method::PUT, &format!("rooms/{room}/state/{kind}"), user, content).await
}

/// State that is visible to the bot, by type and key.
async fn state(room: &RoomId) -> Vec<(String, Value)> {
    let (status, events) = send_request(Method::GET, &format!("rooms/{room}/state"), None, &json!({})).await;
    assert_eq!(status, StatusCode::OK, "{events}");
    let mut state: Vec<_> = events
        .as_array()
        .unwrap()
        .iter()
        .map(|event| {
            let name = format!("{} {}", event["type"].as_str().unwrap(), event["state_key"].as_str().unwrap());
            (name.trim_end().to_owned(), event.clone())
        })
        .collect();
    state.sort_by(|(a, _), (b, _)| a.cmp(b));
    state
}

async fn content(room: &RoomId, kind: &str) -> Value {
    let found = state(room).await.into_iter().find(|(name, _)| name == kind);
    found.map_or(Value::Null, |(_, event)| event["content"].clone())
}

async fn event_ids(room: &RoomId) -> Vec<String> {
    state(room).await.iter().map(|(_, event)| event["event_id"].to_string()).collect()
}

/// Asserts the state that every room must have, regardless of its earlier state.
async fn assert_state(homeserver: &Homeserver, room_id: &RoomId, room: &NewRoom<'_>) {
    let bot = homeserver.bot().unwrap();
    let mut wanted = vec![
        ("m.room.canonical_alias", json!({"alias": format!("#{}:{}", room.alias, bot.server_name())})),
        ("m.room.guest_access", json!({"guest_access": "forbidden"})),
        ("m.room.history_visibility", json!({"history_visibility": "shared"})),
        ("m.room.join_rules", json!({"join_rule": if room.private { "invite" } else { "public" }})),
        ("m.room.name", json!({"name": room.name})),
    ];
    if room.private {
        wanted.push(("m.room.encryption", json!({"algorithm": "m.megolm.v1.aes-sha2"})));
    }
    if !room.topic.is_empty() {
        wanted.push(("m.room.topic", json!({"topic": room.topic, "m.topic": {"m.text": [{"body": room.topic}]}})));
    }
    let state = state(room_id).await;
    for (kind, content) in &wanted {
        let found = state.iter().find(|(name, _)| name == kind).map(|(_, event)| &event["content"]);
        assert_eq!(found, Some(content), "{kind}");
    }
    for kind in ["m.room.encryption", "m.room.topic"] {
        let is_wanted = wanted.iter().any(|(wanted, _)| *wanted == kind);
        assert_eq!(state.iter().any(|(name, _)| name == kind), is_wanted, "{kind}");
    }

    let levels = content(room_id, "m.room.power_levels").await;
    assert_eq!(levels["users"][bot.as_str()], 100);
    if let Some(moderator) = room.moderator {
        assert_eq!(levels["users"][homeserver.user_id(moderator).unwrap().as_str()], 50);
    }
    for (name, level) in [
        ("users_default", 0),
        ("events_default", 0),
        ("state_default", 100),
        ("invite", if room.private { 50 } else { 0 }),
        ("kick", 50),
        ("ban", 50),
        ("redact", 50),
    ] {
        assert_eq!(levels[name], level, "{name}");
    }
    assert_eq!(
        levels["events"],
        json!({
            "m.room.name": 50, "m.room.topic": 50, "m.room.avatar": 50, "m.room.power_levels": 100,
            "m.room.encryption": 100, "m.room.history_visibility": 100, "m.room.canonical_alias": 100,
            "m.room.server_acl": 100, "m.room.tombstone": 100, "m.room.join_rules": 100,
        })
    );
}

#[tokio::test]
async fn public_room_is_created_once_with_wanted_state() {
    let (homeserver, alias) = (homeserver(), fresh_alias());
    homeserver.ensure_bot().await.unwrap();
    assert_eq!(homeserver.find_room(&alias).await.unwrap(), None);
    let room = public_room(&alias);
    let room_id = make(&homeserver, &room).await;
    assert_state(&homeserver, &room_id, &room).await;
    let create = content(&room_id, "m.room.create").await;
    assert_eq!(create, json!({"room_version": "11"}), "the room is open to federation");
    let listed = send_request(Method::GET, &format!("directory/list/room/{room_id}"), None, &json!({})).await.1;
    assert_eq!(listed["visibility"], "private");

    let before = event_ids(&room_id).await;
    for half_made in [IncompleteRoom::Wait, IncompleteRoom::Discard] {
        assert_eq!(homeserver.ensure_room(&room, half_made).await.unwrap(), room_id);
    }
    assert_eq!(event_ids(&room_id).await, before, "no event is sent again");
    assert_eq!(homeserver.find_room(&alias).await.unwrap(), Some(room_id));
}

#[tokio::test]
async fn private_room_is_created_once_with_wanted_state() {
    let (homeserver, alias) = (homeserver(), fresh_alias());
    let moderator = user(&homeserver).await;
    let room = private_room(&alias, &moderator);
    let room_id = make(&homeserver, &room).await;
    assert_state(&homeserver, &room_id, &room).await;
    let before = event_ids(&room_id).await;
    assert_eq!(make(&homeserver, &room).await, room_id);
    assert_eq!(event_ids(&room_id).await, before);
}

#[tokio::test]
async fn concurrent_creations_return_the_same_room() {
    let (homeserver, alias) = (homeserver(), fresh_alias());
    let room = public_room(&alias);
    let ensure = || homeserver.ensure_room(&room, IncompleteRoom::Wait);
    let (a, b, c, d) = tokio::join!(ensure(), ensure(), ensure(), ensure());
    let mut made = Vec::new();
    for ensured in [a, b, c, d] {
        match ensured {
            Ok(room_id) => made.push(room_id),
            Err(error) => assert!(matches!(error, Error::IncompleteRoom(_)) && error.is_worth_retrying(), "{error:?}"),
        }
    }
    made.push(make(&homeserver, &room).await);
    made.dedup();
    assert_eq!(made.len(), 1, "{made:?}");
    assert_state(&homeserver, &made[0], &room).await;
}

/// Makes Synapse fail while it creates a room: it stores the alias and then rejects an event that is too large.
async fn interrupt_creation(alias: &str, mut request: Value, too_large: &str) {
    let large = json!({"x": "x".repeat(70_000)});
    request[too_large] = if too_large == "initial_state" { json!([{"type": "x", "content": large}]) } else { large };
    request["room_alias_name"] = alias.into();
    request["room_version"] = "11".into();
    let (status, body) = send_request(Method::POST, "createRoom", None, &request).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{body}");
}

#[tokio::test]
async fn room_with_only_the_bot_is_completed() {
    let homeserver = homeserver();
    let moderator = user(&homeserver).await;
    let (public, private) = (fresh_alias(), fresh_alias());
    for room in [public_room(&public), private_room(&private, &moderator)] {
        interrupt_creation(room.alias, json!({}), "initial_state").await;
        let half_made = homeserver.find_room(room.alias).await.unwrap().unwrap();
        let state = state(&half_made).await;
        let names: Vec<_> = state.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["m.room.create", &format!("m.room.member {}", homeserver.bot().unwrap())]);

        assert_eq!(make(&homeserver, &room).await, half_made);
        assert_state(&homeserver, &half_made, &room).await;
    }
}

#[tokio::test]
async fn alias_of_empty_room_is_kept_or_replaced() {
    let (homeserver, alias) = (homeserver(), fresh_alias());
    interrupt_creation(&alias, json!({}), "creation_content").await;
    let nothing = homeserver.find_room(&alias).await.unwrap().unwrap();
    let room = public_room(&alias);
    for _ in 0..2 {
        let error = homeserver.ensure_room(&room, IncompleteRoom::Wait).await.unwrap_err();
        assert!(matches!(&error, Error::IncompleteRoom(of) if of.alias() == alias), "{error:?}");
        assert!(error.is_worth_retrying());
    }
    assert_eq!(homeserver.find_room(&alias).await.unwrap().as_ref(), Some(&nothing), "the alias is unchanged");

    let made = homeserver.ensure_room(&room, IncompleteRoom::Discard).await.unwrap();
    assert_ne!(made, nothing);
    assert_eq!(homeserver.find_room(&alias).await.unwrap().as_ref(), Some(&made));
    assert_state(&homeserver, &made, &room).await;
    assert_eq!(make(&homeserver, &room).await, made);
}

#[tokio::test]
async fn alias_of_abandoned_room_is_kept_or_replaced() {
    let (homeserver, alias, member) = (homeserver(), fresh_alias(), user(&homeserver()).await);
    let room = public_room(&alias);
    let left = make(&homeserver, &room).await;
    homeserver.join(&left, &member).await.unwrap();
    homeserver.leave(&left, homeserver.bot().unwrap().localpart()).await.unwrap().unwrap();
    let error = homeserver.ensure_room(&room, IncompleteRoom::Wait).await.unwrap_err();
    assert!(matches!(error, Error::IncompleteRoom(_)), "{error:?}");
    let made = homeserver.ensure_room(&room, IncompleteRoom::Discard).await.unwrap();
    assert_ne!(made, left);
    assert_state(&homeserver, &made, &room).await;
}

#[tokio::test]
async fn changed_rules_are_restored_and_users_keep_power() {
    let (homeserver, alias) = (homeserver(), fresh_alias());
    let (moderator, other) = (user(&homeserver).await, user(&homeserver).await);
    let bot = homeserver.bot().unwrap();
    let other_id = homeserver.user_id(&other).unwrap();
    // Synapse's defaults: any user may join, and level 50 may change state.
    let request = json!({
        "room_alias_name": alias, "room_version": "11", "preset": "public_chat", "name": "Old name",
        "power_level_content_override": {
            "users": {bot.as_str(): 100, other_id.as_str(): 30, homeserver.user_id(&moderator).unwrap().as_str(): 10},
        },
    });
    assert_eq!(send_request(Method::POST, "createRoom", None, &request).await.0, StatusCode::OK);

    let room = private_room(&alias, &moderator);
    let room_id = make(&homeserver, &room).await;
    assert_eq!(homeserver.room_name(&room_id).await.unwrap().unwrap(), "Old name", "moderators may rename");
    homeserver.set_room_name(&room_id, room.name).await.unwrap();
    assert_state(&homeserver, &room_id, &room).await;
    assert_eq!(content(&room_id, "m.room.power_levels").await["users"][other_id.as_str()], 30);
}

#[tokio::test]
async fn moderators_rename_and_only_bot_sets_rules() {
    let homeserver = homeserver();
    let (moderator, member) = (user(&homeserver).await, user(&homeserver).await);
    let alias = fresh_alias();
    let room = NewRoom { moderator: Some(&moderator), ..public_room(&alias) };
    let room_id = make(&homeserver, &room).await;
    for localpart in [&moderator, &member] {
        homeserver.join(&room_id, localpart).await.unwrap();
    }
    let name = json!({"name": "Our corner"});
    assert_eq!(put_state(&room_id, "m.room.name", Some(&member), &name).await.0, StatusCode::FORBIDDEN);
    assert_eq!(put_state(&room_id, "m.room.name", Some(&moderator), &name).await.0, StatusCode::OK);
    let rules = json!({"join_rule": "invite"});
    assert_eq!(put_state(&room_id, "m.room.join_rules", Some(&moderator), &rules).await.0, StatusCode::FORBIDDEN);
    // Only the bot may set other state types.
    assert_eq!(put_state(&room_id, "org.example", Some(&moderator), &json!({})).await.0, StatusCode::FORBIDDEN);

    assert_eq!(make(&homeserver, &room).await, room_id);
    assert_eq!(homeserver.room_name(&room_id).await.unwrap().unwrap(), "Our corner", "a moderator's name is kept");
}

#[tokio::test]
async fn name_and_topic_are_stored() {
    let (homeserver, alias) = (homeserver(), fresh_alias());
    let moderator = user(&homeserver).await;
    let room_id = make(&homeserver, &private_room(&alias, &moderator)).await;
    assert_eq!(homeserver.room_name(&room_id).await.unwrap().unwrap(), "Back row");
    assert_eq!(homeserver.room_topic(&room_id).await.unwrap(), None);
    for text in ["Zoë's ⚽ <b>\"x\"</b>", "plain"] {
        homeserver.set_room_name(&room_id, text).await.unwrap();
        homeserver.set_room_topic(&room_id, text).await.unwrap();
        assert_eq!(homeserver.room_name(&room_id).await.unwrap().unwrap(), text);
        assert_eq!(homeserver.room_topic(&room_id).await.unwrap().unwrap(), text);
    }
    let before = event_ids(&room_id).await;
    homeserver.set_room_name(&room_id, "plain").await.unwrap();
    homeserver.set_room_topic(&room_id, "plain").await.unwrap();
    assert_eq!(event_ids(&room_id).await, before);
    homeserver.set_room_topic(&room_id, "").await.unwrap();
    assert_eq!(homeserver.room_topic(&room_id).await.unwrap(), None);
}

#[tokio::test]
async fn power_level_change_keeps_other_levels() {
    let (homeserver, alias) = (homeserver(), fresh_alias());
    let (moderator, other) = (user(&homeserver).await, user(&homeserver).await);
    let room_id = make(&homeserver, &private_room(&alias, &moderator)).await;
    let before = content(&room_id, "m.room.power_levels").await;

    homeserver.set_power_level(&room_id, &other, 50).await.unwrap();
    let mut expected = before.clone();
    expected["users"][homeserver.user_id(&other).unwrap().as_str()] = 50.into();
    assert_eq!(content(&room_id, "m.room.power_levels").await, expected);

    let ids = event_ids(&room_id).await;
    homeserver.set_power_level(&room_id, &other, 50).await.unwrap();
    homeserver.set_power_level(&room_id, &user(&homeserver).await, 0).await.unwrap();
    assert_eq!(event_ids(&room_id).await, ids, "an unchanged level sends no event");

    homeserver.set_power_level(&room_id, &other, 0).await.unwrap();
    assert_eq!(content(&room_id, "m.room.power_levels").await, before);
}

#[tokio::test]
async fn discarded_room_is_unfindable_and_unusable() {
    let homeserver = homeserver();
    let (joined, invited, banned) = (user(&homeserver).await, user(&homeserver).await, user(&homeserver).await);
    for by_id in [true, false] {
        let alias = fresh_alias();
        let room_id = make(&homeserver, &public_room(&alias)).await;
        homeserver.join(&room_id, &joined).await.unwrap();
        homeserver.set_power_level(&room_id, &joined, 50).await.unwrap();
        homeserver.invite(&room_id, None, &invited).await.unwrap();
        let ban = json!({"user_id": homeserver.user_id(&banned).unwrap()});
        assert_eq!(send_request(Method::POST, &format!("rooms/{room_id}/ban"), None, &ban).await.0, StatusCode::OK);

        // Discarding is idempotent, with and without the room id.
        for room in [by_id.then_some(&*room_id), Some(&room_id), None] {
            homeserver.discard_room(&alias, room).await.unwrap();
            assert_eq!(homeserver.find_room(&alias).await.unwrap(), None);
            for localpart in [joined.as_str(), &invited, homeserver.bot().unwrap().localpart()] {
                assert!(!homeserver.joined_rooms(localpart).await.unwrap().contains(&room_id), "{localpart}");
            }
        }
        // The bot still sees the room's last state before it left.
        assert_eq!(content(&room_id, "m.room.join_rules").await["join_rule"], "invite", "closed before it was emptied");
        let members = homeserver.members(&room_id).await.unwrap();
        assert!(members.iter().all(|member| member.membership == Membership::Ban), "{members:?}");
        assert_eq!(members.len(), 1);
        for localpart in [&joined, &invited] {
            let error = homeserver.join(&room_id, localpart).await.unwrap_err();
            assert!(matches!(error, Error::NoSuchRoom(_)), "{error:?}");
        }
        // The alias is available again.
        assert_ne!(make(&homeserver, &public_room(&alias)).await, room_id);
    }
}

#[tokio::test]
async fn missing_or_incomplete_room_can_be_discarded() {
    let (homeserver, alias) = (homeserver(), fresh_alias());
    homeserver.discard_room(&alias, None).await.unwrap();
    interrupt_creation(&alias, json!({}), "creation_content").await;
    homeserver.discard_room(&alias, None).await.unwrap();
    assert_eq!(homeserver.find_room(&alias).await.unwrap(), None);
    interrupt_creation(&alias, json!({}), "initial_state").await;
    let room_id = homeserver.find_room(&alias).await.unwrap().unwrap();
    homeserver.discard_room(&alias, None).await.unwrap();
    assert_eq!(homeserver.find_room(&alias).await.unwrap(), None);
    assert!(homeserver.members(&room_id).await.unwrap().is_empty());
}

#[tokio::test]
async fn refuses_to_discard_rooms_of_others() {
    let (homeserver, owner) = (homeserver(), user(&homeserver()).await);
    let bot = homeserver.bot().unwrap();
    let (_, made) = send_request(Method::POST, "createRoom", Some(&owner), &json!({"preset": "public_chat"})).await;
    let room_id = RoomId::parse(made["room_id"].as_str().unwrap()).unwrap();
    homeserver.join(&room_id, bot.localpart()).await.unwrap();
    let error = homeserver.discard_room(&fresh_alias(), Some(&room_id)).await.unwrap_err();
    assert!(matches!(error, Error::ForbiddenInRoom { .. }), "{error:?}");
    assert!(!error.is_worth_retrying());
    assert_eq!(homeserver.joined_rooms(&owner).await.unwrap(), [room_id]);
}

#[tokio::test]
async fn refuses_alias_outside_our_namespaces() {
    let (homeserver, alias) = (homeserver(), format!("other_{}", fresh_localpart()));
    for error in [
        homeserver.ensure_room(&public_room(&alias), IncompleteRoom::Discard).await.unwrap_err(),
        homeserver.discard_room(&alias, Some(&RoomId::parse("!nope:matchday.localhost").unwrap())).await.unwrap_err(),
    ] {
        assert!(matches!(error, Error::NotAllowed { .. }), "{error:?}");
        assert!(error.is_worth_retrying(), "an operator can correct the namespace");
    }
}

#[tokio::test]
async fn unknown_room_is_reported() {
    let (homeserver, localpart) = (homeserver(), user(&homeserver()).await);
    let room_id = RoomId::parse(format!("!{}:matchday.localhost", fresh_localpart())).unwrap();
    for error in [
        homeserver.join(&room_id, &localpart).await.unwrap_err(),
        homeserver.members(&room_id).await.unwrap_err(),
        homeserver.room_name(&room_id).await.unwrap_err(),
        homeserver.room_topic(&room_id).await.unwrap_err(),
        homeserver.set_power_level(&room_id, &localpart, 50).await.unwrap_err(),
        homeserver.kick(&room_id, &homeserver.user_id(&localpart).unwrap(), "").await.unwrap_err(),
    ] {
        assert!(matches!(&error, Error::NoSuchRoom(of) if *of == room_id), "{error:?}");
        assert!(!error.is_worth_retrying());
    }
    for error in [
        homeserver.set_room_name(&room_id, "x").await.unwrap_err(),
        homeserver.set_room_topic(&room_id, "x").await.unwrap_err(),
        homeserver.invite(&room_id, None, &localpart).await.unwrap_err(),
    ] {
        assert!(matches!(&error, Error::NoSuchRoom(_) | Error::ForbiddenInRoom { .. }), "{error:?}");
        assert!(!error.is_worth_retrying());
    }
    assert_eq!(homeserver.leave(&room_id, &localpart).await.unwrap(), None);
    homeserver.discard_room(&fresh_alias(), Some(&room_id)).await.unwrap();
}

#[tokio::test]
async fn event_is_returned_as_sent() {
    let (homeserver, alias, localpart) = (homeserver(), fresh_alias(), user(&homeserver()).await);
    let room_id = make(&homeserver, &public_room(&alias)).await;
    let joined = homeserver.join(&room_id, &localpart).await.unwrap();
    let seen = homeserver.event(&room_id, &joined).await.unwrap().unwrap();
    assert_eq!((seen.event_id, seen.kind.as_str()), (joined.clone(), "m.room.member"));
    assert_eq!(seen.state_key.as_deref(), Some(seen.sender.as_str()));
    assert_eq!(seen.content["membership"], "join");

    let body = json!({"msgtype": "m.text", "body": "Gooal ⚽"});
    let path = format!("rooms/{room_id}/send/m.room.message/{localpart}");
    let sent = send_request(Method::PUT, &path, Some(&localpart), &body).await.1;
    let event_id = sent["event_id"].as_str().unwrap().try_into().unwrap();
    let seen = homeserver.event(&room_id, event_id).await.unwrap().unwrap();
    assert_eq!((seen.sender, seen.kind.as_str()), (homeserver.user_id(&localpart).unwrap(), "m.room.message"));
    assert_eq!((seen.state_key, seen.content), (None, body));
    assert!(seen.timestamp_ms > 1_700_000_000_000, "{}", seen.timestamp_ms);

    let other = make(&homeserver, &public_room(&fresh_alias())).await;
    assert_eq!(homeserver.event(&other, event_id).await.unwrap(), None, "the event belongs to another room");
    let unknown = "$unknown".try_into().unwrap();
    assert_eq!(homeserver.event(&room_id, unknown).await.unwrap(), None);
}
