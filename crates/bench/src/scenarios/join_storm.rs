//! Five hundred fans join the room of a match at once, through six processes, compared with as many joins on the same
//! homeserver without the service; and the latency of other requests meanwhile, compared with a quiet time.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, future, stream};
use serde_json::{Value, json};
use sqlx::PgPool;

use super::{OPEN, prepare, quantiles};
use crate::{
    environment::{Stage, free_port, people, service::Service, service::Setting, synapse::Synapse, until},
    load::Latency,
    outcome::{Goal, Outcome},
};

const JOINS: u64 = 500;
const PROCESSES: usize = 6;
/// Concurrent joins without the service. More do not make the homeserver faster.
const BARE_AT_ONCE: usize = 10;
/// Time after which the scenario fails if not all have joined.
const GIVEN_UP_AFTER: Duration = Duration::from_mins(10);
/// Limit for every response.
const LONGEST: Duration = Duration::from_secs(1);
/// Number of phones that requested a code.
static PHONES: AtomicU64 = AtomicU64::new(0);
/// Pause between the requests whose latency is compared.
const PAUSE: Duration = Duration::from_millis(20);

pub(super) async fn run(stage: &Stage) -> anyhow::Result<Vec<Outcome>> {
    let (name, joins) = ("bench_join_storm", stage.sized(JOINS));
    stage.say("starting a homeserver");
    let port = free_port()?;
    let synapse = Synapse::start_pushing_to(stage, Some(port)).await?;
    let setting = Setting::on(name)
        .with("MATCHDAY_MATRIX__HOMESERVER_URL", &synapse.url)
        .with("MATCHDAY_HTTP__TRUSTED_PROXIES", "127.0.0.0/8");
    let rounds = u64::try_from(stage.rounds)?;
    prepare(stage, &setting, name, &vec![OPEN; stage.rounds]).await?;
    let db = stage.postgres.pool(name).await?;
    people::make(&db, joins * rounds, joins * rounds).await?;
    sqlx::query("update users set has_chat_account = true").execute(&db).await?;
    let chat = Bare::on(stage, &synapse)?;
    stage.say(format!("registering {} chat accounts", joins * rounds));
    chat.register(joins * rounds).await?;
    let services = start(stage, &setting, port).await?;
    let rooms = opened_rooms(stage, &db).await?;

    let (mut slowest, mut refusals, mut outages, mut times) = (Vec::new(), 0, 0, Vec::new());
    let (mut quiet, mut busy, mut bare) = (Others::default(), Others::default(), Others::default());
    let mut groups = stage.groups(&services[0]);
    groups.push(synapse.group());
    let (figures, cores) = stage
        .alternate(
            &groups,
            async |round| {
                let first = u64::try_from(round)? * joins + 1;
                let calm = AtomicBool::new(false);
                let (watched, ()) = tokio::join!(watch(&services[0], &calm), async {
                    tokio::time::sleep(stage.length).await;
                    calm.store(true, Relaxed);
                });
                quiet.add(&watched?);
                let done = AtomicBool::new(false);
                let (watched, stormed) = tokio::join!(watch(&services[0], &done), async {
                    let storm = storm(&services, &rooms[round], first, joins);
                    let stormed = tokio::time::timeout(GIVEN_UP_AFTER, storm).await;
                    done.store(true, Relaxed);
                    stormed.context("not all have joined in time")?
                });
                busy.add(&watched?);
                let stormed = stormed?;
                slowest.push(stormed.slowest);
                refusals += stormed.refusals;
                outages += stormed.outages;
                times = stormed.times;
                Ok(stormed.rate)
            },
            async |round| {
                let done = AtomicBool::new(false);
                let (watched, rate) = tokio::join!(watch(&services[0], &done), async {
                    let rate = chat.join_all(u64::try_from(round)? * joins + 1, joins, round).await;
                    done.store(true, Relaxed);
                    rate
                });
                bare.add(&watched?);
                rate
            },
        )
        .await?;
    db.close().await;
    drop((services, synapse));
    stage.postgres.forget("bench_synapse").await?;
    stage.postgres.forget(name).await?;
    let in_round: Vec<String> = slowest.iter().map(|time| format!("{:.0}", time.as_secs_f64() * 1e3)).collect();
    let limit = format!(
        "the slowest responses of the rounds took {} ms, {} the limit of {:.0} ms; {refusals} joins were refused and retried, {outages} of them with `chat_unavailable`; in the last round, half had joined after {:.1} s, 90 % after {:.1} s and all \
         after {:.1} s; {cores}",
        in_round.join(", "),
        if slowest.iter().all(|time| *time <= LONGEST) { "within" } else { "over" },
        LONGEST.as_secs_f64() * 1e3,
        after(&times, 0.5),
        after(&times, 0.9),
        after(&times, 1.0),
    );
    let other = |scenario: &str, what: &str, busy: &Latency, quiet: &Latency, bare: &Latency| Outcome {
        what: format!("{what} during {joins} joins at once, p99"),
        beside: "same requests before the joins".to_owned(),
        unit: "ms".to_owned(),
        goal: Some(Goal::AtMost(2.0)),
        limit: format!(
            "{:.1} ms during the same joins without the service, whose homeserver and database share this machine",
            quantiles(bare)[1]
        ),
        ..Outcome::of(scenario, vec![[quantiles(busy)[1], quantiles(quiet)[1]]])
    };
    Ok(vec![
        Outcome {
            what: format!("Joins to the room of a match, {joins} at once, {PROCESSES} processes, retried as told"),
            beside: "joins to one room of the same Synapse".to_owned(),
            size: Some(joins),
            goal: Some(Goal::AtLeast(0.9)),
            limit,
            ..Outcome::of("join-storm", figures)
        },
        other("join-storm-events", "List of matches", &busy.events, &quiet.events, &bare.events),
        other("join-storm-codes", "Request of a code", &busy.codes, &quiet.codes, &bare.codes),
    ])
}

