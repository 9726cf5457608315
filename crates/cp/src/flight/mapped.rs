//! Files that the device takes straight from the page cache of their sources.
//!
//! The source is mapped, the copy is open for direct writes, and a ring hands the mapped pages to
//! the device: nothing is copied in memory, nothing is left to be written back. Nobody here looks
//! into the mapping, so a source that is cut meanwhile is an error of a write and not a SIGBUS.
//!
//! A copy stays shorter than its source until its last bytes are on their way: a small file is one
//! write that extends it; a large one has its blocks allocated beyond its end, then its length set
//! to all but the tail, all but the tail written in any order, and the tail at last. The last block
//! is written whole, and what is too much of it cut off.
//!
//! Where the device turns out to be slow, the rest of a large file goes through the page cache, so
//! that the copy returns as soon as others do; not with `--durable`, which waits for it anyway.
//!
//! Whatever does not go as it should (no space, a limit, a source that changed) is begun again by
//! ordinary calls, which say what is wrong as GNU cp says it.

use std::collections::BTreeMap;

use ringwise::{BackendChoice, Completion, ErrorKind, Local, Mapping, Operation};
use rustix::{
    fs::{self, Advice, FallocateFlags},
    io::Errno,
};

use super::pace::Pace;
use crate::{
    data::direct::{copy_again, copy_rest, is_as_it_was, start_again},
    job::{Job, Outcome},
    options::Options,
    place::{retry, set_direct},
    report::Line,
    way::DIRECT_ALIGNMENT_BYTES,
};

/// A file of at most this many bytes is one write: to allocate its blocks first would be a call
/// more, and its device time is short.
const ONE_WRITE_BYTES: u64 = 4 << 20;

/// A write of a larger one. docs/copying.md has what was tried.
const BLOCK_BYTES: u64 = 4 << 20;

/// What is written last of a larger one.
pub(super) const TAIL_BYTES: u64 = 64 << 10;

/// Writes in flight for one file.
const DEPTH: usize = 16;

/// Files in flight: what keeps a fast device busy with files of a mebibyte.
const FILES_MAX: usize = 8;

/// Bytes that are left to be written by when a run that does not wait for the device gives it
/// another file beside those that threads copy in memory: enough to keep it busy, and little to
/// wait for at the end.
const BESIDE_BYTES: u64 = 8 << 20;

/// The ring and the files on it.
pub(super) struct MappedEngine {
    local: Local,
    files: BTreeMap<u64, Moving>,
    files_max: usize,
    block_bytes: u64,
    depth: usize,
    waits: bool,
    /// What is written and is to be checked.
    written: Vec<Job>,
    /// Writes in flight: the file, and the range of it, by their tag.
    writes: BTreeMap<u64, (u64, u64, u64)>,
    next_tag: u64,
    pace: Pace,
}

impl std::fmt::Debug for MappedEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MappedEngine").field("files", &self.files.len()).finish_non_exhaustive()
    }
}

/// A file on its way.
struct Moving {
    job: Job,
    mapping: Mapping,
    size: u64,
    /// The end of its last block.
    end: u64,
    /// Where the tail begins.
    tail: u64,
    next: u64,
    writes: usize,
    /// Where reading ahead has come to, where the source is not in memory.
    ahead: Option<u64>,
    failed: bool,
    /// The rest, from `next` on, goes another way.
    left: bool,
}

impl MappedEngine {
    /// Opens a ring. None: there is none here.
    pub(super) fn open(options: &Options, files_max: usize) -> Option<MappedEngine> {
        let depth = options.depth.unwrap_or(DEPTH);
        let local = Local::builder()
            .backend(BackendChoice::Uring)
            .entries(u32::try_from(depth * FILES_MAX).unwrap_or(u32::MAX).clamp(8, 4096))
            .registered_files(0)
            .build()
            .ok()?;
        let block_bytes = options.block_bytes.map_or(BLOCK_BYTES, |bytes| bytes as u64);
        Some(MappedEngine {
            local,
            files: BTreeMap::new(),
            files_max: files_max.min(FILES_MAX),
            block_bytes: block_bytes.next_multiple_of(DIRECT_ALIGNMENT_BYTES),
            depth,
            waits: options.durable || options.verify,
            written: Vec::new(),
            writes: BTreeMap::new(),
            next_tag: 0,
            pace: Pace::default(),
        })
    }

    pub(super) fn is_idle(&self) -> bool {
        self.files.is_empty()
    }

    /// Whether the device is so slow that to wait for it is worse than to copy in memory.
    pub(super) fn is_slow(&self) -> bool {
        !self.waits && self.pace.is_slow()
    }

