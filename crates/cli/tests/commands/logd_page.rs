//! Stored lines on the status page of `ringwise logd`: who may read them, and the limits of those who do.

mod browser;
mod live;
mod search;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    time::Duration,
};

use crate::harness::daemon::{Daemon, wait_until};

/// A daemon with a page, and the page's address.
fn start(engine: &str, directory: &Path, flags: &[&str]) -> Option<(Daemon, SocketAddr)> {
    let own = ["--dir", directory.to_str().unwrap(), "--http"];
    let address: &[&str] = if flags.first() == Some(&"0.0.0.0:0") { &[] } else { &["127.0.0.1:0"] };
    let mut daemon = Daemon::launch("logd", engine, &[&own, address, flags].concat())?;
    let line = daemon.line();
    let address = line.trim().strip_prefix("status page on http://").unwrap();
    Some((daemon, address.trim_end_matches('/').parse().unwrap()))
}

fn temporary() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Sends a request for a path, with more headers. The connection stays open.
fn request(address: SocketAddr, path: &str, headers: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\n{headers}\r\n").unwrap();
    stream
}

/// The status of an answer, its head and its body. Events have no end, so they are not read.
fn answer(stream: TcpStream) -> (u16, String, String) {
    let mut reader = BufReader::new(stream);
    let (mut head, mut body) = (String::new(), String::new());
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
    }
    if !head.contains("text/event-stream") {
        reader.read_to_string(&mut body).unwrap();
    }
    (head.split(' ').nth(1).unwrap().parse().unwrap(), head, body)
}

fn get_with(address: SocketAddr, path: &str, headers: &str) -> (u16, String, String) {
    answer(request(address, path, headers))
}

fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let (status, _, body) = get_with(address, path, "Host: 127.0.0.1\r\n");
    (status, body)
}

/// A figure of the whole daemon, or the sum of those with a reason.
fn figure(address: SocketAddr, name: &str) -> u64 {
    let (_, metrics) = get(address, "/metrics");
    let own = metrics.lines().filter_map(|line| line.strip_prefix(name));
    let own = own.filter(|rest| rest.starts_with(' ') || rest.starts_with('{'));
    let values: Vec<u64> =
        own.map(|rest| rest.rsplit(' ').next().unwrap().parse().unwrap()).collect();
    assert!(!values.is_empty(), "no {name}: {metrics}");
    values.iter().sum()
}

/// Stores lines over one connection.
fn store(daemon: &Daemon, greeting: &str, lines: &[String]) {
    let mut stream = daemon.connect();
    stream.write_all(format!("LOGD 1{greeting}\n").as_bytes()).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap()).lines().map(Result::unwrap);
    let all: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let writer = std::thread::spawn(move || stream.write_all(all.as_bytes()).map(|()| stream));
    let last = format!("A {}", lines.len());
    assert!(answers.any(|answer| answer == last), "all are stored");
    writer.join().unwrap().unwrap();
}

/// Numbered lines.
fn lines(numbers: std::ops::Range<usize>) -> Vec<String> {
    let level = |number: usize| if number.is_multiple_of(10) { "error" } else { "info" };
    numbers.map(|n| format!("{{\"n\":{n},\"level\":\"{}\"}}", level(n))).collect()
}

const OF_WEB: &str = "web-0123456789abcdefghij";
const OF_ALL: &str = "all-0123456789abcdefghij";

#[test]
fn a_page_from_elsewhere_reads_no_lines_from_a_loopback_address() {
    let directory = temporary();
    let (daemon, http) = start("epoll", directory.path(), &[]).unwrap();
    store(&daemon, "", &["\"secret\"".to_owned()]);
    let own = format!("http://{http}");
    for headers in [
        String::new(),
        "Host: evil.example\r\n".into(),
        format!("Host: evil.example:{}\r\n", http.port()),
        "Host: 127.0.0.1\r\nHost: evil.example\r\n".into(),
        "Host: 127.0.0.1\r\nOrigin: http://evil.example\r\n".into(),
        format!("Host: {http}\r\nOrigin: null\r\n"),
        format!("Host: {http}\r\nSec-Fetch-Site: cross-site\r\n"),
    ] {
        for path in ["/live", "/search"] {
            let (status, head, body) = get_with(http, path, &headers);
            let is_twice = headers.matches("Host").count() == 2;
            assert_eq!(status, if is_twice { 400 } else { 403 }, "{path} {headers}: {body}");
            assert!(!body.contains("secret") && body.lines().count() == 1, "{headers}: {body}");
            assert!(head.contains("X-Content-Type-Options: nosniff"), "{head}");
        }
    }
    for headers in [
        format!("Host: {http}\r\nOrigin: {own}\r\nSec-Fetch-Site: same-origin\r\n"),
        "Host: localhost\r\n".into(),
        "Host: [::1]:80\r\n".into(),
    ] {
        let (status, _, body) = get_with(http, "/search", &headers);
        assert!(status == 200 && body.contains("\"secret\""), "{headers}: {body}");
    }
    assert_eq!(figure(http, "logd_page_denied_total"), 12);
    // Under another name there are figures alone, as for everybody.
    let (_, head, page) = get_with(http, "/", "Host: evil.example\r\n");
    assert!(page.contains("ready") && page.contains("under an IP address"), "{page}");
    assert!(!page.contains("<script") && !page.contains("id=\"query\""), "{page}");
    assert!(head.contains("default-src 'none'; style-src 'nonce-"), "{head}");
    assert_eq!(get_with(http, "/metrics", "Host: evil.example\r\n").0, 200);
    daemon.end();
}

