//! What is shipped to run `ringwise logd` under systemd: the units are right and confined, and confined so the
//! daemon still makes every syscall that it needs.

use std::{
    collections::HashSet,
    fs,
    io::{Read, Write},
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

#[path = "harness/daemon.rs"]
mod daemon;

use daemon::{Daemon, ENGINES, ask};

/// Of at most 100: 14 when this was written.
const EXPOSURE_MAX: &str = "20";

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist").join(name)
}

/// What a program says; nothing, and said so, where it is not installed.
fn run(program: &str, arguments: &[&str]) -> Option<Output> {
    match Command::new(program).args(arguments).output() {
        Ok(output) => Some(output),
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "no skips in CI: {program}: {error}");
            println!("skipped: {program}: {error}");
            None
        }
    }
}

/// The units, with the command that was built just now.
fn units(directory: &Path) -> [String; 2] {
    ["ringwise-logd.service", "ringwise-logd.socket"].map(|name| {
        let text = fs::read_to_string(shipped(name)).unwrap();
        let path = directory.join(name);
        fs::write(&path, text.replace("/usr/bin/ringwise", env!("CARGO_BIN_EXE_ringwise")))
            .unwrap();
        path.to_str().unwrap().to_owned()
    })
}

#[test]
fn the_units_are_right_and_confined() {
    let directory = tempfile::tempdir().unwrap();
    let [service, socket] = units(directory.path());
    let Some(output) = run("systemd-analyze", &["verify", &service, &socket]) else { return };
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.is_empty(), "{told}");
    let threshold = format!("--threshold={EXPOSURE_MAX}");
    let arguments = ["security", "--offline=true", "--no-pager", &threshold, &service];
    let output = run("systemd-analyze", &arguments).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn the_user_and_its_directory_are_made() {
    let root = tempfile::tempdir().unwrap();
    let at = format!("--root={}", root.path().display());
    let user = fs::canonicalize(shipped("ringwise-logd.sysusers")).unwrap();
    let Some(output) = run("systemd-sysusers", &[&at, "--dry-run", user.to_str().unwrap()]) else {
        return;
    };
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("Creating user 'logd'"), "{told}");
    let place = fs::read_to_string(shipped("ringwise-logd.tmpfiles")).unwrap();
    let state = fs::read_to_string(shipped("ringwise-logd.service")).unwrap();
    assert!(place.contains("d /var/lib/ringwise-logd 0750 logd logd"), "{place}");
    assert!(state.contains("StateDirectory=ringwise-logd\nStateDirectoryMode=0750\n"), "{state}");
}

#[test]
fn the_example_of_a_configuration_is_right() {
    let path = shipped("logd.toml");
    let directory = tempfile::tempdir().unwrap();
    let all = directory.path().join("all.toml");
    let text = fs::read_to_string(&path).unwrap();
    // What is commented out are keys too, but for those of files that are not there.
    let is_file = |line: &&str| !line.starts_with("#tls") && !line.starts_with("#tokens");
    let text: Vec<&str> = text
        .lines()
        .filter(is_file)
        .map(|line| match line.strip_prefix('#') {
            Some(rest) if rest.contains(" = ") => rest,
            _ => line,
        })
        .collect();
    fs::write(&all, text.join("\n")).unwrap();
    for path in [&path, &all] {
        let mut check = Command::new(env!("CARGO_BIN_EXE_ringwise"));
        let output = check.args(["logd", "--check", "--config"]).arg(path).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// The syscalls of a group of systemd's, those of the groups in it too.
fn group(name: &str) -> HashSet<String> {
    let output = run("systemd-analyze", &["syscall-filter", "--no-pager", name]).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().skip(1).map(str::trim).filter(|line| !line.starts_with('#'));
    let mut calls = HashSet::new();
    for line in lines.filter(|line| !line.is_empty()) {
        match line.starts_with('@') {
            true => calls.extend(group(line)),
            false => drop(calls.insert(line.to_owned())),
        }
    }
    calls
}

#[test]
fn the_filter_lets_through_what_the_daemon_calls() {
    if run("systemd-analyze", &["--version"]).is_none() || run("strace", &["--version"]).is_none() {
        return;
    }
    let unit = fs::read_to_string(shipped("ringwise-logd.service")).unwrap();
    let filters = unit.lines().filter_map(|line| line.strip_prefix("SystemCallFilter="));
    let (denied, allowed): (Vec<&str>, Vec<&str>) = filters.partition(|line| line.starts_with('~'));
    let calls = |lines: &[&str]| -> HashSet<String> {
        let words = lines.iter().flat_map(|line| line.trim_start_matches('~').split(' '));
        words
            .flat_map(|word| match word.starts_with('@') {
                true => group(word),
                false => HashSet::from([word.to_owned()]),
            })
            .collect()
    };
    let (denied, allowed) = (calls(&denied), calls(&allowed));
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let trace = directory.path().join("trace");
        // Traced by a process beside it (-D), so that signals reach the daemon.
        let mut command = Command::new("strace");
        command.args(["-D", "-f", "-qq", "-s", "0", "-o"]).arg(&trace);
        command.args([
            env!("CARGO_BIN_EXE_ringwise"),
            "logd",
            "--listen",
            "127.0.0.1:0",
            "--engine",
            engine,
        ]);
        command.args([
            "--http",
            "127.0.0.1:0",
            "--segment-age",
            "100ms",
            "--pack",
            "3",
            "--retain-age",
            "1s",
        ]);
        command.arg("--dir").arg(directory.path().join("log"));
        let Some(mut daemon) = Daemon::spawn(&mut command, engine) else { continue };
        let page = daemon.line();
        let mut client = daemon.connect();
        client.write_all(b"LOGD 1\n{}\n").unwrap();
        client.read_exact(&mut [0; "H 1 durable\nA 1\n".len()]).unwrap();
        ask(&page, "/");
        // A segment ends, is packed, and is removed.
        std::thread::sleep(Duration::from_secs(2));
        drop(client);
        daemon.end();
        let text = fs::read_to_string(&trace).unwrap();
        let called = text.lines().filter_map(|line| line.split_once(' ')?.1.trim().split_once('('));
        let called: HashSet<&str> = called.map(|(name, _)| name).collect();
        assert!(called.contains("listen") && called.len() > 30, "{called:?}");
        let refused: Vec<_> = called
            .iter()
            .filter(|name| name.chars().all(|letter| letter.is_alphanumeric() || letter == '_'))
            .filter(|name| !allowed.contains(**name) || denied.contains(**name))
            .collect();
        assert!(refused.is_empty(), "{engine}: {refused:?}");
    }
}
