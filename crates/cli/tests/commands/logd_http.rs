//! What `ringwise logd` tells of itself: figures, its state, the status page, and what systemd gives
//! and is told.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::{fd::OwnedFd, unix::net::UnixDatagram},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use crate::harness::{
    browser::{Page, has_browser},
    daemon,
};

use daemon::{Daemon, ENGINES, count, wait_until};

/// A daemon with a page, and the page's address.
fn start(engine: &str, directory: &Path, flags: &[&str]) -> Option<(Daemon, SocketAddr)> {
    let directory = directory.to_str().unwrap();
    let own = ["--dir", directory, "--http", "127.0.0.1:0"];
    let mut daemon = Daemon::launch("logd", engine, &[&own, flags].concat())?;
    let line = daemon.line();
    let address =
        line.trim().strip_prefix("status page on http://").unwrap_or_else(|| panic!("{line}"));
    let address = address.trim_end_matches('/').parse().unwrap();
    Some((daemon, address))
}

/// Sends a request as it stands; gives the status and all that came.
fn request(address: SocketAddr, text: &[u8]) -> (u16, String) {
    attempt(address, text).unwrap()
}

fn attempt(address: SocketAddr, text: &[u8]) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let _ = stream.write_all(text);
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let status = answer.split(' ').nth(1).unwrap_or_else(|| panic!("{answer:?}"));
    Ok((status.parse().unwrap(), answer))
}

fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let (status, answer) =
        request(address, format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    (status, body.to_owned())
}

/// The sum of a figure over all threads.
fn figure(metrics: &str, name: &str) -> f64 {
    let own = metrics.lines().filter(|line| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{') || rest.starts_with(' '))
    });
    let values: Vec<f64> =
        own.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
    assert!(!values.is_empty(), "no {name}: {metrics}");
    values.iter().sum()
}

/// Sends lines and waits until they are acknowledged.
fn store(daemon: &Daemon, lines: u64, text: &str) {
    let mut stream = daemon.connect();
    stream.write_all(b"LOGD 1\n").unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    let answers = BufReader::new(stream).lines();
    let last = format!("A {lines}");
    assert!(answers.map(Result::unwrap).any(|answer| answer == last));
}

#[test]
fn figures_count_what_happened() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let Some((daemon, http)) = start(engine, directory.path(), &["--threads", "2"]) else {
            continue;
        };
        store(&daemon, 4, "1\n2\nx\n3\n");
        store(&daemon, 1, "4\n");
        let (status, metrics) = get(http, "/metrics");
        assert_eq!(status, 200);
        for (name, value) in [
            ("logd_connections_total", 2.0),
            ("logd_accepted_lines_total", 4.0),
            ("logd_rejected_lines_total", 1.0),
            ("logd_uncommitted_bytes", 0.0),
            ("logd_silent_threads", 0.0),
            ("logd_ready", 1.0),
            ("logd_draining", 0.0),
        ] {
            assert_eq!(figure(&metrics, name), value, "{name}: {metrics}");
        }
        let commits = figure(&metrics, "logd_commits_total");
        assert!(commits >= 2.0, "{metrics}");
        assert_eq!(figure(&metrics, "logd_commit_seconds_count"), commits, "{metrics}");
        assert!(figure(&metrics, "logd_commit_seconds_sum") > 0.0, "{metrics}");
        well_formed(&metrics);
        daemon.end();
    }
}

/// Refusals were answered and seen nowhere else.
#[test]
fn refused_greetings_and_silent_clients_are_counted() {
    let ask = |daemon: &Daemon, greeting: &str| {
        let mut stream = daemon.connect();
        writeln!(stream, "{greeting}").unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        answer
    };
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let flags = ["--idle", "1s", "--ack", "written"];
        let Some((daemon, http)) = start(engine, directory.path(), &flags) else { continue };
        for (greeting, answer) in [
            ("LOGD 1 token=guess", "E 1 token\n"),
            ("LOGD 1 token=guess-again", "E 1 token\n"),
            ("LOGD 1 name=web", "E 1 identity\n"),
            ("LOGD 1 ack=durable", "E 1 weaker written\n"),
        ] {
            assert_eq!(ask(&daemon, greeting), answer, "{engine}");
        }
        assert!(ask(&daemon, "LOGD 2").starts_with("E 1 unknown LOGD 1 "), "{engine}");
        // Half of a line, and silence.
        let mut silent = daemon.connect();
        silent.write_all(b"PROPFIND /").unwrap();
        assert_eq!(silent.read(&mut [0]).unwrap(), 0, "{engine}: it is ended");
        let metrics = get(http, "/metrics").1;
        let refused = |reason: &str| {
            let own = metrics.lines().filter(|line| {
                let label = format!(",reason=\"{reason}\"}}");
                line.starts_with("logd_refused_greetings_total{") && line.contains(&label)
            });
            own.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum::<u64>()
        };
        let counts = ["token", "identity", "weaker", "unknown", "busy"].map(refused);
        assert_eq!(counts, [2, 1, 1, 1, 0], "{engine}: {metrics}");
        assert_eq!(figure(&metrics, "logd_idle_ended_total"), 1.0, "{engine}: {metrics}");
        well_formed(&metrics);
        let page = get(http, "/").1;
        assert!(page.contains("<td>greeting refused: token<td>2"), "{engine}: {page}");
        let output = daemon.end();
        assert_eq!(count(&output, "greetings refused"), 5, "{output}");
        assert_eq!(count(&output, "ended for silence"), 1, "{output}");
    }
}

