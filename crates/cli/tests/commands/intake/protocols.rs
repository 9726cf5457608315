//! `ringwise logd --http-intake` by the protocols of others, from outside: Elasticsearch's `_bulk`, OTLP and Loki.
//!
//! Real clients of these send to it in `crates/cli/tests/clients`.

use std::{net::SocketAddr, path::Path};

use serde_json::{Value, json};

use super::{
    http::{Answer, Client, PORT, start},
    start_at,
};
use crate::{
    harness::daemon::{Daemon, ENGINES, ask, cat},
    intake::gzip,
    logd_page::other_address,
};

/// Sends a request over a connection of its own. `head` is the method, the path and headers.
pub fn send(address: SocketAddr, head: &str, body: &[u8]) -> Answer {
    let (line, headers) = head.split_once('\n').unwrap_or((head, ""));
    let headers: String = headers.lines().map(|header| format!("{header}\r\n")).collect();
    let length = body.len();
    let head = format!("{line} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n{headers}\r\n");
    let mut client = Client::new(address);
    client.send(&[head.as_bytes(), body].concat()).unwrap();
    client.answer().unwrap()
}

/// Kills a daemon and starts another on its directory: what it had said is stored has to be there.
fn kill_and_restart(daemon: Daemon, engine: &str, directory: &Path) -> (Daemon, SocketAddr) {
    daemon.signal("-KILL");
    drop(daemon);
    start(engine, directory, &[]).unwrap()
}

pub const BULK: &str = "POST /_bulk\nContent-Type: application/vnd.elasticsearch+x-ndjson; compatible-with=8\n\
    Accept: application/vnd.elasticsearch+json; compatible-with=8";

#[test]
fn each_item_of_a_bulk_has_its_verdict() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let Some((daemon, address)) = start(engine, directory.path(), &[]) else { continue };
        let body = "{\"create\":{\"_index\":\"logs\",\"_id\":\"a\"}}\n{\"n\": 1}\n\
                    {\"index\":{\"_index\":\"logs\"}}\n{\"n\":}\n\
                    {\"delete\":{\"_index\":\"logs\",\"_id\":\"a\"}}\n\
                    {\"index\":{\"_index\":\"logs\"}}\n{\"n\":2}\n";
        let answer = send(address, BULK, body.as_bytes());
        assert_eq!(answer.status, 200, "{}", answer.head);
        let kind = "content-type: application/vnd.elasticsearch+json;compatible-with=8";
        assert!(answer.head.contains(kind), "{}", answer.head);
        assert!(answer.head.contains("x-elastic-product: elasticsearch"), "{}", answer.head);
        assert_eq!((&answer.body["errors"], answer.body["took"].is_u64()), (&true.into(), true));
        let items = &answer.body["items"];
        let created = json!({"_index": "logs", "_id": "a", "result": "created", "status": 201});
        assert_eq!(items[0], json!({"create": created}));
        let error = json!({"type": "document_parsing_exception", "reason": "syntax"});
        assert_eq!(items[1], json!({"index": {"_index": "logs", "status": 400, "error": error}}));
        assert_eq!(items[2]["delete"]["error"]["type"], "illegal_argument_exception");
        assert_eq!(items[3]["index"]["status"], 201);
        let (daemon, address) = kill_and_restart(daemon, engine, directory.path());
        assert_eq!(cat(&[], directory.path()), ["{\"n\": 1}", "{\"n\":2}"]);
        assert!(cat(&["--dead"], directory.path()).join("\n").contains("{\\\"n\\\":}"));
        // The index in the path, packed, and with another method. More rejected ones than the daemon lists otherwise.
        let body = "{\"index\":{}}\nx\n".repeat(150) + "{\"index\":{}}\n{\"n\":3}\n";
        let head = "PUT /a-b/_bulk?refresh=true\nContent-Encoding: gzip";
        let answer = send(address, head, &gzip(body.as_bytes()));
        let items = answer.body["items"].as_array().unwrap();
        let stored = items.iter().filter(|item| item["index"]["status"] == 201).count();
        assert_eq!((items.len(), stored), (151, 1), "{}", answer.body);
        assert_eq!(items[150]["index"]["_index"], "a-b");
        daemon.end();
        assert_eq!(cat(&[], directory.path()).len(), 3);
    }
}

