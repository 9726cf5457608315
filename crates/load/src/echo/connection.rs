//! One connection: what it sends, what has come back, and whether that is right.
//!
//! It never waits: it does what can be done when it is told that its socket is ready
//! (edge-triggered, epoll(7)), that an operation is due, or that the end has come.

use std::{
    collections::VecDeque,
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    sync::Arc,
};

use rustix::{event::epoll::EventFlags, net::sockopt};

use super::{
    fault::wrong_echo,
    pattern::{Key, Pattern},
    plan::Plan,
};
use crate::crew::{self, Fault};

/// The most that one call sends or receives.
const CHUNK_BYTES: usize = 64 << 10;
/// What a slow reader may have to send at each tick.
const SLOW_BYTES: u64 = 256 << 10;
/// The receive buffer of a slow reader, so that the server soon finds it full.
const SLOW_BUFFER_BYTES: usize = 16 << 10;

/// What the connections of a thread share beyond what all generators' do.
pub(super) struct Kit {
    pub plan: Arc<Plan>,
    pub pattern: Pattern,
    /// Numbers for connections: each that is made has its own.
    pub next_number: u64,
    /// When slow readers read next.
    pub tick_ns: u64,
    /// Bytes that came back.
    pub bytes_received: u64,
    input: Box<[u8]>,
    output: Box<[u8]>,
}

pub(super) type Desk = crew::Desk<Kit>;

impl Kit {
    pub(super) fn new(plan: Arc<Plan>, seed: u64, thread: usize) -> Kit {
        Kit {
            plan,
            pattern: Pattern::new(seed),
            next_number: thread as u64,
            tick_ns: 0,
            bytes_received: 0,
            input: vec![0; CHUNK_BYTES].into(),
            output: vec![0; CHUNK_BYTES].into(),
        }
    }
}

/// An operation that began and ended.
fn done(desk: &mut Desk, begun_ns: u64, ended_ns: u64) {
    desk.took(begun_ns, ended_ns, 1);
    desk.tally.operations += u64::from(desk.is_measured(ended_ns));
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Role {
    /// Sends when its message has come back, or when one is due.
    #[default]
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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// No socket: not yet made, over, or failed.
    #[default]
    Closed,
    Connecting,
    Open,
    /// All is sent, and the server has been told so.
    HalfClosed,
}

/// One connection, or one after the other where the role makes them anew.
#[derive(Default)]
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
        Connection { role, place, ..Connection::default() }
    }
}

impl crew::Connection for Connection {
    type Kit = Kit;

    fn open(&mut self, desk: &mut Desk) -> Result<(), Fault> {
        self.number = desk.kit.next_number;
        desk.kit.next_number += desk.kit.plan.threads as u64;
        self.key = desk.kit.pattern.key(self.number);
        (self.promised, self.sent, self.received, self.whole) = (0, 0, 0, 0);
        let address = desk.kit.plan.address;
        let is_slow = self.role == Role::SlowReader;
        let stream = desk.connect(address, self.place, |socket| match is_slow {
            true => sockopt::set_socket_recv_buffer_size(socket, SLOW_BUFFER_BYTES),
            false => Ok(()),
        });
        self.stream = Some(stream?);
        self.stage = Stage::Connecting;
        Ok(())
    }

    /// Whether it has had its first message back.
    fn is_open(&self) -> bool {
        self.whole > 0
    }

    fn is_failed(&self) -> bool {
        self.is_failed
    }

    fn is_over(&self) -> bool {
        self.stage == Stage::Closed
            || (self.stage == Stage::Open && self.is_echoed()) && !self.role.is_by_connection()
    }

    fn ready(&mut self, flags: EventFlags, desk: &mut Desk) -> Result<(), Fault> {
        if self.stage == Stage::Connecting {
            self.connected(flags, desk)?;
        }
        let wanted = EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        let is_lazy = self.role == Role::SlowReader && desk.may_send;
        if flags.intersects(wanted) && !is_lazy {
            self.receive(flags, desk)?;
        }
        self.advance(desk)
    }

