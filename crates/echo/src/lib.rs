//! `ringwise echo`: sends back what it receives, on io_uring or on epoll, by one set of rules.
//!
//! It exists to compare the two interfaces with nothing else between them: who reads, how much,
//! what is sent when, and when a connection closes is decided by the same code, which knows
//! neither (`connection`). But for one connection that is alone while its thread looks for work: it has
//! neither interface, and the thread's own calls (`direct`). What it does not do: understand what it sends back.
//!
//! Reading order: `args`, `connection` (the rules), `worker` (one thread's loop), `spin` (looking
//! before sleeping), `direct` (receiving by that), `stats`. Threads and signals are `ringwise-serve`.

#![forbid(unsafe_code)]

mod args;
mod connection;
mod direct;
mod spin;
mod stats;
mod worker;

use std::{
    io::{self, Write},
    sync::Arc,
};

use ringwise_serve::{Plan, Printer, Server, make_room, signals};

pub use args::Args;
pub use ringwise_serve::{EngineChoice, ServeError as EchoError};

use crate::worker::Worker;

/// Serves until a signal ends it.
///
/// # Errors
///
/// The address cannot be listened on, the engine is not to be had, or a limit is too low.
///
/// A reader of `out` that went away before the address was printed is no error, but ends the server.
pub fn run(args: &Args, out: &mut impl Write) -> Result<(), EchoError> {
    let printer = Printer::start();
    let remarks = printer.clone();
    let plan = Plan {
        name: "echo",
        listen: args.listen,
        listener: None,
        threads: args.threads,
        connections_max: make_room(args.max_connections, args.threads, 0)?,
        engine: args.engine,
        sqpoll: None,
        // A remark is lost if nobody reads them.
        say: Arc::new(move |remark| {
            let _ = remarks.print(&format!("ringwise: echo: {remark}"));
        }),
    };
    let signals = signals(false)?;
    let order = args.clone();
    let server = Server::start(plan, &signals.handle(), move |seat| Worker::new(seat, &order))?;
    let told = writeln!(out, "listening on {}", server.address()).and_then(|()| out.flush());
    match told {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
        told => told.map_err(|error| EchoError::new(format!("standard output: {error}")))?,
    }
    let served = server.serve(signals, || {});
    printer.flush();
    served
}
