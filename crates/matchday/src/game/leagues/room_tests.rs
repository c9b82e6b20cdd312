//! Chat rooms of leagues, against a real homeserver.

use http::Method;
use matrix_appservice::RoomId as MatrixRoomId;
use platform::stream::{Delivery, Failure};
use serde_json::{Value, json};
use web::ids::UserId;

use super::{
    tests::{FAR, tournament_of},
    work::{MOST_ROOMS, ROOM},
};
use crate::{
    chat::{membership_sync::Membership, roles::POWERS},
    identity::{accounts::restrictions::Restriction, operators::Operator},
    testing::{Answer, TestApp, TestUser, eventually, unique},
};

async fn fan(app: &TestApp, number: u32) -> TestUser<'_> {
    app.log_in(&format!("+1415560{number:04}")).await.0
}

async fn create(app: &TestApp, owner: &TestUser<'_>) -> Value {
    let event = app.fixtures().a_match("m").starting_in(FAR).put().await;
    let tournament = tournament_of(app, event).await;
    let body = json!({"name": "Friends", "tournament_ids": [tournament], "chat": true});
    owner.post("/api/auth/leagues", body).await.expect(201)["data"].take()
}

async fn join(user: &TestUser<'_>, league: &Value) {
    user.post("/api/auth/leagues/join", json!({"code": league["code"]})).await.expect(200);
}

fn league_path(league: &Value, rest: &str) -> String {
    format!("/api/auth/leagues/{}{rest}", league["id"])
}

fn room_path(room: &str, what: &str) -> String {
    format!("/api/auth/chat-rooms/{}/{what}", room.replace('!', "%21").replace(':', "%3A"))
}

async fn put(user: &TestUser<'_>, room: &str, what: &str, body: &Value) -> Answer {
    user.send(Method::PUT, &room_path(room, what), Some(body.to_string())).await
}

async fn perform(app: &TestApp, subject: &str, payload: &Value) -> Result<(), Failure> {
    let payload = payload.to_string().into_bytes().into();
    let delivery = Delivery { subject: subject.to_owned(), id: None, payload, attempt: 1 };
    if subject == ROOM { app.app.league_work.perform(delivery).await } else { app.app.rooms.perform(delivery).await }
}

/// Does the work of leagues and power levels that is in the outbox. Returns the number of messages about leagues.
async fn work(app: &TestApp) -> usize {
    let mut done = 0;
    loop {
        let mut published = app.published().await;
        published.retain(|(subject, _)| subject == ROOM || subject == POWERS);
        if published.is_empty() {
            return done;
        }
        for (subject, payload) in published {
            done += usize::from(subject == ROOM);
            perform(app, &subject, &payload).await.expect("done");
        }
    }
}

async fn room_of(user: &TestUser<'_>, league: &Value) -> String {
    let shown = user.get(&league_path(league, "")).await.expect(200);
    shown["data"]["chat_room_id"].as_str().expect("a room").to_owned()
}

async fn is_in(user: &TestUser<'_>, room: &str) -> bool {
    let joined = user.get("/api/auth/chat-rooms?joined=true").await.expect(200);
    joined["data"].as_array().expect("a list").iter().any(|one| one["room_id"] == room)
}

async fn levels(app: &TestApp, room: &str) -> Value {
    let room = MatrixRoomId::parse(room).expect("an id");
    app.app.chat.homeserver().expect("a homeserver").power_levels(&room).await.expect("read").expect("levels")
}

async fn matrix_id(app: &TestApp, user: UserId) -> String {
    let account = app.app.accounts.find(user).await.expect("read").expect("an account");
    app.app.chat.homeserver().expect("a homeserver").user_id(account.username.as_str()).expect("valid").to_string()
}

