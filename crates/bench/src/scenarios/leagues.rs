//! Leagues: scoring with and without them, the table of an own small league compared with the leaderboard of its
//! tournament, and tables of large leagues of different sizes.

use std::sync::Arc;

use serde_json::Value;
use sqlx::{AssertSqlSafe, Executor as _, PgPool};

use super::{Side, fill_leaderboards, http, insert_predictions, latencies, prepare, scores, settle, wait_for};
use crate::{
    environment::{
        Stage, people,
        service::{Service, Setting},
    },
    load::{self, Load, Target},
    outcome::{Goal, Outcome},
    wire::write_http,
};

const USERS: u64 = 1_000_000;
/// Members of a small league.
const MEMBERS: u64 = 10;
/// Large leagues have these fractions of the users: 2,000, 20,000 and 200,000 of a million.
const FRACTIONS: [u64; 3] = [500, 50, 5];
const CONNECTIONS: u8 = 4;

pub(super) async fn run(stage: &Stage) -> anyhow::Result<Vec<Outcome>> {
    let users = stage.users.unwrap_or(USERS);
    // These are members of all large leagues.
    let asking = (users / FRACTIONS[0]).min(1_000);
    let name = "bench_leagues";
    let setting = Setting::on(name).with("MATCHDAY_LEAGUES__MAX_MEMBERS", "1000000");
    // The first result inserts the rows that later results update.
    let matches = 2 * stage.rounds + 1;
    prepare(stage, &setting, name, &[]).await?;
    stage.matchday(&setting, &["fixtures", "import", "--no-wait", "-"], &results(0, matches)?)?;
    let pool = stage.postgres.pool(name).await?;
    stage.say(format!("inserting {users} users in {} leagues", users / MEMBERS));
    people::make(&pool, users, asking).await?;
    sqlx::raw_sql(AssertSqlSafe(leagues(users))).execute(&pool).await?;
    insert_predictions(stage, &pool, matches, scores::predict).await?;
    let service = stage.serve(&setting, &[]).await?;
    fill_leaderboards(stage, &service).await?;
    let mut outcomes = vec![results_with_leagues(stage, &setting, &pool, &service, (users, matches)).await?];
    show_leagues(&pool, true).await?;
    pool.execute("vacuum analyze").await?;
    outcomes.push(own_table(stage, &service, users, asking).await?);
    outcomes.extend(large_tables(stage, &service, users, asking).await?);
    drop(service);
    stage.forget_in_redis(name)?;
    stage.postgres.forget(name).await?;
    Ok(outcomes)
}

/// Document with results of the first `finished` matches. Each match has a round of its own, so tables show movement.
fn results(finished: usize, matches: usize) -> anyhow::Result<String> {
    let mut document: Value = serde_json::from_str(&scores::results(finished, matches))?;
    for (entry, round) in document["matches"].as_array_mut().into_iter().flatten().zip(1..) {
        entry["round"] = Value::from(round);
    }
    Ok(document.to_string())
}

/// Number of small leagues, whose ids come first.
fn small(users: u64) -> u64 {
    users / MEMBERS
}

/// Leagues of ten users each, and large ones of the first users. Copies of the rows allow to remove and restore them.
fn leagues(users: u64) -> String {
    let small = small(users);
    let sizes = FRACTIONS.map(|fraction| (users / fraction).to_string()).join(", ");
    format!(
        "insert into leagues (name, owner_id, visibility, counts_from, tournament_ids, max_members, member_count, code_digest,
                              code_ciphertext, code_key, has_chat, created_at)
           select 'League ' || n, (n - 1) * {MEMBERS} + 1, 'private', 'league_start', '{{1}}', {MEMBERS}, {MEMBERS},
                  sha256(n::text::bytea), '', 1, false, now()
           from generate_series(1, {small}) n order by n;
         insert into leagues (name, owner_id, visibility, counts_from, tournament_ids, max_members, member_count, code_digest,
                              code_ciphertext, code_key, has_chat, created_at)
           select 'Large league', 1, 'public', 'league_start', '{{1}}', 1000000, size, sha256(('l' || size)::bytea), '', 1,
                  false, now()
           from unnest(array[{sizes}]) with ordinality as s (size, place) order by place;
         insert into league_members (user_id, league_id, joined_at)
           select n, (n - 1) / {MEMBERS} + 1, now() from generate_series(1, {small} * {MEMBERS}) n;
         insert into league_members (user_id, league_id, joined_at)
           select n, {small} + place, now()
           from unnest(array[{sizes}]) with ordinality as s (size, place) cross join lateral generate_series(1, size) n;
         create table bench_leagues as table leagues;
         create table bench_league_members as table league_members"
    )
}

/// Removes or restores all leagues.
async fn show_leagues(pool: &PgPool, are_shown: bool) -> anyhow::Result<()> {
    pool.execute("truncate leagues, league_members").await?;
    if are_shown {
        pool.execute("insert into leagues overriding system value table bench_leagues").await?;
        pool.execute("insert into league_members table bench_league_members").await?;
    }
    Ok(())
}

