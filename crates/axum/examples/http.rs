//! Compares axum over a ring's sockets with axum over tokio's: requests/s, and CPU time of the server for each.
//!
//! ```text
//! cargo run --release -p ringwise-axum --example http -- [PAIRS [CONNECTIONS [ROW...]]]
//! ```
//!
//! Each server is a process of its own, with a runtime of two threads. The client is one thread with keep-alive
//! connections, each of which asks again when it has the whole answer. Samples of half a second alternate between
//! the two servers of a row. The first answer of each connection is compared byte by byte; of the others the lengths
//! are. CPU time is that of all threads of the server.
//!
//! A row is named by its first words; without names, all are run.

use std::{
    error::Error,
    io::{BufRead, BufReader, Read, Write},
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::{Body, Bytes},
    http::header,
    response::{IntoResponse, Response},
    routing::get,
    serve::ListenerExt,
};
use futures_util::stream::unfold;
use ringwise::{
    BackendChoice, Builder,
    net::{ListenOptions, TcpListener},
};
use ringwise_axum::RingListener;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::oneshot,
};

#[path = "files.rs"]
#[allow(dead_code, reason = "the example's own main")]
mod files;

type Failure = Box<dyn Error + Send + Sync>;

const SIZES: [usize; 3] = [1 << 10, 64 << 10, 1 << 20];
const SAMPLE: Duration = Duration::from_millis(500);
const HEAD_BYTES_MAX: usize = 4096;

/// Two servers that answer with the same bodies.
struct Row {
    name: &'static str,
    base: &'static str,
    other: &'static str,
}

const ROWS: [Row; 3] = [
    Row { name: "io_uring", base: "tokio", other: "uring" },
    Row { name: "classic syscalls", base: "tokio", other: "classic" },
    Row { name: "files, over tokio's sockets", base: "tokio-files", other: "ring-files" },
];

/// What an answer took.
#[derive(Clone, Copy)]
struct Sample {
    per_second: f64,
    cpu_us: f64,
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, name, directory] = &arguments[..]
        && flag == "--serve"
    {
        return serve(name, directory.into());
    }
    let number =
        |at: usize, default: usize| arguments.get(at).map_or(Ok(default), |text| text.parse());
    let (pairs, connections) = (number(0, 7)?, number(1, 16)?);
    let chosen = arguments.get(2..).unwrap_or_default();
    let directory = tempfile::tempdir()?;
    for size in SIZES {
        std::fs::write(directory.path().join(size.to_string()), body(size))?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    println!("{pairs} pairs of samples, {connections} connections; medians (min..max)");
    println!("{:<28} {:>8}  {:<22} {:<22}", "", "body", "requests/s", "CPU time per request");
    for row in &ROWS {
        if !chosen.is_empty() && !chosen.iter().any(|name| row.name.starts_with(name.as_str())) {
            continue;
        }
        let servers =
            [row.base, row.other].map(|name| Server::start(name, directory.path().into()));
        let [base, other] = servers;
        let servers = [base?, other?];
        for size in SIZES {
            let pairs = runtime.block_on(compare(&servers, size, pairs, connections))?;
            report(row, size, &pairs);
        }
    }
    Ok(())
}

/// The body of this size: no two places near each other look the same.
fn body(size: usize) -> Vec<u8> {
    let byte = |at: usize| (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0];
    (0..size).map(byte).collect()
}

// The servers.

/// Serves until the other process closes this one's standard input.
fn serve(name: &str, directory: PathBuf) -> Result<(), Failure> {
    let (end, ended) = oneshot::channel();
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        end.send(())
    });
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        tokio::select! {
            // A task, so that this thread only waits.
            served = tokio::spawn(serve_on(name.to_owned(), directory)) => served?,
            _ = ended => Ok(()),
        }
    })
}

