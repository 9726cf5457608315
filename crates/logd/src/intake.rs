//! `--http-intake`: lines by HTTP requests, answered when they are stored.
//!
//! Most programs can send HTTP, and few speak the daemon's own protocol. A tokio runtime serves the connections (`server`).
//! The depot, a thread, validates and stores the lines, by the rules and the storage of all other connections, on
//! a `ringwise::Ring` that the runtime drives. It has a stream of its own, after those of the daemon's threads.
//!
//! It does not number lines: a client that got no answer sends the request again, and its lines may then be stored twice.

mod answer;
mod depot;
mod flights;
mod request;
mod server;
mod watched;

pub(crate) use depot::Parts;
pub(crate) use server::{Counts, Intake, Order};
