//! The rules of commits: what a stream writes next. This module does no I/O. The appender reports what happened, and
//! asks for the next step.
//!
//! A batch is committed when its bytes and its entry are written. If durability is promised, they and the names of new
//! files must also be synced (invariant 10 of docs/explanation/ownership.md). Only then does the next batch begin, so a
//! power cut tears at most one. The library's [`Steps`] continue short writes. This module decides what follows an
//! error:
//!
//! - A failed sync is never repeated. The segment is abandoned, and the batch, which is still in memory, is written to
//!   a new segment.
//! - If there is no space, the write is repeated later. If the file may not grow, the segment ends before the batch.
//! - If the kernel has no thread for a write or sync (a limit of processes), it cancels the operation. The daemon then
//!   performs it on a loop of its own.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use ringwise::{Completion, Descriptor, Operation, Steps, Turn};

use crate::{
    clients::names::{Mark, Names},
    disk::segment::{
        call::{
            is_cancelled, is_descriptors, is_invalid, is_space, is_too_large, is_transient, passing,
        },
        format::{
            entry::{AFTER_SYNC, BESIDE_SHIFT, Entry, Kind},
            name::{Part, Stream},
            record::{Dictionary, Part as SentPart, put_mark},
        },
        writing::{
            staging::{BLOCK_BYTES, Staging},
            unsealed::Unsealed,
        },
    },
    guarantee::Guarantee,
};

/// Consecutive failures after which the stream gives up. Lack of space does not count.
const FAILURES_MAX: u32 = 3;

/// When a batch is tried again after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Retry {
    /// Nothing was lost: space or descriptors were missing.
    Soon,
    Later,
}

impl Retry {
    /// How long the batch waits.
    pub(crate) fn after(self) -> Duration {
        Duration::from_millis(match self {
            Retry::Soon => 20,
            Retry::Later => 500,
        })
    }
}

/// When a segment ends and the next begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) bytes: u64,
    /// Of its index. Many small batches have more of it than lines, and a reader has all of it in memory.
    pub(crate) index_bytes: u64,
    pub(crate) age: Duration,
    /// Bytes that must be free on the file system for a batch to begin.
    pub(crate) min_free: u64,
    /// Whether lines bypass the page cache, if the file system supports that.
    pub(crate) is_direct: bool,
}

/// How a stream is written.
pub(crate) struct Plan {
    pub(crate) directory: PathBuf,
    pub(crate) stream: Stream,
    pub(crate) guarantee: Guarantee,
    pub(crate) limits: Limits,
    pub(crate) next_serial: u64,
    pub(crate) next_line: u64,
    /// All known names. The first batch of each segment stores them.
    pub(crate) names: Arc<Names>,
    /// The tags of its operations are this value with the chain and the step in the lowest byte.
    pub(crate) tag: u64,
}

/// The content of a commit: whole lines, or names alone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given {
    pub(crate) data: Vec<u8>,
    pub(crate) lines: u64,
    /// Clients with names that have lines in it.
    pub(crate) names: Vec<Mark>,
    /// The senders of the lines.
    pub(crate) parts: Vec<SentPart>,
}

/// The next step.
pub(crate) enum Step {
    /// Open the files of this segment, and report the result to [`Writing::opened`].
    Open { serial: u64, is_direct: bool },
    /// Submit these operations, linked in this order.
    Push(Vec<(Operation, u64)>),
    /// Wait for a completion, a batch or a retry.
    Wait,
    /// The batch is committed. The memory can be used again.
    Committed(Vec<u8>),
    /// Nothing is in flight, for this reason. The next call is [`Writing::retry`].
    Stalled(String, Retry),
    /// Nothing more can be stored.
    Fatal(String),
}

/// The files of the segment that is being written.
pub(crate) struct Files {
    pub(crate) data: Descriptor,
    pub(crate) index: Descriptor,
    pub(crate) is_direct: bool,
}

/// Counts of operations and failures.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Segments that failed and are no longer written.
    pub(crate) dead_segments: u64,
    /// Submitted syncs.
    pub(crate) syncs: u64,
    /// Submitted writes of lines. The rest of a short write counts again.
    pub(crate) writes: u64,
}

struct Segment {
    files: Files,
    serial: u64,
    opened: Instant,
    bytes: u64,
    index_bytes: u64,
    batches: u64,
    lines: u64,
    /// Whether the names of its files are durable.
    is_named: bool,
    dictionary: Dictionary,
}

/// A batch that is being committed.
struct Batch {
    given: Given,
    /// The length of its data. The data itself is in a chain while it is written.
    len: u64,
    checksum: u32,
    entry_bytes: u64,
    chains: Vec<Chain>,
    trouble: Option<Trouble>,
    is_stalled: bool,
}