async fn serve_on(name: String, directory: PathBuf) -> Result<(), Failure> {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let backend = match &*name {
        "uring" => BackendChoice::Uring,
        "classic" => BackendChoice::Classic,
        _ => {
            let listener = tokio::net::TcpListener::bind(any).await?;
            tell(listener.local_addr()?)?;
            let router = match &*name {
                "tokio" => bodies(),
                "tokio-files" => files_by_tokio(directory),
                _ => {
                    let ring = Builder::default().build_ring()?;
                    files::router(files::Site { ring, directory })
                }
            };
            let listener = listener.tap_io(|stream| stream.set_nodelay(true).unwrap_or_default());
            return Ok(axum::serve(listener, router).await?);
        }
    };
    let ring = Builder::default().backend(backend).build_ring()?;
    let listener = TcpListener::bind(&ring, &any, &ListenOptions::default())?;
    tell(listener.local_address()?)?;
    let listener = RingListener::new(listener)
        .tap_io(|stream| stream.get_ref().set_nodelay(true).unwrap_or_default());
    Ok(axum::serve(listener, bodies()).await?)
}

fn tell(address: SocketAddr) -> Result<(), Failure> {
    let mut out = std::io::stdout();
    writeln!(out, "{address}")?;
    Ok(out.flush()?)
}

/// Bodies in memory.
fn bodies() -> Router {
    SIZES.iter().fold(Router::new(), |router, &size| {
        let body = Bytes::from(body(size));
        router.route(&format!("/{size}"), get(|| async move { body }))
    })
}

/// Bodies in files that tokio's pool of threads reads, as much at a time as a ring does.
fn files_by_tokio(directory: PathBuf) -> Router {
    SIZES.iter().fold(Router::new(), |router, &size| {
        let path = directory.join(size.to_string());
        router.route(&format!("/{size}"), get(|| file_by_tokio(path)))
    })
}

async fn file_by_tokio(path: PathBuf) -> Response {
    let file = tokio::fs::File::open(path).await.expect("it was made before");
    let len = file.metadata().await.expect("of an open file").len();
    let chunks = unfold(file, |mut file| async move {
        let mut bytes = Vec::with_capacity(files::CHUNK);
        match file.read_buf(&mut bytes).await {
            Ok(0) => None,
            result => Some((result.map(|_| Bytes::from(bytes)), file)),
        }
    });
    ([(header::CONTENT_LENGTH, len)], Body::from_stream(chunks)).into_response()
}

/// A server in a process of its own.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start(name: &str, directory: PathBuf) -> Result<Server, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--serve", name])
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let out = child.stdout.as_mut().expect("it is piped");
        BufReader::new(out).read_line(&mut line)?;
        let address =
            line.trim().parse().map_err(|_| format!("{name}: the server did not start"))?;
        Ok(Server { child, address })
    }

    /// The CPU time of its threads, those of the kernel for its ring among them.
    fn cpu(&self) -> Result<Duration, Failure> {
        let mut total = 0;
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let text = std::fs::read_to_string(thread?.path().join("schedstat"))?;
            total += text.split(' ').next().unwrap_or_default().parse::<u64>()?;
        }
        Ok(Duration::from_nanos(total))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

// The client.

/// Takes pairs of samples. Every other pair begins with the other server.
async fn compare(
    servers: &[Server; 2],
    size: usize,
    pairs: usize,
    connections: usize,
) -> Result<Vec<[Sample; 2]>, Failure> {
    let mut samples = Vec::new();
    for pair in 0..=pairs {
        let mut both = [Sample { per_second: 0.0, cpu_us: 0.0 }; 2];
        for which in [pair % 2, 1 - pair % 2] {
            both[which] = measure(&servers[which], size, connections).await?;
        }
        // The first pair warms both up.
        if pair > 0 {
            samples.push(both);
        }
    }
    Ok(samples)
}

