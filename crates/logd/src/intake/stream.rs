//! Messages over a stream of bytes, each answered when it is stored: what RELP and Fluent Forward have in common.
//!
//! While what came is being stored, more is received, and all of that is stored at once. Short messages take no memory
//! from others before they are whole. A long message waits for the memory of all of it before its rest is received, so
//! whoever has memory never waits for more, and all go on when the disk does.
//!
//! It knows no protocol: what a message is, and what is said, is a `Protocol`'s.

use std::{
    convert::Infallible,
    fmt, io,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    time::{sleep, timeout},
};

use super::{
    depot::{Deposit, Verdict},
    listener::{Readable, hurry, part},
    recent::{Claims, Key, Lately},
    shared::{Client, PERMIT_BYTES, Shared},
};
use crate::{lines::framing::Framing, monitoring::log};

/// Received bytes of a connection that take nothing from the memory for all.
pub(super) const FREE_BYTES: usize = 32 << 10;
/// How long the rest of a message may take to come, and a client to read its answers.
const MESSAGE_TIME: Duration = Duration::from_secs(30);

/// What is known of the bytes that have come.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// The first message is not whole. It has at least so many bytes. To receive and take it, so much memory is needed.
    Part { least: usize, memory: usize },
    /// It is. To take it, so much memory is needed.
    Whole { memory: usize },
}

/// What is to be done with messages.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// Bytes that need not be looked at again.
    pub(super) used: usize,
    /// Lines to store.
    pub(super) body: Vec<u8>,
    /// What is said when they are stored.
    pub(super) answers: Vec<u8>,
    /// By what messages are recognised if they come again.
    pub(super) keys: Vec<Key>,
    /// The same of a message of which a part is taken.
    pub(super) part: Option<Key>,
    /// How many came again, and are only answered.
    pub(super) repeated: u64,
    pub(super) next: Next,
}

/// What comes after that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Next {
    /// Other messages.
    #[default]
    Messages,
    /// More of the same message, which is to be taken before others.
    Rest,
    /// Nothing.
    End,
}

/// Bytes that are not of the protocol. Nothing more is taken.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) why: &'static str,
    /// What is said of it.
    pub(super) answer: Vec<u8>,
}

/// A protocol, and where a connection is in it.
pub(super) trait Protocol: Default + Send {
    /// What it is called in the log.
    const NAME: &'static str;
    /// How lines are told apart in what is stored.
    const FRAMING: Framing;
    /// What is said when the daemon ends a connection.
    const FAREWELL: &'static [u8];

    /// Looks at bytes that have come, of messages with at most `most` bytes.
    fn look(&mut self, bytes: &[u8], most: usize) -> Result<Seen, Wrong>;

    /// Takes messages of which the first is whole, for lines of at most `line_max` bytes.
    fn take(&mut self, bytes: &[u8], line_max: usize, lately: Lately<'_>) -> Result<Taken, Wrong>;
}

/// Serves a connection.
pub(super) async fn converse<P: Protocol>(stream: impl Readable, client: Client, shared: &Shared) {
    let (buffer, room, since) = (Vec::new(), None, None);
    let (protocol, has_ended) = (P::default(), false);
    let part = shared.recent().claims();
    let mut own =
        Exchange { stream, protocol, client, shared, buffer, room, part, since, has_ended };
    let Err(end) = own.run().await;
    own.part(end).await;
}

/// Why a connection ends.
enum End {
    /// By the client, or as its protocol has it.
    Closed,
    /// The daemon ends.
    Draining,
    /// Nothing came for `--idle`.
    Silent,
    Wrong(Wrong),
    /// The client is too slow, breaks off in a message, or may not store now.
    Broken(&'static str),
    Failed(io::Error),
}

struct Exchange<'a, S, P> {
    stream: S,
    protocol: P,
    client: Client,
    shared: &'a Shared,
    /// Received, and not taken yet.
    buffer: Vec<u8>,
    /// Memory of a message that is not whole, twice: among all such messages, and among all there is.
    room: Option<(OwnedSemaphorePermit, OwnedSemaphorePermit)>,
    /// By what a message of which a part is stored is recognised.
    part: Claims,
    /// When the first message in the buffer began.
    since: Option<Instant>,
    /// The client sends no more.
    has_ended: bool,
}

impl<S: Readable, P: Protocol> Exchange<'_, S, P> {
    async fn run(&mut self) -> Result<Infallible, End> {
        if !self.shared.may_send(self.client.peer, self.client.tenant.as_deref()) {
            return Err(End::Broken("the client has no tenant (--senders)"));
        }
        loop {
            if self.buffer.is_empty() {
                self.wait().await?;
            }
            let most = self.shared.live().limits.of_each().min(self.shared.memory_bytes / 2);
            match self.protocol.look(&self.buffer, most).map_err(End::Wrong)? {
                Seen::Part { least, memory } => self.receive(least, memory).await?,
                Seen::Whole { memory } => self.store(memory).await?,
            }
        }
    }

