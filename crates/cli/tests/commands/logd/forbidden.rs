//! `ringwise logd` where a seccomp filter forbids io_uring, as container runtimes do: it says so, and does the rest.

use super::*;
use crate::{harness::daemon::has_python, intake::protocols};

/// Becomes a command for which io_uring_setup(2) has an error: 425 on every architecture.
const FILTER: &str = r#"
import ctypes, os, struct, sys
# Load the number of the call; unless it is 425, skip a rule; answer the error; allow.
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, 425), (0x06, 0, 0, 0x50000 | int(sys.argv[1])), (0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("rules", ctypes.c_void_p)]
program = Program(len(rules), ctypes.addressof(code))
prctl = ctypes.CDLL(None, use_errno=True).prctl
# PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP
if prctl(38, 1, 0, 0, 0) or prctl(22, 2, ctypes.byref(program), 0, 0):
    sys.exit(os.strerror(ctypes.get_errno()))
os.execvp(sys.argv[2], sys.argv[2:])
"#;

/// What is told of an error is in the guide.
const GUIDE: &str = include_str!("../../../../../docs/how-to/run-in-a-container.md");

/// The daemon with such a filter, which answers this error.
fn filtered(errno: i32, directory: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new("python3");
    command.args(["-c", FILTER, &errno.to_string(), env!("CARGO_BIN_EXE_ringwise"), "logd"]);
    command.args(["--listen", "127.0.0.1:0", "--threads", "1", "--dir"]).arg(directory);
    command.args(flags);
    command
}

#[test]
fn where_io_uring_is_forbidden_it_is_on_epoll_and_says_why_as_the_guide_has_it() {
    if !has_python() {
        return;
    }
    for (errno, word) in
        [(libc::EPERM, "Operation not permitted"), (libc::ENOSYS, "Function not implemented")]
    {
        let directory = tempfile::tempdir().unwrap();
        let mut command = filtered(errno, directory.path(), &["--http-intake", "127.0.0.1:0"]);
        let mut daemon = Daemon::spawn(&mut command, "epoll").unwrap();
        let line = daemon.line();
        let address = line.trim().strip_prefix("taking requests on http://").unwrap();
        let address = address.strip_suffix("/ingest").unwrap().parse().unwrap();
        let mut client = Client::new(&daemon, "LOGD 1\n");
        client.stream.write_all(b"[1]\n").unwrap();
        client.until(1);
        drop(client);
        assert_eq!(protocols::send(address, "POST /ingest", b"[2]").status, 200);
        let output = daemon.end();
        let told: Vec<&str> = output.lines().filter(|line| line.contains("io_uring")).collect();
        let told = match told[..] {
            [told] => told,
            _ => panic!("{output}"),
        };
        let begin = format!("ringwise: logd: on epoll: io_uring_setup: {word}; ");
        assert!(told.starts_with(&begin) && GUIDE.lines().any(|line| line == told), "{told}");
        assert_eq!(cat(&[], directory.path()), ["[1]", "[2]"]);
    }
}

#[test]
fn where_io_uring_is_forbidden_and_demanded_it_does_not_start_and_says_why_in_one_line() {
    if !has_python() {
        return;
    }
    for errno in [libc::EPERM, libc::ENOSYS] {
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path().join("store");
        let output = filtered(errno, &store, &["--engine", "uring"]).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), &*output.stdout), (Some(1), &b""[..]), "{told}");
        // The reason is the same.
        let as_epoll = told.replacen("logd: no io_uring: ", "logd: on epoll: ", 1);
        assert!(as_epoll != told && as_epoll.lines().count() == 1, "{told}");
        assert!(GUIDE.lines().any(|line| line == as_epoll.trim_end()), "{told}");
    }
}
