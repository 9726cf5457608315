//! One connection: what it sends, what has come back, and whether that is right.
//!
//! It never waits: it does what can be done when it is told that its socket is ready
//! (edge-triggered, epoll(7)), that an operation is due, or that the end has come.

use std::{
    collections::VecDeque,
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
};

use rustix::{
    event::epoll::EventFlags,
    net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt},
};

use super::{
    fault::Fault,
    ledger::Ledger,
    pattern::{Key, Pattern},
    plan::Plan,
};
use crate::{crew::Clock, pace::Pace, poll::Poll};

/// The most that one call sends or receives.
const CHUNK_BYTES: usize = 64 << 10;
/// What a slow reader may have to send at each tick.
const SLOW_BYTES: u64 = 256 << 10;
/// The receive buffer of a slow reader, so that the server soon finds it full.
const SLOW_BUFFER_BYTES: usize = 16 << 10;

/// What the connections of a thread share.
pub(super) struct Desk {
    pub plan: std::sync::Arc<Plan>,
    pub pattern: Pattern,
    pub clock: Clock,
    pub pace: Option<Pace>,
    pub ledger: Ledger,
    /// The measured time; not yet known: the end of time.
    pub from_ns: u64,
    pub until_ns: u64,
    /// Whether operations may begin.
    pub may_begin: bool,
    /// Connections that have had their first message back, or have failed before.
    pub opened: usize,
    /// Numbers for connections: each that is made has its own.
    pub next_number: u64,
    pub number_step: u64,
    pub poll: Poll,
    input: Box<[u8]>,
    output: Box<[u8]>,
}

impl Desk {
    pub(super) fn new(
        plan: std::sync::Arc<Plan>,
        seed: u64,
        clock: Clock,
        (thread, threads): (usize, usize),
        poll: Poll,
    ) -> Desk {
        Desk {
            plan,
            pattern: Pattern::new(seed),
            clock,
            pace: None,
            ledger: Ledger::default(),
            from_ns: u64::MAX,
            until_ns: u64::MAX,
            may_begin: false,
            opened: 0,
            next_number: thread as u64,
            number_step: threads as u64,
            poll,
            input: vec![0; CHUNK_BYTES].into(),
            output: vec![0; CHUNK_BYTES].into(),
        }
    }

    fn is_measured(&self, at_ns: u64) -> bool {
        (self.from_ns..self.until_ns).contains(&at_ns)
    }

    /// An operation that began and ended.
    fn done(&mut self, begun_ns: u64, ended_ns: u64) {
        self.took(begun_ns, ended_ns);
        self.ledger.operations += u64::from(self.is_measured(ended_ns));
    }

    /// The latency of an operation, or the least that it would have been.
    pub(super) fn took(&mut self, begun_ns: u64, ended_ns: u64) {
        if begun_ns < self.until_ns && ended_ns >= self.from_ns {
            self.ledger.latency.record_ns(ended_ns.saturating_sub(begun_ns));
        }
    }
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Sends when its message has come back, or when one is due.
    Pinger,
    /// Says something at the beginning and at the end.
    Idle,
    /// Sends what the server takes and reads a message at each tick.
    SlowReader,
    /// A connection for each operation: sends, half-closes, reads to the end.
    HalfCloser,
    /// A connection for each operation: one message there and back.
    Stormer,
}

impl Role {
    /// Whether it is made anew for each operation.
    pub(super) fn is_by_connection(self) -> bool {
        matches!(self, Role::HalfCloser | Role::Stormer)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// No socket: not yet made, over, or failed.
    Closed,
    Connecting,
    Open,
    /// All is sent, and the server has been told so.
    HalfClosed,
}

/// One connection, or one after the other where the role makes them anew.
pub(super) struct Connection {
    role: Role,
    stage: Stage,
    /// Where it stands among the thread's connections.
    place: usize,
    number: u64,
    stream: Option<TcpStream>,
    key: Key,
    /// Bytes: to be sent, sent, come back.
    promised: u64,
    sent: u64,
    received: u64,
    /// Messages that have come back whole.
    whole: u64,
    /// When those operations began that have not ended.
    begun_ns: VecDeque<u64>,
    /// Operations that have begun, and that the schedule lets begin.
    operations: u64,
    pub due: u64,
    is_failed: bool,
}

impl Connection {
    pub(super) fn new(role: Role, place: usize) -> Connection {
        Connection {
            role,
            stage: Stage::Closed,
            place,
            number: 0,
            stream: None,
            key: Key::default(),
            promised: 0,
            sent: 0,
            received: 0,
            whole: 0,
            begun_ns: VecDeque::new(),
            operations: 0,
            due: 0,
            is_failed: false,
        }
    }

