//! `ringwise echo` and very many connections, or very unkind ones: what an idle one costs, whether
//! descriptors leak, whether one that is stopped or vanishes is noticed by the others.
//!
//! `RINGWISE_CONNECTIONS` says how many; without it few enough for every day.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpStream},
    thread,
    time::{Duration, Instant},
};

use crate::harness::daemon;
use crate::harness::deaf;
use crate::harness::load;
use crate::harness::siege;

use daemon::{Daemon, ENGINES, count, wait_until};
use deaf::deafen;
use load::{ECHO, latency_ns};
use siege::{Episodes, Held, starve};

/// What a test is to do, or as many as the environment says.
fn connections(few: usize) -> usize {
    let wanted = std::env::var("RINGWISE_CONNECTIONS").ok();
    wanted.map_or(few, |count| count.parse().expect("RINGWISE_CONNECTIONS is a number"))
}

/// Beyond what the kernel holds for it: nobody's buffers wait for bytes that do not come.
#[test]
fn an_idle_connection_costs_less_than_a_kibibyte() {
    // Of each open descriptor the generator has one and the server has one.
    let hard = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let idle =
        connections(hard.map_or(10_000, |most| most.saturating_sub(300).min(10_000)) as usize);
    for engine in ENGINES {
        let most = (idle + 100).to_string();
        let flags = ["--max-connections", &most];
        let Some(server) = Daemon::launch("echo", engine, &flags) else { continue };
        let pid = server.child.id();
        // 50 that send beside them, of which no byte is lost.
        let arguments =
            format!("-c 50 -l 64 -t 300ms --mode idle --idle {idle} --server-pid {pid}");
        let result = ECHO.good(server.address, &arguments);
        let bytes = result["server"]["bytes_per_idle_connection"].as_f64().unwrap();
        println!("{engine}: {bytes:.0} B for each of {idle} idle connections");
        assert!(bytes < 1024.0, "{engine}: {bytes} B for each idle connection");
        assert_eq!(result["connections_made"], idle + 50);
        assert_eq!(count(&server.end(), "broken"), 0);
    }
}

#[test]
fn resets_and_early_ends_leave_no_descriptor() {
    let rounds = connections(5000);
    for engine in ENGINES {
        let Some(server) = Daemon::launch("echo", engine, &[]) else { continue };
        ping(&mut server.connect(), 64).unwrap();
        wait_until("the first connection closes", || server.open_descriptors() < 16);
        let before = server.open_descriptors();
        for round in 0..rounds {
            let mut stream = server.connect();
            stream.write_all(&[round as u8; 100]).unwrap();
            match round % 3 {
                // With unread bytes in it the socket closes by a reset.
                0 => drop(stream),
                1 => stream.shutdown(Shutdown::Both).unwrap(),
                _ => stream.read_exact(&mut [0; 100]).unwrap(),
            }
        }
        wait_until("all connections close", || server.open_descriptors() <= before);
        ping(&mut server.connect(), 64).unwrap();
        let output = server.end();
        assert_eq!(count(&output, "connections accepted"), rounds as u64 + 2, "{output}");
        assert_eq!(count(&output, "open"), 0, "{output}");
    }
}

fn ping(stream: &mut TcpStream, len: usize) -> std::io::Result<()> {
    stream.write_all(&vec![7; len])?;
    stream.read_exact(&mut vec![0; len])
}

/// One that sends as much as it can and reads nothing, as a process that was stopped.
#[test]
fn others_do_not_notice_one_that_is_stopped() {
    const PINGERS: &str = "-c 50 -l 64 -t 400ms";
    for engine in ENGINES {
        let Some(mut server) = Daemon::launch("echo", engine, &[]) else { continue };
        let alone_ns = latency_ns(&ECHO.alone().good(server.address, PINGERS), "p99");
        let mut stopped = server.connect();
        stopped.set_nonblocking(true).unwrap();
        let mut told = BufReader::new(server.child.stderr.take().unwrap());
        // Full on all sides, which only the server knows: a machine that is busy with other things
        // leaves it without a turn for long.
        wait_until("the server takes no more of it", || {
            while stopped.write(&[1; 1 << 16]).is_ok() {}
            server.signal("-USR1");
            let mut line = String::new();
            told.read_line(&mut line).unwrap();
            count(&line, "senders stopped") > 0
        });
        // A machine that is busy with other things stalls both sides by itself now and then; who
        // waits for the one that is stopped waits every time.
        let most_ns = (5 * alone_ns).max(50_000_000);
        let mut beside_ns = Vec::new();
        let is_unnoticed = (0..5).any(|_| {
            beside_ns.push(latency_ns(&ECHO.alone().good(server.address, PINGERS), "p99"));
            beside_ns.last() < Some(&most_ns)
        });
        println!("{engine}: p99 {alone_ns} ns alone, {beside_ns:?} ns beside one that is stopped");
        assert!(is_unnoticed, "{engine}: {beside_ns:?} ns, and {alone_ns} ns alone");
    }
}

