//! `ringwise logd query --output parquet FILE` beside `query --with-origin`, as pyarrow reads the file.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Output},
};

use serde_json::{Value, json};

use crate::harness::daemon::{Daemon, cat, wait_until};

/// Prints each row as an object, and fails if a column is not what it should be.
const READER: &str = "
import json, sys
import pyarrow as pa, pyarrow.parquet as pq
file = pq.ParquetFile(sys.argv[1])
expected = pa.schema([
    pa.field('stream', pa.string(), False), pa.field('number', pa.int64(), False),
    pa.field('time', pa.timestamp('ms', 'UTC'), False), pa.field('peer', pa.string()),
    pa.field('tenant', pa.string()), pa.field('line', pa.string(), False)])
assert file.schema_arrow.equals(expected), file.schema_arrow
table = file.read()
table.validate(full=True)
columns = [table[name] for name in ('stream', 'number', 'peer', 'tenant', 'line')]
times = table['time'].cast(pa.int64()).to_pylist()
for time, stream, number, peer, tenant, line in zip(times, *(column.to_pylist() for column in columns)):
    print(json.dumps(dict(stream=stream, number=number, time_ms=time, peer=peer, tenant=tenant, line=line)))
";

fn query(directory: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringwise"));
    command.args(["logd", "query"]).arg(directory).args(words).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// The rows of a file; nothing where no pyarrow is.
fn rows(file: &Path) -> Option<Vec<Value>> {
    let Some(python) = std::env::var_os("RINGWISE_PYTHON") else {
        assert!(std::env::var_os("CI").is_none(), "no skips in CI: RINGWISE_PYTHON");
        eprintln!("skipped: RINGWISE_PYTHON names no Python that has pyarrow");
        return None;
    };
    let output = Command::new(python).args(["-c", READER]).arg(file).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some(text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

/// Stores numbered lines over one connection, some with characters of several bytes.
fn store(daemon: &Daemon, greeting: &str, numbers: std::ops::Range<usize>) {
    let mut stream = daemon.connect();
    writeln!(stream, "LOGD 1{greeting}").unwrap();
    let last = format!("A {}", numbers.len());
    for n in numbers {
        let level = if n.is_multiple_of(7) { "error" } else { "info" };
        writeln!(stream, "{{\"n\":{n},\"level\":\"{level}\",\"m\":\"\u{e9}\u{1f600}\\n\"}}")
            .unwrap();
    }
    assert!(BufReader::new(stream).lines().any(|answer| answer.unwrap() == last));
}

#[test]
fn query_parquet_has_what_query_prints_and_the_numbers_of_lines() {
    const TOKEN: &str = "web-0123456789abcdefghij";
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (log, file) = (directory.path().join("log"), directory.path().join("lines.parquet"));
    let tokens = directory.path().join("tokens");
    fs::write(&tokens, format!("{TOKEN} web \"1\"\n")).unwrap();
    let flags = ["--dir", log.to_str().unwrap(), "--tokens", tokens.to_str().unwrap()];
    let small = ["--segment-size", "16k", "--threads", "2", "--pack", "3"];
    let daemon = Daemon::launch("logd", "epoll", &[flags, small[..4].try_into().unwrap()].concat());
    let daemon = daemon.unwrap();
    for part in 0..12 {
        let greeting = if part % 2 == 0 { format!(" token={TOKEN}") } else { String::new() };
        store(&daemon, &greeting, part * 300..(part + 1) * 300);
    }
    daemon.end();
    // Half of what there is becomes packed while this daemon runs.
    let packs = [&flags[..], &small].concat();
    let daemon = Daemon::launch("logd", "epoll", &packs).unwrap();
    let is_packed = || {
        fs::read_dir(&log)
            .unwrap()
            .any(|entry| entry.unwrap().path().extension().unwrap_or_default() == "zst")
    };
    wait_until("some are packed", is_packed);
    for words in [
        &[][..],
        &["--where", "level=error"],
        &["--tenant", "web \"1\"", "--match", "9"],
        &["--limit", "1001"],
        &["--match", "no such text"],
    ] {
        let output =
            query(&log, &[words, &["--output", "parquet", file.to_str().unwrap()]].concat());
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{words:?}");
        let Some(rows) = rows(&file) else { return };
        let beside = query(&log, &[words, &["--with-origin"]].concat());
        let beside: Vec<&str> = text(&beside.stdout).lines().collect();
        assert_eq!(rows.len(), beside.len(), "{words:?}");
        for (row, object) in rows.iter().zip(beside) {
            let known: Value = serde_json::from_str(object).unwrap();
            assert_eq!(row["time_ms"], known["time_ms"]);
            assert_eq!((&row["peer"], &row["tenant"]), (&known["peer"], &known["tenant"]));
            let line = row["line"].as_str().unwrap();
            assert!(object.ends_with(&format!(",\"line\":{line}}}")), "{object}: {row}");
        }
        // Each line is where its number says.
        for stream in 0..2 {
            let all = cat(&["--stream", &stream.to_string()], &log);
            let name = json!(format!("lines-00{stream}"));
            for row in rows.iter().filter(|row| row["stream"] == name) {
                assert_eq!(row["line"], all[row["number"].as_u64().unwrap() as usize].as_str());
            }
        }
    }
    daemon.end();
}

#[test]
fn query_parquet_leaves_the_file_alone_until_it_is_whole() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (log, file) = (directory.path().join("log"), directory.path().join("lines.parquet"));
    let daemon =
        Daemon::launch("logd", "epoll", &["--dir", log.to_str().unwrap(), "--segment-size", "1"]);
    let daemon = daemon.unwrap();
    for number in 0..4 {
        store(&daemon, "", number..number + 1);
    }
    daemon.end();
    fs::write(&file, "from before").unwrap();
    let path = file.to_str().unwrap();
    let mut indexes: Vec<_> =
        fs::read_dir(&log).unwrap().map(|entry| entry.unwrap().path()).collect();
    indexes.retain(|path| {
        path.to_str().unwrap().contains("lines-") && path.extension().unwrap() == "index"
    });
    fs::remove_file(&indexes[0]).unwrap();
    fs::create_dir(&indexes[0]).unwrap();
    let output = query(&log, &["--output", "parquet", path]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("Is a directory"), "{}", text(&output.stderr));
    assert_eq!(fs::read(&file).unwrap(), b"from before");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2, "nothing is left over");
    for (words, status, told) in [
        (&["--output", "csv", path][..], 2, "--output csv: expected parquet and a file"),
        (&["--output", "parquet", "/no/such/file"], 1, "--output parquet /no/such/file: "),
        (&["--output", "parquet", path, "--count"], 2, "--count"),
        (&["--output", "parquet"], 2, "--output"),
    ] {
        let output = query(&log, words);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{words:?}: {error}");
        assert!(error.contains(told) && error.lines().count() == 1, "{words:?}: {error}");
    }
}
