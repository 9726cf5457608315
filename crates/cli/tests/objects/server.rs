//! A server of objects on loopback, and a gate before it that can be closed: the server keeps objects in memory, so it
//! cannot be ended in the middle.

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

/// A shared access signature by the public key of Microsoft's emulator, with which containers can be made until 2099.
const AZURE_SIGNATURE: &str = "sv=2019-12-12&ss=b&srt=sco&sp=rwdlac&se=2099-01-01T00%3A00%3A00Z&spr=https%2Chttp\
     &sig=0inStVod1SiNNw%2FCJ4fRrpJIdRZAadbisT7bZCD4KQs%3D";

/// What a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    S3,
    Azure,
}

impl Protocol {
    /// A prefix in the bucket of [`Server::start`].
    pub fn url(self) -> &'static str {
        match self {
            Protocol::S3 => "s3://logs/of/web",
            Protocol::Azure => "az://logs/of/web",
        }
    }

    /// A server on this port.
    fn command(self, port: &str) -> Command {
        let (variable, name) = match self {
            Protocol::S3 => ("RINGWISE_MOTO", "moto_server"),
            Protocol::Azure => ("RINGWISE_AZURITE", "azurite-blob"),
        };
        let mut command = Command::new(std::env::var(variable).unwrap_or_else(|_| name.to_owned()));
        match self {
            Protocol::S3 => command.args(["-H", "127.0.0.1", "-p", port]),
            Protocol::Azure => command
                .args(["--blobHost", "127.0.0.1", "--inMemoryPersistence", "--silent"])
                .args(["--skipApiVersionCheck", "--disableTelemetry", "--blobPort", port]),
        };
        command
    }

    /// The path of a request that makes a bucket.
    fn bucket(self, name: &str) -> String {
        match self {
            Protocol::S3 => format!("/{name}"),
            Protocol::Azure => {
                format!("/devstoreaccount1/{name}?restype=container&{AZURE_SIGNATURE}")
            }
        }
    }

    /// The environment of a client of the server behind this address.
    pub fn variables(self, server: SocketAddr) -> Vec<(&'static str, String)> {
        let url = format!("http://{server}");
        let text = str::to_owned;
        match self {
            Protocol::S3 => vec![
                ("AWS_ENDPOINT_URL", url),
                ("AWS_ALLOW_HTTP", text("true")),
                ("AWS_ACCESS_KEY_ID", text("key")),
                ("AWS_SECRET_ACCESS_KEY", text("secret")),
                ("AWS_REGION", text("us-east-1")),
                ("AWS_TIMEOUT", text("5s")),
            ],
            Protocol::Azure => vec![
                ("AZURITE_BLOB_STORAGE_URL", url),
                ("AZURE_STORAGE_USE_EMULATOR", text("true")),
                ("AZURE_ALLOW_HTTP", text("true")),
                ("AZURE_TIMEOUT", text("5s")),
            ],
        }
    }
}

/// A server, which is killed at the end.
pub struct Server {
    child: Child,
    address: SocketAddr,
    pub protocol: Protocol,
}

impl Server {
    /// Starts it with a bucket.
    pub fn start(protocol: Protocol, bucket: &str) -> Server {
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = held.local_addr().unwrap();
        drop(held);
        let mut command = protocol.command(&address.port().to_string());
        let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = quiet.spawn().unwrap_or_else(|error| {
            panic!("{:?}: {error}; .ci/scheduled says how to install it", command.get_program())
        });
        let server = Server { child, address, protocol };
        let until = Instant::now() + PATIENCE;
        while TcpStream::connect(address).is_err() {
            assert!(Instant::now() < until, "the server of {protocol:?} does not listen");
            thread::sleep(Duration::from_millis(20));
        }
        let made = server.ask("PUT", &protocol.bucket(bucket));
        assert!(made.starts_with("HTTP/1.1 20"), "{made}");
        server
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Asks without a signature.
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

    /// Ends all connections, and takes none until it is opened.
    pub fn shut(&self) {
        self.is_open.store(false, Ordering::Relaxed);
        for stream in self.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub fn open(&self) {
        self.is_open.store(true, Ordering::Relaxed);
    }
}
