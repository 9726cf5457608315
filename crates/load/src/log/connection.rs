//! One connection: the lines that it sends, and what the target says of them.
//!
//! It never waits: it does what can be done when it is told that its socket is ready
//! (edge-triggered, epoll(7)), that lines are due, or that the end has come.

use std::{
    collections::{BTreeSet, VecDeque},
    io,
    sync::Arc,
};

use rustix::{event::epoll::EventFlags, net::sockopt};
use rustls::ClientConnection;

use super::{
    answers::{Answer, Answers, strange},
    args::{Guarantee, Protocol},
    ledger::Ledger,
    lines::{Lines, Name, transaction},
    plan::Plan,
    wire::Wire,
};
use crate::{
    args::typed,
    crew::{self, Fault},
};

/// About the most that one call sends, and that is made and not sent.
const CHUNK_BYTES: usize = 128 << 10;
/// The same where each line is answered by itself and looked up in what is not sent.
const RELP_CHUNK_BYTES: usize = 16 << 10;
/// How often a connection sends so much before others have their turn.
const CHUNKS_IN_TURN: usize = 8;
/// What the kernel may hold of lines that are not acknowledged, over all connections and of one.
const SEND_BUFFERS_BYTES: usize = 8 << 20;
const SEND_BUFFER_BYTES_MIN: usize = 16 << 10;
const SEND_BUFFER_BYTES_MAX: usize = 1 << 20;
const INPUT_BYTES: usize = 16 << 10;
/// What a client of RELP says first: that it knows transactions of syslog.
const RELP_OPEN: &[u8] = b"1 open 53 relp_version=0\nrelp_software=ringwise\ncommands=syslog\n";

/// What the connections of a thread share beyond what all generators' do.
pub(super) struct Kit {
    pub plan: Arc<Plan>,
    pub lines: Arc<Lines>,
    pub ledger: Ledger,
    /// Whether all that is made is all that is to be sent.
    pub is_ending: bool,
    /// Connections that stopped though they could have gone on.
    pub again: VecDeque<usize>,
    /// When it is looked next at what is due.
    pub look_ns: u64,
    output: Vec<u8>,
    input: Box<[u8]>,
}

pub(super) type Desk = crew::Desk<Kit>;

