//! Two simulated matches, during which the service, NATS and the homeserver are killed once each.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader},
    process::{Child, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use matchday::testing::with_database;
use serde_json::Value;

use crate::{
    dependencies::nats::Nats,
    stage::{
        client::{Client, Homeserver, Person, shows, within},
        process::{Process, Setting},
        proof::held,
        synapse::{Synapse, free_ports, with_synapse},
    },
};

/// Number of live stream listeners.
const LISTENERS: usize = 5;

/// A running `matchday simulate`, and its output so far.
struct Simulation {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Simulation {
    fn start(setting: &Setting) -> Self {
        let mut command = setting.command(&["simulate", "--speed", "90", "--matches", "2", "--seed", "7"]);
        let mut child = command.stderr(Stdio::null()).spawn().expect("the binary starts");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (kept, said) = (Arc::clone(&lines), child.stdout.take().expect("standard output"));
        std::thread::spawn(move || {
            for line in BufReader::new(said).lines().map_while(Result::ok) {
                kept.lock().expect("not poisoned").push(line);
            }
        });
        Self { child, lines }
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().expect("not poisoned").clone()
    }

    /// Number of goals written so far.
    fn goals(&self) -> usize {
        self.lines().iter().filter(|line| line.contains("goal: ")).count()
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Simulated incidents as (kind, score) by teams, parsed from the simulation's output.
fn played(lines: &[String]) -> BTreeMap<String, Vec<(String, String)>> {
    let mut matches: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for line in lines {
        let Some((_, incident)) = line.split_once("'  ") else { continue };
        let (what, score) = incident.split_once(": ").expect("a kind and a score");
        if what != "kick-off" {
            matches.entry(teams(score)).or_default().push((what.to_owned(), score.to_owned()));
        }
    }
    matches
}

/// Teams in a score like `Old Quay 0 – 1 Harbour United`.
fn teams(score: &str) -> String {
    score.chars().filter(|c| !c.is_ascii_digit()).collect::<String>().replace("  ", " ").replace(" –  ", " – ")
}

/// Listens to the live stream, and resumes with `Last-Event-ID` whenever the connection is lost.
async fn listen(base: String, token: String, received: Arc<Mutex<BTreeMap<String, Value>>>, back: Arc<Mutex<u32>>) {
    let web = reqwest::Client::new();
    let mut last: Option<String> = None;
    loop {
        let mut request = web.get(format!("{base}/api/auth/stream")).bearer_auth(&token);
        if let Some(last) = &last {
            request = request.header("last-event-id", last);
        }
        let mut text = String::new();
        if let Ok(mut answer) = request.send().await
            && answer.status() == 200
        {
            *back.lock().expect("not poisoned") += 1;
            while let Ok(Some(words)) = answer.chunk().await {
                text.push_str(&String::from_utf8_lossy(&words));
                while let Some(end) = text.find("\n\n") {
                    let block: String = text.drain(..end + 2).collect();
                    let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
                    assert_ne!(field("event: ").as_deref(), Some("reset"), "an event was missed");
                    if let (Some("event"), Some(data)) = (field("event: ").as_deref(), field("data: ")) {
                        let data = serde_json::from_str(&data).expect("JSON");
                        received.lock().expect("not poisoned").insert(field("id: ").expect("an id"), data);
                    }
                    last = field("id: ").or(last);
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// An app backend that receives webhooks and stores them with their ids.
#[derive(Clone, Default)]
struct Backend {
    taken: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Backend {
    /// Starts to accept webhooks; returns the URL of the endpoint.
    async fn start(&self) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let taken = Arc::clone(&self.taken);
        let take = move |headers: http::HeaderMap, body: String| {
            let id = headers["webhook-id"].to_str().expect("an id").to_owned();
            let message = serde_json::from_str(&body).expect("JSON");
            taken.lock().expect("not poisoned").push((id, message));
            std::future::ready(())
        };
        let router = axum::Router::new().route("/hook", axum::routing::post(take));
        tokio::spawn(async move { axum::serve(listener, router).await });
        format!("http://{address}/hook")
    }

    /// Webhook ids of each result, by match and revision.
    fn results(&self) -> BTreeMap<(i64, i64), Vec<String>> {
        let mut results: BTreeMap<(i64, i64), Vec<String>> = BTreeMap::new();
        for (id, message) in self.taken.lock().expect("not poisoned").iter() {
            if message["type"] == "event.result" {
                let number = |name: &str| message["data"][name].as_i64().expect("a number");
                results.entry((number("event_id"), number("result_revision"))).or_default().push(id.clone());
            }
        }
        results
    }

    fn kinds(&self, kind: &str) -> usize {
        self.taken.lock().expect("not poisoned").iter().filter(|(_, message)| message["type"] == kind).count()
    }
}

/// Incidents that a listener received, in the simulation's terms.
fn received_incidents(received: &BTreeMap<String, Value>) -> BTreeMap<String, Vec<(String, String)>> {
    let mut in_order: Vec<_> = received.iter().collect();
    in_order.sort_by_key(|(id, _)| id.split('-').next_back().and_then(|number| number.parse::<u64>().ok()));
    let mut matches: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    let mut goals: BTreeMap<String, i64> = BTreeMap::new();
    for (_, data) in in_order {
        let (home, away) = (&data["home_team"]["name"], &data["away_team"]["name"]);
        let (home, away) = (home.as_str().expect("a name"), away.as_str().expect("a name"));
        let (home_score, away_score) = (data["home_score"].as_i64(), data["away_score"].as_i64());
        let Some((home_score, away_score)) = home_score.zip(away_score) else { continue };
        let score = format!("{home} {home_score} – {away_score} {away}");
        let changed: Vec<&str> = data["changed"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
        let before = goals.insert(teams(&score), home_score + away_score);
        let what = match (data["status"].as_str().expect("a status"), changed.contains(&"status")) {
            ("live", true) => continue,
            ("finished", true) => "full time",
            ("finished", false) => "corrected",
            _ if before.is_some_and(|before| before > home_score + away_score) => "disallowed",
            _ => "goal",
        };
        matches.entry(teams(&score)).or_default().push((what.to_owned(), score));
    }
    matches
}

/// Incidents that the bot announced in a room, in the simulation's terms.
async fn announced(homeserver: &Homeserver, person: &Person, room: &str) -> Vec<(String, String)> {
    let path = format!("/_matrix/client/v3/rooms/{room}/messages?dir=b&limit=500");
    let (status, page) = homeserver.get(&path, person.chat_token()).await;
    assert_eq!(status, 200, "{page}");
    let events = page["chunk"].as_array().expect("a list").iter().rev();
    let notices = events.filter(|event| event["content"]["msgtype"] == "m.notice");
    notices
        .filter_map(|event| {
            let (kind, body) = (&event["content"]["app.matchday.announcement"]["kind"], &event["content"]["body"]);
            let what = match kind.as_str().expect("a kind") {
                "goal" => "goal",
                "goal_taken_back" => "disallowed",
                "full_time" => "full time",
                "corrected" => "corrected",
                _ => return None,
            };
            let body = body.as_str().expect("a text");
            let score = body.trim_start_matches("Full time: ").trim_start_matches("Corrected result: ");
            let score = score.split_once("! ").map_or(score, |(_, score)| score);
            let score = score.split_once("disallowed. ").map_or(score, |(_, score)| score);
            let score = score.split_once(" (previously").map_or(score, |(score, _)| score);
            Some((what.to_owned(), score.to_owned()))
        })
        .collect()
}

/// Kills each process once, with a goal before, during and after its downtime; returns the downtimes.
async fn kill_each(
    simulation: &Simulation,
    setting: &Setting,
    (service, nats, synapse): (&mut Process, &mut Nats, &mut Synapse),
) -> [Duration; 3] {
    let goals = async |number: usize| {
        within(Duration::from_mins(1), "goals are scored", async || simulation.goals() >= number).await;
    };
    goals(1).await;
    service.kill();
    let killed = Instant::now();
    goals(2).await;
    *service = setting.start(&["serve"]);
    let service_away = killed.elapsed();
    goals(3).await;
    nats.kill_all();
    let killed = Instant::now();
    goals(4).await;
    nats.restart().await;
    let nats_away = killed.elapsed();
    goals(5).await;
    synapse.kill();
    let killed = Instant::now();
    goals(6).await;
    synapse.start().await;
    [service_away, nats_away, killed.elapsed()]
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly: takes two minutes"]
async fn match_day_survives_killing_each_process() {
    with_database(async |owner| {
        with_synapse(&owner, async |synapse| {
            let mut nats = Nats::alone().await;
            let [port] = free_ports();
            let address = format!("127.0.0.1:{port}");
            let setting = synapse
                .setting(&owner)
                .with("MATCHDAY_NATS__URL", &nats.url())
                .with("MATCHDAY_WEBHOOKS__KEYS", &format!("1:{}", "5e".repeat(32)))
                .with("MATCHDAY_WEBHOOKS__PAUSES", "1s,1s,1s,1s,1s,1s,1s,1s")
                .with("MATCHDAY_HTTP__LISTEN", &address);
            setting.expect(&["demo"], "");
            let backend = Backend::default();
            setting.expect(&["webhooks", "add", &backend.start().await], "");
            let mut service = setting.start(&["serve"]);
            let fan = Client::new(&service).log_in("+15550100100", None).await;
            let listeners: Vec<_> = (0..LISTENERS)
                .map(|_| {
                    let (received, back) = (Arc::<Mutex<BTreeMap<String, Value>>>::default(), Arc::<Mutex<u32>>::default());
                    let base = format!("http://{address}");
                    tokio::spawn(listen(base, fan.token.clone(), Arc::clone(&received), Arc::clone(&back)));
                    (received, back)
                })
                .collect();
            within(Duration::from_secs(20), "all listeners are connected", async || {
                listeners.iter().all(|(_, back)| *back.lock().expect("not poisoned") > 0)
            })
            .await;

            let mut simulation = Simulation::start(&setting);
            let downtimes = kill_each(&simulation, &setting, (&mut service, &mut nats, synapse)).await;
            within(Duration::from_mins(2), "the matches are finished", async || {
                simulation.lines().iter().any(|line| line.starts_with("played"))
            })
            .await;
            assert!(simulation.child.wait().expect("an exit status").success());
            let expected = played(&simulation.lines());
            assert_eq!(expected.len(), 2, "{expected:?}");

            for (number, (received, _)) in listeners.iter().enumerate() {
                within(Duration::from_secs(30), "every listener received every event", async || {
                    received_incidents(&received.lock().expect("not poisoned")) == expected
                })
                .await;
                assert_eq!(received_incidents(&received.lock().expect("not poisoned")), expected, "listener {number}");
            }
            let homeserver = Homeserver::at(&synapse.url);
            let events = Client::new(&service).get("/api/auth/events?per_page=100", &fan.token).await.expect(200);
            let mut rooms = 0;
            for event in events["data"].as_array().expect("a list") {
                let name = |team: &str| event[team]["name"].as_str().expect("a name");
                let Some(played) = expected.get(&teams(&format!("{} 0 – 0 {}", name("home_team"), name("away_team"))))
                else {
                    continue;
                };
                let room = event["chat_room_id"].as_str().expect("a room");
                // The demo starts with a live match in which a goal was already scored.
                let announcements = async || {
                    let mut all = announced(&homeserver, &fan, room).await;
                    all.retain(|(_, score)| score != "Mill Lane 1 – 0 Northgate Rovers");
                    all
                };
                shows(Duration::from_mins(1), "the room has each announcement once", played, announcements).await;
                rooms += 1;
            }
            assert_eq!(rooms, 2);
            let results: usize =
                expected.values().flatten().filter(|(what, _)| what == "full time" || what == "corrected").count();
            within(Duration::from_mins(1), "the backend received every result and score update", async || {
                backend.results().len() >= results && backend.kinds("scores.updated") >= results
            })
            .await;
            for (result, mut ids) in backend.results() {
                ids.dedup();
                assert_eq!(ids.len(), 1, "every delivery of a result has the same id: {result:?}");
            }
            let hooks = backend.taken.lock().expect("not poisoned").len();
            let incidents: usize = expected.values().map(Vec::len).sum();
            let back: Vec<u32> = listeners.iter().map(|(_, back)| *back.lock().expect("not poisoned")).collect();
            held("Service, NATS and homeserver killed (-9) one after another while two matches are played",
                &format!(
                    "down for {downtimes:.1?}; {incidents} goals and status changes were written, and each was announced once in its \
                     room; {LISTENERS} listeners, which connected {back:?} times, missed none; {hooks} webhook deliveries \
                     were accepted, each result under one id"
                ),
            );
        })
        .await;
    })
    .await;
}
