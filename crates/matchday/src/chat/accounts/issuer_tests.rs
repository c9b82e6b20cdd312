//! Tests with another issuer of credentials than the homeserver. They show that all credentials come from the trait: the
//! homeserver of these tests knows no users, and fails the test if it is asked for one.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use http::Method;
use matrix_appservice::{
    ChatServer, CredentialIssuer, Credentials, Error, Issuing, OwnedDeviceId, Purpose, Registered, UserId as MatrixId,
};
use platform::{budget::Budget, stream::Delivery};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use time::Duration;
use tokio::sync::oneshot;

use super::{
    service::{BUDGET, Chat, ChatError},
    store,
    work::ChatWork,
};
use crate::{
    identity::{
        account_deletion::{hooks::Hooks, service::AccountDeletion},
        accounts::service::{NAME_CHANGED, RENAMED},
        avatars::service::AVATAR_CHANGED,
        sessions::service::{DEVICE_ENDED, REVOKED},
    },
    testing::{Receiver, Reply, TINY_PNG, TestApp, eventually, unique},
};

/// Issues credentials from memory, like an authentication service in front of the homeserver.
#[derive(Clone, Default)]
struct FakeIssuer {
    users: Arc<Mutex<BTreeMap<String, FakeUser>>>,
    /// The next registration waits for this.
    hold: Arc<Mutex<Option<oneshot::Receiver<()>>>>,
}

#[derive(Default)]
struct FakeUser {
    devices: BTreeSet<String>,
    is_deactivated: bool,
    /// Tokens issued so far, so that each has another value.
    issued: usize,
}

impl FakeIssuer {
    fn with<T>(&self, localpart: &str, act: impl FnOnce(&mut FakeUser) -> T) -> Result<T, Error> {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        match users.get_mut(localpart) {
            None => Err(Error::NoSuchUser(id_of(localpart))),
            Some(user) if user.is_deactivated => Err(Error::Deactivated(id_of(localpart))),
            Some(user) => Ok(act(user)),
        }
    }

    /// Makes the next registration wait until the returned sender is used.
    fn hold_registration(&self) -> oneshot::Sender<()> {
        let (release, hold) = oneshot::channel();
        *self.hold.lock().unwrap_or_else(PoisonError::into_inner) = Some(hold);
        release
    }

    /// Whether a registration has begun since [`Self::hold_registration`].
    fn is_holding(&self) -> bool {
        self.hold.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    fn devices_of(&self, localpart: &str) -> Vec<String> {
        self.with(localpart, |user| user.devices.iter().cloned().collect()).expect("an active user")
    }

    fn is_deactivated(&self, localpart: &str) -> bool {
        matches!(self.with(localpart, |_| ()), Err(Error::Deactivated(_)))
    }
}

fn id_of(localpart: &str) -> matrix_appservice::OwnedUserId {
    MatrixId::parse(format!("@{localpart}:matchday.localhost")).expect("an id")
}

fn ready<'a, T: Send + 'a>(outcome: Result<T, Error>) -> Issuing<'a, T> {
    Box::pin(std::future::ready(outcome))
}

impl CredentialIssuer for FakeIssuer {
    fn for_purpose(&self, _: Purpose) -> Arc<dyn CredentialIssuer> {
        Arc::new(self.clone())
    }

    fn is_breaker_open(&self) -> bool {
        false
    }

    fn register<'a>(&'a self, localpart: &'a str) -> Issuing<'a, Registered> {
        Box::pin(async move {
            let hold = self.hold.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(hold) = hold {
                hold.await.expect("released");
            }
            let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
            let is_new = !users.contains_key(localpart);
            users.entry(localpart.to_owned()).or_default();
            Ok(if is_new { Registered::New } else { Registered::AlreadyExists })
        })
    }

    fn issue<'a>(&'a self, localpart: &'a str, device_id: &'a str, _: &'a str) -> Issuing<'a, Credentials> {
        ready(self.with(localpart, |user| {
            user.issued += 1;
            user.devices.insert(device_id.to_owned());
            Credentials {
                user_id: id_of(localpart),
                access_token: format!("mpt_{}", user.issued).into(),
                device_id: device_id.into(),
            }
        }))
    }

    fn devices<'a>(&'a self, localpart: &'a str) -> Issuing<'a, Vec<OwnedDeviceId>> {
        ready(self.with(localpart, |user| user.devices.iter().map(|id| id.as_str().into()).collect()))
    }

    fn revoke<'a>(&'a self, localpart: &'a str, device_id: &'a str) -> Issuing<'a, ()> {
        let _ = self.with(localpart, |user| user.devices.remove(device_id));
        ready(Ok(()))
    }

    fn deactivate<'a>(&'a self, localpart: &'a str, _: bool) -> Issuing<'a, ()> {
        let _ = self.with(localpart, |user| {
            user.is_deactivated = true;
            user.devices.clear();
        });
        ready(Ok(()))
    }
}

