//! Events by tracepoints: perf_event_open(2), one ring for each processor, inherited by new threads and children.
//!
//! The kernel filters syscalls by number, so that only those that matter cost a record. If the recorder does not read
//! fast enough, records wait in the rings. If those are full, the kernel drops records and counts them.

mod control;
mod tracepoint;

use std::{ffi::CString, fs, io};

use perf_event::{Builder, Counter, SampleFlag, Sampler, events};

use self::tracepoint::{Meaning, Tracepoint};
use super::{
    error::{self, RecordError},
    event::{Event, Stamped},
};
use crate::call::{CALLS, Call};

/// At least so many records of each ring are taken, even without room, so that the time up to which all is known moves on.
const RECORDS_MIN: usize = 1 << 10;

/// Kinds of records (linux/perf_event.h).
mod kind {
    pub(super) const LOST: u32 = 2;
    pub(super) const COMM: u32 = 3;
    pub(super) const EXIT: u32 = 4;
    pub(super) const FORK: u32 = 7;
    pub(super) const SAMPLE: u32 = 9;
    pub(super) const SWITCH: u32 = 14;
}

/// Bits of a record's `misc`.
mod misc {
    pub(super) const COMM_EXEC: u16 = 1 << 13;
    pub(super) const SWITCH_OUT: u16 = 1 << 13;
    pub(super) const SWITCH_OUT_PREEMPT: u16 = 1 << 14;
}

/// Open perf events. Dropping it closes them.
pub(super) struct Perf {
    rings: Vec<Sampler>,
    others: Vec<Counter>,
    /// Events that are off until a program is seen to use io_uring, because each buffered read would cost one.
    pages_wanted: Vec<Counter>,
    decoder: Decoder,
    missing: Vec<Meaning>,
}

/// What a look at the rings gave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drained {
    pub(super) records: usize,
    /// All events before this time were taken. `u64::MAX`: the rings are empty.
    pub(super) until_ns: u64,
}

/// Which threads are observed from when on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Start<'a> {
    /// A thread that waits for its exec, from then on.
    AtExec(u32),
    /// These threads, at once.
    Now(&'a [u32]),
}

impl Perf {
    /// Opens the events, with rings of this many bytes altogether.
    ///
    /// # Errors
    ///
    /// The permission or the limit that is missing, and the remedy.
    pub(super) fn open(
        start: Start<'_>,
        rings_bytes: usize,
        is_wanted: impl Fn(Call) -> bool,
    ) -> Result<Perf, RecordError> {
        let (tracepoints, missing) = Tracepoint::all().map_err(|error| error::tracefs(&error))?;
        let filter = filter(&is_wanted);
        let processors = processors()?;
        let ring_bytes = (rings_bytes / processors.len()).max(1 << 16);
        // The next power of two that is not larger.
        let ring_bytes = 1 << ring_bytes.ilog2();
        let tids = match start {
            Start::AtExec(ref tid) => std::slice::from_ref(tid),
            Start::Now(tids) => tids,
        };
        let mut perf = Perf {
            rings: Vec::new(),
            others: Vec::new(),
            pages_wanted: Vec::new(),
            decoder: Decoder { tracepoints, calls: places(&is_wanted) },
            missing,
        };
        for processor in processors {
            let mut ring = None;
            for tid in tids {
                for at in 0..perf.decoder.tracepoints.len() {
                    let tracepoint = &perf.decoder.tracepoints[at];
                    let (id, meaning) = (tracepoint.id, tracepoint.meaning);
                    let counter = event(id, meaning, (*tid, processor), start).build();
                    let counter = match counter {
                        Ok(counter) => counter,
                        // It ended a moment ago.
                        Err(error) if is_gone(&error) && tids.len() > 1 => break,
                        Err(error) => return Err(error::perf(&error)),
                    };
                    if matches!(meaning, Meaning::Enter | Meaning::Exit) {
                        control::set_filter(&counter, &filter).map_err(|e| error::perf(&e))?;
                    }
                    match &ring {
                        None => {
                            ring = Some(counter.sampled(ring_bytes).map_err(|e| error::ring(&e))?)
                        }
                        Some(ring) => {
                            control::set_output(&counter, ring).map_err(|e| error::perf(&e))?;
                            match meaning {
                                Meaning::PagesWanted => perf.pages_wanted.push(counter),
                                _ => perf.others.push(counter),
                            }
                        }
                    }
                }
            }
            perf.rings.extend(ring);
        }
        if let Start::Now(_) = start {
            perf.enable()?;
        }
        Ok(perf)
    }

