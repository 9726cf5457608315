//! `ringwise echo`: sends back what it receives, on io_uring or on epoll, by one set of rules.
//!
//! It exists to compare the two interfaces with nothing else between them: who reads, how much,
//! what is sent when, and when a connection closes is decided by the same code, which knows
//! neither (`connection`). What it does not do: understand what it sends back.
//!
//! Reading order: `args`, `connection` (the rules), `worker` (one thread's loop), `spin` (looking
//! before sleeping), `server` (threads and signals), `descriptors` (their limit), `stats`.

#![forbid(unsafe_code)]

mod args;
mod connection;
mod descriptors;
mod error;
mod server;
mod spin;
mod stats;
mod worker;

pub use args::{Args, EngineChoice};
pub use error::EchoError;
pub use server::run;
