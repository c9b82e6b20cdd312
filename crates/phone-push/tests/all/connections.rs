use std::{iter, sync::Arc, time::Duration};

use futures_util::future::join_all;
use phone_push::{
    Apns, Outcome,
    stand_in::{ApnsStandIn, Limits, Reaction},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream},
};

use super::{ApnsTest, FcmTest, PHONE, TIMEOUT, TestClock, forward, id, later, phone, result, send_to_many};

/// Long enough to connect on a busy machine.
const SHORT: Duration = Duration::from_millis(1_500);

fn all_taken(outcomes: &[Outcome]) -> bool {
    outcomes.iter().all(|outcome| *outcome == Outcome::Taken)
}

async fn apns(limits: Limits, timeout: Duration, connections: usize) -> (ApnsStandIn, Arc<Apns>) {
    let clock = TestClock::default();
    let server = ApnsStandIn::start_with(clock.now(), limits).await.expect("a server");
    let client = Apns::new(server.settings(timeout, connections), clock.now()).expect("a client");
    (server, Arc::new(client))
}

#[tokio::test(flavor = "multi_thread")]
async fn limit_of_streams_is_obeyed() {
    let (server, client) = apns(Limits { streams: 5, ..Limits::default() }, TIMEOUT, 1).await;
    assert!(all_taken(&send_to_many(&client, 500).await));
    assert_eq!(server.connections(), 1);
    assert!((2..=5).contains(&server.peak_streams()), "{}", server.peak_streams());
    assert_eq!(server.record().total().attempts, 500);
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_share_few_connections() {
    let (server, client) = apns(Limits::default(), TIMEOUT, 3).await;
    assert!(all_taken(&send_to_many(&client, 1_000).await));
    assert!(all_taken(&send_to_many(&client, 1_000).await));
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn refused_stream_is_sent_again() {
    let test = ApnsTest::start().await;
    test.server.record().react([Reaction::RefuseStream, Reaction::RefuseStream]);
    assert_eq!(test.send().await, Outcome::Taken);
    assert_eq!(test.server.record().counts(PHONE).accepted, 1);

    test.server.record().react(vec![Reaction::RefuseStream; 4]);
    assert_eq!(test.send().await, later(None, false));
    assert_eq!(test.send().await, Outcome::Taken);
}

#[tokio::test(flavor = "multi_thread")]
async fn announced_end_of_connection_loses_nothing() {
    let (server, client) = apns(Limits::default(), TIMEOUT, 2).await;
    // A request is sent four times at most, and each of these connections can refuse it once.
    for number in [0, 700, 1_400] {
        server.record().react_for(&phone(number), [Reaction::GoAway]);
    }
    assert!(all_taken(&send_to_many(&client, 2_000).await));
    let counts = server.record().all_counts();
    assert_eq!(counts.len(), 2_000);
    assert!(counts.iter().all(|(_, counts)| counts.accepted == 1));
    // The announcement can arrive after the last response.
    while server.connections() <= 2 {
        assert_eq!(client.send(PHONE, id(1), &result()).await, Outcome::Taken);
    }
}

/// Reads frames until a request arrives.
async fn read_request(stream: &mut TcpStream) {
    const HEADERS: u8 = 1;
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await.expect("a preface");
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.expect("a frame");
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        stream.read_exact(&mut payload).await.expect("a payload");
        if head[3] == HEADERS {
            return;
        }
    }
}

/// Forwards connections to a server. The first one ends instead with GOAWAY after a request that it did not process.
async fn refusing_first(server: &ApnsStandIn) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let behind = server.url().trim_start_matches("http://").to_owned();
    tokio::spawn(async move {
        let (mut first, _) = listener.accept().await.expect("a connection");
        let settings = b"\0\0\0\x04\0\0\0\0\0";
        first.write_all(settings).await.expect("sent");
        read_request(&mut first).await;
        let go_away = b"\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\0";
        first.write_all(go_away).await.expect("sent");
        drop(first);
        forward(listener, behind).await;
    });
    url
}

