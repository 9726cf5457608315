//! What is shipped to run `ringwise logd` under systemd: the units are right and confined, and confined so the
//! daemon still makes every syscall that it needs.

use std::{
    collections::HashSet,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::Arc,
    time::Duration,
};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};

use crate::harness::daemon;

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

/// A bad disk, or any failure, kept it down: after five starts in ten seconds systemd gave up.
#[test]
fn the_unit_is_started_again_without_end_and_confined() {
    let text = fs::read_to_string(shipped("ringwise-logd.service")).unwrap();
    let mut section = "";
    let mut found: HashSet<String> = HashSet::new();
    for line in text.lines() {
        match line.starts_with('[') {
            true => section = line,
            false => drop(found.insert(format!("{section} {line}"))),
        }
    }
    for wanted in [
        "[Unit] StartLimitIntervalSec=0",
        "[Service] Restart=on-failure",
        "[Service] RestartSec=2s",
        "[Service] NoNewPrivileges=yes",
        "[Service] PrivateTmp=yes",
        "[Service] ProtectSystem=strict",
        "[Service] User=logd",
    ] {
        assert!(found.contains(wanted), "{wanted}: {text}");
    }
}

#[test]
fn the_user_and_its_directory_are_made() {
    let root = tempfile::tempdir().unwrap();
    let at = format!("--root={}", root.path().display());
    let shipped =
        |name: &str| fs::canonicalize(shipped(name)).unwrap().to_str().unwrap().to_owned();
    let user = shipped("ringwise-logd.sysusers");
    let Some(output) = run("systemd-sysusers", &[&at, "--dry-run", &user]) else { return };
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("Creating user 'logd'"), "{told}");
    let state = fs::read_to_string(shipped("ringwise-logd.service")).unwrap();
    assert!(state.contains("StateDirectory=ringwise-logd\nStateDirectoryMode=0750\n"), "{state}");

    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "no skips in CI: not root");
        println!("skipped: only root gives a directory to another user");
        return;
    }
    fs::create_dir(root.path().join("etc")).unwrap();
    let output = run("systemd-sysusers", &[&at, &user]).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let users = fs::read_to_string(root.path().join("etc/passwd")).unwrap();
    let own = users.lines().find_map(|line| line.strip_prefix("logd:")).unwrap();
    let numbers: Vec<u32> = own.split(':').skip(1).take(2).map(|id| id.parse().unwrap()).collect();
    let places = shipped("ringwise-logd.tmpfiles");
    let Some(output) = run("systemd-tmpfiles", &["--create", &at, &places]) else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let made = fs::metadata(root.path().join("var/lib/ringwise-logd")).unwrap();
    assert!(made.is_dir());
    assert_eq!((made.mode() & 0o7777, made.uid(), made.gid()), (0o750, numbers[0], numbers[1]));
}

