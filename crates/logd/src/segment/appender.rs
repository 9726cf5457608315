//! Writing a stream, a batch at a time, on the loop of the thread that it belongs to.
//!
//! A batch is committed when its bytes and its entry are written and, where durability is promised,
//! synced, and the names of new files too (invariant 10 of docs/ownership.md). The next batch begins
//! after that, so at most one is torn by a loss of power, and whatever arrives meanwhile rides with
//! it. A sync that failed is never asked for again: the segment is left as it is, and the batch,
//! which is still in memory, is written to a new one. Where there is no space a write is made again
//! when there may be; where the file may not grow the segment ends before the batch.
//!
//! Where the kernel has no thread for a write or a sync (a limit of processes), it cancels it, and it is
//! made aside: by a thread of the daemon, this one if there can be no other.
//!
//! A batch is one write. To see what that is worth it can be several, one after the other, and the
//! sync behind the last.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use ringwise::{Completion, Descriptor, Local, OpenOptions, Operation};

use super::{
    call::{
        is_cancelled, is_descriptors, is_invalid, is_space, is_too_large, is_transient, open_data,
        passing, run,
    },
    entry::{AFTER_SYNC, Entry, Kind, NAMES_SHIFT},
    name::{Part, Stream},
    staging::{BLOCK_BYTES, Staging},
    unsealed::Unsealed,
};
use crate::{
    guarantee::Guarantee,
    log,
    names::{Mark, Names},
};

/// Failures in a row, of other than space, that end the attempts.
const FAILURES_MAX: u32 = 3;

/// What `O_DSYNC` is: a write to the index is durable when it completes.
const DSYNC: i32 = rustix::fs::OFlags::DSYNC.bits() as i32;

/// When a segment ends and the next begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) bytes: u64,
    pub(crate) age: Duration,
    /// Bytes of the file system that have to be free for a batch to begin.
    pub(crate) min_free: u64,
    /// Whether lines go past the page cache, where the file system lets them.
    pub(crate) is_direct: bool,
}

/// How a stream is to be written.
pub(crate) struct Plan {
    pub(crate) directory: PathBuf,
    pub(crate) stream: Stream,
    pub(crate) guarantee: Guarantee,
    pub(crate) limits: Limits,
    pub(crate) next_serial: u64,
    pub(crate) next_line: u64,
    /// Of which the first batch of each segment has all.
    pub(crate) names: Arc<Names>,
    /// Whether lines go past the page cache, where the file system lets them.
    pub(crate) is_direct: bool,
    /// The tags of its operations: this, and its lowest byte for the kind.
    pub(crate) tag: u64,
}

/// What is to be committed: whole lines, or names alone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given {
    pub(crate) data: Vec<u8>,
    pub(crate) lines: u64,
    /// Clients that named themselves and have lines in it.
    pub(crate) names: Vec<Mark>,
    /// Where a write ends in the data and another begins; without any it is one.
    pub(crate) cuts: Vec<usize>,
}

/// Writes a stream.
pub(crate) struct Appender {
    plan: Plan,
    /// The directory, to sync the names in it.
    directory: Descriptor,
    /// For what the thread waits for, so that nothing of others comes in between.
    aside: Local,
    /// Whether that makes the segment's writes and syncs too, and how many of them it has.
    is_aside: bool,
    on_aside: u32,
    segment: Option<Segment>,
    commit: Option<Commit>,
    staging: Staging,
    /// Ended, and not handed on yet.
    seals: Vec<Unsealed>,
    failures: u32,
    /// The size of files that was not to be had, if one was not.
    file_max: u64,
    /// Segments that failed and are not written to any more.
    pub(crate) dead_segments: u64,
    /// Syncs that were asked for.
    pub(crate) syncs: u64,
    /// Writes of lines, those of what was left of short ones among them.
    pub(crate) writes: u64,
}

struct Segment {
    serial: u64,
    is_direct: bool,
    data: Descriptor,
    index: Descriptor,
    opened: Instant,
    bytes: u64,
    /// Of the index.
    index_bytes: u64,
    batches: u64,
    lines: u64,
    has_names: bool,
}

