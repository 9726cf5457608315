//! UDP on a ring.
//!
//! Datagrams are whole, so sends need no order and any number may be in flight. Receives take turns, so
//! that a datagram of a dropped future goes to the next receive.

use std::{net::SocketAddr, os::fd::OwnedFd, sync::Arc};

use super::{
    Address, Datagram,
    connection::single,
    lane::{Lane, is_of_the_ring},
    socket::{made_for, not_configured},
};
use crate::{
    buf::{BufResult, Buffer, OwnedBuffer, OwnedBufferMut},
    descriptor::Descriptor,
    error::Error,
    flight::completion::Completion,
    op::Operation,
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

impl UdpSocket {
    /// Binds a socket to an address. Port 0 picks a free port.
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

    /// Takes over a socket that is bound already, and sets it to blocking, as a ring needs it.
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

    /// Connects the socket: it then sends to this address, and receives from it only.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped after it has begun, the socket may be connected.
    ///
    /// # Errors
    ///
    /// What connect(2) reports.
    pub async fn connect(&self, address: SocketAddr) -> Result<(), Error> {
        let operation = Operation::connect(&self.socket, address);
        let done = self.ring.submit(operation).await;
        done.result().map(drop).map_err(|error| error.on_address(&Address::Ip(address)))
    }

    /// Sends a datagram to the connected address, and gives its length.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped after the send has begun, the datagram is sent.
    ///
    /// # Errors
    ///
    /// What the send failed with: `EMSGSIZE` if it is too long, `ECONNREFUSED` if nobody listened to an
    /// earlier one.
    pub async fn send<B: OwnedBuffer>(&self, buffer: B) -> BufResult<usize, B> {
        let operation = Operation::send(&self.socket, buffer.into_buffer());
        single(self.ring.submit(operation).await).map_buffer(B::from_buffer)
    }

    /// Sends a datagram to an address.
    ///
    /// # Cancel safety
    ///
    /// As for [`send`](Self::send).
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

    /// Waits for a datagram, and gives it with its sender's address.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, a datagram that it took goes to the next receive, as far as it fitted
    /// into the dropped buffer.
    ///
    /// # Errors
    ///
    /// What the receive failed with, such as `ECONNREFUSED` of an earlier send on a connected socket.
    pub async fn recv_from<B: OwnedBufferMut>(&self, buffer: B) -> BufResult<Datagram, B> {
        self.receive(buffer.into_buffer_mut()).await.map_buffer(B::from_buffer)
    }

    /// Waits for a datagram, and gives its length.
    ///
    /// # Cancel safety
    ///
    /// As for [`recv_from`](Self::recv_from).
    ///
    /// # Errors
    ///
    /// As for [`recv_from`](Self::recv_from).
    pub async fn recv<B: OwnedBufferMut>(&self, buffer: B) -> BufResult<usize, B> {
        self.recv_from(buffer).await.map(|datagram| datagram.bytes)
    }

    async fn receive(&self, mut buffer: Buffer) -> BufResult<Datagram, Buffer> {
        // The loop refuses a buffer that cannot be written.
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
        super::socket::ip(super::local_address(&self.socket)?)
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
    let from = super::socket::ip(done.address().unwrap_or(Address::UnixUnnamed))?;
    Ok(Datagram { bytes, from, is_truncated: done.is_truncated() })
}

/// Gives the datagram of a dropped future to the next receive.
fn hand_on(done: Completion, buffer: &mut Buffer) -> Result<Datagram, Error> {
    let datagram = datagram(&done)?;
    let bytes = datagram.bytes.min(buffer.len());
    let is_truncated = datagram.is_truncated || bytes < datagram.bytes;
    let taken = done.into_buffer().expect("a receive gives its buffer back");
    buffer.put(0, &taken.selected()[..bytes]);
    Ok(Datagram { bytes, is_truncated, ..datagram })
}
