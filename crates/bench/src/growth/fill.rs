//! Fills a database through SQL, once.

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};
use sqlx::{AssertSqlSafe, Executor as _};

use super::{
    SEASON_FANS, Size,
    calls::{CALLERS, World},
};
use crate::environment::{Stage, people, service::Setting};

const STEPS: &str = include_str!("fill.sql");

/// Fills the database, unless an earlier run did so with the same statements and sizes.
pub(super) async fn fill(stage: &Stage, setting: &Setting, name: &str, size: Size, refill: bool) -> anyhow::Result<()> {
    let sum = hex::encode(Sha256::digest(format!("{STEPS}{size:?}")));
    let mut admin = stage.postgres.admin().await?;
    let known: Option<String> = sqlx::query_scalar(
        "select shobj_description(oid, 'pg_database') from pg_database where datname = $1 and shobj_description(oid, 'pg_database') is not null",
    )
    .bind(name)
    .fetch_optional(&mut admin)
    .await?;
    if known.as_deref() == Some(&sum) && !refill {
        stage.matchday(setting, &["migrate"], "").context("the migrations changed: use --refill")?;
        return Ok(());
    }
    stage.say("creating the database");
    stage.postgres.create(name).await?;
    stage.forget_in_redis(name)?;
    stage.forget_in_nats(name).await?;
    stage.matchday(setting, &["migrate"], "")?;
    let pool = stage.postgres.pool(name).await?;
    let mut connection = pool.acquire().await?;
    connection.execute("create extension if not exists pg_stat_statements").await?;
    connection
        .execute("set maintenance_work_mem = '1GB'; set work_mem = '256MB'; set synchronous_commit = off")
        .await?;
    for step in STEPS.split("-- step: ").skip(1) {
        let (title, text) = step.split_once('\n').context("a title")?;
        stage.say(format!("filling: {title}"));
        connection.execute(AssertSqlSafe(size.put_into(text))).await.with_context(|| title.to_owned())?;
    }
    connection.close().await?;
    people::make_sessions(&pool, 1..=CALLERS).await?;
    World::make(stage, setting, &pool, size).await?;
    admin.execute(AssertSqlSafe(format!("comment on database {name} is '{sum}'"))).await?;
    Ok(())
}

impl Size {
    fn put_into(&self, text: &str) -> String {
        let numbers = [
            ("accounts", self.accounts),
            ("past_matches", self.past_matches),
            ("big_match", self.big_match),
            ("leagues", self.leagues),
            ("rooms", self.rooms),
            ("teams", self.teams),
            ("questions", self.questions),
            ("rounds", self.rounds),
            ("season", self.season()),
            ("live", self.live()),
            ("open", self.open()),
            ("season_fans", SEASON_FANS),
        ];
        numbers
            .iter()
            .fold(text.to_owned(), |text, (name, number)| text.replace(&format!("{{{name}}}"), &number.to_string()))
    }
}
