//! `GET /live`: which lines come, in what order, and which are left out.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{figure, get, get_with, lines, request, start, store, temporary};
use crate::harness::{
    daemon::{ENGINES, wait_until},
    deaf::deafen,
};

/// What comes of a live view.
#[derive(Debug, PartialEq)]
enum Event {
    Line(String),
    LeftOut(u64),
    Beat,
}

/// A client that follows lines.
struct Follower(BufReader<TcpStream>);

impl Follower {
    fn new(address: SocketAddr, query: &str) -> Follower {
        let stream = request(address, &format!("/live{query}"), "Host: localhost\r\n");
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
        }
        assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("text/event-stream"), "{head}");
        Follower(reader)
    }

    /// The next event; nothing at the end.
    fn next(&mut self) -> Option<Event> {
        let mut text = String::new();
        while !text.ends_with("\n\n") {
            if self.0.read_line(&mut text).unwrap() == 0 {
                assert_eq!(text, "", "half of an event");
                return None;
            }
        }
        if text == ":\n\n" {
            return Some(Event::Beat);
        }
        if let Some(count) = text.strip_prefix("event: left-out\ndata: ") {
            return Some(Event::LeftOut(count.trim_end().parse().unwrap()));
        }
        let object = text.strip_prefix("data: ").unwrap_or_else(|| panic!("{text}")).trim_end();
        let value: Value = serde_json::from_str(object).unwrap();
        assert!(value["time_ms"].as_u64() > Some(0), "{object}");
        assert!(value["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{object}");
        let line = object.split_once(",\"line\":").unwrap().1;
        Some(Event::Line(line.strip_suffix('}').unwrap().to_owned()))
    }

    #[track_caller]
    fn expect(&mut self, lines: &[String]) {
        for line in lines {
            assert_eq!(self.next(), Some(Event::Line(line.clone())));
        }
    }
}

#[test]
fn the_last_lines_come_and_then_each_that_is_stored() {
    for engine in ENGINES {
        let directory = temporary();
        // Segments of one batch each: the last lines are in several.
        let flags = ["--segment-size", "1", "--threads", "1"];
        let Some((daemon, http)) = start(engine, directory.path(), &flags) else { continue };
        let all = lines(0..1000);
        for part in all[..70].chunks(7) {
            store(&daemon, "", part);
        }
        let mut follower = Follower::new(http, "");
        follower.expect(&all[20..70]);
        let mut errors = Follower::new(http, "?where=level%3Derror&match=n");
        errors.expect(&[all[20].clone(), all[30].clone()]);
        let mut none = Follower::new(http, "?tenant=web");
        for at in 70..75 {
            store(&daemon, "", &all[at..at + 1]);
            follower.expect(&all[at..at + 1]);
        }
        store(&daemon, "", &all[75..120]);
        follower.expect(&all[75..120]);
        let wanted: Vec<String> = (40..120).step_by(10).map(|at| all[at].clone()).collect();
        errors.expect(&wanted);
        // Carriage returns between values are spaces of JSON, and would end a line of the events.
        store(&daemon, "", &["{\"a\":\r1,\r\"data: x\":2}".to_owned()]);
        follower.expect(&["{\"a\": 1, \"data: x\":2}".to_owned()]);
        wait_until("all are counted", || figure(http, "logd_live_clients") == 3);
        assert_eq!(figure(http, "logd_live_left_out_lines_total"), 0);
        // It ends when the daemon drains, which somebody makes long.
        let mut stays = daemon.connect();
        std::io::Write::write_all(&mut stays, b"LOGD 1\n").unwrap();
        daemon.signal("-TERM");
        assert_eq!(follower.next(), None);
        assert_eq!(none.next(), None);
        drop(stays);
        daemon.end();
    }
}

/// Without conditions it would read the last 200 lines only.
#[test]
fn a_view_with_conditions_reads_all_lines_between_two_looks() {
    let directory = temporary();
    let (daemon, http) = start("epoll", directory.path(), &["--threads", "1"]).unwrap();
    let all = lines(0..1000);
    store(&daemon, "", &all[..1]);
    let mut errors = Follower::new(http, "?where=level%3Derror");
    errors.expect(&all[..1]);
    store(&daemon, "", &all[1..]);
    errors.expect(&all.iter().skip(10).step_by(10).cloned().collect::<Vec<_>>());
    daemon.end();
}