#[test]
fn clients_of_elasticsearch_are_told_who_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let flags = ["--http", "127.0.0.1:0"];
    let Some((mut daemon, address)) = start("epoll", directory.path(), &flags) else { return };
    let page = daemon.line();
    let answer = send(address, "GET /", b"");
    assert_eq!(answer.status, 200);
    assert!(answer.head.contains("x-elastic-product: elasticsearch"), "{}", answer.head);
    assert!(answer.body["version"]["number"].as_str().unwrap().starts_with("8."));
    assert_eq!(answer.body["tagline"], "You Know, for Search");
    let mut client = Client::new(address);
    client
        .send(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\nGET /_license HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    let answer = client.answer_without_body().unwrap();
    assert!(answer.status == 200 && answer.head.contains("x-elastic-product"), "{}", answer.head);
    assert_eq!(client.answer().unwrap().body["license"]["status"], "active");
    assert_eq!(send(address, "GET /_cluster/health", b"").body["status"], "green");
    // What it has not, it does not claim to have.
    for head in ["PUT /_ilm/policy/x", "GET /_search", "PUT /_index_template/x"] {
        let answer = send(address, head, b"{}");
        assert_eq!(answer.status, 404, "{head}");
        assert_eq!(answer.body["error"]["type"], "resource_not_found_exception", "{head}");
        assert!(answer.head.contains("x-elastic-product"), "{}", answer.head);
    }
    let one = b"{\"index\":{\"_index\":\"a\"}}\n{}\n";
    for (head, body, status, kind) in [
        ("POST /_bulk\nContent-Type: text/plain", &one[..], 406, "media_type_header_exception"),
        ("GET /_bulk", b"", 405, "illegal_argument_exception"),
        ("POST /_bulk", b"", 400, "illegal_argument_exception"),
        ("POST /_bulk", b"{\"index\":{}}\n{}\n", 400, "illegal_argument_exception"),
        ("POST /_bulk", &one[..one.len() - 1], 400, "illegal_argument_exception"),
        ("POST /_bulk\nContent-Encoding: gzip", one, 400, "parse_exception"),
        ("POST /_bulk\nOrigin: http://x", one, 403, "security_exception"),
        ("POST /_bulk\nAuthorization: ApiKey x", one, 401, "security_exception"),
        ("POST /", b"", 405, "illegal_argument_exception"),
    ] {
        let answer = send(address, head, body);
        assert_eq!(answer.status, status, "{head}: {}", answer.body);
        assert_eq!(answer.body["error"]["type"], kind, "{head}");
        assert_eq!(answer.body["status"], status, "{head}");
    }
    let bomb = gzip(&vec![b' '; 64 << 20]);
    assert_eq!(send(address, "POST /_bulk\nContent-Encoding: gzip", &bomb).status, 413);
    let body = b"{\"update\":{\"_index\":\"a\",\"_id\":\"1\"}}\n{\"doc\":{}}\n";
    let answer = send(address, "POST /_bulk", body);
    assert_eq!(answer.body["items"][0]["update"]["status"], 400);
    // Both are counted.
    let figures = ask(&page, "/metrics");
    for figure in ["refused_requests_total{thread=\"1\"} 13", "refused_items_total{thread=\"1\"} 1"]
    {
        assert!(figures.contains(&format!("logd_{figure}\n")), "{figures}");
    }
    daemon.end();
    assert!(cat(&[], directory.path()).is_empty());
}

