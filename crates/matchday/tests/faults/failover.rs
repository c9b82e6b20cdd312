//! The primary dies, and its standby takes over: nothing that was acknowledged is lost, and the service comes back by
//! itself.

use std::time::{Duration, Instant};

use crate::{dependencies::cluster::Cluster, load::Crowd, stage::proof::held};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly: takes a minute, and Patroni, etcd and HAProxy, which dev/proof-parts installs"]
async fn the_primary_is_killed_under_load_and_later_a_switchover_is_made() {
    let mut cluster = Cluster::start().await;
    let (setting, owner) = (cluster.setting().without("MATCHDAY_MATRIX__HOMESERVER_URL"), cluster.owner());
    let crowd = Crowd::gather(&setting, &owner, 16).await;
    let service = setting.start(&["serve"]);

    let load = crowd.start(&service);
    load.gets_on(500, Duration::from_mins(1)).await;
    let first = cluster.primary().await;
    let killed = Instant::now();
    cluster.kill(first);
    load.gets_on(500, Duration::from_mins(1)).await;
    let took = killed.elapsed();
    // It comes back while everybody goes on writing.
    cluster.start_again(first);
    let rejoined = cluster.is_whole().await;
    assert_ne!(cluster.primary().await, first, "the other one has taken over");
    let how = if cluster.log(first).contains("running pg_rewind") { "by pg_rewind" } else { "by streaming alone" };
    load.gets_on(500, Duration::from_mins(1)).await;
    let outcome = load.finish(&service, &setting, &owner).await;
    assert!(outcome.slowest < Duration::from_secs(12), "the slowest answer took {:.1?}", outcome.slowest);
    held(
        "faults",
        "The PostgreSQL primary killed (-9, Patroni and all) under load, with a synchronous standby",
        &format!(
            "{outcome}, none lost, none doubled; {:.1?} from the last acknowledgement before to the first one after \
             (Patroni's ttl 6 s, loop 1 s), 500 more within {took:.1?} of the kill, the service not restarted; the old \
             primary was in sync again {rejoined:.1?} after it was started, {how}; {}",
            outcome.longest_silence(),
            outcome.refused()
        ),
    );

    let before = cluster.primary().await;
    let crowd = Crowd::gather(&setting, &owner, 16).await;
    let load = crowd.start(&service);
    load.gets_on(300, Duration::from_mins(1)).await;
    cluster.switch_over().await;
    load.gets_on(300, Duration::from_mins(1)).await;
    let whole = cluster.is_whole().await;
    assert_ne!(cluster.primary().await, before, "they have changed places");
    let outcome = load.finish(&service, &setting, &owner).await;
    held(
        "faults",
        "A planned switchover between two PostgreSQL servers under load",
        &format!(
            "{outcome}; {:.1?} without an acknowledgement; both in sync {whole:.1?} later; {}",
            outcome.longest_silence(),
            outcome.refused()
        ),
    );
}
