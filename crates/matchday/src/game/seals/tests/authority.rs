//! Time stamps of an authority that speaks RFC 3161: the tool `openssl ts` behind a small HTTP server.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::Method;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tokio_util::sync::CancellationToken;

use super::{far, seal};
use crate::testing::{TestApp, eventually, unique};

/// Files of the authority. Deleted on drop.
struct Authority {
    directory: PathBuf,
    /// Whether its responses are those of another request.
    is_confused: AtomicBool,
}

const CONFIGURATION: &str = "[tsa]
default_tsa = authority
[authority]
serial = serial
signer_cert = certificate.pem
signer_key = key.pem
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256
ess_cert_id_alg = sha256
";

impl Authority {
    fn new() -> Self {
        let directory = std::env::temp_dir().join(unique("authority"));
        std::fs::create_dir(&directory).expect("a directory");
        std::fs::write(directory.join("tsa.cnf"), CONFIGURATION).expect("written");
        std::fs::write(directory.join("serial"), "01").expect("written");
        let authority = Self { directory, is_confused: AtomicBool::new(false) };
        let arguments = "req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out certificate.pem -days 2 -subj /CN=Authority \
                         -addext extendedKeyUsage=critical,timeStamping";
        authority.openssl(arguments);
        authority
    }

    fn run(&self, arguments: &str) -> Output {
        let arguments = arguments.split_whitespace();
        Command::new("openssl").args(arguments).current_dir(&self.directory).output().expect("openssl is installed")
    }

    fn openssl(&self, arguments: &str) {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn file(&self, name: &str) -> PathBuf {
        Path::new(&self.directory).join(name)
    }

    fn reply(&self, query: &[u8]) -> Vec<u8> {
        if !self.is_confused.load(Ordering::Relaxed) {
            std::fs::write(self.file("query.der"), query).expect("written");
        }
        self.openssl("ts -reply -config tsa.cnf -queryfile query.der -out reply.der");
        std::fs::read(self.file("reply.der")).expect("a reply")
    }

    async fn serve(self: Arc<Self>, listener: TcpListener) {
        while let Ok((connection, _)) = listener.accept().await {
            self.respond(connection).await;
        }
    }

    async fn respond(&self, mut connection: TcpStream) {
        let mut request = Vec::new();
        let body = loop {
            let mut part = [0; 1024];
            let length = connection.read(&mut part).await.expect("read");
            request.extend_from_slice(&part[..length]);
            let end = request.windows(4).position(|window| window == b"\r\n\r\n");
            // A request has 69 bytes: version, hash, nonce, and whether certificates are wanted.
            if let Some(end) = end
                && request.len() >= end + 4 + 69
            {
                break end + 4;
            }
            assert!(length > 0, "the request ended early");
        };
        let head = String::from_utf8_lossy(&request[..body]).to_lowercase();
        assert!(head.contains("content-type: application/timestamp-query"), "{head}");
        let reply = self.reply(&request[body..]);
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/timestamp-reply\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            reply.len()
        );
        connection.write_all(&[head.as_bytes(), &reply].concat()).await.expect("written");
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn seals_get_tokens_that_openssl_verifies() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    let authority = Arc::new(Authority::new());
    let server = tokio::spawn(Arc::clone(&authority).serve(listener));
    TestApp::run_with(&[("MATCHDAY_SEALS__TIMESTAMP_URL", &url)], async |app| {
        let fixtures = app.fixtures();
        far(&fixtures, "m").put().await;
        far(&fixtures, "m").being("live").put().await;
        let sealed = seal(app).await.remove(0);
        assert_eq!(sealed["timestamp_token"], Value::Null);
        let get = async || app.anonymous(Method::GET, "/api/seals/1").await;
        assert_eq!(get().await.header("cache-control"), Some("public, max-age=2"), "the token may follow");

        let closing = CancellationToken::new();
        let stamped = async {
            eventually("the seal has a token", async || !get().await.expect(200)["data"]["timestamp_token"].is_null())
                .await;
            closing.cancel();
        };
        tokio::join!(app.app.seals.run(closing.clone()), stamped);
        let response = get().await;
        assert_eq!(response.header("cache-control"), Some("public, max-age=86400"));
        let seal = response.expect(200)["data"].clone();
        let token = STANDARD.decode(seal["timestamp_token"].as_str().expect("a token")).expect("Base64");
        std::fs::write(authority.file("token.der"), token).expect("written");
        let verify = |digest: &Value| {
            let digest = digest.as_str().expect("a hash");
            authority.run(&format!("ts -verify -digest {digest} -in token.der -token_in -CAfile certificate.pem"))
        };
        let output = verify(&seal["hash"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(!verify(&seal["root"]).status.success(), "the token is for the hash");
        let mut without = seal;
        without["timestamp_token"] = json!(null);
        assert_eq!(without, sealed, "nothing else changes");

        // A token for another request is not stored.
        authority.is_confused.store(true, Ordering::Relaxed);
        far(&fixtures, "n").between("albion", "wanderers").put().await;
        far(&fixtures, "n").between("albion", "wanderers").being("live").put().await;
        super::seal(app).await;
        let pause = app.app.seals.stamp_once().await.expect("an authority");
        assert!(pause > std::time::Duration::from_secs(1), "it is tried again later");
        let second = app.anonymous(Method::GET, "/api/seals/2").await.expect(200);
        assert_eq!(second["data"]["timestamp_token"], Value::Null);
    })
    .await;
    server.abort();
}