    /// Waits for the first bytes of a message. Meanwhile the connection has no memory.
    async fn wait(&mut self) -> Result<(), End> {
        (self.buffer, self.room, self.since) = (Vec::new(), None, None);
        if self.has_ended {
            return Err(End::Closed);
        }
        if self.stream.has_taken() {
            return Ok(());
        }
        let idle = self.shared.live().limits.idle;
        tokio::select! {
            ready = self.stream.socket().readable() => ready.map_err(End::Failed),
            () = silence(idle) => Err(End::Silent),
            () = self.shared.ended() => Err(End::Draining),
        }
    }

    /// Receives more of a message.
    async fn receive(&mut self, least: usize, memory: usize) -> Result<(), End> {
        if self.has_ended {
            return Err(match self.buffer.is_empty() {
                true => End::Closed,
                false => End::Broken("the connection ended within a message"),
            });
        }
        if least > FREE_BYTES && self.room.is_none() {
            // Messages that are not whole have half of the memory, however long they take to come.
            let bytes = memory.min(self.shared.memory_bytes / 2);
            let among_parts = reserve(self.shared, &self.shared.unfinished, bytes).await?;
            self.room =
                Some((among_parts, reserve(self.shared, &self.shared.memory, bytes).await?));
            self.since = None;
        }
        grow(&mut self.buffer, least.max(FREE_BYTES));
        let patience = match self.buffer.is_empty() {
            true => self.shared.live().limits.idle,
            false => Some(MESSAGE_TIME.saturating_sub(self.since().elapsed())),
        };
        let read = tokio::select! {
            read = self.stream.read_buf(&mut self.buffer) => read.map_err(End::Failed)?,
            () = silence(patience) => return Err(match self.buffer.is_empty() {
                true => End::Silent,
                false => End::Broken("the rest of a message did not come within 30 s"),
            }),
            () = self.shared.ended() => return Err(End::Draining),
        };
        self.has_ended = read == 0;
        Ok(())
    }

    fn since(&mut self) -> Instant {
        *self.since.get_or_insert_with(Instant::now)
    }

    /// Stores what is whole, and says so.
    async fn store(&mut self, memory: usize) -> Result<(), End> {
        let mut room = match self.room.take() {
            Some((_, room)) => room,
            None => reserve(self.shared, &self.shared.memory, memory).await?,
        };
        loop {
            let line_max = self.shared.live().limits.line_max;
            let lately = self.shared.lately(self.client.tenant.as_deref());
            let taken = self.protocol.take(&self.buffer, line_max, lately).map_err(End::Wrong)?;
            self.shared.counts.repeated_items.fetch_add(taken.repeated, Ordering::Relaxed);
            self.buffer.drain(..taken.used);
            self.since = None;
            if taken.next != Next::Rest {
                shrink(&mut self.buffer);
                give_back(&mut room, taken.body.len());
            }
            let claims = self.claim(&taken).await?;
            if !taken.body.is_empty() {
                self.deposit(taken.body, claims).await?;
            }
            self.say(&taken.answers).await?;
            match taken.next {
                Next::Messages => return Ok(()),
                // It was not acknowledged, so it is sent again.
                Next::Rest if *self.shared.end.borrow() => return Err(End::Draining),
                Next::Rest => {}
                Next::End => return Err(End::Closed),
            }
        }
    }

    /// Claims messages that are to be stored, and keeps the claim of one of which only a part is taken.
    async fn claim(&mut self, taken: &Taken) -> Result<Claims, End> {
        let claims = std::mem::replace(&mut self.part, self.shared.recent().claims());
        let keys = taken.keys.iter().copied().chain(taken.part);
        let new = keys.filter(|key| !claims.has(*key)).map(|key| (0, key)).collect();
        let claims = tokio::select! {
            claims = claims.with(new) => claims,
            () = self.shared.ended() => return Err(End::Draining),
        };
        // The client sends it again, and learns what became of it.
        let mut claims =
            claims.ok_or(End::Broken("the same was being stored for another connection"))?;
        self.part = claims.split(taken.part);
        Ok(claims)
    }

