//! Files whose sources are not in memory: the device reads them past the page cache into the
//! buffers of a ring, several files and many pieces ahead.
//!
//! What was read goes on by whichever side has room: through the page cache by a thread
//! (`writers.rs`), or straight back to a device by the ring. A run that waits for the device anyway
//! (`--durable`) sends all of it there, and copies nothing in memory. The source's pages take no
//! place in the page cache: they are not read again by this run, and to find place for them costs
//! more than to read them (docs/copying.md).
//!
//! A copy stays shorter than its source until its last piece: blocks are allocated beyond its end,
//! the length set to all but that piece, the others written in any order, and that at last.
//!
//! Whatever does not go as it should (no space, a limit, a source that changed) is begun again by
//! ordinary calls, which say what is wrong as GNU cp says it.

use std::collections::BTreeMap;

use ringwise::{BackendChoice, Buffer, Completion, Descriptor, ErrorKind, Local, Operation, Pool};
use rustix::{
    fs::{self, FallocateFlags, OFlags},
    io::Errno,
};

use super::{
    pace::Pace,
    writers::{Piece, Writers},
};
use crate::{
    data::direct::{copy_again, is_as_it_was, start_again},
    job::{Job, Outcome},
    options::Options,
    place::{open_again, retry, set_direct},
    way::DIRECT_ALIGNMENT_BYTES,
};

/// A read, and what is made of it. docs/copying.md has what was tried.
const PIECE_BYTES: u64 = 512 << 10;

/// Pieces that memory is provided for at a time, a huge page: the first touch of it costs as much as
/// some reads, which the device may have meanwhile.
const PIECES_EACH: usize = 4;

/// Pieces in memory.
const PIECES_MAX: usize = 24;

/// Pieces in memory of a short run, which does not make up for more.
const PIECES_MAX_SHORT: usize = 8;

/// Bytes of files from which on a run is one.
const LONG_RUN_BYTES: u64 = 64 << 20;

/// Files that are read at a time, in turn: each thread that writes has one of its own then.
const FILES_MAX: usize = 8;

/// Pieces that each thread has or that wait for it, before the device gets some.
const WAITING_EACH: usize = 3;

/// Pieces on their way to the device, beside what the threads write.
const BESIDE_MAX: usize = 8;

/// Completions of the bell, which tells that a thread is done.
const BELL: u64 = 0;

/// The ring, its threads and the files on it.
pub(super) struct ColdEngine {
    local: Local,
    pools: Vec<Pool>,
    /// Of all files so far.
    bytes: u64,
    writers: Option<Writers>,
    files: BTreeMap<u64, Moving>,
    files_max: usize,
    /// What the ring does, by its tag.
    steps: BTreeMap<u64, Step>,
    next_tag: u64,
    /// The file whose turn it is to be read after.
    turn: u64,
    bell_is_read: bool,
    to_device: usize,
    pace: Pace,
}

impl std::fmt::Debug for ColdEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ColdEngine").field("files", &self.files.len()).finish_non_exhaustive()
    }
}

/// A file on its way.
struct Moving {
    job: Job,
    /// The copy once more, open for direct writes. The inner None: it cannot be had.
    direct: Option<Option<Descriptor>>,
    size: u64,
    next: u64,
    /// Where the last piece begins.
    tail: u64,
    /// That piece, until all others are written.
    held: Option<Piece>,
    /// Pieces that are read or written.
    pieces: usize,
    failed: bool,
}

/// What an operation in flight does.
#[derive(Clone, Copy, Debug)]
enum Step {
    Read { file: u64, offset: u64 },
    Write { file: u64, offset: u64, len: usize },
}