#[test]
fn the_example_of_a_configuration_is_right() {
    let path = shipped("logd.toml");
    let directory = tempfile::tempdir().unwrap();
    let all = directory.path().join("all.toml");
    let text = fs::read_to_string(&path).unwrap();
    // What is commented out are keys too, but for those of files that are not there.
    const FILES: [&str; 3] = ["#tls", "#tokens", "#page-tokens"];
    let is_file = |line: &&str| !FILES.iter().any(|key| line.starts_with(key));
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

/// Syscalls of the unit's filter: those that it denies, and those that it allows.
fn filtered() -> (HashSet<String>, HashSet<String>) {
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
    (calls(&denied), calls(&allowed))
}

/// A directory with what a daemon over TLS reads, and its flags.
struct Place(tempfile::TempDir);

const TOKEN: &str = "web-token-0123456789abcdef";

impl Place {
    fn new() -> Place {
        let place = Place(tempfile::tempdir().unwrap());
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        fs::write(place.path("cert.pem"), made.cert.pem()).unwrap();
        fs::write(place.path("key.pem"), made.signing_key.serialize_pem()).unwrap();
        fs::write(place.path("tokens"), format!("{TOKEN} web\n")).unwrap();
        let keys = [("tls-cert", "cert.pem"), ("tls-key", "key.pem"), ("tokens", "tokens")];
        let line =
            |(key, name): (&str, &str)| format!("{key} = \"{}\"\n", place.path(name).display());
        fs::write(place.path("logd.toml"), keys.map(line).concat()).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn connect(&self, daemon: &Daemon) -> StreamOwned<ClientConnection, TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.path("cert.pem")).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(default_provider().into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        StreamOwned::new(connection, daemon.connect())
    }
}

/// Sends a greeting and a line; waits for the acknowledgement.
fn store(mut stream: impl Read + Write, greeting: &str) {
    stream.write_all(format!("{greeting}\n{{}}\n").as_bytes()).unwrap();
    let mut answers = [0; "H 1 durable\nA 1\n".len()];
    stream.read_exact(&mut answers).unwrap();
    assert_eq!(&answers, b"H 1 durable\nA 1\n");
}

/// Sends a line by HTTP to where the daemon said that it takes requests; waits for the answer.
fn post(told: &str) {
    let address = told.trim_end().strip_prefix("taking requests on http://").unwrap();
    let mut stream = TcpStream::connect(address.strip_suffix("/ingest").unwrap()).unwrap();
    let request =
        "POST /ingest HTTP/1.1\r\nHost: logd\r\nContent-Length: 3\r\nConnection: close\r\n\r\n{}\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
}

/// In plain: a segment ends, is packed, and is removed, and a request is stored. Over TLS: a client shows a token, and
/// all files are read again.
fn live(daemon: &mut Daemon, place: Option<&Place>) {
    let [requests, _relp, _fluent, page] = std::array::from_fn(|_| daemon.line());
    ask(&page, "/");
    let Some(place) = place else {
        store(daemon.connect(), "LOGD 1");
        post(&requests);
        std::thread::sleep(Duration::from_secs(2));
        return;
    };
    let mut errors = BufReader::new(daemon.child.stderr.take().unwrap());
    store(place.connect(daemon), &format!("LOGD 1 token={TOKEN}"));
    daemon.signal("-HUP");
    let mut told = String::new();
    errors.read_line(&mut told).unwrap();
    assert!(told.contains("reloaded") && !told.contains("not reloaded"), "{told}");
    store(place.connect(daemon), &format!("LOGD 1 token={TOKEN}"));
    daemon.child.stderr = Some(errors.into_inner());
}

#[test]
fn the_filter_lets_through_what_the_daemon_calls() {
    if run("systemd-analyze", &["--version"]).is_none() || run("strace", &["--version"]).is_none() {
        return;
    }
    let (denied, allowed) = filtered();
    for (engine, is_tls) in ENGINES.into_iter().flat_map(|engine| [(engine, false), (engine, true)])
    {
        let place = Place::new();
        let trace = place.path("trace");
        // Traced by a process beside it (-D), so that signals reach the daemon.
        let mut command = Command::new("strace");
        command.args(["-D", "-f", "-qq", "-s", "0", "-o"]).arg(&trace);
        command.args([env!("CARGO_BIN_EXE_ringwise"), "logd", "--listen", "127.0.0.1:0"]);
        command.args(["--engine", engine, "--http", "127.0.0.1:0", "--segment-age", "100ms"]);
        command.args(["--pack", "3", "--retain-age", "1s", "--dir"]).arg(place.path("log"));
        for port in ["--http-intake", "--relp-intake", "--fluent-intake"] {
            command.args([port, "127.0.0.1:0"]);
        }
        if is_tls {
            command.arg("--config").arg(place.path("logd.toml"));
        }
        let Some(mut daemon) = Daemon::spawn(&mut command, engine) else { continue };
        live(&mut daemon, is_tls.then_some(&place));
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
        assert!(refused.is_empty(), "{engine}, TLS: {is_tls}: {refused:?}");
    }
}
