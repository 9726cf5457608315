//! The rules of one stream: what is sent when, what is sent again, and when the cursor moves.
//!
//! Shipments in flight stay in memory until they are acknowledged. After an error all of them are sent again, the same
//! ones in the same order, so a destination that numbers them takes each once. Only a crash makes the lane read lines
//! again that were sent: those after the cursor. A destination that says itself how far it has the stream is believed
//! instead, unless its last line is another one than the line here.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use super::{
    cursor::Cursor,
    destination::{Destination, Reached, Trouble},
    follower::{Follower, Found},
    progress::Progress,
    shipment::{Rest, Shipment},
};
use crate::{error::LogdError, monitoring::log};

/// How long acknowledged lines may not be in the cursor.
const KEEP_TIME: Duration = Duration::from_millis(250);
/// How long the lane waits before it connects again, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Ships a stream.
pub(crate) struct Lane<D> {
    stream: u32,
    follower: Follower,
    destination: D,
    /// The batch of which a part is not sent yet.
    rest: Option<Rest>,
    /// Shipments that are not acknowledged, the oldest first.
    window: VecDeque<Shipment>,
    /// The line before which the destination has all, as acknowledgements or the destination itself said last.
    agreed: Option<u64>,
    /// Why nothing is shipped until a restart.
    refusal: Option<String>,
    progress: Arc<Progress>,
    cursor: Arc<Mutex<Cursor>>,
    is_connected: bool,
    pause: Duration,
    has_backlog: bool,
}

/// What a turn did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It sent or received something.
    Worked,
    /// Shipments are in flight.
    Waits,
    /// Everything durable is acknowledged.
    Idle,
    /// The destination is away, or a file cannot be read. The next turn should be so much later.
    Failed(Duration),
}

impl<D: Destination> Lane<D> {
    pub(crate) fn new(
        stream: u32,
        follower: Follower,
        destination: D,
        (progress, cursor): (Arc<Progress>, Arc<Mutex<Cursor>>),
    ) -> Lane<D> {
        progress.begin(follower.next_line());
        Lane {
            stream,
            follower,
            destination,
            rest: None,
            window: VecDeque::new(),
            agreed: None,
            refusal: None,
            progress,
            cursor,
            is_connected: false,
            pause: PAUSE_MIN,
            has_backlog: false,
        }
    }

    /// Says that this thread works on the lane.
    pub(crate) fn attend(&self) {
        self.progress.attend();
    }

    /// Sends what there is room for, and waits for an acknowledgement for at most this time.
    pub(crate) fn turn(&mut self, wait: Duration) -> Turn {
        if !self.has_backlog {
            self.has_backlog = self.count_backlog();
        }
        let turn = self.work(wait).unwrap_or_else(|trouble| self.fail(trouble));
        self.pass_lost();
        self.keep(KEEP_TIME);
        turn
    }

    fn work(&mut self, wait: Duration) -> Result<Turn, Trouble> {
        let mut turn = Turn::Waits;
        if !self.is_connected {
            if self.window.is_empty() && self.is_idle() {
                // There is nothing to connect for.
                return Ok(Turn::Idle);
            }
            if let Some(why) = &self.refusal {
                return Err(Trouble(why.clone()));
            }
            if let Some(reached) = self.destination.connect()? {
                self.go_on_with(reached)?;
            }
            self.is_connected = true;
            if self.is_done() {
                self.succeeded();
            }
            for shipment in &self.window {
                self.destination.send(shipment)?;
            }
        }
        while self.window.len() < self.destination.window() {
            let shipment = match self.gather() {
                Ok(Some(shipment)) => shipment,
                Ok(None) if self.window.is_empty() => return Ok(Turn::Idle),
                Ok(None) => break,
                Err(error) if self.window.is_empty() => {
                    self.progress.troubles.note(&error.to_string());
                    log::remark("ship", format_args!("{error}"));
                    return Ok(Turn::Failed(self.lengthen_pause()));
                }
                Err(_) => break,
            };
            self.window.push_back(shipment);
            if let Some(shipment) = self.window.back() {
                self.destination.send(shipment)?;
            }
            turn = Turn::Worked;
        }
        for _ in 0..self.destination.receive(wait)? {
            self.acknowledged();
            turn = Turn::Worked;
        }
        Ok(turn)
    }

    /// Goes on with the line that the destination wants next: it has all lines before that, and no others.
    fn go_on_with(&mut self, reached: Reached) -> Result<(), Trouble> {
        let (line, stream) = (reached.line, self.stream);
        if self.agreed == Some(line) {
            return Ok(());
        }
        if let Some(what) = self.contradiction(reached) {
            let why = format!(
                "the destination has {line} lines of stream {stream}, and {what}: other segments were here, or are \
                 elsewhere under the same name; restore them, or remove ship.cursor and directory.id to ship these \
                 lines under a new name"
            );
            // Lines that come now would have the numbers of others. The destination may have been away before, and that
            // is told once.
            log::remark(
                "ship",
                format_args!(
                    "stream {stream}: {why}; nothing of the stream is shipped until a restart"
                ),
            );
            self.refusal = Some(why.clone());
            return Err(Trouble(why));
        }
        while let Some(first) = self.window.front()
            && first.line_end() <= line
        {
            self.acknowledged();
        }
        if self.agreed.replace(line) == Some(line) || self.next_line() == line {
            return Ok(());
        }
        log::remark(
            "ship",
            format_args!("stream {stream}: goes on with line {line}, as the destination says"),
        );
        self.window.clear();
        self.rest = None;
        self.follower = self.follower.at(line);
        self.progress.begin(line);
        self.has_backlog = false;
        Ok(())
    }

