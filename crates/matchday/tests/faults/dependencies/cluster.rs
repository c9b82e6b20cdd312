//! Two PostgreSQL servers in a production setup: Patroni elects the primary, etcd stores that decision, and HAProxy
//! forwards connections to it.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _, PgConnection, postgres::PgConnectOptions};

use super::{
    Directory, RunAs, Running, command, directory_of_postgres, family, free_ports,
    postgres::{owner_at, prepare, programs, setting_at},
    signal,
};
use crate::stage::process::Setting;

/// Time limit for the cluster to form, or to recover.
const PATIENCE: Duration = Duration::from_secs(90);

/// A cluster, reached through one port that always leads to the current primary.
pub(crate) struct Cluster {
    pub(crate) port: u16,
    nodes: [Node; 2],
    // Dropped after the nodes, in this order.
    _balancer: Running,
    _etcd: Running,
    _directory: Directory,
}

/// A Patroni process and the PostgreSQL server that it manages.
struct Node {
    name: &'static str,
    api: u16,
    settings: PathBuf,
    data: PathBuf,
    log: PathBuf,
    patroni: Option<Running>,
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        let directory = Directory::new("cluster");
        let [port, etcd_port, etcd_peers, api_a, api_b, postgres_a, postgres_b] = free_ports();
        let etcd = start_etcd(&directory, etcd_port, etcd_peers).await;
        let mut nodes = [("a", api_a, postgres_a), ("b", api_b, postgres_b)]
            .map(|(name, api, postgres)| Node::set_up(&directory, name, api, postgres, etcd_port));
        // The first node bootstraps the cluster, the second clones it.
        nodes[0].start();
        until("the first server is the primary", async || nodes[0].is("primary").await).await;
        nodes[1].start();
        let balancer = start_balancer(&directory, port, [(api_a, postgres_a), (api_b, postgres_b)]);
        let cluster = Self { port, nodes, _balancer: balancer, _etcd: etcd, _directory: directory };
        cluster.wait_until_synced().await;
        let superuser = owner_at(port).username("postgres").database("postgres");
        until("the primary is reached through HAProxy", async || PgConnection::connect_with(&superuser).await.is_ok())
            .await;
        let mut connection = PgConnection::connect_with(&superuser).await.expect("PostgreSQL");
        connection.execute("create role matchday superuser login").await.expect("a role");
        connection.close().await.expect("closed");
        prepare(&cluster.owner()).await;
        cluster.setting().expect(&["migrate"], "");
        cluster
    }

    /// Connection options of the database owner.
    pub(crate) fn owner(&self) -> PgConnectOptions {
        owner_at(self.port)
    }

    pub(crate) fn setting(&self) -> Setting {
        setting_at(&self.owner(), self.port)
    }

    /// Waits until one node is the primary and the other its synchronous standby; returns how long it took.
    pub(crate) async fn wait_until_synced(&self) -> Duration {
        until("one is the primary, and the other one its synchronous standby", async || {
            let [a, b] = &self.nodes;
            let roles =
                [a.is("primary").await, b.is("synchronous").await, a.is("synchronous").await, b.is("primary").await];
            roles == [true, true, false, false] || roles == [false, false, true, true]
        })
        .await
    }

    /// Index of the node that is the primary.
    pub(crate) async fn primary(&self) -> usize {
        usize::from(!self.nodes[0].is("primary").await)
    }

    /// Kills a server and its Patroni, with all their processes, without warning.
    pub(crate) fn kill(&mut self, node: usize) {
        self.nodes[node].kill();
    }

    pub(crate) fn restart(&mut self, node: usize) {
        self.nodes[node].start();
    }

    /// Promotes the standby in a planned switchover, as an operator does before maintenance.
    pub(crate) async fn switch_over(&self) {
        let from = self.primary().await;
        let (leader, candidate) = (&self.nodes[from], &self.nodes[1 - from]);
        let wish = json!({"leader": leader.name, "candidate": candidate.name});
        let request = reqwest::Client::new().post(format!("http://127.0.0.1:{}/switchover", leader.api)).json(&wish);
        let answer = request.timeout(PATIENCE).send().await.expect("a response");
        let (status, text) = (answer.status(), answer.text().await.unwrap_or_default());
        assert_eq!(status, 200, "{text}");
    }

    /// Log of a node's Patroni.
    pub(crate) fn log(&self, node: usize) -> String {
        fs::read_to_string(&self.nodes[node].log).unwrap_or_default()
    }
}

