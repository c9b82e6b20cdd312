//! Searches the responses to `GET` requests for traces of users whom the caller must not see. The operations are read from the
//! description of the API, so that a new endpoint is searched too.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
};

use http::Method;
use platform::{clock::Clock as _, testing::eventually};
use serde_json::{Value, json};
use time::Duration;
use utoipa::openapi::path::Operation;

use crate::{
    identity::{accounts::restrictions::Restriction, operators::Operator},
    testing::{TestApp, TestUser},
};

/// A match this far ahead has not started by the clock of the database.
const FAR: Duration = Duration::days(365 * 75);
const PHONE: &str = "+14155550197";
/// Parts of what no response shows to other users: email address, date of birth and phone.
const SECRETS: [&str; 3] = ["trace.example", "1987-06-05", PHONE];

/// Lists of the game. They show all players except those whom the reader has blocked: a player cannot disappear from other
/// users' tables by blocking them, and a suspended player has still played.
const GAME: [&str; 6] = [
    "/api/auth/chat-rooms/{room}/member-stats",
    "/api/auth/chat-rooms/{room}/predictions",
    "/api/auth/events/{event}/predictions",
    "/api/auth/leaderboards",
    LEAGUE_TABLE,
    "/api/auth/questions/{question}/answers",
];
const LEAGUE_TABLE: &str = "/api/auth/leagues/{league}/table";
/// Endpoints that show the owner of a league.
const LEAGUES: [&str; 2] = ["/api/auth/leagues", "/api/auth/leagues/{league}"];
/// Endpoints that show only visible users.
const SOCIAL: [&str; 3] = ["/api/auth/followers", "/api/auth/follows", "/api/auth/users/{user}"];
/// Operations that are not read: the stream never ends, the log exists only in development, where it shows codes, and providers
/// call the last one.
const LEFT_OUT: [&str; 3] = ["/api/auth/stream", "/api/logs/sms", "/api/sms/{provider}/status"];

/// A user, and the texts by which a response would reveal the user.
struct Player<'a> {
    kind: &'static str,
    user: TestUser<'a>,
    username: String,
    marks: Vec<String>,
}

impl<'a> Player<'a> {
    async fn new(app: &'a TestApp, kind: &'static str, user: TestUser<'a>) -> Self {
        let (username, name) = (format!("trace_{kind}"), format!("Trace of {kind}"));
        let email = format!("{kind}@{}", SECRETS[0]);
        let info = json!({"username": username, "name": name, "email": email, "date_of_birth": SECRETS[1]});
        user.post("/api/auth/update-user-info", info).await.expect(200);
        let avatar = format!("{kind:x<32}");
        sqlx::query("update users set avatar_key = $2 where user_id = $1")
            .bind(user.id)
            .bind(&avatar)
            .execute(&app.app.core.db)
            .await
            .expect("an avatar");
        Self { kind, user, marks: vec![username.clone(), name, avatar], username }
    }
}

/// Ids for the parameters of paths.
struct Places {
    event: i64,
    tournament: i64,
    league: Value,
    question: i64,
}

