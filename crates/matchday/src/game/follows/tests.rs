//! Follows through the router, on a real database.

use std::time::Duration as StdDuration;

use futures_util::future::{BoxFuture, join_all};
use http::Method;
use platform::rate_limit::Limit;
use serde_json::{Value, json};
use time::Duration;
use web::ids::UserId;

use super::{rules::slot_of, service::Follows};
use crate::{
    identity::{account_deletion::hooks::Follows as _, accounts::restrictions::Restriction, operators::Operator},
    testing::{Answer, TestApp, TestUser, eventually},
};

const PHONE: &str = "+14155550123";

async fn put(user: &TestUser<'_>, other: impl std::fmt::Display) -> Answer {
    user.send(Method::PUT, &format!("/api/auth/follows/{other}"), None).await
}

async fn remove(user: &TestUser<'_>, other: impl std::fmt::Display) -> Answer {
    user.delete(&format!("/api/auth/follows/{other}")).await
}

async fn listed(user: &TestUser<'_>, list: &str) -> Vec<i64> {
    let body = user.get(&format!("/api/auth/{list}")).await.expect(200);
    let rows = body["data"].as_array().expect("a list").iter();
    rows.map(|row| row["user"]["id"].as_i64().expect("an id")).collect()
}

async fn total(user: &TestUser<'_>, list: &str) -> i64 {
    user.get(&format!("/api/auth/{list}")).await.expect(200)["meta"]["total"].as_i64().expect("a number")
}

async fn username(user: &TestUser<'_>) -> String {
    user.get("/api/auth/me").await.expect(200)["data"]["username"].as_str().expect("a name").to_owned()
}

async fn restrict(app: &TestApp, user: UserId, restriction: Restriction) {
    app.app.moderation.restrict(user, restriction, &Operator::new("ola", "spam")).await.expect("done");
    app.published().await;
}

async fn block(user: &TestUser<'_>, other: UserId) -> Answer {
    user.post(&format!("/api/auth/blocks/{other}"), json!({})).await
}

/// Checks that both tables have the same follows, and the counts their numbers.
async fn assert_counts(app: &TestApp) {
    let faults: Vec<String> = sqlx::query_scalar(
        "select 'follows ' || f.user_id || ' ' || f.followed_id from follows f
         full join followers r on r.user_id = f.followed_id and r.follower_id = f.user_id
             and r.followed_at = f.followed_at
         where f.user_id is null or r.user_id is null
         union all
         select 'counts of ' || u.user_id from users u
         left join (select user_id, sum(followers) as followers, sum(following) as following
                    from follow_counts group by user_id) c using (user_id)
         where u.deleted_at is null
           and (coalesce(c.followers, 0) <> (select count(*) from followers f where f.user_id = u.user_id)
                or coalesce(c.following, 0) <> (select count(*) from follows f where f.user_id = u.user_id))",
    )
    .fetch_all(&app.app.core.db)
    .await
    .expect("read");
    assert_eq!(faults, Vec::<String>::new());
}

#[tokio::test]
async fn follow_is_created_once_and_ended() {
    TestApp::run(async |app| {
        let (ada, ben) = (app.user().await, app.user().await);
        let name = username(&ben).await;
        let made = put(&ada, ben.id).await.expect(200);
        let expected = json!({
            "user": {"id": ben.id, "username": name, "name": null, "avatar_url": null},
            "followed_at": "2026-11-20T15:00:00.000Z", "is_following": true, "follows_me": false,
        });
        assert_eq!(made, json!({"message": "You follow this user.", "data": expected}));
        app.clock.advance(Duration::minutes(1));
        assert_eq!(put(&ada, name.to_uppercase()).await.expect(200)["data"], expected, "a repetition changes nothing");
        let list = ada.get("/api/auth/follows").await.expect(200);
        assert_eq!(list, json!({"data": [expected], "meta": {"next_cursor": null, "total": 1}}));
        let follower = &ben.get("/api/auth/followers").await.expect(200)["data"][0];
        assert_eq!(
            (&follower["user"]["id"], &follower["is_following"], &follower["follows_me"]),
            (&json!(ada.id), &json!(false), &json!(true))
        );
        assert_eq!(put(&ben, ada.id).await.expect(200)["data"]["follows_me"], true);
        assert_eq!(ada.get("/api/auth/follows").await.expect(200)["data"][0]["follows_me"], true);
        assert_counts(app).await;
        for other in [name, ben.id.to_string()] {
            assert_eq!(remove(&ada, other).await.expect(200), json!({"message": "You do not follow this user."}));
        }
        assert_eq!((listed(&ada, "follows").await, total(&ada, "follows").await), (Vec::new(), 0));
        assert_eq!((total(&ben, "followers").await, total(&ben, "follows").await), (0, 1));
        assert_counts(app).await;
    })
    .await;
}

