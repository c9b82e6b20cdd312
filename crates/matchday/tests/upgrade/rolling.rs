//! Processes are stopped and restarted one after another without a failed request.

use std::time::Instant;

use matchday::testing::with_database;
use sqlx::PgPool;

use crate::{
    balancer::{Balancer, Mode, Slot},
    load::{self, Load},
    stage::{process::Setting, proof::held, synapse::free_ports},
};

#[tokio::test]
async fn rolling_restart_fails_no_request() {
    rolling_restart(Mode::Http, 1).await;
}

#[tokio::test]
#[ignore = "three rounds: `just upgrade`"]
async fn three_rolling_restarts_fail_no_request() {
    rolling_restart(Mode::Http, 3).await;
}

/// A TCP balancer cannot move a connection to another process, so the stopping process must close its connections.
#[tokio::test]
async fn rolling_restart_fails_no_request_on_kept_connections() {
    rolling_restart(Mode::Tcp, 1).await;
}

#[tokio::test]
#[ignore = "three rounds: `just upgrade`"]
async fn three_rolling_restarts_fail_no_request_on_kept_connections() {
    rolling_restart(Mode::Tcp, 3).await;
}

async fn rolling_restart(mode: Mode, rounds: usize) {
    with_database(async |options| {
        let [port, statistics, ports @ ..] = free_ports::<6>();
        let slots = [Slot::new("one", ports[0], ports[1]), Slot::new("two", ports[2], ports[3])];
        let setting = load::configure(Setting::new(&options));
        setting.expect(&["fixtures", "import", "-"], &load::document());
        let mut processes = slots.map(|slot| slot.start(&setting));
        let balancer = Balancer::start(mode, port, statistics, &slots);
        for slot in &slots {
            balancer.wait_for_state(slot, true).await;
        }
        let load = Load::start(&balancer.address).await;
        let mut endings = Vec::new();
        for _ in 0..rounds {
            for (slot, process) in slots.iter().zip(&mut processes) {
                load.wait_for_requests(250).await;
                let signalled = Instant::now();
                process.signal("TERM");
                let status = process.ended().await;
                endings.push(signalled.elapsed());
                assert!(status.success(), "{status}: {:#?}", process.log());
                let log = process.log();
                assert!(log.last().is_some_and(|line| line.contains("\"message\":\"shutdown completed\"")), "{log:#?}");
                assert!(!log.iter().any(|line| line.contains("drain timed out")), "{log:#?}");
                balancer.wait_for_state(slot, false).await;
                *process = slot.start(&setting);
                balancer.wait_for_state(slot, true).await;
            }
        }
        let (acknowledged, took) = load.stop().await;
        let db = PgPool::connect_with(options).await.expect("connected");
        let summary = acknowledged.verify_stored_once(&db, &setting, took).await;
        db.close().await;
        let longest = endings.iter().max().copied().unwrap_or_default();
        let balancer = match mode {
            Mode::Http => "HAProxy in HTTP mode without retries",
            Mode::Tcp => "HAProxy in TCP mode",
        };
        let times = if rounds == 1 { "once".to_owned() } else { format!("{rounds} times") };
        held(
            &format!(
                "Two processes behind {balancer}, each stopped with SIGTERM and restarted in turn, {times}, under load"
            ),
            &format!("{summary}; each process exited within {longest:.1?} of SIGTERM"),
        );
    })
    .await;
}
