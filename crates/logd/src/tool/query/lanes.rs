//! Reads the segments of several streams on several threads, and gives the selected lines in order.
//!
//! Each segment is a lane. A thread takes a lane, reads a few MiB of it, and puts it back with the lines that it found.
//! It prefers the first lane of each stream, which the printing thread waits for. It reads later segments ahead, up
//! to a number of lanes, and leaves a lane alone while [`BACKLOG_BYTES`] of its lines are not printed. So
//! memory is bounded, and nobody waits for a lane that no thread may take.
//!
//! Lines have the order of `cat`: batches by time, and those of one stream in its order.

mod state;

use std::{
    io, mem,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use crate::{
    disk::segment::reading::{
        cursor::{Cursor, Opened, Piece},
        reader::Retired,
        source::{InDirectory, Segments},
        view::{Judge, Report},
    },
    error::LogdError,
    tool::{follow::LOOK_TIME, printer::Printer, selection::Selection},
};
pub(crate) use state::Counts;
use state::{BACKLOG_BYTES, End, LaneState, Reading, State, Task};

/// A thread puts a lane back after so many bytes.
const STEP_BYTES: u64 = 8 << 20;
/// How many lanes are open for each thread, beside the first of each stream.
const LANES_AHEAD: usize = 2;

/// The result of a scan.
pub(super) struct Scanned {
    /// For each stream its last segment, and the number of the line after those that were read.
    pub(super) ends: Vec<Option<(usize, u64)>>,
    /// The problems of the segments, a line each.
    pub(super) problems: Vec<String>,
    pub(super) counts: Counts,
}

/// Prints the selected lines of all streams, until the printer or nobody wants more.
pub(super) fn scan(
    streams: &[InDirectory<'_>],
    selection: &Selection<'_>,
    threads: usize,
    printer: &mut dyn Printer,
) -> Result<Scanned, LogdError> {
    let state = State::new(streams.iter().map(Segments::count));
    let lanes_max = streams.len() + threads * LANES_AHEAD;
    let (work, results) = (Condvar::new(), Condvar::new());
    let shared = Shared { streams, selection, lanes_max, state: Mutex::new(state), work, results };
    thread::scope(|scope| {
        // However this ends, the threads end.
        let _stop = Stop(&shared);
        for number in 0..threads {
            let thread = thread::Builder::new().name("logd-query".into());
            match thread.spawn_scoped(scope, || shared.read()) {
                Err(error) if number == 0 => {
                    return Err(LogdError::failed(format!(
                        "cannot start a thread: {error}; raise ulimit -u"
                    )));
                }
                _ => {}
            }
        }
        shared.print(printer)
    })
}

struct Shared<'a> {
    streams: &'a [InDirectory<'a>],
    selection: &'a Selection<'a>,
    lanes_max: usize,
    state: Mutex<State>,
    /// There is a lane to take.
    work: Condvar,
    /// A lane was put back.
    results: Condvar,
}

/// What came of a step.
#[derive(Default)]
struct Stepped {
    found: Vec<Piece<'static>>,
    found_bytes: usize,
    read_bytes: u64,
    looked_at: u64,
}

/// What is known of a stream, segment after segment.
#[derive(Default)]
struct Ledger {
    judge: Judge,
    retired: Retired,
    end: Option<(usize, u64)>,
}

impl Ledger {
    fn close(
        &mut self,
        segments: &InDirectory<'_>,
        place: usize,
        end: Result<End, LogdError>,
    ) -> Result<(), LogdError> {
        let End { report, is_absent, next } = end?;
        match is_absent && self.retired.contains(segments, place) {
            true => self.judge.begin_again(),
            false => self.judge.take(report),
        }
        let before = self.end.map_or(0, |(_, next)| next);
        self.end = Some((place, next.max(before)));
        Ok(())
    }
}

/// Stops all threads when it is dropped, also by a panic.
struct Stop<'a, 'b>(&'a Shared<'b>);

impl Drop for Stop<'_, '_> {
    fn drop(&mut self) {
        self.0.lock().is_stopped = true;
        self.0.work.notify_all();
        self.0.results.notify_all();
    }
}