#[tokio::test]
async fn invisible_users_cannot_be_followed() {
    TestApp::run(async |app| {
        let (ada, banned, blocked, blocking) = (app.user().await, app.user().await, app.user().await, app.user().await);
        restrict(app, banned.id, Restriction::Ban).await;
        block(&ada, blocked.id).await.expect(200);
        block(&blocking, ada.id).await.expect(200);
        app.published().await;
        let unknown = put(&ada, 999_999_999).await.expect(404);
        assert_eq!((&unknown["code"], &unknown["message"]), (&json!("not_found"), &json!("The user was not found.")));
        let invisible = [banned.id, blocked.id, blocking.id].map(|id| id.to_string());
        let unknown_names = ["0", "01", "-1", "nobody_here", "a", "@x", "a%20b", "a%00b"].map(str::to_owned);
        for other in invisible.iter().chain(&unknown_names) {
            assert_eq!(put(&ada, other).await.expect(404), unknown, "{other}");
        }
        for other in &invisible {
            remove(&ada, other).await.expect(200);
        }
        for other in &unknown_names {
            assert_eq!(remove(&ada, other).await.expect(404), unknown, "{other}");
        }
        for own in [ada.id.to_string(), username(&ada).await] {
            assert_eq!(put(&ada, &own).await.invalid_fields(), ["user"]);
            remove(&ada, own).await.expect(200);
        }
        restrict(app, banned.id, Restriction::Unban).await;
        put(&ada, banned.id).await.expect(200);
        for (method, path) in [
            (Method::PUT, "follows/1"),
            (Method::DELETE, "follows/1"),
            (Method::GET, "follows"),
            (Method::GET, "followers"),
        ] {
            app.anonymous(method, &format!("/api/auth/{path}")).await.expect(401);
        }
    })
    .await;
}

#[tokio::test]
async fn number_of_follows_is_limited() {
    TestApp::run_with(&[("MATCHDAY_FOLLOWS__MAX", "2")], async |app| {
        let (ada, others) = (app.user().await, [app.user().await, app.user().await, app.user().await]);
        put(&ada, others[0].id).await.expect(200);
        // Concurrent requests cannot exceed the limit either.
        let answers = join_all(others[1..].iter().map(|other| put(&ada, other.id))).await;
        let mut statuses: Vec<u16> = answers.iter().map(|answer| answer.status.as_u16()).collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 409]);
        let refused = answers.into_iter().find(|answer| answer.status == 409).expect("one refusal");
        assert_eq!(refused.expect(409)["code"], "too_many_follows");
        put(&ada, others[0].id).await.expect(200);
        remove(&ada, others[0].id).await.expect(200);
        put(&ada, others[0].id).await.expect(200);
        assert_eq!(total(&ada, "follows").await, 2);
        assert_counts(app).await;
    })
    .await;
}

#[tokio::test]
async fn requests_are_limited_for_each_user() {
    TestApp::run(async |app| {
        let services = &app.app;
        let limit = Limit { name: "follow", burst: 2, every: StdDuration::from_secs(1) };
        let follows = Follows::with_limit(&services.core, services.accounts.clone(), &services.config.follows, limit);
        let allowed = async |user: i64| follows.permit(UserId(user)).await.allowed;
        assert_eq!([allowed(1).await, allowed(1).await, allowed(1).await, allowed(2).await], [true, true, false, true]);
        app.clock.advance(Duration::seconds(1));
        assert_eq!([allowed(1).await, allowed(1).await], [true, false], "one more each second");
    })
    .await;
}

