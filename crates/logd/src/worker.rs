//! The loop of one worker thread. It submits what connections and storage ask for, and passes on the results.
//!
//! The worker takes the results of one submit before it acts on them. If no batch is being committed, all lines that
//! have arrived since the last batch began become the next batch. So batches are large on a busy disk and prompt on an
//! idle one, without a timer.

mod buffers;
mod drain;
mod filling;
mod memory;
mod waiting;

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError, mpsc::Sender},
    time::{Duration, Instant},
};

use ringwise::{Completion, Descriptor, Effect, Local, Operation, Setup, Ticket, net};
use ringwise_serve::{Door, Ear, Request, Seat, loop_room};

use crate::{
    clients::{
        addresses::{Addresses, Full, Place},
        names::Names,
        tenants::Tenants,
    },
    disk::{
        segment::writing::appender::Fatal,
        storage::{Shared, Storage, TAGS},
    },
    error::LogdError,
    guarantee::Guarantee,
    live::Live,
    monitoring::{log, stats::Stats},
    session::{
        connection::{Batch, Connection, Desk, Limits, Step},
        tls::Session,
        unfinished::{Held, Kept},
    },
};
use buffers::{Buffers, Choice, SMALL_BYTES};
use drain::Draining;
use filling::Filling;
use waiting::{Queue, Turns, len};

/// How long a turn looks at received bytes before the worker asks for the next results. One of those may be the commit
/// of a batch, and the disk is idle until the worker sees it. The limit is a time and not a number of lines, because a
/// rejected line takes ten times as long as an accepted one.
const TURN_TIME: Duration = Duration::from_micros(200);

/// Operations of a connection at a time: a receive, a send, and a cancel.
const OPERATIONS_EACH: usize = 3;
/// Operations that belong to no connection.
const OPERATIONS_BESIDE: usize = 32;

/// Time within which a peer that vanished is noticed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// How often the worker looks for connections that exceed a time limit.
const LOOK_TIME: Duration = Duration::from_millis(900);
/// How often a drain looks at the clock.
const DRAIN_TICK: Duration = Duration::from_millis(20);

/// The purpose of an operation is the upper half of its tag. The lower half is the connection's index. No tag is 0,
/// because the loop's own waits use it.
const FOR_ACCEPT: u64 = 1 << 32;
const FOR_RECEIVE: u64 = 2 << 32;
const FOR_SEND: u64 = 3 << 32;
const FOR_CONTROL: u64 = 4 << 32;
const FOR_NOTHING: u64 = 8 << 32;

/// What every worker is built from.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) storage: Shared,
    pub(crate) drain: Duration,
    pub(crate) live: Arc<Mutex<Live>>,
    pub(crate) tenants: Arc<Tenants>,
    /// The number of connections of each address.
    pub(crate) addresses: Arc<Addresses>,
}

/// The loop of one thread.
pub(crate) struct Worker {
    local: Local,
    buffers: Buffers,
    storage: Storage,
    guarantee: Guarantee,
    names: Arc<Names>,
    tenants: Arc<Tenants>,
    addresses: Arc<Addresses>,
    limits: Limits,
    tls: Option<Arc<rustls::ServerConfig>>,
    handshake: Duration,
    /// When the worker last looked for connections that exceed a time limit.
    looked: Instant,
    /// The last time at which received bytes waited because there was no room for them, or no time in the turn.
    busy_until: Instant,
    live: Arc<Mutex<Live>>,
    door: Door,
    ear: Ear,
    clients: Vec<Option<Client>>,
    vacant: Vec<usize>,
    /// Connections that something happened to, each listed once.
    touched: Vec<usize>,
    batch: Batch,
    /// Decides whose received bytes are looked at next.
    turns: Turns,
    /// The batch that is being filled, and the connections with lines in the batch that is being committed.
    filling: Filling,
    committing: Vec<usize>,
    committing_bytes: usize,
    /// Memory of the batch that is being committed.
    committing_held: usize,
    /// When the first line arrived of the batch that is being committed.
    committing_since: Option<Instant>,
    /// Whether a batch began in this turn.
    has_begun: bool,
    /// Memory of the unfinished lines of all connections.
    partials: Held,
    /// Other memory of all connections.
    kept: Kept,
    /// Connections that wait until all connections together hold less.
    held_back: Vec<usize>,
    drain: Duration,
    draining: Option<Draining>,
    counts: Stats,
    stats: Sender<Stats>,
}

