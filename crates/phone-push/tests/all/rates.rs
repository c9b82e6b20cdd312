//! Rate of the clients beside a bare HTTP/2 client: the same requests on as many connections, without anything else.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use phone_push::{
    Apns, Fcm, Outcome,
    stand_in::{ApnsStandIn, FcmStandIn, Record, bare::repeat},
};

use super::{TIMEOUT, TestClock, id, phone, result};

const CONNECTIONS: usize = 4;
/// Requests under way at the same time.
const AT_ONCE: usize = 256;
const DEVICES: u32 = 40_000;
const ROUNDS: usize = 3;
const REQUIRED: f64 = 0.7;

/// Runs `work` for each device, and returns the number per second.
async fn rate<W, F>(work: W) -> f64
where
    W: Fn(usize, usize) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = ()> + Send,
{
    let (next, started) = (Arc::new(AtomicUsize::new(0)), Instant::now());
    let workers = (0..AT_ONCE).map(|worker| {
        let (next, work) = (next.clone(), work.clone());
        tokio::spawn(async move {
            loop {
                let device = next.fetch_add(1, Ordering::Relaxed);
                if device >= DEVICES as usize {
                    return;
                }
                work(worker, device).await;
            }
        })
    });
    futures_util::future::try_join_all(workers).await.expect("no panic");
    f64::from(DEVICES) / started.elapsed().as_secs_f64()
}

/// Rate of a bare HTTP/2 client that repeats the request which a stand-in accepted first.
async fn bare(address: &str, record: &Record) -> f64 {
    let first = record.received().swap_remove(0);
    let took = repeat(address, &first, CONNECTIONS, AT_ONCE, DEVICES as usize).await.expect("repeated");
    f64::from(DEVICES) / took.as_secs_f64()
}

#[expect(clippy::print_stderr, reason = "shows the figures")]
fn judge(name: &str, ours: &mut [f64], bare: &mut [f64]) {
    ours.sort_by(f64::total_cmp);
    bare.sort_by(f64::total_cmp);
    let (ours, bare) = (ours[ROUNDS / 2], bare[ROUNDS / 2]);
    let ratio = ours / bare;
    eprintln!("{name}: {ours:.0} per second, bare HTTP/2 client {bare:.0} per second, ratio {ratio:.2}");
    // Without optimisation, the ratio says nothing about the code.
    assert!(cfg!(debug_assertions) || ratio >= REQUIRED, "{name}: {ratio:.2} is below {REQUIRED}");
}

#[ignore = "measures rates, in a release build on an idle machine"]
#[tokio::test(flavor = "multi_thread")]
async fn rates() {
    let clock = TestClock::default();
    let timeout = TIMEOUT.max(Duration::from_secs(30));

    let server = ApnsStandIn::start(clock.now()).await.expect("a server");
    let client = Arc::new(Apns::new(server.settings(timeout, CONNECTIONS), clock.now()).expect("a client"));
    assert_eq!(client.send(&phone(0), id(0), &result()).await, Outcome::Taken);
    let (mut ours, mut loops) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let client = client.clone();
        ours.push(
            rate(move |_, device| {
                let client = client.clone();
                async move { assert_eq!(client.send(&phone(device), id(device), &result()).await, Outcome::Taken) }
            })
            .await,
        );
        loops.push(bare(&server.address(), server.record()).await);
    }
    judge("APNs", &mut ours, &mut loops);

    let server = FcmStandIn::start(clock.now()).await.expect("a server");
    let client = Arc::new(Fcm::new(server.settings(timeout, CONNECTIONS), clock.now()).expect("a client"));
    assert_eq!(client.send(&phone(0), &result()).await, Outcome::Taken);
    let (mut ours, mut loops) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let client = client.clone();
        ours.push(
            rate(move |_, device| {
                let client = client.clone();
                async move { assert_eq!(client.send(&phone(device), &result()).await, Outcome::Taken) }
            })
            .await,
        );
        loops.push(bare(&server.address(), server.record()).await);
    }
    judge("FCM", &mut ours, &mut loops);
}