    /// Waits until lines are stored. What comes meanwhile is received, as far as it takes no memory from others.
    async fn deposit(&mut self, body: Vec<u8>, claims: Claims) -> Result<(), End> {
        let (verdict, mut told) = oneshot::channel();
        let Client { peer, tenant, .. } = &self.client;
        let (peer, tenant) = (*peer, tenant.clone());
        let deposit = Deposit {
            peer,
            tenant,
            body,
            framing: P::FRAMING,
            room: None,
            rejected_max: 0,
            claims,
            verdict,
        };
        let stalled = || End::Broken("nothing more can be stored");
        self.shared.deposits.send(deposit).await.map_err(|_| stalled())?;
        let mut is_draining = false;
        let verdict = loop {
            let is_receiving = !self.has_ended && !is_draining && self.buffer.len() < FREE_BYTES;
            if is_receiving {
                grow(&mut self.buffer, FREE_BYTES);
            }
            tokio::select! {
                verdict = &mut told => break verdict,
                // An error comes again with the answer.
                read = self.stream.read_buf(&mut self.buffer), if is_receiving => {
                    self.has_ended = !read.is_ok_and(|bytes| bytes > 0);
                }
                () = self.shared.ended(), if !is_draining => is_draining = true,
            }
        };
        match verdict.map_err(|_| stalled())? {
            Verdict::Stored { .. } => Ok(()),
            Verdict::OverQuota => Err(End::Broken("the tenant has no room left (quota=)")),
        }
    }

    /// Sends answers, for which the end does not wait long.
    async fn say(&mut self, answers: &[u8]) -> Result<(), End> {
        let say = async {
            self.stream.write_all(answers).await?;
            // A session of TLS may have kept a part.
            self.stream.flush().await
        };
        tokio::select! {
            said = timeout(MESSAGE_TIME, say) => match said {
                Ok(said) => said.map_err(End::Failed),
                Err(_) => Err(End::Broken("the client does not read its answers")),
            },
            () = hurry(self.shared) => Err(End::Draining),
        }
    }

    /// Counts why the connection ends, says it where the protocol can, and closes.
    async fn part(mut self, end: End) {
        let mut farewell = P::FAREWELL;
        let counts = &self.shared.counts;
        let broken = |why: &dyn fmt::Display| {
            counts.broken.fetch_add(1, Ordering::Relaxed);
            let peer = self.client.peer;
            log::remark(P::NAME, format_args!("{}: {peer}: {why}; closed", P::NAME));
        };
        match &end {
            End::Closed => farewell = b"",
            End::Draining => {}
            End::Silent => drop(counts.idle_ended.fetch_add(1, Ordering::Relaxed)),
            End::Wrong(wrong) => {
                farewell = &wrong.answer;
                broken(&wrong.why);
            }
            End::Broken(why) => broken(why),
            End::Failed(error) => {
                broken(error);
                return;
            }
        }
        self.buffer = Vec::new();
        part(self.stream, farewell, self.shared).await;
    }
}

/// Takes so much of a memory, as soon as it is free.
async fn reserve(
    shared: &Shared,
    memory: &Arc<Semaphore>,
    bytes: usize,
) -> Result<OwnedSemaphorePermit, End> {
    let bytes = bytes.min(shared.memory_bytes);
    let permits = u32::try_from(bytes.div_ceil(PERMIT_BYTES)).unwrap_or(u32::MAX);
    tokio::select! {
        permit = memory.clone().acquire_many_owned(permits) => {
            Ok(permit.expect("the semaphore is never closed"))
        }
        () = shared.ended() => Err(End::Draining),
    }
}

/// Never, or after a time.
async fn silence(time: Option<Duration>) {
    match time {
        Some(time) => sleep(time).await,
        None => std::future::pending().await,
    }
}

/// Makes room for so many bytes in all.
fn grow(buffer: &mut Vec<u8>, bytes: usize) {
    buffer.reserve_exact(bytes.saturating_sub(buffer.len()));
}

/// Gives up what a long message had.
fn shrink(buffer: &mut Vec<u8>) {
    if buffer.capacity() > FREE_BYTES {
        buffer.shrink_to(FREE_BYTES);
    }
}

/// Gives back all memory but for so many bytes.
fn give_back(room: &mut OwnedSemaphorePermit, bytes: usize) {
    let more = room.num_permits().saturating_sub(bytes.div_ceil(PERMIT_BYTES));
    drop(room.split(more));
}
