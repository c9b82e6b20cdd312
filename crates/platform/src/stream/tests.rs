use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use super::*;
use crate::testing::{eventually, streams_for_tests};

fn spec() -> WorkSpec {
    WorkSpec {
        attempts: 3,
        retried_for: Duration::ZERO,
        first_pause: Duration::from_millis(20),
        longest_pause: Duration::from_millis(50),
        ..WorkSpec::new("tester", Stream::Work, "work.test.>")
    }
}

async fn put(streams: &Streams, subject: &str, body: &'static str) {
    let message = PublishMessage::build().payload(body.into());
    streams.send(subject, message).await.expect("sent").await.expect("stored");
}

/// Runs the handler until `done` holds, then stops the consumer.
async fn consume_until<F>(
    streams: &Streams,
    handler: impl Fn(Delivery) -> F + Send + Sync + 'static,
    done: impl AsyncFn() -> bool,
) where
    F: Future<Output = Result<(), Failure>> + Send + 'static,
{
    consume_while_waiting(streams, handler, eventually("the work is done", done)).await;
}

/// Runs the handler until `wait` ends, then stops the consumer.
async fn consume_while_waiting<F>(
    streams: &Streams,
    handler: impl Fn(Delivery) -> F + Send + Sync + 'static,
    wait: impl Future<Output = ()>,
) where
    F: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let shutdown = CancellationToken::new();
    let worker = tokio::spawn({
        let (streams, shutdown) = (streams.clone(), shutdown.clone());
        async move { streams.consume(spec(), handler, shutdown).await }
    });
    wait.await;
    shutdown.cancel();
    worker.await.expect("the consumer ends");
}

#[tokio::test]
async fn temporary_failure_is_retried() {
    let streams = streams_for_tests().await;
    put(&streams, "work.test.one", "a").await;
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&attempts);
    let handler = move |delivery: Delivery| {
        seen.lock().expect("not poisoned").push(delivery.attempt);
        async move { if delivery.attempt < 3 { Err(Failure::retry(anyhow::anyhow!("not yet"))) } else { Ok(()) } }
    };
    consume_until(&streams, handler, async || streams.replay(Stream::Work).await.expect("read").is_empty()).await;
    assert_eq!(*attempts.lock().expect("not poisoned"), [1, 2, 3]);
    assert!(streams.replay(Stream::Dead).await.expect("read").is_empty());
    streams.remove().await;
}

#[tokio::test]
async fn consumer_is_idle_after_all_work_is_done() {
    let streams = streams_for_tests().await;
    let is_idle = async || streams.is_idle("tester").await.expect("asked");
    assert!(!is_idle().await, "the consumer does not exist");
    put(&streams, "work.test.one", "a").await;
    let may_end = Arc::new(tokio::sync::Semaphore::new(0));
    let (held, begun) = (Arc::clone(&may_end), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&begun);
    let handler = move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        let held = Arc::clone(&held);
        async move {
            held.acquire().await.expect("open").forget();
            Ok(())
        }
    };
    let was_seen = AtomicBool::new(false);
    consume_until(&streams, handler, async || {
        if begun.load(Ordering::SeqCst) == 0 {
            return false;
        }
        if !was_seen.swap(true, Ordering::SeqCst) {
            assert!(!is_idle().await, "it is working");
            may_end.add_permits(1);
        }
        is_idle().await
    })
    .await;
    assert_eq!(begun.load(Ordering::SeqCst), 1);
    streams.remove().await;
}

#[tokio::test]
async fn failed_work_becomes_a_dead_letter() {
    let streams = streams_for_tests().await;
    put(&streams, "work.test.hopeless", "h").await;
    put(&streams, "work.test.stubborn", "s").await;
    put(&streams, "work.test.fine", "f").await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let handler = move |delivery: Delivery| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move {
            match delivery.subject.as_str() {
                "work.test.hopeless" => Err(Failure::GiveUp(anyhow::anyhow!("cannot\nbe done"))),
                "work.test.stubborn" => Err(Failure::retry(anyhow::anyhow!("again"))),
                _ => Ok(()),
            }
        }
    };
    consume_until(&streams, handler, async || streams.replay(Stream::Work).await.expect("read").is_empty()).await;
    assert_eq!(calls.load(Ordering::SeqCst), 1 + 3 + 1);
    let mut dead = streams.replay(Stream::Dead).await.expect("read");
    dead.sort();
    assert_eq!(
        dead,
        [
            ("dead.work.test.hopeless".to_owned(), Bytes::from("h")),
            ("dead.work.test.stubborn".to_owned(), Bytes::from("s"))
        ]
    );
    streams.remove().await;
}

