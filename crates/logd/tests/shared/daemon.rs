//! The daemon as a process that a test may limit: this test program called again, which runs what is
//! behind the `ringwise logd` of the command. What the command itself does is tested with it.

// No test uses all of it.
#![allow(dead_code)]

use std::{
    io::{BufRead, BufReader, Lines, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, ChildStdout, Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use clap::FromArgMatches;

/// How long anything is waited for.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where the child finds its flags, one a line.
const MARK: &str = "RINGWISE_LOGD_FLAGS";

/// The daemon, in a child; in any other process a test that passes.
#[test]
fn as_a_child() -> ExitCode {
    let Ok(flags) = std::env::var(MARK) else { return ExitCode::SUCCESS };
    let command = <ringwise_logd::Args as clap::Args>::augment_args(clap::Command::new("logd"));
    let matches = command.get_matches_from(["logd"].into_iter().chain(flags.lines()));
    let args = ringwise_logd::Args::from_arg_matches(&matches).unwrap();
    match ringwise_logd::run(&args, &mut std::io::stdout()) {
        Err(error) if error.exit_status() != 0 => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

/// A daemon that is killed at the end, unless it ended before.
pub struct Daemon {
    child: Child,
    address: String,
    /// Where it takes requests of HTTP.
    intake: Option<String>,
    /// Of its status page.
    page: Option<String>,
    /// Not closed while it runs: a test program that cannot say that it takes long ends.
    _told: Lines<BufReader<ChildStdout>>,
}

/// What becomes the daemon, to be limited before it runs. `program` and what it takes before a command,
/// as `prlimit --nproc=3`; none is the daemon itself.
pub fn command(before: &[&str], flags: &[&str]) -> Command {
    let this = std::env::current_exe().unwrap();
    let mut words = before.iter().map(std::ffi::OsStr::new).chain([this.as_os_str()]);
    let mut command = Command::new(words.next().unwrap());
    command.args(words).args(["--exact", "daemon::as_a_child", "--nocapture"]);
    let listen: &[&str] =
        if flags.contains(&"--listen") { &[] } else { &["--listen", "127.0.0.1:0"] };
    command.env(MARK, [listen, flags].concat().join("\n"));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

impl Daemon {
    /// Starts one; its error where it does not come up.
    pub fn start(mut command: Command) -> Result<Daemon, String> {
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut told = |what: &str| {
            let line = lines.by_ref().map_while(Result::ok).find(|line| line.contains(what))?;
            Some(line.split_once(what)?.1.trim_end_matches('/').to_owned())
        };
        let Some(address) = told("listening on ") else {
            let mut error = String::new();
            child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
            child.wait().unwrap();
            return Err(error);
        };
        let flags = command.get_envs().find(|(name, _)| *name == MARK).and_then(|(_, value)| value);
        let flags = flags.unwrap_or_default().to_string_lossy();
        let has = |wanted| flags.lines().any(|flag| flag == wanted);
        let intake = if has("--http-intake") { told("taking requests on http://") } else { None };
        let page = if has("--http") { told("status page on http://") } else { None };
        Ok(Daemon { child, address, intake, page, _told: lines })
    }

    /// Stores lines from `first` to `last`, one after the other, each acknowledged as durable.
    pub fn store(&self, first: u64, last: u64) {
        let mut stream = self.connect();
        let mut answers = BufReader::new(stream.try_clone().unwrap()).lines();
        stream.write_all(b"LOGD 1 ack=durable\n").unwrap();
        assert_eq!(answers.next().unwrap().unwrap(), "H 1 durable");
        for (sequence, number) in (first..=last).enumerate() {
            writeln!(stream, "{number}").unwrap();
            assert_eq!(answers.next().unwrap().unwrap(), format!("A {}", sequence + 1));
        }
    }

    pub fn connect(&self) -> TcpStream {
        self.connect_to(&self.address)
    }

    /// Connects by this address of the machine, to a daemon that listens on all.
    pub fn connect_by(&self, address: &str) -> TcpStream {
        let (_, port) = self.address.rsplit_once(':').unwrap();
        self.connect_to(&format!("{address}:{port}"))
    }

    /// Connects to where it takes requests of HTTP.
    pub fn connect_to_intake(&self) -> TcpStream {
        self.connect_to(self.intake.as_ref().unwrap().trim_end_matches("/ingest"))
    }

    fn connect_to(&self, address: &str) -> TcpStream {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// The status and the body that a path of the status page has.
    pub fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.page.as_ref().unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// Whether one of its threads has this name.
    pub fn has_thread(&self, start: &str) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let names = threads.map(|one| std::fs::read_to_string(one.unwrap().path().join("comm")));
        names.flatten().any(|name| name.starts_with(start))
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it SIGTERM; gives all that it printed on standard error.
    pub fn end(mut self) -> String {
        let killed = Command::new("kill").arg(self.child.id().to_string()).status();
        assert!(killed.unwrap().success());
        let mut output = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut output).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {output}");
        output
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What becomes one of the daemon's tools.
pub fn tool(words: &[&str]) -> Command {
    let mut command = command(&[], &[]);
    command.env(MARK, words.join("\n"));
    command
}

/// The lines that are stored in a directory.
pub fn stored(directory: &Path) -> Vec<String> {
    let output = tool(&["cat", directory.to_str().unwrap()]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    // The test program says of itself that it runs a test.
    text.lines().filter(|line| line.parse::<u64>().is_ok()).map(str::to_owned).collect()
}

/// Waits for something that is to happen soon.
#[track_caller]
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < until, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Says that a test cannot run here; in CI that is a failure.
pub fn skip(reason: &str) {
    assert!(std::env::var_os("CI").is_none(), "no skips in CI: {reason}");
    eprintln!("skipped: {reason}");
}