    pub(super) fn role(&self) -> Role {
        self.role
    }

    /// Operations that have begun.
    pub(super) fn operations(&self) -> u64 {
        self.operations
    }

    pub(super) fn is_failed(&self) -> bool {
        self.is_failed
    }

    /// Whether it has had its first message back.
    pub(super) fn is_greeted(&self) -> bool {
        self.whole > 0
    }

    /// Whether nothing of it is under way.
    pub(super) fn is_settled(&self) -> bool {
        self.stage == Stage::Closed
            || (self.stage == Stage::Open && self.is_echoed()) && !self.role.is_by_connection()
    }

    fn is_echoed(&self) -> bool {
        self.received == self.promised
    }

    /// Begins to connect.
    pub(super) fn open(&mut self, desk: &mut Desk) -> Result<(), Fault> {
        self.number = desk.next_number;
        desk.next_number += desk.number_step;
        self.key = desk.pattern.key(self.number);
        (self.promised, self.sent, self.received, self.whole) = (0, 0, 0, 0);
        let address = desk.plan.address;
        let stream = self.connect(desk).map_err(|error| Fault::Connect(address, error))?;
        self.stream = Some(stream);
        self.stage = Stage::Connecting;
        Ok(())
    }

    fn connect(&self, desk: &Desk) -> io::Result<TcpStream> {
        let address = &desk.plan.address;
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        if self.role == Role::SlowReader {
            sockopt::set_socket_recv_buffer_size(&socket, SLOW_BUFFER_BYTES)?;
        }
        match connect(&socket, address) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        desk.poll.add(&socket, self.place)?;
        Ok(TcpStream::from(socket))
    }

    /// Does what a ready socket lets be done.
    pub(super) fn ready(&mut self, flags: EventFlags, desk: &mut Desk) -> Result<(), Fault> {
        if self.stage == Stage::Connecting {
            self.connected(flags, desk)?;
        }
        let wanted = EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        let is_lazy = self.role == Role::SlowReader && desk.may_begin;
        if flags.intersects(wanted) && !is_lazy {
            self.receive(flags, desk)?;
        }
        self.advance(desk)
    }

    fn connected(&mut self, flags: EventFlags, desk: &mut Desk) -> Result<(), Fault> {
        let Some(stream) = &self.stream else { return Ok(()) };
        if !flags.intersects(EventFlags::OUT | EventFlags::ERR | EventFlags::HUP) {
            return Ok(());
        }
        if let Some(error) = stream.take_error().unwrap_or_else(Some) {
            return Err(Fault::Connect(desk.plan.address, error));
        }
        self.stage = Stage::Open;
        desk.ledger.connections_made += 1;
        let messages = if self.role == Role::HalfCloser { desk.plan.pipeline } else { 1 };
        self.promised = messages as u64 * desk.plan.length_bytes as u64;
        if !self.role.is_by_connection() {
            // The first message: it says that the server has taken the connection.
            self.begun_ns.push_back(desk.clock.now_ns());
        }
        Ok(())
    }

    /// Begins what may begin, and sends what is to be sent.
    pub(super) fn advance(&mut self, desk: &mut Desk) -> Result<(), Fault> {
        if desk.may_begin && !self.is_failed {
            match self.role {
                Role::Pinger if self.stage == Stage::Open => self.begin_messages(desk),
                Role::HalfCloser | Role::Stormer if self.stage == Stage::Closed => {
                    self.begin_connection(desk)?;
                }
                _ => {}
            }
        }
        self.send(desk)
    }

