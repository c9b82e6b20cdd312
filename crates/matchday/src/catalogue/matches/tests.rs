use axum::body::Body;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgPool};
use time::{Duration, OffsetDateTime, macros::datetime};

use super::{rules, store};
use crate::testing::{TestApp, TestUser, eventually};

async fn events(user: &TestUser<'_>, query: &str) -> Vec<Value> {
    let body = user.get(&format!("/api/auth/events?per_page=100&{query}")).await.expect(200);
    body["data"].as_array().expect("a list").clone()
}

fn ids(events: &[Value]) -> Vec<i64> {
    events.iter().map(|event| event["id"].as_i64().expect("an id")).collect()
}

#[tokio::test]
async fn event_shows_all_fields() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let id = fixtures.a_match("m").put().await;
        let user = app.user().await;
        let listed = events(&user, "").await;
        let tournament = listed[0]["tournament_id"].clone();
        let tag = &fixtures.tag;
        let expected = json!({
            "id": id, "tournament_id": tournament,
            "tournament": {"id": tournament, "name": format!("Cup {tag}"), "logo": "https://cdn.example.org/cup.png"},
            "home_team": {"id": fixtures.team_id("rovers").await, "name": format!("Rovers {tag}"), "logo": "https://cdn.example.org/rovers.png"},
            "away_team": {"id": fixtures.team_id("city").await, "name": format!("City {tag}"), "logo": "https://cdn.example.org/city.png"},
            "start_time": "2026-11-20T17:00:00.000Z", "status": "scheduled", "status_detail": "scheduled", "venue": "Test Park",
            "home_score": null, "away_score": null, "chat_room_id": null, "predictions_count": 0,
            "rule_set_id": 1, "round": null, "stage": null, "multiplier": 1, "is_knockout": false, "advanced": null,
        });
        assert_eq!(listed, std::slice::from_ref(&expected));
        assert_eq!(user.get(&format!("/api/auth/events/{id}")).await.expect(200)["data"], expected);
    })
    .await;
}

#[tokio::test]
async fn unknown_logo_is_omitted() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let mut document = fixtures.document(&[fixtures.a_match("m").json()]);
        document["tournament"]["logo"] = Value::Null;
        document["teams"][0]["logo"] = Value::Null;
        let document = crate::catalogue::fixtures::document::Document::parse(&document.to_string()).expect("valid");
        app.app
            .fixtures
            .import(&document, crate::catalogue::fixtures::service::Mode::Write, |_| {})
            .await
            .expect("imported");
        app.published().await;
        let user = app.user().await;
        let event = &events(&user, "").await[0];
        assert!(event["tournament"].get("logo").is_none() && event["home_team"].get("logo").is_none(), "{event}");
        let team = &user.get("/api/auth/teams?search=rovers").await.expect(200)["data"][0];
        assert_eq!(team["logo"], Value::Null);
    })
    .await;
}

#[tokio::test]
async fn list_shows_live_then_upcoming_then_finished() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let days = Duration::days;
        let later = fixtures.a_match("later").starting_in(days(3)).put().await;
        let over =
            fixtures.a_match("over").between("albion", "city").starting_in(days(-2)).at("finished", 2, 1).put().await;
        let long_over = fixtures
            .a_match("long over")
            .between("rovers", "wanderers")
            .starting_in(days(-4))
            .at("finished", 0, 0)
            .put()
            .await;
        let sooner = fixtures.a_match("sooner").between("rovers", "albion").starting_in(days(1)).put().await;
        let ending = fixtures
            .a_match("ending")
            .between("albion", "wanderers")
            .starting_in(Duration::minutes(-90))
            .at("live", 0, 0)
            .put()
            .await;
        let on = fixtures
            .a_match("on")
            .between("wanderers", "city")
            .starting_in(Duration::minutes(-30))
            .at("live", 0, 0)
            .put()
            .await;
        // Matches with the same start are ordered by id.
        let twin = fixtures.a_match("twin").between("city", "albion").starting_in(days(3)).put().await;
        let user = app.user().await;
        assert_eq!(ids(&events(&user, "").await), [on, ending, sooner, later, twin, over, long_over]);
    })
    .await;
}