/// Starts the processes. The homeserver pushes to the first one, at this port.
async fn start(stage: &Stage, setting: &Setting, port: u16) -> anyhow::Result<Vec<Service>> {
    let mut services = Vec::new();
    for number in 0..PROCESSES {
        let setting = setting.clone().logging_to(&format!("service{number}.log"));
        let private = if number == 0 { port } else { 0 };
        let setting = setting.with("MATCHDAY_HTTP__PRIVATE_LISTEN", &format!("127.0.0.1:{private}"));
        services.push(stage.serve(&setting, &[]).await?);
    }
    Ok(services)
}

/// Waits until every match has a room; returns the rooms.
async fn opened_rooms(stage: &Stage, db: &PgPool) -> anyhow::Result<Vec<String>> {
    let opened = "select matrix_id from rooms where opened_at is not null order by event_id";
    until("the rooms are open", Duration::from_mins(1), async || {
        sqlx::query_scalar::<_, String>(opened).fetch_all(db).await.is_ok_and(|rooms| rooms.len() == stage.rounds)
    })
    .await?;
    Ok(sqlx::query_scalar(opened).fetch_all(db).await?)
}

/// Result of a storm.
struct Stormed {
    /// Joins per second, until the last one has succeeded.
    rate: f64,
    slowest: Duration,
    refusals: u64,
    /// Refusals with `chat_unavailable`.
    outages: u64,
    /// Times of the successful joins, in order.
    times: Vec<Duration>,
}

/// Seconds after which this share of users had joined.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "few hundred users"
)]
fn after(times: &[Duration], share: f64) -> f64 {
    let position = ((times.len() as f64 * share) as usize).clamp(1, times.len().max(1)) - 1;
    times.get(position).map_or(0.0, Duration::as_secs_f64)
}

/// All users join at once and retry after `Retry-After`. Like apps, they send an idempotency key with each join and keep it for its
/// retries, which a balancer passes to other processes.
async fn storm(services: &[Service], room: &str, first: u64, joins: u64) -> anyhow::Result<Stormed> {
    let (web, refusals, outages) = (&reqwest::Client::new(), &AtomicU64::new(0), &AtomicU64::new(0));
    let began = Instant::now();
    let joining = (first..first + joins).map(async |user| {
        let mut services = services.iter().cycle().skip(usize::try_from(user)? % services.len());
        let mut slowest = Duration::ZERO;
        loop {
            let service = services.next().context("no process")?;
            let url = format!("http://{}/api/auth/chat-rooms/{room}/join", service.public);
            let asked = Instant::now();
            let request =
                web.post(url).bearer_auth(people::token(user)).header("idempotency-key", format!("join-{room}"));
            let answer = request.json(&json!({})).send().await?;
            let status = answer.status().as_u16();
            let wait = answer.headers().get("retry-after").and_then(|wait| wait.to_str().ok()?.parse::<u64>().ok());
            let body = answer.text().await?;
            slowest = slowest.max(asked.elapsed());
            match status {
                // A join that took too long was refused, but continued.
                200 | 409 => return anyhow::Ok((slowest, began.elapsed())),
                // The second must not happen, and is reported.
                503 if body.contains("\"room_busy\"") || body.contains("\"chat_unavailable\"") => {
                    refusals.fetch_add(1, Relaxed);
                    outages.fetch_add(u64::from(body.contains("\"chat_unavailable\"")), Relaxed);
                    tokio::time::sleep(Duration::from_secs(wait.context("no Retry-After")?)).await;
                }
                _ => anyhow::bail!("{status}: {body}"),
            }
        }
    });
    let (slowest, mut times): (Vec<Duration>, Vec<Duration>) = future::try_join_all(joining).await?.into_iter().unzip();
    times.sort_unstable();
    let slowest = slowest.into_iter().max().unwrap_or_default();
    let rate = f64::from(u32::try_from(joins)?) / began.elapsed().as_secs_f64();
    Ok(Stormed { rate, slowest, refusals: refusals.load(Relaxed), outages: outages.load(Relaxed), times })
}

