//! TCP on a ring: listeners and streams.

use std::{
    net::{self as standard, SocketAddr},
    os::fd::OwnedFd,
    time::Duration,
};

use super::{
    Address, KeepAlive, ListenOptions, Shutdown,
    connection::{Connection, stream},
    flowing::{Accepting, Receiving, incoming},
    listening::{Listening, listener},
    socket::{made_for, not_configured},
};
use crate::{
    buf::{BufResult, BufferGroup, OwnedBuffer, OwnedBufferMut, from_buffers},
    descriptor::Descriptor,
    error::Error,
    op::{Opcode, Operation},
    ring::{Pending, Ring, Timer},
};

/// A TCP socket that listens, shared by reference count: clones are the same socket.
///
/// # Examples
///
/// ```
/// use ringwise::{Ring, net::{ListenOptions, TcpListener, TcpStream}};
///
/// # futures::executor::block_on(async {
/// let ring = Ring::new()?;
/// let any = "127.0.0.1:0".parse()?;
/// let listener = TcpListener::bind(&ring, &any, &ListenOptions::default())?;
/// let client = TcpStream::connect(&ring, listener.local_address()?).await?;
/// let (server, _address) = listener.accept().await?;
///
/// client.send_all("question").await.into_result()?;
/// let (count, bytes) = server.recv(vec![0; 64]).await.into_result()?;
/// assert_eq!(&bytes[..count], b"question");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct TcpListener(Listening);

impl TcpListener {
    /// Listens on an address. Port 0 picks a free port, which [`local_address`](Self::local_address) gives.
    ///
    /// # Errors
    ///
    /// As for [`listen_tcp`](super::listen_tcp).
    pub fn bind(
        ring: &Ring,
        address: &SocketAddr,
        options: &ListenOptions,
    ) -> Result<TcpListener, Error> {
        let socket = made_for(
            ring,
            &Address::Ip(*address),
            |simulation| simulation.listen_at(&Address::Ip(*address), options),
            || super::listen_tcp(address, options),
        )?;
        Ok(TcpListener(Listening::new(ring, socket)))
    }

    /// Waits for a connection, and gives it with the address of its other end. Several accepts take turns.
    ///
    /// It accepts the next connection if one failed before it was accepted (`ECONNABORTED` and others of
    /// accept(2)).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, a connection that it accepted goes to the next accept.
    ///
    /// # Errors
    ///
    /// What the accept failed with, such as `EMFILE` and `ENFILE` at the limit on descriptors, or `EPERM` if
    /// a filter of syscalls forbids it. The connection then waits in the kernel.
    /// [`Error::accept_failure`] sorts the errors.
    pub async fn accept(&self) -> Result<(TcpStream, SocketAddr), Error> {
        loop {
            let socket = self.0.accept().await?;
            if let Some(accepted) = named(&self.0.ring, socket) {
                return Ok(accepted);
            }
        }
    }

    /// The address that it listens on.
    ///
    /// # Errors
    ///
    /// As for [`local_address`](super::local_address()).
    pub fn local_address(&self) -> Result<SocketAddr, Error> {
        super::socket::ip(super::local_address(&self.0.socket)?)
    }
}

listener!(TcpListener, standard::TcpListener, TcpIncoming);
incoming! {
    /// # Examples
    ///
    /// ```
    /// use ringwise::{Ring, net::{ListenOptions, TcpListener}};
    ///
    /// # futures::executor::block_on(async {
    /// let ring = Ring::new()?;
    /// let listener = TcpListener::bind(&ring, &"127.0.0.1:0".parse()?, &ListenOptions::default())?;
    /// # let address = listener.local_address()?;
    /// # let clients = [std::net::TcpStream::connect(address)?, std::net::TcpStream::connect(address)?];
    /// let mut connections = listener.accept_multi(16);
    /// for greeting in ["first", "second"] {
    ///     let (connection, address) = connections.next().await?;
    ///     println!("{greeting}: {address}");
    ///     connection.send_all(greeting).await.into_result()?;
    /// }
    /// # for (mut client, greeting) in clients.iter().zip(["first", "second"]) {
    /// #     let mut received = vec![0; greeting.len()];
    /// #     std::io::Read::read_exact(&mut client, &mut received)?;
    /// #     assert_eq!(received, greeting.as_bytes());
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    TcpIncoming, (TcpStream, SocketAddr), named
}

/// A connection and the address of its other end, or nothing if it was reset already.
fn named(ring: &Ring, socket: Descriptor) -> Option<(TcpStream, SocketAddr)> {
    let address = super::peer_address(&socket).ok()?.ip()?;
    Some((TcpStream(Connection::new(ring, socket)), address))
}

