//! A TCP proxy between the service and a dependency that can be slowed down or cut.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinHandle,
};

/// How the proxy treats its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    /// Forwards everything.
    Normal,
    /// Forwards everything with this delay in each direction.
    Slow(Duration),
    /// Accepts connections but forwards nothing, on existing connections too, like a cut cable.
    Silent,
    /// Closes existing connections, and new ones immediately.
    Refused,
}

#[derive(Clone, Copy)]
struct State {
    wire: Wire,
    /// The proxy forwards nothing on connections with a lower number.
    first_known: u64,
    /// Number of accepted connections.
    made: u64,
}

impl State {
    fn passes(&self, connection: u64) -> bool {
        self.wire != Wire::Silent && connection >= self.first_known
    }
}

/// Forwards connections to a port on this machine; stops on drop.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    state: watch::Sender<State>,
    task: JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let state = watch::Sender::new(State { wire: Wire::Normal, first_known: 0, made: 0 });
        let numbers = state.clone();
        let task = tokio::spawn(async move {
            while let Ok((inside, _)) = listener.accept().await {
                let mut number = 0;
                numbers.send_modify(|state| {
                    number = state.made;
                    state.made += 1;
                });
                tokio::spawn(pass(inside, port, number, numbers.subscribe()));
            }
        });
        Self { address, state, task }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Applies to existing connections as well as to new ones.
    pub(crate) fn set(&self, wire: Wire) {
        self.state.send_modify(|state| state.wire = wire);
    }

    /// Silences all existing connections permanently, while new ones work: like a machine that died and whose address
    /// another machine took over.
    pub(crate) fn forget(&self) {
        self.state.send_modify(|state| state.first_known = state.made);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        self.set(Wire::Refused);
    }
}

async fn pass(inside: TcpStream, port: u16, number: u64, state: watch::Receiver<State>) {
    let connection = async {
        // While the proxy is silent, do not even connect to the dependency.
        is_passing(number, &mut state.clone()).await;
        let Ok(outside) = TcpStream::connect(("127.0.0.1", port)).await else { return };
        for stream in [&inside, &outside] {
            let _ = stream.set_nodelay(true);
        }
        let ((from_inside, to_inside), (from_outside, to_outside)) = (inside.into_split(), outside.into_split());
        tokio::select! {
            () = copy(from_inside, to_outside, number, state.clone()) => {}
            () = copy(from_outside, to_inside, number, state.clone()) => {}
        }
    };
    // Closes both ends when the wire becomes `Refused`.
    let refused = async { drop(state.clone().wait_for(|state| state.wire == Wire::Refused).await) };
    tokio::select! {
        biased;
        () = refused => {}
        () = connection => {}
    }
}

/// Waits until the proxy forwards this connection; returns the delay to apply.
async fn is_passing(number: u64, state: &mut watch::Receiver<State>) -> Duration {
    match state.wait_for(|state| state.passes(number)).await.map(|state| state.wire) {
        Ok(Wire::Slow(time)) => time,
        _ => Duration::ZERO,
    }
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, number: u64, mut state: watch::Receiver<State>) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read) = from.read(&mut buffer).await {
        let delay = is_passing(number, &mut state).await;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
            // The wire may have been cut during the delay.
            is_passing(number, &mut state).await;
        }
        if read == 0 || to.write_all(&buffer[..read]).await.is_err() {
            break;
        }
    }
}
