//! A backend runs a match through the server API, with a listener on the live stream and a real homeserver.

use std::time::Duration;

use http::Method;
use matchday::testing::with_database;
use serde_json::{Value, json};

use crate::{
    client::{Client, Homeserver, Person, shows},
    process::{Process, Setting},
    synapse::with_synapse,
};

/// Time limit until an effect reaches a listener or a room.
const SOON: Duration = Duration::from_secs(10);

/// A backend with a server key. Sends an `Idempotency-Key` with every request.
struct Backend {
    base: String,
    key: String,
    http: reqwest::Client,
}

impl Backend {
    fn new(setting: &Setting, process: &Process, scopes: &[&str]) -> Self {
        let mut command = vec!["keys", "create", "provider", "--json"];
        command.extend(scopes.iter().flat_map(|scope| ["--scope", scope]));
        let created: Value = serde_json::from_str(&setting.expect(&command, "")).expect("JSON");
        let key = created["key"].as_str().expect("a key").to_owned();
        Self { base: format!("{}/api/server/v1", process.public), key, http: reqwest::Client::new() }
    }

    async fn send(&self, method: Method, path: &str, idempotency_key: &str, body: &Value) -> Value {
        let request = self.http.request(method, format!("{}{path}", self.base)).bearer_auth(&self.key);
        let answer = request.header("idempotency-key", idempotency_key).json(body).send().await.expect("a response");
        let status = answer.status();
        let body: Value = answer.json().await.expect("JSON");
        assert_eq!(status, 200, "{body}");
        body["data"].clone()
    }
}

/// A fan's live stream.
struct Listener {
    response: reqwest::Response,
    heard: String,
}

impl Listener {
    async fn open(process: &Process, who: &Person) -> Self {
        let url = format!("{}/api/auth/stream", process.public);
        let response = reqwest::Client::new().get(url).bearer_auth(&who.token).send().await.expect("a response");
        assert_eq!(response.status(), 200);
        Self { response, heard: String::new() }
    }

    /// Returns the data of the next event of this kind, and skips other kinds.
    async fn next(&mut self, kind: &str) -> Value {
        let next = async {
            loop {
                while let Some(end) = self.heard.find("\n\n") {
                    let block: String = self.heard.drain(..end + 2).collect();
                    let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
                    if field("event: ") == Some(kind) {
                        return serde_json::from_str(field("data: ").expect("data")).expect("JSON");
                    }
                }
                let chunk = self.response.chunk().await.expect("a stream").expect("more data");
                self.heard.push_str(std::str::from_utf8(&chunk).expect("UTF-8"));
            }
        };
        tokio::time::timeout(SOON, next).await.expect("an event in time")
    }
}

fn document() -> Value {
    json!({"sport": {"slug": "football", "name": "Football"}, "tournament": {"slug": "cup", "name": "Cup"},
           "teams": [{"slug": "rovers", "name": "Rovers"}, {"slug": "city", "name": "City"}],
           "matches": [{"key": "final", "home": "rovers", "away": "city", "start_time": "2090-05-01T15:00:00Z",
                        "venue": "Park", "status": "scheduled"}]})
}

