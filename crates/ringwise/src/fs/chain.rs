//! Writes, syncs and reads of one file in a fixed order, with few hand-overs.
//!
//! The ring is given as many steps as it takes at once, linked. A link breaks at a short write, which
//! is no error: the write is then brought to its end, and the steps that the kernel cancelled
//! because of it are made after that (invariant 11). A sync that ran before the writes it was to
//! follow were whole says nothing, so it is made again.

use std::{future::poll_fn, ops::Range, time::Duration};

use super::{File, abandoned::Change};
use crate::{
    buf::{BufResult, Buffer, OwnedBuffer, OwnedBufferMut},
    completion::Completion,
    error::{Error, ErrorKind},
    op::{Opcode, Operation},
    ring::Timer,
};

/// Steps on one file, each of which starts when the one before has been done in full. Made by
/// [`File::chain`].
#[derive(Debug)]
#[must_use = "a chain does nothing until it is run"]
pub struct Chain {
    file: File,
    steps: Vec<Step>,
    deadline: Option<Duration>,
}

#[derive(Debug)]
struct Step {
    kind: Kind,
    /// Of a read or write. Away while the ring has it.
    buffer: Option<Buffer>,
    /// The part of the buffer that is to be moved.
    whole: Range<usize>,
    offset: u64,
    /// Bytes moved so far.
    done: usize,
}

/// How far a chain has come.
enum Progress {
    /// This step is next; it may have been done in part.
    To(usize),
    /// This step failed.
    Failed(usize, Error),
    /// This step met the end of the file.
    Over(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Write,
    Read,
    Sync { data_only: bool },
}

impl Kind {
    fn opcode(self) -> Opcode {
        match self {
            Kind::Write => Opcode::Write,
            Kind::Read => Opcode::Read,
            Kind::Sync { .. } => Opcode::Sync,
        }
    }
}

/// What a step of a [`Chain`] came to.
#[derive(Debug)]
#[must_use = "a step may have failed"]
#[non_exhaustive]
pub struct StepOutcome {
    /// Bytes read or written, 0 of a sync; or why it failed. A step that did not run, since one
    /// before it failed, is [`Cancelled`](crate::ErrorKind::Cancelled).
    pub result: Result<usize, Error>,
    /// The buffer of a read or write, whatever became of it.
    pub buffer: Option<Buffer>,
}

impl StepOutcome {
    /// The buffer as what it was before.
    ///
    /// # Panics
    ///
    /// When the step had none, or one of another type.
    pub fn into_buffer<B: OwnedBuffer>(self) -> B {
        B::from_buffer(self.buffer.expect("a sync has no buffer"))
    }
}

impl File {
    /// Begins a chain: steps on this file in a fixed order.
    ///
    /// All are handed over together where the kernel links them, else one after the other. A
    /// write that the kernel cuts short is brought to its end before the next step starts, so that
    /// a sync that succeeds has made durable every write before it in the chain. A step that fails
    /// ends the chain, and so does a read that meets the end of the file; those after it are
    /// cancelled, and give their buffers back.
    ///
    /// Dropped while it runs, it starts no repair any more; of the steps that were handed over, writes
    /// and syncs go on.
    ///
    /// # Examples
    ///
    /// ```
    /// use ringwise::{OpenOptions, Ring, fs::File};
    ///
    /// # futures::executor::block_on(async {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("log");
    /// let ring = Ring::new()?;
    /// let options = OpenOptions::new().read(true).write(true).create(true);
    /// let file = File::open(&ring, &path, options).await?;
    /// let chain = file.chain().write_at(b"head".to_vec(), 0).write_at(b"body".to_vec(), 4);
    /// let mut steps = chain.sync_data().read_at(vec![0; 8], 0).run().await;
    /// let read = steps.pop().unwrap();
    /// assert_eq!(read.result.as_ref().unwrap(), &8);
    /// assert_eq!(read.into_buffer::<Vec<u8>>(), b"headbody");
    /// assert!(steps.pop().unwrap().result.is_ok(), "durable");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub fn chain(&self) -> Chain {
        Chain { file: self.clone(), steps: Vec::new(), deadline: self.deadline }
    }

