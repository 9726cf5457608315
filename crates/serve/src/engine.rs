//! The interface that moves the bytes, as an option of the command.

use clap::ValueEnum;
use ringwise::BackendChoice;

/// The interface that moves the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EngineChoice {
    /// io_uring if it works here, else epoll
    Auto,
    /// io_uring
    Uring,
    /// epoll and classic syscalls
    Epoll,
}

impl EngineChoice {
    /// Returns the library's name for the interface.
    pub fn backend(self) -> BackendChoice {
        match self {
            EngineChoice::Auto => BackendChoice::Auto,
            EngineChoice::Uring => BackendChoice::Uring,
            EngineChoice::Epoll => BackendChoice::Classic,
        }
    }
}
