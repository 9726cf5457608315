//! One thread's loop: hands the kernel what the rules ask for, and tells them what came of it.
//!
//! Completions of one submit are taken all together, then each connection that they concern is
//! asked once for what to do: what arrived for it meanwhile goes out by one send, and all sends of
//! a turn by one submit. It runs on a ring and on classic calls alike and does not know which.

use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::mpsc::Sender,
    time::{Duration, Instant},
};

use ringwise::{
    BufferGroup, Completion, Descriptor, Local, Operation, Received, Setup, Ticket, net,
    net::ListenOptions,
};

use crate::{
    args::EngineChoice,
    connection::{Connection, Step},
    error::EchoError,
    spin::Spin,
    stats::Stats,
};

/// Buffers that the connections of a thread share. Few, so that they are in the cache when they
/// are used again.
const BUFFERS: usize = 256;
/// A line of the cache more than a page: buffers whose beginnings are a page apart push each other
/// out of the first cache.
const BUFFER_BYTES: usize = 4096 + 64;

/// Operations of a connection at a time: a receive, a send, and the cancel of one.
const OPERATIONS_EACH: usize = 3;
/// Operations that are no connection's.
const OPERATIONS_BESIDE: usize = 8;
/// Completions that a loop has room for at most, for its user.
const OPERATIONS_MAX: usize = 65_534;

/// What the other threads ask a worker for, in a byte each.
pub(crate) const TELL: u8 = b't';
pub(crate) const DRAIN: u8 = b'd';

/// What an operation is for: the upper half of its tag. The lower is a connection's index.
const FOR_CONTROL: u64 = 0;
const FOR_ACCEPT: u64 = 1 << 32;
const FOR_RECEIVE: u64 = 2 << 32;
const FOR_SEND: u64 = 3 << 32;
const FOR_NOTHING: u64 = 4 << 32;

/// How a worker is made.
pub(crate) struct Order {
    pub(crate) engine: EngineChoice,
    pub(crate) spin: Duration,
    pub(crate) drain: Duration,
    pub(crate) connections_max: usize,
    /// What it is asked through.
    pub(crate) control: UnixStream,
    /// Where it tells what it counted.
    pub(crate) stats: Sender<Stats>,
}

/// The loop of one thread.
pub(crate) struct Worker {
    local: Local,
    group: BufferGroup,
    /// Open until the drain begins: another server may then listen here.
    listener: Option<Descriptor>,
    accepting: Accepting,
    control: Descriptor,
    clients: Vec<Option<Client>>,
    vacant: Vec<usize>,
    open: usize,
    connections_max: usize,
    /// Accepted beyond what may be open.
    waiting: VecDeque<Descriptor>,
    /// Connections that something happened to, each once.
    touched: Vec<usize>,
    /// Connections with a send of which nothing may be heard.
    quiet: Vec<usize>,
    spin: Spin,
    drain: Duration,
    drain_until: Option<Instant>,
    counts: Stats,
    stats: Sender<Stats>,
}

struct Client {
    socket: Descriptor,
    connection: Connection<Received>,
    receive: Ticket,
    is_touched: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accepting {
    On(Ticket),
    /// On, and told to end.
    Ending,
    Off,
}

impl Worker {
    /// Opens a loop on this thread and listens.
    pub(crate) fn new(
        order: Order,
        address: &SocketAddr,
        options: &ListenOptions,
    ) -> Result<Worker, EchoError> {
        let operations = order.connections_max * OPERATIONS_EACH + OPERATIONS_BESIDE;
        if operations > OPERATIONS_MAX {
            return Err(EchoError::new(format!(
                "{} connections are more than one thread's loop holds: ask for --threads {}",
                order.connections_max,
                operations.div_ceil(OPERATIONS_MAX) + 1
            )));
        }
        let listener =
            net::listen_tcp(address, options).map_err(|error| EchoError::new(error.to_string()))?;
        let builder = Local::builder().backend(order.engine.backend());
        let mut local = builder
            .entries((operations.div_ceil(2) + 1).max(64) as u32)
            .build()
            .map_err(|error| EchoError::new(error.to_string()))?;
        let group = BufferGroup::new(&mut local, BUFFERS, BUFFER_BYTES)
            .map_err(|error| EchoError::new(error.to_string()))?;
        Ok(Worker {
            local,
            group,
            listener: Some(listener),
            accepting: Accepting::Off,
            control: Descriptor::from(OwnedFd::from(order.control)),
            clients: Vec::new(),
            vacant: Vec::new(),
            open: 0,
            connections_max: order.connections_max,
            waiting: VecDeque::new(),
            touched: Vec::new(),
            quiet: Vec::new(),
            spin: Spin::new(order.spin),
            drain: order.drain,
            drain_until: None,
            counts: Stats::default(),
            stats: order.stats,
        })
    }