impl ColdEngine {
    /// Opens a ring and threads. None: they are not to be had here.
    pub(super) fn open(options: &Options, threads: usize, files_max: usize) -> Option<ColdEngine> {
        let mut local = Local::builder()
            .backend(BackendChoice::Uring)
            .entries(2 * PIECES_MAX as u32)
            .registered_files(0)
            .build()
            .ok()?;
        let pool = local.register_pool(PIECES_EACH, PIECE_BYTES as usize).ok()?;
        let writers = match options.durable {
            true => None,
            false => Some(Writers::open(threads)?),
        };
        Some(ColdEngine {
            local,
            pools: vec![pool],
            bytes: 0,
            writers,
            files: BTreeMap::new(),
            // Each has three descriptors.
            files_max: (files_max / 3).clamp(1, FILES_MAX),
            steps: BTreeMap::new(),
            next_tag: BELL,
            turn: 0,
            bell_is_read: false,
            to_device: 0,
            pace: Pace::default(),
        })
    }

    pub(super) fn is_idle(&self) -> bool {
        self.files.is_empty()
    }

    /// Takes a file in, after waiting for room, or gives it back where it cannot go this way.
    /// Beside it what ended meanwhile.
    pub(super) fn start(&mut self, job: Job, takes_direct: bool) -> (Option<Job>, Vec<Outcome>) {
        let mut ended = Vec::new();
        while self.files.len() >= self.files_max {
            ended.extend(self.wait());
        }
        self.bytes += job.size();
        match Moving::prepare(job, self.writers.is_none()) {
            Ok(mut moving) => {
                moving.direct = (!takes_direct).then_some(None);
                self.files.insert(moving.job.number, moving)
            }
            Err(job) => return (Some(*job), ended),
        };
        self.read_all();
        ended.extend(self.exchange(0));
        (None, ended)
    }

    /// Has more buffers where all are in use and another piece may be read meanwhile.
    fn provide(&mut self) {
        let most = if self.bytes < LONG_RUN_BYTES { PIECES_MAX_SHORT } else { PIECES_MAX };
        let are_enough = PIECES_EACH * self.pools.len() >= most;
        if !are_enough
            && self.wanting().is_some()
            && self.pools.iter().all(|pool| pool.available() == 0)
        {
            self.pools.extend(self.local.register_pool(PIECES_EACH, PIECE_BYTES as usize));
        }
    }

    /// Waits until something completed.
    pub(super) fn wait(&mut self) -> Vec<Outcome> {
        if self.files.is_empty() { Vec::new() } else { self.exchange(1) }
    }

