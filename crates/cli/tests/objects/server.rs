//! A server of S3 on loopback, and a gate before it that can be closed: the server keeps objects in memory, so it cannot
//! be ended in the middle.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::harness::daemon::signal;

/// How long the server may take to start.
const PATIENCE: Duration = Duration::from_secs(60);

/// moto's server, which is killed at the end.
pub struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    /// Starts it with a bucket.
    pub fn start(bucket: &str) -> Server {
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = held.local_addr().unwrap();
        drop(held);
        let program = std::env::var("RINGWISE_MOTO").unwrap_or_else(|_| "moto_server".to_owned());
        let mut command = Command::new(program);
        command.args(["-H", "127.0.0.1", "-p", &address.port().to_string()]);
        let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = quiet.spawn().expect("moto_server: pip install 'moto[server]'");
        let server = Server { child, address };
        let until = Instant::now() + PATIENCE;
        while TcpStream::connect(address).is_err() {
            assert!(Instant::now() < until, "moto_server does not listen");
            thread::sleep(Duration::from_millis(20));
        }
        let made = server.ask("PUT", &format!("/{bucket}"));
        assert!(made.starts_with("HTTP/1.1 200"), "{made}");
        server
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Asks without a signature, which moto does not need.
    pub fn ask(&self, method: &str, path: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n", self.address);
        write!(stream, "{head}Content-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Lets it hang for a while.
    pub fn hang(&self, time: Duration) {
        signal(&self.child, "-STOP");
        thread::sleep(time);
        signal(&self.child, "-CONT");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Passes connections on while it is open.
pub struct Gate {
    pub address: SocketAddr,
    is_open: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Gate {
    pub fn before(server: SocketAddr) -> Gate {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (is_open, streams) = (Arc::new(AtomicBool::new(true)), Arc::<Mutex<Vec<_>>>::default());
        let (passes, own) = (is_open.clone(), streams.clone());
        thread::spawn(move || {
            for near in listener.incoming() {
                let mut streams = own.lock().unwrap();
                if !passes.load(Ordering::Relaxed) {
                    continue;
                }
                let (Ok(near), Ok(far)) = (near, TcpStream::connect(server)) else { continue };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    thread::spawn(move || {
                        let _ = io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Write);
                    });
                }
                streams.extend([near, far]);
            }
        });
        Gate { address, is_open, streams }
    }

    /// Ends all connections and takes none for a while.
    pub fn close(&self, time: Duration) {
        self.is_open.store(false, Ordering::Relaxed);
        for stream in self.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        thread::sleep(time);
        self.is_open.store(true, Ordering::Relaxed);
    }
}