#[tokio::test]
async fn unplayable_matches_are_listed_last() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let (days, hours) = (Duration::days, Duration::hours);
        let put = async |key: &str, status: &'static str, starts_in: Duration| {
            let described = fixtures.a_match(key).starting_in(starts_in);
            let scored = matches!(status, "finished" | "awarded");
            if scored { described.at(status, 2, 1) } else { described.being(status) }.put().await
        };
        let long_postponed = put("long postponed", "postponed", days(-90)).await;
        let never_started = put("never started", "scheduled", days(-2)).await;
        let called_off = put("called off", "cancelled", days(-30)).await;
        let over = put("over", "finished", days(-1)).await;
        let abandoned = put("abandoned", "abandoned", days(-3)).await;
        let called_off_early = put("called off early", "cancelled", days(5)).await;
        let awarded_early = put("awarded early", "awarded", days(4)).await;
        let too_late = put("too late", "scheduled", hours(-3)).await;
        let late = put("late", "scheduled", hours(-3) + Duration::MICROSECOND).await;
        let postponed_ahead = put("postponed ahead", "postponed", days(2)).await;
        let tomorrow = put("tomorrow", "scheduled", days(1)).await;
        let twin = put("twin", "postponed", days(1)).await;
        let interrupted = put("interrupted", "suspended", days(-1)).await;
        let on = put("on", "live", hours(-1)).await;
        let twin_on = put("twin on", "live", hours(-1)).await;
        let live = [on, twin_on, interrupted];
        let upcoming = [late, tomorrow, twin, postponed_ahead];
        let dead =
            [called_off_early, awarded_early, too_late, over, never_started, abandoned, called_off, long_postponed];
        let all = [&live[..], &upcoming, &dead].concat();

        let user = app.user().await;
        let tournament = user.get(&format!("/api/auth/events/{on}")).await.expect(200)["data"]["tournament_id"].clone();
        let (home, away) = (fixtures.team_id("rovers").await, fixtures.team_id("city").await);
        let only = |some: &[i64]| all.iter().copied().filter(|id| some.contains(id)).collect::<Vec<_>>();
        let finished = [over, abandoned, awarded_early];
        let scheduled: Vec<i64> =
            all.iter().copied().filter(|id| !live.contains(id) && !finished.contains(id)).collect();
        for (query, expected) in [
            (String::new(), all.clone()),
            (format!("tournament_id={tournament}"), all.clone()),
            (format!("team_id={home}"), all.clone()),
            (format!("team_id={away}&tournament_id={tournament}"), all.clone()),
            ("status=live".to_owned(), live.to_vec()),
            ("status=scheduled".to_owned(), scheduled),
            ("status=finished".to_owned(), only(&finished)),
            ("date=2026-11-20".to_owned(), only(&[on, twin_on, late, too_late])),
            ("date=2026-11-21&status=scheduled".to_owned(), vec![tomorrow, twin]),
            ("date=2026-11-19".to_owned(), vec![interrupted, over]),
        ] {
            assert_eq!(ids(&events(&user, &query).await), expected, "{query}");
        }
        // For every page size, the pages together make up the list.
        for size in [1, 2, 4, 7] {
            let mut paged = Vec::new();
            for page in 1..=all.len().div_ceil(size) {
                let body = user.get(&format!("/api/auth/events?per_page={size}&page={page}")).await.expect(200);
                assert_eq!(body["meta"]["total"], all.len());
                paged.extend(ids(body["data"].as_array().expect("a list")));
            }
            assert_eq!(paged, all, "{size} per page");
        }
    })
    .await;
}

#[tokio::test]
async fn cached_page_follows_the_clock_within_two_seconds() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let missed = fixtures.a_match("missed").starting_in(Duration::hours(-2)).put().await;
        let next = fixtures.a_match("next").starting_in(Duration::hours(4)).put().await;
        let user = app.user().await;
        assert_eq!(ids(&events(&user, "").await), [missed, next]);
        app.clock.advance(Duration::hours(1));
        let began = std::time::Instant::now();
        eventually("the match has left the upcoming section", async || ids(&events(&user, "").await) == [next, missed])
            .await;
        let lag = app.app.config.pages.keep;
        assert!(lag <= std::time::Duration::from_secs(2), "{lag:?}");
        // Building the page may be slow on a busy machine.
        assert!(began.elapsed() < lag + std::time::Duration::from_secs(2), "{:?}", began.elapsed());
    })
    .await;
}

