//! A PostgreSQL server that belongs to one test.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use sqlx::{ConnectOptions as _, Connection as _, Executor as _, PgConnection, postgres::PgConnectOptions};

use super::{Directory, RunAs, Running, command, directory_of_postgres, free_ports, run};
use crate::stage::process::Setting;

/// Directory of PostgreSQL's programs.
pub(crate) fn programs() -> PathBuf {
    std::env::var("MATCHDAY_DEV_PG_BIN").unwrap_or_else(|_| "/usr/lib/postgresql/15/bin".to_owned()).into()
}

/// A server as durable as in production, with a migrated database.
pub(crate) struct Postgres {
    pub(crate) port: u16,
    data: PathBuf,
    directory: Directory,
    process: Option<Running>,
}

impl Postgres {
    pub(crate) async fn start() -> Self {
        let directory = Directory::new("postgres");
        let data = directory.join("data");
        Self::start_in(directory, &data, &[]).await
    }

    /// Like `start`, with a separate data directory and additional settings.
    pub(crate) async fn start_in(directory: Directory, data: &Path, settings: &[(&str, &str)]) -> Self {
        let [port] = free_ports();
        directory_of_postgres(data);
        let mut initdb = command(RunAs::Postgres, programs().join("initdb"));
        initdb.arg("-D").arg(data);
        run(initdb.args(["-U", "matchday", "--auth=trust", "--locale=C.UTF-8", "--encoding=UTF8"]).current_dir("/"));
        let mut postgres = Self { port, data: data.to_owned(), directory, process: None };
        let mut written = String::new();
        for (name, value) in settings {
            writeln!(written, "{name} = '{value}'").expect("written");
        }
        let all = ["postgresql.conf", "more.conf"].map(|name| postgres.data.join(name));
        std::fs::write(&all[1], written).expect("written");
        let own = std::fs::read_to_string(&all[0]).expect("settings") + "\ninclude 'more.conf'\n";
        std::fs::write(&all[0], own).expect("written");
        // The server runs as another user and must be able to read both files.
        run(std::process::Command::new("chmod").arg("644").args(&all));
        postgres.restart().await;
        prepare(&postgres.owner()).await;
        postgres.setting().expect(&["migrate"], "");
        postgres
    }

    /// Starts a streaming replica of this server.
    pub(crate) async fn replica(&self) -> Self {
        let [port] = free_ports();
        let directory = Directory::new("replica");
        let data = directory.join("data");
        directory_of_postgres(&data);
        let mut backup = command(RunAs::Postgres, programs().join("pg_basebackup"));
        backup.args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", "matchday"]);
        backup.args(["-R", "-X", "stream", "-c", "fast", "--no-sync"]);
        run(backup.arg("-D").arg(&data).current_dir("/"));
        let mut replica = Self { port, data, directory, process: None };
        replica.restart().await;
        replica
    }

    /// Starts the server again on the same port.
    pub(crate) async fn restart(&mut self) {
        let mut server = command(RunAs::Postgres, programs().join("postgres"));
        let port = self.port.to_string();
        server.arg("-D").arg(&self.data);
        for setting in [
            "listen_addresses=127.0.0.1",
            &format!("port={port}"),
            "unix_socket_directories=",
            "max_connections=100",
            "logging_collector=off",
        ] {
            server.arg("-c").arg(setting);
        }
        let anywhere = self.owner().database("postgres");
        let process = self.process.insert(Running::start(server, &self.directory.join("log")));
        process.wait_until_ready("PostgreSQL", async || responds(&anywhere).await).await;
    }

    pub(crate) fn process(&mut self) -> &mut Running {
        self.process.as_mut().expect("a running process")
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// Connection options of the database owner.
    pub(crate) fn owner(&self) -> PgConnectOptions {
        owner_at(self.port)
    }

    pub(crate) fn setting(&self) -> Setting {
        setting_at(&self.owner(), self.port)
    }
}

/// Connection options of the database owner at a port.
pub(crate) fn owner_at(port: u16) -> PgConnectOptions {
    PgConnectOptions::new_without_pgpass().host("127.0.0.1").port(port).username("matchday").database("matchday")
}

/// Settings of a process that connects through a port with the restricted role. Migrations and audits connect as the
/// owner, without this port.
pub(crate) fn setting_at(owner: &PgConnectOptions, port: u16) -> Setting {
    let service = owner_at(port).username("matchday_app");
    Setting::new(owner).with("MATCHDAY_DATABASE__URL", service.to_url_lossy().as_str())
}

/// Creates the same database and service role as `dev/up`.
pub(crate) async fn prepare(owner: &PgConnectOptions) {
    let mut admin = PgConnection::connect_with(&owner.clone().database("postgres")).await.expect("PostgreSQL");
    admin.execute("create role matchday_app login").await.expect("a role");
    admin.execute("create database matchday").await.expect("a database");
    admin.close().await.expect("closed");
}

/// Whether the server executes a query.
pub(crate) async fn responds(options: &PgConnectOptions) -> bool {
    let Ok(mut connection) = PgConnection::connect_with(options).await else { return false };
    let answer = sqlx::query_scalar::<_, i32>("select 1").fetch_one(&mut connection).await;
    answer.is_ok_and(|answer| answer == 1)
}
