//! Answers to a question: a burst by distinct users, and a million of them to one question. Compared with pgbench doing the
//! same upsert, one row per transaction.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use sqlx::PgPool;

use super::{
    Side, easy_rate, http, latencies,
    predictions::{CLIENTS, CONNECTIONS, empty, fill_cache, set_up},
};
use crate::{
    environment::{
        Stage,
        pgbench::{self, Pgbench},
        service::Service,
    },
    load::{self, Load, Target},
    outcome::{Goal, Outcome},
    wire::write_http,
};

/// The same table and columns, without revisions and tallies.
const UPSERT: &str = "\
\\set n :n + 1
\\set u :client_id * 31000 + :n
\\set v random(0, 3)
insert into answers (user_id, question_id, value, revision, created_at, updated_at) \
values (:u, :question, 1 << :v, 1, now(), now()) \
on conflict (user_id, question_id) do update set value = excluded.value, revision = answers.revision + 1, \
updated_at = excluded.updated_at returning created_at;
";

/// Answers of all users in turn, to the current question.
fn answering(service: &Service, tokens: &Arc<Vec<String>>, question: &Arc<AtomicU64>) -> Target {
    let (tokens, question) = (Arc::clone(tokens), Arc::clone(question));
    http(service.public, move |number, into| {
        let user = usize::try_from(number).unwrap_or_default() % tokens.len();
        let body = format!(r#"{{"answer":"{}"}}"#, ["ada", "bea", "cleo", "dora"][user % 4]);
        let path = format!("/api/auth/questions/{}/answer", question.load(Relaxed));
        write_http(into, "PUT", &path, &tokens[user], &body);
    })
}

async fn ask(pool: &PgPool, questions: usize) -> anyhow::Result<()> {
    sqlx::query(
        "insert into questions (tournament_id, key, text, kind, options, points, locks_at, is_void, created_at)
         select 1, 'q' || n, 'Who scores most?', 'choice',
                '[{\"number\":0,\"key\":\"ada\",\"label\":\"Ada\"},{\"number\":1,\"key\":\"bea\",\"label\":\"Bea\"},
                  {\"number\":2,\"key\":\"cleo\",\"label\":\"Cleo\"},{\"number\":3,\"key\":\"dora\",\"label\":\"Dora\"}]',
                10, '2090-05-01T15:00:00Z', false, now()
         from generate_series(1, $1) n",
    )
    .bind(i32::try_from(questions)?)
    .execute(pool)
    .await?;
    Ok(())
}

async fn answers_to(pool: &PgPool, question: u64) -> anyhow::Result<f64> {
    let count: i64 = sqlx::query_scalar("select count(*) from answers where question_id = $1")
        .bind(i64::try_from(question)?)
        .fetch_one(pool)
        .await?;
    #[expect(clippy::cast_precision_loss, reason = "at most a few million")]
    let count = count as f64;
    Ok(count)
}

pub(super) async fn run(stage: &Stage) -> anyhow::Result<Vec<Outcome>> {
    let name = "bench_answers";
    let users = stage.sized(1_000_000);
    let (setting, pool, tokens) = set_up(stage, name, users, 1).await?;
    ask(&pool, 2 * stage.rounds + 4).await?;
    let service = stage.serve(&setting, &["--no-workers"]).await?;
    let mut pgbench = Pgbench::new(stage, name, UPSERT)?;
    pgbench.set("n", 0);
    let question = Arc::new(AtomicU64::new(0));
    let (ours, warming) = (answering(&service, &tokens, &question), empty(&service, &tokens));
    fill_cache(stage, &warming, users).await?;
    let load = Load { connections: CONNECTIONS, length: stage.length, rate: None };
    let (rounds, cores) = stage
        .alternate(
            &stage.groups(&service),
            async |_| {
                question.fetch_add(1, Relaxed);
                // Starts at the first user, so that all users are distinct.
                let measured = load::run(&ours, load, &Arc::default()).await?;
                // Only rows in the table count.
                let there = answers_to(&pool, question.load(Relaxed)).await?;
                Ok(there.min(measured.rate * load.length.as_secs_f64()) / load.length.as_secs_f64())
            },
            async |_| {
                pgbench.set("question", i64::try_from(question.fetch_add(1, Relaxed) + 1)?);
                let load = Load { connections: CLIENTS, ..load };
                Ok(pgbench::run(&pgbench, load).await?.rate)
            },
        )
        .await?;
    let mut outcome = Outcome::of("answer-burst", rounds);
    question.fetch_add(1, Relaxed);
    let took = all_answer(stage, &ours, users, &pool, question.load(Relaxed)).await?;
    question.fetch_add(1, Relaxed);
    pgbench.set("question", i64::try_from(question.fetch_add(1, Relaxed) + 1)?);
    let sides = ((Side::Requests(&ours, &Arc::default()), CONNECTIONS), (Side::Pgbench(&pgbench), CLIENTS));
    outcome.latency = Some(latencies(stage, sides.0, sides.1, easy_rate(&outcome)).await?);
    stage.postgres.forget(name).await?;
    Ok(vec![Outcome {
        what: format!(
            "Answers by distinct users to one question, with revisions and tallies, {CONNECTIONS} connections, tokens cached"
        ),
        beside: format!("pgbench, same upsert one row at a time, {CLIENTS} clients"),
        goal: Some(Goal::AtLeast(2.0)),
        limit: format!("{users} answers to one question took {:.1} s; {cores}", took.as_secs_f64()),
        ..outcome
    }])
}

/// Every user answers one question once. Returns how long this took.
async fn all_answer(
    stage: &Stage,
    ours: &Target,
    users: u64,
    pool: &PgPool,
    question: u64,
) -> anyhow::Result<Duration> {
    stage.say(format!("{users} answers to one question"));
    let (numbers, began) = (Arc::new(AtomicU64::new(0)), Instant::now());
    let mut took = Duration::ZERO;
    while numbers.load(Relaxed) < users {
        let step = Load { connections: CONNECTIONS, length: Duration::from_secs(1), rate: None };
        load::run(ours, step, &numbers).await?;
        took = began.elapsed();
    }
    let stored = answers_to(pool, question).await?;
    #[expect(clippy::cast_precision_loss, reason = "at most a few million")]
    let wanted = users as f64;
    anyhow::ensure!((stored - wanted).abs() < 0.5, "{stored} of {wanted} answers are stored");
    Ok(took)
}