/// A TCP connection, shared by reference count: clones are the same connection.
///
/// One receive and one send are in flight at a time; others wait for their turn. A buffer comes back with
/// the result, on failure too.
///
/// # Cancel safety
///
/// Every future may be dropped. No received byte is lost, and a send that has begun is sent whole; see
/// [`recv`](Self::recv) and [`send`](Self::send).
///
/// # Examples
///
/// ```
/// use ringwise::{Ring, net::TcpStream};
///
/// # futures::executor::block_on(async {
/// let server = std::net::TcpListener::bind("127.0.0.1:0")?;
/// let ring = Ring::new()?;
/// let stream = TcpStream::connect(&ring, server.local_addr()?).await?;
/// stream.set_nodelay(true)?;
/// stream.send_all("hello").await.into_result()?;
/// stream.close().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct TcpStream(pub(super) Connection);

stream!(TcpStream, standard::TcpStream);

impl TcpStream {
    /// Connects to an address. If the future is dropped, the socket is closed.
    ///
    /// # Errors
    ///
    /// What socket(2) and connect(2) report: `ECONNREFUSED` if nobody listens, `ETIMEDOUT` if nobody
    /// answers.
    pub async fn connect(ring: &Ring, address: SocketAddr) -> Result<TcpStream, Error> {
        let socket = connect(ring, &Address::Ip(address), None).await?;
        Ok(TcpStream(Connection::new(ring, socket)))
    }

    /// Connects to an address within a time.
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect), and [`TimedOut`](crate::ErrorKind::TimedOut).
    pub async fn connect_deadline(
        ring: &Ring,
        address: SocketAddr,
        after: Duration,
    ) -> Result<TcpStream, Error> {
        let socket = connect(ring, &Address::Ip(address), Some(after)).await?;
        Ok(TcpStream(Connection::new(ring, socket)))
    }

    /// The address of this end.
    ///
    /// # Errors
    ///
    /// As for [`local_address`](super::local_address()).
    pub fn local_address(&self) -> Result<SocketAddr, Error> {
        super::socket::ip(super::local_address(&self.0.socket)?)
    }

    /// The address of the other end.
    ///
    /// # Errors
    ///
    /// As for [`peer_address`](super::peer_address()).
    pub fn peer_address(&self) -> Result<SocketAddr, Error> {
        super::socket::ip(super::peer_address(&self.0.socket)?)
    }

    /// Sets `TCP_NODELAY`, as [`set_nodelay`](super::set_nodelay()) does.
    ///
    /// # Errors
    ///
    /// What setsockopt(2) reports.
    pub fn set_nodelay(&self, nodelay: bool) -> Result<(), Error> {
        super::set_nodelay(&self.0.socket, nodelay)
    }

    /// Sets keep-alive, as [`set_keepalive`](super::set_keepalive()) does.
    ///
    /// # Errors
    ///
    /// What setsockopt(2) reports.
    pub fn set_keepalive(&self, keepalive: Option<KeepAlive>) -> Result<(), Error> {
        super::set_keepalive(&self.0.socket, keepalive)
    }

    /// Sets `TCP_USER_TIMEOUT`, as [`set_user_timeout`](super::set_user_timeout()) does.
    ///
    /// # Errors
    ///
    /// What setsockopt(2) reports.
    pub fn set_user_timeout(&self, timeout: Duration) -> Result<(), Error> {
        super::set_user_timeout(&self.0.socket, timeout)
    }

    /// Closes with a reset, as [`set_reset_on_close`](super::set_reset_on_close()) does.
    ///
    /// # Errors
    ///
    /// What setsockopt(2) reports.
    pub fn set_reset_on_close(&self) -> Result<(), Error> {
        super::set_reset_on_close(&self.0.socket)
    }
}

/// Makes a stream socket and connects it.
pub(super) async fn connect(
    ring: &Ring,
    address: &Address,
    after: Option<Duration>,
) -> Result<Descriptor, Error> {
    let mut timer = Timer::new(ring, after);
    let connected = timer.limit(Opcode::Connect, connect_untimed(ring, address)).await;
    connected.and_then(|connected| connected).map_err(|error| error.on_address(address))
}

async fn connect_untimed(ring: &Ring, address: &Address) -> Result<Descriptor, Error> {
    loop {
        let socket = made_for(
            ring,
            address,
            |simulation| simulation.stream_for(address),
            || super::tcp_socket(address),
        )?;
        let operation: Pending = ring.submit(Operation::connect(&socket, address));
        match operation.await.result() {
            Ok(_) => return Ok(socket),
            // The thread that submitted it has ended, and the kernel cancelled it. A socket takes no
            // second connect, so a new one is made. A ring that closes refuses it.
            Err(error) if error.errno() == libc::ECANCELED => {}
            Err(error) => return Err(error),
        }
    }
}
