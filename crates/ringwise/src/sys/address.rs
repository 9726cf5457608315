//! The bytes of a socket's address.
//!
//! # Safety
//!
//! An address says how many of its bytes are set, and those are read here and no others.
#![allow(unsafe_code)]

/// An address as the kernel reads it.
pub(crate) type RawAddress = rustix::net::SocketAddrAny;

/// The name of a Unix socket's address: a path, perhaps with NUL bytes behind it; a NUL byte and a
/// name that is no path; or nothing.
pub(crate) fn unix_name(raw: &RawAddress) -> &[u8] {
    const NAME_AT: usize = std::mem::offset_of!(libc::sockaddr_un, sun_path);
    let bytes = raw.as_ptr().cast::<u8>();
    let len = raw.addr_len() as usize;
    // SAFETY: the address has `len` bytes that are set, and the borrow keeps it.
    let bytes = unsafe { std::slice::from_raw_parts(bytes, len) };
    bytes.get(NAME_AT..).unwrap_or_default()
}