/// Silent, or with an echo that nobody acknowledges; who is merely silent stays.
#[test]
fn who_vanishes_is_found_out() {
    // Both at once: it takes seconds, of which next to none are a processor's.
    thread::scope(|scope| {
        for engine in ENGINES {
            scope.spawn(move || vanish_from(engine));
        }
    });
}

fn vanish_from(engine: &str) {
    let Some(server) = Daemon::launch("echo", engine, &["--patience", "2s"]) else { return };
    let [mut stays, mut silent, mut unanswering] = [(); 3].map(|()| server.connect());
    for stream in [&mut stays, &mut silent, &mut unanswering] {
        ping(stream, 64).unwrap();
    }
    let before = server.open_descriptors();
    deafen(&silent);
    deafen(&unanswering);
    unanswering.write_all(b"lost").unwrap();
    wait_until("both are given up", || server.open_descriptors() == before - 2);
    ping(&mut stays, 64).unwrap();
    let output = server.end();
    assert_eq!(count(&output, "broken"), 2, "{output}");
}

/// Hostile clients of every kind at once, and accepts that fail, for as long as RINGWISE_SOAK_SECONDS says: honest
/// clients get their bytes back, memory stays bounded, and when the hostile ones have gone no descriptor and no
/// thread is left of them.
#[test]
#[ignore = "slow: bash .ci/scheduled slow"]
fn a_long_siege_changes_nothing() {
    for engine in ENGINES {
        let flags = ["--threads", "2", "--max-connections", "200"];
        let Some(server) = Daemon::launch("echo", engine, &flags) else { continue };
        let mut honest: Vec<TcpStream> = (0..3).map(|_| server.connect()).collect();
        honest.iter_mut().for_each(|stream| ping(stream, 64).unwrap());
        let held = Held::now(&server);
        let until = Instant::now() + siege::duration();
        let missing = &Episodes::default();
        let most_kib = thread::scope(|scope| {
            scope.spawn(|| starve(&server, until, missing));
            siege::attack(scope, &server, siege::ATTACKS.into_iter().cycle().take(10), until);
            let stay = move |stream: &mut TcpStream| {
                let mut times = Vec::new();
                while Instant::now() < until {
                    times.extend(missing.time(|| echo_random(stream)));
                }
                times
            };
            let staying: Vec<_> =
                (honest.iter_mut()).map(|stream| scope.spawn(move || stay(stream))).collect();
            // Who comes waits while there is no descriptor, and is served.
            let coming = scope.spawn(|| {
                let mut times = Vec::new();
                while Instant::now() < until {
                    times.extend(missing.time(|| echo_random(&mut server.connect())));
                }
                times
            });
            let most_kib = siege::most_kib(&server, until);
            let times: Vec<Duration> =
                staying.into_iter().flat_map(|one| one.join().unwrap()).collect();
            siege::assert_fast(&format!("{engine}, honest clients that stay"), times);
            let times = coming.join().unwrap();
            siege::assert_fast(&format!("{engine}, honest clients that come"), times);
            most_kib
        });
        let took = held.wait_for_return(&server);
        println!("{engine}: {} MiB at most, {held:?} again after {took:?}", most_kib >> 10);
        assert!(most_kib < 64 << 10, "{engine}: {most_kib} KiB");
        honest.iter_mut().for_each(|stream| ping(stream, 64).unwrap());
        drop(honest);
        let output = server.end();
        assert!(
            count(&output, "accepts failed") > 0,
            "no accept failed: the test proves nothing: {output}"
        );
    }
}

/// Random bytes come back.
fn echo_random(stream: &mut TcpStream) {
    let bytes: Vec<u8> = (0..fastrand::usize(1..5000)).map(|_| fastrand::u8(..)).collect();
    stream.write_all(&bytes).unwrap();
    let mut back = vec![0; bytes.len()];
    stream.read_exact(&mut back).unwrap();
    assert!(back == bytes, "other bytes came back");
}
