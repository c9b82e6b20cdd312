//! Request smuggling: a request hidden inside another one is never executed, even where two parsers would disagree
//! about the end of the first request.

use std::time::Duration;

use matchday::testing::with_database;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::{
    process::{Process, Setting, get},
    proof::held,
};

/// The hidden request. If it were executed, it would be answered and counted in the metrics.
const HIDDEN: &str = "GET /docs/setup.js HTTP/1.1\r\nHost: x\r\n\r\n";

/// Sends bytes, and reads until the service closes the connection or sends nothing more. Returns the response, and
/// whether the connection was closed.
async fn exchange(process: &Process, bytes: &[u8]) -> (String, bool) {
    let mut stream = TcpStream::connect(process.public.trim_start_matches("http://")).await.expect("connected");
    // Sending may fail, because the service may close the connection early.
    let _ = stream.write_all(bytes).await;
    let (mut answer, mut closed, mut buffer) = (Vec::new(), false, vec![0; 16_384]);
    // The timeout is longer than any response takes, so silence means that no other response follows.
    loop {
        match timeout(Duration::from_secs(2), stream.read(&mut buffer)).await {
            Ok(Ok(read)) if read > 0 => answer.extend_from_slice(&buffer[..read]),
            Ok(_) => {
                closed = true;
                break;
            }
            Err(_) => break,
        }
    }
    (String::from_utf8_lossy(&answer).into_owned(), closed)
}

fn statuses(answer: &str) -> Vec<u16> {
    answer.split("HTTP/1.1 ").skip(1).filter_map(|rest| rest.get(..3)?.parse().ok()).collect()
}

async fn hidden_requests(process: &Process) -> u64 {
    let metrics = reqwest::get(format!("{}/metrics", process.private)).await.expect("a response");
    let text = metrics.text().await.expect("text");
    let of_it = |line: &&str| line.starts_with("matchday_http_seconds_count") && line.contains("\"/docs/setup.js\"");
    let counted = text.lines().filter(of_it).filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    counted.sum()
}

/// Bytes of an attack, and whether the service must refuse them (400, or closed without a response) or parse them in
/// the one safe way.
struct Attack {
    name: &'static str,
    bytes: Vec<u8>,
    refused: bool,
}

const HEAD: &str = "POST /api/code/request HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";

fn refused(name: &'static str, bytes: String) -> Attack {
    Attack { name, bytes: bytes.into_bytes(), refused: true }
}

fn read(name: &'static str, bytes: String) -> Attack {
    Attack { name, bytes: bytes.into_bytes(), refused: false }
}