    fn begin_messages(&mut self, desk: &Desk) {
        let mut now_ns = None;
        while self.begun_ns.len() < desk.plan.pipeline {
            let Some(begun_ns) = self.next_begin_ns(desk, &mut now_ns) else { return };
            self.begun_ns.push_back(begun_ns);
            self.promised += desk.plan.length_bytes as u64;
        }
    }

    fn begin_connection(&mut self, desk: &mut Desk) -> Result<(), Fault> {
        let Some(begun_ns) = self.next_begin_ns(desk, &mut None) else { return Ok(()) };
        self.begun_ns.push_back(begun_ns);
        self.open(desk)
    }

    /// When the next operation begins, if it may begin now.
    fn next_begin_ns(&mut self, desk: &Desk, now_ns: &mut Option<u64>) -> Option<u64> {
        let begun_ns = match &desk.pace {
            None => *now_ns.get_or_insert_with(|| desk.clock.now_ns()),
            Some(pace) if self.operations < self.due => {
                pace.intended_of_ns(self.place, self.operations)
            }
            Some(_) => return None,
        };
        self.operations += 1;
        Some(begun_ns)
    }

    /// Sends until all is sent or the socket is full; then its next event says when to go on.
    fn send(&mut self, desk: &mut Desk) -> Result<(), Fault> {
        let Some(stream) = &self.stream else { return Ok(()) };
        if self.stage != Stage::Open {
            return Ok(());
        }
        while self.sent < self.promised {
            let count = (self.promised - self.sent).min(CHUNK_BYTES as u64) as usize;
            desk.pattern.fill(self.key, self.sent, &mut desk.output[..count]);
            match (&mut &*stream).write(&desk.output[..count]) {
                Ok(written) => self.sent += written as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.call_failed("sending", error)),
            }
        }
        if self.role == Role::HalfCloser {
            stream
                .shutdown(Shutdown::Write)
                .map_err(|error| self.call_failed("half-closing", error))?;
            self.stage = Stage::HalfClosed;
        }
        Ok(())
    }

    fn call_failed(&self, what: &'static str, error: io::Error) -> Fault {
        Fault::Call { what, error, echoed: self.received, sent: self.sent }
    }

    /// Receives until nothing is left. A read that fills less than its buffer has emptied the
    /// socket (epoll(7)), unless the event said that the end is behind it.
    fn receive(&mut self, flags: EventFlags, desk: &mut Desk) -> Result<(), Fault> {
        let is_ending = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        loop {
            match self.receive_once(CHUNK_BYTES, desk)? {
                Some(count) if count == CHUNK_BYTES || is_ending => {}
                _ => return Ok(()),
            }
        }
    }

    /// Receives and checks at most `most` bytes. None: nothing is left, or the connection is over.
    fn receive_once(&mut self, most: usize, desk: &mut Desk) -> Result<Option<usize>, Fault> {
        let Some(stream) = &self.stream else { return Ok(None) };
        let count = match (&mut &*stream).read(&mut desk.input[..most]) {
            Ok(0) => return self.ended(desk).map(|()| None),
            Ok(count) => count,
            Err(error) => {
                return match error.kind() {
                    io::ErrorKind::WouldBlock => Ok(None),
                    io::ErrorKind::Interrupted => Ok(Some(0)),
                    _ => Err(self.call_failed("receiving", error)),
                };
            }
        };
        self.check(count, desk)?;
        self.received += count as u64;
        self.take_whole(desk);
        Ok(Some(count))
    }

    fn check(&self, count: usize, desk: &mut Desk) -> Result<(), Fault> {
        let outstanding = self.sent - self.received;
        if count as u64 > outstanding {
            return Err(Fault::Unasked { sent: self.sent, more: count as u64 - outstanding });
        }
        desk.pattern.fill(self.key, self.received, &mut desk.output[..count]);
        let (expected, found) = (&desk.output[..count], &desk.input[..count]);
        if expected == found {
            return Ok(());
        }
        Err(Fault::wrong(self.received, desk.plan.length_bytes, expected, found))
    }

