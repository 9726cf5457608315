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
    listening::Listening,
    made_for, not_configured,
};
use crate::{
    buf::{BufResult, BufferGroup, OwnedBuffer, OwnedBufferMut, from_buffers},
    descriptor::Descriptor,
    error::{Errno, Error},
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
    /// Listens on an address; port 0 picks one, which [`local_address`](Self::local_address) tells.
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

    /// Goes on with a socket that listens already. It is set to wait in its calls, as a ring wants
    /// it (`O_NONBLOCK` off); a ring on classic calls sets that again when it accepts.
    ///
    /// # Errors
    ///
    /// What fcntl(2) reports.
    pub fn from_std(ring: &Ring, listener: standard::TcpListener) -> Result<TcpListener, Error> {
        listener.set_nonblocking(false).map_err(|error| not_configured(&error))?;
        let socket = Descriptor::of_socket(OwnedFd::from(listener));
        Ok(TcpListener(Listening::new(ring, socket)))
    }

    /// Gives the socket back for use with the standard library. One that accepted on classic calls
    /// does not wait (`O_NONBLOCK`).
    ///
    /// # Errors
    ///
    /// The listener itself, when a clone or an operation in flight still holds it, or it keeps a
    /// connection of an accept whose future was dropped.
    pub fn into_std(self) -> Result<standard::TcpListener, TcpListener> {
        let ring = self.0.ring.clone();
        let socket = self.0.into_socket().map_err(TcpListener)?;
        let owned = socket.into_owned();
        owned.map(Into::into).map_err(|socket| TcpListener(Listening::new(&ring, socket)))
    }

    /// Waits for a connection; gives it and whose it is.
    ///
    /// The future may be dropped at any moment: a connection that it has accepted by then goes to
    /// the next one. What befalls a single connection (`ECONNABORTED` and the like, accept(2)) is
    /// not told. Of several accepts at a time each waits for its turn.
    ///
    /// # Errors
    ///
    /// What the accept failed with: `EMFILE` and `ENFILE` at the limit of descriptors, where the
    /// connection goes on waiting in the kernel.
    pub async fn accept(&self) -> Result<(TcpStream, SocketAddr), Error> {
        loop {
            let socket = self.0.accept().await?;
            if let Some(accepted) = named(&self.0.ring, socket) {
                return Ok(accepted);
            }
        }
    }

    /// Accepts connections as they come, by one operation that goes on; when `credit` of them wait
    /// to be taken, those that come after stay in the kernel's backlog, but for a few. It is this listener's
    /// accept until it is dropped: others wait for their turn, and get what came by then.
    ///
    /// On a ring the limit of descriptors counts that holds when it begins (io_uring/net.c): raise it
    /// before.
    pub fn accept_multi(&self, credit: usize) -> TcpIncoming<'_> {
        TcpIncoming(Accepting::new(&self.0, credit), &self.0.ring)
    }

    /// The address that it listens on.
    ///
    /// # Errors
    ///
    /// As for [`local_address`](super::local_address()).
    pub fn local_address(&self) -> Result<SocketAddr, Error> {
        ip(super::local_address(&self.0.socket)?)
    }

    /// The descriptor, for operations and options that this type has no function for.
    pub fn descriptor(&self) -> &Descriptor {
        &self.0.socket
    }

    /// The ring that its operations go through.
    pub fn ring(&self) -> &Ring {
        &self.0.ring
    }

    /// Closes the socket. Dropped instead, it closes when the last clone and the last operation
    /// are gone.
    ///
    /// # Errors
    ///
    /// `EBUSY` when a clone still holds the socket, which then keeps it open.
    pub async fn close(self) -> Result<(), Error> {
        self.0.close().await
    }
}

incoming!(TcpIncoming, (TcpStream, SocketAddr), named);

/// A connection and whose it is; nothing for one that was reset already and has no other end to name.
fn named(ring: &Ring, socket: Descriptor) -> Option<(TcpStream, SocketAddr)> {
    let address = super::peer_address(&socket).ok()?.ip()?;
    Some((TcpStream(Connection::new(ring, socket)), address))
}

/// A TCP connection, shared by reference count: clones are the same connection.
///
/// Futures may be dropped at any moment: no byte that was received is lost, and what was begun to
/// be sent is sent ([`recv`](Self::recv) and [`send`](Self::send) say how). Buffers come back with
/// the result, on failure too. One receive and one send are in flight at a time, others wait for
/// their turn.
#[derive(Clone, Debug)]
pub struct TcpStream(pub(super) Connection);

stream!(TcpStream, standard::TcpStream);

impl TcpStream {
    /// Connects to an address. Dropped, it gives up.
    ///
    /// # Errors
    ///
    /// What socket(2) and connect(2) report: `ECONNREFUSED` where nobody listens, `ETIMEDOUT` where
    /// nobody answers.
    pub async fn connect(ring: &Ring, address: SocketAddr) -> Result<TcpStream, Error> {
        let socket = connect(ring, &Address::Ip(address), None).await?;
        Ok(TcpStream(Connection::new(ring, socket)))
    }

    /// As [`connect`](Self::connect), for so long at most: then it fails with
    /// [`TimedOut`](crate::ErrorKind::TimedOut).
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect).
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
        ip(super::local_address(&self.0.socket)?)
    }

    /// The address of the other end.
    ///
    /// # Errors
    ///
    /// As for [`peer_address`](super::peer_address()).
    pub fn peer_address(&self) -> Result<SocketAddr, Error> {
        ip(super::peer_address(&self.0.socket)?)
    }

    /// Sends what is written at once (`TCP_NODELAY`): see [`set_nodelay`](super::set_nodelay()).
    ///
    /// # Errors
    ///
    /// What setsockopt(2) reports.
    pub fn set_nodelay(&self, nodelay: bool) -> Result<(), Error> {
        super::set_nodelay(&self.0.socket, nodelay)
    }

    /// Gives a silent connection up when its other end no longer answers: see
    /// [`set_keepalive`](super::set_keepalive()).
    ///
    /// # Errors
    ///
    /// What setsockopt(2) reports.
    pub fn set_keepalive(&self, keepalive: Option<KeepAlive>) -> Result<(), Error> {
        super::set_keepalive(&self.0.socket, keepalive)
    }

    /// How long data may be without an acknowledgement: see
    /// [`set_user_timeout`](super::set_user_timeout()).
    ///
    /// # Errors
    ///
    /// What setsockopt(2) reports.
    pub fn set_user_timeout(&self, timeout: Duration) -> Result<(), Error> {
        super::set_user_timeout(&self.0.socket, timeout)
    }

    /// Tells the other end by a reset when it closes: see
    /// [`set_reset_on_close`](super::set_reset_on_close()).
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
            // Nobody here cancelled it: the thread that had submitted it has ended, and its runtime
            // with it. A socket takes no second connect. A ring that closes refuses the next one.
            Err(error) if error.errno() == libc::ECANCELED => {}
            Err(error) => return Err(error),
        }
    }
}

fn ip(address: Address) -> Result<SocketAddr, Error> {
    address.ip().ok_or_else(|| Error::new(Opcode::Socket, Errno(libc::EAFNOSUPPORT)))
}
