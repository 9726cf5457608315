//! blktrace's binary events as a trace (`struct blk_io_trace` in include/uapi/linux/blktrace_api.h, version 7).
//!
//! A request begins when the block layer queues it, and ends when the device completes it. The kernel can merge requests
//! before that: a completion then ends all requests in its range. What a program asked for, and what the page cache
//! served, is not in such a trace: it has what went to the device.

use std::{
    collections::{BTreeMap, VecDeque},
    io::{self, BufRead},
};

use crate::{
    descriptor::device_numbers,
    error::TraceError,
    model::{
        End, FileKind, Header, Interface, Kind, Name, OpenFlags, Operation, Outcome, Record, Source,
    },
    registry::{Opened, Registry},
};

/// What each event begins with: the version, and the magic number. Other machines write it the other way round.
const MAGIC: [u8; 4] = [7, b't', b'a', b'e'];
const EVENT_BYTES: usize = 48;
const SECTOR_BYTES: u64 = 512;
/// The most requests that are followed at a time.
const REQUESTS_MAX: usize = 1 << 20;

/// What happens in an event: the lowest byte of its action.
mod act {
    pub(super) const QUEUE: u32 = 1;
    pub(super) const COMPLETE: u32 = 8;
}

/// Kinds of requests and of events: the upper half of its action.
mod category {
    pub(super) const WRITE: u32 = 1 << 17;
    pub(super) const FLUSH: u32 = 1 << 18;
    pub(super) const NOTIFY: u32 = 1 << 26;
    pub(super) const DISCARD: u32 = 1 << 29;
}

/// Whether a file begins as blktrace's events do.
pub(super) fn is_meant(start: &[u8]) -> bool {
    start.starts_with(&MAGIC)
}

pub(super) fn header() -> Header {
    Header {
        recorder: "blktrace".to_owned(),
        method: "blktrace".to_owned(),
        blind_spots: vec![
            "A block trace has what went to the device, and not what the program asked for: no files, and nothing that \
             the page cache served."
                .to_owned(),
            "The kernel's own threads write back what programs wrote, and read ahead for them.".to_owned(),
        ],
        ..Header::default()
    }
}

/// Iterates over the records of a block trace.
pub(super) fn records<R: BufRead>(input: R) -> Events<R> {
    Events {
        input,
        at_byte: 0,
        began_ns: None,
        last_ns: 0,
        requests: BTreeMap::new(),
        registry: Registry::default(),
        unseen: 0,
        records: VecDeque::new(),
        is_done: false,
    }
}

/// Where a request is: its device, whether it is a flush, and its first sector.
type Place = (u32, bool, u64);

/// A request that the device has not completed.
#[derive(Clone, Copy)]
struct Request {
    pid: u32,
    kind: Kind,
    bytes: u64,
    begin_ns: u64,
}

pub(super) struct Events<R> {
    input: R,
    at_byte: u64,
    began_ns: Option<u64>,
    last_ns: u64,
    requests: BTreeMap<Place, Request>,
    registry: Registry,
    unseen: u64,
    records: VecDeque<Record>,
    is_done: bool,
}

/// An event.
struct Event {
    time_ns: u64,
    sector: u64,
    bytes: u64,
    action: u32,
    pid: u32,
    device: u32,
    error: u16,
}

impl<R: BufRead> Events<R> {
    /// Reads the next event with what follows it. None: the trace ends.
    fn next_event(&mut self) -> Result<Option<Event>, TraceError> {
        let mut bytes = [0; EVENT_BYTES];
        let cut = TraceError::Cut { at_byte: self.at_byte };
        if self.input.fill_buf()?.is_empty() {
            return Ok(None);
        }
        whole(self.input.read_exact(&mut bytes), cut)?;
        if bytes[..4] != MAGIC {
            let what = "expected an event of blktrace, version 7";
            return Err(TraceError::Corrupt { at_byte: self.at_byte, what });
        }
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        // What drivers and processes say of themselves.
        let mut beside = vec![0; usize::from(short(46))];
        let cut = TraceError::Cut { at_byte: self.at_byte };
        whole(self.input.read_exact(&mut beside), cut)?;
        self.at_byte += (EVENT_BYTES + beside.len()) as u64;
        Ok(Some(Event {
            time_ns: long(8),
            sector: long(16),
            bytes: u64::from(word(24)),
            action: word(28),
            pid: word(32),
            device: word(36),
            error: short(44),
        }))
    }

