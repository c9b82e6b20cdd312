//! Logs in many fans with codes from the message log.

use anyhow::{Context as _, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};

use super::{agent::encoded, plan::Phones};

/// Log-ins at a time: a homeserver manages about fifty a second.
const CONCURRENT: usize = 8;

/// Session tokens of this many fans.
pub(crate) async fn all(url: &str, phones: &Phones, fans: u64, spread_addresses: bool) -> anyhow::Result<Vec<String>> {
    let web = reqwest::Client::new();
    let base = url.trim_end_matches('/');
    let one = |fan: u64| {
        let address = spread_addresses.then(|| format!("198.18.{}.{}", fan / 250 % 250, fan % 250 + 1));
        log_in(&web, base, phones.phone(fan), address)
    };
    stream::iter((0..fans).map(one)).buffered(CONCURRENT).try_collect().await
}

async fn log_in(web: &reqwest::Client, base: &str, phone: String, address: Option<String>) -> anyhow::Result<String> {
    let from = |request: reqwest::RequestBuilder| match &address {
        Some(address) => request.header("x-forwarded-for", address),
        None => request,
    };
    read(from(web.post(format!("{base}/api/code/request"))).json(&json!({"phone": phone}))).await?;
    let log = read(web.get(format!("{base}/api/logs/sms?phone={}", encoded(&phone)))).await;
    let log = log.context("the message log, which does not exist in production: use --tokens")?;
    let code = log.pointer("/data/0/code").and_then(Value::as_str).with_context(|| format!("no code in {log}"))?;
    let verify = web.post(format!("{base}/api/code/verify")).json(&json!({"phone": phone, "code": code}));
    let session = read(from(verify)).await?;
    let token = session.pointer("/data/token").and_then(Value::as_str).context("a token")?;
    Ok(token.to_owned())
}

async fn read(request: reqwest::RequestBuilder) -> anyhow::Result<Value> {
    let response = request.send().await?;
    let (status, url) = (response.status(), response.url().path().to_owned());
    let text = response.text().await?;
    ensure!(status == 200, "{url}: {status} {text}");
    Ok(serde_json::from_str(&text)?)
}
