//! The buffers that the connections of a thread share, small and large ones, and who receives into which.
//!
//! While half of the large ones are taken, who comes or sends little gets small ones until it fills one: those who
//! flood the daemon leave no large buffer for others. It submits nothing.

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

/// Which of them a connection receives into.
#[derive(Clone, Copy)]
pub(super) struct Choice {
    is_large: bool,
    /// Whether what came last would have fitted a small one.
    was_short: bool,
}

impl Buffers {
    pub(super) fn new(local: &mut Local) -> Result<Buffers, Error> {
        Ok(Buffers {
            small: BufferGroup::new(local, SMALL_COUNT, SMALL_BYTES)?,
            large: BufferGroup::new(local, LARGE_COUNT, LARGE_BYTES)?,
        })
    }

    /// For a connection of which nothing is known.
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
    /// Learns from the length of what came. True: another choice is better now.
    pub(super) fn learn(&mut self, len: usize, buffers: &Buffers) -> bool {
        let is_short = (1..SMALL_BYTES).contains(&len);
        let was_short = std::mem::replace(&mut self.was_short, is_short);
        let changes = if self.is_large {
            // Once may be the end of much.
            is_short && was_short && buffers.are_large_taken()
        } else {
            len >= SMALL_BYTES
        };
        self.is_large ^= changes;
        changes
    }
}
