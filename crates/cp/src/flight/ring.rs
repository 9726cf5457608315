//! Files whose content goes through a ring: reads ahead, writes in order, many files at once.
//!
//! Each file has a few reads in flight and one write: the kernel writes one file's buffered blocks
//! one after the other in any case (io_uring/io-wq.c hashes them by inode), and a copy that is
//! always a beginning of its source never looks whole before it is. Memory is one pool of blocks.

use std::collections::BTreeMap;

use ringwise::{BackendChoice, Buffer, Completion, ErrorKind, Local, Operation, Pool, PushRefusal};
use rustix::io::Errno;

use crate::{
    command::options::Options,
    data::{
        self, copy_again,
        verify::{self, Checksums},
    },
    job::{Job, Outcome},
    messages::report::Line,
};

const DEPTH: usize = 64;

/// Reads ahead of the write, for one file.
const AHEAD_MAX: usize = 8;

/// The ring and the files on it.
pub(crate) struct RingEngine {
    local: Local,
    pool: Pool,
    block_bytes: usize,
    ahead: usize,
    files_max: usize,
    files: BTreeMap<u64, Moving>,
    /// Operations in flight, by their tag.
    operations: BTreeMap<u64, Step>,
    next_tag: u64,
}

impl std::fmt::Debug for RingEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RingEngine").field("files", &self.files.len()).finish_non_exhaustive()
    }
}

/// A file on its way.
struct Moving {
    job: Job,
    size: u64,
    next_read: u64,
    written: u64,
    /// Where the source ended, once that was seen.
    end: Option<u64>,
    /// Blocks that were read, by offset, with how much of them.
    ready: BTreeMap<u64, (Buffer, usize)>,
    reads: usize,
    writing: bool,
    /// The kernel had no thread for one of its operations: it is copied again without the ring.
    is_lost: bool,
    error: Option<Line>,
    sums: Option<Checksums>,
}

/// What an operation in flight does: a read, or a write of a block of which a part is written already.
#[derive(Clone, Copy, Debug)]
struct Step {
    file: u64,
    offset: u64,
    len: usize,
    /// None: it reads.
    written: Option<usize>,
}

impl RingEngine {
    /// Opens a ring. An error is why there is none, in one line.
    pub(crate) fn open(options: &Options, files_max: usize) -> Result<RingEngine, String> {
        let depth = options.depth.unwrap_or(DEPTH);
        let block_bytes = options.block_bytes.unwrap_or(data::BLOCK_BYTES);
        let advice = "; use --engine=auto";
        let mut local = Local::builder()
            .backend(BackendChoice::Uring)
            .entries(u32::try_from(depth).unwrap_or(u32::MAX))
            .registered_files(0)
            .build()
            .map_err(|error| format!("{error}{advice}"))?;
        let pool =
            local.register_pool(depth, block_bytes).map_err(|error| format!("{error}{advice}"))?;
        Ok(RingEngine {
            local,
            pool,
            block_bytes,
            ahead: (depth / 4).clamp(1, AHEAD_MAX),
            files_max: files_max.min(depth),
            files: BTreeMap::new(),
            operations: BTreeMap::new(),
            next_tag: 0,
        })
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.files.is_empty()
    }

    /// Takes a file in, after waiting for room; gives what ended meanwhile.
    pub(crate) fn start(&mut self, job: Job) -> Vec<Outcome> {
        let mut ended = Vec::new();
        while self.files.len() >= self.files_max {
            ended.extend(self.wait());
        }
        let moving = Moving {
            size: job.size(),
            next_read: 0,
            written: 0,
            end: None,
            ready: BTreeMap::new(),
            reads: 0,
            writing: false,
            is_lost: false,
            error: None,
            sums: job.options.verify.then(Checksums::default),
            job,
        };
        let number = moving.job.number;
        self.files.insert(number, moving);
        self.advance(number);
        ended.extend(self.exchange(0));
        ended
    }

    /// Waits until something completed.
    pub(crate) fn wait(&mut self) -> Vec<Outcome> {
        if self.files.is_empty() {
            return Vec::new();
        }
        self.exchange(1)
    }

