//! The network around a simulated program: sockets outside that it connects to, or that connect to
//! it.
//!
//! Calls here are not operations: they have no faults, take no time and are not in the trace. A
//! call returns [`WouldBlock`](io::ErrorKind::WouldBlock) if there is nothing to take, so that a
//! test on one thread runs the same way each time. A test with several threads can use
//! [`set_patience`](Outside::set_patience).

use std::{
    fmt,
    io::{self, Read, Write},
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant},
};

use crate::{
    descriptor::Descriptor,
    net::{Address, ListenOptions, Shutdown},
    sim::{
        Simulation,
        network::{Answer, EndpointId, Stop},
        world::World,
    },
};

/// The sockets of a simulated program. The functions of [`net`](crate::net) that ask or configure a
/// descriptor work on these too, and a [`Ring`](crate::Ring) on a simulation makes its sockets on
/// the simulated network.
impl Simulation {
    /// Works like [`net::listen_tcp`](crate::net::listen_tcp), on the simulated network.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE` if the address is in use, `EMFILE` at the limit of descriptors.
    pub fn listen_tcp(
        &self,
        address: &SocketAddr,
        options: &ListenOptions,
    ) -> io::Result<Descriptor> {
        told(self.listen_at(&Address::Ip(*address), options))
    }

    /// Works like [`net::listen_unix`](crate::net::listen_unix), on the simulated network. The
    /// names of these sockets are not on the simulated disk.
    ///
    /// # Errors
    ///
    /// As for [`listen_tcp`](Self::listen_tcp).
    pub fn listen_unix(&self, path: impl AsRef<Path>) -> io::Result<Descriptor> {
        told(self.listen_at(&Address::from(path.as_ref()), &ListenOptions::default()))
    }

    /// Works like [`net::tcp_socket`](crate::net::tcp_socket), on the simulated network.
    ///
    /// # Errors
    ///
    /// `EMFILE` at the limit of descriptors.
    pub fn stream_socket(&self, address: impl Into<Address>) -> io::Result<Descriptor> {
        told(self.stream_for(&address.into()))
    }

    /// Works like [`net::udp_bind`](crate::net::udp_bind), on the simulated network. A datagram is
    /// lost if no socket is bound to its destination, or if 256 datagrams already wait there.
    ///
    /// # Errors
    ///
    /// As for [`listen_tcp`](Self::listen_tcp).
    pub fn udp_bind(&self, address: &SocketAddr) -> io::Result<Descriptor> {
        told(self.datagrams_at(&Address::Ip(*address)))
    }

    /// Makes a TCP connection between the program and the outside.
    ///
    /// # Errors
    ///
    /// `EMFILE` at the limit of descriptors.
    pub fn connection(&self) -> io::Result<(Descriptor, Outside)> {
        let mut other = None;
        let own = told(self.open_endpoint(|network| {
            let (own, outside) = network.pair();
            other = Some(outside);
            Ok(own)
        }))?;
        let other = other.expect("made with its own end");
        Ok((own, Outside::new(self, other)))
    }

    /// Connects to the program from outside.
    ///
    /// # Errors
    ///
    /// `ECONNREFUSED`, or `ENOENT` for a Unix address, if the program does not listen;
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if its backlog is full.
    pub fn connect(&self, address: impl Into<Address>) -> io::Result<Outside> {
        let address = address.into();
        let mut world = self.lock();
        world.notice_closed(true);
        let endpoint = world.network.open_stream(address.ip().is_none());
        let connected = world.network.connect(endpoint, &address);
        if connected.is_err() {
            world.network.close(endpoint);
        }
        world.settle_network();
        drop(world);
        connected.map_err(failed)?;
        Ok(Outside::new(self, endpoint))
    }

    /// Makes a listener outside, for the program to connect to.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE` if the address is in use.
    pub fn listen_outside(&self, address: impl Into<Address>) -> io::Result<OutsideListener> {
        let backlog = ListenOptions::default().backlog as usize;
        let listened = self.lock().network.listen(&address.into(), backlog, false);
        let endpoint = listened.map_err(io::Error::from_raw_os_error)?;
        Ok(OutsideListener(End::new(self, endpoint)))
    }

    /// Makes a datagram socket outside.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE` if the address is in use.
    pub fn datagrams_outside(&self, address: &SocketAddr) -> io::Result<OutsideDatagrams> {
        let opened = self.lock().network.open_datagrams(&Address::Ip(*address));
        let endpoint = opened.map_err(io::Error::from_raw_os_error)?;
        Ok(OutsideDatagrams(End::new(self, endpoint)))
    }
}

/// The longest wait before closed descriptors are looked for again, because close(2) tells nobody.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// An endpoint held outside. Dropping this closes the endpoint.
struct End {
    simulation: Simulation,
    endpoint: EndpointId,
    patience: Duration,
}

impl End {
    fn new(simulation: &Simulation, endpoint: EndpointId) -> End {
        End { simulation: simulation.clone(), endpoint, patience: Duration::ZERO }
    }

    /// Calls `make` on the endpoint. If the endpoint is not ready, waits at most for its patience.
    fn call<T>(&self, mut make: impl FnMut(&mut World, EndpointId) -> Answer<T>) -> io::Result<T> {
        let end = Instant::now() + self.patience;
        let mut world = self.simulation.lock();
        loop {
            world.notice_closed(true);
            let answer = make(&mut world, self.endpoint);
            world.settle_network();
            let left = end.saturating_duration_since(Instant::now());
            if answer.as_ref().err() != Some(&Stop::NotReady) || left.is_zero() {
                return answer.map_err(failed);
            }
            let waited = self.simulation.0.stirred.wait_timeout(world, left.min(LOOK_AGAIN));
            (world, _) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let mut world = self.simulation.lock();
        world.network.close(self.endpoint);
        world.settle_network();
    }
}

impl fmt::Debug for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "socket {}", self.endpoint)
    }
}

