//! `ringwise echo` from outside: what it sends back, to whom, and how it ends. Every test runs on
//! each engine; the ring is skipped with a reason where there is none, and never in CI.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpStream},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::harness::daemon;

use daemon::{Daemon, ENGINES, count};

/// Starts a server; nothing where this machine has no ring.
fn start(engine: &str, flags: &[&str]) -> Option<Daemon> {
    Daemon::launch("echo", engine, flags)
}

/// Bytes of which no two places look alike.
fn pattern(len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 24) as u8
    };
    (0..len).map(next).collect()
}

fn ping(stream: &mut TcpStream, bytes: &[u8]) {
    stream.write_all(bytes).unwrap();
    let mut echoed = vec![0; bytes.len()];
    stream.read_exact(&mut echoed).unwrap();
    assert!(echoed == bytes, "other bytes came back");
}

#[test]
fn every_byte_comes_back_in_order() {
    for engine in ENGINES {
        for spin in ["0", "50"] {
            let Some(server) = start(engine, &["--spin", spin]) else { continue };
            thread::scope(|scope| {
                for client in 0..8 {
                    let server = &server;
                    scope.spawn(move || {
                        let mut stream = server.connect();
                        for round in 0..50 {
                            let len = 1 << (round % 15);
                            ping(&mut stream, &pattern(len, client * 100 + round));
                        }
                    });
                }
            });
            let output = server.end();
            let bytes = 8 * (0..50).map(|round| 1_u64 << (round % 15)).sum::<u64>();
            assert_eq!(count(&output, "bytes received"), bytes, "{output}");
            assert_eq!(count(&output, "sent by"), bytes, "{output}");
        }
    }
}

/// Rounds with a pause before each, in which a server that looks for work looks in vain: one that shares
/// a processor with its client would otherwise find each request there and never have to look.
fn paced_rounds(stream: &mut TcpStream, count: u32) {
    for round in 0..count {
        thread::sleep(Duration::from_micros(200));
        ping(stream, &pattern(1 + round as usize * 7, round));
    }
}

/// A connection that is alone is received from while its thread looks for work, and as all are when it
/// sleeps or another one comes.
#[test]
#[ignore = "slow: bash .ci/scheduled slow"]
fn one_that_is_alone_is_received_from_by_looking() {
    for engine in ENGINES {
        let Some(server) = start(engine, &["--spin", "10ms"]) else { continue };
        let mut first = server.connect();
        paced_rounds(&mut first, 400);
        let mut second = server.connect();
        for round in 0..100 {
            ping(&mut first, &pattern(500, round));
            ping(&mut second, &pattern(500, !round));
        }
        drop(first);
        paced_rounds(&mut second, 400);
        // Long enough for it to sleep.
        thread::sleep(Duration::from_millis(50));
        paced_rounds(&mut second, 400);
        // More than the sockets hold, and nobody reads: it has to stop receiving, and to go on.
        let much = pattern(16 << 20, 5);
        thread::scope(|scope| {
            let mut writer = second.try_clone().unwrap();
            let written = scope.spawn({
                let much = &much;
                move || writer.write_all(much).unwrap()
            });
            thread::sleep(Duration::from_millis(100));
            let mut back = vec![0; much.len()];
            second.read_exact(&mut back).unwrap();
            assert!(back == much, "other bytes came back");
            written.join().unwrap();
        });
        paced_rounds(&mut second, 400);
        second.shutdown(Shutdown::Write).unwrap();
        assert_eq!(second.read_to_end(&mut Vec::new()).unwrap(), 0);
        drop(second);
        let mut third = server.connect();
        paced_rounds(&mut third, 400);
        // With bytes unread a close is a reset.
        third.write_all(b"unread").unwrap();
        third.peek(&mut [0]).unwrap();
        drop(third);
        let mut last = server.connect();
        paced_rounds(&mut last, 400);
        drop(last);
        let output = server.end();
        let direct = count(&output, "of them by spinning");
        assert!(direct >= 1000, "{engine}: {output}");
        assert_eq!(count(&output, "broken"), 1, "{output}");
        let bytes = [count(&output, "bytes received"), count(&output, "sent by")];
        assert_eq!(bytes[0], bytes[1], "{output}");
    }
}

/// However it is received from, nobody's answers are held without bound.
#[test]
fn one_that_is_alone_and_does_not_read_is_stopped() {
    for engine in ENGINES {
        let Some(server) = start(engine, &["--spin", "10ms"]) else { continue };
        let mut stream = server.connect();
        paced_rounds(&mut stream, 400);
        stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        let bytes = pattern(1 << 20, 3);
        assert!((0..64).any(|_| stream.write_all(&bytes).is_err()), "{engine} takes all there is");
        drop(stream);
        let output = server.end();
        assert!(count(&output, "of them by spinning") > 0, "{output}");
        assert!(count(&output, "senders stopped") >= 1, "{output}");
    }
}

