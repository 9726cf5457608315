//! `ringwise load echo` as a user runs it, against small servers that are right, and against some
//! that are wrong in one way each.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    process::{Child, Command, Output, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::harness::{
    daemon::{Daemon, has_python},
    load,
};

mod log;

use load::{ECHO, LOG, closed_port, error_line, latency_ns, server};

/// Echoes until the end, with `change` made to the bytes of each read. It gets the number of bytes
/// echoed before; where it says no, the connection ends.
fn echo(mut stream: &TcpStream, mut change: impl FnMut(u64, &mut Vec<u8>) -> bool) {
    let (mut bytes, mut echoed) = (vec![0; 64 << 10], 0);
    loop {
        let Ok(count @ 1..) = stream.read(&mut bytes) else { return };
        let mut answer = bytes[..count].to_vec();
        let goes_on = change(echoed, &mut answer);
        if stream.write_all(&answer).is_err() || !goes_on {
            return;
        }
        echoed += count as u64;
    }
}

fn right() -> SocketAddr {
    server(|_, stream| echo(&stream, |_, _| true))
}

fn run(address: SocketAddr, arguments: &str) -> Output {
    ECHO.run(address, arguments)
}

#[track_caller]
fn document(output: &Output) -> Value {
    ECHO.document(output)
}

#[track_caller]
fn good(address: SocketAddr, arguments: &str) -> Value {
    whole(ECHO.good(address, arguments))
}

/// The same with no other generator beside it.
#[track_caller]
fn good_alone(address: SocketAddr, arguments: &str) -> Value {
    whole(ECHO.alone().good(address, arguments))
}

#[track_caller]
fn whole(result: Value) -> Value {
    assert_eq!(result["bytes_sent"], result["bytes_received"]);
    result
}

#[test]
fn every_message_comes_back_and_the_result_is_what_its_schema_says() {
    let address = right();
    let result = good(address, "-c 4 -t 300ms -l 64 --warm-up 50ms");
    let (sent, operations) = (&result["sent"], &result["operations"]);
    // The whole run has more than the measured time: first messages and warm-up.
    assert!(sent.as_u64().unwrap() > operations.as_u64().unwrap() + 4, "{sent} {operations}");
    assert_eq!(result["bytes_sent"].as_u64(), Some(sent.as_u64().unwrap() * 64));
    assert_eq!(result["duration_s"].as_f64(), Some(0.3));
    assert_eq!((&result["connections_made"], &result["server"]), (&4.into(), &Value::Null));
    assert!(latency_ns(&result, "p50") > 1000 && latency_ns(&result, "max") < 10_000_000_000);
    let client = &result["client"];
    assert!(client["busy_share"].as_f64().unwrap() > 0.0, "{client}");
    // As the known benchmark is called; sizes that fit no word and no buffer.
    for sizes in ["-l 1", "-l 100 --pipeline 7", "-l 200001 --pipeline 2 --threads 2"] {
        good(address, &format!("--number 3 --duration 100ms --warm-up 10ms {sizes}"));
    }
}

#[test]
fn the_text_says_what_was_measured() {
    let pid = std::process::id();
    let output = run(right(), &format!("-c 2 -t 100ms -l 64 --server-pid {pid}"));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for part in [
        "2 connections, 64 bytes a message",
        "closed loop",
        "measured 100ms after 10ms of warm-up",
        "per second",
        "checked and right",
        "latency      p50 ",
        "generator ",
        "of CPU time per request",
        "switches ",
        "memory ",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}

#[test]
fn a_file_gets_the_document_and_the_terminal_the_text() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("result.json");
    let output = run(right(), &format!("-c 1 -t 50ms --json {}", path.display()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8(output.stdout).unwrap().contains("per second"));
    let written: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(written["schema"], "ringwise.load.echo/1");
}

#[test]
fn a_file_that_cannot_be_written_is_told_before_anything_is_measured() {
    let began = Instant::now();
    for load in [ECHO, LOG] {
        let line = error_line(&load.run(right(), "--json=/nope/x"), 1);
        assert_eq!(
            line,
            "--json /nope/x: the directory /nope does not exist; name a file in an existing directory"
        );
    }
    assert!(began.elapsed() < Duration::from_secs(10), "it measures for a minute");
}

#[test]
fn a_stream_gets_the_document_and_stays() {
    let output = run(right(), "-c 1 -t 50ms --json /dev/stderr");
    assert!(output.status.success());
    let written: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(written["schema"], "ringwise.load.echo/1");
    let output = run(right(), "-c 1 -t 50ms --json /dev/null");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!std::path::Path::new("/dev/null").is_file());
}

