//! Sums of leagues that count matches by time, compared with sums of all predictions and answers.

use platform::{random, testing::SeededRandom};
use serde_json::Value;
use sqlx::{AssertSqlSafe, PgPool};
use time::{Duration, OffsetDateTime, macros::datetime};
use web::ids::{LeagueId, TournamentId, UserId};

use super::{
    rules::{CountsFrom, League, MemberScore, Visibility},
    sums::{self, Member},
};
use crate::{game::scores::rules::Score, testing::TestApp};

/// First match of the season in `season.sql`.
const BEGIN: OffsetDateTime = datetime!(2026-01-02 12:00 UTC);
const MEMBERS: i64 = 40;

async fn season(owner: &PgPool) -> Vec<TournamentId> {
    sqlx::raw_sql(include_str!("season.sql")).execute(owner).await.expect("a season");
    sqlx::raw_sql("vacuum analyze").execute(owner).await.expect("statistics");
    let ids: Vec<i64> =
        sqlx::query_scalar("select id from tournaments order by id").fetch_all(owner).await.expect("tournaments");
    ids.into_iter().map(TournamentId).collect()
}

fn league(tournaments: &[TournamentId], from_round: Option<i16>, from: Option<OffsetDateTime>) -> League {
    League {
        id: LeagueId(1),
        name: "Friends".to_owned(),
        owner: UserId(1),
        visibility: Visibility::Private,
        counts_from: CountsFrom::Joined,
        tournaments: tournaments.to_vec(),
        from_round,
        from,
        max_members: 100,
        member_count: 40,
        members_version: 0,
        created_at: BEGIN,
    }
}

/// Sums all predictions and answers that count for a member.
async fn exact(
    db: &PgPool,
    league: &League,
    (user, start): Member,
    round: Option<i16>,
    latest: Option<i16>,
) -> MemberScore {
    let mut score = MemberScore::default();
    let rows: Vec<(Option<i16>, i64, i64, i64, i64, i64)> = sqlx::query_as(
        "select e.round, c.points::bigint, c.exact::bigint, c.correct::bigint, 1::bigint, 0::bigint
         from result_points c join events e on e.id = c.event_id and e.result_revision = c.revision
         where c.user_id = $1 and e.tournament_id = any($2) and e.start_time >= $3 and ($4::smallint is null or e.round >= $4)
         union all
         select q.round, c.points::bigint, 0, 0, 0, 1
         from question_points c join questions q on q.id = c.question_id and q.result_revision = c.revision
         where c.user_id = $1 and q.tournament_id = any($2) and q.locks_at >= $3 and ($4::smallint is null or q.round >= $4)",
    )
    .bind(user.0)
    .bind(league.tournament_ids())
    .bind(start)
    .bind(league.from_round)
    .fetch_all(db)
    .await
    .expect("points");
    let number = |number: i64| i32::try_from(number).expect("small");
    for (of, points, exact, correct, settled, _) in rows {
        let (points, exact, correct) = (number(points), number(exact), number(correct));
        let one = Score { points, exact, correct, settled: number(settled), answered: 0 };
        if round.is_none() || of == round {
            score.all += one;
        }
        if of.is_some() && of == latest {
            score.latest_round += one;
        }
    }
    score
}

