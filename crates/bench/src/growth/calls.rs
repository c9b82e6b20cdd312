//! Calls of all operations, with the worst parameters that a caller may choose.

use std::sync::LazyLock;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use sqlx::PgPool;

use super::{SEASON_FANS, Size};
use crate::environment::{
    Stage, people,
    service::{Service, Setting},
};

/// Users with a session. The first is the busiest: all memberships, follows and movements that a user may have.
pub(super) const CALLERS: u64 = 2_000;
/// Users of a run whose session, membership or account ends.
const LEAVERS: u64 = 600;
const BUSIEST: u64 = 1;

/// Operations that are not called, each with the reason.
const LEFT_OUT: &[(&str, &str)] = &[
    ("listen", "`bench stream` measures it"),
    ("get_avatar", "object store"),
    ("save_avatar", "object store; `cargo test -p avatars --test limits` measures the conversion"),
    ("delete_avatar", "object store"),
    ("get_matrix_credentials", "homeserver"),
    ("get_client_discovery", "constant"),
    ("initiate_key_reset", "homeserver"),
    ("reset_matrix_keys", "homeserver"),
    ("create_room", "homeserver"),
    ("join_room", "homeserver; `bench join-storm` measures it"),
    ("leave_room", "homeserver"),
    ("send_message", "homeserver"),
    ("invite_to_room", "homeserver"),
    ("remove_message", "homeserver"),
    ("list_removed_messages", "homeserver"),
    ("report_message", "homeserver"),
    ("appoint_moderator", "homeserver"),
    ("dismiss_moderator", "homeserver"),
    ("set_slow_mode", "homeserver"),
    ("mute_member", "homeserver"),
    ("unmute_member", "homeserver"),
    ("add_push_subscription", "needs the settings of web push"),
    ("take_sms_report", "needs the signature of a provider"),
    ("take_sms_report_by_query", "needs the signature of a provider"),
    ("undo_phone_move", "needs a moved phone"),
    ("server:announce", "homeserver"),
    ("server:remove_message", "homeserver"),
    ("server:get_server_description", "constant"),
];

/// Operations beyond the limits, each with the reason.
const REASONS: &[(&str, &str)] = &[
    ("claim_daily_coins", LEVELS),
    (
        "export_me: busiest",
        "the export has all 100,000 movements of the user, and looks in each partition of a thousand matches",
    ),
    ("get_calibration", PARTITIONS),
    ("get_leaderboard: room", LEVELS),
    ("get_member_stats", LEVELS),
    ("get_profile: most followed", PARTITIONS),
    ("list_event_predictions: first page", LEVELS),
    ("list_events: beyond the last page", "counts the matches; pages are kept until the catalogue changes"),
    ("list_events: date", LEVELS),
    ("list_events: finished, last page", PAGE),
    ("list_events: last page", PAGE),
    ("list_events: team", LEVELS),
    ("list_follows", LEVELS),
    ("list_leagues: public, common search", "the search matches all leagues, and they are counted"),
    ("list_leagues: public, last page", PAGE),
    ("list_own_predictions: first page", PARTITIONS),
    ("list_own_predictions: settled", PARTITIONS),
    ("list_questions: last page", PAGE),
    ("list_room_predictions", "counts the picks of 5,000 members; a small match is read whole"),
    ("list_room_predictions: absent pick", "examines 1,000 members"),
    ("list_rooms: common search", "the search matches all rooms, and they are counted"),
    ("list_rooms: last page", PAGE),
    ("list_sms_log: last page", PAGE),
    ("list_teams: last page", PAGE),
    ("server:import_fixtures: one match", LEVELS),
    ("server:list_rooms: last page", PAGE),
    ("server:reverse_transaction: missing", "looks through the history of the user, who has 100,000 movements"),
    ("update_user_info", LEVELS),
];
const LEVELS: &str = "rows are found by index, which has more levels in a large table, and a small one is read whole";
const PAGE: &str = "a page by number passes all rows before it";
const PARTITIONS: &str = "looks for all predictions of the user, in each partition of a thousand matches";

pub(super) fn reason(title: &str) -> Option<&'static str> {
    REASONS.iter().find(|(known, _)| *known == title).map(|(_, reason)| *reason)
}

/// Rows that the calls name.
pub(super) struct World {
    size: Size,
    /// Prediction of the busiest user for a finished match.
    prediction: i64,
    /// League with the most members.
    big_league: i64,
    /// League of the fans with a whole season, which counts from each member's start.
    timed_league: i64,
    /// Chat room of the live match.
    room: String,
    server_key: String,
    /// First user who leaves in this run. Keys of requests contain it, so that no run repeats a request of an earlier one.
    first_leaver: u64,
}