#[test]
fn a_wrong_byte_is_found_and_named() {
    let address = server(|number, stream| {
        echo(&stream, |echoed, bytes| {
            let is_there = echoed <= 6410 && 6410 < echoed + bytes.len() as u64;
            if number == 1 && is_there {
                bytes[(6410 - echoed) as usize] ^= 0x40;
            }
            true
        });
    });
    let output = run(address, "-c 3 -t 200ms -l 64 --json");
    let line = error_line(&output, 1);
    let expected = "1 connection failed: connection 1: echo wrong at byte 6410 (byte 10 of \
                    message 100): expected ";
    assert!(line.starts_with(expected) && line.contains(", got "), "{line}");
    let result = document(&output);
    assert_eq!(result["errors"], 1);
    assert!(result["ops_per_s"].as_f64().unwrap() > 0.0, "the others went on");
}

#[test]
fn another_connections_bytes_are_found() {
    let held: Arc<Mutex<Option<Vec<u8>>>> = Arc::default();
    let address = server(move |_, stream| {
        echo(&stream, |echoed, bytes| {
            // Whoever comes second after a while gets what was the first's.
            let mut held = held.lock().unwrap();
            if echoed >= 640 && bytes.len() == 64 {
                match held.take() {
                    None => *held = Some(bytes.clone()),
                    Some(other) => *bytes = other,
                }
            }
            true
        });
    });
    let line = error_line(&run(address, "-c 2 -t 200ms -l 64"), 1);
    assert!(line.contains("echo wrong at byte "), "{line}");
}

#[test]
fn bytes_sent_twice_are_found() {
    let address = server(|_, stream| {
        echo(&stream, |echoed, bytes| {
            if echoed == 640 {
                bytes.extend_from_slice(&bytes.clone());
            }
            true
        });
    });
    let line = error_line(&run(address, "-c 1 -t 200ms -l 64"), 1);
    assert!(line.contains("bytes more than the 704 that it was given"), "{line}");
}

#[test]
fn a_dropped_connection_fails_the_result_and_not_the_others() {
    let address = server(|number, stream| {
        echo(&stream, |echoed, _| number != 2 || echoed < 640);
    });
    let output = run(address, "-c 4 -t 200ms -l 64 --json");
    let line = error_line(&output, 1);
    assert!(line.contains("1 connection failed: connection 2: "), "{line}");
    // Which of the two depends on whether the next message had come when it closed.
    let ways = ["the server closed it after echoing 704 of ", "reset by peer (704 of "];
    assert!(ways.iter().any(|way| line.contains(way)), "{line}");
    let result = document(&output);
    assert_eq!((&result["errors"], result["failures"].as_array().unwrap().len()), (&1.into(), 1));
    let (operations, sent) = (&result["operations"], &result["sent"]);
    assert!(operations.as_u64().unwrap() > 100 && sent.as_u64() > operations.as_u64());
}

