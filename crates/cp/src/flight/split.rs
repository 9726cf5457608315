//! One large file in memory, by both ways at once: a thread copies from its beginning through the page
//! cache, while a ring has the device take mapped pages of its source from its end on.
//!
//! Neither waits for the other: each takes the next block on its side until they meet. The copy's
//! blocks are allocated and its length is set to all but the tail first, so that direct writes
//! share the inode's lock and an interrupted copy is shorter than its source; the tail is copied at
//! last. Direct writes go through a second open file, since the flag is an open file's and the
//! thread's must not have it.
//!
//! The copy must not return later than it would through the page cache alone. So the ring begins
//! with one write, goes on with several where the device is a fast one, and takes nothing that the
//! thread would have done before the device has. It is not for runs that wait for the device.
//!
//! Whatever does not go as it should is begun again by ordinary calls, which say what is wrong as
//! GNU cp says it.

use std::{
    collections::BTreeMap,
    ops::Range,
    panic::resume_unwind,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use ringwise::{Completion, Descriptor, ErrorKind, Local, Mapping, Operation};
use rustix::{
    fs::{self, FallocateFlags, OFlags},
    io::Errno,
};

use super::{mapped::TAIL_BYTES, pace::BYTES_PER_S_MIN};
use crate::{
    data::{
        self,
        direct::{copy_again, is_as_it_was},
    },
    job::Job,
    place::{open_again, retry},
    progress::Meter,
    report::Line,
    way::{DIRECT_ALIGNMENT_BYTES, Way},
};

/// What the thread takes at a time, and the first direct write.
const STEP_BYTES: u64 = 1 << 20;

/// A direct write, once the device is known to be fast. docs/copying.md has what was tried.
const BLOCK_BYTES: u64 = 4 << 20;

/// Direct writes in flight.
const DEPTH: usize = 4;

/// So much has to be written before a pace is one: the first writes wait for more than the device.
const PACE_BYTES_MIN: u64 = 16 << 20;

/// The device's pace is that of about so many bytes before.
const PACE_BYTES_MAX: u64 = 64 << 20;

/// Copies the content of a job that the table of ways chose for it.
pub(super) fn copy(job: &Job, local: &mut Local) -> Result<(), Line> {
    let Some((direct, mapping)) = open(job) else { return data::copy(job, Way::Range) };
    let tail = job.size().saturating_sub(1) / TAIL_BYTES * TAIL_BYTES;
    let cursor = Cursor::new(tail);
    let block_bytes = job.options.block_bytes.map_or(BLOCK_BYTES, |bytes| bytes as u64);
    let block_bytes = block_bytes.next_multiple_of(DIRECT_ALIGNMENT_BYTES);
    let began = Instant::now();
    let back = Back {
        meter: &job.meter,
        local,
        direct: &direct,
        mapping: &mapping,
        cursor: &cursor,
        block_bytes,
        depth: job.options.depth.unwrap_or(DEPTH),
        writes: BTreeMap::new(),
        pace: Pace { bytes: 0, since: began },
        began,
    };
    let front = |range| copy_in_memory(job, range);
    let written = match ready(job, tail) {
        Ok(()) => both(back, front),
        Err(_) => return copy_again(job),
    };
    if written.is_err() {
        // What is still in flight may yet be written: nothing may be made of this copy.
        let names = [&job.source_path[..], &job.copy_path];
        return Err(job.text("error copying %s to %s by io_uring", &names, Errno::IO));
    }
    drop((direct, mapping));
    let is_good =
        !cursor.rest().failed && copy_in_memory(job, tail..job.size()).is_ok() && is_as_it_was(job);
    if is_good { Ok(()) } else { copy_again(job) }
}

/// The copy for direct writes, and the source as they take it.
fn open(job: &Job) -> Option<(Descriptor, Mapping)> {
    let direct = open_again(&job.copy, &job.copy_stat, OFlags::WRONLY | OFlags::DIRECT).ok()?;
    let mapping = Mapping::of(&job.source, job.size()).ok()?;
    Some((Descriptor::from(direct), mapping))
}

/// The ring failed with writes in flight.
#[derive(Debug)]
struct Lost;

fn ready(job: &Job, tail: u64) -> Result<(), Errno> {
    retry(|| fs::fallocate(&job.copy, FallocateFlags::KEEP_SIZE, 0, job.size()))?;
    retry(|| fs::ftruncate(&job.copy, tail))
}

/// Has both sides do what they can until they meet. The ring is first: a write that has to wait for
/// the thread's tells nothing about the device.
fn both(
    mut back: Back<'_>,
    front: impl Fn(Range<u64>) -> Result<(), Errno> + Send,
) -> Result<(), Lost> {
    let cursor = back.cursor;
    let body = move || {
        while let Some(range) = cursor.take_front(STEP_BYTES) {
            if front(range).is_err() {
                return cursor.fail();
            }
        }
    };
    back.begin();
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("cp".into()).spawn_scoped(scope, body);
        let Ok(thread) = thread else {
            cursor.fail();
            return back.run();
        };
        let written = back.run();
        match thread.join() {
            Ok(()) => written,
            Err(panic) => resume_unwind(panic),
        }
    })
}