impl Kit {
    pub(super) fn new(plan: Arc<Plan>, lines: Arc<Lines>) -> Kit {
        Kit {
            plan,
            lines,
            ledger: Ledger::default(),
            is_ending: false,
            again: VecDeque::new(),
            look_ns: 0,
            output: Vec::with_capacity(2 * CHUNK_BYTES),
            input: vec![0; INPUT_BYTES].into(),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Over, failed, or not yet made.
    #[default]
    Closed,
    Connecting,
    /// TLS, then the greeting.
    Greeting,
    Open,
    /// All is sent, and the target has been told so.
    HalfClosed,
}

/// Lines that were made at one moment, in a loop without schedule.
struct Batch {
    /// The number behind the last one's.
    end: u64,
    begun_ns: u64,
}

/// One connection.
#[derive(Default)]
pub(super) struct Connection {
    is_sender: bool,
    stage: Stage,
    /// Where it stands among the thread's connections, and among all.
    place: usize,
    number: u64,
    wire: Option<Wire>,
    /// Lines that the schedule lets be sent, that are made, that were answered in a row, and those
    /// of which the latency was taken.
    pub due: u64,
    made: u64,
    answered: u64,
    timed: u64,
    rejected: u64,
    /// What is made and not sent, from a byte on.
    pending: Vec<u8>,
    pending_at: usize,
    batches: VecDeque<Batch>,
    answers: Answers,
    /// RELP: lines that were answered before others.
    early: BTreeSet<u64>,
    has_greeted: bool,
    is_failed: bool,
}

impl Connection {
    pub(super) fn new(is_sender: bool, place: usize, number: u64) -> Connection {
        Connection { is_sender, place, number, ..Connection::default() }
    }
}

impl crew::Connection for Connection {
    type Kit = Kit;

    fn open(&mut self, desk: &mut Desk) -> Result<(), Fault> {
        let address = desk.kit.plan.address;
        let is_answered = desk.kit.plan.is_answered();
        // Without answers only the buffers bound what is under way.
        let bytes = (SEND_BUFFERS_BYTES / desk.kit.plan.connections)
            .clamp(SEND_BUFFER_BYTES_MIN, SEND_BUFFER_BYTES_MAX);
        let stream = desk.connect(address, self.place, |socket| match is_answered {
            true => Ok(()),
            false => sockopt::set_socket_send_buffer_size(socket, bytes),
        });
        let stream = stream?;
        self.wire = Some(match &desk.kit.plan.tls {
            None => Wire::Plain(stream),
            Some(tls) => {
                let session = ClientConnection::new(tls.config.clone(), tls.name.clone())
                    .map_err(|error| Fault::connecting(address, &io::Error::other(error)))?;
                Wire::Tls(stream, Box::new(session))
            }
        });
        self.stage = Stage::Connecting;
        Ok(())
    }

    fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    fn is_failed(&self) -> bool {
        self.is_failed
    }

    fn is_over(&self) -> bool {
        self.stage == Stage::Closed
    }

    fn ready(&mut self, flags: EventFlags, desk: &mut Desk) -> Result<(), Fault> {
        if self.stage == Stage::Connecting && !self.connected(flags, desk)? {
            return Ok(());
        }
        let wanted = EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        if flags.intersects(wanted) || self.stage == Stage::Greeting {
            self.receive(desk)?;
        }
        self.advance(desk)
    }

    /// Sends what may be sent, and half-closes where all is done.
    fn advance(&mut self, desk: &mut Desk) -> Result<(), Fault> {
        if self.stage == Stage::Greeting {
            return self.greet(desk);
        }
        if self.stage != Stage::Open {
            return Ok(());
        }
        let has_sent = self.send(desk)?;
        if !desk.kit.plan.is_answered() {
            self.take_sent(desk);
        }
        let is_done = has_sent && self.made == self.due_now(desk);
        if is_done
            && desk.kit.is_ending
            && (!desk.kit.plan.is_answered() || self.answered == self.made)
        {
            self.half_close(desk)?;
        }
        Ok(())
    }

    fn stuck(&self, seconds: u64, desk: &Desk) -> Fault {
        let (made, sent) = (self.made, self.sent(desk));
        Fault::Wrong(match self.stage {
            Stage::Connecting | Stage::Greeting => {
                format!("not taken, or not greeted, within {seconds} s")
            }
            Stage::HalfClosed => format!(
                "the target did not close within {seconds} s of the half-close; whether it took \
                 all cannot be told"
            ),
            _ if sent < made => {
                format!("the target took nothing for {seconds} s ({sent} of {made} lines)")
            }
            _ => {
                let progress = progress(sent, self.answered);
                format!("no answer for {seconds} s after the end ({progress})")
            }
        })
    }

    fn fail(&mut self, fault: &Fault, desk: &mut Desk) {
        if self.is_failed {
            return;
        }
        let now_ns = desk.clock.now_ns();
        self.took_until(self.made, now_ns, desk);
        desk.tally.failed(self.number, fault);
        desk.opened +=
            usize::from(matches!(self.stage, Stage::Connecting | Stage::Greeting | Stage::Closed));
        self.is_failed = true;
        self.close(desk);
    }

    fn wind_down(&mut self, desk: &mut Desk) -> Result<(), Fault> {
        desk.kit.is_ending = true;
        self.advance(desk)
    }

    fn finish(&mut self, _: &mut Desk) -> Result<(), Fault> {
        Ok(())
    }
}

impl Connection {
    /// Lines that are made.
    pub(super) fn made(&self) -> u64 {
        self.made
    }

    /// Lines that the kernel has whole.
    fn sent(&self, desk: &Desk) -> u64 {
        let rest = &self.pending[self.pending_at..];
        if rest.is_empty() {
            return self.made;
        }
        self.made.saturating_sub(desk.kit.lines.ends_in(rest))
    }

    fn connected(&mut self, flags: EventFlags, desk: &mut Desk) -> Result<bool, Fault> {
        let Some(wire) = &self.wire else { return Ok(false) };
        if !desk.is_connected(wire.stream(), flags, desk.kit.plan.address)? {
            return Ok(false);
        }
        self.stage = Stage::Greeting;
        let greeting: &[u8] = match (desk.kit.plan.protocol, desk.kit.plan.ack) {
            (Protocol::Relp, _) => RELP_OPEN,
            (_, None) => b"",
            (Protocol::Lines, Some(Guarantee::Any)) => b"LOGD 1\n",
            (Protocol::Lines, Some(Guarantee::Written)) => b"LOGD 1 ack=written\n",
            (Protocol::Lines, Some(Guarantee::Durable)) => b"LOGD 1 ack=durable\n",
            (Protocol::OctetCounting, Some(Guarantee::Any)) => b"6 LOGD 1",
            (Protocol::OctetCounting, Some(Guarantee::Written)) => b"18 LOGD 1 ack=written",
            (Protocol::OctetCounting, Some(Guarantee::Durable)) => b"18 LOGD 1 ack=durable",
        };
        self.pending.extend_from_slice(greeting);
        Ok(true)
    }

    fn greet(&mut self, desk: &mut Desk) -> Result<(), Fault> {
        if !self.flush()? || !self.wire.as_ref().is_some_and(Wire::is_ready) {
            return Ok(());
        }
        if self.send_pending(desk)? && (self.has_greeted || !desk.kit.plan.is_answered()) {
            self.stage = Stage::Open;
            desk.opened += 1;
        }
        Ok(())
    }

    fn half_close(&mut self, desk: &mut Desk) -> Result<(), Fault> {
        if desk.kit.plan.protocol == Protocol::Relp {
            // The polite way, without which rsyslog takes it for a session that broke.
            let frame = format!("{} close 0\n", transaction(self.made));
            self.send_bytes(frame.as_bytes(), desk)?;
        }
        let Some(wire) = &mut self.wire else { return Ok(()) };
        wire.half_close().map_err(|error| self.call_failed("half-closing", &error))?;
        self.stage = Stage::HalfClosed;
        Ok(())
    }

    /// How many lines are due by now, however far it is.
    fn due_now(&self, desk: &Desk) -> u64 {
        match (desk.may_send && self.is_sender, desk.pace.is_some()) {
            (false, _) => self.made,
            (true, true) => self.due,
            (true, false) => u64::MAX,
        }
    }

    /// Sends until all that is due is sent, or there is no room; then its next event says when to
    /// go on. Whether all is sent.
    fn send(&mut self, desk: &mut Desk) -> Result<bool, Fault> {
        let mut due = self.due_now(desk);
        if desk.kit.plan.is_answered() {
            due = due.min(self.answered.saturating_add(desk.kit.plan.window_lines));
        }
        for _ in 0..CHUNKS_IN_TURN {
            if !self.send_pending(desk)? {
                return Ok(false);
            }
            if self.made >= due {
                return self.flush();
            }
            let mut output = std::mem::take(&mut desk.kit.output);
            output.clear();
            let first = Name { connection: self.number, number: self.made };
            let room = match desk.kit.plan.protocol {
                Protocol::Relp => RELP_CHUNK_BYTES,
                Protocol::Lines | Protocol::OctetCounting => CHUNK_BYTES,
            };
            self.made += desk.kit.lines.fill(first, due - first.number, room, &mut output);
            if desk.pace.is_none() {
                let begun_ns = desk.clock.now_ns();
                self.batches.push_back(Batch { end: self.made, begun_ns });
            }
            let sent = self.send_bytes(&output, desk);
            if let Ok(sent) = sent {
                self.pending.extend_from_slice(&output[sent..]);
            }
            desk.kit.output = output;
            sent?;
        }
        desk.kit.again.push_back(self.place);
        Ok(false)
    }

    /// Sends what is left of what was made. Whether nothing is left.
    fn send_pending(&mut self, desk: &mut Desk) -> Result<bool, Fault> {
        while self.pending_at < self.pending.len() {
            let pending = std::mem::take(&mut self.pending);
            let sent = self.send_bytes(&pending[self.pending_at..], desk);
            self.pending = pending;
            match sent? {
                0 => return Ok(false),
                sent => self.pending_at += sent,
            }
        }
        self.pending.clear();
        self.pending_at = 0;
        Ok(true)
    }

    /// Sends as much as there is room for.
    fn send_bytes(&mut self, bytes: &[u8], desk: &mut Desk) -> Result<usize, Fault> {
        let Some(wire) = &mut self.wire else { return Ok(0) };
        let mut sent = 0;
        while sent < bytes.len() {
            match wire.send(&bytes[sent..]) {
                Ok(count) => {
                    sent += count;
                    desk.kit.ledger.writes += 1;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.call_failed("sending", &error)),
            }
        }
        desk.tally.bytes_sent += sent as u64;
        Ok(sent)
    }

    fn flush(&mut self) -> Result<bool, Fault> {
        let Some(wire) = &mut self.wire else { return Ok(true) };
        wire.flush().map_err(|error| self.call_failed("sending", &error))
    }

    fn call_failed(&self, what: &str, error: &io::Error) -> Fault {
        Fault::of_call(what, error, &progress(self.made, self.answered))
    }

    /// Receives until nothing is left.
    fn receive(&mut self, desk: &mut Desk) -> Result<(), Fault> {
        loop {
            let Some(wire) = &mut self.wire else { return Ok(()) };
            match wire.receive(&mut desk.kit.input) {
                Ok(0) => return self.ended(desk),
                Ok(count) => self.take(count, desk)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.call_failed("receiving", &error)),
            }
        }
    }

    fn take(&mut self, count: usize, desk: &mut Desk) -> Result<(), Fault> {
        if !desk.kit.plan.is_answered() {
            return Err(strange(&desk.kit.input[..count]));
        }
        let input = std::mem::take(&mut desk.kit.input);
        let mut answers = std::mem::take(&mut self.answers);
        let protocol = desk.kit.plan.protocol;
        let before = self.answered;
        let mut each = |answer: Answer<'_>| self.answer(answer, desk);
        let taken = answers.take(protocol, &input[..count], &mut each);
        self.answers = answers;
        desk.kit.input = input;
        taken?;
        if self.answered > before {
            self.take_time(self.answered, desk);
        }
        Ok(())
    }

    fn answer(&mut self, answer: Answer<'_>, desk: &mut Desk) -> Result<(), Fault> {
        match answer {
            Answer::Hello(promise) if !self.has_greeted => self.hello(promise, desk),
            Answer::Transaction(1, status) if !self.has_greeted => match status {
                "200 OK" => self.hello(status, desk),
                _ => Err(refused(status)),
            },
            Answer::Refused(text) => Err(refused(text)),
            Answer::Acknowledged(number) => {
                if number < self.answered {
                    let before = self.answered;
                    return Err(Fault::Wrong(format!(
                        "line {number} was acknowledged after line {before}"
                    )));
                }
                self.check_sent(number, desk)?;
                self.answered = number;
                Ok(())
            }
            Answer::Rejected(number, reason) => {
                self.check_sent(number, desk)?;
                self.reject(number, reason, desk);
                Ok(())
            }
            // The close's own.
            Answer::Transaction(..) if self.stage == Stage::HalfClosed => Ok(()),
            Answer::Transaction(number, status) => self.transaction(number, status, desk),
            // What is not answered then is missing in the end.
            Answer::Closing => Ok(()),
            Answer::Hello(text) => Err(strange(text.as_bytes())),
        }
    }

    fn hello(&mut self, promise: &str, desk: &mut Desk) -> Result<(), Fault> {
        // What else the daemon says in its greeting is for clients that asked for it.
        let promised = promise.split(' ').next().unwrap_or_default();
        if let Some(asked) = desk.kit.plan.ack {
            let is_enough = match asked {
                Guarantee::Any => true,
                Guarantee::Written => matches!(promised, "written" | "durable" | "replicated"),
                Guarantee::Durable => matches!(promised, "durable" | "replicated"),
            };
            if !is_enough {
                let asked = typed(asked);
                return Err(Fault::Wrong(format!(
                    "asked for {asked}, and the target promises {promised}"
                )));
            }
            desk.kit.ledger.promise.get_or_insert_with(|| promised.to_owned());
        }
        self.has_greeted = true;
        Ok(())
    }

    /// RELP answers each line by itself, in any order.
    fn transaction(&mut self, number: u64, status: &str, desk: &mut Desk) -> Result<(), Fault> {
        let line = match number == transaction(self.answered) {
            true => self.answered,
            // The numbers wrap far beyond what can be under way.
            false => {
                let sent = self.sent(desk);
                let found = (self.answered..sent).find(|&line| transaction(line) == number);
                found.ok_or_else(|| early(number - 1, sent))?
            }
        };
        self.check_sent(line + 1, desk)?;
        if status != "200 OK" {
            self.reject(line + 1, status, desk);
        }
        if line > self.answered {
            self.early.insert(line);
            return Ok(());
        }
        self.answered += 1;
        while self.early.remove(&self.answered) {
            self.answered += 1;
        }
        Ok(())
    }

    fn reject(&mut self, number: u64, reason: &str, desk: &mut Desk) {
        self.rejected += 1;
        let connection = self.number;
        desk.kit
            .ledger
            .rejection
            .get_or_insert_with(|| format!("line {number} of connection {connection}: {reason}"));
    }

    fn check_sent(&self, number: u64, desk: &Desk) -> Result<(), Fault> {
        let sent = self.sent(desk);
        if number > sent { Err(early(number, sent)) } else { Ok(()) }
    }

    /// Without acknowledgements a line is done when the kernel has it.
    fn take_sent(&mut self, desk: &mut Desk) {
        let sent = self.sent(desk);
        if sent > self.timed {
            self.take_time(sent, desk);
        }
    }

    /// The lines before `end` are done.
    fn take_time(&mut self, end: u64, desk: &mut Desk) {
        let now_ns = desk.clock.now_ns();
        if desk.is_measured(now_ns) {
            desk.tally.operations += end - self.timed;
        }
        self.took_until(end, now_ns, desk);
    }

    fn took_until(&mut self, end: u64, now_ns: u64, desk: &mut Desk) {
        while self.timed < end {
            let (begun_ns, to) = match (desk.pace, self.batches.front()) {
                (Some(pace), _) => {
                    let burst = desk.kit.plan.burst_lines;
                    let nth = self.timed / burst;
                    (pace.intended_of_ns(self.place, nth), (nth + 1) * burst)
                }
                (None, Some(batch)) => (batch.begun_ns, batch.end),
                (None, None) => (now_ns, end),
            };
            let to_now = to.min(end);
            desk.took(begun_ns, now_ns, to_now - self.timed);
            self.timed = to_now;
            if desk.pace.is_none() && to_now == to {
                self.batches.pop_front();
            }
        }
    }

    /// The target has closed: as it should after a half-close, and too early otherwise.
    fn ended(&mut self, desk: &mut Desk) -> Result<(), Fault> {
        if self.stage != Stage::HalfClosed {
            let (sent, answered) = (self.made, self.answered);
            return Err(Fault::Broken(match desk.kit.plan.is_answered() {
                true => format!("the target closed it after answering {answered} of {sent} lines"),
                false => {
                    format!("the target closed it when {sent} lines were sent, before their end")
                }
            }));
        }
        if !desk.kit.plan.is_answered() {
            desk.tally.received += self.made;
        }
        self.close(desk);
        Ok(())
    }

    /// Closes the socket, and counts what went through it.
    fn close(&mut self, desk: &mut Desk) {
        if self.wire.take().is_some() {
            let sent = self.sent(desk);
            desk.tally.sent += sent;
            if desk.kit.plan.is_answered() {
                desk.tally.received += self.answered;
            }
            let ledger = &mut desk.kit.ledger;
            ledger.rejected += self.rejected;
            if self.is_sender {
                ledger.sent_by.push((self.number, sent));
            }
            ledger.over_ns = ledger.over_ns.max(desk.clock.now_ns());
        }
        self.stage = Stage::Closed;
    }
}

fn progress(sent: u64, answered: u64) -> String {
    format!("{answered} of {sent} lines were answered")
}

fn refused(text: &str) -> Fault {
    Fault::Wrong(format!("the target refused: {text}"))
}

/// Lines are acknowledged that were not sent.
fn early(acknowledged: u64, sent: u64) -> Fault {
    Fault::Wrong(format!("line {acknowledged} was acknowledged when {sent} were sent"))
}