#[tokio::test]
async fn cursors_walk_lists_without_suspended_users() {
    TestApp::run(async |app| {
        let ada = app.user().await;
        let mut others = Vec::new();
        for number in 0..7 {
            let other = app.user().await;
            put(&ada, other.id).await.expect(200);
            put(&other, ada.id).await.expect(200);
            // Two follows at the same time are in the order of the users.
            if number != 3 {
                app.clock.advance(Duration::seconds(1));
            }
            others.push(other);
        }
        restrict(app, others[5].id, Restriction::Ban).await;
        restrict(app, others[1].id, Restriction::Ban).await;
        let expected: Vec<i64> = [6, 4, 3, 2, 0].map(|index: usize| others[index].id.0).to_vec();
        for list in ["follows", "followers"] {
            assert_eq!(listed(&ada, list).await, expected);
            for per_page in 1..=6 {
                let (mut found, mut cursor, mut pages) = (Vec::new(), Value::Null, 0);
                loop {
                    let after = cursor.as_str().map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
                    let page = ada.get(&format!("/api/auth/{list}?per_page={per_page}{after}")).await.expect(200);
                    let rows = page["data"].as_array().expect("a list");
                    assert!(rows.len() <= per_page, "{rows:?}");
                    found.extend(rows.iter().map(|row| row["user"]["id"].as_i64().expect("an id")));
                    assert_eq!(page["meta"]["total"], 7, "counts keep suspended users");
                    cursor = page["meta"]["next_cursor"].clone();
                    pages += 1;
                    if cursor.is_null() || pages > 10 {
                        break;
                    }
                }
                assert_eq!(found, expected, "{list} {per_page}");
            }
            for (query, field) in
                [("cursor=x!", "cursor"), ("cursor=", "cursor"), ("per_page=0", "per_page"), ("per_page=x", "per_page")]
            {
                let faulty = ada.get(&format!("/api/auth/{list}?{query}")).await;
                assert_eq!(faulty.invalid_fields(), [field], "{query}");
            }
            ada.get(&format!("/api/auth/{list}?per_page=1000")).await.expect(200);
        }
        assert_counts(app).await;
    })
    .await;
}

