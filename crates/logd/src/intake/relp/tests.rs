//! Sessions without any I/O.

use super::*;
use crate::intake::trial::{Trial, talk};

const OPEN: &str = "1 open 15 commands=syslog\n";

fn session(text: &str) -> Trial {
    let whole = talk::<Session>([text.as_bytes()].into_iter(), 1000, 200);
    assert_eq!(whole, talk::<Session>(text.as_bytes().chunks(1), 1000, 200));
    whole
}

fn said(trial: &Trial) -> &str {
    std::str::from_utf8(&trial.said).unwrap()
}

#[test]
fn a_session_from_open_to_close() {
    let text =
        format!("{OPEN}2 syslog 2 {{}}\n3 syslog 0\n4 syslog 3 a\nb\n5 close 0\n6 syslog 1 x\n");
    let trial = session(&text);
    assert_eq!(
        said(&trial),
        "1 rsp 65 200 OK\nrelp_version=0\nrelp_software=ringwise-logd\ncommands=syslog\n\
         2 rsp 6 200 OK\n3 rsp 6 200 OK\n4 rsp 6 200 OK\n5 rsp 0\n0 serverclose 0\n"
    );
    assert_eq!((&trial.stored[..], trial.end), (&b"2 {}3 a\nb"[..], Some("closed")));
    assert_eq!(OFFERS.len(), 65);
}

#[test]
fn what_is_wrong_ends_the_session_after_what_was_right() {
    let long = format!("3 syslog 1000 {}\n", "x".repeat(1000));
    for (wrong, told) in [
        (&long[..], "3 rsp 57 500 a message is too long (--connection-budget, --budget)\n"),
        ("3 syslog 9999 x", "3 rsp 57 500 a message is too long (--connection-budget, --budget)\n"),
        ("3 open 15 commands=syslog\n", "3 rsp 31 500 the session is open already\n"),
        ("3 reopen 0\n", "3 rsp 28 500 the command is not known\n"),
        ("x", ""),
        ("3 syslog 1 xy\n", ""),
    ] {
        let trial = session(&format!("{OPEN}2 syslog 2 {{}}\n{wrong}"));
        let rest = said(&trial).split_once("2 rsp 6 200 OK\n").unwrap().1;
        assert_eq!(rest, format!("{told}0 serverclose 0\n"), "{wrong}");
        assert!(trial.end.is_some() && trial.stored == b"2 {}", "{wrong}");
    }
    for first in ["1 syslog 2 {}\n", "1 open 0\n", "1 open 16 commands=syslogs\n"] {
        let trial = session(first);
        assert!(said(&trial).starts_with("1 rsp ") && said(&trial).contains(" 500 "));
        assert!(trial.stored.is_empty() && trial.end.is_some());
    }
}

#[test]
fn a_long_message_waits_for_memory_only_in_an_open_session() {
    let long = b"1 syslog 40000 x";
    let before = Session::default().look(long, 100_000).unwrap_err();
    assert_eq!(before.why, "a message came before open");
    let mut session = Session { is_open: true, most: 0 };
    assert!(matches!(session.look(long, 100_000), Ok(Seen::Part { least: 40_016, .. })));
}