/// Headers and lines that two parsers may read differently.
fn of_headers() -> Vec<Attack> {
    let head = HEAD;
    let chunked = format!("0\r\n\r\n{HIDDEN}");
    let length = chunked.len();
    vec![
        read(
            "length, then chunked",
            format!("{head}Content-Length: {length}\r\nTransfer-Encoding: chunked\r\n\r\n{chunked}"),
        ),
        read(
            "chunked, then length",
            format!("{head}Transfer-Encoding: chunked\r\nContent-Length: {length}\r\n\r\n{chunked}"),
        ),
        read(
            "a shorter length, then chunked",
            format!("{head}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n{chunked}"),
        ),
        refused("two lengths", format!("{head}Content-Length: 0\r\nContent-Length: {}\r\n\r\n{HIDDEN}", HIDDEN.len())),
        refused("two lengths in one line", format!("{head}Content-Length: 0, {}\r\n\r\n{HIDDEN}", HIDDEN.len())),
        refused("a length with a sign", format!("{head}Content-Length: +0\r\n\r\n{HIDDEN}")),
        refused("a negative length", format!("{head}Content-Length: -1\r\n\r\n{HIDDEN}")),
        refused("a length in hexadecimal", format!("{head}Content-Length: 0x0\r\n\r\n{HIDDEN}")),
        refused("a length beyond 64 bits", format!("{head}Content-Length: 18446744073709551616\r\n\r\n{HIDDEN}")),
        refused("an empty length", format!("{head}Content-Length: \r\n\r\n{HIDDEN}")),
        refused("a space before the colon", format!("{head}Transfer-Encoding : chunked\r\n\r\n{chunked}")),
        refused("a space before the name", format!("{head} Transfer-Encoding: chunked\r\n\r\n{chunked}")),
        refused("a folded line", format!("{head}X-Folded: a\r\n Transfer-Encoding: chunked\r\n\r\n{chunked}")),
        refused("a folded encoding", format!("{head}Transfer-Encoding:\r\n chunked\r\n\r\n{chunked}")),
        refused("an invalid encoding", format!("{head}Transfer-Encoding: xchunked\r\n\r\n{chunked}")),
        refused("chunked is not the last", format!("{head}Transfer-Encoding: chunked, identity\r\n\r\n{chunked}")),
        refused("chunked in quotes", format!("{head}Transfer-Encoding: \"chunked\"\r\n\r\n{chunked}")),
        refused("chunked with a vertical tab", format!("{head}Transfer-Encoding: \u{b}chunked\r\n\r\n{chunked}")),
        refused(
            "chunked in HTTP/1.0",
            format!("{}Transfer-Encoding: chunked\r\n\r\n{chunked}", head.replace("1.1", "1.0")),
        ),
        refused("a NUL in a value", format!("{head}X-Nul: a\0b\r\nContent-Length: 0\r\n\r\n")),
        refused("a NUL in a name", format!("{head}X-\0Nul: a\r\nContent-Length: 0\r\n\r\n")),
        refused("a CR in a value", format!("{head}X-Cr: a\rTransfer-Encoding: chunked\r\n\r\n{chunked}")),
        refused("a CR in the target", "GET /healthz\rX: y HTTP/1.1\r\nHost: x\r\n\r\n".to_owned()),
        refused("an invalid method", "GE\0T /healthz HTTP/1.1\r\nHost: x\r\n\r\n".to_owned()),
        refused("an invalid version", "GET /healthz HTTP/1.2\r\nHost: x\r\n\r\n".to_owned()),
        refused("no request at all", "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}".repeat(20)),
        refused("HTTP/2 without negotiation", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\u{12}\u{4}\0\0\0\0\0".to_owned()),
        refused("very long headers", format!("{head}X-Long: {}\r\nContent-Length: 0\r\n\r\n", "a".repeat(1_000_000))),
        refused("a thousand headers", format!("{head}{}\r\n", "X-Many: a\r\n".repeat(1_000))),
        refused("a very long target", format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(1_000_000))),
    ]
}