struct Client {
    socket: Descriptor,
    connection: Connection,
    receive: Ticket,
    /// Whether its receive was cancelled and has not begun again.
    is_cancelled: bool,
    /// Which buffers it receives into.
    choice: Choice,
    /// Bytes that were received but not looked at yet.
    queue: Queue,
    is_touched: bool,
    /// Its memory, as counted last.
    kept: Kept,
    /// Its place among the connections of its address, if those are limited.
    _place: Option<Place>,
}

impl Client {
    /// Cancels its receive. A second call does nothing, because the loop has room for one cancel per connection.
    fn cancel_receive(&mut self, local: &mut Local) -> Result<(), LogdError> {
        if !std::mem::replace(&mut self.is_cancelled, true) {
            push(local, Operation::cancel(self.receive), FOR_NOTHING)?;
        }
        Ok(())
    }
}

impl Worker {
    /// Checks that the loops of all threads together have room for this number of connections.
    pub(crate) fn check_room(connections_max: usize, threads: u32) -> Result<(), LogdError> {
        let each = connections_max.div_ceil(threads as usize);
        Ok(loop_room(each, OPERATIONS_EACH, OPERATIONS_BESIDE).map(drop)?)
    }

    /// Opens a loop on this thread, recovers its streams from the last run, and listens.
    pub(crate) fn new(mut seat: Seat<Stats>, order: &Order) -> Result<Worker, LogdError> {
        let mut local = seat.open_loop(OPERATIONS_EACH, OPERATIONS_BESIDE)?;
        let buffers = Buffers::new(&mut local).map_err(LogdError::failed)?;
        let live = order.live.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let storage = Storage::open(&order.storage, seat.number, live.segments)?;
        let Live { limits, tls, .. } = live;
        let (door, ear, stats) = seat.take(FOR_ACCEPT, FOR_CONTROL, FOR_NOTHING)?;
        door.give_up_after(PATIENCE)?;
        Ok(Worker {
            local,
            buffers,
            storage,
            guarantee: order.storage.guarantee,
            names: order.storage.names.clone(),
            tenants: order.tenants.clone(),
            addresses: order.addresses.clone(),
            limits,
            tls,
            handshake: live.handshake,
            looked: Instant::now(),
            busy_until: Instant::now(),
            live: order.live.clone(),
            door,
            ear,
            clients: Vec::new(),
            vacant: Vec::new(),
            touched: Vec::new(),
            batch: Batch::default(),
            turns: Turns::default(),
            filling: Filling::default(),
            committing: Vec::new(),
            committing_bytes: 0,
            committing_held: 0,
            committing_since: None,
            has_begun: false,
            partials: Held::default(),
            kept: Kept::default(),
            held_back: Vec::new(),
            drain: order.drain,
            draining: None,
            counts: Stats::default(),
            stats,
        })
    }

    /// Serves until it was told to drain and has drained, or until the time for the drain is over.
    fn serve(&mut self) -> Result<(), LogdError> {
        self.ear.listen(&mut self.local)?;
        self.storage.watch(&mut self.local)?;
        self.door.keep(&mut self.local)?;
        while !self.has_drained() {
            self.wait()?;
            self.take_turn()?;
            if !self.turns.is_empty() || self.is_full() {
                self.busy_until = Instant::now();
            }
            self.look_at_drain();
            self.look_at_clock();
            self.resume_backlogs();
            while self.begin_batch()? {
                self.resume_backlogs();
            }
            self.act()?;
        }
        if self.batch.is_empty() && !self.storage.is_busy() {
            self.storage.seal();
        }
        self.tell();
        // Beyond a tenant's quota there are bytes that are in no batch.
        let clients = self.clients.iter().flatten();
        let waiting: usize = clients.map(|client| client.connection.backlog_bytes()).sum();
        match self.batch.bytes() + self.committing_bytes + waiting {
            0 => Ok(()),
            bytes => {
                let done = match self.guarantee {
                    Guarantee::Replicated => "replicated",
                    _ => "stored",
                };
                Err(LogdError::Failed(format!(
                    "{bytes} received bytes could not be {done} within --drain; they were not acknowledged"
                )))
            }
        }
    }

    /// Looks at what has arrived, for the time of one turn. After that time it looks only at small receives.
    fn take_turn(&mut self) -> Result<(), LogdError> {
        let end = Instant::now() + TURN_TIME;
        let mut left = self.limits.turn_max;
        let mut has_time = true;
        while left > 0 {
            left -= 1;
            if has_time
                && !self.is_full()
                && let Some(index) = self.turns.next()
            {
                let queue = self.clients[index].as_mut().map(|client| &mut client.queue);
                if let Some(completion) = queue.and_then(|queue| self.turns.take(queue)) {
                    self.take_received(completion);
                }
            } else if let Some(completion) = self.local.next_completion() {
                self.take(completion, has_time)?;
            } else {
                break;
            }
            has_time = has_time && Instant::now() < end;
        }
        Ok(())
    }