impl Shared<'_> {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panicked stops the others, which may look at the state before they see that.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads lanes until there are none, or until it is stopped.
    fn read(&self) {
        let stop = Stop(self);
        while let Some(mut task) = self.task() {
            let reading = task.reading.take();
            let mut stepped = Stepped::default();
            // What was found before an error is printed before it.
            let lane = self.step(&task, reading, &mut stepped);
            self.put_back(
                &task,
                lane.unwrap_or_else(|error| LaneState::Ended(Err(error))),
                stepped,
            );
        }
        mem::forget(stop);
    }

    fn task(&self) -> Option<Task> {
        let mut state = self.lock();
        loop {
            if state.is_stopped || state.is_done() {
                return None;
            }
            if let Some(task) = state.take(self.lanes_max) {
                return Some(task);
            }
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Reads a part of a segment.
    fn step(
        &self,
        task: &Task,
        reading: Option<Reading>,
        stepped: &mut Stepped,
    ) -> Result<LaneState, LogdError> {
        let (segments, choice) = (&self.streams[task.row], self.selection.choice());
        let mut reading = match reading {
            Some(reading) => reading,
            None => match Cursor::open(segments, task.place, 0, choice)? {
                Opened::Cursor(cursor) => Reading { cursor, report: Report::default() },
                Opened::Passed { report, next } => {
                    return Ok(LaneState::Ended(Ok(End { report, is_absent: false, next })));
                }
            },
        };
        let Reading { cursor, report } = &mut reading;
        let before = cursor.read_bytes();
        while stepped.read_bytes < STEP_BYTES && stepped.found_bytes < BACKLOG_BYTES {
            let piece = cursor.next(choice)?;
            if let Some(piece) = piece {
                if let Some(piece) = self.select(piece, &mut stepped.looked_at) {
                    stepped.found_bytes += piece.memory_bytes();
                    stepped.found.push(piece);
                }
                stepped.read_bytes = cursor.read_bytes() - before;
                continue;
            }
            let is_last = task.place + 1 == segments.count();
            let checked = cursor.check(is_last)?;
            stepped.read_bytes = cursor.read_bytes() - before;
            let Some(new) = checked else {
                let (report, next) = (mem::take(report), cursor.next_line());
                let end = End { report, is_absent: cursor.is_absent(), next };
                return Ok(LaneState::Ended(Ok(end)));
            };
            *report = new;
        }
        Ok(LaneState::Ready(reading))
    }

    fn select(&self, piece: Piece<'_>, looked_at: &mut u64) -> Option<Piece<'static>> {
        if self.selection.is_everything() {
            return Some(piece.into_owned(Vec::new()));
        }
        let selected = self.selection.select(&piece);
        *looked_at += selected.looked_at;
        (selected.piece.line_count > 0).then_some(selected.piece)
    }

    fn put_back(&self, task: &Task, lane: LaneState, stepped: Stepped) {
        let Stepped { found, read_bytes, looked_at, .. } = stepped;
        let mut state = self.lock();
        state.counts.read_bytes += read_bytes;
        state.counts.looked_at += looked_at;
        state.put_back(task, lane, found, read_bytes > 0);
        drop(state);
        self.work.notify_all();
        self.results.notify_one();
    }

    /// Prints what the threads find, in order.
    fn print(&self, printer: &mut dyn Printer) -> Result<Scanned, LogdError> {
        let failed = |error: io::Error| LogdError::output(&error);
        let mut ledgers: Vec<Ledger> = self.streams.iter().map(|_| Ledger::default()).collect();
        while let Some((row, pieces)) = self.next_pieces(&mut ledgers, printer)? {
            let stream = self.streams[row].stream();
            for piece in pieces {
                if printer.print(stream, &piece).map_err(failed)?.is_break() {
                    return Ok(self.scanned(ledgers));
                }
            }
        }
        Ok(self.scanned(ledgers))
    }

    fn scanned(&self, ledgers: Vec<Ledger>) -> Scanned {
        let ends = ledgers.iter().map(|ledger| ledger.end).collect();
        let problems = ledgers.into_iter().flat_map(|ledger| ledger.judge.problems);
        Scanned { ends, problems: problems.collect(), counts: self.lock().counts }
    }

    /// Waits for the next pieces in the order of all streams, which are of one. Returns nothing at the end.
    fn next_pieces(
        &self,
        ledgers: &mut [Ledger],
        printer: &mut dyn Printer,
    ) -> Result<Option<(usize, Vec<Piece<'static>>)>, LogdError> {
        let mut is_flushed = false;
        let mut state = self.lock();
        loop {
            let ended = state.pop_ended();
            if !ended.is_empty() {
                drop(state);
                self.work.notify_all();
                for (row, place, end) in ended {
                    ledgers[row].close(&self.streams[row], place, end)?;
                }
                state = self.lock();
                continue;
            }
            if state.is_stopped || state.is_done() {
                return Ok(None);
            }
            if let Some(pieces) = state.take_oldest() {
                self.work.notify_all();
                return Ok(Some(pieces));
            }
            // Whoever reads the output gets what there is before this waits.
            if mem::replace(&mut is_flushed, true) {
                let waited = self.results.wait_timeout(state, LOOK_TIME);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
                // While no line is found, no write would fail.
                if !printer.wait(Duration::ZERO) {
                    return Ok(None);
                }
            } else {
                drop(state);
                printer.flush().map_err(|error| LogdError::output(&error))?;
            }
            state = self.lock();
        }
    }
}
