//! A homeserver that belongs to one test and can be killed without affecting others.

use std::{
    fs::{self, File},
    os::unix::fs::DirBuilderExt as _,
    panic::AssertUnwindSafe,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU16, Ordering},
    time::{Duration, Instant},
};

use futures_util::FutureExt as _;
use hmac::{Hmac, KeyInit as _, Mac as _};
use matchday::testing::unique;
use serde_json::{Value, json};
use sha1::Sha1;
use sqlx::{Connection as _, Executor as _, PgConnection, postgres::PgConnectOptions};

use super::process::Setting;

/// A Synapse with a private database and port, configured like the one of `dev/up`; killed on drop.
pub(crate) struct Synapse {
    /// URL for clients, unchanged after a restart.
    pub(crate) url: String,
    /// Address to which Synapse pushes events: the `http.private_listen` of the process under test.
    pub(crate) pushes_to: String,
    directory: PathBuf,
    process: Option<Child>,
}

/// Runs a test with a running Synapse that has no users. Drops its database afterwards, even if the test fails.
pub(crate) async fn with_synapse(database: &PgConnectOptions, test: impl AsyncFnOnce(&mut Synapse)) {
    // The common prefix of test databases, by which leftovers of aborted runs are recognised.
    let name = unique("md_test_synapse");
    let mut admin = PgConnection::connect_with(&database.clone().database("postgres")).await.expect("PostgreSQL");
    let create = format!("create database {name} encoding 'UTF8' lc_collate 'C' lc_ctype 'C' template template0");
    admin.execute(sqlx::AssertSqlSafe(create)).await.expect("a database");
    let outcome = AssertUnwindSafe(async {
        let mut synapse = Synapse::set_up(&name, database.get_port());
        synapse.start().await;
        test(&mut synapse).await;
    })
    .catch_unwind()
    .await;
    let dropped = admin.execute(sqlx::AssertSqlSafe(format!("drop database {name} with (force)"))).await;
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
    dropped.expect("dropped");
}

impl Synapse {
    /// Writes the settings of `dev/up`, except for the values that two homeservers must not share.
    fn set_up(database: &str, database_port: u16) -> Self {
        let development = development().join("synapse");
        let read = |name: &str| {
            fs::read_to_string(development.join(name))
                .unwrap_or_else(|error| panic!("run dev/up first: {name}: {error}"))
        };
        let directory = std::env::temp_dir().join(database);
        // The settings contain secrets.
        fs::DirBuilder::new().mode(0o700).create(&directory).expect("a directory");
        let ([port, push_port], path) = (free_ports(), |name: &str| format!("\"{}\"", directory.join(name).display()));
        let pushes_to = format!("127.0.0.1:{push_port}");
        let url = format!("http://127.0.0.1:{port}");
        let settings = [
            ("public_baseurl", format!("\"{url}\"")),
            ("- port", port.to_string()),
            ("dbname", database.to_owned()),
            ("port", database_port.to_string()),
            ("log_config", path("log.yaml")),
            ("app_service_config_files", format!("[{}, {}]", path("appservice.yaml"), path("appservice-push.yaml"))),
            ("media_store_path", path("media")),
        ];
        let mut settings = settings.iter().fold(read("homeserver.yaml"), |text, (key, value)| with(&text, key, value));
        // An earlier `dev/up` did not allow pushers to reach loopback.
        if !settings.contains("ip_range_whitelist") {
            settings.push_str("\nip_range_whitelist: [\"127.0.0.1\"]\n");
        }
        fs::write(directory.join("homeserver.yaml"), settings).expect("written");
        fs::write(directory.join("appservice.yaml"), read("appservice.yaml")).expect("written");
        // Events must not reach a service that listens on the address of the development setup.
        let push = with(&read("appservice-push.yaml"), "url", &format!("\"http://{pushes_to}\""));
        fs::write(directory.join("appservice-push.yaml"), push).expect("written");
        fs::write(directory.join("log.yaml"), read("log.yaml")).expect("written");
        Self { url, pushes_to, directory, process: None }
    }

