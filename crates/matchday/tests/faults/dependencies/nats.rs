//! NATS servers that belong to one test.

use std::{fmt::Write as _, fs};

use super::{Directory, RunAs, Running, command, development, free_ports};

/// A single server, or a cluster of three.
pub(crate) struct Nats {
    servers: Vec<Server>,
    directory: Directory,
}

struct Server {
    port: u16,
    monitor: u16,
    process: Option<Running>,
}

impl Nats {
    pub(crate) async fn alone() -> Self {
        let [port, monitor] = free_ports();
        Self::start(vec![Server { port, monitor, process: None }], &[]).await
    }

    pub(crate) async fn cluster() -> Self {
        let [a, b, c, monitor_a, monitor_b, monitor_c] = free_ports();
        let servers = [(a, monitor_a), (b, monitor_b), (c, monitor_c)];
        let servers = servers.map(|(port, monitor)| Server { port, monitor, process: None });
        Self::start(servers.into(), &free_ports::<3>()).await
    }

    /// `routes` holds the cluster ports of the servers, or nothing for a single server.
    async fn start(servers: Vec<Server>, routes: &[u16]) -> Self {
        let directory = Directory::new("nats");
        for (number, server) in servers.iter().enumerate() {
            let mut settings = format!(
                "server_name: \"n{number}\"\nlisten: \"127.0.0.1:{}\"\nhttp: \"127.0.0.1:{}\"\n\
                 jetstream {{ store_dir: \"{}\", sync_interval: always }}\n",
                server.port,
                server.monitor,
                directory.join(&format!("data{number}")).display()
            );
            if let Some(own) = routes.get(number) {
                let all: Vec<String> = routes.iter().map(|port| format!("\"nats://127.0.0.1:{port}\"")).collect();
                let all = all.join(", ");
                writeln!(settings, "cluster {{ name: \"matchday\", listen: \"127.0.0.1:{own}\", routes: [{all}] }}")
                    .expect("written");
            }
            fs::write(directory.join(&format!("{number}.conf")), settings).expect("written");
        }
        let mut nats = Self { servers, directory };
        nats.restart().await;
        nats
    }

    /// Starts the servers that are not running, and waits until all servers are healthy.
    pub(crate) async fn restart(&mut self) {
        let program = development().join("venv/bin/nats-server");
        for (number, server) in self.servers.iter_mut().enumerate().filter(|(_, server)| server.process.is_none()) {
            let mut starting = command(RunAs::CurrentUser, &program);
            starting.arg("-c").arg(self.directory.join(&format!("{number}.conf")));
            let log = self.directory.join(&format!("{number}.log"));
            server.process = Some(Running::start(starting, &log));
        }
        for server in &mut self.servers {
            let health = format!("http://127.0.0.1:{}/healthz", server.monitor);
            let process = server.process.as_mut().expect("a running process");
            process
                .wait_until_ready("NATS", async || {
                    reqwest::get(&health).await.is_ok_and(|reported| reported.status() == 200)
                })
                .await;
        }
    }

    /// Value for `nats.url`: the first server, from which clients discover the others.
    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.servers[0].port)
    }

    pub(crate) fn kill(&mut self, number: usize) {
        self.servers[number].process = None;
    }

    pub(crate) fn kill_all(&mut self) {
        // Stop all servers first, so that none notices the loss of another.
        self.signal("STOP");
        for server in &mut self.servers {
            server.process = None;
        }
    }

    /// Sends a signal to every running server.
    pub(crate) fn signal(&self, name: &str) {
        for process in self.servers.iter().filter_map(|server| server.process.as_ref()) {
            process.signal(name);
        }
    }
}
