//! The log of facts, read by a backend page by page, compared with a bare `COPY` of the same rows.

use std::time::Instant;

use anyhow::{Context as _, ensure};
use futures_util::TryStreamExt as _;
use serde_json::Value;
use sqlx::{AssertSqlSafe, PgPool};

use super::{OPEN, prepare};
use crate::{
    environment::{
        Stage,
        service::{Service, Setting},
    },
    outcome::Outcome,
    wire::{Connection, Protocol, write_http},
};

const FACTS: u64 = 1_000_000;
const PER_PAGE: u64 = 1_000;
const PATH: &str = "/api/server/v1/facts";

/// Facts about goals, as large as real ones.
fn fill() -> String {
    format!(
        r#"insert into facts (position, recorded_at, item)
           select n, now(), format('{{"id":"msg_%1$s-1795186800500000","type":"event.changed","timestamp":"2026-11-20T15:00:00.5Z",'
             '"data":{{"away_score":0,"away_team":{{"id":2,"name":"Harbour United"}},"before":{{"advanced":null,"away_score":0,"home_score":0,'
             '"start_time":"2026-11-20T15:00:00Z","status":"live","status_detail":"live"}},"event_id":%2$s,"home_score":1,'
             '"home_team":{{"id":1,"name":"Rovers"}},"result_revision":0,"start_time":"2026-11-20T15:00:00Z","status":"live",'
             '"status_detail":"live","tournament_id":1,"advanced":null}}}}', n, n % 500)::json
           from generate_series(1, {FACTS}) n"#
    )
}

pub(super) async fn run(stage: &Stage) -> anyhow::Result<Vec<Outcome>> {
    let (name, setting) = ("bench_facts", Setting::on("bench_facts"));
    prepare(stage, &setting, name, &[OPEN]).await?;
    let pool = stage.postgres.pool(name).await?;
    stage.say(format!("inserting {FACTS} facts"));
    sqlx::raw_sql(AssertSqlSafe(fill())).execute(&pool).await?;
    sqlx::raw_sql(AssertSqlSafe(format!("update fact_log set newest_position = {FACTS}"))).execute(&pool).await?;
    sqlx::raw_sql("vacuum analyze facts").execute(&pool).await?;
    let key = stage.server_key(&setting, "export:read")?;
    let service = stage.serve(&setting, &["--no-workers"]).await?;
    let (rounds, cores) = stage
        .alternate(&stage.groups(&service), async |_| read(&service, &key).await, async |_| copy(&pool).await)
        .await?;
    pool.close().await;
    drop(service);
    stage.postgres.forget(name).await?;
    Ok(vec![Outcome {
        what: format!("{FACTS} facts, read in pages of {PER_PAGE}, one connection"),
        beside: "`COPY` of the same rows to standard output, one connection".to_owned(),
        size: Some(FACTS),
        limit: cores,
        ..Outcome::of("facts", rounds)
    }])
}

/// Reads the whole log from its beginning; returns the facts a second.
async fn read(service: &Service, key: &str) -> anyhow::Result<f64> {
    let (mut connection, mut request) = (Connection::open(service.public).await?, Vec::new());
    let (began, mut facts, mut path) = (Instant::now(), 0, format!("{PATH}?per_page={PER_PAGE}"));
    loop {
        write_http(&mut request, "GET", &path, key, "");
        let status = connection.exchange(Protocol::Http, &request).await?;
        let body = std::str::from_utf8(connection.body())?;
        ensure!(status == 200, "{status}: {body:.300}");
        facts += u64::try_from(body.matches(r#""type":"event.changed""#).count())?;
        // Parsing the facts would measure the client.
        let (_, meta) = body.rsplit_once(r#""meta":"#).context("no meta")?;
        let meta: Value = serde_json::from_str(meta.strip_suffix('}').unwrap_or(meta))?;
        let next = meta["next_after"].as_str().context("a position")?;
        path = format!("{PATH}?per_page={PER_PAGE}&after={next}");
        if meta["more"] != Value::Bool(true) {
            break;
        }
    }
    ensure!(facts == FACTS, "{facts} facts were read instead of {FACTS}");
    Ok(rate(began))
}

/// Copies the same rows; returns the facts a second.
async fn copy(pool: &PgPool) -> anyhow::Result<f64> {
    let began = Instant::now();
    let mut connection = pool.acquire().await?;
    let mut rows =
        connection.copy_out_raw("copy (select position, item from facts order by position) to stdout").await?;
    let mut lines = 0;
    while let Some(chunk) = rows.try_next().await? {
        lines += chunk.split(|&byte| byte == b'\n').count() - 1;
    }
    drop(rows);
    ensure!(lines as u64 == FACTS, "{lines} rows were copied");
    Ok(rate(began))
}

#[expect(clippy::cast_precision_loss, reason = "the number is small")]
fn rate(began: Instant) -> f64 {
    FACTS as f64 / began.elapsed().as_secs_f64()
}
