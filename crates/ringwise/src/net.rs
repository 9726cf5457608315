//! Sockets: making, binding and configuring them, their addresses, and streams on a ring.
//!
//! The types here ([`TcpListener`], [`TcpStream`], [`UdpSocket`] and their kin) are sockets on a
//! [`Ring`]: from any task, and safe to drop half-way. [`Buffered`] is what programs
//! written for tokio's or futures' streams run over.
//!
//! The functions are for a [`Local`](crate::Local): what is done at once by an ordinary system call
//! is a function and no operation; what waits (accept, connect, receive, send) is an
//! [`Operation`](crate::Operation). They know no loop. Sockets are closed on exec.
//!
//! # Room for those that wait
//!
//! A receive, a send or an accept that waits takes no room from operations that work. While half of
//! the ring's completion queue is free, it waits in the ring; beyond that it waits in an epoll set
//! beside the ring and costs a little more. Descriptors and memory bound how many can wait, and not
//! [`entries`](crate::Builder::entries). [`RingStats::waiting_for_room`](crate::RingStats) tells
//! how many operations wait for room; with sockets alone that is 0.
//!
//! # Examples
//!
//! A byte there and back, on one loop:
//!
//! ```
//! use ringwise::{Local, Operation, net};
//!
//! let mut local = Local::new()?;
//! let listener = net::listen_tcp(&"127.0.0.1:0".parse()?, &net::ListenOptions::default())?;
//! let address = net::local_address(&listener)?;
//! local.push(Operation::accept(&listener), 0)?;
//!
//! let client = net::tcp_socket(&address)?;
//! local.run(Operation::connect(&client, address))?.result()?;
//! local.submit_and_wait(1)?;
//! let server = local.next_completion().unwrap().into_descriptor()?;
//!
//! local.run(Operation::send_all(&client, b"x".to_vec()))?.result()?;
//! let done = local.run(Operation::recv(&server, vec![0; 16]))?;
//! assert_eq!(done.result()?, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod address;
mod buffered;
mod connection;
mod flowing;
mod lane;
mod listening;
mod tcp;
mod udp;
mod unix;

use std::{net::SocketAddr, os::fd::OwnedFd, path::Path, time::Duration};

use rustix::{
    io::Errno as RawErrno,
    net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt},
};

pub use address::Address;
pub use buffered::{Buffered, Stream};
pub use flowing::Receiving;
pub use tcp::{TcpIncoming, TcpListener, TcpStream};
pub use udp::{Datagram, UdpSocket};
pub use unix::{UnixIncoming, UnixListener, UnixStream};

use crate::{
    descriptor::Descriptor,
    error::{Errno, Error},
    op::Opcode,
    ring::Ring,
    sim::{Simulation, socket},
};

/// How a listener is made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListenOptions {
    /// Several listeners may be bound to one address, and the kernel spreads connections over
    /// them (`SO_REUSEPORT`): one for each thread.
    pub reuse_port: bool,
    /// Connections that wait to be accepted; the kernel cuts it at `net.core.somaxconn`.
    pub backlog: u32,
    /// An IPv6 listener takes no IPv4 connections. Without it that is the system's choice.
    pub only_v6: bool,
}

impl Default for ListenOptions {
    fn default() -> ListenOptions {
        ListenOptions { reuse_port: false, backlog: 4096, only_v6: false }
    }
}

impl ListenOptions {
    /// The same, with `reuse_port`.
    #[must_use]
    pub fn reuse_port(mut self, reuse_port: bool) -> ListenOptions {
        self.reuse_port = reuse_port;
        self
    }

    /// The same, with `backlog`.
    #[must_use]
    pub fn backlog(mut self, backlog: u32) -> ListenOptions {
        self.backlog = backlog;
        self
    }

    /// The same, with `only_v6`.
    #[must_use]
    pub fn only_v6(mut self, only_v6: bool) -> ListenOptions {
        self.only_v6 = only_v6;
        self
    }
}

/// When a connection whose other end says nothing is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// Silence after which the other end is asked; whole seconds, at least one.
    pub idle: Duration,
    /// Time between two questions; whole seconds, at least one.
    pub interval: Duration,
    /// Questions without an answer after which the connection is given up.
    pub count: u32,
}

/// Which direction of a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// Nothing more is received.
    Read,
    /// Nothing more is sent: the other end reads its end once it has read what was sent.
    Write,
    /// Both.
    Both,
}

/// A TCP socket that listens on `address`; port 0 picks one, which
/// [`local_address`] tells. `SO_REUSEADDR` is set, so that a server can start again at once.
///
/// # Errors
///
/// What socket(2), bind(2) and listen(2) report: `EADDRINUSE` where somebody listens already,
/// `EADDRNOTAVAIL` where the address is not this machine's.
pub fn listen_tcp(address: &SocketAddr, options: &ListenOptions) -> Result<Descriptor, Error> {
    let socket = stream_socket(family_of(address))?;
    told(sockopt::set_socket_reuseaddr(&socket, true), None)?;
    if options.reuse_port {
        told(sockopt::set_socket_reuseport(&socket, true), None)?;
    }
    if options.only_v6 && address.is_ipv6() {
        told(sockopt::set_ipv6_v6only(&socket, true), None)?;
    }
    let named = Address::Ip(*address);
    told(bind(&socket, address), Some(&named))?;
    told(listen(&socket, backlog(options)), Some(&named))?;
    Ok(Descriptor::of_socket(socket))
}

