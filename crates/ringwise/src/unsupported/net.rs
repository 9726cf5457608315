//! Sockets that cannot be made.

use std::{
    io::IoSlice,
    net::SocketAddr,
    path::Path,
    task::{Context, Poll},
    time::Duration,
};

#[path = "../net/address.rs"]
mod address;
#[path = "../net/datagram.rs"]
mod datagram;
#[cfg(feature = "futures-io")]
#[path = "../net/buffered/futures_io.rs"]
mod futures_io;
#[path = "../net/options.rs"]
mod options;
#[cfg(feature = "tokio")]
#[path = "../net/buffered/tokio.rs"]
mod tokio;

pub use address::{Address, AddressRef};
pub use datagram::Datagram;
pub use options::{KeepAlive, ListenOptions, Shutdown};

use super::{
    buf::{BufResult, Buffer, BufferGroup, OwnedBuffer, OwnedBufferMut},
    error::{Error, Never},
    ring::Ring,
};
use crate::{descriptor::Descriptor, op::Opcode};

absent! {
    TcpListener [Clone] {
        ring [fn bind(ring: &Ring, address: &SocketAddr, options: &ListenOptions) -> Result<TcpListener, Error>]
        ring [fn from_std(ring: &Ring, listener: std::net::TcpListener) -> Result<TcpListener, Error>]
        self [fn into_std(self) -> Result<std::net::TcpListener, TcpListener>]
        self [async fn accept(&self) -> Result<(TcpStream, SocketAddr), Error>]
        self [fn accept_multi(&self, credit: usize) -> TcpIncoming<'_>]
        self [fn local_address(&self) -> Result<SocketAddr, Error>]
        self [fn descriptor(&self) -> &Descriptor]
        self [fn ring(&self) -> &Ring]
        self [async fn close(self) -> Result<(), Error>]
    }
    TcpStream [Clone] {
        ring [async fn connect(ring: &Ring, address: SocketAddr) -> Result<TcpStream, Error>]
        ring [async fn connect_deadline(ring: &Ring, address: SocketAddr, after: Duration) -> Result<TcpStream, Error>]
        ring [fn from_std(ring: &Ring, stream: std::net::TcpStream) -> Result<TcpStream, Error>]
        self [fn into_std(self) -> Result<std::net::TcpStream, TcpStream>]
        self [fn local_address(&self) -> Result<SocketAddr, Error>]
        self [fn peer_address(&self) -> Result<SocketAddr, Error>]
        self [fn set_nodelay(&self, nodelay: bool) -> Result<(), Error>]
        self [fn set_keepalive(&self, keepalive: Option<KeepAlive>) -> Result<(), Error>]
        self [fn set_user_timeout(&self, timeout: Duration) -> Result<(), Error>]
        self [fn set_reset_on_close(&self) -> Result<(), Error>]
    }
    UnixListener [Clone] {
        ring [fn bind(ring: &Ring, path: impl AsRef<Path>) -> Result<UnixListener, Error>]
        self [async fn accept(&self) -> Result<UnixStream, Error>]
        self [fn ring(&self) -> &Ring]
        self [fn accept_multi(&self, credit: usize) -> UnixIncoming<'_>]
        self [fn local_address(&self) -> Result<Address, Error>]
        self [fn descriptor(&self) -> &Descriptor]
        self [async fn close(self) -> Result<(), Error>]
    }
    UnixStream [Clone] {
        ring [async fn connect(ring: &Ring, path: impl AsRef<Path>) -> Result<UnixStream, Error>]
        self [fn local_address(&self) -> Result<Address, Error>]
        self [fn peer_address(&self) -> Result<Address, Error>]
    }
    UdpSocket [Clone] {
        ring [fn bind(ring: &Ring, address: &SocketAddr) -> Result<UdpSocket, Error>]
        ring [fn from_std(ring: &Ring, socket: std::net::UdpSocket) -> Result<UdpSocket, Error>]
        self [async fn connect(&self, address: SocketAddr) -> Result<(), Error>]
        self [async fn send<B: OwnedBuffer>(&self, buffer: B) -> BufResult<usize, B>]
        self [async fn send_to<B: OwnedBuffer>(&self, buffer: B, to: SocketAddr) -> BufResult<usize, B>]
        self [async fn recv_from<B: OwnedBufferMut>(&self, buffer: B) -> BufResult<Datagram, B>]
        self [async fn recv<B: OwnedBufferMut>(&self, buffer: B) -> BufResult<usize, B>]
        self [fn local_address(&self) -> Result<SocketAddr, Error>]
        self [fn descriptor(&self) -> &Descriptor]
        self [fn ring(&self) -> &Ring]
    }
}

/// What both kinds of streams do.
macro_rules! stream {
    ($($me:ident $name:ident)*) => { $(
        #[allow(missing_docs, unused_variables)]
        impl $name {
            stream! { @ $me
                [fn recv_multi(&$me, group: &BufferGroup, credit: usize) -> Receiving<'_>]
                [fn descriptor(&$me) -> &Descriptor]
                [fn ring(&$me) -> &Ring]
                [async fn recv<B: OwnedBufferMut>(&$me, buffer: B) -> BufResult<usize, B>]
                [async fn recv_deadline<B: OwnedBufferMut>(&$me, buffer: B, after: Duration) -> BufResult<usize, B>]
                [async fn recv_vectored<B: OwnedBufferMut>(&$me, buffers: Vec<B>) -> BufResult<usize, Vec<B>>]
                [async fn send<B: OwnedBuffer>(&$me, buffer: B) -> BufResult<usize, B>]
                [async fn send_all<B: OwnedBuffer>(&$me, buffer: B) -> BufResult<(), B>]
                [async fn send_all_deadline<B: OwnedBuffer>(&$me, buffer: B, after: Duration) -> BufResult<(), B>]
                [async fn send_vectored<B: OwnedBuffer>(&$me, buffers: Vec<B>) -> BufResult<usize, Vec<B>>]
                [async fn send_all_vectored<B: OwnedBuffer>(&$me, buffers: Vec<B>) -> BufResult<(), Vec<B>>]
                [async fn flush(&$me) -> Result<(), Error>]
                [async fn shutdown(&$me, which: Shutdown) -> Result<(), Error>]
                [async fn close($me) -> Result<(), Error>]
            }
        }

        impl Stream for $name {}
    )* };
    (@ $me:ident $([$($signature:tt)*])*) => { $(pub $($signature)* { match $me.0 {} })* };
}

stream! { self TcpStream self UnixStream }

/// What comes piece by piece.
macro_rules! flowing {
    ($($name:ident $item:ty)*) => { $(
        /// Has no value.
        #[derive(Debug)]
        pub struct $name<'a>(Never, std::marker::PhantomData<&'a Ring>);

        #[allow(missing_docs)]
        impl $name<'_> {
            pub async fn next(&mut self) -> $item {
                match self.0 {}
            }
        }
    )* };
}

flowing! {
    Receiving Option<Result<Buffer, Error>>
    TcpIncoming Result<(TcpStream, SocketAddr), Error>
    UnixIncoming Result<UnixStream, Error>
}

/// A stream of either kind.
pub trait Stream: Send + Sync + Unpin + 'static {}

/// A stream under the traits of others.
#[derive(Debug)]
pub struct Buffered<S = TcpStream>(S, Never);

impl<S: Stream> Buffered<S> {
    /// Nobody has a stream to give.
    pub fn new(stream: S) -> Buffered<S> {
        Buffered::with_capacity(stream, 0, 0)
    }

    /// Nobody has a stream to give.
    pub fn with_capacity(_stream: S, _receive_bytes: usize, _send_bytes: usize) -> Buffered<S> {
        unreachable!("no stream has a value on this target")
    }

    /// The stream below.
    pub fn get_ref(&self) -> &S {
        &self.0
    }

    /// The stream below.
    pub async fn into_inner(self) -> S {
        self.0
    }
}

/// What the traits of others are made of. Each method is its signature.
macro_rules! polled {
    ($me:ident $([$($signature:tt)*])*) => {
        #[allow(dead_code, unused_variables)]
        impl<S: Stream> Buffered<S> {
            $($($signature)* { match $me.1 {} })*
        }
    };
}

polled! { self
    [fn poll_received(&mut self, context: &mut Context<'_>) -> Poll<Result<&[u8], Error>>]
    [fn take_received(&mut self, count: usize)]
    [fn poll_turn(&mut self, context: &Context<'_>) -> Poll<()>]
    [fn expects_more(&self, room: usize) -> bool]
    [fn receive_at_once(&mut self, into: &mut [u8]) -> Option<Result<usize, Error>>]
    [fn poll_send(&mut self, context: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<Result<usize, Error>>]
    [fn poll_sent(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>>]
    [fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>>]
}

/// Functions that answer `Unsupported`.
macro_rules! unsupported {
    ($([$($signature:tt)*])*) => { $(
        /// Fails.
        ///
        /// # Errors
        ///
        /// [`Unsupported`](crate::ErrorKind::Unsupported).
        #[allow(unused_variables)]
        pub $($signature)* { Err(Error::new(Opcode::Socket)) }
    )* };
}

unsupported! {
    [fn listen_tcp(address: &SocketAddr, options: &ListenOptions) -> Result<Descriptor, Error>]
    [fn listen_unix(path: impl AsRef<Path>) -> Result<Descriptor, Error>]
    [fn tcp_socket<'a>(address: impl Into<AddressRef<'a>>) -> Result<Descriptor, Error>]
    [fn unix_socket() -> Result<Descriptor, Error>]
    [fn udp_bind(address: &SocketAddr) -> Result<Descriptor, Error>]
    [fn local_address(socket: &Descriptor) -> Result<Address, Error>]
    [fn peer_address(socket: &Descriptor) -> Result<Address, Error>]
    [fn set_nodelay(socket: &Descriptor, nodelay: bool) -> Result<(), Error>]
    [fn set_keepalive(socket: &Descriptor, keepalive: Option<KeepAlive>) -> Result<(), Error>]
    [fn set_user_timeout(socket: &Descriptor, timeout: Duration) -> Result<(), Error>]
    [fn set_send_buffer(socket: &Descriptor, bytes: usize) -> Result<(), Error>]
    [fn set_receive_buffer(socket: &Descriptor, bytes: usize) -> Result<(), Error>]
    [fn set_reset_on_close(socket: &Descriptor) -> Result<(), Error>]
    [fn shutdown(socket: &Descriptor, which: Shutdown) -> Result<(), Error>]
}
