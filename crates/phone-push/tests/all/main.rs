//! Both clients against their stand-ins.

mod apns;
mod connections;
mod fcm;
mod rates;

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use phone_push::{
    Apns, Fcm, Notification, Now, Outcome, SubjectId,
    stand_in::{ApnsStandIn, FcmStandIn},
};
use time::{OffsetDateTime, macros::datetime};
use tokio::net::{TcpListener, TcpStream};
use uuid::Uuid;

const START: OffsetDateTime = datetime!(2026-11-20 12:00 UTC);
const TIMEOUT: Duration = Duration::from_secs(5);
const PHONE: &str = "740f4707bebcf74f9b7c25d48e3358945f6aa01da5ddb387462c7eaf61bb78ad";

/// Clock that a test moves.
#[derive(Clone, Default)]
struct TestClock(Arc<AtomicI64>);

impl TestClock {
    fn advance(&self, seconds: i64) {
        self.0.fetch_add(seconds, Ordering::Relaxed);
    }

    fn now(&self) -> Now {
        let seconds = self.0.clone();
        Arc::new(move || START + time::Duration::seconds(seconds.load(Ordering::Relaxed)))
    }
}

fn result() -> Notification {
    Notification {
        title: "Full time".to_owned(),
        body: "You scored 3 points.".to_owned(),
        kind: "result",
        link: "/events/7".to_owned(),
        subject: Some(("event_id", SubjectId::Number(7))),
        collapse_key: "result-7".to_owned(),
        high_priority: false,
        expires_at: START + time::Duration::hours(12),
    }
}

fn mention() -> Notification {
    Notification {
        kind: "mention",
        link: "/rooms/!a:example.org".to_owned(),
        subject: Some(("room_id", SubjectId::Text("!a:example.org".to_owned()))),
        collapse_key: "mention-0123456789abcdef".to_owned(),
        high_priority: true,
        ..result()
    }
}

fn later(seconds: Option<u64>, limited: bool) -> Outcome {
    Outcome::Later { after: seconds.map(Duration::from_secs), limited }
}

fn refused(code: &str) -> Outcome {
    Outcome::Refused { code: code.to_owned() }
}

/// Hexadecimal device token with this number.
fn phone(number: usize) -> String {
    format!("{number:064x}")
}

fn id(number: usize) -> Uuid {
    Uuid::from_u128(number as u128)
}

struct FcmTest {
    server: FcmStandIn,
    client: Arc<Fcm>,
    clock: TestClock,
}

impl FcmTest {
    async fn start() -> Self {
        let clock = TestClock::default();
        let server = FcmStandIn::start(clock.now()).await.expect("a server");
        let client = Arc::new(Fcm::new(server.settings(TIMEOUT, 2), clock.now()).expect("a client"));
        Self { server, client, clock }
    }

    async fn send(&self, token: &str) -> Outcome {
        self.client.send(token, &result()).await
    }

    /// Outcomes of concurrent attempts for different devices.
    async fn send_to_many(&self, count: usize) -> Vec<Outcome> {
        let sending = (0..count).map(|number| {
            let client = self.client.clone();
            tokio::spawn(async move { client.send(&phone(number), &result()).await })
        });
        futures_util::future::try_join_all(sending).await.expect("no panic")
    }
}

struct ApnsTest {
    server: ApnsStandIn,
    client: Arc<Apns>,
    clock: TestClock,
}

impl ApnsTest {
    async fn start() -> Self {
        let clock = TestClock::default();
        let server = ApnsStandIn::start(clock.now()).await.expect("a server");
        let client = Arc::new(Apns::new(server.settings(TIMEOUT, 2), clock.now()).expect("a client"));
        Self { server, client, clock }
    }

    async fn send(&self) -> Outcome {
        self.client.send(PHONE, id(1), &result()).await
    }
}

/// Outcomes of concurrent attempts for different devices.
async fn send_to_many(client: &Arc<Apns>, count: usize) -> Vec<Outcome> {
    let sending = (0..count).map(|number| {
        let client = client.clone();
        tokio::spawn(async move { client.send(&phone(number), id(number), &result()).await })
    });
    futures_util::future::try_join_all(sending).await.expect("no panic")
}

/// Forwards connections to a server.
async fn forward(listener: TcpListener, address: String) {
    loop {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut target = TcpStream::connect(&address).await.expect("a connection");
        tokio::spawn(async move { tokio::io::copy_bidirectional(&mut stream, &mut target).await });
    }
}
