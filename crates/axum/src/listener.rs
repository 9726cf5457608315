//! A ring's listener under axum's trait. It serves nothing by itself.

use std::{io, net::SocketAddr, time::Duration};

use axum::{
    extract::connect_info::Connected,
    serve::{IncomingStream, Listener, TapIo},
};
use ringwise::{
    AcceptFailure, Error, ErrorKind,
    net::{Buffered, TcpListener, TcpStream},
};

/// As long as axum's own listeners wait.
const PAUSE: Duration = Duration::from_secs(1);

/// Accepts the connections of a ring's TCP listener for [`axum::serve()`].
///
/// If an accept fails because descriptors or memory are short, or because a rule of the machine forbids it, it
/// reports an error to `tracing`, waits for a second and accepts again, as axum's own listeners do. If the ring
/// was shut down, it waits forever, so that axum can still end gracefully.
///
/// # Cancel safety
///
/// If the future of an accept is dropped, a connection that it accepted goes to the next accept of the
/// listener or of its clones.
///
/// # Examples
///
/// Small answers go out at once with `TCP_NODELAY`:
///
/// ```no_run
/// use axum::{Router, routing::get, serve::ListenerExt};
/// use ringwise::{Ring, net::{ListenOptions, TcpListener}};
/// use ringwise_axum::RingListener;
///
/// # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
/// let ring = Ring::new()?;
/// let listener = TcpListener::bind(&ring, &"[::]:8080".parse()?, &ListenOptions::default())?;
/// let listener = RingListener::new(listener).tap_io(|stream| {
///     // If the connection has gone, the next read tells.
///     let _ = stream.get_ref().set_nodelay(true);
/// });
/// axum::serve(listener, Router::new().route("/", get(|| async { "hello" }))).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RingListener(TcpListener);

impl RingListener {
    /// Makes one of a ring's listener.
    pub fn new(listener: TcpListener) -> RingListener {
        RingListener(listener)
    }

    /// Returns the ring's listener.
    pub fn get_ref(&self) -> &TcpListener {
        &self.0
    }
}

impl From<TcpListener> for RingListener {
    fn from(listener: TcpListener) -> RingListener {
        RingListener::new(listener)
    }
}

impl Listener for RingListener {
    type Io = Buffered<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Buffered<TcpStream>, SocketAddr) {
        loop {
            match self.0.accept().await {
                Ok((stream, address)) => return (Buffered::new(stream), address),
                Err(error) => pause_after(&error).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.0.local_address()?)
    }
}

/// Waits until it is worth to accept again.
async fn pause_after(error: &Error) {
    if error.accept_failure() == AcceptFailure::Connection {
        return;
    }
    tracing::error!(%error, "an accept failed");
    if error.kind() == ErrorKind::ShutDown {
        std::future::pending::<()>().await;
    }
    tokio::time::sleep(PAUSE).await;
}

/// The address of a client, for [`ConnectInfo`](axum::extract::ConnectInfo), of a [`RingListener`] or of what
/// [`tap_io`](axum::serve::ListenerExt::tap_io) makes of one.
///
/// # Examples
///
/// ```
/// use axum::{Router, extract::ConnectInfo, routing::get};
/// use ringwise_axum::PeerAddress;
///
/// async fn greet(ConnectInfo(PeerAddress(address)): ConnectInfo<PeerAddress>) -> String {
///     format!("hello, {address}")
/// }
///
/// let service = Router::new()
///     .route("/", get(greet))
///     .into_make_service_with_connect_info::<PeerAddress>();
/// # let _: axum::extract::connect_info::IntoMakeServiceWithConnectInfo<Router, PeerAddress> = service;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddress(pub SocketAddr);

impl Connected<IncomingStream<'_, RingListener>> for PeerAddress {
    fn connect_info(stream: IncomingStream<'_, RingListener>) -> PeerAddress {
        PeerAddress(*stream.remote_addr())
    }
}

impl<F> Connected<IncomingStream<'_, TapIo<RingListener, F>>> for PeerAddress
where
    F: FnMut(&mut Buffered<TcpStream>) + Send + 'static,
{
    fn connect_info(stream: IncomingStream<'_, TapIo<RingListener, F>>) -> PeerAddress {
        PeerAddress(*stream.remote_addr())
    }
}
