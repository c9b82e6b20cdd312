//! `matchday health`: check the process on this machine.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use matchday::config::Config;

const TIMEOUT: Duration = Duration::from_secs(3);

/// Requests the health endpoint of the private listener over loopback.
pub(super) async fn health(config: &Config, ready: bool) -> anyhow::Result<()> {
    let path = if ready { "readyz" } else { "healthz" };
    let url = format!("http://{}/{path}", reachable(config.http.private_listen));
    // A proxy configured in the environment cannot reach this machine's loopback address.
    let client = reqwest::Client::builder().timeout(TIMEOUT).no_proxy().build()?;
    let response = client.get(&url).send().await.with_context(|| format!("no response from {url}"))?;
    let status = response.status();
    ensure!(status.is_success(), "{url} responded {status}: {}", response.text().await.unwrap_or_default());
    Ok(())
}

/// Replaces an unspecified listen address (all interfaces) with the loopback address.
fn reachable(mut listen: SocketAddr) -> SocketAddr {
    match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => listen.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => listen.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    listen
}
