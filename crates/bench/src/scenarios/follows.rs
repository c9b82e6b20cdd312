//! Follows: what a user with very many followers costs, compared with a user with ten, and the leaderboard among followed
//! users compared with the leaderboard of the tournament.

use std::sync::Arc;

use sqlx::{AssertSqlSafe, Executor as _, PgPool};

use super::{Match, OPEN, document, fill_leaderboards, http, insert_predictions, prepare, scores, settle, wait_for};
use crate::{
    environment::{
        Stage, people,
        service::{Service, Setting},
    },
    load::{self, Load, Target},
    outcome::{Goal, Outcome},
    wire::{write_http, write_post},
};

/// Followers of the popular user.
const FOLLOWERS: u64 = 1_000_000;
const POPULAR: u64 = 1;
/// Has ten followers.
const ORDINARY: u64 = 2;
/// Users who send requests, from the third on, and how many users each of them follows.
const ASKING: u64 = 200;
const FOLLOWED: u64 = 1_000;
/// Matches open for predictions: enough that no prediction reaches the maximum number of revisions.
const OPEN_MATCHES: usize = 200;
const CONNECTIONS: usize = 4;

pub(super) async fn run(stage: &Stage) -> anyhow::Result<Vec<Outcome>> {
    let users = stage.users.unwrap_or(FOLLOWERS) + 2;
    let name = "bench_follows";
    let setting = Setting::on(name);
    // Everybody predicts the first match; the popular and the ordinary user predict the others in turn.
    let played = 2 * stage.rounds + 1;
    prepare(stage, &setting, name, &matches(0, played)).await?;
    let pool = stage.postgres.pool(name).await?;
    stage.say(format!("inserting {users} users and their follows"));
    people::make(&pool, users, ASKING + 2).await?;
    sqlx::raw_sql(AssertSqlSafe(follows(users))).execute(&pool).await?;
    insert_predictions(stage, &pool, 1, scores::predict).await?;
    for event in 2..=played {
        let user = if event % 2 == 0 { POPULAR } else { ORDINARY };
        pool.execute(AssertSqlSafe(prediction(user, event))).await?;
    }
    pool.execute("vacuum analyze").await?;
    let service = stage.serve(&setting, &[]).await?;
    fill_leaderboards(stage, &service).await?;
    let outcomes = vec![
        settling(stage, &setting, &pool, &service, played).await?,
        predicting(stage, &service, played).await?,
        profile(stage, &service).await?,
        among(stage, &service).await?,
        among_after_change(stage, &service, &pool).await?,
    ];
    drop(service);
    stage.forget_in_redis(name)?;
    stage.postgres.forget(name).await?;
    Ok(outcomes)
}

fn matches(finished: usize, played: usize) -> Vec<Match> {
    let live = Match { status: "live", start: "2026-05-01T15:00:00Z", score: Some((0, 0)) };
    let over = Match { status: "finished", score: Some((2, 1)), ..live };
    let of_played = (1..=played).map(|number| if number <= finished { over } else { live });
    of_played.chain(std::iter::repeat_n(OPEN, OPEN_MATCHES)).collect()
}

/// All users follow the popular user, ten follow the ordinary one, and users who send requests follow many others.
fn follows(users: u64) -> String {
    format!(
        "create temp table pairs as
           select n as follower, {POPULAR}::bigint as followed from generate_series(3::bigint, {users}) n
           union select n, {ORDINARY} from generate_series(3::bigint, 12) n
           union select asking, (asking * 4001 + n * 997) % ({users} - 2) + 3
                 from generate_series(3::bigint, {ASKING} + 2) asking, generate_series(3::bigint, {FOLLOWED}) n;
         delete from pairs where follower = followed;
         insert into follows (user_id, followed_id, followed_at) select follower, followed, now() from pairs;
         insert into followers (user_id, follower_id, followed_at) select followed, follower, now() from pairs;
         insert into follow_counts (user_id, slot, followers) select followed, 0, count(*) from pairs group by 1;
         insert into follow_counts (user_id, slot, following) select follower, 0, count(*) from pairs group by 1
           on conflict (user_id, slot) do update set following = excluded.following;
         drop table pairs"
    )
}

fn prediction(user: u64, event: usize) -> String {
    format!(
        "insert into predictions (user_id, event_id, prediction, home_goals, away_goals, confidence, revision, created_at, updated_at)
         values ({user}, {event}, 'home', 2, 1, 60, 1, '2026-04-30', '2026-04-30')"
    )
}

fn compared(outcome: Outcome, what: &str) -> Outcome {
    Outcome {
        what: what.to_owned(),
        beside: "the same for a user with ten followers".to_owned(),
        unit: "ms".to_owned(),
        goal: Some(Goal::AtMost(1.1)),
        size: Some(FOLLOWERS),
        ..outcome
    }
}

/// Time from a result to the score of the user who predicted the match.
async fn settling(
    stage: &Stage,
    setting: &Setting,
    pool: &PgPool,
    service: &Service,
    played: usize,
) -> anyhow::Result<Outcome> {
    let result = async |finished| {
        anyhow::Ok(1_000.0 * settle(stage, setting, pool, &document(&matches(finished, played)), finished).await?)
    };
    stage.say("first result, which inserts everybody's rows");
    result(1).await?;
    let (rounds, limit) = stage
        .alternate(
            &stage.groups(service),
            async |round| result(2 * round + 2).await,
            async |round| result(2 * round + 3).await,
        )
        .await?;
    let outcome =
        compared(Outcome::of("follows-settle", rounds), "Score after a result, of a user with 1,000,000 followers");
    Ok(Outcome { limit, ..outcome })
}

