//! `ringwise lab` as a user runs it: results, schema, errors, interrupts, and what it leaves behind.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
};

use serde_json::Value;

use crate::harness::lab_results;

use lab_results::{conforming, content, results_and_page};

/// Prints every table, for tests that look at them.
const VERBOSE: &str = "--verbose";

/// What a reader has room for: lines, and characters in each.
const SCREEN: (usize, usize) = (30, 80);

/// Fails unless an output fits on a screen, but for what is said before anything is measured.
#[track_caller]
fn assert_is_a_screen(text: &str) {
    let (header, screen) = text.split_once("\n\n").unwrap();
    assert!(header.starts_with("test files in ") || header.contains(" samples in "), "{text}");
    assert!(screen.lines().count() <= SCREEN.0, "{} lines:\n{screen}", screen.lines().count());
    for line in text.lines() {
        assert!(line.chars().count() <= SCREEN.1, "{}: {line}", line.chars().count());
    }
}

/// Small enough for a test, large enough for a verdict.
const SMALL: [&str; 8] = ["--size", "4m", "--duration", "40ms", "--repeats", "2", "--depth", "1,4"];

fn lab(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringwise"));
    command.arg("lab").args(arguments).current_dir(directory);
    command
}

fn run(directory: &Path, arguments: &[&str]) -> Output {
    lab(directory, arguments).output().unwrap()
}

/// What a comparison prints, and its results.
#[track_caller]
fn compared(directory: &Path, arguments: &[&str], name: &str) -> (String, Value) {
    lab_results::compared(directory, name, || run(directory, arguments))
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// The only line on standard error, without the command's name.
#[track_caller]
fn error_line(output: &Output, status: i32) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(status), "{text}");
    let line = text.strip_suffix('\n').unwrap_or(&text);
    assert!(!line.contains('\n'), "not one line: {text}");
    line.strip_prefix("ringwise: ").unwrap_or_else(|| panic!("{text}")).to_owned()
}

fn skip(reason: &str) {
    assert!(std::env::var_os("CI").is_none(), "skipped in CI: {reason}");
    println!("skipped: {reason}");
}