/// Operations on one of the files.
struct Chain {
    target: Target,
    steps: Steps,
    state: State,
    /// Whether its last operations went to the daemon's own loop.
    was_aside: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    /// The lines: a write, and a sync if the guarantee wants one.
    Data = 1,
    /// The entry.
    Index = 2,
    /// The directory, for the names of new files.
    Names = 3,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Due,
    Going,
    Done,
}

enum Trouble {
    /// There is no space or no descriptor. Nothing was lost, and the same operation is repeated later.
    Passing(String),
    /// The segment cannot be trusted any more.
    Segment(String),
    /// The file may not grow so far. The batch goes to the next segment.
    Size(String),
    /// The segment cannot be trusted, and there may be no space for another yet.
    SegmentAndSpace(String),
}

/// Writes a stream.
pub(crate) struct Writing {
    pub(crate) plan: Plan,
    directory: Descriptor,
    is_direct: bool,
    segment: Option<Segment>,
    batch: Option<Batch>,
    staging: Staging,
    /// Segments that ended and wait to be handed on.
    pub(crate) seals: Vec<Unsealed>,
    failures: u32,
    /// The file size at which a write failed, if one did.
    file_max: u64,
    /// Whether the kernel has no thread for this segment's operations.
    pub(crate) is_aside: bool,
    pub(crate) counts: Counts,
}

impl Writing {
    pub(crate) fn new(plan: Plan, directory: Descriptor) -> Writing {
        Writing {
            is_direct: plan.limits.is_direct,
            plan,
            directory,
            segment: None,
            batch: None,
            staging: Staging::default(),
            seals: Vec::new(),
            failures: 0,
            file_max: u64::MAX,
            is_aside: false,
            counts: Counts::default(),
        }
    }

    pub(crate) fn set_limits(&mut self, limits: Limits) {
        self.plan.limits = limits;
        self.is_direct = limits.is_direct;
    }

    /// Starts to commit a batch. No other may be in progress.
    pub(crate) fn begin(&mut self, given: Given) {
        let has_content = !given.data.is_empty() || !given.names.is_empty();
        assert!(self.batch.is_none() && has_content, "one batch at a time, and not an empty one");
        let len = given.data.len() as u64;
        let is_over = self.segment.as_ref().is_some_and(|segment| {
            segment.bytes >= self.plan.limits.bytes
                || segment.index_bytes >= self.plan.limits.index_bytes
                || segment.bytes + len + BLOCK_BYTES as u64 > self.file_max
                || segment.opened.elapsed() >= self.plan.limits.age
        });
        if is_over {
            self.seal();
        }
        let checksum = crc32fast::hash(&given.data);
        let (entry_bytes, chains) = (0, Vec::new());
        let (trouble, is_stalled) = (None, false);
        self.batch = Some(Batch { given, len, checksum, entry_bytes, chains, trouble, is_stalled });
    }

    /// Continues after [`Step::Stalled`].
    pub(crate) fn retry(&mut self) {
        if let Some(batch) = &mut self.batch {
            batch.is_stalled = false;
        }
    }

    /// Returns the next step. The caller repeats the call until the step is to wait.
    pub(crate) fn step(&mut self) -> Step {
        let Some(batch) = self.batch.as_mut().filter(|batch| !batch.is_stalled) else {
            return Step::Wait;
        };
        let is_idle = batch.chains.iter().all(|chain| chain.state != State::Going);
        if let Some(trouble) = batch.trouble.take_if(|_| is_idle) {
            return self.judge(trouble);
        }
        if batch.trouble.is_some() {
            return Step::Wait;
        }
        if self.segment.is_none() {
            // The number is not used again, even if the open fails.
            let serial = self.plan.next_serial;
            self.plan.next_serial += 1;
            return Step::Open { serial, is_direct: self.is_direct };
        }
        if batch.chains.is_empty() {
            self.lay_out();
        }
        let batch = self.batch.as_mut().expect("the batch exists: this function checked it above");
        if let Some(due) = batch.chains.iter().position(|chain| chain.state == State::Due) {
            return Step::Push(self.hand_over(due));
        }
        if batch.chains.iter().all(|chain| chain.state == State::Done) {
            return Step::Committed(self.conclude());
        }
        Step::Wait
    }

    /// Takes the files that [`Step::Open`] asked for.
    pub(crate) fn opened(&mut self, serial: u64, files: Result<Files, ringwise::Error>) {
        match files {
            Ok(files) => {
                self.is_direct = files.is_direct;
                self.staging.restart();
                // The limit may have been raised, or other processes may have ended.
                self.is_aside = false;
                self.segment = Some(Segment {
                    files,
                    serial,
                    opened: Instant::now(),
                    bytes: 0,
                    index_bytes: 0,
                    batches: 0,
                    lines: 0,
                    is_named: false,
                    dictionary: Dictionary::default(),
                });
            }
            Err(error) => {
                let trouble = match is_space(&error) || is_descriptors(&error) {
                    true => Trouble::Passing(passing(&error)),
                    false => Trouble::Segment(error.to_string()),
                };
                if let Some(batch) = &mut self.batch {
                    batch.trouble = Some(trouble);
                }
            }
        }
    }