/// A batch on its way.
struct Commit {
    lines: u64,
    names: Vec<Mark>,
    cuts: Vec<usize>,
    /// Of these, those that were written up to.
    cuts_done: usize,
    checksum: u32,
    /// The batch, while no write has it.
    data: Option<Vec<u8>>,
    entry: Option<Vec<u8>>,
    /// How much of each is written.
    /// Bytes that were written, and all that are to be: of a direct segment, whole blocks.
    data_done: usize,
    data_len: usize,
    entry_done: usize,
    len: usize,
    entry_len: usize,
    in_flight: u32,
    /// Of these, syncs of the data.
    syncs_in_flight: u32,
    sync: Sync,
    trouble: Option<Trouble>,
}

impl Commit {
    /// Where the next write ends. Of a direct segment these are whole blocks, and what ends in the same
    /// one is written together: `before` bytes stand in the first block before the batch.
    fn next_end(&mut self, before: usize, is_direct: bool) -> usize {
        let unit = if is_direct { BLOCK_BYTES } else { 1 };
        while let Some(cut) = self.cuts.get(self.cuts_done) {
            let end = (before + cut).next_multiple_of(unit);
            if end > self.data_done {
                return end;
            }
            self.cuts_done += 1;
        }
        self.data_len
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sync {
    Unasked,
    Asked,
    Done,
}

enum Trouble {
    /// Nothing was lost, for want of space or of a descriptor: the same again later.
    Passing(String),
    /// The segment is not to be trusted any more.
    Segment(String),
    /// It may not grow as far as that: the batch is for the next.
    Size(String),
    /// Neither is it, and there may be no space for another yet.
    SegmentAndSpace(String),
}

/// What became of a batch.
#[derive(Debug)]
pub(crate) enum Progress {
    /// It goes on.
    Going,
    /// It is committed; the memory can be used again.
    Committed(Vec<u8>),
    /// It is not, for this reason, and nothing is under way: call [`Appender::retry`] later.
    Stalled(String),
}

const WRITE_DATA: u64 = 1;
const WRITE_INDEX: u64 = 2;
const SYNC_DATA: u64 = 3;
const SYNC_NAMES: u64 = 4;

/// Why nothing more can be stored.
#[derive(Debug)]
pub(crate) struct Fatal(pub(crate) String);

impl Appender {
    pub(crate) fn new(plan: Plan, directory: Descriptor, aside: Local) -> Appender {
        Appender {
            plan,
            directory,
            aside,
            is_aside: false,
            on_aside: 0,
            segment: None,
            commit: None,
            staging: Staging::default(),
            seals: Vec::new(),
            failures: 0,
            file_max: u64::MAX,
            dead_segments: 0,
            syncs: 0,
            writes: 0,
        }
    }

    pub(crate) fn set_limits(&mut self, limits: Limits) {
        self.plan.limits = limits;
        self.plan.is_direct = limits.is_direct;
    }

    /// Begins a batch of whole lines, or of names alone; none may be on its way.
    ///
    /// # Errors
    ///
    /// [`Fatal`]: it cannot be stored, and trying again is of no use.
    pub(crate) fn begin(&mut self, local: &mut Local, given: Given) -> Result<Progress, Fatal> {
        let Given { data, lines, names, cuts } = given;
        let has_content = !data.is_empty() || !names.is_empty();
        assert!(self.commit.is_none() && has_content, "one batch at a time, of something");
        let data_bytes = data.len();
        self.commit = Some(Commit {
            lines,
            names,
            cuts,
            cuts_done: 0,
            checksum: crc32fast::hash(&data),
            len: data.len(),
            data: Some(data),
            entry: None,
            data_done: 0,
            data_len: 0,
            entry_done: 0,
            entry_len: 0,
            in_flight: 0,
            syncs_in_flight: 0,
            sync: Sync::Unasked,
            trouble: None,
        });
        let grown = (data_bytes + BLOCK_BYTES) as u64;
        let is_over = self.segment.as_ref().is_some_and(|segment| {
            segment.bytes >= self.plan.limits.bytes
                || segment.bytes + grown > self.file_max
                || segment.opened.elapsed() >= self.plan.limits.age
        });
        if is_over {
            self.seal();
        }
        self.retry(local)
    }

    /// Goes on after [`Progress::Stalled`].
    ///
    /// # Errors
    ///
    /// As [`begin`](Self::begin).
    pub(crate) fn retry(&mut self, local: &mut Local) -> Result<Progress, Fatal> {
        if self.segment.is_none()
            && let Err(error) = self.open()
        {
            return self.judge(match is_space(&error) || is_descriptors(&error) {
                true => Trouble::Passing(passing(&error)),
                false => Trouble::Segment(error.to_string()),
            });
        }
        let segment = self.segment.as_ref().expect("it was opened just now");
        let commit = self.commit.as_mut().expect("there is a batch");
        if commit.entry.is_none() {
            commit.entry = Some(entry_of(&self.plan, segment, commit));
            commit.entry_len = commit.entry.as_ref().map_or(0, Vec::len);
            commit.data_len = commit.len;
            if segment.is_direct
                && let Some(data) = &commit.data
            {
                self.staging.fill(data);
                commit.data_len = self.staging.len();
            }
        }
        self.push_data(local)?;
        self.push_entry(local)?;
        if !self.segment.as_ref().is_some_and(|segment| segment.has_names) {
            self.push_sync(local, SYNC_NAMES)?;
        }
        let progress = self.go_on(local)?;
        self.wait_aside(local, progress)
    }

    /// Takes the completion of one of its operations.
    ///
    /// # Errors
    ///
    /// As [`begin`](Self::begin).
    pub(crate) fn take(
        &mut self,
        local: &mut Local,
        completion: Completion,
    ) -> Result<Progress, Fatal> {
        let progress = self.take_from(local, completion, false)?;
        self.wait_aside(local, progress)
    }

    /// Waits for what is made aside, and what that brings about.
    fn wait_aside(&mut self, local: &mut Local, before: Progress) -> Result<Progress, Fatal> {
        let mut progress = before;
        while self.on_aside > 0 {
            self.aside.submit_and_wait(1).map_err(|error| Fatal(error.to_string()))?;
            while let Some(completion) = self.aside.next_completion() {
                self.on_aside -= 1;
                progress = self.take_from(local, completion, true)?;
            }
        }
        Ok(progress)
    }

    /// Takes a completion, of one that was made aside or not.
    fn take_from(
        &mut self,
        local: &mut Local,
        completion: Completion,
        was_aside: bool,
    ) -> Result<Progress, Fatal> {
        let (kind, result) = (completion.tag() & 0xff, completion.result());
        let Some(commit) = &mut self.commit else { return Ok(Progress::Going) };
        let is_direct = self.segment.as_ref().is_some_and(|segment| segment.is_direct);
        commit.in_flight -= 1;
        commit.syncs_in_flight -= u32::from(kind == SYNC_DATA);
        // A sync has no turn either where the write before it was short or failed, and asks for another.
        let is_awaited =
            kind != SYNC_DATA || (commit.syncs_in_flight == 0 && commit.sync == Sync::Asked);
        let is_cancelled = matches!(&result, Err(error) if is_cancelled(error));
        let has_no_thread = is_cancelled && is_awaited && !was_aside;
        if has_no_thread && !std::mem::replace(&mut self.is_aside, true) {
            tell_aside(self.plan.stream);
        }
        let again = has_no_thread || matches!(&result, Err(error) if is_transient(error));
        let reached = result.as_ref().map_or(0, |count| commit.data_done + count);
        if (kind == WRITE_DATA && reached < commit.data_len) || (kind == SYNC_DATA && again) {
            // What is missing is to be synced too. A sync that was interrupted has told of nothing yet.
            commit.sync = Sync::Unasked;
        }
        match kind {
            WRITE_DATA if is_direct => self.staging.take_back(completion.into_buffer()),
            WRITE_DATA => commit.data = completion.into_buffer().and_then(|b| b.into_vec().ok()),
            WRITE_INDEX => commit.entry = completion.into_buffer().and_then(|b| b.into_vec().ok()),
            _ => {}
        }
        match result {
            Ok(count) => match kind {
                WRITE_DATA => {
                    let is_short = commit.data_done + count < commit.data_len;
                    // A block that was not written whole is written again.
                    let torn = if is_direct && is_short { count % BLOCK_BYTES } else { 0 };
                    commit.data_done += count - torn;
                }
                WRITE_INDEX => commit.entry_done += count,
                SYNC_DATA => commit.sync = Sync::Done,
                _ => {
                    if let Some(segment) = &mut self.segment {
                        segment.has_names = true;
                    }
                }
            },
            Err(_) if is_cancelled && !is_awaited => {}
            // It did nothing.
            Err(_) if again => {}
            Err(error) if is_space(&error) && matches!(kind, WRITE_DATA | WRITE_INDEX) => {
                commit.trouble.get_or_insert(Trouble::Passing(passing(&error)));
            }
            Err(error) if is_too_large(&error) => {
                commit.trouble = Some(Trouble::Size(error.to_string()));
                if let Some(segment) = self.segment.as_ref().filter(|_| kind == WRITE_DATA) {
                    let reached = segment.bytes + commit.data_done as u64;
                    self.file_max = self.file_max.min(reached);
                }
            }
            // Blocks that were to be found when they are written back, and were not.
            Err(error) if is_space(&error) => {
                commit.trouble = Some(Trouble::SegmentAndSpace(passing(&error)));
            }
            Err(error) => {
                // Blocks of another size, which only the write tells.
                self.plan.is_direct &= !is_invalid(&error);
                commit.trouble = Some(Trouble::Segment(error.to_string()));
            }
        }
        if self.commit.as_ref().is_some_and(|commit| commit.trouble.is_none()) {
            match kind {
                WRITE_DATA => self.push_data(local)?,
                WRITE_INDEX => self.push_entry(local)?,
                SYNC_NAMES if again => self.push_sync(local, SYNC_NAMES)?,
                _ => {}
            }
        }
        self.go_on(local)
    }

    /// Does what comes next: the sync when all is written, the end when all is done.
    fn go_on(&mut self, local: &mut Local) -> Result<Progress, Fatal> {
        let is_durable = self.plan.guarantee == Guarantee::Durable;
        let is_direct = self.segment.as_ref().is_some_and(|segment| segment.is_direct);
        let Some(commit) = &mut self.commit else { return Ok(Progress::Going) };
        if let Some(trouble) = commit.trouble.take_if(|_| commit.in_flight == 0) {
            return self.judge(trouble);
        }
        if commit.trouble.is_some() {
            return Ok(Progress::Going);
        }
        // A sync covers what is written before it is asked for, and nothing else.
        let is_here = commit.data.is_some() && (self.staging.is_here() || !is_direct);
        let is_written = commit.data_done == commit.data_len && is_here;
        if is_durable && is_written && commit.sync == Sync::Unasked {
            commit.sync = Sync::Asked;
            self.push_sync(local, SYNC_DATA)?;
            return Ok(Progress::Going);
        }
        if commit.in_flight > 0 {
            return Ok(Progress::Going);
        }
        Ok(Progress::Committed(self.conclude()))
    }

    /// The batch is committed: it counts.
    fn conclude(&mut self) -> Vec<u8> {
        let commit = self.commit.take().expect("it was looked at just now");
        let segment = self.segment.as_mut().expect("it was written to");
        segment.bytes += commit.len as u64;
        segment.index_bytes += commit.entry_len as u64;
        segment.batches += 1;
        segment.lines += commit.lines;
        self.plan.next_line += commit.lines;
        self.failures = 0;
        let data = commit.data.expect("no write has it any more");
        if segment.is_direct {
            self.staging.commit(&data);
        }
        data
    }

    /// Says what is to be done about a failure.
    fn judge(&mut self, trouble: Trouble) -> Result<Progress, Fatal> {
        let what = match trouble {
            Trouble::Passing(what) => what,
            Trouble::SegmentAndSpace(what) => self.abandon(&what),
            Trouble::Size(what) if self.segment.as_ref().is_some_and(|it| it.batches > 0) => {
                self.end_before_batch();
                format!("{what}; the segment ends, and the batch goes to another")
            }
            Trouble::Size(what) => {
                self.failures += 1;
                let what = self.abandon(&what);
                format!("{what}; raise the limit of file sizes (ulimit -f, LimitFSIZE=)")
            }
            Trouble::Segment(what) => {
                self.failures += 1;
                self.abandon(&what)
            }
        };
        match self.failures {
            FAILURES_MAX.. => Err(Fatal(format!("{}: {what}", self.plan.stream))),
            _ => Ok(Progress::Stalled(format!("{}: {what}", self.plan.stream))),
        }
    }

    /// Closes the segment, never to be touched again; the batch goes to another.
    fn abandon(&mut self, what: &str) -> String {
        let dead = self.segment.take();
        self.begin_again();
        let Some(dead) = dead else { return what.to_owned() };
        self.dead_segments += 1;
        let name = self.plan.stream.file(dead.serial, Part::Data);
        format!("{what}; {} is dead, its last batch goes to another", name.display())
    }

    /// Ends the segment with the batches before the one on its way, which goes to another.
    fn end_before_batch(&mut self) {
        self.seal();
        if let Some(unsealed) = self.seals.last_mut() {
            unsealed.is_torn = true;
        }
        self.begin_again();
    }

    fn begin_again(&mut self) {
        if let Some(commit) = &mut self.commit {
            (commit.data_done, commit.data_len, commit.entry_done) = (0, 0, 0);
            commit.cuts_done = 0;
            (commit.entry, commit.sync) = (None, Sync::Unasked);
        }
    }

    /// Writes what is left of the batch up to its next cut, if anything is, and syncs it behind the last
    /// write: linked, so that who has written goes on to sync without waiting for this thread to see it.
    fn push_data(&mut self, local: &mut Local) -> Result<(), Fatal> {
        let (Some(segment), Some(commit)) = (&self.segment, &mut self.commit) else {
            return Ok(());
        };
        if commit.data_done == commit.data_len {
            return Ok(());
        }
        let before = if segment.is_direct { self.staging.before() } else { 0 };
        let (done, end) = (commit.data_done, commit.next_end(before, segment.is_direct));
        let (rest, start) = if segment.is_direct {
            (self.staging.give(done..end), segment.bytes - before as u64)
        } else {
            let data = commit.data.take().map(ringwise::Buffer::from);
            (data.map(|data| data.slice(done..end)), segment.bytes)
        };
        let Some(rest) = rest else { return Ok(()) };
        let write = Operation::write_at(&segment.data, rest, start + done as u64);
        commit.in_flight += 1;
        self.writes += 1;
        let is_last = end == commit.data_len && !self.is_aside;
        if !is_last || self.plan.guarantee != Guarantee::Durable || commit.sync != Sync::Unasked {
            return self.push(local, write, WRITE_DATA);
        }
        let sync = Operation::sync_data(&segment.data);
        commit.in_flight += 1;
        commit.syncs_in_flight += 1;
        commit.sync = Sync::Asked;
        self.syncs += 1;
        let linked = vec![(write, self.plan.tag | WRITE_DATA), (sync, self.plan.tag | SYNC_DATA)];
        local.push_linked(linked).map(drop).map_err(|error| Fatal(error.to_string()))
    }

    /// Writes what is left of the entry, if anything is.
    fn push_entry(&mut self, local: &mut Local) -> Result<(), Fatal> {
        let (Some(segment), Some(commit)) = (&self.segment, &mut self.commit) else {
            return Ok(());
        };
        if commit.entry_done == commit.entry_len {
            return Ok(());
        }
        let Some(entry) = commit.entry.take() else { return Ok(()) };
        let (done, end) = (commit.entry_done, commit.entry_len);
        let start = segment.index_bytes;
        let rest = ringwise::Buffer::from(entry).slice(done..end);
        let write = Operation::write_at(&segment.index, rest, start + done as u64);
        commit.in_flight += 1;
        self.push(local, write, WRITE_INDEX)
    }

    fn push_sync(&mut self, local: &mut Local, kind: u64) -> Result<(), Fatal> {
        let (Some(segment), Some(commit)) = (&self.segment, &mut self.commit) else {
            return Ok(());
        };
        let sync = match kind {
            SYNC_NAMES => Operation::sync_all(&self.directory),
            _ => Operation::sync_data(&segment.data),
        };
        commit.in_flight += 1;
        commit.syncs_in_flight += u32::from(kind == SYNC_DATA);
        self.syncs += 1;
        self.push(local, sync, kind)
    }

    fn push(&mut self, local: &mut Local, operation: Operation, kind: u64) -> Result<(), Fatal> {
        self.on_aside += u32::from(self.is_aside);
        let on = if self.is_aside { &mut self.aside } else { local };
        let pushed = on.push(operation, self.plan.tag | kind);
        pushed.map(drop).map_err(|error| Fatal(error.to_string()))
    }

    /// Opens the next segment. Once in hundreds of megabytes, so the thread may wait for it.
    fn open(&mut self) -> Result<(), ringwise::Error> {
        // Whatever becomes of it, its name is not used again.
        let serial = self.plan.next_serial;
        self.plan.next_serial += 1;
        let path = |part| self.plan.directory.join(self.plan.stream.file(serial, part));
        let local = &mut self.aside;
        let new = OpenOptions::new().write(true).create_new(true).mode(0o640);
        let dsync = if self.plan.guarantee == Guarantee::Durable { DSYNC } else { 0 };
        let (data, is_direct) = open_data(local, &path(Part::Data), new, self.plan.is_direct)?;
        self.plan.is_direct = is_direct;
        self.staging.restart();
        // Its limit may have been raised, or others may have gone.
        self.is_aside = false;
        let options = new.custom_flags(dsync);
        let opened = run(local, || Operation::open(path(Part::Index), options));
        let index = match opened.and_then(Completion::into_descriptor) {
            Ok(index) => index,
            Err(error) => {
                // Tried anew each time there is no space: leave no trail of empty files.
                let _ = run(local, || Operation::unlink(path(Part::Data)));
                return Err(error);
            }
        };
        let opened = Instant::now();
        self.segment = Some(Segment {
            serial,
            is_direct,
            data,
            index,
            opened,
            bytes: 0,
            index_bytes: 0,
            batches: 0,
            lines: 0,
            has_names: false,
        });
        Ok(())
    }

    /// Ends the segment if it is over its age and no batch is on its way.
    pub(crate) fn tick(&mut self) {
        let is_old = self
            .segment
            .as_ref()
            .is_some_and(|segment| segment.opened.elapsed() >= self.plan.limits.age);
        if is_old && self.commit.is_none() {
            self.seal();
        }
    }

    /// Ends the segment: gives it to whoever seals it, durably, whatever the guarantee.
    pub(crate) fn seal(&mut self) {
        let Some(segment) = self.segment.take().filter(|segment| segment.batches > 0) else {
            return;
        };
        self.seals.push(Unsealed {
            name: self.plan.stream.file(segment.serial, Part::Data),
            data: segment.data,
            index: segment.index,
            is_synced: self.plan.guarantee == Guarantee::Durable,
            index_bytes: segment.index_bytes,
            is_filled: segment.is_direct,
            is_torn: false,
            batches: segment.batches,
            bytes: segment.bytes,
            lines: segment.lines,
            next_line: self.plan.next_line,
        });
    }

    /// Segments that ended since this was last asked, to be sealed by who has the time.
    pub(crate) fn ended(&mut self) -> impl Iterator<Item = Unsealed> {
        self.seals.drain(..)
    }
}

/// The batch's entry, after those of the names that have lines in it. Where it is the segment's
/// first, its head comes before them, and all names: those of the segments before, which may be
/// removed.
fn entry_of(plan: &Plan, segment: &Segment, commit: &Commit) -> Vec<u8> {
    let mut entries = Vec::new();
    if segment.batches == 0 {
        entries.push(Entry {
            number: plan.next_serial - 1,
            first_line: plan.next_line,
            ..Entry::new(Kind::Head)
        });
        let all = plan.names.marks();
        entries.extend(all.iter().flat_map(|(name, line)| Entry::of_name(name, *line)));
    }
    entries.extend(commit.names.iter().flat_map(|(name, line)| Entry::of_name(name, *line)));
    let names = entries.iter().filter(|entry| entry.kind == Kind::Name).count() as u32;
    let is_synced = plan.guarantee == Guarantee::Durable;
    entries.push(Entry {
        flags: if is_synced { AFTER_SYNC } else { 0 } | names << NAMES_SHIFT,
        number: segment.batches,
        offset: segment.bytes,
        bytes: commit.len as u64,
        lines: commit.lines,
        first_line: plan.next_line,
        checksum: commit.checksum,
        ..Entry::new(Kind::Batch)
    });
    entries.iter().flat_map(Entry::encode).collect()
}

fn tell_aside(stream: Stream) {
    log::remark(
        "threads",
        format_args!(
            "{stream}: the kernel has no thread for its writes and syncs: the daemon makes them itself, \
             and is slower; raise the limit of processes (ulimit -u, pids.max, TasksMax=)"
        ),
    );
}
