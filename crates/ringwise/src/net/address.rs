//! The address of a socket, on the internet or on this machine.

use std::{
    fmt,
    net::SocketAddr,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use rustix::net::{SocketAddrUnix, addr::SocketAddrArg};

use crate::op::RawAddress;

/// The address of a socket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Address {
    /// An internet address and a port.
    Ip(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
    /// A name in Linux's own space of names for Unix sockets, without its first byte, which is 0.
    UnixAbstract(Vec<u8>),
    /// A Unix socket that was not bound: one end of a pair, a client.
    UnixUnnamed,
}

impl Address {
    /// The internet address, where it is one.
    pub fn ip(&self) -> Option<SocketAddr> {
        match self {
            Address::Ip(address) => Some(*address),
            _ => None,
        }
    }

    /// As the kernel reads it; nothing where a path is too long or has a NUL byte.
    pub(crate) fn to_raw(&self) -> Option<RawAddress> {
        Some(match self {
            Address::Ip(address) => address.as_any(),
            Address::Unix(path) => SocketAddrUnix::new(path.as_os_str().as_bytes()).ok()?.as_any(),
            Address::UnixAbstract(name) => SocketAddrUnix::new_abstract_name(name).ok()?.as_any(),
            Address::UnixUnnamed => SocketAddrUnix::new_unnamed().as_any(),
        })
    }

    /// Nothing for an address of another family.
    pub(crate) fn from_raw(raw: &RawAddress) -> Option<Address> {
        if let Ok(address) = SocketAddr::try_from(raw.clone()) {
            return Some(Address::Ip(address));
        }
        let unix = SocketAddrUnix::try_from(raw.clone()).ok()?;
        Some(match (unix.path_bytes(), unix.abstract_name()) {
            (Some(path), _) => Address::Unix(std::ffi::OsString::from_vec(path.to_vec()).into()),
            // The kernel names no socket by nothing: so is one told that has no name.
            (None, Some(name)) if !name.is_empty() => Address::UnixAbstract(name.to_vec()),
            (None, _) => Address::UnixUnnamed,
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_the_kernels_form() {
        for address in [
            Address::Ip("127.0.0.1:80".parse().unwrap()),
            Address::Ip("[::1]:65535".parse().unwrap()),
            Address::Unix("/run/socket".into()),
            Address::UnixAbstract(b"name\0\x01".to_vec()),
            Address::UnixUnnamed,
        ] {
            let raw = address.to_raw().unwrap();
            assert_eq!(Address::from_raw(&raw).as_ref(), Some(&address), "{address}");
        }
    }

    #[test]
    fn a_path_that_does_not_fit_is_told() {
        assert_eq!(Address::Unix("x".repeat(108).into()).to_raw(), None);
        assert_eq!(Address::Unix("a\0b".into()).to_raw(), None);
    }
}