    /// Makes the chains that write the batch to the segment.
    fn lay_out(&mut self) {
        let (Some(segment), Some(batch)) = (&mut self.segment, &mut self.batch) else { return };
        let entry = entry_of(&self.plan, segment, batch);
        batch.entry_bytes = entry.len() as u64;
        let mut add = |target, steps| {
            batch.chains.push(Chain { target, steps, state: State::Due, was_aside: false });
        };
        if batch.len > 0 {
            let steps = if segment.files.is_direct {
                self.staging.fill(&batch.given.data);
                let start = segment.bytes - self.staging.before() as u64;
                let steps = Steps::default().aligned(BLOCK_BYTES);
                steps.write_at(self.staging.give(), start)
            } else {
                let data = std::mem::take(&mut batch.given.data);
                Steps::default().write_at(data, segment.bytes)
            };
            let is_durable = self.plan.guarantee >= Guarantee::Durable;
            add(Target::Data, if is_durable { steps.sync_data() } else { steps });
        }
        add(Target::Index, Steps::default().write_at(entry, segment.index_bytes));
        if !segment.is_named {
            add(Target::Names, Steps::default().sync_all());
        }
    }

    /// Returns the operations of a chain. The sync is linked to the write, so the thread that wrote continues with the
    /// sync without waiting for this thread.
    fn hand_over(&mut self, due: usize) -> Vec<(Operation, u64)> {
        let (Some(segment), Some(batch)) = (&self.segment, &mut self.batch) else {
            return Vec::new();
        };
        let chain = &mut batch.chains[due];
        (chain.state, chain.was_aside) = (State::Going, self.is_aside);
        let file = match chain.target {
            Target::Data => &segment.files.data,
            Target::Index => &segment.files.index,
            Target::Names => &self.directory,
        };
        let tag = self.plan.tag | (chain.target as u64) << 4;
        let mut operations = Vec::new();
        for (place, operation) in chain.steps.operations(file) {
            match operation.opcode() {
                ringwise::Opcode::Sync => self.counts.syncs += 1,
                _ => self.counts.writes += u64::from(chain.target == Target::Data),
            }
            operations.push((operation, tag | place));
        }
        operations
    }

    /// Takes the completion of one of its operations.
    pub(crate) fn take(&mut self, tag: u64, completion: Completion) {
        let (target, place) = (tag >> 4 & 0xf, tag & 0xf);
        let mut chains = self.batch.iter_mut().flat_map(|batch| &mut batch.chains);
        let Some(chain) = chains.find(|chain| chain.target as u64 == target) else { return };
        match chain.steps.take(place, completion) {
            Turn::Waits => {}
            Turn::Again => chain.state = State::Due,
            Turn::Done | Turn::Ended => chain.state = State::Done,
            Turn::Failed(place, error) => {
                chain.state = State::Due;
                let (target, was_aside) = (chain.target, chain.was_aside);
                let has_no_thread = is_cancelled(&error) && !was_aside;
                self.is_aside |= has_no_thread;
                // An interrupted operation did nothing.
                if !has_no_thread && !is_transient(&error) {
                    self.note(target, place == 0 && target != Target::Names, &error);
                }
            }
        }
    }

    /// Notes an error after which the batch cannot simply continue.
    fn note(&mut self, target: Target, is_write: bool, error: &ringwise::Error) {
        let (Some(segment), Some(batch)) = (&self.segment, &mut self.batch) else { return };
        if is_space(error) && is_write {
            batch.trouble.get_or_insert(Trouble::Passing(passing(error)));
        } else if is_too_large(error) {
            if target == Target::Data {
                let chain = batch.chains.iter().find(|chain| chain.target == target);
                let moved = chain.map_or(0, |chain| chain.steps.moved());
                self.file_max = self.file_max.min(segment.bytes + moved);
            }
            batch.trouble = Some(Trouble::Size(error.to_string()));
        } else if is_space(error) {
            // The file system found no space for blocks when it wrote them back.
            batch.trouble = Some(Trouble::SegmentAndSpace(passing(error)));
        } else {
            // The file may need blocks of another size, which only the write shows.
            self.is_direct &= !is_invalid(error);
            batch.trouble = Some(Trouble::Segment(error.to_string()));
        }
    }

