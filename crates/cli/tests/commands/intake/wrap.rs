//! `ringwise logd --wrap`, from outside: lines that are no JSON, on each engine and by both framings.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
};

use serde_json::{Value, json};

use crate::harness::daemon::{Daemon, ENGINES, cat, count, wait_until};

fn start(engine: &str, directory: &Path, flags: &[&str]) -> Option<Daemon> {
    let own = ["--dir", directory.to_str().unwrap(), "--threads", "1"];
    Daemon::launch("logd", engine, &[&own, flags].concat())
}

/// Sends bytes, and waits until `last` is acknowledged; gives the other answers.
fn send(daemon: &Daemon, bytes: &[u8], last: u64) -> Vec<String> {
    let mut stream = daemon.connect();
    stream.write_all(bytes).unwrap();
    let mut answers = BufReader::new(stream).lines().map(Result::unwrap);
    assert!(answers.next().unwrap().starts_with("H 1"));
    answers.by_ref().take_while(|answer| *answer != format!("A {last}")).collect()
}

fn values(directory: &Path) -> Vec<Value> {
    cat(&[], directory).iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn lines_that_are_no_json_are_wrapped_and_others_stay_as_they_are() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let Some(daemon) = start(engine, directory.path(), &["--wrap", "syslog"]) else { continue };
        let json = "{ \"a\" : 1.0e+2 }";
        let lines = format!(
            "LOGD 1\n{json}\n<34>Oct 11 22:14:15 web su[12]: failed\r\nplain \"text\"\n{json}\n{json}\n\
             <13>1 2003-10-11T22:14:15.003Z web app - - [x a=\"1\"] said \u{fffd}\n"
        );
        // One byte that is no UTF-8.
        let bytes = lines.replace('\u{fffd}', "\u{1}").into_bytes();
        let bytes: Vec<u8> =
            bytes.into_iter().map(|byte| if byte == 1 { 0xff } else { byte }).collect();
        assert_eq!(send(&daemon, &bytes, 6), [""; 0]);
        daemon.signal("-KILL");
        drop(daemon);
        let daemon = start(engine, directory.path(), &[]).unwrap();
        let lines = cat(&[], directory.path());
        assert_eq!([&lines[0], &lines[3], &lines[4]], [json; 3], "{engine}");
        let values = values(directory.path());
        assert_eq!(
            values[1],
            json!({
                "facility": "auth", "severity": "crit", "timestamp": "Oct 11 22:14:15", "host": "web",
                "app_name": "su", "procid": "12", "message": "failed",
            })
        );
        assert_eq!(values[2], json!({"message": "plain \"text\""}));
        assert_eq!(
            values[5],
            json!({
                "facility": "user", "severity": "notice", "timestamp": "2003-10-11T22:14:15.003Z", "host": "web",
                "app_name": "app", "structured_data": {"x": {"a": "1"}}, "message": "said \u{fffd}",
                "message_hex": "7361696420ff",
            })
        );
        // Without the option they are dead letters, as always.
        assert_eq!(send(&daemon, b"LOGD 1\nplain text\n", 1), ["N 1 syntax"]);
        daemon.end();
        assert_eq!(cat(&[], directory.path()).len(), 6);
    }
}

#[test]
fn counted_messages_are_wrapped_with_their_line_ends() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let flags = ["--wrap", "raw", "--framing", "octet-counting"];
        let Some(daemon) = start(engine, directory.path(), &flags) else { continue };
        // Only a final line end belongs to none.
        send(&daemon, b"6 LOGD 13 {}\n8 <13>a\nb\n4 a\0b\n", 3);
        let told = daemon.end();
        assert_eq!(count(&told, "wrapped"), 2, "{told}");
        let expected = [json!({}), json!({"message": "<13>a\nb"}), json!({"message": "a\0b"})];
        assert_eq!(values(directory.path()), expected);
    }
}

#[test]
fn a_wrapped_line_needs_what_every_line_needs() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let flags = ["--wrap", "syslog", "--require", "host:string", "--max-depth", "2"];
        let flags = [&flags[..], &["--max-line", "64"]].concat();
        let Some(daemon) = start(engine, directory.path(), &flags) else { continue };
        // The last lines: JSON without the field and JSON too deep are no text, a line that is too long, and half a line.
        let lines = "LOGD 1\n<13>Oct 11 22:14:15 web a\nplain\n<13>1 - web - - - [x a=\"\"]\n{\"a\":1}\n[[[1]]]\n";
        let lines = format!("{lines}{}\n<13>Oct 11 22:14:15 web b\nhalf", "x".repeat(65));
        let answers = send(&daemon, lines.as_bytes(), 7);
        let rejected =
            ["N 2 missing-field", "N 3 depth", "N 4 missing-field", "N 5 depth", "N 6 too-long"];
        assert_eq!(answers, rejected, "{engine}");
        wait_until("the end of the connection", || {
            cat(&["--dead"], directory.path()).concat().contains("half")
        });
        daemon.end();
        let dead = cat(&["--dead"], directory.path()).concat();
        // As they were received.
        assert!(dead.contains("\"plain\"") && !dead.contains("message"), "{dead}");
        let hosts: Vec<Value> =
            values(directory.path()).iter().map(|value| value["message"].clone()).collect();
        assert_eq!(hosts, ["a", "b"]);
    }
}
