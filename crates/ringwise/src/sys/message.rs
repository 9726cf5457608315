//! A message with its header, for sendmsg(2) and recvmsg(2): several buffers, and an address.
//!
//! # Safety
//!
//! The header holds addresses of what lies beside it. They are written when the operation is in
//! its slot, where its box keeps them in place, and followed by the kernel, or by a thread of the
//! loop, only while it stays there (invariant 1).
#![allow(unsafe_code)]

use std::{fmt, mem::MaybeUninit};

use super::{address::RawAddress, vector::Vectors};
use crate::{buf::Buffer, net::Address};

pub(crate) struct Message {
    buffers: Vec<Buffer>,
    vectors: Vectors,
    /// Where a send goes to; an address that cannot be expressed is kept to be refused.
    to: Option<Result<RawAddress, Address>>,
    from: MaybeUninit<libc::sockaddr_storage>,
    header: libc::msghdr,
}

// SAFETY: the addresses are only followed by the kernel or a thread of the loop, and point into
// what moves with the message and is `Send` itself.
unsafe impl Send for Message {}
// SAFETY: a shared borrow gives no access to what the addresses point to.
unsafe impl Sync for Message {}

impl Message {
    pub(crate) fn new(buffers: Vec<Buffer>, to: Option<Address>) -> Message {
        let to = to.map(|address| address.to_raw().ok_or(address));
        // SAFETY: a header of zeros is an empty message.
        let header = unsafe { std::mem::zeroed() };
        let from = MaybeUninit::zeroed();
        Message { buffers, vectors: Vectors::default(), to, from, header }
    }

    pub(crate) fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    pub(crate) fn buffers_mut(&mut self) -> &mut [Buffer] {
        &mut self.buffers
    }

    pub(crate) fn into_buffers(self) -> Vec<Buffer> {
        self.buffers
    }

    /// Whether it goes to an address that no system call can express.
    pub(crate) fn is_unaddressable(&self) -> bool {
        matches!(self.to, Some(Err(_)))
    }

    /// The header of a send. Valid while the message stays where it is.
    pub(crate) fn lower_to_send(&mut self) -> *mut libc::msghdr {
        let (name, len) = match &self.to {
            Some(Ok(address)) => (address.as_ptr().cast_mut().cast(), address.addr_len()),
            _ => (std::ptr::null_mut(), 0),
        };
        self.lower(name, len)
    }

    /// The header of a receive. Valid while the message stays where it is.
    pub(crate) fn lower_to_receive(&mut self) -> *mut libc::msghdr {
        let name = self.from.as_mut_ptr().cast();
        self.lower(name, size_of::<libc::sockaddr_storage>() as u32)
    }

    fn lower(&mut self, name: *mut libc::c_void, len: u32) -> *mut libc::msghdr {
        let (vectors, count) = self.vectors.fill(&mut self.buffers);
        self.header.msg_name = name;
        self.header.msg_namelen = len;
        self.header.msg_iov = vectors.cast_mut();
        self.header.msg_iovlen = count as usize;
        &raw mut self.header
    }

    /// Whence a message came that was received; nothing where the socket does not say.
    pub(crate) fn sender(&self) -> Option<Address> {
        let len = self.header.msg_namelen;
        if (len as usize) < size_of::<libc::sa_family_t>()
            || len as usize > size_of::<libc::sockaddr_storage>()
        {
            return None;
        }
        // SAFETY: `len` bytes of the storage, which was zeroed to begin with, hold an address; the
        // length is between the two that are asked for.
        let raw = unsafe { RawAddress::read(self.from.as_ptr().cast(), len) };
        Address::from_raw(&raw)
    }

    /// Whether a part of the message did not fit into the buffers.
    pub(crate) fn is_truncated(&self) -> bool {
        self.header.msg_flags & libc::MSG_TRUNC != 0
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("buffers", &self.buffers)
            .field("to", &self.to)
            .finish_non_exhaustive()
    }
}
