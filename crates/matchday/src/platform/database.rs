//! The connection pool and the schema it expects.

use std::time::Duration;

use sqlx::{
    PgPool,
    migrate::{Migrate as _, MigrateError, Migrator},
    postgres::{PgConnectOptions, PgPoolOptions},
};

use super::config;

/// The migrations, built into the binary.
pub static MIGRATIONS: Migrator = sqlx::migrate!("../../migrations");

/// A pool that connects when it is first used, so that a process can start, and say so, while the database is away.
pub fn pool(config: &config::Database) -> Result<PgPool, sqlx::Error> {
    let options: PgConnectOptions = config.url.expose().parse()?;
    Ok(PgPoolOptions::new()
        .max_connections(config.max_connections)
        .acquire_timeout(config.acquire_timeout)
        // A ping before every use costs a third of the throughput; a dead connection shows at the first statement.
        .test_before_acquire(false)
        .max_lifetime(Duration::from_mins(30))
        .connect_lazy_with(options.application_name("matchday")))
}

/// Whether the database has the schema that this binary was built for.
#[derive(Debug, PartialEq, Eq)]
pub enum Schema {
    /// It has.
    Current,
    /// Migrations are missing, this many.
    Behind(usize),
}

/// Compares the applied migrations with those built in. A database that is ahead is fine: migrations are made so that
/// the version before still runs.
pub async fn schema(pool: &PgPool) -> Result<Schema, MigrateError> {
    let mut connection = pool.acquire().await?;
    connection.ensure_migrations_table(&MIGRATIONS.table_name).await?;
    let applied = connection.list_applied_migrations(&MIGRATIONS.table_name).await?;
    let missing = MIGRATIONS
        .iter()
        .filter(|migration| migration.migration_type.is_up_migration())
        .filter(|migration| !applied.iter().any(|done| done.version == migration.version))
        .count();
    Ok(if missing == 0 { Schema::Current } else { Schema::Behind(missing) })
}