/// Inserts ten thousand matches, about one season of many leagues.
async fn many_matches(owner: &PgPool) {
    for statement in [
        "insert into sports (slug, name) values ('football', 'Football')",
        "insert into tournaments (sport_id, slug, name) select min(id), 't' || n, 'T' || n from sports, generate_series(1, 20) n group by n",
        "insert into teams (sport_id, slug, name) select min(id), 'm' || n, 'M' || n from sports, generate_series(1, 200) n group by n",
        "insert into events (tournament_id, key, home_team_id, away_team_id, start_time, status, home_score, away_score,
                             updated_at)
         select (select min(id) from tournaments) + n % 20, n, (select min(id) from teams) + n % 200,
                (select min(id) from teams) + (n + 1 + n % 7) % 200,
                timestamptz '2026-11-20 15:00:00+00' + (n - 6000) * interval '20 minutes',
                case when n % 97 = 0 then 'cancelled' when n % 89 = 0 then 'postponed'
                     when n between 5995 and 6000 then 'live'
                     when n < 5995 then case when n % 301 = 0 then 'scheduled' else 'finished' end
                     else 'scheduled' end, 1, 1, now()
         from generate_series(1, 10000) n",
        "vacuum analyze events",
    ] {
        sqlx::query(statement).execute(owner).await.expect(statement);
    }
}

/// Executes the list query and returns its plan with actual row counts.
async fn plan(db: &PgPool, now: OffsetDateTime, tournament: Option<i64>, limit: i64, offset: i64) -> Value {
    let runs = rules::runs(now, None, None);
    let statement = format!("explain (analyze, format json) {}", include_str!("list.sql"));
    let mut snapshot = platform::database::begin_with(db, store::SNAPSHOT).await.expect("a transaction");
    let plan: Value = sqlx::query_scalar(AssertSqlSafe(statement))
        .bind(runs.iter().map(|run| run.section.rank()).collect::<Vec<_>>())
        .bind(runs.iter().map(|run| run.section.is_ascending()).collect::<Vec<_>>())
        .bind(runs.iter().map(|run| run.status.name()).collect::<Vec<_>>())
        .bind(runs.iter().map(|run| run.since).collect::<Vec<_>>())
        .bind(runs.iter().map(|run| run.until).collect::<Vec<_>>())
        .bind(tournament)
        .bind(None::<i64>)
        .bind(limit)
        .bind(offset)
        .bind(limit + offset)
        .fetch_one(&mut *snapshot)
        .await
        .expect("a plan");
    plan[0]["Plan"].clone()
}

/// Returns the nodes of a plan with the rows that each one read in all its loops.
fn nodes(plan: &Value) -> Vec<(String, &Value, f64)> {
    let number = |name: &str| plan[name].as_f64().unwrap_or_default();
    let rows = (number("Actual Rows") + number("Rows Removed by Filter")) * number("Actual Loops");
    let children = plan["Plans"].as_array().into_iter().flatten();
    let mut found = vec![(plan["Node Type"].as_str().unwrap_or_default().to_owned(), plan, rows)];
    found.extend(children.flat_map(nodes));
    found
}

#[tokio::test]
async fn page_reads_and_sorts_only_rows_it_reaches() {
    TestApp::run(async |app| {
        many_matches(app.owner()).await;
        let now = datetime!(2026-11-20 15:00 UTC);
        let tournament: i64 =
            sqlx::query_scalar("select min(id) from tournaments").fetch_one(app.owner()).await.expect("a tournament");
        for (tournament, offset) in [(None, 0), (None, 40), (Some(tournament), 0)] {
            let plan = plan(&app.app.core.db, now, tournament, 20, offset).await;
            let reach = 20.0 + f64::from(i32::try_from(offset).expect("small"));
            let runs = 10.0;
            for (kind, node, rows) in nodes(&plan) {
                if node["Relation Name"] == "events" {
                    // Each run is read in order, as far as the page reaches. The rows of the page itself follow.
                    assert!(kind.starts_with("Index"), "{kind} of events in {plan:#}");
                    assert!(rows <= runs * reach, "{rows} rows read by {node:#}");
                }
                if kind.contains("Sort") {
                    let sorted: f64 =
                        node["Plans"].as_array().into_iter().flatten().map(|child| nodes(child)[0].2).sum();
                    assert!(sorted <= runs * reach, "{sorted} rows sorted by {node:#}");
                }
            }
        }
        // The served list has the same order as an independent query.
        let user = app.user().await;
        let listed = events(&user, "").await;
        let expected: Vec<i64> = sqlx::query_scalar(
            "select id from events
             order by case when status in ('live', 'suspended') then 0
                           when status in ('scheduled', 'postponed') and start_time > $1 - interval '3 hours' then 1
                           else 2 end,
                      case when status in ('scheduled', 'postponed') and start_time > $1 - interval '3 hours'
                           then start_time - $1 else $1 - start_time end, id
             limit 100",
        )
        .bind(now)
        .fetch_all(app.owner())
        .await
        .expect("read");
        assert_eq!(ids(&listed), expected);
    })
    .await;
}

