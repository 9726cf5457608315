//! How sockets are made and ended, as values. No kernel in it.

use std::time::Duration;

/// How a listener is made.
///
/// # Examples
///
/// ```
/// use ringwise::net::{ListenOptions, listen_tcp};
///
/// let options = ListenOptions::default().backlog(128).reuse_port(true);
/// let listener = listen_tcp(&"127.0.0.1:0".parse()?, &options)?;
/// # drop(listener);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListenOptions {
    /// Lets several listeners share one address (`SO_REUSEPORT`). The kernel spreads connections over
    /// them, for example one listener for each thread.
    pub reuse_port: bool,
    /// How many connections may wait to be accepted; 4096 unless set. The kernel limits it by
    /// `net.core.somaxconn`.
    pub backlog: u32,
    /// Lets an IPv6 listener refuse IPv4 connections. The system decides if it is not set.
    pub only_v6: bool,
}

impl Default for ListenOptions {
    fn default() -> ListenOptions {
        ListenOptions { reuse_port: false, backlog: 4096, only_v6: false }
    }
}

impl ListenOptions {
    /// Sets `reuse_port`.
    #[must_use]
    pub fn reuse_port(mut self, reuse_port: bool) -> ListenOptions {
        self.reuse_port = reuse_port;
        self
    }

    /// Sets `backlog`.
    #[must_use]
    pub fn backlog(mut self, backlog: u32) -> ListenOptions {
        self.backlog = backlog;
        self
    }

    /// Sets `only_v6`.
    #[must_use]
    pub fn only_v6(mut self, only_v6: bool) -> ListenOptions {
        self.only_v6 = only_v6;
        self
    }
}

/// When the kernel closes a connection whose other end is silent.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use ringwise::net::{self, KeepAlive};
///
/// let socket = net::tcp_socket(&"127.0.0.1:80".parse::<std::net::SocketAddr>()?)?;
/// let (idle, interval) = (Duration::from_secs(30), Duration::from_secs(5));
/// // The connection ends after 30 + 3 * 5 seconds of silence.
/// net::set_keepalive(&socket, Some(KeepAlive { idle, interval, count: 3 }))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// Silence before the first probe; more than zero, and rounded up to whole seconds.
    pub idle: Duration,
    /// Time between two probes; more than zero, and rounded up to whole seconds.
    pub interval: Duration,
    /// How many probes without an answer close the connection.
    pub count: u32,
}

/// Which direction of a connection ends.
///
/// # Examples
///
/// ```
/// use ringwise::{Ring, net::{Shutdown, UnixStream}};
///
/// # futures::executor::block_on(async {
/// # let ring = Ring::new()?;
/// # let (client, server) = std::os::unix::net::UnixStream::pair()?;
/// # let (client, server) = (UnixStream::from_std(&ring, client)?, UnixStream::from_std(&ring, server)?);
/// client.send_all("all").await.into_result()?;
/// client.shutdown(Shutdown::Write).await?;
/// let (count, buffer) = server.recv(vec![0; 64]).await.into_result()?;
/// assert_eq!(&buffer[..count], b"all");
/// let (count, _) = server.recv(buffer).await.into_result()?;
/// assert_eq!(count, 0, "the end");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// Nothing more is received.
    Read,
    /// Nothing more is sent. The other end reads what was sent, and then the end.
    Write,
    /// Both.
    Both,
}
