//! What `echo` compares: servers, and under which load.

use std::{fmt, net::SocketAddr};

use crate::{
    args::Args,
    error::LabError,
    plan::{
        rate::{self, Auto},
        typed::{add_targets, connections, length, list, unknown},
    },
};

/// The most connections at a time.
const CONNECTIONS_MAX: u64 = 100_000;

/// What `echo` compares.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EchoPlan {
    /// The servers.
    pub servers: Vec<EchoServer>,
    /// Connections at a time.
    pub connections: Vec<usize>,
    /// Bytes of a message.
    pub lengths: Vec<usize>,
    /// Requests per second over all connections; none is a closed loop.
    pub rates: Vec<Option<u64>>,
    /// When a closed loop is followed by a fixed rate that it gives.
    pub auto: Auto,
}

/// An echo server.
#[derive(Clone, Debug, PartialEq)]
pub enum EchoServer {
    /// `ringwise echo` on a ring: with the spin that it comes with, another, or none.
    Uring(Spin),
    /// `ringwise echo` on classic calls.
    Epoll,
    /// A task of tokio for each connection.
    Tokio,
    /// A thread for each connection.
    Blocking,
    /// node, `socket.pipe(socket)`.
    Node,
    /// One that is running already.
    Target {
        /// What it is called.
        name: String,
        /// Where it is.
        address: SocketAddr,
    },
}

/// How long `ringwise echo` looks for work before it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spin {
    /// As it comes.
    Default,
    /// 50 microseconds.
    On,
    /// Not at all.
    Off,
}

impl EchoServer {
    /// The servers that are compared where none is named.
    pub const DEFAULT: [EchoServer; 6] = [
        EchoServer::Uring(Spin::Default),
        EchoServer::Uring(Spin::Off),
        EchoServer::Epoll,
        EchoServer::Tokio,
        EchoServer::Blocking,
        EchoServer::Node,
    ];
    const NAMES: &str = "uring, uring+spin, uring-spin, epoll, tokio, blocking, node";

    fn parse(text: &str) -> Result<EchoServer, LabError> {
        Ok(match text {
            "uring" => EchoServer::Uring(Spin::Default),
            "uring+spin" => EchoServer::Uring(Spin::On),
            "uring-spin" => EchoServer::Uring(Spin::Off),
            "epoll" => EchoServer::Epoll,
            "tokio" => EchoServer::Tokio,
            "blocking" => EchoServer::Blocking,
            "node" => EchoServer::Node,
            _ => return Err(unknown("--engines", text, EchoServer::NAMES)),
        })
    }
}

impl fmt::Display for EchoServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EchoServer::Uring(Spin::Default) => "uring",
            EchoServer::Uring(Spin::On) => "uring+spin",
            EchoServer::Uring(Spin::Off) => "uring-spin",
            EchoServer::Epoll => "epoll",
            EchoServer::Tokio => "tokio",
            EchoServer::Blocking => "blocking",
            EchoServer::Node => "node",
            EchoServer::Target { name, .. } => name,
        })
    }
}

impl EchoPlan {
    /// Checks what was typed.
    pub(super) fn new(args: &Args) -> Result<EchoPlan, LabError> {
        let mut servers = match args.engines.as_deref() {
            Some(text) => list(text, EchoServer::parse)?,
            // Enough for a verdict; the rest is for `lab echo`.
            None if args.workload.is_none() && !args.full => {
                vec![EchoServer::Uring(Spin::Default), EchoServer::Epoll, EchoServer::Tokio]
            }
            None => EchoServer::DEFAULT.to_vec(),
        };
        add_targets(&mut servers, &args.target, |name, address| EchoServer::Target {
            name,
            address,
        })?;
        let counts = match args.connections.as_deref() {
            Some(text) => text,
            None if args.workload.is_none() && !args.full => "1,50",
            None => "1,2,50,1000",
        };
        let lengths = match args.length.as_deref() {
            Some(text) => text,
            None if args.full => "64,512,4k,64k",
            None => "64",
        };
        let (rates, auto) = match args.rate.as_deref() {
            Some(text) => rate::loads(text)?,
            None => (vec![None], Auto::IfClientBound),
        };
        Ok(EchoPlan {
            servers,
            connections: connections(counts, CONNECTIONS_MAX)?,
            lengths: list(lengths, |text| length(text, 1))?,
            rates,
            auto,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(change: impl FnOnce(&mut Args)) -> Result<EchoPlan, LabError> {
        let mut args = Args { workload: Some("echo".into()), ..Args::default() };
        change(&mut args);
        EchoPlan::new(&args)
    }

    #[test]
    fn nothing_typed_is_all_servers_at_four_counts() {
        let quick = plan(|_| {}).unwrap();
        assert_eq!((quick.servers.len(), &quick.lengths[..]), (6, &[64][..]));
        assert_eq!(quick.connections, [1, 2, 50, 1000]);
        assert_eq!(plan(|args| args.full = true).unwrap().lengths, [64, 512, 4096, 65_536]);
    }

    #[test]
    fn names_read_back() {
        for server in EchoServer::DEFAULT.iter().chain([&EchoServer::Uring(Spin::On)]) {
            assert_eq!(EchoServer::parse(&server.to_string()).unwrap(), *server);
        }
        let named = plan(|args| args.target = vec!["c=127.0.0.1:7".into(), "[::1]:8".into()]);
        let names: Vec<String> =
            named.unwrap().servers[6..].iter().map(EchoServer::to_string).collect();
        assert_eq!(names, ["c", "[::1]:8"]);
    }

    #[test]
    fn a_closed_loop_gives_a_rate_if_none_was_typed_or_it_was_asked_for() {
        let of = |rate: Option<&str>| {
            let plan = plan(|args| args.rate = rate.map(str::to_owned)).unwrap();
            (plan.rates.clone(), plan.auto.connections(&plan.connections).collect::<Vec<_>>())
        };
        assert_eq!(of(None), (vec![None], vec![50, 1000]));
        assert_eq!(of(Some("max")), (vec![None], vec![]));
        assert_eq!(of(Some("60000,max")), (vec![Some(60_000), None], vec![]));
        assert_eq!(of(Some("auto")), (vec![None], vec![1, 2, 50, 1000]));
        assert_eq!(of(Some("max,9,auto")), (vec![None, Some(9)], vec![1, 2, 50, 1000]));
    }

    #[test]
    fn bad_input_is_named_with_what_is_accepted() {
        let refused = |change: fn(&mut Args)| plan(change).unwrap_err().to_string();
        for (text, parts) in [
            (
                refused(|a| a.engines = Some("sync".into())),
                ["--engines: invalid value 'sync'", "blocking"],
            ),
            (
                refused(|a| a.connections = Some("0".into())),
                ["--connections: invalid value '0'", "1 to 100000"],
            ),
            (
                refused(|a| a.length = Some("1x".into())),
                ["--length: invalid value '1x'", "k, m, g or t"],
            ),
            (refused(|a| a.length = Some("0".into())), ["--length: invalid value '0'", "1 to 16m"]),
            (
                refused(|a| a.rate = Some("fast".into())),
                ["--rate: invalid value 'fast'", "1 to 100000000, max or auto"],
            ),
            (
                refused(|a| a.target = vec!["x".into()]),
                ["--target: invalid value 'x'", "NAME=IP:PORT"],
            ),
            (refused(|a| a.target = vec!["=[::1]:8".into()]), ["--target", "NAME=IP:PORT"]),
            (refused(|a| a.target = vec!["epoll=[::1]:8".into()]), ["--target", "taken"]),
        ] {
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        }
    }
}