    /// Ends the operations whose messages have come back.
    fn take_whole(&mut self, desk: &mut Desk) {
        let whole = self.received / desk.plan.length_bytes as u64;
        if whole == self.whole {
            return;
        }
        let now_ns = desk.clock.now_ns();
        match self.role {
            Role::Pinger | Role::Idle => {
                desk.opened += usize::from(self.whole == 0);
                for number in self.whole..whole {
                    let begun_ns = self.begun_ns.pop_front().unwrap_or(now_ns);
                    // The first and the last of a silent connection are no operations.
                    if number > 0 && self.role == Role::Pinger {
                        desk.done(begun_ns, now_ns);
                    }
                }
            }
            Role::SlowReader => {
                desk.opened += usize::from(self.whole == 0);
                self.begun_ns.clear();
            }
            Role::HalfCloser => {}
            Role::Stormer => self.operation_over(now_ns, desk),
        }
        self.whole = whole;
    }

    /// The server has closed: as it should after a half-close, and too early otherwise.
    fn ended(&mut self, desk: &mut Desk) -> Result<(), Fault> {
        if self.stage != Stage::HalfClosed || !self.is_echoed() {
            return Err(Fault::Ended { echoed: self.received, sent: self.sent });
        }
        self.operation_over(desk.clock.now_ns(), desk);
        Ok(())
    }

    /// The operation that the connection was for has ended, and the connection with it.
    fn operation_over(&mut self, now_ns: u64, desk: &mut Desk) {
        let begun_ns = self.begun_ns.pop_front().unwrap_or(now_ns);
        desk.done(begun_ns, now_ns);
        self.close(desk);
    }

    /// A slow reader's moment: a little is read, and what the server takes is sent.
    pub(super) fn tick(&mut self, desk: &mut Desk) -> Result<(), Fault> {
        let length = desk.plan.length_bytes;
        self.receive_once(length.min(CHUNK_BYTES), desk)?;
        if self.stage == Stage::Open && self.promised - self.sent < SLOW_BYTES {
            self.promised += SLOW_BYTES.div_ceil(length as u64) * length as u64;
        }
        self.send(desk)
    }

    /// Nothing more begins: a silent connection says its last, a slow reader reads all.
    pub(super) fn wind_down(&mut self, desk: &mut Desk) -> Result<(), Fault> {
        if self.stage != Stage::Open {
            return Ok(());
        }
        match self.role {
            Role::Idle => self.promised += desk.plan.length_bytes as u64,
            Role::SlowReader => self.receive(EventFlags::RDHUP, desk)?,
            _ => {}
        }
        self.send(desk)
    }

    /// What keeps it from being settled, after `seconds` of nothing.
    pub(super) fn stuck(&self, seconds: u64) -> Fault {
        match self.stage {
            Stage::Connecting => Fault::Unopened { seconds },
            Stage::HalfClosed if self.is_echoed() => Fault::Unended { seconds },
            _ => Fault::Silent { seconds, echoed: self.received, sent: self.sent },
        }
    }

    /// Counts the connection as failed. What was under way took at least until now.
    pub(super) fn fail(&mut self, fault: &Fault, desk: &mut Desk) {
        let now_ns = desk.clock.now_ns();
        for begun_ns in std::mem::take(&mut self.begun_ns) {
            desk.took(begun_ns, now_ns);
        }
        desk.ledger.failed(self.number, fault);
        desk.opened += usize::from(self.whole == 0);
        self.is_failed = true;
        self.close(desk);
    }

    /// The end: nothing may come that was not asked for.
    pub(super) fn finish(&mut self, desk: &mut Desk) -> Result<(), Fault> {
        self.receive_once(CHUNK_BYTES, desk).or_else(|fault| match fault {
            // All is echoed, so that it may close.
            Fault::Ended { .. } | Fault::Call { .. } => Ok(None),
            fault => Err(fault),
        })?;
        self.close(desk);
        Ok(())
    }

    /// Closes the socket, and counts what went through it.
    fn close(&mut self, desk: &mut Desk) {
        let length = desk.plan.length_bytes as u64;
        let ledger = &mut desk.ledger;
        if self.stream.take().is_some() {
            ledger.sent += self.sent / length;
            ledger.received += self.received / length;
            ledger.bytes_sent += self.sent;
            ledger.bytes_received += self.received;
        }
        self.stage = Stage::Closed;
    }
}
