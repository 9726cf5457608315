//! The rules of a connection, without any I/O: what happened goes in, what to do comes out.
//!
//! A connection whose first line is `LOGD 1` asks for acknowledgements; any other is sent nothing. Its lines are numbered
//! from 1. When a batch is committed, the connections with lines in it report rejected lines (`N 7 syntax`) and then one
//! `A 9` for all lines up to there. One send is in flight, and only the newest acknowledgement waits for it.

use std::{
    collections::VecDeque, io::Write as _, net::SocketAddr, ops::Range, sync::Arc, time::Instant,
};

use crate::{
    clients::{
        names::{Claim, Mark, Names},
        refusal::Refusal,
        tenants::{Account, Tenants},
    },
    disk::segment::format::record::Origin,
    guarantee::Guarantee,
    lines::{
        framing::{Frame, Framer, Framing, octets::Octets},
        letter::{Cause, Fault, Letter},
        wrap::Wrap,
    },
    monitoring::{log, stats::Stats},
    session::{
        tls::{Session, Taken},
        unfinished::Held,
    },
};

mod batch;
mod greeting;
mod kept;
mod late;
mod limits;
mod long;
mod opening;
mod request;
mod state;
mod wish;
mod wrapped;

pub(crate) use batch::Batch;
use batch::Run;
pub(crate) use limits::{Limits, LongLines, PARTING_TIME, Senders};
use opening::Opening;
pub(crate) use state::Step;
use state::{Greeting, Receiving, Stage};
use wish::greets;

/// Answers that wait for a client to read, in bytes, from which on nothing more is received.
const ANSWERS_MAX: usize = 64 << 10;

/// What the connections of a thread share.
pub(crate) struct Desk<'a> {
    pub(crate) limits: &'a Limits,
    pub(crate) guarantee: Guarantee,
    /// What all connections keep of unfinished lines.
    pub(crate) partials: &'a mut Held,
    pub(crate) batch: &'a mut Batch,
    pub(crate) names: &'a Names,
    pub(crate) tenants: &'a Tenants,
    /// Connections are counted here by how they ended or were refused; lines are not.
    pub(crate) counts: &'a mut Stats,
}

impl Desk<'_> {
    /// Looks at what may produce lines, and counts them.
    pub(crate) fn counting<R>(&mut self, look: impl FnOnce(&mut Self) -> R) -> R {
        let lines = |batch: &Batch| {
            [batch.line_count, batch.letter_count, batch.refused_count, batch.wrapped_count]
        };
        let before = lines(self.batch);
        let seen = look(self);
        let after = lines(self.batch);
        self.counts.accepted_lines += after[0] - before[0];
        self.counts.rejected_lines += after[1] - before[1];
        self.counts.refused_lines += after[2] - before[2];
        self.counts.wrapped_lines += after[3] - before[3];
        seen
    }
}

/// What a greeting is judged by.
#[derive(Clone, Copy)]
struct Terms<'a> {
    limits: &'a Limits,
    guarantee: Guarantee,
    names: &'a Names,
    tenants: &'a Tenants,
}