/// Each figure is described before it stands, once, and buckets grow.
fn well_formed(metrics: &str) {
    let mut described = Vec::new();
    let mut last_bucket = (String::new(), 0.0);
    for line in metrics.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let name = rest.split(' ').next().unwrap().to_owned();
            assert!(!described.contains(&name), "{name} twice");
            described.push(name);
        } else if !line.starts_with('#') {
            let name = line.split(['{', ' ']).next().unwrap();
            let known = described.last().unwrap();
            assert!(name.starts_with(&**known), "{line} is not of {known}");
            let value: f64 = line.rsplit(' ').next().unwrap().parse().unwrap();
            if let Some((series, _)) = line.split_once(",le=") {
                assert!(last_bucket.0 != series || value >= last_bucket.1, "{line}");
                last_bucket = (series.to_owned(), value);
            }
        }
    }
    assert!(described.len() > 15, "{described:?}");
}

#[test]
fn it_lives_and_is_ready_until_it_drains() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let Some((mut daemon, http)) = start(engine, directory.path(), &["--drain", "30s"]) else {
            continue;
        };
        assert_eq!(get(http, "/livez"), (200, "ok\n".to_owned()));
        assert_eq!(get(http, "/readyz"), (200, "ok\n".to_owned()));
        // Who stays keeps the drain from its end.
        let mut stays = daemon.connect();
        stays.write_all(b"LOGD 1\n").unwrap();
        stays.read_exact(&mut [0; 12]).unwrap();
        daemon.signal("-TERM");
        wait_until("it drains", || get(http, "/readyz").0 == 503);
        assert_eq!(get(http, "/readyz").1, "draining\n");
        assert_eq!(get(http, "/livez").0, 200, "who drains lives");
        assert_eq!(figure(&get(http, "/metrics").1, "logd_draining"), 1.0);
        drop(stays);
        daemon.output();
    }
}