    pub(crate) fn address(&self) -> Result<SocketAddr, EchoError> {
        let listener = self.listener.as_ref().expect("it does not drain yet");
        match net::local_address(listener) {
            Ok(net::Address::Ip(address)) => Ok(address),
            Ok(other) => Err(EchoError::new(format!("listening on {other:?}, of another kind"))),
            Err(error) => Err(EchoError::new(error.to_string())),
        }
    }

    pub(crate) fn setup(&self) -> &Setup {
        self.local.setup()
    }

    /// Serves until it is told to drain and has, or the time for that is over.
    pub(crate) fn run(mut self) -> Result<(), EchoError> {
        self.listen_to_control()?;
        self.accept()?;
        while !self.has_drained() {
            self.wait()?;
            while let Some(completion) = self.local.next_completion() {
                self.take(completion)?;
            }
            self.act()?;
        }
        self.tell();
        Ok(())
    }

    /// Hands over what was pushed and waits for something to happen.
    fn wait(&mut self) -> Result<(), EchoError> {
        let failed = |error: ringwise::Error| EchoError::new(error.to_string());
        if self.is_somebody_waiting_for_silence() {
            return self.local.submit().map(drop).map_err(failed);
        }
        if self.spin.is_worth_it() {
            if self.local.submit().map_err(failed)? > 0 {
                return Ok(());
            }
            let local = &mut self.local;
            if self.spin.look(|| local.has_work()) {
                return self.local.submit().map(drop).map_err(failed);
            }
        }
        self.counts.sleeps += 1;
        let waited = match self.drain_until {
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                self.local.submit_and_wait_timeout(1, left)
            }
            None => self.local.submit_and_wait(1),
        };
        waited.map(drop).map_err(failed)
    }

    /// Whether a connection goes on as soon as nothing was heard of its send.
    fn is_somebody_waiting_for_silence(&self) -> bool {
        self.quiet.iter().any(|&index| {
            let client = self.clients[index].as_ref();
            client.is_some_and(|client| client.connection.is_waiting_for_silence())
        })
    }

    fn take(&mut self, completion: Completion) -> Result<(), EchoError> {
        let index = completion.tag() as u32 as usize;
        match completion.tag() & !u64::from(u32::MAX) {
            FOR_RECEIVE => self.take_received(index, completion),
            FOR_SEND => self.take_sent(index, completion),
            FOR_ACCEPT => return self.take_accepted(completion),
            FOR_CONTROL => return self.take_control(completion),
            _ => {}
        }
        Ok(())
    }

    fn take_received(&mut self, index: usize, completion: Completion) {
        let Some(client) = &mut self.clients[index] else { return };
        let (result, has_more) = (completion.raw_result(), completion.has_more());
        if let Some(received) = completion.into_received() {
            self.counts.receives += 1;
            self.counts.received_bytes += received.len() as u64;
            client.connection.received(received);
        }
        if !has_more {
            match result {
                0 => client.connection.input_ended(),
                1.. => client.connection.receiving_stopped(),
                _ if -result == rustix::io::Errno::CANCELED.raw_os_error() => {
                    client.connection.receiving_stopped();
                }
                _ => client.connection.receiving_failed(),
            }
        }
        self.touch(index);
    }