#[derive(Clone, Copy)]
enum Caller {
    Nobody,
    User(u64),
    Backend,
}

struct Request {
    method: &'static str,
    path: String,
    body: String,
    caller: Caller,
    /// Path at which a code is requested first, and the phone. The code replaces `{code}` in the body.
    code_from: Option<(&'static str, String)>,
}

/// One way to call an operation.
pub(super) struct Case {
    operation: &'static str,
    /// Worst parameter, in words.
    what: &'static str,
    /// Greatest number of calls: some can be made once per user.
    pub(super) most: u64,
    expected: &'static [u16],
    make: Box<dyn Fn(u64) -> Request + Send + Sync>,
    server_key: String,
    run: u64,
}

impl Case {
    pub(super) fn title(&self) -> String {
        if self.what.is_empty() { self.operation.to_owned() } else { format!("{}: {}", self.operation, self.what) }
    }

    pub(super) fn expects(&self, status: u16) -> bool {
        if self.expected.is_empty() { matches!(status, 200..=299) } else { self.expected.contains(&status) }
    }

    /// The request with this number. A code is requested before.
    pub(super) async fn request(
        &self,
        service: &Service,
        pool: &PgPool,
        number: u64,
    ) -> anyhow::Result<reqwest::RequestBuilder> {
        let Request { method, path, mut body, caller, code_from } = (self.make)(number);
        let token = match caller {
            Caller::Nobody => String::new(),
            Caller::User(user) => people::token(user),
            Caller::Backend => self.server_key.clone(),
        };
        if let Some((from, phone)) = code_from {
            let wish = json!({"phone": phone}).to_string();
            let response = request(service, "POST", from, &token, wish, self.run + number).send().await?;
            ensure!(response.status() == 200, "{} for a code: {}", response.status(), response.text().await?);
            let code: String = sqlx::query_scalar(
                "select code from sms_log where phone = $1 and code is not null order by id desc limit 1",
            )
            .bind(&phone)
            .fetch_one(pool)
            .await?;
            body = body.replace("{code}", &code);
        }
        Ok(request(service, method, &path, &token, body, self.run + number))
    }
}

/// As our client does, every POST with a token has a key.
fn request(
    service: &Service,
    method: &'static str,
    path: &str,
    token: &str,
    body: String,
    number: u64,
) -> reqwest::RequestBuilder {
    static CLIENT: LazyLock<reqwest::Client> = LazyLock::new(reqwest::Client::new);
    let method = method.parse().unwrap_or(reqwest::Method::GET);
    let keyed = method == reqwest::Method::POST && !token.is_empty();
    let mut request = CLIENT.request(method, format!("http://{}{path}", service.public));
    if !token.is_empty() {
        request = request.bearer_auth(token);
    }
    if keyed {
        request = request.header("idempotency-key", format!("{path}-{number}"));
    }
    match (body.is_empty(), keyed) {
        (true, false) => request,
        (true, true) => request.header("content-type", "application/json").body("{}"),
        (false, _) => request.header("content-type", "application/json").body(body),
    }
}

impl World {
    /// Makes what only the service can make: leagues with codes.
    pub(super) async fn make(stage: &Stage, setting: &Setting, pool: &PgPool, size: Size) -> anyhow::Result<()> {
        stage.say("making leagues");
        let service = stage.serve(setting, &["--no-workers"]).await?;
        let season = size.season();
        for (number, name, more) in [
            (1, "Everyone", json!({"visibility": "public", "max_members": 1_000_000})),
            (2, "Late", json!({"max_members": SEASON_FANS, "counts_from": "joined"})),
        ] {
            let mut wish = json!({"name": name, "tournament_ids": [season]});
            wish.as_object_mut().context("an object")?.extend(more.as_object().cloned().unwrap_or_default());
            let token = people::token(BUSIEST);
            let response =
                request(&service, "POST", "/api/auth/leagues", &token, wish.to_string(), number).send().await?;
            ensure!(response.status() == 201, "{} for a league: {}", response.status(), response.text().await?);
        }
        drop(service);
        let members = "insert into league_members (user_id, league_id, joined_at)
                       select n, l.id, now() - interval '150 days'
                       from leagues l, generate_series(2, case l.name when 'Late' then $1::int8 else $2::int8 end) n
                       where l.name in ('Everyone', 'Late')";
        let (few, many) = (i64::try_from(SEASON_FANS)?, i64::try_from(size.big_league)?);
        sqlx::query(members).bind(few).bind(many).execute(pool).await?;
        sqlx::raw_sql(
            "update league_members m set joined_at = now() - interval '150 days' from leagues l
               where l.id = m.league_id and l.name in ('Everyone', 'Late') and m.user_id = 1;
             update leagues l set members_version = members_version + 1, created_at = now() - interval '300 days',
               member_count = (select count(*) from league_members m where m.league_id = l.id)
               where name in ('Everyone', 'Late')",
        )
        .execute(pool)
        .await
        .context("members of leagues")?;
        sqlx::query("vacuum (analyze) leagues, league_members").execute(pool).await?;
        Ok(())
    }

