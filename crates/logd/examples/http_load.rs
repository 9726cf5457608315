//! Load on `ringwise logd --http-intake`: requests with lines over connections that are kept, as fast as they are answered.
//!
//! ```sh
//! ringwise logd --dir DIR --http-intake 127.0.0.1:9002
//! cargo run --release -p ringwise-logd --example http_load -- 127.0.0.1:9002 64 100 150 10 bulk
//! ```
//!
//! The arguments are the address, the connections, the lines of a request, the bytes of a line or record as it is sent,
//! the seconds, and the protocol: `ingest`, `bulk`, `otlp` (protobuf), `otlp-json`, `loki` (JSON). Every answer has to say
//! that all lines are stored. It prints lines a second and the latencies of requests. With 0 seconds it opens the
//! connections, sends one request over each, and waits for Enter.

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use prost::encoding::{bytes, fixed64, int32, string};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};

type Failure = Box<dyn Error + Send + Sync>;

/// The time of the records of a request. The first one has another in each request, or Loki's push would be the same.
const TIME_NS: &str = "1795568523000000000";

/// Gives the first record that has a time in digits another one.
fn renew(request: &mut [u8], number: u64) {
    if let Some(at) = memchr::memmem::find(request, TIME_NS.as_bytes()) {
        let time = format!("{:019}", 1_000_000_000_000_000_000 + number);
        request[at..at + time.len()].copy_from_slice(time.as_bytes());
    }
}

/// Sends a request and waits for its answer.
async fn store(stream: &mut TcpStream, request: &[u8], expected: &str) -> Result<(), Failure> {
    stream.write_all(request).await?;
    let mut answer = Vec::new();
    while !is_whole(&answer) {
        if stream.read_buf(&mut answer).await? == 0 {
            return Err("the daemon closed the connection".into());
        }
    }
    let answer = String::from_utf8_lossy(&answer);
    match answer.starts_with("HTTP/1.1 20") && answer.contains(expected) {
        true => Ok(()),
        false => Err(answer.into()),
    }
}

/// Whether an answer has its head, and a body as long as that says.
fn is_whole(answer: &[u8]) -> bool {
    let Some(end) = memchr::memmem::find(answer, b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&answer[..end]);
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length = length.map_or(0, |length| length.parse().expect("the length is a number"));
    answer.len() >= end + 4 + length
}

/// The path with the type of its bodies, a body, and what an answer has if all of it is stored.
fn body(protocol: &str, lines: usize, bytes: usize) -> Option<(&'static str, Vec<u8>, String)> {
    let filler = |beside: usize| "x".repeat(bytes.saturating_sub(beside));
    Some(match protocol {
        "ingest" => {
            let body = format!("{{\"a\":\"{}\"}}\n", filler(9)).repeat(lines);
            let expected = format!("{{\"lines\":{lines},\"rejected_lines\":0,");
            ("/ingest HTTP/1.1\r\nContent-Type: application/x-ndjson", body.into(), expected)
        }
        "bulk" => {
            let action = "{\"index\":{\"_index\":\"logs\"}}";
            let body = format!("{action}\n{{\"a\":\"{}\"}}\n", filler(9)).repeat(lines);
            let path = "/_bulk HTTP/1.1\r\nContent-Type: application/x-ndjson";
            (path, body.into(), "\"errors\":false".to_owned())
        }
        "otlp" => {
            let path = "/v1/logs HTTP/1.1\r\nContent-Type: application/x-protobuf";
            (path, protobuf(lines, &filler(62)), "content-length: 0".to_owned())
        }
        "otlp-json" => {
            let filler = filler(165);
            let record = format!(
                "{{\"timeUnixNano\":\"{TIME_NS}\",\"severityNumber\":9,\"severityText\":\"INFO\",\
                 \"body\":{{\"stringValue\":\"{filler}\"}},\
                 \"attributes\":[{{\"key\":\"order\",\"value\":{{\"intValue\":\"42\"}}}}]}}"
            );
            let records = vec![record; lines].join(",");
            let body = format!(
                "{{\"resourceLogs\":[{{\"resource\":{{\"attributes\":[{{\"key\":\"service.name\",\
                 \"value\":{{\"stringValue\":\"shop\"}}}}]}},\"scopeLogs\":[{{\"logRecords\":[{records}]}}]}}]}}"
            );
            let path = "/v1/logs HTTP/1.1\r\nContent-Type: application/json";
            (path, body.into(), "\r\n\r\n{}".to_owned())
        }
        "loki" => {
            let value = format!("[\"{TIME_NS}\",\"{}\"]", filler(26));
            let values = vec![value; lines].join(",");
            let body = format!(
                "{{\"streams\":[{{\"stream\":{{\"job\":\"shop\"}},\"values\":[{values}]}}]}}"
            );
            let path = "/loki/api/v1/push HTTP/1.1\r\nContent-Type: application/json";
            (path, body.into(), "204".to_owned())
        }
        _ => return None,
    })
}