#[test]
fn a_run_prints_a_table_and_verdicts_and_writes_what_its_schema_says() {
    let directory = directory();
    let mut arguments = vec!["read", VERBOSE, "--json", "results.json", "--engines"];
    arguments.push("sync,threads,mmap,tokio,aio,uring,uring-registered-buffers");
    arguments.extend(SMALL);
    let output = run(directory.path(), &arguments);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for part in [
        "test files in ",
        "read buffered sequential, 4k blocks, warm",
        "read direct random, 4k blocks, O_DIRECT",
        "every block read is verified",
        "the lab's own time per read",
        "depth 1: ",
        "depth 4: ",
        "excluded: mmap at depth 1: not measurable here",
        "what a change gives, times today",
        "results: results.json",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    assert_eq!(content(directory.path()), results_and_page(directory.path(), "results"));
    let results = conforming(&directory.path().join("results.json"));
    assert_eq!(results["partial"], false);
    let rows = results["results"].as_array().unwrap();
    let measured = rows.iter().filter(|row| row["void"].is_null());
    for row in measured {
        assert!(row["ops_per_s"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["latency_ns"]["p50"].as_u64().unwrap() > 0, "{row}");
        assert_eq!(row["samples"].as_array().unwrap().len(), 4, "{row}");
    }
    assert_eq!(results["verdicts"].as_array().unwrap().len(), 4);
    let gains = results["gains"].as_array().unwrap();
    for from in ["sync", "threads", "mmap", "tokio", "aio"] {
        let own = gains.iter().filter(|gain| gain["from"] == from && gain["section"] == 0);
        let columns: Vec<&str> = own.map(|gain| gain["column"].as_str().unwrap()).collect();
        assert!(columns.contains(&"ring") && columns.contains(&"best"), "{from}: {columns:?}");
        assert_eq!(columns.contains(&"deepest_ring"), from == "sync", "{columns:?}");
    }
    let refused = gains.iter().find(|gain| gain["from"] == "mmap" && gain["section"] == 1).unwrap();
    assert_eq!((&refused["finding"], &refused["ratio"]), (&"excluded".into(), &Value::Null));
    let reason = "mmap: not measurable here: a mapping always goes through the page cache";
    assert_eq!(refused["reason"], reason);
}

/// Without tables: the machine, an answer, and where the rest is.
#[test]
fn a_run_ends_with_a_screen() {
    let directory = directory();
    let deep = directory.path().join("d".repeat(60)).join("e".repeat(60));
    fs::create_dir_all(&deep).unwrap();
    let arguments =
        ["read", "--engines", "sync,threads,mmap,uring", "--out", deep.to_str().unwrap()];
    let output = run(directory.path(), &[&arguments[..], &SMALL].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert_is_a_screen(&text);
    for part in [", Linux ", "\nread: ", "--verbose\nresults: …", "\nreport: …"] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    // No run could measure the memory map with O_DIRECT.
    assert!(!text.contains("excluded"), "{text}");
    for part in ["p99", "vs sync", "every block read is verified", "\u{1b}"] {
        assert!(!text.contains(part), "{part:?} is in:\n{text}");
    }
}

#[test]
fn chain_writes_syncs_reads_back_and_leaves_nothing() {
    let directory = directory();
    // Six samples stay below the time from which an unsteady row is excluded.
    let mut arguments =
        vec!["chain", VERBOSE, "--depth", "4", "--size", "1m", "--duration", "60ms"];
    arguments.extend(["--repeats", "2", "--sync", "fdatasync,dsync", "--json", "c.json"]);
    let (text, results) = compared(directory.path(), &arguments, "c");
    for part in [
        "chain buffered, fdatasync per page of 4k, read back",
        "chain direct, O_DSYNC per page of 4k, read back",
        "every page is compared with what was written",
        "uring+barrier",
        " times one blocking chain after the other",
        " times the ring that waits for whole batches",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    let rows = results["results"].as_array().unwrap();
    assert_eq!(rows.len(), 4 * 5, "{text}");
    for row in rows {
        assert!(row["void"].is_null(), "{row}");
        // A write, a sync where it is one, and a read: one call each, but for the ring.
        let steps = if row["sync"] == "dsync" { 2.0 } else { 3.0 };
        let calls = row["syscalls_per_op"].as_f64().unwrap();
        match row["engine"].as_str().unwrap() {
            "sync" | "threads" => {
                // The calls around a sample count too, and a busy disk has few pages in it.
                let samples = row["samples"].as_array().unwrap();
                let pages = samples.iter().map(|sample| sample["operations"].as_f64().unwrap());
                let around = 40.0 / pages.fold(f64::INFINITY, f64::min);
                assert!((steps..steps + 1.0 + around).contains(&calls), "{row}");
            }
            _ => assert!(calls < steps, "{row}"),
        }
    }
}

#[test]
fn latency_tells_what_each_switch_costs() {
    let directory = directory();
    let mut arguments =
        vec!["latency", VERBOSE, "--size", "4m", "--duration", "60ms", "--repeats", "2"];
    arguments.extend(["--cache", "warm", "--json", "l.json"]);
    let output = run(directory.path(), &arguments);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(content(directory.path()), results_and_page(directory.path(), "l"));
    let results = conforming(&directory.path().join("l.json"));
    let sections = results["sections"].as_array().unwrap();
    assert_eq!(sections.len(), 2, "{text}");
    let rows = results["results"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["depth"] == 1 && row["workload"] == "latency"), "{text}");
    // Rows of unavailable features are excluded. The others have their cost.
    for section in sections {
        let switches = section["switches"].as_array().unwrap();
        let has = |switch: &str| switches.iter().any(|cost| cost["switch"] == switch);
        assert!(has("-registered-files") && has("-defer-taskrun"), "{text}");
    }
    for part in ["latency buffered random, 4k", "latency direct random", "aio", " per operation"] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}

#[test]
fn stat_compares_lengths_and_leaves_nothing() {
    let directory = directory();
    let mut arguments =
        vec!["stat", VERBOSE, "--files", "50", "--depth", "1,4", "--duration", "60ms"];
    arguments.extend(["--repeats", "2", "--json", "s.json"]);
    let (text, results) = compared(directory.path(), &arguments, "s");
    assert!(text.contains("stat of 50 files, names cached"), "{text}");
    let rows = results["results"].as_array().unwrap();
    assert_eq!(rows.len(), 6, "{text}");
    assert!(rows.iter().all(|row| row["void"].is_null()), "{text}");
    assert!(rows.iter().all(|row| row["ops_per_s"].as_f64().unwrap() > 0.0), "{text}");
}

/// What comes from a device within so short a time may be too little for the gates: cold rows have figures or
/// a reason.
#[test]
fn objects_verify_every_range_and_have_a_verdict_for_each_state_of_the_cache() {
    let directory = directory();
    let mut arguments = vec!["objects", VERBOSE, "--size", "8m", "--files", "2", "--block", "4k"];
    arguments.extend(["--depth", "1,2", "--duration", "60ms"]);
    arguments.extend(["--repeats", "2", "--json", "o.json"]);
    let (text, results) = compared(directory.path(), &arguments, "o");
    let rows = results["results"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * (4 + 5), "{text}");
    for row in rows {
        assert_eq!(
            (&row["workload"], &row["block_bytes"]),
            (&"objects".into(), &(256 << 10).into())
        );
        let is_told = row["void"].is_null() || row["cache"] == "cold";
        assert!(is_told && row["ops_per_s"].as_f64().unwrap() > 0.0, "{row:#}");
    }
    for cache in ["warm", "cold"] {
        assert!(text.contains(&format!("objects, 64 ranges of 4k a request, {cache}")), "{text}");
    }
    let verdicts = results["verdicts"].as_array().unwrap();
    assert_eq!(verdicts.len(), 4, "{text}");
    let warm = verdicts.iter().filter(|verdict| verdict["section"] == 0);
    for verdict in warm {
        let rival = verdict["rival"].as_str().unwrap();
        assert!(["local", "pool"].contains(&rival), "{verdict:#}");
        assert!(verdict["reason"].as_str().unwrap().contains("CPU per request"), "{verdict:#}");
    }
}

#[test]
fn the_suite_says_first_what_it_needs_and_ends_on_a_signal_with_what_it_has() {
    let directory = directory();
    let arguments = ["--duration", "50ms", "--repeats", "2", "--json", "r.json"];
    let data = directory.path().join("ringwise-lab-data/buffered-009.data");
    let child = measuring(lab(directory.path(), &arguments), &data);
    signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(error_line(&output, 1), "lab: interrupted: the results are partial");
    let text = String::from_utf8(output.stdout).unwrap();
    for part in [
        "read: ",
        "latency: ",
        "nop: ",
        "chain: ",
        "stat: ",
        "echo: ",
        "http: ",
        "objects: ",
        "copy: ",
        "log: ",
        " in all",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    assert!(text.contains(" of test files, "), "{text}");
    assert_eq!(content(directory.path()), results_and_page(directory.path(), "r"));
    assert_eq!(conforming(&directory.path().join("r.json"))["partial"], true);
}

/// A suite that was interrupted early goes on to its end, with every workload.
#[test]
#[ignore = "slow: bash .ci/scheduled slow"]
fn an_interrupted_suite_goes_on_to_its_end() {
    let directory = directory();
    let path = directory.path();
    let arguments = ["--duration", "20ms", "--repeats", "1", "--json", "r.json"];
    let data = path.join("ringwise-lab-data/buffered-009.data");
    let child = measuring(lab(path, &arguments), &data);
    signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(error_line(&output, 1), "lab: interrupted: the results are partial");
    let before = conforming(&path.join("r.json"));
    let output = run(path, &["--resume", "r.json"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let after = conforming(&path.join("r.json"));
    assert_eq!((&after["partial"], &after["ended_by"]), (&false.into(), &Value::Null));
    let sections = after["sections"].as_array().unwrap();
    let mut workloads: Vec<&str> =
        sections.iter().map(|section| section["workload"].as_str().unwrap()).collect();
    workloads.dedup();
    assert_eq!(
        workloads,
        ["read", "latency", "nop", "chain", "stat", "echo", "http", "objects", "copy", "log"]
    );
    for (index, row) in before["results"].as_array().unwrap().iter().enumerate() {
        let had = row["samples"].as_array().unwrap();
        let has = after["results"][index]["samples"].as_array().unwrap();
        assert_eq!(&has[..had.len()], &had[..], "{}: measured again", row["engine"]);
    }
    let answers = after["answers"].as_array().unwrap();
    let answered: Vec<&str> =
        answers.iter().map(|answer| answer["workload"].as_str().unwrap()).collect();
    assert_eq!(answered, workloads, "{text}");
    assert_is_a_screen(&text);
    for name in workloads {
        assert!(text.contains(&format!("\n{name}: ")), "{name}: {text}");
        assert!(after["gains"].as_array().unwrap().iter().any(|gain| gain["workload"] == name));
    }
    for name in ["energy", "NVMe passthrough", "IOPOLL", "hardware counters"] {
        let fact = &after["environment"]["measurable"][name.to_lowercase().replace(' ', "_")];
        let is_missing = text.contains(&format!("{name}: not measurable here: "));
        assert_eq!(is_missing, fact["unknown"].is_string(), "{name}: {fact}");
    }
    assert_eq!(content(path), results_and_page(path, "r"));
    let page = fs::read_to_string(path.join("r.html")).unwrap();
    assert!(
        page.len() < 2 << 20 && page.contains("<h3>Latencies over time</h3>"),
        "{}",
        page.len()
    );
}

/// On a terminal a bar says what runs, its figure so far, and how long the rest takes.
#[test]
fn a_terminal_is_told_what_runs_and_how_long_it_will() {
    let directory = directory();
    let program = env!("CARGO_BIN_EXE_ringwise");
    let typed = format!(
        "{program} lab read --profile buffered --engines sync,uring --size 4m --depth 1 --duration \
         250ms --repeats 4 --json r.json"
    );
    // A terminal for both of its outputs.
    let mut command = Command::new("script");
    command.args(["-qec", &typed, "/dev/null"]).current_dir(directory.path());
    let Ok(output) = command.stdin(Stdio::null()).output() else {
        return skip("script(1) is not installed");
    };
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}");
    for part in [
        "% ",
        " left  read buffered sequential",
        "uring at depth 1, ",
        "/s so far",
        "; whole run: ",
    ] {
        assert!(told.contains(part), "{part:?} is not in:\n{told}");
    }
}

#[test]
fn nop_compares_the_library_with_a_bare_ring() {
    let directory = directory();
    let arguments = [
        "nop",
        VERBOSE,
        "--depth",
        "1,32",
        "--duration",
        "60ms",
        "--repeats",
        "2",
        "--json",
        "n.json",
    ];
    let output = run(directory.path(), &arguments);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let results = conforming(&directory.path().join("n.json"));
    let rows = results["results"].as_array().unwrap();
    if let Some(reason) = rows[0]["void"].as_str() {
        return skip(reason);
    }
    assert!(text.contains("batch 32: "), "{text}");
    assert!(text.contains("times the bare ring's time"), "{text}");
    let same = rows.iter().filter(|row| row["role"] != "variant");
    let details: Vec<&str> = same.map(|row| row["detail"].as_str().unwrap()).collect();
    assert_eq!(details.len(), 2 * 3);
    assert!(details.iter().all(|detail| *detail == details[0]), "not the same flags: {details:?}");
    let switches = results["sections"][0]["switches"].as_array().unwrap();
    // SQPOLL comes last, and may have completed nothing in so short a time on a busy machine.
    let named: Vec<&str> =
        switches[..4].iter().map(|cost| cost["switch"].as_str().unwrap()).collect();
    let expected = ["-defer-taskrun", "+coop-taskrun", "-single-issuer", "-registered-ring"];
    assert_eq!(named, expected, "{text}");
    assert!(text.contains("batch 32: uring-registered-ring to uring: "), "{text}");
    assert!(results["sections"][0]["break_even"].is_null(), "a bare ring is a ring too");
    assert_eq!(content(directory.path()), results_and_page(directory.path(), "n"));
}

/// A server in a process of its own, this program again: `right`, or `wrong` from byte 640 on.
struct EchoServer {
    process: Child,
    address: String,
}

impl EchoServer {
    fn start(kind: &str, pinned: bool) -> EchoServer {
        let first = ringwise_measure::cpu::allowed_cpus().unwrap()[0].to_string();
        let test = std::env::current_exe().unwrap();
        let mut command = match pinned {
            true => Command::new("taskset"),
            false => Command::new(&test),
        };
        if pinned {
            command.args(["-c", &first]).arg(&test);
        }
        command.args(["lab::an_echo_server_for_other_tests", "--exact", "--nocapture"]);
        command.env("RINGWISE_TEST_SERVER", kind).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
        let found = |line: String| Some(line.split_once("listening on ")?.1.to_owned());
        let address = lines.into_iter().find_map(found).unwrap();
        EchoServer { process, address }
    }
}

impl Drop for EchoServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn an_echo_server_for_other_tests() {
    let Some(kind) = std::env::var_os("RINGWISE_TEST_SERVER") else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("listening on {}", listener.local_addr().unwrap());
    let is_wrong = kind == "wrong";
    for stream in listener.incoming() {
        thread::spawn(move || serve(stream.unwrap(), is_wrong));
    }
}

fn serve(mut stream: TcpStream, is_wrong: bool) {
    let (mut bytes, mut echoed) = (vec![0; 4096], 0);
    while let Ok(count @ 1..) = stream.read(&mut bytes) {
        bytes[0] ^= u8::from(is_wrong && echoed >= 640);
        if stream.write_all(&bytes[..count]).is_err() {
            return;
        }
        echoed += count;
    }
}

/// Processes that this one's children have started and left.
fn servers_left_by(lab: u32) -> Vec<String> {
    let is_of = |pid: &str| {
        let read =
            |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let parent = format!("PPid:\t{lab}\n");
        read("status").contains(&parent) && read("cmdline").contains("--child-server")
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|pid| is_of(pid))
        .collect()
}

#[test]
fn echo_compares_servers_and_voids_those_that_are_wrong_or_missing() {
    let directory = directory();
    let servers = [("right", true), ("wrong", true), ("right", false)]
        .map(|(kind, pinned)| EchoServer::start(kind, pinned));
    let [right, wrong, elsewhere] = &servers;
    let right = format!("right={}", right.address);
    let wrong = format!("wrong={}", wrong.address);
    let elsewhere = format!("elsewhere={}", elsewhere.address);
    let mut arguments =
        vec!["echo", VERBOSE, "--engines", "tokio,blocking,node", "--target", &right];
    arguments.extend(["--target", &wrong, "--target", &elsewhere]);
    arguments.extend(["--connections", "1,4", "--length", "64"]);
    // Within less, a server that waits for its processor does its calls and their answers in different times.
    arguments.extend(["--duration", "250ms", "--repeats", "2", "--json", "e.json"]);
    // No node is found here.
    let output = lab(directory.path(), &arguments).env("PATH", "").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for part in [
        "echo, 64 bytes a message, closed loop",
        "every byte checked",
        "tokio (again)",
        "excluded: node at connections 4: running node: No such file",
        "excluded: wrong at connections 1: 1 connection failed: connection 0: echo wrong at byte 640 ",
        "connections 1: inconclusive",
        "uring was not among the engines",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    if ringwise_measure::cpu::allowed_cpus().unwrap().len() == 1 {
        return skip("one processor, so that no server can be on another");
    }
    let misplaced = "excluded: elsewhere at connections 4: it may run on processors ";
    assert!(text.contains(misplaced) && text.contains("pin it with taskset -acp "), "{text}");
    let results = conforming(&directory.path().join("e.json"));
    let rows = results["results"].as_array().unwrap();
    assert_eq!(rows.len(), 14);
    for row in rows.iter().filter(|row| row["void"].is_null()) {
        assert!(row["ops_per_s"].as_f64().unwrap() > 0.0, "{row}");
        // The server's own, whichever process it is.
        assert!(row["cpu_ns_per_op"].as_f64().unwrap() > 0.0, "{row}");
        assert_eq!((&row["block_bytes"], &row["connections"]), (&64.into(), &row["depth"]));
    }
    let valid = rows.iter().filter(|row| row["void"].is_null()).count();
    assert_eq!(valid, 8, "{text}");
    let blocking = rows.iter().find(|row| row["engine"] == "blocking").unwrap();
    let kind_ns = |kind: &str| blocking["cpu"][kind].as_f64().unwrap();
    let kinds_ns = kind_ns("user_ns") + kind_ns("system_ns");
    let ratio = kinds_ns / blocking["cpu_ns_per_op"].as_f64().unwrap();
    assert!((0.999..1.001).contains(&ratio), "the kinds are all of it: {blocking:#}");
    match blocking["syscalls_per_op"].as_f64() {
        Some(calls) => assert!((1.8..2.5).contains(&calls), "a read and a write: {calls}"),
        None => skip("system calls of another process cannot be counted here"),
    }
}

#[test]
fn echo_offers_the_rate_that_was_typed_and_one_that_it_finds() {
    let directory = directory();
    let mut arguments = vec!["echo", VERBOSE, "--engines", "epoll,tokio", "--connections", "2"];
    // After a pause of the machine the load catches up, which is much of a short time.
    arguments.extend(["--rate", "500,auto", "--duration", "250ms", "--repeats", "1"]);
    arguments.extend(["--json", "e.json"]);
    let output = run(directory.path(), &arguments);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let results = conforming(&directory.path().join("e.json"));
    let rows = results["results"].as_array().unwrap();
    let offered = |section: usize| {
        let mut own = rows.iter().filter(|row| row["section"] == section);
        own.next().unwrap()["offered_per_s"].as_u64()
    };
    let found = offered(2).unwrap();
    assert_eq!((offered(0), offered(1)), (Some(500), None), "{text}");
    for part in [
        "echo, 64 bytes a message, 500 requests per second offered",
        "echo, 64 bytes a message, closed loop",
        &format!("echo, 64 bytes a message, 2 connections, {found} requests per second offered"),
        "the rate is 0.3 of the slowest server's in a closed loop, rounded down",
        "uring and epoll do not spin",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    for row in rows {
        let rate = row["ops_per_s"].as_f64().unwrap();
        let offered = row["offered_per_s"].as_f64();
        assert!(offered.is_none_or(|offered| rate < offered * 1.1), "{row:#}");
    }
}

#[test]
fn an_interrupted_echo_leaves_no_server() {
    let directory = directory();
    let arguments = ["echo", "--engines", "blocking", "--duration", "1s", "--json", "e.json"];
    let mut command = lab(directory.path(), &arguments);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    while servers_left_by(pid).is_empty() {
        thread::sleep(std::time::Duration::from_millis(10));
    }
    let servers = servers_left_by(pid);
    signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(error_line(&output, 1), "lab: interrupted: the results are partial");
    assert!(servers.iter().all(|pid| !Path::new("/proc").join(pid).exists()), "{servers:?}");
}

#[test]
fn wrong_usage_is_one_line_that_says_what_is_right() {
    let directory = directory();
    for (arguments, parts) in [
        (&["raed"][..], ["unknown workload or command 'raed'", "did you mean 'read'?"]),
        (&["reprot"], ["unknown workload or command 'reprot'", "did you mean 'report'?"]),
        (&["--depth", "4"], ["--depth is for", "; name one, as in: ringwise lab read --depth 4"]),
        (&["--duration", "x"], ["lab: --duration: invalid value 'x': ", "expected a whole number"]),
        (
            &["read", "--size", "99999999t"],
            ["lab: --size: invalid value '99999999t': ", "too large"],
        ),
        (&["echo", "--target", "x"], ["--target: invalid value 'x'", "NAME=IP:PORT"]),
        (&["read", "--connections", "2"], ["--connections is for", "workloads echo, http, log"]),
        (&["read", "--depth", "0"], ["--depth: invalid value '0'", "1 to 1024"]),
        (&["read", "--block", "3000"], ["--block: invalid value '3000'", "multiple of 512"]),
        (
            &["read", "--engines", "sync,uring2"],
            ["--engines: invalid value 'uring2'", "did you mean 'uring'?"],
        ),
        (&["read", "--profile", "x"], ["--profile: invalid value 'x'", "buffered, direct"]),
        (&["--quick", "--full"], ["--quick", "--full"]),
        (&["--dpeth", "1"], ["--dpeth", "--depth"]),
        (
            &["read", "--cache", "bonded"],
            ["--cache: invalid value 'bonded'", "did you mean 'bounded'?"],
        ),
        (&["read", "--cache", "bounded:1m"], ["--cache: invalid value 'bounded:1m'", "at least"]),
        (
            &["read", "--profile", "direct", "--cache", "bounded", "--engines", "uring"],
            ["--cache", "mmap"],
        ),
        (
            &["--percentiles", "p95"],
            ["--percentiles: invalid value 'p95'", "p50, p90, p99, p99.9, p99.99"],
        ),
        (&["read", "--heatmap", "x", "--reads", "9"], ["--heatmap", "--reads"]),
    ] {
        let line = error_line(&run(directory.path(), arguments), 2);
        assert!(parts.iter().all(|part| line.contains(part)), "{line}");
    }
    assert!(content(directory.path()).is_empty());
}

#[test]
fn a_file_that_cannot_be_read_or_written_is_told_before_anything_is_measured() {
    let directory = directory();
    for (arguments, expected) in [
        (
            &["--json", "/nope/x.json"][..],
            "--json /nope/x.json: the directory /nope does not exist; name a file in an existing \
             directory",
        ),
        (&["nop", "--json", "."], "--json .: is a directory; name a file"),
        (&["--out", "nope"], "--out nope: does not exist; name an existing directory"),
        (
            &["--out", "/dev/null"],
            "--out /dev/null: is not a directory; name an existing directory",
        ),
        (
            &["read", "--heatmap", "/nope/x"],
            "--heatmap /nope/x: the directory /nope does not exist; name a directory in an existing \
             one",
        ),
        (&["--config", "nope"], "--config nope: No such file or directory; name an existing file"),
        (&["--config", "."], "--config .: Is a directory; name an existing file"),
    ] {
        let output = run(directory.path(), arguments);
        assert_eq!(error_line(&output, 1), format!("lab: {expected}"));
        assert!(output.stdout.is_empty(), "something was begun");
    }
    assert!(content(directory.path()).is_empty());
}

#[test]
fn a_stream_gets_the_results() {
    let directory = directory();
    let arguments = ["nop", "--duration", "10ms", "--repeats", "1", "--json", "/dev/stderr"];
    let output = run(directory.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let results: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(results["schema"], "ringwise.lab/1");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("results: /dev/stderr") && !text.contains("report: "), "{text}");
    assert!(!Path::new("/dev/stderr.html").exists());
    assert!(content(directory.path()).is_empty());
}

#[test]
fn a_directory_that_cannot_be_used_is_named() {
    let directory = directory();
    let line = error_line(&run(directory.path(), &["--dir", "/nonexistent/x"]), 1);
    assert_eq!(line, "lab: --dir /nonexistent/x: does not exist; name an existing directory");
    // Not even root writes there.
    let line = error_line(&run(directory.path(), &["--dir", "/proc"]), 1);
    assert!(line.starts_with("lab: --dir: creating /proc/ringwise-lab-data: "), "{line}");
    assert!(content(directory.path()).is_empty());
}

#[test]
fn files_of_the_user_are_left_alone() {
    let directory = directory();
    let own = directory.path().join("ringwise-lab-data");
    fs::create_dir(&own).unwrap();
    fs::write(own.join("direct-000.data"), "precious").unwrap();
    let arguments = [&["read"][..], &SMALL].concat();
    let line = error_line(&run(directory.path(), &arguments), 1);
    assert!(line.contains("is not the lab's: move it away or choose another --dir"), "{line}");
    assert_eq!(content(directory.path()), [own.clone(), own.join("direct-000.data")]);
    assert_eq!(fs::read(own.join("direct-000.data")).unwrap(), b"precious");
}

#[test]
fn kept_files_are_used_again_and_go_with_the_next_run() {
    let directory = directory();
    let arguments = |more: &[&'static str]| {
        let mut all =
            vec!["read", "--profile", "buffered", "--engines", "sync", "--json", "r.json"];
        all.extend(SMALL);
        all.extend(more);
        all
    };
    assert!(run(directory.path(), &arguments(&["--keep"])).status.success());
    let file = directory.path().join("ringwise-lab-data/buffered-003.data");
    let written = fs::metadata(&file).unwrap().modified().unwrap();
    assert!(run(directory.path(), &arguments(&["--keep"])).status.success());
    assert_eq!(fs::metadata(&file).unwrap().modified().unwrap(), written);
    assert!(run(directory.path(), &arguments(&[])).status.success());
    assert_eq!(content(directory.path()), results_and_page(directory.path(), "r"));
}

#[test]
fn a_damaged_file_voids_and_says_which_block() {
    let directory = directory();
    let mut arguments = vec!["read", "--profile", "buffered", "--engines", "sync,uring"];
    arguments.extend(["--keep", VERBOSE, "--json", "r.json"]);
    arguments.extend(SMALL);
    assert!(run(directory.path(), &arguments).status.success());
    let path = directory.path().join("ringwise-lab-data/buffered-000.data");
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    // Neither the first nor the last block, by which a file is known.
    file.write_all_at(b"?", 5 * 4096 + 777).unwrap();
    let output = run(directory.path(), &arguments);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let reason = "verification failed: block 5 of file 0 holds damaged data; remove kept test files, and look for \
                  device errors in the kernel's log";
    assert!(text.contains(reason), "{text}");
    let line = error_line(&output, 1);
    assert!(line.contains("nothing could be measured"), "{line}");
    let results = fs::read_to_string(directory.path().join("r.json")).unwrap();
    let results: Value = serde_json::from_str(&results).unwrap();
    assert_eq!(results["results"][0]["void"], reason);
    assert_eq!(results["verdicts"][0]["verdict"], "inconclusive");
}

#[test]
fn direct_reads_of_memory_are_refused_with_a_remedy() {
    let memory = Path::new("/dev/shm");
    let Ok(directory) = tempfile::tempdir_in(memory) else {
        return skip("/dev/shm cannot be written to");
    };
    let results = self::directory();
    let out = results.path().to_str().unwrap();
    let mut arguments = vec!["read", VERBOSE, "--profile", "direct", "--out", out];
    arguments.extend(SMALL);
    let output = run(directory.path(), &arguments);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(text.contains("excluded: O_DIRECT on tmpfs refused"), "{text}");
    let line = error_line(&output, 1);
    assert!(line.contains("point --dir to a file system on a disk"), "{line}");
    assert!(content(directory.path()).is_empty());
    assert_eq!(content(results.path()).len(), 2, "the results file and its page say so too");
}

#[test]
fn a_full_disk_is_said_and_cleaned_up() {
    let directory = directory();
    let mount_point = directory.path().join("small");
    fs::create_dir(&mount_point).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=8m,nr_inodes=30", "tmpfs"])
        .arg(&mount_point)
        .stderr(Stdio::null())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        return skip("a small file system cannot be mounted");
    }
    let out = directory.path().to_str().unwrap();
    let arguments = |files: &'static str, size: &'static str| {
        let profile = ["read", "--profile", "buffered", "--out", out];
        [&profile[..], &["--files", files, "--size", size]].concat()
    };
    let too_large = run(&mount_point, &arguments("2", "64m"));
    // Fits by its bytes, and fails half-way for want of names.
    let fills_up = run(&mount_point, &arguments("100", "1m"));
    fs::write(mount_point.join("mine"), "x").unwrap();
    let left = content(&mount_point);
    let unmounted = Command::new("umount").arg(&mount_point).status().unwrap();
    assert!(unmounted.success());
    let line = error_line(&too_large, 1);
    assert!(line.contains("64.0 MiB needed") && line.contains("lower --size"), "{line}");
    let line = error_line(&fills_up, 1);
    assert!(line.contains("laying out ") && line.ends_with(": No space left on device"), "{line}");
    assert_eq!(left, [mount_point.join("mine")]);
}

/// Starts a long run and waits until it measures.
fn long_run(directory: &Path) -> Child {
    let mut arguments = vec!["read", "--json", "r.json", "--engines", "sync,uring"];
    arguments.extend(["--profile", "buffered", "--size", "4m", "--duration", "100ms"]);
    arguments.extend(["--repeats", "500", "--depth", "1"]);
    let data = directory.join("ringwise-lab-data/buffered-009.data");
    measuring(lab(directory, &arguments), &data)
}

/// Starts a run and waits until it measures. `last` is the last of its test files.
fn measuring(mut command: Command, last: &Path) -> Child {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // No bar is drawn without a terminal, so look at the process: it measures once it has the
    // files open.
    let is_open = || {
        let entries = fs::read_dir(format!("/proc/{}/fd", child.id()));
        entries.is_ok_and(|entries| {
            entries
                .filter_map(Result::ok)
                .any(|fd| fs::read_link(fd.path()).is_ok_and(|to| to == last))
                && fs::metadata(last).is_ok_and(|found| found.len() >= (4 << 20) / 10 / 4096 * 4096)
        })
    };
    let mut seen = 0;
    while seen < 20 {
        thread::sleep(std::time::Duration::from_millis(10));
        seen += usize::from(is_open());
    }
    child
}

fn signal(child: &Child, name: &str) {
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
}

#[test]
fn a_signal_ends_it_with_partial_results_and_no_files() {
    for name in ["INT", "TERM"] {
        let directory = directory();
        let child = long_run(directory.path());
        signal(&child, name);
        let output = child.wait_with_output().unwrap();
        let line = error_line(&output, 1);
        assert_eq!(line, "lab: interrupted: the results are partial");
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("results: r.json (partial: interrupted)"), "{text}");
        assert_eq!(content(directory.path()), results_and_page(directory.path(), "r"));
        let results = fs::read_to_string(directory.path().join("r.json")).unwrap();
        let results: Value = serde_json::from_str(&results).unwrap();
        assert_eq!(results["partial"], true);
        assert!(!results["results"][0]["samples"].as_array().unwrap().is_empty());
    }
}

#[test]
fn an_interrupted_run_goes_on_where_it_was() {
    let directory = directory();
    let path = directory.path();
    let mut arguments = vec!["read", "--json", "r.json", "--engines", "sync,uring", "--depth", "1"];
    arguments.extend(["--profile", "buffered", "--size", "4m", "--duration", "50ms"]);
    arguments.extend(["--repeats", "20", VERBOSE]);
    let data = path.join("ringwise-lab-data/buffered-009.data");
    let child = measuring(lab(path, &arguments), &data);
    signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    error_line(&output, 1);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("go on with: ringwise lab --resume r.json"), "{text}");
    let read = || -> Value {
        serde_json::from_str(&fs::read_to_string(path.join("r.json")).unwrap()).unwrap()
    };
    let before = read();
    assert_eq!(before["partial"], true);
    let line = error_line(&run(path, &["--resume", "r.json", "--repeats", "3"]), 2);
    assert!(line.contains("--resume"), "{line}");
    let output = run(path, &["--resume", "r.json"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("samples were taken before an interruption"), "{text}");
    let after = read();
    assert_eq!((&after["partial"], &after["ended_by"]), (&false.into(), &Value::Null));
    assert_eq!(after["began_unix_s"], before["began_unix_s"]);
    let samples = |document: &Value, row: usize| -> Vec<Value> {
        document["results"][row]["samples"].as_array().unwrap().clone()
    };
    let rows = after["results"].as_array().unwrap();
    for (index, row) in rows.iter().enumerate().filter(|(_, row)| row["void"].is_null()) {
        let (old, new) = (samples(&before, index), samples(&after, index));
        assert_eq!((&new[..old.len()], new.len()), (&old[..], 40), "{}", row["engine"]);
        let histogram = row["histogram"].as_str().unwrap();
        let latency = ringwise_measure::Latency::from_base64(histogram).unwrap();
        let operations: u64 = new.iter().map(|own| own["operations"].as_u64().unwrap()).sum();
        assert_eq!(latency.count(), operations);
    }
    let line = error_line(&run(path, &["--resume", "r.json"]), 1);
    assert!(line.contains("the run came to its end"), "{line}");
}

#[test]
fn a_run_that_is_killed_goes_on_from_the_sections_that_were_over() {
    let directory = directory();
    let path = directory.path();
    let mut arguments = vec!["read", "--json", "r.json", "--engines", "sync,uring", "--depth", "1"];
    // A number of reads: in a short time a busy machine may do none.
    arguments.extend(["--size", "4m", "--reads", "200", "--repeats", "5"]);
    let results = path.join("r.json");
    let mut child = lab(path, &arguments).stdout(Stdio::null()).spawn().unwrap();
    // The first of its two sections is over when there are results; the second is under way when it
    // has its file.
    let data = path.join("ringwise-lab-data/direct-000.data");
    while !results.exists() || fs::metadata(&data).map_or(0, |found| found.len()) == 0 {
        assert_eq!(child.try_wait().unwrap(), None, "it ended without results");
        thread::sleep(std::time::Duration::from_millis(5));
    }
    child.kill().unwrap();
    assert!(!child.wait().unwrap().success(), "it was over before it was killed");
    let before = conforming(&results);
    assert_eq!(before["partial"], true);
    assert_eq!(before["ended_by"], "killed: this was kept while it ran");
    assert_eq!(before["sections"].as_array().unwrap().len(), 1);
    let output = run(path, &["--resume", "r.json"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let after = conforming(&results);
    assert_eq!((&after["partial"], &after["ended_by"]), (&false.into(), &Value::Null));
    assert_eq!(after["sections"].as_array().unwrap().len(), 2);
    for (index, row) in before["results"].as_array().unwrap().iter().enumerate() {
        assert_eq!(row["samples"], after["results"][index]["samples"], "not measured again");
    }
    assert_eq!(content(path), results_and_page(path, "r"), "nothing stays of the killed run");
}

#[test]
fn a_check_of_the_lab_with_itself_counts_what_it_tells_apart() {
    let directory = directory();
    let arguments = ["nop", VERBOSE, "--depth", "32", "--reads", "20000", "--repeats", "2"];
    let output = run(
        directory.path(),
        &[&arguments[..], &["--self-check", "2", "--json", "n.json"]].concat(),
    );
    let text = String::from_utf8_lossy(&output.stdout);
    let results = conforming(&directory.path().join("n.json"));
    if let Some(reason) = results["results"][0]["void"].as_str() {
        return skip(reason);
    }
    let rows = results["results"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 8, "{text}");
    // The bare ring's row has the library's flags and calls like all others.
    let details: Vec<&str> = rows.iter().filter_map(|row| row["detail"].as_str()).collect();
    assert!(details.iter().all(|detail| *detail == details[0]), "{details:?}");
    assert!(text.contains("run 2 of a check of the lab with itself"), "{text}");
    let line = text.lines().find(|line| line.starts_with("no difference in ")).unwrap();
    let mut numbers = line.split(' ').filter_map(|word| word.parse::<u32>().ok());
    let mut pair = || (numbers.next().unwrap(), numbers.next().unwrap());
    let ((same, all), (same_gains, all_gains)) = (pair(), pair());
    // On a busy machine a row may have completed nothing; it is excluded then.
    let pairs = results["comparisons"].as_array().unwrap().iter();
    let others = pairs.filter(|pair| pair["baseline_kind"] != "control").count();
    assert_eq!((all as usize, others <= 2 * 6), (others, true), "{line}");
    // It may tell some apart there too, and then says so.
    let has_enough = |same, all| f64::from(same) >= 0.95 * f64::from(all);
    let is_passed = has_enough(same, all) && has_enough(same_gains, all_gains);
    assert_eq!(output.status.success(), is_passed, "{line}");
    assert_eq!(text.matches("gain told apart: ").count() as u32, all_gains - same_gains, "{text}");
    assert_eq!(text.matches("row told apart: ").count() as u32, all - same, "{text}");
    let error = error_line(&run(directory.path(), &["nop", "--self-check", "0"]), 2);
    assert!(error.contains("--self-check: invalid value '0': expected 1 to 100"), "{error}");
}

#[test]
fn a_file_that_vanishes_ends_it() {
    let directory = directory();
    let child = long_run(directory.path());
    let path = directory.path().join("ringwise-lab-data/buffered-004.data");
    fs::remove_file(path).unwrap();
    let output = child.wait_with_output().unwrap();
    let line = error_line(&output, 1);
    assert!(line.contains("buffered-004.data: No such file or directory"), "{line}");
    assert_partial(directory.path(), &output, "buffered-004.data: No such file or directory");
}

/// A failure that came while it measured leaves what was measured until then.
fn assert_partial(directory: &Path, output: &Output, ended_by: &str) {
    let line = error_line(output, 1);
    assert!(line.ends_with("; the results are partial"), "{line}");
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(text.contains("results: r.json (partial: a failure ended the run)"), "{text}");
    assert_eq!(content(directory), results_and_page(directory, "r"));
    let results = fs::read_to_string(directory.join("r.json")).unwrap();
    let results: Value = serde_json::from_str(&results).unwrap();
    assert_eq!(results["partial"], true);
    assert!(results["ended_by"].as_str().unwrap().contains(ended_by), "{}", results["ended_by"]);
    let rows = results["results"].as_array().unwrap();
    let has_samples = |row: &Value| !row["samples"].as_array().unwrap().is_empty();
    assert!(rows.iter().any(has_samples), "{text}");
}

#[test]
fn a_file_that_is_cut_ends_it_with_partial_results() {
    let directory = directory();
    let child = long_run(directory.path());
    let path = directory.path().join("ringwise-lab-data/buffered-004.data");
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(8192).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_partial(directory.path(), &output, "buffered-004.data changed during the run");
}

#[test]
fn a_file_cut_short_under_a_mapping_ends_it_with_a_line() {
    let directory = directory();
    // One long sample: what is cut is cut while it is being touched, not before a sample opens it.
    let mut arguments = vec!["read", "--json", "r.json", "--engines", "mmap", "--depth", "4"];
    arguments.extend(["--profile", "buffered", "--pattern", "random", "--size", "4m"]);
    arguments.extend(["--files", "1", "--repeats", "1", "--duration", "60s"]);
    let child = lab(directory.path(), &arguments);
    let child = measuring(child, &directory.path().join("ringwise-lab-data/buffered-000.data"));
    let path = directory.path().join("ringwise-lab-data/buffered-000.data");
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(8192).unwrap();
    let output = child.wait_with_output().unwrap();
    let line = error_line(&output, 1);
    assert!(line.ends_with("buffered-000.data changed during the run: expected 4194304 bytes"));
    assert!(content(directory.path()).is_empty());
}

/// The cgroups of a run of the lab, wherever they are.
fn memory_groups(id: u32) -> Vec<PathBuf> {
    fn search(directory: &Path, name: &str, found: &mut Vec<PathBuf>) {
        let Ok(entries) = fs::read_dir(directory) else { return };
        for entry in entries.filter_map(Result::ok) {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if entry.file_name() == name {
                    found.push(entry.path());
                }
                search(&entry.path(), name, found);
            }
        }
    }
    let mut found = Vec::new();
    search(Path::new("/sys/fs/cgroup"), &format!("ringwise-lab-bound-{id}"), &mut found);
    found
}

/// Whether a run failed since no memory cgroup is to be had here.
fn lacks_memory_groups(output: &Output) -> bool {
    let text = String::from_utf8_lossy(&output.stderr);
    let lacks = text.contains("it needs a memory cgroup");
    if lacks {
        skip(text.trim());
    }
    lacks
}

#[test]
fn a_bounded_cache_is_bounded_and_drawn() {
    let directory = directory();
    let mut arguments = vec!["read", "--profile", "direct", "--cache", "bounded", "--size", "64m"];
    arguments.extend(["--engines", "mmap,uring", "--depth", "2,8", "--duration", "60ms"]);
    arguments.extend(["--repeats", "2", "--json", "r.json", "--heatmap", "maps"]);
    arguments.extend(["--percentiles", "p50,p90,p99.99", VERBOSE]);
    let mut command = lab(directory.path(), &arguments);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let id = child.id();
    let output = child.wait_with_output().unwrap();
    if lacks_memory_groups(&output) {
        return;
    }
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for part in ["a memory cgroup bounds the run", "p99.99", "device ops/s", "maps/index.svg"] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    assert!(!text.contains("p99.9 "), "not asked for:\n{text}");
    assert_eq!(memory_groups(id), Vec::<PathBuf>::new());
    let results = conforming(&directory.path().join("r.json"));
    for row in results["results"].as_array().unwrap() {
        let is_mapped = row["engine"] == "mmap";
        assert_eq!(row["cache"], if is_mapped { "bounded" } else { "bypassed" }, "{row}");
        assert_eq!(row["cache_bound_bytes"].is_u64(), is_mapped, "{row}");
        if let Some(reason) = row["void"].as_str() {
            assert!(!reason.starts_with("bounded cache expected"), "{reason}");
            continue;
        }
        let share = row["device_share"].as_f64().unwrap();
        // A quarter is in the cache at most; few reads may hit more often by chance.
        assert!(share > if is_mapped { 0.5 } else { 0.97 }, "{row}");
        assert!(row["latency_ns"]["p99_99"].is_u64());
        if row["role"] != "control" {
            let engine = row["engine"].as_str().unwrap();
            let name = format!("direct-4k-depth{}-{engine}.svg", row["depth"]);
            drawn(&directory.path().join("maps").join(name), row, 0.06);
        }
    }
}

/// A drawing is valid, and has as many reads as the samples of its row.
fn drawn(path: &Path, row: &Value, seconds: f64) {
    let text = fs::read_to_string(path).unwrap();
    let document = roxmltree::Document::parse(&text).unwrap();
    let cells = document.descendants().filter_map(|node| node.attribute("data-reads"));
    let shown: f64 = cells.map(|count| count.parse::<f64>().unwrap()).sum();
    let samples = row["samples"].as_array().unwrap();
    let measured = |sample: &Value| sample["ops_per_s"].as_f64().unwrap() * seconds;
    let counted: f64 = samples.iter().map(measured).sum();
    assert!((shown - counted).abs() < 1.0, "{shown} drawn, {counted} counted: {}", path.display());
}

#[test]
fn a_signal_takes_the_memory_group_away() {
    let directory = directory();
    let mut arguments = vec!["read", "--json", "r.json", "--engines", "mmap,sync", "--depth", "1"];
    arguments.extend(["--profile", "buffered", "--cache", "bounded", "--size", "64m"]);
    arguments.extend(["--duration", "100ms", "--repeats", "500"]);
    let mut command = lab(directory.path(), &arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let id = child.id();
    // It is measured within the group, which lists it from then on.
    let is_inside = |group: &PathBuf| {
        let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        text.lines().any(|line| line == id.to_string())
    };
    while !memory_groups(id).iter().any(is_inside) {
        if child.try_wait().unwrap().is_some() {
            let output = child.wait_with_output().unwrap();
            assert!(lacks_memory_groups(&output), "{}", String::from_utf8_lossy(&output.stderr));
            return;
        }
        thread::sleep(std::time::Duration::from_millis(10));
    }
    signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(error_line(&output, 1), "lab: interrupted: the results are partial");
    assert_eq!(memory_groups(id), Vec::<PathBuf>::new());
    assert_eq!(content(directory.path()), results_and_page(directory.path(), "r"));
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let directory = directory();
    let mut arguments = vec!["read", VERBOSE, "--profile", "buffered", "--json", "r.json"];
    arguments.extend(["--engines", "sync,uring"]);
    arguments.extend(SMALL);
    let mut child = lab(directory.path(), &arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut reader = BufReader::with_capacity(16, child.stdout.take().unwrap());
    reader.read_line(&mut line).unwrap();
    drop(reader);
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(0), ""));
    assert!(content(directory.path()).is_empty());
}

#[test]
fn a_config_file_says_what_flags_say() {
    let directory = directory();
    let config = r#"{"workload": "read", "profile": "buffered", "engines": ["sync"], "size": "4m",
        "duration": "20ms", "repeats": 2, "depth": [1], "json": "c.json"}"#;
    fs::write(directory.path().join("lab.json"), config).unwrap();
    let output = run(directory.path(), &["--config", "lab.json", "--seed", "77"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let results = fs::read_to_string(directory.path().join("c.json")).unwrap();
    let results: Value = serde_json::from_str(&results).unwrap();
    assert_eq!((&results["seed"], &results["repeats"]), (&Value::from(77), &Value::from(2)));
    fs::write(directory.path().join("lab.json"), r#"{"dept": 1}"#).unwrap();
    let line = error_line(&run(directory.path(), &["--config", "lab.json"]), 2);
    assert!(line.contains("`dept`") && line.contains("`depth`"), "{line}");
}
