//! Accepts connections for any protocol of the intake: places, TLS, the end, and counts.
//!
//! What is said on a connection is the speaker's business.

use std::{
    future::Future,
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    sync::Semaphore,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;

use super::shared::{Client, Shared};
use crate::{
    monitoring::log,
    session::{connection::PARTING_TIME, tls::client_name},
};

/// How long a failed accept waits: descriptors may become free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long a client that reads no answers, or goes on sending, is waited for when the daemon ends.
const HURRY_TIME: Duration = Duration::from_millis(500);
/// Bytes at a time of what comes after the last answer.
const REST_BYTES: usize = 16 << 10;

/// A protocol.
pub(super) trait Speaker: Clone + Send + Sync + 'static {
    /// Serves a connection until it or the daemon ends.
    fn converse<S: Readable>(
        &self,
        stream: S,
        client: Client,
        shared: &Arc<Shared>,
    ) -> impl Future<Output = ()> + Send;
}

/// A session of TLS.
pub(super) type Session = tokio_rustls::server::TlsStream<TcpStream>;

/// A stream that says when it may have bytes.
pub(super) trait Readable: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// The socket.
    fn socket(&self) -> &TcpStream;

    /// Whether it has bytes that were taken from the socket already.
    fn has_taken(&self) -> bool;
}

impl Readable for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }

    fn has_taken(&self) -> bool {
        false
    }
}

impl Readable for Session {
    fn socket(&self) -> &TcpStream {
        self.get_ref().0
    }

    // A message can come with the end of the handshake. A session with plain bytes wants no others.
    fn has_taken(&self) -> bool {
        !self.get_ref().1.wants_read()
    }
}

/// Accepts connections until the end, and waits for them then.
pub(super) async fn serve(
    listener: tokio::net::TcpListener,
    speaker: impl Speaker,
    shared: Arc<Shared>,
    connections_max: usize,
) {
    let places = Arc::new(Semaphore::new(connections_max));
    let mut connections = tokio::task::JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = async {
            let place = places.clone().acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            accepted = accepted => accepted,
            () = shared.ended() => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                let most = shared.live().limits.address_connections;
                let Ok(place_of_address) = shared.addresses.admit(peer, most) else {
                    shared.counts.turned_away.fetch_add(1, Ordering::Relaxed);
                    continue;
                };
                let (speaker, shared) = (speaker.clone(), shared.clone());
                shared.counts.connections.fetch_add(1, Ordering::Relaxed);
                connections.spawn(async move {
                    shared.counts.open.fetch_add(1, Ordering::Relaxed);
                    let _ = stream.set_nodelay(true);
                    welcome(stream, peer, &speaker, &shared).await;
                    shared.counts.open.fetch_sub(1, Ordering::Relaxed);
                    drop((place, place_of_address));
                });
            }
            Err(error) => {
                log::remark(
                    "intake",
                    format_args!("cannot accept a connection: {error}; trying again"),
                );
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop((listener, shared));
    while connections.join_next().await.is_some() {}
}

/// Serves a connection, by TLS if the daemon speaks it. What is large is in boxes of its own, here and in speakers, so
/// that an idle connection has none of it.
async fn welcome(
    stream: TcpStream,
    peer: SocketAddr,
    speaker: &impl Speaker,
    shared: &Arc<Shared>,
) {
    let (tls, handshake) = {
        let live = shared.live();
        (live.tls.clone(), live.handshake)
    };
    let Some(tls) = tls else {
        let client = Client { peer, is_tls: false, tenant: None };
        return Box::pin(speaker.converse(stream, client, shared)).await;
    };
    let accepted = tokio::select! {
        accepted = timeout(handshake, Box::pin(TlsAcceptor::from(tls).accept(stream))) => accepted,
        () = shared.ended() => return,
    };
    match accepted.map_err(|_| "no handshake within --tls-handshake".to_owned()).and_then(named) {
        Ok((stream, tenant)) => {
            let client = Client { peer, is_tls: true, tenant };
            Box::pin(speaker.converse(stream, client, shared)).await;
        }
        Err(why) => {
            shared.counts.tls_failures.fetch_add(1, Ordering::Relaxed);
            log::remark("tls", format_args!("{peer}: TLS: {why}"));
        }
    }
}

/// A session, with the name in the client's certificate, if it showed one.
fn named(accepted: std::io::Result<Session>) -> Result<(Session, Option<Arc<str>>), String> {
    let stream = accepted.map_err(|error| error.to_string())?;
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let tenant = shown.and_then(client_name).map(Arc::from);
    match shown.is_some() && tenant.is_none() {
        true => Err("the client's certificate names nobody".to_owned()),
        false => Ok((stream, tenant)),
    }
}

/// Closes a connection with its last words. A client that still sends is heard out, and nothing of it is looked at: a
/// connection that is closed over unread bytes is reset, and its client may never see the answers (RFC 9112, 9.6).
pub(super) async fn part(mut stream: impl Readable, farewell: &[u8], shared: &Shared) {
    let parting = async {
        stream.write_all(farewell).await?;
        stream.shutdown().await?;
        let mut rest = vec![0; REST_BYTES];
        while stream.read(&mut rest).await? > 0 {}
        Ok::<_, std::io::Error>(())
    };
    tokio::select! {
        _ = timeout(PARTING_TIME, parting) => {}
        () = hurry(shared) => {}
    }
}

/// Returns when the daemon ends and waits no longer for a client.
pub(super) async fn hurry(shared: &Shared) {
    shared.ended().await;
    sleep(HURRY_TIME).await;
}

/// Waits for bytes or the end of a connection. False: neither came in time, which is counted, or the daemon ends.
pub(super) async fn has_bytes(socket: &TcpStream, shared: &Shared, idle: Duration) -> bool {
    tokio::select! {
        ready = timeout(idle, socket.readable()) => match ready {
            Ok(ready) => ready.is_ok(),
            Err(_) => {
                shared.counts.idle_ended.fetch_add(1, Ordering::Relaxed);
                false
            }
        },
        () = shared.ended() => false,
    }
}
