//! What a receive of UDP tells.

use std::net::SocketAddr;

/// A datagram that was received.
///
/// # Examples
///
/// ```
/// use ringwise::{Ring, net::UdpSocket};
///
/// # futures::executor::block_on(async {
/// let ring = Ring::new()?;
/// let any = "127.0.0.1:0".parse()?;
/// let (server, client) = (UdpSocket::bind(&ring, &any)?, UdpSocket::bind(&ring, &any)?);
/// client.send_to("question", server.local_address()?).await.into_result()?;
/// let (datagram, bytes) = server.recv_from(vec![0; 5]).await.into_result()?;
/// assert_eq!(&bytes[..datagram.bytes], b"quest");
/// assert!(datagram.is_truncated);
/// assert_eq!(datagram.from, client.local_address()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Datagram {
    /// How many bytes of it are in the buffer.
    pub bytes: usize,
    /// The sender's address.
    pub from: SocketAddr,
    /// Whether it was longer than the buffer, so that the rest of it is lost.
    pub is_truncated: bool,
}
