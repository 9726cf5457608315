//! `ringwise lab explain` and `lab replay` as a user runs them: traces that are whole, cut, empty, of a newer version, and
//! of files that are gone, and those of strace, fio and blktrace. What results files say beside a trace.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::BufWriter,
    num::NonZeroU32,
    path::Path,
    process::{Command, Output},
};

use ringwise_trace::{
    End, FileId, FileKind, Header, Interface, Kind, Name, OpenFlags, Operation, Outcome, Record,
    Source, Thread, ThreadId, Writer,
};

use crate::harness::browser::{Page, has_browser};

/// A directory on the device that the target is on, because a tmpfs has no direct I/O.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn lab(directory: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ringwise"))
        .arg("lab")
        .args(words)
        .current_dir(directory)
        .output()
        .unwrap()
}

#[track_caller]
fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The one line of a failure.
#[track_caller]
fn failure(output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text.starts_with("ringwise: lab: ") && text.lines().count() == 1, "{text}");
    text
}

fn number(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap()
}

fn file(id: u32, path: &str, kind: FileKind, size_bytes: Option<u64>) -> Record {
    Record::File(ringwise_trace::File {
        id: FileId(number(id)),
        name: Name::Path(OsString::from(path)),
        kind,
        size_bytes,
        flags: OpenFlags::default(),
        made_ns: None,
    })
}

fn operation(thread: u32, file: u32, kind: Kind, begin_ns: u64) -> Operation {
    let bytes = if matches!(kind, Kind::Sync | Kind::DataSync) { 0 } else { 4096 };
    Operation {
        thread: ThreadId(number(thread)),
        file: Some(FileId(number(file))),
        target: None,
        kind,
        offset: (bytes > 0).then_some(begin_ns / 100_000 * 4096),
        asked_bytes: Some(bytes),
        outcome: Outcome::Done { bytes },
        begin_ns,
        duration_ns: 50_000,
        is_direct: false,
        source: Source::Unknown,
        interface: Interface::Syscall,
        computed_ns: None,
    }
}

/// Writes a trace of two threads: one reads a file that is gone, the other writes one and syncs it, and talks to a
/// socket.
fn write_trace(path: &Path) {
    let header = Header { command: vec!["program".to_owned()], ..Header::default() };
    let mut writer = Writer::new(BufWriter::new(File::create(path).unwrap()), &header).unwrap();
    let mut records = vec![
        file(1, "/nonexistent/input", FileKind::Regular, Some(1 << 20)),
        file(2, "/nonexistent/output", FileKind::Regular, Some(0)),
        file(3, "socket:[7]", FileKind::Socket, None),
    ];
    for id in 1..=2 {
        let id = ThreadId(number(id));
        records.push(Record::Thread(Thread { id, tid: 10, pid: 10, name: "worker".to_owned() }));
    }
    for round in 0..20 {
        let at = round * 100_000;
        records.push(Record::Operation(operation(1, 1, Kind::Read, at)));
        records.push(Record::Operation(operation(2, 2, Kind::Write, at)));
    }
    records.push(Record::Operation(operation(2, 2, Kind::DataSync, 2_000_000)));
    records.push(Record::Operation(operation(2, 3, Kind::Send, 2_100_000)));
    for (at, record) in records.iter().enumerate() {
        writer.record(record).unwrap();
        // As a recorder does each second: what is cut later is whole up to here.
        if at == records.len() / 2 {
            writer.flush().unwrap();
        }
    }
    writer.finish(&End { elapsed_ns: 2_200_000, ..End::default() }).unwrap();
}

#[test]
fn a_trace_is_explained_as_text_and_as_a_page() {
    let directory = directory();
    write_trace(&directory.path().join("t"));
    let text = stdout(&lab(directory.path(), &["explain", "t", "--html", "t.html"]));
    assert!(text.contains("42 operations in 2.20 ms by 2 threads, 3 files: program"), "{text}");
    assert!(text.contains("One ring for all threads would hold 2 at the median"), "{text}");
    assert!(text.lines().count() <= 32, "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let page = fs::read_to_string(directory.path().join("t.html")).unwrap();
    if has_browser() {
        Page::open(directory.path(), "t.html").is_for_everybody(4);
    }
    assert!(page.contains("Operations in flight over time") && !page.contains("<script"), "{page}");
}

#[test]
fn a_trace_that_is_cut_is_explained_up_to_there_and_says_so_first() {
    let directory = directory();
    let path = directory.path().join("t");
    write_trace(&path);
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 5]).unwrap();
    let text = stdout(&lab(directory.path(), &["explain", "t"]));
    assert!(text.starts_with("missing: the trace is cut after byte "), "{text}");
    assert!(text.contains("42 operations"), "{text}");
    fs::write(&path, &whole[..200]).unwrap();
    let text = failure(&lab(directory.path(), &["explain", "t"]));
    assert!(text.contains("t: ") && text.contains("is cut after byte"), "{text}");
}