#[tokio::test]
async fn muted_owner_does_not_prevent_room() {
    TestApp::run_with_chat(&[], async |app| {
        let (owner, member) = (fan(app, 1).await, fan(app, 2).await);
        let operator = Operator::new("kim", "Insults");
        app.app.moderation.restrict(owner.id, Restriction::Mute, &operator).await.expect("muted");
        let league = create(app, &owner).await;
        join(&member, &league).await;
        assert_eq!(work(app).await, 2);
        let room = room_of(&member, &league).await;
        assert!(is_in(&member, &room).await && !is_in(&owner, &room).await);
        let levels = levels(app, &room).await;
        assert_eq!((&levels["users"][matrix_id(app, owner.id).await], &levels["invite"]), (&json!(50), &json!(100)));
        // The owner is invited, and can join when the mute ends.
        let path = room_path(&room, "join");
        assert_eq!(owner.post(&path, json!({})).await.expect(403)["code"], "muted");
        sqlx::query("update users set muted_at = null").execute(app.owner()).await.expect("unmuted");
        owner.post(&path, json!({})).await.expect(200);
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn last_member_leaves_room_of_deleted_league() {
    TestApp::run_with_chat(&[], async |app| {
        let (owner, other) = (fan(app, 3).await, fan(app, 4).await);
        for (user, is_deleted) in [(&owner, false), (&other, true)] {
            let league = create(app, user).await;
            work(app).await;
            let room = room_of(user, &league).await;
            assert!(is_in(user, &room).await);
            if is_deleted {
                app.app.leagues.end_all(user.id).await.expect("ended");
            } else {
                user.post(&league_path(&league, "/leave"), json!({})).await.expect(200);
            }
            user.get(&league_path(&league, "")).await.expect(404);
            work(app).await;
            assert!(!is_in(user, &room).await);
        }
    })
    .await;
}

#[tokio::test]
async fn join_of_member_who_has_left_is_undone() {
    TestApp::run_with_chat(&[], async |app| {
        let (owner, member) = (fan(app, 5).await, fan(app, 6).await);
        let league = create(app, &owner).await;
        work(app).await;
        let room = room_of(&owner, &league).await;
        join(&member, &league).await;
        let joined = app.published().await;
        // The invitation cannot be noted until the lock is released.
        let mut blocker = platform::database::begin(app.owner()).await.expect("begun");
        let id = app.app.rooms.find(&room.parse().expect("an id")).await.expect("a room").id;
        let lock = sqlx::query("select 1 from room_activity where room_id = $1 for update").bind(id.0);
        lock.execute(&mut *blocker).await.expect("locked");
        let (subject, payload) = joined.iter().find(|(subject, _)| subject == ROOM).expect("work");
        let leaving = async {
            eventually("the invitation waits", async || {
                let waiting: i64 = sqlx::query_scalar(
                    "select count(*) from pg_stat_activity
                     where datname = current_database() and wait_event_type = 'Lock'",
                )
                .fetch_one(app.owner())
                .await
                .expect("counted");
                waiting > 0
            })
            .await;
            member.post(&league_path(&league, "/leave"), json!({})).await.expect(200);
            assert_eq!(work(app).await, 1, "finds nobody to dismiss");
            blocker.commit().await.expect("released");
        };
        let (performed, ()) = tokio::join!(perform(app, subject, payload), leaving);
        performed.expect("done");
        assert!(!is_in(&member, &room).await);
        let membership = app.app.rooms.membership(member.id, id).await.expect("read");
        assert_eq!(membership, Some(Membership::Leave));
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn handed_over_league_takes_room_along() {
    TestApp::run_with_chat(&[], async |app| {
        let (old, new, helper, outsider) =
            (fan(app, 7).await, fan(app, 8).await, fan(app, 9).await, fan(app, 10).await);
        let league = create(app, &old).await;
        for user in [&new, &helper] {
            join(user, &league).await;
        }
        work(app).await;
        let room = room_of(&old, &league).await;
        let ids = [matrix_id(app, old.id).await, matrix_id(app, new.id).await, matrix_id(app, helper.id).await];
        for user in [&new, &helper] {
            put(&old, &room, &format!("moderators/{}", user.id), &json!({})).await.expect(200);
        }
        old.post(&league_path(&league, "/owner"), json!({"user_id": new.id})).await.expect(200);
        work(app).await;
        let users = levels(app, &room).await["users"].clone();
        assert_eq!(ids.each_ref().map(|id| users[id].as_i64()), [None, Some(50), Some(50)]);
        put(&new, &room, "slow-mode", &json!({"seconds": 30})).await.expect(200);
        let appointed = put(&old, &room, &format!("moderators/{}", outsider.id), &json!({})).await;
        assert_eq!(appointed.expect(403)["code"], "not_the_creator");
        // Only members of the league can be invited, by any member.
        let invite = async |by: &TestUser<'_>, whom: &TestUser<'_>| {
            by.post(&room_path(&room, "invite"), json!({"user_id": whom.id})).await
        };
        assert_eq!(invite(&new, &outsider).await.expect(403)["code"], "not_allowed");
        helper.post(&room_path(&room, "leave"), json!({})).await.expect(200);
        invite(&old, &helper).await.expect(200);
        helper.post(&room_path(&room, "join"), json!({})).await.expect(200);
        work(app).await;
        put(&new, &room, &format!("moderators/{}", helper.id), &json!({})).await.expect(200);
        // Whoever leaves the league loses the role at once, and the room soon.
        new.delete(&league_path(&league, &format!("/members/{}", old.id))).await.expect(200);
        helper.post(&league_path(&league, "/leave"), json!({})).await.expect(200);
        let listed = new.get(&room_path(&room, "moderators")).await.expect(200);
        assert_eq!(listed["data"].as_array().map(Vec::len), Some(1));
        work(app).await;
        let users = levels(app, &room).await["users"].clone();
        assert_eq!(ids.each_ref().map(|id| users[id].as_i64()), [None, Some(50), None]);
        assert!(!is_in(&old, &room).await && !is_in(&helper, &room).await);
        assert_eq!(invite(&new, &old).await.expect(403)["code"], "not_allowed");
        assert_eq!(old.post(&room_path(&room, "join"), json!({})).await.expect(403)["code"], "not_allowed");
        let muted = put(&old, &room, &format!("mutes/{}", new.id), &json!({"seconds": 3600, "reason": "x"})).await;
        assert_eq!(muted.status.as_u16(), 403);
    })
    .await;
}

#[tokio::test]
async fn missing_room_is_planned_once_for_all_members() {
    TestApp::run_with_chat(&[], async |app| {
        let (owner, member) = (fan(app, 11).await, fan(app, 12).await);
        let league = create(app, &owner).await;
        join(&member, &league).await;
        // The work is lost.
        app.published().await;
        assert_eq!(app.app.league_work.plan_missing().await.expect("planned"), 0, "it may still come");
        app.clock.advance(time::Duration::minutes(6));
        assert_eq!(app.app.league_work.plan_missing().await.expect("planned"), 1);
        assert_eq!(work(app).await, 1);
        let room = room_of(&owner, &league).await;
        assert!(is_in(&owner, &room).await && is_in(&member, &room).await);
        assert_eq!(app.app.league_work.plan_missing().await.expect("planned"), 0);
    })
    .await;
}

#[tokio::test]
async fn room_waits_until_chat_is_enabled() {
    TestApp::run(async |app| {
        let owner = app.user().await;
        let league = create(app, &owner).await;
        assert_eq!(work(app).await, 1);
        assert_eq!(owner.get(&league_path(&league, "")).await.expect(200)["data"]["chat_room_id"], Value::Null);
        app.clock.advance(time::Duration::minutes(6));
        assert_eq!(app.app.league_work.plan_missing().await.expect("planned"), 0, "not before there is a homeserver");
    })
    .await;
}

#[tokio::test]
async fn invitation_ends_with_the_membership_in_the_league() {
    TestApp::run_with_chat(&[], async |app| {
        let (owner, member) = (fan(app, 13).await, fan(app, 14).await);
        let league = create(app, &owner).await;
        join(&member, &league).await;
        work(app).await;
        let room = room_of(&owner, &league).await;
        member.post(&room_path(&room, "leave"), json!({})).await.expect(200);
        owner.post(&room_path(&room, "invite"), json!({"user_id": member.id})).await.expect(200);
        // The work that withdraws the invitation is not done yet.
        member.post(&league_path(&league, "/leave"), json!({})).await.expect(200);
        assert_eq!(member.post(&room_path(&room, "join"), json!({})).await.expect(403)["code"], "not_allowed");
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn owner_of_too_many_rooms_gets_no_other() {
    TestApp::run_with_chat(&[], async |app| {
        let owner = fan(app, 15).await;
        // Rooms of leagues that the owner has created and deleted.
        sqlx::query(
            "insert into rooms (alias, name, creator_id, created_at, made_until, is_private, league_id)
             select $1 || n, 'Friends', $2, now(), now(), true, 1000000 + n from generate_series(1, $3) as n",
        )
        .bind(unique("league"))
        .bind(owner.id)
        .bind(MOST_ROOMS)
        .execute(app.owner())
        .await
        .expect("rooms");
        let league = create(app, &owner).await;
        assert_eq!(work(app).await, 1);
        assert_eq!(owner.get(&league_path(&league, "")).await.expect(200)["data"]["chat_room_id"], Value::Null);
        app.clock.advance(time::Duration::minutes(6));
        assert_eq!(app.app.league_work.plan_missing().await.expect("planned"), 0);
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn league_with_chat_has_limited_size() {
    TestApp::run_with(&[("MATCHDAY_LEAGUES__MAX_MEMBERS", "5000")], async |app| {
        let event = app.fixtures().a_match("m").starting_in(FAR).put().await;
        let (user, tournament) = (app.user().await, tournament_of(app, event).await);
        let create = async |most: i32, chat: bool| {
            let body = json!({"name": "Friends", "tournament_ids": [tournament], "max_members": most, "chat": chat});
            user.post("/api/auth/leagues", body).await
        };
        assert_eq!(create(1_001, true).await.invalid_fields(), ["max_members"]);
        create(1_001, false).await.expect(201);
        let league = create(1_000, true).await.expect(201)["data"].take();
        let larger = Some(json!({"max_members": 1_001}).to_string());
        assert_eq!(user.send(Method::PATCH, &league_path(&league, ""), larger).await.invalid_fields(), ["max_members"]);
        app.published().await;
    })
    .await;
}
