//! Login, and its effects on chat.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures_util::{StreamExt as _, future::join_all, stream};
use matchday::testing::{Answer, unique, with_database};
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};
use tokio::sync::Notify;

use crate::{
    client::{Client, Homeserver, PATIENCE, Person, person, server_name, within},
    process::Setting,
    synapse::with_synapse,
};

/// A username that is unused on the shared homeserver.
fn unique_name() -> String {
    unique("fan")
}

#[tokio::test]
async fn code_login_creates_session_and_chat_device() {
    with_database(async |options| {
        let process = Setting::new(&options).start(&["serve"]);
        let (client, chat, name) = (Client::new(&process), Homeserver::of_development(), unique_name());
        let phone = "+14155550100";
        let sent = client.post("/api/code/request", "", json!({"phone": phone})).await.expect(200);
        assert_eq!(sent["data"]["expires_in"], 300);
        let codes = client.codes(phone).await;
        assert_eq!(codes.len(), 1);
        let body = json!({"phone": phone, "code": codes[0], "username": name});
        let entered = person(phone, &client.post("/api/code/verify", "", body.clone()).await.expect(200));
        assert_eq!(entered.username, name);
        let me = client.get("/api/auth/me", &entered.token).await.expect(200);
        assert_eq!((&me["data"]["phone"], &me["data"]["username"]), (&json!(phone), &json!(name)));
        chat.confirm(&name, &entered.chat).await;
        let again = client.post("/api/code/verify", "", body).await.expect(401);
        assert_eq!(again["code"], "invalid_code", "a code is valid once");

        let later = client.log_in(phone, Some("ignored_now")).await;
        let me = client.get("/api/auth/me", &later.token).await.expect(200);
        assert_eq!((&later.username, &me["data"]["username"]), (&name, &json!(name)), "the account is the same");
        assert_ne!(later.chat["device_id"], entered.chat["device_id"]);
        chat.confirm(&name, &later.chat).await;
        chat.confirm(&name, &entered.chat).await;
    })
    .await;
}

/// Checks that the session has ended in the service and in chat.
async fn has_ended(client: &Client, chat: &Homeserver, session: &Person) {
    assert_eq!(client.get("/api/auth/me", &session.token).await.expect(401)["code"], "unauthenticated");
    chat.refuses(session.chat_token()).await;
}

#[tokio::test]
async fn ended_session_removes_only_its_chat_device() {
    with_database(async |options| {
        let process = Setting::new(&options).with("MATCHDAY_SESSIONS__MAX_PER_USER", "2").start(&["serve"]);
        let (client, chat) = (Client::new(&process), Homeserver::of_development());
        let (phone, name) = ("+14155550100", unique_name());
        let stays = async |session: &Person| {
            client.get("/api/auth/me", &session.token).await.expect(200);
            chat.confirm(&name, &session.chat).await;
        };
        let first = client.log_in(phone, Some(&name)).await;
        let second = client.log_in(phone, None).await;
        for session in [&first, &second] {
            stays(session).await;
        }

        let list = client.get("/api/auth/sessions", &first.token).await.expect(200);
        let others: Vec<&Value> =
            list["data"].as_array().expect("a list").iter().filter(|session| session["current"] == false).collect();
        assert_eq!(others.len(), 1);
        client.delete(&format!("/api/auth/sessions/{}", others[0]["id"]), &first.token).await.expect(200);
        has_ended(&client, &chat, &second).await;
        stays(&first).await;

        let third = client.log_in(phone, None).await;
        client.post("/api/auth/logout", &third.token, json!({})).await.expect(200);
        has_ended(&client, &chat, &third).await;
        stays(&first).await;

        let fourth = client.log_in(phone, None).await;
        stays(&first).await;
        let fifth = client.log_in(phone, None).await;
        has_ended(&client, &chat, &first).await;
        for session in [&fourth, &fifth] {
            stays(session).await;
        }
    })
    .await;
}