/// Appends a field.
type Field<'a> = &'a dyn Fn(&mut Vec<u8>);

/// A field that is a message.
fn part(number: u32, fields: &[Field<'_>]) -> Vec<u8> {
    let (mut message, mut field) = (Vec::new(), Vec::new());
    fields.iter().for_each(|field| field(&mut message));
    bytes::encode(number, &message, &mut field);
    field
}

/// A request of OTLP: a time, a severity, a body and an attribute in each record.
fn protobuf(records: usize, filler: &str) -> Vec<u8> {
    let text = |number, text: &str| {
        let text = text.to_owned();
        move |out: &mut Vec<u8>| string::encode(number, &text, out)
    };
    let body = part(5, &[&text(1, filler)]);
    let integer = part(2, &[&|out| int32::encode(3, &42, out)]);
    let attribute = part(6, &[&text(1, "order"), &|out| out.extend_from_slice(&integer)]);
    let record = part(
        2,
        &[
            &|out| fixed64::encode(1, &1_795_568_523_000_000_000, out),
            &|out| int32::encode(2, &9, out),
            &text(3, "INFO"),
            &|out| out.extend_from_slice(&body),
            &|out| out.extend_from_slice(&attribute),
        ],
    );
    let scope = part(2, &[&|out| out.extend(record.repeat(records))]);
    let value = part(2, &[&text(1, "shop")]);
    let name = part(1, &[&text(1, "service.name"), &|out| out.extend_from_slice(&value)]);
    let resource = part(1, &[&|out| out.extend_from_slice(&name)]);
    part(1, &[&|out| out.extend_from_slice(&resource), &|out| out.extend_from_slice(&scope)])
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, numbers @ .., protocol] = &arguments[..] else {
        return Err("see the first lines".into());
    };
    let numbers: Vec<usize> = numbers.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
    let &[connections, lines, bytes, seconds] = &numbers[..] else {
        return Err("see the first lines".into());
    };
    let (path, body, expected) = body(protocol, lines, bytes).ok_or("no such protocol")?;
    let head = format!("POST {path}\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
    let request: Arc<[u8]> = [head.as_bytes(), &body].concat().into();
    let expected: Arc<str> = expected.into();
    let (is_over, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut latencies: Vec<Duration> = runtime.block_on(async {
        let mut clients = JoinSet::new();
        for _ in 0..connections {
            let mut stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            if seconds == 0 {
                store(&mut stream, &request, &expected).await?;
            }
            let (expected, is_over, sent) = (expected.clone(), is_over.clone(), sent.clone());
            let whole = request.clone();
            clients.spawn(async move {
                let mut latencies = Vec::new();
                while seconds > 0 && !is_over.load(Ordering::Relaxed) {
                    let mut request = whole.to_vec();
                    renew(&mut request, sent.fetch_add(1, Ordering::Relaxed));
                    let begun = Instant::now();
                    store(&mut stream, &request, &expected).await?;
                    latencies.push(begun.elapsed());
                }
                Ok::<_, Failure>((latencies, stream))
            });
        }
        if seconds > 0 {
            tokio::time::sleep(Duration::from_secs(seconds as u64)).await;
            is_over.store(true, Ordering::Relaxed);
        }
        let mut all = Vec::new();
        let mut open = Vec::new();
        while let Some(done) = clients.join_next().await {
            let (latencies, stream) = done??;
            all.extend(latencies);
            open.push(stream);
        }
        if seconds == 0 {
            println!("{} connections are open; Enter ends", open.len());
            std::io::stdin().read_line(&mut String::new())?;
        }
        Ok::<_, Failure>(all)
    })?;
    tell(&mut latencies, lines, seconds, body.len());
    Ok(())
}

/// Prints what was stored, and how long requests took.
fn tell(latencies: &mut [Duration], lines: usize, seconds: usize, bytes: usize) {
    latencies.sort_unstable();
    let of = |share: f64| latencies.get((latencies.len() as f64 * share) as usize).copied();
    if let (Some(p50), Some(p99)) = (of(0.5), of(0.99)) {
        let stored = latencies.len() * lines / seconds;
        println!(
            "{stored} lines/s in requests of {lines}, {bytes} bytes each; a request takes {p50:.1?} at the median, {p99:.1?} at p99"
        );
    }
}