/// Latencies of requests that have nothing to do with chat.
#[derive(Default)]
struct Others {
    events: Latency,
    codes: Latency,
}

impl Others {
    fn add(&mut self, other: &Self) {
        self.events.add(&other.events);
        self.codes.add(&other.codes);
    }
}

/// Lists matches and requests codes until `stop` is set.
async fn watch(service: &Service, stop: &AtomicBool) -> anyhow::Result<Others> {
    let (web, mut others) = (reqwest::Client::new(), Others::default());
    let base = format!("http://{}", service.public);
    while !stop.load(Relaxed) {
        let began = Instant::now();
        let listed = web.get(format!("{base}/api/auth/events")).bearer_auth(people::token(1)).send().await?;
        ensure!(listed.status() == 200, "{}", listed.text().await?);
        listed.bytes().await?;
        others.events.record(began.elapsed());
        // Limits apply to phones and networks, so no two requests have the same.
        let number = PHONES.fetch_add(1, Relaxed);
        let body = json!({"phone": format!("+1415{}", 3_000_000 + number % 900_000)});
        let network = format!("10.{}.{}.1", number / 250 % 250, number % 250);
        let began = Instant::now();
        let requested =
            web.post(format!("{base}/api/code/request")).header("x-forwarded-for", network).json(&body).send().await?;
        ensure!(requested.status() == 200, "{}", requested.text().await?);
        requested.bytes().await?;
        others.codes.record(began.elapsed());
        tokio::time::sleep(PAUSE).await;
    }
    Ok(others)
}

/// The homeserver without the service.
pub(super) struct Bare {
    pub(super) web: reqwest::Client,
    url: String,
    as_token: String,
}

impl Bare {
    pub(super) fn on(stage: &Stage, synapse: &Synapse) -> anyhow::Result<Self> {
        let as_token = stage.variables.get("MATCHDAY_MATRIX__AS_TOKEN");
        let as_token = as_token.context("MATCHDAY_MATRIX__AS_TOKEN: run dev/up")?.clone();
        Ok(Self { web: reqwest::Client::new(), url: synapse.url.clone(), as_token })
    }

    /// Creates a public room as the bot.
    pub(super) async fn create_room(&self, alias: &str) -> anyhow::Result<String> {
        let body = json!({"preset": "public_chat", "room_version": "11", "room_alias_name": alias});
        let made = self.send(self.web.post(self.path("createRoom")).json(&body)).await?;
        Ok(made["room_id"].as_str().context("no room")?.to_owned())
    }

    async fn register(&self, users: u64) -> anyhow::Result<()> {
        let registered = (1..=users).map(async |user| {
            let body =
                json!({"type": "m.login.application_service", "username": format!("fan{user}"), "inhibit_login": true});
            self.send(self.web.post(self.path("register")).json(&body)).await
        });
        stream::iter(registered).buffer_unordered(BARE_AT_ONCE).try_collect::<Vec<_>>().await?;
        Ok(())
    }

    /// Joins users to a new room; returns joins per second.
    async fn join_all(&self, first: u64, joins: u64, round: usize) -> anyhow::Result<f64> {
        let room = self.create_room(&format!("room_bench_{round}")).await?;
        let server = room.split_once(':').context("no server name")?.1;
        let began = Instant::now();
        let joining = (first..first + joins).map(async |user| {
            let url = self.path(&format!("join/{room}?user_id=@fan{user}:{server}"));
            self.send(self.web.post(url).json(&json!({}))).await
        });
        stream::iter(joining).buffer_unordered(BARE_AT_ONCE).try_collect::<Vec<_>>().await?;
        Ok(f64::from(u32::try_from(joins)?) / began.elapsed().as_secs_f64())
    }

    pub(super) fn path(&self, path: &str) -> String {
        format!("{}/_matrix/client/v3/{path}", self.url)
    }

    pub(super) async fn send(&self, request: reqwest::RequestBuilder) -> anyhow::Result<Value> {
        let answer = request.bearer_auth(&self.as_token).send().await?;
        let (status, body) = (answer.status(), answer.text().await?);
        ensure!(status == 200, "the homeserver responded with {status}: {body}");
        Ok(serde_json::from_str(&body)?)
    }
}