    fn take_sent(&mut self, index: usize, completion: Completion) {
        let Some(client) = &mut self.clients[index] else { return };
        let sent = usize::try_from(completion.raw_result());
        let buffer = completion.into_buffer();
        let bytes = buffer.as_ref().map_or(&[][..], |buffer| buffer.selected());
        let rest = &bytes[sent.unwrap_or(0)..];
        // Counted when it was handed over; what is left will be again.
        self.counts.sent_bytes -= rest.len() as u64;
        match sent {
            Ok(_) => {
                self.counts.stalled_sends += u64::from(!rest.is_empty());
                client.connection.sent(rest);
            }
            Err(_) => client.connection.sending_failed(),
        }
        self.touch(index);
    }

    fn touch(&mut self, index: usize) {
        if let Some(client) = &mut self.clients[index]
            && !std::mem::replace(&mut client.is_touched, true)
        {
            self.touched.push(index);
        }
    }

    /// Does what the rules ask for, for all that something happened to.
    fn act(&mut self) -> Result<(), EchoError> {
        let mut quiet = std::mem::take(&mut self.quiet);
        for index in quiet.drain(..) {
            if let Some(client) = &mut self.clients[index] {
                client.connection.silence();
            }
            self.touch(index);
        }
        self.quiet = quiet;
        let mut touched = std::mem::take(&mut self.touched);
        for index in touched.drain(..) {
            self.act_on(index)?;
        }
        self.touched = touched;
        self.admit()
    }

    fn act_on(&mut self, index: usize) -> Result<(), EchoError> {
        while let Some(client) = &mut self.clients[index] {
            client.is_touched = false;
            let Some(step) = client.connection.step() else { return Ok(()) };
            let socket = &client.socket;
            let tag = FOR_SEND | index as u64;
            match step {
                Step::SendFresh(bytes) => {
                    self.counts.sending(bytes.len());
                    push(&mut self.local, Operation::send_quiet(socket, bytes), tag)?;
                    self.quiet.push(index);
                }
                Step::SendJoined(bytes) => {
                    self.counts.sending(bytes.len());
                    push(&mut self.local, Operation::send_quiet(socket, bytes), tag)?;
                    self.quiet.push(index);
                }
                Step::SendAll(bytes) => {
                    self.counts.sending(bytes.len());
                    push(&mut self.local, Operation::send_all(socket, bytes), tag)?;
                }
                Step::Receive => {
                    let receive = Operation::recv_multi(socket, &self.group);
                    client.receive = push(&mut self.local, receive, FOR_RECEIVE | index as u64)?;
                }
                Step::StopReceiving => {
                    self.counts.stopped_senders += 1;
                    push(&mut self.local, Operation::cancel(client.receive), FOR_NOTHING)?;
                }
                Step::EndWriting => {
                    // It fails where the other end has gone, which the receive tells as well.
                    let _ = net::shutdown(socket, net::Shutdown::Write);
                }
                Step::Close => self.close(index),
            }
        }
        Ok(())
    }

    fn close(&mut self, index: usize) {
        let client = self.clients[index].take().expect("it was asked just now");
        self.counts.broken += u64::from(client.connection.is_broken());
        self.open -= 1;
        self.vacant.push(index);
    }

    fn take_accepted(&mut self, completion: Completion) -> Result<(), EchoError> {
        if !completion.has_more() {
            self.accepting = Accepting::Off;
            let result = completion.raw_result();
            let is_told = -result == rustix::io::Errno::CANCELED.raw_os_error();
            if result < 0 && !is_told && self.drain_until.is_none() {
                let error = completion.result().expect_err("it is negative");
                return Err(EchoError::new(error.to_string()));
            }
        }
        if let Ok(socket) = completion.into_descriptor() {
            self.waiting.push_back(socket);
        }
        Ok(())
    }

