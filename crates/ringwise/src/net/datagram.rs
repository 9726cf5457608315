//! What a receive of UDP tells.

use std::net::SocketAddr;

/// A datagram that was received.
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
