//! `ringwise logd` over TLS, from outside, by rustls's own client. Every test runs on each engine;
//! the ring is skipped with a reason where there is none, and never in CI.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::PathBuf,
    process::Command,
    sync::Arc,
    time::Duration,
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    version::{TLS12, TLS13},
};

use crate::harness::daemon;

use daemon::{Daemon, ENGINES, ask, cat, connect, count, wait_until};

mod intake;

type Client = BufReader<StreamOwned<ClientConnection, TcpStream>>;

/// Keys and certificates of a test, and the daemon's directory.
pub(crate) struct Place {
    directory: tempfile::TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Place {
    pub(crate) fn new() -> Place {
        let directory = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "an issuer");
        let key = KeyPair::generate().unwrap();
        let issuer = CertifiedIssuer::self_signed(params, key).unwrap();
        let place = Place { directory, issuer };
        std::fs::write(place.path("ca.pem"), place.issuer.pem()).unwrap();
        place.issue("server", &["localhost"], None);
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.path("log")
    }

    /// Writes `NAME.pem` and `NAME.key`.
    pub(crate) fn issue(&self, name: &str, hosts: &[&str], common: Option<&str>) {
        let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        if let Some(common) = common {
            params.distinguished_name.push(DnType::OrganizationName, "an organization");
            params.distinguished_name.push(DnType::CommonName, common);
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        std::fs::write(self.path(&format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    pub(crate) fn start(&self, engine: &str, flags: &[&str]) -> Option<Daemon> {
        let log = self.text("log");
        let (certificate, key) = (self.text("server.pem"), self.text("server.key"));
        let own = ["--dir", &log, "--tls-cert", &certificate, "--tls-key", &key];
        Daemon::launch("logd", engine, &[&own, flags].concat())
    }

    fn client(&self, daemon: &Daemon, shown: Option<&str>) -> Client {
        self.client_of(daemon, shown, &TLS13)
    }

    fn client_of(
        &self,
        daemon: &Daemon,
        shown: Option<&str>,
        version: &'static SupportedProtocolVersion,
    ) -> Client {
        self.client_over(daemon.connect(), shown, version)
    }

    fn client_over(
        &self,
        stream: TcpStream,
        shown: Option<&str>,
        version: &'static SupportedProtocolVersion,
    ) -> Client {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(default_provider().into())
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots);
        let config = match shown {
            None => builder.with_no_client_auth(),
            Some(name) => {
                let path = self.path(&format!("{name}.pem"));
                let chain = CertificateDer::pem_file_iter(path).unwrap();
                let key = PrivateKeyDer::from_pem_file(self.path(&format!("{name}.key"))).unwrap();
                builder.with_client_auth_cert(chain.map(Result::unwrap).collect(), key).unwrap()
            }
        };
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        BufReader::new(StreamOwned::new(connection, stream))
    }
}

fn send(client: &mut Client, text: &[u8]) -> std::io::Result<()> {
    client.get_mut().write_all(text)?;
    client.get_mut().flush()
}

/// The next answer; an empty one when the daemon has ended its side by TLS's own word.
fn answer(client: &mut Client) -> String {
    let mut line = String::new();
    client.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

#[test]
fn what_is_acknowledged_over_tls_is_stored() {
    for (engine, version, flags) in [
        ("uring", &TLS13, &[][..]),
        ("epoll", &TLS13, &[]),
        ("uring", &TLS12, &[]),
        ("epoll", &TLS12, &["--batch", "1"]),
    ] {
        let place = Place::new();
        let Some(daemon) = place.start(engine, flags) else { continue };
        let mut client = place.client_of(&daemon, None, version);
        // The greeting and the first line in one record, the next one over several.
        send(&mut client, b"LOGD 1\n{\"a\" :1 }\n").unwrap();
        assert_eq!(answer(&mut client), "H 1 durable");
        assert_eq!(answer(&mut client), "A 1");
        let long = format!("[\"{}\"]", "x".repeat(200_000));
        send(&mut client, format!("{long}\nx y\n").as_bytes()).unwrap();
        let mut answers = Vec::new();
        while answers.last().is_none_or(|last| last != "A 3") {
            answers.push(answer(&mut client));
        }
        assert!(answers.contains(&"N 3 syntax".to_owned()), "{answers:?}");
        // Its own end of the session: what it sent before is acknowledged, and the session ended.
        send(&mut client, b"[4]\n[5").unwrap();
        client.get_mut().conn.send_close_notify();
        client.get_mut().flush().unwrap();
        let mut rest = String::new();
        client.read_to_string(&mut rest).unwrap();
        assert!(rest.ends_with("A 5\n") && rest.contains("N 5 unterminated"), "{rest}");
        drop(client);
        let output = daemon.end();
        assert_eq!(count(&output, "lines accepted"), 3, "{output}");
        assert_eq!(count(&output, "refused by TLS"), 0, "{output}");
        assert_eq!(cat(&[], &place.log()), ["{\"a\" :1 }", &long, "[4]"]);
    }
}

#[test]
fn many_lines_are_few_records_and_an_end_is_said_by_tls() {
    for engine in ENGINES {
        let place = Place::new();
        let Some(mut daemon) = place.start(engine, &[]) else { continue };
        let mut client = place.client(&daemon, None);
        send(&mut client, b"LOGD 1\n").unwrap();
        let lines: String = (0..50_000).map(|number| format!("[{number}]\n")).collect();
        send(&mut client, lines.as_bytes()).unwrap();
        while answer(&mut client) != "A 50000" {}
        daemon.signal("-TERM");
        // An end without TLS's own word would be an error here.
        assert_eq!(answer(&mut client), "");
        drop(client);
        let output = daemon.output();
        assert_eq!(count(&output, "lines accepted"), 50_000, "{output}");
        let sends = count(&output, "sends,");
        assert!(sends < 5_000, "{sends} sends: {output}");
    }
}

#[test]
fn a_client_certificate_names_the_tenant() {
    for engine in ENGINES {
        let place = Place::new();
        place.issue("web", &[], Some("web-1"));
        place.issue("dns", &["host.example"], None);
        let other = Place::new();
        other.issue("web", &[], Some("web-1"));
        let ca = place.text("ca.pem");
        let flags = ["--tls-client-ca", &*ca, "--tls-client-auth", "required"];
        // The last letter is of one stream.
        let flags = [&flags[..], &["--threads", "1"]].concat();
        let Some(daemon) = place.start(engine, &flags) else { continue };
        for (shown, tenant) in [("web", "web-1"), ("dns", "host.example")] {
            let mut client = place.client(&daemon, Some(shown));
            send(&mut client, b"LOGD 1\nnot json\n").unwrap();
            assert_eq!(answer(&mut client), "H 1 durable");
            while answer(&mut client) != "A 1" {}
            let letters = cat(&["--dead"], &place.log());
            let last: serde_json::Value = serde_json::from_str(letters.last().unwrap()).unwrap();
            assert_eq!(last["tenant"], tenant);
        }
        // Without one, or with one that somebody else signed, nothing is taken.
        for (from, shown) in [(&place, None), (&other, Some("web"))] {
            let mut client = from.client(&daemon, None);
            if let Some(name) = shown {
                // Trusts the server, and shows what the server does not trust.
                std::fs::copy(other.path("web.pem"), place.path("strange.pem")).unwrap();
                std::fs::copy(other.path("web.key"), place.path("strange.key")).unwrap();
                assert_eq!(name, "web");
                client = place.client(&daemon, Some("strange"));
            }
            let sent = send(&mut client, b"LOGD 1\n[1]\n");
            let mut rest = Vec::new();
            assert!(sent.is_err() || client.read_to_end(&mut rest).is_err(), "{rest:?}");
        }
        let output = daemon.end();
        assert_eq!(count(&output, "lines accepted"), 0, "{output}");
        assert!(count(&output, "refused by TLS") >= 2, "{output}");
    }
}

/// A name is the certificate's tenant's own: who shows another certificate, or none, cannot take it.
#[test]
fn a_client_certificate_is_an_identity_for_names() {
    for engine in ENGINES {
        let place = Place::new();
        place.issue("web", &[], Some("web-1"));
        place.issue("db", &[], Some("db-1"));
        let ca = place.text("ca.pem");
        let start = || place.start(engine, &["--tls-client-ca", &ca]);
        let greet = |daemon: &Daemon, shown: Option<&str>| {
            let mut client = place.client(daemon, shown);
            send(&mut client, b"LOGD 1 name=main\n").unwrap();
            let told = answer(&mut client);
            (client, told)
        };
        let Some(daemon) = start() else { continue };
        let (mut web, told) = greet(&daemon, Some("web"));
        assert!(told.starts_with("H 1 durable 0 "), "{told}");
        send(&mut web, b"1\n2\n").unwrap();
        while answer(&mut web) != "A 2" {}
        drop(web);
        let told = greet(&daemon, Some("db")).1;
        assert!(told.starts_with("H 1 durable 0 "), "a name of its own: {told}");
        assert_eq!(greet(&daemon, None).1, "E 1 identity");
        daemon.end();
        let daemon = start().unwrap();
        let (mut web, told) = greet(&daemon, Some("web"));
        assert!(told.starts_with("H 1 durable 2 "), "{told}");
        send(&mut web, b"3\n").unwrap();
        assert_eq!(answer(&mut web), "A 3");
        drop(web);
        daemon.end();
        assert_eq!(cat(&["--tenant", "web-1"], &place.log()), ["1", "2", "3"]);
    }
}

#[test]
fn a_client_certificate_is_optional_unless_it_is_required() {
    let place = Place::new();
    let ca = place.text("ca.pem");
    let daemon = place.start("epoll", &["--tls-client-ca", &ca]).unwrap();
    let mut client = place.client(&daemon, None);
    send(&mut client, b"LOGD 1\n1\n").unwrap();
    assert_eq!(answer(&mut client), "H 1 durable");
    assert_eq!(answer(&mut client), "A 1");
}

#[test]
fn certificates_are_read_again() {
    let place = Place::new();
    let mut daemon = place.start("epoll", &[]).unwrap();
    let mut errors = BufReader::new(daemon.child.stderr.take().unwrap());
    let mut reload = |word: &str| {
        daemon.signal("-HUP");
        let mut line = String::new();
        errors.read_line(&mut line).unwrap();
        assert!(line.contains(word), "{line}");
    };
    let shown = |client: &mut Client| {
        send(client, b"LOGD 1\n1\n").unwrap();
        while answer(client) != "A 1" {}
        client.get_ref().conn.peer_certificates().unwrap()[0].clone()
    };
    let mut before = place.client(&daemon, None);
    let old = shown(&mut before);
    place.issue("server", &["localhost"], None);
    reload("reloaded");
    let new = shown(&mut place.client(&daemon, None));
    assert!(new != old, "the old certificate is still shown");
    // Who came before goes on.
    send(&mut before, b"2\n").unwrap();
    assert_eq!(answer(&mut before), "A 2");
    // What is not a certificate changes nothing.
    std::fs::write(place.path("server.pem"), "nonsense").unwrap();
    reload("not reloaded");
    assert!(shown(&mut place.client(&daemon, None)) == new);
}

#[test]
fn garbage_instead_of_tls_is_refused_and_counted() {
    for engine in ENGINES {
        let place = Place::new();
        let Some(daemon) = place.start(engine, &["--log", "json"]) else { continue };
        let mut honest = place.client(&daemon, None);
        send(&mut honest, b"LOGD 1\n1\n").unwrap();
        while answer(&mut honest) != "A 1" {}
        let before = daemon.open_descriptors();
        let garbage: [&[u8]; 4] = [
            b"{\"a\":1}\n",
            b"GET / HTTP/1.1\r\n\r\n",
            &[0; 10_000],
            // A record of a handshake that never was one.
            &[22, 3, 1, 0, 5, 1, 0, 0, 1, 255],
        ];
        for bytes in garbage.into_iter().cycle().take(40) {
            let mut stream = daemon.connect();
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let _ = stream.write_all(bytes);
            // An alert, or a reset; not one byte that says more.
            let mut said = Vec::new();
            let _ = stream.read_to_end(&mut said);
            assert!(said.len() < 10, "{said:?}");
        }
        // Half of a handshake, and gone.
        for _ in 0..10 {
            daemon.connect().write_all(&[22, 3, 1, 1, 0, 1]).unwrap();
        }
        wait_until("all are closed", || daemon.open_descriptors() <= before);
        send(&mut honest, b"2\n").unwrap();
        assert_eq!(answer(&mut honest), "A 2");
        drop(honest);
        let output = daemon.end();
        assert_eq!(count(&output, "refused by TLS"), 40, "{output}");
        assert!(output.contains("the client does not speak TLS"), "{output}");
        let told: Vec<serde_json::Value> =
            output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let told = told.iter().filter(|remark| remark["kind"] == "tls").count();
        assert!((10..40).contains(&told), "{told} remarks of 40: {output}");
    }
}

/// A request within TLS was known by ten methods only, as one in plain.
#[test]
fn http_within_tls_is_answered_and_stores_nothing() {
    for engine in ENGINES {
        let place = Place::new();
        let Some(daemon) = place.start(engine, &[]) else { continue };
        for request in ["POST / HTTP/1.1\r\n\r\n{}\n", "\r\nproppatch / http/1.1\r\n\r\n{}\n"] {
            let mut client = place.client(&daemon, None);
            send(&mut client, request.as_bytes()).unwrap();
            let mut page = String::new();
            client.read_to_string(&mut page).unwrap();
            assert!(page.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{engine}: {page}");
        }
        let output = daemon.end();
        assert_eq!(count(&output, "misdirected"), 2, "{output}");
        assert_eq!(count(&output, "lines accepted"), 0, "{output}");
        assert_eq!(count(&output, "rejected;"), 0, "{output}");
        assert_eq!(cat(&[], &place.log()), Vec::<String>::new());
    }
}

/// Kept bytes of all threads.
fn uncommitted(page: &str) -> u64 {
    let text = ask(page, "/metrics");
    let own = text.lines().filter(|line| line.starts_with("logd_uncommitted_bytes{"));
    own.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

/// What TLS keeps of records and handshakes that are not whole was not counted, so clients that stop in the middle
/// of them took memory without a limit.
#[test]
fn halves_of_records_and_handshakes_stay_within_the_budget() {
    const RECORDS: u64 = 300;
    const HANDSHAKES: u64 = 300;
    const BUDGET: u64 = 4 << 20;
    const GROWN_MAX: u64 = 12 << 20;
    // A record with a part of a message of nearly 64 KiB, and records with more of it.
    let mut hello = vec![22, 3, 1, 0x40, 0, 1, 0, 0xff, 0];
    hello.resize(5 + (16 << 10), 0);
    let more = [&[22, 3, 1, 0x40, 0][..], &[0; 16 << 10]].concat();
    hello.extend(more.repeat(2));
    let half = [&[23, 3, 3, 0x41, 0][..], &[0; 16 << 10]].concat();
    for engine in ENGINES {
        let place = Place::new();
        let flags = ["--budget", "4m", "--threads", "1", "--tls-handshake", "5m"];
        let flags = [&flags[..], &["--http", "127.0.0.1:0"]].concat();
        let Some(mut daemon) = place.start(engine, &flags) else { continue };
        let page = daemon.line();
        let mut clients: Vec<Client> = (0..RECORDS)
            .map(|_| {
                let mut client = place.client(&daemon, None);
                send(&mut client, b"LOGD 1\n").unwrap();
                assert_eq!(answer(&mut client), "H 1 durable");
                client
            })
            .collect();
        assert_eq!(uncommitted(&page), 0, "{engine}");
        let before = daemon.resident_kib();
        let mut most = 0;
        // One that was given up does not take its bytes any more.
        for client in &mut clients {
            let _ = client.get_mut().sock.write_all(&half);
            most = most.max(uncommitted(&page));
        }
        let handshakes: Vec<TcpStream> = (0..HANDSHAKES)
            .map(|_| {
                let mut stream = daemon.connect();
                let _ = stream.write_all(&hello);
                most = most.max(uncommitted(&page));
                stream
            })
            .collect();
        let sent = RECORDS * half.len() as u64 + HANDSHAKES * hello.len() as u64;
        let grown = (daemon.resident_kib() - before) << 10;
        println!("{engine}: of {sent} bytes {most} counted at most, {grown} more resident");
        // Each may have 4 KiB whatever the others do.
        let free = (RECORDS + HANDSHAKES) * (4 << 10);
        assert!(most > BUDGET / 4, "{engine}: they are not counted: {most}");
        assert!(most <= BUDGET / 2 + free + (64 << 10), "{engine}: {most}");
        assert!(grown < GROWN_MAX, "{engine}: {grown}");
        // Who comes is served.
        let mut honest = place.client(&daemon, None);
        send(&mut honest, b"LOGD 1\n1\n").unwrap();
        while answer(&mut honest) != "A 1" {}
        drop((clients, handshakes, honest));
        wait_until("memory is free", || uncommitted(&page) == 0);
        let output = daemon.end();
        assert!(
            output.contains("unfinished lines of the clients that use the most memory"),
            "{output}"
        );
        assert!(count(&output, "broken,") > 50, "{output}");
    }
}

/// Who connects and says nothing, or not all, takes no place for long.
#[test]
fn a_handshake_has_its_time() {
    for engine in ENGINES {
        let place = Place::new();
        let Some(daemon) = place.start(engine, &["--tls-handshake", "200ms"]) else { continue };
        let mut honest = place.client(&daemon, None);
        send(&mut honest, b"LOGD 1\n1\n").unwrap();
        while answer(&mut honest) != "A 1" {}
        let mut silent = daemon.connect();
        let mut half = daemon.connect();
        half.write_all(&[22, 3, 1, 1, 0, 1]).unwrap();
        for stream in [&mut silent, &mut half] {
            // The end of TLS, and the end.
            assert!(stream.read_to_end(&mut Vec::new()).unwrap() < 10);
        }
        // Whose handshake was done may be silent for as long as it likes.
        send(&mut honest, b"2\n").unwrap();
        assert_eq!(answer(&mut honest), "A 2");
        drop(honest);
        let output = daemon.end();
        assert_eq!(count(&output, "refused by TLS"), 2, "{output}");
    }
}

#[test]
fn what_is_wrong_with_certificates_is_said_in_one_line() {
    let place = Place::new();
    place.issue("other", &["localhost"], None);
    std::fs::write(place.path("empty"), "").unwrap();
    let file = |name: &str| place.text(name);
    for (arguments, status, word) in [
        (vec!["--tls-cert", "server.pem"], 2, "--tls-key"),
        (vec!["--tls-client-ca", "ca.pem"], 2, "--tls-cert"),
        (vec!["--tls-cert", "none.pem", "--tls-key", "server.key"], 1, "; name an existing path"),
        (vec!["--tls-cert", "empty", "--tls-key", "server.key"], 1, "it has no certificate; name"),
        (
            vec!["--tls-cert", "server.pem", "--tls-key", "server.pem"],
            1,
            "it has no private key; name",
        ),
        (vec!["--tls-cert", "server.pem", "--tls-key", "other.key"], 1, "not the key of"),
    ] {
        let arguments: Vec<String> = arguments
            .iter()
            .map(|word| if word.starts_with("--") { (*word).to_owned() } else { file(word) })
            .collect();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringwise"));
        let output = command.args(["logd", "--check"]).args(&arguments).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {error}");
        assert_eq!(error.trim_end().lines().count(), 1, "{error}");
        assert!(error.contains(word), "{arguments:?}: {error}");
        // On what, as it was named.
        let named = arguments.chunks(2).any(|pair| error.contains(&pair.join(" ")));
        assert!(status == 2 || named, "{arguments:?}: {error}");
    }
}
