//! Lists and league tables with a read replica, compared with the same requests without one. All servers share the cores
//! of one machine, so the figures show the cost of choosing a database, and how much work leaves the primary.

use std::{sync::Arc, time::Duration};

use sqlx::AssertSqlSafe;

use super::{OPEN, Side, easy_rate, http, insert_predictions, latencies, prepare};
use crate::{
    environment::{
        Stage,
        cores::{Cores, Group},
        people,
        service::{Service, Setting},
        until,
    },
    load::{self, Load, Target},
    outcome::{Goal, Outcome},
    wire::write_http,
};

const USERS: u64 = 50_000;
const MATCHES: usize = 20;
/// Members of a league.
const MEMBERS: u64 = 10;
const CONNECTIONS: usize = 64;

pub(super) async fn run(stage: &Stage) -> anyhow::Result<Vec<Outcome>> {
    let name = "bench_replica";
    let setting = Setting::on(name);
    prepare(stage, &setting, name, &[OPEN; MATCHES]).await?;
    let pool = stage.postgres.pool(name).await?;
    stage.say(format!("inserting {USERS} users"));
    people::make(&pool, USERS, USERS).await?;
    sqlx::raw_sql(AssertSqlSafe(leagues())).execute(&pool).await?;
    insert_predictions(stage, &pool, MATCHES, |event| {
        format!(
            "insert into predictions (user_id, event_id, prediction, confidence, revision, created_at, updated_at)
             select n, {event}, 'home', n % 101, 1, now(), now() from generate_series(1, {USERS}) n"
        )
    })
    .await?;
    stage.say("starting the replica");
    let replica = stage.postgres.replica(&stage.directory).await?;
    let with_replica = setting
        .clone()
        .with("MATCHDAY_DATABASE__READ_URL", &replica.url("matchday_app", name))
        .logging_to("service-replica.log");
    let alone = stage.serve(&setting, &["--no-workers"]).await?;
    let replicated = stage.serve(&with_replica, &["--no-workers"]).await?;
    until("the replica is in use", Duration::from_secs(30), async || {
        replicated.counted("matchday_part_up", "\"replica\"").await.is_ok_and(|up| up > 0.5)
    })
    .await?;
    let groups = vec![
        Group { name: "the service", leader: replicated.id(), with_children: false },
        Group { name: "the load", leader: std::process::id(), with_children: false },
        Group { name: "the primary", leader: stage.postgres.id(), with_children: true },
        Group { name: "the replica", leader: replica.id(), with_children: true },
    ];
    let lists = |service: &Service| requests(service, |_| "/api/auth/predictions?per_page=20".to_owned());
    let tables =
        |service: &Service| requests(service, |user| format!("/api/auth/leagues/{}/table", user / MEMBERS + 1));
    let mut outcomes = Vec::new();
    for (scenario, what, [ours, bare]) in [
        ("read-replica-lists", "Lists of the caller's predictions", [lists(&replicated), lists(&alone)]),
        ("read-replica-tables", "Tables of leagues of ten members", [tables(&replicated), tables(&alone)]),
    ] {
        let outcome = compare(stage, &groups, scenario, [&ours, &bare]).await?;
        outcomes.push(Outcome {
            what: format!("{what} with one read replica, {CONNECTIONS} connections"),
            beside: "the same without a replica".to_owned(),
            goal: Some(Goal::AtLeast(0.8)),
            ..outcome
        });
    }
    let served = replicated.counted("matchday_reads_total", "\"replica\"").await?;
    anyhow::ensure!(served > 1_000.0, "the replica served only {served} reads");
    drop((alone, replicated, replica));
    stage.forget_in_redis(name)?;
    stage.postgres.forget(name).await?;
    Ok(outcomes)
}

/// Compares rates, and the use of the cores on both sides.
async fn compare(
    stage: &Stage,
    groups: &[Group],
    scenario: &str,
    [ours, bare]: [&Target; 2],
) -> anyhow::Result<Outcome> {
    let (numbers, load) = (Arc::default(), Load { connections: CONNECTIONS, length: stage.length, rate: None });
    stage.say("filling the session caches");
    for target in [ours, bare] {
        load::run(target, load, &numbers).await?;
    }
    let mut without = Cores::default();
    let (rounds, with) = stage
        .alternate(
            groups,
            async |_| Ok(load::run(ours, load, &numbers).await?.rate),
            async |_| {
                let before = Cores::now(groups);
                let rate = load::run(bare, load, &numbers).await?.rate;
                without.add(&before.until(&Cores::now(groups)));
                Ok(rate)
            },
        )
        .await?;
    let outcome = Outcome::of(scenario, rounds);
    let sides = ((Side::Requests(ours, &numbers), CONNECTIONS), (Side::Requests(bare, &numbers), CONNECTIONS));
    let latency = Some(latencies(stage, sides.0, sides.1, easy_rate(&outcome)).await?);
    // The other service is idle and counts for nothing.
    let limit = format!("with the replica: {with}; without: {without}, the rest is the other service");
    Ok(Outcome { limit, latency, ..outcome })
}

/// Requests of all users in turn, with users counted from 0.
fn requests(service: &Service, path: impl Fn(u64) -> String + Send + Sync + 'static) -> Target {
    let tokens: Vec<String> = (1..=USERS).map(people::token).collect();
    http(service.public, move |number, into| {
        // A step without common divisors, so that neighbours, who share a league, do not ask one after another.
        let user = number * 7_919 % USERS;
        write_http(into, "GET", &path(user), &tokens[usize::try_from(user).unwrap_or_default()], "");
    })
}

fn leagues() -> String {
    let leagues = USERS / MEMBERS;
    format!(
        "insert into leagues (name, owner_id, visibility, counts_from, tournament_ids, max_members, member_count, code_digest,
                              code_ciphertext, code_key, has_chat, created_at)
           select 'League ' || n, (n - 1) * {MEMBERS} + 1, 'private', 'league_start', '{{1}}', {MEMBERS}, {MEMBERS},
                  sha256(n::text::bytea), '', 1, false, now()
           from generate_series(1, {leagues}) n order by n;
         insert into league_members (user_id, league_id, joined_at)
           select n, (n - 1) / {MEMBERS} + 1, now() from generate_series(1, {USERS}) n;
         insert into user_scores (user_id, scope, points, exact, correct, settled)
           select n, 'tournament:1', n % 500, 0, 0, 1 from generate_series(1, {USERS}) n"
    )
}
