//! Two versions run at the same time.

use std::path::Path;

use matchday::testing::with_database;
use serde_json::Value;
use sqlx::PgPool;

use crate::{
    balancer::{Balancer, Mode, Slot},
    load::{self, Load},
    stage::{process::Setting, proof::held, synapse::free_ports},
};

/// `MATCHDAY_OLD_BIN` names the binary of the old version, `MATCHDAY_OLD_REVISION` the revision it was built from.
#[tokio::test]
#[ignore = "needs a binary of the old version: `just upgrade`"]
async fn upgrade_from_old_version_fails_no_request() {
    let old = std::env::var_os("MATCHDAY_OLD_BIN").expect("MATCHDAY_OLD_BIN: run `just upgrade`");
    let revision = std::env::var("MATCHDAY_OLD_REVISION").unwrap_or_else(|_| "an old revision".to_owned());
    with_database(async |options| {
        let [port, statistics, ports @ ..] = free_ports::<10>();
        let slots = ["old_one", "old_two", "new_one", "new_two"];
        let slots: Vec<Slot> =
            slots.iter().zip(ports.chunks(2)).map(|(name, ports)| Slot::new(name, ports[0], ports[1])).collect();
        // The old version may not have coins.
        let new = load::configure(Setting::new(&options)).without("MATCHDAY_COINS__WELCOME");
        let old = new.clone().with_binary(Path::new(&old));
        new.expect(&["migrate", "down", "--all"], "");
        let known = old.expect(&["migrate"], "");
        old.expect(&["fixtures", "import", "-"], &load::document());
        let mut processes = [slots[0].start(&old), slots[1].start(&old)];
        let balancer = Balancer::start(Mode::Http, port, statistics, &slots);
        for slot in &slots[..2] {
            balancer.wait_for_state(slot, true).await;
        }
        let description: Value = serde_json::from_str(&old.expect(&["openapi"], "")).expect("a description");
        let has_coins = description["paths"].get("/api/auth/coins/deduct").is_some();
        let load = Load::start_without_coins(&balancer.address).await;
        load.wait_for_requests(500).await;

        let refused = new.run(&["serve"], "");
        let applied = new.expect(&["migrate"], "");
        if applied != "applied 0 migrations" {
            let printed = String::from_utf8_lossy(&refused.stderr).trim().to_owned();
            assert!(!refused.status.success() && printed.contains("run `matchday migrate` first"), "{printed}");
        }
        load.wait_for_requests(500).await;
        // An old process can still be restarted after the migration.
        processes[0].signal("TERM");
        assert!(processes[0].ended().await.success());
        balancer.wait_for_state(&slots[0], false).await;
        processes[0] = slots[0].start(&old);
        balancer.wait_for_state(&slots[0], true).await;

        let started = [slots[2].start(&new), slots[3].start(&new)];
        for slot in &slots[2..] {
            balancer.wait_for_state(slot, true).await;
        }
        load.wait_for_requests(500).await;
        for process in &mut processes {
            process.signal("TERM");
            assert!(process.ended().await.success(), "{:#?}", process.log());
        }
        for spender in &load.spenders {
            new.expect(&["coins", "grant", &spender.to_string(), "1000000", "--reason", "the upgrade"], "");
        }
        load.allow_spending();
        load.wait_for_requests(1_000).await;
        let (acknowledged, took) = load.stop().await;
        let db = PgPool::connect_with(options).await.expect("connected");
        let summary = acknowledged.verify_stored_once(&db, &new, took).await;
        db.close().await;
        drop(started);
        held(&format!("Upgrade from {revision} to this version under load: two old processes, `matchday migrate`, two new processes added, the old ones stopped"),
            &format!(
                "the old version {known}, the new one {applied}{}; an old process restarted after the migration served \
                 requests; {summary}",
                if has_coins { "" } else { ", including coins" }
            ),
        );
    })
    .await;
}