    /// Submits, takes what completed, and lets the files go on that it concerns.
    fn exchange(&mut self, want: usize) -> Vec<Outcome> {
        let submitted = match want {
            _ if self.operations.is_empty() => Ok(()),
            0 => self.local.submit().map(drop),
            want => self.local.submit_and_wait(want).map(drop),
        };
        if let Err(error) = submitted
            && error.kind() != ErrorKind::Busy
        {
            return self.give_up(Errno::from_raw_os_error(error.errno()));
        }
        while let Some(completion) = self.local.next_completion() {
            self.take(completion);
        }
        self.advance_all();
        let ended = self.take_ended();
        if !ended.is_empty() {
            // They gave back blocks that others wait for.
            self.advance_all();
        }
        if want == 0 && !self.operations.is_empty() {
            // Nobody may come to wait for a while. An error comes again with the wait.
            let _ = self.local.submit();
        }
        ended
    }

    fn advance_all(&mut self) {
        let numbers: Vec<u64> = self.files.keys().copied().collect();
        numbers.iter().for_each(|number| self.advance(*number));
    }

    fn take(&mut self, completion: Completion) {
        let Some(step) = self.operations.remove(&completion.tag()) else { return };
        let result = completion.result().map_err(|error| error.errno());
        let buffer = completion.into_buffer().expect("reads and writes give their buffers back");
        match step.written {
            None => self.was_read(step, buffer, result),
            Some(done) => self.was_written(step, done, buffer, result),
        }
    }

    fn was_read(&mut self, step: Step, buffer: Buffer, result: Result<usize, i32>) {
        let Step { file, offset, len, .. } = step;
        let Some(moving) = self.files.get_mut(&file) else { return };
        moving.reads -= 1;
        match result {
            Ok(count) => {
                let end = offset + count as u64;
                if count == 0 || (count < len && end == moving.size) {
                    moving.end = Some(moving.end.map_or(end, |known| known.min(end)));
                }
                if count > 0 {
                    moving.ready.insert(offset, (buffer, count));
                }
                if count > 0 && count < len && moving.end.is_none_or(|known| known > end) {
                    // Short, and not at the end as far as is known: the rest of this block.
                    self.read(file, end, len - count);
                }
            }
            Err(errno) if is_again(errno) => {
                drop(buffer);
                self.read(file, offset, len);
            }
            Err(errno) if is_want_of_thread(errno) => moving.is_lost = true,
            Err(errno) => {
                let line = moving.job.read_error(Errno::from_raw_os_error(errno));
                moving.error.get_or_insert(line);
            }
        }
    }

    fn was_written(&mut self, step: Step, done: usize, buffer: Buffer, result: Result<usize, i32>) {
        let Some(moving) = self.files.get_mut(&step.file) else { return };
        let done = match result {
            Ok(0) => Err(Errno::NOSPC),
            Ok(count) => {
                moving.job.meter.add_bytes(count as u64);
                Ok(done + count)
            }
            Err(errno) if is_again(errno) => Ok(done),
            Err(errno) => Err(Errno::from_raw_os_error(errno)),
        };
        moving.writing = false;
        match done {
            Ok(done) if done < step.len => {
                self.write(Step { written: Some(done), ..step }, done, buffer);
            }
            Ok(_) => moving.written = step.offset + step.len as u64,
            Err(errno) if is_want_of_thread(errno.raw_os_error()) => moving.is_lost = true,
            Err(errno) => {
                let line = moving.job.write_error(errno);
                moving.error.get_or_insert(line);
            }
        }
    }

    /// Starts the operations that a file is ready for.
    fn advance(&mut self, number: u64) {
        loop {
            let Some(moving) = self.files.get_mut(&number) else { return };
            if moving.error.is_some() || moving.is_lost {
                moving.ready.clear();
                return;
            }
            if let Some(end) = moving.end {
                // It was cut short: what was read behind its end is no longer in it.
                moving.ready.retain(|offset, _| *offset < end);
            }
            if !moving.writing
                && let Some((buffer, len)) = moving.ready.remove(&moving.written)
            {
                if let Some(sums) = &mut moving.sums {
                    sums.add(&buffer.as_slice()[..len]);
                }
                let step = Step { file: number, offset: moving.written, len, written: Some(0) };
                self.write(step, 0, buffer);
                continue;
            }
            let ahead = moving.reads + moving.ready.len();
            let is_within = moving.next_read <= moving.size;
            // It grew: one block after the other, until it ends.
            let is_behind = ahead == 0 && !moving.writing && moving.next_read == moving.written;
            if moving.end.is_some() || ahead >= self.ahead || !(is_within || is_behind) {
                return;
            }
            let (offset, len) = (moving.next_read, self.block_bytes);
            if !self.read(number, offset, len) {
                return;
            }
            if let Some(moving) = self.files.get_mut(&number) {
                moving.next_read = offset + len as u64;
            }
        }
    }

