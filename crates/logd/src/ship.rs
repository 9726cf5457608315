//! Ships stored lines to another system, in their order for each stream.
//!
//! Each stream has a thread. It reads the durable batches of the stream's segments (`follower`), cuts them into
//! shipments (`shipment`), hands those to a destination and keeps the acknowledged line number in a file (`cursor`).
//! Storing and acknowledging never wait for it: the segments are the buffer.
//!
//! Reading order: `progress` (what the rest of the daemon knows of it), `follower`, `shipment`, `destination`, `lane`
//! (the rules of one stream), `cursor`, `fleet` (the threads), `kafka`. Dead letters are not shipped.

pub(crate) mod cursor;
pub(crate) mod destination;
pub(crate) mod fleet;
mod follower;
pub(crate) mod kafka;
mod lane;
pub(crate) mod progress;
pub(crate) mod shipment;

#[cfg(test)]
pub(crate) mod tests;
