//! Load on `ringwise logd --http-intake`: requests with lines over connections that are kept, as fast as they are answered.
//!
//! ```sh
//! ringwise logd --dir DIR --http-intake 127.0.0.1:9002
//! cargo run --release -p ringwise-logd --example http_load -- 127.0.0.1:9002 64 100 150 10
//! ```
//!
//! The arguments are the address, the connections, the lines of a request, the bytes of a line and the seconds. Every
//! answer has to say that all lines are stored. It prints lines a second and the latencies of requests. With 0 seconds
//! it opens the connections, sends one request over each, and waits for Enter.

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};

type Failure = Box<dyn Error + Send + Sync>;

/// Sends a request and waits for its answer.
async fn store(stream: &mut TcpStream, request: &[u8], expected: &str) -> Result<(), Failure> {
    stream.write_all(request).await?;
    let mut answer = Vec::new();
    // The answer is short, and ends with the line feed of its JSON.
    while !answer.ends_with(b"}\n") {
        if stream.read_buf(&mut answer).await? == 0 {
            return Err("the daemon closed the connection".into());
        }
    }
    let answer = String::from_utf8(answer)?;
    match answer.starts_with("HTTP/1.1 200") && answer.contains(expected) {
        true => Ok(()),
        false => Err(answer.into()),
    }
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, numbers @ ..] = &arguments[..] else { return Err("see the first lines".into()) };
    let numbers: Vec<usize> = numbers.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
    let &[connections, lines, bytes, seconds] = &numbers[..] else {
        return Err("see the first lines".into());
    };
    let filler = "x".repeat(bytes.saturating_sub(9));
    let body = format!("{{\"a\":\"{filler}\"}}\n").repeat(lines);
    let head =
        format!("POST /ingest HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
    let request: Arc<[u8]> = [head.as_bytes(), body.as_bytes()].concat().into();
    let expected: Arc<str> = format!("{{\"lines\":{lines},\"rejected_lines\":0,").into();
    let is_over = Arc::new(AtomicBool::new(false));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut latencies: Vec<Duration> = runtime.block_on(async {
        let mut clients = JoinSet::new();
        for _ in 0..connections {
            let mut stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            if seconds == 0 {
                store(&mut stream, &request, &expected).await?;
            }
            let (request, expected, is_over) = (request.clone(), expected.clone(), is_over.clone());
            clients.spawn(async move {
                let mut latencies = Vec::new();
                while seconds > 0 && !is_over.load(Ordering::Relaxed) {
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
    latencies.sort_unstable();
    let of = |share: f64| latencies.get((latencies.len() as f64 * share) as usize).copied();
    if let (Some(p50), Some(p99)) = (of(0.5), of(0.99)) {
        let stored = latencies.len() * lines / seconds;
        println!(
            "{stored} lines/s in requests of {lines}; a request takes {p50:.1?} at the median, {p99:.1?} at p99"
        );
    }
    Ok(())
}