impl Places {
    async fn new(app: &TestApp, owner: &TestUser<'_>) -> Self {
        let fixtures = app.fixtures();
        let question = json!({"key": "q", "kind": "number", "text": "How many?", "points": 10, "locks_at": "2099-01-01T00:00:00Z"});
        let a_match = fixtures.a_match("m").starting_in(FAR).with(json!({"round": 1})).json();
        let event = fixtures.import_with(json!({"questions": [question]}), &[a_match]).await[0];
        let read = async |query: &'static str| {
            sqlx::query_scalar::<_, i64>(query).fetch_one(&app.app.core.db).await.expect("an id")
        };
        let (tournament, question) =
            (read("select tournament_id from events").await, read("select id from questions").await);
        let league = json!({"name": "Friends", "tournament_ids": [tournament]});
        let league = owner.post("/api/auth/leagues", league).await.expect(201)["data"].take();
        let now = app.clock.now();
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!(
            "insert into rooms (matrix_id, alias, name, event_id, stand, created_at, made_until, opened_at)
               values ('!room:example.org', 'room', 'Room', {event}, 1, '{now}', '{now}', '{now}');
             insert into room_activity (room_id, last_activity, compared_at) select id, '{now}', '{now}' from rooms"
        )))
        .execute(&app.app.core.db)
        .await
        .expect("a room");
        Self { event, tournament, league, question }
    }

    /// Lets a user play: prediction, answer, leagues, room and scores.
    async fn play(&self, app: &TestApp, user: &TestUser<'_>) {
        let prediction = json!({"event_id": self.event, "prediction": "home", "confidence": 50});
        user.post("/api/auth/predictions", prediction).await.expect(201);
        let answer = json!({"answer": 3}).to_string();
        user.send(Method::PUT, &format!("/api/auth/questions/{}/answer", self.question), Some(answer))
            .await
            .expect(201);
        user.post("/api/auth/leagues/join", json!({"code": self.league["code"]})).await.expect(200);
        let own = json!({"name": "Open to all", "tournament_ids": [self.tournament], "visibility": "public"});
        user.post("/api/auth/leagues", own).await.expect(201);
        sqlx::query(
            "insert into room_members (user_id, room_id, membership, active_at, changed_at)
             select $1, id, 'join', created_at, created_at from rooms",
        )
        .bind(user.id)
        .execute(&app.app.core.db)
        .await
        .expect("a member");
        let tournament = self.tournament;
        for scope in ["all".to_owned(), format!("tournament:{tournament}"), format!("round:{tournament}:1")] {
            sqlx::query(
                "insert into user_scores (user_id, scope, points, exact, correct, settled) values ($1, $2, 10, 1, 2, 3)",
            )
            .bind(user.id)
            .bind(scope)
            .execute(&app.app.core.db)
            .await
            .expect("a score");
        }
    }

    /// All addresses of a path, with the queries that change who is listed.
    fn addresses(&self, path: &str, players: &[Player<'_>], [predictions, leagues]: &[Vec<i64>; 2]) -> Vec<String> {
        let mut addresses = vec![path.to_owned()];
        let mut fill = |parameter: &str, values: Vec<String>| {
            addresses = addresses
                .iter()
                .flat_map(|address| values.iter().map(|value| address.replace(parameter, value)))
                .collect();
        };
        if path.contains("{user}") {
            fill(
                "{user}",
                players.iter().flat_map(|player| [player.user.id.to_string(), player.username.clone()]).collect(),
            );
        }
        if path.contains("{league}") {
            fill("{league}", leagues.iter().map(ToString::to_string).collect());
        }
        if path.contains("{id}") {
            fill("{id}", predictions.iter().map(ToString::to_string).collect());
        }
        for (parameter, value) in [
            ("{event}", self.event.to_string()),
            ("{question}", self.question.to_string()),
            ("{room}", "!room:example.org".to_owned()),
            ("{device}", "device-0123".to_owned()),
            ("{file}", format!("{}.jpg", "0".repeat(32))),
            ("{sequence}", "1".to_owned()),
        ] {
            fill(parameter, vec![value]);
        }
        if path == "/api/auth/leagues" {
            return vec![path.to_owned(), format!("{path}?public=true"), format!("{path}?public=true&search=open")];
        }
        if path == "/api/auth/leaderboards" {
            let tournament = self.tournament;
            let room = "room_id=!room:example.org".to_owned();
            let queries = [String::new(), "among=following".to_owned(), format!("tournament_id={tournament}"), room]
                .into_iter()
                .chain([
                    format!("tournament_id={tournament}&round=1"),
                    format!("tournament_id={tournament}&among=following"),
                ]);
            return queries.map(|query| format!("{path}?per_page=100&{query}")).collect();
        }
        addresses.into_iter().map(|address| format!("{address}?per_page=100")).collect()
    }
}