    fn take(&mut self, event: &Event) {
        if event.action & category::NOTIFY != 0 {
            return;
        }
        let began_ns = *self.began_ns.get_or_insert(event.time_ns);
        let time_ns = event.time_ns.saturating_sub(began_ns);
        self.last_ns = self.last_ns.max(time_ns);
        match event.action & 0xff {
            act::QUEUE => self.queued(event, time_ns),
            act::COMPLETE => self.completed(event, time_ns),
            _ => {}
        }
    }

    fn queued(&mut self, event: &Event, begin_ns: u64) {
        let has = |category| event.action & category != 0;
        let kind = match event.bytes {
            _ if has(category::DISCARD) || self.requests.len() >= REQUESTS_MAX => {
                self.unseen += 1;
                return;
            }
            0 if has(category::FLUSH) => Kind::Sync,
            0 => return,
            _ if has(category::WRITE) => Kind::Write,
            _ => Kind::Read,
        };
        let request = Request { pid: event.pid, kind, bytes: event.bytes, begin_ns };
        if self.requests.insert((event.device, event.bytes == 0, event.sector), request).is_some() {
            // Its completion was lost.
            self.unseen += 1;
        }
    }

    fn completed(&mut self, event: &Event, end_ns: u64) {
        let end = event.sector.saturating_add((event.bytes / SECTOR_BYTES).max(1));
        let place = |sector| (event.device, event.bytes == 0, sector);
        let ended: Vec<Place> =
            self.requests.range(place(event.sector)..place(end)).map(|(place, _)| *place).collect();
        for place in ended {
            let Some(request) = self.requests.remove(&place) else { continue };
            let outcome = match event.error {
                0 => Outcome::Done { bytes: request.bytes },
                errno => Outcome::Failed { errno },
            };
            self.operation(place, request, (outcome, end_ns));
        }
    }

    fn operation(&mut self, place: Place, request: Request, (outcome, end_ns): (Outcome, u64)) {
        let (device, is_flush, sector) = place;
        let (major, minor) = device_numbers(u64::from(device));
        let name = format!("/dev/block/{major}:{minor}");
        let direct = OpenFlags { is_direct: true, ..OpenFlags::default() };
        let opened = Opened::new(Name::Path(name.into()), FileKind::Block, direct);
        let pid = request.pid;
        let file = self.registry.file(opened, None, &mut self.records);
        let thread = self.registry.thread(pid, || (pid, String::new()), &mut self.records);
        self.records.push_back(Record::Operation(Operation {
            thread,
            file,
            target: None,
            kind: request.kind,
            offset: (!is_flush).then(|| sector.saturating_mul(SECTOR_BYTES)),
            asked_bytes: Some(request.bytes),
            outcome,
            begin_ns: request.begin_ns,
            duration_ns: end_ns.saturating_sub(request.begin_ns),
            is_direct: true,
            source: Source::Device,
            interface: Interface::BlockLayer,
            computed_ns: None,
        }));
    }

    /// Ends the trace with the requests that the device did not complete.
    fn end(&mut self) {
        for (place, request) in std::mem::take(&mut self.requests) {
            self.operation(place, request, (Outcome::Unfinished, self.last_ns));
        }
        self.records.push_back(Record::End(Box::new(End {
            elapsed_ns: self.last_ns,
            unseen_requests: self.unseen,
            ..End::default()
        })));
        self.is_done = true;
    }
}

/// A stream that ends within an event was cut.
fn whole(read: io::Result<()>, cut: TraceError) -> Result<(), TraceError> {
    read.map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => cut,
        _ => error.into(),
    })
}

impl<R: BufRead> Iterator for Events<R> {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(record) = self.records.pop_front() {
                return Some(Ok(record));
            }
            if self.is_done {
                return None;
            }
            match self.next_event() {
                Ok(Some(event)) => self.take(&event),
                Ok(None) => self.end(),
                Err(error) => {
                    self.is_done = true;
                    return Some(Err(error));
                }
            }
        }
    }
}
