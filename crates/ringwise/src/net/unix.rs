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
    listening::Listening,
    made_for, not_configured,
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
    /// Listens on a path, where no file may be. The file stays when the listener has gone.
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

    /// Goes on with a socket that listens already. It is set to wait in its calls, as a ring wants
    /// it (`O_NONBLOCK` off); a ring on classic calls sets that again when it accepts.
    ///
    /// # Errors
    ///
    /// What fcntl(2) reports.
    pub fn from_std(ring: &Ring, listener: standard::UnixListener) -> Result<UnixListener, Error> {
        listener.set_nonblocking(false).map_err(|error| not_configured(&error))?;
        let socket = Descriptor::of_socket(OwnedFd::from(listener));
        Ok(UnixListener(Listening::new(ring, socket)))
    }

    /// Waits for a connection. The future may be dropped at any moment: a connection that it has
    /// accepted by then goes to the next one.
    ///
    /// # Errors
    ///
    /// What the accept failed with: `EMFILE` and `ENFILE` at the limit of descriptors, where the
    /// connection goes on waiting in the kernel.
    pub async fn accept(&self) -> Result<UnixStream, Error> {
        let socket = self.0.accept().await?;
        Ok(UnixStream(Connection::new(&self.0.ring, socket)))
    }

    /// Accepts connections as they come, as
    /// [`TcpListener::accept_multi`](super::TcpListener::accept_multi).
    pub fn accept_multi(&self, credit: usize) -> UnixIncoming<'_> {
        UnixIncoming(Accepting::new(&self.0, credit), &self.0.ring)
    }

    /// The address that it listens on.
    ///
    /// # Errors
    ///
    /// As for [`local_address`](super::local_address()).
    pub fn local_address(&self) -> Result<Address, Error> {
        super::local_address(&self.0.socket)
    }

    /// The descriptor, for operations and options that this type has no function for.
    pub fn descriptor(&self) -> &Descriptor {
        &self.0.socket
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

incoming!(UnixIncoming, UnixStream, connected);

fn connected(ring: &Ring, socket: Descriptor) -> Option<UnixStream> {
    Some(UnixStream(Connection::new(ring, socket)))
}

/// A connection of Unix stream sockets, as [`TcpStream`](super::TcpStream).
#[derive(Clone, Debug)]
pub struct UnixStream(pub(super) Connection);

stream!(UnixStream, standard::UnixStream);

impl UnixStream {
    /// Connects to the socket at a path.
    ///
    /// # Errors
    ///
    /// What socket(2) and connect(2) report: `ENOENT` where no socket is, `ECONNREFUSED` where
    /// nobody listens.
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
