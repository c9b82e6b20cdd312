//! A deleted account loses its chat access, even if a worker is killed during the deletion.

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

/// Time limit until the chat token of a deleted account is refused.
const SOON: Duration = Duration::from_secs(2);

#[tokio::test]
async fn chat_token_is_revoked_although_first_worker_is_killed() {
    with_database(async |options| {
        // Accepts connections and never responds, so that a process with this homeserver hangs in its first call.
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

        // Pause the second process, so that the first one takes the job.
        second.signal("STOP");
        here.send(Method::DELETE, "/api/auth/me", &ada.token, code).await.expect(200);
        let deleted = Instant::now();
        let mut database = PgConnection::connect_with(&options).await.expect("connected");
        while sqlx::query_scalar::<_, i32>("select device_attempts from departures")
            .fetch_one(&mut database)
            .await
            .expect("the deletion job")
            == 0
        {
            assert!(deleted.elapsed() < SOON, "no worker took the job");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(whoami().await, 200, "the token still works");
        first.kill();
        second.signal("CONT");
        while whoami().await != 401 {
            assert!(deleted.elapsed() < SOON, "the token still works after {:?}", deleted.elapsed());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        crate::report(&format!("refused after {:.1?}", deleted.elapsed()));
    })
    .await;
}
