//! The names of engines, on the command line and in results.
//!
//! A new engine is a file that implements [`Named`] and a line in the table below.

use std::fmt;

use super::{
    Engine, Named,
    aio::Aio,
    fio::Way,
    handle::Ringwise,
    mmap::Mapped,
    sync::Sync,
    threads::Threads,
    tokio::Tokio,
    uring::{Switch, Switches},
};
use crate::sampling::job::Timing;

/// Makes [`EngineName`] from the table of engines: what runs unless engines are named, and the others.
macro_rules! engines {
    (default { $($(#[$own:meta])* $default:ident($own_type:ty) = $own_text:literal,)* }
     named { $($(#[$other:meta])* $named:ident($type:ty) = $text:literal,)* }) => {
        /// An engine as it is named on the command line and in results.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum EngineName {
            $($(#[$own])* $default($own_type),)*
            $($(#[$other])* $named($type),)*
        }

        impl EngineName {
            /// What runs unless engines are named.
            pub const DEFAULT: &[EngineName] = &[$(EngineName::$default(<$own_type>::DEFAULT)),*];

            /// The names without switches.
            pub const FAMILIES: &[&str] = &[$($own_text,)* $($text,)*];

            /// Reads a name. None where there is no such engine.
            pub fn parse(text: &str) -> Option<EngineName> {
                $(if let Some(own) = text.strip_prefix($own_text).and_then(<$own_type>::parse) {
                    return Some(EngineName::$default(own));
                })*
                $(if let Some(own) = text.strip_prefix($text).and_then(<$type>::parse) {
                    return Some(EngineName::$named(own));
                })*
                None
            }

            /// The engine. `timing` is for those that keep their own time.
            pub fn engine(self, timing: Timing) -> Box<dyn Engine> {
                match self {
                    $(EngineName::$default(own) => own.engine(timing),)*
                    $(EngineName::$named(own) => own.engine(timing),)*
                }
            }

            /// Whether it can have no more than one read in flight.
            pub fn is_single(self) -> bool {
                match self {
                    $(EngineName::$default(_) => <$own_type>::IS_SINGLE,)*
                    $(EngineName::$named(_) => <$type>::IS_SINGLE,)*
                }
            }
        }

        impl fmt::Display for EngineName {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(EngineName::$default(own) => { f.write_str($own_text)?; own.write(f) })*
                    $(EngineName::$named(own) => { f.write_str($text)?; own.write(f) })*
                }
            }
        }
    };
}

engines! {
    default {
        /// pread(2) in one thread.
        Sync(Sync) = "sync",
        /// pread(2) in many.
        Threads(Threads) = "threads",
        /// Mapped files, touched by many threads.
        Mmap(Mapped) = "mmap",
        /// tokio's `spawn_blocking`.
        Tokio(Tokio) = "tokio",
        /// Linux AIO.
        Aio(Aio) = "aio",
        /// The library's files, in tokio.
        Ringwise(Ringwise) = "ringwise",
        /// The library's loop.
        Uring(Switches) = "uring",
    }
    named {
        /// The fio program's io_uring engine.
        Fio(Way) = "fio",
    }
}

impl EngineName {
    /// Whether it is the library's files in tokio.
    pub fn is_handle(self) -> bool {
        matches!(self, EngineName::Ringwise(_))
    }

    /// Whether it is a ring with a switch on.
    pub fn has(self, switch: Switch) -> bool {
        matches!(self, EngineName::Uring(switches) if switches.has(switch))
    }

    /// Whether it is a ring of one thread.
    pub fn is_uring(self) -> bool {
        matches!(self, EngineName::Uring(_))
    }
}
