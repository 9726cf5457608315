//! `ringwise logd --fluent-intake`, from outside: MessagePack as bytes, on each engine. `tests/clients` has a real client.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use crate::{
    harness::daemon::{Daemon, ENGINES, ask, cat, connect, count, wait_until},
    intake::{self, gzip},
};

/// A daemon that takes Fluent Forward, and where.
fn start(engine: &str, directory: &Path, flags: &[&str]) -> Option<(Daemon, SocketAddr)> {
    intake::start(("--fluent-intake", "taking Fluent Forward on "), engine, directory, flags)
}

/// A string.
fn text(text: &str) -> Vec<u8> {
    let length = u8::try_from(text.len()).unwrap();
    [&[0xd9, length], text.as_bytes()].concat()
}

/// Bytes.
fn binary(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
    [&[0xc6], &length[..], bytes].concat()
}

/// An event of second 5 and nanosecond 6 with one member.
pub fn event(number: u32) -> Vec<u8> {
    let number = [&[0xce], &number.to_be_bytes()[..]].concat();
    [&[0x92, 0xd7, 0, 0, 0, 0, 5, 0, 0, 0, 6, 0x81][..], &text("n"), &number].concat()
}

/// Its line.
pub fn line(number: u32) -> String {
    format!("{{\"tag\":\"app\",\"time\":5.000000006,\"record\":{{\"n\":{number}}}}}")
}

/// An option that asks for an acknowledgement.
pub fn chunk(name: &str) -> Vec<u8> {
    [&[0x81][..], &text("chunk"), &text(name)].concat()
}

pub fn acknowledgement(name: &str) -> Vec<u8> {
    [&b"\x81\xa3ack"[..], &text(name)].concat()
}

/// Events in a message, packed in a binary string.
pub fn packed(events: &[u8], option: &[u8]) -> Vec<u8> {
    [&[0x93][..], &text("app"), &binary(events), option].concat()
}

fn compressed(events: &[u8], name: &str) -> Vec<u8> {
    let option = [&[0x82][..], &text("compressed"), &text("gzip"), &chunk(name)[1..]].concat();
    packed(&gzip(events), &option)
}

/// Reads as many bytes as are expected.
fn read(stream: &mut TcpStream, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[test]
fn events_are_lines_that_are_stored_before_their_chunk_is_acknowledged() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let Some((daemon, address)) = start(engine, directory.path(), &[]) else { continue };
        let mut client = connect(address);
        let bare = [&[0x94][..], &text("app"), &event(0)[1..], &chunk("m")].concat();
        let several =
            [&[0x93][..], &text("app"), &[0x92], &event(1), &event(2), &chunk("f")].concat();
        let messages = [
            bare,
            several,
            packed(&[event(3), event(4)].concat(), &chunk("p")),
            // A heartbeat, and packed events of a client that wants no answer.
            vec![0xc0],
            packed(&event(5), &[0xc0]),
            compressed(&[event(6), event(7)].concat(), "c"),
        ];
        // In two pieces that are no messages.
        let all = messages.concat();
        let (first, second) = all.split_at(100);
        client.write_all(first).unwrap();
        thread::sleep(Duration::from_millis(20));
        client.write_all(second).unwrap();
        let expected: Vec<u8> =
            ["m", "f", "p", "c"].into_iter().flat_map(acknowledgement).collect();
        assert_eq!(read(&mut client, expected.len()).unwrap(), expected, "{engine}");
        daemon.signal("-KILL");
        drop(daemon);
        let (daemon, address) = start(engine, directory.path(), &[]).unwrap();
        assert_eq!(cat(&[], directory.path()), (0..8).map(line).collect::<Vec<_>>());
        // What JSON does not have, and an end right after the message.
        let record = [&[0x81][..], &text("b"), &binary(b"\xff\0")].concat();
        let message = [&[0x94][..], &text("t"), &[7], &record, &chunk("x")].concat();
        let mut client = connect(address);
        client.write_all(&message).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, acknowledgement("x"));
        daemon.end();
        let last = "{\"tag\":\"t\",\"time\":7,\"record\":{\"b\":{\"hex\":\"ff00\"}}}";
        assert_eq!(cat(&[], directory.path())[8..], [last]);
    }
}

#[test]
fn nothing_of_a_message_that_is_wrong_is_stored_and_it_is_counted() {
    let directory = tempfile::tempdir().unwrap();
    let flags = ["--max-line", "64k", "--connection-budget", "128k"];
    let Some((daemon, address)) = start("epoll", directory.path(), &flags) else { return };
    let before_kib = daemon.resident_kib();
    let two = [event(100), event(101)].concat();
    let bomb = [&two[..], &binary(&vec![0; 16 << 20])].concat();
    let cases = [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "a message is no array"),
        (packed(&two[..two.len() - 1], &chunk("x")), "a value ends before its end"),
        (packed(&[&two[..], b"\x01"].concat(), &chunk("x")), "an event is no array"),
        (packed(&[&two[..], b"\xc1"].concat(), &chunk("x")), "begins with the byte c1"),
        (packed(&[&two[..], &[0x91; 200], b"\x01"].concat(), &chunk("x")), "an event is no array"),
        ([&[0x93][..], &text("app"), &[5], &[0x91; 200], b"\x01"].concat(), "nest too deeply"),
        (compressed(&bomb, "x"), "unpacked events are too long"),
        (packed(&vec![0; 200 << 10], &chunk("x")), "a message is too long"),
    ];
    let wrong = cases.len() as u64;
    let mut whys = Vec::new();
    for (number, (bytes, why)) in (0..).zip(cases) {
        let mut client = connect(address);
        // What came before is stored, and acknowledged.
        let right = packed(&event(number), &chunk("right"));
        let _ = client.write_all(&[&right[..], &bytes].concat());
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, acknowledgement("right"), "{why}");
        whys.push(why);
    }
    // The connection ends within a message.
    let mut client = connect(address);
    client.write_all(&packed(&two, &chunk("x"))[..30]).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"");
    let taken_kib = daemon.resident_kib().saturating_sub(before_kib);
    assert!(taken_kib < 4096, "{taken_kib} KiB");
    let said = daemon.end();
    assert_eq!(count(&said, "broken"), wrong + 1, "{said}");
    assert!(whys.iter().all(|why| said.contains(why)), "{said}");
    assert_eq!(cat(&[], directory.path()), (0..wrong as u32).map(line).collect::<Vec<_>>());
    assert!(cat(&["--dead"], directory.path()).is_empty());
}