    fn exchange(&mut self, want: usize) -> Vec<Outcome> {
        self.listen();
        let submitted = match want {
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
        while let Some((piece, result)) = self.writers.as_mut().and_then(Writers::take) {
            self.was_written(piece.file, piece.offset, piece.len, result);
        }
        let ended = self.take_ended();
        self.provide();
        self.read_all();
        if !self.steps.is_empty() {
            // Nobody may come to wait for a while. An error comes again with the wait.
            let _ = self.local.submit();
        }
        ended
    }

    /// Has the ring read the bell, so that whoever waits in it hears of the threads.
    fn listen(&mut self) {
        let Some(writers) = self.writers.as_ref().filter(|_| !self.bell_is_read) else { return };
        let operation = Operation::read_at(&writers.bell, vec![0; 64], 0);
        // Without it the threads are asked whenever the ring has something.
        self.bell_is_read = self.local.push(operation, BELL).is_ok();
    }

    fn take(&mut self, completion: Completion) {
        if completion.tag() == BELL {
            self.bell_is_read = false;
            return;
        }
        let Some(step) = self.steps.remove(&completion.tag()) else { return };
        let result = completion.result().map_err(|error| Errno::from_raw_os_error(error.errno()));
        match step {
            Step::Read { file, offset } => {
                if let Some(buffer) = completion.into_buffer() {
                    self.was_read(file, offset, buffer, result);
                }
            }
            Step::Write { file, offset, len } => {
                self.to_device -= 1;
                // A part of a block cannot be gone on from by a direct write.
                let is_whole = |count: usize| count as u64 == whole_blocks(len as u64);
                let result = match result {
                    Ok(count) if is_whole(count) => Ok(()),
                    Ok(_) => Err(Errno::IO),
                    Err(errno) => Err(errno),
                };
                if result.is_ok() {
                    self.pace.take(len as u64);
                }
                if self.to_device == 0 {
                    self.pace.rest();
                }
                self.was_written(file, offset, len, result);
            }
        }
    }

    /// The file whose turn it is of those that have something to be read.
    fn wanting(&self) -> Option<u64> {
        let mut next = self.files.range(self.turn + 1..).chain(self.files.range(..=self.turn));
        next.find(|(_, moving)| !moving.failed && moving.next < moving.size).map(|(n, _)| *n)
    }

    /// Reads pieces of the files in turn, as long as there are buffers.
    fn read_all(&mut self) {
        while let Some(file) = self.wanting() {
            let Some(buffer) = self.pools.iter().find_map(Pool::take) else { return };
            self.turn = file;
            let Some(moving) = self.files.get_mut(&file) else { return };
            let offset = moving.next;
            let len = whole_blocks(moving.size - offset).min(PIECE_BYTES);
            let buffer = Buffer::from(buffer).slice(..len as usize);
            moving.next = offset + len;
            moving.pieces += 1;
            let operation = Operation::read_at(&moving.job.source, buffer, offset);
            self.push(operation, Step::Read { file, offset });
        }
    }

    fn was_read(&mut self, file: u64, offset: u64, buffer: Buffer, read: Result<usize, Errno>) {
        let Some(moving) = self.files.get_mut(&file) else { return };
        let len = (moving.size - offset).min(PIECE_BYTES) as usize;
        // What changed meanwhile, or cannot be read so, is for ordinary calls.
        if moving.failed || read != Ok(len) {
            return moving.lose_piece();
        }
        let piece = Piece { file, buffer, len, offset };
        if offset == moving.tail && moving.pieces > 1 {
            moving.pieces -= 1;
            moving.held = Some(piece);
        } else {
            self.write(piece);
        }
    }

    /// Passes a piece on to the side that has room for it.
    fn write(&mut self, piece: Piece) {
        let Some(moving) = self.files.get_mut(&piece.file) else { return };
        let is_for_device = match &self.writers {
            None => true,
            Some(writers) => {
                let beside = if self.pace.is_proved() { BESIDE_MAX } else { 1 };
                // What ends the only file would be waited for.
                let is_last = piece.offset == moving.tail && writers.count() == 1;
                let has_room = !is_last && self.to_device < beside && !self.pace.is_slow();
                has_room && writers.pieces >= WAITING_EACH * writers.count()
            }
        };
        if is_for_device && let Some(copy) = moving.device_side(self.writers.is_none()) {
            return self.write_directly(&copy, piece);
        }
        match &mut self.writers {
            Some(writers) => writers.write(moving.job.copy.clone(), piece),
            None => moving.lose_piece(),
        }
    }

    fn write_directly(&mut self, copy: &Descriptor, piece: Piece) {
        let Piece { file, mut buffer, len, offset } = piece;
        let whole = whole_blocks(len as u64) as usize;
        // What is behind the end is cut off again, and nobody is to find it there meanwhile.
        buffer.as_mut_slice()[len..whole].fill(0);
        let operation = Operation::write_at(copy, buffer.slice(..whole), offset);
        self.to_device += 1;
        self.pace.work();
        self.push(operation, Step::Write { file, offset, len });
    }

    fn push(&mut self, operation: Operation, step: Step) {
        self.next_tag += 1;
        self.steps.insert(self.next_tag, step);
        if self.local.push(operation, self.next_tag).is_ok() {
            return;
        }
        // There is room for all that may be in flight: it was refused for what it is.
        self.steps.remove(&self.next_tag);
        let (Step::Read { file, .. } | Step::Write { file, .. }) = step;
        self.to_device -= usize::from(matches!(step, Step::Write { .. }));
        if let Some(moving) = self.files.get_mut(&file) {
            moving.lose_piece();
        }
    }

    fn was_written(&mut self, file: u64, offset: u64, len: usize, result: Result<(), Errno>) {
        let Some(moving) = self.files.get_mut(&file) else { return };
        if moving.failed || result.is_err() {
            return moving.lose_piece();
        }
        moving.pieces -= 1;
        moving.job.meter.add_bytes(len as u64);
        let others_are_written = moving.pieces == 0 && moving.next >= moving.size;
        if others_are_written
            && offset < moving.tail
            && let Some(piece) = moving.held.take()
        {
            moving.pieces += 1;
            self.write(piece);
        }
    }

    fn take_ended(&mut self) -> Vec<Outcome> {
        let is_over = |moving: &Moving| {
            let is_read = moving.failed || moving.next >= moving.size;
            is_read && moving.pieces == 0 && moving.held.is_none()
        };
        let over: Vec<u64> =
            self.files.iter().filter(|(_, moving)| is_over(moving)).map(|(n, _)| *n).collect();
        over.into_iter().filter_map(|number| self.files.remove(&number)).map(end).collect()
    }

    /// The ring itself failed: its files are copied again without it.
    fn give_up(&mut self) -> Vec<Outcome> {
        for moving in self.files.values_mut() {
            (moving.failed, moving.held) = (true, None);
        }
        while !self.steps.is_empty() {
            match self.local.next_completion() {
                Some(completion) => self.take(completion),
                None if self.local.submit_and_wait(1).is_ok() => {}
                None => break,
            }
        }
        while let Some((piece, result)) = self.writers.as_mut().and_then(Writers::wait) {
            self.was_written(piece.file, piece.offset, piece.len, result);
        }
        std::mem::take(&mut self.files).into_values().map(end).collect()
    }
}

impl Moving {
    /// Makes both sides ready, or gives the job back as it was.
    fn prepare(job: Job, is_direct: bool) -> Result<Moving, Box<Job>> {
        let size = job.size();
        let tail = (size - 1) / PIECE_BYTES * PIECE_BYTES;
        let direct = set_direct(&job.source, true)
            .and_then(|()| if is_direct { set_direct(&job.copy, true) } else { Ok(()) });
        let blocks = || fs::fallocate(&job.copy, FallocateFlags::KEEP_SIZE, 0, whole_blocks(size));
        let ready = direct.and_then(|()| match tail {
            0 => Ok(()),
            tail => retry(blocks).and_then(|()| retry(|| fs::ftruncate(&job.copy, tail))),
        });
        let mut moving =
            Moving { job, direct: None, size, next: 0, tail, held: None, pieces: 0, failed: false };
        if ready.is_err() {
            let _ = set_direct(&moving.job.source, false);
            match start_again(&moving.job) {
                Ok(()) => return Err(Box::new(moving.job)),
                Err(_) => moving.failed = true,
            }
        }
        Ok(moving)
    }

