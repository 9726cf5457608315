//! Calls that wait for a stream. A pipe or a terminal may keep a reader waiting forever, and a
//! thread for each such call would leave none for the calls that end by themselves.
//!
//! A call is first tried without blocking. If its file is not ready, the call waits here, where it
//! costs an entry of an epoll set and can be cancelled. Calls on one file in one direction keep
//! their order. The pool's eventfd is in the same set, so one descriptor wakes a sleeping loop for
//! both. Sockets are in the set too; `net.rs` handles them.
//!
//! # Safety
//!
//! A descriptor's number is borrowed for the length of an epoll_ctl(2). It is open: the call's
//! operation holds it in its slot until its result is taken (invariants 1 and 14), and the set
//! lets go of it before that.
#![allow(unsafe_code)]

#[cfg(feature = "tokio")]
mod alarm;

#[cfg(feature = "tokio")]
use std::time::Instant;
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd},
};

use rustix::{
    event::{
        Timespec,
        epoll::{self, CreateFlags, Event, EventData, EventFlags},
    },
    io::Errno,
};

use super::{
    net::{SOCKET, Sockets},
    pool::{Attempt, Job, SocketName, Stream},
};
use crate::backend::Cqe;

/// The eventfd's number in the set; no descriptor has it.
const WAKE: u64 = u64::MAX;
/// How many descriptors the set reports at a time. Each one that receives keeps a buffer of its
/// group until the data is used. If 512 are reported at a time, many find no buffer and are parked,
/// which costs an echo server or a log daemon with a thousand busy connections a fifth of its CPU
/// time. If 64 are, the receives in a row free so many buffers of another processor that the kernel
/// interrupts it to take them back (`skb_attempt_defer_free`, net/core/skbuff.c, Linux 6.18;
/// docs/notes/library/echo.md).
const EVENTS_MAX: usize = 32;

#[derive(Debug)]
pub(super) struct Readiness {
    epoll: OwnedFd,
    /// In the order in which they came.
    waiting: Vec<Waiting>,
    sockets: Sockets,
    #[cfg(feature = "tokio")]
    alarm: alarm::Alarm,
}

#[derive(Debug)]
struct Waiting {
    job: Job,
    stream: Stream,
}

