//! Test databases on a Citus cluster, so every test can also run there (`just citus`).

use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, postgres::PgConnectOptions};

use crate::{citus, database::MIGRATIONS};

/// Ports of the workers of the cluster that `dev/citus` started; `None` to test on plain PostgreSQL. The database URLs
/// of the settings then refer to the coordinator. All nodes run on this machine.
pub(super) fn workers() -> Option<Vec<u16>> {
    let ports = std::env::var("MATCHDAY_TEST_CITUS_WORKERS").ok().filter(|ports| !ports.is_empty())?;
    Some(ports.split(',').map(|port| port.parse().expect("a port")).collect())
}

/// Creates a database with all tables placed on the nodes. Returns the nodes, for [`remove`].
pub(super) async fn create(coordinator: &PgConnectOptions, workers: &[u16], name: &str) -> Vec<PgConnectOptions> {
    let mut nodes = Vec::new();
    let ports: Vec<u16> = std::iter::once(coordinator.get_port()).chain(workers.iter().copied()).collect();
    for &port in &ports {
        let node = coordinator.clone().port(port);
        let mut admin = PgConnection::connect_with(&node).await.expect("a node: run dev/citus");
        run(&mut admin, format!("create database {name}")).await;
        // A few shards are enough to have users on all nodes, and placing tables takes longer with more of them. The
        // other settings are those of the service's connections.
        let shards = std::env::var("MATCHDAY_TEST_CITUS_SHARDS").unwrap_or_else(|_| "4".to_owned());
        for setting in [
            format!("citus.shard_count = {shards}"),
            "citus.multi_shard_modify_mode = 'sequential'".to_owned(),
            "citus.propagate_set_commands = 'local'".to_owned(),
        ] {
            run(&mut admin, format!("alter database {name} set {setting}")).await;
        }
        admin.close().await.expect("closed");
        let mut here = PgConnection::connect_with(&node.clone().database(name)).await.expect("the database");
        run(&mut here, "create extension citus".to_owned()).await;
        here.close().await.expect("closed");
        nodes.push(node);
    }
    let mut owner = PgConnection::connect_with(&coordinator.clone().database(name)).await.expect("the database");
    run(&mut owner, format!("select citus_set_coordinator_host('127.0.0.1', {})", ports[0])).await;
    for port in workers {
        run(&mut owner, format!("select citus_add_node('127.0.0.1', {port})")).await;
    }
    MIGRATIONS.run_direct(None, &mut owner, false).await.expect("migrations");
    citus::place(&mut owner).await.expect("tables on all nodes");
    owner.close().await.expect("closed");
    nodes
}

/// Drops the database on all nodes. Connects to them again, because the test may have restarted one.
pub(super) async fn remove(nodes: &[PgConnectOptions], name: &str) {
    for node in nodes {
        let mut admin = PgConnection::connect_with(node).await.expect("a node");
        run(&mut admin, format!("drop database {name} with (force)")).await;
    }
}

async fn run(connection: &mut PgConnection, statement: String) {
    connection.execute(AssertSqlSafe(statement.clone())).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
}
