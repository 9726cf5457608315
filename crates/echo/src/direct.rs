//! Receiving while looking for work, and answering at once: what a connection that is alone saves.
//!
//! An armed receive has the sender wake whoever armed it, and the loop go round for it. A thread that
//! looks for work anyway may as well ask the only socket that can bring some: nobody is woken, and the
//! bytes are there a call earlier. The answer is sent likewise, by a call of this thread. On a loopback of virtual processors a round is a tenth shorter for it
//! (docs/notes/library/echo.md). Before the thread sleeps, the receive is armed
//! again. With two connections there is no look long enough for it to matter.

use std::ops::Deref;

use ringwise::{Descriptor, Received};
use rustix::{
    io::{Errno, retry_on_intr},
    net::{RecvFlags, SendFlags, recv, send},
};

/// Looks that have to have found work of late before the receive is ended: to end one and arm it again
/// costs two calls.
pub(crate) const LOOKS_MIN: u32 = 16;
/// Of so many looks one is for what else there may be, which is a call of its own on epoll.
pub(crate) const LOOKS_BETWEEN: u32 = 8;

/// How the only connection receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direct {
    /// As all do.
    No,
    /// Its receive was told to end.
    Ending(usize),
    /// By looking; nothing is armed.
    Yes(usize),
}

/// Bytes as they were received.
#[derive(Debug)]
pub(crate) enum Piece {
    /// In a buffer of the group.
    Chosen(Received),
    /// By looking.
    Own(Vec<u8>),
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Piece::Chosen(received) => received,
            Piece::Own(bytes) => bytes,
        }
    }
}

/// What is there; nothing where nothing is, or the call was interrupted.
pub(crate) fn look(socket: &Descriptor, scratch: &mut [u8]) -> Option<Result<Piece, Errno>> {
    match recv(socket, &mut *scratch, RecvFlags::DONTWAIT) {
        Ok((count, _)) => Some(Ok(Piece::Own(scratch[..count].to_vec()))),
        Err(Errno::AGAIN | Errno::INTR) => None,
        Err(errno) => Some(Err(errno)),
    }
}

/// Sends what the socket takes; gives how much that was.
pub(crate) fn answer(socket: &Descriptor, bytes: &[u8]) -> Result<usize, Errno> {
    let sent = retry_on_intr(|| send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL));
    if sent == Err(Errno::AGAIN) { Ok(0) } else { sent }
}