/// Chunks and bodies that are longer than declared, or that contain a whole request.
fn of_bodies() -> Vec<Attack> {
    let (head, chunked, mut all) = (HEAD, format!("0\r\n\r\n{HIDDEN}"), Vec::new());
    let length = chunked.len();
    for (name, size) in [
        ("a chunk beyond 64 bits", "10000000000000000"),
        ("a chunk of all bits", "ffffffffffffffff"),
        ("a negative chunk", "-1"),
        ("a chunk size that is not a number", "zz"),
        ("a chunk in quotes", "\"0\""),
        ("an empty chunk size", ""),
    ] {
        all.push(read(name, format!("{head}Transfer-Encoding: chunked\r\n\r\n{size}\r\n{HIDDEN}")));
    }
    all.push(read(
        "a very long chunk extension",
        format!("{head}Transfer-Encoding: chunked\r\n\r\n1;{}\r\n{HIDDEN}", "a".repeat(100_000)),
    ));
    all.push(read(
        "a chunk that is longer than its size",
        format!("{head}Transfer-Encoding: chunked\r\n\r\n1\r\n{{}}\r\n0\r\n\r\n{HIDDEN}"),
    ));
    all.push(read(
        "a request in trailers",
        format!(
            "{head}Transfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\nX-Trailer: {}\r\n",
            HIDDEN.replace("\r\n", "\n")
        ),
    ));
    // A whole request as the body of another one. The service responds to most of these before it reads the body.
    let within = |line: &str, extra: &str| {
        format!("{line} HTTP/1.1\r\nHost: x\r\n{extra}Content-Length: {}\r\n\r\n{HIDDEN}", HIDDEN.len())
    };
    for (name, line, extra) in [
        ("in a body that is not JSON", "POST /api/code/request", ""),
        ("in a body without a token", "POST /api/auth/predictions", ""),
        ("in a body with a wrong token", "POST /api/auth/predictions", "Authorization: Bearer x\r\n"),
        ("in the body of a GET", "GET /healthz", ""),
        ("in the body of a HEAD", "HEAD /healthz", ""),
        ("in a body to an unknown method", "PUT /healthz", ""),
        ("in a body to an unknown path", "POST /nowhere", ""),
        ("in a body with Expect: 100-continue", "POST /api/auth/predictions", "Expect: 100-continue\r\n"),
        ("in the body of an upgrade", "GET /healthz", "Connection: upgrade\r\nUpgrade: websocket\r\n"),
        ("in the body of a CONNECT", "CONNECT x:80", ""),
        ("in the body of an absolute target", "POST http://elsewhere.example/api/code/request", ""),
    ] {
        all.push(read(name, within(line, extra)));
    }
    let lf = within("POST /api/code/request", "").replace("\r\n", "\n");
    all.push(read("bare line feeds", lf));
    all.push(read(
        "an encoding after a bare line feed",
        format!("{head}Content-Length: {length}\r\nX-Feed: a\nTransfer-Encoding: chunked\r\n\r\n{chunked}"),
    ));
    all.push(read(
        "chunks that end in bare line feeds",
        format!("{head}Transfer-Encoding: chunked\r\n\r\n0\n\n{HIDDEN}"),
    ));
    let padding = " ".repeat(100_000);
    all.push(read(
        "at the end of a body that is too large",
        format!("{head}Content-Length: {}\r\n\r\n{padding}{HIDDEN}", padding.len() + HIDDEN.len()),
    ));
    all
}

#[tokio::test]
async fn smuggled_request_is_never_executed() {
    with_database(async |options| {
        let process = Setting::new(&options).start(&["serve"]);
        let attacks: Vec<Attack> = of_headers().into_iter().chain(of_bodies()).collect();
        let count = attacks.len();
        // Concurrently, because each attack waits for silence.
        let exchanges = futures_util::future::join_all(attacks.iter().map(async |attack| {
            let (answer, closed) = exchange(&process, &attack.bytes).await;
            (attack, statuses(&answer), closed, answer)
        }))
        .await;
        let mut refused = 0;
        for (attack, statuses, closed, answer) in exchanges {
            let shown = answer.chars().take(300).collect::<String>();
            assert!(statuses.len() <= 1, "{}: {} responses: {statuses:?} {shown}", attack.name, statuses.len());
            assert!(!answer.contains("javascript"), "{}: the hidden request was answered: {shown}", attack.name);
            assert!(statuses.iter().all(|&status| status < 500), "{}: {statuses:?} {shown}", attack.name);
            if attack.refused {
                refused += 1;
                assert!(closed, "{}: the connection stays open after {statuses:?}", attack.name);
                assert!(statuses.iter().all(|status| [400, 414, 431].contains(status)), "{}: {statuses:?}", attack.name);
            }
        }
        assert_eq!(hidden_requests(&process).await, 0, "a hidden request was executed");
        // Counter-check: the test detects a second request that is executed.
        let twice = format!("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n{HIDDEN}");
        let (answer, _) = exchange(&process, twice.as_bytes()).await;
        assert_eq!(statuses(&answer), [200, 200], "two pipelined requests get two responses");
        assert_eq!(hidden_requests(&process).await, 1);
        assert_eq!(get(&process.public, "/healthz", "").await.0, 200);
        held("Request smuggling: two lengths, length and chunks, odd encodings, folded and broken lines, overflowing chunks, requests as bodies",
            &format!(
                "{count} attacks tried, {refused} of them refused with the connection closed, the others parsed in the one safe way; no hidden request was executed, and none got a second response or a 5xx"
            ),
        );
    })
    .await;
}
