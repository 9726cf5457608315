//! UDP on a ring.
//!
//! Datagrams are whole, so sends need no order among them and any number may be in flight. Receives
//! take turns, so that a datagram that a dropped future took goes to the next one.

use std::{net::SocketAddr, os::fd::OwnedFd, sync::Arc};

use super::{
    Address,
    connection::{is_of_the_ring, single},
    lane::Lane,
    made_for, not_configured,
};
use crate::{
    buf::{BufResult, Buffer, OwnedBuffer, OwnedBufferMut},
    completion::Completion,
    descriptor::Descriptor,
    error::{Errno, Error},
    op::{Opcode, Operation},
    ring::Ring,
    sim::Simulation,
};

/// A UDP socket, shared by reference count: clones are the same socket.
///
/// # Examples
///
/// ```
/// use ringwise::{Ring, net::UdpSocket};
///
/// # futures::executor::block_on(async {
/// let ring = Ring::new()?;
/// let any = "127.0.0.1:0".parse()?;
/// let (one, other) = (UdpSocket::bind(&ring, &any)?, UdpSocket::bind(&ring, &any)?);
/// one.send_to("hello", other.local_address()?).await.into_result()?;
/// let (datagram, bytes) = other.recv_from(Vec::with_capacity(1500)).await.into_result()?;
/// assert_eq!(bytes, b"hello");
/// assert_eq!(datagram.from, one.local_address()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct UdpSocket {
    ring: Ring,
    socket: Descriptor,
    receiving: Arc<Lane<()>>,
}

/// A datagram that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Datagram {
    /// How many bytes of it are in the buffer.
    pub bytes: usize,
    /// Whence it came.
    pub from: SocketAddr,
    /// It was longer than the buffer, and the rest of it is lost.
    pub is_truncated: bool,
}

impl UdpSocket {
    /// A socket bound to an address; port 0 picks one.
    ///
    /// # Errors
    ///
    /// As for [`udp_bind`](super::udp_bind).
    pub fn bind(ring: &Ring, address: &SocketAddr) -> Result<UdpSocket, Error> {
        let named = Address::Ip(*address);
        let on_simulation = |simulation: &Simulation| simulation.datagrams_at(&named);
        let socket = made_for(ring, &named, on_simulation, || super::udp_bind(address))?;
        Ok(UdpSocket::new(ring, socket))
    }

    /// Goes on with a socket that is bound already. It is set to wait in its calls, as a ring
    /// wants it (`O_NONBLOCK` off).
    ///
    /// # Errors
    ///
    /// What fcntl(2) reports.
    pub fn from_std(ring: &Ring, socket: std::net::UdpSocket) -> Result<UdpSocket, Error> {
        socket.set_nonblocking(false).map_err(|error| not_configured(&error))?;
        Ok(UdpSocket::new(ring, Descriptor::of_socket(OwnedFd::from(socket))))
    }

    fn new(ring: &Ring, socket: Descriptor) -> UdpSocket {
        UdpSocket { ring: ring.clone(), socket, receiving: Arc::default() }
    }

    /// Sends to this address from now on, and receives from it only.
    ///
    /// # Errors
    ///
    /// What connect(2) reports.
    pub async fn connect(&self, address: SocketAddr) -> Result<(), Error> {
        let operation = Operation::connect(&self.socket, address);
        let done = self.ring.submit(operation).await;
        done.result().map(drop).map_err(|error| error.on_address(&Address::Ip(address)))
    }

    /// Sends a datagram to where the socket is connected; gives its length.
    ///
    /// The future may be dropped; once begun, the datagram is sent.
    ///
    /// # Errors
    ///
    /// What the send failed with: `EMSGSIZE` for one that is too long, and `ECONNREFUSED` of an
    /// earlier one where nobody listens.
    pub async fn send<B: OwnedBuffer>(&self, buffer: B) -> BufResult<usize, B> {
        let operation = Operation::send(&self.socket, buffer.into_buffer());
        single(self.ring.submit(operation).await).map_buffer(B::from_buffer)
    }