    /// Why the lines of the destination cannot be those of this directory. Nothing if they can.
    fn contradiction(&self, reached: Reached) -> Option<String> {
        let durable = self.progress.durable();
        if reached.line > durable {
            return Some(format!("{durable} are stored"));
        }
        let (last, theirs) = reached.line.checked_sub(1).zip(reached.checksum)?;
        let own = self.follower.at(last).checksum(durable)?;
        (own != theirs).then(|| format!("its line {last} is not the one here"))
    }

    /// The first line that is not acknowledged and not known to be gone.
    fn next_line(&self) -> u64 {
        let first = self.window.front().map(|shipment| shipment.first_line);
        let next = || self.rest.as_ref().map_or(self.follower.next_line(), Rest::line);
        first.unwrap_or_else(next)
    }

    fn is_idle(&self) -> bool {
        self.rest.is_none() && self.follower.next_line() >= self.progress.durable()
    }

    /// Gathers lines for a shipment. Nothing means that there are none yet.
    fn gather(&mut self) -> Result<Option<Shipment>, LogdError> {
        let mut shipment = Shipment::default();
        loop {
            if let Some(rest) = &mut self.rest {
                if shipment.lines > 0 && rest.line() != shipment.line_end() {
                    break;
                }
                if !rest.fill(&mut shipment) {
                    break;
                }
                self.rest = None;
            }
            let from = self.follower.next_line();
            match self.follower.next(self.progress.durable()) {
                Ok(Some(Found::Lines(piece))) => self.rest = Some(Rest::new(piece, from)),
                Ok(Some(Found::Missing(lines))) => {
                    self.lose(&lines);
                    if shipment.lines > 0 {
                        break;
                    }
                }
                // Lines that were gathered are sent first.
                Err(_) | Ok(None) if shipment.lines > 0 => break,
                Ok(None) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok((shipment.lines > 0).then_some(shipment))
    }

    /// Counts lines that are not there any more.
    fn lose(&mut self, lines: &std::ops::Range<u64>) {
        let count = lines.end - lines.start;
        self.progress.lost_lines.fetch_add(count, std::sync::atomic::Ordering::Relaxed);
        let (stream, first, last) = (self.stream, lines.start, lines.end - 1);
        log::remark(
            "lost",
            format_args!(
                "stream {stream}: lines {first} to {last} are gone and were not shipped: retention removed them, or \
                 they are damaged (logd verify)"
            ),
        );
        self.has_backlog = false;
    }

    /// Moves on over lines that are gone, once nothing before them waits for an acknowledgement.
    fn pass_lost(&self) {
        let next = self.follower.next_line();
        let is_waiting = !self.window.is_empty() || self.rest.is_some();
        if !is_waiting && next > self.progress.acknowledged() {
            self.progress.acknowledge(next, 0, 0);
        }
    }

    /// Counts the bytes that wait. False means that an index could not be read.
    fn count_backlog(&self) -> bool {
        let (durable, before) = (self.progress.durable(), self.progress.durable_bytes());
        let sent: usize = self.window.iter().map(|shipment| shipment.bytes.len()).sum();
        let waiting = sent + self.rest.as_ref().map_or(0, Rest::bytes);
        let counted = self.follower.count_bytes(durable);
        let counted = counted.map(|bytes| {
            self.progress.set_backlog(bytes + waiting as u64, before);
        });
        counted.is_ok()
    }

    fn acknowledged(&mut self) {
        let Some(shipment) = self.window.pop_front() else { return };
        (self.pause, self.agreed) = (PAUSE_MIN, Some(shipment.line_end()));
        let bytes = shipment.bytes.len() as u64;
        self.progress.acknowledge(shipment.line_end(), shipment.lines, bytes);
        self.succeeded();
    }

    /// Notes that the destination is not away.
    fn succeeded(&self) {
        if self.progress.troubles.succeed() {
            log::remark("ship", format_args!("stream {}: shipping again", self.stream));
        }
    }

    /// Notes that the destination is away.
    fn fail(&mut self, Trouble(why): Trouble) -> Turn {
        self.is_connected = false;
        if self.progress.troubles.fail(&why) && self.refusal.is_none() {
            let stream = self.stream;
            log::remark(
                "ship",
                format_args!(
                    "stream {stream}: {why}; lines wait in the segments, and logd tries again"
                ),
            );
        }
        Turn::Failed(self.lengthen_pause())
    }

    /// Returns how long to wait. The next time it is twice as long.
    fn lengthen_pause(&mut self) -> Duration {
        let next = (2 * self.pause).min(PAUSE_MAX);
        std::mem::replace(&mut self.pause, next)
    }

    /// Stores the acknowledged line in the cursor, if the cursor is older than this.
    pub(crate) fn keep(&mut self, age: Duration) {
        let line = self.progress.acknowledged();
        if line == self.progress.kept() {
            return;
        }
        let mut cursor = self.cursor.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = cursor.keep(self.stream, line, age) {
            log::remark("ship", format_args!("the cursor is not stored: {error}"));
        }
        self.progress.keep(cursor.line(self.stream));
    }

    /// Whether the destination does not answer.
    pub(crate) fn is_away(&self) -> bool {
        self.progress.troubles.is_away()
    }

    /// Whether nothing is in flight and all durable lines are acknowledged.
    pub(crate) fn is_done(&self) -> bool {
        self.window.is_empty() && self.is_idle()
    }
}