impl Node {
    fn set_up(directory: &Directory, name: &'static str, api: u16, postgres: u16, etcd: u16) -> Self {
        let home = directory.join(name);
        directory_of_postgres(&home);
        let (data, here) = (home.join("data"), "127.0.0.1");
        // Not strict: when the standby fails, Patroni first records that it lacks data, so that it cannot be promoted,
        // and then the primary continues alone. Strict mode would refuse writes while one of the two servers is down.
        let settings = json!({
            "scope": "matchday",
            "name": name,
            "restapi": {"listen": format!("{here}:{api}"), "connect_address": format!("{here}:{api}")},
            "etcd3": {"host": format!("{here}:{etcd}")},
            "bootstrap": {
                "dcs": {"ttl": 6, "loop_wait": 1, "retry_timeout": 3, "synchronous_mode": true,
                        "synchronous_mode_strict": false, "maximum_lag_on_failover": 0,
                        "postgresql": {"use_pg_rewind": true, "parameters": {"max_connections": 100}}},
                "initdb": [{"encoding": "UTF8"}, {"locale": "C.UTF-8"}, {"auth": "trust"}, "data-checksums"],
            },
            "postgresql": {
                "listen": format!("{here}:{postgres}"),
                "connect_address": format!("{here}:{postgres}"),
                "data_dir": data,
                "bin_dir": programs(),
                "pgpass": home.join("pgpass"),
                "authentication": {"superuser": {"username": "postgres"}, "replication": {"username": "replicator"},
                                   "rewind": {"username": "rewinder"}},
                "parameters": {"unix_socket_directories": ""},
                "pg_hba": ["host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"],
            },
        });
        let path = directory.join(&format!("{name}.yaml"));
        // Patroni reads YAML, and JSON is valid YAML.
        fs::write(&path, settings.to_string()).expect("written");
        let log = directory.join(&format!("{name}.log"));
        Self { name, api, settings: path, data, log, patroni: None }
    }

    fn start(&mut self) {
        let mut patroni = command(RunAs::Postgres, "/usr/bin/patroni");
        patroni.arg(&self.settings);
        self.patroni = Some(Running::start(patroni, &self.log));
    }

    /// Whether Patroni reports this role and a running server.
    async fn is(&self, role: &str) -> bool {
        let response = reqwest::get(format!("http://127.0.0.1:{}/{role}", self.api)).await;
        let Ok(answer) = response else { return false };
        let is_it = answer.status() == 200;
        is_it && answer.json::<Value>().await.is_ok_and(|reported| reported["state"] == "running")
    }

    fn kill(&mut self) {
        let mut all = Vec::new();
        if let Some(patroni) = &self.patroni {
            // Stop Patroni first: it would restart the killed server.
            signal("STOP", &[patroni.id()]);
            all.extend(family(patroni.id()));
        }
        // Patroni starts the server detached, so the server would survive it.
        let server = fs::read_to_string(self.data.join("postmaster.pid")).unwrap_or_default();
        if let Some(server) = server.lines().next().and_then(|id| id.parse().ok()) {
            all.extend(family(server));
        }
        signal("KILL", &all);
        self.patroni = None;
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

async fn start_etcd(directory: &Directory, port: u16, peers: u16) -> Running {
    let (clients, peers) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peers}"));
    let mut etcd = command(RunAs::CurrentUser, "/usr/bin/etcd");
    etcd.arg("--data-dir").arg(directory.join("etcd"));
    etcd.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
    etcd.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
    etcd.args(["--initial-cluster", &format!("default={peers}")]);
    let mut etcd = Running::start(etcd, &directory.join("etcd.log"));
    let health = format!("{clients}/health");
    etcd.wait_until_ready("etcd", async || reqwest::get(&health).await.is_ok_and(|answer| answer.status() == 200))
        .await;
    etcd
}

/// HAProxy as in Patroni's documentation: the server that returns 200 for `/primary` receives the connections. Its
/// sessions are shut down when it stops doing so.
fn start_balancer(directory: &Directory, port: u16, servers: [(u16, u16); 2]) -> Running {
    let [(api_a, postgres_a), (api_b, postgres_b)] = servers;
    let settings = format!(
        "defaults
    mode tcp
    timeout connect 2s
    timeout client 30m
    timeout server 30m
    timeout check 1s
listen primary
    bind 127.0.0.1:{port}
    option httpchk GET /primary
    http-check expect status 200
    default-server inter 500ms fastinter 250ms fall 2 rise 1 on-marked-down shutdown-sessions
    server a 127.0.0.1:{postgres_a} check port {api_a}
    server b 127.0.0.1:{postgres_b} check port {api_b}
"
    );
    let path = directory.join("haproxy.cfg");
    fs::write(&path, settings).expect("written");
    let mut balancer = command(RunAs::CurrentUser, "/usr/sbin/haproxy");
    balancer.arg("-db").arg("-f").arg(&path);
    Running::start(balancer, &directory.join("haproxy.log"))
}

async fn until(what: &str, holds: impl AsyncFn() -> bool) -> Duration {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    began.elapsed()
}
