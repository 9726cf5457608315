//! Writes, syncs and reads of one file in a fixed order, with few hand-overs.
//!
//! The ring gets as many steps as it takes at once, linked. What follows a short write is decided by
//! [`Steps`] (invariant 11).

use std::{future::poll_fn, time::Duration};

use super::{File, abandoned::Change};
use crate::{
    buf::{BufResult, Buffer, OwnedBuffer, OwnedBufferMut},
    error::{Error, ErrorKind},
    local::{Steps, Turn},
    op::Opcode,
    ring::Timer,
};

/// Steps on one file. Each starts when the one before has been done in full. Made by [`File::chain`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use ringwise::{OpenOptions, Ring, fs::File};
///
/// # futures::executor::block_on(async {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("file");
/// # let ring = Ring::new()?;
/// # let options = OpenOptions::new().read(true).write(true).create(true);
/// let file = File::open(&ring, &path, options).await?;
/// let chain = file.chain().write_at("record", 64).sync_data().write_at("header", 0).sync_data();
/// let steps = chain.deadline(Duration::from_secs(5)).run().await;
/// assert!(steps.iter().all(|step| step.result.is_ok()), "both are durable");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
#[must_use = "a chain does nothing until it is run"]
pub struct Chain {
    file: File,
    steps: Steps,
    deadline: Option<Duration>,
}

/// The result of a step of a [`Chain`].
///
/// # Examples
///
/// ```
/// use ringwise::{ErrorKind, OpenOptions, Ring, fs::File};
///
/// # futures::executor::block_on(async {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("file");
/// # let ring = Ring::new()?;
/// # let options = OpenOptions::new().read(true).write(true).create(true);
/// let file = File::open(&ring, &path, options).await?;
/// let mut steps = file.chain().read_at(vec![0; 8], 0).write_at("next", 8).run().await;
/// let (write, read) = (steps.pop().unwrap(), steps.pop().unwrap());
/// assert_eq!(read.result.unwrap(), 0, "the file is empty, which ends the chain");
/// assert_eq!(write.result.as_ref().unwrap_err().kind(), ErrorKind::Cancelled);
/// assert_eq!(write.into_buffer::<&str>(), "next");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
#[must_use = "a step may have failed"]
#[non_exhaustive]
pub struct StepOutcome {
    /// The bytes read or written, 0 for a sync, or the error. A step that did not run is
    /// [`Cancelled`](crate::ErrorKind::Cancelled).
    pub result: Result<usize, Error>,
    /// The buffer of a read or write, on failure too.
    pub buffer: Option<Buffer>,
}

impl StepOutcome {
    /// The buffer, as the type that was given.
    ///
    /// # Panics
    ///
    /// If the step had no buffer, or one of another type.
    pub fn into_buffer<B: OwnedBuffer>(self) -> B {
        B::from_buffer(self.buffer.expect("a sync has no buffer"))
    }
}

