//! A real balancer, set up as docs/upgrading.md tells operators to.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use matchday::testing::unique;

use crate::stage::{
    client::within,
    process::{Process, Setting},
};

/// How long a process answers after it said that it is not ready: longer than the balancer takes to notice.
const NOTICE: &str = "1s";

/// `HAProxy` before as many processes as there are pairs of ports; killed when it is dropped.
pub(crate) struct Balancer {
    /// Where apps reach it.
    pub(crate) address: String,
    statistics: String,
    directory: PathBuf,
    process: Child,
}

/// What the balancer passes on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passes {
    /// One request after another, each to the process whose turn it is.
    Requests,
    /// Whole connections: whoever keeps one stays with its process.
    Connections,
}

/// Where a process listens, and its name at the balancer.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    name: &'static str,
    public: u16,
    private: u16,
}

impl Slot {
    pub(crate) fn new(name: &'static str, public: u16, private: u16) -> Self {
        Self { name, public, private }
    }

    /// A process of these settings that listens here.
    pub(crate) fn start(&self, setting: &Setting) -> Process {
        let setting = setting
            .clone()
            .with("MATCHDAY_HTTP__LISTEN", &format!("127.0.0.1:{}", self.public))
            .with("MATCHDAY_HTTP__PRIVATE_LISTEN", &format!("127.0.0.1:{}", self.private))
            .with("MATCHDAY_HTTP__TRUSTED_PROXIES", "127.0.0.0/8")
            .with("MATCHDAY_SHUTDOWN__NOTICE", NOTICE);
        setting.start(&["serve"])
    }
}

impl Balancer {
    pub(crate) fn start(passes: Passes, port: u16, statistics_port: u16, slots: &[Slot]) -> Self {
        let directory = std::env::temp_dir().join(unique("md_balancer"));
        fs::create_dir(&directory).expect("a directory");
        let servers: Vec<String> = slots
            .iter()
            .map(|Slot { name, public, private }| {
                format!("    server {name} 127.0.0.1:{public} check addr 127.0.0.1 port {private}")
            })
            .collect();
        let servers = servers.join("\n");
        let mode = match passes {
            Passes::Requests => "mode http\n    option forwardfor",
            Passes::Connections => "mode tcp",
        };
        // Nothing is sent twice, not even what could not be delivered: whatever goes wrong must be seen here.
        let settings = format!(
            "defaults
    timeout connect 2s
    timeout client 2m
    timeout server 30s
    timeout check 2s
    retries 0
    default-server inter 200ms fall 2 rise 1
listen apps
    {mode}
    option httpchk GET /readyz
    bind 127.0.0.1:{port}
    balance roundrobin
{servers}
listen statistics
    mode http
    bind 127.0.0.1:{statistics_port}
    stats enable
    stats uri /
"
        );
        let file = directory.join("haproxy.cfg");
        fs::write(&file, settings).expect("written");
        let process = Command::new("haproxy")
            .arg("-db")
            .arg("-f")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(directory.join("log")).expect("a log"))
            .spawn()
            .expect("HAProxy starts: run dev/proof-parts first");
        let (address, statistics) = (format!("127.0.0.1:{port}"), format!("http://127.0.0.1:{statistics_port}/;csv"));
        Self { address, statistics, directory, process }
    }

    /// Waits until it takes a process for one that is ready, or for one that is not.
    pub(crate) async fn sees(&self, slot: &Slot, ready: bool) {
        let expected = if ready { "UP" } else { "DOWN" };
        within(Duration::from_secs(20), &format!("the balancer sees {} {expected}", slot.name), async || {
            self.status(slot.name).await.is_some_and(|status| status.starts_with(expected))
        })
        .await;
    }

    /// What it thinks of a process, once it has looked.
    async fn status(&self, name: &str) -> Option<String> {
        let table = reqwest::get(&self.statistics).await.ok()?.text().await.ok()?;
        let mut lines = table.lines();
        let columns: Vec<&str> = lines.next()?.split(',').collect();
        let at = |column: &str| columns.iter().position(|found| found.trim_start_matches("# ") == column);
        let (server, status, check) = (at("svname")?, at("status")?, at("check_status")?);
        let row: Vec<&str> =
            lines.map(|line| line.split(',').collect()).find(|row: &Vec<&str>| row.get(server) == Some(&name))?;
        (!row.get(check)?.starts_with("INI")).then(|| row[status].to_owned())
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}
