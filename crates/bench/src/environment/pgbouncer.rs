//! PgBouncer with the settings of `deploy/pgbouncer`, in front of the run's PostgreSQL.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use sqlx::{
    Connection as _, PgConnection,
    postgres::{PgConnectOptions, PgPool},
};

use super::{Owned, cores::Group, free_port, output, postgres::Postgres, until};

pub(crate) struct PgBouncer {
    process: Owned,
    port: u16,
}

impl PgBouncer {
    /// Forwards connections to one database, under its own name and with `_writers`.
    pub(crate) async fn start(directory: &Path, postgres: &Postgres, database: &str) -> anyhow::Result<Self> {
        let port = free_port()?;
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        // Outside the clone, which the user that it switches to may not be able to access.
        let settings = std::env::temp_dir().join("matchday-bench-pgbouncer");
        fs::create_dir_all(&settings)?;
        let (file, users) = (settings.join("pgbouncer.ini"), settings.join("users"));
        let text = fs::read_to_string(root.join("deploy/pgbouncer/pgbouncer.ini"))?
            .replace("host=10.0.0.5 port=5432", &format!("host=127.0.0.1 port={}", postgres.port))
            .replace("dbname=matchday", &format!("dbname={database}"))
            .replace("\nmatchday = ", &format!("\n{database} = "))
            .replace("\nmatchday_writers = ", &format!("\n{database}_writers = "))
            .replace("listen_port = 6432", &format!("listen_port = {port}"))
            .replace("auth_type = scram-sha-256", "auth_type = trust")
            .replace("/etc/pgbouncer/userlist.txt", &users.display().to_string());
        fs::write(&file, text)?;
        fs::write(users, "\"matchday_app\" \"\"\n")?;
        let log = directory.join("pgbouncer.log");
        let mut command = Command::new(program());
        if output(Command::new("id").arg("-u"))?.trim() == "0" {
            command.args(["-u", "postgres"]);
        }
        command.arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(&log)?);
        let mut process = Owned::start(&mut command, "-INT")?;
        let options = PgConnectOptions::new_without_pgpass().host("127.0.0.1").port(port).username("matchday_app");
        let options = options.database(database);
        until("PgBouncer accepts connections", Duration::from_secs(20), async || {
            !process.runs() || PgConnection::connect_with(&options).await.is_ok()
        })
        .await?;
        anyhow::ensure!(process.runs(), "PgBouncer did not start: {}", fs::read_to_string(&log)?);
        Ok(Self { process, port })
    }

    /// Connection URL of the service.
    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://matchday_app@127.0.0.1:{}/{database}", self.port)
    }

    pub(crate) fn group(&self) -> Group {
        Group { name: "PgBouncer", leader: self.process.id(), with_children: false }
    }
}

/// The program of dev/install-test-tools, or that of the system.
fn program() -> PathBuf {
    let home = std::env::var("HOME").unwrap_or_default();
    let cache = std::env::var("XDG_CACHE_HOME").map_or_else(|_| PathBuf::from(home).join(".cache"), PathBuf::from);
    let own = cache.join("matchday/tools/bin/pgbouncer");
    if own.exists() { own } else { "/usr/sbin/pgbouncer".into() }
}

/// Number of the service's connections to PostgreSQL.
pub(crate) async fn connections(db: &PgPool) -> anyhow::Result<i64> {
    let query = "select count(*) from pg_stat_activity where usename = 'matchday_app'";
    Ok(sqlx::query_scalar(query).fetch_one(db).await?)
}