/// A Unix stream socket that listens on `path`, where no file may be.
///
/// # Errors
///
/// What socket(2), bind(2) and listen(2) report: `EADDRINUSE` where a file is, `EINVAL` for a path
/// that is too long (over 108 bytes).
pub fn listen_unix(path: impl AsRef<Path>) -> Result<Descriptor, Error> {
    let named = Address::from(path.as_ref());
    let raw = named.to_raw().ok_or_else(|| unaddressable(&named))?;
    let socket = stream_socket(AddressFamily::UNIX)?;
    told(bind(&socket, &raw), Some(&named))?;
    told(listen(&socket, backlog(&ListenOptions::default())), Some(&named))?;
    Ok(Descriptor::of_socket(socket))
}

/// A TCP socket that can be [connected](crate::Operation::connect) to addresses of the family of
/// `address`; for a Unix address, a Unix stream socket.
///
/// # Errors
///
/// What socket(2) reports, the limit of open descriptors among it.
pub fn tcp_socket<'a>(address: impl Into<AddressRef<'a>>) -> Result<Descriptor, Error> {
    let family = match address.into() {
        AddressRef::Ip(address) => family_of(address),
        AddressRef::Any(Address::Ip(address)) => family_of(address),
        AddressRef::Any(_) => AddressFamily::UNIX,
    };
    stream_socket(family).map(Descriptor::of_socket)
}

