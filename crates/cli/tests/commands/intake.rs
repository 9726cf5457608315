//! Daemons with a port of the intake, and daemons that are killed under load: what is told then has to be there.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr},
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use crate::harness::daemon::{Daemon, connect, rounds, wait_until};

mod again;
mod bodies;
pub mod fluent;
mod http;
pub mod protocols;
mod relp;
mod senders;
mod slow;
mod wrap;

/// The clients of a load.
const CLIENTS: usize = 4;

/// Starts a daemon of one thread with the port of an option; gives its address, which the daemon prints after `told`.
pub fn start(
    (option, told): (&str, &str),
    engine: &str,
    directory: &Path,
    flags: &[&str],
) -> Option<(Daemon, SocketAddr)> {
    start_at("127.0.0.1:0", (option, told), engine, directory, flags)
}

/// The same on another address.
pub fn start_at(
    address: &str,
    (option, told): (&str, &str),
    engine: &str,
    directory: &Path,
    flags: &[&str],
) -> Option<(Daemon, SocketAddr)> {
    let own = ["--dir", directory.to_str().unwrap(), "--threads", "1", option, address];
    let mut daemon = Daemon::launch("logd", engine, &[&own, flags].concat())?;
    let address = next_address(&mut daemon, told);
    Some((daemon, address))
}

/// The address in the next line of a daemon, which begins with `told`.
pub fn next_address(daemon: &mut Daemon, told: &str) -> SocketAddr {
    let line = daemon.line();
    let address = line.trim().strip_prefix(told).and_then(|rest| rest.split('/').next());
    address.unwrap_or_else(|| panic!("{line}")).parse().unwrap()
}

/// All that is answered to bytes, after which nothing more is sent.
pub fn answer(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = connect(address);
    stream.write_all(bytes).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer
}

/// Packs a body.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

/// What a client of a round was answered.
pub struct Told {
    round: usize,
    number: usize,
    pub answered: usize,
}

/// Kills a daemon under the load of four clients when each has `least` answers, `rounds()` times. `load` sends until the
/// daemon is gone, notes its answers, and gives their number. None: there is no ring here.
pub fn kill_under_load<D: Sync>(
    start: impl Fn() -> Option<(Daemon, D)>,
    least: usize,
    load: impl Fn(&(Daemon, D), (usize, usize), &AtomicUsize) -> usize + Sync,
) -> Option<Vec<Told>> {
    let mut all = Vec::new();
    for round in 0..rounds() {
        let daemon = start()?;
        let seen: [AtomicUsize; CLIENTS] = Default::default();
        thread::scope(|scope| {
            let (daemon, load) = (&daemon, &load);
            let clients: Vec<_> = (seen.iter().enumerate())
                .map(|(number, seen)| scope.spawn(move || load(daemon, (round, number), seen)))
                .collect();
            wait_until("answers to all", || {
                seen.iter().all(|count| count.load(Ordering::Relaxed) >= least)
            });
            daemon.0.signal("-KILL");
            for (number, client) in clients.into_iter().enumerate() {
                all.push(Told { round, number, answered: client.join().unwrap() });
            }
        });
    }
    Some(all)
}

/// Checks that the lines of each client are there once and in order, those with an answer and perhaps more. `places` has
/// the round, the client and the number from 0 of each line.
pub fn check_once_and_in_order(
    engine: &str,
    all: &[Told],
    lines_each: usize,
    places: &[(usize, usize, usize)],
) {
    for Told { round, number, answered } in all {
        let own = places.iter().filter(|(own, client, _)| (own, client) == (round, number));
        let found: Vec<usize> = own.map(|(.., line)| *line).collect();
        // What was under way may be there too: whole.
        assert_eq!(found, (0..found.len()).collect::<Vec<_>>(), "{engine}: once and in order");
        let stored = found.len();
        assert!(stored >= answered * lines_each, "{engine}: {answered} answered, {stored} stored");
    }
}

/// The place of the line `[ROUND,CLIENT,NUMBER]`.
pub fn place(line: &str) -> (usize, usize, usize) {
    let [round, client, number] = serde_json::from_str(line).unwrap();
    (round, client, number)
}
