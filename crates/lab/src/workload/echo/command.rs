//! Echo servers: how each is started.

use std::process::Command;

use super::plan::{EchoServer, Spin};
use crate::{
    sampling::job::Failure,
    workload::under_load::server::{Announced, Server, own},
};

/// The usual echo server of node; it ends with the lab.
const NODE: &str = "\
const server = require('net').createServer((socket) => {
  socket.on('error', () => {});
  socket.setNoDelay(true);
  socket.pipe(socket);
});
server.listen({ host: '127.0.0.1', port: 0, backlog: 4096 }, () => {
  console.log('listening on 127.0.0.1:' + server.address().port);
});
process.stdin.on('end', () => process.exit()).resume();
";

/// Starts a server on a processor. One that is running already is only looked for. At a fixed rate `ringwise echo` does
/// not spin by default: a spin takes what the requests leave of the processor, on a ring as on classic calls.
///
/// # Errors
///
/// [`Failure::Unavailable`], with what it said.
pub(super) fn start(
    server: &EchoServer,
    processor: usize,
    connections: usize,
    is_at_rate: bool,
) -> Result<Server, Failure> {
    if let EchoServer::Target { address, .. } = server {
        return Server::running(*address, processor);
    }
    let command = command(server, connections, is_at_rate).map_err(Failure::Unavailable)?;
    Server::start(command, processor, Announced::Printed)
}

fn command(server: &EchoServer, connections: usize, is_at_rate: bool) -> Result<Command, String> {
    let default_spin = is_at_rate.then_some("0");
    let builtin = |name: &str| {
        let mut command = own()?;
        command.args(["lab", "--child-server", name]);
        Ok(command)
    };
    let echo = |engine: &str, spin: Option<&str>| {
        let mut command = own()?;
        command.args(["echo", "--listen", "127.0.0.1:0", "--threads", "1", "--engine", engine]);
        // The first connection of some clients is a trial.
        command.args(["--max-connections", &(connections + 64).to_string()]);
        command.args(spin.into_iter().flat_map(|spin| ["--spin", spin]));
        Ok(command)
    };
    match server {
        EchoServer::Uring(Spin::Default) => echo("uring", default_spin),
        EchoServer::Uring(Spin::On) => echo("uring", Some("50")),
        EchoServer::Uring(Spin::Off) => echo("uring", Some("0")),
        EchoServer::Epoll => echo("epoll", default_spin),
        EchoServer::Tokio => builtin("tokio"),
        EchoServer::Blocking => builtin("blocking"),
        EchoServer::Node => {
            let mut command = Command::new("node");
            command.args(["-e", NODE]);
            Ok(command)
        }
        EchoServer::Target { .. } => unreachable!("it is running already"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_a_fixed_rate_only_a_spin_that_was_asked_for_spins() {
        let spin = |server: &EchoServer, is_at_rate: bool| {
            let command = command(server, 50, is_at_rate).unwrap();
            let arguments = command.get_args().map(|own| own.to_string_lossy().into_owned());
            let arguments: Vec<String> = arguments.collect();
            let at = arguments.iter().position(|own| own == "--spin")?;
            Some(arguments[at + 1].clone())
        };
        for (server, closed_loop, at_rate) in [
            (EchoServer::Uring(Spin::Default), None, Some("0")),
            (EchoServer::Epoll, None, Some("0")),
            (EchoServer::Uring(Spin::On), Some("50"), Some("50")),
            (EchoServer::Uring(Spin::Off), Some("0"), Some("0")),
        ] {
            assert_eq!(spin(&server, false).as_deref(), closed_loop, "{server}");
            assert_eq!(spin(&server, true).as_deref(), at_rate, "{server}");
        }
    }
}