    /// Whether the device will soon have nothing to do.
    pub(super) fn wants_more(&self) -> bool {
        let in_flight = self.writes.values().map(|(_, start, end)| end - start);
        let to_come = self.files.values().map(|moving| moving.end - moving.next);
        self.files.len() < self.files_max && in_flight.chain(to_come).sum::<u64>() < BESIDE_BYTES
    }

    /// Takes a file in, after waiting for room, or gives it back where it cannot go this way.
    /// Beside it what ended meanwhile.
    pub(super) fn start(&mut self, job: Job) -> (Option<Job>, Vec<Outcome>) {
        let mut ended = Vec::new();
        while self.files.len() >= self.files_max {
            ended.extend(self.wait());
        }
        let number = job.number;
        match Moving::prepare(job) {
            Ok(moving) => self.files.insert(number, moving),
            Err(job) => return (Some(*job), ended),
        };
        self.advance(number);
        ended.extend(self.exchange(0));
        (None, ended)
    }

    /// Has the ring do a part of one file while a thread does the other; nothing else is on it.
    pub(super) fn split(&mut self, job: &Job) -> Result<(), Line> {
        super::split::copy(job, &mut self.local)
    }

    /// Waits until something completed.
    pub(super) fn wait(&mut self) -> Vec<Outcome> {
        if self.files.is_empty() { Vec::new() } else { self.exchange(1) }
    }

    /// Jobs whose content is on the device and still has to be compared with the source.
    pub(super) fn take_written(&mut self) -> Vec<Job> {
        std::mem::take(&mut self.written)
    }

    fn exchange(&mut self, want: usize) -> Vec<Outcome> {
        let submitted = match want {
            _ if self.writes.is_empty() => Ok(()),
            0 => self.local.submit().map(drop),
            want => self.local.submit_and_wait(want).map(drop),
        };
        if let Err(error) = submitted
            && error.kind() != ErrorKind::Busy
        {
            return self.give_up();
        }
        while let Some(completion) = self.local.next_completion() {
            self.take(completion);
        }
        if self.writes.is_empty() {
            self.pace.rest();
        } else {
            // Nobody may come to wait for a while. An error comes again with the wait.
            let _ = self.local.submit();
        }
        self.take_ended()
    }

    fn take(&mut self, completion: Completion) {
        let Some((number, start, end)) = self.writes.remove(&completion.tag()) else { return };
        let result = completion.result().map_err(|error| error.errno());
        let Some(moving) = self.files.get_mut(&number) else { return };
        moving.writes -= 1;
        let done = match result {
            Ok(count) => start + count as u64,
            Err(errno) if super::ring::is_again(errno) => start,
            Err(_) => u64::MAX,
        };
        // A part of a block cannot be gone on from by a direct write.
        let is_whole = done <= end && done.is_multiple_of(DIRECT_ALIGNMENT_BYTES);
        let stands_still = done == start && matches!(result, Ok(0));
        if is_whole && !stands_still {
            self.pace.take(done - start);
            moving.job.meter.add_bytes(done.min(moving.size) - start.min(moving.size));
            if done < end && !moving.failed {
                self.write(number, done, end);
            }
        } else {
            moving.failed = true;
        }
        self.advance(number);
    }

    /// Starts the writes that a file is ready for.
    fn advance(&mut self, number: u64) {
        let is_slow = self.is_slow();
        loop {
            let Some(moving) = self.files.get_mut(&number) else { return };
            moving.left |= is_slow && moving.next > 0 && moving.next < moving.tail;
            if moving.left {
                return;
            }
            let is_tail = moving.next >= moving.tail;
            let is_ready = if is_tail { moving.writes == 0 } else { moving.writes < self.depth };
            if moving.failed || moving.next >= moving.end || !is_ready {
                return;
            }
            let start = moving.next;
            let end = match is_tail {
                true => moving.end,
                false => moving.tail.min(start + self.block_bytes),
            };
            moving.read_ahead(end + self.block_bytes * self.depth as u64);
            moving.next = end;
            moving.mapping.fault_in(start..end);
            self.write(number, start, end);
        }
    }

    fn write(&mut self, number: u64, start: u64, end: u64) {
        let Some(moving) = self.files.get_mut(&number) else { return };
        let operation =
            Operation::write_mapped_at(&moving.job.copy, &moving.mapping, start..end, start);
        self.next_tag += 1;
        self.pace.work();
        match self.local.push(operation, self.next_tag) {
            Ok(_) => {
                moving.writes += 1;
                self.writes.insert(self.next_tag, (number, start, end));
            }
            // There is room for all that may be in flight: it was refused for what it is.
            Err(_) => moving.failed = true,
        }
    }

