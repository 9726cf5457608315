//! Making, binding and configuring sockets: one syscall each, made at once, or a call of the simulated machine.

use std::{net::SocketAddr, os::fd::OwnedFd, path::Path, time::Duration};

use rustix::{
    io::Errno as RawErrno,
    net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt},
};

use super::{Address, AddressRef, KeepAlive, ListenOptions, Shutdown};
use crate::{
    descriptor::Descriptor,
    error::{Errno, Error},
    op::Opcode,
    ring::Ring,
    sim::{
        Simulation,
        socket::{self, SimulatedSocket},
    },
};

/// Makes a TCP socket that listens on `address`. Port 0 picks a free port, which [`local_address`] gives.
/// `SO_REUSEADDR` is set, so that a server can start again at once.
///
/// # Errors
///
/// What socket(2), bind(2) and listen(2) report: `EADDRINUSE` if another socket listens there,
/// `EADDRNOTAVAIL` if no interface of this machine has the address.
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

/// Makes a Unix stream socket that listens on `path`.
///
/// # Errors
///
/// What socket(2), bind(2) and listen(2) report: `EADDRINUSE` if the file exists, `EINVAL` if the path has
/// more than 108 bytes.
pub fn listen_unix(path: impl AsRef<Path>) -> Result<Descriptor, Error> {
    let named = Address::from(path.as_ref());
    let raw = named.to_raw().ok_or_else(|| unaddressable(&named))?;
    let socket = stream_socket(AddressFamily::UNIX)?;
    told(bind(&socket, &raw), Some(&named))?;
    told(listen(&socket, backlog(&ListenOptions::default())), Some(&named))?;
    Ok(Descriptor::of_socket(socket))
}

/// Makes a TCP socket that can be [connected](crate::Operation::connect) to addresses of the family of
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

/// Makes a Unix stream socket that can be [connected](crate::Operation::connect).
///
/// # Errors
///
/// What socket(2) reports.
pub fn unix_socket() -> Result<Descriptor, Error> {
    stream_socket(AddressFamily::UNIX).map(Descriptor::of_socket)
}

/// Makes a UDP socket that is bound to `address`. Port 0 picks a free port.
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

/// Gives the address that a socket is bound to.
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

/// Gives the address that a socket is connected to.
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

/// Sends data at once instead of waiting to fill a segment (`TCP_NODELAY`). Set it if the other end's
/// answer is waited for.
///
/// # Errors
///
/// What setsockopt(2) reports.
pub fn set_nodelay(socket: &Descriptor, nodelay: bool) -> Result<(), Error> {
    if socket::find(socket).is_some() {
        // The simulation sends every segment at once.
        return Ok(());
    }
    told(sockopt::set_tcp_nodelay(socket, nodelay), None)
}

/// Closes a silent connection whose other end no longer answers. `None` turns that off.
///
/// # Errors
///
/// What setsockopt(2) reports: `EINVAL` for a time or count of zero, or one beyond the kernel's limit.
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

/// Sets how long sent data may stay unacknowledged before the kernel closes the connection
/// (`TCP_USER_TIMEOUT`), in whole milliseconds. Zero means the system's default.
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

/// Asks for a send buffer of `bytes`. The kernel doubles the size for its own use, and limits it by
/// `net.core.wmem_max` (socket(7)).
///
/// # Errors
///
/// What setsockopt(2) reports.
pub fn set_send_buffer(socket: &Descriptor, bytes: usize) -> Result<(), Error> {
    on(
        socket,
        |simulated| simulated.set_send_buffer(bytes),
        || sockopt::set_socket_send_buffer_size(socket, bytes.min(i32::MAX as usize)),
    )
}

/// Asks for a receive buffer of `bytes`, as [`set_send_buffer`] does. An accepted connection inherits the
/// size from its listener.
///
/// # Errors
///
/// What setsockopt(2) reports.
pub fn set_receive_buffer(socket: &Descriptor, bytes: usize) -> Result<(), Error> {
    on(
        socket,
        |simulated| simulated.set_receive_buffer(bytes),
        || sockopt::set_socket_recv_buffer_size(socket, bytes.min(i32::MAX as usize)),
    )
}

/// Makes a close discard unsent data and send a reset (`SO_LINGER` of zero).
///
/// # Errors
///
/// What setsockopt(2) reports.
pub fn set_reset_on_close(socket: &Descriptor) -> Result<(), Error> {
    on(
        socket,
        |simulated| simulated.set_reset_on_close(),
        || sockopt::set_socket_linger(socket, Some(Duration::ZERO)),
    )
}

/// Ends one direction of a connection, or both, and tells the other end at once. Operations in flight on
/// the socket end too.
///
/// If a descriptor is only dropped, a worker thread of the kernel can hold it until the loop enters the
/// kernel again (docs/reference/kernels.md).
///
/// # Errors
///
/// What shutdown(2) reports, `ENOTCONN` among it.
pub fn shutdown(socket: &Descriptor, which: Shutdown) -> Result<(), Error> {
    if let Some(simulated) = socket::find(socket) {
        return of_simulation(simulated.shutdown(which));
    }
    // A ring would always hand this to a worker thread (io_uring/net.c), so it is not an operation.
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
pub(super) fn made_for(
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

/// Asks a simulated socket, or the kernel.
fn on<T>(
    socket: &Descriptor,
    simulated: impl FnOnce(SimulatedSocket) -> Result<T, i32>,
    real: impl FnOnce() -> Result<T, RawErrno>,
) -> Result<T, Error> {
    match socket::find(socket) {
        Some(found) => of_simulation(simulated(found)),
        None => told(real(), None),
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

/// The internet address of a socket that has one.
pub(super) fn ip(address: Address) -> Result<SocketAddr, Error> {
    address.ip().ok_or_else(|| failed(libc::EAFNOSUPPORT, None))
}

/// The error of a standard library's socket that could not be set to blocking.
pub(super) fn not_configured(error: &std::io::Error) -> Error {
    failed(error.raw_os_error().unwrap_or(libc::EIO), None)
}

fn unaddressable(address: &Address) -> Error {
    failed(libc::EINVAL, Some(address)).advise("the path of a Unix socket has at most 108 bytes")
}