/// From the position in one file to the same in the other.
fn copy_in_memory(job: &Job, range: Range<u64>) -> Result<(), Errno> {
    let (mut from, mut to) = (range.start, range.start);
    while to < range.end {
        let len = usize::try_from(range.end - to).unwrap_or(usize::MAX);
        let (source, copy) = (&job.source, &job.copy);
        let call = || fs::copy_file_range(source, Some(&mut from), copy, Some(&mut to), len);
        match retry(call)? {
            // It was cut meanwhile.
            0 => return Err(Errno::IO),
            count => job.meter.add_bytes(count as u64),
        }
    }
    Ok(())
}

/// What nobody has taken yet.
#[derive(Debug)]
struct Cursor(Mutex<Rest>);

#[derive(Clone, Copy, Debug)]
struct Rest {
    start: u64,
    end: u64,
    failed: bool,
}

impl Cursor {
    fn new(end: u64) -> Cursor {
        Cursor(Mutex::new(Rest { start: 0, end, failed: false }))
    }

    /// A panic of the thread is told where it is waited for.
    fn lock(&self) -> MutexGuard<'_, Rest> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rest(&self) -> Rest {
        *self.lock()
    }

    fn fail(&self) {
        self.lock().failed = true;
    }

    fn take_front(&self, block_bytes: u64) -> Option<Range<u64>> {
        let mut rest = self.lock();
        let start = rest.start;
        let end = rest.end.min(start + block_bytes);
        rest.start = end;
        (start < end && !rest.failed).then_some(start..end)
    }

    /// The last block, where it is worth it.
    fn take_back(
        &self,
        block_bytes: u64,
        is_worth_it: impl FnOnce(Rest) -> bool,
    ) -> Option<Range<u64>> {
        let mut rest = self.lock();
        if rest.start >= rest.end || rest.failed || !is_worth_it(*rest) {
            return None;
        }
        let (start, end) = ((rest.end - 1) / block_bytes * block_bytes, rest.end);
        rest.end = start.max(rest.start);
        Some(rest.end..end)
    }
}

/// The ring's side.
struct Back<'a> {
    meter: &'a Meter,
    local: &'a mut Local,
    direct: &'a Descriptor,
    mapping: &'a Mapping,
    cursor: &'a Cursor,
    block_bytes: u64,
    depth: usize,
    /// In flight, by their tags: where each begins.
    writes: BTreeMap<u64, Range<u64>>,
    pace: Pace,
    began: Instant,
}

impl Back<'_> {
    fn begin(&mut self) {
        self.began = Instant::now();
        self.pace.since = self.began;
        self.fill();
        // An error comes again with the wait.
        let _ = self.local.submit();
    }

    fn run(mut self) -> Result<(), Lost> {
        loop {
            self.fill();
            if self.writes.is_empty() {
                return Ok(());
            }
            match self.local.submit_and_wait(1) {
                Err(error) if error.kind() != ErrorKind::Busy => return self.give_up(),
                _ => {}
            }
            self.take_all();
        }
    }

    fn take_all(&mut self) {
        while let Some(completion) = self.local.next_completion() {
            self.take(completion);
        }
    }

    fn fill(&mut self) {
        let depth = if self.pace.bytes == 0 { 1 } else { self.depth };
        while self.writes.len() < depth {
            let rest = self.cursor.rest();
            // Long ones wait for the inode's lock less often, short ones are done together.
            let part = if self.pace.bytes == 0 { 0 } else { (rest.end - rest.start) / 8 };
            let part = part.next_multiple_of(STEP_BYTES).max(STEP_BYTES);
            let block_bytes = self.block_bytes.min(part);
            let is_worth_it = |rest| self.is_worth_it(rest, block_bytes);
            let Some(range) = self.cursor.take_back(block_bytes, is_worth_it) else { return };
            self.mapping.fault_in(range.clone());
            self.write(range);
        }
    }

    /// Whether the device would be done with one more before the thread is with all that is left.
    fn is_worth_it(&self, rest: Rest, block_bytes: u64) -> bool {
        let Some(pace) = self.pace.bytes_per_s() else { return true };
        let in_flight: u64 = self.writes.values().map(|range| range.end - range.start).sum();
        let others = rest.start.saturating_sub(STEP_BYTES) as f64;
        let others = others / self.began.elapsed().as_secs_f64();
        let left = (rest.end - rest.start) as f64;
        let is_slow = self.pace.bytes >= PACE_BYTES_MIN && pace < BYTES_PER_S_MIN;
        !is_slow && is_sooner(((in_flight + block_bytes) as f64, pace), (left, others))
    }

    fn write(&mut self, range: Range<u64>) {
        let start = range.start;
        let operation = Operation::write_mapped_at(self.direct, self.mapping, range.clone(), start);
        match self.local.push(operation, start) {
            Ok(_) => drop(self.writes.insert(start, range)),
            // There is room for all that may be in flight: it was refused for what it is.
            Err(_) => self.cursor.fail(),
        }
    }

    fn take(&mut self, completion: Completion) {
        let Some(range) = self.writes.remove(&completion.tag()) else { return };
        let done = match completion.result().map_err(|error| error.errno()) {
            Ok(0) => return self.cursor.fail(),
            Ok(count) => count as u64,
            Err(errno) if super::ring::is_again(errno) => 0,
            Err(_) => return self.cursor.fail(),
        };
        // A part of a block cannot be gone on from by a direct write.
        if !done.is_multiple_of(DIRECT_ALIGNMENT_BYTES) {
            return self.cursor.fail();
        }
        self.pace.add(done, Instant::now());
        self.meter.add_bytes(done);
        let start = range.start + done;
        if start < range.end && !self.cursor.rest().failed {
            self.write(start..range.end);
        }
    }

    /// The ring itself failed.
    fn give_up(mut self) -> Result<(), Lost> {
        self.cursor.fail();
        while !self.writes.is_empty() {
            match self.local.next_completion() {
                Some(completion) => drop(self.writes.remove(&completion.tag())),
                None if self.local.submit_and_wait(1).is_ok() => {}
                None => return Err(Lost),
            }
        }
        Ok(())
    }
}