/// Compares a quantile of the latencies of two requests.
async fn compare(
    stage: &Stage,
    service: &Service,
    scenario: &str,
    (load, share): (Load, f64),
    [ours, bare]: [&Target; 2],
) -> anyhow::Result<Outcome> {
    let numbers = Arc::default();
    let measure = async |target| anyhow::Ok(load::run(target, load, &numbers).await?.latency.quantile(share));
    let (rounds, limit) =
        stage.alternate(&stage.groups(service), async |_| measure(ours).await, async |_| measure(bare).await).await?;
    Ok(Outcome { unit: "ms".to_owned(), limit, ..Outcome::of(scenario, rounds) })
}

/// One prediction at a time, with idempotency keys.
async fn predicting(stage: &Stage, service: &Service, played: usize) -> anyhow::Result<Outcome> {
    let of = |user: u64| {
        let token = people::token(user);
        http(service.public, move |number, into| {
            let event = played + 1 + usize::try_from(number).unwrap_or_default() % OPEN_MATCHES;
            let body = format!(r#"{{"event_id":{event},"prediction":"home","confidence":{}}}"#, number % 101);
            write_post(into, "/api/auth/predictions", &token, (user, number), &body);
        })
    };
    let load = Load { connections: 1, length: stage.length, rate: Some(100.0) };
    let outcome = compare(stage, service, "follows-predict", (load, 0.5), [&of(POPULAR), &of(ORDINARY)]).await?;
    Ok(compared(outcome, "Prediction of a user with 1,000,000 followers, p50"))
}

/// Requests of the users who ask, in turn.
fn requests(service: &Service, path: String) -> Target {
    let tokens: Vec<String> = (3..ASKING + 3).map(people::token).collect();
    http(service.public, move |number, into| {
        let token = &tokens[usize::try_from(number % ASKING).unwrap_or_default()];
        write_http(into, "GET", &path, token, "");
    })
}

async fn profile(stage: &Stage, service: &Service) -> anyhow::Result<Outcome> {
    let of = |user: u64| requests(service, format!("/api/auth/users/{user}"));
    wait_for(service, "/api/auth/users/1", &people::token(3)).await?;
    let load = Load { connections: CONNECTIONS, length: stage.length, rate: None };
    let outcome = compare(stage, service, "follows-profile", (load, 0.5), [&of(POPULAR), &of(ORDINARY)]).await?;
    Ok(compared(outcome, "Profile of a user with 1,000,000 followers, p50"))
}

async fn among(stage: &Stage, service: &Service) -> anyhow::Result<Outcome> {
    let bare = "/api/auth/leaderboards?tournament_id=1";
    let ours = format!("{bare}&among=following");
    wait_for(service, bare, &people::token(3)).await?;
    wait_for(service, &ours, &people::token(3)).await?;
    let load = Load { connections: CONNECTIONS, length: stage.length, rate: None };
    let sides = [&requests(service, ours), &requests(service, bare.to_owned())];
    let outcome = compare(stage, service, "follows-leaderboard", (load, 0.99), sides).await?;
    Ok(Outcome {
        what: format!("Leaderboard of a tournament among {FOLLOWED} followed users, p99"),
        beside: "the whole leaderboard of the tournament".to_owned(),
        goal: Some(Goal::AtMost(1.5)),
        size: Some(FOLLOWED),
        ..outcome
    })
}

/// The same for users whose list has changed since their last request, so that no view of theirs is kept: one request each.
async fn among_after_change(stage: &Stage, service: &Service, pool: &PgPool) -> anyhow::Result<Outcome> {
    let bare = "/api/auth/leaderboards?tournament_id=1";
    let ours = requests(service, format!("{bare}&among=following"));
    let bare = requests(service, bare.to_owned());
    let rate = f64::from(u32::try_from(ASKING)?) / stage.length.as_secs_f64();
    let load = Load { connections: CONNECTIONS, length: stage.length, rate: Some(rate) };
    let change = format!(
        "update follow_counts set following_version = following_version + 1
         where slot = 0 and user_id between 3 and {ASKING} + 2"
    );
    let numbers = Arc::default();
    let measure = async |target| anyhow::Ok(load::run(target, load, &numbers).await?.latency.quantile(0.5));
    let (rounds, limit) = stage
        .alternate(
            &stage.groups(service),
            async |_| {
                pool.execute(AssertSqlSafe(change.as_str())).await?;
                measure(&ours).await
            },
            async |_| measure(&bare).await,
        )
        .await?;
    Ok(Outcome {
        what: format!("First request after a change of the {FOLLOWED} followed users, p50"),
        beside: "the whole leaderboard of the tournament, p50".to_owned(),
        unit: "ms".to_owned(),
        size: Some(FOLLOWED),
        limit,
        ..Outcome::of("follows-leaderboard-changed", rounds)
    })
}
