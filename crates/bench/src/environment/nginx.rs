//! nginx serving a file: the least work with which a web server can send the same bytes.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use super::{Owned, cores::Group, free_port, until};
use crate::wire::Connection;

pub(crate) struct Nginx {
    process: Owned,
    pub(crate) address: SocketAddr,
}

impl Nginx {
    /// Serves these bytes as `/page`, with one worker per core and settings for speed.
    pub(crate) async fn start(directory: &Path, page: &[u8]) -> anyhow::Result<Self> {
        let directory = directory.join("nginx");
        fs::create_dir_all(directory.join("root"))?;
        fs::write(directory.join("root/page"), page)?;
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let settings = format!(
            "daemon off; worker_processes auto; worker_rlimit_nofile 20000; pid nginx.pid; user root;
             events {{ worker_connections 16384; }}
             http {{
               access_log off; sendfile on; tcp_nopush on; open_file_cache max=16; keepalive_requests 1000000000;
               keepalive_timeout 600; default_type application/json;
               client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi;
               scgi_temp_path scgi;
               server {{ listen {address} backlog=4096; root root; }}
             }}"
        );
        fs::write(directory.join("nginx.conf"), settings)?;
        let mut command = Command::new("nginx");
        command.arg("-p").arg(&directory).args(["-c", "nginx.conf", "-e", "error.log"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = Owned::start(&mut command, "-QUIT")?;
        until("nginx listens", Duration::from_secs(10), async || Connection::open(address).await.is_ok()).await?;
        Ok(Self { process, address })
    }

    /// Process group of nginx and its workers.
    pub(crate) fn group(&self) -> Group {
        Group { name: "nginx", leader: self.process.id(), with_children: true }
    }
}
