//! The names of engines, on the command line and in results.

use std::fmt;

use super::{
    Engine,
    aio::Aio,
    fio::Fio,
    handle::Ringwise,
    mmap::Mapped,
    sync::Sync,
    threads::Threads,
    tokio::Tokio,
    uring::{Switch, Switches, Uring},
};
use crate::sampling::job::Timing;

/// An engine as it is named on the command line and in results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EngineName {
    /// pread(2) in one thread.
    Sync,
    /// pread(2) in many.
    Threads,
    /// Mapped files, touched by many threads.
    Mmap,
    /// tokio's `spawn_blocking`.
    Tokio,
    /// Linux AIO.
    Aio,
    /// The library's loop.
    Uring(Switches),
    /// The library's files, in tokio.
    Ringwise(Ringwise),
    /// The fio program's io_uring engine.
    Fio {
        /// With registered buffers and files.
        fixed: bool,
    },
}

impl EngineName {
    /// What runs unless engines are named.
    pub const DEFAULT: [EngineName; 7] = [
        EngineName::Sync,
        EngineName::Threads,
        EngineName::Mmap,
        EngineName::Tokio,
        EngineName::Aio,
        EngineName::Ringwise(Ringwise::DEFAULT),
        EngineName::Uring(Switches::DEFAULT),
    ];

    /// Reads a name. None where there is no such engine.
    pub fn parse(text: &str) -> Option<EngineName> {
        Some(match text {
            "sync" => EngineName::Sync,
            "threads" => EngineName::Threads,
            "mmap" => EngineName::Mmap,
            "tokio" => EngineName::Tokio,
            "aio" => EngineName::Aio,
            "fio" => EngineName::Fio { fixed: false },
            "fio+fixed" => EngineName::Fio { fixed: true },
            _ => match text.strip_prefix("ringwise") {
                Some(switches) => EngineName::Ringwise(Ringwise::parse(switches)?),
                None => EngineName::Uring(Switches::parse(text.strip_prefix("uring")?)?),
            },
        })
    }

    /// The engine. `timing` is for those that keep their own time.
    pub fn engine(self, timing: Timing) -> Box<dyn Engine> {
        match self {
            EngineName::Sync => Box::new(Sync),
            EngineName::Threads => Box::new(Threads),
            EngineName::Mmap => Box::new(Mapped),
            EngineName::Tokio => Box::new(Tokio),
            EngineName::Aio => Box::new(Aio),
            EngineName::Uring(switches) => Box::new(Uring { switches }),
            EngineName::Ringwise(engine) => Box::new(engine),
            EngineName::Fio { fixed } => Box::new(Fio { fixed, timing }),
        }
    }

    /// Whether it can have no more than one read in flight.
    pub fn is_single(self) -> bool {
        matches!(self, EngineName::Sync)
    }

    /// Whether it is a ring with a switch on.
    pub fn has(self, switch: Switch) -> bool {
        matches!(self, EngineName::Uring(switches) if switches.has(switch))
    }

    /// Whether it is the library's files in tokio.
    pub fn is_handle(self) -> bool {
        matches!(self, EngineName::Ringwise(_))
    }

    /// Whether it is a ring of one thread.
    pub fn is_uring(self) -> bool {
        matches!(self, EngineName::Uring(_))
    }
}

impl fmt::Display for EngineName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EngineName::Sync => f.write_str("sync"),
            EngineName::Threads => f.write_str("threads"),
            EngineName::Mmap => f.write_str("mmap"),
            EngineName::Tokio => f.write_str("tokio"),
            EngineName::Aio => f.write_str("aio"),
            EngineName::Uring(switches) => write!(f, "uring{switches}"),
            EngineName::Ringwise(switches) => write!(f, "ringwise{switches}"),
            EngineName::Fio { fixed: false } => f.write_str("fio"),
            EngineName::Fio { fixed: true } => f.write_str("fio+fixed"),
        }
    }
}