#[tokio::test]
async fn request_behind_go_away_is_sent_again() {
    let clock = TestClock::default();
    let server = ApnsStandIn::start(clock.now()).await.expect("a server");
    let mut settings = server.settings(TIMEOUT, 1);
    settings.url = refusing_first(&server).await.parse().expect("a URL");
    let client = Apns::new(settings, clock.now()).expect("a client");
    assert_eq!(client.send(PHONE, id(1), &result()).await, Outcome::Taken);
    assert_eq!(server.record().counts(PHONE).attempts, 1);
}

#[tokio::test]
async fn request_without_response_is_not_repeated() {
    let (server, client) = apns(Limits::default(), SHORT, 1).await;
    assert_eq!(client.send(PHONE, id(1), &result()).await, Outcome::Taken);
    for (number, reaction) in [Reaction::Hang, Reaction::Close].into_iter().enumerate() {
        server.record().react_for(&phone(number), [reaction.clone()]);
        assert_eq!(client.send(&phone(number), id(2), &result()).await, Outcome::Unknown, "{reaction:?}");
        assert_eq!(server.record().counts(&phone(number)).attempts, 1, "{reaction:?}");
        // A connection on which nothing arrives is replaced.
        assert_eq!(client.send(PHONE, id(1), &result()).await, Outcome::Taken);
        assert_eq!(server.connections(), number + 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_for_free_stream_is_not_unknown() {
    let (server, client) = apns(Limits { streams: 1, ..Limits::default() }, SHORT, 1).await;
    assert_eq!(client.send(PHONE, id(1), &result()).await, Outcome::Taken);
    server.record().react_always(Reaction::Hang);
    let outcomes = send_to_many(&client, 4).await;
    let unknown = outcomes.iter().filter(|outcome| **outcome == Outcome::Unknown).count();
    assert_eq!(unknown + 1, server.record().total().attempts as usize, "{outcomes:?}");
}

#[tokio::test]
async fn unreachable_provider_is_skipped_after_five_failures() {
    let test = ApnsTest::start().await;
    let mut settings = test.server.settings(TIMEOUT, 1);
    // Bound, but not listening: nothing else gets the port, and connections are refused.
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.1:0".parse().expect("an address")).expect("bound");
    let unused = socket.local_addr().expect("an address");
    settings.url = format!("http://{unused}").parse().expect("a URL");
    let client = Apns::new(settings, test.clock.now()).expect("a client");
    for _ in 0..5 {
        assert_eq!(client.send(PHONE, id(1), &result()).await, later(None, false));
    }
    let listener = socket.listen(8).expect("listening");
    assert_eq!(client.send(PHONE, id(1), &result()).await, later(None, false));
    let connected = tokio::time::timeout(Duration::from_millis(100), listener.accept()).await;
    assert!(connected.is_err(), "the breaker is open");
}

#[tokio::test]
async fn attempts_share_failed_connection() {
    let test = ApnsTest::start().await;
    // The kernel accepts connections, but nothing responds to a TLS handshake.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    silent.set_nonblocking(true).expect("supported");
    let mut settings = test.server.settings(SHORT, 1);
    settings.url = format!("https://{}", silent.local_addr().expect("an address")).parse().expect("a URL");
    let client = Apns::new(settings, test.clock.now()).expect("a client");
    let notification = result();
    let tokens: Vec<_> = (0..64).map(phone).collect();
    let outcomes = join_all(tokens.iter().map(|token| client.send(token, id(1), &notification))).await;
    assert_eq!(outcomes, vec![later(None, false); 64]);
    assert_eq!(iter::from_fn(|| silent.accept().ok()).count(), 1);
}

#[tokio::test]
async fn provider_with_server_errors_is_skipped() {
    let test = FcmTest::start().await;
    test.server.record().react_always(Reaction::error(503, "UNAVAILABLE"));
    for _ in 0..10 {
        assert!(matches!(test.send("phone").await, Outcome::Later { .. }));
    }
    assert_eq!(test.server.record().counts("phone").attempts, 5);
}

#[tokio::test]
async fn rate_limit_does_not_open_breaker() {
    let test = FcmTest::start().await;
    test.server.record().react(vec![Reaction::limited(60); 20]);
    for _ in 0..20 {
        assert_eq!(test.send("phone").await, later(Some(60), true));
    }
    assert_eq!(test.send("phone").await, Outcome::Taken);
    assert_eq!(test.server.record().counts("phone").too_early, 20);
}