/// More items fail than NATS would keep unacknowledged by default, and all of them wait for a retry.
#[tokio::test]
async fn failing_items_do_not_block_others() {
    let streams = streams_for_tests().await;
    for _ in 0..1_010 {
        put(&streams, "work.test.hopeless", "h").await;
    }
    put(&streams, "work.test.fine", "f").await;
    let is_done = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&is_done);
    let handler = move |delivery: Delivery| {
        if delivery.subject == "work.test.fine" {
            seen.store(true, Ordering::SeqCst);
        }
        async move {
            match delivery.subject.as_str() {
                "work.test.fine" => Ok(()),
                _ => Err(Failure::Retry { error: anyhow::anyhow!("not yet"), after: Some(Duration::from_hours(1)) }),
            }
        }
    };
    // A busy machine takes a while for so many items.
    let wait = async {
        let began = std::time::Instant::now();
        while !is_done.load(Ordering::SeqCst) {
            assert!(began.elapsed() < Duration::from_mins(1), "the last item was not handled");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    consume_while_waiting(&streams, handler, wait).await;
    assert!(streams.replay(Stream::Dead).await.expect("read").is_empty());
    streams.remove().await;
}

#[tokio::test]
async fn failing_item_is_given_up_when_it_is_old() {
    let streams = streams_for_tests().await;
    // The age counts from here on.
    let began = std::time::Instant::now();
    put(&streams, "work.test.stubborn", "s").await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let handler = move |_: Delivery| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Err(Failure::retry(anyhow::anyhow!("again"))) }
    };
    let spec = WorkSpec { attempts: 2, retried_for: Duration::from_millis(800), ..spec() };
    let (shutdown, consumer) = (CancellationToken::new(), streams.clone());
    let stop = shutdown.clone();
    let worker = tokio::spawn(async move { consumer.consume(spec, handler, stop).await });
    eventually("it is given up", async || streams.replay(Stream::Dead).await.expect("read").len() == 1).await;
    shutdown.cancel();
    worker.await.expect("the consumer ends");
    assert!(began.elapsed() >= Duration::from_millis(700), "{:?}", began.elapsed());
    assert!(calls.load(Ordering::SeqCst) > 2, "more attempts than required");
    streams.remove().await;
}

#[test]
fn pauses_grow_with_attempts_and_age() {
    let spec =
        WorkSpec { longest_pause: Duration::from_secs(30), ..WorkSpec::new("tester", Stream::Work, "work.test.>") };
    let pause = |attempt, age| spec.pause_after(Tried { attempt, age });
    let day = Duration::from_hours(24);
    assert_eq!(pause(1, Duration::ZERO), Duration::from_millis(500));
    assert_eq!(pause(1, day), Duration::from_millis(500));
    assert_eq!(pause(20, Duration::from_mins(9)), Duration::from_secs(30));
    assert_eq!(pause(20, Duration::from_mins(40)), Duration::from_mins(2));
    assert_eq!(pause(u64::MAX, day), LONGEST_PAUSE);
}

#[tokio::test]
async fn two_consumers_share_the_work() {
    let streams = streams_for_tests().await;
    for _ in 0..40 {
        put(&streams, "work.test.many", "x").await;
    }
    let shutdown = CancellationToken::new();
    let counts = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let workers: Vec<_> = counts
        .iter()
        .map(|count| {
            let (streams, shutdown, count) = (streams.clone(), shutdown.clone(), Arc::clone(count));
            tokio::spawn(async move {
                let handler = move |_| {
                    count.fetch_add(1, Ordering::SeqCst);
                    async { Ok(()) }
                };
                streams.consume(spec(), handler, shutdown).await;
            })
        })
        .collect();
    eventually("all work is done", async || streams.replay(Stream::Work).await.expect("read").is_empty()).await;
    shutdown.cancel();
    for worker in workers {
        worker.await.expect("ends");
    }
    let [a, b] = counts.map(|count| count.load(Ordering::SeqCst));
    assert_eq!(a + b, 40, "each item once");
    assert!(a > 0 && b > 0, "both worked: {a} and {b}");
    streams.remove().await;
}

#[tokio::test]
async fn panicking_handler_is_retried_then_dead_lettered() {
    let streams = streams_for_tests().await;
    put(&streams, "work.test.panics", "p").await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let handler = move |_: Delivery| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { panic!("on purpose") }
    };
    consume_until(&streams, handler, async || streams.replay(Stream::Work).await.expect("read").is_empty()).await;
    assert_eq!(calls.load(Ordering::SeqCst), 3);
    assert_eq!(streams.replay(Stream::Dead).await.expect("read").len(), 1);
    streams.remove().await;
}

#[tokio::test]
async fn pause_longer_than_ack_wait_is_kept() {
    let streams = streams_for_tests().await;
    put(&streams, "work.test.paused", "p").await;
    let calls = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&calls);
    let handler = move |delivery: Delivery| {
        seen.lock().expect("not poisoned").push((delivery.attempt, std::time::Instant::now()));
        async move {
            let (error, after) = (anyhow::anyhow!("not yet"), Some(Duration::from_millis(1_500)));
            if delivery.attempt == 1 { Err(Failure::Retry { error, after }) } else { Ok(()) }
        }
    };
    let spec = WorkSpec { ack_wait: Duration::from_millis(300), ..spec() };
    let (shutdown, consumer) = (CancellationToken::new(), streams.clone());
    let stop = shutdown.clone();
    let worker = tokio::spawn(async move { consumer.consume(spec, handler, stop).await });
    eventually("the work is done", async || streams.replay(Stream::Work).await.expect("read").is_empty()).await;
    shutdown.cancel();
    worker.await.expect("the consumer ends");
    let calls = calls.lock().expect("not poisoned").clone();
    let [(1, first), (2, second)] = calls[..] else { panic!("{calls:?}") };
    assert!(second - first >= Duration::from_millis(1_500), "{:?}", second - first);
    streams.remove().await;
}

