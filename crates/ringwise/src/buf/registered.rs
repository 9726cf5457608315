//! What a ring has registered of pools and groups: memory that lives as long as the registration, and
//! is given up when its last user has gone.
//!
//! The loop keeps the memory, and each of its users (pool or group, leases, operations in flight) holds
//! a [`Registered`] between them. When that is dropped nobody can name the memory to the kernel any
//! more, so the loop takes it out of the ring the next time that it is driven (invariant 13).

pub(crate) mod group;
pub(crate) mod pool;
mod region;

use std::{
    any::Any,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::sync::lock;

/// Names what is registered to its ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// The entry of the table of buffers that a pool has.
    Pool(u16),
    /// The number that a group has with the kernel.
    Group(u16),
}

/// The memory of a registration, as the loop keeps it.
pub(crate) type Memory = Arc<dyn Any + Send + Sync>;

/// The registrations of one loop.
#[derive(Default)]
pub(crate) struct Registrations {
    kept: Vec<(Token, Memory)>,
    board: Arc<Board>,
}

/// Where users leave word that they have gone.
#[derive(Debug, Default)]
struct Board {
    is_written: AtomicBool,
    unused: Mutex<Vec<Token>>,
}

/// Held by the users of a registration.
#[derive(Debug)]
pub(crate) struct Registered {
    token: Token,
    board: Arc<Board>,
}

impl Registrations {
    /// Keeps the memory of what was registered just now; gives what its users hold.
    pub(crate) fn keep(&mut self, token: Token, memory: Memory) -> Registered {
        self.kept.push((token, memory));
        Registered { token, board: self.board.clone() }
    }

    /// Whether something has lost its users.
    #[inline]
    pub(crate) fn has_unused(&self) -> bool {
        self.board.is_written.load(Ordering::Relaxed)
    }

    /// What has lost its users since this was asked last.
    pub(crate) fn take_unused(&self) -> Vec<Token> {
        let mut unused = lock(&self.board.unused);
        self.board.is_written.store(false, Ordering::Relaxed);
        std::mem::take(&mut *unused)
    }

    /// The ring has let go of it.
    pub(crate) fn forget(&mut self, token: Token) {
        self.kept.retain(|(kept, _)| *kept != token);
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut unused = lock(&self.board.unused);
        unused.push(self.token);
        self.board.is_written.store(true, Ordering::Relaxed);
    }
}

impl fmt::Debug for Registrations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.kept.iter().map(|(token, _)| token)).finish()
    }
}
