//! A Redis server that belongs to one test.

use std::path::PathBuf;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{Directory, RunAs, Running, command, free_ports};

/// Configured like the Redis of `dev/up`, without persistence.
pub(crate) struct Redis {
    pub(crate) port: u16,
    directory: Directory,
    process: Option<Running>,
}

impl Redis {
    pub(crate) async fn start() -> Self {
        let [port] = free_ports();
        let mut redis = Self { port, directory: Directory::new("redis"), process: None };
        redis.restart().await;
        redis
    }

    /// Starts the server again on the same port. Its data is lost.
    pub(crate) async fn restart(&mut self) {
        let mut server = command(RunAs::CurrentUser, PathBuf::from("redis-server"));
        let directory = self.directory.path().display().to_string();
        let port = self.port.to_string();
        server.args(["--bind", "127.0.0.1", "--port", &port, "--dir", &directory, "--save", "", "--appendonly", "no"]);
        let process = self.process.insert(Running::start(server, &self.directory.join("log")));
        process.wait_until_ready("Redis", async || responds(self.port).await).await;
    }

    pub(crate) fn process(&mut self) -> &mut Running {
        self.process.as_mut().expect("a running process")
    }
}

async fn responds(port: u16) -> bool {
    let Ok(mut stream) = tokio::net::TcpStream::connect(("127.0.0.1", port)).await else { return false };
    let mut answer = [0; 7];
    stream.write_all(b"PING\r\n").await.is_ok()
        && stream.read_exact(&mut answer).await.is_ok()
        && answer == *b"+PONG\r\n"
}
