//! Bodies that are packed, and bodies that are no text, by each protocol of `ringwise logd --http-intake`.

use serde_json::{Value, json};

use super::{
    http::start,
    protocols::{OTLP_JSON, OTLP_PROTOBUF, field, logs, send, snappy},
};
use crate::{
    harness::daemon::{ENGINES, ask, cat},
    intake::gzip,
};

const LOKI_JSON: &str = "POST /loki/api/v1/push\nContent-Type: application/json";
const LOKI_PROTOBUF: &str = "POST /loki/api/v1/push\nContent-Type: application/x-protobuf";

/// A log record of OTLP.
fn record(text: &[u8]) -> Vec<u8> {
    field(5, &field(1, text))
}

/// A push of Loki.
fn push(texts: &[&[u8]]) -> Vec<u8> {
    let entries: Vec<u8> = texts.iter().flat_map(|text| field(2, &field(2, text))).collect();
    snappy(&field(1, &entries))
}

#[test]
fn each_protocol_takes_gzip_within_a_bound_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let flags = ["--connection-budget", "1m", "--http", "127.0.0.1:0"];
    let Some((mut daemon, address)) = start("epoll", directory.path(), &flags) else { return };
    let page = daemon.line();
    let otlp =
        r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"c"}}]}]}]}"#;
    let bomb = gzip(&vec![b' '; 16 << 20]);
    let too_long = "is too long (--connection-budget)";
    let mut refused = 0;
    for (head, body, status) in [
        ("POST /ingest", &b"\"a\"\n"[..], 200),
        ("POST /_bulk", b"{\"index\":{\"_index\":\"x\"}}\n\"b\"\n", 200),
        (OTLP_JSON, otlp.as_bytes(), 200),
        (OTLP_PROTOBUF, &logs(&[record(b"d")]), 200),
        (LOKI_JSON, b"{\"streams\":[{\"stream\":{},\"values\":[[\"7\",\"e\"]]}]}", 204),
        (LOKI_PROTOBUF, &push(&[b"f"]), 204),
    ] {
        let packed = gzip(body);
        let of = |encoding: &str, body: &[u8]| {
            send(address, &format!("{head}\nContent-Encoding: {encoding}"), body)
        };
        assert_eq!(of("gzip", &packed).status, status, "{head}");
        for (encoding, body, status, words) in [
            ("gzip", body, 400, "the body is no gzip"),
            ("gzip", &packed[..packed.len() - 1], 400, "the body is no gzip"),
            ("gzip", &bomb, 413, too_long),
            ("zstd", body, 415, "send the body as it is, or packed: gzip"),
            ("gzip, gzip", &gzip(&packed), 415, "send the body as it is, or packed: gzip"),
            ("unheard-of", body, 415, "send the body as it is, or packed: gzip"),
        ] {
            let answer = of(encoding, body);
            let told = String::from_utf8_lossy(&answer.bytes);
            assert_eq!(answer.status, status, "{head}, {encoding}: {told}");
            assert!(told.contains(words), "{head}, {encoding}: {told}");
            let tells = answer.head.contains("accept-encoding: gzip\r\n");
            assert_eq!(tells, status == 415, "{head}, {encoding}: {}", answer.head);
            refused += 1;
        }
        let figures = ask(&page, "/metrics");
        let figure = format!("logd_refused_requests_total{{thread=\"1\"}} {refused}\n");
        assert!(figures.contains(&figure), "{head}: {refused} of {figures}");
    }
    daemon.end();
    let entry =
        |time: u8, text| format!("{{\"timestamp\":\"{time}\",\"labels\":{{}},\"line\":{text}}}");
    let (c, d) = ("{\"body\":\"c\"}", "{\"body\":\"d\"}");
    let expected = ["\"a\"", "\"b\"", c, d, &entry(7, "\"e\""), &entry(0, "\"f\"")];
    assert_eq!(cat(&[], directory.path()), expected);
    assert!(cat(&["--dead"], directory.path()).is_empty());
}

/// Lines of bytes are rejected one by one. What has to be decoded is refused as a whole.
#[test]
fn what_is_not_utf_8_is_rejected_or_refused_and_counted_and_the_rest_is_stored() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let flags = ["--http", "127.0.0.1:0"];
        let Some((mut daemon, address)) = start(engine, directory.path(), &flags) else { continue };
        let page = daemon.line();
        let answer = send(address, "POST /ingest", b"[1]\n\"\xff\"\n[2]\n");
        let rejected = json!([{"line": 2, "reason": "utf8"}]);
        assert_eq!((answer.status, &answer.body["rejected"]), (200, &rejected), "{engine}");
        let body =
            b"{\"index\":{\"_index\":\"x\"}}\n\"\xfe\"\n{\"index\":{\"_index\":\"x\"}}\n[3]\n";
        let answer = send(address, "POST /_bulk", body);
        let error = json!({"type": "document_parsing_exception", "reason": "utf8"});
        let items = json!([
            {"index": {"_index": "x", "status": 400, "error": error}},
            {"index": {"_index": "x", "result": "created", "status": 201}},
        ]);
        assert_eq!((answer.status, &answer.body["items"]), (200, &items), "{engine}");
        for (head, body, words) in [
            (
                "POST /_bulk",
                &b"{\"index\":{\"_index\":\"\xff\"}}\n[4]\n"[..],
                "line 1: expected an action",
            ),
            (OTLP_PROTOBUF, &logs(&[record(b"4"), record(b"\xff")]), "a string is not UTF-8"),
            (OTLP_JSON, b"{\"resourceLogs\":[],\"x\":\"\xff\"}", "it is not UTF-8"),
            (LOKI_PROTOBUF, &push(&[b"4", b"\xff"]), "a string is not UTF-8"),
            (LOKI_JSON, b"{\"streams\":[],\"x\":\"\xff\"}", "it is not UTF-8"),
        ] {
            let answer = send(address, head, body);
            let told = String::from_utf8_lossy(&answer.bytes);
            assert!(answer.status == 400 && told.contains(words), "{head}: {told}");
        }
        let figures = ask(&page, "/metrics");
        for figure in
            ["accepted_lines_total{thread=\"1\"} 3", "rejected_lines_total{thread=\"1\"} 2"]
        {
            assert!(figures.contains(&format!("logd_{figure}\n")), "{figures}");
        }
        assert!(figures.contains("logd_refused_requests_total{thread=\"1\"} 5\n"), "{figures}");
        daemon.end();
        assert_eq!(cat(&[], directory.path()), ["[1]", "[2]", "[3]"]);
        let dead = cat(&["--dead"], directory.path());
        let letters: Vec<_> = dead
            .iter()
            .map(|letter| {
                let letter: Value = serde_json::from_str(letter).unwrap();
                ["sequence", "reason", "offset", "line_hex"].map(|name| letter[name].clone())
            })
            .collect();
        let expected = json!([[2, "utf8", 1, "22ff22"], [1, "utf8", 1, "22fe22"]]);
        assert_eq!(json!(letters), expected, "{engine}");
    }
}