/// Clients that send a byte at a time, for as many places as there are, twice over.
#[test]
fn who_is_slow_does_not_hide_that_it_lives() {
    let directory = tempfile::tempdir().unwrap();
    let (_daemon, http) = start("epoll", directory.path(), &[]).unwrap();
    let mut slow: Vec<TcpStream> = (0..16).map(|_| TcpStream::connect(http).unwrap()).collect();
    for stream in &mut slow {
        stream.write_all(b"GET").unwrap();
    }
    wait_until("all places are taken", || get(http, "/metrics").0 == 503);
    assert_eq!(get(http, "/livez"), (200, "ok\n".to_owned()));
    assert_eq!(get(http, "/readyz"), (200, "ok\n".to_owned()));
    // Answered, they go on sending, and get no more time for that.
    for stream in &mut slow {
        stream.write_all(b" /livez HTTP/1.1\r\n\r\n").unwrap();
    }
    let begin = Instant::now();
    while get(http, "/metrics").0 == 503 {
        assert!(begin.elapsed() < Duration::from_secs(3), "they hold their places");
        for stream in &mut slow {
            let _ = stream.write_all(b"x");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn what_is_no_request_is_refused_and_harms_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let (daemon, http) = start("epoll", directory.path(), &[]).unwrap();
    for (text, status) in [
        (&b"GET /nowhere HTTP/1.1\r\n\r\n"[..], 404),
        (b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"\x16\x03\x01\x00\xff nonsense\r\n\r\n", 400),
        (b"GET /%00../../etc/passwd HTTP/1.0\r\n\r\n", 404),
        (&[b"GET / HTTP/1.1\r\nX: ".as_slice(), &[b'x'; 9000]].concat(), 431),
    ] {
        assert_eq!(request(http, text).0, status, "{:?}", String::from_utf8_lossy(text));
    }
    let (status, answer) = request(http, b"HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(status == 200 && answer.ends_with("\r\n\r\n"), "{answer}");
    // More who say nothing than are answered at a time: lines are taken all the same, and when they
    // are gone so are requests.
    let silent: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(http).unwrap()).collect();
    store(&daemon, 1, "1\n");
    drop(silent);
    // Nobody waits for the request of who finds no room: a reset may take the answer's place.
    wait_until("there is room again", || {
        attempt(http, b"GET /livez HTTP/1.1\r\n\r\n").is_ok_and(|(status, _)| status == 200)
    });
    daemon.end();
}

#[test]
fn the_status_page_works_in_a_browser() {
    let directory = tempfile::tempdir().unwrap();
    let (daemon, http) = start("epoll", directory.path(), &["--threads", "1"]).unwrap();
    store(&daemon, 3, "1\n2\nx\n");
    let (status, page) = get(http, "/");
    assert_eq!(status, 200);
    assert!(page.contains("lines-000") && page.contains("ready"), "{page}");
    assert!(!page.contains("src=") && !page.contains("href="), "nothing comes from elsewhere");
    if !has_browser() {
        return;
    }
    let profile = tempfile::tempdir().unwrap();
    let mut page = Page::visit(profile.path(), &format!("http://{http}/"));
    let text = page.look("document.body.innerText").as_str().unwrap().to_owned();
    for part in ["ready", "Rates", "Threads", "lines-000"] {
        assert!(text.contains(part), "{part} is not shown: {text}");
    }
    daemon.end();
}

/// A daemon that is to be started as systemd does it, with so many microseconds for its watchdog, and
/// what it tells systemd.
fn watched(directory: &Path, watchdog_us: &str) -> (UnixDatagram, Command) {
    let path = directory.join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringwise"));
    command.args(["logd", "--engine", "epoll", "--listen", "127.0.0.1:0", "--dir"]);
    command.arg(directory.join("log"));
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", watchdog_us);
    (socket, command)
}

/// The next that it tells.
fn told(socket: &UnixDatagram) -> io::Result<String> {
    let mut bytes = [0; 100];
    let count = socket.recv(&mut bytes)?;
    Ok(String::from_utf8(bytes[..count].to_vec()).unwrap())
}

#[test]
fn systemd_is_told_that_it_is_up_alive_and_ending() {
    let directory = tempfile::tempdir().unwrap();
    let (socket, mut command) = watched(directory.path(), "600000");
    let daemon = Daemon::spawn(&mut command, "epoll").unwrap();
    let told = || told(&socket).unwrap().trim_end().to_owned();
    assert_eq!(told(), "READY=1");
    for _ in 0..3 {
        assert_eq!(told(), "WATCHDOG=1");
    }
    // It ends when who is connected has gone.
    let mut stays = daemon.connect();
    stays.write_all(b"LOGD 1\n").unwrap();
    stays.read_exact(&mut [0; 12]).unwrap();
    daemon.signal("-TERM");
    while told() != "STOPPING=1" {}
    drop(stays);
    daemon.end();
}

#[test]
fn a_daemon_that_is_not_up_yet_does_not_tell_systemd_that_it_is_alive() {
    let directory = tempfile::tempdir().unwrap();
    let (socket, mut command) = watched(directory.path(), "300000");
    // It cannot say that it listens while its output is full.
    let (mut reader, mut writer) = io::pipe().unwrap();
    let fill = [0; 64 << 10];
    writer.write_all(&fill).unwrap();
    let mut child = command.stdout(writer).spawn().unwrap();
    drop(command);
    let patience = socket.read_timeout().unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let early = told(&socket);
    reader.read_exact(&mut [0; 64 << 10]).unwrap();
    socket.set_read_timeout(patience).unwrap();
    let first = told(&socket);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(early.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    assert_eq!(first.unwrap(), "READY=1\n");
}

#[test]
fn a_listener_that_was_handed_over_is_served_and_stays_open() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let given = OwnedFd::from(listener.try_clone().unwrap());
        let mut command = Command::new("sh");
        let script = "exec 3<&0 </dev/null; export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$@\"";
        command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_ringwise"), "logd"]);
        command.args(["--engine", engine, "--threads", "2", "--listen", "127.0.0.1:1", "--dir"]);
        command.arg(directory.path()).stdin(Stdio::from(given));
        let Some(daemon) = Daemon::spawn(&mut command, engine) else { continue };
        assert_eq!(daemon.address, address);
        for _ in 0..10 {
            store(&daemon, 1, "1\n");
        }
        let output = daemon.end();
        assert_eq!(count(&output, "lines accepted"), 10, "{output}");
        // The next instance is started for who comes meanwhile.
        TcpStream::connect(address).unwrap();
    }
}