    /// Starts or restarts Synapse, and waits until it responds.
    pub(crate) async fn start(&mut self) {
        let log = self.directory.join("synapse.log");
        let lines = File::options().create(true).append(true).open(&log).expect("a log");
        let process = Command::new(development().join("venv/bin/python"))
            .args(["-m", "synapse.app.homeserver", "-c", "homeserver.yaml"])
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(lines)
            .spawn()
            .expect("Synapse starts");
        let process = self.process.insert(process);
        let (began, versions) = (Instant::now(), format!("{}/_matrix/client/versions", self.url));
        while !reqwest::get(&versions).await.is_ok_and(|answer| answer.status() == 200) {
            let ended = process.try_wait().expect("a status");
            let log = || fs::read_to_string(&log).unwrap_or_default();
            assert!(ended.is_none() && began.elapsed() < Duration::from_mins(1), "Synapse is not up: {}", log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Settings of a process that uses this homeserver and receives its pushes. They contain no admin token.
    pub(crate) fn setting(&self, database: &PgConnectOptions) -> Setting {
        Setting::new(database)
            .with("MATCHDAY_MATRIX__HOMESERVER_URL", &self.url)
            .with("MATCHDAY_HTTP__PRIVATE_LISTEN", &self.pushes_to)
            .without("MATCHDAY_MATRIX__ADMIN_TOKEN")
    }

    /// Registers an admin; returns their token. The admin of `dev/up` does not exist on this homeserver.
    pub(crate) async fn make_admin(&self) -> String {
        let settings = fs::read_to_string(self.directory.join("homeserver.yaml")).expect("its settings");
        let secret = settings.lines().find_map(|line| line.strip_prefix("registration_shared_secret: "));
        let secret = secret.expect("a secret").trim_matches('"');
        let (web, register) = (reqwest::Client::new(), format!("{}/_synapse/admin/v1/register", self.url));
        let offered: Value = web.get(&register).send().await.expect("a response").json().await.expect("JSON");
        let nonce = offered["nonce"].as_str().expect("a nonce");
        // Usernames of fans cannot contain a hyphen.
        let (username, password) = ("the-admin", unique("password"));
        let mut mac = Hmac::<Sha1>::new_from_slice(secret.as_bytes()).expect("any length will do");
        mac.update(format!("{nonce}\0{username}\0{password}\0admin").as_bytes());
        let body = json!({"nonce": nonce, "username": username, "password": password, "admin": true,
            "mac": hex::encode(mac.finalize().into_bytes())});
        let made: Value = web.post(&register).json(&body).send().await.expect("a response").json().await.expect("JSON");
        made["access_token"].as_str().unwrap_or_else(|| panic!("no admin: {made}")).to_owned()
    }

    /// Kills Synapse without warning.
    pub(crate) fn kill(&mut self) {
        let mut process = self.process.take().expect("a running Synapse");
        process.kill().expect("killed");
        process.wait().expect("gone");
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.process.as_ref().expect("a running Synapse").id().to_string();
        let status = Command::new("kill").arg(format!("-{name}")).arg(id).status();
        assert!(status.expect("kill runs").success());
    }
}

impl Drop for Synapse {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Directory in which `dev/up` keeps dependencies and data.
pub(crate) fn development() -> PathBuf {
    // Read at run time, because several clones may share one target folder.
    let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs the tests");
    Path::new(&package).join("../../.dev")
}

/// Replaces the value of a key, which must occur exactly once. Otherwise two homeservers could
/// use the same database and corrupt it.
fn with(settings: &str, key: &str, value: &str) -> String {
    let is_it = |line: &str| line.trim_start().strip_prefix(key).is_some_and(|rest| rest.starts_with(':'));
    assert_eq!(settings.lines().filter(|line| is_it(line)).count(), 1, "{key} in the settings of Synapse");
    let lines = settings.lines().map(|line| {
        let indent = &line[..line.len() - line.trim_start().len()];
        if is_it(line) { format!("{indent}{key}: {value}\n") } else { format!("{line}\n") }
    });
    lines.collect()
}

/// Ports that stay free until the test uses them: outside the ephemeral range (from 32768), different for concurrent
/// test processes, and never the same one twice in a process.
pub(crate) fn free_ports<const COUNT: usize>() -> [u16; COUNT] {
    static TRIED: AtomicU16 = AtomicU16::new(0);
    let first = u16::try_from(std::process::id() * 8 % 10_000).expect("below 10,000");
    let free_port = || {
        let candidates = std::iter::repeat_with(|| TRIED.fetch_add(1, Ordering::Relaxed)).take(10_000);
        let mut candidates = candidates.map(|step| 20_000 + (first + step % 10_000) % 10_000);
        candidates.find(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("a free port")
    };
    std::array::from_fn(|_| free_port())
}