    /// Writes all of the buffer and makes it durable, with what else was written to the file; the
    /// name of a new file is durable once its directory is synced too.
    ///
    /// # Errors
    ///
    /// What the write or the sync failed with; see [`sync_data`](Self::sync_data) for the latter.
    pub async fn write_durable_at<B: OwnedBuffer>(
        &self,
        buffer: B,
        offset: u64,
    ) -> BufResult<(), B> {
        let steps = self.chain().write_at(buffer, offset).sync_data().run().await;
        let mut steps = steps.into_iter();
        let (write, sync) = (steps.next().expect("pushed"), steps.next().expect("pushed"));
        let result = match &write.result {
            Ok(_) => sync.result.map(drop),
            Err(error) => Err(error.clone()),
        };
        BufResult(result, write.into_buffer())
    }
}

impl Chain {
    /// Adds a write of all of the buffer at `offset` bytes.
    pub fn write_at<B: OwnedBuffer>(self, buffer: B, offset: u64) -> Chain {
        self.push(Kind::Write, Some(buffer.into_buffer()), offset)
    }

    /// Adds a read at `offset` bytes that is to fill the buffer.
    pub fn read_at<B: OwnedBufferMut>(self, buffer: B, offset: u64) -> Chain {
        self.push(Kind::Read, Some(buffer.into_buffer_mut()), offset)
    }

    /// Adds a sync, as [`File::sync_data`].
    pub fn sync_data(self) -> Chain {
        self.push(Kind::Sync { data_only: true }, None, 0)
    }

    /// Adds a sync, as [`File::sync_all`].
    pub fn sync_all(self) -> Chain {
        self.push(Kind::Sync { data_only: false }, None, 0)
    }

    fn push(mut self, kind: Kind, buffer: Option<Buffer>, offset: u64) -> Chain {
        let whole = buffer.as_ref().map_or(0..0, Buffer::range);
        self.steps.push(Step { kind, buffer, whole, offset, done: 0 });
        self
    }

    /// Gives all the steps together this long from when they are [run](Self::run). Then those that
    /// have not begun do not begin any more, and one under way is cancelled if it can be: the first
    /// that was not done fails with [`TimedOut`](crate::ErrorKind::TimedOut), and may have been done
    /// in part. What cannot be stopped comes to its own end first, so that the buffers come back.
    pub fn deadline(mut self, after: Duration) -> Chain {
        self.deadline = Some(after);
        self
    }

    /// Makes the steps; gives what became of each, in their order.
    pub async fn run(mut self) -> Vec<StepOutcome> {
        let mut at = 0;
        let mut failure = None;
        let mut timer = Timer::new(&self.file.ring, self.deadline);
        if let Err(error) = self.file.settle_all(&mut timer).await {
            failure = Some(error);
        }
        while at < self.steps.len() && failure.is_none() {
            timer.look().await;
            let progress = match self.refusal(at, &timer) {
                Some(error) => Progress::Failed(at, error),
                None if self.is_unaligned_read(at) => self.read_alone(at, &mut timer).await,
                None => self.run_linked(at, self.segment_end(at), &mut timer).await,
            };
            match progress {
                Progress::To(next) => at = next,
                Progress::Failed(failed, error) => {
                    at = failed;
                    failure = Some(error);
                }
                Progress::Over(last) => {
                    at = last + 1;
                    break;
                }
            }
        }
        self.into_outcomes(at, failure)
    }

    /// Where the steps end that can be handed over together with this one.
    fn segment_end(&self, start: usize) -> usize {
        let end = self.steps.len();
        let alone = |at: &usize| {
            self.is_unaligned_read(*at) || self.refusal(*at, &Timer::Endless).is_some()
        };
        (start + 1..end).find(alone).unwrap_or(end)
    }

