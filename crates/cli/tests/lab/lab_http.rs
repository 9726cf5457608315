//! `ringwise lab http` as a user runs it: figures and verdicts, a wrong body, a server that cannot start, an
//! interrupt, and what a run leaves behind.

use std::{
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use serde_json::Value;

use crate::harness::lab_results;

use lab_results::conforming;

const FILE_BYTES: u64 = 64 << 10;

fn ringwise(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringwise"));
    command.arg("lab").args(arguments).current_dir(directory);
    if arguments[0] == "http" {
        command.arg("--verbose");
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<String> =
        entries.map(|entry| name(entry).to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[track_caller]
fn results(directory: &Path) -> Value {
    conforming(&directory.join("h.json"))
}

/// Why a test cannot run here, if the kernel gives no ring.
fn lacks_ring(results: &Value) -> bool {
    let rows = results["results"].as_array().unwrap();
    let reason = rows.iter().find_map(|row| row["void"].as_str()).unwrap_or_default();
    let lacks = reason.contains("io_uring");
    if lacks {
        assert!(std::env::var_os("CI").is_none(), "skipped in CI: {reason}");
        println!("skipped: {reason}");
    }
    lacks
}

#[test]
fn servers_are_compared_from_memory_and_from_files_and_nothing_is_left() {
    let directory = directory();
    let mut arguments = vec!["http", "--length", "1k,64k", "--connections", "4"];
    arguments.extend(["--duration", "60ms", "--repeats", "2", "--json", "h.json"]);
    let run = || ringwise(directory.path(), &arguments).output().unwrap();
    let (text, results) = lab_results::compared(directory.path(), "h", run);
    if lacks_ring(&results) {
        return;
    }
    for part in ["bodies of 1k from memory", "bodies of 64k from cached files", "every byte"] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    let rows = results["results"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * (4 + 5), "lengths, and servers with one of them again: {text}");
    for row in rows {
        assert!(row["void"].is_null() && row["ops_per_s"].as_f64().unwrap() > 0.0, "{row:#}");
        assert_eq!((&row["workload"], &row["connections"]), (&"http".into(), &4.into()));
        // The server's: no request is served in less than 3 us, and it has one processor.
        let cpu_ns = row["cpu_ns_per_op"].as_f64().unwrap();
        let cores = cpu_ns * row["ops_per_s"].as_f64().unwrap() / 1e9;
        assert!(cpu_ns > 3000.0 && cores < 1.3, "{cpu_ns} ns, {cores} processors: {row:#}");
        assert!([1024, FILE_BYTES].contains(&row["block_bytes"].as_u64().unwrap()), "{row:#}");
        let is_cached = row["bodies"] == "files";
        assert_eq!(row["cache"], if is_cached { "warm".into() } else { Value::Null }, "{row:#}");
        let remarks = row["remarks"].to_string();
        let is_variant = row["role"] == "variant";
        assert_eq!(remarks.contains(" times tokio, CPU "), is_variant, "{row:#}");
    }
    let verdicts = results["verdicts"].as_array().unwrap();
    assert_eq!(verdicts.len(), 4, "{text}");
    for verdict in verdicts {
        assert_eq!(verdict["rival"], "tokio", "{verdict:#}");
        assert!(verdict["reason"].as_str().unwrap().contains("CPU per request"), "{verdict:#}");
    }
}

/// The directory of the files of a run, when all of them are there.
fn site(directory: &Path) -> PathBuf {
    loop {
        let is_site = |name: &String| name.starts_with("ringwise-lab-http-");
        if let Some(name) = names(directory).into_iter().find(is_site) {
            let site = directory.join(name);
            if fs::metadata(site.join("15")).is_ok_and(|found| found.len() == FILE_BYTES) {
                return site;
            }
        }
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_body_that_changed_excludes_every_server() {
    let directory = directory();
    let mut arguments = vec!["http", "--bodies", "files", "--length", "64k", "--connections", "2"];
    arguments.extend(["--engines", "tokio,ringwise-classic", "--duration", "300ms"]);
    arguments.extend(["--repeats", "2", "--json", "h.json"]);
    let child = ringwise(directory.path(), &arguments).spawn().unwrap();
    let file = site(directory.path()).join("3");
    let file = fs::OpenOptions::new().write(true).open(file).unwrap();
    file.write_all_at(b"x", 30_000).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let reason = "verification failed: block 7 of file 3 holds damaged data; remove kept test files, and look for \
                  device errors in the kernel's log";
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(told, format!("ringwise: lab: nothing could be measured: {reason}\n"), "{text}");
    assert_eq!(output.status.code(), Some(1));
    let results = results(directory.path());
    let rows = results["results"].as_array().unwrap();
    assert_eq!(rows.len(), 3, "{text}");
    assert!(rows.iter().all(|row| row["void"] == reason), "{text}");
    assert_eq!(results["verdicts"][0]["verdict"], "inconclusive", "{text}");
    assert_eq!(names(directory.path()), ["h.html", "h.json"]);
}

#[test]
fn one_server_in_all_rows_is_told_apart_seldom() {
    let directory = directory();
    let mut arguments = vec!["http", "--bodies", "memory", "--length", "1k", "--connections", "4"];
    arguments.extend(["--engines", "tokio,ringwise-classic", "--duration", "60ms"]);
    arguments.extend(["--repeats", "2", "--self-check", "1", "--json", "h.json"]);
    let output = ringwise(directory.path(), &arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let results = results(directory.path());
    assert_eq!(results["results"].as_array().unwrap().len(), 3, "{text}");
    assert!(text.contains("run 1 of a check of the lab with itself"), "{text}");
    // On a busy machine it may tell some apart, and then says so.
    let line = text.lines().find(|line| line.starts_with("no difference in ")).unwrap();
    let mut numbers = line.split(' ').filter_map(|word| word.parse::<u32>().ok());
    let mut are_same = || numbers.next().unwrap() == numbers.next().unwrap();
    assert_eq!(output.status.success(), are_same() & are_same(), "rows and gains: {text}");
}

#[test]
fn a_server_that_cannot_start_says_why_in_one_line_and_one_that_can_ends_with_its_input() {
    let directory = directory();
    let serve = |name: &str| {
        let arguments = ["--child-server", name, "--dir", "/nonexistent"];
        ringwise(directory.path(), &arguments).output().unwrap()
    };
    for (name, status, expected) in [
        ("http-memory-tokio", 1, "lab: http-memory-tokio: No such file or directory"),
        ("http-disk-tokio", 2, "lab: --child-server http-disk-tokio: expected http-BODIES-ENGINE"),
    ] {
        let output = serve(name);
        let line = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            (output.status.code(), &*line),
            (Some(status), &*format!("ringwise: {expected}\n"))
        );
    }
    // It opens a file when it is asked for one.
    let output = serve("http-files-tokio");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.starts_with("listening on 127.0.0.1:"), "{output:?}");
}

#[test]
fn an_interrupt_leaves_no_files() {
    let directory = directory();
    let arguments = ["http", "--bodies", "files", "--length", "64k", "--json", "h.json"];
    let child = ringwise(directory.path(), &arguments).spawn().unwrap();
    site(directory.path());
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(told, "ringwise: lab: interrupted: the results are partial\n");
    let left = names(directory.path());
    assert!(left.iter().all(|name| name.starts_with("h.")), "{left:?}");
}
