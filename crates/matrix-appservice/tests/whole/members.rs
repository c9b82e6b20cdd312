//! Joining, leaving, inviting and removing on a real homeserver, and the member event of each change.

use matrix_appservice::{Error, Invited, Membership, OwnedEventId, RoomId};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::{
    rooms::{fresh_alias, make, private_room, public_room, send_request, user},
    synapse::{fresh_localpart, homeserver},
};

/// Current member event of a user.
async fn member_event(room: &RoomId, localpart: &str) -> Value {
    let user_id = homeserver().user_id(localpart).unwrap();
    let path = format!("rooms/{room}/state/m.room.member/{user_id}?format=event");
    let (status, event) = send_request(Method::GET, &path, None, &json!({})).await;
    assert_eq!(status, StatusCode::OK, "{event}");
    event
}

/// Asserts that this event set the membership, and returns it.
async fn assert_member(room: &RoomId, localpart: &str, membership: &str, event_id: &OwnedEventId) -> Value {
    let event = member_event(room, localpart).await;
    assert_eq!(event["event_id"], event_id.as_str());
    assert_eq!(event["content"]["membership"], membership);
    event
}

async fn ban(room: &RoomId, localpart: &str) {
    let body = json!({"user_id": homeserver().user_id(localpart).unwrap()});
    assert_eq!(send_request(Method::POST, &format!("rooms/{room}/ban"), None, &body).await.0, StatusCode::OK);
}

#[tokio::test]
async fn join_and_leave_return_one_event_each() {
    let (homeserver, alias, localpart) = (homeserver(), fresh_alias(), user(&homeserver()).await);
    homeserver.set_display_name(&localpart, "Zoë ⚽").await.unwrap();
    let room_id = make(&homeserver, &public_room(&alias)).await;
    assert_eq!(homeserver.leave(&room_id, &localpart).await.unwrap(), None, "the user was never a member");

    let joined = homeserver.join(&room_id, &localpart).await.unwrap();
    let event = assert_member(&room_id, &localpart, "join", &joined).await;
    assert_eq!(event["content"]["displayname"], "Zoë ⚽", "the member event contains the profile");
    assert_eq!(homeserver.join(&room_id, &localpart).await.unwrap(), joined);
    assert_eq!(homeserver.joined_rooms(&localpart).await.unwrap(), [&*room_id]);

    let left = homeserver.leave(&room_id, &localpart).await.unwrap().unwrap();
    assert_member(&room_id, &localpart, "leave", &left).await;
    assert_eq!(homeserver.leave(&room_id, &localpart).await.unwrap(), Some(left.clone()));
    assert!(homeserver.joined_rooms(&localpart).await.unwrap().is_empty());

    let again = homeserver.join(&room_id, &localpart).await.unwrap();
    assert!(again != joined && again != left);
}

#[tokio::test]
async fn join_by_client_is_detected() {
    let (homeserver, alias, localpart) = (homeserver(), fresh_alias(), user(&homeserver()).await);
    let room_id = make(&homeserver, &public_room(&alias)).await;
    let path = format!("rooms/{room_id}/join");
    assert_eq!(send_request(Method::POST, &path, Some(&localpart), &json!({})).await.0, StatusCode::OK);
    let event = member_event(&room_id, &localpart).await;
    assert_eq!(homeserver.join(&room_id, &localpart).await.unwrap(), event["event_id"].as_str().unwrap());
}

#[tokio::test]
async fn private_room_admits_only_invited_users() {
    let homeserver = homeserver();
    let (moderator, guest) = (user(&homeserver).await, user(&homeserver).await);
    let alias = fresh_alias();
    let room_id = make(&homeserver, &private_room(&alias, &moderator)).await;
    let error = homeserver.join(&room_id, &guest).await.unwrap_err();
    assert!(matches!(error, Error::ForbiddenInRoom { .. }), "{error:?}");
    assert!(!error.is_worth_retrying());

    let Invited::Invited(invited) = homeserver.invite(&room_id, None, &moderator).await.unwrap() else {
        panic!("invited")
    };
    assert_member(&room_id, &moderator, "invite", &invited).await;
    assert_eq!(homeserver.invite(&room_id, None, &moderator).await.unwrap(), Invited::Invited(invited.clone()));
    let joined = homeserver.join(&room_id, &moderator).await.unwrap();
    assert_eq!(
        homeserver.invite(&room_id, None, &moderator).await.unwrap(),
        Invited::AlreadyIn(joined.clone()),
        "the user is already a member"
    );
    assert_member(&room_id, &moderator, "join", &joined).await;

    let Invited::Invited(invited) = homeserver.invite(&room_id, Some(&moderator), &guest).await.unwrap() else {
        panic!("invited")
    };
    let event = assert_member(&room_id, &guest, "invite", &invited).await;
    assert_eq!(event["sender"], homeserver.user_id(&moderator).unwrap().as_str());
    homeserver.join(&room_id, &guest).await.unwrap();
    let error = homeserver.invite(&room_id, Some(&guest), &user(&homeserver).await).await.unwrap_err();
    assert!(matches!(error, Error::ForbiddenInRoom { .. }), "only moderators invite: {error:?}");
}

#[tokio::test]
async fn invitation_can_be_declined_or_revoked() {
    let homeserver = homeserver();
    let (moderator, guest) = (user(&homeserver).await, user(&homeserver).await);
    let alias = fresh_alias();
    let room_id = make(&homeserver, &private_room(&alias, &moderator)).await;
    homeserver.invite(&room_id, None, &guest).await.unwrap();
    let declined = homeserver.leave(&room_id, &guest).await.unwrap().unwrap();
    assert_member(&room_id, &guest, "leave", &declined).await;

    homeserver.invite(&room_id, None, &guest).await.unwrap();
    let guest_id = homeserver.user_id(&guest).unwrap();
    let revoked = homeserver.kick(&room_id, &guest_id, "a mistake").await.unwrap().unwrap();
    let event = assert_member(&room_id, &guest, "leave", &revoked).await;
    assert_eq!(event["content"]["reason"], "a mistake");
    homeserver.join(&room_id, &guest).await.unwrap_err();
}

