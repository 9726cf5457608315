//! Sends and receives that the polling thread makes itself, because the socket has room or data now.
//!
//! Each is one syscall with `MSG_DONTWAIT` on memory that the caller lends for the call, so no byte is copied on
//! the way. Whatever would wait is left to the ring, and so is everything that comes after an operation in
//! flight: bytes never overtake each other. A simulated socket has no syscalls, so the ring does everything. It
//! decides nothing about buffers.

use std::{io::IoSlice, os::fd::AsRawFd};

use rustix::{
    io::Errno as RawErrno,
    net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg},
};

use super::connection::Connection;
use crate::{
    error::{Errno, Error},
    op::Opcode,
};

/// The most parts that the kernel takes in one call (`UIO_MAXIOV`, include/uapi/linux/uio.h).
const PARTS_MAX: usize = 1024;

impl Connection {
    /// Sends what the socket takes now, and gives the number of bytes. Nothing if the ring has to do it.
    pub(super) fn send_at_once(&self, parts: &[IoSlice<'_>]) -> Option<Result<usize, Error>> {
        if !self.lets_callers_serve(Opcode::Send) {
            return None;
        }
        let parts = match self.ring.setup().allows(Opcode::SendMessage) {
            true => &parts[..parts.len().min(PARTS_MAX)],
            // The first that is not empty.
            false => &parts[parts.iter().position(|part| !part.is_empty())?..][..1],
        };
        let _turn = self.lanes.sending.try_enter()?;
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = match parts {
            [part] => send(&self.socket, part, flags),
            _ => sendmsg(&self.socket, parts, &mut SendAncillaryBuffer::default(), flags),
        };
        self.told(Opcode::Send, || parts.iter().map(|part| part.len()).sum(), sent)
    }

    /// Receives what the socket has now, and gives the number of bytes. It is 0 when the other end sends no
    /// more. Nothing if the ring has to do it.
    pub(super) fn receive_at_once(&self, into: &mut [u8]) -> Option<Result<usize, Error>> {
        if !self.lets_callers_serve(Opcode::Receive) {
            return None;
        }
        let turn = self.lanes.receiving.try_enter()?;
        if turn.rest().has_some() {
            return None;
        }
        let room = into.len();
        let received = recv(&self.socket, into, RecvFlags::DONTWAIT).map(|(count, _)| count);
        self.told(Opcode::Receive, || room, received)
    }

    fn lets_callers_serve(&self, opcode: Opcode) -> bool {
        self.ring.lets_callers_serve(opcode) && self.ring.simulation().is_none()
    }

    /// What a call came to, counted; nothing if it would have waited.
    #[cfg_attr(not(feature = "tracing"), expect(unused_variables, reason = "told to `tracing`"))]
    fn told(
        &self,
        opcode: Opcode,
        bytes: impl FnOnce() -> usize,
        result: Result<usize, RawErrno>,
    ) -> Option<Result<usize, Error>> {
        match result {
            Ok(count) => {
                self.ring.count_inline_hit();
                #[cfg(feature = "tracing")]
                crate::ring::span::tell_inline(opcode, &self.socket, None, bytes(), count);
                Some(Ok(count))
            }
            Err(RawErrno::AGAIN | RawErrno::INTR) => None,
            Err(errno) => {
                let error = Error::new(opcode, Errno(errno.raw_os_error()));
                Some(Err(error.on_descriptor(self.socket.as_raw_fd())))
            }
        }
    }
}
