//! Calls on sockets. They are tried at once, or wait in an epoll set, to which each socket is added
//! once.
//!
//! A socket is registered edge-triggered when a call on it first has to wait, and stays registered,
//! so that a wait needs no syscall. The result of the last call is remembered, so that no call is
//! made whose answer is known. If a receive on a TCP socket gets less than it has room for, the
//! socket is empty (epoll(7)). This is not so if urgent data came, since data behind the urgent
//! mark makes no event of its own. Calls in one direction keep their order. A call with several
//! results has at most 32 in a row; then the other calls have their turn.
//!
//! A buffer of a group is taken when a socket is ready, so silent sockets keep none.
//!
//! # Safety
//!
//! Calls are made on addresses and descriptors that their operations keep in their slots until
//! their results are taken (invariants 1 and 14). A socket's entry here outlives its calls; it is
//! told from another that has the same number by its serial.
#![allow(unsafe_code)]

use std::{
    collections::VecDeque,
    os::fd::{BorrowedFd, OwnedFd, RawFd},
};

use rustix::{
    event::epoll::{self, EventData, EventFlags},
    io::Errno,
};

use super::pool::{Attempt, Job, SocketName};
use crate::{
    backend::Cqe,
    flight::call::Call,
    op::Manner,
    sys::socket::{
        begin_connect, end_connect, is_tcp, make_nonblocking, receive_chosen, remaining, send,
        send_message, transfer,
    },
};

/// Marks a socket's number in the set.
pub(super) const SOCKET: u64 = 1 << 32;
/// The most results of one call, or of the calls in one direction of a socket, before others have a
/// turn.
const TURN: usize = 32;

/// The sockets that calls wait for, or waited for.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    by_number: Vec<Option<Box<Socket>>>,
    waiting: usize,
    /// Sockets whose turn ended with more to come.
    leftover: Vec<RawFd>,
}

#[derive(Debug, Default)]
struct Socket {
    serial: u64,
    is_registered: bool,
    is_tcp: bool,
    /// Whether urgent data came once. A receive ends at its mark, and more may lie behind it.
    had_urgent: bool,
    /// Whether the set was asked to report room for sending.
    watches_sends: bool,
    /// Whether the last receive emptied it and no event came since.
    is_drained: bool,
    /// Whether the last send filled it and no event came since.
    is_full: bool,
    /// Whether the other end is gone or sends no more. A receive on an empty socket has yet to
    /// report this.
    has_ended: bool,
    in_leftover: bool,
    receivers: Receivers,
    senders: VecDeque<Sender>,
}

/// Receiving calls in their order. Usually there is only the first, which needs no allocation.
#[derive(Debug, Default)]
struct Receivers {
    first: Option<Job>,
    rest: VecDeque<Job>,
}

#[derive(Debug)]
struct Sender {
    job: Job,
    /// Bytes sent so far.
    moved: usize,
    /// Whether a connect is in progress.
    has_begun: bool,
}

/// The result of one attempt.
enum Step {
    /// The last result, and whether it was less than there was room for.
    Done(Cqe, bool),
    /// The same, with more results to come.
    One(Cqe, bool),
    NotReady,
    MustBlock,
}

