//! `--senders tenants`: who has no tenant stores nothing, whatever the port and the protocol.

use std::{net::SocketAddr, path::Path};

use super::{
    answer,
    fluent::{acknowledgement, chunk, event, packed},
    http, next_address,
    protocols::{BULK, LOKI_JSON, OTLP_JSON, send},
};
use crate::harness::daemon::{Daemon, ENGINES, ask, cat};

const TOKEN: &str = "0123456789abcdefghijklmn";

/// The ports of a daemon: for lines, HTTP, RELP and Fluent Forward.
type Ports = [SocketAddr; 4];

/// A daemon with all of them.
fn start(engine: &str, directory: &Path, flags: &[&str]) -> Option<(Daemon, Ports)> {
    let ports = ["--relp-intake", "127.0.0.1:0", "--fluent-intake", "127.0.0.1:0"];
    let (mut daemon, http) = http::start(engine, directory, &[&ports, flags].concat())?;
    let relp = next_address(&mut daemon, "taking RELP on ");
    let fluent = next_address(&mut daemon, "taking Fluent Forward on ");
    let ports = [daemon.address, http, relp, fluent];
    Some((daemon, ports))
}

/// What each protocol says to lines that are taken.
fn each_is_stored([_, http, relp, fluent]: Ports) {
    assert_eq!(send(http, "POST /ingest", b"[1]").status, 200);
    let session = b"1 open 15 commands=syslog\n2 syslog 3 [2]\n3 close 0\n";
    assert!(answer(relp, session).ends_with(b"2 rsp 6 200 OK\n3 rsp 0\n0 serverclose 0\n"));
    assert_eq!(answer(fluent, &packed(&event(3), &chunk("x"))), acknowledgement("x"));
}

fn none_is_stored([lines, http, relp, fluent]: Ports) {
    for sent in [&b"[1]\n"[..], b"[1]", b"LOGD 1\n[1]\n", b"LOGD 1 name=web\n[1]\n"] {
        assert_eq!(answer(lines, sent), b"E 1 identity\n", "{}", sent.escape_ascii());
    }
    let bulk = b"{\"index\":{\"_index\":\"a\"}}\n{}\n";
    for (head, body) in [
        ("POST /ingest", &b"[1]"[..]),
        (BULK, bulk),
        (OTLP_JSON, b"{}"),
        (LOKI_JSON, b"{}"),
        ("GET /", b""),
    ] {
        let answer = send(http, head, body);
        assert_eq!(answer.status, 401, "{head}");
        assert!(answer.head.contains("www-authenticate: bearer"), "{}", answer.head);
    }
    assert_eq!(answer(relp, b"1 open 15 commands=syslog\n2 syslog 3 [2]\n"), b"0 serverclose 0\n");
    assert_eq!(answer(fluent, &packed(&event(3), &chunk("x"))), b"");
}

#[test]
fn who_has_no_tenant_stores_nothing_where_senders_are_tenants() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let (tokens, log) = (directory.path().join("tokens"), directory.path().join("log"));
        std::fs::write(&tokens, format!("{TOKEN} web\n")).unwrap();
        let who = ["--senders", "tenants", "--tokens", tokens.to_str().unwrap()];
        let flags = [&who[..], &["--http", "127.0.0.1:0"]].concat();
        let Some((mut daemon, ports)) = start(engine, &log, &flags) else { continue };
        let page = daemon.line();
        none_is_stored(ports);
        // A token says who somebody is.
        let greeted = answer(daemon.address, format!("LOGD 1 token={TOKEN}\n[4]\n").as_bytes());
        assert_eq!(greeted, b"H 1 durable\nA 1\n");
        let head = format!("POST /ingest\nAuthorization: Bearer {TOKEN}");
        assert_eq!(send(ports[1], &head, b"[5]").status, 200);
        let figures = ask(&page, "/metrics");
        for figure in [
            "refused_greetings_total{thread=\"0\",reason=\"identity\"} 4",
            "refused_requests_total{thread=\"1\"} 5",
            "connections_broken_total{thread=\"1\"} 2",
        ] {
            assert!(figures.contains(&format!("logd_{figure}\n")), "{figures}");
        }
        daemon.end();
        assert_eq!(cat(&[], &log), ["[4]", "[5]"], "{engine}");
        // So does an address.
        let flags = [&who[..], &["--tenant", "near,from=127.0.0.0/8"]].concat();
        let (daemon, ports) = start(engine, &log, &flags).unwrap();
        each_is_stored(ports);
        daemon.end();
        assert_eq!(cat(&["--tenant", "near"], &log).len(), 3, "{engine}");
    }
}