/// Uses a private homeserver, because on the shared one a generated name may already belong to a deactivated account.
#[tokio::test]
async fn replaced_username_moves_to_new_chat_account() {
    with_database(async |options| {
        with_synapse(&options, async |synapse| {
            let setting = synapse.setting(&options);
            let process = setting.start(&["serve"]);
            let (client, chat) = (Client::new(&process), Homeserver::at(&synapse.url));
            let phone = "+14155550100";
            let (here, elsewhere) = (client.log_in(phone, None).await, client.log_in(phone, None).await);
            let old = &here.username;
            for session in [&here, &elsewhere] {
                chat.confirm(old, &session.chat).await;
            }

            let change = json!({"username": "ada.of.the.cup"});
            let saved = client.post("/api/auth/update-user-info", &here.token, change).await.expect(200);
            assert_eq!(saved["data"]["username"], "ada.of.the.cup");
            chat.confirm("ada.of.the.cup", &saved["data"]["matrix_credentials"]).await;
            for session in [&here, &elsewhere] {
                chat.refuses(session.chat_token()).await;
                client.get("/api/auth/me", &session.token).await.expect(200);
            }

            // Tokens become invalid before the account is deactivated. The work is complete when the service has
            // counted both: the account, and the device that was replaced.
            within(PATIENCE, "account and device are removed on the homeserver", async || {
                let metrics = reqwest::get(format!("{}/metrics", process.private)).await.expect("a response");
                let text = metrics.text().await.expect("text");
                ["chat", "chat_security"].iter().all(|consumer| {
                    let done = format!("matchday_work_total{{consumer=\"{consumer}\",outcome=\"done\"}} 1");
                    text.lines().any(|line| line == done)
                })
            })
            .await;
            // Even the service can no longer log in to the old account.
            let log_in = json!({
                "type": "m.login.application_service",
                "identifier": {"type": "m.id.user", "user": format!("@{old}:{}", server_name())},
            });
            let as_token = &setting.variables()["MATCHDAY_MATRIX__AS_TOKEN"];
            let (status, reply) = chat.post("/_matrix/client/v3/login", as_token, log_in).await;
            assert_eq!((status, &reply["errcode"]), (403, &json!("M_USER_DEACTIVATED")), "{reply}");

            let renewed = client.renew_chat(&elsewhere.token).await.expect(200);
            chat.confirm("ada.of.the.cup", &renewed["data"]["matrix_credentials"]).await;
            let later = client.log_in(phone, None).await;
            chat.confirm("ada.of.the.cup", &later.chat).await;
            chat.confirm("ada.of.the.cup", &saved["data"]["matrix_credentials"]).await;
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn sessions_ended_during_homeserver_outage_lose_chat_devices() {
    with_database(async |options| {
        with_synapse(&options, async |synapse| {
            let setting = synapse.setting(&options);
            let process = setting.start(&["serve"]);
            let (client, chat) = (Client::new(&process), Homeserver::at(&synapse.url));
            let phone = "+14155550100";
            let [stays, renews, leaves] =
                [client.log_in(phone, None).await, client.log_in(phone, None).await, client.log_in(phone, None).await];
            for session in [&stays, &renews, &leaves] {
                chat.confirm(&session.username, &session.chat).await;
            }

            synapse.kill();
            let refused = client.renew_chat(&renews.token).await;
            let after = refused.header("retry-after").and_then(|seconds| seconds.parse::<u64>().ok());
            assert!(after.is_some_and(|seconds| (1..=60).contains(&seconds)), "{after:?}");
            assert_eq!(refused.expect(503)["code"], "chat_unavailable");
            client.post("/api/auth/logout", &leaves.token, json!({})).await.expect(200);
            client.get("/api/auth/me", &renews.token).await.expect(200);
            let without = client.log_in(phone, None).await;
            assert_eq!(without.chat, Value::Null, "a login without chat");

            synapse.start().await;
            let renewed = renewed(&client, &renews.token).await;
            chat.confirm(&renews.username, &renewed).await;
            for session in [&renews, &leaves] {
                chat.refuses(session.chat_token()).await;
            }
            let known = BTreeSet::from([&stays.chat, &renewed].map(device));
            within(PATIENCE, "exactly the sessions with credentials have devices", async || {
                chat.devices(access_token(&renewed)).await == known
            })
            .await;
            chat.confirm(&stays.username, &stays.chat).await;
        })
        .await;
    })
    .await;
}

fn access_token(credentials: &Value) -> &str {
    credentials["access_token"].as_str().expect("a token")
}

fn device(credentials: &Value) -> String {
    credentials["device_id"].as_str().expect("a device").to_owned()
}

/// New chat credentials of a session. Retries, because the service calls a recovered homeserver only after a pause.
async fn renewed(client: &Client, token: &str) -> Value {
    let got = Mutex::new(Value::Null);
    within(PATIENCE, "chat credentials are available again", async || {
        let answer = client.renew_chat(token).await;
        if answer.status == 503 {
            assert_eq!(answer.expect(503)["code"], "chat_unavailable");
            return false;
        }
        *got.lock().expect("not poisoned") = answer.expect(200)["data"]["matrix_credentials"].take();
        true
    })
    .await;
    got.into_inner().expect("not poisoned")
}

const LOGINS: usize = 100;
const AT_ONCE: usize = 10;
const KILLED_AFTER: usize = 30;

/// The homeserver dies during a hundred logins. Each login succeeds, or gets 503 and can be retried. No user gets two
/// accounts, and all users get chat credentials once it is back.
#[tokio::test]
async fn homeserver_killed_during_logins_loses_no_account() {
    with_database(async |options| {
        with_synapse(&options, async |synapse| {
            let process = synapse.setting(&options).start(&["serve"]);
            let (client, chat) = (Client::new(&process), Homeserver::at(&synapse.url));
            let phones: Vec<String> = (0..LOGINS).map(|number| format!("+1415555{number:04}")).collect();

            let (next, finished, enough) = (AtomicUsize::new(0), AtomicUsize::new(0), Notify::new());
            let answers: Mutex<BTreeMap<&str, Answer>> = Mutex::default();
            let log_in_one_by_one = async || {
                while let Some(phone) = phones.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let code = client.code(phone).await;
                    let answer = client.post("/api/code/verify", "", json!({"phone": phone, "code": code})).await;
                    answers.lock().expect("not poisoned").insert(phone, answer);
                    if finished.fetch_add(1, Ordering::Relaxed) + 1 == KILLED_AFTER {
                        enough.notify_one();
                    }
                }
            };
            let kill = async {
                enough.notified().await;
                synapse.kill();
            };
            tokio::join!(join_all((0..AT_ONCE).map(|_| log_in_one_by_one())), kill);

            let mut people = Vec::new();
            let mut refused = Vec::new();
            for (phone, answer) in answers.into_inner().expect("not poisoned") {
                match answer.status.as_u16() {
                    200 => people.push(person(phone, &answer.expect(200))),
                    // The client may retry, and the error has the usual format.
                    503 => {
                        assert!(answer.header("retry-after").is_some());
                        answer.expect(503);
                        refused.push(phone);
                    }
                    status => panic!("a login returned {status}: {}", String::from_utf8_lossy(&answer.bytes)),
                }
            }
            assert_eq!(people.len() + refused.len(), LOGINS);
            let (with_chat, without): (Vec<&Person>, Vec<&Person>) =
                people.iter().partition(|one| one.chat != Value::Null);
            let (many, few) = (with_chat.len(), without.len());
            assert!(
                many > 0 && few > 0,
                "the homeserver did not die during the logins: {many} logins with chat, {few} without"
            );
            for one in &people {
                let me = client.get("/api/auth/me", &one.token).await.expect(200);
                assert_eq!((&me["data"]["phone"], &me["data"]["username"]), (&json!(one.phone), &json!(one.username)));
            }
            let mut database = PgConnection::connect_with(&options).await.expect("connected");
            let owners = accounts_that_agree(&mut database).await;
            for one in &people {
                assert_eq!(owners.get(&one.phone), Some(&one.username), "{} has another account", one.phone);
            }
            let strangers: Vec<_> = owners.keys().filter(|phone| !phones.contains(phone)).collect();
            assert!(strangers.is_empty(), "{strangers:?}");

            synapse.start().await;
            for one in &with_chat {
                chat.confirm(&one.username, &one.chat).await;
            }
            for &phone in &refused {
                people.push(client.log_in(phone, None).await);
            }
            let get_into_chat = async |one: Person| {
                let credentials = renewed(&client, &one.token).await;
                chat.confirm(&one.username, &credentials).await;
                // Devices that the dying homeserver created without the service learning of them are removed too. A
                // user whose request got 503 may have a session that the client does not have.
                if !refused.contains(&one.phone.as_str()) {
                    within(PATIENCE, "no other device is left", async || {
                        chat.devices(access_token(&credentials)).await == BTreeSet::from([device(&credentials)])
                    })
                    .await;
                }
                one.phone
            };
            let got_in: BTreeSet<String> =
                stream::iter(people).map(get_into_chat).buffer_unordered(AT_ONCE).collect().await;
            assert_eq!(got_in, phones.iter().cloned().collect());
            let owners = accounts_that_agree(&mut database).await;
            assert_eq!(owners.into_keys().collect::<BTreeSet<_>>(), got_in);
            database.close().await.expect("closed");
        })
        .await;
    })
    .await;
}

/// Usernames by phone, after checking that accounts and claims agree.
async fn accounts_that_agree(database: &mut PgConnection) -> BTreeMap<String, String> {
    let mut read = async |query: &'static str| -> Vec<(String, i64)> {
        sqlx::query_as(query).fetch_all(&mut *database).await.expect("read")
    };
    let phones = read("select phone, user_id from users order by 1, 2").await;
    assert_eq!(phones, read("select phone, user_id from phone_claims order by 1, 2").await);
    let names = read("select username, user_id from users order by 1, 2").await;
    assert_eq!(names, read("select username, user_id from username_claims order by 1, 2").await);
    let names: BTreeMap<i64, String> = names.into_iter().map(|(name, user)| (user, name)).collect();
    let owners: BTreeMap<String, String> =
        phones.iter().map(|(phone, user)| (phone.clone(), names[user].clone())).collect();
    assert_eq!((owners.len(), names.len()), (phones.len(), phones.len()), "one account per phone");
    owners
}