#[tokio::test]
async fn filters_narrow_the_list() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let soon = fixtures.a_match("soon").starting_in(Duration::days(1)).put().await;
        let over = fixtures
            .a_match("over")
            .between("albion", "city")
            .starting_in(Duration::days(-2))
            .at("finished", 2, 1)
            .put()
            .await;
        let elsewhere = app.fixtures().a_match("elsewhere").starting_in(Duration::days(1)).put().await;
        let user = app.user().await;
        let tournament =
            user.get(&format!("/api/auth/events/{soon}")).await.expect(200)["data"]["tournament_id"].clone();
        let (home, away) = (fixtures.team_id("rovers").await, fixtures.team_id("city").await);
        for (query, expected) in [
            (format!("tournament_id={tournament}"), vec![soon, over]),
            (format!("tournament_id={tournament}&status=scheduled"), vec![soon]),
            (format!("tournament_id={tournament}&status=live"), vec![]),
            (format!("team_id={away}"), vec![soon, over]),
            (format!("team_id={home}"), vec![soon]),
            ("date=2026-11-21".to_owned(), vec![soon, elsewhere]),
            ("date=2001-01-01".to_owned(), vec![]),
            ("tournament_id=999999999".to_owned(), vec![]),
            ("team_id=999999999".to_owned(), vec![]),
        ] {
            assert_eq!(ids(&events(&user, &query).await), expected, "{query}");
        }
    })
    .await;
}

#[tokio::test]
async fn date_filter_covers_one_utc_day() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let now = datetime!(2026-11-20 15:00 UTC);
        let first = fixtures.a_match("first").starting_in(datetime!(2026-11-22 00:00 UTC) - now).put().await;
        let last = fixtures.a_match("last").starting_in(datetime!(2026-11-22 23:59:59 UTC) - now).put().await;
        fixtures.a_match("next").starting_in(datetime!(2026-11-23 00:00 UTC) - now).put().await;
        let user = app.user().await;
        assert_eq!(ids(&events(&user, "date=2026-11-22").await), [first, last]);
        user.get("/api/auth/events?date=9999-12-31").await.expect(200);
    })
    .await;
}

#[tokio::test]
async fn result_appears_in_list_immediately() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let user = app.user().await;
        for (status, home, away) in [("live", 1, 0), ("finished", 3, 1), ("finished", 3, 2)] {
            fixtures.a_match("m").starting_in(Duration::hours(-2)).at(status, home, away).put().await;
            let event = &events(&user, "").await[0];
            assert_eq!(
                (&event["status"], &event["home_score"], &event["away_score"]),
                (&json!(status), &json!(home), &json!(away))
            );
        }
    })
    .await;
}

#[tokio::test]
async fn api_shows_three_states() {
    TestApp::run(async |app| {
        let user = app.user().await;
        for (inside, shown) in [
            ("postponed", "scheduled"),
            ("cancelled", "scheduled"),
            ("suspended", "live"),
            ("abandoned", "finished"),
            ("awarded", "finished"),
        ] {
            let fixtures = app.fixtures();
            let builder = fixtures.a_match("m");
            let id = if inside == "awarded" { builder.at(inside, 3, 0) } else { builder.being(inside) }.put().await;
            let event = user.get(&format!("/api/auth/events/{id}")).await.expect(200)["data"].clone();
            assert_eq!((&event["status"], &event["status_detail"]), (&json!(shown), &json!(inside)));
            assert!(
                ids(&events(&user, &format!("status={shown}")).await).contains(&id),
                "{inside} is listed as {shown}"
            );
        }
    })
    .await;
}

#[tokio::test]
async fn invalid_event_id_is_404() {
    TestApp::run(async |app| {
        let user = app.user().await;
        for unknown in ["2147483647", "x", "-1", "0", "+1", "1.0", "99999999999999999999", "%00"] {
            let body = user.get(&format!("/api/auth/events/{unknown}")).await.expect(404);
            assert_eq!(body["code"], "not_found", "{unknown}");
        }
    })
    .await;
}

