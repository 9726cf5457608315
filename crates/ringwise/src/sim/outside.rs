//! The network around a simulated program, from outside: who connects to it, whom it connects to.
//!
//! What happens here is no operation: no fault befalls it, it takes no time, and it is in no trace.
//! Calls give what there is and [`WouldBlock`](io::ErrorKind::WouldBlock) where there is nothing, so
//! that a test on one thread goes the same way each time; see
//! [`set_patience`](Outside::set_patience) for a test with several.

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

/// The sockets of a simulated program. What [`net`](crate::net) tells of descriptors and sets on them
/// holds for these too, and a [`Ring`](crate::Ring) on a simulation makes its sockets there.
impl Simulation {
    /// As [`net::listen_tcp`](crate::net::listen_tcp), on the simulated network.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE` where somebody listens already, `EMFILE` at the limit of descriptors.
    pub fn listen_tcp(
        &self,
        address: &SocketAddr,
        options: &ListenOptions,
    ) -> io::Result<Descriptor> {
        told(self.listen_at(&Address::Ip(*address), options))
    }

    /// As [`net::listen_unix`](crate::net::listen_unix), on the simulated network. Its names are not
    /// those of the simulated disk.
    ///
    /// # Errors
    ///
    /// As for [`listen_tcp`](Self::listen_tcp).
    pub fn listen_unix(&self, path: impl AsRef<Path>) -> io::Result<Descriptor> {
        told(self.listen_at(&Address::from(path.as_ref()), &ListenOptions::default()))
    }

    /// As [`net::tcp_socket`](crate::net::tcp_socket), on the simulated network.
    ///
    /// # Errors
    ///
    /// `EMFILE` at the limit of descriptors.
    pub fn stream_socket(&self, address: impl Into<Address>) -> io::Result<Descriptor> {
        told(self.stream_for(&address.into()))
    }

    /// As [`net::udp_bind`](crate::net::udp_bind), on the simulated network. A datagram is lost where
    /// nobody is bound, or the receiver has 256 that it did not take.
    ///
    /// # Errors
    ///
    /// As for [`listen_tcp`](Self::listen_tcp).
    pub fn udp_bind(&self, address: &SocketAddr) -> io::Result<Descriptor> {
        told(self.datagrams_at(&Address::Ip(*address)))
    }

    /// A TCP connection between the program and the outside.
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
    /// `ECONNREFUSED`, or `ENOENT` for a Unix address, where the program does not listen;
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) where its backlog is full.
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

    /// Listens outside, for the program to connect to.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE` where somebody listens already.
    pub fn listen_outside(&self, address: impl Into<Address>) -> io::Result<OutsideListener> {
        let backlog = ListenOptions::default().backlog as usize;
        let listened = self.lock().network.listen(&address.into(), backlog, false);
        let endpoint = listened.map_err(io::Error::from_raw_os_error)?;
        Ok(OutsideListener(End::new(self, endpoint)))
    }

    /// A socket for datagrams outside.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE` where somebody is bound to the address.
    pub fn datagrams_outside(&self, address: &SocketAddr) -> io::Result<OutsideDatagrams> {
        let opened = self.lock().network.open_datagrams(&Address::Ip(*address));
        let endpoint = opened.map_err(io::Error::from_raw_os_error)?;
        Ok(OutsideDatagrams(End::new(self, endpoint)))
    }
}

/// An endpoint that is held outside, and closes with this.
struct End {
    simulation: Simulation,
    endpoint: EndpointId,
    patience: Duration,
}

impl End {
    fn new(simulation: &Simulation, endpoint: EndpointId) -> End {
        End { simulation: simulation.clone(), endpoint, patience: Duration::ZERO }
    }

    /// Does something with the endpoint; where it is not ready, waits as long as its patience goes.
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
            let waited = self.simulation.0.stirred.wait_timeout(world, left);
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

/// What all sockets outside can do.
macro_rules! outside {
    ($($name:ident)*) => { $(
        impl $name {
            /// Makes calls wait for so much real time if they find nothing or no room, so that another
            /// thread can bring something about. Zero unless set.
            pub fn set_patience(&mut self, patience: Duration) {
                self.0.patience = patience;
            }

            /// The address of this socket.
            ///
            /// # Errors
            ///
            /// `EIO` if it exists no more.
            pub fn local_address(&self) -> io::Result<Address> {
                told(self.0.simulation.lock().network.local_address(self.0.endpoint))
            }
        }
    )* };
}

outside! { Outside OutsideListener OutsideDatagrams }

/// The other end of one of the program's connections. It reads what the program sends, and the program
/// receives what it writes. When it is dropped it closes, by a reset if something was not read.
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

    /// Ends directions of the connection.
    ///
    /// # Errors
    ///
    /// `ENOTCONN`.
    pub fn shutdown(&self, which: Shutdown) -> io::Result<()> {
        let (reads, writes) = (which != Shutdown::Write, which != Shutdown::Read);
        self.0.call(|world, at| world.network.shut(at, reads, writes).map_err(Stop::Failed))
    }

    /// Ends the connection by a reset.
    pub fn reset(self) {
        let mut world = self.0.simulation.lock();
        world.network.reset(self.0.endpoint);
        world.settle_network();
    }

    /// Vanishes: the program is not told, and nothing goes through any more. Only time tells.
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
    /// Takes a connection.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) where there is none.
    pub fn accept(&self) -> io::Result<Outside> {
        let accepted = self.0.call(|world, at| world.network.accept(at))?;
        Ok(Outside::new(&self.0.simulation, accepted))
    }
}

/// A socket for datagrams outside.
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
    /// `EMSGSIZE` for one that is too long.
    pub fn send_to(&self, bytes: &[u8], to: impl Into<Address>) -> io::Result<usize> {
        let to = to.into();
        self.0.call(|world, at| world.network.send(at, bytes, Some(&to)))
    }

    /// Takes a datagram, and tells whence it came.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) where there is none.
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
