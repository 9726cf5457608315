//! Nobody reads what a tool says: it ends as it would have ended, and never with a panic.

use std::{
    io,
    process::{Command, ExitStatus, Stdio},
};

/// How it ends when its standard error is read, and when it is a pipe whose reader is gone.
fn ends(arguments: &[&str]) -> [ExitStatus; 2] {
    let (reader, deaf) = io::pipe().unwrap();
    drop(reader);
    [Stdio::null(), deaf.into()].map(|stderr| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringwise"));
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        command.status().unwrap()
    })
}

#[test]
fn an_error_that_nobody_reads_is_still_an_error() {
    for (arguments, status) in [
        (&["sing"][..], 2),
        (&["lab", "read", "--depth", "0"], 2),
        (&["lab", "read", "--dir", "/nonexistent"], 1),
        (&["doctor", "/nonexistent"], 1),
        (&["echo", "--listen", "127.0.0.1"], 2),
        (&["load", "echo", "--address", "127.0.0.1:1", "--duration", "10ms"], 1),
        (&["logd", "verify", "/nonexistent"], 1),
        (&["cp", "/nonexistent", "/nonexistent/too"], 1),
    ] {
        let [heard, deaf] = ends(arguments);
        assert_eq!(heard.code(), Some(status), "{arguments:?}");
        assert_eq!(deaf.code(), Some(status), "{arguments:?}: nobody reads its errors");
    }
}
