//! `ringwise lab record --out FIFO` as a user runs it: with a reader, with one that stops reading, and with none.

use std::{
    fs::OpenOptions,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{
    harness::daemon::signal,
    lab_record::{command, directory, file, record, stderr},
};

fn fifo(directory: &Path) -> PathBuf {
    let fifo = directory.join("t");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    fifo
}

#[test]
fn a_trace_is_explained_while_it_is_written_to_a_fifo() {
    let directory = directory();
    file(directory.path(), "f", 64 << 10);
    fifo(directory.path());
    // If nobody writes to the FIFO, it would wait for ever.
    let mut explain = Command::new("timeout");
    explain
        .args(["20", env!("CARGO_BIN_EXE_ringwise"), "lab", "explain", "t"])
        .current_dir(directory.path())
        .stdout(Stdio::piped());
    let explain = explain.spawn().unwrap();
    let output = record(directory.path(), "", &["dd", "if=f", "of=/dev/null", "bs=4k"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let explained = explain.wait_with_output().unwrap();
    assert!(explained.status.success());
    let text = String::from_utf8(explained.stdout).unwrap();
    assert!(!text.contains("no end record"), "{text}");
    assert!(text.contains(": dd if=f of=/dev/null bs=4k"), "{text}");
    // A reader that goes away: the recorder says that the trace could not be written.
    let mut reader = Command::new("timeout")
        .args(["20", "head", "-c1", "t"])
        .current_dir(directory.path())
        .spawn()
        .unwrap();
    let output = record(directory.path(), "", &["sh", "-c", "sleep 1; cat f f f >/dev/null"]);
    reader.wait().unwrap();
    assert!(!output.status.success());
    assert!(stderr(&output).contains("writing t: "), "{}", stderr(&output));
}

#[test]
fn without_a_reader_a_signal_ends_a_recording_that_has_not_begun() {
    let directory = directory();
    fifo(directory.path());
    let mut other = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = format!("--method ptrace --pid {}", other.id());
    for options in ["-- touch ran", &pid] {
        let mut recorder = command(directory.path(), "--out t");
        recorder.args(options.split_whitespace()).stderr(Stdio::piped());
        let recorder = recorder.spawn().unwrap();
        thread::sleep(Duration::from_millis(300));
        signal(&recorder, "-TERM");
        let output = recorder.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let told =
            "ringwise: lab: record: t: a signal came before a reader; nothing was recorded\n";
        assert_eq!(stderr(&output), told);
    }
    assert!(!directory.path().join("ran").exists());
    assert!(other.try_wait().unwrap().is_none(), "it goes on");
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn a_reader_that_takes_nothing_does_not_keep_a_recording_from_its_end() {
    let directory = directory();
    let path = fifo(directory.path());
    file(directory.path(), "f", 4096);
    // Reads nothing, and is there before the recorder.
    let reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).unwrap();
    // Its trace is more than a pipe holds. It would go on for as long as nobody ends it.
    let mut recorder = command(directory.path(), "--method ptrace --out t --");
    recorder.args(["sh", "-c", "while dd if=f of=/dev/null bs=1 2>/dev/null; do :; done"]);
    let recorder = recorder.stderr(Stdio::piped()).spawn().unwrap();
    let full = || rustix::io::ioctl_fionread(&reader).unwrap() >= 60 << 10;
    let begin = Instant::now();
    while !full() {
        assert!(begin.elapsed() < Duration::from_secs(60), "it did not fill");
        thread::sleep(Duration::from_millis(20));
    }
    // Time for it to wait.
    thread::sleep(Duration::from_millis(300));
    signal(&recorder, "-TERM");
    let asked = Instant::now();
    let output = recorder.wait_with_output().unwrap();
    assert!(asked.elapsed() < Duration::from_secs(20));
    assert_eq!(output.status.code(), Some(1));
    let told = "writing t: a signal came, and its reader took nothing for a second";
    assert!(stderr(&output).contains(told), "{}", stderr(&output));
    drop(reader);
}