#[tokio::test]
async fn block_ends_follows_in_both_directions() {
    TestApp::run(async |app| {
        let (ada, ben, cleo) = (app.user().await, app.user().await, app.user().await);
        for (one, other) in [(&ada, &ben), (&ben, &ada), (&ada, &cleo)] {
            put(one, other.id).await.expect(200);
        }
        // A block by name, in any case.
        ada.post(&format!("/api/auth/blocks/{}", username(&ben).await.to_uppercase()), json!({})).await.expect(200);
        assert_eq!((listed(&ada, "follows").await, listed(&ada, "followers").await), (vec![cleo.id.0], Vec::new()));
        assert_eq!((listed(&ben, "follows").await, listed(&ben, "followers").await), (Vec::new(), Vec::new()));
        assert_counts(app).await;
        put(&ada, ben.id).await.expect(404);
        put(&ben, ada.id).await.expect(404);
        // The blocked user can block as well, and name the other one although the profile is invisible.
        ben.post(&format!("/api/auth/blocks/{}", username(&ada).await), json!({})).await.expect(200);
        ben.delete(&format!("/api/auth/blocks/{}", username(&ada).await)).await.expect(200);
        ada.delete(&format!("/api/auth/blocks/{}", username(&ben).await)).await.expect(200);
        assert_eq!(listed(&ben, "follows").await, Vec::<i64>::new(), "lifting a block restores nothing");
        put(&ben, ada.id).await.expect(200);
        ada.post("/api/auth/blocks/no_such_user", json!({})).await.expect(404);
        ada.delete("/api/auth/blocks/no_such_user").await.expect(404);
        let own = ada.post(&format!("/api/auth/blocks/{}", username(&ada).await), json!({})).await;
        assert_eq!(own.invalid_fields(), ["user"]);
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn deleted_account_leaves_lists_at_once_and_counts_soon() {
    TestApp::run(async |app| {
        let (gone, _) = app.log_in(PHONE).await;
        let (ada, ben) = (app.user().await, app.user().await);
        for (one, other) in [(&gone, &ada), (&ada, &gone), (&ben, &gone), (&ada, &ben)] {
            put(one, other.id).await.expect(200);
        }
        let export = gone.get("/api/auth/me/export").await.expect(200);
        let ids = |table: &str, column: &str| -> Vec<i64> {
            let rows = export["data"][table].as_array().unwrap_or_else(|| panic!("no {table}: {export}")).iter();
            rows.map(|row| row[column].as_i64().expect("an id")).collect()
        };
        assert_eq!(ids("follows", "followed_id"), [ada.id.0]);
        let mut followers = ids("followers", "follower_id");
        followers.sort_unstable();
        assert_eq!(followers, [ada.id.0, ben.id.0]);

        // More follows in both directions than one transaction deletes.
        make_fans(app, gone.id, 450).await;
        follow_back(app, gone.id).await;
        // The transaction of the deletion does not wait for follows that others are changing.
        let mut held = platform::database::begin(app.owner()).await.expect("a transaction");
        sqlx::query("select 1 from follows where user_id = $1 for update")
            .bind(ben.id)
            .execute(&mut *held)
            .await
            .expect("held");
        gone.send(Method::POST, "/api/auth/me/deletion", None).await.expect(200);
        let code = app.codes(PHONE).await.remove(0);
        gone.send(Method::DELETE, "/api/auth/me", Some(json!({"code": code}).to_string())).await.expect(200);
        assert_eq!((listed(&ada, "follows").await, listed(&ada, "followers").await), (vec![ben.id.0], Vec::new()));
        put(&ada, gone.id).await.expect(404);
        remove(&ada, gone.id).await.expect(404);
        held.rollback().await.expect("released");
        eventually("the counts follow", async || {
            total(&ada, "follows").await == 1
                && total(&ada, "followers").await == 0
                && total(&ben, "follows").await == 0
        })
        .await;
        eventually("the counts of all fans follow", async || fans_with(app, (0, 0, 1)).await == 450).await;
        // A request that was in progress adds a follow after that. The worker finds it.
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!(
            "insert into follows values ({ben}, {gone}, now()); insert into followers values ({gone}, {ben}, now());
             update follow_counts set following = following + 1 where user_id = {ben} and slot = 0;
             insert into follow_counts (user_id, slot, followers) values ({gone}, 5, 1)",
            ben = ben.id,
            gone = gone.id
        )))
        .execute(&app.app.core.db)
        .await
        .expect("a late follow");
        app.clock.advance(Duration::minutes(10));
        app.app.account_deletion.finish_due().await.expect("finished");
        let left: i64 = sqlx::query_scalar(
            "select (select count(*) from follows where user_id = $1 or followed_id = $1)
                  + (select count(*) from followers where user_id = $1 or follower_id = $1)
                  + (select count(*) from follow_counts where user_id = $1)",
        )
        .bind(gone.id)
        .fetch_one(&app.app.core.db)
        .await
        .expect("read");
        assert_eq!(left, 0);
        assert_counts(app).await;
        app.published().await;
    })
    .await;
}

/// Makes users who follow this user.
async fn make_fans(app: &TestApp, user: UserId, number: u32) {
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!(
        "with fans as (insert into users (created_at, username)
                       select now(), 'fan_' || n from generate_series(1, {number}) n returning user_id),
              followed as (insert into follows select user_id, {user}, now() from fans),
              counted as (insert into follow_counts (user_id, slot, following) select user_id, 0, 1 from fans)
         insert into followers select {user}, user_id, now() from fans"
    )))
    .execute(app.owner())
    .await
    .expect("fans");
}

/// Makes this user follow all fans, without a change of the user's own counts.
async fn follow_back(app: &TestApp, user: UserId) {
    let slot = slot_of(user);
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!(
        "insert into follows select {user}, user_id, now() from users where starts_with(username, 'fan_');
         insert into followers select user_id, {user}, now() from users where starts_with(username, 'fan_');
         insert into follow_counts as c (user_id, slot, followers)
         select user_id, {slot}, 1 from users where starts_with(username, 'fan_')
         on conflict (user_id, slot) do update set followers = c.followers + 1"
    )))
    .execute(app.owner())
    .await
    .expect("follows");
}

