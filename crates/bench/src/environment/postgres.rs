//! A PostgreSQL server for this run, as durable as in production and with a quarter of the memory as shared buffers.
//! Both sides of a comparison use it.

use std::{
    fs,
    os::unix::fs::chown,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use sqlx::{
    AssertSqlSafe, Connection as _, Executor as _, PgConnection,
    postgres::{PgConnectOptions, PgPool, PgPoolOptions},
};

use super::{Owned, free_port, output, until};

pub(crate) struct Postgres {
    process: Owned,
    pub(crate) port: u16,
    /// Directory of this server and of its replica.
    data: PathBuf,
    pub(crate) version: String,
    pub(crate) shared_buffers: String,
}

/// Lifetime of a server's data.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Data {
    /// The server starts empty, and the next run deletes its data.
    Fresh,
    /// The next run finds the data. The server counts what each statement does.
    Kept,
}

const BINARIES: &str = "/usr/lib/postgresql/15/bin";

impl Postgres {
    /// Starts the server of a cluster, which is created if there is none to keep.
    pub(crate) async fn start(directory: &Path, kind: Data) -> anyhow::Result<Self> {
        // Outside the clone, which PostgreSQL's user may not be able to access.
        let data = std::env::var_os("MATCHDAY_BENCH_DATA").unwrap_or_else(|| "/var/tmp/matchday-bench".into());
        let mut data = PathBuf::from(data);
        let mut more = Vec::new();
        if kind == Data::Kept {
            data.push("kept");
            more.extend(["shared_preload_libraries=pg_stat_statements", "pg_stat_statements.track=all"]);
        }
        let cluster = data.join("data");
        stop_leftover(&cluster, &data).await?;
        stop_leftover(&data.join("replica"), &data).await?;
        if kind == Data::Kept && cluster.join("PG_VERSION").exists() {
            return Self::run(directory, data, &cluster, &more).await;
        }
        let _ = fs::remove_dir_all(&cluster);
        let _ = fs::remove_dir_all(data.join("replica"));
        fs::create_dir_all(&data).with_context(|| format!("making {}", data.display()))?;
        if is_root()? {
            let number = |of: &str| -> anyhow::Result<u32> {
                Ok(output(Command::new("id").args([of, "postgres"]))?.trim().parse()?)
            };
            chown(&data, Some(number("-u")?), Some(number("-g")?))?;
        }
        output(
            program("initdb")?
                .arg("-D")
                .arg(&cluster)
                .args(["-U", "matchday", "--auth=trust", "--locale=C.UTF-8", "--encoding=UTF8"])
                .current_dir("/"),
        )?;
        let postgres = Self::run(directory, data, &cluster, &more).await?;
        let mut connection = PgConnection::connect_with(&options(postgres.port, "postgres")).await?;
        // As in `dev/up`, the role gets its login here: migrations create it without one.
        connection.execute("create role matchday_app login").await?;
        Ok(postgres)
    }

    /// Starts a streaming replica with all databases, which is deleted with the next run.
    pub(crate) async fn replica(&self, directory: &Path) -> anyhow::Result<Self> {
        let cluster = self.data.join("replica");
        let _ = fs::remove_dir_all(&cluster);
        output(
            program("pg_basebackup")?
                .args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", "matchday"])
                .args(["-R", "-X", "stream", "-c", "fast", "--no-sync", "-D"])
                .arg(&cluster)
                .current_dir("/"),
        )?;
        Self::run(directory, self.data.clone(), &cluster, &[]).await
    }