/// Paths by which each kind of user was found in a response to the viewer.
async fn search(
    app: &TestApp,
    viewer: &TestUser<'_>,
    places: &Places,
    players: &[Player<'_>],
) -> BTreeMap<&'static str, BTreeSet<String>> {
    let ids = async |query: &'static str| -> Vec<i64> {
        sqlx::query_scalar(query).fetch_all(&app.app.core.db).await.expect("ids")
    };
    let ids = [ids("select id from predictions").await, ids("select id from leagues").await];
    let mut found: BTreeMap<_, BTreeSet<_>> = players.iter().map(|player| (player.kind, BTreeSet::new())).collect();
    let mut read = 0;
    for (path, item) in super::description().paths.paths {
        if item.get.as_ref().is_none_or(|_: &Operation| LEFT_OUT.contains(&&*path)) {
            continue;
        }
        for address in places.addresses(&path, players, &ids) {
            let answer = viewer.get(&address).await;
            // Needs a homeserver, which this test does not use.
            let is_chat = answer.status == 503 && path == "/api/auth/removed-messages";
            assert!(answer.status.as_u16() < 500 || is_chat, "{address}: {}", answer.status);
            assert!(!address.contains('{'), "unknown parameter: {address}");
            read += u32::from(answer.status == 200);
            let text = String::from_utf8_lossy(&answer.bytes);
            assert!(SECRETS.iter().all(|secret| !text.contains(secret)), "{address}: {text}");
            for player in players.iter().filter(|player| player.marks.iter().any(|mark| text.contains(mark))) {
                found.get_mut(player.kind).expect("a kind").insert(path.clone());
            }
        }
    }
    assert!(read >= 40, "only {read} responses were read");
    found
}

#[tokio::test]
async fn invisible_users_leave_no_trace_in_any_response() {
    TestApp::run(async |app| {
        let viewer = app.user().await;
        let mut players = vec![Player::new(app, "deleted", app.log_in(PHONE).await.0).await];
        for kind in ["visible", "private", "suspended", "blocked", "blocking"] {
            players.push(Player::new(app, kind, app.user().await).await);
        }
        // Settings hide the name of a user, not the username and the avatar.
        players[2].marks.retain(|mark| mark.starts_with("Trace of"));
        let places = Places::new(app, &viewer).await;
        for player in &players {
            places.play(app, &player.user).await;
            viewer.send(Method::PUT, &format!("/api/auth/follows/{}", player.user.id), None).await.expect(200);
            player.user.send(Method::PUT, &format!("/api/auth/follows/{}", viewer.id), None).await.expect(200);
        }
        let [deleted, _, private, suspended, blocked, blocking] = players.as_slice() else { panic!("six players") };
        deleted.user.send(Method::POST, "/api/auth/me/deletion", None).await.expect(200);
        let code = json!({"code": app.codes(PHONE).await.remove(0)}).to_string();
        deleted.user.send(Method::DELETE, "/api/auth/me", Some(code)).await.expect(200);
        let settings = json!({"name": "nobody", "teams": "nobody", "record": "nobody", "calibration": "nobody"});
        private.user.send(Method::PUT, "/api/auth/me/privacy", Some(settings.to_string())).await.expect(200);
        app.app
            .moderation
            .restrict(suspended.user.id, Restriction::Ban, &Operator::new("ola", "spam"))
            .await
            .expect("done");
        viewer.post(&format!("/api/auth/blocks/{}", blocked.user.id), json!({})).await.expect(200);
        blocking.user.post(&format!("/api/auth/blocks/{}", viewer.id), json!({})).await.expect(200);
        // Answers are shown once the question is locked.
        let lock = sqlx::query("update questions set locks_at = '2020-01-01'").execute(app.owner()).await;
        assert_eq!(lock.expect("locked").rows_affected(), 1);

        // Tables of small leagues are kept for a second, with the names that the members had.
        let found = Mutex::new(BTreeMap::new());
        eventually("tables of leagues are newer than the deletion", async || {
            let now = search(app, &viewer, &places, &players).await;
            let are_old = ["deleted", "private"].iter().any(|kind| now[kind].contains(LEAGUE_TABLE));
            *found.lock().expect("no panic") = now;
            !are_old
        })
        .await;
        let found = found.into_inner().expect("no panic");
        let paths = |lists: &[&[&str]]| lists.concat().into_iter().map(str::to_owned).collect::<BTreeSet<_>>();
        assert_eq!(found["visible"], paths(&[&GAME, &LEAGUES, &SOCIAL]), "the search finds users");
        assert_eq!(found["deleted"], paths(&[]));
        assert_eq!(found["private"], paths(&[]));
        assert_eq!(found["blocked"], paths(&[&["/api/auth/blocks"]]));
        for (kind, allowed) in [("suspended", paths(&[&GAME, &LEAGUES])), ("blocking", paths(&[&GAME]))] {
            assert!(found[kind].is_subset(&allowed), "{kind}: {:?}", found[kind]);
        }
        app.published().await;
    })
    .await;
}
