//! Avatars in an S3-compatible store, and on the homeserver.

use std::{
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use matchday::testing::{TINY_PNG, with_database};
use reqwest::{Method, header};
use serde_json::Value;

use crate::{
    client::{Client, Homeserver, PATIENCE, Person, within},
    process::{Process, Setting},
    synapse::{free_ports, with_synapse},
};

/// An S3-compatible server with one bucket. `dev/install-test-tools moto` installs it.
struct S3 {
    url: String,
    process: Child,
}

impl S3 {
    async fn start() -> Self {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"))).expect("a home");
        let [port] = free_ports();
        let process = Command::new(cache.join("matchday/tools/bin/moto_server"))
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("run dev/install-test-tools moto first");
        let s3 = Self { url: format!("http://127.0.0.1:{port}"), process };
        within(PATIENCE, "the bucket exists", async || {
            let made = reqwest::Client::new().put(format!("{}/pictures", s3.url)).send().await;
            made.is_ok_and(|answer| answer.status() == 200)
        })
        .await;
        s3
    }

    fn setting(&self, setting: Setting) -> Setting {
        setting
            .with("MATCHDAY_AVATARS__STORE", "s3://pictures/of/users")
            .with("AWS_ENDPOINT", &self.url)
            .with("AWS_ALLOW_HTTP", "true")
            .with("AWS_REGION", "us-east-1")
            .with("AWS_ACCESS_KEY_ID", "test")
            .with("AWS_SECRET_ACCESS_KEY", "test")
    }

    /// Names of all objects.
    async fn objects(&self) -> Vec<String> {
        let list = reqwest::get(format!("{}/pictures?list-type=2", self.url)).await.expect("a response");
        let list = list.text().await.expect("a list");
        list.split("<Key>").skip(1).filter_map(|rest| rest.split("</Key>").next().map(str::to_owned)).collect()
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Uploads an avatar; returns the status and the response.
async fn upload(process: &Process, user: &Person) -> (u16, Value) {
    let request = reqwest::Client::new()
        .request(Method::PUT, format!("{}/api/auth/me/avatar", process.public))
        .bearer_auth(&user.token)
        .header(header::CONTENT_TYPE, "image/png")
        .body(TINY_PNG);
    let response = request.send().await.expect("a response");
    (response.status().as_u16(), response.json().await.expect("JSON"))
}

async fn status(process: &Process, response: &Value, query: &str) -> u16 {
    let path = response["data"]["avatar_url"].as_str().expect("a path");
    reqwest::get(format!("{}{path}{query}", process.public)).await.expect("a response").status().as_u16()
}

#[tokio::test]
async fn images_are_stored_in_s3_and_deleted_there() {
    with_database(async |options| {
        let mut s3 = S3::start().await;
        let setting = s3.setting(Setting::new(&options).with("MATCHDAY_MATRIX__HOMESERVER_URL", ""));
        let process = setting.start(&["serve"]);
        let client = Client::new(&process);
        let ada = client.log_in("+14155550100", None).await;
        let (made, first) = upload(&process, &ada).await;
        assert_eq!(made, 200, "{first}");
        assert_eq!([status(&process, &first, "").await, status(&process, &first, "?size=128").await], [200, 200]);
        let objects = s3.objects().await;
        assert!(objects.len() == 2 && objects.iter().all(|name| name.starts_with("of/users/")), "{objects:?}");

        let (_, second) = upload(&process, &ada).await;
        assert_eq!([status(&process, &first, "").await, status(&process, &second, "").await], [404, 200]);
        within(PATIENCE, "a worker deletes the images of the first upload", async || s3.objects().await.len() == 2)
            .await;
        assert!(s3.objects().await.iter().all(|name| !objects.contains(name)));
        client.delete("/api/auth/me/avatar", &ada.token).await.expect(200);
        assert_eq!(status(&process, &second, "").await, 404);
        within(PATIENCE, "a worker deletes all images", async || s3.objects().await.is_empty()).await;

        s3.process.kill().expect("killed");
        let (refused, body) = upload(&process, &ada).await;
        assert_eq!((refused, &body["code"]), (503, &Value::from("storage_unavailable")));
    })
    .await;
}

#[tokio::test]
async fn homeserver_follows_the_avatar() {
    with_database(async |options| {
        with_synapse(&options, async |synapse| {
            let setting = synapse.setting(&options).with("MATCHDAY_MATRIX__ADMIN_TOKEN", &synapse.make_admin().await);
            let directory = std::env::temp_dir().join(matchday::testing::unique("matchday-test-avatars"));
            let setting = setting.with("MATCHDAY_AVATARS__STORE", &format!("file://{}", directory.display()));
            let process = setting.start(&["serve"]);
            let (client, chat) = (Client::new(&process), Homeserver::at(&synapse.url));
            let ada = client.log_in("+14155550100", None).await;
            let avatar = async || {
                let (_, profile) =
                    chat.get(&format!("/_matrix/client/v3/profile/{}", ada.user_id()), ada.chat_token()).await;
                profile["avatar_url"].as_str().map(str::to_owned)
            };
            assert_eq!(upload(&process, &ada).await.0, 200);
            within(PATIENCE, "the profile has an avatar", async || avatar().await.is_some()).await;
            let first = avatar().await.expect("an avatar");
            let media = first.strip_prefix("mxc://").expect("an address").to_owned();
            let download = async |media: &str| {
                let url = format!("{}/_matrix/client/v1/media/download/{media}", synapse.url);
                let request = reqwest::Client::new().get(url).bearer_auth(ada.chat_token());
                let response = request.send().await.expect("a response");
                (response.status().as_u16(), response.bytes().await.expect("a body"))
            };
            let (found, image) = download(&media).await;
            assert!(found == 200 && image.starts_with(&[0xFF, 0xD8, 0xFF]), "a JPEG");

            client.delete("/api/auth/me/avatar", &ada.token).await.expect(200);
            within(PATIENCE, "the profile has no avatar", async || avatar().await.is_none()).await;
            within(PATIENCE, "the image is deleted", async || download(&media).await.0 == 404).await;
            let _ = std::fs::remove_dir_all(&directory);
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn homeserver_gets_the_avatar_after_an_outage() {
    with_database(async |options| {
        with_synapse(&options, async |synapse| {
            let process = synapse.setting(&options).start(&["serve"]);
            let (client, chat) = (Client::new(&process), Homeserver::at(&synapse.url));
            let ada = client.log_in("+14155550100", None).await;
            synapse.kill();
            assert_eq!(upload(&process, &ada).await.0, 200);
            synapse.start().await;
            // The worker's pauses between attempts have grown meanwhile.
            within(Duration::from_secs(90), "the profile has an avatar", async || {
                let (_, profile) =
                    chat.get(&format!("/_matrix/client/v3/profile/{}", ada.user_id()), ada.chat_token()).await;
                profile["avatar_url"].is_string()
            })
            .await;
        })
        .await;
    })
    .await;
}
