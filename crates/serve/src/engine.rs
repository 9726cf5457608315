//! Which interface moves the bytes, as it is typed.

use clap::ValueEnum;
use ringwise::BackendChoice;

/// Which interface moves the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EngineChoice {
    /// A ring where one works, else epoll
    Auto,
    /// io_uring
    Uring,
    /// epoll and plain calls
    Epoll,
}

impl EngineChoice {
    /// The library's name for it.
    pub fn backend(self) -> BackendChoice {
        match self {
            EngineChoice::Auto => BackendChoice::Auto,
            EngineChoice::Uring => BackendChoice::Uring,
            EngineChoice::Epoll => BackendChoice::Classic,
        }
    }
}