#[test]
fn an_event_that_is_no_line_is_a_dead_letter_and_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let flags = ["--max-line", "200", "--max-depth", "4"];
    let Some((daemon, address)) = start("epoll", directory.path(), &flags) else { return };
    let long = [&[0x92, 5][..], &binary(&[b'x'; 5000])].concat();
    let deep = [&[0x92, 5][..], &[0x91; 5], &[0x90]].concat();
    let mut client = connect(address);
    let events = [&event(1)[..], &long, &deep, &event(2)].concat();
    client.write_all(&packed(&events, &chunk("x"))).unwrap();
    let expected = acknowledgement("x");
    assert_eq!(read(&mut client, expected.len()).unwrap(), expected);
    // The end waits neither for a silent client nor for half a message.
    let _silent = connect(address);
    client.write_all(&packed(&event(3), &chunk("y"))[..20]).unwrap();
    daemon.end();
    assert_eq!(cat(&[], directory.path()), [line(1), line(2)]);
    let dead = cat(&["--dead"], directory.path()).concat();
    assert!(dead.contains("too-long") && dead.contains("\"depth\""), "{dead}");
}

/// Sends messages of ten events, three at a time, until the daemon is gone; gives how many were acknowledged.
fn load(address: SocketAddr, (round, number): (usize, usize), seen: &AtomicUsize) -> usize {
    let mut client = connect(address);
    let (mut sent, mut answered) = (0, 0);
    loop {
        while sent < answered + 3 {
            let first = ((round * 4 + number) * 1_000_000 + sent * 10) as u32;
            let events: Vec<u8> = (first..first + 10).flat_map(event).collect();
            let message = match sent % 2 {
                0 => packed(&events, &chunk(&sent.to_string())),
                _ => compressed(&events, &sent.to_string()),
            };
            if client.write_all(&message).is_err() {
                break;
            }
            sent += 1;
        }
        let expected = acknowledgement(&answered.to_string());
        match read(&mut client, expected.len()) {
            Ok(bytes) => assert_eq!(bytes, expected),
            Err(_) => return answered,
        }
        answered += 1;
        seen.store(answered, Ordering::Relaxed);
    }
}

#[test]
fn chunks_that_were_acknowledged_are_there_after_a_kill() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let flags = ["--segment-size", "64k", "--pack", "1"];
        let start = |flags: &[&str]| start(engine, directory.path(), flags);
        let load = |(_, address): &(_, _), place, seen: &_| load(*address, place, seen);
        let Some(all) = intake::kill_under_load(|| start(&flags), 20, load) else { return };
        // A start cuts what is torn.
        start(&[]).unwrap().0.end();
        let lines = cat(&[], directory.path());
        let place = |line: &String| {
            let (_, number) = line.rsplit_once(':').unwrap();
            let number: usize = number.trim_end_matches('}').parse().unwrap();
            let client = number / 1_000_000;
            (client / 4, client % 4, number % 1_000_000)
        };
        let places: Vec<_> = lines.iter().map(place).collect();
        intake::check_once_and_in_order(engine, &all, 10, &places);
    }
}

/// A client that got no acknowledgement sends the same chunk again.
#[test]
fn a_chunk_that_comes_again_is_acknowledged_and_not_stored_again() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let flags = ["--http", "127.0.0.1:0"];
        let Some((mut daemon, address)) = start(engine, directory.path(), &flags) else { continue };
        let page = daemon.line();
        let chunks = [
            packed(&[event(1), event(2)].concat(), &chunk("a")),
            compressed(&event(3), "b"),
            // Too many lines for one piece.
            packed(&(0..20_000).flat_map(|_| event(4)).collect::<Vec<_>>(), &chunk("c")),
        ];
        // It does not wait for the answer.
        connect(address).write_all(&chunks[0]).unwrap();
        wait_until("both lines", || cat(&[], directory.path()).len() == 2);
        let mut client = connect(address);
        for message in [&chunks[1], &chunks[2], &chunks[0], &chunks[2], &chunks[1]] {
            client.write_all(message).unwrap();
        }
        let expected: Vec<u8> =
            ["b", "c", "a", "c", "b"].into_iter().flat_map(acknowledgement).collect();
        assert_eq!(read(&mut client, expected.len()).unwrap(), expected, "{engine}");
        // Another one of the same name.
        client.write_all(&packed(&event(5), &chunk("a"))).unwrap();
        read(&mut client, acknowledgement("a").len()).unwrap();
        let figures = ask(&page, "/metrics");
        assert!(figures.contains("logd_repeated_items_total{thread=\"1\"} 3\n"), "{figures}");
        drop(client);
        daemon.end();
        let once = [1, 2, 3].into_iter().chain(std::iter::repeat_n(4, 20_000)).chain([5]);
        assert!(cat(&[], directory.path()) == once.map(line).collect::<Vec<_>>(), "{engine}");
    }
}
