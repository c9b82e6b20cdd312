//! A deleted account has no way into chat, whichever process is killed meanwhile.

use std::time::{Duration, Instant};

use matchday::testing::{unique, with_database};
use reqwest::Method;
use serde_json::json;
use sqlx::{Connection as _, PgConnection};
use tokio::net::TcpListener;

use crate::{
    client::{Client, Homeserver},
    process::Setting,
};

/// How soon a chat token is refused after its account was deleted.
const SOON: Duration = Duration::from_secs(2);

#[tokio::test]
async fn chat_token_ends_although_first_worker_is_killed() {
    with_database(async |options| {
        // Takes connections and never answers: the process that talks to it cannot get beyond its first call.
        let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let stuck = format!("http://{}", silent.local_addr().expect("an address"));
        let setting = Setting::new(&options);
        let mut first = setting.clone().with("MATCHDAY_MATRIX__HOMESERVER_URL", &stuck).start(&["serve"]);
        let second = setting.start(&["serve"]);
        let (here, there, chat) = (Client::new(&first), Client::new(&second), Homeserver::of_development());
        let phone = "+14155550100";
        let ada = there.log_in(phone, Some(&unique("ada"))).await;
        let whoami = async || chat.get("/_matrix/client/v3/account/whoami", ada.chat_token()).await.0;
        assert_eq!(whoami().await, 200);
        here.post("/api/auth/me/deletion", &ada.token, json!({})).await.expect(200);
        let code = json!({"code": here.codes(phone).await[0]}).to_string();

        // So that the first process takes the work.
        second.signal("STOP");
        here.send(Method::DELETE, "/api/auth/me", &ada.token, code).await.expect(200);
        let deleted = Instant::now();
        let mut database = PgConnection::connect_with(&options).await.expect("connected");
        while sqlx::query_scalar::<_, i32>("select device_attempts from departures")
            .fetch_one(&mut database)
            .await
            .expect("the departure")
            == 0
        {
            assert!(deleted.elapsed() < SOON, "no worker took it");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(whoami().await, 200, "nobody has ended it yet");
        first.kill();
        second.signal("CONT");
        while whoami().await != 401 {
            assert!(deleted.elapsed() < SOON, "the token is still good after {:?}", deleted.elapsed());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        crate::report(&format!("refused after {:.1?}", deleted.elapsed()));
    })
    .await;
}