    /// Counts the batch as committed.
    fn conclude(&mut self) -> Vec<u8> {
        self.dissolve();
        let batch = self.batch.take().expect("the caller has checked that there is a batch");
        let segment = self.segment.as_mut().expect("the batch was written to a segment");
        segment.bytes += batch.len;
        segment.index_bytes += batch.entry_bytes;
        segment.batches += 1;
        segment.lines += batch.given.lines;
        segment.is_named = true;
        self.plan.next_line += batch.given.lines;
        self.failures = 0;
        if segment.files.is_direct {
            self.staging.commit(&batch.given.data);
        }
        batch.given.data
    }

    /// Takes the batch's memory back from its chains, which have ended.
    fn dissolve(&mut self) {
        let Some(batch) = &mut self.batch else { return };
        for chain in batch.chains.drain(..).filter(|chain| chain.target == Target::Data) {
            let buffer = chain.steps.into_buffers().into_iter().next().flatten();
            match self.segment.as_ref().is_some_and(|segment| segment.files.is_direct) {
                true => self.staging.take_back(buffer),
                false => {
                    let data = buffer.and_then(|buffer| buffer.into_vec().ok());
                    batch.given.data = data.expect("the chain was given a Vec");
                }
            }
        }
    }

    /// Decides what follows trouble. Nothing is in flight.
    fn judge(&mut self, trouble: Trouble) -> Step {
        let retry = match trouble {
            Trouble::Passing(_) => Retry::Soon,
            _ => Retry::Later,
        };
        let what = match trouble {
            Trouble::Passing(what) => what,
            Trouble::SegmentAndSpace(what) => self.abandon(&what),
            Trouble::Size(what) if self.segment.as_ref().is_some_and(|it| it.batches > 0) => {
                self.dissolve();
                self.seal();
                if let Some(unsealed) = self.seals.last_mut() {
                    unsealed.is_torn = true;
                }
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
        if let Some(batch) = &mut self.batch {
            batch.is_stalled = true;
        }
        let what = format!("{}: {what}", self.plan.stream);
        if self.failures >= FAILURES_MAX { Step::Fatal(what) } else { Step::Stalled(what, retry) }
    }

    /// Closes the segment for good. The batch goes to another segment.
    fn abandon(&mut self, what: &str) -> String {
        self.dissolve();
        let Some(dead) = self.segment.take() else { return what.to_owned() };
        self.counts.dead_segments += 1;
        let name = self.plan.stream.file(dead.serial, Part::Data);
        format!("{what}; {} is dead, its last batch goes to another", name.display())
    }

    /// Ends the segment if it is over its age and no batch is being committed.
    pub(crate) fn tick(&mut self) {
        let age = self.plan.limits.age;
        let is_old = self.segment.as_ref().is_some_and(|segment| segment.opened.elapsed() >= age);
        if is_old && self.batch.is_none() {
            self.seal();
        }
    }

    /// Ends the segment. It is then sealed durably, whatever the guarantee.
    pub(crate) fn seal(&mut self) {
        let Some(segment) = self.segment.take().filter(|segment| segment.batches > 0) else {
            return;
        };
        self.seals.push(Unsealed {
            name: self.plan.stream.file(segment.serial, Part::Data),
            data: segment.files.data,
            index: segment.files.index,
            is_synced: self.plan.guarantee >= Guarantee::Durable,
            index_bytes: segment.index_bytes,
            is_filled: segment.files.is_direct,
            is_torn: false,
            batches: segment.batches,
            bytes: segment.bytes,
            lines: segment.lines,
            next_line: self.plan.next_line,
        });
    }
}

/// Makes the batch's entry, and before it those of its records: the names with lines in the batch, and the senders. The
/// first batch of a segment comes after the head and all names, because earlier segments may be removed.
fn entry_of(plan: &Plan, segment: &mut Segment, batch: &Batch) -> Vec<u8> {
    let (mut entries, mut records) = (Vec::new(), Vec::new());
    if segment.batches == 0 {
        let (number, first_line) = (segment.serial, plan.next_line);
        entries.push(Entry { number, first_line, ..Entry::new(Kind::Head) });
        plan.names.marks().iter().for_each(|mark| put_mark(&mut records, mark));
    }
    batch.given.names.iter().for_each(|mark| put_mark(&mut records, mark));
    segment.dictionary.put(&mut records, &batch.given.parts, Instant::now());
    let before = entries.len();
    entries.extend(Entry::of_records(&records));
    let beside = (entries.len() - before) as u32;
    let is_synced = plan.guarantee >= Guarantee::Durable;
    entries.push(Entry {
        flags: if is_synced { AFTER_SYNC } else { 0 } | beside << BESIDE_SHIFT,
        number: segment.batches,
        offset: segment.bytes,
        bytes: batch.len,
        lines: batch.given.lines,
        first_line: plan.next_line,
        checksum: batch.checksum,
        ..Entry::new(Kind::Batch)
    });
    entries.iter().flat_map(Entry::encode).collect()
}