    /// Why a step cannot be made: the time is over, or it would write to a file whose sync has
    /// failed.
    fn refusal(&self, at: usize, timer: &Timer) -> Option<Error> {
        if let Timer::Over = timer {
            return Some(self.timed_out(at));
        }
        let kind = self.steps[at].kind;
        if kind == Kind::Read {
            return None;
        }
        self.file.check_sync(kind.opcode()).err()
    }

    fn timed_out(&self, at: usize) -> Error {
        self.file.error(self.steps[at].kind.opcode(), libc::ETIME)
    }

    /// A direct read that is made by a copy.
    fn is_unaligned_read(&self, at: usize) -> bool {
        let step = &self.steps[at];
        step.kind == Kind::Read
            && step
                .buffer
                .as_ref()
                .is_some_and(|buffer| !self.file.is_aligned(buffer, step.next_offset()))
    }

    async fn read_alone(&mut self, at: usize, timer: &mut Timer) -> Progress {
        let step = &mut self.steps[at];
        let buffer = step.take_rest();
        let BufResult(result, buffer) =
            self.file.read_buffer(buffer, step.next_offset(), timer).await;
        step.give_back(buffer);
        self.advance(at, result).unwrap_or(Progress::To(at + 1))
    }

    /// Hands the steps from `start` to `end` over as one chain of the ring, and says how far they
    /// came.
    async fn run_linked(&mut self, start: usize, end: usize, timer: &mut Timer) -> Progress {
        let file = &self.file;
        let ranges: Vec<_> = self.steps[start..end].iter().map(Step::changes).collect();
        let operations = self.steps[start..end].iter_mut().map(|step| step.operation(file));
        let steps = file.ring.submit_linked(operations).into_iter().zip(ranges);
        let mut steps: Vec<Change<'_>> =
            steps.map(|(step, range)| Change::new(file, range, step)).collect();
        let mut completions = Vec::with_capacity(steps.len());
        for at in 0..steps.len() {
            let step = poll_fn(|context| {
                if timer.poll(context) {
                    steps[at..].iter().for_each(Change::cancel);
                }
                steps[at].poll(&mut Timer::Endless, context)
            });
            completions.push(step.await);
        }
        drop(steps);
        match self.absorb(start, completions) {
            Progress::Failed(at, error) if matches!(timer, Timer::Over) => {
                let was_cancelled = error.kind() == ErrorKind::Cancelled;
                Progress::Failed(at, if was_cancelled { self.timed_out(at) } else { error })
            }
            progress => progress,
        }
    }

    /// Takes in what the steps from `start` on came to.
    fn absorb(&mut self, start: usize, completions: Vec<Completion>) -> Progress {
        let end = start + completions.len();
        let mut broken = None;
        for (at, completion) in (start..end).zip(completions) {
            let result = self.file.step_result(&completion);
            self.steps[at].take_back(completion);
            // After a step that is not whole each was cancelled, or ran before its turn and says
            // nothing: it is made again in its turn.
            if broken.is_none() {
                broken = self.advance(at, result);
            }
        }
        broken.unwrap_or(Progress::To(end))
    }

    /// Takes a step's result in. Nothing if it is whole.
    fn advance(&mut self, at: usize, result: Result<usize, Error>) -> Option<Progress> {
        let count = match result {
            Ok(count) => count,
            Err(error) => return Some(Progress::Failed(at, error)),
        };
        let step = &mut self.steps[at];
        step.done += count;
        if step.done == step.whole.len() {
            return None;
        }
        if step.buffer.is_some() {
            let rest = step.take_rest();
            step.give_back(rest);
        }
        Some(match step.kind {
            _ if count > 0 => Progress::To(at),
            Kind::Read => Progress::Over(at),
            // It moved nothing and had no reason not to: go on would be for ever.
            _ => Progress::Failed(at, self.file.error(Opcode::Write, libc::EIO)),
        })
    }

