//! `GET /search`: what it finds beside `query`, its limits, and how it ends.

use std::{
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{answer, figure, get, get_with, lines, request, start, store, temporary};
use crate::harness::daemon::{ENGINES, wait_until};

/// The lines that are found, and the last object.
#[track_caller]
fn search(address: SocketAddr, query: &str) -> (Vec<String>, Value) {
    let (status, body) = get(address, &format!("/search?{query}"));
    assert_eq!(status, 200, "{query}: {body}");
    let mut lines: Vec<String> = body.lines().map(str::to_owned).collect();
    let end: Value = serde_json::from_str(&lines.pop().unwrap()).unwrap();
    assert!(body.ends_with('\n') && end["end"].is_object(), "{end}");
    (lines, end["end"].clone())
}

fn query(directory: &Path, words: &[&str]) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringwise"));
    command.args(["logd", "query"]).arg(directory).args(words).output().unwrap()
}

#[test]
fn a_search_finds_what_query_finds() {
    for engine in ENGINES {
        let directory = temporary();
        let flags = ["--segment-size", "4k", "--threads", "2", "--pack", "3"];
        let Some((daemon, http)) = start(engine, directory.path(), &flags) else { continue };
        for part in lines(0..600).chunks(50) {
            store(&daemon, "", part);
        }
        for (asked, words, count) in [
            ("limit=1000", &["--limit", "1000"][..], 600),
            ("where=level%3Derror", &["--where", "level=error"], 60),
            ("match=%22n%22:12&limit=50", &["--match", "\"n\":12"], 11),
            (
                "match=7&match=8&where=level%3Dinfo",
                &["--match=7", "--match=8", "--where", "level=info"],
                12,
            ),
            ("since=1h&until=2099-01-01&where=n%3D7&tenant=", &["--where", "n=7"], 1),
            ("until=1h", &["--until", "1h"], 0),
            ("tenant=web", &["--tenant", "web"], 0),
            ("peer=127.0.0.1&limit=3", &["--limit", "3"], 3),
            ("match=no+such+text", &["--match", "no such text"], 0),
        ] {
            let (found, end) = search(http, asked);
            let output = query(directory.path(), &[words, &["--with-origin"]].concat());
            let beside = String::from_utf8(output.stdout).unwrap();
            assert_eq!(found, beside.lines().collect::<Vec<_>>(), "{asked}");
            assert_eq!(found.len(), count, "{asked}");
            let cut = if asked == "peer=127.0.0.1&limit=3" { json!("lines") } else { Value::Null };
            assert_eq!(end, json!({ "lines": count, "cut": cut, "problems": [] }), "{asked}");
        }
        assert_eq!(figure(http, "logd_searches_cut_total"), 1);
        daemon.end();
    }
}

#[test]
fn what_is_asked_wrongly_is_told_as_the_command_tells_it() {
    let directory = temporary();
    let (daemon, http) = start("epoll", directory.path(), &[]).unwrap();
    for (asked, word) in [
        ("since=soon", "--since=soon"),
        ("until=2026-13-01", "--until=2026-13-01"),
        ("limit=0", "--limit=0"),
        ("limit=x", "--limit=x"),
        ("where=level", "--where=level"),
        ("where=a%3D%5B1%5D", "--where=a=[1]"),
        ("match=a%0Ab", "--match=a\nb"),
        ("peer=web", "--peer=web"),
    ] {
        let (status, body) = get(http, &format!("/search?{asked}"));
        assert_eq!(status, 400, "{asked}: {body}");
        assert_eq!(body.lines().count(), 1, "{asked}: {body}");
        let output = query(directory.path(), &[word]);
        let told = String::from_utf8(output.stderr).unwrap();
        // A parameter has no dashes.
        assert_eq!(format!("ringwise: logd: --{body}"), told, "{asked}");
    }
    let (status, body) = get(http, "/search?threads=9");
    assert!(
        status == 400 && body.contains("tenant, peer, match, where, since, until, limit"),
        "{body}"
    );
    let (status, head, body) = get_with(http, "/search", "Host: localhost\r\nX: y\r\n");
    assert_eq!((status, body.lines().count()), (200, 1), "{head}");
    daemon.end();
}