#[test]
fn when_all_connections_are_lost_the_run_ends_early() {
    let address = server(|_, stream| echo(&stream, |echoed, _| echoed < 640));
    let began = Instant::now();
    let line = error_line(&run(address, "-c 3 -t 60 -l 64"), 1);
    assert!(line.contains("3 connections failed: "), "{line}");
    assert!(began.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_server_that_closes_its_half_is_found() {
    let address = server(|_, stream| {
        echo(&stream, |echoed, _| {
            if echoed == 640 {
                stream.shutdown(Shutdown::Write).unwrap();
            }
            true
        });
    });
    let line = error_line(&run(address, "-c 1 -t 200ms -l 64"), 1);
    assert!(line.contains("the server closed it after echoing 640 of 704 bytes"), "{line}");
}

/// A server that stands still for 300 ms once, when 200 ms have passed.
fn stalling() -> SocketAddr {
    server(|_, stream| {
        let began = Instant::now();
        let mut has_stalled = false;
        echo(&stream, |_, _| {
            if !has_stalled && began.elapsed() > Duration::from_millis(200) {
                has_stalled = true;
                thread::sleep(Duration::from_millis(300));
            }
            true
        });
    })
}

#[test]
fn a_stall_shows_in_a_closed_loop_as_one_slow_message() {
    let result = good_alone(stalling(), "-c 1 -t 1 -l 64 --warm-up 10ms");
    assert!(latency_ns(&result, "max") >= 299_000_000, "{result:#}");
    assert!(latency_ns(&result, "p90") < 100_000_000, "{result:#}");
}

#[test]
fn a_stall_shows_in_an_open_loop_in_all_messages_that_it_kept_waiting() {
    let result = good_alone(stalling(), "-c 1 -t 1 -l 64 --warm-up 10ms --rate 500");
    assert!(latency_ns(&result, "max") >= 299_000_000, "{result:#}");
    // 150 of 500 were due meanwhile, evenly: their tenth that waited longest, some 270 ms.
    assert!(latency_ns(&result, "p90") > 150_000_000, "{result:#}");
    assert!(result["schedule_lag_ns"]["p50"].as_u64().is_some(), "{result:#}");
    let operations = result["operations"].as_u64().unwrap();
    // What was begun before and ended within is counted too.
    assert!((300..=510).contains(&operations), "{operations}");
}

#[test]
fn what_a_slow_server_leaves_unsent_is_counted_with_its_age() {
    let address = server(|_, stream| {
        echo(&stream, |_, _| {
            thread::sleep(Duration::from_millis(10));
            true
        });
    });
    let result = good_alone(address, "-c 2 -t 500ms -l 64 --warm-up 0 --rate 2000");
    let unsent = result["unsent"].as_u64().unwrap();
    assert!(unsent > 700, "{unsent}");
    // Half of those that were due had waited for longer than 200 ms when the end came.
    assert!(latency_ns(&result, "p50") > 100_000_000, "{result:#}");
}

#[test]
fn silence_at_the_end_is_an_error() {
    let address = server(|_, stream| {
        echo(&stream, |echoed, bytes| {
            if echoed >= 640 {
                bytes.clear();
            }
            true
        });
    });
    let output = run(address, "-c 1 -t 100ms -l 64 --json");
    let line = error_line(&output, 1);
    assert!(line.contains("no echo for 5 s after the end (640 of 704 bytes"), "{line}");
    // It has no latency, but it is not left out either.
    assert!(latency_ns(&document(&output), "max") > 4_000_000_000);
}

#[test]
fn half_closers_read_to_the_end() {
    let result = good(right(), "-c 3 -t 200ms -l 100 --pipeline 50 --mode half-close");
    let made = result["connections_made"].as_u64().unwrap();
    assert!(made >= 3, "{made}");
    assert_eq!(result["sent"].as_u64(), Some(50 * made));
}

#[test]
fn a_server_that_loses_what_precedes_a_half_close_is_found() {
    let address = server(|number, mut stream| {
        let (mut all, mut bytes) = (Vec::new(), [0; 4096]);
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            all.extend_from_slice(&bytes[..count]);
        }
        let lost = if number == 5 { 10 } else { 0 };
        stream.write_all(&all[..all.len() - lost]).unwrap();
    });
    let line = error_line(&run(address, "-c 2 -t 300ms -l 64 --mode half-close"), 1);
    let part = "connection 5: the server closed it after echoing 54 of 64 bytes";
    assert!(line.contains(part), "{line}");
}

#[test]
fn a_storm_connects_anew_for_each_message() {
    let result = good(right(), "-c 3 -t 200ms -l 64 --mode connect-storm");
    assert_eq!(result["connections_made"], result["sent"]);
    assert!(result["operations"].as_u64().unwrap() >= 3);
    let paced = good(right(), "-c 3 -t 500ms -l 64 --mode connect-storm --rate 100");
    let operations = paced["operations"].as_u64().unwrap();
    assert!((10..=55).contains(&operations), "{operations}");
}

/// A server in a process of its own: in this one, other tests give memory back meanwhile. Nothing where there is no
/// Python.
fn echo_of_threads() -> Option<Daemon> {
    const SCRIPT: &str = "
import socketserver
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while received := self.request.recv(65536):
            self.request.sendall(received)
socketserver.ThreadingTCPServer.request_queue_size = 128
server = socketserver.ThreadingTCPServer(('127.0.0.1', 0), Echo)
print('listening on 127.0.0.1:%d' % server.server_address[1], flush=True)
server.serve_forever()
";
    has_python()
        .then(|| Daemon::spawn(Command::new("python3").args(["-c", SCRIPT]), "threads").unwrap())
}

#[test]
fn silent_connections_are_held_and_still_there_at_the_end() {
    let Some(echo) = echo_of_threads() else { return };
    // At this rate the server has to wait for the clients, even if they share a processor with it, and takes more
    // than a few clock ticks.
    let pid = echo.child.id();
    let arguments =
        format!("-c 2 -t 1s -l 64 --rate 5000 --mode idle --idle 100 --server-pid {pid}");
    let result = good(echo.address, &arguments);
    assert_eq!(
        (&result["connections_made"], &result["idle_connections"]),
        (&102.into(), &100.into())
    );
    let server = &result["server"];
    // A thread each has a stack.
    assert!(server["bytes_per_idle_connection"].as_f64().unwrap() > 1000.0, "{server}");
    assert!(server["cpu_ns_per_op"].as_f64().unwrap() > 0.0, "{server}");
    assert!(server["context_switches"]["voluntary"].as_u64().unwrap() > 0, "{server}");
}

#[test]
fn five_hundred_silent_connections_are_held() {
    let result = good(right(), "-c 2 -t 300ms -l 64 --mode idle --idle 500");
    assert_eq!(
        (&result["connections_made"], &result["idle_connections"]),
        (&502.into(), &500.into())
    );
}

#[test]
fn a_silent_connection_that_the_server_drops_is_found() {
    let address = server(|number, stream| echo(&stream, |_, _| number != 7));
    let line = error_line(&run(address, "-c 2 -t 200ms -l 64 --mode idle --idle 10"), 1);
    assert!(line.contains("connection 7: the server closed it after echoing 64 of 64"), "{line}");
}

#[test]
fn slow_readers_get_all_in_the_end() {
    let result = good(right(), "-c 2 -t 300ms -l 64 --mode slow-reader --slow 2");
    let (operations, received) = (&result["operations"], &result["received"]);
    // Far more than those that are measured: what the slow ones had sent.
    assert!(received.as_u64().unwrap() > 1000, "{received} {operations}");
    assert_eq!(result["slow_connections"], 2);
}

#[test]
fn what_cannot_be_reached_is_said_in_one_line() {
    let (_bound, closed) = closed_port();
    for arguments in ["-c 5 -t 1", "-c 5 -t 60 --mode connect-storm"] {
        let line = error_line(&run(closed, arguments), 1);
        let part = format!("connecting to {closed}: Connection refused; start a server there");
        assert!(line.contains(&part), "{line}");
    }
    let command = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringwise"));
        command.args(["load", "echo"]).args(arguments).output().unwrap()
    };
    // RFC 6761: this name never resolves.
    let line = error_line(&command(&["-a", "ringwise.invalid:7"]), 1);
    assert!(line.contains("ringwise.invalid:7: the name does not resolve"), "{line}");
    let line = error_line(&command(&["--server-pid", "4194304"]), 1);
    assert!(line.contains("--server-pid 4194304: no such process"), "{line}");
    for (arguments, parts) in [
        (
            &["-a", "localhost"][..],
            &["--address: invalid value 'localhost': expected", "HOST:PORT"][..],
        ),
        (&["-l", "0"], &["--length", "expected 1 to 16m"]),
        (&["-l", "1gb"], &["--length", "k, m, g or t"]),
        (&["-t", "1w"], &["--duration", "us, ms, s, m (minutes), h or d"]),
        (&["-t", "0"], &["--duration: invalid value '0': expected more than 0"]),
        (&["--idle", "5"], &["--idle needs --mode idle"]),
        (&["--mode", "idle", "--slow", "5"], &["--slow needs --mode slow-reader"]),
        (&["-c", "0"], &["--number"]),
        (&["--mode", "fast"], &["--mode", "ping-pong"]),
        (
            &["--mode", "connect-storm", "--pipeline", "2"],
            &["--pipeline does not go with --mode connect-storm"],
        ),
        (&["--pin", "1023"], &["--pin: invalid value '1023': expected processors of 0"]),
    ] {
        let line = error_line(&command(arguments), 2);
        assert!(parts.iter().all(|part| line.contains(part)), "{line}");
    }
}