/// What is known of a connection.
#[derive(Debug)]
pub(crate) struct Connection {
    number: u64,
    peer: String,
    origin: Arc<Origin>,
    account: Arc<Account>,
    /// Whether it came by TLS. While bytes are taken the session is not at its place.
    is_encrypted: bool,
    tls: Option<Session>,
    /// Whether all of it is there. Its tenant's quota takes it as a whole: what waited for that would keep its memory.
    is_request: bool,
    /// A reload does not change it.
    framing: Framing,
    opening: Opening,
    framer: Framer,
    octets: Octets,
    unfinished_since: Option<Instant>,
    /// What it has among the unfinished lines of all.
    counted: usize,
    /// Received, and not looked at yet for want of room.
    backlog: Vec<u8>,
    greeting: Greeting,
    /// Why its greeting was refused, until that is counted.
    refused: Option<Refusal>,
    /// Its name, if it has one.
    claim: Option<Claim>,
    /// Lines so far, those among them that its name had before.
    sequence: u64,
    /// In the batch that is filled, and in the one that is on its way: bytes, and up to which line.
    filling: Share,
    committing: Share,
    committed: u64,
    acknowledged: u64,
    /// Lines that were rejected and not told yet.
    rejected: VecDeque<(u64, &'static str)>,
    answers: Vec<u8>,
    /// Left of a send, as it goes to the wire.
    unsent: Vec<u8>,
    is_sending: bool,
    sending: usize,
    sending_since: Instant,
    has_ended: bool,
    receiving: Receiving,
    stage: Stage,
    was_broken: bool,
    heard: Instant,
}

#[derive(Clone, Copy, Debug, Default)]
struct Share {
    bytes: usize,
    sequence: u64,
}

impl Connection {
    /// A connection that receives.
    pub(crate) fn new(
        number: u64,
        peer: Option<SocketAddr>,
        framing: Framing,
        tls: Option<Session>,
        tenants: &Tenants,
    ) -> Connection {
        let tenant = peer.and_then(|peer| tenants.of_address(peer.ip()));
        let account = tenants.account(tenant.as_deref()).clone();
        Connection {
            number,
            peer: peer.map_or_else(|| "unknown".to_owned(), |address| address.to_string()),
            origin: Arc::new(Origin { peer, tenant }),
            account,
            is_encrypted: tls.is_some(),
            tls,
            is_request: false,
            framing,
            opening: Opening::default(),
            framer: Framer::default(),
            octets: Octets::default(),
            unfinished_since: None,
            counted: 0,
            backlog: Vec::new(),
            greeting: Greeting::Awaited,
            refused: None,
            claim: None,
            sequence: 0,
            filling: Share::default(),
            committing: Share::default(),
            committed: 0,
            acknowledged: 0,
            rejected: VecDeque::new(),
            answers: Vec::new(),
            unsent: Vec::new(),
            is_sending: false,
            sending: 0,
            sending_since: Instant::now(),
            has_ended: false,
            receiving: Receiving::Armed,
            stage: Stage::Open,
            was_broken: false,
            heard: Instant::now(),
        }
    }

    /// Bytes came. Says whether the connection has lines in the batch now and had none before.
    pub(crate) fn received(&mut self, bytes: &[u8], desk: &mut Desk<'_>) -> bool {
        let before = self.filling.sequence;
        if self.stage != Stage::Parting {
            self.heard = Instant::now();
        }
        match self.tls.take() {
            None => self.take(bytes, desk),
            Some(mut tls) => {
                let taken = tls.receive(bytes, |tenant, plain| {
                    // Later the greeting may have said who it is, by a token.
                    if let Some(tenant) = tenant
                        && self.greeting == Greeting::Awaited
                    {
                        self.identify(tenant, desk.tenants);
                    }
                    self.take(plain, desk);
                });
                self.tls = Some(tls);
                match taken {
                    Ok(Taken::GoesOn) => {}
                    Ok(Taken::Ended) => self.end_of_session(desk),
                    Err(why) => self.session_failed(&why, desk),
                }
            }
        }
        self.count_partial(desk.partials);
        before == 0 && self.filling.sequence > 0
    }

    /// Takes bytes in plain.
    fn take(&mut self, bytes: &[u8], desk: &mut Desk<'_>) {
        if !matches!(self.stage, Stage::Open | Stage::Draining)
            || self.greeting == Greeting::Refused
        {
            return;
        }
        if self.claim.as_ref().is_some_and(|claim| !claim.take()) {
            // Somebody else came with its name, and may send the same lines.
            return self.lose_name(desk);
        }
        self.open(bytes, desk);
    }

    /// Takes lines as far as there is room, and keeps the rest.
    pub(crate) fn take_lines(&mut self, bytes: &[u8], desk: &mut Desk<'_>) {
        let taken = if self.backlog.is_empty() { self.feed(bytes, desk) } else { 0 };
        self.backlog.extend_from_slice(&bytes[taken..]);
    }

