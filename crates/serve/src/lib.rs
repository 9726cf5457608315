//! The common part of this project's servers: a thread for each loop, listeners that share a port, limits of
//! connections and descriptors, signals, statistics on demand, and the end of the server.
//!
//! It exists so that `echo` and `logd` share one implementation. It does not receive or send, and does not know the
//! protocol.
//!
//! Reading order: `engine` (the interface that moves bytes), `descriptors` (their limit), `places` (the limit of open
//! connections), `seat` (the input of a worker), `door` (accepting), `panel` (requests to workers), `printer` (standard
//! error), `server` (threads, signals).

#![forbid(unsafe_code)]

mod descriptors;
mod door;
mod engine;
mod error;
mod panel;
mod places;
mod printer;
mod seat;
mod server;

pub use descriptors::make_room;
pub use door::{Door, give_up_after};
pub use engine::EngineChoice;
pub use error::ServeError;
pub use panel::{Ear, Panel, Request};
pub use printer::Printer;
pub use seat::{Seat, listen_remedy, loop_room};
pub use server::{Plan, Server, Worker, signals};
