//! Four processes that share 40 connections of a PgBouncer, compared with four processes with connections of their own.
//! HAProxy distributes the requests on both sides.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use sqlx::PgPool;

use super::{
    deduct::{self, WALLETS},
    http,
    predictions::{self, empty, fill_cache, predicting, predictions_of},
};
use crate::{
    environment::{
        Stage,
        cores::Group,
        haproxy::Haproxy,
        pgbouncer::{PgBouncer, connections},
        service::{Service, Setting},
    },
    load::{self, Load, Target},
    outcome::{Goal, Outcome},
    wire::write_post,
};

const PROCESSES: usize = 4;
/// More than can predict in a round.
const USERS: u64 = 100_000;
/// Users whose wallets are charged.
const BUYERS: u64 = 64;

/// Four processes behind HAProxy.
struct Side {
    services: Vec<Service>,
    balancer: Haproxy,
}

impl Side {
    async fn start(stage: &Stage, setting: &Setting, name: &str) -> anyhow::Result<Self> {
        let mut services = Vec::new();
        for number in 1..=PROCESSES {
            let setting = setting.clone().logging_to(&format!("service-{name}-{number}.log"));
            services.push(stage.serve(&setting, &["--no-workers"]).await?);
        }
        let directory = stage.directory.join(name);
        std::fs::create_dir_all(&directory)?;
        let balancer = Haproxy::start(&directory, &services).await?;
        Ok(Self { services, balancer })
    }

    /// Processes of this side, one of which stands for all: they share the load equally.
    fn groups(&self, stage: &Stage) -> Vec<Group> {
        let service =
            |(name, service): (&'static str, &Service)| Group { name, leader: service.id(), with_children: false };
        let names = ["process 1", "process 2", "process 3", "process 4"];
        let mut groups: Vec<Group> = names.into_iter().zip(&self.services).map(service).collect();
        groups.extend([
            self.balancer.group(),
            Group { name: "the load", leader: std::process::id(), with_children: false },
            Group { name: "PostgreSQL", leader: stage.postgres.id(), with_children: true },
        ]);
        groups
    }
}

pub(super) async fn run(stage: &Stage) -> anyhow::Result<Vec<Outcome>> {
    let name = "bench_pgbouncer";
    let (setting, pool, tokens) = predictions::set_up(stage, name, USERS, 2 * stage.rounds + 2).await?;
    sqlx::raw_sql(WALLETS).execute(&pool).await?;
    sqlx::raw_sql("vacuum analyze").execute(&pool).await?;
    let pgbouncer = PgBouncer::start(&stage.directory, &stage.postgres, name).await?;
    let pooled = setting
        .clone()
        .with("MATCHDAY_DATABASE__URL", &pgbouncer.url(name))
        .with("MATCHDAY_DATABASE__TRANSACTION_POOLING", "true");
    stage.say("starting twice four processes");
    let through = Side::start(stage, &pooled, "pooled").await?;
    let direct = Side::start(stage, &setting, "direct").await?;
    for service in through.services.iter().chain(&direct.services) {
        fill_cache(stage, &empty(service, &tokens), USERS).await?;
    }
    let mut groups = through.groups(stage);
    groups.push(pgbouncer.group());
    let mut outcomes = vec![
        burst(stage, &groups, &pool, &tokens, [&through, &direct]).await?,
        deductions(stage, &groups, &tokens, [&through, &direct]).await?,
    ];
    // The other side's connections do not go through PgBouncer.
    drop(direct);
    let used = connections(&pool).await?;
    for outcome in &mut outcomes {
        outcome.limit = format!("{used} connections to PostgreSQL through PgBouncer; {}", outcome.limit);
    }
    stage.say("auditing the ledger");
    stage.matchday(&setting, &["coins", "audit"], "")?;
    drop((through, pgbouncer));
    stage.postgres.forget(name).await?;
    Ok(outcomes)
}

async fn burst(
    stage: &Stage,
    groups: &[Group],
    pool: &PgPool,
    tokens: &Arc<Vec<String>>,
    sides: [&Side; 2],
) -> anyhow::Result<Outcome> {
    let event = Arc::new(AtomicU64::new(0));
    let [through, direct] = sides.map(|side| predicting(side.balancer.address, tokens, &event));
    let load = Load { connections: predictions::CONNECTIONS, length: stage.length, rate: None };
    let measure = async |target: &Target| -> anyhow::Result<f64> {
        event.fetch_add(1, Relaxed);
        // Starts at the first user, so that all users are distinct.
        let measured = load::run(target, load, &Arc::default()).await?;
        // Only rows in the table count.
        let there = predictions_of(pool, event.load(Relaxed)).await?;
        Ok(there.min(measured.rate * load.length.as_secs_f64()) / load.length.as_secs_f64())
    };
    let (rounds, cores) =
        stage.alternate(groups, async |_| measure(&through).await, async |_| measure(&direct).await).await?;
    Ok(Outcome {
        what: format!(
            "Predictions by distinct users for one match, {PROCESSES} processes through PgBouncer with 40 connections to PostgreSQL"
        ),
        beside: format!("{PROCESSES} processes with connections of their own"),
        goal: Some(Goal::AtLeast(0.8)),
        limit: cores,
        ..Outcome::of("pgbouncer-burst", rounds)
    })
}

async fn deductions(
    stage: &Stage,
    groups: &[Group],
    tokens: &Arc<Vec<String>>,
    sides: [&Side; 2],
) -> anyhow::Result<Outcome> {
    let [through, direct] = sides.map(|side| {
        let tokens = Arc::clone(tokens);
        http(side.balancer.address, move |number, into| {
            let buyer = usize::try_from(number % BUYERS).unwrap_or_default();
            let body = format!(r#"{{"amount":1,"reason":"purchase","reference_id":"order-{number}"}}"#);
            write_post(into, "/api/auth/coins/deduct", &tokens[buyer], (0, number), &body);
        })
    });
    let (numbers, load) = (Arc::default(), Load { connections: deduct::CONNECTIONS, length: stage.length, rate: None });
    let measure = async |target: &Target| anyhow::Ok(load::run(target, load, &numbers).await?.rate);
    let (rounds, cores) =
        stage.alternate(groups, async |_| measure(&through).await, async |_| measure(&direct).await).await?;
    Ok(Outcome {
        what: format!(
            "Deductions from {BUYERS} wallets, {PROCESSES} processes through PgBouncer with 40 connections to PostgreSQL"
        ),
        beside: format!("{PROCESSES} processes with connections of their own"),
        goal: Some(Goal::AtLeast(0.8)),
        limit: cores,
        ..Outcome::of("pgbouncer-deduct", rounds)
    })
}
