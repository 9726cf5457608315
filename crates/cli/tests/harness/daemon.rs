//! A server of this project as a process, for tests from outside: started, spoken to, ended, and
//! killed if the test ends first.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// What a server can run on.
pub const ENGINES: [&str; 2] = ["uring", "epoll"];

/// How long anything is waited for.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server that is killed at the end, unless it ended before.
pub struct Daemon {
    pub child: Child,
    pub address: SocketAddr,
    stdout: BufReader<ChildStdout>,
}

impl Daemon {
    /// Starts a server, `echo` or `logd`; nothing where this machine has no ring.
    pub fn launch(tool: &str, engine: &str, flags: &[&str]) -> Option<Daemon> {
        // With the signals' own effects, whatever the tests' caller ignores: nohup(1) has SIGHUP
        // ignored, and what is ignored stays so over execve(2).
        let mut command = Command::new("env");
        command.args(["--default-signal=HUP,INT,TERM,USR1,USR2", "--"]);
        command.arg(env!("CARGO_BIN_EXE_ringwise"));
        command.args([tool, "--listen", "127.0.0.1:0", "--engine", engine]).args(flags);
        Daemon::spawn(&mut command, engine)
    }

    /// Starts a server on epoll whose first three accepts fail with this error; nothing where strace(1) cannot do
    /// that. On a ring an accept is no syscall: `crates/serve/src/door.rs` has such errors on a simulated machine.
    pub fn launch_where_accepts_fail(tool: &str, errno: &str, flags: &[&str]) -> Option<Daemon> {
        let traced = Command::new("strace").args(["-e", "trace=none", "true"]).output();
        if !traced.is_ok_and(|output| output.status.success()) {
            assert!(std::env::var_os("CI").is_none(), "no skips in CI: strace");
            eprintln!("skipped: no strace");
            return None;
        }
        let mut command = Command::new("strace");
        // Traced by a process beside it (-D), so that signals reach the server.
        command.args(["-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=accept4", "-e"]);
        command.arg(format!("inject=accept4:error={errno}:when=1..3"));
        command.args([env!("CARGO_BIN_EXE_ringwise"), tool, "--listen", "127.0.0.1:0"]);
        // Calls are counted for each thread.
        command.args(["--engine", "epoll", "--threads", "1"]).args(flags);
        Daemon::spawn(&mut command, "epoll")
    }

    /// Runs a command that becomes a server.
    pub fn spawn(command: &mut Command, engine: &str) -> Option<Daemon> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let Some(address) = line.strip_prefix("listening on ") else {
            let mut error = String::new();
            child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
            child.wait().unwrap();
            assert_eq!(engine, "uring", "{error}");
            assert!(std::env::var_os("CI").is_none(), "no skips in CI: {error}");
            eprintln!("skipped: no ring here: {error}");
            return None;
        };
        let address = address.trim_end().parse().unwrap();
        Some(Daemon { child, address, stdout })
    }

    /// The next line that it prints on standard output.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line
    }

    pub fn connect(&self) -> TcpStream {
        connect(self.address)
    }

    pub fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    /// Ends it with SIGTERM; gives all that it printed on standard error.
    pub fn end(mut self) -> String {
        self.signal("-TERM");
        self.output()
    }

    /// Waits for its end; gives all that it printed on standard error.
    pub fn output(&mut self) -> String {
        let mut output = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut output).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {output}");
        assert!(!output.contains("(os error "), "{output}");
        output
    }

    pub fn open_descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    /// Memory that it has, in KiB.
    pub fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Connects; a read waits as long as anything is waited for.
pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// What `logd cat` prints of a directory.
#[track_caller]
pub fn cat(arguments: &[&str], directory: &Path) -> Vec<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringwise"));
    let output = command.args(["logd", "cat"]).args(arguments).arg(directory).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// The sealed segments of which the directory has no record that they are uploaded.
pub fn not_uploaded(directory: &Path) -> Vec<String> {
    let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    let names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    let segments = names.iter().filter_map(|name| name.strip_suffix(".index"));
    let waits = |segment: &&str| {
        let index = std::fs::read(directory.join(format!("{segment}.index"))).unwrap_or_default();
        let is_sealed = index.rchunks(64).next().is_some_and(|entry| entry.starts_with(b"RLS1"));
        let has = |ending: &str| names.contains(&format!("{segment}.{ending}"));
        is_sealed && (has("ndjson") || has("ndjson.zst")) && !has("uploaded")
    };
    segments.filter(waits).map(str::to_owned).collect()
}

/// How often `logd` is killed under load in a test: more often where asked for.
pub fn rounds() -> usize {
    let count = std::env::var("RINGWISE_ROUNDS").ok().and_then(|text| text.parse().ok());
    count.unwrap_or(3)
}

/// Whether there is a Python that programs of tests run in.
pub fn has_python() -> bool {
    let text = "import ssl, sys; sys.exit(sys.version_info < (3, 10))";
    let status = Command::new("python3").args(["-c", text]).status();
    let is_there = status.is_ok_and(|status| status.success());
    if !is_there {
        assert!(std::env::var_os("CI").is_none(), "no skips in CI: python3");
        eprintln!("skipped: no python3 of 3.10 or later");
    }
    is_there
}

/// Sends a signal.
pub fn signal(child: &Child, name: &str) {
    let killed = Command::new("kill").args([name, &child.id().to_string()]).status();
    assert!(killed.unwrap().success());
}

/// What the status page of `logd` answers to a request for a path; `page` is the line in which it was told.
pub fn ask(page: &str, path: &str) -> String {
    let address = page.trim_end().strip_suffix('/').unwrap().rsplit('/').next().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// The number before a word of the statistics.
#[track_caller]
pub fn count(output: &str, word: &str) -> u64 {
    let (before, _) = output.rsplit_once(word).unwrap_or_else(|| panic!("no {word:?}: {output}"));
    before.trim_end().rsplit(' ').next().unwrap().parse().unwrap()
}

/// Waits for something that is to happen soon.
#[track_caller]
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < until, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}