    /// As [`send`](Self::send), to an address.
    ///
    /// # Errors
    ///
    /// As for [`send`](Self::send).
    pub async fn send_to<B: OwnedBuffer>(&self, buffer: B, to: SocketAddr) -> BufResult<usize, B> {
        let operation = Operation::send_to(&self.socket, buffer.into_buffer(), to);
        let BufResult(result, buffer) = single(self.ring.submit(operation).await);
        let result = result.map_err(|error| error.on_address(&Address::Ip(to)));
        BufResult(result, B::from_buffer(buffer))
    }

    /// Waits for a datagram.
    ///
    /// The future may be dropped at any moment: a datagram that it has taken by then goes to the
    /// next receive, as much of it as fitted into the first one's buffer.
    ///
    /// # Errors
    ///
    /// What the receive failed with: `ECONNREFUSED` of an earlier send on a connected socket.
    pub async fn recv_from<B: OwnedBufferMut>(&self, buffer: B) -> BufResult<Datagram, B> {
        self.receive(buffer.into_buffer_mut()).await.map_buffer(B::from_buffer)
    }

    /// As [`recv_from`](Self::recv_from), where whence it came is known.
    ///
    /// # Errors
    ///
    /// As for [`recv_from`](Self::recv_from).
    pub async fn recv<B: OwnedBufferMut>(&self, buffer: B) -> BufResult<usize, B> {
        self.recv_from(buffer).await.map(|datagram| datagram.bytes)
    }

    async fn receive(&self, mut buffer: Buffer) -> BufResult<Datagram, Buffer> {
        // What cannot be received into is the loop's to refuse.
        if !buffer.is_writable() {
            let refused = self.ring.submit(Operation::recv_from(&self.socket, buffer)).await;
            return BufResult(datagram(&refused), single(refused).1);
        }
        let turn = self.receiving.enter().await;
        if let Some(receive) = turn.take_set_aside() {
            let done = turn.make(receive).await;
            if !done.result().is_err_and(|error| is_of_the_ring(&error)) {
                return BufResult(hand_on(done, &mut buffer), buffer);
            }
        }
        let operation = self.ring.submit(Operation::recv_from(&self.socket, buffer));
        let done = turn.make(operation).await;
        BufResult(datagram(&done), single(done).1)
    }

    /// The address that it is bound to.
    ///
    /// # Errors
    ///
    /// As for [`local_address`](super::local_address()).
    pub fn local_address(&self) -> Result<SocketAddr, Error> {
        super::local_address(&self.socket)?.ip().ok_or_else(not_of_the_internet)
    }

    /// The descriptor, for operations and options that this type has no function for.
    pub fn descriptor(&self) -> &Descriptor {
        &self.socket
    }

    /// The ring that its operations go through.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }
}

fn datagram(done: &Completion) -> Result<Datagram, Error> {
    let bytes = done.result()?;
    let from = done.address().and_then(|address| address.ip()).ok_or_else(not_of_the_internet)?;
    Ok(Datagram { bytes, from, is_truncated: done.is_truncated() })
}

/// Gives a datagram to another than the one whose future took it.
fn hand_on(done: Completion, buffer: &mut Buffer) -> Result<Datagram, Error> {
    let datagram = datagram(&done)?;
    let bytes = datagram.bytes.min(buffer.len());
    let is_truncated = datagram.is_truncated || bytes < datagram.bytes;
    let taken = done.into_buffer().expect("a receive gives its buffer back");
    buffer.put(0, &taken.selected()[..bytes]);
    Ok(Datagram { bytes, is_truncated, ..datagram })
}

fn not_of_the_internet() -> Error {
    Error::new(Opcode::Socket, Errno(libc::EAFNOSUPPORT))
}
