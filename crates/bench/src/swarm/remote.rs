//! Agents on other machines: one TCP connection per run, with a line of JSON per message.

use std::net::SocketAddr;

use anyhow::{Context as _, ensure};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use super::{
    agent,
    plan::{Order, Reply},
};

/// Both ends of the messages with one agent.
pub(crate) struct Handle {
    pub(crate) name: String,
    pub(crate) orders: mpsc::Sender<Order>,
    pub(crate) replies: mpsc::Receiver<Reply>,
}

/// An agent in this process.
pub(crate) fn in_process() -> Handle {
    let (orders, taken) = mpsc::channel(64);
    let (told, replies) = mpsc::channel(64);
    tokio::spawn(async move {
        if let Err(error) = agent::serve(taken, told.clone()).await {
            let _ = told.send(Reply::Refused { reason: format!("{error:#}") }).await;
        }
    });
    Handle { name: "this process".to_owned(), orders, replies }
}

/// Connects to an agent.
pub(crate) async fn connect(address: &str) -> anyhow::Result<Handle> {
    let stream = TcpStream::connect(address).await.with_context(|| format!("connecting to the agent {address}"))?;
    stream.set_nodelay(true)?;
    let (reading, writing) = stream.into_split();
    let (orders, taken) = mpsc::channel(64);
    let (told, replies) = mpsc::channel(64);
    tokio::spawn(write_lines(writing, taken));
    tokio::spawn(read_lines(reading, told));
    Ok(Handle { name: address.to_owned(), orders, replies })
}

/// Serves one run after another.
pub(crate) async fn listen(listener: TcpListener, allowed: Vec<String>) -> anyhow::Result<()> {
    loop {
        let (stream, coordinator) = listener.accept().await?;
        super::say(&format!("coordinator {coordinator} connected"));
        match serve(stream, &allowed).await {
            Ok(()) => super::say("run finished"),
            Err(error) => super::say(&format!("run failed: {error:#}")),
        }
    }
}

async fn serve(stream: TcpStream, allowed: &[String]) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let (reading, writing) = stream.into_split();
    let (told, mut received) = mpsc::channel(64);
    let reader = tokio::spawn(read_lines(reading, told));
    let (replies, sent) = mpsc::channel(64);
    let writer = tokio::spawn(write_lines(writing, sent));
    let (orders, taken) = mpsc::channel(64);
    let run = tokio::spawn(agent::serve(taken, replies.clone()));
    let mut refusal = None;
    // Ends when the coordinator disconnects, or refuses a plan for a deployment that is not on the list.
    while let Some(order) = received.recv().await {
        if let Order::Plan(plan) = &order
            && !allowed.is_empty()
            && !allowed.iter().any(|allowed| plan.url.trim_end_matches('/') == allowed.trim_end_matches('/'))
        {
            refusal = Some(format!("this agent does not drive {}", plan.url));
            break;
        }
        if orders.send(order).await.is_err() {
            break;
        }
    }
    drop(orders);
    let outcome = match refusal {
        Some(reason) => {
            run.abort();
            let _ = replies.send(Reply::Refused { reason: reason.clone() }).await;
            Err(anyhow::anyhow!(reason))
        }
        None => run.await?,
    };
    drop(replies);
    reader.abort();
    writer.await?;
    outcome
}

async fn write_lines<T: Serialize>(mut to: impl AsyncWrite + Unpin, mut messages: mpsc::Receiver<T>) {
    while let Some(message) = messages.recv().await {
        let Ok(mut line) = serde_json::to_vec(&message) else { return };
        line.push(b'\n');
        if to.write_all(&line).await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}

async fn read_lines<T: DeserializeOwned>(from: impl AsyncRead + Unpin, messages: mpsc::Sender<T>) {
    let mut lines = BufReader::new(from).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let Ok(message) = serde_json::from_str(&line) else { return };
        if messages.send(message).await.is_err() {
            return;
        }
    }
}

/// Checks that an agent which other machines can reach is limited to certain deployments.
pub(crate) fn check_exposure(address: SocketAddr, allowed: &[String]) -> anyhow::Result<()> {
    ensure!(
        address.ip().is_loopback() || !allowed.is_empty(),
        "an agent on {address} would send load to any URL for everyone who can connect: name the deployments with --allow"
    );
    Ok(())
}