#[tokio::test]
async fn event_list_paginates() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        for day in 1..=3 {
            fixtures.a_match(&format!("m{day}")).starting_in(Duration::days(day)).put().await;
        }
        let user = app.user().await;
        let page = async |query: &str| user.get(&format!("/api/auth/events?{query}")).await.expect(200);
        let (one, two) = (page("per_page=2").await, page("per_page=2&page=2").await);
        assert_eq!(one["meta"], json!({"current_page": 1, "last_page": 2, "per_page": 2, "total": 3}));
        assert_eq!((one["data"].as_array().map(Vec::len), two["data"].as_array().map(Vec::len)), (Some(2), Some(1)));
        let beyond = page("per_page=2&page=9").await;
        assert_eq!(beyond, json!({"data": [], "meta": {"current_page": 9, "last_page": 2, "per_page": 2, "total": 3}}));
        assert_eq!(page("").await["meta"]["per_page"], 20);
        assert_eq!(page("per_page=1000").await["meta"]["per_page"], 100);
        assert_eq!(page("page=9223372036854775807").await["data"], json!([]));
    })
    .await;
}

#[tokio::test]
async fn invalid_event_query_is_422() {
    TestApp::run(async |app| {
        let user = app.user().await;
        for (query, field) in [
            ("status=cancelled!", "status"),
            ("status=postponed", "status"),
            ("date=2026-13-01", "date"),
            ("date=tomorrow", "date"),
            ("date=-9999-01-01", "date"),
            ("page=0", "page"),
            ("per_page=0", "per_page"),
            ("per_page=x", "per_page"),
            ("team_id=x", "team_id"),
            ("tournament_id=x", "tournament_id"),
        ] {
            assert_eq!(user.get(&format!("/api/auth/events?{query}")).await.invalid_fields(), [field], "{query}");
        }
    })
    .await;
}

#[tokio::test]
async fn unchanged_page_returns_304() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        fixtures.a_match("m").put().await;
        let user = app.user().await;
        let first = user.get("/api/auth/events").await;
        let etag = first.header("etag").expect("a validator").to_owned();
        assert!(etag.starts_with("W/\""), "{etag}");
        let again = user.send_with(Method::GET, "/api/auth/events", &[("if-none-match", &etag)], None).await;
        assert_eq!((again.status.as_u16(), again.bytes.len()), (304, 0));
        assert_eq!(again.header("etag"), Some(etag.as_str()));
        fixtures.a_match("n").between("albion", "wanderers").put().await;
        let changed = user.send_with(Method::GET, "/api/auth/events", &[("if-none-match", &etag)], None).await;
        assert_eq!(changed.expect(200)["meta"]["total"], 2);
    })
    .await;
}

#[tokio::test]
async fn page_is_compressed_on_request() {
    TestApp::run(async |app| {
        app.fixtures().a_match("m").put().await;
        let user = app.user().await;
        let plain = user.get("/api/auth/events").await;
        let packed = user.send_with(Method::GET, "/api/auth/events", &[("accept-encoding", "gzip")], None).await;
        assert_eq!((plain.header("content-encoding"), packed.header("content-encoding")), (None, Some("gzip")));
        assert_eq!((plain.header("vary"), packed.header("vary")), (Some("accept-encoding"), Some("accept-encoding")));
        let head = user.send(Method::HEAD, "/api/auth/events", None).await;
        assert_eq!((head.status.as_u16(), head.bytes.len(), head.header("etag")), (200, 0, plain.header("etag")));
        let mut unpacked = Vec::new();
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&packed.bytes[..]), &mut unpacked).expect("gzip");
        assert_eq!(unpacked, plain.bytes);
    })
    .await;
}

#[tokio::test]
async fn tournaments_and_sports_are_listed() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let id = fixtures.a_match("m").put().await;
        let user = app.user().await;
        let event = user.get(&format!("/api/auth/events/{id}")).await.expect(200)["data"].clone();
        let tournaments = user.get("/api/auth/tournaments").await.expect(200);
        let sports = user.get("/api/auth/sports").await.expect(200);
        let sport = sports["data"][0]["id"].clone();
        assert_eq!(
            sports["data"],
            json!([{"id": sport, "name": "Football", "slug": "football", "draws_allowed": true, "max_score": 99}])
        );
        assert_eq!(
            tournaments["data"],
            json!([{"id": event["tournament_id"], "sport_id": sport, "name": format!("Cup {}", fixtures.tag),
                    "slug": format!("cup_{}", fixtures.tag), "logo": "https://cdn.example.org/cup.png"}])
        );
        assert_eq!(tournaments["meta"]["total"], 1);
        assert_eq!(sports["meta"]["total"], 1);
        for path in ["tournaments", "sports"] {
            assert_eq!(user.get(&format!("/api/auth/{path}?page=0")).await.invalid_fields(), ["page"]);
        }
    })
    .await;
}

