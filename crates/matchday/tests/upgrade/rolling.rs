//! Processes are ended and started again, one after the other, and nobody notices.

use std::time::Instant;

use matchday::testing::with_database;
use sqlx::PgPool;

use crate::{
    balancer::{Balancer, Passes, Slot},
    load::{self, Load},
    stage::{process::Setting, proof::held, synapse::free_ports},
};

#[tokio::test]
async fn a_rolling_restart_fails_no_request() {
    rolling_restart(Passes::Requests, 1).await;
}

#[tokio::test]
#[ignore = "three times round: `just upgrade`"]
async fn three_rolling_restarts_fail_no_request() {
    rolling_restart(Passes::Requests, 3).await;
}

/// Such a balancer cannot take a connection away from a process; the process must send its clients away.
#[tokio::test]
async fn a_rolling_restart_fails_no_request_of_a_connection_that_is_kept() {
    rolling_restart(Passes::Connections, 1).await;
}

#[tokio::test]
#[ignore = "three times round: `just upgrade`"]
async fn three_rolling_restarts_fail_no_request_of_a_connection_that_is_kept() {
    rolling_restart(Passes::Connections, 3).await;
}

async fn rolling_restart(passes: Passes, rounds: usize) {
    with_database(async |options| {
        let [port, statistics, ports @ ..] = free_ports::<6>();
        let slots = [Slot::new("one", ports[0], ports[1]), Slot::new("two", ports[2], ports[3])];
        let setting = load::fit(Setting::new(&options));
        setting.expect(&["fixtures", "import", "-"], &load::document());
        let mut processes = slots.map(|slot| slot.start(&setting));
        let balancer = Balancer::start(passes, port, statistics, &slots);
        for slot in &slots {
            balancer.sees(slot, true).await;
        }
        let load = Load::start(&balancer.address).await;
        let mut endings = Vec::new();
        for _ in 0..rounds {
            for (slot, process) in slots.iter().zip(&mut processes) {
                load.goes_on(250).await;
                let told = Instant::now();
                process.signal("TERM");
                let status = process.ended().await;
                endings.push(told.elapsed());
                assert!(status.success(), "{status}: {:#?}", process.log());
                let log = process.log();
                assert!(log.last().is_some_and(|line| line.contains("\"message\":\"ended\"")), "{log:#?}");
                assert!(!log.iter().any(|line| line.contains("cut off")), "{log:#?}");
                balancer.sees(slot, false).await;
                *process = slot.start(&setting);
                balancer.sees(slot, true).await;
            }
        }
        let (told, took) = load.stop().await;
        let db = PgPool::connect_with(options).await.expect("connected");
        let came = told.is_there_once(&db, &setting, took).await;
        db.close().await;
        let longest = endings.iter().max().copied().unwrap_or_default();
        let balancer = match passes {
            Passes::Requests => "HAProxy, which passes on requests and never repeats one",
            Passes::Connections => "a balancer that passes on whole connections",
        };
        let times = if rounds == 1 { "once".to_owned() } else { format!("{rounds} times") };
        held(
            "upgrade",
            &format!("Two processes behind {balancer}: each ended with SIGTERM and started again in turn, {times} round, under load"),
            &format!("{came}; each process ended by itself, {longest:.1?} after it was told at the latest"),
        );
    })
    .await;
}
