//! HAProxy, configured as docs/upgrading.md describes.

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

/// How long a process keeps serving after it reports that it is not ready: longer than the balancer takes to notice.
const NOTICE: &str = "1s";

/// `HAProxy` in front of one process per slot; killed on drop.
pub(crate) struct Balancer {
    pub(crate) address: String,
    statistics: String,
    directory: PathBuf,
    process: Child,
}

/// Unit that the balancer distributes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Single requests, in turn to each process.
    Http,
    /// Whole connections: a client that keeps its connection stays with its process.
    Tcp,
}

/// Ports of a process, and its name in the balancer.
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

    /// Starts a process with these settings on the slot's ports.
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
    pub(crate) fn start(mode: Mode, port: u16, statistics_port: u16, slots: &[Slot]) -> Self {
        let directory = std::env::temp_dir().join(unique("md_balancer"));
        fs::create_dir(&directory).expect("a directory");
        let servers: Vec<String> = slots
            .iter()
            .map(|Slot { name, public, private }| {
                format!("    server {name} 127.0.0.1:{public} check addr 127.0.0.1 port {private}")
            })
            .collect();
        let servers = servers.join("\n");
        let mode = match mode {
            Mode::Http => "mode http\n    option forwardfor\n    option http-no-delay",
            Mode::Tcp => "mode tcp",
        };
        // No retries, not even of undelivered requests, so that every failure reaches the client.
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
            .expect("HAProxy starts: run dev/install-test-tools first");
        let (address, statistics) = (format!("127.0.0.1:{port}"), format!("http://127.0.0.1:{statistics_port}/;csv"));
        Self { address, statistics, directory, process }
    }

    /// Waits until the balancer marks a process as up or down.
    pub(crate) async fn wait_for_state(&self, slot: &Slot, ready: bool) {
        let expected = if ready { "UP" } else { "DOWN" };
        within(Duration::from_secs(20), &format!("the balancer marks {} as {expected}", slot.name), async || {
            self.status(slot.name).await.is_some_and(|status| status.starts_with(expected))
        })
        .await;
    }

    /// Status of a process after its first health check.
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