#[tokio::test]
async fn timed_sums_equal_sums_of_all_predictions() {
    TestApp::run(async |app| {
        let tournaments = season(app.owner()).await;
        let (db, random) = (&app.app.core.db, SeededRandom::new(7));
        let below = |most: u16| i64::from(u16::from_be_bytes(random::bytes(&random)) % most);
        let mut scored = 0;
        for case in 0..30 {
            let of = [&tournaments[..1], &tournaments[1..], &tournaments[..]][case % 3];
            let from_round = (below(4) == 0).then(|| i16::try_from(1 + below(20)).expect("small"));
            let from = (from_round.is_none() && below(3) == 0).then(|| BEGIN + Duration::days(below(200)));
            let league = league(of, from_round, from);
            // Many members join at the very start of a match.
            let joined = |user: i64| match below(3) {
                0 => BEGIN - Duration::days(below(3)),
                1 => datetime!(2026-01-03 15:00 UTC) + Duration::days(7 * below(26)) + Duration::hours(3 * below(5)),
                _ => BEGIN + Duration::hours(below(5_000)),
            } + Duration::microseconds(user % 2);
            let members: Vec<Member> = (1..=MEMBERS).map(|user| (UserId(user), league.start(joined(user)))).collect();
            for round in [None, Some(1), Some(8), Some(20)] {
                let outline = sums::outline(db, &league, round).await.expect("an outline");
                let found = sums::sum(db, &outline, &members).await.expect("sums");
                for (member, (user, found)) in members.iter().zip(found) {
                    let mut expected = exact(db, &league, *member, round, outline.latest).await;
                    (expected.all.answered, expected.latest_round.answered) =
                        (found.all.answered, found.latest_round.answered);
                    assert_eq!((user, found), (member.0, expected), "case {case}, round {round:?}, {league:?}");
                    scored += i32::from(found.all.points != 0);
                }
            }
        }
        assert!(scored > 1_000, "{scored} sums of points");
        app.published().await;
    })
    .await;
}

/// Rows that the nodes of a plan read from tables with this prefix.
fn rows_read(plan: &Value, table: &str) -> f64 {
    let number = |name: &str| plan[name].as_f64().unwrap_or_default();
    let is_read = plan["Relation Name"].as_str().is_some_and(|name| name.starts_with(table));
    let removed = number("Rows Removed by Filter") + number("Rows Removed by Index Recheck");
    let own = if is_read { (number("Actual Rows") + removed) * number("Actual Loops") } else { 0.0 };
    own + plan["Plans"].as_array().into_iter().flatten().map(|node| rows_read(node, table)).sum::<f64>()
}

#[tokio::test]
async fn predictions_are_read_only_in_the_round_of_the_start() {
    TestApp::run(async |app| {
        let tournaments = season(app.owner()).await;
        let tournament = tournaments[0].0;
        // Each member starts within another round. The plan is the generic one, as in the service.
        let mut connection = app.owner().acquire().await.expect("a connection");
        for statement in [
            format!(
                "prepare timed (bigint[], timestamptz[], bigint[], smallint[], timestamptz[], timestamptz[], bigint[]) as {}",
                include_str!("timed_scores.sql")
            ),
            format!(
                "create temporary table arguments as
                 select array(select generate_series(1, 20)) as users, array_agg(second order by round) as starts,
                        array_agg({tournament}::bigint order by round) as tournaments, array_agg(round order by round) as rounds,
                        array_agg(first order by round) as after, array_agg(last order by round) as until
                 from (select round, min(start_time) as first, max(start_time) as last,
                              min(start_time) + interval '1 hour' as second
                       from events where tournament_id = {tournament} and round is not null group by round) r"
            ),
        ] {
            sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut *connection).await.expect("executed");
        }
        let arguments: String = sqlx::query_scalar(
            "select format('%L, %L, %L, %L, %L, %L, null', users, starts, tournaments, rounds, after, until) from arguments",
        )
        .fetch_one(&mut *connection)
        .await
        .expect("arguments");
        let statement =
            format!("set plan_cache_mode = force_generic_plan; explain (analyze, format json) execute timed ({arguments})");
        let rows = sqlx::raw_sql(AssertSqlSafe(statement)).fetch_all(&mut *connection).await.expect("a plan");
        let plan: Value = sqlx::Row::get(&rows[0], 0);
        let read = rows_read(&plan[0]["Plan"], "predictions_");
        assert!((1.0..=200.0).contains(&read), "{read} predictions of 20 members, 5 matches in each round: {plan:#}");
        app.published().await;
    })
    .await;
}
