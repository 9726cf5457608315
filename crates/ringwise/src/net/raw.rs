//! The kernel's form of an address.

use std::{
    net::SocketAddr,
    os::unix::ffi::{OsStrExt, OsStringExt},
};

use rustix::net::{AddressFamily, SocketAddrUnix, addr::SocketAddrArg};

use super::Address;
use crate::sys::address::{RawAddress, unix_name};

impl Address {
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
        if raw.address_family() != AddressFamily::UNIX {
            return None;
        }
        Some(match unix_name(raw) {
            // A name of nothing is none.
            [] | [0] => Address::UnixUnnamed,
            [0, name @ ..] => Address::UnixAbstract(name.to_vec()),
            path => {
                let path = path.split(|byte| *byte == 0).next().unwrap_or_default();
                Address::Unix(std::ffi::OsString::from_vec(path.to_vec()).into())
            }
        })
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
            Address::Unix("x".repeat(108).into()),
            Address::UnixAbstract(b"name\0\x01".to_vec()),
            Address::UnixUnnamed,
        ] {
            let raw = address.to_raw().unwrap();
            assert_eq!(Address::from_raw(&raw).as_ref(), Some(&address), "{address}");
        }
    }

    #[test]
    fn a_path_that_does_not_fit_is_told() {
        assert_eq!(Address::Unix("x".repeat(109).into()).to_raw(), None);
        assert_eq!(Address::Unix("a\0b".into()).to_raw(), None);
    }
}
