//! The other end of a connection: the standard library's, so that what is tested is not tested by
//! itself, or that of the simulated network.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::{
        fd::OwnedFd,
        unix::net::{UnixListener, UnixStream},
    },
    path::Path,
    time::Duration,
};

use ringwise::{
    Descriptor,
    net::{self, Address, ListenOptions},
    sim::{Outside, OutsideDatagrams, OutsideListener},
};

use crate::loops::{Loop, simulation};

/// Longer than any test waits.
const PATIENCE: Duration = Duration::from_secs(20);

pub enum Peer {
    Tcp(TcpStream),
    Unix(UnixStream),
    Simulated(Outside),
}

pub enum PeerListener {
    Unix(UnixListener),
    Simulated(OutsideListener),
}

pub enum PeerDatagrams {
    Udp(UdpSocket),
    Simulated(OutsideDatagrams),
}

fn any() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

impl From<TcpStream> for Peer {
    fn from(peer: TcpStream) -> Peer {
        peer.set_nodelay(true).unwrap();
        peer.set_read_timeout(Some(PATIENCE)).unwrap();
        Peer::Tcp(peer)
    }
}

impl From<Outside> for Peer {
    fn from(mut peer: Outside) -> Peer {
        peer.set_patience(PATIENCE);
        Peer::Simulated(peer)
    }
}

/// A socket that listens, and its address.
pub fn listen(way: Loop) -> (Descriptor, SocketAddr) {
    let options = ListenOptions::default();
    let listener = if way.is_simulated() {
        simulation().listen_tcp(&any(), &options).unwrap()
    } else {
        net::listen_tcp(&any(), &options).unwrap()
    };
    let address = net::local_address(&listener).unwrap().ip().unwrap();
    (listener, address)
}

/// The error number, where it cannot be.
pub fn listen_unix(way: Loop, path: &Path) -> Result<Descriptor, i32> {
    if way.is_simulated() {
        let listener = simulation().listen_unix(path);
        return listener.map_err(|error| error.raw_os_error().unwrap());
    }
    net::listen_unix(path).map_err(|error| error.errno())
}

/// A socket to connect to such an address.
pub fn stream_socket(way: Loop, address: &Address) -> Descriptor {
    if way.is_simulated() {
        return simulation().stream_socket(address).unwrap();
    }
    net::tcp_socket(address).unwrap()
}

pub fn udp_bind(way: Loop) -> (Descriptor, Address) {
    let own = if way.is_simulated() {
        simulation().udp_bind(&any()).unwrap()
    } else {
        net::udp_bind(&any()).unwrap()
    };
    let address = net::local_address(&own).unwrap();
    (own, address)
}

/// A connection and its other end.
pub fn connection(way: Loop) -> (Descriptor, Peer) {
    if way.is_simulated() {
        let (own, peer) = simulation().connection().unwrap();
        return (own, peer.into());
    }
    let listener = TcpListener::bind(any()).unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (own, _) = listener.accept().unwrap();
    (Descriptor::from(OwnedFd::from(own)), peer.into())
}

/// Connects to a listener of the loop's.
pub fn connect(way: Loop, address: impl Into<Address>) -> io::Result<Peer> {
    let address = address.into();
    if way.is_simulated() {
        return simulation().connect(address).map(Peer::from);
    }
    match address {
        Address::Unix(path) => UnixStream::connect(path).map(Peer::Unix),
        address => TcpStream::connect(address.ip().unwrap()).map(Peer::from),
    }
}

impl Peer {
    pub fn shutdown(&self, which: net::Shutdown) {
        let std = match which {
            net::Shutdown::Read => std::net::Shutdown::Read,
            net::Shutdown::Write => std::net::Shutdown::Write,
            net::Shutdown::Both => std::net::Shutdown::Both,
        };
        match self {
            Peer::Tcp(peer) => peer.shutdown(std).unwrap(),
            Peer::Unix(peer) => peer.shutdown(std).unwrap(),
            Peer::Simulated(peer) => peer.shutdown(which).unwrap(),
        }
    }

    /// Ends the connection by a reset.
    pub fn reset(self) {
        match self {
            Peer::Tcp(peer) => {
                let peer = Descriptor::from(OwnedFd::from(peer));
                net::set_reset_on_close(&peer).unwrap();
            }
            Peer::Unix(_) => unreachable!("a Unix socket resets nothing"),
            Peer::Simulated(peer) => peer.reset(),
        }
    }

    pub fn local_address(&self) -> Address {
        match self {
            Peer::Tcp(peer) => Address::Ip(peer.local_addr().unwrap()),
            Peer::Unix(_) => Address::UnixUnnamed,
            Peer::Simulated(peer) => peer.local_address().unwrap(),
        }
    }
}

impl Read for Peer {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Peer::Tcp(peer) => peer.read(buffer),
            Peer::Unix(peer) => peer.read(buffer),
            Peer::Simulated(peer) => peer.read(buffer),
        }
    }
}

impl Write for Peer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Peer::Tcp(peer) => peer.write(bytes),
            Peer::Unix(peer) => peer.write(bytes),
            Peer::Simulated(peer) => peer.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl PeerListener {
    pub fn unix(way: Loop, path: &Path) -> PeerListener {
        if way.is_simulated() {
            return PeerListener::Simulated(simulation().listen_outside(path).unwrap());
        }
        PeerListener::Unix(UnixListener::bind(path).unwrap())
    }

    pub fn address(&self) -> Address {
        match self {
            PeerListener::Unix(listener) => {
                let address = listener.local_addr().unwrap();
                Address::Unix(address.as_pathname().unwrap().into())
            }
            PeerListener::Simulated(listener) => listener.local_address().unwrap(),
        }
    }

    pub fn accept(&self) -> Peer {
        match self {
            PeerListener::Unix(listener) => Peer::Unix(listener.accept().unwrap().0),
            PeerListener::Simulated(listener) => listener.accept().unwrap().into(),
        }
    }
}

impl PeerDatagrams {
    pub fn bind(way: Loop) -> PeerDatagrams {
        if way.is_simulated() {
            let mut peer = simulation().datagrams_outside(&any()).unwrap();
            peer.set_patience(PATIENCE);
            return PeerDatagrams::Simulated(peer);
        }
        let peer = UdpSocket::bind(any()).unwrap();
        peer.set_read_timeout(Some(PATIENCE)).unwrap();
        PeerDatagrams::Udp(peer)
    }

    pub fn address(&self) -> Address {
        match self {
            PeerDatagrams::Udp(peer) => peer.local_addr().unwrap().into(),
            PeerDatagrams::Simulated(peer) => peer.local_address().unwrap(),
        }
    }

    pub fn send_to(&self, bytes: &[u8], to: &Address) {
        match self {
            PeerDatagrams::Udp(peer) => peer.send_to(bytes, to.ip().unwrap()).unwrap(),
            PeerDatagrams::Simulated(peer) => peer.send_to(bytes, to).unwrap(),
        };
    }

    pub fn recv_from(&self) -> (Vec<u8>, Address) {
        match self {
            PeerDatagrams::Udp(peer) => {
                let mut bytes = vec![0; 2048];
                let (count, from) = peer.recv_from(&mut bytes).unwrap();
                bytes.truncate(count);
                (bytes, from.into())
            }
            PeerDatagrams::Simulated(peer) => peer.recv_from().unwrap(),
        }
    }
}
