//! A wire between the service and a part, which can be cut, and can be slow.

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

/// What the wire does to what is sent over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    /// It passes everything on.
    Whole,
    /// It passes everything on, in each direction after so long.
    Slow(Duration),
    /// Connections are made, and nothing is heard any more, on those that are there neither: a cable that was cut.
    Silent,
    /// Connections end, and new ones end at once.
    Refused,
}

/// The wire now.
#[derive(Clone, Copy)]
struct State {
    wire: Wire,
    /// Connections made before this one are heard of no more, in either direction.
    first_known: u64,
    /// How many were made.
    made: u64,
}

impl State {
    fn passes(&self, connection: u64) -> bool {
        self.wire != Wire::Silent && connection >= self.first_known
    }
}

/// Passes on what comes to its address; gone when it is dropped.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    state: watch::Sender<State>,
    task: JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let state = watch::Sender::new(State { wire: Wire::Whole, first_known: 0, made: 0 });
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

    /// From now on, also on connections that are there.
    pub(crate) fn set(&self, wire: Wire) {
        self.state.send_modify(|state| state.wire = wire);
    }

    /// Nothing is ever heard again on the connections that are there, and new ones are as good as any: a machine that
    /// died, and another one that took its address.
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
        // Nobody is at the other end of a cable that was cut.
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
    // Both ends are closed when the wire is refused.
    let refused = async { drop(state.clone().wait_for(|state| state.wire == Wire::Refused).await) };
    tokio::select! {
        biased;
        () = refused => {}
        () = connection => {}
    }
}

/// Waits until the wire passes something on; returns how long that takes.
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
            // It may have been cut meanwhile.
            is_passing(number, &mut state).await;
        }
        if read == 0 || to.write_all(&buffer[..read]).await.is_err() {
            break;
        }
    }
}
