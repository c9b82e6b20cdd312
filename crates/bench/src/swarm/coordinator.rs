//! Runs a plan on all agents, changes the match at its moments, and merges the results.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use super::{
    plan::{Order, Phones, Plan, Reply},
    remote::{self, Handle},
    script::Course,
    tally::Tally,
};

/// Imports a fixture document. Called on a thread for blocking work.
pub(crate) type Import = Arc<dyn Fn(&str) -> anyhow::Result<()> + Send + Sync>;

/// The deployment under load, and what the fans need.
#[derive(Clone)]
pub(crate) struct Deployment {
    pub(crate) url: String,
    pub(crate) run: u64,
    pub(crate) tokens: Vec<String>,
    pub(crate) phones: Option<Phones>,
    pub(crate) event: u64,
    pub(crate) tournament: u64,
    pub(crate) rooms: Vec<String>,
    pub(crate) spread_addresses: bool,
}

/// A change of the match at a time after the start.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    pub(crate) at: Duration,
    /// Kind of the stream event that reports the change to listeners; empty if nothing changes.
    pub(crate) kind: &'static str,
    /// Fixture document with the change.
    pub(crate) document: String,
}

/// Runs the courses on all agents (without any: in this process); returns the merged counts and the duration.
pub(crate) async fn drive(
    agents: &[String],
    deployment: &Deployment,
    courses: &[Course],
    length: Duration,
    moments: &[Moment],
    import: Option<&Import>,
) -> anyhow::Result<(Tally, Duration)> {
    let mut handles = Vec::new();
    for address in agents {
        handles.push(remote::connect(address).await?);
    }
    if handles.is_empty() {
        handles.push(remote::in_process());
    }
    let number = handles.len() as u64;
    ensure!(deployment.tokens.len() >= handles.len(), "{number} agents need at least as many fans");
    for (place, handle) in (0..).zip(&mut handles) {
        // The nth agent has every nth fan.
        let own = (0..).zip(&deployment.tokens).filter(|(fan, _): &(u64, _)| fan % number == place);
        let plan = Plan {
            url: deployment.url.clone(),
            run: deployment.run,
            agent: place,
            agents: number,
            courses: courses.to_vec(),
            seconds: length.as_secs_f64(),
            tokens: own.map(|(_, token)| token.clone()).collect(),
            phones: deployment.phones.clone(),
            event: deployment.event,
            tournament: deployment.tournament,
            rooms: deployment.rooms.clone(),
            spread_addresses: deployment.spread_addresses,
        };
        order(handle, Order::Plan(Box::new(plan))).await?;
        match handle.replies.recv().await {
            Some(Reply::Ready) => {}
            Some(Reply::Refused { reason }) => bail!("{}: {reason}", handle.name),
            _ => bail!("{}: the agent disconnected", handle.name),
        }
    }
    for handle in &handles {
        order(handle, Order::Start).await?;
    }
    let began = Instant::now();
    let orders: Vec<_> = handles.iter().map(|handle| handle.orders.clone()).collect();
    let changes = async {
        for moment in moments {
            tokio::time::sleep_until((began + moment.at).into()).await;
            if !moment.kind.is_empty() {
                for agent in &orders {
                    let _ = agent.send(Order::Fact { kind: moment.kind.to_owned() }).await;
                }
            }
            if let Some(import) = import.cloned() {
                let document = moment.document.clone();
                tokio::task::spawn_blocking(move || import(&document)).await?.context("changing the match")?;
            }
        }
        anyhow::Ok(())
    };
    let results = futures_util::future::try_join_all(handles.into_iter().map(result_of));
    let ((), tallies) = tokio::try_join!(changes, results)?;
    drop(orders);
    let took = began.elapsed();
    let mut merged = Tally::default();
    for tally in &tallies {
        merged.merge(tally);
    }
    Ok((merged, took))
}

async fn order(handle: &Handle, order: Order) -> anyhow::Result<()> {
    handle.orders.send(order).await.ok().with_context(|| format!("{}: the agent disconnected", handle.name))
}

/// Waits for an agent's counts. Keeps `orders` open until then: an agent stops when its coordinator leaves.
async fn result_of(mut handle: Handle) -> anyhow::Result<Tally> {
    while let Some(reply) = handle.replies.recv().await {
        match reply {
            Reply::Done(tally) => return Ok(*tally),
            Reply::Refused { reason } => bail!("{}: {reason}", handle.name),
            Reply::Progress { ok, refused, failed } => {
                super::say(&format!("{}: {ok} succeeded, {refused} refused, {failed} failed", handle.name));
            }
            Reply::Ready => {}
        }
    }
    bail!("{}: the agent disconnected before the end", handle.name)
}

