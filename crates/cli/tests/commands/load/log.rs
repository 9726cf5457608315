//! `ringwise load log` as a user runs it, against the daemon, against small targets that are right,
//! and against some that are wrong in one way each.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::Output,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;

use crate::harness::daemon;
use crate::harness::load;

use daemon::{Daemon, ENGINES};
use load::{LOG, closed_port, error_line, latency_ns, server};

/// Greets, and gives each line with its number, from 1, to `each`, whose answer is sent. Ends with
/// the client, or where the answer is none.
fn serve(stream: impl Read + Write, mut each: impl FnMut(u64, &str) -> Option<String>) {
    let mut reader = BufReader::new(stream);
    let (mut line, mut number) = (String::new(), 0);
    while matches!(reader.read_line(&mut line), Ok(1..)) {
        let answer = match line.starts_with("LOGD 1") {
            true => Some("H 1 durable\n".to_owned()),
            false => {
                number += 1;
                each(number, &line)
            }
        };
        line.clear();
        let Some(answer) = answer else { return };
        if reader.get_mut().write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn acknowledge(number: u64) -> Option<String> {
    Some(format!("A {number}\n"))
}

fn right() -> SocketAddr {
    server(|_, stream| serve(stream, |number, _| acknowledge(number)))
}

/// Stores all lines in a file, but for what `change` makes of one; acknowledges all.
fn storing(
    path: &Path,
    change: impl Fn(u64, &str) -> String + Send + Sync + 'static,
) -> SocketAddr {
    let file = Mutex::new(fs::File::create(path).unwrap());
    server(move |connection, stream| {
        serve(stream, |number, line| {
            let stored = if connection == 1 { change(number, line) } else { line.to_owned() };
            file.lock().unwrap().write_all(stored.as_bytes()).unwrap();
            acknowledge(number)
        });
    })
}

fn run(address: impl ToString, arguments: &str) -> Output {
    LOG.run(address, arguments)
}

#[track_caller]
fn document(output: &Output) -> Value {
    LOG.document(output)
}

#[track_caller]
fn good(address: impl ToString, arguments: &str) -> Value {
    whole(LOG.good(address, arguments))
}

/// The same with no other generator beside it.
#[track_caller]
fn good_alone(address: impl ToString, arguments: &str) -> Value {
    whole(LOG.alone().good(address, arguments))
}

#[track_caller]
fn whole(result: Value) -> Value {
    assert!(result["acknowledged"].is_null() || result["acknowledged"] == result["sent"]);
    result
}

const SHORT: &str = "-c 2 -d 200ms --ack";

#[test]
fn every_line_is_acknowledged_and_the_result_is_what_its_schema_says() {
    let result = good(right(), "-c 4 -d 300ms --warm-up 50ms --ack durable --rate 5000 --line 64");
    let (sent, operations) =
        (result["sent"].as_u64().unwrap(), result["operations"].as_u64().unwrap());
    // 350 ms of a schedule, of which 300 were measured.
    assert!(sent == 1750 && operations < sent, "{sent} {operations}");
    assert_eq!(
        result["bytes_sent"].as_u64(),
        Some(sent * 64 + 4 * "LOGD 1 ack=durable\n".len() as u64)
    );
    assert_eq!((&result["promise"], &result["stored"]), (&"durable".into(), &Value::Null));
    assert!(latency_ns(&result, "p50") > 1000 && latency_ns(&result, "max") < 10_000_000_000);
    // As fast as they are taken, over several threads.
    good(right(), "-c 5 -d 200ms --threads 2 --ack --line 40");
}

#[test]
fn the_text_says_what_was_measured() {
    let pid = std::process::id();
    let output = run(right(), &format!("{SHORT} --rate 1000 --server-pid {pid}"));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for part in [
        "2 connections, 150 bytes a line, lines, acknowledged when durable, open loop of 1000 per",
        "measured 200ms after 20ms of warm-up",
        "counts       220 sent, 220 acknowledged",
        "from when each was to be sent to its acknowledgement",
        "own lateness",
        "of CPU time per line",
        "switches ",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}

#[test]
fn what_is_not_stored_once_and_as_it_was_fails() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stored");
    let arguments = format!("{SHORT} --rate 2000 --stored {}", path.display());
    let result = good(storing(&path, |_, line| line.to_owned()), &arguments);
    assert_eq!((&result["stored"]["lines"], &result["sent"]), (&440.into(), &440.into()));
    let wrong = storing(&path, |number, line| match number {
        7 => String::new(),
        9 => line.repeat(2),
        11 => line.replace("info", "Info"),
        _ => line.to_owned(),
    });
    let output = run(wrong, &format!("{arguments} --json"));
    let expected = "of 440 lines 2 are not stored, 1 twice and 1 altered";
    assert_eq!(error_line(&output, 1), expected);
    assert_eq!(document(&output)["stored"]["lost"], 2);
}

#[test]
fn a_files_lines_are_sent_in_turn_and_compared() {
    let directory = tempfile::tempdir().unwrap();
    let (file, stored) = (directory.path().join("lines"), directory.path().join("stored"));
    fs::write(&file, "{\"a\":1}\n[2]\r\n\nnull\n").unwrap();
    let arguments =
        format!("{SHORT} --rate 500 --lines {} --stored {}", file.display(), stored.display());
    let result = good(storing(&stored, |_, line| line.to_owned()), &arguments);
    assert_eq!(result["stored"]["lines"], result["sent"]);
    let text = fs::read_to_string(&stored).unwrap();
    assert!(text.lines().all(|line| ["{\"a\":1}", "[2]", "null"].contains(&line)), "{text}");
    let lossy = storing(&stored, |number, line| line.repeat(usize::from(number != 2)));
    assert!(error_line(&run(lossy, &arguments), 1).contains("1 are not stored"));
    fs::write(&file, "\n\n").unwrap();
    let line = error_line(&run("127.0.0.1:1", &format!("--lines {}", file.display())), 1);
    assert!(line.ends_with("has no lines; name a file with at least one"), "{line}");
}

#[test]
fn no_acknowledgement_is_believed_that_cannot_be() {
    /// A target whose answer to the tenth line of its second connection is this.
    fn wrong(answer: impl Fn(u64) -> Option<String> + Send + Sync + 'static) -> SocketAddr {
        server(move |connection, stream| {
            serve(stream, |number, _| match (connection, number) {
                (1, 10) => answer(number),
                _ => acknowledge(number),
            });
        })
    }
    // A line at a time, so that no more was sent than is acknowledged.
    let arguments = format!("{SHORT} --rate 200 --window 1");
    let failed = |address: SocketAddr| {
        let line = error_line(&run(address, &arguments), 1);
        let fault = line.strip_prefix("1 connection failed: connection ").expect(&line);
        fault.split_once(": ").unwrap().1.to_owned()
    };
    let early = failed(wrong(|number| acknowledge(number + 1)));
    assert_eq!(early, "line 11 was acknowledged when 10 were sent");
    let rejected_early = failed(wrong(|number| Some(format!("N {} syntax\n", number + 1))));
    assert_eq!(rejected_early, "line 11 was acknowledged when 10 were sent");
    let back = failed(wrong(|number| acknowledge(number - 2)));
    assert_eq!(back, "line 8 was acknowledged after line 9");
    let strange = failed(wrong(|_| Some("OK\n".to_owned())));
    assert_eq!(strange, "the target answered what is no answer: \"OK\"");
    let refused = failed(wrong(|_| Some("E 1 draining\n".to_owned())));
    assert_eq!(refused, "the target refused: 1 draining");
    let ended = failed(wrong(|_| None));
    assert_eq!(ended, "the target closed it after answering 9 of 10 lines");
}

#[test]
fn a_rejected_line_fails_the_run() {
    let address = server(|_, stream| {
        serve(stream, |number, _| match number {
            3 => Some("N 3 utf8\nA 3\n".to_owned()),
            _ => acknowledge(number),
        });
    });
    let output = run(address, "-c 1 -d 200ms --ack --rate 100 --json");
    assert_eq!(error_line(&output, 1), "1 of 22 lines were rejected: line 3 of connection 0: utf8");
    let result = document(&output);
    assert_eq!((&result["rejected"], &result["acknowledged"]), (&1.into(), &21.into()));
}

#[test]
fn what_the_daemon_promises_has_to_do() {
    let weak = server(|_, mut stream| {
        stream.write_all(b"H 1 written\n").unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let line = error_line(&run(weak, "-c 1 -d 100ms --ack durable"), 1);
    assert_eq!(line, "connection 0: asked for durable, and the target promises written");
}

#[test]
fn nobody_listening_is_one_line() {
    let (_bound, closed) = closed_port();
    for arguments in [SHORT, "-c 2 -d 100ms --search", "-d 1s --protocol relp"] {
        let line = error_line(&run(closed, arguments), 1);
        let expected = format!(
            "connecting to {closed}: Connection refused; start a server there, or name another address"
        );
        assert_eq!(line, expected);
    }
}

#[test]
fn without_acknowledgements_the_target_has_to_read_to_the_end_and_say_nothing() {
    let reading = server(|_, mut stream| {
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let result = good(reading, "-c 3 -d 200ms");
    assert!(result["acknowledged"].is_null());
    assert!(result["whole_per_s"].as_f64().unwrap() > 0.0);
    let talking = server(|_, stream| serve(stream, |number, _| acknowledge(number)));
    let line = error_line(&run(talking, "-c 1 -d 100ms --rate 100"), 1);
    assert!(line.ends_with("the target answered what is no answer: \"A 1\""), "{line}");
    let leaving = server(|_, mut stream| {
        let _ = stream.read(&mut [0; 10]);
    });
    let line = error_line(&run(leaving, "-c 1 -d 200ms --rate 1000"), 1);
    assert!(line.contains("reset by peer") || line.contains("Broken pipe"), "{line}");
}

#[test]
fn silent_connections_are_held_and_have_to_be_there_at_the_end() {
    let result = good(right(), &format!("{SHORT} --rate 100 --idle 50"));
    assert_eq!(
        (&result["connections_made"], &result["idle_connections"]),
        (&52.into(), &50.into())
    );
    let address = server(|connection, mut stream| {
        if connection == 20 {
            stream.write_all(b"H 1 durable\n").unwrap();
            let _ = stream.read(&mut [0; 100]);
        } else {
            serve(stream, |number, _| acknowledge(number));
        }
    });
    let line = error_line(&run(address, &format!("{SHORT} --rate 100 --idle 50")), 1);
    assert!(line.contains("the target closed it after answering 0 of 0 lines"), "{line}");
}

#[test]
fn bursts_come_at_once_and_their_pause_follows_from_the_rate() {
    let moments = Arc::new(Mutex::new(Vec::new()));
    let seen = moments.clone();
    let address = server(move |_, stream| {
        serve(stream, |number, _| {
            seen.lock().unwrap().push(Instant::now());
            acknowledge(number)
        });
    });
    let result = good_alone(address, &format!("{SHORT} --warm-up 0 --rate 1000 --burst 50"));
    assert_eq!((&result["burst_every_s"], &result["sent"]), (&0.1.into(), &200.into()));
    let moments = moments.lock().unwrap().clone();
    // 100 lines, a pause of most of 100 ms, 100 lines.
    let pauses = moments.windows(2).filter(|pair| pair[1] - pair[0] > Duration::from_millis(40));
    assert_eq!(pauses.count(), 1);
    let by_period = good_alone(right(), &format!("{SHORT} --warm-up 0 --burst 7/50ms"));
    assert_eq!(by_period["sent"], 2 * 7 * 4);
}

#[test]
fn no_more_is_under_way_than_the_window() {
    let address = server(|_, mut stream| {
        let mut bytes = vec![0; 4096];
        let greeting = stream.read(&mut bytes).unwrap();
        assert_eq!(&bytes[..greeting], b"LOGD 1\n");
        stream.write_all(b"H 1 durable\n").unwrap();
        let mut lines = 0;
        // What has come when nothing more comes is what may be under way.
        loop {
            let mut came = 0;
            stream.set_read_timeout(None).unwrap();
            while let Ok(count @ 1..) = stream.read(&mut bytes) {
                came += count;
                stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            }
            if came == 0 {
                return;
            }
            assert!(came <= 10 * 100, "{came}");
            lines += came / 100;
            stream.write_all(format!("A {lines}\n").as_bytes()).unwrap();
        }
    });
    let result = good_alone(address, "-c 1 -d 200ms --ack --line 100 --window 10");
    assert!(result["sent"].as_u64().unwrap() >= 20, "{result:#}");
}

#[test]
fn a_stall_shows_in_all_lines_that_it_kept_waiting() {
    let address = server(|_, stream| {
        serve(stream, |number, _| {
            if number == 100 {
                thread::sleep(Duration::from_millis(300));
            }
            acknowledge(number)
        });
    });
    let result = good_alone(address, "-c 1 -d 1s --warm-up 0 --rate 500 --ack");
    // 150 of 500 were due meanwhile, evenly: the tenth that waited longest, some 270 ms.
    assert!(latency_ns(&result, "p90") > 150_000_000, "{result:#}");
    assert!(latency_ns(&result, "p50") < 150_000_000, "{result:#}");
}

#[test]
fn other_protocols_frame_and_are_answered() {
    let counted = server(|_, stream| {
        let mut reader = BufReader::new(stream);
        let mut length = Vec::new();
        while matches!(reader.read_until(b' ', &mut length), Ok(1..)) {
            let bytes = String::from_utf8(std::mem::take(&mut length)).unwrap();
            let mut line = vec![0; bytes.trim_end().parse().unwrap()];
            reader.read_exact(&mut line).unwrap();
            let _: Value = serde_json::from_slice(&line).unwrap();
        }
    });
    good(counted, "-c 2 -d 100ms --rate 1000 --protocol octet-counting");
    /// Answers transactions in pairs, the later first.
    fn relp(mut stream: TcpStream, status: &str) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let (mut frame, mut held) = (String::new(), Vec::new());
        while matches!(reader.read_line(&mut frame), Ok(1..)) {
            let (number, rest) = frame.split_once(' ').unwrap();
            let answer = |status| format!("{number} rsp {} {status}\n", str::len(status));
            if rest.starts_with("open ") {
                let length: usize = rest.split(' ').nth(1).unwrap().parse().unwrap();
                let mut offers = rest.splitn(3, ' ').nth(2).unwrap().to_owned();
                while offers.len() < length + 1 {
                    reader.read_line(&mut offers).unwrap();
                }
                assert_eq!(offers.len(), length + 1, "{offers:?}");
                stream
                    .write_all(answer("200 OK\nrelp_version=0\ncommands=syslog").as_bytes())
                    .unwrap();
            } else {
                assert!(rest.starts_with("syslog 149 {\"id\":"), "{rest}");
                held.push(answer(status));
                if held.len() == 2 {
                    held.drain(..).rev().for_each(|one| stream.write_all(one.as_bytes()).unwrap());
                }
            }
            frame.clear();
        }
    }
    let result = good(
        server(|_, stream| relp(stream, "200 OK")),
        "-c 1 -d 200ms --warm-up 0 --rate 1000 --protocol relp",
    );
    assert_eq!(result["acknowledged"], 200);
    let full = server(|_, stream| relp(stream, "500 full"));
    let line = error_line(&run(full, "-c 1 -d 200ms --warm-up 0 --rate 100 --protocol relp"), 1);
    assert_eq!(line, "20 of 20 lines were rejected: line 2 of connection 0: 500 full");
}

#[test]
fn the_highest_rate_that_is_held_is_found() {
    // Ten lines take it 2 ms at least: it holds less than 5000 lines per second.
    let slow = server(|_, stream| {
        serve(stream, |number, _| {
            if number.is_multiple_of(10) {
                thread::sleep(Duration::from_millis(2));
            }
            acknowledge(number)
        });
    });
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("found.json");
    let arguments = "-c 1 -d 200ms --ack --rate 500 --search --p99 100ms --json";
    let output = LOG.alone().run(slow, &format!("{arguments} {}", path.display()));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("lines per second held with p99 under 100ms"), "{text}");
    let result: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let rate = result["rate_per_s"].as_u64().unwrap();
    // With the 2 % that a rate may lack.
    assert!((1..5110).contains(&rate), "{rate}");
    let steps = result["search"]["steps"].as_array().unwrap();
    assert!(steps.iter().any(|step| step["held"] == false), "{steps:?}");
    // The second is late for every measured time: no rate is held, and none is an error.
    for answer_ms in [20, 250] {
        let stuck = server(move |_, stream| {
            serve(stream, |number, _| {
                thread::sleep(Duration::from_millis(answer_ms));
                acknowledge(number)
            });
        });
        let arguments = "-c 1 -d 100ms --ack --rate 8 --search --p99 1ms";
        let line = error_line(&run(stuck, arguments), 1);
        assert!(line.starts_with("no rate was held with p99 under 1ms: at "), "{line}");
    }
}

/// A server's certificate for `localhost`: the TLS of a target, and the file that is to be trusted.
fn tls(directory: &Path) -> (Arc<ServerConfig>, String) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let path = directory.join("ca.pem");
    fs::write(&path, made.cert.pem()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = made.signing_key.serialize_der().try_into().unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    (Arc::new(config), path.display().to_string())
}

#[test]
fn tls_hides_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (config, ca) = tls(directory.path());
    let address = server(move |_, stream| {
        let session = ServerConnection::new(config.clone()).unwrap();
        serve(StreamOwned::new(session, stream), |number, _| acknowledge(number));
    });
    let port = address.port();
    let arguments = format!("-c 3 -d 200ms --ack --tls-ca {ca}");
    let result = good(format!("localhost:{port}"), &format!("{arguments} --rate 2000"));
    assert_eq!((&result["tls"], &result["sent"]), (&true.into(), &440.into()));
    good(address, &format!("{arguments} --tls-name localhost --idle 3"));
    let line = error_line(&run(address, &format!("{arguments} --tls-name example.org")), 1);
    assert!(line.contains("TLS: invalid peer certificate"), "{line}");
    // Who speaks no TLS, on either side; any of the three may be heard of first.
    let line = error_line(&run(right(), &format!("{arguments} --tls-name localhost")), 1);
    assert!((0..3).any(|at| line.contains(&format!("connection {at}: "))), "{line}");
    let line = error_line(&run(right(), "--tls-ca /nonexistent"), 1);
    assert_eq!(line, "--tls-ca /nonexistent: No such file or directory; name an existing file");
}

/// None where this machine has no ring.
fn daemon(engine: &str, directory: &Path, flags: &[&str]) -> Option<Daemon> {
    let flags = [&["--dir", directory.to_str().unwrap()], flags].concat();
    Daemon::launch("logd", engine, &flags)
}

/// The document of a run against the daemon, which stores every line once. How many of them in the measured time is
/// up to the disk: none where a sync takes longer than that, which is told as an error.
#[track_caller]
fn stored_once(daemon: &Daemon, arguments: &str) -> Value {
    let output = run(daemon.address, &format!("{arguments} --json"));
    let result = document(&output);
    if result["operations"] == 0 {
        let nothing = "no line was done in the measured time: try a longer --duration";
        assert_eq!(error_line(&output, 1), nothing, "{arguments}");
    } else {
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments}: {told}");
    }
    assert_eq!((&result["errors"], &result["partial"]), (&0.into(), &false.into()), "{arguments}");
    for count in [&result["received"], &result["stored"]["lines"]] {
        assert_eq!(count, &result["sent"], "{arguments}");
    }
    assert!(result["sent"].as_u64().unwrap() > 0, "{arguments}");
    whole(result)
}

#[test]
fn the_daemon_stores_every_line_once() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let Some(daemon) = daemon(engine, directory.path(), &[]) else { continue };
        let stored = directory.path().display();
        for arguments in [
            "-c 3 -d 300ms --ack durable --rate 5000 --idle 20",
            "-c 2 -d 200ms --ack written --rate 5000 --burst 100",
            "-c 3 -d 1s",
        ] {
            stored_once(&daemon, &format!("{arguments} --stored {stored}"));
        }
    }
}