impl Readiness {
    pub(super) fn new(wake: impl AsFd) -> io::Result<Readiness> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        Ok(Readiness {
            epoll,
            waiting: Vec::new(),
            sockets: Sockets::default(),
            #[cfg(feature = "tokio")]
            alarm: alarm::Alarm::default(),
        })
    }

    /// Returns the set, which is readable as soon as a file is ready or the pool has a result.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Makes the set readable at this time, if there is one.
    #[cfg(feature = "tokio")]
    pub(super) fn arm(&mut self, at: Option<Instant>) -> Result<(), Errno> {
        at.map_or(Ok(()), |at| self.alarm.set(&self.epoll, at))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.sockets.is_empty()
    }

    /// Returns whether a socket had more to give than is taken at a time.
    pub(super) fn has_leftover(&self) -> bool {
        self.sockets.has_leftover()
    }

    /// Makes a call on a socket, or lets it wait. Returns the job if it can only be made by
    /// blocking.
    pub(super) fn start_on_socket(
        &mut self,
        job: Job,
        name: SocketName,
        ready: &mut impl Extend<Cqe>,
    ) -> Result<(), Job> {
        self.sockets.start(&self.epoll, job, name, ready)
    }

    /// Cancels the call with this number on a socket.
    pub(super) fn cancel_on_socket(&mut self, user_data: u64, fd: Option<RawFd>) -> Option<Cqe> {
        self.sockets.cancel(user_data, fd)
    }

    /// Makes a call on a stream, or lets it wait. Returns the job if it can only be made by
    /// blocking, on a device that epoll cannot wait for.
    pub(super) fn start(&mut self, job: Job, stream: Stream) -> Result<Option<Cqe>, Job> {
        let in_turn = !self.waiting.iter().any(|waiting| waiting.stream == stream);
        if in_turn && let Attempt::Done(cqe) = job.attempt() {
            return Ok(Some(cqe));
        }
        self.waiting.push(Waiting { job, stream });
        if self.watch(stream.fd).is_ok() {
            return Ok(None);
        }
        // epoll_ctl(2): EPERM, the file does not support epoll.
        Err(self.waiting.pop().expect("pushed just now").job)
    }

    /// Makes the calls whose files are ready. Returns the jobs that have to block after all.
    pub(super) fn collect(&mut self, ready: &mut impl Extend<Cqe>) -> Vec<Job> {
        let mut to_block = Vec::new();
        if !self.is_empty() {
            self.wait(Some(Timespec::default()), ready, &mut to_block);
        }
        to_block
    }

    /// Waits until a file is ready, for at most `timeout`, and makes the calls on it. Returns
    /// whether the eventfd was ready.
    pub(super) fn wait(
        &mut self,
        timeout: Option<Timespec>,
        ready: &mut impl Extend<Cqe>,
        to_block: &mut Vec<Job>,
    ) -> bool {
        let none = Event { flags: EventFlags::empty(), data: EventData::new_u64(0) };
        let mut events = [none; EVENTS_MAX];
        let timeout = if self.sockets.has_leftover() { Some(Timespec::default()) } else { timeout };
        // If the wait was interrupted or out of memory, the events are still there at the next
        // look.
        let count = epoll::wait(&self.epoll, &mut events, timeout.as_ref()).unwrap_or(0);
        let mut is_woken = false;
        self.sockets.serve_leftover(&self.epoll, ready);
        for event in &events[..count] {
            match event.data.u64() {
                WAKE => is_woken = true,
                #[cfg(feature = "tokio")]
                // The loop itself has the timers.
                alarm::ALARM => {}
                key if key & SOCKET != 0 => {
                    let fd = (key & !SOCKET) as RawFd;
                    self.sockets.serve(&self.epoll, fd, event.flags, ready);
                }
                fd => self.serve(fd as RawFd, event.flags, ready, to_block),
            }
        }
        is_woken
    }

    /// Makes the calls that wait for `fd`, in order, until one finds nothing.
    fn serve(
        &mut self,
        fd: RawFd,
        events: EventFlags,
        ready: &mut impl Extend<Cqe>,
        to_block: &mut Vec<Job>,
    ) {
        let broken = events.intersects(EventFlags::ERR | EventFlags::HUP);
        for reads in [true, false] {
            let stream = Stream { fd, reads };
            while broken || events.intersects(stream.events()) {
                let Some(at) = self.waiting.iter().position(|waiting| waiting.stream == stream)
                else {
                    break;
                };
                match self.waiting[at].job.attempt() {
                    Attempt::NotReady => break,
                    Attempt::Done(cqe) => {
                        self.waiting.remove(at);
                        ready.extend([cqe]);
                    }
                    // The file is ready, but a call on it may block. A thread takes the risk that
                    // somebody else empties the file first.
                    Attempt::MustBlock => to_block.push(self.waiting.remove(at).job),
                }
            }
        }
        // This cannot fail: a file that was watched can be watched for fewer events.
        let _ = self.watch(fd);
    }

    /// Cancels the call with this number.
    pub(super) fn cancel(&mut self, user_data: u64) -> Option<Cqe> {
        let at = self.waiting.iter().position(|waiting| waiting.job.user_data == user_data)?;
        let cancelled = self.waiting.remove(at);
        let _ = self.watch(cancelled.stream.fd);
        Some(Cqe::cancelled(user_data))
    }

    /// Asks for the events that the calls on `fd` wait for. A file that no call waits for leaves
    /// the set, since its number may soon belong to another file.
    fn watch(&self, fd: RawFd) -> Result<(), Errno> {
        let streams = self.waiting.iter().map(|waiting| waiting.stream);
        let events = streams
            .filter(|stream| stream.fd == fd)
            .fold(EventFlags::empty(), |events, stream| events | stream.events());
        // SAFETY: invariant 14: the operation of a call that waits, or whose result was made just
        // now, is in its slot and holds the descriptor.
        let file = unsafe { BorrowedFd::borrow_raw(fd) };
        if events.is_empty() {
            return epoll::delete(&self.epoll, file);
        }
        let data = EventData::new_u64(fd as u64);
        match epoll::modify(&self.epoll, file, data, events) {
            Err(Errno::NOENT) => epoll::add(&self.epoll, file, data, events),
            result => result,
        }
    }
}