    /// Starts the server of a cluster.
    async fn run(directory: &Path, data: PathBuf, cluster: &Path, more: &[&str]) -> anyhow::Result<Self> {
        let (port, shared_buffers) = (free_port()?, format!("{}MB", memory_in_megabytes()? / 4));
        let settings = [
            "listen_addresses=127.0.0.1".to_owned(),
            format!("port={port}"),
            format!("unix_socket_directories={}", data.display()),
            "max_connections=300".to_owned(),
            format!("shared_buffers={shared_buffers}"),
            // Avoids checkpoints during a round, which would add noise.
            "max_wal_size=16GB".to_owned(),
            "checkpoint_timeout=30min".to_owned(),
            "fsync=on".to_owned(),
            "synchronous_commit=on".to_owned(),
            "timezone=UTC".to_owned(),
        ];
        let name = cluster.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let log = directory.join(format!("postgres-{name}.log"));
        let mut command = program("postgres")?;
        command.arg("-D").arg(cluster).args(settings.iter().flat_map(|setting| ["-c", setting]));
        command.args(more.iter().flat_map(|setting| ["-c", setting])).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(&log)?);
        let mut process = Owned::start(&mut command, "-INT")?;
        let admin = options(port, "postgres");
        until("PostgreSQL accepts connections", Duration::from_mins(1), async || {
            !process.runs() || PgConnection::connect_with(&admin).await.is_ok()
        })
        .await?;
        ensure!(process.runs(), "PostgreSQL did not start: see {}", log.display());
        let mut connection = PgConnection::connect_with(&admin).await?;
        let version: String = sqlx::query_scalar("show server_version").fetch_one(&mut connection).await?;
        Ok(Self { process, port, data, version, shared_buffers })
    }

    /// Process id of the postmaster.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Connects to the server as its owner.
    pub(crate) async fn admin(&self) -> anyhow::Result<PgConnection> {
        Ok(PgConnection::connect_with(&options(self.port, "postgres")).await?)
    }

    /// Creates an empty database, replacing one of the same name.
    pub(crate) async fn create(&self, name: &str) -> anyhow::Result<()> {
        let mut admin = self.admin().await?;
        admin.execute(AssertSqlSafe(format!("drop database if exists {name} with (force)"))).await?;
        admin.execute(AssertSqlSafe(format!("create database {name}"))).await?;
        Ok(())
    }

    /// Like `create`, with the C collation that Synapse requires.
    pub(crate) async fn create_plain(&self, name: &str) -> anyhow::Result<()> {
        let mut admin = self.admin().await?;
        admin.execute(AssertSqlSafe(format!("drop database if exists {name} with (force)"))).await?;
        let create = format!("create database {name} encoding 'UTF8' lc_collate 'C' lc_ctype 'C' template template0");
        admin.execute(AssertSqlSafe(create)).await?;
        Ok(())
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Drops a database that is no longer needed.
    pub(crate) async fn forget(&self, name: &str) -> anyhow::Result<()> {
        let mut admin = self.admin().await?;
        admin.execute(AssertSqlSafe(format!("drop database {name} with (force)"))).await?;
        Ok(())
    }

    /// Connection URL of a database for this role.
    pub(crate) fn url(&self, role: &str, name: &str) -> String {
        format!("postgres://{role}@127.0.0.1:{}/{name}", self.port)
    }

    /// Connection pool of the database owner.
    pub(crate) async fn pool(&self, name: &str) -> anyhow::Result<PgPool> {
        Ok(PgPoolOptions::new().max_connections(2).connect_with(options(self.port, name)).await?)
    }
}

fn options(port: u16, database: &str) -> PgConnectOptions {
    PgConnectOptions::new_without_pgpass().host("127.0.0.1").port(port).username("matchday").database(database)
}

fn is_root() -> anyhow::Result<bool> {
    Ok(output(Command::new("id").arg("-u"))?.trim() == "0")
}

/// A program of PostgreSQL, which refuses to run as root.
fn program(name: &str) -> anyhow::Result<Command> {
    let binaries = std::env::var("MATCHDAY_DEV_PG_BIN").map_or_else(|_| PathBuf::from(BINARIES), PathBuf::from);
    let path = binaries.join(name);
    if !is_root()? {
        return Ok(Command::new(path));
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--init-groups"]).arg(path);
    Ok(command)
}

/// Stops the server of an earlier run that was killed.
async fn stop_leftover(cluster: &Path, data: &Path) -> anyhow::Result<()> {
    let Ok(file) = fs::read_to_string(cluster.join("postmaster.pid")) else { return Ok(()) };
    let process = file.lines().next().unwrap_or_default().to_owned();
    // Check the command, because process ids are reused.
    let command = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    if !String::from_utf8_lossy(&command).contains(&data.display().to_string()) {
        return Ok(());
    }
    ensure!(
        Command::new("kill").args(["-QUIT", &process]).status()?.success(),
        "process {process} could not be stopped"
    );
    let process = PathBuf::from(format!("/proc/{process}"));
    until("the server of an earlier run exits", Duration::from_mins(1), async || !process.exists()).await
}

fn memory_in_megabytes() -> anyhow::Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let kilobytes =
        text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse().ok());
    Ok(kilobytes.unwrap_or(4 * 1024 * 1024_u64) / 1024)
}