#[test]
fn a_trace_that_is_cut_is_replayed_up_to_there_and_says_so_first() {
    let directory = directory();
    let path = directory.path().join("t");
    write_trace(&path);
    let whole = fs::read(&path).unwrap();
    // In the frame after the flush.
    fs::write(&path, &whole[..whole.len() * 3 / 4]).unwrap();
    let explained = stdout(&lab(directory.path(), &["explain", "t"]));
    let first_of = |line: &str| line.split_whitespace().next().unwrap().parse::<u64>().unwrap();
    let heading = explained.lines().find(|line| line.contains(" operations in ")).unwrap();
    let count = first_of(heading);
    assert!((10..30).contains(&count), "{explained}");
    let words = ["replay", "t", "--repeats", "2", "--engines", "uring"];
    let text = stdout(&lab(directory.path(), &words));
    assert!(text.starts_with("missing: the trace is cut after byte "), "{text}");
    // Neither the socket nor the sync of its end.
    let replayed = text.split("replaying ").nth(1).unwrap_or_else(|| panic!("{text}"));
    assert_eq!(first_of(replayed), count, "{text}");
    assert!(!text.contains("left out") && !text.contains("excluded"), "{text}");
    // With `--recorder` it has to say what recording costs, which stands at its end.
    let output = lab(directory.path(), &["replay", "t", "--recorder"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8(output.stderr).unwrap().contains("it is no whole trace"));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "only the trace is left");
}