    /// Finds out whether tracepoints and rings of so many bytes are allowed, by those of this thread.
    ///
    /// # Errors
    ///
    /// Those of [`open`](Perf::open).
    pub(super) fn probe(rings_bytes: usize) -> Result<(), RecordError> {
        let own = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        Perf::open(Start::Now(&[own]), rings_bytes, |call| call == Call::Seek).map(drop)
    }

    fn enable(&mut self) -> Result<(), RecordError> {
        let enabled = self.others.iter_mut().try_for_each(Counter::enable);
        enabled
            .and_then(|()| self.rings.iter_mut().try_for_each(|ring| ring.enable()))
            .map_err(|error| error::perf(&error))
    }

    /// No more events come. Those in the rings stay.
    pub(super) fn stop(&mut self) {
        // An event that cannot be stopped is closed soon.
        self.others.iter_mut().for_each(|counter| drop(counter.disable()));
        self.rings.iter_mut().for_each(|ring| drop(ring.disable()));
        self.pages_wanted.clear();
    }

    /// The program uses io_uring: from now on, buffered reads tell which pages they want.
    pub(super) fn watch_pages(&mut self) {
        for mut counter in self.pages_wanted.drain(..) {
            // Without it some offsets stay unknown.
            if counter.enable().is_ok() {
                self.others.push(counter);
            }
        }
    }

    /// What this kernel cannot tell, a sentence each.
    pub(super) fn blind_spots(&self) -> Vec<String> {
        let sentence = |meaning: &Meaning| match meaning {
            Meaning::Enter | Meaning::Exit => None,
            Meaning::RingSubmit | Meaning::RingFile | Meaning::RingComplete => Some(
                "This kernel has not all tracepoints of io_uring: its operations can be missing or without a file.",
            ),
            Meaning::PagesAdded => Some(
                "This kernel does not tell when pages come into the page cache: the source of buffered reads is unknown.",
            ),
            Meaning::PagesWanted => {
                Some("This kernel does not tell the offsets of buffered reads by io_uring.")
            }
            Meaning::DirectBegin => {
                Some("This kernel does not tell the offsets of direct I/O by io_uring.")
            }
        };
        self.missing.iter().filter_map(sentence).map(str::to_owned).collect()
    }

    /// Whether it can tell the page cache from the device.
    pub(super) fn sees_pages(&self) -> bool {
        !self.missing.contains(&Meaning::PagesAdded)
    }

    /// Takes what is in the rings, until there are `events_max` events.
    pub(super) fn drain(&mut self, events: &mut Vec<Stamped>, events_max: usize) -> Drained {
        let mut drained = Drained { records: 0, until_ns: u64::MAX };
        let mut rings_left = self.rings.len();
        for ring in &mut self.rings {
            let room = events_max.saturating_sub(events.len()) / rings_left;
            let records_max = drained.records.saturating_add(room.max(RECORDS_MIN));
            rings_left -= 1;
            let (mut loss, mut last_ns, mut is_empty) = (None, 0, false);
            // After a loss comes the record that says when it was.
            while drained.records < records_max || loss.is_some() {
                let Some(record) = ring.next_record() else {
                    is_empty = true;
                    break;
                };
                drained.records += 1;
                let bytes = record.to_contiguous();
                let Some(event) = self.decoder.event((record.ty(), record.misc()), &bytes) else {
                    continue;
                };
                // The kernel stamps a loss after the record that it makes room for.
                if let Some(loss) = loss.take().and_then(|at: usize| events.get_mut(at)) {
                    loss.time_ns = loss.time_ns.min(event.time_ns);
                }
                match event.event {
                    Event::Lost { .. } => loss = Some(events.len()),
                    _ => last_ns = event.time_ns,
                }
                events.push(event);
            }
            if !is_empty {
                drained.until_ns = drained.until_ns.min(last_ns);
            }
        }
        drained
    }
}

/// Makes events of records.
struct Decoder {
    tracepoints: Vec<Tracepoint>,
    /// The place in `CALLS` of each syscall number.
    calls: Vec<u16>,
}

