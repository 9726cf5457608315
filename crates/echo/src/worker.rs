//! One thread's loop: hands the kernel what the rules ask for, and tells them what came of it.
//!
//! Completions of one submit are taken all together, then each connection that they concern is
//! asked once for what to do: what arrived for it meanwhile goes out by one send, and all sends of
//! a turn by one submit. It runs on a ring and on classic calls alike and does not know which.

use std::{
    net::SocketAddr,
    sync::mpsc::Sender,
    time::{Duration, Instant},
};

use ringwise::{BufferGroup, Completion, Descriptor, Local, Operation, Setup, Ticket, net};
use ringwise_serve::{Door, Ear, Request, Seat, ServeError};

use crate::{
    args::Args,
    connection::{Connection, Step},
    direct::{self, Direct, LOOKS_BETWEEN, LOOKS_MIN, Piece},
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

/// Waits between two questions on which processor the client runs, each of which is a syscall.
const ROUNDS_BETWEEN: u32 = 64;

/// What an operation is for: the upper half of its tag. The lower is a connection's index.
const FOR_CONTROL: u64 = 0;
const FOR_ACCEPT: u64 = 1 << 32;
const FOR_RECEIVE: u64 = 2 << 32;
const FOR_SEND: u64 = 3 << 32;
const FOR_NOTHING: u64 = 4 << 32;

/// The loop of one thread.
pub(crate) struct Worker {
    local: Local,
    group: BufferGroup,
    door: Door,
    ear: Ear,
    clients: Vec<Option<Client>>,
    vacant: Vec<usize>,
    /// Connections that something happened to, each once.
    touched: Vec<usize>,
    /// Connections with a send of which nothing may be heard.
    quiet: Vec<usize>,
    spin: Spin,
    direct: Direct,
    /// How often the loop has waited.
    rounds: u32,
    /// The connection that something happened to last.
    latest: usize,
    /// A send was pushed since the loop was asked last.
    has_pushed: bool,
    /// What is received into by looking.
    scratch: Vec<u8>,
    drain: Duration,
    drain_until: Option<Instant>,
    counts: Stats,
    stats: Sender<Stats>,
}

struct Client {
    socket: Descriptor,
    connection: Connection<Piece>,
    receive: Ticket,
    is_touched: bool,
}

impl Worker {
    /// Opens a loop on this thread and listens.
    pub(crate) fn new(mut seat: Seat<Stats>, order: &Args) -> Result<Worker, ServeError> {
        let mut local = seat.open_loop(OPERATIONS_EACH, OPERATIONS_BESIDE)?;
        let group = BufferGroup::new(&mut local, BUFFERS, BUFFER_BYTES).map_err(ServeError::new)?;
        let (door, ear, stats) = seat.take(FOR_ACCEPT, FOR_CONTROL, FOR_NOTHING)?;
        door.give_up_after(order.patience)?;
        Ok(Worker {
            local,
            group,
            door,
            ear,
            clients: Vec::new(),
            vacant: Vec::new(),
            touched: Vec::new(),
            quiet: Vec::new(),
            spin: Spin::new(order.spin),
            direct: Direct::No,
            rounds: 0,
            latest: 0,
            has_pushed: false,
            scratch: vec![0; BUFFER_BYTES],
            drain: order.drain,
            drain_until: None,
            counts: Stats::default(),
            stats,
        })
    }

    /// Serves until it is told to drain and has, or the time for that is over.
    fn serve(&mut self) -> Result<(), ServeError> {
        self.ear.listen(&mut self.local)?;
        self.door.keep(&mut self.local)?;
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
    fn wait(&mut self) -> Result<(), ServeError> {
        let failed = |error: ringwise::Error| ServeError::new(error);
        if self.is_somebody_waiting_for_silence() {
            return self.local.submit().map(drop).map_err(failed);
        }
        self.choose_way()?;
        self.rounds = self.rounds.wrapping_add(1);
        if self.rounds.is_multiple_of(ROUNDS_BETWEEN)
            && let Some(client) = self.clients.get(self.latest).and_then(Option::as_ref)
        {
            self.spin.learn_processor(&client.socket);
        }
        if self.spin.is_worth_it() {
            if self.asks_loop() && self.local.submit().map_err(failed)? > 0 {
                self.spin.found();
                return Ok(());
            }
            if self.look() {
                return self.local.submit().map(drop).map_err(failed);
            }
            if !self.touched.is_empty() {
                return Ok(());
            }
        }
        self.arm()?;
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

    /// Has the only connection receive by looking where looks find what comes, and not where it is no
    /// longer the only one.
    fn choose_way(&mut self) -> Result<(), ServeError> {
        let is_alone = self.door.open() == 1;
        match self.direct {
            Direct::Yes(_) if !is_alone => self.arm(),
            Direct::No if is_alone && self.spin.hits() >= LOOKS_MIN => {
                let Some(index) = self.clients.iter().position(Option::is_some) else {
                    return Ok(());
                };
                let client = self.clients[index].as_mut().expect("found just now");
                if !client.connection.stop_receiving() {
                    return Ok(());
                }
                self.direct = Direct::Ending(index);
                push(&mut self.local, Operation::cancel(client.receive), FOR_NOTHING).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Whether the loop is asked before the next look. On epoll that is a syscall, and a connection
    /// that receives by looking needs the loop only for what else there may be. A send that was
    /// pushed has to go first: a direct answer would overtake it.
    fn asks_loop(&mut self) -> bool {
        std::mem::take(&mut self.has_pushed)
            || !matches!(self.direct, Direct::Yes(_))
            || self.rounds.is_multiple_of(LOOKS_BETWEEN)
    }

    /// Looks for work; true: the loop has some. What the only connection received is taken at once.
    fn look(&mut self) -> bool {
        let (local, scratch) = (&mut self.local, &mut self.scratch);
        let client = match self.direct {
            Direct::Yes(index) => self.clients[index].as_ref().map(|client| (index, client)),
            Direct::No | Direct::Ending(_) => None,
        };
        let Some((index, client)) = client else { return self.spin.look(|| local.has_work()) };
        let (mut looks, mut piece) = (0_u32, None);
        let found = self.spin.look(|| {
            looks += 1;
            piece = direct::look(&client.socket, scratch);
            piece.is_some() || (looks.is_multiple_of(LOOKS_BETWEEN) && local.has_work())
        });
        let Some(piece) = piece else { return found };
        self.take_direct(index, piece);
        false
    }

    fn take_direct(&mut self, index: usize, piece: Result<Piece, rustix::io::Errno>) {
        let Some(client) = &mut self.clients[index] else { return };
        match piece {
            Ok(bytes) if bytes.is_empty() => {
                self.direct = Direct::No;
                client.connection.input_ended();
            }
            Ok(bytes) => {
                self.counts.receives += 1;
                self.counts.direct_receives += 1;
                self.counts.received_bytes += bytes.len() as u64;
                client.connection.received(bytes);
            }
            Err(_) => {
                self.direct = Direct::No;
                client.connection.receiving_failed();
            }
        }
        self.touch(index);
    }

    /// Has the connection that received by looking receive as all do.
    fn arm(&mut self) -> Result<(), ServeError> {
        let Direct::Yes(index) = self.direct else { return Ok(()) };
        self.direct = Direct::No;
        self.receive(index)
    }

    fn receive(&mut self, index: usize) -> Result<(), ServeError> {
        let Some(client) = &mut self.clients[index] else { return Ok(()) };
        let receive = Operation::recv_multi(&client.socket, &self.group);
        client.receive = push(&mut self.local, receive, FOR_RECEIVE | index as u64)?;
        Ok(())
    }

    /// Whether a connection goes on as soon as nothing was heard of its send.
    fn is_somebody_waiting_for_silence(&self) -> bool {
        self.quiet.iter().any(|&index| {
            let client = self.clients[index].as_ref();
            client.is_some_and(|client| client.connection.is_waiting_for_silence())
        })
    }

    fn take(&mut self, completion: Completion) -> Result<(), ServeError> {
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

    /// A failed accept is counted, and the door goes on.
    fn take_accepted(&mut self, completion: Completion) -> Result<(), ServeError> {
        self.counts.accept_failures += u64::from(self.door.take(completion)?.is_some());
        Ok(())
    }

    fn take_received(&mut self, index: usize, completion: Completion) {
        let Some(client) = &mut self.clients[index] else { return };
        let (result, has_more) = (completion.raw_result(), completion.has_more());
        if let Some(received) = completion.into_received() {
            self.counts.receives += 1;
            self.counts.received_bytes += received.len() as u64;
            client.connection.received(Piece::Chosen(received));
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
    fn act(&mut self) -> Result<(), ServeError> {
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

    fn act_on(&mut self, index: usize) -> Result<(), ServeError> {
        while let Some(client) = &mut self.clients[index] {
            client.is_touched = false;
            self.latest = index;
            let Some(step) = client.connection.step() else { return Ok(()) };
            let socket = &client.socket;
            let tag = FOR_SEND | index as u64;
            match step {
                Step::SendFresh(bytes) if self.direct == Direct::Yes(index) => {
                    let sent = direct::answer(socket, &bytes);
                    let taken = sent.unwrap_or(0);
                    self.counts.sending(taken);
                    self.counts.stalled_sends += u64::from(taken < bytes.len());
                    match sent {
                        Ok(_) => client.connection.sent(&bytes[taken..]),
                        Err(_) => client.connection.sending_failed(),
                    }
                }
                Step::SendFresh(bytes) => {
                    self.counts.sending(bytes.len());
                    let send = match bytes {
                        Piece::Chosen(received) => Operation::send_quiet(socket, received),
                        Piece::Own(bytes) => Operation::send_quiet(socket, bytes),
                    };
                    self.has_pushed = true;
                    push(&mut self.local, send, tag)?;
                    self.quiet.push(index);
                }
                Step::SendJoined(bytes) => {
                    self.counts.sending(bytes.len());
                    self.has_pushed = true;
                    push(&mut self.local, Operation::send_quiet(socket, bytes), tag)?;
                    self.quiet.push(index);
                }
                Step::SendAll(bytes) => {
                    self.counts.sending(bytes.len());
                    self.has_pushed = true;
                    push(&mut self.local, Operation::send_all(socket, bytes), tag)?;
                }
                Step::Receive if self.direct == Direct::Ending(index) => {
                    self.direct = Direct::Yes(index);
                }
                Step::Receive => self.receive(index)?,
                Step::StopReceiving if self.direct == Direct::Yes(index) => {
                    self.counts.stopped_senders += 1;
                    self.direct = Direct::No;
                    client.connection.receiving_stopped();
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
        if matches!(self.direct, Direct::Ending(which) | Direct::Yes(which) if which == index) {
            self.direct = Direct::No;
        }
        self.counts.broken += u64::from(client.connection.is_broken());
        self.door.left();
        self.vacant.push(index);
    }

    /// Serves who waits as far as there is room, and accepts while there is.
    fn admit(&mut self) -> Result<(), ServeError> {
        if self.drain_until.is_some() {
            self.door.clear();
            return Ok(());
        }
        while let Some(socket) = self.door.admit() {
            self.welcome(socket)?;
        }
        self.door.keep(&mut self.local)
    }

    fn welcome(&mut self, socket: Descriptor) -> Result<(), ServeError> {
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
        self.counts.accepted += 1;
        Ok(())
    }

    fn take_control(&mut self, completion: Completion) -> Result<(), ServeError> {
        for request in self.ear.heard(completion) {
            match request {
                Request::Tell => self.tell(),
                Request::Reload => {}
                Request::Drain => self.begin_drain()?,
            }
        }
        self.ear.listen(&mut self.local)
    }

    fn begin_drain(&mut self) -> Result<(), ServeError> {
        if self.drain_until.is_some() {
            // Asked twice: at once.
            self.drain_until = Some(Instant::now());
            return Ok(());
        }
        self.drain_until = Some(Instant::now() + self.drain);
        self.door.shut(&mut self.local)?;
        for index in 0..self.clients.len() {
            if let Some(client) = &mut self.clients[index] {
                client.connection.drain();
                self.touch(index);
            }
        }
        Ok(())
    }

    fn has_drained(&self) -> bool {
        self.drain_until.is_some_and(|until| self.door.open() == 0 || Instant::now() >= until)
    }

    /// Tells what was counted. Nobody listens any more at the end of everything.
    fn tell(&mut self) {
        let stats = Stats {
            open: self.door.open() as u64,
            enters: self.local.stats().enters,
            spared_sleeps: self.spin.spared_sleeps,
            ..self.counts
        };
        let _ = self.stats.send(stats);
    }
}

impl ringwise_serve::Worker for Worker {
    type Stats = Stats;
    type Error = ServeError;

    fn address(&self) -> Result<SocketAddr, ServeError> {
        self.door.address()
    }

    fn setup(&self) -> &Setup {
        self.local.setup()
    }

    fn run(mut self) -> Result<(), ServeError> {
        self.serve()
    }
}

fn push(local: &mut Local, operation: Operation, tag: u64) -> Result<Ticket, ServeError> {
    local.push(operation, tag).map_err(ServeError::new)
}