/// Segments that end after a few hundred lines, are packed at once, and are read all the same.
#[test]
fn counted_lines_are_acknowledged_and_found_in_packed_segments() {
    let directory = tempfile::tempdir().unwrap();
    let flags = ["--framing", "octet-counting", "--segment-size", "64k", "--pack", "1"];
    let daemon = daemon("epoll", directory.path(), &flags).unwrap();
    let stored = directory.path().display();
    let arguments =
        format!("-c 2 -d 300ms --ack --rate 5000 --protocol octet-counting --stored {stored}");
    stored_once(&daemon, &arguments);
}

#[test]
fn wrong_usage_is_one_line_that_says_what_is_right() {
    let line = error_line(&run("127.0.0.1:1", "--lines nope"), 1);
    assert_eq!(line, "--lines nope: No such file or directory; name an existing file");
    let line = error_line(&run("nowhere", ""), 2);
    assert!(line.starts_with("--target: invalid value 'nowhere': expected HOST:PORT"), "{line}");
    for (arguments, parts) in [
        ("--line 39", ["--line: invalid value '39': ", "expected 40 to 16m"]),
        ("--duration 0", ["--duration: invalid value '0': ", "expected more than 0"]),
        ("--burst 10", ["--burst needs --rate, ", "or a time between bursts, such as 100/10ms"]),
        (
            "--burst 10/5ms --rate 5",
            ["--burst: with --rate, ", "expected only a number of lines, such as 100"],
        ),
        (
            "--ack --protocol relp",
            ["load: --ack does not go with --protocol relp", ": leave it out\n"],
        ),
        ("--ack maybe", ["'maybe'", "expected any, written, durable"]),
        ("--tls-name x", ["load: ", "--tls-name needs --tls-ca\n"]),
        ("--tls-cert x", ["load: ", "--tls-cert needs --tls-ca and --tls-key\n"]),
        ("--tls-cert x --tls-ca y", ["load: ", "--tls-cert needs --tls-key\n"]),
        ("--tls-key x --tls-ca y", ["load: ", "--tls-key needs --tls-cert\n"]),
        ("--p99 5ms", ["load: ", "--p99 needs --search\n"]),
        ("--window 9", ["load: ", "--window needs --ack or --protocol relp\n"]),
        ("--search --stored .", ["--stored", "--search"]),
    ] {
        let output = run("127.0.0.1:1", arguments);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), text.lines().count()), (Some(2), 1), "{text}");
        assert!(parts.iter().all(|part| text.contains(part)), "{arguments}: {text}");
    }
}
