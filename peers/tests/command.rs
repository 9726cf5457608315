//! The command as it is used: every peer reads a small file and every block is verified; what cannot
//! be done or is wrong is said, in one line.
//!
//! The figures of these runs mean nothing; they are not looked at.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Command, Output},
    thread,
};

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
use serde_json::Value;

/// Each sample's: with two samples twice the reads of a row, beside those of the warm-up.
const READS: u64 = 1000;
/// What the file of [`results`] has.
const BLOCKS: u64 = 256;
const FILE: &str = "ringwise-lab-data/peers-000.data";

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn peers(directory: &Path, arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringwise-peers"));
    command.arg("--dir").arg(directory).args(arguments.split_whitespace()).output().unwrap()
}

/// A run over a small file, and its results.
fn results(arguments: &str) -> Vec<Value> {
    let directory = directory();
    let json = directory.path().join("results.json");
    let base = format!("--size 1m --reads {READS} --repeats 1 --json {}", json.display());
    let output = peers(directory.path(), &format!("{base} {arguments}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = fs::read_to_string(&json).unwrap();
    let left: Vec<PathBuf> =
        fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left, [json], "nothing but what was asked for is left");
    let document: Value = serde_json::from_str(&text).unwrap();
    document["results"].as_array().unwrap().clone()
}

/// One peer, through the warm and the cold page cache and past it, at a depth of one and of many.
fn reads(engine: &str) {
    let rows = results(&format!("--engines {engine} --depth 1,40"));
    assert_eq!(rows.len(), 12, "three profiles, two depths, and each row once more");
    for row in rows {
        let (profile, depth) = (&row["profile"], &row["depth"]);
        match row["void"].as_str() {
            // Said by the gate of the file system, or by an engine that cannot read so.
            Some(reason) if reason.contains("O_DIRECT") || reason.starts_with("n/a: ") => {
                println!("skipped: {engine} {profile}: {reason}");
                assert_eq!(profile, "direct", "{reason}");
            }
            // Short runs on a busy machine: what the gates on figures say is not tested here.
            Some(reason) => println!("note: {engine} {profile} at {depth}: {reason}"),
            None => {}
        }
        assert_eq!(row["failed"], false, "{row}");
        let samples = row["samples"].as_array().unwrap();
        if !samples.is_empty() {
            assert!(samples.iter().all(|sample| sample["ops_per_s"].as_f64().unwrap() > 0.0));
            assert!(row["latency_ns"]["p50"].as_u64().unwrap() > 0, "{row}");
            // A block that was read is in the page cache.
            let is_once = |sample: &Value| sample["operations"].as_u64().unwrap() <= BLOCKS;
            assert!(profile != "cold" || samples.iter().all(is_once), "{row}");
        } else {
            assert_eq!(profile, "direct", "{row}");
        }
    }
}

#[test]
fn tokio_reads() {
    reads("tokio");
}

#[test]
fn tokio_fs_reads() {
    reads("tokio-fs");
}

#[test]
fn tokio_fs_reads_with_a_ring() {
    if cfg!(tokio_unstable) {
        return reads("tokio-fs-uring");
    }
    let rows = results("--engines sync,tokio-fs-uring --depth 1");
    for row in rows.iter().filter(|row| row["engine"] == "tokio-fs-uring") {
        let reason = row["void"].as_str().unwrap_or_default();
        let is_told = reason.contains("tokio_unstable") || row["profile"] == "direct";
        assert!(is_told, "{row}");
    }
}

#[test]
fn rustfs_uring_reads() {
    reads("rustfs-uring");
}

#[test]
fn a10_reads() {
    reads("a10");
}

#[test]
fn uring_file_reads() {
    reads("uring-file");
}

#[test]
fn tokio_uring_reads() {
    reads("tokio-uring");
}

#[test]
fn compio_reads() {
    reads("compio");
}

#[test]
fn monoio_reads() {
    reads("monoio");
}

#[test]
fn glommio_reads() {
    reads("glommio");
}

#[test]
fn the_labs_engines_read() {
    let rows = results("--profile buffered --engines sync,threads,uring --depth 8");
    let names: Vec<&str> = rows.iter().map(|row| row["engine"].as_str().unwrap()).collect();
    assert_eq!(names, ["threads", "uring", "threads"], "sync has no depth but 1");
    assert!(rows.iter().all(|row| row["failed"] == false));
}

#[test]
fn a_damaged_block_is_a_failure_whoever_reads_it() {
    let directory = directory();
    let arguments = format!("--size 64k --reads {READS} --repeats 1 --profile buffered --keep");
    let laid = peers(directory.path(), &format!("{arguments} --depth 1 --engines sync"));
    assert!(laid.status.success(), "{}", String::from_utf8_lossy(&laid.stderr));
    // Neither the first nor the last block, by which a file is known.
    let file = OpenOptions::new().write(true).open(directory.path().join(FILE)).unwrap();
    file.write_all_at(b"wrong", 5 * 4096 + 100).unwrap();
    file.sync_all().unwrap();
    let mut engines = vec!["tokio", "tokio-fs", "rustfs-uring", "a10", "uring-file", "tokio-uring"];
    engines.extend(["compio", "monoio", "glommio", "uring"]);
    engines.extend(cfg!(tokio_unstable).then_some("tokio-fs-uring"));
    for engine in engines {
        let output = peers(directory.path(), &format!("{arguments} --depth 8 --engines {engine}"));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{engine}: {errors}");
        let wanted = "verification failed: block 5 of file 0 holds damaged data";
        assert!(errors.contains(wanted), "{engine}: {errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
        let table = String::from_utf8_lossy(&output.stdout);
        assert!(table.contains("excluded") && table.contains(wanted), "{table}");
    }
}

#[test]
fn a_runtime_without_a_ring_says_so_in_its_row() {
    let rows = thread::spawn(|| {
        forbid_rings();
        let engines = "sync,tokio,rustfs-uring,a10,uring-file,tokio-uring,compio,monoio,glommio";
        let with_own = if cfg!(tokio_unstable) { ",tokio-fs-uring" } else { "" };
        results(&format!("--profile buffered --depth 2 --engines {engines}{with_own}"))
    });
    let rows = rows.join().unwrap();
    assert_eq!(rows.len(), if cfg!(tokio_unstable) { 10 } else { 9 });
    for row in rows.iter().filter(|row| row["engine"] != "tokio") {
        let reason = row["void"].as_str().unwrap_or_default();
        assert!(reason.starts_with("does not start: "), "{row}");
        // Its own words for a ring that is not there.
        let is_told =
            ["not permitted", "register a probe"].iter().any(|words| reason.contains(words));
        assert!(is_told, "{reason}");
    }
}

/// Answers EPERM to io_uring_setup(2), for this thread and its children.
fn forbid_rings() {
    let rules = BTreeMap::from([(libc::SYS_io_uring_setup, Vec::new())]);
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).unwrap();
    apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
}

#[test]
fn a_low_memlock_limit_is_said_in_the_row() {
    let directory = directory();
    let program = env!("CARGO_BIN_EXE_ringwise-peers");
    let script = format!("ulimit -l 64 && exec {program} \"$@\"");
    let output = Command::new("sh")
        .args(["-c", &script, "sh", "--dir"])
        .arg(directory.path())
        .args(["--size", "1m", "--reads", "100", "--repeats", "1", "--profile", "buffered"])
        .args(["--depth", "1", "--engines", "sync,glommio"])
        .output()
        .unwrap();
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(table.contains("- glommio at 1: does not start: "), "{table}");
    assert!(table.contains("MemLockLimit"), "{table}");
}

#[test]
fn the_table_is_written_as_it_is_printed() {
    let directory = directory();
    let table = directory.path().join("peers.md");
    let arguments = "--size 1m --reads 200 --repeats 2 --profile buffered --depth 1,4";
    let arguments = format!("{arguments} --engines tokio,compio --table {}", table.display());
    let output = peers(directory.path(), &arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(&table).unwrap();
    assert_eq!(text, String::from_utf8_lossy(&output.stdout));
    for part in ["Linux ", " processors", "compio 0.", "tokio 1.", "| tokio (again)", "--reads 200"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let path = directory.path().to_string_lossy();
    assert!(!text.contains(&*path), "a table names no path of its machine");
}

#[test]
fn what_is_not_understood_is_one_line_that_names_what_is() {
    let directory = directory();
    for (arguments, parts) in [
        (
            "--engines tokio,monoyo",
            &["monoyo", "a10, uring-file, tokio-uring, compio, monoio, glommio", "fio+fixed"][..],
        ),
        ("--engines mmap", &["mmap", "sync, threads"]),
        ("--engines tokio,tokio", &["tokio", "once"]),
        ("--engines uring+fast", &["uring+fast", "glommio"]),
        ("--profile warm", &["warm", "buffered, direct, cold"]),
        ("--depth 0", &["--depth", "from 1 to 1024"]),
        ("--depth 1,,2", &["--depth", "whole number"]),
        ("--depth 1025", &["1025", "from 1 to 1024"]),
        ("--size 1x", &["--size", "one with k, m, g or t"]),
        ("--size 100", &["--size", "at least one block"]),
        ("--duration 5h", &["--duration", "10ms to 10m"]),
        ("--duration 1ms", &["--duration", "10ms to 10m"]),
        ("--reads 0", &["--reads", "whole number from 1"]),
        ("--repeats x", &["--repeats", "from 1 to 1000"]),
        ("--seed -", &["--seed", "whole number"]),
        ("--reads 5 --duration 1s", &["--duration", "cannot be used with"]),
        ("--enginse tokio", &["--enginse", "--engines"]),
        ("read", &["read"]),
        ("sample {}", &["sample", "--dir"]),
    ] {
        let output = peers(directory.path(), arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {errors}");
        assert!(errors.starts_with("ringwise-peers: "), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
        for part in parts {
            assert!(errors.contains(part), "{arguments}: {part}: {errors}");
        }
        assert!(output.stdout.is_empty());
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn what_cannot_be_used_is_named() {
    let missing = peers(Path::new("/nonexistent"), "--engines sync");
    let errors = String::from_utf8_lossy(&missing.stderr);
    assert_eq!(missing.status.code(), Some(1));
    assert_eq!(
        errors,
        "ringwise-peers: --dir /nonexistent: does not exist; name an existing directory\n"
    );

    let directory = directory();
    fs::create_dir(directory.path().join("ringwise-lab-data")).unwrap();
    let mut precious = fs::File::create(directory.path().join("ringwise-lab-data/mine")).unwrap();
    precious.write_all(b"precious").unwrap();
    let foreign = peers(directory.path(), "--engines sync --size 1m");
    assert_eq!(foreign.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&foreign.stderr).contains("is not the lab's"));
    assert_eq!(fs::read(directory.path().join("ringwise-lab-data/mine")).unwrap(), b"precious");
}