#[test]
fn more_than_the_socket_holds_comes_back_whole() {
    for engine in ENGINES {
        let Some(server) = start(engine, &[]) else { continue };
        let sent = pattern(16 << 20, 7);
        let mut stream = server.connect();
        let mut writer = stream.try_clone().unwrap();
        let received = thread::scope(|scope| {
            let sent = &sent;
            scope.spawn(move || {
                writer.write_all(sent).unwrap();
                // The end of input: all that is on its way still comes back.
                writer.shutdown(Shutdown::Write).unwrap();
            });
            let mut received = Vec::new();
            stream.read_to_end(&mut received).unwrap();
            received
        });
        assert!(received == sent, "{} bytes of {} came back", received.len(), sent.len());
        server.end();
    }
}

#[test]
fn who_does_not_read_holds_up_nobody() {
    for engine in ENGINES {
        let Some(server) = start(engine, &[]) else { continue };
        let bytes = pattern(1 << 20, 3);
        // More of them than the shared buffers could serve if they kept any.
        let mut stuck: Vec<TcpStream> = (0..20).map(|_| server.connect()).collect();
        stuck.iter().for_each(|stream| stream.set_nonblocking(true).unwrap());
        // Until the server takes no more.
        let mut quiet_since = Instant::now();
        while quiet_since.elapsed() < Duration::from_millis(500) {
            for stream in &mut stuck {
                while stream.write(&bytes).is_ok() {
                    quiet_since = Instant::now();
                }
            }
            thread::sleep(Duration::from_millis(5));
        }
        let mut stream = server.connect();
        for round in 0..500 {
            ping(&mut stream, &pattern(64, round));
        }
        drop((stuck, stream));
        let output = server.end();
        assert!(count(&output, "senders stopped") >= 20, "{output}");
    }
}

/// Of several threads, where the kernel chooses to which a connection goes: who waits at one is let in
/// when another has room.
#[test]
fn beyond_the_limit_connections_wait() {
    for (engine, threads) in ENGINES.into_iter().flat_map(|engine| [(engine, "1"), (engine, "3")]) {
        let flags = ["--max-connections", "2", "--threads", threads];
        let Some(server) = start(engine, &flags) else { continue };
        // By chance all three go to one thread: in one of nine rounds.
        for _ in 0..6 {
            let (mut first, mut second) = (server.connect(), server.connect());
            ping(&mut first, b"one");
            ping(&mut second, b"two");
            let mut third = server.connect();
            third.write_all(b"three").unwrap();
            third.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            assert!(third.read(&mut [0; 5]).is_err(), "it is served beyond the limit");
            drop(first);
            third.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let mut echoed = [0; 5];
            third.read_exact(&mut echoed).unwrap();
            assert_eq!(&echoed, b"three");
            ping(&mut second, b"two again");
        }
        server.end();
    }
}

#[test]
fn draining_ends_what_is_open_and_takes_nothing_new() {
    for engine in ENGINES {
        let Some(mut server) = start(engine, &["--drain", "30s"]) else { continue };
        let mut stream = server.connect();
        ping(&mut stream, b"before");
        server.signal("-TERM");
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"", "the server ends its side");
        assert!(TcpStream::connect(server.address).is_err(), "it still listens");
        drop(stream);
        let output = server.output();
        assert!(output.contains("0 open, 0 broken"), "{output}");
    }
}

#[test]
fn an_end_is_not_put_off_by_who_stays() {
    for engine in ENGINES {
        let Some(mut server) = start(engine, &["--drain", "100ms"]) else { continue };
        let mut stream = server.connect();
        ping(&mut stream, b"before");
        server.signal("-INT");
        let output = server.output();
        assert_eq!(count(&output, "open"), 1, "{output}");
    }
}

/// A thread that has drained before the others does not keep the second signal from them.
#[test]
fn a_second_signal_ends_every_thread_at_once() {
    for engine in ENGINES {
        let flags = ["--drain", "30s", "--threads", "4"];
        let Some(mut server) = start(engine, &flags) else { continue };
        let mut stays = server.connect();
        ping(&mut stays, b"here");
        server.signal("-TERM");
        thread::sleep(Duration::from_millis(300));
        let asked = Instant::now();
        server.signal("-TERM");
        server.output();
        assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    }
}

#[test]
fn statistics_are_printed_on_demand() {
    for engine in ENGINES {
        let Some(mut server) = start(engine, &["--threads", "2"]) else { continue };
        let mut streams: Vec<TcpStream> = (0..10).map(|_| server.connect()).collect();
        streams.iter_mut().for_each(|stream| ping(stream, b"hello"));
        let mut errors = BufReader::new(server.child.stderr.take().unwrap());
        server.signal("-USR1");
        let mut line = String::new();
        errors.read_line(&mut line).unwrap();
        assert_eq!(count(&line, "connections accepted"), 10, "{line}");
        assert_eq!(count(&line, "open,"), 10, "{line}");
        assert_eq!(count(&line, "bytes received"), 50, "{line}");
        drop(streams);
        server.signal("-TERM");
        errors.read_line(&mut line).unwrap();
        assert!(server.child.wait().unwrap().success());
    }
}