#[test]
fn tokens_come_as_keys_and_passwords_and_a_full_tenant_sends_later() {
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens");
    let token = "0123456789abcdefghijklmn";
    std::fs::write(&tokens, format!("{token} web\n")).unwrap();
    let flags = ["--tokens", tokens.to_str().unwrap(), "--tenant", "web,quota=100"];
    let store = directory.path().join("store");
    let Some((daemon, address)) = start("epoll", &store, &flags) else { return };
    // `user:0123456789abcdefghijklmn`
    let basic = "dXNlcjowMTIzNDU2Nzg5YWJjZGVmZ2hpamtsbW4=";
    let bulk = b"{\"index\":{\"_index\":\"a\"}}\n{\"n\":\"123456789012345678901234567890\"}\n";
    for credentials in
        [format!("ApiKey {token}"), format!("ApiKey {basic}"), format!("Basic {basic}")]
    {
        let answer = send(address, &format!("POST /_bulk\nAuthorization: {credentials}"), bulk);
        assert_eq!((answer.status, &answer.body["errors"]), (200, &false.into()), "{credentials}");
    }
    assert_eq!(cat(&["--tenant", "web"], &store).len(), 3);
    for (head, body) in [
        ("POST /_bulk\nContent-Type: application/x-ndjson", &bulk[..]),
        (OTLP_JSON, &b"{}"[..]),
        (LOKI_JSON, b"{}"),
        ("POST /ingest", b"{}"),
    ] {
        let answer = send(address, &format!("{head}\nAuthorization: Bearer {token}"), body);
        assert_eq!(answer.status, 429, "{head}");
        assert!(answer.head.contains("retry-after: 5"), "{head}: {}", answer.head);
    }
    daemon.end();
}

#[test]
fn a_token_in_plain_from_elsewhere_is_refused_unless_it_is_permitted() {
    let Some(ip) = other_address() else { return };
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens");
    let token = "0123456789abcdefghijklmn";
    std::fs::write(&tokens, format!("{token} web\n")).unwrap();
    let flags = ["--tokens", tokens.to_str().unwrap(), "--http", "127.0.0.1:0"];
    let store = directory.path().join("store");
    let start = |flags: &[&str]| start_at("0.0.0.0:0", PORT, "epoll", &store, flags).unwrap();
    let (mut daemon, bound) = start(&flags);
    let page = daemon.line();
    let (far, near) =
        (SocketAddr::new(ip, bound.port()), SocketAddr::new([127, 0, 0, 1].into(), bound.port()));
    let words = "tokens are taken by TLS or from this machine (--token-transport)";
    for (head, body, place, told) in [
        ("POST /ingest", &b"[1]"[..], "/error", json!(words)),
        (
            "POST /_bulk",
            b"{\"index\":{\"_index\":\"a\"}}\n[1]\n",
            "/error/type",
            json!("security_exception"),
        ),
        (OTLP_JSON, b"{}", "/code", json!(7)),
        (LOKI_JSON, b"{}", "", Value::Null),
    ] {
        let answer = send(far, &format!("{head}\nAuthorization: Bearer {token}"), body);
        assert_eq!((answer.status, answer.body.pointer(place)), (403, Some(&told)), "{head}");
        assert!(String::from_utf8_lossy(&answer.bytes).contains(words), "{head}");
    }
    let figures = ask(&page, "/metrics");
    assert!(figures.contains("logd_refused_requests_total{thread=\"1\"} 4\n"), "{figures}");
    let with_token = format!("POST /ingest\nAuthorization: Bearer {token}");
    assert_eq!(send(near, &with_token, b"[2]").status, 200);
    // Without one the client only has no tenant.
    assert_eq!(send(far, "POST /ingest", b"[3]").status, 200);
    daemon.end();
    let (daemon, bound) = start(&[&flags[..], &["--token-transport", "any"]].concat());
    let far = SocketAddr::new(ip, bound.port());
    assert_eq!(send(far, &with_token, b"[4]").status, 200);
    daemon.end();
    assert_eq!(cat(&[], &store), ["[2]", "[3]", "[4]"]);
    assert_eq!(cat(&["--tenant", "web"], &store), ["[2]", "[4]"]);
}

pub const LOKI_JSON: &str = "POST /loki/api/v1/push\nContent-Type: application/json";
pub const OTLP_JSON: &str = "POST /v1/logs\nContent-Type: application/json";
pub const OTLP_PROTOBUF: &str = "POST /v1/logs\nContent-Type: application/x-protobuf";

/// A field of protobuf with bytes.
pub fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length > 127 {
        field.push(length as u8 | 128);
        length >>= 7;
    }
    field.push(length as u8);
    field.extend_from_slice(bytes);
    field
}

/// A request with one scope.
pub fn logs(records: &[Vec<u8>]) -> Vec<u8> {
    let records: Vec<u8> = records.iter().flat_map(|record| field(2, record)).collect();
    field(1, &field(2, &records))
}