/// A borrowed address of either kind.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum AddressRef<'a> {
    /// Of the internet.
    Ip(&'a SocketAddr),
    /// Of either kind.
    Any(&'a Address),
}

impl<'a> From<&'a SocketAddr> for AddressRef<'a> {
    fn from(address: &'a SocketAddr) -> AddressRef<'a> {
        AddressRef::Ip(address)
    }
}

impl<'a> From<&'a Address> for AddressRef<'a> {
    fn from(address: &'a Address) -> AddressRef<'a> {
        AddressRef::Any(address)
    }
}

/// A Unix stream socket that can be [connected](crate::Operation::connect).
///
/// # Errors
///
/// What socket(2) reports.
pub fn unix_socket() -> Result<Descriptor, Error> {
    stream_socket(AddressFamily::UNIX).map(Descriptor::of_socket)
}

/// A UDP socket bound to `address`; port 0 picks one.
///
/// # Errors
///
/// What socket(2) and bind(2) report.
pub fn udp_bind(address: &SocketAddr) -> Result<Descriptor, Error> {
    let made = socket_with(family_of(address), SocketType::DGRAM, SocketFlags::CLOEXEC, None);
    let socket = told(made, None)?;
    told(bind(&socket, address), Some(&Address::Ip(*address)))?;
    Ok(Descriptor::of_socket(socket))
}

/// The address that a socket is bound to.
///
/// # Errors
///
/// What getsockname(2) reports; `EAFNOSUPPORT` for an address of another kind.
pub fn local_address(socket: &Descriptor) -> Result<Address, Error> {
    if let Some(simulated) = socket::find(socket) {
        return of_simulation(simulated.local_address());
    }
    let raw = told(rustix::net::getsockname(socket), None)?;
    Address::from_raw(&raw).ok_or_else(|| failed(libc::EAFNOSUPPORT, None))
}

/// The address that a socket is connected to.
///
/// # Errors
///
/// What getpeername(2) reports, `ENOTCONN` among it; `EAFNOSUPPORT` for an address of another
/// kind.
pub fn peer_address(socket: &Descriptor) -> Result<Address, Error> {
    if let Some(simulated) = socket::find(socket) {
        return of_simulation(simulated.peer_address());
    }
    let raw = told(rustix::net::getpeername(socket), None)?;
    match raw {
        Some(raw) => Address::from_raw(&raw).ok_or_else(|| failed(libc::EAFNOSUPPORT, None)),
        None => Ok(Address::UnixUnnamed),
    }
}

/// Sends what is written at once, instead of waiting to fill a segment (`TCP_NODELAY`). Wanted
/// wherever an answer is waited for.
///
/// # Errors
///
/// What setsockopt(2) reports.
pub fn set_nodelay(socket: &Descriptor, nodelay: bool) -> Result<(), Error> {
    if socket::find(socket).is_some() {
        // There every segment is sent at once.
        return Ok(());
    }
    told(sockopt::set_tcp_nodelay(socket, nodelay), None)
}

/// Gives a silent connection up when its other end no longer answers; `None` turns that off.
///
/// # Errors
///
/// What setsockopt(2) reports: `EINVAL` for times below a second, among it.
pub fn set_keepalive(socket: &Descriptor, keepalive: Option<KeepAlive>) -> Result<(), Error> {
    if let Some(simulated) = socket::find(socket) {
        return of_simulation(simulated.set_keepalive(keepalive));
    }
    if let Some(KeepAlive { idle, interval, count }) = keepalive {
        told(sockopt::set_tcp_keepidle(socket, idle), None)?;
        told(sockopt::set_tcp_keepintvl(socket, interval), None)?;
        told(sockopt::set_tcp_keepcnt(socket, count), None)?;
    }
    told(sockopt::set_socket_keepalive(socket, keepalive.is_some()), None)
}

/// How long data may be without an acknowledgement before the connection is given up
/// (`TCP_USER_TIMEOUT`), in whole milliseconds; zero leaves it to the system.
///
/// # Errors
///
/// What setsockopt(2) reports.
pub fn set_user_timeout(socket: &Descriptor, timeout: Duration) -> Result<(), Error> {
    if let Some(simulated) = socket::find(socket) {
        return of_simulation(simulated.set_user_timeout(timeout));
    }
    let milliseconds = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
    told(sockopt::set_tcp_user_timeout(socket, milliseconds), None)
}

/// Asks for a send buffer of `bytes`; the kernel doubles that for its own use, and bounds it by
/// `net.core.wmem_max` (socket(7)).
///
/// # Errors
///
/// What setsockopt(2) reports.
pub fn set_send_buffer(socket: &Descriptor, bytes: usize) -> Result<(), Error> {
    if let Some(simulated) = socket::find(socket) {
        return of_simulation(simulated.set_send_buffer(bytes));
    }
    told(sockopt::set_socket_send_buffer_size(socket, bytes.min(i32::MAX as usize)), None)
}

/// Asks for a receive buffer of `bytes`, as [`set_send_buffer`]. What is accepted inherits it from
/// its listener.
///
/// # Errors
///
/// What setsockopt(2) reports.
pub fn set_receive_buffer(socket: &Descriptor, bytes: usize) -> Result<(), Error> {
    if let Some(simulated) = socket::find(socket) {
        return of_simulation(simulated.set_receive_buffer(bytes));
    }
    told(sockopt::set_socket_recv_buffer_size(socket, bytes.min(i32::MAX as usize)), None)
}

/// Closes the connection hard: what is not sent is lost, and the other end is told by a reset
/// when the descriptor closes (`SO_LINGER` of zero).
///
/// # Errors
///
/// What setsockopt(2) reports.
pub fn set_reset_on_close(socket: &Descriptor) -> Result<(), Error> {
    if let Some(simulated) = socket::find(socket) {
        return of_simulation(simulated.set_reset_on_close());
    }
    told(sockopt::set_socket_linger(socket, Some(Duration::ZERO)), None)
}

/// Ends one direction of a connection, or both. Operations in flight on the socket end by that.
///
/// Tells the other end at once. A descriptor that is only dropped can be held by a worker of the
/// kernel until the loop enters the kernel again (docs/kernels.md).
///
/// # Errors
///
/// What shutdown(2) reports, `ENOTCONN` among it.
pub fn shutdown(socket: &Descriptor, which: Shutdown) -> Result<(), Error> {
    if let Some(simulated) = socket::find(socket) {
        return of_simulation(simulated.shutdown(which));
    }
    // A call and not an operation: a ring hands it to a worker thread always (io_uring/net.c).
    let which = match which {
        Shutdown::Read => rustix::net::Shutdown::Read,
        Shutdown::Write => rustix::net::Shutdown::Write,
        Shutdown::Both => rustix::net::Shutdown::Both,
    };
    told(rustix::net::shutdown(socket, which), None)
}

fn stream_socket(family: AddressFamily) -> Result<OwnedFd, Error> {
    told(socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None), None)
}

fn family_of(address: &SocketAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

fn backlog(options: &ListenOptions) -> i32 {
    i32::try_from(options.backlog).unwrap_or(i32::MAX)
}

/// Makes a socket where a ring's sockets are: on its simulated machine, if it has one.
fn made_for(
    ring: &Ring,
    address: &Address,
    simulated: impl FnOnce(&Simulation) -> Result<Descriptor, i32>,
    real: impl FnOnce() -> Result<Descriptor, Error>,
) -> Result<Descriptor, Error> {
    match ring.simulation() {
        Some(simulation) => simulated(simulation).map_err(|errno| failed(errno, Some(address))),
        None => real(),
    }
}

/// What a simulated socket answers.
fn of_simulation<T>(result: Result<T, i32>) -> Result<T, Error> {
    result.map_err(|errno| failed(errno, None))
}

fn told<T>(result: Result<T, RawErrno>, address: Option<&Address>) -> Result<T, Error> {
    result.map_err(|errno| failed(errno.raw_os_error(), address))
}

fn failed(errno: i32, address: Option<&Address>) -> Error {
    let error = Error::new(Opcode::Socket, Errno(errno));
    match address {
        Some(address) => error.on_address(address),
        None => error,
    }
}

/// A socket of the standard library's could not be taken over.
fn not_configured(error: &std::io::Error) -> Error {
    failed(error.raw_os_error().unwrap_or(libc::EIO), None)
}

fn unaddressable(address: &Address) -> Error {
    failed(libc::EINVAL, Some(address)).advise("the path of a Unix socket has at most 108 bytes")
}