impl Decoder {
    fn event(&self, (kind, misc): (u32, u16), bytes: &[u8]) -> Option<Stamped> {
        let word =
            |at: usize| Some(u32::from_ne_bytes(bytes.get(at..)?.get(..4)?.try_into().ok()?));
        let long =
            |at: usize| Some(u64::from_ne_bytes(bytes.get(at..)?.get(..8)?.try_into().ok()?));
        if kind == kind::SAMPLE {
            let (pid, tid, time_ns) = (word(0)?, word(4)?, long(8)?);
            let raw = bytes.get(20..)?.get(..word(16)? as usize)?;
            let id = u16::from_ne_bytes(raw.get(..2)?.try_into().ok()?);
            let tracepoint = self.tracepoints.iter().find(|tracepoint| tracepoint.id == id)?;
            let event = tracepoint.event(raw, &self.calls)?;
            return Some(Stamped { time_ns, pid, tid, event });
        }
        // The other kinds end with the process, the thread and the time.
        let trailer = bytes.len().checked_sub(16)?;
        let (pid, tid, time_ns) = (word(trailer)?, word(trailer + 4)?, long(trailer + 8)?);
        let stamped = |event| Some(Stamped { time_ns, pid, tid, event });
        match kind {
            kind::LOST => stamped(Event::Lost { events: long(8)? }),
            kind::COMM if misc & misc::COMM_EXEC != 0 => stamped(Event::Executed),
            kind::SWITCH if misc & misc::SWITCH_OUT == 0 => stamped(Event::Resumed),
            kind::SWITCH if misc & misc::SWITCH_OUT_PREEMPT != 0 => stamped(Event::Preempted),
            kind::SWITCH => stamped(Event::Waited),
            // The process, its parent, the thread, its parent, the time.
            kind::FORK | kind::EXIT => {
                let (pid, parent, tid, time_ns) = (word(0)?, word(4)?, word(8)?, long(16)?);
                let event = match kind {
                    kind::EXIT => Event::Ended,
                    _ if pid == parent => return None,
                    _ => Event::Forked { parent },
                };
                Some(Stamped { time_ns, pid, tid, event })
            }
            _ => None,
        }
    }
}

fn event(
    id: u16,
    meaning: Meaning,
    (tid, processor): (u32, usize),
    start: Start<'_>,
) -> Builder<'static> {
    let mut builder = Builder::new(events::Tracepoint::with_id(u64::from(id)));
    builder
        .observe_pid(tid.cast_signed())
        .one_cpu(processor)
        .inherit(true)
        .include_kernel()
        .sample_period(1)
        .sample(SampleFlag::TID | SampleFlag::TIME | SampleFlag::RAW)
        .sample_id_all(true)
        .wakeup_watermark(1 << 30);
    let is_first = meaning == Meaning::Enter;
    builder.task(is_first).comm(is_first).comm_exec(is_first).context_switch(is_first);
    let attributes = builder.attrs_mut();
    attributes.set_use_clockid(1);
    attributes.clockid = libc::CLOCK_MONOTONIC;
    let is_at_exec = matches!(start, Start::AtExec(_)) && meaning != Meaning::PagesWanted;
    builder.enable_on_exec(is_at_exec);
    builder
}

/// The expression that keeps the syscalls that matter.
fn filter(is_wanted: &impl Fn(Call) -> bool) -> CString {
    let wanted = CALLS.iter().filter(|(_, _, call)| is_wanted(*call));
    let terms: Vec<String> = wanted.map(|(_, number, _)| format!("id=={number}")).collect();
    CString::new(terms.join("||")).unwrap_or_default()
}

/// The place in `CALLS` of each syscall number that matters.
fn places(is_wanted: &impl Fn(Call) -> bool) -> Vec<u16> {
    let mut places = vec![u16::MAX; 512];
    for (place, (_, number, call)) in CALLS.iter().enumerate() {
        let entry = usize::try_from(*number).ok().and_then(|number| places.get_mut(number));
        if let Some(entry) = entry.filter(|_| is_wanted(*call)) {
            *entry = place as u16;
        }
    }
    places
}

/// The processors that are online.
fn processors() -> Result<Vec<usize>, RecordError> {
    let path = "/sys/devices/system/cpu/online";
    let text =
        fs::read_to_string(path).map_err(|error| RecordError::on("reading", path, &error))?;
    let mut found = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse()) {
            found.extend(first..=last);
        }
    }
    if found.is_empty() { Ok(vec![0]) } else { Ok(found) }
}

fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}
