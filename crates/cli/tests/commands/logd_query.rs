//! `ringwise logd query` beside `cat`, which prints everything: what it finds, what it does not read, and how it ends.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};

#[cfg(feature = "parquet")]
mod parquet;

use crate::{
    harness::daemon::{Daemon, ENGINES, cat, wait_until},
    logd::logd,
};

fn command(directory: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringwise"));
    command.args(["logd", "query"]).arg(directory).args(words);
    command
}

fn run(directory: &Path, words: &[&str]) -> Output {
    command(directory, words).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// The lines that a query prints, and what it says on standard error.
#[track_caller]
fn query(directory: &Path, words: &[&str]) -> (Vec<String>, String) {
    let output = run(directory, words);
    assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
    let lines = text(&output.stdout).lines().map(str::to_owned).collect();
    (lines, text(&output.stderr).to_owned())
}

fn temporary() -> tempfile::TempDir {
    // tmpfs has no direct writes.
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn start(engine: &str, directory: &Path, flags: &[&str]) -> Option<Daemon> {
    let own = ["--dir", directory.to_str().unwrap()];
    Daemon::launch("logd", engine, &[&own, flags].concat())
}

/// Stores lines over one connection.
fn store(daemon: &Daemon, lines: &[String]) {
    let mut stream = daemon.connect();
    stream.write_all(b"LOGD 1\n").unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap()).lines().map(Result::unwrap);
    let all: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let writer = std::thread::spawn(move || stream.write_all(all.as_bytes()).map(|()| stream));
    let last = format!("A {}", lines.len());
    assert!(answers.any(|answer| answer == last), "all are stored");
    writer.join().unwrap().unwrap();
}

/// Lines of several services, some with escapes.
fn lines(numbers: std::ops::Range<u64>) -> Vec<String> {
    let line = |number: u64| {
        let level = ["info", "info", "warn", "error"][(number % 4) as usize];
        let (name, status) = if number.is_multiple_of(8) {
            (r"\u006cevel", "5e2".to_owned())
        } else {
            ("level", (number % 600).to_string())
        };
        let padding = "x".repeat((number % 150) as usize);
        format!(
            r#"{{"{name}":"{level}","n":{number},"http":{{"status":{status}}},"p":"{padding}"}}"#
        )
    };
    numbers.map(line).collect()
}

fn files(directory: &Path, ending: &str) -> Vec<PathBuf> {
    let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> = paths.filter(|path| path.to_str().unwrap().ends_with(ending)).collect();
    paths.sort();
    paths
}

/// Packed segments, plain ones, some that retention removed, and one that is open while the daemon runs.
#[test]
fn a_query_finds_what_cat_prints_and_a_filter_keeps() {
    for engine in ENGINES {
        let directory = temporary();
        let directory = directory.path();
        let small = ["--segment-size", "16k", "--threads", "2"];
        let Some(daemon) = start(engine, directory, &[&small[..], &["--pack", "3"]].concat())
        else {
            continue;
        };
        for part in 0..8 {
            store(&daemon, &lines(part * 150..(part + 1) * 150));
        }
        wait_until("segments are packed", || files(directory, ".zst").len() > 3);
        daemon.end();
        let packed = files(directory, ".zst");
        // The last ones may still be plain.
        let ended = packed.iter().chain(&files(directory, ".ndjson")).cloned().collect::<Vec<_>>();
        let bytes: u64 = ended.iter().map(|path| path.metadata().unwrap().len()).sum();
        let retain = ["--retain-size", &(bytes - 1).to_string()];
        let daemon = start(engine, directory, &[&small[..], &retain].concat()).unwrap();
        wait_until("retention", || files(directory, ".zst").len() < packed.len());
        daemon.end();
        let daemon = start(engine, directory, &small).unwrap();
        for part in 8..16 {
            store(&daemon, &lines(part * 150..(part + 1) * 150));
        }
        let all = cat(&[], directory);
        assert!((1201..2400).contains(&all.len()), "{} lines", all.len());
        assert!(!files(directory, ".zst").is_empty() && !files(directory, ".ndjson").is_empty());
        check_beside(&all, directory);
        daemon.end();
        check_beside(&all, directory);
    }
}

fn check_beside(all: &[String], directory: &Path) {
    type Filter = fn(&str, &Value) -> bool;
    let filters: [(&[&str], Filter); 9] = [
        (&[], |_, _| true),
        (&["--threads", "1"], |_, _| true),
        (&["--where", "level=error"], |_, line| line["level"] == "error"),
        (&["--where=http.status=500"], |_, line| line["http"]["status"].as_f64() == Some(500.0)),
        (&["--match", "\"n\":12", "--threads", "7"], |text, _| text.contains("\"n\":12")),
        (&["--match", "xxx", "--where", "level=warn", "--match", "level"], |text, line| {
            text.contains("xxx") && line["level"] == "warn" && text.contains("level")
        }),
        (&["--match", "no such text"], |_, _| false),
        (&["--since", "1h", "--until", "2099-01-01"], |_, _| true),
        (&["--until", "1h"], |_, _| false),
    ];
    for (words, filter) in filters {
        let is_wanted = |line: &&String| filter(line, &serde_json::from_str(line).unwrap());
        let expected: Vec<&String> = all.iter().filter(is_wanted).collect();
        let (found, said) = query(directory, words);
        assert!(said.is_empty(), "{words:?}: {said}");
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{words:?}");
        let (count, _) = query(directory, &[words, &["--count"]].concat());
        assert_eq!(count, [expected.len().to_string()], "{words:?}");
        let (first, _) = query(directory, &[words, &["--limit", "7"]].concat());
        assert_eq!(first, found[..found.len().min(7)], "{words:?}");
        let (with_origin, _) =
            query(directory, &[words, &["--with-origin", "--limit", "20"]].concat());
        for (line, object) in found.iter().zip(&with_origin) {
            let object: Value = serde_json::from_str(object).unwrap();
            assert_eq!(object["line"], serde_json::from_str::<Value>(line).unwrap());
            assert!(object["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{object}");
        }
        assert_eq!(with_origin.len(), found.len().min(20), "{words:?}");
    }
}

/// More lines than a thread may find before they are printed.
#[test]
fn all_of_many_lines_come_in_order() {
    let directory = temporary();
    let directory = directory.path();
    let flags = ["--segment-size", "1m", "--threads", "2"];
    let daemon = start("epoll", directory, &flags).unwrap();
    for part in 0..4 {
        store(&daemon, &lines(part * 20_000..(part + 1) * 20_000));
    }
    daemon.end();
    let all = cat(&[], directory);
    assert_eq!(all.len(), 80_000);
    for threads in ["1", "2", "5"] {
        let (found, _) = query(directory, &["--threads", threads]);
        assert!(found == all, "with {threads} threads");
    }
    assert!(cat(&["--with-origin"], directory) == query(directory, &["--with-origin"]).0);
}

/// The figures of `--stats`, by the word before each.
fn stats(said: &str) -> Value {
    let line = said.lines().find(|line| line.contains("segments: ")).unwrap();
    let words: Vec<&str> = line.split([' ', ',', ';']).filter(|word| !word.is_empty()).collect();
    let number = |word: &str, after: isize| {
        let at = words.iter().position(|other| *other == word).unwrap();
        words[at.checked_add_signed(after).unwrap()].parse::<u64>().unwrap()
    };
    json!({
        "read": number("read", -1),
        "skipped": number("skipped", -1),
        "bytes": number("bytes:", 1),
        "looked_at": number("looked", -1),
        "found": number("found", -1),
    })
}

/// Waits for the next second, and returns it as the time of an option.
fn next_second() -> String {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let begin = now();
    wait_until("the next second", || now() > begin);
    let mut date = Command::new("date");
    date.args(["-u", "-d", &format!("@{}", begin + 1), "+%Y-%m-%dT%H:%M:%S"]);
    text(&date.output().unwrap().stdout).trim_end().to_owned()
}

#[test]
fn what_is_out_of_the_range_is_not_read() {
    for pack in ["none", "3"] {
        let directory = temporary();
        let directory = directory.path();
        // Each line has a segment of its own.
        let flags = ["--segment-size", "1", "--threads", "1", "--pack", pack];
        let daemon = start("epoll", directory, &flags).unwrap();
        let lines: Vec<String> = (0..9).map(|number| format!("{{\"n\":{number}}}")).collect();
        let store = |range: std::ops::Range<usize>| {
            lines[range].iter().for_each(|line| store(&daemon, std::slice::from_ref(line)));
        };
        store(0..4);
        let since = next_second();
        store(4..6);
        let until = next_second();
        store(6..9);
        daemon.end();
        let words = ["--stats", "--since", &since, "--until", &until];
        let (found, said) = query(directory, &words);
        assert_eq!(found, lines[4..6], "{said}");
        let bytes = 2 * (lines[4].len() + 1);
        let expected = json!({"read": 2, "skipped": 7, "bytes": bytes, "looked_at": 0, "found": 2});
        assert_eq!(stats(&said), expected, "{said}");
        // A sender who stored nothing is known by the index alone.
        let (_, said) = query(directory, &["--stats", "--peer", "10.9.8.7"]);
        let expected = json!({"read": 0, "skipped": 9, "bytes": 0, "looked_at": 0, "found": 0});
        assert_eq!(stats(&said), expected, "{said}");
        let (_, said) = query(directory, &["--stats", "--where", "n=5", "--match", "n"]);
        assert_eq!((&stats(&said)["looked_at"], &stats(&said)["found"]), (&json!(9), &json!(1)));
    }
}

#[test]
fn a_damaged_batch_is_told_and_the_rest_is_printed() {
    for pack in ["none", "3"] {
        let directory = temporary();
        let directory = directory.path();
        let flags = ["--segment-size", "1g", "--threads", "1", "--pack", pack];
        let daemon = start("epoll", directory, &flags).unwrap();
        for part in 0..5 {
            store(&daemon, &lines(part * 100..(part + 1) * 100));
        }
        daemon.end();
        let ending = if pack == "none" { ".ndjson" } else { ".zst" };
        if pack != "none" {
            // Sealed segments are packed while a daemon runs.
            let daemon = start("epoll", directory, &flags).unwrap();
            wait_until("it is packed", || !files(directory, ".zst").is_empty());
            daemon.end();
        }
        let all = cat(&[], directory);
        let path = files(directory, ending).remove(0);
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&path, bytes).unwrap();
        let beside = logd(&["cat"], directory);
        let output = run(directory, &[]);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(text(&output.stdout), text(&beside.stdout));
        assert_eq!(output.stderr, beside.stderr, "the same problem");
        let said = text(&output.stderr);
        assert!(said.contains("damaged after") && said.lines().count() == 1, "{said}");
        assert!(output.stdout.len() < all.join("\n").len(), "a batch is missing");
        assert!(pack != "none" || !output.stdout.is_empty(), "the other batches are there");
        let output = run(directory, &["--where", "level=warn", "--count"]);
        assert_eq!(output.status.code(), Some(1));
        let count: usize = text(&output.stdout).trim_end().parse().unwrap();
        assert!(count < 125, "{count}");
    }
}

#[test]
fn an_unreadable_segment_ends_a_query_after_the_lines_before_it() {
    let directory = temporary();
    let directory = directory.path();
    let daemon = start("epoll", directory, &["--segment-size", "1", "--threads", "1"]).unwrap();
    for number in 0..6 {
        store(&daemon, &lines(number..number + 1));
    }
    daemon.end();
    let index = &files(directory, ".index")[4];
    fs::remove_file(index).unwrap();
    fs::create_dir(index).unwrap();
    let output = run(directory, &[]);
    assert_eq!(output.status.code(), Some(1));
    // The segment before it ends where its first line is, so that one is not read either.
    assert_eq!(text(&output.stdout).lines().collect::<Vec<_>>(), lines(0..3));
    let said = text(&output.stderr);
    assert!(said.contains("0000000004.index: Is a directory"), "{said}");
}

#[test]
fn follow_goes_on_with_what_is_stored_until_nobody_reads() {
    for engine in ENGINES {
        let directory = temporary();
        let directory = directory.path();
        let Some(daemon) = start(engine, directory, &["--segment-size", "1"]) else { continue };
        store(&daemon, &lines(0..4));
        let mut child = command(directory, &["--follow", "--where", "level=error"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut found = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert_eq!(found.next().unwrap(), lines(3..4)[0]);
        let mut limited = command(directory, &["--follow", "--match", "\"n\":6", "--limit", "1"]);
        let limited = limited.stdout(Stdio::piped()).spawn().unwrap();
        store(&daemon, &lines(4..8));
        assert_eq!(found.next().unwrap(), lines(7..8)[0], "no line between, and none twice");
        let output = limited.wait_with_output().unwrap();
        assert!(output.status.success());
        assert_eq!(text(&output.stdout), format!("{}\n", lines(6..7)[0]));
        drop(found);
        wait_until("its end", || child.try_wait().unwrap().is_some());
        assert!(child.wait().unwrap().success());
        daemon.end();
    }
}

/// A reader that takes some lines and goes ends the query, whatever else there is to read.
#[test]
fn a_closed_pipe_ends_a_query() {
    let directory = temporary();
    let directory = directory.path();
    let daemon = start("epoll", directory, &["--segment-size", "100k"]).unwrap();
    store(&daemon, &lines(0..20_000));
    daemon.end();
    let mut child = command(directory, &[]).stdout(Stdio::piped()).spawn().unwrap();
    let mut found = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(found.next().unwrap().is_ok());
    drop(found);
    wait_until("its end", || child.try_wait().unwrap().is_some());
    assert!(child.wait().unwrap().success());
}

#[test]
fn how_a_query_ends() {
    let directory = temporary();
    let none = run(directory.path(), &["--match", "x"]);
    assert_eq!((none.status.code(), &*none.stdout), (Some(0), &b""[..]));
    assert!(
        text(&none.stderr)
            .ends_with(": no segments; name the directory that the daemon's --dir names\n"),
        "{none:?}"
    );
    assert_eq!(run(Path::new("/nonexistent"), &[]).status.code(), Some(1));
    for words in [
        &["--where", "level"][..],
        &["--where", "a=[1]"],
        &["--match", "a\nb"],
        &["--limit", "0"],
        &["--threads", "0"],
        &["--count", "--follow"],
        &["--since", "soon"],
    ] {
        let output = run(directory.path(), words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        let said = text(&output.stderr);
        assert!(said.starts_with("ringwise: logd: "), "{words:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{words:?}: {said}");
    }
}

/// A build without it says so, and touches no file.
#[cfg(not(feature = "parquet"))]
#[test]
fn a_build_without_parquet_says_so() {
    let directory = temporary();
    let file = directory.path().join("lines.parquet");
    let output = run(directory.path(), &["--output", "parquet", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(
        said.contains("build it with --features parquet") && said.lines().count() == 1,
        "{said}"
    );
    assert!(!file.exists());
}