/// Defines the methods of all sockets outside.
macro_rules! outside {
    ($($name:ident)*) => { $(
        impl $name {
            /// Sets how long, in real time, a call waits for another thread to act if it finds
            /// nothing to take or no room. The default is zero.
            pub fn set_patience(&mut self, patience: Duration) {
                self.0.patience = patience;
            }

            /// Returns the address of this socket.
            ///
            /// # Errors
            ///
            /// `EIO` if the socket no longer exists.
            pub fn local_address(&self) -> io::Result<Address> {
                told(self.0.simulation.lock().network.local_address(self.0.endpoint))
            }
        }
    )* };
}

outside! { Outside OutsideListener OutsideDatagrams }

/// The outside end of one of the program's connections. It reads the bytes that the program sends,
/// and the program receives the bytes that it writes. Dropping it closes the connection, with a
/// reset if some bytes were not read.
///
/// # Examples
///
/// ```
/// use std::io::{Read, Write};
/// use ringwise::{Local, Operation, sim::Simulation};
///
/// let simulation = Simulation::new(7);
/// let mut local = Local::builder().simulation(&simulation).build()?;
/// let (socket, mut outside) = simulation.connection()?;
/// outside.write_all(b"question")?;
/// assert_eq!(local.run(Operation::recv(&socket, vec![0; 64]))?.result()?, 8);
/// local.run(Operation::send_all(&socket, "answer"))?.result()?;
/// let mut answer = [0; 6];
/// outside.read_exact(&mut answer)?;
/// assert_eq!(&answer, b"answer");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Outside(End);

impl Outside {
    fn new(simulation: &Simulation, endpoint: EndpointId) -> Outside {
        Outside(End::new(simulation, endpoint))
    }

    /// Shuts down directions of the connection.
    ///
    /// # Errors
    ///
    /// `ENOTCONN`.
    pub fn shutdown(&self, which: Shutdown) -> io::Result<()> {
        let (reads, writes) = (which != Shutdown::Write, which != Shutdown::Read);
        self.0.call(|world, at| world.network.shut(at, reads, writes).map_err(Stop::Failed))
    }

    /// Ends the connection with a reset.
    pub fn reset(self) {
        let mut world = self.0.simulation.lock();
        world.network.reset(self.0.endpoint);
        world.settle_network();
    }

    /// Vanishes without telling the program: nothing passes in either direction any more. The
    /// program notices only by a timeout.
    pub fn vanish(self) {
        let mut world = self.0.simulation.lock();
        let other = world.network.stream(self.0.endpoint).ok().and_then(|stream| stream.other());
        if let Some(other) = other {
            world.cut(other);
        }
    }
}

impl Read for Outside {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }
}

impl Write for Outside {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for &Outside {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (bytes, _) = self.0.call(|world, at| world.network.receive(at, buffer.len()))?;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }
}

impl Write for &Outside {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.call(|world, at| world.network.send(at, bytes, None))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A listener outside, which the program connects to.
///
/// # Examples
///
/// ```
/// use ringwise::{Local, Operation, sim::Simulation};
///
/// let simulation = Simulation::new(7);
/// let mut local = Local::builder().simulation(&simulation).build()?;
/// let address: std::net::SocketAddr = "10.0.0.1:80".parse()?;
/// let listener = simulation.listen_outside(address)?;
/// let socket = simulation.stream_socket(address)?;
/// local.run(Operation::connect(&socket, address))?.result()?;
/// let _outside = listener.accept()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct OutsideListener(End);

impl OutsideListener {
    /// Accepts a connection.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is none.
    pub fn accept(&self) -> io::Result<Outside> {
        let accepted = self.0.call(|world, at| world.network.accept(at))?;
        Ok(Outside::new(&self.0.simulation, accepted))
    }
}

/// A datagram socket outside.
///
/// # Examples
///
/// ```
/// use ringwise::{Local, Operation, net, sim::Simulation};
///
/// let simulation = Simulation::new(7);
/// let mut local = Local::builder().simulation(&simulation).build()?;
/// let any = "127.0.0.1:0".parse()?;
/// let (socket, outside) = (simulation.udp_bind(&any)?, simulation.datagrams_outside(&any)?);
/// outside.send_to(b"hello", net::local_address(&socket)?)?;
/// assert_eq!(local.run(Operation::recv_from(&socket, vec![0; 64]))?.result()?, 5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct OutsideDatagrams(End);

impl OutsideDatagrams {
    /// Sends a datagram.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` if the datagram is too long.
    pub fn send_to(&self, bytes: &[u8], to: impl Into<Address>) -> io::Result<usize> {
        let to = to.into();
        self.0.call(|world, at| world.network.send(at, bytes, Some(&to)))
    }

    /// Receives a datagram, and returns it with the sender's address.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is none.
    pub fn recv_from(&self) -> io::Result<(Vec<u8>, Address)> {
        let (bytes, from) = self.0.call(|world, at| world.network.receive(at, usize::MAX))?;
        Ok((bytes, from.unwrap_or(Address::UnixUnnamed)))
    }
}

fn failed(stop: Stop) -> io::Error {
    match stop {
        Stop::NotReady => io::ErrorKind::WouldBlock.into(),
        Stop::Failed(errno) => io::Error::from_raw_os_error(errno),
    }
}

fn told<T>(result: Result<T, i32>) -> io::Result<T> {
    result.map_err(io::Error::from_raw_os_error)
}
