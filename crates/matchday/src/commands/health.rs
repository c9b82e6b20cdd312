//! Whether the process that runs here is well.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use matchday::config::Config;

const PATIENCE: Duration = Duration::from_secs(3);

/// Asks it on its private listener, from this machine.
pub(super) async fn health(config: &Config, ready: bool) -> anyhow::Result<()> {
    let path = if ready { "readyz" } else { "healthz" };
    let url = format!("http://{}/{path}", reachable(config.http.private_listen));
    // A proxy for the rest of the world knows nothing of this machine.
    let client = reqwest::Client::builder().timeout(PATIENCE).no_proxy().build()?;
    let answer = client.get(&url).send().await.with_context(|| format!("nobody answers at {url}"))?;
    let status = answer.status();
    ensure!(status.is_success(), "{url} answers {status}: {}", answer.text().await.unwrap_or_default());
    Ok(())
}

/// Whoever listens on every address is reached on this machine's own.
fn reachable(mut listen: SocketAddr) -> SocketAddr {
    match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => listen.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => listen.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    listen
}