    /// Submits the pushed operations and waits for a result.
    fn wait(&mut self) -> Result<(), LogdError> {
        let waited = match self.draining {
            _ if !self.turns.is_empty() && !self.is_full() => self.local.submit(),
            Some(_) => self.local.submit_and_wait_timeout(1, DRAIN_TICK),
            None => self.local.submit_and_wait(1),
        };
        waited.map(drop).map_err(LogdError::failed)?;
        if std::mem::take(&mut self.has_begun) {
            // This thread may share its processor with the thread that is to write. That one has just woken this one
            // and has not gone to sleep yet, so without a yield it would begin only when this thread's time slice is
            // over (EEVDF, Linux 6.6 and later).
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Takes a result. `has_time` says whether this turn has time to look at large receives.
    fn take(&mut self, completion: Completion, has_time: bool) -> Result<(), LogdError> {
        let index = completion.tag() as u32 as usize;
        match completion.tag() & !u64::from(u32::MAX) {
            FOR_RECEIVE => {
                let is_full = self.is_full();
                let Some(client) = &mut self.clients[index] else { return Ok(()) };
                if client.choice.learn(len(&completion), &self.buffers) {
                    // When this receive has ended, another begins with the other buffers.
                    client.cancel_receive(&mut self.local)?;
                }
                if is_full || !self.turns.may_pass(&client.queue, &completion, has_time) {
                    self.turns.add(index, &mut client.queue, completion);
                } else {
                    self.take_received(completion);
                }
            }
            FOR_SEND => self.take_sent(index, completion),
            FOR_ACCEPT => self.take_accepted(completion)?,
            FOR_CONTROL => return self.take_control(completion),
            tag if TAGS.contains(&tag) => {
                let done = self.storage.take(&mut self.local, (completion.tag(), completion));
                if done.map_err(|fatal| LogdError::Failed(fatal.0))? {
                    self.end_batch();
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Counts a failed accept. The door continues.
    fn take_accepted(&mut self, completion: Completion) -> Result<(), LogdError> {
        if let Some(error) = self.door.take(completion)? {
            self.counts.accept_failures += 1;
            log::remark(
                "accept",
                format_args!("cannot accept a connection: {error}; trying again"),
            );
        }
        Ok(())
    }

    fn take_received(&mut self, completion: Completion) {
        let index = completion.tag() as u32 as usize;
        let (result, has_more) = (completion.raw_result(), completion.has_more());
        if let Some(received) = completion.into_received() {
            self.counts.receives += 1;
            self.counts.received_bytes += received.len() as u64;
            let clients = self.filling.clients.len();
            self.tell_connection(index, |connection, desk| connection.received(&received, desk));
            self.filling.is_awaited |=
                received.len() < SMALL_BYTES && self.filling.clients.len() > clients;
            if let Some(draining) = &mut self.draining {
                draining.received = Instant::now();
            }
        }
        let was_cancelled = -result == rustix::io::Errno::CANCELED.raw_os_error();
        self.tell_connection(index, |connection, desk| {
            match result {
                _ if has_more => {}
                0 => return connection.input_ended(desk),
                1.. => connection.receiving_stopped(),
                _ if was_cancelled => connection.receiving_stopped(),
                _ => connection.receiving_failed(desk.partials),
            }
            false
        });
        self.touch(index);
    }

    /// Lets a connection do something that may produce lines.
    fn tell_connection(
        &mut self,
        index: usize,
        look: impl FnOnce(&mut Connection, &mut Desk<'_>) -> bool,
    ) {
        let Some(client) = &mut self.clients[index] else { return };
        let mut desk = Desk {
            limits: &self.limits,
            guarantee: self.guarantee,
            partials: &mut self.partials,
            batch: &mut self.batch,
            names: &self.names,
            tenants: &self.tenants,
            counts: &mut self.counts,
        };
        if desk.counting(|desk| look(&mut client.connection, desk)) {
            self.filling.clients.push(index);
        }
        self.filling.note(&self.batch);
        self.count_kept(index);
        self.give_up_lines();
    }

    fn take_sent(&mut self, index: usize, completion: Completion) {
        let Some(client) = &mut self.clients[index] else { return };
        let sent = usize::try_from(completion.raw_result());
        let buffer = completion.into_buffer();
        let bytes = buffer.as_ref().map_or(&[][..], |buffer| buffer.selected());
        match sent {
            Ok(sent) => client.connection.sent(&bytes[sent..]),
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

    /// Starts to commit all lines that have arrived, if no batch is being committed. True means that they are committed
    /// already, and the worker may look at more.
    fn begin_batch(&mut self) -> Result<bool, LogdError> {
        let fatal = |fatal: Fatal| LogdError::Failed(fatal.0);
        let has_more = !self.turns.is_empty() && !self.is_full();
        if self.batch.is_empty() || (has_more && self.filling.may_grow(&self.batch)) {
            return Ok(false);
        }
        if !self.storage.is_ready(&mut self.local).map_err(fatal)? {
            return Ok(false);
        }
        (self.committing_bytes, self.committing_held) = (self.batch.bytes(), self.batch.held());
        let Filling { clients, since, .. } = std::mem::take(&mut self.filling);
        self.committing_since = since;
        self.filling.clients = std::mem::replace(&mut self.committing, clients);
        for &index in &self.committing {
            if let Some(client) = &mut self.clients[index] {
                client.connection.batch_began(&mut self.batch.names);
            }
        }
        let commits = self.storage.commits;
        let begun = self.storage.begin(&mut self.local, &mut self.batch);
        self.has_begun = begun.map_err(fatal)?;
        if self.storage.commits == commits {
            // All lines were refused, so there is no commit to measure.
            self.committing_since = None;
        }
        if !self.has_begun {
            self.end_batch();
        }
        Ok(!self.has_begun)
    }

    fn end_batch(&mut self) {
        self.counts.committed_bytes += self.committing_bytes as u64;
        (self.committing_bytes, self.committing_held) = (0, 0);
        if let Some(since) = self.committing_since.take() {
            self.counts.commit_times.note(since.elapsed());
        }
        let mut committed = std::mem::take(&mut self.committing);
        for index in committed.drain(..) {
            if let Some(client) = &mut self.clients[index] {
                client.connection.batch_committed();
            }
            self.touch(index);
        }
        self.committing = committed;
        // The commit freed memory, so connections that were held back may continue.
        for index in std::mem::take(&mut self.held_back) {
            self.touch(index);
        }
    }

    /// Lets the touched connections look at bytes for which there was no room before.
    fn resume_backlogs(&mut self) {
        let touched = std::mem::take(&mut self.touched);
        for &index in &touched {
            self.tell_connection(index, Connection::resume);
        }
        let others = std::mem::replace(&mut self.touched, touched);
        self.touched.extend(others);
    }

    /// Performs the next steps of all touched connections.
    fn act(&mut self) -> Result<(), LogdError> {
        let mut touched = std::mem::take(&mut self.touched);
        loop {
            for index in touched.drain(..) {
                self.act_on(index)?;
                self.count_kept(index);
            }
            self.give_up_answers();
            if self.touched.is_empty() {
                break;
            }
            std::mem::swap(&mut touched, &mut self.touched);
        }
        self.touched = touched;
        self.admit()
    }

    fn act_on(&mut self, index: usize) -> Result<(), LogdError> {
        let is_over = self.is_over();
        while let Some(client) = &mut self.clients[index] {
            client.is_touched = false;
            let Some(step) = client.connection.step(&self.limits, is_over) else { break };
            let socket = &client.socket;
            match step {
                Step::Send(bytes) => {
                    self.counts.sends += 1;
                    let send = Operation::send_all(socket, bytes);
                    push(&mut self.local, send, FOR_SEND | index as u64)?;
                }
                Step::Receive => {
                    let receive = self.buffers.receive(socket, client.choice);
                    client.receive = push(&mut self.local, receive, FOR_RECEIVE | index as u64)?;
                    client.is_cancelled = false;
                }
                Step::StopReceiving => {
                    self.counts.stopped_senders += 1;
                    client.cancel_receive(&mut self.local)?;
                }
                Step::EndWriting => {
                    // This fails if the peer has gone. The receive reports that too.
                    let _ = net::shutdown(socket, net::Shutdown::Write);
                }
                Step::Close => self.close(index),
            }
        }
        if let Some(client) = &self.clients[index]
            && (client.connection.is_stopped() || client.connection.has_backlog())
        {
            self.held_back.push(index);
        }
        Ok(())
    }

    fn close(&mut self, index: usize) {
        let client =
            self.clients[index].take().expect("the caller has checked that the client exists");
        self.counts.broken += u64::from(client.connection.is_broken());
        self.partials.remove(client.connection.counted());
        self.kept.replace(client.kept, Kept::default());
        self.door.left();
        self.vacant.push(index);
    }

    /// Lets waiting connections in while there are places, and keeps accepting.
    fn admit(&mut self) -> Result<(), LogdError> {
        if self.draining.is_some_and(|draining| !draining.is_taking) {
            self.door.clear();
            return Ok(());
        }
        while let Some(socket) = self.door.admit() {
            self.welcome(socket)?;
        }
        Ok(self.door.keep(&mut self.local)?)
    }

    fn welcome(&mut self, socket: Descriptor) -> Result<(), LogdError> {
        let peer = match net::peer_address(&socket) {
            Ok(net::Address::Ip(address)) => Some(address),
            Ok(_) => None,
            // The connection was reset before it was accepted. Without an address it cannot be counted for one.
            Err(_) => {
                self.counts.connections += 1;
                self.counts.broken += 1;
                self.door.left();
                return Ok(());
            }
        };
        let most = self.limits.address_connections;
        let place = match peer.map_or(Ok(None), |peer| self.addresses.admit(peer, most)) {
            Ok(place) => place,
            Err(Full) => {
                self.counts.turned_away += 1;
                self.door.left();
                return Ok(());
            }
        };
        // This fails if the peer has gone. The receive reports that too.
        let _ = net::set_nodelay(&socket, true);
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.clients.push(None);
            self.clients.len() - 1
        });
        let tls = self.tls.clone().map(Session::new).transpose().map_err(LogdError::failed)?;
        let choice = self.buffers.choose();
        let receive = self.buffers.receive(&socket, choice);
        let receive = push(&mut self.local, receive, FOR_RECEIVE | index as u64)?;
        self.counts.connections += 1;
        let framing = self.limits.framing;
        let number = self.counts.connections;
        let connection = Connection::new(number, peer, framing, tls, &self.tenants);
        let queue = Queue::default();
        let (is_touched, kept) = (false, Kept::default());
        self.clients[index] = Some(Client {
            socket,
            connection,
            receive,
            is_cancelled: false,
            choice,
            queue,
            is_touched,
            kept,
            _place: place,
        });
        Ok(())
    }

    fn take_control(&mut self, completion: Completion) -> Result<(), LogdError> {
        for request in self.ear.heard(completion) {
            match request {
                Request::Tell => self.tell(),
                Request::Reload => self.reload(),
                Request::Drain => self.begin_drain()?,
            }
        }
        Ok(self.ear.listen(&mut self.local)?)
    }

    fn reload(&mut self) {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.limits = live.limits;
        self.tls = live.tls;
        self.handshake = live.handshake;
        self.storage.set_limits(live.segments);
        for index in 0..self.clients.len() {
            self.touch(index);
        }
    }

    /// Ends connections that exceeded a time limit already at the previous look and sent nothing since. Storage wakes
    /// the thread each second. On a machine that was busy or stopped the thread may run only long after the limit; this
    /// way it first looks at what clients sent meanwhile.
    fn look_at_clock(&mut self) {
        let now = Instant::now();
        if now.saturating_duration_since(self.looked) < LOOK_TIME {
            return;
        }
        let before = std::mem::replace(&mut self.looked, now);
        // Retention may have freed space in the quotas of tenants.
        for index in std::mem::take(&mut self.held_back) {
            self.touch(index);
        }
        let (handshake, idle) = (self.handshake, self.limits.idle);
        for index in 0..self.clients.len() {
            let client = self.clients[index].as_ref();
            let busy = self.busy_until;
            let late =
                client.and_then(|client| client.connection.late(before, busy, handshake, idle));
            if let Some(late) = late {
                self.tell_connection(index, |connection, desk| {
                    connection.end_for(late, desk);
                    false
                });
                self.touch(index);
            }
        }
    }

    /// Sends the statistics. Nobody receives them any more at the very end.
    fn tell(&mut self) {
        let uncommitted = self.held();
        let stats = self.storage.tell(Stats {
            uncommitted_bytes: uncommitted as u64,
            open: self.door.open() as u64,
            enters: self.local.stats().enters,
            polled: u64::from(*self.local.setup().sqpoll() == Effect::Effective),
            ..self.counts
        });
        let _ = self.stats.send(stats);
    }
}

impl ringwise_serve::Worker for Worker {
    type Stats = Stats;
    type Error = LogdError;

    fn address(&self) -> Result<SocketAddr, LogdError> {
        Ok(self.door.address()?)
    }

    fn setup(&self) -> &Setup {
        self.local.setup()
    }

    fn run(mut self) -> Result<(), LogdError> {
        self.serve()
    }
}

fn push(local: &mut Local, operation: Operation, tag: u64) -> Result<Ticket, LogdError> {
    local.push(operation, tag).map_err(LogdError::failed)
}
