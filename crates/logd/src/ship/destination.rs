//! Where shipments go. Kafka is one destination; an upload of segments could be another.
//!
//! A destination knows nothing of segments, cursors or pauses. The lane of a stream decides what to send when.

use std::time::Duration;

use super::shipment::Shipment;

/// Why a destination did not do what it was asked for, in words. It may do it later.
#[derive(Debug)]
pub(crate) struct Trouble(pub(crate) String);

/// How far a destination has a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reached {
    /// The line to go on with.
    pub(crate) line: u64,
    /// CRC-32 of the line before it, if the destination knows that.
    pub(crate) checksum: Option<u32>,
}

/// The place to which the lines of one stream go.
///
/// After an error the caller calls [`connect`](Self::connect) and sends all shipments again that were not acknowledged:
/// the same ones, in the same order. A destination may have stored some of them.
pub(crate) trait Destination {
    /// Connects. Shipments that were sent before are not in flight any more. Some destinations know how far
    /// they have the stream; the others return nothing.
    fn connect(&mut self) -> Result<Option<Reached>, Trouble>;

    /// Sends a shipment, without waiting until it is stored.
    fn send(&mut self, shipment: &Shipment) -> Result<(), Trouble>;

    /// Waits for acknowledgements. Returns how many shipments are acknowledged now, the oldest first.
    fn receive(&mut self, wait: Duration) -> Result<usize, Trouble>;

    /// The most shipments that are not acknowledged.
    fn window(&self) -> usize;
}