#[tokio::test]
async fn list_from_memory_equals_list_from_the_router() {
    let changes = [("MATCHDAY_PAGES__KEEP", "1h"), ("MATCHDAY_LOG__REQUESTS", "all")];
    // Where all requests are logged, the router answers all of them.
    TestApp::run_with(&changes, async |app| {
        app.fixtures().a_match("m").put().await;
        let (user, other) = (app.user().await, app.user().await);
        let shortcut = &super::shortcuts(&app.app)["/api/auth/events"];
        let ask = |method: Method, query: &str, token: &str, header: (&str, &str)| {
            Request::builder()
                .method(method)
                .uri(format!("/api/auth/events{query}"))
                .header("authorization", format!("Bearer {token}"))
                .header(header.0, header.1)
                .body(Body::empty())
                .expect("a request")
        };
        let compare = async |query: &str, token: &str, header| {
            let routed = app.open(ask(Method::GET, query, token, header)).await;
            let (mut routed, routed_body) = routed.into_parts();
            routed.headers.remove("x-request-id");
            // hyper adds it to the other response too.
            routed.headers.remove("content-length");
            let direct = shortcut(&ask(Method::GET, query, token, header)).expect("an answer from memory");
            let (direct, direct_body) = direct.into_parts();
            assert_eq!((direct.status, &direct.headers), (routed.status, &routed.headers), "{query} {header:?}");
            let bytes = async |body: Body| body.collect().await.expect("a body").to_bytes();
            assert_eq!(bytes(direct_body).await, bytes(routed_body).await, "{query} {header:?}");
            direct
        };
        let none = ("accept", "*/*");
        let plain = compare("", &user.token, none).await;
        let etag = plain.headers["etag"].to_str().expect("text");
        compare("?per_page=1&per_page=2&status=scheduled&date=2026-11-20", &user.token, none).await;
        compare("", &user.token, ("accept-encoding", "gzip")).await;
        assert_eq!(compare("", &user.token, ("if-none-match", etag)).await.status, 304);
        compare("", &user.token, ("if-none-match", "W/\"other\"")).await;

        // Everything else is left to the router.
        let refused = |request| shortcut(&request).is_none();
        assert!(refused(ask(Method::POST, "", &user.token, none)));
        assert!(refused(ask(Method::HEAD, "", &user.token, none)));
        assert!(refused(ask(Method::GET, "?page=0", &user.token, none)));
        assert!(refused(ask(Method::GET, "?page=7", &user.token, none)), "not built yet");
        assert!(refused(ask(Method::GET, "", "unknown", none)));
        assert!(refused(ask(Method::GET, "", &other.token, none)), "not looked up yet");
        app.app.matches.mark_stale();
        assert!(refused(ask(Method::GET, "", &user.token, none)), "stale");
        compare("", &user.token, none).await;
        user.post("/api/auth/logout", json!({})).await.expect(200);
        assert!(refused(ask(Method::GET, "", &user.token, none)), "ended");
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn pages_of_any_parameters_are_counted_in_bytes() {
    TestApp::run_with(&[("MATCHDAY_PAGES__KEEP", "1h")], async |app| {
        app.fixtures().a_match("m").put().await;
        let user = app.user().await;
        let mut sent = 0;
        for number in 0..100 {
            let body = user.get(&format!("/api/auth/events?per_page={}&page=1", number % 99 + 1)).await.expect(200);
            user.get(&format!("/api/auth/events?page={}", i64::MAX - number)).await.expect(200);
            sent += u64::from(number < 99) * body.to_string().len() as u64;
        }
        let (pages, bytes) = app.app.matches.cached();
        assert!((199..=200).contains(&pages), "{pages} pages");
        assert!((sent..sent + 200 * 4_096).contains(&bytes), "{bytes} bytes of {sent}");
    })
    .await;
}