    fn advance(&mut self, desk: &mut Desk) -> Result<(), Fault> {
        if desk.may_send && !self.is_failed {
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

    /// Nothing more begins: a silent connection says its last, a slow reader reads all.
    fn wind_down(&mut self, desk: &mut Desk) -> Result<(), Fault> {
        if self.stage != Stage::Open {
            return Ok(());
        }
        match self.role {
            Role::Idle => self.promised += desk.kit.plan.length_bytes as u64,
            Role::SlowReader => self.receive(EventFlags::RDHUP, desk)?,
            _ => {}
        }
        self.send(desk)
    }

    /// The end: nothing may come that was not asked for.
    fn finish(&mut self, desk: &mut Desk) -> Result<(), Fault> {
        self.receive_once(CHUNK_BYTES, desk).or_else(|fault| match fault {
            // All is echoed, so that it may close.
            Fault::Broken(_) => Ok(None),
            fault => Err(fault),
        })?;
        self.close(desk);
        Ok(())
    }

    fn stuck(&self, seconds: u64, _: &Desk) -> Fault {
        let was_taken = self.is_open() || self.role.is_by_connection();
        Fault::Wrong(match self.stage {
            stage if stage == Stage::Connecting || !was_taken => {
                format!("not taken, or its first message not echoed, within {seconds} s")
            }
            Stage::HalfClosed if self.is_echoed() => format!(
                "all was echoed, but the server did not close within {seconds} s of the half-close"
            ),
            _ => format!("no echo for {seconds} s after the end ({})", self.progress()),
        })
    }

    fn fail(&mut self, fault: &Fault, desk: &mut Desk) {
        let now_ns = desk.clock.now_ns();
        for begun_ns in std::mem::take(&mut self.begun_ns) {
            desk.took(begun_ns, now_ns, 1);
        }
        desk.tally.failed(self.number, fault);
        desk.opened += usize::from(self.whole == 0);
        self.is_failed = true;
        self.close(desk);
    }
}

impl Connection {
    pub(super) fn role(&self) -> Role {
        self.role
    }

    /// Operations that have begun.
    pub(super) fn operations(&self) -> u64 {
        self.operations
    }

    fn is_echoed(&self) -> bool {
        self.received == self.promised
    }

    fn progress(&self) -> String {
        format!("{} of {} bytes were echoed", self.received, self.sent)
    }

    fn connected(&mut self, flags: EventFlags, desk: &mut Desk) -> Result<(), Fault> {
        let Some(stream) = &self.stream else { return Ok(()) };
        if !desk.is_connected(stream, flags, desk.kit.plan.address)? {
            return Ok(());
        }
        self.stage = Stage::Open;
        let messages = if self.role == Role::HalfCloser { desk.kit.plan.pipeline } else { 1 };
        self.promised = messages as u64 * desk.kit.plan.length_bytes as u64;
        if !self.role.is_by_connection() {
            // The first message: it says that the server has taken the connection.
            self.begun_ns.push_back(desk.clock.now_ns());
        }
        Ok(())
    }

    fn begin_messages(&mut self, desk: &Desk) {
        let mut now_ns = None;
        while self.begun_ns.len() < desk.kit.plan.pipeline {
            let Some(begun_ns) = self.next_begin_ns(desk, &mut now_ns) else { return };
            self.begun_ns.push_back(begun_ns);
            self.promised += desk.kit.plan.length_bytes as u64;
        }
    }

    fn begin_connection(&mut self, desk: &mut Desk) -> Result<(), Fault> {
        let Some(begun_ns) = self.next_begin_ns(desk, &mut None) else { return Ok(()) };
        self.begun_ns.push_back(begun_ns);
        crew::Connection::open(self, desk)
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
            desk.kit.pattern.fill(self.key, self.sent, &mut desk.kit.output[..count]);
            match (&mut &*stream).write(&desk.kit.output[..count]) {
                Ok(written) => self.sent += written as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.call_failed("sending", &error)),
            }
        }
        if self.role == Role::HalfCloser {
            stream
                .shutdown(Shutdown::Write)
                .map_err(|error| self.call_failed("half-closing", &error))?;
            self.stage = Stage::HalfClosed;
        }
        Ok(())
    }

    fn call_failed(&self, what: &str, error: &io::Error) -> Fault {
        Fault::of_call(what, error, &self.progress())
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
        let count = match (&mut &*stream).read(&mut desk.kit.input[..most]) {
            Ok(0) => return self.ended(desk).map(|()| None),
            Ok(count) => count,
            Err(error) => {
                return match error.kind() {
                    io::ErrorKind::WouldBlock => Ok(None),
                    io::ErrorKind::Interrupted => Ok(Some(0)),
                    _ => Err(self.call_failed("receiving", &error)),
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
            let more = count as u64 - outstanding;
            return Err(Fault::Wrong(format!(
                "the server sent {more} bytes more than the {} that it was given",
                self.sent
            )));
        }
        desk.kit.pattern.fill(self.key, self.received, &mut desk.kit.output[..count]);
        let (expected, found) = (&desk.kit.output[..count], &desk.kit.input[..count]);
        if expected == found {
            return Ok(());
        }
        Err(wrong_echo(self.received, desk.kit.plan.length_bytes, expected, found))
    }

    /// Ends the operations whose messages have come back.
    fn take_whole(&mut self, desk: &mut Desk) {
        let whole = self.received / desk.kit.plan.length_bytes as u64;
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
                        done(desk, begun_ns, now_ns);
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
            return Err(Fault::Broken(format!(
                "the server closed it after echoing {} of {} bytes",
                self.received, self.sent
            )));
        }
        self.operation_over(desk.clock.now_ns(), desk);
        Ok(())
    }

    /// The operation that the connection was for has ended, and the connection with it.
    fn operation_over(&mut self, now_ns: u64, desk: &mut Desk) {
        let begun_ns = self.begun_ns.pop_front().unwrap_or(now_ns);
        done(desk, begun_ns, now_ns);
        self.close(desk);
    }

    /// A slow reader's moment: a little is read, and what the server takes is sent.
    pub(super) fn tick(&mut self, desk: &mut Desk) -> Result<(), Fault> {
        let length = desk.kit.plan.length_bytes;
        self.receive_once(length.min(CHUNK_BYTES), desk)?;
        if self.stage == Stage::Open && self.promised - self.sent < SLOW_BYTES {
            self.promised += SLOW_BYTES.div_ceil(length as u64) * length as u64;
        }
        self.send(desk)
    }

    /// Closes the socket, and counts what went through it.
    fn close(&mut self, desk: &mut Desk) {
        let length = desk.kit.plan.length_bytes as u64;
        if self.stream.take().is_some() {
            desk.tally.sent += self.sent / length;
            desk.tally.received += self.received / length;
            desk.tally.bytes_sent += self.sent;
            desk.kit.bytes_received += self.received;
        }
        self.stage = Stage::Closed;
    }
}
