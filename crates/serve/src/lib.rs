//! What a server of this project has around its protocol: a thread for each loop, listeners that
//! share a port, a limit of connections and of descriptors, signals, statistics on demand, an end.
//!
//! It exists so that `echo` and `logd` have one of each. What it does not do: receive, send, or
//! know what a connection says.
//!
//! Reading order: `engine` (what moves bytes), `descriptors` (their limit), `places` (how
//! many may be open), `seat` (what a worker is given), `door` (who comes in), `panel` (what workers are
//! asked), `printer` (standard error), `server` (threads, signals).

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
pub use door::Door;
pub use engine::EngineChoice;
pub use error::ServeError;
pub use panel::{Ear, Panel, Request};
pub use printer::Printer;
pub use seat::{Seat, loop_room};
pub use server::{Plan, Server, Worker, signals};
