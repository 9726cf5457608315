//! Servers that speak the daemon's side of the protocol, as far as a test needs.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use ringwise_log::{Builder, Client, Event};
use rustix::net::{self, AddressFamily, SocketType};

/// How long anything is waited for.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A server that does this with each connection; counts them.
pub struct Server {
    pub address: SocketAddr,
    pub connections: Arc<AtomicUsize>,
}

impl Server {
    pub fn new(serve: impl Fn(usize, TcpStream) + Send + Sync + 'static) -> Server {
        Server::on(TcpListener::bind("127.0.0.1:0").unwrap(), serve)
    }

    pub fn on(
        listener: TcpListener,
        serve: impl Fn(usize, TcpStream) + Send + Sync + 'static,
    ) -> Server {
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let (serve, counted) = (Arc::new(serve), connections.clone());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (serve, stream) = (serve.clone(), stream.unwrap());
                let number = counted.fetch_add(1, Ordering::Relaxed);
                thread::spawn(move || serve(number, stream));
            }
        });
        Server { address, connections }
    }

    /// A client that comes again soon.
    pub fn client(&self) -> Builder {
        client(self.address)
    }

    pub fn count(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

fn client(address: SocketAddr) -> Builder {
    Client::builder(address.to_string())
        .name("web")
        .pauses(Duration::from_millis(20), Duration::from_millis(100))
}

/// Takes lines, and acknowledges each one.
pub fn acknowledge(stream: TcpStream, stored: u64) -> Vec<String> {
    let mut answers = stream.try_clone().unwrap();
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let greeting = lines.next().unwrap_or_default();
    let _ = match greeting.contains("name=") {
        true => writeln!(answers, "H 1 durable {stored}"),
        false => writeln!(answers, "H 1 durable"),
    };
    let mut taken = Vec::new();
    for line in lines {
        taken.push(line);
        let _ = writeln!(answers, "A {}", stored + taken.len() as u64);
    }
    taken
}

/// An address where nobody listens. No other process or test gets it.
pub struct ClosedPort {
    bound: OwnedFd,
    pub address: SocketAddr,
}

impl ClosedPort {
    pub fn new() -> ClosedPort {
        let bound = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        net::bind(&bound, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = net::getsockname(&bound).unwrap().try_into().unwrap();
        ClosedPort { bound, address }
    }

    /// A client that finds nobody, but comes again soon.
    pub fn client(&self) -> Builder {
        client(self.address)
    }

    /// Somebody listens there from now on.
    pub fn open(self) -> TcpListener {
        net::listen(&self.bound, 16).unwrap();
        TcpListener::from(self.bound)
    }
}

/// Collects what a client tells, as text.
#[derive(Clone, Default)]
pub struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    pub fn listener(&self) -> impl Fn(&Event) + Send + Sync + 'static {
        let told = self.0.clone();
        move |event| told.lock().unwrap().push(format!("{event:?}"))
    }

    /// Waits until something with this word was told; gives it.
    #[track_caller]
    pub fn wait_for(&self, word: &str) -> String {
        let mut found = None;
        wait_until(word, || {
            found = self.all().into_iter().find(|event| event.contains(word));
            found.is_some()
        });
        found.unwrap()
    }

    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// Waits for something that is to happen soon.
#[track_caller]
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < until, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}