/// Whether so many bytes at such a pace are done no later than others at theirs.
fn is_sooner((bytes, pace): (f64, f64), (others, pace_of_others): (f64, f64)) -> bool {
    bytes * pace_of_others <= others * pace
}

/// How fast the device takes what it is given, of late.
#[derive(Debug)]
struct Pace {
    bytes: u64,
    since: Instant,
}

impl Pace {
    fn add(&mut self, bytes: u64, now: Instant) {
        self.bytes += bytes;
        if self.bytes >= PACE_BYTES_MAX {
            self.bytes /= 2;
            self.since += now.duration_since(self.since) / 2;
        }
    }

    /// None: nothing came back yet.
    fn bytes_per_s(&self) -> Option<f64> {
        let time = self.since.elapsed().max(Duration::from_nanos(1));
        (self.bytes > 0).then(|| self.bytes as f64 / time.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_take_all_and_nothing_twice() {
        let cursor = Cursor::new(10);
        assert_eq!(cursor.take_back(4, |_| true), Some(8..10));
        assert_eq!(cursor.take_front(3), Some(0..3));
        assert_eq!(cursor.take_back(4, |rest| rest.end - rest.start > 5), None, "not worth it");
        assert_eq!(cursor.take_back(4, |_| true), Some(4..8));
        assert_eq!(cursor.take_front(3), Some(3..4));
        assert_eq!((cursor.take_front(3), cursor.take_back(4, |_| true)), (None, None));
        let cursor = Cursor::new(10);
        assert_eq!(cursor.take_front(9), Some(0..9));
        assert_eq!(cursor.take_back(4, |_| true), Some(9..10), "not what the other has");
    }

    #[test]
    fn who_failed_stops_both() {
        let cursor = Cursor::new(10);
        cursor.fail();
        assert_eq!((cursor.take_front(3), cursor.take_back(4, |_| true)), (None, None));
    }

    #[test]
    fn a_pace_is_that_of_late() {
        let began = Instant::now();
        let mut pace = Pace { bytes: 0, since: began };
        assert_eq!(pace.bytes_per_s(), None);
        pace.add(PACE_BYTES_MAX, began + Duration::from_secs(2));
        assert_eq!(pace.bytes, PACE_BYTES_MAX / 2);
        assert_eq!(pace.since, began + Duration::from_secs(1));
    }

    #[test]
    fn the_device_gets_what_it_has_done_before_the_thread_has_the_rest() {
        let mib = f64::from(1 << 20);
        let thread = (100.0 * mib, 3e9);
        assert!(is_sooner((8.0 * mib, 1e9), thread));
        assert!(!is_sooner((8.0 * mib, 0.2e9), thread), "it is too slow");
        assert!(!is_sooner((8.0 * mib, 1e9), (16.0 * mib, 3e9)), "too little is left");
    }

    #[test]
    #[should_panic(expected = "in the thread")]
    fn a_panic_in_the_thread_ends_the_run() {
        // So much, of holes, that the ring cannot have all of it before there is a thread.
        let len = 16 << 30;
        let source = tempfile::NamedTempFile::new().unwrap();
        source.as_file().set_len(len).unwrap();
        let file = Descriptor::from(std::fs::File::open(source.path()).unwrap());
        let mapping = Mapping::of(&file, len).unwrap();
        let copy = Descriptor::from(tempfile::tempfile().unwrap());
        let (cursor, meter, began) = (Cursor::new(len), Meter::new(), Instant::now());
        let back = Back {
            meter: &meter,
            local: &mut Local::new().unwrap(),
            direct: &copy,
            mapping: &mapping,
            cursor: &cursor,
            block_bytes: 1 << 20,
            depth: 2,
            writes: BTreeMap::new(),
            pace: Pace { bytes: 0, since: began },
            began,
        };
        let _ = both(back, |_| panic!("in the thread"));
    }
}