async fn measure(server: &Server, size: usize, connections: usize) -> Result<Sample, Failure> {
    let mut clients = Vec::new();
    for _ in 0..connections {
        clients.push(Client::connect(server.address, size).await?);
    }
    let (begin, cpu) = (Instant::now(), server.cpu()?);
    let until = begin + SAMPLE;
    let tasks: Vec<_> =
        clients.into_iter().map(|client| tokio::spawn(client.ask_until(until))).collect();
    let mut count = 0;
    for task in tasks {
        count += task.await??;
    }
    let (wall, cpu) = (begin.elapsed(), server.cpu()?.saturating_sub(cpu));
    let count = f64::from(count);
    Ok(Sample { per_second: count / wall.as_secs_f64(), cpu_us: cpu.as_secs_f64() * 1e6 / count })
}

/// A connection that stays.
struct Client {
    stream: TcpStream,
    request: String,
    size: usize,
    buffer: Vec<u8>,
}

impl Client {
    /// Connects, asks once and compares the whole body.
    async fn connect(address: SocketAddr, size: usize) -> Result<Client, Failure> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let request = format!("GET /{size} HTTP/1.1\r\nhost: {address}\r\n\r\n");
        let mut client = Client { stream, request, size, buffer: vec![0; 256 << 10] };
        let mut received = Vec::new();
        client.ask(|part| received.extend_from_slice(part)).await?;
        if received == body(size) { Ok(client) } else { Err("wrong bytes".into()) }
    }

    async fn ask_until(mut self, until: Instant) -> Result<u32, Failure> {
        let mut count = 0;
        while Instant::now() < until {
            self.ask(|_| ()).await?;
            count += 1;
        }
        Ok(count)
    }

    /// Asks, and hands out the body in parts.
    async fn ask(&mut self, mut part: impl FnMut(&[u8])) -> Result<(), Failure> {
        self.stream.write_all(self.request.as_bytes()).await?;
        let mut filled = 0;
        let head = loop {
            let count = self.stream.read(&mut self.buffer[filled..]).await?;
            filled += count;
            let end = self.buffer[..filled.min(HEAD_BYTES_MAX)]
                .windows(4)
                .position(|window| window == b"\r\n\r\n");
            match end {
                Some(end) => break end + 4,
                None if count == 0 || filled >= HEAD_BYTES_MAX => return Err("no answer".into()),
                None => {}
            }
        };
        let text = std::str::from_utf8(&self.buffer[..head])?.to_ascii_lowercase();
        if !text.starts_with("http/1.1 200") || !text.contains(&self.length_header()) {
            return Err(text.into());
        }
        part(&self.buffer[head..filled]);
        let mut left = self.size.checked_sub(filled - head).ok_or("too many bytes")?;
        while left > 0 {
            let room = left.min(self.buffer.len());
            let count = self.stream.read(&mut self.buffer[..room]).await?;
            if count == 0 {
                return Err("the answer ends early".into());
            }
            part(&self.buffer[..count]);
            left -= count;
        }
        Ok(())
    }

    fn length_header(&self) -> String {
        format!("\r\ncontent-length: {}\r\n", self.size)
    }
}

// The figures.

fn report(row: &Row, size: usize, pairs: &[[Sample; 2]]) {
    let rate = spread(pairs, |[base, other]| other.per_second / base.per_second);
    let cpu = spread(pairs, |[base, other]| other.cpu_us / base.cpu_us);
    println!("{:<28} {:>8}  {rate:<22} {cpu:<22}", row.name, size);
    for (at, name) in [row.base, row.other].into_iter().enumerate() {
        let rate = middle(pairs.iter().map(|pair| pair[at].per_second));
        let cpu = middle(pairs.iter().map(|pair| pair[at].cpu_us));
        println!("  {name:<26} {size:>8}  {rate:>8.0} /s            {cpu:>8.1} us");
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

fn middle(values: impl Iterator<Item = f64>) -> f64 {
    let values = sorted(values);
    values[values.len() / 2]
}

fn spread(pairs: &[[Sample; 2]], ratio: impl Fn(&[Sample; 2]) -> f64) -> String {
    let values = sorted(pairs.iter().map(ratio));
    let (least, most) = (values[0], values[values.len() - 1]);
    format!("{:.2} ({least:.2}..{most:.2})", values[values.len() / 2])
}
