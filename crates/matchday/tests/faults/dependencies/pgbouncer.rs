//! PgBouncer in front of a test's PostgreSQL, with the settings of `deploy/pgbouncer`.

use std::{fs, path::PathBuf};

use sqlx::{ConnectOptions as _, postgres::PgConnectOptions};

use super::{
    Directory, RunAs, Running, command, free_ports,
    postgres::{Postgres, owner_at, responds},
};
use crate::stage::process::Setting;

pub(crate) struct PgBouncer {
    pub(crate) port: u16,
    settings: PathBuf,
    directory: Directory,
    process: Option<Running>,
}

impl PgBouncer {
    /// Starts it with the settings of `deploy/pgbouncer`, and these changes of lines or parts of lines.
    pub(crate) async fn start(postgres: &Postgres, changes: &[(&str, &str)]) -> Self {
        let [port] = free_ports();
        let directory = Directory::new("pgbouncer");
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut text = fs::read_to_string(root.join("deploy/pgbouncer/pgbouncer.ini")).expect("settings");
        let server = format!("host=127.0.0.1 port={}", postgres.port);
        let users = directory.join("users");
        let of_test = [
            ("host=10.0.0.5 port=5432", server.as_str()),
            ("listen_port = 6432", &format!("listen_port = {port}")),
            ("auth_type = scram-sha-256", "auth_type = trust"),
            ("/etc/pgbouncer/userlist.txt", users.to_str().expect("a path")),
        ];
        for (from, to) in of_test.iter().chain(changes) {
            assert!(text.contains(from), "{from} is not in the settings");
            text = text.replace(from, to);
        }
        let settings = directory.join("pgbouncer.ini");
        fs::write(&settings, text).expect("written");
        fs::write(users, "\"matchday_app\" \"\"\n").expect("written");
        let mut pgbouncer = Self { port, settings, directory, process: None };
        pgbouncer.restart().await;
        pgbouncer
    }

    /// Starts it again on the same port.
    pub(crate) async fn restart(&mut self) {
        // Debian's program if it is recent enough, or the one of dev/install-test-tools.
        let home = std::env::var("HOME").unwrap_or_default();
        let cache = std::env::var("XDG_CACHE_HOME").map_or_else(|_| PathBuf::from(home).join(".cache"), PathBuf::from);
        let own = cache.join("matchday/tools/bin/pgbouncer");
        let mut server = command(RunAs::CurrentUser, if own.exists() { own } else { "/usr/sbin/pgbouncer".into() });
        if super::is_root() {
            // It refuses to run as root.
            server.args(["-u", "postgres"]);
        }
        server.arg(&self.settings);
        let service = self.service();
        let process = self.process.insert(Running::start(server, &self.directory.join("log")));
        process.wait_until_ready("PgBouncer", async || responds(&service).await).await;
    }

    pub(crate) fn process(&mut self) -> &mut Running {
        self.process.as_mut().expect("a running process")
    }

    fn service(&self) -> PgConnectOptions {
        owner_at(self.port).username("matchday_app")
    }

    /// Settings of a process that connects through it. Migrations and audits connect to PostgreSQL as the owner.
    pub(crate) fn setting(&self, postgres: &Postgres) -> Setting {
        Setting::new(&postgres.owner())
            .with("MATCHDAY_DATABASE__URL", self.service().to_url_lossy().as_str())
            .with("MATCHDAY_DATABASE__TRANSACTION_POOLING", "true")
    }
}