/// Returns the number of fans with these numbers of followers and followed users, and this version of the latter.
async fn fans_with(app: &TestApp, (followers, following, version): (i64, i64, i64)) -> i64 {
    sqlx::query_scalar(
        "select count(*) from (
             select sum(c.followers) as followers, sum(c.following) as following, sum(c.following_version) as version
             from users u join follow_counts c using (user_id) where starts_with(u.username, 'fan_') group by u.user_id) f
         where (followers, following, version) = ($1::bigint, $2::bigint, $3::bigint)",
    )
    .bind(followers)
    .bind(following)
    .bind(version)
    .fetch_one(&app.app.core.db)
    .await
    .expect("read")
}

/// The deletions change the same counts, and each runs in two processes.
#[tokio::test]
async fn concurrent_deletions_with_common_followers_succeed() {
    TestApp::run(async |app| {
        let (one, other, third) = (app.user().await, app.user().await, app.user().await);
        make_fans(app, one.id, 450).await;
        follow_back(app, other.id).await;
        follow_back(app, third.id).await;
        let outcomes =
            join_all([one.id, other.id, third.id, one.id, other.id].map(|user| app.app.follows.forget(user))).await;
        for outcome in outcomes {
            outcome.expect("forgotten");
        }
        assert_eq!(fans_with(app, (0, 0, 1)).await, 450);
        assert_counts(app).await;
    })
    .await;
}

/// A user can have more followers than one statement of the export reads.
#[tokio::test]
async fn export_has_the_ids_of_all_followers() {
    const FOLLOWERS: i64 = 20_500;
    TestApp::run(async |app| {
        let user = app.user().await;
        sqlx::query("insert into followers select $1, n, now() from generate_series($2::bigint, $3::bigint) n")
            .bind(user.id)
            .bind(1_000_000_i64)
            .bind(1_000_000 + FOLLOWERS - 1)
            .execute(&app.app.core.db)
            .await
            .expect("followers");
        let export = user.get("/api/auth/me/export").await.expect(200);
        let found = export["data"]["followers"].as_array().expect("a list");
        let expected: Vec<Value> = (0..FOLLOWERS).map(|n| json!({"follower_id": 1_000_000 + n})).collect();
        assert!(*found == expected, "{} followers", found.len());
    })
    .await;
}

/// Users follow, unfollow and block each other at the same time. Afterwards the counts equal the rows, and no follow
/// crosses a block.
#[tokio::test]
async fn counts_survive_races() {
    TestApp::run(async |app| {
        let mut users = Vec::new();
        for _ in 0..6 {
            users.push(app.user().await);
        }
        for round in 0..6_usize {
            let mut requests: Vec<BoxFuture<'_, ()>> = Vec::new();
            for (at, user) in users.iter().enumerate() {
                for (other_at, other) in users.iter().enumerate().filter(|(other_at, _)| *other_at != at) {
                    requests.push(Box::pin(async move {
                        let answer = match (at * 7 + other_at * 3 + round * 5) % 8 {
                            0 | 1 => remove(user, other.id).await,
                            2 => block(user, other.id).await,
                            3 => user.delete(&format!("/api/auth/blocks/{}", other.id)).await,
                            _ => put(user, other.id).await,
                        };
                        assert!(matches!(answer.status.as_u16(), 200 | 404), "{}", answer.status);
                    }));
                    // The same follow twice at the same time.
                    requests.push(Box::pin(async move { drop(put(user, other.id).await) }));
                }
            }
            join_all(requests).await;
            assert_counts(app).await;
            let crossing: i64 = sqlx::query_scalar(
                "select count(*) from follows f join blocks b
                 on (b.user_id, b.blocked_id) in ((f.user_id, f.followed_id), (f.followed_id, f.user_id))",
            )
            .fetch_one(&app.app.core.db)
            .await
            .expect("read");
            assert_eq!(crossing, 0, "round {round}");
        }
        app.published().await;
    })
    .await;
}