#[tokio::test]
async fn dead_letter_is_listed_and_replayed() {
    let streams = streams_for_tests().await;
    put(&streams, "work.test.one", "a").await;
    put(&streams, "work.test.two", "b").await;
    let handler = |_: Delivery| async { Err(Failure::GiveUp(anyhow::anyhow!("no\nway"))) };
    consume_until(&streams, handler, async || streams.dead("work.test.*").await.expect("read").len() == 2).await;
    let dead = streams.dead("work.test.two").await.expect("read");
    assert_eq!(
        (dead.len(), dead[0].subject.as_str(), &dead[0].payload[..], dead[0].reason.as_str()),
        (1, "work.test.two", &b"b"[..], "no way")
    );
    assert!(streams.dead("work.other.*").await.expect("read").is_empty());
    let letter = streams.dead_letter(dead[0].sequence).await.expect("read").expect("there");
    streams.revive(&letter).await.expect("revived");
    // A caller that missed the response repeats the call.
    assert!(streams.revive(&letter).await.is_err(), "the dead letter was deleted");
    assert!(streams.dead_letter(letter.sequence).await.expect("read").is_none());
    let work = streams.replay(Stream::Work).await.expect("read");
    assert_eq!(work, [("work.test.two".to_owned(), Bytes::from("b"))], "once");
    assert_eq!(streams.waiting(Stream::Work, "work.test.*").await.expect("read"), ["work.test.two"]);
    streams.discard(Stream::Work, "work.test.two").await.expect("dropped");
    assert!(streams.replay(Stream::Work).await.expect("read").is_empty());
    assert_eq!(streams.consumers(Stream::Work).await.expect("read"), ["tester"]);
    streams.end_consumer(Stream::Work, "tester").await.expect("ended");
    assert!(streams.consumers(Stream::Work).await.expect("read").is_empty());
    streams.remove().await;
}

#[tokio::test]
async fn one_consumer_can_have_several_subjects() {
    let streams = streams_for_tests().await;
    for subject in ["work.test.one", "work.other.two", "work.third.three"] {
        put(&streams, subject, "x").await;
    }
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let handler = move |delivery: Delivery| {
        log.lock().expect("not poisoned").push(delivery.subject);
        async { Ok(()) }
    };
    let spec = WorkSpec { also: &["work.other.two"], ..WorkSpec::new("several", Stream::Work, "work.test.>") };
    let (shutdown, consumer) = (CancellationToken::new(), streams.clone());
    let stop = shutdown.clone();
    let worker = tokio::spawn(async move { consumer.consume(spec, handler, stop).await });
    eventually("both are done", async || streams.replay(Stream::Work).await.expect("read").len() == 1).await;
    shutdown.cancel();
    worker.await.expect("the consumer ends");
    let mut seen = seen.lock().expect("not poisoned").clone();
    seen.sort();
    assert_eq!(seen, ["work.other.two", "work.test.one"]);
    streams.remove().await;
}

#[tokio::test]
async fn credentials_of_the_url_are_sent_to_the_server() {
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

    for (user_info, shown) in [
        ("ada:pass%2Fword@", serde_json::json!({"user": "ada", "pass": "pass/word"})),
        ("a-token@", serde_json::json!({"auth_token": "a-token"})),
        ("", serde_json::json!({})),
    ] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("an address");
        let server = tokio::spawn(async move {
            let (connection, _) = listener.accept().await.expect("a client");
            let mut connection = BufReader::new(connection);
            let info = br#"INFO {"server_id":"x","version":"2.11.0","max_payload":1048576,"auth_required":true}"#;
            connection.write_all(info).await.expect("published");
            connection.write_all(b"\r\n").await.expect("published");
            let mut line = String::new();
            connection.read_line(&mut line).await.expect("a line");
            line
        });
        let name = format!("nats://{user_info}{address}");
        let settings = crate::testing::settings(&[("MATCHDAY_NATS__URL", name.as_str())], super::Settings::read);
        let _streams = Streams::connect(&settings).await.expect("it connects in the background");
        let line = server.await.expect("heard");
        let published: serde_json::Value =
            serde_json::from_str(line.trim().strip_prefix("CONNECT ").expect("the first word")).expect("JSON");
        for key in ["user", "pass", "auth_token"] {
            assert_eq!(published.get(key).filter(|value| !value.is_null()), shown.get(key), "{user_info}: {key}");
        }
    }
}
