//! HAProxy in front of several processes, configured as docs/upgrading.md describes.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use super::{Owned, cores::Group, free_port, service::Service, until};

pub(crate) struct Haproxy {
    process: Owned,
    pub(crate) address: SocketAddr,
}

impl Haproxy {
    /// Distributes single requests to these processes in turn. The limit of open files limits its connections, two files
    /// each.
    pub(crate) async fn start(directory: &Path, services: &[Service]) -> anyhow::Result<Self> {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let servers: Vec<String> = (1..)
            .zip(services)
            .map(|(number, service): (u32, _)| {
                let (public, private) = (service.public, service.private.port());
                format!("    server process{number} {public} check addr 127.0.0.1 port {private}")
            })
            .collect();
        let settings = format!(
            "defaults
    mode http
    timeout connect 2s
    timeout client 2m
    timeout server 30s
    timeout check 2s
    retries 0
    option forwardfor
    option http-no-delay
    default-server inter 200ms fall 2 rise 1
listen apps
    bind {address}
    option httpchk GET /readyz
    balance roundrobin
{}
",
            servers.join("\n")
        );
        let file = directory.join("haproxy.cfg");
        fs::write(&file, settings)?;
        let mut command = Command::new("haproxy");
        command.arg("-db").arg("-f").arg(&file).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(fs::File::create(directory.join("haproxy.log"))?);
        let mut process = Owned::start(&mut command, "-TERM")?;
        let page = format!("http://{address}/healthz");
        until("HAProxy reaches a process", Duration::from_secs(20), async || {
            !process.runs() || reqwest::get(&page).await.is_ok_and(|response| response.status() == 200)
        })
        .await?;
        anyhow::ensure!(
            process.runs(),
            "HAProxy did not start: {}",
            fs::read_to_string(directory.join("haproxy.log"))?
        );
        Ok(Self { process, address })
    }

    pub(crate) fn group(&self) -> Group {
        Group { name: "HAProxy", leader: self.process.id(), with_children: false }
    }
}