    /// A piece of it is not to be had, or not to be written: the whole is copied another way.
    fn lose_piece(&mut self) {
        self.pieces -= 1;
        (self.failed, self.held) = (true, None);
    }

    /// The copy, open for direct writes, where it can be had. `is_so`: it is that already.
    fn device_side(&mut self, is_so: bool) -> Option<Descriptor> {
        if is_so {
            return Some(self.job.copy.clone());
        }
        let Job { copy, copy_stat, .. } = &self.job;
        let open = || open_again(copy, copy_stat, OFlags::WRONLY | OFlags::DIRECT).ok();
        self.direct.get_or_insert_with(|| open().map(Descriptor::from)).clone()
    }
}

/// What becomes of a file whose pieces have all come back.
fn end(moving: Moving) -> Outcome {
    let Moving { job, direct, size, failed, pieces, .. } = moving;
    drop(direct);
    if pieces > 0 {
        // What is still in flight may yet be written: nothing may be made of this copy.
        let names = [&job.source_path[..], &job.copy_path];
        let line = job.text("error copying %s to %s by io_uring", &names, Errno::IO);
        return job.end(Err(line));
    }
    let is_cut = || retry(|| fs::ftruncate(&job.copy, size)).is_ok();
    let is_whole = size.is_multiple_of(DIRECT_ALIGNMENT_BYTES);
    if !failed && is_as_it_was(&job) && (is_whole || is_cut()) {
        return job.end(Ok(()));
    }
    let moved = match set_direct(&job.source, false) {
        Ok(()) => copy_again(&job),
        Err(errno) => Err(job.read_error(errno)),
    };
    job.end(moved)
}

fn whole_blocks(bytes: u64) -> u64 {
    bytes.next_multiple_of(DIRECT_ALIGNMENT_BYTES)
}