    fn take_ended(&mut self) -> Vec<Outcome> {
        let is_over = |moving: &Moving| {
            moving.writes == 0 && (moving.failed || moving.left || moving.next >= moving.end)
        };
        let over: Vec<u64> =
            self.files.iter().filter(|(_, moving)| is_over(moving)).map(|(n, _)| *n).collect();
        let mut ended = Vec::new();
        for moving in over.into_iter().filter_map(|number| self.files.remove(&number)) {
            match end(moving) {
                Ok(job) if job.options.verify => self.written.push(job),
                Ok(job) => ended.push(job.end(Ok(()))),
                Err(outcome) => ended.push(outcome),
            }
        }
        ended
    }

    /// The ring itself failed: its files are copied again without it.
    fn give_up(&mut self) -> Vec<Outcome> {
        while !self.writes.is_empty() {
            match self.local.next_completion() {
                Some(completion) => {
                    if let Some((number, ..)) = self.writes.remove(&completion.tag())
                        && let Some(moving) = self.files.get_mut(&number)
                    {
                        moving.writes -= 1;
                    }
                }
                None if self.local.submit_and_wait(1).is_ok() => {}
                None => break,
            }
        }
        let files = std::mem::take(&mut self.files);
        let lost = |moving: Moving| {
            if moving.writes == 0 {
                let moved = copy_again(&moving.job);
                return moving.job.end(moved);
            }
            // What is still in flight may yet be written: nothing may be made of this copy.
            let names = [&moving.job.source_path[..], &moving.job.copy_path];
            let line = moving.job.text("error copying %s to %s by io_uring", &names, Errno::IO);
            moving.job.end(Err(line))
        };
        files.into_values().map(lost).collect()
    }
}

impl Moving {
    /// Makes both sides ready, or gives the job back as it was.
    fn prepare(job: Job) -> Result<Moving, Box<Job>> {
        let size = job.size();
        let end = size.next_multiple_of(DIRECT_ALIGNMENT_BYTES);
        let Ok(mapping) = Mapping::of(&job.source, end) else { return Err(Box::new(job)) };
        if set_direct(&job.copy, true).is_err() {
            return Err(Box::new(job));
        }
        let tail = if end <= ONE_WRITE_BYTES { 0 } else { (end - 1) / TAIL_BYTES * TAIL_BYTES };
        if tail > 0 {
            let blocks = || fs::fallocate(&job.copy, FallocateFlags::KEEP_SIZE, 0, end);
            let ready = retry(blocks).and_then(|()| retry(|| fs::ftruncate(&job.copy, tail)));
            if ready.is_err() {
                return match start_again(&job) {
                    Ok(()) => Err(Box::new(job)),
                    Err(_) => {
                        Ok(Moving { failed: true, ..Moving::new(job, mapping, size, end, 0) })
                    }
                };
            }
        }
        let mut moving = Moving::new(job, mapping, size, end, tail);
        moving.ahead = (moving.job.absent_pages > 0).then_some(0);
        Ok(moving)
    }

    fn new(job: Job, mapping: Mapping, size: u64, end: u64, tail: u64) -> Moving {
        let (next, writes, ahead, failed, left) = (0, 0, None, false, false);
        Moving { job, mapping, size, end, tail, next, writes, ahead, failed, left }
    }

    /// Has the source read up to an offset, without waiting for it.
    fn read_ahead(&mut self, to: u64) {
        let Some(from) = self.ahead.filter(|from| *from < to.min(self.size)) else { return };
        let len = std::num::NonZeroU64::new(to - from);
        // It is advice: without it the pages are read when they are wanted.
        let _ = fs::fadvise(&self.job.source, from, len, Advice::WillNeed);
        self.ahead = Some(to);
    }
}

/// What becomes of a file whose writes have all come back: its job where all is written.
fn end(moving: Moving) -> Result<Job, Outcome> {
    let Moving { job, mapping, size, end, failed, left, next, .. } = moving;
    drop(mapping);
    let is_good = !failed && is_as_it_was(&job);
    let is_cut = || end == size || retry(|| fs::ftruncate(&job.copy, size)).is_ok();
    if is_good && !left && is_cut() {
        return Ok(Job { cloned: true, ..job });
    }
    let moved = if is_good && left { copy_rest(&job, next) } else { copy_again(&job) };
    Err(job.end(moved))
}