#[test]
fn the_limit_of_open_files_is_raised_as_far_as_it_may() {
    let address = right();
    let limited = |limits: &str| {
        let binary = env!("CARGO_BIN_EXE_ringwise");
        let script =
            format!("{limits}; exec {binary} load echo -a {address} -c 100 -t 300ms --json");
        Command::new("sh").args(["-c", &script]).output().unwrap()
    };
    let output = limited("ulimit -Sn 50");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let line = error_line(&limited("ulimit -n 50"), 1);
    assert!(line.contains("need 134 open files, and the hard limit is 50"), "{line}");
}

/// A run that has been going on for long enough to have measured something.
fn started(address: SocketAddr, arguments: &str) -> Child {
    let mut command = ECHO.command(address, arguments);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    thread::sleep(Duration::from_millis(500));
    child
}

fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
}

#[test]
fn an_interrupt_ends_it_with_what_was_measured() {
    for name in ["-INT", "-TERM"] {
        let child = started(right(), "-c 2 -t 60 -l 64 --warm-up 0 --json");
        let signalled = Instant::now();
        signal(&child, name);
        let output = child.wait_with_output().unwrap();
        assert!(signalled.elapsed() < Duration::from_secs(10));
        let result = document(&output);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!((&result["partial"], &result["errors"]), (&true.into(), &0.into()));
        assert!(result["operations"].as_u64().unwrap() > 0);
        let measured = result["duration_s"].as_f64().unwrap();
        assert!((0.1..10.0).contains(&measured), "{measured}");
        assert_eq!(result["sent"], result["received"]);
    }
}

#[test]
fn an_interrupt_before_anything_was_measured_is_no_result() {
    let child = started(right(), "-c 2 -t 60 -l 64 --warm-up 30s --json");
    signal(&child, "-INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(error_line(&output, 1), "interrupted before anything was measured");
    assert!(output.stdout.is_empty());
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut child = started(right(), "-c 2 -t 1 -l 64 --json");
    drop(child.stdout.take());
    let mut told = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut told).unwrap();
    assert!(child.wait().unwrap().success() && told.is_empty(), "{told}");
}