impl Sockets {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0 && self.leftover.is_empty()
    }

    pub(super) fn has_leftover(&self) -> bool {
        !self.leftover.is_empty()
    }

    /// Makes a call on a socket, or lets it wait. Returns the job if it can only be made by
    /// blocking.
    pub(super) fn start(
        &mut self,
        epoll: &OwnedFd,
        job: Job,
        name: SocketName,
        ready: &mut impl Extend<Cqe>,
    ) -> Result<(), Job> {
        let SocketName { fd, serial } = name;
        let at = fd as usize;
        if at >= self.by_number.len() {
            self.by_number.resize_with(at + 1, || None);
        }
        let socket = self.by_number[at].get_or_insert_default();
        if socket.serial != serial || serial == 0 {
            // No call waits on the earlier socket with this number: a waiting call would have kept
            // that socket open.
            let (receivers, senders) =
                (std::mem::take(&mut socket.receivers), std::mem::take(&mut socket.senders));
            let in_leftover = socket.in_leftover;
            **socket = Socket { serial, receivers, senders, in_leftover, ..Socket::default() };
        }
        if matches!(job.call, Call::Accept { .. }) && !socket.is_registered {
            // SAFETY: the operation holds the descriptor.
            unsafe { make_nonblocking(fd) };
        }
        let before = socket.len();
        if is_sending(&job) {
            if let Some(job) = socket.start_sender(job, ready) {
                return Err(job);
            }
        } else {
            socket.receivers.push(job);
            if !socket.is_drained {
                socket.receive(fd, ready, &mut self.leftover);
            }
        }
        socket.watch(epoll, fd, ready);
        self.waiting = self.waiting + socket.len() - before;
        Ok(())
    }

    /// Makes the calls that wait for a socket that the set has reported.
    pub(super) fn serve(
        &mut self,
        epoll: &OwnedFd,
        fd: RawFd,
        events: EventFlags,
        ready: &mut impl Extend<Cqe>,
    ) {
        let Some(Some(socket)) = self.by_number.get_mut(fd as usize) else { return };
        let gone = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        let has_ended = events.intersects(gone);
        let before = socket.len();
        socket.has_ended |= has_ended;
        socket.had_urgent |= events.contains(EventFlags::PRI);
        if has_ended || events.intersects(EventFlags::IN | EventFlags::PRI) {
            socket.is_drained = false;
            socket.receive(fd, ready, &mut self.leftover);
        }
        if events.intersects(EventFlags::OUT | EventFlags::HUP | EventFlags::ERR) {
            socket.is_full = false;
            socket.send(fd, ready);
        }
        socket.watch(epoll, fd, ready);
        self.waiting = self.waiting + socket.len() - before;
    }

    /// Goes on with the sockets whose turn had ended.
    pub(super) fn serve_leftover(&mut self, epoll: &OwnedFd, ready: &mut impl Extend<Cqe>) {
        for fd in std::mem::take(&mut self.leftover) {
            let Some(Some(socket)) = self.by_number.get_mut(fd as usize) else { continue };
            socket.in_leftover = false;
            let before = socket.len();
            if !socket.is_drained {
                socket.receive(fd, ready, &mut self.leftover);
            }
            socket.watch(epoll, fd, ready);
            self.waiting = self.waiting + socket.len() - before;
        }
    }

    /// Cancels the call with this number on a socket. If a send has sent something, its result says
    /// how much.
    pub(super) fn cancel(&mut self, user_data: u64, fd: Option<RawFd>) -> Option<Cqe> {
        let socket = self.by_number.get_mut(usize::try_from(fd?).ok()?)?.as_mut()?;
        let cancelled = socket.cancel(user_data)?;
        self.waiting -= 1;
        Some(cancelled)
    }
}

impl Socket {
    fn len(&self) -> usize {
        self.receivers.len() + self.senders.len()
    }

    /// Makes the receiving calls that wait, in order, until there is nothing left for them or their
    /// turn is over.
    fn receive(&mut self, fd: RawFd, ready: &mut impl Extend<Cqe>, leftover: &mut Vec<RawFd>) {
        for _ in 0..TURN {
            let first = self.receivers.first.as_ref();
            let Some(job) = first.filter(|_| !self.is_drained) else { return };
            match attempt_receive(job, fd) {
                Step::Done(cqe, is_short) => {
                    self.receivers.pop();
                    ready.extend([cqe]);
                    self.is_drained = is_short && self.tells_end();
                }
                Step::One(cqe, is_short) => {
                    ready.extend([cqe]);
                    self.is_drained = is_short && self.tells_end();
                }
                Step::NotReady | Step::MustBlock => {
                    self.is_drained = true;
                    return;
                }
            }
        }
        let has_more = self.receivers.first.is_some() && !self.is_drained;
        if has_more && !std::mem::replace(&mut self.in_leftover, true) {
            leftover.push(fd);
        }
    }

    /// Returns whether a receive that gets less than it has room for proves that there is no more.
    fn tells_end(&self) -> bool {
        self.is_tcp && !self.has_ended && !self.had_urgent
    }