    /// False: all blocks are in use, and it will be asked for again.
    fn read(&mut self, file: u64, offset: u64, len: usize) -> bool {
        let Some(moving) = self.files.get_mut(&file) else { return false };
        let buffer = match self.pool.take() {
            Some(buffer) => Buffer::from(buffer),
            // The rest of a block that was begun must not be forgotten.
            None if len < self.block_bytes => Buffer::from(vec![0; len]),
            None => return false,
        };
        let operation = Operation::read_at(&moving.job.source, buffer.slice(..len), offset);
        moving.reads += 1;
        self.push(operation, Step { file, offset, len, written: None });
        true
    }

    fn write(&mut self, step: Step, done: usize, buffer: Buffer) {
        let Some(moving) = self.files.get_mut(&step.file) else { return };
        moving.writing = true;
        let part = buffer.slice(done..step.len);
        let operation = Operation::write_at(&moving.job.copy, part, step.offset + done as u64);
        self.push(operation, step);
    }

    fn push(&mut self, operation: Operation, step: Step) {
        self.next_tag += 1;
        self.operations.insert(self.next_tag, step);
        let Err(refused) = self.local.push(operation, self.next_tag) else { return };
        // In flight are at most as many as the pool has blocks, and some of a few bytes: the
        // ring holds twice that. So it was refused for what it is, and fails as if it had run.
        self.operations.remove(&self.next_tag);
        let errno = match refused.reason {
            PushRefusal::Rejected(error) | PushRefusal::Submit(error) => {
                Errno::from_raw_os_error(error.errno())
            }
            _ => Errno::BUSY,
        };
        let Some(moving) = self.files.get_mut(&step.file) else { return };
        let line = if step.written.is_some() {
            moving.writing = false;
            moving.job.write_error(errno)
        } else {
            moving.reads -= 1;
            moving.job.read_error(errno)
        };
        moving.error.get_or_insert(line);
    }

    fn take_ended(&mut self) -> Vec<Outcome> {
        let is_over = |moving: &Moving| {
            let idle = moving.reads == 0 && !moving.writing;
            idle && (moving.error.is_some()
                || moving.is_lost
                || (moving.ready.is_empty() && moving.end.is_some_and(|end| moving.written >= end)))
        };
        let over: Vec<u64> =
            self.files.iter().filter(|(_, moving)| is_over(moving)).map(|(n, _)| *n).collect();
        over.into_iter().filter_map(|number| self.files.remove(&number)).map(end).collect()
    }

    /// The ring itself failed: no file on it can be said to be whole.
    fn give_up(&mut self, errno: Errno) -> Vec<Outcome> {
        for moving in self.files.values_mut() {
            let names = [&moving.job.source_path[..], &moving.job.copy_path];
            let line = moving.job.text("error copying %s to %s by io_uring", &names, errno);
            moving.error.get_or_insert(line);
        }
        while !self.operations.is_empty() {
            match self.local.next_completion() {
                Some(completion) => self.take(completion),
                None if self.local.submit_and_wait(1).is_ok() => {}
                // What is in flight keeps its descriptors; its files are lost to this run.
                None => break,
            }
        }
        let all = std::mem::take(&mut self.files);
        all.into_values().map(end).collect()
    }
}

fn end(moving: Moving) -> Outcome {
    let Moving { job, error, sums, is_lost, .. } = moving;
    let moved = match (error, sums) {
        (Some(line), _) => Err(line),
        (None, _) if is_lost => copy_again(&job),
        (None, Some(sums)) => verify::compare(&job, &sums),
        (None, None) => Ok(()),
    };
    job.end(moved)
}

/// Nobody cancels anything here: the kernel could make no thread for what would have had to wait
/// (io_uring/io-wq.c, io_wq_enqueue), as where a user may have no more of them.
fn is_want_of_thread(errno: i32) -> bool {
    Errno::from_raw_os_error(errno) == Errno::CANCELED
}

/// Nothing was done, and nothing is wrong.
fn is_again(errno: i32) -> bool {
    matches!(Errno::from_raw_os_error(errno), Errno::INTR | Errno::AGAIN)
}