#[test]
fn log_records_of_otlp_are_lines() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let Some((daemon, address)) = start(engine, directory.path(), &["--max-line", "64k"])
        else {
            continue;
        };
        let text = |text: &str| field(5, &field(1, text.as_bytes()));
        let answer = send(address, OTLP_PROTOBUF, &logs(&[text("one"), text("two")]));
        assert_eq!((answer.status, answer.bytes.len()), (200, 0), "{}", answer.head);
        assert!(answer.head.contains("content-type: application/x-protobuf"), "{}", answer.head);
        let json = r#"{"resourceLogs":[{"resource":{"attributes":[{"key":"a","value":{"intValue":"9007199254740993"}}]},
            "scopeLogs":[{"logRecords":[{"timeUnixNano":"1544712660300000001","body":{"stringValue":"three"}}]}]}]}"#;
        let head = format!("{OTLP_JSON}\nContent-Encoding: gzip");
        let answer = send(address, &head, &gzip(json.as_bytes()));
        assert_eq!((answer.status, &answer.body), (200, &json!({})), "{}", answer.head);
        let (daemon, address) = kill_and_restart(daemon, engine, directory.path());
        let third = "{\"timeUnixNano\":\"1544712660300000001\",\"body\":\"three\",\
                     \"resource\":{\"attributes\":{\"a\":9007199254740993}}}";
        let stored = cat(&[], directory.path());
        assert_eq!(stored, ["{\"body\":\"one\"}", "{\"body\":\"two\"}", third]);
        // Some are rejected, and the others stored.
        let long = text(&"x".repeat(2 << 20));
        let answer = send(address, OTLP_PROTOBUF, &logs(&[text("four"), long, text("five")]));
        assert_eq!(answer.status, 200);
        let told = String::from_utf8_lossy(&answer.bytes);
        assert!(answer.bytes.starts_with(b"\x0a") && told.contains("record 2: too-long"), "{told}");
        let half = r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"\ud800"}},{}]}]}]}"#;
        let answer = send(address, OTLP_JSON, half.as_bytes());
        let partial = &answer.body["partialSuccess"];
        assert_eq!((answer.status, &partial["rejectedLogRecords"]), (200, &"1".into()));
        assert!(
            partial["errorMessage"].as_str().unwrap().contains("record 1: surrogate"),
            "{partial}"
        );
        daemon.end();
        let stored = cat(&[], directory.path());
        assert_eq!(stored[3..], ["{\"body\":\"four\"}", "{\"body\":\"five\"}", "{}"]);
    }
}

#[test]
fn what_is_no_otlp_is_refused_with_a_status() {
    let directory = tempfile::tempdir().unwrap();
    let flags = ["--connection-budget", "1m"];
    let Some((daemon, address)) = start("epoll", directory.path(), &flags) else { return };
    let whole = logs(&[field(5, &field(1, b"text"))]);
    let deep = "{\"arrayValue\":{\"values\":[".repeat(500);
    let deep = format!("{{\"resourceLogs\":[{{\"scopeLogs\":[{{\"logRecords\":[{{\"body\":{deep}");
    // A resource that a million empty records have.
    let wide = [field(1, &field(1, &field(1, &[b'a'; 100]))), field(2, &b"\x12\0".repeat(200_000))];
    for (head, body, status, code) in [
        (OTLP_PROTOBUF, &whole[..whole.len() - 1], 400, 3),
        (OTLP_PROTOBUF, &field(1, &field(2, &field(2, &field(3, b"\xff")))), 400, 3),
        (OTLP_PROTOBUF, b"{}", 400, 3),
        (OTLP_PROTOBUF, &field(1, &wide.concat()), 413, 8),
        (OTLP_JSON, b"{\"resourceLogs\":", 400, 3),
        (OTLP_JSON, b"{\"resourceLogs\":\"\xff\"}", 400, 3),
        (OTLP_JSON, deep.as_bytes(), 400, 3),
        (&format!("{OTLP_JSON}\nContent-Encoding: gzip"), b"{}", 400, 3),
        (&format!("{OTLP_JSON}\nContent-Encoding: zstd"), b"{}", 415, 3),
        (&format!("{OTLP_JSON}\nAuthorization: Bearer x"), b"{}", 401, 16),
        ("GET /v1/logs\nContent-Type: application/json", b"", 405, 12),
    ] {
        let answer = send(address, head, body);
        assert_eq!(answer.status, status, "{head}: {:?}", answer.bytes);
        match head.contains("protobuf") {
            true => assert!(answer.bytes.starts_with(&[8, code, 18]), "{:?}", answer.bytes),
            false => assert_eq!(answer.body["code"], code, "{head}: {}", answer.body),
        }
    }
    assert_eq!(send(address, "POST /v1/logs\nContent-Type: text/plain", b"{}").status, 415);
    daemon.end();
    assert!(cat(&[], directory.path()).is_empty());
}