    /// Serves who waits as far as there is room, and accepts while there is.
    fn admit(&mut self) -> Result<(), EchoError> {
        if self.drain_until.is_some() {
            self.waiting.clear();
            return Ok(());
        }
        while self.open < self.connections_max
            && let Some(socket) = self.waiting.pop_front()
        {
            self.serve(socket)?;
        }
        let has_room = self.open < self.connections_max;
        match self.accepting {
            Accepting::Off if has_room => self.accept(),
            Accepting::On(ticket) if !has_room => {
                self.accepting = Accepting::Ending;
                push(&mut self.local, Operation::cancel(ticket), FOR_NOTHING).map(drop)
            }
            _ => Ok(()),
        }
    }

    fn accept(&mut self) -> Result<(), EchoError> {
        let Some(listener) = &self.listener else { return Ok(()) };
        let accept = Operation::accept_multi(listener);
        self.accepting = Accepting::On(push(&mut self.local, accept, FOR_ACCEPT)?);
        Ok(())
    }

    fn serve(&mut self, socket: Descriptor) -> Result<(), EchoError> {
        // It fails where the other end has gone already, which the receive tells as well.
        let _ = net::set_nodelay(&socket, true);
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.clients.push(None);
            self.clients.len() - 1
        });
        let receive = Operation::recv_multi(&socket, &self.group);
        let receive = push(&mut self.local, receive, FOR_RECEIVE | index as u64)?;
        let connection = Connection::new();
        self.clients[index] = Some(Client { socket, connection, receive, is_touched: false });
        self.open += 1;
        self.counts.accepted += 1;
        Ok(())
    }

    fn listen_to_control(&mut self) -> Result<(), EchoError> {
        let receive = Operation::recv(&self.control, vec![0; 16]);
        push(&mut self.local, receive, FOR_CONTROL).map(drop)
    }

    fn take_control(&mut self, completion: Completion) -> Result<(), EchoError> {
        let asked = completion.raw_result();
        let bytes = completion.into_buffer();
        let bytes = bytes.as_ref().map_or(&[][..], |buffer| buffer.as_slice());
        // Without anybody to ask there is nobody to serve for.
        let asked = usize::try_from(asked).ok().filter(|asked| *asked > 0);
        let Some(asked) = asked else { return self.begin_drain() };
        for &byte in &bytes[..asked] {
            match byte {
                TELL => self.tell(),
                _ => self.begin_drain()?,
            }
        }
        self.listen_to_control()
    }

    fn begin_drain(&mut self) -> Result<(), EchoError> {
        if self.drain_until.is_some() {
            // Asked twice: at once.
            self.drain_until = Some(Instant::now());
            return Ok(());
        }
        self.drain_until = Some(Instant::now() + self.drain);
        if let Some(listener) = self.listener.take() {
            // At once, before anybody is told of the end: the accept holds it until its own
            // (net/ipv4/af_inet.c, inet_shutdown).
            let _ = net::shutdown(&listener, net::Shutdown::Read);
        }
        if let Accepting::On(ticket) = self.accepting {
            self.accepting = Accepting::Ending;
            push(&mut self.local, Operation::cancel(ticket), FOR_NOTHING)?;
        }
        for index in 0..self.clients.len() {
            if let Some(client) = &mut self.clients[index] {
                client.connection.drain();
                self.touch(index);
            }
        }
        Ok(())
    }

    fn has_drained(&self) -> bool {
        self.drain_until.is_some_and(|until| self.open == 0 || Instant::now() >= until)
    }

    /// Tells what was counted. Nobody listens any more at the end of everything.
    fn tell(&mut self) {
        let stats = Stats {
            open: self.open as u64,
            enters: self.local.stats().enters,
            spared_sleeps: self.spin.spared_sleeps,
            ..self.counts
        };
        let _ = self.stats.send(stats);
    }
}

fn push(local: &mut Local, operation: Operation, tag: u64) -> Result<Ticket, EchoError> {
    local.push(operation, tag).map_err(|error| EchoError::new(error.to_string()))
}

/// Two ends: one to ask a worker through, one that it listens to.
pub(crate) fn control() -> io::Result<(UnixStream, UnixStream)> {
    UnixStream::pair()
}