    /// Starts a sending call. Returns it if it can only be made by blocking.
    fn start_sender(&mut self, job: Job, ready: &mut impl Extend<Cqe>) -> Option<Job> {
        let mut sender = Sender { job, moved: 0, has_begun: false };
        let in_turn = self.senders.is_empty() && !self.is_full;
        if !in_turn && is_quiet(&sender.job) {
            // A quiet send never waits, and it must not overtake the calls that do.
            ready.extend([sender.job.done(0)]);
            return None;
        }
        if in_turn {
            match sender.attempt() {
                Step::Done(cqe, _) | Step::One(cqe, _) => {
                    ready.extend([cqe]);
                    return None;
                }
                Step::MustBlock => return Some(sender.job),
                Step::NotReady => self.is_full = true,
            }
        }
        self.senders.push_back(sender);
        None
    }

    /// Makes the sending calls that wait, in order, while there is room.
    fn send(&mut self, fd: RawFd, ready: &mut impl Extend<Cqe>) {
        while let Some(sender) = self.senders.front_mut() {
            let step = if sender.has_begun { sender.connected(fd) } else { sender.attempt() };
            match step {
                Step::Done(cqe, _) | Step::One(cqe, _) => {
                    self.senders.pop_front();
                    ready.extend([cqe]);
                }
                Step::NotReady | Step::MustBlock => {
                    self.is_full = true;
                    return;
                }
            }
        }
    }

    /// Makes sure that the set reports the events that the waiting calls wait for. If this fails,
    /// the calls fail.
    fn watch(&mut self, epoll: &OwnedFd, fd: RawFd, ready: &mut impl Extend<Cqe>) {
        let needs_sends = !self.senders.is_empty() && !self.watches_sends;
        if self.len() == 0 || (self.is_registered && !needs_sends) {
            return;
        }
        if let Err(errno) = self.register(epoll, fd) {
            let failed = -errno.raw_os_error();
            while let Some(job) = self.receivers.pop() {
                ready.extend([job.done(failed)]);
            }
            ready.extend(self.senders.drain(..).map(|sender| sender.job.done(failed)));
        }
    }

    fn register(&mut self, epoll: &OwnedFd, fd: RawFd) -> Result<(), Errno> {
        // SAFETY: the operation of a waiting call holds the descriptor.
        let file = unsafe { BorrowedFd::borrow_raw(fd) };
        if !self.is_registered {
            // SAFETY: as above.
            self.is_tcp = unsafe { is_tcp(fd) };
        }
        self.watches_sends |= !self.senders.is_empty();
        let mut events = EventFlags::IN | EventFlags::PRI | EventFlags::RDHUP | EventFlags::ET;
        events.set(EventFlags::OUT, self.watches_sends);
        let data = EventData::new_u64(SOCKET | fd as u64);
        // Both calls report what is ready already, so nothing is missed.
        let result = if self.is_registered {
            epoll::modify(epoll, file, data, events)
        } else {
            match epoll::add(epoll, file, data, events) {
                Err(Errno::EXIST) => epoll::modify(epoll, file, data, events),
                result => result,
            }
        };
        self.is_registered = result.is_ok();
        result
    }

    fn cancel(&mut self, user_data: u64) -> Option<Cqe> {
        if self.receivers.remove(user_data) {
            return Some(Cqe::cancelled(user_data));
        }
        let at = self.senders.iter().position(|sender| sender.job.user_data == user_data)?;
        let sender = self.senders.remove(at)?;
        if sender.moved > 0 {
            return Some(sender.job.done(sender.moved as i32));
        }
        Some(Cqe::cancelled(user_data))
    }
}

impl Receivers {
    fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.len()
    }

    fn push(&mut self, job: Job) {
        match self.first {
            None => self.first = Some(job),
            Some(_) => self.rest.push_back(job),
        }
    }

    fn pop(&mut self) -> Option<Job> {
        std::mem::replace(&mut self.first, self.rest.pop_front())
    }

    /// Removes the call with this number. Returns whether it was there.
    fn remove(&mut self, user_data: u64) -> bool {
        if self.first.as_ref().is_some_and(|job| job.user_data == user_data) {
            return self.pop().is_some();
        }
        let at = self.rest.iter().position(|job| job.user_data == user_data);
        at.is_some_and(|at| self.rest.remove(at).is_some())
    }
}