/// Services that take credentials from the fake issuer, on the database of a test.
struct Services {
    chat: Chat,
    work: ChatWork,
    deletion: AccountDeletion,
    homeserver: Receiver,
}

impl Services {
    fn new(app: &TestApp, issuer: &FakeIssuer, receiver: Receiver) -> Self {
        let (core, config) = (&app.app.core, &app.app.config);
        let (sessions, accounts) = (app.app.sessions.clone(), app.app.accounts.clone());
        let homeserver = super::service::homeserver(&config.matrix, app.web.clone()).expect("settings");
        let homeserver = homeserver.expect("a homeserver").homeserver;
        let server = ChatServer { homeserver, issuer: Arc::new(issuer.clone()) };
        let (redis, random) = (app.app.redis.clone(), core.random.clone());
        let budget = Budget::new(redis, &config.redis.prefix, "homeserver", random, BUDGET);
        let chat = Chat::new(core, &config.matrix, Some(&server), sessions, accounts.clone(), budget);
        let work = ChatWork {
            db: core.db.clone(),
            chat: chat.clone(),
            rooms: app.app.rooms.clone(),
            accounts,
            avatars: app.app.avatars.clone(),
            moderation: app.app.moderation.clone(),
            sms: app.app.sms.clone(),
            has_pushers: false,
        };
        let deletion = AccountDeletion::new(
            core,
            app.app.login.clone(),
            app.app.phone_moves.clone(),
            app.app.avatars.clone(),
            Hooks {
                memberships: Arc::new(app.app.membership_sync.clone()),
                receipts: Arc::new(app.app.predictions.clone()),
                follows: Arc::new(app.app.follows.clone()),
            },
            Some(server),
            config.matrix.server_name.clone(),
            app.app.streams.clone(),
        );
        Self { chat, work, deletion, homeserver: receiver }
    }

    /// Display names of a user that the homeserver has received, in order.
    fn display_names(&self, username: &str) -> Vec<String> {
        let seen = self.homeserver.seen();
        let is_name = |path: &str| path.contains("/displayname") && path.contains(username);
        let named = seen.iter().filter(|request| is_name(&request.path));
        named.map(|request| request.json()["displayname"].as_str().expect("a name").to_owned()).collect()
    }

    async fn perform(&self, subject: &str, payload: &Value) {
        let payload = payload.to_string().into_bytes().into();
        let delivery = Delivery { subject: subject.to_owned(), id: None, payload, attempt: 1 };
        self.work.perform(delivery).await.expect("done");
    }
}

/// Runs a test with a homeserver that neither registers users nor manages their devices.
async fn run(test: impl AsyncFnOnce(&TestApp, &FakeIssuer, &Services)) {
    let homeserver = Receiver::start(|_, received| {
        let json = |body: Value| Reply::status(200).with("content-type", "application/json").saying(&body.to_string());
        match received.path.split('?').next().unwrap_or_default() {
            path if path.contains("/profile/") => json(json!({})),
            path if path.ends_with("/joined_rooms") => json(json!({"joined_rooms": []})),
            path if path.ends_with("/redact") => json(json!({"redact_id": "r"})),
            path if path.contains("/redact_status/") => json(json!({"status": "complete"})),
            path if path.ends_with("/media") => json(json!({"deleted_media": []})),
            _ => Reply::status(404).with("content-type", "application/json").saying("{}"),
        }
    })
    .await;
    let url = homeserver.url.to_string();
    let changes = [("MATCHDAY_MATRIX__HOMESERVER_URL", url.as_str()), ("MATCHDAY_MATRIX__ADMIN_TOKEN", "admin")];
    TestApp::run_with(&changes, async |app| {
        let issuer = FakeIssuer::default();
        let services = Services::new(app, &issuer, homeserver);
        let before = services.homeserver.seen().len();
        test(app, &issuer, &services).await;
        let asked: Vec<String> =
            services.homeserver.seen()[before..].iter().map(|request| request.path.clone()).collect();
        let is_credential =
            |path: &String| ["/register", "/login", "/devices", "/deactivate"].iter().any(|end| path.contains(end));
        assert!(!asked.iter().any(is_credential), "{asked:?}");
    })
    .await;
}

#[tokio::test]
async fn other_issuer_logs_in_and_ends_devices() {
    run(async |app, issuer, services| {
        let user = app.user().await;
        let account = app.app.accounts.find(user.id).await.expect("read").expect("an account");
        let name = account.username.as_str().to_owned();
        let session = app.app.sessions.check(&user.token).await.expect("checked").expect("a session").id;
        let first = services.chat.renew(&account, session).await.expect("credentials");
        assert_eq!((first.user_id.localpart(), first.access_token.expose_secret()), (name.as_str(), "mpt_1"));
        assert_eq!(issuer.devices_of(&name), [first.device_id.as_str()]);
        app.published().await;

        let account = app.app.accounts.find(user.id).await.expect("read").expect("an account");
        assert!(account.has_chat_account, "the account is not registered again");
        let second = services.chat.renew(&account, session).await.expect("credentials");
        assert_eq!(second.access_token.expose_secret(), "mpt_2");
        for (subject, payload) in app.published().await {
            assert_eq!(subject, DEVICE_ENDED);
            services.perform(&subject, &payload).await;
        }
        assert_eq!(issuer.devices_of(&name), [second.device_id.as_str()]);

        app.app.sessions.end(user.id, session).await.expect("ended");
        for (subject, payload) in app.published().await {
            if subject != REVOKED {
                services.perform(&subject, &payload).await;
            }
        }
        assert!(issuer.devices_of(&name).is_empty());
        let late = services.chat.renew(&account, session).await;
        assert!(matches!(late, Err(ChatError::SessionEnded)), "{late:?}");
    })
    .await;
}