/// More is stored than is shown, and more than a client takes that does not read for a while.
#[test]
fn a_slow_client_is_told_how_many_lines_were_left_out() {
    let directory = temporary();
    let (daemon, http) = start("epoll", directory.path(), &["--threads", "2"]).unwrap();
    store(&daemon, "", &["\"first\"".to_owned()]);
    let mut follower = Follower::new(http, "");
    follower.expect(&["\"first\"".to_owned()]);
    let before = daemon.resident_kib();
    let padding = "x".repeat(6000);
    let line = |n: usize| format!("{{\"n\":{n},\"p\":\"{padding}\"}}");
    let total = 4000;
    for part in 0..10 {
        store(&daemon, "", &(part * 400..(part + 1) * 400).map(line).collect::<Vec<_>>());
    }
    let after = daemon.resident_kib();
    assert!(after < before + 80 * 1024, "{before} KiB before, {after} after");
    let (mut seen, mut left_out) = (BTreeSet::new(), 0);
    while seen.len() as u64 + left_out < total {
        match follower.next().unwrap() {
            Event::Line(line) => {
                let value: Value = serde_json::from_str(&line).unwrap();
                assert!(seen.insert(value["n"].as_u64().unwrap()), "{} twice", value["n"]);
            }
            Event::LeftOut(count) => left_out += count,
            Event::Beat => panic!("{} and {left_out} left out are not all", seen.len()),
        }
    }
    assert_eq!(seen.len() as u64 + left_out, total);
    assert!(left_out > 0 && seen.contains(&(total - 1)), "{left_out} left out");
    assert_eq!(figure(http, "logd_live_left_out_lines_total"), left_out);
    daemon.end();
}

#[test]
fn only_so_many_follow_and_the_page_answers_others_meanwhile() {
    let directory = temporary();
    let (daemon, http) = start("epoll", directory.path(), &[]).unwrap();
    let mut followers: Vec<Follower> = (0..8).map(|_| Follower::new(http, "")).collect();
    let (status, head, body) = get_with(http, "/live", "Host: localhost\r\n");
    assert!(status == 503 && head.contains("Retry-After: "), "{head}");
    assert_eq!(body.lines().count(), 1, "{body}");
    // They do not have the places of requests that are soon answered.
    let slow: Vec<TcpStream> = (0..12).map(|_| TcpStream::connect(http).unwrap()).collect();
    assert_eq!((get(http, "/readyz").0, get(http, "/search").0), (200, 200));
    drop(slow);
    wait_until("all are counted", || figure(http, "logd_live_clients") == 8);
    assert_eq!(figure(http, "logd_live_refused_total"), 1);
    // Who closes is found though no line comes.
    followers.truncate(7);
    wait_until("there is a place again", || figure(http, "logd_live_clients") == 7);
    followers.push(Follower::new(http, ""));
    assert_eq!(figure(http, "logd_live_clients_total"), 9);
    let head = get_with(http, "/live?since=1m", "Host: localhost\r\n").2;
    assert!(head.starts_with("unknown parameter \"since\""), "{head}");
    daemon.end();
}

/// A machine that lost its power closes nothing.
#[test]
#[ignore = "slow: bash .ci/scheduled slow"]
fn a_client_that_has_vanished_is_found() {
    let directory = temporary();
    let (daemon, http) = start("epoll", directory.path(), &[]).unwrap();
    let mut beaten = Follower::new(http, "");
    let vanished = Follower::new(http, "");
    deafen(vanished.0.get_ref());
    let begin = Instant::now();
    assert_eq!(beaten.next(), Some(Event::Beat));
    assert!(begin.elapsed() > Duration::from_secs(5));
    while figure(http, "logd_live_clients") == 2 {
        assert!(begin.elapsed() < Duration::from_secs(60), "it is not found");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(beaten.next(), Some(Event::Beat));
    daemon.end();
}