#[tokio::test]
async fn removal_is_idempotent() {
    let (homeserver, alias, localpart) = (homeserver(), fresh_alias(), user(&homeserver()).await);
    let user_id = homeserver.user_id(&localpart).unwrap();
    let room_id = make(&homeserver, &public_room(&alias)).await;
    assert_eq!(homeserver.kick(&room_id, &user_id, "").await.unwrap(), None, "the user was never a member");
    homeserver.join(&room_id, &localpart).await.unwrap();
    let removed = homeserver.kick(&room_id, &user_id, "spam").await.unwrap().unwrap();
    let event = assert_member(&room_id, &localpart, "leave", &removed).await;
    assert_eq!(event["sender"], homeserver.bot().unwrap().as_str());
    assert_eq!(event["content"]["reason"], "spam");

    assert_eq!(homeserver.kick(&room_id, &user_id, "spam").await.unwrap(), None);
    assert_eq!(homeserver.leave(&room_id, &localpart).await.unwrap(), Some(removed.clone()));
    assert_member(&room_id, &localpart, "leave", &removed).await;
}

#[tokio::test]
async fn no_call_lifts_a_ban() {
    let (homeserver, alias, localpart) = (homeserver(), fresh_alias(), user(&homeserver()).await);
    let user_id = homeserver.user_id(&localpart).unwrap();
    let room_id = make(&homeserver, &public_room(&alias)).await;
    homeserver.join(&room_id, &localpart).await.unwrap();
    ban(&room_id, &localpart).await;
    let banned = member_event(&room_id, &localpart).await["event_id"].as_str().unwrap().to_owned();

    assert_eq!(homeserver.kick(&room_id, &user_id, "").await.unwrap(), None);
    assert_eq!(homeserver.leave(&room_id, &localpart).await.unwrap().unwrap(), banned);
    for error in [
        homeserver.invite(&room_id, None, &localpart).await.unwrap_err(),
        homeserver.join(&room_id, &localpart).await.unwrap_err(),
    ] {
        assert!(matches!(error, Error::ForbiddenInRoom { .. }), "{error:?}");
    }
    assert_member(&room_id, &localpart, "ban", &banned.as_str().try_into().unwrap()).await;
}

#[tokio::test]
async fn user_with_bot_power_cannot_be_removed() {
    let (homeserver, alias, localpart) = (homeserver(), fresh_alias(), user(&homeserver()).await);
    let room_id = make(&homeserver, &public_room(&alias)).await;
    homeserver.join(&room_id, &localpart).await.unwrap();
    homeserver.set_power_level(&room_id, &localpart, 100).await.unwrap();
    let error = homeserver.kick(&room_id, &homeserver.user_id(&localpart).unwrap(), "").await.unwrap_err();
    assert!(matches!(error, Error::ForbiddenInRoom { .. }), "{error:?}");
}

#[tokio::test]
async fn lists_all_members_except_those_who_left() {
    let homeserver = homeserver();
    let bot = homeserver.bot().unwrap();
    let room_id = make(&homeserver, &public_room(&fresh_alias())).await;
    let [joined, invited, banned, left] =
        [user(&homeserver).await, user(&homeserver).await, user(&homeserver).await, user(&homeserver).await];
    let event_id = homeserver.join(&room_id, &joined).await.unwrap();
    homeserver.invite(&room_id, None, &invited).await.unwrap();
    ban(&room_id, &banned).await;
    homeserver.join(&room_id, &left).await.unwrap();
    homeserver.leave(&room_id, &left).await.unwrap();

    let members = homeserver.members(&room_id).await.unwrap();
    let mut found: Vec<_> = members.iter().map(|member| (member.user_id.localpart(), member.membership)).collect();
    found.sort_by_key(|(localpart, _)| *localpart);
    let mut expected = [
        (joined.as_str(), Membership::Join),
        (invited.as_str(), Membership::Invite),
        (banned.as_str(), Membership::Ban),
        (bot.localpart(), Membership::Join),
    ];
    expected.sort_by_key(|(localpart, _)| *localpart);
    assert_eq!(found, expected);
    assert!(members.iter().any(|member| member.user_id.localpart() == joined && member.event_id == event_id));
}

#[tokio::test]
async fn refuses_unregistered_users_and_other_namespaces() {
    let (homeserver, room_id) = (homeserver(), make(&homeserver(), &public_room(&fresh_alias())).await);
    let unregistered = fresh_localpart();
    for error in [
        homeserver.join(&room_id, &unregistered).await.unwrap_err(),
        homeserver.leave(&room_id, &unregistered).await.unwrap_err(),
        homeserver.invite(&room_id, Some(&unregistered), "alice").await.unwrap_err(),
        homeserver.joined_rooms(&unregistered).await.unwrap_err(),
    ] {
        assert!(matches!(error, Error::NoSuchUser(_)), "{error:?}");
    }
    let outside = format!("_{}", fresh_localpart());
    for error in [
        homeserver.join(&room_id, &outside).await.unwrap_err(),
        homeserver.leave(&room_id, &outside).await.unwrap_err(),
        homeserver.invite(&room_id, Some(&outside), "alice").await.unwrap_err(),
        homeserver.joined_rooms(&outside).await.unwrap_err(),
    ] {
        assert!(matches!(error, Error::NotAllowed { .. }), "{error:?}");
        assert!(error.is_worth_retrying());
    }
}