/// 30 MB, of which a search sends 16 MiB, and not more lines than are asked for.
#[test]
fn a_search_ends_at_its_limits_and_says_so() {
    let directory = temporary();
    let (daemon, http) = start("epoll", directory.path(), &["--threads", "1"]).unwrap();
    let padding = "x".repeat(3000);
    let line = |n: usize| format!("{{\"n\":{n},\"p\":\"{padding}\"}}");
    for part in 0..10 {
        store(&daemon, "", &(part * 1000..(part + 1) * 1000).map(line).collect::<Vec<_>>());
    }
    let (found, end) = search(http, "limit=10000");
    assert_eq!((&end["cut"], &end["lines"]), (&json!("bytes"), &json!(found.len())));
    let bytes: usize = found.iter().map(|line| line.len() + 1).sum();
    assert!(bytes <= 16 << 20 && bytes > (16 << 20) - 4000, "{bytes}");
    let (found, end) = search(http, "");
    assert_eq!((found.len(), &end["cut"]), (100, &json!("lines")));
    // All places are taken by clients that do not read what is found.
    let slow = [(); 2].map(|()| request(http, "/search?limit=10000", "Host: localhost\r\n"));
    wait_until("both run", || figure(http, "logd_searches") == 2);
    let (status, head, body) = get_with(http, "/search", "Host: localhost\r\n");
    assert!(status == 503 && head.contains("Retry-After: ") && body.lines().count() == 1, "{head}");
    assert_eq!(figure(http, "logd_searches_refused_total"), 1);
    let [first, second] = slow;
    // Nobody waits for what nobody reads.
    drop(first);
    wait_until("one has ended", || figure(http, "logd_searches") == 1);
    let (status, _, body) = answer(second);
    assert!(status == 200 && body.trim_end().ends_with("\"problems\":[]}}"), "it is whole");
    wait_until("both have ended", || figure(http, "logd_searches") == 0);
    daemon.end();
}

/// An answer without the last object is not whole, so problems are in that object.
#[test]
fn problems_are_told_at_the_end() {
    let directory = temporary();
    let flags = ["--threads", "1", "--segment-size", "1"];
    let (daemon, _) = start("epoll", directory.path(), &flags).unwrap();
    for line in lines(0..4) {
        store(&daemon, "", &[line]);
    }
    daemon.end();
    let paths = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|e| e == "ndjson")).collect();
    paths.sort();
    let mut bytes = std::fs::read(&paths[1]).unwrap();
    bytes[2] ^= 1;
    std::fs::write(&paths[1], bytes).unwrap();
    let (daemon, http) = start("epoll", directory.path(), &flags).unwrap();
    let (found, end) = search(http, "");
    assert_eq!((found.len(), &end["lines"]), (3, &json!(3)), "{end}");
    let problem = end["problems"][0].as_str().unwrap();
    assert!(problem.contains("0000000001.ndjson: damaged"), "{end}");
    daemon.end();
}

/// A drain does not wait for it, and its client learns that it is not whole.
#[test]
fn a_search_ends_with_the_daemon() {
    let directory = temporary();
    let (daemon, http) = start("epoll", directory.path(), &["--threads", "1"]).unwrap();
    let padding = "x".repeat(3000);
    let line = |n: usize| format!("{{\"n\":{n},\"p\":\"{padding}\"}}");
    for part in 0..8 {
        store(&daemon, "", &(part * 1000..(part + 1) * 1000).map(line).collect::<Vec<_>>());
    }
    let mut reader = BufReader::new(request(http, "/search?limit=10000", "Host: localhost\r\n"));
    let mut first = String::new();
    reader.read_line(&mut first).unwrap();
    // Who stays keeps the drain from its end.
    let mut stays = daemon.connect();
    std::io::Write::write_all(&mut stays, b"LOGD 1\n").unwrap();
    daemon.signal("-TERM");
    wait_until("it drains", || get(http, "/readyz").0 == 503);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    let end: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(end["end"]["cut"], "shutdown", "{end}");
    drop(stays);
    daemon.end();
}

/// A client that takes 160 kB a second, as from far away.
#[test]
#[ignore = "slow: bash .ci/scheduled slow"]
fn a_search_ends_after_a_time() {
    let directory = temporary();
    let (daemon, http) = start("epoll", directory.path(), &["--threads", "1"]).unwrap();
    let padding = "x".repeat(3000);
    let line = |n: usize| format!("{{\"n\":{n},\"p\":\"{padding}\"}}");
    for part in 0..8 {
        store(&daemon, "", &(part * 1000..(part + 1) * 1000).map(line).collect::<Vec<_>>());
    }
    let mut stream = request(http, "/search?limit=10000", "Host: localhost\r\n");
    let (begin, mut text) = (Instant::now(), Vec::new());
    while begin.elapsed() < Duration::from_secs(31) {
        let mut piece = vec![0; 64 << 10];
        stream.read_exact(&mut piece).unwrap();
        text.extend(piece);
        std::thread::sleep(Duration::from_millis(400));
    }
    stream.read_to_end(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let end: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(end["end"]["cut"], "time", "{end}");
    daemon.end();
}