    /// Nothing more comes by TLS; what is left is acknowledged, and the session ended.
    fn end_of_session(&mut self, desk: &mut Desk<'_>) {
        self.has_ended = true;
        self.release(desk);
        if self.backlog.is_empty() {
            self.finish(desk);
        }
        self.drain();
    }

    /// What came was not the TLS that it has to be. Lines before it are stored; only the failure can still be sent.
    fn session_failed(&mut self, why: &str, desk: &mut Desk<'_>) {
        desk.counts.tls_failures += 1;
        log::remark("tls", format_args!("{}: TLS: {why}", self.peer));
        self.greeting = Greeting::Silent;
        self.rejected.clear();
        self.answers.clear();
        self.drain();
    }

    /// The other end sends no more; says as [`received`](Self::received).
    pub(crate) fn input_ended(&mut self, desk: &mut Desk<'_>) -> bool {
        self.receiving = Receiving::Ended;
        self.has_ended = true;
        let before = self.filling.sequence;
        self.release(desk);
        if self.backlog.is_empty() {
            self.finish(desk);
        }
        self.count_partial(desk.partials);
        before == 0 && self.filling.sequence > 0
    }

    /// Looks at what there was no room for; says as [`received`](Self::received).
    pub(crate) fn resume(&mut self, desk: &mut Desk<'_>) -> bool {
        if self.backlog.is_empty() {
            return false;
        }
        let before = self.filling.sequence;
        let mut backlog = std::mem::take(&mut self.backlog);
        let taken = self.feed(&backlog, desk);
        self.backlog = if taken > 0 { backlog.split_off(taken) } else { backlog };
        if self.has_ended && self.backlog.is_empty() {
            self.finish(desk);
        }
        self.count_partial(desk.partials);
        before == 0 && self.filling.sequence > 0
    }

    /// Looks at bytes while there is room for what they make; gives how many.
    fn feed(&mut self, bytes: &[u8], desk: &mut Desk<'_>) -> usize {
        /// A letter may be a hundred times as long as its line: not too many at a time.
        const PIECE_BYTES: usize = 16 << 10;
        let mut framer = std::mem::take(&mut self.framer);
        let mut octets = std::mem::take(&mut self.octets);
        let (framing, before) = (self.framing, self.sequence);
        let batched = (desk.batch.line_count, desk.batch.lines.len());
        let mut rest = bytes;
        while !rest.is_empty()
            && !self.is_full(desk.limits, framer.held() + octets.held(), desk.batch.held())
        {
            let (piece, after) = rest.split_at(PIECE_BYTES.min(rest.len()));
            rest = after;
            let line_max = desk.limits.line_max;
            let mut run = Run { piece, place: 0..0 };
            let take = |frame: Frame<'_>| {
                let (limits, guarantee) = (desk.limits, desk.guarantee);
                let terms = Terms { limits, guarantee, names: desk.names, tenants: desk.tenants };
                self.frame(frame, &mut run, terms, desk.batch);
            };
            match framing {
                Framing::Lines => framer.feed(piece, line_max, take),
                Framing::OctetCounting => octets.feed(piece, line_max, take),
            }
            run.copy(desk.batch);
            if desk.limits.long_lines == LongLines::Refuse {
                framer.forget(line_max);
                octets.forget(line_max);
            }
        }
        let noted = desk.batch.note(&self.origin, self.heard, batched);
        self.account.accepted(noted.0, noted.1);
        (self.framer, self.octets) = (framer, octets);
        self.count_refusal(desk);
        if self.sequence != before {
            // Another line is unfinished now, if one is.
            self.unfinished_since = None;
        }
        if let Some(claim) = &self.claim {
            claim.hold(self.has_uncommitted() || !rest.is_empty());
        }
        bytes.len() - rest.len()
    }

