//! An echo server: one accept and one receive for each connection, which go on by themselves.
//!
//! What comes lies in a buffer that is chosen when it comes, so that thousands of silent connections
//! keep none, and is sent from there: `cargo run --example echo_server --features tokio [HOST:PORT]`.

use std::{error::Error, net::SocketAddr, time::Duration};

use ringwise::{
    AcceptFailure, BufferGroup, Ring,
    net::{ListenOptions, Shutdown, TcpListener, TcpStream},
};

/// Connections that may wait for the loop below.
const CONNECTIONS: usize = 64;
/// Pieces of one connection that may wait for its task: its sender is slowed down beyond that.
const PIECES: usize = 4;

/// Serves connections until the listener fails.
pub async fn serve(listener: TcpListener, group: BufferGroup) -> ringwise::Error {
    let mut connections = listener.accept_multi(CONNECTIONS);
    loop {
        let (stream, address) = match connections.next().await {
            Ok(accepted) => accepted,
            // At the limit of descriptors it waits by itself.
            Err(error) => match error.accept_failure() {
                AcceptFailure::Connection => continue,
                AcceptFailure::Exhausted => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    connections = listener.accept_multi(CONNECTIONS);
                    continue;
                }
                _ => return error,
            },
        };
        let group = group.clone();
        tokio::spawn(async move {
            if let Err(error) = echo(&stream, &group).await {
                eprintln!("{address}: {error}");
            }
        });
    }
}

async fn echo(stream: &TcpStream, group: &BufferGroup) -> Result<(), ringwise::Error> {
    let mut pieces = stream.recv_multi(group, PIECES);
    while let Some(piece) = pieces.next().await {
        stream.send_all(piece?).await.0?;
    }
    stream.shutdown(Shutdown::Write).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7007".into());
    let address: SocketAddr = address.parse()?;
    let ring = Ring::new()?;
    let group = ring.buffer_group(256, 2048).await?;
    let listener = TcpListener::bind(&ring, &address, &ListenOptions::default())?;
    println!("listening on {}", listener.local_address()?);
    Err(serve(listener, group).await.into())
}
