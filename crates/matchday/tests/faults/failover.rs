//! The primary dies and its standby takes over: no acknowledged write is lost, and the service recovers without a
//! restart.

use std::time::{Duration, Instant};

use crate::{dependencies::cluster::Cluster, load::Crowd, stage::proof::held};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly: takes a minute; needs Patroni, etcd and HAProxy from dev/install-test-tools"]
async fn failover_and_switchover_lose_no_write() {
    let mut cluster = Cluster::start().await;
    let (setting, owner) = (cluster.setting().without("MATCHDAY_MATRIX__HOMESERVER_URL"), cluster.owner());
    let crowd = Crowd::create(&setting, &owner, 16).await;
    let service = setting.start(&["serve"]);

    let load = crowd.start(&service);
    load.wait_for_progress(500, Duration::from_mins(1)).await;
    let first = cluster.primary().await;
    let killed = Instant::now();
    cluster.kill(first);
    load.wait_for_progress(500, Duration::from_mins(1)).await;
    let took = killed.elapsed();
    // The old primary rejoins under load.
    cluster.restart(first);
    let rejoined = cluster.wait_until_synced().await;
    assert_ne!(cluster.primary().await, first, "the standby has taken over");
    let how = if cluster.log(first).contains("running pg_rewind") { "by pg_rewind" } else { "by streaming only" };
    load.wait_for_progress(500, Duration::from_mins(1)).await;
    let outcome = load.finish(&service, &setting, &owner).await;
    assert!(outcome.slowest < Duration::from_secs(12), "the slowest response took {:.1?}", outcome.slowest);
    held(
        "PostgreSQL primary and its Patroni killed (-9) under load, with a synchronous standby",
        &format!(
            "{outcome}, none lost or duplicated; {:.1?} from the last acknowledgement before the failover to the first one \
             after it (Patroni's ttl 6 s, loop 1 s), 500 more acknowledged within {took:.1?} of the kill, without a \
             service restart; the old primary was in sync again {rejoined:.1?} after its restart, {how}; {}",
            outcome.longest_silence(),
            outcome.refused()
        ),
    );

    let before = cluster.primary().await;
    let crowd = Crowd::create(&setting, &owner, 16).await;
    let load = crowd.start(&service);
    load.wait_for_progress(300, Duration::from_mins(1)).await;
    cluster.switch_over().await;
    load.wait_for_progress(300, Duration::from_mins(1)).await;
    let whole = cluster.wait_until_synced().await;
    assert_ne!(cluster.primary().await, before, "the servers have swapped roles");
    let outcome = load.finish(&service, &setting, &owner).await;
    held(
        "Planned switchover between two PostgreSQL servers under load",
        &format!(
            "{outcome}; {:.1?} without an acknowledgement; both in sync {whole:.1?} later; {}",
            outcome.longest_silence(),
            outcome.refused()
        ),
    );
}
