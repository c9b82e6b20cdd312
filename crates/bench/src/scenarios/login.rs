//! First logins with chat credentials, compared with the two homeserver calls that they need.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};

use super::{OPEN, prepare, quantiles};
use crate::{
    environment::{
        Stage,
        service::{Service, Setting},
        synapse::Synapse,
    },
    load::Latency,
    outcome::{Goal, Latencies, Outcome},
};

const LOGINS: u32 = 150;
const CLIENTS: usize = 4;

pub(super) async fn run(stage: &Stage) -> anyhow::Result<Vec<Outcome>> {
    let name = "bench_login";
    stage.say("starting a homeserver");
    let synapse = Synapse::start(stage).await?;
    let homeserver = synapse.url.clone();
    let as_token = stage.variables.get("MATCHDAY_MATRIX__AS_TOKEN").context("MATCHDAY_MATRIX__AS_TOKEN: run dev/up")?;
    let setting = Setting::on(name).with("MATCHDAY_MATRIX__HOMESERVER_URL", &homeserver);
    prepare(stage, &setting, name, &[OPEN]).await?;
    let service = stage.serve(&setting, &["--no-workers"]).await?;
    let web = reqwest::Client::new();
    let numbers = AtomicU64::new(0);
    let (mut of_ours, mut of_bare) = (Latency::default(), Latency::default());
    let mut groups = stage.groups(&service);
    groups.push(synapse.group());
    let mut sent = Vec::new();
    for round in 0..stage.rounds {
        stage.say(format!("requesting codes for round {}", round + 1));
        sent.push(codes_for(&web, &service, u32::try_from(round)?).await?);
    }
    let (web, homeserver, numbers) = (&web, &homeserver, &numbers);
    let (rounds, cores) = stage
        .alternate(
            &groups,
            async |round| {
                let logins = sent[round].iter().map(|(phone, code)| log_in(web, &service, phone, code));
                many(logins, &mut of_ours).await
            },
            async |_| {
                let logins = (0..LOGINS).map(|_| async move {
                    let name = format!("bench_{}", numbers.fetch_add(1, Relaxed));
                    bare_login(web, homeserver, as_token, &name).await
                });
                many(logins, &mut of_bare).await
            },
        )
        .await?;
    let whole = service.counted("matchday_http_seconds_sum", "code/verify").await?;
    let chat = service.counted("matchday_chat_login_seconds_sum", "").await?;
    ensure!(whole > chat && chat > 0.0, "{whole} s for logins, {chat} s of them for chat");
    let own = 100.0 * (whole - chat) / whole;
    let outcome = Outcome::of("login", rounds);
    drop((service, synapse));
    stage.postgres.forget("bench_synapse").await?;
    stage.postgres.forget(name).await?;
    Ok(vec![Outcome {
        what: format!("First logins with chat credentials, {CLIENTS} concurrent"),
        beside: "register and log in on the same Synapse".to_owned(),
        goal: Some(Goal::AtLeast(0.8)),
        limit: format!("the service accounts for {own:.1} % of a login's time; {cores}"),
        latency: Some(Latencies { rate: outcome.ours, ours: quantiles(&of_ours), bare: Some(quantiles(&of_bare)) }),
        ..outcome
    }])
}

/// Runs the logins, `CLIENTS` at a time; returns the number of logins per second.
async fn many(
    logins: impl Iterator<Item = impl Future<Output = anyhow::Result<Duration>>>,
    latency: &mut Latency,
) -> anyhow::Result<f64> {
    let began = Instant::now();
    let times: Vec<Duration> = stream::iter(logins).buffer_unordered(CLIENTS).try_collect().await?;
    let took = began.elapsed().as_secs_f64();
    for time in &times {
        latency.record(*time);
    }
    Ok(f64::from(u32::try_from(times.len())?) / took)
}

/// Phones of a round, each with a login code.
async fn codes_for(web: &reqwest::Client, service: &Service, round: u32) -> anyhow::Result<Vec<(String, String)>> {
    let base = format!("http://{}", service.public);
    let mut codes = Vec::new();
    for number in 0..LOGINS {
        let phone = format!("+1415{}", 2_000_000 + round * 10_000 + number);
        let requested = web.post(format!("{base}/api/code/request")).json(&json!({"phone": phone})).send().await?;
        ensure!(requested.status() == 200, "a code: {}", requested.text().await?);
        let log: Value =
            web.get(format!("{base}/api/logs/sms?phone={}", phone.replace('+', "%2B"))).send().await?.json().await?;
        let code = log.pointer("/data/0/code").and_then(Value::as_str).with_context(|| format!("no code in {log}"))?;
        codes.push((phone, code.to_owned()));
    }
    Ok(codes)
}

async fn log_in(web: &reqwest::Client, service: &Service, phone: &str, code: &str) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let url = format!("http://{}/api/code/verify", service.public);
    let answer = web.post(url).json(&json!({"phone": phone, "code": code})).send().await?;
    let answer: Value = answer.json().await?;
    let took = began.elapsed();
    ensure!(answer.pointer("/data/matrix_credentials/access_token").is_some(), "no credentials: {answer}");
    Ok(took)
}

async fn bare_login(web: &reqwest::Client, homeserver: &str, as_token: &str, name: &str) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let register = json!({"type": "m.login.application_service", "username": name, "inhibit_login": true});
    let login = json!({"type": "m.login.application_service", "identifier": {"type": "m.id.user", "user": name}});
    for (path, body) in [("register", register), ("login", login)] {
        let url = format!("{homeserver}/_matrix/client/v3/{path}");
        let answer = web.post(url).bearer_auth(as_token).json(&body).send().await?;
        ensure!(answer.status() == 200, "{path}: {}", answer.text().await?);
        answer.bytes().await?;
    }
    Ok(began.elapsed())
}
