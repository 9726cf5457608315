//! Connections over TLS, with a client of rustls and without a socket.

use std::io::Read as _;

use rcgen::{CertificateParams, CertifiedKey, DnType, KeyPair, generate_simple_self_signed};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName},
    server::WebPkiClientVerifier,
};

use super::*;
use crate::clients::tokens::{Tokens, Transport};

struct Pair {
    desk: Table,
    connection: Connection,
    client: ClientConnection,
}

impl Pair {
    fn new() -> Pair {
        Pair::of(None)
    }

    /// With a client that has a certificate of this name, if one is given.
    fn of(tenant: Option<&str>) -> Pair {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let own = tenant.map(certificate);
        let mut clients = RootCertStore::empty();
        let verifier = own.as_ref().map(|(own, _)| {
            clients.add(own.clone()).unwrap();
            let clients = Arc::new(clients);
            WebPkiClientVerifier::builder_with_provider(clients, default_provider().into())
                .build()
                .unwrap()
        });
        let server = ServerConfig::builder_with_provider(default_provider().into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(
                verifier.unwrap_or_else(WebPkiClientVerifier::no_client_auth),
            )
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(cert.der().clone()).unwrap();
        let client = ClientConfig::builder_with_provider(default_provider().into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let client = match own {
            Some((own, key)) => client.with_client_auth_cert(vec![own], key).unwrap(),
            None => client.with_no_client_auth(),
        };
        let name = ServerName::try_from("localhost").unwrap();
        let client = ClientConnection::new(Arc::new(client), name).unwrap();
        let mut desk = Table::new();
        (desk.limits.line_max, desk.limits.budget_each) = (100_000, 100_000);
        let peer = Some("10.0.0.1:5".parse().unwrap());
        let session = Session::new(Arc::new(server)).unwrap();
        let connection = Connection::new(1, peer, Framing::Lines, Some(session), &desk.tenants);
        Pair { desk, connection, client }
    }

    /// What the client has to send.
    fn wire(&mut self) -> Vec<u8> {
        let mut wire = Vec::new();
        while self.client.wants_write() {
            self.client.write_tls(&mut wire).unwrap();
        }
        wire
    }

    /// Hands over bytes between both until neither has any; gives the steps that were no sends.
    fn exchange(&mut self) -> Vec<Step> {
        let mut others = Vec::new();
        loop {
            let wire = self.wire();
            let mut is_quiet = wire.is_empty();
            self.desk.receive(&mut self.connection, &wire);
            for step in self.desk.steps(&mut self.connection) {
                match step {
                    Step::Send(bytes) => {
                        is_quiet = false;
                        self.connection.sent(b"");
                        let mut rest = &bytes[..];
                        while !rest.is_empty() {
                            self.client.read_tls(&mut rest).unwrap();
                            self.client.process_new_packets().unwrap();
                        }
                    }
                    step => others.push(step),
                }
            }
            if is_quiet {
                return others;
            }
        }
    }

    /// Sends text, and gives the answer.
    fn ask(&mut self, text: &[u8]) -> String {
        self.client.writer().write_all(text).unwrap();
        self.exchange();
        let mut answer = [0; 1000];
        let count = self.client.reader().read(&mut answer).unwrap_or(0);
        String::from_utf8(answer[..count].to_vec()).unwrap()
    }
}

/// A certificate of this common name, and its key.
fn certificate(name: &str) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    let mut parameters = CertificateParams::new(Vec::new()).unwrap();
    parameters.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().unwrap();
    let certificate = parameters.self_signed(&key).unwrap();
    (certificate.der().clone(), PrivateKeyDer::try_from(key.serialize_der()).unwrap())
}

/// With the next record the tenant was the certificate's again.
#[test]
fn a_token_says_more_than_a_certificate_for_all_lines() {
    let mut pair = Pair::of(Some("fleet"));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "web-token-0123456789abcdef web\n").unwrap();
    let tokens = Tokens::read("--tokens", Some(file.path()), Transport::Private).unwrap();
    pair.desk.limits.tokens = Arc::new(tokens);
    assert_eq!(pair.ask(b"LOGD 1 token=web-token-0123456789abcdef\n"), "H 1 durable\n");
    pair.ask(b"1\n");
    pair.ask(b"2\n");
    // One part, or two if the lines come in different milliseconds.
    let mut tenants: Vec<_> =
        pair.desk.batch.parts.iter().map(|part| part.origin.tenant.as_deref()).collect();
    tenants.dedup();
    assert_eq!(tenants, [Some("web")]);
    let mut pair = Pair::of(Some("fleet"));
    pair.ask(b"1\n");
    assert_eq!(pair.desk.batch.parts[0].origin.tenant.as_deref(), Some("fleet"));
}

