//! The small and large receive buffers that the connections of a thread share, and which of them each connection uses.
//!
//! While more than half of the large buffers are in use, new connections and those that send little receive into small
//! ones. A connection returns to large ones when it fills a small one. So a client that floods the daemon does not take
//! all large buffers away from others. This module submits no operations.

use ringwise::{BufferGroup, Descriptor, Error, Local, Operation};

const LARGE_COUNT: usize = 64;
pub(super) const LARGE_BYTES: usize = 64 << 10;
const SMALL_COUNT: usize = 256;
pub(super) const SMALL_BYTES: usize = 4 << 10;

/// A thread's buffers.
pub(super) struct Buffers {
    small: BufferGroup,
    large: BufferGroup,
}

/// The size of the buffers that a connection receives into.
#[derive(Clone, Copy)]
pub(super) struct Choice {
    is_large: bool,
    /// Whether the last receive would have fitted into a small buffer.
    was_short: bool,
}

impl Buffers {
    pub(super) fn new(local: &mut Local) -> Result<Buffers, Error> {
        Ok(Buffers {
            small: BufferGroup::new(local, SMALL_COUNT, SMALL_BYTES)?,
            large: BufferGroup::new(local, LARGE_COUNT, LARGE_BYTES)?,
        })
    }

    /// Chooses for a new connection.
    pub(super) fn choose(&self) -> Choice {
        Choice { is_large: !self.are_large_taken(), was_short: false }
    }

    pub(super) fn receive(&self, socket: &Descriptor, choice: Choice) -> Operation {
        Operation::recv_multi(socket, if choice.is_large { &self.large } else { &self.small })
    }

    fn are_large_taken(&self) -> bool {
        self.large.available() < LARGE_COUNT / 2
    }
}

impl Choice {
    /// Learns from the length of a receive. True means that the choice has changed.
    pub(super) fn learn(&mut self, len: usize, buffers: &Buffers) -> bool {
        let is_short = (1..SMALL_BYTES).contains(&len);
        let was_short = std::mem::replace(&mut self.was_short, is_short);
        let changes = if self.is_large {
            // One short receive may only be the end of a long transfer.
            is_short && was_short && buffers.are_large_taken()
        } else {
            len >= SMALL_BYTES
        };
        self.is_large ^= changes;
        changes
    }
}