    /// Steps before `at` are whole, or the last of them met the end of the file; the one there
    /// failed, if there is a failure, and what is left did not run.
    fn into_outcomes(self, at: usize, failure: Option<Error>) -> Vec<StepOutcome> {
        let mut failure = failure;
        let outcome = |(place, step): (usize, Step)| {
            let cancelled = || {
                let error = self.file.error(step.kind.opcode(), libc::ECANCELED);
                error.advise("a step before it in the chain was not done in full")
            };
            let result = if place < at {
                Ok(step.done)
            } else {
                Err(failure.take().unwrap_or_else(cancelled))
            };
            let whole = step.whole;
            let give = |buffer: Buffer| buffer.selecting(whole).given_back();
            StepOutcome { result, buffer: step.buffer.map(give) }
        };
        self.steps.into_iter().enumerate().map(outcome).collect()
    }
}

impl Step {
    fn next_offset(&self) -> u64 {
        self.offset.saturating_add(self.done as u64)
    }

    /// What of the file is left to be changed.
    fn changes(&self) -> Range<u64> {
        match self.kind {
            Kind::Write => {
                let end = self.offset.saturating_add(self.whole.len() as u64);
                self.next_offset()..end
            }
            Kind::Read | Kind::Sync { .. } => 0..0,
        }
    }

    /// The buffer, with what is left to be moved selected.
    fn take_rest(&mut self) -> Buffer {
        let buffer = self.buffer.take().expect("the ring gave it back");
        buffer.selecting(self.whole.start + self.done..self.whole.end)
    }

    fn give_back(&mut self, buffer: Buffer) {
        self.buffer = Some(buffer);
    }

    /// What is left of the step.
    fn operation(&mut self, file: &File) -> Operation {
        let (descriptor, offset) = (file.descriptor(), self.next_offset());
        match self.kind {
            Kind::Write => Operation::write_at(descriptor, self.take_rest(), offset),
            Kind::Read => Operation::read_at(descriptor, self.take_rest(), offset),
            Kind::Sync { data_only: true } => {
                Operation::sync_data(descriptor).witnessed_by(file.syncs())
            }
            Kind::Sync { data_only: false } => {
                Operation::sync_all(descriptor).witnessed_by(file.syncs())
            }
        }
    }

    fn take_back(&mut self, completion: Completion) {
        if let Some(buffer) = completion.take_buffer() {
            self.give_back(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{local::Local, op::OpenOptions, sim::Simulation, slot::Ticket};

    fn completed(operation: Operation, result: i32) -> Completion {
        Completion::new(Ticket::NONE, 0, result, operation)
    }

    /// What a kernel gives that does not break the link at a short write, or took it in two parts.
    #[test]
    fn a_sync_that_ran_before_its_turn_is_not_believed() {
        let ring = Local::builder().simulation(&Simulation::new(1)).build_ring().unwrap();
        let options = OpenOptions::new().write(true).create(true);
        let file = futures::executor::block_on(File::open(&ring, "/file", options)).unwrap();
        let mut chain = file.chain().write_at(vec![1; 10], 0).sync_data().write_at(vec![2; 4], 10);
        let results = [7, 0, 4];
        let completions = chain.steps.iter_mut().zip(results);
        let completions =
            completions.map(|(step, result)| completed(step.operation(&file), result)).collect();
        assert!(matches!(chain.absorb(0, completions), Progress::To(0)));
        assert_eq!(chain.steps.iter().map(|step| step.done).collect::<Vec<_>>(), [7, 0, 0]);
        let rest = chain.steps[0].operation(&file);
        assert_eq!((rest.offset(), rest.into_buffer().unwrap().selected().len()), (Some(7), 3));
    }
}