/// State of the evening's match in a fixture document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    pub(crate) status: &'static str,
    pub(crate) score: Option<(u8, u8)>,
}

pub(crate) const SCHEDULED: State = State { status: "scheduled", score: None };

/// Fixture document of a run: the final, a rehearsal for calibration, and matches that fill the lists.
pub(crate) fn document(run: u64, start: &str, the_final: State, rehearsal: State) -> String {
    let one = |key: &str, home: &str, away: &str, start: &str, state: State| {
        serde_json::json!({"key": key, "home": home, "away": away, "venue": format!("Swarm {key}"), "start_time": start,
            "status": state.status, "home_score": state.score.map(|score| score.0),
            "away_score": state.score.map(|score| score.1)})
    };
    let later = "2090-05-01T15:00:00Z";
    let mut matches = vec![
        one("final", "swarm_rovers", "swarm_city", start, the_final),
        one(
            "rehearsal",
            "swarm_city",
            "swarm_rovers",
            if rehearsal.score.is_some() { "2026-05-01T15:00:00Z" } else { later },
            rehearsal,
        ),
    ];
    matches.extend((0..18).map(|number| one(&format!("m{number}"), "swarm_rovers", "swarm_city", later, SCHEDULED)));
    serde_json::json!({
        "sport": {"slug": "football", "name": "Football"},
        "tournament": {"slug": format!("swarm_{run}"), "name": format!("Swarm Cup {run}"), "logo": null},
        "teams": [{"slug": "swarm_rovers", "name": "Swarm Rovers"}, {"slug": "swarm_city", "name": "Swarm City"}],
        "matches": matches,
    })
    .to_string()
}

/// Finds the tournament of a run, and the ids of its final and rehearsal.
pub(crate) async fn find_matches(url: &str, token: &str, run: u64) -> anyhow::Result<(u64, u64, u64)> {
    let mut page = 1;
    let tournament = loop {
        let list = get(url, token, &format!("/api/auth/tournaments?per_page=100&page={page}")).await?;
        let items = list["data"].as_array().cloned().unwrap_or_default();
        ensure!(!items.is_empty(), "the deployment has no tournament swarm_{run}: check the import command");
        if let Some(found) = items.iter().find(|item| item["slug"] == format!("swarm_{run}")) {
            break found["id"].as_u64().context("an id")?;
        }
        page += 1;
    };
    let list = get(url, token, &format!("/api/auth/events?tournament_id={tournament}&per_page=100")).await?;
    let find = |venue: &str| {
        let found = list["data"].as_array().into_iter().flatten().find(|item| item["venue"] == venue);
        found.and_then(|item| item["id"].as_u64()).with_context(|| format!("no match at {venue}"))
    };
    Ok((tournament, find("Swarm final")?, find("Swarm rehearsal")?))
}

/// Rooms of a match; none if chat is disabled.
pub(crate) async fn find_rooms(url: &str, token: &str, event: u64) -> anyhow::Result<Vec<String>> {
    let list = get(url, token, &format!("/api/auth/chat-rooms?event_id={event}")).await?;
    let rooms = list["data"].as_array().into_iter().flatten().filter(|room| room["stand"].is_number());
    Ok(rooms.filter_map(|room| Some(room["room_id"].as_str()?.to_owned())).collect())
}

/// Reads a page, which must exist.
pub(crate) async fn get(url: &str, token: &str, path: &str) -> anyhow::Result<Value> {
    let base = url.trim_end_matches('/');
    let response = reqwest::Client::new().get(format!("{base}{path}")).bearer_auth(token).send().await?;
    let status = response.status();
    let text = response.text().await?;
    ensure!(status == 200, "GET {path}: {status} {text}");
    serde_json::from_str(&text).with_context(|| format!("GET {path}: {text:.200}"))
}

/// Time of day in this many seconds, as fixture documents write it.
pub(crate) fn time_in(seconds: u64) -> anyhow::Result<String> {
    let mut date = std::process::Command::new("date");
    let printed =
        crate::environment::output(date.args(["-u", "-d", &format!("+{seconds} seconds"), "+%Y-%m-%dT%H:%M:%SZ"]))?;
    Ok(printed.trim().to_owned())
}