/// A worker reads the name, and the user hides it before the worker reaches the homeserver.
#[tokio::test]
async fn slower_worker_does_not_show_hidden_name() {
    run(async |app, issuer, services| {
        let user = app.user().await;
        user.post("/api/auth/update-user-info", json!({"name": "Ada Obi"})).await.expect(200);
        let account = app.app.accounts.find(user.id).await.expect("read").expect("an account");
        let message = json!({"user_id": user.id});
        let release = issuer.hold_registration();
        tokio::join!(services.perform(NAME_CHANGED, &message), async {
            eventually("the first worker has read the account", async || issuer.is_holding()).await;
            let hidden = json!({"name": "nobody"}).to_string();
            user.send(Method::PUT, "/api/auth/me/privacy", Some(hidden)).await.expect(200);
            services.perform(NAME_CHANGED, &message).await;
            release.send(()).expect("the first worker waits");
        });
        let username = account.username.as_str();
        assert_eq!(services.display_names(username), [username, username]);
        app.published().await;
    })
    .await;
}

/// A worker reads the avatar, and the user removes it while the worker waits for another one.
#[tokio::test]
async fn slower_worker_does_not_show_removed_avatar() {
    run(async |app, _, services| {
        let user = app.user().await;
        app.app.avatars.save(user.id, TINY_PNG.into()).await.expect("saved");
        let mut other = platform::database::begin(&app.app.core.db).await.expect("a transaction");
        store::lock_user(&mut other, user.id).await.expect("locked");
        let message = json!({"user_id": user.id});
        tokio::join!(services.perform(AVATAR_CHANGED, &message), async {
            eventually("the worker waits", async || {
                let waiting = "select count(*) from pg_stat_activity
                               where datname = current_database() and wait_event = 'advisory'";
                sqlx::query_scalar::<_, i64>(waiting).fetch_one(app.owner()).await.expect("read") == 1
            })
            .await;
            app.app.avatars.remove(user.id).await.expect("removed");
            other.commit().await.expect("unlocked");
        });
        assert!(services.homeserver.seen().iter().all(|request| !request.path.contains("/upload")));
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn other_issuer_protects_foreign_accounts() {
    run(async |app, issuer, services| {
        let user = app.user().await;
        let account = app.app.accounts.find(user.id).await.expect("read").expect("an account");
        let name = account.username.as_str();
        issuer.register(name).await.expect("registered");
        issuer.issue(name, "OFANOTHERPARTY", "").await.expect("issued");
        let session = app.app.sessions.check(&user.token).await.expect("checked").expect("a session").id;
        let refused = services.chat.renew(&account, session).await;
        assert!(matches!(refused, Err(ChatError::ForeignAccount)), "{refused:?}");
        assert_eq!(issuer.devices_of(name), ["OFANOTHERPARTY"]);
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn other_issuer_deactivates_renamed_and_deleted_accounts() {
    run(async |app, issuer, services| {
        let user = app.user().await;
        let account = app.app.accounts.find(user.id).await.expect("read").expect("an account");
        let (old, name) = (unique("old"), account.username.as_str().to_owned());
        issuer.register(&old).await.expect("registered");
        issuer.issue(&old, "OLDDEVICE", "").await.expect("issued");
        services.perform(RENAMED, &json!({"user_id": user.id, "from": old, "to": name})).await;
        assert!(issuer.is_deactivated(&old));
        assert!(issuer.devices_of(&name).is_empty(), "the new account is registered");

        issuer.issue(&name, "NEWDEVICE", "").await.expect("issued");
        sqlx::query(
            "insert into departures (user_id, chat_names, chat_rooms, requested_at, devices_due_at, due_at)
             values ($1, array[$2], '{}', $3, $3, $3)",
        )
        .bind(user.id)
        .bind(&name)
        .bind(app.app.core.clock.now())
        .execute(&app.app.core.db)
        .await
        .expect("deleted");
        app.clock.advance(Duration::seconds(1));
        services.deletion.end_due_devices().await.expect("ended");
        assert!(issuer.devices_of(&name).is_empty());
        assert_eq!(services.deletion.finish_due().await.expect("finished"), 1);
        assert!(issuer.is_deactivated(&name));
        app.published().await;
    })
    .await;
}
