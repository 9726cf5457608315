//! The ports of the intake over TLS: a client certificate has the tenant on each, and may be required.

use std::net::SocketAddr;

use super::*;
use crate::intake::{
    fluent::{acknowledgement, chunk, event, line, packed},
    next_address,
};

/// What a port speaks: its option, what the daemon prints of it, a line for it, and the end of its answer.
fn ports() -> [(&'static str, &'static str, Vec<u8>, Vec<u8>); 3] {
    let request =
        b"POST /ingest HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nConnection: close\r\n\r\n[1]";
    let answer = b"\r\n\r\n{\"lines\":1,\"rejected_lines\":0,\"guarantee\":\"durable\"}\n";
    let frames = b"1 open 15 commands=syslog\n2 syslog 3 [2]\n3 close 0\n";
    let answers = b"2 rsp 6 200 OK\n3 rsp 0\n0 serverclose 0\n";
    let message = packed(&event(3), &chunk("x"));
    [
        ("--http-intake", "taking requests on https://", request.to_vec(), answer.to_vec()),
        ("--relp-intake", "taking RELP over TLS on ", frames.to_vec(), answers.to_vec()),
        ("--fluent-intake", "taking Fluent Forward over TLS on ", message, acknowledgement("x")),
    ]
}

/// Sends bytes with the last ones of the handshake, and ends the session: all that is answered.
fn exchange(place: &Place, address: SocketAddr, shown: Option<&str>, bytes: &[u8]) -> Vec<u8> {
    let mut client = place.client_over(connect(address), shown, &TLS13);
    client.get_mut().conn.writer().write_all(bytes).unwrap();
    client.get_mut().flush().unwrap();
    client.get_mut().conn.send_close_notify();
    client.get_mut().flush().unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    answer
}

#[test]
fn requests_over_tls_have_the_tenant_of_the_certificate_or_of_the_token() {
    for engine in ENGINES {
        let place = Place::new();
        place.issue("web", &[], Some("web-1"));
        let token = "0123456789abcdefghijklmn";
        std::fs::write(place.path("tokens"), format!("{token} db-1\n")).unwrap();
        let (ca, tokens) = (place.text("ca.pem"), place.text("tokens"));
        let flags = ["--tls-client-ca", &ca, "--http-intake", "127.0.0.1:0", "--tokens", &tokens];
        let Some(mut daemon) = place.start(engine, &flags) else { continue };
        let address = next_address(&mut daemon, "taking requests on https://");
        for (shown, header, line) in [
            (Some("web"), String::new(), "[1]"),
            (Some("web"), format!("Authorization: Bearer {token}\r\n"), "[2]"),
            (None, String::new(), "[3]"),
        ] {
            let stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let mut client = place.client_over(stream, shown, &TLS13);
            let request = format!(
                "POST /ingest HTTP/1.1\r\nHost: x\r\n{header}Content-Length: 3\r\n\r\n{line}"
            );
            // It goes with the last bytes of the handshake.
            client.get_mut().conn.writer().write_all(request.as_bytes()).unwrap();
            client.get_mut().flush().unwrap();
            assert_eq!(answer(&mut client), "HTTP/1.1 200 OK");
            while !answer(&mut client).starts_with("{\"lines\":1,") {}
        }
        daemon.end();
        let of = |tenant: &str| cat(&["--tenant", tenant], &place.log());
        assert_eq!((of("web-1"), of("db-1")), (vec!["[1]".to_owned()], vec!["[2]".to_owned()]));
        assert_eq!(cat(&[], &place.log()), ["[1]", "[2]", "[3]"]);
    }
}

#[test]
fn each_port_has_the_tenant_of_the_certificate_and_refuses_what_is_plain() {
    for engine in ENGINES {
        for (at, (option, told, sent, answered)) in ports().into_iter().enumerate() {
            let place = Place::new();
            place.issue("web", &[], Some("web-1"));
            let ca = place.text("ca.pem");
            let flags = ["--tls-client-ca", &ca, option, "127.0.0.1:0"];
            let Some(mut daemon) = place.start(engine, &flags) else { continue };
            let address = next_address(&mut daemon, told);
            let answer = exchange(&place, address, Some("web"), &sent);
            assert!(answer.ends_with(&answered), "{engine}, {option}: {}", answer.escape_ascii());
            // In plain.
            let mut stranger = connect(address);
            stranger.write_all(&sent).unwrap();
            let _ = stranger.read_to_end(&mut Vec::new());
            let said = daemon.end();
            let intake = said.lines().find(|line| line.contains("intake: ")).unwrap();
            assert_eq!(count(intake, "refused by TLS"), 1, "{said}");
            let expected = [["[1]".to_owned()], ["[2]".to_owned()], [line(3)]];
            assert_eq!(cat(&["--tenant", "web-1"], &place.log()), expected[at], "{engine}");
            assert_eq!(cat(&[], &place.log()), expected[at], "{engine}");
        }
    }
}

#[test]
fn a_certificate_that_is_required_is_required_on_each_port() {
    for engine in ENGINES {
        let place = Place::new();
        place.issue("web", &[], Some("web-1"));
        let ca = place.text("ca.pem");
        let own = ["--tls-client-ca", &ca, "--tls-client-auth", "required", "--threads", "1"];
        let mut flags = own.to_vec();
        flags.extend(ports().iter().flat_map(|port| [port.0, "127.0.0.1:0"]));
        let Some(mut daemon) = place.start(engine, &flags) else { continue };
        let addresses = ports().map(|port| next_address(&mut daemon, port.1));
        for (address, (option, _, sent, answered)) in addresses.into_iter().zip(ports()) {
            // It sends nothing, so that no reset takes the place of the alert.
            let mut client = place.client_over(connect(address), None, &TLS13);
            let error = client.read_to_end(&mut Vec::new()).unwrap_err().to_string();
            assert!(error.contains("CertificateRequired"), "{engine}, {option}: {error}");
            // What it sends is not taken.
            let mut client = place.client_over(connect(address), None, &TLS13);
            client.get_mut().conn.writer().write_all(&sent).unwrap();
            let _ = client.get_mut().flush();
            assert!(client.read_to_end(&mut Vec::new()).is_err(), "{engine}, {option}");
            let answer = exchange(&place, address, Some("web"), &sent);
            assert!(answer.ends_with(&answered), "{engine}, {option}: {}", answer.escape_ascii());
        }
        let said = daemon.end();
        let intake = said.lines().find(|line| line.contains("intake: ")).unwrap();
        assert_eq!(count(intake, "refused by TLS"), 6, "{engine}: {said}");
        assert_eq!(count(intake, "lines accepted"), 3, "{engine}: {said}");
        let expected = ["[1]", "[2]", &line(3)];
        assert_eq!(cat(&[], &place.log()), expected, "{engine}");
        assert_eq!(cat(&["--tenant", "web-1"], &place.log()), expected, "{engine}");
    }
}
