//! Two versions side by side.

use std::path::Path;

use matchday::testing::with_database;
use serde_json::Value;
use sqlx::PgPool;

use crate::{
    balancer::{Balancer, Passes, Slot},
    load::{self, Load},
    stage::{process::Setting, proof::held, synapse::free_ports},
};

/// `MATCHDAY_OLD_BIN` names the binary of the version before, `MATCHDAY_OLD_REVISION` what it was built from.
#[tokio::test]
#[ignore = "needs a binary of the version before: `just upgrade`"]
async fn an_old_version_is_replaced_by_this_one_and_nobody_notices() {
    let old = std::env::var_os("MATCHDAY_OLD_BIN").expect("MATCHDAY_OLD_BIN: run `just upgrade`");
    let revision = std::env::var("MATCHDAY_OLD_REVISION").unwrap_or_else(|_| "an old revision".to_owned());
    with_database(async |options| {
        let [port, statistics, ports @ ..] = free_ports::<10>();
        let slots = ["old_one", "old_two", "new_one", "new_two"];
        let slots: Vec<Slot> =
            slots.iter().zip(ports.chunks(2)).map(|(name, ports)| Slot::new(name, ports[0], ports[1])).collect();
        // The old version may not know of coins.
        let new = load::fit(Setting::new(&options)).without("MATCHDAY_COINS__WELCOME");
        let old = new.clone().with_binary(Path::new(&old));
        new.expect(&["migrate", "down", "--all"], "");
        let known = old.expect(&["migrate"], "");
        old.expect(&["fixtures", "import", "-"], &load::document());
        let mut processes = [slots[0].start(&old), slots[1].start(&old)];
        let balancer = Balancer::start(Passes::Requests, port, statistics, &slots);
        for slot in &slots[..2] {
            balancer.sees(slot, true).await;
        }
        let description: Value = serde_json::from_str(&old.expect(&["openapi"], "")).expect("a description");
        let knows_coins = description["paths"].get("/api/auth/coins/deduct").is_some();
        let load = Load::start_without_coins(&balancer.address).await;
        load.goes_on(500).await;

        let refused = new.run(&["serve"], "");
        let applied = new.expect(&["migrate"], "");
        if applied != "applied 0 migrations" {
            let told = String::from_utf8_lossy(&refused.stderr).trim().to_owned();
            assert!(!refused.status.success() && told.contains("run `matchday migrate` first"), "{told}");
        }
        load.goes_on(500).await;
        // An old process can still be started, should one die now.
        processes[0].signal("TERM");
        assert!(processes[0].ended().await.success());
        balancer.sees(&slots[0], false).await;
        processes[0] = slots[0].start(&old);
        balancer.sees(&slots[0], true).await;

        let started = [slots[2].start(&new), slots[3].start(&new)];
        for slot in &slots[2..] {
            balancer.sees(slot, true).await;
        }
        load.goes_on(500).await;
        for process in &mut processes {
            process.signal("TERM");
            assert!(process.ended().await.success(), "{:#?}", process.log());
        }
        for spender in &load.spenders {
            new.expect(&["coins", "grant", &spender.to_string(), "1000000", "--reason", "the upgrade"], "");
        }
        load.let_them_spend();
        load.goes_on(1_000).await;
        let (told, took) = load.stop().await;
        let db = PgPool::connect_with(options).await.expect("connected");
        let came = told.is_there_once(&db, &new, took).await;
        db.close().await;
        drop(started);
        held(
            "upgrade",
            &format!("From {revision} to this version under load: two old processes, `matchday migrate`, two new ones beside them, the old ones ended"),
            &format!(
                "the old one {known}, the new one {applied}{}; an old process that was started again after the migration \
                 served; {came}",
                if knows_coins { "" } else { ", coins among them" }
            ),
        );
    })
    .await;
}