#[test]
fn a_round_on_a_ring_is_one_system_call() {
    let Some(server) = start("uring", &["--spin", "0"]) else { return };
    let mut stream = server.connect();
    for round in 0..2000 {
        ping(&mut stream, &pattern(64, round));
    }
    let threads = std::fs::read_dir(format!("/proc/{}/task", server.child.id())).unwrap();
    let names = threads
        .map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default());
    let workers = names.filter(|name| name.starts_with("iou-wrk")).count();
    drop(stream);
    let output = server.end();
    let enters = count(&output, "enters");
    assert!((2000..2100).contains(&enters), "{enters} for 2000 rounds: {output}");
    assert_eq!(workers, 0, "the kernel's worker threads have nothing to do here");
}

fn refused(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_ringwise")).args(arguments).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn what_cannot_be_is_said_in_one_line() {
    let Some(server) = start("epoll", &[]) else { return };
    let taken = server.address.to_string();
    for (arguments, status, words) in [
        (vec!["echo", "--listen", &taken], 1, &[taken.as_str(), "in use"][..]),
        (vec!["echo", "--listen", &taken, "--threads", "2"], 1, &[taken.as_str(), "in use"]),
        (vec!["echo", "--listen", "192.0.2.1:0"], 1, &["192.0.2.1", "not local", "assign"]),
        (
            vec!["echo", "--listen", "nowhere"],
            2,
            &["--listen: invalid value 'nowhere': expected IP:PORT, such as 127.0.0.1:12345"],
        ),
        (vec!["echo", "--engine", "kqueue"], 2, &["kqueue", "uring", "epoll"]),
        (vec!["echo", "--threads", "0"], 2, &["--threads"]),
        (vec!["echo", "--spin", "1h"], 2, &["--spin: invalid value '1h': expected at most 10ms"]),
        (vec!["echo", "--patience", "1s"], 2, &["invalid value '1s': expected 2s to 480m"]),
        (vec!["echo", "--max-connections", "999999"], 1, &["999999", "ulimit"]),
    ] {
        let (code, error) = refused(&arguments);
        assert_eq!(code, Some(status), "{arguments:?}: {error}");
        assert_eq!(error.trim_end().lines().count(), 1, "{error}");
        assert!(!error.contains("os error"), "{error}");
        // Of the last two words of the unassignable address one is enough: libcs differ.
        let found = words.iter().filter(|word| error.contains(**word)).count();
        assert!(found > 0 && (found == words.len() || words.len() == 3), "{arguments:?}: {error}");
    }
}

#[test]
fn a_reader_that_is_gone_before_the_address_ends_it_without_an_error() {
    let (reader, deaf) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringwise"));
    command.args(["echo", "--engine", "epoll", "--listen", "127.0.0.1:0"]).stdout(deaf);
    let output = command.output().unwrap();
    assert_eq!((output.status.code(), &*output.stderr), (Some(0), &b""[..]));
}

#[test]
fn a_low_limit_of_descriptors_is_raised_or_told() {
    let ringwise = env!("CARGO_BIN_EXE_ringwise");
    let shell = |script: String| Command::new("sh").args(["-c", &script]).output().unwrap();
    let told = shell(format!("ulimit -n 100; exec {ringwise} echo --max-connections 90"));
    let error = String::from_utf8(told.stderr).unwrap();
    assert_eq!(told.status.code(), Some(1), "{error}");
    assert!(error.contains("hard limit is 100") && error.contains("at most"), "{error}");
    // The soft limit alone is raised.
    let script = format!(
        "ulimit -Sn 100; timeout -s TERM 1 {ringwise} echo --listen 127.0.0.1:0 \
         --max-connections 500 --engine epoll"
    );
    let raised = String::from_utf8(shell(script).stdout).unwrap();
    assert!(raised.starts_with("listening on "), "{raised}");
}

/// One EPERM, ENOBUFS or ENOMEM of an accept ended the server.
#[test]
fn accepts_that_fail_end_nothing() {
    for errno in ["EPERM", "ENOBUFS", "ENOMEM"] {
        let Some(server) = Daemon::launch_where_accepts_fail("echo", errno, &[]) else { return };
        let mut stream = server.connect();
        ping(&mut stream, b"hello");
        drop(stream);
        let output = server.end();
        assert_eq!(count(&output, "accepts failed"), 3, "{errno}: {output}");
    }
}
