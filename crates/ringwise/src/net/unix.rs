//! Unix sockets on a ring: listeners and streams.

use std::{
    os::{
        fd::OwnedFd,
        unix::net::{self as standard},
    },
    path::Path,
    time::Duration,
};

use super::{
    Address, ListenOptions, Shutdown,
    connection::{Connection, stream},
    flowing::{Accepting, Receiving, incoming},
    listening::{Listening, listener},
    socket::{made_for, not_configured},
    tcp::connect,
};
use crate::{
    buf::{BufResult, BufferGroup, OwnedBuffer, OwnedBufferMut, from_buffers},
    descriptor::Descriptor,
    error::Error,
    ring::Ring,
};

/// A Unix stream socket that listens, shared by reference count: clones are the same socket.
///
/// # Examples
///
/// ```
/// use ringwise::{Ring, net::{UnixListener, UnixStream}};
///
/// # futures::executor::block_on(async {
/// let ring = Ring::new()?;
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("socket");
/// let listener = UnixListener::bind(&ring, &path)?;
/// let client = UnixStream::connect(&ring, &path).await?;
/// let server = listener.accept().await?;
/// client.send_all(b"x".to_vec()).await.0?;
/// assert_eq!(server.recv(vec![0; 16]).await.0?, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct UnixListener(Listening);

impl UnixListener {
    /// Listens on a path where no file is. The file stays when the listener closes.
    ///
    /// # Errors
    ///
    /// As for [`listen_unix`](super::listen_unix).
    pub fn bind(ring: &Ring, path: impl AsRef<Path>) -> Result<UnixListener, Error> {
        let named = Address::from(path.as_ref());
        let socket = made_for(
            ring,
            &named,
            |simulation| simulation.listen_at(&named, &ListenOptions::default()),
            || super::listen_unix(path.as_ref()),
        )?;
        Ok(UnixListener(Listening::new(ring, socket)))
    }

    /// Waits for a connection, as [`TcpListener::accept`](super::TcpListener::accept) does.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, a connection that it accepted goes to the next accept.
    ///
    /// # Errors
    ///
    /// As for [`TcpListener::accept`](super::TcpListener::accept).
    pub async fn accept(&self) -> Result<UnixStream, Error> {
        let socket = self.0.accept().await?;
        Ok(UnixStream(Connection::new(&self.0.ring, socket)))
    }

    /// The address that it listens on.
    ///
    /// # Errors
    ///
    /// As for [`local_address`](super::local_address()).
    pub fn local_address(&self) -> Result<Address, Error> {
        super::local_address(&self.0.socket)
    }
}

listener!(UnixListener, standard::UnixListener, UnixIncoming);
incoming! {
    /// # Examples
    ///
    /// ```
    /// use ringwise::{Ring, net::UnixListener};
    ///
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = directory.path().join("socket");
    /// # futures::executor::block_on(async {
    /// let ring = Ring::new()?;
    /// let listener = UnixListener::bind(&ring, &path)?;
    /// # let client = std::os::unix::net::UnixStream::connect(&path)?;
    /// let mut connections = listener.accept_multi(16);
    /// let connection = connections.next().await?;
    /// connection.send_all("hello").await.into_result()?;
    /// # let mut received = [0; 5];
    /// # std::io::Read::read_exact(&mut &client, &mut received)?;
    /// # assert_eq!(&received, b"hello");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    UnixIncoming, UnixStream, connected
}

fn connected(ring: &Ring, socket: Descriptor) -> Option<UnixStream> {
    Some(UnixStream(Connection::new(ring, socket)))
}

/// A connection of Unix stream sockets, shared by reference count. It behaves as
/// [`TcpStream`](super::TcpStream) does.
///
/// # Cancel safety
///
/// Every future may be dropped. No received byte is lost, and a send that has begun is sent whole; see
/// [`recv`](Self::recv) and [`send`](Self::send).
///
/// # Examples
///
/// ```
/// use ringwise::{Ring, net::UnixStream};
///
/// # futures::executor::block_on(async {
/// let (one, other) = std::os::unix::net::UnixStream::pair()?;
/// let ring = Ring::new()?;
/// let (one, other) = (UnixStream::from_std(&ring, one)?, UnixStream::from_std(&ring, other)?);
/// one.send_all("hello").await.into_result()?;
/// assert_eq!(other.recv(vec![0; 16]).await.into_result()?.0, 5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct UnixStream(pub(super) Connection);

stream!(UnixStream, standard::UnixStream);

impl UnixStream {
    /// Connects to the socket at a path.
    ///
    /// # Errors
    ///
    /// What socket(2) and connect(2) report: `ENOENT` if there is no socket, `ECONNREFUSED` if nobody
    /// listens.
    pub async fn connect(ring: &Ring, path: impl AsRef<Path>) -> Result<UnixStream, Error> {
        let socket = connect(ring, &Address::from(path.as_ref()), None).await?;
        Ok(UnixStream(Connection::new(ring, socket)))
    }

    /// The address of this end.
    ///
    /// # Errors
    ///
    /// As for [`local_address`](super::local_address()).
    pub fn local_address(&self) -> Result<Address, Error> {
        super::local_address(&self.0.socket)
    }

    /// The address of the other end.
    ///
    /// # Errors
    ///
    /// As for [`peer_address`](super::peer_address()).
    pub fn peer_address(&self) -> Result<Address, Error> {
        super::peer_address(&self.0.socket)
    }
}