#[tokio::test]
async fn backend_drives_match_for_listener_of_another_process() {
    with_database(async |options| {
        let setting = Setting::new(&options).without("MATCHDAY_MATRIX__HOMESERVER_URL");
        let (working, other) = (setting.start(&["serve"]), setting.start(&["serve", "--no-workers"]));
        let backend = Backend::new(&setting, &working, &["catalogue:write"]);
        let report = backend.send(Method::POST, "/catalogue/import", "import", &document()).await;
        assert_eq!(report["matches"]["new"], 1, "{report}");

        let client = Client::new(&other);
        let fan = client.log_in("+14155550301", None).await;
        let listed = async || client.get("/api/auth/events", &fan.token).await.expect(200)["data"][0].clone();
        shows(SOON, "the match is listed", &json!("Rovers"), async || listed().await["home_team"]["name"].clone())
            .await;
        let event = listed().await["id"].as_i64().expect("an id");
        let prediction = json!({"event_id": event, "prediction": "home", "score_prediction": {"home": 2, "away": 1}});
        client.post("/api/auth/predictions", &fan.token, prediction).await.expect(201);
        let mut listener = Listener::open(&other, &fan).await;

        let path = format!("/events/{event}/result");
        let mut revision = 0;
        for (step, (status, home, away)) in
            [("live", 0, 0), ("live", 1, 0), ("live", 1, 1), ("live", 2, 1)].into_iter().enumerate()
        {
            let body = json!({"status": status, "home_score": home, "away_score": away});
            backend.send(Method::PUT, &path, &format!("step-{step}"), &body).await;
            let heard = listener.next("event").await;
            assert_eq!(
                (&heard["status"], &heard["home_score"], &heard["away_score"]),
                (&json!(status), &json!(home), &json!(away))
            );
        }
        // The predicted score, and a correction to another score with the same outcome.
        let mut earned = Vec::new();
        for home in [2, 3] {
            let body =
                json!({"status": "finished", "home_score": home, "away_score": 1, "expected_revision": revision});
            let changed = backend.send(Method::PUT, &path, &format!("final-{home}"), &body).await;
            let result = listener.next("result").await;
            assert_eq!((&result["home_score"], &result["corrected"]), (&json!(home), &json!(revision > 0)), "{result}");
            earned.push(listener.next("points").await["points_earned"].as_i64().expect("a number"));
            revision = changed["result_revision"].as_i64().expect("a revision");
        }
        assert!(earned[0] > earned[1] && earned[1] > 0, "{earned:?}");
        // The same result again changes nothing.
        let body = json!({"status": "finished", "home_score": 3, "away_score": 1});
        assert_eq!(backend.send(Method::PUT, &path, "again", &body).await["result_revision"], revision);
    })
    .await;
}

#[tokio::test]
async fn backend_announces_once_and_removes_messages() {
    with_database(async |options| {
        with_synapse(&options, async |synapse| {
            let setting = synapse.setting(&options);
            let process = setting.start(&["serve"]);
            let (client, chat) = (Client::new(&process), Homeserver::at(&synapse.url));
            let fan = client.log_in("+14155550302", None).await;
            let room = client.open_room(&fan, "North", false).await;
            let backend = Backend::new(&setting, &process, &["rooms:write", "moderation:write"]);

            let (path, body) = (format!("/rooms/{room}/announcements"), json!({"body": "Gates open at 18:00."}));
            let posted = backend.send(Method::POST, &path, "gates", &body).await;
            assert_eq!(
                backend.send(Method::POST, &path, "gates", &body).await,
                posted,
                "the key makes it the same announcement"
            );
            let (status, said) = chat.say(&room, fan.chat_token(), "Buy tickets at my shop").await;
            assert_eq!(status, 200, "{said}");
            let said = said["event_id"].as_str().expect("an id");
            let remove = format!("/rooms/{room}/messages/{said}");
            let removed = backend.send(Method::DELETE, &remove, "spam", &json!({"reason": "advertising"})).await;
            assert_eq!(removed["removed"], true);

            let texts = async || {
                let path = format!("/_matrix/client/v3/rooms/{room}/messages?dir=f&limit=100");
                let (status, page) = chat.get(&path, fan.chat_token()).await;
                assert_eq!(status, 200, "{page}");
                let events = page["chunk"].as_array().expect("a list").iter();
                let texts = events.filter(|event| event["type"] == "m.room.message");
                let texts = texts.map(|event| (event["event_id"].clone(), event["content"]["body"].clone()));
                texts.collect::<Vec<(Value, Value)>>()
            };
            let expected = vec![(posted["event_id"].clone(), body["body"].clone()), (json!(said), Value::Null)];
            shows(SOON, "the room has one announcement and no text of the message", &expected, texts).await;

            let audit = setting.expect(&["audit", "list", "--json"], "");
            for action in ["room.announce", "message.remove"] {
                assert_eq!(audit.matches(action).count(), 1, "{audit}");
            }
        })
        .await;
    })
    .await;
}