/// A kept trace of another program.
fn sample(name: &str) -> String {
    format!("{}/../trace/tests/samples/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn traces_of_other_programs_are_explained_and_replayed() {
    let directory = directory();
    for (name, missing, explained, replayed) in [
        (
            "strace-y.txt",
            "strace does not tell the page cache from the device",
            "22 operations in 195 ms by 3 threads, 9 files",
            "replaying 13 operations of 2 threads on 3 files",
        ),
        (
            "fio-2.log",
            "A fio iolog has no results and no durations",
            "4 operations in 1.25 ms by 1 thread, 2 files",
            "replaying 4 operations of 1 thread on 2 files",
        ),
        (
            "fio-3.log",
            "A fio iolog has no results and no durations",
            "16 operations in 4.04 ms by 1 thread, 1 file",
            "replaying 16 operations of 1 thread on 1 file,",
        ),
        (
            "blktrace.bin",
            "A block trace has what went to the device",
            "32 operations in 401 µs by 1 thread, 1 file",
            "replaying 32 operations of 1 thread on 1 file,",
        ),
    ] {
        let trace = sample(name);
        let text = stdout(&lab(directory.path(), &["explain", &trace]));
        assert!(text.starts_with("missing: ") && text.contains(missing), "{name}: {text}");
        assert!(text.contains(explained), "{name}: {text}");
        let words = ["replay", &trace, "--repeats", "2", "--engines", "uring"];
        let text = stdout(&lab(directory.path(), &words));
        assert!(text.starts_with("missing: ") && text.contains(missing), "{name}: {text}");
        assert!(text.contains(replayed) && !text.contains("excluded"), "{name}: {text}");
        let has_left_out = text.contains("left out: 4 on sockets, 2 on pipes and terminals");
        assert_eq!(has_left_out, name == "strace-y.txt", "{name}: {text}");
        // An iolog has no durations.
        let is_known = text.contains("fidelity: the recorded engine's I/O time is ");
        assert_eq!(is_known, !name.starts_with("fio"), "{name}: {text}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left");
}

#[test]
fn results_beside_a_trace_say_if_they_are_of_another_kernel() {
    let directory = directory();
    let path = directory.path();
    write_trace(&path.join("t"));
    let run = "read --profile buffered --engines threads,uring --size 4m --duration 30ms \
               --repeats 2 --depth 1,4 --json r.json";
    stdout(&lab(path, &run.split_whitespace().collect::<Vec<_>>()));
    let explain = ["explain", "t", "--results", "r.json"];
    // Sentences are wrapped.
    let words = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let here = words(stdout(&lab(path, &explain)));
    assert!(here.contains("Measured: read buffered "), "{here}");
    assert!(!here.contains("another machine or kernel"), "{here}");
    let text = fs::read_to_string(path.join("r.json")).unwrap();
    let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(value["environment"]["kernel"].is_string(), "{}", value["environment"]);
    value["environment"]["kernel"] = "4.4.0-old".into();
    fs::write(path.join("r.json"), value.to_string()).unwrap();
    let there = words(stdout(&lab(path, &explain)));
    let line = "These results are of another machine or kernel (4.4.0-old): measure this one with \
                `ringwise lab`.";
    assert_eq!(there, format!("{here} - {line}"));
    for (content, what) in [
        ("{}", "has no schema: no results of `ringwise lab`"),
        ("hello", "is not JSON"),
        ("", "is empty: no results of `ringwise lab`"),
        (&text[..text.len() / 2], "it was cut off"),
    ] {
        fs::write(path.join("r.json"), content).unwrap();
        let text = failure(&lab(path, &explain));
        assert!(text.contains("r.json: ") && text.contains(what), "{text}");
    }
    let text = failure(&lab(path, &["explain", "t", "--results", "gone.json"]));
    assert!(text.contains("reading gone.json: No such file or directory"), "{text}");
}

#[test]
fn what_cannot_be_used_is_refused_by_both() {
    let directory = directory();
    let path = directory.path().join("t");
    write_trace(&path);
    let mut newer = fs::read(&path).unwrap();
    newer[8] = 9;
    let empty = {
        let path = directory.path().join("empty");
        let file = File::create(&path).unwrap();
        let writer = Writer::new(BufWriter::new(file), &Header::default()).unwrap();
        writer.finish(&End::default()).unwrap();
        fs::read(&path).unwrap()
    };
    for (bytes, words) in [
        (newer, "version 9 of the format"),
        (empty, "has no operation: the program made no I/O"),
        (Vec::new(), "not a trace"),
        (b"hello\nworld\n".to_vec(), "not a trace"),
    ] {
        fs::write(&path, bytes).unwrap();
        for command in ["explain", "replay"] {
            let text = failure(&lab(directory.path(), &[command, "t"]));
            assert!(text.contains(words), "{command}: {text}");
        }
    }
    for command in ["explain", "replay"] {
        let text = failure(&lab(directory.path(), &[command, "gone"]));
        assert!(text.contains("reading gone: No such file or directory"), "{text}");
    }
}

#[test]
fn a_program_is_replayed_without_its_files() {
    let directory = directory();
    write_trace(&directory.path().join("t"));
    let text = stdout(&lab(directory.path(), &["replay", "t", "--repeats", "2"]));
    assert!(text.contains("left out: 1 on sockets"), "{text}");
    assert!(text.contains("replaying 41 operations of 2 threads on 2 files"), "{text}");
    assert!(text.contains("\n24 replays take about "), "{text}");
    for engine in ["recorded (again)", "uring ", "uring+one-ring", "tokio ", "ringwise "] {
        assert!(text.contains(engine), "{engine}: {text}");
    }
    assert!(text.contains("fidelity: the recorded engine's I/O time is "), "{text}");
    assert!(!text.contains("excluded"), "{text}");
    let asap = ["replay", "t", "--repeats", "2", "--pace", "asap", "--engines", "uring"];
    let text = stdout(&lab(directory.path(), &asap));
    assert!(text.contains("verdict: ") && !text.contains("uring+one-ring"), "{text}");
    assert!(!text.contains("fidelity"), "{text}");
    let open = ["replay", "t", "--repeats", "2", "--pace", "open", "--engines", "uring"];
    let text = stdout(&lab(directory.path(), &open));
    assert!(text.contains("replay at the recorded times"), "{text}");
    assert!(text.contains(": at the recorded times the ring's I/O time is "), "{text}");
    assert!(!text.contains("excluded") && !text.contains("fidelity"), "{text}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "only the trace is left");
}

#[test]
fn a_replay_without_room_or_with_a_wrong_name_is_refused() {
    let directory = directory();
    write_trace(&directory.path().join("t"));
    let text = failure(&lab(directory.path(), &["replay", "t", "--size-max", "64k"]));
    assert!(text.contains("more than --size-max 64.0 KiB"), "{text}");
    let text = failure(&lab(directory.path(), &["replay", "t", "--dir", "/nonexistent"]));
    assert!(text.contains("--dir /nonexistent: does not exist"), "{text}");
    let output = lab(directory.path(), &["replay", "t", "--engines", "uring,tokyo"]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.contains("--engines: invalid value 'tokyo': expected one that this trace can have: recorded, uring, uring+one-ring"),
        "{text}"
    );
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "only the trace is left");
}
