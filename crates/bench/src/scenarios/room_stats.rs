//! Statistics, leaderboard and predictions of a match's room with 100,000 members in fifty stands, compared with the same
//! requests for a room of 1,000 members.

use std::{sync::Arc, time::Duration};

use anyhow::ensure;
use sqlx::AssertSqlSafe;

use super::{OPEN, Side, http, latencies, prepare, send};
use crate::{
    environment::{Stage, people, service::Setting, until},
    load::{self, Load},
    outcome::{Goal, Outcome},
    wire::write_http,
};

const SMALL: u64 = 1_000;
const LARGE: u64 = 100_000;
/// Members of one stand.
const CAPACITY: u64 = 2_000;
/// Number of users who send requests.
const ASKING: u64 = 1_000;
const CONNECTIONS: u8 = 4;

/// Rooms of the matches 1 (large) and 2 (small). Most members have a team, two thirds a prediction, and all a score.
fn members() -> String {
    format!(
        "delete from rooms;
         insert into rooms (event_id, stand, matrix_id, alias, name, created_at, made_until, opened_at)
           select e, s, '!' || e || '_' || s || ':example.org', e || '_' || s, 'Stand', now(), now(), now()
           from (select 1 as e, s from generate_series(1, {stands}) s union all select 2, 1) r;
         insert into room_members (user_id, room_id, membership, active_at, changed_at)
           select n, r.id, 'join', now() - n % 14 * interval '1 day', now()
           from rooms r cross join lateral generate_series(
             (r.stand - 1) * {CAPACITY} + 1,
             case r.event_id when 1 then r.stand * {CAPACITY} else {SMALL} end) n;
         insert into room_activity (room_id, member_count, last_activity, compared_at)
           select room_id, count(*), now(), now() from room_members group by room_id;
         insert into user_teams (user_id, rank, team_id)
           select u.user_id, 0, t.id from users u join teams t on t.id = (select min(id) from teams) + u.user_id % 3;
         insert into predictions (user_id, event_id, prediction, confidence, revision, created_at, updated_at)
           select u.user_id, e, (array['home', 'draw', 'away'])[1 + u.user_id % 3], 50, 1, now(), now()
           from users u cross join generate_series(1, 2) e where u.user_id % 3 <> 0;
         insert into user_scores (user_id, scope, points, exact, correct, settled)
           select user_id, 'all', user_id * 7919 % 5003, user_id % 11, user_id % 23, 30 from users",
        stands = LARGE / CAPACITY,
    )
}

pub(super) async fn run(stage: &Stage) -> anyhow::Result<Vec<Outcome>> {
    let (name, setting) = ("bench_room_stats", Setting::on("bench_room_stats"));
    prepare(stage, &setting, name, &[OPEN, OPEN]).await?;
    let pool = stage.postgres.pool(name).await?;
    stage.say(format!("inserting rooms of {SMALL} and {LARGE} members"));
    people::make(&pool, LARGE, ASKING).await?;
    sqlx::raw_sql(AssertSqlSafe(members())).execute(&pool).await?;
    sqlx::raw_sql("vacuum analyze").execute(&pool).await?;
    let service = stage.serve(&setting, &["--no-workers"]).await?;
    let tokens: Arc<[String]> = (1..=ASKING).map(people::token).collect();
    let mut outcomes = Vec::new();
    for (scenario, what, path) in [
        ("room-stats", "Statistics", "/api/auth/chat-rooms/!ROOM:example.org/member-stats"),
        ("room-board", "Leaderboard", "/api/auth/leaderboards?room_id=!ROOM:example.org"),
        ("room-predictions", "Page of 100 predictions", "/api/auth/chat-rooms/!ROOM:example.org/predictions"),
    ] {
        let [ours, bare] =
            [("1_1", LARGE), ("2_1", SMALL)].map(|(room, members)| (path.replace("ROOM", room), members));
        for (path, members) in [&ours, &bare] {
            until("the room can be read", Duration::from_mins(1), async || {
                send(service.public, "GET", path, &tokens[0], "").await.is_ok_and(|(status, _)| status == 200)
            })
            .await?;
            let (_, body) = send(service.public, "GET", path, &tokens[0], "").await?;
            let is_whole = scenario != "room-stats" || body.contains(&format!("\"total_members\":{members},"));
            ensure!(is_whole, "not {members} members: {body:.300}");
        }
        let [ours, bare] = [ours, bare].map(|(path, _)| {
            let tokens = Arc::clone(&tokens);
            http(service.public, move |number, into| {
                write_http(into, "GET", &path, &tokens[usize::try_from(number % ASKING).unwrap_or_default()], "");
            })
        });
        let numbers = Arc::default();
        let load = Load { connections: CONNECTIONS.into(), length: stage.length, rate: None };
        let median = async |target| anyhow::Ok(load::run(target, load, &numbers).await?.latency.quantile(0.5));
        let (rounds, cores) = stage
            .alternate(&stage.groups(&service), async |_| median(&ours).await, async |_| median(&bare).await)
            .await?;
        let outcome = Outcome::of(scenario, rounds);
        // Half of what the connections can send if all responses take as long as the slower median, in milliseconds.
        let rate = (f64::from(CONNECTIONS) * 1_000.0 / outcome.ours.max(outcome.bare) / 2.0).floor();
        let sides = (
            (Side::Requests(&ours, &numbers), CONNECTIONS.into()),
            (Side::Requests(&bare, &numbers), CONNECTIONS.into()),
        );
        outcomes.push(Outcome {
            what: format!("{what} of a room with {LARGE} members in {} stands, median response time", LARGE / CAPACITY),
            beside: format!("same request for a room with {SMALL} members"),
            unit: "ms".to_owned(),
            goal: Some(Goal::AtMost(1.5)),
            size: Some(LARGE),
            latency: Some(latencies(stage, sides.0, sides.1, rate).await?),
            limit: cores,
            ..outcome
        });
    }
    drop(service);
    stage.forget_in_redis(name)?;
    stage.postgres.forget(name).await?;
    Ok(outcomes)
}
