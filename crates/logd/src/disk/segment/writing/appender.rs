//! Writes a stream, a batch at a time, on the loop of its thread.
//!
//! `writing` decides what to write, and what to do after an error. The appender opens files and submits the operations.
//! They go to the thread's loop. If the kernel has no worker thread for them, they go to a loop of the appender's own,
//! for which the thread waits.

use ringwise::{Completion, Descriptor, Local, OpenOptions, Operation};

pub(crate) use crate::disk::segment::writing::commit::{Given, Limits, Plan, Retry};
use crate::{
    disk::{
        segment::{
            call::{open, open_data, unlink},
            format::name::Part,
            writing::{
                commit::{Counts, Files, Step, Writing},
                unsealed::Unsealed,
            },
        },
        submission::Submission,
    },
    guarantee::Guarantee,
    monitoring::log,
};

/// A write to a file opened with `O_DSYNC` is durable when it completes.
const DSYNC: i32 = rustix::fs::OFlags::DSYNC.bits() as i32;

/// Writes a stream.
pub(crate) struct Appender {
    writing: Writing,
    /// The loop for which the thread waits. It has only operations of the appender.
    aside: Local,
    /// Operations in flight on that loop.
    on_aside: usize,
}

/// The progress of a batch.
#[derive(Debug)]
pub(crate) enum Progress {
    /// It is being committed.
    Going,
    /// It is committed. The memory can be used again.
    Committed(Vec<u8>),
    /// It is not committed, for this reason, and nothing is in flight. The next call is [`Appender::retry`].
    Stalled(String, Retry),
}

/// The reason why nothing more can be stored.
#[derive(Debug)]
pub(crate) struct Fatal(pub(crate) String);

impl Appender {
    pub(crate) fn new(plan: Plan, directory: Descriptor, aside: Local) -> Appender {
        Appender { writing: Writing::new(plan, directory), aside, on_aside: 0 }
    }

    pub(crate) fn set_limits(&mut self, limits: Limits) {
        self.writing.set_limits(limits);
    }

    pub(crate) fn counts(&self) -> Counts {
        self.writing.counts
    }

    /// Returns the number of the line after the last committed one.
    pub(crate) fn next_line(&self) -> u64 {
        self.writing.plan.next_line
    }

    /// Starts to commit a batch of whole lines, or of names alone. No other batch may be in progress.
    ///
    /// # Errors
    ///
    /// [`Fatal`] if it cannot be stored and a retry would not help.
    pub(crate) fn begin(
        &mut self,
        submission: &mut dyn Submission,
        given: Given,
    ) -> Result<Progress, Fatal> {
        self.writing.begin(given);
        self.go_on(submission)
    }

    /// Continues after [`Progress::Stalled`].
    ///
    /// # Errors
    ///
    /// As [`begin`](Self::begin).
    pub(crate) fn retry(&mut self, submission: &mut dyn Submission) -> Result<Progress, Fatal> {
        self.writing.retry();
        self.go_on(submission)
    }

    /// Takes the completion of one of its operations.
    ///
    /// # Errors
    ///
    /// As [`begin`](Self::begin).
    pub(crate) fn take(
        &mut self,
        submission: &mut dyn Submission,
        (tag, completion): (u64, Completion),
    ) -> Result<Progress, Fatal> {
        self.take_completion(tag, completion);
        self.go_on(submission)
    }

    fn take_completion(&mut self, tag: u64, completion: Completion) {
        let was_aside = self.writing.is_aside;
        self.writing.take(tag, completion);
        if self.writing.is_aside && !was_aside {
            let stream = self.writing.plan.stream;
            log::remark(
                "threads",
                format_args!(
                    "{stream}: the kernel has no thread for its writes and syncs: the daemon performs them itself, \
                     which is slower; raise the limit of processes (ulimit -u, pids.max, TasksMax=)"
                ),
            );
        }
    }

    /// Performs the next steps until the appender has to wait.
    fn go_on(&mut self, submission: &mut dyn Submission) -> Result<Progress, Fatal> {
        loop {
            match self.writing.step() {
                Step::Open { serial, is_direct } => {
                    let files = self.open(serial, is_direct);
                    self.writing.opened(serial, files);
                }
                Step::Push(operations) => {
                    let count = operations.len();
                    match self.writing.is_aside {
                        true => push(&mut self.aside, operations)?,
                        false => push(submission, operations)?,
                    }
                    self.on_aside += if self.writing.is_aside { count } else { 0 };
                }
                Step::Wait if self.on_aside == 0 => return Ok(Progress::Going),
                Step::Wait => {
                    self.aside.submit_and_wait(1).map_err(|error| Fatal(error.to_string()))?;
                    while let Some(completion) = self.aside.next_completion() {
                        self.on_aside -= 1;
                        self.take_completion(completion.tag(), completion);
                    }
                }
                Step::Committed(memory) => return Ok(Progress::Committed(memory)),
                Step::Stalled(why, retry) => return Ok(Progress::Stalled(why, retry)),
                Step::Fatal(why) => return Err(Fatal(why)),
            }
        }
    }

    /// Opens the files of a segment. The thread waits for it, once in hundreds of megabytes.
    fn open(&mut self, serial: u64, is_direct: bool) -> Result<Files, ringwise::Error> {
        let plan = &self.writing.plan;
        let path = |part| plan.directory.join(plan.stream.file(serial, part));
        let local = &mut self.aside;
        let new = OpenOptions::new().write(true).create_new(true).mode(0o640);
        let dsync = if plan.guarantee >= Guarantee::Durable { DSYNC } else { 0 };
        let (data, is_direct) = open_data(local, &path(Part::Data), new, is_direct)?;
        match open(local, &path(Part::Index), new.custom_flags(dsync)) {
            Ok(index) => Ok(Files { data, index, is_direct }),
            Err(error) => {
                // This is repeated while there is no space, and must not leave empty files behind.
                let _ = unlink(local, &path(Part::Data));
                Err(error)
            }
        }
    }

    /// Ends the segment if it is over its age and no batch is being committed.
    pub(crate) fn tick(&mut self) {
        self.writing.tick();
    }

    /// Ends the segment. It is then sealed durably, whatever the guarantee.
    pub(crate) fn seal(&mut self) {
        self.writing.seal();
    }

    /// Takes the segments that ended since the last call. Another thread seals them.
    pub(crate) fn ended(&mut self) -> impl Iterator<Item = Unsealed> {
        self.writing.seals.drain(..)
    }
}

fn push(
    submission: &mut dyn Submission,
    mut operations: Vec<(Operation, u64)>,
) -> Result<(), Fatal> {
    let pushed = match operations.len() {
        1 => {
            let (operation, tag) = operations.remove(0);
            submission.push(operation, tag)
        }
        _ => submission.push_linked(operations),
    };
    pushed.map_err(Fatal)
}
