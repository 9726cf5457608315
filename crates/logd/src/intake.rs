//! `--http-intake`: lines by HTTP requests, answered when they are stored.
//!
//! Most programs can send HTTP, and few speak the daemon's own protocol. A tokio runtime (`server`) accepts connections
//! (`listener`) and serves them by what is spoken on their port (`http`). The depot, a thread, validates and stores the
//! lines, by the rules and the storage of all other connections, on a `ringwise::Ring` that the runtime drives. It has a
//! stream of its own, after those of the daemon's threads.
//!
//! It does not number lines: a client that got no answer sends the request again, and its lines may then be stored twice.

mod depot;
mod flights;
pub(crate) mod http;
mod listener;
mod server;
mod shared;

pub(crate) use depot::Parts;
pub(crate) use server::{Intake, Order};