/// Time from a result to all scores with leagues, compared with the time without.
async fn results_with_leagues(
    stage: &Stage,
    setting: &Setting,
    pool: &PgPool,
    service: &Service,
    (users, matches): (u64, usize),
) -> anyhow::Result<Outcome> {
    let settle = async |finished| settle(stage, setting, pool, &results(finished, matches)?, finished).await;
    stage.say("first result, which inserts the rows");
    settle(1).await?;
    let measure = async |are_shown, finished| {
        show_leagues(pool, are_shown).await?;
        pool.execute("vacuum analyze").await?;
        settle(finished).await
    };
    let (rounds, cores) = stage
        .alternate(
            &stage.groups(service),
            async |round| measure(true, 2 * round + 2).await,
            async |round| measure(false, 2 * round + 3).await,
        )
        .await?;
    Ok(Outcome {
        what: format!(
            "Scores after a result with {users} predictions, with {} leagues of {MEMBERS} and one of {} members",
            small(users),
            users / FRACTIONS[2]
        ),
        beside: "the same without leagues".to_owned(),
        unit: "s".to_owned(),
        goal: Some(Goal::AtMost(1.1)),
        size: Some(users),
        limit: cores,
        ..Outcome::of("leagues", rounds)
    })
}

/// Requests of the first users, in turn.
fn requests(service: &Service, asking: u64, path: impl Fn(u64) -> String + Send + Sync + 'static) -> Target {
    let tokens: Vec<String> = (1..=asking).map(people::token).collect();
    http(service.public, move |number, into| {
        let user = number % asking;
        let token = &tokens[usize::try_from(user).unwrap_or_default()];
        write_http(into, "GET", &path(user + 1), token, "");
    })
}

/// Compares the p99 of two requests, and their latencies at a rate that both sustain.
async fn compare(
    stage: &Stage,
    service: &Service,
    scenario: &str,
    [ours, bare]: [&Target; 2],
) -> anyhow::Result<Outcome> {
    let numbers = Arc::default();
    let load = Load { connections: CONNECTIONS.into(), length: stage.length, rate: None };
    let p99 = async |target| anyhow::Ok(load::run(target, load, &numbers).await?.latency.quantile(0.99));
    let (rounds, cores) =
        stage.alternate(&stage.groups(service), async |_| p99(ours).await, async |_| p99(bare).await).await?;
    let outcome = Outcome::of(scenario, rounds);
    let rate = (f64::from(CONNECTIONS) * 1_000.0 / outcome.ours.max(outcome.bare) / 2.0).floor();
    let sides =
        ((Side::Requests(ours, &numbers), CONNECTIONS.into()), (Side::Requests(bare, &numbers), CONNECTIONS.into()));
    let latency = Some(latencies(stage, sides.0, sides.1, rate).await?);
    Ok(Outcome { unit: "ms".to_owned(), latency, limit: cores, ..outcome })
}

async fn own_table(stage: &Stage, service: &Service, users: u64, asking: u64) -> anyhow::Result<Outcome> {
    let ours = requests(service, asking, |user| format!("/api/auth/leagues/{}/table", (user - 1) / MEMBERS + 1));
    let bare = requests(service, asking, |_| "/api/auth/leaderboards?tournament_id=1".to_owned());
    wait_for(service, "/api/auth/leagues/1/table", &people::token(1)).await?;
    wait_for(service, "/api/auth/leaderboards?tournament_id=1", &people::token(1)).await?;
    let outcome = compare(stage, service, "league-table", [&ours, &bare]).await?;
    Ok(Outcome {
        what: format!("Table of an own league of {MEMBERS} members, one of {}, p99", small(users)),
        beside: "leaderboard of the tournament".to_owned(),
        goal: Some(Goal::AtMost(1.5)),
        size: Some(users),
        ..outcome
    })
}

/// Compares the larger leagues with the smallest of the large ones.
async fn large_tables(stage: &Stage, service: &Service, users: u64, asking: u64) -> anyhow::Result<Vec<Outcome>> {
    let mut targets = Vec::new();
    for (fraction, place) in FRACTIONS.into_iter().zip(1..) {
        let path = format!("/api/auth/leagues/{}/table", small(users) + place);
        wait_for(service, &path, &people::token(1)).await?;
        targets.push((users / fraction, requests(service, asking, move |_| path.clone())));
    }
    let mut outcomes = Vec::new();
    if let Some(((least, bare), larger)) = targets.split_first() {
        for (members, ours) in larger {
            let outcome = compare(stage, service, &format!("league-table-{members}"), [ours, bare]).await?;
            outcomes.push(Outcome {
                what: format!("Table of a league with {members} members, p99"),
                beside: format!("same request for a league with {least} members"),
                goal: Some(Goal::AtMost(1.5)),
                size: Some(*members),
                ..outcome
            });
        }
    }
    Ok(outcomes)
}
