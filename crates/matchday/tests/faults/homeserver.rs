//! Homeserver killed, paused and slow.

use std::time::{Duration, Instant};

use matchday::testing::with_database;
use serde_json::{Value, json};
use sqlx::{PgPool, postgres::PgConnectOptions};

use crate::{
    dependencies::proxy::{Proxy, Wire},
    load::Crowd,
    stage::{
        client::{Client, PATIENCE, within},
        process::get,
        proof::held,
        synapse::{Synapse, with_synapse},
    },
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    Killed,
    Paused,
    Slow,
}

impl Fault {
    fn begin(self, synapse: &mut Synapse, proxy: &Proxy) {
        match self {
            Self::Killed => synapse.kill(),
            Self::Paused => synapse.signal("STOP"),
            // Both directions together exceed the timeout of a call.
            Self::Slow => proxy.set(Wire::Slow(Duration::from_secs(3))),
        }
    }

    async fn end(self, synapse: &mut Synapse, proxy: &Proxy) {
        match self {
            Self::Killed => synapse.start().await,
            Self::Paused => synapse.signal("CONT"),
            Self::Slow => proxy.set(Wire::Normal),
        }
    }

    fn description(self) -> &'static str {
        match self {
            Self::Killed => "Homeserver killed (-9) and restarted under load",
            Self::Paused => "Homeserver paused (SIGSTOP) and resumed under load",
            Self::Slow => "Homeserver slow (3 s added in each direction) under load",
        }
    }
}

/// A match in its own tournament.
fn derby() -> String {
    json!({"sport": {"slug": "football", "name": "Football"},
           "tournament": {"slug": "derby", "name": "Derby", "logo": null},
           "teams": [{"slug": "rovers", "name": "Rovers"}, {"slug": "city", "name": "City"}],
           "matches": [{"key": "derby", "home": "rovers", "away": "city", "start_time": "2090-05-01T15:00:00Z",
                        "venue": "Park", "status": "scheduled", "home_score": null, "away_score": null}]})
    .to_string()
}

/// Number of open match rooms of that tournament.
async fn rooms_of_derby(owner: &PgConnectOptions) -> i64 {
    let db = PgPool::connect_with(owner.clone()).await.expect("connected");
    let query =
        "select count(*) from rooms r join events e on e.id = r.event_id join tournaments t on t.id = e.tournament_id
                 where t.slug = 'derby' and r.opened_at is not null";
    let count = sqlx::query_scalar(query).fetch_one(&db).await.expect("read");
    db.close().await;
    count
}

async fn run_with_fault(fault: Fault) {
    with_database(async |owner| {
        with_synapse(&owner, async |synapse| {
            let port = synapse.url.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
            let proxy = Proxy::to(port).await;
            let setting = synapse
                .setting(&owner)
                .with("MATCHDAY_MATRIX__HOMESERVER_URL", &format!("http://127.0.0.1:{}", proxy.port()));
            let quiet = setting.clone().without("MATCHDAY_MATRIX__HOMESERVER_URL");
            let crowd = Crowd::create(&quiet, &owner, 6).await;
            let service = setting.start(&["serve"]);
            let client = Client::new(&service);
            let ada = client.log_in("+14155550100", None).await;
            let ben = client.log_in("+14155550101", None).await;
            assert!(ada.chat.is_object(), "chat works");
            let room = client.open_room(&ada, "The stand", false).await;
            let load = crowd.start(&service);
            load.wait_for_progress(100, Duration::from_secs(30)).await;

            fault.begin(synapse, &proxy);
            let began = Instant::now();
            setting.expect(&["fixtures", "import", "-"], &derby());
            let (mut logins, mut slowest_login, mut slowest_refusal) = (0, Duration::ZERO, Duration::ZERO);
            let mut last_refusal = Duration::ZERO;
            while began.elapsed() < Duration::from_secs(8) || logins < 3 {
                let started = Instant::now();
                let newcomer = client.log_in(&format!("+1415555{:04}", 200 + logins), None).await;
                slowest_login = slowest_login.max(started.elapsed());
                assert_eq!(newcomer.chat, Value::Null, "a login without chat");
                logins += 1;
                let body = json!({"name": format!("Room {logins}"), "is_private": false});
                let started = Instant::now();
                let (opened, joined) = tokio::join!(
                    client.post("/api/auth/chat-room", &ada.token, body),
                    client.act("join", &room, &ben, json!({})),
                );
                last_refusal = started.elapsed();
                slowest_refusal = slowest_refusal.max(last_refusal);
                assert_eq!(opened.expect(503)["code"], "chat_unavailable");
                assert_eq!(joined.expect(503)["code"], "chat_unavailable");
                assert_eq!(get(&service.public, "/api/auth/chat-rooms", &ada.token).await.0, 200, "lists keep working");
                load.wait_for_progress(10, Duration::from_secs(10)).await;
            }
            assert_eq!(rooms_of_derby(&owner).await, 0);
            assert_eq!(get(&service.public, "/readyz", "").await.0, 200, "ready without a homeserver");
            assert!(slowest_login < Duration::from_secs(12), "a login took {slowest_login:.1?}");
            assert!(slowest_refusal < Duration::from_secs(11), "a refusal took {slowest_refusal:.1?}");

            fault.end(synapse, &proxy).await;
            let back = Instant::now();
            within(PATIENCE, "fans can join again", async || {
                client.act("join", &room, &ben, json!({})).await.status == 200
            })
            .await;
            let joined = back.elapsed();
            within(Duration::from_mins(2), "the room of the new match is created", async || {
                rooms_of_derby(&owner).await == 1
            })
            .await;
            let made = back.elapsed();
            let outcome = load.finish(&service, &quiet, &owner).await;
            held(fault.description(),
                &format!(
                    "{outcome}, {}; {logins} logins without chat credentials, the slowest in {slowest_login:.1?}; opening \
                     and joining rooms returned 503 chat_unavailable, the slowest in {slowest_refusal:.1?} and the last in \
                     {last_refusal:.1?}; the first join succeeded {joined:.1?} after the homeserver was back; the room of \
                     a match imported during the fault was created after {made:.1?}",
                    outcome.refused()
                ),
            );
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly: takes a minute"]
async fn kill_under_load_loses_no_write() {
    run_with_fault(Fault::Killed).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly: takes a minute"]
async fn pause_under_load_loses_no_write() {
    run_with_fault(Fault::Paused).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly: takes a minute"]
async fn slowness_under_load_loses_no_write() {
    run_with_fault(Fault::Slow).await;
}
