use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};

use super::*;
use crate::testing::{eventually, streams_for_tests};

fn spec() -> WorkSpec {
    WorkSpec {
        attempts: 3,
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
    let shutdown = CancellationToken::new();
    let worker = tokio::spawn({
        let (streams, shutdown) = (streams.clone(), shutdown.clone());
        async move { streams.consume(spec(), handler, shutdown).await }
    });
    eventually("the work is done", done).await;
    shutdown.cancel();
    worker.await.expect("the consumer ends");
}

#[tokio::test]
async fn a_passing_failure_is_tried_again_and_then_done() {
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
async fn hopeless_work_is_set_aside_at_once_and_stubborn_work_after_its_attempts() {
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
async fn a_handler_that_panics_is_tried_again_and_then_set_aside_once() {
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