    /// Reads what the calls name, and makes a server key.
    pub(super) async fn find(stage: &Stage, setting: &Setting, pool: &PgPool, size: Size) -> anyhow::Result<Self> {
        let league = async |name: &str| {
            sqlx::query_scalar::<_, i64>("select id from leagues where name = $1")
                .bind(name)
                .fetch_one(pool)
                .await
                .with_context(|| name.to_owned())
        };
        let scopes = [
            "users:read",
            "moderation:write",
            "coins:read",
            "coins:write",
            "results:write",
            "catalogue:write",
            "rooms:read",
            "users:write",
            "webhooks:write",
            "leagues:write",
            "export:read",
        ];
        let mut wish = vec!["keys", "create", "growth", "--json"];
        let known = stage.matchday(setting, &["openapi", "--server"], "")?;
        for scope in scopes.iter().filter(|scope| known.contains(&format!("\"{scope}\""))) {
            wish.extend(["--scope", scope]);
        }
        let key: Value = serde_json::from_str(&stage.matchday(setting, &wish, "")?)?;
        let deleted: Option<i64> =
            sqlx::query_scalar("select max(user_id) from users where deleted_at is not null").fetch_one(pool).await?;
        let first_leaver = deleted.map_or(Ok(CALLERS), u64::try_from)? + 1;
        people::make_sessions(pool, first_leaver..=first_leaver + LEAVERS).await?;
        Ok(Self {
            first_leaver,
            prediction: sqlx::query_scalar("select id from predictions where user_id = 1 and event_id = $1")
                .bind(i64::try_from(size.past_matches + 100)?)
                .fetch_one(pool)
                .await
                .context("a prediction")?,
            big_league: league("Everyone").await?,
            timed_league: league("Late").await?,
            room: sqlx::query_scalar("select matrix_id from rooms where event_id = $1")
                .bind(i64::try_from(size.live())?)
                .fetch_one(pool)
                .await
                .context("the room")?,
            server_key: key["key"].as_str().context("a key")?.to_owned(),
            size,
        })
    }
}

/// Every operation of the descriptions is called or left out with a reason, and every name is one of theirs.
pub(super) fn check(operations: &[String], world: &World) -> anyhow::Result<()> {
    let cases = cases(world);
    let known: Vec<&str> =
        cases.iter().map(|case| case.operation).chain(LEFT_OUT.iter().map(|(operation, _)| *operation)).collect();
    let missing: Vec<&String> = operations.iter().filter(|operation| !known.contains(&operation.as_str())).collect();
    ensure!(missing.is_empty(), "add calls of these operations to crates/bench/src/growth/calls.rs: {missing:?}");
    let gone: Vec<&&str> =
        known.iter().filter(|name| !operations.iter().any(|operation| operation.as_str() == **name)).collect();
    ensure!(gone.is_empty(), "these operations do not exist: {gone:?}");
    Ok(())
}

/// Cursor after the item with this id.
fn cursor(id: u64) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    // 64 bits in groups of six, the last of which has two more.
    let bits = u128::from(id) << 2;
    (0..11)
        .rev()
        .map(|place| char::from(DIGITS[usize::try_from(bits >> (6 * place) & 63).unwrap_or_default()]))
        .collect()
}

fn phone(user: u64) -> String {
    format!("+1{}", 2_012_000_000 + user)
}

fn caller(number: u64) -> u64 {
    number % (CALLERS - 1) + 2
}

