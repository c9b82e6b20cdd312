//! A Redis of the test's own.

use std::path::PathBuf;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{Directory, Running, Who, command, free_ports};

/// Set up like the one of `dev/up`: it keeps nothing over its end.
pub(crate) struct Redis {
    pub(crate) port: u16,
    directory: Directory,
    process: Option<Running>,
}

impl Redis {
    pub(crate) async fn start() -> Self {
        let [port] = free_ports();
        let mut redis = Self { port, directory: Directory::new("redis"), process: None };
        redis.start_again().await;
        redis
    }

    /// After it was killed. It comes back empty, at the same address.
    pub(crate) async fn start_again(&mut self) {
        let mut server = command(Who::Me, PathBuf::from("redis-server"));
        let directory = self.directory.path().display().to_string();
        let port = self.port.to_string();
        server.args(["--bind", "127.0.0.1", "--port", &port, "--dir", &directory, "--save", "", "--appendonly", "no"]);
        let process = self.process.insert(Running::start(server, &self.directory.join("log")));
        process.answers("Redis", async || answers(self.port).await).await;
    }

    pub(crate) fn process(&mut self) -> &mut Running {
        self.process.as_mut().expect("it runs")
    }
}

async fn answers(port: u16) -> bool {
    let Ok(mut stream) = tokio::net::TcpStream::connect(("127.0.0.1", port)).await else { return false };
    let mut answer = [0; 7];
    stream.write_all(b"PING\r\n").await.is_ok()
        && stream.read_exact(&mut answer).await.is_ok()
        && answer == *b"+PONG\r\n"
}