/// Bytes in the form of snappy, in pieces that are not packed.
pub fn snappy(bytes: &[u8]) -> Vec<u8> {
    let mut packed = field(0, bytes)[1..][..if bytes.len() > 127 { 2 } else { 1 }].to_vec();
    for piece in bytes.chunks(60) {
        packed.push((piece.len() as u8 - 1) << 2);
        packed.extend_from_slice(piece);
    }
    packed
}

#[test]
fn entries_of_loki_are_lines() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let Some((daemon, address)) = start(engine, directory.path(), &["--max-line", "64k"])
        else {
            continue;
        };
        let body = r#"{"streams":[{"stream":{"job":"web"},"values":[["1570818238000000001","a \"b\"",{"trace":"1"}]]}]}"#;
        let answer = send(address, LOKI_JSON, body.as_bytes());
        assert_eq!((answer.status, answer.bytes.len()), (204, 0), "{}", answer.head);
        let push = |seconds: u8| {
            let entry = [field(1, &[8, seconds]), field(2, b"two")].concat();
            snappy(&field(1, &[field(1, b"{job=\"web\"}"), field(2, &entry)].concat()))
        };
        let protobuf = "POST /loki/api/v1/push\nContent-Type: application/x-protobuf";
        assert_eq!(send(address, protobuf, &push(1)).status, 204);
        let head_with_encoding = format!("{protobuf}\nContent-Encoding: snappy");
        assert_eq!(send(address, &head_with_encoding, &push(2)).status, 204);
        let (daemon, address) = kill_and_restart(daemon, engine, directory.path());
        let first = "{\"timestamp\":\"1570818238000000001\",\"labels\":{\"job\":\"web\"},\
                     \"line\":\"a \\\"b\\\"\",\"structuredMetadata\":{\"trace\":\"1\"}}";
        let second = "{\"timestamp\":\"1000000000\",\"labels\":{\"job\":\"web\"},\"line\":\"two\"}";
        let third = "{\"timestamp\":\"2000000000\",\"labels\":{\"job\":\"web\"},\"line\":\"two\"}";
        assert_eq!(cat(&[], directory.path()), [first, second, third]);
        // One is rejected, the other stored.
        let half = r#"{"streams":[{"stream":{},"values":[["1","\udc00"],["2","three"]]}]}"#;
        let answer = send(address, LOKI_JSON, half.as_bytes());
        let told = String::from_utf8(answer.bytes).unwrap();
        assert!(answer.status == 400 && told.contains("entry 1: surrogate"), "{told}");
        assert!(answer.head.contains("content-type: text/plain"), "{}", answer.head);
        for (head, body, status) in [
            (LOKI_JSON, &b"{\"streams\":"[..], 400),
            (LOKI_JSON, b"{\"streams\":\"\xff\"}", 400),
            (protobuf, body.as_bytes(), 400),
            (protobuf, &push(3)[..push(3).len() - 1], 400),
            // It would have four GiB.
            (protobuf, b"\xff\xff\xff\xff\x0f\0", 413),
            (protobuf, &snappy(&field(1, &field(1, b"{job"))), 400),
            ("GET /loki/api/v1/push", b"", 405),
        ] {
            let answer = send(address, head, body);
            assert_eq!(
                answer.status,
                status,
                "{head}: {:?}",
                String::from_utf8_lossy(&answer.bytes)
            );
            assert!(answer.bytes.ends_with(b"\n") && answer.body == Value::Null);
        }
        daemon.end();
        assert_eq!(
            cat(&[], directory.path())[3..],
            ["{\"timestamp\":\"2\",\"labels\":{},\"line\":\"three\"}"]
        );
    }
}
