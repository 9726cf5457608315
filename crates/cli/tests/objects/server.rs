//! A server of objects on loopback, and a gate before it that can be closed: the server keeps objects in memory, so it
//! cannot be ended in the middle.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::{
        Arc, LazyLock, Mutex,
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

/// A private key, with which a client of GCS signs its tokens by itself.
static GOOGLE_KEY: LazyLock<String> = LazyLock::new(|| {
    let output = Command::new("openssl").args(["genpkey", "-quiet", "-algorithm", "RSA"]).output();
    let output = output.expect("openssl");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
});

/// What a server speaks. The requests of GCS's XML API are those of S3, so one program is the server of both; it does not
/// check signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    S3,
    Gcs,
    Azure,
}

impl Protocol {
    /// A prefix in the bucket of [`Server::start`].
    pub fn url(self) -> &'static str {
        match self {
            Protocol::S3 => "s3://logs/of/web",
            Protocol::Gcs => "gs://logs/of/web",
            Protocol::Azure => "az://logs/of/web",
        }
    }

    /// A server on this port.
    fn command(self, port: &str) -> Command {
        let (variable, name) = match self {
            Protocol::S3 | Protocol::Gcs => ("RINGWISE_MOTO", "moto_server"),
            Protocol::Azure => ("RINGWISE_AZURITE", "azurite-blob"),
        };
        let mut command = Command::new(std::env::var(variable).unwrap_or_else(|_| name.to_owned()));
        match self {
            Protocol::S3 | Protocol::Gcs => command.args(["-H", "127.0.0.1", "-p", port]),
            Protocol::Azure => command
                .args(["--blobHost", "127.0.0.1", "--inMemoryPersistence", "--silent"])
                .args(["--skipApiVersionCheck", "--disableTelemetry", "--blobPort", port]),
        };
        command
    }

    /// The path of a request that makes a bucket.
    fn bucket(self, name: &str) -> String {
        match self {
            Protocol::S3 | Protocol::Gcs => format!("/{name}"),
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
            Protocol::Gcs => {
                let account = serde_json::json!({
                    "private_key": *GOOGLE_KEY, "private_key_id": "1", "client_email": "logd@example.com",
                    "gcs_base_url": url,
                });
                vec![
                    ("GOOGLE_SERVICE_ACCOUNT_KEY", account.to_string()),
                    ("GOOGLE_ALLOW_HTTP", text("true")),
                    ("GOOGLE_TIMEOUT", text("5s")),
                ]
            }
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

    /// The numbers of parts in which the objects of a bucket were sent.
    pub fn parts(&self, bucket: &str) -> Vec<u64> {
        if self.protocol == Protocol::Azure {
            let listing = self.ask("GET", &(self.protocol.bucket(bucket) + "&comp=list"));
            let blocks = within(&listing, "Name").into_iter().map(|name| {
                let query = format!("comp=blocklist&{AZURE_SIGNATURE}");
                let list = self.ask("GET", &format!("/devstoreaccount1/{bucket}/{name}?{query}"));
                // An object that was sent at once has none.
                1.max(within(&list, "Block").len() as u64)
            });
            return blocks.collect();
        }
        // Entity tags tell it.
        let listing = self.ask("GET", &(self.protocol.bucket(bucket) + "?list-type=2"));
        let tags = within(&listing, "ETag").into_iter().map(|tag| tag.replace("&quot;", ""));
        let count = |tag: String| {
            tag.trim_matches('"').split_once('-').map_or(1, |(_, count)| count.parse().unwrap())
        };
        tags.map(count).collect()
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

/// The texts of the elements of this name in XML.
fn within<'a>(xml: &'a str, name: &str) -> Vec<&'a str> {
    let (start, end) = (format!("<{name}>"), format!("</{name}>"));
    let texts = xml.match_indices(&start).map(|(at, found)| &xml[at + found.len()..]);
    texts.map(|text| text.split(&end).next().unwrap()).collect()
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
