//! The address of a socket, on the internet or on this machine. `net/raw.rs` knows the kernel's form.

use std::{
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
};

/// The address of a socket.
///
/// # Examples
///
/// ```
/// use std::path::Path;
/// use ringwise::net::{self, Address};
///
/// let socket = net::udp_bind(&"127.0.0.1:0".parse()?)?;
/// let address = net::local_address(&socket)?;
/// assert!(address.ip().is_some_and(|ip| ip.port() > 0));
/// assert_eq!(Address::from(Path::new("/run/log")).to_string(), "unix:/run/log");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Address {
    /// An internet address and a port.
    Ip(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
    /// An abstract name (unix(7)), without its first byte, which is 0.
    UnixAbstract(Vec<u8>),
    /// A Unix socket without a name, such as a client or one end of a pair.
    UnixUnnamed,
}

impl Address {
    /// The internet address, if it is one.
    pub fn ip(&self) -> Option<SocketAddr> {
        match self {
            Address::Ip(address) => Some(*address),
            _ => None,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Ip(address) => address.fmt(f),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::UnixAbstract(name) => write!(f, "unix:@{}", name.escape_ascii()),
            Address::UnixUnnamed => f.write_str("unix"),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Address {
        Address::Ip(address)
    }
}

impl From<&SocketAddr> for Address {
    fn from(address: &SocketAddr) -> Address {
        Address::Ip(*address)
    }
}

impl From<&Address> for Address {
    fn from(address: &Address) -> Address {
        address.clone()
    }
}

impl From<&Path> for Address {
    fn from(path: &Path) -> Address {
        Address::Unix(path.to_owned())
    }
}

impl From<PathBuf> for Address {
    fn from(path: PathBuf) -> Address {
        Address::Unix(path)
    }
}

/// A borrowed address, for functions that only look at it.
///
/// # Examples
///
/// ```
/// use std::net::SocketAddr;
/// use ringwise::net::{Address, tcp_socket};
///
/// let address: SocketAddr = "[::1]:80".parse()?;
/// let of_std = tcp_socket(&address)?;
/// let of_ringwise = tcp_socket(&Address::from(&address))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum AddressRef<'a> {
    /// An internet address.
    Ip(&'a SocketAddr),
    /// An address of any kind.
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