/// It was refused as if it had come in plain.
#[test]
fn a_token_that_comes_by_tls_is_taken_from_anywhere() {
    let mut pair = Pair::new();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "web-token-0123456789abcdef web\n").unwrap();
    let tokens = Tokens::read("--tokens", Some(file.path()), Transport::Private).unwrap();
    pair.desk.limits.tokens = Arc::new(tokens);
    let answer = pair.ask(b"LOGD 1 token=web-token-0123456789abcdef name=a\n");
    assert_eq!(answer, "H 1 durable 0\n");
}

#[test]
fn http_within_tls_is_answered_and_stores_nothing() {
    for request in [&b"POST / HTTP/1.1\r\n\r\n{}\n"[..], b"\r\nproppatch / http/1.1\r\n\r\n{}\n"] {
        let mut pair = Pair::new();
        let answer = pair.ask(request);
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        assert_eq!((pair.desk.batch.is_empty(), pair.desk.counts.misdirected), (true, 1));
    }
}

/// Of a record that is not whole nothing was counted.
#[test]
fn half_a_record_is_counted_and_can_be_given_up() {
    let mut pair = Pair::new();
    pair.exchange();
    assert_eq!(pair.desk.partials, Held::default(), "the handshake is over");
    let line = format!("\"{}\"\n", "x".repeat(10_000));
    pair.client.writer().write_all(line.as_bytes()).unwrap();
    let wire = pair.wire();
    pair.desk.receive(&mut pair.connection, &wire[..9000]);
    assert_eq!(pair.desk.partials.bytes, 9000);
    assert!(pair.connection.unfinished_since().is_some());
    pair.desk.receive(&mut pair.connection, &wire[9000..]);
    assert_eq!((pair.desk.batch.line_count, pair.desk.partials), (1, Held::default()));
    pair.desk.commit(&mut pair.connection);

    pair.client.writer().write_all(line.as_bytes()).unwrap();
    let wire = pair.wire();
    pair.desk.receive(&mut pair.connection, &wire[..3000]);
    pair.connection.give_up_line(&mut pair.desk.partials);
    assert_eq!(pair.desk.partials.bytes, 3000, "so much each may keep");
    pair.desk.receive(&mut pair.connection, &wire[3000..6000]);
    pair.connection.give_up_line(&mut pair.desk.partials);
    assert_eq!(pair.desk.partials, Held::default());
    assert!(pair.connection.is_broken());
    assert_eq!(pair.exchange(), [Step::StopReceiving]);
    pair.connection.receiving_stopped();
    assert_eq!(pair.exchange(), [Step::Close]);
}

#[test]
fn half_a_handshake_is_counted() {
    let mut pair = Pair::new();
    // Records of 16 KiB, with parts of one long message.
    let mut record = vec![22, 3, 1, 0x40, 0];
    record.extend([1, 0, 0xff, 0]);
    record.resize(5 + (16 << 10), 0);
    pair.desk.receive(&mut pair.connection, &record);
    assert_eq!(pair.desk.partials.bytes, record.len());
    record[5..9].fill(0);
    pair.desk.receive(&mut pair.connection, &record);
    assert_eq!(pair.desk.partials.bytes, 2 * record.len());
}