impl Sender {
    /// Goes on as far as is possible without waiting. Bytes that were sent before an error count.
    fn attempt(&mut self) -> Step {
        let result = loop {
            // SAFETY: invariant 1: the operation is in its slot until this job's result is taken.
            let (result, len, manner) = unsafe {
                match self.job.call {
                    Call::Connect { file, address, len } => {
                        return self.connected_or_begun(begin_connect(file, address, len));
                    }
                    Call::Send { file, buffer, manner } => {
                        let result = send(file, buffer, self.moved, libc::MSG_DONTWAIT);
                        (result, buffer.len as usize - self.moved, manner)
                    }
                    Call::SendMessage { file, header, manner } => {
                        let len = remaining(header);
                        (send_message(file, header, libc::MSG_DONTWAIT), len, manner)
                    }
                    // A write to a socket.
                    _ => match self.job.attempt() {
                        Attempt::Done(cqe) => return Step::Done(cqe, false),
                        Attempt::NotReady => return Step::NotReady,
                        Attempt::MustBlock => return Step::MustBlock,
                    },
                }
            };
            match result {
                0.. => self.moved += result as usize,
                _ if result == -libc::EAGAIN && manner == Manner::Quiet => {
                    break self.moved as i32;
                }
                _ if result == -libc::EAGAIN => return Step::NotReady,
                _ if self.moved > 0 => break self.moved as i32,
                _ => break result,
            }
            if manner == Manner::Some || result as usize >= len {
                break self.moved as i32;
            }
        };
        Step::Done(self.job.done(result), false)
    }

    /// Handles the result of a connect that does not wait.
    fn connected_or_begun(&mut self, result: i32) -> Step {
        match result {
            // The backlog of a Unix listener is full, and epoll cannot wait for room in it.
            result if result == -libc::EAGAIN => Step::MustBlock,
            result if result == -libc::EINPROGRESS => {
                self.has_begun = true;
                Step::NotReady
            }
            result => Step::Done(self.job.done(result), false),
        }
    }

    fn connected(&mut self, fd: RawFd) -> Step {
        // SAFETY: as in `attempt`.
        match unsafe { end_connect(fd) } {
            result if result == -libc::EINPROGRESS => Step::NotReady,
            result => Step::Done(self.job.done(result), false),
        }
    }
}

/// Makes a receiving call once, without waiting.
fn attempt_receive(job: &Job, fd: RawFd) -> Step {
    // SAFETY: invariant 1: the operation is in its slot until this job's last result is taken.
    let result = match job.call {
        Call::ReceiveMulti { group, .. } => {
            // SAFETY: as above.
            let chosen = unsafe { receive_chosen(fd, group, libc::MSG_DONTWAIT) };
            let cqe = job.done_with(chosen.result, chosen.buffer);
            return match chosen.result {
                1.. => Step::One(cqe.with_more(), chosen.is_short),
                _ if chosen.result == -libc::EAGAIN => Step::NotReady,
                _ => Step::Done(cqe, false),
            };
        }
        Call::Accept { .. } | Call::Receive { .. } | Call::ReceiveMessage { .. } => {
            // SAFETY: as above.
            unsafe { transfer(&job.call, libc::MSG_DONTWAIT) }
        }
        // A read from a socket.
        _ => match job.attempt() {
            Attempt::Done(cqe) => return Step::Done(cqe, false),
            Attempt::NotReady | Attempt::MustBlock => return Step::NotReady,
        },
    };
    match result {
        _ if result == -libc::EAGAIN => Step::NotReady,
        0.. if matches!(job.call, Call::Accept { multi: true, .. }) => {
            Step::One(job.done(result).with_more(), false)
        }
        _ => {
            let room = match job.call {
                Call::Receive { buffer, .. } => buffer.len as i32,
                _ => 0,
            };
            Step::Done(job.done(result), result > 0 && result < room)
        }
    }
}

fn is_sending(job: &Job) -> bool {
    let call = &job.call;
    matches!(call, Call::Connect { .. } | Call::Send { .. } | Call::SendMessage { .. })
        || matches!(call, Call::Write { .. } | Call::WriteVectored { .. })
}

fn is_quiet(job: &Job) -> bool {
    matches!(job.call, Call::Send { manner: Manner::Quiet, .. })
}