    fn finish(&mut self, desk: &mut Desk<'_>) {
        let mut framer = std::mem::take(&mut self.framer);
        let mut octets = std::mem::take(&mut self.octets);
        // A client with a name comes back and sends the whole line. With a number of its own the half would be counted as
        // that line, and the client would skip it.
        if self.claim.is_some() {
            return;
        }
        let is_taking = self.stage == Stage::Open || self.has_ended;
        if is_taking && self.stage != Stage::Broken && self.greeting != Greeting::Refused {
            let mut take = |frame: Frame<'_>| {
                if self.is_nobody(desk.limits) {
                    return self.refuse_nobody();
                }
                let (line, bytes) = match frame {
                    Frame::Line { line, .. } => (line, line.len() as u64),
                    Frame::TooLong { start, bytes } => (start, bytes),
                    Frame::Broken { .. } | Frame::Lost { .. } => return,
                };
                self.sequence += 1;
                if desk.limits.refuses(bytes) {
                    return self.refuse(bytes, desk.limits, desk.batch);
                }
                let fault = Fault { cause: Cause::Unterminated, offset: bytes, bytes };
                self.reject(fault, line, desk.batch);
            };
            framer.finish(&mut take);
            octets.finish(&mut take);
        }
        self.count_refusal(desk);
    }

    fn frame(&mut self, frame: Frame<'_>, run: &mut Run<'_>, terms: Terms<'_>, batch: &mut Batch) {
        let limits = terms.limits;
        match frame {
            Frame::Line { line, .. } if self.greeting == Greeting::Awaited && greets(line) => {
                self.greet(line, terms);
            }
            _ if self.greeting == Greeting::Refused => {}
            _ if self.is_nobody(limits) => self.refuse_nobody(),
            Frame::Line { line, place } => {
                self.speak();
                self.sequence += 1;
                let checked = match &place {
                    Some(place) => limits.rules.check_first(&run.piece[place.start..], line.len()),
                    None => limits.rules.check(line),
                };
                match checked {
                    Ok(()) => self.accept(line, place, run, batch),
                    Err(invalid) if limits.wraps(invalid.reason) => {
                        run.copy(batch);
                        self.wrap(line, limits, batch);
                    }
                    Err(invalid) => {
                        let cause = Cause::Invalid(invalid.reason);
                        let (offset, bytes) = (invalid.offset as u64, line.len() as u64);
                        self.reject(Fault { cause, offset, bytes }, line, batch);
                    }
                }
            }
            Frame::TooLong { start, bytes } => {
                self.speak();
                self.sequence += 1;
                self.end_long_line(start, bytes, limits, batch);
            }
            Frame::Broken { line, offset } => {
                self.speak();
                self.sequence += 1;
                if limits.wrap != Wrap::None {
                    // Octets are never in a run.
                    return self.wrap(line, limits, batch);
                }
                let (offset, bytes) = (offset as u64, line.len() as u64);
                self.reject(Fault { cause: Cause::LineEnd, offset, bytes }, line, batch);
            }
            Frame::Lost { byte } => {
                self.speak();
                self.sequence += 1;
                self.reject(Fault { cause: Cause::Count, offset: 0, bytes: 1 }, &[byte], batch);
                // What follows cannot be told apart.
                self.drain();
            }
        }
    }

    #[inline]
    fn accept(
        &mut self,
        line: &[u8],
        place: Option<Range<usize>>,
        run: &mut Run<'_>,
        batch: &mut Batch,
    ) {
        match place {
            Some(place) => run.extend(place, batch),
            None => {
                run.copy(batch);
                batch.lines.extend_from_slice(line);
                batch.lines.push(b'\n');
            }
        }
        batch.line_count += 1;
        self.filling.bytes += line.len() + 1;
        self.filling.sequence = self.sequence;
    }

    fn reject(&mut self, fault: Fault, line: &[u8], batch: &mut Batch) {
        let Fault { cause, offset, bytes } = fault;
        let before = batch.letters.len();
        let letter = Letter {
            peer: &self.peer,
            tenant: self.origin.tenant.as_deref(),
            connection: self.number,
            sequence: self.sequence,
            cause,
            offset,
            bytes,
            line,
        };
        let is_own = letter.write(&mut batch.letters, &mut batch.open_letter);
        batch.letter_records += u64::from(is_own);
        batch.letter_count += 1;
        // A record in which another line joins the first one may become shorter; its bytes are counted here.
        self.filling.bytes = self.filling.bytes + batch.letters.len() - before;
        self.filling.sequence = self.sequence;
        if self.greeting == Greeting::Wanted {
            self.rejected.push_back((self.sequence, cause.word()));
        }
    }

    /// The batch that was filled goes on its way.
    pub(crate) fn batch_began(&mut self, names: &mut Vec<Mark>) {
        self.committing = std::mem::take(&mut self.filling);
        names.extend(self.claim.as_ref().map(|claim| claim.mark(self.committing.sequence)));
    }

    /// It is committed.
    pub(crate) fn batch_committed(&mut self) {
        let share = std::mem::take(&mut self.committing);
        self.committed = self.committed.max(share.sequence);
        if let Some(claim) = &self.claim {
            claim.committed(self.committed);
            claim.hold(self.has_uncommitted());
        }
        while let Some(&(sequence, code)) = self.rejected.front()
            && sequence <= self.committed
        {
            // Writing to memory does not fail.
            let _ = writeln!(self.answers, "N {sequence} {code}");
            self.rejected.pop_front();
        }
        if self.rejected.is_empty() {
            self.rejected = VecDeque::new();
        }
    }

    /// A send has ended and left this much.
    pub(crate) fn sent(&mut self, rest: &[u8]) {
        (self.is_sending, self.sending) = (false, 0);
        self.unsent.extend_from_slice(rest);
    }

    /// A send failed.
    pub(crate) fn sending_failed(&mut self) {
        (self.is_sending, self.sending) = (false, 0);
        self.backlog = Vec::new();
        self.break_off();
    }

    /// Receiving has stopped as it was told to, and can go on.
    pub(crate) fn receiving_stopped(&mut self) {
        self.receiving = Receiving::Stopped;
    }

    /// Receiving failed.
    pub(crate) fn receiving_failed(&mut self, partials: &mut Held) {
        self.receiving = Receiving::Ended;
        self.break_off();
        (self.framer, self.octets) = (Framer::default(), Octets::default());
        self.opening = Opening::default();
        self.backlog = Vec::new();
        self.count_partial(partials);
    }

    /// Nothing more is to be taken.
    pub(crate) fn drain(&mut self) {
        if self.stage == Stage::Open {
            self.stage = Stage::Draining;
        }
    }

    /// Whether an error ended it, or is about to.
    pub(crate) fn is_broken(&self) -> bool {
        self.was_broken
    }

    fn break_off(&mut self) {
        self.stage = Stage::Broken;
        self.was_broken = true;
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.receiving == Receiving::Stopped && self.stage == Stage::Open
    }

    /// Bytes kept for it.
    fn held(&self) -> usize {
        self.filling.bytes + self.committing.bytes + self.unfinished() + self.backlog.len()
    }

    fn has_uncommitted(&self) -> bool {
        self.filling.sequence > 0 || self.committing.sequence > 0 || self.has_backlog()
    }

    /// Whether it has bytes that were not looked at yet.
    pub(crate) fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// How many these are.
    pub(crate) fn backlog_bytes(&self) -> usize {
        self.backlog.len()
    }

    /// Whether there is no room for what more bytes would make.
    fn is_full(&self, limits: &Limits, partial: usize, batch: usize) -> bool {
        self.filling.bytes + self.committing.bytes + partial > limits.of_each()
            || batch > limits.budget_all
            || self.answers_are_many()
            || (self.account.is_full() && !self.is_request)
    }

    /// What to do next, if anything. To be asked until there is nothing. `is_over`: all connections
    /// together hold more than they may.
    pub(crate) fn step(&mut self, limits: &Limits, is_over: bool) -> Option<Step> {
        match self.stage {
            Stage::Closed => return None,
            Stage::Broken => return self.step_to_the_end(),
            Stage::Open | Stage::Draining | Stage::Parting => {}
        }
        if let Some(answer) = self.next_answer(limits) {
            (self.is_sending, self.sending) = (true, answer.len());
            self.sending_since = Instant::now();
            return Some(Step::Send(answer));
        }
        let is_told = !self.is_sending && !self.has_uncommitted();
        if self.receiving == Receiving::Ended && is_told {
            return Some(self.part().unwrap_or_else(|| self.close()));
        }
        if self.greeting == Greeting::Refused && is_told {
            self.drain();
        }
        if self.stage == Stage::Draining && self.receiving == Receiving::Stopped && is_told {
            if let Some(last) = self.part() {
                return Some(last);
            }
            if self.greeting == Greeting::Silent || self.greeting == Greeting::Awaited {
                return Some(self.close());
            }
            (self.stage, self.heard) = (Stage::Parting, Instant::now());
            return Some(Step::EndWriting);
        }
        let is_full = is_over
            || self.account.is_full()
            || self.held() > limits.of_each()
            || self.answers_are_many();
        match (self.receiving, self.stage) {
            (Receiving::Armed, Stage::Draining) => Some(self.stop()),
            (Receiving::Armed, Stage::Open) if is_full => Some(self.stop()),
            (Receiving::Stopped, Stage::Parting) => Some(self.go_on()),
            // Of an unfinished line nothing is freed before the rest of it comes.
            (Receiving::Stopped, Stage::Open)
                if !is_full && self.held() - self.unfinished() <= limits.budget_each / 2 =>
            {
                Some(self.go_on())
            }
            _ => None,
        }
    }

    fn answers_are_many(&self) -> bool {
        /// About what a rejection takes as an answer.
        const EACH: usize = 24;
        self.answers.len() + self.rejected.len() * EACH > ANSWERS_MAX
    }

    /// Ends the TLS session, where there is one and that was not done.
    fn part(&mut self) -> Option<Step> {
        let tls = self.tls.as_mut()?;
        tls.part();
        let mut last = Vec::new();
        tls.output(&mut last);
        self.is_sending = !last.is_empty();
        self.is_sending.then_some(Step::Send(last))
    }

    fn next_answer(&mut self, limits: &Limits) -> Option<Vec<u8>> {
        if self.is_sending {
            return None;
        }
        if self.greeting == Greeting::Wanted && self.committed > self.acknowledged {
            self.acknowledged = self.committed;
            let _ = writeln!(self.answers, "A {}", self.committed);
        }
        let mut wire = std::mem::take(&mut self.unsent);
        let plain = match limits.turn_max {
            1 => {
                let end = memchr::memchr(b'\n', &self.answers).map_or(0, |end| end + 1);
                self.answers.drain(..end).collect()
            }
            _ => std::mem::take(&mut self.answers),
        };
        match &mut self.tls {
            None if wire.is_empty() => wire = plain,
            None => wire.extend_from_slice(&plain),
            Some(tls) => {
                tls.send(&plain);
                tls.output(&mut wire);
            }
        }
        (!wire.is_empty()).then_some(wire)
    }

    /// Nothing more is sent; what is in flight is waited for.
    fn step_to_the_end(&mut self) -> Option<Step> {
        match self.receiving {
            Receiving::Armed => Some(self.stop()),
            Receiving::Stopping => None,
            _ if self.is_sending || self.has_uncommitted() => None,
            _ => {
                self.stage = Stage::Closed;
                Some(Step::Close)
            }
        }
    }

    fn stop(&mut self) -> Step {
        if self.stage == Stage::Open && self.account.is_full() {
            self.account.wait(&self.peer);
        }
        self.receiving = Receiving::Stopping;
        Step::StopReceiving
    }

    fn go_on(&mut self) -> Step {
        self.receiving = Receiving::Armed;
        Step::Receive
    }

    fn close(&mut self) -> Step {
        self.stage = Stage::Closed;
        Step::Close
    }
}

#[cfg(test)]
mod tests;