/// All calls. Deletions and ended sessions come last.
#[expect(clippy::too_many_lines, reason = "a table")]
pub(super) fn cases(world: &World) -> Vec<Case> {
    let size = world.size;
    let (live, open, season, room) = (size.live(), size.open(), size.season(), world.room.replace('!', "%21"));
    let (league, late, prediction) = (world.big_league, world.timed_league, world.prediction);
    let first = world.first_leaver;
    let mut cases = Vec::new();
    let mut add = |operation: &'static str,
                   what: &'static str,
                   most: u64,
                   expected: &'static [u16],
                   make: Box<dyn Fn(u64) -> Request + Send + Sync>| {
        cases.push(Case {
            operation,
            what,
            most,
            expected,
            make,
            server_key: world.server_key.clone(),
            run: world.first_leaver,
        });
    };
    let get = |path: String| -> Box<dyn Fn(u64) -> Request + Send + Sync> {
        Box::new(move |_| Request {
            method: "GET",
            path: path.clone(),
            body: String::new(),
            caller: Caller::User(BUSIEST),
            code_from: None,
        })
    };
    let backend = |method: &'static str, path: String, body: Value| -> Box<dyn Fn(u64) -> Request + Send + Sync> {
        Box::new(move |number| Request {
            method,
            path: path.replace("{user}", &caller(number).to_string()),
            body: if body.is_null() {
                String::new()
            } else {
                body.to_string().replace("{n}", &(first + number).to_string())
            },
            caller: Caller::Backend,
            code_from: None,
        })
    };
    // As each caller in turn; `{n}` is the number of the call, `{user}` the caller.
    let each = |method: &'static str, path: String, body: Value| -> Box<dyn Fn(u64) -> Request + Send + Sync> {
        Box::new(move |number| {
            let user = caller(number);
            let fill =
                |text: &str| text.replace("{n}", &(first + number).to_string()).replace("{user}", &user.to_string());
            Request {
                method,
                path: fill(&path),
                body: if body.is_null() { String::new() } else { fill(&body.to_string()) },
                caller: Caller::User(user),
                code_from: None,
            }
        })
    };
    // Without a token, for the phone of some user, with a code if `from` requests one.
    let accounts = size.accounts;
    let with_code = |path: &'static str, from: Option<&'static str>| -> Box<dyn Fn(u64) -> Request + Send + Sync> {
        Box::new(move |number| {
            let phone = phone((number * 10_007 + 3_000) % accounts + 1);
            let body = match from {
                Some(_) => json!({"phone": phone, "code": "{code}"}),
                None => json!({"phone": phone}),
            };
            Request {
                method: "POST",
                path: path.to_owned(),
                body: body.to_string(),
                caller: Caller::Nobody,
                code_from: from.map(|from| (from, phone)),
            }
        })
    };
    let last = |rows: u64| (rows / 100).max(1);
    let all = u64::MAX;

    // Catalogue.
    add(
        "list_events",
        "last page",
        all,
        &[],
        get(format!("/api/auth/events?per_page=100&page={}", last(size.past_matches))),
    );
    add("list_events", "beyond the last page", all, &[], get("/api/auth/events?per_page=100&page=999999999".into()));
    add(
        "list_events",
        "finished, last page",
        all,
        &[],
        get(format!("/api/auth/events?status=finished&per_page=100&page={}", last(size.past_matches))),
    );
    add("list_events", "team", all, &[], get("/api/auth/events?team_id=3&per_page=100&page=1".into()));
    add("list_events", "date", all, &[], get("/api/auth/events?date=2022-03-01&per_page=100".into()));
    add("get_event", "", all, &[], get(format!("/api/auth/events/{live}")));
    add("list_tournaments", "last page", all, &[], get("/api/auth/tournaments?per_page=100&page=2".into()));
    add("list_sports", "", all, &[], get("/api/auth/sports".into()));
    add("get_rule_set", "", all, &[], get("/api/auth/rule-sets/1".into()));
    add(
        "list_teams",
        "common search, last page",
        all,
        &[],
        get(format!("/api/auth/teams?search=team&per_page=100&page={}", last(size.teams))),
    );
    add("list_teams", "last page", all, &[], get(format!("/api/auth/teams?per_page=100&page={}", last(size.teams))));
    add("get_contact", "not configured", all, &[404], get("/api/contact".into()));
    // Predictions and scores.
    add(
        "list_event_predictions",
        "first page",
        all,
        &[],
        get(format!("/api/auth/events/{live}/predictions?per_page=100")),
    );
    add(
        "list_event_predictions",
        "last page",
        all,
        &[],
        get(format!("/api/auth/events/{live}/predictions?per_page=100&cursor={}", cursor(size.big_match - 50))),
    );
    add(
        "list_event_predictions",
        "rare pick",
        all,
        &[],
        get(format!("/api/auth/events/{live}/predictions?per_page=100&prediction=away")),
    );
    add(
        "list_event_predictions",
        "absent pick",
        all,
        &[],
        get(format!("/api/auth/events/{live}/predictions?per_page=100&prediction=draw")),
    );
    add(
        "list_event_predictions",
        "one user",
        all,
        &[],
        get(format!("/api/auth/events/{live}/predictions?user_id={}", size.big_match)),
    );
    add("list_room_predictions", "", all, &[], get(format!("/api/auth/chat-rooms/{room}/predictions?per_page=100")));
    add(
        "list_room_predictions",
        "absent pick",
        all,
        &[],
        get(format!("/api/auth/chat-rooms/{room}/predictions?per_page=100&prediction=draw")),
    );
    add("list_own_predictions", "first page", all, &[], get("/api/auth/predictions?per_page=100".into()));
    add("list_own_predictions", "settled", all, &[], get("/api/auth/predictions?status=settled&per_page=100".into()));
    add("explain_prediction", "", all, &[], get(format!("/api/auth/predictions/{prediction}/explanation")));
    add("get_receipt", "", all, &[], get(format!("/api/auth/predictions/{prediction}/receipt")));
    add("get_proof", "not sealed", all, &[404, 409], get(format!("/api/auth/predictions/{prediction}/proof")));
    add(
        "preview_points",
        "",
        all,
        &[],
        get(format!("/api/auth/events/{open}/points-preview?prediction=home&confidence=60")),
    );
    add("get_calibration", "", all, &[], get("/api/auth/me/calibration".into()));
    for (what, query) in
        [("all", String::new()), ("week", "?period=week".into()), ("tournament", format!("?tournament_id={season}"))]
    {
        add("get_leaderboard", what, all, &[], get(format!("/api/auth/leaderboards{query}")));
    }
    add(
        "get_leaderboard",
        "past round",
        all,
        &[200],
        get(format!("/api/auth/leaderboards?tournament_id={season}&round=2")),
    );
    add(
        "get_leaderboard",
        "followed users",
        all,
        &[],
        get("/api/auth/leaderboards?among=following&per_page=100".into()),
    );
    add("get_leaderboard", "room", all, &[], get(format!("/api/auth/leaderboards?room_id={room}&per_page=100")));
    add("list_seals", "", all, &[], get("/api/seals?per_page=100".into()));
    add("get_seal", "missing", all, &[404], get("/api/seals/999999".into()));
    add(
        "list_questions",
        "last page",
        all,
        &[],
        get(format!("/api/auth/questions?per_page=100&page={}", last(size.questions))),
    );
    add("list_questions", "unanswered", all, &[], get("/api/auth/questions?answered=false&per_page=100".into()));
    add("get_question", "", all, &[], get("/api/auth/questions/1".into()));
    add(
        "list_answers",
        "last page",
        all,
        &[403, 200],
        get(format!("/api/auth/questions/1/answers?per_page=100&cursor={}", cursor(size.accounts / 5 - 50))),
    );
    // Leagues.
    add("list_leagues", "own", all, &[], get("/api/auth/leagues?per_page=100".into()));
    add(
        "list_leagues",
        "public, last page",
        all,
        &[],
        get(format!("/api/auth/leagues?public=true&per_page=100&page={}", last(size.leagues / 2))),
    );
    add(
        "list_leagues",
        "public, common search",
        all,
        &[],
        get("/api/auth/leagues?public=true&search=league&per_page=100".into()),
    );
    add("get_league", "largest", all, &[], get(format!("/api/auth/leagues/{league}")));
    add("get_league", "counts from a time", all, &[], get(format!("/api/auth/leagues/{late}")));
    add("get_league_table", "largest", all, &[200], get(format!("/api/auth/leagues/{league}/table?per_page=100")));
    add(
        "get_league_table",
        "counts from a time",
        all,
        &[],
        get(format!("/api/auth/leagues/{late}/table?per_page=100")),
    );
    // People.
    add("get_me", "", all, &[], get("/api/auth/me".into()));
    add("get_profile", "most followed", all, &[], each("GET", "/api/auth/users/1".into(), Value::Null));
    add("get_privacy", "", all, &[], get("/api/auth/me/privacy".into()));
    add("list_follows", "", all, &[], get("/api/auth/follows?per_page=100".into()));
    add("list_followers", "most followed", all, &[], get("/api/auth/followers?per_page=100".into()));
    add("list_blocks", "last page", all, &[], get("/api/auth/blocks?per_page=100&page=5".into()));
    add("get_notifications", "", all, &[], get("/api/auth/me/notifications".into()));
    add("list_devices", "", all, &[], get("/api/auth/devices".into()));
    add("get_device", "missing", all, &[404], get("/api/auth/devices/growth-device".into()));
    add("list_sessions", "", all, &[], get("/api/auth/sessions".into()));
    add("get_coins", "busiest", all, &[], get("/api/auth/coins?per_page=100".into()));
    add(
        "get_coins",
        "busiest, last page",
        all,
        &[],
        get(format!("/api/auth/coins?per_page=100&cursor={}", cursor(60))),
    );
    add(
        "check_username",
        "taken",
        all,
        &[],
        Box::new(move |number| Request {
            method: "POST",
            path: "/api/auth/username/check".into(),
            body: json!({"username": format!("fan{}", number + 1)}).to_string(),
            caller: Caller::User(BUSIEST),
            code_from: None,
        }),
    );
    add(
        "generate_usernames",
        "",
        all,
        &[],
        each("POST", "/api/auth/username/generate".into(), json!({"base": "fan{n}"})),
    );
    add(
        "list_rooms",
        "last page",
        all,
        &[],
        get(format!("/api/auth/chat-rooms?per_page=100&page={}", last(size.rooms / 2))),
    );
    add("list_rooms", "common search", all, &[], get("/api/auth/chat-rooms?search=room&per_page=100".into()));
    add("list_rooms", "joined", all, &[], get("/api/auth/chat-rooms?joined=true&per_page=100".into()));
    add("get_member_stats", "", all, &[], get(format!("/api/auth/chat-rooms/{room}/member-stats")));
    add("list_moderators", "", all, &[], get(format!("/api/auth/chat-rooms/{room}/moderators")));
    add("list_own_reports", "", all, &[], get("/api/auth/reports?per_page=100".into()));
    add("list_sms_log", "one phone", all, &[200, 404], get("/api/logs/sms?phone=%2B12012000100".into()));
    add(
        "list_sms_log",
        "last page",
        all,
        &[200, 404],
        get(format!("/api/logs/sms?per_page=100&page={}", last(size.accounts / 5))),
    );
    // Backends.
    add("server:get_key", "", all, &[], backend("GET", "/api/server/v1/key".into(), Value::Null));
    add("server:get_user", "", all, &[], backend("GET", "/api/server/v1/users/1".into(), Value::Null));
    add(
        "server:look_up_user",
        "",
        all,
        &[],
        backend("POST", "/api/server/v1/users/lookup".into(), json!({"phone": phone(100)})),
    );
    add(
        "server:get_coins",
        "busiest",
        all,
        &[],
        backend("GET", "/api/server/v1/users/1/coins?per_page=100".into(), Value::Null),
    );
    add(
        "server:list_rooms",
        "last page",
        all,
        &[],
        backend("GET", format!("/api/server/v1/rooms?per_page=100&page={}", last(size.past_matches / 10)), Value::Null),
    );
    add("server:get_room", "", all, &[], backend("GET", format!("/api/server/v1/rooms/{room}"), Value::Null));
    add("server:list_webhooks", "", all, &[], backend("GET", "/api/server/v1/webhooks".into(), Value::Null));
    add("server:list_facts", "", all, &[], backend("GET", "/api/server/v1/facts?per_page=100".into(), Value::Null));
    // Writes.
    add(
        "save_prediction",
        "match with the most",
        all,
        &[],
        each("POST", "/api/auth/predictions".into(), json!({"event_id": open, "prediction": "home", "confidence": 60})),
    );
    add("answer_question", "", all, &[], each("PUT", "/api/auth/questions/1/answer".into(), json!({"answer": 3})));
    // An earlier run on the same day may have claimed them, and left the league.
    add("claim_daily_coins", "", all, &[200, 201, 400, 409], each("POST", "/api/auth/daily-coins".into(), Value::Null));
    add(
        "deduct_coins",
        "",
        all,
        &[],
        each(
            "POST",
            "/api/auth/coins/deduct".into(),
            json!({"amount": 1, "reason": "quiz", "reference_id": "growth-{n}"}),
        ),
    );
    add(
        "update_user_info",
        "",
        all,
        &[],
        each("POST", "/api/auth/update-user-info".into(), json!({"name": "Fan {n}"})),
    );
    add("change_privacy", "", all, &[], each("PUT", "/api/auth/me/privacy".into(), json!({"name": "everyone"})));
    add("save_primary_team", "", all, &[], each("POST", "/api/auth/teams/primary".into(), json!({"team_id": 5})));
    add("save_other_teams", "", all, &[], each("POST", "/api/auth/teams/other".into(), json!({"team_ids": [6, 7]})));
    add("follow_user", "most followed", all, &[], each("PUT", "/api/auth/follows/1".into(), Value::Null));
    add("unfollow_user", "most followed", all, &[], each("DELETE", "/api/auth/follows/1".into(), Value::Null));
    add("block_user", "most followed", all, &[], each("POST", "/api/auth/blocks/1".into(), Value::Null));
    add("unblock_user", "most followed", all, &[], each("DELETE", "/api/auth/blocks/1".into(), Value::Null));
    add(
        "save_notifications",
        "",
        all,
        &[],
        each("PUT", "/api/auth/me/notifications".into(), json!({"reminders": true})),
    );
    add(
        "create_league",
        "",
        all,
        &[],
        each("POST", "/api/auth/leagues".into(), json!({"name": "League of {n}", "tournament_ids": [season]})),
    );
    add(
        "change_league",
        "largest",
        all,
        &[],
        Box::new(move |number| Request {
            method: "PATCH",
            path: format!("/api/auth/leagues/{league}"),
            body: json!({"name": format!("Everyone {number}"), "max_members": 1_000_000}).to_string(),
            caller: Caller::User(BUSIEST),
            code_from: None,
        }),
    );
    add(
        "leave_league",
        "largest",
        all,
        &[200, 204, 403],
        each("POST", format!("/api/auth/leagues/{league}/leave"), Value::Null),
    );
    // Logins, and ends of sessions.
    add("get_health", "", all, &[], get("/healthz".into()));
    add("get_readiness", "", all, &[], get("/readyz".into()));
    add("request_code", "", all, &[], with_code("/api/code/request", None));
    add("resend_code", "", all, &[], with_code("/api/auth/resend-code", None));
    add("verify_code", "", all, &[], with_code("/api/code/verify", Some("/api/code/request")));
    add("log_in", "", all, &[], with_code("/api/auth/login", Some("/api/code/request")));
    let own_phone = |method: &'static str,
                     path: &'static str,
                     from: Option<&'static str>,
                     leaver: Option<u64>|
     -> Box<dyn Fn(u64) -> Request + Send + Sync> {
        let of = move |number: u64| leaver.map_or_else(|| caller(number), |offset| first + number + offset);
        Box::new(move |number| {
            let phone = phone(of(number));
            Request {
                method,
                path: path.to_owned(),
                body: if from.is_some() { json!({"phone": phone, "code": "{code}"}) } else { json!({"phone": phone}) }
                    .to_string(),
                caller: Caller::User(of(number)),
                code_from: from.map(|from| (from, phone)),
            }
        })
    };
    add("initiate_verification", "", all, &[], own_phone("POST", "/api/auth/verify-phone/initiate", None, None));
    add(
        "verify_phone",
        "",
        all,
        &[],
        own_phone("POST", "/api/auth/verify-phone", Some("/api/auth/verify-phone/initiate"), None),
    );
    // A user may export a few times an hour: the first call is of another one.
    add(
        "export_me",
        "busiest",
        2,
        &[],
        Box::new(|number| Request {
            method: "GET",
            path: "/api/auth/me/export".into(),
            body: String::new(),
            caller: Caller::User(if number == 0 { 2 } else { BUSIEST }),
            code_from: None,
        }),
    );
    add(
        "save_device",
        "",
        all,
        &[],
        each("PUT", "/api/auth/devices/growth-{user}".into(), json!({"platform": "fcm", "token": "token-{user}"})),
    );
    add("remove_device", "", all, &[], each("DELETE", "/api/auth/devices/growth-{user}".into(), Value::Null));
    add(
        "remove_push_subscription",
        "missing",
        all,
        &[404],
        each("DELETE", "/api/auth/me/notifications/push/999999".into(), Value::Null),
    );
    add("end_session", "missing", all, &[404], each("DELETE", "/api/auth/sessions/999999999".into(), Value::Null));
    // Owners and members of leagues.
    add(
        "join_league",
        "largest",
        all,
        &[],
        each("POST", "/api/auth/leagues/join".into(), json!({"league_id": league})),
    );
    let owner = |method: &'static str, path: String, body: Value| -> Box<dyn Fn(u64) -> Request + Send + Sync> {
        Box::new(move |number| Request {
            method,
            path: path.replace("{member}", &(first + number + 300).to_string()),
            body: if body.is_null() { String::new() } else { body.to_string() },
            caller: Caller::User(BUSIEST),
            code_from: None,
        })
    };
    add(
        "remove_member",
        "largest",
        all,
        &[],
        owner("DELETE", format!("/api/auth/leagues/{league}/members/{{member}}"), Value::Null),
    );
    add("rotate_code", "largest", all, &[], owner("POST", format!("/api/auth/leagues/{league}/code"), Value::Null));
    add(
        "hand_over",
        "largest",
        all,
        &[],
        Box::new(move |number| Request {
            method: "POST",
            path: format!("/api/auth/leagues/{league}/owner"),
            body: json!({"user_id": if number % 2 == 0 { 2 } else { BUSIEST }}).to_string(),
            caller: Caller::User(if number % 2 == 0 { BUSIEST } else { 2 }),
            code_from: None,
        }),
    );
    // Writes of backends.
    let reason = || json!({"reason": "growth"});
    add(
        "server:restrict_user",
        "mute",
        all,
        &[],
        backend("PUT", "/api/server/v1/users/{user}/restrictions/mute".into(), reason()),
    );
    add(
        "server:lift_restriction",
        "mute",
        all,
        &[],
        backend("DELETE", "/api/server/v1/users/{user}/restrictions/mute".into(), reason()),
    );
    add(
        "server:grant_coins",
        "",
        all,
        &[],
        backend(
            "POST",
            "/api/server/v1/users/{user}/coins/grant".into(),
            json!({"amount": 5, "reason": "growth", "reference_id": "grant-{n}"}),
        ),
    );
    add(
        "server:deduct_coins",
        "",
        all,
        &[],
        backend(
            "POST",
            "/api/server/v1/users/{user}/coins/deduct".into(),
            json!({"amount": 1, "reason": "growth", "reference_id": "deduct-{n}"}),
        ),
    );
    add(
        "server:reverse_transaction",
        "missing",
        all,
        &[404],
        backend(
            "POST",
            "/api/server/v1/users/1/coins/reverse".into(),
            json!({"transaction_id": "txn_00000000-0000-7000-8000-000000000000", "reason": "growth"}),
        ),
    );
    add(
        "server:import_fixtures",
        "one match",
        all,
        &[],
        backend(
            "POST",
            "/api/server/v1/catalogue/import".into(),
            json!({
                "sport": {"slug": "football", "name": "Football"}, "tournament": {"slug": "growth", "name": "Growth"},
                "teams": [{"slug": "growth_a", "name": "A"}, {"slug": "growth_b", "name": "B"}],
                "matches": [{"key": "m{n}", "home": "growth_a", "away": "growth_b", "start_time": "2040-04-24T18:00:00Z",
                             "venue": "Park", "status": "scheduled", "home_score": null, "away_score": null}],
            }),
        ),
    );
    add(
        "server:set_result",
        "match with the most",
        all,
        &[],
        Box::new(move |number| Request {
            method: "PUT",
            path: format!("/api/server/v1/events/{live}/result"),
            body: json!({"status": "live", "home_score": number % 50, "away_score": number / 50}).to_string(),
            caller: Caller::Backend,
            code_from: None,
        }),
    );
    add(
        "server:add_webhook",
        "",
        20,
        &[],
        backend(
            "POST",
            "/api/server/v1/webhooks".into(),
            json!({"url": "https://hooks.example.org/growth-{n}", "secret": "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3"}),
        ),
    );
    add(
        "server:remove_webhook",
        "missing",
        all,
        &[404],
        backend("DELETE", "/api/server/v1/webhooks/999999".into(), Value::Null),
    );
    add(
        "server:remove_member",
        "largest",
        all,
        &[],
        Box::new(move |number| Request {
            method: "DELETE",
            path: format!("/api/server/v1/leagues/{league}/members/{}", first + number + 400),
            body: reason().to_string(),
            caller: Caller::Backend,
            code_from: None,
        }),
    );
    add(
        "server:end_sessions",
        "",
        200,
        &[],
        Box::new(move |number| Request {
            method: "DELETE",
            path: format!("/api/server/v1/users/{}/sessions", first + number),
            body: reason().to_string(),
            caller: Caller::Backend,
            code_from: None,
        }),
    );
    add(
        "log_out",
        "",
        200,
        &[],
        Box::new(move |number| Request {
            method: "POST",
            path: "/api/auth/logout".into(),
            body: String::new(),
            caller: Caller::User(first + number + 100),
            code_from: None,
        }),
    );
    add("request_deletion", "", 100, &[], own_phone("POST", "/api/auth/me/deletion", None, Some(200)));
    add("delete_me", "", 200, &[], own_phone("DELETE", "/api/auth/me", Some("/api/auth/me/deletion"), Some(500)));
    cases
}