impl File {
    /// Begins a chain: steps on this file in a fixed order.
    ///
    /// The ring gets all steps together if the kernel can link them, and otherwise one after the other. A
    /// short write is completed before the next step starts, so a sync that succeeds has made every write
    /// before it durable. A step that fails ends the chain, and so does a read that meets the end of the
    /// file. Later steps are cancelled, and give their buffers back.
    ///
    /// # Cancel safety
    ///
    /// If the future of [`run`](Chain::run) is dropped, writes and syncs that the ring has go on. A short
    /// write is not completed then.
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
        let steps = Steps::default().aligned(self.alignment());
        Chain { file: self.clone(), steps, deadline: self.deadline }
    }

    /// Writes all of the buffer, and makes the file's data durable. The name of a new file is durable once
    /// its directory is synced too.
    ///
    /// # Errors
    ///
    /// The failure of an earlier write whose future was dropped: nothing of this buffer was written then.
    /// Otherwise, the error of the write or the sync; see [`sync_data`](Self::sync_data).
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
    /// Adds a write of all of the buffer at `offset`.
    pub fn write_at<B: OwnedBuffer>(self, buffer: B, offset: u64) -> Chain {
        Chain { steps: self.steps.write_at(buffer, offset), ..self }
    }

    /// Adds a read that fills the buffer at `offset`.
    pub fn read_at<B: OwnedBufferMut>(self, buffer: B, offset: u64) -> Chain {
        Chain { steps: self.steps.read_at(buffer, offset), ..self }
    }

    /// Adds a [`File::sync_data`].
    pub fn sync_data(self) -> Chain {
        Chain { steps: self.steps.sync_data(), ..self }
    }

    /// Adds a [`File::sync_all`].
    pub fn sync_all(self) -> Chain {
        Chain { steps: self.steps.sync_all(), ..self }
    }

    /// Sets a time for all steps together, from [`run`](Self::run) on. After it no step begins, and the one
    /// under way is cancelled if it can be. The first step that is not done fails with
    /// [`TimedOut`](crate::ErrorKind::TimedOut), and may have been done in part.
    pub fn deadline(mut self, after: Duration) -> Chain {
        self.deadline = Some(after);
        self
    }

    /// Makes the steps, and gives their results in order.
    ///
    /// # Cancel safety
    ///
    /// As for [`File::chain`].
    pub async fn run(mut self) -> Vec<StepOutcome> {
        let mut timer = Timer::new(&self.file.ring, self.deadline);
        let mut failure = self.file.settle_all(&mut timer).await.err();
        while self.steps.at() < self.steps.len() && failure.is_none() {
            timer.look().await;
            let at = self.steps.at();
            let turn = match self.refusal(at, &timer) {
                Some(error) => Turn::Failed(at as u64, error),
                None if self.is_unaligned_read(at) => self.read_alone(&mut timer).await,
                None => self.run_linked(self.segment_end(at), &mut timer).await,
            };
            match turn {
                Turn::Failed(_, error) => failure = Some(error),
                Turn::Ended => break,
                Turn::Again | Turn::Done | Turn::Waits => {}
            }
        }
        self.into_outcomes(failure)
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
        match self.steps.opcode(at) {
            Opcode::Read => None,
            opcode => self.file.check_sync(opcode).err(),
        }
    }

    fn timed_out(&self, at: usize) -> Error {
        self.file.error(self.steps.opcode(at), libc::ETIME)
    }

    /// A direct read that is made by a copy.
    fn is_unaligned_read(&self, at: usize) -> bool {
        let read = self.steps.read(at);
        read.is_some_and(|(buffer, offset)| !self.file.is_aligned(buffer, offset))
    }

    async fn read_alone(&mut self, timer: &mut Timer) -> Turn {
        let (buffer, offset) = self.steps.take_read();
        let BufResult(result, buffer) = self.file.read_buffer(buffer, offset, timer).await;
        self.steps.give_read(buffer, result).unwrap_or(Turn::Again)
    }

    /// Hands the steps up to `end` over as one chain of the ring, and takes what they came to.
    async fn run_linked(&mut self, end: usize, timer: &mut Timer) -> Turn {
        let file = &self.file;
        let start = self.steps.at();
        let ranges: Vec<_> = (start..end).map(|at| self.steps.changes(at)).collect();
        let operations = self.steps.hand_over(end, file.descriptor()).into_iter();
        let operations = operations.map(|operation| match operation.opcode() {
            Opcode::Sync => operation.witnessed_by(file.syncs()),
            _ => operation,
        });
        let steps = file.ring.submit_linked(operations).into_iter().zip(ranges);
        let mut steps: Vec<Change<'_>> =
            steps.map(|(step, range)| Change::new(file, range, step)).collect();
        let mut turn = Turn::Again;
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
        for (place, completion) in (start..).zip(completions) {
            let result = self.file.step_result(&completion);
            turn = self.steps.take_as(place, completion, result);
        }
        match turn {
            Turn::Failed(at, error)
                if matches!(timer, Timer::Over) && error.kind() == ErrorKind::Cancelled =>
            {
                drop(error);
                Turn::Failed(at, self.timed_out(at as usize))
            }
            turn => turn,
        }
    }

    /// Steps before the first that is not done are whole, or the last of them met the end of the file; that
    /// one failed, if there is a failure, and what is left did not run.
    fn into_outcomes(self, failure: Option<Error>) -> Vec<StepOutcome> {
        let Chain { file, steps, .. } = self;
        let (at, mut failure) = (steps.at(), failure);
        let outcome = |(place, (opcode, done, buffer))| {
            let cancelled = || {
                let error = file.error(opcode, libc::ECANCELED);
                error.advise("a step before it in the chain was not done in full")
            };
            let result = match place < at {
                true => Ok(done),
                false => Err(failure.take().unwrap_or_else(cancelled)),
            };
            StepOutcome { result, buffer }
        };
        steps.into_parts().enumerate().map(outcome).collect()
    }
}
