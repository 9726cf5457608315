//! A connection from its first byte to its end, and the memory that it holds. Nothing here does I/O.

pub(crate) mod connection;
pub(crate) mod tls;
pub(crate) mod unfinished;