#[test]
fn with_tokens_only_who_has_one_reads_the_lines_of_its_tenant() {
    let directory = temporary();
    let file = directory.path().join("page-tokens");
    let clients = directory.path().join("tokens");
    std::fs::write(&clients, format!("{OF_WEB}-c web\n{OF_WEB}-d db\n")).unwrap();
    std::fs::write(&file, format!("{OF_WEB} web\n")).unwrap();
    let flags = ["--page-tokens", file.to_str().unwrap(), "--tokens", clients.to_str().unwrap()];
    let (daemon, http) = start("epoll", &directory.path().join("log"), &flags).unwrap();
    store(&daemon, &format!(" token={OF_WEB}-c"), &["\"of web\"".to_owned()]);
    store(&daemon, &format!(" token={OF_WEB}-d"), &["\"of db\"".to_owned()]);
    let ask = |path: &str, token: &str| {
        let authorization = match token {
            "" => String::new(),
            token => format!("Authorization: Bearer {token}\r\n"),
        };
        get_with(http, path, &format!("Host: {http}\r\n{authorization}"))
    };
    for (token, status) in
        [("", 401), ("guess", 401), (&*format!("{OF_WEB}-c"), 401), (OF_ALL, 401)]
    {
        for path in ["/live", "/search"] {
            let (found, head, body) = ask(path, token);
            assert!(found == status && !body.contains("of web"), "{path} {token}: {found} {body}");
            assert!(head.contains("WWW-Authenticate: Bearer"), "{head}");
        }
    }
    for path in ["/search", "/search?tenant=web"] {
        let (status, _, body) = ask(path, OF_WEB);
        assert!(status == 200 && body.contains("of web") && !body.contains("of db"), "{body}");
    }
    for path in ["/search?tenant=db", "/live?tenant=db", "/search?tenant=web&tenant=db"] {
        let (status, _, body) = ask(path, OF_WEB);
        assert!(status == 403 && body.contains("another tenant"), "{path}: {body}");
    }
    let page = get(http, "/").1;
    assert!(page.contains("id=\"token\"") && !page.contains("of web"), "{page}");
    // A reload takes the file as it is then.
    std::fs::write(&file, format!("{OF_ALL} *\n")).unwrap();
    daemon.signal("-HUP");
    wait_until("the file is read again", || ask("/search", OF_WEB).0 == 401);
    let (_, _, body) = ask("/search", OF_ALL);
    assert!(body.contains("of web") && body.contains("of db"), "{body}");
    // Nothing is taken over from a wrong one.
    std::fs::write(&file, "short *\n").unwrap();
    daemon.signal("-HUP");
    std::fs::write(&file, "also short *\n").unwrap();
    let output = daemon.end();
    assert!(output.contains("asked for lines with an unknown token"), "{output}");
    assert!(!output.contains(OF_WEB) && !output.contains("guess"), "no token is told: {output}");
}

/// An address of this machine that is not a loopback address, if it has one. Nothing is sent.
pub fn other_address() -> Option<std::net::IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    let address = socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr());
    if address.is_err() {
        eprintln!("skipped: this machine has only loopback addresses");
    }
    Some(address.ok()?.ip()).filter(|ip| !ip.is_loopback())
}

#[test]
fn elsewhere_lines_need_a_token_that_nobody_else_can_read() {
    let Some(ip) = other_address() else { return };
    let directory = temporary();
    let file = directory.path().join("page-tokens");
    std::fs::write(&file, format!("{OF_ALL} *\n")).unwrap();
    let tokens = ["--page-tokens", file.to_str().unwrap()];
    for (flags, plain, with_token, told) in [
        (&[][..], 403, 403, "--page-tokens"),
        (&tokens[..], 403, 403, "--token-transport any"),
        (&[&tokens[..], &["--token-transport", "any"]].concat(), 401, 200, "Bearer TOKEN"),
    ] {
        let log = directory.path().join("log");
        let flags = [&["0.0.0.0:0"], flags].concat();
        let (daemon, bound) = start("epoll", &log, &flags).unwrap();
        let http = SocketAddr::new(ip, bound.port());
        let (status, _, body) = get_with(http, "/search", &format!("Host: {http}\r\n"));
        assert!(status == plain && body.contains(told), "{flags:?}: {status} {body}");
        let token = format!("Host: {http}\r\nAuthorization: Bearer {OF_ALL}\r\n");
        assert_eq!(get_with(http, "/search", &token).0, with_token, "{flags:?}");
        // Figures are there for everybody, as ever.
        assert!(get(http, "/metrics").0 == 200 && get(http, "/").1.contains("ready"));
        assert_eq!(get(http, "/").1.contains("<script"), plain == 401);
        // On this machine itself.
        let near = SocketAddr::new("127.0.0.1".parse().unwrap(), bound.port());
        let is_free = flags.len() == 1;
        assert_eq!(get(near, "/search").0, if is_free { 200 } else { 401 }, "{flags:?}");
        daemon.end();
    }
}

#[test]
fn wrong_files_of_tokens_are_told_with_their_option() {
    let directory = temporary();
    let file = directory.path().join("page-tokens");
    std::fs::write(&file, "short web\n").unwrap();
    for path in [file, directory.path().join("none")] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_ringwise"));
        let output =
            command.args(["logd", "--check", "--page-tokens"]).arg(&path).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && told.starts_with("ringwise: logd: --page-tokens "),
            "{told}"
        );
        assert_eq!(told.lines().count(), 1, "{told}");
    }
}
